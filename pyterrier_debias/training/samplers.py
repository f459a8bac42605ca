"""Which candidates become negatives. Floor 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pyterrier_debias.text import keyed_generator

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@runtime_checkable
class Sampler(Protocol):
    """Draws the negatives of a positive.

    A draw must depend on its arguments alone (seed, epoch and the identifiers of the rows), not on their order or on earlier
    draws, so that a run can be resumed, sharded and repeated.
    """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives.

        Args:
            groups: All groups; their columns tell what is known of a candidate, e.g. ``groups.column('score')``.
            group: The query.
            positive: The row of the positive that they stand against.
            n: How many are wanted.
            seed: The training's seed.
            epoch: From 0.

        Returns:
            Up to n distinct rows of ``group.pool``; fewer only where the pool is smaller.
        """


@dataclass(frozen=True)
class UniformNegatives:
    """Draw from the pool with equal chance, anew in each epoch.

    When not to use it: where most of the pool says nothing (a very deep first stage), which makes negatives too easy; cut the
    candidates first, e.g. ``bm25 % 100``.

    Example:
        ``Training(negatives=UniformNegatives(), negatives_per_positive=4)``
    """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives; see :class:`Sampler`."""
        docno = groups.column("docno")[positive]
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docno)
        return chance.choice(group.pool, size=min(n, len(group.pool)), replace=False)
