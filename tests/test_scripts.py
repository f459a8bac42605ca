"""Words in any script, and the stages that read words: what a person who reads the script counts, written out here by hand."""

import logging
import re
import unicodedata

import pandas as pd
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import (
    AnswerPositions,
    InputError,
    LinguisticComplexity,
    PositionSensitivity,
    RepeatNounPhrases,
    RotatePassages,
    SwapGender,
)
from pyterrier_debias.core import scripts
from pyterrier_debias.core.scripts import sentences
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.gender.formulas.counting import count_words
from pyterrier_debias.gender.measures.evaluator import marked_words
from pyterrier_debias.linguistic.data.analysers import bare_words, words_of
from pyterrier_debias.linguistic.data.rewrites import keywords
from pyterrier_debias.linguistic.measures.disparity import query_length
from pyterrier_debias.rankers.word_vectors import regex_spans
from tests.position.toy import Overlap

#: Scripts with blanks between words: a text of three words, with marks wherever the script has them.
SPACED = {
    "Latin, decomposed": unicodedata.normalize("NFD", "été à Zürich"),
    "Vietnamese": unicodedata.normalize("NFD", "tiếng Việt đẹp"),
    "Greek": "Ελληνική γλώσσα σήμερα",
    "Cyrillic": unicodedata.normalize("NFD", "йод ёлка район"),
    "Arabic, vocalised": "كِتَابٌ جَدِيدٌ مُفِيدٌ",
    "Persian with joiners": "می\u200cخواهم کتاب\u200cها را",
    "Hebrew, pointed": "שָׁלוֹם עוֹלָם טוֹב",
    "Devanagari": "हिन्दी में पुस्तकें",
    "Bengali": "বাংলা ভাষার বই",
    "Tamil": "தமிழ் மொழி நூல்",
    "Gurmukhi": "ਪੰਜਾਬੀ ਬੋਲੀ ਕਿਤਾਬਾਂ",
    "Korean": "한국어 검색 엔진",
    "Korean, decomposed": unicodedata.normalize("NFD", "한국어 검색 엔진"),
}
#: Scripts without: a text and its words as a reader cuts it.
UNSPACED = {
    "Chinese": ["我们", "喜欢", "绿茶"],
    "Japanese": ["私", "は", "ラーメン", "を", "食べます"],
    "Thai": ["ฉัน", "กิน", "น้ำชา", "มากๆ"],
    "Lao": ["ຂ້ອຍ", "ດື່ມ", "ນ້ຳ"],
    "Khmer": ["ខ្ញុំ", "ញ៉ាំ", "បាយ"],
}


MORE = frozenset(scripts.more_characters())


def segmenter_of(words):
    """Knows the words of one text."""
    known = re.compile("|".join(sorted(map(re.escape, words), key=len, reverse=True)))
    return known.findall


def clusters(text):
    return regex.findall(r"\X", text)


def frame(text):
    return pd.DataFrame({"docno": [f"d{i}" for i in range(40)], "text": text})


# ---------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize("text", SPACED.values(), ids=SPACED)
def test_marks_belong_to_their_words(text):
    words = text.split(" ")
    assert [text[start:end] for start, end in scripts.word_places(text)] == words
    composed = [unicodedata.normalize("NFC", word.lower()) for word in words]
    assert regex_word(text) == bare_words(text) == composed
    assert words_of(text) == words_of(text + "!")[:-1] == words
    assert [word for word, _, _ in regex_spans(text)] == composed
    assert query_length(pd.Series([text])).tolist() == [3]
    found = LinguisticComplexity(["NDW", "TTR"], keep_indices=True)(pd.DataFrame({"qid": ["1"], "query": [text]}))
    assert (found["NDW"][0], found["TTR"][0]) == (3, 1)


