"""A Terrier index as a collection: its documents, its retrievers, and the same retrievers over changed documents.

Nothing here starts Java before an index is used.
"""

from __future__ import annotations

import copy
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard, cast

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.dataset import Dataset
from pyterrier_debias.core.errors import InputError, NotProvidedError, one_line
from pyterrier_debias.core.frames import check_overlap, with_string_ids
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.naming import is_tokeniser, system_name
from pyterrier_debias.core.stage import RowWise, chain, flatten, join
from pyterrier_debias.data.opening import INDEX_FILE, SplitView, is_index_folder, open_dataset
from pyterrier_debias.data.readers import read_qrels, read_topics

#: What the index of changed documents stores: no text, since nothing loads it from there.
_LONGEST_DOCNO = 256
#: How many judged documents are looked for in an index.
_LOOKED_AT = 1000

_INSTALL_JAVA = "install one (11 or newer, e.g. apt install openjdk-17-jre-headless), and set JAVA_HOME where it is not found"


@contextmanager
def _explained(what: str) -> Iterator[None]:
    """Report Java errors in one line with the context."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        if not pt.java.started():
            raise InputError(f"{what}: Java cannot be started ({one_line(error)}); {_INSTALL_JAVA}") from error
        raise InputError(f"{what}: {one_line(error)}") from error


def open_index(index: Any) -> pt.terrier.TerrierIndex:
    """A Terrier index that is there; Java starts.

    Args:
        index: A folder, a ``pt.terrier.TerrierIndex``, or an index or reference of Java.

    Returns:
        A ``TerrierIndex``.

    Raises:
        InputError: If there is no index, or Java cannot be started.
    """
    if isinstance(index, (str, Path)) and not is_index_folder(index):
        raise InputError(f"{index}: no Terrier index is there (a folder with {INDEX_FILE}); name the index's folder")
    name = str(index) if isinstance(index, (str, Path)) else "index"
    with _explained(name):
        found = pt.terrier.TerrierIndex.coerce(str(Path(index).expanduser()) if isinstance(index, (str, Path)) else index)
        found.index_obj()
    return found


class IndexSettings(NamedTuple):
    """How an index was made, as far as it is recorded.

    Attributes:
        stemmer: Terrier's class names, with commas; None for none.
        stopwords: A list of words, ``'terrier'``, or None for none.
        blocks: Whether it stores word positions.
        fields: Names of its fields.
        stored: What it stores of a document, and how many characters of it.
    """

    stemmer: str | None
    stopwords: Any
    blocks: bool
    fields: tuple[str, ...]
    stored: dict[str, int]

    @classmethod
    def of(cls, index: pt.terrier.TerrierIndex) -> IndexSettings:
        """Read them from the properties of an index.

        Args:
            index: A ``TerrierIndex``.

        Raises:
            InputError: If the index was made with steps that PyTerrier's indexers do not support, or does not record
                how it was made, as one in memory.
        """
        if _folder_of(index.index_ref()) is None:  # the cast of an index in memory would end the process
            raise InputError("an index in memory does not record how it was made; write it to a folder")
        held = pt.java.cast("org.terrier.structures.PropertiesIndex", index.index_obj())

        def value(name: str) -> str:
            return held.getIndexProperty(name, "") or ""

        steps = [step for step in value("termpipelines").split(",") if step]
        stopwords: Any = None
        if steps and re.search("stopword", steps[0], re.IGNORECASE):
            own = re.split(r"(?<!\\),", value("pyterrier.stopwords"))
            stopwords = [word.replace("\\,", ",") for word in own] if "PyTerrierCustomStopwordList" in steps[0] else "terrier"
            steps = steps[1:]
        if any(re.search("stopword", step, re.IGNORECASE) for step in steps):
            raise InputError(f"its terms go through {','.join(steps)}, which PyTerrier's indexers do not support")
        names, lengths = (value(f"index.meta.{part}").split(",") for part in ("key-names", "value-lengths"))
        return cls(
            ",".join(steps) or None,
            stopwords,
            value("index.inverted.blocks") not in ("", "0") or value("index.direct.blocks") not in ("", "0"),
            tuple(name for name in value("index.inverted.fields.names").split(",") if name),
            {name: int(length) for name, length in zip(names, lengths) if length.isdigit()},
        )


class IndexTexts(RowWise):
    """Adds what a Terrier index stores of documents to frames with ``docno``.

    It differs from ``index.text_loader()`` in that it looks documents up by ``docno`` always, never by another index's ``docid``,
    names a document that it does not know, and can be pickled.

    Input: any frame with ``docno``. Output: the same rows with the fields as columns; columns of these names that were there
    before are replaced. Load texts before anything rewrites docnos.

    When not to use it: for an index that stores no text, or only the beginning of it.

    Example:
        >>> IndexTexts("an-index")
        IndexTexts('an-index')
    """

    schematic = {"label": "TextLoader"}  # noqa: RUF012

    def __init__(self, index: Any, fields: tuple[str, ...] = ("text",), *, text_field: str = "text"):
        """
        Args:
            index: What :func:`open_index` takes.
            fields: Which columns to add.
            text_field: What the index calls the column ``text``.
        """
        self.index = index
        self.fields = fields
        self.text_field = text_field

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """Two loaders of one folder are equal."""
        path = getattr(self.index, "path", self.index)
        return {**self.options(), "index": str(path) if isinstance(path, (str, Path)) else self.index}

    def __getstate__(self) -> dict[str, Any]:
        """An open index cannot be pickled; its folder can."""
        path = getattr(self.index, "path", None)
        return {**self.__dict__, "index": str(path)} if isinstance(path, (str, Path)) else self.__dict__

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the fields; see the class."""
        pt.validate.columns(inp, includes=["docno"], context=self)
        if len(inp) == 0:
            return inp.assign(**{field: pd.Series(dtype=str) for field in self.fields})
        index = open_index(self.index)
        docnos = inp["docno"].astype(str)
        distinct = list(dict.fromkeys(docnos))
        held = index.meta_index()
        with _explained("IndexTexts"):
            numbers = [int(held.getDocument("docno", docno)) for docno in distinct]
            unknown = [docno for docno, number in zip(distinct, numbers) if number < 0]
            if unknown:
                raise InputError(
                    f"IndexTexts: {len(unknown)} of {len(distinct)} documents are not in the index, first docno={unknown[0]!r}; "
                    f"use the index that the run was made from"
                )
            names = [self.text_field if field == "text" else field for field in self.fields]
            values = [list(row) for row in held.getItems(names, numbers)]
        table = pd.DataFrame(values, columns=list(self.fields), index=distinct)
        return inp.assign(**{field: table[field].reindex(docnos).to_numpy() for field in self.fields})


