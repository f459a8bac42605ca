r"""Counting the words of a list in texts: exact, whole words, fast.

Words are those of :mod:`pyterrier_debias.core.text`, lower-cased. With the named tokenisers, words never become Python objects:
texts are joined into one buffer of bytes, in which everything that is not part of a word is a space, and words are found by
comparing eight bytes at a time. The result is exactly that of splitting and counting. Large numbers of texts are counted by
several threads, one per core; the environment variable ``OMP_NUM_THREADS`` sets their number.
"""

from __future__ import annotations

import inspect
import itertools
import logging
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.cache_key import function_name
from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.frames import first_rows
from pyterrier_debias.core.scripts import composed, more_characters
from pyterrier_debias.core.stage import described
from pyterrier_debias.core.text import TOKENISERS, Tokeniser, get_tokeniser
from pyterrier_debias.gender.data.words import WordList, WordListLike

logger = logging.getLogger(__name__)

#: How many characters are looked at in one go: enough to make Python's share small, few enough to stay in the cache.
_CHARACTERS = 1 << 17
#: How many such lots are worth starting threads for: a tenth of a second of work.
_WORTH_THREADS = 32
_BLANK = 32
_BREAK = "\n"


def blank(text: str) -> list[str]:
    """Split only at spaces: tabs, line breaks and no-break spaces are parts of words."""
    return [word for word in text.split(" ") if word]


#: Tokenisers by name: those of the core, and ``'blank'``, the released script of Rekabsaz and Schedl (2020) to the letter.
GENDER_TOKENISERS: dict[str, Tokeniser] = {**TOKENISERS, "blank": blank}


def get_gender_tokeniser(tokeniser: str | Tokeniser) -> Tokeniser:
    r"""A tokeniser by its name, with lower-cased words.

    - ``'regex_word'`` (default everywhere): runs of ``\w``, so that ``he's`` counts as ``he`` and ``she.`` as ``she``; this is
      what the released script expects after a cleaning that was not published. Marks belong to their letters; in scripts without
      spaces, each ideograph, kana or grapheme cluster is a word: to get longer words, pass a segmenter as the function;
    - ``'whitespace'``: split at white space; punctuation stays with its word, and ``she.`` is not found;
    - ``'blank'``: split only at spaces, exactly as the released script does on raw text;
    - ``'blingfire'``, or a function from a text to its words.

    Args:
        tokeniser: A name or a function.

    Returns:
        A function from a text to its lower-cased words, in Unicode's normal form C without invisible characters (such as soft
        hyphens), like the words of a list. That of a user raises ``InputError`` if it returns anything else.

    Raises:
        InputError: For an unknown name.
    """
    if not callable(tokeniser):
        check_choice("gender words", "tokeniser", tokeniser, GENDER_TOKENISERS, "a function")
    split = get_tokeniser(tokeniser) if callable(tokeniser) else GENDER_TOKENISERS[tokeniser]
    # Some letters become several when lower-cased, some of them no letters: the text first, as regex_word of the core does it.
    return lambda text: [composed(word.lower()) for word in split(composed(text.lower()))]


