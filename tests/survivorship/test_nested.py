"""Means over nested subsets: the identity, the published figures, intervals and the trend test."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import binomial_interval, rank_correlation_interval
from pyterrier_debias.survivorship.formulas import nested
from pyterrier_debias.survivorship.formulas.nested import (
    difference_of_means,
    nested_means,
    rank_influence,
    strata_means,
    strata_of_nested,
    trend,
    zero_filled,
)
from tests.survivorship import published

NEVER = float("inf")
VALUES = st.lists(st.tuples(st.floats(0, 1), st.sampled_from([1.0, 2.0, 3.0, 7.0, NEVER])), min_size=1, max_size=30)


@given(VALUES)
def test_the_identity(pairs):
    """Zero-filled mean = mean over survivors * share of survivors, for every k and any values."""
    v, r = (np.array(column, dtype=float) for column in zip(*pairs))
    for item in nested_means(v, r, [1, 2, 3, 10, NEVER]):
        assert item.total == len(v) and item.share == item.n / len(v)
        if item.n:
            assert item.zero_filled.estimate == pytest.approx(item.mean.estimate * item.share, abs=1e-12)
            assert item.mean.estimate == pytest.approx(v[(r <= item.k) & (r < NEVER)].mean())
        else:
            assert item.zero_filled.estimate == 0 and np.isnan(item.mean.estimate)


@pytest.mark.parametrize("ranker", list(published.MRR))
def test_the_published_spike_is_the_identity(ranker):
    """What falls from the mean over answered to the mean over all queries is the share of answered ones: 55,568 of 101,093."""
    found = zero_filled(published.MRR[ranker][0], published.SIZES[-1], published.TOTAL)
    assert found == pytest.approx(published.MRR_ALL[ranker], abs=5e-5)


def test_strata_from_the_published_subsets():
    """MonoT5: (15543 * .34951 - 8197 * .34806) / 7346 = .35113; the mean of rank 1 is that of k = 1."""
    found = strata_of_nested(published.SIZES, published.MRR["MonoT5"][::-1])
    assert found[[0, 1, 5]] == pytest.approx([0.348, 0.351, 0.378], abs=5e-4)
    assert found[1] == pytest.approx((15543 * 0.34951 - 8197 * 0.34806) / 7346)
    # Queries that were answered early are harder, for the three neural rankers at least.
    for ranker in ("MonoT5", "ANCE", "ColBERT"):
        strata = strata_of_nested(published.SIZES, published.MRR[ranker][::-1])
        assert strata[0] == strata.min()


def test_published_order_of_rankers_holds_everywhere():
    table = np.array([published.MRR[name] for name in ("MonoT5", "ColBERT", "ANCE", "BM25")])
    assert (np.diff(table, axis=0) < 0).all()


def test_strata_are_those_of_the_nested_means():
    rng = np.random.default_rng(1)
    v, r = rng.random(200), rng.integers(1, 6, 200).astype(float)
    nested = nested_means(v, r, range(1, 6))
    from_sums = strata_of_nested([item.n for item in nested], [item.mean.estimate for item in nested])
    direct = [interval.estimate for _, interval in strata_means(v, r, 5)]
    np.testing.assert_allclose(from_sums, direct)
    np.testing.assert_allclose(direct, [v[r == rank].mean() for rank in range(1, 6)])
    assert np.isnan(strata_of_nested([2, 2, 3], [1.0, 1.0, 1.0])).tolist() == [False, True, False]


def test_input_that_cannot_be_used():
    with pytest.raises(InputError, match="strata_of_nested: sizes must not fall"):
        strata_of_nested([3, 2], [0.1, 0.2])
    with pytest.raises(InputError, match="zero_filled: answered=11 must be from 0 to total=10"):
        zero_filled(0.5, 11, 10)
    with pytest.raises(InputError, match=r"nested_means: .* equal length"):
        nested_means([1.0], [1.0, 2.0], [1])
    with pytest.raises(InputError, match="trend: value 1 is nan; give finite numbers"):
        trend([1.0, float("nan")], [1.0, 2.0])
    with pytest.raises(InputError, match="strata_means: rank 0 is NaN; give a query that was never answered an infinite rank"):
        strata_means(np.array([1.0, 0.5]), np.array([np.nan, 2.0]), 1)


def test_change_against_a_bootstrap():
    """The interval of m_k - m_any over the same queries, against resampled queries."""
    rng = np.random.default_rng(3)
    v = rng.random(400)
    r = np.where(rng.random(400) < 0.4, NEVER, rng.integers(1, 11, 400))
    found = nested_means(v, r, [2])[0].change
    draws = rng.integers(0, 400, (4000, 400))
    drawn_v, drawn_r = v[draws], r[draws]

    def mean(chosen):
        return (drawn_v * chosen).sum(axis=1) / chosen.sum(axis=1)

    low, high = np.quantile(mean(drawn_r <= 2) - mean(np.isfinite(drawn_r)), [0.025, 0.975])
    assert found.estimate == pytest.approx(v[r <= 2].mean() - v[np.isfinite(r)].mean())
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.008)
    assert nested_means(v, r, [NEVER])[0].change.high == 0


def test_the_interval_of_a_change_is_that_of_two_independent_means():
    v, r = np.random.default_rng(4).normal(0, 1, 400), np.arange(400) + 1.0
    found = nested_means(v, r, [100])[0].change
    welch = stats.ttest_ind(v[:100], v[100:], equal_var=False).confidence_interval()
    # m_k - m_any = (1 - w) (m_k - m_later); with equal means, that w is drawn too adds next to nothing.
    assert (found.low, found.high) == pytest.approx((0.75 * welch.low, 0.75 * welch.high), abs=0.004)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_the_interval_of_a_change_covers_with_few_queries(n):
    """With two it covers more than it says: the degrees of freedom are those of the smaller group."""
    rng = np.random.default_rng(n)
    ranks = np.repeat([1.0, 2.0], [n, 60 - n])
    found = [nested_means(rng.normal(0, 1, 60), ranks, [1])[0].change for _ in range(600)]
    share = binomial_interval(sum(one.low <= 0 <= one.high for one in found), len(found))
    assert share.high >= 0.95 and share.low <= (0.95 if n > 3 else 1)


def test_a_change_of_one_query_has_no_interval():
    found = nested_means([1.0, 0.5, 0.2, 0.1], [1, 2, 2, np.inf], [1, 2])
    assert found[0].change.estimate == pytest.approx(1.0 - 1.7 / 3) and np.isnan(found[0].change.low)
    assert (found[1].change.low, found[1].change.estimate, found[1].change.high) == (0.0, 0.0, 0.0)


def test_clusters_of_one_query_give_students_interval():
    rng = np.random.default_rng(11)
    v, r = rng.random(50), rng.integers(1, 4, 50).astype(float)
    alone, plain = nested_means(v, r, [1, 2], clusters=range(50)), nested_means(v, r, [1, 2])
    for one, other in zip(alone, plain):
        for figure in ("mean", "zero_filled"):
            left, right = getattr(one, figure), getattr(other, figure)
            assert (left.estimate, left.low, left.high) == pytest.approx((right.estimate, right.low, right.high), abs=1e-12)
        assert one.change.estimate == pytest.approx(other.change.estimate, abs=1e-12)
        assert (one.change.low, one.change.high) == pytest.approx((other.change.low, other.change.high), abs=0.02)
    strata = zip(strata_means(v, r, 3, clusters=range(50)), strata_means(v, r, 3))
    assert all((a.low, a.high) == pytest.approx((b.low, b.high)) for (_, a), (_, b) in strata)


def test_the_interval_over_clusters_against_statsmodels():
    """A mean is the constant of a regression on nothing else; its cluster-robust error by statsmodels' G / (G - 1)."""
    import statsmodels.api as sm

    rng = np.random.default_rng(12)
    names = np.repeat(np.arange(12), rng.integers(2, 9, 12))
    v = rng.normal(0, 1, 12)[names] + rng.normal(0, 1, len(names))
    within = rng.random(len(names)) < 0.7
    fit = sm.OLS(v[within], np.ones(within.sum()))
    peer = fit.fit(cov_type="cluster", cov_kwds={"groups": names[within], "use_correction": False}, use_t=True)
    present = len(set(names[within]))
    half = stats.t.ppf(0.975, present - 1) * peer.bse[0] * np.sqrt(present / (present - 1))
    found = difference_of_means(v, within, None, clusters=names.tolist())
    mean = peer.params[0]
    assert (found.estimate, found.low, found.high) == pytest.approx((mean, mean - half, mean + half))
    plain = difference_of_means(v, within, None)
    assert plain.high - plain.low < found.high - found.low


