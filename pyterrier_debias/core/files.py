"""Write files completely or not at all, and never overwrite files of other programs.

A folder filled by :func:`whole_folder` gets a small hidden file, :data:`MANIFEST`, that lists what was written, with checksums. A
file counts as written by this package if such a list names it and its content is unchanged. No other file is ever replaced or
removed. Such folders are read with :func:`read_whole`, which returns one complete, unchanged result.

Only one process at a time can write a folder, see :mod:`~pyterrier_debias.core.locks`. A finished result that goes to an existing
folder is first renamed to one whose name ends in ``.commit.pyterrier_debias``; from then on it is the folder's content, and if
the process is killed, the next reader or writer moves the rest of it into place.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from pyterrier_debias._version import __version__
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.locks import only_one

#: The list of what was written into a folder.
MANIFEST = ".pyterrier_debias-files.json"
#: The name in every mark of this package.
PACKAGE = "pyterrier_debias"

#: How names of temporary files and folders end; a process that is killed leaves them behind.
_UNFINISHED = f".{PACKAGE}"
#: What stands before that: a result that is being made, one that is being put in place, what it replaces, one that could not be
#: put in place and is kept for the user.
_NEW, _COMMIT, _OLD, _KEPT = ".new", ".commit", ".old", ".kept"
#: Two locks: who makes a result holds the first all the time; who moves files into place, writer or reader, the second meanwhile.
_LOCK, _MOVING = ".lock", ".moving.lock"
_BLOCK = 1 << 20
#: How many bytes of a name temporary names repeat; file systems allow 255 in all.
_NAMED = 100
#: Seconds that a reader waits for a process that puts a result in place, and how often it reads where results follow one another.
_WAIT, _ATTEMPTS = 60.0, 20
#: Seconds after which a temporary file that is not written to is a killed process'.
_STALE = 3600.0
#: What a write raises where the place, not the program, is at fault.
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EIO}
#: Documentation is the user's to change; nothing is read from it.
_NOT_READ = ".md"

T = TypeVar("T")


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
    """Fill a folder that appears under its name only when everything in it is written.

    An existing folder, such as the current one or a mounted one, is kept, and its new content is moved in at the
    end, file by file: it is empty or, with ``overwrite``, holds an earlier result. Then the earlier result's files are replaced
    or removed, according to their list in the folder (:data:`MANIFEST`); other files and folders there are not changed.

    Args:
        target: The folder to create, together with its parent if that is missing.
        holds: What is written, in words with an article (``'an audit'``); a result of one kind does not replace another kind.
        overwrite: Whether an earlier result in the folder may be replaced.

    Yields:
        A temporary folder inside the target, or beside it if it does not exist; it is removed if the block raises an error.

    Raises:
        InputError: Before the block: as for :func:`check_folder`, and if another process writes there (the message names it) or
            the target cannot be written. After the block: if a file would replace one that is not ours, the target was changed
            meanwhile, or its content cannot be put in place; nothing in the target is then changed, the temporary folder is
            kept, and the message says where it is.
    """
    place, shown = Path(target).expanduser().resolve(), target
    with ExitStack() as stack:
        try:
            _check_kind(place, shown)
            place.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(place, shown, _LOCK))
            restore(place, shown)
            earlier, stamps = _checked(place, shown, holds, overwrite)
            inside = place if place.exists() else place.parent
            for folder in {inside, place.parent}:
                _sweep(folder, place.name)
            scratch = inside / _temporary(place.name, _NEW)
            scratch.mkdir()
        except OSError as error:
            raise InputError(f"{shown} cannot be written: {error.strerror or error}") from error
        try:
            yield scratch
            _list_files(scratch, holds)
        except BaseException as error:
            shutil.rmtree(scratch, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in _NO_ROOM:
                raise InputError(f"{shown} cannot be written: {error.strerror or error}; nothing was changed there") from error
            raise
        try:
            if place.exists():
                with _locked(place, shown, _MOVING, wait=_WAIT):
                    _fill(place, scratch, earlier, stamps)
            else:
                os.replace(scratch, place)
        except OSError as error:
            reason = f"cannot be written: {error.strerror or error}"
            raise InputError(f"{shown} {reason}; the new files are in {_set_aside(scratch)}") from error
        except InputError as error:
            raise InputError(f"{shown} {error}; the new files are in {_set_aside(scratch)}") from error


def check_folder(target: str | Path, *, holds: str = "files", overwrite: bool = False) -> None:
    """Refuse a folder that :func:`whole_folder` would refuse, before any work is done.

    Args:
        target: The folder.
        holds: See :func:`whole_folder`.
        overwrite: See :func:`whole_folder`.

    Raises:
        InputError: If the target is a file; if it holds an earlier result that may not be replaced, is of another kind, or has a
            file that was changed since; if it holds anything without a list of what this package wrote.
    """
    place = Path(target).expanduser().resolve()
    restore(place, target)
    _checked(place, target, holds, overwrite)


def read_whole(folder: str | Path, read: Callable[[], T], *, only: str | None = None) -> T:
    """Read a folder that :func:`whole_folder` wrote: one complete, unchanged result, even while another result replaces it.

    If a killed process left a result half in place, it is completed first. A folder without a list is only read. Files are
    compared with their checksums when they are first read, and again if the system says that they were written since; this
    takes about a second per gigabyte. Documentation (``.md``) is not compared.

    Args:
        folder: The folder, or a folder in it. A name that is not a folder, such as that of a model on a hub, is only read.
        read: A function that reads it; called again if another result replaced the first one meanwhile.
        only: The only file that is read, as a path in the folder; None for all files.

    Returns:
        What ``read`` returned.

    Raises:
        InputError: If a file is missing or was changed (the message names it), or another process is writing the folder and does
            not finish.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as made:
        ...     with whole_folder(Path(made) / "out") as scratch:
        ...         write_whole(scratch / "x", "some text")
        ...     read_whole(Path(made) / "out", (Path(made) / "out" / "x").read_text)
        'some text'
    """
    place = Path(folder).expanduser()
    if not place.is_dir():
        return read()
    place = place.resolve()
    if _content(place) is None and any(name.startswith(f"{place.name}/") for name in _listed_in(place.parent)):
        place, only = place.parent, only if only is None else f"{place.name}/{only}"
    for attempt in range(_ATTEMPTS):
        time.sleep(0.01 * attempt)
        restore(place, folder)
        before = _state(place)
        try:
            _check_written(place, folder, only)
            found = read()
        except Exception:
            if _is_settled(place, before):
                raise
        else:
            if _is_settled(place, before):
                return found
    raise InputError(f"{folder} is being rewritten repeatedly; read it when the writing has ended")


def restore(folder: str | Path, shown: str | Path | None = None) -> None:
    """Complete a result that a killed process left half in place; wait if a running process is doing so.

    Args:
        folder: Any folder; a folder without such traces is not changed.
        shown: The folder as the user named it.

    Raises:
        InputError: If that is not possible.
    """
    place, shown = Path(folder), folder if shown is None else shown
    try:
        if not _temporaries(place, _COMMIT):
            return
        with _locked(place, shown, _MOVING, wait=_WAIT):
            _finish(place)
    except OSError as error:
        raise InputError(
            f"{shown} was left incomplete by a process that was killed, and cannot be repaired "
            f"({error.strerror or error}); read it once with permission to write"
        ) from error


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
        True if a process is writing it, or was killed while it did.
    """
    return path.name.startswith(".") and path.name.endswith(_UNFINISHED)


