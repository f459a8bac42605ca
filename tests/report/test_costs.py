import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import equivalence_test
from pyterrier_debias.report.noninferiority import bias_verdict, change_interval, non_inferiority, on_front, size_interval


@pytest.mark.parametrize("margin", [0.01, 0.05, 0.2])
def test_non_inferiority_is_scipys_one_sided_test(margin):
    rng = np.random.default_rng(0)
    before = rng.uniform(size=40)
    after = before + rng.normal(-0.02, 0.1, size=40)
    found = non_inferiority(before, after, margin)
    peer = stats.ttest_1samp(after - before, -margin, alternative="greater")
    assert (found.statistic, found.p) == pytest.approx((peer.statistic, peer.pvalue), abs=1e-12)
    # Equivalence asks for more.
    assert equivalence_test(before, after, margin).p >= found.p - 1e-12


def test_not_significantly_worse_is_not_the_same_as_not_worse():
    # Four queries: nobody would call the loss significant, and nobody may call it ruled out either.
    before, after = np.array([0.5, 0.2, 0.9, 0.4]), np.array([0.3, 0.4, 0.6, 0.3])
    assert stats.ttest_rel(before, after).pvalue > 0.3
    assert non_inferiority(before, after, 0.05).p > 0.5


def test_non_inferiority_where_all_differ_alike():
    same = np.full(5, 0.25)
    assert non_inferiority(same, same, 0.1).p == 0
    assert non_inferiority(same, same - 0.25, 0.1).p == 1
    assert np.isnan(non_inferiority(same[:1], same[:1], 0.1).p)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros(2), np.zeros(2), 0), "must be positive"),
        ((np.zeros(2), np.zeros(3), 0.1), "equal length"),
        ((np.zeros(2), np.array([0, np.nan]), 0.1), "NaN"),
        ((np.zeros(2), np.array([0, np.inf]), 0.1), "paired values hold NaN or infinity; leave out undefined pairs"),
    ],
)
def test_bad_values(arguments, message):
    with pytest.raises(InputError, match=message):
        non_inferiority(*arguments)


def test_one_seed_is_students_interval():
    rng = np.random.default_rng(1)
    before, after = rng.uniform(size=(2, 30))
    peer = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert tuple(vars(change_interval(before, after)).values())[1:3] == pytest.approx(peer, abs=1e-12)


def test_several_seeds_widen_the_interval_by_what_they_differ():
    rng = np.random.default_rng(2)
    queries = rng.normal(0.1, 0.05, size=200)
    apart = np.array([-0.2, -0.1, 0.0, 0.1, 0.2])[:, None] + queries
    alike = np.zeros(5)[:, None] + queries
    before = np.zeros((1, 200))
    wide, narrow = change_interval(before, apart), change_interval(before, alike)
    assert wide.estimate == pytest.approx(narrow.estimate)
    # Resampling 5 seeds with standard deviation sqrt(0.02) gives the mean a standard error of sqrt(0.02 / 5) = 0.063.
    assert (wide.high - wide.low) / (2 * 1.96) == pytest.approx(0.0632, rel=0.15)
    assert (narrow.high - narrow.low) < 0.02


def test_the_size_of_a_bias_that_changes_sign():
    found = size_interval(np.full((1, 4), -0.3), np.full((1, 4), 0.1))
    assert (found.estimate, found.low, found.high) == pytest.approx((-0.2, -0.2, -0.2))


@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_noise_is_called_a_change_as_rarely_as_the_test_says(spread):
    # Before: exactly 0, as of a retriever that ignores the order of words, or noise of its own. Of 300 worlds, a test at 0.05 has
    # more false alarms than this in 1 of 1,000 repetitions.
    false = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        before, after = rng.normal(0, spread, (1, 40)), rng.normal(0, 0.2, (1, 40))
        options = {"resamples": 200, "seed": seed}
        verdict = bias_verdict(change_interval(before, after, **options), size_interval(before, after, **options))
        false += verdict != "no change shown"
    assert false <= stats.binom.ppf(0.999, 300, 0.05)


@pytest.mark.parametrize("function", [change_interval, size_interval])
def test_seeds_that_do_not_fit(function):
    with pytest.raises(InputError, match="incompatible shapes"):
        function(np.zeros((2, 3)), np.zeros((3, 3)))
    with pytest.raises(InputError, match="incompatible shapes"):
        function(np.zeros((2, 3)), np.zeros((2, 4)))
    with pytest.raises(InputError, match="NaN"):
        function(np.zeros((1, 2)), np.array([[0, np.nan]]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12))
def test_the_front_is_what_brute_force_finds(points):
    best = [
        not any(b <= bias and e >= effect and (b, e) != (bias, effect) for b, e in points)
        for bias, effect in points
    ]
    assert on_front([b for b, _ in points], [e for _, e in points]).tolist() == best
    assert any(best)


def test_what_is_not_defined_is_not_on_the_front():
    assert on_front([0.1, np.nan, 0.2], [0.5, 0.9, np.nan]).tolist() == [True, False, False]
    assert on_front([0.3, 0.1 + 0.2], [0.5, 0.5]).tolist() == [True, True]  # equal but for the last bits
