"""The base class of all rankers: columns, texts, long documents, weights and their identity.

To write a ranker, subclass :class:`Ranker` with five methods: ``read`` and ``write`` (weights from a name or folder, and back),
``score_pairs`` (scores of texts, through :mod:`pyterrier_debias.rankers.engine`), and, for training, the scorer protocol of
:mod:`pyterrier_debias.training.scorer`, ``tokenise`` and ``forward``.
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
import threading
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.cache_key import (
    marks,
    scoring_marks,
    structure_of,
    tokenizer_fingerprint,
    tokenizer_marks,
    training_marks,
    weights_fingerprint,
)
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.files import check_empty, read_whole
from pyterrier_debias.core.memory import Memory, ScoreMemory
from pyterrier_debias.core.stage import Stage, brief
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.rankers.long_documents import LONG, best_of, passages
from pyterrier_debias.rankers.names import MINILM, extra_for, packaged_minilm, resolved
from pyterrier_debias.training.fitting import Fittable
from pyterrier_debias.training.report import ABOUT
from pyterrier_debias.training.seeds import check_seed, random_state_kept

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: The number formats in which a ranker can compute.
DTYPES = ("float32", "tf32", "bfloat16", "float16")

#: While transformers loads a model, its log level, its way of tying weights, torch's default number format and torch's random
#: numbers are changed for the whole process, and restored afterwards: two loads must not overlap. Rankers' own locks are taken
#: before this one, never inside it.
LOADING_LOCK = threading.RLock()

#: Attributes that a copy does not get: a lock, and the memory of :meth:`Ranker.remembering`.
_NOT_COPIED = frozenset({"_lock", "_memory"})

#: Options that are not part of :meth:`Ranker.as_code`; the model's name is added separately.
_NOT_IN_CODE = frozenset({"model", "device", "batch_tokens", "training"})

#: Architectures whose position 0 comes after the padding token's id.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text", "longformer"}


@dataclass(eq=False)
class InMemory:
    """A model that was built or trained elsewhere in this process, for use instead of a name or folder.

    Args:
        module: The torch module that the ranker's architecture expects.
        tokenizer: Its tokenizer.

    Example:
        ``CrossEncoder(InMemory(module, tokenizer))``. When not to use it: for a model in a folder; with the folder's name, the
        ranker is cheap to compare and to send to another process.
    """

    module: Any
    tokenizer: Any

    def __repr__(self) -> str:
        return f"<{type(self.module).__name__}>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, InMemory):
            return NotImplemented
        return self is other or self.fingerprint() == other.fingerprint()

    def __hash__(self) -> int:
        return hash(type(self.module))

    @property
    def reader(self) -> Any:
        """The tokenizer that the module uses: its own if it has one, like the modules of sentence-transformers."""
        return getattr(self.module, "tokenizer", self.tokenizer)

    def fingerprint(self) -> str:
        """A hash of the weights, of how the module computes with them, and of the tokenizer."""
        return f"{weights_fingerprint(self.module)} {tokenizer_fingerprint(self.reader)}"


@dataclass(eq=False)
class _Loaded(InMemory):
    """Weights and tokenizer in memory, and the options for which they were loaded."""

    source: dict[str, Any]
    #: Their fingerprint when they were loaded.
    origin: str
    #: Their marks when they were loaded; None if they cannot be loaded again.
    marks: tuple[Any, ...] | None
    #: How the module was to be trained when it was loaded, see :func:`~pyterrier_debias.core.cache_key.training_marks`.
    trains: tuple[Any, ...]
    #: The state to which they were changed since, and its hash.
    hashed: tuple[Any, str] | None = None

    def marked(self) -> tuple[Any, ...]:
        """Values that change with the weights, how the module computes, or how the tokenizer reads texts; see
        :func:`~pyterrier_debias.core.cache_key.marks`."""
        return marks(self.module), scoring_marks(self.module), tokenizer_marks(self.reader)

    def changed(self) -> bool:
        """Whether loading again would give another model: other scores, or another training (a weight that is not frozen)."""
        return self.marks is None or self.marked() != self.marks or training_marks(self.module) != self.trains

    def trained(self) -> Self:
        """The same model, which is no longer the one that was loaded."""
        return replace(self, origin="", marks=None, hashed=None)


def pick_device(device: str | torch.device | None) -> torch.device:
    """Pick the device to compute on.

    Args:
        device: A device or its name; None picks CUDA, then Apple's MPS, then the CPU.

    Returns:
        The device.
    """
    import torch

    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def on_cpu(module: torch.nn.Module) -> torch.nn.Module:
    """Copy a module to the CPU, without a second copy of its weights on its own device.

    Args:
        module: Any torch module.

    Returns:
        The copy; the module itself if it is on the CPU already.
    """
    import torch

    weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}.values()
    if all(weight.device.type == "cpu" for weight in weights):
        return module
    there = {id(weight): weight.detach().cpu() for weight in weights}
    for weight in module.parameters():
        there[id(weight)] = torch.nn.Parameter(there[id(weight)], requires_grad=weight.requires_grad)
    return copy.deepcopy(module, dict(there))


def _other_dtype(module: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Whether ``module.to(dtype)`` would change a weight or buffer."""
    return any(value.is_floating_point() and value.dtype != dtype for value in (*module.parameters(), *module.buffers()))


