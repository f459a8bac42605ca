"""The fast path: BERT-like encoders without padding, and with only the part of the last layer that is needed.

In a padded batch, padding is multiplied by every weight. Here the tokens of all sequences are in one matrix, one after the other:
linear layers, activations and layer norms process this matrix, and attention processes runs of sequences of equal length, which
are adjacent because the engine sorts them. In half precision on CUDA, one kernel processes all lengths (for heads with a width
that is a multiple of 8, up to 256). If only the first token's state is read ([CLS] heads), the last layer computes keys and
values for all tokens, and everything else only for the first ones. Pooled vectors are float32, even if layers compute in half
precision.

BERT, RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA have the same kind of layer and are supported; every other architecture, and any
of these whose layers were replaced (adapters, quantisation), uses the standard path of Hugging Face. The results of both agree
within the rounding of the number format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_debias.rankers.engine import moved

if TYPE_CHECKING:
    import torch

#: Encoder classes with BERT's layers, by name, so that a check needs no import.
_BERT_SHAPED = {"BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel"}

#: Encoder classes among them whose first position comes after the padding token's id.
_OFFSET_POSITIONS = {"RobertaModel", "XLMRobertaModel", "CamembertModel"}


def hooked(modules: Iterable[torch.nn.Module]) -> bool:
    """Whether a module has a hook on its forward pass, which the fast path would not call.

    Args:
        modules: The modules to check; their submodules are not checked.

    Returns:
        True if any of them has a hook.
    """
    return any(module._forward_hooks or module._forward_pre_hooks for module in modules)


class PackedBert:
    """Runs a BERT-shaped encoder on packed sequences, for inference only.

    It has no weights of its own: it reads those of the encoder at every call, so it stays valid after the encoder is trained.

    Args:
        encoder: A Hugging Face ``BertModel``, or another encoder for which :meth:`supports` is true, in eval mode.

    Example::

        packed = PackedBert(encoder)
        ids, types, lengths = sequences.packed(indices)        # Sequences of the engine
        states = packed.hidden(ids, types, lengths)            # [sum of lengths, hidden]
        means = packed.mean(ids, types, lengths)               # [n, hidden], mean pooling as sentence-transformers do it
        firsts = packed.first(ids, types, lengths)             # [n, hidden], the [CLS] states, cheaper than hidden()

    When not to use it: if gradients, attention weights or the states of other layers are needed.
    """

    def __init__(self, encoder: Any):
        self.encoder = encoder
        self._padding = encoder.config.pad_token_id if type(encoder).__name__ in _OFFSET_POSITIONS else None

    @classmethod
    def supports(cls, encoder: Any) -> bool:
        """Whether this class can run an encoder.

        Args:
            encoder: Any torch module.

        Returns:
            True for a BERT-shaped encoder with its own, unreplaced linear layers, attention with heads and a scale as usual, and
            no forward hooks.
        """
        import torch

        if type(encoder).__name__ not in _BERT_SHAPED or getattr(encoder.config, "is_decoder", False):
            return False
        if getattr(encoder.config, "position_embedding_type", "absolute") not in (None, "absolute"):
            return False
        if hooked(encoder.modules()):
            return False
        heads = encoder.config.num_attention_heads
        width = encoder.config.hidden_size // heads
        usual = {"num_attention_heads": heads, "attention_head_size": width, "scaling": width**-0.5}
        parts = [layer.attention.self for layer in encoder.encoder.layer]
        if any(getattr(part, name, value) != value for part in parts for name, value in usual.items()):
            return False
        return all(
            type(linear) is torch.nn.Linear
            for layer in encoder.encoder.layer
            for linear in (
                layer.attention.self.query,
                layer.attention.self.key,
                layer.attention.self.value,
                layer.attention.output.dense,
                layer.intermediate.dense,
                layer.output.dense,
            )
        )

    def hidden(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        """Compute the states of all tokens after the last layer.

        Args:
            ids: Token ids of all sequences, one after the other, shape [sum of lengths].
            types: Token type ids, same shape.
            lengths: Tokens of each sequence, shape [n]; attention is fast only if sequences of equal length are adjacent.

        Returns:
            Tensor of shape [sum of lengths, hidden], on the encoder's device and in its number format.
        """
        return self._states(ids, types, lengths)

    def first(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        """Compute the state of each sequence's first token after the last layer; arguments as in :meth:`hidden`.

        Returns:
            Tensor of shape [n, hidden]; float32 if the encoder computes in half precision.
        """
        return self._states(ids, types, lengths, first_only=True, full=True)

    def mean(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray, skip: int = 0) -> torch.Tensor:
        """Compute the mean over each sequence's token states, special tokens included; arguments as in :meth:`hidden`.

        Args:
            ids: See :meth:`hidden`.
            types: See :meth:`hidden`.
            lengths: See :meth:`hidden`.
            skip: Number of tokens at the start of each sequence to leave out.

        Returns:
            Tensor of shape [n, hidden]; float32 if the encoder computes in half precision.
        """
        return means(self._states(ids, types, lengths, full=True), lengths, skip)

    def _states(
        self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray, *, first_only: bool = False, full: bool = False
    ) -> torch.Tensor:
        """States after the last layer, of all tokens or of first ones; ``full``: the last sum and norm are in float32."""
        states, attend = self._embed(ids, types, lengths), self._attention(lengths)
        *inner, last = self.encoder.encoder.layer
        for layer in inner:
            states = self._layer(layer, states, attend)
        firsts = moved(np.cumsum(lengths) - lengths, states.device) if first_only else None
        return self._layer(last, states, attend, firsts, full=full)

    def _embed(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        positions = _positions(ids, lengths, self._padding)
        # One copy to the device: each costs as much as several kernels.
        input_ids, token_type_ids, position_ids = moved(np.stack([ids, types, positions])[:, None], self.encoder.device)
        states = self.encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids)
        if hasattr(self.encoder, "embeddings_project"):
            states = self.encoder.embeddings_project(states)
        return states[0]

    def _attention(self, lengths: np.ndarray) -> Callable[..., torch.Tensor]:
        """Attention within each sequence, by the method that suits the device."""
        device, dtype = self.encoder.device, self.encoder.dtype
        width = self.encoder.config.hidden_size // self.encoder.config.num_attention_heads
        kernel = _varlen(device.type, dtype) if _takes_width(width) else None
        return _Runs(lengths) if kernel is None else _Varlen(kernel, lengths, device)

    def _layer(
        self,
        layer: Any,
        states: torch.Tensor,
        attend: Callable[..., torch.Tensor],
        firsts: torch.Tensor | None = None,
        *,
        full: bool = False,
    ) -> torch.Tensor:
        """One transformer layer over packed states: [tokens, hidden] to the same, or to [n, hidden] for first tokens."""
        import torch

        attention, out, inner = layer.attention.self, layer.attention.output, layer.intermediate
        read = states if firsts is None else states[firsts]
        query, key, value = _linear(attention.query, read), _linear(attention.key, states), _linear(attention.value, states)
        mixed = attend(query, key, value, attention.num_attention_heads, firsts is not None)
        read = out.LayerNorm(_linear(out.dense, mixed).add_(read))
        wide = _linear(inner.dense, read)
        # The widest matrix of the model is activated where it stands: a second one costs page faults.
        activation = inner.intermediate_act_fn
        exact_gelu = getattr(activation, "act", None) is torch.nn.functional.gelu
        wide = torch.ops.aten.gelu_(wide) if exact_gelu else activation(wide)
        found, norm = _linear(layer.output.dense, wide), layer.output.LayerNorm
        if full and found.dtype != torch.float32:
            return in_float32(norm, found.float().add_(read))
        return norm(found.add_(read))


def in_float32(module: torch.nn.Module, *inputs: Any) -> Any:
    """Run a small module in float32, whatever the format of its weights; half precision would round pooled vectors too much.

    Args:
        module: A head, or a norm.
        inputs: Its inputs.

    Returns:
        Its output.
    """
    import torch

    weights = dict([*module.named_parameters(), *module.named_buffers()])
    if not any(weight.dtype in (torch.bfloat16, torch.float16) for weight in weights.values()):
        return module(*inputs)
    weights = {name: weight.float() if weight.is_floating_point() else weight for name, weight in weights.items()}
    return torch.func.functional_call(module, weights, inputs)


@cache
def onednn_operators() -> dict[torch.dtype, Any]:
    """Number formats that the CPU's oneDNN kernels accept, with the operator, which PyTorch's own compiler calls too."""
    import torch

    try:
        operator, has_bfloat16 = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except (AttributeError, RuntimeError):  # A PyTorch without oneDNN.
        return {}
    return {torch.float32: operator, **({torch.bfloat16: operator} if has_bfloat16 else {})}


def _linear(layer: Any, states: torch.Tensor) -> torch.Tensor:
    """A linear layer; on the CPU it calls oneDNN directly, which is 5 to 10 % faster than calling ``layer``."""
    operator = onednn_operators().get(states.dtype) if states.device.type == "cpu" else None
    return layer(states) if operator is None else operator(states, layer.weight, layer.bias, "none", [], "")


def _positions(ids: np.ndarray, lengths: np.ndarray, padding: int | None) -> np.ndarray:
    """Compute each token's position within its sequence, as the encoder's own code does.

    Args:
        ids: Token ids of all sequences, one after the other, shape [sum of lengths].
        lengths: Tokens of each sequence, shape [n].
        padding: The padding token's id if positions are counted from the number after it, else None. A text may contain that
            token itself ("<pad>"): it is not counted and has the position of padding, as in RoBERTa's code.

    Returns:
        Positions, shape [sum of lengths].
    """
    starts = np.cumsum(lengths) - lengths
    if padding is None:
        return np.arange(len(ids)) - np.repeat(starts, lengths)
    counted = ids != padding
    count = np.concatenate([[0], np.cumsum(counted)])
    return np.where(counted, count[1:] - np.repeat(count[starts], lengths), 0) + padding


def _runs(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Runs of equal lengths: (length, count), in order."""
    edges = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1))
    return [(int(lengths[start]), int(end - start)) for start, end in pairwise(edges)]


