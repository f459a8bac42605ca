"""Paired comparisons of systems, query by query: is one more biased than another?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pyterrier_debias.core.bias import TOGETHER, Finding
from pyterrier_debias.core.statistics import LEAST_UNITS, Interval, paired_t, t_interval, without_rounding


def against_baseline(findings: Sequence[Finding], baseline: str) -> list[Finding]:
    """Compare the primary figures of each system with those of the baseline, over the queries that both have.

    A ranker can add bias to its candidates or remove some; with the first stage as the baseline, the difference shows which.
    Differences are tested with a paired t-test, and the interval is Student's. If the baseline has no such figure (a first
    stage has no candidates for which a slope is defined), its own primary figure of that bias is compared. If the baseline's
    figure is 0 in every query, the difference is the system's own figure: it keeps its interval and is not tested again. If no
    query has a difference, nothing is tested, and with fewer than six queries there is neither an interval nor a test. Nor is
    there one where queries with the same label count as one, such as ``GenderBias(clusters='article')``: this comparison is by
    query.

    Args:
        findings: Findings with values; the primary ones are compared.
        baseline: The system to compare with.

    Returns:
        One finding for each primary figure that has values for both systems on at least two common queries.

    Example:
        >>> import pandas as pd
        >>> def found(system, values):
        ...     values = pd.Series(values, index=list("123456"))
        ...     return Finding(system, "position", "nDCG@10", "rotated - original", values.mean(), primary=True, values=values)
        >>> against_baseline([found("a", [0.1] * 6), found("b", [-0.1, 0.0, -0.2] * 2)], "a")[0].text
        "b: nDCG@10 (rotated - original) is 0.200 lower than a's, 95 % interval [-0.294, -0.106], over 6 queries."
    """
    known = {finding.key: finding for finding in findings}
    primary_of_baseline = {f.bias: f for f in findings if f.primary and f.system == baseline}
    compared: list[Finding] = []
    for finding in findings:
        if not finding.primary or finding.system == baseline:
            continue
        other = known.get((baseline, *finding.key[1:]))
        if other is None or other.values is None:
            other = primary_of_baseline.get(finding.bias, other)
            if other is not None:
                finding = known.get((finding.system, *other.key[1:]), finding)
        if other is None or other.values is None or finding.values is None or finding.key[1:] != other.key[1:]:
            continue
        mine, theirs = finding.values.dropna(), other.values.dropna()
        common = mine.index.intersection(theirs.index)
        if len(common) < 2:
            continue
        before, after = theirs[common].to_numpy(), mine[common].to_numpy()
        own, d = not before.any() and len(common) == len(mine), without_rounding(after - before)
        interval = (Interval(finding.value, finding.low, finding.high, 0.95, finding.n) if own else t_interval(d)).of_enough
        together = None if own else TOGETHER.search(finding.convention)
        if together:
            interval = replace(interval, low=float("nan"), high=float("nan"))
        alone = f"{baseline}'s figure is 0 for every query: this is the system's own figure, not tested again"
        tested = alone if own else "paired t-test" if d.any() else "no query differs: not tested"
        if together:
            tested = f"not tested, because queries with the same {together[1]} are not independent"
        if abs(interval.estimate) >= 0.0005:
            relation = f"{abs(interval.estimate):.3f} {'higher' if interval.estimate > 0 else 'lower'} than {baseline}'s"
        else:
            relation = f"equal to {baseline}'s on average{' (to 0.0005)' if interval.estimate else ''}"
        ends = "" if np.isnan(interval.low) else f", 95 % interval [{interval.low:.3f}, {interval.high:.3f}]"
        compared.append(
            Finding(
                system=finding.system,
                bias=finding.bias,
                measure=finding.measure,
                contrast=f"{finding.contrast}, vs {baseline}",
                value=interval.estimate,
                low=interval.low,
                high=interval.high,
                p=float("nan") if own or together or not d.any() or len(common) < LEAST_UNITS else paired_t(before, after).p,
                n=len(common),
                convention=f"{finding.convention}; {tested}" if finding.convention else tested,
                text=f"{finding.system}: {finding.measure} ({finding.contrast}) is {relation}{ends}, over {len(common)} queries.",
            )
        )
    return compared
