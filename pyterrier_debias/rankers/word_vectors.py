"""One vector for each word of a text, from any encoder and any of its layers."""

from __future__ import annotations

import inspect
import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, kind_of
from pyterrier_debias.core.files import read_whole
from pyterrier_debias.core.frames import stage_name
from pyterrier_debias.core.scripts import composed, word_places
from pyterrier_debias.rankers import engine
from pyterrier_debias.rankers.base import DTYPES, InMemory, Ranker, load_tokenizer, loading, pick_device, window_of
from pyterrier_debias.rankers.packed import PackedBert
from pyterrier_debias.training.seeds import random_state_kept

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

PIECES = ("first", "mean")

#: Number formats in which an encoder is loaded; TF32 is not one of them, but a way in which rankers multiply.
FORMATS = tuple(dtype for dtype in DTYPES if dtype != "tf32")

#: Words of a text, each with its start and (exclusive) end in characters.
WordSpans = Callable[[str], list[tuple[str, int, int]]]

#: How many texts memory holds between the tokenizer and the batches.
_CHUNK = 2048


@runtime_checkable
class WordEncoder(Protocol):
    """Protocol of objects that compute one vector for each word of a text.

    Rankers whose architecture has such vectors (TK's contextualised terms) implement it. Wherever a word encoder is an argument,
    a plain function with the same arguments and result is accepted too.
    """

    def word_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        """Encode texts.

        Args:
            texts: n texts.

        Returns:
            For each text, its words in order and their vectors, float, shape [words, d]. The index of a word is its position; a
            word without a vector that precedes words with one has a vector of zeros.
        """


def regex_spans(text: str) -> list[tuple[str, int, int]]:
    """Split a text into the words of the tokeniser ``regex_word``: lower-cased, in normal form C, with their characters.

    Args:
        text: Any text.

    Returns:
        (word, start, end) for each word, ``end`` exclusive.

    Example:
        >>> regex_spans("It's TK.")
        [('it', 0, 2), ('s', 3, 4), ('tk', 5, 7)]
    """
    return [(composed(text[start:end].lower()), start, end) for start, end in word_places(text)]


