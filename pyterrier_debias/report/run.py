"""The audit: every room over every system it can examine, one table of findings."""

from __future__ import annotations

import importlib
import importlib.metadata
import operator
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.attributions import CONTRIBUTION_COLUMNS, contributions_of
from pyterrier_debias.core.bias import PER_QUERY_COLUMNS, Figure, Finding, Room, RoomResult, findings_frame
from pyterrier_debias.core.errors import InputError, one_line, trace
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.frames import (
    check_overlap,
    check_pairs,
    check_text,
    frame_digest,
    with_grades,
    with_query,
    with_string_ids,
)
from pyterrier_debias.core.naming import distinct_names
from pyterrier_debias.core.stage import flatten
from pyterrier_debias.core.systems import BrokenSystemError, Context, System, UnfitSystemError, said_together, with_indexer
from pyterrier_debias.data.base import STORE_WHOLE, cut_texts
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.data.terrier import terrier_versions
from pyterrier_debias.report.baseline import against_baseline
from pyterrier_debias.report.checkpoint import Checkpoint, fingerprint, made_from
from pyterrier_debias.report.cross_bias import ALL, JOINED, unjoined_reason
from pyterrier_debias.report.result import FAILED_COLUMNS, SKIPPED_COLUMNS, AuditResult

#: The rooms in the order of reports: name to the module that exports ``ROOM``.
ROOMS = {
    "position": "pyterrier_debias.position.audit",
    "survivorship": "pyterrier_debias.survivorship.audit",
    "gender": "pyterrier_debias.gender.audit",
    "linguistic": "pyterrier_debias.linguistic.audit",
    "pooling": "pyterrier_debias.pooling.audit",
}

#: How many texts of a system are looked at to see whether they are whole.
_LOOKED_AT = 1000

_JUDGEMENT = ["qid", "docno", "label"]

CORRECTIONS = ("holm", "bonferroni", "fdr_bh")

_PACKAGES = (
    "pyterrier-debias", "pyterrier", "ir-measures", "numpy", "pandas", "torch", "transformers", "sentence-transformers",
)  # fmt: skip


