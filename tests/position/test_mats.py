"""ATS and MATS against literal loops over occurrences, closed forms, and themselves in pieces."""

import itertools
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.position.formulas.mats_kept import _draws
from pyterrier_debias.position.formulas.mats_pairs import autocorrelate, pair_squares, twins
from pyterrier_debias.position.formulas.mats_result import NORMALISERS, PAIR_SCOPES, SPREADS, TERM_AVERAGES, mats_value
from tests.position.word_vectors import accumulated, collection


def cosine(left, right):
    return sum(a * b for a, b in zip(left, right)) / math.sqrt(sum(a * a for a in left)) / math.sqrt(sum(b * b for b in right))


def mean_fall(at_zero, at_delta):
    return sum(at_zero[t] - sum(found) / len(found) for t, found in at_delta.items()) / len(at_delta)


def brute_force(passages, pair_scope, term_average, min_pairs, max_delta):
    """The definitions, literally: every pair of occurrences, one at a time, in plain Python."""
    occurrences = [
        (word, a, p, [float(x) for x in vector])
        for p, (words, vectors) in enumerate(passages)
        for a, (word, vector) in enumerate(zip(words, vectors))
        if any(vector)
    ]
    cosines = {}
    for (t1, a1, p1, r1), (t2, a2, p2, r2) in itertools.combinations(occurrences, 2):
        if t1 == t2 and (pair_scope == "all" or p1 != p2):
            cosines.setdefault(abs(a1 - a2), {}).setdefault(t1, []).append(cosine(r1, r2))
    vocabulary = {t for t, *_ in occurrences}
    enough = {D: {t for t, f in by.items() if len(f) >= min_pairs} for D, by in cosines.items() if D <= (max_delta or 99)}
    anywhere = set().union(*enough.values())
    rows = {}
    for delta in sorted(cosines):
        by_term = [found for found in cosines[delta].values() if len(found) >= min_pairs]
        if not by_term or (max_delta is not None and delta > max_delta):
            continue
        means = [sum(found) / len(found) for found in by_term]
        overall = sum(means) / len(means)
        at_zero = {t: sum(f) / len(f) for t, f in cosines.get(0, {}).items() if len(f) >= min_pairs}
        both = {t: f for t, f in cosines[delta].items() if len(f) >= min_pairs and t in at_zero}
        if term_average == "paired" and not both:
            continue
        ats = {
            "present": lambda m=means: sum(m) / len(m),
            "all": lambda m=means: sum(m) / len(vocabulary),
            "any": lambda m=means: sum(m) / len(anywhere),
            "paired": lambda b=both, z=at_zero: sum(z.values()) / len(z) - mean_fall(z, b),
        }
        rows[delta] = {
            "ats": ats[term_average](),
            "std_terms": math.sqrt(sum((m - overall) ** 2 for m in means) / len(means)),
            "std_plain": np.std([c for found in by_term for c in found]),
            "std_pairs": math.sqrt(sum(sum((c - overall) ** 2 for c in f) / len(f) for f in by_term) / len(means)),
            "pairs": sum(map(len, both.values() if term_average == "paired" else by_term)),
            "terms": len(both if term_average == "paired" else by_term),
        }
    falls = []
    for delta, row in rows.items():
        if delta and 0 in rows:
            falls.append(rows[0]["ats"] - row["ats"])
        mean = sum(falls) / len(falls) if falls else math.nan
        row["std_deltas"] = math.sqrt(sum((f - mean) ** 2 for f in falls) / len(falls)) if falls else math.nan
    largest = max(rows, default=0)
    paper = sum(falls) / (largest - 1) if falls and largest > 1 else math.nan
    return rows, {"mats_paper": paper, "mats_mean": sum(falls) / len(falls) if falls else math.nan}


