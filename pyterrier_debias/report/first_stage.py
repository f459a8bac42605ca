"""The systems that an audit builds from models and runs, or by default: a run or BM25 with PISA, and rerankers."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.spread import Spread
from pyterrier_debias.core.systems import System, with_indexer
from pyterrier_debias.data.planted import PlantedCollection
from pyterrier_debias.position.data.averaging import AverageRotations
from pyterrier_debias.report.models import DEFAULT_MODEL, Model, find_model

#: A character of a word that PISA indexes; it drops all others.
_WORD = re.compile(r"[A-Za-z0-9]")
_INSTALL_PISA = "pip install 'pyterrier-debias[pisa]' (Linux on x86-64)"


def pisa_installed() -> bool:
    """Whether pyterrier_pisa is installed; it is published only for Linux on x86-64."""
    return importlib.util.find_spec("pyterrier_pisa") is not None


class _Quiet:
    """Discards what native code prints, because PISA's progress lines cannot be turned off from Python.

    All threads of a process share its output: the first one that enters redirects it, and the last one that leaves restores it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        #: Copies of the descriptors of output and errors, as they were found.
        self._kept: dict[int, int] = {}

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._send_away()

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            while not self._inside and self._kept:
                target, copy = self._kept.popitem()
                os.dup2(copy, target)
                os.close(copy)

    def _send_away(self) -> None:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if the program was started without it
                stream.flush()
        for target in (1, 2):
            with suppress(OSError):  # not open
                self._kept[target] = os.dup(target)
        with open(os.devnull, "wb") as nowhere:
            for target in self._kept:
                os.dup2(nowhere.fileno(), target)


_QUIET = _Quiet()


@dataclass(frozen=True)
class PisaIndexer:
    """Indexes documents with PISA and retrieves from them with BM25 (k1 = 0.9, b = 0.4, Porter's stemmer).

    Attributes:
        folder: The folder for the indexes, which each get a subfolder; the caller removes it.
        num_results: The number of documents to retrieve per query.
    """

    folder: Path
    num_results: int = 1000

    def __call__(self, documents: Iterable[dict[str, Any]]) -> pt.Transformer:
        """Index the documents.

        Args:
            documents: Dictionaries with ``docno`` and ``text``.

        Returns:
            A retriever. Reuse the object: two PISA retrievers over the same index are not equal.

        Raises:
            InputError: If there are no documents, none of them has a word that PISA reads, or a docno contains white space, at
                which PISA cuts it off.
        """
        from pyterrier_pisa import PisaIndex

        with handed_over(_checked(documents)) as stream:
            # PISA ends the process if it finds no word at all.
            begin: list[dict[str, Any]] = []
            for document in stream:
                begin.append(document)
                if _WORD.search(document["text"]):
                    break
            else:
                if not begin:
                    raise InputError("the collection has no documents to index; check its corpus file")
                raise InputError(
                    "the collection has no words that the built-in BM25 can index (it reads only Latin letters without accents, "
                    "and digits); give a run (--run FILE) or systems of your own"
                )
            with _QUIET:
                index = PisaIndex(tempfile.mkdtemp(prefix="pisa-", dir=self.folder), text_field="text")
                index.index(itertools.chain(begin, stream))
        with _QUIET:
            return index.bm25(num_results=self.num_results)


