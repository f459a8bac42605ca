"""The rank at which labellers first met an answer.

Definitions are those of Gupta (2021), "Survivorship Bias in IR Datasets": a query survives at k if one of the first k documents
that its labellers were shown is relevant. These are pure functions on labels and frames;
:mod:`pyterrier_debias.survivorship.data.subset` is a stage that uses them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
import pandas as pd

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.frames import (
    check_scores,
    reads_frames,
    stage_name,
    with_grades,
    with_listed_answers,
    with_string_ids,
)
from pyterrier_debias.core.text import as_name

logger = logging.getLogger(__name__)

#: The first relevant rank of a query whose labellers met no answer: later than any rank.
NEVER = float("inf")
#: The rank in annotations of a query that nothing answers.
NOWHERE = -1

#: How docnos are compared: as they are, or, in the form ``<passage>-<number of its address>``, by the passage.
DOCNOS = ("qna", "passage")
#: What to do with documents that repeat an earlier one of their list.
REPEATS = ("keep", "drop")
#: The source that decides whether a query was answered.
ANSWERED_BY = ("qrels", "answers")

RANK_COLUMNS = ["qid", "first_relevant_rank", "shown", "relevant_shown"]

#: The text of an answer if labellers found none.
NO_ANSWER = "No Answer Present."

_SPACE = re.compile(r"\s+")


def first_relevant(labels: Sequence[float], *, min_label: int = 1, exact: bool = False) -> float:
    """The rank, from 1, of the first relevant document in a list.

    Args:
        labels: Grades in the order in which documents were shown; NaN for a document without judgement.
        min_label: The lowest grade that is relevant.
        exact: Whether a grade must *equal* ``min_label``, as in the thesis, where grades above 1 do not count.

    Returns:
        The rank; infinite if there is none.

    Example:
        >>> first_relevant([0, 0, 1, 1]), first_relevant([0, 0]), first_relevant([])
        (3.0, inf, inf)
        >>> first_relevant([0, 2, 1]), first_relevant([0, 2, 1], exact=True)
        (2.0, 3.0)
    """
    hits = np.flatnonzero(relevant(np.asarray(labels, dtype=float), min_label=min_label, exact=exact))
    return float(hits[0] + 1) if len(hits) else NEVER


def relevant(labels: np.ndarray, *, min_label: int = 1, exact: bool = False) -> np.ndarray:
    """Which grades are relevant.

    Args:
        labels: Shape [n]; NaN is not relevant.
        min_label: The lowest grade that is relevant.
        exact: Whether a grade must equal ``min_label``.

    Returns:
        Booleans, shape [n].
    """
    return labels == min_label if exact else labels >= min_label


@overload
def survives(rank: float, k: float | None) -> bool: ...


@overload
def survives(rank: np.ndarray, k: float | None) -> np.ndarray: ...


def survives(rank: float | np.ndarray, k: float | None) -> bool | np.ndarray:
    """Whether a query is answered within the first k documents shown; a query that survives at k also survives at k + 1.

    Args:
        rank: First relevant rank, or an array of them.
        k: How many documents; None or infinity for any number.

    Returns:
        One boolean or an array of them.

    Raises:
        InputError: For k below 1, or a rank below 1 other than -1, which means nowhere.

    Example:
        >>> survives(3.0, 2), survives(3.0, 3), survives(3.0, None), survives(NEVER, None)
        (False, True, True, False)
    """
    check_threshold(k, "survives")
    ranks = as_first_ranks(np.atleast_1d(rank), "survives")
    found = np.isfinite(ranks) & (ranks <= (NEVER if k is None else k))
    return found if np.ndim(rank) else bool(found[0])


def as_first_ranks(ranks: Any, stage: Any) -> np.ndarray:
    """First relevant ranks as numbers from 1.

    Args:
        ranks: Numbers from 1; infinite, or :data:`NOWHERE` as in annotations, for queries that nothing answers; NaN if unknown.
        stage: The calling stage, named in the message.

    Returns:
        A copy, shape [n], with infinity in place of :data:`NOWHERE`.

    Raises:
        InputError: For any other rank below 1.

    Example:
        >>> as_first_ranks([2, -1], "mine").tolist()
        [2.0, inf]
    """
    found = np.asarray(ranks, dtype=float)
    found = np.where(found == NOWHERE, NEVER, found)
    if (found < 1).any():
        low = found[found < 1][0]
        raise InputError(
            f"{stage_name(stage)}: a first relevant rank is {low:g}; ranks count from 1, and a query that nothing answers has "
            f"infinity or {NOWHERE}"
        )
    return found


def check_threshold(k: Any, stage: Any) -> None:
    """Check a threshold: None, infinity, or a number of documents from 1.

    Args:
        k: The threshold.
        stage: The calling stage, named in the message.

    Raises:
        InputError: For anything else.
    """
    number = isinstance(k, (int, float, np.number)) and not isinstance(k, bool)
    if k is None or (number and k == NEVER):
        return
    if not number or not k >= 1 or k != int(k):
        raise InputError(f"{stage_name(stage)}: rank={k!r} must be a number of documents from 1, or None for any number")


def passage_ids(docnos: Sequence[str]) -> list[str]:
    """Convert docnos of ``msmarco-qna`` to ids of ``msmarco-passage``: the part before the last hyphen.

    Args:
        docnos: Such as ``'7066866-0'``; ids without a hyphen are already passage ids.

    Returns:
        Such as ``'7066866'``.

    Example:
        >>> passage_ids(["7066866-0", "7066866-1", "42"])
        ['7066866', '7066866', '42']
    """
    return [docno.rpartition("-")[0] or docno for docno in docnos]


def presented(candidates: pd.DataFrame, stage: Any = "candidates", *, also: Sequence[str] = ()) -> pd.DataFrame:
    """The documents that labellers were shown, each with its position in the list.

    Args:
        candidates: ``qid``, ``docno``, and ``score`` (the highest was shown first) or ``rank`` (the lowest was shown first). With
            both, documents are sorted by score and equal scores by rank; remaining ties keep the order of their rows.
        stage: The calling stage, named in messages.
        also: Further columns to keep.

    Returns:
        A new frame ``qid``, ``docno``, the further columns, ``place`` (from 1), with queries in the order in which they first
        occur.

    Raises:
        InputError: If ``score`` and ``rank`` are both missing, or hold a value that is not a number.
    """
    missing = [column for column in ("qid", "docno") if column not in candidates.columns]
    if missing or not {"score", "rank"} & set(candidates.columns):
        lacks = repr(missing[0]) if missing else "'score' or 'rank'"
        raise InputError(
            f"{stage_name(stage)}: the candidates have no column {lacks}, so the order shown is not known; they have "
            f"{', '.join(map(str, candidates.columns)) or 'none'}"
        )
    frame = with_string_ids(candidates, stage)
    keys = []
    for column, sign in (("rank", 1.0), ("score", -1.0)):
        if column in frame.columns:
            check_scores(frame, stage, column)
            keys.append(sign * frame[column].to_numpy(dtype=float))
    query = pd.factorize(frame["qid"])[0]
    order = np.lexsort((*keys, query))
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    places = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order))) + 1
    return frame[["qid", "docno", *also]].iloc[order].assign(place=places).reset_index(drop=True)


def mapped(frame: pd.DataFrame, docno: str, stage: Any = "ids") -> pd.DataFrame:
    """Convert the docnos of a frame to one scheme of ids.

    Args:
        frame: Any frame with ``docno``.
        docno: ``'qna'`` leaves them unchanged, ``'passage'`` applies :func:`passage_ids`.
        stage: The calling stage, named in the message.

    Returns:
        The frame, or a copy with other docnos.

    Raises:
        InputError: For an unknown scheme.
    """
    check_choice(stage_name(stage), "docno", docno, DOCNOS)
    return frame if docno == "qna" else frame.assign(docno=passage_ids(frame["docno"].tolist()))


def normal_text(text: str) -> str:
    """Normalise a text to find repeats: lower case, and one space for each run of white space.

    Args:
        text: Any text.

    Returns:
        The normalised text; passages that differ only in case and white space become equal.

    Example:
        >>> normal_text("  The Seine\\n flows ")
        'the seine flows'
    """
    return _SPACE.sub(" ", text).strip().lower()


def repeat_of(lists: pd.DataFrame, stage: Any = "repeat_of") -> np.ndarray:
    """Which document of the same list each document repeats.

    A document repeats the first one of its query's list that has the same docno or, if there is a column ``text``, the same text
    (:func:`normal_text`; empty and missing texts repeat nothing).

    Args:
        lists: ``qid``, ``docno``, and ``text`` to compare texts; the rows of a query in the order of its list.
        stage: The calling stage, named in messages.

    Returns:
        The position of the row that each row repeats, or its own position if it is the first; shape [rows].

    Example:
        >>> lists = pd.DataFrame({"qid": "q1", "docno": ["a", "b", "c", "b"], "text": ["Tea", "rain", " tea", "rain"]})
        >>> repeat_of(lists).tolist()
        [0, 1, 0, 1]
    """
    missing = [column for column in ("qid", "docno") if column not in lists.columns]
    if missing:
        raise InputError(f"{stage_name(stage)}: the lists have no column {missing[0]!r}")
    texts = lists["text"].tolist() if "text" in lists.columns else [None] * len(lists)
    first: dict[tuple[str, str, str], int] = {}
    found = np.empty(len(lists), dtype=np.int64)
    for row, (qid, docno, text) in enumerate(zip(lists["qid"], lists["docno"], texts)):
        normal = normal_text(text) if isinstance(text, str) else ""
        names = [(qid, "docno", docno), *([(qid, "text", normal)] if normal else [])]
        found[row] = min(first.get(name, row) for name in names)
        for name in names:
            first.setdefault(name, found[row])
    return found


def check_repeats(repeats: str, columns: Iterable[Any], docno: str, stage: Any) -> None:
    """Check the option ``repeats``, and that the lists have what is needed to find repeats.

    Args:
        repeats: ``'keep'`` or ``'drop'``.
        columns: The columns of the lists.
        docno: The scheme of ids, see :func:`mapped`; ids of passages identify repeats without texts.
        stage: The calling stage, named in messages.

    Raises:
        InputError: If not; the message says what to do.
    """
    check_choice(stage_name(stage), "repeats", repeats, REPEATS)
    if repeats == "drop" and docno != "passage" and "text" not in set(columns):
        raise InputError(
            f"{stage_name(stage)}: repeats='drop' compares texts, but there is no column 'text'; add it with a text loader, or "
            f"use docno='passage' if repeats have equal ids"
        )


@reads_frames
def first_relevant_ranks(
    candidates: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    min_label: int = 1,
    exact: bool = False,
    docno: str = "qna",
    repeats: str = "keep",
    answers: pd.DataFrame | None = None,
    stage: Any = "first_relevant_ranks",
) -> pd.DataFrame:
    """For each query, the rank at which its labellers first met an answer.

    Args:
        candidates: What labellers were shown, see :func:`presented`.
        qrels: Judgements ``qid``, ``docno``, ``label``. A document without judgement is not relevant. If a document has several
            judgements for a query, the highest counts.
        min_label: The lowest grade that is relevant.
        exact: Whether a grade must equal ``min_label``, as in the thesis.
        docno: ``'qna'`` uses docnos as they are; ``'passage'`` uses the part before the hyphen, in both candidates and
            judgements, so that lists of ``msmarco-qna`` match judgements of ``msmarco-passage``. A passage that was shown with
            several addresses gets its best rank and its highest label; the other passages keep their ranks.
        repeats: ``'keep'``: lists count as they were shown. ``'drop'``: documents that repeat an earlier one of their list
            (:func:`repeat_of`, by ``text`` and by docno) are removed before ranks are counted, so that later documents move up;
            a text gets its highest label.
        answers: If given, a query counts as answered only if its answer is given too (``answered_by='answers'``): ``qid``
            with ``answer``, one row per answer, or with ``answers``, a list. The placeholder "No Answer Present." is not an
            answer.
        stage: The calling stage, named in messages.

    Returns:
        One row per query of the candidates, in their order: ``qid``, ``first_relevant_rank`` (from 1; infinite if nothing shown
        is relevant), ``shown`` and ``relevant_shown`` (documents).

    Raises:
        InputError: If a column is missing, if candidates and judgements share a query but no docno, or if the mapping turns a
            query's whole list into one document.

    Example:
        >>> shown = pd.DataFrame({"qid": "q1", "docno": ["7-0", "8-0", "9-0"], "score": [0.0, -1.0, -2.0]})
        >>> qrels = pd.DataFrame({"qid": "q1", "docno": ["9-0", "8-0"], "label": [1, 0]})
        >>> first_relevant_ranks(shown, qrels).values.tolist()
        [['q1', 3.0, 3, 1]]

    When not to use it: with a run instead of what labellers were shown, unless the result is marked as a proxy. A run shows where
    a *system* finds an answer.
    """
    check_repeats(repeats, candidates.columns, docno, stage)
    told = ["text"] if repeats == "drop" and "text" in candidates.columns else []
    shown = presented(candidates, stage, also=told)
    listed = len(shown)
    queries = shown["qid"].drop_duplicates().tolist()
    judged = with_grades(qrels, stage)[["qid", "docno", "label"]]
    shown, judged = mapped(shown, docno, stage), mapped(judged, docno, stage)
    lists = shown.groupby("qid")["docno"].agg(["size", "nunique"])
    one = lists[(lists["size"] > 2) & (lists["nunique"] == 1)] if docno == "passage" else lists.iloc[:0]
    if len(one):
        raise InputError(
            f"{stage_name(stage)}: with docno='passage' all {one['size'].iloc[0]} documents of query {one.index[0]!r} become "
            f"one, {shown.loc[shown['qid'] == one.index[0], 'docno'].iloc[0]!r}; these docnos follow another scheme: use "
            f"docno='qna'"
        )
    common = judged[judged["qid"].isin(set(queries))]
    if listed and len(common) and not set(common["docno"]) & set(shown["docno"]):
        raise InputError(
            f"{stage_name(stage)}: no judged docno (e.g. {common['docno'].iloc[0]!r}) is among the candidates (e.g. "
            f"{shown['docno'].iloc[0]!r}); docno='passage' joins ids of msmarco-qna and msmarco-passage"
        )
    if repeats == "drop":
        shown, judged = _without_repeats(shown, judged, stage)
    labels = judged.groupby(["qid", "docno"], as_index=False)["label"].max()
    best = shown.groupby(["qid", "docno"], as_index=False, sort=False)["place"].min()
    best = best.merge(labels, on=["qid", "docno"], how="left")
    hits = best[relevant(best["label"].to_numpy(dtype=float, na_value=np.nan), min_label=min_label, exact=exact)]
    hits = hits.groupby("qid")["place"].agg(["min", "size"])
    found = pd.DataFrame({"qid": queries}).astype({"qid": "str"})
    found = found.assign(
        first_relevant_rank=found["qid"].map(hits["min"]).to_numpy(dtype=float, na_value=np.nan),
        shown=found["qid"].map(best.groupby("qid").size()).to_numpy(dtype="int64"),
        relevant_shown=found["qid"].map(hits["size"]).fillna(0).to_numpy(dtype="int64"),
    )
    found = found.fillna({"first_relevant_rank": NEVER})
    if answers is not None:
        known = answered_qids(answers, stage)
        denied = found["first_relevant_rank"].ne(NEVER) & ~found["qid"].isin(known)
        only = set(found.loc[found["first_relevant_rank"].eq(NEVER), "qid"]) & known
        if denied.any() or only:
            logger.info(
                "%s: %d queries have a relevant document shown but no answer, %d an answer but no relevant document shown; both "
                "count as unanswered", stage_name(stage), int(denied.sum()), len(only),
            )  # fmt: skip
        found = found.assign(first_relevant_rank=found["first_relevant_rank"].where(~denied, NEVER))
    return found[RANK_COLUMNS]


def _without_repeats(shown: pd.DataFrame, judged: pd.DataFrame, stage: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lists without repeats, with new ranks; judgements of a repeat become judgements of the document that it repeats."""
    first = repeat_of(shown, stage)
    kept = shown[first == np.arange(len(shown))]
    kept = kept.assign(place=kept.groupby("qid", sort=False).cumcount() + 1)
    return kept.reset_index(drop=True), judged_by_text(judged, shown, first)


