"""The interface of a dataset, and access to data that only some datasets have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import NotProvidedError
from pyterrier_debias.core.frames import with_string_ids


@runtime_checkable
class Dataset(Protocol):
    """The methods that every dataset has. The splits are ``train``, ``dev``, ``test`` or have names of the collection's own.

    Some collections also have (see :func:`provided`):

    - ``get_candidates()``: a frame ``qid, docno, score, rank`` of what labellers were shown, in that order;
    - ``get_runs()``: a mapping from a name to a result frame ``qid, docno, score, rank``;
    - ``get_answers()``: a frame ``qid, docno, answer, start, end``, with character offsets into the document's ``text``, ``end``
      exclusive, -1 if only the answer's string is known;
    - ``get_qrels('full')``: more complete judgements than the split's own, over all topics of the collection;
    - ``truth``: a mapping that says what was planted;
    - columns ``type`` and ``gender`` of the topics.
    """

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Documents as dictionaries with ``docno`` and ``text``, in the collection's order."""

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Topics of a split: ``qid``, ``query`` and further columns."""

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Judgements of a split: ``qid``, ``docno``, ``label``."""

    def text_loader(self, fields: Any = "text", *, verbose: bool = False) -> pt.Transformer:
        """A stage that adds the text of documents to frames with ``docno``."""


def provided(dataset: Any, method: str, *args: Any) -> Any:
    """Call a method that not every dataset has.

    Args:
        dataset: Any dataset.
        method: The method's name, such as ``'get_answers'``.
        args: Arguments of the call.

    Returns:
        What the method returned, or None if the dataset lacks it. Frames, also those of a mapping, have string identifiers.

    Raises:
        InputError: If the dataset has the method but cannot provide the data, e.g. after a failed download; for identifiers, see
            :func:`~pyterrier_debias.core.frames.with_string_ids`.
    """
    function = getattr(dataset, method, None)
    if function is None:
        return None
    try:
        found = function(*args)
    except (NotImplementedError, NotProvidedError):
        return None
    what = f"{getattr(dataset, 'name', type(dataset).__name__)}, {method}()"
    if isinstance(found, Mapping):
        return {
            key: with_string_ids(value, f"{what} {key!r}") if isinstance(value, pd.DataFrame) else value
            for key, value in found.items()
        }
    return with_string_ids(found, what) if isinstance(found, pd.DataFrame) else found
