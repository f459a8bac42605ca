"""Statistics against scipy, closed forms and enumeration."""

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests

from pyterrier_debias import InputError
from pyterrier_debias.core import statistics as ours

RNG = np.random.default_rng(7)
BEFORE = RNG.random(40)
AFTER = BEFORE + RNG.normal(0.03, 0.1, 40)
#: Nine decimals: what is below 1e-12 counts as rounding, so that a peer would have to know that.
values = st.lists(st.floats(-1, 1).map(lambda x: round(x, 9)), min_size=2, max_size=8)


def test_paired_t_is_scipys():
    theirs = stats.ttest_rel(AFTER, BEFORE)
    result = ours.paired_t(BEFORE, AFTER)
    assert (result.statistic, result.p, result.n) == (pytest.approx(theirs.statistic), pytest.approx(theirs.pvalue), 40)


def test_wilcoxon_is_scipys():
    theirs = stats.wilcoxon(AFTER, BEFORE)
    assert ours.wilcoxon(BEFORE, AFTER).p == pytest.approx(theirs.pvalue)


@pytest.mark.parametrize("test", [ours.paired_t, ours.wilcoxon, ours.randomisation_test])
def test_no_difference_is_no_evidence(test):
    assert test(BEFORE, BEFORE).p == 1.0


@pytest.mark.parametrize("test", [ours.paired_t, ours.wilcoxon, ours.randomisation_test])
def test_a_difference_by_rounding_is_none(test):
    before, after = np.full(8, 0.3), np.full(8, 0.1) + 0.2
    assert (before != after).all() and test(before, after).p == 1.0
    noise = np.array([0, 1e-17, -2e-17, 0, 3e-17, 1e-17, 0, 0, 1e-17, -1e-17])
    for values in (noise, np.column_stack([0.3 + noise, np.full(10, 0.1) + 0.2])):
        found = ours.inverted_interval(values, least=-0.5, most=0.5)
        assert (found.estimate, found.low, found.high) == (0, 0, 0)


def test_a_constant_difference_is_certain_for_t():
    assert ours.paired_t(np.zeros(5), np.ones(5)).p == 0.0


@pytest.mark.parametrize("test", [ours.paired_t, ours.randomisation_test])
def test_direction_is_after_minus_before(test):
    assert test(np.array([0.0, 0.1, 0.2]), np.array([1.0, 1.2, 1.4])).statistic > 0


@given(values)
def test_exact_randomisation_is_enumeration(d):
    d = np.array(d)
    sums = [abs(np.dot(signs, d)) for signs in itertools.product([1, -1], repeat=len(d))]
    expected = np.mean([s >= abs(d.sum()) - 1e-12 * max(1, np.abs(d).sum()) for s in sums])
    assert ours.randomisation_test(np.zeros(len(d)), d).p == pytest.approx(expected)


def test_a_difference_that_is_due_to_rounding_is_none():
    assert ours.randomisation_test(np.zeros(2), np.array([1.0, 1e-12])).p == 1.0
    assert ours.randomisation_test(np.zeros(2), np.array([1.0, 1e-9])).p == 0.5


def test_sampled_randomisation_is_near_scipys_permutation_test():
    sampled = ours.randomisation_test(BEFORE, AFTER, resamples=20_000, seed=1)
    theirs = stats.permutation_test(
        (AFTER - BEFORE,), np.mean, permutation_type="samples", n_resamples=20_000, rng=np.random.default_rng(2)
    )
    assert sampled.p == pytest.approx(theirs.pvalue, abs=0.015)
    assert sampled == ours.randomisation_test(BEFORE, AFTER, resamples=20_000, seed=1)


def test_randomisation_does_not_depend_on_the_block():
    one = ours.randomisation_test(BEFORE, AFTER, resamples=5_000, block=5_000)
    assert 0 < one.p < 1
    assert ours.randomisation_test(BEFORE, AFTER, resamples=5_000, block=999).p == pytest.approx(one.p, abs=0.02)


def test_t_interval_is_scipys():
    d = AFTER - BEFORE
    low, high = stats.t.interval(0.9, len(d) - 1, d.mean(), stats.sem(d))
    interval = ours.t_interval(d, level=0.9)
    assert (interval.low, interval.high) == (pytest.approx(low), pytest.approx(high))


def _agrees(values, mu):
    """The p of the test at one mean, by enumeration: the mean is taken from the measurements behind the first."""
    shifted = np.column_stack([values[:, :1], values[:, 1:] - mu])
    n, m = shifted.shape
    choices = np.array(list(itertools.product(range(m), repeat=n)))  # the first of them is the sample itself
    first = shifted[np.arange(n), choices]
    sums = np.abs(((shifted.sum(axis=1) - first) / (m - 1) - first).sum(axis=1))
    return np.mean(sums >= sums[0] - 1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("n", "m", "unchanged"), [(7, 2, 0), (9, 2, 2), (5, 3, 0), (5, 3, 1)])
def test_inverted_interval_ends_where_enumeration_begins_to_reject(seed, n, m, unchanged):
    table = np.random.default_rng(seed).normal(0.3, 1, (n, m)).round(2)
    table[:unchanged] = table[:unchanged, :1]
    found = ours.inverted_interval(table[:, 1] - table[:, 0] if m == 2 else table, resamples=1000)
    lows, highs = [], []
    for own, share in ((table, 1.0), (table[unchanged:], (n - unchanged) / n)):  # all are moved, or those that change
        step = 1e-6
        accepted = [mu for mu in np.linspace(-4, 4, 161) if _agrees(own, mu) > 0.05]
        low, high = accepted[0] - 0.05, accepted[-1] + 0.05
        for _ in range(16):  # halving from the outer side
            middle = (low + accepted[0]) / 2
            low, accepted[0] = (low, middle) if _agrees(own, middle) > 0.05 else (middle, accepted[0])
            middle = (high + accepted[-1]) / 2
            high, accepted[-1] = (high, middle) if _agrees(own, middle) > 0.05 else (middle, accepted[-1])
        assert _agrees(own, low - 5 * step) <= 0.05 and _agrees(own, high + 5 * step) <= 0.05
        lows.append(share * low)
        highs.append(share * high)
    assert (found.low, found.high) == (pytest.approx(min(lows), abs=1e-5), pytest.approx(max(highs), abs=1e-5))


@given(
    st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.1, -0.1, 0.25, 0.7, -0.3]), min_size=2, max_size=30),
    st.integers(0, 3),
    st.sampled_from([0.8, 0.95]),
)
def test_inverted_interval_holds_0_where_the_test_does_not_reject(d, seed, level):
    d = np.array(d)
    found = ours.inverted_interval(d, resamples=500, seed=seed, level=level, least=-1, most=1)
    p = ours.randomisation_test(np.zeros(len(d)), d, resamples=500, seed=seed).p
    assert (found.low <= 0 <= found.high) == (p > 1 - level + 1e-9)
    table = np.column_stack([np.zeros(len(d)), d, np.roll(d, 1)])
    found = ours.inverted_interval(table, resamples=500, seed=seed, level=level, least=-1, most=1)
    p = ours.exchange_test(table, resamples=500, seed=seed).p
    assert (found.low <= 0 <= found.high) == (p > 1 - level + 1e-9)


def test_tests_and_intervals_of_several_measures_share_their_draws(monkeypatch):
    table = np.random.default_rng(4).random((30, 4)).round(1)
    calls = [lambda: ours.exchange_test(table), lambda: ours.inverted_interval(table), lambda: ours.exchange_test(1 - table**2)]
    ours._kept_draws.cache_clear()
    shared = [call() for call in calls]
    assert ours._kept_draws.cache_info().misses == 1 and ours._kept_draws.cache_info().hits == 2
    monkeypatch.setattr(ours, "_KEPT", 0)  # too many to be kept
    assert [call() for call in calls] == shared and ours._kept_draws.cache_info().hits == 2


def test_inverted_interval_without_ties_is_near_students():
    d = np.random.default_rng(0).normal(0.2, 1, 400)
    found, t = ours.inverted_interval(d), ours.t_interval(d)
    assert (found.low, found.high) == (pytest.approx(t.low, abs=0.01), pytest.approx(t.high, abs=0.01))


