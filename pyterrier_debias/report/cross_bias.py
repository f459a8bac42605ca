"""What no room can say alone: the wording of queries by the rank at which labellers first met an answer.

Rooms do not import each other. What needs two of them is joined here, and runs where an audit asks for both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import PER_QUERY_COLUMNS, Figure, Finding, RoomResult, p_text, per_query_values
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.statistics import Interval, t_interval
from pyterrier_debias.core.systems import Context

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Findings that speak of the collection, not of a system.
ALL = "all systems"
_DRAWS = 9_999
_TTR = "TTR"
_NEVER_ANSWERED = "never answered"


@dataclass(frozen=True)
class Joined:
    """A part of the audit that two rooms make together.

    Attributes:
        name: What reports call it where it is missing.
        rooms: The rooms that must have run, by name.
        needs: ``needs(context)`` gives the reason why it cannot be said, in one sentence, or None where it can.
        run: ``run(context)`` gives a :class:`~pyterrier_debias.core.bias.RoomResult`; its findings carry one of the rooms' names.
    """

    name: str
    rooms: tuple[str, ...]
    needs: Callable[[Context], str | None]
    run: Callable[[Context], RoomResult]


def unjoined_reason(part: Joined, ran: Sequence[str], context: Context) -> str | None:
    """Why a part cannot be made; None where it can.

    Args:
        part: The part.
        ran: The rooms that examined something, by name.
        context: The audit.

    Returns:
        One sentence, or None.

    Example:
        >>> unjoined_reason(WORDING, ["linguistic"], None)
        'it needs the survivorship room, which examined nothing'
    """
    for room in part.rooms:
        if room not in ran:
            return f"it needs the {room} room, which examined nothing"
    return part.needs(context)


def wording_by_rank(topics: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Queries with their complexity and their type-token ratio, measured as the linguistic room measures it.

    Args:
        topics: ``qid``, and ``query``; ``complexity`` is taken as it is where it is there.

    Returns:
        The topics with ``complexity`` and ``TTR`` (different words by words, in (0, 1]); NaN where a text defines neither, and
        without a column that cannot be had. And how complexity was measured, in words.

    Example:
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["to be or not to be"], "complexity": [0.2]})
        >>> found, how = wording_by_rank(topics)
        >>> round(float(found["TTR"].iloc[0]), 3), how
        (0.667, 'complexity as the topics have it')
    """
    from pyterrier_debias.linguistic.audit import measured_complexity
    from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

    found, how = measured_complexity(topics)
    known = topics["query"].map(lambda query: isinstance(query, str)) if "query" in topics.columns else None
    if known is not None and known.any():
        ratio = LinguisticComplexity([_TTR], keep_indices=True, out="_mean")(topics.loc[known, ["qid", "query"]])
        found = found.assign(**{_TTR: ratio[_TTR].reindex(found.index)})
    return found, how


def _needs_shown_lists(context: Context) -> str | None:
    from pyterrier_debias.survivorship.audit import unshown_reason

    return unshown_reason(provided(context.dataset, "get_candidates"), context.qrels)


def _wording(context: Context) -> RoomResult:
    return _Wording.of(context).result()


WORDING = Joined("survivorship and linguistic", ("survivorship", "linguistic"), _needs_shown_lists, _wording)

#: All parts of this kind.
JOINED = (WORDING,)


