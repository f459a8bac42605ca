"""TK, the Transformer-Kernel ranker, as a Hugging Face model.

Importing this module registers the architecture with ``AutoConfig`` and ``AutoModel``. Because it imports torch, it is imported
only when a model is created or loaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput

from pyterrier_debias.core.errors import InputError, check_choice

# It keeps transformers' own way of tying weights, so it is imported before any model is loaded.
from pyterrier_debias.rankers import tying  # noqa: F401
from pyterrier_debias.training.method import Ranking

CONVENTIONS = ("paper", "released_v2", "released_v1")
POSITIONAL = ("absolute", "vaswani", "relative", "shaw", "none")

#: Centres of the eleven kernels of the released code. There is none at -1, although the paper's text counts from -1 to +1.
KERNEL_MU = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
KERNEL_SIGMA = 0.1
#: Eleven centres at equal distances from -1 to +1, as in the paper's text: ``config={"kernel_mu": PRINTED_MU}``.
PRINTED_MU = (1.0, 0.8, 0.6, 0.4, 0.2, 0.0, -0.2, -0.4, -0.6, -0.8, -1.0)

#: The smallest value of a kernel's sum before its logarithm, so that the score of a passage without any match stays finite.
FLOOR = 1e-10


class TKConfig(PreTrainedConfig):
    """The configuration of a TK model: its sizes, positions and convention.

    Three conventions differ in the layers and in how the score follows from the eleven kernel sums K_k(i) of query term i:

    ===============  ======================================  =========================================  ================
    ``convention``   score                                   layer                                      documents start
    ===============  ======================================  =========================================  ================
    ``paper``        sum_k w_k sum_i ln K_k(i)               attention, then feed-forward               at 500
    ``released_v2``  sum_k w_k sum_i ln(f_k K_k(i)),         attention, then feed-forward               at 500
                     f_k learned, from 1
    ``released_v1``  a sum_k w_k sum_i s log2 K_k(i) +       feed-forward, then attention; attention    at 0
                     b sum_k v_k sum_i s K_k(i) / (n + 1),   is scaled by sqrt(d // heads), the first
                     all learned, s from .01; n terms of     feed-forward has no residual
                     the passage
    ===============  ======================================  =========================================  ================

    In all of them, a sum is at least 1e-10 before the logarithm. Sizes are the paper's and not part of the convention: the
    released configurations have 10 heads that share the width d (``num_attention_heads=10, head_dim=30`` at d = 300) and
    feed-forward layers of 100 (v1) or 300 (v2). The 32 in v1's configuration is the width of all heads together, which would be
    ``head_dim=2`` with the paper's 16 heads.

    Args:
        vocab_size: Rows of the embedding table.
        hidden_size: d, the width of an embedding.
        num_hidden_layers: Layers of the contextualiser.
        num_attention_heads: Heads of a layer.
        head_dim: Width of a head; queries, keys and values are projected to heads x width, for any d.
        intermediate_size: Width inside the feed-forward parts.
        convention: A name from the table.
        positional: ``'absolute'`` adds the released code's table of sines and cosines; ``'vaswani'`` adds the table of Vaswani et
            al. 2017 (:func:`interleaved_table`); ``'relative'`` gives attention a learned number for each head and distance
            instead; ``'shaw'`` gives each layer two learned vectors for each distance, one added to keys and one to values,
            shared by its heads (Shaw et al. 2018, Equations 3 and 4); ``'none'`` uses no positions, so that a term's vector does
            not depend on the term's position.
        document_shift: The table's row for a document's first term; queries start at 0. None for the convention's own.
        max_distance: Distances beyond it share one number or vector, for ``'relative'`` and ``'shaw'``.
        max_position_embeddings: Longest text in tokens.
        mask_unknown: Whether unknown words are left out of attention and matching; they keep their place in any case.
        unk_token_id: The unknown word's id; needed for ``mask_unknown``.
        pad_token_id: The padding token's id.
        kernel_mu: Centres of the kernels.
        kernel_sigma: Width of the kernels.
        layer_norm_eps: Small number added to variances.

    Raises:
        InputError: For an unknown convention or kind of position.

    Example:
        >>> TKConfig(positional="none").document_shift
        500
    """

    model_type = "transformer_kernel"

    def __init__(
        self,
        vocab_size: int = 30522,
        hidden_size: int = 300,
        num_hidden_layers: int = 2,
        num_attention_heads: int = 16,
        head_dim: int = 32,
        intermediate_size: int = 100,
        convention: str = "paper",
        positional: str = "absolute",
        document_shift: int | None = None,
        max_distance: int = 32,
        max_position_embeddings: int = 512,
        mask_unknown: bool = False,
        unk_token_id: int | None = None,
        pad_token_id: int = 0,
        kernel_mu: Sequence[float] = KERNEL_MU,
        kernel_sigma: float = KERNEL_SIGMA,
        layer_norm_eps: float = 1e-5,
        **kwargs: Any,
    ):
        for option, value, known in (("convention", convention, CONVENTIONS), ("positional", positional, POSITIONAL)):
            check_choice("TK", option, value, known)
        if mask_unknown and unk_token_id is None:
            raise InputError("TK: mask_unknown=True needs unk_token_id")
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.head_dim = head_dim
        self.intermediate_size = intermediate_size
        self.convention = convention
        self.positional = positional
        self.document_shift = (0 if convention == "released_v1" else 500) if document_shift is None else document_shift
        self.max_distance = max_distance
        self.max_position_embeddings = max_position_embeddings
        self.mask_unknown = mask_unknown
        self.unk_token_id = unk_token_id
        self.kernel_mu = list(kernel_mu)
        self.kernel_sigma = kernel_sigma
        self.layer_norm_eps = layer_norm_eps
        super().__init__(**{"pad_token_id": pad_token_id, **kwargs})


@dataclass
class TKOutput(ModelOutput):
    """The output of :class:`TKModel`.

    Attributes:
        scores: Scores of pairs, shape [n]; None without queries.
        last_hidden_state: The documents' vectors after the gate, shape [n, longest, d]; zeros where a term does not count.
        hidden_states: With ``output_hidden_states``: the static embeddings with their positions, then the states after each layer
            (before the gate).
    """

    scores: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None


def positional_table(rows: int, dimensions: int) -> np.ndarray:
    r"""The released code's table of positions: sines in the first half of a row, cosines in the second.

    .. math:: e_{p,i} = \sin(p\,\lambda_i),\quad e_{p,h+i} = \cos(p\,\lambda_i),\quad
              \lambda_i = \exp(-i \ln(10^4) / (h - 1)),\quad h = \lfloor d/2 \rfloor,\ i = 0 \dots h-1

    An odd last dimension is 0. It is not the interleaved table of Vaswani et al. (2017), whose scales are
    :math:`10^{-4 \cdot 2i/d}`.

    Args:
        rows: Positions 0 to rows - 1.
        dimensions: d, at least 4.

    Returns:
        float32, shape [rows, d].

    Example:
        >>> positional_table(2, 5).astype(float).round(4).tolist()
        [[0.0, 0.0, 1.0, 1.0, 0.0], [0.8415, 0.0001, 0.5403, 1.0, 0.0]]
    """
    half = dimensions // 2
    scales = np.exp(-np.arange(half) * math.log(1e4) / (half - 1))
    angles = np.arange(rows)[:, None] * scales
    table = np.zeros((rows, dimensions), dtype=np.float32)
    table[:, :half], table[:, half : 2 * half] = np.sin(angles), np.cos(angles)
    return table


def interleaved_table(rows: int, dimensions: int) -> np.ndarray:
    r"""The table of positions of Vaswani et al. (2017), in which a sine and its cosine are adjacent.

    .. math:: e_{p,2i} = \sin(p / 10^{4 \cdot 2i/d}),\quad e_{p,2i+1} = \cos(p / 10^{4 \cdot 2i/d})

    An odd last dimension is a sine.

    Args:
        rows: Positions 0 to rows - 1.
        dimensions: d.

    Returns:
        float32, shape [rows, d].

    Source: Vaswani et al., "Attention Is All You Need", NeurIPS 2017, Section 3.5.

    When not to use it: for weights that were trained with the released code, whose table is :func:`positional_table`.

    Example:
        >>> interleaved_table(2, 4).astype(float).round(3).tolist()
        [[0.0, 1.0, 0.0, 1.0], [0.841, 0.54, 0.01, 1.0]]
    """
    even = np.arange(0, dimensions, 2)
    angles = np.arange(rows)[:, None] * 10_000.0 ** (-even / dimensions)
    table = np.zeros((rows, dimensions), dtype=np.float32)
    table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)[:, : dimensions // 2]
    return table


#: The tables that are added to embeddings, by kind of position.
_TABLES = {"absolute": positional_table, "vaswani": interleaved_table}


@lru_cache(maxsize=16)
def _cached_table(kind: str, rows: int, dimensions: int) -> np.ndarray:
    return _TABLES[kind](rows, dimensions)


def clipped_offsets(length: int, limit: int, device: torch.device | None = None) -> torch.Tensor:
    """The distance j - i of each pair of positions, clipped to the limit and counted from 0: int64, shape [length, length].

    Example:
        >>> clipped_offsets(4, 1).tolist()
        [[1, 2, 2, 2], [0, 1, 2, 2], [0, 0, 1, 2], [0, 0, 0, 1]]
    """
    places = torch.arange(length, device=device)
    return (places[None, :] - places[:, None]).clamp(-limit, limit) + limit


def kernel_sums(
    cosines: torch.Tensor, mask: torch.Tensor, mu: Sequence[float], sigma: float | Sequence[float]
) -> torch.Tensor:
    r"""The soft counts of matches by their strength, :math:`K_k(i) = \sum_j \exp(-(c_{ij} - \mu_k)^2 / 2\sigma^2)` (Eq. 5, 6).

    Args:
        cosines: The match matrix of each pair, shape [n, query terms, document terms].
        mask: Which document terms count, bool, shape [n, document terms].
        mu: Centres of the kernels, K of them.
        sigma: One width for all kernels, or the width of each.

    Returns:
        Shape [n, query terms, K].

    Example:
        >>> kernel_sums(torch.tensor([[[1.0, 1.0, 0.3]]]), torch.tensor([[True, True, False]]), (1.0, 0.9), 0.1)
        tensor([[[2.0000, 1.2131]]])
    """
    # One kernel at a time: n x q x l numbers are held instead of K times as many.
    counts = mask[:, None, :].to(cosines.dtype)
    widths = [sigma] * len(mu) if isinstance(sigma, (int, float)) else sigma
    sums = [((cosines - m).square() * (-0.5 / s**2)).exp().mul(counts).sum(dim=-1) for m, s in zip(mu, widths, strict=True)]
    return torch.stack(sums, dim=-1)


class TKLayer(nn.Module):
    """One layer of the contextualiser, following the convention of :class:`TKConfig`.

    Args:
        config: The model's configuration.
        first: Whether it is the first layer.
    """

    def __init__(self, config: TKConfig, first: bool):
        super().__init__()
        d, inner = config.hidden_size, config.num_attention_heads * config.head_dim
        self.heads = config.num_attention_heads
        self.feed_forward_first = config.convention == "released_v1"
        self.residual = not (first and self.feed_forward_first)
        self.scale = (d // self.heads if self.feed_forward_first else config.head_dim) ** -0.5
        self.qkv = nn.Linear(d, 3 * inner)
        self.max_distance = config.max_distance
        self.by_vectors = config.positional == "shaw"
        if self.by_vectors:
            self.key_offsets = nn.Embedding(2 * config.max_distance + 1, config.head_dim)
            self.value_offsets = nn.Embedding(2 * config.max_distance + 1, config.head_dim)
        self.output = nn.Linear(inner, d)
        self.expand = nn.Linear(d, config.intermediate_size)
        self.contract = nn.Linear(config.intermediate_size, d)
        self.attention_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)
        if not self.feed_forward_first:
            self.feed_forward_norm = nn.LayerNorm(d, eps=config.layer_norm_eps)

    def attention(self, states: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Multi-head self-attention; ``bias`` is added to the logits, shape broadcastable to [n, heads, length, length]."""
        n, length, _ = states.shape
        query, key, value = self.qkv(states).view(n, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if self.by_vectors:
            mixed = self._with_offsets(query, key, value, bias)
        else:
            mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=self.scale)
        return self.output(mixed.transpose(1, 2).reshape(n, length, -1))

    def _with_offsets(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Attention with a vector for each distance added to keys and values (Shaw et al. 2018): [n, heads, length, width]."""
        offsets = clipped_offsets(query.shape[2], self.max_distance, query.device)
        logits = query @ key.transpose(2, 3) + torch.einsum("nhiw,ijw->nhij", query, self.key_offsets(offsets))
        weights = (logits * self.scale + bias).softmax(dim=-1)
        return weights @ value + torch.einsum("nhij,ijw->nhiw", weights, self.value_offsets(offsets))

    def forward(self, states: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Map states [n, length, d] to states of the same shape."""
        if self.feed_forward_first:
            fed = self.contract(nn.functional.relu(self.expand(states)))
            fed = fed + states if self.residual else fed
            return self.attention_norm(self.attention(fed, bias) + fed)
        states = self.attention_norm(states + self.attention(states, bias))
        return self.feed_forward_norm(states + self.contract(nn.functional.relu(self.expand(states))))


class TermEncoder(nn.Module):
    """Turns tokens into terms in context: static embeddings, positions, layers, gate (Eq. 4).

    Args:
        config: The model's configuration.
    """

    def __init__(self, config: TKConfig):
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(TKLayer(config, first=i == 0) for i in range(config.num_hidden_layers))
        if config.positional == "relative":
            self.distance_bias = nn.Embedding(2 * config.max_distance + 1, config.num_attention_heads)
        self.alpha = nn.Parameter(torch.empty(1))

    def forward(self, input_ids: torch.Tensor, mask: torch.Tensor, start: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Encode texts.

        Args:
            input_ids: Tokens, int64, shape [n, longest].
            mask: Which of the tokens are terms, bool.
            start: The table's row for the first token.

        Returns:
            Vectors after the gate, shape [n, longest, d], zeros where the mask is False; and the states: static embeddings with
            their positions, then the output of each layer.
        """
        static = self.embeddings(input_ids) * mask[..., None]
        if input_ids.shape[1] == 0:
            return static, (static,) * (len(self.layers) + 1)
        states = [static + self._positions(start, static) if self.config.positional in _TABLES else static]
        bias = self.attention_bias(mask, static.dtype)
        for layer in self.layers:
            states.append(layer(states[-1], bias))
        gated = self.alpha * static + (1 - self.alpha) * states[-1]
        return gated * mask[..., None], tuple(states)

    def _positions(self, start: int, like: torch.Tensor) -> torch.Tensor:
        """Rows of the table for the positions of a batch, shape [longest, d]."""
        rows = 512 * math.ceil((start + like.shape[1]) / 512)
        table = _cached_table(self.config.positional, rows, like.shape[2])[start : start + like.shape[1]]
        return torch.from_numpy(table).to(like.device, like.dtype)

    def attention_bias(self, mask: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Addend of attention logits: 0 for terms, a large negative number for other tokens, and the bias of distances."""
        # Finite, so that a text without any term gives no NaN, and within the range of float16.
        bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -1e4)[:, None, None, :]
        if self.config.positional != "relative":
            return bias
        offsets = clipped_offsets(mask.shape[1], self.config.max_distance, mask.device)
        return self.distance_bias(offsets).permute(2, 0, 1)[None] + bias


class KernelPooling(nn.Module):
    """Turns match matrices into scores, following the convention of :class:`TKConfig`.

    Args:
        config: The model's configuration.
    """

    def __init__(self, config: TKConfig):
        super().__init__()
        kernels = len(config.kernel_mu)
        self.mu, self.sigma, self.convention = tuple(config.kernel_mu), config.kernel_sigma, config.convention
        self.weights = nn.Parameter(torch.empty(kernels))
        if self.convention == "released_v2":
            self.factors = nn.Parameter(torch.empty(kernels))
        if self.convention == "released_v1":
            self.scaler = nn.Parameter(torch.empty(1))
            self.mean_weights = nn.Parameter(torch.empty(kernels))
            self.combine = nn.Parameter(torch.empty(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights as the released code does."""
        for weights in (self.weights, getattr(self, "mean_weights", None)):
            if weights is not None:
                init.uniform_(weights, -0.014, 0.014)
        if self.convention == "released_v2":
            init.ones_(self.factors)
        if self.convention == "released_v1":
            init.constant_(self.scaler, 0.01)
            init.uniform_(self.combine, -math.sqrt(0.5), math.sqrt(0.5))

    def forward(self, cosines: torch.Tensor, query_mask: torch.Tensor, document_mask: torch.Tensor) -> torch.Tensor:
        """Scores, shape [n], of match matrices [n, query terms, document terms] and the masks of their terms."""
        sums = kernel_sums(cosines, document_mask, self.mu, self.sigma)
        counts = query_mask[..., None].to(sums.dtype)
        if self.convention == "released_v2":
            sums = sums * self.factors.to(sums.dtype)
        logs = sums.clamp(min=FLOOR).log()
        by_log = (logs * counts).sum(dim=1) @ self.weights.to(sums.dtype)
        if self.convention != "released_v1":
            return by_log
        terms = document_mask.sum(dim=1)[:, None, None]
        by_mean = (sums / (terms + 1) * counts).sum(dim=1) @ self.mean_weights.to(sums.dtype)
        branches = torch.stack([by_log / math.log(2), by_mean], dim=1)
        return (branches @ self.combine.to(sums.dtype)) * self.scaler.to(sums.dtype)


class TKModel(PreTrainedModel):
    r"""The Transformer-Kernel model: cosines compare terms in context, and kernels count the cosines.

    .. math::

        \hat{t} &= \alpha\, t + (1 - \alpha)\, \mathrm{TF}(t + e) \quad\text{(Eq. 4, for terms of queries and of passages)} \\
        c_{ij} &= \cos(\hat{q}_i, \hat{d}_j), \qquad
        K_k(i) = \sum_j \exp\!\big(-(c_{ij} - \mu_k)^2 / 2\sigma^2\big) \quad\text{(Eq. 5)} \\
        s(q, d) &= \sum_k w_k \sum_i \ln K_k(i) \quad\text{(Eq. 6)}

    Query and passage share embeddings, contextualiser and :math:`\alpha` (learned, from .5). Scores do not depend on padding or
    on the rest of the batch. There is no dropout, as in the released code.

    Source: Hofstätter, Zlabinger and Hanbury, "Interpretable & Time-Budget-Constrained Contextualization for Re-Ranking", ECAI
    2020; as in Hofstätter et al., "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking", ECIR 2021.

    Args:
        config: Sizes and conventions.

    Example::

        model = TKModel(TKConfig(vocab_size=1000, hidden_size=64))
        model.save_pretrained("tk")
        AutoModel.from_pretrained("tk")(input_ids=ids, attention_mask=mask).last_hidden_state      # passages' vectors

    When not to use it: in a pipeline; :class:`~pyterrier_debias.TK` is the stage, with tokenizer, batches and checks.
    """

    config_class = TKConfig
    main_input_name = "input_ids"

    def __init__(self, config: TKConfig):
        super().__init__(config)
        if config.positional == "absolute" and config.hidden_size < 4:
            raise InputError(f"TK: positional='absolute' needs embeddings of at least 4 dimensions, not {config.hidden_size}")
        for name in ("hidden_size", "num_attention_heads", "head_dim", "intermediate_size"):
            value = getattr(config, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InputError(f"TK: {name}={value!r} must be a whole number of 1 or more")
        if config.convention == "released_v1" and config.hidden_size < config.num_attention_heads:
            raise InputError(
                f"TK: convention='released_v1' scales attention by the dimensions per head, and {config.hidden_size} dimensions "
                f"are fewer than {config.num_attention_heads} heads; give larger embeddings, or fewer heads in config"
            )
        self.terms = TermEncoder(config)
        self.pooling = KernelPooling(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, KernelPooling):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            init.ones_(module.weight)
            init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            init.normal_(module.weight, std=1.0 if module is self.terms.embeddings else 0.02)
        elif isinstance(module, TermEncoder):
            init.constant_(module.alpha, 0.5)

    def extra_repr(self) -> str:
        """Settings that are not in the weights; rankers distinguish models by them."""
        names = ["convention", "positional", "document_shift", "max_distance", "unk_token_id", "mask_unknown", "kernel_mu"]
        names += ["kernel_sigma", "layer_norm_eps", "num_attention_heads", "max_position_embeddings"]
        return ", ".join(f"{name}={getattr(self.config, name)!r}" for name in names)

    def get_input_embeddings(self) -> nn.Embedding:
        """The static embeddings."""
        return self.terms.embeddings

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the static embeddings."""
        self.terms.embeddings = cast(nn.Embedding, value)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        query_input_ids: torch.Tensor | None = None,
        query_attention_mask: torch.Tensor | None = None,
        output_hidden_states: bool = False,
    ) -> TKOutput:
        """Contextualise documents, and score them if queries are given.

        Args:
            input_ids: Documents, int64, shape [n, longest].
            attention_mask: 1 for tokens, 0 for padding, same shape; None for no padding.
            query_input_ids: Queries, shape [n, longest query].
            query_attention_mask: Their mask.
            output_hidden_states: Whether to return the states of all layers.

        Returns:
            The documents' vectors, and scores if queries are given.
        """
        mask = self.term_mask(input_ids, attention_mask)
        vectors, states = self.terms(input_ids, mask, self.config.document_shift)
        scores = None
        if query_input_ids is not None:
            queries, query_mask = self.represent(query_input_ids, query_attention_mask, query=True)
            scores = self.match(unit(queries), query_mask, unit(vectors), mask)
        return TKOutput(scores=scores, last_hidden_state=vectors, hidden_states=states if output_hidden_states else None)

    def term_mask(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> torch.Tensor:
        """Which tokens count as terms: not padding, and not unknown words if ``mask_unknown``. Bool, shape [n, longest]."""
        mask = torch.ones_like(input_ids, dtype=torch.bool) if attention_mask is None else attention_mask.bool()
        return mask & (input_ids != self.config.unk_token_id) if self.config.mask_unknown else mask

    def represent(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None = None, *, query: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors of terms after the gate (Eq. 4).

        Args:
            input_ids: Texts, int64, shape [n, longest].
            attention_mask: 1 for tokens, 0 for padding.
            query: Whether the texts are queries, whose positions start at 0.

        Returns:
            The vectors, shape [n, longest, d], zeros where the mask is False; and the mask, see :meth:`term_mask`.
        """
        mask = self.term_mask(input_ids, attention_mask)
        return self.terms(input_ids, mask, 0 if query else self.config.document_shift)[0], mask

    def match(
        self, queries: torch.Tensor, query_mask: torch.Tensor, documents: torch.Tensor, document_mask: torch.Tensor
    ) -> torch.Tensor:
        """Score pairs of represented texts (Eq. 5 and 6), in float32 or better.

        Args:
            queries: Unit vectors of query terms, shape [n, query terms, d].
            query_mask: Which query terms count, bool, shape [n, query terms].
            documents: Unit vectors of document terms, shape [n, document terms, d].
            document_mask: Which document terms count, bool, shape [n, document terms].

        Returns:
            Scores, shape [n].
        """
        with torch.autocast(queries.device.type, enabled=False):
            cosines = _full(queries) @ _full(documents).transpose(1, 2)
            return self.pooling(cosines, query_mask, document_mask)

    def match_all(
        self, queries: torch.Tensor, query_mask: torch.Tensor, documents: torch.Tensor, document_mask: torch.Tensor
    ) -> torch.Tensor:
        """Score each of n queries with each of m documents; arguments as for :meth:`match`. Shape [n, m]."""
        n, m = len(queries), len(documents)
        with torch.autocast(queries.device.type, enabled=False):
            cosines = torch.einsum("nqd,mld->nmql", _full(queries), _full(documents)).flatten(0, 1)
            scores = self.pooling(cosines, query_mask.repeat_interleave(m, dim=0), document_mask.repeat(n, 1))
        return scores.view(n, m)


class TKRanking(Ranking):
    """Training method of TK, with a separate learning rate for the weights of the kernels.

    The networks are ``terms`` (embeddings, layers and gate) and ``kernels``. The papers' rates are
    ``Training(learning_rate={"terms": 1e-4, "kernels": 1e-3})``; a single number applies to both.
    """

    def networks(self) -> dict[str, nn.Module]:
        """The two parts."""
        return {"terms": self.network.terms, "kernels": self.network.pooling}


def _full(vectors: torch.Tensor) -> torch.Tensor:
    """Half precision converted to float32."""
    return vectors.float() if vectors.dtype in (torch.bfloat16, torch.float16) else vectors


def unit(vectors: torch.Tensor) -> torch.Tensor:
    """Vectors divided by their Euclidean norms, in float32 or better; zeros stay zeros."""
    return nn.functional.normalize(_full(vectors), dim=-1, eps=1e-12)


AutoConfig.register(TKConfig.model_type, TKConfig, exist_ok=True)
AutoModel.register(TKConfig, TKModel, exist_ok=True)