class TerrierIndexer:
    """Makes the same retriever over changed documents: what a probe of a retriever needs (``System(..., indexer=...)``).

    Documents are indexed as the given index was: with its stemmer, its stop words and, if present, word positions. A
    Terrier index does not record its tokeniser or the fields of a document that its words come from: give ``tokeniser`` if it is
    not ``'english'``; words come from the documents' ``text``. Every call indexes into a new folder, which is removed when
    the retriever is no longer used, at the latest when Python ends; within an audit, at the latest when the audit ends.

    When not to use it: for an index with fields, or of learned sparse vectors: changed texts have neither.

    Example:
        ::

            System("BM25", index.bm25(), indexer=TerrierIndexer(index, lambda index: index.bm25()))
    """

    def __init__(
        self,
        index: Any,
        retriever: Callable[[pt.terrier.TerrierIndex], pt.Transformer],
        *,
        tokeniser: Any = "english",
        folder: str | Path | None = None,
    ):
        """
        Args:
            index: What :func:`open_index` takes.
            retriever: From a ``TerrierIndex`` to the retriever, such as ``lambda index: index.bm25()``.
            tokeniser: What ``pt.IterDictIndexer`` takes.
            folder: An existing folder for the indexes; None takes the system's folder for temporary files.
        """
        self.index = index
        self.retriever = retriever
        self.tokeniser = tokeniser
        self.folder = folder

    def __repr__(self) -> str:
        """The index and the retriever, without the folder, which is another one each time."""
        return f"TerrierIndexer({self.index!r}, {self.retriever!r}, tokeniser={self.tokeniser!r})"

    def within(self, folder: str | Path) -> TerrierIndexer:
        """The same indexer with its indexes in a folder that the caller removes."""
        changed = copy.copy(self)
        changed.folder = folder
        return changed

    def __call__(self, documents: Iterable[Mapping[str, Any]]) -> pt.Transformer:
        """Index the documents.

        Args:
            documents: Dictionaries with ``docno`` and ``text``.

        Returns:
            The retriever over them.

        Raises:
            InputError: If the given index has fields, a document has no text, or there are no documents.
        """
        index = open_index(self.index)
        settings = IndexSettings.of(index)
        if settings.fields:
            raise InputError(f"the index has fields ({', '.join(settings.fields)}), which changed texts do not have")
        handed = 0

        def indexable() -> Iterator[dict[str, str]]:
            nonlocal handed
            for document in documents:
                docno, text = str(document["docno"]), document["text"]
                if not isinstance(text, str):
                    raise InputError(f"document {docno!r} has no text to index, but {type(text).__name__}")
                if len(docno) > _LONGEST_DOCNO:
                    raise InputError(f"docno {docno[:40]!r}... has more than {_LONGEST_DOCNO} characters; rename it")
                handed += 1
                yield {"docno": docno, "text": text}

        folder = Path(tempfile.mkdtemp(prefix="terrier-", dir=self.folder))
        try:
            with handed_over(indexable()) as stream, _explained("Terrier's indexing"):
                pt.IterDictIndexer(
                    str(folder / "index"),
                    meta={"docno": _LONGEST_DOCNO},
                    blocks=settings.blocks,
                    stemmer=settings.stemmer,
                    stopwords=settings.stopwords,
                    tokeniser=self.tokeniser,
                ).index(stream)
            with _explained("Terrier's indexing"):
                found = pt.terrier.TerrierIndex(str(folder / "index"))
                if len(found) != handed or not handed:
                    raise InputError(f"{len(found)} of {handed} documents were indexed; check the corpus")
                retriever = self.retriever(found)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        lease = _Lease()
        weakref.finalize(lease, shutil.rmtree, folder, ignore_errors=True)
        holders: list[Any] = [retriever, *flatten(retriever)]
        for stage in holders:
            stage._index_lease = lease
        return retriever


