"""Means over nested subsets and over strata of queries, and whether quality depends on the rank.

v_q is the quality of query q, r_q the rank at which its labellers first met an answer (infinite for never), N the number of all
queries, n_k = #{q : r_q <= k}. Two means are always given together:

- the *conditional* mean over survivors, m_k = (1/n_k) sum over r_q <= k of v_q;
- the *zero-filled* mean over all queries, z_k = (1/N) sum over r_q <= k of v_q.

z_k = m_k n_k / N, always. So the fall from m to z shows how many queries are missing, and nothing about a ranker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.statistics import SAME_CORRELATION, Interval, rank_correlation_interval, sums_by_cluster, t_interval


@dataclass(frozen=True)
class Nested:
    """Means over the queries answered within k documents.

    Attributes:
        k: How many documents; infinite for any number.
        n: Queries answered within them, n_k.
        total: All queries, N.
        share: n_k / N.
        mean: m_k, with Student's interval.
        zero_filled: z_k, with Student's interval.
        change: m_k less the mean over all answered queries, with an interval that allows for the shared queries.
    """

    k: float
    n: int
    total: int
    share: float
    mean: Interval
    zero_filled: Interval
    change: Interval


def nested_means(
    values: np.ndarray,
    ranks: np.ndarray,
    thresholds: Sequence[float],
    *,
    clusters: Sequence[object] | None = None,
    level: float = 0.95,
) -> list[Nested]:
    """Conditional and zero-filled means for each threshold.

    The change m_k - m_any is (1 - w) (m_k - m_later), with w = n_k / n_any and m_later the mean of queries answered later than at
    k. By the delta method for ratios over the same queries its variance is (1 - w)^2 (s_k^2 / n_k + s_later^2 / n_later) +
    w (1 - w) (m_k - m_later)^2 / n_any, with sample variances s^2. Student's quantile has the degrees of freedom of the smaller
    group, which is slightly conservative. There is no interval if either mean is over one query only.

    Args:
        values: Shape [N], no NaN.
        ranks: First relevant ranks, infinite for never; shape [N].
        thresholds: The values of k.
        clusters: N names of what queries have in common, such as the article that they are about, with intervals of
            :func:`influence_interval`; None if they have nothing in common.
        level: Coverage of intervals.

    Returns:
        One item per threshold; means over no query are NaN.

    Raises:
        InputError: For unequal lengths or NaN.

    Example:
        >>> found = nested_means([1.0, 0.5, 0.0, 0.0], [1, 2, 3, np.inf], [1, 2, np.inf])
        >>> [(f.n, f.mean.estimate, f.zero_filled.estimate) for f in found]
        [(1, 1.0, 0.25), (2, 0.75, 0.375), (3, 0.5, 0.375)]
    """
    v, r = _checked("nested_means", values, ranks)
    total = len(v)
    found = np.isfinite(r)
    items = []
    for k in thresholds:
        within = found & (r <= k)
        n = int(within.sum())
        if clusters is None:
            mean = t_interval(v[within], level=level)
            zero = t_interval(np.where(within, v, 0.0), level=level)
            change = _change(v[within], v[found & ~within], level)
        else:
            mean = difference_of_means(v, within, None, clusters=clusters, level=level)
            zero = difference_of_means(np.where(within, v, 0.0), np.ones(total, dtype=bool), None, clusters=clusters, level=level)
            change = difference_of_means(v, within, found, clusters=clusters, level=level)
        items.append(Nested(float(k), n, total, n / total if total else float("nan"), mean, zero, change))
    return items


def _change(early: np.ndarray, later: np.ndarray, level: float) -> Interval:
    """The mean of the early queries less that of all answered ones; see :func:`nested_means`."""
    from scipy import stats

    n, rest = len(early), len(later)
    if not n or not rest:
        same = 0.0 if n else float("nan")
        return Interval(same, same, same, level, n)
    share, apart = n / (n + rest), float(early.mean() - later.mean())
    change = (1 - share) * apart
    if min(n, rest) < 2:
        return Interval(change, float("nan"), float("nan"), level, n)
    variance = (1 - share) ** 2 * (early.var(ddof=1) / n + later.var(ddof=1) / rest) + share * (1 - share) * apart**2 / (n + rest)
    half = float(stats.t.ppf((1 + level) / 2, min(n, rest) - 1) * np.sqrt(variance))
    return Interval(change, change - half, change + half, level, n)


def difference_of_means(
    values: np.ndarray,
    within: np.ndarray,
    among: np.ndarray | None,
    *,
    clusters: Sequence[object] | None = None,
    level: float = 0.95,
) -> Interval:
    """The mean over some queries, or its difference from the mean over other, possibly overlapping, queries.

    If ``among`` is all queries, and judgements say what is relevant where labellers never looked, the difference shows how far a
    figure over survivors is from the truth.

    Args:
        values: Shape [N]; only those of the two sets are used.
        within: Which queries the first mean is over, shape [N].
        among: Which queries the second mean is over, shape [N]; None for no second mean.
        clusters: What queries have in common, as in :func:`nested_means`.
        level: Coverage of the interval.

    Returns:
        The difference, with the interval of :func:`influence_interval`; ``n`` is the number of queries of the first mean. NaN
        if a mean is over no queries.

    Example:
        >>> values, early = np.array([1.0, 0.8, 0.4, 0.2]), np.array([True, True, False, False])
        >>> round(difference_of_means(values, early, np.ones(4, dtype=bool)).estimate, 3)
        0.3
    """
    v = np.asarray(values, dtype=float)
    sets = [np.asarray(one, dtype=bool) for one in (within, among) if one is not None]
    n = int(sets[0].sum())
    if not all(one.any() for one in sets):
        return Interval(float("nan"), float("nan"), float("nan"), level, n)
    means = [float(v[one].mean()) for one in sets]
    influence = np.zeros(len(v))
    for sign, one, mean in zip((1, -1), sets, means):
        influence[one] += sign * (v[one] - mean) / one.sum()
    estimate = means[0] - (means[1] if len(means) > 1 else 0.0)
    read = np.logical_or.reduce(sets)
    names = np.arange(len(v)) if clusters is None else np.asarray(clusters, dtype=object)
    # The smaller of the two groups that are compared carries most of the variance.
    groups = [sets[0]] if len(sets) == 1 else [one for one in (sets[0], sets[1] & ~sets[0]) if one.any()]
    fewest = min(int(one.sum()) if clusters is None else len(set(names[one])) for one in groups)
    return influence_interval(estimate, influence[read], names[read].tolist(), n=n, level=level, fewest=fewest)


def influence_interval(
    estimate: float, influence: np.ndarray, clusters: Sequence[object], *, n: int, level: float = 0.95, fewest: int | None = None
) -> Interval:
    """An interval from each query's influence on an estimate, for queries in clusters.

    Queries about one article or paragraph share the documents that are ranked, so they are not independent. With e_q the
    influence of query q, C clusters, and e_c the sum over the queries of cluster c, the variance is C / (C - 1) sum of e_c^2
    (Liang and Zeger 1986), and Student's quantile has C - 1 degrees of freedom. If each query is its own cluster, the interval of
    a mean is Student's.

    Args:
        estimate: The estimate.
        influence: Shape [n], sums to 0.
        clusters: The names of the queries' clusters, shape [n].
        n: The number of queries that the interval reports.
        level: Coverage of the interval.
        fewest: The number of clusters that Student's quantile allows for, if that of a group is lower than C.

    Returns:
        The interval; NaN ends for fewer than two clusters.

    When not to use it: with fewer than about thirty clusters, where it is too narrow.
    """
    from scipy import stats

    sums, _ = sums_by_cluster(influence, clusters)
    fewest = len(sums) if fewest is None else fewest
    if min(len(sums), fewest) < 2:
        return Interval(estimate, float("nan"), float("nan"), level, n)
    error = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum())
    half = float(stats.t.ppf((1 + level) / 2, fewest - 1) * error)
    return Interval(estimate, estimate - half, estimate + half, level, n)


def strata_means(
    values: np.ndarray, ranks: np.ndarray, last: int, *, clusters: Sequence[object] | None = None, level: float = 0.95
) -> list[tuple[int, Interval]]:
    """The mean at each first relevant rank, over strata that, unlike nested subsets, share no query.

    Args:
        values: Shape [N].
        ranks: First relevant ranks, shape [N].
        last: The last rank with its own stratum.
        clusters: What queries have in common, as in :func:`nested_means`.
        level: Coverage of intervals.

    Returns:
        Ranks 1 to ``last`` with intervals; NaN if a stratum is empty.

    Raises:
        InputError: For unequal lengths or NaN.
    """
    v, r = _checked("strata_means", values, ranks)
    if clusters is None:
        return [(rank, t_interval(v[r == rank], level=level)) for rank in range(1, last + 1)]
    return [(rank, difference_of_means(v, r == rank, None, clusters=clusters, level=level)) for rank in range(1, last + 1)]


def strata_of_nested(sizes: Sequence[int], means: Sequence[float]) -> np.ndarray:
    """Recover the means at each first relevant rank from published means of nested subsets.

    Args:
        sizes: Sizes of the subsets, n_1, ..., n_n.
        means: Means over the subsets, m_1, ..., m_n.

    Returns:
        (n_k m_k - n_{k-1} m_{k-1}) / (n_k - n_{k-1}) for k = 1, ..., n; NaN if no query was added.

    Raises:
        InputError: If the lengths differ or sizes decrease.

    Example:
        >>> strata_of_nested([2, 4], [1.0, 0.75]).tolist()
        [1.0, 0.5]
    """
    n, m = np.asarray(sizes, dtype=float), np.asarray(means, dtype=float)
    if n.shape != m.shape or n.ndim != 1 or (np.diff(n) < 0).any():
        raise InputError(
            f"strata_of_nested: sizes must not fall, and there must be one mean for each size; got sizes {n.tolist()} and means "
            f"of shape {m.shape}"
        )
    added = np.diff(n, prepend=0.0)
    sums = np.diff(n * m, prepend=0.0)
    return np.divide(sums, added, out=np.full(len(n), np.nan), where=added > 0)


def zero_filled(mean: float, answered: int, total: int) -> float:
    """The mean over all queries if those without an answer count as 0: the mean over answered ones times the share answered.

    Args:
        mean: The mean over the answered queries.
        answered: How many queries are answered.
        total: How many queries there are.

    Returns:
        mean * answered / total.

    Raises:
        InputError: If more queries are answered than there are, or there are no queries.

    Example:
        >>> round(zero_filled(0.18670, 55568, 101093), 5)
        0.10262
    """
    if not 0 <= answered <= total or total < 1:
        raise InputError(f"zero_filled: answered={answered} must be from 0 to total={total}, and total at least 1")
    return mean * answered / total


@dataclass(frozen=True)
class Trend:
    """How quality depends on the first relevant rank, among answered queries.

    Attributes:
        rho: Spearman's rank correlation, with midranks for ties; NaN if quality or rank does not vary.
        low: Lower end of its interval (Bonett and Wright, 2000), which agrees with p; see
            :func:`~pyterrier_debias.core.statistics.rank_correlation_interval`.
        high: Upper end.
        p: Two-sided p, by permutation.
        noise_floor: Mean absolute correlation of permuted queries, the value to expect by chance alone.
        n: How many queries are answered.
        slope: Change of the mean per rank, by least squares, with a separate constant for each stratum.
    """

    rho: float
    low: float
    high: float
    p: float
    noise_floor: float
    n: int
    slope: float


def trend(
    values: np.ndarray,
    ranks: np.ndarray,
    *,
    strata: Sequence[object] | None = None,
    resamples: int = 9_999,
    level: float = 0.95,
    seed: int = 0,
) -> Trend:
    """Test whether quality depends on the rank at which labellers first met the answer.

    Under the null hypothesis, quality and rank are independent among answered queries, so ranks may be permuted. The statistic is
    Spearman's correlation with midranks; p is (1 + number at least as extreme) / (1 + resamples), valid with any ties.

    Args:
        values: Shape [N].
        ranks: First relevant ranks, shape [N]; queries with an infinite rank are left out.
        strata: N names, such as types of queries: midranks are centred and permuted within strata, so that differences between
            strata do not count. None for no strata.
        resamples: How many permutations.
        level: Coverage of the interval.
        seed: Seed of the permutations. They also depend on the order of the queries: sort them by an identifier.

    Returns:
        The trend; NaN with fewer than three answered queries, or if quality or rank does not vary.

    Raises:
        InputError: For unequal lengths or NaN.

    Example:
        >>> found = trend([1.0, 1.0, 0.5, 0.5, 0.2, 0.1, 0.0], [1, 2, 3, 4, 5, 6, np.inf])
        >>> round(found.rho, 2), found.n, found.p < 0.05
        (-0.97, 6, True)

    When not to use it: for statements about causes. Queries answered early may be of other types than those answered late; look
    at each type separately.
    """
    from scipy import stats

    v, r = _checked("trend", values, ranks)
    names = _stratum_numbers("trend", strata, len(v))
    kept = np.isfinite(r)
    v, r, names = v[kept], r[kept], names[kept]
    n = len(v)
    nan = float("nan")
    x, y = (_centred(stats.rankdata(a), names) for a in (r, v))
    if n < 3 or not x @ x > 1e-9 or not y @ y > 1e-9:
        return Trend(nan, nan, nan, nan, nan, n, nan)
    x, y = x / np.sqrt(x @ x), y / np.sqrt(y @ y)
    rho = float(np.clip(x @ y, -1.0, 1.0))
    generator = np.random.default_rng(seed)
    places = [np.flatnonzero(names == name) for name in np.unique(names)]
    tables = [place for place in places if n > _LARGE and _levels(x[place]) * _levels(y[place]) < len(place) / _WORTH]
    summed = sum((_of_tables(x[place], y[place], resamples, generator) for place in tables), np.zeros(resamples))
    shuffled = [place for place in places if not any(place is one for one in tables)]
    rows = max(1, 2_000_000 // n)  # 16 MB at once
    sizes = []
    for start in range(0, resamples, rows):
        drawn = np.repeat(y[None], min(rows, resamples - start), axis=0)
        if tables:
            drawn[:, np.concatenate(tables)] = 0.0
        for place in shuffled:
            drawn[:, place] = generator.permuted(drawn[:, place], axis=1)
        sizes.append(np.abs(drawn @ x + summed[start : start + rows]))
    size = np.concatenate(sizes)
    extreme = int((size >= abs(rho) - SAME_CORRELATION).sum())
    low, high = rank_correlation_interval(rho, n - len(places) - 2, size, level=level)
    later = _centred(r, names)
    slope = float(later @ v / (later @ later))
    return Trend(rho, low, high, (1 + extreme) / (1 + resamples), float(size.mean()), n, slope)


#: With more queries than this, permutations of values with few distinct levels are drawn as tables.
_LARGE = 20_000
#: Drawing a cell of a table takes as long as shuffling this many values.
_WORTH = 10


def _levels(values: np.ndarray) -> int:
    return len(np.unique(values))


def _of_tables(x: np.ndarray, y: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Sums of products of x and permuted y, shape [resamples], computed from random tables of how often values meet.

    For a random permutation, the table of counts has Fisher's multiple hypergeometric distribution; cells are drawn one by one,
    given the cells before.
    """
    (a, rows), (b, columns) = (np.unique(one, return_counts=True) for one in (x, y))
    left, total = np.tile(columns, (resamples, 1)), np.zeros(resamples)
    for value, size in zip(a[:-1], rows[:-1]):
        rest, wanted = left.sum(axis=1), np.full(resamples, size)
        for j in range(len(b)):
            rest = rest - left[:, j]
            met = generator.hypergeometric(left[:, j], rest, wanted)
            left[:, j] -= met
            wanted = wanted - met
            total += value * b[j] * met
    return total + a[-1] * (left @ b)


