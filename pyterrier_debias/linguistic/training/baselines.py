"""Baselines for EqualizeReranker: weights by complexity, group DRO, and weights by the confidence of a biased learner."""

from __future__ import annotations

import logging
import math
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.linguistic.formulas.product_of_experts import focal_by_confidence
from pyterrier_debias.linguistic.formulas.spread import bin_numbers, inner_edges
from pyterrier_debias.linguistic.training.equalize import TrainedAgainstBiased
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.losses import info_nce, mean_over, prepared
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.groups import Group, Groups
    from pyterrier_debias.training.method import Method

logger = logging.getLogger(__name__)

# Reverse weighting by complexity


def query_values(groups: Groups, column: str) -> list[Any]:
    """The value of each training query in a column of the candidates: the first value that is present among its documents.

    Args:
        groups: The training queries.
        column: The column; rows that were added after the stage that made it may have no value.

    Returns:
        One value per query, missing if no document has one.

    Raises:
        InputError: If the candidates lack the column.
    """
    values, found = groups.column(column), []
    for group in groups.groups:
        own = [values[row] for row in (*group.positives, *group.pool)]
        found.append(next((value for value in own if pd.isna(value) is not True), own[0]))
    return found


def check_query_values(groups: Groups, column: str, found: Sequence[Any]) -> None:
    """Refuse a column that differs between the documents of a query.

    Args:
        groups: The training queries.
        column: The column; its missing values do not count.
        found: The output of :func:`query_values`.

    Raises:
        InputError: Naming the first query with several values.
    """
    values = groups.column(column)
    for group, first in zip(groups.groups, found):
        own = (values[row] for row in (*group.positives, *group.pool))
        other = next((value for value in own if pd.isna(value) is not True and _differ(value, first)), first)
        if other is not first:
            raise InputError(
                f"training: column '{column}' has several values for query {group.qid!r} ({first!r} and {other!r}); name a "
                f"column that has one value per query"
            )


def _check_finite(where: str, values: np.ndarray, qids: Sequence[Any]) -> None:
    """Refuse values of training queries that are missing or infinite, naming the first query."""
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f"{where}: {len(bad)} training queries have no finite value (the first is {qids[bad[0]]!r}); give them one, or leave "
            f"them out"
        )


def _differ(value: Any, other: Any) -> bool:
    """Whether two values of a column differ by more than rounding."""
    if isinstance(value, float) and isinstance(other, float):
        return not math.isclose(value, other, rel_tol=1e-9, abs_tol=1e-12)
    return bool(value != other)


def reverse_weights(complexity: np.ndarray) -> np.ndarray:
    """Compute weights that fall with complexity: 1 - minmax(complexity), divided by their mean.

    Args:
        complexity: Shape [n], of queries.

    Returns:
        Shape [n], with mean 1, and 0 for the most complex query; all 1 if all queries are equally complex.

    Raises:
        InputError: If a value is missing or infinite.

    Example:
        >>> reverse_weights(np.array([0.0, 1.0, 4.0])).round(3).tolist()
        [1.714, 1.286, 0.0]
    """
    complexity = np.asarray(complexity, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(complexity))
    if len(bad):
        raise InputError(
            f"reverse_weights: {len(bad)} of {len(complexity)} queries have no finite complexity (the first is at row {bad[0]}); "
            f"leave them out, or give them a value"
        )
    spread = np.ptp(complexity)
    if spread == 0:
        return np.ones(len(complexity))
    weights = (complexity.max() - complexity) / spread
    return weights / weights.mean()


