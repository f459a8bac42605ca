"""Code shared by the programs on real collections: hidden judgements, lists of retrievers, corrections.

A deeply judged collection is opened and divided into folds, each of which trains on some queries and tests on others. BM25's
first results are the pool, which keeps a few relevant documents per query; all others are hidden. Training candidates come from
another retriever, and the kept documents are added. Every ranker is evaluated on all judgements. This module is not a program.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import expit

from pyterrier_debias import (
    AddJudged,
    AddScores,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    DenoisedNegatives,
    HiddenJudgements,
    InputError,
    PositiveAwareNegatives,
    RankDistribution,
    RankWindow,
    RelabelReranker,
    Training,
    open_dataset,
)
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.evaluation import from_grade, per_query
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import two_level_interval
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.pooling.formulas.cet_weights import Coupling
from pyterrier_debias.pooling.formulas.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.pooling.measures.hidden_result import HiddenResult
from pyterrier_debias.report.first_stage import first_stage
from pyterrier_debias.report.models import find_model

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import (
    Shared,
    adapter_of,
    answerable,
    base_parser,
    compare,
    corrected,
    draw,
    encoder_of,
    held,
    keep_layers,
    matrix,
    pace,
    read_settings,
    same_run,
)

#: Retrievers that every collection has, by name; a collection's own runs are added to them.
RETRIEVERS = {
    "bm25": "the collection's run, else PISA's BM25 (k1 = 0.9, b = 0.4)",
    "weak": "the dense retriever cut down to its first layers",
    "dense": "exact search by the dense retriever",
    "fusion": "reciprocal ranks of bm25 and dense, 1 / (60 + rank), summed",
}


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; the defaults are the small setting.

    Attributes:
        retriever: Bi-encoder of the dense lists: hub name, folder, or ``minilm``.
        weak_layers: How many of its layers the weak retriever keeps.
        negatives: The retriever whose list is re-ranked, in training and in the test.
        ranker: ``'cross'`` for cross-encoders, ``'adapter'`` for a linear layer over the vectors of the whole ``model``.
        head: Input of the cross-encoder's head, ``'mean'`` or ``'cls'``.
        max_length: Largest number of tokens of an input.
        long: Treatment of longer documents, see ``Ranker``; for ``'maxp'``, training reads the window of ``max_length``.
        passage_length: Words per passage, if ``long`` splits documents into passages.
        learning_rate: Peak learning rate of cross-encoders.
        dense_learning_rate: Peak learning rate of bi-encoders.
        adapter_learning_rate: Peak learning rate of adapters.
        weight_decay: Weight decay of AdamW.
        warmup: Share of the steps, or number of steps, in which the learning rate rises.
        schedule: Schedule of the cross-encoders' learning rate; in so few steps, a falling rate teaches a new head much less.
        dense_schedule: Schedule of the bi-encoders' learning rate.
        negatives_per_positive: Negatives per triple.
        train_queries: Largest number of training queries per fold.
        dense_queries: Largest number of queries per fold that are set aside with all their judgements for the rank distribution;
            never more than a fifth of the queries for training.
        pool_depth: BM25 results per query that labellers were shown.
        kept: Largest number of relevant documents that a query keeps; 0 for all that labellers were shown.
        min_label: The lowest grade of a relevant document; None for 2 if grades reach 3 (TREC DL), otherwise 1.
        evidence_depth: Depth of BM25's list for selection models.
        list_depth: Depth of the stored lists, for recall.
        judge_error: How often the simulated judge of the relabelling arm is wrong.
        split_seed: Seed of the draws of queries and of halves.
    """

    triples: int = 640
    queries: int = 120
    retriever: str = "minilm"
    weak_layers: int = 1
    negatives: str = "dense"
    ranker: str = "cross"
    head: str = "mean"
    max_length: int = 128
    long: str = "truncate"
    passage_length: int = 150
    learning_rate: float = 3e-4
    dense_learning_rate: float = 1e-4
    adapter_learning_rate: float = 1e-3
    weight_decay: float = 0.01
    warmup: float = 0.05
    schedule: str = "constant"
    dense_schedule: str = "linear"
    negatives_per_positive: int = 1
    train_queries: int = 400
    dense_queries: int = 100
    pool_depth: int = 10
    kept: int = 2
    min_label: int | None = None
    evidence_depth: int = 1000
    list_depth: int = 100
    judge_error: float = 0.1
    split_seed: int = 1

    POSITIVE: ClassVar[tuple[str, ...]] = (*Shared.POSITIVE, "train_queries", "pool_depth", "list_depth", "weak_layers")
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"ranker": ("cross", "adapter")}