def check_empty(folder: str | Path, caller: str) -> None:
    """Refuse to write a model into a folder that is not empty.

    Args:
        folder: The folder to write to; it need not exist.
        caller: The method, for the message.

    Raises:
        InputError: If the folder holds anything.
    """
    folder = Path(folder).expanduser()
    held = entries(folder) if folder.is_dir() else []
    if held:
        raise InputError(f"{caller}: {folder} holds {held[0].name}; name an empty folder, or use save()")


def written_files(folder: Path) -> list[str]:
    """The files that :func:`whole_folder` put into a folder, according to its list.

    Args:
        folder: Any folder; it need not exist.

    Returns:
        Their paths in the folder; empty if the folder has no list of this package.
    """
    return sorted(_listed_in(folder))


def content_of(folder: Path, names: Iterable[str]) -> str:
    """A checksum of some files of a folder: from its list, or, of files that are not in it, from what they hold.

    Args:
        folder: An existing folder.
        names: The files, as paths in the folder, in a fixed order.

    Returns:
        Hexadecimal digits, equal for equal files.
    """
    written = _read(folder)
    listed = {} if written is None else written.files
    told = [listed[name][1] if name in listed else _checksum(folder / name) for name in names]
    return blake2b(" ".join(told).encode(), digest_size=16).hexdigest()


