"""Training methods whose loss has a term against bias. Imported only when training begins, because it needs torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.formulas.losses import reversed_gradient
from pyterrier_debias.training.examples import Example
from pyterrier_debias.training.method import Around, Ranking, loss_inputs, pair_accuracy
from pyterrier_debias.training.seeds import drawn_from


class Annotated(Around):
    """Trains a ranker with one number for each candidate.

    Args:
        ranking: The training method that the ranker's own ``method`` returns.
        values: Values of every row of ``Groups.rows``, shape [rows].
        about: The options that a resumed run must share.
        read: The values of an example's documents, computed from its texts, where augmentation changes these; None: ``values``.
    """

    def __init__(
        self,
        ranking: Ranking,
        values: np.ndarray,
        about: Mapping[str, Any],
        read: Callable[[Example], np.ndarray] | None = None,
    ):
        super().__init__(ranking)
        self.values = np.asarray(values, dtype=np.float32)
        self.about = dict(about)
        self.read = read

    def record(self) -> dict[str, Any]:
        """The options, and a hash of the numbers."""
        return {**super().record(), **self.about, "values": f"{keyed_hash(0, self.values.tobytes().hex()):016x}"}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The ranker's batch, and ``known`` of shape [B, n]; 0 where there is no document."""
        batch = super().collate(examples)
        found = np.zeros(tuple(batch["mask"].shape), dtype=np.float32)
        for row, example in enumerate(examples):
            found[row, : len(example.rows)] = self.values[example.rows] if self.read is None else self.read(example)
        return {**batch, "known": torch.from_numpy(found)}


class BiasAware(Annotated):
    """Trains a ranker with a loss that also depends on the documents' biases.

    Args:
        ranking: The training method that the ranker's own ``method`` returns.
        values: The biases psi.
        about: The options that a resumed run must share.
        loss: ``loss(scores, psi, labels=..., mask=..., weights=...)``.
        read: As in :class:`Annotated`.
    """

    def __init__(
        self,
        ranking: Ranking,
        values: np.ndarray,
        about: Mapping[str, Any],
        loss: Callable[..., torch.Tensor],
        read: Callable[[Example], np.ndarray] | None = None,
    ):
        super().__init__(ranking, values, about, read)
        self.loss = loss

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss.

        Returns:
            ``loss``, ``scores``; for the log ``plain_loss`` (without biases), ``accuracy``, and the mean ``bias_of_negatives``.
        """
        scores = self.ranking.scores({name: value for name, value in batch.items() if name != "known"})
        given, psi = loss_inputs(batch), batch["known"]
        loss = self.loss(scores, psi, **given)
        with torch.no_grad():
            plain = self.loss(scores.detach(), torch.zeros_like(psi), **given)
            negatives = batch["mask"][:, 1:]
            bias = (psi[:, 1:] * negatives).sum() / negatives.sum().clamp(min=1)
        parts = {"plain_loss": plain, "accuracy": pair_accuracy(scores, batch), "bias_of_negatives": bias}
        return {"loss": loss, "scores": scores, **parts}


class Adversarial(Annotated):
    """Trains a ranker together with a small network that predicts an attribute from the input of the ranker's head.

    The gradient of this network's loss continues into the encoder with its sign reversed.

    Args:
        ranking: The training method that a cross-encoder's own ``method`` returns.
        values: The attribute of each pair, 0 or 1.
        about: The options that a resumed run must share.
        reversal: The factor of the reversed gradient.
        seed: Seed of the adversary's initial weights.
        stage: The name used in messages.
        read: As in :class:`Annotated`.

    Raises:
        InputError: If the ranker has no head that reads one vector per pair.
    """

    def __init__(
        self,
        ranking: Ranking,
        values: np.ndarray,
        about: Mapping[str, Any],
        *,
        reversal: float,
        seed: int,
        stage: str,
        read: Callable[[Example], np.ndarray] | None = None,
    ):
        super().__init__(ranking, values, about, read)
        self.reversal = reversal
        head = getattr(ranking.network, "classifier", None)
        if head is None:
            raise InputError(
                f"{stage}: {type(ranking.network).__name__} has no classification head for the adversary; give a model that has "
                f"one"
            )
        size = ranking.network.config.hidden_size
        with drawn_from(seed):
            layers = [torch.nn.Linear(size, outputs, dtype=torch.float32) for outputs in (size, 1)]
            self.adversary = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
        device = next(ranking.network.parameters()).device
        self.adversary.to(device)

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The annotated batch, and ``attribute``: the values of the documents that are present, one after the other."""
        batch = super().collate(examples)
        return {**batch, "attribute": batch["known"][batch["mask"]]}

    def networks(self) -> dict[str, torch.nn.Module]:
        """The ranker's networks, and the adversary."""
        return {**self.ranking.networks(), "adversary": self.adversary}

    def rates(self, asked: float | Mapping[str, float]) -> float | Mapping[str, float]:
        """The learning rates of the ranker's method; by default, the adversary's is the largest of these."""
        rates = self.ranking.rates(asked)
        if isinstance(rates, Mapping) and set(rates) == set(self.ranking.networks()):
            return {**rates, "adversary": max(rates.values())}
        return rates

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The sum of the ranker's loss and the adversary's.

        Returns:
            ``loss``, ``scores``; for the log ``plain_loss`` (the ranker's), ``adversary_loss``, ``accuracy``,
            ``adversary_accuracy`` and ``attribute`` (the share of pairs that have it).
        """
        found: list[torch.Tensor] = []
        hook = self.ranking.network.classifier.register_forward_pre_hook(lambda _, args: found.append(args[0]))
        try:
            scores = self.ranking.scores({name: value for name, value in batch.items() if name not in ("known", "attribute")})
        finally:
            hook.remove()
        plain = self.ranking.loss(scores, **loss_inputs(batch))
        read = found[0] if found[0].ndim == 2 else found[0][:, 0]
        truth = batch["attribute"]
        # In float32 also where the networks compute in half precision, which would round the loss and the shares.
        logits = self.adversary(reversed_gradient(read, self.reversal))[:, 0].float()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
        with torch.no_grad():
            right = ((logits > 0) == (truth > 0.5)).float().mean()
        return {
            "loss": plain + loss,
            "scores": scores,
            "plain_loss": plain.detach(),
            "adversary_loss": loss.detach(),
            "accuracy": pair_accuracy(scores, batch),
            "adversary_accuracy": right,
            "attribute": truth.mean(),
        }
