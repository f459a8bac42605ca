"""What the three biases of this folder share: they examine one system at a time, with one primary figure and one picture.

Each has one file in this folder, on the same layer as the folders of the other biases: it is a probe of rankings without data or
training of its own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from pyterrier_debias.core.bias import Bias, Figure, Finding, p_text, query_count
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import deepest, judged_qids, per_query
from pyterrier_debias.core.statistics import Interval, effective_number, inverted_interval, randomisation_test
from pyterrier_debias.core.systems import Context, System

#: The measure of effectiveness.
MEASURE = "nDCG@10"
#: What is said where nothing could have come out otherwise.
UNCHANGED = "no query changed, so nothing was tested"
#: How p and the interval of :func:`mean_test` are made, for conventions.
TESTED = "p by random signs; the interval inverts this test"
TESTED_TWICE = "p by random signs of queries or by a t test over documents, the larger; the interval covers those of both tests"
#: Differences below it are due to rounding.
_ROUNDING = 1e-12


class SystemBias(Bias):
    """A bias that is examined one system at a time. A subclass implements :meth:`look`.

    Attributes:
        axis: The label of the primary figure in its picture.

    When not to use it: for a figure that compares systems; see :class:`~pyterrier_debias.core.bias.JointBias`.
    """

    axis = ""

    @abstractmethod
    def look(self, system: System, context: Context) -> Iterator[Finding]:
        """Examine one system.

        Args:
            system: A system for which :meth:`needs` returns None.
            context: See :meth:`Bias.examine`.

        Yields:
            Findings; one of them is primary.
        """

    def examine(self, context: Context) -> Iterator[Finding]:
        """See :meth:`Bias.examine`."""
        for system in context.systems:
            yield from self._seen(system, context)

    def figures(self, context: Context) -> Sequence[Figure]:
        """See :meth:`Bias.figures`: the primary figures, with their intervals."""
        rows = [found for system in context.systems for found in self._seen(system, context) if found.primary]
        caption = f"The primary figure of each system, with its 95 % interval: {self.axis}."
        places = [context.place(row.system) for row in rows]
        return [Figure(self.name, caption, partial(_draw, rows, places, self.axis))] if rows else []

    def _seen(self, system: System, context: Context) -> list[Finding]:
        found: list[Finding] = context.once(self.name, system, lambda: list(self.look(system, context)))
        return found


def mean_test(
    values: pd.Series, seed: int, *, documents: pd.DataFrame | None = None, least: float = -np.inf, most: float = np.inf
) -> tuple[Interval, float, str]:
    """Test and interval of a mean over queries, if under the null hypothesis each value could have had the other sign.

    Queries that share documents are not independent: a document that moves one of them moves the others. With ``documents``
    there is a second test, in which documents are independent (:func:`by_document`). The larger p counts, and the interval
    covers both intervals.

    Args:
        values: The values, by qid.
        seed: Seed of the draws.
        documents: ``docno``, ``share`` and ``weight``, see :func:`by_document`; the shares of a query sum to its value. None if
            the values do not depend on which documents a query has.
        least: The lowest value that a query can have.
        most: The highest value that a query can have.

    Returns:
        The interval, p, and both in words.

    Raises:
        InputError: If there is no query.

    Example:
        >>> interval, p, told = mean_test(pd.Series([0.1, 0.2, 0.1, 0.3, 0.2, 0.1]), 0)
        >>> round(interval.estimate, 3), p, told
        (0.167, 0.03125, '[+0.100, +0.300] over 6 queries (p = 0.031)')
        >>> mean_test(pd.Series([0.0, 0.0]), 0)[2]
        'over 2 queries: no query changed, so nothing was tested'
    """
    if values.empty:
        raise InputError("no judged query has two documents to compare; give candidates of judged queries, and a larger depth")
    numbers = values.sort_index().to_numpy(dtype=float)
    interval = inverted_interval(numbers, seed=seed, least=least, most=most)
    p = randomisation_test(np.zeros(len(numbers)), numbers, seed=seed).p
    if documents is not None and numbers.any():
        low, high, other = by_document(documents, len(numbers))
        low, high = float(np.minimum(interval.low, low)), float(np.maximum(interval.high, high))
        interval = replace(interval, low=low, high=high).within(least, most)
        p = max(p, other)
    over = f"over {query_count(interval.n)}"
    if not numbers.any():
        return interval, float("nan"), f"{over}: {UNCHANGED}"
    ends = "" if np.isnan(interval.low) else f"[{interval.low:+.3f}, {interval.high:+.3f}] "
    return interval, p, f"{ends}{over} (p = {p_text(p)})"


def by_document(rows: pd.DataFrame, queries: int, level: float = 0.95) -> tuple[float, float, float]:
    """Test and interval of a mean over queries, if documents are independent, however many queries share them.

    A t test with a cluster-robust error: the contributions of a document are summed over queries, and a document's part of the
    mean is subtracted from its sum. The degrees of freedom are the effective number of documents, less 1, because a few
    documents can be in most of the lists.

    Args:
        rows: One row per query and document: ``docno``; ``share``, what the document adds to the query's value; and ``weight``,
            its weight in that value, at least 0.
        queries: The number of queries in the mean.
        level: Nominal coverage.

    Returns:
        The ends of the interval, and p. With a single document the ends are NaN and p is 1.

    Example:
        >>> rows = pd.DataFrame({"docno": ["a", "b", "a", "c"], "share": [0.3, 0.1, 0.3, 0.2], "weight": 0.5})
        >>> [round(float(x), 3) for x in by_document(rows, 2)]
        [-0.203, 1.103, 0.09]

    References:
        Cameron and Miller, A Practitioner's Guide to Cluster-Robust Inference, Journal of Human Resources 50, 2015.
    """
    sums = rows.groupby("docno")[["share", "weight"]].sum()
    shares, weights = sums["share"].to_numpy() / queries, sums["weight"].to_numpy() / sums["weight"].sum()
    number, mean = effective_number(weights), shares.sum()
    if number - 1 < _ROUNDING:
        return float("nan"), float("nan"), 1.0
    error = np.sqrt(np.square(shares - mean * weights).sum() * number / (number - 1))
    half = stats.t.ppf((1 + level) / 2, number - 1) * error
    p = 2 * stats.t.sf(abs(mean) / error, number - 1) if error > _ROUNDING else 0.0
    return mean - half, mean + half, float(p)


def check_given(found: pd.DataFrame, given: pd.DataFrame, name: str) -> None:
    """Check that a ranker returns only documents of the lists that it was given.

    Args:
        found: Results: ``qid``, ``docno``.
        given: The lists: ``qid``, ``docno``.
        name: The system's name.

    Raises:
        InputError: If there are others, as those of a ranker that adds documents or returns passages.
    """
    other = found[~among(found, given)]
    if len(other):
        row = other.iloc[0]
        raise InputError(
            f"ranker of {name!r} returned a document that is not among its candidates (qid={row['qid']!r}, "
            f"docno={row['docno']!r}); put stages that add documents, or divide them into passages, before the ranker"
        )


def check_complete(found: pd.DataFrame, given: pd.DataFrame, name: str, own: Mapping[str, str] | None = None) -> None:
    """Check that a ranker returns all documents of the lists that it was given, and no others.

    Args:
        found: See :func:`check_given`.
        given: See :func:`check_given`.
        name: See :func:`check_given`.
        own: For the docno of a probe that of the document, for messages.

    Raises:
        InputError: If it added or left out a document; its places cannot be compared then.
    """
    check_given(found, given, name)
    lacking = given[~among(given, found)]
    if len(lacking):
        qid, docno = lacking[["qid", "docno"]].iloc[0]
        silent = len(set(lacking["qid"]) - set(found["qid"]))
        raise InputError(
            f"ranker of {name!r} left out {len(lacking)} of {len(given)} texts that it was given"
            f"{f', among them all of {query_count(silent)}' if silent else ''} (first qid={qid!r}, "
            f"docno={(own or {}).get(docno, docno)!r}), so its places cannot be compared; it must return every text of every "
            f"list; only a cut-off at its end, as in ranker % 10, may leave some out"
        )


def among(rows: pd.DataFrame, others: pd.DataFrame) -> np.ndarray:
    """Whether the pair of ``qid`` and ``docno`` of each row is among those of others, shape [rows]."""
    pairs, known = (pd.MultiIndex.from_frame(frame[["qid", "docno"]]) for frame in (rows, others))
    return pairs.isin(known)


def effectiveness(system: System, context: Context) -> dict[tuple[str, str], pd.Series]:
    """nDCG@10 of a system's own results, for comparisons of audits: (measure, contrast) to values by qid."""
    qids = judged_qids(context.topics, context.qrels)
    results = context.results(system, depth=deepest([MEASURE]))
    return {(MEASURE, "original"): per_query(results, context.qrels, [MEASURE], qids)[MEASURE]}