def source_fingerprint(model: str | os.PathLike[str]) -> str:
    """Compute a cheap identity of a model without loading it: its name, and for a folder the size and time of its files.

    Args:
        model: A hub name or a folder.

    Returns:
        A short text. It changes when a file in the folder is rewritten.
    """
    folder = Path(resolved(model))
    if not folder.is_dir():
        return f"name:{resolved(model)}"
    state = blake2b(digest_size=16)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            about = file.stat()
            state.update(f"{file.relative_to(folder)} {about.st_size} {about.st_mtime_ns}\n".encode())
    return f"folder:{folder.resolve()} {state.hexdigest()}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from printing notes and progress bars while it loads or saves, one thread of the process at a time.

    Code inside must not ask a ranker for its weights: another thread may hold the ranker's lock and wait for this one.
    """
    from transformers.utils import logging as hf_logging

    with LOADING_LOCK:
        level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
        hf_logging.set_verbosity_error()
        hf_logging.disable_progress_bar()
        try:
            yield
        finally:
            hf_logging.set_verbosity(level)
            if bars:
                hf_logging.enable_progress_bar()


@contextmanager
def loading(model: str | Path, stage: Any) -> Iterator[str]:
    """Context for loading from a hub name or folder: one load at a time, silent on success, a one-line error on failure.

    Args:
        model: A hub name or a folder.
        stage: The calling stage, named in the message.

    Yields:
        The argument for ``from_pretrained``.

    Raises:
        InputError: If there is no such folder, it contains no model, or the hub does not provide it.
    """
    from pyterrier_debias.rankers import tying

    source, name = resolved(model), frames.stage_name(stage)
    where = Path(source).expanduser()
    looks_local = isinstance(model, Path) or where.is_absolute() or str(model).startswith((".", "~"))
    if looks_local and not where.is_dir():
        raise InputError(f"{name}: there is no model folder {str(model)!r}; check the path, or give a hub name")
    # What a ranker of the user's own wrote is as it likes; ABOUT is what save() puts beside it.
    if where.is_dir() and not any((where / file).is_file() for file in ("config.json", "modules.json", ABOUT)):
        raise InputError(f"{name}: folder {str(model)!r} holds no config.json, so it is not a Hugging Face model folder")
    try:
        with quiet():
            tying.restore()
            yield source
    except InputError:
        raise
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if where.is_dir():
            remedy = "the folder is incomplete, or of a kind that this ranker cannot read"
        else:
            offline = os.environ.get("HF_HUB_OFFLINE", "0").upper() in {"1", "TRUE", "YES", "ON"}
            remedy = f"{extra_for(model)}check the name, or download the model where there is a network and give its folder"
            remedy = f"HF_HUB_OFFLINE is set: {remedy}" if offline else remedy
        raise InputError(f"{name}: model {str(model)!r} cannot be loaded ({first[:200]}); {remedy}") from error


def load_tokenizer(model: str | os.PathLike[str], stage: Any) -> Any:
    """Load the tokenizer of a model; call it inside :func:`loading`, before the weights are read.

    Args:
        model: A hub name or folder, ready for ``from_pretrained``.
        stage: The calling stage, named in the message.

    Returns:
        The tokenizer.

    Raises:
        InputError: If :func:`check_tokenizer` refuses the tokenizer.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    check_tokenizer(tokenizer, model, stage)
    return tokenizer


