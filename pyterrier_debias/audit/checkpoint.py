"""Results of finished rooms on disk, so that a long audit can be taken up again. Floor 4.

A checkpoint is a folder with one file for what was audited and one for each finished room. Every file is written whole or not at
all. A folder that was made for anything else is refused, since half of one audit and half of another make none.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias._version import __version__
from pyterrier_debias.contributions import CONTRIBUTION_COLUMNS, contributions_frame
from pyterrier_debias.errors import InputError
from pyterrier_debias.evaluation import judged_qids
from pyterrier_debias.files import write_whole
from pyterrier_debias.findings import PER_QUERY_COLUMNS, Figure, Finding, RoomResult
from pyterrier_debias.frames import ranked
from pyterrier_debias.stage import Stage, flatten
from pyterrier_debias.systems import Context, System

#: The file that says what was audited.
ABOUT = "checkpoint.json"

#: Systems are told apart by what they make of so many judged queries and of so many candidates of each.
_QUERIES, _CANDIDATES = 3, 10
#: How far scores may differ, as a share of their range: rounding, other hardware.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class DrawnFigure(Figure):
    """A figure that was drawn before.

    Attributes:
        pictures: Format (``'png'``, ``'svg'``) to the content of a file.
    """

    pictures: Mapping[str, bytes]

    @classmethod
    def of(cls, figure: Figure) -> DrawnFigure:
        """Draw a figure in both formats.

        Args:
            figure: Any figure.

        Returns:
            The figure, drawn.
        """
        from pyterrier_debias.audit.report import picture

        return cls.from_pictures(figure.name, figure.caption, {kind: picture(figure, kind) for kind in ("png", "svg")})

    @classmethod
    def from_pictures(cls, name: str, caption: str, pictures: Mapping[str, bytes]) -> DrawnFigure:
        """A figure from its pictures.

        Args:
            name: File name without ending.
            caption: What it shows.
            pictures: ``'png'`` and ``'svg'``.

        Returns:
            The figure; drawn onto axes it is an image.
        """
        return cls(name, caption, partial(_show, pictures["png"]), pictures)


def _show(png: bytes, axes: Any) -> None:
    """A picture as an image on axes of its own size."""
    import io

    import matplotlib.image

    axes.imshow(matplotlib.image.imread(io.BytesIO(png), format="png"))
    axes.set_axis_off()


class Checkpoint:
    """The folder of one audit."""

    def __init__(self, folder: str | Path):
        """
        Args:
            folder: A folder that does not exist yet, is empty, or holds a checkpoint.

        Raises:
            InputError: Where something else stands there.
        """
        self.folder = Path(folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"checkpoint {self.folder} is a file; name a folder")
        if self.folder.is_dir() and any(self.folder.iterdir()) and not (self.folder / ABOUT).is_file():
            raise InputError(f"checkpoint folder {self.folder} holds something else; name one that does not exist yet")

    def claim(self, fingerprint: Mapping[str, Any]) -> None:
        """Say what is audited, or see that it is what was audited before.

        Args:
            fingerprint: What :func:`fingerprint` returned.

        Raises:
            InputError: Where the folder is of another audit; the message names what differs.
        """
        path = self.folder / ABOUT
        if not path.is_file():
            write_whole(path, json.dumps(fingerprint, indent=1) + "\n")
            return
        try:
            there = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); delete the folder and begin anew") from error
        what = _difference(there, fingerprint)
        if what is not None:
            raise InputError(
                f"checkpoint folder {self.folder} was made by another audit: {what}; name another folder, or delete this one"
            )

    def kept(self, room: str) -> RoomResult | None:
        """What a finished room found; None where it has not finished.

        Args:
            room: Its name.

        Returns:
            The result, with figures as pictures. A file that cannot be read counts as none, so that the room runs again.
        """
        try:
            content = json.loads(self._file(room).read_text(encoding="utf-8"))
            figures = [
                DrawnFigure.from_pictures(f["name"], f["caption"], {k: base64.b64decode(f[k]) for k in ("png", "svg")})
                for f in content["figures"]
            ]
            values = pd.DataFrame(content["per_query"], columns=PER_QUERY_COLUMNS).astype({"value": "float64", "qid": "str"})
            return RoomResult([Finding(**finding) for finding in content["findings"]], values, figures)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep(self, room: str, result: RoomResult) -> RoomResult:
        """Keep what a room found.

        Args:
            room: Its name.
            result: Its result.

        Returns:
            The same, with its figures drawn, so that nothing is drawn twice.

        Raises:
            InputError: Where the place cannot be written.
        """
        values = pd.DataFrame(columns=PER_QUERY_COLUMNS) if result.per_query is None else result.per_query
        values = values.reindex(columns=PER_QUERY_COLUMNS)
        figures = [DrawnFigure.of(figure) for figure in result.figures]
        content = {
            "findings": [{k: _plain(v) for k, v in asdict(finding).items()} for finding in result.findings],
            "per_query": {c: [_plain(v) for v in values[c].tolist()] for c in PER_QUERY_COLUMNS},
            "figures": [
                {"name": f.name, "caption": f.caption, **{k: base64.b64encode(v).decode() for k, v in f.pictures.items()}}
                for f in figures
            ],
        }
        # NaN is written as such: this file is read by nobody but the package.
        write_whole(self._file(room), json.dumps(content, ensure_ascii=False))
        return RoomResult(result.findings, result.per_query, figures)

    def kept_contributions(self, room: str) -> pd.DataFrame | None:
        """What items contribute to a finished room's figures; None where it is not known.

        Args:
            room: Its name.

        Returns:
            See :func:`pyterrier_debias.contributions.contributions_of`.
        """
        try:
            content = json.loads(self._file(room, "contributions").read_text(encoding="utf-8"))
            return contributions_frame(content)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def keep_contributions(self, room: str, contributions: pd.DataFrame) -> None:
        """Keep what items contribute to a room's figures.

        Args:
            room: Its name.
            contributions: The table.

        Raises:
            InputError: Where the place cannot be written.
        """
        content = {c: [_plain(v) for v in contributions[c].tolist()] for c in CONTRIBUTION_COLUMNS}
        write_whole(self._file(room, "contributions"), json.dumps(content, ensure_ascii=False))

    def _file(self, room: str, kind: str = "room") -> Path:
        return self.folder / f"{kind}-{re.sub(r'[^A-Za-z0-9_-]', '_', room)}-{_digest([room])[:8]}.json"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def fingerprint(context: Context, *, dataset: str, split: str | None) -> dict[str, Any]:
    """What two audits must share so that rooms of one may stand in the other.

    Systems are black boxes: beside the names of their stages it is what they retrieve for a few queries, and how they score it,
    that tells them apart, so that other weights under the same name are found out. Which rooms run, the baseline and the
    correction are free: they do not change what a room finds.

    Args:
        context: What is audited.
        dataset: The collection's name.
        split: The test set's name.

    Returns:
        What JSON can hold.
    """
    return {
        "package": __version__,
        "dataset": dataset,
        "split": split,
        "depth": context.depth,
        "draws": context.draws,
        "seed": context.seed,
        "topics": _frame_digest(context.topics),
        "judgements": _frame_digest(context.qrels[["qid", "docno", "label"]]),
        "systems": [_of_system(system, context) for system in context.systems],
    }


def _of_system(system: System, context: Context) -> dict[str, Any]:
    stages = [_describe(stage) for part in (system.candidates, system.ranker) if part is not None for stage in flatten(part)]
    about: dict[str, Any] = {"name": system.name, "stages": stages, "retrieved": None, "scores": None}
    qids = judged_qids(context.topics, context.qrels)[:_QUERIES]
    try:
        found = ranked(system.candidates(context.topics[context.topics["qid"].isin(qids)].reset_index(drop=True)))
        found = found[found["rank"] < _CANDIDATES].reset_index(drop=True)
        about["retrieved"] = _frame_digest(found[[c for c in ("qid", "docno", "text") if c in found.columns]])
        scored = found if system.ranker is None else system.ranker(found)
        about["scores"] = [float(s) for s in scored.sort_values(["qid", "docno"])["score"]]
    except Exception:  # whatever is wrong with the system, the rooms say it better
        return about
    return about


def _describe(stage: Any) -> str:
    """A stage of this package with its options, another one by its class: its text may hold an address in memory."""
    name = f"{type(stage).__module__}.{type(stage).__qualname__}"
    if not isinstance(stage, Stage):
        return name
    return re.sub(r" at 0x[0-9a-f]+", "", f"{name} {stage!r}")


def _frame_digest(frame: pd.DataFrame) -> str:
    """A digest of a frame's content that does not depend on the order of its rows."""
    columns = sorted(map(str, frame.columns))
    rows = frame.rename(columns=str)[columns].astype(str)
    return _digest([*columns, *sorted("\x1f".join(row) for row in rows.itertuples(index=False, name=None))])


