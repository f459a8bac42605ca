"""Annotations of unanswered queries: codes and first relevant ranks.

Sections 3.4 and 3.5 of Gupta (2021) annotate unanswered queries by hand: with a code from 0 to 3, and with the first rank at
which a system answers them, or -1. Section 3.4 prints the codes; no file with the labels of single queries is public. The
functions here work with your own labels, or those of a labeller that you name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.frames import (
    check_names,
    check_pairs,
    check_text,
    highest_grades,
    ranked,
    reads_frames,
)
from pyterrier_debias.core.statistics import Interval, binomial_interval
from pyterrier_debias.data.readers import read_table
from pyterrier_debias.survivorship.data.ranks import NEVER, NOWHERE, check_repeats, first_relevant, judged_by_text, repeat_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The codes of the thesis' Section 3.4, by number; ``codes=`` gives them meanings in words.
CODES = {0: "0", 1: "1", 2: "2", 3: "3"}

#: A function that judges rows of ``qid``, ``query``, ``docno``, ``text`` and returns one label per row.
Labeller = Callable[[pd.DataFrame], Sequence[int]]


def read_annotations(path: str | Path, *, codes: Mapping[int, str] = CODES) -> pd.DataFrame:
    """Read annotations from a table with a header: tab- or comma-separated values, plain or gzipped.

    Args:
        path: A file with the columns ``qid`` and ``code`` (a whole number), ``first_relevant_rank`` (from 1, or -1), or both;
            ``annotator`` and ``system`` if there are several; other columns are kept.
        codes: The valid codes.

    Returns:
        The annotations; see :func:`check_annotations`.

    Raises:
        InputError: If the file cannot be read, or has any other value.
    """
    return check_annotations(read_table(path), codes=codes)


@reads_frames
def check_annotations(frame: pd.DataFrame, *, codes: Mapping[int, str] = CODES) -> pd.DataFrame:
    """Check annotations, and convert ids to strings.

    Args:
        frame: Annotations with the columns of :func:`read_annotations`. An infinite rank, as in
            :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`, means that nothing answers the query.
        codes: The valid codes.

    Returns:
        A copy with string ``qid``, whole ``code`` and ``first_relevant_rank``, and ``annotator`` (empty if there is one).

    Raises:
        InputError: If a column or a value is missing, a code is unknown, a rank is 0, below -1 or not a whole number, or an
            annotator gives two annotations for one query (and system).
    """
    if "qid" not in frame.columns or not {"code", "first_relevant_rank"} & set(frame.columns):
        raise InputError(
            f"annotations need the columns 'qid' and 'code' or 'first_relevant_rank'; they have "
            f"{', '.join(map(str, frame.columns)) or 'none'}"
        )
    check_names(frame, ("annotator", "system"), "annotations")
    frame = frame.reset_index(drop=True)
    if "annotator" not in frame.columns:
        frame = frame.assign(annotator="")
    for column in ("code", "first_relevant_rank"):
        if column not in frame.columns:
            continue
        numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=float, na_value=np.nan)
        if column == "code":
            wrong = ~np.isin(numbers, list(codes))
            wanted = f"one of {', '.join(map(str, codes))}"
        else:
            numbers = np.where(numbers == NEVER, NOWHERE, numbers)
            wrong = ~((numbers == NOWHERE) | ((numbers >= 1) & (numbers == np.floor(numbers))))
            wanted = f"a rank from 1, or {NOWHERE} for nowhere"
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            raise InputError(
                f"annotations: {column!r} is {frame[column].iloc[at]!r} at row {at} (qid={frame['qid'].iloc[at]!r}); it must be "
                f"{wanted}"
            )
        frame = frame.assign(**{column: numbers.astype("int64")})
    keys = [c for c in ("qid", "annotator", "system") if c in frame.columns]
    twice = frame.duplicated(keys)
    if twice.any():
        row = frame[twice].iloc[0]
        raise InputError(f"annotations: query {row['qid']!r} is in several rows of annotator {row['annotator']!r}; keep one")
    return frame


def summary(annotations: pd.DataFrame, *, codes: Mapping[int, str] = CODES, level: float = 0.95) -> pd.DataFrame:
    """How often each code was given (Figure 3.6).

    Args:
        annotations: ``qid``, ``code``, and ``annotator`` if there are several.
        codes: Mapping from each code to its meaning in words.
        level: Coverage of the intervals (Clopper and Pearson).

    Returns:
        One row per annotator and code, in the order of ``codes``: ``annotator``, ``code``, ``meaning``, ``count``, ``n``,
        ``share``, ``low``, ``high``.

    Raises:
        InputError: As for :func:`check_annotations`.

    Example:
        >>> found = summary(pd.DataFrame({"qid": ["1", "2", "3"], "code": [0, 3, 3]}))
        >>> found[["code", "count"]].values.tolist()
        [[0, 1], [1, 0], [2, 0], [3, 2]]
    """
    frame = check_annotations(annotations, codes=codes)
    if "code" not in frame.columns:
        raise InputError("annotations: there is no column 'code' to sum up; add the codes that annotators gave")
    rows = []
    for annotator, own in frame.groupby("annotator", sort=True):
        for code, meaning in codes.items():
            count = int((own["code"] == code).sum())
            found = binomial_interval(count, len(own), level=level)
            rows.append((annotator, code, meaning, count, len(own), found.estimate, found.low, found.high))
    return pd.DataFrame(rows, columns=["annotator", "code", "meaning", "count", "n", "share", "low", "high"])


def cohens_kappa(one: Sequence[Any], other: Sequence[Any], *, level: float = 0.95) -> Interval:
    """Cohen's kappa, the agreement of two annotators beyond chance: (p_o - p_e) / (1 - p_e).

    p_o is the share of queries on which they agree, p_e the share expected from how often each gives each code (Cohen, 1960).

    Args:
        one: The n codes of one annotator.
        other: The other annotator's codes of the same queries.
        level: Coverage of the interval.

    Returns:
        Kappa and a normal interval with the large-sample variance of Fleiss, Cohen and Everitt (1969); NaN if both always give
        the same single code, or if there are no queries.

    Raises:
        InputError: For unequal lengths.

    Example:
        >>> round(cohens_kappa([0, 0, 1, 1], [0, 1, 1, 1]).estimate, 3)
        0.5
    """
    from scipy import stats
    from statsmodels.stats import inter_rater

    if len(one) != len(other):
        counts = f"{len(one)} and {len(other)} codes"
        raise InputError(f"cohens_kappa: there are {counts}; give the codes of both annotators for the same queries")
    n = len(one)
    names, codes = np.unique(np.concatenate([np.asarray(one), np.asarray(other)]), return_inverse=True)
    if not n or len(names) < 2:
        return Interval(float("nan"), float("nan"), float("nan"), level, n)
    table = np.zeros((len(names), len(names)))
    np.add.at(table, (codes[:n], codes[n:]), 1.0)
    with np.errstate(invalid="ignore"):  # of a variance that rounding takes below 0
        found = inter_rater.cohens_kappa(table)
    kappa = float(found.kappa)
    half = float(stats.norm.ppf((1 + level) / 2) * np.sqrt(max(found.var_kappa, 0.0)))
    return Interval(kappa, max(kappa - half, -1.0), min(kappa + half, 1.0), level, n)


def agreement(annotations: pd.DataFrame, *, codes: Mapping[int, str] = CODES, level: float = 0.95) -> pd.DataFrame:
    """Cohen's kappa of every pair of annotators over the queries that both judged.

    Args:
        annotations: ``qid``, ``annotator``, ``code``, and ``system`` if several were annotated: then the two annotators' codes
            are compared for each query and system.
        codes: The valid codes.
        level: Coverage of the intervals.

    Returns:
        One row per pair: ``one``, ``other``, ``kappa``, ``low``, ``high``, ``agreed`` (share), ``n``.

    Raises:
        InputError: As for :func:`check_annotations`, and if there are no codes.
    """
    frame = check_annotations(annotations, codes=codes)
    if "code" not in frame.columns:
        raise InputError("annotations: there is no column 'code' to agree on; add the codes that annotators gave")
    # Numbers before words.
    names = sorted(frame["annotator"].unique(), key=lambda name: (isinstance(name, str), name))
    keys = [c for c in ("qid", "system") if c in frame.columns]
    rows = []
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            left, right = (frame[frame["annotator"] == name][[*keys, "code"]] for name in (one, other))
            both = left.merge(right, on=keys, suffixes=("_one", "_other"))
            found = cohens_kappa(both["code_one"].tolist(), both["code_other"].tolist(), level=level)
            agreed = float((both["code_one"] == both["code_other"]).mean()) if len(both) else float("nan")
            rows.append((one, other, found.estimate, found.low, found.high, agreed, len(both)))
    return pd.DataFrame(rows, columns=["one", "other", "kappa", "low", "high", "agreed", "n"])


@reads_frames
def rank_annotations(
    runs: Mapping[str, pd.DataFrame],
    labels: pd.DataFrame | Labeller,
    *,
    labelled_by: str,
    depth: int = 10,
    min_label: int = 1,
    repeats: str = "keep",
    queries: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """At which rank each system first answers each query: the annotation of Section 3.5.

    Args:
        runs: Mapping from each system to its result frame ``qid``, ``docno``, ``score``; with ``query`` and ``text`` if a
            labeller reads them.
        labels: ``qid``, ``docno``, ``label``; or a function that judges rows of ``qid``, ``query``, ``docno``, ``text`` and
            returns one label per row. It judges each pair that is among the first ``depth`` of any system once.
        labelled_by: Who labelled, a person or a model with its version; recorded in every row.
        depth: How many documents of each list are considered.
        min_label: The lowest label of an answer.
        repeats: ``'drop'`` removes from each list, before its first ``depth`` documents are taken, documents whose ``text``
            repeats an earlier one (Section 3.4 of the thesis), and a text gets the highest of its labels; ``'keep'`` uses lists
            as they are.
        queries: ``qid``, and ``query`` if the runs lack it; None for the queries of the runs. A query without results of a system
            counts as not answered by it.

    Returns:
        One row per system and query: ``system``, ``qid``, ``first_relevant_rank`` (-1 for nowhere), ``depth``, ``labelled`` (how
        many of its first documents have a label), ``annotator`` (``labelled_by``).

    Raises:
        InputError: For unusable runs, a depth below 1, labels that cover none of the considered documents, a labeller without a
            name, or one that returns a wrong number of labels.
    """
    if not isinstance(labelled_by, str) or not labelled_by.strip():
        raise InputError("rank_annotations: labelled_by must name who labelled; labels without an author are not comparable")
    if not runs:
        raise InputError("rank_annotations: there are no runs; give at least one")
    check_number("rank_annotations", "depth", depth, least=1, whole=True, hint="it is how many documents are looked at")
    tops, lists = {}, {}
    for name, run in runs.items():
        missing = [c for c in ("qid", "docno", "score") if c not in run.columns]
        if missing:
            raise InputError(
                f"rank_annotations: run {name!r} has no column {missing[0]!r}; it has {', '.join(map(str, run.columns))}"
            )
        check_pairs(run, f"run {name!r}")
        check_repeats(repeats, run.columns, "qna", f"run {name!r}")
        top = ranked(run, f"run {name!r}")
        if repeats == "drop":
            lists[name] = top[["qid", "docno"]], repeat_of(top)
            top = ranked(top[lists[name][1] == np.arange(len(top))], f"run {name!r}")
        tops[name] = top[top["rank"] < depth]
    asked = tops.values() if queries is None else [queries]
    qids = list(dict.fromkeys(qid for frame in asked for qid in frame["qid"]))
    judged = labels if isinstance(labels, pd.DataFrame) else _labelled(tops, labels, queries)
    judged = highest_grades(judged, "rank_annotations")
    seen = pd.concat([top[["qid", "docno"]] for top in tops.values()], ignore_index=True)
    if len(seen) and not len(seen.merge(judged, on=["qid", "docno"])):
        raise InputError(
            f"rank_annotations: none of the first {depth} documents of any system has a label (e.g. {seen['docno'].iloc[0]!r} is "
            f"returned for query {seen['qid'].iloc[0]!r}, {judged['docno'].iloc[0]!r} is labelled for "
            f"{judged['qid'].iloc[0]!r}); label these documents, or use the same ids in runs and labels"
            if len(judged)
            else "rank_annotations: there are no labels; label documents that the systems return"
        )
    rows = []
    for name, top in tops.items():
        own = judged_by_text(judged, *lists[name]).groupby(["qid", "docno"], as_index=False)["label"].max() if lists else judged
        found = top[["qid", "docno", "rank"]].merge(own, on=["qid", "docno"], how="left")
        by_qid = {qid: own.sort_values("rank")["label"].to_numpy(dtype=float) for qid, own in found.groupby("qid")}
        for qid in qids:
            grades = by_qid.get(qid, np.empty(0))
            rank = first_relevant(grades, min_label=min_label)
            known = int(np.isfinite(grades).sum())
            rows.append((name, qid, NOWHERE if rank == NEVER else int(rank), depth, known, labelled_by))
    columns = ["system", "qid", "first_relevant_rank", "depth", "labelled", "annotator"]
    return pd.DataFrame(rows, columns=columns)


def _labelled(tops: Mapping[str, pd.DataFrame], labeller: Labeller, queries: pd.DataFrame | None) -> pd.DataFrame:
    """Have a labeller judge each pair once, in an order that depends only on the pairs."""
    together = pd.concat(tops.values(), ignore_index=True)
    if queries is not None and "query" in queries.columns:
        asked = together["qid"].map(queries.drop_duplicates("qid").set_index("qid")["query"])
        together = together.assign(query=together["query"].fillna(asked) if "query" in together.columns else asked)
    missing = [column for column in ("query", "text") if column not in together.columns]
    if missing:
        raise InputError(
            f"rank_annotations: a labeller needs the column {missing[0]!r}, which the runs lack; add it with a text loader"
        )
    together = together.assign(query=together["query"].fillna(together.groupby("qid")["query"].transform("first")))
    # The first query and text of a pair that are not missing: not all runs have texts.
    pairs = together.groupby(["qid", "docno"], as_index=False)[["query", "text"]].first()[["qid", "query", "docno", "text"]]
    for column in ("query", "text"):
        check_text(pairs, column, "rank_annotations")
    found = list(labeller(pairs))
    if len(found) != len(pairs):
        raise InputError(
            f"rank_annotations: the labeller returned {len(found)} labels for {len(pairs)} pairs; it must return one per pair"
        )
    return pairs[["qid", "docno"]].assign(label=found)


@reads_frames
def answered_table(ranks: pd.DataFrame, *, level: float = 0.95) -> pd.DataFrame:
    """How many of the unanswered queries each system answers, as in the thesis' table of fifty queries.

    Args:
        ranks: The result of :func:`rank_annotations`, or annotations of ranks by hand with a column ``system``.
        level: Coverage of the intervals (Clopper and Pearson).

    Returns:
        One row per system and annotator: ``system``, ``labelled_by``, ``n``, ``answered``, ``share``, ``low``, ``high``,
        ``mean_rank`` (of answered queries) and ``mrr`` (unanswered queries count as 0).

    Raises:
        InputError: As for :func:`check_annotations`.

    Example:
        >>> ranks = pd.DataFrame({"system": "BM25", "qid": ["1", "2"], "first_relevant_rank": [2, -1], "annotator": "me"})
        >>> answered_table(ranks)[["system", "labelled_by", "n", "answered", "mrr"]].values.tolist()
        [['BM25', 'me', 2, 1, 0.25]]
    """
    frame = check_annotations(ranks.drop(columns="code", errors="ignore"))
    if "first_relevant_rank" not in frame.columns:
        raise InputError("answered_table: there is no column 'first_relevant_rank'")
    if "system" not in frame.columns:
        frame = frame.assign(system="")
    rows = []
    for (system, annotator), own in frame.groupby(["system", "annotator"], sort=False):
        rank = own["first_relevant_rank"].to_numpy()
        found = rank != NOWHERE
        share = binomial_interval(int(found.sum()), len(own), level=level)
        mean = float(rank[found].mean()) if found.any() else float("nan")
        mrr = float(np.where(found, 1 / np.where(found, rank, 1), 0.0).mean())
        rows.append((system, annotator, len(own), int(found.sum()), share.estimate, share.low, share.high, mean, mrr))
    columns = ["system", "labelled_by", "n", "answered", "share", "low", "high", "mean_rank", "mrr"]
    return pd.DataFrame(rows, columns=columns)


def plot_codes(annotations: pd.DataFrame, ax: Axes | None = None, *, codes: Mapping[int, str] = CODES) -> Axes:
    """Draw how often each code was given, with intervals (Figure 3.6).

    Args:
        annotations: ``qid``, ``code``, and ``annotator`` if there are several.
        ax: Matplotlib axes; None makes new ones.
        codes: Mapping from each code to its meaning in words.

    Returns:
        The axes.

    Raises:
        InputError: As for :func:`check_annotations`.
    """
    from pyterrier_debias.core import plots

    table = summary(annotations, codes=codes)
    axes = plots.new_axes() if ax is None else ax
    names = list(dict.fromkeys(table["annotator"]))
    with plots.style():
        for number, name in enumerate(names):
            own = table[table["annotator"] == name]
            place = np.arange(len(own)) + 0.8 * ((number + 0.5) / len(names) - 0.5)
            ends = np.clip([own["share"] - own["low"], own["high"] - own["share"]], 0, None)
            label = f"annotator {name}" if name else None
            axes.bar(place, own["share"], 0.8 / len(names), yerr=ends, color=plots.colour(number), label=label)
        axes.set_xticks(range(len(codes)), list(codes.values()))
        if any(names):
            axes.legend()
        plots.label_axes(axes, x="code", y="share of queries", n=annotations["qid"].nunique())
    return axes


def plot_ranks(ranks: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """Draw at which rank systems first answer the unanswered queries (Figure 3.7).

    Args:
        ranks: ``qid``, ``first_relevant_rank`` (-1 for nowhere), and ``system`` and ``annotator`` if there are several.
        ax: Matplotlib axes; None makes new ones.

    Returns:
        The axes.

    Raises:
        InputError: As for :func:`check_annotations`, and if there are none.
    """
    from pyterrier_debias.core import plots

    frame = check_annotations(ranks.drop(columns="code", errors="ignore"))
    if "first_relevant_rank" not in frame.columns or frame.empty:
        raise InputError("plot_ranks: there are no annotations of ranks (column 'first_relevant_rank') to draw")
    frame = frame if "system" in frame.columns else frame.assign(system="")
    last = max(int(frame["first_relevant_rank"].max()), 1)
    names = list(dict.fromkeys(zip(frame["system"], frame["annotator"])))
    several = frame["annotator"].nunique() > 1
    axes = plots.new_axes() if ax is None else ax
    with plots.style():
        for number, name in enumerate(names):
            system, annotator = name
            own = frame.loc[(frame["system"] == system) & (frame["annotator"] == annotator), "first_relevant_rank"]
            label = ", ".join(filter(None, [system, f"annotator {annotator}" if several else ""]))
            counts = [int((own == rank).sum()) for rank in [*range(1, last + 1), NOWHERE]]
            place = np.arange(len(counts)) + 0.8 * ((number + 0.5) / len(names) - 0.5)
            axes.bar(place, counts, 0.8 / len(names), color=plots.colour(number), label=plots.legend_label(label) or None)
        axes.set_xticks(range(last + 1), [*map(str, range(1, last + 1)), "nowhere"])
        if axes.get_legend_handles_labels()[1]:
            axes.legend()
        plots.label_axes(axes, x="first rank that answers", y="queries", n=frame["qid"].nunique())
    return axes
