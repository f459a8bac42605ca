"""Lists of changed texts through a black box: one pass over all variants, and the way back to the original names. Floor 0."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.errors import InputError
from pyterrier_debias.frames import ranked, variant_docno
from pyterrier_debias.systems import check_run
from pyterrier_debias.text import keyed_hash

#: Columns that say which list a row belongs to, and its place there.
COLUMNS = ["qid", "docno", "arm", "draw", "score", "rank"]


@dataclass(frozen=True)
class Arm:
    """One variant of the candidates' lists.

    Attributes:
        name: Such as ``'rotated'``.
        draw: Which of several, from 0.
        rows: Positions of the candidates that are in these lists.
        texts: Their texts in this variant.
        variant: What names the variant to the ranker; None for the original, which keeps its names.
    """

    name: str
    draw: int
    rows: np.ndarray
    texts: Sequence[str]
    variant: str | None


def score_arms(
    candidates: pd.DataFrame, arms: Sequence[Arm], ranker: pt.Transformer, *, text_attr: str, name: str
) -> pd.DataFrame:
    """Score several variants of lists in one call of the ranker.

    Each variant of a list is a query of its own to the ranker (``q1%r0``, in the words of ``q1``) over documents of their own
    (``d7%r0-1c9ff02e``, the last part a hash of the text): rankers that look at whole lists, cut them or scale their scores see
    one list at a time as they would without the probe, and no cache takes one text for another, not even one that outlives a
    change of seed. All variants of a document stand side by side.

    Args:
        candidates: Result frame with ``qid``, ``docno``, ``query`` and the text.
        arms: The variants.
        ranker: Scores frames with ``query`` and text.
        text_attr: The column that holds the text.
        name: The system's name, for messages.

    Returns:
        Frame ``qid, docno, arm, draw, score, rank`` under the original names. Rows that the ranker left out are missing.

    Raises:
        InputError: Where the ranker returns no rows or no scores, or documents that it was not given.
    """
    parts = []
    for number, arm in enumerate(arms):
        part = candidates.iloc[arm.rows]
        key = pd.DataFrame({"original_qid": part["qid"].to_numpy(), "original_docno": part["docno"].to_numpy(), "arm": number})
        part = part.assign(**{text_attr: list(arm.texts)})
        if arm.variant is not None:
            part = part.assign(
                qid=[variant_docno(q, arm.variant) for q in part["qid"]],
                docno=[variant_docno(d, f"{arm.variant}-{_digest(t)}") for d, t in zip(part["docno"], arm.texts)],
            )
        parts.append((part, key))
    side_by_side = np.argsort(np.concatenate([arm.rows for arm in arms]), kind="stable")
    given = pd.concat([part for part, _ in parts], ignore_index=True).iloc[side_by_side].reset_index(drop=True)
    keys = pd.concat([key for _, key in parts], ignore_index=True).iloc[side_by_side].reset_index(drop=True)
    keys = keys.assign(qid=given["qid"], docno=given["docno"])

    scored = check_run(ranker(given), name)[["qid", "docno", "score"]]
    scored = scored.merge(keys, on=["qid", "docno"], how="left")
    unknown = scored["arm"].isna().to_numpy()
    if unknown.any():
        row = scored[unknown].iloc[0]
        raise InputError(
            f"ranker of {name!r} returned {int(unknown.sum())} pairs that it was not given, first qid={row['qid']!r}, "
            f"docno={row['docno']!r}; a probe needs a ranker that only orders its input (a retriever goes before the text loader)"
        )
    # Ranks are given under the original docnos, so that ties are broken alike in every variant.
    scored = ranked(scored.drop(columns="docno").rename(columns={"original_docno": "docno"}), name)
    number = scored["arm"].astype(int)
    return pd.DataFrame(
        {
            "qid": scored["original_qid"],
            "docno": scored["docno"],
            "arm": number.map(dict(enumerate(arm.name for arm in arms))),
            "draw": number.map(dict(enumerate(arm.draw for arm in arms))),
            "score": scored["score"],
            "rank": scored["rank"],
        }
    )


def _digest(text: str) -> str:
    return f"{keyed_hash(0, text) >> 32:08x}"


def ranks_among_others(changed: pd.DataFrame, original: pd.DataFrame) -> np.ndarray:
    """The rank of each changed document among the unchanged others of its list, from 0; ties by descending docno as everywhere.

    Args:
        changed: Frame ``qid, docno, score`` of n documents: their scores in the variant.
        original: Frame ``qid, docno, score`` of all lists as they were.

    Returns:
        Shape [n]: how many of the others stand before each.

    Example:
        >>> original = pd.DataFrame({"qid": "q1", "docno": ["d0", "d1", "d2", "d3"], "score": [3.0, 9.0, 2.0, 1.0]})
        >>> ranks_among_others(pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "score": [2.0]}), original).tolist()
        [2]
    """
    lists = {q: (g["score"].to_numpy(), g["docno"].to_numpy(dtype=object)) for q, g in original.groupby("qid", sort=False)}
    ranks = []
    for qid, docno, score in zip(changed["qid"], changed["docno"], changed["score"]):
        scores, docnos = lists[qid]
        before = (scores > score) | ((scores == score) & (docnos > docno))
        ranks.append(int((before & (docnos != docno)).sum()))
    return np.array(ranks, dtype=int)
