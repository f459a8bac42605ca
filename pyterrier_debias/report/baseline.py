"""Is one system more biased than another? Paired comparisons of what the rooms measured query by query."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.statistics import paired_t, t_interval

_KEY = ["system", "bias", "measure", "group"]


def against_baseline(findings: Sequence[Finding], per_query: pd.DataFrame, baseline: str) -> list[Finding]:
    """Compare each system's primary figures with the baseline's over the queries that both have.

    A ranker can add bias to what it was given, or take some away; with the first stage as the baseline the difference says
    which. Differences are tested with a paired t-test, the interval is Student's. Where the baseline has no such figure (a first
    stage has no candidates that a slope could be given), the baseline's own primary figure of that bias is compared.

    Args:
        findings: What the rooms found; the primary ones are compared.
        per_query: The values behind them: ``system``, ``bias``, ``measure``, ``group``, ``qid``, ``value``.
        baseline: The system to compare with.

    Returns:
        One finding for each primary figure that has values for both systems on at least two common queries.

    Example:
        >>> per_query = pd.DataFrame({
        ...     "system": ["a"] * 3 + ["b"] * 3, "bias": "position", "measure": "nDCG@10", "group": "rotated - original",
        ...     "qid": ["1", "2", "3"] * 2, "value": [0.0, 0.0, 0.0, -0.2, -0.1, -0.3],
        ... })
        >>> found = Finding("b", "position", "nDCG@10", "rotated - original", -0.2, primary=True)
        >>> against_baseline([found], per_query, "a")[0].text
        "b: nDCG@10 (rotated - original) is 0.200 lower than a's, 95 % interval [-0.448, 0.048], over 3 queries."
    """
    values = {key: group.set_index("qid")["value"].dropna() for key, group in per_query.groupby(_KEY, sort=False)}
    known = {(f.system, f.bias, f.measure, f.group): f for f in findings}
    primary_of_baseline = {f.bias: (f.bias, f.measure, f.group) for f in findings if f.primary and f.system == baseline}
    compared = []
    for finding in findings:
        if not finding.primary or finding.system == baseline:
            continue
        kind = (finding.bias, finding.measure, finding.group)
        if (baseline, *kind) not in values:
            kind = primary_of_baseline.get(finding.bias, kind)
            finding = known.get((finding.system, *kind), finding)
        mine, theirs = values.get((finding.system, *kind)), values.get((baseline, *kind))
        if mine is None or theirs is None:
            continue
        common = mine.index.intersection(theirs.index)
        if len(common) < 2:
            continue
        before, after = theirs[common].to_numpy(), mine[common].to_numpy()
        interval = t_interval(after - before)
        if interval.estimate:
            relation = f"{abs(interval.estimate):.3f} {'higher' if interval.estimate > 0 else 'lower'} than {baseline}'s"
        else:
            relation = f"equal to {baseline}'s on average"
        compared.append(
            Finding(
                system=finding.system,
                bias=finding.bias,
                measure=finding.measure,
                group=f"{finding.group}, vs {baseline}",
                value=interval.estimate,
                low=interval.low,
                high=interval.high,
                p=paired_t(before, after).p,
                n=len(common),
                convention=f"{finding.convention}; paired t-test" if finding.convention else "paired t-test",
                text=f"{finding.system}: {finding.measure} ({finding.group}) is {relation}, "
                f"95 % interval [{interval.low:.3f}, {interval.high:.3f}], over {len(common)} queries.",
            )
        )
    return compared
