"""Readers of corpora, topics, judgements and runs: from files to frames.

There is one reader for each of the four; it recognises the format by the first line. All files are UTF-8 and may be gzipped. All
identifiers are strings without surrounding space. Errors in a file are reported with its name and line.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice, kind_of, shortened
from pyterrier_debias.core.frames import HIGHEST, ranked
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.data.lines import fault, read_json_lines, read_lines

_DOCNO_NAMES = ("docno", "_id", "doc_id", "docid", "pid", "id")
_QID_NAMES = ("qid", "_id", "query_id", "query-id", "id")
_TEXT_NAMES = ("text", "contents", "body", "passage")
_QUERY_NAMES = ("query", "text", "title", "question")
#: What the columns are called in a header, in lower case; the preferred name first.
_HEADER = {
    "qid": _QID_NAMES,
    "docno": (*_DOCNO_NAMES, "corpus-id"),
    "text": _TEXT_NAMES,
    "query": _QUERY_NAMES,
    "label": ("label", "relevance", "score"),
    "iteration": ("iteration", "iter", "q0"),
}
#: The possible orders of tied scores in a run's file, the default first.
TIES = ("docno", "rank")


def read_corpus(path: str | Path, *, columns: Sequence[str] = ("docno", "text")) -> pd.DataFrame:
    """Read the documents of a corpus from a file.

    Formats, distinguished by the first character: JSON lines (``_id`` or ``docno``, ``text`` or ``contents``, and other fields,
    as BEIR and Anserini write them), TREC documents (``<DOC><DOCNO>``; tags are dropped and white space is collapsed),
    and tab-separated values (MS MARCO). If their first line is a header, its names decide which field is which.

    Args:
        path: The file, plain or gzipped.
        columns: Names of the fields of tab-separated values, in order if they have no header.

    Returns:
        Frame ``docno``, ``text`` and the other string fields, such as ``title``; one row per document, in the file's order.

    Raises:
        InputError: With file and line, for a wrong number of fields, a header with other columns, a docno that is empty or
            occurs twice, invalid JSON, bytes that are not UTF-8, or a damaged, empty or missing file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "collection.tsv")
        >>> _ = path.write_text("d1\\ta passage\\nd2\\tanother passage\\n")
        >>> read_corpus(path)["docno"].tolist()
        ['d1', 'd2']

    When not to use it: for collections that do not fit into memory; give their ``ir_datasets`` id to ``open_dataset``.
    """
    first = _first_character(path)
    if first == "{":
        rows = _json_records(path, "docno", _DOCNO_NAMES, "text", _TEXT_NAMES)
    elif first == "<":
        rows = _trec_documents(path)
    else:
        if "docno" not in columns:
            told = f"columns={tuple(columns)!r} does not contain 'docno'; name the field that holds the identifier 'docno'"
            raise InputError(f"read_corpus: {told}")
        rows = _tsv_records(path, columns, "docno")
    return _unique(path, rows, "docno")


def read_topics(path: str | Path) -> pd.DataFrame:
    """Read topics from a file.

    Formats, distinguished by the first characters: JSON lines (``_id`` or ``qid``, ``text`` or ``query``, as in BEIR), classic
    TREC topics (``<top><num><title>``; the title is the query) and XML topics (``<topic number=...>``; ``<query>``,
    ``<question>`` and ``<narrative>`` are the query, or ``<title>`` if there is no ``<query>``), both through PyTerrier, and
    tab-separated ``qid`` and query (MS MARCO). If their first line is a header, its names decide which field is which.

    Args:
        path: The file, plain or gzipped.

    Returns:
        Frame ``qid``, ``query`` and, from JSON lines, the other string fields; one row per topic, in the file's order.

    Raises:
        InputError: With file and line, for the same errors as :func:`read_corpus`.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "topics.tsv")
        >>> _ = path.write_text("156493\\tdo goldfish grow\\n")
        >>> read_topics(path).values.tolist()
        [['156493', 'do goldfish grow']]
    """
    first = _first_character(path)
    if first == "{":
        rows = _json_records(path, "qid", _QID_NAMES, "query", _QUERY_NAMES)
    elif first == "<":
        rows = _trec_topics(path)
    else:
        rows = _tsv_records(path, ("qid", "query"), "qid")
    frame = _unique(path, rows, "qid")
    return frame.assign(query=frame["query"].str.strip())


def read_qrels(path: str | Path) -> pd.DataFrame:
    """Read relevance judgements from a file.

    Formats, distinguished by the number of fields in the first line: TREC (``qid iteration docno label``) and BEIR
    (``query-id corpus-id score``). If there is a header, its names decide which field is which. If the first line after it
    consists of 3 or 4 fields separated by tabs, tabs separate the fields of the whole file, so identifiers may contain spaces; in
    other files, any white space separates them.

    Args:
        path: The file, plain or gzipped.

    Returns:
        Frame ``qid``, ``docno``, ``label`` (integer), in the file's order.

    Raises:
        InputError: With file and line, for a wrong number of fields, a header with other columns, an empty identifier, a label
            that is not a whole number up to 1,000,000, a (qid, docno) pair that is judged twice, bytes that are not UTF-8, or a
            damaged, empty or missing file.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "qrels.txt")
        >>> _ = path.write_text("q1 0 d1 2\\n")
        >>> read_qrels(path).values.tolist()
        [['q1', 'd1', 2]]
    """
    lines = read_lines(path)
    begin, first = next(lines)
    cells = first.split("\t" if "\t" in first else None)
    header = _header(path, begin, cells, _judged(len(cells)), "qid")
    if header is not None:
        begin, first = next(lines, (1, ""))
    separator = "\t" if first.count("\t") in (2, 3) else None
    width = len(first.split(separator))
    if width not in (3, 4):
        raise fault(
            path, begin, f"3 or 4 fields were expected, found {width}",
            "write 'qid 0 docno label' (TREC) or 'qid<TAB>docno<TAB>label' (BEIR)",
        )
    columns = _judged(width) if header is None else header
    width, layout = len(columns), " ".join(columns).replace("iteration", "0")
    of_qid, of_docno, of_label = (columns.index(column) for column in _judged(3))
    numbers, qids, docnos, labels = [], [], [], []
    for number, line in chain([(begin, first)], lines):
        fields = [field.strip() for field in line.split(separator)]
        if len(fields) != width:
            raise fault(path, number, f"{width} fields were expected, found {len(fields)}", f"write '{layout}'")
        if not (fields[of_qid] and fields[of_docno]):
            raise fault(path, number, "the qid or the docno is empty", f"write '{layout}'")
        try:
            label = int(_numeral(fields[of_label]))
        except ValueError:
            raise fault(path, number, f"label {fields[of_label]!r} is not a whole number", f"write '{layout}'") from None
        if abs(label) > HIGHEST:
            what = f"label {shortened(fields[of_label], 40)} is not a whole number up to {HIGHEST}"
            raise fault(path, number, what, f"write '{layout}'")
        labels.append(label)
        numbers.append(number)
        qids.append(fields[of_qid])
        docnos.append(fields[of_docno])
    return _checked_pairs(path, pd.DataFrame({"qid": qids, "docno": docnos, "label": labels}), numbers)


def _judged(width: int) -> list[str]:
    """The columns of judgements with that many fields."""
    return ["qid", "docno", "label"] if width == 3 else ["qid", "iteration", "docno", "label"]


def read_run(path: str | Path, *, ties: str = "docno") -> pd.DataFrame:
    """Read a TREC run from a file.

    Ranks are computed from the scores, as in trec_eval: by descending score, with ties by descending docno; the file's own ranks
    are ignored. In a file with rounded scores, only the file's ranks show the order of tied documents: ``ties='rank'`` uses them
    among equal scores, and lowers the later scores by the smallest step of trec_eval's 32-bit floats, so that every evaluator
    sees this order. Documents that are not in the corpus are kept; the text loader names them when their text is needed.

    Args:
        path: The file, plain or gzipped: ``qid Q0 docno rank score tag``.
        ties: How tied scores are ordered: by ``'docno'`` or by the file's ``'rank'``.

    Returns:
        Frame ``qid``, ``docno``, ``score``, ``rank`` (from 0), sorted by rank within each query; queries in the file's order.

    Raises:
        InputError: With file and line, for a wrong number of fields, a score that is NaN or not a number, a (qid, docno) pair
            that is ranked twice, bytes that are not UTF-8, or a damaged, empty or missing file; for an invalid ``ties``.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "bm25.trec")
        >>> _ = path.write_text("q1 Q0 d1 1 7.5 bm25\\nq1 Q0 d2 2 8.5 bm25\\n")
        >>> read_run(path).values.tolist()
        [['q1', 'd2', 8.5, 0], ['q1', 'd1', 7.5, 1]]
    """
    check_choice("read_run", "ties", ties, TIES)
    layout = "write 'qid Q0 docno rank score tag'"
    numbers, qids, docnos, scores, places = [], [], [], [], []
    for number, line in read_lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise fault(path, number, f"6 fields were expected, found {len(fields)}", layout)
        try:
            score = float(_numeral(fields[4]))
        except ValueError:
            raise fault(path, number, f"score {fields[4]!r} is not a number", layout) from None
        if math.isnan(score):
            raise fault(path, number, "the score is NaN", "a document without a score has no rank: leave such lines out")
        if ties == "rank":
            try:
                places.append(float(_numeral(fields[3])))
            except ValueError:
                raise fault(path, number, f"rank {fields[3]!r} is not a number", layout) from None
        numbers.append(number)
        qids.append(fields[0])
        docnos.append(fields[2])
        scores.append(score)
    frame = _checked_pairs(path, pd.DataFrame({"qid": qids, "docno": docnos, "score": scores}), numbers)
    if ties == "rank":
        frame = frame.assign(score=_untied(qids, scores, places))
    return ranked(frame, str(path))


def read_table(path: str | Path) -> pd.DataFrame:
    """Read tab-separated values with a header, or comma-separated ones if the header contains commas and no tab.

    Comma-separated fields may be quoted; a quoted field may not contain a line break.

    Args:
        path: The file, plain or gzipped.

    Returns:
        A frame of strings with the header's columns.

    Raises:
        InputError: With file and line, for a wrong number of fields, and for the errors of :func:`~.lines.read_lines`.
    """
    lines = read_lines(path)
    first = next(lines)[1]
    separator = "," if "," in first and "\t" not in first else "\t"
    header = _cut(first, separator)
    rows = [_fields(path, number, line, header, separator) for number, line in lines]
    return pd.DataFrame(rows, columns=header)


def _numeral(text: str) -> str:
    """A number's text, without Python's underscores: no other program writes them, so here they mean a damaged file."""
    if "_" in text:
        raise ValueError(text)
    return text


def _untied(qids: list[str], scores: list[float], places: list[float]) -> list[float]:
    """Make scores strictly decreasing within each query, in the order of score and then of place.

    The steps are those of 32-bit floats, in which trec_eval stores scores: downwards, or upwards where there is none below.
    """
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], places[i]))
    return _stepwise(qids, scores, order, -np.inf) or _stepwise(qids, scores, order[::-1], np.inf) or scores


def _stepwise(qids: list[str], scores: list[float], order: list[int], toward: float) -> list[float] | None:
    """Scores that differ from the one before them by a step at least; None if one cannot."""
    result, last = list(scores), dict[str, float]()
    for i in order:
        if qids[i] in last:
            with np.errstate(over="ignore"):  # beyond the last number is infinity
                step = float(np.nextafter(np.float32(last[qids[i]]), np.float32(toward)))
            result[i] = max(scores[i], step) if toward > 0 else min(scores[i], step)
            if result[i] == toward:
                return None
        last[qids[i]] = result[i]
    return result


def _checked_pairs(path: str | Path, frame: pd.DataFrame, numbers: list[int]) -> pd.DataFrame:
    """Return the frame if its (qid, docno) pairs are distinct; ``numbers`` are the numbers of their lines."""
    repeated = frame.duplicated(["qid", "docno"]).to_numpy()
    if repeated.any():
        second = int(repeated.argmax())
        qid, docno = frame["qid"].iloc[second], frame["docno"].iloc[second]
        first = int(((frame["qid"] == qid) & (frame["docno"] == docno)).to_numpy().argmax())
        raise fault(
            path, numbers[second], f"qid {qid!r} and docno {docno!r} already occur together in line {numbers[first]}",
            "keep one line per pair",
        )
    return frame


def _first_character(path: str | Path) -> str:
    with suppress(OSError):  # a name that no file can have is reported when it is opened
        if Path(path).expanduser().is_fifo():
            raise InputError(f"{path}: the file is read twice, but a pipe can be read only once; write it to a file first")
    return next(read_lines(path))[1].lstrip()[:1]


#: How a JSON array of objects begins.
_JSON_ARRAY = re.compile(r"\s*\[\s*(\{|$)")


def _cut(line: str, separator: str) -> list[str]:
    return line.split("\t") if separator == "\t" else next(csv.reader([line]), [])


def _fields(path: str | Path, number: int, line: str, columns: Sequence[str], separator: str = "\t") -> list[str]:
    fields = _cut(line, separator)
    if len(fields) != len(columns):
        if number == 1 and _JSON_ARRAY.match(line):
            raise fault(path, number, "the file is a JSON array", "write one JSON object per line, e.g. with jq -c '.[]'")
        name, sign = ("tab", "<TAB>") if separator == "\t" else ("comma", separator)
        raise fault(
            path, number, f"{len(columns)} {name}-separated fields were expected, found {len(fields)}",
            f"write '{sign.join(columns)}'",
        )
    return fields


def _header(path: str | Path, number: int, cells: Sequence[str], columns: Sequence[str], id_column: str) -> list[str] | None:
    """The column of each field, by the names in the first line; None if this is no header.

    A header begins with a name of the identifier's column, or has its preferred name, or one of its names and one of another
    column than the iteration (a document may be called ``id``). An unknown name is that of the column at its place.
    """
    names, found = [cell.strip().lower() for cell in cells], dict[int, str]()
    for column in columns:
        for name in _HEADER.get(column, (column.lower(),)):
            if column not in found.values() and name in names and names.index(name) not in found:
                found[names.index(name)] = column
    own, known = _HEADER[id_column], set(found.values()) - {"iteration"}
    if not (names[0] in own or own[0] in names or (id_column in known and len(known) > 1)):
        return None
    if len(cells) == len(columns):
        unknown = {place: column for place, column in enumerate(columns) if names[place] and column not in found.values()}
        found = {**unknown, **found}
    if len(found) != len(cells) or set(found.values()) != set(columns):
        there = ", ".join(cell.strip() or "''" for cell in cells)
        wanted = ", ".join(column for column in columns if column != "iteration")
        raise fault(path, number, f"the header is {there}", f"write the columns {wanted} (to_csv(index=False))")
    return [found[place] for place in range(len(cells))]


def _tsv_records(path: str | Path, columns: Sequence[str], id_column: str) -> Iterator[tuple[int, dict[str, str]]]:
    lines = read_lines(path)
    number, first = next(lines)
    header = _header(path, number, first.split("\t"), columns, id_column)
    if header is None:
        lines = chain([(number, first)], lines)
    order = header or columns
    for number, line in lines:
        row = dict(zip(order, _fields(path, number, line, order)))
        yield number, {column: row[column] for column in columns}


def _json_records(
    path: str | Path, id_column: str, id_names: Sequence[str], text_column: str, text_names: Sequence[str]
) -> Iterator[tuple[int, dict[str, str]]]:
    """Objects with identifier and text under this library's names, and their other strings."""
    for number, row in read_json_lines(path):
        id_name = json_field(path, number, row, id_names)
        text_name = json_field(path, number, row, text_names)
        if not isinstance(row[text_name], str):
            raise fault(path, number, f"field {text_name!r} is {kind_of(row[text_name])}", "write a string")
        others = {k: v for k, v in row.items() if isinstance(v, str) and k not in (id_name, text_name)}
        yield number, {id_column: str(row[id_name]), text_column: row[text_name], **others}


