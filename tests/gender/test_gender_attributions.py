"""The parts of documents and words, by hand."""

import numpy as np
import pytest

from pyterrier_debias.gender.formulas.attributions import _summed, order_weights


def test_parts_are_summed_by_item_and_those_of_0_are_left_out():
    items, qids = ["a", "b", "a", "a", "c"], ["1", "1", "1", "2", "2"]
    found = _summed(items, qids, np.array([0.5, 1.0, -0.25, -1.0, 0.0]), ["x", "y", "x", "x", "z"])
    assert found.values.tolist() == [["a", "x", "2", 2, -0.75], ["b", "y", "1", 1, 1.0]]


@pytest.mark.parametrize(("n", "cutoff"), [(1, 1), (4, 2), (3, 3), (2, 10)])
def test_weights_of_ranks_less_those_of_a_random_order(n, cutoff):
    """ARaB@t is the mean over t' = 1..t of the mean lean of the first t' ranks."""
    t = min(cutoff, n)
    expected = [sum(1 / k for k in range(i, t + 1)) / t - 1 / n for i in range(1, n + 1)]
    np.testing.assert_allclose(order_weights(n, cutoff), expected, atol=1e-15)