def test_inverted_interval_of_few_changed_units_is_that_of_the_range():
    d = np.array([0.2, 0.1, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    found = ours.inverted_interval(d, least=-1, most=1)
    assert (found.low, found.high) == (pytest.approx(-0.3), pytest.approx(0.3))
    unlimited = ours.inverted_interval(d)
    assert math.isnan(unlimited.low) and math.isnan(unlimited.high) and unlimited.estimate == pytest.approx(0.07)
    nothing = ours.inverted_interval(np.zeros(9))
    assert (nothing.low, nothing.high) == (0.0, 0.0)
    assert math.isnan(ours.inverted_interval(np.array([0.3]), least=-1, most=1).low)
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(InputError, match="NaN or infinity"):
            ours.inverted_interval(np.array([0.3, wrong]))
    with pytest.raises(InputError, match="level between 0 and 1"):
        ours.inverted_interval(d, level=1)


@pytest.mark.parametrize("changed", [4, 10])
def test_where_few_units_change_the_bootstrap_leaves_out_0_too_often_and_the_inverted_test_does_not(changed):
    generator = np.random.default_rng(changed)
    sizes = generator.exponential(0.2, changed).clip(0, 1)
    missed = np.zeros(2)
    for draw in range(200):
        d = np.zeros(60)
        d[:changed] = sizes * generator.choice([-1, 1], changed)
        boot = ours.bootstrap_interval(d, resamples=499, seed=draw)
        inverted = ours.inverted_interval(d, resamples=499, seed=draw, least=-1, most=1)
        missed += [not boot.low <= 0 <= boot.high, not inverted.low <= 0 <= inverted.high]
    assert missed[0] / 200 > 0.1 and stats.binomtest(int(missed[1]), 200, 0.05, "greater").pvalue > 0.01


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_bootstrap_of_a_mean_is_near_students_interval(method):
    d = np.random.default_rng(0).normal(0.2, 1, 400)
    boot, t = ours.bootstrap_interval(d, method=method), ours.t_interval(d)
    assert boot.estimate == pytest.approx(d.mean())
    assert (boot.low, boot.high) == (pytest.approx(t.low, abs=0.01), pytest.approx(t.high, abs=0.01))
    assert boot == ours.bootstrap_interval(d, method=method)


@pytest.mark.parametrize("n", [6, 12, 60])
def test_bootstrap_of_a_symmetric_sample_is_as_wide_as_students(n):
    """A plain bootstrap is sqrt((n - 1) / n) z / t times as wide: .68 of Student's at 6 units, .93 at 20."""
    d = stats.norm.ppf((np.arange(n) + 0.5) / n)
    for method in ("bca", "percentile"):
        boot, t = ours.bootstrap_interval(d, method=method, resamples=29_999), ours.t_interval(d)
        assert boot.high - boot.low == pytest.approx(t.high - t.low, rel=0.08)


def test_bootstrap_of_a_few_units_covers():
    generator = np.random.default_rng(5)
    samples = generator.normal(1, 1, (1_000, 10))
    found = [ours.bootstrap_interval(d, resamples=999, seed=seed) for seed, d in enumerate(samples)]
    share = ours.binomial_interval(sum(interval.low <= 1 <= interval.high for interval in found), len(found))
    assert share.low <= 0.95 <= share.high


def test_bootstrap_of_two_units_spans_them():
    interval = ours.bootstrap_interval(np.array([0.0, 1.0]))
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_bootstrap_of_a_ratio_draws_rows():
    pairs = np.column_stack([AFTER, BEFORE])
    ratio = ours.bootstrap_interval(pairs, lambda a, b, axis: a.mean(axis) / b.mean(axis), resamples=999)
    assert ratio.low < AFTER.mean() / BEFORE.mean() == pytest.approx(ratio.estimate)
    assert ratio.high - ratio.low < 0.3  # unpaired rows would spread several times as wide


def test_bootstrap_of_a_ratio_that_may_be_infinite():
    def ratio(above, below, axis=0):
        with np.errstate(divide="ignore"):
            return above.mean(axis=axis) / below.mean(axis=axis)

    rows = np.array([[1.0, 0], [2, 0], [1, 0], [3, 0], [1, 0], [3, 0], [2, 0], [4, 1]])
    found = ours.bootstrap_interval(rows, ratio, method="percentile", seed=1)
    assert (found.estimate, found.high) == (17, math.inf) and 1 < found.low < 17


def test_bootstrap_covers():
    generator = np.random.default_rng(3)
    hits = 0
    for seed in range(200):
        interval = ours.bootstrap_interval(generator.normal(1, 1, 60), resamples=499, seed=seed)
        hits += interval.low <= 1 <= interval.high
    assert ours.binomial_interval(hits, 200).low <= 0.95 <= ours.binomial_interval(hits, 200).high


def test_bootstrap_of_one_value_repeated_is_that_value():
    interval = ours.bootstrap_interval(np.full(9, 0.25))
    assert (interval.low, interval.estimate, interval.high) == (0.25, 0.25, 0.25)


def test_bootstrap_of_one_unit_has_no_interval():
    interval = ours.bootstrap_interval(np.array([0.3]))
    assert interval.estimate == 0.3
    assert math.isnan(interval.low)


def test_equivalence_is_two_one_sided_t_tests():
    d = AFTER - BEFORE
    low = stats.ttest_1samp(d, -0.1, alternative="greater").pvalue
    high = stats.ttest_1samp(d, 0.1, alternative="less").pvalue
    assert ours.equivalence_test(BEFORE, AFTER, 0.1).p == pytest.approx(max(low, high))
    assert ours.equivalence_test(BEFORE, BEFORE, 0.1).p == 0.0
    assert ours.equivalence_test(BEFORE, BEFORE + 0.2, 0.1).p > 0.99


@pytest.mark.parametrize("sign", [1, -1])
def test_the_statistic_of_equivalence_is_that_of_the_less_convincing_side(sign):
    """scipy's t against the limit that the mean is nearer to: positive towards the lower one, negative towards the upper."""
    d = sign * np.array([0.02, 0.05, 0.01, 0.07, 0.03, 0.06])
    found = ours.equivalence_test(np.zeros(6), d, 0.1)
    side = stats.ttest_1samp(d, sign * 0.1, alternative="less" if sign > 0 else "greater")
    assert (found.statistic, found.p) == pytest.approx((side.statistic, side.pvalue))
    assert np.sign(found.statistic) == -sign and found.n == 6


@pytest.mark.parametrize("difference", [0.05, -0.05, 0.2, -0.2, 0.1, -0.1])
def test_equivalence_of_constant_differences(difference):
    """No spread: inside the margin it is certain, on its border and outside it certainly is not."""
    inside = difference in (0.05, -0.05)
    found = ours.equivalence_test(np.zeros(4), np.full(4, difference), 0.1)
    assert (found.statistic, found.p) == ((np.inf, 0.0) if inside else (-np.inf, 1.0))


def test_equivalence_of_one_unit_is_not_known():
    found = ours.equivalence_test([0.5], [0.5], 0.1)
    assert math.isnan(found.p) and math.isnan(found.statistic) and found.n == 1


def test_corrections_by_hand():
    p = [0.01, 0.04, np.nan, 0.03]
    np.testing.assert_allclose(ours.correct(p, "bonferroni"), [0.03, 0.12, np.nan, 0.09])
    np.testing.assert_allclose(ours.correct(p, "holm"), [0.03, 0.06, np.nan, 0.06])
    np.testing.assert_allclose(ours.correct(p, "fdr_bh"), [0.03, 0.04, np.nan, 0.04])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.sampled_from(["holm", "bonferroni", "fdr_bh"]))
def test_corrected_p_are_no_smaller_and_keep_the_order(p, method):
    p = np.array(p)
    corrected = ours.correct(p, method)
    np.testing.assert_allclose(corrected, multipletests(p, method=method)[1], rtol=1e-12, atol=1e-300)
    assert (corrected >= p - 1e-12).all()
    assert (corrected <= 1).all()
    assert (np.diff(corrected[np.argsort(p, kind="stable")]) >= -1e-12).all()


def test_nothing_tested_stays_nothing():
    assert np.isnan(ours.correct([np.nan, np.nan])).all()


@pytest.mark.parametrize("n", [4001, 5003])
def test_many_units_are_drawn_a_few_at_a_time_with_the_same_p(n, monkeypatch):
    """The draws are those of one large table, which would not fit into memory for a million units."""
    values = np.random.default_rng(n).normal(0.02, 1, size=(n, 3))
    before, after = values[:, 0], values[:, 1]
    d = after - before
    flipped = np.abs(d.sum() - 2 * (np.random.default_rng(5).integers(0, 2, size=(1200, n), dtype=np.int8) @ d))
    expected = (1 + int((flipped >= abs(d.sum()) - 1e-9).sum())) / 1201
    first = values.sum(axis=1, keepdims=True) / 2 - 1.5 * values
    exchanged = np.abs(first[np.arange(n), np.random.default_rng(5).integers(0, 3, size=(1200, n))].sum(axis=1))
    expected_exchange = (1 + int((exchanged >= abs(first[:, 0].sum()) - 1e-9).sum())) / 1201
    sizes = []
    original = np.random.Generator.integers
    monkeypatch.setattr(np.random, "default_rng", lambda seed: Recorded(original, seed, sizes))
    assert ours.randomisation_test(before, after, resamples=1200, seed=5).p == expected
    assert ours.exchange_test(values, resamples=1200, seed=5).p == expected_exchange
    assert max(rows * units for rows, units in sizes) <= 4_000_000


class Recorded:
    """A generator that notes how much is drawn at a time."""

    def __init__(self, integers, seed, sizes):
        self.generator, self.draw, self.sizes = np.random.Generator(np.random.PCG64(seed)), integers, sizes

    def integers(self, low, high, *, size, dtype=np.int64):
        self.sizes.append(size)
        return self.draw(self.generator, low, high, size=size, dtype=dtype)


@pytest.mark.parametrize("seed", range(3))
def test_the_closed_jackknife_of_a_mean_is_scipys(seed):
    values = np.random.default_rng(seed).exponential(size=200) ** 2
    options = {"confidence_level": ours._expanded(0.95, 200), "rng": np.random.default_rng(seed), "batch": 20_000}
    result = stats.bootstrap((np.sort(values),), np.mean, n_resamples=999, **options)
    found = ours.bootstrap_interval(values, resamples=999, seed=seed)
    assert (found.low, found.high) == pytest.approx(tuple(result.confidence_interval), rel=1e-12)
    assert found.estimate == values.mean() and found.n == 200
    # It is not the percentile interval.
    percentile = ours.bootstrap_interval(values, method="percentile", resamples=999, seed=seed)
    assert found.low != pytest.approx(percentile.low, rel=1e-3)


def test_a_mean_takes_no_jackknife_of_the_square_of_its_size(monkeypatch):
    monkeypatch.setattr("scipy.stats._resampling._bca_interval", lambda *_, **__: pytest.fail("the jackknife of scipy"))
    values = np.random.default_rng(0).random(20_001)
    found = ours.bootstrap_interval(values, resamples=99)
    assert found.low < values.mean() < found.high and found.high - found.low < 0.03


def test_bootstrap_of_what_hardly_varies():
    pairs = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    found = ours.bootstrap_interval(pairs, lambda a, b, axis: b.mean(axis=axis) / a.mean(axis=axis), resamples=99)
    assert (found.estimate, found.low, found.high) == (2.0, 2.0, 2.0)
    tiny = ours.bootstrap_interval(np.array([1e-300, 0.0]), resamples=99)
    assert 0.0 <= tiny.low <= tiny.estimate <= tiny.high <= 1e-300


def test_p_from_null_refuses_unknown_sides():
    with pytest.raises(InputError, match="alternative='lesss' is not known"):
        ours.p_from_null(1.0, np.arange(3.0), alternative="lesss")


def test_p_from_null_counts():
    null = np.array([1.0, 2.0, 3.0])
    assert ours.p_from_null(3, null) == pytest.approx(2 / 4)
    assert ours.p_from_null(1, null, alternative="less") == pytest.approx(2 / 4)
    assert ours.p_from_null(4, null, alternative="two-sided") == pytest.approx(1 / 4)


@pytest.mark.parametrize("alternative", ["greater", "less", "two-sided"])
def test_what_is_not_defined_is_no_evidence(alternative):
    assert np.isnan(ours.p_from_null(np.nan, np.arange(9.0), alternative=alternative))
    # A draw without a value might have been as extreme as any: (1 + 1 + those that are) / (1 + 4).
    null = np.array([1.0, np.nan, 2.0, 3.0])
    observed, extreme = {"greater": (3, 1), "less": (1, 1), "two-sided": (4, 0)}[alternative]
    assert ours.p_from_null(observed, null, alternative=alternative) == pytest.approx((2 + extreme) / 5)
    assert ours.p_from_null(0.0, np.full(3, np.nan), alternative=alternative) == 1.0


def test_binomial_interval_of_none_is_the_rule_of_three():
    interval = ours.binomial_interval(0, 100, level=0.95)
    assert interval.low == 0
    assert interval.high == pytest.approx(1 - 0.025 ** (1 / 100))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ours.paired_t([1, 2], [1]), "equal length"),
        (lambda: ours.paired_t([1, np.nan], [1, 2]), "NaN"),
        (lambda: ours.bootstrap_interval([1, np.nan]), "NaN"),
        (lambda: ours.bootstrap_interval([1, 2], method="x"), "'bca', 'percentile'"),
        (lambda: ours.correct([0.5], "x"), "'holm'"),
        (lambda: ours.correct([1.5]), r"\[0, 1\]"),
        (lambda: ours.equivalence_test([1, 2], [1, 3], 0), "positive"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(InputError, match=message):
        call()


@given(st.lists(st.tuples(*[st.floats(-1, 1, allow_subnormal=False)] * 3), min_size=1, max_size=6))
def test_exact_exchange_is_enumeration(rows):
    table = np.array(rows)
    n, m = table.shape

    def total(firsts):
        return sum(np.delete(row, first).mean() - row[first] for row, first in zip(table, firsts))

    observed = abs(total([0] * n))
    sums = [abs(total(firsts)) for firsts in itertools.product(range(m), repeat=n)]
    tolerance = 1e-9
    p = ours.exchange_test(table).p
    assert np.mean([s >= observed + tolerance for s in sums]) <= p <= np.mean([s >= observed - tolerance for s in sums])


def test_exchange_of_two_is_the_paired_randomisation_test():
    pairs = np.column_stack([BEFORE, AFTER])
    assert ours.exchange_test(pairs[:9]).p == pytest.approx(ours.randomisation_test(BEFORE[:9], AFTER[:9]).p)
    sampled = ours.exchange_test(pairs, resamples=20_000, seed=1)
    assert sampled.p == pytest.approx(ours.randomisation_test(BEFORE, AFTER, resamples=20_000).p, abs=0.015)
    assert sampled.statistic == pytest.approx((AFTER - BEFORE).mean())


def test_exchange_keeps_its_level_where_the_others_are_averaged():
    rng = np.random.default_rng(5)
    # Skewed measurements: the difference between one and the mean of four others is not symmetric around zero.
    p = [ours.exchange_test(rng.exponential(size=(12, 5)), resamples=400, seed=i).p for i in range(600)]
    interval = ours.binomial_interval(sum(value <= 0.05 for value in p), len(p))
    assert interval.low <= 0.05 <= interval.high


def test_exchange_rejects_what_it_cannot_test():
    assert math.isnan(ours.exchange_test(np.empty((0, 3))).p)
    assert ours.exchange_test(np.ones((4, 3))).p == 1.0
    with pytest.raises(InputError, match="two columns"):
        ours.exchange_test(np.ones((4, 1)))
    for wrong in (np.nan, np.inf):
        with pytest.raises(InputError, match="NaN or infinity"):
            ours.exchange_test(np.array([[1.0, wrong]]))


@pytest.mark.parametrize("test", [ours.paired_t, ours.wilcoxon, ours.randomisation_test])
def test_what_is_infinite_is_no_difference(test):
    with pytest.raises(InputError, match="NaN or infinity"):
        test(np.array([0.0, 1.0, 2.0]), np.array([np.inf, 2.0, 3.0]))


def bootstrap_variance(values):
    """Exact variance over all ways to draw seeds and queries with replacement, enumerated."""
    seeds, queries = values.shape
    means = [
        values[np.ix_(s, q)].mean()
        for s in itertools.product(range(seeds), repeat=seeds) for q in itertools.product(range(queries), repeat=queries)
    ]
    return np.var(means)


def test_two_level_bootstrap_draws_seeds_and_queries():
    """Its distribution against every possible draw, enumerated."""
    values = np.random.default_rng(5).normal(size=(3, 4))
    drawn = []

    def keep(means):
        drawn.append(means[..., 0])
        return means[..., 0]

    interval = ours.two_level_interval(values[..., None], keep, resamples=60_000)
    assert interval.estimate == pytest.approx(values.mean())
    assert np.var(drawn[0]) == pytest.approx(bootstrap_variance(values), rel=0.03)
    assert drawn[0].mean() == pytest.approx(values.mean(), abs=0.01)


def test_two_level_bootstrap_of_one_seed_is_that_of_queries():
    values = np.random.default_rng(2).normal(size=(1, 500))
    interval = ours.two_level_interval(values[..., None], lambda m: m[..., 0], resamples=4000)
    half = 1.96 * values.std() / np.sqrt(500)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.012)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.012)


