"""SparseEncoder (SPLADE): one weight for each term of a vocabulary, compared by inner product."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.rankers.base import InMemory, Ranker, shared_options
from pyterrier_debias.rankers.dual_encoder import COMPARED, PROBE, CorpusEncoder
from pyterrier_debias.rankers.engine import moved
from pyterrier_debias.rankers.packed import PackedBert, hooked
from pyterrier_debias.rankers.postings import Postings
from pyterrier_debias.rankers.sparse_retriever import SparseRetriever
from pyterrier_debias.training.seeds import drawn_from

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_matrix
    from sentence_transformers import SparseEncoder as Library

    from pyterrier_debias.training.method import Method
    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: How many logits the fast path holds at a time (64 MB in float32); a single text may need more.
_LOGITS = 16_000_000

#: Parts of a masked language model from its encoder's states to logits: class, name of the encoder, names of the layers.
_HEADS = {
    "BertForMaskedLM": ("bert", ("cls",)),
    "RobertaForMaskedLM": ("roberta", ("lm_head",)),
    "XLMRobertaForMaskedLM": ("roberta", ("lm_head",)),
    "CamembertForMaskedLM": ("roberta", ("lm_head",)),
    "ElectraForMaskedLM": ("electra", ("generator_predictions", "generator_lm_head")),
}

#: The parts of a batch that a masked language model reads.
_READ = ("input_ids", "attention_mask", "token_type_ids")


class SparseEncoder(CorpusEncoder):
    r"""Scores a pair by the inner product of two sparse vectors over a vocabulary, :math:`s(q, d) = \sum_j q_j d_j` (SPLADE).

    The weight of term j in a text is :math:`\max_i \log(1 + \mathrm{relu}(l_{ij}))`, where :math:`l_{ij}` is the logit that a
    masked language model predicts for term j at token i. Terms that the text does not contain may get weights too (expansion).
    sentence-transformers' ``SparseEncoder`` loads the models: its own folders of the SPLADE family, with the pooling and prompts
    saved in them, and every masked language model. Vectors are those of the library's ``encode_query`` and ``encode_document``.
    They do not depend on the batch, and each distinct text is encoded once.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    A masked language model that was not trained to rank gives most terms a weight and ranks poorly: train it with :meth:`fit`
    first. ``fit`` adds to the loss the regularisation that makes vectors sparse, :math:`\lambda_q F(Q) + \lambda_d F(D)` with
    :math:`F(X) = \sum_j (\frac{1}{n} \sum_i x_{ij})^2` over the n queries or documents of a batch's pairs; both weights grow with
    the square of the step until ``flops_warmup``. An encoder without a masked-LM head, such as all-MiniLM-L6-v2, gets a new one
    over its own token embeddings, which is useful only for training.

    :meth:`retriever` searches a collection exactly, with an inverted index of the terms; :meth:`terms` shows the terms of a text
    and their weights; :meth:`describe` counts the terms of texts and how many of them are expansions.

    Sources: Formal, Piwowarski and Clinchant, "SPLADE: Sparse Lexical and Expansion Model for First Stage Ranking", SIGIR 2021;
    Formal, Lassance, Piwowarski and Clinchant, "SPLADE v2: Sparse Lexical and Expansion Model for Information Retrieval",
    arXiv:2109.10086, 2021 (the maximum); Paria et al., "Minimizing FLOPs to Learn Efficient Sparse Representations", ICLR 2020
    (the regularisation).

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.

    When not to use it: for words that the vocabulary splits into many pieces, which match piece by piece; for models without a
    masked-LM head, whose dimensions are not words (:class:`~pyterrier_debias.BiEncoder`).

    Example:
        >>> from pyterrier_debias import SparseEncoder
        >>> SparseEncoder("bert-base-uncased", document_flops=3e-4)
        SparseEncoder('bert-base-uncased', document_flops=0.0003)

        In a pipeline: ``bm25 >> texts >> SparseEncoder(model)``; as the first stage: ``SparseEncoder(model).retriever(dataset)``.

    .. cite.dblp:: journals/corr/abs-2107-05720
    .. cite.dblp:: journals/corr/abs-2109-10086
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "SparseEncoder", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> Library:
            """The sentence-transformers model."""

    _SOURCE = ("model", "device", "dtype", "seed")
    _NOT_IDENTITY = Ranker._NOT_IDENTITY | {"query_flops", "document_flops", "flops_warmup"}

    def __init__(
        self,
        model: str | Path | SparseEncoder | InMemory,
        *,
        query_flops: float = 3e-4,
        document_flops: float = 1e-4,
        flops_warmup: float = 1 / 3,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        batch_tokens: int | None = None,
        text_field: str = "text",
        fields: Sequence[str] | None = None,
        long: str = "truncate",
        passage_length: int = 150,
        passage_stride: int = 75,
        seed: int = 0,
        training: Training | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            model: A hub name or folder of a masked language model or of a SPLADE model, another SparseEncoder (whose weights are
                copied), or an ``InMemory`` sentence-transformers ``SparseEncoder``.
            query_flops: Weight of the regularisation of queries in training; 0 for none. The defaults of both weights are those
                that the authors of SPLADE published for MS MARCO with in-batch negatives.
            document_flops: Weight of the regularisation of documents; a larger weight makes vectors sparser.
            flops_warmup: Share of the steps (1 or below) or number of steps in which both weights grow from 0; 0 for full weights
                from the start.
            max_length: Longest text in tokens; None for the model's own limit. Truncation is logged.
            device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
            dtype: ``'float32'``, ``'tf32'`` (on CUDA), ``'bfloat16'`` or ``'float16'``; weights of terms come out as float32.
            batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
            text_field: The column with the document's text.
            fields: Columns to join with a space and read instead of ``text_field``.
            long: How to handle long documents: ``'truncate'``, ``'firstp'`` or ``'maxp'``; see
                :class:`~pyterrier_debias.rankers.base.Ranker`. Retrievers truncate.
            passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
            passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
            seed: Seed of a new head.
            training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
            verbose: Whether to show progress.
        """
        super().__init__(**shared_options(locals()))
        self.query_flops = query_flops
        self.document_flops = document_flops
        self.flops_warmup = flops_warmup
        self.seed = seed

    def check_options(self) -> None:
        """Refuse unknown options; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        super().check_options()
        for name in ("query_flops", "document_flops", "flops_warmup"):
            check_number("SparseEncoder", name, getattr(self, name), least=0)

    def read(self, model: str) -> tuple[Any, Any]:
        """Load a SPLADE model, or put SPLADE's pooling behind a masked language model."""
        from sentence_transformers import SparseEncoder as Library
        from sentence_transformers.sentence_transformer.modules import Transformer
        from sentence_transformers.sparse_encoder.modules import SpladePooling

        saved = _saved_modules(model)
        options: dict[str, Any] = {"dtype": self.torch_dtype}
        if saved & {"SpladePooling", "SparseStaticEmbedding", "SparseAutoEncoder", "Router"}:
            module = Library(model, device="cpu", trust_remote_code=False, model_kwargs=options)
        else:
            if not _brings_head(model):
                logger.warning(
                    "SparseEncoder: model %s has no masked-LM head; a new one (seed %d) ranks at random until it is trained",
                    model,
                    self.seed,
                )
            untrusted = {"trust_remote_code": False}
            with drawn_from(self.seed):
                encoder = Transformer(
                    model,
                    transformer_task="fill-mask",
                    model_kwargs={**options, **untrusted},
                    processor_kwargs=untrusted,
                    config_kwargs=untrusted,
                )
            module = Library(modules=[encoder, SpladePooling("max")], device="cpu")
        _parts(module)
        return module, module.tokenizer

    def budget(self, cpu: int = 2048, accelerator: int = 16384) -> int:
        """Tokens of a batch; on accelerators fewer than for other rankers, since each has a logit for every vocabulary term."""
        return super().budget(cpu, accelerator)

    # Vectors

    def encode_queries(self, queries: Sequence[str]) -> csr_matrix:
        """Compute the term weights of queries; each distinct query is encoded once.

        Args:
            queries: n queries.

        Returns:
            float32 weights above 0, a scipy CSR matrix of shape [n, terms]; the columns are the model's token ids.
        """
        return self.represented(queries, "query")

    def encode_docs(self, docs: Sequence[str]) -> csr_matrix:
        """Compute the term weights of documents; each distinct text is encoded once.

        Args:
            docs: n texts.

        Returns:
            A matrix like that of :meth:`encode_queries`.
        """
        return self.represented(docs, "document")

    def vocabulary(self) -> np.ndarray:
        """The names of the terms in the tokenizer, shape [terms]; ``[unused n]`` for columns without a token."""
        names = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        width = _parts(self.module)[0].model.get_output_embeddings().weight.shape[0]
        names += [f"[unused {n}]" for n in range(len(names), width)]
        return np.array(names[:width], dtype=object)

    def terms(self, text: str, task: str = "document") -> pd.DataFrame:
        """Show the sparse vector of a text: its terms with their weights, the largest weight first.

        Args:
            text: A query or a document.
            task: ``'query'`` or ``'document'``, which some models encode differently.

        Returns:
            A frame with ``term`` (as the tokenizer writes it), ``weight`` (above 0), and ``expansion``: True if the term is not
            one of the text's own tokens.

        Example:
            ``SparseEncoder('my-splade').terms('how deep is lake baikal', 'query').head(10)``
        """
        check_choice("SparseEncoder.terms", "task", task, ("query", "document"))
        found = self.represented([text], task)
        order = np.lexsort((found.indices, -found.data))
        terms = found.indices[order]
        return pd.DataFrame(
            {
                "term": self.vocabulary()[terms],
                "weight": found.data[order],
                "expansion": ~np.isin(terms, self._own_terms([text], task)[0]),
            }
        )

    def describe(self, texts: Sequence[str], task: str = "query") -> pd.DataFrame:
        """Measure how sparse the vectors of texts are, and how much of them is expansion.

        Args:
            texts: n queries or documents.
            task: ``'query'`` or ``'document'``.

        Returns:
            A frame of n rows: ``terms`` (number of terms with a weight), ``expansions`` (how many of them are not the text's own
            tokens), and ``expansion_share``, the second divided by the first (NaN for a text without terms).
        """
        check_choice("SparseEncoder.describe", "task", task, ("query", "document"))
        found, own = self.represented(texts, task), self._own_terms(texts, task)
        kept = np.diff(found.indptr)
        added = np.array([np.count_nonzero(~np.isin(found[row].indices, own[row])) for row in range(len(texts))], dtype=int)
        with np.errstate(invalid="ignore"):
            share = np.where(kept > 0, added / np.maximum(kept, 1), np.nan)
        return pd.DataFrame({"terms": kept.astype(np.int64), "expansions": added, "expansion_share": share})

    def _own_terms(self, texts: Sequence[str], task: str) -> list[np.ndarray]:
        """The token ids that the model reads of each text, without special tokens."""
        sequences = self._sequences(texts, task)
        special = self.tokenizer.all_special_ids
        return [np.setdiff1d(sequences.ids(row), special) for row in range(len(texts))]

    def retriever(
        self,
        corpus: Any,
        *,
        folder: str | Path | None = None,
        num_results: int = 1000,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> SparseRetriever:
        """Make a first stage that searches all documents of a corpus exactly, with an inverted index of their terms.

        Args:
            corpus: A dataset (``get_corpus_iter``), a frame, or an iterable of dictionaries with ``docno`` and the text; each
                document is encoded once, in batches, and truncated to the window. Or existing postings: a folder that this method
                wrote, or :class:`~pyterrier_debias.rankers.postings.Postings`.
            folder: Where to keep the postings (written completely or not at all); they are then read through a memory map
                and can be opened again: ``model.retriever('the/folder')``. None keeps them in memory.
            num_results: Largest number of results per query.
            overwrite: Whether to replace postings that are already in ``folder``.
            verbose: Whether to show progress.

        Returns:
            A stage from query frames to result frames. While the postings are built, memory holds them twice (8 bytes for each
            term of a document).

        Raises:
            InputError: For missing texts, docnos that occur twice, an empty corpus, a folder that exists already, or one whose
                postings come from another model.
        """
        check_number(f"{type(self).__name__}.retriever", "num_results", num_results, least=1, whole=True)
        postings = self.keep(corpus, Postings, folder, overwrite=overwrite, verbose=verbose)
        return SparseRetriever(self, postings, num_results=num_results, verbose=verbose)

    def probe(self) -> np.ndarray:
        """The model's weights for a fixed text, float32, shape [terms + 1] with ``max_length`` at the end.

        It is stored with postings, to recognise a model with other weights, prompts or options, whatever its folder.
        """
        weights = self.represented([PROBE], "document", cuts=[]).toarray()[0]
        return np.append(weights, np.float32(self.max_length or 0))

    # What TwoTowers asks for

    def represent(self, features: dict[str, torch.Tensor]) -> csr_matrix:
        """The weights above 0 of a batch, shape [n, terms]."""
        from scipy.sparse import csr_matrix

        weights = features["sentence_embedding"]
        rows, terms = weights.nonzero(as_tuple=True)
        starts = np.zeros(len(weights) + 1, dtype=np.int64)
        np.cumsum(np.bincount(rows.cpu().numpy(), minlength=len(weights)), out=starts[1:])
        return csr_matrix((weights[rows, terms].cpu().numpy(), terms.cpu().numpy(), starts), shape=tuple(weights.shape))

    def rows_of(self, found: csr_matrix) -> Sequence[csr_matrix]:
        """The weights of a batch, text by text."""
        return [found[row] for row in range(found.shape[0])]

    def of_rows(self, rows: Sequence[csr_matrix]) -> csr_matrix:
        """Weights as a batch."""
        from scipy.sparse import vstack

        return vstack(rows, format="csr")

    def gather(self, n: int, found: Iterator[tuple[np.ndarray, csr_matrix]]) -> csr_matrix:
        """All weights in their order, float32, shape [n, terms]."""
        from scipy.sparse import csr_matrix, vstack

        parts = list(found)
        if not parts:
            return csr_matrix((n, len(self.vocabulary())), dtype=np.float32)
        order = np.argsort(np.concatenate([indices for indices, _ in parts]))
        return vstack([part for _, part in parts], format="csr")[order]

    def compare(self, queries: csr_matrix, query_rows: np.ndarray, docs: csr_matrix, doc_rows: np.ndarray) -> np.ndarray:
        """Inner products of pairs, summed in float64 in the order of the terms, so that they do not depend on the batch."""
        queries, docs = queries.astype(np.float64), docs.astype(np.float64)
        scores = np.empty(len(query_rows))
        for start in range(0, len(scores), COMPARED):
            part = slice(start, start + COMPARED)
            scores[part] = np.asarray(queries[query_rows[part]].multiply(docs[doc_rows[part]]).sum(axis=1)).ravel()
        return scores

    def similarity_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Inner products of rows, under autograd."""
        return (queries["sentence_embedding"] * docs["sentence_embedding"]).sum(dim=-1)

    def matrix_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Inner products of all queries with all documents, under autograd; their sums are too large for half precision."""
        import torch

        left, right = queries["sentence_embedding"], docs["sentence_embedding"]
        with torch.autocast(left.device.type, enabled=False):
            return left @ right.T

    def method(self, training: Training) -> Method:
        """The ranker with its loss and the regularisation; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        from pyterrier_debias.rankers.sparse_method import SparseRanking

        return SparseRanking.of(self, training)

    def packed_features(self, module: Any) -> Callable[..., dict[str, torch.Tensor]] | None:
        """BERT-shaped masked language models run without padding, and predict a few texts at a time."""
        encoder, pooling = _parts(module)
        states_of, head = _packed(encoder.model)
        if states_of is None or head is None:
            return None
        width = encoder.model.get_output_embeddings().weight.shape[0]

        def features(ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> dict[str, torch.Tensor]:
            import torch

            states, parts = states_of.hidden(ids, types, lengths), []
            row = token = 0
            while row < len(lengths):
                # Texts of one length stand side by side.
                length = int(lengths[row])
                alike = int(np.argmin(np.append(lengths[row:] == length, False)))
                count = min(alike, max(1, _LOGITS // (length * width)))
                logits = head(states[token : token + count * length]).view(count, length, -1)
                parts.append(_pooled(logits, None, pooling))
                row, token = row + count, token + count * length
            return {"sentence_embedding": _largest(torch.cat(parts), module)}

        return features

    def _features(self, module: Any, features: dict[str, Any], task: str) -> dict[str, torch.Tensor]:
        """The weights of all terms; in eval mode, the library's own pooling would overwrite values that gradients need."""
        import torch

        encoder, pooling = _parts(module)
        device = self.torch_device
        own = {name: moved(v, device) if isinstance(v, torch.Tensor) else v for name, v in features.items()}
        if torch.is_grad_enabled() and device.type == "cpu" and _trains_fast(encoder.model, pooling):
            from pyterrier_debias.rankers.largest_logits import largest_logits

            model = encoder.model
            states = model.bert(**{name: own[name] for name in _READ if name in own}).last_hidden_state
            head = model.cls.predictions
            decoder = head.decoder
            logits = largest_logits(head.transform(states), own["attention_mask"], decoder.weight, decoder.bias)
            weights = _weights(logits, pooling)
        else:
            found = encoder(own)
            weights = _pooled(found["token_embeddings"], found["attention_mask"], pooling)
        return {"sentence_embedding": _largest(weights, module)}


def _saved_modules(model: str) -> set[str]:
    """The classes of the modules that sentence-transformers saved with a model; empty for other models."""
    from sentence_transformers.util import load_file_path

    modules = load_file_path(model, "modules.json")
    if modules is None:
        return set()
    return {part["type"].rpartition(".")[2] for part in json.loads(Path(modules).read_text(encoding="utf-8"))}


def _brings_head(model: str) -> bool:
    """Whether a checkpoint has a trained masked-LM head, so that nothing in it is drawn at random."""
    from transformers import AutoConfig

    names = AutoConfig.from_pretrained(model, trust_remote_code=False).architectures or []
    return any(name.endswith("ForMaskedLM") or name == "BertForPreTraining" for name in names)


def _parts(module: Any) -> tuple[Any, Any]:
    """The masked language model and the pooling of a SPLADE model.

    Raises:
        InputError: For a model with other parts, or one that does not compare vectors by inner product.
    """
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sparse_encoder.modules import SpladePooling

    parts = list(module)
    masked = len(parts) == 2 and isinstance(parts[0], Transformer) and parts[0].transformer_task == "fill-mask"
    if not masked or not isinstance(parts[1], SpladePooling):
        kinds = ", ".join(type(part).__name__ for part in parts)
        raise InputError(
            f"SparseEncoder: the model's modules are {kinds}, not a masked language model with SPLADE's pooling; give a "
            f"SPLADE model or a masked language model"
        )
    if module.similarity_fn_name != "dot":
        raise InputError(
            f"SparseEncoder: the model compares vectors by {module.similarity_fn_name}, but SPLADE by the inner product; save it "
            f"with similarity_fn_name='dot'"
        )
    return parts[0], parts[1]


def _packed(model: Any) -> tuple[PackedBert | None, Callable[[torch.Tensor], torch.Tensor] | None]:
    """Functions that compute states without padding, and logits from states; None and None for other models."""
    name, layers = _HEADS.get(type(model).__name__, ("", ()))
    if not name or not PackedBert.supports(getattr(model, name)):
        return None, None
    head = [getattr(model, layer) for layer in layers]
    if hooked(model.modules()):
        return None, None

    def logits(states: torch.Tensor) -> torch.Tensor:
        for layer in head:
            states = layer(states)
        return states

    return PackedBert(getattr(model, name)), logits


def _pooled(logits: torch.Tensor, mask: torch.Tensor | None, pooling: Any) -> torch.Tensor:
    """Weights of terms, float32, shape [n, terms], from logits of shape [n, tokens, terms]; every text has a token.

    log(1 + relu(x)) grows with x, so the largest logit has the largest weight, and the logarithm is computed once per term.
    """

    if mask is not None:
        # A token that weighs nothing: relu makes 0 of it.
        logits = logits.masked_fill(~mask.bool()[..., None], -1.0)
    if pooling.pooling_strategy == "max":
        return _weights(logits.max(dim=1).values, pooling)
    return _weights(logits, pooling).sum(dim=1)


def _weights(logits: torch.Tensor, pooling: Any) -> torch.Tensor:
    """Weights of terms, float32, from their logits."""
    values = logits.float().relu().log1p()
    return values.log1p() if pooling.activation_function == "log1p_relu" else values


def _trains_fast(model: Any, pooling: Any) -> bool:
    """Whether the largest logits are all that training needs, and the model is one whose head is known layer by layer."""
    if type(model).__name__ != "BertForMaskedLM" or pooling.pooling_strategy != "max":
        return False
    return not hooked((model, *model.cls.modules()))


def _largest(weights: torch.Tensor, module: Any) -> torch.Tensor:
    """The largest weights of each row, as many as the model keeps."""
    from sentence_transformers.util import select_max_active_dims

    return select_max_active_dims(weights, module.max_active_dims) if module.max_active_dims is not None else weights