def pieces_of(spans: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the pieces of a tokenizer that overlap each word.

    Args:
        spans: Start and (exclusive) end of each word in characters, ascending, shape [w, 2].
        offsets: Start and (exclusive) end of each piece, ascending, shape [p, 2]; pieces without characters overlap nothing.

    Returns:
        First piece and one past the last piece of each word, shape [w] each; equal if no piece overlaps the word.

    Example:
        >>> first, last = pieces_of(np.array([[0, 3], [4, 11]]), np.array([[0, 3], [4, 8], [8, 11], [11, 12]]))
        >>> first.tolist(), last.tolist()
        ([0, 1], [1, 3])
    """
    real = np.flatnonzero(offsets[:, 1] > offsets[:, 0])
    if not len(real):
        return np.zeros(len(spans), dtype=np.int64), np.zeros(len(spans), dtype=np.int64)
    first = np.searchsorted(offsets[real, 1], spans[:, 0], side="right")
    last = np.searchsorted(offsets[real, 0], spans[:, 1], side="left")
    touched = last > first
    return np.where(touched, real[np.minimum(first, len(real) - 1)], 0), np.where(touched, real[last - 1] + 1, 0)


class HuggingFaceWords:
    """Computes word vectors from a Hugging Face encoder: the hidden states of one layer, by words.

    The model reads the unchanged text in one piece; words are located by their characters, so that two models with different
    tokenizers can be compared on the same words. Special tokens belong to no word. Words that are truncated, wholly or in part,
    are left out; a word of which the tokenizer keeps nothing has a vector of zeros.

    Args:
        encoder: A hub name or folder (also of a sentence-transformers model, whose first module is read), an
            :class:`~pyterrier_debias.rankers.base.InMemory` model, or a ranker with such an encoder, whose weights at the time
            of the computation are used. Layers on top of the encoder (heads, projections, pooling) and prompts are ignored.
        words: A function from a text to its words and their characters.
        piece: ``'first'``: a word's vector is that of its first piece; ``'mean'``: the mean over its pieces.
        layer: Which hidden states: 0 the embeddings (positions included), 1 to L after each layer; negative numbers from the end.
        max_length: Longest text in tokens; None for as many as the model can read, or as a given ranker reads. Truncation is
            logged.
        batch_tokens: Token budget of a batch; None picks one for the device. Vectors do not depend on it.
        device: Device to run on; None picks CUDA, then Apple's MPS, then the CPU. Rankers and models in memory compute where they
            are.
        dtype: ``'float32'``, ``'bfloat16'`` or ``'float16'``, for models that are loaded; vectors come out as float32.
        stage: The calling stage, named in messages.

    Example::

        encoder = HuggingFaceWords("sentence-transformers/all-MiniLM-L6-v2", layer=3)
        [(words, vectors)] = encoder.word_vectors(["The capital is Paris."])     # 4 words, shape [4, 384]

    When not to use it: for one vector per text (:class:`~pyterrier_debias.BiEncoder`), or for models that read images or sound.
    """

    def __init__(
        self,
        encoder: Any,
        *,
        words: WordSpans = regex_spans,
        piece: str = "first",
        layer: int = -1,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        stage: Any = "HuggingFaceWords",
    ):
        self.encoder = encoder
        self.words = words
        self.piece = piece
        self.layer = layer
        self.max_length = max_length
        self.batch_tokens = batch_tokens
        self.device = device
        self.dtype = dtype
        self.stage = stage
        self._loaded: tuple[Any, Any] | None = None
        self._lock = threading.Lock()

    def word_vectors(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        """Encode texts; see :class:`WordEncoder`.

        Raises:
            InputError: For an unknown option, or a model that cannot be loaded or has no such layer.
        """
        self.check_options()
        found: list[tuple[list[str], np.ndarray]] = []
        for start in range(0, len(texts), _CHUNK):
            found += self._chunk(texts[start : start + _CHUNK])
        return found

    def check_options(self) -> None:
        """Refuse unknown options, before anything is loaded.

        Raises:
            InputError: Naming the option and its allowed values.
        """
        name = stage_name(self.stage)
        for option, known in (("piece", PIECES), ("dtype", FORMATS)):
            check_choice(name, option, getattr(self, option), known)
        for option in ("max_length", "batch_tokens"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise InputError(f"{name}: {option}={value} must be at least 1")
        if not isinstance(self.encoder, (str, os.PathLike, InMemory, Ranker)):
            raise InputError(
                f"{name}: the encoder is {kind_of(self.encoder)}; give a hub name, a folder, a ranker, InMemory(module, "
                f"tokenizer), an object with word_vectors(texts), or a function from texts to (words, matrix) pairs"
            )
        if isinstance(self.encoder, (InMemory, Ranker)) and (self.device is not None or self.dtype != "float32"):
            raise InputError(
                f"{name}: device and dtype cannot be set for a model that is in memory already; leave them out here, and "
                f"set them where it is made"
            )

    def _chunk(self, texts: Sequence[str]) -> list[tuple[list[str], np.ndarray]]:
        model, tokenizer = self._model()
        words, ranges, ids = [], [], []
        with engine.TOKENIZER_LOCK:
            encoded = tokenizer(
                list(texts), add_special_tokens=False, truncation=False, return_offsets_mapping=True, verbose=False
            )
        for text, tokens, offsets in zip(texts, encoded["input_ids"], encoded["offset_mapping"]):
            spans = self.words(text)
            words.append([word for word, _, _ in spans])
            places = np.array([place for _, *place in spans], dtype=np.int64).reshape(-1, 2)
            ranges.append(pieces_of(places, np.array(offsets, dtype=np.int64).reshape(-1, 2)))
            ids.append(np.asarray(tokens, dtype=np.int32))
        longest = self.encoder.max_length if self.max_length is None and isinstance(self.encoder, Ranker) else self.max_length
        window = window_of(tokenizer, model.config, longest, self.stage)
        sequences = engine.Sequences(engine.Template.single(tokenizer), window, ids, side=tokenizer.truncation_side)
        cut = int(np.count_nonzero(sequences.cut))
        if cut:
            logger.warning(
                "%s: %d of %d texts were cut to the window of %d tokens; the words beyond it have no vectors",
                stage_name(self.stage),
                cut,
                len(texts),
                window,
            )
        found: list[Any] = [None] * len(texts)
        for indices, states in self._states(model, tokenizer, sequences):
            for index, of_text in zip(indices, states):
                shift = int(sequences.cut[index]) if sequences.side == "left" else 0
                first, last = ranges[index]
                found[index] = self._by_word(words[index], first, last, of_text, shift)
        return found

    def _by_word(
        self, words: list[str], first: np.ndarray, last: np.ndarray, states: np.ndarray, shift: int
    ) -> tuple[list[str], np.ndarray]:
        """Join the states of a text's remaining pieces by words; ``shift`` pieces were cut off its start."""
        whole = np.flatnonzero((first >= shift) & (last <= shift + len(states)) & (last > first))
        if not len(whole):
            return [], np.empty((0, states.shape[1]), dtype=np.float32)
        stay = slice(whole[0] if shift else 0, whole[-1] + 1)
        vectors = np.zeros((len(words), states.shape[1]), dtype=np.float32)
        starts, counts = first[whole] - shift, (last - first)[whole]
        if self.piece == "first":
            vectors[whole] = states[starts]
        else:
            bounds = np.cumsum(counts) - counts
            taken = np.repeat(starts - bounds, counts) + np.arange(counts.sum())
            vectors[whole] = np.add.reduceat(states[taken], bounds) / counts[:, None]
        return words[stay], vectors[stay]

    def _states(self, model: Any, tokenizer: Any, sequences: engine.Sequences) -> Any:
        """Hidden states of the texts' own pieces: yields indices, and one array [pieces, d] for each of them."""
        layer = self._layer(model)
        prefix = len(sequences.template.prefix)
        kept = sequences.lengths - sequences.template.special
        packed = PackedBert(model) if layer == model.config.num_hidden_layers and PackedBert.supports(model) else None
        takes = inspect.signature(model.forward).parameters

        def prepare(indices: np.ndarray) -> Any:
            return sequences.packed(indices) if packed is not None else sequences.padded(indices, tokenizer)

        def compute(batch: Any) -> Any:
            if packed is not None:
                return packed.hidden(*batch)
            tensors = {name: engine.moved(value, model.device) for name, value in batch.items() if name in takes}
            inner = layer < model.config.num_hidden_layers
            out = model(**tensors, **({"output_hidden_states": True} if inner else {}))
            return out.hidden_states[layer] if inner else out.last_hidden_state

        budget = self.batch_tokens or (4096 if model.device.type == "cpu" else 65536)
        found = engine.batches(sequences.lengths, compute, batch_tokens=budget, prepare=prepare, padded=packed is None)
        for indices, states in engine.on_their_way(found):
            lengths = sequences.lengths[indices]
            if packed is not None:
                starts = np.cumsum(lengths) - lengths + prefix
                yield indices, [states[start : start + kept[index]] for start, index in zip(starts, indices)]
                continue
            starts = (states.shape[1] - lengths if tokenizer.padding_side == "left" else np.zeros_like(indices)) + prefix
            yield indices, [states[row, start : start + kept[index]] for row, (start, index) in enumerate(zip(starts, indices))]

    def _layer(self, model: Any) -> int:
        """The layer's number from 0."""
        count = model.config.num_hidden_layers
        layer = self.layer if self.layer >= 0 else count + 1 + self.layer
        if not 0 <= layer <= count:
            name = stage_name(self.stage)
            raise InputError(
                f"{name}: layer={self.layer} does not exist; this encoder has layers 0 (embeddings) to {count}, or {-count - 1} "
                f"to -1"
            )
        return layer

    def _model(self) -> tuple[Any, Any]:
        """The bare encoder, in eval mode, and its tokenizer."""
        if isinstance(self.encoder, Ranker):
            return self._ready(bare_encoder(self.encoder.scoring_module()), self.encoder.tokenizer)
        if self._loaded is not None:
            return self._loaded
        with random_state_kept(), self._lock:  # libraries draw weights that they then replace
            if self._loaded is None:
                if isinstance(self.encoder, InMemory):
                    model, tokenizer = self.encoder.module, self.encoder.tokenizer
                    model.eval()
                else:
                    model, tokenizer = read_whole(self.encoder, self._read)
                self._loaded = self._ready(bare_encoder(model), tokenizer)
            return self._loaded

    def _read(self) -> tuple[Any, Any]:
        import torch
        from transformers import AutoModel

        from pyterrier_debias.rankers.tying import check_whole

        with loading(self.encoder, self.stage) as where:
            where = _first_module(where)
            tokenizer = load_tokenizer(where, self.stage)
            model = AutoModel.from_pretrained(where, dtype=getattr(torch, self.dtype), trust_remote_code=False)
            check_whole(model, self.encoder, stage_name(self.stage))
        return model.to(pick_device(self.device)).eval(), tokenizer

    def _ready(self, model: Any, tokenizer: Any) -> tuple[Any, Any]:
        if not getattr(tokenizer, "is_fast", False):
            name = stage_name(self.stage)
            raise InputError(
                f"{name}: the tokenizer {type(tokenizer).__name__} does not say which characters its pieces cover; convert it "
                f"to a fast one, or give a function from texts to (words, matrix) pairs"
            )
        return model, tokenizer

    def __getstate__(self) -> dict[str, Any]:
        """Only the options; weights are loaded again."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_loaded", "_lock")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the options and make a new lock."""
        self.__dict__.update(state, _loaded=None, _lock=threading.Lock())


def bare_encoder(module: Any) -> Any:
    """Find the Hugging Face encoder inside a module: under a classification head, in a sentence-transformers model, in a T5.

    Args:
        module: A torch module.

    Returns:
        The encoder, a Hugging Face model.

    Raises:
        InputError: If there is none.
    """
    from transformers import PreTrainedModel

    if not isinstance(module, PreTrainedModel):
        # sentence-transformers models are sequences of modules; heads of ours hold their encoder by that name.
        inner = next((getattr(m, "auto_model", None) or getattr(m, "model", None) for m in module.children()), None)
        module = getattr(module, "encoder", None) or inner
        if not isinstance(module, PreTrainedModel):
            raise InputError(f"{kind_of(module)} holds no Hugging Face encoder from which word vectors could be read")
    module = module.base_model
    return module.get_encoder() if module.config.is_encoder_decoder else module


def _first_module(where: str) -> str:
    """The folder of the first module, for a sentence-transformers folder without a config.json of its own."""
    folder = Path(where)
    if not (folder / "config.json").is_file() and (folder / "modules.json").is_file():
        first = json.loads((folder / "modules.json").read_text(encoding="utf-8"))[0]
        return str(folder / first["path"])
    return where