@dataclass(frozen=True, eq=False)
class WordCounts:
    """How often each word of a list occurs in each of n texts, without zero counts (a sparse table).

    Attributes:
        n: How many texts there are.
        wordlist: The list.
        rows: The text of each entry, a number from 0, ascending; shape [entries].
        words: The word of each entry, an index into ``wordlist.words``, ascending within a text; shape [entries].
        counts: How often the word occurs in the text, at least 1; shape [entries].
    """

    n: int
    wordlist: WordList
    rows: np.ndarray
    words: np.ndarray
    counts: np.ndarray

    def total(self, weigh: Callable[[np.ndarray], np.ndarray] | None = None) -> np.ndarray:
        """The sum over the words of each group.

        Args:
            weigh: A function applied to each word's count, such as ``np.log1p``; None for the count itself.

        Returns:
            Shape [n, groups]: whole numbers (int64) without ``weigh``, otherwise float64.
        """
        groups = len(self.wordlist.names)
        cell = self.rows * groups + np.array(self.wordlist.owners, dtype=np.int64)[self.words]
        values = self.counts if weigh is None else weigh(self.counts.astype(np.float64))
        table = np.bincount(cell, values, self.n * groups).reshape(self.n, groups)
        return table.astype(np.int64) if weigh is None else table

    def found(self) -> list[dict[str, int]]:
        """For each text, the listed words that occur in it and how often, in the order of the list."""
        found: list[dict[str, int]] = [{} for _ in range(self.n)]
        words = self.wordlist.words
        for row, word, count in zip(self.rows.tolist(), self.words.tolist(), self.counts.tolist()):
            found[row][words[word]] = count
        return found

    def take(self, rows: np.ndarray) -> WordCounts:
        """The counts of some of the texts, which may be repeated.

        Args:
            rows: The numbers of the texts, shape [m].

        Returns:
            The counts of m texts.
        """
        starts = np.searchsorted(self.rows, np.arange(self.n + 1))
        lengths = np.diff(starts)[rows]
        entries = np.repeat(starts[rows] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
        own = np.repeat(np.arange(len(rows)), lengths)
        return WordCounts(len(rows), self.wordlist, own, self.words[entries], self.counts[entries])

    @classmethod
    def joined(cls, parts: Sequence[WordCounts]) -> WordCounts:
        """Concatenate the counts of several batches of texts.

        Args:
            parts: At least one part, all with the same list.
        """
        shift = np.concatenate([[0], np.cumsum([part.n for part in parts])])
        rows = np.concatenate([part.rows + start for part, start in zip(parts, shift)])
        words, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("words", "counts"))
        return cls(int(shift[-1]), parts[0].wordlist, rows, words, counts)


def tokeniser_name(tokeniser: str | Tokeniser) -> str:
    """The name of a tokeniser, as conventions and messages give it, different for different functions.

    Example:
        >>> tokeniser_name("blank"), tokeniser_name(str.split)
        ('blank', 'str.split')
    """
    if isinstance(tokeniser, str):
        return tokeniser
    plain = hasattr(tokeniser, "__qualname__") and not inspect.ismethod(tokeniser)
    return function_name(tokeniser) if plain else described(tokeniser)


def count_words(
    texts: Sequence[str] | pd.Series, wordlist: WordListLike = "debias", tokeniser: str | Tokeniser = "regex_word"
) -> np.ndarray:
    """How many words of each group occur in each text.

    Args:
        texts: n texts.
        wordlist: The words of each group; see :meth:`WordList.of`.
        tokeniser: How texts are split into words; see :func:`get_gender_tokeniser`.

    Returns:
        Whole numbers, shape [n, groups], with the groups in the list's order.

    Raises:
        InputError: For a text that is not a string, or an unknown tokeniser or list.

    Example:
        >>> count_words(["She gave him her word; he's not sure.", "theory"]).tolist()
        [[2, 2], [0, 0]]
    """
    return word_counts(texts, wordlist, tokeniser).total()


def word_counts(
    texts: Sequence[str] | pd.Series, wordlist: WordListLike = "debias", tokeniser: str | Tokeniser = "regex_word"
) -> WordCounts:
    """How often each word of a list occurs in each text; the arguments are those of :func:`count_words`.

    Example:
        >>> word_counts(["He said he would ask her"]).found()
        [{'he': 2, 'her': 1}]
    """
    wordlist = WordList.of(wordlist)
    texts = texts.tolist() if isinstance(texts, pd.Series) else list(texts)
    bad = next((i for i, text in enumerate(texts) if not isinstance(text, str)), None)
    if bad is not None:
        raise InputError(
            f"count_words: text {bad} is {texts[bad]!r}, not a string; load texts for every document, or leave out documents "
            f"without one"
        )
    split = get_gender_tokeniser(tokeniser)
    _warn_of_unfindable(wordlist, tokeniser, split)
    if tokeniser in _SCANNED:
        return _Scanner(wordlist, tokeniser).counts(texts)
    numbers = {word: number for number, word in enumerate(wordlist.words)}
    rows, words, counts = [], [], []
    for row, text in enumerate(texts):
        found = Counter(numbers[word] for word in split(text) if word in numbers)
        for word in sorted(found):
            rows.append(row)
            words.append(word)
            counts.append(found[word])
    return WordCounts(len(texts), wordlist, *(np.array(values, dtype=np.int64) for values in (rows, words, counts)))