def remove_written(folder: Path) -> None:
    """Remove what :func:`whole_folder` put into a folder, and the folder itself if nothing else is in it.

    Args:
        folder: The folder. Files that were changed since, and other files, are kept.
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


def _check_kind(place: Path, shown: str | Path) -> None:
    if place.exists() and not place.is_dir():
        raise InputError(f"{shown} exists already and is a file; name a folder")


def _checked(
    place: Path, shown: str | Path, holds: str, overwrite: bool
) -> tuple[_Written | None, dict[str, tuple[int, int, int]]]:
    """What an earlier result left in a folder that may be filled, and the stamps of its files that are still there."""
    if not place.exists():
        return None, {}
    _check_kind(place, shown)
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


def _content(folder: Path) -> bytes | None:
    """The list in a folder as it lies there; None if there is none."""
    try:
        return (folder / MANIFEST).read_bytes()
    except OSError:
        return None


def _state(folder: Path) -> tuple[int, ...] | None:
    """What tells one list in a folder from the next, even where both say the same; None if there is none."""
    try:
        return _stamp(folder / MANIFEST)
    except OSError:
        return None


def _is_settled(folder: Path, before: tuple[int, ...] | None) -> bool:
    """Whether a folder has held one result since its state was taken.

    A result that is put in place first has a folder of its own there, and then its list takes the place of the old one. They are
    looked for in this order: in the other one, a result whose list is moved between the two looks would be missed.
    """
    return not _temporaries(folder, _COMMIT) and _state(folder) == before


def _read(folder: Path) -> _Written | None:
    """The list in a folder; None if there is none, or it is not ours."""
    content = _content(folder)
    if content is None:
        return None
    try:
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
    # Some libraries give their files other permissions than the user's default, which the folder has.
    mode = stat.S_IMODE(folder.stat().st_mode) & 0o666
    for name in _files(folder):
        if not (folder / name).is_symlink():
            (folder / name).chmod(mode)
    files = {name: {"bytes": size, "blake2b": told} for name, size, told in _listed(folder)}
    about: dict[str, Any] = {"package": PACKAGE, "version": __version__, "holds": holds, "files": files}
    (folder / MANIFEST).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    _checksum(folder / MANIFEST, settle=True)


def _listed(folder: Path) -> Iterator[tuple[str, int, str]]:
    for name in _files(folder):
        path = folder / name
        if path.is_file() and not path.is_symlink():
            yield name, path.stat().st_size, _checksum(path, settle=True)


def _files(folder: Path) -> list[str]:
    """Paths of all files below a folder, with slashes, in order."""
    found = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    return sorted(path.relative_to(folder).as_posix() for path in found)


def _checksum(path: Path, *, settle: bool = False) -> str:
    """The checksum of a file's content, which the system is asked to have on disk first."""
    state = blake2b(digest_size=16)
    with open(path, "r+b" if settle and os.access(path, os.W_OK) else "rb") as file:
        if settle:
            os.fsync(file.fileno())
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
    # The old files keep a second name, so that they can be put back, and the new ones take the first without a gap between.
    attic = place / _temporary(place.name, _OLD)
    attic.mkdir()
    commit = scratch.with_name(scratch.name.removesuffix(_NEW + _UNFINISHED) + _COMMIT + _UNFINISHED)
    moved: list[tuple[Path, Path]] = []
    made: list[Path] = []

    def move(before: Path, after: Path) -> None:
        made.extend(_make_parents(after))
        os.replace(before, after)
        moved.append((before, after))

    try:
        named_twice = {name for name in (*old, MANIFEST) if _named_twice(place / name, attic / name)}
        os.replace(scratch, commit)
        for name in old:
            if name not in named_twice:
                move(place / name, attic / name)
            elif name not in new:
                (place / name).unlink()  # renaming one name of a file to its other one would change nothing
        for name in new:
            move(commit / name, place / name)
        _remove_empty(place, listed)
        for name in folders:
            made += _make_parents(place / name / "anything")
        move(commit / MANIFEST, place / MANIFEST)
    except BaseException:
        for before, after in reversed(moved):
            _make_parents(before)
            os.replace(after, before)
        for name in _files(attic):
            _make_parents(place / name)
            os.replace(attic / name, place / name)
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        shutil.rmtree(attic, ignore_errors=True)
        if commit.exists():
            os.replace(commit, scratch)
        raise
    shutil.rmtree(commit, ignore_errors=True)
    shutil.rmtree(attic, ignore_errors=True)


