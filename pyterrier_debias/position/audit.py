"""The position bias in an audit: does quality depend on where the relevant content is?

Null hypothesis of the primary test: relevant passages keep their ranks when they alone are rotated. A retriever searches an index
in which all passages are rotated; for it, the mean paired difference of nDCG@10 on original and rotated passages is zero. It is
examined only if an index of the unchanged passages, made in the same way, ranks as its own does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.bias import Bias, Figure, Finding, Parts, Values, p_text
from pyterrier_debias.core.counterfactuals import Variants
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import deepest, judged_qids, per_query
from pyterrier_debias.core.stage import flatten
from pyterrier_debias.core.statistics import Interval, bootstrap_interval, without_rounding
from pyterrier_debias.core.systems import Context, System, named_where_it_raises
from pyterrier_debias.position.data.rotation import RotatePassages
from pyterrier_debias.position.formulas.attributions import answer_thirds, move_parts, third_parts
from pyterrier_debias.position.measures.sensitivity import PositionSensitivity, reindexing_reason
from pyterrier_debias.position.measures.sensitivity_result import SensitivityResult, labels_of

#: Judged@10 tells how much of a change may be due to rotation bringing up documents that nobody judged.
_MEASURES = ("nDCG@10", "RR@10", "R@10", "Judged@10")
_MAIN = _MEASURES[0]
_CHANGE = "rotated - original"
_DRAWS = 3
#: A mean absolute difference up to which two rankings count as one, a quarter of the margin: scores that differ in their last
#: bits may swap documents, and approximate indexes are not made twice alike.
_SAME = 0.005


class PositionBias(Bias):
    """Does quality depend on where in a passage the relevant content is? Candidates are rotated, and answers are moved.

    Source: Hofstätter et al. 2021; :class:`~pyterrier_debias.PositionSensitivity` does the measurement.

    When not to use it: on texts of one sentence, in which an answer has no other place.
    """

    name = "position"

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: a retriever needs an indexer, and a ranker needs texts that can be changed."""
        if system is None:
            return None
        return reindexing_reason(system, dataset) if system.ranker is None else system.out_of_reach or None

    def examine(self, context: Context) -> Iterator[Finding]:
        """See :meth:`Bias.examine`."""
        for one in self._examined(context):
            yield from one.findings()

    def figures(self, context: Context) -> Sequence[Figure]:
        """See :meth:`Bias.figures`."""
        return _figures(self._examined(context))

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """See :meth:`Bias.measures`: there are none, because one ranking does not show the effect of another place."""
        where = (
            "PositionSensitivity(...).evaluate(...), or a second pipeline in the same experiment: candidates >> "
            "RotatePassages(seed=...) >> ranker"
        )
        return [], {
            f"{_MAIN}, {_CHANGE}": where,
            "displacement of a relevant passage, rotated alone": "PositionSensitivity(...).evaluate(...).displacement",
            "PSI": "PositionSensitivity(...).evaluate(...).psi",
        }

    def _examined(self, context: Context) -> list[_Examined]:
        able = [system for system in context.systems if self.needs(system, context.dataset) is None]
        for system in able:
            context.results(system, depth=1)  # a system that raises does so before the others are probed
        return [context.once(self.name, system, partial(_Examined.of, self, system, context)) for system in able]