@pytest.mark.parametrize("text", SPACED.values(), ids=SPACED)
def test_both_normal_forms_are_the_same_words(text):
    other = unicodedata.normalize("NFC", text)
    assert regex_word(text) == regex_word(other) and bare_words(text) == bare_words(other)
    last = text.split(" ")[-1]
    for passage, answer in ((text, unicodedata.normalize("NFC", last)), (other, unicodedata.normalize("NFD", last))):
        found = AnswerPositions()(pd.DataFrame({"docno": ["d"], "text": [passage], "answer": [answer]}))
        assert found[["position", "n_words"]].values.tolist() == [[2, 3]]
        assert passage[found["start"][0] : found["end"][0]] == passage.split(" ")[-1]
        assert count_words([passage], {"x": [answer]}).tolist() == [[1]]
        start = passage.rindex(" ") + 1
        assert marked_words(passage, regex_word(answer)) == f"{passage[:start]}[[{passage[start:]}]]"
    # Half a word is none.
    assert count_words([text], {"x": [unicodedata.normalize("NFC", last[:1])]}).tolist() == [[0]]


@pytest.mark.parametrize("text", SPACED.values(), ids=SPACED)
def test_rewrites_keep_letters_with_their_marks(text, caplog):
    """A tagger that knows no noun here, one that knows them all, and one that gives words in normal form."""
    asked = pd.DataFrame({"qid": ["1", "2"], "query": [text, text + "?"]})
    assert keywords(text + "?!") == text

    def tagger(tag, form):
        return lambda texts: [[(unicodedata.normalize(form, word), tag) for word in words_of(one)] for one in texts]

    with caplog.at_level(logging.WARNING):
        assert RepeatNounPhrases(tagger=tagger("FW", "NFD"))(asked)["query"][0] == f"{text} {text}"
    assert "RepeatNounPhrases: 2 of 2 different queries (100.0 %) have no noun phrase" in caplog.text
    caplog.clear()
    assert RepeatNounPhrases(tagger=tagger("NN", "NFC"))(asked)["query"][0] == f"{text} {text}"
    assert "no noun phrase" not in caplog.text


@pytest.mark.parametrize("words", UNSPACED.values(), ids=UNSPACED)
def test_scripts_without_blanks_are_cut_by_cluster_or_segmenter(words, caplog):
    text = "".join(words)
    own = [text[start:end] for start, end in scripts.word_places(text)]
    assert "".join(own) == text and len(own) > len(words)
    assert len(own) <= len(clusters(text))
    assert regex_word(text) == [word.lower() for word in own] == words_of(text)
    cut = segmenter_of(words)
    assert [text[start:end] for start, end in scripts.word_places(text, cut)] == words
    assert words_of(f"see {text}, please", cut) == ["see", *words, ",", "please"]
    asked = pd.DataFrame({"qid": ["1", "2"], "query": [text, "green tea"]})
    stage = LinguisticComplexity(["NDW"], keep_indices=True, segmenter=cut)
    with caplog.at_level(logging.WARNING):
        assert stage(asked)["NDW"].tolist() == [len(words), 2]
    assert not caplog.text
    with caplog.at_level(logging.WARNING):
        assert LinguisticComplexity(["NDW"], keep_indices=True)(asked)["NDW"].tolist() == [len(set(own)), 2]
    assert "1 of 2 different texts (50.0 %) are in a script without blanks" in caplog.text
    assert keywords(f"what is {text}?") == text


def test_a_segmenter_must_cut_and_change_nothing():
    with pytest.raises(InputError, match=r"its words \['green tea'\] are not successive pieces of '绿茶'"):
        LinguisticComplexity(segmenter=lambda text: ["green tea"])(pd.DataFrame({"qid": ["1"], "query": ["绿茶"]}))
    with pytest.raises(InputError, match="segmenter works only with tokeniser='whitespace'"):
        RotatePassages(segmenter=list, tokeniser="regex_word")(frame("绿茶"))


