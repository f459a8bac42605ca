"""AnswerPositions: where answers are found, how rotation moves them, what is tested about them."""

import itertools
import json
import random
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import AnswerPositions, Collection, InputError, RotatePassages
from pyterrier_debias.core import plots
from pyterrier_debias.core.text import TOKENISERS
from pyterrier_debias.data.answers import read_qna, read_spans, read_squad
from pyterrier_debias.position.data import rotation as rotating
from pyterrier_debias.position.data.answers import Positions
from tests.position.toy import collection

PLACES = ["matched", "position", "length", "n_words"]


def rows(text, *answers, **columns):
    return pd.DataFrame({"docno": "d1", "text": text, "answer": list(answers), **columns})


def places(frame, stage=None):
    out = (stage or AnswerPositions())(frame)
    return out[out["matched"]]["position"].tolist()


# ---- the mathematics


@settings(max_examples=300)
@given(st.text(st.sampled_from("aB.,$ \t\n\u00a0é"), max_size=40), st.sampled_from(["whitespace", "regex_word"]))
def test_word_spans_are_where_regular_expressions_find_the_words(text, name):
    pattern = {"whitespace": r"\S+", "regex_word": r"\w+"}[name]
    assert rotating.word_spans(text, TOKENISERS[name](text)) == [m.span() for m in re.finditer(pattern, text)]


def test_word_spans_of_blingfire():
    blingfire = pytest.importorskip("blingfire")
    text = 'He said "Don\'t" to the naïve fox, e-mail http://a.b/c?d=1 … “quoted” 日本語 ½'
    words, spans = blingfire.text_to_words_with_offsets(text)
    ours = rotating.word_spans(text, words.split())
    assert ours == spans


def test_word_spans_need_pieces_of_the_text():
    with pytest.raises(InputError, match="'house'"):
        rotating.word_spans("two houses, one mouse", ["two", "house", "house"])


@settings(max_examples=200)
@given(st.lists(st.sampled_from(["a", "b"]), max_size=8), st.lists(st.sampled_from(["a", "b"]), max_size=3))
def test_occurrences_by_brute_force(words, sought):
    expected = [i for i in range(len(words)) if sought and "".join(words)[i:].startswith("".join(sought))]
    assert rotating.occurrences(words, sought) == expected


@pytest.mark.parametrize("n", [1, 2, 3, 7, 10, 33])
@pytest.mark.parametrize("bins", [2, 5, 10, 20])
def test_bin_shares_by_enumeration(n, bins):
    for length in {1, min(2, n), n}:
        starts = range(n - length + 1)
        counts = [sum(b / bins <= i / n < (b + 1) / bins - 1e-12 for i in starts) for b in range(bins)]
        np.testing.assert_allclose(rotating.bin_shares(n, bins, length), np.array(counts) / len(starts))
        assert all(rotating.bin_shares(n, bins, length)[rotating.bin_of(i, n, bins)] > 0 for i in starts)


def test_rotation_null_by_enumeration():
    """Two passages of 3 and 4 words, two answers in the second: all 12 pairs of offsets, against the drawn frequencies."""
    position, n, passage = np.array([0, 1, 2]), np.array([3, 4, 4]), np.array([0, 1, 1])
    exact = {}
    for first, second in itertools.product(range(3), range(4)):
        bins = [int(2 * ((p - o) % m) / m) for p, o, m in zip(position, (first, second, second), n)]
        counts = (bins.count(0), bins.count(1))
        exact[counts] = exact.get(counts, 0) + 1 / 12
    drawn = rotating.rotation_null(position, n, passage, 2, resamples=12_000, seed=0)
    seen = {k: (drawn == k).all(1).sum() for k in exact}
    assert sum(seen.values()) == 12_000
    assert scipy.stats.chisquare(list(seen.values()), [12_000 * exact[k] for k in seen]).pvalue > 0.001
    other = rotating.rotation_null(position, n, passage, 2, resamples=12_000, seed=0, block=12_000)
    np.testing.assert_array_equal(drawn, other)


# ---- finding


def test_marked_answers_are_counted_where_they_are_marked():
    text = "It costs  $15, or 15 in all"
    frame = rows(text, "15", "15", "or 15", start=[11, 18, 15], end=[13, 20, 20])
    out = AnswerPositions()(frame)
    assert out[["matched", "position", "length", "n_words"]].values.tolist() == [
        [True, 2, 1, 7], [True, 4, 1, 7], [True, 3, 2, 7],
    ]  # fmt: skip
    assert out["relative"].tolist() == [2 / 7, 4 / 7, 3 / 7]
    without_end = AnswerPositions()(frame.drop(columns="end"))
    pd.testing.assert_frame_equal(without_end, out)


