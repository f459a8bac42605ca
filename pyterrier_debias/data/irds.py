"""Datasets of ir_datasets, through PyTerrier, with the interface of this library's datasets."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, NotProvidedError
from pyterrier_debias.core.frames import ranked, shared_texts, with_string_ids
from pyterrier_debias.core.stage import RowWise

logger = logging.getLogger(__name__)


class IRDSCollection:
    """A dataset of ``ir_datasets``; nothing is downloaded before it is needed.

    Documents have ``docno``, ``text`` (the field ``text``, or ``default_text()`` of documents without this field) and their other
    string fields; topics have ``qid``, ``query`` and their other string fields. A split is the id's last part:
    ``get_qrels('train')`` of ``beir/nfcorpus/test`` returns the judgements of ``beir/nfcorpus/train``.

    For ``msmarco-qna/...``, the candidates are the passages shown to labellers, in that order; labels are 1 (used for the answer)
    or 0 (shown, not used); and the answers are those of the topics, for each passage that was used.

    Example:
        >>> IRDSCollection("beir/nfcorpus/test")
        IRDSCollection('beir/nfcorpus/test')
    """

    def __init__(self, irds_id: str):
        """
        Args:
            irds_id: The id as in ``ir_datasets.load``, without ``irds:``.

        Raises:
            InputError: If ``ir_datasets`` does not know the id.
        """
        self.irds_id = irds_id
        _reference(irds_id)

    @property
    def name(self) -> str:
        """The name in reports: ``irds:`` and the id."""
        return f"irds:{self.irds_id}"

    def __repr__(self) -> str:
        """The constructor's call."""
        return f"IRDSCollection({self.irds_id!r})"

    def get_corpus_iter(self, verbose: bool = False) -> Iterator[dict[str, Any]]:
        """Iterate over the documents as dictionaries with ``docno``, ``text`` and the other string fields.

        Args:
            verbose: Whether to show progress.

        Yields:
            One dictionary per document, in the collection's order.

        Raises:
            InputError: If the documents are not available locally and cannot be downloaded.
        """
        documents = _records(self.irds_id, "docs")
        for document in pt.tqdm(documents, desc=self.name, unit="doc", disable=not verbose):
            yield {"docno": document.doc_id, **_fields(document)}

    def get_topics(self, variant: str | None = None) -> pd.DataFrame:
        """Return the topics: ``qid``, ``query`` and the other string fields.

        Args:
            variant: A field of the topics to use as the query, such as ``'description'``, or another split.

        Returns:
            One row per topic.

        Raises:
            InputError: If there are none, or they cannot be downloaded.
        """
        reference = _reference(self.irds_id)
        named = variant is not None and reference.has_queries() and variant in reference.queries_cls()._fields
        field = variant if named else None
        rows = []
        for query in _records(self.irds_id if named else id_of_split(self.irds_id, variant), "queries"):
            text = query.default_text() if field is None else getattr(query, field)
            others = {k: v for k, v in query._asdict().items() if isinstance(v, str) and k not in ("query_id", "text")}
            rows.append({**others, "qid": query.query_id, "query": text})
        frame = with_string_ids(pd.DataFrame(rows), f"{self.name}, topics")
        return frame[["qid", "query", *frame.columns.drop(["qid", "query"])]]

    def get_qrels(self, variant: str | None = None) -> pd.DataFrame:
        """Return the judgements: ``qid``, ``docno``, ``label``.

        Args:
            variant: Another split.

        Returns:
            One row per judgement.

        Raises:
            InputError: If there are none, or they cannot be downloaded.
        """
        rows = [(q.query_id, q.doc_id, q.relevance) for q in _records(id_of_split(self.irds_id, variant), "qrels")]
        return with_string_ids(pd.DataFrame(rows, columns=["qid", "docno", "label"]), f"{self.name}, judgements")

    def text_loader(self, fields: str | Iterable[str] = "text", *, verbose: bool = False) -> DocstoreLoader:
        """Make a stage that adds fields of documents to frames with ``docno``.

        Args:
            fields: One name, several, or ``'*'`` for all string fields.
            verbose: Whether to show progress.
        """
        if fields == "*":
            document_type = _reference(self.irds_id).docs_cls()
            strings = [f for f in document_type._fields if document_type.__annotations__[f] is str and f != "doc_id"]
            fields = ["text", *(f for f in strings if f != "text")]
        return DocstoreLoader(self.irds_id, (fields,) if isinstance(fields, str) else tuple(fields), verbose=verbose)

    def get_candidates(self) -> pd.DataFrame | None:
        """The dataset's ``scoreddocs`` as ``qid``, ``docno``, ``score``, ``rank``.

        None if it has none, or if all of their scores are equal, as with MS MARCO's first 1,000 passages: these have no order.
        """
        if not _reference(self.irds_id).has_scoreddocs():
            return None
        rows = [(s.query_id, s.doc_id, float(s.score)) for s in _records(self.irds_id, "scoreddocs")]
        found = pd.DataFrame(rows, columns=["qid", "docno", "score"])
        if found["score"].nunique() < 2 and found["qid"].duplicated().any():
            logger.warning("%s: its scoreddocs have no scores, so they are no ranking and are not used", self.name)
            return None
        return ranked(found, f"{self.name}, scoreddocs")

    def get_runs(self) -> dict[str, pd.DataFrame]:
        """The candidates under the name ``scoreddocs``; empty if there are none."""
        candidates = self.get_candidates()
        return {} if candidates is None else {"scoreddocs": candidates}

    def get_answers(self) -> pd.DataFrame | None:
        """Answers of the topics for each relevant document, offsets -1; None if the topics have no field ``answers``."""
        reference = _reference(self.irds_id)
        if not (reference.has_queries() and reference.has_qrels() and "answers" in reference.queries_cls()._fields):
            return None
        answers = {query.query_id: query.answers for query in _records(self.irds_id, "queries")}
        rows = [
            (q.query_id, q.doc_id, answer, -1, -1)
            for q in _records(self.irds_id, "qrels") if q.relevance > 0 for answer in answers.get(q.query_id, ())
        ]
        return with_string_ids(pd.DataFrame(rows, columns=["qid", "docno", "answer", "start", "end"]), f"{self.name}, answers")