class _Lease:
    """What the stages over a temporary index share: the index is removed with the last of them."""


#: Stages of PyTerrier that are made over no index.
_OVER_NONE = frozenset(
    {"ResetQuery", "_ResetResults", "_StashResults", "SDM", "SequentialDependence", "RankCutoff", "ScalarProduct"}
)


def over_another_index(
    pipeline: pt.Transformer, index: pt.terrier.TerrierIndex
) -> Callable[[pt.terrier.TerrierIndex], pt.Transformer] | None:
    """How a pipeline of Terrier's stages is made over another index.

    Args:
        pipeline: Retrievers, query expansion and rewrites of Terrier, joined by ``>>``; text loaders are left out.
        index: The ``TerrierIndex`` that it is over.

    Returns:
        From another ``TerrierIndex`` to the same pipeline over it; None if a stage is over something else, or may be.
    """
    stages = [stage for stage in flatten(pipeline) if not _loads_text(stage)]
    own = _folder_of(index.index_ref())
    if own is None or not any(_is_retriever(stage) for stage in stages):
        return None
    for stage in stages:
        if _is_retriever(stage) or _is_expansion(stage):
            if _folder_of(stage.indexref) != own:
                return None
        elif type(stage).__name__ not in _OVER_NONE and not is_tokeniser(stage):
            return None
    return _OverIndex(stages)


