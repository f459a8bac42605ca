"""A collection in memory, and the stage that loads its texts.

A dataset is any object with the methods of a PyTerrier dataset. Other data of a collection are optional; code that uses them
checks for them with :func:`~pyterrier_debias.core.dataset.provided`. For your own collection, write a class with these methods,
or make a :class:`Collection` from frames.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, NotProvidedError
from pyterrier_debias.core.frames import shared_texts, with_grades, with_string_ids
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.variants import document_of

#: Advice (part of messages) for texts that an index stores truncated.
STORE_WHOLE = "an index made with meta={'docno': 40, 'text': 20000} or more stores whole texts"


#: By how many characters a truncated text may be shorter than the limit: one, and spaces at its end.
_BLANKS = 3


def cut_texts(texts: pd.DataFrame, dataset: Any, field: str = "text") -> np.ndarray:
    """Detect truncated texts; an index stores a limited number of characters of a text.

    If the collection is in memory, texts are compared with its texts; nothing is downloaded for this. Otherwise, the longest
    texts are considered truncated if at least five, and one in a hundred, have the same length. Terrier keeps one character less
    than the limit, in at most twice as many bytes, and drops spaces at the end.

    Args:
        texts: Frame with ``docno`` and the text.
        dataset: The collection; for one over an index, ``longest_text`` is the number of characters that the index stores.
        field: The column that holds the text.

    Returns:
        bool, shape [n]; True for truncated texts.

    Example:
        >>> corpus = pd.DataFrame({"docno": ["d1"], "text": ["a text"]})
        >>> topics = pd.DataFrame({"qid": ["1"], "query": ["what"]})
        >>> whole = Collection("toy", corpus=corpus, topics={"test": topics}, qrels={})
        >>> cut_texts(pd.DataFrame({"docno": ["d1", "d1"], "text": ["a te", "a text"]}), whole).tolist()
        [True, False]
    """
    if len(texts) == 0:
        return np.zeros(0, dtype=bool)
    limit, corpus = getattr(dataset, "longest_text", None), getattr(dataset, "corpus", None)
    if limit is not None:
        least = limit - _BLANKS
        sizes = [(len(text), len(text.encode("utf-8", "replace"))) for text in texts[field]]
        return np.array([length >= least or size >= 2 * least for length, size in sizes], dtype=bool)
    if isinstance(corpus, pd.DataFrame) and field in corpus.columns:
        rows = pd.Index(corpus["docno"]).get_indexer(pd.Index(texts["docno"]))
        whole = np.array([*corpus[field].tolist(), None], dtype=object)[rows]
        owns = texts[field].tolist()
        return np.array(
            [isinstance(full, str) and len(own) < len(full) and full.startswith(own) for own, full in zip(owns, whole)],
            dtype=bool,
        )
    lengths = texts[field].map(len).to_numpy()
    distinct = texts.loc[lengths == lengths.max(), "docno"].nunique()
    return (lengths > lengths.max() - _BLANKS) & (distinct >= max(5, 0.01 * texts["docno"].nunique()))


def corpus_batches(corpus: Any, rows: int, *, verbose: bool = False) -> Iterator[pd.DataFrame]:
    """Split a corpus into frames.

    Args:
        corpus: A dataset (``get_corpus_iter``), a frame, or an iterable of dictionaries.
        rows: Number of documents per frame; the last frame may have fewer.
        verbose: Whether to show progress.

    Yields:
        Frames in the order of the corpus.
    """
    batches: Iterable[pd.DataFrame]
    if isinstance(corpus, pd.DataFrame):
        batches = (corpus.iloc[start : start + rows] for start in range(0, len(corpus), rows))
    else:
        documents = iter(corpus.get_corpus_iter() if hasattr(corpus, "get_corpus_iter") else corpus)
        batches = map(pd.DataFrame.from_records, iter(lambda: list(islice(documents, rows)), []))
    with pt.tqdm(desc="encoding the corpus", unit="doc", disable=not verbose) as bar:
        for batch in batches:
            yield batch
            bar.update(len(batch))


class TextLoader(RowWise):
    """Adds the text of documents from a frame in memory.

    Input: any frame with ``docno``. Output: the same rows with the fields as columns; existing columns with these names are
    replaced. Load texts before any stage that rewrites docnos.

    When not to use it: for collections that do not fit into memory; use the loader of an index or of ``ir_datasets``.

    Example:
        >>> import pandas as pd
        >>> corpus = pd.DataFrame({"docno": ["d1"], "text": ["a passage"]})
        >>> TextLoader(corpus)(pd.DataFrame({"qid": ["q1"], "docno": ["d1"]}))["text"].tolist()
        ['a passage']
    """

    schematic = {"label": "TextLoader"}  # noqa: RUF012

    def __init__(self, corpus: pd.DataFrame, fields: tuple[str, ...] = ("text",)):
        """
        Args:
            corpus: Frame with ``docno`` and the fields.
            fields: Which columns to add.
        """
        self.corpus = corpus
        self.fields = fields

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the fields; see the class."""
        pt.validate.columns(inp, includes=["docno"], context=self)
        table = self._by_docno()
        rows, docnos = pd.factorize(inp["docno"].astype(str))
        places = table.index.get_indexer(pd.Index(docnos))
        unknown = places < 0
        if unknown.any() and table.empty:
            raise InputError("TextLoader: the collection has no texts; give it a corpus")
        if unknown.any():
            first = docnos[unknown][0]
            remedy = "use the corpus that the run was made from"
            if document_of(first) in table.index:
                remedy = f"it is a passage of {document_of(first)!r}: use a corpus of the passages"
            raise InputError(
                f"TextLoader: {int(unknown[rows].sum())} of {len(inp)} rows have a docno that is not in the collection, "
                f"first {first!r}; {remedy}"
            )
        found = {}
        for field in self.fields:
            values = table[field].array
            texts = isinstance(values.dtype, pd.StringDtype)
            found[field] = shared_texts(values.take(places), rows, inp.index) if texts else values.take(places[rows])
        return inp.assign(**found)

    def _by_docno(self) -> pd.DataFrame:
        """The fields by docno, computed once for a corpus and its fields."""
        corpus, fields, table = self.__dict__.get("_table", (None, None, None))
        if corpus is not self.corpus or fields != tuple(self.fields):
            _check_fields("TextLoader", self.corpus, ("docno", *self.fields))
            table = with_string_ids(self.corpus, "TextLoader, corpus").set_index("docno")
            if not table.index.is_unique:
                twice = table.index[table.index.duplicated()][0]
                raise InputError(f"TextLoader: docno {twice!r} occurs twice in the corpus; keep one of its texts")
            table = table[list(self.fields)]
            self.__dict__["_table"] = self.corpus, tuple(self.fields), table
        return table

    def __getstate__(self) -> dict[str, Any]:
        """The options only; everything derived from them can be computed again."""
        return {name: value for name, value in self.__dict__.items() if name != "_table"}


