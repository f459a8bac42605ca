"""The same need in other words: rules and the stage."""

import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError, PlantedCollection
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data.planted_material import FUNCTION_WORDS as NOT_IN_PASSAGES
from pyterrier_debias.linguistic.data.analysers import words_of
from pyterrier_debias.linguistic.data.noun_phrases import repeat_noun_phrases
from pyterrier_debias.linguistic.data.rewrites import (
    REWRITES,
    RewriteQueries,
    keywords,
    question_frame,
    relative_clause,
    rewrite_name,
    rewritten,
)

TAGS = {"cheap": "JJ", "flights": "NNS", "paris": "NN", "ship": "NN", "ships": "NNS", "watt": "NNP", "discovery": "NN"}


def tagger(texts):
    return [[(word, TAGS.get(word.lower(), "IN")) for word in words_of(text)] for text in texts]


QUERIES = {
    "cheap flights to paris": {
        "noun_phrases": "cheap flights cheap flights to paris paris",
        "question_frame": "what is there on cheap flights to paris?",
        "relative_clause": "cheap flights that i would ask about to paris",
        "keywords": "cheap flights paris",
    },
    "Who built the ship?": {
        "noun_phrases": "Who built the ship ship?",
        "question_frame": "can you tell me who built the ship?",
        "relative_clause": "Who built the ship that i would ask about?",
        "keywords": "built ship",
    },
    "isn't it over ?": {
        "question_frame": "can you tell me isn't it over?",
        "relative_clause": "isn't it over that i would ask about ?",
        "keywords": "not",  # a negation is content
    },
    "Why can't I sleep": {"question_frame": "can you tell me why can't I sleep?", "keywords": "not sleep"},
    "I won’t go": {"question_frame": "what is there on I won’t go?", "keywords": "not go"},
    "Can't connect to wifi": {"question_frame": "can you tell me can't connect to wifi?", "keywords": "not connect wifi"},
    "Shan't we ask, ain't it late": {
        "question_frame": "can you tell me shan't we ask, ain't it late?",
        "keywords": "not ask not late",
    },
    "dentists in CA": {"question_frame": "what is there on dentists in CA?", "keywords": "dentists CA"},
    "IS war in syria": {"question_frame": "can you tell me IS war in syria?", "keywords": "IS war syria"},
    "US president salary": {"keywords": "US president salary"},
    "What are the WHO guidelines on IT?": {"keywords": "WHO guidelines IT"},
    "Am I A child?": {"keywords": "child"},  # single letters are no names
    "please DON'T touch": {"keywords": "not touch"},
    "THE US PRESIDENT": {"keywords": "PRESIDENT"},
    "WON'T IT START": {"question_frame": "can you tell me WON'T IT START?", "keywords": "not START"},
    # Names of function words, where capitals mean something.
    "When did World War I begin?": {"keywords": "World War I begin"},
    "When was World War I?": {"keywords": "World War I"},
    "vitamin A": {"keywords": "vitamin A"},
    "is vitamin A good for us": {"keywords": "vitamin A good"},
    "What did ABC buy in May 1960?": {"keywords": "ABC buy May 1960"},
    "When was Doctor Who first shown?": {"keywords": "Doctor Who first shown"},
    "Where is Will Smith? What is it?": {"keywords": "Will Smith"},
    "may 1960": {"keywords": "1960"},
    "Buy A House By The Lake": {"keywords": "Buy House Lake"},  # capitals of a title mean nothing
    "Things I need, as my wife and I": {"keywords": "Things need wife"},
    # Questions that do not begin with a question word.
    "In what year did Tesla move?": {"question_frame": "can you tell me in what year did Tesla move?"},
    "at what age do ships rust": {"question_frame": "can you tell me at what age do ships rust?"},
    "Tesla moved in which year?": {"question_frame": "can you tell me Tesla moved in which year?"},
    "google what is rust": {"question_frame": "can you tell me google what is rust?"},
    "Whats the fare": {"question_frame": "can you tell me whats the fare?"},
    "the puzzle that nobody has explained is why are ships": {
        "question_frame": "what is there on the puzzle that nobody has explained is why are ships?",
    },
    "Cheap flights?": {"question_frame": "what is there on Cheap flights?"},
    # The stop of an abbreviation stays.
    "rivers of the U.S.": {
        "question_frame": "what is there on rivers of the U.S.?",
        "relative_clause": "rivers of the U.S. that i would ask about",
    },
    "In the U.S.?": {"question_frame": "what is there on In the U.S.?"},
    "tea. Rust.": {"question_frame": "what is there on tea. Rust?"},
    # Possessives stay with what follows.
    "Who confirmed Watt's discovery?": {"relative_clause": "Who confirmed Watt's discovery that i would ask about?"},
    "when is Watt’s new ships’ paris": {"relative_clause": "when is Watt’s new ships’ paris that i would ask about"},
    "Watt's new": {"relative_clause": "Watt's new that i would ask about"},
    "the 'cheap ships' in paris": {"relative_clause": "the 'cheap ships that i would ask about' in paris"},
    "the": {"keywords": "the", "question_frame": "what is there on the?"},
    "": {"noun_phrases": "", "question_frame": "", "relative_clause": "", "keywords": ""},
}


