"""Complexity and type-token ratio by first relevant rank: what two biases say together."""

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import AuditResult, Collection, audit
from pyterrier_debias.core import bias
from pyterrier_debias.core.plots import new_axes, rendered
from pyterrier_debias.core.systems import Context
from pyterrier_debias.linguistic.audit import LinguisticBias
from pyterrier_debias.report import cross_bias
from pyterrier_debias.report.cross_bias import ALL, CROSS_BIASES, missing_reason, wording_by_rank
from pyterrier_debias.report.gate import Budget, check_budgets
from pyterrier_debias.survivorship.audit import SurvivorshipBias
from tests.biases import examined
from tests.report import toy

#: Query, its complexity, and which of ten documents shown is relevant; 0 for none.
ROWS = [
    ("who wrote it", -1.0, 1),
    ("who sang that song that was sung", -0.5, 2),
    ("the the the the", 0.5, 3),
    ("where is rome", 0.0, 4),
    ("what is a b c d", 1.0, 6),
    ("why is it so", 2.0, 9),
    ("how long is long", 1.5, 10),
    ("can one know", 3.0, 0),
    ("will it rain", 4.0, 0),
]
WORDING = CROSS_BIASES[0]
QIDS = [f"q{i}" for i in range(len(ROWS))]


def collection(complexity=True):
    topics = pd.DataFrame({"qid": QIDS, "query": [query for query, *_ in ROWS]})
    if complexity:
        topics = topics.assign(complexity=[c for _, c, _ in ROWS])
    pairs = pd.DataFrame([{"qid": q, "docno": f"{q}-d{i}", "score": -float(i), "rank": i} for q in QIDS for i in range(10)])
    labels = [int(i + 1 == rank) for *_, rank in ROWS for i in range(10)]
    return Collection(
        "shown",
        corpus=pd.DataFrame({"docno": pairs["docno"], "text": "words of " + pairs["docno"]}),
        topics={"test": topics},
        qrels={"test": pairs[["qid", "docno"]].assign(label=labels)},
        runs={"bm25": pairs},
        candidates=pairs,
    )


def context(dataset):
    system = toy.bm25_system(dataset)
    return Context([system], dataset, dataset.get_topics(), dataset.get_qrels(), seed=3)


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    whole, cross_bias._RESAMPLES = cross_bias._RESAMPLES, 999
    yield
    cross_bias._RESAMPLES = whole


@pytest.fixture(scope="module")
def found():
    return examined(WORDING, context(collection()))


def one(found, measure, contrast):
    (finding,) = [f for f in found.findings if (f.measure, f.contrast) == (measure, contrast)]
    return finding


def test_means_by_bin_are_those_of_the_queries_in_it(found):
    # Ranks 1, 2, 3: complexities -1, -1/2, 1/2; ranks 4, 6: 0, 1; ranks 9, 10: 2, 3/2; never: 3, 4.
    means = {f.contrast: (f.value, f.n) for f in found.findings if f.measure == "complexity"}
    assert means == {
        "first met at 1 to 3": (pytest.approx(-1 / 3), 3), "first met at 4 to 6": (0.5, 2),
        "first met at 7 or later": (1.75, 2), "never answered": (3.5, 2),
    }  # fmt: skip
    # Different words by words: 3/3, 6/7 ("that" twice), 1/4.
    assert one(found, "TTR", "first met at 1 to 3").value == pytest.approx((1 + 6 / 7 + 1 / 4) / 3)
    assert np.isnan(one(found, "complexity", "first met at 1 to 3").low), "of three queries there is no interval"


def test_intervals_of_bins_are_students(monkeypatch):
    monkeypatch.setattr(bias, "LEAST_UNITS", 2)
    again = examined(WORDING, context(collection()))
    first = one(again, "complexity", "first met at 1 to 3")
    peer = stats.ttest_1samp([-1.0, -0.5, 0.5], 0).confidence_interval()
    assert (first.low, first.high) == pytest.approx(tuple(peer))
    # Without the cut: 59/84 -+ 4.303 * 0.397 / sqrt(3), beyond both ends.
    ratio = one(again, "TTR", "first met at 1 to 3")
    assert (ratio.low, ratio.high) == (0.0, 1.0) and "cut to [0, 1]" in ratio.convention


def test_the_correlation_is_spearmans_over_answered_queries(found):
    rho = one(found, "rho of complexity", "first relevant rank")
    answered = [(c, rank) for _, c, rank in ROWS if rank]
    assert rho.value == pytest.approx(stats.spearmanr(*zip(*answered)).statistic) and rho.n == 7
    assert "p = 0.00" in rho.text and "not corrected" in rho.text and rho.null_value > 0.1


def test_nothing_is_added_to_the_corrected_tests(found):
    assert all(np.isnan(f.p) and not f.primary and f.system == ALL and f.bias == "survivorship" for f in found.findings)
    assert {"complexity from the topics" in f.convention for f in found.findings if "complexity" in f.measure} == {True}


def test_values_behind_each_finding_average_to_it(found):
    for finding in found.findings:
        f = found.per_query
        own = f[(f["measure"] == finding.measure) & (f["contrast"] == finding.contrast)]
        assert len(own) == finding.n and own["value"].mean() == pytest.approx(finding.value, abs=1e-9)


