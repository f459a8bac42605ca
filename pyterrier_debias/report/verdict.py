"""The verdict of an audit in plain words: for each bias a question, an answer for each system, and what to do.

The table of findings has every figure; a verdict is based on the primary ones. The answer is "no" only if the whole interval is
within a margin; otherwise the audit could not tell, and estimates how many queries would be needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from itertools import count
from typing import Any, Literal

import pandas as pd

from pyterrier_debias.core.bias import CORRELATION, FIGURE_KEY, TOGETHER, least_p, p_text, query_count
from pyterrier_debias.core.errors import shortened
from pyterrier_debias.core.statistics import (
    LEAST_UNITS,
    Interval,
    bootstrap_interval,
    detectable_effect,
    sums_by_cluster,
    units_needed,
    without_rounding,
)
from pyterrier_debias.report.tables import AuditTables
from pyterrier_debias.report.text import ALPHA, digits_of, interval, number
from pyterrier_debias.report.treatments import FOR_EARLY_ANSWERS, TREATMENTS, Treatment, treatments

Outcome = Literal["yes", "no", "cannot tell", "not examined"]


@dataclass(frozen=True)
class Answer:
    """The answer for one system to the question of a bias.

    Attributes:
        system: The system's name.
        outcome: ``'yes'``, ``'no'`` (smaller than the margin), ``'cannot tell'`` or ``'not examined'``.
        sentence: The answer in words, without the system's name.
        effect: The primary figure; NaN if there is none.
        low: Lower end of its interval; NaN if there is none.
        high: Upper end of its interval.
        unit: The unit of these three, such as ``'nDCG@10'`` or ``'ranks'``.
        queries_needed: With ``'cannot tell'``, about how many queries would be enough; otherwise, or if unknown, None.
        brief: A version of the answer that fits on one line; if empty, use the sentence.
        asides: Parts of the sentence, in order, that a small screen leaves out.
    """

    system: str
    outcome: Outcome
    sentence: str
    effect: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""
    queries_needed: int | None = None
    brief: str = ""
    asides: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """The answer as plain data for tables and JSON, without what the sentence already says."""
        return {name: getattr(self, name) for name in _RECORDED}


#: Attributes of an answer that are kept.
_RECORDED = tuple(f.name for f in fields(Answer) if f.name not in ("brief", "asides"))


@dataclass(frozen=True)
class Verdict:
    """The verdict of an audit on one bias: a question, an answer for each system, and what to do.

    Attributes:
        bias: The bias' name.
        question: The question in words.
        answers: One answer for each system, in the order of the audit.
        treatments: Treatments that reduce the bias; empty if no answer is yes, or nothing is known to help.
        nothing_helps: A sentence if an answer is yes and no treatment has been shown to help; otherwise empty.
    """

    bias: str
    question: str
    answers: tuple[Answer, ...]
    treatments: tuple[Treatment, ...] = ()
    nothing_helps: str = ""

    def record(self) -> dict[str, Any]:
        """The verdict as plain data."""
        return {**asdict(self), "answers": [answer.record() for answer in self.answers]}


@dataclass(frozen=True)
class _Figure:
    """How a verdict words a primary figure.

    Attributes:
        measure: The beginning of the measure's name.
        unit: The unit of the figure.
        margin: The smallest effect that matters; see ``audit.rst``.
        falls: A clause for a figure below 0, with ``{size}`` for its size and interval without the unit.
        rises: A clause for a figure above 0.
        never: A clause for a figure that is 0 for every query.
        digits: The number of decimals of the figure.
        times: The factor by which the figure is multiplied in the sentence.
        noun: The unit after this multiplication, if it is another one.
        end: The end of both clauses, which a short line leaves out.
        most: The largest size that the figure can have.
        short: What a short line says instead of both clauses, with ``{size}`` and ``{way}``, which is fewer or more.
    """

    measure: str
    unit: str
    margin: float
    falls: str
    rises: str
    never: str
    digits: int = 3
    times: float = 1.0
    noun: str = ""
    end: str = ""
    most: float = math.inf
    short: str = ""


_LEAN = "{size} ARaB@10 compared with a random order of the same documents"
_NO_LEAN = "no ranking leans further than a random order of its documents"
_DISPLACEMENT = _Figure(
    "displacement", "ranks", 0.5, "a relevant passage moves up by {size} ranks when its text is rotated",
    "a relevant passage moves down by {size} ranks when its text is rotated", "no passage moves when its text is rotated", 2,
)  # fmt: skip
_ROTATION = _Figure(
    "nDCG@10", "nDCG@10", 0.02, "nDCG@10 falls by {size} when passages are rotated",
    "nDCG@10 rises by {size} when passages are rotated", "no query's nDCG@10 changes when passages are rotated", most=1,
)  # fmt: skip
_FOUND_LATE = _Figure(
    CORRELATION, "rank correlation", 0.1, "the later labellers found an answer, the worse the results (rank correlation {size})",
    "the later labellers found an answer, the better the results (rank correlation {size})",
    "the results are equally good for all queries", 2, most=1,
)  # fmt: skip
_GENDERS = _Figure("ARaB@", "ARaB@10", 0.02, f"towards female words, by {_LEAN}", f"towards male words, by {_LEAN}", _NO_LEAN)
_GROUPS = replace(_GENDERS, falls=f"towards the second group, by {_LEAN}", rises=f"towards the first group, by {_LEAN}")
_WORDING = _Figure(
    "slope of", "nDCG@10", 0.02, "nDCG@10 falls by {size} per standard deviation of query complexity",
    "nDCG@10 rises by {size} per standard deviation of query complexity", "nDCG@10 does not change with query complexity", most=1,
)  # fmt: skip
_JUDGED = _Figure(
    "Judged@10", "Judged@10", 0.02,
    "{size} fewer of its first ten documents are judged", "{size} more of its first ten documents are judged",
    "as many are judged as for the run the judgements came from", 1, 10, "judged documents in its first ten",
    " than for the run the judgements came from", most=1, short="{size} {way} of ten are judged than in the judged run",
)  # fmt: skip
_SOURCE = _Figure(
    "displacement", "ranks", 0.5, "the rewritten text of a relevant document is {size} ranks ahead of the original",
    "the original of a relevant document is {size} ranks ahead of the rewritten text",
    "no other document stands between a relevant document and its rewritten text", 2,
)  # fmt: skip
_LENGTH = _Figure(
    "length percentile", "length percentile", 0.05,
    "its first documents are {size} percentile points shorter than the median candidate of the same relevance",
    "its first documents are {size} percentile points longer than the median candidate of the same relevance",
    "its first documents are as long as other candidates of the same relevance", 1, 100, "percentile points of length", most=0.5,
)  # fmt: skip
_ORDER = _Figure(
    "places", "places", 0.05, "a document that is given ten places earlier is ranked {size} places later",
    "a document that is given ten places earlier is ranked {size} places earlier",
    "no ranking changes when its list is given in another order", 1, 10, "places per ten",
)  # fmt: skip

#: The question and the figures of each bias; the first figure whose measure fits words a primary figure.
_BIASES: Mapping[str, tuple[str, tuple[_Figure, ...]]] = {
    "position": ("Does the ranking depend on where the answer is in a passage?", (_DISPLACEMENT, _ROTATION)),
    "survivorship": ("Does quality depend on how early labellers found an answer?", (_FOUND_LATE,)),
    "gender": ("Do rankings for neutral queries lean to one gender's words?", (_GENDERS,)),
    "linguistic": ("Does quality depend on how a query is worded?", (_WORDING,)),
    "pooling": ("Do missing judgements distort the score?", (_JUDGED,)),
    "source": ("Do rankings prefer text that a language model wrote?", (_SOURCE,)),
    "length": ("Do rankings prefer longer documents of the same relevance?", (_LENGTH,)),
    "order": ("Does the result depend on the order of the list that a reranker is given?", (_ORDER,)),
}
#: Bias to one more figure that its answer gives: measure, contrast, and the figure in words.
_ALSO: Mapping[str, tuple[str, str, str]] = {
    "source": ("relative delta nDCG@5", "human - rewritten", "; the relative delta of nDCG@5 is {:+.1f} %"),
    "length": ("words", "first documents - all of the list", "; their length differs from the whole list's by {:+.1f} words"),
    "order": ("nDCG@10", "shuffled - own order", "; shuffling the list changes nDCG@10 by {:+.3f}"),
}
#: The share of judged documents in the first ten below which missing judgements may distort a score, whatever the pool's share.
_ENOUGH_JUDGED = 0.8
#: How much lower Kendall's tau of shuffled lists may be than that of the same list: as much as a slope at the margin lowers it.
_DISAGREEMENT = 0.05
#: How much the share of pairs in which the rewritten text is ahead may differ from one half.
_AHEAD = 0.1
#: How many times the margin of length bias an order of the candidates must be able to reach.
_ATTAINABLE = 3
#: The name under which an audit's findings count the judged queries without results, if there are more than a few.
UNANSWERED = "unanswered"
#: The share of queries without results up to which a figure over all queries means something: such queries count as 0.
FEW_UNANSWERED = 0.1
#: Means of equal numbers differ from them by no more.
ROUNDING = 1e-9
#: The contrast under which a bias gives the nDCG@10 of a system's own results.
_QUALITY: Mapping[str, str] = {"position": "original", "linguistic": "all queries", "pooling": "as non-relevant"}
#: Where a finding says why it has no interval.
_NO_INTERVAL = re.compile(r"\(no interval: ([^()]+)\)")
#: Where a finding says that there are too few queries for so many tests.
_NEVER = re.compile(r"and ((\d+) tests?), no effect can be significant")
_NOTHING_HELPS = "No treatment has been shown to help yet."
_OUTCOMES: tuple[Outcome, ...] = ("yes", "cannot tell", "no")


def title(result: AuditTables) -> str:
    """A heading with the systems and the collection.

    Args:
        result: The audit.

    Returns:
        The heading, such as ``'Bias audit of BM25 and mine on msmarco_trec_dl (dl19)'``; the planted collection is called so.
    """
    s = result.settings
    name = str(s["dataset"])
    where = "the planted collection" if re.match(r"planted-\d+(-|$)", name) else name
    split = f" ({s['split']})" if s["split"] else ""
    return f"Bias audit of {_listed(s['systems'])} on {where}{split}"


def verdicts(result: AuditTables, system: str | None = None) -> list[Verdict]:
    """The verdict of an audit for each bias.

    An answer is *yes* if the primary test is significant after correction; *no* if it is not, and the whole interval is within
    the margin; *cannot tell* if neither is the case; *not examined* if there is no primary figure.

    Args:
        result: The audit.
        system: Only answers for this system; None means all systems.

    Returns:
        One verdict for each requested bias, in the order of the request, and for other biases with a primary finding.
    """
    primary = result.findings[result.findings["primary"].astype(bool)]
    biases = dict.fromkeys([*result.settings["biases"], *primary["bias"]])
    systems = dict.fromkeys([*result.settings["systems"], *primary["system"]]) if system is None else [system]
    return [_verdict(result, bias, primary[primary["bias"] == bias], systems) for bias in biases]


def margins() -> dict[str, dict[str, float]]:
    """The margins: the smallest effects that matter, which define the answer "no".

    Returns:
        For each bias, its margins by unit.

    Example:
        >>> margins()["position"]
        {'ranks': 0.5, 'nDCG@10': 0.02}
    """
    return {bias: {figure.unit: figure.margin for figure in figures} for bias, (_, figures) in _BIASES.items()}


def by_sentence(answers: Iterable[Answer]) -> list[list[Answer]]:
    """Group answers with the same sentence, in the order in which the sentences first occur.

    Args:
        answers: The answers of one verdict.

    Returns:
        The groups; none is empty.
    """
    same: dict[str, list[Answer]] = {}
    for answer in answers:
        same.setdefault(answer.sentence, []).append(answer)
    return list(same.values())


def _unfit(bias: str, answer: Answer) -> set[str]:
    """Names of treatments that do not fit the direction of a bias: of a ranker that ranks passages higher if they are rotated."""
    higher = bias == "position" and (answer.effect < 0 if answer.unit == _DISPLACEMENT.unit else answer.effect > 0)
    return FOR_EARLY_ANSWERS if higher else set()


def _verdict(result: AuditTables, bias: str, rows: pd.DataFrame, systems: Iterable[str]) -> Verdict:
    own = _own_question(bias, rows), (_GROUPS,)
    question, figures = _BIASES.get(bias, own)
    # A user's bias may have the name of a built-in one but different figures.
    if len(rows) and not rows["measure"].str.startswith(tuple(figure.measure for figure in figures)).any():
        question, figures = own
    answers = tuple(_answer(result, bias, system, rows[rows["system"] == system], figures) for system in systems)
    beside = [_compared(result, bias, one.system, figures) + _cost(result, bias, one.system) for one in answers]
    answers = tuple(replace(one, sentence=one.sentence + more) for one, more in zip(answers, beside))
    # The code is for the last of several biased systems: if one reranks another, that is the longest pipeline. A system that
    # already has a treatment is chosen only if all of them do.
    biased = [
        tuple(one for one in treatments(bias, answer.system, result.settings) if one.name not in _unfit(bias, answer))
        for answer in answers if answer.outcome == "yes"
    ]  # fmt: skip
    helps = max(reversed(biased), key=len, default=())
    return Verdict(bias, question, answers, helps, _NOTHING_HELPS if biased and not helps else "")


def _compared(result: AuditTables, bias: str, system: str, figures: Sequence[_Figure]) -> str:
    """How a system's figure differs from the baseline's, as a further sentence; empty if that is not tested."""
    baseline, f = result.settings.get("baseline"), result.findings
    if baseline is None:
        return ""
    own = f[(f["bias"] == bias) & (f["system"] == system) & f["contrast"].str.endswith(f", vs {baseline}")]
    own = own[own["p_corrected"].notna()]
    if own.empty:
        return ""
    row = own.iloc[0].to_dict()
    figure, p = _figure_of(row, figures), row["p_corrected"]
    return f" Difference from {baseline}: {_size(row, figure)} ({'' if p < ALPHA else 'not '}significant, p = {p_text(p)})."


def _cost(result: AuditTables, bias: str, system: str) -> str:
    """What a treatment of this bias cost the system, as a further sentence; empty for an untreated system."""
    plain = result.settings.get("untreated", {}).get(system)
    there = result.settings.get("treated", {}).get(system, ())
    if plain is None or not any(one.stage in there for one in TREATMENTS.get(bias, ())):
        return ""
    own = result.per_query[(result.per_query["measure"] == "nDCG@10") & (result.per_query["contrast"] == "original")]
    values = own.pivot_table(index="qid", columns="system", values="value", sort=False)
    if not {plain, system} <= set(values.columns):
        return ""
    change = bootstrap_interval((values[system] - values[plain]).dropna().to_numpy()).of_enough
    ends = f" [{change.low:+.3f}, {change.high:+.3f}]" if math.isfinite(change.low) else ""
    return f" Cost: nDCG@10 on unchanged passages differs by {change.estimate:+.3f}{ends} from {plain}."


def _own_question(bias: str, rows: pd.DataFrame) -> str:
    if rows["measure"].str.startswith(_GROUPS.measure).any():
        return f"Do rankings for neutral queries lean to one side of {bias!r}?"
    return f"Do results show the bias {bias!r}?"


def _answer(result: AuditTables, bias: str, system: str, rows: pd.DataFrame, figures: Sequence[_Figure]) -> Answer:
    known = [_told(result, row, figures) for row in rows.to_dict("records") if math.isfinite(row["value"])]
    if known:
        return min(known, key=lambda answer: _OUTCOMES.index(answer.outcome))
    why = unmeasured(result, bias, system) or "the audit has no primary figure for this bias"
    return Answer(system, "not examined", f"Not examined: {why}.")


def unmeasured(result: AuditTables, bias: str, system: str) -> str:
    """The reason why a system has no primary figure.

    Args:
        result: The audit.
        bias: The bias.
        system: The system.

    Returns:
        A clause without the system's name and full stop; empty if the audit does not give a reason.
    """
    return _reason(result, bias, system).removeprefix(f"{system}: ").rstrip(".")


def _reason(result: AuditTables, bias: str, system: str) -> str:
    own = result.findings[(result.findings["bias"] == bias) & (result.findings["system"] == system)]
    undefined = own[own["value"].isna() & own["text"].ne("")]
    for texts in (undefined["text"], own["text"][own["text"].ne("")]):
        if len(texts):
            return str(texts.iloc[0])
    skipped, failed = (
        table[(table["bias"] == bias) & table["system"].isin([system, ""])] for table in (result.skipped, result.failed)
    )
    if len(skipped):
        return str(skipped["reason"].iloc[0])
    for error, raised in zip(failed["error"], failed["system"]):
        return str(error) if raised else f"an internal error ({error})"
    return ""


def _figure_of(row: Mapping[str, Any], figures: Sequence[_Figure]) -> _Figure | None:
    """How a figure is worded: the first entry whose measure fits; None if none does."""
    return next((one for one in figures if row["measure"].startswith(one.measure)), None)


def _told(result: AuditTables, row: Mapping[str, Any], figures: Sequence[_Figure]) -> Answer:
    """The answer that one primary figure gives."""
    figure = _figure_of(row, figures)
    system, value, low, high, n = row["system"], row["value"], row["low"], row["high"], int(row["n"])
    bounded = math.isfinite(low) and math.isfinite(high)
    detectable = row.get("detectable", math.nan)
    unit = figure.unit if figure else row["measure"]

    def answer(outcome: Outcome, sentence: str, **more: Any) -> Answer:
        return Answer(system, outcome, sentence, value, low, high, unit, **more)

    if row["p_corrected"] < ALPHA:
        if figure is None:
            return answer("yes", f"Yes: {_size(row, None)}.")
        small = bounded and max(abs(low), abs(high)) <= figure.margin and not _beyond(result, row, figure)
        little = f", but by less than the margin ({_amount(figure.margin, figure)})" if small else ""
        clause = (figure.falls if value < 0 else figure.rises).format(size=_size(row, figure, alone=True))
        beside, aside = _beside(result, row)
        short = figure.short.format(size=_size(row, figure, alone=True), way="fewer" if value < 0 else "more")
        brief = f"Yes{little}: {short or clause}."
        return answer("yes", f"Yes{little}: {clause}{figure.end}{beside}.", brief=brief, asides=(beside,) if aside else ())
    bound = max(abs(low), abs(high)) if bounded else detectable
    over = f"on {query_count(n)}"
    if _is_still(result, row):
        never = figure.never if figure else "the figure is 0 for every query"
        doubt = _doubt(result, row, figure)
        if doubt:
            return answer("cannot tell", f"Cannot tell: {never}, but {doubt}.")
        return answer(*_nothing(result, row, figure, never, over))
    hint = f" The uncorrected p ({p_text(row['p'])}) points to yes." if row["p"] < ALPHA else ""
    size = _size(row, figure)
    found = f"Cannot tell: {size} {over}"
    if math.isnan(bound):
        return answer("cannot tell", f"{found}{_why_no_interval(result, row)}.{hint}")
    if figure is None:
        return answer("cannot tell", f"{found}.{hint}")
    margin = figure.margin
    if bound <= margin:
        found = f"any effect is below {_amount(_upwards(bound, figure), figure)}"
        return answer(*_nothing(result, row, figure, found, over))
    correlation = figure is _FOUND_LATE
    smallest = detectable
    if not math.isfinite(detectable):
        smallest = detectable_effect(Interval(value, low, high, 0.95, n), correlation=correlation)
    seen = smallest if smallest > margin else bound
    needed = _rounded_up(units_needed(n, seen, margin, correlation=correlation))
    blind = detectable > margin and not hint
    missed = "any" if detectable >= figure.most else f"less than {_amount(detectable, figure, bare=True)}"
    hopeless = _NEVER.search(row["text"])
    too_few = _few_changes(result, row, "a test") or (f", too few to detect {missed}" if blind else "")
    if hopeless and not too_few:
        too_few = f", too few for any effect to be significant in {hopeless[1]}"
    limit = _amount(margin, figure, bare=True)
    more = f"about {needed:,} would detect {limit}"
    if smallest <= margin:
        more = f"{limit} would probably have been found, but the interval exceeds it; about {needed:,} would narrow it to {limit}"
    if hopeless and abs(value) > margin:  # more than what is looked for: only the test needs more of them
        needed = next(k for k in count(1) if least_p(row["convention"], k) * int(hopeless[2]) < ALPHA)
        more = f"with {needed} or more, it could be"
    brief = f"Cannot tell ({needed:,} queries needed): {size}"
    asides = (too_few,) if too_few else ()
    return answer("cannot tell", f"{found}{too_few}; {more}.{hint}", queries_needed=needed, brief=brief, asides=asides)


def _other(result: AuditTables, row: Mapping[str, Any], measure: str, contrast: str) -> dict[str, Any] | None:
    """Another finding of the same system and bias, by the beginning of its measure's name; None if there is none."""
    f = result.findings
    own = f[(f["bias"] == row["bias"]) & (f["system"] == row["system"]) & (f["contrast"] == contrast)]
    own = own[own["measure"].str.startswith(measure)]
    return own.iloc[0].to_dict() if len(own) else None


