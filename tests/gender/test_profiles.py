"""Profiles by lexicons: what belongs to a category, files, the paper's columns."""

import logging
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.data.profiles import (
    FOUR,
    PAPER_COLUMNS,
    Lexicon,
    LexiconProfiles,
    category_counts,
    category_shares,
    columns_of,
    read_dic,
    read_empath,
)

DIC = """%
1\tfunction (Function Words)
125 affect
126\tposemo
%
a\t1
happ*\t125 126
happy\t125
kind\t(02 134)125/126
unhapp*\t125
"""


def test_worked_example():
    lexicon = Lexicon({"posemo": ["happ*", "joy"], "affect": ["Happ*", "joy", "sad"], "none": ["zzz"]})
    counts, words = category_counts(["Happy, happiest of all!", "a sad joy joy", "", "unhappy"], lexicon)
    assert counts.tolist() == [[2, 2, 0], [2, 3, 0], [0, 0, 0], [0, 0, 0]]
    assert words.tolist() == [4, 4, 0, 1]
    shares = category_shares(["a sad joy joy", ""], lexicon, columns=["affect", "posemo"])
    assert shares.tolist() == [[0.75, 0.5], [0, 0]]


def test_a_word_counts_once_in_a_category():
    assert category_counts(["happiness"], {"x": ["happ*", "happiness", "h*"]})[0].tolist() == [[1]]


WORDS = st.sampled_from(["ab", "abc", "abd", "b", "bcd", "x"])


@given(st.lists(st.lists(WORDS, max_size=6), max_size=5))
def test_counts_are_those_of_regular_expressions(texts):
    categories = {"one": ["ab*", "b"], "two": ["abc", "bc*", "b"], "three": ["x"]}
    patterns = [r"\b(?:ab\w*|b)\b", r"\b(?:abc|bc\w*|b)\b", r"\bx\b"]
    texts = [" ".join(words) for words in texts]
    expected = [[len(re.findall(pattern, text)) for pattern in patterns] for text in texts]
    assert category_counts(texts, categories)[0].tolist() == expected


def test_liwc_files(tmp_path, caplog):
    path = tmp_path / "own.dic"
    path.write_text(DIC)
    with caplog.at_level(logging.WARNING):
        lexicon = Lexicon.of(path)
    assert lexicon.categories == {
        "function": {"a"},
        "affect": {"happ*", "happy", "unhapp*"},
        "posemo": {"happ*", "kind"},
    }
    assert lexicon.name == "own"
    assert "conditions on the preceding word" in caplog.text
    assert category_shares(["A happy kind"], lexicon).tolist() == [[1 / 3, 1 / 3, 2 / 3]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\t1\n", "between two lines"),
        ("%\none\n%\n", "line 2: a category is a number and a name"),
        ("%\n1\tx\n%\na\t2\n", "line 4: category 2 of 'a' is not declared"),
    ],
)
def test_liwc_files_that_are_refused(tmp_path, content, message):
    path = tmp_path / "own.dic"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_dic(path)


def test_empath(shared_data, tmp_path):
    lexicon = Lexicon.of(shared_data / "lexicons/empath_categories.tsv")
    assert len(lexicon.names) == 194
    shares = category_shares(["The office of the dancers"], lexicon, columns=["office", "dance"])
    assert shares[0, 0] == pytest.approx(1 / 5)
    path = tmp_path / "empath.tsv"
    path.write_text("alone\n")
    with pytest.raises(InputError, match="line 1: write the category"):
        read_empath(path)


def test_the_papers_columns():
    assert len(PAPER_COLUMNS) == 22
    lexicon = Lexicon({name: [name] for name in PAPER_COLUMNS})
    shares = category_shares(["work home work other"], lexicon, columns="paper")
    assert shares.shape == (1, 22)
    assert shares[0, PAPER_COLUMNS.index("work")] == 0.5
    # persconc is the sum of its six: 2/4 of work and 1/4 of home.
    assert category_shares(["work home work other"], lexicon, columns="persconc").tolist() == [[0.75]]
    with pytest.raises(InputError, match="lexicon 'lexicon' has no category 'posemo'"):
        category_shares(["x"], {"negemo": ["bad"]}, columns="paper")


