"""What an audit remembers of rankers that are not this package's, where they prove to score each row by itself."""

from __future__ import annotations

import threading

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.frames import pair_numbers, ranked, variant_docno
from pyterrier_debias.core.memory import ScoreMemory
from pyterrier_debias.core.stage import flatten
from pyterrier_debias.core.text import text_key

#: How many rows are scored again to see whether a ranker's scores can be remembered.
_PROVED_BY = 10

#: Lists of fewer rows are not worth it.
_LEAST = 20 * _PROVED_BY

#: What names a row, which biases change together with its texts; a ranker that reads it is not remembered.
_NAMES = ("qid", "docno")


class PointwiseMemory:
    """Scores of one ranker by the rows that it was given, as long as they depend on nothing else.

    The first list of at least 200 rows is scored as it is. Then ten of its rows are scored again, each alone and under another
    qid and docno. Only where all ten scores are exactly those of the list, the ranker is not asked again for a row with the same
    cells (whatever its qid and docno). A ranker that adds columns, drops rows, looks at a whole list, or whose scores
    depend on a batch by as little as a rounding, is asked as if there were no memory.

    Args:
        limit: How many scores are kept at most.

    Attributes:
        varying: How many of the ten rows got two scores when they were asked twice in the same way: the ranker is not
            deterministic. 0 where nothing of the kind was seen.

    Example:
        >>> memory, asked = PointwiseMemory(), []
        >>> ranker = pt.apply.doc_score(lambda row: asked.append(row["docno"]) or float(len(row["text"])))
        >>> rows = pd.DataFrame({"qid": "q", "docno": [f"d{i}" for i in range(300)], "query": "a",
        ...                      "text": [str(10**i) for i in range(300)]})
        >>> len(memory.ask(ranker, rows)), len(asked)
        (300, 310)
        >>> again = memory.ask(ranker, rows.assign(docno=rows["docno"] + "%r1"))
        >>> len(again), len(asked), float(again["score"].iloc[0])
        (300, 310, 300.0)

    When not to use it: for rankers of this package, which remember by themselves (``remembering``).
    """

    def __init__(self, limit: int = 1_000_000):
        self.varying = 0
        self._memory = ScoreMemory(limit)
        self._trusted: bool | None = None
        self._lock = threading.Lock()

    def ask(self, ranker: pt.Transformer, inp: pd.DataFrame) -> pd.DataFrame:
        """What a ranker makes of a frame, rows that are known left out.

        Args:
            ranker: The same one in every call.
            inp: A result frame.

        Returns:
            What the ranker returns; where something was remembered, ``inp`` with ``score`` and ``rank``.
        """
        if self._trusted is False or all(hasattr(stage, "remembering") for stage in flatten(ranker)):
            return ranker(inp)
        keys = row_keys(inp)
        if keys is None or (self._trusted is None and len(inp) < _LEAST):
            return ranker(inp)
        rows, first = pd.factorize(keys)  # many rows may be one
        at = np.empty(len(first), dtype=np.int64)
        at[rows[::-1]] = np.arange(len(inp))[::-1]
        distinct = first.tolist()
        if self._trusted is None:
            found: pd.DataFrame = ranker(inp)
            with self._lock:
                if self._trusted is None:
                    self._trusted = self._proved(ranker, inp, found)
            scores = scores_of(inp, found)
            if self._trusted and scores is not None:
                self._memory.by_key(None, distinct, lambda new: scores[at[new]])
            return found

        def compute(new: list[int]) -> np.ndarray:
            asked = inp.iloc[at[new]].reset_index(drop=True)
            scores = scores_of(asked, ranker(asked))
            if scores is None:
                raise _NotPointwiseError
            return scores

        try:
            known = self._memory.by_key(None, distinct, compute)
        except _NotPointwiseError:
            self._trusted = False
            return ranker(inp)
        return ranked(inp.assign(score=known[rows]), "ranker")

    def _proved(self, ranker: pt.Transformer, inp: pd.DataFrame, found: pd.DataFrame) -> bool:
        """Whether ten rows have the scores that they had in the list; notes whether two calls differ."""
        scores = scores_of(inp, found)
        if scores is None:
            return False
        at = np.unique(np.linspace(0, len(inp) - 1, _PROVED_BY).astype(int))
        alone = inp.iloc[at].reset_index(drop=True)
        alone = alone.assign(**{name: [variant_docno(one, "again") for one in alone[name]] for name in _NAMES})
        first = _one_by_one(ranker, alone)
        if first is None:
            return False
        if np.array_equal(first, scores[at]):
            return True
        second = _one_by_one(ranker, alone)
        self.varying = 0 if second is None else int((first != second).sum())
        return False


class _NotPointwiseError(Exception):
    """Raised where a ranker that scored row by row returns other rows."""


def row_keys(inp: pd.DataFrame) -> np.ndarray | None:
    """Hashes of all that a row holds but its names.

    Args:
        inp: A result frame.

    Returns:
        n hashes of 16 bytes; None where a cell is neither text nor number, or there is no row.
    """
    columns = [column for column in inp.columns if column not in _NAMES]
    if not columns or not len(inp):
        return None
    keys = np.zeros((len(inp), 2), dtype=np.uint64)
    for column in columns:
        # Each value is hashed once, with its column; the hash of a row is the sum of its cells'.
        try:
            codes, distinct = pd.factorize(inp[column], use_na_sentinel=False)
        except TypeError:  # lists and the like
            return None
        values, numeric = distinct.tolist(), pd.api.types.is_numeric_dtype(inp[column])
        if not numeric and not all(isinstance(value, str) for value in values):
            return None
        hashed = b"".join([text_key(f"{column}\1{value!r}" if numeric else f"{column}\0{value}") for value in values])
        keys += np.frombuffer(hashed, dtype=np.uint64).reshape(-1, 2)[codes]
    found = np.empty(len(inp), dtype=object)
    found[:] = keys.view("V16").ravel().tolist()
    return found


def scores_of(inp: pd.DataFrame, found: pd.DataFrame) -> np.ndarray | None:
    """The scores that a ranker gave the rows of a frame.

    Args:
        inp: What it was given.
        found: What it returned.

    Returns:
        float64, in the order of ``inp``; None where a ranker returned other rows or columns.
    """
    if not isinstance(found, pd.DataFrame) or not {*_NAMES, "score"} <= set(found.columns) <= {*inp.columns, "score", "rank"}:
        return None
    if len(found) != len(inp) or not pd.api.types.is_numeric_dtype(found["score"]):
        return None
    given, there = pair_numbers(inp, found)
    order = np.argsort(there, kind="stable")
    there = there[order]
    places = np.minimum(np.searchsorted(there, given), len(there) - 1)
    if (there[1:] == there[:-1]).any() or (there[places] != given).any():
        return None
    return found["score"].to_numpy(dtype=np.float64)[order[places]]


def _one_by_one(ranker: pt.Transformer, rows: pd.DataFrame) -> np.ndarray | None:
    """The scores of rows that are asked one at a time; None where one raises or is left out."""
    scores = []
    for number in range(len(rows)):
        row = rows.iloc[[number]].reset_index(drop=True)
        try:
            score = scores_of(row, ranker(row))
        except Exception:  # it may need a whole list; where it is broken, the list says so
            return None
        if score is None:
            return None
        scores.append(score[0])
    return np.array(scores)
