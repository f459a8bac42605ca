"""An audit for people to read: plain text, and one self-contained HTML page."""

from __future__ import annotations

import base64
import html
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from pyterrier_debias.core.bias import Figure

if TYPE_CHECKING:
    from pyterrier_debias.report.result import AuditResult

#: Below this corrected p a finding is called significant.
ALPHA = 0.05

#: How many queries the page names for each primary figure.
_WORST = 5

#: What is said of the items of each kind: what the columns are called, and what their parts are parts of.
_ITEMS = {
    "documents": ("document", "what of it", "Each document's part of the primary figure; the parts of all documents sum to it."),
    "words": (
        "word", "group",
        "Each word's part of the primary figure; the parts of all words sum to it. In documents that are ranked low a word "
        "counts against its own group, and so does the document.",
    ),
    "positions": ("position", "what of it", "The parts of all rows sum to the figure."),
}  # fmt: skip
_DIVIDED = (
    "The magnitude of a document is no sum over its words here: it is divided among them in proportion to their counts."
)

#: The column of the text table that gives way where the line is too long.
_OF = 2

CORRECTION_NAMES = {"holm": "Holm", "bonferroni": "Bonferroni", "fdr_bh": "Benjamini and Hochberg"}


def number(value: float, digits: int = 3) -> str:
    """A figure for a table: fixed digits, blank where it is not defined, never ``-0.000``."""
    if math.isnan(value):
        return ""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def interval(low: float, high: float) -> str:
    """An interval for a table; blank where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{number(low)}, {number(high)}]"


def probability(p: float) -> str:
    """A p value for a table: blank where nothing was tested."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def as_text(result: AuditResult, width: int = 100) -> str:
    """The report as plain text.

    Sentences are printed for the primary tests and for what is significant; all of them are in the table and on the page.

    Args:
        result: The audit.
        width: Characters in a line; a table that needs more shortens the column ``of``.

    Returns:
        Lines joined by newlines.
    """
    parts = [textwrap.fill(headline(result), width)]
    parts.extend(textwrap.fill(note, width) for note in result.settings["notes"])
    for bias, rows in result.findings.groupby("bias", sort=False):
        marks = convention_marks(rows["convention"])
        parts.append(f"{str(bias).upper()}\n\n{_table(rows, marks, width)}")
        told = rows[rows["text"].ne("") & (rows["primary"].astype(bool) | (rows["p_corrected"] < ALPHA))]
        if len(told):
            parts.append("\n".join(_bullet(text, width) for text in dict.fromkeys(told["text"])))
        if marks:
            notes = [f"  {mark}  {text}" for mark, text in shortened_conventions(marks)]
            parts.append("\n".join(textwrap.fill(note, width, subsequent_indent="     ") for note in notes))
    if len(result.skipped):
        reasons = [f"{bias}: {systems}: {reason}" for bias, systems, reason in skipped_reasons(result.skipped)]
        parts.append("\n".join(["NOT EXAMINED", *(_bullet(reason, width) for reason in reasons)]))
    if len(result.failed):
        errors = [f"{bias}: {error}" for bias, error in zip(result.failed["bias"], result.failed["error"])]
        parts.append("\n".join(["BROKEN OFF BY A DEFECT", *(_bullet(error, width) for error in errors)]))
    parts.append(textwrap.fill(f"* the primary test of its bias. p corr.: p {correction_made(result)}", width))
    return "\n\n".join(parts)


def convention_marks(conventions: Iterable[str]) -> dict[str, str]:
    """A letter for each convention, so that figures computed in different ways never look alike.

    Args:
        conventions: The findings' conventions; empty ones get no letter.

    Returns:
        Convention to its mark: ``a`` to ``z``, then ``aa``, ``ab``, ...
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    distinct = [text for text in dict.fromkeys(conventions) if text]
    return {text: letters[i // 26 - 1] * (i >= 26) + letters[i % 26] for i, text in enumerate(distinct)}


def shortened_conventions(marks: Mapping[str, str]) -> list[tuple[str, str]]:
    """Mark and text of each convention; one that begins like an earlier one names that one's mark instead.

    Args:
        marks: What :func:`convention_marks` returned.

    Returns:
        Pairs in the order of the marks.

    Example:
        >>> shortened_conventions({"3 draws": "a", "3 draws; t-test": "b"})
        [('a', '3 draws'), ('b', 'a; t-test')]
    """
    pairs: list[tuple[str, str]] = []
    for text, mark in marks.items():
        earlier = [known for known in list(marks)[: len(pairs)] if text.startswith(f"{known}; ")]
        longest = max(earlier, key=len, default="")
        pairs.append((mark, marks[longest] + text[len(longest) :] if longest else text))
    return pairs


def headline(result: AuditResult) -> str:
    """One sentence: what was audited, on what."""
    s = result.settings
    split = f" ({s['split']})" if s["split"] else ""
    topics = f"{s['judged_topics']} judged topics"
    if s["topics"] != s["judged_topics"]:
        topics += f" of {s['topics']}"
    return f"Bias audit of {', '.join(s['systems'])} on {s['dataset']}{split}: {topics}, depth {s['depth']}, seed {s['seed']}."


def correction_made(result: AuditResult) -> str:
    """What the corrected p values were corrected for."""
    tests = int(result.findings["p"].notna().sum())
    name = CORRECTION_NAMES[result.settings["correction"]]
    return f"corrected for {tests} test{'' if tests == 1 else 's'} ({name}); below {ALPHA} is called significant."


def skipped_reasons(skipped: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Bias, systems joined by commas, reason: one entry for each bias and reason."""
    return [
        (str(bias), ", ".join(rows["system"]), str(reason))
        for (bias, reason), rows in skipped.groupby(["bias", "reason"], sort=False)
    ]


