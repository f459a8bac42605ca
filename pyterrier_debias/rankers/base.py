"""The base of all rankers: columns, texts, long documents, weights and their identity.

A ranker is written by subclassing :class:`Ranker` with five methods: ``read`` and ``write`` (weights from a name or folder, and
back), ``score_pairs`` (scores of texts, through :mod:`pyterrier_debias.rankers.engine`), and the scorer protocol of
:mod:`pyterrier_debias.training.scorer`, ``tokenise`` and ``forward``, by which it is trained.
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
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.cache_key import marks, structure_of, tokenizer_fingerprint, tokenizer_marks, weights_fingerprint
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.files import check_empty, read_whole
from pyterrier_debias.core.memory import Memory, ScoreMemory
from pyterrier_debias.core.stage import Stage, brief
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.rankers.long_documents import LONG, best_of, passages
from pyterrier_debias.rankers.names import MINILM, extra_for, packaged_minilm, resolved
from pyterrier_debias.training.fitting import Fittable
from pyterrier_debias.training.report import ABOUT
from pyterrier_debias.training.seeds import check_seed

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: The number formats that a ranker may compute in.
DTYPES = ("float32", "tf32", "bfloat16", "float16")

#: While transformers loads a model, its log level, its way of tying weights, torch's default number format and torch's random
#: numbers are changed for the whole process, and put back as they were found: two loads must not cross. Rankers' own locks are
#: taken before this one, never inside it.
LOADING_LOCK = threading.RLock()

#: Attributes that a copy does not get: a lock, and what a ranker remembers while a context lasts.
_NOT_COPIED = frozenset({"_lock", "_memory"})

#: Options that are no part of :meth:`Ranker.as_code`; the model's name is told by itself.
_NOT_IN_CODE = frozenset({"model", "device", "batch_tokens", "training"})

#: Architectures whose position 0 comes after the padding token's id.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text", "longformer"}


@dataclass(eq=False)
class InMemory:
    """A model that was built or trained elsewhere in this process, in place of a name or folder.

    Args:
        module: The torch module that the ranker's architecture expects.
        tokenizer: Its tokenizer.

    Example:
        ``CrossEncoder(InMemory(module, tokenizer))``. When not to use it: for a model that lies in a folder, whose name makes the
        ranker cheap to compare and to send to another process.
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
        """The tokenizer that the module reads with: its own, where it has one as those of sentence-transformers do."""
        return getattr(self.module, "tokenizer", self.tokenizer)

    def fingerprint(self) -> str:
        """A hash of the weights, of how the module computes with them, and of the tokenizer."""
        return f"{weights_fingerprint(self.module)} {tokenizer_fingerprint(self.reader)}"


@dataclass(eq=False)
class _Loaded(InMemory):
    """Weights and tokenizer in memory, and what they were loaded for."""

    source: dict[str, Any]
    #: What they are as they were loaded.
    origin: str
    #: Their marks as they were loaded; None for those that cannot be loaded again.
    marks: tuple[Any, ...] | None
    #: The hash of what was changed since, and what it is the hash of.
    hashed: tuple[Any, str] | None = None

    def marked(self) -> tuple[Any, ...]:
        """What changes when weights or settings of the tokenizer do, see :func:`~pyterrier_debias.core.cache_key.marks`."""
        return marks(self.module), tokenizer_marks(self.reader)

    def changed(self) -> bool:
        """Whether they differ from what was loaded."""
        return self.marks is None or self.marked() != self.marks


def pick_device(device: str | torch.device | None) -> torch.device:
    """The device to compute on.

    Args:
        device: A device or its name; None picks CUDA, then Apple's MPS, then the processor.

    Returns:
        The device.
    """
    import torch

    if device is not None:
        return torch.device(device)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _other_dtype(module: torch.nn.Module, dtype: torch.dtype) -> bool:
    """Whether ``module.to(dtype)`` would change a weight or buffer."""
    return any(value.is_floating_point() and value.dtype != dtype for value in (*module.parameters(), *module.buffers()))