@settings(max_examples=200)
@given(st.data())
def test_marked_words_by_construction(data):
    words = data.draw(st.lists(st.text(st.sampled_from("ab,$é"), min_size=1, max_size=4), min_size=1, max_size=12))
    blanks = [data.draw(st.sampled_from([" ", "  ", "\n", "\u00a0 "])) for _ in words]
    first = data.draw(st.integers(0, len(words) - 1))
    length = data.draw(st.integers(1, len(words) - first))
    text = "".join(word + blank for word, blank in zip(words, blanks))
    starts = [sum(map(len, words[:i])) + sum(map(len, blanks[:i])) for i in range(len(words))]
    start, end = starts[first], starts[first + length - 1] + len(words[first + length - 1])
    out = AnswerPositions()(rows(text, text[start:end], start=start, end=end))
    assert out[PLACES].values.tolist() == [[True, first, length, len(words)]]


def test_every_match_counts_and_punctuation_does_not():
    text = "Paris, says he, is not (Paris) but PARIS!"
    assert places(rows(text, "paris")) == [0, 5, 7]
    assert places(rows(text, "paris"), AnswerPositions(case="keep")) == []
    assert places(rows(text, "Paris"), AnswerPositions(case="keep")) == [0, 5]
    assert places(rows(text, "paris"), AnswerPositions(match="tokens")) == []
    assert places(rows(text, "Paris, says"), AnswerPositions(match="tokens")) == [0]
    assert places(rows("a a a", "a a")) == [0, 1]


def test_the_first_match_alone_is_an_option():
    text = "Paris it is: Paris, and not Lyon; Paris!"
    known = rows(text, "paris", "lyon", "rome")
    assert AnswerPositions()(known)["position"].tolist() == [0, 3, 7, 6, -1]
    first = AnswerPositions(repeats="first")
    assert first(known)["position"].tolist() == [0, 6, -1]
    marked = known.iloc[:2].assign(start=[13, 28], end=[18, 32])
    assert first(marked).equals(AnswerPositions()(marked))  # where an answer was marked, that is where it is


def test_unused_aliases_are_told_from_unanswered_passages():
    """q1 has three names for one thing: d1 gives one of them, d2 two, d3 none; q2's only answer is in none of its passages."""
    names = ["NYC", "New York", "Big Apple"]
    known = pd.DataFrame({
        "qid": ["q1", "q1", "q1", "q2"], "docno": ["d1", "d2", "d3", "d1"], "answers": [names, names, names, ["Rome"]],
        "text": ["in NYC", "NYC or New York or NYC", "in Boston", "in NYC"],
    })  # fmt: skip
    found = AnswerPositions().measure(known).summary()
    assert (found["omitted"], found["omitted_pairs"]) == (2 / 4, 7 / 10)  # Big Apple and Rome
    assert (found["unanswered_passages"], found["unused_aliases"]) == (2 / 4, 3 / 6)


def test_blingfire_tokens():
    pytest.importorskip("blingfire")
    stage = AnswerPositions(tokeniser="blingfire", match="tokens")
    out = stage(rows("Don't go to Paris, go to Rome.", "paris", "rome", "do"))
    assert out[PLACES].values.tolist() == [[True, 4, 1, 10], [True, 8, 1, 10], [True, 0, 1, 10]]


def test_omitted_answers_keep_a_row():
    out = AnswerPositions()(rows("one two three", "four", "", "?!", "two", kept=list("abcd")))
    assert out["matched"].tolist() == [False, False, False, True]
    assert out["kept"].tolist() == list("abcd")
    omitted = out[~out["matched"]]
    assert (omitted[["start", "end", "position", "rotated_position"]] == -1).all(axis=None)
    assert omitted[["relative", "rotated_relative"]].isna().all(axis=None)
    assert not omitted["cut"].any()
    assert AnswerPositions()(rows("", "four"))[PLACES].values.tolist() == [[False, -1, 0, 0]]


def test_a_marked_blank_has_no_place():
    assert places(rows("a  b", " ", start=1, end=2)) == []


