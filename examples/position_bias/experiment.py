"""Code shared by the programs for Tables 2 to 5 of Hofstätter et al. (ECIR 2021). They import this module.

It contains settings, collections and their splits, candidates, and the training and measurement of rankers. Code that other
experiments also need is in ``workshop.py``, one folder up, which can be imported after this module.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import re
import shutil
import sys
import tempfile
import time
import weakref
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias import (
    TK,
    AddJudged,
    BiEncoder,
    Collection,
    CrossEncoder,
    InputError,
    RotatePassages,
    SparseEncoder,
    Training,
    open_dataset,
)
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.report.first_stage import first_stage

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import (
    KEPT,
    Arm,
    Shared,
    Workshop,
    answerable,
    base_parser,
    closed,
    compare,
    corrected,
    draw,
    held,
    matrix,
    pace,
    relevant_pairs,
    sampled_tests,
    single_positives,
)

RANKERS = {"cat": "BERT_CAT", "dot": "BERT_DOT", "tk": "TK", "splade": "SPLADE"}
#: The rankers of the paper.
PAPER = ("cat", "dot", "tk")
MEASURES = {"nDCG@10": "nDCG@10", "RR@10": "MRR@10", "R@10": "Recall@10"}
#: The same measures if passages are relevant from grade 2 on, as in TREC Deep Learning.
GRADED = {"nDCG@10": "nDCG@10", "RR(rel=2)@10": "MRR@10", "R(rel=2)@10": "Recall@10"}
#: How passages are presented, in training and in evaluation.
VIEWS = ("original", "rotated")
#: How passages may be presented in training only: each passage is rotated in half of the epochs.
BOTH = "both"
PARTS = ("train", "validation", "test")
#: Shares of the queries if a collection has no parts of its own; the rest is for training.
SHARES = {"test": 0.3, "validation": 0.1}
#: Where early answers end, and late ones begin.
EARLY, LATE = 1 / 3, 2 / 3


# Settings


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; the defaults are the small setting.

    Attributes:
        head: Input of the cross-encoder's head, ``'mean'`` or ``'cls'``.
        pooling: How the bi-encoder makes one vector, ``'mean'`` or ``'cls'``.
        glove: Text file of word vectors for TK; empty for the encoder's table of embeddings.
        tk: Further fields of TK's configuration.
        masked_passages: Number of passages whose masked words SPLADE's encoder and head learn to predict before they learn to
            rank.
        masked_rate: Learning rate of this first training.
        loss: Loss of :class:`~pyterrier_debias.Training`.
        learning_rate: Learning rate by ranker.
        weight_decay: Weight decay of AdamW.
        warmup: Share of the steps, or number of steps, in which the learning rate rises.
        schedule: Schedule of the learning rate.
        train_queries: Largest number of training questions per seed, which are then shown more than once; None for no bound.
        max_length: Largest number of tokens of an input.
        validation_queries: Number of queries for choosing the best checkpoint; 0 keeps the last checkpoint.
        evaluate_every: Steps between two evaluations and checkpoints of an arm; None for none within an arm.
        patience: Evaluations without a new best before an arm stops early.
        rerank_depth: Depths from which validation chooses; None for all candidates.
        split_seed: Seed of the split and of the draws of queries.
        rotation_seed: Seed of the rotation of test passages.
        passages: Number of passages for MATS.
        max_delta: Largest distance for MATS; None for all.
    """

    dropout: float | None = 0.0
    head: str = "mean"
    head_std: float | None = 0.1
    pooling: str = "mean"
    glove: str = ""
    tk: Mapping[str, Any] = field(default_factory=dict)
    masked_passages: int = 8000
    masked_rate: float = 5e-4
    loss: str = "pairwise"
    learning_rate: Mapping[str, Any] = field(
        default_factory=lambda: {"cat": 1.5e-4, "dot": 1e-4, "tk": {"terms": 5e-4, "kernels": 5e-3}, "splade": 1e-4}
    )
    weight_decay: float = 0.01
    warmup: float = 0.1
    schedule: str = "linear"
    train_queries: int | None = None
    max_length: int = 256
    validation_queries: int = 50
    evaluate_every: int | None = 50
    patience: int | None = None
    rerank_depth: Sequence[int] | None = None
    split_seed: int = 1
    rotation_seed: int = 208973249
    passages: int = 2000
    max_delta: int | None = 100

    POSITIVE = (*Shared.POSITIVE, "passages", "masked_passages")

    def validation_reads(self) -> int:
        """Largest number of texts that validation reads in an arm."""
        if not self.validation_queries:
            return 0
        times = 1 if self.evaluate_every is None else -(-self.optimiser_steps() // self.evaluate_every)
        return times * self.validation_queries * self.depth

    def questions(self) -> int:
        """Largest number of training questions per seed."""
        shown = self.optimiser_steps() * self.batch_size
        return shown if self.train_queries is None else min(shown, self.train_queries)


def parser(doc: str | None, datasets: str) -> argparse.ArgumentParser:
    """A parser with the options that all programs have; an option that is not given keeps the configuration's value."""
    parser = base_parser(doc, Settings())
    parser.add_argument("--dataset", action="append", nargs="+", required=True, metavar="SPEC", help=datasets)
    return parser


# Collections


@dataclass(frozen=True)
class Material:
    """A collection in three parts.

    Attributes:
        name: Name in the tables.
        dataset: The dataset of documents and texts.
        topics: By part: frame ``qid``, ``query``; also ``article`` if the split is by article; if answers are known, ``first``
            and ``last``, the positions in their passage (0 to 1) where a question's answers begin and end; and ``group`` if the
            test has groups of its own.
        qrels: Judgements by part.
        recipe: Description of how the parts were made.
        measures: The measures of the test, with the paper's names.
    """

    name: str
    dataset: Any
    topics: dict[str, pd.DataFrame]
    qrels: dict[str, pd.DataFrame]
    recipe: str
    measures: Mapping[str, str] = field(default_factory=MEASURES.copy)

    def early(self, part: str) -> pd.DataFrame:
        """Topics whose answers all end within the first third of their passage."""
        topics = self._placed(part)
        return topics[topics["last"] <= EARLY]

    def late(self, part: str) -> pd.DataFrame:
        """Topics whose answers all begin within the last third."""
        topics = self._placed(part)
        return topics[topics["first"] >= LATE]

    @property
    def has_places(self) -> bool:
        """Whether the positions of answers are known."""
        return "first" in self.topics["train"]

    def _placed(self, part: str) -> pd.DataFrame:
        if not self.has_places:
            raise InputError(f"{self.name}: the positions of answers are not known; leave out the planted arm, which needs them")
        return self.topics[part]


def open_material(specs: Sequence[str], seed: int) -> Material:
    """Open a collection and split it.

    - MS MARCO passages through ir_datasets: train; dev/small for validation; dev without dev/small for the test.
    - A folder with samples of MS MARCO: see :func:`sampled_msmarco`.
    - A collection with its own parts (train, dev or validation, test) keeps them.
    - Others are split at random: by article if passages name their articles and answers are known (SQuAD), otherwise by query.

    Args:
        specs: Arguments of ``open_dataset``; several are pooled into one collection.
        seed: Seed of the split.

    Returns:
        The collection.

    Raises:
        InputError: For a collection that cannot be opened, or has too few articles or queries for three parts.
    """
    if specs[0].startswith("irds:msmarco-passage"):
        return msmarco(*(open_dataset(f"irds:msmarco-passage/{split}") for split in ("train", "dev/small", "dev")))
    if (Path(specs[0]) / "msmarco_dev_small").is_dir():
        return sampled_msmarco(Path(specs[0]))
    datasets = [open_dataset(spec) for spec in specs]
    dataset = datasets[0] if len(datasets) == 1 else pooled(datasets)
    own = own_parts(dataset)
    if own is not None:
        return own
    topics, qrels, answers = dataset.get_topics(), held(dataset.get_qrels(), dataset), provided(dataset, "get_answers")
    topics = answerable(topics, qrels)
    recipe = "at random by query"
    groups = topics["qid"]
    if answers is not None and isinstance(dataset, Collection):
        corpus = dataset.corpus.set_index("docno")
        topics = topics.merge(answer_places(answers, corpus["text"]), on="qid")
        groups = topics["qid"]
        if "title" in corpus:
            docno = qrels[qrels["label"] > 0].drop_duplicates("qid").set_index("qid")["docno"]
            topics = topics.assign(article=topics["qid"].map(docno).map(corpus["title"]))
            groups, recipe = topics["article"], "at random by article, so that no article is in two parts"
    part = np.array(split_whole(groups.tolist(), seed))
    lacking = [name for name in PARTS if not (part == name).any()]
    if lacking:
        raise InputError(f"{dataset.name}: too few queries or articles to split: nothing is left for {lacking[0]}")
    shares = {**SHARES, "train": 1 - sum(SHARES.values())}
    recipe += f" (seed {seed}; aimed at: {', '.join(f'{name} {shares[name]:.0%}' for name in PARTS)})"
    parts = {name: topics[part == name].reset_index(drop=True) for name in PARTS}
    judged = {name: qrels[qrels["qid"].isin(frame["qid"])] for name, frame in parts.items()}
    return Material(dataset.name, dataset, parts, judged, recipe)


def msmarco(train: Any, small: Any, dev: Any) -> Material:
    """MS MARCO's parts: the test is dev without dev/small, which is for validation."""
    topics, qrels = {}, {}
    for part, dataset in zip(PARTS, (train, small, dev)):
        qrels[part] = dataset.get_qrels()
        topics[part] = answerable(dataset.get_topics(), qrels[part])
    known = set(small.get_topics()["qid"])
    topics["test"] = topics["test"][~topics["test"]["qid"].isin(known)].reset_index(drop=True)
    qrels["test"] = qrels["test"][~qrels["test"]["qid"].isin(known)]
    recipe = "train; validation is dev/small; test is dev without dev/small"
    return Material("MS MARCO", train, topics, qrels, recipe)


def sampled_msmarco(folder: Path) -> Material:
    """MS MARCO, reduced to samples; candidates come from all passages of these samples that have no title.

    - Training and validation (a tenth): queries of ``msmarco_dev_small`` with one relevant passage without a title. Passages with
      a title are left out, because no test passage has one, so a title would reveal whether a passage is relevant.
    - Test: the 97 queries of TREC Deep Learning 2019 and 2020 (``msmarco_trec_dl``), and 600 more of the small development set
      (``msmarco_dev600``), where the passage that is marked relevant counts as grade 2. None of these queries is in the training.

    Args:
        folder: The folder that contains these three folders.

    Returns:
        The collection.
    """
    test = sampled_tests(folder)
    single = single_positives(folder, "--dataset")
    single = single[single["positive"].str.startswith("- ")].assign(text=lambda frame: frame["positive"].str.removeprefix("- "))
    single = single[~single["qid"].isin(set(pd.concat([one.get_topics()["qid"] for one in test.values()])))]
    corpus = pd.concat([*(one.corpus for one in test.values()), single])[["docno", "text"]].drop_duplicates("docno")
    asked = {name: answerable(one.get_topics(), one.get_qrels()).assign(group=name) for name, one in test.items()}
    apart = single["qid"].map(lambda qid: keyed_hash(0, "validation", qid) % 10 == 0)
    topics = {
        "train": single.loc[~apart, ["qid", "query"]].reset_index(drop=True),
        "validation": single.loc[apart, ["qid", "query"]].reset_index(drop=True),
        "test": pd.concat(asked.values(), ignore_index=True),
    }
    graded = {part: single.loc[single["qid"].isin(topics[part]["qid"]), ["qid", "docno", "label"]] for part in PARTS[:2]}
    qrels = {**graded, "test": pd.concat([one.get_qrels() for one in test.values()], ignore_index=True)}
    dataset = Collection("MS MARCO samples", corpus=corpus.reset_index(drop=True), topics=topics, qrels=qrels)
    recipe = "msmarco_dev_small without titled passages and the test's queries, a tenth for validation; the test is given"
    return Material(dataset.name, dataset, topics, qrels, recipe, GRADED)


def own_parts(dataset: Any) -> Material | None:
    """The collection with its own parts; None if it lacks one of them."""
    names = {"train": ("train",), "validation": ("dev", "validation"), "test": ("test",)}
    topics, qrels = {}, {}
    for part, candidates in names.items():
        for name in candidates:
            frames = provided(dataset, "get_topics", name), provided(dataset, "get_qrels", name)
            if part not in topics and all(frame is not None for frame in frames):
                qrels[part] = held(frames[1], dataset)
                topics[part] = answerable(frames[0], qrels[part])
        if part not in topics:
            return None
    return Material(dataset.name, dataset, topics, qrels, "the collection's own train, dev and test")


def pooled(datasets: Sequence[Any]) -> Collection:
    """Several collections as one; a document or query that several hold counts once."""
    corpus = pd.concat([pd.DataFrame(list(d.get_corpus_iter())) for d in datasets]).drop_duplicates("docno")
    topics = pd.concat([d.get_topics() for d in datasets]).drop_duplicates("qid")
    qrels = pd.concat([d.get_qrels() for d in datasets]).drop_duplicates(["qid", "docno"])
    answers = [provided(d, "get_answers") for d in datasets]
    known = all(frame is not None for frame in answers)
    return Collection(
        " + ".join(d.name for d in datasets),
        corpus=corpus.reset_index(drop=True),
        topics={"all": topics.reset_index(drop=True)},
        qrels={"all": qrels.reset_index(drop=True)},
        answers=pd.concat(answers).drop_duplicates(["qid", "docno", "answer", "start"]) if known else None,
    )


def split_whole(groups: Sequence[str], seed: int) -> list[str]:
    """The part of each query; all queries of a group are in the same part.

    Groups come in random order and go to the test until it has its share of the queries, then to validation, then to train.

    Args:
        groups: The group (article) of each query.
        seed: Seed of the order.

    Returns:
        ``'train'``, ``'validation'`` or ``'test'`` for each query.
    """
    sizes = Counter(groups)
    order = sorted(sizes, key=lambda group: keyed_hash(seed, "split", group))
    before = np.cumsum([0, *(sizes[group] for group in order)])[:-1] / max(1, len(groups))
    bound = SHARES["test"], SHARES["test"] + SHARES["validation"]
    part = {group: "test" if b < bound[0] else "validation" if b < bound[1] else "train" for group, b in zip(order, before)}
    return [part[group] for group in groups]


def answer_places(answers: pd.DataFrame, texts: pd.Series) -> pd.DataFrame:
    """Where in their passage the answers of each question begin and end.

    Args:
        answers: Frame ``qid``, ``docno``, ``start``, ``end`` in characters; answers that were not located (-1) are left out.
        texts: Texts by docno.

    Returns:
        Frame ``qid``, ``first`` (the first start) and ``last`` (the last end), as shares of the passage's length.
    """
    found = answers[answers["start"] >= 0]
    length = found["docno"].map(texts.str.len())
    places = pd.DataFrame({"qid": found["qid"], "first": found["start"] / length, "last": found["end"] / length})
    return places.groupby("qid", sort=False).agg({"first": "min", "last": "max"}).reset_index()


def table_1(material: Material, settings: Settings) -> pd.DataFrame:
    """Sizes of a collection and of its parts, as in the paper's Table 1."""
    lengths = [len(document["text"].split()) for document in material.dataset.get_corpus_iter()]
    rows = []
    for part in PARTS:
        topics, qrels = material.topics[part], material.qrels[part]
        relevant = qrels[qrels["qid"].isin(topics["qid"]) & (qrels["label"] > 0)]
        used = {"train": settings.questions(), "validation": settings.validation_queries}
        rows.append(
            {
                "collection": material.name,
                "passages": len(lengths),
                "words per passage": round(float(np.mean(lengths)), 1),
                "part": part,
                "articles": topics["article"].nunique() if "article" in topics else None,
                "queries": len(topics),
                "relevant per query": round(len(relevant) / max(1, len(topics)), 2),
                "drawn at most": min(len(topics), used.get(part, settings.queries)),
                "split": material.recipe,
            }
        )
    return pd.DataFrame(rows)


def size_tables(sizes: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """:func:`table_1` as two tables: the sizes, and how each collection was split."""
    splits = sizes[["collection", "split"]].drop_duplicates().reset_index(drop=True)
    return {"table_1": sizes.drop(columns="split"), "splits": splits}


#: Captions of these tables in the documentation.
SIZE_CAPTIONS = {
    "table_1": "Collections: passages, words per passage, questions in each part",
    "splits": "How questions were split",
}

_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORD = re.compile(r"[a-z0-9]+")


def begin_with_answer(query: str, text: str) -> str:
    """A passage rotated so that it begins with the sentence that holds most of the query's words (the first such sentence).

    Example:
        >>> begin_with_answer("height of the tower", "It is old. The tower has a height of 9 m. It leans.")
        'The tower has a height of 9 m. It leans. It is old.'
    """
    asked = set(_WORD.findall(query.lower()))
    sentences = _SENTENCE.split(text.strip())
    held = [len(asked & set(_WORD.findall(sentence.lower()))) for sentence in sentences]
    first = int(np.argmax(held))
    return " ".join(sentences[first:] + sentences[:first])


class Candidates:
    """BM25's candidates over a collection, kept on disk, with their texts.

    Args:
        material: The collection.
        folder: The folder where they are kept.
        depth: Candidates per query.
    """

    def __init__(self, material: Material, folder: Path, depth: int):
        self.material = material
        self.folder = folder
        self.depth = depth
        self.texts = material.dataset.text_loader()

    @cached_property
    def _retriever(self) -> Any:
        print(f"{self.material.name}: indexing", flush=True)
        scratch = Path(tempfile.mkdtemp(prefix="position-bias-"))
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return first_stage(self.material.dataset, scratch, depth=self.depth, complete=True).candidates

    def ranking(self, topics: pd.DataFrame) -> pd.DataFrame:
        """``qid``, ``query``, ``docno``, ``score``, ``rank`` of the candidates."""
        key = keyed_hash(self.depth, self.material.name, *topics["qid"])
        path = self.folder / f"{key:016x}.csv.gz"
        if not path.is_file():
            found = self._retriever(topics[["qid", "query"]])
            found = found.loc[found["rank"] < self.depth, ["qid", "query", "docno", "score", "rank"]]
            write_whole(path, gzip.compress(found.to_csv(index=False).encode(), mtime=0))
        content = gzip.decompress(path.read_bytes()).decode()
        return pd.read_csv(io.StringIO(content), dtype={"qid": str, "docno": str, "query": str}, keep_default_na=False)

    def for_training(self, topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
        """Candidates with texts, including the relevant passages."""
        return (AddJudged(qrels) >> self.texts)(self.ranking(topics))

    def for_tests(self, topics: pd.DataFrame, settings: Settings) -> dict[str, pd.DataFrame]:
        """Candidates with original texts, and with rotated texts."""
        original = self.texts(self.ranking(topics))
        return {"original": original, "rotated": RotatePassages(seed=settings.rotation_seed)(original)}


# Rankers


def new_ranker(kind: str, encoder: str, settings: Settings, seed: int, *, positional: str = "absolute") -> Any:
    """An untrained ranker over the encoder."""
    length = settings.max_length
    if kind == "cat":
        return CrossEncoder(encoder, head=settings.head, seed=seed, max_length=length)
    if kind == "dot":
        return BiEncoder(encoder, pooling=settings.pooling, max_length=length)
    if kind == "splade":
        return SparseEncoder(encoder, seed=seed, max_length=length)
    make, source = (TK.from_glove, settings.glove) if settings.glove else (TK.from_embeddings, encoder)
    return make(source, seed=seed, positional=positional, config=dict(settings.tk), max_length=length)


def rotation_of(view: str, seed: int) -> RotatePassages | None:
    """The stage that presents passages in a view."""
    return {"original": None, "rotated": RotatePassages(seed=seed), BOTH: RotatePassages(seed=seed, share=0.5)}[view]


def training_of(settings: Settings, kind: str, seed: int, *, view: str, checkpoints: Path | None = None) -> Training:
    """Training options of an arm; rotation is drawn anew in each epoch."""
    within = settings.evaluate_every is not None
    return Training(
        loss=settings.loss,
        max_steps=settings.optimiser_steps(),
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate[kind],
        weight_decay=settings.weight_decay,
        warmup=settings.warmup,
        schedule=settings.schedule,
        precision=settings.precision,
        augment=rotation_of(view, seed),
        evaluate_every=settings.evaluate_every,
        patience=settings.patience if settings.validation_queries else None,
        rerank_depth=settings.rerank_depth if settings.validation_queries else None,
        checkpoints=checkpoints if within else None,
        resume=within and checkpoints is not None,
        seed=seed,
    )


def load_ranker(kind: str, folder: Path) -> Any:
    """A ranker that an arm has saved."""
    return {"cat": CrossEncoder, "dot": BiEncoder, "tk": TK, "splade": SparseEncoder}[kind].load(folder)


def kept_weights(workshop: Workshop, arms: Sequence[Arm]) -> dict[str, pd.DataFrame]:
    """The table ``weights`` of the saved rankers; its ``sha256`` shows others whether their rankers are the same.

    There is no table if no ranker was saved.
    """
    # The weights of the encoder, which are at the top of the folder; those of a head are in a subfolder.
    files = {arm.name: workshop.folder(arm) / KEPT / "model.safetensors" for arm in arms}
    rows = [(name, hashlib.sha256(file.read_bytes()).hexdigest()) for name, file in files.items() if file.is_file()]
    return {"weights": pd.DataFrame(rows, columns=["arm", "sha256"])} if rows else {}


class Trainer:
    """Trains rankers on one collection.

    Args:
        material: The collection.
        candidates: The candidates of the collection.
        settings: The settings of the run.
    """

    def __init__(self, material: Material, candidates: Candidates, settings: Settings):
        self.material = material
        self.candidates = candidates
        self.settings = settings

    def _pool(self, part: str, planted: bool) -> pd.DataFrame:
        """Questions to draw from; for the planted arm those with early answers, if the positions of answers are known."""
        return self.material.early(part) if planted and self.material.has_places else self.material.topics[part]

    def _planted(self, frame: pd.DataFrame, part: str, planted: bool) -> pd.DataFrame:
        """If the positions of answers are not known, the planted arm moves the sentence most like an answer to the start."""
        if not planted or self.material.has_places:
            return frame
        relevant = relevant_pairs(self.material.qrels[part])
        text = [
            begin_with_answer(query, text) if (qid, docno) in relevant else text
            for qid, docno, query, text in zip(*(frame[name] for name in ("qid", "docno", "query", "text")))
        ]
        return frame.assign(text=text)

    def questions(self, seed: int, *, planted: bool = False) -> pd.DataFrame:
        """The training questions of a seed."""
        pool = self._pool("train", planted)
        if len(pool) == 0:
            raise InputError(f"{self.material.name}: no training question has its answers in the first third of its passage")
        return draw(pool, self.settings.questions(), seed, "train")

    def fit(self, ranker: Any, kind: str, view: str, seed: int, *, planted: bool = False, checkpoints: Path | None = None) -> Any:
        """Train a ranker on original or on rotated passages, or on both; see ``fit`` of rankers."""
        ranker.training = training_of(self.settings, kind, seed, view=view, checkpoints=checkpoints)
        frame = self.candidates.for_training(self.questions(seed, planted=planted), self.material.qrels["train"])
        frame = self._planted(frame, "train", planted)
        validation = self._validation(planted, view) if self.settings.validation_queries else (None, None)
        return ranker.fit(frame, self.material.qrels["train"], *validation)

    def _validation(self, planted: bool, view: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Validation candidates and judgements; questions and passages are of the same kind as in training."""
        topics = draw(self._pool("validation", planted), self.settings.validation_queries, self.settings.split_seed, "validation")
        frame = self._planted(self.candidates.for_tests(topics, self.settings)["original"], "validation", planted)
        rotation = rotation_of(view, self.settings.rotation_seed)
        return frame if rotation is None else rotation(frame), self.material.qrels["validation"]


def measure(
    ranker: Any,
    views: Mapping[str, pd.DataFrame],
    qrels: pd.DataFrame,
    qids: Sequence[str],
    measures: Mapping[str, str] = MEASURES,
) -> pd.DataFrame:
    """Measures of each query: ``evaluated`` (a view), ``qid`` and the paper's names of the measures.

    If validation chose a re-ranking depth, the candidates below it are left out.
    """
    depth = getattr(ranker.training_report, "depth", None)
    parts = []
    for view, frame in views.items():
        frame = frame if depth is None else frame[frame["rank"] < depth]
        values = per_query(ranker(frame), qrels, list(measures), qids).rename(columns=measures)
        parts.append(values.reset_index().assign(evaluated=view))
    return pd.concat(parts, ignore_index=True)


def by_training(rows: pd.DataFrame, who: Sequence[str], resamples: int, view: str = "rotated") -> pd.DataFrame:
    """The effect of training on a view of the passages: a row for each evaluation, measure, and group by the columns ``who``."""
    out = []
    for what, part in rows.groupby([*who, "evaluated"], sort=False):
        for name in MEASURES.values():
            names, values = matrix(part, name, ["trained"])
            original, other = (values[..., names.index((trained,))] for trained in ("original", view))
            out.append(
                {
                    **dict(zip([*who, "evaluated"], what)),
                    "measure": name,
                    "trained_original": float(original.mean()),
                    f"trained_{view}": float(other.mean()),
                    **compare(original, other, resamples),
                }
            )
    return corrected(pd.DataFrame(out))


def gap_closed(rows: pd.DataFrame, who: Sequence[str], resamples: int, view: str = "rotated") -> pd.DataFrame:
    """How much training on a view of the passages closes of the gap between original and rotated passages; 1 means all of it."""
    out = []
    for what, part in rows.groupby(list(who), sort=False):
        for name in MEASURES.values():
            names, values = matrix(part, name, ["trained", "evaluated"])
            at = {pair: i for i, pair in enumerate(names)}

            def gap(m, trained, at=at):
                return m[..., at[trained, "original"]] - m[..., at[trained, "rotated"]]

            means = values.mean(axis=(0, 1))
            out.append(
                {
                    **dict(zip(who, what)),
                    "measure": name,
                    "gap_trained_original": float(gap(means, "original")),
                    f"gap_trained_{view}": float(gap(means, view)),
                    **closed(values, lambda m: gap(m, "original"), lambda m: gap(m, view), resamples),
                }
            )
    return pd.DataFrame(out)


def gap_by_seed(rows: pd.DataFrame, who: Sequence[str], resamples: int, view: str = "rotated") -> pd.DataFrame:
    """The gaps of each seed by itself, for the first measure; intervals are over queries only."""
    figures = ["gap_trained_original", f"gap_trained_{view}", "smaller_by", "smaller_low", "smaller_high"]
    parts = []
    for seed, own in rows.groupby("seed"):
        table = gap_closed(own, who, resamples, view).assign(seed=seed)
        parts.append(table.loc[table["measure"] == next(iter(MEASURES.values())), [*who, "measure", "seed", *figures]])
    return pd.concat(parts, ignore_index=True).sort_values([*who, "seed"], kind="stable", ignore_index=True)


def expected_seconds(arms: Sequence[Arm], trainer: Trainer, encoder: str) -> dict[str, float]:
    """Expected seconds of arms, from a few steps of training and some scored pairs of each kind of ranker.

    Args:
        arms: The arms to make.
        trainer: The trainer on the collection that is used for the estimate.
        encoder: The encoder that rankers start from.

    Returns:
        Seconds by name of the arm.
    """
    rates = {kind: rehearse(kind, trainer, encoder) for kind in dict.fromkeys(arm.kind for arm in arms)}
    for kind, (step, text, base) in rates.items():
        print(f"{RANKERS[kind]}: {step:.2f} s per step, {1 / text:.0f} texts per second, {base:.0f} s to start", flush=True)
    return {arm.name: rates[arm.kind][2] + arm.steps * rates[arm.kind][0] + arm.reads * rates[arm.kind][1] for arm in arms}


def rehearse(kind: str, trainer: Trainer, encoder: str) -> tuple[float, float, float]:
    """Seconds per training step, per text that is read, and before the first step."""
    settings = trainer.settings
    topics = draw(trainer.material.topics["train"], 4 * settings.batch_size, 0, "rehearsal")
    qrels = trainer.material.qrels["train"]
    frame = trainer.candidates.for_training(topics, qrels)
    ranker = new_ranker(kind, encoder, settings, 0)
    training = training_of(replace(settings, evaluate_every=None, validation_queries=0), kind, 0, view="original")
    step, base = pace(ranker, frame, qrels, training)
    some = frame[frame["qid"].isin(topics["qid"][:15])]
    started = time.perf_counter()
    ranker(some)
    return step, (time.perf_counter() - started) / reads(kind, some), base


def reads(kind: str, frame: pd.DataFrame) -> int:
    """How many texts a ranker reads to score a frame: a cross-encoder each pair, the others each passage once."""
    return len(frame) if kind == "cat" else frame["docno"].nunique()


def paper_delta(original: float, rotated: float) -> float:
    """The paper's delta in per cent, relative to the rotated value: .432 and .395 give -9.4."""
    return 100 * (1 - original / rotated) if rotated else float("nan")


def plain_delta(original: float, rotated: float) -> float:
    """The change in per cent of the original value: .432 and .395 give -8.6."""
    return 100 * (rotated / original - 1) if original else float("nan")