def _other_value(result: AuditTables, row: Mapping[str, Any], measure: str, contrast: str) -> float:
    """The value of :func:`_other`; NaN if there is none."""
    other = _other(result, row, measure, contrast)
    return math.nan if other is None else float(other["value"])


def _judged(result: AuditTables, row: Mapping[str, Any]) -> float:
    """The judged share of a system's first ten documents, for the primary figure of pooling; NaN for any other figure."""
    own = row["bias"] == "pooling" and row["primary"]
    return _other_value(result, row, _JUDGED.measure, "system") if own else math.nan


def _nothing(result: AuditTables, row: Mapping[str, Any], figure: _Figure | None, found: str, over: str) -> tuple[Outcome, str]:
    """The answer if a figure is within the margin.

    The run that the judgements came from never differs from itself, however little of it is judged, so this may not be a "no".
    Neither may a figure over queries many of which have no results, nor one that does not measure all of the bias.
    """
    judged = _judged(result, row)
    hardly = _hardly_judged(judged) or _beyond(result, row, figure)
    doubt = f"{hardly} ({over})" if hardly else _without_results(result, row)
    if doubt:
        return "cannot tell", f"Cannot tell: {found}, but {doubt}."
    return "no", f"No: {found} ({over}{'' if math.isnan(judged) else f'; Judged@10 is {number(judged)}'})."


