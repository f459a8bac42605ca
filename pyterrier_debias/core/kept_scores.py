"""Scores of finished parts of lists on disk, so that an audit that was killed does not score them again."""

from __future__ import annotations

import io
import logging
import time
import zipfile
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import one_line
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.frames import in_parts, ranked
from pyterrier_debias.core.pointwise import row_keys, scores_of
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
    """Scores of one ranker by the lists that it was given, in files of a folder.

    Lists are scored a few at a time, whole queries always and for no more than about a minute, and after each minute of scoring
    one file is written, whole or not at all. Lists that are in a file are not scored again: those of the same qids, docnos and
    other cells, in the same order. Only scores are kept; a ranker that leaves out rows, adds columns, or is given anything but
    texts and numbers is asked each time.

    Args:
        folder: Where files are.
        name: The ranker's name.
        workers: In how many processes it scores.

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

    When not to use it: for a ranker whose weights may have changed since; whoever opens the folder has to see to that.
    """

    def __init__(self, folder: Path, name: str, workers: int = 1):
        self._folder = folder
        self._rows = _ROWS * workers
        self._prefix = f"scores-{digest([name])[:8]}-"
        self._new: dict[str, np.ndarray] = {}
        self._seconds = 0.0
        #: Seconds of the last row that was scored. A ranker whose speed is not known yet is given one list.
        self._of_row = float("inf")
        self._known: dict[str, np.ndarray] = {}
        for file in sorted(folder.glob(f"{self._prefix}{_HEX * 32}.npz")):
            try:
                with np.load(file, allow_pickle=False) as kept:
                    self._known.update(kept)
            except (OSError, ValueError, zipfile.BadZipFile) as error:
                logger.warning("checkpoint: %s cannot be read (%s); what it holds is scored again", file, one_line(error))

    def ask(self, ranker: Callable[[pd.DataFrame], pd.DataFrame], inp: pd.DataFrame) -> pd.DataFrame:
        """What a ranker makes of lists, those that are known left out.

        Args:
            ranker: The same one in every call.
            inp: A result frame.

        Returns:
            What the ranker returns; of lists that were known ``inp`` with ``score`` and ``rank``.
        """
        if not {"qid", "docno"} <= set(inp.columns) or not len(inp):
            return ranker(inp)
        found = [self._part(ranker, part) for part in in_parts(inp, max(1, self._rows * inp["qid"].nunique() // len(inp)))]
        return found[0] if len(found) == 1 else pd.concat(found, ignore_index=True)

    def _part(self, ranker: Callable[[pd.DataFrame], pd.DataFrame], part: pd.DataFrame) -> pd.DataFrame:
        key = _key(part)
        if key is not None and key in self._known:
            return ranked(part.assign(score=self._known[key]), "ranker")
        queries = part["qid"].nunique()
        if key is not None and queries > 1 and self._of_row * len(part) > _SECONDS:
            return pd.concat([self._part(ranker, half) for half in in_parts(part, -(-queries // 2))], ignore_index=True)
        start = time.monotonic()
        found = ranker(part)
        seconds = time.monotonic() - start
        self._of_row = seconds / len(part)
        scores = None if key is None else scores_of(part, found)
        if key is not None and scores is not None:
            self._new[key] = scores
            self._seconds += seconds
            if self._seconds > _SECONDS:
                self.write()
        return found

    def write(self) -> None:
        """Write what was scored since the last time.

        Raises:
            InputError: Where the folder cannot be written.
        """
        if self._new:
            content = io.BytesIO()
            np.savez(content, **self._new)  # type: ignore[arg-type]  # its stub takes every keyword for allow_pickle
            write_whole(self._folder / f"{self._prefix}{next(iter(self._new))}.npz", content.getvalue())
        self._known |= self._new
        self._new, self._seconds = {}, 0.0


def forget_scores(folder: Path) -> None:
    """Remove the files of all rankers.

    Args:
        folder: Where they are. Files of others stay.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     forget_scores(Path(folder))
    """
    for file in folder.glob(_FILES):
        file.unlink(missing_ok=True)


def _key(part: pd.DataFrame) -> str | None:
    """A digest of lists in their order; None where a cell is neither text nor number."""
    keys = row_keys(part)
    if keys is None:
        return None
    names = "\0".join([*map(str, part.columns), *part["qid"].astype(str).tolist(), *part["docno"].astype(str).tolist()])
    return blake2b(b"".join(keys) + names.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
