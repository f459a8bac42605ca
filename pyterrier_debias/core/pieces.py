"""Stages declare into which pieces a frame may be cut, and refuse batches of Ray Data that may cut what they need whole."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import uuid4

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import stage_name

P = ParamSpec("P")
R = TypeVar("R")

#: Rows alone; rows alone but for their ranks; whole queries; nothing.
PIECES = ("rows", "scores", "queries", "frame")

#: Whether the caller has said that no query is cut, or that it does not matter.
_WHOLE: ContextVar[bool] = ContextVar("whole queries", default=False)

#: Stages that this process has got from Ray Data before, so that a ranker's weights are loaded once and not for each task.
_GOT: dict[str, pt.Transformer] = {}
_KEPT = 4


@contextmanager
def no_query_is_cut() -> Iterator[None]:
    """Let stages that need whole queries accept batches of Ray Data: no query is cut, or only the scores of rows are used."""
    token = _WHOLE.set(True)
    try:
        yield
    finally:
        _WHOLE.reset(token)


class _ByQuery:
    """A stage as a function that Ray takes, with a name."""

    def __init__(self, stage: pt.Transformer):
        self.stage = stage
        self.__name__ = f"by_query({stage_name(stage)})"
        self._key = uuid4().hex
        #: What the stage was when it was last pickled, and so what processes have by the key.
        self._sent: list[Any] | None = None

    def __call__(self, frame: pd.DataFrame) -> pd.DataFrame:
        stage = _GOT.setdefault(self._key, self.stage)
        while len(_GOT) > _KEPT:
            del _GOT[next(iter(_GOT))]
        with no_query_is_cut():
            return stage(frame)

    def __getstate__(self) -> dict[str, Any]:
        """Options and key; the key is a new one where the stage has changed since the last time, as by training."""
        from pyterrier_debias.core.stage import identities, same_value  # it imports this module

        now = identities(self.stage)
        if self._sent is not None and not same_value(self._sent, now):
            self._key = uuid4().hex
        self._sent = now
        return {**self.__dict__, "_sent": None}


def by_query(stage: pt.Transformer) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """A stage or pipeline as a function of all rows of one or more queries, for ``map_groups`` of Ray Data.

    If a dataset is known to keep queries whole, the function also works with ``map_batches``.

    Args:
        stage: A stage that needs whole queries but not the whole frame: a ranker, an evaluator of rankings, or a pipeline of
            these.

    Returns:
        The function, to be called with ``batch_format='pandas'``. A process loads the weights of a ranker once, and again after
        training. A ranker of another package is kept as it was first sent: call this function again after you change it.

    Raises:
        InputError: If the stage needs the whole frame.

    Example:
        >>> from pyterrier_debias import ARaBEvaluator, Disparity
        >>> by_query(ARaBEvaluator()).__name__
        'by_query(ARaBEvaluator)'
        >>> by_query(Disparity())
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: by_query: Disparity needs the whole frame; collect it first, ...

        With Ray: ``results.groupby('qid').map_groups(by_query(ranker), batch_format='pandas')``.

    When not to use it: for stages that treat each row separately; ``dataset.map_batches(stage, batch_format='pandas')`` is
    enough for these, without the shuffle that brings queries together.
    """
    if getattr(stage, "pieces", None) == "frame":
        raise InputError(f"by_query: {stage_name(stage)} needs the whole frame; collect it first, e.g. dataset.to_pandas()")
    return _ByQuery(stage)


def refuses_pieces(transform: Callable[P, R]) -> Callable[P, R]:
    """Make a stage's ``transform`` refuse batches of Ray Data that may cut what the stage needs whole.

    Args:
        transform: The method.

    Returns:
        The same method, which now raises an :class:`InputError` inside ``map_batches`` of Ray Data if the stage's ``pieces`` are
        not rows, and inside ``map_groups`` if the stage needs the whole frame.
    """

    @wraps(transform)
    def entered(*args: P.args, **kwargs: P.kwargs) -> R:
        if "ray.data" in sys.modules:
            _check(args[0])
        return transform(*args, **kwargs)

    return entered


def _check(stage: Any) -> None:
    if stage.pieces == "rows" or (_WHOLE.get() and stage.pieces != "frame"):
        return
    callers = set(_callers())
    if "ray.data" not in callers:
        return
    name = stage_name(stage)
    if stage.pieces == "frame":
        raise InputError(
            f"{name}: Ray Data gives a piece of the frame, and {name} needs all of it; collect it first, e.g. dataset.to_pandas()"
        )
    if "ray.data.grouped_data" not in callers:
        raise InputError(
            f"{name}: Ray Data gives a piece of the frame, which may hold some rows of a query, and {name} needs all of them; "
            f"use dataset.groupby('qid').map_groups(by_query(stage), batch_format='pandas'), with by_query of "
            f"pyterrier_debias.core.pieces"
        )


def _callers() -> Iterator[str]:
    """Modules of Ray Data that the call comes from: ``ray.data`` for any of them, and the one of groups."""
    frame = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("ray.data."):
            yield "ray.data"
            yield module
        frame = frame.f_back  # type: ignore[assignment]  # None ends it
