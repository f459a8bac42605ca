"""Splitting documents that are longer than a ranker's window into passages of words.

The passages are those of ``pt.text.sliding`` (words at white space, full windows only), so that ``long='maxp'`` scores what
``pt.text.sliding(...) >> ranker >> pt.text.max_passage()`` scores, without multiplying rows.
"""

from __future__ import annotations

import re

import numpy as np

#: What a ranker may do with long documents.
LONG = ("truncate", "firstp", "maxp")

_SPACE = re.compile(r"\s+")


def passages(text: str, length: int, stride: int) -> tuple[list[str], int]:
    """Cut a text into overlapping windows of words.

    Args:
        text: The document.
        length: Words of a window.
        stride: Words from the start of a window to the start of the next.

    Returns:
        The windows, at least one; a text that is shorter than a window is returned as it is. And how many words at the end
        no window holds: PyTerrier keeps full windows only.
    """
    words = _SPACE.split(text)
    if len(words) < length:
        return [text], 0
    starts = range(0, len(words) - length + 1, stride)
    lost = len(words) - (starts[-1] + length)
    return [" ".join(words[start : start + length]) for start in starts], lost


def best_of(scores: np.ndarray, owner: np.ndarray, n: int) -> np.ndarray:
    """The highest score among the passages of each document (MaxP; Dai and Callan, SIGIR 2019).

    Args:
        scores: Scores of passages, shape [m].
        owner: Which document each passage belongs to, shape [m].
        n: How many documents; each owns at least one passage.

    Returns:
        float64 scores of documents, shape [n]. NaN if a passage's score is NaN.
    """
    best = np.full(n, -np.inf)
    np.maximum.at(best, owner, scores)
    return best
