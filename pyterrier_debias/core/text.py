"""Words and keyed random draws.

Tokenisers are named functions from a text to its words. Random draws are keyed: a draw depends on the seed and on identifiers,
never on the order of rows, the batch or the machine, so that a frame that is shuffled, split or sharded gives the same result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, kind_of
from pyterrier_debias.core.scripts import composed, word_pattern

Tokeniser = Callable[[str], list[str]]


def whitespace(text: str) -> list[str]:
    """Split at white space: punctuation stays with its word, and joining by spaces keeps the wording."""
    return text.split()


def regex_word(text: str) -> list[str]:
    """Lower-cased runs of letters, digits and underscores with their marks: ``he's`` gives ``he``, ``s``.

    Words are in Unicode's normal form C. Scripts without blanks give a word for each ideograph, kana or grapheme cluster; see
    :mod:`pyterrier_debias.core.scripts`.
    """
    lowered = composed(text.lower())
    return word_pattern(lowered).findall(lowered)


def blingfire(text: str) -> list[str]:
    """BlingFire's words, as in the released code of Hofstätter et al.: ``Don't`` gives ``Do``, ``n't``."""
    try:
        from blingfire import text_to_words
    except ImportError as error:  # pragma: no cover - depends on the installation
        raise InputError(
            "tokeniser 'blingfire' needs the package blingfire: pip install 'pyterrier-debias[fast]'"
        ) from error
    return text_to_words(text).split()


TOKENISERS: dict[str, Tokeniser] = {"whitespace": whitespace, "regex_word": regex_word, "blingfire": blingfire}


@dataclass(frozen=True)
class _Checked:
    """A user's tokeniser, which has to return words."""

    tokeniser: Callable[[str], Any]

    def __call__(self, text: str) -> list[str]:
        words = self.tokeniser(text)
        if isinstance(words, str) or not isinstance(words, Iterable):
            found = kind_of(words)
        else:
            words = words if isinstance(words, list) else list(words)
            if all(isinstance(word, str) for word in words):
                return words
            found = f"a list that contains {kind_of(next(word for word in words if not isinstance(word, str)))}"
        name = getattr(self.tokeniser, "__name__", type(self.tokeniser).__name__)
        raise InputError(f"the tokeniser {name} returned {found} for the text {text[:40]!r}; return a list of words")


def get_tokeniser(tokeniser: str | Tokeniser) -> Tokeniser:
    """Look a tokeniser up by name; a function is returned with a check of what it returns.

    Args:
        tokeniser: ``'whitespace'``, ``'regex_word'``, ``'blingfire'`` or a function from a text to a list of words.

    Returns:
        A function from a text to its words. That of a user raises ``InputError`` if it returns anything else.

    Raises:
        InputError: If the name is unknown.
    """
    if callable(tokeniser):
        return _Checked(tokeniser)
    check_choice("get_tokeniser", "tokeniser", tokeniser, TOKENISERS, "a function")
    return TOKENISERS[tokeniser]


