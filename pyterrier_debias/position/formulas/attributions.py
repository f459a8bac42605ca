"""How positions of answers contribute to the effect of rotation and placement on quality.

Functions on values per query, and on the positions of a collection's answers, for attributions of the audit's position figures.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from pyterrier_debias.core.bias import ITEM
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.frames import with_string_ids
from pyterrier_debias.core.systems import Context
from pyterrier_debias.position.data.answers import AnswerPositions, answers_in_texts

_THIRDS = ("first", "middle", "last")


def move_parts(start: pd.Series, middle: pd.Series, end: pd.Series) -> pd.DataFrame:
    """The effects of moving an answer from start to middle and from middle to end, whose sum is the effect from start to end.

    Args:
        start: Quality with the answer at the start, by qid.
        middle: Quality with the answer in the middle.
        end: Quality with the answer at the end.

    Returns:
        ``item``, ``note``, ``qid`` (empty), ``queries`` (the number that change), ``contribution`` (a mean over all queries).

    Example:
        >>> one = lambda value: pd.Series([value], index=["q"])
        >>> move_parts(one(1.0), one(0.75), one(0.0))[["item", "contribution"]].values.tolist()
        [['start to middle', -0.25], ['middle to end', -0.75]]
    """
    moves = {"start to middle": middle - start, "middle to end": end - middle}
    return pd.DataFrame(
        [
            {"item": item, "note": f"over {len(change)} queries", "qid": "", "queries": int((change != 0).sum()),
             "contribution": float(change.mean())}
            for item, change in moves.items()
        ]
    )  # fmt: skip


def answer_thirds(context: Context) -> dict[str, str]:
    """The third of their passages in which the answers of a query begin, by the mean over its relevant passages.

    Args:
        context: The audit.

    Returns:
        Query to ``'first'``, ``'middle'`` or ``'last'``; queries whose answers or passage texts are unknown are left out.
    """
    answers = provided(context.dataset, "get_answers")
    if answers is None or not len(answers) or getattr(context.dataset, "text_loader", None) is None:
        return {}

    relevant = context.qrels.loc[context.qrels["label"] >= 1, ["qid", "docno"]].drop_duplicates()
    known = with_string_ids(answers, "answers").merge(relevant, on=["qid", "docno"])
    known = known[known["qid"].isin(set(context.topics["qid"]))].reset_index(drop=True)
    if not len(known):
        return {}
    finder = AnswerPositions()
    places = finder(answers_in_texts(context.dataset.text_loader()(known), context.dataset, finder.text_field, finder))
    places = places[places["matched"].to_numpy(dtype=bool)].sort_values(["qid", "docno", "start", "end"])
    mean = places.drop_duplicates(["qid", "docno"]).groupby("qid")["relative"].mean()
    return {qid: _THIRDS[min(int(3 * place), 2)] for qid, place in mean.items()}


def third_parts(values: pd.Series, thirds: Mapping[str, str]) -> pd.DataFrame:
    """A mean over queries, divided among the queries whose answers begin in the first, middle and last third of their passages.

    Args:
        values: The values, by qid.
        thirds: What :func:`answer_thirds` returned.

    Returns:
        ``item``, ``note``, ``qid`` (empty), ``queries``, ``contribution`` (the sum of the group's values divided by the number m
        of all queries).

    Example:
        >>> values = pd.Series([-0.4, 0.0, 0.1], index=["1", "2", "3"])
        >>> third_parts(values, {"1": "first", "2": "last"})[["item", "contribution"]].round(3).values.tolist()
        [['answers in the first third', -0.133], ['answers in the last third', 0.0], ['answers not known', 0.033]]
    """
    names = {f"answers in the {third} third": third for third in _THIRDS} | {"answers not known": None}
    rows = []
    for item, wanted in names.items():
        own = values[[thirds.get(qid) == wanted for qid in values.index]]
        if len(own):
            note = f"mean {own.mean():+.3f} over {len(own)} of {len(values)} queries"
            rows.append({"item": item, "note": note, "qid": "", "queries": len(own), "contribution": own.sum() / len(values)})
    return pd.DataFrame(rows, columns=ITEM)