def _hardly_judged(judged: float) -> str:
    """A clause if too few documents are judged for a "no"; empty otherwise, or if their share is not known."""
    return f"Judged@10 is only {number(judged)}" if judged < _ENOUGH_JUDGED - ROUNDING else ""


def _beyond(result: AuditTables, row: Mapping[str, Any], figure: _Figure | None) -> str:
    """A clause if a primary figure is within the margin, but does not measure an effect that there is; empty otherwise.

    The slope of order bias measures effects with a direction only: it is 0 if a reranker prefers both ends of a list.
    The displacement of source bias counts other documents only: it is 0 if the rewritten text is directly ahead.
    No order of lists that are hardly longer than the cut-off of length bias has a large figure.
    The displacement of position bias is a mean over rotations: it is about 0 if answers are spread evenly over their passages.
    """
    if figure is None or not row["primary"] or max(abs(_end(row, end)) for end in ("low", "high")) > figure.margin:
        return ""
    moved = _other(result, row, _ROTATION.measure, "end - start") if figure in (_DISPLACEMENT, _ROTATION) else None
    if moved is not None and max(moved["low"], -moved["high"]) > _ROTATION.margin:
        way = "falls" if moved["value"] < 0 else "rises"
        return (
            f"this is a mean over rotations: nDCG@10 {way} by {_size(moved, _ROTATION, alone=True)} when the answers of "
            f"{query_count(moved['n'])} move from the start of their passages to the end"
        )
    tau = _other(result, row, "Kendall's tau", "own order, shuffled") if figure is _ORDER else None
    if tau is not None and _end(tau, "high") < tau["null_value"] - _DISAGREEMENT:
        return (
            f"only effects with a direction count: for results of shuffled lists and of the own order, {_size(tau, None)}; "
            f"for those of the same list given again, {number(tau['null_value'])}"
        )
    share = _other(result, row, "share of pairs", "rewritten ahead") if figure is _SOURCE else None
    if share is not None and abs(share["value"] - 0.5) > _AHEAD and not _end(share, "low") <= 0.5 <= _end(share, "high"):
        return f"the rewritten text is ahead in {share['value']:.1%} of a query's pairs"
    if figure is _LENGTH:
        own = result.per_query[(result.per_query["bias"] == row["bias"]) & (result.per_query["system"] == row["system"])]
        most = own["value"][own["measure"] == "attainable length percentile"].mean()
        if most < _ATTAINABLE * figure.margin - ROUNDING:
            return f"no order of its candidates has more than {_amount(most, figure)}, because they are few or equally long"
    return ""


