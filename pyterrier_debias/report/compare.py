"""Before and after: what a debiased ranker gained, and what it cost."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import INFLUENCES, TOGETHER, p_text
from pyterrier_debias.core.errors import InputError, check_number, kind_of, visible
from pyterrier_debias.core.statistics import LEAST_UNITS, Interval, correct, differences, equivalence_test
from pyterrier_debias.report.noninferiority import (
    bias_verdict,
    change_interval,
    change_p,
    leaves_out_zero,
    non_inferiority,
    size_interval,
)
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.text import digits_of, interval, number, signed

#: Contrasts under which biases report plain effectiveness, the first one that is there counts.
EFFECTIVENESS_CONTRASTS = ("original", "all queries", "as non-relevant", "zero-filled")

#: Measures whose loss is a cost, if nothing else is said.
EFFECTIVENESS = ("nDCG@10", "RR@10", "R@10")

COLUMNS = [
    "kind", "system", "bias", "measure", "contrast", "before", "after", "change", "low", "high", "size_change", "size_low",
    "size_high", "p", "p_corrected", "p_equivalent", "n", "seeds", "verdict", "text",
]  # fmt: skip
#: The note on audits whose collections have one name but different judgements.
OTHER_JUDGEMENTS = "The audits used different judgements, although their collections have the same name."
_KEPT, _LOST, _UNCLEAR = "kept", "lost", "not ruled out"

#: Bias, measure and contrast.
_Key: TypeAlias = tuple[str, str, str]


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """The result of :func:`compare`: how biases and effectiveness changed.

    Attributes:
        table: One row per figure. ``kind`` is ``bias`` (the primary figures) or ``cost`` (effectiveness); ``system`` (such as
            ``plain -> debiased``), ``bias``, ``measure``, ``contrast``; ``before`` and ``after``; ``change`` with its interval
            ``low``, ``high``; for biases ``size_change`` with ``size_low`` and ``size_high``, the change in the figure's
            distance from 0. ``p``: for biases from a paired t-test of no change (where queries are not independent, from a
            randomisation test of whole clusters), for costs from the non-inferiority test; ``p_corrected``, corrected over the
            rows of a kind (Holm); ``p_equivalent``, from TOST with the same margin; all three only if there is one training seed
            and a query changes. With fewer than six queries there are no intervals and no p values, and nothing is shown. ``n``
            queries, ``seeds``, ``verdict`` (biases: smaller or larger if neither interval contains 0, otherwise no change shown;
            costs: kept, lost or not ruled out), ``text``.
        margin: The loss of effectiveness that does not matter.
        dataset: The collection on which both were audited.
        notes: What differs between the audits: settings, judgements, and the conventions under which figures were computed.
    """

    table: pd.DataFrame
    margin: float
    dataset: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The number of each verdict, in one line."""
        counts = self.table["verdict"].value_counts()
        return f"<Comparison on {self.dataset}: {', '.join(f'{n} {verdict}' for verdict, n in counts.items())}>"

    def __str__(self) -> str:
        """The comparison as plain text; see :meth:`to_text`."""
        return self.to_text()

    def _repr_html_(self) -> str:
        """The page in a frame of its own, for notebooks."""
        from pyterrier_debias.report.templates import framed

        return framed(self.to_html(), "What changed, and what it cost")

    def to_text(self, width: int = 110) -> str:
        """The comparison as plain text.

        Args:
            width: The width of a line in characters.

        Returns:
            One sentence per figure, biases first.
        """
        parts = []
        for kind, title in _TITLES:
            texts = self.table.loc[self.table["kind"] == kind, "text"]
            if len(texts):
                bullets = [textwrap.fill(t, width, initial_indent="  - ", subsequent_indent="    ") for t in texts]
                parts.append("\n".join([title.upper(), *bullets]))
        parts.extend(textwrap.fill(note, width) for note in self.notes)
        parts.append(textwrap.fill(self._margin_in_words, width))
        return "\n\n".join(parts)

    def to_html(self) -> str:
        """The comparison as one self-contained HTML page; text from the data is escaped.

        Returns:
            An HTML document.
        """
        from pyterrier_debias.report.templates import environment

        figures = list(zip(*(self.table[name] for name in ("kind", "system", "measure", "contrast"))))
        rows = self.table.assign(named=[figures.count(figure) > 1 for figure in figures]).to_dict("records")
        return environment().get_template("comparison.html").render(
            title=f"Before and after: {self.dataset}",
            kinds=[(title, [r for r in rows if r["kind"] == kind]) for kind, title in _TITLES],
            notes=[
                *self.notes, f"{self._margin_in_words} Verdict: kept if a larger loss is ruled out, lost if it is shown.",
            ],
        )

    @property
    def _margin_in_words(self) -> str:
        return (
            f"A loss of up to {self.margin:g} (the margin) is accepted; one-sided tests at the 5 % level show a larger loss or "
            f"rule it out. Intervals are 95 % intervals. Only p corr. is corrected for the number of rows (Holm); intervals and "
            f"verdicts are not."
        )


