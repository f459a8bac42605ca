"""The scorer protocol: what the trainer requires of any ranker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@runtime_checkable
class Scorer(Protocol):
    """A differentiable way from texts to scores.

    ``tokenise`` runs in data-loading workers, ``forward`` on the device, under autograd where the caller asks for it. Scores
    of a pair must not depend on the other pairs of the call.
    """

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Turn n pairs into tensors whose first dimension is n.

        Args:
            queries: n queries.
            docs: n documents.

        Returns:
            Tensors by name, on the CPU.
        """

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Score n pairs.

        Args:
            tensors: What :meth:`tokenise` returned, on the model's device.

        Returns:
            float scores, shape [n], higher is more relevant.
        """