def test_two_level_bootstrap_of_one_query_is_no_interval():
    interval = ours.two_level_interval(np.array([[[0.3]], [[0.5]]]), lambda m: m[..., 0])
    assert interval.estimate == 0.4 and math.isnan(interval.low) and math.isnan(interval.high) and interval.n == 1


def test_two_level_bootstrap_covers():
    """Intervals of five seeds and sixty queries hold the true mean about as often as they say."""
    generator, hits, trials = np.random.default_rng(11), 0, 300
    for trial in range(trials):
        of_seed, of_query = generator.normal(0, 0.1, (5, 1)), generator.normal(0, 1, (1, 60))
        values = of_seed + of_query + generator.normal(0, 0.5, (5, 60))
        interval = ours.two_level_interval(values[..., None], lambda m: m[..., 0], resamples=400, seed=trial)
        hits += interval.low <= 0 <= interval.high
    assert 0.90 <= hits / trials <= 0.985


def clustered(seed, effect=0.0, clusters=20, size=5):
    """Queries of which five share what moves them: differences and the clusters' labels, shuffled."""
    generator = np.random.default_rng(seed)
    of = generator.permutation(np.repeat(np.arange(clusters), size))
    return effect + generator.normal(size=clusters)[of] + 0.5 * generator.normal(size=clusters * size), of.astype(str)


