"""TK, the Transformer-Kernel ranker, as a stage."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import read_whole
from pyterrier_debias.rankers import engine
from pyterrier_debias.rankers.base import InMemory, Ranker, load_tokenizer, loading, quiet
from pyterrier_debias.rankers.terms import Terms, paired
from pyterrier_debias.training.seeds import check_seed, drawn_from, random_state_kept

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.rankers.tk_model import TKConfig, TKModel
    from pyterrier_debias.training.method import Method
    from pyterrier_debias.training.options import Training

#: How many numbers a comparison holds at a time: padded vectors of both sides and their match matrices (64 MB in float32).
_COMPARED = 16_000_000

#: Fields of a configuration that the table of embeddings and its tokenizer determine.
_OF_THE_TABLE = ("vocab_size", "hidden_size", "pad_token_id")

#: Texts have no special tokens around them.
_BARE = engine.Template((), (), (), None)


class TK(Ranker):
    r"""Scores a pair by how strongly, and how often, terms in context match (the Transformer-Kernel ranker).

    Each term's static embedding is mixed with the output of two small Transformer layers over its own text. Cosines compare all
    pairs of a query term and a passage term, and eleven kernels count the cosines by their height:

    .. math::

        \hat{t} &= \alpha\, t + (1 - \alpha)\, \mathrm{TF}(t + e) \quad\text{(Eq. 4)} \qquad
        K_k(i) = \sum_j \exp\!\big(-(\cos(\hat{q}_i, \hat{d}_j) - \mu_k)^2 / 2\sigma^2\big) \quad\text{(Eq. 5)} \\
        s(q, d) &= \sum_k w_k \sum_i \ln K_k(i) \quad\text{(Eq. 6)}

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The vectors of a passage do not depend on the query: :meth:`encode_documents` returns them, and ``MATSProbe(tk)`` measures how
    far they depend on positions. :meth:`from_embeddings` and :meth:`from_glove` make new models; a folder that :meth:`save` wrote
    opens a trained one.

    Args:
        model: A folder or hub name of a TK, another TK (whose weights are copied), or an ``InMemory``
            :class:`~pyterrier_debias.rankers.tk_model.TKModel`.
        max_length: Longest text in tokens; None for the model's own limit (512 for new models). Truncation is logged.
        device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
        dtype: ``'float32'``, ``'tf32'`` (on CUDA), ``'bfloat16'`` or ``'float16'``; matching is always in float32.
        batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
        text_field: The column with the document's text.
        fields: Columns to join with a space and read instead of ``text_field``.
        long: How to handle long documents: ``'truncate'``, ``'firstp'`` or ``'maxp'``; see
            :class:`~pyterrier_debias.rankers.base.Ranker`.
        passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
        passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
        training: How ``fit`` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
        verbose: Whether to show progress.

    Raises:
        InputError: When scoring: for missing texts, duplicate pairs, unknown options, or a model that is not a TK.

    Sources: Hofstätter, Zlabinger and Hanbury, "Interpretable & Time-Budget-Constrained Contextualization for Re-Ranking", ECAI
    2020; conventions as used in Hofstätter et al., "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking",
    ECIR 2021, and in the code that its authors released (``convention``, see
    :class:`~pyterrier_debias.rankers.tk_model.TKConfig`).

    When not to use it: before it is trained, since a new TK scores at random; for the highest effectiveness at any cost (use a
    :class:`~pyterrier_debias.CrossEncoder`); on documents of thousands of words, for which its authors made TKL later.

    Example:
        >>> from pyterrier_debias import TK
        >>> TK("models/tk-msmarco", max_length=200)
        TK('models/tk-msmarco', max_length=200)

        A new one: ``tk = TK.from_embeddings("sentence-transformers/all-MiniLM-L6-v2", seed=1)``, and after training
        ``tk.save("tk")``; in a pipeline ``bm25 % 100 >> texts >> TK("tk")``.

    .. cite.dblp:: conf/ecai/HofstatterZH20
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "TK", "help_url": None}

    if TYPE_CHECKING:

        @property
        def module(self) -> TKModel:
            """The model."""

        def scoring_module(self) -> TKModel:
            """The model in eval mode."""

    @classmethod
    def from_embeddings(
        cls,
        model: str | Path,
        *,
        convention: str = "paper",
        positional: str = "absolute",
        rescale: bool = True,
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TK:
        """Make a new TK with the word pieces and the embedding table of any encoder.

        Args:
            model: A hub name or folder of a Hugging Face encoder with a fast tokenizer. TK takes only its table of embeddings,
                which training changes further; it does not put special tokens around texts.
            convention: ``'paper'``, ``'released_v2'`` or ``'released_v1'``, see
                :class:`~pyterrier_debias.rankers.tk_model.TKConfig`.
            positional: ``'absolute'``, ``'vaswani'``, ``'relative'``, ``'shaw'`` or ``'none'``, see ``TKConfig``.
            rescale: Whether to scale the table so that the mean length of its rows is sqrt(d / 2), as in the table of positions.
                An encoder's own rows have a length of about 1, and positions and the contextualiser's output would outweigh them.
            seed: Seed of all weights but the embeddings.
            config: Other fields of the configuration, e.g. ``{"num_hidden_layers": 1}``; not those that the table and the
                tokenizer determine (``vocab_size``, ``hidden_size``, ``pad_token_id``).
            options: Options of the stage.

        Returns:
            A stage with a model in memory. Its scores mean nothing before it is trained.

        Raises:
            InputError: For an unknown convention or kind of position, a field of ``config`` that has its own argument or that the
                table determines, a seed out of range, or a model that cannot be loaded.
        """
        from transformers import AutoModel

        from pyterrier_debias.rankers.tying import check_whole
        from pyterrier_debias.rankers.word_tokenizer import without_special_tokens

        settings = _settings("TK.from_embeddings", config, _OF_THE_TABLE, convention=convention, positional=positional)
        check_seed("TK.from_embeddings", seed)

        def read() -> tuple[Any, Any]:
            with loading(model, cls.__name__) as where:
                tokenizer = load_tokenizer(where, cls.__name__)
                encoder = AutoModel.from_pretrained(where, trust_remote_code=False)
                check_whole(encoder, model, cls.__name__)
            return tokenizer, encoder

        with random_state_kept():
            tokenizer, encoder = read_whole(model, read)
        table = encoder.get_input_embeddings().weight.detach()
        if rescale:
            table = table * ((table.shape[1] / 2) ** 0.5 / table.norm(dim=1).mean())
        tokenizer = without_special_tokens(tokenizer, max_length=settings.max_position_embeddings)
        return cls(InMemory(_fresh(settings, table, tokenizer, seed), tokenizer), **options)

    @classmethod
    def from_glove(
        cls,
        path: str | Path,
        *,
        words: Collection[str] | None = None,
        limit: int | None = None,
        lower_case: bool = True,
        convention: str = "paper",
        positional: str = "absolute",
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> TK:
        """Make a new TK with whole words and the vectors of a GloVe text file, as in the papers.

        Text is lower-cased and split at spaces and around each punctuation mark. Words that are not in the file keep their
        place, but match nothing, and no other word attends to them.

        Args:
            path: The file, e.g. ``glove.42B.300d.txt``; see :func:`~pyterrier_debias.rankers.word_tokenizer.read_glove`.
            words: Keep only these words; None for all. The full file of 1.9 million words takes 2.3 GB.
            limit: Largest number of words to read; None for all.
            lower_case: Whether to lower-case text: True for GloVe's 6B and 42B files, False for 840B.
            convention: Convention of the score and the layers, see :meth:`from_embeddings`.
            positional: Kind of positions, see :meth:`from_embeddings`.
            seed: Seed of all weights but the embeddings.
            config: See :meth:`from_embeddings`; the fields for unknown words (``mask_unknown``, ``unk_token_id``) cannot be set
                either.
            options: Options of the stage.

        Returns:
            A stage with a model in memory. Its scores mean nothing before it is trained.

        Raises:
            InputError: For a file that cannot be read, a line in it that is not a word vector, or an option that
                :meth:`from_embeddings` does not accept.
        """
        import torch

        from pyterrier_debias.rankers.word_tokenizer import read_glove, word_tokenizer

        given = (*_OF_THE_TABLE, "mask_unknown", "unk_token_id")
        settings = _settings("TK.from_glove", config, given, convention=convention, positional=positional)
        check_seed("TK.from_glove", seed)
        found, vectors = read_glove(path, words=words, limit=limit)
        tokenizer = word_tokenizer(found, lower_case=lower_case, max_length=settings.max_position_embeddings)
        table = torch.cat([torch.zeros(2, vectors.shape[1]), torch.from_numpy(vectors)])
        settings.mask_unknown, settings.unk_token_id = True, tokenizer.unk_token_id
        return cls(InMemory(_fresh(settings, table, tokenizer, seed), tokenizer), **options)

    def read(self, model: str) -> tuple[Any, Any]:
        """Load a TK; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        from transformers import PreTrainedConfig

        from pyterrier_debias.rankers.tk_model import TKConfig, TKModel

        kind = PreTrainedConfig.get_config_dict(model)[0].get("model_type")
        if kind != TKConfig.model_type:
            raise InputError(
                f"TK: model {model!r} is a {kind}, not a TK; TK.from_embeddings({model!r}) makes a new one over its embeddings"
            )
        tokenizer = load_tokenizer(model, self)
        found = TKModel.from_pretrained(model, dtype=self.torch_dtype, output_loading_info=True, trust_remote_code=False)
        module, report = cast(tuple[TKModel, dict[str, Any]], found)
        if report["missing_keys"]:
            missing = ", ".join(sorted(report["missing_keys"])[:3])
            raise InputError(f"TK: model {model!r} lacks the weights {missing}; save it again")
        return module, tokenizer

    def write(self, folder: Path) -> None:
        """Write an ordinary Hugging Face model folder; see :meth:`Ranker.write`."""
        super().write(folder)

    # Scoring

    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs, encoding each distinct text once; see :class:`~pyterrier_debias.rankers.base.Ranker`."""
        import torch

        pairs = engine.DistinctTexts(queries, docs)
        sought = Terms.joined(self._encoded(pairs.queries, "queries"))
        scores = engine.Gathered(len(docs))
        for indices, found in self._encoded(pairs.docs, "documents"):
            rows, query_rows, doc_rows = pairs.of(indices)
            with torch.inference_mode():
                matched = [
                    self.module.match(*asked, *given) for asked, given in paired(sought, query_rows, found, doc_rows, _COMPARED)
                ]
                scores.add(rows, torch.cat(matched))
        return scores.array()

    def _encoded(self, texts: Sequence[str], side: str) -> Iterator[tuple[np.ndarray, Terms]]:
        """Unit vectors and masks of texts, in batches of similar length."""
        from pyterrier_debias.rankers.tk_model import unit

        module, tokenizer, cuts = self.scoring_module(), self.tokenizer, engine.Cuts()

        def begin(rows: slice) -> tuple[np.ndarray, Callable[[np.ndarray], Any]]:
            sequences = self._sequences(texts[rows])
            cuts.add(sequences.cut, sequences.lengths)
            return sequences.lengths, lambda indices: sequences.padded(indices, tokenizer)

        def compute(tensors: dict[str, torch.Tensor]) -> Terms:
            there = {name: engine.moved(tensor, self.torch_device) for name, tensor in tensors.items()}
            vectors, mask = module.represent(**there, query=side == "queries")
            return Terms(unit(vectors), mask)

        yield from engine.in_chunks(
            len(texts),
            begin,
            compute,
            batch_tokens=self.budget(),
            tf32=self.dtype == "tf32",
            verbose=self.verbose,
            label=f"encoding {side}",
        )
        engine.report_cuts(f"TK, {side}", self.window, *cuts.all())

    def _sequences(self, texts: Sequence[str]) -> engine.Sequences:
        ids = engine.token_ids(self.tokenizer, texts)
        return engine.Sequences(_BARE, self.window, ids, side=self.tokenizer.truncation_side)

    # Training

    def method(self, training: Training) -> Method:
        """What ``fit`` trains: two networks, ``terms`` and ``kernels``, for which ``learning_rate`` may differ.

        The papers' rates are ``Training(loss="hinge", learning_rate={"terms": 1e-4, "kernels": 1e-3})``.
        """
        from pyterrier_debias.rankers.tk_model import TKRanking

        return TKRanking.of(self, training)

    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Turn n pairs into tensors (scorer protocol): ``input_ids`` and ``attention_mask``, and those of the queries."""
        tensors = self._sequences(docs).padded(np.arange(len(docs)), self.tokenizer)
        of_queries = self._sequences(queries).padded(np.arange(len(queries)), self.tokenizer)
        return {**tensors, **{f"query_{name}": value for name, value in of_queries.items()}}

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Tokens that truncation removes and leaves, the window; see :class:`~pyterrier_debias.training.fitting.Fittable`."""
        sequences = self._sequences(docs)
        return sequences.cut, sequences.lengths, self.window

    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, with gradients if the caller enables them."""
        return self.module(**tensors).scores

    def forward_matrix(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Score each query with each document, for in-batch negatives; each text is encoded once.

        Args:
            tensors: Output of :meth:`tokenise` for any numbers of queries and documents.

        Returns:
            Scores, shape [queries, documents].
        """
        from pyterrier_debias.rankers.tk_model import unit

        own = {name: value for name, value in tensors.items() if not name.startswith("query_")}
        of_queries = {name.removeprefix("query_"): value for name, value in tensors.items() if name.startswith("query_")}
        queries, query_mask = self.module.represent(**of_queries, query=True)
        docs, mask = self.module.represent(**own, query=False)
        return self.module.match_all(unit(queries), query_mask, unit(docs), mask)

    # Passages

    def encode_documents(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        r"""The vectors of a passage's words after the gate, as ``MATSProbe`` reads them.

        Args:
            texts: n passages.

        Returns:
            For each passage, its words (lower-cased runs of ``\w``) and their vectors, float32, shape [words, d]. A word's vector
            is that of its first token, or zeros if the word is unknown.
        """
        from pyterrier_debias.rankers.word_vectors import HuggingFaceWords

        return HuggingFaceWords(self, max_length=self.max_length, batch_tokens=self.batch_tokens, stage=self).word_vectors(texts)



def _settings(where: str, config: Mapping[str, Any] | None, given: Collection[str], **named: Any) -> TKConfig:
    """A configuration, checked before anything is loaded; it must not set fields that are ``given`` or ``named`` elsewhere."""
    from pyterrier_debias.rankers.tk_model import TKConfig

    for name in config or {}:
        if name in named:
            raise InputError(f"{where}: config sets {name!r}, which is a separate argument; write {where}(..., {name}=...)")
        if name in given:
            raise InputError(f"{where}: config sets {name!r}, which the embeddings and their tokenizer determine; leave it out")
    return TKConfig(**{**(config or {}), **named})


def _fresh(config: TKConfig, table: torch.Tensor, tokenizer: Any, seed: int) -> TKModel:
    """A new model with a table of embeddings; all other weights are drawn from the seed."""
    import torch

    from pyterrier_debias.rankers.tk_model import TKModel

    config.vocab_size, config.hidden_size = table.shape
    config.pad_token_id = tokenizer.pad_token_id
    with drawn_from(seed), quiet():
        module = TKModel(config)
    with torch.no_grad():
        module.terms.embeddings.weight.copy_(table)
    return module
