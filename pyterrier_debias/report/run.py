"""The audit: every bias on every system for which it can be examined, in one table of findings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.bias import (
    Bias,
    Figure,
    Finding,
    attributions_frame,
    clusters_of,
    corrected,
    findings_frame,
    per_query_frame,
)
from pyterrier_debias.core.decomposition import without_cutoff
from pyterrier_debias.core.errors import InputError, check_number, one_line, trace, visible
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.foreign_memory import ForeignMemory
from pyterrier_debias.core.frames import frame_digest
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.core.spread import Spread
from pyterrier_debias.core.stage import all_stages
from pyterrier_debias.core.systems import BrokenSystemError, Context, System, UnfitSystemError, lacking, said_together
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.core.terrier import terrier_versions
from pyterrier_debias.data.base import STORE_WHOLE, Collection, cut_texts
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.report.baseline import against_baseline
from pyterrier_debias.report.checkpoint import Checkpoint, Kept, fingerprint, made_from, sample_scores
from pyterrier_debias.report.cross_bias import ALL, CROSS_BIASES, missing_reason
from pyterrier_debias.report.inputs import (
    JUDGEMENT,
    check_baseline,
    check_settings,
    find_biases,
    named_systems,
    topics_and_qrels,
)
from pyterrier_debias.report.result import AuditResult
from pyterrier_debias.report.tables import FAILED_COLUMNS, SKIPPED_COLUMNS
from pyterrier_debias.report.treatments import are_pipelines, rankers_as_code, retrievers_of, stages_of, treated_by
from pyterrier_debias.report.verdict import FEW_UNANSWERED, UNANSWERED
from pyterrier_debias.training.report import package_versions

#: How many scores of rankers of other packages are remembered in all (160 MB), and at least of each.
_REMEMBERED, _LEAST_REMEMBERED = 8_000_000, 1_000_000
#: How many texts of a system are checked for truncation.
_LOOKED_AT = 1000
#: The cut-off of the biases' figures.
_CUTOFF = 10

_PACKAGES = (
    "pyterrier-debias", "pyterrier", "ir-measures", "numpy", "pandas", "torch", "transformers", "sentence-transformers",
    "lemminflect", "nltk", "spacy", "textblob", "wordfreq",
)  # fmt: skip


@gathered()
def audit(
    systems: Any = None,
    dataset: Any = "planted",
    *,
    biases: str | Bias | Sequence[str | Bias] = "all",
    baseline: str | None = None,
    split: str | None = None,
    topics: pd.DataFrame | int | None = None,
    qrels: pd.DataFrame | None = None,
    depth: int = 100,
    draws: int | None = None,
    correction: str = "two-step",
    seed: int = 0,
    checkpoint: str | Path | None = None,
    workers: int | None = None,
    verbose: bool = False,
) -> AuditResult:
    """Examine systems for bias.

    If a bias cannot be examined for a system or the collection, the reason is listed. A bias that fails is reported, and the
    others finish; a system that raises an error is reported, and the others are examined. Retrieval and scoring that biases
    share run once.

    Args:
        systems: A dictionary from name to system, a list of systems, or one system; each a PyTerrier pipeline, a result
            frame, a ranker alone (it reranks the collection's first run), or a
            :class:`~pyterrier_debias.core.systems.System`. None means BM25 and BM25 followed by all-MiniLM-L6-v2.
        dataset: ``'planted'`` (the planted collection), a folder, an ``irds:`` id, or any dataset object; see
            :func:`pyterrier_debias.open_dataset`.
        biases: ``'all'``, a name or names (``'position'``, ``'survivorship'``, ``'gender'``, ``'linguistic'``, ``'pooling'``;
            not included in ``'all'``: ``'source'``, ``'length'``, ``'order'``), or objects of :class:`~pyterrier_debias.Bias`.
        baseline: The name of one of the systems; the others are compared with it, query by query.
        split: Which topics and judgements of the dataset; None means its default.
        topics: Topics to use instead of the dataset's, or the number of its judged topics to use, from the first.
        qrels: Judgements to use instead of the dataset's: ``qid``, ``docno``, ``label``; one label per pair.
        depth: The number of candidates per query that a ranker is given.
        draws: How many random variants of each text are drawn; None uses the bias' own default.
        correction: How p values are corrected: ``'two-step'`` (the primary tests among themselves; the further tests of a bias
            only where its primary test rejected, see :func:`pyterrier_debias.core.bias.corrected`), or all tests of the table
            together: ``'holm'``, ``'bonferroni'`` or ``'fdr_bh'``.
        seed: Seed of all random choices.
        checkpoint: A folder in which the findings of finished biases are saved, and until the audit ends scores, each minute. The
            same call with the same folder resumes an interrupted audit: finished biases are read, and unfinished and failed ones
            are run, without scoring again what was scored. Biases may be added; any other
            difference (systems, what they retrieve and how they score, the collection, topics, judgements, depth, draws, seed)
            is an error. None saves nothing. The folder is never removed.
        workers: In how many processes rankers score, on this machine or a cluster of Ray, with a GPU each where there are as
            many; needs the extra ``ray``. None: in this one. Findings are the same. See
            :class:`~pyterrier_debias.core.spread.Spread`.
        verbose: Whether to show progress.

    Returns:
        The result.

    Raises:
        InputError: If the input is invalid: an unknown bias, dataset or baseline, non-numeric settings, topics and judgements
            that do not overlap, a pair with two labels, or nothing that could be examined for any bias. If a bias rejects its
            input, or a probe refuses one system, while others can be examined, the reason is listed under what was not examined.

    Example:
        ::

            audit()
            audit({"mine": bm25 >> texts >> my_ranker}, "irds:beir/nfcorpus/test", depth=50)
            audit({"BM25": bm25, "mine": bm25 >> texts >> my_ranker}, dataset, baseline="BM25").save("audit-results")

    When not to use it: to choose between rankers by their effectiveness (that is what ``pt.Experiment`` is for), or as proof
    that a ranker has no bias: each is looked for with one kind of probe, on the topics that are given.
    """
    started = time.perf_counter()
    chosen = find_biases(biases)
    depth, draws, topics, seed = check_settings(correction=correction, depth=depth, draws=draws, topics=topics, seed=seed)
    if workers is not None:
        check_number("audit", "workers", workers, least=1, whole=True)
    own_topics = isinstance(topics, pd.DataFrame)
    kept = None if checkpoint is None else Checkpoint(checkpoint)
    collection = open_dataset(dataset, split=split)
    all_topics, all_qrels = topics_and_qrels(collection, topics, qrels)
    with ExitStack() as stack, scratch_folder() as folder:
        if systems is None:
            from pyterrier_debias.report.first_stage import default_systems

            examined = default_systems(collection, folder, depth=depth, verbose=verbose)
        else:
            examined = named_systems(systems, collection)
        limit = max(_LEAST_REMEMBERED, _REMEMBERED // len(examined))
        examined = [_indexing_within(_own(system, workers, verbose, stack, limit), str(folder)) for system in examined]
        baseline = None if baseline is None else visible(baseline)
        check_baseline(baseline, examined)
        context = Context(
            examined, collection, all_topics, all_qrels, depth=depth, seed=seed, draws=draws, verbose=verbose
        )
        if kept is not None:
            stack.enter_context(kept.alone())
            by_name = {system.name: system for system in examined}
            about = fingerprint(context, dataset=_dataset_name(dataset, collection), split=split)
            kept.claim(about, lambda name: sample_scores(by_name[name], context))
            context = replace(context, systems=[kept.scores(system) for system in examined])
        with _remembering(examined):
            seen = _visit(chosen, context, verbose, kept)
        if kept is not None and not seen.failed:  # what failed is run again by the next call
            kept.forget_scores()
        unrepeatable = [one for system in examined for one in _unrepeatable(system, kept)]
        notes = _notes(examined, context, unrepeatable, _of_queries(context, kept))
        unanswered = [one for system in context.systems for one in _unanswered(system, context, kept)]
    findings, skipped, failed = seen.findings + unrepeatable, seen.skipped, seen.failed
    if not findings and not failed:
        if seen.refused:
            raise seen.refused[0]
        raise InputError(_nothing_examined(dataset, collection, chosen, skipped))
    if baseline is not None:
        findings += against_baseline(findings, baseline)
    findings += unanswered  # counts of queries, which are not compared with the baseline's
    settings = _settings(
        context, examined, _dataset_name(dataset, collection), chosen, baseline=baseline, correction=correction, notes=notes,
        split=split if split is not None or own_topics or qrels is not None else _default_split(collection), started=started,
    )  # fmt: skip
    settings["pipelines"] = are_pipelines(systems, examined)
    per_query = per_query_frame(findings)
    return AuditResult(
        findings_frame(corrected(findings, correction, baseline)),
        per_query,
        pd.DataFrame(skipped, columns=SKIPPED_COLUMNS),
        pd.DataFrame(failed, columns=FAILED_COLUMNS),
        settings,
        tuple(seen.figures),
        _words(all_topics, per_query),
        attributions_frame(findings),
        clusters_of(findings),
    )


def _notes(
    systems: Sequence[System], context: Context, unrepeatable: Sequence[Finding], of_queries: Sequence[str]
) -> list[str]:
    """What a reader must know besides the findings: about the systems, and about how they and the judgements fit together."""
    notes = [
        *(system.note for system in systems if system.note),
        *(one.text for one in unrepeatable),
        *(note for system in systems for note in (_batch_note(system), _cut_note(system, context)) if note),
        *_depth_notes(systems, context.depth),
        *_judgement_notes(context),
        *of_queries,
    ]
    return said_together(notes, systems)


def _of_queries(context: Context, kept: Checkpoint | None) -> list[str]:
    """Remarks about the systems and their queries: of this run, and of an earlier one whose rankers did not run again."""
    if kept is None:
        return context.notes
    name, made = "notes", {"systems": [[system.name, None] for system in context.systems]}
    before = kept.kept(name, made)
    earlier = [] if before is None else list(before.notes)
    notes = list(dict.fromkeys([*earlier, *context.notes]))
    if notes != earlier:
        kept.keep(name, Kept([], notes=notes), made)
    return notes


def _settings(
    context: Context,
    systems: Sequence[System],
    dataset: str,
    biases: Sequence[Bias],
    *,
    baseline: str | None,
    correction: str,
    notes: list[str],
    split: str | None,
    started: float,
) -> dict[str, Any]:
    """How the audit was made, as the result stores it; ``systems`` are those without the checkpoint's wrappers."""
    judged = judged_qids(context.topics, context.qrels)
    return {
        "dataset": visible(dataset),
        "split": split,
        "systems": [system.name for system in systems],
        "rankers": rankers_as_code(systems),
        "retrievers": retrievers_of(systems),
        "treated": treated_by(systems),
        "untreated": {system.name: visible(system.untreated) for system in systems if system.untreated},
        "biases": [bias.name for bias in biases],
        "baseline": baseline,
        "topics": len(context.topics),
        "judged_topics": len(judged),
        "judged_qids": frame_digest(pd.DataFrame({"qid": judged})),
        "judgements": _known_judgements(context.qrels),
        "depth": context.depth,
        "draws": context.draws,
        "seed": context.seed,
        "correction": correction,
        "notes": [visible(note) for note in notes],
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - started, 1),
        "versions": _versions(),
    }


