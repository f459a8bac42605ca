"""The slope on complexity: against statsmodels, enumeration, and worlds in which the truth is known."""

import tracemalloc
from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.linguistic.formulas import slope
from pyterrier_debias.linguistic.formulas.slope import design, partial_slope, within_slope
from pyterrier_debias.linguistic.formulas.spread import permutation_tests


def a_world(n=80, seed=0, slope=-0.2):
    generator = np.random.default_rng(seed)
    z = generator.normal(size=(n, 2))
    x = 0.7 * z[:, 0] + generator.normal(size=n)
    return slope * x + z[:, 1] + generator.normal(size=n) * (1 + np.abs(x)), x, z


def test_it_is_the_regression_of_statsmodels():
    y, x, z = a_world()
    found = partial_slope(y, x, z, resamples=999)
    full, reduced = sm.OLS(y, sm.add_constant(np.column_stack([x, z]))), sm.OLS(y, sm.add_constant(z)).fit()
    robust = full.fit(cov_type="HC3", use_t=True)
    assert found.slope == pytest.approx(robust.params[1])
    # Near Student's for complexity that is normal, and around the same standard error.
    assert found.low + found.high == pytest.approx(2 * found.slope)
    assert (found.low, found.high) == pytest.approx(tuple(robust.conf_int()[1]), abs=0.3 * robust.bse[1])
    assert found.t == pytest.approx(robust.tvalues[1])
    assert found.share == pytest.approx(robust.rsquared - reduced.rsquared)
    assert found.p == pytest.approx(robust.pvalues[1], abs=0.05)
    scaled = found.per_sd
    assert (scaled.estimate, scaled.n) == (pytest.approx(robust.params[1] * x.std()), 80)
    # Influence values: their mean is the slope, their standard error that of the slope.
    assert found.influence.mean() == pytest.approx(found.slope)
    assert found.influence.std() / np.sqrt(80) == pytest.approx(robust.bse[1], rel=1e-3)


def test_two_systems_slopes_are_compared_at_the_level():
    """Skewed complexity, where White's errors (HC0) reject in 13 % of cases."""
    p = []
    for seed in range(400):
        generator = np.random.default_rng(seed)
        x, both = generator.lognormal(size=43), np.clip(0.5 + 0.25 * generator.normal(size=(2, 43)), 0, 1)
        one, two = (partial_slope(values, x, resamples=1).influence for values in both)
        p.append(stats.ttest_rel(one, two).pvalue)
    assert np.mean(np.array(p) <= 0.05) <= 0.08


@pytest.mark.parametrize("unit", [1e-12, 1e9, 1e13])
def test_the_unit_of_complexity_does_not_matter(unit):
    y, x, z = a_world(slope=2.0)
    expected, found = (partial_slope(y, of, z, resamples=199) for of in (x, unit * x))
    assert found.p == expected.p < 0.05
    assert (found.per_sd.low, found.per_sd.high) == pytest.approx((expected.per_sd.low, expected.per_sd.high))


def test_rounding_and_residuals_of_0_do_not_contradict_p():
    """Few needs with tied values; a slope whose residuals are all 0 has no interval if other slopes are as likely."""
    nowhere = 0
    for seed in range(300):
        generator = np.random.default_rng(seed)
        shape = int(generator.integers(3, 9)), int(generator.integers(2, 4))
        y, x = (generator.integers(0, 3, size=shape) / 2 for _ in range(2))
        for found in (within_slope(y, x, resamples=99, seed=seed), partial_slope(y.ravel(), x.ravel(), resamples=99, seed=seed)):
            if np.isnan(found.low):
                nowhere += found.p > 0.05
                assert np.isnan(found.slope) or found.p > 0.05
            else:
                assert (found.low <= 0 <= found.high) == (found.p > 0.05), found
    assert nowhere


@pytest.mark.parametrize("seed", range(12))
def test_the_interval_holds_0_where_the_test_does_not_reject(seed):
    generator = np.random.default_rng(seed)
    x = generator.lognormal(size=30)
    y = 0.12 * x + generator.normal(size=30)
    found = partial_slope(y, x, resamples=199, seed=seed)
    assert (found.low <= 0 <= found.high) == (found.p > 0.05)
    tables = generator.normal(size=(2, 12, 3))
    within = within_slope(tables[0] + 0.4 * tables[1], tables[1], resamples=199, seed=seed)
    assert (within.low <= 0 <= within.high) == (within.p > 0.05)


