"""Pooling bias in an audit: whether a system's results are judged as often as the pool's, and whether it matters.

Primary test: per query, Judged@10 of the system equals Judged@10 of the pool's run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, repeat
from typing import Any, cast

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Examined, Figure, Finding, JointBias, Parts, p_text
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import judged_qids, parse_measures, per_query
from pyterrier_debias.core.frames import ROWS, QueryRows, highest_grades, parts_together, ranked, with_string_ids
from pyterrier_debias.core.statistics import (
    CELLS,
    Interval,
    TestResult,
    bootstrap_interval,
    inverted_interval,
    randomisation_test,
    without_rounding,
)
from pyterrier_debias.core.systems import Context, System, UnfitSystemError, check_run
from pyterrier_debias.pooling.formulas.attributions import unjudged_parts
from pyterrier_debias.pooling.measures.unjudged import ExpectedNDCG, inferred_in_parts, kendall_tau, strictly_ranked

_CUTOFF = 10
_JUDGED = f"Judged@{_CUTOFF}"
_MAIN = f"nDCG@{_CUTOFF}"
#: The ways to handle unjudged documents, the usual one first.
TREATMENTS = ("as non-relevant", "removed", "inferred")
_DEPTHS = (1, 2, 3, 5, 10, 15, 20, 30, 50, 100)
_RESAMPLES = 999
#: The system name of findings about all systems together.
_ALL = "all systems"

_INFERRED = (
    "unjudged documents have the label expected from judged ones of other queries that {} together rank as highly (isotonic "
    "regression on reciprocal rank fusion)"
)
_CONVENTIONS = {
    "as non-relevant": "unjudged documents count as not relevant, as in trec_eval",
    "removed": "unjudged documents are taken out, judged ones move up (condensed lists)",
    "inferred": _INFERRED,
}
#: The columns of runs that are used.
_COLUMNS = ["qid", "docno", "score", "rank"]
#: Smallest share of labels that must be "not relevant": in pools of TREC, it is half or more.
LEAST_NOT_RELEVANT = 0.25
#: Smallest share of the first documents that must be judged; below it, most labels are inferred.
LEAST_JUDGED = 0.5


def pools_run(dataset: Any) -> tuple[str, pd.DataFrame] | None:
    """The run from which judgements are assumed to be pooled.

    It is the collection's first run. The list shown to labellers (``get_candidates``) is used only if there is no run: it is
    judged by construction, so any system with an unjudged document falls behind it, however evenly judgements were made.

    Args:
        dataset: The collection.

    Returns:
        A name and a result frame, or None if the collection has neither.
    """
    runs = provided(dataset, "get_runs") or {}
    if runs:
        name = next(iter(runs))
        return name, runs[name]
    shown = provided(dataset, "get_candidates")
    if shown is None:
        return None
    if "score" not in shown.columns and "rank" in shown.columns:
        shown = shown.assign(score=-shown["rank"].astype(float))
    return "the list shown to labellers", shown


def judged_shares(results: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str], cutoffs: Sequence[int]) -> pd.DataFrame:
    """Compute the share of each query's first results that is judged: ir_measures' Judged@k, for several k at once.

    Ties of scores are broken as in trec_eval (ir_measures breaks them the other way for this measure), so that all figures of a
    run use the same order.

    Args:
        results: Result frame ``qid``, ``docno``, ``score``.
        qrels: Judgements.
        qids: Judged queries.
        cutoffs: The values of k; for shorter lists, the share is that of all their documents.

    Returns:
        One row per query with results, in the order of ``qids``, and one column per cut-off; values in [0, 1].

    Example:
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d1", "d1"], "label": [0, 0]})
        >>> judged_shares(run, judged, ["q1", "q2"], [1, 2]).values.tolist()
        [[1.0, 0.5]]
    """
    run = ranked(results[["qid", "docno", "score"]], "results")
    query, names = pd.factorize(run["qid"])
    rank = run["rank"].to_numpy()
    known = run[["qid", "docno"]].merge(qrels[["qid", "docno"]].drop_duplicates(), how="left", indicator=True)
    known = (known["_merge"] == "both").to_numpy()
    shares = {}
    for k in cutoffs:
        top = rank < k
        shares[k] = np.bincount(query[top & known], minlength=len(names)) / np.bincount(query[top], minlength=len(names))
    found = set(names)
    return pd.DataFrame(shares, index=pd.Index(names, name="qid")).loc[[qid for qid in qids if qid in found]]


def judged_difference(
    system: pd.DataFrame, pool: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str], *, seed: int = 0
) -> tuple[pd.DataFrame, TestResult]:
    """Run the primary test: compare Judged@10 of a system with that of the pool's run, query by query.

    The null hypothesis is that the two lists of each query are exchangeable: documents were judged regardless of which list
    they came from. Signs of the differences are flipped at random. The hypothesis holds if judgements are drawn evenly from
    both lists, if they are drawn from neither, and if everything is judged (all differences are 0, and p is 1). It does *not*
    hold if relevant documents were judged more often and one of the two lists has more of them.

    Args:
        system: Result frame.
        pool: Result frame of the pool's run.
        qrels: Judgements.
        qids: Judged queries; those with results in both frames are compared.
        seed: Seed of the randomisation.

    Returns:
        A frame with the columns ``pool``, ``system`` and ``difference`` by ``qid``, and the test of the mean difference.
    """
    shares = {}
    for name, results in (("pool", pool), ("system", system)):
        shares[name] = judged_shares(results, qrels, sorted(qids), [_CUTOFF])[_CUTOFF]
    frame = pd.DataFrame(shares).dropna().reindex(shares["system"].index.intersection(shares["pool"].index, sort=False))
    test = randomisation_test(frame["pool"].to_numpy(), frame["system"].to_numpy(), seed=seed)
    return frame.assign(difference=frame["system"] - frame["pool"]), test


def tie_change(run: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str], usual: float) -> float:
    """Compute the change of mean nDCG@10 if ties are broken the other way: by ascending instead of descending docno.

    Args:
        run: Result frame.
        qrels: Judgements.
        qids: Judged queries.
        usual: Mean nDCG@10 in the usual order.

    Returns:
        The change; 0 if no tie matters.

    Example:
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": 1.0})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d2"], "label": [1]})
        >>> round(tie_change(run, judged, ["q1"], 1.0), 3)
        -0.369
    """
    if not run.duplicated(["qid", "score"]).any():
        return 0.0
    other = run.sort_values(["qid", "score", "docno"], ascending=[True, False, True])
    other = other.assign(score=-other.groupby("qid").cumcount().astype("float64"))
    return float(per_query(other[["qid", "docno", "score"]], qrels, [_MAIN], list(qids))[_MAIN].mean() - usual)


def positives_reason(qrels: pd.DataFrame) -> str | None:
    """Say why judgements cannot distinguish unjudged documents from those judged not relevant; None if they can.

    Args:
        qrels: Judgements.

    Returns:
        One sentence if fewer than a quarter of the labels are 0 or less; otherwise None.

    Example:
        >>> positives_reason(pd.DataFrame({"label": [1, 1, 0]}))
        >>> positives_reason(pd.DataFrame({"label": [1, 2]}))[:45]
        'the judgements list relevant documents only, '
    """
    share = float((qrels["label"] <= 0).mean()) if len(qrels) else 0.0
    if share >= LEAST_NOT_RELEVANT:
        return None
    listed = f"mainly (labels of 0 are {share:.0%}, at least {LEAST_NOT_RELEVANT:.0%} are needed)" if share else "only"
    return (
        f"the judgements list relevant documents {listed}, so an unjudged document cannot be distinguished from one judged not "
        f"relevant; give judgements with labels of 0 too"
    )


class PoolingBias(JointBias):
    """Examines whether a system's results are judged as often as the pool's, and whether this matters for its quality.

    See :class:`~pyterrier_debias.OnlyJudged` and :class:`~pyterrier_debias.ExpectedNDCG`; for training against false negatives
    (Cai et al. 2022), see :class:`~pyterrier_debias.CETReranker`.

    When not to use it: with judgements that list relevant documents only.
    """

    name = "pooling"

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: judgements must include documents that are not relevant."""
        qrels = provided(dataset, "get_qrels")
        return None if qrels is None else positives_reason(qrels)

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """See :meth:`Bias.measures`: Judged@10, nDCG@10 of judged documents only and, if systems are given, with inferred labels.

        With tied scores, Judged@10 uses ir_measures' order of ties, which differs from that of :func:`judged_shares`. An
        audit cuts all lists to one depth before it removes unjudged documents; a measure gets lists as they are, and deeper ones
        have more documents that move up. Labels are inferred from the same lists as in an audit. A query for which a system
        has no results has a Judged@10 of 0 in an experiment; an audit leaves it out of this figure.
        """
        reason = self.needs(None, context.asked)
        if reason is not None:
            return [], {_JUDGED: reason}
        found, second = parse_measures([_JUDGED, f"nDCG(judged_only=True)@{_CUTOFF}"]), {}
        if (context.qrels["label"] < 0).any():  # judged_only=True removes documents with such labels, too
            found = found[:1]
            second[f"nDCG(judged_only=True)@{_CUTOFF}"] = "OnlyJudged(qrels) after each system, or raise labels below 0 to 0"
        inferred = f"{_MAIN} with inferred labels"
        if not context.systems:
            how = (
                "bias_measures(..., systems=...), or ExpectedNDCG(infer_judgements(runs, qrels)) @ 10: all rankings are needed "
                "to infer labels"
            )
            return found, {**second, inferred: how}
        try:
            judgements = pd.concat(_Lists(context).judgements(), ignore_index=True)
        except InputError as error:
            return found, {**second, inferred: str(error)}
        return [*found, ExpectedNDCG(judgements) @ _CUTOFF], second

    def compute(self, context: Context) -> Examined:
        """See :meth:`JointBias.compute`."""
        return _Examined.of(self, context)


