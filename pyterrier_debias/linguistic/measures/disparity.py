"""Disparity: how effectiveness is spread over queries, and how it depends on the complexity of their wording.

It reads what ``pt.Experiment(perquery=True)`` returns, and computes the figures of Cheng and Amiri (2025), Tables 1 and 2 and
Figures 1 and 3, with intervals. It adds the slope of effectiveness over complexity with controls, because the standard deviation
and the coefficient of variation measure every spread between queries, not bias. The mathematics is in
:mod:`pyterrier_debias.linguistic.formulas.spread` and :mod:`pyterrier_debias.linguistic.formulas.slope`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.bias import query_count
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.evaluation import parse_measures, value_range
from pyterrier_debias.core.frames import check_names, check_overlap, reads_frames, with_grades, with_string_ids
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import correct
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.linguistic.formulas.slope import Slope, design, partial_slope
from pyterrier_debias.linguistic.formulas.spread import (
    AVERAGES,
    bin_names,
    bin_numbers,
    inner_edges,
    over_collections,
    permutation_tests,
    smooth,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

#: Controls that are computed if there is no column of that name.
LENGTH, RELEVANT = "length", "relevant"
#: The name of the group of all queries, and that of all collections together.
EVERYONE, TOGETHER = "all", "all datasets"
#: The name of the only group where all queries have the same complexity, so that there are no bins.
UNDIVIDED = "undivided"

_SPREAD = [f"{statistic}{end}" for statistic in ("mean", "sd", "cv") for end in ("", "_low", "_high")]
TABLE_COLUMNS = ["name", "measure", "dataset", "group", "n", "complexity", *_SPREAD]
TEST_COLUMNS = ["name", "measure", "test", "value", "low", "high", "p", "noise_floor", "n", "group", "convention"]
INDEX_COLUMNS = ["name", "measure", "index", "rho", "rho_p", "slope", "low", "high", "p", "p_corrected", "n"]


@dataclass(frozen=True, eq=False, repr=False)
class DisparityResult:
    """The result of :meth:`Disparity.evaluate`.

    Attributes:
        table: The frame that :meth:`Disparity.transform` returns: one row per system (``name``), ``measure``, ``dataset`` and
            ``group`` (``all``, and the bins of complexity), with ``n``, the mean ``complexity``, and ``mean``, ``sd``, ``cv``,
            each with its interval.
        tests: One row per system, measure and ``test``, over all datasets together: ``slope`` (for one standard deviation of
            complexity, given the controls; the primary test), ``share`` (the share of the variance that complexity explains
            beyond the controls), ``rank correlation``, ``Kruskal-Wallis``, ``worst group`` (its name is in ``group``) and ``gap``
            (best group less worst); with ``low``, ``high``, ``p`` and ``noise_floor`` (the value to expect by chance alone) where
            they are defined.
        per_query: The values that were analysed: ``name``, ``measure``, ``dataset``, ``qid``, ``value``, ``complexity``,
            ``group``, the controls and indices; and ``influence``, whose mean is the slope for one standard deviation and whose
            paired differences compare the slopes of two systems.
        indices: One row per system, measure and index of complexity: rank correlation, slope for one standard deviation given the
            controls, and p values, corrected over the indices of one system and measure (Holm). Empty if no indices were
            requested.
        notes: What a reader should know, such as how many queries were left out.
        convention: The options under which all this was computed.
        options: The options of the :class:`Disparity`.
    """

    table: pd.DataFrame
    tests: pd.DataFrame
    per_query: pd.DataFrame
    indices: pd.DataFrame
    notes: tuple[str, ...]
    convention: str
    options: Mapping[str, Any]

    def __repr__(self) -> str:
        """The primary tests in one line."""
        rows = self.tests[self.tests["test"] == "slope"].to_dict("records")
        found = "; ".join(f"{r['name']}: {r['value']:+.4f} {r['measure']} per sd, p = {r['p']:.2g}" for r in rows[:4])
        return f"<DisparityResult: {found}{'; ...' if len(rows) > 4 else ''}>"

    def test(self, test: str, name: str | None = None, measure: str | None = None) -> dict[str, Any]:
        """One row of :attr:`tests`.

        Args:
            test: Name of the test, such as ``'slope'``.
            name: The system; None for the first.
            measure: The measure; None for the first.

        Returns:
            The row as a dictionary.

        Raises:
            InputError: If there is no such row.
        """
        rows = self.tests[self.tests["test"] == test]
        for column, wanted in (("name", name), ("measure", measure)):
            rows = rows if wanted is None else rows[rows[column] == wanted]
        if rows.empty:
            raise InputError(f"DisparityResult: there is no test {test!r} of {name or 'any system'}, {measure or 'any measure'}")
        return rows.iloc[0].to_dict()

    def curve(self, measure: str | None = None, *, points: int = 40, span: float = 2 / 3, resamples: int = 999) -> pd.DataFrame:
        """Effectiveness as a smooth function of complexity, with a bootstrap band (Figures 1 and 3 of the paper).

        Args:
            measure: Which measure; None for the first.
            points: Number of points, evenly spaced from the 1st to the 99th percentile of the queries' complexity.
            span: Share of the queries that the local fit at each point uses.
            resamples: Number of bootstrap samples for the band.

        Returns:
            A frame with ``name``, ``complexity``, ``value``, ``low``, ``high``, the last three cut to the range of the measure;
            systems with fewer than three queries are left out.
        """
        values = self._of(measure)
        # Percentiles over queries; over rows, they would depend on the number of systems.
        queries = values.drop_duplicates(["dataset", "qid"])["complexity"]
        first, last = np.quantile(queries, [0.01, 0.99]) if len(queries) else (0.0, 0.0)
        at = np.linspace(first, last, points) if len(values) else np.empty(0)
        frames = []
        for name, own in values.groupby("name", sort=False):
            if len(own) < 3:
                continue
            level, seed = self.options["level"], self.options["seed"]
            y, x = own["value"].to_numpy(), own["complexity"].to_numpy()
            found = smooth(y, x, at, span=span, level=level, resamples=resamples, seed=seed)
            value, low, high = np.clip(found, *value_range(self._name(measure)))
            frames.append(pd.DataFrame({"name": name, "complexity": at, "value": value, "low": low, "high": high}))
        columns = ["name", "complexity", "value", "low", "high"]
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)

    def plot_curve(
        self, ax: Axes | None = None, *, measure: str | None = None, order: Sequence[str] | None = None, **options: Any
    ) -> Axes:
        """Draw effectiveness against complexity, as computed by :meth:`curve`.

        Args:
            ax: Matplotlib axes; None makes new ones.
            measure: Which measure; None for the first.
            order: All systems by name; each gets the colour of its position, so colours match other figures. None uses the order
                here.
            options: Options of :meth:`curve`.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        axes = plots.new_axes() if ax is None else ax
        values = self._of(measure)
        with plots.style():
            colours = plots.colours(values["name"], order)
            for name, rows in self.curve(measure, **options).groupby("name", sort=False):
                axes.plot(rows["complexity"], rows["value"], color=colours[name], label=plots.legend_label(name))
                band: dict[str, Any] = {"color": colours[name], "alpha": 0.15, "linewidth": 0}
                axes.fill_between(rows["complexity"], rows["low"], rows["high"], **band)
            if axes.lines:
                axes.legend()
            n = values[["dataset", "qid"]].drop_duplicates().shape[0]
            plots.label_axes(axes, x="complexity of the query", y=f"mean {self._name(measure)}", n=n)
        return axes

    def plot_groups(
        self, ax: Axes | None = None, *, measure: str | None = None, order: Sequence[str] | None = None
    ) -> Axes:
        """Draw the mean of each bin of complexity with its interval.

        Args:
            ax: Matplotlib axes; None makes new ones.
            measure: Which measure; None for the first.
            order: All systems by name; see :meth:`plot_curve`.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        axes = plots.new_axes() if ax is None else ax
        rows = overall(self.table)
        rows = rows[(rows["measure"] == self._name(measure)) & (rows["group"] != EVERYONE)]
        groups = list(dict.fromkeys(rows["group"]))
        with plots.style():
            names = list(dict.fromkeys(rows["name"]))
            colours = plots.colours(names, order)
            for number, name in enumerate(names):
                own = rows[rows["name"] == name]
                place = np.array([groups.index(g) for g in own["group"]]) + 0.4 * (number + 0.5 - len(names) / 2) / len(names)
                ends = plots.ends(own["mean"], own["mean_low"], own["mean_high"])
                axes.errorbar(place, own["mean"], yerr=ends, fmt="o-", color=colours[name], label=plots.legend_label(name))
            axes.set_xticks(range(len(groups)), groups)
            axes.legend()
            n = int(rows.loc[rows["name"] == rows["name"].iloc[0], "n"].sum()) if len(rows) else 0
            plots.label_axes(axes, x="complexity of the query", y=f"mean {self._name(measure)}", n=n)
        return axes

    def _name(self, measure: str | None) -> str:
        measures = list(dict.fromkeys(self.per_query["measure"]))
        if measure is not None and str(measure) not in measures:
            raise InputError(f"DisparityResult: measure {str(measure)!r} was not analysed; there are {', '.join(measures)}")
        return str(measure) if measure is not None else measures[0] if measures else ""

    def _of(self, measure: str | None) -> pd.DataFrame:
        return self.per_query[self.per_query["measure"] == self._name(measure)]


def overall(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of a disparity table over all datasets together, or over the only one."""
    several = table["dataset"].nunique() > 1
    return table[table["dataset"] == TOGETHER] if several else table


