"""RewriteQueries: rules that reword queries for the same need, and a stage that applies them.

How effectiveness changes with complexity is only a correlation: complex queries may express more difficult needs. Rewording
queries for the *same* needs is an intervention. The rules are deliberately crude: they add or drop hardly any word that a
relevant document could contain. If you have better paraphrases, pass a function instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, ClassVar, cast

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.frames import check_text
from pyterrier_debias.core.scripts import joint, places_of
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.variants import reworded
from pyterrier_debias.linguistic.data.analysers import (
    Tagged,
    Tagger,
    check_tags,
    get_tagger,
    is_sign,
    lowered,
    noun_phrases,
    words_of,
)
from pyterrier_debias.linguistic.data.noun_phrases import repeat_noun_phrases, warn_without_phrases

#: A function from a query and its tagged words to the reworded query.
Rule = Callable[[str, Tagged], str]

_QUESTION_WORDS = frozenset("who whom whose which what when where why how".split())
_AUXILIARIES = frozenset(
    """am is are was were be been being do does did done have has had having can could may might must shall should will
    would""".split()
)
_PREPOSITIONS = frozenset("of in on at by for from to into with within about after before during over since under until".split())
#: Question words that follow prepositions and stand before auxiliaries mostly in questions; "who" and "which" also in clauses.
_ASKING = frozenset("whom what when where why how".split())
#: Where they are looked for: further on, "the question is what did ..." is more often a clause than a question.
_FIRST_WORDS = 4
#: Question words written together with their auxiliary.
_WRITTEN_TOGETHER = frozenset("whats whos wheres whens whys hows".split())
#: The part of an auxiliary that :func:`words_of` leaves before ``n't``, and its full form.
_BEFORE_NOT = {"ca": "can", "wo": "will", "sha": "shall", "ai": "is"}
#: Words of closed classes that shape a query rather than its content. Negations stay: without them, the need is another.
FUNCTION_WORDS = (
    _QUESTION_WORDS
    | _AUXILIARIES
    | frozenset(
        """a an the this that these those i me my mine we us our ours you your yours he him his she her hers it its they them
        their theirs one oneself myself yourself himself herself itself ourselves themselves somebody someone something
        anybody anyone anything there here of in on at by for from to into onto upon with within about above across after
        against along among around as before behind below beneath beside between beyond during over past since through
        throughout toward towards under until up via and or but nor so yet if unless whether because although though while
        than then such some any each every either neither both all also just only very too quite please
        's 're 'm 've 'd 'll""".split()
    )
)
_FRAME_OF_QUESTION, _FRAME_OF_WORDS, _CLAUSE = "can you tell me {}?", "what is there on {}?", "that i would ask about"
_INSIDE_SENTENCES = frozenset(",&/'\"“”‘’`$%")
_END = re.compile(r"[\s?.!]+$")
_ABBREVIATION = re.compile(r"\b[^\W\d_]\.[^\W\d_]$")


def keywords(query: str, tagged: Tagged | None = None) -> str:
    """The keyword form of a query: its words without function words and punctuation, in their order.

    A function word in capitals is a name (US, IT, WHO), unless the whole query is in capitals. So is one with a capital that does
    not begin a sentence (World War I, Doctor Who, May 1960), unless most words have capitals as in a title; "I" and "A" only
    directly after a word that is kept, and "I" also only before a sign or at the end, or after two words with capitals.

    Args:
        query: The query.
        tagged: Not used.

    Returns:
        The keywords; the unchanged query if nothing would be left.

    Example:
        >>> keywords("Where can I find cheap flights to Paris that don't stop?")
        'find cheap flights Paris not stop'
    """
    words = words_of(query)
    places = cast(list[tuple[int, int]], places_of(query, words))  # its tokens are pieces of it
    kept: list[str] = []
    end = -1
    forms = _forms(words)
    names = _names(query, words, forms)
    for number, (word, form, (start, after)) in enumerate(zip(words, forms, places)):
        if is_sign(word) or (form in FUNCTION_WORDS and number not in names):
            continue
        # In scripts without blanks, no blank is put between words.
        kept.append("" if not kept else joint(kept[-1], word) if start == end else " ")
        kept.append("not" if form == "n't" else word)
        end = after
    return "".join(kept) or query


def _names(query: str, words: Sequence[str], forms: Sequence[str]) -> set[int]:
    """The numbers of the function words that are names by their capitals; see :func:`keywords`."""
    small = FUNCTION_WORDS - _AUXILIARIES  # those that titles leave in lower case
    lower = sum(word.isalpha() and word.islower() and form not in small for word, form in zip(words, forms))
    told = 0 < lower >= sum(word[0].isupper() and form not in FUNCTION_WORDS for word, form in zip(words, forms)) / 2
    names: set[int] = set()
    begins = True  # whether the next word begins a sentence
    for number, (word, form, following) in enumerate(zip(words, forms, [*words[1:], "."])):
        before = words[max(number - 2, 0) : number]
        content = number > 0 and not is_sign(before[-1]) and forms[number - 1] not in FUNCTION_WORDS
        if word == "I":
            named = content and (is_sign(following) or (told and [w[0].isupper() for w in before] == [True, True]))
        elif word == "A":
            named = content and (told or number == len(words) - 1)
        elif len(word) > 1 and word.isalpha() and following.lower() not in ("n't", "n’t"):
            named = not query.isupper() and (word.isupper() or (told and not begins and word[0].isupper()))
        else:
            named = False
        if named and form in FUNCTION_WORDS:
            names.add(number)
        begins = is_sign(word) and (begins or word not in _INSIDE_SENTENCES)
    return names


def question_frame(query: str, tagged: Tagged | None = None) -> str:
    """A query inside a polite question: an indirect question if the query is one, otherwise a question about its words.

    A query is a question if it begins with a question word or an auxiliary ("did"); if it begins with a preposition and "what",
    "when", "where", "how" or "whom", or has one of these before an auxiliary among its first words; or if it ends in a question
    mark and has any of these words.

    Args:
        query: The query.
        tagged: Not used.

    Returns:
        The question; an empty query stays empty.

    Example:
        >>> question_frame("Who built the ship?"), question_frame("cheap flights to paris")
        ('can you tell me who built the ship?', 'what is there on cheap flights to paris?')
    """
    words = words_of(query)
    if not words:
        return query
    bare = query[: _end(query)].strip()
    forms = _forms(words)
    if not _is_question(query, forms):
        return _FRAME_OF_WORDS.format(bare)
    # "IS" in capitals is a name, or the query is all in capitals: a word in capitals is not lower-cased.
    lower = not words[0].isupper() and forms[0] in FUNCTION_WORDS | _WRITTEN_TOGETHER
    return _FRAME_OF_QUESTION.format(bare[:1].lower() + bare[1:] if lower else bare)


def _is_question(query: str, forms: Sequence[str]) -> bool:
    """Whether a query is a question, by its words in the forms of :func:`_forms`; see :func:`question_frame`."""
    asks = _QUESTION_WORDS | _AUXILIARIES | _WRITTEN_TOGETHER
    pairs = list(pairwise(forms))[:_FIRST_WORDS]
    return (
        forms[0] in asks
        or any(first in _PREPOSITIONS and second in _ASKING for first, second in pairs[:1])
        or any(first in _ASKING and second in _AUXILIARIES for first, second in pairs)
        or ("?" in query[_end(query) :] and not asks.isdisjoint(forms))
    )


def _end(query: str) -> int:
    """The place behind a query's last word: signs that end a sentence follow, but the stop of ``U.S.`` is part of the word."""
    end = len(_END.sub("", query))
    return end + (query[end : end + 1] == "." and _ABBREVIATION.search(query[:end]) is not None)


