"""The length bias in an audit: does a ranker prefer longer documents, given their relevance and its candidates?

Null hypothesis of the primary test: the first ten documents are, on average over queries, as long as the median candidate of the
same relevance (relevant or not). This holds if candidates of the same relevance come in random order.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.frames import check_text, with_ties_drawn
from pyterrier_debias.core.systems import Context, System
from pyterrier_debias.core.text import regex_word, text_key
from pyterrier_debias.further.shared import (
    TESTED_TWICE,
    SystemBias,
    among,
    check_given,
    document_parts,
    effectiveness,
    mean_test,
    relevant_pairs,
)

#: The measure and contrast under which the largest possible value of each query is kept.
_ATTAINABLE = ("attainable length percentile", "first documents - random order")


class LengthBias(SystemBias):
    """Does a ranker prefer longer documents among those of the same relevance?

    The candidates of a query are sorted by length, separately for the relevant ones (label of 1 or more) and the others, and
    each gets a percentile: the share of them that are shorter, where documents of equal length, and the document itself, count by
    half; it is .5 for the middle. A query's value is the mean percentile of the first ten documents of the result, less .5.
    Queries with no more than ten candidates are left out, because every order of these has the value 0. The largest value of n
    candidates is about .5 - 5 / n; if its mean over queries is below .15, the verdict is not "no". An order that is random
    among documents of the same relevance has a mean of exactly 0: it does not matter whether relevant documents are longer than
    others, or candidates longer than the rest of the collection. Tied documents are put in random order, query by query.

    The same figure is also reported against the order of the candidates ("ranker - candidates"). It is not a primary test: if
    the order of the candidates prefers long documents, a ranker that is blind to length differs from it.

    Source: Singhal, Buckley and Mitra 1996 compare the lengths of retrieved and relevant documents. Percentiles within
    documents of the same relevance are used here instead, because they need neither the collection nor a unit of length.

    Example:
        ``audit(systems, dataset, biases=["length"])``, or ``biases=[LengthBias(cutoff=5)]``

    When not to use it: if few documents are judged. Unjudged relevant documents count as non-relevant, and a ranker that finds
    them seems to prefer their length. Grades above 0 are one: if documents of the highest grade are longer than other relevant
    ones, a ranker that puts them first seems to prefer length.
    """

    name = "length"
    axis = "length percentile of the first documents, less one half"

    def __init__(self, *, cutoff: int = 10) -> None:
        """
        Args:
            cutoff: The number of documents of each result that count, at least 1.

        Raises:
            InputError: If it is not such a number.
        """
        check_number("LengthBias", "cutoff", cutoff, least=1, whole=True)
        self.cutoff = cutoff

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: texts, from the system or from the collection."""
        with_texts = hasattr(dataset, "text_loader") or (system is not None and system.ranker is not None)
        return None if with_texts else "the texts of its documents are not known: the collection has no text_loader()"

    def look(self, system: System, context: Context) -> Iterator[Finding]:
        """See :meth:`SystemBias.look`."""
        listed = _with_percentiles(_in_question(system, context, self.cutoff), context)
        if not listed["above"].any():
            raise InputError(
                "equally relevant candidates of a query are equally long, so no order of them prefers a length; give texts of "
                "different lengths"
            )
        found = context.results_with_ties_drawn(system, depth=self.cutoff)[["qid", "docno"]]
        found = found[found["qid"].isin(set(listed["qid"]))]
        check_given(found, listed, system.name)
        inside = among(listed, found)
        first, weights = listed[inside], equal_weights(listed["qid"], inside)
        values = _means(first)
        interval, p, told = mean_test(values, context.seed, documents=document_shares(listed, weights), least=-0.5, most=0.5)
        shares = first.assign(share=first["above"] / first.groupby("qid")["above"].transform("size"))
        convention = (
            f"percentile among candidates of one query, relevant or not, first {self.cutoff}; tied documents in random order; "
            f"words of letters and digits"
        )
        yield self.finding(
            system.name, "length percentile", "first documents - random order", interval,
            f"the mean length percentile of its first {self.cutoff} documents, among candidates of the same relevance, differs "
            f"from one half by {interval.estimate:+.3f} {told}.",
            p=p, values=values, primary=True,
            beside={**effectiveness(system, context), _ATTAINABLE: _attainable(listed, self.cutoff)},
            convention=f"{convention}; {TESTED_TWICE}",
            parts={"document": document_parts(shares, len(values), "of the first documents")},
        )  # fmt: skip
        words = (first.groupby("qid")["words"].mean() - listed.groupby("qid")["words"].mean()).dropna()
        interval, _, told = mean_test(words, context.seed)
        yield self.finding(
            system.name, "words", "first documents - all of the list", interval,
            f"its first {self.cutoff} documents differ in length from its whole list by {interval.estimate:+.1f} words.",
            values=words, convention="words of letters and digits, whatever the relevance; not tested",
        )  # fmt: skip
        if system.ranker is not None:
            before = (listed["rank"] < self.cutoff).to_numpy()
            change = (values - _means(listed[before])).dropna()
            documents = document_shares(listed, weights - equal_weights(listed["qid"], before))
            documents = documents[documents["qid"].isin(change.index)]
            interval, p, told = mean_test(change, context.seed, documents=documents, least=-1, most=1)
            yield self.finding(
                system.name, "length percentile", "ranker - candidates", interval,
                f"the mean length percentile of its first {self.cutoff} documents differs from that of its candidates' first "
                f"{self.cutoff} by {interval.estimate:+.3f} {told}.",
                p=p, values=change, convention=f"{convention}; {TESTED_TWICE}",
            )  # fmt: skip


