"""The method that trains by coupled estimation. Imported only when training begins, since it needs torch."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from pyterrier_debias.pooling.formulas.cet_weights import Coupling, effective_share, rank_correlation
from pyterrier_debias.training.examples import Example
from pyterrier_debias.training.method import Method, Ranking

logger = logging.getLogger(__name__)

#: Number of pairs on which the two models' orders are compared before a warning.
WINDOW = 200

#: The mean rank correlation above which the two models count as one.
COLLAPSED = 0.95

#: Unbounded weights have exploded if the largest is above the first number, or the effective share below the second.
EXPLODED, EFFECTIVE = 1e3, 0.05

#: Options of a ranker that do not affect how it cuts texts into tokens.
_NOT_TOKENS = frozenset({"model", "seed", "training", "device", "batch_tokens", "verbose"})


class EvidenceScores(torch.nn.Module):
    """A selection model that is a weighted sum of numbers.

    Args:
        features: The features of every row of ``Groups.rows``, shape [rows, d].
        known: For every row, whether the model learns from it.
        weights: The initial coefficients, shape [d].
    """

    def __init__(self, features: np.ndarray, known: np.ndarray, weights: np.ndarray):
        super().__init__()
        self.features = features.astype(np.float32)
        self.known = known
        self.network = torch.nn.Linear(features.shape[1], 1, bias=False, dtype=torch.float32)
        with torch.no_grad():
            self.network.weight.copy_(torch.from_numpy(np.asarray(weights, dtype=np.float32)))

    @property
    def weights(self) -> np.ndarray:
        """The coefficients, shape [d]."""
        return self.network.weight.detach().cpu().numpy()[0].astype(np.float64)

    def networks(self) -> dict[str, torch.nn.Module]:
        """The only layer, by name."""
        return {"selection": self.network}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """``evidence`` of shape [B, n, d] and ``known`` of shape [B, n]."""
        shape = len(examples), max(len(example.rows) for example in examples)
        evidence = np.zeros((*shape, self.features.shape[1]), dtype=np.float32)
        known = np.zeros(shape, dtype=bool)
        for row, example in enumerate(examples):
            evidence[row, : len(example.rows)] = self.features[example.rows]
            known[row, : len(example.rows)] = self.known[example.rows]
        return {"evidence": torch.from_numpy(evidence), "known": torch.from_numpy(known)}

    def scores(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of shape [B, n], never in half precision; 0 where there is no document."""
        return (batch["evidence"] * self.network.weight[0]).sum(dim=-1)


class RankerScores(torch.nn.Module):
    """A selection model that is a ranker itself.

    Args:
        ranking: The result of the ranker's own ``method``.
        shared: Whether it reads the same tensors as the relevance model.
    """

    def __init__(self, ranking: Ranking, *, shared: bool):
        super().__init__()
        self.ranking = ranking
        ranking.read = ranking.ranker.training_text
        self.shared = shared

    def networks(self) -> dict[str, torch.nn.Module]:
        """The ranker's networks, under separate names."""
        return {f"selection_{name}": network for name, network in self.ranking.networks().items()}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """What it reads, in its own tokens (``selection_text_...``); nothing if the other model's tensors are shared."""
        if self.shared:
            return {}
        own = self.ranking.collate(examples)
        return {f"selection_{name}": tensor for name, tensor in own.items() if name.startswith("text_")}

    def scores(self, batch: Mapping[str, torch.Tensor], *, fixed: bool = False) -> torch.Tensor:
        """Scores of shape [B, n]; 0 where there is no document. ``fixed`` as in :meth:`Ranking.scores`."""
        if not self.shared:
            own = {n.removeprefix("selection_"): t for n, t in batch.items() if n.startswith("selection_text_")}
            batch = {"mask": batch["mask"], **own}
        return self.ranking.scores(batch, fixed=fixed)


