"""Tokens, tags, base noun phrases, lemmas."""

import logging
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.scripts import composed
from pyterrier_debias.linguistic.data import analysers
from pyterrier_debias.linguistic.data.analysers import (
    LexiconTagger,
    PerceptronTagger,
    SpacyTagger,
    get_lemmatiser,
    get_tagger,
    lemminflect_lemma,
    noun_phrases,
    word_form,
    words_of,
)


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
        ("naïve 你好", ["naïve", "你", "好"]),
    ],
)
def test_tokens(text, tokens):
    assert words_of(text) == tokens


@given(st.text(alphabet="ab1 \n"))
def test_plain_texts_take_a_short_cut_to_the_same_tokens(text):
    assert words_of(text) == re.findall(analysers._TOKEN, text, re.VERBOSE | re.IGNORECASE)


@given(st.text() | st.text(alphabet="aB1 ?!.'n-t\n"))
def test_bare_words_are_the_lower_cased_tokens_without_signs(text):
    tokens = words_of(composed(text.lower()).replace("’", "'"))
    assert analysers.bare_words(text) == [token for token in tokens if not analysers.is_sign(token)]


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


def test_base_noun_phrases_of_universal_tags():
    tagged = [("cheap", "ADJ"), ("flights", "NOUN"), ("to", "ADP"), ("Paris", "PROPN"), ("leave", "VERB")]
    assert noun_phrases(tagged) == [(0, 2), (3, 4)]


@given(st.lists(st.sampled_from(["JJ", "NN", "NNS", "DT", "VB"])))
def test_base_noun_phrases_are_what_the_pattern_finds(tags):
    letters = "".join({"J": "J", "N": "N"}.get(tag[0], "x") for tag in tags)
    assert noun_phrases([("w", tag) for tag in tags]) == [m.span() for m in re.finditer("J*N+", letters)]


@pytest.mark.parametrize("installed", [True, False])
def test_without_a_pipeline_and_nltk_data_the_lexicon_stands_in_and_says_so_once(installed, monkeypatch, caplog):
    """The extra brings spaCy without a pipeline: what is there need not be installed."""
    monkeypatch.setattr(analysers.importlib.util, "find_spec", lambda name: object() if installed else None)
    monkeypatch.setattr(analysers, "_installed_spacy", lambda: None)
    monkeypatch.setattr(analysers, "_nltk_data", lambda: False)
    analysers._notice.cache_clear()
    with caplog.at_level(logging.WARNING, logger=analysers.__name__):
        assert analysers.default_tagger() == analysers.default_tagger() == LexiconTagger()
    (told,) = [r.message for r in caplog.records if "textblob's lexicon" in r.message]
    assert "python -m spacy download en_core_web_sm" in told and ("pip install" in told) != installed
    analysers._notice.cache_clear()


STRAIGHT = "the woman's rights: he can't say it's the dogs' tea"


def alike(tagger):
    """Whether tags are the same with curved apostrophes, which the tokens keep."""
    straight, curved = tagger([STRAIGHT, STRAIGHT.replace("'", "’")])
    return curved == [(token.replace("'", "’"), tag) for token, tag in straight]


def test_tags_do_not_depend_on_the_form_of_the_apostrophe():
    assert alike(LexiconTagger())
    assert ("n’t", "RB") in LexiconTagger()(["can’t"])[0]


def test_taggers_by_name():
    def own(texts):
        return [[(w, "NN") for w in text.split()] for text in texts]

    assert get_tagger(own) is own
    assert get_tagger("textblob") == LexiconTagger()
    with pytest.raises(InputError, match="'brill' is not known"):
        get_tagger("brill")


# ------------------------------------------------------------------------------------------------ tools that may be installed


def test_nltks_perceptron_where_its_data_is(shared_data, monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [str(shared_data / "nltk_data")])
    analysers._perceptron.cache_clear()
    monkeypatch.setattr(analysers, "_installed_spacy", lambda: None)
    tagger = analysers.default_tagger()
    assert tagger == PerceptronTagger()
    assert tagger(["she drinks it.", ""]) == [[("she", "PRP"), ("drinks", "VBZ"), ("it", "PRP"), (".", ".")], []]
    assert alike(tagger)
    # The two agree on most tokens of plain sentences.
    texts = ["the old doctors drink green tea in the morning", "what is the best way to sleep well", "she has never seen it"]
    pairs = [(one[1], two[1]) for a, b in zip(tagger(texts), LexiconTagger()(texts)) for one, two in zip(a, b)]
    assert np.mean([one == two for one, two in pairs]) > 0.85