class DocstoreLoader(RowWise):
    """Adds the text of documents from the document store of ``ir_datasets``.

    Input: any frame with ``docno``. Output: the same rows with the fields as columns; existing columns with these names are
    replaced. Load texts before any stage that rewrites docnos.

    When not to use it: for collections that are in memory; their ``text_loader()`` is faster.

    Example:
        >>> DocstoreLoader("beir/nfcorpus", ("title", "text"))
        DocstoreLoader('beir/nfcorpus', ('title', 'text'))
    """

    schematic = {"label": "DocstoreLoader"}  # noqa: RUF012

    def __init__(self, irds_id: str, fields: tuple[str, ...] = ("text",), *, verbose: bool = False):
        """
        Args:
            irds_id: The dataset's id, without ``irds:``.
            fields: Which fields to add; every dataset has ``text``.
            verbose: Whether to show progress.
        """
        self.irds_id = irds_id
        self.fields = fields
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the fields; see the class."""
        pt.validate.columns(inp, includes=["docno"], context=self)
        rows, names = pd.factorize(inp["docno"].astype(str))
        docnos, found = names.tolist(), {}
        if docnos:
            wanted = set(docnos)
            with _reached(self.irds_id, "documents"):
                documents = _reference(self.irds_id).docs_store().get_many_iter(wanted)
                for document in pt.tqdm(documents, desc="TextLoader", total=len(wanted), disable=not self.verbose):
                    found[document.doc_id] = _fields(document)
        unknown = np.array([docno not in found for docno in docnos], dtype=bool)
        if unknown.any():
            raise InputError(
                f"TextLoader: {int(unknown[rows].sum())} of {len(inp)} rows have a docno that is not in irds:{self.irds_id}, "
                f"first {docnos[int(unknown.argmax())]!r}; use the dataset that the run was made from"
            )
        lacking = [f for f in self.fields if docnos and f not in found[docnos[0]]]
        if lacking:
            raise InputError(
                f"TextLoader: the documents of irds:{self.irds_id} have no field {lacking[0]!r}; they have "
                f"{', '.join(found[docnos[0]])}"
            )
        texts = {field: [found[docno][field] for docno in docnos] for field in self.fields}
        return inp.assign(**{field: shared_texts(own, rows, inp.index) for field, own in texts.items()})


def id_of_split(irds_id: str, split: str | None) -> str:
    """Find the id of a split: a part of the dataset, or of the dataset to which it belongs.

    Args:
        irds_id: An id, with or without a split at its end.
        split: The split; None for the id's own.

    Returns:
        ``beir/nfcorpus/dev`` for ``beir/nfcorpus`` as well as ``beir/nfcorpus/test`` and the split ``dev``.

    Raises:
        InputError: If ``ir_datasets`` knows neither.
    """
    above, _, last = irds_id.rpartition("/")
    if split is None or split == last:
        return irds_id
    candidates = [f"{irds_id}/{split}", *([f"{above}/{split}"] if above else [])]
    known = [candidate for candidate in candidates if _known(candidate)]
    if not known:
        raise NotProvidedError(
            f"irds:{irds_id}: ir_datasets has no {' and no '.join(candidates)}; see https://ir-datasets.com for the splits"
        )
    return known[0]


def _known(irds_id: str) -> bool:
    import ir_datasets

    try:
        ir_datasets.load(irds_id)
    except KeyError:
        return False
    return True


def _reference(irds_id: str) -> Any:
    """The dataset of ``ir_datasets``; not yet downloaded."""
    if not _known(irds_id):
        raise InputError(f"irds:{irds_id}: ir_datasets has no such dataset; see https://ir-datasets.com for the ids")
    dataset: Any = pt.get_dataset(f"irds:{irds_id}")  # PyTerrier's wrapper, a class that it does not export
    return dataset.irds_ref()


def _records(irds_id: str, kind: str) -> Iterator[Any]:
    """The documents, queries, qrels or scoreddocs of a dataset."""
    reference = _reference(irds_id)
    if not reference.has(kind):
        raise NotProvidedError(f"irds:{irds_id}: it has no {kind}; name a subset that has them, see https://ir-datasets.com")
    with _reached(irds_id, kind):
        yield from getattr(reference, f"{kind}_iter")()


@contextmanager
def _reached(irds_id: str, what: str) -> Iterator[None]:
    """Make the error name the part that could not be downloaded."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        reason = error.args[0] if error.args else type(error).__name__
        raise InputError(
            f"irds:{irds_id}: its {what} could not be downloaded ({reason}); "
            f"connect to the network, or follow the instructions at https://ir-datasets.com"
        ) from error


def _fields(document: Any) -> dict[str, str]:
    """The string fields of a document, empty where it lacks a field of its type, and always a ``text``."""
    kinds = getattr(type(document), "__annotations__", {})
    texts = {k: "" if v is None and kinds.get(k, str) in (str, str | None) else v for k, v in document._asdict().items()}
    return {"text": document.default_text(), **{k: v for k, v in texts.items() if isinstance(v, str) and k != "doc_id"}}