def test_clusters_flip_together_by_hand():
    """Three clusters: eight patterns of signs."""
    d, of = np.array([0.1, 0.4, -0.2, 0.3, 0.6]), ["a", "b", "a", "b", "c"]
    sums = {label: sum(x for x, own in zip(d, of) if own == label) for label in "abc"}
    every = [abs(sum(sign * x for sign, x in zip(signs, sums.values()))) for signs in itertools.product((-1, 1), repeat=3)]
    found = ours.randomisation_test(np.zeros(5), d, clusters=of)
    assert found.p == np.mean([x >= abs(d.sum()) - 1e-12 for x in every])
    assert (found.statistic, found.n) == (pytest.approx(d.mean()), 5)


def test_clusters_of_one_are_no_clusters():
    d = clustered(0, 0.3)[0]
    alone = np.arange(len(d))
    assert ours.randomisation_test(np.zeros(100), d, clusters=alone) == ours.randomisation_test(np.zeros(100), d)
    assert ours.inverted_interval(d, clusters=alone, resamples=999) == ours.inverted_interval(d, resamples=999)
    table = np.random.default_rng(0).random((100, 4))
    for measured in (ours.exchange_test, ours.inverted_interval):
        assert measured(table, clusters=alone, resamples=999) == measured(table, resamples=999)
    ends = [(i.low, i.high) for i in (ours.bootstrap_interval(d, clusters=c) for c in (None, alone))]
    assert ends[0] == pytest.approx(ends[1], abs=1e-3)


