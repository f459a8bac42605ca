"""The stage: what is in the mean, over what it is normalised, which tools are asked for."""

import copy
import logging
import math
import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import Tree

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.linguistic.formulas.lexical import FrequencyList
from pyterrier_debias.linguistic.measures.complexity import INDEX_SETS, INDICES, LinguisticComplexity

TOPICS = pd.DataFrame({
    "qid": ["1", "2", "3", "4"],
    "query": ["green tea", "tea or no tea or tea", "how long does tea keep", "tea"],
})  # fmt: skip
TREES = {
    "green tea": "(ROOT (NP (JJ green) (NN tea)))",
    "tea or no tea or tea": "(ROOT (NP (NP (NN tea)) (CC or) (NP (DT no) (NN tea)) (CC or) (NP (NN tea))))",
    "how long does tea keep":
        "(ROOT (SBARQ (WHADVP (WRB how) (RB long)) (SQ (VBZ does) (NP (NN tea)) (VP (VB keep)))))",
    "tea": "(ROOT (NP (NN tea)))",
}  # fmt: skip
TAGS = {"green": "JJ", "tea": "NN", "how": "WRB", "long": "RB", "does": "VBZ", "keep": "VB", "or": "CC", "no": "DT"}


class Tagger:
    """Looks tags up, and counts the texts that it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, texts):
        self.asked += texts
        return [[(word, TAGS[word]) for word in text.split()] for text in texts]


def parser(texts):
    return [[TREES[text]] for text in texts]


def refuse(texts):
    raise AssertionError("no tool is needed")


def queries(*texts):
    return pd.DataFrame({"qid": [str(i) for i in range(len(texts))], "query": list(texts)})


def zscores(values):
    values = np.asarray(values, dtype=float)
    return (values - values.mean()) / values.std()


# ------------------------------------------------------------------------------------------------ the mean


def test_the_mean_of_normalised_indices_by_hand():
    scored = LinguisticComplexity(["NDW", "TTR", "LogTTR", "Uber"], keep_indices=True)(TOPICS)
    # N = 2, 6, 5, 1; T = 2, 3, 5, 1.
    assert scored["NDW"].tolist() == [2, 3, 5, 1]
    assert scored["TTR"].tolist() == [1, 1 / 2, 1, 1]
    logs = [1, math.log(3) / math.log(6), 1, np.nan]  # ln 1 = 0 leaves LogTTR of 'tea' undefined
    np.testing.assert_allclose(scored["LogTTR"], logs)
    # Uber is defined for one text of four, (log10 6)^2 / log10(6/3) = .605519/.301030 = 2.0115: not for most, so it is left out.
    np.testing.assert_allclose(scored["Uber"], [np.nan, 2.01149, np.nan, np.nan], rtol=1e-5)
    normalised = np.stack([zscores([2, 3, 5, 1]), zscores([1, 0.5, 1, 1]), [*zscores(logs[:3]), np.nan]])
    np.testing.assert_allclose(scored["complexity"], np.nanmean(normalised, axis=0))
    # By hand for 'tea': (1 - 2.75) / 1.47902 = -1.18322; (1 - .875) / .216506 = .57735; mean -.302933.
    assert scored["complexity"].iloc[3] == pytest.approx(-0.302933, abs=1e-6)


def test_a_constant_index_counts_0_and_is_reported():
    stage = LinguisticComplexity(["NDW", "TTR"])
    scored = stage(queries("one two", "one two three"))
    assert scored["complexity"].tolist() == [-0.5, 0.5]  # NDW -1 and 1, TTR 0
    report = stage.report().set_index("index")
    assert report["constant"].tolist() == [False, True]
    assert report["live"].all()
    # What varies in a later set was constant in the set that was learnt from: it still counts 0.
    assert stage.fit(queries("one two", "one two three"))(queries("a a b"))["complexity"].tolist() == [-0.5]


def test_minmax_by_hand():
    scored = LinguisticComplexity(["NDW", "TTR"], normalise="minmax")(TOPICS)
    # NDW 2 3 5 1 -> 1/4 2/4 1 0; TTR 1 1/2 1 1 -> 1 0 1 1.
    np.testing.assert_allclose(scored["complexity"], [0.625, 0.25, 1, 0.5])


def test_min_defined_decides_what_is_live_for_all_texts():
    def live(share):
        stage = LinguisticComplexity(["NDW", "LogTTR", "Uber"], min_defined=share)
        stage(TOPICS)
        return stage.report().query("live")["index"].tolist()

    # LogTTR is defined for 3 of 4, Uber for 1 of 4.
    assert live(1.0) == ["NDW"]
    assert live(0.75) == ["NDW", "LogTTR"]
    assert live(0.25) == live(0) == ["NDW", "LogTTR", "Uber"]


def test_what_no_text_defines_is_never_live():
    stage = LinguisticComplexity(["NDW", "Uber", "MLS"], min_defined=0)
    assert stage(queries("a", "b c"))["complexity"].tolist() == [-1, 1]
    assert stage.report()["live"].tolist() == [True, False, False]


def test_without_a_live_index_complexity_is_undefined_and_the_log_says_so(caplog):
    with caplog.at_level(logging.WARNING):
        assert LinguisticComplexity(["Uber"])(TOPICS)["complexity"].isna().all()
    assert "none of the 1 indices" in caplog.text


def test_zero_as_in_guarded_tools():
    scored = LinguisticComplexity(
        ["LogTTR", "Uber", "NDW-50", "MSTTR-50", "NDW-ER50", "D"], undefined="zero", keep_indices=True
    )(TOPICS)
    assert scored["LogTTR"].tolist()[3] == 0
    assert scored["Uber"].round(4).tolist() == [0, 2.0115, 0, 0]
    # Shorter than a segment: NDW and TTR.
    assert scored["NDW-50"].tolist() == scored["NDW-ER50"].tolist() == [2, 3, 5, 1]
    assert scored["MSTTR-50"].tolist() == [1, 0.5, 1, 1]
    assert scored["D"].tolist() == [0] * 4
    assert LinguisticComplexity(["MLS"], undefined="zero")(TOPICS)["complexity"].isna().all()  # no parser is no zero


def test_texts_without_a_word_have_no_complexity_and_are_counted(caplog):
    asked = queries("", "?!", "🫖 ❤️", "green tea", "tea")
    for undefined in ("nan", "zero"):
        stage = LinguisticComplexity("words", keep_indices=True, undefined=undefined)
        with caplog.at_level(logging.WARNING):
            scored = stage(asked)
        assert "3 of 5 different texts (60.0 %) hold no word" in caplog.text
        assert scored[[*INDEX_SETS["words"], "complexity"]].iloc[:3].isna().all(axis=None)
        # The others are as if they stood alone.
        alone = LinguisticComplexity("words", keep_indices=True, undefined=undefined)(asked.iloc[3:])
        pd.testing.assert_frame_equal(scored.iloc[3:], alone)
        assert stage.report()["defined"].max() == 1
        for normalise in ("zscore", "minmax"):
            silent = LinguisticComplexity("words", undefined=undefined, normalise=normalise)
            assert silent(queries("", "?!"))["complexity"].isna().all()
        with pytest.raises(InputError, match="no text with a word"):
            stage.fit(queries("", "?!"))


def test_the_log_names_what_was_live(caplog):
    with caplog.at_level(logging.INFO):
        LinguisticComplexity(["NDW", "Uber", "MLS"])(TOPICS)
    assert "mean of 1 of 3 indices over 4 texts (NDW); indices left out" in caplog.text
    assert "Uber 25%, MLS 0%" in caplog.text


# ------------------------------------------------------------------------------------------------ normalisation


def test_fit_learns_from_other_texts():
    stage = LinguisticComplexity(["NDW", "TTR"]).fit(TOPICS)
    np.testing.assert_array_equal(stage(TOPICS)["complexity"], LinguisticComplexity(["NDW", "TTR"])(TOPICS)["complexity"])
    alone = stage(TOPICS.iloc[[3]])["complexity"].tolist()
    assert alone == pytest.approx([-0.302933], abs=1e-6)
    assert stage != LinguisticComplexity(["NDW", "TTR"])
    assert stage == LinguisticComplexity(["NDW", "TTR"]).fit(TOPICS.sample(frac=1, random_state=1))
    assert stage != LinguisticComplexity(["NDW", "TTR"]).fit(TOPICS.iloc[:2])
    assert pickle.loads(pickle.dumps(stage)) == stage


def test_what_was_learnt_under_other_options_is_refused():
    stage = LinguisticComplexity(["NDW", "TTR"]).fit(TOPICS)
    for changed in ({"index_set": ["NDW", "CTTR"]}, {"undefined": "zero"}, {"normalise": "minmax"}, {"segment": 10}):
        with pytest.raises(InputError, match="learnt under other options"):
            stage.apply_attributes(**changed)(TOPICS)
    with pytest.raises(InputError, match="no rows"):
        stage.fit(TOPICS.iloc[:0])
    # What plays no part where words alone are counted may be another.
    stage.apply_attributes(tagger=refuse, parser=parser, lemmatiser="form", common_words={"tea"}, seed=1)(TOPICS)


def first_letters(word, tag):
    return word[:2]


@pytest.mark.parametrize(
    ("index_set", "changed"),
    [
        (["LD"], {"tagger": Tagger()}),
        (["LD"], {"tagger": "textblob"}),
        (["LD"], {"lemmatiser": first_letters}),
        (["LD"], {"common_words": FrequencyList(None, frozenset({"green"}))}),
        (["LS1"], {"common_words": {"tea", "does"}}),
        (["MLS"], {"parser": lambda texts: [[TREES[text]] for text in texts]}),
        (["NDW"], {"segmenter": list}),
        (["NDW-ER50"], {"seed": 1}),
        (["D"], {"seed": 1}),
    ],
)
def test_what_was_learnt_with_other_tools_is_refused(index_set, changed):
    stage = LinguisticComplexity(index_set, tagger=Tagger(), lemmatiser="form", parser=parser, common_words={"tea"})
    stage.fit(TOPICS)
    other = stage.apply_attributes(**changed)
    with pytest.raises(InputError, match="learnt under other options"):
        other(TOPICS)
    assert len(other(TOPICS.iloc[:0])) == 0
    again = pickle.loads(pickle.dumps(stage))
    np.testing.assert_array_equal(again(TOPICS)["complexity"], stage(TOPICS)["complexity"])


def test_each_different_text_counts_once():
    results = TOPICS.loc[[0, 0, 0, 1, 2, 3]].assign(docno=["a", "b", "c", "a", "a", "a"]).reset_index(drop=True)
    stage = LinguisticComplexity("words")
    expected = stage(TOPICS).set_index("qid")["complexity"]
    found = stage(results)
    np.testing.assert_array_equal(found["complexity"], expected[found["qid"]])
    assert found["docno"].tolist() == results["docno"].tolist()


WORDS = st.lists(st.sampled_from(["tea", "green", "or", "no", "keep"]), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=25)
@given(st.lists(WORDS, min_size=1, max_size=8), st.randoms(use_true_random=False), st.sampled_from(["nan", "zero"]))
def test_rows_may_stand_in_any_order_and_the_mean_is_0(texts, random, undefined):
    frame = queries(*texts)
    stage = LinguisticComplexity(["NDW", "CTTR"], undefined=undefined)
    whole = stage(frame)
    order = list(range(len(texts)))
    random.shuffle(order)
    np.testing.assert_allclose(stage(frame.iloc[order])["complexity"], whole["complexity"].iloc[order], atol=1e-9)
    if undefined == "zero":
        assert whole.drop_duplicates("query")["complexity"].mean() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", sorted(set(INDEX_SETS["words"]) | {"D", "HD-D"}))
def test_random_samples_depend_on_words_and_seed_alone(name):
    texts = [" ".join(np.random.default_rng(i).choice(list("abcdefghijklmnopqrst"), 60)) for i in range(3)]
    first = LinguisticComplexity([name], keep_indices=True)(queries(*texts))[name].tolist()
    again = LinguisticComplexity([name], keep_indices=True)(queries(*texts[::-1]))[name].tolist()
    assert first == again[::-1]
    assert not np.isnan(first).any()
    other = LinguisticComplexity([name], keep_indices=True, seed=1)(queries(*texts))[name].tolist()
    assert (first != other) == (name in ("NDW-ER50", "NDW-ES50", "D"))


def test_segments_of_the_20th_percentile():
    # Words: 2, 6, 5, 1; the 20th percentile by linear interpolation is at .6 between 1 and 2: 1.6, so segments of 1 word.
    stage = LinguisticComplexity(["NDW-50", "MSTTR-50"], segment="p20", keep_indices=True)
    assert stage(TOPICS)[["NDW-p20", "MSTTR-p20"]].values.tolist() == [[1, 1]] * 4
    assert set(stage.report()["by"]) == {"words as they stand, segments of 1 words"}
    # 4 to 8 words: .2 of the way over four steps is at .8 between 4 and 5: segments of 4.
    longer = queries(*(" ".join(["tea"] * n) for n in (8, 7, 6, 5, 4)))
    assert stage(longer)["MSTTR-p20"].tolist() == [1 / 4] * 5
    assert stage.fit(longer).normalisation.segment == 4
    assert np.isnan(stage(TOPICS)["NDW-p20"]).tolist() == [True, False, False, True]
    assert list(LinguisticComplexity(["NDW-ER50"], segment=3, keep_indices=True)(TOPICS))[-2:] == ["NDW-ER3", "complexity"]


# ------------------------------------------------------------------------------------------------ tools


def test_tags_and_trees_by_hand():
    tagger = Tagger()
    stage = LinguisticComplexity(
        ["LD", "VV1", "NV", "MLS", "C/S", "VP/T", "CN/T"], tagger=tagger, parser=parser, lemmatiser="form", keep_indices=True
    )
    scored = stage(TOPICS).set_index("query")
    # Lexical words: green tea | tea x 3 | does tea keep, and 'long', an adverb that is an adjective too | tea.
    assert scored["LD"].tolist() == [1, 3 / 6, 4 / 5, 1]
    assert scored["VV1"].tolist()[2] == 1  # does, keep
    assert scored["VV1"].isna().tolist() == [True, True, False, True]
    assert scored["NV"].tolist() == [1 / 2, 1 / 3, 1 / 4, 1]
    assert scored["MLS"].tolist() == [2, 6, 5, 1]
    # Only the question has a T-unit (SBARQ), a clause (SQ) and a verb phrase (VP).
    assert scored["C/S"].tolist() == [0, 0, 1, 0]
    assert scored["VP/T"].isna().tolist() == [True, True, False, True]
    assert scored.loc["how long does tea keep", ["VP/T", "CN/T"]].tolist() == [1, 0]
    report = stage.report().set_index("index")
    assert report["live"].to_dict() == {
        "LD": True, "VV1": False, "NV": True, "MLS": True, "C/S": True, "VP/T": False, "CN/T": False,
    }  # fmt: skip
    assert report.loc["MLS", "by"] == "parser parser"
    assert report.loc["LD", "by"] == "tagger Tagger, words as they stand"


UNIVERSAL = {"NN": "NOUN", "NNP": "PROPN", "JJ": "ADJ", "RB": "ADV", "VB": "VERB", "VBZ": "AUX", "MD": "AUX", "IN": "ADP"}


def test_universal_tags_are_those_of_the_penn_treebank():
    """``ADJ`` is a lexical word as ``JJ`` is: two of two words, not one."""
    text = [("Paris", "NNP"), ("is", "VBZ"), ("really", "RB"), ("cheap", "JJ"), ("can", "MD"), ("stay", "VB"), ("in", "IN")]
    topics = queries(" ".join(word for word, _ in text), "cheap tea")
    pairs = dict([*text, ("tea", "NN")])

    def tagged(universal):
        def tag(texts):
            return [[(w, UNIVERSAL[pairs[w]] if universal else pairs[w]) for w in text.split()] for text in texts]

        names = ["LD", "LV", "VV1", "NV", "AdjV", "AdvV", "ModV", "TTR"]
        return LinguisticComplexity(names, tagger=tag, keep_indices=True)(topics)

    assert tagged(True).equals(tagged(False)) and tagged(True)["LD"].iloc[1] == 1


def test_tags_of_neither_set_are_refused():
    stage = LinguisticComplexity(["LD"], tagger=lambda texts: [[(word, "ADJA") for word in text.split()] for text in texts])
    with pytest.raises(InputError, match="the tagger gives 'green' the tag 'ADJA', which is neither a Penn Treebank tag"):
        stage(TOPICS)


def test_words_with_a_hyphen_are_an_option_of_trees():
    def parser(texts):
        return [" ".join(["(ROOT (NP", *(f"(NN {word})" for word in text.split()), "))"]) for text in texts]

    kinds = {"index_set": ["MLS", "TTR"]}, {"index_set": ["MLS", "TTR"], "hyphenated": False}, {"preset": "paper"}
    tools = {"parser": parser, "tagger": "textblob", "keep_indices": True}
    counted, left_out, paper = (LinguisticComplexity(**kind, **tools)(queries("x-ray tea")) for kind in kinds)
    assert counted[["MLS", "TTR"]].values.tolist() == [[2, 1]]
    assert left_out[["MLS", "TTR"]].values.tolist() == paper[["MLS", "TTR"]].values.tolist() == [[1, 1]]


def test_lemmas_make_types():
    def tag(texts):
        return [[(word, "NNS" if word.endswith("s") else "NN") for word in text.split()] for text in texts]

    stage = LinguisticComplexity(["TTR"], tagger=tag, lemmatiser=lambda word, tag: word.rstrip("s"), keep_indices=True)
    assert stage(queries("tea teas", "tea cup"))["TTR"].tolist() == [1 / 2, 1]
    assert LinguisticComplexity(["TTR"], tagger=refuse, keep_indices=True)(queries("tea teas", "a a"))["TTR"].tolist() == [1, 0.5]


def test_sophistication_by_hand():
    options = {"tagger": Tagger(), "lemmatiser": "form", "keep_indices": True}
    names = ["LS1", "LS2", "VS1", "CVS1"]
    for common in ({"TEA", "does"}, FrequencyList(frozenset({"tea", "does"}), frozenset({"long"}))):
        scored = LinguisticComplexity(names, common_words=common, **options)(TOPICS.iloc[[2]])
        # how long does tea keep: lexical long does tea keep, of which long and keep are rare; types how long keep of 5;
        # verbs does keep, of which keep is rare: 1/2 and 1/sqrt(4).
        assert scored[names].values.tolist() == [[2 / 4, 3 / 5, 1 / 2, 1 / 2]]


def test_a_list_is_read_from_its_path(tmp_path):
    path = tmp_path / "bnc.txt"
    path.write_text("1 tea NN1 9\n2 does VBZ 5\n3 long AJ0 2\n", encoding="utf-8")
    stage = LinguisticComplexity(["LS1"], common_words=str(path), tagger=Tagger(), lemmatiser="form", keep_indices=True)
    assert stage(TOPICS)["LS1"].tolist() == [1 / 2, 0, 1 / 4, 0]  # green; keep
    assert stage.report()["by"].tolist() == [f"tagger Tagger, list {path}"]


def test_texts_are_analysed_once():
    tagger = Tagger()
    stage = LinguisticComplexity(["LD"], tagger=tagger, lemmatiser="form")
    first = stage(pd.concat([TOPICS, TOPICS], ignore_index=True))
    assert sorted(tagger.asked) == sorted(TOPICS["query"])
    pd.testing.assert_frame_equal(stage(TOPICS), first.iloc[:4])
    stage.report(TOPICS)
    assert len(tagger.asked) == 4
    assert pickle.loads(pickle.dumps(stage))._kept is None
    # Another list of words is another analysis.
    stage.common_words = {"tea"}
    stage(TOPICS)
    assert len(tagger.asked) == 8


def test_more_texts_than_go_to_a_tool_at_a_time(monkeypatch):
    monkeypatch.setattr("pyterrier_debias.linguistic.measures.complexity._CHUNK", 2)
    monkeypatch.setattr("pyterrier_debias.linguistic.measures.complexity._KEPT_WORDS", 3)
    options = {"tagger": Tagger(), "parser": parser, "lemmatiser": "form"}
    stage = LinguisticComplexity(["LD", "MLS"], **options)
    for _ in range(2):  # what is kept is forgotten in between
        afresh = LinguisticComplexity(["LD", "MLS"], **options)
        np.testing.assert_allclose(stage(TOPICS)["complexity"], afresh(TOPICS)["complexity"])


@pytest.mark.parametrize("form", [str, Tree.fromstring, lambda text: [text], lambda text: (Tree.fromstring(text),)])
def test_parsers_may_return_trees_in_any_form(form):
    stage = LinguisticComplexity(["MLS"], parser=lambda texts: [form(TREES[text]) for text in texts], keep_indices=True)
    assert stage(TOPICS)["MLS"].tolist() == [2, 6, 5, 1]


def test_a_text_without_trees_has_no_syntactic_index_and_one_that_was_skipped_is_an_error():
    def but_tea(texts):
        return [None if text == "tea" else TREES[text] for text in texts]

    for undefined in ("nan", "zero"):
        scored = LinguisticComplexity(["MLS", "C/S"], parser=but_tea, undefined=undefined, keep_indices=True)(TOPICS)
        assert scored["MLS"].isna().tolist() == scored["C/S"].isna().tolist() == [False, False, False, True]
        assert scored["MLS"].tolist()[:3] == [2, 6, 5]
    with pytest.raises(InputError, match="the parser <lambda>: the text 'green tea' was skipped"):
        LinguisticComplexity(["MLS"], parser=lambda texts: ["(())"] * len(texts))(TOPICS)


def test_the_summary_by_hand():
    stage = LinguisticComplexity(["MLS", "NDW"], parser=lambda texts: [TREES.get(text) for text in texts])
    scored = stage(pd.concat([TOPICS, queries("?!", "green tea")], ignore_index=True))
    summary = stage.summary()
    # Words 2, 6, 5, 1; complexity by MLS (2, 6, 5, 1) and NDW (2, 3, 5, 1): ranks 2 3 4 1 against 2 4 3 1, 1 - 6 * 2 / 60.
    assert scored["complexity"].iloc[:4].rank().tolist() == [2, 3, 4, 1]
    expected = {"texts": 4, "words": 3.5, "live": 2, "no_t_unit": 3 / 4, "no_clause": 3 / 4, "rho_words": 0.8}
    assert summary == pytest.approx(expected)
    assert stage.fit(TOPICS).summary() == pytest.approx(expected) and stage.summary(TOPICS) == pytest.approx(expected)
    bare = LinguisticComplexity(["NDW"]).summary(TOPICS)
    assert np.isnan(bare["no_t_unit"]) and np.isnan(bare["no_clause"]) and bare["live"] == 1
    with pytest.raises(InputError, match="nothing has been scored yet"):
        LinguisticComplexity().summary()
    assert np.isnan(LinguisticComplexity(["NDW"]).summary(queries("tea"))["rho_words"])
    for copied in (copy.copy(stage), stage.apply_attributes(verbose=True)):
        with pytest.raises(InputError, match=r"a copy does not keep what the stage scored; give summary\(\) a frame"):
            copied.summary()
        assert copied.summary(TOPICS) == pytest.approx(expected)


@pytest.mark.parametrize("tool", ["tagger", "parser"])
def test_a_tool_must_answer_for_each_text(tool):
    stage = LinguisticComplexity(["LD", "MLS"], **{"tagger": Tagger(), "parser": parser, tool: lambda texts: [[]]})
    with pytest.raises(InputError, match=f"the {tool} returned 1 results for 4 texts"):
        stage(TOPICS)


def test_no_tool_is_asked_for_an_empty_frame_or_where_words_are_enough():
    stage = LinguisticComplexity("lu", tagger=refuse, parser=refuse, keep_indices=True)
    empty = stage(TOPICS.iloc[:0])
    assert list(empty) == [*TOPICS, *INDEX_SETS["lu"], "complexity"]
    assert len(empty) == 0
    LinguisticComplexity("words", tagger=refuse, parser=refuse)(TOPICS)


# ------------------------------------------------------------------------------------------------ options


def test_the_sets_have_the_numbers_of_the_literature():
    assert [len(INDEX_SETS[name]) for name in ("words", "table4", "lu")] == [10, 30, 39]
    assert all(set(names) <= set(INDICES) and len(set(names)) == len(names) for names in INDEX_SETS.values())
    assert len(INDICES) == 41


def test_the_preset_fixes_every_choice():
    options = {"tagger": Tagger(), "parser": parser, "lemmatiser": "form"}
    paper = LinguisticComplexity(preset="paper", **options)
    spelt = LinguisticComplexity("table4", undefined="zero", segment="p20", **options)
    pd.testing.assert_frame_equal(paper(TOPICS), spelt(TOPICS))
    assert paper.report()["live"].all()
    LinguisticComplexity("table4", preset="paper", **options)(TOPICS)  # says the same twice
    with pytest.raises(InputError, match="fixes normalise='zscore', but normalise='minmax' was given"):
        LinguisticComplexity(preset="paper", normalise="minmax")(TOPICS)
    with pytest.raises(InputError, match="preset='lu' is not known"):
        LinguisticComplexity(preset="lu")(TOPICS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index_set": "table3"}, "index_set='table3' is not known"),
        ({"index_set": ["TTR", "ttr"]}, "'ttr' is not an index"),
        ({"index_set": []}, "no index is named"),
        ({"index_set": ["TTR", "TTR"]}, "named twice"),
        ({"undefined": 0}, "undefined=0 is not known"),
        ({"normalise": "rank"}, "normalise='rank' is not known"),
        ({"segment": 0}, "segment=0 must be"),
        ({"segment": None}, "segment=None must be"),
        ({"segment": np.nan}, "segment=nan must be"),
        ({"segment": [5]}, "segment=.5. must be"),
        ({"min_defined": "1"}, "min_defined='1' must be"),
        ({"hyphenated": "no"}, "hyphenated='no' must be True or False"),
        ({"segment": "p50"}, "segment='p50' must be"),
        ({"min_defined": 2}, "min_defined=2 must be"),
        ({"nv": "n"}, "nv='n' is not known"),
        ({"uber": "n"}, "uber='n' is not known"),
    ],
)
def test_options_that_are_not_known_are_named(options, message):
    with pytest.raises(InputError, match=message):
        LinguisticComplexity(**options)(TOPICS)


def test_a_missing_text_is_named():
    with pytest.raises(InputError, match="column 'query' has no value at row 1"):
        LinguisticComplexity()(TOPICS.assign(query=["a", None, "b", "c"]))
    with pytest.raises(pt.validate.InputValidationError):
        LinguisticComplexity(column="text")(TOPICS)


def test_documents_by_another_column():
    documents = pd.DataFrame({"docno": ["d1", "d2"], "text": ["tea", "green tea"]})
    scored = LinguisticComplexity(["NDW"], column="text", out="wording")(documents)
    assert scored["wording"].tolist() == [-1, 1]
    assert list(scored) == ["docno", "text", "wording"]
    assert LinguisticComplexity(["NDW"], column="text", out="NDW")(documents)["NDW"].tolist() == [-1, 1]
    with pytest.raises(InputError, match="out='NDW' is the column of an index, which keep_indices adds"):
        LinguisticComplexity(["NDW"], column="text", out="NDW", keep_indices=True)(documents)


def test_report_needs_something_scored():
    with pytest.raises(InputError, match="nothing has been scored yet"):
        LinguisticComplexity().report()
    report = LinguisticComplexity("words").report(TOPICS)
    assert report["index"].tolist() == list(INDEX_SETS["words"])
    assert report["defined"].tolist() == [1, 0, 0, 0, 1, 0, 1, 1, 0.75, 0.25]
    assert report["by"].iloc[0] == "words as they stand"


# ------------------------------------------------------------------------------------------------ real queries


def test_most_indices_of_keyword_queries_are_undefined(shared_data):
    import gzip
    import json

    with gzip.open(shared_data / "nfcorpus" / "queries.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    stage = LinguisticComplexity("words", min_defined=0.05)
    scored = stage(queries(*texts))
    report = stage.report().set_index("index")
    # All words of a query differ in 97 % of NFCorpus, where Uber is then undefined; next to none has 50 words.
    assert 1 - report.loc["Uber", "defined"] == pytest.approx(0.97, abs=0.01)
    assert report.loc["MSTTR-50", "defined"] < 0.001
    assert report.query("live").index.tolist() == ["NDW", "TTR", "CTTR", "RTTR", "LogTTR"]
    assert scored["complexity"].notna().all()