def _end(row: Mapping[str, Any], end: str) -> float:
    """One end of a finding's interval; its value if it has no interval."""
    return float(row["value"] if math.isnan(row[end]) else row[end])


def _without_results(result: AuditTables, row: Mapping[str, Any]) -> str:
    """A clause if more than a few of the queries of a figure have no results: they count as 0 whatever the bias."""
    known = result.per_query
    known = known[(known["bias"] == UNANSWERED) & (known["system"] == row["system"]) & (known["value"] > 0)]
    qids = _per_query(result, row).index
    without = int(qids.isin(known["qid"]).sum())
    return f"{without} of {query_count(len(qids))} have no results" if without > FEW_UNANSWERED * len(qids) else ""


def _is_still(result: AuditTables, row: Mapping[str, Any]) -> bool:
    """Whether a figure is 0 for every query."""
    if row["value"] != 0 or row["low"] < 0 or row["high"] > 0:
        return False
    values = _per_query(result, row)
    return bool(len(values) and not values.any()) or row["low"] == row["high"] == 0


def _few_changes(result: AuditTables, row: Mapping[str, Any], what: str) -> str:
    """A clause if so few queries have another value than 0 that a test cannot tell it from chance, however large they are."""
    values = _per_query(result, row)
    labels = result.clusters.get(row["bias"])
    sums, _ = sums_by_cluster(values.to_numpy(), [labels.get(qid, qid) for qid in values.index] if labels else None)
    changed = int((without_rounding(sums) != 0).sum())
    least = least_p(row["convention"], changed)
    other = math.isfinite(row["low"]) and row["p"] < 0.8 * least  # its test has more arrangements; p is drawn
    few = len(values) and least > ALPHA and not other
    units = f"{changed} cluster{'s' * (changed != 1)} of queries" if labels else query_count(changed)
    return f"; it differs from 0 for {units} only, too few for {what}" if few else ""