def means(states: torch.Tensor, lengths: np.ndarray, skip: int = 0) -> torch.Tensor:
    """Compute the mean over each sequence's states, with one operation per run of equal lengths, which every device supports.

    Args:
        states: States of all sequences, one after the other, shape [sum of lengths, hidden].
        lengths: Tokens of each sequence, shape [n].
        skip: Number of tokens at the start of each sequence to leave out.

    Returns:
        Tensor of shape [n, hidden]; a mean depends only on its own sequence, and is 0 over no tokens.
    """
    import torch

    parts, token = [], 0
    for length, count in _runs(lengths):
        run = states[token : token + count * length].view(count, length, states.shape[1])[:, skip:]
        parts.append(run.mean(dim=1) if length > skip else run.sum(dim=1))
        token += count * length
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Runs:
    """Attention in one call for each run of sequences of equal length, so that no mask is needed.

    Args:
        lengths: Tokens of each sequence, shape [n].
    """

    def __init__(self, lengths: np.ndarray):
        self.runs = _runs(lengths)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, first_only: bool
    ) -> torch.Tensor:
        """Mix values [tokens, hidden]; queries and results are those of all tokens, or of first tokens."""
        import torch

        width = query.shape[-1] // heads
        parts, token, row = [], 0, 0
        for length, count in self.runs:
            read = 1 if first_only else length
            tokens, rows = slice(token, token + count * length), slice(row, row + count * read)
            token, row = tokens.stop, rows.stop
            found = torch.nn.functional.scaled_dot_product_attention(
                query[rows].view(count, read, heads, width).transpose(1, 2),
                key[tokens].view(count, length, heads, width).transpose(1, 2),
                value[tokens].view(count, length, heads, width).transpose(1, 2),
            )
            parts.append(found.transpose(1, 2).reshape(count * read, heads * width))
        return parts[0] if len(parts) == 1 else torch.cat(parts)