def _forms(words: Sequence[str]) -> list[str]:
    """Words in lower case, with auxiliaries before ``n't`` in full."""
    low = [lowered(word) for word in words]
    return [_BEFORE_NOT.get(word, word) if after == "n't" else word for word, after in zip(low, [*low[1:], ""])]


def _end_of_word(query: str, place: int) -> int:
    """The place itself, or the end of the word around it: a tagger may split ``tcp/ip`` and ``didn't``."""
    rest = query[place:].split(None, 1)[0] if query[place : place + 1].strip() else ""
    letters = [at for at, sign in enumerate(rest) if sign.isalnum()]
    return place + letters[-1] + 1 if letters else place


def relative_clause(query: str, tagged: Tagged) -> str:
    """A query with an empty relative clause after its first base noun phrase that is no possessive (``Watt's discovery``).

    Args:
        query: The query.
        tagged: Its ``(token, Penn Treebank tag)`` pairs.

    Returns:
        The longer query, with the clause at the end if there is no noun phrase. An empty query stays empty.

    Example:
        >>> tagged = [("cheap", "JJ"), ("flights", "NNS"), ("to", "TO"), ("paris", "NN")]
        >>> relative_clause("cheap flights to paris", tagged)
        'cheap flights that i would ask about to paris'
    """
    if not query.strip():
        return query
    place = _end(query)
    tokens = [token for token, _ in tagged]
    for last in [last for _, last in noun_phrases(tagged) if not _is_possessive(tokens, last)][:1]:
        places = places_of(query, tokens[:last])
        place = place if places is None else _end_of_word(query, places[-1][1])
    return f"{query[:place]} {_CLAUSE}{query[place:]}"


