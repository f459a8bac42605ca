"""Other forms of queries and of documents: what must not go with new words, the names of changed texts, passages of documents."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.text import digest

_FORM_OF_QUERY = re.compile(r"query_(tok|vec|emb|weight|ids|mask|term)\w*")


def query_forms(frame: pd.DataFrame) -> list[str]:
    """Columns that hold another form of the query, made from its words: ``query_toks``, ``query_vec``, ``query_embs``.

    Stages that change the query drop them: Terrier reads ``query_toks`` and ignores the query if there is such a column, and a
    retriever reads ``query_vec``.

    Args:
        frame: Any frame.

    Returns:
        Their names: the usual ones, and columns that begin with ``query_`` and hold arrays, lists or mappings. ``query_0`` and
        so on, which keep earlier queries, and other properties of a query (``query_type``) are not included.

    Example:
        >>> query_forms(pd.DataFrame({"query": ["tea"], "query_0": ["a tea"], "query_toks": [{"tea": 1.0}], "query_type": ["x"]}))
        ['query_toks']
    """
    named = [column for column in frame.columns if str(column).startswith("query_")]
    return [
        column for column in named
        if _FORM_OF_QUERY.fullmatch(column) or frame[column].map(lambda v: isinstance(v, (np.ndarray, list, tuple, dict))).any()
    ]


def earlier_queries(frame: pd.DataFrame) -> list[str]:
    """The columns in which PyTerrier's rewriters keep earlier queries: ``query_0`` and so on.

    Args:
        frame: Any frame.

    Returns:
        Their names.
    """
    return [c for c in map(str, frame.columns) if c.startswith("query_") and c.removeprefix("query_").isdigit()]


def reworded(frame: pd.DataFrame, queries: Any, *, keep: bool = True) -> pd.DataFrame:
    """A frame with new queries; columns computed from the old ones are dropped.

    Args:
        frame: A frame with ``query``.
        queries: The new query of each row.
        keep: Whether the old query is kept in ``query_0``, and older ones in ``query_1`` and so on, as PyTerrier's own rewriters
            do. Otherwise the new query also replaces the earlier ones, so that a stage that restores these restores the new one.

    Returns:
        A new frame.

    Example:
        >>> asked = pd.DataFrame({"qid": ["1"], "query": ["teas"], "query_toks": [{"tea": 1.0}]})
        >>> reworded(asked, ["tea"]).to_dict("records")
        [{'qid': '1', 'query_0': 'teas', 'query': 'tea'}]
    """
    frame = frame.drop(columns=query_forms(frame))
    queries = pd.Series(queries, index=frame.index, dtype="str")  # an empty list would make numbers
    if keep:
        return pt.model.push_queries(frame, keep_original=True).assign(query=queries)
    return frame.assign(**dict.fromkeys(["query", *earlier_queries(frame)], queries))


#: Two letters of base 32 (RFC 4648, lower case) for each ten bits; base64.b32encode takes several times as long.
_PAIRS = [one + other for one in "abcdefghijklmnopqrstuvwxyz234567" for other in "abcdefghijklmnopqrstuvwxyz234567"]


#: What the name of every variant has; few names of documents do.
VARIANT_MARK = "%r"


def variant_docno(docno: str, variant: int | str, *, longest: int = 20) -> str:
    """The name under which a changed text of a document is scored, so that no cache mistakes it for the original.

    Args:
        docno: The document's own name.
        variant: The name of the variant.
        longest: The largest number of characters, at least 14: PyTerrier's indexes in memory keep 20 of a docno.

    Returns:
        ``d7%r1`` for document ``d7`` and variant ``1``; if that is too long, a hash of both.

    Example:
        >>> variant_docno("d7", 1), variant_docno("a-docno-of-more-than-20-characters", 1)
        ('d7%r1', '%rk3zr6fvk4zk4')
    """
    name = f"{docno}{VARIANT_MARK}{variant}"
    if len(name) <= longest:
        return name
    # 60 bits, without "%p", which marks the number of a passage.
    number = int(digest([docno, str(variant)])[:15], 16)
    return VARIANT_MARK + "".join([_PAIRS[number >> shift & 1023] for shift in (50, 40, 30, 20, 10, 0)])


#: Columns that are valid only for the index or the model that wrote them, and identify a document's stored form.
OF_ANOTHER_INDEX = ("docid", "doc_vec", "doc_toks", "doc_embs", "doc_tok_mask", "toks")

#: What ``pt.text.sliding`` calls the passages of a document.
_PASSAGE = re.compile(r"(.+)%p\d+", re.DOTALL)


def without_index_columns(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame without the columns that an index uses to find a stored document.

    Text loaders and rerankers of an index prefer ``docid`` to ``docno``. Therefore a row from elsewhere, or with a changed text,
    must not have one.

    Args:
        frame: Any frame.

    Returns:
        The same frame if it has none of them, otherwise a copy without :data:`OF_ANOTHER_INDEX`.

    Example:
        >>> list(without_index_columns(pd.DataFrame({"qid": ["1"], "docid": [7], "docno": ["d7"]})))
        ['qid', 'docno']
    """
    there = [column for column in OF_ANOTHER_INDEX if column in frame.columns]
    return frame.drop(columns=there) if there else frame


