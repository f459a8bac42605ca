"""Locks: only one process at a time writes into a folder, and the error for a second process names the first."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pyterrier_debias.core.errors import InputError, one_line

if TYPE_CHECKING:
    from filelock import BaseFileLock


#: How the names of scratch folders begin; what users are to keep is called otherwise.
_SCRATCH = "pyterrier-debias-scratch-"
#: The lock in a scratch folder, and the seconds after which a folder whose lock nobody holds is a killed process'.
_IN_USE, _SETTLED = "in-use", 60.0


class HeldError(InputError):
    """Raised if another process, or another thread of this process, holds a lock."""


@contextmanager
def only_one(lock: Path, shown: str | Path, *, wait: float = 0.0) -> Iterator[None]:
    """Hold a lock while the block runs.

    The operating system releases the lock when the process ends, however it ends. The file names the process and its host, and is
    removed when the block ends; the file of a killed process is taken over.

    Args:
        lock: The lock's file. Its folder must exist.
        shown: What is written, as the user named it.
        wait: How many seconds to wait for another process.

    Raises:
        HeldError: If another process holds the lock; the message names it and its host.
        OSError: If the file cannot be created.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, only_one(Path(folder) / "lock", "the results"):
        ...     (Path(folder) / "lock").read_text().startswith(f"process {os.getpid()} on host ")
        True

    When not to use it: for readers, which see complete results without a lock.
    """
    import filelock

    held: BaseFileLock = filelock.FileLock(lock)
    try:
        held.acquire(timeout=wait)
    except filelock.Timeout:
        if not os.path.lexists(lock):
            # filelock also waits where the system says that there is no such file: nobody can create one there, e.g. in /proc.
            with tempfile.TemporaryFile(dir=lock.parent):
                pass
        raise HeldError(
            f"{shown} is being written by {_holder(lock)}; wait until it has finished, or name another folder"
        ) from None
    # Where a file system has no locks, the file's presence is the lock, and its content is filelock's own.
    by_presence = isinstance(held, filelock.SoftFileLock)
    try:
        if not by_presence:
            lock.write_text(f"process {os.getpid()} on host {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        # While it is held, so that nobody's newer file is removed; whoever waits for this one sees that it has no name left.
        if not by_presence:
            with suppress(OSError):
                lock.unlink()
        held.release()


def _holder(lock: Path) -> str:
    with suppress(OSError, ValueError):
        return " ".join(lock.read_text(encoding="utf-8")[:200].split()) or "another process"
    return "another process"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """An empty folder in the system's temporary folder, removed when the block ends.

    Folders that killed processes left are removed first. A process holds a lock in its folder until it ends, when the operating
    system releases the lock. A folder is therefore removed if its lock is free, it is a minute old, and it belongs to the same
    user. Everything else in the temporary folder is left alone.

    Yields:
        The folder.

    Raises:
        InputError: If the folder, or the lock in it, cannot be created.

    Example:
        >>> with scratch_folder() as folder:
        ...     list(folder.iterdir())
        []

    When not to use it: for results that the user needs afterwards.
    """
    import filelock

    with ExitStack() as stack:
        try:
            _sweep_scratch(Path(tempfile.gettempdir()))
            outer = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=_SCRATCH)))
            stack.enter_context(filelock.FileLock(outer / _IN_USE))
            folder = outer / "files"
            folder.mkdir()
        except OSError as error:
            told = f"a temporary folder cannot be created ({one_line(error)})"
            raise InputError(f"{told}; set TMPDIR to a writable folder with free space") from error
        yield folder


def _sweep_scratch(place: Path) -> None:
    """Remove the scratch folders that killed processes of this user left."""
    import filelock

    own = getattr(os, "getuid", lambda: None)()
    for folder in place.glob(f"{_SCRATCH}*"):
        with suppress(OSError, filelock.Timeout):
            lock = folder / _IN_USE
            about = [path.lstat() for path in (folder, lock)]
            if [stat.S_IFMT(one.st_mode) for one in about] != [stat.S_IFDIR, stat.S_IFREG]:
                continue
            others = own is not None and any(one.st_uid != own for one in about)
            if others or time.time() - about[1].st_mtime < _SETTLED:
                continue
            with filelock.FileLock(lock, timeout=0):
                pass
            shutil.rmtree(folder, ignore_errors=True)  # nobody begins to use a folder that is there
