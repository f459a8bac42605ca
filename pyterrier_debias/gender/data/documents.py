"""The documents of result frames: each text is loaded once, and its words are counted once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice, kind_of, one_line
from pyterrier_debias.core.frames import break_ties, check_scores, check_text, stage_name, with_string_ids
from pyterrier_debias.core.text import Tokeniser, as_name
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas.counting import WordCounts, document_numbers, word_counts

logger = logging.getLogger(__name__)

UNKNOWN = ("raise", "zero")
#: The column that says which candidates a ranker left out: they are ranked below its results, and a cut-off ends above them.
LEFT_OUT = "left out"


class Texts:
    """Where the texts of documents come from: a column of the frame, or a loader with a cache.

    Args:
        source: None for the column; a transformer that adds the text to frames with ``docno``; anything with ``text_loader()`` (a
            dataset, a ``TerrierIndex``); a frame ``docno``, ``text``; or a mapping from a docno to its text.
        field: The column that holds the text.
        unknown: What to do with a document without text: ``'raise'``, or ``'zero'``: count it as one without any words; a warning
            says how many there are.
    """

    def __init__(self, source: Any = None, field: str = "text", unknown: str = "raise"):
        check_choice("texts", "unknown", unknown, UNKNOWN)
        if isinstance(source, pd.DataFrame):
            missing = [c for c in ("docno", field) if c not in source.columns]
            if missing:
                raise InputError(f"texts: the frame has no column {missing[0]!r}; give a frame docno, {field}")
            source = dict(zip(with_string_ids(source, "texts")["docno"], source[field]))
        elif isinstance(source, Mapping):
            if not all(isinstance(docno, str) for docno in source):
                source = {as_name(docno): text for docno, text in source.items()}
        elif hasattr(source, "text_loader"):  # checked first: an index of PyTerrier is also a transformer
            source = _loader_of(source, field)
        elif source is not None and (not isinstance(source, pt.Transformer) or isinstance(source, pt.Indexer)):
            raise InputError(
                f"texts must be a text loader, an object that has one (a dataset, pt.terrier.TerrierIndex(folder)), a frame "
                f"docno, {field}, or a mapping from docno to text, not {kind_of(source)}"
            )
        self.source = source
        self.field = field
        self.unknown = unknown
        self._known: dict[str, str] = {}
        self._counted: dict[tuple[WordList, str | Tokeniser], tuple[dict[str, int], WordCounts]] = {}

    @classmethod
    def given(cls, source: Any, field: str = "text", unknown: str = "raise") -> Texts:
        """The texts of a source; a :class:`Texts` is returned as it is, with what it has already loaded and counted.

        Args:
            source: A source, as for the class, or a :class:`Texts`.
            field: The column that holds the text.
            unknown: What to do with a document without text, as for the class.

        Raises:
            InputError: If ``unknown='zero'`` is given together with a :class:`Texts` that has another value of this option; and
                for all that the class rejects.
        """
        if not isinstance(source, cls):
            return cls(source, field, unknown)
        check_choice("texts", "unknown", unknown, UNKNOWN)
        if unknown != "raise" and unknown != source.unknown:  # "raise" may be the caller's default
            raise InputError(
                f"texts: unknown={unknown!r} must be set on the given Texts: Texts(..., unknown={unknown!r})"
            )
        return source

    def counted(
        self, frame: pd.DataFrame, wordlist: WordList, tokeniser: str | Tokeniser, stage: Any
    ) -> tuple[WordCounts, np.ndarray]:
        """See :func:`counted`. Unless texts are a column of the frame, no document is counted twice."""
        if self.source is None:
            texts = self.of(frame, stage)
            first, own = document_numbers(frame["docno"].tolist(), texts)
            return word_counts([texts[i] for i in first], wordlist, tokeniser), own
        row, distinct = pd.factorize(frame["docno"].astype(str))
        names = distinct.tolist()
        # Each document once; all of them, so that those without text are told again for each frame.
        texts = self.of(pd.DataFrame({"docno": names}, dtype=object), stage)
        numbers, known = self._counted.get((wordlist, tokeniser), ({}, None))
        new = {name: text for name, text in zip(names, texts) if name not in numbers}
        if new or known is None:
            counts = word_counts(list(new.values()), wordlist, tokeniser)
            known = counts if known is None else WordCounts.joined([known, counts])
            numbers |= {name: number for number, name in enumerate(new, len(numbers))}
            self._counted[wordlist, tokeniser] = numbers, known
        return known, np.array([numbers[name] for name in names], dtype=np.int64)[row]

    def of(self, frame: pd.DataFrame, stage: Any) -> list[str]:
        """The text of each row.

        Args:
            frame: Frame with ``docno``, and the text if there is no loader.
            stage: The calling stage, named in messages.

        Returns:
            n texts.

        Raises:
            InputError: If a document has no text and ``unknown`` is ``'raise'``, or if there is neither column nor loader.
        """
        if self.source is None:
            if self.field not in frame.columns:
                raise InputError(
                    f"{stage_name(stage)}: the results have no column {self.field!r}; put a text loader after the retriever, or "
                    f"give one to the measure: texts=dataset.text_loader() (results that pt.Experiment reads from save_dir have "
                    f"no texts)"
                )
            if self.unknown == "raise":
                check_text(frame, self.field, stage)
            texts = frame[self.field].tolist()
            if self.unknown == "raise" or all(isinstance(text, str) for text in texts):
                return texts
            docnos = frame["docno"].astype(str).tolist()
        else:
            # Each document once, however many lists have it.
            own, names = pd.factorize(frame["docno"].astype(str))
            docnos = names.tolist()
            lacking = [docno for docno in docnos if docno not in self._known]
            if lacking:
                self._known.update(self._load(lacking))
            found = np.array([self._known.get(docno) for docno in docnos] + [None], dtype=object)[:-1]
            if all(isinstance(text, str) for text in found):
                return found[own].tolist()
            docnos, texts = names[own].tolist(), found[own].tolist()
        lost = {docno for docno, text in zip(docnos, texts) if not isinstance(text, str)}
        example = min(lost)
        if self.unknown == "raise":
            raise InputError(
                f"{stage_name(stage)}: {len(lost)} documents have no text, e.g. docno={example!r}; use the collection that the "
                f"run was made from, or give them an empty text, '' (in a stage: unknown='zero'), to count them as without words"
            )
        logger.warning(
            "%s: %d of %d documents have no text and count as documents without words, e.g. docno=%r",
            stage_name(stage), len(lost), len(set(docnos)), example,
        )  # fmt: skip
        return [text if isinstance(text, str) else "" for text in texts]

    def _load(self, docnos: Sequence[str]) -> dict[str, str]:
        if isinstance(self.source, Mapping):
            return {docno: self.source[docno] for docno in docnos if docno in self.source}
        try:
            loaded = self.source(pd.DataFrame({"docno": docnos}))
        except InputError:
            if self.unknown == "raise":
                raise
        except Exception as error:  # Terrier's loader has an exception of Java for a docno that it does not know
            if self.unknown == "raise" and len(docnos) == 1:
                raise InputError(
                    f"texts: no text of document {docnos[0]!r} could be loaded ({one_line(error)}); use the collection that the "
                    f"run was made from, or give it an empty text, '' (in a stage: unknown='zero'), to count it as without words"
                ) from error
        else:
            if self.field not in loaded.columns:
                there = ", ".join(map(str, loaded.columns))
                raise InputError(
                    f"texts: the loader adds no column {self.field!r}, only {there}; name the column by text_field=..."
                )
            return dict(zip(loaded["docno"].astype(str), loaded[self.field]))
        # A loader may fail because of one document that it does not know: each half is then loaded separately.
        if len(docnos) == 1:
            return {}
        half = len(docnos) // 2
        return {**self._load(docnos[:half]), **self._load(docnos[half:])}


def _loader_of(source: Any, field: str) -> pt.Transformer:
    """The text loader of a dataset or an index."""
    try:
        return source.text_loader([field])
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"texts: the {type(source).__name__} has no loader for {field!r} ({one_line(error)}); make the index with "
            f"meta={{'docno': 40, {field!r}: 20000}}, or name another field by text_field"
        ) from error


def counted(
    frame: pd.DataFrame, texts: Texts, wordlist: WordList, tokeniser: str | Tokeniser, stage: Any
) -> tuple[WordCounts, np.ndarray]:
    """Count the words of each document of a frame once, and reuse the counts of other frames.

    Args:
        frame: Frame with ``docno``.
        texts: Where the texts come from. It keeps the counts, unless texts are a column of the frame.
        wordlist: The words to count.
        tokeniser: See :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        stage: The calling stage, named in messages.

    Returns:
        The counts of documents, including those of the frame, and the number of each row's document, shape [n].
    """
    return texts.counted(frame, wordlist, tokeniser, stage)


def wanted_qids(query_filter: Any, stage: Any) -> frozenset[str] | None:
    """The qids given as ``query_filter``, checked and as strings.

    Args:
        query_filter: A list, set, array or series of qids; None for all queries.
        stage: The calling stage, named in the message.

    Returns:
        The qids as strings; None for all.

    Raises:
        InputError: If it is not a collection of qids, or has a missing one. A string is rejected too, because it would be read
            letter by letter.

    Example:
        >>> sorted(wanted_qids([2.0, "1"], "example"))
        ['1', '2']
    """
    if query_filter is None:
        return None
    name = stage_name(stage)
    if isinstance(query_filter, pd.DataFrame):
        raise InputError(f"{name}: query_filter is a frame; give its column of qids, e.g. topics['qid']")
    if isinstance(query_filter, str):
        raise InputError(f"{name}: query_filter={query_filter!r} is a string; give a list of qids, e.g. [{query_filter!r}]")
    if not isinstance(query_filter, Iterable):
        raise InputError(f"{name}: query_filter={query_filter!r} must be a list of qids, e.g. ['1', '2']")
    asked = pd.DataFrame({"qid": pd.Series(list(query_filter), dtype=object)})  # numbers stay as they are
    return frozenset(with_string_ids(asked, f"{name}, query_filter")["qid"])


def in_order(results: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Sort result rows by rank within each query, with queries in the order in which they first occur.

    Args:
        results: ``qid``, ``docno`` and ``rank`` or ``score``. Ties of ranks (or, without ranks, all rows) are sorted by
            descending score, then by descending docno, as in trec_eval. Scores may be missing if there are ranks.
        stage: The calling stage, named in the message.

    Returns:
        The same rows, index reset.

    Raises:
        InputError: If there is neither ``rank`` nor ``score``, if a score is missing and there is no ``rank``, or if a query has
            both and its scores rise with the rank.
    """
    if "rank" not in results.columns and "score" not in results.columns:
        raise InputError(
            f"{stage_name(stage)}: the results have neither 'score' nor 'rank', so their order is not known; add one of these "
            f"columns"
        )
    if "rank" not in results.columns:
        check_scores(results, stage)
    if len(results) == 0:
        return results.reset_index(drop=True)
    keys = [pd.factorize(results["qid"])[0]]
    if "rank" in results.columns:
        keys.append(results["rank"].to_numpy(dtype=np.float64))
    if "score" in results.columns:
        keys.append(-results["score"].to_numpy(dtype=np.float64))
    order = np.lexsort(keys[::-1])
    tied = np.ones(len(order) - 1, dtype=bool)
    for key in keys:
        this, last = key[order[1:]], key[order[:-1]]
        tied &= (this == last) | (np.isnan(this) & np.isnan(last))
    break_ties(order, tied, results["docno"].astype(str))
    if {"rank", "score"} <= set(results.columns):
        _check_agreement(results, order, stage)
    if (order[1:] > order[:-1]).all():  # it is sorted, and need not be copied
        return results.reset_index(drop=True)
    return results.iloc[order].reset_index(drop=True)


