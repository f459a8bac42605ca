"""Reading files line by line, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import Any

from pyterrier_debias.core.errors import InputError, kind_of

#: Largest number of bytes of an unpacked line: more than the largest question collection in one line of JSON, but few enough
#: that a damaged or malicious file does not fill the memory.
_LONGEST_LINE = 256 << 20
_GZIP = b"\x1f\x8b"
#: How UTF-16 begins, in either order of its bytes.
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)
#: An escape in JSON; the group is half of a surrogate pair without the other half.
_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]\w{2}\\u[dD][c-fC-F]\w{2}|(u[dD][89a-fA-F]\w{2})|.)")


def fault(path: str | Path, line: int, what: str, remedy: str) -> InputError:
    """Make the error for one line of a file.

    Args:
        path: The file, as the user named it.
        line: Number of the line, from 1.
        what: The problem.
        remedy: What to do about it.

    Returns:
        The exception, to be raised by the caller: ``qrels.txt:17: what; remedy``.
    """
    return InputError(f"{path}:{line}: {what}; {remedy}")


@contextmanager
def _opened(path: str | Path) -> Iterator[BufferedIOBase]:
    """Open a file, unpacking gzip by its first bytes rather than by its name."""
    try:
        file = open(Path(path).expanduser(), "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; check the path") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); name a readable file") from error
    with file:
        begin = file.read(2)
        whole: BufferedIOBase = file
        if file.seekable():
            file.seek(0)
        else:  # a pipe, such as /dev/stdin
            whole = BytesIO(begin + file.read())
        with gzip.open(whole) if begin == _GZIP else nullcontext(whole) as stream:
            yield stream


def read_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Read the lines of a UTF-8 file, plain or gzipped.

    Args:
        path: The file.

    Yields:
        Number (from 1) and text of each line that is not blank, without its line end.

    Raises:
        InputError: If the file is missing, empty, damaged, or not UTF-8, or has a line of more than 256 MiB.
    """
    number, offset, blank = 0, 0, True
    with _opened(path) as stream:
        try:
            for number, raw in enumerate(iter(lambda: stream.readline(_LONGEST_LINE + 1), b""), start=1):
                if len(raw) > _LONGEST_LINE:
                    what = f"the line has more than {_LONGEST_LINE >> 20} MiB"
                    raise fault(path, number, what, "write one record per line, or check the file")
                try:
                    line = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    if number == 1 and raw.startswith(_UTF16):
                        told = "the file is UTF-16, not UTF-8", "convert the file, e.g. iconv -f UTF-16 -t UTF-8"
                        raise fault(path, number, *told) from None
                    raise fault(
                        path, number, f"byte 0x{raw[error.start]:02x} at offset {offset + error.start} is not UTF-8",
                        "convert the file from its encoding, e.g. iconv -f ISO-8859-1 -t UTF-8",
                    ) from None
                offset += len(raw)
                if number == 1:
                    line = line.removeprefix("\ufeff")
                if line and not line.isspace():
                    blank = False
                    yield number, line.rstrip("\r\n")
        except _DAMAGED as error:
            raise _damaged(path, number + 1) from error
    if blank:
        raise InputError(f"{path}: the file is empty; copy or download it again")


def _damaged(path: str | Path, line: int) -> InputError:
    return fault(path, line, "the gzip file is damaged or ends here too early", "copy or download it again")


def read_json_lines(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the objects of a file with one JSON object per line.

    Args:
        path: The file, plain or gzipped.

    Yields:
        Number of the line and the object.

    Raises:
        InputError: As :func:`read_lines`, and if a line is not a JSON object or contains half of a surrogate pair.
    """
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise fault(
                path, number, f"not valid JSON at column {error.colno} ({error.msg})", "write one JSON object per line"
            ) from None
        if not isinstance(row, dict):
            raise fault(path, number, f"a JSON object was expected, found {kind_of(row)}", "write {...}")
        _check_halves(path, number, line)
        yield number, row


def read_json(path: str | Path) -> dict[str, Any]:
    """Read a file that contains one JSON object.

    Args:
        path: The file, plain or gzipped.

    Returns:
        The object.

    Raises:
        InputError: As :func:`read_lines`, and if the file is not one JSON object or contains half of a surrogate pair.
    """
    numbered = list(read_lines(path))
    try:
        content = json.loads("\n".join(line for _, line in numbered))
    except json.JSONDecodeError as error:
        raise fault(
            path, numbered[error.lineno - 1][0], f"not valid JSON at column {error.colno} ({error.msg})",
            "repair the file, or copy or download it again",
        ) from None
    if not isinstance(content, dict):
        raise fault(path, 1, f"a JSON object was expected, found {kind_of(content)}", "write {...}")
    for number, line in numbered:
        _check_halves(path, number, line)
    return content


def _check_halves(path: str | Path, number: int, line: str) -> None:
    """Refuse half of a surrogate pair, which JSON can contain but neither frames nor UTF-8 can."""
    if "\\ud" not in line and "\\uD" not in line:
        return
    half = next((found for found in _ESCAPE.finditer(line) if found[1]), None)
    if half is not None:
        what = f"column {half.start() + 1} holds half of a surrogate pair, {half[0]}"
        raise fault(path, number, what, "write both halves, or leave it out")


def read_head(path: str | Path) -> str:
    """Read the first 64 kB of a file, to recognise its format; bytes that are not UTF-8 are left out.

    Args:
        path: The file, plain or gzipped.

    Returns:
        The text.

    Raises:
        InputError: If the file is missing or damaged.
    """
    with _opened(path) as stream:
        try:
            return stream.read(1 << 16).decode("utf-8", errors="ignore")
        except _DAMAGED as error:
            raise _damaged(path, 1) from error


def stem(path: str | Path) -> str:
    """Return the name of a file without its folder, ``.gz`` and the ending for its format.

    Args:
        path: The file.

    Returns:
        ``dl19.bm25`` for ``runs/dl19.bm25.trec.gz``.
    """
    return re.sub(r"\.(jsonl?|tsv|txt|trec|run|res|xml)$", "", Path(path).name.removesuffix(".gz"))
