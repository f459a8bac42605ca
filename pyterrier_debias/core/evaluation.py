"""Per-query effectiveness, with one convention for special cases such as missing results."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import ir_measures
import numpy as np
import pandas as pd

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import check_overlap, highest_grades, pair_numbers, ranked, with_string_ids


def parse_measures(measures: Sequence[Any]) -> list[Any]:
    """Measures from their names.

    Args:
        measures: ir_measures objects or names such as ``'nDCG@10'``.

    Returns:
        ir_measures objects.

    Raises:
        InputError: For a name that ir_measures does not know, or a name in place of a list.
    """
    if isinstance(measures, str):
        raise InputError(f"measures must be a list, not {measures!r}; give [{measures!r}]")
    parsed = []
    for measure in measures:
        try:
            parsed.append(ir_measures.parse_measure(measure) if isinstance(measure, str) else measure)
        except (NameError, ValueError) as error:  # whatever else goes wrong is not the name's fault
            raise InputError(f"measure {measure!r} is not known to ir_measures (for example nDCG@10, RR@10, R@10)") from error
    return parsed


#: Measures of ir_measures that lie in [0, 1] whatever is ranked.
_SHARES = frozenset(
    "AP Bpref ERR IPrec Judged P R RBP RR Rprec SDCG SetAP SetF SetP SetR StRecall Success alpha_nDCG nDCG".split()
)


def value_range(measure: Any) -> tuple[float, float]:
    """The least and the greatest value that a measure can have, as far as that is known.

    Args:
        measure: ir_measures object or name.

    Returns:
        (0, 1) for shares and normalised measures of ir_measures, else (-inf, inf).

    Example:
        >>> value_range("nDCG@10"), value_range("NumRet")
        ((0.0, 1.0), (-inf, inf))
    """
    return (0.0, 1.0) if _named(measure) in _SHARES else (float("-inf"), float("inf"))


def from_grade(measure: str, grade: int) -> str:
    """The name of a measure for which documents are relevant from a grade on.

    Args:
        measure: Its name, such as ``'RR@10'``.
        grade: The lowest label of a relevant document.

    Returns:
        The same for 1, which ir_measures takes where nothing is said; else with ``rel``.

    Example:
        >>> from_grade("RR@10", 1), from_grade("RR@10", 2), from_grade("AP", 2)
        ('RR@10', 'RR(rel=2)@10', 'AP(rel=2)')
    """
    name, at, cutoff = measure.partition("@")
    return measure if grade == 1 else f"{name}(rel={grade}){at}{cutoff}"


def per_query(results: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence[Any], qids: Sequence[str]) -> pd.DataFrame:
    """Measures of each query.

    A query that is judged and has no results counts 0, since its user found nothing; a query without judgements has no
    value and must not be asked for. Every measure sees one order: equal scores by descending docno, as trec_eval has it. (Left to
    themselves, ir_measures' RR@k and Judged@k take ascending ones, and trec_eval calls scores equal that differ by less than
    single precision holds; see :func:`~pyterrier_debias.core.frames.ranked`.)

    Args:
        results: Result frame ``qid``, ``docno``, ``score``.
        qrels: Judgements ``qid``, ``docno``, ``label``; of a document that is judged more than once the highest label counts.
        measures: ir_measures objects or names.
        qids: The queries to give values for, all of them judged; see :func:`judged_qids`.

    Returns:
        Frame with one row per query, in the order of ``qids``: index ``qid`` (as they were given), one column per measure (its
        name as text).

    Raises:
        InputError: For an unknown measure, a label that is not a whole number, or, where scores are tied, one that is NaN.

    Identifiers are compared as strings, so that 7 and ``'7'`` are one query.
    """
    parsed = parse_measures(measures)
    asked = [str(qid) for qid in qids]
    table = {str(m): dict.fromkeys(asked, 0.0) for m in parsed}
    keep = set(asked)
    results = with_string_ids(results, "per_query")
    results, judged = results[results["qid"].isin(keep)], highest_grades(qrels, "per_query")
    labels = _by_query(judged, "label", keep) if len(results) else {}
    if (judged["label"] < 0).any():
        labels = _safe(labels)
    for seen, those in _by_what_they_see(parsed).items() if labels else ():
        rows = results
        if seen == _JUDGED:
            ours, theirs = pair_numbers(results, judged)
            rows = results[np.isin(ours, theirs)]
        run = _by_query(_untied(rows, seen if isinstance(seen, int) else None), "score", keep)
        for metric in ir_measures.iter_calc(those, labels, run) if run else ():
            if metric.query_id in keep:
                table[str(metric.measure)][metric.query_id] = metric.value
    values = {name: [of[qid] for qid in asked] for name, of in table.items()}
    return pd.DataFrame(values, index=pd.Index(list(qids), name="qid"), dtype=np.float64)


#: Measures of ir_measures that look at no more than their cut-off of a list.
_CUT = frozenset("AP Judged P R RR Success nDCG".split())
#: What those see that take unjudged documents out of a list first.
_JUDGED = "judged"


def _by_what_they_see(measures: Sequence[Any]) -> dict[int | str, list[Any]]:
    """Measures by what they look at of a list: its first documents, as many as the greatest cut-off; the judged ones; or all."""
    found: dict[int | str, list[Any]] = {}
    cut = [measure for measure in measures if deepest([measure]) is not None]
    if cut:
        found[deepest(cut) or 0] = cut
    for measure in (one for one in measures if one not in cut):
        seen = _JUDGED if dict(getattr(measure, "params", {})).get("judged_only") and _named(measure) in _CUT else "all"
        found.setdefault(seen, []).append(measure)
    return found


def _named(measure: Any) -> str:
    """The name of a measure without its options."""
    return str(measure).partition("@")[0].partition("(")[0]


def deepest(measures: Sequence[Any]) -> int | None:
    """How many documents of a list measures look at.

    Args:
        measures: ir_measures objects or names.

    Returns:
        The greatest cut-off; None where a measure has none, or may look beyond it.

    Example:
        >>> deepest(["nDCG@10", "RR@20"]), deepest(["nDCG@10", "AP"]), deepest(["nDCG(judged_only=True)@10"])
        (20, None, None)
    """
    found: list[int] = []
    for measure in parse_measures(measures):
        options = dict(getattr(measure, "params", {}))
        cut = _named(measure) in _CUT or getattr(measure, "CUTS_LISTS", False)
        if not cut or options.get("judged_only") or options.get("cutoff") is None:
            return None
        found.append(options["cutoff"])
    return max(found, default=None)


def _untied(results: pd.DataFrame, depth: int | None = None) -> pd.DataFrame:
    """Results in which no two scores of a query are equal, to any evaluator; as they are where none were.

    Of each list the first ``depth`` alone; None for all.
    """
    with np.errstate(over="ignore"):
        single = results["score"].to_numpy(dtype=np.float64).astype(np.float32)
    query = pd.factorize(results["qid"])[0]
    order = np.lexsort((-single, query))
    query, single = query[order], single[order]
    same = query[1:] == query[:-1]
    if (same & (single[1:] == single[:-1])).any():
        results = ranked(results, "per_query")
        results = results.assign(score=-results["rank"].astype(np.float64))
        return results if depth is None else results[results["rank"] < depth]
    if depth is None:
        return results
    starts = np.flatnonzero(np.append(True, ~same)) if len(order) else np.empty(0, dtype=np.int64)
    places = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
    return results.iloc[np.sort(order[places < depth])]


def _by_query(frame: pd.DataFrame, column: str, keep: set[str]) -> dict[str, dict[str, Any]]:
    """Query to document to value, of the queries to keep: what ir_measures makes of a frame, row by row and slower."""
    table: dict[str, dict[str, Any]] = {}
    for qid, docno, value in zip(*(frame[name].to_numpy(dtype=object) for name in ("qid", "docno", column))):
        if qid in keep:
            table.setdefault(qid, {})[docno] = value
    return table


def _safe(labels: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Labels that trec_eval survives: a query whose labels are all negative ends the whole process there.

    Its highest label sizes an array. Nothing is relevant to such a query, and every measure is 0, as with labels of 0.
    """
    negative = {qid for qid, of in labels.items() if max(of.values()) < 0}
    return {qid: dict.fromkeys(of, 0) if qid in negative else of for qid, of in labels.items()}


