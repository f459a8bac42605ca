"""Counting agrees with splitting and counting, word for word."""

import logging
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas import counting
from pyterrier_debias.gender.formulas.counting import WordCounts, count_words, document_numbers, word_counts

#: Words that agree in their first bytes, that are longer than eight and sixteen bytes, that are not ASCII.
TRICKY = WordList(
    {
        "a": ["he", "her", "granddaughter", "granddaughters", "granddaugh", "éa", "ß", "straße", "__x"],
        "b": ["she", "hers", "granddaughterx", "abcdefgh", "abcdefgi", "abcdefghabcdefghabc", "ſ", "и", "x" * 24, "日", "हिन्दी"],
    }
)
PLAIN = {
    "regex_word": regex_word,
    "whitespace": lambda text: unicodedata.normalize("NFC", text.lower()).split(),
    "blank": lambda text: unicodedata.normalize("NFC", text.lower()).split(" "),
}


def slowly(texts, wordlist, tokeniser):
    """Split and count, with nothing of the fast way."""
    found = [Counter(PLAIN[tokeniser](text)) for text in texts]
    return [[sum(counts[word] for word in words) for words in wordlist.groups.values()] for counts in found]


def test_worked_example():
    texts = ["She gave him her word; he's not sure.", "the theory of others", ""]
    # she, her | him, he (of he's). "the", "theory" and "others" hold "he" and "her" inside other words.
    assert count_words(texts).tolist() == [[2, 2], [0, 0], [0, 0]]
    # Split at white space "he's" and "word;" are words of their own.
    assert count_words(texts, tokeniser="whitespace").tolist() == [[1, 2], [0, 0], [0, 0]]


WORDS = st.sampled_from([*TRICKY.words, "the", "He", "SHE", "İ", "ǅ", "\udcff", "granddaughterxy", "heß", "abcdefghabcdefghabd"])
GLUE = st.sampled_from([
    " ", "  ", "\n", "\t", "\x1c", "\x85", "\xa0", ".", "'", "_", "-", "\u2019", "\u3000", "", "é", "\0", "\u0301", "\u200d",
    "日", "🫖",
])  # fmt: skip


@st.composite
def sentences(draw):
    return "".join(word + draw(GLUE) for word in draw(st.lists(WORDS | st.text(max_size=3), max_size=8)))


@settings(max_examples=300)
@given(st.lists(sentences(), max_size=6), st.sampled_from(sorted(PLAIN)))
@example(["__x ß\U00013460 "], "regex_word")  # a letter to newer versions of Unicode only
def test_any_text_counts_as_splitting_does(texts, tokeniser):
    assert count_words(texts, TRICKY, tokeniser).tolist() == slowly(texts, TRICKY, tokeniser)


@pytest.mark.parametrize("tokeniser", sorted(PLAIN))
def test_real_passages_count_as_splitting_does(shared_data, tokeniser):
    import gzip

    with gzip.open(shared_data / "msmarco_trec_dl/passages.tsv.gz", "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n").split("\t", 1)[1] for line in lines][::5]
    published = WordList.of(shared_data / "gender/rekabsaz_2021_fair/wordlist_gender_representative.txt")
    assert count_words(texts, published, tokeniser).tolist() == slowly(texts, published, tokeniser)


def test_batches_do_not_matter(monkeypatch):
    texts = ["he and she", "", "éa he", "x" * 50, "her\nhis", "Straße"] * 3
    whole = word_counts(texts, TRICKY)
    monkeypatch.setattr(counting, "_CHARACTERS", 7)
    parts = word_counts(texts, TRICKY)
    for name in ("rows", "words", "counts"):
        assert getattr(whole, name).tolist() == getattr(parts, name).tolist()


def test_totals_weigh_each_words_own_count():
    counts = word_counts(["he he his she", "none", "he"])
    assert counts.found() == [{"he": 2, "his": 1, "she": 1}, {}, {"he": 1}]
    # ln 2 + ln 1 and ln 1; a word that stands once adds nothing.
    assert counts.total(np.log).tolist() == [[np.log(2), 0.0], [0.0, 0.0], [0.0, 0.0]]
    assert counts.total().dtype == np.int64


