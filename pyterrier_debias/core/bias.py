"""The definition of a bias for audits: a class that examines systems, and the findings that it returns.

A finding carries its values per query and, if the figure can be divided, its parts. Reports, checks, model cards and comparisons
read only tables that are made from findings.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import pandas as pd

from pyterrier_debias.core.statistics import ALPHA, LEAST_UNITS, POWER, Interval, correct, detectable_effect

if TYPE_CHECKING:
    from pyterrier_debias.core.systems import Context, System

#: How an interval that is not defined would be told, as over one query; and how any interval is.
_NO_INTERVAL = re.compile(r",? (?:95 % interval )?\[\+?nan%?, \+?nan%?\]")
_ANY_INTERVAL = re.compile(r",? (?:95 % interval )?\[[-+]?[\d.]+%?, [-+]?[\d.]+%?\]")

#: Conventions of tests that have no more arrangements than their queries can be exchanged in.
_BY_SIGNS = re.compile("flipping signs|random signs|randomisation|exchange of the two lists")
#: Where a convention says which queries are exchanged together.
TOGETHER = re.compile(r"of all queries with the same ('.*') together")
#: Where a finding says with how many draws its test exchanges the original.
_EXCHANGED = re.compile(r"mean of (\d+) draws?\b.*p by exchange randomisation")

#: How the names of measures begin that are correlations.
CORRELATION = "rho of "
#: How the names of measures begin whose values per query are influence values, which average to the figure over all queries only.
INFLUENCES = (CORRELATION, "slope of ")

#: How a sentence about a single query counts it.
_ONE_QUERY = re.compile(r"\bover 1 (neutral )?queries\b")

#: Columns of the table of findings, in order, with their types.
FINDING_TYPES = {
    "system": "str", "bias": "str", "measure": "str", "contrast": "str", "value": "float64", "low": "float64", "high": "float64",
    "p": "float64", "p_corrected": "float64", "n": "int64", "convention": "str", "null_value": "float64",
    "detectable": "float64", "text": "str", "primary": "bool",
}  # fmt: skip
#: What a row of every table begins with: one figure.
FIGURE_KEY = ["system", "bias", "measure", "contrast"]
#: Columns of the table of values.
PER_QUERY_COLUMNS = [*FIGURE_KEY, "qid", "value"]
#: What the parts of a figure are given by.
ITEM = ["item", "note", "qid", "queries", "contribution"]
#: Columns of a finding's parts.
PART_TYPES = {
    "kind": "str", "item": "str", "note": "str", "qid": "str", "queries": "int64", "contribution": "float64", "share": "float64",
    "exact": "bool",
}  # fmt: skip
#: Columns of the table of parts.
ATTRIBUTION_COLUMNS = ["kind", *FIGURE_KEY, *(name for name in PART_TYPES if name != "kind")]
#: What parts can be asked for, and what an item of them is.
KINDS = {"documents": "document", "words": "word", "positions": "position"}
#: How many documents of a figure are kept, those that push it furthest in its own direction.
KEPT = 50

#: Values by qid.
Values: TypeAlias = pd.Series


@dataclass(frozen=True)
class Finding:
    """One figure of one system, with the values behind it and what is needed to judge it: a row of an audit.

    Attributes:
        system: The system's name.
        bias: The bias' name: ``'position'``, ``'survivorship'``, ``'gender'``, ``'linguistic'``, ``'pooling'``, or your own.
        measure: What was measured, such as ``'nDCG@10'`` or ``'PSI'``.
        contrast: What the figure compares, or what it was measured on, such as ``'rotated - original'``.
        value: The figure.
        low: Lower end of its interval; NaN if there is none, as with fewer than six units.
        high: Upper end of its interval.
        p: Uncorrected p value of the test; NaN if the figure is not tested.
        p_corrected: The p value after correction, see :func:`corrected`; NaN before that, and if the figure is descriptive.
        n: The number of units behind the value: queries, unless stated otherwise.
        convention: The options under which it was computed; reports keep figures under different conventions apart.
        null_value: The figure to expect by chance alone; NaN if it is zero by construction or unknown.
        detectable: The smallest effect, in the figure's unit, that a primary test would have found with a power of 80 %, after
            correction; NaN until :func:`corrected` is called, if nothing was tested, and if no effect could be significant
            because there are too few queries for so many tests, which the text says.
        text: The figure in one plain sentence.
        primary: Whether this is the primary test of the bias, the one that is calibrated.
        values: The values per query behind the figure, by qid; None if there are none.
        beside: Values that were measured as well and have no figure of their own: (measure, contrast) to values by qid.
        clusters: A label for each query of ``values``, by qid; queries with the same label are not independent of each other, and
            systems are compared by cluster. None if all queries are independent.
        parts: What documents, words or positions contribute to it, see :func:`parts_of`; None if it is not divided.

    When not to use it: for a remark without a figure, which belongs in the notes of the audit.

    Example:
        >>> found = Finding("BM25", "length", "words", "first ten", 12.5, values=pd.Series([12.0, 13.0], index=["q1", "q2"]))
        >>> found.value, len(found.values)
        (12.5, 2)
    """

    system: str
    bias: str
    measure: str
    contrast: str
    value: float
    low: float = float("nan")
    high: float = float("nan")
    p: float = float("nan")
    p_corrected: float = float("nan")
    n: int = 0
    convention: str = ""
    null_value: float = float("nan")
    detectable: float = float("nan")
    text: str = ""
    primary: bool = False
    values: Values | None = field(default=None, repr=False, compare=False)
    beside: Mapping[tuple[str, str], Values] = field(default_factory=dict, repr=False, compare=False)
    clusters: pd.Series | None = field(default=None, repr=False, compare=False)
    parts: pd.DataFrame | None = field(default=None, repr=False, compare=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What identifies the figure: system, bias, measure, contrast."""
        return self.system, self.bias, self.measure, self.contrast