@dataclass(frozen=True, eq=False)
class _Examined:
    """One system and what its probe found.

    Attributes:
        bias: The bias of the findings.
        system: The system.
        result: What the probe found.
        own: The system's values on its own results, one column per measure.
        thirds: Query to the third of its passages in which its answers begin.
        seed: Seed of the intervals.
        place: The system's number in the audit, which determines its colour.
    """

    bias: PositionBias
    system: System
    result: SensitivityResult
    own: pd.DataFrame
    thirds: dict[str, str]
    seed: int
    place: int

    @classmethod
    def of(cls, bias: PositionBias, system: System, context: Context) -> _Examined:
        probe = PositionSensitivity(
            named_where_it_raises(system),
            dataset=context.dataset,
            rotation=RotatePassages(seed=context.seed),
            draws=_DRAWS if context.draws is None else context.draws,
            measures=_MEASURES,
            depth=context.depth,
            seed=context.seed,
            verbose=context.verbose,
        )
        if system.ranker is None:
            result = probe.figures(context.topics, context.qrels)
            judged = sorted(judged_qids(context.topics, context.qrels))
            own = per_query(context.results(system, depth=deepest(_MEASURES)), context.qrels, _MEASURES, judged)
            _check_same_index(system, own, result)
        else:
            variants = context.once("rotated texts", None, Variants)
            result = probe.figures(context.candidates(system), context.qrels, topics=context.topics, variants=variants)
            own = result.per_query.pivot(index="qid", columns="measure", values="original")
        if result.unread:
            context.remarks.append(f"{system.name}: {result.unread}")
        thirds = context.once("answer thirds", None, partial(answer_thirds, context))
        return cls(bias, system, result, own, thirds, context.seed, context.place(system.name))

    # ------------------------------------------------------------------------------------------- findings

    @property
    def unseen(self) -> bool:
        """Whether a ranker may never have seen the rotated passages, so that its figures do not show an effect of 0."""
        return self.system.ranker is not None and bool(self.result.untested)

    def findings(self) -> Iterator[Finding]:
        """Quality, its change under rotation, by placement and by position, and how far passages move."""
        yield from self._quality()
        if self.unseen:
            n, text = len(self.own), f"{self.result.untested}."
            yield self._finding(_MAIN, _CHANGE, np.nan, text, n=n, primary=True, convention="not tested")
            return
        yield from self._rotation()
        yield from self._placement()
        yield from self._indices()
        yield from self._displacement()

    def _finding(self, measure: str, contrast: str, value: float | Interval, text: str, **more: Any) -> Finding:
        notes = f"{self.result.convention}; {more.pop('convention')}" if "convention" in more else self.result.convention
        if self.result.clusters is not None and "values" in more:
            more["clusters"] = self.result.clusters.loc[more["values"].index]
        return self.bias.finding(self.system.name, measure, contrast, value, text, convention=notes, **more)

    def _interval(self, values: pd.Series) -> Interval:
        clusters = labels_of(self.result.clusters, values.index)
        return bootstrap_interval(values.to_numpy(dtype=float), clusters=clusters, level=self.result.level, seed=self.seed)

    @property
    def _how_tested(self) -> str:
        """How a change was tested, for the convention of its figure."""
        if self.result.untested:
            return "not tested"
        together = "" if self.result.clusters is None else " of all queries with the same 'relevant passages' together"
        return f"p by exchange randomisation{together}; the interval inverts this test"

    def _quality(self) -> Iterator[Finding]:
        interval = self._interval(self.own[_MAIN])
        text = f"{_MAIN} is {interval.estimate:.4f} {_brackets(interval)} on the original passages, over {interval.n} queries."
        text = " ".join([text, *self.result.notes[bool(self.result.untested) :]])  # the first of them is the primary row's text
        yield self._finding(_MAIN, "original", interval, text, values=self.own[_MAIN], beside=self._beside())
        if self.system.ranker is None:
            anew = self._interval(self._values(_MAIN)["original"])
            text = f"over a new index of the original passages, {_MAIN} is {anew.estimate:.4f} {_brackets(anew)}."
            yield self._finding(_MAIN, "original, indexed anew", anew, text, values=self._values(_MAIN)["original"])

    def _values(self, measure: str) -> pd.DataFrame:
        frame = self.result.per_query
        return frame[frame["measure"] == measure].set_index("qid")

    def _placed(self, measure: str) -> pd.DataFrame:
        """Quality with the answer at the start, in the middle and at the end, of queries whose answers could be moved."""
        return self._values(measure).dropna(subset=["start", "end"])

    def _beside(self) -> dict[tuple[str, str], Values]:
        """Values that have no figure of their own: (measure, contrast) to values by qid."""
        found: dict[tuple[str, str], Values] = {}
        for measure in _MEASURES:
            values = self._values(measure)
            if measure != _MAIN:
                found[measure, "original"] = self.own[measure]
                if self.system.ranker is None:
                    found[measure, "original, indexed anew"] = values["original"]
            if self.unseen:
                continue
            if measure != _MAIN:
                found[measure, "rotated"] = values["rotated"]
            placed = self._placed(measure)
            for where in ("start", "middle", "end"):
                found[measure, f"answer at the {where}"] = placed[where]
            if measure != _MAIN or not self._moves():
                found[measure, "end - start"] = placed["end"] - placed["start"]
        return found

    def _rotation(self) -> Iterator[Finding]:
        rows = self.result.table[self.result.table["comparison"] == _CHANGE].to_dict("records")
        main, others = rows[0], rows[1:]
        rotated = self._interval(self._values(_MAIN)["rotated"])
        text = _change_in_words(main, "when passages are rotated")
        if self.result.untested:
            text = f"{_MAIN} stays at {main['before']:.3f}: {self.result.untested}."
        if main["delta"] and not np.isnan(main["delta"]):
            text = f"{text[:-1]}; original/rotated - 1 is {main['delta']:+.1%}."
        yield self._finding(_MAIN, "rotated", rotated, text, values=self._values(_MAIN)["rotated"])
        change = self._values(_MAIN)["difference"]
        parts = [Parts("position", third_parts(change, self.thirds))] if self.thirds else []
        primary = self.result.displacement.empty
        yield self._change(main, text, p=main["p"], primary=primary, convention=self._how_tested, values=change, parts=parts)
        if not np.isnan(main["delta"]):
            yield self._finding(
                f"delta {_MAIN}",
                "original/rotated",
                main["delta"],
                text,
                low=main["delta_low"],
                high=main["delta_high"],
                n=int(main["n"]),
                convention="original/rotated - 1 of means over queries, as in Hofstätter et al.",
            )
        text = ", ".join(_change_briefly(row) for row in others)
        for row in others:
            change = self._values(row["measure"])["difference"]
            yield self._change(row, f"{text} when passages are rotated.", convention="not tested", values=change)

    def _moves(self) -> list[dict[str, Any]]:
        """The comparison of answers at the end with answers at the start, where answers could be moved."""
        rows = self.result.table[(self.result.table["comparison"] == "end - start") & (self.result.table["measure"] == _MAIN)]
        return rows.to_dict("records")

    def _placement(self) -> Iterator[Finding]:
        for row in self._moves():
            text = _change_in_words(row, "when answers move from the start of their passages to the end")
            placed = self._placed(_MAIN)
            moves = Parts("position", move_parts(*(placed[place] for place in ("start", "middle", "end"))))
            change = placed["end"] - placed["start"]
            yield self._change(row, text, p=row["p"], convention=self._how_tested, values=change, parts=[moves])

    def _change(self, row: dict[str, Any], text: str, **more: Any) -> Finding:
        return self._finding(
            row["measure"], row["comparison"], row["difference"], text, low=row["low"], high=row["high"], n=int(row["n"]), **more
        )

    def _indices(self) -> Iterator[Finding]:
        for row in self.result.psi.to_dict("records"):
            if np.isnan(row["value"]):
                continue
            chance = f"chance alone gives {row['noise_floor']:.3f}"
            if row["answers"] == "placed":
                contrast, p = "answers placed", row["p"]
                where = f"over {len(self.result.placements)} places where the same answers were put; {chance}"
                null = "permutation of places within queries"
            else:
                contrast, p = "answers as found", row["p_blind"]
                where = (
                    f"over {len(self.result.buckets)} buckets of queries by where their answers begin; {chance}; a ranker blind "
                    f"to position would show {row['blind_floor']:.3f} on these queries"
                )
                null = "exchange of original and rotated lists; chance by permutation of queries"
            index = f"{row['value']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
            text = f"position sensitivity index {index} {where} ({_tested(p)})."
            yield self._finding(
                "PSI",
                contrast,
                row["value"],
                text,
                low=row["low"],
                high=row["high"],
                p=p,
                n=int(row["n"]),
                null_value=row["noise_floor"],
                convention=f"1 - min/max of mean nDCG@10; simultaneous bootstrap interval; p by {null}",
            )

    def _displacement(self) -> Iterator[Finding]:
        found = self.result.displacement_summary()
        if found.empty:
            return
        way, low, high = ("up", -found["high"], -found["low"]) if found["mean"] < 0 else ("down", found["low"], found["high"])
        moved = f"moves {way} by {abs(found['mean']):.2f} ranks on average"
        ends = f"[{low:+.2f}, {high:+.2f}]"
        if self.result.cut_off:
            ends = f"(no interval: the ranker leaves the passage out of some lists of {self.result.cut_off} queries)"
        text = (
            f"a relevant passage that alone is rotated {moved if found['mean'] else 'keeps its rank on average'} {ends}; "
            f"{found['down']:.0%} move down, {found['up']:.0%} up, {found['left_top_10']:.0%} leave the first ten "
            f"({_tested(found['p'])})."
        )
        yield self._finding(
            "displacement",
            "rotated alone",
            found["mean"],
            text,
            low=found["low"],
            high=found["high"],
            p=found["p"],
            n=int(found["n"]),
            values=self.result.displacement.groupby("qid", sort=False)["displacement"].mean(),
            primary=True,
            convention="ranks a relevant passage moves down when it alone is rotated; mean over a query's passages and draws; "
            f"{self._how_tested}",
        )


