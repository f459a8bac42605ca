"""The slope of a system's effectiveness over the complexity of queries, given other explanations, with a test.

Pure functions on arrays. The model is y = b x + Z c + e: y is the effectiveness of a query, x its complexity, Z a constant and
the controls. By the theorem of Frisch, Waugh and Lovell, b = x'My / x'Mx with M the projection that removes Z. The test permutes
the residuals My (Freedman and Lane, 1983); without controls, this permutes complexity over queries. Each permuted slope is
divided by its own standard error, which allows for residuals whose spread depends on complexity (MacKinnon and White's HC3, 1985;
DiCiccio and Romano, 2017), because the effectiveness of complex queries may vary more, or less, than that of simple ones without
being lower.

If a few queries are very complex, this standard error is not enough: a permutation moves the widely spread residuals of complex
queries to simple ones, which hardly affect the slope. A second null distribution therefore keeps every residual at its query and
flips signs at random (the wild bootstrap of the restricted model; Davidson and Flachaire, 2008), and p is the larger of the two.
With exchangeable residuals, it is never below the p of the permutations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.statistics import CELLS, Interval, effective_number

#: What the controls leave of a sum of squares counts as 0 if it is below this share of the sum.
_NOTHING = 1e-10
#: A slope below this share of its largest possible size is 0 up to rounding.
_ROUNDING = 1e-12
#: Five values have 16 patterns of signs (a pattern and its opposite are one), too few to reject at 0.05 by signs alone.
_DECISIVE = 6


def at_once(block: int, n: int) -> int:
    """The number of permutations of n values to draw at once, so that memory does not grow with n.

    Args:
        block: The requested number.
        n: Number of values in each permutation.

    Returns:
        At least 1.
    """
    return max(1, min(block, CELLS // max(n, 1)))


@dataclass(frozen=True, eq=False)
class Slope:
    """The slope of effectiveness over complexity, with its test.

    Attributes:
        slope: Change of effectiveness with one unit of complexity at equal controls.
        low: Lower end of the slope's interval: the slope less its standard error (HC3) times the t beyond which the test rejects,
            so that the interval contains 0 exactly if p is above 1 - ``level``. NaN with too few resamples to reject.
        high: Upper end of the slope's interval.
        p: Two-sided p value by permutation, and between queries also by flipping signs: the larger of both; 1 if effectiveness
            does not vary, NaN if there is no slope.
        t: The slope divided by its standard error.
        n: Number of queries.
        sd: Standard deviation of complexity over the queries (ddof 0).
        share: Share of the variance of effectiveness that complexity explains beyond the controls: the gain of R squared.
        share_low: Lower end of the share's interval, converted from that of the slope; 0 if the slope's interval contains 0.
        share_high: Upper end of the share's interval.
        share_floor: The share to expect by chance alone: its mean over permutations.
        influence: Shape [n]: a value for each query. Their mean is the slope, and their standard error nearly that of the slope
            (HC3), so that the slopes of two systems over the same queries can be compared by a paired test.
        effective_n: How many queries (or needs) decide the slope: Kish's effective number, (sum w)^2 / sum w^2, where w is the
            square of what the controls leave of a query's complexity. It is n if these squares are equal, and 1 if a single
            query differs from the others.
        level: Coverage of the intervals.
    """

    slope: float
    low: float
    high: float
    p: float
    t: float
    n: int
    sd: float
    share: float
    share_low: float
    share_high: float
    share_floor: float
    influence: np.ndarray
    effective_n: float
    level: float = 0.95

    @property
    def caution(self) -> str:
        """A warning sentence if fewer than six queries, and fewer than a quarter of them, decide the slope; otherwise empty."""
        if not self.effective_n < min(_DECISIVE, self.n / 4):
            return ""
        return (
            f"About {self.effective_n:.0f} of {self.n} queries decide the slope, because their complexity is far from that of "
            f"the others; with so few, a slope can seldom be distinguished from chance."
        )

    @property
    def per_sd(self) -> Interval:
        """The slope and its interval for a change of complexity by one standard deviation instead of one unit."""
        return Interval(self.slope * self.sd, self.low * self.sd, self.high * self.sd, self.level, self.n)


def partial_slope(
    values: np.ndarray,
    complexity: np.ndarray,
    controls: np.ndarray | None = None,
    *,
    strata: Sequence[object] | None = None,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
    block: int = 500,
) -> Slope:
    """Regress effectiveness on complexity and controls, and test the slope by permutation and by flipping signs.

    The resamples depend on the order of the queries: for a reproducible p, sort them by an identifier.

    Args:
        values: Shape [n]: effectiveness.
        complexity: Shape [n].
        controls: Shape [n, k]: what else may explain effectiveness, without a constant; see :func:`design`. Columns that are
            linear combinations of others are left out.
        strata: n labels, such as the collection of each query: each has its own level, and permutations stay within it.
        level: Coverage of the intervals.
        resamples: Number of permutations, and of patterns of signs.
        seed: Seed of both.
        block: Largest number of draws in memory at once; it is lower for many queries
            (:data:`~pyterrier_debias.core.statistics.CELLS`).

    Returns:
        The slope. All figures are NaN if complexity does not vary given the controls, or if the number of queries exceeds that of
        the model's coefficients by less than two.

    Raises:
        InputError: For unequal lengths or NaN.

    Example:
        >>> x = np.arange(20.0)
        >>> found = partial_slope(1 - 0.02 * x + 0.01 * np.cos(x), x)
        >>> round(found.slope, 3), round(found.share, 2), found.p < 0.01
        (-0.02, 1.0, True)

    References:
        DiCiccio and Romano, Robust permutation tests for correlation and regression coefficients, JASA 112, 2017. Davidson and
        Flachaire, The wild bootstrap, tamed at last, Journal of Econometrics 146, 2008.

    When not to use it: if only two or three queries are complex, since flipping their signs gives too few slopes to reject; to
    show that complexity is the *cause*, since complex queries may also be the ones with difficult needs. To find out, reword
    queries for the same needs (:mod:`pyterrier_debias.linguistic.data.rewrites`).
    """
    y, x = np.asarray(values, dtype=float), np.asarray(complexity, dtype=float)
    n = len(y)
    z = _nuisance(n, controls, strata)
    if x.shape != (n,) or y.shape != (n,) or len(z) != n:
        raise InputError(
            f"partial_slope: values, complexity and controls must have one entry per query; got shapes {y.shape} and {x.shape}, "
            f"and {len(z)} rows of controls"
        )
    check_finite("partial_slope", "queries", values=y, complexity=x, controls=z)
    q = _basis(z)
    x_left, left = x - q @ (q.T @ x), y - q @ (q.T @ y)
    sxx, total = x_left @ x_left, ((y - y.mean()) ** 2).sum() if n else 0.0
    effective_n = effective_number(x_left**2)
    df = n - q.shape[1] - 1
    if df < 2 or sxx <= max(_NOTHING * ((x - x.mean()) ** 2).sum(), _NOTHING**2 * (x @ x)):
        sd = float(x.std()) if n else float("nan")
        return Slope(*(float("nan"),) * 5, n, sd, *(float("nan"),) * 4, np.full(n, np.nan), float("nan"), level)
    # If the controls explain everything, rounding still leaves something.
    if left @ left <= _NOTHING * max(total, y @ y):
        zero = np.zeros(n)
        return Slope(0.0, 0.0, 0.0, 1.0, 0.0, n, float(x.std()), 0.0, 0.0, 0.0, 0.0, zero, effective_n, level)

    leverage = (q**2).sum(axis=1) + x_left**2 / sxx
    # A query that alone determines a coefficient has no residual, and says nothing about the spread.
    weights = np.where(leverage < 1 - 1e-9, x_left**2 / np.maximum(1 - leverage, 1e-9) ** 2, 0.0) / sxx**2

    unit = np.sqrt(left @ left / sxx)

    def fitted(residuals: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slopes, their t, and shares of what the controls leave; one row of residuals per permutation."""
        own = residuals - (residuals @ q) @ q.T
        slopes = own @ x_left / sxx
        variances = (own - slopes[:, None] * x_left) ** 2 @ weights
        shares = slopes**2 * sxx / np.maximum((own**2).sum(axis=1), _NOTHING * (left @ left))
        with np.errstate(divide="ignore", invalid="ignore"):
            t = np.where(np.abs(slopes) > _ROUNDING * unit, slopes / np.sqrt(variances), 0.0)
        return slopes, t, shares

    slope, t, partial = (float(found[0]) for found in fitted(left[None]))
    generator, flipper = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    nulls: list[np.ndarray] = []
    flipped: list[np.ndarray] = []
    places = [np.flatnonzero(codes == stratum) for codes in [_codes(strata, n)] for stratum in range(codes.max() + 1)]
    floor = 0.0
    block = at_once(block, n)
    for start in range(0, resamples, block):
        permuted = np.repeat(left[None], min(block, resamples - start), axis=0)
        for place in places:
            permuted[:, place] = generator.permuted(permuted[:, place], axis=1)
        _, null, shares = fitted(permuted)
        nulls.append(np.abs(null))
        floor += float(shares.sum())
        signs = flipper.integers(0, 2, size=permuted.shape, dtype=np.int8)
        flipped.append(np.abs(fitted(np.where(signs == 1, left, -left))[1]))
    # The interval and p come from the null distribution that rejects less.
    p, widest = np.max([_against(t, np.concatenate(null), level) for null in (nulls, flipped)], axis=0).tolist()
    error = float(np.sqrt((left - slope * x_left) ** 2 @ weights))
    low, high = _ends(slope, error, widest, p, level)
    # Converts a share of what the controls leave to a share of the whole variance.
    scale = float(left @ left / total)
    ends = sorted((low**2, high**2))
    squared = [0.0 if low <= 0 <= high else ends[0], ends[1]]
    share_low, share_high = (float(min(end * sxx / (left @ left), 1.0)) * scale for end in squared)
    own = n * np.sqrt(weights) * np.sign(x_left) * (left - slope * x_left)
    influence = slope + own - own.mean()
    return Slope(
        slope, low, high, p, t, n, float(x.std()), partial * scale, share_low, share_high,
        floor / resamples * scale, influence, effective_n, level,
    )  # fmt: skip


