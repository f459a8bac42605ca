"""The memory of an audit for rankers of other packages, if they prove to score rows or lists independently of each other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.frames import first_rows, pair_numbers
from pyterrier_debias.core.memory import ScoreMemory
from pyterrier_debias.core.stage import flatten
from pyterrier_debias.core.text import number_keys, text_keys
from pyterrier_debias.core.variants import VARIANT_MARK, variant_docno

#: How many rows are scored again one by one to see whether a ranker's scores can be remembered, and how many together: a tenth
#: of the rows, at least 200 (or all) and at most a thousand.
_PROVED_BY = 10
_RENAMED_SHARE, _RENAMED_LEAST, _RENAMED_MOST = 0.1, 200, 1000

#: Fewer rows are not worth it.
_LEAST = 20 * _PROVED_BY

#: What names a row, which biases change together with its texts; a ranker that reads it is not remembered.
_NAMES = ("qid", "docno")


class ForeignMemory:
    """A memory for the scores of an unknown ranker, used only if the scores depend on nothing but the row or list.

    The first 200 rows under their own names are scored without a memory (names that a probe made do not count). Then ten rows
    of the last frame are scored again, each alone and under a different qid and docno; and 200 to 1,000 of its rows together,
    also under different names, because a ranker may look up only some documents or queries. If all scores are exactly those of
    the frame, scores are remembered by row, and a row with the same cells (whatever its qid and docno) is not scored again.
    Otherwise, the frame's first list is scored again by itself, or together with half of itself if there is no other list. If it
    gets exactly the same scores as in the frame, scores are remembered by list: the same rows of a query, in the same order.
    Nothing is remembered for a ranker that adds or changes columns (for example, shortens texts), drops rows, is not
    deterministic, or whose scores depend on the batch, even by rounding.

    Args:
        limit: The largest number of scores to keep; None as for :class:`~pyterrier_debias.core.memory.ScoreMemory`.

    Attributes:
        varying: The number of rows that got two different scores in two identical calls, which shows that the ranker is not
            deterministic; 0 if there were none.
        repeated: The number of rows that were scored in two identical calls.

    Example:
        >>> memory, asked = ForeignMemory(), []
        >>> ranker = pt.apply.doc_score(lambda row: asked.append(row["docno"]) or float(len(row["text"])))
        >>> rows = pd.DataFrame({"qid": "q", "docno": [f"d{i}" for i in range(300)], "query": "a",
        ...                      "text": [str(10**i) for i in range(300)]})
        >>> len(memory.ask(ranker, rows)), len(asked)
        (300, 510)
        >>> again = memory.ask(ranker, rows.assign(docno=rows["docno"] + "%r1"))
        >>> len(again), len(asked), float(again["score"].max())
        (300, 510, 300.0)

    When not to use it: for rankers of this package, which remember by themselves (``remembering``).
    """

    def __init__(self, limit: int | None = None):
        self.varying = self.repeated = 0
        self._scores = ScoreMemory(limit)
        #: What scores are kept by: ``'row'``, ``'list'`` or ``'nothing'``; None until that is known.
        self._by: str | None = None
        #: How many rows there were until that was known; a slow ranker gets one list at a time.
        self._rows = 0
        self._lock = threading.Lock()

    def ask(self, ranker: pt.Transformer, inp: pd.DataFrame) -> pd.DataFrame:
        """Score a frame with a ranker, except rows or lists whose scores are known.

        Args:
            ranker: The same ranker in every call.
            inp: A result frame.

        Returns:
            What the ranker returns; if scores may be remembered, ``inp`` with ``score`` and without ``rank``, with the rows of a
            query together.
        """
        if self._by == "nothing" or all(hasattr(stage, "remembering") for stage in flatten(ranker)):
            return ranker(inp)
        if self._by is None:
            own = _own_names(inp)
            self._rows += len(own)
            enough = self._rows >= _LEAST and len(own) >= _PROVED_BY
            return self._first(ranker, inp, own) if enough else ranker(inp)
        keyed = self._keyed(inp)
        if keyed is None:
            return ranker(inp)
        whole, keys, units = keyed
        rows, at, distinct = _distinct(keys)

        def compute(new: np.ndarray) -> np.ndarray:
            asked = np.flatnonzero(np.isin(units, units[at[new]]))
            part = whole.iloc[asked].reset_index(drop=True)
            scores = scores_of(part, ranker(part))
            if scores is None:
                raise _OtherRowsError
            return scores[np.searchsorted(asked, at[new])]

        try:
            scored = whole.assign(score=self._scores.by_key(None, distinct, compute)[rows])
            return scored.drop(columns="rank", errors="ignore")  # an audit ranks what any ranker returns
        except _OtherRowsError:
            self._by = "nothing"
            return ranker(inp)

    def _first(self, ranker: pt.Transformer, inp: pd.DataFrame, own: np.ndarray) -> pd.DataFrame:
        """What a ranker makes of a frame, of which some rows have their own names; kept if that can be done."""
        found: pd.DataFrame = ranker(inp)
        if row_keys(inp) is None:
            return found
        scores = scores_of(inp, found)
        with self._lock:
            if self._by is None:
                self._by = "nothing" if scores is None else self._proved(ranker, inp, own, scores)
        keyed = None if self._by == "nothing" else self._keyed(inp)
        scores = None if keyed is None else scores_of(keyed[0], found)
        if keyed is not None and scores is not None:
            _, at, distinct = _distinct(keyed[1])
            self._scores.by_key(None, distinct, lambda new: scores[at[new]])
        return found

    def _keyed(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, np.ndarray] | None:
        """A frame, with the rows of a query together where lists are kept; of each row what its score is kept by, and the number
        of what must be asked together: the row alone, or its list. None where a cell is neither text nor number.
        """
        if self._by == "row":
            keys = row_keys(inp)
            return None if keys is None else (inp, keys, np.arange(len(inp)))
        whole, ends, lists = list_keys(inp)
        if not len(whole) or not lists[0]:
            return None
        sizes = np.diff(ends, prepend=0)
        owner = np.repeat(np.arange(len(lists)), sizes)
        places = np.arange(len(whole)) - np.repeat(ends - sizes, sizes)
        return whole, text_keys(lists)[owner] + text_keys(map(str, range(sizes.max())))[places], owner

    def _proved(self, ranker: pt.Transformer, inp: pd.DataFrame, own: np.ndarray, scores: np.ndarray) -> str:
        """What scores can be kept by; notes whether two calls differ."""

        def spread(number: int) -> tuple[np.ndarray, pd.DataFrame]:
            at = own[np.unique(np.linspace(0, len(own) - 1, number).astype(int))]
            rows = inp.iloc[at].reset_index(drop=True)
            return at, rows.assign(**{name: [variant_docno(one, "again") for one in rows[name]] for name in _NAMES})

        at, alone = spread(_PROVED_BY)
        if self._same(lambda: _one_by_one(ranker, alone), scores[at]):
            at, together = spread(max(min(_RENAMED_LEAST, len(own)), min(_RENAMED_MOST, int(_RENAMED_SHARE * len(own)))))
            if self._same(lambda: _alone(ranker, together), scores[at]):
                return "row"
        of_first = inp["qid"].eq(inp["qid"].iat[0]).to_numpy()
        first = inp[of_first].reset_index(drop=True)
        if of_first.all():  # alone it has been; it may depend on what else is in the frame
            second = first.iloc[: max(len(first) // 2, 1)].assign(qid=variant_docno(first["qid"].iat[0], "again"))
            ask = partial(_alone, ranker, pd.concat([first, second], ignore_index=True), len(first))
        else:
            ask = partial(_alone, ranker, first)
        return "list" if not self.varying and self._same(ask, scores[of_first]) else "nothing"

    def _same(self, ask: Callable[[], np.ndarray | None], before: np.ndarray) -> bool:
        """Whether scores are those that they were before; where they are not, another call tells whether they vary."""
        again = ask()
        if again is None or np.array_equal(again, before, equal_nan=True):
            return again is not None
        once_more = ask()
        if once_more is not None:
            self.varying, self.repeated = int((~np.isclose(again, once_more, rtol=0, atol=0, equal_nan=True)).sum()), len(again)
        return False


class _OtherRowsError(Exception):
    """Raised where a ranker that returned the rows that it was given returns others."""


def _own_names(inp: pd.DataFrame) -> np.ndarray:
    """The places of rows whose names no probe has made: where it did, another name is as unknown to the ranker."""
    made = [inp[name].astype(str).str.contains(VARIANT_MARK, regex=False).to_numpy(dtype=bool) for name in _NAMES]
    return np.flatnonzero(~np.logical_or(*made))


def row_keys(inp: pd.DataFrame) -> np.ndarray | None:
    """Hashes of all cells of each row except its identifiers.

    Args:
        inp: A result frame.

    Returns:
        n hashes, uint64, shape [n, 2]; None if a cell is neither text nor number, or there are no rows.
    """
    columns = [column for column in inp.columns if column not in _NAMES]
    if not columns or not len(inp):
        return None
    keys = np.zeros((len(inp), 2), dtype=np.uint64)
    for column in columns:
        # The hash of a row is the sum of its cells'.
        numbers = inp[column].dtype
        if isinstance(numbers, np.dtype) and numbers.kind in "iuf" and numbers.itemsize <= 8:
            keys += number_keys(inp[column].to_numpy(), column)
            continue
        # Each value is hashed once, with its column.
        try:
            codes, values = _coded(inp[column])
        except TypeError:  # lists and the like
            return None
        numeric = pd.api.types.is_numeric_dtype(inp[column])
        if not numeric and not all(isinstance(value, str) for value in values):
            return None
        keys += text_keys([f"{column}\1{value!r}" if numeric else f"{column}\0{value}" for value in values])[codes]
    return keys


def _coded(column: pd.Series) -> tuple[np.ndarray, list[Any]]:
    """The number of each row's value, and the values, of which some may occur twice."""
    if column.dtype == object:
        # Rows mostly share their texts, and to compare objects is far quicker than to compare texts.
        values = column.tolist()
        codes, objects = pd.factorize(np.fromiter(map(id, values), dtype=np.int64, count=len(values)))
        if 2 * len(objects) < len(values):
            return codes, [values[row] for row in first_rows(codes, len(objects)).tolist()]
    codes, distinct = pd.factorize(column, use_na_sentinel=False)
    return codes, distinct.tolist()


