"""The interface of a dataset, and access to data that only some datasets have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol, runtime_checkable

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import NotProvidedError


@runtime_checkable
class Dataset(Protocol):
    """What every dataset has. The splits are ``train``, ``dev``, ``test`` or the collection's own names.

    Beyond these, where the collection knows them (see :func:`provided`):

    - ``get_candidates()``: frame ``qid, docno, score, rank``: what labellers were shown, in that order;
    - ``get_runs()``: a mapping from a name to a result frame ``qid, docno, score, rank``;
    - ``get_answers()``: frame ``qid, docno, answer, start, end``: character offsets into the document's ``text``, ``end``
      exclusive, -1 where only the answer's string is known;
    - ``get_qrels('full')``: fuller judgements than the split's own, over all topics of the collection;
    - ``truth``: a mapping that says what was planted;
    - columns ``type`` and ``gender`` of the topics.
    """

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Documents as dictionaries with ``docno`` and ``text``, in the collection's order."""

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Topics of a split: ``qid``, ``query`` and what else is known of them."""

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Judgements of a split: ``qid``, ``docno``, ``label``."""

    def text_loader(self, fields: Any = "text", *, verbose: bool = False) -> pt.Transformer:
        """A stage that adds the text of documents to frames with ``docno``."""


def provided(dataset: Any, method: str, *args: Any) -> Any:
    """Ask a dataset for something that not every dataset has.

    Args:
        dataset: Any dataset.
        method: The method's name, such as ``'get_answers'``.
        args: What to call it with.

    Returns:
        What the method returned, or None if the dataset lacks it.

    Raises:
        InputError: If the dataset has it and cannot give it, e.g. after a download that failed.
    """
    function = getattr(dataset, method, None)
    if function is None:
        return None
    try:
        return function(*args)
    except (NotImplementedError, NotProvidedError):
        return None
