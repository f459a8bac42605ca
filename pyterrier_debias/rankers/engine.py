"""The scoring engine: texts to token ids (once), ids to batches of similar length, batches to results.

Every ranker scores through the three steps of this module::

    def begin(rows):                                                     # some texts at a time
        ids = token_ids(tokenizer, texts[rows])                          # each distinct text once, uncut
        sequences = Sequences(Template.pair(tokenizer), window, ids, docs)   # joined and cut as ids, not as strings
        return sequences.lengths, sequences.packed                       # packed() makes a batch of some of them
    for indices, result in in_chunks(len(texts), begin, compute, batch_tokens=4096):
        ...                                                              # longest first; order is yours to restore

``begin`` and the function that it returns run ahead in a thread, while the device computes. The module holds no state between
calls, so any number of threads may score at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.frames import stage_name
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.training import precision

if TYPE_CHECKING:
    import torch

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Calls reconfigure a fast tokenizer, so two threads must not use it at once.
TOKENIZER_LOCK = threading.Lock()

#: How many texts the tokenizer gets at a time.
_TOKENISE_CHUNK = 2048

#: How many texts or pairs are tokenised before their first batch is computed: enough for batches of similar length, but few,
#: because a GPU is idle until then.
CHUNK = 4096

#: How many batches are made ahead of the one that is computed.
_AHEAD = 2

#: Up to this number of texts, a thread is not worth its cost.
_FEW = 32

#: How many numbers may wait on the device to be copied to the CPU's memory (256 MB in float32).
_HELD = 64_000_000

#: Which text of a pair is truncated.
TRUNCATIONS = ("longest_first", "only_second")


def token_ids(tokenizer: Any, texts: Sequence[str]) -> list[np.ndarray]:
    """Tokenise texts without special tokens or truncation; each distinct text is tokenised once.

    Args:
        tokenizer: A Hugging Face tokenizer.
        texts: n texts.

    Returns:
        n int32 arrays; equal texts share one array.
    """
    distinct = list(dict.fromkeys(texts))
    ids: dict[str, np.ndarray] = {}
    for start in range(0, len(distinct), _TOKENISE_CHUNK):
        chunk = distinct[start : start + _TOKENISE_CHUNK]
        with TOKENIZER_LOCK:
            encoded = _encoded(tokenizer, chunk)
        ids.update(zip(chunk, (np.array(one, dtype=np.int32) for one in encoded)))
    return [ids[text] for text in texts]


def _encoded(tokenizer: Any, texts: list[str]) -> list[list[int]]:
    """Token ids of texts, without special tokens or truncation."""
    options = {"add_special_tokens": False, "truncation": False, "padding": False, "verbose": False}
    options |= {"return_attention_mask": False, "return_token_type_ids": False}
    kind: type = type(tokenizer)
    if not _only_passes_on(kind):
        return tokenizer(texts, **options)["input_ids"]
    # The first call sets the options of the Rust tokenizer. Called directly for the other texts, it is three times as fast:
    # transformers spends most of its time on objects that are not needed here, and a GPU waits for it.
    first, *rest = texts
    return tokenizer([first], **options)["input_ids"] + [
        encoding.ids for encoding in tokenizer.backend_tokenizer.encode_batch_fast(rest, add_special_tokens=False)
    ]


@cache
def _only_passes_on(kind: type) -> bool:
    """Whether a class of tokenizers only passes texts on to its Rust tokenizer, as transformers' general class does."""
    from transformers import PreTrainedTokenizerFast

    return issubclass(kind, PreTrainedTokenizerFast) and all(
        getattr(kind, name, None) is getattr(PreTrainedTokenizerFast, name, None)
        for name in ("__call__", "_encode_plus", "_batch_encode_plus")
    )


