"""Result frames: validation of values, ranks, identifiers.

PyTerrier's ``pt.validate`` checks that columns exist. The functions here check that their values can be used; if not, the error
names the stage, the column, the row and the remedy. Every stage validates its input first, so that nothing is loaded or computed
for input that cannot be processed.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.columns import tells_columns
from pyterrier_debias.core.errors import InputError, kind_of, shortened
from pyterrier_debias.core.text import digest, keyed_hash, mixed

P = ParamSpec("P")
R = TypeVar("R")

def stage_name(stage: Any, *_: Any) -> str:
    """The name of a stage in an error message: its class, or the text itself."""
    return stage if isinstance(stage, str) else type(stage).__name__


def with_string_ids(frame: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Normalise a frame: every stage and every function does this first with a frame that it is given.

    Identifiers become strings, so that frames join: 7, 7.0 (an integer that a merge turned into a float) and ``"7"`` are equal.
    Categorical, nullable and pyarrow-backed columns become plain ones, numeric text in ``score`` and ``rank`` becomes numbers,
    and column labels become text. An index with duplicates or levels, or with the name of a column, is replaced.

    Args:
        frame: Any frame; ``qid``, ``query_id``, ``docno``, ``doc_id``, ``score`` and ``rank`` are checked if they exist.
        stage: The calling stage, named in the message.

    Returns:
        The same frame if nothing needs to change, otherwise a copy.

    Raises:
        InputError: If the value is not a frame, if columns have levels or share a name, if an identifier is missing, is neither
            text nor a number, or holds NUL (where trec_eval ends a name) or half of a surrogate pair (which no file can hold),
            or if a score or rank is not a number.

    Example:
        >>> found = pd.DataFrame({"qid": [1.0, 2.0], "docno": pd.Categorical(["a", "b"]), "score": ["2.5", "1"]})
        >>> with_string_ids(found, "example").values.tolist()
        [['1', 'a', 2.5], ['2', 'b', 1.0]]
    """
    if not isinstance(frame, pd.DataFrame):
        raise InputError(f"{stage_name(stage)}: {no_frame(frame, 'qrels' if 'judgements' in stage_name(stage) else 'frame')}")
    frame = _plain_axes(frame, stage)
    changed = {}
    for name in frame.columns:
        column = frame[name]
        plain = _plain_column(column)
        if name in _IDS:
            plain = _texts(plain, stage)
        elif name in _NUMBERS:
            plain = numbers(plain, stage)
        if plain is not column:
            changed[name] = plain
    if changed:
        frame = frame.copy(deep=False)  # assign() takes no column that is called "self"
        for name, column in changed.items():
            frame[name] = column
    return frame