def _refuse_another_corpus(system: str, docnos: pd.Series, lists: _Lists, context: Context) -> None:
    """Refuse a system none of whose documents is known: every one of them would count as unjudged."""
    corpus = getattr(context.dataset, "corpus", None)
    frames = [context.qrels, None if lists.pool is None else lists.pool[1], corpus if isinstance(corpus, pd.DataFrame) else None]
    if len(docnos) and not any(docnos.isin(one["docno"]).any() for one in frames if one is not None):
        raise UnfitSystemError(
            system,
            f"none of its documents (e.g. {docnos.iloc[0]!r}) is among those of the judgements (e.g. "
            f"{context.qrels['docno'].iloc[0]!r}), so its docnos seem to be those of another corpus; retrieve from the corpus "
            f"that was judged",
        )


@dataclass(frozen=True, eq=False)
class _Examined:
    """All systems of an audit together, since labels are inferred from the runs of all.

    Attributes:
        bias: The bias that makes the findings.
        context: The audit.
        qids: The judged queries.
        pool: Name and first results of the pool's run; None if unknown.
        depth: How many documents of each list are used: as many as all systems have.
        positives: Why judgements cannot show which documents are unjudged; None if they can.
        judged: For each system the shares of judged documents, with one row per query and one column per cut-off.
        values: For each system nDCG@10, with one row per query and one column per treatment; empty if ``positives`` is not None.
        ties: For each system the change of nDCG@10 if ties are broken the other way.
        inferred_from: Names of the runs from which labels are inferred; empty if ``positives`` is not None.
    """

    bias: PoolingBias
    context: Context
    qids: list[str]
    pool: tuple[str, pd.DataFrame] | None
    depth: int
    positives: str | None
    judged: dict[str, pd.DataFrame]
    values: dict[str, pd.DataFrame]
    ties: dict[str, float]
    inferred_from: list[str]

    @classmethod
    def of(cls, bias: PoolingBias, context: Context) -> _Examined:
        lists = _Lists(context)
        for system in context.systems:
            _refuse_another_corpus(system.name, context.results(system, depth=_CUTOFF)["docno"], lists, context)
        positives = positives_reason(lists.qrels)
        depths = [k for k in _DEPTHS if k <= max(min(lists.depth, context.depth), _CUTOFF)]
        inferred = lists.judgements() if positives is None else repeat(None)
        judged: dict[str, list[pd.DataFrame]] = defaultdict(list)
        values: dict[str, list[pd.DataFrame]] = defaultdict(list)
        ties: dict[str, float] = defaultdict(float)
        for part, judgements in zip(lists.parts(), inferred):
            for system in context.systems:
                name, run = system.name, part.runs[system.name]
                judged[name].append(judged_shares(run, part.qrels, part.qids, depths))
                if judgements is not None:
                    measures = [_MAIN, f"nDCG(judged_only=True)@{_CUTOFF}", ExpectedNDCG(judgements) @ _CUTOFF]
                    found = per_query(strictly_ranked(run, f"run {name!r}"), part.qrels, measures, part.qids)
                    values[name].append(found.set_axis(list(TREATMENTS), axis=1))
                    change = tie_change(lists.whole(system, part), part.qrels, part.qids, found[_MAIN].mean())
                    ties[name] += change * len(part.qids) / len(lists.qids)
        shares, gains = ({name: pd.concat(parts) for name, parts in table.items()} for table in (judged, values))
        runs = [] if positives is not None else lists.inferred_from
        pool = None if lists.pool is None else (lists.pool[0], lists.pool[1][lists.pool[1]["rank"] < max(depths)])
        return cls(bias, context, lists.qids, pool, lists.depth, positives, shares, gains, ties, runs)

    # ------------------------------------------------------------------------------------------- findings

    def _interval(self, values: Any) -> Interval:
        return bootstrap_interval(np.asarray(values, dtype=float), seed=self.context.seed)

    def findings(self) -> Iterator[Finding]:
        """For each system its judged share, and its quality by treatment of unjudged documents; and the order of all systems."""
        for system in self.context.systems:
            yield from self._judged(system)
            yield from self._treated(system.name)
        yield from self._order()

    def _judged(self, system: System) -> Iterator[Finding]:
        own = self.judged[system.name][_CUTOFF]
        interval = self._interval(own)
        text = f"of its first {_CUTOFF} documents {_share(interval.estimate)}{_percent(interval)} are judged"
        if not self.values:
            text += f"; {self.positives}"
        elif self.pool is None:
            named = pools_run(self.context.dataset)
            text += (
                "; the collection names no run that judgements were pooled from (put it into the folder's runs/, or give "
                "Collection(runs=)), so nothing is tested"
                if named is None
                else f"; the run {named[0]!r}, which judgements were pooled from, has results for no judged query, so nothing is "
                f"tested"
            )
        convention = (
            f"share of the first {_CUTOFF}, or of all results if there are fewer, that has a label; queries without results are "
            f"left out"
        )
        yield self.bias.finding(system.name, _JUDGED, "system", interval, f"{text}.", convention=convention, values=own)
        if not self.values or self.pool is None:
            return
        name, run = self.pool
        results = self.context.results(system, depth=_CUTOFF)
        frame, test = judged_difference(results, run, self.context.qrels, self.qids, seed=self.context.seed)
        change = inverted_interval(frame["difference"].to_numpy(), seed=self.context.seed, least=-1, most=1)
        change = change.of_change_from(frame["pool"].mean())
        changed = int((frame["difference"] != 0).sum())
        if not frame["difference"].any():
            text = f"in every query, the number of judged documents among the first {_CUTOFF} is the same as for {name}."
        else:
            text = (
                f"{_share(frame['system'].mean())} of its first {_CUTOFF} documents are judged, and "
                f"{_share(frame['pool'].mean())} of those of {name}, the run that judgements came from: {change.estimate:+.3f} "
                f"{_signed(change)} over {change.n} queries, of which {changed} differ{'s' * (changed == 1)} "
                f"(p = {p_text(test.p)})."
            )
        runs = {system.name: results, f"{name} (the pool)": run}
        items = unjudged_parts(runs, self.context.qrels, self.qids, _CUTOFF)
        yield self.bias.finding(
            system.name, _JUDGED, f"system - pool ({name})", change, text, p=test.p, primary=True,
            convention=f"{convention}; p by exchange of the two lists within queries; the interval inverts this test",
            values=frame["difference"], parts=[Parts("document", items)],
        )  # fmt: skip

    def _treated(self, name: str) -> Iterator[Finding]:
        if not self.values:
            return
        values = self.values[name]
        means = ", ".join(f"{values[treatment].mean():.3f} {treatment}" for treatment in TREATMENTS)
        for treatment in TREATMENTS:
            interval = self._interval(values[treatment])
            text = f"{_MAIN} with unjudged documents: {means}."
            if treatment == TREATMENTS[0] and abs(self.ties[name]) >= 0.0005:
                text += f" Ties affect it: with tied scores in the opposite order, it changes by {self.ties[name]:+.4f}."
            how, own = self._convention(treatment), values[treatment]
            yield self.bias.finding(name, _MAIN, treatment, interval, text, convention=how, values=own)
        for treatment in TREATMENTS[1:]:
            change = values[treatment] - values[TREATMENTS[0]]
            change = pd.Series(without_rounding(change.to_numpy()), index=change.index)
            interval = inverted_interval(change.to_numpy(), seed=self.context.seed, least=-1, most=1)
            interval = interval.of_change_from(values[TREATMENTS[0]].mean())
            if change.any():
                text = (
                    f"{_MAIN} changes by {interval.estimate:+.3f} {_signed(interval)} where unjudged documents are {treatment} "
                    f"instead of counting as not relevant; {int((change != 0).sum())} of {interval.n} queries change."
                )
            else:
                text = f"{_MAIN} does not change in any query where unjudged documents are {treatment}."
            judged = self.judged[name][_CUTOFF].mean()
            if treatment == TREATMENTS[2] and judged < LEAST_JUDGED:
                text = f"{text} Only {_share(judged)} of the first {_CUTOFF} are judged: the other labels are inferred."
            convention = f"{self._convention(treatment)}; not tested"
            contrast = f"{treatment} - {TREATMENTS[0]}"
            yield self.bias.finding(name, _MAIN, contrast, interval, text, convention=convention, values=change)

    def _convention(self, treatment: str) -> str:
        """How unjudged documents were treated, and the depth of lists if it matters."""
        deep = "" if treatment == TREATMENTS[0] else f"; lists of {self.depth} documents, as many as all systems have"
        if treatment == "inferred":
            deep = f"; from the first {min(self.depth, max(self.context.depth, _CUTOFF))} documents of each list"
        beside = [name for name in self.inferred_from if name not in self.values]
        return f"{_CONVENTIONS[treatment].format(' and '.join(['all systems', *beside]))}{deep}"

    def _order(self) -> Iterator[Finding]:
        """Whether the order of the systems depends on the treatment more than on the queries."""
        if len(self.values) < 2:
            return
        names = list(self.values)
        usual, *others = (np.stack([self.values[n][t] for n in names], axis=1) for t in TREATMENTS)
        again, *drawn = _resampled_means([usual, *others], self.context.seed)
        floor = _mean(kendall_tau(usual.mean(axis=0), again))
        for treatment, values, means in zip(TREATMENTS[1:], others, drawn):
            tau = float(kendall_tau(usual.mean(axis=0), values.mean(axis=0)))
            spread = kendall_tau(again, means)
            low, high = np.nanquantile(spread, [0.025, 0.975]) if np.isfinite(spread).any() else (np.nan, np.nan)
            interval = Interval(tau, float(low), float(high), 0.95, len(self.qids))
            told = (
                f"the two orders agree with a tau of {tau:.2f}, where 1 is the same order and -1 the reverse; over resampled "
                f"queries, the usual order agrees with itself with a tau of {floor:.2f}"
                if np.isfinite(tau)
                else "their order is not defined, because all systems have the same mean"
            )
            text = f"{self._swaps(names, treatment)} ({told})."
            yield self.bias.finding(
                _ALL, f"tau of {_MAIN}", f"{TREATMENTS[0]}, {treatment}", interval, text, null_value=floor,
                convention="Kendall's tau-b of the order of systems; percentile interval over resampled queries",
            )  # fmt: skip

    def _swaps(self, names: list[str], treatment: str) -> str:
        """A sentence about the systems that change places."""
        means = {name: self.values[name].mean() for name in names}
        swapped = []
        for one, other in combinations(names, 2):
            differences = [means[one][t] - means[other][t] for t in (TREATMENTS[0], treatment)]
            before, after = without_rounding(np.array(differences))
            if before * after < 0:
                over, under = (one, other) if before > 0 else (other, one)
                swapped.append(
                    f"{over} ({means[over][TREATMENTS[0]]:.3f}) is above {under} ({means[under][TREATMENTS[0]]:.3f}), but below "
                    f"it with unjudged documents {treatment} ({means[over][treatment]:.3f}, {means[under][treatment]:.3f})"
                )
        if not swapped:
            return f"no two systems change places with unjudged documents {treatment}"
        more = f"; and {len(swapped) - 3} more pairs" if len(swapped) > 3 else ""
        return "; ".join(swapped[:3]) + more

    # ------------------------------------------------------------------------------------------- figures

    def figures(self) -> list[Figure]:
        """The judged share by depth, and quality by treatment of unjudged documents."""
        n = len(self.qids)
        figures = [
            Figure(
                "judged",
                f"Share of the first k documents that is judged, mean over those of {n} judged queries that have results."
                + (f" Dashed: {self.pool[0]}, the pool's run." if self.pool else ""),
                self._draw_judged,
            )
        ]
        if self.values:
            figures.append(
                Figure(
                    "treatments",
                    f"Mean {_MAIN} with unjudged documents as not relevant, removed and inferred, with 95 % bootstrap intervals "
                    f"over {n} judged queries. The intervals of a system ignore that the same queries are compared: see the "
                    f"table for the paired differences.",
                    self._draw_treatments,
                )
            )
        return figures

    def _draw_judged(self, axes: Any) -> None:
        from pyterrier_debias.core import plots

        with plots.style():
            depths = list(next(iter(self.judged.values())).columns)
            colours = plots.colours(self.judged, self.context.names)
            for name, shares in self.judged.items():
                axes.plot(depths, shares.mean(), "o-", color=colours[name], label=plots.legend_label(name))
            if self.pool:
                shares = judged_shares(self.pool[1], self.context.qrels, self.qids, depths)
                axes.plot(depths, shares.mean(), "--", color=plots.GREY, label=f"pool: {self.pool[0]}")
            axes.set_xscale("log")
            axes.set_xticks(depths, [str(k) for k in depths])
            axes.minorticks_off()
            axes.set_ylim(-0.03, 1.03)
            axes.legend()
            plots.label_axes(axes, x="k (documents from the top)", y="judged@k", n=len(self.qids))

    def _draw_treatments(self, axes: Any) -> None:
        from pyterrier_debias.core import plots

        with plots.style():
            colours = plots.colours(self.values, self.context.names)
            for index, (name, values) in enumerate(self.values.items()):
                for offset, treatment, face in zip((-0.2, 0.0, 0.2), TREATMENTS, (colours[name], "white", "white")):
                    found = self._interval(values[treatment])
                    error = plots.ends(found.estimate, found.low, found.high)
                    axes.errorbar(
                        index + offset, found.estimate, yerr=error, fmt="s" if treatment == TREATMENTS[2] else "o",
                        color=colours[name], markerfacecolor=face,
                    )  # fmt: skip
            plots.name_ticks(axes, list(self.values))
            axes.set_xlim(-0.6, len(self.values) - 0.4)
            x = "unjudged: \u25cf non-relevant, \u25cb removed, \u25a1 inferred"
            plots.label_axes(axes, x=x, y=f"mean {_MAIN}", n=len(self.qids))