@dataclass(frozen=True)
class Figure:
    """A picture for the report of an audit. It is drawn only when it is shown or saved.

    Attributes:
        name: File name without ending.
        caption: What it shows, with units and n.
        draw: A function ``draw(axes)`` that draws onto matplotlib axes.

    When not to use it: for numbers to be read; return these as findings.

    Example:
        >>> picture = Figure("lengths", "Words of the first ten documents, 40 queries", lambda axes: axes.hist([60, 80]))
        >>> picture.name
        'lengths'
    """

    name: str
    caption: str
    draw: Callable[[Any], object]


@dataclass(frozen=True)
class Parts:
    """What single documents, words or positions contribute to a figure.

    Attributes:
        kind: ``'document'``, ``'word'`` or ``'position'``.
        items: All contributing items: ``item``, ``note`` (what is known about it), ``qid`` (the query to which it contributes
            most; empty for positions), ``queries`` (the number of queries to which it contributes), ``contribution`` (in the
            figure's unit). Items with equal contributions keep their order.
        exact: True if each contribution is exactly that of the item, False if a total was divided among items by a rule.
    """

    kind: str
    items: pd.DataFrame
    exact: bool = True


class Bias(ABC):
    """Base class of a bias that an audit examines. Subclass it to add a bias of your own.

    You need to write only :meth:`examine`. Findings made with :meth:`finding` carry their values and parts, so your bias appears
    in the report, the check, the model card, comparisons and the checkpoint like those of this package.

    Attributes:
        name: The name of the bias in findings and reports.

    Example:
        >>> class Length(Bias):
        ...     name = "length"
        ...     def examine(self, context):
        ...         for system in context.systems:
        ...             top = context.results(system, depth=10)
        ...             words = top["text"].str.split().str.len().groupby(top["qid"]).mean()
        ...             yield self.finding(system.name, "words", "first ten", words.mean(), values=words)
        >>> Length().name
        'length'

    When not to use it: for a measure that can be computed query by query from one ranking; use ``pt.Experiment`` for it.
    """

    name: str = ""

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """The reason why a system cannot be examined on a dataset, or None.

        Args:
            system: The system; None asks only about the dataset.
            dataset: The collection, with the topics and judgements of the audit.

        Returns:
            One sentence; None if the system can be examined.
        """
        return None

    @abstractmethod
    def examine(self, context: Context) -> Iterator[Finding]:
        """Examine the systems of an audit.

        Args:
            context: Systems, collection, topics, judgements and seed. It also shares retrieval and scoring among biases, so that
                they run once. It has only the systems for which :meth:`needs` returns None.

        Yields:
            Findings, in the order in which reports show them.
        """

    def figures(self, context: Context) -> Sequence[Figure]:
        """Pictures for the report.

        Args:
            context: As for :meth:`examine`; ``context.once`` returns what that method computed.

        Returns:
            The figures, not yet drawn.
        """
        return ()

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """The figures of this bias that can be computed query by query from one ranking, as measures for ``pt.Experiment``.

        Args:
            context: Collection, topics and judgements; its systems, if there are any, may be run.

        Returns:
            Measures of ir_measures; and, for each figure that needs more than one ranking, how to get it.
        """
        return [], {f"every figure of the bias {self.name}": "audit(..., biases=[...]) with this bias"}

    def cache_key(self) -> Any:
        """What distinguishes this bias from others of its class: by default all attributes of the object.

        A checkpoint stores findings under this key, so that a bias with other options is examined again.
        """
        return vars(self)

    def finding(
        self,
        system: str,
        measure: str,
        contrast: str,
        value: float | Interval,
        text: str = "",
        *,
        values: Values | None = None,
        beside: Mapping[tuple[str, str], Values] | None = None,
        parts: Mapping[str, pd.DataFrame] | Sequence[Parts] = (),
        **more: Any,
    ) -> Finding:
        """Create a finding of this bias.

        Args:
            system: The system's name.
            measure: What was measured; see :class:`Finding`.
            contrast: What is compared, or what was measured on; see :class:`Finding`.
            value: The figure, or an interval, which also gives ``low``, ``high`` and ``n``.
            text: One plain sentence, without the system's name.
            values: The values per query; their number is ``n``, unless that is given. If all of them are 0, no query changed, and
                a ``p`` becomes NaN: a figure that could not have come out otherwise, such as that of BM25 against the pool that
                was made from it, is not a test, and the correction does not count it. Of a correlation or slope, give influence
                values, and a ``measure`` that begins with "rho of" or "slope of": these are compared only over equal topics.
            beside: Further values per query; see :class:`Finding`.
            parts: What contributes to the figure: kind to items, or :class:`Parts`; parts that do not sum to it are left out.
            more: Other attributes of :class:`Finding`.

        Returns:
            The finding.
        """
        if isinstance(value, Interval):
            more = {"low": value.low, "high": value.high, "n": value.n, **more}
            value = value.estimate
        if values is not None:
            more = {"n": len(values), **more}
            if "p" in more and not np.any(values.to_numpy(dtype=float)):
                more["p"] = float("nan")
        text = _ONE_QUERY.sub(r"over 1 \1query", f"{system}: {text}") if text else ""
        if more.get("n", 0) < LEAST_UNITS and np.isfinite([more.get("low", np.nan), more.get("high", np.nan)]).all():
            more |= {"low": float("nan"), "high": float("nan")}
            text = _ANY_INTERVAL.sub("", text)
        if isinstance(parts, Mapping):
            parts = [Parts(kind, items) for kind, items in parts.items()]
        taken = [parts_of(float(value), one) for one in parts]
        taken = [part for part in taken if len(part)]
        more["parts"] = pd.concat(taken, ignore_index=True) if taken else None
        return Finding(system, self.name, measure, contrast, float(value), text=text, values=values, beside=beside or {}, **more)