def _check_agreement(results: pd.DataFrame, order: np.ndarray, stage: Any) -> None:
    """If rank and score contradict each other, one of them is out of date."""
    query = pd.factorize(results["qid"])[0][order]
    score, rank = (results[name].to_numpy(dtype=np.float64)[order] for name in ("score", "rank"))
    unknown = np.isin(query, query[np.isnan(score) | np.isnan(rank)])
    bad = np.flatnonzero((query[1:] == query[:-1]) & (score[1:] > score[:-1]) & ~unknown[1:])
    if len(bad):
        qid = results["qid"].iloc[order[bad[0]]]
        raise InputError(
            f"{stage_name(stage)}: rank contradicts score in query {str(qid)!r}; drop the column 'rank' or rank again, e.g. by "
            f"pt.model.add_ranks(results)"
        )


def kept_rows(run: pd.DataFrame) -> np.ndarray:
    """Which rows the system returned: all but those that the column :data:`LEFT_OUT` marks.

    Args:
        run: Results, with or without the column.

    Returns:
        Booleans, shape [n].
    """
    return np.ones(len(run), dtype=bool) if LEFT_OUT not in run.columns else ~run[LEFT_OUT].to_numpy(dtype=bool)


def query_slices(qids: pd.Series) -> dict[str, slice]:
    """The row range of each query in a frame that is sorted query by query.

    Args:
        qids: Shape [n].

    Returns:
        Mapping from each query to its slice of rows, in the order of the frame.
    """
    numbers, names = pd.factorize(qids)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    ends = np.append(starts[1:], len(numbers))
    return {str(names[numbers[a]]): slice(int(a), int(b)) for a, b in zip(starts, ends)}
