"""The contribution of documents and words to the part of a ranking's lean (ARaB) that its order adds.

Pure functions on rankings and counted words; used for the attribution of the audit's gender figure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import ITEM
from pyterrier_debias.core.frames import check_pairs, first_rows, with_string_ids
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.documents import counted, in_order, kept_rows, query_slices
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.counting import WordCounts

#: Codes of shape [n], and the names that they stand for.
_Coded = tuple[Any, Any]

#: Forms of the magnitude that are a sum over words, each by its own count.
_LINEAR = (("tc", ""), ("tf", "sum_log"), ("tf", "sum_log1p"))


def order_weights(n: int, cutoff: int) -> np.ndarray:
    """The weight of each rank's lean in ARaB@t of an order minus that of a random order: w_i - 1/n, with w_i = 0 below t.

    Args:
        n: How many documents the list has, at least 1.
        cutoff: t.

    Returns:
        Shape [n]; the weights sum to 0.

    Example:
        >>> order_weights(4, 2).tolist()
        [0.5, 0.0, -0.25, -0.25]
    """
    own = arab.rank_weights(min(cutoff, n))
    return np.concatenate([own, np.zeros(n - len(own))]) - 1 / n


def word_parts(counts: WordCounts, method: str = "tf", tf_form: str = "log1p_total") -> tuple[np.ndarray, bool]:
    r"""The contribution of each word to its group's magnitude in a document.

    If the magnitude is a sum over words (``'tc'``, ``'sum_log'``, ``'sum_log1p'``), it is the word's own term. ``'bool'`` and
    ``'log1p_total'``, ln(1 + c), are not: they are divided in proportion to the words' counts, which for a smooth function of the
    sum of counts is the Aumann-Shapley value, c_w times the integral over s in [0, 1] of f'(s c) = (c_w / c) f(c).

    Args:
        counts: The words of documents.
        method: How magnitudes are computed; see :func:`pyterrier_debias.gender.formulas.arab.magnitudes`.
        tf_form: The formula of TF; see there.

    Returns:
        Shape [entries] of ``counts``, and whether these are the words' own terms.

    Example:
        >>> from pyterrier_debias.gender.formulas.counting import word_counts
        >>> parts, exact = word_parts(word_counts(["he he his"]))
        >>> parts.round(3).tolist(), exact
        ([0.924, 0.462], False)
    """
    own = counts.counts.astype(np.float64)
    if (method, tf_form if method == "tf" else "") in _LINEAR:
        return {"sum_log": np.log, "sum_log1p": np.log1p}.get(tf_form if method == "tf" else "", np.array)(own), True
    group = np.array(counts.wordlist.owners, dtype=np.int64)[counts.words]
    total, magnitude = counts.total(), arab.magnitudes(counts, method, tf_form)
    return own / total[counts.rows, group] * magnitude[counts.rows, group], False


def order_parts(
    results: pd.DataFrame | Iterable[pd.DataFrame], texts: Any, cutoff: int = 10, *, wordlist: WordListLike = "debias",
    contrast: str | tuple[str, str] | None = None, method: str = "tf", tf_form: str = "log1p_total",
    tokeniser: str | Tokeniser = "regex_word",
) -> tuple[pd.DataFrame, pd.DataFrame, bool]:  # fmt: skip
    """The contribution of documents and words to the mean difference of ARaB@t between an order and a random order.

    With b(d) the lean of a document, the figure is (1/m) sum over m queries and their ranks i of (w_i - 1/n) b(d_i), so each row
    contributes one part; see :func:`order_weights` and :func:`word_parts`.

    Args:
        results: ``qid``, ``docno``, ``score`` or ``rank``, for all queries that count; or parts of such a frame, each with
            other queries.
        texts: Where the texts come from, a :class:`~pyterrier_debias.gender.data.documents.Texts`.
        cutoff: t.
        wordlist: The words of each group, as in :class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator`.
        contrast: Which groups are compared, as for :class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator`.
        method: How magnitudes are computed; see :func:`pyterrier_debias.gender.formulas.arab.magnitudes`.
        tf_form: The formula of TF.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.

    Returns:
        Documents (``item``: docno, ``note``: words found) and words (``note``: the group), each with ``qid``, ``queries`` and
        ``contribution``, not sorted by size; and whether the words' parts are their own terms.

    Example:
        >>> from pyterrier_debias.gender.data.documents import Texts
        >>> run = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "score": [2.0, 1.0]})
        >>> documents, words, exact = order_parts(run, Texts({"a": "He and she saw her.", "b": "Rain."}), method="tc")
        >>> words[["item", "note", "contribution"]].values.tolist(), exact
        ([['he', 'male', 0.25], ['her', 'female', -0.25], ['she', 'female', -0.25]], True)
    """
    words = WordList.of(wordlist)
    signs = np.array(list(words.contrast(contrast).values()))
    queries, exact = 0, True
    tables: tuple[list[pd.DataFrame], list[pd.DataFrame]] = [], []
    for part in [results] if isinstance(results, pd.DataFrame) else results:
        run = with_string_ids(part, "contributions")
        check_pairs(run, "contributions")
        run = in_order(run, "contributions")
        counts, number = counted(run, texts, words, tokeniser, "contributions")
        number, documents = pd.factorize(number)
        counts = counts.take(documents)
        slices = query_slices(run["qid"])
        kept = kept_rows(run)
        weights = (order_weights(rows.stop - rows.start, min(cutoff, int(kept[rows].sum()))) for rows in slices.values())
        weight = np.concatenate([np.empty(0), *weights])
        lean = arab.leans(arab.magnitudes(counts, method, tf_form), words, contrast)
        found = [", ".join(f"{word} {count}" for word, count in said.items()) for said in counts.found()]
        query, qids = pd.factorize(run["qid"], sort=True)
        note, notes = pd.factorize(np.array(found, dtype=object))
        tables[0].append(_summed(pd.factorize(run["docno"]), (note[number], notes), (query, qids), weight * lean[number]))
        rows = counts.take(number)
        terms, exact = word_parts(rows, method, tf_form)
        owner = np.array(words.owners, dtype=np.int64)[rows.words]
        values = weight[rows.rows] * signs[owner] * terms
        tables[1].append(_summed((rows.words, words.words), (owner, words.names), (query[rows.rows], qids), values))
        queries += len(slices)
    of_documents, of_words = (_joined(parts, queries) for parts in tables)
    return of_documents, of_words, exact


def _summed(items: _Coded, notes: _Coded, queries: _Coded, values: np.ndarray) -> pd.DataFrame:
    """The sum of each item's parts, the query where it contributes most and how much, and in how many queries it contributes.

    Args:
        items: The item of each part.
        notes: Its note.
        queries: Its query; the first of those with equal contributions is named.
        values: The parts, shape [n].
    """
    there = values != 0
    item, note, query = (np.asarray(codes)[there] for codes, _ in (items, notes, queries))
    # Of each pair of an item and a note, and of each query of such a pair: the number, the first row and the sum of the parts.
    pair, first = _numbered(item, note)
    part, at = _numbered(pair, query)
    own, total = pair[at], np.bincount(part, values[there], len(at))
    order = np.lexsort((query[at], -np.abs(total), own))
    most = order[np.flatnonzero(np.diff(own[order], prepend=-1))]
    names = [np.asarray(names, dtype=object)[codes] for codes, (_, names) in ((item[first], items), (note[first], notes))]
    return pd.DataFrame(
        {
            "item": names[0], "note": names[1], "qid": np.asarray(queries[1], dtype=object)[query[at[most]]],
            "most": np.abs(total[most]), "queries": np.bincount(own, minlength=len(first)),
            "contribution": np.bincount(own, total, len(first)),
        }
    )  # fmt: skip


def _joined(parts: Sequence[pd.DataFrame], queries: int) -> pd.DataFrame:
    """One table from those of parts of the queries; contributions are divided by the number of all queries."""
    found = pd.concat(parts, ignore_index=True).sort_values(["most", "qid"], ascending=[False, True])
    found = found.groupby(["item", "note"], as_index=False).agg({"qid": "first", "queries": "sum", "contribution": "sum"})
    return found.assign(contribution=found["contribution"] / queries).astype({"item": "str"})[ITEM]


def _numbered(one: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of two codes: the number of each pair, from 0, and the first row of each."""
    numbers, pairs = pd.factorize(one.astype(np.int64) * (int(other.max(initial=0)) + 1) + other)
    return numbers, first_rows(numbers, len(pairs))