def test_answers_that_are_not_where_they_are_marked_are_searched_for(caplog):
    """Rotation, or a title before the text, moves an answer away from its offsets."""
    text = "It is cold. The capital is Paris, they say."
    marked = rows(text, "paris", "It is", start=[27, 0], end=[32, 5])
    assert AnswerPositions()(marked)["position"].tolist() == [6, 0]
    assert not caplog.text
    for change in (RotatePassages(offset=3), pt.apply.text(lambda row: f"Cities. {row['text']}")):
        moved = change(marked)
        found = AnswerPositions()(moved)
        assert [moved["text"][0][s:e] for s, e in zip(found["start"], found["end"])] == ["Paris", "It is"]
        assert "2 of 2 answers are not at their offsets" in caplog.text
        caplog.clear()
    agreed = pd.concat([marked.iloc[:1], marked.iloc[:1].assign(start=1, end=6)])
    assert AnswerPositions()(agreed)["position"].tolist() == [6, 6]
    both_wrong = pd.concat([agreed.iloc[1:], agreed.iloc[1:].assign(start=2, end=7)])
    assert AnswerPositions()(both_wrong)["position"].tolist() == [6]


@pytest.mark.parametrize("answer", ["ISN'T  so", "isn\u2019t so.", "isn't\nso", "isn\x92't so"])
def test_offsets_are_those_of_an_answer_in_another_form(answer, caplog):
    frame = rows("It isn't so, he said; it isn't so.", answer, start=25, end=33)
    assert places(frame) == [6]
    assert not caplog.text


def test_agreeing_annotators_gave_one_answer():
    frame = rows("to be or not to be", "be", "be", "be", "or", start=[3, 3, 16, 6], end=[5, 5, 18, 8])
    assert AnswerPositions()(frame)["position"].tolist() == [1, 5, 2]


def test_lists_of_answers():
    frame = pd.DataFrame({
        "qid": ["q1", "q2", "q3"], "docno": ["d1", "d2", "d3"], "text": ["a b c", "d e f", "g"],
        "answers": [["b", "z"], [], np.array(["g"], dtype=object)],
    })  # fmt: skip
    out = AnswerPositions()(frame)
    assert out[["qid", "answer", "position"]].values.tolist() == [["q1", "b", 1], ["q1", "z", -1], ["q3", "g", 0]]


def test_lists_of_places_go_with_lists_of_answers():
    """A place beside several answers put all of them there."""
    frame = pd.DataFrame({"docno": ["d1"], "text": ["He is in Paris today and Paris it is"], "answers": [["Paris", "in Paris"]]})

    def found(**places):
        given = frame.assign(**{name: pd.Series([place], dtype=object) for name, place in places.items()})
        return AnswerPositions()(given)[["answer", "start", "end", "position"]].values.tolist()

    expected = [["Paris", 9, 14, 3], ["in Paris", 6, 14, 2]]
    assert found(start=[9, 6]) == found(start=[9, 6], end=[14, 14]) == found(start=np.array([9, 6])) == expected
    searched = [["Paris", 9, 14, 3], ["Paris", 25, 30, 6], ["in Paris", 6, 14, 2]]
    assert found(start=-1) == found(start=None, end=-1) == found() == searched
    assert found(start=[9, -1]) == [expected[0], searched[2]]
    for marked, told in (({"start": 9}, "start' is 9"), ({"start": [9]}, r"start' is \[9\]"), ({"end": 3}, "end' is 3")):
        with pytest.raises(InputError, match=rf"column '{told} at row 0 \(docno='d1'\), which has 2 answers; give a list"):
            found(**marked)
    one = frame.assign(answers=[["Paris"]], start=9)
    assert AnswerPositions()(one)["start"].tolist() == [9]
    none = pd.concat([one, frame.assign(answers=[[]], start=-1), frame.assign(answers=None)])
    assert AnswerPositions()(none)["start"].tolist() == [9]


def test_answers_of_a_collection_may_bring_texts():
    known = collection(3, queries=3, depth=3)
    texts = known.get_corpus().set_index("docno")["text"]
    more = collection(3, queries=3, depth=3)
    more.answers = known.get_answers().assign(text=known.get_answers()["docno"].map(texts))
    assert AnswerPositions().measure(more).summary() == AnswerPositions().measure(known).summary()


