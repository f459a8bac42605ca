"""Cross-encoders: one score from the concatenation of query and document."""

from __future__ import annotations

import copy
import inspect
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.rankers.base import InMemory, Ranker, load_tokenizer, quiet, shared_options
from pyterrier_debias.rankers.engine import (
    CHUNK,
    Cuts,
    Sequences,
    Template,
    check_room,
    gather,
    in_chunks,
    moved,
    report_cuts,
    token_ids,
)
from pyterrier_debias.rankers.long_documents import (
    CONVENTIONS,
    LONG,
    SENTENCES,
    TOKENS,
    PassageSequences,
    report_unread,
    sentences_of,
    top_sum,
)
from pyterrier_debias.rankers.packed import PackedBert, hooked, in_float32
from pyterrier_debias.training.seeds import RANDOM, drawn_from, random_state_kept

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from pyterrier_debias.rankers.heads import EncoderHead, PooledHead
    from pyterrier_debias.training.method import Method
    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: Heads that read several passages of a document together.
JOINT = tuple(str(row["head"]) for row in CONVENTIONS.values() if "head" in row)

#: The kinds of heads.
HEADS = ("cls", "mean", *JOINT)


class CrossEncoder(Ranker):
    """Scores a document by reading it together with the query (BERT_CAT; monoBERT).

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The score is the raw logit, which sentence-transformers' ``CrossEncoder.predict`` passes through a sigmoid. For a checkpoint
    with two labels (not relevant, relevant), it is the difference of the two logits, which is the log-odds of relevance and gives
    the same ranking as the softmax probability. Pairs are truncated by Hugging Face's ``longest_first`` rule. A score depends
    only on its own pair.

    A checkpoint without a classification head (a bare encoder) gets a new head, initialised from ``seed``. Its scores mean
    nothing before training, and the log says so.

    Args:
        model: A hub name, a folder, another cross-encoder (whose weights are copied), or an
            :class:`~pyterrier_debias.rankers.base.InMemory` model.
        max_length: Longest pair in tokens; None for as many as the model can read. Truncation is logged.
        device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
        dtype: ``'float32'``, ``'tf32'`` (on CUDA), ``'bfloat16'`` or ``'float16'``. Half precision is faster, but bfloat16 moves
            scores by about 1 % of their spread within a query: use float32 if you measure small differences of scores.
        batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
        text_field: The column with the document's text.
        fields: Columns to join with a space and read instead of ``text_field``, e.g. ``['url', 'title', 'body']``.
        long: How to handle long documents: ``'truncate'`` reads what fits into the window, ``'firstp'`` scores the first
            passage, ``'maxp'`` scores all passages and takes the best; ``'sentences'`` scores each sentence and adds up the best
            scores (see ``sentence_weights``). The heads ``'parade-...'`` and ``'cedr-knrm'`` read all ``'windows'`` (of tokens)
            or ``'sentences'`` of a document together, in training too.
        passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``; tokens, for ``'windows'``.
        passage_stride: Words or tokens from the start of one passage to the start of the next, for ``'maxp'`` and ``'windows'``.
        max_passages: How many windows or sentences of a document are read together. Of a document with more, the first, the last
            and evenly spaced ones between them are read.
        sentence_weights: Weights of the best sentence, the second best and so on, for ``long='sentences'`` with the heads
            ``'cls'`` and ``'mean'``: the score is the sum of the sentences' probabilities of relevance, each times its weight.
            None for three weights of 1.
        head: What turns the encoder's states into a score: ``'cls'`` is the architecture's own classification head on the first
            token, ``'mean'`` a linear layer on the mean of all tokens, for encoders whose first token was never trained
            (all-MiniLM-L6-v2). Both have no effect on checkpoints that have a head. ``'parade-max'``, ``'parade-avg'``,
            ``'parade-attention'`` and ``'parade-transformer'`` (:class:`~pyterrier_debias.rankers.heads.PassageHead`) and
            ``'cedr-knrm'`` (:class:`~pyterrier_debias.rankers.heads.KernelHead`) replace a checkpoint's head. :meth:`of` combines
            them with the passages of their papers.
        seed: Seed of a new head.
        training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
        verbose: Whether to show progress.

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.

    Example:
        >>> from pyterrier_debias import CrossEncoder
        >>> CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2", long="maxp")
        CrossEncoder('cross-encoder/ms-marco-MiniLM-L6-v2', long='maxp')

        In a pipeline: ``bm25 % 100 >> dataset.text_loader() >> CrossEncoder(...)``.

    When not to use it: over whole collections, because it would read every document for every query; let a first stage or a
    :class:`~pyterrier_debias.BiEncoder` choose candidates.

    References:
        Nogueira and Cho, Passage Re-ranking with BERT, 2019 (arXiv:1901.04085). MaxP: Dai and Callan, SIGIR 2019.

    .. cite.dblp:: journals/corr/abs-1901-04085
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "CrossEncoder", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> PreTrainedModel | EncoderHead:
            """The classifier."""

    _LONG = (*LONG, TOKENS, SENTENCES)
    _SOURCE = ("model", "device", "dtype", "head", "seed")

    def __init__(
        self,
        model: str | Path | CrossEncoder | InMemory,
        *,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        batch_tokens: int | None = None,
        text_field: str = "text",
        fields: Sequence[str] | None = None,
        long: str = "truncate",
        passage_length: int = 150,
        passage_stride: int = 75,
        max_passages: int = 16,
        sentence_weights: Sequence[float] | None = None,
        head: str = "cls",
        seed: int = 0,
        training: Training | None = None,
        verbose: bool = False,
    ):
        super().__init__(**shared_options(locals()))
        self.max_passages = max_passages
        self.sentence_weights = sentence_weights
        self.head = head
        self.seed = seed

    @classmethod
    def of(cls, name: str, model: str | Path | CrossEncoder | InMemory, **options: Any) -> Self:
        """A published way to score long documents, with the head and the passages of its paper.

        ========================  ====================================================================================
        ``name``                  method
        ========================  ====================================================================================
        ``'parade-max'``          aggregates the vectors of at most 16 passages of 225 tokens, one every 200; so do
                                  ``'parade-avg'``, ``'parade-attention'`` and ``'parade-transformer'``
        ``'cedr-knrm'``           kernels over every layer, in pieces of 489 tokens
        ``'birch'``               scores each sentence by itself and adds up the probabilities of the best three
        ========================  ====================================================================================

        Args:
            name: A name from the table.
            model: See the class. A model without such a head gets a new one, initialised from ``seed``, which must be trained.
            options: Options of the class; they take precedence over those of the paper (``passage_length=120``).

        Returns:
            The ranker.

        Raises:
            InputError: For another name, or options that contradict each other.

        Sources: Li et al., PARADE, 2020 (arXiv:2008.09093); MacAvaney et al., CEDR, SIGIR 2019; Akkalyoncu Yilmaz et al., Birch,
        EMNLP-IJCNLP 2019. Three things differ. If a document has more than 16 passages, PARADE draws those between the first and
        the last at random; here they are evenly spaced. CEDR's public code cuts a document into pieces of equal length. Birch
        adds the first-stage score; here, pipelines do so (``bm25 * 0.5 + (bm25 >> texts >> birch) * 0.5``).

        When not to use it: for documents that fit into the window; to reproduce the papers' figures, since no weights were
        available.

        Example:
            >>> from pyterrier_debias import CrossEncoder
            >>> CrossEncoder.of("birch", "cross-encoder/ms-marco-MiniLM-L6-v2")
            CrossEncoder('cross-encoder/ms-marco-MiniLM-L6-v2', long='sentences')
        """
        check_choice("CrossEncoder.of", "name", name, CONVENTIONS)
        made = cls(model, **{**CONVENTIONS[name], **options})
        made.check_options()
        return made

    def check_options(self) -> None:
        """Refuse unknown options; see :meth:`Ranker.check_options`."""
        super().check_options()
        check_choice("CrossEncoder", "head", self.head, HEADS)
        check_number("CrossEncoder", "max_passages", self.max_passages, least=1, whole=True)
        if self.long == TOKENS and self.head not in JOINT:
            raise InputError(
                f"CrossEncoder: long='windows' needs a head that reads passages together ({', '.join(JOINT)}); with "
                f"head={self.head!r} use long='maxp'"
            )
        weights = self._weights()
        if isinstance(weights, str) or not hasattr(weights, "__len__") or len(weights) == 0:
            raise InputError(
                f"CrossEncoder: sentence_weights={weights!r} must be a list of numbers, for the best sentence, the second best, "
                f"and so on; e.g. [1.0, 0.5]"
            )
        for weight in weights:
            check_number("CrossEncoder", "sentence_weights", weight)
        joint = None
        if isinstance(self.model, InMemory):
            joint = getattr(self.model.module, "name", None)
        elif isinstance(self.model, CrossEncoder):
            joint = self.model.head
        if joint != self.head and (joint in JOINT or (self.head in JOINT and isinstance(self.model, (InMemory, CrossEncoder)))):
            raise InputError(
                f"CrossEncoder: head={self.head!r} does not fit the model in memory; give the head of that model, or a folder, "
                f"from which only the encoder is taken"
            )

    def _weights(self) -> Sequence[float]:
        """Weights of the best sentences, in order."""
        return (1.0, 1.0, 1.0) if self.sentence_weights is None else self.sentence_weights

    @property
    def _together(self) -> bool:
        """Whether the passages of a document are read together."""
        return self.head in JOINT

    @property
    def long_for_scoring_only(self) -> bool:
        """Whether training reads less of a long document than scoring does, because ``long`` combines scores of passages."""
        return super().long_for_scoring_only or (self.long == SENTENCES and not self._together)

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The identity of every ranker, with the sentence weights that are used, given or default."""
        return {**super().identity(), "sentence_weights": [float(weight) for weight in self._weights()]}

    def method(self, training: Training) -> Method:
        """What ``fit`` trains; with a head over passages, two networks (``encoder`` and ``head``), whose rates may differ."""
        if not self._together:
            return super().method(training)
        from pyterrier_debias.rankers.heads import HeadRanking

        return HeadRanking.of(self, training)

    def read(self, model: str) -> tuple[torch.nn.Module, Any]:
        """Load a classifier, or an encoder under a new head; see :meth:`Ranker.read`."""
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

        from pyterrier_debias.rankers.heads import EncoderHead, PooledHead, joint_head

        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        options: dict[str, Any] = {"dtype": self.torch_dtype, "trust_remote_code": False}
        kind = (config.architectures or [""])[0]
        tokenizer = load_tokenizer(model, self)
        prompt = _default_prompt(model)
        if prompt:
            logger.warning(
                "CrossEncoder: %r was saved with the prompt %r before each query, which is not added here; add it, e.g. "
                "pt.apply.query(lambda row: %r + row['query']) >> CrossEncoder(...)", model, prompt, prompt,
            )  # fmt: skip
        if kind.endswith("ForSequenceClassification") and not self._together:
            if config.num_labels not in (1, 2):
                raise InputError(
                    f"CrossEncoder: model {model!r} has {config.num_labels} labels; a ranker needs one (a score) or two (not "
                    f"relevant, relevant)"
                )
            return AutoModelForSequenceClassification.from_pretrained(model, **options), tokenizer
        if config.is_encoder_decoder or kind.endswith(("ForCausalLM", "T5EncoderModel")):
            raise InputError(
                f"CrossEncoder: model {model!r} is a {kind or config.model_type}, not an encoder; "
                f"use T5Reranker for T5, or a checkpoint with a classification head"
            )
        saved = EncoderHead.saved_in(model)
        if saved != self.head and saved in JOINT:
            raise InputError(f"CrossEncoder: model {model!r} has the head {saved!r}; open it with head={saved!r}")
        if saved is not None and saved not in JOINT and not self._together:
            with drawn_from(self.seed):
                pooled = PooledHead(AutoModel.from_pretrained(model, **options), saved)
            pooled.load_head(model)
            return pooled, tokenizer
        if saved != self.head:
            where = {"cls": "the first token", "mean": "the mean of all tokens"}.get(self.head, f"passages ({self.head})")
            logger.warning(
                "CrossEncoder: model %s has no classification head; a new one on %s (seed %d) scores at random until "
                "it is trained",
                model,
                where,
                self.seed,
            )
        with drawn_from(self.seed):
            if self._together:
                module = joint_head(AutoModel.from_pretrained(model, **options), self.head).to(self.torch_dtype)
                if saved == self.head:
                    module.load_head(model)
                return module, tokenizer
            if self.head == "mean":
                return PooledHead(AutoModel.from_pretrained(model, **options)), tokenizer
            return AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, **options), tokenizer

    def pooled(self) -> PooledHead:
        """Replace the architecture's own head by a linear layer on the first token's state, unless the head is a pooled one.

        Returns:
            The module, which the ranker uses from now on. A head that reads passages together cannot be replaced.
        """

        from pyterrier_debias.rankers.heads import PooledHead

        with RANDOM, self._lock:
            loaded = self._load()
            if not isinstance(loaded.module, PooledHead):
                with drawn_from(self.seed):
                    loaded.module = PooledHead(loaded.module.base_model, "first").to(self.torch_device).eval()
            return loaded.module

    def write(self, folder: Path) -> None:
        """Write an ordinary Hugging Face model folder, its window included; see :meth:`Ranker.write`."""
        from pyterrier_debias.rankers.heads import PooledHead

        check_empty(folder, f"{type(self).__name__}.write")
        module, tokenizer = self.module, copy.deepcopy(self.tokenizer)
        if self.max_length is not None:
            tokenizer.model_max_length = self.window
        # The layers of sentence-transformers draw weights before they are given ours.
        with random_state_kept() if isinstance(module, PooledHead) else nullcontext(), quiet():
            module.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            if isinstance(module, PooledHead):
                module.save_modules(folder)

    def sequences(self, queries: Sequence[str], docs: Sequence[str]) -> Sequences:
        """The token sequences of n pairs, cut to the window."""
        tokenizer, template = self.tokenizer, Template.pair(self.tokenizer)
        check_room(self, self.window, template)
        return Sequences(
            template,
            self.window,
            token_ids(tokenizer, queries),
            token_ids(tokenizer, docs),
            side=tokenizer.truncation_side,
        )

    def score(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs of texts, with long documents handled by the option ``long``; see :meth:`Ranker.score`."""
        if self._together and self.long in (TOKENS, SENTENCES):
            return self._score_distinct(list(zip(queries, docs)))
        if self.long != SENTENCES:
            return super().score(queries, docs)
        cut = {doc: sentences_of(doc) for doc in dict.fromkeys(docs)}
        owner = np.repeat(np.arange(len(docs)), [len(cut[doc]) for doc in docs])
        scores = self._score_distinct([(query, sentence) for query, doc in zip(queries, docs) for sentence in cut[doc]])
        # A sentence's probability of relevance: the score is its log-odds.
        return top_sum(0.5 + 0.5 * np.tanh(scores / 2), owner, len(docs), self._weights())

    def passages(self, queries: Sequence[str], docs: Sequence[str]) -> PassageSequences:
        """The token sequences of n documents for a head that reads passages together; one passage if ``long`` does not split."""
        return PassageSequences(
            self.tokenizer,
            self.window,
            queries,
            docs,
            long=self.long,
            size=self.passage_length,
            stride=self.passage_stride,
            most=self.max_passages,
        )

    def _score_together(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Scores of n documents, whose passages are read one after another in batches of documents."""
        self.scoring_module()
        tokenizer, cuts = self.tokenizer, Cuts()

        def begin(rows: slice) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
            found = self.passages(queries[rows], docs[rows])
            cuts.add(found.cut, found.lengths)
            return found.longest, lambda indices: self._taken(found.padded(indices, tokenizer))

        scored = in_chunks(
            len(docs),
            begin,
            self._forwarded,
            batch_tokens=self.budget(),
            chunk=max(CHUNK // self.max_passages, 1),
            tf32=self.dtype == "tf32",
            verbose=self.verbose,
            label="CrossEncoder",
        )
        scores = gather(len(docs), scored)
        report_unread("CrossEncoder", *cuts.all())
        return scores

    def _forwarded(self, tensors: dict[str, torch.Tensor]) -> torch.Tensor:
        """Scores of a padded batch that is on the CPU."""
        return self.forward(**{name: moved(tensor, self.torch_device) for name, tensor in tensors.items()})

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs; see :meth:`Ranker.score_pairs`."""
        if self._together:
            return self._score_together(queries, docs)
        packed_logits, cuts = _packed_logits(self.scoring_module()), Cuts()

        def begin(rows: slice) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
            sequences = self.sequences(queries[rows], docs[rows])
            cuts.add(sequences.cut, sequences.lengths)
            if packed_logits is not None:
                return sequences.lengths, sequences.packed
            return sequences.lengths, lambda indices: self._padded(sequences, indices)

        def compute(batch: Any) -> torch.Tensor:
            return self._forwarded(batch) if packed_logits is None else _relevance(packed_logits(*batch))

        found = in_chunks(
            len(docs),
            begin,
            compute,
            batch_tokens=self.budget(),
            padded=packed_logits is None,
            tf32=self.dtype == "tf32",
            verbose=self.verbose,
            label="CrossEncoder",
        )
        scores = gather(len(docs), found)
        report_cuts("CrossEncoder", self.window, *cuts.all())
        return scores

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Tensors of n pairs: ``input_ids``, ``attention_mask`` and, if the model accepts them, ``token_type_ids``.

        Of shape [n, longest]; with a head that reads passages together [n, most passages, longest].
        """
        if self._together:
            return self._taken(self.passages(queries, docs).padded(np.arange(len(queries)), self.tokenizer))
        return self._padded(self.sequences(queries, docs), np.arange(len(queries)))

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that truncation removes and leaves, the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        sequences = self.passages(queries, docs) if self._together else self.sequences(queries, docs)
        return sequences.cut, sequences.lengths, self.window

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, with gradients if the caller enables them."""
        return _relevance(self.module(**tensors).logits)

    def forward_packed(self, **tensors: torch.Tensor) -> torch.Tensor:
        """The scores of :meth:`forward` without gradients, for a module in eval mode; computed without padding on the CPU.

        Args:
            tensors: Output of :meth:`tokenise`, on the model's device.

        Returns:
            Scores, shape [n]; equal to those of :meth:`forward` up to rounding.
        """
        import torch

        ids, mask = tensors["input_ids"], tensors["attention_mask"].bool()
        packed_logits = None
        # Elsewhere one would wait for the device to tell lengths; and mixed precision is not for the packed path.
        if ids.device.type == "cpu" and not self._together and not torch.is_autocast_enabled("cpu"):
            packed_logits = _packed_logits(self.module)
        if packed_logits is None:
            return self.forward(**tensors)
        types, lengths = tensors.get("token_type_ids", torch.zeros_like(ids)), mask.sum(dim=1)
        order = lengths.argsort(descending=True, stable=True)
        flat = (values[order][mask[order]].numpy() for values in (ids, types))
        scores = _relevance(packed_logits(*flat, lengths[order].numpy()))
        return torch.empty_like(scores).index_copy_(0, order, scores)

    def _padded(self, sequences: Sequences, indices: np.ndarray) -> dict[str, torch.Tensor]:
        """A padded batch of pairs."""
        return self._taken(sequences.padded(indices, self.tokenizer))

    def _taken(self, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The tensors that the model accepts (the tokenizer may be of another architecture)."""
        module = self.module
        takes = {*inspect.signature(getattr(module, "encoder", module).forward).parameters}
        if self.head == "cedr-knrm":
            takes.add("parts")
        return {name: tensor for name, tensor in tensors.items() if name in takes}


def _default_prompt(model: str) -> str:
    """The prompt that sentence-transformers puts before each query of a model in a folder or the cache; empty for none."""
    from huggingface_hub import try_to_load_from_cache

    name = "config_sentence_transformers.json"
    path = Path(model) / name if Path(model).is_dir() else try_to_load_from_cache(model, name)
    if not isinstance(path, (str, Path)) or not Path(path).is_file():
        return ""
    about = json.loads(Path(path).read_text(encoding="utf-8"))
    return (about.get("prompts") or {}).get(about.get("default_prompt_name")) or ""


def _relevance(logits: torch.Tensor) -> torch.Tensor:
    """Scores of shape [n]: logits [n, 1] unchanged, or for two labels [n, 2] the log-odds of the second."""
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def _packed_logits(module: Any) -> Callable[..., torch.Tensor] | None:
    """The fast path of a module: a function from packed sequences to logits, or None if there is none."""
    from pyterrier_debias.rankers.heads import PooledHead

    encoder: Any = module.encoder if isinstance(module, PooledHead) else getattr(module, "base_model", None)
    if hooked([module]) or not PackedBert.supports(encoder):
        return None
    packed = PackedBert(encoder)
    if isinstance(module, PooledHead):
        pooled = packed.mean if module.pooling == "mean" else packed.first
        return lambda *sequences: in_float32(module.classifier, pooled(*sequences))
    if type(module).__name__ != type(encoder).__name__.removesuffix("Model") + "ForSequenceClassification":
        return None
    if getattr(encoder, "pooler", None) is not None:
        return lambda *sequences: in_float32(module.classifier, in_float32(encoder.pooler, packed.first(*sequences)[:, None]))
    return lambda *sequences: in_float32(module.classifier, packed.first(*sequences)[:, None])
