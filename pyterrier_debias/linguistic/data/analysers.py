"""Words, tags, base noun phrases and lemmas: one small interface to the tools that find them.

A tagger is any function from a sequence of texts to one list of ``(token, Penn Treebank tag)`` pairs for each. The taggers here
all split a text with :func:`words_of`, so that they differ only in their tags and can be compared token by token. A parser is any
function from a sequence of texts to one list of bracketed trees (or ``nltk.Tree``) for each; see
:mod:`pyterrier_debias.linguistic.data.stanford`.

Each tool is imported only when it is used.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.scripts import Segmenter, composed, token_pattern, unspaced_places
from pyterrier_debias.linguistic.formulas.lexical import PENN, penn_tag

logger = logging.getLogger(__name__)

Tagged = list[tuple[str, str]]
Tagger = Callable[[Sequence[str]], list[Tagged]]
Lemmatiser = Callable[[str, str], str]

_TOKEN = r"""
      (?:[^\W\d_]\.){2,}                                # U.S.
    | \w+?(?=n['’]t(?!\w)) | n['’]t(?!\w)               # do + n't
    | ['’](?:s|m|d|re|ve|ll)(?!\w)                      # it + 's
    | \d+(?:[.,:]\d+)+                                  # 3.5  1,000  12:30
    | \w+(?:[-&]\w+)*                                   # words; well-known, R&D
    | \.{2,} | --+                                      # ellipsis, dash
    | \S                                                # any other sign on its own
"""

#: Texts that are cut at white space only, with the same result as by the pattern, ten times as fast.
_PLAIN = re.compile(r"[A-Za-z0-9\s]*")

#: Penn Treebank tags of punctuation; any other token without a letter or digit is ``:``.
_SIGNS = dict.fromkeys(".?!", ".") | dict.fromkeys("([{", "-LRB-") | dict.fromkeys(")]}", "-RRB-")
_SIGNS |= {",": ",", "$": "$", "#": "#", "&": "CC", "%": "NN", '"': "''", "'": "''", "’": "''", "”": "''"}
_SIGNS |= dict.fromkeys("`“‘", "``")


def words_of(text: str, segmenter: Segmenter | None = None) -> list[str]:
    """Cut a text into tokens as in the Penn Treebank: clitics and punctuation are separate tokens, hyphens stay inside words.

    Combining marks stay with their letters. Scripts without blanks are cut by the segmenter; without one, as by
    :func:`~pyterrier_debias.core.scripts.word_places`.

    Args:
        text: Any text.
        segmenter: A function from a stretch of text in a script without blanks to its words.

    Returns:
        The tokens in their order, in their original case.

    Raises:
        InputError: For a segmenter whose words are not pieces of the text.

    Example:
        >>> words_of("Don't U.S. patients' well-known drugs cost $3.50?")
        ['Do', "n't", 'U.S.', 'patients', "'", 'well-known', 'drugs', 'cost', '$', '3.50', '?']
    """
    if _PLAIN.fullmatch(text):
        return text.split()
    tokens: list[str] = []
    at = 0
    for start, end in unspaced_places(text, segmenter):
        tokens += token_pattern(_TOKEN, text).findall(text[at:start])
        tokens.append(text[start:end])
        at = end
    return tokens + token_pattern(_TOKEN, text).findall(text[at:])


def bare_words(text: str, segmenter: Segmenter | None = None) -> list[str]:
    """The lower-cased words of a text, without punctuation; otherwise as by :func:`words_of`, but faster.

    Words that look alike are equal: they are in Unicode's normal form C, without invisible characters such as soft hyphens, and
    have straight apostrophes.

    Args:
        text: Any text.
        segmenter: As in :func:`words_of`.

    Example:
        >>> bare_words("What's green tea?"), bare_words("what’s")
        (['what', "'s", 'green', 'tea'], ['what', "'s"])
    """
    text = lowered(text).rstrip("?! ")
    return text.split() if _PLAIN.fullmatch(text) else [token for token in words_of(text, segmenter) if not is_sign(token)]


def lowered(text: str) -> str:
    """A text in lower case, composed (:func:`~pyterrier_debias.core.scripts.composed`), with straight apostrophes."""
    return text.lower() if text.isascii() else composed(text.lower()).replace("’", "'")


def is_sign(token: str) -> bool:
    """Whether a token has no letter and no digit, and so is not a word."""
    return not any(map(str.isalnum, token))


def _straight(tokens: Sequence[str]) -> list[str]:
    """Tokens as taggers know them: composed, and parts of contractions with straight apostrophes."""
    return [(composed(token) or token).replace("’", "'") for token in tokens]


def _sign_tag(token: str) -> str:
    return _SIGNS.get(token, ":")


@dataclass(frozen=True)
class LexiconTagger:
    """Tags words with the lexicon included in textblob: each gets its most frequent tag, unknown words get one by suffix.

    It needs no download and is the fastest and coarsest of the three taggers: it ignores neighbouring words, so ``cause`` is
    always a noun.

    When not to use it: where verbs matter and spaCy or NLTK's data can be installed.

    Example:
        >>> LexiconTagger()(["new statin drugs"])
        [[('new', 'JJ'), ('statin', 'NN'), ('drugs', 'NNS')]]
    """

    name = "textblob"

    def __call__(self, texts: Sequence[str]) -> list[Tagged]:
        """Tag texts; see :data:`Tagger`."""
        find_tags = _textblob_parser().find_tags
        return [
            [(token, _sign_tag(token) if is_sign(token) else tag) for token, (_, tag) in zip(words, find_tags(_straight(words)))]
            for words in map(words_of, texts)
        ]


@functools.cache
def _textblob_parser() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # textblob leaves the files of its lexicon to the garbage collector
        from textblob.en import parser

        parser.find_tags(["load"])
    return parser


@dataclass(frozen=True)
class PerceptronTagger:
    """Tags words with NLTK's averaged perceptron, which takes neighbouring words and tags into account.

    It needs the package ``nltk`` and its data set ``averaged_perceptron_tagger_eng`` (a folder in NLTK's search path, to which
    the environment variable ``NLTK_DATA`` adds folders).

    When not to use it: on millions of queries, for which it is slow (some 3,000 queries a second).
    """

    name = "nltk"

    def __call__(self, texts: Sequence[str]) -> list[Tagged]:
        """Tag texts; see :data:`Tagger`.

        Raises:
            InputError: If NLTK or its data is missing.
        """
        tag = _perceptron().tag
        return [[(token, found) for token, (_, found) in zip(words, tag(_straight(words)))] for words in map(words_of, texts)]


@functools.cache
def _perceptron() -> Any:
    try:
        from nltk.tag.perceptron import PerceptronTagger as Perceptron

        return Perceptron()
    except (ImportError, LookupError) as error:
        raise InputError(
            "tagger 'nltk' needs the package nltk and its data: pip install 'pyterrier-debias[linguistic]', then "
            "python -m nltk.downloader averaged_perceptron_tagger_eng (or set NLTK_DATA to a folder that has it)"
        ) from error


@dataclass(frozen=True)
class SpacyTagger:
    """Tags words with a spaCy pipeline that has a tagger; only the components that the tagger needs are run.

    When not to use it: with a pipeline whose tags are not Penn Treebank tags (those of all English pipelines of spaCy are).

    Args:
        pipeline: The name of an installed pipeline (``'en_core_web_sm'``) or a folder with one.
    """

    pipeline: str

    @property
    def name(self) -> str:
        """``spacy``, with the name of the pipeline."""
        return f"spacy {Path(self.pipeline).name}"

    def __call__(self, texts: Sequence[str]) -> list[Tagged]:
        """Tag texts; see :data:`Tagger`.

        Raises:
            InputError: If spaCy or the pipeline is not installed, or the pipeline has no tagger.
        """
        nlp = _spacy_pipeline(self.pipeline)
        from spacy.tokens import Doc

        words = [words_of(text) for text in texts]
        docs = nlp.pipe(Doc(nlp.vocab, words=_straight(own)) for own in words)
        return [[(token, tagged.tag_) for token, tagged in zip(own, doc)] for own, doc in zip(words, docs)]


@functools.cache
def _spacy_pipeline(name: str) -> Any:
    try:
        import spacy

        nlp = spacy.load(name, exclude=["parser", "ner", "lemmatizer", "senter", "attribute_ruler", "textcat"])
    except (ImportError, OSError) as error:
        raise InputError(
            f"tagger 'spacy': pipeline {name!r} cannot be loaded ({error}); pip install spacy and "
            f"python -m spacy download en_core_web_sm, or pass another tagger"
        ) from error
    if "tagger" not in nlp.pipe_names:
        raise InputError(f"tagger 'spacy': pipeline {name!r} has no tagger (only {', '.join(nlp.pipe_names) or 'nothing'})")
    return nlp


def _installed_spacy() -> str | None:
    """The English spaCy pipeline that is installed, the smallest first; None if there is none."""
    names = sorted(point.name for point in metadata.entry_points(group="spacy_models") if point.name.startswith("en_"))
    sizes = ("_sm", "_md", "_lg")
    return min(names, key=lambda name: (sizes.index(name[-3:]) if name[-3:] in sizes else 9, name), default=None)


def _nltk_data() -> bool:
    """Whether NLTK and the data of its perceptron are installed."""
    try:
        import nltk

        nltk.data.find("taggers/averaged_perceptron_tagger_eng/")
    except (ImportError, LookupError):
        return False
    return True


@functools.cache
def _notice(message: str) -> None:
    """Log once that a missing tool is replaced by another."""
    logger.warning(message)


def default_tagger() -> Tagger:
    """The best installed tagger: a spaCy pipeline, else NLTK's perceptron, else textblob's lexicon (logged once).

    Returns:
        A function from texts to one list of ``(token, Penn Treebank tag)`` pairs for each. Two calls return equal taggers as
        long as nothing is installed in between.

    Example:
        >>> default_tagger()(["cheap flights to paris"])[0][1]
        ('flights', 'NNS')
    """
    name = _installed_spacy()
    if name is not None:
        return SpacyTagger(name)
    if _nltk_data():
        return PerceptronTagger()
    install = "" if importlib.util.find_spec("spacy") else "pip install 'pyterrier-debias[linguistic]' and "
    _notice(
        f"no spaCy pipeline and no data of NLTK's tagger were found: words are tagged by textblob's lexicon, which ignores "
        f"neighbouring words; for better tags: {install}python -m spacy download en_core_web_sm"
    )
    return LexiconTagger()


def get_tagger(tagger: str | Tagger) -> Tagger:
    """Look a tagger up by name; a callable is returned as it is.

    Args:
        tagger: ``'auto'`` (:func:`default_tagger`), ``'spacy'`` (the installed English pipeline), ``'nltk'``, ``'textblob'``,
            or a function from texts to one list of ``(token, tag)`` pairs for each, with Penn Treebank or universal tags.

    Returns:
        The function.

    Raises:
        InputError: For an unknown name, or for ``'spacy'`` if no English pipeline is installed.
    """
    if callable(tagger):
        return tagger
    if tagger == "auto":
        return default_tagger()
    if tagger == "spacy":
        name = _installed_spacy()
        if name is None:
            raise InputError(
                "tagger 'spacy': no English pipeline is installed; run python -m spacy download en_core_web_sm, or use "
                "tagger='auto'"
            )
        return SpacyTagger(name)
    check_choice("get_tagger", "tagger", tagger, ("auto", "spacy", "nltk", "textblob"), "a function")
    return PerceptronTagger() if tagger == "nltk" else LexiconTagger()


def tool_name(tool: Any) -> str:
    """The name of a tagger, lemmatiser or parser in tables and conventions.

    Args:
        tool: The tool: a function, or an object of a class.

    Example:
        >>> tool_name(LexiconTagger()), tool_name(word_form)
        ('textblob', 'word_form')
    """
    return getattr(tool, "name", None) or getattr(tool, "__name__", None) or type(tool).__name__


def check_tags(tagged: Sequence[Tagged]) -> None:
    """Raise an error if tags are neither Penn Treebank nor universal tags; no word could be classified with them.

    Args:
        tagged: The ``(token, tag)`` pairs of some texts.

    Raises:
        InputError: If there are words, and none of their tags is known.
    """
    tags = [(word, tag) for text in tagged for word, tag in text if not is_sign(word)]
    if tags and not any(penn_tag(word, tag) in PENN for word, tag in tags):
        word, tag = tags[0]
        raise InputError(
            f"the tagger gives {word!r} the tag {tag!r}, which is neither a Penn Treebank tag (NN, JJ, VBZ) nor a universal one "
            f"(NOUN, ADJ, VERB); map its tags to one of these sets"
        )


def noun_phrases(tagged: Sequence[tuple[str, str]]) -> list[tuple[int, int]]:
    """Find base noun phrases: the longest runs of adjectives (JJ*) followed by at least one noun (NN*).

    Signs are in no phrase, whatever their tag: some taggers take quotation marks for nouns.

    Args:
        tagged: The ``(token, tag)`` pairs of one text, with Penn Treebank or universal tags (ADJ, NOUN and PROPN).

    Returns:
        ``(start, end)`` of each phrase in tokens, the end excluded. Phrases are in order and do not overlap.

    Example:
        >>> noun_phrases([("cheap", "JJ"), ("flights", "NNS"), ("to", "TO"), ("paris", "NN")])
        [(0, 2), (3, 4)]
    """
    spans, start, nouns = [], 0, False
    for position, (word, tag) in enumerate([*tagged, ("", "")]):
        tag = "" if is_sign(word) else penn_tag(word, tag)
        if tag.startswith("NN"):
            nouns = True
            continue
        if nouns:
            spans.append((start, position))
        if nouns or not tag.startswith("JJ"):
            start = position if tag.startswith("JJ") else position + 1
        nouns = False
    return spans


# ------------------------------------------------------------------------------------------------ lemmas

#: The lemmas of contracted forms, by the form and the first letter of its tag.
_CLITICS = {("'s", "V"): "be", ("'m", "V"): "be", ("'re", "V"): "be", ("'ve", "V"): "have", ("'d", "V"): "have"}
_CLITICS |= {("'d", "M"): "would", ("'ll", "M"): "will", ("ca", "M"): "can", ("wo", "M"): "will", ("n't", "R"): "not"}
_UNIVERSAL = {"N": "NOUN", "V": "VERB", "J": "ADJ", "R": "ADV"}


def word_form(word: str, tag: str) -> str:
    """The lower-cased word itself, in place of a lemma."""
    return lowered(word)


def lemminflect_lemma(word: str, tag: str) -> str:
    """Find a word's lemma with the package ``lemminflect``: in its dictionary, or by rules for unknown words.

    Args:
        word: A word.
        tag: Its Penn Treebank tag; nouns, verbs, adjectives and adverbs are looked up, other words are lower-cased.

    Returns:
        The lower-cased lemma; for a contracted verb (``'s``), the lemma of its full form.

    Raises:
        InputError: If the package is missing.

    Example:
        >>> lemminflect_lemma("studies", "VBZ"), lemminflect_lemma("'re", "VBP"), lemminflect_lemma("Paris", "NNP")
        ('study', 'be', 'paris')
    """
    return _lemma(lowered(word), tag)


@functools.lru_cache(maxsize=200_000)
def _lemma(word: str, tag: str) -> str:
    tag = penn_tag(word, tag)
    stands_for = _CLITICS.get((word, tag[:1]))
    if stands_for is not None:
        return stands_for
    universal = _UNIVERSAL.get(tag[:1])
    if universal is None or tag.startswith("NNP") or tag == "RP":
        return word
    found = _lemminflect().getLemma(word, universal)
    return found[0].lower() if found else word


@functools.cache
def _lemminflect() -> Any:
    try:
        import lemminflect
    except ImportError as error:
        raise InputError(
            "lemmatiser 'lemminflect' needs the package: pip install 'pyterrier-debias[linguistic]', or use lemmatiser='form'"
        ) from error
    return lemminflect


def get_lemmatiser(lemmatiser: str | Lemmatiser) -> Lemmatiser:
    """Look a lemmatiser up by name; a callable is returned as it is.

    Args:
        lemmatiser: ``'auto'`` (lemminflect if it is installed, else the lower-cased words, with one log message),
            ``'lemminflect'``, ``'form'`` (the lower-cased words), or a function from a word and its tag to the lemma.

    Returns:
        The function.

    Raises:
        InputError: For an unknown name, or for ``'lemminflect'`` if it is not installed.
    """
    if callable(lemmatiser):
        return lemmatiser
    if lemmatiser == "form":
        return word_form
    if lemmatiser == "auto":
        if importlib.util.find_spec("lemminflect") is None:
            _notice("lemminflect is not installed: types are counted by word forms, not by lemmas")
            return word_form
        return lemminflect_lemma
    check_choice("get_lemmatiser", "lemmatiser", lemmatiser, ("auto", "lemminflect", "form"), "a function")
    _lemminflect()
    return lemminflect_lemma


@functools.cache
def lexicon_adjectives() -> frozenset[str]:
    """The lower-cased words whose main tag in textblob's lexicon is that of an adjective."""
    lexicon = _textblob_parser().lexicon
    return frozenset(word.lower() for word, tag in dict.items(lexicon) if tag.startswith("JJ"))
