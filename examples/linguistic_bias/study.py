"""Code shared by the programs on wording: collections, complexity, rankers, biased learners, measures; not a program itself.

Rankers are bi-encoders. Each arm stores their vectors of a collection's documents and queries, so every ranker is measured twice
from the same vectors: *retrieved* (exact search over all documents, as in the paper) and *reranked* (the candidates of BM25). The
difference of two rankers' scores can be measured without encoding anything again.
"""

from __future__ import annotations

import argparse
import gzip
import io
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias import (
    AddJudged,
    BiEncoder,
    Collection,
    CrossEncoder,
    EqualizeReranker,
    InputError,
    LinguisticComplexity,
    Training,
    open_dataset,
)
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.linguistic.training.baselines import (
    FocalReranker,
    GroupDROReranker,
    ReverseComplexity,
    weighted_probability,
)
from pyterrier_debias.linguistic.training.biased import BiasedData, BiasedLearner, FewerSteps, LessData, WeakerModel
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.rankers.retriever import Retriever
from pyterrier_debias.rankers.vectors import Vectors
from pyterrier_debias.report.first_stage import first_stage

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import Arm, Shared, Workshop, adapter_of, answerable, base_parser, draw, encoder_of, held, pace

#: The value of the setting ``ranker`` for a cross-encoder.
CROSS = "cross"
#: How a ranker is used.
USES = ("retrieved", "reranked")
#: The measures; tables of spread and tests use the first.
MEASURES = ("nDCG@10", "RR@10")
#: The four biased learners; the first is the best in the paper.
LEARNERS = ("weaker_model", "less_data", "fewer_steps", "biased_data")


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; the defaults are the small setting.

    Attributes:
        ranker: ``'bi'`` for bi-encoders that are trained whole, ``'adapter'`` for a linear layer over their vectors.
        train_queries: Largest number of training queries per seed.
        validation_queries: Number of queries on which rankers are compared with the untrained ranker; they choose no checkpoint.
        similarity: ``'dot'`` or ``'cosine'``.
        temperature: Divisor of the joint scores of robust and biased model in training.
        pooling: How the bi-encoder makes one vector, ``'mean'`` or ``'cls'``; None for the model's own pooling.
        max_length: Largest number of tokens of a text, which starts with its title; adapters use the encoder's own.
        negatives: ``'explicit'`` for drawn negatives only, ``'in_batch'`` for other queries' documents as well.
        negatives_per_positive: Negatives drawn for each positive.
        learning_rate: Peak learning rate.
        weight_decay: Weight decay of AdamW.
        warmup: Share of the steps, or number of steps, in which the learning rate rises.
        schedule: Schedule of the learning rate.
        alpha: The alpha of EqualizeReranker.
        biased_temperature: Divisor of the biased scores.
        learner_share: Share of the data, or of the steps, for the learners that get less.
        weak_layers: Layers of the weaker model; None for its default, or with adapters for as many layers as the ranker has.
        weak_model: Another weaker model, such as ``prajjwal1/bert-tiny``; empty for the ranker's own first layers.
        gamma: The gamma of FocalReranker.
        dro_bins: Number of groups for group DRO; they have similar sizes and are formed by complexity.
        dro_step: Step size of group DRO.
        index_set: Index set of LinguisticComplexity, or ``'paper'`` for its preset.
        parser: Parser of LinguisticComplexity: ``'stanford'``, or empty for none, which leaves out the syntactic indices.
        encode_dtype: Data type for encoding in the measurement; ``'bfloat16'`` is faster on a GPU, and on some processors.
        measure_learners: Whether every biased learner is measured by itself, or only the weaker model.
        max_documents: Collections with more documents are only re-ranked.
        num_results: Number of documents that are retrieved.
        split_seed: Seed of the draws of queries.
    """

    ranker: str = "bi"
    dropout: float | None = 0.0
    batch_size: int = 16
    triples: int = 640
    depth: int = 50
    queries: int = 600
    train_queries: int = 1000
    validation_queries: int = 300
    similarity: str = "cosine"
    temperature: float = 0.05
    pooling: str | None = "mean"
    max_length: int = 64
    negatives: str = "in_batch"
    negatives_per_positive: int = 1
    learning_rate: float = 5e-4
    weight_decay: float = 0.01
    warmup: float = 0.1
    schedule: str = "linear"
    alpha: float = 0.1
    biased_temperature: float = 1.0
    learner_share: float = 0.2
    weak_layers: int | None = 1
    weak_model: str = ""
    gamma: float = 2.0
    dro_bins: int = 3
    dro_step: float = 0.01
    index_set: str = "table4"
    parser: str = ""
    encode_dtype: str = "float32"
    measure_learners: bool = False
    max_documents: int = 10_000
    num_results: int = 100
    split_seed: int = 1

    POSITIVE: ClassVar[tuple[str, ...]] = (*Shared.POSITIVE, "train_queries", "max_documents", "num_results")
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"ranker": ("bi", "adapter"), "parser": ("", "stanford")}


def parser(doc: str | None, *, trains: bool = True) -> argparse.ArgumentParser:
    """A parser with the options that all programs on wording have; ``trains`` adds those of programs that train."""
    parser = base_parser(doc, Settings())
    parser.add_argument(
        "--dataset", action="append", required=True, metavar="SPEC",
        help="folder or irds: id to test on; may be repeated. The first is also used for training, unless --train names another",
    )
    if trains:
        parser.add_argument(
            "--ranker", choices=Settings.CHOICES["ranker"], help="bi-encoders (default), or linear layers over fixed vectors"
        )
    parser.add_argument("--parser", choices=Settings.CHOICES["parser"], help="parser for the syntactic indices (default: none)")
    parser.add_argument("--train", metavar="SPEC", help="folder or irds: id to train on, such as irds:beir/nfcorpus/train")
    return parser


# Collections


@dataclass(frozen=True, eq=False)
class Source:
    """A collection to test on.

    Attributes:
        name: Name in the tables.
        dataset: The documents, with titles before texts.
        topics: ``qid``, ``query`` of the test, with ``complexity``, ``length`` and ``relevant`` (log of the number of relevant
            documents).
        qrels: Judgements of all queries of the collection.
        complete: Whether the collection is small enough to be retrieved from.
        out: Folder where lists are kept.
        depth: Candidates per query.
        recipe: Description of the queries, in words.
        live: Indices that complexity is the mean of.
    """

    name: str
    dataset: Collection
    topics: pd.DataFrame
    qrels: pd.DataFrame
    complete: bool
    out: Path
    depth: int
    recipe: str
    live: tuple[str, ...]

    def bm25(self, topics: pd.DataFrame) -> pd.DataFrame:
        """``qid``, ``query``, ``docno``, ``score``, ``rank`` of BM25's results: the collection's run, or PISA's; stored."""
        key = keyed_hash(self.depth, self.name, *topics["qid"])
        path = self.out / "lists" / f"{key:016x}.csv.gz"
        if not path.is_file():
            found = self._ranked(topics)
            found = found.loc[found["rank"] < self.depth, ["qid", "docno", "score", "rank"]]
            write_whole(path, gzip.compress(found.to_csv(index=False).encode(), mtime=0))
        read = io.StringIO(gzip.decompress(path.read_bytes()).decode())
        found = pd.read_csv(read, dtype={"qid": str, "docno": str}, keep_default_na=False)
        return topics[["qid", "query"]].merge(found, on="qid")

    def _ranked(self, topics: pd.DataFrame) -> pd.DataFrame:
        runs = provided(self.dataset, "get_runs") or {}
        if "bm25" in runs:
            return runs["bm25"].merge(topics[["qid"]], on="qid")
        print(f"{self.name}: retrieving (BM25)", flush=True)
        with tempfile.TemporaryDirectory(prefix="linguistic-bias-") as scratch:
            return first_stage(self.dataset, Path(scratch), depth=self.depth, complete=True).candidates(topics[["qid", "query"]])

    @cached_property
    def candidates(self) -> pd.DataFrame:
        """The candidates that are re-ranked in the test."""
        return self.bm25(self.topics)

    @cached_property
    def documents(self) -> pd.DataFrame:
        """``docno``, ``text`` of the documents that rankers encode: all of them, or only candidates in a large collection."""
        corpus = self.dataset.get_corpus()[["docno", "text"]]
        return corpus if self.complete else corpus[corpus["docno"].isin(self.candidates["docno"])].reset_index(drop=True)