def _check_same_index(system: System, own: pd.DataFrame, result: SensitivityResult) -> None:
    """Refuse a retriever whose new index of the unchanged passages ranks otherwise: the figures would be of another retriever.

    A run is not compared: its new index is another retriever anyway, as the note on the system says.
    """
    if isinstance(flatten(system.candidates)[0], pt.transformer.SourceTransformer):
        return
    anew = result.per_query[result.per_query["measure"] == _MAIN].set_index("qid")["original"].reindex(own.index)
    differences = without_rounding((own[_MAIN] - anew).abs().to_numpy())
    if differences.mean() > _SAME:
        raise InputError(
            f"the index over the same passages ranks otherwise than the one that is audited ({_MAIN} {anew.mean():.3f} instead "
            f"of {own[_MAIN].mean():.3f}, {np.count_nonzero(differences)} of {len(own)} queries differ): words of other fields, "
            f"such as titles, another tokeniser, or texts that are not stored whole; audit a retriever over an index of the "
            f"passages' texts alone "
            f"(TerrierCollection takes a tokeniser=...), or give System(name, pipeline, indexer=...) that indexes as its own "
            f"index was made"
        )


def _brackets(interval: Interval) -> str:
    return f"[{interval.low:.4f}, {interval.high:.4f}]"