class Collection(pt.datasets.Dataset):
    """A test collection in memory, with the interface of a PyTerrier dataset; make one from frames of your own data.

    ==============  ===========================================================================================
    ``corpus``      ``docno``, ``text`` and any other fields; one row per document
    ``topics``      for each split: ``qid``, ``query``; ``type`` and ``gender`` where known
    ``qrels``       for each split: ``qid``, ``docno``, ``label``
    ``candidates``  ``qid``, ``docno``, ``score``, ``rank``: the documents shown to labellers, in that order
    ``runs``        for each run's name: ``qid``, ``docno``, ``score``, ``rank``
    ``answers``     ``qid``, ``docno``, ``answer``; ``start`` and ``end`` in characters, -1 where unknown
    ==============  ===========================================================================================

    When not to use it: for a collection that does not fit into memory; any object with these methods can be used as a dataset.

    Example:
        >>> import pandas as pd
        >>> c = Collection(
        ...     "toy",
        ...     corpus=pd.DataFrame({"docno": ["d1"], "text": ["water boils at 100 degrees"]}),
        ...     topics={"test": pd.DataFrame({"qid": ["q1"], "query": ["when does water boil"]})},
        ...     qrels={"test": pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})},
        ... )
        >>> c.get_topics()["query"].tolist()
        ['when does water boil']
    """

    #: Reads the runs of another split, of a folder.
    runs_of_split: Callable[[str], dict[str, pd.DataFrame]] | None = None

    def __init__(
        self,
        name: str,
        *,
        corpus: pd.DataFrame | None = None,
        topics: Mapping[str, pd.DataFrame],
        qrels: Mapping[str, pd.DataFrame],
        split: str | None = None,
        candidates: pd.DataFrame | None = None,
        runs: Mapping[str, pd.DataFrame] | None = None,
        answers: pd.DataFrame | None = None,
        truth: Mapping[str, Any] | None = None,
    ):
        """
        Args:
            name: Name of the collection in reports.
            corpus: Frame ``docno``, ``text`` and any other fields; one row per document. None if the texts are not at hand: an
                audit of runs can then examine pooling and wording, among others, and says what it cannot examine.
            topics: Mapping from split to a frame ``qid``, ``query`` (and ``type``, ``gender`` where known).
            qrels: Mapping from split to a frame ``qid``, ``docno``, ``label``; the key ``'full'`` has fuller judgements, if any.
            split: The default split of the methods; None for the first of ``topics``.
            candidates: Frame ``qid``, ``docno``, ``score``, ``rank``: the documents shown to labellers, in that order.
            runs: Mapping from a run's name to a result frame.
            answers: Frame ``qid``, ``docno``, ``answer``, ``start``, ``end`` (characters; -1 where unknown).
            truth: The planted biases, for synthetic collections.

        Raises:
            InputError: If a frame lacks a column, a docno occurs twice, a document has no text, or a label is not a whole number.
        """
        self.name = name
        corpus = pd.DataFrame(columns=["docno", "text"], dtype=object) if corpus is None else corpus
        self.corpus = _checked(corpus, ["docno", "text"], f"{name}: corpus")
        repeated = self.corpus["docno"].duplicated()
        if repeated.any():
            raise InputError(f"{name}: docno {self.corpus['docno'][repeated].iloc[0]!r} occurs twice in the corpus; keep one row")
        without = self.corpus["text"].isna()
        if without.any():
            first, *others = self.corpus["docno"][without]
            raise InputError(
                f"{name}: document {first!r}{f' (and {len(others)} more)' if others else ''} has no text; give '' for an empty "
                f"text, or leave such documents out"
            )
        self.topics = _by_split(topics, ["qid", "query"], f"{name}: topics")
        judged = _by_split(qrels, ["qid", "docno", "label"], f"{name}: qrels")
        self.qrels = {split: with_grades(frame, f"{name}: qrels {split!r}") for split, frame in judged.items()}
        self.split = split if split is not None else next(iter(self.topics))
        if self.split not in self.topics:
            raise InputError(f"{name}: there is no split {self.split!r}; it has {', '.join(self.topics)}")
        self.candidates = None if candidates is None else _checked(
            candidates, ["qid", "docno", "score", "rank"], f"{name}: candidates"
        )
        self.runs = {
            run: _checked(f, ["qid", "docno", "score", "rank"], f"{name}: run {run!r}") for run, f in (runs or {}).items()
        }
        self.answers = None if answers is None else _checked(
            answers, ["qid", "docno", "answer", "start", "end"], f"{name}: answers"
        )
        self.truth = dict(truth or {})

    def __repr__(self) -> str:
        """Name and sizes."""
        topics = ", ".join(f"{split} {len(frame)}" for split, frame in self.topics.items())
        return f"<Collection {self.name!r}: {len(self.corpus)} documents; topics: {topics}>"

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Iterate over the documents as dictionaries, in the order of the corpus.

        Args:
            verbose: Whether to show progress.

        Yields:
            One dictionary per document, with ``docno``, ``text`` and the other fields.
        """
        columns = list(self.corpus.columns)
        rows = zip(*(self.corpus[c].tolist() for c in columns))
        for row in pt.tqdm(rows, total=len(self.corpus), desc=self.name, disable=not verbose):
            yield dict(zip(columns, row))

    def get_corpus(self) -> pd.DataFrame:  # type: ignore[override]  # PyTerrier's gives names of files
        """The corpus as a frame: ``docno``, ``text`` and the other fields."""
        return _handed_out(self.corpus)

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Topics of a split (default: the collection's own): ``qid``, ``query``, ...; InputError for an unknown split."""
        return self._of(self.topics, variant, "topics")

    # By which pt.get_dataset would else put a function of its own in place of the method, which no view or pickle may share.
    get_topics._has_add_tokenize_query_arg_applied = True  # type: ignore[attr-defined]

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Judgements of a split or of ``'full'``: ``qid``, ``docno``, ``label`` (integer); InputError for an unknown split."""
        return self._of(self.qrels, variant, "judgements")

    def _of(self, frames: Mapping[str, pd.DataFrame], variant: str | None, what: str) -> pd.DataFrame:
        split = self.split if variant is None else variant
        if split not in frames:
            raise NotProvidedError(f"{self.name}: no {what} for {split!r}; there are {', '.join(frames) or 'none'}")
        return frames[split].copy()

    def text_loader(self, fields: str | Iterable[str] = "text", *, verbose: bool = False) -> TextLoader:
        """Make a stage that adds fields of the corpus to frames with ``docno``.

        Args:
            fields: One name, several, or ``'*'`` for all.
            verbose: Accepted for compatibility; looking up a frame needs no progress bar.

        Raises:
            InputError: For a field that the corpus lacks; the message names the existing fields.
        """
        there = [c for c in self.corpus.columns if c != "docno"]
        names = there if fields == "*" else [fields] if isinstance(fields, str) else list(fields)
        _check_fields(self.name, self.corpus, names)
        return TextLoader(self.corpus, tuple(names))

    def get_results(self, variant: str | None = None) -> pd.DataFrame:
        """Return a run to rerank, for the topics of the collection's split: ``qid``, ``query``, ``docno``, ``score``, ``rank``.

        Args:
            variant: The run's name; None for the first run.

        Returns:
            One row per query and document.

        Raises:
            InputError: For a run that does not exist, and always if the collection has no runs.
        """
        name = next(iter(self.runs), None) if variant is None else variant
        if name not in self.runs:
            raise NotProvidedError(f"{self.name}: no run {name!r}; there are {', '.join(self.runs) or 'none'}")
        # Runs that pipelines make have a query of their own.
        return self.get_topics()[["qid", "query"]].merge(self.runs[name][["qid", "docno", "score", "rank"]], on="qid")

    def _describe_component(self, component: str) -> bool | list[str] | None:
        """The description that ``pt.list_datasets`` shows."""
        parts: dict[str, bool | list[str]] = {"topics": list(self.topics), "qrels": list(self.qrels), "corpus": True}
        return parts.get(component)

    def get_candidates(self) -> pd.DataFrame | None:
        """The documents shown to labellers, in that order: ``qid``, ``docno``, ``score``, ``rank``; None if unknown."""
        return None if self.candidates is None else _handed_out(self.candidates)

    def get_runs(self) -> dict[str, pd.DataFrame]:
        """Runs by name; empty if there are none."""
        return {name: _handed_out(run) for name, run in self.runs.items()}

    def get_answers(self) -> pd.DataFrame | None:
        """Answers: ``qid``, ``docno``, ``answer``, ``start``, ``end`` (characters); None if unknown."""
        return None if self.answers is None else self.answers.copy()


def _handed_out(frame: pd.DataFrame) -> pd.DataFrame:
    """A large frame whose columns a caller may replace; its values are shared, and copied when pandas 3 writes to them."""
    return frame.copy(deep=False)


def _check_fields(name: str, corpus: pd.DataFrame, fields: Iterable[str]) -> None:
    missing = [field for field in fields if field not in corpus.columns]
    if missing:
        there = ", ".join(str(c) for c in corpus.columns if c != "docno")
        raise InputError(f"{name}: documents have no field {missing[0]!r}; there are {there}")


def _by_split(frames: Mapping[str, pd.DataFrame], columns: list[str], what: str) -> dict[str, pd.DataFrame]:
    if isinstance(frames, pd.DataFrame):
        raise InputError(f"{what} is one frame; give a mapping from split to frame, e.g. {{'test': frame}}")
    return {split: _checked(frame, columns, f"{what} {split!r}") for split, frame in frames.items()}


def _checked(frame: pd.DataFrame, columns: list[str], what: str) -> pd.DataFrame:
    frame = with_string_ids(frame, what)
    missing = [c for c in columns if c not in frame.columns]
    if missing:
        raise InputError(f"{what}: column {missing[0]!r} is missing; it has {', '.join(map(str, frame.columns)) or 'none'}")
    return frame
