"""Lexical indices: worked examples, published formulas, exact expectations, properties."""

import math
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.linguistic.formulas.lexical import (
    LEAST_D,
    LU,
    MOST_D,
    FrequencyList,
    LexicalCounts,
    fit_d,
    hdd,
    lexical_counts,
    lexical_indices,
    segment_indices,
    stacked,
    vocd,
    wordfreq_list,
)

TAGGED = "the/DT quick/JJ dog/NN bark/VBZ and/CC the/DT dog/NN quickly/RB chase/VBZ 3/CD statin/NNS be/VBZ very/RB bark/VBD"
WORDS, TAGS = zip(*(pair.split("/") for pair in TAGGED.split()))
LIST = FrequencyList(frozenset({"the", "dog", "and", "be", "very"}), frozenset({"quick", "slow"}))


def indices(counts, **options):
    return {name: float(values[0]) for name, values in lexical_indices(stacked([counts], counts._fields), **options).items()}


def of(words):
    return indices(LexicalCounts(len(words), len(set(words))))


def test_counts_by_hand():
    # Types: the quick dog bark and quickly chase 3 statin be very: 11 of 14 words.
    # Nouns dog dog statin (2 types), adjective quick, verbs bark chase bark (2 types; be is none), adverb quickly (quick is an
    # adjective; very is none): 3 + 1 + 3 + 1 = 8 lexical words, 2 + 1 + 2 + 1 = 6 types.
    # Not in the list: quick bark quickly chase statin bark = 6 lexical words, 5 types (3 is a number); verbs: 2 types.
    assert lexical_counts(WORDS, TAGS, LIST) == LexicalCounts(
        N=14, T=11, Nlex=8, Tlex=6, Nslex=6, Ts=5, Nverb=3, Tverb=2, Tsverb=2, Nnoun=3, Tnoun=2, Tadj=1, Tadv=1
    )


def test_no_form_of_be_and_have_is_a_lexical_verb():
    """Words as they stand are among what is counted, where there is no lemmatiser."""
    forms = "be am is are was were been being 'm 're 's ai have has had having 've 'd \u2019s \u2019d".split()
    counts = lexical_counts([*forms, "bark", "'s"], ["VBZ"] * len(forms) + ["VBZ", "POS"], LIST)
    assert (counts.Nverb, counts.Tverb, counts.Tsverb, counts.Nlex) == (1, 1, 1, 1)
    assert lexical_counts(["is", "'s"], ["AUX", "AUX"], LIST).Nverb == 0
    assert lexical_counts(["do", "hail"], ["VBP", "VB"], LIST).Nverb == 2  # do is one


def test_indices_by_hand():
    found = indices(lexical_counts(WORDS, TAGS, LIST))
    by_hand = {
        "LD": 8 / 14,  # .5714
        "LS1": 6 / 8,
        "LS2": 5 / 11,  # .4545
        "VS1": 2 / 3,
        "VS2": 4 / 3,  # 2^2 / 3
        "CVS1": 2 / math.sqrt(6),  # .8165
        "NDW": 11,
        "TTR": 11 / 14,  # .7857
        "CTTR": 11 / math.sqrt(28),  # 11 / 5.2915 = 2.0788
        "RTTR": 11 / math.sqrt(14),  # 11 / 3.7417 = 2.9399
        "LogTTR": 2.397895273 / 2.639057330,  # ln 11 / ln 14 = .9086
        "Uber": 1.146128036**2 / 0.104735351,  # (log10 14)^2 / log10(14/11) = 12.5421
        "LV": 6 / 8,
        "VV1": 2 / 3,
        "SVV1": 4 / 3,
        "CVV1": 2 / math.sqrt(6),
        "VV2": 2 / 8,
        "NV": 2 / 8,
        "AdjV": 1 / 8,
        "AdvV": 1 / 8,
        "ModV": 2 / 8,
    }
    assert found == pytest.approx(by_hand, rel=1e-8)
    assert found["Uber"] == pytest.approx(12.5421, abs=1e-4)
    assert {*by_hand, "NDW-50", "NDW-ER50", "NDW-ES50", "MSTTR-50"} == set(LU)


def test_other_readings_by_hand():
    counts = lexical_counts(WORDS, TAGS, LIST)
    assert indices(counts, nv="nnoun")["NV"] == pytest.approx(2 / 3)
    # (ln 11)^2 / ln(14/11) = 2.397895^2 / 0.241162 = 23.8425
    assert indices(counts, uber="lnT2")["Uber"] == pytest.approx(23.8425, abs=1e-3)
    for wrong in ({"nv": "all"}, {"uber": "log2"}):
        with pytest.raises(InputError, match="is not known"):
            indices(counts, **wrong)


