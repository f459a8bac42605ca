"""Scoring heads over encoders. Imported only when a model is loaded: it needs torch."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch.utils.checkpoint import checkpoint

from pyterrier_debias.core.errors import check_choice
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.rankers import whitening
from pyterrier_debias.rankers.packed import in_float32
from pyterrier_debias.rankers.tk_model import kernel_sums, unit
from pyterrier_debias.training.method import Ranking

#: How the linear output pools an encoder's token states.
POOLING = ("mean", "first")

#: How the vectors of a document's passages are aggregated.
AGGREGATES = ("max", "avg", "attention", "transformer")

#: KNRM's kernels: ten of width .1, and one for equal terms.
KNRM_MU = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
KNRM_SIGMA = (0.001, *[0.1] * 10)

#: Added to a kernel's sum before its logarithm, as in CEDR's public code.
KNRM_FLOOR = 1e-6

#: Files of the head, in addition to the encoder's own.
_ABOUT, _WEIGHTS = "pyterrier_debias.json", "head.safetensors"


class EncoderHead(torch.nn.Module):
    """Base class of an encoder with a head, saved as the encoder's ordinary folder with two additional small files.

    Args:
        encoder: A Hugging Face encoder.
    """

    def __init__(self, encoder: Any):
        super().__init__()
        self.encoder = encoder
        self.config = encoder.config

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the head in a saved folder."""

    @property
    @abstractmethod
    def on_top(self) -> torch.nn.Module:
        """The head: all weights that are not the encoder's own."""

    def about(self) -> dict[str, Any]:
        """The description of the head in a saved folder."""
        return {"head": self.name}

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the encoder as an ordinary model folder, with the head in two additional small files."""
        from safetensors.torch import save_file

        check_empty(folder, f"{type(self).__name__}.save_pretrained")
        self.encoder.save_pretrained(folder)
        save_file({name: value.contiguous() for name, value in self.on_top.state_dict().items()}, Path(folder) / _WEIGHTS)
        (Path(folder) / _ABOUT).write_text(json.dumps(self.about()) + "\n")

    @classmethod
    def saved_in(cls, model: str | Path) -> str | None:
        """The head's name in a folder or hub model that :meth:`save_pretrained` wrote; None for any other."""
        if _file_of(model, _ABOUT) is None or _file_of(model, _WEIGHTS) is None:
            return None
        return str(_read_about(model)["head"])

    def load_head(self, model: str | Path) -> None:
        """Load the head from a folder or hub model that :meth:`save_pretrained` wrote."""
        from safetensors.torch import load_file

        self.on_top.load_state_dict(load_file(cast(str, _file_of(model, _WEIGHTS))))


