r"""Product of experts: the robust model need not learn what the biased one has learned.

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
    r"""The scores of the product of both experts, :math:`s_R + \alpha s_B / T`.

    Printed is :math:`\log z_D = \sigma(\alpha \log z_B + \log z_R)`, a logarithm that equals a softmax. The reading that makes
    sense is :math:`z_D \propto z_R z_B^\alpha` over the candidates of a query; the normalisers of :math:`z_R` and :math:`z_B` are
    constant in a row and cancel, so that :math:`\log z_D` is the log-softmax of these sums.

    Source: Cheng and Amiri, "EqualizeIR", NAACL 2025, Equation 3.

    Args:
        scores: :math:`s_R`, shape [B, n].
        biased: :math:`s_B`, the same shape; no gradient passes through.
        mask: Shape [B, n], False where there is no document, whose scores are not changed; None for all.
        alpha: How much the biased learner counts; 0 leaves :math:`s_R`.
        biased_temperature: T, for biased scores on another scale.

    Returns:
        Shape [B, n], float32 or better, with the gradient of ``scores``.

    Raises:
        InputError: For two shapes, a negative alpha or a temperature that is not above 0.

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
    r"""The loss of the product of a robust and a frozen biased learner: :math:`-\log z_D(d^+)`, a mean over queries.

    The gradient with respect to :math:`s_R` is :math:`z_D` minus 1 at the positive. Where the biased learner is sure and right,
    loss and gradient are below the plain ones: the robust model need not learn what needs no understanding. Where it is sure and
    wrong, they are above. At ``alpha=0`` this is the plain loss.

    Source: Cheng and Amiri, "EqualizeIR", NAACL 2025, Equations 3 and 4; after Clark, Yatskar and Zettlemoyer, "Don't Take the
    Easy Way Out", EMNLP 2019 (there with an alpha of 1).

    Args:
        scores: :math:`s_R`, shape [B, n], positive first.
        biased: :math:`s_B`, the same shape and candidates.
        labels: See ``loss``.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; see :func:`~pyterrier_debias.training.losses.info_nce`.
        alpha: See :func:`joint_scores`.
        biased_temperature: See :func:`joint_scores`.
        loss: What is computed on the joint scores: ``info_nce``, the softmax over candidates, is the paper's.
            ``pointwise_bce`` is the same product over two classes, relevant and not.

    Returns:
        A scalar.

    Raises:
        InputError: As :func:`joint_scores`.

    When not to use it: with scores of the biased learner on a scale of their own (dot products in the hundreds), which at any
    alpha leave nothing to learn; set ``biased_temperature`` to their spread.

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
    r"""Plain loss, in which a query counts :math:`(1 - z_B(d^+))^\gamma`: little where the biased learner is right already.

    Unlike the product it looks at the biased learner's answer only, not at which candidate it prefers, and moves no gradient from
    one candidate to another.

    Source: Mahabadi, Belinkov and Henderson, "End-to-End Bias Mitigation by Modelling Biases in Corpora", ACL 2020 (debiased
    focal loss), there over classes.

    Args:
        scores: :math:`s_R`, shape [B, n], positive first.
        biased: :math:`s_B`, the same shape and candidates; no gradient passes through.
        labels: See ``loss``.
        mask: Shape [B, n], False where there is no document.
        weights: Shape [B] or [B, n]; multiplied.
        gamma: Steepness; 0 is the plain loss.
        biased_temperature: T.
        loss: What is weighed, one term a query.

    Returns:
        A scalar, the mean over queries. A large gamma makes it small, and steps with it, unless ``loss`` divides by the sum of
        the weights (``partial(info_nce, reduction='weights')``).

    Raises:
        InputError: For a gamma below 0, and as :func:`joint_scores`.

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
