"""Files that are written whole or not at all, and never overwrite files of other programs.

Whatever :func:`whole_folder` fills gets a small hidden file, :data:`MANIFEST`, that lists what was written, with checksums.
A file counts as written by this package where such a list names it and its content is still the listed one. Nothing else is ever
replaced or removed.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any

from pyterrier_debias._version import __version__
from pyterrier_debias.core.errors import InputError

#: The list of what was written into a folder.
MANIFEST = ".pyterrier_debias-files.json"
#: The name in every mark of this package.
PACKAGE = "pyterrier_debias"

#: How names of temporary files and folders end; a process that is killed leaves them behind.
_UNFINISHED = f".{PACKAGE}"
_BLOCK = 1 << 20


@dataclass(frozen=True)
class _Written:
    """What a folder's list says.

    Attributes:
        content: The list as it lies there.
        holds: What the files are, in words.
        files: Path in the folder, with slashes, to size and checksum.
    """

    content: bytes
    holds: str
    files: dict[str, tuple[int, str]]


@contextmanager
def whole_folder(target: str | Path, *, holds: str = "files", overwrite: bool = False) -> Iterator[Path]:
    """Fill a folder that appears under its name only once everything in it is written.

    An existing folder, such as the current one or a mounted one, is kept, and its new content is moved in at the
    end, file by file: it is empty or, with ``overwrite``, holds an earlier result. Then the earlier result's files are replaced
    or removed, according to their list in the folder (:data:`MANIFEST`); other files and folders there are not changed.

    Args:
        target: The folder to make. Its parent is made where it is missing.
        holds: What is written, in words with their article (``'an audit'``); one thing does not replace another.
        overwrite: Whether an earlier result there may be replaced.

    Yields:
        A temporary folder inside the target, or beside it where it does not exist; it is removed when the block raises.

    Raises:
        InputError: Before the block, as :func:`check_folder`, and where the target cannot be written. After it where a file must
            have the name of one that is not ours, where the target was changed meanwhile, or its content cannot be put in place:
            then nothing there is changed, the temporary folder is kept, and the message says where it is.
    """
    place, shown = Path(target).resolve(), target
    earlier, stamps = _checked(place, shown, holds, overwrite)
    try:
        inside = place if place.exists() else place.parent
        inside.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_UNFINISHED, dir=inside))
    except OSError as error:
        raise InputError(f"{shown} cannot be written: {error.strerror or error}") from error
    try:
        yield scratch
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    try:
        _list_files(scratch, holds)
        if place.exists():
            _fill(place, scratch, earlier, stamps)
        else:
            scratch.chmod(0o755)
            os.replace(scratch, place)
    except OSError as error:
        raise InputError(f"{shown} cannot be written: {error.strerror or error}; what was made is in {scratch}") from error
    except InputError as error:
        raise InputError(f"{shown} {error}; what was made is in {scratch}") from error


def check_folder(target: str | Path, *, holds: str = "files", overwrite: bool = False) -> None:
    """Refuse a folder that :func:`whole_folder` would refuse, before work is done for it.

    Args:
        target: The folder.
        holds: See :func:`whole_folder`.
        overwrite: See :func:`whole_folder`.

    Raises:
        InputError: If the target is a file; where it holds an earlier result that may not be replaced, is of another kind, or
            has a file that was changed since; where it holds anything, and no list of what this package wrote.
    """
    _checked(Path(target).resolve(), target, holds, overwrite)


def entries(folder: Path) -> list[Path]:
    """The contents of a folder, except unfinished files of a killed process.

    Args:
        folder: An existing folder.

    Returns:
        Its files and folders by their names.
    """
    return sorted(path for path in folder.iterdir() if not is_unfinished(path))


def is_unfinished(path: Path) -> bool:
    """Whether a file or folder has a temporary name of this module.

    Args:
        path: Any path.

    Returns:
        Whether a process writes it just now, or was killed while it did.
    """
    return path.name.startswith(".") and path.name.endswith(_UNFINISHED)


def check_empty(folder: str | Path, caller: str) -> None:
    """Refuse to write a model over anything.

    Args:
        folder: Where it is to be written; need not exist.
        caller: The method, for the message.

    Raises:
        InputError: If the folder holds anything.
    """
    folder = Path(folder)
    held = entries(folder) if folder.is_dir() else []
    if held:
        raise InputError(f"{caller}: {folder} holds {held[0].name}; name an empty folder, or use save()")


def remove_written(folder: Path) -> None:
    """Remove what :func:`whole_folder` put into a folder, and the folder where nothing else is in it.

    Args:
        folder: The folder. Files that were changed since, and others, stay.
    """
    written = _read(folder)
    if written is None:
        return
    removed = [name for name, listed in written.files.items() if _unchanged(folder, name, listed)]
    for name in removed:
        (folder / name).unlink()
    (folder / MANIFEST).unlink()
    _remove_empty(folder, written.files)
    with suppress(OSError):
        folder.rmdir()


def _checked(
    place: Path, shown: str | Path, holds: str, overwrite: bool
) -> tuple[_Written | None, dict[str, tuple[int, int, int]]]:
    """What an earlier result left in a folder that may be filled, and the stamps of its files that are still there."""
    if not place.exists():
        return None, {}
    if not place.is_dir():
        raise InputError(f"{shown} exists already and is a file; name a folder")
    try:
        held = entries(place)
        written = _read(place)
        if not held:
            return None, {}
        if written is None:
            raise InputError(
                f"{shown} exists already and holds files that {PACKAGE} did not write ({held[0].name}); name another folder"
            )
        if written.holds != holds:
            raise InputError(f"{shown} exists already and holds {written.holds}, not {holds}; name another folder")
        if not overwrite:
            raise InputError(
                f"{shown} exists already and holds {holds}; name another folder, or allow it to be replaced (overwrite=True, "
                f"--overwrite)"
            )
        stamps = {}
        for name, listed in written.files.items():
            if os.path.lexists(place / name):
                stamp = _stamp(place / name)
                if not _unchanged(place, name, listed):
                    raise InputError(
                        f"{shown} holds {name}, which has changed since {PACKAGE} wrote it; move it away, or name another folder"
                    )
                stamps[name] = stamp
    except OSError as error:
        raise InputError(f"{shown} cannot be read: {error.strerror or error}") from error
    return written, stamps


def _read(folder: Path) -> _Written | None:
    """The list in a folder; None if there is none, or it is not ours."""
    try:
        content = (folder / MANIFEST).read_bytes()
        told = json.loads(content)
        files = {str(name): (int(about["bytes"]), str(about["blake2b"])) for name, about in told["files"].items()}
        ours = told["package"] == PACKAGE and all(_plain(name) for name in files)
        return _Written(content, str(told["holds"]), files) if ours else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _plain(name: str) -> bool:
    """Whether a listed path leads to a file in the folder: a list may come from anywhere."""
    path = Path(name)
    return bool(path.parts) and ".." not in path.parts and not path.anchor and "\0" not in name


def _list_files(folder: Path, holds: str) -> None:
    """Write the list of a folder's files into it; lists of results inside it are part of this one."""
    for nested in folder.rglob(MANIFEST):
        nested.unlink()
    files = {name: {"bytes": size, "blake2b": told} for name, size, told in _listed(folder)}
    about: dict[str, Any] = {"package": PACKAGE, "version": __version__, "holds": holds, "files": files}
    (folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def _listed(folder: Path) -> Iterator[tuple[str, int, str]]:
    for name in _files(folder):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            yield name, path.stat().st_size, _checksum(path)


def _files(folder: Path) -> list[str]:
    """Paths of all files below a folder, with slashes, in order."""
    found = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _checksum(path: Path) -> str:
    state = blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            state.update(block)
    return state.hexdigest()


def _stamp(path: Path) -> tuple[int, int, int]:
    about = os.lstat(path)
    return about.st_ino, about.st_size, about.st_mtime_ns


def _unchanged(folder: Path, name: str, listed: tuple[int, str]) -> bool:
    """Whether a file is unchanged since it was listed; files behind links are not ours."""
    path = folder / name
    if any((folder / parent).is_symlink() for parent in PurePosixPath(name).parents if parent.parts):
        return False
    try:
        about = os.lstat(path)
    except OSError:
        return False
    size, checksum = listed
    return stat.S_ISREG(about.st_mode) and about.st_size == size and _checksum(path) == checksum


def _fill(place: Path, scratch: Path, earlier: _Written | None, stamps: dict[str, tuple[int, int, int]]) -> None:
    """Move what was made into a folder, in place of the earlier result there; all of it, or nothing."""
    now = _read(place)
    if (None if now is None else now.content) != (None if earlier is None else earlier.content):
        raise InputError("was written by another process meanwhile")
    listed = {} if earlier is None else earlier.files
    old = [name for name in stamps if os.path.lexists(place / name)]
    for name in old:
        # Hashed before the block; once more only where the system says that it was written since.
        if _stamp(place / name) != stamps[name] and not _unchanged(place, name, listed[name]):
            raise InputError(f"holds {name}, which was changed meanwhile")
    new = [name for name in _files(scratch) if name != MANIFEST]
    folders = sorted(path.relative_to(scratch).as_posix() for path in scratch.rglob("*") if path.is_dir())
    clash = _clash(place, set(old), new, folders)
    if clash is not None:
        raise InputError(f"holds {clash} already, which {PACKAGE} did not write")
    attic = Path(tempfile.mkdtemp(prefix=f".{place.name}.", suffix=_UNFINISHED, dir=place))
    moved: list[tuple[Path, Path]] = []
    made: list[Path] = []
    try:
        if earlier is not None:
            (attic / MANIFEST).write_bytes(earlier.content)
        # A list is there at every moment, so that what a killed process leaves can be replaced; listed files may be missing.
        moves = [(place / name, attic / name) for name in old] + [(scratch / name, place / name) for name in (MANIFEST, *new)]
        for before, after in moves:
            made += _make_parents(after)
            os.replace(before, after)
            moved.append((before, after))
        _remove_empty(place, listed)
        for name in folders:
            made += _make_parents(place / name / "anything")
    except BaseException:
        for before, after in reversed(moved):
            _make_parents(before)
            os.replace(after, before)
            if after.name == MANIFEST and earlier is not None:
                os.replace(attic / MANIFEST, after)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        shutil.rmtree(attic, ignore_errors=True)
        raise
    shutil.rmtree(scratch, ignore_errors=True)
    shutil.rmtree(attic, ignore_errors=True)


def _clash(place: Path, old: set[str], new: Iterable[str], folders: Iterable[str]) -> str | None:
    """The first name that is taken by something that is not ours; links to folders are not ours either."""
    for name in folders:
        path = place / name
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()) and name not in old:
            return name
    return next((name for name in new if name not in old and os.path.lexists(place / name)), None)


