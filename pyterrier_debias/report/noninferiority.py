"""The cost of reducing bias: non-inferiority tests and intervals of changes.

On few queries, any change is "not significantly worse". These functions ask the opposite question: can a loss that matters be
ruled out? They take arrays and return numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.statistics import (
    LEAST_UNITS,
    Interval,
    TestResult,
    differences,
    inverted_interval,
    paired_t,
    randomisation_test,
    sums_by_cluster,
    t_interval,
    two_level_interval,
    without_rounding,
)


def non_inferiority(before: np.ndarray, after: np.ndarray, margin: float) -> TestResult:
    """One-sided paired t-test: is the loss from ``before`` to ``after`` smaller than a margin?

    Null hypothesis: the mean of ``after - before`` is -margin or lower. It is one of the two tests of
    :func:`pyterrier_debias.core.statistics.equivalence_test` (TOST), which also requires a gain below the margin.

    Args:
        before: Shape [n], larger is better.
        after: Shape [n], the same units in the same order.
        margin: The largest loss that does not matter, positive, in the unit of the values. Choose it before you see results.

    Returns:
        The statistic and its one-sided p: a small p shows that the loss is smaller than the margin.

    Raises:
        InputError: If the margin is not positive, lengths differ, or a value is NaN or infinite.

    Example:
        >>> before, after = np.array([0.5, 0.4, 0.6, 0.5]), np.array([0.5, 0.41, 0.58, 0.51])
        >>> round(non_inferiority(before, after, 0.05).p, 4), round(non_inferiority(before, after, 0.005).p, 2)
        (0.0029, 0.27)

    When not to use it: with a margin that was chosen after the fact so that the test rejects.
    """
    from scipy import stats

    if not margin > 0:
        raise InputError(f"non_inferiority: margin={margin} must be positive")
    d = differences(before, after)
    n = len(d)
    if n < 2:
        return TestResult(float("nan"), float("nan"), n, "non-inferiority")
    if np.ptp(d) == 0:
        inside = d[0] > -margin
        return TestResult(float("inf") if inside else float("-inf"), 0.0 if inside else 1.0, n, "non-inferiority")
    t = (d.mean() + margin) / (d.std(ddof=1) / np.sqrt(n))
    return TestResult(float(t), float(stats.t.sf(t, n - 1)), n, "non-inferiority")


def _by_seed(before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    before, after = np.atleast_2d(np.asarray(before, dtype=float)), np.atleast_2d(np.asarray(after, dtype=float))
    if before.shape[1:] != after.shape[1:] or (len(before) != len(after) and 1 not in (len(before), len(after))):
        shapes = f"{before.shape} and {after.shape}"
        raise InputError(f"before and after have incompatible shapes {shapes}; give [seeds, queries] for both")
    if np.isnan(before).any() or np.isnan(after).any():
        raise InputError("before or after contains NaN; leave out queries without a value")
    return before, after


def change_interval(
    before: np.ndarray,
    after: np.ndarray,
    *,
    clusters: Sequence[object] | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interval of the mean change over queries, or over both queries and training seeds if there are several.

    With one seed it is Student's, or with clusters that of a randomisation test of whole clusters
    (:func:`pyterrier_debias.core.statistics.inverted_interval`). With several seeds it is the hierarchical bootstrap of
    :func:`pyterrier_debias.core.statistics.two_level_interval`: both seeds and queries are drawn with replacement, and all drawn
    seeds share the drawn queries.

    Args:
        before: Shape [seeds, n]; a single row stands for every seed (a ranker that was not trained).
        after: Shape [seeds, n]; row s was trained with the same seed as row s of ``before``.
        clusters: n labels; queries with the same label are not independent and are drawn together. None draws each alone.
        level: Nominal coverage.
        resamples: The number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The interval of the mean of ``after - before``; ``n`` is the number of queries.

    Raises:
        InputError: If the shapes do not match, or a value is NaN.

    Example:
        >>> found = change_interval(np.zeros((1, 3)), np.array([[0.1, 0.2, 0.3]]))
        >>> round(found.estimate, 3), round(found.low, 3), round(found.high, 3)
        (0.2, -0.048, 0.448)
    """
    before, after = _by_seed(before, after)
    change = without_rounding(after - before)
    if len(change) == 1:
        if clusters is not None:
            return inverted_interval(change[0], clusters=clusters, level=level, seed=seed)
        return t_interval(change[0], level=level)
    return _two_level(change[:, :, None], lambda m: m[..., 0], clusters, resamples=resamples, level=level, seed=seed)