def source_fingerprint(model: str | os.PathLike[str]) -> str:
    """A cheap identity of a model that is not loaded: its name, and for a folder the size and time of its files.

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

    What is done inside must not ask a ranker for its weights: another thread may hold the ranker's lock and wait for this one.
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
    """Load from a hub name or folder: one at a time, quiet where it works, one clear line where it does not.

    Args:
        model: A hub name or a folder.
        stage: The calling stage, named in the message.

    Yields:
        What to give to ``from_pretrained``.

    Raises:
        InputError: If there is no such folder, it holds no model, or the hub does not give it.
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
    """The tokenizer of a model; called inside :func:`loading`, before the weights are read.

    Args:
        model: A hub name or folder, ready for ``from_pretrained``.
        stage: The calling stage, named in the message.

    Returns:
        The tokenizer.

    Raises:
        InputError: As :func:`check_tokenizer`.
    """
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
    check_tokenizer(tokenizer, model, stage)
    return tokenizer


def check_tokenizer(tokenizer: Any, model: str | os.PathLike[str], stage: Any) -> None:
    """Refuse a tokenizer without a vocabulary, to which all texts are the same.

    transformers makes one, and says nothing, where weights were saved alone (``model.save_pretrained(folder)``).

    Args:
        tokenizer: What was loaded; one that is not of transformers is not looked at.
        model: From where; named in the message.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If special tokens are all that it knows, or have no more beside them than a mark such as that for a space.
    """
    special = getattr(tokenizer, "all_special_ids", None)
    if special is None:
        return
    special = set(special)
    pieces = (piece for piece, number in tokenizer.get_vocab().items() if number not in special)
    if not any(character.isalnum() for piece in pieces for character in piece):
        raise InputError(
            f"{frames.stage_name(stage)}: model {str(model)!r} has no tokenizer (the one that was loaded knows no word, so that "
            f"all texts would be the same to it); save the one that it was trained with beside its weights: "
            f"tokenizer.save_pretrained(folder)"
        )