def test_nltk_without_its_data_is_an_error_that_says_what_to_do(monkeypatch):
    import nltk

    monkeypatch.setattr(nltk.data, "path", [])
    analysers._perceptron.cache_clear()
    assert not analysers._nltk_data()
    with pytest.raises(InputError, match="averaged_perceptron_tagger_eng"):
        get_tagger("nltk")(["tea"])


def test_a_spacy_pipeline_tags_our_tokens(tmp_path):
    spacy = pytest.importorskip("spacy", reason="the extra 'linguistic' is not installed")
    from spacy.tokens import Doc
    from spacy.training import Example

    nlp = spacy.blank("en")
    nlp.add_pipe("tagger")
    words, tags = ["tea", "helps", "n't"], ["NN", "VBZ", "RB"]
    example = Example.from_dict(Doc(nlp.vocab, words=words), {"tags": tags})
    optimiser = nlp.initialize(lambda: [example])
    for _ in range(15):
        nlp.update([example], sgd=optimiser)
    nlp.to_disk(tmp_path / "tiny")
    assert SpacyTagger(str(tmp_path / "tiny"))(["tea helpsn't", "tea"]) == [list(zip(words, tags)), [("tea", "NN")]]
    assert SpacyTagger(str(tmp_path / "tiny"))(["tea helpsn’t"]) == [[*zip(words[:2], tags), ("n’t", "RB")]]
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(InputError, match="has no tagger"):
        SpacyTagger(str(tmp_path / "blank"))(["tea"])


def test_spacy_without_a_pipeline_is_an_error_that_says_what_to_do(monkeypatch):
    with pytest.raises(InputError, match="cannot be loaded"):
        SpacyTagger("en_no_such_pipeline")(["tea"])
    monkeypatch.setattr(analysers.metadata, "entry_points", lambda group: [])
    with pytest.raises(InputError, match="no English pipeline is installed"):
        get_tagger("spacy")


def test_the_smallest_english_pipeline_is_taken(monkeypatch):
    names = ["de_core_news_sm", "en_core_web_trf", "en_core_web_md", "en_core_web_sm", "en_own"]
    points = [type("Point", (), {"name": name}) for name in names]
    monkeypatch.setattr(analysers.metadata, "entry_points", lambda group: points)
    assert analysers.default_tagger() == get_tagger("spacy") == SpacyTagger("en_core_web_sm")
    assert analysers.tool_name(analysers.default_tagger()) == "spacy en_core_web_sm"
    points[:] = points[:2]
    assert analysers.default_tagger() == SpacyTagger("en_core_web_trf")


# ------------------------------------------------------------------------------------------------ lemmas


@pytest.mark.parametrize(
    ("word", "tag", "lemma"),
    [
        ("Studies", "NNS", "study"),
        ("studies", "VBZ", "study"),
        ("was", "VBD", "be"),
        ("'s", "VBZ", "be"),
        ("’re", "VBP", "be"),
        ("'d", "MD", "would"),
        ("'s", "POS", "'s"),
        ("n't", "RB", "not"),
        ("better", "JJR", "good"),
        ("Statins", "NNPS", "statins"),
        ("The", "DT", "the"),
        ("up", "RP", "up"),
    ],
)
def test_lemmas(word, tag, lemma):
    pytest.importorskip("lemminflect", reason="the extra 'linguistic' is not installed")
    assert lemminflect_lemma(word, tag) == lemma


def test_without_lemminflect_words_stand_as_they_are_and_the_log_says_so_once(monkeypatch, caplog):
    monkeypatch.setattr(analysers.importlib.util, "find_spec", lambda name: None)
    analysers._notice.cache_clear()
    with caplog.at_level(logging.WARNING, logger=analysers.__name__):
        assert get_lemmatiser("auto") is get_lemmatiser("form") is get_lemmatiser("auto") is word_form
    assert len(caplog.records) == 1
    assert word_form("Studies", "NNS") == "studies"
    analysers._notice.cache_clear()
    analysers._lemminflect.cache_clear()
    monkeypatch.setitem(sys.modules, "lemminflect", None)
    with pytest.raises(InputError, match="needs the package"):
        get_lemmatiser("lemminflect")
    analysers._lemminflect.cache_clear()
    with pytest.raises(InputError, match="'snowball' is not known"):
        get_lemmatiser("snowball")


def test_adjectives_of_the_lexicon():
    assert {"quick", "green", "long"} <= analysers.lexicon_adjectives()
    assert not {"tea", "quickly", "the"} & analysers.lexicon_adjectives()
