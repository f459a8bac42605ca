"""The exceptions that users are meant to read. Floor 0."""


class InputError(ValueError):
    """Raised where the input, not the code, is at fault.

    The message is one line that names the place (stage, file and line, column or row) and the remedy; the
    command line prints it as it is and exits with code 2.
    """


class NotProvidedError(InputError):
    """Raised by a collection that has no such thing (a split, candidates, answers): who can do without it goes on."""


def in_one_line(error: BaseException) -> str:
    """What was raised, in one line; of what Java raises its class and message, without the stack.

    Args:
        error: Anything that was raised.

    Returns:
        Class and message.
    """
    kind = getattr(error, "classname", None)
    if isinstance(kind, str):  # jnius.JavaException
        message = getattr(error, "innermessage", None) or ""
        return " ".join(f"{kind.rpartition('.')[2]}: {message}".split())
    return " ".join(f"{type(error).__name__}: {error}".split())