def _own(system: System, workers: int | None, verbose: bool, stack: ExitStack, limit: int) -> System:
    """A system as this audit examines it: with a visible name, its ranker in workers if requested, and its own memory."""
    system = replace(system, name=visible(system.name))
    ranker = system.ranker
    if ranker is None:
        return system
    if workers is not None and not any(isinstance(stage, Spread) for stage in all_stages(ranker)):
        whole, cut = without_cutoff(ranker)
        spread = Spread(whole, workers, verbose=verbose)
        stack.callback(spread.forget)  # the workers stay for the next audit, without this one's rankers
        ranker = spread if cut is None else spread % cut
    return replace(system, ranker=ranker, memory=ForeignMemory(limit))


def _unrepeatable(system: System, kept: Checkpoint | None) -> list[Finding]:
    """A finding if a ranker gave the same rows different scores, in this run or before the audit was resumed; else none."""
    memory = system.memory
    if memory is None or not memory.varying:
        return _of_earlier("repeatability", system, kept)
    text = (
        f"{system.name}: the ranker is not deterministic ({memory.varying} of {memory.repeated} rows got a different score when "
        f"they were scored again), so probes also measure its randomness; fix the ranker's seed or turn sampling off."
    )
    share, how = memory.varying / memory.repeated, "share of rows with a different score; n: rows; not tested"
    found = Finding(
        system.name, "repeatability", "scores", "scored twice", share, n=memory.repeated, convention=how, text=text
    )
    return _kept(found, kept)