def _per_query(result: AuditTables, row: Mapping[str, Any]) -> pd.Series:
    """The values of a figure by query; empty if it has none."""
    own = result.per_query
    for name in FIGURE_KEY:
        own = own[own[name] == row[name]]
    return own.set_index("qid")["value"]


def doubt(result: AuditTables, row: Mapping[str, Any], *, few: bool = True) -> str:
    """The reason why a small figure does not show that there is no bias.

    Args:
        result: The audit.
        row: A row of its findings.
        few: Whether too few queries are a reason.

    Returns:
        A clause; empty if there is no such reason.
    """
    _, figures = _BIASES.get(row["bias"], ("", ()))
    figure = _figure_of(row, figures)
    still = _is_still(result, row) or (row["value"] == 0 and math.isnan(row["low"]) and not _per_query(result, row).any())
    why = _doubt(result, row, figure, few=few) if still else ""
    return why or _hardly_judged(_judged(result, row)) or _beyond(result, row, figure) or _without_results(result, row)


def _doubt(result: AuditTables, row: Mapping[str, Any], figure: _Figure | None, *, few: bool = True) -> str:
    """Why a figure that is 0 for every query does not mean "no", in a clause; empty if it does.

    A few queries show nothing, except for order bias, because a ranker that scores documents one by one cannot depend on their
    order.
    """
    if few and row["n"] < LEAST_UNITS and figure is not _ORDER:
        return f"{query_count(row['n'])} {'is' if row['n'] == 1 else 'are'} too few to show that"
    own = result.per_query[(result.per_query["bias"] == row["bias"]) & (result.per_query["system"] == row["system"])]
    quality = own[(own["measure"] == "nDCG@10") & (own["contrast"] == _QUALITY.get(row["bias"]))]["value"]
    # A retriever that only counts words cannot depend on positions, whatever its quality: that was not tested.
    if len(quality) and not quality.any() and not (row["primary"] and row["convention"].endswith("not tested")):
        return f"its nDCG@10 is 0 for every query ({query_count(row['n'])})"
    return ""