def test_too_few_permutations_to_reject_give_no_interval():
    y, x, z = a_world()
    found = partial_slope(y, x, z, resamples=18)
    assert np.isnan([found.low, found.high, found.share_low]).all() and found.slope < 0
    assert not np.isnan(partial_slope(y, x, z, resamples=19).low)


def test_the_interval_covers_where_few_queries_are_complex():
    """Three of 40 queries are complex: Student's quantile leaves out the true slope too often, that of permutations does not."""
    missed = np.zeros(2)
    for seed in range(300):
        generator = np.random.default_rng(seed)
        x = np.zeros(40)
        x[:3] = 1.0
        y = 0.1 * x + generator.normal(0, 0.3, 40)
        found = partial_slope(y, x, resamples=199, seed=seed)
        student = stats.t.ppf(0.975, 38) * found.slope / found.t
        missed += [abs(found.slope - 0.1) > student, not found.low <= 0.1 <= found.high]
    assert missed[0] / 300 > 0.1 and stats.binomtest(int(missed[1]), 300, 0.05, "greater").pvalue > 0.01


def test_collections_have_levels_of_their_own():
    y, x, z = a_world()
    labels = np.arange(80) % 3
    dummies = (labels[:, None] == np.arange(1, 3)).astype(float)
    robust = sm.OLS(y + labels, sm.add_constant(np.column_stack([x, z, dummies]))).fit(cov_type="HC3", use_t=True)
    found = partial_slope(y + labels, x, z, strata=labels, resamples=99)
    assert (found.slope, found.t) == pytest.approx((robust.params[1], robust.tvalues[1]))


@pytest.mark.parametrize("strata", [None, [0, 0, 0, 0, 1, 1, 1]])
def test_p_is_that_of_all_permutations_or_all_signs_of_residuals(strata):
    """By hand: fit the controls, permute what is left or flip its signs, fit everything with statsmodels, compare t."""
    generator = np.random.default_rng(5)
    x, z, y = generator.normal(size=7), generator.normal(size=7), generator.normal(size=7)
    labels = np.zeros(7, dtype=int) if strata is None else np.array(strata)
    nuisance = np.column_stack([np.ones(7), z] + ([] if strata is None else [labels]))
    reduced = sm.OLS(y, nuisance).fit()
    full = np.column_stack([x, nuisance])

    def t(values):
        return abs(sm.OLS(values, full).fit(cov_type="HC3").tvalues[0])

    orders = [list(p) for p in permutations(range(7)) if (labels[list(p)] == labels).all()][:: 7 if strata is None else 1]
    observed = t(y)
    signs = [np.array(flips) for flips in product((-1, 1), repeat=7)]
    exact = max(
        np.mean([t(reduced.fittedvalues + residuals) >= observed - 1e-9 for residuals in null])
        for null in ([reduced.resid[order] for order in orders], [reduced.resid * flips for flips in signs])
    )
    found = partial_slope(y, x, z, strata=strata, resamples=9_999)
    assert found.t == pytest.approx(sm.OLS(y, full).fit(cov_type="HC3").tvalues[0])
    assert found.p == pytest.approx(exact, abs=0.04 if strata is None else 0.02)


def test_chance_alone():
    """The share's floor is 1 / (n - 1) without controls, the expected R squared of noise."""
    y, x, _ = a_world(50, slope=0.0)
    assert partial_slope(y, x, resamples=4_999).share_floor == pytest.approx(1 / 49, rel=0.1)


