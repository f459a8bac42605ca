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
    """Parse the names of measures.

    Args:
        measures: ir_measures objects or names such as ``'nDCG@10'``.

    Returns:
        ir_measures objects.

    Raises:
        InputError: If ir_measures does not know a name, or a name is given in place of a list.
    """
    if isinstance(measures, str):
        raise InputError(f"measures must be a list, not {measures!r}; give [{measures!r}]")
    parsed = []
    for measure in measures:
        try:
            parsed.append(ir_measures.parse_measure(measure) if isinstance(measure, str) else measure)
        except (NameError, ValueError) as error:  # whatever else goes wrong is not the name's fault
            raise InputError(f"measure {measure!r} is not known to ir_measures; use e.g. nDCG@10 or RR@10") from error
    return parsed


#: Measures of ir_measures that lie in [0, 1] whatever is ranked.
_SHARES = frozenset(
    "AP Bpref ERR IPrec Judged P R RBP RR Rprec SDCG SetAP SetF SetP SetR StRecall Success alpha_nDCG nDCG".split()
)


def value_range(measure: Any) -> tuple[float, float]:
    """The smallest and the largest value that a measure can have, if known.

    Args:
        measure: ir_measures object or name.

    Returns:
        (0, 1) for shares and normalised measures of ir_measures, otherwise (-inf, inf).

    Example:
        >>> value_range("nDCG@10"), value_range("NumRet")
        ((0.0, 1.0), (-inf, inf))
    """
    return (0.0, 1.0) if _named(measure) in _SHARES else (float("-inf"), float("inf"))


def from_grade(measure: str, grade: int) -> str:
    """The name of a measure for which documents with at least a certain grade are relevant.

    Args:
        measure: Its name, such as ``'RR@10'``.
        grade: The lowest label of a relevant document.

    Returns:
        The same name for 1, which is the default of ir_measures; otherwise the name with ``rel``.

    Example:
        >>> from_grade("RR@10", 1), from_grade("RR@10", 2), from_grade("AP", 2)
        ('RR@10', 'RR(rel=2)@10', 'AP(rel=2)')
    """
    name, at, cutoff = measure.partition("@")
    return measure if grade == 1 else f"{name}(rel={grade}){at}{cutoff}"


def per_query(results: pd.DataFrame, qrels: pd.DataFrame, measures: Sequence[Any], qids: Sequence[str]) -> pd.DataFrame:
    """Compute measures for each query.

    A judged query without results counts 0, because its user found nothing; a query without judgements has no value and must
    not be in ``qids``. All measures see the same order, with equal scores by descending docno as in trec_eval. (By default,
    ir_measures' RR@k and Judged@k use ascending docno, and trec_eval treats scores as equal if they are equal in single
    precision; see :func:`~pyterrier_debias.core.frames.ranked`.)

    Args:
        results: Result frame ``qid``, ``docno``, ``score``.
        qrels: Judgements ``qid``, ``docno``, ``label``; if a document is judged more than once, the highest label counts.
        measures: ir_measures objects or names.
        qids: The queries to evaluate, all of them judged; see :func:`judged_qids`.

    Returns:
        Frame with one row per query, in the order of ``qids``: index ``qid`` (as given), one column per measure (its name as
        text).

    Raises:
        InputError: If a measure is unknown, a label is not a whole number, or, if scores are tied, a score is NaN.

    Identifiers are compared as strings, so that 7 and ``'7'`` are the same query.
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
    """The number of documents at the head of a list that measures look at.

    Args:
        measures: ir_measures objects or names.

    Returns:
        The largest cut-off; None if a measure has none, or may look beyond it.

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
    """Refuse to evaluate a measure in batches of queries if its value for one query depends on all the others.

    ``pt.Experiment(..., batch_size=4)`` evaluates four queries at a time and averages the results, which would be a different
    number. It does not tell the measure that it does so, therefore this function inspects its callers.

    Args:
        measure: The measure that the message names.

    Raises:
        InputError: If PyTerrier is evaluating in batches.
    """
    frame = inspect.currentframe()
    while frame is not None:
        experiment = str(frame.f_globals.get("__name__")).startswith("pyterrier._evaluation")
        size = frame.f_locals.get("batch_size") if experiment else None
        if size is not None:
            raise InputError(
                f"{measure!r}: a statistic over all queries cannot be computed from batches of {size}; leave batch_size or "
                f"this measure out of the experiment"
            )
        frame = frame.f_back


def evaluated_qids(qrels: pd.DataFrame, measure: Any) -> dict[str, Any]:
    """The queries for which ir_measures requests values of a measure.

    Args:
        qrels: Judgements with ``query_id``, as ir_measures passes them to ``runtime_impl``.
        measure: The measure that messages name.

    Returns:
        For the name of each query as text, by which frames are joined, its name in the judgements. Values must use the latter:
        ir_measures adds a 0 for every query of the judgements that has no value.

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
    """The input of a stage's ``evaluate``: candidates or topics of judged queries.

    Args:
        stage: The stage, with the option ``dataset``; messages name it.
        inp: Candidates or topics.
        qrels: Judgements; None for the dataset's.
        topics: The topics, if ``inp`` are candidates; None for those of ``inp``.

    Returns:
        ``inp`` without unjudged queries, judgements (the highest of several for a pair), topics, and the judged qids, sorted, so
        that random draws by the place of a query do not depend on the order of rows.

    Raises:
        InputError: If there are no judgements, or no query is judged.
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
