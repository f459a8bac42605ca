"""An audit as one self-contained HTML page."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from pyterrier_debias.core.bias import Figure
from pyterrier_debias.report.pareto import pareto_figures
from pyterrier_debias.report.pictures import following_the_scheme, picture
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.templates import environment
from pyterrier_debias.report.text import convention_marks, correction_made, failures, shortened_conventions, skipped_reasons
from pyterrier_debias.report.verdict import Answer, Verdict, by_sentence, title, verdicts

#: How many queries the page names for each primary figure.
_WORST = 5

#: For each kind of item: the titles of its two columns, and what the contributions sum to.
_ITEMS = {
    "documents": ("document", "note", "Each document's contribution to the primary figure; all contributions sum to the figure."),
    "words": (
        "word", "group",
        "Each word's contribution to the primary figure; all contributions sum to the figure. In documents that are ranked low, "
        "a word counts against its own group, and so does the document.",
    ),
    "positions": ("position", "note", "The contributions of all rows sum to the figure."),
}  # fmt: skip
_DIVIDED = (
    "Here a document's magnitude is not a sum over its words, so it is divided among them in proportion to their counts."
)


def as_html(result: AuditTables) -> str:
    """See :meth:`pyterrier_debias.AuditResult.to_html`; everything that comes from data is escaped."""
    return environment().get_template("report.html").render(
        title=title(result),
        verdicts=[_verdict(verdict) for verdict in verdicts(result)],
        settings=result.settings,
        tests=correction_made(result),
        biases=_sections(result),
        fronts=[_inline(figure) for figure in pareto_figures(result)],
        skipped=skipped_reasons(result.skipped),
        failed=failures(result.failed),
    )


def _verdict(verdict: Verdict) -> dict[str, Any]:
    """A verdict with the places of its intervals; systems with the same answer share a line."""
    same = by_sentence(verdict.answers)
    answers = [
        {
            "systems": ", ".join(answer.system for answer in own), "outcome": own[0].outcome,
            "lead": lead if mark else "", "told": _told(told if mark else lead, own[0].asides),
        }
        for own in same
        for lead, mark, told in [own[0].sentence.partition(": ")]
    ]  # fmt: skip
    strips = _strips([own[0] for own in same])
    return {"question": verdict.question, "answers": [a | {"strip": strip} for a, strip in zip(answers, strips)]} | {
        "treatments": verdict.treatments, "nothing_helps": verdict.nothing_helps,
    }  # fmt: skip


def _told(sentence: str, asides: Sequence[str]) -> list[tuple[str, bool]]:
    """The parts of an answer, and whether a phone leaves them out so that the verdict fits on two screens."""
    parts = []
    for aside in asides:
        before, found, sentence = sentence.partition(aside)
        parts += [(before, False), (found, True)]
    return [(part, less) for part, less in [*parts, (sentence, False)] if part]


def _strips(answers: Sequence[Answer]) -> list[dict[str, float] | None]:
    """Where figures, intervals and zero are drawn, in per cent of the width: one scale for each unit; None without a figure."""
    strips: list[dict[str, float] | None] = []
    for answer in answers:
        own = [(a.effect, a.low, a.high) for a in answers if a.unit == answer.unit]
        ends = [0.0, *(v for figures in own for v in figures if math.isfinite(v))]
        low, high = min(ends), max(ends)
        margin = 0.06 * (high - low) or 1.0
        low, high = low - margin, high + margin
        at = [round(100 * (v - low) / (high - low), 2) for v in (0.0, answer.effect, answer.low, answer.high)]
        if math.isnan(answer.effect):
            strips.append(None)
        elif math.isnan(answer.low) or math.isnan(answer.high):
            strips.append({"zero": at[0], "at": at[1]})
        else:
            strips.append({"zero": at[0], "at": at[1], "left": at[2], "width": round(at[3] - at[2], 2)})
    return strips


def _sections(result: AuditTables) -> list[dict[str, Any]]:
    """What the page shows for each bias, in the order of the findings."""
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
    """A figure as the page embeds it."""
    svg = base64.b64encode(following_the_scheme(picture(figure, "svg"))).decode()
    return {"caption": figure.caption, "data": svg}


def _section(
    bias: str, rows: pd.DataFrame, figures: Iterable[tuple[str, Figure]], worst: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    marks = convention_marks(rows["convention"])
    primary = rows["primary"].astype(bool)
    tested = primary | rows["p_corrected"].notna()
    first = [text for text in dict.fromkeys(rows.loc[primary, "text"]) if text]
    return {
        "name": bias,
        "told": first,
        "tables": [
            {
                "name": f"{name} figure{'' if len(own) == 1 else 's'}", "folded": folded, "n": len(own),
                "systems": _by_system(own, marks),
            }
            for name, own, folded in (("tested", rows[tested], False), ("other", rows[~tested], True))
            if len(own)
        ],
        "sentences": [text for text in dict.fromkeys(rows["text"]) if text not in ("", *first)],
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


def _by_system(rows: pd.DataFrame, marks: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "findings": [row | {"method": marks.get(row["convention"], "")} for row in own.to_dict("records")]}
        for name, own in rows.groupby("system", sort=False)
    ]


def _by_figure(worst: pd.DataFrame) -> list[dict[str, Any]]:
    return [
        {"system": system, "measure": measure, "contrast": contrast, "rows": own.to_dict("records")}
        for (system, measure, contrast), own in worst.groupby(["system", "measure", "contrast"], sort=False)
    ]