@dataclass(frozen=True)
class ReverseComplexity:
    """Weights training queries by their complexity ("LC as Rev Weight" of Cheng and Amiri, NAACL 2025).

    The weights are those of :func:`reverse_weights` over the training queries; each is a factor of its query's loss. As the paper
    describes it, simpler queries get larger weights, so that complex queries count less. A baseline that is meant to help complex
    queries has to give them more weight, which is probably what the authors meant: ``favour='hard'``.

    Args:
        column: The column of the candidates with the complexity of the query; one value per query.
        favour: ``'easy'``: the more complex a query, the less it counts. ``'hard'``: the simpler a query, the less it counts.

    Raises:
        InputError: For an unknown ``favour``; in training, for complexities that are not finite numbers.

    When not to use it: as a treatment. With either setting, less is learnt from some queries; the paper uses it as a baseline.

    Example:
        ``Training(loss='infonce', weights=ReverseComplexity())``, after ``LinguisticComplexity()``.
    """

    column: str = "complexity"
    favour: str = "easy"
    _known: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raise an error for an unknown ``favour``."""
        check_choice("ReverseComplexity", "favour", self.favour, ("easy", "hard"))

    def weigh(self, groups: Groups, group: Group, rows: np.ndarray) -> float:
        """Return the weight of a query; see :class:`~pyterrier_debias.training.weights.ExampleWeights`."""
        if not self._known or self._known[0]() is not groups:
            values = query_values(groups, self.column)
            try:
                complexity = np.array(values, dtype=np.float64)
            except (TypeError, ValueError) as error:
                raise InputError(f"ReverseComplexity: column '{self.column}' holds no numbers ({error})") from error
            _check_finite("ReverseComplexity", complexity, [one.qid for one in groups.groups])
            check_query_values(groups, self.column, values)
            weights = reverse_weights(complexity if self.favour == "easy" else -complexity)
            self._known[:] = [weakref.ref(groups), {one.qid: float(weight) for one, weight in zip(groups.groups, weights)}]
        return self._known[1][group.qid]

    def __getstate__(self) -> dict[str, Any]:
        """The options only; weights are computed again."""
        return {"column": self.column, "favour": self.favour, "_known": []}


def weighted_probability(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
) -> torch.Tensor:
    r"""The mean of :math:`-\log\,(w\, p(d^+))`: the weight is applied to the probability, as the paper describes its baseline.

    **It trains as without weights:** :math:`-\log (w p) = -\log w - \log p`, and the first term has no gradient. The function is
    here to show this; to have an effect, a weight must be a factor of the loss, as in all other losses.

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B]; at least 1e-6 is used, since the most complex query has weight 0.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> round(float(weighted_probability(torch.zeros(1, 2), weights=torch.full((1,), 2.0))), 4)
        0.0
    """
    plain = info_nce(scores, mask=mask)
    if weights is None:
        return plain
    scores, mask, weights = prepared(scores, mask, weights)
    return plain - mean_over(weights.clamp(min=1e-6).log(), mask[:, :1], weights.new_ones(()))


# The worst group first


def group_codes(values: list[Any], bins: int | None, qids: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Assign each query to a group.

    Args:
        values: One value per query: the name of its group, or a number to be binned.
        bins: Into how many groups of similar size numbers are divided, at quantiles; None makes each distinct value a group. If
            many queries have one value, there are fewer groups, of unequal size, and a warning is logged.
        qids: The queries, for messages; None names them by their number.

    Returns:
        Codes from 0, shape [n], and the groups' names.

    Raises:
        InputError: For missing values, values that are not numbers (with ``bins``), or fewer than two groups.

    Example:
        >>> group_codes([0.1, 0.9, 0.5, 0.4], 2)
        (array([0, 1, 1, 0]), ['bin 1 of 2', 'bin 2 of 2'])
    """
    named = range(len(values)) if qids is None else qids
    if bins is None:
        lacking = next((qid for qid, value in zip(named, values) if pd.isna(value) is True), None)
        if lacking is not None:
            raise InputError(f"group DRO: query {lacking!r} has no group; give it one, or leave it out of the training queries")
        names = sorted(set(map(str, values)))
        codes = np.array([names.index(str(value)) for value in values])
    else:
        try:
            numbers = np.array(values, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"group DRO: groups are not numbers ({error}); use bins=None if they are names") from error
        _check_finite("group DRO", numbers, named)
        _, codes = np.unique(bin_numbers(numbers, inner_edges(numbers, bins)), return_inverse=True)
        sizes = np.bincount(codes)
        names = [f"bin {i + 1} of {len(sizes)}" for i in range(len(sizes))]
        if 1 < len(sizes) < bins:
            logger.warning(
                "group DRO: many training queries have one value, so there are %d groups instead of %d (of %s queries); use "
                "fewer bins, or groups of your own with bins=None", len(sizes), bins, ", ".join(map(str, sizes)),
            )  # fmt: skip
    if len(names) < 2:
        raise InputError("group DRO: all training queries are in one group; use other groups, or train the ranker itself")
    return codes, names