def _why_no_interval(result: AuditTables, row: Mapping[str, Any]) -> str:
    """Why a figure has no interval, in a clause that begins with a semicolon; empty if that is not known."""
    told = _NO_INTERVAL.search(row["text"])
    if told is not None:
        return f"; there is no interval, because {told[1]}"
    if row["n"] < LEAST_UNITS:
        return f", too few for an interval (at least {LEAST_UNITS})"
    together = TOGETHER.search(row["convention"])
    grouped = f"; queries with the same {together[1]} count as one, too few for an interval" if together else ""
    return _few_changes(result, row, "an interval") or grouped


def _size(row: Mapping[str, Any], figure: _Figure | None, *, alone: bool = False) -> str:
    """A figure with its interval.

    Args:
        row: The finding.
        figure: How it is worded; None names the measure.
        alone: Whether other words give unit and direction; if so, a figure below 0 loses its sign, unless it is a correlation.

    Returns:
        The figure, with its unit unless ``alone``.

    Example:
        >>> row = {"measure": "Judged@10", "value": -0.06, "low": -0.1, "high": -0.025}
        >>> _size(row, _JUDGED, alone=True), _size(row, _JUDGED), _size(row, None)
        ('0.6 [0.2, 1.0]', '-0.6 [-1.0, -0.2] judged documents in its first ten', 'Judged@10 -0.060 [-0.100, -0.025]')
    """
    value, ends = row["value"], (row["low"], row["high"])
    digits = _digits(ends, figure)
    if figure is None:
        return f"{row['measure']} {number(value, digits)} {interval(*ends, digits)}".rstrip()
    if alone and value < 0 and figure is not _FOUND_LATE:
        value, ends = -value, (-ends[1], -ends[0])
    told = number(value * figure.times, digits)
    if all(map(math.isfinite, ends)):
        told += f" [{', '.join(number(end * figure.times, digits) for end in ends)}]"
    if alone:
        return told
    return f"{figure.unit} {told}" if figure is _FOUND_LATE else f"{told} {figure.noun or figure.unit}"


