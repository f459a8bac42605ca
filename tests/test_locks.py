"""Scratch folders are removed at their end, those of killed processes by the next one; nothing else in that place is."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import filelock
import pytest

import pyterrier_debias
from pyterrier_debias import InputError
from pyterrier_debias.core.files import locked_inside, whole_folder
from pyterrier_debias.core.locks import scratch_folder

PROGRAM = """
import sys
from pyterrier_debias.core.locks import scratch_folder
with scratch_folder() as folder:
    (folder / "index").write_text("postings")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The temporary folder of this process and of those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(Path(pyterrier_debias.__file__).parent.parent))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def other_process():
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return process, Path(process.stdout.readline().strip())


def aged(outer, seconds=3600):
    then = time.time() - seconds
    os.utime(outer / "in-use", (then, then))


def test_what_a_killed_process_left_is_removed_and_what_a_living_one_has_stays(place):
    (dead, left), (living, used) = other_process(), other_process()
    dead.kill()
    dead.communicate()
    assert left.is_dir() and left.parent.parent == place
    with scratch_folder() as folder:  # too young to be told from one that is just being made
        assert left.is_dir() and folder.is_dir() and folder != left
    aged(left.parent)
    aged(used.parent)
    with scratch_folder():
        assert not left.parent.exists()
        assert (used / "index").read_text() == "postings"
    living.communicate("")
    assert living.returncode == 0 and list(place.iterdir()) == []


def test_a_folder_goes_however_its_block_ends(place):
    with pytest.raises(KeyError), scratch_folder() as folder:
        (folder / "a").write_text("b")
        raise KeyError("a")
    assert list(place.iterdir()) == []


def test_where_no_folder_can_be_made_the_remedy_is_named(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "gone"))
    told = r"a temporary folder cannot be created \(.*No such file.*\); set TMPDIR"
    with pytest.raises(InputError, match=told), scratch_folder():
        pass


def test_what_is_not_a_scratch_folder_of_ours_stays(place):
    name = "pyterrier-debias-scratch-"
    others = [place / "pyterrier-debias-audit-1", place / "pyterrier-debias-1", place / f"{name}without-a-lock", place / "other"]
    for folder in others:
        folder.mkdir()
        if folder.name != f"{name}without-a-lock":
            (folder / "in-use").touch()
            aged(folder)
    others.append(place / f"{name}a-link")
    others[-1].symlink_to(place / "other", target_is_directory=True)
    others.append(place / f"{name}a-folder-in-its-place")
    (others[-1] / "in-use").mkdir(parents=True)
    aged(others[-1])
    others.append(place / f"{name}a-file")
    others[-1].write_text("somebody's")
    with scratch_folder():
        assert all(path.exists() for path in others)
    held = place / f"{name}held"
    held.mkdir()
    with filelock.FileLock(held / "in-use"):
        aged(held)
        with scratch_folder():
            assert held.exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="gives a folder to another user")
def test_what_another_user_left_stays(place):
    theirs = place / "pyterrier-debias-scratch-theirs"
    theirs.mkdir()
    (theirs / "in-use").touch()
    os.chown(theirs / "in-use", 12345, 12345)
    aged(theirs)
    with scratch_folder():
        assert theirs.exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_a_place_without_room_for_a_lock_is_not_said_to_be_in_use():
    """filelock waits for somebody else's lock there, although nobody can create one."""
    for write in (whole_folder, locked_inside):
        with pytest.raises(InputError, match=r"^/proc/nope cannot be written: "), write("/proc/nope"):
            raise AssertionError("it is written")