def test_answers_as_squad_has_them_on_the_hub():
    """A mapping of texts and of the places where they begin; what is marked is not searched for."""
    text = "Paris, text, Paris"
    held = [
        {"text": ["Paris"], "answer_start": [13]},
        {"text": np.array(["Paris", "text"], dtype=object), "answer_start": np.array([0, 7], dtype=np.int32)},
        {"text": [], "answer_start": []},
        {"text": ["Rome"]},
        ["text"],
        None,
    ]
    frame = pd.DataFrame({"qid": list("abcdef"), "docno": "d1", "text": text, "answers": held})
    out = AnswerPositions()(frame)
    expected = [["a", "Paris", 2], ["b", "Paris", 0], ["b", "text", 1], ["d", "Rome", -1], ["e", "text", 1]]
    assert out[["qid", "answer", "position"]].values.tolist() == expected
    # A start of one's own counts.
    assert AnswerPositions()(frame.iloc[:1].assign(start=0))["position"].tolist() == [0]
    # Without places the texts are searched for.
    only = frame.iloc[:2].assign(answers=[{"text": ["Paris"]}, {"text": ["text"]}])
    assert AnswerPositions()(only)["position"].tolist() == [0, 2, 1]


@pytest.mark.parametrize(
    "value",
    [{"value": ["Paris"]}, {"text": "Paris"}, {"text": ["a"], "answer_start": [1, 2]}, {"text": ["a"], "answer_start": 1}, {}],
)
def test_other_mappings_are_refused(value):
    frame = pd.DataFrame({"qid": ["a", "b"], "docno": "d1", "text": "Paris", "answers": [["Paris"], value]})
    with pytest.raises(InputError, match=r"AnswerPositions: column 'answers' .* row 1 \(qid='b', docno='d1'\).*a list of texts"):
        AnswerPositions()(frame)


def test_columns_and_empty_frame():
    frame = rows("one two", "two", qid="q1", query="?", start=4, end=7)
    expected = ["docno", "answer", "qid", "query", "start", "end", "matched", "position", "length", "n_words", "relative"]
    expected += ["rotated_position", "rotated_relative", "cut"]
    assert list(AnswerPositions()(frame).columns) == list(AnswerPositions()(frame.head(0)).columns) == expected
    assert pt.inspect.transformer_inputs(AnswerPositions()) == [["docno", "text", "answer"], ["docno", "text", "answers"]]


# ---- rotation


def passages(seed, count=60):
    """Passages of distinct words, some of them ending sentences, with an answer marked in each."""
    rng = random.Random(seed)
    for i in range(count):
        n = rng.randint(1, 15)
        words = [f"w{j}{rng.choice(['', '', ',', '.'])}" for j in range(n)]
        first = rng.randrange(n)
        length = rng.randint(1, n - first)
        start = len(" ".join(words[:first])) + (first > 0)
        answer = " ".join(words[first : first + length])
        yield f"q{i % 3}", f"d{i}", " ".join(words), answer, start, start + len(answer)


@pytest.mark.parametrize("rotation", [
    None, RotatePassages(scope="pair", seed=4), RotatePassages(unit="sentence"), RotatePassages(allow_identity=False, draw=2),
])  # fmt: skip
def test_rotated_positions_are_where_rotated_text_has_them(rotation):
    frame = pd.DataFrame(passages(1), columns=["qid", "docno", "text", "answer", "start", "end"])
    out = AnswerPositions(rotation=rotation)(frame)
    texts = (rotation or RotatePassages())(frame)["text"]
    for row, text, answer in zip(out.itertuples(), texts, frame["answer"]):
        assert text.split()[row.rotated_position] == answer.split()[0]
        whole = rotating.occurrences(text.split(), answer.split())
        assert row.cut == (not whole)
    matched_again = AnswerPositions(match="tokens")((rotation or RotatePassages())(frame).drop(columns=["start", "end"]))
    assert (matched_again["matched"] == ~out["cut"]).all()
    assert out["cut"].any() and out["rotated_position"].ne(out["position"]).any()


def test_rotation_by_other_words_than_are_counted():
    """The cut is handed over in characters: blingfire's tokens rotate, blanks count."""
    pytest.importorskip("blingfire")
    text = "Don't stop, fox, at one"
    for draw in range(12):
        rotation = RotatePassages(tokeniser="blingfire", draw=draw)
        out = AnswerPositions(rotation=rotation)(rows(text, "fox")).iloc[0]
        cut = rotation.rotator()(text, "d1")[1]
        before = [0, 1, 1, 2, 2, 3, 3, 4][cut]  # words by blanks that begin before: Do n't stop , fox , at one
        assert out["rotated_position"] == (2 - before) % 5