def _ends(row: dict[str, Any]) -> str:
    return f"[{row['low']:+.3f}, {row['high']:+.3f}]"


def _tested(p: float) -> str:
    return "not tested" if np.isnan(p) else f"p = {p_text(p)}"


def _is_still(row: dict[str, Any]) -> bool:
    return row["difference"] == 0 and not (row["low"] < 0 or row["high"] > 0)  # of one query there is no interval


def _change_briefly(row: dict[str, Any]) -> str:
    change = "does not change" if _is_still(row) else f"changes by {row['difference']:+.3f} {_ends(row)}"
    return f"{row['measure']} {change}"


def _change_in_words(row: dict[str, Any], when: str) -> str:
    measure, change = row["measure"], row["difference"]
    if _is_still(row):
        return f"{measure} stays at {row['before']:.3f} {when}: no query changes."
    verb = "hardly moves," if abs(change) < 0.0005 else "falls" if change < 0 else "rises"
    return (
        f"{measure} {verb} from {row['before']:.3f} to {row['after']:.3f} {when}: "
        f"{change:+.3f} {_ends(row)} over {row['n']:.0f} queries, of which {row['changed']:.0f} "
        f"change{'s' * (row['changed'] == 1)} ({_tested(row['p'])})."
    )


def _figures(examined: list[_Examined]) -> list[Figure]:
    examined = [one for one in examined if not one.unseen]
    if not examined:
        return []
    from pyterrier_debias.core.plots import spanned

    figures = [
        Figure(
            "rotation",
            f"Mean {_MAIN} on original and on rotated passages, with 95 % bootstrap intervals over {spanned(_judged(examined))} "
            f"judged queries. The two intervals of a system ignore that the same queries are compared: see the table for the "
            f"paired difference.",
            lambda axes: _draw_rotation(axes, examined),
        )
    ]
    placed = [one for one in examined if len(one.result.placements) > 1]
    if placed:
        figures.append(
            Figure(
                "placement",
                f"Mean {_MAIN} where the answer's sentence is rotated to the start, the middle or the end of each relevant "
                f"passage, with 95 % bootstrap intervals; the same {spanned(_placed(placed))} queries of a system at "
                f"each place.",
                lambda axes: _draw_placement(axes, placed),
            )
        )
    bucketed = [one for one in examined if len(one.result.buckets) > 1]
    if bucketed:
        figures.append(
            Figure(
                "answer-position",
                f"Mean {_MAIN} on original passages by where the answers begin (mean over a query's relevant passages), with 95 "
                f"% bootstrap intervals; {spanned(_bucketed(bucketed))} queries in buckets that hold equally many, as far as "
                f"ties allow. Buckets hold different queries.",
                lambda axes: _draw_buckets(axes, bucketed),
            )
        )
    return figures