class Coupled(Method):
    """Trains a relevance and a selection model, each of which weights the other's pairs, in one backward pass.

    It is safe to sum the two losses: weights carry no gradient, so each loss affects only its own model, and a step on the
    sum is a step on each.

    Args:
        relevance: The result of the ranker's own ``method``.
        selection: The selection model.
        coupling: How the models weight each other's pairs.
        accumulation: Number of forward passes per step of the optimiser.
        selection_rate: Learning rate of the network ``selection`` if none is named for it; None for the rate of all others.
        about: What else must be equal in a resumed run.
    """

    passes: torch.Tensor
    compared: torch.Tensor
    agreed: torch.Tensor

    def __init__(
        self,
        relevance: Ranking,
        selection: EvidenceScores | RankerScores,
        coupling: Coupling,
        *,
        accumulation: int = 1,
        selection_rate: float | None = None,
        about: Mapping[str, Any] | None = None,
    ):
        super().__init__()
        self.relevance = relevance
        self.selection = selection
        self.coupling = coupling
        self.accumulation = accumulation
        self.selection_rate = selection_rate
        self.about = dict(about or {})
        # Part of the state, so that a resumed run continues to count.
        self.register_buffer("passes", torch.zeros((), dtype=torch.long))
        self.register_buffer("compared", torch.zeros(()))
        self.register_buffer("agreed", torch.zeros(()))
        self._said: set[str] = set()
        self._window: float | None = None

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self._window = None

    def networks(self) -> dict[str, torch.nn.Module]:
        """The ranker's networks under their own names; ``selection``, or a second ranker's networks with ``selection_`` added."""
        return {**self.relevance.networks(), **self.selection.networks()}

    def rates(self, asked: float | Mapping[str, float]) -> float | Mapping[str, float]:
        """The requested learning rates, with the selection model's own rate added."""
        if self.selection_rate is None:
            return asked
        named = asked if isinstance(asked, Mapping) else dict.fromkeys(self.relevance.networks(), asked)
        return {**named, "selection": named.get("selection", self.selection_rate)}

    def record(self) -> dict[str, Any]:
        """The options of the coupling, and a description of the selection model."""
        return {**super().record(), "coupling": self.coupling.record(), **self.about}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The relevance model's batch, what else the selection model reads, and ``pairs``: the positions of pairs."""
        batch = {**self.relevance.collate(examples), **self.selection.collate(examples)}
        # Computed before the batch is on a device, to avoid asking the device.
        return {**batch, "pairs": _places(batch["mask"])}

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """Both losses and their sum, the relevance model's scores, and figures that describe the coupling.

        Returns:
            ``loss``, ``scores``; for the log ``relevance_loss``, ``selection_loss``, ``accuracy`` (share of pairs in which the
            relevance model scores the positive higher), ``weight_mean``, ``weight_max`` and ``weight_effective_share`` of the
            weights of the relevance loss, and ``rank_correlation`` of the two models' score differences over the pairs.
        """
        relevance, selection = self.relevance.scores(batch), self.selection.scores(batch)
        mask = batch["mask"]
        pairs = mask[:, :1] & mask[:, 1:]
        known = batch.get("known", mask)
        learned = pairs & known[:, :1] & known[:, 1:]
        # After the passes with a gradient: autocast keeps the casts of the first pass that it sees.
        r, s = self._weighing(batch, relevance, selection)
        for_relevance = self.coupling.weights(s[:, :1], s[:, 1:], pairs)
        for_selection = self.coupling.weights(r[:, :1], r[:, 1:], learned)
        if self.training:
            passes = self.counted("passes", more=1)
            if not passes:
                self._watch_start()
            if passes < self.coupling.unweighted_steps * self.accumulation:
                for_relevance, for_selection = torch.ones_like(for_relevance), torch.ones_like(for_selection)
        relevance_loss = self.coupling.loss_of(relevance, for_relevance, pairs, batch["weights"])
        selection_loss = self.coupling.loss_of(selection, for_selection, learned, batch["weights"])
        right = (relevance[:, :1] > relevance[:, 1:]) & pairs
        out = {
            "loss": relevance_loss + selection_loss,
            "scores": relevance,
            "relevance_loss": relevance_loss.detach(),
            "selection_loss": selection_loss.detach(),
            "accuracy": (right.sum() / pairs.sum().clamp(min=1)).detach(),
        }
        places = batch["pairs"] if "pairs" in batch else _places(mask)
        if len(places):
            out |= self._look(*(x.flatten()[places] for x in (for_relevance, r[:, 1:] - r[:, :1], s[:, 1:] - s[:, :1])))
        return out

    def _weighing(
        self, batch: Mapping[str, torch.Tensor], relevance: torch.Tensor, selection: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The scores from which weights are computed."""
        if self.coupling.weight_pass == "train" or not self.training:
            return relevance.detach(), selection.detach()
        with self._evaluating(), torch.no_grad():
            second = selection.detach()
            if isinstance(self.selection, RankerScores):
                second = self.selection.scores(batch, fixed=True)
            return self.relevance.scores(batch, fixed=True), second

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        self.eval()
        try:
            yield
        finally:
            self.train()

    # What is watched

    def _look(self, weights: torch.Tensor, r: torch.Tensor, s: torch.Tensor) -> dict[str, torch.Tensor]:
        """The state of the coupling in this batch, with warnings if it fails."""
        with torch.no_grad():
            largest, effective = weights.max(), effective_share(weights)
            agreement = rank_correlation(r, s)
            if self.training:
                self._watch(weights, agreement, largest, effective)
        # If all scores are equal, the correlation is undefined, and left out of the log.
        return {
            "weight_mean": weights.mean(),
            "weight_max": largest,
            "weight_effective_share": effective,
            "rank_correlation": agreement,
        }

    def _watch(self, weights: torch.Tensor, agreement: torch.Tensor, largest: torch.Tensor, effective: torch.Tensor) -> None:
        unbounded = self.coupling.max_weight is None and self.coupling.normalise_weights is None
        if unbounded and "explode" not in self._said:
            if largest > EXPLODED or (len(weights) >= 20 and effective < EFFECTIVE):
                self._say(
                    "explode",
                    "weights explode (largest %.3g, effective share of the pairs %.2f); bound them with max_weight=1.0, or raise "
                    "tau",
                    float(largest),
                    float(effective),
                )
        if isinstance(self.selection, RankerScores):
            known = agreement.isfinite()
            self.compared += len(weights) * known
            self.agreed += (len(weights) * agreement).where(known, 0.0)
            # An upper bound of the pairs in the window; the device is only asked if it reaches the window's size.
            self._window = float(self.compared) if self._window is None else self._window + len(weights)
            if self._window >= WINDOW and self.compared >= WINDOW:
                if self.agreed > COLLAPSED * self.compared:
                    self._say(
                        "collapse",
                        "the two models have become one: they order the last %d pairs alike (mean rank correlation %.3f), so "
                        "weights say nothing about selection; let the selection model see something else "
                        "(selection='first_stage')",
                        int(self.compared),
                        float(self.agreed / self.compared),
                    )
                self.compared.zero_()
                self.agreed.zero_()
                self._window = 0.0

    def _watch_start(self) -> None:
        """Warn if both models begin equal."""
        if not isinstance(self.selection, RankerScores):
            return
        ours, theirs = self.relevance.network.state_dict(), self.selection.ranking.network.state_dict()
        if ours.keys() != theirs.keys():
            return
        if all(ours[n].shape == theirs[n].shape and torch.equal(ours[n], theirs[n]) for n in ours):
            dropout = any(isinstance(part, torch.nn.Dropout) and part.p > 0 for part in self.modules())
            self._say(
                "equal",
                "the relevance and the selection model begin with equal weights, and nothing%s distinguishes them: %s; give the "
                "ranker a fresh head, or let the selection model see something else (selection='first_stage')",
                " but dropout" if dropout else "",
                "which one learns what is left to chance" if dropout else "they will stay equal",
            )

    def _say(self, what: str, message: str, *values: Any) -> None:
        """Warn once, by one process."""
        if what not in self._said and int(os.environ.get("RANK", "0")) == 0:
            self._said.add(what)
            logger.warning("CETReranker: " + message, *values)


def _places(mask: torch.Tensor) -> torch.Tensor:
    """The positions of the pairs of a batch among B times n - 1 places."""
    return (mask[:, :1] & mask[:, 1:]).flatten().nonzero()[:, 0]


def tokenise_alike(left: Any, right: Any) -> bool:
    """Whether two rankers turn texts into the same tensors, so that one batch serves both.

    Args:
        left: A ranker.
        right: Another one.

    Returns:
        True only if this is certain.
    """
    if type(left) is not type(right):
        return False
    ours, theirs = ({n: v for n, v in ranker.options().items() if n not in _NOT_TOKENS} for ranker in (left, right))
    if ours != theirs or _beyond(left) != _beyond(right):
        return False
    if left.tokenizer is None or right.tokenizer is None:  # the module itself may cut texts
        return False
    if left.tokenizer is right.tokenizer:
        return True
    one, other = (getattr(ranker.tokenizer, "backend_tokenizer", None) for ranker in (left, right))
    return one is not None and other is not None and one.to_str() == other.to_str()


def _beyond(ranker: Any) -> list[Any]:
    """What else tokens depend on: the window, where texts are cut, and the prompts of sentence-transformers models."""
    of_module = [getattr(ranker.module, name, None) for name in ("prompts", "default_prompt_name", "max_seq_length")]
    of_tokenizer = [getattr(ranker.tokenizer, name, None) for name in ("truncation_side", "padding_side", "model_input_names")]
    return [ranker.window, *of_module, *of_tokenizer]