def test_apostrophes_of_both_forms_are_one():
    for text in ("I don't think it's Ann's", "I don’t think it’s Ann’s"):
        assert regex_word(text) == ["i", "don", "t", "think", "it", "s", "ann", "s"]  # the convention of the gender measures
        assert bare_words(text) == ["i", "do", "n't", "think", "it", "'s", "ann", "'s"]
        assert keywords(text) == "not think Ann"
        for answer in ("don't", "don’t", "Ann", "ann's"):
            found = AnswerPositions()(pd.DataFrame({"docno": ["d"], "text": [text], "answer": [answer]}))
            assert found["position"].tolist() == [1 if answer.startswith("d") else 4]


@pytest.mark.parametrize("sign", "\u00ad\u2060\ufeff\u200e\u200f")
def test_invisible_characters_do_not_end_a_word(sign):
    """As Unicode Standard Annex 29 says (WB4); the zero-width space, which stands between words, does."""
    text = f"{sign}A wo{sign}man's hat{sign} {sign} it{sign}’s"
    places = scripts.word_places(text)
    assert [text[start:end] for start, end in places] == ["A", f"wo{sign}man", "s", "hat", "it", "s"]
    assert regex_word(text) == ["a", "woman", "s", "hat", "it", "s"] == [word for word, _, _ in regex_spans(text)]
    assert bare_words(text) == ["a", "woman", "'s", "hat", "it", "'s"]
    for tokeniser in ("regex_word", lambda text: regex_word(text)):
        assert count_words([f"wo{sign}man", f"wo{sign}man é", "man"], tokeniser=tokeniser).tolist() == [[0, 1], [0, 1], [1, 0]]
    assert marked_words(text, ["woman", "man"]) == text.replace(f"wo{sign}man", f"[[wo{sign}man]]")
    for passage, answer in ((text, "woman"), ("a woman", f"wo{sign}man")):
        found = AnswerPositions()(pd.DataFrame({"docno": ["d"], "text": [passage], "answer": [answer]}))
        assert found["position"].tolist() == [1]
    assert AnswerPositions()(pd.DataFrame({"docno": ["d"], "text": [text], "answer": ["man"]}))["matched"].tolist() == [False]
    swapped = SwapGender()(pd.DataFrame({"docno": ["d"], "text": [f"a wo{sign}man"]}))
    assert swapped["text"].tolist() == ["a man"]
    assert regex_word("wo\u200bman") == ["wo", "man"]


def test_emoji_are_no_words():
    text = "👩\u200d🚀 ❤️ 🇫🇷 👍🏽"
    assert scripts.word_places(text) == [] and regex_word(text) == [] == bare_words(text)
    assert words_of(text) == ["👩\u200d🚀", "❤️", "🇫🇷", "👍🏽"]
    assert count_words(["❤️he 👩\u200d🚀she"]).tolist() == [[1, 1]]


@given(st.text())
def test_plain_text_has_the_words_of_the_standard_library(text):
    """Wherever there are no marks, joiners or scripts without blanks."""
    if not scripts.has_more(text):
        assert [text[start:end] for start, end in scripts.word_places(text)] == re.findall(r"\w+", text)
    assert scripts.has_more(text) or MORE.isdisjoint(text)


@given(st.text(st.sampled_from("ab1１日。．！.」\"' \n")))
def test_sentences_leave_out_nothing_but_white_space(text):
    assert "".join("".join(sentences(text)).split()) == "".join(text.split())
    assert "" not in sentences(text)


@given(st.text(st.sampled_from("ab日本ー。「」กำ\u0e49क\u093f\u0301\u200d🫖 \n(.")))
def test_units_leave_out_nothing_but_white_space(text):
    assert "".join(scripts.units(text)) == "".join(text.split())
    assert scripts.units(text, lambda stretch: [stretch]) == scripts.units(text, lambda stretch: [stretch, ""])


# ---------------------------------------------------------------------------------------------- rotation


