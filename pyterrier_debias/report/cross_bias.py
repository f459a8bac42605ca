"""A figure across two biases: the wording of queries by the rank at which labellers first met an answer.

Biases do not import each other. Figures that need two biases are here, and are computed if an audit examines both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import CORRELATION, Examined, Figure, Finding, JointBias, p_text
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.statistics import Interval, t_interval
from pyterrier_debias.core.systems import Context, System

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The system of findings about the collection.
ALL = "all systems"
_RESAMPLES = 9_999
_TTR = "TTR"
_NEVER_ANSWERED = "never answered"


class WordingByRank(JointBias):
    """How queries are worded, by the rank at which labellers first met an answer: easy queries may be worded differently.

    When not to use it: as a finding about rankers; it describes the queries of a collection.
    """

    name = "survivorship and linguistic"
    #: The biases that must have been examined; findings are shown with the first.
    biases = ("survivorship", "linguistic")

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: the lists that labellers were shown."""
        from pyterrier_debias.survivorship.audit import unshown_reason

        return unshown_reason(provided(dataset, "get_candidates"), provided(dataset, "get_qrels"))

    def finding(self, *args: Any, **more: Any) -> Finding:
        """See :meth:`Bias.finding`; it is shown with the first of the biases."""
        return replace(super().finding(*args, **more), bias=self.biases[0])

    def compute(self, context: Context) -> Examined:
        """See :meth:`JointBias.compute`."""
        return _Wording.of(self, context)


#: All figures across biases.
CROSS_BIASES = (WordingByRank(),)


def missing_reason(cross: WordingByRank, ran: Sequence[str], context: Context) -> str | None:
    """The reason why a figure across several biases cannot be computed; None if it can.

    Args:
        cross: The figure across biases.
        ran: The names of the examined biases.
        context: The audit.

    Returns:
        One sentence, or None.

    Example:
        >>> missing_reason(CROSS_BIASES[0], ["linguistic"], None)
        'this comparison needs figures of survivorship bias, which was not examined on any system'
    """
    for name in cross.biases:
        if name not in ran:
            return f"this comparison needs figures of {name} bias, which was not examined on any system"
    return cross.needs(None, context.asked)


