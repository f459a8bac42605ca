"""RepeatNounPhrases: queries with repeated noun phrases, as in the biased data of Cheng and Amiri."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any, ClassVar, cast

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import check_choice, check_number
from pyterrier_debias.core.frames import check_text, stage_name
from pyterrier_debias.core.scripts import joint, places_of
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.variants import reworded
from pyterrier_debias.linguistic.data.analysers import Tagged, Tagger, check_tags, get_tagger, noun_phrases

logger = logging.getLogger(__name__)

#: Where the copies of a phrase can be put.
POSITIONS = ("inplace", "append")


def repeat_noun_phrases(
    text: str, tagged: Tagged, *, times: int = 1, max_phrases: int | None = None, position: str = "inplace"
) -> str:
    """Repeat the base noun phrases of a text.

    The text is otherwise unchanged, unless a tagger's tokens are not pieces of the text: then they are joined with spaces. A
    text without a noun phrase is repeated as a whole; an empty one stays empty. Copies are separated by blanks, except in
    scripts without blanks.

    Args:
        text: The text.
        tagged: Its ``(token, Penn Treebank tag)`` pairs.
        times: How many copies of each phrase are added.
        max_phrases: Only the first so many phrases are repeated; None for all.
        position: Where copies go. ``'inplace'``: right after the phrase. ``'append'``: at the end, in the order of the text.

    Returns:
        The longer text.

    Example:
        >>> tagged = [("cheap", "JJ"), ("flights", "NNS"), ("to", "TO"), ("paris", "NN")]
        >>> repeat_noun_phrases("cheap flights to paris", tagged)
        'cheap flights cheap flights to paris paris'
        >>> repeat_noun_phrases("cheap flights to paris", tagged, position="append", max_phrases=1)
        'cheap flights to paris cheap flights'
    """
    check_choice("repeat_noun_phrases", "position", position, POSITIONS)
    found = noun_phrases(tagged)[:max_phrases]
    if not found:
        return _joined([text] * (times + 1)) if text.strip() else text
    tokens = [token for token, _ in tagged]
    places = places_of(text, tokens)
    if places is None:
        text = " ".join(tokens)
        places = cast(list[tuple[int, int]], places_of(text, tokens))  # nothing else stands there
    spans = [(places[first][0], places[end - 1][1]) for first, end in found]
    if position == "append":
        phrases = [text[first:end] for first, end in spans]
        return _joined([text, *(phrases * times)])
    parts, done = [], 0
    for first, end in spans:
        parts += [text[done:first], _joined([text[first:end]] * (times + 1))]
        done = end
    return "".join([*parts, text[done:]])


def _joined(texts: Sequence[str]) -> str:
    return "".join([texts[0], *(joint(before, text) + text for before, text in itertools.pairwise(texts))])


def warn_without_phrases(tagged: Sequence[Tagged], stage: Any) -> tuple[int, int]:
    """Log a warning with the share of texts in which a tagger found no noun phrase.

    Args:
        tagged: The tagged texts; those without tokens are ignored.
        stage: The calling stage, named in the message.

    Returns:
        The number of texts without a noun phrase, and the number of texts.
    """
    texts = [tokens for tokens in tagged if tokens]
    without = sum(not noun_phrases(tokens) for tokens in texts)
    if without:
        logger.warning(
            "%s: %d of %d different queries (%.1f %%) have no noun phrase and are treated as a whole; if they are not English, "
            "give a tagger for their language", stage_name(stage), without, len(texts), 100 * without / len(texts),
        )  # fmt: skip
    return without, len(texts)


class RepeatNounPhrases(RowWise):
    """Repeats the noun phrases of each query, which makes it longer and lexically poorer, with the same need.

    A base noun phrase is a run of adjectives followed by at least one noun. A query without one is repeated as a whole, and
    a warning gives the share of such queries. The rewriting is deterministic.

    ===============  ==========================================================================
    columns in       ``query``, and any others
    columns out      the same, with the new ``query``; the old one is in ``query_0``, as with PyTerrier's own rewriters
    ===============  ==========================================================================

    Source: Cheng and Amiri, "EqualizeIR: Mitigating Linguistic Biases in Retrieval Models", NAACL 2025, who train a biased
    learner on queries with "repeated" noun phrases and do not say which, how often or where. The defaults are our reading.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: to make queries linguistically *complex* (repetition makes them long, not hard to parse); in a pipeline
    that serves users; after a first stage whose scores are used later, since these belong to the original query.

    Example:
        >>> import pandas as pd
        >>> RepeatNounPhrases(tagger="textblob")(pd.DataFrame({"qid": ["1"], "query": ["cheap flights to paris"]}))["query"][0]
        'cheap flights cheap flights to paris paris'

        In a pipeline: ``RepeatNounPhrases() >> bm25``; as training data: ``EqualizeReranker(ranker, biased='biased_data')``.

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "RepeatNounPhrases", "help_url": None}

    def __init__(
        self,
        *,
        times: int = 1,
        max_phrases: int | None = None,
        position: str = "inplace",
        tagger: str | Tagger = "auto",
    ):
        """
        Args:
            times: How many copies of each phrase are added.
            max_phrases: Only the first so many phrases of a query are repeated; None for all.
            position: ``'inplace'``: copies go right after their phrase. ``'append'``: at the end of the query.
            tagger: ``'auto'`` (the best installed one), ``'spacy'``, ``'nltk'``, ``'textblob'``, or a function from texts to
                one list of ``(token, Penn Treebank tag)`` pairs for each; see
                :func:`~pyterrier_debias.linguistic.data.analysers.get_tagger`.
        """
        self.times = times
        self.max_phrases = max_phrases
        self.position = position
        self.tagger = tagger

    def changes(self) -> frozenset[str]:
        """The columns that the stage changes: the query; see :class:`~pyterrier_debias.core.stage.Stage`."""
        return frozenset({"query"})

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rewrite the queries; see the class.

        Args:
            inp: A frame with ``query``.

        Returns:
            A new frame with the rewritten ``query``, and the old one in ``query_0``.

        Raises:
            InputError: For a missing query, or an option that cannot be used.
        """
        pt.validate.columns(inp, includes=["query"], context=self)
        self.check_options()
        check_text(inp, "query", self)
        warn_of_expressions(inp["query"], self)
        return reworded(inp, self.rewritten(inp["query"].tolist()))

    def rewritten(self, queries: Sequence[str]) -> list[str]:
        """Rewrite queries, each distinct one once.

        Args:
            queries: n queries.

        Returns:
            n queries.
        """
        distinct = list(dict.fromkeys(queries))
        options: dict[str, Any] = {"times": self.times, "max_phrases": self.max_phrases, "position": self.position}
        tagged = list(get_tagger(self.tagger)(distinct)) if distinct else []
        check_tags(tagged)
        warn_without_phrases(tagged, self)
        new = {text: repeat_noun_phrases(text, tags, **options) for text, tags in zip(distinct, tagged)}
        return [new[query] for query in queries]

    def check_options(self) -> None:
        """Check the options, before a tagger is loaded.

        Raises:
            InputError: For an option that cannot be used; the message says what is allowed.
        """
        check_choice("RepeatNounPhrases", "position", self.position, POSITIONS)
        for option in ("times", "max_phrases"):
            value = getattr(self, option)
            if value is None and option == "max_phrases":
                continue
            check_number("RepeatNounPhrases", option, value, least=1, whole=True)
