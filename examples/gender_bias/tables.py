"""Tables 1 to 4 of Bigdeli et al. (ECIR 2023) on a small scale: effectiveness and bias of balanced pairs and alternatives.

    python examples/gender_bias/tables.py --data FOLDER --out tables

trains rankers (three layers of all-MiniLM-L6-v2 as a cross-encoder) on MS MARCO queries: on the original pairs; with 5, 15, 25
and 35 % balanced female and male pairs added (Table 1); with bias-aware negatives, a bias-aware loss, an adversary, and with the
gendered words of half of the passages swapped. It also re-ranks the lists of the first ranker by its score and the neutrality of
passages, which needs no training. All rankers are tested on the same queries: RR@10 and nDCG@10 on all of them, and ARaB (TF,
Boolean), NFaiRR and the share of gendered words on the neutral ones (Tables 3 and 4).

FOLDER contains the parts of MS MARCO that are freely available: `msmarco_dev_small` (queries with one relevant passage, to train
on; negatives are other queries' passages that BM25 finds), `msmarco_dev600` (600 other queries with BM25's first 20, for the
test), `gender` (3,750 annotated queries), `lexicons` (Empath's categories); and for `--query-sets` and `--gendered` also
`msmarco_trec_dl`, whose passages are ranked together with the others. Instead of generated queries the program uses real queries
whose passages are not used in training otherwise. A classifier that was fitted on the annotated queries labels them, and passages
are matched by their Empath profiles. With all of MS MARCO:

    python examples/gender_bias/tables.py --dataset irds:msmarco-passage/train irds:msmarco-passage/dev/small --pairs pairs.tsv
        --annotated queries_gender_annotated.csv --lexicon LIWC.dic --config msmarco.json --out full
        --query-sets QS1=queries_gender_annotated.csv QS2=msmarco_passage.dev.fair.tsv --gendered identified_queries

where pairs.tsv has the columns qid, query, docno of generated queries (`pyterrier_doc2query`), and msmarco.json beside this
program has the paper's settings. Passages are matched by the paper's 22 columns of LIWC (`--columns paper`). Indexing and
training then need a large machine.

`--query-sets` ranks further queries over the training collection and measures their bias. In the paper these are the 1,765
neutral ones of the 3,750 annotated queries (QS1; from a file with labels only neutral queries are taken) and 215
fairness-sensitive ones (QS2). With `--data`, effectiveness is then also measured on TREC DL 2019 and 2020, whose passages BM25
found in all of MS MARCO. `--gendered` names the queries of Table 2: a folder with `female_queries.csv` and `male_queries.csv`, as
Bigdeli et al. released them in 2021, or a file with labels, whose female and male queries are taken; or several of these. Without
it Table 2 uses the test queries that are labelled female or male.

    python examples/gender_bias/tables.py --data FOLDER --config planted.json --out planted
        --query-sets QS1=queries_gender_annotated.csv QS2=msmarco_passage.dev.fair.tsv

plants a bias (`planted.json` beside this program). Some neutral training queries have gendered words in their relevant passage
and in other candidates; for 80 % of these queries, the relevant passage is made male and the others female. All arms are trained
on these data, except `unplanted`, which is trained on the unchanged data. This shows which share of the planted bias a treatment
removes, and at what cost.

A run that was stopped continues with the same command; `--arms` selects some of the arms, `--estimate` prints how long it takes.
`--keep` saves each ranker in the folder of its arm; it then ranks the queries of sets that are named only in a later run.

What it cannot tell: how a ranker trained to convergence would behave. All arms take the same number of steps, so more
data does not mean more training. The arm `adversarial` starts from the untrained ranker, as all arms do; `adversarial, trained
first` starts from a trained one, as in the paper.
"""

import gzip
import io
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias import AddJudged, Collection, CrossEncoder, InputError, Training, open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.statistics import paired_t, two_level_interval
from pyterrier_debias.core.text import keyed_hash, regex_word
from pyterrier_debias.gender.data.balanced_pairs import BalancedPairs, plot_balance
from pyterrier_debias.gender.data.profiles import FOUR, Lexicon, LexiconProfiles, chosen_columns
from pyterrier_debias.gender.data.query_gender import GenderClassifier, QueryGender, read_gender_queries
from pyterrier_debias.gender.data.swap import SwapGender
from pyterrier_debias.gender.formulas.arab import arab, fairr, ifairr, neutrality
from pyterrier_debias.gender.formulas.counting import count_words
from pyterrier_debias.gender.formulas.leaning import lean_of_texts
from pyterrier_debias.gender.measures.over_rankings import QueryGroupGap
from pyterrier_debias.gender.training.balanced import augment_balanced, choose_ratio
from pyterrier_debias.gender.training.fair_rerankers import AdversarialReranker, BiasAwareReranker
from pyterrier_debias.gender.training.negatives import BiasAwareNegatives
from pyterrier_debias.gender.training.neutral_reranker import NeutralReranker
from pyterrier_debias.report.first_stage import first_stage
from pyterrier_debias.report.models import find_model

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from planting import changed, draw_front, gap_table, plant, plantable
from workshop import (
    KEEP,
    KEPT,
    Arm,
    Shared,
    Workshop,
    answerable,
    base_parser,
    compare,
    corrected,
    draw,
    encoder_of,
    held,
    matrix,
    minutes,
    named,
    pace,
    program,
    read_settings,
    relevant_pairs,
    sampled_tests,
    single_positives,
    write_results,
)

#: Empath's categories that come nearest to the paper's 22 categories of LIWC: affect, drives and personal concerns. None of them
#: is about a gender. Empath has hardly any categories for LIWC's cognitive processes.
LIKE_LIWC = tuple(
    """positive_emotion negative_emotion nervousness anger sadness joy fear confusion science reading philosophy
    affection achievement power giving royalty work leisure home money religion death""".split()
)