def _digits(ends: tuple[float, float], figure: _Figure | None) -> int:
    """The number of decimals of a figure; see :func:`pyterrier_debias.report.text.digits_of`."""
    if figure is None:
        return digits_of(*ends)
    return digits_of(ends[0] * figure.times, ends[1] * figure.times, figure.digits)


def _amount(size: float, figure: _Figure, *, bare: bool = False) -> str:
    """A size in a figure's unit, to as many digits as it needs; ``bare`` leaves the unit out.

    Example:
        >>> _amount(0.02, _JUDGED), _amount(0.5, _DISPLACEMENT), _amount(0.1, _FOUND_LATE)
        ('0.2 judged documents in its first ten', '0.5 ranks', 'a rank correlation of 0.1')
    """
    told = f"{round(size * figure.times, figure.digits):g}"
    if bare:
        return told
    return f"a {figure.unit} of {told}" if figure is _FOUND_LATE else f"{told} {figure.noun or figure.unit}"


def _upwards(bound: float, figure: _Figure) -> float:
    """A bound, rounded upwards to the digits that are shown, so that it remains a bound."""
    scale = 10**figure.digits * figure.times
    return max(1, math.ceil(bound * scale - 1e-9)) / scale


def _beside(result: AuditTables, row: Mapping[str, Any]) -> tuple[str, bool]:
    """What else a reader wants to know about a bias that was found: its effect on ranks, documents or effectiveness.

    Returns:
        The clause, and whether a small screen leaves it out.
    """
    value = partial(_other_value, result, row)
    if row["bias"] == "position":
        change, ranks = value("nDCG@10", "rotated - original"), value("displacement", "rotated alone")
        if row["measure"] == "displacement" and math.isfinite(change):
            return f"; nDCG@10 changes by {change:+.3f}", True
        if row["measure"] != "displacement" and math.isfinite(ranks):
            return f", and a relevant passage moves {'down' if ranks > 0 else 'up'} {abs(ranks):.2f} ranks", False
    if row["bias"] == "survivorship":
        early, late = (value("RR", f"first met at {where}") for where in ("1 to 3", "7 or later"))
        if math.isfinite(early + late):
            f = result.findings
            rr = f["measure"][(f["bias"] == row["bias"]) & (f["system"] == row["system"]) & f["measure"].str.startswith("RR")]
            told = f"; {rr.iloc[0]} is {early:.2f} for answers shown at ranks 1 to 3, {late:.2f} at 7 or later"
            return told, True
    if row["bias"] == "pooling":
        change = value("nDCG@10", "removed - as non-relevant")
        if change > 0:
            return f"; leaving out unjudged documents raises its nDCG@10 by {change:.3f}", True
    if row["bias"] in _ALSO:
        measure, contrast, told = _ALSO[row["bias"]]
        also = value(measure, contrast)
        if math.isfinite(also):
            return told.format(also), True
    if row["convention"].startswith("tf, log1p_total") and abs(row["value"]) < math.log(2):
        # ARaB's magnitude of a document with one word is ln 2.
        words = abs(row["value"]) / math.log(2)
        told = f"one in {1 / words:.0f} of its first ten documents had one more such word" if words < 0.5 else (
            f"each of its first ten documents had {words:.1f} more such words"
        )
        return f", as if {told}", False
    return "", False


