"""Attributions: the shares of single queries, documents, words and positions in a figure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import ATTRIBUTION_COLUMNS, FIGURE_KEY, KINDS, pushed, shares
from pyterrier_debias.core.errors import check_choice

#: What :func:`worst_items` returns.
ITEM_COLUMNS = [name for name in ATTRIBUTION_COLUMNS if name != "kind"]
COLUMNS = [*FIGURE_KEY, "qid", "query", "value", "contribution", "share"]


def worst_queries(
    findings: pd.DataFrame, per_query: pd.DataFrame, n: int = 10, queries: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """The queries that push each primary figure furthest in its own direction.

    A figure that is a mean over m queries is the sum of their contributions, value / m. Biases whose figure is not a plain mean
    (such as a slope) give influence values, whose mean is also the figure. The contributions of all queries therefore sum to the
    figure exactly. Primary figures that are not the mean of their values are left out, because they have no shares.

    Args:
        findings: The table of findings; only the primary ones are used.
        per_query: The values behind the findings.
        n: The number of queries for each figure.
        queries: The texts of queries, by qid.

    Returns:
        One row per figure and query, largest contribution first: ``system``, ``bias``, ``measure``, ``contrast``, ``qid``,
        ``query`` (empty if unknown), ``value``, ``contribution`` (in the figure's unit), ``share`` (of the figure; NaN if that is
        0). Queries that contribute 0 are left out. If ``n`` is large enough, the contributions sum to the figure.

    Example:
        >>> found = pd.DataFrame({"system": ["m"], "bias": "position", "measure": "nDCG@10", "contrast": "rotated - original",
        ...     "value": [-0.2], "primary": True})
        >>> values = pd.DataFrame({"system": "m", "bias": "position", "measure": "nDCG@10", "contrast": "rotated - original",
        ...     "qid": ["1", "2", "3"], "value": [0.0, -0.5, -0.1]})
        >>> worst_queries(found, values, 2)[["qid", "value", "share"]].round(2).values.tolist()
        [['2', -0.5, 0.83], ['3', -0.1, 0.17]]

    When not to use it: to drop the queries that it lists and report figures on the rest.
    """
    queries = queries or {}
    groups = dict(list(per_query.groupby(FIGURE_KEY, sort=False)))
    parts = []
    for row in findings[findings["primary"].astype(bool)].to_dict("records"):
        own = groups.get(tuple(row[key] for key in FIGURE_KEY))
        if own is None:
            continue
        own = own.dropna(subset=["value"]).drop_duplicates("qid")
        m = len(own)
        values, figure = own["value"].to_numpy(dtype=float), row["value"]
        if not len(values) or not np.isclose(values.mean(), figure, rtol=1e-6, atol=1e-9):
            continue
        own, values = own[values != 0], values[values != 0]
        order = np.lexsort((own["qid"].to_numpy(dtype=object).astype(str), -pushed(figure, values)))[:n]
        contribution = values[order] / m
        kept = own.iloc[order].reset_index(drop=True)
        words = [queries.get(qid, "") for qid in kept["qid"]]
        parts.append(kept.assign(query=words, contribution=contribution, share=shares(figure, contribution))[COLUMNS])
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=COLUMNS)


def worst_items(attributions: pd.DataFrame, kind: str, n: int = 10) -> pd.DataFrame:
    """The documents, words or positions that push each figure furthest in its own direction.

    Args:
        attributions: What :func:`pyterrier_debias.core.bias.attributions_frame` returned.
        kind: ``'document'``, ``'word'`` or ``'position'``.
        n: The number of rows for each figure.

    Returns:
        The first ``n`` rows of each figure: ``system``, ``bias``, ``measure``, ``contrast``, ``item``, ``note``, ``qid``,
        ``queries``, ``contribution``, ``share``, ``exact``.
    """
    check_choice("worst_items", "kind", kind, KINDS.values())
    own = attributions[attributions["kind"] == kind]
    return own.groupby(FIGURE_KEY, sort=False).head(n)[ITEM_COLUMNS].reset_index(drop=True)