class Disparity(Stage):
    """Measures how effectiveness varies over queries and with the complexity of their wording, with tests.

    Input: effectiveness by query, as ``pt.Experiment(..., perquery=True)`` returns it (long form: ``name``, ``qid``,
    ``measure``, ``value``), or with one column per measure (wide form: ``qid``, ``name``, ``nDCG@10``, ...). ``name`` and
    ``dataset`` may be missing if there is only one. The complexity of each query is a column of that frame, or of the topics
    given to :meth:`evaluate`.

    Output: one row per system (``name``), ``measure``, ``dataset`` and ``group``: ``n``, mean ``complexity``, and ``mean``,
    ``sd`` and ``cv`` (sd / mean) with intervals (``mean_low``, ``mean_high``, ...). Groups are ``all`` and bins of complexity
    within each dataset: ``easy``, ``medium`` and ``hard`` by default. With several datasets, the rows of ``all datasets``
    combine them as ``cv_average`` says; they have only the groups that every dataset has. :meth:`evaluate` adds tests, curves
    and a table of single indices.

    **sd and cv measure every spread between queries, not bias.** Both are small for a ranker that is equally bad on every query,
    and large for one that fails on the same share of simple and of complex queries; and cv rises when the mean falls, whatever
    the wording. The slope shows how effectiveness changes with complexity, and the share shows how much of the variance
    complexity explains (``tests``).

    Source: Cheng and Amiri, "EqualizeIR: Mitigating Linguistic Biases in Retrieval Models", NAACL 2025 (mean, standard deviation,
    c_v); the slopes, controls and tests are ours.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> found = pd.DataFrame({
        ...     "name": "mine", "qid": list("abcdef"), "measure": "nDCG@10",
        ...     "value": [0.9, 0.8, 0.7, 0.6, 0.3, 0.3], "complexity": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        ... })
        >>> Disparity()(found)[["group", "n", "mean", "cv"]].round(3).values.tolist()
        [['all', 6, 0.6, 0.385], ['easy', 2, 0.85, 0.059], ['medium', 2, 0.65, 0.077], ['hard', 2, 0.3, 0.0]]
        >>> round(Disparity(resamples=999).evaluate(found).test("slope")["value"], 3)
        -0.224

    When not to use it: on few queries (with 43 queries, the standard deviation is known to within a fifth at best); to choose by
    cv between rankers with different means; or to show that wording is the *cause*: complex queries may express more difficult
    needs. To test the cause, ask the same need in several wordings, with ``WordingSensitivity``.

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    schematic = {"label": "Disparity", "help_url": None, "inner_pipelines_mode": "linked"}  # noqa: RUF012
    pieces = "frame"

    def __init__(
        self,
        complexity: str | pt.Transformer | None = "complexity",
        *,
        measures: Sequence[Any] | None = None,
        bins: str | int | Sequence[float] = "tertile",
        cv_average: str = "macro",
        controls: Sequence[str] = (),
        indices: Sequence[str] = (),
        ddof: int = 0,
        level: float = 0.95,
        resamples: int = 9_999,
        seed: int = 0,
        verbose: bool = False,
    ):
        """
        Args:
            complexity: The column with the complexity of each query, or a stage that adds such a column to the topics of
                a dataset (``qid``, ``query``); None means ``LinguisticComplexity()``.
            measures: Which measures, as ir_measures objects or names; None means all measures in the frame.
            bins: ``'tertile'``; a number of bins of equal size; ``'equal_width'`` (ten); or the edges between bins.
            cv_average: How datasets are combined: ``'macro'`` (the mean of their statistics), ``'pooled'`` (all queries as
                one dataset) or ``'ratio_of_means'`` (mean sd / mean of means).
            controls: What else may explain effectiveness: columns of the frame or of the topics, with numbers or names, such as
                ``type``. If there is no such column, ``'length'`` is the number of words of the query, and ``'relevant'`` the
                natural logarithm of the number of relevant documents. Most indices of complexity depend on length themselves:
                with length as a control, the slope is that of complexity beyond length.
            indices: Columns with single indices of complexity, each of which is analysed alone.
            ddof: The standard deviation divides by n - ddof.
            level: Coverage of the intervals.
            resamples: Number of permutations in each test.
            seed: Seed of the permutations.
            verbose: Whether to show progress.
        """
        self.complexity = complexity
        self.measures = measures
        self.bins = bins
        self.cv_average = cv_average
        self.controls = controls
        self.indices = indices
        self.ddof = ddof
        self.level = level
        self.resamples = resamples
        self.seed = seed
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Compute the disparity table; see the class.

        Raises:
            InputError: For an unknown option, a query with two complexities, a measure that is not in the frame, or a value or
                complexity that is infinite or not a number.
        """
        form = self._mode(inp)
        self._check_options()
        if len(inp) == 0:
            return _frame([], TABLE_COLUMNS)
        return self._table(self._values(inp, form, None, None)[0])

    @reads_frames
    def evaluate(
        self, inp: pd.DataFrame, topics: pd.DataFrame | None = None, qrels: pd.DataFrame | None = None
    ) -> DisparityResult:
        """Compute the disparity table, the tests, and the table of single indices.

        Args:
            inp: Effectiveness by query, see the class.
            topics: A frame with ``qid`` and those of complexity, indices, controls and ``query`` that ``inp`` lacks. A column
                ``dataset`` names the dataset of each query; it may be missing if no qid occurs in two datasets.
            qrels: ``qid``, ``docno``, ``label``, and ``dataset`` as in ``topics``; needed only for the control ``'relevant'``.

        Returns:
            The result. Queries without a value, a complexity or a numeric control are left out, and counted in the notes. In
            a control with names, missing ones form a level of their own (see
            :func:`~pyterrier_debias.linguistic.formulas.slope.design`). The notes also say if systems were measured over
            different queries, if a few queries decide a slope, and why a slope is undefined.

        Raises:
            InputError: As in :meth:`transform`; if complexity, a control or an index is in neither frame; if topics or judgements
                share no query or no dataset with the values, or belong to several datasets and the values name none.
        """
        form = self._mode(inp, complexity=topics is None)
        self._check_options()
        values, notes = self._values(inp, form, topics, qrels)
        if values.empty:
            raise InputError("Disparity: no query has both a value and a complexity; check that the qids of both are the same")
        tests: list[dict[str, Any]] = []
        single: list[dict[str, Any]] = []
        frames = []
        groups = values.groupby(["name", "measure"], sort=False)
        for (name, measure), own in pt.tqdm(groups, desc="Disparity", unit="system", disable=not self.verbose):
            strata = own["dataset"] if own["dataset"].nunique() > 1 else None
            found = self._slope(own, own["complexity"], strata)
            if np.isnan(found.slope):
                notes.append(f"{measure} of {name!r}: the slope is not defined, because {self._no_slope(own, strata)}.")
                logger.warning("Disparity: %s", notes[-1])
            elif found.caution and found.caution not in notes:  # once for systems over the same queries
                notes.append(found.caution)
            about = {"name": name, "measure": measure, "n": len(own)}
            tests.extend(about | row for row in self._tests(own, found, strata))
            single.extend(about | row for row in self._indices(own, strata))
            frames.append(own.assign(influence=found.influence * found.sd))
        result = pd.concat(frames, ignore_index=True)
        indices = _frame(single, INDEX_COLUMNS)
        if len(indices):
            tested = indices.groupby(["name", "measure"], sort=False)["p"]
            indices = indices.assign(p_corrected=tested.transform(lambda p: correct(p.to_numpy(dtype=float))))
        table = self._table(values)
        return DisparityResult(table, _frame(tests, TEST_COLUMNS), result, indices, tuple(notes), self.convention, self.options())

    @property
    def convention(self) -> str:
        """The options under which figures are computed, in words."""
        parts = [
            f"bins {self.bins if np.ndim(self.bins) == 0 else list(cast(Sequence[float], self.bins))}",
            f"ddof {self.ddof}",
            f"datasets by {self.cv_average}",
            f"given {', '.join(self.controls)}" if self.controls else "no controls",
        ]
        return "; ".join(parts)

    # ------------------------------------------------------------------------------------------------ options

    def _mode(self, inp: pd.DataFrame, complexity: bool = True) -> str:
        also = [self.complexity if isinstance(self.complexity, str) else "query"] if complexity else []
        with pt.validate.any(inp, context=self) as v:
            v.columns(includes=["qid", "measure", "value", *also], mode="long")
            v.columns(includes=["qid", *also], excludes=["measure", "value"], mode="wide")
        return v.mode

    def _check_options(self) -> None:
        inner_edges(np.arange(2.0), self.bins)
        check_choice("Disparity", "cv_average", self.cv_average, AVERAGES)
        for option, columns in (("controls", self.controls), ("indices", self.indices), ("measures", self.measures)):
            if isinstance(columns, str):
                raise InputError(f"Disparity: {option}={columns!r} must be a list, such as [{columns!r}]")
        if self.ddof not in (0, 1):
            raise InputError(f"Disparity: ddof={self.ddof!r} must be 0 or 1")
        check_number("Disparity", "resamples", self.resamples, least=1, whole=True)
        check_number("Disparity", "seed", self.seed, least=0, whole=True)
        check_number("Disparity", "level", self.level, above=0, most=0.9999)

    # ------------------------------------------------------------------------------------------------ input

    def _values(
        self, inp: pd.DataFrame, form: str, topics: pd.DataFrame | None, qrels: pd.DataFrame | None
    ) -> tuple[pd.DataFrame, list[str]]:
        """A sorted frame with one row per system, measure and query, with complexity, group, controls and indices; and notes."""
        topics, qrels = (_of_datasets(given, inp, what) for given, what in ((topics, "topics"), (qrels, "judgements")))
        frame = inp.assign(**{column: alone for column, alone in (("name", "system"), ("dataset", "")) if column not in inp})
        if form == "long":  # measures may be objects of ir_measures
            frame = frame.assign(measure=frame["measure"].map(str, na_action="ignore"))
        check_names(frame, ["name", "dataset", *(["measure"] if form == "long" else [])], self)
        frame = frame.assign(dataset=frame["dataset"].astype(str))
        values = self._long(frame, form)
        twice = values.duplicated(["name", "measure", "dataset", "qid"])
        if twice.any():
            row = values[twice].iloc[0]
            raise InputError(
                f"Disparity: query {row['qid']!r} has several values of {row['measure']} for {row['name']!r}; name systems and "
                f"datasets in the columns 'name' and 'dataset'"
            )
        known = self._known(frame, topics, qrels)
        merged = values.merge(known, on=["dataset", "qid"], how="left", validate="many_to_one")
        reasons = [("value", "value"), ("complexity", "complexity")]
        reasons += [(c, f"control {c!r}") for c in self.controls if pd.api.types.is_numeric_dtype(merged[c].dtype)]
        notes, keep = [], np.ones(len(merged), dtype=bool)
        for column, words in reasons:
            lacking = keep & merged[column].isna().to_numpy()
            if lacking.any():
                n = merged.loc[lacking, ["dataset", "qid"]].drop_duplicates().shape[0]
                notes.append(f"{query_count(n)} without a {words} {'is' if n == 1 else 'are'} left out.")
                logger.info("Disparity: %s", notes[-1])
            keep &= ~lacking
        merged = merged[keep]
        notes.extend(_unlike_queries(merged))
        grouped = []
        for dataset, own in merged.groupby("dataset", sort=False):
            grouped.append(self._grouped(own))
            if own["complexity"].nunique() == 1:
                where = f" of {dataset!r}" if dataset else ""
                notes.append(f"All queries{where} have the same complexity, so they form one group, {UNDIVIDED!r}.")
                logger.warning("Disparity: %s", notes[-1])
        merged = pd.concat(grouped) if grouped else merged.assign(group=pd.Series(dtype="str"))
        # Systems, measures and datasets keep the order of the frame or of the options; queries are sorted by qid, because
        # permutations depend on their order.
        order = {c: {v: i for i, v in enumerate(dict.fromkeys(values[c]))} for c in ("name", "measure", "dataset")}
        if self.measures is not None:
            order["measure"] = {str(measure): i for i, measure in enumerate(self.measures)}
        keys = [merged[c].map(order[c]) for c in ("dataset", "measure", "name")]
        return merged.iloc[np.lexsort([merged["qid"].to_numpy(dtype=object), *keys])].reset_index(drop=True), notes

    def _long(self, frame: pd.DataFrame, form: str) -> pd.DataFrame:
        wanted = None if self.measures is None else [str(m) for m in self.measures]
        if form == "long":
            values = frame[["name", "measure", "dataset", "qid", "value"]]
        else:
            columns = wanted if wanted is not None else [c for c in frame.columns if _is_measure(frame, c)]
            absent = [c for c in columns if c not in frame.columns]
            if absent or not columns:
                what = f"there is no column {absent[0]!r}" if absent else "no column is named like a measure of ir_measures"
                there = ", ".join(map(str, frame.columns))
                raise InputError(f"Disparity: {what}; there are {there}: name the measures by measures=[...]")
            values = frame.melt(["name", "dataset", "qid"], columns, var_name="measure", value_name="value")
        if wanted is not None:
            absent = [m for m in wanted if m not in set(values["measure"])]
            if absent:
                there = ", ".join(dict.fromkeys(values["measure"]))
                raise InputError(f"Disparity: there are no values of {absent[0]!r}, only of {there}")
            values = values[values["measure"].isin(wanted)]
        return values.assign(value=_numbers(values["value"], values["qid"], "value"))

    def _known(self, frame: pd.DataFrame, topics: pd.DataFrame | None, qrels: pd.DataFrame | None) -> pd.DataFrame:
        """The known values of each query: ``dataset``, ``qid``, ``complexity``, controls, indices."""
        own = [c for c in dict.fromkeys([self._column, *self.controls, *self.indices, "query"]) if c in frame.columns]
        try:
            known = frame[["dataset", "qid", *own]].drop_duplicates()
        except TypeError as error:  # lists and the like cannot be compared
            raise InputError(f"Disparity: one of {', '.join(own)} is neither text nor a number in a row ({error})") from error
        if topics is not None:
            pt.validate.columns(topics, includes=["qid"], context=self)
            keys = ["dataset", "qid"] if "dataset" in topics.columns else ["qid"]
            more = [c for c in topics.columns if c not in known.columns]
            self._check_agreement(topics, keys, [c for c in more if c in {self._column, *self.controls, *self.indices, "query"}])
            known = known.merge(topics[[*keys, *more]].drop_duplicates(keys), on=keys, how="left")
        if not isinstance(self.complexity, str):
            known = self._computed(known, self.complexity)
        twice = known.duplicated(["dataset", "qid"])
        if twice.any():
            row = known[twice].iloc[0]
            raise InputError(
                f"Disparity: query {row['qid']!r} is in several rows that disagree on {', '.join(own)}; a query has one "
                f"complexity and one value of each control, whatever the system"
            )
        known = known.assign(**{name: self._control(name, known, qrels) for name in self.controls if name not in known.columns})
        for kind, columns in (("complexity", [self._column]), ("control", self.controls), ("index", self.indices)):
            for column in columns:
                if column not in known.columns:
                    raise InputError(
                        f"Disparity: {kind} {column!r} is a column neither of the values nor of the topics; give "
                        f"evaluate(values, topics) topics that have it"
                    )
        known = known.assign(complexity=_numbers(known[self._column], known["qid"], "complexity"))
        numeric = [column for column in self.controls if pd.api.types.is_numeric_dtype(known[column].dtype)]
        for kind, columns in (("index", self.indices), ("control", numeric)):
            for column in columns:
                known = known.assign(**{column: _numbers(known[column], known["qid"], f"{kind} {column!r}")})
        return known[list(dict.fromkeys(["dataset", "qid", "complexity", *self.controls, *self.indices]))]

    @staticmethod
    def _check_agreement(topics: pd.DataFrame, keys: list[str], columns: list[str]) -> None:
        """Refuse topics that give a query two complexities, or two values of a control."""
        rows = topics[topics.duplicated(keys, keep=False)]
        for column in columns:
            several = rows.groupby(keys, sort=False)[column].nunique(dropna=False) > 1
            if several.any():
                named = several.index[several.to_numpy()][0]
                raise InputError(
                    f"Disparity: the topics have several values of {column!r} for query "
                    f"{named[-1] if isinstance(named, tuple) else named!r}; keep one row per query"
                )

    @property
    def _column(self) -> str:
        return self.complexity if isinstance(self.complexity, str) else "complexity"

    def _computed(self, known: pd.DataFrame, stage: pt.Transformer | None) -> pd.DataFrame:
        if "query" not in known.columns:
            raise InputError("Disparity: complexity is computed from queries; give evaluate(values, topics) topics with 'query'")
        topics = known.drop(columns=["complexity", *self.indices], errors="ignore")
        # Dataset by dataset: a stage that is not fitted normalises over its input.
        parts = [with_complexity(own, stage) for _, own in topics.groupby("dataset", sort=False)]
        return pd.concat(parts, ignore_index=True)

    def _control(self, name: str, known: pd.DataFrame, qrels: pd.DataFrame | None) -> pd.Series:
        if name == LENGTH and "query" in known.columns:
            return query_length(known["query"])
        if name == RELEVANT and qrels is not None:
            check_overlap(known, qrels, "Disparity, control 'relevant'")
            return log_relevant(known, qrels)
        hint = {LENGTH: "topics with 'query'", RELEVANT: "qrels"}.get(name, "topics that have it")
        raise InputError(f"Disparity: control {name!r} is not a column of the values or the topics; give evaluate() {hint}")

    def _grouped(self, values: pd.DataFrame) -> pd.DataFrame:
        """The values of one dataset with the column ``group``: the bin of each query."""
        queries = values.drop_duplicates("qid")["complexity"].to_numpy()
        edges = inner_edges(queries, self.bins)
        if np.ptp(queries) == 0:  # the last bin, by the rule for ties: its name would say that they are hard
            return values.assign(group=UNDIVIDED)
        names = np.array(bin_names(edges), dtype=object)
        return values.assign(group=names[bin_numbers(values["complexity"].to_numpy(), edges)])

    # ------------------------------------------------------------------------------------------------ output

    def _table(self, values: pd.DataFrame) -> pd.DataFrame:
        rows: list[dict[str, Any]] = []
        for (name, measure), own in values.groupby(["name", "measure"], sort=False):
            datasets = list(own.groupby("dataset", sort=False))
            together = [(TOGETHER, own)] if len(datasets) > 1 else []
            for dataset, part in [*datasets, *together]:
                everywhere = part.groupby("group")["dataset"].nunique() == part["dataset"].nunique()
                groups = part[["group", "complexity"]].sort_values("complexity")["group"].drop_duplicates()
                for group in [EVERYONE, *groups[groups.map(everywhere)]]:
                    chosen = part if group == EVERYONE else part[part["group"] == group]
                    about = {"name": name, "measure": measure, "dataset": dataset, "group": group}
                    rows.append(about | self._row(chosen, measure))
        return _frame(rows, TABLE_COLUMNS)

    def _row(self, part: pd.DataFrame, measure: str) -> dict[str, Any]:
        values = [own["value"].to_numpy() for _, own in part.groupby("dataset", sort=False)]
        found = over_collections(values, average=self.cv_average, ddof=self.ddof, level=self.level)
        found["mean"] = found["mean"].within(*value_range(measure))
        ends = {
            f"{statistic}{end}": getattr(interval, name)
            for statistic, interval in found.items()
            for end, name in (("", "estimate"), ("_low", "low"), ("_high", "high"))
        }
        return {"n": len(part), "complexity": part["complexity"].mean(), **ends}

    def _slope(self, own: pd.DataFrame, complexity: pd.Series, strata: pd.Series | None) -> Slope:
        return partial_slope(
            own["value"].to_numpy(), complexity.to_numpy(dtype=float), design(own, self.controls), strata=strata,
            level=self.level, resamples=self.resamples, seed=self.seed,
        )  # fmt: skip

    def _no_slope(self, own: pd.DataFrame, strata: pd.Series | None) -> str:
        """The reason why a slope is NaN, in words."""
        if own["complexity"].nunique() == 1:
            return "all its queries have the same complexity"
        alone = partial_slope(own["value"].to_numpy(), own["complexity"].to_numpy(), strata=strata, resamples=1)
        if np.isnan(alone.slope):
            return f"{len(own)} queries are too few" if strata is None else "complexity does not vary within datasets"
        controls = ", ".join(self.controls)
        spare = len(own) - np.linalg.matrix_rank(np.column_stack([np.ones(len(own)), design(own, self.controls)])) - 1
        if spare < 2:
            return f"{len(own)} queries are too few for the controls {controls}"
        return f"the controls {controls} determine complexity (they are collinear with it); leave one of them out"

    def _tests(self, own: pd.DataFrame, found: Slope, strata: pd.Series | None) -> Iterator[dict[str, Any]]:
        given = f"given {', '.join(self.controls)}" if self.controls else "no controls"
        if strata is not None:
            given += ", each dataset with a level of its own"
        slope = found.per_sd
        how = (
            f"for one standard deviation of complexity, {given}; p by studentised permutation (Freedman-Lane, HC3) and by "
            f"flipping signs, whichever is larger; the interval by its quantile"
        )
        yield _test("slope", slope.estimate, slope.low, slope.high, p=found.p, convention=how)
        how = f"gain of R squared by complexity, {given}; p of the slope"
        share = found.share, found.share_low, found.share_high
        yield _test("share", *share, p=found.p, noise_floor=found.share_floor, convention=how)

        names = list(own.sort_values("complexity")["group"].drop_duplicates())
        numbers = own["group"].map({name: i for i, name in enumerate(names)}).to_numpy()
        tests = permutation_tests(
            own["value"].to_numpy(), own["complexity"].to_numpy(), numbers, strata=strata,
            level=self.level, resamples=self.resamples, seed=self.seed,
        )  # fmt: skip
        rho = tests.rho, tests.rho_low, tests.rho_high
        how = "Spearman's; p by permutation; the interval agrees with it"
        yield _test("rank correlation", *rho, p=tests.rho_p, convention=how)
        if tests.worst < 0:
            return
        yield _test("Kruskal-Wallis", tests.kruskal, p=tests.kruskal_p, convention=f"H over bins {self.bins}; p by permutation")
        values = own.loc[numbers == tests.worst, "value"].to_numpy()
        worst = over_collections([values], level=self.level)["mean"].within(*value_range(own["measure"].iloc[0]))
        how = "mean of the group with the lowest mean; the interval does not allow for the choice of this group"
        yield _test("worst group", worst.estimate, worst.low, worst.high, group=names[tests.worst], convention=how)
        how = "mean of the best group minus that of the worst; p by permutation"
        yield _test("gap", tests.gap, p=tests.gap_p, noise_floor=tests.gap_floor, convention=how)

    def _indices(self, own: pd.DataFrame, strata: pd.Series | None) -> Iterator[dict[str, Any]]:
        for index in self.indices:
            there = own[own[index].notna().to_numpy()]
            if there.empty:
                continue
            part = None if strata is None else strata[there.index]
            found = self._slope(there, there[index], part)
            tests = permutation_tests(
                there["value"].to_numpy(), there[index].to_numpy(dtype=float), np.zeros(len(there), dtype=int), strata=part,
                resamples=self.resamples, seed=self.seed,
            )  # fmt: skip
            slope = found.per_sd
            yield {
                "index": index, "rho": tests.rho, "rho_p": tests.rho_p, "slope": slope.estimate, "low": slope.low,
                "high": slope.high, "p": found.p, "n": len(there),
            }  # fmt: skip