def check_tokenizer(tokenizer: Any, model: str | os.PathLike[str], stage: Any) -> None:
    """Refuse a tokenizer without a vocabulary, for which all texts are the same.

    transformers silently makes such a tokenizer if weights were saved alone (``model.save_pretrained(folder)``).

    Args:
        tokenizer: The loaded tokenizer; one that is not from transformers is not checked.
        model: Its source, named in the message.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If it knows only special tokens, or besides them only marks such as that for a space.
    """
    special = getattr(tokenizer, "all_special_ids", None)
    if special is None:
        return
    special = set(special)
    pieces = (piece for piece, number in tokenizer.get_vocab().items() if number not in special)
    if not any(character.isalnum() for piece in pieces for character in piece):
        raise InputError(
            f"{frames.stage_name(stage)}: model {str(model)!r} has no tokenizer (the one that was loaded knows no words, so "
            f"all texts would look the same); save the tokenizer with which the model was trained beside its weights: "
            f"tokenizer.save_pretrained(folder)"
        )


def window_of(tokenizer: Any, config: Any, max_length: int | None, stage: Any) -> int:
    """Compute the largest number of tokens that a model reads.

    Args:
        tokenizer: The source of ``model_max_length``, if it has one.
        config: The source of ``max_position_embeddings``, if positions are learned; None without a configuration.
        max_length: The user's limit; None for as many as the model can read (512 if it names no limit).
        stage: The calling stage, named in the message.

    Returns:
        Number of tokens, special tokens included.

    Raises:
        InputError: If ``max_length`` exceeds the model's number of positions.
    """
    positions = getattr(config, "max_position_embeddings", None) or -1
    if positions > 0 and getattr(config, "model_type", "") in _OFFSET_POSITIONS:
        positions -= (config.pad_token_id or 0) + 1
    if max_length is None:
        limits = [limit for limit in (positions, getattr(tokenizer, "model_max_length", 0)) if 0 < limit < 1_000_000]
        return min(limits) if limits else 512
    if 0 < positions < max_length:
        raise InputError(
            f"{frames.stage_name(stage)}: max_length={max_length} is more than the {positions} tokens that the model can read; "
            f"use max_length={positions} or less, or long='maxp'"
        )
    return max_length