def reads_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function or method so that :func:`with_string_ids` first reads its frames.

    Args:
        function: Takes frames, or mappings of names to frames (runs).

    Returns:
        The wrapped function; errors name it (or its argument ``stage``, or the class of the method) and the parameter.

    Example:
        >>> @reads_frames
        ... def first(topics):
        ...     return topics["qid"][0]
        >>> first(pd.DataFrame({"qid": [1.0]}))
        '1'
        >>> first(pd.DataFrame({"qid": [None]}))
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: first, topics: column 'qid' has no value at row 0; drop such rows, or ...
    """
    signature = inspect.signature(function)
    kinds = ("pd.DataFrame", "pd.DataFrame | None")
    wanted = {name for name, parameter in signature.parameters.items() if parameter.annotation in kinds}

    def owner_of(*args: P.args, **kwargs: P.kwargs) -> str:
        given = signature.bind(*args, **kwargs).arguments
        return stage_name(given.get("self", given.get("stage", function.__name__)))

    told = tells_columns(function, owner_of)

    @wraps(function)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = signature.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises too, and its error names the function
        owner = owner_of(*args, **kwargs)
        for name, value in given.arguments.items():
            where = owner if name == "inp" else f"{owner}, {name}"
            if name in wanted and value is not None and not isinstance(value, pd.DataFrame):
                raise InputError(f"{where}: {no_frame(value, name)}")
            if isinstance(value, pd.DataFrame):
                given.arguments[name] = with_string_ids(value, where)
            elif isinstance(value, Mapping) and any(isinstance(one, pd.DataFrame) for one in value.values()):
                given.arguments[name] = {
                    key: with_string_ids(one, f"{where} {key!r}") if isinstance(one, pd.DataFrame) else one
                    for key, one in value.items()
                }
        return told(*given.args, **given.kwargs)

    return entered


def no_frame(value: Any, name: str) -> str:
    """Say what to do about a value that was given instead of a frame.

    Args:
        value: What was given.
        name: The name of the parameter: ``topics``, ``qrels``, or any other.

    Returns:
        The end of a message.

    Example:
        >>> no_frame("run.txt", "results")
        "needs a pandas DataFrame, not a str; read the file first, e.g. pt.io.read_results('run.txt')"
    """
    needs = f"needs a pandas DataFrame, not {kind_of(value)}"
    if isinstance(value, str) or hasattr(value, "__fspath__"):
        read = {"topics": "read_topics", "qrels": "read_qrels"}.get(name, "read_results")
        return f"{needs}; read the file first, e.g. pt.io.{read}({str(value)!r})"
    if isinstance(value, pt.Transformer):
        return f"{needs}; run the pipeline first: pipeline(topics)"
    if hasattr(value, "get_topics") and hasattr(value, "get_qrels"):
        return f"{needs}; give dataset.get_{'qrels' if name == 'qrels' else 'topics'}()"
    parts = list(value.values()) if isinstance(value, Mapping) else list(value) if isinstance(value, (list, tuple)) else []
    if parts and any(isinstance(part, (pd.DataFrame, pt.Transformer)) for part in parts):
        return f"{needs} of several systems; give the frame of one system, e.g. pipeline(topics)"
    if parts and all(isinstance(part, Mapping) for part in parts):
        return f"{needs}; make a frame: pd.DataFrame(rows)"
    if name == "qrels":
        return f"{needs}; give judgements with the columns qid, docno and label, e.g. dataset.get_qrels()"
    return f"{needs}; give a frame with a row for each query (topics) or each document of a list (results)"


#: Columns that identify a row.
_IDS = frozenset({"qid", "query_id", "docno", "doc_id"})
#: Columns that order rows.
_NUMBERS = frozenset({"score", "rank"})
_SURROGATE = re.compile(r"[\ud800-\udfff]")
#: Integers below it are floats without loss.
_EXACT = 2**53
#: Columns up to this length are looked at as lists.
_SHORT = 2_000


def _plain_axes(frame: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """The frame with text as column labels and an index that pandas does not mistake for a column."""
    if frame.columns.nlevels > 1:
        raise InputError(
            f"{stage_name(stage)}: the columns have {frame.columns.nlevels} levels (the first is {frame.columns[0]!r}); flatten "
            f"them, e.g. frame.columns = frame.columns.get_level_values(-1)"
        )
    if not all(isinstance(label, str) for label in frame.columns):
        frame = frame.set_axis([str(label) for label in frame.columns], axis=1)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(
            f"{stage_name(stage)}: column {twice!r} occurs more than once; rename or drop one of them, "
            f"e.g. frame.loc[:, ~frame.columns.duplicated()]"
        )
    index = frame.index
    if index.nlevels > 1 or (index.name is not None and str(index.name) in frame.columns) or not index.is_unique:
        return frame.reset_index(drop=True)
    return frame


def _plain_column(column: pd.Series) -> pd.Series:
    """A column without pandas' extension arrays, which treat missing values, sums and comparisons differently."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) or not (
        isinstance(dtype, (pd.CategoricalDtype, pd.ArrowDtype, pd.SparseDtype))
        or (isinstance(dtype, pd.StringDtype) and dtype.na_value is pd.NA)
        or isinstance(column.array, (pd.arrays.IntegerArray, pd.arrays.FloatingArray, pd.arrays.BooleanArray))
    ):
        return column
    values = column.astype(object)
    values = values.where(column.notna().to_numpy(dtype=bool), None)
    try:
        return pd.Series(values.tolist(), index=column.index, name=column.name, dtype=None if len(column) else object)
    except UnicodeEncodeError:  # half of a surrogate pair, which pyarrow does not take; see check_text
        return values


def _texts(column: pd.Series, stage: Any) -> pd.Series:
    """Identifiers as strings; the same column if they are strings already."""
    if len(column) == 0:
        return column if pd.api.types.is_string_dtype(column) else column.astype(str)
    # Far quicker than a list of a long column; of a short one the list is quicker.
    if len(column) > _SHORT and isinstance(column.dtype, pd.StringDtype) and column.dtype.storage == "pyarrow":
        if column.notna().all() and not column.str.contains("\0", regex=False).any():
            return column
    values = column.tolist()
    texts: list[str] = values
    if set(map(type, values)) != {str}:
        read = [_text(value) for value in values]
        texts = [text for text in read if text is not None]
        if len(texts) < len(read):
            bad = read.index(None)
            kind = "has no value" if _missing(values[bad]) else f"is {shortened(repr(values[bad]), 40)}, not an identifier,"
            raise InputError(
                f"{stage_name(stage)}: column {column.name!r} {kind} at row {bad}; drop such rows, or give text or whole numbers"
            )
    whole = "".join(texts)
    if "\0" in whole or (not whole.isascii() and _SURROGATE.search(whole)):
        bad = next(i for i, text in enumerate(texts) if "\0" in text or _SURROGATE.search(text))
        raise InputError(
            f"{stage_name(stage)}: column {column.name!r} holds NUL or half of a surrogate pair at row {bad} "
            f"({shortened(ascii(texts[bad]), 40)}); rename it in the run and in the judgements"
        )
    return column if texts is values else pd.Series(texts, index=column.index, name=column.name, dtype=str)


