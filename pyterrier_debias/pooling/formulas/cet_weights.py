r"""The formulas of coupled estimation: how two models weight each other's pairs.

i is a positive and j an unlabelled candidate of one query; S are scores of the selection model, R those of the relevance model.
Everything is computed in float32 or better, whatever the precision of the networks, and in log space until the last step.

Source: Cai, Guo, Fan, Ai, Zhang and Cheng, "Hard Negatives or False Negatives: Correcting Pooling Bias in Training Neural Ranking
Models", CIKM 2022, Equations 18-20 and Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.training.losses import info_nce

if TYPE_CHECKING:
    import torch

WEIGHTINGS = ("paper", "released")
NORMALISATIONS = (None, "mean_one")
REDUCTIONS = ("pairs", "queries")
LOSSES = ("pairs", "listwise")

#: The logarithm of the largest weight that is ever computed. No sensible run reaches e^30; the bound keeps the squares of
#: gradients, which clipping and AdamW compute, finite in float32.
LARGEST = 30.0


def log_weights(positive: torch.Tensor, negative: torch.Tensor, *, tau: float, weighting: str = "paper") -> torch.Tensor:
    r"""Compute the logarithms of the weights that one model's scores give to the other model's pairs.

    ``'paper'`` (Equations 18 and 19): :math:`(S_j - S_i) / \tau`. ``'released'`` (the authors' code):
    :math:`\ln(1 + e^{S_j/\tau})`, which does not depend on the positive's score and is never below 0.

    Args:
        positive: Scores of positives.
        negative: Scores of candidates, of a shape that broadcasts with that of the positives.
        tau: Temperature, above 0; larger values make weights more equal.
        weighting: ``'paper'`` or ``'released'``.

    Returns:
        float32 (float64 for float64 scores), without a gradient.

    Raises:
        InputError: For an unknown weighting or a ``tau`` that is not above 0.

    Example:
        >>> import torch
        >>> log_weights(torch.tensor([2.0]), torch.tensor([1.0]), tau=0.5).tolist()
        [-2.0]
    """
    import torch

    _check_weighting("log_weights", tau=tau, weighting=weighting)
    positive, negative = _exact(positive.detach()), _exact(negative.detach())
    positive, negative = torch.broadcast_tensors(positive, negative)
    return (negative - positive) / tau if weighting == "paper" else torch.nn.functional.softplus(negative / tau)


def pair_weights(
    positive: torch.Tensor,
    negative: torch.Tensor,
    *,
    tau: float = 1.0,
    weighting: str = "paper",
    max_weight: float | None = 1.0,
    normalise: str | None = None,
    valid: torch.Tensor | None = None,
) -> torch.Tensor:
    """Compute the weights that one model's scores give to the other model's pairs.

    Weights are bounded first and normalised afterwards, so that with ``'mean_one'`` a weight may exceed ``max_weight``.

    Args:
        positive: Scores of positives, as for :func:`log_weights`.
        negative: Scores of candidates, as for :func:`log_weights`.
        tau: Temperature, as for :func:`log_weights`.
        weighting: ``'paper'`` or ``'released'``, as for :func:`log_weights`.
        max_weight: The largest weight; None for no bound, as in the paper (except e^30, to avoid overflow).
        normalise: ``'mean_one'`` divides by the mean over all valid pairs; None does not.
        valid: Which positions have a pair; None for all.

    Returns:
        Weights of at least 0, without a gradient; 0 where there is no pair.

    Raises:
        InputError: For an unknown weighting or normalisation, or a ``tau`` or ``max_weight`` that is not above 0.

    Example:
        >>> import torch
        >>> pair_weights(torch.tensor([2.0]), torch.tensor([1.0, 4.0]), max_weight=None)
        tensor([0.3679, 7.3891])
        >>> pair_weights(torch.tensor([2.0]), torch.tensor([1.0, 4.0]))
        tensor([0.3679, 1.0000])
    """
    import torch

    _check_weighting("pair_weights", tau=tau, weighting=weighting, max_weight=max_weight, normalise=normalise)
    logs = log_weights(positive, negative, tau=tau, weighting=weighting)
    valid = torch.ones_like(logs, dtype=torch.bool) if valid is None else valid
    if max_weight is not None:
        logs = logs.clamp(max=math.log(max_weight))
    if normalise == "mean_one" and valid.numel():
        largest = logs.masked_fill(~valid, -torch.inf).max()
        weights = (logs - largest.nan_to_num(neginf=0.0)).exp().where(valid, 0.0)
        # The largest weight is 1 if there is a pair; without pairs the sum is 0.
        return weights / weights.sum().clamp(min=0.5) * valid.sum()
    return logs.clamp(max=LARGEST).exp().masked_fill(~valid, 0)


def _check_weighting(
    where: str, *, tau: float, weighting: str, max_weight: float | None = None, normalise: str | None = None
) -> None:
    check_choice(where, "weighting", weighting, WEIGHTINGS)
    check_choice(where, "normalise", normalise, NORMALISATIONS)
    check_number(where, "tau", tau, above=0, hint="large values bring all weights together")
    if max_weight is not None:
        check_number(where, "max_weight", max_weight, above=0, hint="None means no bound")


def pair_losses(scores: torch.Tensor) -> torch.Tensor:
    r"""Compute the loss of each pair: :math:`-\log \mathrm{sigmoid}(s_i - s_j) = \mathrm{softplus}(s_j - s_i)`.

    Args:
        scores: Shape [B, n], positive first.

    Returns:
        Shape [B, n-1].

    Example:
        >>> import torch
        >>> [round(x, 4) for x in pair_losses(torch.tensor([[1.0, 1.0, 0.0]]))[0].tolist()]
        [0.6931, 0.3133]
    """
    import torch

    scores = _exact(scores)
    return torch.nn.functional.softplus(scores[:, 1:] - scores[:, :1])


def weighted_mean(losses: torch.Tensor, weights: torch.Tensor, valid: torch.Tensor, reduction: str = "pairs") -> torch.Tensor:
    """Average weighted pair losses.

    Args:
        losses: Shape [B, m].
        weights: Weights of the same shape.
        valid: Which positions have a pair.
        reduction: ``'pairs'`` divides by the number of pairs (as in the released code), ``'queries'`` by the number of examples
            with a pair (Equation 20, where queries with more pairs count more). With one negative per positive, both are equal.

    Returns:
        A scalar; without a pair it is 0, but still part of the graph of gradients.

    Raises:
        InputError: For an unknown reduction.
    """
    check_choice("weighted_mean", "reduction", reduction, REDUCTIONS)
    count = valid.sum() if reduction == "pairs" else valid.any(dim=1).sum()
    return (losses * weights).masked_fill(~valid, 0).sum() / count.clamp(min=1)


def effective_share(weights: torch.Tensor) -> torch.Tensor:
    r"""Compute the effective sample size divided by the number of weights: :math:`(\sum w)^2 / (n \sum w^2)`.

    It is 1 if all weights are equal, and 1/n if one outweighs all others.

    Args:
        weights: Shape [n], not all 0.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> effective_share(torch.tensor([1.0, 1.0, 0.0, 0.0])).item()
        0.5
    """
    shares = _exact(weights) / weights.max().clamp(min=1e-30)
    return shares.sum() ** 2 / ((shares**2).sum() * len(shares)).clamp(min=1e-30)


def rank_correlation(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Compute Spearman's rank correlation; ties share the mean of their ranks.

    Args:
        left: Shape [n].
        right: Shape [n].

    Returns:
        A scalar; NaN if one side is constant.

    Example:
        >>> import torch
        >>> rank_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.0, 9.0, 4.0]))
        tensor(0.5000)
    """
    left, right = (_ranks(_exact(side.detach())) for side in (left, right))
    left, right = left - left.mean(), right - right.mean()
    return (left * right).sum() / (left.norm() * right.norm())


@dataclass(frozen=True, kw_only=True)
class Coupling:
    """How two models weight each other's pairs: the options of :class:`~pyterrier_debias.CETReranker` for the formulas.

    Args:
        tau: Temperature, see :func:`log_weights`.
        weighting: ``'paper'`` or ``'released'``, see :func:`log_weights`.
        max_weight: See :func:`pair_weights`.
        normalise_weights: See ``normalise`` of :func:`pair_weights`; over the pairs of a batch (on each device).
        weight_pass: ``'train'``: weights come from the scores for which the losses are computed. ``'eval'``: from a second pass
            without dropout, as in the released code.
        reduction: See :func:`weighted_mean`; it has no effect on ``'listwise'``.
        unweighted_steps: Number of steps of the optimiser at the start of training in which all weights are 1.
        loss: ``'pairs'`` or ``'listwise'``, see :meth:`loss_of`.

    Raises:
        InputError: For an option that is unknown or out of range.
    """

    tau: float = 1.0
    weighting: str = "paper"
    max_weight: float | None = 1.0
    normalise_weights: str | None = None
    weight_pass: str = "train"
    reduction: str = "pairs"
    unweighted_steps: int = 0
    loss: str = "pairs"

    def __post_init__(self) -> None:
        """Raise an error for invalid options."""
        for name, known in (
            ("weighting", WEIGHTINGS),
            ("normalise_weights", NORMALISATIONS),
            ("weight_pass", ("train", "eval")),
            ("reduction", REDUCTIONS),
            ("loss", LOSSES),
        ):
            check_choice("CETReranker", name, getattr(self, name), known)
        _check_weighting("CETReranker", tau=self.tau, weighting=self.weighting, max_weight=self.max_weight)
        if self.weighting == "released" and self.max_weight is not None and self.max_weight <= 1:
            raise InputError(
                f"CETReranker: weighting='released' gives no weight below 1, so max_weight={self.max_weight!r} makes all weights "
                f"equal, which is plain training; use max_weight=None"
            )
        check_number("CETReranker", "unweighted_steps", self.unweighted_steps, least=0, whole=True)

    def record(self) -> dict[str, Any]:
        """The options as JSON-compatible values."""
        return asdict(self)

    def weights(self, positive: torch.Tensor, negative: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
        """Compute weights with these options, see :func:`pair_weights`."""
        return pair_weights(
            positive,
            negative,
            tau=self.tau,
            weighting=self.weighting,
            max_weight=self.max_weight,
            normalise=self.normalise_weights,
            valid=valid,
        )

    def loss_of(
        self, scores: torch.Tensor, weights: torch.Tensor, valid: torch.Tensor, known: torch.Tensor | None = None
    ) -> torch.Tensor:
        r"""Compute the loss of one of the two models.

        ``'pairs'`` is the paper's. ``'listwise'``, which the paper leaves to future work, is ours: the mean over examples of
        :math:`-\log \frac{e^{s_i}}{e^{s_i} + \sum_j w_j e^{s_j}}`; with one negative of weight 1 both are the same.

        Args:
            scores: The model's scores, shape [B, n], positive first.
            weights: The weight of each pair, shape [B, n-1].
            valid: Which positions have a pair, shape [B, n-1].
            known: Further weights that were given: shape [B] for whole examples, or [B, n], where the positive's weight applies
                to the whole listwise term.

        Returns:
            A scalar.
        """
        import torch

        known = torch.ones_like(_exact(scores[:, 0])) if known is None else known
        whole, each = (known[:, None], 1.0) if known.ndim == 1 else (known[:, :1], known[:, 1:])
        if self.loss == "pairs":
            each = whole if known.ndim == 1 else each
            return weighted_mean(pair_losses(scores), weights * each, valid, self.reduction)
        mask = torch.cat([valid.any(dim=1, keepdim=True), valid], dim=1)
        return info_nce(scores, mask=mask, weights=torch.cat([whole.to(weights.dtype), weights * each], dim=1))


def _exact(values: torch.Tensor) -> torch.Tensor:
    """The values in float32 or better."""
    import torch

    return values if values.dtype == torch.float64 else values.float()


def _ranks(values: torch.Tensor) -> torch.Tensor:
    import torch

    # Ranks are found by searching: counting distinct values would have to wait for the device.
    ordered = values.sort().values.contiguous()
    below, not_above = (torch.searchsorted(ordered, values.contiguous(), right=right) for right in (False, True))
    return ((below + not_above + 1) / 2).to(values.dtype)