def window_of(tokenizer: Any, config: Any, max_length: int | None, stage: Any) -> int:
    """How many tokens a model reads at most.

    Args:
        tokenizer: Tells its ``model_max_length``, where it has one.
        config: Tells its ``max_position_embeddings``, where positions are learned; None where there is none.
        max_length: What the user asks for; None for all that the model can read (512 where it names no limit).
        stage: The calling stage, named in the message.

    Returns:
        Tokens, special tokens included.

    Raises:
        InputError: If more is asked for than the model has positions.
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
    """A neural ranker: scores the pairs of a result frame, whatever else is in the frame.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text: ``text_field``, or all ``fields``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Weights are loaded when a score is first asked for. Two rankers are equal when their options, weights and tokenizers are:
    weights and tokenizer count as the name (and for a folder the files) that they come from, and by their content where they
    came in memory or have been changed. Any number of threads may score with one ranker, and load others: of all rankers in a
    process, one is loaded at a time.

    Args:
        model: A hub name, a folder (one that :meth:`save` wrote gives the options that are not named here), another ranker of the
            same class (whose weights are copied as they are now), or an :class:`InMemory` model, which is used as it is, but for
            weights of another ``dtype``, of which the ranker makes a copy.
        max_length: Longest input in tokens; None for all that the model can read. Truncation is logged.
        device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU.
        dtype: ``'float32'``, or ``'bfloat16'`` or ``'float16'``, which are faster; bfloat16 moves scores by about 1 % of
            their spread within a query: stay with float32 where small differences of scores are the result. ``'tf32'`` is
            float32 but for products of matrices on CUDA devices, which have the 10 bits of float16 behind the point.
        batch_tokens: Token budget of a batch; None picks one for the device. Scores do not depend on it.
        text_field: The column with the document's text.
        fields: Columns to join with a space and read instead of ``text_field``, e.g. ``['url', 'title', 'body']``.
        long: What to do with long documents: ``'truncate'`` reads what fits into the window, ``'firstp'`` scores the first
            passage (and trains on it), ``'maxp'`` takes the best passage (but trains as ``'truncate'``, which is logged).
        passage_length: Length of a passage in words, for ``'firstp'`` and ``'maxp'``.
        passage_stride: Words from the start of one passage to the start of the next, for ``'maxp'``.
        training: How :meth:`fit` trains; None for the defaults of :class:`~pyterrier_debias.Training`.
        verbose: Whether to show progress.
    """

    _NOT_IDENTITY = frozenset({"verbose", "batch_tokens", "training"})
    pieces = "scores"

    #: What ``long`` may be.
    _LONG: tuple[str, ...] = LONG

    #: What is kept: scores of pairs, but where a subclass keeps something else.
    _MEMORY: type[Memory] = ScoreMemory

    #: What was kept, and how many contexts use it, while :meth:`remembering` lasts.
    _memory: tuple[Memory, int] | None = None

    #: Options that decide what is loaded; a change of one of them reloads.
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
        """Load a model onto the processor; called inside :func:`loading`, under the ranker's lock.

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
            float scores, shape [n], higher is more relevant; a score depends on its own pair only.
        """

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the model into a folder that is empty, in the ordinary form of its kind, without logging or progress bar.

        What is here writes a module and a tokenizer of transformers.

        Raises:
            InputError: If the folder holds anything; :meth:`save` knows what it may replace.
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
        """Score what :meth:`tokenise` returned, under autograd where the caller asks for it: shape [n] (scorer protocol)."""

    @property
    def model(self) -> Any:
        """Where the weights come from; a ranker is copied when it is assigned, so that its later training changes nothing."""
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
            A new frame with ``score`` and ``rank``; other columns as they were.

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
        """The text of the document of every row, fields joined with a space.

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
        """Score n pairs of texts, long documents treated as ``long`` says; equal pairs are computed once.

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
        """Scores of pairs, each distinct pair computed once, or looked up where :meth:`remembering` lasts."""
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
        """Score no pair twice while this context lasts, which saves who scores the same texts again most of the work.

        Scores are kept by the *texts* of query and document (of a passage, where passages are scored), never by their names, so
        that a changed text is scored anew. They are forgotten when the last context ends, and where an option or a weight
        changes, as by ``fit``; they are no part of copies, pickles and comparisons. Encoders of documents
        (:class:`~pyterrier_debias.BiEncoder`) keep what they make of documents in place of scores. What is logged of
        truncated texts counts those that are computed.

        Args:
            limit: How many are kept at most; those beyond that are computed each time. None: four million scores (100 MB).
                Inside another context, its memory and its limit are used.

        Yields:
            The ranker.

        Example:
            ::

                with ranker.remembering():
                    before, after = ranker(candidates), ranker(candidates_with_rotated_passages)

        When not to use it: where no pair comes twice.
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

    def training_text(self, text: str) -> str:
        """What training reads of a document: its first passage for ``long='firstp'``, else what fits into the window."""
        return passages(text, self.passage_length, self.passage_stride)[0][0] if self.long == "firstp" else text

    def check_options(self) -> None:
        """Refuse unknown options, before anything is loaded.

        Raises:
            InputError: Naming the option and what it may be.
        """
        name = type(self).__name__
        check_choice(name, "dtype", self.dtype, DTYPES)
        check_choice(name, "long", self.long, self._LONG)
        if not isinstance(self.model, (str, os.PathLike, Ranker, InMemory)):
            raise InputError(
                f"{name}: model is of type {type(self.model).__name__}; give a hub name, a folder, a {name} or "
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
        """The type of the weights, as torch has it; TF32 is a way to multiply float32."""
        import torch

        return getattr(torch, "float32" if self.dtype == "tf32" else self.dtype)

    @property
    def torch_device(self) -> torch.device:
        """The device that the option ``device`` stands for on this machine."""
        return pick_device(self.device)

    def budget(self, cpu: int = 2048, accelerator: int = 65536) -> int:
        """Tokens of a batch: the option ``batch_tokens``, or a default for the device.

        Args:
            cpu: Default on the processor, where small batches stay in its caches.
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

        Train it in place: the ranker notices, whichever way weights are written (see
        :func:`~pyterrier_debias.core.cache_key.marks` for the one exception, and call :meth:`mark_trained` there).
        """
        return self._load().module

    @property
    def tokenizer(self) -> Any:
        """The tokenizer, loaded on first use."""
        return self._load().tokenizer

    def scoring_module(self) -> torch.nn.Module:
        """The module in eval mode (dropout off), which is how scores are computed."""
        module = self.module
        if module.training:
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
        """The weights in memory; loads them where that has not happened for the present options."""
        import torch


        with self._lock:
            source = {name: getattr(self, name) for name in self._SOURCE}
            if self._loaded is not None and self._loaded.source == source:
                return self._loaded
            if self._trained():
                raise InputError(
                    f"{type(self).__name__}: {', '.join(self._SOURCE)} cannot be changed after training, which would be lost; "
                    f"make a new ranker from this one instead"
                )
            self.check_options()
            fingerprint = self._source_fingerprint()
            if isinstance(self.model, Ranker) and type(self.model) is not type(self):
                raise InputError(
                    f"{type(self).__name__}: model is a {type(self.model).__name__}; give a {type(self).__name__}, a hub name or "
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
            self._loaded = _Loaded(module, tokenizer, source, fingerprint, None)
            self._loaded.marks = self._loaded.marked()
            return self._loaded

    def _read(self) -> tuple[Any, Any]:
        from pyterrier_debias.rankers.tying import check_whole

        with loading(self.model, self) as where:
            module, tokenizer = self.read(where)
            check_whole(module, self.model, type(self).__name__)
            check_tokenizer(tokenizer, self.model, self)
        return module, tokenizer

    def _give(self) -> tuple[Any, Any]:
        """Weights for the ranker that holds this copy: the copy's own where it can load them again, else a further copy."""
        with self._lock:
            module, tokenizer = self.module, self.tokenizer
            if self._trained() or isinstance(self.model, InMemory):
                return copy.deepcopy(module), tokenizer
            self._loaded = None
            return module, tokenizer

    def _trained(self) -> bool:
        """Whether the weights in memory, or the tokenizer's settings, differ from those that were loaded."""
        return self._loaded is not None and self._loaded.changed()

    def mark_trained(self) -> None:
        """Tell that the weights in memory are no longer those that were loaded, in case the ranker cannot notice it."""
        with self._lock:
            if self._loaded is not None:
                self._loaded = _Loaded(self._loaded.module, self._loaded.tokenizer, self._loaded.source, "", None)

    # Identity

    def _source_fingerprint(self) -> str:
        if isinstance(self.model, Ranker):
            return self._copied_fingerprint(self.model)
        if isinstance(self.model, InMemory):
            return self.model.fingerprint()
        return source_fingerprint(self.model)

    def _copied_fingerprint(self, other: Ranker) -> str:
        """The fingerprint of another ranker's weights, with the options that made them what they are, where this one's differ."""
        apart = [name for name in self._SOURCE if name not in ("model", "device")]
        theirs = {name: getattr(other, name, None) for name in apart}
        made = {name: value for name, value in theirs.items() if value != getattr(self, name)}
        return f"{other.fingerprint()} {made}" if made else other.fingerprint()

    def fingerprint(self) -> str:
        """What weights and tokenizer are, as a short text: where they come from, or a hash once the one or the other is changed.

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
        """The options that change scores, with the fingerprint of the weights in place of the model's name."""
        identity = super().identity()
        return {**identity, "model": self.fingerprint(), "fields": None if self.fields is None else self.text_columns()}

    def as_code(self) -> str:
        """The constructor call that makes this ranker anywhere, for code that others run.

        Returns:
            The call without what belongs to a machine or a training (``device``, ``batch_tokens``, ``training``); with the name
            ``ranker``, the ranker itself, in the place of weights that no name tells: trained ones, those in memory, those of an
            absolute path.

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
        known = name and not Path(name).expanduser().is_absolute() and not self._trained()
        models = {key: f"ranker.{key}" for key, value in options.items() if isinstance(value, (Stage, InMemory))}
        texts = {key: models.get(key) or brief(value) for key, value in options.items()}
        return self._call({"model": repr(name) if known and not models else "ranker", **texts})

    # Copies

    def __getstate__(self) -> dict[str, Any]:
        """Options, and the weights with their tokenizer only where they cannot be loaded again: after a change of either."""
        state = {name: value for name, value in self.__dict__.items() if name not in _NOT_COPIED}
        if not self._trained():
            state["_loaded"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state and make a lock of its own."""
        self.__dict__.update(state)
        self._lock = threading.RLock()
        if self._loaded is not None:
            # Weights that were trained stay so: what was counted starts anew in a copy.
            self.mark_trained()


def shared_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options that all rankers share, out of what a constructor was given.

    Args:
        given: The constructor's ``locals()``.

    Returns:
        The arguments of :class:`Ranker`.
    """
    return {name: given[name] for name in list(inspect.signature(Ranker.__init__).parameters)[1:]}
