"""Tokenizers without special tokens for models with static embeddings: words of a GloVe file, or an encoder's pieces."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError

PAD, UNKNOWN = "[PAD]", "[UNK]"


def read_glove(
    path: str | Path, *, words: Collection[str] | None = None, limit: int | None = None
) -> tuple[list[str], np.ndarray]:
    """Read word vectors from a text file in GloVe's format: a word and its numbers on each line, separated by spaces.

    A first line of two integers (word2vec's format) is skipped. If a word occurs twice, its first vector counts.

    Args:
        path: The file, e.g. ``glove.42B.300d.txt``, UTF-8.
        words: Keep only these words (e.g. those of a collection); None for all.
        limit: Largest number of words to read, which are the most frequent ones in GloVe's own files; None for all.

    Returns:
        n words, and their vectors, float32, shape [n, d].

    Raises:
        InputError: If the file cannot be read, a line has another format (its number is in the message), or no word is left.
    """
    path, wanted = Path(path).expanduser(), None if words is None else set(words)
    place: dict[str, None] = {}
    numbers, d = bytearray(), 0
    try:
        with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
            for number, line in enumerate(file, start=1):
                fields = line.rstrip("\r\n ").split(" ")
                if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                    continue
                d = d or len(fields) - 1
                # A few words of GloVe's 840B file hold spaces themselves.
                word = " ".join(fields[: len(fields) - d])
                if word in place or (wanted is not None and word not in wanted):
                    continue
                try:
                    vector = np.array(fields[len(fields) - d :], dtype=np.float32)
                except ValueError:
                    vector = np.empty(0, dtype=np.float32)
                if not word or not len(vector) or not np.isfinite(vector).all():
                    raise InputError(f"{path}, line {number}: expected a word and {max(d, 1)} numbers, separated by spaces")
                place[word] = None
                numbers += vector.tobytes()
                if len(place) == limit:
                    break
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if not place:
        raise InputError(f"{path} holds no word vectors{'' if wanted is None else ' for the requested words'}")
    return list(place), np.frombuffer(numbers, dtype=np.float32).reshape(len(place), d)


def word_tokenizer(words: Sequence[str], *, lower_case: bool = True, max_length: int = 512) -> Any:
    """Make a Hugging Face tokenizer of whole words, which splits text at spaces and around each punctuation mark.

    Args:
        words: The vocabulary. Ids are 0 for padding, 1 for unknown words, then the words in their order.
        lower_case: Whether to lower-case text first.
        max_length: The tokenizer's ``model_max_length``.

    Returns:
        A ``PreTrainedTokenizerFast`` that adds no special tokens.

    Example:
        >>> tokenizer = word_tokenizer(["tea", "hot", "."])
        >>> tokenizer("Hot tea, please.")["input_ids"]
        [3, 2, 1, 1, 4]
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    vocabulary = {word: i for i, word in enumerate([PAD, UNKNOWN, *words])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    backend.normalizer = normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase()] if lower_case else [])])
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return _wrapped(backend, PAD, UNKNOWN, max_length)


def without_special_tokens(tokenizer: Any, *, max_length: int = 512) -> Any:
    """Copy a tokenizer without its special tokens ([CLS] and [SEP] mean nothing to static embeddings).

    Args:
        tokenizer: A fast Hugging Face tokenizer.
        max_length: The new tokenizer's ``model_max_length``.

    Returns:
        A new tokenizer with the same ids and the same padding token, or else padding by the token with id 0.

    Raises:
        InputError: For a tokenizer that is not a fast one.
    """
    from tokenizers import Tokenizer, processors

    if not getattr(tokenizer, "is_fast", False):
        raise InputError(f"TK: the tokenizer {type(tokenizer).__name__} is not a fast tokenizer; convert it first")
    backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = processors.Sequence([])
    backend.no_padding()
    backend.no_truncation()
    return _wrapped(backend, tokenizer.pad_token or tokenizer.convert_ids_to_tokens(0), tokenizer.unk_token, max_length)


def _wrapped(backend: Any, pad: str, unknown: str | None, max_length: int) -> Any:
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=pad,
        unk_token=unknown,
        model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )
