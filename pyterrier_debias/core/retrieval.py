"""Retrieval for audits: reports queries that a retriever cannot answer, and retrieves no more than needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.stage import Stage, flatten, join
from pyterrier_debias.core.terrier import is_reset, is_retriever

_TOPICS = ["qid", "query"]
#: How many queries, spread over the topics, must each fail before a retriever that raises is considered broken.
_TRIED = 8


def answered(retriever: Callable[[pd.DataFrame], pd.DataFrame], topics: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The results of a retriever; if it raises an error for some of the queries, the results of the others.

    Args:
        retriever: Anything that returns results for topics.
        topics: ``qid`` and the columns that the retriever reads.

    Returns:
        The results, and a mapping from the qids that failed to the error in one line.

    Raises:
        Exception: The retriever's error if it fails for all queries that have results, or for each query of a sample, so that it
            must be broken.
            Input errors are raised unchanged.

    Example:
        >>> def odd(topics):
        ...     return topics.assign(docno=["d1" if len(query) % 2 else 1 / 0 for query in topics["query"]])
        >>> found, failed = answered(odd, pd.DataFrame({"qid": ["1", "2", "3"], "query": ["a", "bb", "ccc"]}))
        >>> found["qid"].tolist(), failed
        (['1', '3'], {'2': 'ZeroDivisionError: division by zero'})
    """
    if hasattr(retriever, "answered"):
        return retriever.answered(topics)
    try:
        return retriever(topics), {}
    except (InputError, pt.validate.InputValidationError):
        raise
    except Exception as error:
        raised = error
        qids = topics["qid"].drop_duplicates().tolist()
        spread = [qids[n] for n in np.unique(np.linspace(0, len(qids) - 1, min(_TRIED, len(qids))).astype(int))]
        if len(qids) < 2 or all(_raised_by(retriever, topics, [qid]) for qid in spread):
            raise
    failed: dict[str, str] = {}
    found = pd.concat(list(_answers(retriever, topics, qids, failed)), ignore_index=True)
    if failed and found.empty:  # the others have no results, and raise nothing because there is nothing to do
        raise raised
    return found, failed


def _raised_by(retriever: Callable[[pd.DataFrame], pd.DataFrame], topics: pd.DataFrame, qids: list[str]) -> bool:
    try:
        retriever(topics[topics["qid"].isin(qids)].reset_index(drop=True))
    except (InputError, pt.validate.InputValidationError):
        raise
    except Exception:
        return True
    return False


def _answers(
    retriever: Callable[[pd.DataFrame], pd.DataFrame], topics: pd.DataFrame, qids: list[str], failed: dict[str, str]
) -> Iterator[pd.DataFrame]:
    """Results of the queries that a retriever answers; the others are found by halving."""
    try:
        yield retriever(topics[topics["qid"].isin(qids)].reset_index(drop=True))
    except (InputError, pt.validate.InputValidationError):
        raise
    except Exception as error:
        if len(qids) == 1:
            failed[str(qids[0])] = one_line(error)
            return
        half = len(qids) // 2
        yield from _answers(retriever, topics, qids[:half], failed)
        yield from _answers(retriever, topics, qids[half:], failed)


def unanswered_queries(topics: pd.DataFrame, found: pd.DataFrame, failed: dict[str, str]) -> dict[str, str]:
    """The topics without results.

    Args:
        topics: The topics: ``qid``.
        found: The results: ``qid``.
        failed: qid to the error.

    Returns:
        qid to the error; an empty text if nothing was found.

    Example:
        >>> unanswered_queries(pd.DataFrame({"qid": ["1", "2"]}), pd.DataFrame({"qid": ["1"]}), {})
        {'2': ''}
    """
    there = set(found["qid"])
    return {qid: failed.get(qid, "") for qid in topics["qid"].drop_duplicates().astype(str) if qid not in there}