class PooledHead(EncoderHead):
    """An encoder with one linear output over its pooled token states.

    Args:
        encoder: A Hugging Face encoder.
        pooling: ``'mean'`` over the tokens, or ``'first'``, the first token's state.

    Attributes:
        classifier: The linear layer, hidden size to 1, initialised like BERT's own weights (normal with the configuration's
            ``initializer_range``, bias 0); or, after :meth:`whiten`, one after a whitening.
        whitened: Landmarks and kernel of the whitening; None without one.
    """

    whitened: tuple[int, str] | None = None

    def __init__(self, encoder: Any, pooling: str = "mean"):
        check_choice("PooledHead", "pooling", pooling, POOLING)
        super().__init__(encoder)
        self.pooling = pooling
        linear = torch.nn.Linear(encoder.config.hidden_size, 1, dtype=encoder.dtype)
        torch.nn.init.normal_(linear.weight, std=getattr(encoder.config, "initializer_range", 0.02))
        torch.nn.init.zeros_(linear.bias)
        self.classifier: Any = linear

    def whiten(self, landmarks: int, kernel: str) -> None:
        """Replace the linear layer by a head over white features; the caller must fill its weights.

        Args:
            landmarks: Number of landmarks, see :func:`pyterrier_debias.rankers.whitening.head`.
            kernel: The kernel, see :func:`pyterrier_debias.rankers.whitening.head`.
        """
        own = next(self.classifier.parameters())
        self.classifier = whitening.head(self.config.hidden_size, landmarks, kernel, own.dtype).to(own.device)
        self.whitened = (landmarks, kernel)

    def forward(self, attention_mask: torch.Tensor, **tensors: torch.Tensor) -> Any:
        """Compute the logits of a padded batch.

        Args:
            attention_mask: 1 for tokens, 0 for padding, shape [n, longest].
            tensors: Further inputs of the encoder.

        Returns:
            An output with ``logits`` of shape [n, 1].
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        states = self.encoder(attention_mask=attention_mask, **tensors).last_hidden_state
        # Pooled in float32: half precision cannot count beyond 256 tokens.
        states = states if states.dtype == torch.float64 else states.float()
        if self.pooling == "first":
            return SequenceClassifierOutput(logits=self._logits(states[:, 0]))
        weights = attention_mask[..., None].to(states.dtype)
        mean = (states * weights).sum(dim=1) / weights.sum(dim=1)
        return SequenceClassifierOutput(logits=self._logits(mean))

    def _logits(self, vectors: torch.Tensor) -> torch.Tensor:
        """The linear layer over pooled vectors, in float32 if the encoder's weights are in half precision."""
        if self.encoder.dtype in (torch.bfloat16, torch.float16):
            return cast(torch.Tensor, in_float32(self.classifier, vectors))
        return cast(torch.Tensor, self.classifier(vectors))

    @property
    def name(self) -> str:
        """The pooling."""
        return self.pooling

    @property
    def on_top(self) -> torch.nn.Module:
        """The linear layer, and the part of a whitening that precedes it."""
        return self.classifier

    def about(self) -> dict[str, Any]:
        """The pooling, and the whitening if there is one."""
        return {**super().about(), **({} if self.whitened is None else {"whitened": self.whitened})}

    def load_head(self, model: str | Path) -> None:
        """Load the head, including a whitening; see :meth:`EncoderHead.load_head`."""
        if "whitened" in (about := _read_about(model)):
            self.whiten(*about["whitened"])
        super().load_head(model)

    def save_modules(self, folder: str | Path) -> None:
        """Add the files with which ``sentence_transformers.CrossEncoder`` gives the same scores from the folder.

        Args:
            folder: The folder in which encoder and tokenizer were saved.
        """
        from sentence_transformers import CrossEncoder
        from sentence_transformers.base.modules import Dense, Transformer
        from sentence_transformers.sentence_transformer.modules import Pooling

        size, identity = self.config.hidden_size, torch.nn.Identity()
        layers = [part for part in self.classifier.modules() if isinstance(part, torch.nn.Linear)]
        if self.whitened is None:
            found = [Dense(size, 1, activation_function=identity, module_output_name="scores")]
        else:
            found = whitening.modules(size, *self.whitened, 1)
            found[-1].module_output_name = "scores"
        for part, layer in zip(found[-len(layers) :], layers):
            part.to(layer.weight.dtype).linear.load_state_dict(layer.state_dict())
        encoder = Transformer(str(folder), model_kwargs={"dtype": self.encoder.dtype})
        modules = [encoder, Pooling(size, "mean" if self.pooling == "mean" else "cls"), *found]
        CrossEncoder(modules=modules, device="cpu", num_labels=1, activation_fn=identity).save(
            str(folder), create_model_card=False
        )


