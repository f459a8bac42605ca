"""The result of an audit: its tables, and how they are shown and saved."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_debias.core.bias import ATTRIBUTION_COLUMNS, FIGURE_KEY, FINDING_TYPES, PART_TYPES, PER_QUERY_COLUMNS
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.files import check_seal, file_name, sealed, whole_folder, write_whole, written_files
from pyterrier_debias.report.card import merged, write_card
from pyterrier_debias.report.html import as_html
from pyterrier_debias.report.pictures import DrawnFigure
from pyterrier_debias.report.tables import FAILED_COLUMNS, SKIPPED_COLUMNS, AuditTables
from pyterrier_debias.report.templates import framed
from pyterrier_debias.report.text import as_text
from pyterrier_debias.report.verdict import verdict_frame, verdicts
from pyterrier_debias.report.verdict_text import verdict_text

#: Raised with every change of the JSON form that old readers would misread.
SCHEMA_VERSION = 2

#: The file of a saved audit from which the whole result can be read.
RESULT_FILE = "audit.json"
#: What a folder of an audit holds, in words.
HOLDS = "an audit"

#: What a spreadsheet reads as a formula, unless it is a number.
_FORMULA, _NUMBER = re.compile(r"\s*[=+\-@]|[\t\r]"), re.compile(r"[+-]?\d+([.,]\d+)?(e[+-]?\d+)?", re.IGNORECASE)

_TABLES = ("findings.csv", "per_query.csv", "index.html")


class AuditResult(AuditTables):
    """The result of an audit: what was found, with everything that is needed to judge it.

    ``print`` shows the verdict, then tables and plain sentences; notebooks show the HTML report.

    Attributes:
        findings: One row per finding; the columns are the attributes of :class:`pyterrier_debias.core.bias.Finding`.
        per_query: The values behind the findings: ``system``, ``bias``, ``measure``, ``contrast``, ``qid``, ``value``.
        skipped: What was not examined: ``bias``, ``system``, ``reason``.
        failed: Biases that failed with an internal error, and systems that raised an error: ``bias``, ``system`` (empty if the
            bias itself failed), ``error``, ``traceback``.
        settings: What was audited and how: dataset, split, systems, sizes, seed, correction, notes, versions.
        figures: Pairs of a bias and a :class:`pyterrier_debias.core.bias.Figure`, which is drawn only when it is shown. A
            result that was read from JSON or a pickle has none.
        queries: The texts of the queries in ``per_query``, by qid.
        attributions: What documents, words and positions contribute to figures; see :meth:`worst`.
        clusters: Which queries are not independent of each other: bias to (qid to label), for biases that were given
            ``clusters=``. Queries with the same label are tested and compared together.

    When not to use it: as a certificate. An audit looks for each bias with one probe, on the given topics.

    Example:
        ::

            result = audit()                  # BM25 and a bi-encoder on the planted collection
            print(result)
            result.save("audit-results")      # CSV, JSON, PNG and index.html
    """

    #: Whether the result was read from JSON or a pickle, so that figures of its audit may be missing.
    _read_back = False

    def __getstate__(self) -> dict[str, Any]:
        """The state for a pickle, without figures."""
        return {**super().__getstate__(), "_read_back": self._read_back or bool(self.figures)}

    def __repr__(self) -> str:
        """The sizes of the audit in one line; ``print`` shows the report."""
        return (
            f"<AuditResult of {self.settings['dataset']}: {len(self.settings['systems'])} systems, "
            f"{len(self.findings)} findings, {len(self.skipped)} skipped, {len(self.failed)} failed>"
        )

    def __str__(self) -> str:
        """The report as text."""
        return self.to_text()

    def _repr_html_(self) -> str:
        """The report for notebooks, in a frame of its own so that its style stays inside."""
        return framed(self.to_html(), "Bias audit")

    def card(self, system: str | None = None) -> str:
        """The audit as a Hugging Face model card: YAML metadata, verdict, figures, sentences, and how the audit was made.

        Args:
            system: The system that the card describes. None shows all systems; the metadata then has figures only if there is
                one system.

        Returns:
            Markdown.

        Raises:
            InputError: If the system was not audited.
        """
        return merged("", self, system)

    def write_card(self, folder: str | Path, system: str | None = None) -> Path:
        """Write the card into the README.md of a saved ranker. The card of an earlier audit is replaced; other text is kept.

        Args:
            folder: The folder that the ranker's ``save()`` wrote.
            system: See :meth:`card`.

        Returns:
            The path of the README.md.

        Raises:
            InputError: If there is no such folder, its card cannot be read or merged, or the system was not audited; nothing is
                changed in that case.
        """
        return write_card(self, folder, system)

    def verdict(self) -> pd.DataFrame:
        """What the audit found, in plain words: a question for each bias, and an answer for each system.

        Returns:
            One row per bias and system; see :func:`pyterrier_debias.report.verdict.verdict_frame`.
        """
        return verdict_frame(verdicts(self))

    def to_text(self, width: int = 110, *, most: int | None = None) -> str:
        """The report as plain text: the verdict, then one table per bias.

        Sentences are shown only for primary tests and significant findings; ``findings`` and the HTML page have all of them.

        Args:
            width: The width of a line in characters; if a table needs more, its column ``contrast`` is shortened.
            most: The largest number of lines, at least 12: only the verdict is shown, and only as much of it as fits. None shows
                everything.

        Returns:
            The verdict; unless ``most`` is given, also the tables with sentences below them, and what was skipped.
        """
        told = verdict_text(self, width, most)
        return told if most is not None else f"{told}\n\n\n{as_text(self, width)}"

    def to_html(self) -> str:
        """The report as one self-contained page: it includes the figures, needs no network, and suits phones and print.

        Returns:
            An HTML document.
        """
        return as_html(self)

    def to_json(self) -> str:
        """Everything except the figures as JSON; ``report/result.schema.json`` in the package describes the format.

        The entry ``verdict`` is for other programs: :meth:`from_json` ignores it and derives the verdict from the findings.

        Returns:
            JSON text, with one line for each row of a table; undefined numbers are null.
        """
        options: dict[str, Any] = {"ensure_ascii": False, "allow_nan": False}
        parts = {
            "schema": json.dumps("pyterrier_debias.audit"),
            "schema_version": json.dumps(SCHEMA_VERSION),
            "settings": json.dumps(self.settings, indent=1, **options),
            "verdict": _rows((_plain(verdict.record()) for verdict in verdicts(self)), **options),
            **{name: _lines(getattr(self, name), **options) for name in ("findings", "per_query", "skipped", "failed")},
            "queries": json.dumps(self.queries, indent=1, **options),
            "attributions": _lines(self.attributions, **options),
        }
        if self.clusters:
            parts["clusters"] = json.dumps(self.clusters, indent=1, **options)
        text = "{\n" + ",\n".join(f'"{name}": {part}' for name, part in parts.items())
        seal = sealed(json.loads(text + "}"))["blake2b"]
        return f'{text},\n"blake2b": "{seal}"\n}}\n'

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read a result that :meth:`to_json` wrote. It has no figures.

        Args:
            text: JSON text.

        Returns:
            The result.

        Raises:
            InputError: If the text is not JSON, not an audit, damaged, or follows a newer schema.
        """
        try:
            content = json.loads(text)
        except (TypeError, ValueError) as error:
            remedy = f"give the content of {RESULT_FILE}; AuditResult.load reads a file or folder"
            raise InputError(f"this is not an audit in JSON ({error}); {remedy}") from error
        if not isinstance(content, dict) or content.get("schema") != "pyterrier_debias.audit":
            raise InputError(f"this JSON is not an audit: its 'schema' is not 'pyterrier_debias.audit'; give {RESULT_FILE}")
        if content.get("schema_version") != SCHEMA_VERSION:
            raise InputError(
                f"this audit has schema version {content.get('schema_version')}, but this package reads version "
                f"{SCHEMA_VERSION}; run the audit again, or read it with the version of pyterrier-debias that wrote it"
            )
        content = check_seal(content, "this audit")
        missing = [k for k in ("settings", "findings", "per_query", "skipped", "failed") if k not in content]
        if missing:
            raise InputError(f"this audit lacks {missing[0]!r}; the file is damaged: run the audit again")
        try:
            return cls._of_content(content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            told = one_line(error)
            raise InputError(f"this audit cannot be read ({told}); the file is damaged: run the audit again") from error

    @classmethod
    def load(cls, path: str | Path) -> AuditResult:
        """Read a result that :meth:`save` wrote. It has no figures.

        Args:
            path: The folder, or the file ``audit.json`` in it.

        Returns:
            The result.

        Raises:
            InputError: If the file is missing, or :meth:`from_json` refuses its content.

        Example:
            ::

                AuditResult.load("audit-results").verdict()
        """
        path = Path(path).expanduser()
        path = path / RESULT_FILE if path.is_dir() else path
        try:
            return cls.from_json(path.read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not an audit: {error}") from error
        except InputError as error:
            raise InputError(f"{path}: {error}") from error

    @classmethod
    def _of_content(cls, content: dict[str, Any]) -> AuditResult:
        settings = content["settings"]
        schema = json.loads(Path(__file__).with_name("result.schema.json").read_text(encoding="utf-8"))
        lacks = [name for name in schema["properties"]["settings"]["required"] if name not in settings]
        if lacks:
            raise KeyError(f"the settings lack {lacks[0]!r}")
        findings = pd.DataFrame(content["findings"], columns=list(FINDING_TYPES)).astype(FINDING_TYPES)
        per_query = pd.DataFrame(content["per_query"], columns=PER_QUERY_COLUMNS).astype({"value": "float64"})
        skipped = pd.DataFrame(content["skipped"], columns=SKIPPED_COLUMNS)
        failed = pd.DataFrame(content["failed"], columns=FAILED_COLUMNS).fillna({"system": ""})
        parts = pd.DataFrame(content.get("attributions", []), columns=ATTRIBUTION_COLUMNS)
        parts = parts.astype(dict.fromkeys(FIGURE_KEY, "str") | PART_TYPES)
        queries, clusters = (dict(content.get(name, {})) for name in ("queries", "clusters"))
        result = cls(findings, per_query, skipped, failed, settings, queries=queries, attributions=parts, clusters=clusters)
        result._read_back = True
        return result

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the audit to a folder, either completely or not at all.

        The files are ``findings.csv``, ``per_query.csv``, ``audit.json``, ``index.html``, and the figures as PNG. In the CSV
        files, a text that a spreadsheet would read as a formula begins with an apostrophe; ``audit.json`` has it unchanged.

        Args:
            folder: A folder that does not exist yet, or is empty.
            overwrite: Whether an earlier audit in the folder may be replaced. Only the files that it wrote are replaced (the
                folder has a list of them); other files are kept. A result that was read from JSON or a pickle has no figures, so
                it does not replace an audit with figures.

        Returns:
            The folder.

        Raises:
            InputError: If the folder already holds something that may not be replaced, or a file of the earlier audit that has
                been changed since; if the result has no figures because it was read, and the earlier audit has some; or if the
                folder cannot be written, or its name looks like that of a file.
        """
        check_name(folder)
        if overwrite and self._read_back and not self.figures:
            pictures = [name for name in written_files(Path(folder).expanduser()) if name.endswith(".png")]
            if pictures:
                raise InputError(
                    f"{folder} holds an audit with figures ({pictures[0]}), but this result has none, because it was read from "
                    f"JSON or a pickle; name another folder"
                )
        with whole_folder(folder, holds=HOLDS, overwrite=overwrite) as scratch:
            self.write_files(scratch)
        return Path(folder).expanduser()

    def write_files(self, folder: Path) -> None:
        """Write the files of :meth:`save` into an existing folder.

        Args:
            folder: The folder.

        Raises:
            InputError: If the folder already has a file with one of these names.
        """
        findings, per_query, page = _TABLES
        write_whole(folder / findings, for_spreadsheets(self.findings).to_csv(index=False), replace=False)
        write_whole(folder / per_query, for_spreadsheets(self.per_query).to_csv(index=False), replace=False)
        write_whole(folder / RESULT_FILE, self.to_json(), replace=False)
        figures = tuple((bias, DrawnFigure.of(figure)) for bias, figure in self.figures)
        write_whole(folder / page, replace(self, figures=figures).to_html(), replace=False)
        written: set[str] = set()
        for bias, figure in figures:
            # A user's bias may give several figures the same name.
            first = file_name(f"{bias}-{figure.name}")
            names = (first, *(f"{first}-{number}" for number in range(2, len(figures) + 1)))
            name = next(name for name in names if name not in written)
            written.add(name)
            write_whole(folder / f"{name}.png", figure.pictures["png"], replace=False)


def check_name(folder: str | Path) -> None:
    """Refuse a folder name that looks like the name of a file, such as ``audit.json``.

    Args:
        folder: Where an audit is to be saved.

    Raises:
        InputError: If the name has an ending that files of an audit have.
    """
    if Path(folder).suffix.lower() in (".html", ".json", ".csv"):
        told = f"name a folder (the page in it is {_TABLES[2]})"
        raise InputError(f"{folder} looks like a file name, but an audit is saved as a folder; {told}")


def for_spreadsheets(table: pd.DataFrame) -> pd.DataFrame:
    """A table whose texts no spreadsheet reads as formulas: texts that look like one get an apostrophe in front.

    Args:
        table: Any table.

    Returns:
        The table; columns of numbers, and texts that are numbers, are unchanged.

    Example:
        >>> for_spreadsheets(pd.DataFrame({"qid": ["=1+1", "-7", "q1"], "value": [-1.0, 0.5, 2.0]}))["qid"].tolist()
        ["'=1+1", '-7', 'q1']
    """

    def plain(cell: Any) -> Any:
        return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell

    texts = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    return table.assign(**{name: table[name].map(plain, na_action="ignore") for name in texts})


def _plain(value: Any) -> Any:
    """A value in a form that JSON allows: undefined numbers become null."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _lines(frame: pd.DataFrame, **options: Any) -> str:
    """A table as a list of objects."""
    names = list(frame.columns)
    columns = [[_plain(value) for value in frame[name].tolist()] for name in names]
    return _rows((dict(zip(names, row)) for row in zip(*columns)), **options)


def _rows(objects: Iterable[dict[str, Any]], **options: Any) -> str:
    """A list of objects, one per line; indentation would double the time."""
    rows = ",\n".join(map(json.JSONEncoder(**options).encode, objects))
    return f"[\n{rows}\n]" if rows else "[]"