def test_shipped_scores_have_the_papers_columns(shared_data):
    """The released scores of passages are in per cent, and their columns are those of Table 2."""
    path = shared_data / "gender/bigdeli_2021_identified_queries/psychological_characteristic_male_queries.csv.gz"
    scores = pd.read_csv(path)
    names = [c for c in scores.columns if c != "qid"]
    assert columns_of(scores[names].to_numpy(), names, PAPER_COLUMNS).shape == (len(scores), 22)
    four = columns_of(scores[names].to_numpy(), names, list(FOUR))
    np.testing.assert_allclose(four[:, 3], scores[["work", "leisure", "home", "money", "relig", "death"]].sum(axis=1))


def test_the_stage_reads_each_document_once(monkeypatch):
    frame = pd.DataFrame({"qid": ["1", "2", "2"], "docno": ["d1", "d1", "d2"], "text": ["joy x", "joy x", ""]}, index=[5, 6, 6])
    from pyterrier_debias.gender.data import profiles

    seen = []
    original = profiles.category_counts
    monkeypatch.setattr(profiles, "category_counts", lambda texts, *more: seen.append(texts) or original(texts, *more))
    out = LexiconProfiles({"posemo": ["joy"]})(frame)
    assert out["profile.posemo"].tolist() == [0.5, 0.5, 0]
    assert seen == [["joy x", ""]]
    assert list(out.columns) == ["qid", "docno", "text", "profile.posemo"]
    assert LexiconProfiles({"posemo": ["joy"]})(frame.head(0))["profile.posemo"].dtype == "float64"
    with pytest.raises(InputError, match="column 'text' has no value at row 1"):
        LexiconProfiles({"posemo": ["joy"]})(frame.assign(text=["a", None, "b"]))


def test_what_is_refused():
    refused = [({}, "no categories"), ({"a": ["*"]}, "give words or beginnings"), ("no.dic", "is not a file")]
    refused += [({"a": [None]}, "holds None")]
    refused += [(3, "Lexicon.of: got a value of type int")]
    refused += [({"posemo": "happy joy"}, "category 'posemo' is one string; give a list of words")]
    for spec, message in refused:
        with pytest.raises(InputError, match=message):
            Lexicon.of(spec)
    with pytest.raises(InputError, match="category_counts: text 0 is None"):
        category_counts([None], {"a": ["x"]})


def test_identity():
    one = Lexicon({"a": ["x", "Y"]})
    assert one == Lexicon({"a": ["y", "x"]}) and hash(one) == hash(Lexicon({"a": ["y", "x"]}))
    assert one.fingerprint != Lexicon({"a": ["x"]}).fingerprint
    assert Lexicon({"a": ["x"], "b": ["y"]}) != Lexicon({"b": ["y"], "a": ["x"]})  # whose columns are another's
    assert Lexicon.of("debias").names == ("male", "female") and Lexicon.of(one) is one
    assert repr(one) == f"<Lexicon lexicon (1 categories; {one.fingerprint})>"


def test_a_dictionary_that_is_not_utf_8_is_read_as_latin_1_and_told(tmp_path, caplog):
    path, text = tmp_path / "own.dic", "%\n1\tfamily\n%\nmère\t1\n"
    path.write_text(text, encoding="utf-8")
    assert read_dic(path).categories["family"] == {"mère"} and not caplog.records
    path.write_text(text, encoding="latin-1")
    with caplog.at_level(logging.WARNING):
        assert read_dic(path).categories["family"] == {"mère"}
    assert f"lexicon {path} is not UTF-8 and was read as Latin-1" in caplog.text
