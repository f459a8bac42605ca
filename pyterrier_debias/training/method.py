"""Training methods: which networks are trained, and how a batch becomes a loss. Imported only for training, since it needs torch.

A method is a module that contains every network that it trains or uses. :class:`Ranking`, with one ranker and one loss, is the
plain one. Methods with several networks, frozen networks or weights that depend on scores subclass :class:`Method`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.training.examples import Example
from pyterrier_debias.training.losses import get_loss

if TYPE_CHECKING:
    from pyterrier_debias.training.losses import Loss
    from pyterrier_debias.training.options import Training


class Method(torch.nn.Module):
    """Base class of training methods: a module with the networks and the loss that the trainer trains.

    For networks that must not change, call ``requires_grad_(False)`` in the constructor: they then stay in eval mode (no dropout)
    and out of the optimiser. Name them in :meth:`record`, so that a resumed run uses the same ones.
    """

    #: Tells transformers' Trainer that the loss is a mean over the batch.
    accepts_loss_kwargs = False

    @abstractmethod
    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """Turn examples into tensors, on the CPU; runs in data-loading workers.

        Args:
            examples: B examples.

        Returns:
            Tensors by name, the keywords of :meth:`forward`.
        """

    @abstractmethod
    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """Compute the loss of a batch; each network is called once.

        Args:
            batch: Output of :meth:`collate`, on the device.

        Returns:
            ``loss`` (a scalar), ``scores`` (shape [B, n]), and scalars for the log under any other names.
        """

    @abstractmethod
    def networks(self) -> dict[str, torch.nn.Module]:
        """The networks that are trained, by name; each has its own learning rate and gradient norm.

        They may be parts of one model, and hold every trainable weight of the method exactly once.
        """

    def rates(self, asked: float | Mapping[str, float]) -> float | Mapping[str, float]:
        """The learning rates: by default those of the options; a method may override them, e.g. with one for each network.

        Args:
            asked: ``Training.learning_rate``.

        Returns:
            One rate, or one for each of :meth:`networks`.
        """
        return asked

    def penalties(self, step: int, steps: int) -> dict[str, torch.Tensor]:
        """Terms to add to the loss of the latest batch, also if this method is part of another one; none by default.

        Args:
            step: Optimiser steps done so far, including those before a resume.
            steps: Steps of the whole run.

        Returns:
            Scalars with a gradient, by the names under which they are logged.
        """
        return {}

    def record(self) -> dict[str, Any]:
        """Further properties of the method, beyond its weights, that a checkpoint records, as JSON-compatible values."""
        return {"method": type(self).__name__}

    def counted(self, name: str, more: int = 0) -> int:
        """Return the number in a counting buffer and add to it; it is read from the device only once.

        Args:
            name: The buffer: a whole number that only this method and loading a checkpoint change.
            more: The number to add.

        Returns:
            The number, before anything is added.
        """
        counts: dict[str, int] = self.__dict__.setdefault("_counts", {})
        buffer = getattr(self, name)
        known = counts[name] if name in counts else int(buffer)
        counts[name] = known + more
        if more:
            buffer += more
        return known

    def _load_from_state_dict(self, *args: Any, **options: Any) -> None:
        super()._load_from_state_dict(*args, **options)
        self.__dict__.pop("_counts", None)

    def train(self, mode: bool = True) -> Method:
        """Switch to training mode, except for networks without a trainable weight."""
        super().train(mode)
        for network in self.children():
            if not any(parameter.requires_grad for parameter in network.parameters()):
                network.eval()
        return self


class Candidates:
    """The pairs of a batch that are scored, and the place of each score in the batch.

    Args:
        examples: B examples of at most n documents.
        in_batch: Whether each query is also scored with the other examples' documents, except its ``relevant`` ones (see
            :class:`~pyterrier_debias.training.examples.Example`), and copies of their texts (before augmentation).
        read: What is read of each whole text instead of the examples' texts; None for these. Places stay the same.

    Attributes:
        mask: Which places of the batch hold a document, shape [B, n]; with ``in_batch``, n is the number of distinct documents,
            and a row's own come first.
        grades: Grades, shape [B, n].
        weights: Weights, shape [B] if examples have one weight each, else [B, n], where other examples' documents have the
            weight of the row's positive.
        docs: The distinct documents.
        columns: The index into ``docs`` for each place, shape [B, n].
    """

    def __init__(
        self, examples: Sequence[Example], *, in_batch: bool = False, read: Callable[[str], str] | None = None
    ):
        place: dict[tuple[str, str], int] = {}
        own = [[place.setdefault((d, t), len(place)) for d, t in zip(e.docnos, e.texts)] for e in examples]
        docnos = [docno for docno, _ in place]
        width = len(place) if in_batch else max(map(len, own))
        shape = (len(examples), width)
        self.queries = [example.query for example in examples]
        self.docs = [text for _, text in place]
        self.columns = np.zeros(shape, dtype=np.int64)
        self.mask = np.zeros(shape, dtype=bool)
        self.grades = np.zeros(shape, dtype=np.float32)
        originals = {at: text for mine, example in zip(own, examples) for at, text in zip(mine, example.originals)}
        whole = all(example.weights.ndim == 0 for example in examples)
        self.weights = np.array([e.weights for e in examples]) if whole else np.zeros(shape, dtype=np.float32)
        for row, (example, mine) in enumerate(zip(examples, own)):
            end = len(mine)
            self.columns[row, :end], self.mask[row, :end] = mine, True
            self.grades[row, :end] = example.labels
            if not whole:
                self.weights[row] = example.weights.flat[0]
                self.weights[row, :end] = example.weights
            if in_batch:
                seen, known = set(mine), {*example.docnos, *example.relevant}
                answers = {example.originals[0], *example.answers}
                others = [at for at in range(width) if at not in seen]
                self.columns[row, end:] = others
                copies = [originals[at] in answers or self.docs[at] == example.texts[0] for at in others]
                self.mask[row, end:] = [docnos[at] not in known and not copy for at, copy in zip(others, copies)]
        if read is not None:
            texts = {at: text for mine, example in zip(own, examples) for at, text in zip(mine, example.whole)}
            self.docs = [read(texts[at]) for at in range(len(self.docs))]

    def pairs(self) -> tuple[list[str], list[str]]:
        """Queries and documents of all places that hold a document, row by row."""
        rows, columns = np.nonzero(self.mask)
        return [self.queries[row] for row in rows], [self.docs[at] for at in self.columns[rows, columns]]


class Ranking(Method):
    """The plain training method: one ranker with one loss.

    Args:
        ranker: A scorer with a torch module, see :class:`~pyterrier_debias.training.scorer.Scorer`.
        loss: The loss, see :mod:`pyterrier_debias.training.losses`.
        in_batch: Whether the other examples' documents are negatives too.
    """

    #: What the ranker reads of each whole text, if it joins the training of another one, from whose examples it would read.
    read: Callable[[str], str] | None = None

    def __init__(self, ranker: Any, loss: Loss, *, in_batch: bool = False):
        super().__init__()
        self.ranker = ranker
        self.network = ranker.module
        self.loss = loss
        self.in_batch = in_batch

    @classmethod
    def of(cls, ranker: Any, training: Training) -> Self:
        """A ranker with the loss and the negatives of its training options."""
        loss = get_loss(training.loss, dict(training.loss_options))
        return cls(ranker, loss, in_batch=training.in_batch_negatives)

    def networks(self) -> dict[str, torch.nn.Module]:
        """The ranker alone."""
        return {"ranker": self.network}

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """Tokenised texts (``text_...``), ``mask`` and ``grades`` of shape [B, n], ``weights`` of that shape or [B]."""
        found = Candidates(examples, in_batch=self.in_batch, read=self.read)
        batch = {name: torch.from_numpy(getattr(found, name)) for name in ("mask", "grades", "weights")}
        if self.in_batch and hasattr(self.ranker, "forward_matrix"):
            texts = self.ranker.tokenise(found.queries, found.docs)
            batch["columns"] = torch.from_numpy(found.columns)
        else:
            texts = self.ranker.tokenise(*found.pairs())
        return {**batch, **{f"text_{name}": tensor for name, tensor in texts.items()}}

    def scores(self, batch: Mapping[str, torch.Tensor], *, fixed: bool = False) -> torch.Tensor:
        """Scores of shape [B, n]; 0 where there is no document.

        Args:
            batch: Output of :meth:`collate`.
            fixed: Whether the network is in eval mode and no gradient is needed, which allows a faster computation.
        """
        texts = {name.removeprefix("text_"): tensor for name, tensor in batch.items() if name.startswith("text_")}
        if "columns" in batch:
            return self.scored(texts, matrix=True).gather(1, batch["columns"])
        packed = getattr(self.ranker, "forward_packed", None) if fixed else None
        flat = self.scored(texts, matrix=False) if packed is None else packed(**texts)
        return flat.new_zeros(batch["mask"].shape).masked_scatter(batch["mask"], flat)

    def scored(self, texts: Mapping[str, torch.Tensor], *, matrix: bool) -> torch.Tensor:
        """The ranker's scores of tokenised texts: one per pair, or each query with each document."""
        return self.ranker.forward_matrix(**texts) if matrix else self.ranker.forward(**texts)

    def forward(self, **batch: torch.Tensor) -> dict[str, torch.Tensor]:
        """The loss, the scores, and ``accuracy``: the share of pairs in which the positive has the higher score."""
        scores = self.scores(batch)
        return {"loss": self.loss(scores, **loss_inputs(batch)), "scores": scores, "accuracy": pair_accuracy(scores, batch)}