def _bullet(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  - ", subsequent_indent="    ")


def _table(rows: pd.DataFrame, marks: Mapping[str, str], width: int) -> str:
    """An aligned table of one bias' findings, system by system; a column in which nothing stands is left out."""
    titles = ["", "measure", "of", "value", "95 % interval", "by chance", "n", "p", "p corr.", "how"]
    columns = [
        ["*" if primary else "" for primary in rows["primary"]],
        rows["measure"].tolist(),
        rows["group"].tolist(),
        [number(v, 4) for v in rows["value"]],
        [interval(low, high) for low, high in zip(rows["low"], rows["high"])],
        [number(v) for v in rows["noise_floor"]],
        [str(n) if n else "" for n in rows["n"]],
        [probability(p) for p in rows["p"]],
        [probability(p) for p in rows["p_corrected"]],
        [marks.get(text, "") for text in rows["convention"]],
    ]
    kept = [i for i, column in enumerate(columns) if any(column)]
    widths = {i: max(len(cell) for cell in [titles[i], *columns[i]]) for i in kept}
    room = width - 2 - 2 * (len(kept) - 1) - sum(w for i, w in widths.items() if i != _OF)
    if _OF in widths:
        widths[_OF] = min(widths[_OF], max(room, 8))

    def line(cells: Sequence[str]) -> str:
        cut = {i: c if len(c) <= widths[i] else f"{c[: widths[i] - 3]}..." for i, c in zip(kept, cells)}
        words = (c.ljust(widths[i]) if i <= _OF or titles[i] == "how" else c.rjust(widths[i]) for i, c in cut.items())
        return f"  {'  '.join(words)}".rstrip()

    lines = [line([titles[i] for i in kept]), line(["-" * widths[i] for i in kept])]
    before = None
    for system, cells in zip(rows["system"], zip(*(columns[i] for i in kept))):
        if system != before:
            lines.append(textwrap.shorten(str(system), width, placeholder="..."))
        lines.append(line(cells))
        before = system
    return "\n".join(lines)


def picture(figure: Figure, kind: str) -> bytes:
    """Draw a figure in the style of the library.

    Args:
        figure: What to draw.
        kind: ``'png'`` or ``'svg'``.

    Returns:
        The content of a file.
    """
    from pyterrier_debias.core.plots import new_axes, rendered, style
    from pyterrier_debias.report.checkpoint import DrawnFigure

    if isinstance(figure, DrawnFigure):
        return figure.pictures[kind]

    with style():
        axes = new_axes()
        figure.draw(axes)
    return rendered(axes.figure, kind)


def as_html(result: AuditResult) -> str:
    """The report as one HTML document without anything outside itself; everything that comes from data is escaped.

    Args:
        result: The audit.

    Returns:
        An HTML document.
    """
    from pyterrier_debias.report.pareto import fronts

    return environment().get_template("report.html").render(
        title=f"Bias audit: {result.settings['dataset']}",
        settings=result.settings,
        tests=correction_made(result),
        correction=CORRECTION_NAMES[result.settings["correction"]],
        primary=_strip(result.findings),
        biases=_sections(result),
        fronts=[_inline(figure) for figure in fronts(result)],
        skipped=skipped_reasons(result.skipped),
        failed=list(zip(result.failed["bias"], result.failed["error"])),
        alpha=ALPHA,
    )


def environment() -> Any:
    """The templates of pages: everything that is put into them is escaped.

    Returns:
        A jinja2 environment.
    """
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("pyterrier_debias.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters.update(
        number=_signed, percent=_percent, probability=probability, interval=lambda f: _signed_interval(f["low"], f["high"])
    )
    return found


def as_frame(result: AuditResult) -> str:
    """The report in an inline frame, for notebooks: its style and script stay apart from the notebook's.

    Args:
        result: The audit.

    Returns:
        An ``iframe`` element.
    """
    return framed(as_html(result), "Bias audit")


def framed(page: str, title: str) -> str:
    """A page in an inline frame.

    Args:
        page: An HTML document.
        title: What the frame shows.

    Returns:
        An ``iframe`` element.
    """
    page = html.escape(page, quote=True)
    return f'<iframe srcdoc="{page}" style="width:100%;height:42em;border:0" title="{html.escape(title)}"></iframe>'


def _signed(value: float, digits: int = 3) -> str:
    """A figure with a typographic minus sign."""
    return number(value, digits).replace("-", "\N{MINUS SIGN}")


def _percent(share: float) -> str:
    """A share in per cent; blank where it is not defined or says nothing."""
    return "" if not abs(share) < 10 else f"{share:.0%}".replace("-", "\N{MINUS SIGN}")


def _signed_interval(low: float, high: float) -> str:
    return interval(low, high).replace("-", "\N{MINUS SIGN}")


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


def _sections(result: AuditResult) -> list[dict[str, Any]]:
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
        "findings": [_finding(row) | {"how": marks.get(row["convention"], "")} for row in rows.to_dict("records")],
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
        {"system": system, "measure": measure, "group": group, "rows": own.to_dict("records")}
        for (system, measure, group), own in worst.groupby(["system", "measure", "group"], sort=False)
    ]


def _finding(row: dict[str, Any]) -> dict[str, Any]:
    """A finding with the verdict that the page shows, and colours where it is significant."""
    corrected = row["p_corrected"]
    if math.isnan(corrected):
        verdict = ""
    elif corrected < ALPHA:
        verdict = "significant"
    else:
        # An interval that leaves out zero beside a bare "not significant" looks like a mistake.
        verdict = "only before correction" if row["p"] < ALPHA else "not significant"
    return {**row, "verdict": verdict}