@dataclass(frozen=True, eq=False)
class _Wording:
    """Complexity and type-token ratio by first relevant rank.

    Attributes:
        topics: The queries that labellers were shown something for: ``qid``, ``first_relevant_rank``, and the measures.
        measures: Column to what it is called in a sentence.
        how: How complexity was measured.
        seed: Of the permutations.
    """

    topics: pd.DataFrame
    measures: dict[str, str]
    how: str
    seed: int

    @classmethod
    def of(cls, context: Context) -> _Wording:
        from pyterrier_debias.linguistic.audit import COMPLEXITY
        from pyterrier_debias.survivorship.audit import answer_grade, shown_queries

        shown, _ = shown_queries(context, answer_grade(context.dataset, context.qrels))
        topics, how = wording_by_rank(shown)
        names = {COMPLEXITY: "complexity of the wording", _TTR: "type-token ratio of queries"}
        return cls(topics, {name: said for name, said in names.items() if name in topics.columns}, how, context.seed)

    def result(self) -> RoomResult:
        """Findings, the values behind them, and the figure."""
        findings, frames = [], []
        for measure in self.measures:
            for part in (self._means(measure), self._trend(measure)):
                for finding, qids, values in part:
                    findings.append(finding)
                    if values is not None:
                        about = {name: getattr(finding, name) for name in ("system", "bias", "measure", "group")}
                        frames.append(per_query_values(**about, qids=qids, values=values))
        per_query = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=PER_QUERY_COLUMNS)
        return RoomResult(findings, per_query, self._figures() if frames else ())

    def _own(self, measure: str) -> pd.DataFrame:
        """Queries that have a value: ``qid``, ``rank``, ``value``."""
        own = pd.DataFrame(
            {"qid": self.topics["qid"], "rank": self.topics["first_relevant_rank"], "value": self.topics[measure]}
        )
        return own.dropna(subset=["value"]).astype({"rank": "float64", "value": "float64"}).reset_index(drop=True)

    def bins(self, measure: str) -> Iterator[tuple[str, pd.DataFrame, Interval]]:
        """The survivorship room's bins that hold a query, and the queries that were never answered.

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

    def _finding(self, measure: str, group: str, found: Interval, text: str, convention: str, **more: Any) -> Finding:
        how = f"{convention}; {self.how}" if measure != _TTR else f"{convention}; different words by words, as they stand"
        ends = {"low": found.low, "high": found.high, "n": found.n, "text": f"{ALL}: {text}", "convention": how}
        return Finding(ALL, WORDING.rooms[0], measure, group, found.estimate, **ends, **more)

    def _means(self, measure: str) -> Iterator[tuple[Finding, pd.Series, pd.Series]]:
        rows = list(self.bins(measure))
        means = ", ".join(f"{found.estimate:.3f} ({label}, n = {found.n})" for label, _, found in rows)
        text = f"the mean {self.measures[measure]} is {means}."
        how = f"mean over queries; Student's interval{', cut to [0, 1]' if measure == _TTR else ''}; not tested"
        for label, own, found in rows:
            yield self._finding(measure, label, found, text, how), own["qid"], own["value"]

    def _trend(self, measure: str) -> Iterator[tuple[Finding, pd.Series | None, np.ndarray | None]]:
        from pyterrier_debias.survivorship.formulas.nested import rank_influence, trend

        own = self._own(measure)
        own = own[np.isfinite(own["rank"])].reset_index(drop=True)
        values, ranks = own["value"].to_numpy(), own["rank"].to_numpy()
        found = trend(values, ranks, draws=_DRAWS, seed=self.seed)
        if np.isnan(found.rho):
            return
        # What describes the queries is no test of a ranker: its p is said, and takes nothing from the tests that are corrected.
        convention = (
            "Spearman's rank correlation over answered queries; Bonett and Wright's interval; p by permutation, in the sentence "
            "only: not among the corrected tests"
        )
        direction = "lower" if found.rho < 0 else "higher"
        text = (
            f"the later labellers met the answer, the {direction} is the {self.measures[measure]}: rank correlation "
            f"{found.rho:+.2f} [{found.low:+.2f}, {found.high:+.2f}] over {found.n} answered queries, chance alone "
            f"{found.noise_floor:.2f} (p = {p_text(found.p)}, not corrected)."
        )
        interval = Interval(found.rho, found.low, found.high, 0.95, found.n)
        finding = self._finding(
            f"rho of {measure}", "first relevant rank", interval, text, convention, noise_floor=found.noise_floor
        )
        yield finding, own["qid"], rank_influence(values, ranks)

    # ------------------------------------------------------------------------------------------- figure

    def _figures(self) -> Sequence[Figure]:
        counts = [f"{len(self._own(measure))} queries ({measure})" for measure in self.measures]
        return [
            Figure(
                "wording",
                f"Mean {' and '.join(self.measures.values())} by the rank at which labellers first met an answer, with 95 % "
                f"intervals, over {' and '.join(dict.fromkeys(counts))}. Groups hold different queries. Dashed: the mean over "
                f"all of them.",
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
                    ends = np.nan_to_num(np.clip([[found.estimate - found.low], [found.high - found.estimate]], 0, None))
                    colour = plots.GREY if label == _NEVER_ANSWERED else plots.colour(place)
                    panel.errorbar(x, found.estimate, yerr=ends, fmt="o", color=colour)
                panel.axhline(self._own(measure)["value"].mean(), color=plots.GREY, linestyle="--", linewidth=1, zorder=0)
                panel.set_xticks(range(len(rows)), [f"{_short(label)}\nn = {found.n}" for label, _, found in rows])
                panel.set_xlim(-0.6, len(rows) - 0.4)
                n = sum(found.n for *_, found in rows)
                plots.label_axes(panel, x="rank of the first answer", y=f"mean {said}", n=n)


def _short(label: str) -> str:
    """A bin's label where there is little room.

    Example:
        >>> _short("first met at 7 or later"), _short(_NEVER_ANSWERED)
        ('7+', 'never')
    """
    return label.removeprefix("first met at ").replace(" or later", "+").replace(" to ", "-").removesuffix(" answered")
