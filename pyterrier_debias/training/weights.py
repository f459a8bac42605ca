"""Weights of training examples: how much each counts in the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@runtime_checkable
class ExampleWeights(Protocol):
    """Weights the documents of training examples by information that is known before training.

    Weights that depend on the networks' current scores belong in a :class:`~pyterrier_debias.training.method.Method`.
    """

    def weigh(self, groups: Groups, group: Group, rows: np.ndarray) -> float | np.ndarray:
        """Weight an example.

        Args:
            groups: All groups, with their columns.
            group: The query.
            rows: The example's rows, its positive first.

        Returns:
            One finite weight of at least 0 for the whole example, or one for each row; the form must be the same for all
            examples. See :mod:`pyterrier_debias.training.losses` for how each loss uses them.
        """


@dataclass(frozen=True)
class ColumnWeights:
    """Weights training examples by a column of the candidates.

    Args:
        column: Name of the column.
        per: ``'query'``: the value of the positive is the weight of the whole example. ``'document'``: each document has its own.

    Raises:
        InputError: For an option that is unknown or out of range.

    When not to use it: for weights whose mean is far from 1, since they act like another learning rate; divide by the mean first.

    Example:
        ``Training(weights=ColumnWeights('ease'))``, with ``ease`` a column of the topics.
    """

    column: str
    per: str = "query"

    def __post_init__(self) -> None:
        """Refuse an unknown kind."""
        check_choice("ColumnWeights", "per", self.per, ("query", "document"))

    def weigh(self, groups: Groups, group: Group, rows: np.ndarray) -> float | np.ndarray:
        """Look up the weights; see :class:`ExampleWeights`."""
        values = groups.column(self.column)
        return values[rows[0]] if self.per == "query" else np.array([values[row] for row in rows])


def weights_of(weights: ExampleWeights | None, groups: Groups, group: Group, rows: np.ndarray) -> np.ndarray:
    """The weights of an example, checked.

    Args:
        weights: The source of the weights; None for 1.
        groups: All groups.
        group: The query.
        rows: The example's rows.

    Returns:
        float32, of shape [] for the whole example, or one weight per row.

    Raises:
        InputError: If a weight is negative, missing or infinite, or the source refuses its input.
    """
    if weights is None:
        return np.ones((), dtype=np.float32)
    try:
        found = np.asarray(weights.weigh(groups, group, rows), dtype=np.float32)
        np.broadcast_to(found, (len(rows),))
    except InputError:  # a ValueError, and it names the remedy
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"training: {weights!r} gives query {group.qid!r} weights that are not numbers ({error})") from error
    if not (np.isfinite(found) & (found >= 0)).all():
        raise InputError(
            f"training: {weights!r} gives query {group.qid!r} the weight {found[~(np.isfinite(found) & (found >= 0))].flat[0]}; "
            f"weights must be finite and at least 0"
        )
    return found


def check_column(weights: ExampleWeights | None, groups: Groups) -> None:
    """Check the weights of all positives in a column before a model is loaded.

    Args:
        weights: The source of the weights. Sources other than :class:`ColumnWeights`, and weights of negatives (some of which
            may never be drawn), are checked only when examples are drawn.
        groups: All groups.

    Raises:
        InputError: If :func:`weights_of` refuses a weight, or the candidates lack the column.
    """
    if isinstance(weights, ColumnWeights):
        for group in groups.groups:
            for row in group.positives:
                weights_of(weights, groups, group, np.array([row]))
