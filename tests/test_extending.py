"""The bias that the documentation shows runs as it stands, and has everything that ours have."""

import pyterrier as pt
import pytest

from pyterrier_debias import AuditResult, PlantedCollection, PlantedRanker, audit, bias_measures, compare
from pyterrier_debias.report.gate import Budget, check_budgets
from tests.pages import blocks


@pytest.fixture(scope="module")
def words_bias():
    (code,) = [block.code for block in blocks("extending") if "class WordsBias" in block.code]
    assert len([line for line in code.splitlines() if line.strip()]) <= 60
    names = {}
    exec(code, names)
    return names["WordsBias"]


@pytest.fixture(scope="module")
def dataset():
    return PlantedCollection(3, topics=16, passages=300)


@pytest.fixture(scope="module")
def systems(dataset):
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    return {"BM25": first, "mine": first >> dataset.text_loader() >> PlantedRanker("position", strength=1.0)}


@pytest.fixture(scope="module")
def result(words_bias, dataset, systems, tmp_path_factory):
    options = {"biases": [words_bias()], "depth": 20, "baseline": "BM25"}
    kept = tmp_path_factory.mktemp("kept") / "audit"
    found = audit(systems, dataset, checkpoint=kept, **options)
    again = audit(systems, dataset, checkpoint=kept, **options)
    assert again.findings.equals(found.findings) and len(list(kept.glob("bias-words-*.json"))) == 1
    return again


def test_it_finds_what_pandas_counts(result, dataset, systems):
    run = dataset.get_runs()["bm25"].query("rank < 20").merge(dataset.get_topics(), on="qid").merge(dataset.corpus, on="docno")
    run = run.assign(words=run["text"].str.split().str.len())
    first = run[run["rank"] < 10].groupby("qid")["words"].mean()
    row = result.findings.query("system == 'BM25'").iloc[0]
    assert row["value"] == pytest.approx((first - run.groupby("qid")["words"].mean()).mean(), abs=1e-9)
    assert row["primary"] and row["p_corrected"] >= row["p"]


def test_it_has_what_ours_have(result):
    assert not len(result.failed)
    page = result.to_html()
    assert "WORDS" in result.to_text() and "Words of the first ten passages" in page
    parts = result.worst(100_000, kind="documents", bias="words")
    assert set(parts["system"]) == {"BM25", "mine"}
    assert len(result.worst(3, bias="words")) == 6
    assert AuditResult.from_json(result.to_json()).to_json() == result.to_json()
    assert "words-bias" in result.card("mine")
    assert [verdict.crossed for verdict in check_budgets(result, [Budget("words", at_most=1e6)])] == [False, False]
    assert "words" in set(compare(result, systems=("BM25", "mine")).table["bias"])
    assert any("vs BM25" in contrast for contrast in result.findings["contrast"])


def test_it_has_measures(words_bias, dataset, systems):
    found = bias_measures(dataset, biases=[words_bias()], effectiveness=[])
    table = pt.Experiment([systems["BM25"]], dataset.get_topics(), dataset.get_qrels(), list(found))
    assert table["Words@10"].iloc[0] > 5