def _unanswered(system: System, context: Context, kept: Checkpoint | None) -> list[Finding]:
    """A finding if a system has no results for many judged queries, in this run or before the audit was resumed; else none.

    Such queries count as 0 whatever the bias, so they hide it.
    """
    qids, without = judged_qids(context.topics, context.qrels), context.unanswered(system)
    missing = [] if without is None else [qid for qid in qids if qid in without]
    if len(missing) <= FEW_UNANSWERED * len(qids):
        return _of_earlier(UNANSWERED, system, kept)
    text = (
        f"{system.name}: {len(missing)} of {len(qids)} judged queries have no results; they count as 0 whatever the bias, so "
        f"figures over all queries say little. Repair the retriever, or leave these topics out."
    )
    values = pd.Series(1.0, index=missing).reindex(qids, fill_value=0.0)
    found = Finding(
        system.name, UNANSWERED, "share of queries", "without results", float(values.mean()), n=len(qids),
        convention="judged queries; not tested", text=text, values=values,
    )  # fmt: skip
    return _kept(found, kept)


def _of_earlier(name: str, system: System, kept: Checkpoint | None) -> list[Finding]:
    """The finding on a system that an earlier run kept, whose ranker does not run again; empty if there is none."""
    before = None if kept is None else kept.kept(name, {"systems": [[system.name, None]]})
    return [] if before is None else list(before.findings)


