"""What an audit says in plain words: for each bias a question, an answer for each system, and what to do.

The table of findings has every figure; a verdict is made of the primary ones. "No" is said only where the whole interval lies
within a margin that matters; where it does not, the audit could not tell, and says how many queries would.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from pyterrier_debias.core.errors import shortened
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.text import ALPHA

Outcome = Literal["yes", "no", "cannot tell", "not examined"]


@dataclass(frozen=True)
class Answer:
    """What is said of one system.

    Attributes:
        system: Its name.
        outcome: ``'yes'``, ``'no'`` (smaller than what matters), ``'cannot tell'`` or ``'not examined'``.
        sentence: The answer in words, without the system's name.
        effect: The primary figure; NaN where there is none.
        low: Lower end of its interval; NaN where there is none.
        high: Upper end of its interval.
        unit: What the three are counted in, such as ``'nDCG@10'`` or ``'ranks'``.
        queries_needed: About how many queries would tell, where it could not be told; None elsewhere, and where that is unknown.
    """

    system: str
    outcome: Outcome
    sentence: str
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    queries_needed: int | None = None


@dataclass(frozen=True)
class Treatment:
    """What can be done about a bias, and what it did in our experiments.

    Attributes:
        name: Its name.
        sentence: What it does, and what it cost.
        code: Lines that fit the audited pipeline.
        page: The documentation page that tells more, such as ``'position_results'``.
    """

    name: str
    sentence: str
    code: str
    page: str


@dataclass(frozen=True)
class Verdict:
    """What an audit says of one bias.

    Attributes:
        bias: The bias' name.
        question: What was asked, in words.
        answers: One for each system, in the order of the audit.
        treatments: What can be done; empty where no answer is yes, or nothing is known to help.
        nothing_helps: Says so where an answer is yes and no treatment has been shown to help; empty elsewhere.
    """

    bias: str
    question: str
    answers: tuple[Answer, ...]
    treatments: tuple[Treatment, ...] = ()
    nothing_helps: str = ""


QUESTIONS = {
    "position": "Does the order depend on where the answer stands in a passage?",
    "survivorship": "Does quality depend on how early labellers found an answer?",
    "gender": "Do rankings for neutral queries lean to one gender's words?",
    "linguistic": "Does quality depend on how a query is worded?",
    "pooling": "Do missing judgements distort the score?",
}
_NOTHING_HELPS = "No treatment has been shown to help yet."


@dataclass(frozen=True)
class _Scale:
    """How a primary figure is told: its unit, the smallest effect that matters, and how large ones are worded."""

    unit: str
    margin: float
    digits: int = 3


#: Margins: what a team would act on. See ``audit.rst``.
_SCALES = {
    "displacement": _Scale("ranks", 0.5, 2),
    "slope of": _Scale("nDCG@10", 0.02),
    "nDCG@10": _Scale("nDCG@10", 0.02),
    "ARaB@10": _Scale("ARaB@10", 0.05),
    "rho of": _Scale("rank correlation", 0.1, 2),
    "Judged@10": _Scale("Judged@10", 0.02),
}


def title(result: AuditTables) -> str:
    """Systems and collection, for a heading.

    Args:
        result: The audit.

    Returns:
        Such as ``'Bias audit of BM25 and mine on msmarco_trec_dl (dl19)'``; the embedded collection is called so.
    """
    s = result.settings
    name = str(s["dataset"])
    where = "the planted collection" if name.startswith("planted-") else name
    split = f" ({s['split']})" if s["split"] else ""
    return f"Bias audit of {_listed(s['systems'])} on {where}{split}"


def verdicts(result: AuditTables) -> list[Verdict]:
    """What an audit says, bias by bias.

    Args:
        result: The audit.

    Returns:
        One verdict for each bias that was asked for, in that order, and for others that have a primary finding.
    """
    primary = result.findings[result.findings["primary"].astype(bool)]
    biases = dict.fromkeys([*result.settings["biases"], *primary["bias"]])
    return [_verdict(result, bias, primary[primary["bias"] == bias]) for bias in biases]


def _verdict(result: AuditTables, bias: str, rows: pd.DataFrame) -> Verdict:
    systems = dict.fromkeys([*result.settings["systems"], *rows["system"]])
    answers = tuple(_answer(result, bias, system, rows[rows["system"] == system]) for system in systems)
    helps = _NOTHING_HELPS if any(a.outcome == "yes" for a in answers) else ""
    question = QUESTIONS.get(bias, f"Is there a bias of the kind {bias!r}?")
    return Verdict(bias, question, answers, (), helps)


def _answer(result: AuditTables, bias: str, system: str, rows: pd.DataFrame) -> Answer:
    known = [_told(row) for row in rows.to_dict("records") if math.isfinite(row["value"])]
    if known:
        order = ("yes", "cannot tell", "no")
        return min(known, key=lambda answer: order.index(answer.outcome))
    why = next((text for text in rows["text"] if text), "") or _reason(result, bias, system)
    return Answer(system, "not examined", f"Not examined: {why}")


def _reason(result: AuditTables, bias: str, system: str) -> str:
    for table, column in ((result.skipped, "reason"), (result.failed, "error")):
        own = table[(table["bias"] == bias) & table["system"].isin([system, ""])]
        if len(own):
            return str(own[column].iloc[0])
    return "the audit has no primary figure of it."


def _told(row: dict[str, Any]) -> Answer:
    scale = next((s for name, s in _SCALES.items() if row["measure"].startswith(name)), None)
    unit, digits = (scale.unit, scale.digits) if scale else (row["measure"], 3)
    value, low, high, n = row["value"], row["low"], row["high"], int(row["n"])
    ends = f" [{low:.{digits}f}, {high:.{digits}f}]" if math.isfinite(low) and math.isfinite(high) else ""
    figure = f"{value:+.{digits}f}{ends} {unit}"

    def answer(outcome: Outcome, sentence: str, needed: int | None = None) -> Answer:
        return Answer(row["system"], outcome, sentence, value, low, high, unit, needed)

    if row["p_corrected"] < ALPHA:
        return answer("yes", f"Yes: {figure}.")
    bound = max(abs(low), abs(high)) if ends else row.get("detectable", math.nan)
    if value == 0 and math.isnan(row["p"]) and not bound > 0:
        return answer("no", f"No: not one of {n} queries changes.")
    if scale is None or math.isnan(bound):
        return answer("cannot tell", f"Could not tell: {figure} over {n} queries.")
    if bound <= scale.margin:
        return answer("no", f"No: smaller than {bound:.{digits}f} {unit}.")
    needed = _rounded_up(n * (max(bound, row.get("detectable", 0.0)) / scale.margin) ** 2)
    return answer("cannot tell", f"Could not tell: {figure} over {n} queries; needs about {needed:,}.", needed)


def _rounded_up(number: float) -> int:
    """A number of queries to two digits, upwards.

    Example:
        >>> _rounded_up(1234.5), _rounded_up(61), _rounded_up(7.2)
        (1300, 61, 8)
    """
    size = 10 ** max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 1
    return math.ceil(number / size) * size


def _listed(names: Iterable[str], most: int = 3) -> str:
    """Names in a sentence; of many the first.

    Example:
        >>> _listed(["BM25", "mine"]), _listed("abcdef")
        ('BM25 and mine', 'a, b and 4 more')
    """
    names = [shortened(name, 40) for name in names]
    names = [*names[: most - 1], f"{len(names) - most + 1} more"] if len(names) > most else names
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
