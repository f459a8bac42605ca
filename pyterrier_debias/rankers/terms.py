"""Vectors of the terms of many texts, padded, and their pairs: what rankers by late interaction compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from pyterrier_debias.rankers.engine import moved

if TYPE_CHECKING:
    import torch


class Terms(NamedTuple):
    """Texts as the vectors of their terms. They stay padded: to cut each to its own length, one would wait for the device.

    Attributes:
        vectors: Shape [n, longest, d].
        mask: Which of them count, bool, shape [n, longest].
    """

    vectors: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def joined(cls, found: Iterator[tuple[np.ndarray, Terms]]) -> Self:
        """The terms of all texts, in their order.

        Args:
            found: The places of the texts of each batch, and their terms.

        Returns:
            One batch, padded to the longest of them.
        """
        import torch

        parts = list(found)
        if not parts:
            return cls(torch.empty(0, 0, 0), torch.empty(0, 0, dtype=torch.bool))
        longest = max(terms.mask.shape[1] for _, terms in parts)
        vectors, masks = [], []
        for _, terms in parts:
            missing = longest - terms.mask.shape[1]
            vectors.append(torch.nn.functional.pad(terms.vectors, (0, 0, 0, missing)))
            masks.append(torch.nn.functional.pad(terms.mask, (0, missing), value=False))
        order = moved(np.argsort(np.concatenate([indices for indices, _ in parts])), vectors[0].device)
        return cls(torch.cat(vectors)[order], torch.cat(masks)[order])

    def at(self, rows: torch.Tensor) -> Terms:
        """Some texts, by their places on the device."""
        return Terms(self.vectors[rows], self.mask[rows])


def paired(
    queries: Terms, query_rows: np.ndarray, docs: Terms, doc_rows: np.ndarray, numbers: int
) -> Iterator[tuple[Terms, Terms]]:
    """The terms of pairs, some pairs at a time.

    Args:
        queries: The queries' terms.
        query_rows: Which query each pair has, shape [m].
        docs: The documents' terms.
        doc_rows: Which document each pair has, shape [m].
        numbers: How many numbers of both sides and of their comparison are held at a time, at most (one pair may need more).

    Yields:
        Queries and documents of as many pairs as that allows, in order.
    """
    (_, asked, width), given = queries.vectors.shape, docs.vectors.shape[1]
    step = max(numbers // max((asked + given) * width + asked * given, 1), 1)
    of_queries, of_docs = moved(query_rows, queries.vectors.device), moved(doc_rows, docs.vectors.device)
    for start in range(0, len(query_rows), step):
        part = slice(start, start + step)
        yield queries.at(of_queries[part]), docs.at(of_docs[part])
