"""Opening datasets of all kinds: planted, from ir_datasets, from a folder or file, or an object of the user."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, overload

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.dataset import Dataset, provided
from pyterrier_debias.core.errors import InputError, check_choice, kind_of
from pyterrier_debias.core.frames import check_overlap, ranked, with_query
from pyterrier_debias.data.answers import reader_of
from pyterrier_debias.data.base import Collection
from pyterrier_debias.data.irds import IRDSCollection, id_of_split
from pyterrier_debias.data.lines import stem
from pyterrier_debias.data.readers import TIES, read_corpus, read_qrels, read_run, read_table, read_topics

# What a folder's files are called, with or without .gz. Of each list the first pattern that fits any file counts.
CORPUS = ("corpus.jsonl", "corpus.tsv", "passages.tsv", "collection.tsv", "corpus*.jsonl", "*passages*.tsv", "doc*.trec")
TOPICS = ("queries*.jsonl", "queries*.tsv", "topics*", "query*.trec")
QRELS = ("qrels/*.tsv", "qrels/*.txt", "qrels*")
RUNS = ("runs/*", "run.*", "*.run")

#: The file that every Terrier index on disk has.
INDEX_FILE = "data.properties"

#: Tables with a header that contain a run: for each file, the run's name and its columns for qid, docno and rank (from 1).
RUN_TABLES = {"candidates.tsv": ("bm25", "qid", "pid", "bm25_rank")}


@overload
def open_dataset(spec: Collection, split: str | None = None, *, ties: str = "docno") -> Collection: ...


@overload
def open_dataset(
    spec: str | Path | IRDSCollection, split: str | None = None, *, ties: str = "docno"
) -> Collection | IRDSCollection: ...


@overload
def open_dataset(spec: Any, split: str | None = None, *, ties: str = "docno") -> Dataset: ...


def open_dataset(spec: Any, split: str | None = None, *, ties: str = "docno") -> Dataset:
    """Open a dataset by name, path or object; the result has the interface of :class:`Dataset`.

    - ``'planted'``: the planted collection, :class:`PlantedCollection` with its defaults, or with other options:
      ``'planted/seed=3,topics=20'``.
    - ``'irds:<id>'``: a dataset of ``ir_datasets``, such as ``irds:beir/nfcorpus/test``. Nothing is downloaded before it is used.
    - A folder: a corpus (``corpus.jsonl``, ``passages.tsv``, ``collection.tsv`` or ``doc*.trec``), topics (``queries*.jsonl``,
      ``queries*.tsv``, ``topics*``), judgements (``qrels/*.tsv`` or ``qrels*``) and, if there are any, runs (``runs/*``,
      ``run.*``, ``*.run``); or SQuAD JSON, marked spans, or MS MARCO QnA. Every file may be gzipped (``.gz``).
    - A file of SQuAD JSON, marked spans, or MS MARCO QnA.
    - An object that has a dataset's methods. It is returned unchanged (with a split, as a view; that of an opened folder has the
      runs of the split), or, if its identifiers are not strings, as a copy in memory with string identifiers.

    In a folder, the word between a file's name and its ending is the split: ``topics.dl19-passage.tsv`` and
    ``qrels.dl19-passage.txt`` make the split ``dl19``, ``runs/dl19.bm25.trec`` is its run ``bm25``; ``qrels/test.tsv`` makes
    ``test``. One file of topics with several of judgements gives each split the topics that are judged in it, and
    vice versa. Each of several files with answers is a separate collection and split, selected by its file's name or an
    unambiguous part of it.

    Args:
        spec: What to open.
        split: The default split of ``get_topics()``, ``get_qrels()`` and ``get_runs()``. None takes ``test`` if there is one,
            otherwise the first in alphabetical order (of files with answers, the last with ``dev`` in its name). With an
            ``irds:`` id, give its last part: ``irds:beir/nfcorpus`` and ``test``.
        ties: How tied scores of a folder's runs are ordered: ``'docno'`` or ``'rank'``, see :func:`read_run`. Other datasets
            have only the ranks of their scores.

    Returns:
        The dataset.

    Raises:
        InputError: If nothing of that name exists, a file is missing or invalid (with its line), the split is unknown, topics,
            judgements and corpus do not belong together, or ``ties`` is invalid.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> _ = (folder / "collection.tsv").write_text("d1\\twater boils at 100 degrees\\n")
        >>> _ = (folder / "queries.tsv").write_text("q1\\twhen does water boil\\n")
        >>> _ = (folder / "qrels.txt").write_text("q1 0 d1 1\\n")
        >>> open_dataset(folder).get_qrels().values.tolist()
        [['q1', 'd1', 1]]

    When not to use it: for a folder with another layout; read its files with :func:`read_corpus`, :func:`read_topics`,
    :func:`read_qrels` and :func:`read_run`, and make a :class:`Collection` from the frames.
    """
    check_choice("open_dataset", "ties", ties, TIES)
    if not isinstance(spec, (str, Path)):
        return _from_object(spec, split)
    if isinstance(spec, str) and re.fullmatch(r"planted(/\w+=.*)?", spec):
        from pyterrier_debias.data.planted import PlantedCollection

        return _from_object(PlantedCollection.named(str(spec)), split)
    if str(spec).startswith("irds:"):
        return IRDSCollection(id_of_split(str(spec).removeprefix("irds:"), split))
    path = Path(spec).expanduser()
    if is_index_folder(path):
        raise InputError(
            f"{spec} is a Terrier index, which has no topics or judgements; open it with TerrierCollection(index, dataset), or "
            f"pass it with --terrier in addition to --dataset"
        )
    if path.is_dir():
        return _from_folder(path, split, ties)
    if path.is_file():
        return _from_file(path, split)
    raise InputError(
        f"{spec}: no such folder or file; name one, or 'planted', or a dataset of ir_datasets as 'irds:beir/nfcorpus/test'"
    )


def _from_object(dataset: Any, split: str | None) -> Dataset:
    """A dataset unchanged, a view of it for another split, or a copy in memory if its identifiers are not strings."""
    if isinstance(dataset, Collection):
        if split is None or split == dataset.split:
            return dataset
        view = copy.copy(dataset)
        view.split = split
        view.get_topics()
        if view.runs_of_split is not None:
            view.runs = view.runs_of_split(split)
        return view
    if isinstance(dataset, IRDSCollection):
        wanted = id_of_split(dataset.irds_id, split)
        return dataset if wanted == dataset.irds_id else IRDSCollection(wanted)
    if hasattr(dataset, "irds_ref"):  # PyTerrier's wrapper
        return IRDSCollection(id_of_split(dataset.irds_ref().dataset_id(), split))
    if not isinstance(dataset, Dataset):
        if isinstance(dataset, pt.Indexer):
            raise InputError(
                f"{kind_of(dataset)} is an index, which has no topics or judgements; give TerrierCollection(index, ...)"
            )
        lacks = [m for m in ("get_corpus_iter", "get_topics", "get_qrels", "text_loader") if not hasattr(dataset, m)]
        known = "pt.get_dataset('irds:...') or TerrierCollection(index, dataset)"
        others = known if hasattr(dataset, "get_index") else "an object with these methods"
        raise InputError(
            f"{kind_of(dataset)} is not a dataset: it lacks {', '.join(lacks)}; give {others}, or frames in a Collection"
        )
    chosen = dataset if split is None and with_query(topics := dataset.get_topics()) is topics else SplitView(dataset, split)
    if all(
        pd.api.types.is_string_dtype(frame[column]) for frame in (chosen.get_topics(), chosen.get_qrels())
        for column in ("qid", "docno") if column in frame.columns
    ):
        return chosen
    name = split or "test"
    try:
        full = dataset.get_qrels("full")
    except Exception:  # datasets differ in what they raise where there is no such variant
        full = None
    return Collection(
        getattr(dataset, "name", type(dataset).__name__),
        corpus=pd.DataFrame(list(dataset.get_corpus_iter())),
        topics={name: chosen.get_topics()},
        qrels={name: chosen.get_qrels(), **({} if full is None else {"full": full})},
        candidates=provided(dataset, "get_candidates"),
        runs=provided(dataset, "get_runs"),
        answers=provided(dataset, "get_answers"),
        truth=getattr(dataset, "truth", None),
    )


def is_index_folder(path: Any) -> bool:
    """Whether a path is a folder with a Terrier index; this does not start Java.

    Args:
        path: A path; False for any other object.
    """
    return isinstance(path, (str, Path)) and (Path(path).expanduser() / INDEX_FILE).is_file()


class SplitView:
    """A view of a dataset with another default split for topics and judgements; everything else is the dataset's own.

    Topics with queries in a column ``text`` get a column ``query``.

    Example:
        >>> topics = {split: pd.DataFrame({"qid": ["1"], "query": [f"a question of {split}"]}) for split in ("test", "dev")}
        >>> own = Collection("toy", corpus=pd.DataFrame({"docno": ["d1"], "text": ["one"]}), topics=topics, qrels={})
        >>> SplitView(own, "dev").get_topics()["query"].tolist()
        ['a question of dev']
    """

    def __init__(self, dataset: Any, split: str | None):
        """
        Args:
            dataset: Any dataset.
            split: The split's name, as the dataset's methods accept it; None for the dataset's own.
        """
        self.dataset = dataset
        self.split = split

    @property
    def name(self) -> str:
        """The name in reports: the dataset's own name, or its class."""
        return getattr(self.dataset, "name", type(self.dataset).__name__)

    def __repr__(self) -> str:
        """The dataset and the split."""
        return f"<{self.dataset!r}, split {self.split!r}>"

    def __getattr__(self, name: str) -> Any:
        """Other attributes of the dataset."""
        if name.startswith("__") or name == "dataset":  # while it is copied or unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """The dataset's documents."""
        return self.dataset.get_corpus_iter(verbose=verbose)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Topics of a split; None for the view's own."""
        return with_query(self.dataset.get_topics(*(name for name in (variant or self.split,) if name is not None)))

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Judgements of a split, or ``'full'`` if the dataset has them; None for the view's own split."""
        return self.dataset.get_qrels(*(name for name in (variant or self.split,) if name is not None))

    def text_loader(self, fields: str | Iterable[str] = "text", *, verbose: bool = False) -> pt.Transformer:
        """The dataset's text loader."""
        return self.dataset.text_loader(fields, verbose=verbose)


def _from_file(path: Path, split: str | None) -> Collection:
    reader = reader_of(path)
    if reader is None:
        raise InputError(
            f"{path}: not SQuAD JSON, marked spans or MS MARCO QnA; name the folder that holds corpus, topics and judgements"
        )
    return reader(path, split=split) if split else reader(path)


def _from_folder(folder: Path, split: str | None, ties: str) -> Collection:
    if not _files(folder, TOPICS):
        with_answers = {stem(f): f for f in _files(folder, ("*.json*",)) if reader_of(f)}
        if with_answers:
            return _from_file(with_answers[_named(folder, with_answers, split)], split)
    corpus_files = _needed(folder, CORPUS, "corpus", "corpus.jsonl, passages.tsv, collection.tsv or documents.trec")
    topics_files = _needed(folder, TOPICS, "topics", "queries.jsonl, queries.tsv or topics.<split>.tsv")
    qrels_files = _needed(folder, QRELS, "judgements", "qrels/<split>.tsv or qrels.<split>.txt")
    if len(corpus_files) > 1:
        raise InputError(
            f"{folder}: several files may be the corpus ({_names(corpus_files)}); keep one, and join the parts of a corpus "
            f"that is split into several files"
        )
    topics, qrels = _paired(_splits(topics_files, read_topics), _splits(qrels_files, read_qrels))
    chosen = _choose(folder, topics, qrels, split)
    check_overlap(topics[chosen], qrels[chosen], str(folder))
    corpus = read_corpus(corpus_files[0])
    if set(qrels[chosen]["docno"]).isdisjoint(corpus["docno"]):
        raise InputError(
            f"{folder}: no judged docno (e.g. {qrels[chosen]['docno'].iloc[0]!r}) is in {corpus_files[0].name} (e.g. "
            f"{corpus['docno'].iloc[0]!r}); check that both belong to the same collection"
        )
    runs_of_split = partial(_runs, folder.resolve(), topics=topics, ties=ties)
    opened = Collection(
        folder.resolve().name, corpus=corpus, topics=topics, qrels=qrels, split=chosen, runs=runs_of_split(chosen)
    )
    opened.runs_of_split = runs_of_split
    return opened


def _files(folder: Path, patterns: tuple[str, ...]) -> list[Path]:
    """The files that match the first pattern with any match, with or without .gz."""
    for pattern in patterns:
        within = (folder / pattern).parent
        if within.is_dir() and not os.access(within, os.R_OK | os.X_OK):  # a pattern finds nothing there, without an error
            raise InputError(f"{within}: this folder cannot be read; change its permissions, or move it away")
        found = {f for p in (pattern, f"{pattern}.gz") for f in folder.glob(p) if f.is_file() and f.name[0] != "."}
        if found:
            return sorted(found)
    return []


def _needed(folder: Path, patterns: tuple[str, ...], what: str, names: str) -> list[Path]:
    files = _files(folder, patterns)
    if not files:
        stem = patterns[0].partition("*")[0].partition(".")[0]
        csv = sorted(file.name for file in folder.glob(f"{stem}*.csv"))
        commas = f"; {csv[0]} is not read, because tabs must separate the fields, not commas" if csv else ""
        raise InputError(f"{folder}: it holds no {what}; add {names} (or .gz), or pass frames to Collection{commas}")
    return files


def _names(files: list[Path]) -> str:
    return ", ".join(f.name for f in files)


def _split_of(file: Path) -> str:
    """The split in a file's name: ``dl19`` of ``topics.dl19-passage.tsv``, ``test`` of ``qrels/test.tsv``; empty if none."""
    name = stem(file)
    if file.parent.name != "qrels":
        name = name.partition(".")[2]
    return re.sub(r"-(passage|doc)s?$", "", name)


def _splits(files: list[Path], read: Any) -> dict[str, pd.DataFrame]:
    """Frames by split; the name is empty if the file names no split."""
    frames: dict[str, pd.DataFrame] = {}
    for file in files:
        name = _split_of(file)
        if name in frames:
            raise InputError(f"{file.parent}: several files for the split {name or 'test'!r} ({_names(files)}); keep one")
        frames[name] = read(file)
    return frames


def _paired(
    topics: Mapping[str, pd.DataFrame], qrels: Mapping[str, pd.DataFrame]
) -> tuple[dict[str, pd.DataFrame], dict[str, pd.DataFrame]]:
    """Topics and judgements under the same split names; a file that names no split is divided among them."""
    if len(topics) == 1 and len(qrels) == 1:
        name = next(iter(qrels)) or next(iter(topics)) or "test"
        return {name: next(iter(topics.values()))}, {name: next(iter(qrels.values()))}
    for what, frames in (("topics", topics), ("judgements", qrels)):
        if {"", "test"} <= set(frames):
            told = f"one with {what} names it, and another names no split; rename one"
            raise InputError(f"several files for the split 'test': {told}")
    if list(topics) == [""]:
        topics = {split: _of_queries(topics[""], frame) for split, frame in qrels.items()}
    elif list(qrels) == [""]:
        qrels = {split: _of_queries(qrels[""], frame) for split, frame in topics.items()}
    return {s or "test": frame for s, frame in topics.items()}, {s or "test": frame for s, frame in qrels.items()}


def _of_queries(frame: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The rows whose qid also occurs in another frame."""
    return frame[frame["qid"].isin(other["qid"].unique())].reset_index(drop=True)


def _choose(folder: Path, topics: Mapping[str, Any], qrels: Mapping[str, Any], split: str | None) -> str:
    splits = sorted(topics.keys() & qrels.keys())
    if not splits:
        raise InputError(
            f"{folder}: topics are named {', '.join(sorted(topics))} and judgements {', '.join(sorted(qrels))}; give those that "
            f"belong together the same name, as in topics.dl19.tsv and qrels.dl19.txt"
        )
    if split is None:
        return "test" if "test" in splits else splits[0]
    if split not in splits:
        raise InputError(f"{folder}: there is no split {split!r}; it has {', '.join(splits)}")
    return split


def _named(folder: Path, files: Mapping[str, Path], split: str | None) -> str:
    """The file with answers that a split names, by its file name or an unambiguous part of it."""
    if split is None:
        return max((name for name in files if "dev" in name), default=min(files))
    if split in files:
        return split
    found = [name for name in files if split in name]
    if len(found) != 1:
        raise InputError(
            f"{folder}: split {split!r} matches {'several files' if found else 'no file'}; name one of {', '.join(sorted(files))}"
        )
    return found[0]


def _runs(folder: Path, split: str, topics: Mapping[str, pd.DataFrame], ties: str) -> dict[str, pd.DataFrame]:
    """The runs of a split: those whose name begins with it, and those that name no split but rank its topics.

    A run named bm25 comes first: a ranker that is audited alone reranks it.
    """
    runs: dict[str, pd.DataFrame] = {}

    def keep(name: str, run: pd.DataFrame, file: Path) -> None:
        if name in runs:
            raise InputError(f"{file}: there is another run called {name!r} for the split {split!r}; rename one of them")
        runs[name] = run

    for file in _files(folder, RUNS):
        name = stem(file).removeprefix("run.")
        head, _, rest = name.partition(".")
        if head in topics and head != split:
            continue
        run = read_run(file, ties=ties)
        qids = set(run["qid"])
        if qids.isdisjoint(topics[split]["qid"]):
            if any(not qids.isdisjoint(frame["qid"]) for frame in topics.values()):
                continue
            check_overlap(run, topics[split], str(file))
        keep(rest if head == split and rest else name, run, file)
    for table, (name, *columns) in RUN_TABLES.items():
        for file in _files(folder, (table,)):
            rows = read_table(file)
            if not set(columns) <= set(rows.columns):
                continue
            rows = rows[columns].set_axis(["qid", "docno", "rank"], axis="columns")
            rows = rows[rows["qid"].isin(topics[split]["qid"])]
            if len(rows):
                score = -pd.to_numeric(rows["rank"], errors="coerce").astype(float)
                keep(name, ranked(rows.assign(score=score), str(file)), file)
    return dict(sorted(runs.items(), key=lambda item: (item[0] != "bm25", item[0])))
