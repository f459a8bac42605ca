"""A Terrier index as a collection: its documents, its retrievers, and the same retrievers over changed documents.

Java starts only when an index is used.
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
from pyterrier_debias.core.errors import InputError, NotProvidedError, kind_of, one_line
from pyterrier_debias.core.frames import check_overlap, shared_texts, with_grades, with_string_ids
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.naming import is_tokeniser, system_name
from pyterrier_debias.core.stage import RowWise, chain, flatten, join
from pyterrier_debias.data.opening import INDEX_FILE, SplitView, is_index_folder, open_dataset
from pyterrier_debias.data.readers import read_qrels, read_topics

#: The fields that an index of changed documents stores: no text, since no stage loads it from there.
_LONGEST_DOCNO = 256
#: How many judged documents are looked up in an index, as a check.
_LOOKED_AT = 1000

_INSTALL_JAVA = "install Java 11 or newer (e.g. apt install openjdk-17-jre-headless), and set JAVA_HOME if it is not found"


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
    """Open an existing Terrier index; this starts Java.

    Args:
        index: A folder, a ``pt.terrier.TerrierIndex``, or an index or reference of Java.

    Returns:
        A ``TerrierIndex``.

    Raises:
        InputError: If there is no index, or Java cannot be started.
    """
    if isinstance(index, (str, Path)) and not is_index_folder(index):
        raise InputError(f"{index}: there is no Terrier index (a folder with {INDEX_FILE}); name the index's folder")
    name = str(index) if isinstance(index, (str, Path)) else "index"
    with _explained(name):
        found = pt.terrier.TerrierIndex.coerce(str(Path(index).expanduser()) if isinstance(index, (str, Path)) else index)
        found.index_obj()
    return found


class IndexSettings(NamedTuple):
    """The settings with which an index was made, as far as it records them.

    Attributes:
        stemmer: Terrier's class names, separated by commas; None for none.
        stopwords: A list of words, ``'terrier'``, or None for none.
        blocks: Whether it stores word positions.
        fields: Names of its fields.
        stored: The stored fields of a document, with the number of characters stored.
    """

    stemmer: str | None
    stopwords: Any
    blocks: bool
    fields: tuple[str, ...]
    stored: dict[str, int]

    @classmethod
    def of(cls, index: pt.terrier.TerrierIndex) -> IndexSettings:
        """Read the settings from the properties of an index.

        Args:
            index: A ``TerrierIndex``.

        Raises:
            InputError: If the index was made with steps that PyTerrier's indexers do not support, or does not record
                its settings, like an index in memory.
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
    """Adds the document fields that a Terrier index stores, such as the text, to frames with ``docno``.

    Unlike ``index.text_loader()``, it always looks up documents by ``docno``, never by another index's ``docid``; its errors name
    unknown documents; and it can be pickled.

    Input: any frame with ``docno``. Output: the same rows with the fields as columns; existing columns with these names are
    replaced. Load texts before any stage that rewrites docnos.

    When not to use it: for an index that stores no text, or only the beginning of texts.

    Example:
        >>> IndexTexts("an-index")
        IndexTexts('an-index')
    """

    schematic = {"label": "TextLoader"}  # noqa: RUF012

    def __init__(self, index: Any, fields: tuple[str, ...] = ("text",), *, text_field: str = "text"):
        """
        Args:
            index: A folder, a ``TerrierIndex``, or an index or reference of Java, see :func:`open_index`.
            fields: Which columns to add.
            text_field: The index's name for the field that becomes the column ``text``.
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
        rows, docnos = pd.factorize(inp["docno"].astype(str))
        distinct = docnos.tolist()
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
        columns = zip(self.fields, zip(*values))
        return inp.assign(**{field: shared_texts(texts, rows, inp.index) for field, texts in columns})


class TerrierIndexer:
    """Rebuilds a Terrier retriever over changed documents, as probes of a retriever need (``System(..., indexer=...)``).

    Documents are indexed with the settings of the given index: its stemmer, its stop words and, if present, word positions. A
    Terrier index does not record its tokeniser, or from which fields of a document its words come: give ``tokeniser`` if it is
    not ``'english'``; words come from the documents' ``text``. Every call indexes into a new folder. The folder is removed when
    the retriever is no longer used, at the latest when Python ends; within an audit, at the latest when the audit ends.

    When not to use it: for an index with fields, or of learned sparse vectors, because changed texts have neither.

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
            index: A folder, a ``TerrierIndex``, or an index or reference of Java, see :func:`open_index`.
            retriever: A function from a ``TerrierIndex`` to the retriever, such as ``lambda index: index.bm25()``.
            tokeniser: A tokeniser that ``pt.IterDictIndexer`` accepts.
            folder: An existing folder for the indexes; None uses the system's folder for temporary files.
        """
        self.index = index
        self.retriever = retriever
        self.tokeniser = tokeniser
        self.folder = folder

    def __repr__(self) -> str:
        """The index and the retriever, without the folder, which differs each time."""
        return f"TerrierIndexer({self.index!r}, {self.retriever!r}, tokeniser={self.tokeniser!r})"

    def within(self, folder: str | Path) -> TerrierIndexer:
        """A copy of the indexer that writes its indexes into a folder that the caller removes."""
        changed = copy.copy(self)
        changed.folder = folder
        return changed

    def __call__(self, documents: Iterable[Mapping[str, Any]]) -> pt.Transformer:
        """Index the documents and make the retriever over them.

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
                    raise InputError(f"document {docno!r} has no text to index (its text is {kind_of(text)})")
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
    """Shared by the stages over a temporary index; the index is removed with the last of them."""


