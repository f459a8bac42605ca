"""Tests, intervals and corrections over per-query values.

Thin, seeded and vectorised wrappers of scipy and statsmodels with fixed conventions: differences are ``after - before``; if all
differences are zero, there is no evidence, and p is 1. Both libraries are imported when a function is called.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice

#: Numbers that resampling holds in memory at once: 32 MB in double precision.
CELLS = 4_000_000
#: Random numbers, of one byte each, that are kept for the next test of as many units; there may be two such tables.
_KEPT = 32_000_000

#: Below this corrected p a finding is called significant.
ALPHA = 0.05
#: The power at which an effect counts as one that would have been found.
POWER = 0.8
#: Of fewer units there is no interval: a test that flips the signs of so few could not reject at 5 %.
LEAST_UNITS = 6
#: Correlations that differ by less than this are treated as equal.
SAME_CORRELATION = 1e-12
#: Larger correlations count as this one, because Fisher's z of 1 is infinite.
_LARGEST = 1 - 1e-9


@dataclass(frozen=True)
class TestResult:
    """The result of a test.

    Attributes:
        statistic: The test's statistic.
        p: The p value, two-sided unless the function says otherwise.
        n: Number of units.
        method: The test's name.
    """

    __test__ = False  # pytest takes classes named Test... for test cases

    statistic: float
    p: float
    n: int
    method: str


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval.

    Attributes:
        estimate: The statistic of the sample.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage.
        n: Number of units.
    """

    estimate: float
    low: float
    high: float
    level: float
    n: int

    def within(self, least: float = 0.0, most: float = 1.0) -> Interval:
        """The interval cut to the range of its statistic: Student's interval of a few shares may go beyond 0 or 1.

        Args:
            least: The lowest value that the statistic can have.
            most: The highest value that the statistic can have.

        Returns:
            The interval with both ends in the range; ends that are NaN stay NaN.

        Example:
            >>> Interval(0.9, 0.7, 1.1, 0.95, 3).within()
            Interval(estimate=0.9, low=0.7, high=1.0, level=0.95, n=3)
        """
        return replace(self, low=float(np.clip(self.low, least, most)), high=float(np.clip(self.high, least, most)))

    def of_change_from(self, before: float, least: float = 0.0, most: float = 1.0) -> Interval:
        """The interval of a change, cut to what is possible: the mean after the change is in the range, as the mean before is.

        Args:
            before: The mean before the change.
            least: The lowest value that the mean can have.
            most: The highest value that the mean can have.

        Returns:
            The interval with both ends in the range of possible changes, which contains 0; ends that are NaN stay NaN.

        Example:
            >>> Interval(-0.1, -0.4, 0.4, 0.95, 10).of_change_from(1.0)
            Interval(estimate=-0.1, low=-0.4, high=0.0, level=0.95, n=10)
        """
        return self.within(min(least - before, 0.0), max(most - before, 0.0))

    @property
    def of_enough(self) -> Interval:
        """The interval if there are enough units for one; otherwise the estimate with ends that are NaN.

        Example:
            >>> Interval(0.9, 0.7, 1.1, 0.95, 5).of_enough
            Interval(estimate=0.9, low=nan, high=nan, level=0.95, n=5)
        """
        return self if self.n >= LEAST_UNITS else replace(self, low=float("nan"), high=float("nan"))


