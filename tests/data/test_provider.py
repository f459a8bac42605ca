"""Datasets by PyTerrier's names."""

import pickle

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError, PlantedCollection, PlantedRanker, open_dataset
from pyterrier_debias.data.provider import DebiasDatasets

SMALL = "planted/seed=3,topics=10,passages=80,position=1"


@pytest.fixture(autouse=True)
def provided(monkeypatch):
    """PyTerrier has this package's provider alone; the other tests have PyTerrier's own."""
    monkeypatch.setattr(pt.datasets._core, "_loaded_providers", {"debias": DebiasDatasets()})
    monkeypatch.setattr(pt.utils, "entry_points", lambda group: ())


def same(one, other):
    pd.testing.assert_frame_equal(one.corpus, other.corpus)
    assert one.name == other.name and one.topics.keys() == other.topics.keys()
    for split, topics in one.topics.items():
        pd.testing.assert_frame_equal(topics, other.topics[split])


def test_pyterrier_finds_the_planted_collection():
    found = pt.get_dataset("debias:planted")
    assert isinstance(found, pt.datasets.Dataset)
    same(found, PlantedCollection())


def test_options_stand_in_the_name():
    found = pt.get_dataset(f"debias:{SMALL}")
    wanted = PlantedCollection(3, topics=10, passages=80, position=1)
    assert found.name == "planted-3-position1"
    same(found, wanted)
    same(open_dataset(SMALL), wanted)


def test_an_experiment_as_with_any_dataset():
    found = pt.get_dataset(f"debias:{SMALL}")
    topics, qrels = found.get_topicsqrels()
    assert 8 <= found.get_results()["qid"].nunique() and set(found.get_results()["qid"]) <= set(topics["qid"])
    run = pt.Transformer.from_df(found.get_results("bm25"))
    reranked = run >> pt.text.get_text(found) >> PlantedRanker()
    table = pt.Experiment([run, reranked], topics, qrels, ["ndcg_cut_10"], names=["BM25", "planted"], plan="tree")
    assert table["ndcg_cut_10"].between(0, 1).all() and table["ndcg_cut_10"].nunique() == 2


def test_a_split_of_it_is_the_split_and_it_can_be_pickled():
    """`pt.get_dataset` puts functions of its own into datasets, which know one object only."""
    found = pt.get_dataset(f"debias:{SMALL}")
    assert len(open_dataset(found, "full").get_topics()) == 10 > len(found.get_topics())
    same(pickle.loads(pickle.dumps(found)), found)


def test_the_list_of_datasets_names_it(monkeypatch):
    monkeypatch.setattr(PlantedCollection, "named", classmethod(lambda cls, name: cls(topics=10, passages=80)))
    [row] = pt.list_datasets().to_dict("records")
    assert row["dataset"] == "debias:planted" and row["topics"] == ["test", "full"] and "full" in row["qrels"]
    assert row["corpus"] is True and row["index"] is None and row["corpus_lang"] == row["topics_lang"] == "en"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("planted/sede=3", r"planted/sede=3: option='sede' is not known; use one of 'seed', 'topics'"),
        ("planted/seed=x", r"seed='x' is not a number"),
        ("planted/seed", r"seed='' is not a number"),
        ("planted/position=2", r"position"),
    ],
)
def test_options_that_cannot_be_used(name, message):
    with pytest.raises(InputError, match=message):
        pt.get_dataset(f"debias:{name}")


def test_another_name_is_not_found():
    with pytest.raises(KeyError, match="'debias:vaswani' not found in provider 'debias'"):
        pt.get_dataset("debias:vaswani")


def test_a_folder_called_planted_is_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "planted" / "mine").mkdir(parents=True)
    with pytest.raises(InputError, match="it holds no corpus"):
        open_dataset("planted/mine")


def test_a_collection_without_runs_has_no_results():
    topics = {"test": pd.DataFrame({"qid": ["1"], "query": ["what"]})}
    toy = Collection("toy", corpus=pd.DataFrame({"docno": ["d"], "text": ["t"]}), topics=topics, qrels={})
    with pytest.raises(InputError, match="toy: no run None; there are none"):
        toy.get_results()