#: Stages of PyTerrier that need no index.
_OVER_NONE = frozenset(
    {"ResetQuery", "_ResetResults", "_StashResults", "SDM", "SequentialDependence", "RankCutoff", "ScalarProduct"}
)


def over_another_index(
    pipeline: pt.Transformer, index: pt.terrier.TerrierIndex
) -> Callable[[pt.terrier.TerrierIndex], pt.Transformer] | None:
    """Make a function that rebuilds a pipeline of Terrier's stages over another index.

    Args:
        pipeline: Retrievers, query expansion and rewrites of Terrier, joined by ``>>``; text loaders are left out.
        index: The ``TerrierIndex`` that the pipeline uses.

    Returns:
        A function from another ``TerrierIndex`` to the same pipeline over it; None if a stage uses, or may use, something else.
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
    """Rebuilds a pipeline's stages over another index."""

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
    """Whether a retriever's attributes describe it completely, which excludes the user's own models and features."""
    return type(stage) is pt.terrier.Retriever and not stage.search_context


def _is_expansion(stage: Any) -> TypeGuard[pt.terrier.rewrite.QueryExpansion]:
    return hasattr(stage, "indexref") and hasattr(stage, "manager") and hasattr(stage, "fb_terms")


def _loads_text(stage: Any) -> bool:
    return isinstance(stage, IndexTexts) or type(stage).__name__ == "TerrierTextLoader"


def _folder_of(reference: Any) -> str | None:
    """The folder of a reference to an index on disk; None for indexes in memory, which cannot be told apart."""
    # A retriever with several threads puts "concurrent:" before the place.
    path = str(reference.toString()).removeprefix("concurrent:").removesuffix(f"/{INDEX_FILE}")
    return str(Path(path).resolve()) if is_index_folder(path) else None


