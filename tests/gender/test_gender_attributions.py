"""The parts of documents and words, by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.gender.formulas.attributions import _joined, _summed, order_weights


def coded(names):
    return pd.factorize(np.array(names, dtype=object), sort=True)


def test_parts_are_summed_by_item_and_those_of_0_are_left_out():
    items, qids = coded(["a", "b", "a", "a", "c"]), coded(["1", "1", "1", "2", "2"])
    found = _summed(items, coded(["x", "y", "x", "x", "z"]), qids, np.array([0.5, 1.0, -0.25, -1.0, 0.0]))
    assert found.values.tolist() == [["a", "x", "2", 1.0, 2, -0.75], ["b", "y", "1", 1.0, 1, 1.0]]
    assert _joined([found], 2).values.tolist() == [["a", "x", "2", 2, -0.375], ["b", "y", "1", 1, 0.5]]
    assert _joined([_summed(*[coded(["a"])] * 3, np.zeros(1))], 1).empty


PARTS = st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), st.sampled_from(["1", "2", "10"]), st.integers(-2, 2))


@given(st.lists(PARTS, min_size=1, max_size=30), st.sets(st.sampled_from(["1", "2", "10"])))
def test_sums_of_parts_agree_with_a_loop(parts, first):
    sums = {}
    for item, note, qid, value in parts:
        if value:
            of = sums.setdefault((item, note), {})
            of[qid] = of.get(qid, 0) + value
    expected = [
        [item, note, min(of, key=lambda qid: (-abs(of[qid]), qid)), len(of), float(sum(of.values()))]
        for (item, note), of in sorted(sums.items())
    ]
    tables = []
    for own in ([part for part in parts if part[2] in first], [part for part in parts if part[2] not in first]):
        if own:
            items, notes, qids, values = zip(*own)
            tables.append(_summed(coded(items), coded(notes), coded(qids), np.array(values, dtype=float)))
    assert _joined(tables, 1).values.tolist() == expected


@pytest.mark.parametrize(("n", "cutoff"), [(1, 1), (4, 2), (3, 3), (2, 10)])
def test_weights_of_ranks_less_those_of_a_random_order(n, cutoff):
    """ARaB@t is the mean over t' = 1..t of the mean lean of the first t' ranks."""
    t = min(cutoff, n)
    expected = [sum(1 / k for k in range(i, t + 1)) / t - 1 / n for i in range(1, n + 1)]
    np.testing.assert_allclose(order_weights(n, cutoff), expected, atol=1e-15)
