"""Bias against effectiveness: which systems no other system beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Figure
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import value_range
from pyterrier_debias.core.statistics import t_interval
from pyterrier_debias.report.compare import OTHER_JUDGEMENTS, audits_of, check_alike, effectiveness_of, values_of
from pyterrier_debias.report.noninferiority import on_front
from pyterrier_debias.report.tables import AuditTables

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = [
    "system", "bias", "measure", "contrast", "size", "size_low", "size_high", "effectiveness", "low", "high", "n",
    "convention", "on_front",
]  # fmt: skip
#: How measures begin whose value without bias is 1 or, for a share of pairs, one half.
_NOT_FROM_ZERO = ("NFaiRR", "FaiRR", "Kendall's tau", "tau of ", "share of pairs")


def pareto(
    results: AuditTables | Sequence[AuditTables], bias: str, *, effectiveness: str = "nDCG@10",
    measure: str | None = None, contrast: str | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Find the systems that no other system beats in both bias and effectiveness (the front).

    Args:
        results: An audit of several systems, or several audits of the same collection; their systems must have distinct names.
        bias: The name of the bias.
        effectiveness: The measure of effectiveness.
        measure: The measure of the bias; None (with ``contrast`` None) means the primary figure, which must be the same one for
            all systems.
        contrast: The contrast of the bias. Either of the two is enough if it selects a single figure.

    Returns:
        One row per system that has both figures, the most effective first: ``size`` (the figure's distance from 0) with its
        interval ``size_low`` and ``size_high``, the mean ``effectiveness`` with Student's interval ``low`` and ``high``, cut to
        the range of the measure (with fewer than six queries both are NaN), ``n`` queries, ``convention`` (of the bias figure),
        ``on_front``: no other system is at most as biased and at least as effective, and better in one of the two. Intervals
        play no part in this: two systems whose intervals overlap may change places on other queries.

    Raises:
        InputError: If the audits are of different collections, topics, judgements or settings, a name occurs twice, several
            figures are selected, the figure of a system without bias is not 0 (effectiveness, NFaiRR, Kendall's tau, a share of
            pairs), or no system has both figures.

    When not to use it: to choose a system by one figure; points whose intervals overlap are not ordered.

    Example:
        ::

            plot_pareto(pareto(audit({'a': a, 'b': b, 'c': c}, dataset), 'position'))
    """
    audits = audits_of(results, "pareto")
    if not audits:
        raise InputError("pareto: there are no audits; give one audit of several systems, or several audits")
    notes = check_alike(audits, "pareto")
    if OTHER_JUDGEMENTS in notes:
        raise InputError("pareto: the audits used different judgements; audit all systems with the same ones")
    if notes:
        raise InputError(f"pareto: a front compares systems under the same conditions. {notes[0]} Audit all systems alike")
    asked = [frozenset(one.per_query["qid"]) for one in audits]
    if any(not one & asked[0] for one in asked[1:]):
        raise InputError("pareto: the audits have no query in common; audit all systems with the same topics")
    chosen = [_meant(one.findings, bias, measure, contrast) for one in audits]
    meant = list(dict.fromkeys(pair for f in chosen for pair in zip(f["measure"], f["contrast"])))
    if len(meant) > 1:
        names = ", ".join(f"{m} ({g})" for m, g in meant)
        which = "match" if measure is not None or contrast is not None else "are primary, and they are not comparable"
        raise InputError(f"pareto: several figures of {bias!r} {which}: {names}; select one with measure= and contrast=")
    if any(not _is_size(*pair) for pair in meant):
        told = "is no size of a bias, because its value without bias is not 0; name a difference or a slope"
        raise InputError(f"pareto: {meant[0][0]} ({meant[0][1]}) {told}")
    rows = []
    for one, f in zip(audits, chosen):
        for found in f.drop_duplicates("system").to_dict("records"):
            places = effectiveness_of(one, found["system"], effectiveness)
            if not places or np.isnan(found["value"]):
                continue
            of, where = places[0]
            interval = t_interval(values_of([one], found["system"], of, effectiveness, where)[0].to_numpy()).of_enough
            interval = interval.within(*value_range(effectiveness))
            low, high = found["low"], found["high"]
            ends = sorted((abs(low), abs(high)))
            rows.append(
                {
                    **{name: found[name] for name in ("system", "bias", "measure", "contrast", "convention")},
                    "size": abs(found["value"]),
                    "size_low": 0.0 if low <= 0 <= high else ends[0],
                    "size_high": ends[1],
                    "effectiveness": interval.estimate,
                    "low": interval.low,
                    "high": interval.high,
                    "n": interval.n,
                }
            )
    table = pd.DataFrame(rows, columns=COLUMNS)
    if table.empty:
        told = f"no system has both a figure for bias {bias!r} and {effectiveness}"
        raise InputError(f"pareto: {told}; audit that bias, or name another measure")
    if table["system"].duplicated().any():
        name = table.loc[table["system"].duplicated(), "system"].iloc[0]
        raise InputError(f"pareto: system {name!r} occurs twice; give every system its own name")
    table["on_front"] = on_front(table["size"], table["effectiveness"])
    return table.sort_values("effectiveness", ascending=False, kind="stable").reset_index(drop=True)