# ---- datasets


QNA = [
    {
        "query_id": 1, "query": "capital of france", "query_type": "LOCATION",
        "answers": ["Paris", "The capital is called Paris."],
        "passages": [
            {"is_selected": 1, "passage_text": "It is Paris, and Paris it stays."},
            {"is_selected": 0, "passage_text": "Paris Paris Paris."},
            {"is_selected": 1, "passage_text": "France is ruled from its largest city."},
        ],
    },
    {
        "query_id": 2, "query": "how long", "query_type": "NUMERIC", "answers": ["six weeks", "About six weeks or so"],
        "passages": [{"is_selected": 1, "passage_text": "Most heal in six weeks."}, {"is_selected": 0, "passage_text": "No."}],
    },
    {
        "query_id": 3, "query": "why", "query_type": "DESCRIPTION", "answers": ["No Answer Present."],
        "passages": [{"is_selected": 0, "passage_text": "No answer present."}],
    },
    {
        "query_id": 4, "query": "who", "query_type": "PERSON", "answers": ["Nobody knows that yet"],
        "passages": [{"is_selected": 1, "passage_text": "This is not known."}],
    },
]  # fmt: skip


def test_free_text_answers_of_selected_passages(tmp_path):
    """The paper's way: all matches in selected passages; answers without any are omitted and counted."""
    path = tmp_path / "qna.jsonl"
    path.write_text("\n".join(map(json.dumps, QNA)))
    positions = AnswerPositions().measure(read_qna(path), "QnA")
    found = positions.matches[["qid", "docno", "answer", "position", "n_words"]]
    assert found.values.tolist() == [
        ["1", "1-0", "Paris", 2, 7], ["1", "1-0", "Paris", 4, 7], ["2", "2-0", "six weeks", 3, 5],
    ]  # fmt: skip
    summary = positions.summary()
    assert (summary["answers"], summary["matches"], summary["passages"]) == (5, 3, 2)
    assert summary["omitted"] == 3 / 5  # the long answers of queries 1 and 2, and that of 4
    assert summary["omitted_pairs"] == 5 / 7
    assert summary["mean_relative"] == pytest.approx((2 / 7 + 4 / 7 + 3 / 5) / 3)
    assert summary["mean_uniform"] == pytest.approx((3 / 7 + 3 / 7 + 2 / 5) / 3)
    assert summary["mean_placed"] == pytest.approx((3 / 7 + 3 / 7 + 3 / 10) / 3)


def test_dataset_without_answers_is_named():
    toy = Collection(
        "toy", corpus=pd.DataFrame({"docno": ["d"], "text": ["t"]}), qrels={},
        topics={"t": pd.DataFrame({"qid": ["q"], "query": ["q"]})},
    )  # fmt: skip
    with pytest.raises(InputError, match="toy has no answers"):
        AnswerPositions().measure(toy)


# ---- figures and tests


def planted(passages=200, answers=1, *, n=(8, 60), strength=0.0, seed=0, tied=False):
    """A frame as AnswerPositions returns it: answers begin early with some strength; tied ones stand side by side."""
    rng = np.random.default_rng(seed)
    records = []
    for d in range(passages):
        words = int(rng.integers(*n))
        start = int(rng.integers(words) * (rng.random() if rng.random() < strength else 1))
        for a in range(answers):
            position = (start + a) % words if tied else int(rng.integers(words))
            position = start if answers == 1 else position
            offset = int(rng.integers(words))
            records.append((f"q{d}", f"d{d}", f"a{a}", True, position, 1, words, (position - offset) % words))
    columns = ["qid", "docno", "answer", "matched", "position", "length", "n_words", "rotated_position"]
    frame = pd.DataFrame(records, columns=columns)
    return Positions(frame.assign(
        start=frame["position"], relative=frame["position"] / frame["n_words"], cut=False,
        rotated_relative=frame["rotated_position"] / frame["n_words"],
    ))  # fmt: skip