def test_only_the_test_by_cluster_is_calibrated_where_queries_share_documents():
    rejected = np.zeros(2)
    for seed in range(300):
        d, of = clustered(seed)
        zero = np.zeros(len(d))
        rejected += [ours.randomisation_test(zero, d, clusters=c, resamples=199, seed=seed).p <= 0.05 for c in (None, of)]
    assert ours.binomial_interval(int(rejected[0]), 300).low > 0.2
    by_cluster = ours.binomial_interval(int(rejected[1]), 300)
    assert by_cluster.low <= 0.05 <= by_cluster.high


def measured_by_cluster(seed, effect=0.0, clusters=20, size=5):
    """Four measurements of queries of which five share what moves each of them; the first is lower by the effect."""
    generator = np.random.default_rng(seed)
    of = generator.permutation(np.repeat(np.arange(clusters), size))
    table = generator.normal(size=(clusters, 4))[of] + 0.5 * generator.normal(size=(clusters * size, 4))
    return table - effect * (np.arange(4) == 0), of.astype(str)


def test_clusters_are_exchanged_together_by_hand():
    """Two clusters of three measurements: nine choices."""
    table, of = np.array([[0.1, 0.5, 0.4], [0.2, 0.9, 0.3], [0.6, 0.5, 0.9]]), ["a", "b", "a"]
    every = []
    for firsts in itertools.product(range(3), repeat=2):
        own = [dict(zip("ab", firsts))[label] for label in of]
        every.append(abs(sum(np.delete(row, first).mean() - row[first] for row, first in zip(table, own))))
    found = ours.exchange_test(table, clusters=of)
    assert found.p == np.mean([x >= every[0] - 1e-12 for x in every])
    assert (found.statistic, found.n) == (pytest.approx((table[:, 1:].mean(axis=1) - table[:, 0]).mean()), 3)


