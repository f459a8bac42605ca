"""Which candidates become negatives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pyterrier_debias.core.text import keyed_generator

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@runtime_checkable
class Sampler(Protocol):
    """Draws the negatives of a positive.

    A draw must depend on its arguments alone (seed, epoch and the identifiers of the rows), not on their order or on earlier
    draws, so that a run can be resumed, sharded and repeated. What it knows of candidates it reads by ``groups.column``: a run is
    resumed only where the columns that were read so are the same.
    """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives.

        Args:
            groups: All groups; their columns tell what is known of a candidate, e.g. ``groups.column('score')``.
            group: The query.
            positive: The row of their positive.
            n: How many are wanted.
            seed: The training's seed.
            epoch: From 0.

        Returns:
            Up to n distinct rows of ``group.pool``; fewer only where the pool is smaller.
        """


class ChanceSampler(ABC):
    """A sampler that is defined by the chance of each document: a subclass implements :meth:`chances`, and nothing else.

    The chances can then be inspected without drawing, e.g. by
    :class:`~pyterrier_debias.HiddenJudgements`.
    """

    @abstractmethod
    def chances(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """How likely each document of the pool is to be drawn first.

        Args:
            groups: All groups.
            group: The query.
            positive: The row of the positive.

        Returns:
            float64, one for each of ``group.pool``, of at least 0 and not all 0; the caller divides by their sum.
        """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw without replacement by :meth:`chances`; see :class:`Sampler`. Documents without a chance are never drawn."""
        docno = groups.column("docno")[positive]
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docno)
        weights = np.asarray(self.chances(groups, group, positive), dtype=np.float64)
        n = min(n, int((weights > 0).sum()))
        return chance.choice(group.pool, size=n, replace=False, p=weights / weights.sum())


@dataclass(frozen=True)
class UniformNegatives(ChanceSampler):
    """Draw from the pool with equal chance, anew in each epoch.

    When not to use it: where most of the pool says nothing (a very deep first stage), which makes negatives too easy; cut the
    candidates first, e.g. ``bm25 % 100``.

    Example:
        ``Training(negatives=UniformNegatives(), negatives_per_positive=4)``
    """

    def chances(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The same for each document of the pool; see :class:`ChanceSampler`."""
        return np.ones(len(group.pool))

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives; see :class:`Sampler`. (Without ``p`` numpy draws faster, and as it did in earlier versions.)"""
        docno = groups.column("docno")[positive]
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docno)
        return chance.choice(group.pool, size=min(n, len(group.pool)), replace=False)