class _Varlen:
    """Attention in one call for sequences of any lengths.

    Args:
        kernel: What :func:`_varlen` returns.
        lengths: Tokens of each sequence, shape [n].
        device: The device on which it computes.
    """

    def __init__(self, kernel: Callable[..., Any], lengths: np.ndarray, device: torch.device):
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        self.kernel = kernel
        self.ends, self.longest = moved(ends, device), int(lengths.max())
        self.ones = moved(np.arange(len(lengths) + 1, dtype=np.int32), device)

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int, first_only: bool
    ) -> torch.Tensor:
        """The same as :meth:`_Runs.__call__`."""
        query, key, value = (states.view(len(states), heads, -1) for states in (query, key, value))
        asked, most = (self.ones, 1) if first_only else (self.ends, self.longest)
        found: torch.Tensor = self.kernel(query, key, value, asked, self.ends, most, self.longest)
        return found.reshape(len(found), -1)


def _takes_width(width: int) -> bool:
    """Whether that kernel accepts heads of a width: called directly, it does not pad others, as torch's attention does."""
    return width % 8 == 0 and width <= 256


@cache
def _varlen(device: str, dtype: torch.dtype) -> Callable[..., Any] | None:
    """The kernel for sequences of any lengths, ``torch.nn.attention.varlen.varlen_attn``; None where there is none."""
    import inspect

    import torch

    if device != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return None
    try:
        from torch.nn.attention.varlen import varlen_attn

        named = inspect.signature(varlen_attn).parameters
        flash = torch.cuda.get_device_capability() >= (8, 0) and torch.backends.cuda.flash_sdp_enabled()
    except (ImportError, RuntimeError, ValueError):
        return None
    if not flash:
        return None
    # Keys are never split over blocks, so that a sequence's result does not depend on the longest one of the batch. Before
    # torch 2.12 there is no such option, and keys are not split.
    return partial(varlen_attn, num_splits=1) if "num_splits" in named else varlen_attn
