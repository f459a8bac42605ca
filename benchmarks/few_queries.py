"""What few queries and one-sided effects do to an audit's tests and intervals, on values whose distribution is known.

    python benchmarks/few_queries.py --include

Two tables. *power*: how often a primary test finds an effect of the size that an audit calls detectable, by the number of queries
and of tests that are corrected together (normal values; the smallest p decides, as in Holm's first step). *coverage*: how often
95 % intervals contain the true mean where it is not 0: of normal values, of values that have a long tail to one side (lognormal),
and of such values for 30 % of the queries, 0 for the others. Intervals: those that invert the randomisation test, beside p values
of paired differences, and the bootstrap's, of all other means.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from calibrating import share, write_table

from pyterrier_debias.core.statistics import bootstrap_interval, detectable_effect, inverted_interval, randomisation_test

DOCS = Path(__file__).resolve().parent.parent / "pyterrier_debias" / "pt_docs"
QUERIES, TESTS = (9, 12, 16, 25, 60), (1, 10)
SIZES = (20, 43, 120, 500)
RESAMPLES = 2_000


def power(n: int, tests: int, cases: int) -> list[bool]:
    """For each case whether an effect of the detectable size, computed from the interval of its own values, is found."""
    rng, hits = np.random.default_rng([n, tests]), []
    for seed in range(cases):
        values = rng.normal(size=n)
        least = detectable_effect(inverted_interval(values, resamples=RESAMPLES, seed=seed), tests=tests)
        p = randomisation_test(np.zeros(n), values + least, resamples=RESAMPLES, seed=seed).p
        hits.append(p * tests < 0.05)
    return hits


def drawn(kind: str, n: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """Values of n queries, and the mean of their distribution."""
    if kind == "normal":
        return rng.normal(0.5, 1.0, n), 0.5
    tail, mean = rng.lognormal(0.0, 1.0, n), float(np.exp(0.5))
    if kind == "long tail":
        return tail, mean
    return tail * (rng.random(n) < 0.3), 0.3 * mean


def coverage(kind: str, n: int, cases: int) -> dict[str, list[bool]]:
    """For both kinds of intervals, for each case that has one, whether it contains the mean."""
    rng = np.random.default_rng([n, len(kind)])
    hits: dict[str, list[bool]] = {"inverted": [], "bootstrap": []}
    for seed in range(cases):
        values, mean = drawn(kind, n, rng)
        both = {"inverted": inverted_interval, "bootstrap": bootstrap_interval}
        for name, interval in both.items():
            found = interval(values, resamples=RESAMPLES, seed=seed)
            if np.isfinite(found.low) and np.isfinite(found.high):
                hits[name].append(bool(found.low <= mean <= found.high))
    return hits


def percent(hits: list[bool]) -> str:
    """A share with its exact 99 % interval."""
    return "{rate:.1%} [{low:.1%}, {high:.1%}]".format(**share(pd.Series(hits)))


def main() -> None:
    """Print the tables, and write them for the documentation if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=2_000)
    parser.add_argument("--include", action="store_true", help="write the tables of the documentation")
    options = parser.parse_args()
    rows = [["Queries", *(f"{tests} test{'s' * (tests > 1)}" for tests in TESTS)]]
    for n in QUERIES:
        rows.append([str(n), *(percent(power(n, tests, options.cases)) for tests in TESTS)])
        print(*rows[-1], sep="  ", flush=True)
    found = [["Values", "queries", "inverted test", "bootstrap"]]
    for kind in ("normal", "long tail", "long tail, 30 % of queries"):
        for n in SIZES:
            hits = coverage(kind, n, options.cases)
            found.append([kind, str(n), *(percent(own) for own in hits.values())])
            print(*found[-1], sep="  ", flush=True)
    if options.include:
        title = "How often {} [99 % interval]"
        write_table(DOCS / "few_queries_power.inc", title.format("an effect of the detectable size is found"), rows)
        write_table(DOCS / "few_queries_coverage.inc", title.format("a 95 % interval contains a mean that is not 0"), found)


if __name__ == "__main__":
    main()