@pytest.mark.parametrize("query", QUERIES)
def test_rules(query):
    assert {rule: rewritten([query], rule, tagger=tagger)[0] for rule in QUERIES[query]} == QUERIES[query]


@given(st.text(alphabet="abc tohe?.,'- ", max_size=30))
def test_every_rule_keeps_the_words_that_count(query):
    kept = set(keywords(query).split())
    assert kept <= {"not", *words_of(query), *query.split()}
    for rule in ("question_frame", "relative_clause"):
        new = rewritten([query], rule, tagger=tagger)[0]
        lowered = {word.lower() for word in words_of(query) if word.isalnum()}
        assert lowered <= {word.lower() for word in words_of(new)} or not query.strip()
    assert rewritten([query], "keywords") == rewritten(rewritten([query], "keywords"), "keywords")


def test_frames_add_nothing_that_passages_of_the_planted_collection_hold():
    held = set()
    for text in PlantedCollection(0, topics=20).get_corpus()["text"]:
        held |= set(regex_word(text))
    for rule in (question_frame, relative_clause):
        for query in ("who built it", "old boats"):
            added = set(regex_word(rule(query, []))) - set(regex_word(query))
            assert added and not (added - NOT_IN_PASSAGES) & held


def test_signs_that_a_tagger_takes_for_nouns():
    tagged = [('"', "NN"), ("green", "JJ"), ("tea", "NN"), ('"', "NN"), ("benefits", "NNS")]
    assert relative_clause('"green tea" benefits', tagged) == '"green tea that i would ask about" benefits'
    assert repeat_noun_phrases('"green tea" benefits', tagged) == '"green tea green tea" benefits benefits'


def test_a_clause_does_not_split_a_word():
    tagged = [("tcp/", "NN"), ("ip", "VB"), ("?", ".")]
    assert relative_clause("tcp/ip?", tagged) == "tcp/ip that i would ask about?"
    assert relative_clause("tcp /ip", tagged[:2]) == "tcp /ip that i would ask about"


def test_words_that_the_tagger_changed():
    """Where a token is no piece of the query, the clause goes to the end."""
    tagged = [("cheapest", "JJ"), ("flights", "NNS")]
    assert relative_clause("cheap flights now", tagged) == "cheap flights now that i would ask about"


def test_the_stage():
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["cheap flights", "cheap flights"], "other": [1, 2]})
    out = RewriteQueries("keywords")(topics.assign(query=["the cheap flights", "flights"]))
    assert out["query"].tolist() == ["cheap flights", "flights"] and out["query_0"].tolist() == ["the cheap flights", "flights"]
    assert set(out.columns) == {"qid", "query", "query_0", "other"}
    calls = []

    def loud(query):
        calls.append(query)
        return query.upper()

    assert RewriteQueries(loud)(topics)["query"].tolist() == ["CHEAP FLIGHTS"] * 2
    assert calls == ["cheap flights"] and rewrite_name(loud) == "loud"
    assert RewriteQueries("keywords") == RewriteQueries("keywords") != RewriteQueries()
    assert pt.inspect.transformer_inputs(RewriteQueries()) == [["query"]]


@pytest.mark.parametrize("rewrite", ["paraphrase", None, 3, lambda query: None])
def test_bad_rewrites(rewrite):
    with pytest.raises(InputError, match="rewrite"):
        RewriteQueries(rewrite)(pd.DataFrame({"qid": ["1"], "query": ["tea"]}))


def test_all_rules_have_names():
    assert list(REWRITES) == ["noun_phrases", "question_frame", "relative_clause", "keywords"]
