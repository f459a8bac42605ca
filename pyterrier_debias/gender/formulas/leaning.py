"""Properties of documents that the treatments need: how far a document leans, and whether it is neutral."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from pyterrier_debias.core.errors import check_number
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas.arab import check_magnitude, leans, magnitudes, neutrality
from pyterrier_debias.gender.formulas.counting import count_words, get_gender_tokeniser, word_counts


class Reader(Protocol):
    """A stage that measures how far documents lean, with the options of :func:`lean_of_texts` as attributes."""

    # Properties, so that frozen ones are readers too.
    @property
    def method(self) -> str:
        """How a document's lean is computed."""

    @property
    def wordlist(self) -> Any:
        """The words of each group."""

    @property
    def tokeniser(self) -> str | Tokeniser:
        """How texts are split into words."""

    @property
    def contrast(self) -> str | tuple[str, str] | None:
        """Which groups are compared."""


def check_reader(reader: Reader) -> None:
    """Check the options that are used for documents.

    Raises:
        InputError: If one is invalid; the message names it.
    """
    check_magnitude(reader.method, "log1p_total")
    get_gender_tokeniser(reader.tokeniser)
    WordList.of(reader.wordlist).contrast(reader.contrast)


def lean_by(reader: Reader, texts: Sequence[str]) -> np.ndarray:
    """How far each text leans under the options of a stage; see :func:`lean_of_texts`."""
    return lean_of_texts(texts, **{name: getattr(reader, name) for name in ("method", "wordlist", "tokeniser", "contrast")})


def lean_of_texts(
    texts: Sequence[str],
    *,
    method: str = "tf",
    wordlist: WordListLike = "debias",
    tokeniser: str | Tokeniser = "regex_word",
    contrast: str | tuple[str, str] | None = None,
) -> np.ndarray:
    """How far each text leans to one side: the bias of the text itself, without a ranking.

    Args:
        texts: n texts; equal ones are read once.
        method: ``'tf'``, ``'bool'`` or ``'tc'``; see :func:`~pyterrier_debias.gender.formulas.arab.magnitudes`.
        wordlist: The words of each group; see :meth:`WordList.of`.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        contrast: Which groups are compared; see :meth:`WordList.contrast`.

    Returns:
        Shape [n]; positive towards the first group (male in the library's own list).

    Raises:
        InputError: For unknown options.

    Example:
        >>> lean_of_texts(["he said she said", "his brother"], method="tc").tolist()
        [0.0, 2.0]
    """
    words = WordList.of(wordlist)
    distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if not distinct:
        return np.empty(0)
    lean = leans(magnitudes(word_counts(list(distinct), words, tokeniser), method), words, contrast)
    return lean[[distinct[text] for text in texts]]


def gendered(
    texts: Sequence[str], *, wordlist: WordListLike = "debias", tokeniser: str | Tokeniser = "regex_word", threshold: int = 1
) -> np.ndarray:
    """Whether the neutrality of each text is below 1: one group is mentioned more than the others.

    Args:
        texts: n texts.
        wordlist: The words of each group; see :meth:`WordList.of`.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        threshold: How many words a text may have and still count as neutral.

    Returns:
        n booleans.

    Raises:
        InputError: For unknown options; for a list of fewer than two groups.

    Example:
        >>> gendered(["he and his dog", "he and she", "he"]).tolist()
        [True, False, False]
    """
    words = WordList.of(wordlist)
    check_number("gendered", "threshold", threshold, least=0, hint="it counts words")
    distinct = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    if not distinct:
        return np.empty(0, dtype=bool)
    counts = count_words(list(distinct), words, tokeniser)
    found = neutrality(counts, words.names, threshold=threshold) < 1 - 1e-12
    return found[[distinct[text] for text in texts]]