@dataclass(frozen=True)
class Template:
    """The special tokens with which a tokenizer frames one text, or joins two.

    A sequence is ``prefix + first + middle + second + suffix``; for a single text, ``middle`` is empty and there is no second
    part. The template is derived from the tokenizer's own encoding of a probe, so it works for every architecture.

    Attributes:
        prefix: Ids before the first text.
        middle: Ids between the texts.
        suffix: Ids at the end.
        types: Token type ids of the five parts (tuples for the special tokens, one integer for each text), or None if the
            model has none.
    """

    prefix: tuple[int, ...]
    middle: tuple[int, ...]
    suffix: tuple[int, ...]
    types: tuple[tuple[int, ...], int, tuple[int, ...], int, tuple[int, ...]] | None

    @classmethod
    def single(cls, tokenizer: Any) -> Template:
        """The frame of one text, e.g. ``[CLS] text [SEP]``."""
        return cls._probe(tokenizer, pair=False)

    @classmethod
    def pair(cls, tokenizer: Any) -> Template:
        """The frame of two texts, e.g. ``[CLS] query [SEP] document [SEP]``."""
        return cls._probe(tokenizer, pair=True)

    @classmethod
    def _probe(cls, tokenizer: Any, pair: bool) -> Template:
        with TOKENIZER_LOCK:
            texts = ["a"], (["a"] if pair else None)
            count = len(tokenizer(["a"], add_special_tokens=False)["input_ids"][0])
            encoded = tokenizer(*texts, return_special_tokens_mask=True)
        ids, special = encoded["input_ids"][0], np.asarray(encoded["special_tokens_mask"][0], dtype=bool)
        given = encoded["token_type_ids"][0] if "token_type_ids" in encoded else None
        start = int(np.argmin(special))
        if pair:
            second = start + count + int(np.argmin(special[start + count :]))
            cuts = [0, start, start + count, second, second + count, len(ids)]
        else:
            cuts = [0, start, start + count, start + count, start + count, len(ids)]
        parts = [tuple(ids[a:b]) for a, b in pairwise(cuts)]
        types = None
        if given is not None:
            prefix, first, middle, other, suffix = (tuple(given[a:b]) for a, b in pairwise(cuts))
            types = (prefix, first[0], middle, other[0] if other else 0, suffix)
        return cls(parts[0], parts[2], parts[4], types)

    @property
    def special(self) -> int:
        """The number of special tokens in a sequence."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)


def check_room(stage: Any, window: int, template: Template) -> None:
    """Refuse a window that special tokens fill, in which all texts would be the same.

    Args:
        stage: The ranker, named in the message.
        window: The longest sequence, special tokens included.
        template: The special tokens.

    Raises:
        InputError: If there is no room for a token of a text.
    """
    if window <= template.special:
        raise InputError(
            f"{stage_name(stage)}: max_length={window} leaves no room for text beside the {template.special} special tokens; "
            f"give more, or leave max_length out for as many tokens as the model can read"
        )


def cut_lengths(
    first: np.ndarray, second: np.ndarray, room: int, truncation: str = "longest_first"
) -> tuple[np.ndarray, np.ndarray]:
    """Compute how many tokens of each text of a pair remain if the two must fit into a window.

    Args:
        first: Lengths of the first texts, shape [n].
        second: Lengths of the second texts, shape [n].
        room: Tokens of the window without the special ones.
        truncation: ``'longest_first'``, as in Hugging Face's fast tokenizers: the longer text is cut to the length of the
            shorter one, then both to half of the room (the odd token goes to the longer one, and to the second if both are
            equal). ``'only_second'`` cuts only the second text, and the first only if it fills the window alone (in which case
            the tokenizer itself would fail).

    Returns:
        The two lengths, shape [n] each.
    """
    check_choice("cut_lengths", "truncation", truncation, TRUNCATIONS)
    if truncation == "only_second":
        kept = np.minimum(first, room)
        return kept, np.minimum(second, room - kept)
    short, long = np.minimum(first, second), np.maximum(first, second)
    halved = 2 * short > room
    short_kept = np.where(halved, room // 2, short)
    long_kept = np.where(halved, room - room // 2, np.minimum(long, room - short))
    swapped = first > second
    fits = first + second <= room
    kept_first = np.where(fits, first, np.where(swapped, long_kept, short_kept))
    kept_second = np.where(fits, second, np.where(swapped, short_kept, long_kept))
    return kept_first, kept_second


class Sequences:
    """Texts, or pairs of texts, as the token sequences that a model reads.

    Sequences are joined only when they are used, so n pairs of q queries and d documents need the memory of q + d texts.

    Args:
        template: The special tokens around and between.
        window: The longest sequence allowed, special tokens included.
        first: Ids of the first (or only) texts, without special tokens, from :func:`token_ids`.
        second: Ids of the second texts; None for single texts.
        truncation: ``'longest_first'`` or ``'only_second'``, see :func:`cut_lengths`.
        side: Which end of a text is cut: ``'right'`` cuts its end, ``'left'`` its start.

    Attributes:
        lengths: Tokens of each sequence, shape [n].
        cut: Tokens that each sequence lost, shape [n].
    """

    def __init__(
        self,
        template: Template,
        window: int,
        first: Sequence[np.ndarray],
        second: Sequence[np.ndarray] | None = None,
        *,
        truncation: str = "longest_first",
        side: str = "right",
    ):
        check_choice("Sequences", "side", side, ("right", "left"))
        check_choice("Sequences", "truncation", truncation, TRUNCATIONS)
        self.template, self.first, self.second, self.side = template, first, second, side
        self._first_length = np.fromiter(map(len, first), dtype=np.int64, count=len(first))
        self._second_length = np.zeros_like(self._first_length)
        if second is not None:
            self._second_length = np.fromiter(map(len, second), dtype=np.int64, count=len(second))
        room = max(window - template.special, 0)
        whole = self._first_length + self._second_length
        if second is None:
            self._first_length = np.minimum(self._first_length, room)
        else:
            self._first_length, self._second_length = cut_lengths(self._first_length, self._second_length, room, truncation)
        self.cut = whole - self._first_length - self._second_length
        self.lengths = whole - self.cut + template.special

    def __len__(self) -> int:
        return len(self.lengths)

    def _kept(self, ids: np.ndarray, length: int) -> np.ndarray:
        return ids[:length] if self.side == "right" else ids[len(ids) - length :]

    def ids(self, index: int) -> np.ndarray:
        """Token ids of one sequence."""
        parts = [self.template.prefix, self._kept(self.first[index], self._first_length[index]), self.template.middle]
        if self.second is not None:
            parts.append(self._kept(self.second[index], self._second_length[index]))
        return np.concatenate([*parts, self.template.suffix]).astype(np.int64, copy=False)

    def types(self, index: int) -> np.ndarray:
        """Token type ids of one sequence; zeros if the model has none."""
        if self.template.types is None:
            return np.zeros(self.lengths[index], dtype=np.int64)
        prefix, first, middle, second, suffix = self.template.types
        counts = [1] * len(prefix) + [self._first_length[index]] + [1] * len(middle)
        counts += [self._second_length[index]] + [1] * len(suffix)
        return np.repeat(np.array([*prefix, first, *middle, second, *suffix], dtype=np.int64), counts)

    def parts(self, index: int) -> np.ndarray:
        """The text of each token of one sequence: 1 for the first, 2 for the second, 0 for special tokens."""
        counts = [len(self.template.prefix), self._first_length[index], len(self.template.middle), self._second_length[index]]
        return np.repeat(np.array([0, 1, 0, 2, 0], dtype=np.int64), [*counts, len(self.template.suffix)])

    def padded(self, indices: np.ndarray | Sequence[int], tokenizer: Any) -> dict[str, Any]:
        """Make a batch of tensors for a Hugging Face model, padded to the longest sequence.

        Args:
            indices: Which sequences.
            tokenizer: The source of the padding token and side, and of the tensors that the model accepts.

        Returns:
            ``input_ids``, ``attention_mask`` and, if the model accepts them, ``token_type_ids``: int64 tensors of shape
            [len(indices), longest], on the CPU.
        """
        import torch

        flat, of_flat, lengths = self.packed(indices)
        longest = int(lengths.max())
        left = tokenizer.padding_side == "left"
        places = np.arange(longest)[None, ::-1 if left else 1] < lengths[:, None]
        ids = np.full(places.shape, tokenizer.pad_token_id or 0, dtype=np.int64)
        ids[places] = flat
        tensors = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(places.astype(np.int64))}
        if self.template.types is not None:
            types = np.full(places.shape, tokenizer.pad_token_type_id, dtype=np.int64)
            types[places] = of_flat
            tensors["token_type_ids"] = torch.from_numpy(types)
        return tensors

    def packed(self, indices: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Make a batch without padding.

        Args:
            indices: Which sequences.

        Returns:
            Token ids and token type ids of all sequences one after the other, shape [sum of lengths], and the lengths.
        """
        indices = np.asarray(indices, dtype=np.int64)
        prefix, middle, suffix = (
            np.asarray(part, dtype=np.int64) for part in (self.template.prefix, self.template.middle, self.template.suffix)
        )
        # All parts are joined at once: one call for each sequence would keep the device waiting.
        parts = []
        for index, first, second in zip(
            indices.tolist(), self._first_length[indices].tolist(), self._second_length[indices].tolist()
        ):
            parts += [prefix, self._kept(self.first[index], first), middle]
            if self.second is not None:
                parts.append(self._kept(self.second[index], second))
            parts.append(suffix)
        ids = np.concatenate(parts, dtype=np.int64) if parts else np.empty(0, dtype=np.int64)
        lengths = self.lengths[indices]
        if self.template.types is None:
            return ids, np.zeros(len(ids), dtype=np.int64), lengths
        before, kind, between, other, after = self.template.types
        counts = np.ones((len(indices), self.template.special + 2), dtype=np.int64)
        counts[:, len(before)] = self._first_length[indices]
        counts[:, len(before) + 1 + len(between)] = self._second_length[indices]
        kinds = np.array([*before, kind, *between, other, *after], dtype=np.int64)
        return ids, np.repeat(np.tile(kinds, len(indices)), counts.ravel()), lengths


