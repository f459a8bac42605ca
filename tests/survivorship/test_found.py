"""The gain of a ranking is the sum of its answers' discounts, whatever was judged beside them."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.survivorship.formulas.binary_gain import discounted_gain


def frame(scores):
    rows = [(qid, f"d{i}", score) for qid, own in scores.items() for i, score in enumerate(own)]
    return pd.DataFrame(rows, columns=["qid", "docno", "score"])


def labels(grades):
    rows = [(qid, docno, label) for qid, own in grades.items() for docno, label in own.items()]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def test_worked_example():
    run = frame({"q1": [5.0, 4.0, 3.0, 2.0], "q2": [1.0]})
    judged = labels({"q1": {"d0": 1, "d1": 2, "d3": 2, "gone": 2}, "q2": {"d0": 0}, "q3": {"d0": 2}})
    # Answers at ranks 2 and 4: 1 / log2(3) + 1 / log2(5); q2 shows none, q3 nothing.
    gains = discounted_gain(run, judged, ["q3", "q1", "q2"], min_label=2)
    np.testing.assert_allclose(gains, [0, 1 / np.log2(3) + 1 / np.log2(5), 0])
    np.testing.assert_allclose(discounted_gain(run, judged, ["q1"], min_label=2, cutoff=2), [1 / np.log2(3)])


def test_answers_that_no_ranking_shows_change_nothing():
    """The reason to leave out nDCG's divisor."""
    run, judged = frame({"q": [3.0, 2.0]}), {"d1": 1}
    few, many = (labels({"q": {**judged, **{f"x{i}": 1 for i in range(n)}}}) for n in (0, 9))
    assert discounted_gain(run, few, ["q"]) == discounted_gain(run, many, ["q"])
    assert per_query(run, few, ["nDCG@10"], ["q"]).iloc[0, 0] != per_query(run, many, ["nDCG@10"], ["q"]).iloc[0, 0]


@settings(max_examples=50)
@given(st.lists(st.integers(0, 12), min_size=3, max_size=12), st.lists(st.integers(1, 10), min_size=12, max_size=12))
def test_one_answer_a_query_is_ordered_as_by_its_reciprocal_rank(places, ranks):
    """Ranks 0 to 9 are within the cut-off, 10 is not, and 11 and 12 not retrieved."""
    if len(set(map(lambda place: min(place, 10), places))) < 2 or len(set(ranks[: len(places)])) < 2:
        return
    qids = [f"q{i}" for i in range(len(places))]
    run = frame({qid: list(range(11, 0, -1)) for qid in qids})
    judged = labels({qid: {f"d{place}": 1} for qid, place in zip(qids, places)})
    found = ranks[: len(places)]
    expected = stats.spearmanr(per_query(run, judged, ["RR@10"], qids)["RR@10"], found).statistic
    assert stats.spearmanr(discounted_gain(run, judged, qids), found).statistic == pytest.approx(expected)