def parser(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all programs on real collections have."""
    parser = base_parser(doc, Settings())
    parser.add_argument(
        "--dataset", nargs="+", required=True, metavar="SPEC",
        help="folder or irds: id of a deeply judged collection; of two, the first is for training and the second for tests",
    )
    parser.add_argument(
        "--ranker", choices=Settings.CHOICES["ranker"], help="cross-encoders (default), or linear layers over fixed vectors"
    )
    parser.add_argument("--kept", type=int, help="relevant documents per query that the pool keeps (default 2; 0: all it shows)")
    return parser


# Collections


@dataclass(frozen=True)
class Fold:
    """Queries to train on, to estimate a rank distribution from, and to test on: frames ``qid``, ``query``."""

    name: str
    train: pd.DataFrame
    dense: pd.DataFrame
    test: pd.DataFrame

    @property
    def topics(self) -> pd.DataFrame:
        """The queries of all three parts."""
        return pd.concat([self.train, self.dense, self.test], ignore_index=True)


@dataclass(frozen=True)
class Source:
    """A collection with its folds.

    Attributes:
        name: Name in the tables.
        dataset: The dataset of documents and texts.
        qrels: All judgements of documents that the dataset holds.
        runs: The collection's own runs, by name.
        folds: The folds; each query is tested in at most one of them.
        min_label: The lowest grade of a relevant document.
        recipe: Description of how folds were made.
    """

    name: str
    dataset: Any
    qrels: pd.DataFrame
    runs: dict[str, pd.DataFrame]
    folds: tuple[Fold, ...]
    min_label: int
    recipe: str

    @property
    def topics(self) -> pd.DataFrame:
        """Queries of all folds."""
        return pd.concat([fold.topics for fold in self.folds]).drop_duplicates("qid", ignore_index=True)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, by their names in ir_measures; summaries show the first."""
        return measures_of(self.min_label)


def measures_of(min_label: int) -> tuple[str, ...]:
    """The measures if documents are relevant from a grade on."""
    return "nDCG@10", from_grade("RR@10", min_label), from_grade("AP", min_label)


def open_source(specs: Sequence[str], settings: Settings) -> Source:
    """Open a collection and make its folds.

    - Two specs: train on the first, test on the second; the documents are those of the first.
    - A folder with ``train`` and ``test`` (NFCorpus): train on ``train``, test on ``test``.
    - Other folders with several sets of topics (TREC DL): test on each set in turn, train on the others.
    - One set of topics (Vaswani): split the queries at random into two halves, train on one half and test on the other, in turn.

    Args:
        specs: One or two arguments of ``open_dataset``.
        settings: Sizes and seeds.

    Returns:
        The collection.

    Raises:
        InputError: For a collection that cannot be opened or has too few queries.
    """
    if len(specs) > 2:
        raise InputError(f"--dataset takes one collection, or one to train and one to test on, not {len(specs)}")
    dataset = open_dataset(specs[0])
    runs: dict[str, list[pd.DataFrame]] = {}

    def part_of(dataset: Any, split: str | None = None) -> tuple[pd.DataFrame, pd.DataFrame]:
        for name, run in (provided(dataset, "get_runs") or {}).items():
            runs.setdefault(name, []).append(run)
        return dataset.get_topics(split)[["qid", "query"]], held(dataset.get_qrels(split), dataset)

    if len(specs) == 2:
        parts = {"train": part_of(dataset), "test": part_of(open_dataset(specs[1]))}
    elif len(getattr(dataset, "topics", ())) > 1:
        # Runs are those of the split that a collection is opened with.
        opened = {split: open_dataset(specs[0], split) if dataset.get_runs() else dataset for split in dataset.topics}
        parts = {split: part_of(one, split) for split, one in opened.items()}
    else:
        parts = {"all": part_of(dataset)}
    if len(parts) == 1:
        (topics, qrels), recipe = next(iter(parts.values())), f"halves at random by query (seed {settings.split_seed}), in turn"
        half = np.array([keyed_hash(settings.split_seed, "fold", qid) % 2 for qid in topics["qid"]])
        parts = {f"half {n + 1}": (topics[half == n], qrels) for n in (0, 1)}
        pairs = [("half 2", "half 1"), ("half 1", "half 2")]
    elif {"train", "test"} <= parts.keys():
        parts, pairs, recipe = {name: parts[name] for name in ("train", "test")}, [("train", "test")], "train, then test"
    else:
        pairs = [("others", name) for name in sorted(parts)]
        recipe = f"tested on each of {', '.join(sorted(parts))}, trained on the others"
    judged = pd.concat([qrels for _, qrels in parts.values()]).drop_duplicates(["qid", "docno"], ignore_index=True)
    min_label = settings.min_label or (2 if judged["label"].max() >= 3 else 1)
    relevant = judged[judged["label"] >= min_label]
    able = {name: answerable(topics, relevant) for name, (topics, _) in parts.items()}
    folds = []
    for train, test in pairs:
        others = [frame for name, frame in able.items() if name != test] if train == "others" else [able[train]]
        pool = pd.concat(others, ignore_index=True)
        dense = draw(pool, min(settings.dense_queries, len(pool) // 5), settings.split_seed, "dense")
        pool = pool[~pool["qid"].isin(dense["qid"])]
        drawn = draw(pool, settings.train_queries, settings.split_seed, "train")
        tested = draw(able[test], settings.queries, settings.split_seed, "test")
        if min(len(drawn), len(tested), len(dense)) == 0:
            raise InputError(f"{dataset.name}: too few queries with relevant documents to train on, to set aside and to test on")
        folds.append(Fold(test, drawn, dense, tested))
    known = set().union(*(fold.topics["qid"] for fold in folds))
    return Source(
        " and ".join(dict.fromkeys(Path(spec).name for spec in specs)),
        dataset,
        judged[judged["qid"].isin(known)].reset_index(drop=True),
        # A run that does not belong to one set of topics is read with each of them.
        {name: pd.concat(frames).drop_duplicates(["qid", "docno"], ignore_index=True) for name, frames in runs.items()},
        tuple(folds),
        min_label,
        recipe,
    )


def sizes(source: Source, setups: Sequence[Setup]) -> pd.DataFrame:
    """The sizes of training and test data; one row per fold and part."""
    lengths = [len(document["text"].split()) for document in source.dataset.get_corpus_iter()]
    relevant, rows = source.qrels[source.qrels["label"] >= source.min_label], []
    for setup in setups:
        kept = setup.judgements.pooled[setup.judgements.pooled["label"] >= source.min_label]
        for part in ("train", "dense", "test"):
            topics = getattr(setup.fold, part)
            counted = [int(frame["qid"].isin(topics["qid"]).sum()) for frame in (relevant, kept)]
            rows.append(
                {
                    "collection": source.name,
                    "documents": len(lengths),
                    "words per document": round(float(np.mean(lengths)), 1),
                    "fold": setup.fold.name,
                    "part": part,
                    "queries": len(topics),
                    "with a kept one": topics["qid"].isin(kept["qid"]).sum(),
                    "relevant per query": round(counted[0] / len(topics), 2),
                    "kept per query": round(counted[1] / len(topics), 2),
                    "relevant from grade": source.min_label,
                    "folds": source.recipe,
                }
            )
    return pd.DataFrame(rows)


# Lists


class Lists:
    """Results of several retrievers for all queries of a collection, kept on disk.

    Args:
        source: The collection.
        settings: Depths and models.
        out: The folder; lists are kept in its subfolder ``lists``.
    """

    def __init__(self, source: Source, settings: Settings, out: Path):
        self.source, self.settings, self.out = source, settings, out

    @property
    def names(self) -> list[str]:
        """The names of all retrievers."""
        return list(dict.fromkeys([*RETRIEVERS, *self.source.runs]))

    def __call__(self, name: str) -> pd.DataFrame:
        """``qid``, ``query``, ``docno``, ``score``, ``rank`` (from 0) of a retriever's results.

        Args:
            name: One of :attr:`names`.

        Returns:
            Results in order.

        Raises:
            InputError: For a name that is not known.
        """
        if name not in self.names:
            raise InputError(f"there is no retriever {name!r} for {self.source.name}; use one of {', '.join(self.names)}")
        path = self.out / "lists" / f"{name}.csv"
        if not path.is_file():
            found = self._made(name, self.source.topics)
            depth = self.settings.evidence_depth if name == "bm25" else self.settings.list_depth
            found = found.loc[found["rank"] < depth, ["qid", "docno", "score", "rank"]]
            write_whole(path, found.to_csv(index=False))
        found = pd.read_csv(path, dtype={"qid": str, "docno": str}, keep_default_na=False)
        return self.source.topics.merge(found, on="qid")

    def encoder(self, name: str = "dense", similarity: str = "dot") -> BiEncoder:
        """The bi-encoder behind ``dense``, or the one behind ``weak``, which compares by cosine."""
        model = find_model(self.settings.retriever, "bi").source
        if name == "dense":
            return BiEncoder(model, similarity=similarity)
        folder = self.out / f"retriever-{self.settings.weak_layers}-layers"
        if not folder.is_dir():
            keep_layers(model, self.settings.weak_layers, folder)
        return BiEncoder(str(folder), similarity="cosine", pooling="mean")

    def _made(self, name: str, topics: pd.DataFrame) -> pd.DataFrame:
        settings = self.settings
        print(f"{self.source.name}: retrieving ({name})", flush=True)
        if name in self.source.runs:
            return self.source.runs[name].merge(topics[["qid"]], on="qid")
        if name == "bm25":
            with tempfile.TemporaryDirectory(prefix="pooling-bias-") as scratch:
                depth = max(settings.evidence_depth, settings.list_depth)
                return first_stage(self.source.dataset, Path(scratch), depth=depth, complete=True).candidates(topics)
        if name == "fusion":
            lists = [self(one) for one in ("bm25", "dense")]
            return fused([one[one["rank"] < settings.list_depth] for one in lists])
        return self.encoder(name).retriever(self.source.dataset, num_results=settings.list_depth)(topics)


def fused(lists: Sequence[pd.DataFrame], constant: float = 60) -> pd.DataFrame:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009), ranks counted from 1; ties go to the smaller docno.

    Args:
        lists: Frames ``qid``, ``docno``, ``rank`` (from 0).
        constant: k of :math:`1 / (k + rank)`.

    Returns:
        ``qid``, ``docno``, ``score``, ``rank`` (from 0), in order.
    """
    together = pd.concat([frame.assign(score=1 / (constant + 1 + frame["rank"]))[["qid", "docno", "score"]] for frame in lists])
    summed = together.groupby(["qid", "docno"], sort=True)["score"].sum().reset_index()
    ordered = summed.sort_values(["qid", "score"], ascending=[True, False], kind="stable", ignore_index=True)
    return ordered.assign(rank=ordered.groupby("qid").cumcount())


# Setups


class AddColumns(Stage):
    """Adds columns whose values are known for some pairs; other pairs have missing values."""

    def __init__(self, table: pd.DataFrame):
        """
        Args:
            table: ``qid``, ``docno`` and the columns.
        """
        self.table = table

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The same rows with the columns."""
        return inp.merge(self.table, on=["qid", "docno"], how="left", validate="one_to_one")


@dataclass(frozen=True)
class SimulatedJudge:
    """Knows which candidates are relevant, and errs in a share of them: a stand-in for a language model.

    Attributes:
        relevant: Pairs of qid and docno.
        error: The share of candidates on which it is wrong.
        seed: Seed of the draw of these candidates.
    """

    relevant: frozenset
    error: float
    seed: int

    def __call__(self, frame: pd.DataFrame) -> list[float]:
        wrong = [keyed_hash(self.seed, "judge", q, d) < self.error * 2**64 for q, d in zip(frame["qid"], frame["docno"])]
        return [float(((q, d) in self.relevant) != w) for q, d, w in zip(frame["qid"], frame["docno"], wrong)]


def taught(make: Callable[[], Any], train: pd.DataFrame, qrels: pd.DataFrame, seed: int) -> np.ndarray:
    """Teachers' probabilities of relevance; each half of the queries is scored by a teacher trained on the other half.

    Rankers that learn from pairs only learn differences of scores. A probability is therefore the sigmoid of a score minus the
    mean score of its half.

    Args:
        make: Makes an untrained teacher.
        train: The candidates.
        qrels: Judgements to learn from.
        seed: Seed of the halves.

    Returns:
        Shape [candidates].
    """
    half = np.array([keyed_hash(seed, "half", qid) % 2 for qid in train["qid"]])
    found = np.empty(len(train))
    for number in (0, 1):
        teacher, own = make(), half == number
        teacher.fit(train[~own], qrels)
        scores = AddScores(teacher)(train[own])["teacher_score"].to_numpy()
        found[own] = expit(scores - scores.mean())
    return found


class Setup:
    """A fold with its hidden judgements.

    Args:
        source: The collection.
        fold: The fold.
        lists: The lists of the collection's retrievers.
        settings: The settings of the run.
        out: The folder where scores of teachers are kept.
    """

    def __init__(self, source: Source, fold: Fold, lists: Lists, settings: Settings, out: Path):
        self.source, self.fold, self.lists, self.settings, self.out = source, fold, lists, settings, out
        qids = set(fold.topics["qid"])
        pool = lists("bm25")
        self.judgements = HiddenJudgements(
            source.qrels[source.qrels["qid"].isin(qids)],
            pool.loc[pool["qid"].isin(qids), ["qid", "docno", "score"]],
            depth=settings.pool_depth,
            per_query=settings.kept or None,
            min_label=source.min_label,
        )
        self.texts = source.dataset.text_loader()

    def candidates(self, part: str, negatives: str | None = None) -> pd.DataFrame:
        """The candidates to re-rank: the first results of a retriever; for training also kept documents and BM25's evidence.

        Args:
            part: ``train``, ``dense`` or ``test``.
            negatives: The retriever; None for that of the settings.

        Returns:
            A result frame with texts; for training also ``pool_score`` and ``pool_rank``.
        """
        found = self.lists(negatives or self.settings.negatives)
        found = found[found["qid"].isin(getattr(self.fold, part)["qid"]) & (found["rank"] < self.settings.depth)]
        if part != "train":
            return self.texts(found.reset_index(drop=True))
        kept = AddJudged(self.judgements.pooled, min_label=self.source.min_label)
        return self.judgements.evidence(self.texts(kept(found.reset_index(drop=True))))

    def training(self, **options: Any) -> Training:
        """Training options of the plain ranker; the comparison sets the seed."""
        settings = self.settings
        given = {
            "max_steps": settings.optimiser_steps(),
            "batch_size": settings.batch_size,
            "negatives_per_positive": settings.negatives_per_positive,
            "learning_rate": settings.adapter_learning_rate if settings.ranker == "adapter" else settings.learning_rate,
            "weight_decay": settings.weight_decay,
            "warmup": settings.warmup,
            "schedule": settings.schedule,
            "precision": settings.precision,
            "min_label": self.source.min_label,
        }
        return Training(**{**given, **options})

    def ranker(self, **options: Any) -> CrossEncoder | BiEncoder:
        """An untrained ranker; options are those of its training."""
        settings = self.settings
        long = {"long": settings.long, "passage_length": settings.passage_length}
        if settings.ranker == "adapter":
            return adapter_of(settings, training=self.training(**options), **long)
        return CrossEncoder(
            encoder_of(settings, self.out),
            head=settings.head,
            seed=0,
            max_length=settings.max_length,
            training=self.training(**options),
            **long,
        )

    def teachers(self) -> AddColumns:
        """A stage that adds ``cosine`` and ``teacher_score`` to the training candidates.

        The cosine is the dense retriever's. The teacher is a plain ranker, trained with half the steps on the other half of the
        queries; its score is a probability.
        """
        path = self.out / "scores" / f"{self.fold.name}.csv"
        if not path.is_file():
            print(f"{self.source.name}, {self.fold.name}: scoring by teachers", flush=True)
            train = self.candidates("train")
            scored = AddScores(self.lists.encoder(similarity="cosine"), "cosine")(train)
            scored = scored.assign(teacher_score=self._teacher(train))
            write_whole(path, scored[["qid", "docno", "cosine", "teacher_score"]].to_csv(index=False))
        return AddColumns(pd.read_csv(path, dtype={"qid": str, "docno": str}, keep_default_na=False))

    def _teacher(self, train: pd.DataFrame) -> np.ndarray:
        steps = max(1, self.settings.optimiser_steps() // 2)
        return taught(lambda: self.ranker(max_steps=steps), train, self.judgements.pooled, self.settings.split_seed)

    def judge(self) -> SimulatedJudge:
        """A judge that knows which documents are relevant, and errs in a share of them."""
        relevant = self.source.qrels[self.source.qrels["label"] >= self.source.min_label]
        pairs = frozenset(zip(relevant["qid"], relevant["docno"]))
        return SimulatedJudge(pairs, self.settings.judge_error, self.settings.split_seed)

    def ranks(self) -> RankDistribution:
        """RANCE's distribution, from the queries that were set aside."""
        return RankDistribution.estimate(
            self.candidates("dense"),
            self.judgements.full,
            depth=self.settings.depth,
            min_label=self.source.min_label,
            window=5,
            degree=2,
        )


def opened(options: argparse.Namespace, program: str) -> tuple[Settings, Lists, list[Setup], pd.DataFrame]:
    """Open what a program works on.

    Args:
        options: The parsed options.
        program: Name of the program, for the record in the results' folder.

    Returns:
        Settings, lists, folds, and a table of their sizes, which is printed.
    """
    settings = read_settings(options, Settings())
    source = open_source(options.dataset, settings)
    same_run(options.out, program, settings, [source.name])
    lists = Lists(source, settings, options.out)
    setups = [Setup(source, fold, lists, settings, options.out) for fold in source.folds]
    table = sizes(source, setups)
    print(table.drop(columns=["collection", "folds"]).to_string(index=False), flush=True)
    return settings, lists, setups, table


# Corrections


class ShuffledWeights(Coupling):
    """CET's weights in random order within a batch: as many pairs count as with CET, but not those that it chooses."""

    def weights(self, positive: Any, negative: Any, valid: Any = None) -> Any:
        """The weights of the pairs, each given to a random one of them."""
        import torch

        weights = super().weights(positive, negative, valid).clone()
        places = torch.ones_like(weights, dtype=torch.bool) if valid is None else valid
        found = weights[places]
        weights[places] = found[torch.randperm(len(found))]
        return weights


class ShuffledCET(CETReranker):
    """CET with :class:`ShuffledWeights` in both losses: shows whether a difference is due to what the weights say."""

    def _coupling(self) -> Coupling:
        return ShuffledWeights(**super()._coupling().record())


#: The corrections by name: functions from a setup to the stage that is fitted.
CORRECTIONS: dict[str, Callable[[Setup], Any]] = {
    "plain": lambda setup: setup.ranker(),
    "CET": lambda setup: CETReranker(setup.ranker(), training=setup.training()),
    "CET, mean one": lambda setup: CETReranker(setup.ranker(), normalise_weights="mean_one", training=setup.training()),
    "CET, shuffled": lambda setup: ShuffledCET(setup.ranker(), training=setup.training()),
    "CET, lexical": lambda setup: CETReranker(setup.ranker(), selection="lexical", training=setup.training()),
    "CET, paper": lambda setup: CETReranker.paper(setup.ranker(), training=setup.training()),
    "CET, released": lambda setup: CETReranker.released(setup.ranker(), training=setup.training()),
    "BM25's negatives": lambda setup: setup.ranker(negatives=RankWindow("pool_rank", last=99)),
    "judged negatives": lambda setup: setup.ranker(negatives=RankWindow("pool_rank", last=setup.settings.pool_depth - 1)),
    "denoised": lambda setup: setup.teachers() >> setup.ranker(negatives=DenoisedNegatives(depth=setup.settings.depth)),
    "rank distribution": lambda setup: setup.ranker(negatives=setup.ranks()),
    "positive-aware": lambda setup: (
        setup.teachers() >> setup.ranker(negatives=PositiveAwareNegatives("cosine", percentage=0.95))
    ),
    "debiased contrastive": lambda setup: setup.ranker(loss=debiased_contrastive, loss_options={"tau_plus": 0.1}),
    "dynamic weights": lambda setup: setup.ranker(loss=dynamic_pairwise),
    "relabelled": lambda setup: RelabelReranker(setup.ranker(), setup.judge(), depth=setup.settings.depth),
}

#: Corrections that explain the results of others; they are run only if they are named.
CONTROLS = {"CET, mean one", "CET, shuffled", "judged negatives"}

#: Corrections that use teachers' scores of the candidates.
TAUGHT = {"denoised", "positive-aware"}

#: Forward and backward passes of a correction, as a multiple of those of the plain ranker.
COSTS = {"CET, paper": 2.0, "CET, released": 2.7}


def carry_out(
    setups: Sequence[Setup],
    made: Callable[[Setup], Mapping[str, Any]],
    out: Path,
    *,
    negatives: str | None = None,
    test: str | None = None,
    oracle: str | None = "oracle",
    full: str | None = None,
) -> HiddenResult:
    """Train and test with every correction in every fold, or read the finished results.

    Args:
        setups: The folds.
        made: A function from a fold to its corrections, including ``plain``.
        out: The folder where finished trainings are kept.
        negatives: The retriever; None for that of the settings.
        test: The retriever whose list is re-ranked in the test; None for the same retriever as in training.
        oracle: Name of a training that knows the hidden documents; None for none.
        full: Name of a training on all judgements; None for none.

    Returns:
        One result for all folds.
    """
    results = []
    for setup in setups:
        results.append(
            setup.judgements.compare(
                made(setup),
                setup.candidates("train", negatives),
                setup.candidates("test", test or negatives),
                seeds=range(setup.settings.seeds),
                oracle=oracle,
                full=full,
                measures=setup.source.measures,
                checkpoint=out / "arms" / f"{negatives or setup.settings.negatives}-{setup.fold.name}",
                resamples=setup.settings.resamples,
                verbose=True,
            )
        )
    return crossed(results)


def crossed(results: Sequence[HiddenResult]) -> HiddenResult:
    """Combine results of folds: a seed's queries are those of all folds, each ranked by the ranker of its own fold.

    Args:
        results: Results of the same corrections and seeds, on different queries.

    Returns:
        A result whose intervals draw queries of all folds, and seeds; costs and counts are sums.
    """
    first = results[0]
    tables = {name: pd.concat([getattr(one, name) for one in results], ignore_index=True) for name in ("per_query", "negatives")}
    costs = pd.concat([one.costs for one in results]).groupby(["correction", "seed"], sort=False)["seconds"].sum().reset_index()
    counts = {name: sum(one.counts.get(name, 0) for one in results) for name in first.counts}
    notes = tuple(dict.fromkeys(note for one in results for note in one.notes))
    return replace(first, **tables, costs=costs, counts=counts, notes=notes)


def seconds_of(
    setups: Sequence[Setup], corrections: Iterable[str], *, negatives: Sequence[str | None] = (None,), teachers: bool = False
) -> float:
    """Expected seconds of the trainings in all folds and seeds, from a few steps of plain training.

    Args:
        setups: The folds.
        corrections: Names of trainings, including the oracle and others that cost as much as plain training.
        negatives: The retrievers.
        teachers: Whether teachers are trained first.

    Returns:
        Seconds, including those of finished trainings.
    """
    total, settings, names = 0.0, setups[0].settings, list(corrections)
    for setup in setups:
        train, ranker = setup.candidates("train", negatives[0]), setup.ranker()
        trained = train[train["qid"].isin(setup.judgements.pooled["qid"])]
        some = trained[trained["qid"].isin(trained["qid"].unique()[:40])]
        step, base = pace(ranker, some, setup.judgements.pooled, ranker.training)
        test = setup.candidates("test", negatives[0])
        started = time.perf_counter()
        ranker(test.head(60))
        pair = (time.perf_counter() - started) / len(test.head(60))
        print(f"{setup.fold.name}: {step:.2f} s per step, {1 / pair:.0f} pairs per second", flush=True)
        steps = settings.optimiser_steps()
        one = {name: base + COSTS.get(name, 1.0) * steps * step + len(test) * pair for name in names}
        # A selection model that is a ranker scores all candidates of the training once.
        one |= {name: one[name] + len(trained) * pair for name in names if name in COSTS}
        total += settings.seeds * len(negatives) * sum(one.values())
        total += (base + steps * step + len(train) * pair) * teachers
    return total


# Tables


def compared(rows: pd.DataFrame, measures: Sequence[str], by: str, before: str, resamples: int) -> pd.DataFrame:
    """Means of conditions of trained rankers, and their differences from one condition; one row per measure and condition.

    Args:
        rows: ``seed``, ``qid``, a column for each measure, and the condition.
        measures: Columns of the values.
        by: The condition's column.
        before: The condition that others are compared with.
        resamples: Bootstrap resamples.

    Returns:
        ``measure``, the condition, ``mean`` with ``mean_low`` and ``mean_high``, and the columns of ``compare``.
    """
    out = []
    for measure in measures:
        names, values = matrix(rows, measure, [by])
        base = names.index((before,))
        for name in dict.fromkeys(rows[by]):
            at = names.index((name,))
            mean = two_level_interval(values, lambda m, at=at: m[..., at], resamples=resamples)
            line = {"measure": measure, by: name, "mean": mean.estimate, "mean_low": mean.low, "mean_high": mean.high}
            out.append({**line, **compare(values[..., base], values[..., at], resamples)})
    return corrected(pd.DataFrame(out))


def recall(lists: Lists, setups: Sequence[Setup], name: str) -> dict[str, float]:
    """Quality of a retriever's list for the test queries: nDCG@10, and recall at the depths that the list has."""
    depths = [k for k in (10, 20, 100, 1000) if k <= lists.settings.list_depth]
    measures = {"nDCG@10": "nDCG@10"} | {from_grade(f"R@{k}", lists.source.min_label): f"Recall@{k}" for k in depths}
    qids = [qid for setup in setups for qid in setup.fold.test["qid"]]
    found = per_query(lists(name), lists.source.qrels, list(measures), qids)
    return dict(zip(measures.values(), found.mean().tolist()))
