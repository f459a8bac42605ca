"""The largest logit of each term over the tokens of a text, on which SPLADE is trained, without keeping all tokens' logits.

Imported only when a sparse encoder is trained: it needs torch.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable


class _LargestLogits(torch.autograd.Function):
    """Forward keeps the position of each term's largest logit; only this position gets a gradient."""

    @staticmethod
    def forward(
        ctx: Any, states: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        found, tokens = [], []
        for own, counts in zip(states, mask.bool()):
            read = counts.nonzero()[:, 0]
            largest, at = torch.nn.functional.linear(own[read], weight, bias).max(dim=0)
            found.append(largest)
            tokens.append(read[at])
        ctx.save_for_backward(states, weight, torch.stack(tokens))
        ctx.biased = bias is not None
        return torch.stack(found)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        states, weight, tokens = ctx.saved_tensors
        n, longest, width = states.shape
        rows, terms = gradient.nonzero(as_tuple=True)
        where = torch.stack([rows * longest + tokens[rows, terms], terms])
        # Every token's logits, of which all but a few have no gradient.
        sparse = torch.sparse_coo_tensor(
            where, gradient[rows, terms].to(weight.dtype), (n * longest, len(weight)), check_invariants=False
        )
        flat = states.reshape(-1, width).to(weight.dtype)
        of_states = torch.sparse.mm(sparse, weight).reshape(states.shape).to(states.dtype) if ctx.needs_input_grad[0] else None
        of_weight = torch.sparse.mm(sparse.t(), flat) if ctx.needs_input_grad[2] else None
        of_bias = gradient.sum(dim=0).to(weight.dtype) if ctx.biased and ctx.needs_input_grad[3] else None
        return of_states, None, of_weight, of_bias


def largest_logits(states: torch.Tensor, mask: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    r"""Compute the largest logit of each term over the tokens of a text, :math:`\max_i (w_j \cdot h_i + b_j)`, with gradients.

    Memory holds the logits of one text at a time, and keeps none for the gradient. The gradient equals that of PyTorch's own
    operations: it reaches the token with a term's largest logit, or the first of several. If most weights are 0, as in SPLADE
    after some steps, the gradient costs almost nothing.

    Args:
        states: The head's states of each token, shape [n, tokens, width].
        mask: Which tokens count, at least one of each text, shape [n, tokens].
        weight: Weights of the terms, shape [terms, width].
        bias: Biases of the terms, shape [terms]; None for none.

    Returns:
        Shape [n, terms].

    Example:
        >>> import torch
        >>> states, mask = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1, 1, 0]])
        >>> largest_logits(states, mask, torch.tensor([[2.0], [-1.0]]), None)
        tensor([[ 6., -1.]])

    When not to use it: on a GPU, where the order of additions in sparse products may vary between runs; for second derivatives.
    """
    found: torch.Tensor = _LargestLogits.apply(states, mask, weight, bias)
    return found
