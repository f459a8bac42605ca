"""The contribution of documents and words to the part of a ranking's lean (ARaB) that its order adds.

Pure functions on rankings and counted words; used for the attribution of the audit's gender figure.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import ITEM
from pyterrier_debias.core.frames import check_pairs, with_string_ids
from pyterrier_debias.gender.data.documents import counted, in_order, query_slices
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.counting import WordCounts

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
    results: pd.DataFrame, texts: Any, cutoff: int = 10, *, wordlist: WordListLike = "debias",
    contrast: str | tuple[str, str] | None = None, method: str = "tf", tf_form: str = "log1p_total",
) -> tuple[pd.DataFrame, pd.DataFrame, bool]:  # fmt: skip
    """The contribution of documents and words to the mean difference of ARaB@t between an order and a random order.

    With b(d) the lean of a document, the figure is (1/m) sum over m queries and their ranks i of (w_i - 1/n) b(d_i), so each row
    contributes one part; see :func:`order_weights` and :func:`word_parts`.

    Args:
        results: ``qid``, ``docno``, ``score`` or ``rank``, for all queries that count.
        texts: Where the texts come from, a :class:`~pyterrier_debias.gender.data.documents.Texts`.
        cutoff: t.
        wordlist: The words of each group, as in :class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator`.
        contrast: Which groups are compared, as for :class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator`.
        method: How magnitudes are computed; see :func:`pyterrier_debias.gender.formulas.arab.magnitudes`.
        tf_form: The formula of TF.

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
    run = with_string_ids(results, "contributions")
    check_pairs(run, "contributions")
    run = in_order(run, "contributions")
    counts, own = counted(run, texts, words, "regex_word", "contributions")
    slices = query_slices(run["qid"])
    weight = np.concatenate([order_weights(rows.stop - rows.start, cutoff) for rows in slices.values()]) / len(slices)
    lean = arab.leans(arab.magnitudes(counts, method, tf_form), words, contrast)
    found = [", ".join(f"{word} {count}" for word, count in said.items()) for said in counts.found()]
    documents = _summed(run["docno"].to_numpy(), run["qid"].to_numpy(), weight * lean[own], [found[i] for i in own])
    rows = counts.take(own)
    part, exact = word_parts(rows, method, tf_form)
    owner = np.array(words.owners, dtype=np.int64)[rows.words]
    names = list(words.names)
    values = weight[rows.rows] * np.array(list(words.contrast(contrast).values()))[owner] * part
    listed = np.array(words.words, dtype=object)[rows.words]
    return documents, _summed(listed, run["qid"].to_numpy()[rows.rows], values, [names[i] for i in owner]), exact


def _summed(items: Any, qids: Any, values: np.ndarray, notes: Any) -> pd.DataFrame:
    """The sum of each item's parts, the query where it contributes most, and in how many queries it contributes."""
    frame = pd.DataFrame({"item": items, "qid": qids, "note": notes, "contribution": values}).astype({"item": "str"})
    frame = frame[frame["contribution"] != 0]
    frame = frame.groupby(["item", "note", "qid"], as_index=False, sort=True)["contribution"].sum()
    frame = frame.assign(size=frame["contribution"].abs()).sort_values(["item", "size"], ascending=[True, False], kind="stable")
    summed = frame.groupby(["item", "note"], as_index=False, sort=True).agg(
        qid=("qid", "first"), queries=("qid", "nunique"), contribution=("contribution", "sum")
    )
    return summed[ITEM]