def _named_twice(path: Path, second: Path) -> bool:
    """Give a file a second name, where the file system can."""
    _make_parents(second)
    try:
        os.link(path, second)
    except OSError:
        return False
    return True


def _finish(place: Path) -> None:
    """Go on where a process was killed while it put a result into a folder: the new one is complete, so it is the one that stays.

    Raises:
        InputError: Where a file must have the name of one that is neither of the new result nor of the old one.
    """
    for commit in _temporaries(place, _COMMIT):
        new, old = _read(commit), _read(place)
        if new is not None:
            listed = {} if old is None else old.files
            for name in [name for name in listed if name not in new.files and _unchanged(place, name, listed[name])]:
                (place / name).unlink()
            for name in _files(commit):
                if name == MANIFEST:
                    continue
                path = place / name
                if os.path.lexists(path) and not any(
                    name in files and _unchanged(place, name, files[name]) for files in (listed, new.files)
                ):
                    raise InputError(
                        f"{place} holds {name}, which {PACKAGE} did not write; a process that was killed left a result for this "
                        f"folder in {commit}, which has a file of the same name; move one of the two files away"
                    )
                _make_parents(path)
                os.replace(commit / name, path)
            _remove_empty(place, listed)
            for folder in sorted(path.relative_to(commit) for path in commit.rglob("*") if path.is_dir()):
                (place / folder).mkdir(exist_ok=True)
            os.replace(commit / MANIFEST, place / MANIFEST)
        shutil.rmtree(commit, ignore_errors=True)


def _sweep(folder: Path, name: str) -> None:
    """Remove what killed processes left of results of this name; called by whoever holds the lock."""
    for kind in (_NEW, _OLD):
        for path in _temporaries(folder, kind, name):
            shutil.rmtree(path, ignore_errors=True)


def _set_aside(scratch: Path) -> Path:
    """Give a result that could not be put in place a name that nothing removes."""
    kept = scratch.with_name(scratch.name.removesuffix(_NEW + _UNFINISHED) + _KEPT + _UNFINISHED)
    with suppress(OSError):
        os.replace(scratch, kept)
        return kept
    return scratch


