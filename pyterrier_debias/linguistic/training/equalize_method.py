"""The method that trains against a biased model. Imported only when training begins, since it needs torch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.training.examples import Example, Examples, run_length
from pyterrier_debias.training.groups import Groups
from pyterrier_debias.training.method import Around, Ranking, loss_inputs, pair_accuracy
from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)


class CachedScores:
    """A biased model whose scores were computed beforehand; the model itself is no longer needed.

    Args:
        scores: The score of every row of ``Groups.rows``, shape [rows]; rows that are never drawn may have any value.
    """

    def __init__(self, scores: np.ndarray):
        self.by_row = scores.astype(np.float32)

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """``biased_scores``, shape [B, n]; 0 where there is no document."""
        found = np.zeros((len(examples), max(len(example.rows) for example in examples)), dtype=np.float32)
        for row, example in enumerate(examples):
            found[row, : len(example.rows)] = self.by_row[example.rows]
        return {"biased_scores": torch.from_numpy(found)}

    def scores(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of shape [B, n]."""
        return batch["biased_scores"]


class LiveScores:
    """A biased model that scores every batch again, in eval mode and without a gradient.

    It is not part of the trained module, so it is not in the optimiser, in checkpoints or in other processes.

    Args:
        ranking: The result of the biased ranker's own ``method``.
    """

    def __init__(self, ranking: Ranking):
        self.ranking = ranking
        ranking.read = ranking.ranker.training_text

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """What the biased model reads of the texts, in its own tokens, and the positions of their scores (``biased_...``)."""
        own = self.ranking.collate(examples)
        return {f"biased_{name}": own[name] for name in own if name not in ("mask", "grades", "weights")}

    def scores(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Scores of shape [B, n]; 0 where there is no document."""
        own = {name.removeprefix("biased_"): value for name, value in batch.items() if name.startswith("biased_")}
        self.ranking.ranker.scoring_module()
        with torch.no_grad():
            return self.ranking.scores({"mask": batch["mask"], **own})


class AgainstBiased(Around):
    """Trains one ranker with a loss that also depends on the scores of a frozen biased model.

    Args:
        ranking: The result of the robust ranker's own ``method``.
        biased: The source of the biased model's scores.
        loss: ``loss(scores, biased, labels=..., mask=..., weights=..., loss=...)``, where the argument ``loss`` is the ranker's
            own; e.g. :func:`~pyterrier_debias.linguistic.formulas.product_of_experts.product_of_experts` with its options.
        about: What must be equal in a resumed run: the options of the loss, and the biased model.
    """

    def __init__(
        self,
        ranking: Ranking,
        biased: CachedScores | LiveScores,
        loss: Callable[..., torch.Tensor],
        *,
        about: Mapping[str, Any],
    ):
        super().__init__(ranking)
        self.biased = biased
        self.loss = loss
        self.about = dict(about)

    def record(self) -> dict[str, Any]:
        """The options of the loss, and the biased model."""
        return {**super().record(), **self.about}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The robust ranker's batch, with the entries that the biased model needs."""
        return {**super().collate(examples), **self.biased.collate(examples)}

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss of both models together, and the robust ranker's scores.

        Returns:
            ``loss``, ``scores``; for the log ``plain_loss`` (the loss of the robust ranker alone), and ``accuracy`` and
            ``biased_accuracy``: the shares of pairs in which the robust and the biased model score the positive higher.
        """
        scores, biased = self.ranking.scores(batch), self.biased.scores(batch)
        given = loss_inputs(batch)
        loss = self.loss(scores, biased, loss=self.ranking.loss, **given)
        with torch.no_grad():
            plain = self.ranking.loss(scores.detach(), **given)
            parts = {"accuracy": pair_accuracy(scores, batch), "biased_accuracy": pair_accuracy(biased, batch)}
        return {"loss": loss, "scores": scores, "plain_loss": plain, **parts}


def drawn_rows(groups: Groups, training: Training) -> np.ndarray:
    """Find the candidates that a run will use, by drawing all of its examples beforehand.

    Args:
        groups: The training queries from which examples are drawn.
        training: How examples are drawn.

    Returns:
        Rows of ``Groups.rows``, ascending.
    """
    examples = Examples(groups, training, 0)
    steps, effective = run_length(training, len(examples.units))
    drawn = np.zeros(len(groups.rows), dtype=bool)
    there = sum(len(group.positives) + len(group.pool) for group in groups.groups)
    for position in range(steps * effective):
        drawn[examples[position].rows] = True
        if position % len(examples.units) == 0 and drawn.sum() == there:
            break
    return np.flatnonzero(drawn)


def cached_scores(biased: Any, groups: Groups, training: Training, stage: str) -> CachedScores:
    """Score the candidates that a run will use with the biased model, each pair once.

    Args:
        biased: The biased ranker.
        groups: The training queries from which examples are drawn.
        training: How examples are drawn.
        stage: The name used in the message.

    Returns:
        The scores.

    Raises:
        InputError: If a score is not a number.
    """
    rows = drawn_rows(groups, training)
    shown = groups.rows.iloc[rows]
    scores = np.zeros(len(groups.rows))
    scores[rows] = biased.score_in_training(shown["query"].tolist(), biased.documents(shown))
    bad = np.flatnonzero(~np.isfinite(scores))
    if len(bad):
        about = groups.rows.iloc[bad[0]]
        raise InputError(
            f"{stage}: the biased model gives {len(bad)} candidates no finite score, first qid={about['qid']!r}, "
            f"docno={about['docno']!r}; train it with a lower learning rate, or give another one"
        )
    logger.info("%s: the biased model scored %d of %d candidates", stage, len(rows), len(groups.rows))
    return CachedScores(scores)
