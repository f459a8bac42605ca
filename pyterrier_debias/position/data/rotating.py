"""Rotation of a passage and where its words go: strings and integers, no frames.

Symbols of Hofstätter et al. 2021: a passage has words p_1 .. p_n; rotated at r it reads p_r .. p_n p_1 .. p_{r-1}. Here the
offset is r - 1, the number of units moved from the front to the end, and positions count from 0.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError

_SENTENCE_END = re.compile(r"""(?:(?<=[.!?])|(?<=[.!?]["')\]”’]))\s+""")


def rotate(units: Sequence[str], offset: int) -> list[str]:
    """Move the first units to the end.

    Args:
        units: n words or sentences.
        offset: How many to move; taken modulo n, so ``-offset`` undoes ``offset``.

    Returns:
        The n units in their new order.

    Example:
        >>> rotate(["a", "b", "c"], 1), rotate(rotate(["a", "b", "c"], 1), -1)
        (['b', 'c', 'a'], ['a', 'b', 'c'])
    """
    offset = offset % len(units) if units else 0
    return [*units[offset:], *units[:offset]]


def sentences(text: str) -> list[str]:
    """Cut a text after ``.``, ``!`` or ``?`` (and a closing quote or bracket) where white space follows.

    A rule and no model: abbreviations such as ``Dr. Brown`` are cut too, a text without such marks is one sentence.

    Args:
        text: Any text.

    Returns:
        The sentences without the white space between them; none for a space text.

    Example:
        >>> sentences('It rains. "Why?" she asked.')
        ['It rains.', '"Why?"', 'she asked.']
    """
    text = text.strip()
    return _SENTENCE_END.split(text) if text else []


def moved(position: Any, offset: Any, n: Any) -> Any:
    """Where the word at a position comes after rotation: (position - offset) mod n.

    In the paper's numbers a word at a stands at ((a - r) mod n) + 1 afterwards. With the offset uniform on {0, ..., n-1} the
    result is uniform on {0, ..., n-1}, whatever the position was.

    Args:
        position: From 0 to n - 1; an integer or an array.
        offset: How many words were moved from the front to the end.
        n: How many words the passage has.

    Returns:
        The new position, from 0 to n - 1.

    Example:
        >>> moved(1, 2, 5)
        4
    """
    return (position - offset) % n


def is_cut(position: Any, length: Any, offset: Any, n: Any) -> Any:
    """Whether rotation cuts a run of words in two: its first words then end the passage and the others begin it.

    Over all n offsets a run of L words is cut at L - 1 of them.

    Args:
        position: Where the run begins before rotation, from 0.
        length: L, how many words it has.
        offset: How many words were moved from the front to the end.
        n: How many words the passage has.

    Returns:
        True or False, or an array of them.
    """
    return moved(position, offset, n) + length > n


def occurrences(words: Sequence[str], sought: Sequence[str]) -> list[int]:
    """All positions, from 0, at which a run of words begins; overlapping ones too.

    Args:
        words: The passage.
        sought: The run; an empty one occurs nowhere.

    Returns:
        The positions in ascending order.

    Example:
        >>> occurrences("to be or not to be".split(), ["to", "be"])
        [0, 4]
    """
    length = len(sought)
    if not length:
        return []
    first, run = sought[0], list(sought)
    return [i for i in range(len(words) - length + 1) if words[i] == first and list(words[i : i + length]) == run]


def word_spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of a tokeniser's words in their text.

    Args:
        text: The text.
        words: Its words in order, each a piece of the text as it is or lower-cased.

    Returns:
        One (start, end) a word, in characters, end exclusive.

    Raises:
        InputError: If a word is not a piece of the text: the tokeniser rewrites.

    Example:
        >>> word_spans("so, it is", ["so,", "it", "is"])
        [(0, 3), (4, 6), (7, 9)]
    """
    lowered = text.lower()
    spans, end = [], 0
    for word in words:
        start = text.find(word, end)
        # Lower-casing changes the length of few texts (Turkish dotted I); offsets in those cannot be trusted.
        if len(lowered) == len(text):
            other = lowered.find(word, end)
            start = other if start < 0 else start if other < 0 else min(start, other)
        if start < 0:
            raise InputError(
                f"the tokeniser's word {word!r} does not stand in the text {text[end : end + 40]!r} where it should; character "
                f"offsets need a tokeniser whose words are pieces of the text, in order"
            )
        end = start + len(word)
        spans.append((start, end))
    return spans


def words_of_span(spans: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """The words that a stretch of characters touches.

    Args:
        spans: What :func:`word_spans` returned.
        start: First character, from 0.
        end: One past the last character.

    Returns:
        The position of the first word touched, from 0, and how many are touched; the count is 0 where none is.

    Example:
        >>> words_of_span([(0, 3), (4, 6), (7, 9)], 5, 9)
        (1, 2)
    """
    first = bisect_right(spans, start, key=itemgetter(1))
    return first, max(0, bisect_left(spans, end, key=itemgetter(0)) - first)


def bin_of(position: Any, n: Any, bins: int) -> Any:
    """Which of the equal parts of a passage a position falls into: floor(bins * position / n), in whole numbers.

    Args:
        position: From 0 to n - 1; an integer or an array.
        n: How many words the passage has.
        bins: How many parts.

    Returns:
        From 0 to ``bins`` - 1.
    """
    return position * bins // n


def bin_shares(n: int, bins: int, length: int = 1) -> np.ndarray:
    """How a run of words that is placed uniformly in a passage, uncut, begins in each bin: starts 0 to n - length.

    For one word this is also the distribution of its bin over all rotations, as it is for the first word of any run.

    Args:
        n: How many words the passage has.
        bins: How many bins.
        length: How many words the run has, at most n.

    Returns:
        Shape [bins], sums to 1.

    Example:
        >>> bin_shares(5, 2).tolist(), bin_shares(5, 2, length=4).tolist()
        ([0.6, 0.4], [1.0, 0.0])
    """
    starts = n - length + 1
    edges = np.minimum(-(-np.arange(bins + 1) * n // bins), starts)
    return np.diff(edges) / starts


def rotation_null(
    position: np.ndarray, n: np.ndarray, passage: np.ndarray, bins: int, *, draws: int, seed: int, block: int = 64
) -> np.ndarray:
    """Histograms of positions when every passage is rotated by an offset of its own, uniform and independent.

    All answers of a passage turn together, so that what ties them to one another is not changed.

    Args:
        position: Shape [answers], from 0 to n - 1.
        n: Shape [answers], words of the answer's passage.
        passage: Shape [answers], codes from 0 of the passage; answers of one code have one n.
        bins: How many bins.
        draws: How many histograms.
        seed: Any integer.
        block: How many histograms are drawn at a time; changes memory, not the result.

    Returns:
        Counts, shape [draws, bins].
    """
    rng = np.random.default_rng(seed)
    words = np.zeros(passage.max(initial=-1) + 1, dtype=np.int64)
    words[passage] = n
    counts = []
    for begin in range(0, draws, block):
        rows = min(block, draws - begin)
        offsets = rng.integers(0, words, size=(rows, len(words)))
        drawn = bin_of(moved(position, offsets[:, passage], n), n, bins) + bins * np.arange(rows)[:, None]
        counts.append(np.bincount(drawn.ravel(), minlength=rows * bins).reshape(rows, bins))
    return np.concatenate(counts)
