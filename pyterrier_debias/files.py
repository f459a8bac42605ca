"""Files that are written whole or not at all. Floor 0."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyterrier_debias.errors import InputError


@contextmanager
def whole_folder(
    target: str | Path, *, overwrite: bool = False, ours: Callable[[str], bool] | None = None
) -> Iterator[Path]:
    """Fill a folder that appears under its name only once everything in it is written.

    A folder that is there already, such as the current one or one that is mounted, stays, and its new content is moved in at the
    end, entry by entry: it is empty or, with ``overwrite``, holds what is written anew.

    Args:
        target: The folder to make. Its parent is made where it is missing.
        overwrite: Whether an existing folder may be replaced.
        ours: Which entries of an existing folder are replaced, by their names; others stay. None means all of them, if one has
            the name of something that is written anew: a folder of anything else is never replaced.

    Yields:
        A temporary folder inside the target, or beside it where it does not exist; it is removed when the block raises.

    Raises:
        InputError: Before the block where the target exists and may not be replaced, or cannot be written. After it where its
            content cannot be put in place: then the temporary folder is kept, and the message says where it is.
    """
    place, shown = Path(target).resolve(), target
    there = place.exists()
    if there and not place.is_dir():
        raise InputError(f"{shown} exists already and is a file; name a folder")
    if there and not overwrite and any(place.iterdir()):
        raise InputError(f"{shown} exists already; name another folder, or allow it to be replaced")
    try:
        inside = place if there else place.parent
        inside.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=inside))
    except OSError as error:
        raise InputError(f"{shown} cannot be written: {error.strerror or error}") from error
    try:
        yield scratch
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        if place.exists():
            _fill(place, scratch, overwrite, ours)
        else:
            scratch.chmod(0o755)
            os.replace(scratch, place)
    except OSError as error:
        raise InputError(f"{shown} cannot be written: {error.strerror or error}; what was made is in {scratch}") from error
    except InputError as error:
        raise InputError(f"{shown} {error}; what was made is in {scratch}") from error


def _fill(target: Path, scratch: Path, overwrite: bool, ours: Callable[[str], bool] | None) -> None:
    """Move what a folder holds into another one, in place of what may be replaced there; all of it, or nothing."""
    new = sorted(entry.name for entry in scratch.iterdir())
    old = sorted(entry.name for entry in target.iterdir() if entry != scratch)
    going = [name for name in old if overwrite and (ours is None or ours(name))]
    if going and ours is None and not set(going) & set(new):
        raise InputError(f"holds nothing of the kind that is written ({', '.join(new[:3])}), so that it is not replaced")
    clash = sorted(set(old).difference(going).intersection(new))
    if clash:
        raise InputError(f"holds {clash[0]} already")
    attic = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target))
    moved: list[tuple[Path, Path]] = []
    try:
        for before, after in [*((target / n, attic / n) for n in going), *((scratch / n, target / n) for n in new)]:
            os.replace(before, after)
            moved.append((before, after))
    except BaseException:
        for before, after in reversed(moved):
            os.replace(after, before)
        attic.rmdir()
        raise
    scratch.rmdir()
    shutil.rmtree(attic, ignore_errors=True)


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
