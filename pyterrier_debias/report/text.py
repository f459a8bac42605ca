"""An audit's tables as plain text, and the formats of figures that all reports share."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

import pandas as pd

from pyterrier_debias.core.bias import first_step, gates_of
from pyterrier_debias.core.statistics import ALPHA
from pyterrier_debias.report.tables import AuditTables

#: The column of the text table that is shortened if the line is too long.
_CONTRAST = 2
#: The most decimals that are shown.
_MOST_DIGITS = 8

CORRECTION_NAMES = {
    "two-step": "Holm, in two steps", "holm": "Holm", "bonferroni": "Bonferroni", "fdr_bh": "Benjamini and Hochberg",
}  # fmt: skip


def number(value: float, digits: int = 3) -> str:
    """A figure for a table: fixed digits, blank if it is not defined, never ``-0.000``."""
    if math.isnan(value):
        return ""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def signed(value: float, digits: int = 3) -> str:
    """A figure with its sign; 0.000 has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def digits_of(low: float, high: float, digits: int = 3) -> int:
    """The number of decimals of an interval: more than usual if an end of one that excludes 0 would be printed as 0.

    Args:
        low: The lower end, in the unit that is printed; NaN if there is none.
        high: The upper end.
        digits: The usual number.

    Returns:
        The number, at most 8.

    Example:
        >>> digits_of(0.1, 0.2), digits_of(-0.0001, 0.2), digits_of(0.0001, 0.2)
        (3, 3, 4)
    """
    if low * high > 0:
        while digits < _MOST_DIGITS and any(round(end, digits) == 0 for end in (low, high)):
            digits += 1
    return digits


def interval(low: float, high: float, digits: int = 3, told: Callable[[float, int], str] = number) -> str:
    """An interval for a table or a sentence; blank if there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f"[{told(low, digits)}, {told(high, digits)}]"


def probability(p: float) -> str:
    """A p value for a table; blank if nothing was tested."""
    return "" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}"


def as_text(result: AuditTables, width: int) -> str:
    """The tables, sentences and conventions of :meth:`pyterrier_debias.AuditResult.to_text`."""
    parts = []
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
    for heading, errors in failures(result.failed):
        parts.append("\n".join([heading.upper(), *(_bullet(f"{bias}: {error}", width) for bias, error in errors)]))
    corrected = correction_made(result)
    parts.append(textwrap.fill(f"* marks the primary test of a bias. {f'p corr. is {corrected}' if corrected else ''}", width))
    return "\n\n".join(parts)


def convention_marks(conventions: Iterable[str]) -> dict[str, str]:
    """A letter for each convention, which keeps figures apart that were computed in different ways.

    Args:
        conventions: The findings' conventions; empty ones get no letter.

    Returns:
        For each convention its mark: ``a`` to ``z``, then ``aa``, ``ab``, ...
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    distinct = [text for text in dict.fromkeys(conventions) if text]
    return {text: letters[i // 26 - 1] * (i >= 26) + letters[i % 26] for i, text in enumerate(distinct)}


def shortened_conventions(marks: Mapping[str, str]) -> list[tuple[str, str]]:
    """The mark and text of each convention; the part that it shares with an earlier one is replaced with that mark.

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


def correction_made(result: AuditTables) -> str:
    """What the corrected p values are, in sentences that continue "p corr. is"; empty if nothing was corrected."""
    correction, tested = result.settings["correction"], result.findings["p"].notna()
    two_step = correction == "two-step"
    if two_step:
        rows = list(result.findings.itertuples())
        tested = tested[first_step(rows, gates_of(rows, result.settings.get("baseline")))]
    tests = int(tested.sum())
    if not tests:
        return ""
    name = "Holm" if two_step else CORRECTION_NAMES[correction]
    over = f"{tests} {'primary ' if two_step else ''}test{'' if tests == 1 else 's'}"
    further = (
        " Further tests of a bias are corrected among themselves, and only for systems whose primary test is significant. All "
        "other figures are descriptive and have no p corr."
    )
    made = f"p after {name}'s correction over the {over}.{further if two_step else ''}"
    return f"{made} Values below {ALPHA} are called significant."


def failures(failed: pd.DataFrame) -> list[tuple[str, list[tuple[str, str]]]]:
    """What failed, in groups of a heading and pairs of bias and error; errors of systems are separate from failures of biases."""
    raised = failed["system"].ne("")
    groups = (("Systems that raised an error", failed[raised]), ("Failed with an internal error", failed[~raised]))
    return [(heading, list(zip(rows["bias"], rows["error"]))) for heading, rows in groups if len(rows)]


def skipped_reasons(skipped: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Bias, systems joined by commas, reason: one entry for each bias and reason."""
    return [
        (str(bias), ", ".join(rows["system"]), str(reason))
        for (bias, reason), rows in skipped.groupby(["bias", "reason"], sort=False)
    ]


def _bullet(text: str, width: int) -> str:
    return textwrap.fill(text, width, initial_indent="  - ", subsequent_indent="    ")


def _table(rows: pd.DataFrame, marks: Mapping[str, str], width: int) -> str:
    """An aligned table of one bias' findings, system by system; empty columns are left out."""
    titles = ["", "measure", "contrast", "value", "95 % interval", "null value", "n", "p", "p corr.", "method"]
    columns = [
        ["*" if primary else "" for primary in rows["primary"]],
        rows["measure"].tolist(),
        rows["contrast"].tolist(),
        [number(v, 4) for v in rows["value"]],
        [interval(low, high) for low, high in zip(rows["low"], rows["high"])],
        [number(v) for v in rows["null_value"]],
        [str(n) if n else "" for n in rows["n"]],
        [probability(p) for p in rows["p"]],
        [probability(p) for p in rows["p_corrected"]],
        [marks.get(text, "") for text in rows["convention"]],
    ]
    kept = [i for i, column in enumerate(columns) if any(column)]
    widths = {i: max(len(cell) for cell in [titles[i], *columns[i]]) for i in kept}
    space = width - 2 - 2 * (len(kept) - 1) - sum(w for i, w in widths.items() if i != _CONTRAST)
    if _CONTRAST in widths:
        widths[_CONTRAST] = min(widths[_CONTRAST], max(space, 8))

    def line(cells: Sequence[str]) -> str:
        cut = {i: c if len(c) <= widths[i] else f"{c[: widths[i] - 3]}..." for i, c in zip(kept, cells)}
        words = (c.ljust(widths[i]) if i <= _CONTRAST or titles[i] == "method" else c.rjust(widths[i]) for i, c in cut.items())
        return f"  {'  '.join(words)}".rstrip()

    lines = [line([titles[i] for i in kept]), line(["-" * widths[i] for i in kept])]
    before = None
    for system, cells in zip(rows["system"], zip(*(columns[i] for i in kept))):
        if system != before:
            lines.append(textwrap.shorten(str(system), width, placeholder="..."))
        lines.append(line(cells))
        before = system
    return "\n".join(lines)
