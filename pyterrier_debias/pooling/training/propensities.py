"""KnownPropensities: example weights for training with known propensities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.pooling.formulas.propensities import NEGATIVES, inverse_propensity_weights, is_mark

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@dataclass(frozen=True)
class KnownPropensities:
    """Weights training pairs by known propensities: the oracle for a correction that has to estimate them.

    Input: a column of the candidates with the probability that a document was selected for labelling, and with
    ``negatives='selected'`` another one that says whether it was. Output: weights of pairs, as computed by
    :func:`~pyterrier_debias.pooling.formulas.propensities.inverse_propensity_weights`; a negative that was not selected has 0.

    In an experiment, whoever draws the judgements knows both. For a real pool nobody does, and
    :class:`~pyterrier_debias.pooling.training.cet.CETReranker` estimates them instead.

    Args:
        column: The column with propensities.
        selected: The column that says whether a document was selected: True or False, 1 or 0; read only with
            ``negatives='selected'``.
        negatives: ``'selected'``, or ``'given'`` for negatives that do not depend on the selection.
        least: The lowest propensity; lower ones are raised to this value.

    Raises:
        InputError: For an option out of range; in training, for a propensity that is not in (0, 1], a negative for which the
            column ``selected`` has no value, or an example with several positives or with documents of other queries
            (``positives='all'``, ``in_batch_negatives``), whose pairs have other weights.

    When not to use it: with losses that do not weight pairs by their negative (``'bce'`` weights single documents, and
    ``'infonce'`` counts a negative that often); with guessed propensities.

    Example:
        ``Training(loss='pairwise', weights=KnownPropensities())``, with ``propensity`` and ``selected`` among the candidates'
        columns.

    Source: Cai et al., CIKM 2022, Equations 5 to 13.
    """

    column: str = "propensity"
    selected: str = "selected"
    negatives: str = "selected"
    least: float = 0.0

    #: Weights are those of pairs of the query's own documents; ``Training`` refuses others.
    own_pairs_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise an error for options that cannot be used."""
        check_choice("KnownPropensities", "negatives", self.negatives, NEGATIVES)
        check_number("KnownPropensities", "least", self.least, least=0, most=1)

    def weigh(self, groups: Groups, group: Group, rows: np.ndarray) -> np.ndarray:
        """The weight of each pair at the position of its negative, and 1 at the positive; see the protocol of example weights."""
        values = groups.column(self.column)
        try:
            chances = np.array([values[row] for row in rows], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"KnownPropensities: column {self.column!r} holds no numbers ({error})") from error
        seen = None
        if self.negatives == "selected":
            marks = groups.column(self.selected)
            bad = next((row for row in rows[1:] if not is_mark(marks[row])), None)
            if bad is not None:
                raise InputError(
                    f"KnownPropensities: column {self.selected!r} is {marks[bad]!r} at row {bad} (qid={group.qid!r}, "
                    f"docno={groups.column('docno')[bad]!r}); it must be True or False (or 1 or 0), map it first, e.g. "
                    f"candidates.assign({self.selected}=candidates[{self.selected!r}].fillna(False))"
                )
            seen = np.array([bool(marks[row]) for row in rows[1:]], dtype=bool)
        try:
            weights = inverse_propensity_weights(chances[:1], chances[1:], seen, negatives=self.negatives, least=self.least)
        except InputError as error:
            raise InputError(f"KnownPropensities, query {group.qid!r}: {error}") from error
        return np.concatenate([[1.0], weights])