def json_field(path: str | Path, number: int, row: dict[str, Any], names: Sequence[str]) -> str:
    """Find which of several names an object uses for a field.

    Args:
        path: The file, for the message.
        number: The line, for the message.
        row: The object.
        names: The names, the preferred one first.

    Returns:
        The first name with a value that is not null.

    Raises:
        InputError: With file and line, if there is none.
    """
    for name in names:
        if row.get(name) is not None:
            return name
    for name in names:
        if name in row:
            raise fault(path, number, f"field {name!r} is null", "give it a value, or leave the line out")
    raise fault(path, number, f"no field {names[0]!r} (it has {', '.join(row) or 'none'})", f"name it {names[0]!r}")


#: "a < b" is not a tag.
_TAG = re.compile(r"<[/!?A-Za-z][^<>]*>")
_DOCNO = re.compile(r"<DOCNO>\s*(.*?)\s*</DOCNO>", re.IGNORECASE | re.DOTALL)


def _trec_documents(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    begin: int | None = None
    parts: list[str] = []
    for number, line in read_lines(path):
        mark = line.strip().upper()
        if mark == "<DOC>":
            if begin is not None:
                raise fault(path, number, f"the document that begins in line {begin} does not end", "write </DOC>")
            begin, parts = number, []
        elif mark == "</DOC>":
            if begin is None:
                raise fault(path, number, "</DOC> ends a document that did not begin", "write <DOC> on a line of its own")
            text = " ".join(parts)
            docno = _DOCNO.search(text)
            if docno is None:
                raise fault(path, begin, "the document has no docno", "write <DOCNO>...</DOCNO>")
            rest = text[: docno.start()] + text[docno.end() :]
            yield begin, {"docno": docno[1], "text": " ".join(_TAG.sub(" ", rest).split())}
            begin = None
        elif begin is None:
            raise fault(path, number, "there is text outside of a document", "write <DOC> on a line of its own")
        else:
            parts.append(line)
    if begin is not None:
        raise fault(path, begin, "the document that begins here does not end", "copy or download the file again")


def _trec_topics(path: str | Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Topics as PyTerrier parses them, each with the line in which it begins."""
    numbered = list(read_lines(path))
    classic = [number for number, line in numbered for _ in re.finditer(r"<top>", line, re.IGNORECASE)]
    modern = [number for number, line in numbered for _ in re.finditer(r"<topic[\s>]", line)]
    begins = classic or modern
    whole = "\n".join(line for _, line in numbered)
    try:
        topics = _classic_topics(whole) if classic else _xml_topics(whole)
    except Exception as error:
        raise fault(
            path, begins[0] if begins else numbered[0][0], f"not TREC topics ({error})",
            "write <top><num>..<title>..</top> for each topic",
        ) from error
    if len(topics) != len(begins):
        raise InputError(f"{path}: {len(begins)} topics begin and {len(topics)} were recognised; end each one before the next")
    for number, qid, query in zip(begins, topics["qid"], topics["query"]):
        if not query:
            lacks, tag = ("title", "title") if classic else ("query or title", "query")
            raise fault(path, number, f"topic {qid!r} has no {lacks}", f"write <{tag}>...</{tag}>")
        yield number, {"qid": qid, "query": query}


def _classic_topics(text: str) -> pd.DataFrame:
    """PyTerrier's parse of a file; it decides by the name alone whether the file is gzipped, and uses the system's encoding.

    Letters that this encoding may lack are written as character references, which the parser reads.
    """
    with scratch_folder() as folder:
        (folder / "topics").write_bytes(text.encode("ascii", "xmlcharrefreplace"))
        return pt.io.read_topics(str(folder / "topics"), format="trec")


def _xml_topics(text: str) -> pd.DataFrame:
    """PyTerrier's parse, which ignores titles; for a topic without a query, its title."""
    topics = pt.io.read_topics(StringIO(text), format="trecxml")  # type: ignore[arg-type]  # files are taken too, undeclared
    parts = [
        [topic.findtext(tag, "").strip() for tag in ("query", "title")] for topic in ElementTree.fromstring(text).iter("topic")
    ]
    return topics.assign(query=[read if query else title or read for read, (query, title) in zip(topics["query"], parts)])


def _unique(path: str | Path, rows: Iterator[tuple[int, dict[str, str]]], id_column: str) -> pd.DataFrame:
    """A frame of the rows, whose identifiers must exist and be distinct; strings that some rows lack are empty."""
    lines: dict[str, int] = {}
    records = []
    for number, row in rows:
        name = row[id_column].strip()  # judgements and runs have no spaces in theirs
        if not name:
            raise fault(path, number, f"the {id_column} is empty", f"give every line a {id_column}")
        if name in lines:
            raise fault(path, number, f"{id_column} {name!r} already occurs in line {lines[name]}", "keep one of the two")
        lines[name] = number
        records.append({**row, id_column: name})
    if not records:
        raise InputError(f"{path}: the file has only a header; copy or download the file again")
    return pd.DataFrame(records).fillna("")
