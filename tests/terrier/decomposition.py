"""Forty pipelines over Terrier, how each is taken apart, and what the position bias says of it.

``python -m tests.terrier.decomposition`` prints the table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias import InputError, PlantedCollection, PositionSensitivity
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.systems import System
from pyterrier_debias.position.audit import PositionBias

BIAS = PositionBias()

DEPTH = 15


class Early(Stage):
    """Scores by where the first of the query's words stands, and by nothing else."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score the pairs."""
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        return ranked(inp.assign(score=[_first(q, t) for q, t in zip(inp["query"], inp["text"])]))


class Common(Stage):
    """Scores by how many words query and text have in common, wherever they stand."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score the pairs."""
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        return ranked(inp.assign(score=[float(len(_words(q) & _words(t))) for q, t in zip(inp["query"], inp["text"])]))


class Cached(Stage):
    """A cache that goes by query and docno, as PyTerrier's does."""

    def __init__(self, ranker: pt.Transformer):
        self.ranker = ranker

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score what is not known yet."""
        known = self.__dict__.setdefault("_known", {})
        scored = self.ranker(inp)
        for query, docno, score in zip(scored["query"], scored["docno"], scored["score"]):
            known.setdefault((query, docno), score)
        return ranked(scored.assign(score=[known[pair] for pair in zip(scored["query"], scored["docno"])]))


class Weights:
    """A learner that has learned."""

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Twice the first feature and once the others."""
        return features @ np.array([2.0, *[1.0] * (features.shape[1] - 1)])


def _words(text: str) -> set[str]:
    return set(text.lower().replace("?", "").replace(".", "").split())


def _first(query: str, text: str) -> float:
    wanted = _words(query)
    places = [place for place, word in enumerate(text.lower().replace(".", "").split()) if word in wanted]
    return -float(places[0] if places else 1_000)


def first_stage(kind: str, index: Any, **options: Any) -> pt.Transformer:
    """From topics to documents; ``options`` are those of the last retriever."""
    if kind == "BM25":
        return index.bm25(**options)
    if kind == "DPH":
        return index.dph(**options)
    if kind == "SDM":
        return pt.rewrite.SequentialDependence() >> index.bm25(**options)
    expansion = pt.rewrite.RM3(index) if kind == "RM3" else pt.rewrite.Bo1QueryExpansion(index)
    return index.bm25() % 20 >> expansion >> index.bm25(**options)


def with_text(kind: str, how: str, index: Any) -> pt.Transformer:
    """Candidates with texts, in three spellings; rewritten queries are reset before a ranker."""
    reset = [] if kind in ("BM25", "DPH") else [pt.rewrite.reset()]
    if how == "stored":
        stages = [first_stage(kind, index, include_fields=["text"]), pt.RankCutoff(DEPTH), *reset]
    elif how == "loader, cut":
        stages = [first_stage(kind, index), index.text_loader("text"), pt.RankCutoff(DEPTH), *reset]
    else:  # cut, loader
        stages = [first_stage(kind, index), pt.RankCutoff(DEPTH), *reset, index.text_loader("text")]
    return pt.Compose(*stages)


def ranker(kind: str, index: Any) -> pt.Transformer:
    """What follows the texts."""
    learner = pt.ltr.apply_learned_model(Weights())
    return {
        "one ranker": lambda: Early(),
        "two rankers": lambda: Common() % 10 >> Early(),
        "fusion": lambda: Early() + Common() * 2.0,
        "learner": lambda: (Early() ** Common()) >> learner,
        "cache": lambda: Cached(Early()),
        "scorer": lambda: pt.text.scorer(body_attr="text", wmodel="BM25", background_index=index),
        "sliding": lambda: pt.text.sliding("text", 6, 3, prepend_attr=None) >> Early() >> pt.text.max_passage(),
        "fusion with an index": lambda: Early() + index.bm25(),
        "learner with an index": lambda: (Early() ** index.pl2()) >> learner,
        "loader between": lambda: Common() % 10 >> index.text_loader("text") >> Early(),
        "second loader": lambda: index.text_loader("text") >> Early(),
    }[kind]()


@dataclass(frozen=True)
class Row:
    """A pipeline, and what is expected of it.

    Attributes:
        first: The first stage.
        text: How texts come in.
        follows: What follows them.
        candidates: How many stages make candidates.
        ranker: How many stages rank.
        said: What the position bias has to say, in part: a reason for which it does not probe, or a note; empty for nothing.
        p: Whether there is a p.
    """

    first: str
    text: str
    follows: str
    candidates: int
    ranker: int
    said: str = ""
    p: bool = True

    @property
    def name(self) -> str:
        """The row in words."""
        return f"{self.first}, {self.text}, {self.follows}"

    def pipeline(self, index: Any) -> pt.Transformer:
        """The pipeline over an index."""
        if self.text == "loader inside":
            learner = pt.ltr.apply_learned_model(Weights())
            inside = (index.text_loader("text") >> Early()) ** index.pl2()
            return first_stage(self.first, index) % DEPTH >> inside >> learner
        return with_text(self.first, self.text, index) >> ranker(self.follows, index)


_STILL = "No score changed"
_LISTS = "measured on whole lists"

