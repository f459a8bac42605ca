r"""Losses against bias, as pure functions on scores.

They share the keywords of :mod:`pyterrier_debias.training.losses`: ``scores`` of shape [B, n] with the positive first, ``mask``
and ``weights``. s+ is the positive's score and s- a negative's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyterrier_debias.training.losses import differences_of, mean_over

if TYPE_CHECKING:
    import torch


def bias_aware_hinge(
    scores: torch.Tensor,
    psi: torch.Tensor,
    *,
    labels: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    weights: torch.Tensor | None = None,
    margin: float = 1.0,
) -> torch.Tensor:
    r"""Hinge loss with a larger margin for biased negatives: the mean over pairs of :math:`\max(0,\; m - s^+ + s^- + \Psi(d^-))`.

    Source: Seyedsalehi, Bigdeli, Arabzadeh, Mitra, Zihayat and Bagheri, "Bias-aware Fair Neural Ranking for Addressing
    Stereotypical Gender Biases", EDBT 2022, in which psi is the Boolean bias of the negative.

    Args:
        scores: Shape [B, n], positive first.
        psi: The documents' biases, shape [B, n]; that of the positive is not used. A bias below 0 makes the margin smaller.
        labels: Not used.
        mask: Shape [B, n], False if there is no document.
        weights: Shape [B] or [B, n].
        margin: m.

    Returns:
        A scalar.

    Example:
        >>> import torch
        >>> scores, psi = torch.tensor([[2.0, 1.5, 0.0]]), torch.tensor([[1.0, 1.0, 1.0]])
        >>> float(bias_aware_hinge(scores, psi))  # (1 - 0.5 + 1) and (1 - 2 + 1), divided by 2
        0.75

    When not to use it: with the default margin if scores are bounded (cosine).
    """
    differences, valid, weights = differences_of(scores, mask, weights)
    return mean_over((margin - differences + psi[:, 1:].to(differences.dtype)).clamp(min=0), valid, weights)


def reversed_gradient(values: torch.Tensor, factor: float = 1.0) -> torch.Tensor:
    r"""Return the values unchanged, but multiply their gradient by :math:`-\lambda` in the backward pass.

    Source: Ganin and Lempitsky, "Unsupervised Domain Adaptation by Backpropagation", ICML 2015.

    Args:
        values: Any tensor.
        factor: lambda; 0 lets no gradient through.

    Returns:
        The same values.

    Example:
        >>> import torch
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> reversed_gradient(x, 0.5).sum().backward()
        >>> x.grad.tolist()
        [-0.5, -0.5]
    """
    turned = values * -factor
    # The difference is 0 in every number format: the sum of two multiples of the values would be rounded, in bfloat16 to 8 bits.
    return values.detach() + (turned - turned.detach())
