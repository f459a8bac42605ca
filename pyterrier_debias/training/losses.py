r"""Ranking losses, as pure functions on scores.

All losses take ``scores`` of shape [B, n], one row per query with its positive document first, and return one number to minimise.
They share these keywords:

- ``labels``: grades of the same shape; used by losses with graded labels (``ranknet``, ``softmax``, ``bce``, ``lambda``), for
  which None means "the first document is relevant, the others are not";
- ``mask``: booleans of the same shape, False where a row has no document (rows may differ in length);
- ``weights``: how much an example counts; no gradient flows through them. Shape [B] for whole queries, or [B, n] for documents:
  a pair has the weight of its less relevant document, InfoNCE uses the weights of negatives as multiplicities, and a softmax over
  a list uses the weights of its relevant documents.

The result is a mean over the loss's units (pairs, queries or documents). ``reduction`` sets the divisor of the sum of weighted
losses: ``'count'``, the default, divides by the number of units, so that small weights make small steps; ``'weights'`` divides by
the sum of their weights, so that only the ratios of weights matter; the result is 0 if that sum is 0. Sums are over a batch, on
each device. s+ is the positive's score and s- a negative's.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyterrier_debias.core.errors import InputError, check_choice

if TYPE_CHECKING:
    import torch

    #: ``loss(scores, labels=..., mask=..., weights=...)`` returns a scalar.
    Loss = Callable[..., torch.Tensor]

#: Keywords that training gives a loss in addition to the scores.
_GIVEN = ("labels", "mask", "weights")
#: The possible divisors of a sum of weighted losses.
REDUCTIONS = ("count", "weights")
#: How :func:`lambda_loss` weights pairs.
LAMBDA_SCHEMES = ("lambdarank", "ndcg2", "ndcg2++")


def pairwise_hinge(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    margin: float = 1.0,
    reduction: str = "count",
) -> torch.Tensor:
    r"""The pairwise hinge loss: the mean over pairs of :math:`\max(0, m - s^+ + s^-)`.

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n].
        margin: The margin m.
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar.

    When not to use it: with the default margin, if scores are bounded (cosine).

    Example:
        >>> import torch
        >>> float(pairwise_hinge(torch.tensor([[2.0, 1.5, -3.0]])))
        0.25
    """
    differences, valid, weights = differences_of(scores, mask, weights)
    return mean_over((margin - differences).clamp(min=0), valid, weights, reduction)


def ranknet(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    sigma: float = 1.0,
    reduction: str = "count",
) -> torch.Tensor:
    r"""RankNet: the mean over pairs of :math:`-\log \mathrm{sigmoid}(\sigma (s_i - s_j))` where document i has the higher grade.

    It is RankT5's pairwise logistic loss, except that it is the mean over pairs, not the sum.

    Sources: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005, Equation 3 with a target probability of 1;
    Zhuang et al., "RankT5", SIGIR 2023, Section 4.3.

    Args:
        scores: Shape [B, n], positive first.
        labels: Grades, shape [B, n]; grades below 0 count as 0. If None, or if no grade but the first is above 0, the first
            document is the relevant one.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n].
        sigma: Steepness.
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar.
    """
    from torch.nn.functional import softplus

    # With one relevant document a row has n - 1 pairs, not n squared places for them.
    if labels is None or not bool((labels[:, 1:] > 0).any()):
        differences, valid, weights = differences_of(scores, mask, weights)
    else:
        scores, mask, weights = prepared(scores, mask, weights)
        grades = _grades(scores, labels).clamp(min=0)
        differences, weights = scores[:, :, None] - scores[:, None, :], weights[:, None, :]
        valid = (grades[:, :, None] > grades[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    return mean_over(softplus(-sigma * differences), valid, weights, reduction)


def pairwise_cross_entropy(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    reduction: str = "count",
) -> torch.Tensor:
    """Softmax cross-entropy within each pair; it equals :func:`ranknet` with steepness 1.

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n].
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar.
    """
    return ranknet(scores, mask=mask, weights=weights, reduction=reduction)


def info_nce(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    temperature: float = 1.0,
    reduction: str = "count",
) -> torch.Tensor:
    r"""InfoNCE: the mean over queries of :math:`-\log \frac{e^{s^+/\tau}}{e^{s^+/\tau} + \sum e^{s^-/\tau}}`.

    The negatives are those of the row; with in-batch negatives, the trainer puts other queries' documents into the row. With one
    negative it equals :func:`pairwise_cross_entropy`. In weights of shape [B, n], the first column weights the query's term, and
    the others multiply the negatives' terms in the denominator.

    Source: van den Oord, Li and Vinyals, "Representation Learning with Contrastive Predictive Coding", 2018, Equation 4.

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; not negative.
        temperature: The temperature tau.
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar.
    """
    import torch

    scores, mask, weights = prepared(scores, mask, weights)
    logits = scores / temperature
    multiplicity = torch.cat([torch.ones_like(weights[:, :1]), weights[:, 1:]], dim=1) if weights.shape[1] > 1 else None
    if multiplicity is not None:
        mask = mask & (multiplicity > 0)
        logits = logits + multiplicity.where(mask, 1.0).log()
    # Not -inf: a row without documents would be NaN, and so would its gradient.
    logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return mean_over(-logits.log_softmax(dim=1)[:, :1], mask[:, :1], weights[:, :1], reduction)


def listwise_softmax(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    reduction: str = "count",
) -> torch.Tensor:
    r"""Softmax cross-entropy over a list: the mean over queries of :math:`-\sum_j y_j \log \frac{e^{s_j}}{\sum_k e^{s_k}}`.

    y are the grades. With one relevant document of grade 1, it equals :func:`info_nce` at temperature 1.

    Source: Zhuang et al., "RankT5: Fine-Tuning T5 for Text Ranking with Ranking Losses", SIGIR 2023, Section 4.3.

    Args:
        scores: Shape [B, n].
        labels: Grades, shape [B, n]; grades below 0 count as 0. None: the first document is relevant.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; the term of a relevant document has that document's weight.
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar; lists without a relevant document are ignored.

    Example:
        >>> import torch
        >>> round(float(listwise_softmax(torch.zeros(1, 4), labels=torch.tensor([[1, 1, 0, 0]]))), 4)      # 2 log 4
        2.7726
    """
    import torch

    scores, mask, weights = prepared(scores, mask, weights)
    grades = _grades(scores, labels).clamp(min=0).masked_fill(~mask, 0)
    total = grades.sum(dim=1, keepdim=True)
    weight = (weights * grades).sum(dim=1, keepdim=True) / total.where(total > 0, 1.0)
    logits = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    terms = (-logits.log_softmax(dim=1) * grades).masked_fill(grades == 0, 0)
    losses = (terms * weights).sum(dim=1, keepdim=True) / weight.where(weight > 0, 1.0)
    return mean_over(losses, total > 0, weight, reduction)


def pointwise_bce(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    reduction: str = "count",
) -> torch.Tensor:
    """Binary cross-entropy of each document, with its score as the logit; a grade above 0 means relevant.

    Args:
        scores: Shape [B, n].
        labels: Grades, shape [B, n]; None: the first document is relevant.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n].
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar, the mean over documents.

    When not to use it: for scores that are not logits (cosine; log-probabilities, which are never positive).
    """
    from torch.nn.functional import binary_cross_entropy_with_logits

    scores, mask, weights = prepared(scores, mask, weights)
    target = (_grades(scores, labels) > 0).to(scores.dtype)
    return mean_over(binary_cross_entropy_with_logits(scores, target, reduction="none"), mask, weights, reduction)


def lambda_loss(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    scheme: str = "ndcg2++",
    sigma: float = 1.0,
    mu: float = 10.0,
    reduction: str = "count",
) -> torch.Tensor:
    r"""LambdaLoss: log-losses of pairs, weighted by how much swapping the pair changes nDCG.

    The mean over pairs with grade i > grade j of :math:`-\delta_{ij} \log_2 \mathrm{sigmoid}(\sigma (s_i - s_j))`. With gains
    :math:`G = (2^l - 1) / \mathrm{maxDCG}` and discounts :math:`D = \log_2(1 + \mathrm{rank})` by present scores,
    :math:`\delta_{ij} = |G_i - G_j|` times :math:`|1/D_i - 1/D_j|` (``'lambdarank'``), or times the same difference between the
    discounts at the pair's distance and one further (``'ndcg2'``), or times the first plus mu times the second
    (``'ndcg2++'``).

    Source: Wang, Li, Golbandi, Bendersky and Najork, "The LambdaLoss Framework for Ranking Metric Optimization", CIKM 2018,
    Equations 12, 16 and 17.

    Args:
        scores: Shape [B, n].
        labels: Grades, shape [B, n]; None: the first document is relevant.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n].
        scheme: ``'lambdarank'``, ``'ndcg2'`` or ``'ndcg2++'``.
        sigma: Steepness.
        mu: Weight of the second term of ``'ndcg2++'``.
        reduction: ``'count'`` or ``'weights'``, see the module.

    Returns:
        A scalar.
    """
    import torch
    from torch.nn.functional import logsigmoid

    check_choice("lambda_loss", "scheme", scheme, LAMBDA_SCHEMES)
    scores, mask, weights = prepared(scores, mask, weights)
    grades = _grades(scores, labels).clamp(min=0).masked_fill(~mask, 0)
    positions = torch.arange(scores.shape[1], device=scores.device)
    # Ranks and gains are constants; gradients flow through the differences of scores alone.
    order = scores.detach().masked_fill(~mask, -math.inf).argsort(dim=1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(1, order, positions.expand_as(order))
    discount = torch.log2(positions.to(scores.dtype) + 2)
    ideal = ((2**grades - 1).sort(dim=1, descending=True).values / discount).sum(dim=1, keepdim=True)
    gain = (2**grades - 1) / ideal.clamp(min=1e-10)
    gap = (gain[:, :, None] - gain[:, None, :]).abs()
    inverse = 1 / discount
    lambdas = (inverse[rank][:, :, None] - inverse[rank][:, None, :]).abs()
    if scheme != "lambdarank":
        distance = (rank[:, :, None] - rank[:, None, :]).abs()
        steps = torch.cat([inverse.new_zeros(1), (inverse[:-1] - inverse[1:]).abs()])[distance]
        lambdas = steps if scheme == "ndcg2" else mu * steps + lambdas
    losses = -gap * lambdas * logsigmoid(sigma * (scores[:, :, None] - scores[:, None, :])) / math.log(2)
    valid = (grades[:, :, None] > grades[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    return mean_over(losses, valid, weights[:, None, :], reduction)


LOSSES: dict[str, Loss] = {
    "hinge": pairwise_hinge,
    "ranknet": ranknet,
    "pairwise": pairwise_cross_entropy,
    "infonce": info_nce,
    "softmax": listwise_softmax,
    "bce": pointwise_bce,
    "lambda": lambda_loss,
}

#: Losses that use grades, and so accept several relevant documents at once.
GRADED = ("ranknet", "softmax", "bce", "lambda")


def get_loss(loss: str | Loss, options: dict[str, Any] | None = None) -> Loss:
    """Look up a loss by name; a callable is used as it is.

    Args:
        loss: A name of ``LOSSES``, or a function ``loss(scores, labels=..., mask=..., weights=...)``.
        options: Further keywords of the loss, e.g. ``{'margin': 0.5}``.

    Returns:
        The function with its options.

    Raises:
        InputError: For an unknown name, an option that the loss does not have, or a function without one of the keywords.

    Example:
        >>> get_loss("hinge", {"margin": 2.0}).keywords
        {'margin': 2.0}
    """
    name = loss if isinstance(loss, str) else getattr(loss, "__name__", type(loss).__name__)
    if not callable(loss):
        check_choice("training", "loss", loss, LOSSES, "a function")
        loss = LOSSES[loss]
    missing = next((keyword for keyword in _GIVEN if not _takes(loss, keyword)), None)
    if missing is not None:
        raise InputError(
            f"training: loss {name!r} does not take the keyword {missing!r}; define it as a function (scores, labels=None, "
            f"mask=None, weights=None)"
        )
    known = _options_of(loss)
    unknown = next((option for option in options or () if known is not None and option not in known), None)
    if unknown is not None:
        there = ", ".join(known or ()) or "none"
        raise InputError(f"training: loss {name!r} has no option {unknown!r}; it has {there}: correct loss_options")
    return partial(loss, **options) if options else loss


def _takes(loss: Loss, keyword: str) -> bool:
    """Whether a loss accepts a keyword, as far as its signature shows."""
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):  # some that are written in C
        return True
    try:
        signature.bind_partial(**{keyword: None})
    except TypeError:
        return False
    return True


def _options_of(loss: Loss) -> list[str] | None:
    """The keywords of a loss except those that training gives it; None if it accepts any, or its signature is unknown."""
    try:
        _scores, *others = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # some that are written in C
        return None
    if any(one.kind is one.VAR_KEYWORD for one in others):
        return None
    return [one.name for one in others if one.name not in _GIVEN]


def prepared(
    scores: torch.Tensor, mask: torch.Tensor | None, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Prepare and check the input of a loss.

    Args:
        scores: Shape [B, n].
        mask: Shape [B, n], or None for all.
        weights: Shape [B], [B, n], or None for 1.

    Returns:
        Scores in at least float32 with zeros where there is no document, the mask, and weights of shape [B, 1] or [B, n] without
        a gradient.

    Raises:
        InputError: For shapes that do not match.
    """
    import torch

    if scores.ndim != 2:
        raise InputError(f"losses take scores of shape [queries, documents], not {tuple(scores.shape)}")
    scores = scores if scores.dtype == torch.float64 else scores.float()
    mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask.bool()
    weights = torch.ones_like(scores[:, 0]) if weights is None else weights.detach().to(scores.dtype)
    if weights.ndim == 1:
        weights = weights[:, None]
    if mask.shape != scores.shape or weights.shape not in (scores.shape, scores[:, :1].shape):
        raise InputError(
            f"losses: mask {tuple(mask.shape)} must have the shape of scores, {tuple(scores.shape)}, and weights "
            f"{tuple(weights.shape)} must have the same shape or only its first dimension"
        )
    return scores.masked_fill(~mask, 0), mask, weights