def differences(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """``after - before`` of paired values, checked (finite, of equal length); differences due to rounding are 0."""
    before, after = np.asarray(before, dtype=float), np.asarray(after, dtype=float)
    if before.shape != after.shape or before.ndim != 1:
        raise InputError(f"paired values must be two lists of equal length; got shapes {before.shape} and {after.shape}")
    if not (np.isfinite(before).all() and np.isfinite(after).all()):
        raise InputError("paired values hold NaN or infinity; leave out undefined pairs")
    return without_rounding(after - before)


def without_rounding(d: np.ndarray) -> np.ndarray:
    """Set differences that are due to rounding to 0: sums in a different order differ in their last bits.

    Args:
        d: Differences, of any shape.

    Returns:
        The differences, with 0 for those below 1e-12 times the sum of all, or times 1.

    Example:
        >>> without_rounding(np.array([0.1 + 0.2 - 0.3, 0.2]))
        array([0. , 0.2])
    """
    return np.where(np.abs(d) <= _tolerance(d), 0.0, d)


def paired_t(before: np.ndarray, after: np.ndarray) -> TestResult:
    """Paired t-test of equal means, two-sided.

    Args:
        before: Shape [n].
        after: Shape [n], the same units in the same order.

    Returns:
        The t statistic of ``after - before`` and its p; NaN for fewer than two units, t = 0 and p = 1 if every difference is
        zero, t infinite and p = 0 if all are equal and not zero.

    Raises:
        InputError: If lengths differ, or a value is NaN or infinite.
    """
    from scipy import stats

    d = differences(before, after)
    n = len(d)
    if n < 2:
        return TestResult(float("nan"), float("nan"), n, "paired t")
    if np.ptp(d) == 0:
        return TestResult(float(np.sign(d[0]) * np.inf) if d[0] else 0.0, 0.0 if d[0] else 1.0, n, "paired t")
    t = d.mean() / (d.std(ddof=1) / np.sqrt(n))
    return TestResult(float(t), float(2 * stats.t.sf(abs(t), n - 1)), n, "paired t")


def wilcoxon(before: np.ndarray, after: np.ndarray) -> TestResult:
    """Wilcoxon's signed-rank test, two-sided; zero differences are left out, as scipy does by default.

    Args:
        before: Shape [n].
        after: Shape [n].

    Returns:
        The statistic and p; p = 1 if every difference is zero.

    Raises:
        InputError: If lengths differ, or a value is NaN or infinite.
    """
    from scipy import stats

    d = differences(before, after)
    if not np.any(d):
        return TestResult(0.0, 1.0 if len(d) else float("nan"), len(d), "Wilcoxon")
    result = stats.wilcoxon(d)
    return TestResult(float(result.statistic), float(result.pvalue), len(d), "Wilcoxon")


def randomisation_test(
    before: np.ndarray,
    after: np.ndarray,
    *,
    clusters: Sequence[object] | np.ndarray | None = None,
    resamples: int = 10_000,
    seed: int = 0,
    block: int = 1_000,
) -> TestResult:
    """Paired randomisation test of the mean difference, two-sided: signs are flipped at random.

    The null hypothesis is that the two values of each unit could be exchanged, independently of the other units. This does not
    hold for queries that share documents: a document that moves one query moves the others. With ``clusters``, all units of a
    cluster flip together, and only clusters must be independent.

    All 2**n sign patterns are enumerated if there are no more than ``resamples`` of them; otherwise p is
    (1 + number at least as extreme) / (1 + resamples), which is valid for any number of resamples.

    Args:
        before: Shape [n].
        after: Shape [n].
        clusters: n labels of units that flip together, such as the article that a question is about; None flips each alone.
        resamples: The number of sign patterns.
        seed: Seed of the resamples.
        block: The largest number of sign patterns in memory at once; with more than 4,000 units it is lower. The resamples do
            not depend on it if it is a multiple of 4.

    Returns:
        The mean difference and p; ``n`` counts units, not clusters.

    Raises:
        InputError: If lengths differ, or a value is NaN or infinite.

    Example:
        >>> d = np.array([0.1, 0.2, 0.1, 0.3, 0.2, 0.1])
        >>> randomisation_test(np.zeros(6), d).p, randomisation_test(np.zeros(6), d, clusters=list("aabbcc")).p
        (0.03125, 0.25)
    """
    d = differences(before, after)
    units, mean = len(d), float(d.mean()) if len(d) else float("nan")
    if units == 0:
        return TestResult(float("nan"), float("nan"), 0, "paired randomisation")
    d, _ = sums_by_cluster(d, clusters)
    n = len(d)
    observed, tolerance = abs(d.sum()), _tolerance(d)
    count, exact = 0, _all_choices(n, 2, resamples)
    for signs in _choices(n, 2, resamples, seed, np.int8, block):
        count += int((np.abs(d.sum() - 2 * (signs @ d)) >= observed - tolerance).sum())
    if exact:
        return TestResult(mean, count / 2**n, units, "paired randomisation (exact)")
    return TestResult(mean, (1 + count) / (1 + resamples), units, "paired randomisation")


def sums_by_cluster(
    values: np.ndarray, clusters: Sequence[object] | np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Sums of values by cluster.

    Args:
        values: Shape [n, ...].
        clusters: n labels; None makes each unit a cluster.

    Returns:
        The sums, shape [C, ...], and the number of units in each cluster, shape [C]; clusters in the order in which they first
        occur.

    Raises:
        InputError: If the number of labels differs from that of the values, or a label is missing.

    Example:
        >>> sums, sizes = sums_by_cluster(np.array([1.0, 2.0, 4.0]), ["b", "a", "b"])
        >>> sums.tolist(), sizes.tolist()
        ([5.0, 2.0], [2.0, 1.0])
    """
    if clusters is None:
        return values, np.ones(len(values))
    labels = list(clusters)
    if len(labels) != len(values):
        raise InputError(f"clusters must hold one label for each unit; got {len(labels)} labels for {len(values)} units")
    missing = np.flatnonzero(pd.Series(labels, dtype=object).isna())
    if len(missing):  # None is equal to None, but NaN not to NaN: one cluster, or as many as there are
        raise InputError(
            f"clusters: label {missing[0] + 1} of {len(labels)} is missing; give each unit a label, or leave the unit out"
        )
    places: dict[object, int] = {}
    of = np.array([places.setdefault(label, len(places)) for label in labels], dtype=int)
    sums = np.zeros((len(places), *values.shape[1:]))
    np.add.at(sums, of, values)
    return sums, np.bincount(of, minlength=len(places)).astype(float)


def _tolerance(d: np.ndarray) -> float:
    """Values and sums that differ by no more are equal but for rounding."""
    return float(1e-12 * max(1.0, np.abs(d).sum()))


def exchange_test(
    values: np.ndarray,
    *,
    clusters: Sequence[object] | np.ndarray | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> TestResult:
    """Randomisation test of the first of several measurements of each unit against the mean of the others, two-sided.

    Under the null hypothesis, the measurements of a unit are exchangeable: any of them might have been the first. The test
    therefore draws for each unit which one is called the first. p is exact even if the mean of the others varies less than the
    first does, which a test that only flips signs ignores. With two measurements it is :func:`randomisation_test`.

    All m**n choices are enumerated if there are no more than ``resamples`` of them.

    Args:
        values: Shape [n, m], m >= 2: row i holds the m measurements of unit i.
        clusters: n labels of units for which the same measurement is called the first, such as the passage that questions are
            about, if measurement j of all of them was made on the same variant of it; None draws for each alone.
        resamples: The number of choices.
        seed: Seed of the resamples.

    Returns:
        The mean over units of (mean of the others - first), and p; ``n`` counts units, not clusters.

    Raises:
        InputError: If the shape is different, or a value is NaN or infinite.

    Example:
        >>> values = np.array([[0.9, 0.5, 0.6], [0.8, 0.4, 0.7], [0.9, 0.6, 0.3]])
        >>> round(exchange_test(values).p, 3), round(exchange_test(values, clusters=list("aab")).p, 3)
        (0.074, 0.222)
    """
    values = _measurements(values)
    units = len(values)
    if units == 0:
        return TestResult(float("nan"), float("nan"), 0, "exchange randomisation")
    d = _had_been_first(sums_by_cluster(values, clusters)[0])
    n, m = d.shape
    mean = float(d[:, 0].sum() / units)
    observed, tolerance = abs(d[:, 0].sum()), _tolerance(d)
    rows, count = np.arange(n), 0
    for choices in _choices(n, m, resamples, seed):
        count += int((np.abs(d[rows, choices].sum(axis=1)) >= observed - tolerance).sum())
    if _all_choices(n, m, resamples):
        return TestResult(mean, count / m**n, units, "exchange randomisation (exact)")
    return TestResult(mean, (1 + count) / (1 + resamples), units, "exchange randomisation")


def _measurements(values: np.ndarray) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.shape[1] < 2:
        raise InputError(f"measurements must be a table with at least two columns; got shape {values.shape}")
    if not np.isfinite(values).all():
        raise InputError("measurements hold NaN or infinity; leave out undefined units")
    return values


def _had_been_first(values: np.ndarray) -> np.ndarray:
    """[i, k]: the difference of unit i (mean of the others - first), had its measurement k been the first."""
    m = values.shape[1]
    return (values.sum(axis=1, keepdims=True) - m * values) / (m - 1)


def _all_choices(n: int, m: int, resamples: int) -> bool:
    """Whether all choices of one of m for each of n units are enumerated."""
    return n * np.log2(m) < 60 and m**n <= resamples


def _choices(n: int, m: int, resamples: int, seed: int, drawn: type = np.int64, block: int = 1_000) -> Iterator[np.ndarray]:
    """Which of m measurements of each unit is called the first, or which of m = 2 signs it has: tables of numbers below m, one
    row a draw; all where there are few."""
    if _all_choices(n, m, resamples):
        yield np.arange(m**n)[:, None] // m ** np.arange(n) % m
        return
    # Numpy draws small numbers four at a time and leaves the rest of four behind.
    step = 4 if drawn is np.int8 else 1
    yield from _random(n, m, resamples, seed, min(block, max(step, CELLS // n // step * step)), drawn)


def _random(n: int, m: int, resamples: int, seed: int, block: int, drawn: type) -> Iterable[np.ndarray]:
    """Numbers below m for n units, one row a resample. Tests and intervals of all measures of a system share them."""
    draw = _kept_draws if n * resamples <= _KEPT and m <= np.iinfo(np.int8).max else _draws
    return draw(n, m, resamples, seed, block, drawn)


def _draws(n: int, m: int, resamples: int, seed: int, block: int, drawn: type) -> Iterator[np.ndarray]:
    generator = np.random.default_rng(seed)
    for start in range(0, resamples, block):
        yield generator.integers(0, m, size=(min(block, resamples - start), n), dtype=drawn)


@lru_cache(maxsize=2)
def _kept_draws(*options: Any) -> tuple[np.ndarray, ...]:
    blocks = tuple(block.astype(np.int8, copy=False) for block in _draws(*options))
    for block in blocks:
        block.flags.writeable = False
    return blocks


def inverted_interval(
    values: np.ndarray,
    *,
    clusters: Sequence[object] | np.ndarray | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
    least: float = -np.inf,
    most: float = np.inf,
) -> Interval:
    """The interval of the means that a randomisation test does not reject; it never contradicts the p of the test.

    It contains 0 exactly if :func:`randomisation_test` (for differences) or :func:`exchange_test` (for measurements), with the
    same resamples and seed, has p above 1 - ``level``. A bootstrap of few values that are not 0 excludes 0 too often: over 50
    queries of which five change, and without any effect, a fifth of BCa's 95 % intervals exclude it.

    A mean mu is tested after it is subtracted from the changes. If some units do not change, it matters from which units mu is
    subtracted, and the interval covers both possibilities: equally from all units (a few large changes then stand for the rest),
    or only from those that change, n / changed times as much from each (the others could then not have changed). If all units
    change, both are the same.

    A draw is consistent with exactly the mu between two weighted means of the values, that of the units that it exchanges and
    that of the others. The ends are therefore order statistics of these means, and no search is needed.

    Args:
        values: Differences, shape [n]; or measurements, shape [n, m], of which the first is compared with the mean of the others.
        clusters: Labels of units that flip together, or that are exchanged together; see the tests.
        level: Nominal coverage.
        resamples: The number of sign patterns or choices; see the tests.
        seed: Seed of the resamples.
        least: The lowest difference that a unit can have, such as -1 for a measure in [0, 1].
        most: The highest difference that a unit can have.

    Returns:
        The mean and its interval, within ``least`` and ``most``. Both ends equal the estimate if nothing changes. If so few
        units change that the test cannot reject (at 95 %: fewer than six differences, or fewer than three units with four
        measurements each), only this range limits the mean: the ends are NaN if it is not given. NaN for fewer than two units.

    Raises:
        InputError: If a value is NaN, the shape is different, or the level is outside (0, 1).

    Example:
        >>> found = inverted_interval(np.array([0.1, 0.3, 0.2, 0.4, 0.1, 0.2, 0.0, 0.0]))
        >>> round(found.estimate, 4), round(found.low, 4), round(found.high, 4)
        (0.1625, 0.05, 0.3)

    References:
        Ernst, Permutation methods: a basis for exact inference, Statistical Science 19, 2004, section 3.

    When not to use it: for statistics other than a mean, or for single samples of values that no null hypothesis centres at 0;
    see :func:`bootstrap_interval`.
    """
    if not 0 < level < 1:
        raise InputError(f"an interval needs a level between 0 and 1, not {level}")
    values = np.asarray(values, dtype=float)
    of_units = len(values)
    if values.ndim == 1:
        d, m = differences(np.zeros(len(values)), values), 2
        d, size_of = sums_by_cluster(d, clusters)
        d = without_rounding(d)  # sums of a cluster are rounded, too
        table, changed = np.column_stack([d, -d]), d != 0
    else:
        values, size_of = sums_by_cluster(_measurements(values), clusters)
        table = _had_been_first(values)
        m, changed = values.shape[1], np.ptp(values, axis=1) > _tolerance(table)
        table[~changed] = 0.0
    n = len(table)
    estimate = float(table[:, 0].sum() / of_units) if n else float("nan")
    if n < 2:
        return Interval(estimate, float("nan"), float("nan"), level, of_units)
    if not changed.any():
        return Interval(estimate, estimate, estimate, level, of_units)
    drawn, exact = _choices(n, m, resamples, seed, np.int8 if values.ndim == 1 else np.int64), _all_choices(n, m, resamples)
    units, parts = np.arange(n), []
    sizes = np.column_stack([size_of, np.where(changed, size_of, 0.0)])  # whole numbers, whose sums are exact
    for choices in drawn:
        sums = table[:, 0].sum() - 2 * (choices @ table[:, 0]) if values.ndim == 1 else table[units, choices].sum(axis=1)
        parts.append(np.column_stack([sums, (choices == 0) @ sizes]))
    sums, of_all, of_changed = np.concatenate(parts).T
    total, tolerance = table[:, 0].sum(), _tolerance(table)
    above, below = (np.where(np.abs(x) <= tolerance, 0.0, x) for x in (total - sums, total + sums))
    size = len(sums)
    # The smallest count of agreeing resamples with which p is above 1 - level; without the sample itself where they are random.
    enough = int(np.floor(round(1 - level, 12) * (size if exact else size + 1) + 1e-9)) + exact
    ends = []
    for number, kept in ((of_units, of_all), (size_of[changed].sum(), of_changed)):
        gained = (number - kept) / (m - 1) - kept  # what a draw's sum gains with each unit of mu
        with np.errstate(divide="ignore", invalid="ignore"):
            first, second = above / (number + gained), below / (number - gained)
        every = np.isnan(first) | np.isnan(second)  # a draw that is the sample itself agrees with every mu
        lows = np.where(every, -np.inf, np.fmin(first, second))
        highs = np.where(every, np.inf, np.fmax(first, second))
        low, high = -np.inf, np.inf  # with so few resamples, the test rejects nothing
        if enough:
            low, high = np.partition(lows, enough - 1)[enough - 1], np.partition(highs, size - enough)[size - enough]
        ends.append(np.clip([low, high], least, most) * number / of_units)
    low, high = min(ends[0][0], ends[1][0]), max(ends[0][1], ends[1][1])
    if not np.isfinite([low, high]).all():
        low, high = float("nan"), float("nan")
    return Interval(estimate, float(low), float(high), level, of_units)


def bootstrap_interval(
    values: np.ndarray,
    statistic: Callable[..., np.ndarray] = np.mean,
    *,
    clusters: Sequence[object] | np.ndarray | None = None,
    level: float = 0.95,
    method: str = "bca",
    resamples: int = 9_999,
    seed: int = 0,
) -> Interval:
    """Bootstrap interval of a statistic over units.

    Quantiles further out than ``level`` are used, so that the interval of a mean is as wide as Student's: the spread of
    resamples of n units is too small by a factor of sqrt((n - 1) / n), and normal quantiles assume that it is known. Without
    this correction, intervals over ten queries cover 90 %, and over sixty 93 %. (Hesterberg, What teachers should know about the
    bootstrap, 2015: the expanded percentile interval.)

    Args:
        values: Shape [n] or [n, m]; rows are the units that are drawn.
        statistic: ``statistic(values, axis=...)``, vectorised along an axis; for two-dimensional values it gets the
            resampled columns as separate arguments.
        clusters: For the mean of values of shape [n]: n labels of units that are drawn together, such as the article that a
            question is about. A mean is then the ratio of the means of the clusters' sums and sizes. None draws each unit alone.
        level: Nominal coverage.
        method: ``'bca'`` (bias-corrected and accelerated) or ``'percentile'``. ``'bca'`` leaves out each unit in turn, which
            takes time proportional to the square of n, except for means.
        resamples: Number of resamples.
        seed: Seed of the resamples.

    Returns:
        The interval; both ends equal the estimate if all units agree, and are NaN for fewer than two units or clusters. ``n``
        counts units, not clusters.

    Raises:
        InputError: If the method is unknown, a value is NaN, the level is outside (0, 1), there are no resamples, or clusters are
            given for another statistic than a mean.
    """
    check_choice("bootstrap_interval", "method", method, ("bca", "percentile"))
    if not 0 < level < 1 or resamples < 1:
        raise InputError(
            f"a bootstrap needs a level between 0 and 1 and at least one resample, not level={level} and resamples={resamples}"
        )
    values = np.asarray(values, dtype=float)
    if np.isnan(values).any():
        raise InputError("values hold NaN; leave out undefined units")
    n = len(values)
    if clusters is not None:
        if statistic is not np.mean or values.ndim != 1:
            raise InputError("clusters are for the mean of one value for each unit; leave out statistic=")
        of = np.column_stack(sums_by_cluster(values, clusters))
        found = bootstrap_interval(of, _ratio_of_means, level=level, method=method, resamples=resamples, seed=seed)
        return replace(found, n=n)
    columns = (values,) if values.ndim == 1 else tuple(values.T)
    estimate = float(statistic(*columns, axis=-1)) if n else float("nan")
    if n < 2:
        return Interval(estimate, float("nan"), float("nan"), level, n)
    if np.ptp(values, axis=0).max() == 0:
        return Interval(estimate, estimate, estimate, level, n)
    from scipy import stats

    # The same units have the same interval in whatever order they come.
    columns = (np.sort(values),) if values.ndim == 1 else tuple(values[np.lexsort(values.T[::-1])].T)
    drawn_at = _expanded(level, n)
    closed = method == "bca" and statistic is np.mean and len(columns) == 1
    with np.errstate(invalid="ignore", divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        result = stats.bootstrap(
            columns,
            statistic,
            paired=len(columns) > 1,
            vectorized=True,
            axis=-1,
            confidence_level=drawn_at,
            method="BCa" if method == "bca" and not closed else "percentile",
            n_resamples=resamples,
            batch=max(1, CELLS // n),
            rng=np.random.default_rng(seed),
        )
    drawn = result.bootstrap_distribution
    low, high = _bca_of_mean(columns[0], drawn, drawn_at) if closed else result.confidence_interval
    if np.isnan([low, high]).any() and not np.isnan(drawn).any():  # resamples too much alike to say how they lean
        # Nothing lies between two infinite ones, such as ratios to a mean of 0.
        how: Literal["linear", "nearest"] = "linear" if np.isfinite(drawn).all() else "nearest"
        low, high = np.quantile(drawn, [(1 - drawn_at) / 2, (1 + drawn_at) / 2], method=how)
    return Interval(estimate, float(low), float(high), level, n)


def _ratio_of_means(sums: np.ndarray, sizes: np.ndarray, axis: int) -> np.ndarray:
    """The mean over the units of clusters."""
    return sums.mean(axis=axis) / sizes.mean(axis=axis)


def _expanded(level: float, n: int) -> float:
    """The level at which normal quantiles, of a spread that lacks sqrt((n - 1) / n), give Student's interval at ``level``."""
    from scipy import stats

    tail = stats.norm.sf(np.sqrt(n / (n - 1)) * stats.t.ppf((1 + level) / 2, n - 1))
    return 1 - 2 * max(float(tail), 1e-9)  # beyond that, as with two units, the ends are the least and greatest resamples anyway


def _bca_of_mean(values: np.ndarray, drawn: np.ndarray, level: float) -> np.ndarray:
    """The limits of Efron's BCa interval of a mean; leaving out unit i moves it by (mean - x_i) / (n - 1)."""
    from scipy.special import ndtr, ndtri

    influence = values - values.mean()
    with np.errstate(invalid="ignore", divide="ignore"):
        acceleration = (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
    below = (drawn < values.mean()).mean() / 2 + (drawn <= values.mean()).mean() / 2
    z = ndtri(below) + ndtri([(1 - level) / 2, (1 + level) / 2])
    ends = ndtr(ndtri(below) + z / (1 - acceleration * z))
    return np.quantile(drawn, ends) if np.isfinite(ends).all() else np.full(2, np.nan)


def two_level_interval(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], np.ndarray],
    *,
    resamples: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a statistic of means, over both training seeds and queries.

    Each draw takes seeds with replacement and queries with replacement, and all drawn seeds share the drawn queries, as in the
    experiment. With one seed, only queries are drawn. The interval has two errors in opposite directions: drawing from S seeds
    counts only (S - 1) / S of the variance between seeds, and variance that belongs neither to seeds nor to queries alone is
    counted up to three times.

    Args:
        values: Shape [seeds, queries, conditions].
        statistic: A function from means of shape [..., conditions] to values of shape [...].
        resamples: Number of resamples.
        level: Nominal coverage.
        seed: Seed of the resamples.

    Returns:
        The interval; ``n`` is the number of queries. NaN ends for fewer than two queries.
    """
    seeds, queries, _ = values.shape
    if queries < 2:
        return Interval(float(statistic(values.mean(axis=(0, 1)))), float("nan"), float("nan"), level, queries)
    generator = np.random.default_rng(seed)
    of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    of_queries = generator.multinomial(queries, np.full(queries, 1 / queries), size=resamples) / queries
    means = np.einsum("ds,sqc,dq->dc", of_seeds, values, of_queries, optimize=True)
    low, high = np.quantile(statistic(means), [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(statistic(values.mean(axis=(0, 1)))), float(low), float(high), level, queries)


def t_interval(values: np.ndarray, *, level: float = 0.95) -> Interval:
    """Student's interval of the mean over units.

    Args:
        values: Shape [n], no NaN.
        level: Nominal coverage.

    Returns:
        The interval; NaN ends for fewer than two units.
    """
    from scipy import stats

    values = np.asarray(values, dtype=float)
    n = len(values)
    mean = float(values.mean()) if n else float("nan")
    if n < 2:
        return Interval(mean, float("nan"), float("nan"), level, n)
    half = float(stats.t.ppf((1 + level) / 2, n - 1) * values.std(ddof=1) / np.sqrt(n))
    return Interval(mean, mean - half, mean + half, level, n)


def equivalence_test(before: np.ndarray, after: np.ndarray, margin: float) -> TestResult:
    """Two one-sided paired t-tests (TOST): is the mean difference inside (-margin, margin)?

    Args:
        before: Shape [n].
        after: Shape [n].
        margin: The largest difference that does not matter, positive, in the unit of the values.

    Returns:
        The statistic of the less significant side and its one-sided p: a small p shows equivalence.

    Raises:
        InputError: If the margin is not positive, lengths differ, or a value is NaN or infinite.
    """
    if not margin > 0:
        raise InputError(f"the margin of an equivalence test must be positive, not {margin}")
    d = differences(before, after)
    n = len(d)
    if n < 2:
        return TestResult(float("nan"), float("nan"), n, "TOST")
    if np.ptp(d) == 0:
        inside = abs(d[0]) < margin
        return TestResult(np.inf if inside else -np.inf, 0.0 if inside else 1.0, n, "TOST")
    from statsmodels.stats.weightstats import DescrStatsW

    p, (t_low, p_low, _), (t_high, _, _) = DescrStatsW(d).ttost_mean(-margin, margin)
    return TestResult(float(t_low if p == p_low else t_high), float(p), n, "TOST")


def detectable_effect(interval: Interval, *, tests: int = 1, power: float = POWER, correlation: bool = False) -> float:
    """The smallest effect that a two-sided test would find, computed from the width of an interval.

    Half the width of the interval is a quantile times the standard error. The test finds an effect whose distance from 0, in
    standard errors, is the sum of the quantiles of its level and of its power. The level is ``ALPHA`` divided by the number of
    tests that are corrected together: Holm's method requires it of the smallest p, and no more of any test.

    Args:
        interval: An interval of the tested figure, with its level and n.
        tests: The number of tests that are corrected together.
        power: The probability of finding the effect.
        correlation: Whether the figure is a correlation. Its error is then that of its inverse hyperbolic tangent (Fisher's z),
            which is about the same for correlations of any size, and no effect is above 1.

    Returns:
        The absolute value of the effect, in the figure's unit; NaN if the interval is not defined.

    Raises:
        InputError: If the power is outside (0, 1), or there is no test.

    Example:
        >>> values = np.random.default_rng(0).normal(0.1, 1.0, 100)
        >>> round(detectable_effect(t_interval(values)), 2)
        0.27

    References:
        Cohen, Statistical power analysis for the behavioral sciences, 1988, chapter 2; Bloom, Minimum detectable effects,
        Evaluation Review 19, 1995.

    When not to use it: as the power to find the observed effect; that is only another form of p.
    """
    from scipy import stats

    if not 0 < power < 1 or tests < 1:
        raise InputError(f"a detectable effect needs a power between 0 and 1 and at least one test, not {power} and {tests}")
    low, estimate, high = interval.low, interval.estimate, interval.high
    if correlation:
        low, estimate, high = np.arctanh(np.clip([low, estimate, high], -_LARGEST, _LARGEST)).tolist()
    half = (high - low) / 2
    if 0 in (low, high):  # it may have been cut there (Interval.of_change_from); the other end tells the error
        half = max(half, high - estimate, estimate - low)
    if interval.n < 2 or not np.isfinite(half):
        return float("nan")
    quantiles = stats.t.ppf([(1 + interval.level) / 2, 1 - ALPHA / 2 / tests, power], interval.n - 1)
    found = half / quantiles[0] * (quantiles[1] + quantiles[2])
    return float(np.tanh(found) if correlation else found)


def units_needed(n: int, detectable: float, wanted: float, *, correlation: bool = False) -> float:
    """How many units a test needs to find a smaller effect: intervals narrow with the root of their number.

    Args:
        n: The number of units of a test.
        detectable: The smallest effect that it finds; see :func:`detectable_effect`.
        wanted: The effect to be found, above 0.
        correlation: Whether both are correlations; then it is the interval of Fisher's z that narrows.

    Returns:
        The number, not rounded.

    Example:
        >>> units_needed(50, 0.4, 0.1), round(units_needed(50, 0.4, 0.1, correlation=True))
        (800.0, 891)
    """
    if correlation:
        detectable, wanted = np.arctanh(np.clip([detectable, wanted], -_LARGEST, _LARGEST)).tolist()
    return n * (detectable / wanted) ** 2


def correct(p: np.ndarray, method: str = "holm") -> np.ndarray:
    """Correct p values for multiple tests.

    Args:
        p: Shape [n]; NaN (not tested) stays NaN and is not counted.
        method: ``'holm'``, ``'bonferroni'`` (family-wise error) or ``'fdr_bh'`` (Benjamini and Hochberg's false discovery rate).

    Returns:
        Corrected p values, shape [n].

    Raises:
        InputError: If the method is unknown or a value is outside [0, 1].
    """
    check_choice("correct", "method", method, ("holm", "bonferroni", "fdr_bh"))
    p = np.asarray(p, dtype=float)
    tested = ~np.isnan(p)
    corrected = np.full(p.shape, np.nan)
    if not tested.any():
        return corrected
    if (p[tested] < 0).any() or (p[tested] > 1).any():
        raise InputError("p values must lie in [0, 1]")
    if method == "fdr_bh":
        from scipy import stats

        corrected[tested] = stats.false_discovery_control(p[tested])
        return corrected
    # statsmodels collects garbage at every call, which takes longer than many an audit's tests.
    n, order = int(tested.sum()), np.argsort(p[tested], kind="stable")
    factors = np.arange(n, 0, -1) if method == "holm" else np.full(n, n)
    adjusted = np.minimum(np.maximum.accumulate(p[tested][order] * factors), 1.0)
    corrected[np.flatnonzero(tested)[order]] = adjusted
    return corrected


def rank_correlation_interval(rho: float, freedom: int, permuted: np.ndarray, *, level: float = 0.95) -> tuple[float, float]:
    """The interval of Spearman's rank correlation; it contains 0 exactly if a permutation test does not reject.

    Usually it is Bonett and Wright's, atanh(rho) -/+ z sqrt((1 + rho^2 / 2) / (n - 3)) on Fisher's scale. This assumes a normal
    distribution, and the test does not, so that in one to three samples in a hundred one excludes 0 and the other does not
    reject. In this case, the width comes from the test: with q, the size of a correlation beyond which the test rejects, the
    interval is atanh(rho) -/+ atanh(q) sqrt((1 + rho^2 / 2) / (1 + q^2 / 2)). As atanh(x) / sqrt(1 + x^2 / 2) rises with x, it
    contains 0 exactly if the size of rho is at most q.

    Args:
        rho: The correlation.
        freedom: The number of units less that of strata within which ranks are centred, less 2; for one stratum n - 3.
        permuted: Sizes of the correlation in permuted samples; if there are too few to reject anything, they are not used.
        level: Coverage of the interval, 1 minus the level of the test.

    Returns:
        Both ends. Both are rho if it is 1 or -1. NaN if rho is NaN, for fewer than two degrees of freedom, or if no interval
        agrees with the test.

    Example:
        >>> sizes = np.linspace(0, 0.5, 99)  # beyond .4796 the test rejects
        >>> [round(end, 3) for end in rank_correlation_interval(0.475, 17, sizes)]
        [-0.005, 0.777]
        >>> [round(end, 3) for end in rank_correlation_interval(0.49, 17, sizes)]
        [0.033, 0.778]

    References:
        Bonett and Wright, Sample size requirements for estimating Pearson, Kendall and Spearman correlations, Psychometrika 65,
        2000.
    """
    from scipy import stats

    if not np.isfinite(rho) or (freedom < 2 and abs(rho) <= 1 - SAME_CORRELATION):
        return float("nan"), float("nan")

    def ends(half: float) -> tuple[float, float]:
        """The ends of an interval with this half width on Fisher's scale."""
        low, high = (float(np.tanh(np.arctanh(rho) + side * half)) for side in (-1, 1))
        return low, high

    low = high = rho
    if abs(rho) <= 1 - SAME_CORRELATION:
        low, high = ends(stats.norm.ppf((1 + level) / 2) * np.sqrt((1 + rho**2 / 2) / freedom))
    # The test rejects if at most this many permuted samples are as extreme.
    most = int(np.floor(round(1 - level, 12) * (len(permuted) + 1) + 1e-9)) - 1
    if most < 0:
        return low, high
    beyond = float(np.partition(permuted, len(permuted) - 1 - most)[len(permuted) - 1 - most])
    rejects = beyond < abs(rho) - SAME_CORRELATION
    if rejects == (low > 0 or high < 0):
        return low, high
    if abs(rho) > 1 - SAME_CORRELATION or not 0 < beyond < 1:
        return float("nan"), float("nan")
    low, high = ends(np.arctanh(beyond) * np.sqrt((1 + rho**2 / 2) / (1 + beyond**2 / 2)))
    return (low, high) if rejects else (min(low, 0.0), max(high, 0.0))


def binomial_interval(successes: int, n: int, level: float = 0.99) -> Interval:
    """Exact (Clopper-Pearson) interval of a proportion.

    Args:
        successes: The number of successes.
        n: The number of trials.
        level: Coverage.

    Returns:
        The share and its interval.
    """
    from scipy import stats

    low, high = stats.binomtest(successes, n).proportion_ci(level, method="exact")
    return Interval(successes / n, float(low), float(high), level, n)


def effective_number(weights: np.ndarray) -> float:
    """The effective number of values: how many of equal weight count as much as these, (sum w)^2 / sum w^2.

    Args:
        weights: Shape [n], none negative.

    Returns:
        A number from 1 (a single weight is not 0) to n (all are equal); 0 if all are 0.

    Example:
        >>> effective_number(np.array([1.0, 1.0, 1.0, 1.0])), effective_number(np.array([5.0, 0.0, 0.0, 0.0]))
        (4.0, 1.0)

    References:
        Kish, Survey Sampling, 1965.
    """
    weights = np.asarray(weights, dtype=float)
    largest = weights.max(initial=0.0)
    if largest == 0:
        return 0.0
    weights = weights / largest  # squares of tiny weights would be 0
    return float(weights.sum() ** 2 / (weights**2).sum())


def p_from_null(observed: float, null: np.ndarray, *, alternative: str = "greater") -> float:
    """Monte Carlo p value of a statistic, given values drawn under the null hypothesis.

    Args:
        observed: The statistic.
        null: Shape [resamples].
        alternative: ``'greater'``, ``'less'`` or ``'two-sided'`` (distance from the null's mean).

    Returns:
        (1 + number at least as extreme) / (1 + resamples); NaN resamples count as extreme. NaN if the statistic is NaN.

    Raises:
        InputError: If the alternative is unknown.
    """
    check_choice("p_from_null", "alternative", alternative, ("greater", "less", "two-sided"))
    null = np.asarray(null, dtype=float)
    if np.isnan(observed):
        return float("nan")
    undefined = np.isnan(null)
    if undefined.all():
        return 1.0
    if alternative == "two-sided":
        centre = null[~undefined].mean()
        observed, null = abs(observed - centre), np.abs(null - centre)
    elif alternative == "less":
        observed, null = -observed, -null
    return float((1 + (undefined | (null >= observed - 1e-12)).sum()) / (1 + len(null)))