def _short(name: str) -> str:
    """A name that is short enough to be part of a file's name."""
    data = os.fsencode(name)
    if len(data) <= _NAMED:
        return name
    return f"{data[:_NAMED].decode('utf-8', 'ignore')}-{blake2b(data, digest_size=4).hexdigest()}"


def _temporary(name: str, kind: str = "") -> str:
    return f".{_short(name)}.{secrets.token_hex(4)}{kind}{_UNFINISHED}"


def _temporaries(folder: Path, kind: str, name: str | None = None) -> list[Path]:
    """Temporary folders of a kind in a folder, of results of a name; None for any name."""
    start = ".*" if name is None else re.escape(_short(name))
    pattern = re.compile(rf"\.{start}\.[0-9a-f]{{8}}{re.escape(kind + _UNFINISHED)}", re.DOTALL)
    try:
        return sorted(path for path in folder.iterdir() if pattern.fullmatch(path.name) and path.is_dir())
    except OSError:
        return []


@contextmanager
def _locked(place: Path, shown: str | Path, kind: str, wait: float = 0.0) -> Iterator[None]:
    """Hold one of a folder's locks. It lies beside the folder, or in it where nothing can be written beside it."""
    name = f".{_short(place.name)}{kind}{_UNFINISHED}"
    with ExitStack() as stack:
        try:
            stack.enter_context(only_one(place.parent / name, shown, wait=wait))
        except OSError:
            if not place.is_dir():
                raise
            stack.enter_context(only_one(place / name, shown, wait=wait))
        yield


@contextmanager
def locked_inside(folder: str | Path) -> Iterator[None]:
    """Lock a folder for work such as checkpoints; the folder is created if it is missing.

    Args:
        folder: The folder, which also holds the lock.

    Raises:
        InputError: If another process works there (the message names it and its host), or nothing can be written there.
    """
    place = Path(folder)
    with ExitStack() as stack:
        try:
            place.mkdir(parents=True, exist_ok=True)
            stack.enter_context(only_one(place / f"{_LOCK}{_UNFINISHED}", folder))
            _sweep_files(place)
        except OSError as error:
            raise InputError(f"{folder} cannot be written: {error.strerror or error}; name another folder") from error
        yield


def _listed_in(folder: Path) -> Iterable[str]:
    written = _read(folder)
    return () if written is None else written.files


def _check_written(place: Path, shown: str | Path, only: str | None) -> None:
    """Compare the files of a list with it."""
    written = _read(place)
    if written is None and _content(place) is None:
        return
    if written is None:
        raise InputError(f"{shown} is damaged: {MANIFEST} cannot be read; copy the folder again, or create it again")
    files = {name: listed for name, listed in written.files.items() if only in (None, name)}
    check_files(place, files, shown, f"or, if the change is intended, remove {MANIFEST} there")


#: What was compared already: the file to its stamp and its checksum.
_compared: dict[Path, tuple[tuple[int, int, int], tuple[int, str]]] = {}


def check_files(folder: Path, files: dict[str, tuple[int, str]], shown: str | Path, remedy: str) -> None:
    """Compare files with their checksums; files that were compared before, and not written since, are not read again.

    Args:
        folder: The folder of the files.
        files: Path in the folder, with slashes, to size and checksum.
        shown: The folder as the user named it.
        remedy: What else to do, in words.

    Raises:
        InputError: If a file is missing or differs; the message names the first one.
    """
    for name, listed in files.items():
        if name.endswith(_NOT_READ):
            continue
        path = folder / name
        try:
            stamp = _stamp(path)
            if _compared.get(path) == (stamp, listed):
                continue
            same = path.is_file() and (path.stat().st_size, _checksum(path)) == listed
        except OSError as error:
            told = "is missing" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror or error})"
            raise InputError(f"{shown} is damaged: {name} {told}; copy the folder again, or create it again") from error
        if not same:
            raise InputError(
                f"{shown} is damaged: {name} has changed since it was written; copy the folder again, or create it again, "
                f"{remedy}"
            )
        _compared[path] = stamp, listed


