"""The scoring engine: texts to token ids once, ids to batches of like length, batches to results.

Every ranker scores through the three steps of this module::

    ids = token_ids(tokenizer, texts)                                    # each distinct text once, uncut
    sequences = Sequences(Template.pair(tokenizer), window, queries, docs)   # joined and cut as ids, not as strings
    for indices, result in batches(sequences.lengths, compute, batch_tokens=4096):
        ...                                                              # longest first; order is yours to restore

Nothing here holds state between calls, so that any number of threads may score at the same time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyterrier as pt

from pyterrier_debias.core.errors import check_choice
from pyterrier_debias.core.telling import warn_of

logger = logging.getLogger(__name__)

#: A fast tokenizer is reconfigured by its calls, which is not safe from two threads.
TOKENIZER_LOCK = threading.Lock()

#: How many texts are handed to the tokenizer at a time.
_TOKENISE_CHUNK = 2048

#: Which text of a pair is cut.
TRUNCATIONS = ("longest_first", "only_second")


def token_ids(tokenizer: Any, texts: Sequence[str], *, verbose: bool = False) -> list[np.ndarray]:
    """Token ids of texts, without special tokens and uncut; a text that occurs often is tokenised once.

    Args:
        tokenizer: A Hugging Face tokenizer.
        texts: n texts.
        verbose: Whether to show progress.

    Returns:
        n int32 arrays; equal texts share one array.
    """
    distinct = list(dict.fromkeys(texts))
    ids: dict[str, np.ndarray] = {}
    with pt.tqdm(total=len(distinct), desc="tokenising", unit="text", disable=not verbose) as bar:
        for start in range(0, len(distinct), _TOKENISE_CHUNK):
            chunk = distinct[start : start + _TOKENISE_CHUNK]
            with TOKENIZER_LOCK:
                encoded = tokenizer(
                    chunk,
                    add_special_tokens=False,
                    truncation=False,
                    padding=False,
                    return_attention_mask=False,
                    return_token_type_ids=False,
                    verbose=False,
                )["input_ids"]
            ids.update(zip(chunk, (np.asarray(one, dtype=np.int32) for one in encoded)))
            bar.update(len(chunk))
    return [ids[text] for text in texts]


@dataclass(frozen=True)
class Template:
    """The special tokens with which a tokenizer frames one text, or joins two.

    A sequence is ``prefix + first + middle + second + suffix``; for a single text ``middle`` is empty and there is no second
    part. It is read off the tokenizer's own encoding of a probe, so that it holds for every architecture.

    Attributes:
        prefix: Ids before the first text.
        middle: Ids between the texts.
        suffix: Ids at the end.
        types: Token type ids of the five parts (tuples for the special tokens, one integer for each text), or None if the
            model takes none.
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
        """How many special tokens a sequence holds."""
        return len(self.prefix) + len(self.middle) + len(self.suffix)


def cut_lengths(
    first: np.ndarray, second: np.ndarray, room: int, truncation: str = "longest_first"
) -> tuple[np.ndarray, np.ndarray]:
    """How many tokens of each text of a pair stay when the two have to fit into a window.

    Args:
        first: Lengths of the first texts, shape [n].
        second: Lengths of the second texts, shape [n].
        room: Tokens that the window has left beside the special ones.
        truncation: ``'longest_first'`` as Hugging Face's fast tokenizers do it: the longer text is cut down to the length of
            the shorter one, then both to half of the room (the odd token goes to the longer one, and to the second where both
            are equal). ``'only_second'`` cuts the second text only, and the first only where it fills the window alone (where
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

    Sequences are joined when they are asked for, so that n pairs of q queries and d documents cost the memory of q + d.

    Args:
        template: The special tokens around and between.
        window: The longest sequence allowed, special tokens included.
        first: Ids of the first (or only) texts, without special tokens, from :func:`token_ids`.
        second: Ids of the second texts; None for single texts.
        truncation: ``'longest_first'`` or ``'only_second'``, see :func:`cut_lengths`.
        side: Which end stays when a text is cut: ``'right'`` cuts its end, ``'left'`` its start.

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
        """Token type ids of one sequence; zeros where the model takes none."""
        if self.template.types is None:
            return np.zeros(self.lengths[index], dtype=np.int64)
        prefix, first, middle, second, suffix = self.template.types
        counts = [1] * len(prefix) + [self._first_length[index]] + [1] * len(middle)
        counts += [self._second_length[index]] + [1] * len(suffix)
        return np.repeat(np.array([*prefix, first, *middle, second, *suffix], dtype=np.int64), counts)

    def parts(self, index: int) -> np.ndarray:
        """Which text each token of one sequence is of: 1 the first, 2 the second, 0 for special tokens."""
        counts = [len(self.template.prefix), self._first_length[index], len(self.template.middle), self._second_length[index]]
        return np.repeat(np.array([0, 1, 0, 2, 0], dtype=np.int64), [*counts, len(self.template.suffix)])

    def padded(self, indices: np.ndarray | Sequence[int], tokenizer: Any) -> dict[str, Any]:
        """One batch as the tensors that a Hugging Face model takes, padded to its longest sequence.

        Args:
            indices: Which sequences.
            tokenizer: Tells the padding token and side, and which tensors the model takes.

        Returns:
            ``input_ids``, ``attention_mask`` and, where the model takes them, ``token_type_ids``: int64 tensors of shape
            [len(indices), longest], on the CPU.
        """
        import torch

        longest = int(self.lengths[indices].max())
        ids = np.full((len(indices), longest), tokenizer.pad_token_id or 0, dtype=np.int64)
        mask = np.zeros_like(ids)
        types = None if self.template.types is None else np.full_like(ids, tokenizer.pad_token_type_id)
        for row, index in enumerate(indices):
            length = self.lengths[index]
            place = slice(longest - length, None) if tokenizer.padding_side == "left" else slice(length)
            ids[row, place] = self.ids(index)
            mask[row, place] = 1
            if types is not None:
                types[row, place] = self.types(index)
        tensors = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
        if types is not None:
            tensors["token_type_ids"] = torch.from_numpy(types)
        return tensors

    def packed(self, indices: np.ndarray | Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One batch without padding.

        Args:
            indices: Which sequences.

        Returns:
            Token ids and token type ids of all sequences one after the other, shape [sum of lengths], and the lengths.
        """
        return (
            np.concatenate([self.ids(index) for index in indices]),
            np.concatenate([self.types(index) for index in indices]),
            self.lengths[indices],
        )

    def report_cuts(self, stage: str, window: int) -> None:
        """Log once how much did not fit into the window; silent where everything did.

        Args:
            stage: The calling stage, named in the message.
            window: The window in tokens, for the message.
        """
        report_cuts(stage, window, self.cut, self.lengths)