def test_a_distortion_against_resampled_clusters():
    """Mean over survivors less mean over all, the same queries in both, against articles that are drawn anew."""
    rng = np.random.default_rng(13)
    names = np.repeat(np.arange(60), 20)
    easy = rng.normal(0, 1, 60)[names] + rng.normal(0, 1, len(names))
    v, within = easy + rng.normal(0, 1, len(names)), easy + rng.normal(0, 1, len(names)) > 0
    found = difference_of_means(v, within, np.ones(len(v), dtype=bool), clusters=names.tolist())
    assert found.estimate == pytest.approx(v[within].mean() - v.mean())
    sums = np.stack([np.bincount(names, a) for a in (v * within, within, v, np.ones(len(v)))])
    drawn = sums[:, rng.integers(0, 60, (4000, 60))].sum(axis=-1)
    low, high = np.quantile(drawn[0] / drawn[1] - drawn[2] / drawn[3], [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.02)


def test_a_difference_of_nothing():
    none, some = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    assert np.isnan(difference_of_means(np.ones(3), none, some).estimate)
    one = difference_of_means(np.array([1.0, 0.0, 1.0]), some, None, clusters=["a", "a", "a"])
    assert one.estimate == pytest.approx(2 / 3) and np.isnan(one.low)
    same = difference_of_means(np.array([1.0, 0.0, 1.0]), some, some)
    assert (same.estimate, same.low, same.high) == (0, 0, 0)


def test_trend_against_scipy():
    rng = np.random.default_rng(5)
    r = rng.integers(1, 11, 80).astype(float)
    v = np.round(rng.random(80) + 0.04 * r, 1)
    peer = stats.spearmanr(r, v)
    found = trend(np.append(v, 0.0), np.append(r, NEVER), resamples=4999)
    assert found.rho == pytest.approx(peer.statistic) and found.n == 80
    options = {"permutation_type": "pairings", "n_resamples": 4999, "rng": 1}
    exact = stats.permutation_test((r,), lambda x: stats.spearmanr(x, v).statistic, **options)
    assert found.p == pytest.approx(exact.pvalue, abs=0.01)
    assert found.slope == pytest.approx(np.polyfit(r, v, 1)[0])
    assert found.low < found.rho < found.high
    # E|rho| is about sqrt(2 / pi (n - 1)) under the null hypothesis.
    assert found.noise_floor == pytest.approx(np.sqrt(2 / np.pi / 79), rel=0.05)


def test_a_slope_is_that_within_strata():
    """Two strata in which later answers raise the mean by .1 a rank; pooled, they seem to lower it."""
    ranks, strata = np.array([1.0, 2, 3, 6, 7, 9]), ["many"] * 3 + ["one"] * 3
    values = 0.1 * ranks + np.where(np.array(strata) == "many", 1.0, 0.0)
    assert trend(values, ranks, resamples=9).slope == pytest.approx(np.polyfit(ranks, values, 1)[0]) and values[0] > values[-1]
    assert trend(values, ranks, strata=strata, resamples=9).slope == pytest.approx(0.1)
    # Against least squares with a constant for each stratum.
    noisy = values + np.random.default_rng(0).normal(size=6)
    design = np.column_stack([ranks, np.array(strata) == "many", np.array(strata) == "one"]).astype(float)
    assert trend(noisy, ranks, strata=strata, resamples=9).slope == pytest.approx(np.linalg.lstsq(design, noisy)[0][0])


FLAT = [([], []), ([1.0, 0.5], [1, 2]), ([1.0] * 5, [1, 2, 3, 4, 5]), ([0.1, 0.2, 0.3], [2] * 3)]


@pytest.mark.parametrize("values, ranks", FLAT)
def test_a_trend_that_is_not_there_to_be_had(values, ranks):
    found = trend(values, ranks)
    assert np.isnan([found.rho, found.p, found.low, found.slope]).all() and found.n == len(values)


def test_false_alarms_of_the_trend_are_as_rare_as_they_claim():
    """Values with many ties, as RR has them."""
    rng = np.random.default_rng(0)
    p = [
        trend(rng.choice([0, 0.5, 1.0], 40), rng.integers(1, 11, 40).astype(float), resamples=199, seed=s).p for s in range(300)
    ]
    interval = binomial_interval(int((np.array(p) <= 0.05).sum()), len(p))
    assert interval.low <= 0.05 <= interval.high


def test_the_interval_of_the_trend_covers():
    rng = np.random.default_rng(2)
    truth, covered = 6 / np.pi * np.arcsin(0.5 / 2), 0  # Spearman's rho of a normal pair with correlation .5
    for seed in range(300):
        x, e = rng.normal(size=(2, 80))
        found = trend(0.5 * x + np.sqrt(0.75) * e, stats.rankdata(x), resamples=1, seed=seed)
        covered += found.low <= truth <= found.high
    interval = binomial_interval(covered, 300)
    assert interval.low <= 0.95 <= interval.high


def test_influence_with_many_queries_is_the_derivative_of_the_correlation():
    """Beyond ``most`` queries: how the correlation of the midranks moves as one query weighs a little more, by differences."""
    generator = np.random.default_rng(0)
    ranks = generator.integers(1, 6, 40).astype(float)
    values = generator.normal(size=40) - 0.3 * ranks
    x, y = stats.rankdata(ranks), stats.rankdata(values)

    def correlation(weights):
        table = np.cov(x, y, aweights=weights, ddof=0)
        return table[0, 1] / np.sqrt(table[0, 0] * table[1, 1])

    plain, step = np.full(40, 1 / 40), 1e-5
    heavier = [(1 - step) * plain + step * one for one in np.eye(40)]
    slopes = [(correlation(weights) - correlation(plain)) / step for weights in heavier]
    found = rank_influence(values, ranks, most=10)
    np.testing.assert_allclose(found, correlation(plain) + np.array(slopes), atol=1e-3)
    assert found.mean() == pytest.approx(stats.spearmanr(ranks, values).statistic)
    # The jackknife, which is exact, is near.
    assert found.std() == pytest.approx(rank_influence(values, ranks).std(), rel=0.1)


@pytest.mark.parametrize(("values", "ranks"), [([1, 2, 3], [1, 2, 3]), ([1] * 4, [1, 2, 3, 4]), ([1, 2, 3, 4], [2] * 4)])
def test_influence_where_the_correlation_is_not_defined(values, ranks):
    assert np.isnan(rank_influence(np.array(values, float), np.array(ranks, float))).all()


@pytest.mark.parametrize("strata", [None, ["a"] * 6 + ["b"] * 6])
def test_the_interval_of_a_trend_is_that_of_bonett_and_wright(strata):
    """tanh(atanh rho -/+ z sqrt((1 + rho^2 / 2) / (n - 3))), with one unit less for each further stratum."""
    generator = np.random.default_rng(0)
    ranks = np.arange(1, 13)
    found = trend(-0.2 * ranks + generator.normal(size=12), ranks, strata=strata, resamples=9)
    half = 1.959964 * np.sqrt((1 + found.rho**2 / 2) / (9 if strata is None else 8))
    ends = np.tanh(np.arctanh(found.rho) + np.array([-half, half]))
    assert (found.low, found.high) == pytest.approx(tuple(ends), abs=1e-6)


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_the_interval_of_a_trend_never_contradicts_its_p(level):
    rng, parted = np.random.default_rng(3), 0
    for seed in range(400):
        n = int(rng.integers(4, 40))
        ranks = rng.integers(1, 8, n).astype(float)
        values = np.round(rng.normal(size=n) ** 2 - 0.2 * ranks * (seed % 2), 1)
        strata = rng.integers(0, 3, n).tolist()
        found = trend(values, ranks, strata=strata, resamples=499, level=level, seed=seed)
        if np.isnan(found.rho):
            continue
        assert np.isnan(found.low) or (found.low > 0 or found.high < 0) == (found.p <= 1 - level), seed
        assert not found.low > found.rho and not found.high < found.rho
        # As it would be if the test could reject nothing: Bonett and Wright's.
        plain = trend(values, ranks, strata=strata, resamples=1, level=level)
        contradicts = np.isfinite(plain.low) and (plain.low > 0 or plain.high < 0) != (found.p <= 1 - level)
        parted += contradicts
        assert contradicts != np.array_equal([found.low, found.high], [plain.low, plain.high], equal_nan=True)
    assert parted > 3


def test_an_interval_from_a_permutation_test_is_that_of_bonett_and_wright_for_many_units():
    """The null distribution of a rank correlation is nearly normal then, with a variance of 1 / (n - 1)."""
    rng, n = np.random.default_rng(0), 400
    sizes = np.abs(np.array([stats.pearsonr(rng.permutation(n), np.arange(n))[0] for _ in range(4_999)]))
    half = 1.959964 * np.sqrt((1 + 0.3**2 / 2) / (n - 3))
    expected = np.tanh(np.arctanh(0.3) + np.array([-half, half]))
    # With so few degrees of freedom, the interval holds 0, which makes it contradict a test that rejects.
    assert rank_correlation_interval(0.3, 2, sizes) == pytest.approx(tuple(expected), abs=0.005)
    assert rank_correlation_interval(0.3, n - 3, sizes) == pytest.approx(tuple(expected), abs=1e-6)


def test_no_interval_where_every_order_is_the_same_and_the_test_cannot_reject():
    found = trend([1.0, 2.0, 3.0, 0.0], [1, 2, 3, 4], resamples=199)
    perfect = trend([1.0, 2.0, 3.0], [1, 2, 3], resamples=199)
    assert perfect.rho == pytest.approx(1.0) and perfect.p > 0.05 and np.isnan([perfect.low, perfect.high]).all()
    assert found.p > 0.05 and not (found.low > 0 or found.high < 0)


def test_tables_are_drawn_as_permutations_make_them():
    from itertools import permutations

    x, y = np.array([1.0, 1.0, 2.0, 4.0, 4.0]), np.array([0.5, 0.0, 0.0, 2.0, 2.0])
    exact = np.array([x @ np.array(order) for order in permutations(y)])
    values, counts = np.unique(exact, return_counts=True)
    drawn = nested._of_tables(x, y, 20_000, np.random.default_rng(0))
    assert set(np.unique(drawn)) == set(values)
    observed = [(drawn == value).sum() for value in values]
    assert stats.chisquare(observed, 20_000 * counts / counts.sum()).pvalue > 0.001


def test_many_queries_are_permuted_as_tables(monkeypatch):
    rng = np.random.default_rng(0)
    ranks, values = rng.integers(1, 4, 900).astype(float), rng.choice([0.0, 0.5, 1.0], 900)
    strata = np.where(np.arange(900) < 890, "many", "few").tolist()
    options = {"strata": strata, "resamples": 2_999}
    shuffled = trend(values, ranks, **options)
    monkeypatch.setattr(nested, "_LARGE", 100)
    found = trend(values, ranks, **options)
    assert (found.rho, found.low, found.high, found.slope) == (shuffled.rho, shuffled.low, shuffled.high, shuffled.slope)
    assert found.p == pytest.approx(shuffled.p, abs=0.05) and found.noise_floor == pytest.approx(shuffled.noise_floor, rel=0.06)
    assert found.p != shuffled.p


@pytest.mark.parametrize("clusters", [None, "own"])
def test_a_difference_from_all_has_the_freedom_of_the_smaller_group(clusters):
    """Four of fifty queries survive: with 49 degrees of freedom, the interval would cover 75 %."""
    draw, covered, runs = np.random.default_rng(0), 0, 400
    within = np.arange(50) < 4
    names = None if clusters is None else [str(i) for i in range(50)]
    for _ in range(runs):
        values = draw.choice([0.0, 0.0, 0.1, 0.2, 0.5, 1.0], 50)
        found = difference_of_means(values, within, np.ones(50, dtype=bool), clusters=names)
        assert found.estimate == pytest.approx(values[within].mean() - values.mean())
        covered += found.low <= 0 <= found.high
    assert covered / runs > 0.87
    one = difference_of_means(values, np.arange(50) < 1, np.ones(50, dtype=bool), clusters=names)
    assert np.isnan([one.low, one.high]).all()
