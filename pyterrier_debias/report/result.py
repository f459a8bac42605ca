"""What an audit found: tables, the forms they are shown and kept in."""

from __future__ import annotations

import json
import math
import numbers
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pyterrier_debias.core.attributions import CONTRIBUTION_COLUMNS, contributions_frame
from pyterrier_debias.core.bias import PER_QUERY_COLUMNS, Figure, Finding
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.files import whole_folder, write_whole

if TYPE_CHECKING:
    from pyterrier_debias.report.compare import Comparison

#: Raised with every change of the JSON form that old readers would misread.
SCHEMA_VERSION = 1

#: The file of a saved audit that everything can be read from.
RESULT_FILE = "audit.json"
#: What a folder of an audit holds, in words.
HOLDS = "an audit"

_TABLES = ("findings.csv", "per_query.csv", "index.html")

SKIPPED_COLUMNS = ["bias", "system", "reason"]
FAILED_COLUMNS = ["bias", "system", "error", "traceback"]


@dataclass(eq=False, repr=False)
class AuditResult:
    """What an audit found, with everything needed to judge it.

    Printing it shows the table and plain sentences; notebooks show the HTML report.

    Attributes:
        findings: One row a finding; the columns are the attributes of :class:`pyterrier_debias.core.bias.Finding`.
        per_query: The values behind the findings: ``system``, ``bias``, ``measure``, ``group``, ``qid``, ``value``.
        skipped: What was not examined: ``bias``, ``system``, ``reason``.
        failed: Rooms that broke off, and systems that raised in one: ``bias``, ``system`` (empty where the room itself broke
            off), ``error``, ``traceback``.
        settings: What was audited and how: dataset, split, systems, sizes, seed, correction, notes, versions.
        figures: Pairs of bias and :class:`pyterrier_debias.core.bias.Figure`; they are drawn when somebody looks.
        queries: The words of the queries of ``per_query``, by qid.
        contributions: What documents, words and positions contribute to the rooms' figures; see :meth:`worst`.

    Example:
        ::

            result = audit()                  # BM25 and a bi-encoder on the embedded collection
            print(result)
            result.save("audit-results")      # CSV, JSON, PNG and index.html
    """

    findings: pd.DataFrame
    per_query: pd.DataFrame
    skipped: pd.DataFrame
    failed: pd.DataFrame
    settings: dict[str, Any]
    figures: tuple[tuple[str, Figure], ...] = ()
    queries: dict[str, str] = field(default_factory=dict)
    contributions: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=CONTRIBUTION_COLUMNS))

    def __repr__(self) -> str:
        """Sizes in one line; ``print`` shows the report."""
        return (
            f"<AuditResult of {self.settings['dataset']}: {len(self.settings['systems'])} systems, "
            f"{len(self.findings)} findings, {len(self.skipped)} skipped, {len(self.failed)} failed>"
        )

    def __str__(self) -> str:
        """The report as text."""
        return self.to_text()

    def _repr_html_(self) -> str:
        """The report for notebooks, in a frame of its own so that its style stays inside."""
        from pyterrier_debias.report.pages import as_frame

        return as_frame(self)

    def to_frame(self) -> pd.DataFrame:
        """The findings as a frame of their own, to sort, filter and join."""
        return self.findings.copy()

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
            ``group``, ``qid``, ``query``, ``value``, ``contribution``, ``share``. For the others
            :func:`pyterrier_debias.report.attributions.worst_items`: in place of the query ``item``, ``note`` (what is known of
            it), ``qid`` (where it counts most) and ``queries`` (how many it counts in); and ``exact``. An audit keeps the first
            50 documents of each figure. Empty where there are none.

        Raises:
            InputError: For a kind that is not known, a bias or system that was not audited, or ``n`` below 1.
        """
        from pyterrier_debias.core.attributions import KINDS
        from pyterrier_debias.report.attributions import worst_items, worst_queries

        if not isinstance(n, numbers.Integral) or n < 1:
            raise InputError(f"worst: n is {n}; it must be a whole number, 1 or more")
        if kind != "queries" and kind not in KINDS:
            raise InputError(f"worst: kind {kind!r} is not known; use one of queries, {', '.join(KINDS)}")
        findings, contributions = self.findings, self.contributions
        for name, wanted in (("bias", bias), ("system", system)):
            if wanted is not None:
                known = list(dict.fromkeys(self.findings[name]))
                if wanted not in known:
                    raise InputError(f"worst: {name} {wanted!r} is not in this audit; there are {', '.join(known)}")
                findings = findings[findings[name] == wanted]
                contributions = contributions[contributions[name] == wanted]
        if kind == "queries":
            return worst_queries(findings, self.per_query, n, self.queries)
        return worst_items(contributions, KINDS[kind], n)

    def compare(self, after: AuditResult | None = None, **options: Any) -> Comparison:
        """What another audit's system gained over this one's, and what it cost; see
        :func:`pyterrier_debias.report.compare.compare`.

        Args:
            after: The later audit; None compares two systems of this one.
            options: ``systems``, ``margin``, ``effectiveness``, ``draws``, ``seed``.

        Returns:
            The comparison.

        Raises:
            InputError: See there.
        """
        from pyterrier_debias.report.compare import compare

        return compare(self, after, **options)

    def card(self, system: str | None = None) -> str:
        """The audit as a Hugging Face model card: YAML metadata, table, sentences, and how it was made.

        Args:
            system: The system that the card is of; None shows all, and leaves figures out of the metadata unless there is one
                only.

        Returns:
            Markdown.

        Raises:
            InputError: For a system that was not audited.
        """
        from pyterrier_debias.report.card import card

        return card(self, system)

    def write_card(self, folder: str | Path, system: str | None = None) -> Path:
        """Write the card into the README.md of a saved ranker; what an earlier audit wrote there is replaced, the rest stays.

        Args:
            folder: The folder that the ranker's ``save()`` wrote.
            system: See :meth:`card`.

        Returns:
            The card's path.

        Raises:
            InputError: Where there is no such folder, or its card cannot be read or merged; nothing is changed then.
        """
        from pyterrier_debias.report.card import write_card

        return write_card(self, folder, system)

    def to_text(self, width: int = 110) -> str:
        """The report as plain text.

        Args:
            width: Characters in a line.

        Returns:
            Tables by bias, sentences beneath, and what was skipped.
        """
        from pyterrier_debias.report.pages import as_text

        return as_text(self, width)

    def to_html(self) -> str:
        """The report as one self-contained page: no network, figures inside, readable on a phone and in print.

        Returns:
            An HTML document.
        """
        from pyterrier_debias.report.pages import as_html

        return as_html(self)

    def to_json(self) -> str:
        """Everything but the figures as JSON; ``report/result.schema.json`` in the package describes it.

        Returns:
            JSON text, a line for each row of a table; numbers that are not defined are null.
        """
        options: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False}
        parts = {
            "schema": json.dumps("pyterrier_debias.audit"),
            "schema_version": json.dumps(SCHEMA_VERSION),
            "settings": json.dumps(self.settings, indent=1, **options),
            **{name: _lines(getattr(self, name), **options) for name in ("findings", "per_query", "skipped", "failed")},
            "queries": json.dumps(self.queries, indent=1, **options),
            "contributions": _lines(self.contributions, **options),
        }
        return "{\n" + ",\n".join(f'"{name}": {part}' for name, part in parts.items()) + "\n}\n"

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read what :meth:`to_json` wrote. The result has no figures.

        Args:
            text: JSON text.

        Returns:
            The result.

        Raises:
            InputError: Where the text is no JSON, no audit, of a newer schema, or damaged.
        """
        try:
            content = json.loads(text)
        except ValueError as error:
            raise InputError(f"this is no audit in JSON ({error}); give the content of {RESULT_FILE}") from error
        if not isinstance(content, dict) or content.get("schema") != "pyterrier_debias.audit":
            raise InputError(f"this JSON is no audit: its 'schema' is not 'pyterrier_debias.audit'; give {RESULT_FILE}")
        if content.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"this audit has schema version {content.get('schema_version')}, this package reads {SCHEMA_VERSION}; "
                f"run the audit again, or read it with the version of pyterrier-debias that wrote it"
            )
        missing = [k for k in ("settings", "findings", "per_query", "skipped", "failed") if k not in content]
        if missing:
            raise InputError(f"this audit lacks {missing[0]!r}; the file is damaged: run the audit again")
        try:
            return cls._of_content(content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = one_line(error)
            raise InputError(f"this audit cannot be read ({told}); the file is damaged: run the audit again") from error

    @classmethod
    def _of_content(cls, content: dict[str, Any]) -> AuditResult:
        settings = content["settings"]
        schema = json.loads(Path(__file__).with_name("result.schema.json").read_text(encoding="utf-8"))
        lacks = [name for name in schema["properties"]["settings"]["required"] if name not in settings]
        if lacks:
            raise KeyError(f"the settings lack {lacks[0]!r}")
        kinds = {f.name: f.type for f in fields(Finding)}
        findings = pd.DataFrame(content["findings"], columns=list(kinds)).astype(
            {name: {"float": "float64", "int": "int64", "bool": "bool", "str": "str"}[kind] for name, kind in kinds.items()}
        )
        per_query = pd.DataFrame(content["per_query"], columns=PER_QUERY_COLUMNS).astype({"value": "float64"})
        skipped = pd.DataFrame(content["skipped"], columns=SKIPPED_COLUMNS)
        failed = pd.DataFrame(content["failed"], columns=FAILED_COLUMNS).fillna({"system": ""})
        queries, parts = dict(content.get("queries", {})), contributions_frame(content.get("contributions", []))
        return cls(findings, per_query, skipped, failed, settings, queries=queries, contributions=parts)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the audit to a folder: whole, or not at all.

        ``findings.csv`` and ``per_query.csv``, ``audit.json``, ``index.html``, and the figures as PNG.

        Args:
            folder: A folder that does not exist yet, or is empty.
            overwrite: Whether an earlier audit there may be replaced: the files that it wrote, by the list of them in the folder.
                Other files beside them stay.

        Returns:
            The folder.

        Raises:
            InputError: Where the folder holds anything already that may not be replaced, a file of the earlier audit that was
                changed since, or cannot be written.
        """
        with whole_folder(folder, holds=HOLDS, overwrite=overwrite) as scratch:
            self.write_files(scratch)
        return Path(folder)

    def write_files(self, folder: Path) -> None:
        """Write the files of :meth:`save` into a folder that is there.

        Args:
            folder: An existing folder.

        Raises:
            InputError: Where it holds a file of one of their names.
        """
        from pyterrier_debias.report.pages import picture

        findings, per_query, page = _TABLES
        write_whole(folder / findings, self.findings.to_csv(index=False), replace=False)
        write_whole(folder / per_query, self.per_query.to_csv(index=False), replace=False)
        write_whole(folder / RESULT_FILE, self.to_json(), replace=False)
        write_whole(folder / page, self.to_html(), replace=False)
        for bias, figure in self.figures:
            write_whole(folder / f"{bias}-{figure.name}.png", picture(figure, "png"), replace=False)


def _lines(frame: pd.DataFrame, **options: Any) -> str:
    """A table as a list of objects, a line each: indented, it would take twice the time."""
    encode = json.JSONEncoder(**options).encode

    def plain(value: Any) -> Any:
        value = value.item() if hasattr(value, "item") else value
        return None if isinstance(value, float) and not math.isfinite(value) else value

    names = list(frame.columns)
    columns = [[plain(value) for value in frame[name].tolist()] for name in names]
    rows = ",\n".join(encode(dict(zip(names, row))) for row in zip(*columns))
    return f"[\n{rows}\n]" if rows else "[]"
