"""Run an audit from textual options: open what they name, run the audit, write its files."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from pyterrier_debias.core.bias import Bias
from pyterrier_debias.core.errors import InputError, check_choice, check_number, one_line
from pyterrier_debias.core.files import check_folder, whole_folder, write_whole
from pyterrier_debias.core.frames import check_overlap
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.core.systems import System
from pyterrier_debias.data.lines import stem
from pyterrier_debias.data.opening import INDEX_FILE, is_index_folder, open_dataset
from pyterrier_debias.data.readers import TIES, read_qrels, read_run, read_topics
from pyterrier_debias.data.terrier import TerrierCollection, check_weighting_model
from pyterrier_debias.gender.audit import GenderBias
from pyterrier_debias.gender.data.query_gender import GenderClassifier
from pyterrier_debias.report.checkpoint import Checkpoint
from pyterrier_debias.report.first_stage import default_systems
from pyterrier_debias.report.inputs import check_baseline, check_settings, find_biases
from pyterrier_debias.report.models import Model, find_model
from pyterrier_debias.report.request import Request
from pyterrier_debias.report.result import HOLDS, RESULT_FILE, AuditResult, check_name
from pyterrier_debias.report.run import audit

if TYPE_CHECKING:
    from pyterrier_debias.rankers.base import Ranker


def perform(
    request: Request, say: Callable[[str], None], fit: Callable[[list[str]], None] = lambda systems: None
) -> AuditResult:
    """Run the audit of a request: first everything that can be checked cheaply, then the audit, then its files.

    Args:
        request: The options.
        say: A function that shows the user a line when the audit begins.
        fit: A function that gets the names of the systems before anything is retrieved or scored; an error in it ends the audit.

    Returns:
        The result, already written to ``out`` if that is set.

    Raises:
        InputError: If the request is invalid; nothing is written then.
        UnwrittenError: If the audit is complete but cannot be written to ``out``; the error holds the audit.
    """
    r = request
    with keeping(r.out) as finished, ExitStack() as stack:
        if r.out is not None:
            check_name(r.out)
            check_folder(r.out, holds=HOLDS, overwrite=r.overwrite)
        elif r.overwrite:
            raise InputError("--overwrite replaces an earlier audit in the --out folder; name that folder with --out")
        if r.checkpoint is not None:
            Checkpoint(r.checkpoint)
            if r.out is not None and r.checkpoint.resolve().is_relative_to(r.out.resolve()):
                told = f"is inside --out {r.out}, which is written at the end; name another folder"
                raise InputError(f"--checkpoint {r.checkpoint} {told}")
        _check_ties(r)
        chosen = with_classifier(find_biases(r.biases), r.gender_classifier)
        check_settings(correction=r.correction, depth=r.depth, draws=r.draws, topics=r.topics, seed=r.seed)
        _check_device(r)
        if r.workers is not None:
            check_number("audit", "workers", r.workers, least=1, whole=True)
        if r.rotations is not None:
            check_number("audit", "rotations", r.rotations, least=2, whole=True)
        models = _models(r)
        _check_terrier(r)
        wmodels = [] if r.terrier is None else r.wmodel or ["BM25"]
        over, where = r.terrier, r.dataset
        collection = open_dataset(where, split=r.split, ties=r.ties) if over is None else _over_index(r, over, wmodels)
        folder = stack.enter_context(scratch_folder())
        systems = default_systems(
            collection, folder, models=models, runs=_runs(r, collection), weighting_models=wmodels, depth=r.depth,
            rotations=r.rotations, workers=r.workers, device=r.device, dtype=r.dtype, verbose=r.verbose,
        )  # fmt: skip
        systems = _told_of_ties(r, systems)
        check_baseline(r.baseline, systems)
        fit([system.name for system in systems])
        _load_models(systems)
        results = None if r.out is None else stack.enter_context(whole_folder(r.out, holds=HOLDS, overwrite=r.overwrite))
        if r.verbose or sys.stderr.isatty():
            say(f"auditing {', '.join(s.name for s in systems)} on {getattr(collection, 'name', r.dataset)} ...")
        result = audit(
            systems, collection, biases=chosen, baseline=r.baseline, split=r.split, topics=r.topics, depth=r.depth,
            draws=r.draws, correction=r.correction, seed=r.seed, checkpoint=r.checkpoint, workers=r.workers, verbose=r.verbose,
        )  # fmt: skip
        result.settings["pipelines"] = True  # the command's systems are in no variable, so code need not convert them
        finished.append(result)
        if results is not None:
            result.write_files(results)
    return result


class UnwrittenError(InputError):
    """Raised if an audit is complete but cannot be written to its folder.

    Attributes:
        result: The audit.
    """

    def __init__(self, told: str, result: AuditResult):
        """
        Args:
            told: The reason, and where its files are instead.
            result: The audit.
        """
        super().__init__(told)
        self.result = result


@contextmanager
def keeping(out: Path | None) -> Iterator[list[AuditResult]]:
    """Save a complete audit to a temporary folder if it cannot be written to its own.

    Args:
        out: The folder to write to.

    Yields:
        A list, to which the caller adds the audit when it is complete.

    Raises:
        UnwrittenError: In place of any error of the block after the list holds an audit.
    """
    finished: list[AuditResult] = []
    try:
        yield finished
    except Exception as error:
        if not finished:
            raise
        told = str(error) if isinstance(error, InputError) else one_line(error)
        raise UnwrittenError(f"the audit is finished, but {told}; {_instead(finished[0], out)}", finished[0]) from error


def _instead(result: AuditResult, out: Path | None) -> str:
    """Write an audit to the first place where that is possible; returns where it is, in words."""
    ways: list[tuple[Callable[[Path], Any], str]] = [
        (result.write_files, "its files are in {folder}"),
        # If a picture cannot be drawn, the figures must not be lost too.
        (lambda folder: write_whole(folder / RESULT_FILE, result.to_json()), "it is in {file}, without pictures and tables"),
    ]
    for write, told in ways:
        for place in dict.fromkeys((None, Path.cwd(), Path.home())):
            try:
                folder = Path(tempfile.mkdtemp(prefix="pyterrier-debias-audit-", dir=place))
            except OSError:
                continue
            try:
                write(folder)
                return told.format(folder=folder, file=folder / RESULT_FILE)
            except Exception:
                shutil.rmtree(folder, ignore_errors=True)
    return "it could not be written elsewhere either, so only what is printed exists"


def _check_device(r: Request) -> None:
    """Refuse a device that this machine lacks, and an unknown number format."""
    from pyterrier_debias.rankers.base import DTYPES

    check_choice("audit", "dtype", r.dtype, DTYPES)
    if r.device is None or r.device == "cpu":
        return
    if not re.fullmatch(r"mps|cuda(:\d+)?", r.device):
        raise InputError(f"device {r.device!r} is not known; use cpu, cuda, cuda:1 or mps")
    import torch

    kind, _, number = r.device.partition(":")
    there = torch.backends.mps.is_available() if kind == "mps" else torch.cuda.device_count() > int(number or 0)
    if not there:
        raise InputError(f"device {r.device!r} is not available; use --device cpu, or leave the option out")


def _models(r: Request) -> list[Model] | None:
    """The models; None for the default one."""
    if r.model_kind is not None and r.model in ([], ["none"]):
        raise InputError(f"--model-kind {r.model_kind} needs --model; name the model too")
    if not r.model:
        return None
    if r.model == ["none"]:
        usual = Request()
        for option in ("rotations", "workers", "dtype"):
            given = getattr(r, option)
            if given != getattr(usual, option):
                raise InputError(f"--{option} {given} applies to models, and --model none excludes them; leave one out")
        return []
    models = [find_model(name, r.model_kind) for name in r.model]
    twice = _repeated(models)
    if twice is not None:
        raise InputError(f"model {twice.source} is named twice; name it once")
    return models


def _repeated(values: Sequence[Any]) -> Any:
    """The first value that occurs twice; None if there is none."""
    return next((value for i, value in enumerate(values) if value in values[:i]), None)


def _runs(r: Request, collection: Any) -> dict[str, pd.DataFrame]:
    """Name to result frame; a run without a name gets that of its file."""
    runs: dict[str, pd.DataFrame] = {}
    for spec in r.run:
        name, equals, path = spec.partition("=")
        if not equals or Path(spec).is_file():
            name, path = stem(spec), spec
        if not name.strip():
            raise InputError(f"--run {spec} has an empty name; give NAME=FILE, or the file alone")
        if name in runs:
            raise InputError(f"two runs are named {name!r}; give each its own name, as in --run first=FILE --run second=FILE")
        if is_index_folder(path):
            raise InputError(f"run {path} is a folder with a Terrier index, not a run; give it as --terrier {path}")
        runs[name] = read_run(path, ties=r.ties)
        check_overlap(runs[name], collection.get_qrels(), f"run {path}")
    return runs


def _check_ties(r: Request) -> None:
    """Refuse an order of ties that cannot apply, since no run is read from a file."""
    check_choice("audit", "ties", r.ties, TIES)
    if r.ties != TIES[0] and (r.terrier is not None or not (r.run or Path(r.dataset).expanduser().is_dir())):
        raise InputError(f"--ties {r.ties} is for runs that are read from files; give --run FILE, or a --dataset with runs")


def _told_of_ties(r: Request, systems: Sequence[System]) -> list[System]:
    """Systems, with a note if tied scores of runs are ordered by the ranks in their files."""
    if r.ties == TIES[0]:
        return list(systems)
    told = "Tied scores of runs are ordered by the ranks in their files."
    return [replace(s, note=f"{s.note} {told}".strip()) if s.ranker is None else s for s in systems]


def with_classifier(biases: Sequence[Bias], folder: Path | None) -> list[Bias]:
    """The biases, with a saved classifier for the gender bias, which is tried on a query before anything is retrieved.

    Args:
        biases: The requested biases.
        folder: The folder that :meth:`GenderClassifier.save` wrote; None leaves the biases unchanged.

    Returns:
        The biases, in the same order.

    Raises:
        InputError: If the gender bias is not among them, or the folder holds no classifier that recognises neutral queries.
    """
    if folder is None:
        return list(biases)
    if all(bias.name != "gender" for bias in biases):
        raise InputError(f"--gender-classifier {folder} is for the gender bias; add gender to --biases")
    classifier = GenderClassifier.load(folder)
    bias = GenderBias(classifier=classifier)
    classifier.probabilities(["who was the first"])
    return [bias if one.name == "gender" else one for one in biases]


def _check_terrier(r: Request) -> None:
    """Check that the options fit ``--terrier`` and that the index exists, without starting Java."""
    if r.terrier is None:
        lone = next((name for name in ("wmodel", "queries", "qrels") if getattr(r, name)), None)
        if lone is not None:
            raise InputError(f"--{lone} needs --terrier INDEX; name the index too")
        return
    if r.run:
        raise InputError("--run and --terrier both provide the first stage; give only one of them")
    if r.dataset == Request().dataset:
        # The planted collection's topics and judgements do not fit files for another index.
        if r.queries is not None and r.qrels is None:
            raise InputError("--queries needs the judgements of its topics; give --qrels FILE, or the --dataset that has them")
        if r.qrels is not None and r.queries is None:
            raise InputError("--qrels needs the topics that it judges; give --queries FILE, or the --dataset that has them")
    twice = _repeated(r.wmodel)
    if twice is not None:
        raise InputError(f"--wmodel {twice} is named twice; name it once")
    if not is_index_folder(r.terrier):
        told = f"there is no Terrier index (a folder with {INDEX_FILE}); name the index's folder"
        raise InputError(f"--terrier {r.terrier}: {told}")


def _over_index(r: Request, index: Path, wmodels: Sequence[str]) -> TerrierCollection:
    """The collection over an index, with its topics and judgements; starts Java."""
    # Files first: they are read in no time, and without Java.
    topics, qrels = None if r.queries is None else read_topics(r.queries), None if r.qrels is None else read_qrels(r.qrels)
    opened = None if topics is not None and qrels is not None else open_dataset(r.dataset, split=r.split)
    collection = TerrierCollection(index, opened, topics=topics, qrels=qrels)
    for model in wmodels:
        check_weighting_model(model)
    return collection


def _load_models(systems: Sequence[System]) -> None:
    """Load the weights of all rankers, so that damaged ones are found before anything is retrieved or scored."""
    for ranker in {id(system.ranker): system.ranker for system in systems if not system.untreated}.values():
        if ranker is not None:
            cast("Ranker", ranker).warm_up()