@pytest.mark.parametrize("rotated", [False, True])
def test_histogram_counts_as_numpy_does(rotated):
    positions = planted(300, 2, seed=1)
    table = positions.histogram(20, rotated=rotated)
    relative = positions.frame["rotated_relative" if rotated else "relative"]
    counts, edges = np.histogram(relative + 1e-12, bins=20, range=(0, 1))
    assert table["count"].tolist() == counts.tolist()
    np.testing.assert_allclose(table["left"], edges[:-1])
    assert table["share"].sum() == pytest.approx(1)
    assert table["uniform"].sum() == pytest.approx(1)
    np.testing.assert_allclose(table["uniform"], table["placed"])  # words alone, no longer answers
    assert ((table["low"] <= table["share"]) & (table["share"] <= table["high"])).all()


def test_histogram_interval_agrees_with_a_bootstrap_over_passages():
    positions = planted(400, 4, seed=2, tied=True, strength=0.5)
    table = positions.histogram(5)
    drawn = positions.frame["position"] * 5 // positions.frame["n_words"]
    counts = np.zeros((400, 5))
    np.add.at(counts, (pd.factorize(positions.frame["docno"])[0], drawn), 1)
    rng = np.random.default_rng(0)
    weights = rng.multinomial(400, np.full(400, 1 / 400), size=4000)
    shares = weights @ counts / (weights @ counts.sum(1))[:, None]
    low, high = np.quantile(shares, [0.025, 0.975], axis=0)
    np.testing.assert_allclose(table["low"], low, atol=0.006)
    np.testing.assert_allclose(table["high"], high, atol=0.006)


