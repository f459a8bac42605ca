"""Caches that are keyed by docno, after stages that change the texts of documents.

``ScorerCache`` of pyterrier_caching stores scores by query and docno. A stage that changes a text keeps its docno, because labels
are joined on it, so such a cache after it would return the scores of the unchanged text. Two checks prevent this: pipelines are
searched when they are built or split, and changed rows carry a mark (:data:`VARIANT`) that the caches of pyterrier_caching are
made to check. A mark in ``DataFrame.attrs`` is lost when frames of different origin are merged; a column is not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import wraps
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.text import digest

#: The column that names a changed text: the docno, and a hash of the text. A cache that has it in its key is safe.
VARIANT = "text_variant"

#: The classes of pyterrier_caching that look documents up.
_DENSE = "Hdf5ScorerCache"
_GUARDED = ("Sqlite3ScorerCache", _DENSE, "Sqlite3KeyValueCache")
_GUARD = "_pyterrier_debias_guard"

#: The names under which a changed query is looked up; every other changed text is looked up by docno.
_NAMES_OF = {"query": "qid"}


def marked(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Mark the rows of a result frame as having a changed text, so that no cache mistakes them for the originals.

    If you write a stage that changes texts, call this at the end of its ``transform``, and name the column in
    :meth:`Stage.changes`.

    Args:
        frame: The frame with the new texts; a frame without ``qid`` (documents to be indexed) is not marked.
        column: The column that was changed.

    Returns:
        A copy with :data:`VARIANT`; the same frame if there is no ``qid`` or no ``docno``.

    Example:
        >>> changed = pd.DataFrame({"qid": ["1"], "docno": ["d7"], "text": ["the end of it"]})
        >>> marked(changed, "text")["text_variant"].tolist()
        ['d7%t810ae5df0807']
    """
    guard_caches()
    if not {"qid", "docno", column} <= set(frame.columns):
        return frame
    marks = frame[VARIANT].tolist() if VARIANT in frame.columns else [""] * len(frame)
    before = [mark if isinstance(mark, str) else "" for mark in marks]  # missing where frames with and without it were joined
    names = [*map(variant_name, frame["docno"].tolist(), frame[column].tolist(), before)]
    return frame.assign(**{VARIANT: pd.Series(names, index=frame.index, dtype=str)})


def variant_name(docno: Any, text: str, before: str = "") -> str:
    """The name of a changed text, for a stage that changes a stream of dictionaries.

    Args:
        docno: The document's own name.
        text: The new text.
        before: Its earlier name, if it has been changed before.

    Returns:
        The value of :data:`VARIANT`.
    """
    return f"{docno}%t{digest([before, text])[:12]}"


def key_of(stage: Any) -> frozenset[str] | None:
    """The columns that form the key of a cache.

    Args:
        stage: Any stage: one of pyterrier_caching, or another one with ``cache`` in its name around a pipeline.

    Returns:
        The columns; None if it is not a cache of results. A cache that does not say is assumed to use query and docno.

    Example:
        >>> key_of(pt.Transformer.identity()) is None
        True
    """
    kind = type(stage)
    theirs = kind.__module__.partition(".")[0] == "pyterrier_caching"
    if not isinstance(stage, pt.Transformer) or isinstance(stage, pt.Indexer):
        return None
    if not theirs and not ("cache" in kind.__name__.lower() and _parts(stage)):
        return None
    if hasattr(stage, "retriever") and hasattr(stage, "on"):
        return frozenset({"query", VARIANT} if stage.on is None else _names(stage.on))
    named = [getattr(stage, option, None) for option in ("group", "key")]
    named = [columns for columns in named if isinstance(columns, (str, list, tuple))]
    return frozenset().union(*map(_names, named)) if named else frozenset({"query", "docno"})


def is_dense(stage: Any) -> bool:
    """Whether a stage is a cache of pyterrier_caching with room only for the docnos that it was built with.

    Args:
        stage: Any stage.

    Returns:
        True for ``DenseScorerCache``, and for the scorer that it makes.
    """
    return type(stage).__module__.partition(".")[0] == "pyterrier_caching" and type(stage).__name__.startswith(_DENSE)