def document_parts(rows: pd.DataFrame, queries: int, note: str) -> pd.DataFrame:
    """What each document contributes to a mean over queries of sums over documents.

    Args:
        rows: ``qid``, ``docno`` and ``share``, the document's part of its query's value.
        queries: The number of queries in the mean.
        note: A note for every document.

    Returns:
        The items of :class:`~pyterrier_debias.core.bias.Parts`; contributions sum to the mean. The ``qid`` is that of the query
        to which a document contributes most, in either direction.
    """
    rows = rows.assign(contribution=rows["share"] / queries, size=rows["share"].abs().round(12))
    rows = rows.sort_values(["size", "qid"], ascending=[False, True])
    found = rows.groupby("docno").agg(qid=("qid", "first"), queries=("qid", "nunique"), contribution=("contribution", "sum"))
    return found.rename_axis("item").reset_index().assign(note=note)


def relevant_pairs(context: Context) -> pd.DataFrame:
    """Judgements of the audit's topics with a label of 1 or more: ``qid``, ``docno``, ``label``."""
    qrels = context.qrels[(context.qrels["label"] >= 1) & context.qrels["qid"].isin(set(context.topics["qid"]))]
    return qrels[["qid", "docno", "label"]]


def _draw(rows: Sequence[Finding], places: Sequence[int], axis: str, axes: Any) -> None:
    from pyterrier_debias.core import plots

    with plots.style():
        axes.axhline(0, color=plots.GREY, linestyle="--")
        for x, (row, place) in enumerate(zip(rows, places)):
            ends = plots.ends(row.value, row.low, row.high)
            axes.errorbar(x, row.value, yerr=ends, fmt="o", color=plots.colour(place))
        plots.name_ticks(axes, [row.system for row in rows])
        axes.set_xlim(-0.6, len(rows) - 0.4)
        plots.label_axes(axes, x="", y=axis, n=[row.n for row in rows])