def _in_question(system: System, context: Context, cutoff: int) -> pd.DataFrame:
    """Candidates, up to the depth, of the judged queries that have more of them than the cut-off."""
    listed = with_ties_drawn(context.candidates(system).query("rank < @context.depth").reset_index(drop=True), context.seed)
    sizes = listed.groupby("qid")["docno"].transform("size")
    listed = listed[listed["qid"].isin(judged_qids(context.topics, context.qrels)) & (sizes > cutoff)]
    if listed.empty:
        told = f"no judged query has more than {cutoff} candidates, and every order of so few has the value 0"
        raise InputError(f"{told}; give longer lists, a larger depth, or LengthBias(cutoff=...)")
    return listed


def _means(first: pd.DataFrame) -> pd.Series:
    """The value of each query, without its last digits, because sums of thirds that should be 0 are 1e-17."""
    return first.groupby("qid")["above"].mean().round(12) + 0.0


def _attainable(listed: pd.DataFrame, cutoff: int) -> pd.Series:
    """The largest size that the value of each query can have: that of its longest or of its shortest documents."""
    ordered = listed.sort_values("above").groupby("qid")["above"]
    longest, shortest = (end(cutoff).groupby(listed["qid"]).mean() for end in (ordered.tail, ordered.head))
    return np.maximum(longest, -shortest)


def equal_weights(qids: pd.Series, first: np.ndarray) -> np.ndarray:
    """The weight of each candidate in the value of its query: equal weights of the first documents, 0 of the others.

    Args:
        qids: The query of each candidate.
        first: Whether each candidate counts.

    Returns:
        Shape [candidates]; the weights of a query sum to 1, or are all 0 if none of its documents counts.

    Example:
        >>> equal_weights(pd.Series(["q", "q", "q", "q"]), np.array([True, False, True, False])).tolist()
        [0.5, 0.0, 0.5, 0.0]
    """
    counts = pd.Series(first, index=qids.index)
    return (counts / counts.groupby(qids).transform("sum")).fillna(0.0).to_numpy()


def document_shares(listed: pd.DataFrame, weights: np.ndarray) -> pd.DataFrame:
    """What each candidate adds to the value of its query, for :func:`~pyterrier_debias.further.shared.by_document`.

    The mean weight among candidates of the same relevance is subtracted. This changes no sum, because their percentiles sum to
    0, and it tells how far chance can move the sum: not at all if all candidates count.

    Args:
        listed: The candidates: ``qid``, ``docno``, ``label`` (NaN if not relevant), ``above`` (percentile, less .5).
        weights: See :func:`equal_weights`, or the difference of two such weights.

    Returns:
        ``qid``, ``docno``, ``share``, ``weight``, one row per candidate.

    Example:
        >>> listed = pd.DataFrame({"qid": "q", "docno": ["a", "b"], "label": [1.0, 1.0], "above": [0.25, -0.25]})
        >>> document_shares(listed, np.array([1.0, 0.0]))["share"].tolist()
        [0.125, 0.125]
    """
    groups = pd.Series(weights, index=listed.index).groupby([listed["qid"], listed["label"].notna()])
    share = (weights - groups.transform("mean")) * listed["above"]
    return listed[["qid", "docno"]].assign(share=share, weight=np.abs(weights))


def _with_percentiles(run: pd.DataFrame, context: Context) -> pd.DataFrame:
    """A run with ``words``, and ``above``: the percentile of each document's length among those of its relevance, less .5."""
    run = run if "text" in run.columns else context.dataset.text_loader()(run)
    check_text(run, "text", "LengthBias")
    known: dict[bytes, int] = context.once("words of texts", None, dict)

    def words(text: str) -> int:
        # A docno does not tell the text: a stage may have shortened it, for one system or one query.
        key = text_key(text)
        if key not in known:
            known[key] = len(regex_word(text))
        return known[key]

    counts = run["text"].map({text: words(text) for text in run["text"].unique()})
    run = run[["qid", "docno", "rank"]].assign(words=counts.to_numpy())
    run = run.merge(relevant_pairs(context), on=["qid", "docno"], how="left")
    return run.assign(above=length_percentiles(run["qid"], run["label"].notna(), run["words"]) - 0.5)


def length_percentiles(qids: pd.Series, relevant: pd.Series, words: pd.Series) -> np.ndarray:
    """The percentile of each document's length among those of its query and relevance.

    Args:
        qids: n queries.
        relevant: Whether each document is relevant.
        words: The lengths in words.

    Returns:
        Shape [n]: the share of these documents that are shorter; documents of equal length, and the document itself, count by
        half. The mean over the documents of a query and relevance is .5.

    Example:
        >>> relevant = pd.Series([True, False, False, False])
        >>> length_percentiles(pd.Series(["q"] * 4), relevant, pd.Series([9, 1, 5, 5])).round(2).tolist()
        [0.5, 0.17, 0.67, 0.67]
    """
    groups = words.groupby([qids, relevant])
    return ((groups.rank() - 0.5) / groups.transform("size")).to_numpy(dtype=float)