def unfindable(wordlist: WordList, tokeniser: str | Tokeniser) -> list[str]:
    """The words of a list that a tokeniser never returns, because it splits them or drops some of their characters.

    Args:
        wordlist: The list.
        tokeniser: See :func:`get_gender_tokeniser`.

    Returns:
        The words, in the list's order.

    Example:
        >>> unfindable(WordList({"m": ["he", "父親"], "f": ["she", "母親"]}, "parents"), "regex_word")
        ['父親', '母親']
    """
    split = get_gender_tokeniser(tokeniser)
    return [word for word in wordlist.words if split(word) != [word]]


#: Word lists and tokenisers that were looked at; functions themselves, since another may get the address of one that is gone.
_warned: set[tuple[str, Any]] = set()


def _warn_of_unfindable(wordlist: WordList, tokeniser: str | Tokeniser, split: Tokeniser) -> None:
    key = (wordlist.fingerprint, tokeniser) if isinstance(tokeniser, Hashable) else None
    if key in _warned:
        return
    lost = unfindable(wordlist, split)
    if key is not None:
        _warned.add(key)
    if lost:
        logger.warning(
            "word list %s: %d of its %d words are never found, because tokeniser %s never returns them, e.g. %s",
            wordlist,
            len(lost),
            wordlist.size,
            tokeniser_name(tokeniser),
            ", ".join(map(repr, lost[:5])),
        )


# ------------------------------------------------------------------------------------------------------- the fast way


@cache
def _letters(tokeniser: str) -> np.ndarray:
    """For each code point, whether it is part of a word."""
    points = range(0x110000)
    if tokeniser == "regex_word":
        table = np.fromiter((chr(i).isalnum() for i in points), dtype=bool, count=len(points))
        table[ord("_")] = True
    elif tokeniser == "whitespace":
        table = ~np.fromiter((chr(i).isspace() for i in points), dtype=bool, count=len(points))
    else:
        table = np.ones(len(points), dtype=bool)
        table[_BLANK] = False
    return table


@cache
def _more() -> np.ndarray:
    """For each code point, whether a text that contains it may have words that are not maximal runs of letters."""
    table = np.zeros(0x110000, dtype=bool)
    table[0x10000:] = True  # what is a letter there changes with the version of Unicode, which `re` and `regex` do not share
    table[np.frombuffer(more_characters().encode("utf-32-le"), dtype="<u4")] = True
    return table


@cache
def _ascii(tokeniser: str) -> bytes:
    """Translation table for ASCII: capitals to lower case, and everything that is not part of a word to spaces."""
    letters = _letters(tokeniser)
    table = bytearray(ord(chr(i).lower()) if i < 128 and letters[i] else _BLANK for i in range(256))
    table[ord(_BREAK)] = _BLANK
    return bytes(table)


#: Tokenisers whose words are maximal runs of characters of one class. A text for which that is not so is split on its own: one
#: that holds the character that parts texts as a part of a word (``'blank'`` with a line break), or marks, or a script without
#: blanks (``'regex_word'``).
_SCANNED = frozenset({"regex_word", "whitespace", "blank"})


def threads() -> int:
    """How many threads to use: one per processor core, or as many as ``OMP_NUM_THREADS`` allows numerical libraries."""
    allowed = os.environ.get("OMP_NUM_THREADS", "")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(allowed) if allowed.isdigit() else cores))