def _kept(found: Finding, kept: Checkpoint | None) -> list[Finding]:
    """A finding on a system, kept for a resumed audit."""
    if kept is not None:
        kept.keep(found.bias, Kept([found]), {"systems": [[found.system, None]]})
    return [found]


def _batch_note(system: System) -> str:
    """A note if the scores of a system are known to depend on the rest of the batch; otherwise empty.

    This is known of the rerankers of pyterrier_t5, which pad between the parts of their prompts. The package is not imported.
    """
    theirs: list[Any] = [one for one in stages_of(system) if type(one).__module__.split(".")[0] == "pyterrier_t5"]
    one = next((one for one in theirs if one.batch_size > 1), None)
    if one is None:
        return ""
    kind = type(one).__name__
    ours = "DuoT5Reranker" if kind.startswith("Duo") else "T5Reranker.from_pyterrier_t5"
    return (
        f"{system.name}: {kind} scores {one.batch_size} prompts per batch and pads inside them, so a score depends on the other "
        f"prompts in its batch, and a probe may report that as bias; use batch_size=1, or {ours}, whose scores do not."
    )


def _cut_note(system: System, context: Context) -> str:
    """A note if the texts that a system reads seem to be truncated; otherwise empty."""
    if system.ranker is None and system.indexer is not None and getattr(context.dataset, "longest_text", None) is not None:
        documents = islice(context.dataset.get_corpus_iter(verbose=False), _LOOKED_AT)
        texts = pd.DataFrame([{"docno": document["docno"], "text": document["text"]} for document in documents])
        read, then = "in its index", ", and the index over changed texts is built from them"
    else:
        try:
            texts = context.candidates(system)
        except (BrokenSystemError, InputError):  # the biases have said so
            return ""
        if "text" not in texts.columns:
            return ""
        texts = texts.loc[~texts["docno"].duplicated(), ["docno", "text"]].head(_LOOKED_AT)
        if not all(isinstance(text, str) for text in texts["text"]):
            return ""
        read, then = "that it reads", ""
    cut = int(cut_texts(texts, context.dataset).sum())
    told = f"{system.name}: {cut} of {len(texts)} texts {read} seem to be truncated{then}; {STORE_WHOLE}."
    return told if cut else ""


def _judgement_notes(context: Context) -> list[str]:
    """Notes if labels are below 0, and if no system retrieved a judged document, so that all figures of effectiveness are 0."""
    below = int((context.qrels["label"] < 0).sum())
    notes = []
    if below:
        notes.append(
            f"{below:,} of {len(context.qrels):,} labels are below 0: their documents count as judged and not relevant, like "
            f"spam. If such a label means that nobody judged the document, as in sampled judgements, remove these rows."
        )
    return notes + _unknown_documents(context)


def _unknown_documents(context: Context) -> list[str]:
    """A note if no system retrieved a judged document, in which case all figures of effectiveness are 0."""
    judged = set(context.qrels["docno"])
    found = None
    for system in context.systems:
        try:
            docnos = context.candidates(system)["docno"]
        except (BrokenSystemError, InputError):  # the biases have said so
            continue
        if docnos.isin(judged).any():
            return []
        found = docnos.iloc[0]
    if found is None:
        return []
    example = context.qrels["docno"].iloc[0]
    return [
        f"No judged docno (e.g. {example!r}) is among the results of any system (e.g. {found!r}), so measures of effectiveness "
        f"are 0 and mean nothing; check that the judgements belong to this collection."
    ]


