"""Base classes of rankers that encode queries and documents separately, through sentence-transformers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.core.memory import Memory
from pyterrier_debias.data.base import corpus_batches
from pyterrier_debias.rankers import engine
from pyterrier_debias.rankers.base import Ranker, quiet, window_of
from pyterrier_debias.rankers.kept import Kept

if TYPE_CHECKING:
    import torch
    from sentence_transformers.base.model import BaseModel

#: Names under which sentence-transformers models store the prompts of queries and of documents.
_PROMPTS = {"query": ("query",), "document": ("document", "passage", "corpus")}

_PLURAL = {"query": "queries", "document": "documents"}

#: How many documents of a corpus are encoded at a time, to be stored.
CORPUS_ROWS = 16384
#: How many bytes of documents' representations are remembered if no limit is given.
_REMEMBERED = 500_000_000
#: How many pairs are compared at a time.
COMPARED = 4096
#: The fixed text whose representation distinguishes two models.
PROBE = "The harbour bridge of 1932 carries eight lanes, two railway tracks and a footpath."

K = TypeVar("K", bound=Kept)


def prompt_of(module: Any, task: str) -> str:
    """Return the prompt that ``encode_query`` or ``encode_document`` of a sentence-transformers model puts before its input.

    Args:
        module: The model.
        task: ``'query'`` or ``'document'``.

    Returns:
        The prompt; empty for none.
    """
    check_choice("prompt_of", "task", task, _PROMPTS)
    name = next((name for name in _PROMPTS[task] if name in module.prompts), module.default_prompt_name)
    return module.prompts.get(name) or ""


def counts_tokens(module: Any) -> bool:
    """Whether the model's input tokens are those of its tokenizer for prompt and text.

    This is true for all text encoders, but not for static embeddings, routers and chat templates.
    """
    from sentence_transformers.base.modules import Transformer

    first = module[0]
    return (
        isinstance(first, Transformer)
        and first.tokenizer is not None
        and first.transformer_task in ("feature-extraction", "fill-mask")
        and "text" in first.modality_config
        and "message" not in first.modality_config
        and not first.processing_kwargs
    )


def reads_plain_text(module: Any, task: str) -> bool:
    """Whether a model's input consists only of tokens, so that each text can be tokenised once.

    Other models prepare each batch themselves: those with query expansion, with prompts that pooling leaves out, and all that
    :func:`counts_tokens` excludes.

    Args:
        module: A sentence-transformers model.
        task: ``'query'`` or ``'document'``.

    Returns:
        True for ordinary text encoders.
    """
    check_choice("reads_plain_text", "task", task, _PROMPTS)
    if not counts_tokens(module) or (task == "query" and module[0].query_expansion is not None):
        return False
    return not prompt_of(module, task) or all(getattr(part, "include_prompt", True) for part in module)


class TwoTowers(Ranker):
    """Base class of rankers that encode queries and documents separately, each distinct text once.

    Documents are encoded batch by batch and immediately compared with their queries, so that memory holds only the queries'
    vectors and one batch of documents.
    """

    if TYPE_CHECKING:

        @property
        def module(self) -> BaseModel:
            """The sentence-transformers model."""

        def scoring_module(self) -> BaseModel:
            """The model in eval mode."""

    @abstractmethod
    def represent(self, features: dict[str, torch.Tensor]) -> Any:
        """Extract the representation of a batch from the module's output; runs in inference mode."""

    def packed_features(self, module: Any) -> Callable[..., dict[str, torch.Tensor]] | None:
        """The fast path of a module, a function from packed sequences to its features; None if there is none."""
        return None

    @abstractmethod
    def gather(self, n: int, found: Iterator[tuple[np.ndarray, Any]]) -> Any:
        """Join the representations of all n queries, in their order."""

    @abstractmethod
    def compare(
        self, queries: Any, query_rows: np.ndarray, docs: Any, doc_rows: np.ndarray
    ) -> np.ndarray | torch.Tensor:
        """Score pairs.

        Args:
            queries: Output of :meth:`gather`.
            query_rows: Index of each pair's query, shape [m].
            docs: Output of :meth:`represent` for a batch of documents.
            doc_rows: Index of each pair's document in the batch, shape [m].

        Returns:
            Scores, shape [m]; a tensor if they are on the device.
        """

    @abstractmethod
    def similarity_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Score row i of the queries' features with row i of the documents', differentiably: shape [n]."""

    @abstractmethod
    def matrix_of(self, queries: dict[str, torch.Tensor], docs: dict[str, torch.Tensor]) -> torch.Tensor:
        """Score every row of the queries' features with every row of the documents', differentiably: shape [queries, docs]."""

    def task_window(self, task: str) -> int:
        """The longest query or document in tokens, special tokens and prompt included: ``max_length``, or the checkpoint's."""
        module: Any = self.module
        if not counts_tokens(module):
            return self.window
        own = module[0].query_length if task == "query" else module[0].document_length
        return window_of(module.tokenizer, module.config, self.max_length or own, self)

    def tower(self, task: str) -> TwoTowers:
        """The ranker that encodes queries or documents: this one, unless documents have an encoder of their own."""
        return self

    @property
    def window(self) -> int:
        """The longest text in tokens, see :func:`~pyterrier_debias.rankers.base.window_of`."""
        module = self.module
        if not counts_tokens(module):
            if self.max_length is not None:
                raise InputError(
                    f"{type(self).__name__}: this model prepares its input itself, so max_length cannot be set; leave it out"
                )
            return module.max_seq_length or 512
        return window_of(module.tokenizer, module.config, self.max_length, self)

    def encoded(
        self, texts: Sequence[str], task: str, cuts: list[np.ndarray] | None = None, *, verbose: bool = False
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Encode texts in batches of similar length.

        Args:
            texts: n texts, preferably distinct.
            task: ``'query'`` or ``'document'``.
            cuts: A list for a caller that reports truncation itself: an int32 array of shape [2, n], with the tokens lost and
                left, is appended. None logs truncation here.
            verbose: Whether to show progress, even if the ranker's own ``verbose`` is False.

        Yields:
            ``(indices, representation)`` for each batch, see :meth:`represent`; every index occurs once.
        """
        tower = self.tower(task)
        if tower is not self:
            return tower.encoded(texts, task, cuts, verbose=verbose)
        return self._encoded(texts, task, cuts, verbose)

    def _encoded(
        self, texts: Sequence[str], task: str, cuts: list[np.ndarray] | None, verbose: bool
    ) -> Iterator[tuple[np.ndarray, Any]]:
        module = self.scoring_module()
        plain, counted = reads_plain_text(module, task), counts_tokens(module)
        tokenizer = self.module.tokenizer if counted else None  # a module that counts no tokens need have none
        packed = self.packed_features(module) if plain else None
        noted = engine.Cuts()

        def begin(rows: slice) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
            own = texts[rows]
            lengths = np.array([len(text) // 4 + 4 for text in own], dtype=np.int64)
            if counted:
                sequences = self._sequences(own, task)
                lengths = sequences.lengths
                noted.add(sequences.cut, lengths)
                if packed is not None:
                    return lengths, sequences.packed
                if plain:
                    return lengths, lambda indices: sequences.padded(indices, tokenizer)
            return lengths, lambda indices: self._prepared([own[i] for i in indices], task)

        def compute(batch: Any) -> Any:
            return self.represent(self._features(module, batch, task) if packed is None else packed(*batch))

        found = engine.in_chunks(
            len(texts),
            begin,
            compute,
            batch_tokens=self.budget(),
            padded=packed is None,
            tf32=self.dtype == "tf32",
            verbose=self.verbose or verbose,
            label=f"encoding {_PLURAL[task]}",
        )
        yield from self.fetched(found)
        if cuts is None:
            self.report_cuts(task, *noted.all())
        else:
            cuts.append(np.stack(noted.all()))

    def fetched(self, found: Iterator[tuple[np.ndarray, Any]]) -> Iterator[tuple[np.ndarray, Any]]:
        """Pass on representations to their comparison; a subclass that compares on the CPU moves them there."""
        return found

    def remembered(self) -> Any:
        """What :meth:`recalled` looks up, for one call that scores or encodes; None for nothing."""
        return None

    def recalled(
        self, texts: Sequence[str], task: str, memory: Any, *, verbose: bool = False
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Encode queries, or documents that are to be scored; a subclass may know some of them already.

        Args:
            texts: n distinct texts.
            task: See :meth:`encoded`.
            memory: Output of :meth:`remembered`.
            verbose: See :meth:`encoded`.

        Yields:
            The same items as :meth:`encoded`.
        """
        return self.encoded(texts, task, verbose=verbose)

    def report_cuts(self, task: str, cut: np.ndarray, lengths: np.ndarray) -> None:
        """Log how many tokens of queries or documents did not fit; see :func:`~pyterrier_debias.rankers.engine.report_cuts`."""
        engine.report_cuts(f"{type(self).__name__}, {_PLURAL[task]}", self.task_window(task), cut, lengths)

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        pairs, memory = engine.DistinctTexts(queries, docs), self.remembered()
        sought = self.gather(len(pairs.queries), self.recalled(pairs.queries, "query", memory))
        scores = engine.Gathered(len(docs), dtype=np.float64)
        for indices, found in self.recalled(pairs.docs, "document", memory):
            rows, query_rows, doc_rows = pairs.of(indices)
            scores.add(rows, self.compare(sought, query_rows, found, doc_rows))
        return scores.array()

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Turn n pairs into tensors (scorer protocol), named ``query_...`` and ``document_...``.

        Args:
            queries: n queries.
            docs: n documents; for :meth:`forward_matrix` any number.

        Returns:
            Tensors on the CPU whose first dimension is n.

        Raises:
            InputError: If the model does not read texts as rows of tokens and therefore cannot be trained here.
        """
        import torch

        tensors = {}
        for task, texts in (("query", queries), ("document", docs)):
            tower = self.tower(task)
            module = tower.module
            if reads_plain_text(module, task):
                features = tower._sequences(texts, task).padded(np.arange(len(texts)), module.tokenizer)
            else:
                features = tower._prepared(list(texts), task)
            for name, value in features.items():
                if isinstance(value, int) and not isinstance(value, bool):
                    value = torch.full((len(texts),), value)
                if not isinstance(value, torch.Tensor):
                    continue
                if value.shape[:1] != (len(texts),):
                    raise InputError(
                        f"{type(self).__name__}: this model turns texts into {name!r} of shape {tuple(value.shape)}, not into "
                        f"one row per text; such a model scores, but cannot be trained here"
                    )
                tensors[f"{task}_{name}"] = value
        return tensors

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that truncation removes and leaves, the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        tower = self.tower("document")
        if not counts_tokens(tower.module):
            return None
        sequences = tower._sequences(docs, "document")
        return sequences.cut, sequences.lengths, tower.task_window("document")

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Score the tensors of :meth:`tokenise` (scorer protocol).

        Args:
            tensors: The tensors, on the model's device.

        Returns:
            Scores, shape [n].
        """
        return self.similarity_of(*self._both(tensors))

    def forward_matrix(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Score each query with each document; each text is encoded once.

        Args:
            tensors: Output of :meth:`tokenise`, on the model's device.

        Returns:
            Scores, shape [queries, documents].
        """
        return self.matrix_of(*self._both(tensors))

    def _both(self, tensors: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        import torch

        found = []
        for task in ("query", "document"):
            own = {name.removeprefix(f"{task}_"): value for name, value in tensors.items() if name.startswith(f"{task}_")}
            tower = self.tower(task)
            if tower is self:
                found.append(self._features(self.module, own, task))
            else:
                # Documents stay as they are: the encoder of queries alone is trained.
                with torch.no_grad():
                    found.append(tower._features(tower.scoring_module(), own, task))
        return found

    def write(self, folder: Path) -> None:
        """Write an ordinary sentence-transformers folder; see :meth:`Ranker.write`."""
        check_empty(folder, f"{type(self).__name__}.write")
        module = self.module
        with quiet():
            module.save(str(folder), create_model_card=False)

    def _sequences(self, texts: Sequence[str], task: str) -> engine.Sequences:
        module = self.module
        prompt = prompt_of(module, task)
        ids = engine.token_ids(module.tokenizer, [prompt + text for text in texts])
        side = module.tokenizer.truncation_side
        template, window = engine.Template.single(module.tokenizer), self.task_window(task)
        engine.check_room(self, window, template)
        return engine.Sequences(template, window, ids, side=side)

    def _prepared(self, texts: list[str], task: str) -> dict[str, Any]:
        module = self.module
        options: dict[str, Any] = {}
        if counts_tokens(module) and (task == "document" or module[0].query_expansion is None):
            options["processing_kwargs"] = {"text": {"max_length": self.task_window(task)}}
        with engine.TOKENIZER_LOCK:
            return module.preprocess(texts, prompt=prompt_of(module, task) or None, task=task, **options)

    def _features(self, module: Any, features: dict[str, Any], task: str) -> dict[str, torch.Tensor]:
        import torch

        device = self.torch_device
        there = {name: engine.moved(v, device) if isinstance(v, torch.Tensor) else v for name, v in features.items()}
        return module(there, task=task)


def _size(row: Any) -> int:
    """Bytes of a vector, or of a sparse row."""
    return row.nbytes if isinstance(row, np.ndarray) else row.data.nbytes + row.indices.nbytes + row.indptr.nbytes


class CorpusEncoder(TwoTowers):
    """Base class of rankers with one representation per text, which can be stored for all documents of a corpus."""

    #: Representations by text, of queries and of documents, instead of scores.
    _MEMORY = Memory

    @abstractmethod
    def rows_of(self, found: Any) -> Sequence[Any]:
        """Split the output of :meth:`represent` for a batch into rows, one per text."""

    @abstractmethod
    def of_rows(self, rows: Sequence[Any]) -> Any:
        """Join such rows into a batch for :meth:`compare`."""

    @contextmanager
    def remembering(self, limit: int | None = None) -> Iterator[Self]:
        """Context in which each query, and each document that is scored, is encoded once.

        This saves most of the work if the same documents are scored again. Queries of ``encode_queries``, ``query_encoder`` and
        ``retriever`` are remembered, too. Documents that are not scored (``encode_docs``, ``doc_encoder``, the corpus of a
        ``retriever``) are encoded each time.

        Representations are kept by the *texts* of queries and documents, never by their ids, so a changed text is encoded anew.
        They are forgotten when the context ends, and when an option or the model changes, e.g. by ``fit``; copies, pickles and
        comparisons ignore them.

        Args:
            limit: Largest number of queries, and of documents, to keep; others are encoded each time. None: as many of each as
                take 500 MB (325,000 vectors of 384 dimensions). Inside another context, its memory and its limit are used.

        Yields:
            The ranker.

        Example:
            ::

                with ranker.remembering():
                    before, after = ranker(candidates), ranker(candidates_of_reworded_queries)

        When not to use it: if no text occurs twice, or if encoding is cheap. Each call reads all weights once, to see whether
        they have changed; for a model of word vectors that is called query by query, this takes longer than encoding.
        """
        with super().remembering(limit):
            yield self

    def remembered(self) -> tuple[dict[str, Any], int | None] | None:
        """The representations that are known for the present options and weights, by task, and the limit; None for nothing."""
        memory, _ = self._memory or (None, 0)
        return None if memory is None else (memory.kept(self.identity()), memory.limit)

    def recalled(
        self, texts: Sequence[str], task: str, memory: Any, *, verbose: bool = False
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Encode texts, or look up their representations; see :meth:`remembering`."""
        if memory is None:
            yield from super().recalled(texts, task, memory, verbose=verbose)
            return
        tasks, most = memory
        known = tasks.setdefault(task, {})
        there = np.array([text in known for text in texts], dtype=bool)
        remembered, new = np.flatnonzero(there), np.flatnonzero(~there)
        for start in range(0, len(remembered), COMPARED):
            rows = remembered[start : start + COMPARED]
            yield rows, self.of_rows([known[texts[i]] for i in rows])
        if not len(new):
            return
        for indices, found in super().recalled([texts[i] for i in new.tolist()], task, None, verbose=verbose):
            made = self.rows_of(found)
            limit = _REMEMBERED * len(made) // sum(map(_size, made)) if most is None else most
            for i, row in zip(new[indices], made):
                if len(known) < limit:
                    known[texts[i]] = row
            yield new[indices], found

    def represented(
        self, texts: Sequence[str], task: str, cuts: list[np.ndarray] | None = None, *, verbose: bool = False
    ) -> Any:
        """The representations of texts; each distinct text is encoded once. See :meth:`encoded` and :meth:`gather`.

        Queries are looked up while :meth:`remembering` lasts; documents are not, because a corpus may have many.
        """
        distinct, at = engine.places(texts)
        if task == "query" and cuts is None:
            found = self.recalled(distinct, task, self.remembered(), verbose=verbose)
        else:
            found = self.encoded(distinct, task, cuts, verbose=verbose)
        return self.gather(len(distinct), found)[at]

    @abstractmethod
    def probe(self) -> np.ndarray:
        """The model's representation of :data:`PROBE`, with ``max_length`` at the end."""

    def check_whole(self) -> None:
        """Refuse to represent whole documents if ``long`` scores passages."""
        if self.long != "truncate":
            raise InputError(
                f"{type(self).__name__}: long={self.long!r} scores passages, but one vector stands for a whole document here; "
                f"use long='truncate', or cut the corpus with pt.text.sliding first"
            )

    def keep(self, corpus: Any, kind: type[K], folder: str | Path | None, *, overwrite: bool, verbose: bool) -> K:
        """Encode the documents of a corpus and store them, or open stored representations.

        Args:
            corpus: A dataset (``get_corpus_iter``), a frame, or an iterable of dictionaries with ``docno`` and the text; or
                existing representations: a folder, or an object of ``kind``.
            kind: The class that stores the representations.
            folder: Where to store them; None for in memory.
            overwrite: Whether to replace representations that are already in ``folder``.
            verbose: Whether to show progress.

        Returns:
            An object of ``kind``.

        Raises:
            InputError: For missing texts, docnos that occur twice, an empty corpus, or a folder that exists already.
        """
        if isinstance(corpus, (str, Path)):
            return kind.load(corpus)
        if isinstance(corpus, kind):
            return corpus
        self.check_whole()
        batches, probe = self._corpus(corpus, verbose), self.probe()
        if folder is None:
            return kind.gather(batches, probe=probe)
        return kind.write(folder, batches, probe=probe, overwrite=overwrite)

    def _corpus(self, corpus: Any, verbose: bool) -> Iterator[tuple[list[str], Any]]:
        cuts: list[np.ndarray] = []
        for frame in corpus_batches(corpus, CORPUS_ROWS, verbose=verbose):
            pt.validate.document_frame(frame, extra_columns=self.text_columns(), context=self)
            docnos = frames.with_string_ids(frame, self)["docno"].tolist()
            yield docnos, self.represented(self.documents(frame), "document", cuts)
        if cuts:
            self.report_cuts("document", *np.concatenate(cuts, axis=1))

    def write(self, folder: Path) -> None:
        """Write an ordinary sentence-transformers folder, its window included; see :meth:`Ranker.write`."""
        module: Any = self.module
        if self.max_length is None:
            super().write(folder)
            return
        window, tokens = self.window, module[0]
        own = module.max_seq_length, tokens.query_length, tokens.document_length
        try:
            module.max_seq_length, tokens.query_length, tokens.document_length = window, None, None
            super().write(folder)
        finally:
            module.max_seq_length, tokens.query_length, tokens.document_length = own