def as_name(value: Any) -> str:
    """An identifier as text, outside frames: a whole float becomes an integer, because 7 and 7.0 are the same."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def keyed_hash(seed: int, *ids: str) -> int:
    """A 64-bit number that depends only on the seed and the identifiers.

    Args:
        seed: Any integer.
        ids: Identifiers; their boundaries matter, so ``('ab', 'c')`` and ``('a', 'bc')`` differ.

    Returns:
        An integer in [0, 2**64), uniform over identifiers, equal on every platform.
    """
    return int.from_bytes(_keyed(seed, ids).digest(), "big")


def mixed(hashes: np.ndarray, key: int) -> np.ndarray:
    """New numbers from hashed names and a key: each key gives a different, pseudorandom order of the names.

    This is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014). It
    is one-to-one for each key.

    Args:
        hashes: Shape [n], uint64: :func:`keyed_hash` of the names.
        key: A hash of :func:`keyed_hash`.

    Returns:
        Shape [n], uint64.

    Example:
        >>> hashes = np.arange(3, dtype=np.uint64)
        >>> mixed(hashes, 1).argsort().tolist(), mixed(hashes, 2).argsort().tolist()
        ([1, 2, 0], [2, 1, 0])
    """
    x = hashes ^ np.uint64(key)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keyed_mark(seed: int, *ids: str) -> str:
    """The first half of :func:`keyed_hash`, for use in names.

    Args:
        seed: Any integer.
        ids: Identifiers, as for :func:`keyed_hash`.

    Returns:
        Eight hexadecimal digits.

    Example:
        >>> keyed_mark(0, "tea") == f"{keyed_hash(0, 'tea') >> 32:08x}"
        True
    """
    return _keyed(seed, ids).hexdigest()[:8]


def _keyed(seed: int, ids: Sequence[str]) -> blake2b:
    return blake2b(str(seed).encode() + _framed(ids), digest_size=8)


def _framed(ids: Sequence[str]) -> bytes:
    """Identifiers with their lengths, so that their boundaries count."""
    encoded = [part.encode("utf-8", "surrogatepass") for part in ids]
    return b"".join([b"\0%d\0%b" % (len(part), part) for part in encoded])


def keyed_integer(n: int, seed: int, *ids: str) -> int:
    """A draw from {0, ..., n-1}, keyed by seed and identifiers.

    Args:
        n: The number of possible values, at least 1.
        seed: Any integer.
        ids: Identifiers of the object that the draw is for.

    Returns:
        The integer. Its distribution is uniform up to n / 2**64.
    """
    return (keyed_hash(seed, *ids) * n) >> 64


def keyed_draws(seed: int, before: Sequence[str], after: Sequence[str]) -> Callable[..., int]:
    """:func:`keyed_integer` for many draws that share their seed and most identifiers.

    Args:
        seed: Any integer.
        before: The first identifiers.
        after: The last identifiers.

    Returns:
        A function ``draw(n, *ids)``.

    Example:
        >>> keyed_draws(7, ["rotation"], ["draw", "1"])(100, "d1") == keyed_integer(100, 7, "rotation", "d1", "draw", "1")
        True
    """
    head, tail = str(seed).encode() + _framed(before), _framed(after)

    def draw(n: int, *ids: str) -> int:
        return (int.from_bytes(blake2b(head + _framed(ids) + tail, digest_size=8).digest(), "big") * n) >> 64

    return draw


def keyed_generator(seed: int, *ids: str) -> np.random.Generator:
    """A random generator for the given identifiers.

    Args:
        seed: Any integer.
        ids: Identifiers.

    Returns:
        A numpy generator (PCG64) that is seeded with :func:`keyed_hash`.
    """
    return np.random.Generator(np.random.PCG64(keyed_hash(seed, *ids)))


def content_mark(content: frozenset[str] | pd.DataFrame) -> str:
    """A short mark of a long option in a name: the number of entries, and a hash that does not depend on their order.

    Args:
        content: Names, or a frame of names, texts and numbers.

    Returns:
        The mark, such as ``97:3fa2c81d``.

    Example:
        >>> content_mark(frozenset("12")), content_mark(frozenset("13"))[:2]
        ('2:ce6e4839', '2:')
    """
    if isinstance(content, pd.DataFrame):
        # Some rows at a time: as objects they take several times their memory.
        parts = [content.iloc[start : start + _ROWS] for start in range(0, max(len(content), 1), _ROWS)]
        number = keyed_hash(0, np.sort(np.concatenate([_row_hashes(part) for part in parts])).tobytes().hex())
    else:
        number = keyed_hash(0, *sorted(content))
    return f"{len(content)}:{number >> 32:08x}"


#: How many rows are hashed at a time.
_ROWS = 100_000


def _row_hashes(frame: pd.DataFrame) -> np.ndarray:
    """A hash of the cells of each row."""

    def plain(column: pd.Series) -> pd.Series:
        if pd.api.types.is_numeric_dtype(column):
            return column.astype(np.float64)
        # What cannot be hashed has a mark too: a name is no place to refuse it.
        return pd.Series([value if _is_text(value) else repr(value) for value in column], column.index, dtype=object)

    same = pd.DataFrame({name: plain(column) for name, column in frame.items()}, index=frame.index)
    return pd.util.hash_pandas_object(same, index=False).to_numpy()


def _is_text(value: Any) -> bool:
    """Whether a cell is a text or is missing."""
    return isinstance(value, str) or (pd.api.types.is_scalar(value) and bool(pd.isna(value)))


def in_one_order(printed: str) -> str:
    """The printed form of an object with the members of each set sorted, because their order differs between processes.

    Args:
        printed: The result of ``repr``. Sets whose members contain braces or colons are not changed.

    Returns:
        The text.

    Example:
        >>> in_one_order("Words(frozenset({'tea', 'cup'}), {'b': 1, 'a': 2})")
        "Words(frozenset({'cup', 'tea'}), {'b': 1, 'a': 2})"
    """
    return re.sub(r"(?<=\{)[^{}:]+(?=\})", lambda found: ", ".join(sorted(found[0].split(", "))), printed)


def digest(parts: Iterable[str]) -> str:
    """A hash of texts in their order, the same in every process.

    Args:
        parts: The texts.

    Returns:
        32 hexadecimal digits.
    """
    return blake2b("\x1f".join(parts).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def text_key(text: str) -> bytes:
    """A 16-byte hash of a text, the same in every process.

    Args:
        text: The text.

    Returns:
        16 bytes.

    Example:
        >>> text_key("tea").hex()[:8]
        '833ede41'
    """
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def text_keys(texts: Iterable[str]) -> np.ndarray:
    """The hashes of :func:`text_key` as numbers.

    Args:
        texts: n texts.

    Returns:
        uint64, shape [n, 2].

    Example:
        >>> text_keys(["tea", "tea"]).tolist()[0] == text_keys(["tea"]).tolist()[0]
        True
    """
    return np.frombuffer(b"".join(map(text_key, texts)), dtype=np.uint64).reshape(-1, 2)


def number_keys(values: np.ndarray, name: str = "") -> np.ndarray:
    """Hashes of numbers, the same in every process; equal numbers of different kinds, 1 and 1.0, have different ones.

    Args:
        values: Integers or floats of at most 8 bytes, shape [n].
        name: What the numbers are; hashes of the same number under different names differ.

    Returns:
        uint64, shape [n, 2].

    Example:
        >>> keys = number_keys(np.array([0.5, 2.0, 0.5]))
        >>> keys[0].tolist() == keys[2].tolist(), keys[0].tolist() == keys[1].tolist()
        (True, False)
    """
    kind = "f" if values.dtype.kind == "f" else "i"
    numbers = values.astype(np.float64 if kind == "f" else np.int64)
    if kind == "f":
        numbers[np.isnan(numbers)] = np.nan  # of which there are many
    mixed = numbers.view(np.uint64)[:, None] + text_keys([f"{name}\1{kind}"])
    # The mixing function of splitmix64, which gives each of the 2^64 numbers another one.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed ^ (mixed >> np.uint64(31))