def _depth_notes(systems: Sequence[System], depth: int) -> list[str]:
    """A note if rankers are given fewer documents than the cut-off of the figures."""
    if depth >= _CUTOFF or all(system.ranker is None for system in systems):
        return []
    return [f"Rankers are given only {depth} candidates per query, so their figures @{_CUTOFF} cover only {depth} documents."]


def _indexing_within(system: System, folder: str) -> System:
    """A system whose indexes are written to the audit's own folder, which is removed however the audit ends."""
    within = getattr(system.indexer, "within", None)
    return system if within is None else replace(system, indexer=within(folder))


def _words(topics: pd.DataFrame, per_query: pd.DataFrame) -> dict[str, str]:
    """The words of the queries that have a value."""
    named = set(per_query["qid"])
    return {qid: query for qid, query in zip(topics["qid"], topics["query"]) if qid in named}


@contextmanager
def _remembering(systems: Sequence[System]) -> Iterator[None]:
    """Let rankers that can do so remember scores or encodings of texts: biases rank the same documents repeatedly."""
    with ExitStack() as stack:
        rankers = (stage for system in systems if system.ranker is not None for stage in all_stages(system.ranker))
        for stage in {id(stage): stage for stage in rankers if hasattr(stage, "remembering")}.values():
            stack.enter_context(stage.remembering())
        yield


@dataclass(frozen=True)
class _Seen:
    """What was found, and what could not be examined; ``refused`` are the errors of biases that reject their input."""

    findings: list[Finding] = field(default_factory=list)
    figures: list[tuple[str, Figure]] = field(default_factory=list)
    skipped: list[dict[str, str]] = field(default_factory=list)
    failed: list[dict[str, str]] = field(default_factory=list)
    refused: list[InputError] = field(default_factory=list)

    def add(self, bias: str, examined: Kept) -> None:
        """Add what was found about a bias."""
        self.findings.extend(examined.findings)
        self.figures.extend((bias, figure) for figure in examined.figures)

    def refuse(self, bias: str, context: Context, error: InputError) -> None:
        """Note that a bias rejects its input, whatever the system."""
        self.refused.append(error)
        reason = " ".join(str(error).split())
        self.skipped.extend({"bias": bias, "system": system.name, "reason": reason} for system in context.systems)


def _visit(biases: Sequence[Bias], context: Context, verbose: bool, checkpoint: Checkpoint | None = None) -> _Seen:
    """Examine each bias on the systems that allow it, then figures across biases; read what a checkpoint has."""
    seen = _Seen()
    ran: list[str] = []
    progress = pt.tqdm(biases, desc="biases", unit="bias", disable=not verbose)
    for bias in progress:
        progress.set_postfix_str(bias.name)
        with _told(bias.name, seen.failed):
            able = []
            for system in context.systems:
                reason = bias.needs(system, context.asked)
                if reason is None:
                    able.append(system)
                else:
                    seen.skipped.append({"bias": bias.name, "system": system.name, "reason": reason})
            examined = _of_those_that_work(bias, replace(context, systems=able), seen, checkpoint)
            if examined is not None:
                ran.append(bias.name)
                seen.add(bias.name, examined)
    asked = {bias.name for bias in biases}
    for cross in (cross for cross in CROSS_BIASES if asked.issuperset(cross.biases)):
        with _told(cross.name, seen.failed):
            reason = missing_reason(cross, ran, context)
            if reason is None:
                examined = _of_those_that_work(cross, context, seen, checkpoint)
                if examined is not None:
                    seen.add(cross.biases[0], examined)
            elif set(cross.biases) & set(ran):  # where none of them ran, they have said why
                seen.skipped.append({"bias": cross.name, "system": ALL, "reason": reason})
    return seen