def test_only_the_exchange_by_cluster_is_calibrated_where_queries_share_documents():
    rejected = np.zeros(2)
    for seed in range(300):
        table, of = measured_by_cluster(seed)
        rejected += [ours.exchange_test(table, clusters=c, resamples=199, seed=seed).p <= 0.05 for c in (None, of)]
    assert ours.binomial_interval(int(rejected[0]), 300).low > 0.2
    by_cluster = ours.binomial_interval(int(rejected[1]), 300)
    assert by_cluster.low <= 0.05 <= by_cluster.high


def interval_that_agrees(values, test, options):
    """The interval, after a check that it holds exactly those means that the test does not reject once they are taken away."""
    interval = ours.inverted_interval(values, **options)
    assert (interval.low <= 0 <= interval.high) == (test(0.0) > 0.05)
    for end, outward in ((interval.low, -1), (interval.high, 1)):
        inside, outside = (test(end + step * outward) for step in (-1e-6, 1e-6))
        assert inside > 0.05 >= outside
    return interval


@pytest.mark.parametrize("seed", range(10))
def test_an_interval_of_measurements_by_cluster_agrees_with_its_test(seed):
    table, of = measured_by_cluster(seed, 0.8, clusters=12, size=4)
    of[:9] = "0"  # clusters of unequal size
    options = {"clusters": of, "resamples": 499, "seed": seed}
    interval = interval_that_agrees(
        table, lambda mean: ours.exchange_test(table + mean * (np.arange(4) == 0), **options).p, options
    )
    assert interval.n == 48 and interval.estimate == pytest.approx((table[:, 1:].mean(axis=1) - table[:, 0]).mean())