def unanswered_notes(
    what: str, asked: int, unanswered: dict[str, str], *, named: int = 10, nothing: str = "nothing was found"
) -> list[str]:
    """Sentences that count and name the queries that have no results.

    Args:
        what: The name of the retriever.
        asked: How many queries there were.
        unanswered: qid to the error; an empty text if nothing was found.
        named: The largest number of queries that a sentence names.
        nothing: What happened where there is no error.

    Returns:
        One sentence for each reason.

    Example:
        >>> unanswered_notes("BM25", 300, {"7": "", "9": ""})
        ['BM25: nothing was found for 2 of 300 queries, counted as 0 if judged: 7, 9.']
    """
    reasons: dict[str, list[str]] = {}
    for qid, reason in unanswered.items():
        reasons.setdefault(reason, []).append(qid)
    notes = []
    for reason, qids in reasons.items():
        names = ", ".join(qids[:named]) + (f" and {len(qids) - named} more" if len(qids) > named else "")
        happened = f"it raised ({reason.rstrip('.')})" if reason else nothing
        notes.append(f"{what}: {happened} for {len(qids)} of {asked} queries, counted as 0 if judged: {names}.")
    return notes


def asking_for(pipeline: pt.Transformer, k: int) -> pt.Transformer | None:
    """The pipeline with a retriever that returns no more than ``k`` documents per query.

    PyTerrier's ``(pipeline % k).compile()`` would lose a tokeniser, a subclass of Terrier's retriever and every stage that it
    mistakes for one; approximate indexes search differently for fewer results.

    Args:
        pipeline: A retriever, with the stages before the ranker.
        k: The number of documents.

    Returns:
        The pipeline; None if its first ``k`` results are not certain to be those of the given pipeline.
    """
    stages = flatten(pipeline)
    retrievers = [number for number, stage in enumerate(stages) if is_retriever(stage) or hasattr(stage, "num_results")]
    if not retrievers:
        return None
    at = retrievers[-1]
    before, stage, after = stages[:at], stages[at], stages[at + 1 :]
    columns = _TOPICS if not before else pt.inspect.transformer_outputs(join(*before), _TOPICS, strict=False)
    if columns is None or {"docno", "docid"} & set(columns) or not all(_lets_through(one, k) for one in after):
        return None
    k = min([k, *(one.k for one in after if isinstance(one, pt.RankCutoff))])
    if is_retriever(stage):
        plain = type(stage) is pt.terrier.Retriever and stage.threads == 1 and _tokenises_as_usual(stage)
        fewer = stage.fuse_rank_cutoff(k) if plain else None
    else:
        fewer = stage.fuse_rank_cutoff(k) if isinstance(stage, Stage) and hasattr(stage, "fuse_rank_cutoff") else None
    return None if fewer is None else join(*before, fewer, *after)


def _tokenises_as_usual(retriever: Any) -> bool:
    return str(retriever.tokeniser.getClass().getName()).endswith(".EnglishTokeniser")


def _lets_through(stage: pt.Transformer, k: int) -> bool:
    """Whether a stage treats rows one by one, so that a cut-off after it can be moved before it."""
    if isinstance(stage, pt.RankCutoff) or is_reset(stage):  # which gives each row its earlier query
        return True
    fuse = getattr(stage, "fuse_rank_cutoff", None)
    fused = None if fuse is None or is_retriever(stage) else fuse(k)
    return isinstance(fused, pt.Compose) and len(fused) == 2 and fused[0] == pt.RankCutoff(k) and fused[1] is stage


def tied_at(frame: pd.DataFrame, depth: int) -> set[str]:
    """The queries whose document at a depth has the same score as the next one.

    Args:
        frame: Results with ``qid`` and ``score``.
        depth: The place of the document, by score, from 1.

    Returns:
        Their qids.

    Example:
        >>> found = pd.DataFrame({"qid": ["1", "1", "2", "2"], "score": [1.0, 1.0, 2.0, 1.0]})
        >>> tied_at(found, 1)
        {'1'}
    """
    place = frame.groupby("qid")["score"].rank(method="first", ascending=False)
    scores = frame[place.isin([depth, depth + 1])].groupby("qid")["score"]
    return set(scores.size().index[(scores.size() == 2) & (scores.nunique() == 1)])