def _stratum_numbers(who: str, strata: Sequence[object] | None, n: int) -> np.ndarray:
    """Strata as numbers from 0; a single one if there are none."""
    if strata is None:
        return np.zeros(n, dtype=int)
    if len(strata) != n:
        raise InputError(f"{who}: there must be one stratum per value; got {len(strata)} strata for {n} values")
    return np.unique(np.asarray(strata, dtype=str), return_inverse=True)[1]


def _centred(values: np.ndarray, strata: np.ndarray) -> np.ndarray:
    """Values less the mean of their stratum."""
    counts = np.bincount(strata)
    return values - (np.bincount(strata, values) / np.maximum(counts, 1))[strata] if len(values) else values


def rank_influence(
    values: np.ndarray, ranks: np.ndarray, *, strata: Sequence[object] | None = None, most: int = 5000
) -> np.ndarray:
    """A value for each query, such that the mean is :func:`trend`'s correlation; paired differences compare two systems.

    They are the jackknife's pseudo-values, n rho - (n - 1) rho without the query, shifted so that their mean is exactly rho. With
    more than ``most`` queries, midranks are treated as fixed numbers, and the values are those of Pearson's correlation.

    Args:
        values: Shape [n].
        ranks: First relevant ranks, shape [n], all finite.
        strata: The names of the queries' strata, as in :func:`trend`.
        most: Up to how many queries the jackknife is used; its time grows with the square of n.

    Returns:
        Shape [n]; NaN if the correlation is not defined.

    Raises:
        InputError: For unequal lengths or NaN.

    Example:
        >>> found = rank_influence(np.array([1.0, 0.5, 0.4, 0.1]), np.array([1.0, 2.0, 4.0, 3.0]))
        >>> round(float(found.mean()), 3)
        -0.8

    When not to use it: where most strata have two or three queries, if power matters. Without one query of a pair, the other no
    longer counts, so that standard errors are about a third too large, and a test at 5 % rejects in 1 %.
    """
    from scipy import stats

    v, r = _checked("rank_influence", values, ranks)
    n = len(v)
    names = _stratum_numbers("rank_influence", strata, n)
    x, y = stats.rankdata(r), stats.rankdata(v)
    a, b = (_centred(one, names) for one in (x, y))
    if n < 4 or not a @ a > 1e-9 or not b @ b > 1e-9:
        return np.full(n, np.nan)
    rho = a @ b / np.sqrt(a @ a * (b @ b))
    if n > most:
        left, right = (side / np.sqrt(side @ side / n) for side in (a, b))
        found = left * right - rho * (left**2 + right**2) / 2
        return found - found.mean() + rho
    found = np.empty(n)
    member = np.eye(names.max() + 1)[names]
    for start in range(0, n, 256):
        i = np.arange(start, min(start + 256, n))
        # Midranks of all queries except query i, whose own entry does not count.
        own = np.arange(n)[None] != i[:, None]
        one, two = (
            (place - (numbers[i, None] < numbers) - 0.5 * (numbers[i, None] == numbers)) * own
            for place, numbers in ((x, r), (y, v))
        )
        left = np.maximum(own @ member, 1)
        one, two = ((ranked - (ranked @ member / left)[:, names]) * own for ranked in (one, two))
        spread = np.sqrt((one**2).sum(axis=1) * (two**2).sum(axis=1))
        product = (one * two).sum(axis=1)
        found[i] = np.divide(product, spread, out=np.full(len(i), rho), where=spread > 1e-9)
    return rho + (n - 1) * (found.mean() - found)


def _checked(who: str, values: np.ndarray, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    v, r = np.asarray(values, dtype=float), np.asarray(ranks, dtype=float)
    if v.shape != r.shape or v.ndim != 1:
        raise InputError(f"{who}: values and ranks must be two lists of equal length; got shapes {v.shape} and {r.shape}")
    bad = np.flatnonzero(~np.isfinite(v))
    if len(bad):
        raise InputError(f"{who}: value {bad[0]} is {v[bad[0]]}; give finite numbers, and leave out queries without a value")
    bad = np.flatnonzero(np.isnan(r))
    if len(bad):
        raise InputError(f"{who}: rank {bad[0]} is NaN; give a query that was never answered an infinite rank")
    bad = np.flatnonzero(r < 1)
    if len(bad):
        told = "ranks count from 1, and a query that was never answered has an infinite rank"
        raise InputError(f"{who}: rank {bad[0]} is {r[bad[0]]:g}; {told}")
    return v, r