class PassageHead(EncoderHead):
    r"""An encoder with a head that reads several passages of a document one by one and scores them together (PARADE).

    .. math:: d = \mathrm{aggregate}(p_1, \ldots, p_m), \qquad s(q, d) = w \cdot d + b

    where :math:`p_i` is the vector of the first token of query and passage i: the output of the encoder's pooler if it has one
    (BERT), else the last layer's state.

    =================  ===========================================================================================
    ``aggregate``      d
    =================  ===========================================================================================
    ``'max'``          the largest value of each dimension
    ``'avg'``          the mean
    ``'attention'``    :math:`\sum_i a_i p_i` with :math:`a = \mathrm{softmax}(v \cdot p_1, \ldots, v \cdot p_m)`
    ``'transformer'``  the first state that two Transformer layers of the encoder's size compute from the embedding of
                       the classification token and :math:`p_1, \ldots, p_m`, without positions
    =================  ===========================================================================================

    Passages go through the encoder one after another. If gradients are needed, the encoder's intermediate results are not kept
    for the backward pass but computed again, so that memory is that of one passage per document.

    Args:
        encoder: A Hugging Face encoder.
        aggregate: A name from the table.

    Attributes:
        aggregation: The weights of the aggregation; none for ``'max'`` and ``'avg'``.
        classifier: The linear layer, hidden size to 1. All these weights are drawn from a normal distribution of width .02, with
            biases 0.

    Source: Li, Yates, MacAvaney, He and Sun, "PARADE: Passage Representation Aggregation for Document Reranking", 2020
    (arXiv:2008.09093), Section 3, and the authors' public code (pooled vectors, dropout before the linear layer).

    When not to use it: for documents that fit into the encoder's window, for which it costs the same but aggregates nothing.

    Example:
        ``PassageHead(AutoModel.from_pretrained("bert-base-uncased"), "max")``; as a ranker
        ``CrossEncoder.of("parade-max", model)``.
    """

    def __init__(self, encoder: Any, aggregate: str = "max"):
        check_choice("PassageHead", "aggregate", aggregate, AGGREGATES)
        super().__init__(encoder)
        self.aggregate = aggregate
        size = encoder.config.hidden_size
        self.aggregation = torch.nn.ModuleList()
        if aggregate == "attention":
            self.aggregation.append(torch.nn.Linear(size, 1, bias=False))
        if aggregate == "transformer":
            self.aggregation.extend(_transformer_layer(encoder.config) for _ in range(2))
        self.dropout = torch.nn.Dropout(_dropout(encoder.config))
        self.classifier = torch.nn.Linear(size, 1)
        _draw(self.on_top, encoder.dtype)

    @property
    def name(self) -> str:
        """The name of the published system."""
        return f"parade-{self.aggregate}"

    @property
    def on_top(self) -> torch.nn.Module:
        """The aggregation and the linear layer."""
        return torch.nn.ModuleDict({"aggregation": self.aggregation, "classifier": self.classifier})

    def extra_repr(self) -> str:
        """The aggregation, in which two models with equal weights may differ."""
        return f"aggregate={self.aggregate!r}"

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, **tensors: torch.Tensor) -> Any:
        """Compute the logits of a padded batch of documents.

        Args:
            input_ids: Tokens of query and passage, shape [n, most passages, longest].
            attention_mask: 1 for tokens, 0 for padding, same shape; all 0 if a document has fewer passages.
            tensors: Further inputs of the encoder, same shape.

        Returns:
            An output with ``logits`` of shape [n, 1].
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        there = attention_mask.any(dim=-1)
        vectors = torch.zeros(*there.shape, self.config.hidden_size, dtype=self.encoder.dtype, device=input_ids.device)
        for place in range(there.shape[1]):
            rows, read = _one_passage(place, there, {"input_ids": input_ids, "attention_mask": attention_mask, **tensors})
            found = _recomputed(self._vector, read, needed=there.shape[1] > 1)
            vectors = vectors.to(found.dtype).index_put((rows, torch.full_like(rows, place)), found)
        together = self._aggregated(vectors, there, input_ids[:, 0, 0])
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(together)))

    def _vector(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Vectors of first tokens, shape [passages, hidden]."""
        found = self.encoder(**tensors)
        pooled = getattr(found, "pooler_output", None)
        return found.last_hidden_state[:, 0] if pooled is None else pooled

    def _aggregated(self, vectors: torch.Tensor, there: torch.Tensor, token: torch.Tensor) -> torch.Tensor:
        """Aggregate passages' vectors [n, passages, hidden], given which exist and the classification token: [n, hidden]."""
        if self.aggregate == "max":
            return vectors.masked_fill(~there[..., None], -torch.inf).amax(dim=1)
        if self.aggregate == "avg":
            return vectors.sum(dim=1) / there.sum(dim=1, keepdim=True)
        if self.aggregate == "attention":
            weights = self.aggregation[0](vectors).masked_fill(~there[..., None], -torch.inf).softmax(dim=1)
            return (weights * vectors).sum(dim=1)
        start = self.encoder.get_input_embeddings()(token)[:, None]
        # ELECTRA's embeddings may be narrower than its layers.
        start = self.encoder.embeddings_project(start) if hasattr(self.encoder, "embeddings_project") else start
        states = torch.cat([start.to(vectors.dtype), vectors], dim=1)
        padding = torch.nn.functional.pad(~there, (1, 0), value=False)
        for layer in self.aggregation:
            states = layer(states, src_key_padding_mask=padding)
        return states[:, 0]


