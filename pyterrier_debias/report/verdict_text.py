"""Verdicts as plain text, shortened to fit a screen."""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from pyterrier_debias.core.errors import shortened
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.treatments import Treatment
from pyterrier_debias.report.verdict import Answer, Verdict, by_sentence, title, verdicts

#: Where the pages are that are named without their address, which would be longer than a line.
_PAGES = "pyterrier_debias/pt_docs of https://github.com/pyterrier-debias/pyterrier_debias"
#: How wide the column of systems may be.
_WIDEST = 43


@dataclass(frozen=True)
class _Detail:
    """How much detail is shown.

    Attributes:
        treatments: How many treatments of each bias are described; the others are only named.
        cost: Whether their descriptions include what they did and cost.
        notes: Whether notes on systems are shown in full.
        blank: Whether blank lines separate biases.
        whole: Whether answers may take several lines.
        found: For how many biases, from the first, the answer "yes" may take several lines even if others may not.
        each: Whether each system has a line; otherwise systems with the same outcome share one.
    """

    treatments: int = 9
    cost: bool = True
    notes: bool = True
    blank: bool = True
    whole: bool = True
    found: int = 9
    each: bool = True


#: From the most detail to the least: the first that fits is used.
_DETAILS = (
    _Detail(),
    _Detail(treatments=1),
    _Detail(treatments=1, notes=False),
    _Detail(treatments=1, notes=False, cost=False),
    _Detail(treatments=1, notes=False, cost=False, blank=False),
    _Detail(treatments=0, notes=False, blank=False),
    *(_Detail(treatments=0, notes=False, blank=False, whole=False, found=found) for found in (9, 2, 1, 0)),
    _Detail(treatments=0, notes=False, blank=False, whole=False, found=0, each=False),
)


def verdict_text(result: AuditTables, width: int, most: int | None = None) -> str:
    """The verdict of an audit in plain text.

    Args:
        result: The audit.
        width: Characters in a line.
        most: The largest number of lines; None shows everything. If there are more, details are left out: first of treatments,
            then of answers; finally, systems with the same outcome share a line.

    Returns:
        A heading, and for each bias the question, the answers and what to do. Lines of code are not wrapped.
    """
    found = verdicts(result)
    for detail in _DETAILS:
        lines = list(_lines(result, found, width, detail))
        if most is None or len(lines) <= most:
            break
    return "\n".join(lines if most is None or len(lines) <= most else [*lines[: most - 1], "..."])


def _lines(result: AuditTables, found: Sequence[Verdict], width: int, detail: _Detail) -> Iterator[str]:
    yield from textwrap.wrap(headline(result), width)
    notes = result.settings["notes"]
    if notes and detail.notes:
        for note in notes:
            yield from textwrap.wrap(note, width)
    elif notes:
        yield textwrap.shorten(f"Note: {' '.join(notes)}", width, placeholder=" ...")
    for number, verdict in enumerate(found):
        if detail.blank:
            yield ""
        yield from textwrap.wrap(f"{verdict.bias.upper()}  {verdict.question}", width)
        yield from _answers(verdict.answers, width, detail, found=number < detail.found)
        yield from _treatments(verdict, width, detail)
    if any(verdict.treatments for verdict in found):
        if detail.blank:
            yield ""
        yield from textwrap.wrap(f"These pages are in {_PAGES}", width, break_on_hyphens=False)


def headline(result: AuditTables) -> str:
    """One sentence: what was audited, on what.

    Args:
        result: The audit.

    Returns:
        Such as ``'Bias audit of BM25 on toy: 6 judged topics, depth 100, seed 0.'``
    """
    s = result.settings
    topics = f"{s['judged_topics']} judged topic{'s' * (s['judged_topics'] != 1)}"
    if s["topics"] != s["judged_topics"]:
        topics += f" of {s['topics']}"
    return f"{title(result)}: {topics}, depth {s['depth']}, seed {s['seed']}."


def _answers(answers: Sequence[Answer], width: int, detail: _Detail, *, found: bool) -> Iterator[str]:
    if detail.each:
        same = by_sentence(answers)
        if len(same) == 1 and len(answers) > 1:
            told = [("all systems", answers[0])]
        else:
            told = [(", ".join(one.system for one in own), own[0]) for own in same]
    else:
        outcomes = dict.fromkeys(answer.outcome for answer in answers)
        names = {one: ", ".join(answer.system for answer in answers if answer.outcome == one) for one in outcomes}
        told = [(one, Answer(listed, one, listed)) for one, listed in names.items()]
    widest = min(_WIDEST, width // 2, max((_cells(name) for name, _ in told), default=0)) or 1
    space = width - widest - 4
    for name, answer in told:
        # How many characters of this name fit into the column.
        longest = max(widest * len(name) // max(_cells(name), 1), 1) if name else widest
        if detail.whole or (found and answer.outcome == "yes"):
            column = textwrap.wrap(name, longest, break_on_hyphens=False)
            lines = textwrap.wrap(answer.sentence, space)
            yield from (f"  {_padded(own, widest)}  {line}".rstrip() for own, line in zip_longest(column, lines, fillvalue=""))
        else:
            short = shortened(name, longest - 5 * (len(name) > longest))
            yield f"  {_padded(short, widest)}  " + textwrap.shorten(_in_brief(answer, space), space, placeholder=" ...")


def _cells(text: str) -> int:
    """How many cells of a terminal a text fills: two for each Chinese or Japanese character, none for a combining mark."""
    widths = (0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
    return sum(widths)


def _padded(text: str, cells: int) -> str:
    return text + " " * (cells - _cells(text))


def _in_brief(answer: Answer, width: int) -> str:
    """An answer for one line: details beside the figure are left out if the line is too short.

    The end may still be cut off, so the number of queries needed comes first.
    """
    whole = answer.queries_needed is None and len(answer.sentence) <= width
    return answer.sentence if whole else answer.brief or answer.sentence


def _treatments(verdict: Verdict, width: int, detail: _Detail) -> Iterator[str]:
    if verdict.nothing_helps:
        yield f"  -> {verdict.nothing_helps}"
    for treatment in verdict.treatments[: detail.treatments]:
        yield from _told(treatment, width, detail)
    others = verdict.treatments[detail.treatments :]
    if others:
        pages = ", ".join(dict.fromkeys(f"{one.page}.rst" for one in others))
        names = textwrap.shorten("; ".join(one.name for one in others), width - len(pages) - 8, placeholder=" ...")
        yield f"  -> {names} ({pages})"


def _told(treatment: Treatment, width: int, detail: _Detail) -> Iterator[str]:
    told = f"{treatment.name} ({treatment.page}.rst){f': {treatment.sentence}' if detail.cost else ''}"
    yield from textwrap.wrap(told, width, initial_indent="  -> ", subsequent_indent="     ")
    for line in treatment.code.splitlines():
        yield f"       {line}"