def _make_parents(path: Path) -> list[Path]:
    """Make the folders above a path that are missing; those that were made, the outer ones first."""
    missing = []
    for parent in path.parents:
        if parent.exists():
            break
        missing.append(parent)
    missing.reverse()
    for parent in missing:
        parent.mkdir()
    return missing


def _remove_empty(folder: Path, names: Iterable[str]) -> None:
    """Remove the folders that listed files lay in, where nothing is left in them."""
    parents = {parent for name in names for parent in PurePosixPath(name).parents if parent.parts}
    for parent in sorted(parents, key=lambda path: -len(path.parts)):
        with suppress(OSError):
            (folder / parent).rmdir()


def write_whole(target: str | Path, content: str | bytes, *, replace: bool = True) -> None:
    """Write one file under a temporary name and move it into place.

    Args:
        target: The file.
        content: Text (written as UTF-8) or bytes.
        replace: Whether a file of that name may be replaced, as where the caller's own caller named this very file.

    Raises:
        InputError: If the place cannot be written, or holds a file that may not be replaced.
    """
    target = Path(target)
    data = content.encode() if isinstance(content, str) else content
    if not replace and os.path.lexists(target):
        raise InputError(f"{target} exists already; move it away, or name another folder")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(prefix=f".{target.name}.", suffix=_UNFINISHED, dir=target.parent)
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
