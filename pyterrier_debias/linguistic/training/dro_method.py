"""Group DRO as a method of training. Imported only when training begins: it needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.training.examples import Example
from pyterrier_debias.training.method import Around, Ranking, loss_inputs

#: Prefix of the keys in a batch for the positions of a group's examples.
_GROUP = "group "

#: Largest exponent by which a share grows in a step: exp(89) is infinite in float32.
_MOST_GROWN = 80.0


def places_of(groups: np.ndarray) -> dict[str, torch.Tensor]:
    """The positions of each group's examples in a batch, found before the batch is on a device, to avoid asking the device.

    Args:
        groups: The group of each example, shape [B].

    Returns:
        ``group 0`` and so on for the groups in the batch, in their order, with int64 positions.

    Example:
        >>> places_of(np.array([2, 0, 2]))
        {'group 0': tensor([1]), 'group 2': tensor([0, 2])}
    """
    return {f"{_GROUP}{code}": torch.from_numpy(np.flatnonzero(groups == code)) for code in np.unique(groups).tolist()}


class GroupDRO(Around):
    """Trains one ranker with a loss that is weighted by shares of groups, which grow where the loss is high.

    Args:
        ranking: The result of the ranker's own ``method``, with any loss.
        group_of: Group of each query, by qid, from 0.
        names: The groups' names.
        step: How fast shares grow, over all forward passes of a training step.
        passes: Forward passes of a training step.
    """

    shares: torch.Tensor

    def __init__(self, ranking: Ranking, group_of: Mapping[str, int], names: Sequence[str], *, step: float, passes: int = 1):
        super().__init__(ranking)
        self.group_of = dict(group_of)
        self.names = list(names)
        self.step = step
        self.passes = passes
        # Part of the state, so that a resumed run continues with them.
        self.register_buffer("shares", torch.full((len(names),), 1 / len(names)))

    def record(self) -> dict[str, Any]:
        """A hash of the groups, and the step."""
        parts = [f"{qid} {self.names[code]}" for qid, code in sorted(self.group_of.items())]
        return {**super().record(), "groups": f"{keyed_hash(0, *parts):016x}", "step": self.step}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The ranker's batch, and the positions of the examples of each group in it (``group 0`` and so on)."""
        groups = np.array([self.group_of[example.qid] for example in examples])
        return {**super().collate(examples), **places_of(groups)}

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The weighted sum of the groups' losses.

        Returns:
            ``loss``, ``scores``; for the log ``mean_loss`` (without weights), ``share of ...`` each group, and ``loss of ...``
            each group in the batch.
        """
        scores = self.ranking.scores(batch)
        given = loss_inputs(batch)
        losses = {}
        for name, rows in batch.items():
            if name.startswith(_GROUP):
                own = {key: value[rows] for key, value in given.items()}
                losses[int(name.removeprefix(_GROUP))] = self.ranking.loss(scores[rows], **own)
        if self.training:
            with torch.no_grad():
                grown = {code: self.step / self.passes * one.detach().float() for code, one in losses.items()}
                # A factor for all shares keeps the exponential within float32, and a smallest share keeps their sum above 0.
                beyond = (torch.stack(list(grown.values())).max() - _MOST_GROWN).clamp(min=0)
                for code in range(len(self.names)):
                    self.shares[code] *= torch.exp(grown.get(code, torch.zeros_like(beyond)) - beyond)
                self.shares /= self.shares.sum()
                self.shares.clamp_(min=torch.finfo(self.shares.dtype).tiny)
        loss = cast(torch.Tensor, sum(self.shares[code].clone() * one for code, one in losses.items()))
        with torch.no_grad():
            out = {"loss": loss, "scores": scores, "mean_loss": self.ranking.loss(scores.detach(), **given)}
            out |= {f"loss of {self.names[code]}": one.detach() for code, one in losses.items()}
            out |= {f"share of {name}": share for name, share in zip(self.names, self.shares.clone())}
        return out
