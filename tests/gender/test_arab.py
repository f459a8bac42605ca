"""The formulas, with the arithmetic written out, and against literal loops."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.counting import word_counts

LEANS = st.lists(st.floats(-5, 5), min_size=1, max_size=12).map(np.array)


def loop_arab(lean, t):
    """As it is written: nested means over the prefixes that there are."""
    prefixes = [sum(lean[:x]) / x for x in range(1, t + 1) if x <= len(lean)]
    return sum(prefixes) / len(prefixes)


def test_three_forms_of_tf_and_the_other_methods():
    counts = word_counts(["he he him she", "her", "rain"])
    # c_m = 3 (he 2, him 1), c_f = 1.
    assert arab.magnitudes(counts, "tc").tolist() == [[3, 1], [0, 1], [0, 0]]
    assert arab.magnitudes(counts, "bool").tolist() == [[1, 1], [0, 1], [0, 0]]
    assert arab.magnitudes(counts).tolist() == [[math.log(4), math.log(2)], [0, math.log(2)], [0, 0]]
    # ln 2 of he, ln 1 = 0 of him and of she.
    np.testing.assert_allclose(arab.magnitudes(counts, tf_form="sum_log"), [[math.log(2), 0], [0, 0], [0, 0]])
    # ln 3 of he + ln 2 of him = ln 6.
    np.testing.assert_allclose(
        arab.magnitudes(counts, tf_form="sum_log1p"), [[math.log(6), math.log(2)], [0, math.log(2)], [0, 0]]
    )


def test_lean_is_male_minus_female():
    words = WordList.of("debias")
    magnitude = arab.magnitudes(word_counts(["he he", "she"]), "tc")
    assert arab.leans(magnitude, words).tolist() == [2, -1]
    assert arab.leans(magnitude, words, ("female", "male")).tolist() == [-2, 1]


def test_arab_worked_out():
    # Leans 2, -1, 0. RaB@1 = 2, RaB@2 = 1/2, RaB@3 = 1/3, whose mean is (2 + 1/2 + 1/3) / 3 = 17/18.
    lean = np.array([2.0, -1.0, 0.0])
    assert arab.rab(lean, 2) == 0.5
    assert arab.arab(lean, 3) == pytest.approx(17 / 18)
    # A list shorter than the cut-off: RaB divides by what there is, ARaB averages the prefixes that there are.
    assert arab.arab(lean, 10) == pytest.approx(17 / 18)
    assert arab.rab(lean, 10) == pytest.approx(1 / 3)
    # Weights of three ranks: (1 + 1/2 + 1/3) / 3 = 11/18, (1/2 + 1/3) / 3 = 5/18, (1/3) / 3 = 2/18.
    np.testing.assert_allclose(arab.rank_weights(3), [11 / 18, 5 / 18, 2 / 18])
    assert math.isnan(arab.arab(np.array([]), 3)) and math.isnan(arab.rab(np.array([]), 3))


@given(LEANS, st.integers(1, 15))
def test_closed_form_is_the_nested_mean(lean, t):
    assert arab.arab(lean, t) == pytest.approx(loop_arab(lean.tolist(), t), abs=1e-12)


@given(LEANS, st.integers(1, 15))
def test_swapping_the_groups_changes_the_sign(lean, t):
    assert arab.arab(-lean, t) == pytest.approx(-arab.arab(lean, t), abs=1e-12)
    assert abs(arab.arab(lean, t)) <= np.abs(lean).max() + 1e-12


@pytest.mark.parametrize("t", [1, 2, 3, 5, 9])
def test_random_order_agrees_with_all_orders(t):
    lean = np.array([1.5, -1.0, 0.0, 0.25, 2.0])
    values = [arab.arab(np.array(order), t) for order in itertools.permutations(lean)]
    mean, sd = arab.random_order_arab(lean, t)
    assert mean == pytest.approx(np.mean(values))
    assert sd == pytest.approx(np.std(values))


def test_random_order_of_few():
    assert all(map(math.isnan, arab.random_order_arab(np.array([]), 3)))
    assert arab.random_order_arab(np.array([2.0]), 3) == (2.0, 0.0)


@given(LEANS, st.integers(1, 15))
def test_shifts_of_a_list(lean, t):
    shifted = arab.shifted_arab(lean, t)
    assert shifted == pytest.approx([arab.arab(np.roll(lean, -s), t) for s in range(len(lean))], abs=1e-12)
    assert shifted.mean() == pytest.approx(arab.random_order_arab(lean, t)[0], abs=1e-12)
    both = arab.shifted_arab(np.stack([lean, lean[::-1]]), t)
    assert both == pytest.approx(np.stack([shifted, arab.shifted_arab(lean[::-1], t)]), abs=1e-12)


def test_neutrality_worked_out():
    totals = np.array([[3, 1], [2, 0], [1, 0], [0, 0], [1, 1]])
    # 1 - |3/4 - 1/2| - |1/4 - 1/2| = 1/2; 1 - 1/2 - 1/2 = 0; one word and no word are neutral; 1.
    assert arab.neutrality(totals, ("male", "female")).tolist() == [0.5, 0, 1, 1, 1]
    assert arab.neutrality(totals, ("male", "female"), threshold=0)[2] == 0
    # With 1/4 for men: 1 - |3/4 - 1/4| - |1/4 - 3/4| = 0 and 1 - 3/4 - 3/4 = -1/2.
    assert arab.neutrality(totals[:2], ("male", "female"), {"male": 0.25, "female": 0.75}).tolist() == [0, -0.5]
    # Three groups with equal portions: 1 - (1 - 1/3) - 1/3 - 1/3 = -1/3.
    assert arab.neutrality(np.array([[2, 0, 0]]), ("a", "b", "c")) == pytest.approx(-1 / 3)


def test_fairr_worked_out():
    neutral, background = np.array([0.0, 1.0, 0.5]), np.array([0.5, 0.0, 1.0, 1.0])
    value = 0 / math.log2(2) + 1 / math.log2(3) + 0.5 / math.log2(4)
    ideal = 1 / math.log2(2) + 1 / math.log2(3) + 0.5 / math.log2(4)
    assert arab.fairr(neutral, 3) == pytest.approx(value)
    assert arab.ifairr(background, 3) == pytest.approx(ideal)
    assert arab.nfairr(neutral, background, 3) == pytest.approx(value / ideal)
    # A short list is summed as far as it goes, and is not normalised by its length.
    assert arab.fairr(neutral[1:2], 5) == 1.0
    assert arab.fairr(neutral, 5) == pytest.approx(value)
    # Documents from outside the background can be better than its best.
    assert arab.nfairr(np.array([1.0]), np.array([0.5]), 1) == 2.0


def test_undefined_is_nan():
    assert math.isnan(arab.nfairr(np.array([0.0]), np.array([0.0, 0.0]), 5))
    assert math.isnan(arab.nfairr(np.array([0.5]), np.array([]), 5))
    assert math.isnan(arab.nfairr(np.array([]), np.array([1.0]), 5))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(1, 10))
def test_no_order_of_the_background_beats_the_ideal(neutral, chance, t):
    shuffled = chance.sample(neutral, len(neutral))
    assert arab.fairr(np.array(shuffled), t) <= arab.ifairr(np.array(neutral), t) + 1e-12


@given(
    st.lists(st.integers(-6, 6).map(lambda n: n / 6), min_size=1, max_size=5),
    st.randoms(use_true_random=False),
    st.integers(1, 7),
    st.integers(1, 5),
)
def test_no_list_of_the_background_exceeds_1(neutral, chance, t, length):
    shuffled = chance.sample(neutral, len(neutral))[:length]
    # The best of all lists that have at least as many documents above the cut-off, one by one.
    least = min(len(shuffled), t)
    best = max(
        arab.fairr(np.array(order), t)
        for size in range(least, min(len(neutral), t) + 1)
        for order in itertools.permutations(neutral, size)
    )
    assert arab.ifairr(np.array(neutral), t, shortest=least) == pytest.approx(best, abs=1e-12)
    value = arab.nfairr(np.array(shuffled), np.array(neutral), t)
    assert math.isnan(value) if best <= 1e-12 else value <= 1 + 1e-9


def test_what_is_refused():
    counts = word_counts(["he"])
    with pytest.raises(InputError, match="method='df' is not known"):
        arab.magnitudes(counts, "df")
    with pytest.raises(InputError, match="tf_form='log' is not known"):
        arab.magnitudes(counts, tf_form="log")
    with pytest.raises(InputError, match="compares groups"):
        arab.neutrality(np.array([[1]]), ("only",))
    for portions in ({"male": 0.5}, {"male": 0.5, "female": 0.6}):
        with pytest.raises(InputError, match="must name each of male, female, be at least 0 and sum to 1"):
            arab.neutrality(np.array([[1, 0]]), ("male", "female"), portions)
    for cutoff in (0, 2.5, True, "5"):
        with pytest.raises(InputError, match="whole number of at least 1"):
            arab.arab(np.array([1.0]), cutoff)