def _is_possessive(tokens: Sequence[str], end: int) -> bool:
    """Whether the phrase before a token is a possessive, by the token or by its own last word."""
    word, mark = lowered(tokens[end - 1]), lowered(tokens[end]) if end < len(tokens) else ""
    closes = any(lowered(token) == "'" for token in tokens[:end])  # a quotation mark
    return "'s" in (word[-2:], mark) or (mark == "'" and word.endswith("s") and not closes)


#: Rules by name. All but the last make a query longer.
REWRITES: dict[str, Rule] = {
    "noun_phrases": repeat_noun_phrases,
    "question_frame": question_frame,
    "relative_clause": relative_clause,
    "keywords": keywords,
}

#: Those that look for noun phrases, and so depend on the tagger.
TAGGED = ("noun_phrases", "relative_clause")


def check_rewrite(rewrite: Any, stage: str) -> None:
    """Raise an error if a value is not a rewrite.

    Args:
        rewrite: A name in :data:`REWRITES`, a function, or anything else.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If it is neither a name nor a function.
    """
    if not callable(rewrite):
        check_choice(stage, "rewrite", rewrite, REWRITES, "a function from a query to a query")


def rewrite_name(rewrite: str | Callable[[str], str]) -> str:
    """The name of a rewrite in tables: its own name, or the name of the function."""
    return rewrite if isinstance(rewrite, str) else getattr(rewrite, "__name__", repr(rewrite))


def rewritten(queries: Sequence[str], rewrite: str | Callable[[str], str], *, tagger: str | Tagger = "auto") -> list[str]:
    """Rewrite queries, each distinct one once.

    Args:
        queries: n queries.
        rewrite: A name in :data:`REWRITES`, or a function from a query to a query.
        tagger: See :func:`~pyterrier_debias.linguistic.data.analysers.get_tagger`; used by ``'noun_phrases'`` and
            ``'relative_clause'``.

    Returns:
        n queries.

    Raises:
        InputError: For an unknown rewrite, or one that returns something other than text.

    Example:
        >>> rewritten(["who built the ship", "tea"], "question_frame")
        ['can you tell me who built the ship?', 'what is there on tea?']
        >>> rewritten(["tea"], str.upper)
        ['TEA']
    """
    return rewritten_and_told(queries, rewrite, tagger)[0]