@dataclass(frozen=True, eq=False)
class Lessons:
    """The training data.

    Attributes:
        source: The collection, for its lists and texts.
        topics: ``qid``, ``query``, ``complexity`` of queries that can be trained on.
        validation: ``qid``, ``query`` of other queries that are not in the test.
        settings: Sizes and seeds.
    """

    source: Source
    topics: pd.DataFrame
    validation: pd.DataFrame
    settings: Settings

    def candidates(self, seed: int) -> pd.DataFrame:
        """Training candidates of a seed: BM25's and all judged documents, with texts and the queries' complexity."""
        topics = draw(self.topics, self.settings.train_queries, seed, "train")
        known = self.topics.set_index("qid")["complexity"]
        found = AddJudged(self.source.qrels)(self.source.bm25(topics))
        return self.source.dataset.text_loader()(found).assign(complexity=lambda frame: frame["qid"].map(known))


def complexity_of(settings: Settings) -> LinguisticComplexity:
    """The stage that measures how complex a query is; it normalises over the queries that it is given."""
    parser = settings.parser or None
    if settings.index_set == "paper":
        return LinguisticComplexity(preset="paper", parser=parser)
    return LinguisticComplexity(settings.index_set, parser=parser)


def with_titles(dataset: Any) -> pd.DataFrame:
    """``docno``, ``text`` of all documents, with the title before the text."""
    rows = [(one["docno"], f"{one.get('title') or ''} {one['text']}".strip()) for one in dataset.get_corpus_iter()]
    return pd.DataFrame(rows, columns=["docno", "text"])


