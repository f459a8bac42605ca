r"""Product of experts: losses with which a robust model need not learn what a biased one has learned.

Pure functions on scores; torch is imported inside. Symbols of Cheng and Amiri 2025: :math:`s_R` and :math:`s_B` are the scores
that the robust and the biased learner give a query's candidates, :math:`z_R` and :math:`z_B` their softmax over the candidates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.training.losses import info_nce

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.losses import Loss


def joint_scores(
    scores: torch.Tensor,
    biased: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    alpha: float = 0.1,
    biased_temperature: float = 1.0,
) -> torch.Tensor:
    r"""Compute the scores of the product of both experts, :math:`s_R + \alpha s_B / T`.

    The paper prints :math:`\log z_D = \sigma(\alpha \log z_B + \log z_R)`, which equates a logarithm with a softmax. The sensible
    reading is :math:`z_D \propto z_R z_B^\alpha` over the candidates of a query; the normalisers of :math:`z_R` and :math:`z_B`
    are constant in a row and cancel, so that :math:`\log z_D` is the log-softmax of these sums.

    Source: Cheng and Amiri, "EqualizeIR", NAACL 2025, Equation 3.

    Args:
        scores: :math:`s_R`, shape [B, n].
        biased: :math:`s_B`, the same shape; no gradient passes through it.
        mask: Shape [B, n], False where there is no document: such scores are not changed; None means documents everywhere.
        alpha: Weight of the biased scores; with 0, the result is :math:`s_R`.
        biased_temperature: T, the divisor of biased scores that are on another scale.

    Returns:
        Shape [B, n], float32 or better, with the gradient of ``scores``.

    Raises:
        InputError: For different shapes, a negative alpha or a temperature that is not above 0.

    Example:
        >>> import torch
        >>> joint_scores(torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, -5.0]]), alpha=0.1).tolist()
        [[1.5, -0.5]]
    """
    import torch

    check_number("joint_scores", "alpha", alpha, least=0)
    check_number("joint_scores", "biased_temperature", biased_temperature, above=0)
    if scores.shape != biased.shape:
        raise InputError(
            f"product of experts: robust and biased scores have shapes {tuple(scores.shape)} and {tuple(biased.shape)}; both "
            f"must score the same candidates"
        )
    scores = scores if scores.dtype == torch.float64 else scores.float()
    biased = biased.detach().to(scores.dtype)
    if mask is not None:
        biased = biased.masked_fill(~mask.bool(), 0)
    return scores + alpha / biased_temperature * biased


def product_of_experts(
    scores: torch.Tensor,
    biased: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    alpha: float = 0.1,
    biased_temperature: float = 1.0,
    loss: Loss = info_nce,
) -> torch.Tensor:
    r"""Compute the loss of the product of a robust and a frozen biased learner: the mean of :math:`-\log z_D(d^+)` over queries.

    The gradient with respect to :math:`s_R` is :math:`z_D` minus 1 at the positive. Where the biased learner is confident and
    right, loss and gradient are smaller than the plain ones: the robust model need not learn what needs no understanding. Where
    it is confident and wrong, they are larger. At ``alpha=0`` this is the plain loss.

    Source: Cheng and Amiri, "EqualizeIR", NAACL 2025, Equations 3 and 4; after Clark, Yatskar and Zettlemoyer, "Don't Take the
    Easy Way Out", EMNLP 2019 (there with an alpha of 1).

    Args:
        scores: :math:`s_R`, shape [B, n], positive first.
        biased: :math:`s_B`, the same shape and candidates.
        labels: Labels, for a ``loss`` that uses them.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; see :func:`~pyterrier_debias.training.losses.info_nce`.
        alpha: See :func:`joint_scores`.
        biased_temperature: See :func:`joint_scores`.
        loss: The loss that is computed on the joint scores: ``info_nce``, the softmax over candidates, is the paper's;
            ``pointwise_bce`` is the same product over two classes, relevant and not.

    Returns:
        A scalar.

    Raises:
        InputError: As in :func:`joint_scores`.

    When not to use it: with biased scores on a much larger scale (dot products in the hundreds), which leave nothing to learn at
    any alpha; set ``biased_temperature`` to their spread.

    Example:
        >>> import torch
        >>> robust = torch.zeros(1, 2)
        >>> [round(float(product_of_experts(robust, torch.tensor([[s, -s]]), alpha=1.0)), 3) for s in (0.0, 1.0, -1.0)]
        [0.693, 0.127, 2.127]
    """
    joint = joint_scores(scores, biased, mask=mask, alpha=alpha, biased_temperature=biased_temperature)
    return loss(joint, labels=labels, mask=mask, weights=weights)


def focal_by_confidence(
    scores: torch.Tensor,
    biased: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    gamma: float = 2.0,
    biased_temperature: float = 1.0,
    loss: Loss = info_nce,
) -> torch.Tensor:
    r"""Compute the plain loss with weight :math:`(1 - z_B(d^+))^\gamma` for each query: low if the biased learner is right.

    Unlike the product of experts, it depends only on the biased learner's probability of the positive, not on which candidate
    that learner prefers, and moves no gradient from one candidate to another.

    Source: Mahabadi, Belinkov and Henderson, "End-to-End Bias Mitigation by Modelling Biases in Corpora", ACL 2020 (debiased
    focal loss), there over classes.

    Args:
        scores: :math:`s_R`, shape [B, n], positive first.
        biased: :math:`s_B`, the same shape and candidates; no gradient passes through it.
        labels: Labels, for a ``loss`` that uses them.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; multiplied with the focal weights.
        gamma: How steeply weights fall with the biased learner's confidence; 0 is the plain loss.
        biased_temperature: T, the divisor of biased scores.
        loss: The loss that is weighted, with one term per query.

    Returns:
        A scalar, the mean over queries. A large gamma makes it small, and so the steps, unless ``loss`` divides by the sum of
        the weights (``partial(info_nce, reduction='weights')``).

    Raises:
        InputError: For a gamma below 0, and as in :func:`joint_scores`.

    Example:
        >>> import torch
        >>> sure = torch.tensor([[4.0, -4.0]])
        >>> [round(float(focal_by_confidence(torch.zeros(1, 2), s)), 4) for s in (sure, -sure)]
        [0.0, 0.6927]
    """
    import torch

    check_number("focal_by_confidence", "gamma", gamma, least=0)
    log_z = joint_scores(torch.zeros_like(scores), biased, alpha=1.0, biased_temperature=biased_temperature, mask=mask)
    if mask is not None:
        log_z = log_z.masked_fill(~mask.bool(), torch.finfo(log_z.dtype).min)
    factor = (1 - log_z.softmax(dim=1)[:, 0]).clamp(min=0) ** gamma
    if weights is None or weights.ndim == 1:
        weights = factor if weights is None else weights * factor
    else:
        weights = torch.cat([weights[:, :1] * factor[:, None], weights[:, 1:]], dim=1)
    return loss(scores, labels=labels, mask=mask, weights=weights)