def _checked(documents: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Documents in the form that PISA reads."""
    for document in documents:
        if document["docno"].split() != [document["docno"]]:
            raise InputError(f"PISA: docno {document['docno']!r} is empty or contains white space; rename it to index it")
        yield {"docno": document["docno"], "text": document["text"]}


def first_stage(dataset: Any, folder: Path, *, depth: int = 100, complete: bool = False) -> System:
    """The retriever that an audit uses if the user names none.

    A collection with a BM25 run of its own is audited on that run, because its passages may be only a sample of the corpus from
    which the run was made; rankings over changed texts then come from indexing the available passages. A collection over a
    Terrier index is searched with Terrier's BM25; see :func:`terrier_stage`. Other collections are indexed.

    Args:
        dataset: The collection.
        folder: An existing folder for indexes.
        depth: The number of candidates that rankers will be given; the retriever returns at least 1000, or this number if larger.
        complete: Whether the corpus is complete, so that indexing it is preferred to a run.

    Returns:
        The first stage.

    Raises:
        InputError: If there is no run and PISA is not available.
    """
    if hasattr(dataset, "indexer_of"):
        return terrier_stage(dataset, "BM25", depth=depth)
    indexer = PisaIndexer(Path(folder), max(1000, depth)) if pisa_installed() else None
    runs = provided(dataset, "get_runs") or {}
    name = next((n for n in runs if n.lower() == "bm25"), next(iter(runs), None))
    if indexer is not None and (complete or name is None):
        note = "BM25 is PISA's (k1 = 0.9, b = 0.4, Porter's stemmer) over the collection's documents."
        return System("BM25", indexer(dataset.get_corpus_iter(verbose=False)), None, indexer, note, indexed=True)
    if name is None:
        raise InputError(
            f"the collection has no run and PISA is not installed, so there are no candidates; {_INSTALL_PISA}, "
            f"or give a run file (--run FILE)"
        )
    if name.lower() != "bm25":
        return System(name, pt.Transformer.from_df(runs[name]), note=f"Candidates come from the collection's run {name!r}.")
    if indexer is None:
        note = f"BM25 is the collection's frozen run, because PISA is not installed ({_INSTALL_PISA})."
    else:
        note = (
            "BM25 is the collection's own run; rankings over changed texts come from PISA's BM25 over the collection's "
            "documents, original and changed."
        )
    return System("BM25", pt.Transformer.from_df(runs[name]), None, indexer, note)


def terrier_stage(collection: Any, model: str, *, depth: int = 100) -> System:
    """A weighting model of Terrier over the index of a collection; every query is tokenised first.

    Args:
        collection: A :class:`~pyterrier_debias.TerrierCollection`, or a view of one.
        model: Terrier's name of the weighting model, such as ``'BM25'``.
        depth: The number of candidates that rankers will be given; the retriever returns at least 1000, or this number if larger.

    Returns:
        The first stage.

    Raises:
        InputError: If Terrier has no such model.
    """
    retriever = collection.retriever(model, num_results=max(1000, depth))
    note = f"{model} is Terrier's, over the collection's index; queries are tokenised first."
    return with_indexer(System(model, retriever, note=note), collection)


def default_systems(
    dataset: Any,
    folder: Path,
    *,
    models: Sequence[Model] | None = None,
    runs: Mapping[str, pd.DataFrame] | None = None,
    weighting_models: Sequence[str] = (),
    depth: int = 100,
    rotations: int | None = None,
    workers: int | None = None,
    **ranker_options: Any,
) -> list[System]:
    """The systems of an audit: each first stage alone, and followed by each model; optionally also by models over rotations.

    Args:
        dataset: The collection.
        folder: An existing folder for indexes; it must last as long as the systems are used.
        models: The models; None means all-MiniLM-L6-v2, an empty list none.
        runs: Result frames by name, used in place of a retriever. Without runs, the first stage is the collection's BM25 run or
            BM25 with PISA; see :func:`first_stage`.
        weighting_models: Terrier's weighting models, over the index of a :class:`~pyterrier_debias.TerrierCollection`; used in
            place of runs.
        depth: The number of candidates that models rerank.
        rotations: Adds a system for each model with its scores averaged over this number of rotations of a passage; None adds
            none.
        workers: The number of processes in which models score; see :class:`~pyterrier_debias.core.spread.Spread`. None uses this
            process.
        ranker_options: Options of the rankers, such as ``device`` and ``dtype``.

    Returns:
        The systems.

    Raises:
        InputError: If there are no candidates, or the default model is not installed.
    """
    if models is None:
        models = [find_model(DEFAULT_MODEL)]
    if weighting_models:
        stages = [terrier_stage(dataset, model, depth=depth) for model in weighting_models]
    elif runs:
        told = "is a run from a file, used unchanged."
        stages = [System(name, pt.Transformer.from_df(run), note=f"{name} {told}") for name, run in runs.items()]
    else:
        stages = [first_stage(dataset, folder, depth=depth, complete=isinstance(dataset, PlantedCollection))]
    short = [model.name for model in models]  # the whole source is the name if two short names are the same
    names = [model.name if short.count(model.name) == 1 else f"{model.kind}:{model.source}" for model in models]
    rankers = [(name, model.ranker(**ranker_options)) for name, model in zip(names, models)]
    if workers is not None:
        rankers = [(name, Spread(ranker, workers, verbose=bool(ranker_options.get("verbose")))) for name, ranker in rankers]
    systems = []
    for stage in stages:
        systems.append(stage)
        for name, ranker in rankers:
            reranked = System(f"{stage.name} >> {name}", stage.candidates >> dataset.text_loader(), ranker)
            systems.append(reranked)
            if rotations is not None:
                averaged = AverageRotations(ranker, rotations)
                treated = f"{reranked.name} ({rotations} rotations)"
                systems.append(replace(reranked, name=treated, ranker=averaged, untreated=reranked.name))
    return systems
