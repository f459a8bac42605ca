"""The spread of effectiveness between queries, and how effectiveness depends on complexity; functions on arrays.

Mean, standard deviation and coefficient of variation (Cheng and Amiri, 2025, Tables 1 and 2) measure *every* spread between
queries, regardless of its cause. The rest of the module is about one possible cause, complexity: bins, a smooth curve, and tests
that permute effectiveness over queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.statistics import Interval, rank_correlation_interval
from pyterrier_debias.linguistic.formulas.slope import at_once, check_finite

#: Statistics of the values of queries.
STATISTICS = ("mean", "sd", "cv")
#: Ways to combine collections.
AVERAGES = ("macro", "pooled", "ratio_of_means")
#: Names of three bins.
THIRDS = ("easy", "medium", "hard")
#: Number of bins of equal width, the default of numpy's histogram.
WIDTH_BINS = 10


# ---------------------------------------------------------------------------------------------- mean, sd, c_v


def spread(values: np.ndarray, statistic: str, ddof: int = 0) -> float:
    """Compute the mean, standard deviation or coefficient of variation of queries' values.

    Args:
        values: Shape [n].
        statistic: ``'mean'``, ``'sd'`` or ``'cv'`` = sd / mean.
        ddof: The standard deviation divides by n - ddof.

    Returns:
        The statistic; NaN if it is undefined (no values, n <= ddof, a mean of 0).

    Raises:
        InputError: For an unknown statistic.

    Example:
        >>> [round(spread(np.array([0.2, 0.4, 0.9]), s), 3) for s in STATISTICS]
        [0.5, 0.294, 0.589]
    """
    check_choice("spread", "statistic", statistic, STATISTICS)
    values = np.asarray(values, dtype=float)
    mean = float(values.mean()) if len(values) else float("nan")
    if statistic == "mean":
        return mean
    sd = float(values.std() * np.sqrt(len(values) / (len(values) - ddof))) if len(values) > ddof else float("nan")
    return sd if statistic == "sd" else sd / mean if mean else float("nan")


def influence(values: np.ndarray, statistic: str, ddof: int = 0) -> np.ndarray:
    """Compute a value for each query, such that their mean is the statistic and their standard error that of the statistic.

    The value is the statistic plus its empirical influence function: for sd = s, s + ((y - m)^2 - s^2) / (2 s); for cv = s / m,
    cv + cv (((y - m)^2 - s^2) / (2 s^2) - (y - m) / m). Paired differences of two systems' values over the same queries test the
    difference of their statistics (the delta method).

    Args:
        values: Shape [n].
        statistic: See :func:`spread`.
        ddof: See :func:`spread`.

    Returns:
        Shape [n]; the statistic itself for every query if values do not vary.

    Raises:
        InputError: For an unknown statistic.

    Example:
        >>> values = np.array([0.2, 0.4, 0.9])
        >>> bool(np.isclose(influence(values, "cv").mean(), spread(values, "cv")))
        True
    """
    values = np.asarray(values, dtype=float)
    estimate = spread(values, statistic, ddof)
    if statistic == "mean":
        return values
    mean, sd = spread(values, "mean"), spread(values, "sd")
    if not sd or np.isnan(estimate):
        return np.full(len(values), estimate)
    own = ((values - mean) ** 2 / sd**2 - 1) / 2
    return estimate * (1 + own - ((values - mean) / mean if statistic == "cv" else 0.0))


def over_collections(
    collections: Sequence[np.ndarray], *, average: str = "macro", ddof: int = 0, level: float = 0.95
) -> dict[str, Interval]:
    """Compute mean, standard deviation and coefficient of variation over queries and collections, with intervals.

    Intervals are Student's on the influence values, for sd and cv on a logarithmic scale (with simulated nDCG-like values of 43
    queries, these cover 92 to 96 %, those of a percentile bootstrap 87 to 94 %).

    Args:
        collections: The values of each collection's queries.
        average: ``'macro'``: the mean over collections of each statistic (as for the c_v of the paper's Table 1); ``'pooled'``:
            the statistics of all queries together; ``'ratio_of_means'``: mean and sd as for macro, and cv is that sd / mean.
        ddof: See :func:`spread`.
        level: Coverage of the intervals.

    Returns:
        An interval for each of ``'mean'``, ``'sd'`` and ``'cv'``. NaN if a statistic is undefined in one of the collections.

    Raises:
        InputError: For an unknown ``average``, or no collection.

    Example:
        Two collections with means .25 and .50 and standard deviations .25 and .25 have a c_v of 1 and of .5:

        >>> two = [np.array([0.0, 0.5]), np.array([0.25, 0.75])]
        >>> [round(over_collections(two, average=way)["cv"].estimate, 3) for way in AVERAGES]
        [0.75, 0.745, 0.667]
    """
    check_choice("over_collections", "average", average, AVERAGES)
    collections = [np.asarray(values, dtype=float) for values in collections]
    if not collections:
        raise InputError("over_collections: collections is empty; pass the values of at least one collection")
    if average == "pooled":
        collections = [np.concatenate(collections)]
    found = {}
    for statistic in STATISTICS:
        parts = [influence(values, statistic, ddof) for values in collections]
        if statistic == "cv" and average == "ratio_of_means":
            means, sds = ([influence(values, s, ddof) for values in collections] for s in ("mean", "sd"))
            mean, sd = (np.mean([part.mean() for part in kind]) for kind in (means, sds))
            ratio = sd / mean if mean else np.nan
            # Linear in mean and sd, so that the mean of the collections' means is the ratio.
            parts = [ratio + (s - ratio * m) / mean if mean else m * np.nan for s, m in zip(sds, means)]
        found[statistic] = _interval(parts, level, positive=statistic != "mean")
    return found


def _interval(parts: Sequence[np.ndarray], level: float, *, positive: bool) -> Interval:
    """The mean over collections of the means of influence values, with its interval."""
    from scipy import stats

    n = sum(map(len, parts))
    estimate = float(np.mean([part.mean() if len(part) else np.nan for part in parts]))
    if min(map(len, parts)) < 2 or np.isnan(estimate):
        return Interval(estimate, float("nan"), float("nan"), level, n)
    error = np.sqrt(sum(part.var(ddof=1) / len(part) for part in parts)) / len(parts)
    half = float(stats.t.ppf((1 + level) / 2, _freedom(parts)) * error)
    if positive and estimate > 0:
        factor = float(np.exp(min(half / estimate, 700.0)))
        return Interval(estimate, estimate / factor, estimate * factor, level, n)
    return Interval(estimate, estimate - half, estimate + half, level, n)


def _freedom(parts: Sequence[np.ndarray]) -> float:
    """Degrees of freedom of a sum of means of unlike precision (Welch and Satterthwaite); n - 1 for one collection."""
    squares = np.array([part.var(ddof=1) / len(part) for part in parts])
    own = np.array([len(part) - 1 for part in parts])
    return float(squares.sum() ** 2 / (squares**2 / own).sum()) if squares.any() else float(own.sum())


# ---------------------------------------------------------------------------------------------- bins of complexity


def inner_edges(complexity: np.ndarray, bins: str | int | Sequence[float]) -> np.ndarray:
    """Find the edges between bins of complexity; a query at an edge belongs to the upper bin.

    If so many queries have the smallest complexity that a quantile equals it, the edge is the next larger value instead, so that
    the simplest queries are in the first bin.

    Args:
        complexity: Shape [n], n >= 1.
        bins: ``'tertile'``: thirds of the queries (edges at the quantiles 1/3 and 2/3, interpolated linearly); a number k: k
            bins at quantiles; ``'equal_width'``: ten bins between the smallest and the largest value; or the edges
            themselves, ascending.

    Returns:
        The k - 1 edges between k bins.

    Raises:
        InputError: For any other ``bins``.

    Example:
        >>> inner_edges(np.arange(7.0), "tertile").tolist()
        [2.0, 4.0]
    """
    if isinstance(bins, str):
        if bins == "tertile":
            return _quantiles(complexity, [1 / 3, 2 / 3])
        if bins == "equal_width":
            return np.linspace(np.min(complexity), np.max(complexity), WIDTH_BINS + 1)[1:-1]
    elif isinstance(bins, (int, np.integer)) and not isinstance(bins, bool):
        if bins >= 2:
            return _quantiles(complexity, np.arange(1, bins) / bins)
    elif isinstance(bins, (list, tuple, np.ndarray)):
        edges = np.asarray(bins, dtype=float)
        if edges.ndim == 1 and len(edges) and (np.diff(edges) > 0).all() and np.isfinite(edges).all():
            return edges
    raise InputError(f"bins={bins!r} must be 'tertile', 'equal_width', a whole number from 2, or ascending edges between bins")


def _quantiles(complexity: np.ndarray, shares: Any) -> np.ndarray:
    edges, distinct = np.quantile(complexity, shares), np.unique(complexity)
    return np.maximum(edges, distinct[1]) if len(distinct) > 1 else edges


def bin_names(edges: np.ndarray) -> list[str]:
    """Names of the bins between edges: easy, medium and hard for three bins, otherwise their numbers."""
    k = len(edges) + 1
    return list(THIRDS) if k == 3 else [f"bin {i + 1} of {k}" for i in range(k)]


def bin_numbers(complexity: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Find the bin of each query, from 0; queries of equal complexity share a bin, so bins may be of unequal size or empty.

    Args:
        complexity: Shape [n].
        edges: See :func:`inner_edges`.

    Returns:
        Shape [n], integers.

    Example:
        >>> bin_numbers(np.array([1.0, 2.0, 2.0, 5.0]), np.array([2.0, 4.0])).tolist()
        [0, 1, 1, 2]
    """
    return np.searchsorted(edges, complexity, side="right")


# ---------------------------------------------------------------------------------------------- tests by permutation


@dataclass(frozen=True)
class Tests:
    """The result of :func:`permutation_tests`; all p values come from permutations.

    Attributes:
        rho: Spearman's rank correlation of complexity and effectiveness, with mean ranks for ties; NaN if one does not vary.
        rho_low: Lower end of its interval (Bonett and Wright, 2000), which agrees with p; see
            :func:`~pyterrier_debias.core.statistics.rank_correlation_interval`.
        rho_high: Upper end of its interval.
        rho_p: Two-sided p value of the rank correlation.
        kruskal: Kruskal and Wallis' H over the bins, corrected for ties; NaN for fewer than two bins.
        kruskal_p: Share of permutations with an H at least as large.
        gap: Mean of the best bin less that of the worst.
        gap_p: Share of permutations with a gap at least as large.
        gap_floor: Mean gap over permutations, for comparison, since a gap is a range and never 0.
        worst: Number of the bin with the lowest mean; -1 for fewer than two bins.
        n: Number of queries.
    """

    __test__ = False  # pytest takes classes named Test... for test cases

    rho: float
    rho_low: float
    rho_high: float
    rho_p: float
    kruskal: float
    kruskal_p: float
    gap: float
    gap_p: float
    gap_floor: float
    worst: int
    n: int


def permutation_tests(
    values: np.ndarray,
    complexity: np.ndarray,
    bins: np.ndarray,
    *,
    strata: Sequence[Any] | None = None,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Tests:
    """Test rank correlation, Kruskal and Wallis' H and the gap between bins, by permuting effectiveness over queries.

    With several collections, ranks and permutations are made within each of them. These tests have no controls; for these, use
    :func:`pyterrier_debias.linguistic.formulas.slope.partial_slope`. The null hypothesis is that effectiveness and complexity are
    independent, so the tests also detect a difference in spread.

    Args:
        values: Shape [n]: effectiveness, no NaN.
        complexity: Shape [n], no NaN.
        bins: Shape [n]: number of each query's bin.
        strata: n labels of collections; None for a single collection.
        level: Coverage of the interval.
        resamples: Number of permutations.
        seed: Seed of the permutations.

    Returns:
        The statistics and p values.

    Raises:
        InputError: For a value that is NaN or infinite.

    Example:
        >>> x = np.arange(30.0)
        >>> found = permutation_tests(-x, x, bin_numbers(x, inner_edges(x, "tertile")))
        >>> round(found.rho, 3), found.worst, found.kruskal_p
        (-1.0, 2, 0.0001)
    """
    from scipy import stats

    y, x = np.asarray(values, dtype=float), np.asarray(complexity, dtype=float)
    check_finite("permutation_tests", "queries", values=y, complexity=x)
    n = len(y)
    codes = np.zeros(n, dtype=int) if strata is None else np.unique(np.asarray(strata, dtype=str), return_inverse=True)[1]
    places = [np.flatnonzero(codes == code) for code in range(codes.max(initial=-1) + 1)]
    ranks_y, ranks_x = np.zeros(n), np.zeros(n)
    for place in places:
        for ranks, own in ((ranks_y, y), (ranks_x, x)):
            ranks[place] = (stats.rankdata(own[place]) - (len(place) + 1) / 2) / len(place)
    member = bins[:, None] == np.unique(bins)
    counts = member.sum(axis=0)
    several, varied = member.shape[1] > 1, bool(ranks_y.any())
    size = np.sqrt((ranks_y @ ranks_y) * (ranks_x @ ranks_x))

    def statistics(drawn: np.ndarray, drawn_ranks: np.ndarray) -> np.ndarray:
        """Rank correlation, H and gap of each row."""
        rho = drawn_ranks @ ranks_x / size if size else np.full(len(drawn), np.nan)
        h = ((drawn_ranks @ member) ** 2 / counts).sum(axis=1) * (n - 1) / (ranks_y @ ranks_y) if varied else np.zeros(len(drawn))
        return np.column_stack([rho, h, np.ptp(drawn @ member / counts, axis=1)])

    observed = statistics(y[None], ranks_y[None])[0] if n else np.full(3, np.nan)
    if not several:
        observed[1:] = np.nan
    generator = np.random.default_rng(seed)
    extreme, floor, sizes = np.zeros(3), 0.0, [np.empty(0)]
    tolerance = 1e-9 * np.maximum(np.abs(observed), 1.0)
    block = at_once(500, n)
    for start in range(0, resamples if n else 0, block):
        order = np.repeat(np.arange(n)[None], min(block, resamples - start), axis=0)
        for place in places:
            order[:, place] = generator.permuted(order[:, place], axis=1)
        null = statistics(y[order], ranks_y[order])
        extreme += (np.abs(null) >= np.abs(observed) - tolerance).sum(axis=0)
        floor += float(null[:, 2].sum())
        sizes.append(np.abs(null[:, 0]))
    p = np.where(np.isnan(observed), np.nan, (1 + extreme) / (1 + resamples))
    means = y @ member / np.maximum(counts, 1)
    low, high = rank_correlation_interval(float(observed[0]), n - len(places) - 2, np.concatenate(sizes), level=level)
    return Tests(
        float(observed[0]), low, high, float(p[0]), float(observed[1]), float(p[1]), float(observed[2]), float(p[2]),
        floor / resamples if several else float("nan"), int(np.unique(bins)[np.argmin(means)]) if several else -1, n,
    )  # fmt: skip


# ---------------------------------------------------------------------------------------------- the curve


def smooth(
    values: np.ndarray,
    complexity: np.ndarray,
    at: np.ndarray,
    *,
    span: float = 2 / 3,
    level: float = 0.95,
    resamples: int = 999,
    seed: int = 0,
) -> np.ndarray:
    """Estimate mean effectiveness as a smooth function of complexity, with a bootstrap band.

    The curve consists of local lines (Cleveland's lowess without its robust steps): at each point, a line is fitted to the
    nearest ``span`` of the queries, weighted by (1 - d^3)^3 with d their distance; if they all have the same complexity, their
    mean is used. For the band, queries are drawn with replacement, while the neighbourhoods stay the same; the band covers each
    point, not the whole curve at once.

    Args:
        values: Shape [n], n >= 2.
        complexity: Shape [n].
        at: Shape [m]: the complexities at which to evaluate the curve.
        span: Share of the queries in a neighbourhood, in (0, 1].
        level: Coverage of the band at each point.
        resamples: Number of bootstrap samples; with 0 there is no band (NaN).
        seed: Seed of the bootstrap.

    Returns:
        Shape [3, m]: the curve, the lower and the upper end of its band.

    Raises:
        InputError: For a span outside (0, 1].

    Example:
        >>> x = np.linspace(0, 1, 50)
        >>> smooth(1 - x, x, np.array([0.0, 0.5]), resamples=9).round(3).tolist()
        [[1.0, 0.5], [1.0, 0.5], [1.0, 0.5]]
    """
    if not 0 < span <= 1:
        raise InputError(f"smooth: span={span!r} must be a number above 0, up to 1")
    y, x, at = (np.asarray(a, dtype=float) for a in (values, complexity, at))
    n = len(y)
    distance = x - at[:, None]
    nearest = max(2, int(span * n + 1e-10))
    reach = np.sort(np.abs(distance), axis=1)[:, nearest - 1 : nearest]
    scaled = np.abs(distance) / np.maximum(reach, 1e-300)
    kernel = np.where(reach > 0, np.where(scaled < 1, (1 - np.minimum(scaled, 1) ** 3) ** 3, 0.0), (distance == 0).astype(float))
    terms = np.stack([kernel, kernel * distance, kernel * distance**2, kernel * y, kernel * distance * y])

    def lines(weights: np.ndarray) -> np.ndarray:
        """Heights of the local lines for each row of weights of queries."""
        s0, s1, s2, t0, t1 = weights @ terms.transpose(0, 2, 1)
        determinant = s0 * s2 - s1**2
        sloped = determinant > 1e-10 * s0 * s2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(sloped, (s2 * t0 - s1 * t1) / np.where(sloped, determinant, 1.0), t0 / s0)

    curve = lines(np.ones((1, n)))[0]
    if not resamples:
        return np.stack([curve, np.full_like(curve, np.nan), np.full_like(curve, np.nan)])
    generator, block = np.random.default_rng(seed), at_once(resamples, n)
    sizes = (min(block, resamples - start) for start in range(0, resamples, block))
    drawn = [lines(generator.multinomial(n, np.full(n, 1 / n), size=size).astype(float)) for size in sizes]
    low, high = np.nanquantile(np.concatenate(drawn), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.stack([curve, low, high])