def judged_by_text(judged: pd.DataFrame, lists: pd.DataFrame, first: np.ndarray) -> pd.DataFrame:
    """Make judgements of a repeat judgements of the document that it repeats.

    Args:
        judged: ``qid``, ``docno``, ``label``.
        lists: ``qid``, ``docno``.
        first: What :func:`repeat_of` returned for the lists.

    Returns:
        A copy with other docnos; a pair may have several rows.
    """
    stands_for = dict(zip(zip(lists["qid"], lists["docno"]), lists["docno"].to_numpy()[first].tolist()))
    docnos = [stands_for.get(pair, pair[1]) for pair in zip(judged["qid"], judged["docno"])]
    return judged.assign(docno=docnos)


def list_strata(relevant_shown: Sequence[int], shown: Sequence[int]) -> list[str]:
    """Group queries whose lists have equally many answers and are equally long.

    In such lists, labellers meet an answer equally early by chance. The more answers a list has and the shorter it is, the
    earlier is the first of them, in any order; and both are associated with how well a ranker does.

    Args:
        relevant_shown: The number of answers in each of n lists.
        shown: The length of each of n lists. Lengths above 10 are grouped by tens.

    Returns:
        The names of the n strata.

    Example:
        >>> list_strata([1, 1, 2], [10, 14, 18])
        ['1 of 10', '1 of 11 to 20', '2 of 11 to 20']
    """
    lengths = [f"{n}" if n <= 10 else f"{(n - 1) // 10 * 10 + 1} to {(n - 1) // 10 * 10 + 10}" for n in map(int, shown)]
    return [f"{int(answers)} of {length}" for answers, length in zip(relevant_shown, lengths)]


