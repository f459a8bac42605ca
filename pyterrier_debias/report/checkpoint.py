"""Findings of finished biases on disk, so that a long audit can be resumed.

A checkpoint is a folder with one file for what was audited and one for each finished bias. Every file is written whole or not at
all. A folder of a different audit is refused, because parts of two audits do not make one. A bias with other options, such as
another word list, is a different bias even if its name is the same, and has its own file.
"""

from __future__ import annotations

import base64
import json
import logging
import math
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd

from pyterrier_debias._version import __version__
from pyterrier_debias.core.bias import FINDING_TYPES, PART_TYPES, Bias, Figure, Finding, parts_frame
from pyterrier_debias.core.cache_key import cache_key
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError, one_line, shortened
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.files import PACKAGE, check_seal, entries, locked_inside, sealed, write_whole
from pyterrier_debias.core.frames import frame_digest
from pyterrier_debias.core.kept_scores import KeptScores, forget_scores
from pyterrier_debias.core.spread import Spread, unspread
from pyterrier_debias.core.stage import Stage, all_stages
from pyterrier_debias.core.systems import Context, System
from pyterrier_debias.core.text import digest, in_one_order
from pyterrier_debias.data.base import Collection
from pyterrier_debias.data.irds import IRDSCollection
from pyterrier_debias.report.pictures import DrawnFigure

logger = logging.getLogger(__name__)

#: The file that says what was audited.
ABOUT = "checkpoint.json"

#: The key under which that file names the package, because other programs may write files of the same name.
_MARK = "written_by"
#: Increased when the content of that file changes.
_FORM = 7
#: What biases ask a collection for besides texts and what the audit has: the name in a message, to a method and its arguments.
_ASKED = {
    "topics": ("get_topics",),
    "full topics": ("get_topics", "full"),
    "judgements": ("get_qrels",),
    "full judgements": ("get_qrels", "full"),
    "candidates (what labellers were shown)": ("get_candidates",),
    "answers": ("get_answers",),
    "runs": ("get_runs",),
    "counterparts (rewritten texts)": ("get_counterparts",),
}
#: Rankers are distinguished by their scores for this many judged queries and this many candidates of each.
_QUERIES, _CANDIDATES = 3, 10
#: How much scores may differ because of rounding or other hardware, as a share of their range.
_TOLERANCE = 1e-3
#: How much scores of a non-deterministic ranker may differ, as a multiple of the difference between two of its calls.
_NOISE = 3.0
#: How many characters of a stage's description a message shows.
_LONGEST = 120


class Kept(NamedTuple):
    """The results of a bias: findings, and the figures of the report; or remarks about the systems' queries."""

    findings: Sequence[Finding]
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()