def audit(
    systems: Any = None,
    dataset: Any = "planted",
    *,
    rooms: str | Sequence[str | Room] = "all",
    baseline: str | None = None,
    split: str | None = None,
    topics: pd.DataFrame | int | None = None,
    qrels: pd.DataFrame | None = None,
    depth: int = 100,
    draws: int | None = None,
    correction: str = "holm",
    seed: int = 0,
    checkpoint: str | Path | None = None,
    verbose: bool = False,
) -> AuditResult:
    """Examine systems for bias.

    Every room is asked whether it can examine each system on the collection; what it cannot is listed with the reason. A
    room that breaks off is reported and the others finish; so is a system that raises, and rooms examine the others. Retrieval
    and scoring that rooms share run once.

    Args:
        systems: A dictionary from name to system, a list of systems, or one system; each a PyTerrier pipeline, a result
            frame, a ranker alone (it reranks the collection's first run), or a
            :class:`~pyterrier_debias.core.systems.System`. None means BM25 and BM25 followed by all-MiniLM-L6-v2.
        dataset: ``'planted'`` (the embedded collection), a folder, an ``irds:`` id, or any dataset object; see
            :func:`pyterrier_debias.open_dataset`.
        rooms: ``'all'``, a name or names of :data:`ROOMS`, or :class:`~pyterrier_debias.core.bias.Room` objects.
        baseline: The name of one of the systems; the others are compared with it, query by query.
        split: Which topics and judgements of the dataset; None means its default.
        topics: Topics in place of the dataset's, or how many of its judged topics to use, from the first.
        qrels: Judgements in place of the dataset's: ``qid``, ``docno``, ``label``; one label a pair.
        depth: How many candidates of a query a ranker is given.
        draws: How many random variants of each text rooms draw; None leaves it to the room.
        correction: How p values are corrected over the whole table: ``'holm'``, ``'bonferroni'`` or ``'fdr_bh'``.
        seed: Seed of everything random.
        checkpoint: A folder in which the results of finished rooms are kept. The same call with the same folder goes on where
            the last one was interrupted: rooms that had finished are read, those that had not or broke off run. Rooms may be
            added; anything else that differs (systems, what they retrieve and how they score, the collection, topics,
            judgements, depth, draws, seed) is refused. None keeps nothing. The folder is never removed.
        verbose: Whether to show progress.

    Returns:
        The result.

    Raises:
        InputError: Where the input is at fault: an unknown room, dataset or baseline, numbers that are none, topics and
            judgements that do not overlap, a pair with two labels, nothing that any room could examine, and whatever a room finds
            wrong with its input. What a probe has against one system is listed with what was not examined.

    Example:
        ::

            audit()
            audit({"mine": bm25 >> texts >> my_ranker}, "irds:beir/nfcorpus/test", depth=50)
            audit({"BM25": bm25, "mine": bm25 >> texts >> my_ranker}, dataset, baseline="BM25").save("audit-results")

    When not to use it: to choose between rankers by their effectiveness (that is what ``pt.Experiment`` is for), or as proof
    that a ranker has no bias: a room looks for one kind of bias with one kind of probe, on the topics it is given.
    """
    started = time.perf_counter()
    chosen = find_rooms(rooms)
    depth, draws, topics, seed = check_settings(correction=correction, depth=depth, draws=draws, topics=topics, seed=seed)
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    collection = open_dataset(dataset, split=split)
    all_topics, all_qrels = topics_and_qrels(collection, topics, qrels)
    with tempfile.TemporaryDirectory(prefix="pyterrier-debias-") as folder:
        if systems is None:
            from pyterrier_debias.report.defaults import default_systems

            examined = default_systems(collection, Path(folder), depth=depth, verbose=verbose)
        else:
            examined = named_systems(systems, collection)
        examined = [_indexing_within(system, folder) for system in examined]
        check_baseline(baseline, examined)
        context = Context(
            examined, collection, all_topics, all_qrels, depth=depth, seed=seed, draws=draws, verbose=verbose
        )
        if kept is not None:
            kept.claim(fingerprint(context, dataset=_dataset_name(dataset, collection), split=split))
        with _remembering(examined):
            seen = _visit(chosen, context, verbose, kept)
        cut = [note for system in examined if (note := _cut_note(system, context))]
    findings, skipped, failed = seen.findings, seen.skipped, seen.failed
    per_query = _stacked(seen.per_query, PER_QUERY_COLUMNS)
    if not findings and not failed:
        reasons = "; ".join(dict.fromkeys(f"{s['bias']}: {s['reason']}" for s in skipped))
        raise InputError(f"no room can examine any of the systems on this collection ({reasons})")
    if baseline is not None:
        findings += against_baseline(findings, per_query, baseline)
    settings = {
        "dataset": _dataset_name(dataset, collection),
        "split": split,
        "systems": [system.name for system in examined],
        "rooms": [room.name for room in chosen],
        "baseline": baseline,
        "topics": len(all_topics),
        "judged_topics": len(judged_qids(all_topics, all_qrels)),
        "judgements": _known_judgements(all_qrels),
        "depth": depth,
        "draws": draws,
        "seed": seed,
        "correction": correction,
        "notes": said_together([*(system.note for system in examined if system.note), *cut, *context.notes], examined),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "versions": _versions(),
    }
    return AuditResult(
        findings_frame(findings, correction),
        per_query,
        pd.DataFrame(skipped, columns=SKIPPED_COLUMNS),
        pd.DataFrame(failed, columns=FAILED_COLUMNS),
        settings,
        tuple(seen.figures),
        _words(all_topics, per_query),
        _stacked(seen.contributions, CONTRIBUTION_COLUMNS),
    )


def _cut_note(system: System, context: Context) -> str:
    """Whether a system reads only the beginnings of the collection's texts, in words; empty where it does not."""
    if system.ranker is None and system.indexer is not None and getattr(context.dataset, "longest_text", None) is not None:
        documents = islice(context.dataset.get_corpus_iter(verbose=False), _LOOKED_AT)
        texts = pd.DataFrame([{"docno": document["docno"], "text": document["text"]} for document in documents])
        cut = int(cut_texts(texts, context.dataset).sum())
        return "" if not cut else (
            f"{system.name}: {cut} of {len(texts)} texts of the index seem to be the beginnings of whole ones, and it is indexed "
            f"anew over changed texts from these; {STORE_WHOLE}."
        )
    try:
        found = context.candidates(system)
    except (BrokenSystemError, InputError):  # the biases have said so
        return ""
    if "text" not in found.columns or not all(isinstance(text, str) for text in found["text"]):
        return ""
    texts = found[["docno", "text"]].drop_duplicates("docno").head(_LOOKED_AT)
    cut = int(cut_texts(texts, context.dataset).sum())
    if not cut:
        return ""
    return f"{system.name}: {cut} of {len(texts)} texts that it reads seem to be the beginnings of whole ones; {STORE_WHOLE}."