class _OverIndex:
    """Makes a pipeline's stages over another index."""

    def __init__(self, stages: list[pt.Transformer]):
        self.stages = stages

    def __repr__(self) -> str:
        return system_name(chain(self.stages))

    def __call__(self, index: pt.terrier.TerrierIndex) -> pt.Transformer:
        return join(*(_moved(stage, index) for stage in self.stages))


def _moved(stage: pt.Transformer, index: pt.terrier.TerrierIndex) -> pt.Transformer:
    if _is_retriever(stage):
        made = pt.inspect.transformer_apply_attributes(stage, index_location=index, metadata=["docno"])
        retriever = cast(pt.terrier.Retriever, made)
        retriever.tokeniser = stage.tokeniser
        return retriever
    if _is_expansion(stage):
        moved = copy.copy(stage)
        moved.indexref = index.index_ref()
        moved.manager = pt.terrier.J.ManagerFactory._from_(moved.indexref)
        return moved
    return stage


def _is_retriever(stage: Any) -> TypeGuard[pt.terrier.Retriever]:
    """A retriever that its attributes describe completely; one with the user's own model or with features is not."""
    return type(stage) is pt.terrier.Retriever and not stage.search_context


def _is_expansion(stage: Any) -> TypeGuard[pt.terrier.rewrite.QueryExpansion]:
    return hasattr(stage, "indexref") and hasattr(stage, "manager") and hasattr(stage, "fb_terms")


def _loads_text(stage: Any) -> bool:
    return isinstance(stage, IndexTexts) or type(stage).__name__ == "TerrierTextLoader"


def _folder_of(reference: Any) -> str | None:
    """The folder of a reference to an index on disk; None for one in memory, all of which look alike."""
    path = str(reference.toString()).removesuffix(f"/{INDEX_FILE}")
    return str(Path(path).resolve()) if is_index_folder(path) else None