def test_rows_can_be_taken_and_joined():
    counts = word_counts(["he", "", "she she her"])
    again = counts.take(np.array([2, 0, 2, 1]))
    assert again.total().tolist() == [[0, 3], [1, 0], [0, 3], [0, 0]]
    assert WordCounts.joined([counts, again]).total().tolist() == [*counts.total().tolist(), *again.total().tolist()]
    assert counts.take(np.array([], dtype=int)).total().shape == (0, 2)


def test_nothing_to_count():
    assert count_words([]).shape == (0, 2)
    assert count_words(["", " "]).tolist() == [[0, 0], [0, 0]]
    assert count_words([], tokeniser=str.split).shape == (0, 2)


def test_a_function_is_a_tokeniser_and_capitals_play_no_part():
    assert count_words(["He|SHE|x"], tokeniser=lambda text: text.split("|")).tolist() == [[1, 1]]
    for _ in range(3):  # each function is asked for the list's words first, also if it lies where one before it lay
        with pytest.raises(InputError, match="the tokeniser <lambda> returned None for the text 'boy'; return a list of words"):
            count_words(["He"], tokeniser=lambda text: None)
    assert count_words(["Don't he", "she."], tokeniser="blingfire").tolist() == [[1, 0], [0, 1]]


def test_words_that_cannot_be_found_are_named(caplog):
    words = {"m": ["mr.", "he"], "f": ["mrs.", "hair salon"]}
    with caplog.at_level(logging.WARNING):
        count_words(["he"], words)
        count_words(["he"], words)
    assert len(caplog.records) == 1
    assert "3 of its 4 words are never found" in caplog.text
    assert "e.g. 'mr.', 'hair salon', 'mrs.'" in caplog.text
    with caplog.at_level(logging.WARNING):
        count_words(["he"], words, "whitespace")
    assert "1 of its 4 words are never found" in caplog.records[-1].getMessage()
    with caplog.at_level(logging.WARNING):
        count_words(["he"], words, str.split)
    assert "because tokeniser str.split never returns them" in caplog.records[-1].getMessage()
    with caplog.at_level(logging.WARNING):
        count_words(["he"], {"m": [f"m{i}." for i in range(4)], "f": [f"f{i}." for i in range(3)]})
    assert caplog.records[-1].getMessage().count(".'") == 5  # of seven, examples


def test_bad_input_is_named():
    with pytest.raises(InputError, match="count_words: text 1 is None"):
        count_words(["a", None])
    with pytest.raises(InputError, match="tokeniser='words' is not known"):
        count_words(["a"], tokeniser="words")


def test_documents_of_one_name_and_two_texts_are_two():
    first, own = document_numbers(["d1", "d1", "d1"], ["a", "b", "a"])
    assert (first.tolist(), own.tolist()) == ([0, 1], [0, 1, 0])
    assert document_numbers([], [])[0].tolist() == []


@pytest.mark.parametrize(("allowed", "threads"), [("1", 1), ("3", 3), ("", 4), ("1,2", 4)])
def test_as_many_threads_as_the_environment_allows(monkeypatch, allowed, threads):
    monkeypatch.setattr(counting.os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", allowed)
    assert counting.threads() == threads


def test_threads_change_nothing(monkeypatch):
    # Lots so small that there are hundreds of them, of every kind.
    texts = [f"he {'x ' * (i % 7)}granddaughter éa{i % 3} her \u00df" for i in range(2_000)]
    monkeypatch.setattr(counting, "_CHARACTERS", 200)
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(counting, "threads", lambda threads=threads: threads)
        found.append(word_counts(texts, TRICKY))
    for name in ("rows", "words", "counts"):
        np.testing.assert_array_equal(getattr(found[0], name), getattr(found[1], name))
    assert count_words(texts, TRICKY).tolist() == slowly(texts, TRICKY, "regex_word")
