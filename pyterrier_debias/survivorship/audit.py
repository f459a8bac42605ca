"""The survivorship bias in an audit: which queries survived, and does quality depend on how early they were answered?

The null hypothesis of the primary test is that, among answered queries, quality does not depend on the rank at which labellers
first met the answer. The statistic is Spearman's correlation of DCG@10 (for the reason see
:func:`~pyterrier_debias.survivorship.formulas.binary_gain.discounted_gain`) with the first relevant rank, permuted among queries
with equally many answers in equally long lists (see :func:`~pyterrier_debias.survivorship.data.ranks.list_strata`). Means are of
RR@10, as in the thesis.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import CORRELATION, Examined, Figure, Finding, JointBias, p_text
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.evaluation import from_grade, parse_measures, per_query
from pyterrier_debias.core.frames import with_string_ids
from pyterrier_debias.core.statistics import Interval, binomial_interval, t_interval
from pyterrier_debias.core.systems import Context, System
from pyterrier_debias.survivorship.data.ranks import NEVER, first_relevant_ranks, list_strata, types_of, with_ranks
from pyterrier_debias.survivorship.formulas.binary_gain import discounted_gain
from pyterrier_debias.survivorship.formulas.nested import Trend, nested_means, rank_influence, trend
from pyterrier_debias.survivorship.measures.curve import SurvivorshipResult, curve_of_values

_RESAMPLES = 9_999
#: Findings about the collection, not about a system.
_ALL = "all systems"
#: How many documents the measures look at.
_CUTOFF = 10
_RANKS = 10
#: Labellers do not read longer lists; longer ones are candidates for a reranker.
LONGEST = 100
#: The share of a list that must be judged, if judgements include documents that are not relevant.
LEAST_JUDGED = 0.5
#: Bins of the first relevant rank: first and last.
BINS = ((1, 3), (4, 6), (7, None))


def unshown_reason(shown: pd.DataFrame | None, qrels: pd.DataFrame | None) -> str | None:
    """Why a collection does not say where its labellers met answers; None if it does.

    Args:
        shown: The lists that, according to the collection, were shown; None if it gives none.
        qrels: Its judgements; None if they are not known yet.

    Returns:
        One sentence, or None.
    """
    if shown is None or not len(shown):
        return "the collection does not say what its labellers were shown (get_candidates)"
    lists = shown.groupby("qid").size()
    if lists.median() > LONGEST:
        return (
            f"the collection's candidates ({int(lists.median())} documents per query) are a run, not lists that labellers read"
        )
    if qrels is None:
        return None
    labels = with_string_ids(qrels, "survivorship bias, judgements")
    shown = with_string_ids(shown, "survivorship bias, candidates")
    judged = shown[["qid", "docno"]].merge(labels[["qid", "docno", "label"]], on=["qid", "docno"])
    other = labels[labels["qid"].isin(set(shown["qid"]))]
    if judged.empty and len(other):
        return (
            f"no document that labellers were shown (e.g. {shown['docno'].iloc[0]!r}) is judged (judged is e.g. "
            f"{other['docno'].iloc[0]!r}): lists and judgements use different docnos"
        )
    if not (judged["label"] > 0).any():
        return "no document that labellers were shown is judged relevant"
    ours = shown["qid"].isin(set(labels["qid"])).sum()
    share = len(judged.drop_duplicates(["qid", "docno"])) / ours
    if (labels["label"] <= 0).any() and share < LEAST_JUDGED:
        return (
            f"only {share:.0%} of the collection's candidates are judged, so they are a run, not lists that labellers were shown"
        )
    return None


def answer_grade(dataset: Any, qrels: pd.DataFrame) -> int:
    """The lowest label of answering documents, if the collection has answers; otherwise 1.

    Labellers were asked for an answer. With graded judgements, a document may be on topic without giving an answer.

    Args:
        dataset: The collection.
        qrels: Its judgements.

    Returns:
        The lowest label of documents that count as relevant here.
    """
    answers = provided(dataset, "get_answers")
    if answers is None or not len(answers):
        return 1
    pairs = answers[["qid", "docno"]].drop_duplicates()
    labels = pairs.merge(qrels[["qid", "docno", "label"]], on=["qid", "docno"])["label"]
    return int(labels[labels > 0].min()) if (labels > 0).any() else 1


def rank_bins(ranks: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Group queries by the rank at which labellers first met an answer: at 1 to 3, 4 to 6, 7 or later.

    Args:
        ranks: Shape [n]; infinite for queries that were never answered.

    Yields:
        The name of each bin, and the mask [n] of its queries; empty bins are left out.

    Example:
        >>> [(label, own.tolist()) for label, own in rank_bins(np.array([1.0, 8.0, np.inf]))]
        [('first met at 1 to 3', [True, False, False]), ('first met at 7 or later', [False, True, False])]
    """
    for first, last in BINS:
        own = np.isfinite(ranks) & (ranks >= first) & (ranks <= (last or NEVER))
        if own.any():
            yield (f"first met at {first} to {last}" if last else f"first met at {first} or later"), own