def _missing(value: Any) -> bool:
    """Whether a value is None, NaN, or one of pandas' missing values."""
    return bool(pd.api.types.is_scalar(value) and pd.isna(value))


def _text(value: Any) -> str | None:
    """An identifier as text; None if the value is not an identifier."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        return None
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    value = float(value)
    if not abs(value) < _EXACT:
        return None
    return str(int(value)) if value == int(value) else str(value)


def numbers(column: pd.Series, stage: Any) -> pd.Series:
    """A column as numbers.

    Args:
        column: Numbers, text that holds numbers, missing values.
        stage: The calling stage, named in the message.

    Returns:
        The same column if it holds integers or floats already, otherwise a new one, with NaN for missing values.

    Raises:
        InputError: For any other value.

    Example:
        >>> numbers(pd.Series(["1", None, 2.5], name="score"), "example").tolist()
        [1.0, nan, 2.5]
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf":
        return column
    values = column.tolist()
    read = [_number(value) for value in values]
    bad = next((i for i, number in enumerate(read) if number is None), None)
    if bad is not None:
        raise InputError(
            f"{stage_name(stage)}: column {column.name!r} is {shortened(repr(values[bad]), 40)}, not a number, at row {bad}; "
            f"give numbers, e.g. pd.to_numeric(frame[{column.name!r}], errors='coerce')"
        )
    made = pd.Series(read, index=column.index, name=column.name, dtype=None if read else "float64")
    return made if made.dtype.kind in "iuf" else made.astype("float64")  # integers beyond 64 bits


def _number(value: Any) -> int | float | None:
    """A number, NaN for a missing value; None if the value is not a number."""
    if isinstance(value, str):
        kinds: tuple[Callable[[Any], float], ...] = (int, float)
    elif _missing(value):
        return np.nan
    elif isinstance(value, (int, np.integer, np.bool_)):
        kinds = (int,)
    elif isinstance(value, (float, np.floating, Decimal)):
        kinds = (float,)
    else:
        return None
    for kind in kinds:
        try:
            number = kind(value)
            return number if abs(number) <= _LARGEST or number in (np.inf, -np.inf) else None  # NaN is neither
        except ValueError:
            continue
    return None


#: The largest number that a float can hold.
_LARGEST = int(np.finfo("float64").max)


def _row(frame: pd.DataFrame, position: int) -> str:
    """Describe one row: its position and its identifiers."""
    ids = ", ".join(f"{c}={frame[c].iloc[position]!r}" for c in ("qid", "docno") if c in frame.columns)
    return f"row {position}" + (f" ({ids})" if ids else "")


def check_text(frame: pd.DataFrame, column: str, stage: Any) -> None:
    """Check that every value of a text column is a string, possibly empty.

    Args:
        frame: The frame to look at.
        column: The column that holds text.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If a value is missing, is not a string, or holds half of a surrogate pair, which no tokeniser accepts.
    """
    values = frame[column].tolist()
    try:  # many rows may have one text
        distinct = set(values)
    except TypeError:
        distinct = set()
    if distinct and all(isinstance(value, str) and (value.isascii() or not _SURROGATE.search(value)) for value in distinct):
        return
    bad = next((i for i, value in enumerate(values) if not isinstance(value, str)), None)
    if bad is not None:
        kind = "has no value" if _missing(values[bad]) else f"is {kind_of(values[bad])}, not text,"
        source = "topics that all have a query" if column == "query" else "a text loader that covers every document"
        raise InputError(
            f"{stage_name(stage)}: column '{column}' {kind} at {_row(frame, bad)}; use {source}, or drop or fill such "
            f"rows before this stage"
        )
    broken = next((i for i, value in enumerate(values) if not value.isascii() and _SURROGATE.search(value)), None)
    if broken is not None:
        raise InputError(
            f"{stage_name(stage)}: column '{column}' holds half of a surrogate pair, which is not a character, at "
            f"{_row(frame, broken)}; replace it, e.g. text.encode('utf-8', 'replace').decode()"
        )


def check_names(frame: pd.DataFrame, columns: Iterable[str], stage: Any) -> None:
    """Check columns by which rows are sorted into groups, such as systems, data sets, annotators.

    A row without a name would be in no group and would be lost; a list or an array is not a name.

    Args:
        frame: The frame to look at.
        columns: The columns; those that the frame lacks are skipped.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If a value is missing, or is neither text, a number nor a truth value.

    Example:
        >>> check_names(pd.DataFrame({"name": ["BM25", 7]}), ["name"], "example")
        >>> check_names(pd.DataFrame({"qid": ["1"], "name": [None]}), ["name"], "example")
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: example: column 'name' has no value at row 0 (qid='1'); ...
    """
    for column in columns:
        values = frame[column].tolist() if column in frame.columns else []
        bad = next((i for i, value in enumerate(values) if _missing(value) or not isinstance(value, _NAMES)), None)
        if bad is not None:
            kind = "has no value" if _missing(values[bad]) else f"is {kind_of(values[bad])}, not a name,"
            raise InputError(
                f"{stage_name(stage)}: column {column!r} {kind} at {_row(frame, bad)}; name every row, or drop the column"
            )


