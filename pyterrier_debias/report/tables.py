"""The tables of one audit, which every report reads."""

from __future__ import annotations

import numbers
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import pandas as pd

from pyterrier_debias.core.bias import ATTRIBUTION_COLUMNS, KINDS, Figure
from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.report.attributions import worst_items, worst_queries

SKIPPED_COLUMNS = ["bias", "system", "reason"]
FAILED_COLUMNS = ["bias", "system", "error", "traceback"]


@dataclass(eq=False, repr=False)
class AuditTables:
    """What an audit found, as tables: the attributes of :class:`~pyterrier_debias.AuditResult`, which is one."""

    findings: pd.DataFrame
    per_query: pd.DataFrame
    skipped: pd.DataFrame
    failed: pd.DataFrame
    settings: dict[str, Any]
    figures: tuple[tuple[str, Figure], ...] = ()
    queries: dict[str, str] = field(default_factory=dict)
    attributions: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=ATTRIBUTION_COLUMNS))

    def __getstate__(self) -> dict[str, Any]:
        """For a pickle: as in JSON, without figures, which hold all that their bias knows."""
        return {**self.__dict__, "figures": ()}

    def __copy__(self) -> Self:
        """A copy, with the figures."""
        return replace(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of everything but the figures, which cannot be changed."""
        tables = {one.name: deepcopy(getattr(self, one.name), memo) for one in fields(self) if one.name != "figures"}
        return replace(self, **tables)

    def worst(
        self, n: int = 10, *, kind: str = "queries", bias: str | None = None, system: str | None = None
    ) -> pd.DataFrame:
        """What contributes most to each figure, exactly: all contributions sum to the figure.

        - ``'queries'``: of every primary figure that is a mean over queries, or has influence values;
        - ``'documents'``: gender (each document's part of the ARaB that the order adds), pooling (unjudged documents among the
          first ten of one of the two runs, those that stand highest first where parts are equal);
        - ``'words'``: gender; ``exact`` is False where a document's magnitude is no sum over its words, as ln(1 + c) is not: then
          it is divided among them in proportion to their counts;
        - ``'positions'``: position: the two moves of an answer that ``end - start`` is the sum of; and, for ``rotated -
          original``, the queries whose answers begin in the first, middle or last third of their passages.

        Args:
            n: How many of each figure.
            kind: One of these.
            bias: Of this bias only.
            system: Of this system only.

        Returns:
            For queries see :func:`pyterrier_debias.report.attributions.worst_queries`: ``system``, ``bias``, ``measure``,
            ``contrast``, ``qid``, ``query``, ``value``, ``contribution``, ``share``. For the others
            :func:`pyterrier_debias.report.attributions.worst_items`: in place of the query ``item``, ``note`` (what is known of
            it), ``qid`` (where it counts most) and ``queries`` (how many it counts in); and ``exact``. An audit keeps the first
            50 documents of each figure. Empty where there are none.

        Raises:
            InputError: For a kind that is not known, a bias or system that was not audited, or ``n`` below 1.
        """
        if not isinstance(n, numbers.Integral) or n < 1:
            raise InputError(f"worst: n is {n}; it must be a whole number, 1 or more")
        check_choice("worst", "kind", kind, ("queries", *KINDS))
        findings, attributions = self.findings, self.attributions
        for name, wanted in (("bias", bias), ("system", system)):
            if wanted is not None:
                audited = self.settings["biases" if name == "bias" else "systems"]
                known = list(dict.fromkeys([*audited, *self.findings[name]]))
                if wanted not in known:
                    raise InputError(f"worst: {name} {wanted!r} is not in this audit; there are {', '.join(known)}")
                findings = findings[findings[name] == wanted]
                attributions = attributions[attributions[name] == wanted]
        if kind == "queries":
            return worst_queries(findings, self.per_query, n, self.queries)
        return worst_items(attributions, KINDS[kind], n)
