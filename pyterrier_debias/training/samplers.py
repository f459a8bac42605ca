"""Samplers, which choose the negatives of a training example from the candidates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pyterrier_debias.core.errors import InputError, shortened
from pyterrier_debias.core.text import keyed_generator

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@runtime_checkable
class Sampler(Protocol):
    """Interface of samplers, which draw the negatives of a positive; write your own by implementing ``sample``.

    A draw must depend only on its arguments (seed, epoch and the identifiers of the rows), not on their order or on earlier
    draws, so that a run can be resumed, sharded and repeated. Read columns of the candidates by ``groups.column``: a run is
    resumed only if the columns read in this way are unchanged. A sampler may also have a method ``excluded()`` that returns pairs
    (qid, docno), as ``ExcludeNegatives`` does: they are no in-batch negatives either.
    """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives.

        Args:
            groups: All groups, with the columns of the candidates, e.g. ``groups.column('score')``.
            group: The query.
            positive: The row of the positive.
            n: How many negatives to draw.
            seed: The training's seed.
            epoch: From 0.

        Returns:
            Up to n distinct rows of ``group.pool``; fewer only if the pool is smaller.
        """


class ChanceSampler(ABC):
    """Base class of samplers that are defined by each document's probability: a subclass implements only :meth:`chances`.

    Other code can then read the probabilities without drawing, e.g.
    :class:`~pyterrier_debias.HiddenJudgements`.
    """

    @abstractmethod
    def chances(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """Return how likely each document of the pool is to be drawn first.

        Args:
            groups: All groups.
            group: The query.
            positive: The row of the positive.

        Returns:
            One number for each row of ``group.pool``, finite, at least 0 and not all 0; the caller divides by their sum.
        """

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw without replacement by :meth:`chances`; see :class:`Sampler`. Documents with probability 0 are never drawn.

        Raises:
            InputError: If the chances are not what :meth:`chances` must return.
        """
        docno = groups.column("docno")[positive]
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docno)
        weights = np.asarray(self.chances(groups, group, positive), dtype=np.float64)
        with np.errstate(over="ignore"):
            total = weights.sum()
        if weights.shape != group.pool.shape or not (weights >= 0).all() or not 0 < total < np.inf:
            raise InputError(
                f"{type(self).__name__}: chances for query {group.qid!r}, whose pool has {len(group.pool)} documents, are "
                f"{shortened(np.array2string(weights, threshold=6, separator=', '), 80)}; return one number for each of them, "
                f"finite and not negative, with a finite sum above 0"
            )
        n = min(n, int((weights > 0).sum()))
        return chance.choice(group.pool, size=n, replace=False, p=weights / total)


@dataclass(frozen=True)
class UniformNegatives(ChanceSampler):
    """Draws negatives from the pool with equal probability, anew in each epoch.

    When not to use it: for a very deep first stage, where most negatives are too easy to learn from; cut the candidates first,
    e.g. ``bm25 % 100``.

    Example:
        ``Training(negatives=UniformNegatives(), negatives_per_positive=4)``
    """

    def chances(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """Equal probabilities for all documents of the pool; see :class:`ChanceSampler`."""
        return np.ones(len(group.pool))

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives; see :class:`Sampler`. (Without ``p``, NumPy draws faster, and the same rows as in earlier versions.)"""
        docno = groups.column("docno")[positive]
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docno)
        return chance.choice(group.pool, size=min(n, len(group.pool)), replace=False)