@pytest.mark.parametrize("seed", range(10))
def test_an_interval_by_cluster_agrees_with_its_test(seed):
    """It holds exactly those means that the test does not reject once they are taken from every query."""
    d, of = clustered(seed, 0.45, clusters=12, size=4)
    of[:9] = "0"  # clusters of unequal size
    options = {"clusters": of, "resamples": 499, "seed": seed}
    interval = interval_that_agrees(d, lambda mean: ours.randomisation_test(np.full(48, mean), d, **options).p, options)
    assert interval.n == 48 and interval.estimate == pytest.approx(d.mean())
    plain = ours.inverted_interval(d, resamples=499, seed=seed)
    assert interval.high - interval.low > plain.high - plain.low


def test_copies_do_not_narrow_a_bootstrap_by_cluster():
    """Seven copies of each unit; then a cluster counts by its size, as in the mean."""
    values = np.random.default_rng(0).gamma(1.0, size=12)
    alone, copies = ours.bootstrap_interval(values), np.repeat(values, 7)
    found = ours.bootstrap_interval(copies, clusters=np.repeat(np.arange(12), 7))
    assert (found.estimate, found.low, found.high) == pytest.approx((alone.estimate, alone.low, alone.high), abs=0.005)
    singly = ours.bootstrap_interval(copies)
    assert found.n == 84 and found.high - found.low > 2 * (singly.high - singly.low)
    unequal = ours.bootstrap_interval(np.array([1.0, 1.0, 1.0, 0.0]), clusters=list("aaab"))
    assert (unequal.estimate, unequal.low, unequal.high) == (0.75, 0, 1)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_a_bootstrap_by_cluster_covers(method):
    covered = 0
    for seed in range(200):
        d, of = clustered(seed)
        found = ours.bootstrap_interval(d, clusters=of, method=method, resamples=499, seed=seed)
        covered += found.low <= 0 <= found.high
    assert ours.binomial_interval(covered, 200).low <= 0.95 <= ours.binomial_interval(covered, 200).high


def test_clusters_must_fit():
    with pytest.raises(InputError, match="got 2 labels for 3 units"):
        ours.randomisation_test(np.zeros(3), np.ones(3), clusters=["a", "b"])
    for missing in (None, np.nan, pd.NA, pd.NaT):
        for labels in (["a", missing, missing], pd.Series(["a", missing, missing])):
            with pytest.raises(InputError, match="label 2 of 3 is missing"):
                ours.sums_by_cluster(np.ones(3), labels)
    with pytest.raises(InputError, match="label 3 of 3"):
        ours.randomisation_test(np.zeros(3), np.ones(3), clusters=np.array([1.0, 2.0, np.nan]))
    for measured in (ours.exchange_test, ours.inverted_interval):
        with pytest.raises(InputError, match="got 2 labels for 3 units"):
            measured(np.ones((3, 2)), clusters=["a", "b"])
    with pytest.raises(InputError, match="clusters are for the mean"):
        ours.bootstrap_interval(np.ones((3, 2)), clusters=["a", "b", "c"])
    alone = ours.inverted_interval(np.array([1.0, 2.0, 3.0]), clusters=["a"] * 3)
    assert alone.estimate == 2 and np.isnan([alone.low, alone.high]).all()


def test_equivalence_of_two_units_in_closed_form():
    """t with one degree of freedom is Cauchy's: differences of .02 and .06 against .1 have t = (.04 - .1) / .02."""
    found = ours.equivalence_test([0.0, 0.0], [0.02, 0.06], 0.1)
    assert (found.statistic, found.p) == pytest.approx((-3, 0.5 + math.atan(-3) / math.pi))


def test_the_effective_number_is_kishs():
    assert ours.effective_number(np.full(7, 0.3)) == pytest.approx(7)
    assert ours.effective_number(np.array([2.0, 0, 0])) == 1 and ours.effective_number(np.zeros(3)) == 0
    weights = np.random.default_rng(0).random(50)
    # n over 1 plus the squared coefficient of variation of the weights
    assert ours.effective_number(weights) == pytest.approx(50 / (1 + (weights.std() / weights.mean()) ** 2))
    assert ours.effective_number(weights * 1e-200) == pytest.approx(ours.effective_number(weights))


def test_an_interval_of_too_few_resamples_excludes_nothing():
    values = np.random.default_rng(0).normal(0.1, 1, 20)
    found = ours.inverted_interval(values, resamples=15)
    assert np.isnan([found.low, found.high]).all()
    bounded = ours.inverted_interval(values, resamples=15, least=-9.0, most=9.0)
    assert (bounded.low, bounded.high) == (-9.0, 9.0)