def _is_size(measure: str, contrast: str) -> bool:
    """Whether the distance of a figure from 0 is the size of a bias: no effectiveness, fairness, agreement or share of pairs."""
    return " - " in contrast or not (measure.startswith(_NOT_FROM_ZERO) or value_range(measure) == (0.0, 1.0))


def _meant(findings: pd.DataFrame, bias: str, measure: str | None, contrast: str | None) -> pd.DataFrame:
    """The findings from which a front is made."""
    f = findings[findings["bias"] == bias]
    if measure is None and contrast is None:
        return f[f["primary"].astype(bool)]
    return f[((f["measure"] == measure) | (measure is None)) & ((f["contrast"] == contrast) | (contrast is None))]


def plot_pareto(
    table: pd.DataFrame, ax: Axes | None = None, *, effectiveness: str = "nDCG@10", order: Sequence[str] | None = None
) -> Axes:
    """Plot the table of :func:`pareto`. Better is up and to the left; a line joins the front, other systems are hollow.

    Args:
        table: What :func:`pareto` returned.
        ax: Matplotlib axes; None makes new ones.
        effectiveness: The label of the vertical axis.
        order: The names of all systems, so that each has the same colour in other figures; None means the order of the table.

    Returns:
        The axes.
    """
    from pyterrier_debias.core import plots

    axes = plots.new_axes() if ax is None else ax
    colours = plots.colours(table["system"], order)
    with plots.style():
        for row in table.to_dict("records"):
            colour = colours[row["system"]]
            x, y = row["size"], row["effectiveness"]
            axes.errorbar(
                x, y, xerr=plots.ends(x, row["size_low"], row["size_high"]), yerr=plots.ends(y, row["low"], row["high"]), fmt="o",
                color=colour, markerfacecolor=colour if row["on_front"] else "white", elinewidth=1,
                label=plots.legend_label(row["system"]),
            )  # fmt: skip
        best = table[table["on_front"]].sort_values("size")
        axes.plot(best["size"], best["effectiveness"], "--", color=plots.GREY, linewidth=1, zorder=0)
        axes.legend()
        first = table.iloc[0]
        if table["convention"].nunique() > 1:
            told = "bias computed under different conventions: see the table"
            axes.text(0, 1.01, told, transform=axes.transAxes, fontsize=8, color=plots.GREY, va="bottom")
        plots.label_axes(
            axes, x=f"size of {first['bias']} bias: |{first['measure']}, {first['contrast']}|",
            y=f"mean {effectiveness} [n = {plots.spanned(table['n'])} queries]",
        )  # fmt: skip
    return axes


def pareto_figures(result: AuditTables, *, effectiveness: str = "nDCG@10") -> list[Figure]:
    """The front of each bias of an audit, for its report.

    Args:
        result: The audit.
        effectiveness: The measure.

    Returns:
        One figure for each bias whose primary figure and effectiveness at least two systems have, in the order of the findings.
        A bias whose primary figures differ between systems (a ranker's slope is given its candidates, a retriever's is not) gets
        none: they share no axis.

    Example:
        ::

            for figure in pareto_figures(audit({'a': a, 'b': b}, dataset)):
                print(figure.caption)
    """
    found = []
    for bias in dict.fromkeys(result.findings.loc[result.findings["primary"].astype(bool), "bias"]):
        try:
            table = pareto(result, bias, effectiveness=effectiveness)
        except InputError:  # no system has both figures, or systems have different ones
            continue
        if len(table) > 1:
            draw = partial(plot_pareto, table, effectiveness=effectiveness, order=result.settings["systems"])
            found.append(Figure(f"front-{bias}", _caption(table, result, effectiveness), draw))
    return found


def _caption(table: pd.DataFrame, result: AuditTables, effectiveness: str) -> str:
    from pyterrier_debias.core.plots import spanned

    first = table.iloc[0]
    f = result.findings
    own = f[(f["bias"] == first["bias"]) & f["primary"].astype(bool)].drop_duplicates("system").set_index("system")
    own = own.loc[table["system"]]
    best = [str(name) for name in table.loc[table["on_front"], "system"]]
    which = f"{', '.join(best)}, filled and joined: no other system is at most as biased and at least as effective"
    hollow = "" if table["on_front"].all() else "; hollow: the other systems"
    over = f"{spanned(own['n'])} {'query' if own['n'].max() == 1 else 'queries'}"
    if own["n"].tolist() != table["n"].tolist():
        over = f"{over} (bias) and {spanned(table['n'])} (effectiveness)"
    shown = "with 95 % intervals " if table[["size_low", "low"]].notna().any(axis=None) else ""
    return (
        f"{str(first['bias']).capitalize()}: size of the bias, |{first['measure']}, {first['contrast']}|, against mean "
        f"{effectiveness}, for {len(table)} systems, {shown}over {over}. Better is up and to the left. The front "
        f"({which}{hollow}) is drawn from the point values alone: systems whose intervals overlap may change places on other "
        f"queries."
    )