@dataclass(frozen=True, eq=False)
class _Part:
    """Some of the judged queries.

    Attributes:
        qids: The queries.
        qrels: Their judgements.
        runs: For each system their lists.
        pool: Their lists of the pool's run; None if unknown.
    """

    qids: list[str]
    qrels: pd.DataFrame
    runs: dict[str, pd.DataFrame]
    pool: pd.DataFrame | None


class _Lists:
    """All systems' lists for the judged queries, in parts, so that memory does not grow with the number of systems.

    They are cut to one depth: if unjudged documents are removed, deeper lists have more documents that move up.

    Args:
        context: The audit.

    Attributes:
        qids: The judged queries, sorted, since resamples depend on their order.
        qrels: Their judgements.
        depth: The length of the longest list of the shallowest system, but at least the cut-off of 10.
        pool: Name and ranked results of the pool's run; None if unknown.
    """

    def __init__(self, context: Context):
        self._context = context
        self.qids = sorted(judged_qids(context.topics, context.qrels))
        qrels = highest_grades(context.qrels[context.qrels["qid"].isin(set(self.qids))], "pooling bias")
        # Documents with a negative label, such as spam, are judged, but judged_only=True would remove them.
        self.qrels = qrels.assign(label=qrels["label"].clip(lower=0))
        self._longest = {system.name: context.longest_list(system) for system in context.systems}
        self.depth = max(_CUTOFF, min(self._longest.values()))
        self.pool = _pool(context, self.qids)
        self._in_pool = None if self.pool is None else QueryRows(self.pool[1]["qid"])

    def parts(self) -> Iterator[_Part]:
        """The parts, in the order of the queries."""
        systems, pool = self._context.systems, None
        queries = max(1, ROWS // max(self.depth * len(systems), *self._longest.values()))
        for asked, qrels in parts_together(pd.DataFrame({"qid": self.qids}, dtype=object), self.qrels, queries=queries):
            qids = asked["qid"].tolist()
            runs = {s.name: self._context.results(s, depth=self.depth, qids=qids)[_COLUMNS] for s in systems}
            if self.pool is not None and self._in_pool is not None:
                pool = self.pool[1][_COLUMNS].take(self._in_pool.of(qids, self.depth)[0]).reset_index(drop=True)
            yield _Part(qids, qrels, runs, pool)

    def whole(self, system: System, part: _Part) -> pd.DataFrame:
        """A system's lists of a part before they are cut, since the cut can separate tied documents."""
        if self._longest[system.name] <= self.depth:
            return part.runs[system.name]
        return self._context.results(system, qids=part.qids)[_COLUMNS]

    @cached_property
    def inferred_from(self) -> list[str]:
        """The names of the runs from which labels are inferred: those of all systems, and the pool's.

        The pool's run is left out if a system's run contains all of it at the same ranks; otherwise it would count twice.
        """
        names = [system.name for system in self._context.systems]
        if self.pool is None:
            return names
        place, holding = ["qid", "docno", "rank"], set(names)
        for part in self.parts():
            own = cast(pd.DataFrame, part.pool)[place]
            holding = {name for name in holding if len(own.merge(part.runs[name][place])) == len(own)}
        return names if holding else [*names, f"{self.pool[0]} (the pool)"]

    def judgements(self) -> Iterator[pd.DataFrame]:
        """For each part its judgements, with inferred labels for the other documents of the lists."""

        def parts() -> Iterator[tuple[dict[str, pd.DataFrame], pd.DataFrame]]:
            for part in self.parts():
                pool = dict.fromkeys(self.inferred_from[len(part.runs) :], part.pool)
                yield {**part.runs, **pool}, part.qrels

        return inferred_in_parts(parts, depth=max(self._context.depth, _CUTOFF))


def _pool(context: Context, qids: Sequence[str]) -> tuple[str, pd.DataFrame] | None:
    """The pool's name, and its run over judged queries, ranked by its scores; None if there is none."""
    pool = pools_run(context.dataset)
    if pool is None:
        return None
    name, own = pool[0], with_string_ids(pool[1], f"pooling bias, {pool[0]}")
    asked = own["qid"].isin(set(qids))
    own = own if asked.all() else own[asked]
    return (name, ranked(check_run(own, name), f"run {name!r}")) if len(own) else None


def _resampled_means(tables: Sequence[np.ndarray], seed: int) -> list[np.ndarray]:
    """Means of tables [queries, systems] over the same bootstrap samples of queries, shape [resamples, systems] each.

    Samples are drawn in parts, so that memory does not grow with the number of queries; the result is the same as in one go.
    """
    queries, generator = len(tables[0]), np.random.default_rng(seed)
    means = [np.empty((_RESAMPLES, table.shape[1])) for table in tables]
    rows = max(1, CELLS // max(1, tables[0].size))
    for start in range(0, _RESAMPLES, rows):
        drawn = generator.integers(0, queries, (min(rows, _RESAMPLES - start), queries))
        for mean, table in zip(means, tables):
            mean[start : start + rows] = table[drawn].mean(axis=1)
    return means


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def _percent(interval: Interval) -> str:
    return "" if np.isnan(interval.low) else f" [{_share(interval.low)}, {_share(interval.high)}]"


def _signed(interval: Interval) -> str:
    return f"[{interval.low:+.3f}, {interval.high:+.3f}]"
