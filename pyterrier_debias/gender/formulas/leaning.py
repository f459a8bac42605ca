"""Properties of a document for the treatments: how far it leans, and whether it is neutral."""

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
    """What reads documents for how far they lean: the options of :func:`lean_of_texts` as attributes."""

    # Properties, so that frozen ones are readers too.
    @property
    def method(self) -> str:
        """What a document's lean is made of."""

    @property
    def wordlist(self) -> Any:
        """The groups' words."""

    @property
    def tokeniser(self) -> str | Tokeniser:
        """What cuts texts into words."""

    @property
    def contrast(self) -> str | tuple[str, str] | None:
        """What is compared."""


def check_reader(reader: Reader) -> None:
    """Refuse options that are invalid for documents.

    Raises:
        InputError: Naming the option.
    """
    check_magnitude(reader.method, "log1p_total")
    get_gender_tokeniser(reader.tokeniser)
    WordList.of(reader.wordlist).contrast(reader.contrast)


def lean_by(reader: Reader, texts: Sequence[str]) -> np.ndarray:
    """How far each text leans under a stage's own options; see :func:`lean_of_texts`."""
    return lean_of_texts(texts, **{name: getattr(reader, name) for name in ("method", "wordlist", "tokeniser", "contrast")})


def lean_of_texts(
    texts: Sequence[str],
    *,
    method: str = "tf",
    wordlist: WordListLike = "debias",
    tokeniser: str | Tokeniser = "regex_word",
    contrast: str | tuple[str, str] | None = None,
) -> np.ndarray:
    """How far each text leans to one side: its bias on its own, without a ranking.

    Args:
        texts: n texts; equal ones are read once.
        method: ``'tf'``, ``'bool'`` or ``'tc'``; see :func:`~pyterrier_debias.gender.formulas.arab.magnitudes`.
        wordlist: What :meth:`WordList.of` takes.
        tokeniser: See :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        contrast: See :meth:`WordList.contrast`.

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
        wordlist: What :meth:`WordList.of` takes.
        tokeniser: See :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        threshold: How many words still count as none.

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
