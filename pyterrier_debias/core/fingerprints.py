"""Fingerprints of the weights of networks. torch is imported when a network is given."""

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
        ``weights:`` and 32 hexadecimal digits, over names, types, shapes and values, the printed structure, and the settings of
        a sentence-transformers model beyond its weights.
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


def marks(module: torch.nn.Module) -> tuple[tuple[int, int], ...]:
    """A mark that changes when weights do: far cheaper than a hash, about the cost of scoring one pair.

    PyTorch counts how often a weight was written to, but not what fused optimisers and ``.data`` write; a replaced weight
    (``load_state_dict(assign=True)``) starts counting from 0. So the numbers themselves are summed too, with their bits read as
    integers: any change of one number is detected. Numbers exchanged through ``.data`` within one weight are not.

    Args:
        module: Any torch module.

    Returns:
        For each parameter and saved buffer the count and the sum.
    """
    import torch

    weights = [value for value in module.state_dict().values() if isinstance(value, torch.Tensor)]
    with torch.no_grad():
        found = [_sum_of_bits(value) for value in weights]
        # One wait for the device, not one for each weight.
        alike = len({value.device for value in found}) == 1
        sums = torch.stack(found).tolist() if alike else [int(value) for value in found]
    return tuple((0 if value.is_inference() else value._version, total) for value, total in zip(weights, sums))


def _sum_of_bits(weight: torch.Tensor) -> torch.Tensor:
    """The bits of a tensor read as 64-bit whole numbers, added up and wrapped."""
    import torch

    if weight.device.type not in ("cpu", "cuda"):
        weight = weight.cpu()
    numbers = weight.detach().reshape(-1).view(torch.uint8)
    short = -len(numbers) % 8
    if short or numbers.storage_offset() % 8:
        numbers = torch.cat([numbers, numbers.new_zeros(short)])
    return numbers.view(torch.int64).sum()