def checksums(folder: Path, leave_out: Iterable[str] = ()) -> dict[str, tuple[int, str]]:
    """Size and checksum of every file below a folder, for :func:`check_files`.

    Args:
        folder: The folder.
        leave_out: Paths that are not listed.

    Returns:
        Path in the folder, with slashes, to size and checksum.
    """
    return {name: (size, told) for name, size, told in _listed(folder) if name not in set(leave_out)}


def sealed(content: dict[str, Any]) -> dict[str, Any]:
    """JSON data with its checksum.

    Args:
        content: The data to write, without the key ``blake2b``.

    Returns:
        The data with that key, for :func:`check_seal`.

    Example:
        >>> check_seal(sealed({"a": 1}), "a.json")
        {'a': 1}
    """
    return {**content, "blake2b": _seal(content)}


def check_seal(content: dict[str, Any], shown: str | Path) -> dict[str, Any]:
    """Compare JSON data that was read with its checksum.

    Args:
        content: The data from :func:`sealed`, read again; without a checksum it is not compared.
        shown: The file, for the message.

    Returns:
        The content without the checksum.

    Raises:
        InputError: If it differs.
    """
    rest = {name: value for name, value in content.items() if name != "blake2b"}
    if "blake2b" in content and content["blake2b"] != _seal(rest):
        raise InputError(
            f"{shown} is damaged: its content does not match its checksum; copy it again, or create it again, or, if the "
            f"change is intended, remove 'blake2b' from it"
        )
    return rest


def _seal(content: dict[str, Any]) -> str:
    return blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()


def file_name(text: str) -> str:
    """A name that is safe as a part of a file name: characters that could lead elsewhere, or cannot be shown, are replaced.

    Args:
        text: Any text.

    Returns:
        The text itself if it is plain; otherwise with ``_`` for other characters and a checksum, so that names stay different.

    Example:
        >>> file_name("position-change"), file_name("../../escaped")
        ('position-change', '_.._escaped-e44bc97d')
    """
    plain = re.sub(r"[^\w .()+@%=,-]", "_", text).lstrip(".") or "_"
    if plain == text and len(os.fsencode(text)) <= _NAMED:
        return text
    return f"{_short(plain)}-{blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"


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
        replace: Whether a file of that name may be replaced, for example because the user named this very file.

    Raises:
        InputError: If the file cannot be written, or exists and may not be replaced.
    """
    target = Path(target).expanduser()
    data = content.encode() if isinstance(content, str) else content
    if not replace and os.path.lexists(target):
        raise InputError(f"{target} exists already; move it away, or name another folder")
    scratch = target.with_name(_temporary(target.name))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        # Nobody holds a lock for a single file: one that was written to just now may be another process'.
        _sweep_files(target.parent, target.name, older=_STALE)
        try:
            # The system's own default for permissions; a file that is replaced keeps its own.
            with open(scratch, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            with suppress(OSError):
                about = os.lstat(target)
                if stat.S_ISREG(about.st_mode):
                    os.chmod(scratch, stat.S_IMODE(about.st_mode))
            os.replace(scratch, target)
        except BaseException:
            with suppress(OSError):
                scratch.unlink()
            raise
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}") from error


def _sweep_files(folder: Path, name: str | None = None, *, older: float = 0.0) -> None:
    """Remove temporary files that killed processes left, of files of a name or of any, and so many seconds ago."""
    start = ".*" if name is None else re.escape(_short(name))
    pattern = re.compile(rf"\.{start}\.[0-9a-f]{{8}}{re.escape(_UNFINISHED)}", re.DOTALL)
    for path in folder.iterdir():
        if pattern.fullmatch(path.name):
            with suppress(OSError):
                if path.is_file() and time.time() - path.stat().st_mtime >= older:
                    path.unlink()
