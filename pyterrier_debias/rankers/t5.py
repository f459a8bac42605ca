"""T5Reranker (monoT5): how likely a sequence-to-sequence model is to answer "true"."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import check_empty
from pyterrier_debias.rankers.base import InMemory, Ranker, quiet, shared_options, window_of
from pyterrier_debias.rankers.engine import Sequences, Template, batches, gather, report_cuts, token_ids

if TYPE_CHECKING:
    import torch
    from pyterrier_t5 import MonoT5ReRanker, mT5ReRanker
    from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration, UMT5ForConditionalGeneration

    from pyterrier_debias.training.options import Training

#: The prompt of Nogueira et al.
PROMPT = "Query: {query} Document: {text} Relevant:"

#: Pairs that are tokenised at a time: a prompt belongs to its pair, so that a long list of them would fill the memory.
_PAIRS = 16384


def log_probability_of_first(logits: torch.Tensor) -> torch.Tensor:
    """The log-probability of the first of two answers.

    Args:
        logits: Shape [n, 2].

    Returns:
        log softmax over the two, first column: shape [n], at most 0.
    """
    return logits.float().log_softmax(dim=-1)[:, 0]


class T5Reranker(Ranker):
    """Asks a T5 model whether a document is relevant; the score is the log-probability of "true" (monoT5).

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The model reads ``Query: ... Document: ... Relevant:`` and the first token of its answer is looked at: the score is
    log P(true) after a softmax over "true" and "false" alone, so at most 0. It equals that of pyterrier_t5's
    ``MonoT5ReRanker(batch_size=1)``. There, larger batches put padding between the document and ``Relevant:``, which changes
    scores; here the whole prompt is padded at its end, and a score depends on its own pair only. Where a prompt is too long the
    document is cut, never ``Relevant:``. :meth:`from_pyterrier_t5` takes the place of a ranker of theirs that is loaded already.

    Source: Nogueira, Jiang, Pradeep and Lin, "Document Ranking with a Pretrained Sequence-to-Sequence Model", Findings of EMNLP
    2020.

    When not to use it: in float16, which T5's activations overflow (it is refused); for listwise or pairwise prompts.

    Example:
        >>> from pyterrier_debias import T5Reranker
        >>> T5Reranker("castorini/monot5-base-msmarco", max_length=256)
        T5Reranker('castorini/monot5-base-msmarco', max_length=256)
        >>> T5Reranker("unicamp-dl/mt5-base-mmarco-v2", tokens=("yes", "no"))
        T5Reranker('unicamp-dl/mt5-base-mmarco-v2', tokens=('yes', 'no'))

        In a pipeline: ``bm25 % 100 >> texts >> T5Reranker(model)``.

    .. cite.dblp:: journals/corr/abs-2003-06713
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "T5Reranker", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> T5ForConditionalGeneration | MT5ForConditionalGeneration | UMT5ForConditionalGeneration:
            """The model, with its language-model head."""

    def __init__(
        self,
        model: str | Path | T5Reranker | InMemory,
        *,
        prompt: str = PROMPT,
        tokens: Sequence[str] = ("true", "false"),
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        batch_tokens: int | None = None,
        text_field: str = "text",
        fields: Sequence[str] | None = None,
        long: str = "truncate",
        passage_length: int = 150,
        passage_stride: int = 75,
        training: Training | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            model: A hub name, a folder, another T5Reranker (whose weights are copied), or an ``InMemory`` T5 (also mT5 and UMT5).
            prompt: What the model reads; ``{query}`` and then ``{text}`` stand for the pair.
            tokens: The answers for relevant and not relevant; of each the first token is looked at.
            max_length: Longest prompt in tokens; None for what the model was made for (512 where it does not say). What is cut is
                logged.
            device: The device; None picks CUDA, then MPS, then the processor.
            dtype: ``'float32'`` or ``'bfloat16'``.
            batch_tokens: Budget of a batch in tokens; None picks one for the device. It does not change scores.
            text_field: The column with the document's text.
            fields: Columns to join with a space in place of ``text_field``.
            long: ``'truncate'``, ``'firstp'`` or ``'maxp'``: what to do with long documents, see
                :class:`~pyterrier_debias.rankers.base.Ranker`.
            passage_length: Words of a passage, for ``'firstp'`` and ``'maxp'``.
            passage_stride: Words from one passage's start to the next one's, for ``'maxp'``.
            training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
            verbose: Whether to show progress.
        """
        super().__init__(**shared_options(locals()))
        self.prompt = prompt
        self.tokens = tokens

    @classmethod
    def from_pyterrier_t5(cls, reranker: MonoT5ReRanker | mT5ReRanker, **options: Any) -> Self:
        """The ranker with the weights of one of pyterrier_t5, and the scores that it would give with one pair a batch.

        Args:
            reranker: A ``pyterrier_t5.MonoT5ReRanker`` or ``mT5ReRanker``. Its weights are used as they are, not copied.
            options: Further options, such as ``batch_tokens``; its answers, window, device and text column are taken over.

        Returns:
            The ranker.

        Raises:
            InputError: For anything else, also a ``DuoT5ReRanker``, which compares documents two by two.

        Example:
            ``T5Reranker.from_pyterrier_t5(MonoT5ReRanker())``
        """
        import pyterrier_t5

        window: int | None = 512  # that of mT5ReRanker
        if isinstance(reranker, pyterrier_t5.mT5ReRanker):
            tokens = ("yes", "no")
        elif isinstance(reranker, pyterrier_t5.MonoT5ReRanker):
            tokens, window = ("true", "false"), getattr(reranker.model.config, "n_positions", None)
        else:
            raise InputError(
                f"T5Reranker.from_pyterrier_t5: a {type(reranker).__name__} is not a MonoT5ReRanker or mT5ReRanker; "
                f"a DuoT5ReRanker is opened by name, with pyterrier_debias.rankers.duo_t5.DuoT5Reranker"
            )
        theirs = {"tokens": tokens, "max_length": window, "device": str(reranker.device), "text_field": reranker.text_field}
        return cls(InMemory(reranker.model, reranker.tokenizer), **{**theirs, **options})

    def check_options(self) -> None:
        """Refuse unknown options; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        super().check_options()
        if self.dtype == "float16":
            raise InputError("T5Reranker: T5's activations overflow in float16; use dtype='bfloat16' or 'float32'")
        before, text, after = self.prompt.partition("{text}")
        if not text or before.count("{query}") != 1 or "{query}" in after or "{text}" in after:
            raise InputError(
                f"T5Reranker: prompt={self.prompt!r} must hold {{query}} and, behind it, {{text}}, each once; e.g. {PROMPT!r}"
            )
        if isinstance(self.tokens, str) or len(self.tokens) != 2:
            raise InputError(
                f"T5Reranker: tokens={self.tokens!r} must be two words, for relevant and not relevant; e.g. ('true', 'false')"
            )

    def read(self, model: str) -> tuple[torch.nn.Module, Any]:
        """Load a T5 (or mT5, UMT5) with its language-model head; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        from transformers import AutoConfig, AutoModelForSeq2SeqLM, AutoTokenizer

        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        if config.model_type not in _ANSWER_SCALE:
            raise InputError(
                f"T5Reranker: {model!r} is a {config.model_type} model, not one of {', '.join(_ANSWER_SCALE)}; use CrossEncoder "
                f"for encoders"
            )
        module = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=self.torch_dtype, trust_remote_code=False)
        return module, AutoTokenizer.from_pretrained(model, trust_remote_code=False)

    def write(self, folder: Path) -> None:
        """Write an ordinary Hugging Face model folder; see :meth:`Ranker.write`."""
        check_empty(folder, f"{type(self).__name__}.write")
        module, tokenizer = self.module, self.tokenizer
        with quiet():
            module.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    @property
    def window(self) -> int:
        """The longest prompt in tokens: ``max_length``, or what the model was made for."""
        made_for = getattr(self.module.config, "n_positions", None)
        return self.max_length or made_for or window_of(self.tokenizer, self.module.config, None, self)

    def answer_ids(self) -> list[int]:
        """Token ids of the two answers.

        Raises:
            InputError: If the tokenizer does not distinguish them.
        """
        first = [int(ids[0]) if len(ids) else -1 for ids in token_ids(self.tokenizer, self.tokens)]
        if first[0] == first[1] or -1 in first or self.tokenizer.unk_token_id in first:
            raise InputError(
                f"T5Reranker: the tokenizer of this model does not distinguish {self.tokens[0]!r} from {self.tokens[1]!r} by "
                f"their first token; set tokens to the words that the model was trained to answer"
            )
        return first

    def sequences(self, queries: Sequence[str], docs: Sequence[str]) -> Sequences:
        """The prompts of n pairs: cut where the document is, closed by what follows it."""
        before, _, after = self.prompt.partition("{text}")
        ending = [int(i) for i in token_ids(self.tokenizer, [after.strip()])[0]]
        frame = Template.single(self.tokenizer)
        template = Template(prefix=frame.prefix, middle=(), suffix=(*ending, *frame.suffix), types=None)
        prompts = [before.replace("{query}", query) + doc for query, doc in zip(queries, docs)]
        return Sequences(template, self.window, token_ids(self.tokenizer, prompts))

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        self.scoring_module()
        scores, cut, lengths = np.empty(len(docs)), [], []
        for start in range(0, len(docs), _PAIRS):
            part = slice(start, start + _PAIRS)
            sequences = self.sequences(queries[part], docs[part])
            cut.append(sequences.cut)
            lengths.append(sequences.lengths)

            def compute(indices: np.ndarray, sequences: Sequences = sequences) -> torch.Tensor:
                tensors = sequences.padded(indices, self.tokenizer)
                return self.forward(**{name: tensor.to(self.torch_device) for name, tensor in tensors.items()})

            found = batches(
                sequences.lengths, compute, batch_tokens=self.budget(), verbose=self.verbose, label="T5Reranker"
            )
            scores[part] = gather(len(sequences), found)
        if len(docs):
            report_cuts("T5Reranker", self.window, np.concatenate(cut), np.concatenate(lengths))
        return scores

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Tensors of n pairs (scorer protocol): ``input_ids`` and ``attention_mask``."""
        return self.sequences(queries, docs).padded(np.arange(len(docs)), self.tokenizer)

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that pairs lose and have left, and the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        sequences = self.sequences(queries, docs)
        return sequences.cut, sequences.lengths, self.window

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, under autograd where the caller asks for it."""
        return log_probability_of_first(self.answer_logits(**tensors))

    def answer_logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits of the two answers, the only two rows of the vocabulary that are computed.

        Args:
            input_ids: Prompts, shape [n, length].
            attention_mask: 1 for tokens, 0 for padding, same shape.

        Returns:
            Shape [n, 2]: relevant, not relevant.
        """
        module = self.module
        read = module.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        start = input_ids.new_full((len(input_ids), 1), cast(int, module.config.decoder_start_token_id))
        state = module.decoder(
            input_ids=start, encoder_hidden_states=read, encoder_attention_mask=attention_mask, use_cache=False
        ).last_hidden_state[:, 0]
        scale = _ANSWER_SCALE[module.config.model_type](module.config)
        return (state * scale) @ module.lm_head.weight[self.answer_ids()].T


def _scaled(config: Any) -> float:
    """T5 shrinks the decoder's states where the head shares the embeddings; older transformers name it by that reason."""
    return config.d_model**-0.5 if getattr(config, "scale_decoder_outputs", config.tie_word_embeddings) else 1.0


#: By which factor each architecture multiplies the decoder's state before the head.
_ANSWER_SCALE = {
    "t5": _scaled,
    "mt5": lambda config: 1.0,
    "umt5": lambda config: config.d_model**-0.5 if config.tie_word_embeddings else 1.0,
}