def document_of(docno: str) -> str:
    """The document of a passage, by the name that ``pt.text.sliding`` gives to it; any other docno is returned as it is.

    Args:
        docno: Any docno.

    Returns:
        The docno without the number of a passage.

    Example:
        >>> document_of("d7%p2"), document_of("d9")
        ('d7', 'd9')
    """
    found = _PASSAGE.fullmatch(docno)
    return found[1] if found else docno


def documents_of(docnos: Iterable[str], judged: Iterable[str]) -> np.ndarray:
    """The documents that passages were cut from, recognised by the names that ``pt.text.sliding`` gives to passages.

    ``d7%p2`` is a passage of ``d7`` if the part before ``%p`` is judged for any query, or that of another passage is, and it is
    not judged itself. Every other docno is a document.

    Args:
        docnos: n docnos.
        judged: Docnos that are judged for any query.

    Returns:
        n docnos.

    Example:
        >>> documents_of(["d7%p0", "d8%p1", "d9"], ["d7"]).tolist()
        ['d7', 'd8', 'd9']
        >>> documents_of(["d7%p0", "d8%p1"], ["d7%p0"]).tolist()
        ['d7%p0', 'd8%p1']
    """
    own = np.array(list(docnos), dtype=object)
    known = set(judged)
    of = np.array([docno if docno in known else document_of(docno) for docno in own], dtype=object)
    return of if any(document in known for document, docno in zip(of, own) if document != docno) else own


def with_passages(judged: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Judgements of documents, with those that their passages inherit.

    Args:
        judged: ``qid``, ``docno``, ``label``.
        rows: Candidates ``qid``, ``docno``.

    Returns:
        The same judgements, followed by one for each row that is a passage of a judged document; see :func:`documents_of`.

    Example:
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["d7"], "label": [2]})
        >>> with_passages(qrels, pd.DataFrame({"qid": ["1", "1"], "docno": ["d7%p0", "d8%p0"]})).values.tolist()
        [['1', 'd7', 2], ['1', 'd7%p0', 2]]
    """
    documents = documents_of(rows["docno"], judged["docno"])
    cut = documents != rows["docno"].to_numpy(dtype=object)
    if not cut.any():
        return judged
    passages = rows.loc[cut, ["qid", "docno"]].assign(document=documents[cut])
    columns = ["qid", "docno", "label"]
    found = passages.merge(judged[columns].rename(columns={"docno": "document"}), on=["qid", "document"])
    return pd.concat([judged, found[columns]], ignore_index=True)