@pytest.mark.parametrize("cut", [False, True], ids=["clusters", "segmenter"])
@pytest.mark.parametrize("words", UNSPACED.values(), ids=UNSPACED)
def test_texts_without_blanks_rotate_at_the_edges_of_words(words, cut, caplog):
    text = "".join(words)
    segmenter = segmenter_of(words) if cut else None
    with caplog.at_level(logging.WARNING):
        out = RotatePassages(segmenter=segmenter)(frame(text))
    assert not caplog.text
    pieces = words if cut else scripts.units(text)
    assert set(out["text"]) <= {"".join(pieces[i:] + pieces[:i]) for i in range(len(pieces))}
    assert set(out["rotation"]) == set(range(len(pieces))) or len(pieces) > 9
    assert out["rotation"].nunique() > 2
    assert {tuple(sorted(clusters(rotated))) for rotated in out["text"]} == {tuple(sorted(clusters(text)))}


@pytest.mark.parametrize("text", [*SPACED.values(), "👩\u200d🚀 flies 👨\u200d👩\u200d👧 home"])
def test_texts_with_blanks_rotate_as_they_did(text):
    out = RotatePassages()(frame(text))
    words = text.split()
    assert set(out["text"]) == {" ".join(words[i:] + words[:i]) for i in range(len(words))}


def test_mixed_text_keeps_signs_with_their_words_and_words_apart():
    text = "他说:「你好!」 OK, tea茶 time"
    assert scripts.units(text) == ["他", "说:", "「你", "好!」", "OK,", "tea", "茶", "time"]
    rotated = {offset: text for text, offset in (RotatePassages(draw=d).rotator()(text, "d") for d in range(60))}
    assert rotated[1] == "说:「你好!」 OK, tea茶 time他"
    assert rotated[5] == "tea茶 time 他说:「你好!」 OK,"
    assert rotated[6] == "茶 time他说:「你好!」 OK, tea"
    between_two_latin_words = RotatePassages(segmenter=lambda stretch: [stretch]).rotator()
    assert {between_two_latin_words("tea茶x", f"d{i}")[0] for i in range(30)} == {"tea茶x", "茶x tea", "x tea茶"}


def test_sentences_of_other_scripts():
    assert sentences("我们喝茶。你呢？「好！」他说。") == ["我们喝茶。", "你呢？", "「好！」", "他说。"]
    assert sentences("यह चाय है। वह पानी है।") == ["यह चाय है।", "वह पानी है।"]
    assert sentences("ما هذا؟ كتاب.") == ["ما هذا؟", "كتاب."]
    assert sentences('他说："你好。"她走了。') == ['他说："你好。"', "她走了。"]
    assert sentences('他说。"你好！"她走了。') == ["他说。", '"你好！"', "她走了。"]
    assert sentences('"茶"好。"水。" 她走了。') == ['"茶"好。', '"水。"', "她走了。"]
    assert sentences("３．５％です。次") == ["３．５％です。", "次"]
    assert sentences("第１．概要") == ["第１．", "概要"]
    turned = {RotatePassages(unit="sentence", draw=d).rotator()("我们喝茶。你呢？", "d")[0] for d in range(20)}
    assert turned == {"我们喝茶。你呢？", "你呢？我们喝茶。"}


def test_the_share_that_cannot_rotate_is_said(caplog):
    docs = pd.DataFrame({"docno": list("abcd"), "text": ["tea", "", "green tea", "绿茶"]})
    for run in (RotatePassages(), lambda frame: list(RotatePassages().transform_iter(iter(frame.to_dict("records"))))):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            run(docs)
        assert "RotatePassages: 2 of 4 passages have fewer than two units" in caplog.text


def candidates(texts):
    rows = [("q1", "tea", f"d{i}", text) for i, text in enumerate(texts)]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])


def qrels():
    return pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})


