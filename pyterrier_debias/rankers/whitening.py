"""Layers that map vectors to white features of a kernel, of which the weights are computed and not learned.

Imported only when a model is loaded: it needs torch. The formulas are in
:mod:`pyterrier_debias.linguistic.formulas.kernel_whitening`.
"""

from __future__ import annotations

from typing import Any

import torch


class UnitLength(torch.nn.Module):
    """Divides vectors by their lengths."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Shape [..., d] in and out; a vector of zeros stays."""
        return torch.nn.functional.normalize(vectors, dim=-1)


def activation(kernel: str) -> torch.nn.Module:
    """What stands behind the first layer: for ``'rbf'`` an ELU, which is exp(x) - 1 for x <= 0; nothing for ``'cosine'``."""
    return torch.nn.ELU() if kernel == "rbf" else torch.nn.Identity()


def freeze(linear: torch.nn.Linear) -> None:
    """Hold the weights of a linear layer as buffers: without a gradient, yet part of the state that is kept and compared."""
    for name in ("weight", "bias"):
        value = getattr(linear, name).detach()
        if name in linear._parameters:
            del linear._parameters[name]
            linear.register_buffer(name, value)


def head(size: int, landmarks: int, kernel: str, dtype: torch.dtype) -> torch.nn.Sequential:
    """A head that reads white features: unit length, kernel, whitening, and one linear output.

    Args:
        size: Dimensions of the vectors.
        landmarks: Of the kernel.
        kernel: See :func:`activation`.
        dtype: Number format of the weights.

    Returns:
        Five modules, shape [n, size] to [n, 1].
    """
    first, second = torch.nn.Linear(size, landmarks, dtype=dtype), torch.nn.Linear(landmarks, landmarks, dtype=dtype)
    freeze(first)
    freeze(second)
    score = torch.nn.Linear(landmarks, 1, dtype=dtype)
    return torch.nn.Sequential(UnitLength(), first, activation(kernel), second, score)


def modules(size: int, landmarks: int, kernel: str, outputs: int) -> list[Any]:
    """The same as modules of sentence-transformers, which opens them without code of ours.

    Args:
        size: Dimensions of the vectors.
        landmarks: Of the kernel.
        kernel: See :func:`activation`.
        outputs: Of the linear layer at the end.

    Returns:
        Four modules.
    """
    from sentence_transformers.base.modules import Dense, Normalize

    identity = torch.nn.Identity()
    inner = Dense(size, landmarks, activation_function=activation(kernel))
    outer = Dense(landmarks, landmarks, activation_function=identity)
    return [Normalize(), inner, outer, Dense(landmarks, outputs, activation_function=identity)]