def _indexing_within(system: System, folder: str) -> System:
    """A system whose indexes go to the audit's own folder, which is removed however the audit ends."""
    within = getattr(system.indexer, "within", None)
    return system if within is None else replace(system, indexer=within(folder))


def _stacked(frames: Sequence[pd.DataFrame], columns: Sequence[str]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def _words(topics: pd.DataFrame, per_query: pd.DataFrame) -> dict[str, str]:
    """The words of the queries that have a value."""
    named = set(per_query["qid"])
    return {qid: query for qid, query in zip(topics["qid"], topics["query"]) if qid in named}


@contextmanager
def _remembering(systems: Sequence[System]) -> Iterator[None]:
    """Rankers that can remember what they made of a text do so: rooms rank the same documents for other queries."""
    with ExitStack() as stack:
        for stage in (stage for system in systems if system.ranker is not None for stage in flatten(system.ranker)):
            if hasattr(stage, "remembering"):
                stack.enter_context(stage.remembering())
        yield


@dataclass(frozen=True)
class _Seen:
    """What the rooms found, and what they could not."""

    findings: list[Finding] = field(default_factory=list)
    per_query: list[pd.DataFrame] = field(default_factory=list)
    figures: list[tuple[str, Figure]] = field(default_factory=list)
    contributions: list[pd.DataFrame] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)

    def add(self, bias: str, result: RoomResult) -> None:
        """What a room found."""
        self.findings.extend(result.findings)
        self.figures.extend((bias, figure) for figure in result.figures)
        if result.per_query is not None and len(result.per_query):
            self.per_query.append(result.per_query[PER_QUERY_COLUMNS])


def _visit(rooms: Sequence[Room], context: Context, verbose: bool, checkpoint: Checkpoint | None = None) -> _Seen:
    """Run the rooms, each on the systems it can examine, and then what they say together; what a checkpoint has kept is read."""
    seen = _Seen()
    ran: list[str] = []
    progress = pt.tqdm(rooms, desc="rooms", unit="room", disable=not verbose)
    for room in progress:
        progress.set_postfix_str(room.name)
        able, result, own = [], None, context
        with _told(room.name, seen.failed):
            for system in context.systems:
                reason = room.needs(system, context.asked)
                if reason is None:
                    able.append(system)
                else:
                    seen.skipped.append({"bias": room.name, "system": system.name, "reason": reason})
            result, own = _of_those_that_work(room.name, room.run, replace(context, systems=able), seen, checkpoint)
        if result is None:
            continue
        ran.append(room.name)
        seen.add(room.name, result)
        with _told(f"{room.name}: contributions", seen.failed):
            made = None if checkpoint is None else made_from(room.run, own.systems)
            parts = None if checkpoint is None else checkpoint.kept_contributions(room.name, made)
            if parts is None:
                parts = contributions_of(room, own, result)
                if checkpoint is not None:
                    checkpoint.keep_contributions(room.name, parts, made)
            if len(parts):
                seen.contributions.append(parts)
    asked = {room.name for room in rooms}
    for part in (part for part in JOINED if asked.issuperset(part.rooms)):
        with _told(part.name, seen.failed):
            reason = unjoined_reason(part, ran, context)
            if reason is None:
                seen.add(part.rooms[0], _kept_or_made(part.name, part.run, context, checkpoint))
            elif set(part.rooms) & set(ran):  # where none of its rooms ran, they have said why
                seen.skipped.append({"bias": part.name, "system": ALL, "reason": reason})
    return seen


def _of_those_that_work(
    name: str, run: Callable[[Context], RoomResult], context: Context, seen: _Seen, checkpoint: Checkpoint | None
) -> tuple[RoomResult | None, Context]:
    """What a room finds, and the audit that it was given in the end: systems that raise or are refused are noted and left out."""
    while context.systems:
        try:
            return _kept_or_made(name, run, context, checkpoint), context
        except UnfitSystemError as error:
            seen.skipped.append({"bias": name, "system": error.system, "reason": str(error)})
            left_out = error.system
        except BrokenSystemError as error:
            _note(name, error, seen.failed)
            left_out = error.system
        context = replace(context, systems=[s for s in context.systems if s.name != left_out])
    return None, context