def uneven(n, seed):
    """Residuals whose spread grows with complexity and with a control; no slope."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=n)
    x = 0.8 * z + generator.normal(size=n)
    return z + np.abs(x) * generator.normal(size=n), x, z


def test_calibrated_where_complex_queries_vary_more():
    studentised, alike = 0, 0
    for seed in range(150):
        y, x, z = uneven(60, seed)
        studentised += partial_slope(y, x, z, resamples=199, seed=seed).p <= 0.05
        alike += sm.OLS(y, sm.add_constant(np.column_stack([x, z]))).fit().pvalues[1] <= 0.05
    found = binomial_interval(studentised, 150)
    assert found.low <= 0.05 <= found.high
    assert binomial_interval(alike, 150).low > 0.05  # what it would be without studentising


@pytest.mark.parametrize(("spread", "student_fails"), [(1.0, True), (0.0, False)])
def test_calibrated_where_few_queries_are_very_complex(spread, student_fails):
    """Lognormal complexity, residuals in proportion to it or alike: permutations alone rejected 16 % of these (n = 40)."""
    test, student, missed, n = 0, 0, 0, 40
    for seed in range(400):
        generator = np.random.default_rng(seed)
        x = generator.lognormal(size=n)
        noise = x**spread * generator.normal(size=n)
        found = partial_slope(noise, x, resamples=99, seed=seed)
        test += found.p <= 0.05
        missed += not found.low <= 0 <= found.high
        student += 2 * stats.t.sf(abs(found.t), n - 2) <= 0.05
    assert missed == test
    assert binomial_interval(test, 400).low <= 0.05
    assert (binomial_interval(student, 400).low > 0.05) is student_fails


def test_power_in_the_plain_case():
    """Normal complexity and alike residuals: flipping signs costs hardly anything against Student's test."""
    test = student = 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=97)
        y = 0.3 * x + generator.normal(size=97)
        test += partial_slope(y, x, resamples=199, seed=seed).p <= 0.05
        student += stats.pearsonr(x, y).pvalue <= 0.05
    assert student > 150 and test >= 0.93 * student


def test_a_control_takes_its_part():
    """Complexity goes with length, and length alone makes queries hard: a slope without the control, none with it."""
    generator = np.random.default_rng(2)
    length = generator.normal(size=200)
    x, y = length + 0.5 * generator.normal(size=200), -0.3 * length + generator.normal(size=200)
    assert partial_slope(y, x, resamples=999).p < 0.01
    given = partial_slope(y, x, length, resamples=999)
    assert given.p > 0.05 and given.low < 0 < given.high and given.share_low == 0


def test_the_interval_of_the_share_holds_the_truth():
    inside = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        x = generator.normal(size=100)
        found = partial_slope(0.5 * x + generator.normal(size=100), x, resamples=199)
        inside += found.share_low <= 0.2 <= found.share_high  # 0.25 / 1.25
    assert inside >= 88


def test_nothing_to_explain():
    x = np.arange(10.0)
    still = partial_slope(np.full(10, 0.4), x, resamples=99)
    assert (still.slope, still.low, still.high, still.p, still.share) == (0, 0, 0, 1, 0) and not still.influence.any()
    for found in (
        partial_slope(x, np.ones(10), resamples=9),
        partial_slope(x**2, x, 2 * x + 1, resamples=9),  # complexity is the control
        partial_slope(np.arange(3.0) ** 2, np.arange(3.0), resamples=9),
        partial_slope(np.empty(0), np.empty(0), resamples=9),
    ):
        assert np.isnan([found.slope, found.p, found.share, found.low]).all()


def test_a_perfect_line():
    x = np.arange(12.0)
    found = partial_slope(0.9 - 0.05 * x, x, resamples=999)
    assert found.slope == pytest.approx(-0.05) and found.share == pytest.approx(1) and found.p == 0.001


def test_columns_that_say_the_same_twice():
    y, x, z = a_world()
    once = partial_slope(y, x, z, resamples=99)
    twice = partial_slope(y, x, np.column_stack([z, z * 1e6, np.ones(80)]), resamples=99)
    assert (once.slope, once.t, once.p) == pytest.approx((twice.slope, twice.t, twice.p))


def test_blocks_do_not_matter():
    y, x, z = a_world(30)
    in_blocks, at_once = (partial_slope(y, x, z, resamples=100, block=block).p for block in (7, 100))
    assert in_blocks == pytest.approx(at_once, abs=0.1)


def test_many_queries_are_permuted_a_few_at_a_time(monkeypatch):
    """At most so many cells are held in memory, and p is the same."""
    y, x, z = a_world(300)
    usual = partial_slope(y, x, z, resamples=600)
    tables = wordings(100, 3)
    within = within_slope(*tables, resamples=600)
    monkeypatch.setattr(slope, "CELLS", 3_000)
    tracemalloc.start()
    assert partial_slope(y, x, z, resamples=600).p == usual.p
    assert within_slope(*tables, resamples=600).p == within.p
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 300 * 8  # what one block of 500 permutations takes
    assert slope.at_once(500, 1_000_000) == 1  # never none


