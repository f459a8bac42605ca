"""Cross-encoders: one score from the concatenation of query and document."""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.rankers.base import InMemory, Ranker, quiet, shared_options
from pyterrier_debias.rankers.engine import Sequences, Template, batches, gather, token_ids
from pyterrier_debias.rankers.packed import PackedBert

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from pyterrier_debias.rankers.heads import PooledHead
    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: Where a fresh head reads the encoder.
HEADS = ("cls", "mean")


class CrossEncoder(Ranker):
    """Scores a document by reading it together with the query (BERT_CAT; monoBERT).

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The score is the raw logit, which sentence-transformers' ``CrossEncoder.predict`` passes through a sigmoid. A checkpoint with
    two labels (not relevant, relevant) scores by the difference of its logits, which is the log-odds of relevance and ranks as
    the softmax probability does. Pairs are cut as Hugging Face's ``longest_first`` cuts them. A score depends on its own pair
    only.

    A checkpoint without a classification head (a bare encoder) gets a fresh one, drawn from ``seed``: good for training, while
    its scores mean nothing before. The log says so.

    Args:
        model: A hub name, a folder, another cross-encoder (whose weights are copied), or an
            :class:`~pyterrier_debias.rankers.base.InMemory` model.
        max_length: Longest pair in tokens; None for all that the model can read. Truncation is logged.
        device: The device; None picks CUDA, then Apple's MPS, then the processor.
        dtype: ``'float32'``, ``'bfloat16'`` or ``'float16'``. Half precision is faster and changes scores by about 1e-3 relative:
            stay with float32 where small differences of scores are the result.
        batch_tokens: Budget of a batch in tokens; None picks one for the device. It does not change scores.
        text_field: The column with the document's text.
        fields: Columns to join with a space in place of ``text_field``, e.g. ``['url', 'title', 'body']``.
        long: What to do with long documents: ``'truncate'`` reads what fits into the window, ``'firstp'`` scores the first
            passage, ``'maxp'`` takes the best passage.
        passage_length: Words of a passage, for ``'firstp'`` and ``'maxp'``.
        passage_stride: Words from one passage's start to the next one's, for ``'maxp'``.
        head: Where a fresh head reads: ``'cls'`` is the architecture's own classification head on the first token, ``'mean'`` a
            linear layer on the mean of all tokens, for encoders whose first token was never trained (all-MiniLM-L6-v2). Without
            effect on checkpoints that bring a head.
        seed: Seed of the fresh head.
        training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
        verbose: Whether to show progress.

    Raises:
        InputError: From scoring: missing texts, duplicate pairs, unknown options, a model that cannot be loaded.

    Example:
        >>> from pyterrier_debias import CrossEncoder
        >>> CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2", long="maxp")
        CrossEncoder('cross-encoder/ms-marco-MiniLM-L6-v2', long='maxp')

        In a pipeline: ``bm25 % 100 >> dataset.text_loader() >> CrossEncoder(...)``.

    When not to use it: over whole collections, where every query would read every document; let a first stage or a
    :class:`~pyterrier_debias.BiEncoder` choose candidates.

    References:
        Nogueira and Cho, Passage Re-ranking with BERT, 2019 (arXiv:1901.04085). MaxP: Dai and Callan, SIGIR 2019.

    .. cite.dblp:: journals/corr/abs-1901-04085
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "CrossEncoder", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> PreTrainedModel | PooledHead:
            """The classifier."""

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
        head: str = "cls",
        seed: int = 0,
        training: Training | None = None,
        verbose: bool = False,
    ):
        super().__init__(**shared_options(locals()))
        self.head = head
        self.seed = seed

    def check_options(self) -> None:
        """Refuse unknown options; see :meth:`Ranker.check_options`."""
        super().check_options()
        check_choice("CrossEncoder", "head", self.head, HEADS)

    def read(self, model: str) -> tuple[torch.nn.Module, Any]:
        """Load a classifier, or an encoder under a fresh head; see :meth:`Ranker.read`."""
        import torch
        from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer

        from pyterrier_debias.rankers.heads import PooledHead

        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        options: dict[str, Any] = {"dtype": self.torch_dtype, "trust_remote_code": False}
        kind = (config.architectures or [""])[0]
        tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        if kind.endswith("ForSequenceClassification"):
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
        pooling = PooledHead.saved_in(model)
        if pooling is not None:
            with torch.random.fork_rng(devices=[]):
                module = PooledHead(AutoModel.from_pretrained(model, **options), pooling)
            module.load_head(model)
            return module, tokenizer
        logger.warning(
            "CrossEncoder: model %s brings no classification head; a fresh one on %s (seed %d) scores at random until trained",
            model,
            "the mean of all tokens" if self.head == "mean" else "the first token",
            self.seed,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            if self.head == "mean":
                return PooledHead(AutoModel.from_pretrained(model, **options)), tokenizer
            return AutoModelForSequenceClassification.from_pretrained(model, num_labels=1, **options), tokenizer

    def pooled(self) -> PooledHead:
        """Put a linear layer on the first token's state in place of the architecture's own head, unless the head is a pooled one.

        Returns:
            The module, which is the ranker's from now on.
        """
        import torch

        from pyterrier_debias.rankers.heads import PooledHead

        with self._lock:
            loaded = self._load()
            if not isinstance(loaded.module, PooledHead):
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(self.seed)
                    loaded.module = PooledHead(loaded.module.base_model, "first").to(self.torch_device).eval()
            return loaded.module

    def write(self, folder: Path) -> None:
        """Write an ordinary Hugging Face model folder, its window included; see :meth:`Ranker.write`."""
        from pyterrier_debias.rankers.heads import PooledHead

        check_empty(folder, f"{type(self).__name__}.write")
        module, tokenizer = self.module, copy.deepcopy(self.tokenizer)
        if self.max_length is not None:
            tokenizer.model_max_length = self.window
        with quiet():
            module.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            if isinstance(module, PooledHead):
                module.save_modules(folder)

    def sequences(self, queries: Sequence[str], docs: Sequence[str]) -> Sequences:
        """The token sequences of n pairs, cut to the window."""
        tokenizer = self.tokenizer
        return Sequences(
            Template.pair(tokenizer),
            self.window,
            token_ids(tokenizer, queries),
            token_ids(tokenizer, docs, verbose=self.verbose),
            side=tokenizer.truncation_side,
        )

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs; see :meth:`Ranker.score_pairs`."""
        module, sequences = self.scoring_module(), self.sequences(queries, docs)
        sequences.report_cuts("CrossEncoder", self.window)
        packed_logits = _packed_logits(module)

        def compute(indices: np.ndarray) -> torch.Tensor:
            if packed_logits is not None:
                return _relevance(packed_logits(*sequences.packed(indices)))
            tensors = self._padded(sequences, indices)
            return self.forward(**{name: tensor.to(self.torch_device) for name, tensor in tensors.items()})

        found = batches(
            sequences.lengths,
            compute,
            batch_tokens=self.budget(),
            padded=packed_logits is None,
            verbose=self.verbose,
            label="CrossEncoder",
        )
        return gather(len(sequences), found)

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Tensors of n pairs: ``input_ids``, ``attention_mask`` and, where the model takes them, ``token_type_ids``."""
        return self._padded(self.sequences(queries, docs), np.arange(len(queries)))

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that pairs lose and have left, and the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        sequences = self.sequences(queries, docs)
        return sequences.cut, sequences.lengths, self.window

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, under autograd where the caller asks for it."""
        return _relevance(self.module(**tensors).logits)

    def _padded(self, sequences: Sequences, indices: np.ndarray) -> dict[str, torch.Tensor]:
        """A padded batch, without the tensors that the model does not take (a tokenizer may be another architecture's)."""
        module = self.module
        takes = inspect.signature(getattr(module, "encoder", module).forward).parameters
        return {name: tensor for name, tensor in sequences.padded(indices, self.tokenizer).items() if name in takes}


def _relevance(logits: torch.Tensor) -> torch.Tensor:
    """Logits [n, 1] as they are; of two labels [n, 2] the log-odds of the second: shape [n]."""
    return logits[:, 0] if logits.shape[1] == 1 else logits[:, 1] - logits[:, 0]


def _packed_logits(module: Any) -> Callable[..., torch.Tensor] | None:
    """The fast path of a module: a function from packed sequences to logits, or None if there is none."""
    from pyterrier_debias.rankers.heads import PooledHead

    encoder: Any = module.encoder if isinstance(module, PooledHead) else getattr(module, "base_model", None)
    if not PackedBert.supports(encoder):
        return None
    packed = PackedBert(encoder)
    if isinstance(module, PooledHead):
        return lambda *sequences: module.classifier((packed.mean if module.pooling == "mean" else packed.first)(*sequences))
    if type(module).__name__ != type(encoder).__name__.removesuffix("Model") + "ForSequenceClassification":
        return None
    if getattr(encoder, "pooler", None) is not None:
        return lambda *sequences: module.classifier(encoder.pooler(packed.first(*sequences)[:, None]))
    return lambda *sequences: module.classifier(packed.first(*sequences)[:, None])