def shown_queries(context: Context, grade: int) -> tuple[pd.DataFrame, list[str]]:
    """The queries for which labellers were shown documents, with the rank at which they met an answer.

    If the audited topics are all topics of a split and the collection also has a split ``full``, the unanswered queries of
    ``full`` that were shown are added: these are the queries that did not survive.

    Args:
        context: The audit.
        grade: The lowest label of an answer, see :func:`answer_grade`.

    Returns:
        Topics with ``first_relevant_rank``, ``list`` (see :func:`list_strata`) and ``asked`` (whether systems were run on them),
        sorted by qid; and notes.
    """
    dataset, notes = context.dataset, []
    ranks = first_relevant_ranks(dataset.get_candidates(), context.qrels, min_label=grade, stage="survivorship bias")
    shown = set(ranks["qid"])
    where = "survivorship bias, topics"
    topics = with_string_ids(context.topics, where)
    seen = topics[topics["qid"].isin(shown)]
    if len(seen) < len(topics):
        notes.append(f"{len(topics) - len(seen)} queries for which nobody was shown anything are left out.")
    seen = seen.assign(asked=True)
    own, full = provided(dataset, "get_topics"), provided(dataset, "get_topics", "full")
    if full is not None and own is not None and set(with_string_ids(own, where)["qid"]) == set(topics["qid"]):
        lost = with_string_ids(full, f"{where} of 'full'")
        answered = set(ranks.loc[ranks["first_relevant_rank"] < NEVER, "qid"])
        lost = lost[lost["qid"].isin(shown - answered - set(topics["qid"]))]
        if len(lost):
            notes.append(f"{len(lost)} queries were shown but never answered, and are missing from the topics; they count as 0.")
            seen = pd.concat([seen, lost.assign(asked=False)], ignore_index=True)
    strata = dict(zip(ranks["qid"], list_strata(ranks["relevant_shown"], ranks["shown"])))
    seen = with_ranks(seen, ranks).assign(list=[strata[qid] for qid in seen["qid"]])
    return seen.sort_values("qid").reset_index(drop=True), notes


def alone(strata: Sequence[object]) -> int:
    """How many queries are alone in their stratum, and so carry no information about what happens within strata.

    Args:
        strata: The stratum's name for each query.

    Returns:
        The number of such queries.

    Example:
        >>> alone([1, 1, 2, 3, 3, 4])
        2
    """
    return sum(count == 1 for count in Counter(strata).values())


