"""The exceptions that users are meant to read. Floor 0."""


class InputError(ValueError):
    """Raised where the input, not the code, is at fault.

    The message is one line that names the place (stage, file and line, column or row) and the remedy; the
    command line prints it as it is and exits with code 2.
    """


class NotProvidedError(InputError):
    """Raised by a collection that has no such thing (a split, candidates, answers): who can do without it goes on."""