def change_p(before: np.ndarray, after: np.ndarray, *, clusters: Sequence[object] | None = None, seed: int = 0) -> float:
    """p of no mean change over queries: a paired t-test, or with clusters a randomisation test of whole clusters.

    Args:
        before: Shape [n].
        after: Shape [n].
        clusters: n labels of queries that are not independent; see :func:`change_interval`.
        seed: Seed of the randomisation.

    Returns:
        The p value; NaN if no query changes, or there are fewer than six queries or clusters.

    Raises:
        InputError: If lengths differ, or a value is NaN or infinite.

    Example:
        >>> change_p(np.zeros(6), np.full(6, 0.1)), change_p(np.zeros(6), np.full(6, 0.1), clusters=list("aabbcc"))
        (0.0, nan)
    """
    units = len(before) if clusters is None else len(set(clusters))
    if units < LEAST_UNITS or not differences(before, after).any():
        return float("nan")
    return (paired_t(before, after) if clusters is None else randomisation_test(before, after, clusters=clusters, seed=seed)).p


def _two_level(
    values: np.ndarray, statistic: Callable[[np.ndarray], np.ndarray], clusters: Sequence[object] | None, **how: Any
) -> Interval:
    """The hierarchical bootstrap; of clusters, a mean over queries is the ratio of the means of sums and of sizes."""
    if clusters is None:
        return two_level_interval(values, statistic, **how)
    of, sizes = sums_by_cluster(np.moveaxis(values, 1, 0), clusters)
    sums = np.concatenate([np.moveaxis(of, 0, 1), np.broadcast_to(sizes[:, None], (len(values), len(sizes), 1))], axis=2)
    found = two_level_interval(sums, lambda m: statistic(m[..., :-1] / m[..., -1:]), **how).of_enough
    return replace(found, n=values.shape[1])


def size_interval(
    before: np.ndarray,
    after: np.ndarray,
    *,
    clusters: Sequence[object] | None = None,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """95 % interval of the change in the size of a bias, \\|mean after\\| - \\|mean before\\|, by the bootstrap.

    If a bias changes its sign, its size has not grown by the whole difference. The size has a corner at 0: the size of a mean of
    noise is never 0, so a bias that was exactly 0 before seems to grow. Look at :func:`change_interval` too.

    Args:
        before: Shape [seeds, n]; a single row stands for every seed.
        after: Shape [seeds, n].
        clusters: n labels of queries that are drawn together; see :func:`change_interval`.
        resamples: The number of bootstrap resamples.
        seed: Seed of the resamples.

    Returns:
        The interval; negative means a smaller bias.

    Raises:
        InputError: As for :func:`change_interval`.

    Example:
        >>> found = size_interval(np.full((1, 3), 0.2), np.full((1, 3), -0.1))
        >>> round(found.estimate, 3), round(found.high, 3)
        (-0.1, -0.1)
    """
    both = np.stack(np.broadcast_arrays(*_by_seed(before, after)), axis=-1)
    return _two_level(both, lambda m: np.abs(m[..., 1]) - np.abs(m[..., 0]), clusters, resamples=resamples, seed=seed)


def leaves_out_zero(interval: Interval) -> bool:
    """Whether an interval shows that something is not 0.

    Args:
        interval: Any interval.

    Returns:
        True if both ends are on the same side of 0.
    """
    return bool(interval.low > 0 or interval.high < 0)


def bias_verdict(change: Interval, size: Interval) -> str:
    """Whether a bias has become smaller or larger.

    Neither interval may contain 0. The size alone is not enough: a mean of noise is never exactly 0, so a size that was 0 could
    only grow. Nor is the signed change: a bias may change its sign and be as large as before.

    Args:
        change: The interval for the figure, from :func:`change_interval`.
        size: The interval for its distance from 0, from :func:`size_interval`.

    Returns:
        ``'smaller'``, ``'larger'`` or ``'no change shown'``.

    Example:
        >>> bias_verdict(Interval(0.2, 0.1, 0.3, 0.95, 9), Interval(-0.2, -0.3, -0.1, 0.95, 9))
        'smaller'
        >>> bias_verdict(Interval(0.2, -0.1, 0.5, 0.95, 9), Interval(0.2, 0.01, 0.5, 0.95, 9))
        'no change shown'
    """
    if not leaves_out_zero(change) or not leaves_out_zero(size):
        return "no change shown"
    return "smaller" if size.estimate < 0 else "larger"


def on_front(bias: Sequence[float], effectiveness: Sequence[float]) -> np.ndarray:
    """Which systems are on the front: no other system is at most as biased, at least as effective, and better in one of the two.

    Args:
        bias: Shape [n]: sizes of bias, smaller is better.
        effectiveness: Shape [n]: larger is better.

    Returns:
        Shape [n], bool; False where a value is NaN.

    Example:
        >>> on_front([0.3, 0.1, 0.2, 0.3], [0.5, 0.4, 0.3, 0.5]).tolist()
        [True, True, False, True]
    """
    # Equal means may differ in their last bits.
    b, e = (np.asarray(values, dtype=float).round(12) for values in (bias, effectiveness))
    known = ~(np.isnan(b) | np.isnan(e))
    as_good = (b[:, None] <= b) & (e[:, None] >= e)
    better = (b[:, None] < b) | (e[:, None] > e)
    return known & ~(as_good & better).any(axis=0)