def report_cuts(stage: str, window: int, cut: np.ndarray, lengths: np.ndarray) -> None:
    """Log how much did not fit into the window; silent where everything did.

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
    """Sort sequences by length and cut them into batches of at most so many tokens.

    Args:
        lengths: Tokens of each sequence, shape [n].
        batch_tokens: Budget of one batch. A sequence that is longer than the budget is a batch of its own.
        padded: Whether padding counts: a batch costs its longest sequence times its size, else the sum of its lengths.

    Returns:
        Arrays of indices, longest sequences first; together they hold every index once.
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


def batches(
    lengths: np.ndarray,
    compute: Callable[[np.ndarray], Any],
    *,
    batch_tokens: int,
    padded: bool = True,
    verbose: bool = False,
    label: str = "scoring",
) -> Iterator[tuple[np.ndarray, Any]]:
    """Compute something for every sequence, in batches of like length, without gradients.

    Where the accelerator runs out of memory the budget is halved and the batch is tried again in smaller pieces.

    Args:
        lengths: Tokens of each sequence, shape [n].
        compute: Takes an array of indices, returns the result for them (any object). Runs in ``torch.inference_mode``.
        batch_tokens: Budget of one batch in tokens.
        padded: Whether padding counts towards the budget, see :func:`plan`.
        verbose: Whether to show progress.
        label: What the progress bar says.

    Yields:
        ``(indices, result)`` for each batch; every index occurs once.

    Raises:
        torch.OutOfMemoryError: If even one sequence alone does not fit.
    """
    import torch

    waiting = plan(lengths, batch_tokens, padded=padded)[::-1]
    with pt.tqdm(total=len(lengths), desc=label, unit="text", disable=not verbose) as bar:
        while waiting:
            indices = waiting.pop()
            try:
                with torch.inference_mode():
                    result = compute(indices)
            except RuntimeError as error:
                if not _out_of_memory(error) or len(indices) == 1:
                    raise
                batch_tokens = max(batch_tokens // 2, 1)
                logger.warning("%s: out of memory, going on with batches of %d tokens", label, batch_tokens)
                left = np.concatenate([indices, *waiting[::-1]])
                waiting = [left[batch] for batch in plan(lengths[left], batch_tokens, padded=padded)[::-1]]
                result = None
            if result is None:
                if torch.cuda.is_available():
                    torch.cuda.empty_cache()
                continue
            yield indices, result
            bar.update(len(indices))


def gather(n: int, found: Iterator[tuple[np.ndarray, Any]]) -> np.ndarray:
    """Put the results of :func:`batches` back into the order of the sequences.

    Args:
        n: How many sequences.
        found: What :func:`batches` yields; each result a tensor with one row per sequence.

    Returns:
        float32 array of shape [n, ...]; shape [0] for no sequences.
    """
    out = np.empty(0, dtype=np.float32)
    for indices, result in found:
        rows = result.float().cpu().numpy()
        if len(out) != n:
            out = np.empty((n, *rows.shape[1:]), dtype=np.float32)
        out[indices] = rows
    return out