class Examined(Protocol):
    """What was computed for all systems of an audit, as the source of findings and figures."""

    def findings(self) -> Iterable[Finding]:
        """The findings, in the order in which reports show them."""

    def figures(self) -> Sequence[Figure]:
        """The figures, not yet drawn."""


class JointBias(Bias):
    """A bias that is computed for all systems together, once for both findings and figures."""

    @abstractmethod
    def compute(self, context: Context) -> Examined:
        """Compute what findings and figures are made from.

        Args:
            context: See :meth:`examine`; it has at least one system.

        Returns:
            An object that has both the findings and the figures.
        """

    def examine(self, context: Context) -> Iterator[Finding]:
        """See :meth:`Bias.examine`."""
        if context.systems:
            yield from self._computed(context).findings()

    def figures(self, context: Context) -> Sequence[Figure]:
        """See :meth:`Bias.figures`."""
        return self._computed(context).figures() if context.systems else ()

    def _computed(self, context: Context) -> Examined:
        computed: Examined = context.once(f"findings of {self.name}", None, partial(self.compute, context))
        return computed


def pushed(figure: float, contributions: np.ndarray) -> np.ndarray:
    """How far contributions push a figure away from 0, in the figure's own direction.

    Args:
        figure: The figure.
        contributions: Shape [n], in the figure's unit.

    Returns:
        Shape [n]; the absolute values of the contributions if the figure is 0, which has no direction.

    Example:
        >>> pushed(-0.3, np.array([0.1, -0.4])).tolist()
        [-0.1, 0.4]
    """
    return contributions * np.sign(figure) if figure else np.abs(contributions)


