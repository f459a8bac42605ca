"""An audit as one self-contained HTML page."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from pyterrier_debias.core.bias import Figure
from pyterrier_debias.report.pareto import pareto_figures
from pyterrier_debias.report.pictures import picture
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.templates import environment
from pyterrier_debias.report.text import (
    ALPHA,
    CORRECTION_NAMES,
    convention_marks,
    correction_made,
    shortened_conventions,
    skipped_reasons,
)

#: How many queries the page names for each primary figure.
_WORST = 5

#: What is said of the items of each kind: what the columns are called, and what their parts are parts of.
_ITEMS = {
    "documents": ("document", "what of it", "Each document's part of the primary figure; the parts of all documents sum to it."),
    "words": (
        "word", "group",
        "Each word's part of the primary figure; the parts of all words sum to it. In documents that are ranked low a word "
        "counts against its own contrast, and so does the document.",
    ),
    "positions": ("position", "what of it", "The parts of all rows sum to the figure."),
}  # fmt: skip
_DIVIDED = (
    "The magnitude of a document is no sum over its words here: it is divided among them in proportion to their counts."
)


def as_html(result: AuditTables) -> str:
    """See :meth:`pyterrier_debias.AuditResult.to_html`; everything that comes from data is escaped."""
    return environment().get_template("report.html").render(
        title=f"Bias audit: {result.settings['dataset']}",
        settings=result.settings,
        tests=correction_made(result),
        correction=CORRECTION_NAMES[result.settings["correction"]],
        primary=_strip(result.findings),
        biases=_sections(result),
        fronts=[_inline(figure) for figure in pareto_figures(result)],
        skipped=skipped_reasons(result.skipped),
        failed=list(zip(result.failed["bias"], result.failed["error"])),
        alpha=ALPHA,
    )


def _strip(findings: pd.DataFrame) -> list[dict[str, Any]]:
    """The primary findings of each bias on one scale, in per cent of its width."""
    groups = []
    for _, rows in findings[findings["primary"].astype(bool)].groupby(["bias", "measure"], sort=False):
        ends = [v for column in ("value", "low", "high") for v in rows[column] if math.isfinite(v)]
        if not ends:
            continue
        low, high = min(0.0, *ends), max(0.0, *ends)
        margin = 0.06 * (high - low) or 1.0
        low, high = low - margin, high + margin

        def at(value: float, low: float = low, high: float = high) -> float:
            return round(100 * (value - low) / (high - low), 2)

        placed = []
        for row in rows[rows["value"].map(math.isfinite)].to_dict("records"):
            bounded = math.isfinite(row["low"]) and math.isfinite(row["high"])
            placed.append(
                _finding(row)
                | {"at": at(row["value"]), "left": at(row["low"]) if bounded else None}
                | {"width": round(at(row["high"]) - at(row["low"]), 2) if bounded else None}
            )
        groups.append({"low": low, "high": high, "zero": at(0.0), "findings": placed})
    return groups


def _sections(result: AuditTables) -> list[dict[str, Any]]:
    """What the page shows of each bias, in the order of the findings."""
    biases = dict.fromkeys([*result.findings["bias"], *(bias for bias, _ in result.figures)])
    worst = {kind: result.worst(_WORST, kind=kind) for kind in ("queries", *_ITEMS)}
    return [
        _section(
            bias, result.findings[result.findings["bias"] == bias], result.figures,
            {kind: table[table["bias"] == bias] for kind, table in worst.items()},
        )
        for bias in biases
    ]  # fmt: skip


def _inline(figure: Figure) -> dict[str, str]:
    """A figure as the page holds it."""
    return {"caption": figure.caption, "data": base64.b64encode(picture(figure, "svg")).decode()}


def _section(
    bias: str, rows: pd.DataFrame, figures: Iterable[tuple[str, Figure]], worst: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    marks = convention_marks(rows["convention"])
    # The primary findings' sentences stand at the top of the page already.
    told = {"", *rows.loc[rows["primary"].astype(bool), "text"]}
    return {
        "name": bias,
        "findings": [_finding(row) | {"method": marks.get(row["convention"], "")} for row in rows.to_dict("records")],
        "sentences": [text for text in dict.fromkeys(rows["text"]) if text not in told],
        "conventions": shortened_conventions(marks),
        "figures": [_inline(figure) for owner, figure in figures if owner == bias],
        "worst": _by_figure(worst["queries"]),
        "items": [
            {
                "kind": kind, "item": item, "note": note, "of": _by_figure(worst[kind]),
                "said": said if worst[kind]["exact"].all() else f"{said} {_DIVIDED}",
            }
            for kind, (item, note, said) in _ITEMS.items()
            if len(worst[kind])
        ],
    }  # fmt: skip


def _by_figure(worst: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"system": system, "measure": measure, "contrast": contrast, "rows": own.to_dict("records")}
        for (system, measure, contrast), own in worst.groupby(["system", "measure", "contrast"], sort=False)
    ]


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    """A finding with the verdict that the page shows, and colours where it is significant."""
    corrected = row["p_corrected"]
    if math.isnan(corrected):
        verdict = "" if math.isnan(row["p"]) else "descriptive"
    elif corrected < ALPHA:
        verdict = "significant"
    else:
        # An interval that leaves out zero beside a bare "not significant" looks like a mistake.
        verdict = "only before correction" if row["p"] < ALPHA else "not significant"
    return {**row, "verdict": verdict}
