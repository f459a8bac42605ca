r"""Exposure of groups in a ranking: AWRF and expected exposure as functions on arrays.

A document d_i at rank i belongs to group g to the degree a_g(d_i), the share of g's words among the document's words that are in
the list; a document without such words belongs to no group. Readers spend the attention w_i on rank i.
"""

from __future__ import annotations

import numpy as np

from pyterrier_debias.core.errors import check_choice, check_number

DISCOUNTS = ("trec", "dcg")
PARTS = ("loss", "disparity", "relevance")


def memberships(totals: np.ndarray) -> np.ndarray:
    """The degree to which each document belongs to each group: c_g / C, where C is the sum of the counts c_g.

    Args:
        totals: c_g, shape [n, groups].

    Returns:
        Shape [n, groups]; rows sum to 1, or are 0 for documents without words of any group.

    Example:
        >>> memberships(np.array([[3, 1], [0, 0]])).tolist()
        [[0.75, 0.25], [0.0, 0.0]]
    """
    totals = np.asarray(totals, dtype=np.float64)
    everything = totals.sum(axis=1, keepdims=True)
    return totals / np.where(everything > 0, everything, 1.0)


def attention(n: int, discount: str = "trec") -> np.ndarray:
    """The attention that readers spend on ranks 1 to n.

    Args:
        n: How many ranks.
        discount: ``'trec'``: 1 / log2(max(i, 2)), as in the TREC Fair Ranking tracks; ``'dcg'``: 1 / log2(i + 1), as in FaiRR.

    Returns:
        Shape [n].

    Example:
        >>> attention(4).round(4).tolist(), attention(2, "dcg").round(4).tolist()
        ([1.0, 1.0, 0.6309, 0.5], [1.0, 0.6309])
    """
    check_choice("AWRF", "discount", discount, DISCOUNTS)
    ranks = np.arange(1, n + 1)
    return 1 / np.log2(np.maximum(ranks, 2) if discount == "trec" else ranks + 1)


def divergence(one: np.ndarray, other: np.ndarray) -> float:
    """Jensen-Shannon divergence of two distributions in bits: 0 if they are equal, 1 if they do not overlap.

    Args:
        one: Shape [groups], sums to 1.
        other: The other distribution, of the same shape.

    Example:
        >>> divergence(np.array([1.0, 0.0]), np.array([0.0, 1.0])), divergence(np.array([0.5, 0.5]), np.array([0.5, 0.5]))
        (1.0, 0.0)
    """
    middle = (one + other) / 2
    parts = [p[p > 0] * np.log2(p[p > 0] / middle[p > 0]) for p in (one, other)]
    return float(min(max(sum(map(np.sum, parts)) / 2, 0.0), 1.0))


def awrf(shares: np.ndarray, target: np.ndarray, cutoff: int, discount: str = "trec") -> float:
    """AWRF: 1 minus the divergence between the groups' shares of attention and a target.

    The groups' attention is sum_i w_i a_g(d_i) over the first t ranks, divided by its sum over groups.

    Args:
        shares: a_g(d_i), by rank, shape [n, groups]; see :func:`memberships`.
        target: The desired portions, shape [groups].
        cutoff: t, at least 1.
        discount: The discount by rank; see :func:`attention`.

    Returns:
        From 0 to 1, larger if closer to the target; NaN if no document belongs to a group.

    Example:
        Ranks 1 and 2 have the same attention: 3/4 + 1/4 of it for either group.

        >>> awrf(np.array([[0.75, 0.25], [0.25, 0.75]]), np.array([0.5, 0.5]), 2)
        1.0
    """
    head = np.asarray(shares, dtype=np.float64)[:cutoff]
    exposure = attention(len(head), discount) @ head
    total = exposure.sum()
    return 1 - divergence(exposure / total, target) if total > 0 else float("nan")


def rank_exposure(n: int, patience: float) -> np.ndarray:
    """Exposure of ranks 1 to n under rank-biased precision, in which readers go on to the next rank with probability p.

    Args:
        n: How many ranks.
        patience: p, above 0 and below 1.

    Returns:
        p^0, ..., p^(n - 1).

    Example:
        >>> rank_exposure(3, 0.5).tolist()
        [1.0, 0.5, 0.25]
    """
    check_number("ExpectedExposure", "patience", patience, above=0, most=0.9999)
    return float(patience) ** np.arange(n)


def target_exposure(labels: np.ndarray, patience: float) -> np.ndarray:
    """Expected exposure of documents in an ideal ranking: labels in descending order, and equal labels in random order.

    With b documents of higher labels and m of its own label, a document gets (p^b - p^(b + m)) / (m (1 - p)). Documents with
    labels of 0 or below share the rest among all such documents of a collection; this share goes to 0.

    Args:
        labels: Shape [n].
        patience: p.

    Returns:
        Shape [n].

    Example:
        Two relevant documents share ranks 1 and 2.

        >>> target_exposure(np.array([1, 0, 1]), 0.5).tolist()
        [0.75, 0.0, 0.75]
    """
    labels = np.asarray(labels, dtype=np.float64)
    found = np.zeros(len(labels))
    exposure = rank_exposure(len(labels), patience)
    before = 0
    for label in sorted(set(labels[labels > 0].tolist()), reverse=True):
        own = labels == label
        found[own] = exposure[before : before + own.sum()].mean()
        before += int(own.sum())
    return found


def expected_exposure(exposure: np.ndarray, target: np.ndarray, part: str = "loss") -> float:
    """EE-L, EE-D or EE-R: the loss, disparity or relevance of an exposure.

    Args:
        exposure: The exposure that documents, or groups, get; shape [n].
        target: The exposure that they should get; shape [n].
        part: ``'loss'``: sum (e - e*)^2; ``'disparity'``: sum e^2; ``'relevance'``: sum e e*. The loss is the disparity minus
            twice the relevance plus sum e*^2.

    Returns:
        The sum.

    Example:
        >>> expected_exposure(np.array([1.0, 0.5]), np.array([0.5, 1.0]))
        0.5
    """
    check_choice("ExpectedExposure", "part", part, PARTS)
    if part == "loss":
        return float(np.square(exposure - target).sum())
    return float(exposure @ (exposure if part == "disparity" else target))