def shares(figure: float, contributions: np.ndarray) -> np.ndarray:
    """Contributions as shares of a figure.

    Args:
        figure: The figure.
        contributions: Shape [n], in the figure's unit.

    Returns:
        Shape [n]; NaN if the figure is 0.

    Example:
        >>> shares(-0.5, np.array([0.25, -0.75])).tolist()
        [-0.5, 1.5]
    """
    with np.errstate(over="ignore"):  # a figure may be all but 0
        return contributions / figure if figure else np.full(len(contributions), np.nan)


def parts_of(figure: float, parts: Parts) -> pd.DataFrame:
    """The parts of one figure, if they sum to it, with those that push it furthest in its own direction first.

    Args:
        figure: The figure.
        parts: All items that contribute to it.

    Returns:
        A frame with the columns of ``PART_TYPES``: those of :class:`Parts`, and ``share`` (of the figure; NaN if that is 0).
        Items that contribute 0 are left out, and so are documents after the first ``KEPT``. Empty if the items do not sum to the
        figure, as under another measure or convention.

    Example:
        >>> items = pd.DataFrame({"item": ["a", "b"], "note": "", "qid": "1", "queries": 1, "contribution": [0.1, -0.4]})
        >>> parts_of(-0.3, Parts("document", items))[["item", "share"]].round(2).values.tolist()
        [['b', 1.33], ['a', -0.33]]
    """
    items = parts.items[ITEM]
    values = items["contribution"].to_numpy(dtype=float)
    if not np.isclose(values.sum(), figure, rtol=1e-6, atol=1e-9):
        return parts_frame()
    items = items[np.abs(values) > 1e-15]
    values = items["contribution"].to_numpy(dtype=float)
    # Sums of equal parts differ in their last bits.
    order = np.argsort(-np.round(pushed(figure, values), 12), kind="stable")
    order = order[:KEPT] if parts.kind == "document" else order
    items = items.iloc[order].assign(kind=parts.kind, share=shares(figure, values[order]), exact=parts.exact)
    return parts_frame(items)


def parts_frame(rows: Any = ()) -> pd.DataFrame:
    """A frame of parts with typed columns.

    Args:
        rows: Dictionaries, or columns, or nothing.

    Returns:
        A frame with the columns of ``PART_TYPES``.

    Raises:
        KeyError: If columns are given and one is missing.
    """
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(columns=list(PART_TYPES))
    return frame[list(PART_TYPES)].astype(PART_TYPES)


def corrected(findings: Sequence[Finding], correction: str, baseline: str | None = None) -> list[Finding]:
    """Add corrected p values to findings, and to primary tests the smallest effect that they would have found.

    With ``'two-step'``, the primary tests of all biases and systems form one family, which is corrected with Holm's method. The
    further tests of each bias form another family, also corrected with Holm's method. A system's further tests are looked at
    only if a primary test of the same bias and system rejected, and their corrected p is never smaller than the primary one's.
    The other further tests are descriptive: they have a ``p`` but no ``p_corrected``.

    The chance of any false primary finding is therefore at most 5 %, and so is the chance of any false further finding of a
    bias; further figures cost primary tests no power. If a bias has no primary finding for a system, all its tests of that
    system belong to the first family.

    Args:
        findings: Any number of findings; those without a p are not counted.
        correction: ``'two-step'``; or a method that corrects all tests together: ``'holm'``, ``'bonferroni'`` or ``'fdr_bh'``.
        baseline: The system that others are compared with; a comparison is looked at if a primary test of either of its two
            systems rejected.

    Returns:
        The same findings, with ``p_corrected`` if they carry a p, and ``detectable`` if they belong to the first family.
        The sentence of a finding that is not significant says how large an effect may have been missed.

    References:
        Westfall and Krishen, Optimally weighted, fixed sequence and gatekeeper multiple testing procedures, Journal of
        Statistical Planning and Inference 99, 2001; Dmitrienko, Offen and Westfall, Gatekeeping strategies for clinical trials
        that do not require all primary effects to be significant, Statistics in Medicine 22, 2003.
    """
    tested = [number for number, finding in enumerate(findings) if np.isfinite(finding.p)]
    found = list(findings)
    if correction != "two-step":
        for number, p in _adjusted(findings, tested, correction):
            found[number] = _first_step(findings[number], p, len(tested))
        return found
    asked = gates_of(findings, baseline)
    in_first = first_step(findings, asked)
    first = [number for number in tested if in_first[number]]
    gates: dict[tuple[str, str], float] = {}
    for number, p in _adjusted(findings, first, "holm"):
        found[number] = _first_step(findings[number], p, len(first))
        key = findings[number].bias, findings[number].system
        gates[key] = min(p, gates.get(key, 1.0))
    further = [number for number in tested if not in_first[number]]
    for bias in dict.fromkeys(findings[number].bias for number in further):
        for number, p in _adjusted(findings, [number for number in further if findings[number].bias == bias], "holm"):
            gate = min((gates[key] for key in asked[number] if key in gates), default=1.0)
            if gate < ALPHA:
                found[number] = replace(findings[number], p_corrected=max(p, gate))
    return found