def _note(name: str, error: BrokenSystemError, failed: list[dict[str, str]]) -> None:
    failed.append({"bias": name, "system": error.system, "error": str(error), "traceback": trace(error.__cause__)})


def _kept_or_made(
    name: str, run: Callable[[Context], RoomResult], context: Context, checkpoint: Checkpoint | None
) -> RoomResult:
    """A result from the checkpoint, or made and kept."""
    if checkpoint is None:
        return run(context)
    made = made_from(run, context.systems)
    result = checkpoint.kept(name, made)
    return checkpoint.keep(name, run(context), made) if result is None else result


@contextmanager
def _told(name: str, failed: list[dict[str, str]]) -> Iterator[None]:
    """A defect is noted, so that it does not cost the others' results; what the input is at fault for is raised."""
    try:
        yield
    except InputError:
        raise
    except pt.validate.InputValidationError as error:
        lacks = ", ".join(sorted({repr(c) for mode in error.modes for c in mode.missing_columns}))
        raise InputError(
            f"{name}: {' '.join(str(error.args[0]).split())} Put a stage before it that adds {lacks}; "
            f"a text loader adds 'text'"
        ) from error
    except BrokenSystemError as error:
        _note(name, error, failed)
    except Exception as error:
        failed.append({"bias": name, "system": "", "error": one_line(error), "traceback": trace(error)})


def check_settings(
    *, correction: str, depth: Any, draws: Any, topics: Any, seed: Any = 0
) -> tuple[int, int | None, pd.DataFrame | int | None, int]:
    """Refuse settings that no audit can have.

    Args:
        correction: As for :func:`audit`.
        depth: As for :func:`audit`.
        draws: As for :func:`audit`.
        topics: As for :func:`audit`.
        seed: As for :func:`audit`.

    Returns:
        Depth, draws, topics and seed, numbers as Python's own.

    Raises:
        InputError: For an unknown correction, what is no whole number, or one that is too small.
    """
    if correction not in CORRECTIONS:
        raise InputError(f"correction {correction!r} is not known; use one of {', '.join(CORRECTIONS)}")
    return (
        _whole("depth", depth),
        None if draws is None else _whole("draws", draws),
        topics if topics is None or isinstance(topics, pd.DataFrame) else _limit(topics),
        _whole("seed", seed, 0),
    )


def _whole(name: str, number: Any, least: int = 1, instead: str = "") -> int:
    try:
        if isinstance(number, bool):
            raise TypeError
        number = operator.index(number)
    except TypeError:
        raise InputError(f"{name} is {number!r}; it must be a whole number{instead}") from None
    if number < least:
        raise InputError(f"{name} is {number}; it must be {least} or more")
    return number


def _limit(topics: Any) -> int:
    return _whole("topics", topics, instead=", or a frame with qid and query")


def check_baseline(baseline: str | None, systems: Sequence[System]) -> None:
    """Refuse a baseline that is not among the systems.

    Args:
        baseline: As for :func:`audit`.
        systems: What is examined.

    Raises:
        InputError: Where no system has that name.
    """
    names = [system.name for system in systems]
    if baseline is not None and baseline not in names:
        raise InputError(f"baseline {baseline!r} is not one of the systems: {', '.join(names)}")


def find_rooms(rooms: str | Sequence[str | Room]) -> list[Room]:
    """Rooms by their names.

    Args:
        rooms: ``'all'``, a name, or names and rooms.

    Returns:
        The rooms, each once.

    Raises:
        InputError: For a name that is not known, or none at all.
    """
    wanted = [rooms] if isinstance(rooms, (str, Room)) else list(rooms or ())
    wanted = list(ROOMS) if wanted == ["all"] else wanted
    found: dict[str, Room] = {}
    for room in wanted:
        if not isinstance(room, Room):
            if room not in ROOMS:
                raise InputError(f"room {room!r} is not known; use 'all' or some of {', '.join(ROOMS)}")
            room = importlib.import_module(ROOMS[room]).ROOM
        found[room.name] = room
    if not found:
        raise InputError(f"no room is named; use 'all' or some of {', '.join(ROOMS)}")
    return list(found.values())


