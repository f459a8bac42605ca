"""What tells the weights of one network from those of another. Floor 1. No torch before a network is there."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def weights_fingerprint(module: torch.nn.Module) -> str:
    """A hash of all weights and of how the module computes with them.

    Args:
        module: Any torch module.

    Returns:
        ``weights:`` and 32 hexadecimal digits, over names, types, shapes and values, the printed structure, and what a
        sentence-transformers model knows beyond its weights.
    """
    return _hash(structure_of(module), module.state_dict().items())


def trainable_fingerprint(module: torch.nn.Module) -> str:
    """A hash of the weights that training can change, wherever the module lies and however it is printed.

    Args:
        module: Any torch module.

    Returns:
        As :func:`weights_fingerprint`.
    """
    return _hash("", ((name, value) for name, value in module.named_parameters() if value.requires_grad))


def structure_of(module: torch.nn.Module) -> str:
    """How a module computes with its weights: its printed form, and what sentence-transformers keeps beside it."""
    beyond = [getattr(module, name, None) for name in ("prompts", "default_prompt_name", "truncate_dim", "max_seq_length")]
    return f"{module!r} {beyond}"


def _hash(structure: str, weights: Iterable[tuple[str, torch.Tensor]]) -> str:
    import torch

    state = blake2b(digest_size=16)
    state.update(structure.encode())
    for name, value in sorted(weights, key=lambda pair: pair[0]):
        if not isinstance(value, torch.Tensor):
            continue
        state.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        state.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return f"weights:{state.hexdigest()}"
