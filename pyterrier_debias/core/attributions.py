"""What single documents, words and positions contribute to the figures of an audit.

Rooms say it while the rankings are still at hand, since their results hold values of queries only. Contributions of everything
sum to the figure; where they do not (another measure, another convention) nothing is said.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Finding, Room, RoomResult
from pyterrier_debias.core.systems import Context

CONTRIBUTION_COLUMNS = [
    "kind", "system", "bias", "measure", "group", "item", "note", "qid", "queries", "contribution", "share", "exact",
]  # fmt: skip
#: What can be asked for, and what an item of it is.
KINDS = {"documents": "document", "words": "word", "positions": "position"}
#: How many documents of each figure are kept, those that push it furthest in its own direction.
KEPT = 50
#: Columns of the items of one figure.
ITEM = ["item", "note", "qid", "queries", "contribution"]

_TYPES = {"queries": "int64", "contribution": "float64", "share": "float64", "exact": "bool"}


def contributions_frame(rows: Any = ()) -> pd.DataFrame:
    """A table of contributions with its types.

    Args:
        rows: Dictionaries, or columns, or nothing.

    Returns:
        A frame with ``CONTRIBUTION_COLUMNS``.

    Raises:
        KeyError: Where columns are given and one is missing.
    """
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(columns=CONTRIBUTION_COLUMNS)
    return frame[CONTRIBUTION_COLUMNS].astype({c: _TYPES.get(c, "str") for c in CONTRIBUTION_COLUMNS})


def contributions_of(room: Room, context: Context, result: RoomResult) -> pd.DataFrame:
    """What items contribute to the figures of a room that has run.

    Args:
        room: A room; without ``contributions`` it has none.
        context: What it ran on, with the rankings that it shared.
        result: What it found.

    Returns:
        One row an item of a figure, those that push it furthest in its own direction first: ``kind`` (``'document'``, ``'word'``
        or ``'position'``), ``system``, ``bias``, ``measure``, ``group``, ``item``, ``note`` (what is known of it), ``qid`` (where
        it counts most; empty for positions), ``queries`` (how many it counts in), ``contribution`` (in the figure's unit),
        ``share`` (of the figure; NaN where that is 0), ``exact`` (whether it is the item's own, or was divided among items by a
        rule). Items that contribute 0 are left out. All words and positions are kept, and ``KEPT`` documents.
    """
    own = () if room.contributions is None else room.contributions(context, result)
    parts = [part for part in own if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else contributions_frame()


def parts_of_figure(
    kind: str, finding: Finding, items: pd.DataFrame, *, exact: bool = True, keep: int | None = None
) -> pd.DataFrame:
    """Items of one figure in the shape of the table, where they sum to it.

    Args:
        kind: ``'document'``, ``'word'`` or ``'position'``.
        finding: The figure.
        items: All that contribute: ``item``, ``note``, ``qid``, ``queries``, ``contribution``; equal pushes keep this order.
        exact: See :func:`contributions_of`.
        keep: How many of them; None for all.

    Returns:
        See :func:`contributions_of`; empty where the items do not sum to the figure.

    Example:
        >>> figure = Finding("m", "pooling", "Judged@10", "system - pool (bm25)", -0.3)
        >>> items = pd.DataFrame({"item": ["a", "b"], "note": "", "qid": "1", "queries": 1, "contribution": [0.1, -0.4]})
        >>> parts_of_figure("document", figure, items)[["item", "share"]].round(2).values.tolist()
        [['b', 1.33], ['a', -0.33]]
    """
    figure = float(finding.value)
    values = items["contribution"].to_numpy(dtype=float)
    if not np.isclose(values.sum(), figure, rtol=1e-6, atol=1e-9):
        return contributions_frame()
    items = items[np.abs(values) > 1e-15]
    values = items["contribution"].to_numpy(dtype=float)
    pushed = values * np.sign(figure) if figure else np.abs(values)
    # Sums of equal parts differ in their last bits.
    items = items.iloc[np.argsort(-np.round(pushed, 12), kind="stable")[:keep]]
    if not len(items):
        return contributions_frame()
    about = {name: getattr(finding, name) for name in ("system", "bias", "measure", "group")}
    with np.errstate(over="ignore"):  # a figure may be all but 0
        share = items["contribution"] / figure if figure else np.nan
    return contributions_frame(items[ITEM].assign(**about, kind=kind, share=share, exact=exact))


def primary_finding(result: RoomResult, system: str) -> Finding | None:
    """The room's primary figure of a system; None where it has none.

    Args:
        result: What the room found.
        system: The system's name.

    Returns:
        The first of its primary findings with a value.
    """
    found = [f for f in result.findings if f.system == system and f.primary and np.isfinite(f.value)]
    return found[0] if found else None
