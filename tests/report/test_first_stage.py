import math
import os
import re
import sys
from contextlib import ExitStack
from dataclasses import replace

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import AverageRotations, BiEncoder, Collection, InputError, PlantedCollection, audit
from pyterrier_debias.core.spread import Spread
from pyterrier_debias.report import first_stage as module
from pyterrier_debias.report.first_stage import PisaIndexer, default_systems, first_stage
from pyterrier_debias.report.models import Model
from tests.report import toy

needs_pisa = pytest.mark.skipif(not module.pisa_installed(), reason="PISA is not installed")
TOPICS = pd.DataFrame({"qid": ["1"], "query": ["red apples"]})
DOCUMENTS = [
    {"docno": "a", "text": "red apples and red pears\nred"},
    {"docno": "b", "text": "apples"},
    {"docno": "c", "text": "nothing of the kind"},
    {"docno": "d", "text": ""},
]


def without_runs():
    dataset = toy.collection()
    dataset.runs = {}
    return dataset


@needs_pisa
def test_pisa_ranks_by_bm25_and_prints_nothing(tmp_path, capfd):
    results = PisaIndexer(tmp_path)(iter(DOCUMENTS))(TOPICS)
    assert results["docno"].tolist() == ["a", "b"]
    assert capfd.readouterr() == ("", "")


@needs_pisa
@pytest.mark.parametrize("text", ["文档排序。", "привет", "é", ""])
def test_a_collection_without_words_that_pisa_reads_is_refused(tmp_path, monkeypatch, text):
    documents = [{"docno": docno, "text": text} for docno in "ab"]
    with monkeypatch.context() as patched:  # PISA would end the process
        patched.setattr("pyterrier_pisa.PisaIndex", None)
        with pytest.raises(InputError, match=r"no words that the built-in BM25 can index .* give a run"):
            PisaIndexer(tmp_path)(iter(documents))
    assert PisaIndexer(tmp_path)([*documents, {"docno": "c", "text": "apples"}])(TOPICS)["docno"].tolist() == ["c"]


def test_output_comes_back_once_the_last_thread_is_done():
    before = [os.fstat(target).st_ino for target in (1, 2)]
    with ExitStack() as first, ExitStack() as second:
        first.enter_context(module._QUIET)
        second.enter_context(module._QUIET)
        first.close()
        assert [os.fstat(target).st_ino for target in (1, 2)] == [os.stat(os.devnull).st_ino] * 2
    assert [os.fstat(target).st_ino for target in (1, 2)] == before