def test_the_limit_of_d_has_a_name():
    """Of 3,000 words one is repeated: samples of 50 words hardly ever hold both, and D is as high as it can be."""
    words = [*map(str, range(3000)), "0"]
    assert vocd(words, np.random.default_rng(0)) == pytest.approx(MOST_D, rel=1e-3)
    n = np.arange(35, 51)
    assert fit_d(n, np.ones(16)) == pytest.approx(MOST_D, rel=1e-3)
    assert fit_d(n, np.full(16, 1e-3)) == pytest.approx(LEAST_D, rel=1e-3)


def test_without_a_list_sophistication_is_undefined_and_nothing_else():
    with_list = lexical_counts(WORDS, TAGS, LIST)
    without = lexical_counts(WORDS, TAGS, FrequencyList(None, LIST.adjectives))
    undefined = {name for name, value in without._asdict().items() if np.isnan(value)}
    assert undefined == {"Nslex", "Ts", "Tsverb"}
    assert all(with_list._asdict()[name] == value for name, value in without._asdict().items() if name not in undefined)


@pytest.mark.parametrize(
    ("words", "undefined"),
    [
        ([], {"TTR", "CTTR", "RTTR", "LogTTR", "Uber"}),
        (["tea"], {"LogTTR", "Uber"}),  # ln 1 = 0
        (["green", "tea"], {"Uber"}),  # N / T = 1
        (["tea", "tea"], set()),
    ],
)
def test_what_short_texts_leave_undefined(words, undefined):
    found = of(words)
    assert {name for name in ("NDW", "TTR", "CTTR", "RTTR", "LogTTR", "Uber") if np.isnan(found[name])} == undefined


def test_a_text_without_verbs_or_lexical_words_defines_no_ratio_of_them():
    found = indices(lexical_counts(["of", "the"], ["IN", "DT"], LIST))
    assert {name for name, value in found.items() if np.isnan(value)} == {
        "LS1", "VS1", "VS2", "CVS1", "LV", "VV1", "SVV1", "CVV1", "VV2", "NV", "AdjV", "AdvV", "ModV", "Uber",
    }  # fmt: skip
    assert found["LD"] == 0


TEXTS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=40)


@given(TEXTS, st.integers(2, 4))
def test_repeating_a_text_divides_ttr_and_keeps_its_types(words, times):
    once, often = of(words), of(words * times)
    assert often["TTR"] == pytest.approx(once["TTR"] / times)
    assert often["NDW"] == once["NDW"]
    assert often["CTTR"] == pytest.approx(once["CTTR"] / math.sqrt(times))


@given(TEXTS)
def test_types_grow_with_the_prefix_and_indices_stay_in_their_ranges(words):
    types = [of(words[:n])["NDW"] for n in range(1, len(words) + 1)]
    assert all(0 <= after - before <= 1 for before, after in pairwise(types))
    found = of(words)
    assert 0 < found["TTR"] <= 1
    assert found["RTTR"] == pytest.approx(math.sqrt(2) * found["CTTR"])
    assert np.isnan(found["LogTTR"]) or 0 <= found["LogTTR"] <= 1
    assert np.isnan(found["Uber"]) == (len(set(words)) == len(words))


@given(TEXTS, st.randoms(use_true_random=False))
def test_ratios_do_not_read_the_order_of_words(words, random):
    shuffled = list(words)
    random.shuffle(shuffled)
    assert of(shuffled) == pytest.approx(of(words), nan_ok=True)


@given(st.lists(st.sampled_from(list(zip(WORDS, TAGS))), max_size=30))
def test_kinds_of_words_bound_each_other(pairs):
    words, tags = [w for w, _ in pairs], [t for _, t in pairs]
    counts = lexical_counts(words, tags, LIST)
    assert counts.Tlex <= counts.Nlex <= counts.N
    assert counts.Nslex <= counts.Nlex
    assert counts.Tsverb <= counts.Tverb <= counts.Nverb
    assert counts.Tverb + counts.Tnoun + counts.Tadj + counts.Tadv >= counts.Tlex  # a word may be of two kinds


# ------------------------------------------------------------------------------------------------ segments and samples


def test_segments_by_hand():
    # Segments of two: a a | b c | d d, e is dropped: TTR 1/2, 1, 1/2. The first two words are one type.
    found = segment_indices(list("aabcdde"), 2, np.random.default_rng(0))
    assert found["MSTTR-50"] == pytest.approx((0.5 + 1 + 0.5) / 3)
    assert found["NDW-50"] == 1
    # As many words as a segment: one sample, one stretch, one segment.
    assert segment_indices(list("aabc"), 4, np.random.default_rng(0)) == {
        "NDW-50": 3, "NDW-ER50": 3, "NDW-ES50": 3, "MSTTR-50": 0.75
    }  # fmt: skip
    assert all(np.isnan(value) for value in segment_indices(list("aab"), 4, np.random.default_rng(0)).values())