def _of_those_that_work(bias: Bias, context: Context, seen: _Seen, checkpoint: Checkpoint | None) -> Kept | None:
    """Examine the systems that neither raise an error nor are refused; the others are noted and left out."""
    while context.systems:
        try:
            return _kept_or_made(bias, context, checkpoint)
        except UnfitSystemError as error:
            seen.skipped.append({"bias": bias.name, "system": error.system, "reason": str(error)})
            left_out = error.system
        except BrokenSystemError as error:
            _note(bias.name, error, seen.failed)
            left_out = error.system
        except pt.validate.InputValidationError as error:
            seen.refuse(bias.name, context, InputError(f"{bias.name}: {lacking(error)}"))
            return None
        except InputError as error:
            found = _at_fault(bias, context)
            if found is None:  # the input of this bias is at fault, whatever the system
                seen.refuse(bias.name, context, error)
                return None
            seen.skipped.append({"bias": bias.name, "system": found[0], "reason": found[1]})
            left_out = found[0]
        context = replace(context, systems=[s for s in context.systems if s.name != left_out])
    return None


def _at_fault(bias: Bias, context: Context) -> tuple[str, str] | None:
    """The first of several systems on which alone a bias cannot be examined, and why; None if that holds for none or for all."""
    told: dict[str, str] = {}
    for system in context.systems if len(context.systems) > 1 else ():
        try:
            _kept_or_made(bias, replace(context, systems=[system]), None)
        except InputError as error:
            told[system.name] = str(error)
        except Exception:  # it is noted when the others have been found to work
            continue
    return next(iter(told.items())) if 0 < len(told) < len(context.systems) else None


def _note(name: str, error: BrokenSystemError, failed: list[dict[str, str]]) -> None:
    cause = error if error.__cause__ is None else error.__cause__
    failed.append({"bias": name, "system": error.system, "error": str(error), "traceback": trace(cause)})


def _kept_or_made(bias: Bias, context: Context, checkpoint: Checkpoint | None) -> Kept:
    """Findings from the checkpoint, or computed and stored there."""
    made = None if checkpoint is None else made_from(bias, context.systems)
    kept = None if checkpoint is None else checkpoint.kept(bias.name, made)
    if kept is not None:
        return kept
    examined = Kept(list(bias.examine(context)), list(bias.figures(context)))
    if checkpoint is None:
        return examined
    for system in context.systems:  # first: a ranker is not asked again for what the checkpoint holds
        _unrepeatable(system, checkpoint)
    return checkpoint.keep(bias.name, examined, made)


@contextmanager
def _told(name: str, failed: list[dict[str, str]]) -> Iterator[None]:
    """Record a defect, so that the results of other biases are not lost; errors of invalid input are raised."""
    try:
        yield
    except pt.validate.InputValidationError as error:
        raise InputError(f"{name}: {lacking(error)}") from error
    except InputError:
        raise
    except BrokenSystemError as error:
        _note(name, error, failed)
    except Exception as error:
        failed.append({"bias": name, "system": "", "error": one_line(error), "traceback": trace(error)})


def _nothing_examined(dataset: Any, collection: Any, chosen: Sequence[Bias], skipped: Sequence[Mapping[str, str]]) -> str:
    """Why nothing was examined: each reason once, after the biases that gave it."""
    biases: dict[str, dict[str, None]] = {}
    for one in skipped:
        biases.setdefault(one["reason"], {})[one["bias"]] = None
    silent = {bias.name: None for bias in chosen if bias.name not in {one["bias"] for one in skipped}}
    if silent:
        biases["examine() returned no findings"] = silent
    reasons = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in biases.items())
    where, told = f"the collection {_dataset_name(dataset, collection)}", ""
    if isinstance(dataset, str) and dataset == "planted":
        where, told = "the planted collection", "dataset='planted', the default; "
    return f"audit: no bias can be examined for any of the systems on {where} ({told}{reasons})"


def _default_split(collection: Any) -> str | None:
    """The default split of a collection that has several; None if there is only one.

    Topics called ``full`` are not another split: they are the complete topics, of which a split may leave some out.
    """
    if not isinstance(collection, Collection):
        return None
    return collection.split if len(collection.topics.keys() - {"full"}) > 1 else None


def _dataset_name(dataset: Any, collection: Any) -> str:
    name = getattr(collection, "name", None)
    if isinstance(name, str):
        return name
    return str(dataset) if isinstance(dataset, (str, Path)) else type(collection).__name__


def _known_judgements(qrels: pd.DataFrame) -> str:
    labels = pd.to_numeric(qrels["label"], errors="coerce").astype("float64")
    return frame_digest(qrels[JUDGEMENT].assign(label=labels))


def _versions() -> dict[str, str]:
    """Versions of everything that can change a figure; of Terrier and Java only if they were started."""
    return {**package_versions(_PACKAGES), **terrier_versions()}
