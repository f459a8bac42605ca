"""The examples of a training run, in the order in which they are used.

The example at a position depends only on the position, the seed and identifiers, not on the order of the candidates, the number
of processes, or earlier draws. A resumed run therefore uses the same examples.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.training.groups import Group, Groups
from pyterrier_debias.training.options import Training
from pyterrier_debias.training.weights import weights_of


@dataclass(frozen=True)
class Example:
    """A query with a positive (or all of them) and negatives.

    Attributes:
        position: Its position in the run.
        epoch: From 0.
        qid: The query.
        query: Its text.
        docnos: n documents, positives first.
        texts: What is read of their texts, augmented.
        labels: Their grades, shape [n]; 0 for unjudged documents.
        weights: Their weights, shape [n], or the weight of the whole example, shape [].
        rows: Their rows among ``Groups.rows``, shape [n].
        relevant: Docnos of all documents that are judged relevant for the query, for any qid with its text; with
            ``in_batch_negatives`` also those that the sampler of negatives excludes.
        whole: Their whole texts, augmented, for a second ranker that reads another part.
        originals: What is read before augmentation, by which copies are recognised.
        answers: For ``in_batch_negatives``: the texts, not augmented, of all ``relevant`` documents among the candidates of any
            query, in this batch or not; otherwise none.
    """

    position: int
    epoch: int
    qid: str
    query: str
    docnos: list[str]
    texts: list[str]
    labels: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    relevant: frozenset[str]
    whole: list[str]
    originals: list[str]
    answers: frozenset[str]


def run_length(training: Training, units: int) -> tuple[int, int]:
    """Compute the length of a run.

    Args:
        training: The options.
        units: The units of an epoch; see :attr:`Examples.units`.

    Returns:
        The number of optimiser steps, and the number of examples per step over all processes (``WORLD_SIZE``).
    """
    effective = training.batch_size * training.accumulation * int(os.environ.get("WORLD_SIZE", "1"))
    return training.max_steps or max(1, math.ceil(training.epochs * units / effective)), effective


class Examples:
    """A map-style dataset of all positions of a run.

    Args:
        groups: The groups from which to draw.
        training: The options.
        length: How many examples the run uses.
        read: Selects the part of each (augmented) text that is read; None for the whole text.
    """

    def __init__(
        self, groups: Groups, training: Training, length: int, *, read: Callable[[str], str] | None = None
    ):
        self.groups = groups
        self.training = training
        self.length = length
        self.read = read
        self.units: list[tuple[Group, int | None]] = [
            (group, positive)
            for group in groups.groups
            for positive in (group.positives.tolist() if training.positives == "one" else [None])
        ]
        self._order: tuple[int, list[int]] = (-1, [])
        self._read_answers: dict[str, frozenset[str]] = {}
        augment = training.augment
        if augment is not None and augment.text_field not in groups.text_columns:
            raise InputError(
                f"Training: augment={augment!r} changes column '{augment.text_field}', but the ranker reads "
                f"{', '.join(groups.text_columns)}; set text_field of augment"
            )

    def __len__(self) -> int:
        return self.length

    def order(self, epoch: int) -> list[int]:
        """The order of the units in an epoch.

        Args:
            epoch: From 0.

        Returns:
            A permutation of the units.
        """
        if self._order[0] != epoch:
            docnos, seed = self.groups.column("docno"), self.training.seed
            keys = [
                keyed_hash(seed, "order", str(epoch), group.qid, "" if positive is None else docnos[positive])
                for group, positive in self.units
            ]
            self._order = epoch, sorted(range(len(keys)), key=keys.__getitem__)
        return self._order[1]

    def __getitem__(self, position: int) -> Example:
        """The example at a position of the run."""
        epoch, place = divmod(position, len(self.units))
        group, positive = self.units[self.order(epoch)[place]]
        rows = self._rows(group, positive, epoch)
        docnos, labels = self.groups.column("docno"), self.groups.column("label")
        whole = self._texts(group, rows, epoch)
        texts = self._read(whole)
        return Example(
            position=position,
            epoch=epoch,
            qid=group.qid,
            query=group.query,
            docnos=[docnos[row] for row in rows],
            texts=texts,
            labels=np.array([labels[row] for row in rows], dtype=np.float32),
            weights=weights_of(self.training.weights, self.groups, group, rows),
            rows=rows,
            relevant=group.relevant,
            whole=whole,
            originals=texts if self.training.augment is None else self._read(self._texts(group, rows)),
            answers=self._answers(group) if self.training.in_batch_negatives else frozenset(),
        )

    def _rows(self, group: Group, positive: int | None, epoch: int) -> np.ndarray:
        training = self.training
        chosen: list[int] = []
        positives = group.positives.tolist() if positive is None else [positive]
        if training.negatives_per_positive == 0:
            return np.array(positives)
        for one in positives:
            drawn = training.negatives.sample(
                self.groups, group, one, training.negatives_per_positive, seed=training.seed, epoch=epoch
            )
            chosen += [int(row) for row in drawn if int(row) not in chosen]
        if not chosen or not set(chosen) <= set(group.pool.tolist()):
            raise InputError(
                f"training: the sampler {training.negatives!r} draws "
                f"{'documents outside of the pool' if chosen else 'no negatives'} for query {group.qid!r}; "
                f"sample() must return rows of group.pool"
            )
        return np.array([*positives, *chosen])

    def _answers(self, group: Group) -> frozenset[str]:
        """What is read of a query's relevant documents, the same for all its examples."""
        if group.qid not in self._read_answers:
            self._read_answers[group.qid] = frozenset(self._read(self._texts(group, self.groups.answers(group))))
        return self._read_answers[group.qid]

    def _read(self, texts: list[str]) -> list[str]:
        return texts if self.read is None else [self.read(text) for text in texts]

    def _texts(self, group: Group, rows: Iterable[int], epoch: int | None = None) -> list[str]:
        """Whole texts; augmented for an epoch."""
        augment, docnos = self.training.augment, self.groups.column("docno")
        parts = []
        for column in self.groups.text_columns:
            values = self.groups.column(column)
            texts = [values[row] for row in rows]
            if augment is not None and epoch is not None and augment.text_field == column:
                turn = augment.rotator(draw=epoch)
                texts = [turn(text, docnos[row], group.qid)[0] for text, row in zip(texts, rows)]
            parts.append(texts)
        return [" ".join(of_one) for of_one in zip(*parts)]