def gates_of(findings: Iterable[Any], baseline: str | None) -> list[set[tuple[str, str]]]:
    """The biases and systems of which one must have a significant primary test before a further finding is looked at.

    Args:
        findings: Findings, or the rows of their table.
        baseline: The system that others are compared with.

    Returns:
        For each finding its own bias and system and, for a comparison with the baseline, also those of the baseline.
    """

    def other(finding: Any) -> str:
        return baseline if baseline and finding.contrast.endswith(f", vs {baseline}") else finding.system

    return [{(finding.bias, finding.system), (finding.bias, other(finding))} for finding in findings]


def first_step(findings: Sequence[Any], gates: Sequence[set[tuple[str, str]]]) -> list[bool]:
    """Which findings belong to the first family of the two-step correction, if they are tested; see :func:`corrected`.

    Args:
        findings: Findings, or the rows of their table.
        gates: What :func:`gates_of` returned.

    Returns:
        For each finding whether it is primary, or there is no primary finding that it depends on.
    """
    has_primary = {(f.bias, f.system) for f in findings if f.primary}
    return [bool(f.primary) or not own & has_primary for f, own in zip(findings, gates)]


def _adjusted(findings: Sequence[Finding], family: Sequence[int], method: str) -> Iterator[tuple[int, float]]:
    """The tests of one family with their corrected p."""
    yield from zip(family, correct(np.array([findings[number].p for number in family]), method).tolist())


def _first_step(finding: Finding, p: float, tests: int) -> Finding:
    """A tested finding with its corrected p and, if primary, with what its test could have missed."""
    if not finding.primary:
        return replace(finding, p_corrected=p)
    interval = Interval(finding.value, finding.low, finding.high, 0.95, finding.n)
    if finding.clusters is not None:
        interval = replace(interval, n=finding.clusters.nunique())
    least = detectable_effect(interval, tests=tests, correlation=finding.measure.startswith(CORRELATION))
    text = finding.text
    # A later step of Holm's method divides by fewer tests, so a p may be significant that could not have been in the first.
    if p >= ALPHA and _BY_SIGNS.search(finding.convention) and least_p(finding.convention, interval.n) * tests >= ALPHA:
        units = query_count(finding.n) if finding.clusters is None else f"{interval.n} clusters of queries"
        least, text = float("nan"), f"{text} {never_significant(units, tests)}"
    if p >= ALPHA and np.isfinite(least):
        text = f"{text} An effect below {_rounded(least)} may have been missed (power under {POWER:.0%})."
    return replace(finding, p_corrected=p, detectable=least, text=text)


def never_significant(units: str, tests: int) -> str:
    """A sentence for a test over so few units that its smallest p, after correction, is not below :data:`ALPHA`.

    Example:
        >>> never_significant("7 queries", 8)
        'With 7 queries and 8 tests, no effect can be significant.'
    """
    return f"With {units} and {tests} test{'s' * (tests != 1)}, no effect can be significant."


def least_p(convention: str, changed: int) -> float:
    """The lowest p that the test of a figure can have if so many queries have another value than 0.

    A test of signs has two arrangements of each query; one that exchanges an original with its draws has one more than draws.

    Args:
        convention: The figure's convention, which names the test.
        changed: The number of queries.

    Returns:
        The p value; 0 for a test that permutes the queries and flips no signs.

    Example:
        >>> draws = "mean of 3 draws, seed 0; p by exchange randomisation; the interval inverts this test"
        >>> least_p("p by flipping signs", 5), least_p(draws, 3)
        (0.0625, 0.015625)
    """
    if "permutation" in convention and "flipping signs" not in convention:
        return 0.0
    exchanged = _EXCHANGED.search(convention)
    draws = int(exchanged[1]) if exchanged else 1
    return (1.0 if draws > 1 else 2.0) * (draws + 1.0) ** -changed


def _rounded(value: float) -> str:
    """A size with two significant digits."""
    return f"{value:.3f}" if value >= 0.0095 else f"{value:.2g}"