#: The pipelines. Counted are the stages that ``>>`` joins.
TABLE = [
    Row("BM25", "stored", "one ranker", 2, 1),
    Row("BM25", "loader, cut", "two rankers", 3, 3, _LISTS),
    Row("BM25", "cut, loader", "fusion", 3, 1),
    Row("BM25", "stored", "learner", 2, 2),
    Row("BM25", "loader, cut", "cache", 3, 1),
    Row("BM25", "cut, loader", "scorer", 3, 1, _STILL, False),
    Row("BM25", "stored", "sliding", 2, 3),
    Row("BM25", "stored", "second loader", 3, 1),
    Row("DPH", "loader, cut", "one ranker", 3, 1),
    Row("DPH", "cut, loader", "two rankers", 3, 3, _LISTS),
    Row("DPH", "stored", "fusion", 2, 1),
    Row("DPH", "loader, cut", "learner", 3, 2),
    Row("DPH", "cut, loader", "cache", 3, 1),
    Row("DPH", "stored", "scorer", 2, 1, _STILL, False),
    Row("DPH", "loader, cut", "sliding", 3, 3),
    Row("DPH", "loader inside", "learner", 4, 0, "loaded and scored inside one stage (FeatureUnion)", False),
    Row("RM3", "cut, loader", "one ranker", 7, 1),
    Row("RM3", "stored", "two rankers", 6, 3, _LISTS),
    Row("RM3", "loader, cut", "fusion", 7, 1),
    Row("RM3", "cut, loader", "learner", 7, 2),
    Row("RM3", "stored", "cache", 6, 1),
    Row("RM3", "loader, cut", "scorer", 7, 1, _STILL, False),
    Row("RM3", "cut, loader", "sliding", 7, 3),
    Row("RM3", "cut, loader", "loader between", 7, 4, "replaces changed passages by the stored texts", False),
    Row("Bo1", "stored", "one ranker", 6, 1),
    Row("Bo1", "loader, cut", "two rankers", 7, 3, _LISTS),
    Row("Bo1", "cut, loader", "fusion", 7, 1),
    Row("Bo1", "stored", "learner", 6, 2),
    Row("Bo1", "loader, cut", "cache", 7, 1),
    Row("Bo1", "cut, loader", "scorer", 7, 1, _STILL, False),
    Row("Bo1", "stored", "sliding", 6, 3),
    Row("Bo1", "loader, cut", "fusion with an index", 7, 1, "holds Retriever, which scores documents of an index", False),
    Row("SDM", "loader, cut", "one ranker", 5, 1),
    Row("SDM", "cut, loader", "two rankers", 5, 3, _LISTS),
    Row("SDM", "stored", "fusion", 4, 1),
    Row("SDM", "loader, cut", "learner", 5, 2),
    Row("SDM", "cut, loader", "cache", 5, 1),
    Row("SDM", "stored", "scorer", 4, 1, _STILL, False),
    Row("SDM", "loader, cut", "sliding", 5, 3),
    Row("SDM", "cut, loader", "learner with an index", 5, 2, "holds Retriever, which scores documents of an index", False),
]


@dataclass(frozen=True)
class Seen:
    """What became of a row.

    Attributes:
        candidates: How many stages make candidates.
        ranker: How many rank.
        probed: Whether the position bias examined it.
        said: The reason why it did not, or its notes.
        change: Rotated - original.
        p: Its p; NaN where nothing was tested.
    """

    candidates: int
    ranker: int
    probed: bool
    said: str
    change: float = float("nan")
    p: float = float("nan")


def examined(pipeline: pt.Transformer, dataset: Any) -> Seen:
    """Take a pipeline apart and probe it for the position bias, with as little as shows what becomes of it."""
    system = System.of("mine", pipeline, dataset=dataset)
    counts = len(flatten(system.candidates)), 0 if system.ranker is None else len(flatten(system.ranker))
    reason = BIAS.needs(system, dataset)
    if reason is not None:
        return Seen(*counts, False, reason)
    options = {"draws": 1, "placements": [], "measures": ["nDCG@10"], "resamples": 99}
    try:
        found = PositionSensitivity(system, dataset=dataset, depth=DEPTH, **options).evaluate(dataset.get_topics().head(8))
    except InputError as error:
        return Seen(*counts, False, str(error))
    row = found.table.iloc[0]
    return Seen(*counts, True, " ".join(found.notes), float(row["difference"]), float(row["p"]))


def printed(seen: Callable[[Row], Seen]) -> str:
    """The table in plain text."""
    lines = [f"{'':>2}  {'pipeline':<42}  {'parts':>5}  {'probed':>6}  {'change':>7}  {'p':>5}  said"]
    for number, row in enumerate(TABLE, start=1):
        one = seen(row)
        change, p = ("" if np.isnan(value) else f"{value:{form}}" for value, form in ((one.change, "+.4f"), (one.p, ".3f")))
        lines.append(
            f"{number:>2}  {row.name:<42}  {one.candidates:>2}+{one.ranker:<2}  {'yes' if one.probed else 'no':>6}  {change:>7}  "
            f"{p:>5}  {one.said}"
        )
    return "\n".join(line.rstrip() for line in lines)


def main() -> None:
    """Print the table, over an index of its own."""
    from tests.terrier.conftest import terrier_index

    pt.java.mavenresolver.offline()
    pt.java.init()
    dataset = PlantedCollection(seed=3, topics=20, passages=200)
    with tempfile.TemporaryDirectory() as folder:
        index = terrier_index(Path(folder) / "index", dataset.get_corpus_iter(verbose=False))
        print(printed(lambda row: examined(row.pipeline(index), dataset)))


if __name__ == "__main__":
    main()