def wording_by_rank(topics: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Queries with their complexity, measured as the linguistic bias measures it, and their type-token ratio.

    Args:
        topics: ``qid`` and ``query``; a column ``complexity`` is used if there is one.

    Returns:
        The topics with ``complexity`` and ``TTR`` (distinct words divided by words, in (0, 1]); a value is NaN if it is not
        defined for the text, and a column that cannot be computed is missing. Also how complexity was measured, in words.

    Example:
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["to be or not to be"], "complexity": [0.2]})
        >>> found, how = wording_by_rank(topics)
        >>> round(float(found["TTR"].iloc[0]), 3), how
        (0.667, 'complexity from the topics')
    """
    from pyterrier_debias.linguistic.audit import measured_complexity
    from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

    found, how = measured_complexity(topics)
    known = topics["query"].map(lambda query: isinstance(query, str)) if "query" in topics.columns else None
    if known is not None and known.any():
        ratio = LinguisticComplexity([_TTR], keep_indices=True, out="_mean")(topics.loc[known, ["qid", "query"]])
        found = found.assign(**{_TTR: ratio[_TTR].reindex(found.index)})
    return found, how


@dataclass(frozen=True, eq=False)
class _Wording:
    """Complexity and type-token ratio by first relevant rank.

    Attributes:
        bias: The bias that makes the findings.
        topics: The queries that labellers were shown something for: ``qid``, ``first_relevant_rank``, and the measures.
        measures: Column to its name in a sentence.
        how: How complexity was measured.
        seed: Seed of the permutations.
    """

    bias: WordingByRank
    topics: pd.DataFrame
    measures: dict[str, str]
    how: str
    seed: int

    @classmethod
    def of(cls, bias: WordingByRank, context: Context) -> _Wording:
        from pyterrier_debias.linguistic.audit import COMPLEXITY
        from pyterrier_debias.survivorship.audit import answer_grade, shown_queries

        shown, _ = shown_queries(context, answer_grade(context.dataset, context.qrels))
        topics, how = wording_by_rank(shown)
        names = {COMPLEXITY: "complexity of the wording", _TTR: "type-token ratio of queries"}
        return cls(bias, topics, {name: said for name, said in names.items() if name in topics.columns}, how, context.seed)

    def findings(self) -> Iterator[Finding]:
        """Means by rank and their trend, for each measure."""
        for measure in self.measures:
            yield from self._means(measure)
            yield from self._trend(measure)

    def _own(self, measure: str) -> pd.DataFrame:
        """Queries that have a value: ``qid``, ``rank``, ``value``."""
        own = pd.DataFrame(
            {"qid": self.topics["qid"], "rank": self.topics["first_relevant_rank"], "value": self.topics[measure]}
        )
        return own.dropna(subset=["value"]).astype({"rank": "float64", "value": "float64"}).reset_index(drop=True)

    def bins(self, measure: str) -> Iterator[tuple[str, pd.DataFrame, Interval]]:
        """The bins of the survivorship bias that hold a query, and the queries that were never answered.

        Args:
            measure: A column.

        Yields:
            Label, queries, and the mean with Student's interval, cut to [0, 1] for the ratio.
        """
        from pyterrier_debias.survivorship.audit import rank_bins

        own = self._own(measure)
        ranks = own["rank"].to_numpy()
        groups = [*rank_bins(ranks), (_NEVER_ANSWERED, ~np.isfinite(ranks))]
        for label, rows in groups:
            if rows.any():
                found = t_interval(own.loc[rows, "value"].to_numpy())
                yield label, own[rows], found.within() if measure == _TTR else found

    def _finding(self, measure: str, contrast: str, found: Interval, text: str, convention: str, **more: Any) -> Finding:
        how = f"{convention}; {self.how}" if measure != _TTR else f"{convention}; distinct words divided by words, as they stand"
        return self.bias.finding(ALL, measure, contrast, found, text, convention=how, **more)

    def _means(self, measure: str) -> Iterator[Finding]:
        rows = list(self.bins(measure))
        means = ", ".join(f"{found.estimate:.3f} ({label}, n = {found.n})" for label, _, found in rows)
        text = f"the mean {self.measures[measure]} is {means}."
        how = f"mean over queries; Student's interval{', cut to [0, 1]' if measure == _TTR else ''}; not tested"
        for label, own, found in rows:
            yield self._finding(measure, label, found, text, how, values=own.set_index("qid")["value"])

    def _trend(self, measure: str) -> Iterator[Finding]:
        from pyterrier_debias.survivorship.formulas.nested import rank_influence, trend

        own = self._own(measure)
        own = own[np.isfinite(own["rank"])].reset_index(drop=True)
        values, ranks = own["value"].to_numpy(), own["rank"].to_numpy()
        found = trend(values, ranks, resamples=_RESAMPLES, seed=self.seed)
        if np.isnan(found.rho):
            return
        # This describes queries and tests no ranker: its p is only in the sentence, so it does not enter the correction.
        convention = (
            "Spearman's rank correlation over answered queries; Bonett and Wright's interval; p by permutation, given only in "
            "the sentence and not among the corrected tests"
        )
        direction = "lower" if found.rho < 0 else "higher"
        text = (
            f"the later labellers met the answer, the {direction} the {self.measures[measure]}: rank correlation "
            f"{found.rho:+.2f} [{found.low:+.2f}, {found.high:+.2f}] over {found.n} answered queries, chance alone "
            f"{found.noise_floor:.2f} (p = {p_text(found.p)}, not corrected)."
        )
        interval = Interval(found.rho, found.low, found.high, 0.95, found.n)
        influence = pd.Series(rank_influence(values, ranks), index=own["qid"].to_numpy())
        yield self._finding(
            f"{CORRELATION}{measure}", "first relevant rank", interval, text, convention,
            null_value=found.noise_floor, values=influence,
        )

    # ------------------------------------------------------------------------------------------- figure

    def figures(self) -> Sequence[Figure]:
        """Means by rank, where a query has a value."""
        if not any(len(self._own(measure)) for measure in self.measures):
            return []
        counts = [f"{len(self._own(measure))} queries ({measure})" for measure in self.measures]
        return [
            Figure(
                "wording",
                f"Mean {' and '.join(self.measures.values())} by the rank at which labellers first met an answer, with 95 % "
                f"intervals, over {' and '.join(dict.fromkeys(counts))}. Groups hold different queries. Dashed: the mean over "
                f"all queries.",
                self.draw,
            )
        ]

    def draw(self, axes: Axes) -> None:
        """One panel a measure, side by side, since their units differ.

        Args:
            axes: Matplotlib axes; the panels stand inside.
        """
        from pyterrier_debias.core import plots

        axes.set_axis_off()
        number = len(self.measures)
        width = (1 - 0.2 * (number - 1)) / number
        with plots.style():
            for place, (measure, said) in enumerate(self.measures.items()):
                panel = axes.inset_axes((place * (width + 0.2), 0.0, width, 1.0))
                rows = list(self.bins(measure))
                for x, (label, _, found) in enumerate(rows):
                    ends = plots.ends(found.estimate, found.low, found.high)
                    colour = plots.GREY if label == _NEVER_ANSWERED else plots.colour(place)
                    panel.errorbar(x, found.estimate, yerr=ends, fmt="o", color=colour)
                panel.axhline(self._own(measure)["value"].mean(), color=plots.GREY, linestyle="--", linewidth=1, zorder=0)
                panel.set_xticks(range(len(rows)), [f"{_short(label)}\nn = {found.n}" for label, _, found in rows])
                panel.set_xlim(-0.6, len(rows) - 0.4)
                plots.label_axes(panel, x="rank of the first answer", y=f"mean {said}")


def _short(label: str) -> str:
    """A bin's label, shortened.

    Example:
        >>> _short("first met at 7 or later"), _short(_NEVER_ANSWERED)
        ('7+', 'never')
    """
    return label.removeprefix("first met at ").replace(" or later", "+").replace(" to ", "-").removesuffix(" answered")
