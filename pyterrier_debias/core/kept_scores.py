"""Scores of finished lists on disk, so that an interrupted audit does not score them again."""

from __future__ import annotations

import io
import logging
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.foreign_memory import list_keys, scores_of
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.text import digest

logger = logging.getLogger(__name__)

#: About how many rows each worker of a ranker is given at a time, so that little is lost of what it has not finished.
_ROWS = 1_000
#: After so many seconds of scoring, what was scored is written.
_SECONDS = 60.0
#: Names of files: digests of the ranker's name and of the first list. They leave files of others alone.
_HEX = "[0-9a-f]"
_FILES = f"scores-{_HEX * 8}-{_HEX * 32}.npz"


class KeptScores:
    """The scores of one ranker for the lists that it was given, in files of a folder.

    Lists are scored a few at a time, always whole queries and for no more than about a minute, and after each minute of scoring
    one file is written, either completely or not at all. If this fails, a warning says so, and the scores are written with the
    next ones. A list in a file (with the same qids, docnos and other cells, in the same order) is not scored again. Only scores
    are stored; a ranker that leaves out rows, adds or changes columns, or gets anything but texts and numbers scores every time.

    Args:
        folder: The folder of the files.
        name: The ranker's name.
        workers: The number of processes in which it scores.

    Example:
        >>> import tempfile
        >>> rows = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "text": ["tea", "green tea"]})
        >>> length = lambda inp: inp.assign(score=inp["text"].str.len().astype(float))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     first = KeptScores(Path(folder), "mine")
        ...     found = first.ask(length, rows)
        ...     first.write()
        ...     again = KeptScores(Path(folder), "mine").ask(None, rows)
        >>> again["score"].tolist()
        [9.0, 3.0]

    When not to use it: for a ranker whose weights may have changed since; the caller must make sure that they have not.
    """

    def __init__(self, folder: Path, name: str, workers: int = 1):
        self._folder = folder
        self._rows = _ROWS * workers
        self._prefix = f"scores-{digest([name])[:8]}-"
        self._new: dict[str, np.ndarray] = {}
        self._seconds = 0.0
        #: Seconds of a row in the last call; a ranker whose speed is not known yet is given one list.
        self._of_row = float("inf")
        self._known: dict[str, np.ndarray] = {}
        for file in sorted(folder.glob(f"{self._prefix}{_HEX * 32}.npz")):
            try:
                with np.load(file, allow_pickle=False) as kept:
                    parts = np.split(kept["scores"], kept["ends"][:-1])
                    self._known.update(zip(kept["lists"].tolist(), parts))
            except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
                logger.warning("checkpoint: %s cannot be read (%s); its scores are computed again", file, one_line(error))

    def ask(self, ranker: Callable[[pd.DataFrame], pd.DataFrame], inp: pd.DataFrame) -> pd.DataFrame:
        """Score lists with a ranker, except those whose scores are known.

        Args:
            ranker: The same ranker in every call.
            inp: A result frame.

        Returns:
            What the ranker returns, query by query; for known lists ``inp`` with ``score`` and ``rank``.
        """
        if not {"qid", "docno"} <= set(inp.columns) or not len(inp):
            return ranker(inp)
        inp, ends, lists = list_keys(inp)
        starts, found, first = np.append(0, ends[:-1]), [], 0
        while first < len(ends):
            known = lists[first] in self._known
            last = first + 1
            while last < len(ends) and (lists[last] in self._known) == known and (
                known or ends[last] - starts[first] <= min(self._rows, _SECONDS / self._of_row)
            ):
                last += 1
            part = inp.iloc[starts[first] : ends[last - 1]].reset_index(drop=True)
            names, inside = lists[first:last], ends[first:last] - starts[first]
            found.append(self._remembered(part, names) if known else self._scored(ranker, part, names, inside))
            first = last
        return found[0] if len(found) == 1 else pd.concat(found, ignore_index=True)

    def _remembered(self, part: pd.DataFrame, lists: Sequence[str]) -> pd.DataFrame:
        return ranked(part.assign(score=np.concatenate([self._known[name] for name in lists])), "ranker")

    def _scored(
        self, ranker: Callable[[pd.DataFrame], pd.DataFrame], part: pd.DataFrame, lists: Sequence[str], ends: np.ndarray
    ) -> pd.DataFrame:
        start = time.monotonic()
        found = ranker(part)
        seconds = time.monotonic() - start
        self._of_row = max(seconds / len(part), 1e-9)
        scores = scores_of(part, found) if lists[0] else None
        if scores is not None:
            self._new.update(zip(lists, np.split(scores, ends[:-1])))
            self._seconds += seconds
            if self._seconds > _SECONDS:
                try:
                    self.write()
                except InputError as error:  # no fault of the ranker, in whose call this happens
                    logger.warning("checkpoint: %s; the audit goes on, and tries again after more scoring", error)
                    self._seconds = 0.0
        return found

    def write(self) -> None:
        """Write the scores that were computed since the last call.

        Raises:
            InputError: If the folder cannot be written.
        """
        if self._new:
            content, scores = io.BytesIO(), list(self._new.values())
            np.savez(content, lists=list(self._new), ends=np.cumsum(list(map(len, scores))), scores=np.concatenate(scores))
            write_whole(self._folder / f"{self._prefix}{next(iter(self._new))}.npz", content.getvalue())
        self._known |= self._new
        self._new, self._seconds = {}, 0.0


def forget_scores(folder: Path) -> None:
    """Remove the files of all rankers.

    Args:
        folder: The folder of the files. Other files in it are kept.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     forget_scores(Path(folder))
    """
    for file in folder.glob(_FILES):
        file.unlink(missing_ok=True)
