"""Files that are written whole or not at all. Floor 0."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyterrier_debias.errors import InputError


@contextmanager
def whole_folder(target: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Fill a folder that appears under its name only once everything in it is written.

    Args:
        target: The folder to make. Its parent is made where it is missing.
        overwrite: Whether an existing folder may be replaced.

    Yields:
        A temporary folder beside the target; it takes the target's place when the block ends, and is removed when the
        block raises.

    Raises:
        InputError: Where the target exists and may not be replaced, or cannot be written.
    """
    target = Path(target)
    if target.exists() and not overwrite and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} exists already; name another folder, or allow it to be replaced")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from error
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
            os.replace(target, old / "old")
            os.replace(scratch, target)
            shutil.rmtree(old)
        else:
            os.replace(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def write_whole(target: str | Path, content: str | bytes) -> None:
    """Write one file under a temporary name and move it into place.

    Args:
        target: The file.
        content: Text (written as UTF-8) or bytes.

    Raises:
        InputError: Where the place cannot be written.
    """
    target = Path(target)
    data = content.encode() if isinstance(content, str) else content
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(scratch, 0o644)
            os.replace(scratch, target)
        except BaseException:
            os.unlink(scratch)
            raise
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from error