def loss_inputs(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The keywords of every loss, in addition to scores: ``labels``, ``mask`` and ``weights`` of a batch."""
    return {"labels": batch["grades"], "mask": batch["mask"], "weights": batch["weights"]}


def pair_accuracy(scores: torch.Tensor, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The share of a batch's pairs (a positive, a document with a lower label) in the right order; NaN if there is no pair."""
    mask, grades = batch["mask"], batch["grades"]
    pairs = mask[:, :1] & mask[:, 1:] & (grades[:, 1:] < grades[:, :1])
    return (((scores[:, :1] > scores[:, 1:]) & pairs).sum() / pairs.sum()).detach()


class Around(Method):
    """Base class of methods that wrap a ranker's own method, with its networks, learning rates and batches.

    Args:
        ranking: The method that the ranker's own ``method`` returned.
    """

    def __init__(self, ranking: Ranking):
        super().__init__()
        self.ranking = ranking

    def networks(self) -> dict[str, torch.nn.Module]:
        """The ranker's networks."""
        return self.ranking.networks()

    def rates(self, asked: float | Mapping[str, float]) -> float | Mapping[str, float]:
        """The learning rates of the ranker's method."""
        return self.ranking.rates(asked)

    def collate(self, examples: Sequence[Example]) -> dict[str, torch.Tensor]:
        """The ranker's batch."""
        return self.ranking.collate(examples)


def ranking_of(ranker: Any, training: Training, stage: str) -> Ranking:
    """Return the ranker's own training method.

    Args:
        ranker: A ranker.
        training: The options.
        stage: The name used in the message.

    Returns:
        The method.

    Raises:
        InputError: If that method is not a :class:`~pyterrier_debias.training.method.Ranking`.
    """
    method = ranker.method(training)
    if not isinstance(method, Ranking):
        raise InputError(f"{stage}: {type(ranker).__name__} trains by {type(method).__name__}, which cannot be joined")
    return method