def _digest(parts: list[str]) -> str:
    return hashlib.blake2b("\x1e".join(parts).encode(), digest_size=16).hexdigest()


def _difference(there: Any, here: Mapping[str, Any]) -> str | None:
    """The first thing that differs, in words."""
    there = there if isinstance(there, dict) else {}
    for name in ("package", "dataset", "split", "depth", "draws", "seed"):
        if there.get(name) != here[name]:
            return f"{name} is {there.get(name)!r} there and {here[name]!r} here"
    for name in ("topics", "judgements"):
        if there.get(name) != here[name]:
            return f"its {name} differ"
    old, new = there.get("systems", []), here["systems"]
    if [s["name"] for s in old] != [s["name"] for s in new]:
        return f"its systems are {', '.join(s['name'] for s in old)}, not {', '.join(s['name'] for s in new)}"
    for before, now in zip(old, new):
        if before["stages"] != now["stages"]:
            return f"system {now['name']!r} is made of other stages"
        if before["retrieved"] != now["retrieved"]:
            return f"system {now['name']!r} retrieves other documents"
        if not _same_scores(before["scores"], now["scores"]):
            return f"system {now['name']!r} scores otherwise, as one with other weights would"
    return None


def _same_scores(before: list[float] | None, now: list[float] | None) -> bool:
    if before is None or now is None:
        return before is now
    if len(before) != len(now):
        return False
    a, b = np.array(before), np.array(now)
    if not len(a):
        return True
    return bool(np.allclose(a, b, rtol=0, atol=_TOLERANCE * max(np.ptp(a), 1e-12)))