class GroupDROReranker(TrainedRanker):
    r"""Trains a ranker to do well on the group of queries on which it does worst (group DRO).

    Each group g has a share :math:`q_g`; all are equal at first. In each step, the shares of the groups in the batch grow with
    their losses, :math:`q_g \leftarrow q_g e^{\eta L_g}`, and are divided by their sum; the loss of the step is
    :math:`\sum_g q_g L_g`. Groups that stay hard therefore count most in the end. With ``Training(accumulation=k)``, shares grow
    in each of the k forward passes of a step, with eta / k, and a group counts in the passes whose batch has queries of it. With
    several processes, the shares are those of the first one. The log of ``fit`` has ``share of`` and ``loss of`` each group.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query``, the ranker's text columns; for ``fit`` also ``group``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Sagawa, Koh, Hashimoto and Liang, "Distributionally Robust Neural Networks for Group Shifts", ICLR 2020, Algorithm 1.

    Args:
        ranker: Any ranker of this package; a name or folder is loaded as a ``CrossEncoder``. It is copied.
        group: The column with the group of a query, or with numbers to be binned; one value per query.
        bins: Into how many groups of similar size the numbers are divided; None makes each distinct value a group.
        step: eta, how fast shares grow. Large steps follow the worst batch; with small ones, shares stay nearly equal.
        training: How ``fit`` trains, with any loss; None for the ranker's own ``training``.

    Raises:
        InputError: For options that are unknown or out of range, or groups that cannot be used; when scoring before ``fit``.

    When not to use it: with groups of a handful of queries; if the worst group is worst because of its judgements; if a
    strongly fitted model has no loss left in any group (in that case the paper needs strong regularisation).

    Example:
        >>> GroupDROReranker("distilbert-base-uncased", bins=4)
        GroupDROReranker('distilbert-base-uncased', bins=4)

        In a pipeline: ``(bm25 >> LinguisticComplexity() >> texts >> GroupDROReranker(ranker)).fit(topics, qrels)``.

    .. cite.dblp:: journals/corr/abs-1911-08731
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "GroupDRO", "help_url": None}

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        group: str = "complexity",
        bins: int | None = 3,
        step: float = 0.01,
        training: Training | None = None,
    ):
        super().__init__()
        self.ranker = ranker
        self.group = group
        self.bins = bins
        self.step = step
        self.training = training

    def make_method(self, ranker: Any, training: Training, groups: Groups, prepared: None) -> Method:
        """The ranker's method with shares of groups; see the class."""
        values = query_values(groups, self.group)
        codes, names = group_codes(values, self.bins, [one.qid for one in groups.groups])
        check_query_values(groups, self.group, values)
        from pyterrier_debias.linguistic.training.dro_method import GroupDRO
        from pyterrier_debias.training.method import ranking_of

        group_of = {one.qid: int(code) for one, code in zip(groups.groups, codes)}
        ranking, passes = ranking_of(ranker, training, "GroupDROReranker"), training.accumulation
        return GroupDRO(ranking, group_of, names, step=self.step, passes=passes)

    def check_options(self) -> None:
        """Check the options, before anything is loaded.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """
        self.checked_base()
        check_number("GroupDROReranker", "step", self.step, least=0)
        if self.bins is not None:
            hint = "None makes each distinct value a group"
            check_number("GroupDROReranker", "bins", self.bins, least=2, whole=True, hint=hint)

    def saved_options(self) -> dict[str, Any]:
        """All options except the ranker and ``training``."""
        return {"group": self.group, "bins": self.bins, "step": self.step}


# Confidence of a biased model


class FocalReranker(TrainedAgainstBiased):
    r"""Trains a ranker mainly on queries that a biased learner gets wrong (debiased focal loss).

    The weight of a query is :math:`(1 - z_B(d^+))^\gamma`, where :math:`z_B(d^+)` is the biased learner's probability of the
    positive. This is an alternative to :class:`~pyterrier_debias.linguistic.training.equalize.EqualizeReranker` with the same
    biased learners: weights instead of the product of experts.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Mahabadi, Belinkov and Henderson, "End-to-End Bias Mitigation by Modelling Biases in Corpora", ACL 2020.

    Args:
        ranker: Any ranker of this package; a name or folder is loaded as a ``CrossEncoder``.
        biased: The biased learner, as in :class:`~pyterrier_debias.linguistic.training.equalize.EqualizeReranker`.
        gamma: How steeply weights fall with the biased learner's confidence; 0 is plain training with ``loss='infonce'``.
        biased_temperature: What biased scores are divided by before the softmax that gives :math:`z_B`.
        negatives: Which negatives are used, as in ``EqualizeReranker``.
        training: How ``fit`` trains, as in ``EqualizeReranker``.

    Raises:
        InputError: For options that are unknown, out of range or incompatible; when scoring before ``fit``.

    When not to use it: with a biased learner that is right nearly everywhere, since all weights are then close to 0.

    Example:
        >>> FocalReranker("distilbert-base-uncased", gamma=1.0)
        FocalReranker('distilbert-base-uncased', gamma=1.0)

    .. cite.dblp:: journals/corr/abs-1909-06321
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Focal", "help_url": None}

    _LOSSES: ClassVar[dict[str, str]] = {"pairwise": "infonce", "infonce": "infonce"}

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        biased: Any = "weaker_model",
        gamma: float = 2.0,
        biased_temperature: float = 1.0,
        negatives: str = "explicit",
        training: Training | None = None,
    ):
        super().__init__(ranker, biased, biased_temperature, negatives, training)
        self.gamma = gamma

    def combination(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The focal loss; see :meth:`TrainedAgainstBiased.combination`."""
        check_number("FocalReranker", "gamma", self.gamma, least=0)
        check_number("FocalReranker", "biased_temperature", self.biased_temperature, above=0)
        return focal_by_confidence, {"gamma": self.gamma, "biased_temperature": self.biased_temperature}