_TITLES = (("bias", "Change in bias"), ("cost", "Change in effectiveness"))


def compare(
    before: AuditTables | Sequence[AuditTables],
    after: AuditTables | Sequence[AuditTables] | None = None,
    *,
    systems: tuple[str, str] | None = None,
    margin: float = 0.01,
    effectiveness: Sequence[str] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Comparison:
    """Compare a ranker before and after debiasing: how much bias was removed, and how much effectiveness was lost.

    The comparison is over the queries that both audits have.

    Args:
        before: An audit; or several audits of rankers that were trained with different seeds, under one name.
        after: An audit, or several, of the debiased ranker; several are paired with those of ``before`` in order. A single audit
            on one side stands for all seeds. None compares two systems of ``before``.
        systems: The names of the system before and after. None means: the two systems of one audit; of two audits, the system
            that only the first has and the one that only the second has; otherwise all systems that both have.
        margin: The loss of effectiveness that does not matter, in the unit of the measures. Choose it before you see results.
        effectiveness: Measures whose loss is a cost; None means those of :data:`EFFECTIVENESS` that the audits have. A note
            lists the biases, and the measures named here, that lack a figure for one of the two systems.
        resamples: The number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The comparison.

    Raises:
        InputError: If the audits are of different collections, a system does not exist or cannot be determined, there is no
            figure in common, fewer than two queries are, the margin is not positive, or ``effectiveness`` is not a list of
            names.

    Example:
        ::

            compare(audit({'plain': plain}, dataset), audit({'debiased': debiased}, dataset))
            compare(audit({'plain': plain, 'debiased': debiased}, dataset), systems=('plain', 'debiased'), margin=0.02)

    When not to use it: to choose among many debiased rankers and report the best as if it were the only one.
    """
    check_number("compare", "margin", margin, above=0)
    check_number("compare", "resamples", resamples, least=1, whole=True)
    if isinstance(effectiveness, str):
        raise InputError(f"compare: effectiveness is {effectiveness!r}; give a list of measures, such as [{effectiveness!r}]")
    old = audits_of(before, "compare")
    new = old if after is None else audits_of(after, "compare")
    if not old or not new or (len(old) != len(new) and 1 not in (len(old), len(new))):
        counts = f"{len(old)} audits before and {len(new)} after"
        raise InputError(f"compare: {counts} cannot be paired; give equal numbers, or one audit on either side")
    measures = EFFECTIVENESS if effectiveness is None else effectiveness
    notes = dict.fromkeys(check_alike([*old, *new], "compare"))
    rows = []
    for pair in _pairs(old, new, systems, one=after is None):
        both = _Both(old, new, pair)
        own = _bias_rows(both, resamples, seed) + _cost_rows(both, measures, margin, resamples, seed)
        notes |= dict.fromkeys([*_convention_notes(both, own), *_left_out(both, own, effectiveness or ())])
        rows += own
    if not rows:
        raise InputError(f"compare: {_nothing_in_common([*old, *new])}")
    table = pd.DataFrame(rows, columns=COLUMNS)
    for kind in ("bias", "cost"):
        own = table["kind"] == kind
        table.loc[own, "p_corrected"] = correct(table.loc[own, "p"].to_numpy(dtype=float))
    table["text"] = [
        f"{text[:-1]} (p corr. = {p_text(corrected)})." if corrected > p else text
        for text, p, corrected in zip(table["text"], table["p"], table["p_corrected"])
    ]
    return Comparison(table, margin, str(old[0].settings["dataset"]), tuple(notes))


def _nothing_in_common(results: Sequence[AuditTables]) -> str:
    """Why nothing can be compared: the audits have too few queries or no figure in common."""
    tables = [result.per_query for result in results]
    figures = set.intersection(*(set(zip(t["bias"], t["measure"], t["contrast"])) for t in tables))
    qids = set.intersection(*(set(t["qid"]) for t in tables))
    if figures and len(qids) < 2:
        there = "1 query has" if qids else "no query has"
        return f"{there} values on both sides, but a comparison needs two or more; audit both with the same topics"
    if any(measure.startswith(INFLUENCES) for _, measure, _ in figures) and any(set(t["qid"]) != qids for t in tables):
        return "the figures in common are slopes or correlations over different topics; audit both with the same topics"
    return "the audits have no figure in common; audit both with the same biases"


def audits_of(given: Any, who: str) -> list[AuditTables]:
    """One audit or several, as a list.

    Args:
        given: What the user passed.
        who: The function that the message names.

    Returns:
        The audits.

    Raises:
        InputError: If something is not an audit.
    """
    found = list(given) if isinstance(given, (list, tuple)) else [given]
    wrong = next((one for one in found if not isinstance(one, AuditTables)), None)
    if wrong is not None:
        raise InputError(f"{who}: {kind_of(wrong)} is not an audit; give the result of audit({{...}}, dataset)")
    return found


def check_alike(results: Sequence[AuditTables], who: str) -> list[str]:
    """Refuse audits of different collections, and list what else differs between them.

    Args:
        results: The audits.
        who: The function that the message names.

    Returns:
        One sentence for each setting that differs. Judged topics and judgements are compared by their content, if the audits have
        it on record.

    Raises:
        InputError: If the collections or splits differ.
    """
    first = results[0].settings
    notes = []
    for result in results[1:]:
        other = result.settings
        for name in ("dataset", "split"):
            # Older audits, and those of given topics, do not name the split.
            unknown = name == "split" and None in (first[name], other[name])
            if first[name] != other[name] and not unknown:
                told = f"{name} is {first[name]!r} in one and {other[name]!r} in another; give audits of one only"
                raise InputError(f"{who}: the audits are of different collections or splits: {told}")
        for name in ("depth", "draws", "seed"):
            if first[name] != other[name]:
                notes.append(f"The audits differ in their {name}: {first[name]} and {other[name]}.")
        one, two = first["judged_topics"], other["judged_topics"]
        if one != two or _known_to_differ("judged_qids", first, other):
            here, there = (set(r.per_query["qid"]) for r in (results[0], result))
            left_out = f"Comparisons leave out {len(here - there)} and {len(there - here)} queries that the other audit lacks."
            notes.append(f"The audits differ in their judged topics: {one} and {two}. {left_out}")
        if _known_to_differ("judgements", first, other):
            notes.append(OTHER_JUDGEMENTS)
    return notes


def _known_to_differ(name: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the digests in the settings of two audits differ; older audits lack them."""
    known = one.get(name), other.get(name)
    return None not in known and known[0] != known[1]


def _convention_notes(both: _Both, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Notes on rows whose two figures were computed under different conventions."""
    notes = []
    for row in rows:
        found: dict[str, None] = {}
        for system, result in [*((both.pair[0], r) for r in both.old), *((both.pair[1], r) for r in both.new)]:
            f = result.findings
            own = f[(f["system"] == system) & (f["bias"] == row["bias"])]
            own = own[(own["measure"] == row["measure"]) & (own["contrast"] == row["contrast"])]
            found |= dict.fromkeys(own["convention"])
        if len(found) > 1:
            parts = [convention.split("; ") for convention in found]
            common = set(parts[0]).intersection(*parts[1:])
            told = ["; ".join(p for p in own if p not in common) or "none stated" for own in parts]
            named = " and ".join(f"'{one}'" for one in told)
            notes.append(f"{row['bias']}: the compared figures were computed under different conventions: {named}.")
        together = next(filter(None, map(TOGETHER.search, found)), None)
        if together:
            notes.append(
                f"{row['bias']}: queries with the same {together[1]} are not independent; the comparison is by "
                f"{together[1]}, not by query."
            )
    return notes


def _pairs(
    old: Sequence[AuditTables], new: Sequence[AuditTables], systems: tuple[str, str] | None, *, one: bool
) -> list[tuple[str, str]]:
    """Names before and after."""
    sides = [[n for n in side[0].settings["systems"] if all(n in r.settings["systems"] for r in side)] for side in (old, new)]
    there = " and ".join(", ".join(side) or "none" for side in (sides[:1] if one else sides))
    if systems is not None:
        if isinstance(systems, str) or len(systems) != 2:
            raise InputError(f"compare: systems is {systems!r}; give two names, before and after, from {there}")
        before, after = (visible(str(name)) for name in systems)  # results hold names as they are shown
        for name, side in zip((before, after), sides):
            if name not in side:
                raise InputError(f"compare: system {name!r} is not in the audit; use a name from {there}")
        return [(before, after)]
    if one:
        if len(sides[0]) == 2:
            return [(sides[0][0], sides[0][1])]
        raise InputError(f"compare: the audit does not have two systems; give systems=(before, after), two names from {there}")
    own = [[n for n in side if n not in other] for side, other in (sides, sides[::-1])]
    if [len(side) for side in own] == [1, 1]:
        return [(own[0][0], own[1][0])]
    common = [name for name in sides[0] if name in sides[1]]
    if not common:
        raise InputError(f"compare: no system is in both audits; give systems=(before, after), one name from each of {there}")
    return [(name, name) for name in common]


def values_of(
    results: Sequence[AuditTables], system: str, bias: str, measure: str, contrast: str
) -> pd.DataFrame:
    """The values of one figure in several audits, over the queries that all have.

    Args:
        results: Audits, one per training seed.
        system: The system's name.
        bias: The bias.
        measure: The measure.
        contrast: The contrast.

    Returns:
        One row per query, one column per audit; empty if one of them lacks the figure.
    """
    columns = []
    for result in results:
        f = result.per_query
        own = f[(f["system"] == system) & (f["bias"] == bias) & (f["measure"] == measure) & (f["contrast"] == contrast)]
        columns.append(own.drop_duplicates("qid").set_index("qid")["value"])
    return pd.concat(columns, axis=1, keys=range(len(columns)), join="inner").dropna()


def effectiveness_of(result: AuditTables, system: str, measure: str) -> list[tuple[str, str]]:
    """The biases and contrasts under which an audit reports the plain effectiveness of a system.

    Args:
        result: The audit.
        system: The system's name.
        measure: The measure, such as ``'nDCG@10'``.

    Returns:
        Bias and contrast of each bias that reports it, the plainest contrast first; empty if none does.
    """
    f = result.per_query
    own = f[(f["system"] == system) & (f["measure"] == measure)]
    return [
        (str(bias), contrast)
        for contrast in EFFECTIVENESS_CONTRASTS
        for bias in dict.fromkeys(own.loc[own["contrast"] == contrast, "bias"])
    ]


@dataclass(frozen=True)
class _Both:
    """What is compared: audits before and after, and the system's names in them."""

    old: Sequence[AuditTables]
    new: Sequence[AuditTables]
    pair: tuple[str, str]

    def values(self, keys: Sequence[_Key]) -> tuple[_Key, list[str], tuple[np.ndarray, np.ndarray]] | None:
        """The first figure that both sides have, the queries of all audits, at least two, and its values [seeds, n] for them."""
        for key in keys:
            before, after = values_of(self.old, self.pair[0], *key), values_of(self.new, self.pair[1], *key)
            common = before.index.intersection(after.index).sort_values()  # queries are drawn by their place
            if len(common) > 1 and not self.of_other_topics(key):
                wide = before.loc[common].to_numpy(dtype=float).T, after.loc[common].to_numpy(dtype=float).T
                return key, common.tolist(), wide
        return None

    def clusters(self, bias: str, qids: Sequence[str]) -> list[str] | None:
        """The labels of queries that are not independent; None if no audit has labels for the bias."""
        labels: dict[str, str] = {}
        for result in (*self.old, *self.new):
            labels |= result.clusters.get(bias, {})
        return [labels.get(qid, qid) for qid in qids] if labels else None

    def of_other_topics(self, key: _Key) -> bool:
        """Whether a figure has influence values of different queries: they average to it over all queries of their audit only."""
        if not key[1].startswith(INFLUENCES):
            return False
        sides = zip(self.pair, (self.old, self.new))
        qids = [set(values_of([result], system, *key).index) for system, results in sides for result in results]
        return all(qids) and any(own != qids[0] for own in qids)

    def primary(self) -> dict[str, list[_Key]]:
        """Bias to its primary figures: that of the system before, then that of the system after."""
        keys: dict[str, list[_Key]] = {}
        for result, system in zip((self.old[0], self.new[0]), self.pair):
            f = result.findings
            for one in f[(f["system"] == system) & f["primary"].astype(bool)].to_dict("records"):
                keys.setdefault(one["bias"], []).append((one["bias"], one["measure"], one["contrast"]))
        return keys

    def named(self, between: str) -> str:
        """The system's name; both names if they differ before and after."""
        return self.pair[0] if self.pair[0] == self.pair[1] else between.join(self.pair)


def _row(kind: str, both: _Both, key: _Key, before: np.ndarray, after: np.ndarray, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(COLUMNS, float("nan"))
    row.update(zip(("kind", "system", "bias", "measure", "contrast"), (kind, both.named(" -> "), *key)))
    row.update(before=before.mean(), after=after.mean(), n=before.shape[1], seeds=max(len(before), len(after)), **more)
    return row


def _left_out(both: _Both, rows: Sequence[Mapping[str, Any]], measures: Sequence[str]) -> list[str]:
    """Notes on what was to be compared and could not be."""
    there = {(row["kind"], row["bias"]) for row in rows}
    lacks = {bias: keys for bias, keys in both.primary().items() if ("bias", bias) not in there}
    costs = {row["measure"] for row in rows if row["kind"] == "cost"}
    unknown = [measure for measure in measures if measure not in costs] or ([] if costs else ["effectiveness"])
    told = "cannot be compared: no figure is available on both sides."
    more = {bias: " Slopes and correlations need audits of the same topics." for bias, keys in lacks.items()
            if any(map(both.of_other_topics, keys))}  # fmt: skip
    return [f"{both.named(' and ')}: {what} {told}{more.get(what, '')}" for what in [*lacks, *unknown]]


def _bias_rows(both: _Both, resamples: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    # A retriever has no slope given its candidates, and a ranker does not have the retriever's: compare what both have.
    found = [one for keys in both.primary().values() if (one := both.values(keys)) is not None]
    alike = Counter(key[1:] for key, *_ in found)
    for key, qids, values in found:
        of = both.clusters(key[0], qids)
        change = change_interval(*values, clusters=of, resamples=resamples, seed=seed).of_enough
        size = size_interval(*values, clusters=of, resamples=resamples, seed=seed).of_enough
        one_seed = max(map(len, values)) == 1
        p = change_p(values[0][0], values[1][0], clusters=of, seed=seed) if one_seed else float("nan")
        verdict = bias_verdict(change, size)
        row = _row(
            "bias", both, key, *values, change=change.estimate, low=change.low, high=change.high, p=p, verdict=verdict,
            size_change=size.estimate, size_low=size.low, size_high=size.high,
        )  # fmt: skip
        told = {
            "smaller": f"the bias became smaller, by {_with_ends(-size.estimate, -size.high, -size.low, number)}",
            "larger": f"the bias became larger, by {_with_ends(size.estimate, size.low, size.high, number)}",
            "no change shown": "the figure changed" if (shown := leaves_out_zero(change)) else "no change is shown",
        }[verdict]
        if verdict == "no change shown":
            told += f" ({_ends(change)})"
            told += ", but no change in its size is shown" if shown else ""
        tested_as = "" if np.isnan(p) else f", change p = {p_text(p)}"
        row["text"] = f"{_figure(row, named=alike[key[1:]] > 1)}: {told}; {_over(row)}{tested_as}."
        rows.append(row)
    return rows


def _cost_rows(both: _Both, measures: Sequence[str], margin: float, resamples: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for measure in measures:
        places = effectiveness_of(both.old[0], both.pair[0], measure)
        found = both.values([(bias, measure, contrast) for bias, contrast in places])
        if found is None:
            continue
        key, _, values = found
        change = change_interval(*values, resamples=resamples, seed=seed).of_enough
        # A one-sided test at 0.05 is the interval of 90 %.
        sides = change_interval(*values, level=0.9, resamples=resamples, seed=seed).of_enough
        verdict = _KEPT if sides.low > -margin else _LOST if sides.high < -margin else _UNCLEAR
        row = _row("cost", both, key, *values, change=change.estimate, low=change.low, high=change.high, verdict=verdict)
        if row["seeds"] == 1 and change.n >= LEAST_UNITS and differences(values[0][0], values[1][0]).any():
            row["p"] = non_inferiority(values[0][0], values[1][0], margin).p
            row["p_equivalent"] = equivalence_test(values[0][0], values[1][0], margin).p
        told = {
            _KEPT: f"a loss of more than {margin:g} is ruled out",
            _LOST: f"a loss of more than {margin:g} is shown",
            _UNCLEAR: f"a loss of more than {margin:g} is neither shown nor ruled out",
        }[verdict]
        tested = "" if np.isnan(row["p"]) else f", non-inferiority p = {p_text(row['p'])}"
        row["text"] = f"{_figure(row)}, a change of {_ends(change)}: {told}; {_over(row)}{tested}."
        rows.append(row)
    return rows


def _ends(change: Interval) -> str:
    """A change with its interval, if there is one."""
    return _with_ends(change.estimate, change.low, change.high, signed)


def _with_ends(estimate: float, low: float, high: float, told: Callable[[float, int], str]) -> str:
    digits = digits_of(low, high)
    return f"{told(estimate, digits)} {interval(low, high, digits, told)}".rstrip()


def _figure(row: dict[str, Any], *, named: bool = False) -> str:
    """The figure before and after; the bias is ``named`` if another one has the same measure and contrast."""
    contrast = "" if row["kind"] == "cost" else f" ({row['contrast']})"
    bias = f", bias {row['bias']!r}" if named else ""
    return f"{row['system']}{bias}: {row['measure']}{contrast} from {number(row['before'])} to {number(row['after'])}"


def _over(row: dict[str, Any]) -> str:
    seeds = f" and {row['seeds']} training seeds" if row["seeds"] > 1 else ""
    return f"over {row['n']} queries{seeds}"