class Ranker(Fittable, Stage):
    """Base class of neural rankers: scores each pair of a result frame independently of the rest of the frame.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Weights are loaded when a score is first needed. Two rankers are equal if their options, weights and tokenizers are equal.
    Weights and tokenizer are compared by the name (and for a folder the files) from which they come, or by their content if they
    were given in memory or have been changed. A ranker that is loaded keeps its weights if its folder is written anew; its copies
    and pickles then hold these weights. Any number of threads may score with one ranker and load others; a process loads one
    ranker at a time.

    Args:
        model: A hub name, a folder (one that :meth:`save` wrote also supplies the options that you do not set), another ranker of
            the same class (whose present weights are copied), or an :class:`InMemory` model, which is used directly, unless its
            weights have another ``dtype``: then the ranker makes a copy.
        max_length: Longest input in tokens; None for as many as the model can read. Truncation is logged.
        device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
        dtype: ``'float32'``, or ``'bfloat16'`` or ``'float16'``, which are faster; bfloat16 moves scores by about 1 % of
            their spread within a query: use float32 if you measure small differences of scores. ``'tf32'`` is float32, except
            that CUDA may multiply matrices with the 10-bit mantissa of float16.
        batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
        text_field: The column with the document's text.
        fields: Columns to join with a space and read instead of ``text_field``, e.g. ``['url', 'title', 'body']``.
        long: How to handle long documents: ``'truncate'`` reads what fits into the window, ``'firstp'`` scores the first
            passage (and trains on it), ``'maxp'`` takes the best passage (but trains like ``'truncate'``, which is logged).
        passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
        passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
        training: How :meth:`fit` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
        verbose: Whether to show progress.
    """

    _NOT_IDENTITY = frozenset({"verbose", "batch_tokens", "training"})
    pieces = "scores"

    #: The allowed values of ``long``.
    _LONG: tuple[str, ...] = LONG

    #: The kind of memory: scores of pairs, unless a subclass keeps something else.
    _MEMORY: type[Memory] = ScoreMemory

    #: The memory, and how many contexts use it, while :meth:`remembering` lasts.
    _memory: tuple[Memory, int] | None = None

    #: Options that determine what is loaded; a change of one of them reloads.
    _SOURCE: tuple[str, ...] = ("model", "device", "dtype")

    def __init__(
        self,
        model: str | Path | Ranker | InMemory,
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
        training: Training | None = None,
        verbose: bool = False,
    ):
        super().__init__()
        self.model = model
        self.max_length = max_length
        self.device = device
        self.dtype = dtype
        self.batch_tokens = batch_tokens
        self.text_field = text_field
        self.fields = fields
        self.long = long
        self.passage_length = passage_length
        self.passage_stride = passage_stride
        self.training = training
        self.verbose = verbose
        self._loaded: _Loaded | None = None
        self._lock = threading.RLock()

    # What a subclass writes

    @abstractmethod
    def read(self, model: str) -> tuple[Any, Any]:
        """Load a model onto the CPU; called inside :func:`loading`, under the ranker's lock.

        Args:
            model: A hub name or folder, ready for ``from_pretrained``.

        Returns:
            The torch module in ``self.torch_dtype``, and its tokenizer. Device and eval mode are set by the caller.
        """

    @abstractmethod
    def score_pairs(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n distinct pairs of texts, in inference mode.

        Args:
            queries: n queries.
            docs: n texts.

        Returns:
            float scores, shape [n]; higher means more relevant. A score depends only on its own pair.
        """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model into an empty folder, in the ordinary format of its kind, without logging or progress bar.

        This implementation writes a module and a tokenizer of transformers.

        Raises:
            InputError: If the folder is not empty; :meth:`save` knows which files it may replace.
        """
        check_empty(folder, f"{type(self).__name__}.write")
        module: Any = self.module
        tokenizer = self.tokenizer
        with quiet():
            module.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    @abstractmethod
    def tokenise(self, queries: Sequence[str], docs: Sequence[str]) -> dict[str, torch.Tensor]:
        """Turn n pairs into padded tensors whose first dimension is n, on the CPU (scorer protocol)."""

    @abstractmethod
    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        """Scores of shape [n] for the tensors of :meth:`tokenise`, with gradients if the caller enables them."""

    @property
    def model(self) -> Any:
        """The source of the weights; a ranker is copied when it is assigned, so that its later training has no effect here."""
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        if isinstance(model, Ranker):
            # Options of a training may hold whole frames, and are never changed.
            model = copy.deepcopy(model, {id(model.training): model.training})
        self._model = model

    # Scoring

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank every row.

        Args:
            inp: A result frame with the columns named above.

        Returns:
            A new frame with ``score`` and ``rank``; other columns are unchanged.

        Raises:
            InputError: For missing texts, duplicate pairs, unknown options, or a model that cannot be loaded.
        """
        pt.validate.result_frame(inp, extra_columns=["query", *self.text_columns()], context=self)
        self.check_options()
        if len(inp) == 0:
            return frames.ranked(inp, self)
        frames.check_text(inp, "query", self)
        docs = self.documents(inp)
        frames.check_pairs(inp, self)
        return frames.ranked(inp.assign(score=self.score(inp["query"].tolist(), docs)), self)

    def text_columns(self) -> list[str]:
        """The columns that hold the document: ``text_field``, or ``fields``."""
        if self.fields is None:
            return [self.text_field]
        return [self.fields] if isinstance(self.fields, str) else list(self.fields)

    def documents(self, inp: pd.DataFrame) -> list[str]:
        """Return the document text of every row, with fields joined by a space.

        Args:
            inp: A frame with :meth:`text_columns`.

        Returns:
            n texts.

        Raises:
            InputError: If a text is missing.
        """
        columns = self.text_columns()
        for column in columns:
            frames.check_text(inp, column, self)
        if len(columns) == 1:
            return inp[columns[0]].tolist()
        return [" ".join(parts) for parts in zip(*(inp[column].tolist() for column in columns))]

    def score(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs of texts, with long documents handled by the option ``long``; equal pairs are computed once.

        Args:
            queries: n queries.
            docs: n documents.

        Returns:
            float64 scores, shape [n].
        """
        if self.long == "truncate":
            return self._score_distinct(list(zip(queries, docs)))
        cut = {doc: passages(doc, self.passage_length, self.passage_stride) for doc in dict.fromkeys(docs)}
        if self.long == "firstp":
            return self._score_distinct([(query, cut[doc][0][0]) for query, doc in zip(queries, docs)])
        lost = [words for _, words in cut.values() if words]
        if lost:
            warn_of(
                logger,
                f"{type(self).__name__}: long='maxp' scores full passages only, as pt.text.sliding does; %d of %d texts lost %d "
                f"words at their end",
                len(lost),
                len(cut),
                sum(lost),
            )
        pairs = [(query, passage) for query, doc in zip(queries, docs) for passage in cut[doc][0]]
        owner = np.repeat(np.arange(len(docs)), [len(cut[doc][0]) for doc in docs])
        return best_of(self._score_distinct(pairs), owner, len(docs))

    def _score_distinct(self, pairs: list[tuple[str, str]]) -> np.ndarray:
        """Scores of pairs; each distinct pair is computed once, or looked up while :meth:`remembering` lasts."""
        place = {pair: i for i, pair in enumerate(dict.fromkeys(pairs))}
        if not place:
            return np.empty(0)

        def compute(distinct: Sequence[tuple[str, str]]) -> np.ndarray:
            return self.score_pairs(*map(list, zip(*distinct)))

        memory, _ = self._memory or (None, 0)
        if isinstance(memory, ScoreMemory):
            scores = memory.scores(self.identity(), list(place), compute)
        else:
            scores = compute(list(place))
        return np.asarray(scores, dtype=np.float64)[[place[pair] for pair in pairs]]

    @contextmanager
    def remembering(self, limit: int | None = None) -> Iterator[Self]:
        """Context in which no pair is scored twice, which saves most of the work if the same texts are scored again.

        Scores are kept by the *texts* of query and document (or passage, if passages are scored), never by their ids, so a
        changed text is scored anew. They are forgotten when the last context ends, and when an option or the model changes, e.g.
        by ``fit``; copies, pickles and comparisons ignore them. Document encoders (:class:`~pyterrier_debias.BiEncoder`) keep
        the representations of queries and documents instead of scores. The log of truncated texts counts only texts that are
        computed.

        Args:
            limit: Largest number of scores to keep; others are computed each time. None: four million scores (80 MB).
                Inside another context, its memory and its limit are used.

        Yields:
            The ranker.

        Example:
            ::

                with ranker.remembering():
                    before, after = ranker(candidates), ranker(candidates_with_rotated_passages)

        When not to use it: if no pair occurs twice, or if scoring is cheap. Each call reads all weights once, to see whether they
        have changed.
        """
        if limit is not None:
            check_number(f"{type(self).__name__}.remembering", "limit", limit, least=0, whole=True)
        with self._lock:
            memory, contexts = self._memory or (self._MEMORY(limit), 0)
            self._memory = memory, contexts + 1
        try:
            yield self
        finally:
            with self._lock:
                memory, contexts = self._memory or (memory, 1)
                self._memory = None if contexts == 1 else (memory, contexts - 1)

    @property
    def long_for_scoring_only(self) -> bool:
        """Whether training reads less of a long document than scoring does, because ``long`` combines scores of passages."""
        return self.long == "maxp"

    def unread(self, inp: pd.DataFrame) -> tuple[float, float, int] | None:
        """How much of the documents does not fit into the window; no score is computed.

        Args:
            inp: A frame with ``docno``, ``query`` and :meth:`text_columns`; at most 1,000 documents are looked at.

        Returns:
            The share of tokens that are not read, the share of documents that are cut, and the window in tokens; None if no model
            is in memory, if ``long`` says how long documents are scored, or if nothing is known.
        """
        rows = inp.drop_duplicates("docno")
        if self.long != "truncate" or self._current() is None or not {"query", *self.text_columns()} <= {*inp} or not len(rows):
            return None
        rows = rows.iloc[np.linspace(0, len(rows) - 1, min(len(rows), 1_000)).astype(int)]
        found = self.cuts(rows["query"].tolist(), self.documents(rows))
        if found is None:
            return None
        cut, left, window = found
        return float(cut.sum() / max(1, cut.sum() + left.sum())), float(np.mean(cut > 0)), window

    def training_text(self, text: str) -> str:
        """The part of a document that training reads: its first passage for ``long='firstp'``, else what fits into the window."""
        return passages(text, self.passage_length, self.passage_stride)[0][0] if self.long == "firstp" else text

    def score_in_training(self, queries: Sequence[str], docs: Sequence[str]) -> np.ndarray:
        """Score n pairs of texts, of which the ranker reads what its training would read; see :meth:`training_text`.

        Args:
            queries: n queries.
            docs: n documents.

        Returns:
            float64 scores, shape [n]; those of :meth:`score`, unless ``long`` combines scores of passages.
        """
        return self._score_distinct([(query, self.training_text(doc)) for query, doc in zip(queries, docs)])

    def check_options(self) -> None:
        """Refuse unknown options, before anything is loaded.

        Raises:
            InputError: Naming the option and its allowed values.
        """
        name = type(self).__name__
        check_choice(name, "dtype", self.dtype, DTYPES)
        check_choice(name, "long", self.long, self._LONG)
        if not isinstance(self.model, (str, os.PathLike, Ranker, InMemory)):
            raise InputError(
                f"{name}: model is {kind_of(self.model)}; give a hub name, a folder, a {name} or "
                f"InMemory(module, tokenizer)"
            )
        if self.fields is not None and len(self.fields) == 0:
            raise InputError(f"{name}: fields={self.fields!r} names no column; give a list, e.g. ['title', 'body']")
        for option in ("max_length", "batch_tokens", "passage_length", "passage_stride"):
            value = getattr(self, option)
            if value is not None or option.startswith("passage"):
                check_number(name, option, value, least=1, whole=True)
        if "seed" in self._SOURCE:
            check_seed(name, self.seed)  # type: ignore[attr-defined]  # rankers that draw weights have one

    # Weights

    @property
    def torch_dtype(self) -> torch.dtype:
        """The torch dtype of the weights; for TF32 it is float32, because TF32 is only a way to multiply."""
        import torch

        return getattr(torch, "float32" if self.dtype == "tf32" else self.dtype)

    @property
    def torch_device(self) -> torch.device:
        """The device that the option ``device`` selects on this machine."""
        return pick_device(self.device)

    def budget(self, cpu: int = 2048, accelerator: int = 65536) -> int:
        """Return the token budget of a batch: the option ``batch_tokens``, or a default for the device.

        Args:
            cpu: Default on the CPU, where small batches stay in the caches.
            accelerator: Default on CUDA and MPS.

        Returns:
            Tokens.
        """
        if self.batch_tokens is not None:
            return self.batch_tokens
        return cpu if self.torch_device.type == "cpu" else accelerator

    @property
    def module(self) -> torch.nn.Module:
        """The torch module, loaded on first use, on its device.

        Train it in place: the ranker notices changed weights, however they are written (see
        :func:`~pyterrier_debias.core.cache_key.marks` for the one exception; in that case call :meth:`mark_trained`). Copies and
        pickles keep what was changed in it: weights, which of them are frozen (``requires_grad``), dropout, replaced parts,
        hooks on a forward pass (to pickle a ranker, its hooks must be functions that pickle finds by name; workers of
        :class:`~pyterrier_debias.core.spread.Spread` are sent any function). A saved folder has no hooks.
        """
        return self._load().module

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded on first use."""
        return self._load().tokenizer

    def scoring_module(self) -> torch.nn.Module:
        """The module in eval mode (dropout off), in which scores are computed."""
        module = self.module
        if any(part.training for part in module.modules()):
            module.eval()
        return module

    @property
    def window(self) -> int:
        """The longest input in tokens, see :func:`window_of`."""
        return window_of(self.tokenizer, getattr(self.module, "config", None), self.max_length, self)

    def warm_up(self) -> Self:
        """Load the model and score one pair, so that the first real call is not slow.

        Returns:
            The ranker itself.
        """
        self.score_pairs(["a query"], ["a document"])
        return self

    def _load(self) -> _Loaded:
        """The weights in memory; loads them if that has not happened for the present options."""
        import torch

        with self._lock:
            if (loaded := self._current()) is not None:
                return loaded
        # Libraries draw the weights that they then replace by those of the model.
        with random_state_kept(), self._lock:
            if (loaded := self._current()) is not None:
                return loaded
            if self.altered():
                raise InputError(
                    f"{type(self).__name__}: {', '.join(self._SOURCE)} cannot be changed after training, after a change of its "
                    f"module, or after its folder was written anew, because its weights would be lost; make a new ranker from "
                    f"this one instead"
                )
            self.check_options()
            source, fingerprint = self._source(), self._source_fingerprint()
            if isinstance(self.model, Ranker) and type(self.model) is not type(self):
                raise InputError(
                    f"{type(self).__name__}: model is {kind_of(self.model)}; give {kind_of(self)}, a hub name or "
                    f"a folder"
                )
            # Weights that were made in inference mode could never be trained.
            with torch.inference_mode(False):
                if isinstance(self.model, Ranker):
                    module, tokenizer = self.model._give()
                elif isinstance(self.model, InMemory):
                    module, tokenizer = self.model.module, self.model.tokenizer
                else:
                    module, tokenizer = read_whole(self.model, self._read)
                if isinstance(self.model, InMemory) and _other_dtype(module, self.torch_dtype):
                    module = copy.deepcopy(module)  # the caller's own stays as precise as it was
                module = module.to(device=self.torch_device, dtype=self.torch_dtype).eval()
            # sentence-transformers chooses how it compares vectors at the first use, in steps that no thread may meet half way.
            getattr(module, "similarity_fn_name", None)
            self._loaded = _Loaded(module, tokenizer, source, fingerprint, None, training_marks(module))
            self._loaded.marks = self._loaded.marked()
            return self._loaded

    def _source(self) -> dict[str, Any]:
        """The present options of loading."""
        return {name: getattr(self, name) for name in self._SOURCE}

    def _current(self) -> _Loaded | None:
        """What is in memory, if it was loaded for the present options."""
        return self._loaded if self._loaded is not None and self._loaded.source == self._source() else None

    def _read(self) -> tuple[Any, Any]:
        from pyterrier_debias.rankers.tying import check_whole

        with loading(self.model, self) as where:
            module, tokenizer = self.read(where)
            check_whole(module, self.model, type(self).__name__)
            check_tokenizer(tokenizer, self.model, self)
        return module, tokenizer

    def _give(self) -> tuple[Any, Any]:
        """Weights for the ranker that holds this copy: the copy's own if it can load them again, otherwise a further copy."""
        with self._lock:
            module, tokenizer = self.module, self.tokenizer
            if self.altered() or isinstance(self.model, InMemory):
                return copy.deepcopy(module), tokenizer
            self._loaded = None
            return module, tokenizer

    def altered(self) -> bool:
        """Whether what is in memory cannot be loaded again: the module (weights, frozen or not, dropout, hooks) or the tokenizer
        was changed, or the source was, for example a folder that was written anew."""
        return self._loaded is not None and (self._loaded.changed() or self.replaced())

    def replaced(self) -> bool:
        """Whether the source, for example a folder, holds other weights now than those that were loaded from it."""
        return self._loaded is not None and self._loaded.origin != self._source_fingerprint(self._loaded.source)

    def mark_trained(self) -> None:
        """Declare that the weights in memory are no longer those that were loaded, in case the ranker cannot notice it."""
        with self._lock:
            if self._loaded is not None:
                self._loaded = self._loaded.trained()

    # Identity

    def _source_fingerprint(self, source: dict[str, Any] | None = None) -> str:
        """The fingerprint of what would be loaded for these options of loading; None for the present ones."""
        source = self._source() if source is None else source
        model = source["model"]
        if isinstance(model, InMemory):
            return model.fingerprint()
        if not isinstance(model, Ranker):
            return source_fingerprint(model)
        # Another ranker's weights, with those of its loading options that differ from this ranker's.
        theirs = {name: getattr(model, name, None) for name in source if name not in ("model", "device")}
        made = {name: value for name, value in theirs.items() if value != source[name]}
        return f"{model.fingerprint()} {made}" if made else model.fingerprint()

    def fingerprint(self) -> str:
        """Identify weights and tokenizer by a short text: their source, or a hash once either has changed.

        Returns:
            The text; nothing is loaded for it.
        """
        loaded = self._loaded
        if loaded is None:
            return self._source_fingerprint()
        present = loaded.marked()
        if loaded.marks == present:
            return loaded.origin
        state = present, structure_of(loaded.module)
        if loaded.hashed is None or loaded.hashed[0] != state:
            loaded.hashed = state, loaded.fingerprint()
        return loaded.hashed[1]

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options that change scores, with the fingerprint of the weights instead of the model's name."""
        identity = super().identity()
        return {**identity, "model": self.fingerprint(), "fields": None if self.fields is None else self.text_columns()}

    def as_code(self) -> str:
        """Return a constructor call that makes this ranker on any machine, for code that others run.

        Returns:
            The call without options of the machine or the training (``device``, ``batch_tokens``, ``training``). The name
            ``ranker``, for the ranker itself, replaces weights without a portable name: trained ones, those in memory, those of
            an absolute path.

        Example:
            >>> from pyterrier_debias import CrossEncoder
            >>> CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2", device="cpu", long="maxp").as_code()
            "CrossEncoder('cross-encoder/ms-marco-MiniLM-L6-v2', long='maxp')"
            >>> CrossEncoder("/home/me/models/mine", long="maxp").as_code()
            "CrossEncoder(ranker, long='maxp')"
        """
        name = str(self.model) if isinstance(self.model, (str, Path)) else ""
        name = MINILM if name == packaged_minilm() else name
        options = {key: value for key, value in self.changed_options().items() if key not in _NOT_IN_CODE}
        known = name and not Path(name).expanduser().is_absolute() and not self.altered()
        models = {key: f"ranker.{key}" for key, value in options.items() if isinstance(value, (Stage, InMemory))}
        texts = {key: models.get(key) or brief(value) for key, value in options.items()}
        return self._call({"model": repr(name) if known and not models else "ranker", **texts})

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """Options; module and tokenizer only if they cannot be loaded again, see :meth:`altered`."""
        state = {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}
        loaded = self._loaded
        if loaded is None or not self.altered():
            return {**state, "_loaded": None}
        sent = loaded if loaded.marks == loaded.marked() else loaded.trained()
        # Whoever opens it may have another kind of device.
        return {**state, "_loaded": replace(sent, module=on_cpu(sent.module))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the state and make a new lock."""
        self.__dict__.update(state)
        self._lock = threading.RLock()
        if self._loaded is None:
            return
        self._loaded.module.to(self.torch_device)
        if self._loaded.marks is not None:
            # Only how it trains, or its source, was changed. It scores as when it was loaded; a copy counts anew.
            self._loaded = replace(self._loaded, marks=self._loaded.marked(), hashed=None)


def shared_options(given: dict[str, Any]) -> dict[str, Any]:
    """Select the options that all rankers share from a constructor's arguments.

    Args:
        given: The constructor's ``locals()``.

    Returns:
        The arguments of :class:`Ranker`.
    """
    return {name: given[name] for name in list(inspect.signature(Ranker.__init__).parameters)[1:]}