def within_slope(
    values: np.ndarray,
    complexity: np.ndarray,
    *,
    level: float = 0.95,
    resamples: int = 9_999,
    seed: int = 0,
) -> Slope:
    """Compute the slope of effectiveness over complexity within needs, each of which was asked in several wordings.

    y_qv - mean_v y_qv = b (x_qv - mean_v x_qv) + e_qv over needs q and wordings v: this removes everything that is constant for a
    need (its difficulty, its relevant documents). Under the null hypothesis, the wordings of a need are exchangeable, so the test
    permutes effectiveness within needs; slopes are divided by a standard error that is clustered by need. The permutations
    depend on the order of the needs: for a reproducible p, sort them by an identifier.

    When not to use it: to show that it is *complexity* that matters. A small p says that wordings differ, and how quality changes
    with their complexity; a wording that is worse for another reason, such as a missing word, gives a slope as well.

    Args:
        values: Shape [n, m]: effectiveness of n needs in m wordings, m >= 2.
        complexity: Shape [n, m].
        level: Coverage of the interval.
        resamples: Number of permutations.
        seed: Seed of the permutations.

    Returns:
        The slope; ``sd`` is the standard deviation of the first wording's complexity, ``share`` is the share of the variance
        within needs, without an interval, and ``influence`` has one value per need. All figures are NaN if complexity does not
        vary within needs or there are fewer than three needs.

    Raises:
        InputError: For another shape or NaN.

    Example:
        >>> complexity = np.array([[0.0, 1.0], [0.2, 1.0], [0.1, 0.7], [0.3, 1.4], [0.0, 0.6], [0.1, 1.1]])
        >>> difficulty = np.array([[0.1], [0.5], [0.9], [0.3], [0.7], [0.2]])
        >>> round(within_slope(difficulty - 0.1 * complexity, complexity).slope, 3)
        -0.1
    """
    y, x = np.asarray(values, dtype=float), np.asarray(complexity, dtype=float)
    if y.ndim != 2 or y.shape != x.shape or y.shape[1] < 2:
        raise InputError(
            f"within_slope: values and complexity must both have a row per need and at least two columns (wordings); got shapes "
            f"{y.shape} and {x.shape}"
        )
    check_finite("within_slope", "needs", values=y, complexity=x)
    n = len(y)
    sd = float(x[:, 0].std()) if n else float("nan")
    x_left, left = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    sxx, total = (x_left**2).sum(), (left**2).sum()
    if n < 3 or sxx <= _NOTHING * max((x**2).sum(), 1e-300):
        return Slope(*(float("nan"),) * 5, n, sd, *(float("nan"),) * 4, np.full(n, np.nan), float("nan"), level)
    squares = (x_left**2).sum(axis=1)
    effective_n = effective_number(squares)
    if total <= _NOTHING * max((y**2).sum(), 1e-300):
        return Slope(0.0, 0.0, 0.0, 1.0, 0.0, n, sd, 0.0, float("nan"), float("nan"), 0.0, np.zeros(n), effective_n, level)

    def fitted(own: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Slopes, their standard errors, and shares; one table of needs and wordings per permutation."""
        products = np.einsum("bqv,qv->bq", own, x_left)
        slopes = products.sum(axis=1) / sxx
        own_errors = products - slopes[:, None] * squares
        return slopes, np.sqrt((own_errors**2).sum(axis=1) * n / (n - 1)) / sxx, slopes**2 * sxx / total

    unit = np.sqrt(total / sxx)

    def ratio(slopes: np.ndarray, errors: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(np.abs(slopes) > _ROUNDING * unit, slopes / errors, 0.0)

    slopes, errors, shares = fitted(left[None])
    slope, error, t = float(slopes[0]), float(errors[0]), float(ratio(slopes, errors)[0])
    generator = np.random.default_rng(seed)
    nulls: list[np.ndarray] = []
    floor = 0.0
    block = at_once(500, left.size)
    for start in range(0, resamples, block):
        permuted = generator.permuted(np.repeat(left[None], min(block, resamples - start), axis=0), axis=2)
        null, null_errors, null_shares = fitted(permuted)
        nulls.append(np.abs(ratio(null, null_errors)))
        floor += float(null_shares.sum())
    p, widest = _against(t, np.concatenate(nulls), level)
    low, high = _ends(slope, error, widest, p, level)
    share = float(shares[0])
    influence = slope + n * ((left - slope * x_left) * x_left).sum(axis=1) / sxx
    return Slope(
        slope, low, high, p, t, n, sd, share, float("nan"), float("nan"),
        floor / resamples, influence, effective_n, level,
    )  # fmt: skip


def _against(t: float, null: np.ndarray, level: float) -> tuple[float, float]:
    """The p of a t among the absolute t values of permutations, and the largest t that would not be rejected.

    The interval of the slope plus and minus that many standard errors contains 0 exactly if p is above 1 - level. Student's
    quantile would ignore that few complex queries decide the slope. NaN with too few permutations to reject at that level.
    """
    resamples = len(null)
    p = (1 + int((null >= abs(t) * (1 - 1e-9)).sum())) / (1 + resamples)
    enough = int(np.floor(round(1 - level, 12) * (1 + resamples) + 1e-9))
    widest = float(np.partition(null, resamples - enough)[resamples - enough]) if enough else float("nan")
    return p, widest if np.isfinite(widest) else float("nan")


def _ends(slope: float, error: float, widest: float, p: float, level: float) -> tuple[float, float]:
    """The ends of a slope's interval; NaN if the residuals say nothing about its spread, though other slopes are as likely."""
    if not error > 0:
        return (float("nan"), float("nan")) if p > 1 - level and slope else (slope, slope)
    low, high = slope - widest * error, slope + widest * error
    # Rounding must not exclude a 0 that the test does not reject.
    return (min(low, 0.0), max(high, 0.0)) if p > 1 - level else (low, high)


def design(frame: pd.DataFrame, controls: Sequence[str]) -> np.ndarray:
    """Convert controls to numbers: numeric columns stay the same, others become one column per level.

    Args:
        frame: A frame with n rows.
        controls: Names of columns. Missing values in a column of names form a level of their own; a level with only one query
            is left out, since it would remove that query from the regression.

    Returns:
        Shape [n, k]; NaN if a number is missing.

    Raises:
        InputError: For an unknown column.

    Example:
        >>> design(pd.DataFrame({"length": [3, 5, 4, 4], "type": ["who", "who", "what", "what"]}), ["length", "type"]).tolist()
        [[3.0, 0.0, 1.0], [5.0, 0.0, 1.0], [4.0, 1.0, 0.0], [4.0, 1.0, 0.0]]
    """
    missing = [column for column in controls if column not in frame.columns]
    if missing:
        raise InputError(
            f"design: control {missing[0]!r} is not a column (there are {', '.join(map(str, frame.columns))}); join it to the "
            f"topics first"
        )
    columns = [np.empty((len(frame), 0))]
    for name in controls:
        column = frame[name]
        if pd.api.types.is_numeric_dtype(column.dtype):
            columns.append(column.to_numpy(dtype=float, na_value=np.nan)[:, None])
        else:
            columns.append(_levels(column.astype(object).where(column.notna(), "").astype(str).to_numpy(dtype=object)))
    return np.concatenate(columns, axis=1)


def _levels(labels: np.ndarray) -> np.ndarray:
    """One column of 0 and 1 for each level with at least two queries, in the order of their names."""
    names, codes, counts = np.unique(labels.astype(str), return_inverse=True, return_counts=True)
    return (codes[:, None] == np.arange(len(names))[counts > 1]).astype(float)


def _codes(strata: Sequence[object] | None, n: int) -> np.ndarray:
    return np.zeros(n, dtype=int) if strata is None else np.unique(np.asarray(strata, dtype=str), return_inverse=True)[1]


def _nuisance(n: int, controls: np.ndarray | None, strata: Sequence[object] | None) -> np.ndarray:
    """A constant, the strata's levels, and the controls."""
    columns = [np.ones((n, 1))]
    if strata is not None:
        columns.append(_levels(np.asarray(strata, dtype=object)))
    if controls is not None and np.size(controls):
        controls = np.asarray(controls, dtype=float)
        columns.append(controls[:, None] if controls.ndim == 1 else controls)
    if len({len(column) for column in columns}) > 1:
        raise InputError(
            f"partial_slope: values, strata and controls must have one entry per query; got lengths {[len(c) for c in columns]}"
        )
    return np.concatenate(columns, axis=1)


def check_finite(who: str, rows: str, **given: np.ndarray) -> None:
    """Refuse NaN and infinite numbers.

    Args:
        who: The function or stage that the error names.
        rows: A plural noun for what a row is: queries, for example.
        given: Arrays of numbers, by the name that the error uses.

    Raises:
        InputError: For the first row with a value that is not finite.
    """
    for name, numbers in given.items():
        bad = np.argwhere(~np.isfinite(numbers))
        if len(bad):
            value = numbers[tuple(bad[0])]
            raise InputError(f"{who}: {name} at row {bad[0][0]} is {value}, not finite; leave out {rows} without a finite value")


def _basis(z: np.ndarray) -> np.ndarray:
    """Orthonormal columns with the same span as those of z, whose scales may differ widely."""
    scale = np.abs(z).max(axis=0, initial=0.0)
    u, s, _ = np.linalg.svd(z[:, scale > 0] / scale[scale > 0], full_matrices=False)
    return u[:, s > 1e-9 * max(s.max(initial=0.0), 1e-300)]