def scores_of(inp: pd.DataFrame, found: pd.DataFrame) -> np.ndarray | None:
    """The scores that a ranker gave to the rows of a frame.

    Args:
        inp: The input of the ranker.
        found: The output of the ranker.

    Returns:
        float64, in the order of ``inp``; None if the ranker returned other rows or columns, or changed their content.
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
    rows = order[places]
    if not all(_unchanged(inp[name], found[name], rows) for name in found.columns if name not in (*_NAMES, "score", "rank")):
        return None
    return found["score"].to_numpy(dtype=np.float64)[rows]


def _unchanged(given: pd.Series, found: pd.Series, rows: np.ndarray) -> bool:
    """Whether a column holds in these rows what was given, in whichever type; what is missing stays missing."""
    there = found if bool((np.diff(rows) == 1).all()) else found.take(rows)
    if given.dtype != there.dtype:
        given, there = given.astype(object), there.astype(object)
    return bool(given.array.equals(there.array))


def list_keys(inp: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray, list[str]]:
    """Digests of lists: of all cells of a query's rows, including identifiers, in their order.

    Args:
        inp: A result frame.

    Returns:
        The frame with the rows of a query together; where the rows of each query end; and a digest of each list, which is empty
        if a cell is neither text nor number.
    """
    query = pd.factorize(inp["qid"])[0]
    if (np.diff(query) < 0).any():
        order = np.argsort(query, kind="stable")
        inp, query = inp.iloc[order].reset_index(drop=True), query[order]
    ends = np.append(np.flatnonzero(np.diff(query)) + 1, len(query))
    keys = row_keys(inp)
    if keys is None:
        return inp, ends, [""] * len(ends)
    columns = "\0".join(map(str, inp.columns))
    docnos, lists = inp["docno"].astype(str).tolist(), []
    for start, end in zip(np.append(0, ends[:-1]), ends):
        names = "\0".join([columns, str(inp["qid"].iat[start]), *docnos[start:end]])
        own = keys[start:end].tobytes() + names.encode("utf-8", "surrogatepass")
        lists.append(blake2b(own, digest_size=16).hexdigest())
    return inp, ends, lists


def _distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Many rows may be one: the number of each row's key, where each key is first, and the keys."""
    rows, names = pd.factorize(keys[:, 0])
    at = first_rows(rows, len(names))
    if (keys[at, 1][rows] != keys[:, 1]).any():  # first halves alone do not distinguish them
        rows, names = pd.factorize(rows * len(keys) + pd.factorize(keys[:, 1])[0])
        at = first_rows(rows, len(names))
    return rows, at, keys[at]


def _alone(ranker: pt.Transformer, rows: pd.DataFrame, most: int | None = None) -> np.ndarray | None:
    """The scores of a frame, or of its first rows; None where the ranker raises or leaves out rows."""
    try:
        scores = scores_of(rows, ranker(rows))
    except Exception:  # it may need a whole list; where it is broken, the frame says so
        return None
    return None if scores is None else scores[:most]


def _one_by_one(ranker: pt.Transformer, rows: pd.DataFrame) -> np.ndarray | None:
    """The scores of rows that are asked one at a time; None where one raises or is left out."""
    scores = []
    for number in range(len(rows)):
        score = _alone(ranker, rows.iloc[[number]].reset_index(drop=True))
        if score is None:
            return None
        scores.append(score[0])
    return np.array(scores)
