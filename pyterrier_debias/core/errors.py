"""Exceptions for users, and readable messages for exceptions of other packages."""

from __future__ import annotations

import math
import numbers
import re
import traceback
from collections.abc import Iterable
from typing import Any

#: How many characters of another library's message are shown.
_LONGEST = 300

_JAVA = "JVM exception occurred:"
#: A line of Java's stack, or of its list of causes.
_JAVA_STACK = re.compile(
    r"\s+(at )?[\w.$/]+\.[\w$<>]+\(([\w$]+\.(java|kt|scala):\d+|Native Method|Unknown Source)\)|\s*\.\.\. \d+ more"
)
#: Control characters, surrogates, line and paragraph separators, and what changes the direction of writing.
_INVISIBLE = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069]")
#: A path with at least two parts; its last part is kept.
_PATH = re.compile(r"(?<![\w./:])(?:/[\w.+@%~-]+)+/([\w.+@%~-]+)")


class InputError(ValueError):
    """Raised if the input is at fault, not the code: an unknown option, a missing column, a damaged file.

    The message is one line that says where the error is (stage, file and line, column or row) and how to fix it. The
    command line prints this line and exits with code 2.

    Example:
        >>> try:
        ...     raise InputError("topics.tsv, line 3: the query is missing; write qid, a tab and the query")
        ... except ValueError as error:
        ...     print(error)
        topics.tsv, line 3: the query is missing; write qid, a tab and the query
    """


class NotProvidedError(InputError):
    """Raised by a collection that does not provide something (a split, candidates, answers); callers can do without it."""


def check_choice(where: str, option: str, value: Any, choices: Iterable[Any], also: str = "") -> None:
    """Refuse a value that an option cannot have.

    All choices of the package are checked here, so that a misspelt choice is never mistaken for another.

    Args:
        where: The function or stage that the message names.
        option: The option's name.
        value: The given value.
        choices: The possible values: words, and None if the option may be left unset.
        also: What else is possible, in words; the caller has already checked for it.

    Raises:
        InputError: If the value is not one of the choices.

    Example:
        >>> check_choice("correct", "method", "holm", ("holm", "bonferroni"))
        >>> check_choice("correct", "method", "hol", ("holm", "bonferroni"))
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: correct: method='hol' is not known; use one of 'holm', 'bonferroni'
    """
    known = tuple(choices)
    # A frame or an array is not to be compared with words.
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in known):
        several = ", ".join(map(repr, known)) + (f", or {also}" if also else "")
        raise InputError(f"{where}: {option}={shortened(repr(value), 80)} is not known; use one of {several}")


def check_number(
    where: str,
    option: str,
    value: Any,
    *,
    above: float | None = None,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
    hint: str = "",
) -> None:
    """Refuse a value that is not a finite number within its range.

    Args:
        where: The function or stage that the message names.
        option: The option's name.
        value: The given value; NumPy numbers are accepted, True and text are not.
        above: The number that it must be above.
        least: The smallest number that is accepted.
        most: The largest number that is accepted.
        whole: Whether it must be of an integer type (5.0 is not).
        hint: An addition to the message.

    Raises:
        InputError: If it is not such a number.

    Example:
        >>> check_number("CETReranker", "tau", "1", above=0)
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: CETReranker: tau='1' must be a number above 0
    """
    lower = f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
    kinds = numbers.Integral if whole else numbers.Real
    number = isinstance(value, kinds) and not isinstance(value, bool) and (whole or is_finite(value))
    if (
        not number
        or (above is not None and not value > above)
        or (least is not None and not value >= least)
        or (most is not None and not value <= most)
    ):
        upper = "" if most is None else f"{' and' if lower else ' of'} at most {most:g}"
        noun = "whole number" if whole else "number"
        kind = f"a {noun}{lower}{upper}" if lower or upper or whole else "a finite number"
        raise InputError(f"{where}: {option}={shortened(repr(value), 80)} must be {kind}" + (f"; {hint}" if hint else ""))


def kind_of(value: Any) -> str:
    """The type of a value, with its article, for messages.

    Args:
        value: Any value.

    Returns:
        The name of its class after "a" or "an"; ``None`` for None.

    Example:
        >>> kind_of(1), kind_of("one"), kind_of(None)
        ('an int', 'a str', 'None')
    """
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name.lower().startswith((*'aeio', 'ndarray')) else 'a'} {name}"


def is_finite(value: Any) -> bool:
    """Whether a number is finite as a float.

    Args:
        value: A number.

    Returns:
        True or False; False also for an integer that is larger than any float.

    Example:
        >>> is_finite(2), is_finite(float("nan")), is_finite(10**400)
        (True, False, False)
    """
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def one_line(error: BaseException, *, longest: int = _LONGEST) -> str:
    """Another library's exception in one line: its kind and its message, without a stack trace.

    The message of a Java exception contains Java's stack; only the class and the first line are kept. Of a path, such as that of
    an index in a temporary folder, only the last part is kept, unless the exception is about a file.

    Args:
        error: Any exception.
        longest: How many characters of the message are shown; a longer message is cut in the middle.

    Returns:
        The line.

    Example:
        >>> one_line(KeyError("docno"))
        "KeyError: 'docno'"
        >>> one_line(ValueError("no\\n   column " + "x" * 500 + " end"), longest=30)
        'ValueError: no column xxxxxxxxxxxxx ... xxx end'
    """
    kind, message = type(error).__name__, str(error)
    java = getattr(error, "classname", None)
    if isinstance(java, str) and hasattr(error, "innermessage"):
        kind, message = java.rpartition(".")[2], str(error.innermessage or "")
    if java or _JAVA in message:
        lines = message.replace(_JAVA, " ").splitlines()
        message = next((line for line in lines if line.strip()), "")
    if not isinstance(error, OSError):
        message = _PATH.sub(r"\1", message)
    return f"{kind}: {shortened(message, longest)}".removesuffix(": ")


def shortened(text: str, longest: int) -> str:
    """Shorten a text to one line of limited length.

    Args:
        text: Any text.
        longest: The number of characters to keep, not counting the mark of the gap.

    Returns:
        The text with single spaces; of a longer text, the beginning and the end.

    Example:
        >>> shortened("one  two", 10), shortened("0123456789", 8)
        ('one two', '012345 ... 89')
    """
    text = " ".join(text.split())
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end].rstrip()} ... {text[len(text) - end :].lstrip()}"


def visible(text: str) -> str:
    """A name that is safe to show in terminals and pictures: one line, without control characters.

    Args:
        text: Any text.

    Returns:
        The text; control characters, line ends, lone surrogates and marks that change the direction of writing are replaced with
        the replacement character (U+FFFD).

    Example:
        >>> visible("BM25\\x1b[31m"), visible("größe मात्रा")
        ('BM25\ufffd[31m', 'größe मात्रा')
    """
    return _INVISIBLE.sub("\ufffd", text)


def trace(error: BaseException) -> str:
    """The traceback of an exception, without Java's stack.

    Args:
        error: Any exception.

    Returns:
        Several lines, as Python prints them.
    """
    lines = "".join(traceback.format_exception(error)).splitlines(keepends=True)
    return "".join(line for line in lines if not _JAVA_STACK.match(line.rstrip("\n")))
