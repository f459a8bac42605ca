"""Matching: exact against brute force, whatever the order of rows, and what it does with ties, zeros and thresholds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.formulas import matching
from pyterrier_debias.gender.formulas.matching import best_candidates, match, standardised_differences


def cosines(first, second):
    """By the definition, one pair at a time."""
    return np.array([[a @ b / np.sqrt((a @ a) * (b @ b)) for b in second] for a in first]).reshape(len(first), len(second))


def greedy_values(table):
    """The cosines of the most similar pair, of the most similar one without its rows, and so on."""
    table, found = table.copy(), []
    for _ in range(min(table.shape)):
        at = np.unravel_index(table.argmax(), table.shape)
        found.append(table[at])
        table[at[0]], table[:, at[1]] = -2, -2
    return np.array(found)


def random_profiles(n, columns, seed, spread=0.3):
    return np.random.default_rng(seed).dirichlet(np.full(columns, spread), n)


def test_worked_example():
    # f1 (1,0) against (1,1): 1/sqrt 2 = .707; against (3,1): 3/sqrt 10 = .949. f0 is (1,1) itself.
    found = match(np.array([[1.0, 1], [1, 0]]), np.array([[2.0, 2], [3, 1]]))
    assert list(zip(found.left, found.right)) == [(0, 0), (1, 1)]
    np.testing.assert_allclose(found.similarity, [1, 3 / np.sqrt(10)])


@pytest.mark.parametrize(("n", "m"), [(40, 60), (90, 30), (300, 700)])
def test_greedy_is_the_greedy_of_all_pairs(n, m, monkeypatch):
    first, second = random_profiles(n, 6, 1), random_profiles(m, 6, 2)
    expected = greedy_values(cosines(first, second))
    for kept in (1, 2, 32):  # short lists have to be made anew often
        monkeypatch.setattr(matching, "_KEPT", kept)
        found = match(first, second)
        assert len(set(found.left)) == len(set(found.right)) == len(found) == min(n, m)
        np.testing.assert_allclose(found.similarity, expected, atol=1e-8)
        np.testing.assert_allclose(found.similarity, cosines(first, second)[found.left, found.right], atol=1e-8)


@settings(max_examples=60)
@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.just(3)), elements=st.integers(0, 2)),
    hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.just(3)), elements=st.integers(0, 2)),
)
def test_greedy_never_leaves_a_better_pair(first, second):
    """With ties there are many greedy matchings. In each, no pair of rows is more similar than the pairs of both its rows."""
    found = match(first, second)
    live, other = np.flatnonzero(first.any(axis=1)), np.flatnonzero(second.any(axis=1))
    assert found.dropped == (len(first) - len(live), len(second) - len(other))
    assert len(found) == min(len(live), len(other))
    left = dict(zip(found.left.tolist(), found.similarity))
    right = dict(zip(found.right.tolist(), found.similarity))
    assert set(left) <= set(live.tolist()) and set(right) <= set(other.tolist())
    for i, j in itertools.product(live.tolist(), other.tolist()):
        pair = first[i] @ second[j] / np.sqrt((first[i] @ first[i]) * (second[j] @ second[j]))
        assert pair <= max(left.get(i, -1), right.get(j, -1)) + 1e-8


OPTIONS = [{}, {"method": "optimal"}, {"replacement": True, "direction": "both"}, {"min_similarity": 0.9}]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_order_of_rows_and_equal_profiles_do_not_matter(options):
    generator = np.random.default_rng(5)
    first, second = generator.integers(0, 3, (60, 3)), generator.integers(0, 3, (50, 3))
    one, other = [f"d{i}" for i in range(60)], [f"e{i}" for i in range(50)]

    def pairs(by_first, by_second):
        found = match(
            first[by_first],
            second[by_second],
            first_ids=[one[i] for i in by_first],
            second_ids=[other[i] for i in by_second],
            **options,
        )
        return [(one[by_first[i]], other[by_second[j]], s) for i, j, s in zip(found.left, found.right, found.similarity)]

    straight = pairs(np.arange(60), np.arange(50))
    assert straight == pairs(generator.permutation(60), generator.permutation(50))
    assert straight == pairs(np.arange(60)[::-1], np.arange(50)[::-1])


def test_scale_does_not_matter():
    first, second = random_profiles(30, 5, 3), random_profiles(30, 5, 4)
    found, scaled = match(first, second), match(first * 1e-200, second * 1e150)
    assert found.left.tolist() == scaled.left.tolist() and found.right.tolist() == scaled.right.tolist()


def test_optimal_is_the_best_of_all_permutations():
    first, second = random_profiles(5, 3, 6), random_profiles(6, 3, 7)
    table = cosines(first, second)
    best = max(sum(table[i, p] for i, p in enumerate(places)) for places in itertools.permutations(range(6), 5))
    found = match(first, second, method="optimal")
    assert found.similarity.sum() == pytest.approx(best, abs=1e-7)
    assert best >= match(first, second).similarity.sum() - 1e-7


def test_optimal_within_a_threshold_is_the_best_of_all_that_reach_it():
    first, second = random_profiles(4, 3, 8), random_profiles(4, 3, 9)
    table, least = cosines(first, second), 0.8
    allowed = np.where(table >= least, table, 0)
    best = max(sum(allowed[i, p] for i, p in enumerate(places)) for places in itertools.permutations(range(4)))
    found = match(first, second, method="optimal", min_similarity=least)
    assert found.similarity.sum() == pytest.approx(best, abs=1e-7)
    assert (found.similarity >= least).all() and found.below == 4 - len(found)


def test_nearest_with_replacement():
    first, second = random_profiles(200, 4, 10), random_profiles(150, 4, 11)
    table = cosines(first, second)
    there = match(first, second, replacement=True)
    back = match(first, second, replacement=True, direction="m2f")
    both = match(first, second, replacement=True, direction="both")
    assert sorted(zip(there.left, there.right)) == list(enumerate(table.argmax(axis=1)))
    assert sorted((j, i) for i, j in zip(back.left, back.right)) == list(enumerate(table.argmax(axis=0)))
    union = {*zip(there.left, there.right), *zip(back.left, back.right)}
    assert set(zip(both.left, both.right)) == union and len(both) == len(union)
    least = float(np.median(there.similarity))
    for direction, whole in (("f2m", 200), ("m2f", 150), ("both", len(union))):
        above = match(first, second, replacement=True, direction=direction, min_similarity=least)
        assert (above.similarity >= least).all() and 0 < len(above) < whole and len(above) + above.below == whole


def test_candidates_among_ties_everywhere():
    """1,000 columns of the same cosine: the first ones are meant, and the lists are as long as was asked for."""
    angle = np.linspace(0, 2 * np.pi, 1000, endpoint=False)
    columns = np.stack([np.full(1000, 0.6), 0.8 * np.cos(angle), 0.8 * np.sin(angle)], axis=1)
    found = best_candidates(np.array([[1.0, 0.0, 0.0]]), columns, kept=5)
    assert found.columns[0].tolist() == [0, 1, 2, 3, 4] and found.lengths[0] == 5
    assert found.bounds[0] == pytest.approx(0.6)
    rows = np.eye(3)[np.arange(600) % 3]  # several blocks, in threads
    again = best_candidates(rows, columns, kept=5)
    assert (again.columns[::3] == [0, 1, 2, 3, 4]).all()


def test_a_side_without_profiles_has_no_pairs():
    for first, second in ((np.zeros((2, 3)), np.ones((2, 3))), (np.ones((0, 3)), np.ones((2, 3)))):
        for options in ({}, {"method": "optimal"}, {"replacement": True}):
            assert len(match(first, second, **options)) == 0
    assert len(match(np.ones((2, 3)), np.ones((3, 3)), min_similarity=1.5)) == 0


def test_what_cannot_be_matched():
    ones = np.ones((2, 3))
    for options, words in (
        ({"method": "best"}, "method='best'"),
        ({"direction": "f"}, "direction='f'"),
        ({"min_similarity": float("nan")}, "min_similarity"),
        ({"first_ids": ["a"]}, "first_ids has 1"),
    ):
        with pytest.raises(InputError, match=words):
            match(ones, ones, **options)
    with pytest.raises(InputError, match="row 1 of the second group"):
        match(ones, np.array([[1.0, 1, 1], [np.nan, 1, 1]]))
    with pytest.raises(InputError, match="the profiles of the second group holds complex numbers"):
        match(np.ones((1, 2)), np.full((1, 2), 1j))
    with pytest.raises(InputError, match="standardised_differences: a profile holds complex numbers"):
        standardised_differences(np.ones((2, 1)), np.full((2, 1), 1j))
    with pytest.raises(InputError, match="3 and 2 categories"):
        match(ones, np.ones((2, 2)))
    with pytest.raises(InputError, match="use 'greedy'"):
        match(np.ones((10_001, 1)), np.ones((1, 1)), method="optimal")


def test_standardised_differences():
    # Means 2 and 1; variances 2 and 2: 1 / sqrt 2. After: means 3 and 2, the same unit.
    first, second = np.array([[1.0, 5], [3, 5]]), np.array([[0.0, 5], [2, 5]])
    assert standardised_differences(first, second).tolist() == pytest.approx([1 / np.sqrt(2), 0])
    after = standardised_differences(first, second, first[1:], second[1:])
    assert after.tolist() == pytest.approx([1 / np.sqrt(2), 0])
    assert np.isnan(standardised_differences(np.array([[1.0], [1.0]]), np.array([[2.0], [2.0]]))).all()
    assert np.isnan(standardised_differences(first, second, first[:0], second[:0])).all()
    assert standardised_differences(first, second, first[1:], second[1:] + 1)[0] == pytest.approx(0)


def test_matching_balances_profiles():
    """Two groups that differ in one category by a standard deviation and more; matched ones hardly do."""
    generator = np.random.default_rng(0)
    first, second = generator.gamma(2.0, 1.0, (300, 4)), generator.gamma(2.0, 1.0, (1500, 4))
    first[:, 0] *= 2
    found = match(first, second)
    before = standardised_differences(first, second)
    u, v = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (first, second))
    after = standardised_differences(u, v, u[found.left], v[found.right])
    assert abs(before[0]) > 0.8 and np.abs(after).max() < 0.2


def test_an_optimal_matching_leaves_profiles_alone_rather_than_lose_by_them():
    one = np.array([[2, 0, -1], [1, 0, -1], [0, 1, 2], [2, 1, 0]], float)
    other = np.array([[0, 0, 2], [-1, 1, 0], [-1, -1, 2], [-1, 0, 1]], float)
    cosines = one @ other.T / np.linalg.norm(one, axis=1)[:, None] / np.linalg.norm(other, axis=1)
    best = max(sum(max(cosines[i, j], 0) for i, j in enumerate(order)) for order in itertools.permutations(range(4)))
    found = match(one, other, method="optimal", min_similarity=0.0)
    assert found.similarity.sum() == pytest.approx(best, abs=1e-6)
