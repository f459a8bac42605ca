"""What a ranker remembers while it is asked the same again: by texts, until an option or a weight changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, TypeVar

import numpy as np

from pyterrier_debias.core.stage import same_value
from pyterrier_debias.core.text import text_key

P = TypeVar("P", bound=tuple[str, ...])


class Memory:
    """What was made of texts before, up to a limit; forgotten where what makes it is another.

    Args:
        limit: How many entries are kept at most; whoever adds one looks at it. None: whoever adds one decides.

    Example:
        >>> memory = Memory(limit=10)
        >>> memory.kept("v1")["tea"] = 3
        >>> memory.kept("v1"), memory.kept("v2")
        ({'tea': 3}, {})
    """

    def __init__(self, limit: int | None = None):
        self.limit = limit
        self._of: Any = None
        self._kept: dict[Any, Any] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        """How many entries are kept."""
        return len(self._kept)

    def kept(self, of: Any) -> dict[Any, Any]:
        """The entries that are known, to be added to.

        Args:
            of: What decides the entries beside their texts (options and weights). Where it differs from the call before, all
                entries are forgotten.

        Returns:
            The entries; what is added to those of another state later is seen by nobody.
        """
        with self._lock:
            if not same_value(self._of, of):
                self._of, self._kept = of, {}
            return self._kept


class ScoreMemory(Memory):
    """Scores of pairs that were scored before, by a hash of their texts, so that texts are not kept.

    Any number of threads may use one. Threads that ask for a new pair at the same time may both compute it.

    When not to use it: for scores that depend on anything but the pair, such as the other documents of a list.

    Args:
        limit: How many scores are kept at most; pairs beyond that are computed each time. None: a million (some 250 MB).

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

    def __init__(self, limit: int | None = None):
        super().__init__()
        self.limit: int = 1_000_000 if limit is None else limit

    def scores(
        self,
        of: Any,
        pairs: Sequence[P],
        compute: Callable[[list[P]], Sequence[float] | np.ndarray],
    ) -> np.ndarray:
        """The scores of distinct pairs: those that are known, and the others computed in one call.

        Args:
            of: See :meth:`kept`.
            pairs: n distinct pairs of texts.
            compute: Scores some of them, in their order; not called where there is none.

        Returns:
            float64, shape [n].
        """
        # Each text is hashed once; the hashes have one length, so that no two pairs are joined to one key.
        known = {text: text_key(text) for text in {text for pair in pairs for text in pair}}
        keys = [b"".join([known[text] for text in pair]) for pair in pairs]
        return self.by_key(of, keys, lambda new: compute([pairs[i] for i in new]))

    def by_key(
        self, of: Any, keys: Sequence[bytes], compute: Callable[[list[int]], Sequence[float] | np.ndarray]
    ) -> np.ndarray:
        """The same for pairs, or rows, that are known by n distinct keys.

        Args:
            of: See :meth:`kept`.
            keys: Their hashes.
            compute: Scores those at the given places, in their order; not called where there is none.

        Returns:
            float64, shape [n].
        """
        with self._lock:
            kept = self.kept(of)
            found = np.fromiter(map(kept.get, keys, repeat(np.nan)), dtype=np.float64, count=len(keys))
            # A score may be NaN itself.
            new = [i for i in np.flatnonzero(np.isnan(found)).tolist() if keys[i] not in kept]
        if new:
            found[new] = np.asarray(compute(new), dtype=np.float64)
            with self._lock:
                # Of another state of the ranker, if that has changed meanwhile: then nobody looks there any more.
                some = new[: max(self.limit - len(kept), 0)]
                kept.update(zip([keys[i] for i in some], found[some].tolist()))
        return found
