"""Layers that map vectors to white features of a kernel; their weights are computed, not learned.

Imported only when a model is loaded: it needs torch. The formulas are in
:mod:`pyterrier_debias.linguistic.formulas.kernel_whitening`.
"""

from __future__ import annotations

from typing import Any

import torch

from pyterrier_debias.training.seeds import random_state_kept


class UnitLength(torch.nn.Module):
    """Divides vectors by their lengths."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Shape [..., d] in and out; a vector of zeros is unchanged."""
        return torch.nn.functional.normalize(vectors, dim=-1)


def activation(kernel: str) -> torch.nn.Module:
    """The activation after the first layer: for ``'rbf'`` an ELU, which is exp(x) - 1 for x <= 0; none for ``'cosine'``."""
    return torch.nn.ELU() if kernel == "rbf" else torch.nn.Identity()


def kernel_with(activation: torch.nn.Module) -> str:
    """The kernel to which an :func:`activation` belongs."""
    return "rbf" if isinstance(activation, torch.nn.ELU) else "cosine"


def freeze(linear: torch.nn.Linear) -> None:
    """Turn the weights of a linear layer into buffers: without a gradient, but part of the state that is saved and compared."""
    for name in ("weight", "bias"):
        value = getattr(linear, name).detach()
        if name in linear._parameters:
            del linear._parameters[name]
            linear.register_buffer(name, value)


def head(size: int, landmarks: int, kernel: str, dtype: torch.dtype) -> torch.nn.Sequential:
    """Make a head that reads white features: unit length, kernel, whitening, and one linear output.

    Args:
        size: Dimensions of the vectors.
        landmarks: Number of landmarks of the kernel.
        kernel: See :func:`activation`.
        dtype: Number format of the weights.

    Returns:
        Five modules, shape [n, size] to [n, 1].
    """
    with random_state_kept():
        first, second = torch.nn.Linear(size, landmarks, dtype=dtype), torch.nn.Linear(landmarks, landmarks, dtype=dtype)
        score = torch.nn.Linear(landmarks, 1, dtype=dtype)
    freeze(first)
    freeze(second)
    return torch.nn.Sequential(UnitLength(), first, activation(kernel), second, score)


def modules(size: int, landmarks: int, kernel: str, outputs: int) -> list[Any]:
    """Make the same layers as modules of sentence-transformers, which opens them without code of this library.

    Args:
        size: Dimensions of the vectors.
        landmarks: Number of landmarks of the kernel.
        kernel: See :func:`activation`.
        outputs: Number of outputs of the linear layer at the end.

    Returns:
        Four modules.
    """
    from sentence_transformers.base.modules import Dense, Normalize

    identity = torch.nn.Identity()
    with random_state_kept():
        inner = Dense(size, landmarks, activation_function=activation(kernel))
        outer = Dense(landmarks, landmarks, activation_function=identity)
        return [Normalize(), inner, outer, Dense(landmarks, outputs, activation_function=identity)]
