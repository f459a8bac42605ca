"""The position sensitivity index against enumeration and simulation; placement against its definition."""

import itertools
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError
from pyterrier_debias.core.scripts import sentences
from pyterrier_debias.position.formulas import psi

RNG = np.random.default_rng(11)


def test_published_figures():
    # Zeng et al. 2025 define 1 - min / max over buckets.
    assert psi.position_sensitivity([0.8, 0.6, 0.7]) == pytest.approx(0.25)
    assert psi.position_sensitivity([0.3, 0.3]) == 0
    assert psi.position_sensitivity([0.3, 0.0]) == 1
    assert np.isnan(psi.position_sensitivity([0.0, 0.0]))
    assert psi.position_sensitivity([[1.0, 0.5], [0.2, 0.2]]).tolist() == [0.5, 0.0]


@pytest.mark.parametrize("shape", [(3, 2), (700,), (2500, 3)])
def test_many_queries_are_drawn_a_few_times_at_once_with_the_same_draws(shape):
    values = np.random.default_rng(1).random(shape)
    n, sizes = len(values), []

    class Recorded:
        generator = np.random.default_rng(2)

        def multinomial(self, *arguments, size):
            sizes.append(size)
            return self.generator.multinomial(*arguments, size=size)

    found = psi._bootstrap_means(values, 3000, Recorded())
    drawn = np.random.default_rng(2).multinomial(n, np.full(n, 1 / n), size=3000)
    np.testing.assert_allclose(found, drawn @ values / n, rtol=1e-14)
    assert max(sizes) * n <= 4_000_000 and sum(sizes) == 3000


def test_null_of_buckets_is_enumeration():
    values, buckets = np.array([0.9, 0.1, 0.5, 0.7, 0.3, 0.2]), np.array([0, 0, 0, 1, 1, 1])
    observed = psi.position_sensitivity([values[:3].mean(), values[3:].mean()])
    null = [
        psi.position_sensitivity([values[list(first)].mean(), np.delete(values, first).mean()])
        for first in itertools.combinations(range(6), 3)
    ]
    index = psi.bucketed(values, buckets, resamples=20_000, seed=1)
    assert index.value == pytest.approx(observed)
    assert index.noise_floor == pytest.approx(np.mean(null), abs=0.01)
    assert index.p == pytest.approx(np.mean(np.array(null) >= observed - 1e-12), abs=0.02)


def test_null_of_placements_is_enumeration():
    values = RNG.random((4, 3))
    observed = psi.position_sensitivity(values.mean(axis=0))
    orders = [list(order) for order in itertools.permutations(range(3))]
    null = [
        psi.position_sensitivity(np.mean([row[order] for row, order in zip(values, chosen)], axis=0))
        for chosen in itertools.product(orders, repeat=4)
    ]
    index = psi.placed(values, resamples=20_000, seed=1)
    assert index.value == pytest.approx(observed)
    assert index.noise_floor == pytest.approx(np.mean(null), abs=0.01)
    assert index.p == pytest.approx(np.mean(np.array(null) >= observed - 1e-12), abs=0.02)


def test_null_of_a_blind_ranker_is_enumeration():
    values, rotated = RNG.random(4), RNG.random((4, 2))
    buckets = np.array([0, 0, 1, 1])
    arms = np.column_stack([values, rotated])
    observed = psi.position_sensitivity([values[:2].mean(), values[2:].mean()])
    null = []
    for chosen in itertools.product(range(3), repeat=4):
        exchanged = arms[np.arange(4), chosen]
        null.append(psi.position_sensitivity([exchanged[:2].mean(), exchanged[2:].mean()]))
    index = psi.bucketed(values, buckets, rotated, resamples=20_000, seed=1)
    assert index.blind_floor == pytest.approx(np.mean(null), abs=0.01)
    assert index.p_blind == pytest.approx(np.mean(np.array(null) >= observed - 1e-12), abs=0.02)
    assert np.isnan(psi.bucketed(values, buckets, resamples=100).p_blind)


