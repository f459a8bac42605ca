"""What the command line's options name: models, runs, devices; all checked before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.frames import check_overlap
from pyterrier_debias.core.systems import System
from pyterrier_debias.data.lines import stem
from pyterrier_debias.data.opening import INDEX_FILE, is_index_folder, open_dataset
from pyterrier_debias.data.readers import read_qrels, read_run, read_topics
from pyterrier_debias.data.terrier import TerrierCollection, check_weighting_model
from pyterrier_debias.report.models import Model, find_model

if TYPE_CHECKING:
    from pyterrier_debias.rankers.base import Ranker

DTYPES = ("float32", "bfloat16", "float16")


def find_models(names: Sequence[str], kind: str | None = None) -> list[Model] | None:
    """The models that ``--model`` names.

    Args:
        names: What was given; empty for the default model, ``['none']`` for no model.
        kind: The kind of those that do not say it themselves.

    Returns:
        The models; None for the default.

    Raises:
        InputError: For a model that is not there, or is named twice.
    """
    if not names:
        return None
    if list(names) == ["none"]:
        return []
    models = [find_model(name, kind) for name in names]
    twice = next((m for i, m in enumerate(models) if m in models[:i]), None)
    if twice is not None:
        raise InputError(f"model {twice.source} is named twice; name it once")
    return models


def read_runs(specs: Sequence[str], collection: Any) -> dict[str, pd.DataFrame]:
    """The runs that ``--run`` names.

    Args:
        specs: ``FILE`` or ``NAME=FILE`` each.
        collection: The dataset whose topics they are for.

    Returns:
        Name to result frame; a run without a name is called by its file.

    Raises:
        InputError: For a file that is missing or wrong, a name that is used twice, or qids that are not judged.
    """
    runs: dict[str, pd.DataFrame] = {}
    for spec in specs:
        name, equals, path = spec.partition("=")
        if not equals or Path(spec).is_file():
            name, path = stem(spec), spec
        if name in runs:
            raise InputError(f"two runs are named {name!r}; name them apart, as in --run first=FILE --run second=FILE")
        if is_index_folder(path):
            raise InputError(f"run {path} is a folder with a Terrier index, not a run; give it as --terrier {path}")
        runs[name] = read_run(path)
        check_overlap(runs[name], collection.get_qrels(), f"run {path}")
    return runs


def terrier_index(
    index: Path | None, *, wmodel: Sequence[str], queries: Path | None, qrels: Path | None, run: Sequence[str]
) -> Path | None:
    """The index that ``--terrier`` names, once the options beside it fit; Java is not started.

    Args:
        index: The folder; None where there is none.
        wmodel: ``--wmodel``.
        queries: ``--queries``.
        qrels: ``--qrels``.
        run: ``--run``.

    Returns:
        The folder.

    Raises:
        InputError: For options that belong to ``--terrier`` without it, runs beside it, a model that is named twice, or a folder
            without an index.
    """
    if index is None:
        lone = next((name for name, given in (("wmodel", wmodel), ("queries", queries), ("qrels", qrels)) if given), None)
        if lone is not None:
            raise InputError(f"--{lone} belongs to --terrier INDEX; name the index, too")
        return None
    if run:
        raise InputError("--run and --terrier both name what retrieves; give one of them")
    twice = next((model for i, model in enumerate(wmodel) if model in wmodel[:i]), None)
    if twice is not None:
        raise InputError(f"--wmodel {twice} is named twice; name it once")
    if not is_index_folder(index):
        raise InputError(f"--terrier {index}: no Terrier index is there (a folder with {INDEX_FILE}); name the index's folder")
    return index


def terrier_collection(
    index: Path, dataset: str, *, split: str | None, queries: Path | None, qrels: Path | None, wmodel: Sequence[str]
) -> TerrierCollection:
    """The collection over an index, with its topics and judgements; Java starts.

    Args:
        index: The folder.
        dataset: ``--dataset``; not opened where both files are given.
        split: ``--split``.
        queries: ``--queries``.
        qrels: ``--qrels``.
        wmodel: ``--wmodel``.

    Returns:
        The collection.

    Raises:
        InputError: For files that are wrong, topics and judgements that do not belong to the index, an unknown weighting model,
            or where Java is missing.
    """
    # Files first: they are read in no time, and without Java.
    own_topics, own_qrels = None if queries is None else read_topics(queries), None if qrels is None else read_qrels(qrels)
    opened = None if queries is not None and qrels is not None else open_dataset(dataset, split=split)
    collection = TerrierCollection(index, opened, topics=own_topics, qrels=own_qrels)
    for model in wmodel:
        check_weighting_model(model)
    return collection


def load_models(systems: Sequence[System]) -> None:
    """Load the weights of all rankers, so that damaged ones are found out before anything is retrieved or scored.

    Args:
        systems: Systems whose rankers are rankers of this package.

    Raises:
        InputError: Where a model cannot be loaded.
    """
    for ranker in {id(system.ranker): system.ranker for system in systems}.values():
        if ranker is not None:
            cast("Ranker", ranker).warm_up()


def ranker_options(device: str | None, dtype: str, verbose: bool) -> dict[str, Any]:
    """Options that every ranker takes.

    Args:
        device: ``'cpu'``, ``'cuda'``, ``'cuda:1'``, ``'mps'``; None for the fastest there is.
        dtype: One of :data:`DTYPES`.
        verbose: Whether to show progress.

    Returns:
        The options.

    Raises:
        InputError: For a device that this machine lacks, or an unknown number format.
    """
    check_choice("audit", "dtype", dtype, DTYPES)
    if device is not None:
        if not re.fullmatch(r"cpu|mps|cuda(:\d+)?", device):
            raise InputError(f"device {device!r} is not known; use cpu, cuda, cuda:1 or mps")
        if device != "cpu":
            _check_accelerator(device)
    return {"device": device, "dtype": dtype, "verbose": verbose}


def _check_accelerator(device: str) -> None:
    import torch

    kind, _, number = device.partition(":")
    there = torch.backends.mps.is_available() if kind == "mps" else torch.cuda.device_count() > int(number or 0)
    if not there:
        raise InputError(f"device {device!r} is not there; use --device cpu, or leave the option out")