CONVENTIONS = list(itertools.product(PAIR_SCOPES, TERM_AVERAGES, (1, 3), (None, 4)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("pair_scope", "term_average", "min_pairs", "max_delta"), CONVENTIONS)
def test_equal_to_brute_force(pair_scope, term_average, min_pairs, max_delta, dtype):
    docnos, passages = collection(seed=1, dtype=dtype)
    result = accumulated(docnos, passages).result(min_pairs=min_pairs, max_delta=max_delta)
    rows, summary = brute_force(passages, pair_scope, term_average, min_pairs, max_delta)
    assert len(rows) > 3
    curve = result.curve(pair_scope, term_average).set_index("delta")
    assert list(curve.index) == list(rows)
    for delta, row in rows.items():
        for name, value in row.items():
            assert curve.loc[delta, name] == pytest.approx(value, abs=1e-9, nan_ok=True), (delta, name)
    ours = result.mats().set_index(["pair_scope", "term_average"]).loc[(pair_scope, term_average)]
    for name, value in summary.items():
        assert ours[name] == pytest.approx(value, abs=1e-9)
    assert ours["std_deltas"] == pytest.approx(rows[max(rows)]["std_deltas"], abs=1e-9)
    assert ours["ats_0"] == pytest.approx(rows[0]["ats"], abs=1e-9)
    apart = [delta for delta in rows if delta]
    assert (ours["deltas"], ours["max_delta"]) == (len(apart), max(apart))
    assert ours["pairs"] == sum(row["pairs"] for row in rows.values())
    counts = len({word for words, _ in passages for word in words}), len(passages), 0
    assert tuple(ours[["terms", "passages", "duplicates"]]) == counts
    for name in ("std_pairs", "std_terms", "std_plain"):
        assert ours[name] == pytest.approx(np.mean([row[name] for delta, row in rows.items() if delta]), abs=1e-9)
    assert ours["spread_from"] == "all pairs"


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 14), st.integers(1, 5), st.integers(0, 12), st.sampled_from(PAIR_SCOPES))
def test_equal_to_brute_force_on_any_collection(seed, passages, words, longest, pair_scope):
    docnos, made = collection(passages, words, longest, d=3, seed=seed)
    result = accumulated(docnos, made).result()
    rows, summary = brute_force(made, pair_scope, "present", 1, None)
    curve = result.curve(pair_scope)
    assert curve["delta"].tolist() == list(rows)
    for name in ("ats", "std_pairs", "std_terms", "std_plain", "pairs", "terms"):
        assert curve[name].tolist() == pytest.approx([row[name] for row in rows.values()], abs=1e-7 if "std" in name else 1e-9)
    ours = result.mats().set_index(["pair_scope", "term_average"]).loc[(pair_scope, "present")]
    assert [ours["mats_paper"], ours["mats_mean"]] == pytest.approx(list(summary.values()), abs=1e-9, nan_ok=True)


def state(accumulator):
    """Everything that a result says, in one frame."""
    result = accumulator.result()
    curves = [result.curve(*way) for way in itertools.product(PAIR_SCOPES, TERM_AVERAGES)]
    counts = [result.vocabulary, result.passages, result.occurrences, result.skipped, result.kept]
    return pd.concat(curves, ignore_index=True), result.mats().drop(columns="reason"), counts


def assert_equal_state(left, right):
    *frames, counts = state(left)
    *others, other_counts = state(right)
    for one, two in zip(frames, others):
        spreads = [name for name in one.columns if name.startswith("std")]
        pd.testing.assert_frame_equal(one.drop(columns=spreads), two.drop(columns=spreads), rtol=0, atol=1e-9)
        # A spread of 0 is the root of a difference of squares: 1e-17 of rounding is 3e-9 of spread.
        pd.testing.assert_frame_equal(one[spreads], two[spreads], rtol=0, atol=1e-7)
        pd.testing.assert_frame_equal(one[spreads] ** 2, two[spreads] ** 2, rtol=0, atol=1e-9)
    assert counts == other_counts


SMALL = {"sample": 5, "memory": 400}


