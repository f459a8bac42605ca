"""The scorer protocol: what the trainer requires of any ranker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import torch


@runtime_checkable
class Scorer(Protocol):
    """Protocol of rankers whose scores of texts are differentiable, so that they can be trained.

    ``tokenise`` runs in data-loading workers, ``forward`` on the device, with gradients if the caller enables them. The score
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
            tensors: Output of :meth:`tokenise`, on the model's device.

        Returns:
            float scores, shape [n]; higher means more relevant.
        """