def _draw_rotation(axes: Any, examined: list[_Examined]) -> None:
    from pyterrier_debias.core import plots

    with plots.style():
        for x, one in enumerate(examined):
            values, colour = one._values(_MAIN), plots.colour(one.place)
            for offset, column, face in ((-0.12, "original", colour), (0.12, "rotated", "white")):
                interval = one._interval(values[column])
                ends = plots.ends(interval.estimate, interval.low, interval.high)
                axes.errorbar(x + offset, interval.estimate, yerr=ends, fmt="o", color=colour, markerfacecolor=face)
        plots.name_ticks(axes, [one.system.name for one in examined])
        axes.set_xlim(-0.6, len(examined) - 0.4)
        plots.label_axes(axes, x="left, filled: original; right, hollow: rotated", y=f"mean {_MAIN}", n=_judged(examined))


def _draw_placement(axes: Any, examined: list[_Examined]) -> None:
    from pyterrier_debias.core import plots

    with plots.style():
        for one in examined:
            table = one.result.placements
            _line(axes, np.arange(len(table)), table, one)
        axes.set_xticks(range(len(table)), table["placement"])
        axes.legend()
        plots.label_axes(axes, x="where the answer was put", y=f"mean {_MAIN}", n=_placed(examined))


def _draw_buckets(axes: Any, examined: list[_Examined]) -> None:
    from pyterrier_debias.core import plots

    with plots.style():
        for one in examined:
            table = one.result.buckets
            _line(axes, (table["left"] + table["right"]) / 2, table, one)
        axes.legend()
        plots.label_axes(axes, x="characters before the answer (middle of the bucket)", y=f"mean {_MAIN}", n=_bucketed(examined))


def _judged(examined: list[_Examined]) -> list[int]:
    """For each system, the number of judged queries behind its figures."""
    return [len(one.own) for one in examined]


def _placed(examined: list[_Examined]) -> list[int]:
    """For each system, the number of queries whose answers were moved."""
    return [int(one.result.placements["n"].max()) for one in examined]


def _bucketed(examined: list[_Examined]) -> list[int]:
    """For each system, the number of queries that have a candidate with an answer: rankers get fewer than retrievers return."""
    return [int(one.result.buckets["n"].sum()) for one in examined]


def _line(axes: Any, x: Any, table: pd.DataFrame, one: _Examined) -> None:
    from pyterrier_debias.core import plots

    ends = plots.ends(table["value"], table["low"], table["high"])
    label = plots.legend_label(one.system.name)
    axes.errorbar(x, table["value"], yerr=ends, fmt="o-", color=plots.colour(one.place), label=label)