def refuse_batches(measure: Any) -> None:
    """Refuse to evaluate a measure in batches of queries, whose value of one query depends on all the others.

    ``pt.Experiment(..., batch_size=4)`` evaluates four queries at a time and averages what comes of it, which would be another
    number, and hands a measure nothing that tells: so this looks who is calling.

    Args:
        measure: The measure, named in the message.

    Raises:
        InputError: If PyTerrier is evaluating in batches.
    """
    frame = inspect.currentframe()
    while frame is not None:
        experiment = str(frame.f_globals.get("__name__")).startswith("pyterrier._evaluation")
        size = frame.f_locals.get("batch_size") if experiment else None
        if size is not None:
            raise InputError(
                f"{measure!r}: a statistic over all queries cannot be computed from batches of {size}; leave batch_size out of "
                f"the experiment, or this measure"
            )
        frame = frame.f_back


def evaluated_qids(qrels: pd.DataFrame, measure: Any) -> dict[str, Any]:
    """The queries that ir_measures asks a measure for.

    Args:
        qrels: Judgements with ``query_id``, as ir_measures hands them to ``runtime_impl``.
        measure: The measure; named in messages.

    Returns:
        Each query's name as text, by which frames are joined, to the name that the judgements have. Values must be given under
        the latter: ir_measures adds a 0 for every query of the judgements that has none.

    Example:
        >>> evaluated_qids(pd.DataFrame({"query_id": [7, 7, 8]}), "example")
        {'7': 7, '8': 8}
    """
    own = qrels["query_id"].drop_duplicates()
    return dict(zip(with_string_ids(own.to_frame(), measure)["query_id"], own))