def types_of(column: pd.Series) -> pd.Series:
    """Types of queries as strings.

    Args:
        column: Text, numbers or truth values; missing if a query has no type.

    Returns:
        The types as strings, ``''`` if missing.

    Example:
        >>> types_of(pd.Series([1.0, None])).tolist()
        ['1', '']
    """
    return column.map(as_name, na_action="ignore").fillna("").astype("str")


def answered_qids(answers: pd.DataFrame, stage: Any = "answers") -> set[str]:
    """The queries with a written answer.

    Args:
        answers: ``qid``, and ``answer`` (a text) or ``answers`` (a list of texts, or a mapping from ``text`` to such a list).
        stage: The calling stage, named in the message.

    Returns:
        Their qids.

    Raises:
        InputError: If a column is missing, or holds a mapping without a list of texts.

    Example:
        >>> written = pd.DataFrame({"qid": ["1", "2", "3"], "answers": [["100 degrees"], [], ["No Answer Present."]]})
        >>> sorted(answered_qids(written))
        ['1']
    """
    column = next((c for c in ("answer", "answers") if c in answers.columns), None)
    if "qid" not in answers.columns or column is None:
        raise InputError(
            f"{stage_name(stage)}: the answers need the columns 'qid' and 'answer' (or 'answers', a list); they have "
            f"{', '.join(map(str, answers.columns)) or 'none'}"
        )
    found = set()
    answers = with_listed_answers(with_string_ids(answers, f"{stage_name(stage)}, answers"), column, stage)
    for qid, value in zip(answers["qid"], answers[column].tolist()):
        texts = [value] if isinstance(value, str) else [] if np.ndim(value) == 0 else list(value)
        if any(isinstance(text, str) and text.strip() not in ("", NO_ANSWER) for text in texts):
            found.add(qid)
    return found