def with_complexity(topics: pd.DataFrame, complexity: pt.Transformer | None = None) -> pd.DataFrame:
    """Add the column ``complexity`` to topics.

    Args:
        topics: A frame with ``qid``, ``query`` and any other columns.
        complexity: A stage that adds the column ``complexity`` (or the one that its attribute ``out`` names); None means
            ``LinguisticComplexity()``.

    Returns:
        The topics with the columns that the stage added.

    Raises:
        InputError: If the stage adds no such column.
    """
    if complexity is None:
        from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

        complexity = LinguisticComplexity()
    found: pd.DataFrame = complexity(topics)
    out = getattr(complexity, "out", "complexity")
    if out not in found.columns:
        raise InputError(
            f"Disparity: {complexity!r} added no column {out!r} to the topics; give the column's name as complexity=... instead"
        )
    return found if out == "complexity" else found.assign(complexity=found[out])


def query_length(queries: pd.Series) -> pd.Series:
    """Number of words (runs of letters and digits) of each query."""
    return queries.map(lambda query: float(len(regex_word(query))) if isinstance(query, str) else float("nan"))


def log_relevant(topics: pd.DataFrame, qrels: pd.DataFrame) -> pd.Series:
    """Natural logarithm of each topic's number of documents with a label above 0; 0 if there are none.

    Args:
        topics: ``qid``, and ``dataset`` if the judgements have it too.
        qrels: ``qid``, ``docno``, ``label``; a document that is judged several times counts once.

    Returns:
        One value per topic, with the topics' index.

    Raises:
        InputError: If both frames have ``dataset`` and a dataset of the topics has no judgements; see also
            :func:`~pyterrier_debias.core.frames.with_grades`.
    """
    keys = ["dataset", "qid"] if "dataset" in qrels.columns and "dataset" in topics.columns else ["qid"]
    judged, asked = with_grades(qrels, "log_relevant"), with_string_ids(topics, "log_relevant, topics")[keys]
    if "dataset" in keys:
        judged, asked = (frame.assign(dataset=frame["dataset"].astype(str)) for frame in (judged, asked))
        unjudged = set(asked["dataset"]) - set(judged["dataset"])
        if unjudged:  # a count of 0 for all of its queries would be no control
            raise InputError(
                f"log_relevant: there are no judgements of dataset {min(unjudged)!r}, only of "
                f"{', '.join(map(repr, judged['dataset'].unique()))}; name datasets alike, or drop the column 'dataset' of one"
            )
    counts = judged[judged["label"] > 0].groupby(keys)["docno"].nunique().rename("count").reset_index()
    found = asked.merge(counts, on=keys, how="left")["count"].fillna(0).to_numpy(dtype=float)
    return pd.Series(np.log(np.maximum(found, 1.0)), index=topics.index)


