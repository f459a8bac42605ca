"""The tables of one audit, which every report reads."""

from __future__ import annotations

import numbers
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import pandas as pd

from pyterrier_debias.core.bias import ATTRIBUTION_COLUMNS, KINDS, Figure
from pyterrier_debias.core.errors import InputError, check_choice, visible
from pyterrier_debias.report.attributions import worst_items, worst_queries

SKIPPED_COLUMNS = ["bias", "system", "reason"]
FAILED_COLUMNS = ["bias", "system", "error", "traceback"]


@dataclass(eq=False, repr=False)
class AuditTables:
    """The tables of an audit; :class:`~pyterrier_debias.AuditResult` is a subclass and describes the attributes."""

    findings: pd.DataFrame
    per_query: pd.DataFrame
    skipped: pd.DataFrame
    failed: pd.DataFrame
    settings: dict[str, Any]
    figures: tuple[tuple[str, Figure], ...] = ()
    queries: dict[str, str] = field(default_factory=dict)
    attributions: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=ATTRIBUTION_COLUMNS))
    clusters: dict[str, dict[str, str]] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle: as in JSON, without figures, because these hold everything that their bias computed."""
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
        """The queries, documents, words or positions that contribute most to each figure.

        All contributions to a figure sum to the figure. What can be listed depends on the bias:

        - ``'queries'``: every primary figure that is a mean over queries, or has influence values;
        - ``'documents'``: gender (each document's part of the ARaB that the order adds) and pooling (unjudged documents among the
          first ten of one of the two runs; of equal parts, the highest document first);
        - ``'words'``: gender; if a document's magnitude is not a sum over its words, as with ln(1 + c), it is divided among them
          in proportion to their counts, and ``exact`` is False;
        - ``'positions'``: position: the two moves of an answer whose sum is ``end - start``; and, for ``rotated - original``,
          the queries whose answers begin in the first, middle or last third of their passages.

        Args:
            n: The number of rows for each figure.
            kind: One of the four kinds above.
            bias: Only figures of this bias; None means all.
            system: Only figures of this system; None means all.

        Returns:
            For queries: ``system``, ``bias``, ``measure``, ``contrast``, ``qid``, ``query``, ``value``, ``contribution``,
            ``share`` (see :func:`pyterrier_debias.report.attributions.worst_queries`). For the others, in place of the query:
            ``item``, ``note`` (what is known about it), ``qid`` (the query to which it contributes most), ``queries`` (to how
            many it contributes) and ``exact`` (see :func:`pyterrier_debias.report.attributions.worst_items`). An audit keeps the
            first 50 documents of each figure. Empty if there are none.

        Raises:
            InputError: If the kind is unknown, the bias or system was not audited, or ``n`` is below 1.
        """
        if not isinstance(n, numbers.Integral) or n < 1:
            raise InputError(f"worst: n is {n}; it must be a whole number, 1 or more")
        check_choice("worst", "kind", kind, ("queries", *KINDS))
        system = None if system is None else visible(str(system))  # results hold names as they are shown
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