def shown_to_labellers(dataset: Any, *, proxy: bool = True, stage: Any = "shown_to_labellers") -> tuple[pd.DataFrame, str]:
    """The lists that a dataset's labellers were shown.

    Args:
        dataset: Any dataset: ``get_candidates()`` is tried first, then the first of ``get_runs()``.
        proxy: Whether a run may be used if the dataset does not know these lists.
        stage: The calling stage, named in the message.

    Returns:
        The candidates, and the name of the run that is used as a proxy; an empty name if there is none.

    Raises:
        InputError: If the dataset has neither.
    """
    shown = provided(dataset, "get_candidates")
    if shown is not None:
        return shown, ""
    runs = provided(dataset, "get_runs") or {} if proxy else {}
    if not runs:
        raise InputError(
            f"{stage_name(stage)}: the dataset does not say what its labellers were shown (get_candidates)"
            + (" and has no run that could stand in for it (get_runs)" if proxy else "")
            + "; give a frame qid, docno, score as candidates"
        )
    name = next(iter(runs))
    return runs[name], name


@reads_frames
def with_ranks(topics: pd.DataFrame, ranks: pd.DataFrame) -> pd.DataFrame:
    """Join first relevant ranks to topics; a query for which no documents were shown has none.

    Args:
        topics: Any frame with ``qid``.
        ranks: ``qid``, ``first_relevant_rank``.

    Returns:
        A copy with string ids and ``first_relevant_rank`` (infinite if there is none).
    """
    known = ranks.set_index("qid")["first_relevant_rank"]
    rows, qids = pd.factorize(topics["qid"])  # a query may have many rows
    found = known.reindex(qids).to_numpy(dtype=float, na_value=np.nan)[rows]
    return topics.assign(first_relevant_rank=np.where(np.isnan(found), NEVER, found))