def _parts(stage: pt.Transformer) -> list[pt.Transformer]:
    """The pipelines that a stage holds; PyTerrier's own inspection leaves out those that are artifacts, as caches are."""
    held = [value if isinstance(value, (list, tuple)) else [value] for value in vars(stage).values()]
    return [part for values in held for part in values if isinstance(part, pt.Transformer)]


def _names(columns: Any) -> set[str]:
    return {columns} if isinstance(columns, str) else set(columns)


def check_caches(pipeline: pt.Transformer, changed: Iterable[str] = (), by: Any = None) -> None:
    """Refuse a pipeline with a cache that identifies documents or queries by name, after a stage that changes their texts.

    Args:
        pipeline: A pipeline; the pipelines that its stages call are checked too.
        changed: Columns that the caller has changed before.
        by: The caller.

    Raises:
        InputError: If there is such a cache; the message names the stage, the cache and the remedy.
    """
    _walk(flatten(pipeline), dict.fromkeys(changed, by))


def _walk(stages: Iterable[pt.Transformer], changed: dict[str, Any], within: tuple[int, ...] = ()) -> dict[str, Any]:
    """Which columns are changed behind stages that lie in others (by their ids), and by which stage."""
    for stage in stages:
        if id(stage) in within:  # it holds itself
            continue
        key = key_of(stage)
        if key is not None:
            for column, by in changed.items():
                if _stale(key, column):
                    raise InputError(_refusal(type(stage).__name__, key, column, type(by).__name__))
        own = dict.fromkeys(stage.changes_within(), stage) if isinstance(stage, Stage) else {}
        inside = [_walk(flatten(part), {**changed, **own}, (*within, id(stage))) for part in _parts(stage)]
        if type(stage).__module__ == pt.RankCutoff.__module__:  # operators give on what their sides made
            changed = {column: by for found in (changed, *inside) for column, by in found.items()}
        changes = getattr(stage, "changes", None)
        if callable(changes) and type(stage).__module__.partition(".")[0] != "pyterrier":
            changed = {**changed, **dict.fromkeys(changes(), stage)}
        elif type(stage).__name__ == "ResetQuery":
            changed = {column: by for column, by in changed.items() if column != "query"}
    return changed


def _stale(key: frozenset[str], column: str) -> bool:
    """Whether a key holds the name of what was changed, and nothing that was changed with it."""
    return _NAMES_OF.get(column, "docno") in key and not key & {column, VARIANT if column != "query" else column}


def _refusal(cache: str, key: Iterable[str], column: str, by: str) -> str:
    names = " and ".join(sorted(key, reverse=True))
    if column == "query":
        remedy = "give the cache a key with the query (group='query')"
    else:
        remedy = f"use ScorerCache(path, ranker, key={VARIANT!r}) in a folder of its own ({by} adds that column)"
    return (
        f"{cache} behind {by} would return the scores of the unchanged {column}: its key is {names}, which {by} does not change; "
        f"{remedy}, put the cache before {by}, or leave it out"
    )


def guard_caches() -> None:
    """Make the caches of pyterrier_caching refuse marked rows, if that package is loaded, because pipelines that begin with
    stages of other packages cannot be checked when they are built."""
    module = sys.modules.get("pyterrier_caching")
    for name in _GUARDED:
        kind = getattr(module, name, None)
        if isinstance(kind, type) and _GUARD not in vars(kind):
            setattr(kind, _GUARD, True)
            kind.transform = _guarded(kind.transform)  # type: ignore[attr-defined]


def _guarded(transform: Any) -> Any:
    @wraps(transform)
    def looked_at(self: Any, inp: pd.DataFrame) -> pd.DataFrame:
        key = key_of(self)
        if key is not None and VARIANT in inp.columns and _stale(key, "text"):
            raise InputError(_refusal(type(self).__name__, key, "text", "a stage that changes texts"))
        return transform(self, inp)

    return looked_at