def _of_datasets(given: pd.DataFrame | None, values: pd.DataFrame, what: str) -> pd.DataFrame | None:
    """Topics or judgements with ``dataset`` ready as a key: as text, and kept only if the values have that column too."""
    if given is None or "dataset" not in given.columns:
        return given
    check_names(given, ["dataset"], f"Disparity, {what}")
    theirs = given["dataset"].astype(str)
    if "dataset" not in values.columns:
        if theirs.nunique() > 1:
            raise InputError(
                f"Disparity: the {what} are of the datasets {', '.join(map(repr, theirs.unique()))} but the values name none; "
                f"give the values a column 'dataset', or the {what} of one dataset"
            )
        return given.drop(columns="dataset")
    ours = values["dataset"].astype(str)
    if not ours.isin(theirs).any():
        raise InputError(
            f"Disparity: the datasets of the values (e.g. {ours.iloc[0]!r}) are not those of the {what} (e.g. "
            f"{theirs.iloc[0]!r}); name them alike in the column 'dataset'"
        )
    return given.assign(dataset=theirs)


def _numbers(values: pd.Series, qids: pd.Series, what: str) -> pd.Series:
    """A column as numbers; NaN where there is no value."""
    found = pd.to_numeric(values, errors="coerce").astype("float64")
    text = found.isna() & values.notna()
    if text.any():
        row = text.to_numpy().argmax()
        raise InputError(f"Disparity: the {what} of query {qids.iloc[row]!r} is {values.iloc[row]!r}; it must be a number")
    infinite = np.isinf(found.to_numpy())
    if infinite.any():
        qid = qids.iloc[infinite.argmax()]
        raise InputError(f"Disparity: the {what} of query {qid!r} is infinite; give a number, or NaN to leave the query out")
    return found