@settings(max_examples=25)
@given(st.data())
def test_shards_merge_in_any_order_to_one_pass(data):
    docnos, passages = collection(data.draw(st.integers(1, 25)), seed=data.draw(st.integers(0, 10**6)), dtype=np.float32)
    # A vector takes 20 bytes: room for all, for some, for hardly any.
    options = data.draw(st.sampled_from([{}, {"memory": 600}, {"memory": 200}, {"sample": 4}, {"sample": 0}, SMALL]))
    whole = accumulated(docnos, passages, **options)
    shard_of = data.draw(st.lists(st.integers(0, 3), min_size=len(docnos), max_size=len(docnos)))
    shards = []
    for shard in range(4):
        one = MATSAccumulator(**options)
        for docno, passage, where in zip(docnos, passages, shard_of):
            if where == shard:
                one.update([docno], [passage])
        shards.append(one)
    shards = data.draw(st.permutations(shards))
    merged = shards[0].merge(shards[1]) if data.draw(st.booleans()) else shards[1].merge(shards[0])
    merged = merged.merge(shards[2].merge(shards[3]))
    assert_equal_state(whole, merged)


@pytest.mark.parametrize("options", [{}, {"sample": 3}, {"sample": 0}, {"memory": 500}])
def test_save_and_load(tmp_path, options):
    docnos, passages = collection(20, dtype=np.float32)
    half = accumulated(docnos[:10], passages[:10], **options)
    half.save(tmp_path / "sums")
    loaded = MATSAccumulator.load(tmp_path / "sums")
    assert_equal_state(half, loaded)
    assert_equal_state(accumulated(docnos, passages, **options), loaded.update(docnos[10:], passages[10:]))
    with pytest.raises(InputError, match="exists already"):
        half.save(tmp_path / "sums")
    MATSAccumulator().save(tmp_path / "empty")
    assert len(MATSAccumulator.load(tmp_path / "empty").result().curve()) == 0


def test_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    save, saved = np.save, []

    def full_disk(path, array):
        if len(saved) == 2:
            raise OSError(28, "No space left on device")
        saved.append(path)
        save(path, array)

    monkeypatch.setattr(np, "save", full_disk)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        accumulated(*collection()).save(tmp_path / "sums")
    assert len(saved) == 2
    assert list(tmp_path.iterdir()) == []