class KernelHead(EncoderHead):
    r"""An encoder with kernels over the contextual vectors of every layer, and the classification token (CEDR-KNRM).

    .. math::

        K_{lk}(i) &= \sum_j \exp\!\big(-(\cos(q^l_i, d^l_j) - \mu_k)^2 / 2\sigma_k^2\big), \qquad
        \phi_{lk} = \sum_i \ln(K_{lk}(i) + 10^{-6}) \\
        s(q, d) &= w \cdot [\phi_{01}, \ldots, \phi_{LK}; c] + b

    for the tokens i of the query and j of the document, without special tokens; :math:`q^l` and :math:`d^l` are the states after
    layer l of the encoder (0: its embeddings) on both together, and c the last layer's state of the first token. If a document
    has several passages, j runs over all of them, :math:`q^l` is computed with the first, and c is the mean over passages.
    Passages go through the encoder one after another, and are computed again for the backward pass, as in :class:`PassageHead`.

    Args:
        encoder: A Hugging Face encoder.

    Attributes:
        combine: The linear layer, (L + 1) times 11 plus the hidden size to 1; normal of width .02, bias 0.

    Source: MacAvaney, Yates, Cohan and Goharian, "CEDR: Contextualized Embeddings for Document Ranking", SIGIR 2019, and the
    authors' public code for kernels and long documents. Here the kernels are fixed; that code trains them, too.

    When not to use it: if speed matters, because it compares the states of every layer.

    Example:
        ``KernelHead(AutoModel.from_pretrained("bert-base-uncased"))``; as a ranker ``CrossEncoder.of("cedr-knrm", model)``.
    """

    def __init__(self, encoder: Any):
        super().__init__(encoder)
        self.layers = encoder.config.num_hidden_layers + 1
        features = self.layers * len(KNRM_MU) + encoder.config.hidden_size
        self.combine = torch.nn.Linear(features, 1)
        _draw(self.combine, encoder.dtype)

    def keep_layers(self, layers: int) -> None:
        """Keep the weights of the embeddings, the first layers and the classification token, for an encoder that lost the others.

        Args:
            layers: How many layers the encoder has now.
        """
        weight, kernels = self.combine.weight.detach(), len(KNRM_MU)
        kept = [weight[:, : (layers + 1) * kernels], weight[:, self.layers * kernels :]]
        self.layers = layers + 1
        self.combine.weight = torch.nn.Parameter(torch.cat(kept, dim=1))
        self.combine.in_features = self.combine.weight.shape[1]

    @property
    def name(self) -> str:
        """The name of the published system."""
        return "cedr-knrm"

    @property
    def on_top(self) -> torch.nn.Module:
        """The linear layer."""
        return self.combine

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, parts: torch.Tensor, **tensors: torch.Tensor) -> Any:
        """Compute the logits of a padded batch of documents.

        Args:
            input_ids: Tokens of query and passage, shape [n, most passages, longest].
            attention_mask: 1 for tokens, 0 for padding, same shape; all 0 if a document has fewer passages.
            parts: 1 for tokens of the query, 2 for those of the document, else 0; same shape.
            tensors: Further inputs of the encoder, same shape.

        Returns:
            An output with ``logits`` of shape [n, 1].
        """
        from transformers.modeling_outputs import SequenceClassifierOutput

        there = attention_mask.any(dim=-1)
        of_query = parts[:, 0] == 1
        counts = of_query.sum(dim=-1)
        most = int(counts.max())
        terms = torch.arange(most, device=counts.device)[None, :] < counts[:, None]
        # Where the tokens of each query stand in its first sequence: those that count come first, in their order.
        at = (~of_query).to(torch.int8).argsort(dim=-1, stable=True)[:, :most]
        given = {"input_ids": input_ids, "attention_mask": attention_mask, "parts": parts, **tensors}
        queries, sums, first = torch.empty(0), torch.empty(0), torch.empty(0)
        for place in range(there.shape[1]):
            rows, read = _one_passage(place, there, given)
            if place == 0:
                queries, sums, first = _recomputed(self._first_passage, {**read, "at": at}, needed=there.shape[1] > 1)
                continue
            more, state = _recomputed(self._passage, {**read, "queries": queries[rows]}, needed=True)
            sums, first = sums.index_add(0, rows, more), first.index_add(0, rows, state)
        logs = (sums + KNRM_FLOOR).log() * terms[:, None, :, None]
        first = first / there.sum(dim=1, keepdim=True)
        features = torch.cat([logs.sum(dim=2).flatten(1), first.to(logs.dtype)], dim=-1)
        return SequenceClassifierOutput(logits=self.combine(features.to(self.combine.weight.dtype)))

    def _first_passage(self, at: torch.Tensor, **tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Unit vectors of the query's tokens [n, layers, query tokens, hidden], and the output of :meth:`_passage`."""
        parts = tensors.pop("parts")
        states = self._states(**tensors)
        where = at[:, None, :, None].expand(-1, self.layers, -1, states.shape[-1])
        queries = unit(states.gather(2, where))
        return queries, *self._matched(queries, states, parts)

    def _passage(self, queries: torch.Tensor, **tensors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Kernels' sums over one passage [n, layers, query tokens, kernels], and its first token's last state [n, hidden]."""
        parts = tensors.pop("parts")
        return self._matched(queries, self._states(**tensors), parts)

    def _states(self, **tensors: torch.Tensor) -> torch.Tensor:
        """States of all tokens after each layer, shape [n, layers, longest, hidden]."""
        return torch.stack(self.encoder(**tensors, output_hidden_states=True).hidden_states, dim=1)

    def _matched(self, queries: torch.Tensor, states: torch.Tensor, parts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        # In float32 or better, whatever the encoder computes in: the narrow kernel sees differences of a thousandth.
        with torch.autocast(states.device.type, enabled=False):
            cosines = (queries @ unit(states).transpose(2, 3)).flatten(0, 1)
            counted = (parts == 2).repeat_interleave(self.layers, dim=0)
            sums = kernel_sums(cosines, counted, KNRM_MU, KNRM_SIGMA).unflatten(0, (-1, self.layers))
        return sums, states[:, -1, 0]


class HeadRanking(Ranking):
    """Training method of a cross-encoder with separate learning rates for ``encoder`` and ``head``.

    CEDR's rates are ``Training(learning_rate={"encoder": 2e-5, "head": 1e-3})``; a single number applies to both.
    """

    def networks(self) -> dict[str, torch.nn.Module]:
        """The two parts."""
        return {"encoder": self.network.encoder, "head": self.network.on_top}


def joint_head(encoder: Any, name: str) -> PassageHead | KernelHead:
    """Put a new head on an encoder that reads several passages of a document together.

    Args:
        encoder: A Hugging Face encoder.
        name: ``'cedr-knrm'``, or ``'parade-'`` and an aggregation.

    Returns:
        The encoder with the head.
    """
    return KernelHead(encoder) if name == "cedr-knrm" else PassageHead(encoder, name.removeprefix("parade-"))


def _one_passage(
    place: int, there: torch.Tensor, tensors: dict[str, torch.Tensor]
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """The documents with a passage at a place, shape [k], and its tensors without the columns that are empty for all of them."""
    rows = there[:, place].nonzero()[:, 0]
    columns = tensors["attention_mask"][rows, place].any(dim=0).nonzero()[:, 0]
    return rows, {name: values[rows, place][:, columns] for name, values in tensors.items()}


def _recomputed(run: Callable[..., Any], tensors: dict[str, torch.Tensor], *, needed: bool) -> Any:
    """The output of an encoder's function; its intermediate results are computed again for the backward pass if ``needed``."""
    if not (needed and torch.is_grad_enabled()):
        return run(**tensors)
    return checkpoint(lambda: run(**tensors), use_reentrant=False)


def _dropout(config: Any) -> float:
    """The dropout rate in an encoder's configuration."""
    return float(getattr(config, "hidden_dropout_prob", getattr(config, "dropout", 0.1)))


def _transformer_layer(config: Any) -> torch.nn.TransformerEncoderLayer:
    """A Transformer layer of an encoder's size, like BERT's: normalised after each sum."""
    size = config.hidden_size
    return torch.nn.TransformerEncoderLayer(
        size,
        config.num_attention_heads,
        dim_feedforward=getattr(config, "intermediate_size", getattr(config, "hidden_dim", 4 * size)),
        dropout=_dropout(config),
        activation="gelu",
        layer_norm_eps=getattr(config, "layer_norm_eps", 1e-12),
        batch_first=True,
    )


def _draw(head: torch.nn.Module, dtype: torch.dtype) -> None:
    """Draw the weights of linear layers and attention like BERT's: in float32, so that a seed gives the same in each dtype."""
    for part in head.modules():
        for name, weight in part.named_parameters(recurse=False):
            if "bias" in name:
                torch.nn.init.zeros_(weight)
            elif not isinstance(part, torch.nn.LayerNorm):
                torch.nn.init.normal_(weight, std=0.02)
    head.to(dtype)


def _read_about(model: str | Path) -> dict[str, Any]:
    """The description of the head in a folder that :meth:`EncoderHead.save_pretrained` wrote."""
    return dict(json.loads(Path(cast(str, _file_of(model, _ABOUT))).read_text(encoding="utf-8")))


def _file_of(model: str | Path, name: str) -> str | None:
    """The local path of a model's file, fetched from the hub if needed; None if there is none."""
    from sentence_transformers.util import load_file_path

    return load_file_path(str(model), name)