def test_nulls_of_clusters_are_enumeration():
    """Queries 1 and 3 are about one passage: the same draw, or the same order of places, for both."""
    arms, buckets, of = RNG.random((4, 3)), np.array([0, 0, 1, 1]), np.array(["a", "b", "a", "c"])
    observed = psi.position_sensitivity([arms[:2, 0].mean(), arms[2:, 0].mean()])
    null = []
    for a, b, c in itertools.product(range(3), repeat=3):
        exchanged = arms[np.arange(4), [a, b, a, c]]
        null.append(psi.position_sensitivity([exchanged[:2].mean(), exchanged[2:].mean()]))
    index = psi.bucketed(arms[:, 0], buckets, arms[:, 1:], clusters=of, resamples=20_000, seed=1)
    assert index.blind_floor == pytest.approx(np.mean(null), abs=0.01)
    assert index.p_blind == pytest.approx(np.mean(np.array(null) >= observed - 1e-12), abs=0.02)
    orders, observed = [list(order) for order in itertools.permutations(range(3))], psi.position_sensitivity(arms.mean(axis=0))
    null = [
        psi.position_sensitivity(np.mean([row[order] for row, order in zip(arms, (a, b, a, c))], axis=0))
        for a, b, c in itertools.product(orders, repeat=3)
    ]
    index = psi.placed(arms, clusters=of, resamples=20_000, seed=1)
    assert index.noise_floor == pytest.approx(np.mean(null), abs=0.01)
    assert index.p == pytest.approx(np.mean(np.array(null) >= observed - 1e-12), abs=0.02)


def test_difficult_queries_in_one_bucket_are_no_sensitivity():
    alarms = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        difficulty = np.repeat([0.8, 0.5, 0.3], 15)
        # Queries of the last bucket are hard, and the ranker is blind to position: all its rankings of a query are alike.
        arms = (rng.random((45, 4)) < difficulty[:, None]).astype(float)
        index = psi.bucketed(arms[:, 0], np.repeat([0, 1, 2], 15), arms[:, 1:], resamples=199, seed=seed)
        alarms.append((index.p <= 0.05, index.p_blind <= 0.05))
    by_permutation, blind = np.mean(alarms, axis=0)
    assert by_permutation > 0.5
    assert blind <= 0.1


@pytest.mark.parametrize("means", [(0.5, 0.5, 0.5), (0.6, 0.5, 0.35), (0.9, 0.5, 0.1)])
def test_interval_covers(means):
    true, hits, rounds = psi.position_sensitivity(means), 0, 200
    for seed in range(rounds):
        rng = np.random.default_rng(seed)
        # Two-valued quality is as noisy as quality between 0 and 1 can be.
        values = np.concatenate([rng.random(30) < mean for mean in means]).astype(float)
        index = psi.bucketed(values, np.repeat([0, 1, 2], 30), resamples=300, seed=seed)
        assert 0 <= index.low <= index.value <= index.high <= 1
        hits += index.low <= true <= index.high
    assert hits / rounds >= 0.92


def test_small_buckets_have_a_noise_floor():
    values = RNG.random(24)
    floors = [psi.bucketed(values, np.arange(24) % k, resamples=2_000).noise_floor for k in (2, 4, 8)]
    assert 0.05 < floors[0] < floors[1] < floors[2]


def test_undefined_indices_are_nan():
    assert np.isnan(psi.bucketed(np.ones(4), np.zeros(4, dtype=int)).value)
    assert np.isnan(psi.bucketed(np.zeros(4), np.array([0, 0, 1, 1])).value)
    assert np.isnan(psi.placed(np.empty((0, 3))).value)
    vanishing = psi.placed(np.column_stack([np.ones(9), np.zeros(9)]), resamples=500)
    assert vanishing.value == vanishing.high == 1
    assert 0.5 < vanishing.low < 1