def test_complexity_is_computed_where_the_topics_do_not_have_it():
    topics = collection(complexity=False).get_topics()
    found, how = wording_by_rank(topics)
    assert found["complexity"].notna().all() and "LinguisticComplexity('lu')" in how
    assert found["TTR"].tolist() == pytest.approx([1, 6 / 7, 1 / 4, 1, 1, 1, 3 / 4, 1, 1])
    # A query that is not known has no ratio.
    lost = topics.assign(complexity=1.0, query=topics["query"].where(topics["qid"] != "q0", None))
    assert wording_by_rank(lost)[0]["TTR"].isna().tolist() == [True] + [False] * 8
    assert "TTR" not in wording_by_rank(lost.drop(columns="query"))[0]


def test_too_few_answered_queries_leave_the_correlation_out():
    dataset = collection()
    qrels = dataset.get_qrels()
    few = qrels.assign(label=qrels["label"].where(qrels["qid"].isin(["q0", "q1"]), 0))
    found = examined(WORDING, replace(context(dataset), qrels=few))
    assert {f.contrast for f in found.findings} == {"first met at 1 to 3", "never answered"}


def test_the_figure_can_be_drawn(found):
    (figure,) = found.figures
    assert "9 queries" in figure.caption and "95 %" in figure.caption
    axes = new_axes()
    figure.draw(axes)
    assert [len(panel.get_xticks()) for panel in axes.child_axes] == [4, 4]
    assert rendered(axes.figure).startswith(b"\x89PNG")


def test_why_it_cannot_be_said():
    dataset = collection()
    assert missing_reason(WORDING, ["survivorship", "linguistic"], context(dataset)) is None
    missing = missing_reason(WORDING, ["survivorship"], context(dataset))
    assert missing == "this comparison needs figures of linguistic bias, which was not examined on any system"
    blind = toy.collection()
    assert "get_candidates" in missing_reason(WORDING, WORDING.biases, context(blind))
    assert len({cross.name for cross in CROSS_BIASES}) == len(CROSS_BIASES)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    dataset = collection()
    folder = tmp_path_factory.mktemp("kept") / "audit"
    systems = {"run": pt.Transformer.from_df(dataset.get_runs()["bm25"])}
    options = {"biases": ["linguistic", "survivorship"], "checkpoint": folder}
    return audit(systems, dataset, **options), systems, dataset, options


def test_the_audit_joins_the_biases(result):
    whole, systems, dataset, _ = result
    assert not len(whole.failed) and not len(whole.skipped)
    own = whole.findings[whole.findings["measure"].isin(["complexity", "TTR", "rho of complexity", "rho of TTR"])]
    assert len(own) == 10 and set(own["bias"]) == {"survivorship"}
    assert [figure.name for bias, figure in whole.figures if bias == "survivorship"][-1] == "wording"
    # What both biases say alone is untouched, corrected p values too.
    alone = [audit(systems, dataset, biases=[bias]).findings for bias in ("linguistic", "survivorship")]
    assert whole.findings["p"].notna().sum() == sum(f["p"].notna().sum() for f in alone)
    assert len(whole.findings) == sum(map(len, alone)) + 10
    page = whole.to_html()
    assert "Mean complexity of the wording" in page and "first met at 4 to 6" in whole.to_text()


def test_it_survives_json_checkpoints_and_the_gate(result, monkeypatch):
    whole, systems, dataset, options = result
    text = whole.to_json()
    schema = Path(cross_bias.__file__).with_name("result.schema.json").read_text()
    jsonschema.validate(json.loads(text), json.loads(schema))
    assert AuditResult.from_json(text).to_json() == text
    monkeypatch.setattr(cross_bias._Wording, "findings", None)
    again = audit(systems, dataset, **options)
    pd.testing.assert_frame_equal(again.findings, whole.findings)
    assert len(again.figures) == len(whole.figures) and not len(again.failed)
    budget = Budget("survivorship", "complexity", "never answered", at_most=100.0, bound="value")
    assert [verdict.crossed for verdict in check_budgets(whole, [budget])] == [False]


def test_it_is_left_out_with_the_reason(result):
    _, systems, dataset, _ = result
    blind = toy.collection()
    run = {"run": pt.Transformer.from_df(blind.get_runs()["bm25"])}
    skipped = audit(run, blind, biases=["survivorship", "linguistic"]).skipped.to_dict("records")
    assert [s["bias"] for s in skipped] == ["survivorship", "survivorship and linguistic"]
    assert (skipped[1]["bias"], skipped[1]["system"]) == (WORDING.name, ALL)
    assert "needs figures of survivorship bias" in skipped[1]["reason"]
    # Who asks for one bias does not ask for what both would say.
    assert not len(audit(systems, dataset, biases="survivorship").skipped)


def test_a_defect_of_it_costs_nothing_else(result, monkeypatch):
    _, systems, dataset, _ = result

    def fall(self):
        raise RuntimeError("down")

    monkeypatch.setattr(cross_bias._Wording, "findings", fall)
    broken = audit(systems, dataset, biases=[SurvivorshipBias(), LinguisticBias()])
    assert broken.failed["bias"].tolist() == [WORDING.name] and set(broken.findings["bias"]) == {"survivorship", "linguistic"}