def verdict_frame(found: Iterable[Verdict]) -> pd.DataFrame:
    """Verdicts as a table.

    Args:
        found: What :func:`verdicts` returned.

    Returns:
        One row per bias and system: ``bias``, ``question``, ``system``, ``outcome``, ``sentence``, ``effect``, ``low``, ``high``,
        ``unit``, ``queries_needed`` (missing if unknown), ``treatments`` (names, separated by semicolons).
    """
    rows = []
    for verdict in found:
        names = "; ".join(treatment.name for treatment in verdict.treatments) or verdict.nothing_helps
        for answer in verdict.answers:
            told = names if answer.outcome == "yes" else ""
            rows.append({"bias": verdict.bias, "question": verdict.question, **answer.record(), "treatments": told})
    columns = ["bias", "question", *_RECORDED, "treatments"]
    return pd.DataFrame(rows, columns=columns).astype({"queries_needed": "Int64"})


def _rounded_up(number: float) -> int:
    """A number of queries to two digits, upwards.

    Example:
        >>> _rounded_up(1234.5), _rounded_up(61), _rounded_up(7.2)
        (1300, 61, 8)
    """
    size = 10 ** max(0, math.floor(math.log10(number)) - 1) if number >= 1 else 1
    return math.ceil(number / size) * size


def _listed(names: Iterable[str], most: int = 3) -> str:
    """Names in a sentence; of many, only the first ones.

    Example:
        >>> _listed(["BM25", "mine"]), _listed("abcdef")
        ('BM25 and mine', 'a, b and 4 more')
    """
    names = [shortened(name, 40) for name in names]
    names = [*names[: most - 1], f"{len(names) - most + 1} more"] if len(names) > most else names
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
