"""Tokenisers and keyed chance."""

from collections import Counter

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pyterrier_debias import InputError
from pyterrier_debias.core import text


def test_whitespace_keeps_the_wording():
    assert text.whitespace(" Don't  stop,\nplease. ") == ["Don't", "stop,", "please."]


def test_regex_word_lower_cases_and_drops_punctuation():
    assert text.regex_word("He's in Zürich-West") == ["he", "s", "in", "zürich", "west"]


def test_blingfire_splits_as_the_released_code_does():
    pytest.importorskip("blingfire")
    assert text.blingfire("Don't eat the fox,") == ["Do", "n't", "eat", "the", "fox", ","]


def test_get_tokeniser_by_name_or_callable():
    assert text.get_tokeniser("whitespace") is text.whitespace
    assert text.get_tokeniser(str.split)("to be") == ["to", "be"]
    assert text.get_tokeniser(lambda text: (word for word in text.split()))("to be") == ["to", "be"]
    with pytest.raises(InputError, match="'bpe' is not known; use one of 'whitespace'"):
        text.get_tokeniser("bpe")


@pytest.mark.parametrize(
    ("returned", "said"), [(None, "None"), ("to", "a str"), (3, "an int"), (["to", 3], "a list that contains an int")]
)
def test_a_tokeniser_that_returns_no_words_is_named(returned, said):
    def cutter(text):
        return returned

    with pytest.raises(InputError, match=f"the tokeniser cutter returned {said} for the text 'to be'; return a list of words"):
        text.get_tokeniser(cutter)("to be")


def test_keyed_hash_is_the_same_everywhere():
    # Frozen: a change would silently change every rotation and every planted collection.
    assert text.keyed_hash(0, "d1") == 6183245040555935459
    assert text.keyed_hash(1, "d1", "q1") == 2885667772958040273


def test_keyed_hash_sees_boundaries():
    assert len({text.keyed_hash(0, "ab", "c"), text.keyed_hash(0, "a", "bc"), text.keyed_hash(0, "abc")}) == 3


@given(st.integers(1, 1000), st.integers(), st.lists(st.text(max_size=5), max_size=3))
def test_keyed_integer_is_in_range_and_repeatable(n, seed, ids):
    draw = text.keyed_integer(n, seed, *ids)
    assert 0 <= draw < n
    assert draw == text.keyed_integer(n, seed, *ids)


def test_keyed_integer_is_uniform():
    counts = Counter(text.keyed_integer(7, 3, f"d{i}") for i in range(7_000))
    assert stats.chisquare([counts[k] for k in range(7)]).pvalue > 0.001


def test_keyed_generators_differ_by_key():
    one, two = text.keyed_generator(0, "a"), text.keyed_generator(0, "b")
    assert one.random() != two.random()
    assert text.keyed_generator(0, "a").random() == text.keyed_generator(0, "a").random()


def test_a_mark_does_not_depend_on_how_many_rows_are_hashed_at_a_time(monkeypatch):
    odd = [None if i % 7 == 0 else i if i % 3 else (i, "a") for i in range(50)]
    frame = pd.DataFrame({"qid": [str(i % 7) for i in range(50)], "docno": [f"d{i}" for i in range(50)], "score": range(50)})
    frame["odd"] = pd.Series(odd, dtype=object)
    whole = text.content_mark(frame)
    monkeypatch.setattr(text, "_ROWS", 7)
    assert text.content_mark(frame.sample(frac=1, random_state=1)) == whole != text.content_mark(frame.head(49))
    assert text.content_mark(frame.head(0)).startswith("0:")