def rewritten_and_told(
    queries: Sequence[str], rewrite: str | Callable[[str], str], tagger: str | Tagger = "auto"
) -> tuple[list[str], tuple[int, int]]:
    """Rewrite queries, and count the different queries in which no noun phrase was found.

    Args:
        queries: n queries, as for :func:`rewritten`.
        rewrite: The rewrite, as for :func:`rewritten`.
        tagger: The tagger, as for :func:`rewritten`.

    Returns:
        n queries; and the number of different queries without a noun phrase and the number of different queries, both 0 for a
        rewrite that does not look for noun phrases.

    Raises:
        InputError: As in :func:`rewritten`.
    """
    check_rewrite(rewrite, "rewritten")
    without = (0, 0)
    distinct = list(dict.fromkeys(queries))
    if callable(rewrite):
        new = {query: rewrite(query) for query in distinct}
    else:
        needs_tags = rewrite in TAGGED and distinct
        tagged = list(get_tagger(tagger)(distinct)) if needs_tags else [[]] * len(distinct)
        check_tags(tagged)
        without = warn_without_phrases(tagged, f"rewrite {rewrite!r}")
        new = {query: REWRITES[rewrite](query, tags) for query, tags in zip(distinct, tagged)}
    bad = next((query for query, text in new.items() if not isinstance(text, str)), None)
    if bad is not None:
        made = type(new[bad]).__name__
        raise InputError(f"rewrite {rewrite_name(rewrite)!r} made a {made} of query {bad!r}; it must return text")
    return [new[query] for query in queries], without


class RewriteQueries(RowWise):
    """Rewords queries, keeping the information need.

    ===============  ==========================================================================
    columns in       ``query``, and any others
    columns out      the same, with the new ``query``; the old one is in ``query_0``, as with PyTerrier's own rewriters
    ===============  ==========================================================================

    - ``'noun_phrases'``: repeats each base noun phrase (see ``RepeatNounPhrases``, which has more options);
    - ``'question_frame'``: puts the query into ``can you tell me ...?`` or ``what is there on ...?``;
    - ``'relative_clause'``: adds ``that i would ask about`` after the first noun phrase;
    - ``'keywords'``: drops function words and punctuation; negations and names in capitals (US, WHO, May 1960) stay.

    The rules know no grammar: an indirect question keeps the word order of a direct one, "to" and "from" are dropped too, and
    where the tagger takes a verb for a noun, the clause follows the verb.

    Source: the rules are ours; repeated noun phrases are mentioned by Cheng and Amiri (NAACL 2025).

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["cheap flights to paris"]})
        >>> for rewrite in REWRITES:
        ...     print(RewriteQueries(rewrite, tagger="textblob")(topics)["query"][0])
        cheap flights cheap flights to paris paris
        what is there on cheap flights to paris?
        cheap flights that i would ask about to paris
        cheap flights paris

        Before a retriever: ``RewriteQueries('keywords') >> bm25``. Before the ranker only, so that candidates stay the same:
        ``bm25 >> texts >> RewriteQueries('keywords') >> ranker``.

    When not to use it: in a pipeline that serves users; if the need depends on prepositions or word order, or on a name that is
    written like a function word, such as lower-case us, it, may or will (``'keywords'``); for languages other than English.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "RewriteQueries", "help_url": None}

    def __init__(self, rewrite: str | Callable[[str], str] = "question_frame", *, tagger: str | Tagger = "auto"):
        """
        Args:
            rewrite: ``'noun_phrases'``, ``'question_frame'``, ``'relative_clause'``, ``'keywords'``, or a function from a query
                to a query.
            tagger: ``'auto'`` (the best installed one), ``'spacy'``, ``'nltk'``, ``'textblob'``, or a function; see
                :func:`~pyterrier_debias.linguistic.data.analysers.get_tagger`.
        """
        self.rewrite = rewrite
        self.tagger = tagger

    def changes(self) -> frozenset[str]:
        """The columns that the stage changes: the query; see :class:`~pyterrier_debias.core.stage.Stage`."""
        return frozenset({"query"})

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rewrite the queries; see the class.

        Raises:
            InputError: For a missing query, or a rewrite that is unknown or does not return text.
        """
        pt.validate.columns(inp, includes=["query"], context=self)
        check_rewrite(self.rewrite, "RewriteQueries")
        check_text(inp, "query", self)
        warn_of_expressions(inp["query"], self)
        new = rewritten(inp["query"].tolist(), self.rewrite, tagger=self.tagger)
        return reworded(inp, new)
