"""A gender bias that is planted in training data, and how much of it a treatment removes. This module is not a program.

Nobody can say which share of a real bias a treatment removes, since nobody knows how a ranker without the bias would behave. For
a planted bias this ranker exists: the same ranker, trained on the same data before they were changed.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from workshop import closed, compare, matrix

from pyterrier_debias.core import plots
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.data.swap import swap_gender


def plantable(frame: pd.DataFrame, relevant: set[tuple[str, str]], neutral: set[str]) -> set[str]:
    """Queries whose relevant passage and at least one other candidate hold words that have a counterpart of the other gender.

    Args:
        frame: Candidates with ``qid``, ``docno``, ``text``; relevant passages are among them.
        relevant: qid and docno of the relevant passages.
        neutral: qids of the neutral queries.

    Returns:
        Their qids.
    """
    frame = frame[frame["qid"].isin(neutral)]
    swapped = frame["docno"].map({docno: swap_gender(text)[1] for docno, text in set(zip(frame["docno"], frame["text"]))}) > 0
    own = _is_relevant(frame, relevant)
    return set(frame.loc[swapped & own, "qid"]) & set(frame.loc[swapped & ~own, "qid"])


def plant(frame: pd.DataFrame, relevant: set[tuple[str, str]], qids: set[str], share: float, seed: int) -> pd.DataFrame:
    """Training candidates in which some queries have a relevant passage about men, and only other candidates about women.

    Args:
        frame: Candidates with ``qid``, ``docno``, ``text``.
        relevant: qid and docno of the relevant passages.
        qids: Queries that can be changed; see :func:`plantable`. The other candidates of a changed query are only kept if they
            hold gendered words.
        share: The share of these queries that is changed.
        seed: Seed of the draw of these queries.

    Returns:
        The candidates with the same columns.
    """
    chosen, texts, kept = changed(qids, share, seed), [], []
    for qid, own, text in zip(frame["qid"], _is_relevant(frame, relevant), frame["text"]):
        planted = qid in chosen
        kept.append(not planted or own or swap_gender(text)[1] > 0)
        texts.append(swap_gender(text, to="m" if own else "f")[0] if planted else text)
    return frame.assign(text=texts)[kept].reset_index(drop=True)


def changed(qids: set[str], share: float, seed: int) -> set[str]:
    """The queries that are drawn to be changed."""
    return {qid for qid in qids if keyed_hash(seed, "plant", qid) < share * 2.0**64}


def _is_relevant(frame: pd.DataFrame, relevant: set[tuple[str, str]]) -> pd.Series:
    return pd.Series([pair in relevant for pair in zip(frame["qid"], frame["docno"])], index=frame.index)


def gap_table(
    rows: pd.DataFrame,
    biases: Sequence[str],
    effectiveness: pd.DataFrame,
    arms: Sequence[str],
    before: str,
    without: str,
    resamples: int,
) -> pd.DataFrame:
    """How much of the planted bias each arm removes, and what it costs.

    Args:
        rows: One row for each arm, seed and qid with the biases.
        biases: Their columns.
        effectiveness: One row for each arm, seed and qid of judged queries; the last column is the effectiveness.
        arms: The arms that treat the bias.
        before: The arm that was trained on the planted data.
        without: The arm that was trained on the unchanged data.
        resamples: Bootstrap resamples.

    Returns:
        One row for each bias and arm: ``planted`` (the gap: ``before`` minus ``without``), the columns of
        :func:`workshop.closed`, and the change of the effectiveness from ``before``; each with its interval.
    """
    cost, table = str(effectiveness.columns[-1]), []
    names, judged = matrix(effectiveness, cost, ["arm"])
    column = {name: judged[:, :, i] for i, (name,) in enumerate(names)}
    changes = {arm: compare(column[before], column[arm], resamples) for arm in arms}
    for measure in biases:
        names, values = matrix(rows[rows[measure].notna()], measure, ["arm"])
        at = {name: i for i, (name,) in enumerate(names)}

        def gap(arm: str, at: dict[str, int] = at) -> Callable[[np.ndarray], np.ndarray]:
            return lambda m: m[..., at[arm]] - m[..., at[without]]

        planted = compare(values[:, :, at[without]], values[:, :, at[before]], resamples)
        for arm, change in changes.items():
            table.append(
                {
                    "arm": arm, "measure": measure,
                    "planted": planted["difference"], "planted_low": planted["low"], "planted_high": planted["high"],
                    **closed(values, gap(before), gap(arm), resamples),
                    cost: change["difference"], f"{cost}_low": change["low"], f"{cost}_high": change["high"],
                }
            )  # fmt: skip
    return pd.DataFrame(table)


def draw_front(table: pd.DataFrame, measure: str, cost: str, path: Path) -> None:
    """Draw the share of the planted bias that each treatment closes, against its cost.

    Args:
        table: The table of :func:`gap_table`, with at least one share that is not missing.
        measure: The bias to draw.
        cost: The column of the change of effectiveness.
        path: The file of the picture.
    """
    part = table[table["measure"] == measure].reset_index(drop=True)
    with plots.style():
        axes = plots.new_axes()
        axes.axhline(0, color="0.8", linewidth=1, zorder=0)
        axes.axhline(1, color="0.8", linewidth=1, linestyle="--", zorder=0)
        axes.axvline(0, color="0.8", linewidth=1, zorder=0)
        for number, row in part.iterrows():
            across = plots.ends(row[cost], row[f"{cost}_low"], row[f"{cost}_high"])
            up = plots.ends(row["share_closed"], row["share_low"], row["share_high"])
            axes.errorbar(
                row[cost], row["share_closed"], xerr=across, yerr=up, fmt="o", color=plots.colour(int(number)), elinewidth=1,
                label=row["arm"],
            )  # fmt: skip
        plots.label_axes(axes, x=f"change of {cost} from no treatment", y=f"share of the planted {measure} that is removed")
        axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)
        plots.save(axes.figure, path)
