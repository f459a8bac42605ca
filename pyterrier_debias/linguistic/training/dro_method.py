"""Group DRO as a method of training. Imported only when training begins: it needs torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.training.examples import Example
from pyterrier_debias.training.method import Around, Ranking, loss_inputs

#: How the places of a group's examples are called in a batch.
_GROUP = "group "


def places_of(groups: np.ndarray) -> dict[str, torch.Tensor]:
    """Where the examples of each group stand in a batch: known before the batch is on a device, which need not be asked then.

    Args:
        groups: The group of each example, shape [B].

    Returns:
        ``group 0`` and so on for the groups that are there, in their order, with int64 places.

    Example:
        >>> places_of(np.array([2, 0, 2]))
        {'group 0': tensor([1]), 'group 2': tensor([0, 2])}
    """
    return {f"{_GROUP}{code}": torch.from_numpy(np.flatnonzero(groups == code)) for code in np.unique(groups).tolist()}


class GroupDRO(Around):
    """One ranker, its loss weighed by shares of groups that grow where the loss is high.

    Args:
        ranking: What the ranker's own ``method`` gives; its loss may be any.
        group_of: Group of each query, by qid, from 0.
        names: The groups' names.
        step: How fast shares grow.
    """

    shares: torch.Tensor

    def __init__(self, ranking: Ranking, group_of: Mapping[str, int], names: Sequence[str], *, step: float):
        super().__init__(ranking)
        self.group_of = dict(group_of)
        self.names = list(names)
        self.step = step
        # In the state, so that a resumed run continues with them.
        self.register_buffer("shares", torch.full((len(names),), 1 / len(names)))

    def record(self) -> dict[str, Any]:
        """A hash of the groups, and the step."""
        parts = [f"{qid} {self.names[code]}" for qid, code in sorted(self.group_of.items())]
        return {**super().record(), "groups": f"{keyed_hash(0, *parts):016x}", "step": self.step}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The ranker's batch, and of each group that is there its examples' places, ``group 0`` and so on."""
        groups = np.array([self.group_of[example.qid] for example in examples])
        return {**super().collate(examples), **places_of(groups)}

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The groups' losses, weighed.

        Returns:
            ``loss``, ``scores``; for the log ``mean_loss`` (the plain one), and of each group that is there ``loss of ...`` and
            ``share of ...``.
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
                for code, one in losses.items():
                    self.shares[code] *= torch.exp(self.step * one.detach().float())
                self.shares /= self.shares.sum()
        loss = cast(torch.Tensor, sum(self.shares[code].clone() * one for code, one in losses.items()))
        with torch.no_grad():
            out = {"loss": loss, "scores": scores, "mean_loss": self.ranking.loss(scores.detach(), **given)}
            for code, one in losses.items():
                out |= {f"loss of {self.names[code]}": one.detach(), f"share of {self.names[code]}": self.shares[code].clone()}
        return out
