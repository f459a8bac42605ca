"""BiEncoder (BERT_DOT): one vector per text, compared by inner product or cosine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.cache_key import weights_fingerprint
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.rankers import engine
from pyterrier_debias.rankers.base import InMemory, shared_options, window_of
from pyterrier_debias.rankers.dual_encoder import COMPARED, PROBE, CorpusEncoder, TwoTowers
from pyterrier_debias.rankers.packed import PackedBert, hooked, in_float32
from pyterrier_debias.rankers.published import PUBLISHED, Published, model_folder_of_documents
from pyterrier_debias.rankers.retriever import Retriever
from pyterrier_debias.rankers.vectors import Vectors

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

SIMILARITIES = ("dot", "cosine")
POOLING = ("cls", "mean")


class BiEncoder(CorpusEncoder):
    r"""Scores a pair by the similarity of two vectors, :math:`s(q, d) = E(q) \cdot E(d)` (BERT_DOT; DPR; Sentence-BERT).

    It accepts every sentence-transformers bi-encoder, with its own modules (pooling, projection, normalisation), prompts and
    window, and every plain Hugging Face encoder. Vectors equal those of ``SentenceTransformer.encode_query`` and
    ``encode_document``.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Checkpoints of RepBERT, ANCE, TCT-ColBERT, STAR and ADORE do not record all their settings: open them with :meth:`of`.

    Methods make further stages: :meth:`query_encoder` (adds ``query_vec``), :meth:`doc_encoder` (adds ``doc_vec``) and
    :meth:`retriever` (exact first-stage retrieval). The columns follow pyterrier_dr, whose ``FlexIndex`` accepts the vectors.

    Sources: Karpukhin et al., "Dense Passage Retrieval for Open-Domain Question Answering", EMNLP 2020; Reimers and Gurevych,
    "Sentence-BERT", EMNLP 2019; as BERT_DOT in Hofstätter et al., "Mitigating the Position Bias of Transformer Models in
    Passage Re-Ranking", ECIR 2021.

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.

    When not to use it: for the highest effectiveness on a short list (use a cross-encoder, which reads query and document
    together); for models with one vector per token (:class:`~pyterrier_debias.MultiVector`).

    Example:
        >>> from pyterrier_debias import BiEncoder
        >>> BiEncoder("sentence-transformers/all-MiniLM-L6-v2", similarity="cosine")
        BiEncoder('sentence-transformers/all-MiniLM-L6-v2', similarity='cosine')

        In a pipeline: ``bm25 >> texts >> BiEncoder(model)``; as the first stage: ``BiEncoder(model).retriever(dataset)``.

    .. cite.dblp:: journals/corr/abs-1908-10084
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "BiEncoder", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> SentenceTransformer:
            """The sentence-transformers model."""

    _SOURCE = ("model", "device", "dtype", "pooling", "published")

    def __init__(
        self,
        model: str | Path | BiEncoder | InMemory,
        *,
        similarity: str = "dot",
        pooling: str | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        batch_tokens: int | None = None,
        text_field: str = "text",
        fields: Sequence[str] | None = None,
        long: str = "truncate",
        passage_length: int = 150,
        passage_stride: int = 75,
        published: str | None = None,
        documents_by: BiEncoder | None = None,
        training: Training | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            model: A hub name, a folder, ``'all-MiniLM-L6-v2'`` (the weights of the extra ``demo``), another BiEncoder (whose
                weights are copied), or an ``InMemory`` SentenceTransformer.
            similarity: ``'dot'``, the inner product, or ``'cosine'``, which normalises the vectors first. Both are the same for a
                model that normalises its vectors itself.
            pooling: For plain encoders: ``'cls'`` takes the first token's state, ``'mean'`` the mean over tokens; None means
                ``'mean'``, as in sentence-transformers. Sentence-transformers models, other BiEncoders and models in memory
                have their own pooling.
            max_length: Longest text in tokens; None for the model's own limit. Truncation is logged.
            device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
            dtype: ``'float32'``, ``'tf32'`` (on CUDA), ``'bfloat16'`` or ``'float16'``; vectors come out as float32.
            batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
            text_field: The column with the document's text.
            fields: Columns to join with a space and read instead of ``text_field``.
            long: How to handle long documents: ``'truncate'``, ``'firstp'`` or ``'maxp'``; see
                :class:`~pyterrier_debias.rankers.base.Ranker`. Encoders and retrievers truncate.
            passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
            passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
            published: Which published model the checkpoint is, by a name of :meth:`of`; None for any other model.
            documents_by: The encoder of documents, with the same number of dimensions, if the model encodes only queries (ADORE);
                ``fit`` does not change it.
            training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
            verbose: Whether to show progress.
        """
        super().__init__(**shared_options(locals()))
        self.similarity = similarity
        self.pooling = pooling
        self.published = published
        self.documents_by = documents_by

    @classmethod
    def of(cls, name: str, model: str | Path | InMemory, **options: Any) -> Self:
        """Open a published bi-encoder with the prefixes, lengths, pooling and projection with which it was trained.

        It knows five models: RepBERT, ANCE, TCT-ColBERT, STAR and ADORE on MS MARCO passages
        (:data:`~pyterrier_debias.rankers.published.PUBLISHED`, with sources). ``max_length`` changes the length of documents. If
        a model has fewer positions than the length in that table, they are the limit. Vectors are compared by inner product.

        Args:
            name: ``'repbert'``, ``'ance'``, ``'tct-colbert'``, ``'star'`` or ``'adore'``; case and hyphens do not matter.
            model: The checkpoint: a folder or a hub name, as its authors published it or as :meth:`save` wrote it. The package
                contains no weights.
            options: Options of the class. ADORE's checkpoint encodes only queries and needs ``documents_by=``, the encoder whose
                document vectors it was trained against: ``BiEncoder.of('star', ...)`` for ADORE (STAR).

        Returns:
            The ranker.

        Raises:
            InputError: For another name, or ADORE without ``documents_by``; when scoring: for a checkpoint of another
                architecture, or one that lacks weights.

        Example:
            >>> from pyterrier_debias import BiEncoder
            >>> BiEncoder.of("TCT-ColBERT", "castorini/tct_colbert-msmarco")
            BiEncoder('castorini/tct_colbert-msmarco', published='tct-colbert')
        """
        known = str(name).lower().replace("_", "-")
        known = {"tctcolbert": "tct-colbert"}.get(known, known)
        if known not in PUBLISHED:
            raise InputError(
                f"BiEncoder.of: name={name!r} is not known; use one of {', '.join(map(repr, PUBLISHED))}. Prefixes, pooling and "
                f"lengths of other models are not known here; open sentence-transformers folders with BiEncoder(model)"
            )
        made = cls(model, published=known, **options)
        made.check_options()
        return made

    def check_options(self) -> None:
        """Refuse unknown options; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        super().check_options()
        check_choice("BiEncoder", "similarity", self.similarity, SIMILARITIES)
        check_choice("BiEncoder", "pooling", self.pooling, (*POOLING, None))
        check_choice("BiEncoder", "published", self.published, (*PUBLISHED, None))
        self._check_pooling()
        if self._row is not None and (self.pooling is not None or self.similarity != "dot"):
            raise InputError(
                f"BiEncoder: published={self.published!r} has its own pooling, and its vectors are compared by inner product; "
                f"leave pooling and similarity out"
            )
        if self._row is not None and self._row.two_encoders and self.tower("document") is self:
            raise InputError(
                f"BiEncoder: {self.published!r} encodes queries alone; give documents_by=, the encoder whose vectors it was "
                f"trained against, e.g. BiEncoder.of('star', folder)"
            )

    def _check_pooling(self) -> None:
        """Refuse a ``pooling`` that differs from that of a model in memory."""
        if self.pooling is None or not isinstance(self.model, (BiEncoder, InMemory)):
            return
        if isinstance(self.model, BiEncoder):
            own = {self.model.pooling}
        else:
            own = {getattr(part, "pooling_mode", None) for part in self.model.module.modules()}
        if self.pooling not in own:
            raise InputError(
                f"BiEncoder: pooling={self.pooling!r} cannot be chosen for {self.model!r}, which has its own; leave pooling "
                f"out, or give the folder of a plain encoder"
            )

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The identity of every ranker, with the present identity of the document encoder, which may change later."""
        other = self._documents_by
        return {**super().identity(), "documents_by": None if other is None else (type(other), other.identity())}

    @property
    def _row(self) -> Published | None:
        """How the published model reads texts; None for any other model."""
        return None if self.published is None else PUBLISHED.get(self.published)

    @property
    def documents_by(self) -> BiEncoder | None:
        """The separate encoder of documents; None if one model encodes both."""
        return self._documents_by

    @documents_by.setter
    def documents_by(self, documents: BiEncoder | None) -> None:
        if documents is not None and not isinstance(documents, BiEncoder):
            raise InputError(f"BiEncoder: documents_by is {kind_of(documents)}; give the BiEncoder of documents")
        saved = model_folder_of_documents(self.model) if documents is None else None
        self._documents_by = documents if saved is None else BiEncoder(saved, device=self.device, dtype=self.dtype)

    def tower(self, task: str) -> TwoTowers:
        """See :meth:`~pyterrier_debias.rankers.dual_encoder.TwoTowers.tower`."""
        return self if task == "query" or self._documents_by is None else self._documents_by

    def task_window(self, task: str) -> int:
        """The longest query or document in tokens: the published model's length, or ``max_length`` for documents."""
        row = self._row
        if row is None:
            return super().task_window(task)
        if task == "document" and self.max_length is not None:
            return self.window
        own = row.query_length if task == "query" else row.document_length
        return min(own, window_of(self.module.tokenizer, self.module.config, None, self))

    def _sequences(self, texts: Sequence[str], task: str) -> engine.Sequences:
        row = self._row
        if row is None:
            return super()._sequences(texts, task)
        return row.sequences(self.module.tokenizer, texts, task, self.task_window(task))

    def read(self, model: str) -> tuple[Any, Any]:
        """Load a sentence-transformers model, or a plain encoder with ``pooling`` behind it."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
        from sentence_transformers.util import is_sentence_transformer_model

        options: dict[str, Any] = {"model_kwargs": {"dtype": self.torch_dtype}}
        row = self._row
        if is_sentence_transformer_model(model):
            if self.pooling is not None:
                raise InputError(
                    f"BiEncoder: {model!r} is a sentence-transformers model with modules of its own; leave pooling out"
                )
            module = SentenceTransformer(model, device="cpu", trust_remote_code=False, **options)
            if row is not None:
                row.check_modules(module, model)
            recorded = getattr(module, "_similarity_fn_name", None)
            normalised = any(type(part).__name__ == "Normalize" for part in module)
            if recorded == "cosine" and self.similarity == "dot" and row is None and not normalised:
                logger.warning(
                    "BiEncoder: %r is recorded as a model for cosine similarity, and does not normalise its vectors; give "
                    "similarity='cosine' to score as sentence-transformers does", model,
                )  # fmt: skip
            if recorded in ("euclidean", "manhattan"):
                logger.warning(
                    "BiEncoder: %r is recorded as a model for %s similarity, which is not available here; it is scored with "
                    "similarity=%r, and not as sentence-transformers does", model, recorded, self.similarity,
                )  # fmt: skip
        else:
            untrusted = {"trust_remote_code": False}
            encoder = Transformer(
                model,
                model_kwargs={**options["model_kwargs"], **untrusted},
                processor_kwargs=untrusted,
                config_kwargs=untrusted,
            )
            if row is not None:
                parts = row.modules(model, encoder)
            else:
                architecture = (encoder.model.config.architectures or [""])[0]
                if architecture.endswith("ForSequenceClassification"):
                    logger.warning(
                        "BiEncoder: model %s is a %s, which was not trained to give vectors; its classification head is left "
                        "out, so scores mean little until this ranker is trained. To score with the head, use CrossEncoder",
                        model, architecture,
                    )  # fmt: skip
                parts = [encoder, Pooling(encoder.get_embedding_dimension(), self.pooling or "mean")]
            module = SentenceTransformer(modules=parts, device="cpu")
        return module, module.tokenizer

    def record(self) -> dict[str, Any]:
        """The record of every ranker, with the weights and options of the document encoder; see :meth:`Fittable.record`."""
        documents = self._documents_by
        if documents is None:
            return super().record()
        weights = weights_fingerprint(documents.module, structure=False)
        return {**super().record(), "documents_by": {**documents.record(), "weights": weights}}

    def write(self, folder: Path) -> None:
        """Write the model, with the document encoder in a folder of its own; see :meth:`Ranker.write`."""
        # What sentence-transformers compares vectors by, if it opens the folder.
        self.module.similarity_fn_name = cast(Any, self.similarity)
        super().write(folder)
        if self._documents_by is not None:
            self._documents_by.write_with_options(folder / "documents", self._documents_by.training_report)

    # Vectors

    def encode_queries(self, queries: Sequence[str], *, verbose: bool = False) -> np.ndarray:
        """Compute the vectors of queries; each distinct query is encoded once.

        Args:
            queries: n queries.
            verbose: Whether to show progress, even if the model's own ``verbose`` is False.

        Returns:
            float32 array, shape [n, d].
        """
        return self._vectors(queries, "query", verbose)

    def encode_docs(self, docs: Sequence[str], *, verbose: bool = False) -> np.ndarray:
        """Compute the vectors of documents; each distinct text is encoded once.

        Args:
            docs: n texts.
            verbose: Whether to show progress, even if the model's own ``verbose`` is False.

        Returns:
            float32 array, shape [n, d].
        """
        return self._vectors(docs, "document", verbose)

    def _vectors(self, texts: Sequence[str], task: str, verbose: bool) -> np.ndarray:
        if not len(texts):
            module: Any = self.tower(task).module
            return np.empty((0, module.get_embedding_dimension() or 0), dtype=np.float32)
        vectors: np.ndarray = self.represented(texts, task, verbose=verbose)
        return vectors

    def query_encoder(self, *, verbose: bool = False) -> QueryEncoder:
        """Make a stage that adds ``query_vec`` to frames with ``query``.

        Args:
            verbose: Whether to show progress.
        """
        return QueryEncoder(self, verbose=verbose)

    def doc_encoder(self, *, verbose: bool = False) -> DocEncoder:
        """Make a stage that adds ``doc_vec`` to frames with the document's text.

        Args:
            verbose: Whether to show progress.
        """
        return DocEncoder(self, verbose=verbose)

    def retriever(
        self,
        corpus: Any,
        *,
        folder: str | Path | None = None,
        num_results: int = 1000,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> Retriever:
        """Make a first stage that searches all documents of a corpus exactly.

        Args:
            corpus: A dataset (``get_corpus_iter``), a frame, or an iterable of dictionaries with ``docno`` and the text; each
                document is encoded once, in batches, and truncated to the window. Or existing vectors: a folder that this method
                wrote, or :class:`~pyterrier_debias.rankers.vectors.Vectors`.
            folder: Where to keep the vectors (written completely or not at all); they are then read through a memory map
                and can be opened again: ``model.retriever('the/folder')``. None keeps them in memory.
            num_results: Largest number of results per query.
            overwrite: Whether to replace vectors that are already in ``folder``.
            verbose: Whether to show progress.

        Returns:
            A stage from query frames to result frames.

        Raises:
            InputError: For missing texts, docnos that occur twice, an empty corpus, a folder that exists already, or one whose
                vectors come from another model.
        """
        check_number(f"{type(self).__name__}.retriever", "num_results", num_results, least=1, whole=True)
        vectors = self.keep(corpus, Vectors, folder, overwrite=overwrite, verbose=verbose)
        return Retriever(self, vectors, num_results=num_results, verbose=verbose)

    def probe(self) -> np.ndarray:
        """The model's vector of a fixed text, float32, shape [d + 1] with ``max_length`` at the end.

        It is stored with vectors, to recognise a model with other weights, pooling, prompts or options, whatever its folder.
        """
        return np.append(self.represented([PROBE], "document", cuts=[])[0], np.float32(self.max_length or 0))

    # What TwoTowers asks for

    def represent(self, features: dict[str, torch.Tensor]) -> torch.Tensor:
        """The vectors of a batch, shape [n, d], normalised for cosine."""
        import torch

        vectors = features["sentence_embedding"].float()
        if self.module.truncate_dim is not None:
            vectors = vectors[..., : self.module.truncate_dim]
        return torch.nn.functional.normalize(vectors, dim=-1) if self.similarity == "cosine" else vectors

    def fetched(self, found: Iterator[tuple[np.ndarray, torch.Tensor]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Vectors as arrays."""
        return engine.on_their_way(found)

    def rows_of(self, found: np.ndarray) -> Sequence[np.ndarray]:
        """The vectors of a batch; see :class:`CorpusEncoder`."""
        return list(found)

    def of_rows(self, rows: Sequence[np.ndarray]) -> np.ndarray:
        """Vectors as a batch."""
        return np.stack(rows)

    def packed_features(self, module: Any) -> Callable[..., dict[str, torch.Tensor]] | None:
        """BERT-shaped encoders under mean or [CLS] pooling run without padding."""
        return _packed_features(module, 0 if self._row is None else self._row.skip)

    def gather(self, n: int, found: Iterator[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
        """All vectors in their order, float32, shape [n, d]."""
        return engine.gather(n, found)

    def compare(
        self, queries: np.ndarray, query_rows: np.ndarray, docs: np.ndarray, doc_rows: np.ndarray
    ) -> np.ndarray:
        """Inner products of pairs, summed in float64, so that they do not depend on the batch."""
        _check_dimensions(queries, docs)
        scores = np.empty(len(query_rows))
        for start in range(0, len(scores), COMPARED):
            part = slice(start, start + COMPARED)
            left, right = queries[query_rows[part]], docs[doc_rows[part]]
            scores[part] = np.einsum("ij,ij->i", left.astype(np.float64), right.astype(np.float64))
        return scores

    def similarity_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Inner products of rows, under autograd."""
        of_queries, of_docs = self.represent(queries), self.represent(docs)
        _check_dimensions(of_queries, of_docs)
        return (of_queries * of_docs).sum(dim=-1)

    def matrix_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Inner products of all queries with all documents, under autograd."""
        of_queries, of_docs = self.represent(queries), self.represent(docs)
        _check_dimensions(of_queries, of_docs)
        return of_queries @ of_docs.T


def _check_dimensions(queries: Any, docs: Any) -> None:
    """Refuse two encoders whose vectors cannot be compared."""
    if queries.shape[-1] != docs.shape[-1]:
        raise InputError(
            f"BiEncoder: vectors of queries have {queries.shape[-1]} dimensions, but those of documents {docs.shape[-1]}; for "
            f"documents_by, give an encoder with as many dimensions as the encoder of queries"
        )


def _packed_features(module: Any, skip: int = 0) -> Callable[..., dict[str, torch.Tensor]] | None:
    """A function from packed sequences to a sentence-transformers model's features, if its modules are of the usual kind."""
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    encoder, *after = module
    if hooked([module, *module, encoder.model]):
        return None
    if not PackedBert.supports(encoder.model) or encoder.modality_config["text"]["method_output_name"] != "last_hidden_state":
        return None
    if not after or not isinstance(after[0], Pooling) or after[0].pooling_mode not in POOLING:
        return None
    pooling, *after = after
    of_vectors = (LayerNorm, Dense, Normalize)
    if any(
        not isinstance(m, of_vectors) or getattr(m, "module_input_name", "sentence_embedding") != "sentence_embedding"
        for m in after
    ):
        return None
    packed = PackedBert(encoder.model)

    mean = pooling.pooling_mode == "mean"

    def features(ids: np.ndarray, types: np.ndarray, lengths: np.ndarray) -> dict[str, torch.Tensor]:
        vectors = packed.mean(ids, types, lengths, skip) if mean else packed.first(ids, types, lengths)
        found = {"sentence_embedding": vectors}
        for part in after:
            found = in_float32(part, found)
        return found

    return features


class QueryEncoder(RowWise):
    """Adds ``query_vec``, the vector of ``query``, to a frame; made by :meth:`BiEncoder.query_encoder`.

    Input: any frame with ``query``. Output: the same rows with ``query_vec``, a float32 array of shape [d] each.

    When not to use it: before :meth:`BiEncoder.retriever`, which encodes queries itself (but uses ``query_vec`` if it is there).

    Example:
        >>> from pyterrier_debias import BiEncoder
        >>> BiEncoder("a/model").query_encoder()
        QueryEncoder(BiEncoder('a/model'))
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "QueryEncoder", "help_url": None}

    def __init__(self, model: BiEncoder, *, verbose: bool = False):
        """
        Args:
            model: The encoder.
            verbose: Whether to show progress.
        """
        self.model = model
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the vectors; see the class."""
        pt.validate.columns(inp, includes=["query"], context=self)
        if len(inp) == 0:
            return inp.assign(query_vec=pd.Series(dtype=object))
        frames.check_text(inp, "query", self)
        return inp.assign(query_vec=list(self.model.encode_queries(inp["query"].tolist(), verbose=self.verbose)))

    def subtransformers(self) -> dict[str, Any]:
        """None: the model is not a stage of the pipeline here."""
        return {}


class DocEncoder(RowWise):
    """Adds ``doc_vec``, the vector of the document's text, to a frame; made by :meth:`BiEncoder.doc_encoder`.

    Input: any frame with the model's ``text_field`` (or all its ``fields``). Output: the same rows with ``doc_vec``, a float32
    array of shape [d] each. Texts that are longer than the window are truncated, which is logged.

    When not to use it: to search a corpus exactly; :meth:`BiEncoder.retriever` does so without an index library.

    Example:
        >>> from pyterrier_debias import BiEncoder
        >>> BiEncoder("a/model").doc_encoder()
        DocEncoder(BiEncoder('a/model'))

        An index of pyterrier_dr: ``(model.doc_encoder() >> FlexIndex('folder')).index(dataset.get_corpus_iter())``.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "DocEncoder", "help_url": None}

    def __init__(self, model: BiEncoder, *, verbose: bool = False):
        """
        Args:
            model: The encoder.
            verbose: Whether to show progress.
        """
        self.model = model
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the vectors; see the class."""
        pt.validate.columns(inp, includes=self.model.text_columns(), context=self)
        self.model.check_whole()
        if len(inp) == 0:
            return inp.assign(doc_vec=pd.Series(dtype=object))
        return inp.assign(doc_vec=list(self.model.encode_docs(self.model.documents(inp), verbose=self.verbose)))

    def subtransformers(self) -> dict[str, Any]:
        """None: the model is not a stage of the pipeline here."""
        return {}