def test_where_no_passage_rotates_nothing_is_tested(caplog):
    with caplog.at_level(logging.WARNING):
        found = PositionSensitivity(Overlap(early=1.0), resamples=99).evaluate(candidates(["tea", "rain", "boats"]), qrels())
    assert found.table["p"].isna().all() and found.table["p_t"].isna().all()
    assert found.untested.startswith("no passage changed when it was rotated (3 of 3 have fewer than two words)")
    assert found.notes[0].startswith("No passage changed") and "3 of 3 passages (100.0%)" in found.notes[1]
    assert "nothing can be said about positions" in caplog.text


def test_a_ranker_that_reads_positions_alone_is_seen_on_text_without_blanks():
    import pyterrier as pt

    early = pt.apply.doc_score(lambda row: -float(row["text"].index("茶")))
    texts = ["绿茶很好喝啊朋友", "茶叶从中国来的呢", "下雨天我喝一杯茶", "茶"]
    found = PositionSensitivity(early, resamples=99, draws=5).evaluate(candidates(texts), qrels())
    assert not found.untested and found.table["p"].notna().all()
    assert found.table["difference"].abs().max() > 0
    assert any(note.startswith("1 of 4 passages (25.0%) have fewer than two words") for note in found.notes)


# ---------------------------------------------------------------------------------------------- answers, names


@pytest.mark.parametrize(
    ("text", "answer", "positions"),
    [
        ("It cost 3.5 million, or 5 each", "5", [5]),
        ("It cost 3.5 million", "3.5", [2]),
        ("1,000 of 100", "000", []),
        ("at 12:30, in 12 days", "12", [3]),
        ("model A3.5 of 5.", "5", [3]),
        ("in 1990, 1991 and 1992.", "1990", [1]),
        ("we can't, Mr T said", "t", [3]),
        ("Straße nach ΟΔΟΣ", "STRASSE", [0]),
        ("Straße nach ΟΔΟΣ", "οδοσ", [2]),
        ("我住在东京都", "东京", [3]),
    ],
)
def test_answers_are_whole_words_and_numbers(text, answer, positions):
    found = AnswerPositions()(pd.DataFrame({"docno": ["d"], "text": [text], "answer": [answer]}))
    assert found.loc[found["matched"], "position"].tolist() == positions


def test_answers_count_words_as_rotation_does():
    words = UNSPACED["Chinese"]
    rows = frame("".join(words)).assign(answer=words[1])
    found = AnswerPositions(segmenter=segmenter_of(words))(rows)
    assert set(found["position"]) == {1} and set(found["n_words"]) == {3}
    turned = RotatePassages(segmenter=segmenter_of(words))(rows)
    again = AnswerPositions(segmenter=segmenter_of(words))(turned)
    assert found["rotated_position"].tolist() == again["position"].tolist()


@pytest.mark.parametrize("stage", [RotatePassages(), RotatePassages(scope="pair"), SwapGender(share=0.5)])
def test_a_document_turns_alike_however_its_number_is_stored(stage):
    texts = [f"he saw {i} boats go up" for i in range(60)]
    frames = [
        pd.DataFrame({"qid": pd.Series(range(60)).astype(kind), "docno": pd.Series(range(60)).astype(kind), "text": texts})
        for kind in (int, float, str, object)
    ]
    outs = [stage(each)["text"].tolist() for each in frames]
    assert outs[0] == outs[1] == outs[2] == outs[3] != texts
    if isinstance(stage, RotatePassages):
        for each in frames:
            assert [row["text"] for row in stage.transform_iter(iter(each.to_dict("records")))] == outs[0]


def test_user_words_without_case_are_swapped():
    pairs = {"वह": "यह", "他": "她"}
    docs = pd.DataFrame({"docno": ["d"], "text": ["वह गया, 他们 he\u0301"]})
    assert SwapGender(pairs=pairs)(docs)["text"][0] == "यह गया, 她们 he\u0301"
