"""RepeatNounPhrases: what is repeated, where, and what stays."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError
from pyterrier_debias.linguistic.data.noun_phrases import RepeatNounPhrases, repeat_noun_phrases

FLIGHTS = [("cheap", "JJ"), ("flights", "NNS"), ("to", "TO"), ("paris", "NN")]

#: Tags of a closed vocabulary, so that nothing hangs on an installed tagger.
TAGS = {"cheap": "JJ", "old": "JJ", "flights": "NNS", "paris": "NNP", "bridge": "NN", "to": "TO", "is": "VBZ", "?": "."}


def tag(texts):
    return [[(token, TAGS[token]) for token in text.replace("?", " ?").split()] for text in texts]


def stage(**options):
    return RepeatNounPhrases(tagger=tag, **options)


def rewritten(query, **options):
    return stage(**options)(pd.DataFrame({"qid": ["1"], "query": [query]}))["query"][0]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "cheap flights cheap flights to paris paris"),
        ({"times": 2}, "cheap flights cheap flights cheap flights to paris paris paris"),
        ({"max_phrases": 1}, "cheap flights cheap flights to paris"),
        ({"position": "append"}, "cheap flights to paris cheap flights paris"),
        ({"position": "append", "times": 2, "max_phrases": 1}, "cheap flights to paris cheap flights cheap flights"),
    ],
)
def test_the_example_of_the_method(options, expected):
    assert repeat_noun_phrases("cheap flights to paris", FLIGHTS, **options) == expected
    assert rewritten("cheap flights to paris", **options) == expected


def test_without_a_noun_phrase_the_whole_query_is_repeated():
    assert rewritten("is  to") == "is  to is  to"
    assert rewritten("is to", times=2, position="append") == "is to is to is to"
    assert rewritten("") == ""
    assert rewritten("   ") == "   "


def test_the_wording_stays_as_it_is():
    """Signs, double blanks and letters in upper case, where the tagger's tokens are pieces of the text."""
    tagged = [("Cheap", "JJ"), ("flights", "NNS"), ("?", ".")]
    assert repeat_noun_phrases(" Cheap  flights?", tagged) == " Cheap  flights Cheap  flights?"
    other = [("``", "``"), ("cheap", "JJ"), ("flights", "NNS"), ("''", "''")]
    assert repeat_noun_phrases('"cheap flights"', other) == "`` cheap flights cheap flights ''"


@given(
    words=st.lists(st.sampled_from(sorted(TAGS)), max_size=8),
    times=st.integers(1, 3),
    position=st.sampled_from(["inplace", "append"]),
)
def test_no_word_is_lost_or_new(words, times, position):
    """Words of phrases stand times + 1 times, all others once."""
    text = " ".join(words).replace(" ?", "?")
    new = rewritten(text, times=times, position=position)
    cut = new.replace("?", " ?").split()
    assert set(cut) == set(words)
    nouns = [TAGS[word].startswith("NN") for word in words]
    for word in set(words):
        one, whole = words.count(word), words.count(word) * (times + 1)
        if TAGS[word].startswith("NN") or not any(nouns):
            assert cut.count(word) == whole
        elif not TAGS[word].startswith("JJ"):
            assert cut.count(word) == one
        else:
            assert one <= cut.count(word) <= whole
    if position == "append":
        assert new.startswith(text)


def test_old_queries_are_kept_as_pyterriers_rewriters_keep_them():
    frame = pd.DataFrame({"qid": ["1", "2"], "query": ["paris", "is"], "query_0": ["p", "i"], "user": [7, 8]}, index=[5, 3])
    before = frame.copy()
    out = stage()(frame)
    assert out["query"].tolist() == ["paris paris", "is is"]
    assert out["query_0"].tolist() == ["paris", "is"]
    assert out["query_1"].tolist() == ["p", "i"]
    assert out["user"].tolist() == [7, 8]
    assert frame.equals(before)
    assert {"query", "query_0"} <= set(stage()(frame.iloc[:0]).columns)


def test_each_distinct_query_is_tagged_once():
    seen = []

    def spy(texts):
        seen.extend(texts)
        return tag(texts)

    frame = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "a"], "query": ["paris", "paris", "old bridge"]})
    assert RepeatNounPhrases(tagger=spy)(frame)["query"].tolist() == ["paris paris"] * 2 + ["old bridge old bridge"]
    assert seen == ["paris", "old bridge"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"times": 0}, "times=0 must be a whole number of at least 1"),
        ({"times": None}, "times=None must be"),
        ({"max_phrases": 1.5}, "max_phrases=1.5 must be"),
        ({"position": "front"}, "position='front' is not known; use one of 'inplace', 'append'"),
        ({"tagger": "stanford"}, "tagger='stanford' is not known"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, message):
    with pytest.raises(InputError, match=message):
        RepeatNounPhrases(**{"tagger": tag, **options})(pd.DataFrame({"qid": ["1"], "query": ["paris"]}))


def test_a_missing_query_is_named():
    with pytest.raises(InputError, match="RepeatNounPhrases: column 'query' has no value at row 1"):
        stage()(pd.DataFrame({"qid": ["1", "2"], "query": ["paris", None]}))
