"""Datasets of ir_datasets, by registered datasets that need no download."""

from typing import NamedTuple

import ir_datasets
import pandas as pd
import pyterrier as pt
import pytest
from ir_datasets.formats import BaseDocs, BaseQrels, BaseQueries, BaseScoredDocs, GenericQrel, GenericScoredDoc

from pyterrier_debias import InputError, open_dataset
from pyterrier_debias.core.dataset import Dataset, provided
from pyterrier_debias.data.irds import DocstoreLoader, IRDSCollection
from tests.contract import Case, assert_contract


class Doc(NamedTuple):
    doc_id: str
    text: str
    title: str
    year: int
    source: str | None = None

    def default_text(self):
        return f"{self.title} {self.text}"


class WebDoc(NamedTuple):
    doc_id: str
    url: str
    body: str

    def default_text(self):
        return self.body


class Query(NamedTuple):
    query_id: str
    text: str
    type: str
    answers: tuple[str, ...]
    description: str

    def default_text(self):
        return self.text


DOCS = [
    Doc("1-0", "Water boils at 100 degrees.", "Water", 1),
    Doc("1-1", "It freezes at 0.", "Ice", 2, "web"),
    Doc("2-0", "", "Void", 3),
]
QUERIES = [
    Query("5", "when does water boil", "NUMERIC", ("100 degrees", "at 100"), "boiling"),
    Query("6", "why", "DESCRIPTION", (), "reasons"),
]
QRELS = [GenericQrel("5", "1-0", 1), GenericQrel("5", "1-1", 0), GenericQrel("6", "2-0", 0)]
SHOWN = [GenericScoredDoc("5", "1-1", 0), GenericScoredDoc("5", "1-0", -1), GenericScoredDoc("6", "2-0", 0)]


class Store:
    def __init__(self, docs):
        self.docs = {doc.doc_id: doc for doc in docs}

    def get_many_iter(self, doc_ids):
        return (self.docs[doc_id] for doc_id in doc_ids if doc_id in self.docs)


def part(base, prefix, kind, records, **more):
    """A component of a dataset that yields records."""
    return type(
        f"Fake{prefix}", (base,),
        {f"{prefix}_iter": lambda self: iter(records), f"{prefix}_cls": lambda self: kind, **more},
    )()


def docs(records, kind):
    return part(BaseDocs, "docs", kind, records, docs_count=lambda self: len(records), docs_store=lambda self: Store(records))


class Unreachable(BaseQueries):
    def queries_iter(self):
        raise RuntimeError("all download sources failed")


@pytest.fixture(scope="module", autouse=True)
def registered():
    queries = part(BaseQueries, "queries", Query, QUERIES)
    made = {
        "fake": ir_datasets.Dataset(docs(DOCS, Doc)),
        "fake/dev": ir_datasets.Dataset(
            docs(DOCS, Doc), queries, part(BaseQrels, "qrels", GenericQrel, QRELS),
            part(BaseScoredDocs, "scoreddocs", GenericScoredDoc, SHOWN),
        ),
        "fake/train": ir_datasets.Dataset(
            docs(DOCS, Doc), part(BaseQueries, "queries", Query, QUERIES[1:]), part(BaseQrels, "qrels", GenericQrel, QRELS[2:])
        ),
        "fakeweb": ir_datasets.Dataset(docs([WebDoc("w", "http://w", "a page")], WebDoc)),
        "fakefar": ir_datasets.Dataset(Unreachable()),
    }
    for name, dataset in made.items():
        ir_datasets.registry.register(name, dataset)
    yield
    for name in made:
        del ir_datasets.registry._registered[name]


def test_it_has_the_shape_of_a_dataset():
    dataset = open_dataset("irds:fake/dev")
    assert isinstance(dataset, Dataset)
    assert dataset.name == "irds:fake/dev"
    first = {"docno": "1-0", "text": "Water boils at 100 degrees.", "title": "Water", "source": ""}
    assert next(dataset.get_corpus_iter()) == first
    assert [d["docno"] for d in dataset.get_corpus_iter()] == ["1-0", "1-1", "2-0"]
    topics = dataset.get_topics()
    assert list(topics.columns) == ["qid", "query", "type", "description"]
    assert topics["query"].tolist() == ["when does water boil", "why"]
    assert dataset.get_qrels().values.tolist() == [["5", "1-0", 1], ["5", "1-1", 0], ["6", "2-0", 0]]


def test_candidates_keep_the_order_shown_and_answers_name_used_passages():
    dataset = open_dataset("irds:fake/dev")
    assert dataset.get_candidates().values.tolist() == [["5", "1-1", 0.0, 0], ["5", "1-0", -1.0, 1], ["6", "2-0", 0.0, 0]]
    assert dataset.get_runs()["scoreddocs"].equals(dataset.get_candidates())
    assert dataset.get_answers().values.tolist() == [["5", "1-0", "100 degrees", -1, -1], ["5", "1-0", "at 100", -1, -1]]