def test_design():
    frame = pd.DataFrame({"n": [1, 2, 3, 4], "type": ["b", "a", "b", None], "flag": [True, False, True, True]})
    assert design(frame, ["type"]).tolist() == [[1], [0], [1], [0]]  # levels that one query has are left out
    assert design(frame, ["n", "flag"]).tolist() == [[1, 1], [2, 0], [3, 1], [4, 1]]
    assert design(frame, []).shape == (4, 0)
    with pytest.raises(InputError, match="'length'"):
        design(frame, ["length"])


@pytest.mark.parametrize(
    "bad", [(np.ones(3), np.ones(4), None), (np.ones(4), np.ones(4), np.ones(3)), (np.ones(4), np.full(4, np.nan), None)]
)
def test_bad_input(bad):
    with pytest.raises(InputError):
        partial_slope(*bad)


def wordings(n=60, m=4, seed=0, slope=-0.2):
    generator = np.random.default_rng(seed)
    difficulty, x = generator.normal(size=(n, 1)), generator.normal(size=(n, m)) + 2 * generator.normal(size=(n, 1))
    return difficulty + slope * x + 0.5 * generator.normal(size=(n, m)), x + difficulty


def test_within_needs_is_the_regression_with_fixed_effects():
    y, x = wordings()
    needs = np.repeat(np.arange(60), 4)
    fixed = (needs[:, None] == np.arange(60)).astype(float)
    clustered = sm.OLS(y.ravel(), np.column_stack([x.ravel(), fixed])).fit(cov_type="cluster", cov_kwds={"groups": needs})
    found = within_slope(y, x, resamples=999)
    assert found.slope == pytest.approx(clustered.params[0])
    correction = np.sqrt(239 / (240 - 61))  # statsmodels' other factor, for the number of coefficients
    assert found.slope / found.t == pytest.approx(clustered.bse[0] / correction)
    assert found.influence.mean() == pytest.approx(found.slope)
    assert found.p == 0.001


def test_within_needs_difficulty_plays_no_part():
    """Needs that are asked in complex words are difficult ones: a slope over queries, none within needs."""
    p, over_queries = [], 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        difficulty = generator.normal(size=(40, 1))
        x = difficulty + generator.normal(size=(40, 3))
        y = -difficulty + 0.5 * generator.normal(size=(40, 3))
        over_queries += partial_slope(y[:, 0], x[:, 0], resamples=99).p <= 0.05
        p.append(within_slope(y, x, resamples=199, seed=seed).p)
    found = binomial_interval(int((np.array(p) <= 0.05).sum()), 60)
    assert found.low <= 0.05 <= found.high and 0.3 < np.mean(p) < 0.7
    assert over_queries >= 55


def test_within_needs_p_is_that_of_all_permutations():
    y, x = np.array([[0.1, 0.5], [0.3, 0.2], [0.9, 0.6], [0.4, 0.8]]), np.array([[1.0, 0.0], [1.0, 0.5], [0.2, 1.0], [2.0, 0.3]])

    def t(values):
        d, e = values[:, 1] - values[:, 0], x[:, 1] - x[:, 0]
        slope = d @ e / (e @ e)
        return abs(slope) / np.sqrt(((e * (d - slope * e)) ** 2).sum())

    exact = [t(np.array([row[::-1] if flip >> i & 1 else row for i, row in enumerate(y)])) >= t(y) - 1e-9 for flip in range(16)]
    assert within_slope(y, x, resamples=9_999).p == pytest.approx(np.mean(exact), abs=0.02)


def test_within_needs_share_is_r_squared_of_what_is_left():
    y, x = wordings(7)
    left, x_left = (table - table.mean(axis=1, keepdims=True) for table in (y, x))
    found = within_slope(y, x, resamples=99)
    assert found.share == pytest.approx(np.corrcoef(left.ravel(), x_left.ravel())[0, 1] ** 2)
    assert found.sd == pytest.approx(x[:, 0].std()) and found.n == len(y)


def test_within_needs_three_needs_are_enough():
    y, x = wordings(7)
    assert np.isfinite(within_slope(y[:3], x[:3], resamples=9).slope) and np.isnan(within_slope(y[:2], x[:2], resamples=9).slope)
    assert np.isnan(within_slope(y, np.zeros_like(x), resamples=9).slope)
    # Rounding of a large level is no difference between wordings, and a small true difference is one.
    level = np.full_like(x, 1e8)
    assert np.isnan(within_slope(y, level + 1e-8 * np.sign(x), resamples=9).slope)
    assert within_slope(y, 1e-8 * x, resamples=9).slope == pytest.approx(1e8 * within_slope(y, x, resamples=9).slope)