def test_split(dataset: Any) -> str | None:
    """The split that is tested: ``test`` if the collection has it, otherwise None for the collection's default."""
    return "test" if "test" in getattr(dataset, "topics", {}) else None


def open_sources(options: argparse.Namespace, settings: Settings) -> tuple[Lessons | None, list[Source]]:
    """Open the collections to train and test on.

    A collection that is also trained on (NFCorpus) has the splits ``train`` and ``test``, and ``dev`` for validation. If its test
    has fewer queries than the settings ask for, training queries are set aside and tested, too. Spreads and slopes need many
    queries, and a training query that is not trained on is as good for testing as a test query.

    Args:
        options: ``dataset``, ``train`` and ``out``.
        settings: Sizes and seeds.

    Returns:
        The training data (None if there is none), and the collections to test on.

    Raises:
        InputError: For a collection that cannot be opened or has too few queries.
    """
    seed, sources, lessons = settings.split_seed, [], None
    own = [open_dataset(spec) for spec in options.dataset]
    train_on = open_dataset(options.train) if options.train else own[0]
    can_train = bool(options.train) or {"train", "test"} <= set(getattr(train_on, "topics", {}))
    for number, dataset in enumerate(own):
        split = test_split(dataset)
        topics, qrels = dataset.get_topics(*[split] * bool(split)), dataset.get_qrels(*[split] * bool(split))
        tested = draw(answerable(topics, held(qrels, dataset)), settings.queries, seed, "test")
        recipe, rest, judged = f"{len(tested)} test queries", None, qrels
        if number == 0 and can_train:
            part = None if options.train else "train"
            more, more_qrels = train_on.get_topics(*[part] * bool(part)), train_on.get_qrels(*[part] * bool(part))
            pool = answerable(more, held(more_qrels, train_on))
            pool = pool[~pool["qid"].isin(topics["qid"])]
            aside = draw(pool, min(settings.queries - len(tested), len(pool) // 2), seed, "set aside")
            rest = pool[~pool["qid"].isin(aside["qid"])].reset_index(drop=True)
            if len(aside):
                tested = pd.concat([tested, aside], ignore_index=True)
                recipe += f", {len(aside)} training queries that were set aside"
            judged = pd.concat([qrels, more_qrels]).drop_duplicates(["qid", "docno"], ignore_index=True)
        if len(tested) < 3:
            raise InputError(f"{dataset.name}: {len(tested)} judged queries to test on; give a collection with at least three")
        corpus = with_titles(dataset)
        collection = Collection(
            dataset.name, corpus=corpus, topics={"test": tested}, qrels={"test": judged}, runs=provided(dataset, "get_runs")
        )
        stage = complexity_of(settings)
        tested = known_of(tested, stage, judged)
        report = stage.report()
        live = tuple(report.loc[report["live"] & ~report["constant"], "index"])
        complete = len(corpus) <= settings.max_documents
        name = Path(options.dataset[number].removeprefix("irds:").removesuffix("/test")).name
        source = Source(name, collection, tested, judged, complete, options.out, settings.depth, recipe, live)
        sources.append(source)
        # A sample of a collection may lack all relevant documents of the training queries.
        if rest is not None and (len(rest) or options.train):
            lessons = lessons_of(source, train_on, rest, settings)
    return lessons, sources


def lessons_of(source: Source, dataset: Any, pool: pd.DataFrame, settings: Settings) -> Lessons:
    """The training data, with validation queries from ``dev`` if there is such a split, otherwise from the pool."""
    topics, qrels = provided(dataset, "get_topics", "dev"), provided(dataset, "get_qrels", "dev")
    if topics is not None and qrels is not None:
        able = answerable(topics, held(qrels, dataset))
        validation = draw(able, settings.validation_queries, settings.split_seed, "validation")
        judged = pd.concat([source.qrels, qrels]).drop_duplicates(["qid", "docno"], ignore_index=True)
    else:
        validation = draw(pool, min(settings.validation_queries, len(pool) // 5), settings.split_seed, "validation")
        pool, judged = pool[~pool["qid"].isin(validation["qid"])].reset_index(drop=True), source.qrels
    # Judged documents that the collection lacks cannot be trained on.
    source = replace(source, qrels=held(judged, source.dataset))
    if len(pool) < 2:
        raise InputError(f"{dataset.name}: too few queries with relevant documents to train on")
    pool = complexity_of(settings)(pool)
    return Lessons(source, pool[pool["complexity"].notna()].reset_index(drop=True), validation, settings)


def known_of(topics: pd.DataFrame, stage: Any, qrels: pd.DataFrame) -> pd.DataFrame:
    """Topics with ``complexity``, ``length`` (words), ``relevant`` (natural logarithm of the number of relevant documents)."""
    from pyterrier_debias.linguistic.measures.disparity import log_relevant, query_length

    found = stage(topics)
    found = found[found["complexity"].notna()].reset_index(drop=True)
    return found.assign(length=query_length(found["query"]), relevant=log_relevant(found, qrels))


def sizes(lessons: Lessons | None, sources: Sequence[Source]) -> pd.DataFrame:
    """The sizes of the test and training data; one row per collection."""
    rows = []
    for number, source in enumerate(sources):
        trained = lessons is not None and number == 0
        relevant = np.exp(source.topics["relevant"])
        rows.append(
            {
                "collection": source.name,
                "documents": len(source.dataset.corpus),
                "words per document": round(float(source.dataset.corpus["text"].str.split().str.len().mean()), 1),
                "training queries": min(len(lessons.topics), lessons.settings.train_queries) if trained else 0,
                "validation": len(lessons.validation) if trained else 0,
                "tested": len(source.topics),
                "which": source.recipe,
                "words per query": round(float(source.topics["length"].mean()), 2),
                "relevant per query": round(float(relevant.mean()), 1),
                "length by complexity": round(float(source.topics["length"].corr(source.topics["complexity"])), 2),
                "live indices": ", ".join(source.live),
                "uses": ", ".join(USES if source.complete else USES[1:]),
            }
        )
    return pd.DataFrame(rows)


# Rankers


def training_of(settings: Settings, seed: int, **options: Any) -> Training:
    """Training options of an arm; the loss is the softmax over candidates, unless ``options`` name another."""
    given = {
        "loss": "infonce",
        "loss_options": {"temperature": settings.temperature},
        "in_batch_negatives": settings.negatives == "in_batch",
        "max_steps": settings.optimiser_steps(),
        "batch_size": settings.batch_size,
        "negatives_per_positive": settings.negatives_per_positive,
        "learning_rate": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "warmup": settings.warmup,
        "schedule": settings.schedule,
        "precision": settings.precision,
        "log_every": max(1, min(10, settings.optimiser_steps() // 6)),
        "seed": seed,
    }
    return Training(**{**given, **options})


def fixed_encoder(settings: Settings, out: Path, *, layers: int | None = None) -> str:
    """The encoder under adapters, or a copy with fewer layers; its dropout is never used."""
    return encoder_of(replace(settings, layers=layers or settings.layers, dropout=None), out)


def new_ranker(settings: Settings, out: Path, *, model: str | None = None, training: Training | None = None) -> Any:
    """An untrained ranker: a bi-encoder, an adapter, or a cross-encoder, as the settings say."""
    if settings.ranker == CROSS:
        encoder = encoder_of(settings, out) if model is None else model
        seed = 0 if training is None else training.seed
        return CrossEncoder(encoder, head="mean", seed=seed, max_length=settings.max_length, training=training)
    if settings.ranker == "adapter":
        encoder = fixed_encoder(settings, out) if model is None else model
        return adapter_of(settings, encoder, similarity=settings.similarity, training=training)
    return BiEncoder(
        encoder_of(settings, out) if model is None else model,
        similarity=settings.similarity,
        pooling=settings.pooling if model is None else None,
        max_length=settings.max_length,
        training=training,
    )


def learner_of(name: str, settings: Settings, out: Path, training: Training) -> BiasedLearner:
    """A biased learner. With less data there are also fewer steps, so the number of passes over the queries stays the same."""
    if name == "weaker_model":
        weak = settings.weak_model
        if settings.ranker == "adapter" and not weak:
            weak = fixed_encoder(settings, out, layers=settings.weak_layers)
        return WeakerModel(model=new_ranker(settings, out, model=weak)) if weak else WeakerModel(layers=settings.weak_layers)
    if name == "less_data":
        steps = max(1, round(settings.learner_share * settings.optimiser_steps()))
        return LessData(share=settings.learner_share, training=replace(training, max_steps=steps))
    return FewerSteps(share=settings.learner_share) if name == "fewer_steps" else BiasedData()


def equalized(settings: Settings, seed: int, out: Path, biased: Any, alpha: float) -> EqualizeReranker:
    """EqualizeReranker against a learner, given by its name, or against a fitted ranker."""
    training = training_of(settings, seed)
    if isinstance(biased, str):
        biased = learner_of(biased, settings, out, training)
    return EqualizeReranker(
        new_ranker(settings, out, training=training), biased=biased, alpha=alpha,
        biased_temperature=settings.biased_temperature, negatives=settings.negatives,
    )  # fmt: skip


def reversed_probability(scores: Any, **given: Any) -> Any:
    """Reverse weighting as the paper describes it, with the temperature of the settings; see ``weighted_probability``."""
    temperature = given.pop("temperature")
    given.pop("labels", None)
    return weighted_probability(scores / temperature, **given)


def kept_learner(settings: Settings, folder: Path) -> Any:
    """The weaker model that another arm has trained."""
    if settings.ranker == "adapter":
        from fixed_vectors import open_adapter

        return open_adapter(folder / "biased_model", similarity=settings.similarity)
    return (CrossEncoder if settings.ranker == CROSS else BiEncoder).load(folder / "biased_model")


@dataclass(frozen=True)
class Way:
    """A way to train.

    Attributes:
        fit: A function of settings, seed, folder of the encoder, training candidates, judgements and the folder of another arm's
            model; it returns a fitted stage.
        cost: Cost of the training, as a multiple of the cost of plain training.
        after: Name of the arm whose model it needs; empty for none.
    """

    fit: Callable[..., Any]
    cost: float = 1.0
    after: str = ""


def _plain(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **options: Any) -> Any:
    options.pop("other", None)
    return new_ranker(settings, out, training=training_of(settings, seed, **options)).fit(candidates, qrels)


def _equalize(learner: str) -> Callable[..., Any]:
    def fit(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **_: Any) -> Any:
        return equalized(settings, seed, out, learner, settings.alpha).fit(candidates, qrels)

    return fit


def at_alpha(alpha: float) -> Callable[..., Any]:
    """EqualizeReranker with another alpha, against the learner that another arm has trained."""

    def fit(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, other: Path) -> Any:
        return equalized(settings, seed, out, kept_learner(settings, other), alpha).fit(candidates, qrels)

    return fit


def _weighted(favour: str) -> Callable[..., Any]:
    def fit(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **_: Any) -> Any:
        return _plain(settings, seed, out, candidates, qrels, weights=ReverseComplexity(favour=favour))

    return fit


def _reverse_probability(
    settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **_: Any
) -> Any:
    given = {"loss": reversed_probability, "loss_options": {"temperature": settings.temperature}, "weights": ReverseComplexity()}
    return _plain(settings, seed, out, candidates, qrels, **given)


def _dro(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **_: Any) -> Any:
    ranker = new_ranker(settings, out, training=training_of(settings, seed))
    return GroupDROReranker(ranker, bins=settings.dro_bins, step=settings.dro_step).fit(candidates, qrels)


def _whitening(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, **_: Any) -> Any:
    return KernelWhiteningReranker(new_ranker(settings, out, training=training_of(settings, seed))).fit(candidates, qrels)


def _focal(settings: Settings, seed: int, out: Path, candidates: pd.DataFrame, qrels: pd.DataFrame, other: Path) -> Any:
    # Unlike the product, the focal loss uses the biased model's own probability, which needs the temperature of the loss.
    stage = FocalReranker(
        new_ranker(settings, out, training=training_of(settings, seed)), biased=kept_learner(settings, other),
        gamma=settings.gamma, biased_temperature=settings.temperature, negatives=settings.negatives,
    )  # fmt: skip
    return stage.fit(candidates, qrels)


#: The ways to train, in the order in which arms are trained.
WAYS: dict[str, Way] = {
    "plain": Way(_plain),
    "Equalize, weaker model": Way(_equalize("weaker_model"), 1.6),
    "Equalize, less data": Way(_equalize("less_data"), 1.6),
    "Equalize, fewer steps": Way(_equalize("fewer_steps"), 1.6),
    "Equalize, biased data": Way(_equalize("biased_data"), 2.4),
    "reverse weight": Way(_weighted("easy")),
    "group DRO": Way(_dro),
    "focal": Way(_focal, 1.2, after="Equalize, weaker model"),
    "reverse weight, of the probability": Way(_reverse_probability),
    "weight by complexity": Way(_weighted("hard")),
    "kernel whitening": Way(_whitening, 1.3),
}
#: The ways that train a biased learner, with the learner's name.
EQUALIZED = {f"Equalize, {name.replace('_', ' ')}": name for name in LEARNERS}


# Encoded collections


@dataclass(frozen=True, eq=False)
class Encoded:
    """Vectors of a collection's documents and test queries.

    Attributes:
        queries: float32, shape [n, d], in the order of the source's topics.
        vectors: Vectors of the source's documents.
    """

    queries: np.ndarray
    vectors: Vectors

    @classmethod
    def make(cls, ranker: BiEncoder, source: Source, folder: Path | None = None) -> Encoded:
        """Encode documents and queries; if a folder is given, store their vectors there."""
        found = ranker.retriever(source.documents, folder=None if folder is None else folder / "documents")
        queries = ranker.encode_queries(source.topics["query"].tolist())
        if folder is not None:
            np.save(folder / "queries.npy", queries)
        return cls(queries, found.vectors)

    @classmethod
    def open(cls, folder: Path) -> Encoded:
        """Read the vectors that an arm has stored."""
        return cls(np.load(folder / "queries.npy"), Vectors.load(folder / "documents"))

    def less(self, other: Encoded, share: float) -> Encoded:
        """Vectors whose inner products are this ranker's scores minus a share of another's, over the same texts."""
        if list(self.vectors.docnos) != list(other.vectors.docnos):
            raise InputError("the two rankers have not encoded the same documents")
        docnos = [docno.decode() for docno in self.vectors.docnos]
        both = np.concatenate([self.vectors.matrix, other.vectors.matrix], axis=1)
        return Encoded(np.concatenate([self.queries, -share * other.queries], axis=1), Vectors.gather([(docnos, both)]))

    def measured(self, source: Source, num_results: int) -> pd.DataFrame:
        """Measures of each test query: ``dataset``, ``use``, ``qid`` and the measures."""
        runs = {"reranked": source.candidates.assign(score=self._scores(source))}
        if source.complete:
            # The vectors of queries are given, so no model is needed.
            retriever = Retriever(BiEncoder("none"), self.vectors, num_results=num_results)
            topics = source.topics[["qid"]].assign(query_vec=list(self.queries))
            runs["retrieved"] = retriever(topics)
        return pd.concat([of_run(run, source, use) for use, run in runs.items()], ignore_index=True)

    def _scores(self, source: Source) -> np.ndarray:
        at = {docno.decode(): row for row, docno in enumerate(self.vectors.docnos)}
        row_of = {qid: row for row, qid in enumerate(source.topics["qid"])}
        left = self.queries[source.candidates["qid"].map(row_of).to_numpy()].astype(np.float64)
        right = self.vectors.matrix[source.candidates["docno"].map(at).to_numpy()]
        return np.einsum("ij,ij->i", left, right.astype(np.float64))


def of_run(run: pd.DataFrame, source: Source, use: str) -> pd.DataFrame:
    """Measures of each test query of a run."""
    values = per_query(run, source.qrels, list(MEASURES), source.topics["qid"].tolist())
    return values.reset_index().assign(dataset=source.name, use=use)


# Arms


def arm_of(
    name: str, way: Way, seed: int, lessons: Lessons, sources: Sequence[Source], settings: Settings, workshop: Workshop
) -> Arm:
    """One trained ranker, with its biased learner if it has one; vectors are stored in the arm's folder.

    Rows of the validation queries have the use ``validated``; there are none if the collection is too large to be retrieved from.
    """

    def make(folder: Path, checkpoints: Path) -> pd.DataFrame:
        if settings.ranker == "adapter":
            from fixed_vectors import read_once

            for source in sources:
                read_once(fixed_encoder(settings, workshop.out), "document", source.documents["text"].tolist(), workshop.out)
        other = workshop.waited(place_of(way.after, seed)) if way.after else None
        fitted = way.fit(settings, seed, workshop.out, lessons.candidates(seed), lessons.source.qrels, other=other)
        models = {"robust": getattr(fitted, "relevance", fitted)}
        if measures_learner(name, settings):
            models["biased"] = fitted.biased_model
        keep_beside(name, fitted, folder)
        return pd.concat([encoded_rows(ranker, model, lessons, sources, settings, folder) for model, ranker in models.items()])

    reads = sum(len(source.documents) for source in sources) * (2 if measures_learner(name, settings) else 1)
    return Arm(name_of(name, seed), make, name, settings.optimiser_steps(), reads)


def keep_beside(name: str, fitted: Any, folder: Path) -> None:
    """Store the log of a training, and the weak model if other arms learn against it."""
    if name in {way.after for way in WAYS.values()}:
        fitted.biased_model.save(folder / "biased_model")
    write_whole(folder / "history.json", pd.DataFrame(fitted.training_report.history).to_json(orient="records") + "\n")


def measures_learner(name: str, settings: Settings) -> bool:
    """Whether an arm also measures its biased learner."""
    return name in EQUALIZED and (settings.measure_learners or EQUALIZED[name] == "weaker_model")


def encoded_rows(
    ranker: BiEncoder, model: str, lessons: Lessons | None, sources: Sequence[Source], settings: Settings, folder: Path | None
) -> pd.DataFrame:
    """Measures of a ranker on all collections, with the column ``model``; if a folder is given, vectors are stored there."""
    parts = []
    # The same weights, in the data type of the measurement.
    ranker = BiEncoder(ranker, similarity=ranker.similarity, max_length=ranker.max_length, dtype=settings.encode_dtype)
    for number, source in enumerate(sources):
        where = None if folder is None else folder / model / source.name
        if where is not None:
            where.mkdir(parents=True)
        found = Encoded.make(ranker, source, where)
        parts.append(found.measured(source, settings.num_results))
        if number == 0 and lessons is not None and source.complete:
            asked = replace(source, topics=lessons.validation, qrels=lessons.source.qrels)
            queries = ranker.encode_queries(lessons.validation["query"].tolist())
            seen = Encoded(queries, found.vectors).measured(asked, settings.num_results)
            parts.append(seen[seen["use"] == USES[0]].assign(use="validated"))
    return pd.concat(parts, ignore_index=True).assign(model=model)


def name_of(name: str, seed: int) -> dict[str, Any]:
    """The labels of an arm."""
    return {"ranker": name, "seed": seed}


def place_of(name: str, seed: int) -> Arm:
    """An arm that only serves to find its folder."""
    return Arm(name_of(name, seed), lambda *_: pd.DataFrame(), name, 0, 0)


def expected_seconds(
    arms: Sequence[Arm], ways: Mapping[str, Way], lessons: Lessons, settings: Settings, out: Path
) -> dict[str, float]:
    """Expected seconds of each arm, from a few steps of plain training and the time to read some texts."""
    if not arms:
        return {}
    candidates = lessons.candidates(0)
    some = candidates[candidates["qid"].isin(candidates["qid"].unique()[: 4 * settings.batch_size])]
    training = training_of(settings, 0)
    ranker = new_ranker(settings, out, training=training)
    step, base = pace(ranker, some, lessons.source.qrels, training)
    texts = list(dict.fromkeys(some["text"]))[:200]
    fixed = settings.ranker == "adapter"
    reader = fixed_encoder(settings, out) if fixed else ranker
    started = time.perf_counter()
    BiEncoder(reader, dtype=settings.encode_dtype, max_length=None if fixed else settings.max_length).encode_docs(texts)
    text = (time.perf_counter() - started) / len(texts)
    print(f"{step:.2f} s per step of plain training, {1 / text:.0f} texts per second, {base:.0f} s to start", flush=True)
    # Adapters share the vectors of texts, which the first arm reads.
    reads = [0 if fixed and number else arm.reads for number, arm in enumerate(arms)]
    return {arm.name: base + arm.steps * step * ways[arm.kind].cost + read * text for arm, read in zip(arms, reads)}


@dataclass
class Study:
    """The settings, data and arms of a program that trains.

    Attributes:
        settings: The settings.
        lessons: The training data.
        sources: The collections to test on.
        workshop: Runs arms and stores them.
        ways: Ways to train by name, in the order in which they are carried out.
    """

    settings: Settings
    lessons: Lessons
    sources: list[Source]
    workshop: Workshop
    ways: dict[str, Way] = field(default_factory=dict)

    def arms(self) -> list[Arm]:
        """All arms, seed by seed, so that a stopped run has complete seeds."""
        return [
            arm_of(name, way, seed, self.lessons, self.sources, self.settings, self.workshop)
            for seed in range(self.settings.seeds) for name, way in self.ways.items()
        ]

    def encoded(self, name: str, seed: int, source: Source, model: str = "robust") -> Encoded:
        """The vectors that a finished arm has stored."""
        return Encoded.open(self.workshop.folder(place_of(name, seed)) / model / source.name)


def opened(options: argparse.Namespace, settings: Settings) -> tuple[Lessons | None, list[Source]]:
    """Open the collections, and print the table of sizes."""
    lessons, sources = open_sources(options, settings)
    shown = sizes(lessons, sources)
    print(shown.drop(columns=["live indices"]).to_string(index=False), flush=True)
    return lessons, sources


def begin(options: argparse.Namespace, settings: Settings) -> Study:
    """Open everything for a program that trains.

    Raises:
        InputError: If the first collection has nothing to train on, or the folder holds other results.
    """
    lessons, sources = opened(options, settings)
    if lessons is None:
        raise InputError(f"{sources[0].name} has no training queries; name a collection to train on with --train")
    workshop = Workshop(options.out, "linguistic_bias", settings, sources)
    return Study(settings, lessons, sources, workshop)
