"""A collection in memory is a PyTerrier dataset."""

from types import SimpleNamespace

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError, open_dataset
from pyterrier_debias.core.dataset import Dataset, provided
from pyterrier_debias.data.base import cut_texts


def toy(**changes):
    parts = {
        "corpus": pd.DataFrame({"docno": [1, 2], "text": ["one", "two"], "title": ["I", "II"]}),
        "topics": {"dev": pd.DataFrame({"qid": [7], "query": ["x"]}), "test": pd.DataFrame({"qid": [8], "query": ["y"]})},
        "qrels": {"dev": pd.DataFrame({"qid": [7], "docno": [1], "label": [1]})},
    }
    return Collection("toy", **{**parts, **changes})


def test_it_is_a_dataset():
    assert isinstance(toy(), Dataset)
    assert list(toy().get_corpus_iter()) == [
        {"docno": "1", "text": "one", "title": "I"}, {"docno": "2", "text": "two", "title": "II"}
    ]  # fmt: skip
    assert toy().get_topics()["qid"].tolist() == ["7"]
    assert toy().get_topics("test")["qid"].tolist() == ["8"]
    assert repr(toy()) == "<Collection 'toy': 2 documents; topics: dev 1, test 1>"


def test_the_text_loader_composes():
    run = pd.DataFrame({"qid": ["7"], "docno": ["2"], "score": [1.0]})
    pipeline = pt.Transformer.from_df(run) >> toy().text_loader(["text", "title"])
    out = pipeline(toy().get_topics())
    assert out[["text", "title"]].values.tolist() == [["two", "II"]]
    assert toy().text_loader("*").fields == ("text", "title")
    assert toy().text_loader() == toy().text_loader()


def test_an_unknown_docno_is_named():
    with pytest.raises(InputError, match="1 of 2 rows have a docno that is not in the collection, first '9'"):
        toy().text_loader()(pd.DataFrame({"docno": ["1", "9"]}))
    with pytest.raises(InputError, match="first '1%p0'; it is a passage of '1': use a corpus of the passages"):
        toy().text_loader()(pd.DataFrame({"docno": ["1", "1%p0"]}))


def test_what_a_collection_lacks_is_none():
    assert provided(toy(), "get_answers") is None
    assert provided(toy(), "get_qrels", "full") is None
    assert provided(object(), "get_answers") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": pd.DataFrame({"docno": ["1", "1"], "text": ["a", "b"]})}, "docno '1' occurs twice"),
        ({"corpus": pd.DataFrame({"docno": ["1"]})}, "corpus: column 'text' is missing; it has docno"),
        ({"topics": {"test": pd.DataFrame({"qid": ["1"]})}}, "topics 'test': column 'query' is missing"),
        ({"split": "train"}, "there is no split 'train'; it has dev, test"),
    ],
)
def test_bad_parts_are_named(changes, message):
    with pytest.raises(InputError, match=message):
        toy(**changes)


def test_an_unknown_split_is_named():
    with pytest.raises(InputError, match="no judgements for 'test'; there are dev"):
        toy().get_qrels("test")


@pytest.mark.parametrize("dataset", ["in memory", "an index", "elsewhere"])
def test_texts_that_were_cut_are_noticed(dataset):
    whole = pd.DataFrame({"docno": [f"d{n}" for n in range(8)], "text": ["some words " * (n + 1) for n in range(8)]})
    texts = whole.assign(text=whole["text"].str[:25])
    source = {
        "in memory": Collection("toy", corpus=whole, topics={"test": pd.DataFrame({"qid": ["1"], "query": ["a"]})}, qrels={}),
        "an index": SimpleNamespace(longest_text=26),  # Terrier keeps one character less
        "elsewhere": SimpleNamespace(name="irds:something"),
    }[dataset]
    assert cut_texts(texts, source).tolist() == [False] * 2 + [True] * 6
    # Whole texts, and few that are of one length by chance.
    assert not cut_texts(whole, source if dataset == "in memory" else None).any()
    assert not cut_texts(texts.head(6), None).any()
    assert cut_texts(texts.head(0), source).tolist() == []


def test_an_index_is_no_dataset_by_itself(tmp_path):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "data.properties").write_text("num.Documents=3\n")
    with pytest.raises(InputError, match=r"is a Terrier index, which has no.*TerrierCollection\(index, dataset\).*--terrier"):
        open_dataset(tmp_path / "index")
    with pytest.raises(InputError, match="a ToyIndex is an index, which has no topics"):
        open_dataset(ToyIndex())


class ToyIndex(pt.Indexer):
    """As PyTerrier's own, an index is a transformer."""

    def index(self, iter):
        return self


def test_a_run_to_rerank_has_the_topics_query_even_where_the_run_brings_its_own():
    run = pd.DataFrame({"qid": ["7"], "docno": ["2"], "score": [1.0], "rank": [0]})
    made = toy(runs={"mine": run, "pyterrier's": run.assign(query="as the retriever had it", docid=1)})
    for name in ("mine", "pyterrier's"):
        found = made.get_results(name)
        assert found.columns.tolist() == ["qid", "query", "docno", "score", "rank"]
        assert found.values.tolist() == [["7", "x", "2", 1.0, 0]]
