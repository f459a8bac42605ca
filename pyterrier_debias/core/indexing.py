"""Streams of documents for indexers: errors in a stream are raised by the call of the indexer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from numbers import Number
from typing import Any

import numpy as np
import pyterrier as pt

from pyterrier_debias.core.errors import InputError


@contextmanager
def handed_over(documents: Iterable[dict[str, Any]]) -> Iterator[Iterator[dict[str, Any]]]:
    """Guard a stream of documents while an indexer reads it.

    Indexers such as Terrier's and PISA's read their documents in their own thread. An exception there ends the stream
    and is lost: an index of the first documents remains, without an error.

    Args:
        documents: Any stream of documents.

    Yields:
        The same documents, to pass to the indexer.

    Raises:
        Exception: The exception of the stream, with a note on how many documents the indexer had received.
        InputError: If the indexer returned before the end of the stream.

    Example:
        >>> with handed_over([{"docno": "d1"}, {"docno": "d2"}]) as stream:
        ...     kept = list(stream)
        >>> len(kept)
        2
    """
    stream = _Stream(documents)
    try:
        yield iter(stream)
    except Exception:
        if stream.error is None:
            raise
    if stream.error is not None:
        stream.error.add_note(f"The indexer had received {stream.count} documents before this error; its index is incomplete.")
        raise stream.error
    if not stream.ended:
        raise InputError(
            f"the indexer stopped after {stream.count} documents, before the end of the stream, so the index is "
            f"incomplete; look for an error that it printed, such as a document without one of the columns that it stores"
        )


class _Stream:
    """Documents that are counted, and what they ended with."""

    def __init__(self, documents: Iterable[dict[str, Any]]):
        self.documents = documents
        self.count = 0
        self.error: Exception | None = None
        self.ended = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            for document in self.documents:
                self.count += 1
                yield document
            self.ended = True
        except Exception as error:
            self.error = error


class GuardedIndexer(pt.Indexer):
    """An indexer with a guarded stream of documents (see :func:`handed_over`); numbers that it stores become text."""

    def __init__(self, indexer: pt.Indexer):
        """
        Args:
            indexer: Any indexer.
        """
        self.indexer = indexer

    def index(self, iter: Iterable[dict[str, Any]], **options: Any) -> Any:
        """Index documents.

        Args:
            iter: The documents.
            options: Options of the indexer.

        Returns:
            What the indexer returns.

        Raises:
            InputError: See :func:`handed_over`, which also raises the errors of the stream.
        """
        with handed_over(_as_stored(iter, getattr(self.indexer, "meta", ()))) as documents:
            return self.indexer.index(documents, **options)


def _as_stored(documents: Iterable[dict[str, Any]], stored: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Documents with numbers as text in the columns that an index stores: Terrier stores text only."""
    names = set(stored or ())
    for document in documents:
        numbers = {n: str(v) for n, v in document.items() if n in names and isinstance(v, (Number, np.generic))}
        yield {**document, **numbers} if numbers else document