class Cuts:
    """Collects how much was truncated, chunk by chunk, to be reported once; int32, since a run has many texts."""

    def __init__(self) -> None:
        self._parts: list[np.ndarray] = []

    def add(self, cut: np.ndarray, lengths: np.ndarray) -> None:
        """Record the tokens that texts lost and have left."""
        self._parts.append(np.stack([cut, lengths]).astype(np.int32))

    def all(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that each text lost, and tokens that it has left, in the order of recording; both of shape [n]."""
        cut, lengths = np.concatenate([np.empty((2, 0), dtype=np.int32), *self._parts], axis=1)
        return cut, lengths


def report_cuts(stage: str, window: int, cut: np.ndarray, lengths: np.ndarray) -> None:
    """Log how much did not fit into the window; silent if everything did.

    Args:
        stage: The calling stage, named in the message.
        window: The window in tokens, for the message.
        cut: Tokens that each text lost, shape [n].
        lengths: Tokens that each text has left, shape [n].
    """
    texts = int(np.count_nonzero(cut))
    if texts:
        warn_of(
            logger,
            f"{stage}: %d of %d texts were cut to the window of {window} tokens and lost %d of %d tokens; "
            f"score long documents by passages (long='maxp') or raise max_length where the model allows it",
            texts,
            len(cut),
            int(cut.sum()),
            int(cut.sum() + lengths.sum()),
        )


def plan(lengths: np.ndarray, batch_tokens: int, *, padded: bool = True) -> list[np.ndarray]:
    """Sort sequences by length and divide them into batches within a token budget.

    Args:
        lengths: Tokens of each sequence, shape [n].
        batch_tokens: Token budget of a batch. A sequence that is longer than the budget is a batch of its own.
        padded: Whether padding counts: if so, a batch costs its longest sequence times its size, else the sum of its lengths.

    Returns:
        Arrays of indices, longest sequences first; together they contain every index once.
    """
    order = np.argsort(-lengths, kind="stable")
    found, start, used = [], 0, 0
    for position, length in enumerate(lengths[order].tolist()):
        cost = (position - start + 1) * int(lengths[order[start]]) if padded else used + length
        if position > start and cost > batch_tokens:
            found.append(order[start:position])
            start, used = position, 0
        used += length
    if start < len(order):
        found.append(order[start:])
    return found


def _out_of_memory(error: BaseException) -> bool:
    """Whether an accelerator's memory is full (CUDA has a class for it, MPS a message)."""
    import torch

    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "MPS backend out of memory" in str(error)
    )


def ahead(items: Iterator[T], depth: int = _AHEAD) -> Iterator[T]:
    """Iterate in a separate thread, a few items ahead of the consumer.

    An exception in the thread reaches the consumer in place of its item. The thread ends with the iteration, also if the consumer
    stops early.

    Args:
        items: The iterator.
        depth: How many items are produced ahead.

    Yields:
        The items, in their order.

    Example:
        >>> list(ahead(iter("abc")))
        ['a', 'b', 'c']

    When not to use it: for items that take less than a tenth of a millisecond, which is the cost of passing one to the consumer.
    """
    end: Any = object()
    pool = ThreadPoolExecutor(1, thread_name_prefix="pyterrier_debias-ahead")
    try:
        waiting: deque[Future[T]] = deque(pool.submit(next, items, end) for _ in range(depth))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, items, end))
            yield item
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def moved(values: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy numbers to a device, without waiting for CUDA: copies from pinned memory overlap with its computation.

    Args:
        values: An array or a tensor on the CPU.
        device: The target device.

    Returns:
        A tensor on the device; on the CPU, one that shares the memory of ``values``.
    """
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(values)) if isinstance(values, np.ndarray) else values
    if device.type != "cuda" or tensor.device.type != "cpu":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)


def in_chunks(
    n: int,
    begin: Callable[[slice], tuple[np.ndarray, Callable[[np.ndarray], Any]]],
    compute: Callable[[Any], Any],
    *,
    batch_tokens: int,
    padded: bool = True,
    chunk: int | None = None,
    tf32: bool = False,
    verbose: bool = False,
    label: str = "scoring",
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute a result for each of n texts, in batches of similar length, without gradients.

    A thread tokenises and makes batches ahead, while this one computes. If the accelerator runs out of memory, the budget is
    halved and the batch is tried again in smaller pieces.

    Args:
        n: Number of texts or pairs.
        begin: A function of the indices of some texts that tokenises them, and returns their lengths and ``prepare``: a function
            from indices into them to a batch (any object). Both run in the thread.
        compute: A function from such a batch to the result (any object). Runs in ``torch.inference_mode``.
        batch_tokens: Token budget of a batch.
        padded: Whether padding counts towards the budget, see :func:`plan`.
        chunk: How many texts ``begin`` gets at a time; None for :data:`CHUNK`.
        tf32: Whether CUDA may multiply float32 matrices in TF32; if False it does not, whatever torch's own switch says.
        verbose: Whether to show progress.
        label: Text of the progress bar.

    Yields:
        ``(indices, result)`` for each batch; every index occurs once.

    Raises:
        torch.OutOfMemoryError: If even one sequence alone does not fit.
    """
    budget, step = batch_tokens, chunk or CHUNK

    def made() -> Iterator[tuple[int, np.ndarray, Callable[[np.ndarray], Any], np.ndarray, Any]]:
        for start in range(0, n, step):
            lengths, prepare = begin(slice(start, min(start + step, n)))
            for indices in plan(lengths, budget, padded=padded):
                yield start, lengths, prepare, indices, prepare(indices)

    with pt.tqdm(total=n, desc=label, unit="text", disable=not verbose) as bar:
        for start, lengths, prepare, indices, batch in made() if n <= _FEW else ahead(made()):
            waiting = [(indices, batch)]
            while waiting:
                indices, batch = waiting.pop()
                if len(indices) > 1 and _cost(lengths[indices], padded) > budget:
                    # It was planned, or made ahead, before the budget was halved.
                    waiting += [(indices[part], None) for part in plan(lengths[indices], budget, padded=padded)[::-1]]
                    continue
                if batch is None:
                    batch = prepare(indices)
                # What the allocator keeps is freed behind the exception, which holds the tensors of the failed pass.
                with _products(tf32):
                    result = _tried(compute, batch, splits=len(indices) > 1)
                if result is not None:
                    yield indices + start, result
                    bar.update(len(indices))
                    continue
                batch = None
                budget = max(min(budget, _cost(lengths[indices], padded)) // 2, 1)
                logger.warning("%s: out of memory; continuing with batches of %d tokens", label, budget)
                _free()
                waiting.append((indices, None))


def _cost(lengths: np.ndarray, padded: bool) -> int:
    """Tokens of a batch, as :func:`plan` counts them."""
    return int(lengths.max()) * len(lengths) if padded else int(lengths.sum())


def _tried(compute: Callable[[Any], Any], batch: Any, *, splits: bool) -> Any:
    """The result of a batch; None if the accelerator's memory is full and the batch can be split."""
    import torch

    try:
        with torch.inference_mode():
            return compute(batch)
    except RuntimeError as error:
        if not _out_of_memory(error) or not splits:
            raise
    return None


def _products(tf32: bool) -> AbstractContextManager[None]:
    """The context that sets how CUDA multiplies float32 matrices; without CUDA, threads need not wait for each other."""
    import torch

    return precision.tf32(tf32) if torch.cuda.is_initialized() else nullcontext()


def _free() -> None:
    """Release the memory that CUDA's allocator keeps."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def batches(
    lengths: np.ndarray,
    compute: Callable[[Any], Any],
    *,
    batch_tokens: int,
    prepare: Callable[[np.ndarray], Any] | None = None,
    padded: bool = True,
    verbose: bool = False,
    label: str = "scoring",
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute a result for each of n tokenised texts; like :func:`in_chunks`, but without the tokenising.

    Args:
        lengths: Tokens of each sequence, shape [n].
        compute: See :func:`in_chunks`.
        batch_tokens: See :func:`in_chunks`.
        prepare: A function from an array of indices to the batch for ``compute``; None for the indices themselves.
        padded: See :func:`in_chunks`.
        verbose: See :func:`in_chunks`.
        label: See :func:`in_chunks`.

    Yields:
        ``(indices, result)`` for each batch; every index occurs once.
    """
    made = prepare or (lambda indices: indices)
    return in_chunks(
        len(lengths),
        lambda rows: (lengths, made),
        compute,
        batch_tokens=batch_tokens,
        padded=padded,
        chunk=max(len(lengths), 1),
        verbose=verbose,
        label=label,
    )


def places(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """The distinct texts, in the order of their first occurrence, and the index of each text among them."""
    place = {text: i for i, text in enumerate(dict.fromkeys(texts))}
    return list(place), np.fromiter((place[text] for text in texts), dtype=np.int64, count=len(texts))


class DistinctTexts:
    """The distinct queries and documents of n pairs, so that each is encoded once, and the pairs of each document.

    Attributes:
        queries: Distinct queries, in the order of their first occurrence.
        docs: Distinct documents, in the same order.
    """

    def __init__(self, queries: Sequence[str], docs: Sequence[str]):
        self.queries, self._query_at = places(queries)
        self.docs, doc_at = places(docs)
        self._by_doc = np.argsort(doc_at, kind="stable")
        self._bounds = np.searchsorted(doc_at[self._by_doc], np.arange(len(self.docs) + 1))

    def of(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The pairs of some documents: their rows among the n, and the index of each in ``queries`` and in ``indices``."""
        rows = np.concatenate([self._by_doc[self._bounds[i] : self._bounds[i + 1]] for i in indices])
        return rows, self._query_at[rows], np.repeat(np.arange(len(indices)), np.diff(self._bounds)[indices])


class Gathered:
    """Collects the results of batches in the original order of their items.

    Tensors stay on their device until the end, or until many numbers wait: a copy to the CPU waits for the device, and would
    leave it idle after each batch.

    Args:
        n: Number of items.
        dtype: The array's number format.
    """

    def __init__(self, n: int, dtype: Any = np.float32):
        self.n, self.dtype = n, dtype
        self._array: np.ndarray | None = None
        self._waiting: list[tuple[np.ndarray, torch.Tensor]] = []
        self._numbers = 0

    def add(self, indices: np.ndarray, rows: np.ndarray | torch.Tensor) -> None:
        """Add the results of some items, one row each."""
        if isinstance(rows, np.ndarray):
            self._put(indices, rows)
            return
        self._waiting.append((indices, rows))
        self._numbers += rows.numel()
        if self._numbers > _HELD or not _waits(rows):
            self._fetch()

    def array(self) -> np.ndarray:
        """All results: shape [n, ...], or [0] for none."""
        self._fetch()
        return np.empty(self.n, dtype=self.dtype) if self._array is None else self._array

    def _put(self, indices: np.ndarray, rows: np.ndarray) -> None:
        if self._array is None:
            self._array = np.empty((self.n, *rows.shape[1:]), dtype=self.dtype)
        self._array[indices] = rows

    def _fetch(self) -> None:
        import torch

        if not self._waiting:
            return
        places, tensors = zip(*self._waiting)
        self._waiting, self._numbers = [], 0
        self._put(np.concatenate(places), torch.cat([rows.float() for rows in tensors]).cpu().numpy())


def _waits(rows: torch.Tensor) -> bool:
    """Whether copying a tensor to the CPU waits for its device."""
    return rows.device.type != "cpu"


def gather(n: int, found: Iterator[tuple[np.ndarray, Any]]) -> np.ndarray:
    """Put the results of :func:`batches` back into the order of the sequences.

    Args:
        n: Number of sequences.
        found: The items of :func:`batches`; each result is a tensor with one row per sequence.

    Returns:
        float32 array of shape [n, ...]; shape [0] for no sequences.
    """
    gathered = Gathered(n)
    for indices, rows in found:
        gathered.add(indices, rows)
    return gathered.array()


def on_their_way(found: Iterator[tuple[np.ndarray, torch.Tensor]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Convert results to arrays; each is yielded while the next batch is being computed, so that copying does not wait.

    Args:
        found: The items of :func:`batches`; each result is a tensor.

    Yields:
        The same items, with float32 arrays.
    """
    before: tuple[np.ndarray, torch.Tensor, Any] | None = None
    for indices, result in found:
        started = (indices, *_begun(result.float()))
        if before is not None:
            yield before[0], _arrived(*before[1:])
        before = started
    if before is not None:
        yield before[0], _arrived(*before[1:])


def _begun(result: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """A copy of a result in the CPU's memory that CUDA is still writing, and the event that marks its end."""
    import torch

    if result.device.type != "cuda":
        return result, None
    copy = torch.empty(result.shape, dtype=result.dtype, pin_memory=True)
    copy.copy_(result, non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    return copy, event


def _arrived(copy: torch.Tensor, event: Any) -> np.ndarray:
    """The copy as an array, once it is complete."""
    if event is not None:
        event.synchronize()
    return copy.cpu().numpy()
