"""T5Reranker: monoT5 (how likely a T5 model is to answer "true") and RankT5 (one logit for a pair)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, kind_of
from pyterrier_debias.rankers.base import InMemory, Ranker, load_tokenizer, shared_options, window_of
from pyterrier_debias.rankers.engine import Cuts, Sequences, Template, gather, in_chunks, moved, report_cuts, token_ids
from pyterrier_debias.training.seeds import drawn_from

if TYPE_CHECKING:
    import torch
    from pyterrier_t5 import MonoT5ReRanker, mT5ReRanker
    from transformers import MT5ForConditionalGeneration, T5ForConditionalGeneration, UMT5ForConditionalGeneration

    from pyterrier_debias.rankers.heads import PooledHead
    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)


class Head(NamedTuple):
    """What a T5 ranker reads, and where its score comes from."""

    #: The prompt that the authors train with.
    prompt: str
    #: The tokens whose logits are looked at; none for a linear layer on the encoder.
    tokens: tuple[str, ...]


#: The heads by name. monoT5: Nogueira et al. RankT5: Zhuang et al., whose input has no "Relevant:".
HEADS = {
    "monot5": Head("Query: {query} Document: {text} Relevant:", ("true", "false")),
    "rankt5": Head("Query: {query} Document: {text}", ("<extra_id_10>",)),
    "rankt5-encoder": Head("Query: {query} Document: {text}", ()),
}

def log_probability_of_first(logits: torch.Tensor) -> torch.Tensor:
    """The log-probability of the first of two answers.

    Args:
        logits: Shape [n, 2].

    Returns:
        log softmax over the two, first column: shape [n], at most 0.
    """
    return logits.float().log_softmax(dim=-1)[:, 0]


class T5Reranker(Ranker):
    """Scores a pair with a T5 model: by the log-probability of "true" (monoT5), or by one logit trained to rank (RankT5).

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    ====================  ============================================================================================
    ``head``              the score
    ====================  ============================================================================================
    ``'monot5'``          log P(true) after a softmax over "true" and "false" alone at the first token of the answer, so at
                          most 0; the model reads ``Query: ... Document: ... Relevant:``
    ``'rankt5'``          the logit of the unused token ``<extra_id_10>`` at the first token of the answer, without a softmax;
                          the model reads ``Query: ... Document: ...``
    ``'rankt5-encoder'``  a linear layer on the state of the encoder's first token, without the decoder; the same prompt
    ====================  ============================================================================================

    monoT5's score equals that of pyterrier_t5's ``MonoT5ReRanker(batch_size=1)``. There, larger batches put padding between the
    document and ``Relevant:``, which changes scores; here the whole prompt is padded at its end, and a score depends only on its
    own pair. If a prompt is too long, the document is truncated, never ``Relevant:``. :meth:`from_pyterrier_t5` converts a
    pyterrier_t5 ranker that is already loaded.

    RankT5 is trained on lists: ``Training(loss='softmax')`` or ``'ranknet'``, with many ``negatives_per_positive``. Without such
    training, the logit of a T5 ranks at random. ``'rankt5-encoder'`` initialises its linear layer from ``seed`` and logs that.

    Sources: Nogueira, Jiang, Pradeep and Lin, "Document Ranking with a Pretrained Sequence-to-Sequence Model", Findings of EMNLP
    2020; Zhuang, Qin, Jagerman, Hui, Ma, Lu, Ni, Wang and Bendersky, "RankT5: Fine-Tuning T5 for Text Ranking with Ranking
    Losses", SIGIR 2023 (Section 4: models and losses).

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.

    When not to use it: in float16, in which T5's activations overflow (it raises an error); for listwise or pairwise prompts.

    Example:
        >>> from pyterrier_debias import T5Reranker
        >>> T5Reranker("castorini/monot5-base-msmarco", max_length=256)
        T5Reranker('castorini/monot5-base-msmarco', max_length=256)
        >>> T5Reranker("unicamp-dl/mt5-base-mmarco-v2", tokens=("yes", "no"))
        T5Reranker('unicamp-dl/mt5-base-mmarco-v2', tokens=('yes', 'no'))
        >>> T5Reranker("t5-base", head="rankt5")
        T5Reranker('t5-base', head='rankt5')

        In a pipeline: ``bm25 % 100 >> texts >> T5Reranker(model)``.

    .. cite.dblp:: journals/corr/abs-2003-06713
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "T5Reranker", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(
            self,
        ) -> T5ForConditionalGeneration | MT5ForConditionalGeneration | UMT5ForConditionalGeneration | PooledHead:
            """The model with its language-model head, or its encoder with a linear layer."""

    _SOURCE = ("model", "device", "dtype", "head", "seed")

    def __init__(
        self,
        model: str | Path | T5Reranker | InMemory,
        *,
        head: str = "monot5",
        prompt: str | None = None,
        tokens: Sequence[str] | None = None,
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
            model: A hub name, a folder, another T5Reranker (whose weights are copied), or an ``InMemory`` T5 (also mT5 and UMT5).
            head: ``'monot5'``, ``'rankt5'`` or ``'rankt5-encoder'``, see the class.
            prompt: The model's input, with ``{query}`` and then ``{text}`` as placeholders. None for the prompt of the head.
            tokens: For monoT5, the answers for relevant and not relevant (only the first token of each is used); for RankT5, the
                one token whose logit is the score. None for the tokens of the head.
            max_length: Longest prompt in tokens; None for the length for which the model was made (512 if it does not say).
                Truncation is logged.
            device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
            dtype: ``'float32'``, ``'tf32'`` (on CUDA) or ``'bfloat16'``.
            batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
            text_field: The column with the document's text.
            fields: Columns to join with a space and read instead of ``text_field``.
            long: How to handle long documents: ``'truncate'``, ``'firstp'`` or ``'maxp'``; see
                :class:`~pyterrier_debias.rankers.base.Ranker`.
            passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
            passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
            seed: Seed of a new linear layer, with ``'rankt5-encoder'``.
            training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
            verbose: Whether to show progress.
        """
        super().__init__(**shared_options(locals()))
        self.head = head
        self.prompt = prompt
        self.tokens = tokens
        self.seed = seed

    @classmethod
    def from_pyterrier_t5(cls, reranker: MonoT5ReRanker | mT5ReRanker, **options: Any) -> Self:
        """Convert a loaded ranker of pyterrier_t5; the scores are those that it gives with one pair per batch.

        Args:
            reranker: A ``pyterrier_t5.MonoT5ReRanker`` or ``mT5ReRanker``. Its weights are shared, not copied.
            options: Further options, such as ``batch_tokens``; answers, window, device and text column are those of ``reranker``.

        Returns:
            The ranker.

        Raises:
            InputError: For anything else, including a ``DuoT5ReRanker``, which compares documents two by two.

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
                f"T5Reranker.from_pyterrier_t5: {kind_of(reranker)} is not a MonoT5ReRanker or mT5ReRanker; "
                f"a DuoT5ReRanker is opened by name, with pyterrier_debias.rankers.duo_t5.DuoT5Reranker"
            )
        theirs = {"tokens": tokens, "max_length": window, "device": str(reranker.device), "text_field": reranker.text_field}
        return cls(InMemory(reranker.model, reranker.tokenizer), **{**theirs, **options})

    def check_options(self) -> None:
        """Refuse unknown options; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        super().check_options()
        if self.dtype == "float16":
            raise InputError("T5Reranker: T5's activations overflow in float16; use dtype='bfloat16' or 'float32'")
        check_choice("T5Reranker", "head", self.head, HEADS)
        prompt, tokens = self._asked()
        before, text, after = prompt.partition("{text}")
        if not text or before.count("{query}") != 1 or "{query}" in after or "{text}" in after:
            raise InputError(
                f"T5Reranker: prompt={prompt!r} must hold {{query}} and, after it, {{text}}, each once; e.g. "
                f"{HEADS[self.head].prompt!r}"
            )
        wanted = HEADS[self.head].tokens
        if isinstance(tokens, str) or len(tokens) != len(wanted):
            known = {0: "None", 1: "one token", 2: "two words, for relevant and not relevant"}[len(wanted)]
            shown = f"; e.g. {wanted!r}" if wanted else ""
            raise InputError(f"T5Reranker: tokens={tokens!r} must be {known}, with head={self.head!r}{shown}")
        self._check_given()

    def _asked(self) -> Head:
        """The prompt and the tokens: the given ones, otherwise those of the head."""
        own = HEADS[self.head]
        return Head(
            own.prompt if self.prompt is None else self.prompt,
            own.tokens if self.tokens is None else cast(tuple[str, ...], self.tokens),
        )

    def _check_given(self) -> None:
        """Refuse a model in memory that lacks the parts that the head reads."""
        has_decoder = None
        if isinstance(self.model, InMemory):
            has_decoder = hasattr(self.model.module, "decoder")
        elif isinstance(self.model, T5Reranker):
            has_decoder = self.model.head != "rankt5-encoder"
        if has_decoder is not None and has_decoder == (self.head == "rankt5-encoder"):
            raise InputError(
                f"T5Reranker: head={self.head!r} {'reads only an encoder' if has_decoder else 'needs a decoder'}, but the model "
                f"is {'a whole T5' if has_decoder else 'an encoder'}; save it and give its folder, or choose another head"
            )

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The identity of every ranker, with the prompt and the tokens that are used, given or default."""
        return {**super().identity(), **(self._asked()._asdict() if self.head in HEADS else {})}

    def read(self, model: str) -> tuple[torch.nn.Module, Any]:
        """Load a T5 (or mT5, UMT5), whole or its encoder; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        from transformers import AutoConfig, AutoModelForSeq2SeqLM

        from pyterrier_debias.rankers.heads import PooledHead

        config = AutoConfig.from_pretrained(model, trust_remote_code=False)
        if config.model_type not in _ANSWER_SCALE:
            raise InputError(
                f"T5Reranker: {model!r} is a {config.model_type} model, not one of {', '.join(_ANSWER_SCALE)}; use CrossEncoder "
                f"for encoders"
            )
        tokenizer = load_tokenizer(model, self)
        saved = PooledHead.saved_in(model)
        if self.head == "rankt5-encoder":
            return self._read_encoder(model, saved), tokenizer
        if saved is not None or (config.architectures or [""])[0].endswith("EncoderModel"):
            raise InputError(f"T5Reranker: {model!r} holds an encoder without a decoder; open it with head='rankt5-encoder'")
        module = AutoModelForSeq2SeqLM.from_pretrained(model, dtype=self.torch_dtype, trust_remote_code=False)
        return module, tokenizer

    def _read_encoder(self, model: str, saved: str | None) -> torch.nn.Module:
        """The encoder of a T5 under the saved linear layer, or under a new one."""
        from transformers import AutoModelForTextEncoding

        from pyterrier_debias.rankers.heads import PooledHead

        encoder = AutoModelForTextEncoding.from_pretrained(model, dtype=self.torch_dtype, trust_remote_code=False)
        with drawn_from(self.seed):
            module = PooledHead(encoder, saved or "first")
        if saved is not None:
            module.load_head(model)
        else:
            logger.warning(
                "T5Reranker: model %s has no layer on its encoder; a new one (seed %d) scores at random until it is trained",
                model,
                self.seed,
            )
        return module

    def write(self, folder: Path) -> None:
        """Write an ordinary Hugging Face model folder; see :meth:`Ranker.write`."""
        super().write(folder)

    @property
    def window(self) -> int:
        """The longest prompt in tokens: ``max_length``, or the length for which the model was made."""
        made_for = getattr(self.module.config, "n_positions", None)
        return self.max_length or made_for or window_of(self.tokenizer, self.module.config, None, self)

    def answer_ids(self) -> list[int]:
        """Token ids of the answers that the score compares: two, or the one whose logit is the score.

        Raises:
            InputError: If the tokenizer does not distinguish the two, or lacks the one.
        """
        tokens = self._asked().tokens
        unknown = self.tokenizer.unk_token_id
        if len(tokens) == 1:
            one = self.tokenizer.convert_tokens_to_ids(tokens[0])
            if one is None or one == unknown:
                raise InputError(
                    f"T5Reranker: the tokenizer of this model has no token {tokens[0]!r}, whose logit is the score of "
                    f"head='rankt5'; set tokens=('...',) to the token that the model was trained with"
                )
            return [int(one)]
        first = [int(ids[0]) if len(ids) else -1 for ids in token_ids(self.tokenizer, tokens)]
        if first[0] == first[1] or -1 in first or unknown in first:
            raise InputError(
                f"T5Reranker: the tokenizer of this model does not distinguish {tokens[0]!r} from {tokens[1]!r} by "
                f"their first token; set tokens to the words that the model was trained to answer"
            )
        return first

    def sequences(self, queries: Sequence[str], docs: Sequence[str]) -> Sequences:
        """The prompts of n pairs: truncated within the document, and ended by the text that follows it."""
        before, _, after = self._asked().prompt.partition("{text}")
        ending = [int(i) for i in token_ids(self.tokenizer, [after.strip()])[0]]
        frame = Template.single(self.tokenizer)
        template = Template(prefix=frame.prefix, middle=(), suffix=(*ending, *frame.suffix), types=None)
        prompts = [before.replace("{query}", query) + doc for query, doc in zip(queries, docs)]
        return Sequences(template, self.window, token_ids(self.tokenizer, prompts))

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        self.scoring_module()
        tokenizer, cuts = self.tokenizer, Cuts()

        def begin(rows: slice) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
            sequences = self.sequences(queries[rows], docs[rows])
            cuts.add(sequences.cut, sequences.lengths)
            return sequences.lengths, lambda indices: sequences.padded(indices, tokenizer)

        def compute(tensors: dict[str, torch.Tensor]) -> torch.Tensor:
            return self.forward(**{name: moved(tensor, self.torch_device) for name, tensor in tensors.items()})

        found = in_chunks(
            len(docs),
            begin,
            compute,
            batch_tokens=self.budget(),
            tf32=self.dtype == "tf32",
            verbose=self.verbose,
            label="T5Reranker",
        )
        scores = gather(len(docs), found)
        report_cuts("T5Reranker", self.window, *cuts.all())
        return scores

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Tensors of n pairs (scorer protocol): ``input_ids`` and ``attention_mask``."""
        return self.sequences(queries, docs).padded(np.arange(len(docs)), self.tokenizer)

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that truncation removes and leaves, the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        sequences = self.sequences(queries, docs)
        return sequences.cut, sequences.lengths, self.window

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, with gradients if the caller enables them."""
        if self.head == "rankt5-encoder":
            logits: torch.Tensor = self.module(**tensors).logits
            return logits[:, 0].float()
        logits = self.answer_logits(**tensors)
        return logits[:, 0].float() if self.head == "rankt5" else log_probability_of_first(logits)

    def answer_logits(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Logits of the answers, the only rows of the vocabulary that are computed.

        Args:
            input_ids: Prompts, shape [n, length].
            attention_mask: 1 for tokens, 0 for padding, same shape.

        Returns:
            Shape [n, 2], relevant and not relevant, or [n, 1] with ``head='rankt5'``.
        """
        import torch

        module = cast("T5ForConditionalGeneration", self.module)
        read = module.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        start = input_ids.new_full((len(input_ids), 1), cast(int, module.config.decoder_start_token_id))
        state = module.decoder(
            input_ids=start, encoder_hidden_states=read, encoder_attention_mask=attention_mask, use_cache=False
        ).last_hidden_state[:, 0]
        scale = _ANSWER_SCALE[module.config.model_type](module.config)
        # Rows one by one: a list of places would be copied to the device, which waits for it.
        rows = torch.stack([module.lm_head.weight[place] for place in self.answer_ids()])
        return (state * scale) @ rows.T


def _scaled(config: Any) -> float:
    """The factor on the decoder's states, which T5 scales down if the head shares the embeddings (older transformers' name)."""
    return config.d_model**-0.5 if getattr(config, "scale_decoder_outputs", config.tie_word_embeddings) else 1.0


#: The factor by which each architecture multiplies the decoder's state before the head.
_ANSWER_SCALE = {
    "t5": _scaled,
    "mt5": lambda config: 1.0,
    "umt5": _scaled,
}
