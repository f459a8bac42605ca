from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyterrier_debias import AuditResult, InputError, audit
from pyterrier_debias.report.attributions import COLUMNS, worst_queries
from tests.report import toy

KEY = {"system": "m", "bias": "position", "measure": "nDCG@10", "contrast": "rotated - original"}


def figure(values, **changes):
    values = np.asarray(values, dtype=float)
    found = pd.DataFrame([{**KEY, "value": values.mean(), "primary": True, **changes}])
    rows = pd.DataFrame({**KEY, "qid": [f"q{i}" for i in range(len(values))], "value": values})
    return found, rows


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_contributions_of_all_queries_sum_to_the_figure(values):
    found, rows = figure(values)
    table = worst_queries(found, rows, n=len(values))
    assert table["contribution"].sum() == pytest.approx(found["value"][0], abs=1e-12)
    assert len(table) == sum(v != 0 for v in values)


def test_the_order_is_that_of_the_push():
    # Mean (0.1 - 0.7 - 0.3) / 3 = -0.3: the figure is negative, so the most negative query leads; contribution value / 3.
    table = worst_queries(*figure([0.1, -0.7, -0.3]), 2, {"q1": "who"})
    assert table["qid"].tolist() == ["q1", "q2"] and table["query"].tolist() == ["who", ""]
    np.testing.assert_allclose(table["contribution"], [-0.7 / 3, -0.1])
    np.testing.assert_allclose(table["share"], [0.7 / 0.9, 1 / 3])
    assert list(table) == COLUMNS


def test_ties_and_zeros():
    assert worst_queries(*figure([0.2, 0.2, 0.2]))["qid"].tolist() == ["q0", "q1", "q2"]
    table = worst_queries(*figure([0.5, -0.5]))
    assert table["share"].isna().all() and table["contribution"].tolist() == [0.25, -0.25]


def test_queries_that_contribute_nothing_are_left_out():
    table = worst_queries(*figure([0.0, -0.4, 0.0, 0.0]))
    assert table["qid"].tolist() == ["q1"] and table["contribution"].tolist() == [-0.1] and table["share"].tolist() == [1.0]
    assert worst_queries(*figure([0.0, 0.0])).empty


def test_figures_that_are_no_mean_of_their_values_have_no_shares():
    assert worst_queries(*figure([0.1, 0.2], value=0.9)).empty
    assert worst_queries(*figure([0.1, 0.2], primary=False)).empty
    assert list(worst_queries(*figure([0.1, 0.2], value=float("nan")))) == COLUMNS


@pytest.fixture(scope="module")
def result():
    dataset = toy.collection()
    return audit(toy.systems(dataset), dataset, biases=[toy.ORDER, toy.PICKY])


def test_an_audit_names_its_queries(result):
    table = result.worst(2)
    assert table.groupby(["system", "bias"], sort=False).size().to_dict() == {
        ("BM25", "order"): 2, ("longest", "order"): 2, ("longest", "picky"): 2,
    }  # fmt: skip
    assert table["query"].tolist()[:2] == ["tell me about q0", "tell me about q1"]
    assert set(result.worst(bias="picky")["system"]) == {"longest"}
    assert set(result.worst(system="BM25")["bias"]) == {"order"}
    back = AuditResult.from_json(result.to_json())
    pd.testing.assert_frame_equal(back.worst(2), table, check_dtype=False)


def test_older_files_have_no_words(result):
    import json

    content = json.loads(result.to_json())
    del content["queries"], content["blake2b"]
    assert AuditResult.from_json(json.dumps(content)).worst(1)["query"].tolist() == ["", "", ""]


def test_a_system_without_figures_was_audited(result):
    """Nothing is known of it, which is no mistake of who asks."""
    bare = replace(result, findings=result.findings[result.findings["system"] != "BM25"])
    assert bare.worst(system="BM25").empty and bare.worst(bias="picky", system="BM25", kind="documents").empty


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is 0"),
        ({"bias": "x"}, "bias 'x' is not in this audit; there are order, picky"),
        ({"system": "x"}, "system 'x' is not in this audit; there are BM25, longest"),
    ],
)
def test_what_was_not_audited(result, options, message):
    with pytest.raises(InputError, match=message):
        result.worst(**options)