def topics_and_qrels(
    collection: Any, topics: pd.DataFrame | int | None = None, qrels: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Topics and judgements to audit on, checked.

    Args:
        collection: The dataset.
        topics: As for :func:`audit`.
        qrels: As for :func:`audit`.

    Returns:
        Topics (``qid``, ``query``, ...) and judgements (``qid``, ``docno``, ``label``) with string identifiers.

    Raises:
        InputError: Where a column is missing, a query is no text, a qid is repeated, a label is no whole number, a pair has two
            labels, or the two do not overlap.
    """
    limit = None if topics is None or isinstance(topics, pd.DataFrame) else _limit(topics)
    topics = topics if isinstance(topics, pd.DataFrame) else collection.get_topics()
    qrels = collection.get_qrels() if qrels is None else qrels
    topics = with_query(topics) if isinstance(topics, pd.DataFrame) else topics
    for name, frame, columns in (("topics", topics, ["qid", "query"]), ("judgements", qrels, _JUDGEMENT)):
        if not isinstance(frame, pd.DataFrame):
            raise InputError(f"{name}: a {type(frame).__name__} is no frame; give a DataFrame with {', '.join(columns)}")
        missing = [c for c in columns if c not in frame.columns]
        if missing:
            there = ", ".join(map(str, frame.columns))
            remedy = "; rename the column that holds it, as in topics.rename(columns={'title': 'query'})" * (missing == ["query"])
            raise InputError(f"{name}: column {missing[0]!r} is missing; there are {there}{remedy}")
    topics, qrels = with_string_ids(topics), with_string_ids(with_grades(qrels, "audit"))
    check_text(topics, "query", "topics")
    repeated = topics["qid"].duplicated()
    if repeated.any():
        raise InputError(f"topics: qid {topics['qid'][repeated].iloc[0]!r} occurs twice; keep one row a query")
    qrels = qrels.drop_duplicates(_JUDGEMENT, ignore_index=True) if qrels.duplicated(_JUDGEMENT).any() else qrels
    check_pairs(qrels, "judgements")
    check_overlap(topics, qrels, "audit")
    if limit is not None:
        topics = topics[topics["qid"].isin(judged_qids(topics, qrels)[:limit])].reset_index(drop=True)
    return topics, qrels


def named_systems(systems: Any, collection: Any) -> list[System]:
    """Systems from whatever a user gives.

    Args:
        systems: A dictionary from name to system, a list, or one; see :func:`audit`.
        collection: The dataset, where rankers alone find candidates.

    Returns:
        Systems with distinct names.

    Raises:
        InputError: Where there are none, two share a name, or one is nothing that can be examined.
    """
    if isinstance(systems, Mapping):
        named = list(systems.items())
    elif isinstance(systems, (list, tuple)):
        named = list(zip(_labels(systems), systems))
    else:
        named = list(zip(_labels([systems]), [systems]))
    if not named:
        raise InputError("there are no systems to audit; give a dictionary from name to pipeline, or None for the defaults")
    for name, pipeline in named:
        if isinstance(pipeline, pt.Indexer):
            raise InputError(
                f"system {str(name)!r} is an index ({type(pipeline).__name__}), not a retriever; give e.g. index.bm25(), with "
                f"TerrierCollection(index, dataset) as the dataset where its documents are to be the collection"
            )
    found = [System.of(str(name), pipeline, dataset=collection) for name, pipeline in named]
    found = [replace(with_indexer(system, collection), name=str(name)) for system, (name, _) in zip(found, named)]
    names = [system.name for system in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"two systems are named {twice!r}; give a dictionary with a name for each")
    return found


def _labels(systems: Sequence[Any]) -> list[str]:
    """Short names for systems that came without one."""
    found = iter(distinct_names([system for system in systems if isinstance(system, pt.Transformer)]))
    return [
        system.name if isinstance(system, System) else next(found) if isinstance(system, pt.Transformer) else f"run {number}"
        for number, system in enumerate(systems, start=1)
    ]


def _dataset_name(dataset: Any, collection: Any) -> str:
    name = getattr(collection, "name", None)
    if isinstance(name, str):
        return name
    return str(dataset) if isinstance(dataset, (str, Path)) else type(collection).__name__


def _known_judgements(qrels: pd.DataFrame) -> str:
    labels = pd.to_numeric(qrels["label"], errors="coerce").astype("float64")
    return frame_digest(qrels[_JUDGEMENT].assign(label=labels))


def _versions() -> dict[str, str]:
    """Versions of what can move a figure; of Terrier and Java where they were started."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {**found, **terrier_versions()}