def _unlike_queries(values: pd.DataFrame) -> Iterator[str]:
    """Notes about systems that were measured over different queries."""
    for measure, own in values.groupby("measure", sort=False):
        asked = {name: set(zip(part["dataset"], part["qid"])) for name, part in own.groupby("name", sort=False)}
        common = set.intersection(*asked.values())
        if any(len(queries) > len(common) for queries in asked.values()):
            sizes = ", ".join(f"{name!r} has {len(queries)}" for name, queries in asked.items())
            note = (
                f"{measure}: systems have values for different queries ({sizes}; {len(common)} are common to all), so their "
                f"figures cannot be compared; give all of them the same queries."
            )
            logger.warning("Disparity: %s", note)
            yield note


def _is_measure(frame: pd.DataFrame, column: Any) -> bool:
    """Whether a column is named like a measure and has numbers."""
    if not isinstance(column, str) or not pd.api.types.is_numeric_dtype(frame[column].dtype):
        return False
    if column.startswith(("ndcg_cut_", "P_", "recall_", "map", "recip_rank", "ndcg")):  # trec_eval's names, as PyTerrier has them
        return True
    try:
        parse_measures([column])
    except InputError:
        return False
    return True


def _test(test: str, value: float, low: float = float("nan"), high: float = float("nan"), **more: Any) -> dict[str, Any]:
    return {"test": test, "value": value, "low": low, "high": high, **more}


def _frame(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Rows as a frame whose column types are the same with and without rows."""
    words = {"name", "measure", "dataset", "group", "test", "index", "convention"}
    frame = pd.DataFrame([{**dict.fromkeys(words & set(columns), ""), **row} for row in rows], columns=list(columns))
    return frame.astype({c: "str" if c in words else "int64" if c == "n" else "float64" for c in columns})
