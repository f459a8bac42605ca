"""Paired comparisons of systems, query by query: is one more biased than another?"""

from __future__ import annotations

from collections.abc import Sequence

from pyterrier_debias.core.bias import TOGETHER, Finding, query_count
from pyterrier_debias.core.statistics import Interval, without_rounding
from pyterrier_debias.report.noninferiority import change_interval, change_p
from pyterrier_debias.report.text import digits_of, interval, signed


def against_baseline(findings: Sequence[Finding], baseline: str) -> list[Finding]:
    """Compare the primary figures of each system with those of the baseline, over the queries that both have.

    A ranker can add bias to its candidates or remove some; with the first stage as the baseline, the difference shows which.
    Differences are tested with a paired t-test, and the interval is Student's. If the baseline has no such figure (a first
    stage has no candidates for which a slope is defined), its own primary figure of that bias is compared. If the baseline's
    figure is 0 in every query, the difference is the system's own figure: it keeps its interval and is not tested again. If no
    query has a difference, nothing is tested, and with fewer than six queries there is neither an interval nor a test. Queries
    that are not independent, as in ``GenderBias(clusters='article')``, are compared by cluster: a randomisation test flips the
    signs of all queries with the same label together, and the interval inverts it.

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
        "b: nDCG@10 (rotated - original) differs from a's by -0.200, 95 % interval [-0.294, -0.106], over 6 queries."
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
        labels = finding.clusters if other.clusters is None else other.clusters
        of = None if labels is None else [labels[qid] for qid in common]
        if own:
            change, p = Interval(finding.value, finding.low, finding.high, 0.95, finding.n), float("nan")
        else:
            change, p = change_interval(before, after, clusters=of), change_p(before, after, clusters=of)
        change = change.of_enough
        alone = f"{baseline}'s figure is 0 for every query: this is the system's own figure, not tested again"
        tested = alone if own else "paired t-test" if d.any() else "no query differs: not tested"
        if of is not None and not own and d.any():
            together = TOGETHER.search(finding.convention)
            tested = f"p by randomisation {together[0] if together else 'of whole clusters'}; the interval inverts this test"
        digits = digits_of(change.low, change.high)
        relation = f"differs from {baseline}'s by {signed(change.estimate, digits)}"
        if not d.any():
            relation = f"equals {baseline}'s for every query"
        elif ends := interval(change.low, change.high, digits):
            relation += f", 95 % interval {ends}"
        compared.append(
            Finding(
                system=finding.system,
                bias=finding.bias,
                measure=finding.measure,
                contrast=f"{finding.contrast}, vs {baseline}",
                value=change.estimate,
                low=change.low,
                high=change.high,
                p=p,
                n=len(common),
                convention=f"{finding.convention}; {tested}" if finding.convention else tested,
                text=f"{finding.system}: {finding.measure} ({finding.contrast}) {relation}, over {query_count(len(common))}.",
            )
        )
    return compared