def test_histogram_interval_of_independent_answers_is_wilsons():
    from statsmodels.stats.proportion import proportion_confint

    frame = planted(300, seed=3).frame
    table = Positions(frame[frame["position"] * 10 // frame["n_words"] != 9]).histogram(10)
    total = table["count"].sum()
    low, high = proportion_confint(table["count"], total, method="wilson")
    np.testing.assert_allclose(table["low"], low, atol=2e-4)
    np.testing.assert_allclose(table["high"], high, atol=2e-4)
    assert table["count"][9] == 0 < table["high"][9]


def naive(positions, bins=10):
    counts = positions.histogram(bins)
    return scipy.stats.chisquare(counts["count"], counts["uniform"] * counts["count"].sum()).pvalue


def test_false_alarms_stay_at_the_level_where_the_ordinary_test_fails():
    """Six answers side by side in each passage, which begin anywhere: 200 collections, level 0.05."""
    p = np.array([
        (t.uniformity_test(resamples=199).p, t.uniformity_test(method="chi2").p, naive(t))
        for t in (planted(60, 6, seed=seed, tied=True) for seed in range(200))
    ])  # fmt: skip
    alarms = (p <= 0.05).sum(0)
    assert scipy.stats.binomtest(int(alarms[0]), 200, 0.05).pvalue > 0.001
    assert scipy.stats.binomtest(int(alarms[1]), 200, 0.05).pvalue > 0.001
    assert alarms[2] > 100


def test_power():
    for seed in range(20):
        positions = planted(300, seed=seed, strength=1.0)
        assert positions.uniformity_test(resamples=199).p == 1 / 200
        assert positions.uniformity_test(method="chi2").p < 1e-6
        assert positions.uniformity_test(rotated=True, resamples=199).p > 0.005


def test_chi2_is_scipys_where_bins_divide_the_passages():
    positions = planted(500, n=(20, 21), seed=3)
    result = positions.uniformity_test(method="chi2", bins=10)
    counts = np.bincount(positions.frame["position"] // 2, minlength=10)
    expected = scipy.stats.chisquare(counts)
    assert (result.statistic, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.n == 500
    rotation = positions.uniformity_test(resamples=4999, bins=10)
    assert rotation.statistic == pytest.approx(expected.statistic)
    assert rotation.p == pytest.approx(expected.pvalue, abs=0.03)


def test_one_answer_a_passage_whatever_the_order():
    positions = planted(80, 4, seed=4)
    shuffled = Positions(positions.frame.sample(frac=1, random_state=0))
    first, second = positions.uniformity_test(method="chi2"), shuffled.uniformity_test(method="chi2")
    assert first == second and first.n == 80
    assert positions.uniformity_test(resamples=99) == positions.uniformity_test(resamples=99)


def test_long_answers_that_are_placed_at_random_are_no_bias():
    """Answers of half the passage cannot begin in its second half."""
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({
        "docno": [f"d{i}" for i in range(600)], "answer": "a", "matched": True, "start": 0, "length": 20, "n_words": 40,
        "position": rng.integers(0, 21, size=600),
    })  # fmt: skip
    positions = Positions(frame)
    assert positions.uniformity_test(resamples=99).p == 0.01
    assert positions.uniformity_test(method="placed").p > 0.01
    placed = positions.histogram(4)["placed"]
    np.testing.assert_allclose(placed, [10 / 21, 10 / 21, 1 / 21, 0])
    early = Positions(frame.assign(position=frame["position"] // 2))
    assert early.uniformity_test(method="placed").p < 1e-6


def test_sentence_rotation_leaves_what_word_rotation_removes():
    """Answers open their sentences, as in text that people write; sentences differ in length."""
    rng = random.Random(0)
    records = []
    for d in range(400):
        lengths = [rng.randint(4, 12) for _ in range(4)]
        sentences = [" ".join(["word"] * (n - 1)) + " end." for n in lengths]
        chosen = rng.randrange(4)
        sentences[chosen] = "answer " + sentences[chosen]
        records.append((f"d{d}", " ".join(sentences), "answer"))
    frame = pd.DataFrame(records, columns=["docno", "text", "answer"])
    by_word, by_sentence = (Positions(AnswerPositions(rotation=RotatePassages(unit=u))(frame)) for u in ("word", "sentence"))
    assert by_word.uniformity_test(rotated=True, resamples=999).p > 0.01
    assert by_sentence.uniformity_test(rotated=True, resamples=999).p == 0.001
    left = by_sentence.histogram(10, rotated=True)
    assert left["share"][0] > 0.2 > 3 * left["share"][9]
    frame = frame.assign(text=frame["text"].str.replace(".", ""))
    unchanged = AnswerPositions(rotation=RotatePassages(unit="sentence"))(frame)
    assert (unchanged["rotated_position"] == unchanged["position"]).all()


def test_figure_shows_both_curves_of_every_collection():
    one, two = planted(50, seed=1), planted(40, seed=2)
    two = Positions(pd.concat([two.frame, two.frame.assign(answer="z", matched=False)]), "two")
    axes = one.plot(two, bins=10)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0] == "answers\n50 answers, 50 passages"
    assert labels[3] == "two\n40 answers, 40 passages, 50.0% omitted"
    curves = {line.get_label(): line for line in axes.lines[:3]}
    np.testing.assert_allclose(curves[labels[0]].get_ydata(), 100 * one.histogram(10)["share"])
    np.testing.assert_allclose(curves["passages rotated"].get_ydata(), 100 * one.histogram(10, rotated=True)["share"])
    np.testing.assert_allclose(curves["placed at random"].get_ydata(), 100 * one.histogram(10)["placed"])
    assert len(axes.lines) == 6
    assert "10 %" in axes.get_ylabel()
    plots.close(axes.figure)
    given_axes = plots.new_axes(3, 3)
    assert one.plot(rotated=False, ax=given_axes) is given_axes and len(given_axes.lines) == 2
    plots.close(given_axes.figure)


# ---- bad input


@pytest.mark.parametrize("options, columns, message", [
    ({}, {"text": [None]}, "column 'text'.*docno='d1'"),
    ({}, {"answer": [None]}, "column 'answer'.*docno='d1'"),
    ({}, {"start": [2], "end": [99]}, r"docno='d1' is marked at characters 2 to 99 of a text of 7"),
    ({}, {"start": [3], "end": [3]}, "marked at characters 3 to 3"),
    ({"match": "stems"}, {}, "match='stems'"),
    ({"case": "upper"}, {}, "case='upper'"),
    ({"tokeniser": "nltk"}, {}, "nltk"),
    ({"rotation": RotatePassages(unit="line")}, {}, "unit='line'"),
    ({"tokeniser": lambda text: ["rewritten"]}, {}, "'rewritten'"),
])  # fmt: skip
def test_bad_input_is_named(options, columns, message):
    with pytest.raises(InputError, match=message):
        AnswerPositions(**options)(rows("one two", "two").assign(**columns))


def test_missing_columns_are_named():
    with pytest.raises(pt.validate.InputValidationError, match="AnswerPositions"):
        AnswerPositions()(pd.DataFrame({"docno": ["d1"], "text": ["a"]}))
    with pytest.raises(pt.validate.InputValidationError, match="AnswerPositions"):
        AnswerPositions(rotation=RotatePassages(scope="pair"))(rows("a", "a"))


def test_questions_that_cannot_be_answered():
    nothing = AnswerPositions().measure(rows("one two", "three"), "empty")
    assert np.isnan(nothing.summary()["mean_relative"]) and nothing.summary()["omitted"] == 1
    assert nothing.histogram()["count"].sum() == 0
    assert nothing.histogram()["share"].isna().all()
    with pytest.raises(InputError, match="no answer of empty"):
        nothing.uniformity_test()
    some = planted(10)
    for options in ({"method": "ks"}, {"method": "placed", "rotated": True}):
        with pytest.raises(InputError, match=r"method=.* is not known"):
            some.uniformity_test(**options)
    with pytest.raises(InputError, match="bins=1"):
        some.uniformity_test(bins=1)


# ---- real data


def test_squad(shared_data):
    """Official offsets against string matching: what matching finds, what it adds, what it loses."""
    squad = read_squad(shared_data / "squad" / "squad_train_v1.1_44articles.json.gz")
    marked = AnswerPositions().measure(squad)
    summary = marked.summary()
    assert summary["answers"] == summary["matches"] == 11_877
    assert summary["omitted"] == 0
    assert summary["mean_relative"] == pytest.approx(0.4265, abs=1e-4)
    assert marked.uniformity_test(resamples=199).p == 0.005
    assert marked.uniformity_test(rotated=True, resamples=199).p > 0.01
    squad.answers = squad.get_answers().assign(start=-1, end=-1)
    matched = AnswerPositions().measure(squad)
    assert matched.summary()["omitted"] < 0.01
    both = matched.matches.merge(marked.frame, on="qid", suffixes=("", "_marked"))
    found = (both["position"] == both["position_marked"]).groupby(both["qid"]).any()
    assert found.mean() > 0.99
    assert AnswerPositions(match="tokens").measure(squad).summary()["omitted"] > 0.4


def test_human_marked_spans(shared_data):
    positions = AnswerPositions().measure(read_spans(shared_data / "msmarco_human_spans" / "human_spans.jsonl"))
    summary = positions.summary()
    assert summary["omitted"] < 0.02
    assert summary["mean_relative"] < 0.3 < summary["mean_placed"]
    assert positions.uniformity_test(method="placed").p < 1e-10


def test_answers_behind_the_end_of_cut_texts_are_not_there(caplog):
    """An index that stores the beginnings of texts has lost what stands behind them; the offsets are those of the whole texts."""

    class Stored(Collection):
        longest_text = 20

        def text_loader(self, fields="text", *, verbose=False):
            return super().text_loader(fields) >> pt.apply.text(lambda row: row["text"][:20])

    corpus = pd.DataFrame({"docno": ["d1", "d2"], "text": ["It is Paris, they say, or so it is told.", "short: Rome"]})
    answers = pd.DataFrame(
        [("q1", "d1", "Paris", 6, 11), ("q1", "d1", "told", 35, 39), ("q2", "d2", "Rome", 7, 11), ("q2", "d1", "so", -1, -1)],
        columns=["qid", "docno", "answer", "start", "end"],
    )
    topics = pd.DataFrame({"qid": ["q1", "q2"], "query": ["what", "where"]})
    whole, stored = (
        kind("toy", corpus=corpus, topics={"test": topics}, qrels={}, answers=answers) for kind in (Collection, Stored)
    )
    found = AnswerPositions().measure(stored).frame
    assert found[found["matched"]]["answer"].tolist() == ["Paris", "Rome"]
    assert "1 of 2 texts with answers seem to be truncated; 1 answers are marked" in caplog.text
    assert "meta={'docno': 40, 'text': 20000}" in caplog.text
    caplog.clear()
    assert AnswerPositions().measure(whole).frame["matched"].all()
    assert not caplog.text


def test_answers_with_numbers_as_ids_are_measured():
    inner = Collection(
        "mine", corpus=pd.DataFrame({"docno": [1, 2], "text": ["tea is hot", "rain falls"]}),
        topics={"test": pd.DataFrame({"qid": [7], "query": ["tea"]})},
        qrels={"test": pd.DataFrame({"qid": [7], "docno": [1], "label": [1]})},
    )  # fmt: skip

    class Mine:
        name = "mine"

        def get_answers(self):
            return pd.DataFrame({"qid": [7], "docno": [1], "answer": ["hot"]})

        def text_loader(self, fields="text", **options):
            return inner.text_loader(fields)

    assert AnswerPositions().measure(Mine()).summary()["matches"] == 1