class TerrierCollection:
    """A Terrier index with topics and judgements, as a dataset: from an index to an audit in one line.

    Documents and texts are those that the index stores. Retrievers over this index can be rebuilt over
    changed documents: the position bias of ``index.bm25()`` is measured by indexing the rotated documents with the settings
    of the index (see :class:`TerrierIndexer`). Without systems, an audit examines BM25 over this index.

    When not to use it: for an index that stores no texts, or their beginnings only (``IterDictIndexer(..., meta={'docno': 40,
    'text': 8192})`` stores them): give the dataset that it was made from.

    Example:
        ::

            index = pt.terrier.TerrierIndex("my-index")
            audit({"BM25": index.bm25(), "DPH": index.dph()}, TerrierCollection(index, "irds:vaswani"))
            audit(dataset=TerrierCollection("my-index", topics="topics.tsv", qrels="qrels.txt"))
    """

    def __init__(
        self,
        index: Any,
        dataset: Any = None,
        *,
        topics: pd.DataFrame | str | Path | None = None,
        qrels: pd.DataFrame | str | Path | None = None,
        split: str | None = None,
        text_field: str = "text",
        tokeniser: Any = "english",
    ):
        """
        Args:
            index: A folder, a ``pt.terrier.TerrierIndex``, or an index or reference of Java.
            dataset: What :func:`~pyterrier_debias.open_dataset` takes, or a dataset of PyTerrier: topics, judgements and what
                else is known (answers, runs). Its documents are not read.
            topics: Topics in place of the dataset's: a frame ``qid``, ``query``, or a file.
            qrels: Judgements in place of the dataset's: a frame ``qid``, ``docno``, ``label``, or a file.
            split: Which topics and judgements of the dataset.
            text_field: What the index calls the text.
            tokeniser: How the index was tokenised, which it does not record; used for queries and changed documents.

        Raises:
            InputError: If there is no index or Java, it stores no such text, or topics or judgements are missing.
        """
        self._dataset = None if dataset is None else _judged_dataset(dataset, split)
        self._topics = read_topics(topics) if isinstance(topics, (str, Path)) else topics
        self._qrels = read_qrels(qrels) if isinstance(qrels, (str, Path)) else qrels
        for what, frame in (("topics", self._topics), ("qrels", self._qrels)):
            if frame is None and self._dataset is None:
                raise InputError(f"TerrierCollection: an index has no {what}; give {what}=..., or a dataset that has them")
        if self._topics is not None and self._qrels is not None:
            check_overlap(self.get_topics(), self.get_qrels(), "TerrierCollection")
        self.index = open_index(index)
        self.text_field = text_field
        self.tokeniser = tokeniser
        stored = self._stored()
        if text_field not in stored:
            raise InputError(
                f"TerrierCollection: {self.name} stores no {text_field!r} of its documents (it has {', '.join(stored)}); say "
                f"text_field=..., or make the index with meta={{'docno': 40, {text_field!r}: 8192}}"
            )

        self._check_judged()

    def _check_judged(self) -> None:
        """Refuse judgements of other documents, with which every figure would be 0."""
        judged = list(dict.fromkeys(self.get_qrels()["docno"]))[:_LOOKED_AT]
        held = self.index.meta_index()
        if judged and all(int(held.getDocument("docno", docno)) < 0 for docno in judged):
            there = next(iter(self.index.get_corpus_iter(return_toks=False)), {}).get("docno")
            raise InputError(
                f"TerrierCollection: no judged docno (e.g. {judged[0]!r}) is in the index (e.g. {there!r}); give the topics and "
                f"judgements of the collection that was indexed (--dataset, or topics and qrels)"
            )

    @property
    def longest_text(self) -> int | None:
        """How many characters of a text the index stores."""
        try:
            return IndexSettings.of(self.index).stored.get(self.text_field)
        except InputError:
            return None

    @property
    def name(self) -> str:
        """What reports call it: the index's folder, and the dataset."""
        path = getattr(self.index, "path", None)
        folder = f"Terrier index {Path(path).resolve().name}" if isinstance(path, (str, Path)) else "a Terrier index"
        return folder if self._dataset is None else f"{getattr(self._dataset, 'name', type(self._dataset).__name__)} ({folder})"

    def __repr__(self) -> str:
        """The name."""
        return f"<TerrierCollection {self.name!r}>"

    def __getattr__(self, name: str) -> Any:
        """What the dataset knows beyond documents, topics and judgements."""
        if name.startswith("_") or self.__dict__.get("_dataset") is None or name in ("corpus", "get_corpus"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Documents as dictionaries with ``docno``, ``text`` and what else the index stores, in its order.

        Args:
            verbose: Whether to show progress.

        Yields:
            One dictionary a document.
        """
        documents = self.index.get_corpus_iter(return_toks=False)
        for document in pt.tqdm(documents, total=len(self.index), desc=self.name, disable=not verbose):
            others = {name: value for name, value in document.items() if name not in ("docno", "text", self.text_field)}
            yield {"docno": document["docno"], "text": document[self.text_field], **others}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Topics: those given, or those of the dataset; of a split, the dataset's."""
        return self._asked("topics", self._topics, variant)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Judgements: those given, or those of the dataset; of a split, the dataset's."""
        return self._asked("qrels", self._qrels, variant)

    def _asked(self, what: str, own: pd.DataFrame | None, variant: str | None) -> pd.DataFrame:
        if own is not None and variant is None:
            return with_string_ids(own, f"TerrierCollection, {what}")
        if self._dataset is None:
            raise NotProvidedError(f"{self.name}: there are no {what} for {variant!r}; only those that were given")
        asked = getattr(self._dataset, f"get_{what}")
        return with_string_ids(asked() if variant is None else asked(variant), f"TerrierCollection, {what} of the dataset")

    def text_loader(self, fields: str | Iterable[str] = "text", *, verbose: bool = False) -> IndexTexts:
        """A stage that adds what the index stores to frames with ``docno``.

        Args:
            fields: One name, several, or ``'*'`` for all.
            verbose: Accepted for compatibility.

        Raises:
            InputError: For a field that the index does not store.
        """
        there = ["text", *(name for name in self._stored() if name not in ("docno", "text", self.text_field))]
        names = there if fields == "*" else [fields] if isinstance(fields, str) else list(fields)
        lacking = next((name for name in names if name not in there), None)
        if lacking is not None:
            raise InputError(f"{self.name} stores no {lacking!r}; it has {', '.join(there)}")
        return IndexTexts(self.index, tuple(names), text_field=self.text_field)

    def retriever(self, model: str = "BM25", **options: Any) -> pt.Transformer:
        """A retriever over the index with tokenised queries, so that none is interpreted as Terrier's query language.

        Args:
            model: The weighting model, by Terrier's name.
            options: What ``TerrierIndex.retriever`` takes.

        Returns:
            From topics to results, with the topics' own queries.

        Raises:
            InputError: If Terrier has no such model.
        """
        check_weighting_model(model)
        tokens = pt.rewrite.tokenise(self.tokeniser)
        return tokens >> self.index.retriever(model, **options) >> pt.rewrite.reset()

    def indexer_of(self, pipeline: pt.Transformer) -> TerrierIndexer | None:
        """A factory that rebuilds a retriever over this index over changed documents.

        Args:
            pipeline: A retriever, or several stages of Terrier's.

        Returns:
            The indexer; None for what is not over this index alone, and for an index with fields or in memory.
        """
        made = over_another_index(pipeline, self.index)
        if made is None or self.reindexing_reason(pipeline):
            return None
        return TerrierIndexer(self.index, made, tokeniser=self.tokeniser)

    def reindexing_reason(self, pipeline: pt.Transformer) -> str:
        """Why retrievers over this index are not rebuilt over changed documents.

        Args:
            pipeline: A retriever, or several stages of Terrier's.

        Returns:
            One sentence; empty where they are, and for what is not over this index alone.
        """
        searched = {_folder_of(stage.indexref) for stage in flatten(pipeline) if _is_retriever(stage)}
        if searched != {_folder_of(self.index.index_ref())}:
            return ""
        try:
            fields = IndexSettings.of(self.index).fields
        except InputError as error:
            return f"its index cannot be made anew over changed passages: {error}"
        if not fields:
            return ""
        return (
            f"its index has fields ({', '.join(fields)}), which changed passages do not have, so that it is not made anew over "
            f"them; audit a retriever over an index of the same texts without fields"
        )

    def _stored(self) -> list[str]:
        return [str(name) for name in self.index.meta_index().getKeys()]


def _judged_dataset(dataset: Any, split: str | None) -> Any:
    """A dataset for its topics and judgements; one of PyTerrier's need have no documents."""
    if isinstance(dataset, Dataset) or not (hasattr(dataset, "get_topics") and hasattr(dataset, "get_qrels")):
        return open_dataset(dataset, split)
    return dataset if split is None else SplitView(dataset, split)


def check_weighting_model(model: str) -> None:
    """Refuse a weighting model that Terrier does not have; otherwise Java would report it at the first query.

    Args:
        model: The name, such as ``'BM25'``; one with a dot is a class of Java; Java is started.

    Raises:
        InputError: If there is no such class.
    """
    name = model if "." in model else f"org.terrier.matching.models.{model}"
    try:
        pt.java.autoclass(name)
    except Exception as error:
        raise InputError(
            f"Terrier has no weighting model {model!r}; use BM25, DPH, PL2, DirichletLM, Hiemstra_LM, TF_IDF, Tf, or another "
            f"class of org.terrier.matching.models"
        ) from error