def test_a_program_without_output_is_not_in_the_way(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    kept = os.dup(1)
    os.close(1)
    try:
        with module._QUIET:
            pass
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(1)
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@needs_pisa
def test_pisa_scores_are_those_of_the_formula(tmp_path):
    documents = [*DOCUMENTS, *({"docno": f"f{i}", "text": "filler of five words here"} for i in range(12))]
    length = {d["docno"]: len(d["text"].split()) for d in documents}
    average = sum(length.values()) / len(documents)

    def weight(docno, frequency, holding):
        """Robertson and Zaragoza's BM25 with k1 = 0.9, b = 0.4."""
        idf = math.log((len(documents) - holding + 0.5) / (holding + 0.5))
        return idf * frequency * 1.9 / (frequency + 0.9 * (0.6 + 0.4 * length[docno] / average))

    results = PisaIndexer(tmp_path)(documents)(TOPICS).set_index("docno")["score"]
    assert results["b"] == pytest.approx(weight("b", 1, 2), rel=1e-5)
    assert results["a"] == pytest.approx(weight("a", 1, 2) + weight("a", 3, 1), rel=1e-5)


@needs_pisa
def test_each_index_is_one_of_its_own(tmp_path):
    indexer = PisaIndexer(tmp_path)
    first = indexer(DOCUMENTS)
    second = indexer([{"docno": "z", "text": "red apples"}])
    assert first(TOPICS)["docno"].tolist() == ["a", "b"] and second(TOPICS)["docno"].tolist() == ["z"]


@needs_pisa
def test_errors_of_the_corpus_are_not_lost_in_pisas_thread(tmp_path):
    def broken():
        yield DOCUMENTS[0]
        raise InputError("line 2 is damaged")

    with pytest.raises(InputError, match="line 2 is damaged"):
        PisaIndexer(tmp_path)(broken())
    with pytest.raises(InputError, match="no documents"):
        PisaIndexer(tmp_path)([])
    for docno in ("x y", "x ", " x", "x\t", ""):
        with pytest.raises(InputError, match=re.escape(f"docno {docno!r} is empty or contains white space")):
            PisaIndexer(tmp_path)([DOCUMENTS[0], {"docno": docno, "text": "z"}])


def test_a_collections_own_bm25_run_comes_first(tmp_path):
    dataset = toy.collection()
    dataset.runs = {"other": dataset.runs["bm25"].iloc[:1], "BM25": dataset.runs["bm25"]}
    stage = first_stage(dataset, tmp_path)
    assert stage.name == "BM25" and len(stage.candidates(dataset.get_topics())) == 12
    assert "collection's" in stage.note and list(tmp_path.iterdir()) == []


def test_another_run_serves_where_there_is_no_bm25(tmp_path):
    dataset = toy.collection()
    dataset.runs = {"splade": dataset.runs["bm25"]}
    stage = first_stage(dataset, tmp_path)
    assert (stage.name, stage.indexer) == ("splade", None)


@needs_pisa
def test_the_embedded_collection_is_indexed_where_pisa_is(tmp_path):
    systems = default_systems(PlantedCollection(), tmp_path, models=[])
    assert "PISA's" in systems[0].note
    results = systems[0].candidates(PlantedCollection().get_topics())
    assert results["qid"].nunique() == len(PlantedCollection().get_topics())


@needs_pisa
def test_a_collection_is_indexed_once_for_each_variant_of_its_texts(tmp_path, monkeypatch):
    indexed = []
    original = module.PisaIndexer.__call__

    def counting(self, documents):
        documents = list(documents)
        indexed.append("".join(document["text"] for document in documents))
        return original(self, documents)

    monkeypatch.setattr(module.PisaIndexer, "__call__", counting)
    planted = PlantedCollection(topics=12, passages=240)
    system = module.first_stage(planted, tmp_path, complete=True)
    options = {"biases": "position", "draws": 2, "depth": 10}
    found = audit(system, planted, **options).findings
    assert len(indexed) == len(set(indexed)) == 3
    pd.testing.assert_frame_equal(audit(replace(system, indexed=False), planted, **options).findings, found)
    assert len(indexed) == 6 and len(set(indexed)) == 3
    # Where a run is given, nothing is indexed.
    audit(planted.get_runs()["bm25"], planted, **{**options, "biases": "pooling"})
    assert len(indexed) == 6


def test_the_embedded_collections_frozen_run_serves_where_pisa_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "pisa_installed", lambda: False)
    dataset = PlantedCollection()
    (system,) = default_systems(dataset, tmp_path, models=[])
    assert system.indexer is None and "because PISA is not installed" in system.note
    results = system.candidates(dataset.get_topics())
    frozen = dataset.get_runs()["bm25"].query("qid in @qids", local_dict={"qids": set(dataset.get_topics()["qid"])})
    pd.testing.assert_frame_equal(results[["qid", "docno", "score"]], frozen[["qid", "docno", "score"]].reset_index(drop=True))


def test_without_run_and_pisa_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "pisa_installed", lambda: False)
    with pytest.raises(InputError, match=r"pip install 'pyterrier-debias\[pisa\]'"):
        first_stage(without_runs(), tmp_path)


def test_systems_are_first_stages_and_models_behind_them(tmp_path):
    dataset = toy.collection()
    models = [Model("m", "/one/m", "bi"), Model("m", "/two/m", "bi"), Model("x", "/x", "bi")]
    runs = {"r": dataset.get_runs()["bm25"], "s": dataset.get_runs()["bm25"]}
    systems = default_systems(dataset, tmp_path, models=models, runs=runs, device="cpu")
    assert [s.name for s in systems] == [
        "r", "r >> bi:/one/m", "r >> bi:/two/m", "r >> x", "s", "s >> bi:/one/m", "s >> bi:/two/m", "s >> x",
    ]  # fmt: skip
    assert isinstance(systems[1].ranker, BiEncoder) and systems[1].ranker.device == "cpu"
    assert systems[1].ranker is systems[5].ranker
    one, plain, averaged = default_systems(dataset, tmp_path, models=models[2:], runs={"r": runs["r"]}, rotations=2)
    assert (averaged.name, averaged.untreated, one.untreated) == ("r >> x (2 rotations)", plain.name, "")
    assert averaged.ranker == AverageRotations(plain.ranker, 2) and averaged.ranker.ranker is plain.ranker
    _, shared = default_systems(dataset, tmp_path, models=models[2:], runs={"r": runs["r"]}, workers=2, verbose=True)
    assert shared.ranker == Spread(plain.ranker, 2) and shared.ranker.verbose
    assert "text" in systems[1].candidates(dataset.get_topics()).columns
    assert isinstance(dataset, Collection) and isinstance(systems[0].candidates, pt.Transformer)