def test_loading_something_else(tmp_path):
    with pytest.raises(InputError, match="no saved MATS sums"):
        MATSAccumulator.load(tmp_path)
    (tmp_path / "meta.json").write_text("{")
    with pytest.raises(InputError, match="no saved MATS sums"):
        MATSAccumulator.load(tmp_path)
    (tmp_path / "meta.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="format 99"):
        MATSAccumulator.load(tmp_path)


def test_position_free_vectors_have_no_mats():
    rng = np.random.default_rng(3)
    vectors = {f"w{i}": rng.normal(size=6) for i in range(8)}
    passages = []
    for _ in range(30):
        words = [f"w{i}" for i in rng.integers(0, 8, 10)]
        passages.append((words, np.stack([vectors[w] for w in words])))
    result = accumulated([f"d{i}" for i in range(30)], passages).result()
    curve = result.curve()
    assert curve["delta"].tolist() == list(range(10))
    assert curve["ats"].to_numpy() == pytest.approx(1.0, abs=1e-12)
    assert (curve[["std_pairs", "std_terms", "std_plain"]] == 0.0).all(axis=None)
    own = result.mats()["term_average"].isin(["present", "paired"])
    assert result.mats()[["mats_paper", "mats_mean"]][own].to_numpy() == pytest.approx(0.0, abs=1e-12)


def test_context_without_position_is_a_null_of_the_paired_average_only():
    # Rare words keep their vector, frequent ones vary with context; rare ones stand only in short passages, so that the words
    # that meet far apart are others than those that meet nearby. No vector knows its position.
    rng = np.random.default_rng(1)
    passages = []
    for p in range(600):
        words, noise = (["rare"], 0.1) if p % 2 else (["often"], 1.0)
        n = 3 if p % 2 else 10
        passages.append((words * n, np.array([1.0, 0, 0, 0]) + rng.normal(scale=noise, size=(n, 4))))
    summary = accumulated([str(p) for p in range(600)], passages).result().mats().set_index(["pair_scope", "term_average"])
    assert summary.loc[("cross_passage", "paired"), "mats_mean"] == pytest.approx(0.0, abs=0.01)
    assert summary.loc[("cross_passage", "present"), "mats_mean"] > 0.2


@pytest.mark.parametrize("pair_scope", PAIR_SCOPES)
def test_planted_position_has_the_mats_of_its_closed_form(pair_scope):
    # r = (word, w cos(a theta), w sin(a theta)): cos(r_a, r_b) = (1 + w^2 cos((a - b) theta)) / (1 + w^2).
    weight, theta, n = 0.7, 0.15, 12
    words = [f"w{i}" for i in range(4)]
    rng = np.random.default_rng(0)
    passages = []
    for _ in range(200):
        drawn = rng.integers(0, 4, n)
        angle = theta * np.arange(n)
        turning = weight * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        passages.append(([words[i] for i in drawn], np.hstack([np.eye(4)[drawn], turning])))
    result = accumulated([str(i) for i in range(200)], passages).result(pair_scope=pair_scope)
    ats = (1 + weight**2 * np.cos(theta * np.arange(n))) / (1 + weight**2)
    assert result.curve()["ats"].to_numpy() == pytest.approx(ats, abs=1e-12)
    assert result.curve()["std_pairs"].max() < 1e-6
    expected = (ats[0] - ats[1:]).sum() / (n - 2)
    row = result.mats().iloc[0]
    assert row["pair_scope"] == pair_scope
    assert row["mats"] == pytest.approx(expected, abs=1e-12)
    assert row["mats"] > 0.1
    assert row["mats_mean"] == pytest.approx(expected * (n - 2) / (n - 1), abs=1e-12)
    assert row["std"] == row["std_deltas"] == pytest.approx((ats[0] - ats[1:]).std(), abs=1e-12)


def test_sampled_spread_is_close_and_means_stay_exact():
    docnos, passages = collection(400, words=4, longest=12, seed=5)
    exact = accumulated(docnos, passages).result()
    sampled = accumulated(docnos, passages, sample=150).result()
    assert (exact.kept, sampled.kept) == (None, 150)
    one, two = exact.curve(), sampled.curve()
    for name in ("ats", "std_terms", "std_deltas", "pairs", "terms"):
        assert two[name].tolist() == pytest.approx(one[name].tolist(), abs=1e-12, nan_ok=True)
    near = one["delta"] < 8
    assert two["std_pairs"][near].tolist() == pytest.approx(one["std_pairs"][near].tolist(), rel=0.1)
    assert two["std_pairs"].tolist() != one["std_pairs"].tolist()
    assert "at most 150" in sampled.mats()["spread_from"][0]


def kept_counts(accumulator, folder):
    """How many occurrences of each word a saved accumulator holds."""
    accumulator.save(folder)
    return np.bincount(np.load(folder / "kept_terms.npy"))


def test_sample_is_as_large_as_it_may_be(tmp_path):
    docnos, passages = collection(60, words=5, d=4, dtype=np.float32)
    full = kept_counts(accumulated(docnos, passages), tmp_path / "all")
    assert full.min() > 40
    assert kept_counts(accumulated(docnos, passages, sample=7), tmp_path / "seven").tolist() == np.minimum(full, 7).tolist()
    # 4 numbers of 4 bytes: room for 100 vectors.
    bounded = accumulated(docnos, passages, memory=1600)
    counts = kept_counts(bounded, tmp_path / "bounded")
    limit = bounded.result().kept
    assert counts.tolist() == np.minimum(full, limit).tolist()
    assert counts.sum() <= 100 < np.minimum(full, 2 * limit).sum()
    assert accumulated(docnos, passages, memory=5 * 16).result().kept == 0


@pytest.mark.parametrize("options", [{}, {"seed": 3}])
def test_sampled_occurrences_have_the_smallest_keys(tmp_path, options):
    docnos, passages = collection(40, words=3, d=4, dtype=np.float32)
    accumulated(docnos, passages, sample=6, **options).save(tmp_path / "sums")
    names, words = {keyed_hash(options.get("seed", 0), "mats", docno): docno for docno in docnos}, {}
    for docno, (own, _) in zip(docnos, passages):
        for position, word in enumerate(own):
            key = np.array([keyed_hash(options.get("seed", 0), "mats", docno)], dtype=np.uint64)
            words.setdefault(word, []).append((int(_draws(key, np.array([position]))[0]), docno, position))
    expected = {(word, *found[1:]) for word, own in words.items() for found in sorted(own)[:6]}
    known = json.loads((tmp_path / "sums" / "words.json").read_text())
    kept = [np.load(tmp_path / "sums" / f"kept_{name}.npy").tolist() for name in ("terms", "passages", "positions")]
    assert {(known[term], names[passage], position) for term, passage, position in zip(*kept)} == expected
    assert len(kept[0]) == len(expected)


def test_without_a_sample_there_is_no_spread_over_pairs():
    result = accumulated(*collection(), sample=0).result()
    assert result.curve()["std_pairs"].isna().all()
    assert result.curve()["std_terms"].notna().all()
    assert result.mats()["spread_from"].unique().tolist() == ["not computed"]


def test_zero_vectors_are_skipped_and_keep_their_place():
    vectors = np.array([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    passages = [(["a", "a", "a"], vectors), (["a"], vectors[:1])]
    result = accumulated(["d1", "d2"], passages).result()
    assert (result.skipped, result.occurrences, result.vocabulary) == (1, 3, 1)
    assert result.curve()["delta"].tolist() == [0, 2]
    assert result.curve()["ats"].tolist() == pytest.approx([1.0, math.sqrt(0.5)])


def test_huge_and_tiny_vectors():
    passages = [(["a", "a"], np.array([[1e300, 1e300], [1e-300, 0.0]])), (["a"], np.array([[3e-310, 3e-310]]))]
    assert accumulated(["d1", "d2"], passages).result().curve()["ats"].tolist() == pytest.approx([1.0, math.sqrt(0.5)])


REASONS = [
    ([], "no word occurs in enough pairs"),
    ([["a", "b"], ["c"]], "no word occurs in enough pairs"),
    ([["a", "b"], ["b", "a"]], "ATS(0) is not defined"),
    ([["a", "b"], ["a", "b"]], "no word stands at two different positions"),
    ([["a", "a"], ["a", "a"]], "only one distance has a pair"),
]


@pytest.mark.parametrize(("texts", "reason"), REASONS)
def test_undefined_mats_is_nan_with_a_reason(texts, reason):
    passages = [(words, np.ones((len(words), 2))) for words in texts]
    row = accumulated([str(i) for i in range(len(texts))], passages).result().mats().iloc[0]
    assert np.isnan(row["mats"])
    assert reason in row["reason"]
    assert np.isnan(row["mats_mean"]) == ("only one distance" not in reason)


def test_pairs_within_a_passage_depend_on_the_scope():
    result = accumulated(["d"], [(["a", "b", "a"], np.ones((3, 2)))]).result()
    assert len(result.curve("cross_passage")) == 0
    assert result.curve("all")[["delta", "pairs"]].values.tolist() == [[2, 1]]


def test_max_delta_cuts_the_curve():
    docnos, passages = collection(30)
    result = accumulated(docnos, passages).result(max_delta=1)
    assert result.curve()["delta"].tolist() == [0, 1]
    assert np.isnan(result.mats()["mats_paper"]).all()
    assert result.mats()["mats_mean"].notna().all()
    assert accumulated(docnos, passages).result(max_delta=99).mats()["max_delta"].max() < 99


@pytest.mark.parametrize("std", SPREADS)
@pytest.mark.parametrize("normaliser", NORMALISERS)
def test_the_chosen_convention_comes_first(std, normaliser):
    result = accumulated(*collection()).result(std=std, normaliser=normaliser, pair_scope="all", term_average="all")
    summary = result.mats()
    first = summary.iloc[0]
    assert (first["pair_scope"], first["term_average"]) == ("all", "all")
    # Distances 0 to 8 all have a pair: the five normalisers are one sum by 7, 8 or 1.
    assert first["deltas"] == first["max_delta"] == 8
    divisor = {"paper": 7, "count_less_one": 7, "max": 8, "count": 8, "sum": 1}[normaliser]
    assert first["mats"] == pytest.approx(8 * first["mats_mean"] / divisor)
    assert first["mats_paper"] == pytest.approx(8 * first["mats_mean"] / 7)
    assert first["std"] == first[f"std_{std}"]
    assert not summary.duplicated(["pair_scope", "term_average"]).any()
    assert len(summary) == 8
    curve = result.curve()
    assert curve["std"].equals(curve[f"std_{std}"].rename("std"))


WRONG = [{"std": "words"}, {"pair_scope": "none"}, {"max_delta": 0}, {"max_delta": 1.5}, {"ddof": -1}, {"ddof": 0.5}]


@pytest.mark.parametrize("convention", [*WRONG, {"min_pairs": 0}, {"min_pairs": 1.5}])
def test_unknown_conventions(convention):
    sums = accumulated(*collection())
    with pytest.raises(InputError, match=next(iter(convention))):
        sums.result(**convention)
    with pytest.raises(InputError, match=next(iter(convention))):
        sums.result().under(**convention)


@pytest.mark.parametrize("option", [{"min_pairs": 3}, {"passages": 1}, {"kept": 0}, {"deltas": 2}])
def test_what_the_sums_were_made_with_cannot_be_chosen_afterwards(option):
    """Sums over words with one pair or more, under another ``min_pairs``, were the same figures with a wrong label."""
    sums = accumulated(*collection())
    with pytest.raises(InputError, match=rf"there is no convention '{next(iter(option))}'; use pair_scope, .*, ddof, max_delta"):
        sums.result().under(**option)
    assert len(sums.result(min_pairs=3).curve()) < len(sums.result().curve())


def test_mats_value_leaves_distances_without_pairs_out():
    # Falls of 1/2 at distances 1 and 3: their sum is 1, max D is 3, and there are two.
    gap = np.array([1.0, 0.5, np.nan, 0.5, np.nan])
    expected = {"paper": 1 / 2, "max": 1 / 3, "count": 1 / 2, "count_less_one": 1.0, "sum": 1.0}
    assert {name: mats_value(gap, name) for name in NORMALISERS} == {name: (value, "") for name, value in expected.items()}
    # The issue's: distances 1 and 4 by max D - 1 = 3, not by 1; distance 2 alone has max D - 1 = 1.
    assert mats_value(np.array([1.0, 0.354, np.nan, np.nan, 0.353]))[0] == pytest.approx(1.293 / 3)
    assert mats_value(np.array([1.0, np.nan, 0.25])) == (0.75, "")
    assert mats_value(np.array([1.0, 0.25]), "max") == (0.75, "")
    for name in ("paper", "count_less_one"):
        value, reason = mats_value(np.array([1.0, 0.25]), name)
        assert np.isnan(value) and "only one distance" in reason


def test_standard_deviations_with_ddof():
    docnos, passages = collection(30, seed=2)
    result = accumulated(docnos, passages).result(ddof=1)
    zero, one = result.under(ddof=0).curve(), result.curve()
    for name, n in (("std_terms", zero["terms"]), ("std_plain", zero["pairs"]), ("std_deltas", zero["delta"])):
        expected = np.where(n > 1, zero[name] * np.sqrt(n / np.maximum(n - 1, 1)), np.nan)
        assert one[name].tolist() == pytest.approx(expected.tolist(), nan_ok=True)
    assert one["std_pairs"].tolist() == zero["std_pairs"].tolist()
    falls = zero["ats"][0] - zero["ats"][1:]
    assert result.mats()["std_deltas"][0] == pytest.approx(falls.std(ddof=1))


def test_paired_rows_count_the_pairs_of_paired_words_only():
    # "a" meets itself at distances 0 and 1; "b" at distance 1 only, three times.
    passages = [(["a", "b"], np.eye(2)), (["a", "a", "b"], np.ones((3, 2))), (["c", "c", "c", "b"], np.ones((4, 2)))]
    result = accumulated(["1", "2", "3"], passages).result()
    at_one = {average: result.curve(term_average=average).set_index("delta").loc[1] for average in ("present", "paired")}
    # Of a: (1; 2nd) ; of b: (2nd; 3rd), (3rd; 4th).
    assert at_one["present"][["pairs", "terms"]].tolist() == [3, 2]
    assert at_one["paired"][["pairs", "terms"]].tolist() == [1, 1]


def test_draws_are_splitmix64():
    def mix(passage, position):
        """The finaliser, in whole numbers that do not overflow."""
        mask = 2**64 - 1
        z = (passage + position * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    rng = np.random.default_rng(0)
    passages, positions = rng.integers(0, 2**64 - 1, 50, dtype=np.uint64), np.arange(50)
    assert _draws(passages, positions).tolist() == [mix(int(p), int(a)) for p, a in zip(passages, positions)]
    # The first output of splitmix64 from seed 0, as published with the generator.
    assert _draws(np.array([0], dtype=np.uint64), np.array([1])).tolist() == [0xE220A8397B1DCDAF]


@pytest.mark.parametrize("n", [1, 2, 40])
def test_squares_by_pairs_and_by_moments_agree(n):
    rng = np.random.default_rng(n)
    positions = rng.integers(0, 6, n)
    units = rng.normal(size=(n, 7))
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    expected = np.zeros(6)
    for i, j in itertools.combinations(range(n), 2):
        expected[abs(positions[i] - positions[j])] += (units[i] @ units[j]) ** 2
    for moments in (True, False, None):
        assert pair_squares(positions, units, 6, moments=moments) == pytest.approx(expected, abs=1e-10)


def test_pickles_of_earlier_versions_open():
    """They name what sums are kept in by the module of the accumulator."""
    whole = accumulated(*collection(5, words=30))
    content = pickle.dumps(whole, protocol=2).replace(b"formulas.mats_kept\n", b"formulas.mats\n_")
    assert b"formulas.mats\n_KeyedSums" in content and b"formulas.mats\n_Grown" in content
    assert_equal_state(whole, pickle.loads(content))


def test_blocks_change_nothing(monkeypatch):
    docnos, passages = collection(25, words=30)
    whole = accumulated(docnos, passages)
    for module in ("mats", "mats_kept", "mats_pairs"):
        monkeypatch.setattr(f"pyterrier_debias.position.formulas.{module}.BLOCK", 40)
    assert_equal_state(whole, accumulated(docnos, passages))


def repeated(n, d=8, seed=0):
    """One word n times, and vectors that turn with its position."""
    angle = np.linspace(0, 3, n)[:, None] * np.arange(1, d + 1)
    return ["w"] * n, np.cos(angle) + np.random.default_rng(seed).normal(scale=0.3, size=(n, d))


def test_a_word_that_one_passage_repeats_is_summed_as_if_pair_by_pair(monkeypatch):
    # Above and below the number from which pairs are no longer listed.
    words, vectors = repeated(300)
    passages = [(words, vectors), (["v", "w", "w"], repeated(3, seed=1)[1]), (words[:100], repeated(100, seed=2)[1])]
    one = accumulated(["a", "b", "c"], passages)
    monkeypatch.setattr("pyterrier_debias.position.formulas.mats_pairs._MANY", 10**9)
    assert_equal_state(accumulated(["a", "b", "c"], passages), one)
    rows, _ = brute_force(passages, "all", "present", 1, None)
    curve = one.result(pair_scope="all").curve()
    for name in ("ats", "std_pairs", "std_plain", "pairs"):
        assert curve[name].tolist() == pytest.approx([row[name] for row in rows.values()], abs=1e-7)


def test_a_passage_of_40_000_repeated_words_ends(monkeypatch):
    monkeypatch.setattr("pyterrier_debias.position.formulas.mats._WORK", 5 * 10**9)
    words, vectors = repeated(40_000)
    result = accumulated(["a"], [(words, vectors)]).result(pair_scope="all")
    curve = result.curve().set_index("delta")
    assert curve["pairs"].tolist() == list(range(39_999, 0, -1))
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    for delta in (1, 777, 39_000, 39_999):
        assert curve["ats"][delta] == pytest.approx((units[delta:] * units[:-delta]).sum(axis=1).mean(), abs=1e-8)
    # The spread comes from so many occurrences as can be looked at; which are drawn from all of them.
    assert result.kept == 4096 and "at most 4096 occurrences" in result.mats()["spread_from"][0]
    cosines = (units[777:] * units[:-777]).sum(axis=1)
    assert curve["std_pairs"][777] == pytest.approx(cosines.std(), rel=0.05)


def test_the_bound_does_not_depend_on_shards(monkeypatch):
    monkeypatch.setattr("pyterrier_debias.position.formulas.mats._WORK", 50_000)
    docnos, passages = collection(30, words=2, longest=40, seed=4)
    whole = accumulated(docnos, passages)
    assert whole.result().kept == 16
    parts = [accumulated(docnos[part], passages[part]) for part in (slice(20, 30), slice(0, 5), slice(5, 20))]
    assert_equal_state(whole, parts[0].merge(parts[1]).merge(parts[2]))
    # It bounds what is read, not what is kept.
    monkeypatch.undo()
    assert whole.result().kept is None


def test_transform_and_product_agree():
    rng = np.random.default_rng(3)
    positions = np.sort(rng.choice(9_000, 2_500, replace=False))
    rows = rng.normal(size=(2_500, 3))
    found, distance = autocorrelate(positions, rows, 9_000), np.abs(positions[:, None] - positions)
    expected = np.bincount(distance.ravel(), (rows @ rows.T).ravel(), 9_000)
    assert found == pytest.approx(expected, abs=1e-8)


def test_sums_that_a_transform_would_round_are_multiplied(monkeypatch):
    """Rounding of a transform goes with the sum of all squares, not with the entry: one of 1e12 would drown what is near 1."""

    def transform(*_):
        raise AssertionError("not exact")

    positions, rows = np.arange(1_500), np.ones((1_500, 1))
    rows[0] = 1e6
    monkeypatch.setattr("pyterrier_debias.position.formulas.mats_pairs._by_transform", transform)
    assert autocorrelate(positions, rows, 1_500)[[0, 1, 1_499]].tolist() == [1e12 + 1_499, 2 * (1e6 + 1_498), 2e6]
    with pytest.raises(AssertionError, match="not exact"):
        autocorrelate(positions, np.ones((1_500, 1)), 1_500)


def test_autocorrelation_against_fourier():
    rng = np.random.default_rng(2)
    dense = rng.normal(size=(17, 3))
    spectrum = np.fft.rfft(dense, 64, axis=0)
    expected = np.fft.irfft((np.abs(spectrum) ** 2).sum(axis=1), 64)[:17] * np.where(np.arange(17) > 0, 2, 1)
    assert autocorrelate(np.arange(17), dense, 17) == pytest.approx(expected)


@given(st.lists(st.integers(0, 4), max_size=30))
def test_twins_are_all_pairs_of_a_group(groups):
    left, right = twins(np.array(groups, dtype=np.int64))
    found = sorted(tuple(sorted(pair)) for pair in zip(left.tolist(), right.tolist()))
    assert found == [(i, j) for i, j in itertools.combinations(range(len(groups)), 2) if groups[i] == groups[j]]


BAD = [
    (["a"], [(["x", "y"], np.ones((1, 2)))], "2 words and vectors of shape"),
    (["a"], [(["x"], np.ones(2))], "shape"),
    (["a", "a"], [(["x"], np.ones((1, 2)))] * 2, "different docnos"),
    (["a", "b"], [(["x"], np.ones((1, 2))), (["x"], np.ones((1, 3)))], "3 dimensions, but earlier passages have 2"),
    (["a"], [(["x"], np.array([[np.nan, 1.0]]))], "NaN or infinity"),
    (["a"], [(["x"], np.array([[1j, 1.0]]))], "holds complex numbers"),
    (["a"], [(["x"], np.array([["1", "2"]]))], "of type <U1"),
    (["a"], [([], np.ones((2, 2)))], "0 words and vectors of shape"),
]


@pytest.mark.parametrize(("docnos", "passages", "message"), BAD)
def test_bad_passages(docnos, passages, message):
    with pytest.raises(InputError, match=message):
        MATSAccumulator().update(docnos, passages)


def test_accumulators_of_different_options_do_not_merge():
    with pytest.raises(InputError, match="cannot be merged"):
        MATSAccumulator(sample=2).merge(MATSAccumulator())
    one, two = accumulated(*collection(d=3)), accumulated(*collection(d=4))
    with pytest.raises(InputError, match="of 3 and of 4 dimensions"):
        one.merge(two)
    with pytest.raises(InputError, match="sample=1"):
        MATSAccumulator(sample=1)