def test_within_needs_nothing_to_explain():
    y, x = wordings(5)
    assert within_slope(np.repeat(y[:, :1], 4, axis=1), x, resamples=9).p == 1
    assert np.isnan(within_slope(y, np.repeat(x[:, :1], 4, axis=1), resamples=9).slope)
    for bad in ((y[:, :1], x[:, :1]), (y, x[:, :2]), (y, np.full_like(x, np.nan))):
        with pytest.raises(InputError):
            within_slope(*bad)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", range(3))
def test_what_is_not_finite_is_refused(bad, place):
    """An infinite complexity gave NaN with a p of 1."""
    given = [np.arange(12.0), np.arange(12.0) ** 2, np.arange(12.0) ** 3]
    given[place][4] = bad
    name = ("values", "complexity", "controls")[place]
    with pytest.raises(InputError, match=f"partial_slope: {name} at row 4 is {bad}, not finite; leave out queries"):
        partial_slope(*given, resamples=9)
    if place < 2:
        with pytest.raises(InputError, match=f"within_slope: {name} at row 1 is {bad}, not finite; leave out needs"):
            within_slope(given[0].reshape(4, 3), given[1].reshape(4, 3), resamples=9)
        with pytest.raises(InputError, match=f"permutation_tests: {name} at row 4 is {bad}, not finite; leave out queries"):
            permutation_tests(given[0], given[1], np.arange(12) % 3, resamples=9)


def test_ends_of_the_share_and_of_the_scaled_slope_are_those_of_the_slope():
    """R squared gained by a slope b is b^2 x'x / the variance of y, with x as the controls leave it."""
    y, x, z = a_world(slope=-1.0)
    found = partial_slope(y, x, z, resamples=199)
    left = sm.OLS(x, sm.add_constant(z)).fit().resid
    of_a_slope = left @ left / ((y - y.mean()) ** 2).sum()
    assert found.high < 0  # so that the smaller end is not 0
    assert (found.share_low, found.share_high) == pytest.approx((found.high**2 * of_a_slope, found.low**2 * of_a_slope))
    assert (found.per_sd.low, found.per_sd.high) == pytest.approx((found.low * x.std(), found.high * x.std()))


def test_the_floor_of_the_share_is_a_mean():
    """One query alone is good and complexity has two values: every permutation explains the same share."""
    found = partial_slope(np.eye(8)[0], np.repeat([-1.0, 1.0], 4), resamples=19)
    assert found.share_floor == pytest.approx(found.share) == pytest.approx(1 / 7)
    needs = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    within = within_slope(needs, np.array([[1.0, 0.0]] * 3), resamples=19)
    assert within.share_floor == pytest.approx(within.share) == pytest.approx(1 / 3)


def test_rounding_is_no_complexity_and_no_effectiveness():
    generator = np.random.default_rng(0)
    y, z = generator.normal(size=(2, 30))
    assert np.isnan(partial_slope(y, np.full(30, 123456.7), resamples=9).slope)
    assert np.isnan(partial_slope(y, z + 1e-6 * generator.normal(size=30), z, resamples=9).slope)
    nothing = {"slope": 0, "low": 0, "high": 0, "p": 1, "t": 0, "share": 0, "share_low": 0, "share_high": 0, "share_floor": 0}
    explained = partial_slope(2 * z + 1, y, z, resamples=9)
    assert {name: getattr(explained, name) for name in nothing} == nothing
    same = within_slope(np.full((5, 3), -0.1), generator.normal(size=(5, 3)), resamples=9)
    assert (same.slope, same.low, same.high, same.p, same.t, same.share, same.share_floor) == (0, 0, 0, 1, 0, 0, 0)
    assert not explained.influence.any() and not same.influence.any()


def test_how_many_queries_decide_a_slope():
    y, x, z = a_world()
    left = sm.OLS(x, sm.add_constant(z)).fit().resid
    found = partial_slope(y, x, z, resamples=19)
    assert found.effective_n == pytest.approx((left**2).sum() ** 2 / (left**4).sum()) and not found.caution
    few = partial_slope(y, np.r_[9.0, 8.0, -9.0, np.zeros(77)], resamples=19)
    assert 2.9 < few.effective_n < 3.1 and few.caution.startswith("About 3 of 80 queries decide the slope")
    within = within_slope(np.array([[0.1, 0.3], [0.2, 0.2], [0.4, 0.1]]), np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]))
    assert within.effective_n == pytest.approx(3)
