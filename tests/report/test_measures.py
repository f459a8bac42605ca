
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, nDCG
from ir_measures.measures import Measure

from pyterrier_debias import InputError, PlantedCollection, audit
from pyterrier_debias.report import inputs
from pyterrier_debias.report.bias_measures import bias_measures
from tests.biases import Made
from tests.report import toy


@pytest.fixture(scope="module")
def dataset():
    """Forty topics of the planted collection, two of them without judgements."""
    whole = PlantedCollection()
    topics = whole.get_topics().head(40).reset_index(drop=True)
    qrels = whole.get_qrels()
    qrels = qrels[qrels["qid"].isin(topics["qid"].iloc[2:])].reset_index(drop=True)
    return whole, topics, qrels


@pytest.fixture(scope="module")
def retriever(dataset):
    return pt.Transformer.from_df(next(iter(dataset[0].get_runs().values())))


@pytest.mark.parametrize("bias", list(inputs.BIASES))
def test_every_biases_measures_run_in_an_experiment_with_unjudged_topics(dataset, retriever, bias):
    whole, topics, qrels = dataset
    found = bias_measures(whole, biases=bias, topics=topics, qrels=qrels)
    assert found[0] == nDCG @ 10 and all(isinstance(m, Measure) for m in found)
    table = pt.Experiment([retriever], topics, qrels, found, names=["BM25"])
    alone = pt.Experiment([retriever], topics, qrels, [nDCG @ 10], names=["BM25"])
    assert table["nDCG@10"].item() == alone["nDCG@10"].item()
    assert table.drop(columns="name").notna().all(axis=None)
    # What one ranking does not tell is named with where it can be had.
    assert found.second_run and all(found.second_run.values())
    frame = found.to_frame()
    assert len(frame) == len(found) + len(found.second_run) and set(frame["bias"]) <= {"", bias}


def test_columns_are_the_figures_that_the_audit_reports(dataset, retriever):
    whole, topics, qrels = dataset
    topics, qrels = topics.iloc[2:], qrels
    found = bias_measures(whole, biases="pooling", topics=topics, qrels=qrels, systems={"BM25": retriever})
    assert [str(m) for m in found] == ["nDCG@10", "Judged@10", "nDCG(judged_only=True)@10", "ExpectedNDCG@10"]
    table = pt.Experiment([retriever], topics, qrels, found, names=["BM25"]).iloc[0]
    result = audit({"BM25": retriever}, whole, biases="pooling", topics=topics, qrels=qrels)
    value = result.findings.set_index(["measure", "contrast"])["value"]
    assert table["nDCG@10"] == pytest.approx(value["nDCG@10", "as non-relevant"], abs=1e-12)
    assert table["nDCG(judged_only=True)@10"] == pytest.approx(value["nDCG@10", "removed"], abs=1e-12)
    assert table["ExpectedNDCG@10"] == pytest.approx(value["nDCG@10", "inferred"], abs=1e-12)
    assert found.second_run == {}


def test_spread_is_that_of_numpy(dataset, retriever):
    whole, topics, qrels = dataset
    topics = topics.iloc[2:]
    found = bias_measures(whole, biases="linguistic", topics=topics, qrels=qrels)
    names = [str(m) for m in found]
    assert names == ["nDCG@10", *(f"{s}(nDCG@10)" for s in ("sd", "cv", "slope", "gap", "worst"))]
    table = pt.Experiment([retriever], topics, qrels, found, names=["BM25"]).iloc[0]
    values = pt.Experiment([retriever], topics, qrels, [nDCG @ 10], perquery=True)["value"].to_numpy()
    assert table["sd(nDCG@10)"] == pytest.approx(np.std(values), abs=1e-9)


def test_a_bias_of_the_users_has_measures_of_its_own():
    seen = []

    def contribute(context):
        seen.append(context)
        return [RR @ 5, nDCG @ 10], {"upside down": "turn the list"}

    bias = Made("order", None, measures=contribute)
    found = bias_measures(toy.collection(), biases=[bias], effectiveness=["nDCG@10", RR @ 10])
    assert [str(m) for m in found] == ["nDCG@10", "RR@10", "RR@5"] and found.second_run == {"upside down": "turn the list"}
    assert len(seen[0].topics) == 6 and seen[0].systems == []


def test_a_bias_that_says_nothing_is_named():
    found = bias_measures(toy.collection(), biases=[toy.PICKY])
    assert list(found.second_run) == ["every figure of the bias picky"]


def test_judgements_of_relevant_documents_only():
    found = bias_measures(toy.collection(), biases="pooling")
    assert [str(m) for m in found] == ["nDCG@10"] and "relevant documents only" in found.second_run["Judged@10"]


def test_what_is_not_known():
    with pytest.raises(InputError, match="bias 'astrology' is not known"):
        bias_measures(toy.collection(), biases="astrology")
    with pytest.raises(InputError, match="not known to ir_measures"):
        bias_measures(toy.collection(), biases="position", effectiveness=["hope"])


def test_an_audit_tells_judged_and_unjudged_topics_apart(dataset, retriever):
    whole, topics, qrels = dataset
    biases = ["linguistic", "pooling"]
    with_them = audit({"BM25": retriever}, whole, biases=biases, topics=topics, qrels=qrels)
    without = audit({"BM25": retriever}, whole, biases=biases, topics=topics.iloc[2:], qrels=qrels)
    assert (with_them.settings["topics"], with_them.settings["judged_topics"]) == (40, 38)
    assert set(with_them.per_query["qid"]) == set(without.per_query["qid"])
    pd.testing.assert_frame_equal(with_them.findings, without.findings)
    assert with_them.failed.empty