def judged_qids(topics: pd.DataFrame, qrels: pd.DataFrame) -> list[str]:
    """Queries of the topics that have at least one judgement, in the topics' order.

    Args:
        topics: Frame with ``qid``.
        qrels: Frame with ``qid``.

    Returns:
        The qids, as the topics have them.
    """
    judged = {str(qid) for qid in qrels["qid"].unique()}
    return [qid for qid in dict.fromkeys(topics["qid"]) if str(qid) in judged]


def judged_input(
    stage: Any, inp: pd.DataFrame, qrels: pd.DataFrame | None, topics: pd.DataFrame | None
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame, list[str]]:
    """What a stage's ``evaluate`` works on: candidates or topics of judged queries.

    Args:
        stage: The stage, with the option ``dataset``; named in messages.
        inp: Candidates or topics.
        qrels: Judgements; None for the dataset's.
        topics: The topics, where ``inp`` are candidates; None for those of ``inp``.

    Returns:
        ``inp`` without queries that nobody judged, judgements (of a pair with several the highest), topics, and the judged qids,
        sorted: what is drawn at random by a query's place must not depend on the order of rows.

    Raises:
        InputError: Where there are no judgements, or no query is judged.
    """
    name, qrels = type(stage).__name__, provided(stage.dataset, "get_qrels") if qrels is None else qrels
    if qrels is None:
        raise InputError(f"{name}: there are no judgements; give evaluate(..., qrels) or a dataset that has them")
    inp, qrels = with_string_ids(inp, stage), highest_grades(qrels, stage)
    topics = inp if topics is None else with_string_ids(topics, f"{name}, topics")
    check_overlap(topics, qrels, stage)
    qids = sorted(judged_qids(topics, qrels))
    inp = inp[inp["qid"].isin(qids)]
    if inp.empty:
        raise InputError(f"{name}: none of the judged queries has candidates; check that the qids are the same")
    return inp, qrels, topics, qids
