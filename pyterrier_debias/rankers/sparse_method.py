"""How a sparse encoder is trained: the ranker's loss, and the regularisation that makes its vectors sparse.

Imported only when training begins: it needs torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from pyterrier_debias.training.method import Ranking


def flops(weights: torch.Tensor) -> torch.Tensor:
    r"""The FLOPS regularisation of a batch, :math:`\sum_j (\frac{1}{n} \sum_i w_{ij})^2`.

    It is a smooth approximation of the number of products that an inverted index computes for a pair. Source: Paria et al.,
    "Minimizing FLOPs to Learn Efficient Sparse Representations", ICLR 2020; Formal et al., SIGIR 2021.

    Args:
        weights: Weights of terms, not negative, shape [n, terms].

    Returns:
        A scalar.

    Example:
        >>> flops(torch.tensor([[1.0, 0.0], [3.0, 2.0]])).item()
        5.0

    When not to use it: to measure a finished index; :meth:`~pyterrier_debias.rankers.sparse_retriever.SparseRetriever.describe`
    counts the products themselves.
    """
    return weights.mean(dim=0).square().sum()


def grown(step: int, steps: int, warmup: float) -> float:
    """The share of the regularisation weight that applies at a step; it grows with the square of the step (SPLADE v2).

    Args:
        step: Number of steps done.
        steps: Steps of the whole run.
        warmup: Share of the steps (1 or below) or number of steps after which the share is 1.

    Returns:
        A number from 0 to 1.

    Example:
        >>> [grown(step, 300, 1 / 3) for step in (0, 50, 100, 200)]
        [0.0, 0.25, 1.0, 1.0]

    When not to use it: for learning rates, which grow linearly with ``Training(warmup=...)``.
    """
    until = warmup * steps if warmup <= 1 else warmup
    return min(1.0, step / until) ** 2 if until > 0 else 1.0


class SparseRanking(Ranking):
    """Training method of a sparse encoder: its loss plus the FLOPS regularisation of the batch's vectors.

    The vector of a query or document counts as often as it occurs in the pairs of the batch; each process of a distributed run
    computes its own regularisation.
    """

    #: Vectors of the queries and documents that were scored last, until :meth:`penalties` has read them.
    _seen: tuple[torch.Tensor, torch.Tensor] | None = None

    def scored(self, texts: Mapping[str, torch.Tensor], *, matrix: bool) -> torch.Tensor:
        """The scores; vectors with a gradient are kept for :meth:`penalties`."""
        queries, docs = self.ranker._both(dict(texts))
        if self.training and torch.is_grad_enabled():
            self._seen = queries["sentence_embedding"], docs["sentence_embedding"]
        return self.ranker.matrix_of(queries, docs) if matrix else self.ranker.similarity_of(queries, docs)

    def penalties(self, step: int, steps: int) -> dict[str, torch.Tensor]:
        """``query_penalty`` and ``document_penalty``: the FLOPS of the texts scored last, times their weights at this step."""
        seen, self._seen = self._seen, None
        if seen is None:
            return {}
        share = grown(step, steps, self.ranker.flops_warmup)
        weights: dict[str, Any] = {"query": self.ranker.query_flops, "document": self.ranker.document_flops}
        return {f"{name}_penalty": share * weight * flops(vectors) for (name, weight), vectors in zip(weights.items(), seen)}
