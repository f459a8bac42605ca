"""What systems are called."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import AddJudged, BiEncoder, CETReranker, CrossEncoder
from pyterrier_debias.core.naming import distinct_names, system_name
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.report.run import named_systems
from tests.report import toy


class Retriever(pt.Transformer):
    """As PyTerrier's: it tells its weighting model to schematics, and holds an index and controls."""

    def __init__(self, wmodel="BM25", folder="/home/me/indexes/wiki", **controls):
        self.controls = {"wmodel": wmodel, **controls}
        self.indexref = self
        self._folder = folder

    def toString(self):  # noqa: N802 - as Java calls it
        return f"{self._folder}/data.properties"

    def schematic(self, *, input_columns=None):
        return {"label": self.controls["wmodel"]}

    def transform(self, inp):
        return inp


LOADER = TextLoader(pd.DataFrame({"docno": ["d1"], "text": ["a text"]}))
RANKER = CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2")


@pytest.mark.parametrize(
    ("pipeline", "name"),
    [
        (Retriever(), "BM25"),
        (Retriever("DPH") % 100 >> LOADER >> RANKER, "DPH >> CrossEncoder(ms-marco-MiniLM-L6-v2)"),
        (LOADER >> BiEncoder("models/mine/"), "BiEncoder(mine)"),
        (CETReranker(RANKER), "CETReranker(CrossEncoder(ms-marco-MiniLM-L6-v2))"),
        (Retriever() + Retriever("DPH"), "(BM25 + DPH)"),
        (Retriever() >> (Retriever("PL2") ** (LOADER >> RANKER)), "BM25 >> (PL2 ** CrossEncoder(ms-marco-MiniLM-L6-v2))"),
        (pt.apply.doc_score(lambda row: 1.0), "doc_score"),
        (LOADER, "TextLoader"),
    ],
)
def test_systems_are_called_by_what_they_are(pipeline, name):
    assert system_name(pipeline) == name


def test_equal_names_get_what_tells_them_apart():
    assert distinct_names([Retriever(**{"bm25.b": 0.4}), Retriever(**{"bm25.b": 0.75}), Retriever("DPH")]) == [
        "BM25 (b=0.4)", "BM25 (b=0.75)", "DPH",
    ]  # fmt: skip
    assert distinct_names([Retriever(), Retriever(folder="/home/me/indexes/news")])[1] == "BM25 (index=news)"
    short, long = (Retriever() >> LOADER >> CrossEncoder("m", max_length=length) for length in (128, 512))
    assert distinct_names([short, long]) == [f"BM25 >> CrossEncoder(m) (max_length={length})" for length in (128, 512)]
    tokenised = pt.rewrite.reset() >> Retriever(**{"bm25.b": 0.4})  # a stage that names leave out does not hide the option
    two = [Retriever(**{"bm25.b": b}) for b in (0.4, 0.75)]
    assert distinct_names([*two, tokenised]) == ["BM25 (b=0.4)", "BM25 (b=0.75)", "BM25 (b=0.4, ResetQuery)"]
    assert distinct_names([Retriever() % 10, Retriever() % 20]) == ["BM25 (k=10)", "BM25 (k=20)"]
    assert distinct_names([RANKER, RANKER]) == [f"CrossEncoder(ms-marco-MiniLM-L6-v2) ({n})" for n in (1, 2)]


def test_long_pipelines_have_names_of_bounded_length():
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["d"], "label": [1]})
    pipeline = Retriever()
    for _ in range(40):
        pipeline = pipeline >> AddJudged(qrels)
    assert system_name(pipeline).startswith("BM25 >> AddJudged >> ") and len(system_name(pipeline)) < 130


def test_an_audit_names_systems_so():
    dataset = toy.collection()
    run = next(iter(dataset.get_runs().values()))
    found = named_systems([Retriever(), Retriever("DPH"), run], dataset)
    assert [system.name for system in found] == ["BM25", "DPH", "run 3"]
    assert [system.name for system in named_systems(Retriever("DPH"), dataset)] == ["DPH"]
