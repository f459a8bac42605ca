"""What a ranker remembers while it scores the same texts again; it forgets when an option or a weight changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from pyterrier_debias.core.stage import same_value
from pyterrier_debias.core.text import text_keys

P = TypeVar("P", bound=tuple[str, ...])


class Memory:
    """Results computed from texts, up to a limit; they are forgotten when whatever computes them changes.

    Args:
        limit: Largest number of entries; the caller that adds one must check it. None: the caller decides.

    Example:
        >>> memory = Memory(limit=10)
        >>> memory.kept("v1")["tea"] = 3
        >>> memory.kept("v1"), memory.kept("v2")
        ({'tea': 3}, {})
    """

    #: What holds the entries.
    _STORE: type[Any] = dict

    def __init__(self, limit: int | None = None):
        self.limit = limit
        self._of: Any = None
        self._kept = self._STORE()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._kept)

    def kept(self, of: Any) -> Any:
        """The known entries; the caller may add to them.

        Args:
            of: What determines the entries besides their texts (options and weights). If it differs from the previous call,
                all entries are forgotten.

        Returns:
            The entries; what is later added to the entries of an earlier state is lost.
        """
        with self._lock:
            if not same_value(self._of, of):
                self._of, self._kept = of, self._STORE()
            return self._kept


class ScoreTable:
    """Scores by the first 12 bytes of their keys, in sorted arrays: 20 bytes per score, a tenth of what a dictionary needs.

    Example:
        >>> table, keys = ScoreTable(), np.array([[7, 1], [3, 2]], dtype=np.uint64)
        >>> table.add(keys[:1], np.array([.5]))
        >>> [one.tolist() for one in table.find(keys)]
        [[True, False], [0.5, nan]]
    """

    def __init__(self) -> None:
        #: The first 8 bytes of keys, the next 4, and scores, sorted by the first; each part has more than twice the rows of the
        #: next, so that adding a few scores at a time moves each of them seldom.
        self._parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def __len__(self) -> int:
        """The number of scores."""
        return sum(len(scores) for _, _, scores in self._parts)

    def find(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The scores that are known.

        Args:
            keys: uint64, shape [n, 2].

        Returns:
            Whether each key is known, and its score or NaN. Of two keys with the same first 8 bytes, one may stay unknown.
        """
        first, second = keys[:, 0], keys[:, 1].astype(np.uint32)
        known, found = np.zeros(len(keys), dtype=bool), np.full(len(keys), np.nan)
        for firsts, seconds, scores in self._parts:
            at = np.minimum(np.searchsorted(firsts, first), len(firsts) - 1)
            here = (firsts[at] == first) & (seconds[at] == second)
            found[here] = scores[at[here]]
            known |= here
        return known, found

    def add(self, keys: np.ndarray, scores: np.ndarray) -> None:
        """Add scores.

        Args:
            keys: uint64, shape [n, 2], unknown ones.
            scores: Shape [n].
        """
        if not len(scores):
            return
        parts = [(keys[:, 0], keys[:, 1].astype(np.uint32), scores)]
        while self._parts and len(self._parts[-1][0]) <= 2 * sum(len(one[0]) for one in parts):
            parts.append(self._parts.pop())
        columns = [list(column) for column in zip(*parts)]
        del parts
        order = np.argsort(np.concatenate(columns[0]))
        # A column at a time, so that no more than one of them is there twice.
        first, second, values = (np.concatenate(columns.pop(0))[order] for _ in range(3))
        self._parts.append((first, second, values))


class ScoreMemory(Memory):
    """Scores of pairs that were scored before, by a hash of their texts, so that texts need not be kept.

    Any number of threads may use one. Threads that ask for a new pair at the same time may both compute it.

    When not to use it: for scores that depend on anything but the pair, such as the other documents of a list.

    Args:
        limit: Largest number of scores to keep; further pairs are computed each time. None: four million (80 MB).

    Example:
        >>> memory, asked = ScoreMemory(limit=1000), []
        >>> def lengths(pairs):
        ...     asked.extend(pairs)
        ...     return [len(text) for _, text in pairs]
        >>> memory.scores("v1", [("q", "one"), ("q", "three")], lengths).tolist()
        [3.0, 5.0]
        >>> memory.scores("v1", [("q", "three"), ("q", "eleven")], lengths).tolist()
        [5.0, 6.0]
        >>> [text for _, text in asked]
        ['one', 'three', 'eleven']
    """

    _STORE = ScoreTable

    def __init__(self, limit: int | None = None):
        super().__init__()
        self.limit: int = 4_000_000 if limit is None else limit

    def scores(
        self,
        of: Any,
        pairs: Sequence[P],
        compute: Callable[[list[P]], Sequence[float] | np.ndarray],
    ) -> np.ndarray:
        """The scores of distinct pairs: known scores are looked up, the others are computed in one call.

        Args:
            of: See :meth:`kept`.
            pairs: n distinct pairs of texts.
            compute: Scores some of them, in their order; not called if there is none.

        Returns:
            float64, shape [n].
        """
        # Each text is hashed once. Pairs of two texts in either order have two keys: the places have different factors.
        place = {text: number for number, text in enumerate(dict.fromkeys(text for pair in pairs for text in pair))}
        hashed = text_keys(place)
        keys = np.zeros((len(pairs), 2), dtype=np.uint64)
        for number, texts in enumerate(zip(*pairs)):
            keys += hashed[[place[text] for text in texts]] * np.uint64(2 * number + 1)
        return self.by_key(of, keys, lambda new: compute([pairs[i] for i in new.tolist()]))

    def by_key(self, of: Any, keys: np.ndarray, compute: Callable[[np.ndarray], Sequence[float] | np.ndarray]) -> np.ndarray:
        """The same for pairs, or rows, that n distinct keys identify.

        Args:
            of: See :meth:`kept`.
            keys: Their hashes: uint64, shape [n, 2].
            compute: Scores those at the given indices, in their order; not called if there is none.

        Returns:
            float64, shape [n].
        """
        with self._lock:
            kept = self.kept(of)
            known, found = kept.find(keys)
        new = np.flatnonzero(~known)
        if len(new):
            found[new] = np.asarray(compute(new), dtype=np.float64)
            with self._lock:
                # Of another state of the ranker, if that has changed meanwhile: then nobody looks there any more.
                some = new[: max(self.limit - len(kept), 0)]
                kept.add(keys[some], found[some])
        return found
