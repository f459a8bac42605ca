"""The background of NFaiRR: the documents that could have been ranked, and how a ranking compares with their best order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.frames import with_string_ids
from pyterrier_debias.gender.formulas import arab

logger = logging.getLogger(__name__)

#: What to do with ranked documents that are not in the background.
OUTSIDE = ("add", "count")


@dataclass(frozen=True)
class Fairness:
    """NFaiRR of one ranking, and its components.

    Attributes:
        nfairr: FaiRR of the ranks that count, divided by the ideal.
        ideal: IFaiRR, the divisor.
        agnostic: The mean of NFaiRR over all orders of the background's documents: their mean neutrality times the sum of
            1 / log2(i + 1) over the ranks, divided by their own ideal. Rekabsaz, Kopeinik and Schedl (SIGIR 2021) call it
            ranker-agnostic; their released code sums up to the cut-off even if there are fewer documents.
        outside: How many ranked documents are not in the background.
    """

    nfairr: float
    ideal: float
    agnostic: float
    outside: int


class Background:
    """The documents that could have been ranked for one query, or for every query.

    Args:
        docnos: The documents' docnos.
        neutral: Their neutrality, shape [m].
        ranks: How many ranks of a list count; None for all. A list is compared with an ideal over the same number of ranks.
    """

    def __init__(self, docnos: Iterable[str] = (), neutral: np.ndarray | Sequence[float] = (), ranks: int | None = None):
        self.docnos = frozenset(docnos)
        self.ranks = ranks
        # Sorted once: a collection is the background of every query.
        self._best = np.sort(np.asarray(neutral, dtype=np.float64))[::-1]
        self._mean = float(self._best.mean()) if len(self._best) else float("nan")

    def __len__(self) -> int:
        return len(self._best)

    def compare(self, docnos: Sequence[str], neutral: np.ndarray, cutoff: int, outside: str = "add") -> Fairness:
        """Compare a ranking with the best order of these documents.

        Args:
            docnos: The ranked documents, best first, shape [n].
            neutral: Their neutrality, shape [n].
            cutoff: t, at least 1.
            outside: What to do with ranked documents that are not among these: ``'add'`` lets the ideal contain them too;
                ``'count'`` counts them for the ranking alone, as in the released code, so that values can exceed 1.

        Returns:
            The values; all NaN if this background or the ranking is empty.
        """
        arab.rank_weights(cutoff)
        top = cutoff if self.ranks is None else min(cutoff, self.ranks)
        head = np.asarray(neutral, dtype=np.float64)[:top]
        new = np.array([docno not in self.docnos for docno in docnos[:top]], dtype=bool)
        if not len(self) or not len(head):
            return Fairness(float("nan"), float("nan"), float("nan"), int(new.sum()))
        candidates = self._best[:top]
        if outside == "add":
            candidates = np.concatenate([candidates, head[new]])
        random = np.full(min(top, len(self)), self._mean)
        return Fairness(
            arab.nfairr(head, candidates, top),
            arab.ifairr(candidates, top, shortest=len(head)),
            arab.nfairr(random, self._best[:top], top),
            int(new.sum()),
        )


def check_background(background: pd.DataFrame | None, depth: Any, outside: Any, stage: str) -> None:
    """Check the options of a background.

    Args:
        background: Result frame with ``qid``, ``docno``, ``score``; or documents, ``docno``, without ``qid`` and ``score``.
        depth: How many documents of a result frame count.
        outside: One of :data:`OUTSIDE`.
        stage: The name used in messages.

    Raises:
        InputError: For a background that is not a frame or lacks a column, a depth that is not a whole number of 1 or more, or an
            unknown choice.
    """
    check_number(stage, "depth", depth, least=1, whole=True)
    check_choice(stage, "outside", outside, OUTSIDE)
    if background is None:
        return
    if not isinstance(background, pd.DataFrame):
        raise InputError(
            f"{stage}: background is {kind_of(background)}, not a frame; give a result frame (qid, docno, score), or a "
            f"frame of documents (docno and text, without qid and score), e.g. background=pd.DataFrame(dataset.get_corpus_iter())"
        )
    columns = set(background.columns)
    # A frame without scores and ranks is not a list of results, so a missing qid is no error.
    needed = ["docno"] if is_collection(background) else ["qid", "docno"]
    lacking = [column for column in needed if column not in columns]
    if not lacking and "qid" in columns and not {"score", "rank"} & columns:
        lacking = ["score"]
    if lacking:
        raise InputError(
            f"{stage}: the background lacks the column {lacking[0]!r}; give a result frame, or documents (docno and text, "
            f"without qid and score) that could have been ranked for every query"
        )


def is_collection(background: pd.DataFrame | None) -> bool:
    """Whether a background is one set of documents for all queries."""
    return background is not None and not {"qid", "score", "rank"} & set(background.columns)


def collection(background: pd.DataFrame, neutral: Callable[[pd.DataFrame], np.ndarray], stage: str) -> Background:
    """Make one background for all queries from a frame of documents.

    Args:
        background: ``docno`` and the columns that ``neutral`` reads.
        neutral: A function that returns the neutrality of each row.
        stage: The name used in messages.

    Raises:
        InputError: If a document occurs twice, or has no docno.
    """
    frame = with_string_ids(background, f"{stage}, background").reset_index(drop=True)
    twice = frame["docno"].duplicated()
    if twice.any():
        raise InputError(f"{stage}: docno {frame['docno'][twice].iloc[0]!r} occurs twice in the background; keep one row each")
    return Background(frame["docno"], neutral(frame))


def tell_outside(counts: Iterable[int], outside: str, stage: str) -> None:
    """Log how many rankings have documents that are not in the background."""
    found = list(counts)
    some = sum(count > 0 for count in found)
    if some:
        how = "they are added to it" if outside == "add" else "values may exceed 1"
        logger.warning("%s: %d of %d rankings have documents that the background lacks; %s", stage, some, len(found), how)
