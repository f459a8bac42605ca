"""SurvivorshipCurve: quality over the queries that would have survived if labellers had been shown fewer documents.

It gives Figure 5.1 and Appendix A of Gupta (2021), with additions: the size of every subset, both zero-filled and conditional
means, strata by first relevant rank, intervals, a test of the trend, and all of these by query type. The mathematics is in
:mod:`pyterrier_debias.survivorship.formulas.nested`.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import permutations
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.evaluation import parse_measures, per_query, value_range
from pyterrier_debias.core.frames import (
    check_names,
    check_pairs,
    check_scores,
    highest_grades,
    numbers,
    reads_frames,
    with_string_ids,
)
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import LEAST_UNITS, Interval, correct, paired_t
from pyterrier_debias.survivorship.data.ranks import NEVER, as_first_ranks, list_strata, types_of, with_ranks
from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset
from pyterrier_debias.survivorship.formulas.nested import difference_of_means, nested_means, strata_means, trend

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

#: The group of all types of queries.
EVERY_TYPE = "all types"
#: Subsets: answered within k documents is ``'1'``, ``'2'``, ...
ANSWERED, ALL = "answered", "all"
#: How means treat unanswered queries.
UNANSWERED = ("drop", "zero_fill")

_ENDS = [f"{what}{end}" for what in ("mean", "zero_filled", "change") for end in ("", "_low", "_high")]
VALUE_COLUMNS = ["name", "measure", "qid", "type", "first_relevant_rank", "list", "cluster", "value"]
TABLE_COLUMNS = ["name", "measure", "type", "subset", "k", "n", "total", "share", *_ENDS]
STRATA_COLUMNS = ["name", "measure", "type", "first_relevant_rank", "n", "mean", "mean_low", "mean_high"]
TREND_COLUMNS = ["name", "measure", "type", "rho", "low", "high", "p", "p_corrected", "noise_floor", "slope", "n"]
DISTORTION_COLUMNS = ["name", "baseline", "measure", "subset", "n", "total", "survivors", "all", "distortion", "low", "high"]
ORDER_COLUMNS = ["measure", "subset", "n", "tau", "swapped", "reversed"]
DIFFERENCE_COLUMNS = ["name", "baseline", "measure", "subset", "n", "difference", "low", "high", "p", "p_corrected"]


@dataclass(frozen=True, eq=False, repr=False)
class SurvivorshipResult:
    """The result of :meth:`SurvivorshipCurve.evaluate`: means over survivors, strata, trends and differences.

    Attributes:
        table: One row per system (``name``), ``measure``, ``type`` and ``subset``: queries answered within 1, 2, ... documents,
            ``answered`` anywhere, and ``all``. ``n`` of ``total`` queries (``share``); the conditional ``mean``, the
            ``zero_filled`` one, and the ``change`` of the conditional mean from that over all answered queries, each with its
            interval. In the row ``all``, the mean is over every query under the given judgements; it equals the zero-filled one
            unless a document is judged relevant that labellers were not shown.
        strata: One row per system, measure, type and ``first_relevant_rank``: strata that share no query.
        trend: One row per system, measure and type: rank correlation of the measure with the first relevant rank among answered
            queries, with interval, p by permutation (corrected over the table by Holm's method), the value to expect by chance
            alone (``noise_floor``), and the ``slope``, the change per rank. Ranks are compared among queries with equally many
            answers in equally long lists; see :func:`~pyterrier_debias.survivorship.data.ranks.list_strata`.
        differences: System less baseline, paired by query, in each subset (conditional means), with p of the paired t-test,
            corrected over the table; empty without a baseline.
        per_query: ``name``, ``measure``, ``qid``, ``type``, ``first_relevant_rank`` (infinite for never), ``list`` (its
            stratum, such as ``'2 of 10'``: answers and length; empty if they were not given), ``cluster`` (empty without
            clusters), ``value``.
        notes: Remarks for the reader.
        convention: The options under which all this was computed.
        options: The options of the :class:`SurvivorshipCurve`.
        level: Coverage of intervals.
    """

    table: pd.DataFrame
    strata: pd.DataFrame
    trend: pd.DataFrame
    differences: pd.DataFrame
    per_query: pd.DataFrame
    notes: tuple[str, ...]
    convention: str
    options: Mapping[str, Any]
    level: float = 0.95

    def __repr__(self) -> str:
        """The trends in one line."""
        rows = self.trend[self.trend["type"] == EVERY_TYPE].to_dict("records")
        found = "; ".join(f"{r['name']}: rho {r['rho']:+.3f} of {r['measure']}, p = {r['p']:.2g}" for r in rows[:4])
        return f"<SurvivorshipResult: {found}{'; ...' if len(rows) > 4 else ''}>"

    def identity(self) -> pd.DataFrame:
        """Shows that the mean over all queries is the mean over answered ones times the share answered.

        Returns:
            One row per system and measure: ``all`` (zero-filled mean over all queries), ``answered`` (mean over answered ones),
            ``share`` (of queries answered) and ``product`` (answered * share), which equals ``all``.
        """
        rows = self.table[(self.table["type"] == EVERY_TYPE) & (self.table["subset"] == ANSWERED)].reset_index(drop=True)
        rows = rows[["name", "measure", "n", "total", "zero_filled", "mean", "share"]]
        rows = rows.rename(columns={"zero_filled": "all", "mean": "answered"})
        return rows.assign(product=rows["answered"] * rows["share"])

    def against_all(self, *, baseline: str | None = None) -> pd.DataFrame:
        """How far the mean over survivors is from the mean over all queries.

        This needs judgements that say what is relevant for queries that labellers did not answer, as in a simulation on a
        collection that is already judged; if an unanswered query has no relevant document, it counts as 0, as in
        :meth:`identity`.

        Args:
            baseline: A system: compare the mean lead of each other system over it. None: compare each system's mean.

        Returns:
            One row per system, measure and subset: ``survivors`` (mean over them), ``all`` (over all queries, as judged),
            ``distortion`` (the former less the latter) with its interval, which allows for the shared queries; ``n`` of
            ``total`` queries. ``baseline`` is empty if there is none.

        Raises:
            InputError: If the baseline is not one of the systems.

        Example:
            >>> frame = pd.DataFrame({"qid": list("abc"), "value": [1.0, 0.5, 0.0], "first_relevant_rank": [1, 2, np.inf]})
            >>> found = curve_of_values(frame.assign(name="mine", measure="RR"), ranks=1, resamples=9).against_all()
            >>> found[["subset", "n", "survivors", "all", "distortion"]].values.tolist()
            [['1', 1, 1.0, 0.5, 0.5], ['answered', 2, 0.75, 0.5, 0.25]]
        """
        rows: list[dict[str, Any]] = []
        for measure, wide, subsets, clusters in _by_measure(self.per_query, self._thresholds):
            _check_baseline("SurvivorshipResult", baseline, wide.columns)
            every = np.ones(len(wide), dtype=bool)
            for name in wide.columns:
                if name == baseline:
                    continue
                v = wide[name].to_numpy() - (wide[baseline].to_numpy() if baseline is not None else 0.0)
                for subset, within in subsets.items():
                    found = difference_of_means(v, within, every, clusters=clusters, level=self.level)
                    found = _of_enough(found, within, clusters)
                    survivors = float(v[within].mean()) if within.any() else float("nan")
                    rows.append(
                        {
                            "name": name, "baseline": baseline or "", "measure": measure, "subset": subset, "n": found.n,
                            "total": len(v), "survivors": survivors, "all": float(v.mean()), "distortion": found.estimate,
                            "low": found.low, "high": found.high,
                        }
                    )  # fmt: skip
        return _frame(rows, DISTORTION_COLUMNS)

    def order(self) -> pd.DataFrame:
        """Whether the order of the systems is the same among survivors as over all queries.

        This needs the same judgements as :meth:`against_all`.

        Returns:
            One row per measure and subset: Kendall's ``tau`` (b) between the systems' means among ``n`` survivors and over all
            queries; ``swapped``, the pairs that change places, with the better one over all queries first (``'BM25 > mine'``);
            and ``reversed``, those of these pairs for which both differences have intervals without 0. Pairs are separated by
            ``'; '``.
        """
        from scipy import stats

        rows: list[dict[str, Any]] = []
        for measure, wide, subsets, clusters in _by_measure(self.per_query, self._thresholds):
            every, means = np.ones(len(wide), dtype=bool), wide.mean().round(12)  # equal means may differ in their last bits
            for subset, within in subsets.items():
                there = wide[within].mean().round(12)
                swapped, surely = [], []
                for better, worse in permutations(wide.columns, 2):
                    if not (means[better] > means[worse] and there[better] < there[worse]):
                        continue
                    swapped.append(f"{better} > {worse}")
                    d = wide[better].to_numpy() - wide[worse].to_numpy()
                    before, after = (
                        _of_enough(difference_of_means(d, chosen, None, clusters=clusters, level=self.level), chosen, clusters)
                        for chosen in (every, within)
                    )
                    if before.low > 0 and after.high < 0:
                        surely.append(swapped[-1])
                tau = float(stats.kendalltau(means, there).statistic) if within.any() and len(means) > 1 else float("nan")
                pairs = {"swapped": "; ".join(swapped), "reversed": "; ".join(surely)}
                rows.append({"measure": measure, "subset": subset, "n": int(within.sum()), "tau": tau, **pairs})
        return _frame(rows, ORDER_COLUMNS)

    def appendix(self, measure: str | None = None, *, unanswered: str = "drop", kind: str = EVERY_TYPE) -> pd.DataFrame:
        """Means in the layout of Appendix A of the thesis.

        Args:
            measure: Which measure; None for the first.
            unanswered: ``'drop'``: means over survivors, as in the thesis; ``'zero_fill'``: over all queries, counting those
                without an answer within the threshold as 0. The row ``All`` is zero-filled in both.
            kind: Which type of queries.

        Returns:
            Frame ``k``, ``n`` and one column per system; a row for all queries, and one per threshold, the last one first.

        Raises:
            InputError: For an unknown measure, treatment or type, a system with the name of another column, or a result without
                values.
        """
        check_choice("appendix", "unanswered", unanswered, UNANSWERED)
        rows = self._rows(measure, kind)
        if rows.empty:
            raise InputError("appendix: the result holds no values; give values of at least one system and query")
        taken = next((name for name in ("k", "n") if name in set(rows["name"])), None)
        if taken is not None:
            raise InputError(f"appendix: a system is named {taken!r}, like a column of the table; give it another name")
        column = "mean" if unanswered == "drop" else "zero_filled"
        own = rows[~rows["subset"].isin([ANSWERED, ALL])]
        wide = own.pivot(index=["k", "n"], columns="name", values=column).sort_index(ascending=False).reset_index()
        every = rows[rows["subset"] == ANSWERED].set_index("name")
        top = {"k": NEVER, "n": int(every["total"].iloc[0]), **every["zero_filled"].to_dict()}
        table = pd.concat([pd.DataFrame([top]), wide], ignore_index=True)
        names = list(dict.fromkeys(rows["name"]))
        label = ["All" if k == NEVER else str(int(k)) for k in table["k"]]
        return table.assign(k=label, n=table["n"].astype("int64"))[["k", "n", *names]].rename_axis(columns=None)

    def plot(
        self, ax: Axes | None = None, *, measure: str | None = None, kind: str = EVERY_TYPE, order: Sequence[str] | None = None
    ) -> Axes:
        """Draw Figure 5.1 of the thesis: means over all queries and over each subset, solid over survivors, dashed zero-filled.

        Args:
            ax: Matplotlib axes; None makes new ones.
            measure: Which measure; None for the first.
            kind: Which type of queries.
            order: The names of all systems, so that each has the same colour in several figures; None: those of this result.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        rows = self._rows(measure, kind)
        axes = plots.new_axes() if ax is None else ax
        own = rows[~rows["subset"].isin([ANSWERED, ALL])].sort_values("k", ascending=False, kind="stable")
        every = rows[rows["subset"] == ANSWERED].set_index("name")
        labels = ["all", *dict.fromkeys(own["subset"])]
        with plots.style():
            colours = plots.colours(own["name"], order)
            for name, part in own.groupby("name", sort=False):
                place = np.arange(1, len(part) + 1)
                axes.plot(place, part["mean"], "o-", color=colours[name], label=plots.legend_label(name))
                band: dict[str, Any] = {"color": colours[name], "alpha": 0.15, "linewidth": 0}
                axes.fill_between(place, part["mean_low"], part["mean_high"], **band)
                zero = [every.loc[name, "zero_filled"], *part["zero_filled"]]
                axes.plot(range(len(zero)), zero, "x--", color=colours[name], linewidth=1)
            axes.set_xticks(range(len(labels)), labels)
            axes.set_ylim(bottom=0)
            axes.legend(title="solid: answered within k; dashed: others as 0")
            n = int(every["total"].iloc[0]) if len(every) else 0
            plots.label_axes(axes, x="queries answered within the first k documents shown", y=f"mean {self._name(measure)}", n=n)
        return axes

    def plot_strata(
        self, ax: Axes | None = None, *, measure: str | None = None, kind: str = EVERY_TYPE, order: Sequence[str] | None = None
    ) -> Axes:
        """Draw the mean at each first relevant rank, with intervals from six queries on; these strata share no query.

        Args:
            ax: Matplotlib axes; None makes new ones.
            measure: Which measure; None for the first.
            kind: Which type of queries.
            order: The names of all systems, so that each has the same colour in several figures; None: those of this result.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        self._rows(measure, kind)  # refuses what was not measured
        axes = plots.new_axes() if ax is None else ax
        rows = self.strata[(self.strata["measure"] == self._name(measure)) & (self.strata["type"] == kind)]
        names = list(dict.fromkeys(rows["name"]))
        with plots.style():
            colours = plots.colours(names, order)
            for number, name in enumerate(names):
                part = rows[(rows["name"] == name) & (rows["n"] > 0)]
                place = part["first_relevant_rank"].to_numpy(dtype=float) + 0.5 * ((number + 0.5) / len(names) - 0.5)
                enough = (part["n"] >= LEAST_UNITS).to_numpy()
                ends = plots.ends(part["mean"], part["mean_low"].where(enough), part["mean_high"].where(enough))
                axes.errorbar(place, part["mean"], yerr=ends, fmt="o", color=colours[name], label=plots.legend_label(name))
            axes.set_xticks(sorted({int(r) for r in rows["first_relevant_rank"]}))
            axes.legend()
            n = int(rows.loc[rows["name"] == names[0], "n"].sum()) if names else 0
            x = "rank at which labellers first met an answer"
            plots.label_axes(axes, x=x, y=f"mean {self._name(measure)}", n=n, unit="answered queries")
        return axes

    def _name(self, measure: Any) -> str:
        measures = list(dict.fromkeys(self.per_query["measure"]))
        if measure is not None and str(measure) not in measures:
            raise InputError(f"SurvivorshipResult: {str(measure)!r} was not measured; there are {', '.join(measures)}")
        return str(measure) if measure is not None else measures[0] if measures else ""

    @property
    def _thresholds(self) -> dict[str, float]:
        return {subset: k for subset, k in zip(self.table["subset"], self.table["k"]) if subset != ALL}

    def _rows(self, measure: Any, kind: str) -> pd.DataFrame:
        rows = self.table[self.table["type"] == kind]
        if rows.empty and len(self.table):
            there = ", ".join(dict.fromkeys(self.table["type"]))
            raise InputError(f"SurvivorshipResult: there is no type {kind!r} of queries, only {there}")
        return rows[rows["measure"] == self._name(measure)]


class SurvivorshipCurve(Stage):
    """Quality of systems over the queries answered within the first k documents shown, for k = 1, 2, ..., and over all queries.

    Input: topics (``qid``, ``query``; ``type`` if known), all that were shown to labellers, answered or not. Output: one row per
    system (``name``), ``measure``, ``type`` and ``subset`` (``'1'``, ``'2'``, ..., ``'answered'``, ``'all'``) with ``n``,
    ``total``, ``share`` and, each with its interval, the conditional ``mean``, the ``zero_filled`` one and the ``change`` against
    all answered queries. :meth:`evaluate` adds strata, a test of the trend, paired differences and figures.

    **The drop from counting all queries is not a drop in quality.** The mean over all queries is the mean over answered ones
    times the share answered, for any ranker: :meth:`SurvivorshipResult.identity`. Only the trend among the answered queries says
    something about rankers and queries.

    Queries that are not among the candidates count as unanswered, and those that have an answer but no results of a system count
    as 0; the notes say how many there are of both. Results that share no query with the topics are rejected.

    Source: Gupta, "Survivorship Bias in IR Datasets", MSc thesis, University of Glasgow, 2021 (Figure 5.1, Appendix A); trend,
    strata and intervals are ours.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({"qid": ["q1", "q2", "q3", "q4"], "query": list("abcd")})
        >>> shown = pd.DataFrame({"qid": [q for q in topics["qid"] for _ in "xy"], "docno": ["x", "y"] * 4, "rank": [0, 1] * 4})
        >>> qrels = pd.DataFrame({"qid": ["q1", "q2", "q3"], "docno": ["x", "y", "y"], "label": 1})
        >>> run = pd.DataFrame({"qid": ["q1", "q2", "q3"], "docno": ["x", "x", "y"], "score": 1.0})
        >>> curve = SurvivorshipCurve({"mine": run}, shown, qrels, ranks=2)
        >>> curve(topics)[["subset", "n", "mean", "zero_filled"]].round(3).values.tolist()
        [['1', 1, 1.0, 0.25], ['2', 3, 0.667, 0.5], ['answered', 3, 0.667, 0.5], ['all', 4, 0.5, 0.5]]

    When not to use it: over topics that have already survived (the topics of ``msmarco-passage/dev`` with judgements): then all
    are answered, and the share, which is the point, is 1. Nor with a run instead of what was shown, unless marked as a proxy.

    .. cite.dblp:: journals/corr/abs-2204-12852
    """

    schematic: ClassVar[dict[str, Any]] = {
        "label": "SurvivorshipCurve", "help_url": None, "inner_pipelines_mode": "unlinked"
    }  # fmt: skip
    pieces = "frame"

    def __init__(
        self,
        systems: Any,
        candidates: Any,
        qrels: pd.DataFrame | None = None,
        *,
        measures: Sequence[Any] = ("RR@10",),
        ranks: int = 10,
        baseline: str | None = None,
        by: str = "type",
        cluster: str | None = None,
        min_label: int = 1,
        exact: bool = False,
        docno: str = "qna",
        answered_by: str = "qrels",
        answers: pd.DataFrame | None = None,
        proxy: str | None = None,
        level: float = 0.95,
        resamples: int = 9_999,
        seed: int = 0,
        verbose: bool = False,
    ):
        """
        Args:
            systems: A pipeline or result frame, a list of them, or a mapping from names to them.
            candidates: What labellers were shown: a frame or a dataset, as in :class:`SurvivorshipSubset`.
            qrels: Judgements; None for the dataset's. Their docnos must be those of the systems' results: ``docno='passage'``
                only changes the comparison of candidates and judgements.
            measures: ir_measures objects or names. Measures with their own grade (``RR(rel=2)@10``) go with ``min_label=2``.
            ranks: The last k with its own subset.
            baseline: The system with which the others are compared.
            by: The topics' column of query types; without it, all queries are of one type.
            cluster: The topics' column that says which queries have something in common, such as the article that they are about:
                intervals of means and differences allow for it, and are wider (see
                :func:`~pyterrier_debias.survivorship.formulas.nested.influence_interval`); the test of the trend does not. None
                if the queries have nothing in common.
            min_label: The lowest grade that is relevant.
            exact: Whether the grade must equal ``min_label``, as in :class:`SurvivorshipSubset`.
            docno: How docnos are compared, as in :class:`SurvivorshipSubset`.
            answered_by: When a query counts as answered, as in :class:`SurvivorshipSubset`.
            answers: Written answers, as in :class:`SurvivorshipSubset`.
            proxy: The name of the run given as candidates, as in :class:`SurvivorshipSubset`.
            level: Coverage of intervals.
            resamples: Permutations of the test of the trend.
            seed: Seed of the permutations.
            verbose: Whether to show progress.
        """
        self.systems = systems
        self.candidates = candidates
        self.qrels = qrels
        self.measures = measures
        self.ranks = ranks
        self.baseline = baseline
        self.by = by
        self.cluster = cluster
        self.min_label = min_label
        self.exact = exact
        self.docno = docno
        self.answered_by = answered_by
        self.answers = answers
        self.proxy = proxy
        self.level = level
        self.resamples = resamples
        self.seed = seed
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """The table of means that the class describes."""
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        self._check()
        if len(inp) == 0:
            return _frame([], TABLE_COLUMNS)
        values, _ = self._values(inp, self.subset)
        return _frame(table_rows(values, self.ranks, self.level), TABLE_COLUMNS)

    @reads_frames
    def evaluate(self, inp: pd.DataFrame) -> SurvivorshipResult:
        """Compute the table, strata, trends and differences.

        Args:
            inp: The topics, answered or not, as for the stage.

        Returns:
            The result.

        Raises:
            InputError: For an option out of range, no topics, unusable results, or candidates and judgements that do not fit
                together.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        self._check()
        if len(inp) == 0:
            raise InputError("SurvivorshipCurve: there are no topics; give those that were shown to labellers")
        subset = self.subset
        values, notes = self._values(inp, subset)
        return curve_of_values(
            values, ranks=self.ranks, baseline=self.baseline, level=self.level, resamples=self.resamples, seed=self.seed,
            notes=tuple(notes), convention=self._convention(subset), options=self.options(),
        )  # fmt: skip

    @property
    def subset(self) -> SurvivorshipSubset:
        """The stage that computes the first relevant ranks."""
        names = ("candidates", "qrels", "min_label", "exact", "docno", "answered_by", "answers", "proxy")
        options = {name: getattr(self, name) for name in names}
        return SurvivorshipSubset(**options, rank=None)

    @property
    def convention(self) -> str:
        """The options under which figures are computed, as text."""
        return self._convention(self.subset)

    def _convention(self, subset: SurvivorshipSubset) -> str:
        relevant = f"a label of {self.min_label}" if self.exact else f"a label of at least {self.min_label}"
        over = f" over clusters by {self.cluster}" if self.cluster else ""
        return (
            f"answered: {relevant} among the documents ({subset.source}), by {self.answered_by}; docno {self.docno}; Student's "
            f"intervals{over}; p of trends by permutation among queries with equally many answers in lists of equal length"
        )

    def _check(self) -> None:
        if isinstance(self.measures, str):
            raise InputError(f"SurvivorshipCurve: measures={self.measures!r} must be a list, such as [{self.measures!r}]")
        if not parse_measures(self.measures):
            raise InputError("SurvivorshipCurve: measures is empty; name one, such as ['RR@10']")
        check_number("SurvivorshipCurve", "ranks", self.ranks, least=1, whole=True)
        check_number("SurvivorshipCurve", "resamples", self.resamples, least=1, whole=True)
        check_number("SurvivorshipCurve", "level", self.level, above=0, most=0.9999)
        _check_baseline("SurvivorshipCurve", self.baseline, self._named())

    def _named(self) -> dict[str, Any]:
        systems = self.systems
        if not isinstance(systems, (Mapping, list, tuple)):
            systems = [systems]
        named = dict(systems) if isinstance(systems, Mapping) else {f"system {i}": s for i, s in enumerate(systems, start=1)}
        wrong = [name for name, s in named.items() if not isinstance(s, (pd.DataFrame, pt.Transformer))]
        if wrong or not named:
            kind = f"{wrong[0]!r} is {kind_of(named[wrong[0]])}" if wrong else "there are none"
            raise InputError(f"SurvivorshipCurve: systems must be pipelines or result frames; {kind}")
        return named

    def _values(self, inp: pd.DataFrame, subset: SurvivorshipSubset) -> tuple[pd.DataFrame, list[str]]:
        """The values in long form: one row per system, measure and query, sorted by qid."""
        topics = inp.drop_duplicates("qid").sort_values("qid").reset_index(drop=True)
        known = subset.ranks()
        strata = dict(zip(known["qid"], list_strata(known["relevant_shown"], known["shown"])))
        # Apart from the topics, whose own columns may have the same names.
        about = with_ranks(topics[["qid"]], known).assign(list=topics["qid"].map(strata).fillna("").tolist())
        unseen = int((~topics["qid"].isin(set(known["qid"]))).sum())
        notes = []
        if unseen:
            notes.append(f"{unseen} of {len(topics)} queries are not among the candidates and count as unanswered.")
            logger.info("SurvivorshipCurve: %s", notes[-1])
        if subset.source != "shown":
            notes.append(f"What labellers were shown is not known; the ranks are those of a stand-in ({subset.source}).")
        answered = np.isfinite(about["first_relevant_rank"].to_numpy())
        if not answered.any():
            notes.append("No query is answered; conditional means are NaN.")
            logger.warning("SurvivorshipCurve: %s", notes[-1])
        # As for the ranks, the highest of several labels counts.
        qrels = highest_grades(subset._judgements(), self)
        if self.cluster is not None and self.cluster not in topics.columns:
            raise InputError(
                f"SurvivorshipCurve: cluster={self.cluster!r} is not a column of the topics; there are "
                f"{', '.join(topics.columns)}"
            )
        lacking = [] if self.cluster is None else topics.loc[topics[self.cluster].isna(), "qid"].tolist()
        if lacking:
            raise InputError(
                f"SurvivorshipCurve: topic {lacking[0]!r} has no {self.cluster!r}; every topic needs a cluster: give it one of "
                f"its own, or leave it out"
            )
        about["cluster"] = "" if self.cluster is None else topics[self.cluster].astype(str)
        kinds = types_of(topics[self.by]).to_numpy() if self.by in topics.columns else np.full(len(topics), "")
        frames = []
        named = self._named()
        for name, system in pt.tqdm(named.items(), desc="SurvivorshipCurve", unit="system", disable=not self.verbose):
            results = system if isinstance(system, pd.DataFrame) else system(topics)
            where = f"SurvivorshipCurve, results of {name!r}"
            results = with_string_ids(results, where)
            pt.validate.columns(results, includes=["qid", "docno", "score"], context=self)
            check_scores(results, where)
            check_pairs(results, where)
            for note in _lacking(results, name, topics, qrels):
                notes.append(note)
                logger.warning("SurvivorshipCurve: %s", note)
            found = per_query(results, qrels, self.measures, topics["qid"].tolist())
            for measure in found.columns:
                frames.append(about.assign(name=name, measure=measure, type=kinds, value=found[measure].to_numpy()))
        values = pd.concat(frames, ignore_index=True)
        return values[VALUE_COLUMNS], notes


def _lacking(results: pd.DataFrame, name: Any, topics: pd.DataFrame, qrels: pd.DataFrame) -> Iterator[str]:
    """What the results lack, as text: topics, or judged documents. Results that share no query with the topics are rejected."""
    ours, theirs = set(topics["qid"]), set(results["qid"])
    if not ours & theirs:
        found = f"(e.g. {min(theirs)!r}) have no qid of the topics (e.g. {min(ours)!r})" if theirs else "are empty"
        raise InputError(
            f"SurvivorshipCurve: the results of {name!r} {found}, so all its means would be 0; check that they are of the same "
            f"collection and split, or leave the system out"
        )
    # A query without a relevant document has the value 0 with any results.
    asked = ours & set(qrels.loc[qrels["label"] > 0, "qid"])
    absent = len(asked - theirs)
    if absent:
        yield f"{absent} of {len(asked)} queries that have a relevant document have no results of {name!r} and count as 0."
    if len(qrels) and not results["docno"].isin(set(qrels["docno"])).any():
        yield (
            f"No document of {name!r} (e.g. {results['docno'].iloc[0]!r}) is judged (e.g. {qrels['docno'].iloc[0]!r}), so its "
            f"means are 0; check that its docnos are those of the judgements."
        )


@reads_frames
def curve_of_values(
    values: pd.DataFrame,
    *,
    ranks: int = 10,
    baseline: str | None = None,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
    notes: Sequence[str] = (),
    convention: str = "",
    options: Mapping[str, Any] | None = None,
) -> SurvivorshipResult:
    """The survivorship curve of per-query values, such as those of an audit or of ``pt.Experiment(perquery=True)``.

    Args:
        values: ``name``, ``measure``, ``qid``, ``value`` and ``first_relevant_rank`` (infinite for never); ``type``, ``list``
            and ``cluster`` if known; for all queries, including unanswered ones.
        ranks: The last k with its own subset.
        baseline: The system with which the others are compared.
        level: Coverage of intervals.
        resamples: Permutations of the test of the trend.
        seed: Seed of the permutations.
        notes: Remarks for the reader, kept in the result.
        convention: The options under which the values were computed.
        options: Options to keep in the result.

    Returns:
        The result.

    Raises:
        InputError: If a column is missing, a row names no system or measure, a value is not a number, or a query has two values,
            or none where another system or measure has one; if a rank is below 1 (-1 means nowhere, as in annotations); for a
            baseline that is not one of the systems.
    """
    stage: Any = "curve_of_values"
    pt.validate.columns(values, includes=["name", "measure", "qid", "value", "first_relevant_rank"], context=stage)
    check_names(values, ("name", "measure", "list", "cluster"), stage)
    if "type" in values.columns:
        values = values.assign(type=types_of(values["type"]))
    unknown = {"type": "", "list": "", "cluster": ""}
    values = values.assign(**{name: none for name, none in unknown.items() if name not in values.columns})[VALUE_COLUMNS]
    ranks_known = as_first_ranks(values["first_relevant_rank"], stage)
    values = values.assign(value=numbers(values["value"], stage), first_relevant_rank=ranks_known)
    _check_comparable(values, baseline)
    keys = [pd.factorize(values[c])[0] for c in ("measure", "name")]
    values = values.iloc[np.lexsort([values["qid"].to_numpy(dtype=object), *keys])].reset_index(drop=True)
    trends = _frame(_trend_rows(values, level, resamples, seed), TREND_COLUMNS)
    differences = _frame(_difference_rows(values, ranks, baseline, level), DIFFERENCE_COLUMNS)
    return SurvivorshipResult(
        _frame(table_rows(values, ranks, level), TABLE_COLUMNS),
        _frame(_strata_rows(values, ranks, level), STRATA_COLUMNS),
        trends.assign(p_corrected=correct(trends["p"].to_numpy(dtype=float))),
        differences.assign(p_corrected=correct(differences["p"].to_numpy(dtype=float))),
        values, tuple(notes), convention, dict(options or {}), level,
    )  # fmt: skip


def _check_comparable(values: pd.DataFrame, baseline: str | None) -> None:
    """Reject missing values, different queries per system or measure, and several values of one query."""
    missing = values["value"].isna()
    if missing.any():
        row = values[missing].iloc[0]
        raise InputError(
            f"curve_of_values: column 'value' is missing for query {row['qid']!r}, {row['measure']} of {row['name']!r}; give "
            f"every system a value for every query, 0 where it found nothing"
        )
    twice = values.duplicated(["name", "measure", "qid"])
    if twice.any():
        row = values[twice].iloc[0]
        raise InputError(
            f"curve_of_values: query {row['qid']!r} has two values of {row['measure']} for {row['name']!r}; keep one"
        )
    _check_baseline("curve_of_values", baseline, dict.fromkeys(values["name"]))
    every = set(values["qid"])
    for (name, measure), own in values.groupby(["name", "measure"], sort=False)["qid"]:
        lacking = every - set(own)
        if lacking:
            raise InputError(
                f"curve_of_values: {name!r} has no {measure} for {len(lacking)} of {len(every)} queries, e.g. {min(lacking)!r}; "
                f"give every system a value for every query, 0 where it found nothing"
            )


def _check_baseline(where: str, baseline: str | None, names: Collection[Any]) -> None:
    if baseline is not None and baseline not in names:
        raise InputError(f"{where}: baseline {baseline!r} is not a system; there are {', '.join(map(str, names))}")


def _clusters(own: pd.DataFrame) -> list[str] | None:
    """The clusters of one system's rows; None if there are none."""
    return own["cluster"].tolist() if (own["cluster"] != "").any() else None


def _by_measure(
    values: pd.DataFrame, thresholds: Mapping[str, float]
) -> Iterator[tuple[str, pd.DataFrame, dict[str, np.ndarray], list[str] | None]]:
    """For each measure: its values, with one column per system in the given order; the queries in each subset; the clusters."""
    for measure, own in values.groupby("measure", sort=False):
        names = list(dict.fromkeys(own["name"]))
        wide = own.pivot(index="qid", columns="name", values="value")[names]
        first = own[own["name"] == names[0]].set_index("qid").reindex(wide.index)
        r = first["first_relevant_rank"].to_numpy(dtype=float)
        yield measure, wide, {subset: np.isfinite(r) & (r <= k) for subset, k in thresholds.items()}, _clusters(first)


def _groups(values: pd.DataFrame) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The rows of each system and measure, for all types together and for each type."""
    for (name, measure), own in values.groupby(["name", "measure"], sort=False):
        yield {"name": name, "measure": measure, "type": EVERY_TYPE}, own
        kinds = sorted(set(own["type"]))
        for kind in kinds if len(kinds) > 1 else []:
            yield {"name": name, "measure": measure, "type": kind or "(none)"}, own[own["type"] == kind]


def table_rows(values: pd.DataFrame, ranks: int, level: float) -> list[dict[str, Any]]:
    """Rows of the table; see :class:`SurvivorshipResult`."""
    rows = []
    thresholds = [*range(1, ranks + 1), NEVER]
    for about, own in _groups(values):
        v, r = own["value"].to_numpy(dtype=float), own["first_relevant_rank"].to_numpy(dtype=float)
        clusters = _clusters(own)
        possible, everybody = value_range(about["measure"]), np.ones(len(v), dtype=bool)
        for item in nested_means(v, r, thresholds, clusters=clusters, level=level):
            subset = ANSWERED if item.k == NEVER else str(int(item.k))
            within = np.isfinite(r) & (r <= item.k)
            zero_filled = _ends("zero_filled", _of_enough(item.zero_filled, everybody, clusters).within(*possible))
            mean, change = (_of_enough(found, within, clusters) for found in (item.mean, item.change))
            ends = _ends("mean", mean.within(*possible)) | zero_filled | _ends("change", change)
            rows.append({**about, "subset": subset, "k": item.k, "n": item.n, "total": item.total, "share": item.share, **ends})
        every = difference_of_means(v, everybody, None, clusters=clusters, level=level)
        every = _of_enough(every, everybody, clusters).within(*possible)
        ends = _ends("mean", every) | zero_filled
        rows.append({**about, "subset": ALL, "k": NEVER, "n": len(v), "total": len(v), "share": 1.0, **ends})
    return rows


def _of_enough(found: Interval, within: np.ndarray, clusters: Sequence[str] | None) -> Interval:
    """An interval without its ends if it is over fewer than six queries, or clusters of them."""
    rows = np.flatnonzero(within)
    units = len(rows) if clusters is None else len({clusters[row] for row in rows.tolist()})
    return found if units >= LEAST_UNITS else replace(found, low=float("nan"), high=float("nan"))


def _ends(what: str, found: Interval) -> dict[str, float]:
    """A figure and its interval as columns."""
    return {what: found.estimate, f"{what}_low": found.low, f"{what}_high": found.high}


def _strata_rows(values: pd.DataFrame, ranks: int, level: float) -> list[dict[str, Any]]:
    rows = []
    for about, own in _groups(values):
        v, r = own["value"].to_numpy(dtype=float), own["first_relevant_rank"].to_numpy(dtype=float)
        finite = r[np.isfinite(r)]
        last = int(max(ranks, finite.max())) if len(finite) else ranks
        clusters = _clusters(own)
        for rank, found in strata_means(v, r, last, clusters=clusters, level=level):
            ends = _ends("mean", _of_enough(found, r == rank, clusters).within(*value_range(about["measure"])))
            rows.append({**about, "first_relevant_rank": rank, "n": found.n, **ends})
    return rows


def _trend_rows(values: pd.DataFrame, level: float, resamples: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for about, own in _groups(values):
        found = trend(
            own["value"].to_numpy(), own["first_relevant_rank"].to_numpy(), strata=own["list"].tolist(), resamples=resamples,
            level=level, seed=seed,
        )  # fmt: skip
        rows.append(about | asdict(found))
    return rows


def _difference_rows(values: pd.DataFrame, ranks: int, baseline: str | None, level: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    if baseline is None:
        return rows
    thresholds = {str(k): float(k) for k in range(1, ranks + 1)} | {ANSWERED: NEVER}
    for measure, wide, subsets, clusters in _by_measure(values, thresholds):
        for name in wide.columns:
            if name == baseline:
                continue
            before, after = (wide[column].to_numpy(dtype=float) for column in (baseline, name))
            for subset, within in subsets.items():
                change = difference_of_means(after - before, within, None, clusters=clusters, level=level)
                change = _of_enough(change, within, clusters)
                of = None if clusters is None else {clusters[i] for i in np.flatnonzero(within)}
                rows.append(
                    {
                        "name": name, "baseline": baseline, "measure": measure, "n": change.n,
                        "subset": subset, "difference": change.estimate, "low": change.low, "high": change.high,
                        "p": float("nan") if np.isnan(change.low) else _p(before[within], after[within], change, of),
                    }
                )  # fmt: skip
    return rows


def _p(before: np.ndarray, after: np.ndarray, change: Interval, clusters: set[str] | None) -> float:
    """p of the paired t-test; with clusters, by the standard error and the degrees of freedom of the interval."""
    from scipy import stats

    if clusters is None:
        return paired_t(before, after).p
    freedom, half = len(clusters) - 1, (change.high - change.low) / 2
    if half <= 1e-12:
        return 1.0 if abs(change.estimate) <= 1e-12 else 0.0
    return float(2 * stats.t.sf(abs(change.estimate) / half * stats.t.ppf((1 + change.level) / 2, freedom), freedom))


def _frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as a frame; the types of columns are the same with and without rows."""
    words = {"name", "measure", "type", "subset", "baseline", "swapped", "reversed"}
    whole = {"n", "total", "first_relevant_rank"}
    frame = pd.DataFrame(list(rows), columns=list(columns))
    return frame.astype({c: "str" if c in words else "int64" if c in whole else "float64" for c in columns})
