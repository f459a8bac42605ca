"""The fast path: BERT-like encoders without padding, and only the part of the last layer that is needed.

In a padded batch, padding is multiplied by every weight. Here the tokens of all sequences are in one matrix, one after the other:
linear layers, activations and layer norms process this matrix, and attention processes runs of sequences of equal length, which
are adjacent because the engine sorts them. Where only the first token's state is read ([CLS] heads), the last layer computes keys
and values for all tokens and everything else for the first ones.

BERT, RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA have the same kind of layer and are supported; every other architecture, and any
of these whose layers were replaced (adapters, quantisation), uses the standard path of Hugging Face. The results of both agree
within the rounding of the number format.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

#: Encoder classes with BERT's layers, by name, so that asking needs no import.
_BERT_SHAPED = {"BertModel", "RobertaModel", "XLMRobertaModel", "CamembertModel", "ElectraModel"}

#: Those of them whose first position comes after the padding token's id.
_OFFSET_POSITIONS = {"RobertaModel", "XLMRobertaModel", "CamembertModel"}


class PackedBert:
    """Runs a BERT-shaped encoder on packed sequences, in inference only.

    It holds no weights of its own: it reads those of the encoder at every call, so that training the encoder needs no rebuilding.

    Args:
        encoder: A Hugging Face ``BertModel`` or another one for which :meth:`supports` is true, in eval mode.

    Example::

        packed = PackedBert(encoder)
        ids, types, lengths = sequences.packed(indices)        # Sequences of the engine
        states = packed.hidden(ids, types, lengths)            # [sum of lengths, hidden]
        means = packed.mean(ids, types, lengths)               # [n, hidden], mean pooling as sentence-transformers do it
        firsts = packed.first(ids, types, lengths)             # [n, hidden], the [CLS] states, cheaper than hidden()

    When not to use it: where gradients, attention weights or the states of other layers are needed.
    """

    def __init__(self, encoder: Any):
        self.encoder = encoder
        self._offset = encoder.config.pad_token_id + 1 if type(encoder).__name__ in _OFFSET_POSITIONS else 0
        self._exact_gelu = encoder.config.hidden_act == "gelu"

    @classmethod
    def supports(cls, encoder: Any) -> bool:
        """Whether this module knows how to run an encoder.

        Args:
            encoder: Any torch module.

        Returns:
            True for a BERT-shaped encoder with its own, unreplaced linear layers and no forward hooks.
        """
        import torch

        if type(encoder).__name__ not in _BERT_SHAPED or getattr(encoder.config, "is_decoder", False):
            return False
        if getattr(encoder.config, "position_embedding_type", "absolute") not in (None, "absolute"):
            return False
        if any(module._forward_hooks or module._forward_pre_hooks for module in encoder.modules()):
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
        """States of all tokens after the last layer.

        Args:
            ids: Token ids of all sequences, one after the other, shape [sum of lengths].
            types: Token type ids, same shape.
            lengths: Tokens of each sequence, shape [n]; sequences of one length should stand side by side, which is what makes
                attention fast.

        Returns:
            Tensor of shape [sum of lengths, hidden], on the encoder's device and in its number format.
        """
        states = self._embed(ids, types, lengths)
        for layer in self.encoder.encoder.layer:
            states = self._layer(layer, states, lengths)
        return states

    def first(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        """States of each sequence's first token after the last layer; arguments as in :meth:`hidden`.

        Returns:
            Tensor of shape [n, hidden].
        """
        states = self._embed(ids, types, lengths)
        *inner, last = self.encoder.encoder.layer
        for layer in inner:
            states = self._layer(layer, states, lengths)
        return self._layer(last, states, lengths, first_only=True)

    def mean(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray, skip: int = 0) -> torch.Tensor:
        """Mean over each sequence's token states, special tokens included; arguments as in :meth:`hidden`.

        Args:
            ids: See :meth:`hidden`.
            types: See :meth:`hidden`.
            lengths: See :meth:`hidden`.
            skip: Tokens at the start of each sequence that are left out.

        Returns:
            Tensor of shape [n, hidden].
        """
        states = self.hidden(ids, types, lengths)
        return means(states.float(), lengths, skip).to(states.dtype)

    def _embed(self, ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> torch.Tensor:
        import torch

        device = self.encoder.device
        starts = np.cumsum(lengths) - lengths
        positions = np.arange(len(ids)) - np.repeat(starts, lengths) + self._offset
        tensors = (torch.from_numpy(np.ascontiguousarray(a)).to(device)[None] for a in (ids, types, positions))
        input_ids, token_type_ids, position_ids = tensors
        states = self.encoder.embeddings(input_ids=input_ids, token_type_ids=token_type_ids, position_ids=position_ids)
        if hasattr(self.encoder, "embeddings_project"):
            states = self.encoder.embeddings_project(states)
        return states[0]

    def _layer(self, layer: Any, states: torch.Tensor, lengths: np.ndarray, first_only: bool = False) -> torch.Tensor:
        """One transformer layer over packed states: [tokens, hidden] to the same, or to [n, hidden] for first tokens."""
        import torch

        attention, out, inner = layer.attention.self, layer.attention.output, layer.intermediate
        read = states
        if first_only:
            read = states[torch.from_numpy(np.cumsum(lengths) - lengths).to(states.device)]
        query, key, value = _linear(attention.query, read), _linear(attention.key, states), _linear(attention.value, states)
        mixed = _attend(query, key, value, lengths, attention.num_attention_heads, first_only)
        read = out.LayerNorm(_linear(out.dense, mixed).add_(read))
        wide = _linear(inner.dense, read)
        # The widest matrix of the model is activated where it stands: a second one costs page faults.
        wide = torch.ops.aten.gelu_(wide) if self._exact_gelu else inner.intermediate_act_fn(wide)
        return layer.output.LayerNorm(_linear(layer.output.dense, wide).add_(read))


@cache
def _onednn() -> dict[torch.dtype, Any]:
    """Number formats that the processor's oneDNN kernels take, with the operator: PyTorch's own compiler calls it too."""
    import torch

    try:
        operator, has_bfloat16 = torch.ops.mkldnn._linear_pointwise, torch.ops.mkldnn._is_mkldnn_bf16_supported()
    except (AttributeError, RuntimeError):  # A PyTorch without oneDNN.
        return {}
    return {torch.float32: operator, **({torch.bfloat16: operator} if has_bfloat16 else {})}


def _linear(layer: Any, states: torch.Tensor) -> torch.Tensor:
    """A linear layer; on the processor straight through oneDNN, which gains 5 to 10 % over the way that ``layer`` takes."""
    operator = _onednn().get(states.dtype) if states.device.type == "cpu" else None
    return layer(states) if operator is None else operator(states, layer.weight, layer.bias, "none", [], "")


def _runs(lengths: np.ndarray) -> list[tuple[int, int]]:
    """Runs of equal lengths: (length, how many), in order."""
    edges = np.flatnonzero(np.diff(lengths, prepend=-1, append=-1))
    return [(int(lengths[start]), int(end - start)) for start, end in pairwise(edges)]


def means(states: torch.Tensor, lengths: np.ndarray, skip: int = 0) -> torch.Tensor:
    """Means over each sequence's states: one for each run of equal lengths, so that every device has the kernel.

    Args:
        states: States of all sequences, one after the other, shape [sum of lengths, hidden].
        lengths: Tokens of each sequence, shape [n].
        skip: Tokens at the start of each sequence that are left out.

    Returns:
        Tensor of shape [n, hidden]; a mean depends on its own sequence only, and is 0 over no tokens.
    """
    import torch

    parts, token = [], 0
    for length, count in _runs(lengths):
        run = states[token : token + count * length].view(count, length, states.shape[1])[:, skip:]
        parts.append(run.mean(dim=1) if length > skip else run.sum(dim=1))
        token += count * length
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, lengths: np.ndarray, heads: int, first_only: bool
) -> torch.Tensor:
    """Attention within each sequence: one call for each run of sequences of equal length, none of which needs a mask."""
    import torch

    width = query.shape[-1] // heads
    parts, token, row = [], 0, 0
    for length, count in _runs(lengths):
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