class SurvivorshipBias(JointBias):
    """Bias for an audit: which queries survived labelling, and does quality depend on how early they were answered?

    Source: Gupta 2021; see :class:`~pyterrier_debias.SurvivorshipCurve`.

    When not to use it: if a collection has a run instead of the lists that its labellers read.
    """

    name = "survivorship"

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: the lists that labellers were shown, and judgements of them."""
        return unshown_reason(provided(dataset, "get_candidates"), provided(dataset, "get_qrels"))

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """See :meth:`Bias.measures`: the measure of quality whose means are reported here."""
        reason = self.needs(None, context.asked)
        if reason is not None:
            return [], {"quality by the rank at which labellers first met the answer": reason}
        grade = answer_grade(context.dataset, context.qrels)
        name = from_grade(f"RR@{_CUTOFF}", grade)
        return parse_measures([name]), {
            f"rank correlation of {from_grade('DCG@10', grade)} and first relevant rank": "audit(..., biases='survivorship')",
            f"rank correlation of {name} and first relevant rank": f"SurvivorshipCurve(..., measures=['{name}'])",
            f"{name} over queries answered early": "SurvivorshipSubset(...) on the topics of a second experiment",
        }

    def compute(self, context: Context) -> Examined:
        """See :meth:`JointBias.compute`."""
        return _Examined.of(self, context)


@dataclass(frozen=True, eq=False)
class _Examined:
    """The survivorship measurements of all systems of an audit.

    Attributes:
        bias: The bias of the findings.
        context: The audit.
        topics: The queries that were shown, see :func:`shown_queries`.
        values: Each system's RR@10, in the order of the topics.
        gains: Each system's DCG@10, in the same order.
        measure: The name of the measure in ``values``.
        grade: The lowest label of an answer, see :func:`answer_grade`.
        notes: Remarks for the reader.
        curve: Means over nested subsets, for the figures.
    """

    bias: SurvivorshipBias
    context: Context
    topics: pd.DataFrame
    values: dict[str, np.ndarray]
    gains: dict[str, np.ndarray]
    measure: str
    grade: int
    notes: list[str]
    curve: SurvivorshipResult

    @classmethod
    def of(cls, bias: SurvivorshipBias, context: Context) -> _Examined:
        grade = answer_grade(context.dataset, context.qrels)
        topics, notes = shown_queries(context, grade)
        if "type" in topics.columns:
            topics = topics.assign(type=types_of(topics["type"]))
        name = from_grade(f"RR@{_CUTOFF}", grade)
        asked = topics.loc[topics["asked"], "qid"].tolist()
        values, gains, frames = {}, {}, []
        # No other columns of the topics: a column "cluster" would change the intervals.
        about = topics[[column for column in ("qid", "type", "first_relevant_rank", "list") if column in topics.columns]]
        for system in context.systems:
            results = context.results(system, depth=_CUTOFF)
            found = per_query(results, context.qrels, [name], asked)[name]
            gains[system.name] = discounted_gain(
                results, context.qrels, topics["qid"].tolist(), min_label=grade, cutoff=_CUTOFF
            )
            # An unanswered query has no relevant document; nor has one that is missing from the topics.
            values[system.name] = found.reindex(topics["qid"]).fillna(0.0).to_numpy()
            frames.append(about.assign(name=system.name, measure=name, value=values[system.name]))
        curve = curve_of_values(pd.concat(frames, ignore_index=True), ranks=_RANKS, resamples=1, seed=context.seed)
        return cls(bias, context, topics, values, gains, name, grade, notes, curve)

    @property
    def ranks(self) -> np.ndarray:
        """First relevant ranks, in the order of the topics."""
        return self.topics["first_relevant_rank"].to_numpy(dtype=float)

    @property
    def answered(self) -> np.ndarray:
        """Which queries are answered."""
        return np.isfinite(self.ranks)

    # ------------------------------------------------------------------------------------------- findings

    def findings(self) -> Iterator[Finding]:
        """How many queries were answered; and for each system, means, the trend with the rank, and means of strata."""
        yield from self._survival()
        for system in self.context.systems:
            yield from self._means(system.name)
            yield from self._trend(system.name)
            yield from self._groups(system.name)

    def _values(self, chosen: np.ndarray, values: np.ndarray) -> pd.Series:
        """The values of the selected topics by qid."""
        return pd.Series(values, index=self.topics["qid"].to_numpy()[chosen])

    def _survival(self) -> Iterator[Finding]:
        answered, everyone = self.answered, np.ones(len(self.topics), dtype=bool)
        if not len(answered):
            return
        convention = f"a document with a label of at least {self.grade} was among those shown; exact binomial interval"
        share = binomial_interval(int(answered.sum()), len(answered), level=0.95)
        notes = "".join(f" {note}" for note in self.notes)
        text = (
            f"labellers met an answer to {int(answered.sum())} of {len(answered)} queries ({share.estimate:.1%} "
            f"[{share.low:.1%}, {share.high:.1%}]); a mean over all queries is the mean over the answered ones times this share, "
            f"whatever the ranker.{notes}"
        )
        values = answered.astype(float)
        kept = self._values(everyone, values)
        yield self.bias.finding(_ALL, "answered", "all queries", share, text, convention=convention, values=kept)
        kinds = self._kinds()
        for kind in kinds:
            own = (self.topics["type"] == kind).to_numpy()
            share = binomial_interval(int(answered[own].sum()), int(own.sum()), level=0.95)
            text = f"of the {int(own.sum())} queries of type {kind}, {share.estimate:.1%} were answered."
            kept = self._values(own, values[own])
            yield self.bias.finding(_ALL, "answered", f"type {kind}", share, text, convention=convention, values=kept)

    def _kinds(self) -> list[str]:
        if "type" not in self.topics.columns:
            return []
        kinds = sorted(kind for kind in set(self.topics["type"]) if kind)
        return kinds if len(kinds) > 1 else []

    def _means(self, name: str) -> Iterator[Finding]:
        values, answered = self.values[name], self.answered
        found = nested_means(values, self.ranks, [1, NEVER])
        last = found[1]
        if not last.n:
            return
        text = (
            f"{self.measure} is {last.mean.estimate:.3f} over the {last.n} answered queries and {last.zero_filled.estimate:.3f} "
            f"over all {last.total}: {last.mean.estimate:.3f} times the share answered, {last.share:.3f}."
        )
        how = "mean over answered queries; Student's interval"
        own = self._values(answered, values[answered])
        yield self.bias.finding(name, self.measure, "answered", last.mean.within(), text, convention=how, values=own)
        how = "mean over all queries shown to labellers, unanswered ones as 0; Student's interval"
        filled = self._values(np.ones(len(values), dtype=bool), np.where(answered, values, 0.0))
        yield self.bias.finding(name, self.measure, "zero-filled", last.zero_filled.within(), text, convention=how, values=filled)

    def _trend(self, name: str) -> Iterator[Finding]:
        values, answered, seed = self.gains[name], self.answered, self.context.seed
        gain = from_grade("DCG@10", self.grade)
        measure = f"{CORRELATION}{gain}"
        strata = self.topics["list"]
        found = trend(values, self.ranks, strata=strata, resamples=_RESAMPLES, seed=seed)
        how = (
            "Spearman's rank correlation over answered queries, ranks centred and permuted among queries with equally many "
            "answers in lists of equal length; Bonett and Wright's interval, or that of the permutation test where the two "
            "disagree"
        )
        if np.isnan(found.rho):
            first = pd.Series(self.ranks[answered]).groupby(strata[answered].to_numpy()).nunique()
            same = "the rank of the first answer" if (first == 1).all() else "their results"
            what = (
                "there are fewer than three answered queries" if found.n < 3
                else f"queries with equally many answers in lists of equal length do not differ in {same}"
            )
            none = Interval(float("nan"), float("nan"), float("nan"), 0.95, found.n)
            text = f"nothing can be said about how early queries were answered: {what}."
            yield self.bias.finding(name, measure, "first relevant rank", none, text, convention=how)
            return
        direction = "worse" if found.rho < 0 else "better"
        single = alone(strata[answered].tolist())
        ends = f"[{found.low:+.2f}, {found.high:+.2f}]"
        if np.isnan(found.low):
            ends = f"(no interval: only {found.n - single} of {found.n} queries can be compared with others)"
        text = (
            f"the later labellers found an answer, the {direction} its results: rank correlation {found.rho:+.2f} {ends} over "
            f"{found.n} answered queries, among queries with equally many answers in lists of equal length; chance alone gives "
            f"{found.noise_floor:.2f} (p = {p_text(found.p)})."
        )
        if single:
            one = "is the only one" if single == 1 else "are each the only one"
            text = f"{text} {single} of them {one} with its number of answers in a list of its length, and cannot be compared."
        more = {"p": found.p, "null_value": found.noise_floor, "convention": how}
        influence = rank_influence(values[answered], self.ranks[answered], strata=strata[answered])
        influence = self._values(answered, influence)
        yield self._correlated(name, measure, "first relevant rank", found, text, primary=True, values=influence, **more)
        if not self._kinds():
            return
        both = (strata + " " + self.topics["type"]).tolist()
        within = trend(values, self.ranks, strata=both, resamples=_RESAMPLES, seed=seed)
        if np.isfinite(within.rho):
            text = (
                f"within types of queries the correlation is {within.rho:+.2f} [{within.low:+.2f}, {within.high:+.2f}] "
                f"(p = {p_text(within.p)})."
            )
            how = f"{how}; within types of queries"
            more = {"p": within.p, "null_value": within.noise_floor, "convention": how}
            yield self._correlated(name, measure, "first relevant rank, within types", within, text, **more)

    def _correlated(self, name: str, measure: str, contrast: str, found: Trend, text: str, **more: Any) -> Finding:
        interval = Interval(found.rho, found.low, found.high, 0.95, found.n)
        return self.bias.finding(name, measure, contrast, interval, text, **more)

    def _groups(self, name: str) -> Iterator[Finding]:
        values, ranks = self.values[name], self.ranks
        how = "strata that share no query; Student's interval, cut to [0, 1]; not tested"
        rows = [(label, own, t_interval(values[own]).within()) for label, own in rank_bins(ranks)]
        text = f"{self.measure} is {', '.join(f'{found.estimate:.3f} ({label})' for label, _, found in rows)}."
        for label, own, found in rows:
            kept = self._values(own, values[own])
            yield self.bias.finding(name, self.measure, label, found, text, convention=how, values=kept)
        for kind in self._kinds():
            own = self.answered & (self.topics["type"] == kind).to_numpy()
            if own.any():
                found = t_interval(values[own]).within()
                text = f"{self.measure} is {found.estimate:.3f} over the {found.n} answered queries of type {kind}."
                kept = self._values(own, values[own])
                yield self.bias.finding(name, self.measure, f"answered, type {kind}", found, text, convention=how, values=kept)

    # ------------------------------------------------------------------------------------------- figures

    def figures(self) -> Sequence[Figure]:
        """Plots of the curve, the strata, and the number of queries first answered at each rank."""
        n, answered = len(self.topics), int(self.answered.sum())
        if not answered:
            return []
        return [
            Figure(
                "curve",
                f"Mean {self.measure} over queries answered within the first k documents shown (solid, with 95 % intervals), and "
                f"with all other queries as 0 (dashed), of {n} queries. The fall of the dashed lines is due to the share "
                f"answered, not to the rankers.",
                partial(self.curve.plot, order=self.context.names),
            ),
            Figure(
                "strata",
                f"Mean {self.measure} by the rank at which labellers first met an answer, with 95 % intervals from six queries "
                f"on, over {answered} answered queries.",
                partial(self.curve.plot_strata, order=self.context.names),
            ),
            Figure(
                "first-ranks",
                f"How many of {n} queries were first answered at each rank of the list shown; {n - answered} were never "
                f"answered.",
                self._draw_ranks,
            ),
        ]

    def _draw_ranks(self, axes: Any) -> None:
        from pyterrier_debias.core import plots

        ranks = self.ranks[self.answered].astype(int)
        counts = np.bincount(ranks)[1:]
        with plots.style():
            axes.bar(range(1, len(counts) + 1), counts, color=plots.colour(0))
            axes.bar([len(counts) + 1.5], [len(self.topics) - len(ranks)], color=plots.GREY)
            axes.set_xticks([*range(1, len(counts) + 1), len(counts) + 1.5], [*map(str, range(1, len(counts) + 1)), "never"])
            plots.label_axes(axes, x="rank at which labellers first met an answer", y="queries", n=len(self.topics))