class _Scanner:
    """Finds the words of a list in buffers of bytes."""

    def __init__(self, wordlist: WordList, tokeniser: str):
        self.wordlist = wordlist
        self.tokeniser = tokeniser
        self.split = get_gender_tokeniser(tokeniser)
        encoded = [word.encode("utf-8", "surrogatepass") for word in wordlist.words]
        self.longest = max(map(len, encoded))
        self.eights = -(-self.longest // 8)
        # Words as numbers of eight bytes each, sorted by their marks.
        padded = b"".join(word.ljust(8 * self.eights, b"\0") for word in encoded)
        keys = np.frombuffer(padded, dtype="<u8").reshape(len(encoded), self.eights)
        lengths = np.array([len(word) for word in encoded])
        marks = _marks(keys[:, 0], lengths)
        self.order = np.argsort(marks, kind="stable")
        self.marks, self.keys, self.lengths = marks[self.order], keys[self.order], lengths[self.order]
        # Whether any word has a mark that begins so: most words of a text are dismissed by one look.
        self.bits = max(12, 4 + int(np.ceil(np.log2(len(encoded)))))
        self.known = np.zeros(1 << self.bits, dtype=bool)
        self.known[self.marks >> np.uint64(64 - self.bits)] = True
        # How the bytes behind a word of this length are blanked out, in each of its eights.
        inside = np.clip(np.arange(self.longest + 1)[:, None] - 8 * np.arange(self.eights), 0, 8)
        self.masks = np.array([[(1 << 8 * int(n)) - 1 for n in row] for row in inside], dtype="<u8")

    def counts(self, texts: list[str]) -> WordCounts:
        """Count the words of all texts."""
        sizes = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)
        bounds = [0]
        while bounds[-1] < len(texts):
            before = sizes[bounds[-1] - 1] if bounds[-1] else 0
            bounds.append(max(bounds[-1] + 1, int(np.searchsorted(sizes, before + _CHARACTERS, side="right"))))
        batches = [texts[start:end] for start, end in itertools.pairwise(bounds)]
        if not batches:
            empty = np.empty(0, dtype=np.int64)
            return WordCounts(0, self.wordlist, empty, empty, empty)
        if len(batches) < _WORTH_THREADS or threads() == 1:
            return WordCounts.joined([self._batch(batch) for batch in batches])
        # Most of the work is numpy's and done outside Python's lock.
        with ThreadPoolExecutor(threads()) as pool:
            return WordCounts.joined(list(pool.map(self._batch, batches)))

    def _batch(self, texts: list[str]) -> WordCounts:
        alone = [i for i, text in enumerate(texts) if self.tokeniser == "blank" and _BREAK in text]
        plain = [text.isascii() for text in texts]
        found = []
        for wanted, prepare in ((True, self._plain), (False, self._other)):
            rows = np.array([i for i in range(len(texts)) if plain[i] == wanted and i not in alone], dtype=np.int64)
            if len(rows):
                buffer, ends, left_out = prepare([texts[i] for i in rows.tolist()])
                owner, word = self._scan(buffer, ends)
                found.append((rows[owner], word))
                alone += rows[left_out].tolist()
        for i in alone:
            numbers = {word: number for number, word in enumerate(self.wordlist.words)}
            words = [numbers[word] for word in self.split(texts[i]) if word in numbers]
            found.append((np.full(len(words), i), np.array(words, dtype=np.int64)))
        size = len(self.wordlist.words)
        cells = np.concatenate([owner * size + word for owner, word in found])
        cells, counts = np.unique(cells, return_counts=True)
        return WordCounts(len(texts), self.wordlist, cells // size, cells % size, counts)

    def _plain(self, texts: list[str]) -> tuple[bytes, np.ndarray, np.ndarray]:
        """ASCII texts as one buffer, where each text ends, and the numbers of the texts left out (none)."""
        ends = np.cumsum(np.fromiter(map(len, texts), dtype=np.int64, count=len(texts)) + 1)
        return _BREAK.join(texts).encode("ascii").translate(_ascii(self.tokeniser)), ends, np.empty(0, dtype=int)

    def _other(self, texts: list[str]) -> tuple[bytes, np.ndarray, np.ndarray]:
        """As :meth:`_plain` for any other text, by code points; texts whose words are not runs of one class are left out."""
        lowered = [composed(text.lower()) for text in texts]
        points = np.frombuffer(_BREAK.join(lowered).encode("utf-32-le", "surrogatepass"), dtype="<u4").copy()
        lengths = np.fromiter(map(len, lowered), dtype=np.int64, count=len(lowered)) + 1
        breaks = np.cumsum(lengths)[:-1] - 1
        left_out = np.empty(0, dtype=int)
        if self.tokeniser == "regex_word" and (special := _more()[points]).any():
            owner = np.repeat(np.arange(len(texts)), lengths)[: len(points)]
            left_out = np.unique(owner[special])
            points[np.isin(owner, left_out)] = _BLANK
        points[~_letters(self.tokeniser)[points]] = _BLANK
        points[breaks] = _BLANK
        # How many bytes of UTF-8 each character takes, so that the ends of texts are known without decoding.
        width = 1 + (points >= 0x80) + (points >= 0x800) + (points >= 0x10000)
        at = np.cumsum(width)
        ends = np.append(at[breaks], at[-1] + 1) if len(at) else np.cumsum(lengths)
        return points.tobytes().decode("utf-32-le", "surrogatepass").encode("utf-8", "surrogatepass"), ends, left_out

    def _scan(self, buffer: bytes, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every occurrence of a word, the numbers of its text and of the word."""
        # From the start of any word as many bytes can be read as the longest has.
        text = np.frombuffer(b"".join((b" ", buffer, b" " * (8 * self.eights + 1))), dtype=np.uint8)
        blank = text[: len(buffer) + 2] == _BLANK
        edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
        lengths = edges[1::2] - edges[::2]
        short = np.flatnonzero(lengths <= self.longest)
        starts, lengths = edges[::2][short], lengths[short]
        eights = np.ndarray(len(text) - 7, dtype="<u8", buffer=text, strides=(1,))
        marks = _marks(eights[starts] & self.masks[lengths, 0], lengths)
        likely = np.flatnonzero(self.known[marks >> np.uint64(64 - self.bits)])
        starts, lengths, marks = starts[likely], lengths[likely], marks[likely]
        low, high = (np.searchsorted(self.marks, marks, side=side) for side in ("left", "right"))
        places, entries = [], []
        # Words of one mark stand side by side: those that agree in their first eight bytes and their length.
        for step in range(int((high - low).max(initial=0))):
            place = np.flatnonzero(low + step < high)
            entry = low[place] + step
            same = lengths[place] == self.lengths[entry]
            for column in range(self.eights):
                value = eights[starts[place] + 8 * column] & self.masks[lengths[place], column]
                same &= value == self.keys[entry, column]
            places.append(place[same])
            entries.append(entry[same])
        if not places:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        place, entry = np.concatenate(places), np.concatenate(entries)
        return np.searchsorted(ends, starts[place] - 1, side="right"), self.order[entry]


def _marks(first: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A hash of a word's first bytes and length; words with the same hash are compared in full."""
    return (first ^ lengths.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)


# ------------------------------------------------------------------------------------------------- each document once


def document_numbers(docnos: Iterable[str], texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of a result frame are the same document, so that each is read once however many queries rank it.

    Args:
        docnos: n docnos.
        texts: n texts; two texts with the same docno are two documents.

    Returns:
        The first row of each document, shape [documents], and the number of each row's document, shape [n].

    Example:
        >>> first, own = document_numbers(["d1", "d2", "d1"], ["a", "b", "a"])
        >>> first.tolist(), own.tolist()
        ([0, 1], [0, 1, 0])
    """
    names, each = np.array(list(docnos), dtype=object), np.array(list(texts), dtype=object)
    own, distinct = pd.factorize(names)
    first = first_rows(own, len(distinct))
    if not (each[first][own] == each).all():  # several texts under one name
        own = pd.MultiIndex.from_arrays([names, each]).factorize()[0]
        first = np.unique(own, return_index=True)[1]
    return first, own.astype(np.int64)