#: What can be a name.
_NAMES = (str, bool, int, float, np.bool_, np.integer, np.floating)


def check_scores(frame: pd.DataFrame, stage: Any, column: str = "score") -> None:
    """Check that scores are numbers and not NaN, because NaN has no rank. Infinite scores are allowed.

    Args:
        frame: The frame to look at.
        stage: The stage that calls this or produced the scores, named in the message.
        column: The column that holds scores.

    Raises:
        InputError: If a score is NaN or not a number.
    """
    scores = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    bad = np.flatnonzero(np.isnan(scores))
    if len(bad):
        raise InputError(
            f"{stage_name(stage)}: column '{column}' is NaN or not a number in {len(bad)} of {len(frame)} rows, first at "
            f"{_row(frame, int(bad[0]))}; a document without a score has no rank: drop such rows or fix the stage before this one"
        )


#: The highest grade: trec_eval keeps a table that is as long as the highest one, and ends the process for very high ones.
HIGHEST = 1_000_000


def judgements(qrels: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Judgements as :func:`with_string_ids` reads them, checked for their three columns; labels are unchanged.

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in the message.

    Returns:
        The frame, with string ids.

    Raises:
        InputError: If a column is missing; see also :func:`with_string_ids`.
    """
    qrels = with_string_ids(qrels, f"{stage_name(stage)}, judgements")
    missing = [column for column in ("qid", "docno", "label") if column not in qrels.columns]
    if missing:
        raise InputError(
            f"{stage_name(stage)}: the judgements have no column {missing[0]!r}; they have {', '.join(qrels.columns) or 'none'}: "
            f"give dataset.get_qrels(), or rename the column, as in qrels.rename(columns={{'relevance': 'label'}})"
        )
    return qrels


def with_grades(qrels: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """:func:`judgements` with integer labels; a merge turns these into floats, a file into text.

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in the message.

    Returns:
        The same frame if labels are integers already, otherwise a copy with them converted.

    Raises:
        InputError: If a label is not a whole number up to 1,000,000; see also :func:`judgements`.

    Example:
        >>> qrels = pd.DataFrame({"qid": "q1", "docno": ["a", "b"], "label": ["1.0", "0"]})
        >>> with_grades(qrels, "example")["label"].tolist()
        [1, 0]
    """
    qrels = judgements(qrels, stage)
    if qrels["label"].dtype == np.int64 and not (qrels["label"] > HIGHEST).any():
        return qrels
    labels = pd.to_numeric(qrels["label"], errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    bad = np.flatnonzero(~(np.isfinite(labels) & (labels == np.round(labels)) & (np.abs(labels) <= HIGHEST)))
    if len(bad):
        raise InputError(
            f"{stage_name(stage)}: column 'label' is NaN or not a whole number up to {HIGHEST} in {len(bad)} of {len(qrels)} "
            f"judgements, first at {_row(qrels, int(bad[0]))}; leave out unjudged documents, and map words "
            f"and fractions to grades, e.g. qrels.assign(label=qrels['label'].map({{'relevant': 1, 'not relevant': 0}}))"
        )
    return qrels.assign(label=labels.astype("int64"))


def highest_grades(qrels: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Judgements with string ids and integer grades, one row per pair: the highest grade where there are several.

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in the message.

    Returns:
        A new frame ``qid``, ``docno``, ``label``, pairs in the order in which they first occur.

    Raises:
        InputError: See :func:`with_grades`.
    """
    judged = with_grades(qrels, stage)[["qid", "docno", "label"]]
    if not judged.duplicated(["qid", "docno"]).any():
        return judged.reset_index(drop=True)
    return judged.groupby(["qid", "docno"], as_index=False, sort=False)["label"].max()


def check_pairs(frame: pd.DataFrame, stage: Any) -> None:
    """Check that no document occurs twice in a query's list.

    Args:
        frame: A result frame with ``qid`` and ``docno``.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If a (qid, docno) pair occurs twice.
    """
    twice = np.flatnonzero(frame.duplicated(["qid", "docno"]).to_numpy())
    if len(twice):
        raise InputError(
            f"{stage_name(stage)}: {len(twice)} (qid, docno) pairs occur more than once, first at "
            f"{_row(frame, int(twice[0]))}; keep one row per pair, e.g. frame.drop_duplicates(['qid', 'docno'])"
        )


def check_overlap(frame: pd.DataFrame, qrels: pd.DataFrame, stage: Any) -> None:
    """Check that topics (or a run) and judgements share queries.

    Args:
        frame: A frame with ``qid``.
        qrels: Judgements with ``qid``.
        stage: The calling stage, named in the message.

    Raises:
        InputError: If no qid of the frame is judged.
    """
    ours, theirs = (set(with_string_ids(given[["qid"]], stage)["qid"]) for given in (frame, qrels))
    if not ours & theirs:
        raise InputError(
            f"{stage_name(stage)}: no qid is in both the topics or run (e.g. {_examples(ours)}) and the judgements "
            f"(e.g. {_examples(theirs)}); check that both belong to the same collection and split"
        )


def _examples(ids: set[str]) -> str:
    return ", ".join(repr(i) for i in sorted(ids)[:3]) or "none"


def ranked(frame: pd.DataFrame, stage: Any = "ranking") -> pd.DataFrame:
    """Rank a scored frame by its scores, and sort it by rank.

    Queries keep the order in which they first occur. Ties are broken by descending docno, as in trec_eval, so that
    measures that read the order of rows and measures that sort by score see the same ranking. (trec_eval keeps scores in single
    precision, so it treats scores that differ by less as ties. Here they keep their order, so that ranks agree with scores.)

    Args:
        frame: A result frame with ``qid``, ``docno`` and ``score``; an old ``rank`` is replaced.
        stage: The stage that produced the scores; named in the message.

    Returns:
        A new frame with ``rank`` (from 0), sorted by query and rank, index reset.

    Raises:
        InputError: If a score is NaN or a (qid, docno) pair occurs twice; see also :func:`with_string_ids`.
    """
    frame = with_string_ids(frame, stage).copy(deep=False)
    if "rank" in frame.columns:  # quicker than drop()
        del frame["rank"]
    if len(frame) == 0:
        return frame.assign(score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64"))
    check_scores(frame, stage)
    check_pairs(frame, stage)
    query = pd.factorize(frame["qid"])[0]
    score = frame["score"].to_numpy(dtype="float64")
    order = np.lexsort((-score, query))
    break_ties(order, (query[order[1:]] == query[order[:-1]]) & (score[order[1:]] == score[order[:-1]]), frame["docno"])
    starts = np.flatnonzero(np.diff(query[order], prepend=-1))
    lengths = np.diff(starts, append=len(order))
    ranks = np.arange(len(order)) - np.repeat(starts, lengths)
    if (order[1:] < order[:-1]).any():  # else it is sorted, and need not be copied
        frame = frame.iloc[order]
    return frame.assign(rank=ranks).reset_index(drop=True)


def break_ties(order: np.ndarray, tied: np.ndarray, docnos: pd.Series) -> None:
    """Sort tied rows by descending docno, in place.

    Args:
        order: The rows of a frame in an order, shape [n].
        tied: Whether each row of the order but the first is tied with the one before it, shape [n - 1].
        docnos: The frame's column.

    Example:
        >>> order = np.array([2, 0, 1])
        >>> break_ties(order, np.array([False, True]), pd.Series(["a", "b", "c"]))
        >>> order.tolist()
        [2, 1, 0]
    """
    if not tied.any():
        return
    # Sorting docnos is expensive, so only those that break ties are sorted.
    at = np.flatnonzero(np.r_[False, tied] | np.r_[tied, False])
    rows, run = order[at], np.cumsum(np.r_[True, ~tied])[at]
    by_docno = np.empty(len(rows), dtype=np.int64)
    by_docno[np.argsort(docnos.iloc[rows].to_numpy(dtype=object), kind="stable")] = np.arange(len(rows))
    order[at] = rows[np.lexsort((-by_docno, run))]


def with_ties_drawn(results: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Put the tied documents of each query in a random order.

    :func:`ranked` puts them in the same order for each query. A test over queries treats the queries as independent, so a ranker
    with many ties would seem to prefer whatever the documents with the last docnos have.

    Args:
        results: A result frame as from :func:`ranked`: ``qid``, ``docno``, ``score`` and ``rank``, sorted by query and rank.
        seed: The order depends on it, and on the qid and docno of each row.

    Returns:
        The same frame if there are no ties; otherwise a new one in the same form.

    Example:
        >>> run = pd.DataFrame({"qid": "q", "docno": ["d2", "d1", "d0"], "score": [2.0, 1.0, 1.0], "rank": range(3)})
        >>> [with_ties_drawn(run, seed)["docno"].tolist() for seed in (1, 3)]
        [['d2', 'd0', 'd1'], ['d2', 'd1', 'd0']]
    """
    if len(results) < 2:
        return results
    tied = tied_with_the_one_before(results)
    if not tied.any():
        return results
    at = np.flatnonzero(tied | np.r_[tied[1:], False])
    qids, docnos = (_hashes(results[name].iloc[at], seed) for name in ("qid", "docno"))
    draws = mixed(docnos ^ mixed(qids, 0), 0)
    order = np.arange(len(results))
    order[at] = at[np.lexsort((draws, np.cumsum(~tied)[at]))]
    return results.iloc[order].assign(rank=results["rank"].to_numpy()).reset_index(drop=True)


def _hashes(names: pd.Series, seed: int) -> np.ndarray:
    """The hash of each name, computed once for each distinct name."""
    codes, distinct = pd.factorize(names)
    return np.array([keyed_hash(seed, "ties", str(name)) for name in distinct], dtype=np.uint64)[codes]


def tied_with_the_one_before(results: pd.DataFrame) -> np.ndarray:
    """Whether a row has the query and score of the one before it.

    Args:
        results: A result frame sorted by query and rank.

    Returns:
        Shape [n], boolean.
    """
    score, qid = results["score"].to_numpy(), results["qid"].to_numpy(dtype=object)
    tied = np.zeros(len(results), dtype=bool)
    tied[1:] = score[1:] == score[:-1]
    at = np.flatnonzero(tied)
    tied[at] = qid[at] == qid[at - 1]
    return tied


#: About how many rows are handled at a time where frames are large.
ROWS = 100_000


def in_parts(frame: pd.DataFrame, queries: int | None = None) -> Iterator[pd.DataFrame]:
    """Cut a frame into parts of whole queries, in the order in which queries first occur.

    Args:
        frame: A frame with ``qid``.
        queries: How many queries a part has; None for as many as have about 100,000 rows.

    Yields:
        The parts, with their index reset; the frame itself if there is only one part.

    Example:
        >>> [len(part) for part in in_parts(pd.DataFrame({"qid": list("aabbc")}), 2)]
        [4, 1]
    """
    for (part,) in parts_together(frame, queries=queries):
        yield part


def parts_together(first: pd.DataFrame, *others: pd.DataFrame, queries: int | None = None) -> Iterator[list[pd.DataFrame]]:
    """Cut frames into the same parts of whole queries, in the order of queries in the first frame.

    Args:
        first: A frame with ``qid``.
        others: Further frames; rows of queries that the first frame lacks are left out.
        queries: How many queries a part has; None for as many as have about 100,000 rows in all frames.

    Yields:
        The parts of one set of queries, with their index reset; a single frame that needs no cut is unchanged.

    Example:
        >>> judged, run = pd.DataFrame({"qid": ["1"]}), pd.DataFrame({"qid": ["0", "1", "1"], "docno": list("abc")})
        >>> [[len(part) for part in parts] for parts in parts_together(judged, run)]
        [[1, 2]]
    """
    query, names = pd.factorize(first["qid"], use_na_sentinel=False)
    if queries is None:
        queries = max(1, len(names) * ROWS // max(sum(map(len, (first, *others))), 1))
    count, cut = max(1, -(-len(names) // queries)), []
    if count == 1 and not others:
        yield [first]
        return
    for frame, place in [(first, query), *((other, _places(other["qid"], names)) for other in others)]:
        part = np.where(place < 0, count, place // queries)
        if (np.diff(part) < 0).any():
            order = np.argsort(part, kind="stable")
            frame, part = frame.iloc[order], part[order]
        cut.append((frame, np.searchsorted(part, np.arange(count + 1))))
    del query, place, part  # as long as the frames, and no longer needed
    for number in range(count):
        yield [frame.iloc[ends[number] : ends[number + 1]].reset_index(drop=True) for frame, ends in cut]


class QueryRows:
    """Where the rows of each query are, in a frame that has the rows of a query together.

    Args:
        qids: The frame's column ``qid``.

    Example:
        >>> places = QueryRows(pd.Series(["q2", "q2", "q1"]))
        >>> places.longest, [found.tolist() for found in places.of(["q1", "q2", "q3"], 1)]
        (2, [[2, 0], [0, 0]])
    """

    def __init__(self, qids: pd.Series):
        codes, names = pd.factorize(qids)
        self._number = {qid: number for number, qid in enumerate(names)}
        self._ends = np.append(0, np.cumsum(np.bincount(codes, minlength=len(names))))

    @classmethod
    def joined(cls, parts: Iterable[QueryRows]) -> QueryRows:
        """The same for frames that follow each other, each with other queries.

        Args:
            parts: Those of the frames.
        """
        found, sizes = cls(pd.Series(dtype=object)), [np.zeros(1, dtype=np.int64)]
        for part in parts:
            found._number |= {qid: len(found._number) + number for qid, number in part._number.items()}
            sizes.append(np.diff(part._ends))
        found._ends = np.cumsum(np.concatenate(sizes))
        return found

    @property
    def longest(self) -> int:
        """The largest number of rows of a query."""
        return int(np.diff(self._ends).max(initial=0))

    def of(self, qids: Iterable[str] | None = None, depth: int | None = None) -> tuple[np.ndarray, np.ndarray]:
        """The rows of some queries.

        Args:
            qids: Distinct queries, in the order of their rows; those without rows are passed over. None for all queries.
            depth: How many rows of each query, from its first; None for all.

        Returns:
            The position of each row in the frame, and its position among the rows of its query.
        """
        number = self._number
        own = np.arange(len(number)) if qids is None else np.array([number[qid] for qid in qids if qid in number], dtype=np.int64)
        starts, sizes = self._ends[own], self._ends[own + 1] - self._ends[own]
        sizes = sizes if depth is None else np.minimum(sizes, depth)
        places = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return np.repeat(starts, sizes) + places, places


def _places(qids: pd.Series, names: Any) -> np.ndarray:
    """The position of each qid among distinct names; -1 for one that is not among them."""
    codes, own = pd.factorize(qids, use_na_sentinel=False)
    return pd.Index(names).get_indexer(own)[codes]


def pair_numbers(*frames: pd.DataFrame) -> list[np.ndarray]:
    """Number the pairs of query and document in frames: equal pairs have the same number in all frames.

    Args:
        frames: Frames with ``qid`` and ``docno``.

    Returns:
        int64, one array per frame.

    Example:
        >>> first, second = pd.DataFrame({"qid": ["1", "1"], "docno": ["a", "b"]}), pd.DataFrame({"qid": ["1"], "docno": ["b"]})
        >>> one, other = pair_numbers(first, second)
        >>> (one == other).tolist()
        [False, True]
    """
    whole: list[np.ndarray] = []
    for name in ("qid", "docno"):
        columns = [frame[name] for frame in frames]
        alike = len({column.dtype for column in columns}) == 1
        codes, names = pd.factorize(pd.concat(columns if alike else [column.astype(object) for column in columns]))
        whole.append(codes.astype(np.int64))
    pairs = whole[0] * (len(names) + 1) + whole[1]
    return np.split(pairs, np.cumsum([len(frame) for frame in frames])[:-1])


def first_rows(codes: np.ndarray, n: int) -> np.ndarray:
    """The first row of each of n codes, as :func:`pandas.factorize` returns them; without sorting, which would be slow.

    Args:
        codes: Shape [rows], each from 0 to n - 1 at least once.
        n: How many codes there are.

    Returns:
        Shape [n].

    Example:
        >>> first_rows(np.array([0, 1, 0, 2]), 3).tolist()
        [0, 1, 3]
    """
    first = np.empty(n, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    return first


def top_of_lists(lists: pd.DataFrame, depth: int, also: np.ndarray | None = None) -> pd.DataFrame:
    """The rows of ranked lists that a measure with a cut-off needs: the first ones, and the last, which shows the length.

    Args:
        lists: Any frame with ``rank``, list by list, sorted by it.
        depth: How many documents of each list are kept.
        also: Further rows to keep, shape [n].

    Returns:
        Those rows, with their index reset.

    Example:
        >>> top_of_lists(pd.DataFrame({"rank": [0, 1, 2, 0, 1]}), 1)["rank"].tolist()
        [0, 2, 0, 1]
    """
    rank = lists["rank"].to_numpy()
    keep = (rank < depth) | np.append(rank[1:] <= rank[:-1], True)[: len(rank)]
    return lists[keep if also is None else keep | also].reset_index(drop=True)


def first_candidates(candidates: pd.DataFrame, depth: int | None, stage: Any) -> pd.DataFrame:
    """The first candidates of each query, which a ranker gets: by score, else by rank, else in the given order.

    Args:
        candidates: Frame with ``qid`` and ``docno``; ``score`` is used if no row lacks it, else ``rank`` if the column exists.
        depth: How many per query; None for all.
        stage: The calling stage, named in messages.

    Returns:
        The rows, query by query; ranked anew if scores are used.

    Raises:
        InputError: See :func:`ranked`.

    Example:
        >>> found = pd.DataFrame({"qid": ["1", "2", "1", "1"], "docno": ["d1", "d1", "d2", "d3"], "rank": [1, 0, 2, 0]})
        >>> first_candidates(found, 2, "example")[["qid", "docno"]].values.tolist()
        [['1', 'd3'], ['1', 'd1'], ['2', 'd1']]
    """
    candidates = with_string_ids(candidates, stage)
    if "score" in candidates and candidates["score"].notna().all():
        candidates = ranked(candidates, stage)
    else:
        query = pd.factorize(candidates["qid"])[0]
        by = [candidates["rank"].to_numpy(), query] if "rank" in candidates else [query]
        candidates = candidates.iloc[np.lexsort(by)].reset_index(drop=True)
    if depth is None:
        return candidates
    return candidates[candidates.groupby("qid").cumcount() < depth].reset_index(drop=True)


def shared_texts(texts: Any, rows: np.ndarray, index: pd.Index) -> pd.Series:
    """A column of texts in which rows with the same text share one object.

    A column of pandas' type ``str`` holds a copy for each row: several gigabytes where a thousand documents are retrieved for
    each of thousands of queries.

    Args:
        texts: A sequence of distinct texts.
        rows: Shape [n], the position of each row's text.
        index: The index of the column.

    Returns:
        The column, of type ``object``.

    Example:
        >>> shared_texts(["tea", "a leaf"], np.array([1, 0, 1]), pd.RangeIndex(3)).tolist()
        ['a leaf', 'tea', 'a leaf']
    """
    own = np.empty(len(texts), dtype=object)
    for number, text in enumerate(texts):
        own[number] = text
    return pd.Series(own[rows], index=index, dtype=object)


def with_query(topics: pd.DataFrame) -> pd.DataFrame:
    """Topics with a column ``query``: PyTerrier calls it ``text`` in the topics of some datasets of ``ir_datasets``.

    Args:
        topics: Topics.

    Returns:
        The same frame if it has ``query``, or has no ``text``; else a copy.

    Example:
        >>> with_query(pd.DataFrame({"qid": ["1"], "text": ["tea"], "url": ["x"]})).columns.tolist()
        ['qid', 'query', 'url']
    """
    if "query" in topics.columns or "text" not in topics.columns or "docno" in topics.columns:
        return topics
    return topics.rename(columns={"text": "query"})


def _listed(value: Any) -> list[Any]:
    """A list, or a list of a single value; an empty list for a missing value."""
    return list(value) if pd.api.types.is_list_like(value) else [] if _missing(value) else [value]


def with_listed_answers(frame: pd.DataFrame, column: str, stage: Any) -> pd.DataFrame:
    """Turn answers into lists of texts; a mapping holds them with their positions, as in SQuAD on Hugging Face's hub.

    Args:
        frame: A frame with the column.
        column: The column: texts, lists of texts, or mappings of ``text`` to such a list and, optionally, of ``answer_start`` to
            the characters at which they begin.
        stage: The calling stage, named in the message.

    Returns:
        The same frame if it holds no mapping. Else a copy with lists, and with ``start`` unless it has one: lists of equal
        length, with -1 for an unknown position.

    Raises:
        InputError: For any other mapping, which would be read as a list of its keys.

    Example:
        >>> held = {"text": ["Paris", "in Paris"], "answer_start": [15, 12]}
        >>> with_listed_answers(pd.DataFrame({"docno": ["d1"], "answers": [held]}), "answers", "example").values.tolist()
        [['d1', ['Paris', 'in Paris'], [15, 12]]]
    """
    values = frame[column].tolist()
    if not any(isinstance(value, Mapping) for value in values):
        return frame
    lists: list[list[Any]] = []
    places: list[list[Any]] = []
    for row, value in enumerate(values):
        held = value if isinstance(value, Mapping) else {"text": _listed(value)}
        own: Any = held.get("text")
        begin: Any = held.get("answer_start", [-1] * np.size(own))
        if not all(isinstance(part, (list, tuple, np.ndarray)) for part in (own, begin)) or len(own) != len(begin):
            raise InputError(
                f"{stage_name(stage)}: column {column!r} holds a mapping of {', '.join(map(repr, held)) or 'nothing'} at "
                f"{_row(frame, row)}; give a list of texts, or a mapping of 'text' and 'answer_start' to lists of equal length"
            )
        lists.append(list(own))
        places.append(list(begin))
    frame = frame.assign(**{column: pd.Series(lists, index=frame.index, dtype=object)})
    return frame if "start" in frame.columns else frame.assign(start=pd.Series(places, index=frame.index, dtype=object))


def frame_digest(table: pd.DataFrame | pd.Series | np.ndarray) -> str:
    """Hash content: of a frame whatever the order of its rows and columns, of a series or an array in its order.

    Args:
        table: Any frame, series or array.

    Returns:
        32 hexadecimal digits.

    Example:
        >>> frame = pd.DataFrame({"qid": ["1", "2"], "label": [0, 1]})
        >>> frame_digest(frame) == frame_digest(frame.iloc[::-1]) != frame_digest(frame.assign(label=1))
        True
    """
    if isinstance(table, pd.Series):
        return digest([repr((table.name, table.index.tolist(), _whole(table.tolist())))])
    if isinstance(table, np.ndarray):
        content = repr(_whole(table.tolist())) if table.dtype.hasobject else table.tobytes().hex()
        return digest([f"{table.shape} {table.dtype}", content])
    frame = table.rename(columns=str)
    columns = sorted(frame.columns)
    rows = zip(*(map(str, _whole(frame[c].tolist())) for c in columns))
    return digest([*columns, *sorted(map(digest, rows))])


def _whole(value: Any) -> Any:
    """A value whose ``repr`` shows everything: the ``repr`` of an array omits digits, and the middle of long arrays."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, _whole(value.tolist()) if value.dtype.hasobject else value.tobytes().hex())
    return type(value)(map(_whole, value)) if type(value) in (list, tuple) else value