EFFECTIVENESS = ("RR@10", "nDCG@10")
#: The same for TREC DL, where passages are relevant from grade 2 on.
GRADED = ("RR(rel=2)@10", "nDCG@10")
BIASES = ("ARaB_tf@10", "ARaB_bool@10", "abs_ARaB_tf@10", "NFaiRR@10", "gap@10")
#: The measures that say which gender is preferred; a planted bias can only be seen in these.
PLANTED = BIASES[:2]

#: Captions of the tables in the documentation; those of a further query set start with its name.
CAPTIONS = {
    "means": "Effectiveness and bias of each training",
    "differences": "Differences from the untreated ranker",
    "gap_closed": "How much of the planted bias each treatment removes",
    "table_1": "Effectiveness over the ratio of balanced pairs",
}

NOTES = [
    "low, high: 95 %, bootstrap over seeds and queries. difference: from the original training; p: Wilcoxon's signed-rank test "
    "over queries, each query's mean over seeds; p_corrected: Holm, over the table.",
    "ARaB is signed, male minus female, over queries that are labelled neutral and hold no gendered word; abs_ARaB is the mean "
    "of the queries' absolute values; gap: absolute difference of the shares of male and female words in the first ten passages, "
    "per query, in per cent. Closer to 0 is less biased; NFaiRR closer to 1.",
    "reduction: how much closer to 0 (NFaiRR: to 1) the mean is than the original training's, in per cent; it may vary widely "
    "if the original is near 0.",
    "All arms are trained with the pairwise hinge loss and for the same number of steps.",
]
PLANTED_NOTE = (
    "A bias was planted in the training data of all arms except 'unplanted'; the arm 'planted' is not treated. planted: the gap, "
    "that is, the bias of 'planted' minus that of 'unplanted'; share_closed: the share of the gap that an arm removes, blank if "
    "the gap may be 0; all with 95 % intervals."
)
GAP_NOTE = (
    "table_2: absolute gap between the mean shares of a category's words among the first ten passages for female and for male "
    "queries; difference: from the original training, p: paired t-test over the influence values of both groups' queries."
)


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; ``depth`` is the number of BM25's candidates per training query, ``queries`` that of test queries.

    Attributes:
        ratios: Ratios of balanced pairs.
        train_queries: Original training queries per seed.
        test_depth: Candidates per test query that are reranked.
        head: The input of a new head: ``'mean'`` or ``'cls'``.
        learning_rate: Peak learning rate; it falls linearly.
        max_length: Largest number of tokens of a query and a passage together.
        negatives_per_positive: Negatives per positive.
        labeller: ``'classifier'``, fitted on the annotated queries, or ``'words'``.
        replacement: Whether matching is with replacement, as in the paper.
        min_similarity: Smallest similarity of a match; None for no limit.
        share: Share of the most biased candidates among the bias-aware negatives.
        reversal: Weight of the adversary's reversed gradient.
        strength: Weight of neutrality in the re-ranking at query time.
        margin: The largest loss of RR@10 that does not matter, for the non-inferiority test.
        planted: Share of the training queries that allow a planted bias in which it is planted; 0 for none.
        per_set: Largest number of queries of each further set; None for all.
    """

    dropout: float | None = 0.0
    head_std: float | None = 0.1
    triples: int = 1600
    depth: int = 30
    queries: int = 300
    ratios: tuple[float, ...] = (0.05, 0.15, 0.25, 0.35)
    train_queries: int = 800
    test_depth: int = 20
    head: str = "mean"
    learning_rate: float = 1.5e-4
    max_length: int = 128
    negatives_per_positive: int = 1
    labeller: str = "classifier"
    replacement: bool = False
    min_similarity: float | None = None
    share: float = 0.6
    reversal: float = 1.0
    strength: float = 0.25
    margin: float = 0.02
    planted: float = 0.0
    per_set: int | None = None

    POSITIVE = (*Shared.POSITIVE, "train_queries", "test_depth", "max_length", "negatives_per_positive")


# Collections


@dataclass(frozen=True)
class QuerySet:
    """Further queries that are ranked over the training collection to measure bias, or over their own to measure effectiveness.

    Attributes:
        name: Name of the set in the tables.
        topics: ``qid``, ``query``, and ``gender`` if the queries are compared by gender.
        judged: Dataset of judged queries with its own passages and a run of BM25; None for queries without judgements.
        source: Name of the queries' file or folder in Table 2.
    """

    name: str
    topics: pd.DataFrame
    judged: Any = None
    source: str = ""

    @property
    def gendered(self) -> bool:
        """Whether Table 2 is about the set."""
        return "gender" in self.topics.columns


#: The name of the first set that Table 2 is about.
GENDERED = "gendered"
#: The name of the set of TREC DL's judged queries, on which the cost is measured as well.
DL = "DL"


def read_query_set(name: str, path: str) -> QuerySet:
    """A set of neutral queries.

    Args:
        name: Name of the set in the tables.
        path: The file has lines ``qid,query,label`` (.csv; the neutral ones are taken) or ``qid<tab>query``.

    Returns:
        The set.

    Raises:
        InputError: For a name that is not a word, a file that cannot be read, or a file without a neutral query.
    """
    given = f"{name}={path}"
    if not re.fullmatch(r"[\w.]+", name) or name.startswith(GENDERED) or name == DL:
        raise InputError(f"--query-sets {given}: write NAME=FILE; a name has letters and digits, and is not {GENDERED} or {DL}")
    if path.endswith(".csv"):
        labelled = read_gender_queries(path)
        topics = labelled.loc[labelled["gender"] == "neutral", ["qid", "query"]]
    else:
        try:
            topics = pd.read_csv(path, sep="\t", names=["qid", "query"], dtype=str, usecols=[0, 1], keep_default_na=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--query-sets {given} cannot be read as lines qid, tab, query ({error})") from error
    if topics.empty:
        raise InputError(f"--query-sets {given}: no query is neutral")
    return QuerySet(name, topics.drop_duplicates("qid").reset_index(drop=True))


def read_gendered(path: Path, name: str = GENDERED) -> QuerySet:
    """Queries of Table 2.

    Args:
        path: A folder with ``female_queries.csv`` and ``male_queries.csv``, columns ``qid``, ``query``; or a file with lines
            ``qid,query,label``, whose female and male queries are taken.
        name: Name of the set in the arms' folders.
    """
    if path.is_file():
        labelled = read_gender_queries(path)
        topics = labelled.loc[labelled["gender"].isin(("female", "male")), ["qid", "query", "gender"]]
        return QuerySet(name, topics.drop_duplicates("qid").reset_index(drop=True), source=path.stem)
    frames = []
    for gender in ("female", "male"):
        try:
            frame = pd.read_csv(path / f"{gender}_queries.csv", dtype=str, keep_default_na=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--gendered {path} lacks a readable {gender}_queries.csv ({error})") from error
        if not {"qid", "query"} <= set(frame.columns):
            raise InputError(f"--gendered {path}: {gender}_queries.csv needs the columns qid and query")
        frames.append(frame[["qid", "query"]].assign(gender=gender))
    return QuerySet(name, pd.concat(frames).drop_duplicates("qid").reset_index(drop=True), source=path.name)


@dataclass(frozen=True)
class Material:
    """The data for training and testing.

    Attributes:
        name: Name in the results.
        train: Dataset of the training queries, whose corpus is ranked.
        train_topics: ``qid``, ``query``.
        train_qrels: Their judgements.
        test_topics: ``qid``, ``query``.
        test_qrels: Their judgements.
        pairs: ``qid``, ``query``, ``docno`` to be labelled and matched; None for training queries that are not trained on.
        annotated: Queries with a gender, for the classifier; None if the list of words is the labeller.
        lexicon: Lexicon of the profiles.
        columns: Categories of the lexicon that make a profile: ``'paper'``, ``'all'`` or names.
        sets: Sets of further queries.
        test: Test dataset with its own passages and a run of BM25; None if the test ranks the passages of ``train``.
        pool: Dataset whose passages are ranked for further queries; None for ``train``.
    """

    name: str
    train: Any
    train_topics: pd.DataFrame
    train_qrels: pd.DataFrame
    test_topics: pd.DataFrame
    test_qrels: pd.DataFrame
    pairs: pd.DataFrame | None
    annotated: pd.DataFrame | None
    lexicon: Any
    columns: Any = "paper"
    sets: tuple[QuerySet, ...] = ()
    test: Any = None
    pool: Any = None

    def categories(self) -> tuple[str, ...]:
        """The categories of Table 2: the paper's four where the lexicon has them, otherwise the profile's columns."""
        try:
            return chosen_columns(self.lexicon, tuple(FOUR))
        except InputError:
            return chosen_columns(self.lexicon, self.columns)


def in_small(folder: Path, settings: Settings) -> Material:
    """The freely available parts of MS MARCO.

    Training passages have a title, test passages have none. Training candidates are therefore drawn from the training passages
    only, so that a title says nothing about relevance.
    """
    single = single_positives(folder, "--data")
    test = open_dataset(folder / "msmarco_dev600", "msmarco_sparse")
    single = single[~single["qid"].isin(set(test.get_topics()["qid"]))]
    # A text starts with "- " where the title is missing.
    corpus = single.assign(text=single["positive"].str.removeprefix("- ")).drop_duplicates("docno")[["docno", "text"]]
    topics = single[["qid", "query"]].drop_duplicates("qid").reset_index(drop=True)
    qrels = single[["qid", "docno", "label"]].reset_index(drop=True)
    name = "MS MARCO in small"
    dataset = Collection(name, corpus=corpus.reset_index(drop=True), topics={"train": topics}, qrels={"train": qrels})
    annotated = None
    if settings.labeller == "classifier":
        annotated = read_gender_queries(folder / "gender" / "rekabsaz_schedl_2020" / "queries_gender_annotated.csv")
    lexicon = folder / "lexicons" / "empath_categories.tsv"
    test_topics = draw(answerable(test.get_topics(), test.get_qrels()), settings.queries, 0, "test")
    return Material(name, dataset, topics, qrels, test_topics, test.get_qrels(), None, annotated, lexicon, LIKE_LIWC, test=test)


def all_passages(tests: Iterable[Collection], train: Collection) -> Collection:
    """The passages of training and tests, which are ranked for further queries."""
    parts = [one.corpus[["docno", "text"]] for one in (train, *tests)]
    corpus = pd.concat(parts).drop_duplicates("docno").reset_index(drop=True)
    return Collection("MS MARCO samples", corpus=corpus, topics=train.topics, qrels=train.qrels)


def from_datasets(options: Any, settings: Settings) -> Material:
    """Any two datasets over one corpus, with pairs from a file."""
    train, test = open_dataset(options.dataset[0]), open_dataset(options.dataset[-1])
    qrels = held(train.get_qrels(), train), held(test.get_qrels(), test)
    topics = [answerable(dataset.get_topics(), own) for dataset, own in zip((train, test), qrels)]
    if len(options.dataset) == 1:
        # There is one collection: set some of its queries aside for the test.
        topics[1] = draw(topics[0], settings.queries, 0, "test")
        topics[0] = topics[0][~topics[0]["qid"].isin(set(topics[1]["qid"]))].reset_index(drop=True)
    pairs = None
    if options.pairs is not None:
        pairs = pd.read_csv(options.pairs, sep="\t", dtype=str)
        missing = [column for column in ("qid", "query", "docno") if column not in pairs.columns]
        if missing:
            raise InputError(f"--pairs {options.pairs} lacks the column {missing[0]!r}")
    if options.lexicon is None or (settings.labeller == "classifier" and options.annotated is None):
        raise InputError("--dataset needs --lexicon, and --annotated unless the setting labeller is 'words'")
    annotated = read_gender_queries(options.annotated) if settings.labeller == "classifier" else None
    test_topics = draw(topics[1], settings.queries, 0, "test")
    columns = options.columns[0] if len(options.columns) == 1 else tuple(options.columns)
    chosen_columns(options.lexicon, columns)
    return Material(train.name, train, topics[0], qrels[0], test_topics, qrels[1], pairs, annotated, options.lexicon, columns)


class Setup:
    """The material with its candidates and labels, which are kept on disk.

    Args:
        material: The data for training and testing.
        settings: The settings of the run.
        out: The folder where files are kept.
    """

    def __init__(self, material: Material, settings: Settings, out: Path):
        self.material, self.settings, self.out = material, settings, out
        self.texts = material.train.text_loader()
        self._lists: dict[str, pd.DataFrame] = {}
        self._retrievers: dict[str, Any] = {}

    def _retriever(self, dataset: Any) -> Any:
        if dataset.name not in self._retrievers:
            print(f"{dataset.name}: indexing", flush=True)
            scratch = Path(tempfile.mkdtemp(prefix="gender-bias-"))
            weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
            depth = max(self.settings.depth, self.settings.test_depth)
            self._retrievers[dataset.name] = first_stage(dataset, scratch, depth=depth, complete=True).candidates
        return self._retrievers[dataset.name]

    def candidates(self, topics: pd.DataFrame, depth: int, dataset: Any = None) -> pd.DataFrame:
        """BM25's candidates with ``qid``, ``query``, ``docno``, ``score``, ``rank``; without texts.

        Args:
            topics: ``qid``, ``query``.
            depth: How many candidates per query.
            dataset: The dataset whose passages are ranked; None for the training dataset.
        """
        dataset = self.material.train if dataset is None else dataset
        key = keyed_hash(depth, dataset.name, *(f"{qid}\0{query}" for qid, query in zip(topics["qid"], topics["query"])))
        path = self.out / "candidates" / f"{key:016x}.csv.gz"
        if not path.is_file():
            found = self._retriever(dataset)(topics[["qid", "query"]])
            found = found.loc[found["rank"] < depth, ["qid", "query", "docno", "score", "rank"]]
            write_whole(path, gzip.compress(found.to_csv(index=False).encode(), mtime=0))
        content = gzip.decompress(path.read_bytes()).decode()
        return pd.read_csv(io.StringIO(content), dtype={"qid": str, "docno": str, "query": str}, keep_default_na=False)

    @cached_property
    def test(self) -> pd.DataFrame:
        """The test's candidates with texts."""
        if self.material.test is None:
            return self.texts(self.candidates(self.material.test_topics, self.settings.test_depth))
        return self.of_run(self.material.test, self.material.test_topics)

    def of_run(self, dataset: Any, topics: pd.DataFrame) -> pd.DataFrame:
        """The candidates of a dataset's own run of BM25, with texts."""
        run = dataset.get_runs()["bm25"]
        run = run.loc[run["rank"] < self.settings.test_depth, ["qid", "docno", "score", "rank"]].merge(topics, on="qid")
        return dataset.text_loader()(run.reset_index(drop=True))

    def lists(self, name: str = "") -> pd.DataFrame:
        """Candidates with texts: the test's, or those of a set of further queries."""
        if not name:
            return self.test
        if name not in self._lists:
            (one,) = (one for one in self.material.sets if one.name == name)
            if one.judged is not None:
                self._lists[name] = self.of_run(one.judged, one.topics)
            else:
                pool = self.material.train if self.material.pool is None else self.material.pool
                self._lists[name] = pool.text_loader()(self.candidates(one.topics, self.settings.test_depth, pool))
        return self._lists[name]

    @cached_property
    def labels(self) -> dict[str, str]:
        """The gender that the labeller gives each query, by the query's text."""
        path = self.out / "labels.csv"
        if not path.is_file():
            frames = [self.material.train_topics, self.material.test_topics]
            frames += [] if self.material.pairs is None else [self.material.pairs]
            queries = pd.concat([frame[["query"]] for frame in frames]).drop_duplicates()
            labeller: Any = "words"
            if self.material.annotated is not None:
                print("labelling queries", flush=True)
                head = GenderClassifier(find_model("minilm", "bi").source)
                labeller = head.fit(self.material.annotated["query"], self.material.annotated["gender"])
            labelled = QueryGender(labeller)(queries.reset_index(drop=True))
            write_whole(path, labelled[["query", "gender"]].to_csv(index=False))
        read = pd.read_csv(path, dtype=str, keep_default_na=False)
        return dict(zip(read["query"], read["gender"]))

    @cached_property
    def neutral(self) -> list[str]:
        """Test queries that are neutral."""
        found = self.neutral_of(self.material.test_topics)
        if not found:
            raise InputError("no test query is neutral; take more test queries (--queries)")
        return found

    def neutral_of(self, topics: pd.DataFrame) -> list[str]:
        """Queries that are labelled neutral and hold no gendered word."""
        plain = count_words(topics["query"].tolist()).sum(axis=1) == 0
        return topics.loc[topics["query"].map(self.labels).eq("neutral").to_numpy() & plain, "qid"].tolist()

    @cached_property
    def plantable(self) -> set[str]:
        """Training queries that allow a bias to be planted."""
        topics, qrels = self.material.train_topics, self.material.train_qrels
        found = (AddJudged(qrels) >> self.texts)(self.candidates(topics, self.settings.depth))
        return plantable(found, relevant_pairs(qrels), set(self.neutral_of(topics)))

    def original(self, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Topics and judgements of a seed's original training data; if a bias is planted, queries that allow it come first."""
        topics, n = self.material.train_topics, self.settings.train_queries
        if self.settings.planted:
            first = topics["qid"].isin(self.plantable)
            others = draw(topics[~first], max(0, n - first.sum()), seed, "train")
            topics = pd.concat([draw(topics[first], n, seed, "train"), others], ignore_index=True)
        else:
            topics = draw(topics, n, seed, "train")
        qrels = self.material.train_qrels
        return topics, qrels[qrels["qid"].isin(set(topics["qid"]))].reset_index(drop=True)

    def pairs(self, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The labelled and profiled pairs that are matched for a seed, and the matches."""
        material = self.material
        if material.pairs is None:
            taken = set(self.original(seed)[0]["qid"])
            rest = material.train_topics[~material.train_topics["qid"].isin(taken)]
            relevant = material.train_qrels[material.train_qrels["label"] > 0]
            frame = rest.merge(relevant[["qid", "docno"]], on="qid").drop_duplicates("docno")
        else:
            frame = material.pairs
        frame = frame.assign(gender=frame["query"].map(self.labels))
        frame = self.texts(frame[frame["gender"].isin(("female", "male"))].reset_index(drop=True))
        profiled = LexiconProfiles(material.lexicon, columns=material.columns)(frame)
        matched = self.stage()(profiled)
        return profiled, matched

    def stage(self) -> BalancedPairs:
        """The stage that matches pairs."""
        return BalancedPairs(replacement=self.settings.replacement, min_similarity=self.settings.min_similarity)

    def training_data(self, seed: int, ratio: float, planted: float) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Candidates with texts, and judgements."""
        topics, qrels = self.original(seed)
        if ratio:
            topics, qrels = augment_balanced(topics, qrels, self.pairs(seed)[1], ratio, seed=seed)
        found = (AddJudged(qrels) >> self.texts)(self.candidates(topics, self.settings.depth))
        return plant(found, relevant_pairs(qrels), self.plantable, planted, seed) if planted else found, qrels

    def training(self, seed: int, **options: Any) -> Training:
        """How every arm is trained."""
        settings = self.settings
        given = {
            "loss": "hinge", "max_steps": settings.optimiser_steps(), "batch_size": settings.batch_size,
            "negatives_per_positive": settings.negatives_per_positive, "learning_rate": settings.learning_rate,
            "warmup": 0.05, "precision": settings.precision, "seed": seed,
        }  # fmt: skip
        return Training(**{**given, **options})

    def ranker(self, seed: int, **options: Any) -> CrossEncoder:
        """An untrained ranker; options are those of its training."""
        settings = self.settings
        return CrossEncoder(
            encoder_of(settings, self.out),
            head=settings.head,
            seed=seed,
            max_length=settings.max_length,
            training=self.training(seed, **options),
        )

    # Measures

    def measured(self, run: pd.DataFrame) -> pd.DataFrame:
        """One row per test query: effectiveness, and the biases of neutral ones (missing for others)."""
        qids = self.material.test_topics["qid"].tolist()
        found = per_query(run, self.material.test_qrels, list(EFFECTIVENESS), qids)
        return found.join(self.biases(run, self.neutral)).rename_axis("qid").reset_index()

    def of_set(self, one: QuerySet, run: pd.DataFrame) -> pd.DataFrame:
        """The measures of a set of further queries, one row per query: effectiveness if it is judged, otherwise the biases."""
        qids = one.topics["qid"].tolist()
        if one.judged is None:
            return self.biases(run, qids)
        return per_query(run, one.judged.get_qrels(), list(GRADED), qids)

    def biases(self, run: pd.DataFrame, qids: Sequence[str]) -> pd.DataFrame:
        """The measures of bias, one row per query that has results."""
        lists = dict(list(run.sort_values("rank").groupby("qid")["text"]))
        out = {}
        for qid in qids:
            texts = lists.get(qid, pd.Series(dtype=object)).tolist()
            if not texts:
                continue
            tf, boolean = (lean_of_texts(texts, method=method) for method in ("tf", "bool"))
            counts = count_words(texts)
            neutral = neutrality(counts, ("male", "female"))
            ideal = ifairr(neutral, 10)
            shares = counts[:10] / np.maximum(1, [len(regex_word(text)) for text in texts[:10]])[:, None]
            gap = 100 * abs(float((shares[:, 0] - shares[:, 1]).mean()))
            value = arab(tf, 10)
            out[qid] = [value, arab(boolean, 10), abs(value), fairr(neutral, 10) / ideal if ideal else np.nan, gap]
        return pd.DataFrame(out, index=list(BIASES)).T

    def gendered(self) -> list[QuerySet]:
        """The female and male queries of Table 2, by set: those that the user named, or else those of the test."""
        sets = [one for one in self.material.sets if one.gendered]
        if sets:
            return sets
        topics = self.material.test_topics.assign(gender=self.material.test_topics["query"].map(self.labels))
        return [QuerySet("", topics[topics["gender"].isin(("female", "male"))].reset_index(drop=True), source="test")]


# Arms

Make = Callable[[Setup, int], Any]

#: Alternatives to balanced pairs, by name; they are fitted on the original data.
RIVALS: dict[str, Make] = {
    "bias-aware negatives": lambda setup, seed: setup.ranker(seed, negatives=BiasAwareNegatives(setup.settings.share)),
    "bias-aware loss": lambda setup, seed: BiasAwareReranker(setup.ranker(seed)),
    "adversarial": lambda setup, seed: AdversarialReranker(setup.ranker(seed), reversal=setup.settings.reversal),
    "adversarial, trained first": lambda setup, seed: AdversarialReranker(
        setup.ranker(seed), reversal=setup.settings.reversal, first_training=setup.training(seed)
    ),
    "swapped": lambda setup, seed: setup.ranker(seed, augment=SwapGender(share=0.5, seed=seed)),
}

ORIGINAL, UNPLANTED, TRADED = "original", "unplanted", "neutral re-ranking"


def ratio_name(ratio: float) -> str:
    """The name of an arm with balanced pairs in the tables."""
    return f"balanced {ratio:g}"


def names_of(settings: Settings) -> list[str]:
    """All arms."""
    return [ORIGINAL, *([UNPLANTED] if settings.planted else []), *map(ratio_name, settings.ratios), *RIVALS, TRADED]


def run_path(folder: Path, name: str = "") -> Path:
    """The file of an arm's ranked lists of the test or of a set of further queries."""
    return folder / f"run{name and '-' + name}.csv.gz"


def keep_run(folder: Path, run: pd.DataFrame, name: str = "") -> None:
    """Store an arm's ranked lists of the test or of a set of further queries."""
    content = run[["qid", "docno", "score", "rank"]].to_csv(index=False)
    write_whole(run_path(folder, name), gzip.compress(content.encode(), mtime=0))


def kept_run(setup: Setup, folder: Path, name: str = "") -> pd.DataFrame:
    """An arm's stored lists with texts.

    Raises:
        InputError: If the lists are those of other queries or candidates.
    """
    path = run_path(folder, name)
    run = pd.read_csv(path, dtype={"qid": str, "docno": str})
    found = run.merge(setup.lists(name)[["qid", "docno", "text"]])
    if not len(run) == len(found) == len(setup.lists(name)):
        raise InputError(f"{path} ranks other queries than the set {name} has now; give the set another name, or delete the file")
    return found


def add_runs(setup: Setup, workshop: Workshop, arms: Sequence[Arm]) -> None:
    """Rank the sets of further queries that were not given when an arm was made, by the ranker that is kept in its folder.

    Raises:
        InputError: If the arm's ranker was not kept.
    """
    for arm in arms:
        folder, name, seed = workshop.folder(arm), arm.labels["arm"], arm.labels["seed"]
        for one in setup.material.sets:
            if run_path(folder, one.name).is_file():
                continue
            if name == TRADED:
                keep_run(folder, traded(setup, workshop, seed, one.name), one.name)
                continue
            if not (folder / KEPT).is_dir():
                raise InputError(f"{folder} has not ranked {one.name}, and its ranker was not kept (--keep); use another --out")
            print(f"{arm.name}: ranking {one.name}", flush=True)
            ranker = type(new_ranker(setup, name, seed)).load(folder / KEPT)
            keep_run(folder, ranker(setup.lists(one.name)), one.name)


def traded(setup: Setup, workshop: Workshop, seed: int, name: str) -> pd.DataFrame:
    """The original arm's lists of the test or of a set of further queries, reranked by neutrality."""
    own = workshop.waited(arm_of(setup, workshop, ORIGINAL, seed))
    return NeutralReranker(setup.settings.strength)(kept_run(setup, own, name))


def new_ranker(setup: Setup, name: str, seed: int) -> Any:
    """The untrained ranker of an arm."""
    return RIVALS[name](setup, seed) if name in RIVALS else setup.ranker(seed)


def arm_of(setup: Setup, workshop: Workshop, name: str, seed: int, *, keep: bool = False) -> Arm:
    """One arm of one seed; ``keep``: whether its ranker is saved."""
    names = ["", *(one.name for one in setup.material.sets)]
    ratios = {ratio_name(ratio): ratio for ratio in setup.settings.ratios}

    def train(folder: Path, checkpoints: Path) -> pd.DataFrame:
        planted = 0.0 if name == UNPLANTED else setup.settings.planted
        candidates, qrels = setup.training_data(seed, ratios.get(name, 0.0), planted)
        fitted = new_ranker(setup, name, seed)
        fitted.fit(candidates, qrels)
        if keep:
            fitted.save(folder / KEPT)
        for one in names:
            keep_run(folder, fitted(setup.lists(one)), one)
        history = pd.DataFrame(fitted.training_report.history)
        history.to_csv(folder / "history.csv", index=False)
        return setup.measured(kept_run(setup, folder))

    def trade(folder: Path, checkpoints: Path) -> pd.DataFrame:
        for one in names:
            keep_run(folder, traded(setup, workshop, seed, one), one)
        return setup.measured(kept_run(setup, folder))

    free = name == TRADED
    steps = 0 if free else setup.settings.optimiser_steps()
    labels = {"arm": name, "seed": seed}
    return Arm(labels, trade if free else train, "cross", steps, 0 if free else sum(len(setup.lists(one)) for one in names))


# Tables


def of_measure(rows: pd.DataFrame, measure: str, arms: Sequence[str], resamples: int) -> pd.DataFrame:
    """A table of one measure: each arm's mean, and its difference from the original training."""
    names, values = matrix(rows[rows[measure].notna()], measure, ["arm"])
    columns = {name[0]: values[:, :, i] for i, name in enumerate(names)}
    table = []
    for arm in arms:
        own = two_level_interval(columns[arm][..., None], lambda means: means[..., 0], resamples=resamples)
        row: dict[str, Any] = {"arm": arm, "measure": measure, "mean": own.estimate, "mean_low": own.low, "mean_high": own.high}
        if arm != ORIGINAL:
            row |= compare(columns[ORIGINAL], columns[arm], resamples)
            ideal = 1.0 if measure.startswith("NFaiRR") else 0.0
            before, after = abs(ideal - columns[ORIGINAL].mean()), abs(ideal - columns[arm].mean())
            row["reduction"] = 100 * (before - after) / before if measure in BIASES and before else float("nan")
        table.append(row)
    return pd.DataFrame(table)


def tables_over(rows: pd.DataFrame, measures: Sequence[str], resamples: int, arms: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Means of all arms, and their differences from the original arm."""
    parts = {measure: of_measure(rows, measure, arms, resamples) for measure in measures}
    wide = {"arm": list(arms)}
    for name, table in parts.items():
        wide |= {name: table["mean"].to_numpy()} | {f"{name}_{end}": table[f"mean_{end}"].to_numpy() for end in ("low", "high")}
    compared = pd.concat([table[table["arm"] != ORIGINAL] for table in parts.values()], ignore_index=True)
    tables = {"means": pd.DataFrame(wide)}
    if len(compared):
        columns = ["arm", "measure", "difference", "low", "high", "p", "reduction", "seeds", "queries"]
        tables["differences"] = corrected(compared[columns].astype({"seeds": int, "queries": int}))
    return tables


def tables_of_sets(
    setup: Setup, workshop: Workshop, arms: Sequence[Arm], names: Sequence[str], test: pd.DataFrame
) -> dict[str, pd.DataFrame]:
    """Means and differences for each set of further queries: the bias columns of Tables 3 and 4, or effectiveness if judged.

    If a bias was planted, the tables also show how much of it each arm removes. ``test`` has the rows of the test, for the cost.
    """
    tables = {}
    for one in setup.material.sets:
        if not one.gendered:
            runs = [(arm, kept_run(setup, workshop.folder(arm), one.name)) for arm in arms]
            parts = [setup.of_set(one, run).rename_axis("qid").reset_index().assign(**arm.labels) for arm, run in runs]
            rows = pd.concat(parts, ignore_index=True)
            measures = BIASES if one.judged is None else GRADED
            found = tables_over(rows, measures, setup.settings.resamples, names)
            if UNPLANTED in names and one.judged is None:
                found["gap_closed"] = closed_of(setup, rows, names, test, f"front-{one.name}.png")
            tables |= {f"{one.name}_{name}": table for name, table in found.items()}
    return tables


def closed_of(setup: Setup, rows: pd.DataFrame, names: Sequence[str], test: pd.DataFrame, picture: str) -> pd.DataFrame:
    """How much of the planted bias each treated arm removes, with a picture if the planted bias can be measured."""
    treated, cost = [name for name in names if name not in (ORIGINAL, UNPLANTED)], EFFECTIVENESS[-1]
    effectiveness = test[["arm", "seed", "qid", cost]]
    table = gap_table(rows, PLANTED, effectiveness, treated, ORIGINAL, UNPLANTED, setup.settings.resamples)
    if table.loc[table["measure"] == PLANTED[0], "share_closed"].notna().any():
        draw_front(table, PLANTED[0], cost, setup.out / picture)
    return table


def planted_sizes(setup: Setup) -> pd.DataFrame:
    """How many training queries allow the bias to be planted, and in how many training queries of each seed it is planted."""
    neutral, rows = setup.neutral_of(setup.material.train_topics), []
    for seed in range(1, setup.settings.seeds + 1):
        topics, _ = setup.original(seed)
        chosen = changed(setup.plantable, setup.settings.planted, seed) & set(topics["qid"])
        counts = {"neutral queries": len(neutral), "that allow it": len(setup.plantable)}
        rows.append({"seed": seed, **counts, "training queries": len(topics), "planted": len(chosen)})
    return pd.DataFrame(rows)


def table_2(setup: Setup, workshop: Workshop, arms: Sequence[Arm], names: Sequence[str]) -> pd.DataFrame | None:
    """Table 2 over all sets of female and male queries; None if each has a group of fewer than two queries."""
    parts = [gaps_of(setup, workshop, arms, names, one) for one in setup.gendered()]
    found = pd.concat(parts, ignore_index=True)
    return corrected(found) if "p" in found.columns else None if found.empty else found


def gaps_of(setup: Setup, workshop: Workshop, arms: Sequence[Arm], names: Sequence[str], one: QuerySet) -> pd.DataFrame:
    """Gaps between the female and male queries of a set in each arm's ranked lists; empty if a group has fewer than two."""
    groups = one.topics.loc[one.topics["qid"].isin(set(setup.lists(one.name)["qid"])), ["qid", "gender"]]
    if groups["gender"].value_counts().reindex(["female", "male"]).fillna(0).min() < 2:
        return pd.DataFrame()
    runs = {(arm.labels["arm"], arm.labels["seed"]): kept_run(setup, workshop.folder(arm), one.name) for arm in arms}
    # Queries of neither group would only repeat the gap.
    runs = {key: run[run["qid"].isin(set(groups["qid"]))].sort_values(["qid", "rank"]) for key, run in runs.items()}
    lexicon, resamples, table = Lexicon.of(setup.material.lexicon), setup.settings.resamples, []
    for category in setup.material.categories():
        measure = QueryGroupGap(lexicon=lexicon, category=category, groups=groups, between=("female", "male")) @ 10
        values = {key: pd.Series(measure.values(run.reset_index(drop=True))) for key, run in runs.items()}
        by = {name: np.stack([own.sort_index() for (arm, _), own in values.items() if arm == name]) for name in names}
        for name in names:
            both = np.stack([by[ORIGINAL], by[name]], axis=-1)
            own = two_level_interval(both, lambda means: means[..., 1], resamples=resamples)
            row: dict[str, Any] = {"set": one.source, "category": category, "arm": name}
            row |= {"gap": own.estimate, "gap_low": own.low, "gap_high": own.high}
            if name != ORIGINAL:
                change = two_level_interval(both, lambda means: means[..., 1] - means[..., 0], resamples=resamples)
                p = paired_t(by[ORIGINAL].mean(axis=0), by[name].mean(axis=0)).p
                row |= {"difference": change.estimate, "low": change.low, "high": change.high, "p": p}
            table.append({**row, "queries": both.shape[1]})
    return pd.DataFrame(table)


def ratio_table(rows: pd.DataFrame, settings: Settings, done: Sequence[str]) -> Any:
    """Table 1: the curve over the ratio, from queries' means over seeds."""
    ratios = {0.0: ORIGINAL, **{ratio: ratio_name(ratio) for ratio in settings.ratios if ratio_name(ratio) in done}}
    by = rows.groupby(["arm", "qid"])[[EFFECTIVENESS[0], *BIASES]].mean()
    values = {ratio: by.loc[name, EFFECTIVENESS[0]] for ratio, name in ratios.items()}
    bias = {ratio: by.loc[name, list(BIASES[:3])].mean().to_dict() for ratio, name in ratios.items()}
    return choose_ratio(values, bias, margin=settings.margin)


def sizes_of(setup: Setup) -> tuple[pd.DataFrame, pd.DataFrame]:
    """How many pairs are matched and how well (Section 3 of the paper), per seed; and the balance of the first seed."""
    rows, first = [], None
    for seed in range(1, setup.settings.seeds + 1):
        profiled, matched = setup.pairs(seed)
        balance = setup.stage().balance(profiled, matched)
        first = balance if first is None else first
        counts = matched.attrs["matching"]
        rows.append(
            {
                "seed": seed, "female": counts["female"], "male": counts["male"], "matches": counts["matches"],
                "mean similarity": matched["similarity"].mean(),
                "largest difference before": balance["before"].abs().max(), "after": balance["after"].abs().max(),
                "mean difference before": balance["before"].abs().mean(), "mean after": balance["after"].abs().mean(),
                "neutral test queries": len(setup.neutral),
            }
        )  # fmt: skip
    return pd.DataFrame(rows), first


def expected(setup: Setup, arms: Sequence[Arm]) -> dict[str, float]:
    """Seconds of each arm, from a few steps of training and some scored passages."""
    topics, qrels = setup.original(1)
    some = draw(topics, 4 * setup.settings.batch_size, 0, "rehearsal")
    frame = (AddJudged(qrels) >> setup.texts)(setup.candidates(some, setup.settings.depth))
    ranker = setup.ranker(1)
    step, base = pace(ranker, frame, qrels, ranker.training)
    started = time.perf_counter()
    ranker(setup.test.head(200))
    text = (time.perf_counter() - started) / min(200, len(setup.test))
    print(f"{step:.2f} s per step, {1 / text:.0f} texts per second, {base:.0f} s to start", flush=True)
    return {arm.name: 1.0 if not arm.steps else base + arm.steps * step + arm.reads * text for arm in arms}


def material_of(options: Any, settings: Settings) -> Material:
    """The data that the options name."""
    if (options.data is None) == (options.dataset is None):
        raise InputError("give --data FOLDER, or --dataset TRAIN [TEST]")
    sets = [read_query_set(*given) for given in named("--query-sets", options.query_sets).items()]
    sets += [read_gendered(path, f"{GENDERED}{i or ''}") for i, path in enumerate(options.gendered)]
    if settings.per_set is not None:
        sets = [replace(one, topics=draw(one.topics, settings.per_set, 0, "set")) for one in sets]
    material = in_small(options.data, settings) if options.data is not None else from_datasets(options, settings)
    if not sets or options.data is None:
        return replace(material, sets=tuple(sets))
    judged, dev = sampled_tests(options.data).values()
    sets.append(QuerySet(DL, answerable(judged.get_topics(), judged.get_qrels()), judged))
    return replace(material, sets=tuple(sets), pool=all_passages((judged, dev), material.train))


def main() -> None:
    parser = base_parser(__doc__, Settings())
    parser.add_argument("--data", type=Path, help="folder with free parts of MS MARCO, annotated queries and lexicons")
    parser.add_argument("--dataset", nargs="+", help="training and test collection over one corpus, or one collection to split")
    parser.add_argument("--pairs", type=Path, help="tab-separated table of generated queries: qid, query, docno")
    parser.add_argument("--annotated", type=Path, help="queries with a gender, lines qid,query,label")
    parser.add_argument("--lexicon", type=Path, help="a .dic file, or Empath's categories")
    parser.add_argument("--columns", nargs="+", default=["paper"], help="columns to match passages by: 'paper' (the 22 of LIWC, "
                        "the default), 'all', or names of categories; --data always uses the nearest categories of Empath")
    parser.add_argument("--query-sets", nargs="+", default=[], metavar="NAME=FILE", help="further neutral queries: QS1, QS2")
    parser.add_argument("--gendered", nargs="+", type=Path, default=[], metavar="PATH", help="folders with the female and male "
                        "queries of Table 2, or files with labelled queries")
    parser.add_argument("--arms", nargs="+", help="arms to make (default: all; the original is always made)")
    parser.add_argument("--keep", **KEEP)
    options = parser.parse_args()
    settings = read_settings(options, Settings())
    settings = replace(settings, ratios=tuple(settings.ratios))  # a list, where a configuration gave them
    if not 0 <= settings.planted <= 1:
        raise InputError(f"setting planted={settings.planted} is a share; give one from 0 to 1")
    known = names_of(settings)
    unknown = sorted(set(options.arms or ()) - set(known))
    if unknown:
        raise InputError(f"--arms: {unknown[0]!r} is not known; use one of {', '.join(known)}")
    names = [name for name in known if options.arms is None or name in {ORIGINAL, *options.arms}]
    options.out.mkdir(parents=True, exist_ok=True)
    material = material_of(options, settings)
    setup = Setup(material, settings, options.out)
    workshop = Workshop(options.out, "gender tables", settings, [material])
    arms = [arm_of(setup, workshop, name, seed, keep=options.keep) for seed in range(1, settings.seeds + 1) for name in names]
    left = workshop.open(arms)
    seconds = expected(setup, left) if left else {}
    if options.estimate:
        print(f"about {minutes(sum(seconds.values()))} for {len(left)} arms on this machine")
        return
    rows = workshop.carry_out(arms, seconds)
    add_runs(setup, workshop, arms)
    tables = tables_over(rows, (*EFFECTIVENESS, *BIASES), settings.resamples, names)
    tables |= tables_of_sets(setup, workshop, arms, names, rows)
    notes = list(NOTES)
    if UNPLANTED in names:
        tables |= {"gap_closed": closed_of(setup, rows, names, rows, "front.png"), "planted": planted_sizes(setup)}
        notes.append(PLANTED_NOTE)
    gaps = table_2(setup, workshop, arms, names)
    if gaps is not None:
        tables["table_2"] = gaps
        notes.append(GAP_NOTE)
    if any(name.startswith("balanced") for name in names):
        choice = ratio_table(rows, settings, names)
        sizes, balance = sizes_of(setup)
        # A lexicon may have many categories: keep those that differ most before matching.
        balance = balance.iloc[balance["before"].abs().to_numpy().argsort(kind="stable")[::-1][:30]].reset_index(drop=True)
        tables |= {"table_1": choice.table, "matching": sizes, "balance": balance}
        plots.save(choice.plot(measure=EFFECTIVENESS[0]).figure, options.out / "table_1.png")
        plots.save(plot_balance(balance).figure, options.out / "balance.png")
        chosen, margin = f"{choice.chosen:g}", f"{settings.margin:g}"
        notes.append(f"Ratio by the paper's rule: {chosen}; shown to lose less than {margin}: {choice.noninferior:g}.")
    if settings.planted:
        # The arm that other runs call original is the biased ranker here, because it is trained on the planted pairs.
        renamed = {"arm": {ORIGINAL: "planted"}}
        tables = {name: table.replace(renamed) if "arm" in table else table for name, table in tables.items()}
    captions = {f"{one.name}_{name}": f"{one.name}: {caption}" for one in material.sets for name, caption in CAPTIONS.items()}
    title = f"Balanced pairs and alternatives: {material.name}"
    write_results(options.out, title, settings, tables, notes, captions | CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