def test_lists_without_scores_are_no_ranking(monkeypatch, caplog):
    """As MS MARCO's first 1,000 passages come: they were ranked by docno, and taken for the run that filled the pool."""
    unscored = [shown._replace(score=0) for shown in SHOWN]
    dataset = open_dataset("irds:fake/dev")
    monkeypatch.setattr("pyterrier_debias.data.irds._records", lambda *_: iter(unscored))
    assert dataset.get_candidates() is None and dataset.get_runs() == {}
    assert "irds:fake/dev: its scoreddocs have no scores, so they are no ranking" in caplog.text


def test_what_it_lacks_is_none():
    dataset = open_dataset("irds:fakeweb")
    assert dataset.get_candidates() is None
    assert dataset.get_runs() == {}
    assert dataset.get_answers() is None
    assert provided(dataset, "get_qrels", "full") is None
    with pytest.raises(InputError, match="irds:fakeweb: it has no queries"):
        dataset.get_topics()


def test_splits_and_fields():
    dataset = open_dataset("irds:fake/dev")
    assert dataset.get_topics("train")["qid"].tolist() == ["6"]
    assert dataset.get_qrels("train")["qid"].tolist() == ["6"]
    assert dataset.get_topics("dev").equals(dataset.get_topics())
    assert dataset.get_topics("description")["query"].tolist() == ["boiling", "reasons"]
    again = open_dataset("irds:fake", split="train")
    assert again.irds_id == "fake/train"
    assert open_dataset(again, split="train") is again
    assert open_dataset("irds:fake/dev", split="train").irds_id == "fake/train"
    with pytest.raises(InputError, match="irds:fake/dev: ir_datasets has no fake/dev/test and no fake/test; see"):
        dataset.get_topics("test")


def test_pyterriers_own_object_is_taken():
    dataset = open_dataset(pt.get_dataset("irds:fake/dev"))
    assert isinstance(dataset, IRDSCollection)
    assert dataset.irds_id == "fake/dev"
    assert open_dataset(pt.get_dataset("irds:fake"), split="dev").irds_id == "fake/dev"
    assert open_dataset(dataset) is dataset
    assert open_dataset(IRDSCollection("fake"), split="dev").irds_id == "fake/dev"


def test_texts_are_loaded_and_composed():
    dataset = open_dataset("irds:fake/dev")
    pipeline = pt.Transformer.from_df(dataset.get_candidates()) >> dataset.text_loader("*")
    out = pipeline(dataset.get_topics())
    assert out["title"].tolist() == ["Ice", "Water", "Void"]
    assert out["text"].tolist() == ["It freezes at 0.", "Water boils at 100 degrees.", ""]
    assert dataset.text_loader("*").fields == ("text", "title")
    assert open_dataset("irds:fakeweb").text_loader()(pd.DataFrame({"docno": ["w"]}))["text"].tolist() == ["a page"]
    with pytest.raises(InputError, match="2 of 3 rows have a docno that is not in irds:fake/dev, first 'x'"):
        dataset.text_loader()(pd.DataFrame({"docno": ["x", "1-0", "y"]}))
    with pytest.raises(InputError, match="have no field 'url'; they have text, title, source"):
        dataset.text_loader("url")(pd.DataFrame({"docno": ["1-0"]}))


def test_a_field_that_some_documents_lack_is_empty_there():
    load = open_dataset("irds:fake/dev").text_loader("source")
    for docnos, sources in ((["1-0", "1-1"], ["", "web"]), (["1-1", "1-0"], ["web", ""])):
        assert load(pd.DataFrame({"docno": docnos}))["source"].tolist() == sources


def test_cut_off_documents_are_not_loaded():
    dataset = open_dataset("irds:fake/dev")
    run = dataset.get_candidates().assign(docno=["1-1", "unknown", "2-0"])
    pipeline = (pt.Transformer.from_df(run) >> dataset.text_loader()) % 1
    assert pipeline.compile()(dataset.get_topics())["docno"].tolist() == ["1-1", "2-0"]


def test_unknown_ids_and_missing_networks_are_told():
    with pytest.raises(InputError, match=r"irds:nothing/here: ir_datasets has no such dataset; see https://ir-datasets\.com"):
        open_dataset("irds:nothing/here")
    with pytest.raises(InputError, match=r"its queries could not be downloaded .all download sources failed.; connect"):
        open_dataset("irds:fakefar").get_topics()
    with pytest.raises(InputError, match="could not be downloaded"):  # which is not to have none
        provided(open_dataset("irds:fakefar"), "get_topics")


def test_opening_downloads_nothing(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a download was tried")

    monkeypatch.setattr("ir_datasets.util.download.RequestsDownload.stream", refuse)
    dataset = open_dataset("irds:msmarco-qna/dev")
    assert repr(dataset) == "IRDSCollection('msmarco-qna/dev')"
    assert dataset.text_loader("*").fields == ("text", "url", "msmarco_passage_id", "msmarco_document_id")


CASE = Case(
    "DocstoreLoader",
    lambda: DocstoreLoader("fake/dev"),
    lambda: pd.DataFrame(
        {
            "qid": ["5", "5", "6"], "query": ["a", "a", "b"], "docno": ["1-1", "1-0", "2-0"],
            "score": [2.0, 1.0, 1.0], "rank": [0, 1, 0],
        }
    ),
    lambda: DocstoreLoader("fake/dev", ("title",)),
)


def test_the_loader_keeps_the_contract():
    assert_contract(CASE)