def differences_of(
    scores: torch.Tensor, mask: torch.Tensor | None, weights: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Compute the score differences of a loss over pairs.

    Args:
        scores: Shape [B, n], positive first.
        mask: See :func:`prepared`.
        weights: See :func:`prepared`.

    Returns:
        The positive's score minus each negative's, shape [B, n-1], a mask of the negatives that exist, and their weights.

    Raises:
        InputError: For shapes that do not match.
    """
    scores, mask, weights = prepared(scores, mask, weights)
    weights = weights if weights.shape[1] == 1 else weights[:, 1:]
    return scores[:, :1] - scores[:, 1:], mask[:, :1] & mask[:, 1:], weights


def _grades(scores: torch.Tensor, labels: torch.Tensor | None) -> torch.Tensor:
    if labels is not None:
        return labels.to(scores.dtype)
    first = scores.new_zeros(scores.shape)
    first[:, 0] = 1
    return first


def mean_over(losses: torch.Tensor, valid: torch.Tensor, weights: torch.Tensor, reduction: str = "count") -> torch.Tensor:
    """The mean of the weighted losses over the valid entries; if there are none, 0 that still depends on the scores.

    Args:
        losses: Any shape.
        valid: Which of them count; the same shape.
        weights: Factors, of a shape that broadcasts.
        reduction: ``'count'`` divides the sum by the number of valid entries, ``'weights'`` by the sum of their weights.

    Returns:
        A scalar.

    Raises:
        InputError: For an unknown reduction.

    Example:
        >>> import torch
        >>> losses, weights = torch.tensor([1.0, 4.0]), torch.tensor([0.5, 0.25])
        >>> [float(mean_over(losses, losses > 0, weights, reduction)) for reduction in REDUCTIONS]
        [0.75, 2.0]
    """
    check_choice("losses", "reduction", reduction, REDUCTIONS)
    total = (losses * weights).masked_fill(~valid, 0).sum()
    if reduction == "count":
        return total / valid.sum().clamp(min=1)
    weight = weights.expand_as(losses).masked_fill(~valid, 0).sum()
    # Where nothing has a weight the sum is 0, too.
    return total / weight.where(weight > 0, 1.0)
