"""The position sensitivity index (PSI), and where an answer can be put: functions on arrays and strings.

PSI = 1 - min_b m_b / max_b m_b, where m_b is mean quality in position bucket b (Zeng et al., "An Empirical Study of Position Bias
in Modern Information Retrieval", 2025, with nDCG@10). It is 0 if position makes no difference and 1 if quality is 0 in some
bucket. Because it is a range, it is biased upwards: even if position makes no difference, the best bucket of a small sample
is better than the worst. It is therefore given with the value to expect by chance alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.statistics import CELLS, p_from_null, sums_by_cluster
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.position.data.rotation import rotated_text, word_spans, words_of_span

#: Where an answer can be put.
PLACEMENTS = ("start", "middle", "end")


@dataclass(frozen=True)
class SensitivityIndex:
    """A PSI with its interval, its null values and p values.

    Judge significance by p. The interval comes from another method, the bootstrap: where p is close to 1 - level, the interval
    can include 0 though p is significant, or exclude it though p is not.

    Attributes:
        value: The index, from 0 to 1; NaN if quality is 0 in every bucket or there are fewer than two buckets.
        low: Lower end of its interval.
        high: Upper end of its interval.
        noise_floor: Mean of the index under the null hypothesis that position makes no difference, by permutation.
        p: Share of permutations with an index at least as large.
        n: Number of queries.
        blind_floor: Mean of the index that a ranker would show on the same buckets if it were blind to position; see
            :func:`bucketed`. NaN without values on rotated passages, or if the index is undefined.
        p_blind: Share of such indices that are at least as large.
    """

    value: float
    low: float
    high: float
    noise_floor: float
    p: float
    n: int
    blind_floor: float = float("nan")
    p_blind: float = float("nan")


def position_sensitivity(means: Any) -> Any:
    """PSI of mean qualities.

    Args:
        means: Shape [..., k]: mean quality in each of k buckets, not negative.

    Returns:
        Shape [...]: 1 - min / max; NaN if the maximum is 0.

    Example:
        >>> round(float(position_sensitivity([0.5, 0.4, 0.45])), 6)
        0.2
    """
    means = np.asarray(means, dtype=float)
    highest = means.max(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(highest > 0, 1 - means.min(axis=-1) / highest, np.nan)


def bucketed(
    values: np.ndarray,
    buckets: np.ndarray,
    rotated: np.ndarray | None = None,
    *,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> SensitivityIndex:
    """PSI over buckets of different queries.

    The interval resamples queries within their buckets (see :func:`_interval`). There are two null hypotheses. The first permutes
    queries over buckets (``noise_floor``, ``p``) and asks whether buckets differ at all; they may, because their queries differ
    in difficulty. The second needs the quality of the same queries on rotated passages and asks whether position is the cause: it
    exchanges original and rotated within each query and keeps the buckets (``blind_floor``, ``p_blind``). For a ranker that is
    blind to position, the two are exchangeable, whatever the queries are like.

    Args:
        values: Shape [n]: quality of each query.
        buckets: Shape [n]: number of its bucket, from 0 to k - 1, none of them empty.
        rotated: Shape [n, draws]: quality of each query in each draw of rotated passages; None leaves the second null hypothesis
            out.
        clusters: n labels of queries that are exchanged together; see
            :func:`~pyterrier_debias.core.statistics.exchange_test`.
        level: Nominal coverage.
        resamples: Number of bootstrap resamples, and of permutations.
        seed: Seed of both.

    Returns:
        The index with its interval, null value and p.
    """
    values, buckets = np.asarray(values, dtype=float), np.asarray(buckets, dtype=int)
    counts = np.bincount(buckets)
    if len(counts) < 2:
        return SensitivityIndex(*(float("nan"),) * 5, n=len(values))
    member = (buckets[:, None] == np.arange(len(counts))).astype(float)
    generator = np.random.default_rng(seed)
    resampled = np.empty((resamples, len(counts)))
    for bucket in range(len(counts)):
        resampled[:, bucket] = _bootstrap_means(values[buckets == bucket], resamples, generator)
    null = np.empty(resamples)
    for rows in _blocks(resamples, len(values)):
        shuffled = generator.permuted(np.broadcast_to(values, (len(rows), len(values))), axis=1)
        null[rows] = position_sensitivity(shuffled @ member / counts)
    index = _judged(values @ member / counts, resampled, counts, null, level, len(values))
    if rotated is None or np.isnan(index.value):
        return index
    arms = np.column_stack([values, rotated])
    queries = np.arange(len(values))
    of = queries if clusters is None else np.unique(clusters, return_inverse=True)[1]
    blind = np.empty(resamples)
    for rows in _blocks(resamples, len(values)):
        exchanged = arms[queries, generator.integers(0, arms.shape[1], size=(len(rows), of.max() + 1))[:, of]]
        blind[rows] = position_sensitivity(exchanged @ member / counts)
    # An index that is not defined (every quality 0) shows nothing.
    blind = np.nan_to_num(blind)
    return replace(index, blind_floor=float(blind.mean()), p_blind=p_from_null(index.value, blind))


def placed(
    values: np.ndarray,
    *,
    clusters: np.ndarray | None = None,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> SensitivityIndex:
    """PSI over positions at which the same queries' answers were put, so that differences between queries cannot confound it.

    The interval resamples queries; under the null hypothesis, the values of each query are permuted over the positions.

    Args:
        values: Shape [n, k]: quality of each query with its answer at each position.
        clusters: n labels of queries whose values are permuted together.
        level: Nominal coverage.
        resamples: Number of bootstrap resamples, and of permutations.
        seed: Seed of both.

    Returns:
        The index with its interval, null value and p.
    """
    values = np.asarray(values, dtype=float)
    n, k = values.shape
    if n == 0 or k < 2:
        return SensitivityIndex(*(float("nan"),) * 5, n=n)
    generator = np.random.default_rng(seed)
    resampled = _bootstrap_means(values, resamples, generator)
    null, sums = np.empty(resamples), sums_by_cluster(values, clusters)[0]
    for rows in _blocks(resamples, n * k):
        shuffled = generator.permuted(np.broadcast_to(sums, (len(rows), *sums.shape)), axis=2)
        null[rows] = position_sensitivity(shuffled.sum(axis=1) / n)
    return _judged(values.mean(axis=0), resampled, np.full(k, n), null, level, n)


def _bootstrap_means(values: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Means of bootstrap samples of rows, shape [resamples] or [resamples, k]; few enough at a time for any number of rows."""
    n = len(values)
    means = np.empty((resamples, *values.shape[1:]))
    rows = max(16, CELLS // n // 16 * 16)
    for start in range(0, resamples, rows):
        drawn = generator.multinomial(n, np.full(n, 1 / n), size=min(rows, resamples - start))
        means[start : start + rows] = drawn @ values / n
    return means


def _blocks(resamples: int, size: int) -> list[np.ndarray]:
    """Numbers of resamples in parts whose arrays stay small."""
    rows = max(1, 2_000_000 // max(1, size))
    return [np.arange(start, min(start + rows, resamples)) for start in range(0, resamples, rows)]


def _judged(
    means: np.ndarray, resampled: np.ndarray, counts: np.ndarray, null: np.ndarray, level: float, n: int
) -> SensitivityIndex:
    value = float(position_sensitivity(means))
    if np.isnan(value):
        return SensitivityIndex(*(float("nan"),) * 5, n=n)
    low, high = _interval(means, resampled, counts, level)
    return SensitivityIndex(value, min(low, value), max(high, value), float(null.mean()), p_from_null(value, null), n)


def _interval(means: np.ndarray, resampled: np.ndarray, counts: np.ndarray, level: float) -> tuple[float, float]:
    """Simultaneous bootstrap interval of PSI.

    PSI is 1 - exp(-R) with R the range of the logarithms of the means. With c the quantile of the range of (resampled - observed)
    logarithms, all differences between two buckets, and with them R, lie within c of what was observed. A percentile interval
    would never hold 0, since resampling adds to the upward bias. Half a query of quality 1 in one more query keeps empty
    buckets' logarithms finite.
    """

    def logarithm(x: np.ndarray) -> np.ndarray:
        return np.log((x * counts + 0.5) / (counts + 1))

    observed = logarithm(means)
    c = np.quantile(np.ptp(logarithm(resampled) - observed, axis=-1), level)
    spread = np.ptp(observed)
    return float(-np.expm1(-max(0.0, spread - c))), float(-np.expm1(-(spread + c)))


def bucket_of(positions: np.ndarray, buckets: int | Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Sort positions into buckets.

    Args:
        positions: Shape [n], from 0.
        buckets: The number of buckets, which then hold equally many positions as far as ties allow; or their edges in ascending
            order: a bucket includes its lower edge, and the last one also its upper edge.

    Returns:
        The number of each position's bucket, shape [n], -1 outside the edges; and the edges. Buckets that would be empty are
        joined to their neighbour.

    Raises:
        InputError: If there are fewer than two buckets, or the edges do not ascend.

    Example:
        >>> labels, edges = bucket_of(np.array([0, 10, 20, 300]), [0, 100, 500])
        >>> labels.tolist(), edges.tolist()
        ([0, 0, 0, 1], [0.0, 100.0, 500.0])
    """
    positions = np.asarray(positions, dtype=float)
    if not isinstance(buckets, (Sequence, np.ndarray)) or isinstance(buckets, str):
        check_number("PositionSensitivity", "buckets", buckets, least=2, whole=True, hint="or give edges in a list")
        if not len(positions):
            return np.empty(0, dtype=int), np.empty(0)
        edges = np.quantile(positions, np.linspace(0, 1, buckets + 1), method="higher")
        distinct = np.unique(positions)
        if len(distinct) > 1:  # an edge at the smallest position would have nothing below it
            edges[1:] = np.maximum(edges[1:], distinct[1])
    else:
        try:
            edges = np.asarray(buckets, dtype=float)
        except (TypeError, ValueError):
            edges = np.empty(0)
        if edges.ndim != 1 or len(edges) < 3 or (np.diff(edges) <= 0).any():
            raise InputError(f"PositionSensitivity: buckets={list(buckets)} must be at least three edges in ascending order")
    inner = np.unique(edges[1:-1])
    labels = np.searchsorted(inner, positions, side="right")
    labels[(positions < edges[0]) | (positions > edges[-1])] = -1
    filled = np.unique(labels[labels >= 0])
    # An empty bucket is joined to the one before it, the first to the one after it.
    bounds = np.concatenate([[edges[0]], inner[filled[1:] - 1], [edges[-1]]]) if len(filled) else np.empty(0)
    renumbered = np.where(labels >= 0, np.searchsorted(filled, labels), -1)
    return renumbered, bounds


def place(text: str, start: int, end: int, where: str, split: Tokeniser) -> str | None:
    """Rotate a text so that its answer comes first, in the middle or last; the answer is never cut.

    All three are rotations of the same units, so they differ only in the place of the cut. ``split`` determines the unit: with
    words, the answer itself comes first; with sentences, the sentence (or sentences) that it touches.

    Args:
        text: The text.
        start: The answer's first character, from 0.
        end: One past its last character.
        where: ``'start'``, ``'middle'`` or ``'end'``. In the middle, there are as many units before the answer as after it, or
            one fewer.
        split: A function that cuts the text into units.

    Returns:
        The rotated text, unchanged if the answer is already there; None if no unit is touched.

    Example:
        >>> [place("it is Ada of course", 6, 9, where, str.split) for where in PLACEMENTS]
        ['Ada of course it is', 'it is Ada of course', 'of course it is Ada']
    """
    check_choice("place", "where", where, PLACEMENTS)
    units = word_spans(text, split(text))
    first, count = words_of_span(units, start, end)
    if not count:
        return None
    return rotated_text(text, units, first - _target(where, len(units), count))


def _target(where: str, n: int, count: int) -> int:
    """The position that the first of ``count`` units gets among ``n``."""
    return {"start": 0, "middle": (n - count) // 2, "end": n - count}[where]
