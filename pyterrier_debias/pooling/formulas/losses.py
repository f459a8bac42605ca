r"""Losses that allow for false negatives, as pure functions on scores.

Use them as in ``Training(loss=debiased_contrastive, loss_options={'tau_plus': 0.05})``. They share the keywords of
:mod:`pyterrier_debias.training.losses`: ``scores`` of shape [B, n] with the positive first, ``labels`` (not used), ``mask`` and
``weights``. s+ is the positive's score and s- a negative's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.training.losses import differences_of, mean_over, prepared

if TYPE_CHECKING:
    import torch


def debiased_contrastive(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    tau_plus: float = 0.1,
    temperature: float = 1.0,
    min_score: float | None = None,
    reduction: str = "count",
) -> torch.Tensor:
    r"""InfoNCE, corrected for the expected share of false negatives among the negatives.

    The mean over queries of :math:`-\log \frac{e^{s^+/t}}{e^{s^+/t} + N g}` with N negatives and
    :math:`g = \max\left\{\frac{1}{1 - \tau^+} \left(\frac{1}{N} \sum e^{s^-/t} - \tau^+ e^{s^+/t}\right),\; e^{m/t}\right\}`,
    where m is the lowest possible score (``min_score``; with None there is none, and the bound is 0). With :math:`\tau^+ = 0` it
    is :func:`~pyterrier_debias.training.losses.info_nce`. Weights have the same meaning there: those of negatives are
    multiplicities, which also count for N.

    Source: Chuang, Robinson, Lin, Torralba and Jegelka, "Debiased Contrastive Learning", NeurIPS 2020, Equations 7 and 8 with one
    positive (M = 1); sentence-transformers' proposed loss (pull request 3148) is the same with t = 1 / scale.

    It assumes that negatives are a random draw, of which a share tau+ is relevant and looks like the positive. Without a bound on
    scores, a query has no loss and no gradient as soon as its negatives' mean of :math:`e^{(s^- - s^+)/t}` is at most
    tau+ (with one negative: as soon as it is :math:`-t \ln \tau^+` below the positive).

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; not negative.
        tau_plus: The share of false negatives among the negatives, at least 0 and below 1.
        temperature: t, above 0.
        min_score: The lowest possible score of the ranker, e.g. -1 for cosines, as in the paper.
        reduction: ``'count'`` or ``'weights'``, see :mod:`pyterrier_debias.training.losses`.

    Returns:
        A scalar.

    Raises:
        InputError: For an option out of range.

    When not to use it: for hard negatives with a ``tau_plus`` that was estimated for the whole collection, since false negatives
    are far more frequent among hard negatives than in a random draw.

    Example:
        >>> import torch
        >>> round(float(debiased_contrastive(torch.tensor([[1.0, 0.0, 0.0]]), tau_plus=0.1)), 4)
        0.4671
        >>> float(debiased_contrastive(torch.tensor([[9.0, 0.0, 0.0]]), tau_plus=0.1))
        0.0
    """
    import torch
    from torch.nn.functional import softplus

    check_number("debiased_contrastive", "tau_plus", tau_plus, least=0, most=1)
    if tau_plus == 1:
        raise InputError("debiased_contrastive: tau_plus=1 must be below 1; negatives that are all relevant teach nothing")
    check_number("debiased_contrastive", "temperature", temperature, above=0)
    scores, mask, weights = prepared(scores, mask, weights)
    there = mask[:, 1:]
    counts = weights[:, 1:].where(there, 0) if weights.shape[1] > 1 else there.to(scores.dtype)
    there = counts > 0
    # All values are relative to the positive and in logs: L = log of the negatives' mass, B = log of the subtracted share.
    least = torch.finfo(scores.dtype).min
    relative = (scores[:, 1:] - scores[:, :1]) / temperature + counts.where(there, 1.0).log()
    mass = relative.masked_fill(~there, least / 2).logsumexp(dim=1, keepdim=True)
    number = counts.sum(dim=1, keepdim=True)
    some = there.any(dim=1, keepdim=True)
    if tau_plus == 0:
        left, remains = mass, some
    else:
        excess = mass - (number.where(some, 1.0) * tau_plus).log()
        remains = some & (excess > 0)
        excess = excess.where(remains, 1.0).clamp(min=torch.finfo(scores.dtype).tiny)
        # log(e^L - e^B) - log(1 - tau+), with L - B = excess.
        left = (number.where(some, 1.0) * tau_plus).log() + excess + (-torch.expm1(-excess)).log() - math.log1p(-tau_plus)
    losses = softplus(left).where(remains, 0.0)
    if min_score is not None:
        bound = softplus((min_score - scores[:, :1]) / temperature + number.where(some, 1.0).log())
        losses = torch.maximum(losses, bound).where(some, 0.0)
    return mean_over(losses, mask[:, :1], weights[:, :1], reduction)


def dynamic_pairwise(
    scores: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    centre: float = 0.5,
    width: float = 0.25,
    reduction: str = "count",
) -> torch.Tensor:
    r"""Pairwise cross-entropy, with each pair weighted by a Gaussian of its currently predicted probability.

    The mean over pairs of :math:`-w \log \mathrm{sigmoid}(s^+ - s^-)` with :math:`w = e^{-(p - c)^2 / 2 b^2}`, where p =
    sigmoid(s- - s+) is the predicted probability that the negative is the better document. w has no gradient. With c = .5,
    undecided pairs count most. A negative that looks much better than the positive, and so may be a relevant document without a
    label, counts little; so does one that is clearly worse.

    Idea: Zhang and Yang, "DML: Dynamic Multi-Granularity Learning for BERT-Based Document Reranking", CIKM 2021, whose abstract
    mentions Gaussian weights that follow the predicted probability. We did not have its text, so its formulas could not be
    verified: this is not DML, DML's published figures do not apply to it, and ``centre`` and ``width`` are not DML's values.

    It assumes that false negatives differ from hard negatives in how much they surprise the ranker, which is not the case before
    the ranker has learned something.

    Args:
        scores: Shape [B, n], positive first.
        labels: Not used.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; multiplied with the Gaussian ones.
        centre: c, the probability with the largest weight.
        width: b, above 0; a very large one gives plain pairwise cross-entropy.
        reduction: ``'count'`` or ``'weights'``, see :mod:`pyterrier_debias.training.losses`.

    Returns:
        A scalar.

    Raises:
        InputError: For a width that is not above 0.

    When not to use it: when training from random weights, since a positive that starts far below its negatives would stay there.

    Example:
        >>> import torch
        >>> round(float(dynamic_pairwise(torch.tensor([[0.0, 0.0]]))), 4)  # p is at the centre: ln 2
        0.6931
    """
    import torch
    from torch.nn.functional import softplus

    check_number("dynamic_pairwise", "width", width, above=0)
    differences, valid, weights = differences_of(scores, mask, weights)
    predicted = torch.sigmoid(-differences.detach())
    gaussian = torch.exp(-((predicted - centre) ** 2) / (2 * width**2))
    return mean_over(softplus(-differences), valid, weights * gaussian, reduction)
