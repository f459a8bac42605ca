"""Biases of a few lines, and what a bias says of an audit, for tests."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

from pyterrier_debias import Bias, Context, Figure, Finding
from pyterrier_debias.core import plots
from pyterrier_debias.core.bias import PER_QUERY_COLUMNS, findings_frame, per_query_frame


class Made(Bias):
    """A bias of functions: what it finds, what it needs, its figures and measures."""

    def __init__(
        self,
        name: str,
        examine: Callable[[Context], Iterable[Finding]],
        needs: Callable[[Any, Any], str | None] | None = None,
        figures: Sequence[Figure] = (),
        measures: Callable[[Context], Any] | None = None,
    ):
        self.name, self.found, self.lacks, self.drawn, self.measured = name, examine, needs, figures, measures

    def needs(self, system, dataset):
        return None if self.lacks is None else self.lacks(system, dataset)

    def examine(self, context):
        yield from self.found(context)

    def figures(self, context):
        return self.drawn

    def measures(self, context):
        return super().measures(context) if self.measured is None else self.measured(context)


def examined(bias: Bias, context: Context) -> SimpleNamespace:
    """Findings, as a list and as a table, the values behind them, and figures."""
    findings = list(bias.examine(context))
    figures = list(bias.figures(context)) if context.systems else []
    return SimpleNamespace(
        findings=findings, table=findings_frame(findings), per_query=per_query_frame(findings), figures=figures
    )


def primary_tests(findings: pd.DataFrame) -> pd.DataFrame:
    """The primary findings by system, of which each has one."""
    primary = findings[findings["primary"]].set_index("system")
    assert primary.index.is_unique
    return primary


def compare_with_values(findings: pd.DataFrame, per_query: pd.DataFrame) -> int:
    """Each pair of a query and a finding has one value at most; a finding with values is their mean, and n their number.

    Returns:
        How many of the findings have values.
    """
    assert list(per_query.columns) == PER_QUERY_COLUMNS
    assert not per_query.duplicated(["system", "measure", "contrast", "qid"]).any()
    means = per_query.groupby(["system", "measure", "contrast"])["value"].agg(["mean", "size"])
    compared = 0
    for row in findings.itertuples():
        if (row.system, row.measure, row.contrast) in means.index:
            assert row.value == pytest.approx(means.loc[(row.system, row.measure, row.contrast), "mean"])
            assert row.n == means.loc[(row.system, row.measure, row.contrast), "size"]
            compared += 1
    return compared


def drawn(figures: Sequence[Figure]) -> Iterator[tuple[Figure, Any, set[str]]]:
    """Each figure, the axes on which it is drawn, and what its ticks and legend name."""
    for figure in figures:
        axes = plots.new_axes()
        try:
            figure.draw(axes)
            ticks = [label.get_text() for label in axes.get_xticklabels()]
            yield figure, axes, {*ticks, *axes.get_legend_handles_labels()[1]}
        finally:
            plots.close(axes.figure)
