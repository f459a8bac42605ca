"""How often do tests of a slope raise false alarms, and detect a slope, if complexity is skewed and residuals are uneven?

    python benchmarks/slope.py

draws complexities and residuals without a slope (and, if all residuals have the same spread, also with a slope of ``--slopes``
standard deviations), and prints the percentage of p values at or below .05 for two tests. The first permutes the residuals, and
divides every slope by its HC3 standard error. The second takes the larger of that p and the p of flipped signs, as
``partial_slope`` does. The statistic is implemented here a second time, independently of the package.

    python benchmarks/slope.py --comparisons

prints instead how often two systems without a slope differ significantly by a paired t-test of their queries' influence values,
with White's standard errors (HC0) and with those of the package (HC3); and how often a ranker that never reads the query has a
significant slope if the first stage finds fewer relevant documents for complex queries, with one and with two controls for its
candidates.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from scipy import stats

from pyterrier_debias.linguistic.audit import ranker_slope
from pyterrier_debias.linguistic.formulas.slope import partial_slope

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]


def normal(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Independent complexity and residuals."""
    return rng.normal(size=n), rng.normal(size=n)


def of_few(one_in: int) -> Draw:
    """Complexity is 1 for one in ``one_in`` queries, and 0 for the others."""

    def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        return (np.arange(n) < n // one_in).astype(float), rng.normal(size=n)

    return drawn


def lognormal(power: float, skewed: bool = False) -> Draw:
    """Residuals in proportion to a power of complexity."""

    def drawn(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        x = rng.lognormal(size=n)
        return x, x**power * (rng.exponential(size=n) - 1 if skewed else rng.normal(size=n))

    return drawn


#: By name: how complexity and residuals are drawn, and whether all residuals have the same spread.
WORLDS: dict[str, tuple[Draw, bool]] = {
    "normal, equal spread": (normal, True),
    "one in five complex, equal spread": (of_few(5), True),
    "one in ten complex, equal spread": (of_few(10), True),
    "one in twenty complex, equal spread": (of_few(20), True),
    "lognormal, equal spread": (lognormal(0), True),
    "lognormal, spread proportional to complexity": (lognormal(1), False),
    "lognormal, spread proportional to its square root": (lognormal(0.5), False),
    "lognormal, spread proportional to complexity, skewed": (lognormal(1, skewed=True), False),
}


def p_values(x: np.ndarray, y: np.ndarray, draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """The p of permutations, and that of flipped signs."""
    left, n = y - y.mean(), len(x)
    x = x - x.mean()
    weights = x**2 / (1 - 1 / n - x**2 / (x @ x)) ** 2

    def t(rows: np.ndarray) -> np.ndarray:
        rows = rows - rows.mean(axis=1, keepdims=True)
        slopes = rows @ x / (x @ x)
        return np.abs(slopes) * (x @ x) / np.sqrt((rows - slopes[:, None] * x) ** 2 @ weights)

    observed = t(left[None])[0] * (1 - 1e-9)
    nulls = rng.permuted(np.repeat(left[None], draws, axis=0), axis=1), left * rng.choice([-1.0, 1.0], size=(draws, n))
    permuted, flipped = ((1 + (t(null) >= observed).sum()) / (1 + draws) for null in nulls)
    return permuted, flipped


def rates(draw: Draw, n: int, slope: float, simulations: int, draws: int) -> tuple[float, float]:
    """The percentage of p values at or below .05: for permutations, and for the larger p."""
    found = np.zeros(2)
    for seed in range(simulations):
        rng = np.random.default_rng([0, seed, n])
        x, residuals = draw(rng, n)
        p = p_values(x, residuals + slope * x / x.std() * residuals.std(), draws, rng)
        found += [p[0] <= 0.05, max(p) <= 0.05]
    return tuple(100 * found / simulations)


def influence_hc0(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A value for each query whose mean is the slope, and whose standard error is White's."""
    x, left = x - x.mean(), y - y.mean()
    slope = left @ x / (x @ x)
    return slope + len(x) * x * (left - slope * x) / (x @ x)


def compared(draw: Draw, n: int, simulations: int) -> tuple[float, float]:
    """The percentage of pairs of systems without a slope that differ significantly: by HC0, and by ``Slope.influence``."""
    found = np.zeros(2)
    for seed in range(simulations):
        rng = np.random.default_rng([1, seed, n])
        x, _ = draw(rng, n)
        both = np.clip(0.5 + 0.25 * rng.normal(size=(2, n)), 0, 1)
        ways = [influence_hc0(y, x) for y in both], [partial_slope(y, x, resamples=1).influence for y in both]
        found += [stats.ttest_rel(*way).pvalue <= 0.05 for way in ways]
    return tuple(100 * found / simulations)


def behind_a_first_stage(steepness: float, noise: float, simulations: int, draws: int) -> tuple[float, float]:
    """The percentage of blind rankers with a significant slope: given the candidates' nDCG@10, and given also their best nDCG@10.

    Of ten relevant documents, the first stage finds a share that falls with complexity (logistic, of this steepness), among 100.
    """
    found, n = np.zeros(2), 120
    discounts = 1 / np.log2(np.arange(2, 12))
    for seed in range(simulations):
        rng = np.random.default_rng([2, seed])
        x = rng.normal(size=n)
        there = rng.binomial(10, 1 / (1 + np.exp(steepness * x)))
        labels = (np.arange(100) < there[:, None]).astype(float)
        before, after = (
            np.take_along_axis(labels, np.argsort(-(2 * labels + sd * rng.normal(size=labels.shape)))[:, :10], 1) @ discounts
            for sd in (2.0, noise)
        )
        given = np.column_stack([before, labels[:, :10] @ discounts]) / discounts.sum()
        topics = pd.DataFrame({"complexity": x})
        values = after / discounts.sum()
        slopes = (ranker_slope(values, given[:, :k], topics, [], resamples=draws, seed=seed) for k in (1, 2))
        found += [slope.p <= 0.05 for slope in slopes]
    return tuple(100 * found / simulations)


def comparisons(simulations: int, draws: int) -> None:
    """Print both kinds of rates."""
    for name, (draw, equal) in WORLDS.items():
        for n in (43, 97) if equal else ():
            print("{}, {} queries: HC0 {:.1f}, HC3 {:.1f}".format(name, n, *compared(draw, n, simulations)), flush=True)
    for steepness, noise in ((0.0, 1.0), (0.3, 1.0), (0.3, 0.5), (1.0, 1.0)):
        one, two = behind_a_first_stage(steepness, noise, max(1, simulations // 5), draws)
        told = f"steepness {steepness:g}, noise of the ranker {noise:g}"
        print(f"{told}: one control {one:.1f}, two controls {two:.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=1_000, help="simulations without a slope (with one: 3/5 of them)")
    parser.add_argument("--draws", type=int, default=299)
    parser.add_argument("--queries", type=int, nargs="*", default=[40, 97, 300])
    parser.add_argument("--slopes", type=float, nargs="*", default=[0.45, 0.3, 0.17], help="one for each number of queries")
    parser.add_argument("--comparisons", action="store_true", help="comparisons of two systems, and rankers over a first stage")
    options = parser.parse_args()
    if options.comparisons:
        comparisons(options.simulations, options.draws)
        return
    for name, (draw, equal) in WORLDS.items():
        for n, slope in zip(options.queries, options.slopes):
            false = rates(draw, n, 0.0, options.simulations, options.draws)
            told = f"{name}, {n} queries: false alarms {false[0]:.1f}, with signs {false[1]:.1f}"
            if equal:
                power = rates(draw, n, slope, max(1, options.simulations * 3 // 5), options.draws)
                told += f"; power {power[0]:.1f}, with signs {power[1]:.1f}"
            print(told, flush=True)


if __name__ == "__main__":
    main()
