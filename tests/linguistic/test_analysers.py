"""Tokens, tags, base noun phrases, lemmas."""

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.errors import InputError
from pyterrier_debias.linguistic import analysers
from pyterrier_debias.linguistic.analysers import LexiconTagger, get_tagger, noun_phrases, words_of


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        ("  \n", []),
        ("what is it", ["what", "is", "it"]),
        ("Don't can't won’t", ["Do", "n't", "ca", "n't", "wo", "n’t"]),
        ("he's we'll I'd", ["he", "'s", "we", "'ll", "I", "'d"]),
        ("dogs' 'quoted'", ["dogs", "'", "'", "quoted", "'"]),
        ("U.S. e.g. a.", ["U.S.", "e.g.", "a", "."]),
        ("1,000.5 at 12:30, 3%", ["1,000.5", "at", "12:30", ",", "3", "%"]),
        ("type-2 R&D (x)", ["type-2", "R&D", "(", "x", ")"]),
        ("what?! -- no...", ["what", "?", "!", "--", "no", "..."]),
        ("n't", ["n't"]),
        ("ant pant", ["ant", "pant"]),
        ("naïve 你好", ["naïve", "你好"]),
    ],
)
def test_tokens(text, tokens):
    assert words_of(text) == tokens


@given(st.text())
def test_no_sign_of_a_text_is_lost(text):
    assert "".join(words_of(text)) == re.sub(r"\s", "", text)


def test_the_lexicon_tags_signs_as_signs():
    tagged = LexiconTagger()(["(the) dogs, 3 — don't ! %", ""])
    assert tagged[1] == []
    assert dict(tagged[0]) | {} == {
        "(": "-LRB-", "the": "DT", ")": "-RRB-", "dogs": "NNS", ",": ",", "3": "CD", "—": ":", "do": "VBP", "n't": "RB",
        "!": ".", "%": "NN",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("", []),
        ("DT", []),
        ("JJ", []),
        ("JJ JJ", []),
        ("NN", [(0, 1)]),
        ("JJ NN", [(0, 2)]),
        ("DT JJ JJR NN NNS VB", [(1, 5)]),
        ("NN JJ NN", [(0, 1), (1, 3)]),
        ("JJ DT NN", [(2, 3)]),
        ("JJ VB JJ NN", [(2, 4)]),
        ("NN IN NNP NNP", [(0, 1), (2, 4)]),
        ("VB JJ", []),
        ("NN JJ", [(0, 1)]),
        ("NN JJ DT JJ NN", [(0, 1), (3, 5)]),
    ],
)
def test_base_noun_phrases(tags, spans):
    assert noun_phrases([("w", tag) for tag in tags.split()]) == spans


@given(st.lists(st.sampled_from(["JJ", "NN", "NNS", "DT", "VB"])))
def test_base_noun_phrases_are_what_the_pattern_finds(tags):
    letters = "".join({"J": "J", "N": "N"}.get(tag[0], "x") for tag in tags)
    assert noun_phrases([("w", tag) for tag in tags]) == [m.span() for m in re.finditer("J*N+", letters)]


def test_without_spacy_and_nltk_data_the_lexicon_stands_in_and_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(analysers, "_installed_spacy", lambda: None)
    monkeypatch.setattr(analysers, "_nltk_data", lambda: False)
    analysers._notice.cache_clear()
    with caplog.at_level(logging.WARNING, logger=analysers.__name__):
        assert analysers.default_tagger() == analysers.default_tagger() == LexiconTagger()
    assert [r.message for r in caplog.records if "textblob's lexicon" in r.message] == [caplog.records[0].message]
    analysers._notice.cache_clear()


def test_taggers_by_name():
    def own(texts):
        return [[(w, "NN") for w in text.split()] for text in texts]

    assert get_tagger(own) is own
    assert get_tagger("textblob") == LexiconTagger()
    with pytest.raises(InputError, match="'brill' is not known"):
        get_tagger("brill")