def findings_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """The table of findings.

    Args:
        findings: Any number of findings.

    Returns:
        A frame with one row per finding and the columns of ``FINDING_TYPES``. Infinite numbers are NaN here and in the tables of
        values and parts, as in JSON, so that a saved audit is the same when it is read again.
    """
    frame = pd.DataFrame([{name: getattr(f, name) for name in FINDING_TYPES} for f in findings], columns=list(FINDING_TYPES))
    frame = _finite(frame.astype(FINDING_TYPES))
    return frame.assign(text=[_NO_INTERVAL.sub("", text) for text in frame["text"]]).astype({"text": "str"})


def per_query_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """The table of the values per query behind findings.

    Args:
        findings: Any number of findings.

    Returns:
        One row per figure and query: ``system``, ``bias``, ``measure``, ``contrast``, ``qid``, ``value``.

    Example:
        >>> found = Finding("m", "position", "nDCG@10", "rotated", 0.4, values=pd.Series([0.3, 0.5], index=["1", "2"]))
        >>> per_query_frame([found])[["contrast", "qid", "value"]].values.tolist()
        [['rotated', '1', 0.3], ['rotated', '2', 0.5]]
    """
    labels: list[tuple[str, str, str, str]] = []
    lengths, qids, values = [], [], []
    for finding in findings:
        system, bias, measure, contrast = finding.key
        own: Mapping[tuple[str, str], Values] = {} if finding.values is None else {(measure, contrast): finding.values}
        for (of, where), one in {**own, **finding.beside}.items():
            labels.append((system, bias, of, where))
            lengths.append(len(one))
            qids.append(np.asarray(one.index, dtype=object))
            values.append(one.to_numpy(dtype=float))
    if not labels:
        return pd.DataFrame(columns=PER_QUERY_COLUMNS)
    # One frame of all: making a small one for each figure takes longer than all else.
    frame = pd.DataFrame(labels, columns=FIGURE_KEY)
    frame = frame.iloc[np.repeat(np.arange(len(labels)), lengths)].reset_index(drop=True)
    frame["qid"] = pd.Series(np.concatenate(qids), dtype="str")
    frame["value"] = np.concatenate(values)
    return _finite(frame[PER_QUERY_COLUMNS])


def clusters_of(findings: Iterable[Finding]) -> dict[str, dict[str, str]]:
    """Which queries are not independent of each other.

    Args:
        findings: Any number of findings.

    Returns:
        Bias to (qid to label), for the biases whose findings have ``clusters``.

    Example:
        >>> labels = pd.Series(["Paris", "Paris"], index=["1", "2"])
        >>> clusters_of([Finding("m", "gender", "ARaB-TF@10", "order - random order", 0.4, clusters=labels)])
        {'gender': {'1': 'Paris', '2': 'Paris'}}
    """
    labels: dict[str, dict[str, str]] = {}
    for finding in findings:
        if finding.clusters is not None:
            labels.setdefault(finding.bias, {}).update(finding.clusters.astype(str).to_dict())
    return labels


def attributions_frame(findings: Iterable[Finding]) -> pd.DataFrame:
    """What documents, words and positions contribute to findings.

    Args:
        findings: Any number of findings.

    Returns:
        One row per figure and item, with ``ATTRIBUTION_COLUMNS``; see :func:`parts_of`.
    """
    frames = [f.parts.assign(**dict(zip(FIGURE_KEY, f.key))) for f in findings if f.parts is not None]
    frame = pd.concat(frames, ignore_index=True) if frames else parts_frame().assign(**dict.fromkeys(FIGURE_KEY, ""))
    return _finite(frame[ATTRIBUTION_COLUMNS].astype(dict.fromkeys(FIGURE_KEY, "str")))


def _finite(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with NaN in place of infinite numbers."""
    numbers = frame.select_dtypes("float64")
    return frame.assign(**{name: numbers[name].where(np.isfinite(numbers[name])) for name in numbers})


def p_text(p: float) -> str:
    """A p value for a sentence, with two significant digits.

    Args:
        p: The p value.

    Returns:
        The text, such as ``'0.0013'`` or ``'0.42'``; never 0.
    """
    return "below 1e-16" if p < 1e-16 else f"{p:.2g}" if p < 0.095 else f"{p:.2f}"


def query_count(n: int) -> str:
    """A number of queries for a sentence.

    Example:
        >>> query_count(1), query_count(43)
        ('1 query', '43 queries')
    """
    return f"{n} {'query' if n == 1 else 'queries'}"