@pytest.mark.parametrize(("first", "counts"), [(42, [42, 18]), (34, [34, 33, 33]), (40, [40, 27, 33])])
def test_many_answers_at_the_start_have_a_bucket_of_their_own(first, counts):
    """A quantile at the smallest position would leave nothing below it: then there was one bucket only, and no PSI."""
    later = np.arange(1, sum(counts) - first + 1) if first != 42 else 1 + np.arange(18) % 5
    labels, edges = psi.bucket_of(np.concatenate([np.zeros(first), later]), 3)
    assert np.bincount(labels)[0] == first and edges[1] == 1
    assert len(np.bincount(labels)) == (2 if first == 42 and len(edges) == 3 else 3)
    assert np.abs(np.bincount(labels) - counts).max() <= 1 if first != 42 else np.bincount(labels).sum() == 60


def test_blocks_do_not_change_the_null(monkeypatch):
    values = RNG.random((7, 3))
    whole = psi.placed(values, resamples=100)
    monkeypatch.setattr(psi, "_blocks", lambda resamples, size: np.array_split(np.arange(resamples), 13))
    np.testing.assert_equal(asdict(psi.placed(values, resamples=100)), asdict(whole))  # undefined values are equal, too


@given(st.lists(st.integers(0, 10_000), min_size=8, max_size=60, unique=True), st.integers(2, 4))
def test_buckets_of_distinct_positions_are_equal_in_size(positions, k):
    labels, edges = psi.bucket_of(np.array(positions), k)
    counts = np.bincount(labels)
    assert len(counts) == k == len(edges) - 1
    assert counts.max() - counts.min() <= 2
    theirs = pd.qcut(np.array(positions), k, labels=False)
    assert np.abs(np.bincount(theirs) - counts).max() <= 1


@given(st.lists(st.floats(0, 1), max_size=40), st.one_of(st.integers(2, 6), st.just([0.0, 0.1, 0.5, 0.6, 0.9])))
def test_positions_lie_in_their_buckets(positions, buckets):
    positions = np.array(positions)
    labels, edges = psi.bucket_of(positions, buckets)
    for position, label in zip(positions, labels):
        if label < 0:
            assert not 0.0 <= position <= 0.9
        elif label == len(edges) - 2:
            assert edges[label] <= position <= edges[label + 1]
        else:
            assert edges[label] <= position < edges[label + 1]
    assert set(labels[labels >= 0]) == set(range(max(0, len(edges) - 1)))


@pytest.mark.parametrize("buckets", [1, [0, 1], [0, 2, 1], [0, 0, 1]])
def test_buckets_that_are_none(buckets):
    with pytest.raises(InputError, match="buckets="):
        psi.bucket_of(np.arange(5), buckets)


WORDS = st.lists(st.text("abcde", min_size=1, max_size=4), min_size=1, max_size=12)


@given(WORDS, st.data())
def test_placed_answers_are_whole_and_where_they_should_be(words, data):
    first = data.draw(st.integers(0, len(words) - 1))
    count = data.draw(st.integers(1, len(words) - first))
    marked = [f"<{word}>" if first <= i < first + count else word for i, word in enumerate(words)]
    text = " ".join(marked)
    start = len(" ".join([*marked[:first], ""])) if first else 0
    end = start + len(" ".join(marked[first : first + count]))
    for where, place in (("start", 0), ("middle", (len(words) - count) // 2), ("end", len(words) - count)):
        placed = psi.place(text, start, end, where, str.split).split()
        assert placed in [marked[i:] + marked[:i] for i in range(len(words))]
        assert placed[place : place + count] == marked[first : first + count]


def test_sentences_move_whole():
    text = "Tea is old. It came from China. Many drink it."
    start = text.index("China")
    assert psi.place(text, start, start + 5, "start", sentences) == "It came from China. Many drink it. Tea is old."
    assert psi.place(text, start, start + 5, "middle", sentences) == text
    assert psi.place(text, start, start + 5, "end", sentences) == "Many drink it. Tea is old. It came from China."


def test_an_answer_without_words_is_not_placed():
    assert psi.place("a  b", 1, 2, "start", str.split) is None


def test_without_a_position_inside_there_is_no_bucket():
    for positions, buckets in (([], 3), ([5.0], [10, 20, 30])):
        labels, edges = psi.bucket_of(np.array(positions), buckets)
        assert labels.tolist() == [-1] * len(positions) and len(edges) == 0
