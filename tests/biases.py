"""Biases of a few lines, and what a bias says of an audit, for tests."""

from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

from pyterrier_debias import Bias, Context, Figure, Finding
from pyterrier_debias.core.bias import per_query_frame


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
    """Findings, the values behind them, and figures."""
    findings = list(bias.examine(context))
    figures = list(bias.figures(context)) if context.systems else []
    return SimpleNamespace(findings=findings, per_query=per_query_frame(findings), figures=figures)
