"""Errors for missing columns: which stage lacks which column, and what to put before the stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import pyterrier as pt

from pyterrier_debias.core.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")

#: What brings a column, the first columns of a pipeline first.
_BRING = {
    "qid": "name each query in a column 'qid', e.g. frame.rename(columns={'query_id': 'qid'})",
    "query": "keep queries in a column 'query', e.g. topics.rename(columns={'title': 'query'}) or run.merge(topics, on='qid')",
    "docno": "put a retriever before it (retriever >> ...), or name each document in a column 'docno'",
    "text": "put a text loader before it: retriever >> dataset.text_loader() >> ... (or pt.text.get_text(dataset, 'text'))",
    "score": "put a retriever or a ranker before it",
    "rank": "rank the scores before it: pt.model.add_ranks(frame)",
    "label": "give judgements (dataset.get_qrels()), whose grades are in a column 'label'",
    "gender": "put QueryGender() before it",
    "complexity": "put LinguisticComplexity() before it",
    "answer": "give answers: dataset.get_answers()",
}


class MissingColumnError(pt.validate.InputValidationError, InputError):
    """Raised by a stage whose input lacks a column. It is a subclass of PyTerrier's error, so that pipelines can be inspected."""

    def __str__(self) -> str:
        """The message only."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        """The state for a pickle: ``args`` holds only the message, which is not enough to create the error again."""
        return type(self), (self.args[0], self.modes)


def remedy(missing: Iterable[str], texts: Sequence[str] = ("text",)) -> str:
    """What to do about missing columns.

    Args:
        missing: The columns.
        texts: The columns that hold documents' texts.

    Returns:
        One sentence without its full stop; for unknown columns it says that a stage must add them.

    Example:
        >>> remedy(["title"], ["title"])
        "put a text loader before it: retriever >> dataset.text_loader(['title']) >> ..."
        >>> remedy(["feature"])
        "put a stage before it that adds 'feature'"
    """
    missing = list(missing)
    parts = [_BRING[column] for column in _BRING if column in missing]
    others = [column for column in missing if column not in _BRING]
    loaded = [column for column in others if column in texts]
    if loaded:
        parts.append(f"put a text loader before it: retriever >> dataset.text_loader({loaded!r}) >> ...")
    rest = [column for column in others if column not in loaded]
    if rest:
        parts.append(f"put a stage before it that adds {', '.join(map(repr, rest))}")
    return "; ".join(parts)


def in_words(error: pt.validate.InputValidationError, stage: Any, name: str) -> MissingColumnError | None:
    """An error of PyTerrier's validation, with a message for users.

    Args:
        error: The error.
        stage: The stage.
        name: The stage's name in messages.

    Returns:
        The same error with the stage, the column and the remedy; None if another stage raised it, or no column is missing.
    """
    if isinstance(error, MissingColumnError) or f"in transformer {stage}" not in str(error.args[0]):
        return None
    # Of several ways to use a stage, the one that lacks least, and then what can be brought.
    missing = min((mode.missing_columns for mode in error.modes), key=lambda columns: (len(columns), not {*columns} <= {*_BRING}))
    if not missing:
        return None
    texts = [one for one in _text_columns(stage) if isinstance(one, str)]
    wanted = ", ".join(map(repr, missing))
    there = str(error.args[0]).partition("columns=[")[2].partition("]")[0].replace("'", "")
    has = f" (its input has {there})" if there else ""
    return MissingColumnError(f"{name} needs {wanted}{has}; {remedy(missing, texts)}", error.modes)


def tells_columns(function: Callable[P, R], name: Callable[..., str]) -> Callable[P, R]:
    """Make a function or method say in its error which column is missing.

    Args:
        function: A function that validates its input with ``pt.validate``.
        name: A function from the arguments to the name in messages.

    Returns:
        The same function, which now raises :class:`MissingColumnError`.
    """

    @wraps(function)
    def told(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except pt.validate.InputValidationError as error:
            owner = name(*args, **kwargs)
            # What is not made yet has no text of its own: a constructor's errors name the class.
            stage = args[0] if args and function.__name__ != "__init__" else owner
            found = in_words(error, stage, owner) or in_words(error, owner, owner)
            if found is None:
                raise
            raise found from None

    return told


def _text_columns(stage: Any) -> list[Any]:
    fields = getattr(stage, "fields", None)
    return [getattr(stage, "text_field", "text"), *([fields] if isinstance(fields, str) else fields or [])]