class Checkpoint:
    """The folder in which one audit stores the results of finished biases."""

    def __init__(self, folder: str | Path):
        """
        Args:
            folder: A folder that does not exist yet, is empty, or holds a checkpoint.

        Raises:
            InputError: If it holds anything else.
        """
        self.folder = Path(folder).expanduser()
        #: Systems that failed when they were to be identified: their stored results are read only while they still fail.
        self._unknown: set[str] = set()
        #: Whether results of a bias could not be stored; the warning about it is logged once.
        self._incomplete = False
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"checkpoint {self.folder} is a file; name a folder")
        if self.folder.is_dir() and entries(self.folder) and self._about() is None:
            raise InputError(f"checkpoint folder {self.folder} is not empty and holds no checkpoint; name a new folder")

    def claim(self, fingerprint: Mapping[str, Any], again: Callable[[str], list[float] | None] = lambda name: None) -> None:
        """Write what is audited into the folder, or check that it is the same as before.

        What was unknown about a system that failed earlier is added now.

        Args:
            fingerprint: What :func:`fingerprint` returned.
            again: A function that computes the scores of the named system again, to see whether a difference is due to chance.

        Raises:
            InputError: If the folder belongs to another audit; the message names what differs.
        """
        there = self._about() if (self.folder / ABOUT).is_file() else None
        what = None if there is None else _difference(there, fingerprint, again)
        if what is not None:
            raise InputError(f"checkpoint folder {self.folder} belongs to a different audit: {what}; name another folder")
        here = fingerprint if there is None else _completed(there, fingerprint)
        self._unknown = {system["name"] for system in here["systems"] if None in system.values()}
        if here != there:
            record = json.dumps(sealed({_MARK: PACKAGE, **here}), indent=1) + "\n"
            write_whole(self.folder / ABOUT, record, replace=there is not None)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make sure that no other process writes into the folder.

        Raises:
            InputError: If another process does; the message names it and its host.
        """
        with locked_inside(self.folder):
            yield

    def scores(self, system: System) -> System:
        """A system whose scores are stored here until :meth:`forget_scores`; a system without a ranker is unchanged.

        Args:
            system: One of the systems of the audit, under its name in the audit.

        Returns:
            The system.
        """
        if system.ranker is None:
            return system
        workers = max((one.workers for one in all_stages(system.ranker) if isinstance(one, Spread)), default=1)
        name = f"{system.name}\0unknown" if system.name in self._unknown else system.name  # no system has this name
        return replace(system, kept=KeptScores(self.folder, name, workers))

    def forget_scores(self) -> None:
        """Remove the scores that :meth:`scores` stored, because the findings of all biases are complete.

        If the results of a bias could not be stored, the scores are kept for the next call, which examines that bias again.
        """
        if not self._incomplete:
            forget_scores(self.folder)

    def _about(self) -> dict[str, Any] | None:
        """What the folder says about its audit; None if this package did not write it."""
        path = self.folder / ABOUT
        if not path.is_file():
            return None
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"{path} is damaged or not a checkpoint ({error}); name another folder") from error
        return check_seal(about, path) if isinstance(about, dict) and about.get(_MARK) == PACKAGE else None

    def kept(self, name: str, made: Any = None) -> Kept | None:
        """The results of a finished bias; None if it has not finished.

        Args:
            name: The bias' name.
            made: What :func:`made_from` returned for it.

        Returns:
            The findings, with figures as pictures. A damaged file is logged and ignored, so that the bias runs again.
        """
        file = self._file(name, made)
        if not file.is_file():
            return None
        try:
            content = check_seal(json.loads(file.read_text(encoding="utf-8")), file)
            if json.dumps(content["made_by"], sort_keys=True) != json.dumps(made, sort_keys=True):
                raise InputError("it holds the results of another bias or of other systems")
            figures = [
                DrawnFigure.from_pictures(f["name"], f["caption"], {k: base64.b64decode(f[k]) for k in ("png", "svg")})
                for f in content["figures"]
            ]
            return Kept([_read(finding) for finding in content["findings"]], figures, content.get("notes", []))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            logger.warning("checkpoint: %s cannot be read (%s), so %s is examined again", file, one_line(error), name)
            return None

    def keep(self, name: str, examined: Kept, made: Any = None) -> Kept:
        """Store the results of a bias. If they cannot be written, the first such call logs a warning, and the audit goes on.

        Args:
            name: The bias' name.
            examined: Its results.
            made: What :func:`made_from` returned for it.

        Returns:
            The results with the figures drawn, so that nothing is drawn twice.
        """
        figures = [DrawnFigure.of(figure) for figure in examined.figures]
        content = {
            "made_by": made,
            "findings": [_written(finding) for finding in examined.findings],
            "figures": [
                {"name": f.name, "caption": f.caption, **{k: base64.b64encode(v).decode() for k, v in f.pictures.items()}}
                for f in figures
            ],
            "notes": list(examined.notes),
        }
        # NaN is written as such, because only this package reads the file.
        record = json.dumps(sealed(content), ensure_ascii=False)
        try:
            write_whole(self._file(name, made), record)
        except InputError as error:  # such as a full disk; the findings must not be lost
            if not self._incomplete:
                logger.warning("checkpoint: %s; the audit goes on, and the next call examines again what is not stored", error)
            self._incomplete = True
        return Kept(examined.findings, figures, examined.notes)

    def _file(self, name: str, made: Any) -> Path:
        unknown = self._unknown.intersection(system for system, _ in (made or {}).get("systems", ()))
        key = digest([name, json.dumps(made, sort_keys=True), *sorted(unknown)])[:8]
        return self.folder / f"bias-{re.sub(r'[^A-Za-z0-9_-]', '_', name)}-{key}.json"


def _written(finding: Finding) -> dict[str, Any]:
    """A finding as JSON can hold it."""
    return {
        **{name: _unwrapped(getattr(finding, name)) for name in FINDING_TYPES},
        "values": None if finding.values is None else _listed(finding.values),
        "beside": [[*key, *_listed(values)] for key, values in finding.beside.items()],
        "clusters": None if finding.clusters is None else finding.clusters.astype(str).to_dict(),
        "parts": None if finding.parts is None else {c: finding.parts[c].tolist() for c in PART_TYPES},
    }


def _listed(values: pd.Series) -> list[Any]:
    return [[str(qid) for qid in values.index], [float(value) for value in values]]


def _read(content: dict[str, Any]) -> Finding:
    """The finding whose content :func:`_written` made."""

    def series(qids: list[str], values: list[float]) -> pd.Series:
        return pd.Series(values, index=pd.Index(qids, dtype="str"), dtype="float64")

    return Finding(
        **{name: content[name] for name in FINDING_TYPES},
        values=None if content["values"] is None else series(*content["values"]),
        beside={(measure, contrast): series(*values) for measure, contrast, *values in content["beside"]},
        clusters=None if content["clusters"] is None else pd.Series(content["clusters"], dtype="str"),
        parts=None if content["parts"] is None else parts_frame(content["parts"]),
    )


def _unwrapped(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def made_from(bias: Bias, systems: Sequence[System]) -> dict[str, Any]:
    """The key of a stored result: the bias with its options, such as its words, and the systems that it could examine.

    Args:
        bias: The bias; the code of its methods is not in the key.
        systems: The systems; a system that was given an indexer may be examined in ways that it was not before.

    Returns:
        JSON data, equal in every process.
    """
    told = [[system.name, None if system.indexer is None else _describe(system.indexer)] for system in systems]
    kind = f"{type(bias).__module__}.{type(bias).__qualname__}"
    return {"bias": kind, "options": cache_key(bias.cache_key(), exact=True), "systems": told}


def fingerprint(context: Context, *, dataset: str, split: str | None) -> dict[str, Any]:
    """What two audits must have in common so that findings of one can be used in the other.

    Systems are black boxes: they are identified by the names of their stages, by the documents and texts that they retrieve, and
    by some of their scores, so that different weights under the same name are detected. The choice of biases, the baseline and
    the correction are not included, because they do not change a finding.

    Args:
        context: The audit; its systems retrieve in order to be identified.
        dataset: The collection's name.
        split: The test set's name.

    Returns:
        JSON data.
    """
    return {
        "form": _FORM,
        "package": __version__,
        "dataset": dataset,
        "split": split,
        "depth": context.depth,
        "draws": context.draws,
        "seed": context.seed,
        "topics": frame_digest(context.topics),
        "judgements": frame_digest(context.qrels[["qid", "docno", "label"]]),
        "provided": _provided(context.dataset),
        "systems": [_of_system(system, context) for system in context.systems],
    }


def _provided(dataset: Any) -> dict[str, Any]:
    """Digests of what the collection gives to biases; none for ir_datasets, whose names identify them without a download."""
    if isinstance(dataset, IRDSCollection):
        return {}
    about: dict[str, Any] = {"corpus": frame_digest(dataset.corpus) if isinstance(dataset, Collection) else None}
    for what, (method, *arguments) in _ASKED.items():
        try:
            found = provided(dataset, method, *arguments)
        except Exception:  # datasets raise different errors if there is no such variant
            found = None
        if isinstance(found, Mapping):
            about[what] = {str(name): frame_digest(frame) for name, frame in found.items()} or None
        else:
            about[what] = None if found is None else frame_digest(found)
    return about


def _of_system(system: System, context: Context) -> dict[str, Any]:
    stages = [_describe(stage) for part in (system.candidates, system.ranker) if part is not None for stage in unspread(part)]
    about: dict[str, Any] = {"name": system.name, "stages": stages, "retrieved": None, "texts": None, "scores": None}
    try:
        found = context.candidates(system)
        about["retrieved"] = frame_digest(found[["qid", "docno", "rank"]])
        found = found[found["rank"] < context.depth]
        texts = _with_texts(found, context.dataset)
        about["texts"] = frame_digest(texts[[c for c in texts.columns if pd.api.types.is_string_dtype(texts[c])]])
        about["scores"] = sample_scores(system, context)
    except Exception:  # the biases report what is wrong with the system
        return about
    return about


def sample_scores(system: System, context: Context) -> list[float]:
    """How a system scores the first candidates of a few queries.

    Args:
        system: One of the context's systems.
        context: The audit.

    Returns:
        The scores, in the order of qid and docno.
    """
    found = context.candidates(system)
    # The same audit may have its topics in another order.
    qids = sorted(judged_qids(context.topics, context.qrels))[:_QUERIES]
    found = found[found["qid"].isin(qids) & (found["rank"] < min(_CANDIDATES, context.depth))].reset_index(drop=True)
    scored: pd.DataFrame = found if system.ranker is None else system.ranker(found)
    return [float(s) for s in scored.sort_values(["qid", "docno"])["score"]]


def _with_texts(found: pd.DataFrame, dataset: Any) -> pd.DataFrame:
    """Candidates with the texts that biases load for them, if the system has none and the collection provides them."""
    if "text" in found.columns:
        return found
    try:
        texts = dataset.text_loader()(found[["docno"]].drop_duplicates())
        return found.merge(texts[["docno", "text"]], on="docno", how="left")
    except Exception:  # the biases that need them report it
        return found


def _describe(stage: Any) -> str:
    """A stage in words: its class and representation, without memory addresses and temporary folders, which always change.

    For stages of this package, a digest of options and weights is added at the end.
    """
    name = f"{type(stage).__module__}.{type(stage).__qualname__}"
    if type(stage).__repr__ is object.__repr__:
        return name
    text = re.sub(r"( at )?0x[0-9a-f]+", "", f"{name} {in_one_order(repr(stage))}")
    text = re.sub(rf"{re.escape(tempfile.gettempdir())}[\w./-]*", "<temporary>", text)
    if isinstance(stage, Stage):
        text += f" {digest([json.dumps(cache_key(stage), sort_keys=True)])[:8]}"
    return text


def _difference(there: Any, here: Mapping[str, Any], again: Callable[[str], list[float] | None]) -> str | None:
    """The first thing that differs, in words."""
    there = there if isinstance(there, dict) else {}
    for name in ("form", "package", "dataset", "split", "depth", "draws", "seed"):
        if there.get(name) != here[name]:
            return f"{name} is {there.get(name)!r} in the folder and {here[name]!r} now"
    for name in ("topics", "judgements"):
        if there.get(name) != here[name]:
            return f"the {name} differ"
    for name, now in here["provided"].items():
        if there["provided"].get(name) != now:
            return f"the collections differ in {name}"
    old, new = there.get("systems", []), here["systems"]
    if [s["name"] for s in old] != [s["name"] for s in new]:
        return f"the systems are {', '.join(s['name'] for s in old)} in the folder and {', '.join(s['name'] for s in new)} now"
    for before, now in zip(old, new):
        if before["stages"] != now["stages"]:
            pairs = zip_longest(before["stages"], now["stages"], fillvalue="nothing")
            was, is_ = next(pair for pair in pairs if pair[0] != pair[1])
            return f"system {now['name']!r} has different stages: {_told_apart(was, is_)}"
        if any(before[part] is not None and now[part] is None for part in ("retrieved", "texts", "scores")):
            return f"system {now['name']!r} worked before and fails now; run it on a few topics to see why"
        if before["retrieved"] not in (None, now["retrieved"]):
            return f"system {now['name']!r} retrieves different documents"
        if before["texts"] not in (None, now["texts"]):
            return f"system {now['name']!r} has different texts for its candidates"
        if before["scores"] is not None and not _same_scores(before["scores"], now["scores"], partial(again, now["name"])):
            return f"system {now['name']!r} gives different scores, as with different weights"
    return None


def _completed(there: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, Any]:
    """What a folder says about its audit, completed for systems that had failed, for which it says None."""
    systems = [
        {name: now[name] if known is None else known for name, known in before.items()}
        for before, now in zip(there["systems"], here["systems"])
    ]
    return {**there, "systems": systems}


def _told_apart(was: str, now: str) -> str:
    """What differs between two descriptions of a stage; for long ones, the first options that differ."""
    if max(len(was), len(now)) <= _LONGEST:
        return f"{was} in the folder, {now} now"
    (kind, _, before), (other, _, after) = was.partition(" "), now.partition(" ")
    if kind != other:
        return f"{shortened(was, _LONGEST)} in the folder, {shortened(now, _LONGEST)} now"
    both = [re.split(r"(?<=[,({\[])\s*|\s+(?=[0-9a-f]{8}$)", part) for part in (before, after)]
    start = next((i for i, (a, b) in enumerate(zip(*both)) if a != b), min(map(len, both)))
    parts = [own[start : max(start + 1, len(own) - _common_end(*(one[start:] for one in both)))] for own in both]
    if start and parts == [own[-1:] for own in both] and all(re.fullmatch(r"[0-9a-f]{8}", "".join(part)) for part in parts):
        return f"{kind} has different options or weights, which its description does not show"
    shown = [shortened(" ".join(part).rstrip(",)}] "), _LONGEST) or "nothing" for part in parts]
    return f"{kind} has {shown[0]} in the folder, {shown[1]} now"


def _common_end(one: list[str], other: list[str]) -> int:
    """How many parts two lists have in common at their end."""
    pairs = zip(reversed(one), reversed(other))
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _same_scores(before: list[float], now: list[float] | None, again: Callable[[], list[float] | None] = lambda: None) -> bool:
    """Whether scores differ by no more than rounding, or than the chance difference between two calls now.

    Scores that are not finite must be the same.
    """
    differ = _furthest(before, now)
    finite = [score for score in before if math.isfinite(score)]
    if differ is None or differ <= _TOLERANCE * max(np.ptp(finite) if finite else 0.0, 1e-12):
        return differ is not None
    chance = _furthest(cast(list[float], now), again())
    return chance is not None and differ <= _NOISE * chance


def _furthest(one: list[float], other: list[float] | None) -> float | None:
    """The largest difference between scores; None if their numbers differ, or if the scores that are not finite differ."""
    if other is None or len(one) != len(other):
        return None
    a, b = np.array(one), np.array(other)
    finite = np.isfinite(a)
    if not np.array_equal(finite, np.isfinite(b)) or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return None
    return float(np.abs(a[finite] - b[finite]).max(initial=0.0))