class TerrierCollection:
    """A Terrier index with topics and judgements, as a dataset; with it, auditing an index takes one line.

    Documents and texts are those that the index stores. Retrievers over this index can be rebuilt over changed documents: the
    position bias of ``index.bm25()`` is measured by indexing the rotated documents with the settings of the index (see
    :class:`TerrierIndexer`). An audit without systems examines BM25 over this index.

    When not to use it: for an index that stores no texts, or only their beginnings (``IterDictIndexer(..., meta={'docno': 40,
    'text': 20000})`` stores them): use the dataset from which the index was made.

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
            dataset: A dataset of PyTerrier, or any argument of :func:`~pyterrier_debias.open_dataset`: the source of topics,
                judgements and further data (answers, runs). Its documents are not read.
            topics: Topics instead of the dataset's: a frame ``qid``, ``query``, or a file.
            qrels: Judgements instead of the dataset's: a frame ``qid``, ``docno``, ``label``, or a file.
            split: Split of the dataset's topics and judgements.
            text_field: The index's name for the text field.
            tokeniser: Tokeniser of the index, which the index does not record; used for queries and changed documents.

        Raises:
            InputError: If there is no index or Java, it stores no such text, or topics or judgements are missing, or a label is
                not a whole number.
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
                f"TerrierCollection: {self.name} stores no {text_field!r} of its documents (it stores {', '.join(stored)}); set "
                f"text_field=..., or make the index with meta={{'docno': 40, {text_field!r}: 20000}}"
            )

        self._check_judged()

    def _check_judged(self) -> None:
        """Refuse judgements of other documents, since every figure would be 0."""
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
        """The name in reports: the index's folder and the dataset."""
        path = getattr(self.index, "path", None)
        folder = f"Terrier index {Path(path).resolve().name}" if isinstance(path, (str, Path)) else "a Terrier index"
        return folder if self._dataset is None else f"{getattr(self._dataset, 'name', type(self._dataset).__name__)} ({folder})"

    def __repr__(self) -> str:
        """The name."""
        return f"<TerrierCollection {self.name!r}>"

    def __getattr__(self, name: str) -> Any:
        """Further data of the dataset, beyond documents, topics and judgements."""
        if name.startswith("_") or self.__dict__.get("_dataset") is None or name in ("corpus", "get_corpus"):
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Iterate over the documents in the index's order, as dictionaries with ``docno``, ``text`` and other stored fields.

        Args:
            verbose: Whether to show progress.

        Yields:
            One dictionary per document.
        """
        documents = self.index.get_corpus_iter(return_toks=False)
        for document in pt.tqdm(documents, total=len(self.index), desc=self.name, disable=not verbose):
            others = {name: value for name, value in document.items() if name not in ("docno", "text", self.text_field)}
            yield {"docno": document["docno"], "text": document[self.text_field], **others}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """The given topics, otherwise the dataset's; with ``variant``, those of a split of the dataset."""
        return self._asked("topics", self._topics, variant)

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """The given judgements, otherwise the dataset's; with ``variant``, those of a split of the dataset."""
        return self._asked("qrels", self._qrels, variant)

    def _asked(self, what: str, own: pd.DataFrame | None, variant: str | None) -> pd.DataFrame:
        stage = f"TerrierCollection, {what}"
        if own is not None and variant is None:
            found = with_string_ids(own, stage)
        elif self._dataset is None:
            raise NotProvidedError(f"{self.name}: there are no {what} for {variant!r}; only the {what} that were given are known")
        else:
            asked, stage = getattr(self._dataset, f"get_{what}"), f"{stage} of the dataset"
            found = with_string_ids(asked() if variant is None else asked(variant), stage)
        return with_grades(found, stage) if what == "qrels" else found

    def text_loader(self, fields: str | Iterable[str] = "text", *, verbose: bool = False) -> IndexTexts:
        """Make a stage that adds stored fields of the index to frames with ``docno``.

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
            raise InputError(f"{self.name} stores no {lacking!r}; it stores {', '.join(there)}")
        return IndexTexts(self.index, tuple(names), text_field=self.text_field)

    def retriever(self, model: str = "BM25", **options: Any) -> pt.Transformer:
        """Make a retriever over the index; queries are tokenised, so that none is read as Terrier's query language.

        Args:
            model: Terrier's name of the weighting model.
            options: Further options of ``TerrierIndex.retriever``.

        Returns:
            A stage from topics to results, which keep the topics' own queries.

        Raises:
            InputError: If Terrier has no such model.
        """
        check_weighting_model(model)
        tokens = pt.rewrite.tokenise(self.tokeniser)
        return tokens >> self.index.retriever(model, **options) >> pt.rewrite.reset()

    def indexer_of(self, pipeline: pt.Transformer) -> TerrierIndexer | None:
        """Make the indexer that rebuilds a retriever of this index over changed documents.

        Args:
            pipeline: A retriever, or a pipeline of Terrier's stages.

        Returns:
            The indexer; None for a pipeline that does not use this index alone, and for an index with fields or in memory.
        """
        made = over_another_index(pipeline, self.index)
        if made is None or self.reindexing_reason(pipeline):
            return None
        return TerrierIndexer(self.index, made, tokeniser=self.tokeniser)

    def reindexing_reason(self, pipeline: pt.Transformer) -> str:
        """Explain why retrievers over this index cannot be rebuilt over changed documents.

        Args:
            pipeline: A retriever, or a pipeline of Terrier's stages.

        Returns:
            One sentence; empty if they can be, and for a pipeline that does not use this index alone.
        """
        searched = {_folder_of(stage.indexref) for stage in flatten(pipeline) if _is_retriever(stage)}
        if searched != {_folder_of(self.index.index_ref())}:
            return ""
        try:
            fields = IndexSettings.of(self.index).fields
        except InputError as error:
            return f"its index cannot be rebuilt over changed passages: {error}"
        if not fields:
            return ""
        return (
            f"its index has fields ({', '.join(fields)}), which changed passages do not have, so it is not rebuilt over "
            f"them; audit a retriever over an index of the same texts without fields"
        )

    def _stored(self) -> list[str]:
        return [str(name) for name in self.index.meta_index().getKeys()]


def _judged_dataset(dataset: Any, split: str | None) -> Any:
    """Open a dataset for its topics and judgements; a PyTerrier dataset may lack documents."""
    if isinstance(dataset, Dataset) or not (hasattr(dataset, "get_topics") and hasattr(dataset, "get_qrels")):
        return open_dataset(dataset, split)
    return dataset if split is None else SplitView(dataset, split)


def check_weighting_model(model: str) -> None:
    """Refuse a weighting model that Terrier does not have, which Java would otherwise report only at the first query.

    Args:
        model: The name, such as ``'BM25'``; a name with a dot is a Java class. The check starts Java.

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
