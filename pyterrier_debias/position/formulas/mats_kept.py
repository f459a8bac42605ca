"""What MATS keeps of a collection: vectors summed by term and position, and occurrences up to a limit of memory."""

from __future__ import annotations

from typing import cast

import numpy as np

from pyterrier_debias.core.text import mixed
from pyterrier_debias.position.formulas.mats_pairs import BLOCK, inner_pairs, pair_squares, pair_sums, runs, units_of


class Grown:
    """Rows appended to one array, which grows in place if the system allows it, without a second copy of a large array."""

    def __init__(self) -> None:
        self._store = np.empty((0, 0))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> np.ndarray:
        """The rows; appending more may move them."""
        return self._store[: self._count]

    def append(self, rows: np.ndarray) -> None:
        """Append rows."""
        if not self._count:
            self._store = np.empty((0, *rows.shape[1:]), rows.dtype)
        elif np.promote_types(self._store.dtype, rows.dtype) != self._store.dtype:
            self._store = self._store.astype(rows.dtype)
        needed = self._count + len(rows)
        if needed > len(self._store):
            capacity = max(needed, len(self._store) * 5 // 4, 4096)
            self._store.resize((capacity, *rows.shape[1:]), refcheck=False)
        self._store[self._count : needed] = rows
        self._count = needed

    def keep(self, rows: np.ndarray) -> None:
        """Drop all rows except these."""
        self._store = self.values[rows]
        self._count = len(self._store)


class KeyedSums:
    """Rows of numbers, summed by an integer key."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._sums = Grown()

    @property
    def values(self) -> np.ndarray:
        """The sums, one row per key, in the order of :meth:`keys`."""
        return self._sums.values

    def keys(self) -> np.ndarray:
        """The keys, in the order in which they were first seen."""
        return np.fromiter(self._rows, dtype=np.int64, count=len(self._rows))

    def ordered(self) -> Ordered:
        """The sums in the order of their keys, as they are now."""
        return Ordered(self.keys(), self.values)

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Add each row to the sum of its key."""
        from scipy.sparse import csr_array

        if not len(keys):
            return
        distinct, place = np.unique(keys, return_inverse=True)
        by_key = csr_array((np.ones(len(keys)), (place, np.arange(len(keys)))), shape=(len(distinct), len(keys)))
        known = self._rows
        rows = np.fromiter((known.setdefault(key, len(known)) for key in distinct.tolist()), np.int64, len(distinct))
        if len(known) > len(self._sums):
            self._sums.append(np.zeros((len(known) - len(self._sums), values.shape[1])))
        self._sums.values[rows] += by_key @ values


class Ordered:
    """Sums by term and a number (a position or a distance), in ascending order; reads them by blocks of terms."""

    def __init__(self, keys: np.ndarray, values: np.ndarray):
        self._order = np.argsort(keys)
        self.keys, self._values = keys[self._order], values

    def counts(self) -> np.ndarray:
        """The last column of the sums, in the order of the keys."""
        return self._values[self._order, -1]

    def of_terms(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and sums of consecutive terms, whose ids ascend."""
        part = slice(*np.searchsorted(self.keys, (int(ids[0]) << 32, int(ids[-1]) + 1 << 32)))
        return self.keys[part], self._values[self._order[part]]

    def block(self, ids: np.ndarray, size: int, width: int) -> np.ndarray:
        """Sums of some terms, ids ascending, by distance: shape [width, len(ids), size], 0 where nothing was summed."""
        found = np.zeros((width, len(ids), size))
        keys, values = self.of_terms(ids)
        if len(keys):
            found[:, np.searchsorted(ids, keys >> 32), keys & 0xFFFFFFFF] = values.T
        return found


class Kept:
    """Occurrences that are kept for the spread over pairs: all of them, or for each term those with the smallest keys."""

    def __init__(self, sample: int | None, memory: int):
        self.memory = memory
        self.limit = sample
        self.parts = {name: Grown() for name in ("terms", "positions", "passages", "vectors")}
        self._settled = 0

    def __len__(self) -> int:
        return len(self.parts["terms"])

    def add(self, terms: np.ndarray, positions: np.ndarray, passages: np.ndarray, vectors: np.ndarray) -> None:
        """Add occurrences, and drop some if there is no room."""
        if self.limit == 0 or not len(terms):
            return
        for part, rows in zip(self.parts.values(), (terms, positions, passages, vectors)):
            part.append(rows)
        if len(self) > (self._settled * 2 + 100_000 if self.limit is not None else self._room() * 1.5):
            self.settle()

    def merge(self, other: Kept, mapped: np.ndarray) -> None:
        """Add the occurrences of another instance; ``mapped`` translates the numbers of its terms."""
        if other.limit is not None:
            self.limit = other.limit if self.limit is None else min(self.limit, other.limit)
        self._settled = 0
        terms, *others = (part.values for part in other.parts.values())
        if len(terms):
            self.add(mapped[terms], *(part.copy() for part in others))

    def _room(self) -> int:
        """How many vectors fit into the memory."""
        vectors = self.parts["vectors"].values
        return self.memory // max(vectors.itemsize * vectors.shape[1], 1)

    def settle(self) -> None:
        """Drop what does not fit. What stays depends only on what was added, not on its order or on earlier calls."""
        terms, room = self.parts["terms"].values, self._room()
        if not len(self) or (self.limit is None and len(self) <= room):
            return
        counts = np.bincount(terms)
        limit = 1 << int(counts.max()).bit_length() if self.limit is None else self.limit
        while np.minimum(counts, limit).sum() > room:
            limit //= 2
        self.limit = limit if limit > 1 else 0
        if counts.max() > self.limit:
            rows = self._smallest(self.limit)
            for part in self.parts.values():
                part.keep(rows)
        self._settled = len(self)

    def _smallest(self, limit: int) -> np.ndarray:
        """The rows of each term's occurrences with the smallest keys, at most ``limit`` per term."""
        terms = self.parts["terms"].values
        draws = _draws(self.parts["passages"].values, self.parts["positions"].values)
        order, counts = np.lexsort((draws, terms)), np.bincount(terms)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(order[rank < limit])

    def by_term(self, most: int | None = None) -> tuple[int | None, _KeptTerms | None]:
        """What is kept, ready to be read by terms.

        Args:
            most: How many occurrences of a term are read; None for all that are kept.

        Returns:
            The largest number of occurrences per term, None if all are kept; and the kept occurrences, None if there are none.
        """
        self.settle()
        limits = [limit for limit in (self.limit, most) if limit is not None]
        limit = min(limits) if limits else None
        if not len(self):
            return limit, None
        rows = slice(None) if limit == self.limit else self._smallest(cast(int, limit))
        return limit, _KeptTerms(*(part.values[rows] for part in self.parts.values()), sampled=limit is not None)


def _draws(passages: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A 64-bit hash for each occurrence: the passage's own, mixed with the position."""
    return mixed(passages + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), 0)


class _KeptTerms:
    """Kept occurrences in the order of their terms."""

    def __init__(self, terms: np.ndarray, positions: np.ndarray, passages: np.ndarray, vectors: np.ndarray, *, sampled: bool):
        self._positions, self._vectors, self._sampled = positions, vectors, sampled
        self._order = np.argsort(terms, kind="stable")
        self._terms = terms[self._order]
        groups, inner = np.unique(passages, return_inverse=True)[1] << 32 | terms, KeyedSums()
        order, _, counts = runs(groups)
        order, counts = order[np.repeat(counts > 1, counts)], counts[counts > 1]
        # Whole groups, in parts of about one block, so that few unit vectors are held at once.
        part = np.repeat((np.cumsum(counts) - counts) // max(1, BLOCK // vectors.shape[1]), counts)
        for bounds in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            if len(bounds):
                units = units_of(vectors[bounds])[0][:, :-1]
                for keys, sums in inner_pairs(groups[bounds], terms[bounds], positions[bounds], units, squares=True):
                    inner.add(keys, sums)
        self._inner = inner.ordered()

    def block(
        self, ids: np.ndarray, size: int, pairs: np.ndarray, cosines: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Pairs, summed cosines and summed squares among kept occurrences of some terms: of all pairs, and across passages.

        Args:
            ids: The terms, ascending.
            size: Distances.
            pairs: All pairs of the terms, equal to the kept pairs if every occurrence is kept; shape [len(ids), size].
            cosines: Their summed cosines.

        Returns:
            Two sets of three arrays of shape [len(ids), size].
        """
        squares = np.zeros_like(pairs)
        if self._sampled:
            pairs, cosines = np.zeros_like(pairs), np.zeros_like(pairs)
        starts, ends = (np.searchsorted(self._terms, ids, side=side) for side in ("left", "right"))
        for row, (start, end) in enumerate(zip(starts, ends)):
            if end - start < 2:
                continue
            rows = self._order[start:end]
            positions, units = self._positions[rows], units_of(self._vectors[rows])[0]
            squares[row] = pair_squares(positions, units[:, :-1], size)
            if self._sampled:
                own = KeyedSums()
                own.add(positions, units)
                pairs[row], cosines[row] = pair_sums(own.keys(), own.values[:, :-1], own.values[:, -1], size)
        whole = (pairs, cosines, squares)
        inner = self._inner.block(ids, size, width=3)
        return whole, tuple(all_pairs - own for all_pairs, own in zip(whole, inner))