def test_samples_have_their_exact_expectations():
    # Two of seven words are the same type in 2 of 21 pairs; of the six stretches of two words, aa and dd.
    rng = np.random.default_rng(5)
    found = [segment_indices(list("aabcdde"), 2, rng) for _ in range(500)]
    assert np.mean([f["NDW-ER50"] for f in found]) == pytest.approx(2 - 2 / 21, abs=0.02)
    assert np.mean([f["NDW-ES50"] for f in found]) == pytest.approx(2 - 2 / 6, abs=0.03)


def expected_ttr(words, size):
    """By scipy's hypergeometric distribution."""
    from scipy.stats import hypergeom

    frequencies = np.unique(words, return_counts=True)[1]
    return float(np.sum(1 - hypergeom.pmf(0, len(words), frequencies, size))) / size


def zipf_text(n, seed=3):
    return [str(i) for i in np.random.default_rng(seed).zipf(1.6, n).clip(max=60)]


@pytest.mark.parametrize("n", [42, 43, 90, 300])
def test_hdd_is_the_hypergeometric_expectation(n):
    words = zipf_text(n)
    assert hdd(words) == pytest.approx(expected_ttr(words, 42), rel=1e-10)


def test_hdd_of_extreme_texts():
    assert hdd([str(i) for i in range(60)]) == pytest.approx(1)
    assert hdd(["tea"] * 60) == pytest.approx(1 / 42)
    assert np.isnan(hdd(["tea"] * 41))


def test_d_is_found_again_from_its_own_curve():
    n = np.arange(35, 51)
    for d in (0.5, 5.0, 42.0, 300.0):
        assert fit_d(n, d / n * (np.sqrt(1 + 2 * n / d) - 1)) == pytest.approx(d, rel=1e-4)


def test_vocd_samples_what_can_be_computed_exactly():
    words = zipf_text(120)
    sizes = np.arange(35, 51)
    exact = fit_d(sizes, np.array([expected_ttr(words, size) for size in sizes]))
    found = [vocd(words, np.random.default_rng(seed)) for seed in range(4)]
    assert np.mean(found) == pytest.approx(exact, rel=0.02)
    assert np.std(found) < 0.05 * exact


def test_vocd_draws_the_words_with_the_smallest_numbers():
    """By sorting all of them; a long text is no matter of memory."""
    words = zipf_text(200)
    ids, generator = np.unique(words, return_inverse=True)[1], np.random.default_rng(3)
    fits = []
    for _ in range(3):
        order = np.argsort(generator.random((16, 100, 200)), axis=-1)
        curve = [np.mean([len(set(ids[row[:n]])) / n for row in rows]) for n, rows in zip(range(35, 51), order)]
        fits.append(fit_d(np.arange(35, 51), np.array(curve)))
    assert vocd(words, np.random.default_rng(3)) == pytest.approx(np.mean(fits), rel=1e-12)
    tracemalloc.start()
    vocd(zipf_text(2000), np.random.default_rng(0))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5 * 8 * 100 * 2000  # numbers of the samples of one size, not of all sixteen


def test_vocd_is_undefined_for_short_texts_and_where_nothing_is_repeated():
    assert np.isnan(vocd(["a", "b"] * 24, np.random.default_rng(0)))
    assert np.isnan(vocd([str(i) for i in range(80)], np.random.default_rng(0)))


# ------------------------------------------------------------------------------------------------ lists


def test_lists_laid_out_as_lus_are_read(tmp_path):
    path = tmp_path / "list.txt"
    path.write_text("Total words: 1000\n1 the DT 60\n2 run VVB 9\n3 run NN1 8\n4 green AJ0 1\n5 quick JJ 7\n6 slow adj 7\n")
    found = FrequencyList.read(path, size=3)
    # the 60, run 9 + 8, quick 7 before slow 7.
    assert found.common == {"the", "run", "quick"}
    assert found.adjectives == {"green", "quick", "slow"}
    assert found.name == "list.txt"
    path.write_text("the\nof\n")
    with pytest.raises(InputError, match="no line holds"):
        FrequencyList.read(path)
    with pytest.raises(InputError, match="no such file"):
        FrequencyList.read(tmp_path / "none")


def test_wordfreq_has_as_many_words_as_asked_for():
    pytest.importorskip("wordfreq", reason="the extra 'linguistic' is not installed")
    common = wordfreq_list()
    assert len(common) == 2000
    assert {"the", "water", "good"} <= common
    assert not {"statin", "obfuscate", "2"} & common
