"""Messages that would repeat within a run, such as truncated texts: logged once, at the end, with total counts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Logger and message to the sums of its counts and to how many calls told them, while a run lasts.
_Sums = dict[tuple[logging.Logger, str], tuple[list[int], int]]
_GATHERED: ContextVar[_Sums | None] = ContextVar("gathered", default=None)


@contextmanager
def gathered() -> Iterator[None]:
    """Sum the warnings of :func:`warn_of` inside this block, and log them once at its end; nested blocks do nothing.

    Yields:
        Nothing. It can also be used as a decorator: ``@gathered()``.

    Example:
        >>> with gathered():
        ...     for cut in (1, 2):
        ...         warn_of(logging.getLogger("example"), "%d of %d texts were cut", cut, 10)
    """
    if _GATHERED.get() is not None:
        yield
        return
    sums: _Sums = {}
    token = _GATHERED.set(sums)
    try:
        yield
    finally:
        _GATHERED.reset(token)
        for (logger, message), (counts, calls) in sums.items():
            logger.warning(message + (f" (in all of {calls} calls)" if calls > 1 else ""), *counts)


def warn_of(logger: logging.Logger, message: str, *counts: int) -> None:
    """Log a warning with counts, or add the counts to those of the same warning in this run.

    Args:
        logger: The logger.
        message: The message, with a ``%d`` for each count. Only warnings with the same message are summed.
        counts: Numbers that can be added.
    """
    sums = _GATHERED.get()
    if sums is None:
        logger.warning(message, *counts)
        return
    known, calls = sums.get((logger, message), ([0] * len(counts), 0))
    sums[logger, message] = [a + b for a, b in zip(known, counts)], calls + 1
