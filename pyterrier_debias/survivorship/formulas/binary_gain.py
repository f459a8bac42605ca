"""How many answers a ranking shows, and how early: the measure of quality in the survivorship test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from pyterrier_debias.core.frames import ranked


def discounted_gain(
    results: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str], *, min_label: int = 1, cutoff: int = 10
) -> np.ndarray:
    """DCG@k with gains of 0 and 1: the sum of 1 / log2(1 + i) over the ranks i of the documents that answer.

    Neither of the two usual measures is suitable. If queries have several answers, RR@10 depends only on the first one and is
    noisier. nDCG@10 divides by a sum over what was *judged*, and labels come in part from the list that labellers were shown: a
    query answered early in it shows more answers further down, hence a larger divisor, so that quality would be correlated with
    ranks without any other connection. If each query has one answer (MS MARCO), DCG, nDCG and RR all order queries in the same
    way, and all give the same rank correlation.

    Args:
        results: Result frame ``qid``, ``docno``, ``score``.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        qids: The queries to evaluate; one without results has 0.
        min_label: Lowest label of documents that answer.
        cutoff: The last rank that counts, k, at least 1.

    Returns:
        float64, shape [queries], in the order of ``qids``, at least 0.

    Example:
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2", "d3"], "score": [3.0, 2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2", "d3"], "label": [2, 1, 2]})
        >>> discounted_gain(run, judged, ["q1", "q2"], min_label=2).tolist()
        [1.5, 0.0]
    """
    top = ranked(results[["qid", "docno", "score"]], "results")
    top = top[top["rank"] < cutoff]
    answers = qrels.loc[qrels["label"] >= min_label, ["qid", "docno"]].drop_duplicates()
    shown = top.merge(answers, on=["qid", "docno"])
    gains = (1 / np.log2(shown["rank"] + 2)).groupby(shown["qid"]).sum()
    return gains.reindex(list(qids)).fillna(0.0).to_numpy(dtype=float)
