"""Padded term vectors of many texts, and their pairs, which late-interaction rankers compare."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from pyterrier_debias.rankers.engine import moved

if TYPE_CHECKING:
    import torch


class Terms(NamedTuple):
    """Texts as the vectors of their terms. They stay padded, because cutting each to its own length would wait for the device.

    Attributes:
        vectors: Shape [n, longest, d].
        mask: Which of the vectors count, bool, shape [n, longest].
    """

    vectors: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def joined(cls, found: Iterator[tuple[np.ndarray, Terms]]) -> Self:
        """Join the terms of all texts, in their order.

        Args:
            found: The places of the texts of each batch, and their terms.

        Returns:
            One batch, padded to the longest text.
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
    """Iterate over the terms of pairs, some pairs at a time.

    Args:
        queries: The queries' terms.
        query_rows: Index of each pair's query, shape [m].
        docs: The documents' terms.
        doc_rows: Index of each pair's document, shape [m].
        numbers: Largest number of values, of both sides and their comparison, to hold at a time (one pair may need more).

    Yields:
        Queries and documents of as many pairs as ``numbers`` allows, in order.
    """
    (_, asked, width), given = queries.vectors.shape, docs.vectors.shape[1]
    step = max(numbers // max((asked + given) * width + asked * given, 1), 1)
    of_queries, of_docs = moved(query_rows, queries.vectors.device), moved(doc_rows, docs.vectors.device)
    for start in range(0, len(query_rows), step):
        part = slice(start, start + step)
        yield queries.at(of_queries[part]), docs.at(of_docs[part])
