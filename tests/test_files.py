"""Files are whole or not there."""

import errno
import itertools
import json
import math
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path

import pytest

from pyterrier_debias import InputError, __version__
from pyterrier_debias.core import files
from pyterrier_debias.core.files import (
    MANIFEST,
    check_folder,
    check_seal,
    entries,
    file_name,
    is_unfinished,
    locked_inside,
    read_whole,
    remove_written,
    sealed,
    whole_folder,
    write_whole,
)


def test_a_folder_appears_when_it_is_complete(tmp_path):
    target = tmp_path / "a" / "out"
    with whole_folder(target) as scratch:
        (scratch / "x").write_text("1")
        assert not target.exists()
    assert (target / "x").read_text() == "1"
    assert [p.name for p in target.parent.iterdir()] == ["out"]


def test_a_failure_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out") as scratch:
        (scratch / "x").write_text("1")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def fill(target, files, **options):
    with whole_folder(target, **options) as scratch:
        for name, content in files.items():
            (scratch / name).parent.mkdir(parents=True, exist_ok=True)
            (scratch / name).write_text(content)


def content(folder):
    """Path to text of every file but the list, and of every empty folder to None."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.name != MANIFEST}
    return {
        name: None if path.is_dir() else path.read_text()
        for name, path in found.items()
        if not path.is_dir() or not any(path.iterdir())
    }


def test_a_failure_leaves_the_old_folder(tmp_path):
    fill(tmp_path / "out", {"old": "kept"})
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out", overwrite=True):
        raise RuntimeError
    assert content(tmp_path) == {"out/old": "kept"}


def test_an_old_folder_is_replaced_only_on_request(tmp_path):
    fill(tmp_path / "out", {"old": "kept", "same": "kept", "below/it/old": "kept", "beside/old": "kept"})
    with pytest.raises(InputError, match=r"exists already and holds files; .*overwrite=True"), whole_folder(tmp_path / "out"):
        pass
    (tmp_path / "out" / "beside" / "empty").mkdir()
    with whole_folder(tmp_path / "out", overwrite=True) as scratch:
        (scratch / "new").write_text("2")
        (scratch / "same").write_text("2")
        assert (tmp_path / "out" / "same").read_text() == "kept"
    assert content(tmp_path) == {"out/beside/empty": None, "out/new": "2", "out/same": "2"}


def test_the_list_names_every_file_and_is_the_same_for_the_same_files(tmp_path):
    for name in ("a", "b"):
        with whole_folder(tmp_path / name, holds="a model") as scratch:
            fill(scratch / "nested", {"x": "1"})
            (scratch / "y").write_bytes(b"two")
    told = (tmp_path / "a" / MANIFEST).read_bytes()
    assert told == (tmp_path / "b" / MANIFEST).read_bytes()
    told = json.loads(told)
    assert (told["package"], told["version"], told["holds"]) == ("pyterrier_debias", __version__, "a model")
    assert told["files"]["y"] == {"bytes": 3, "blake2b": blake2b(b"two", digest_size=16).hexdigest()}
    assert list(told["files"]) == ["nested/x", "y"]
    assert sorted(path.parent.name for path in tmp_path.rglob(MANIFEST)) == ["a", "b"]


def test_a_folder_of_something_else_is_refused_before_the_work(tmp_path):
    strangers = {"out/thesis.tex": "years of work", "out/.git/config": "[core]"}
    for name, text in strangers.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for overwrite in (False, True):
        with pytest.raises(InputError, match=r"holds files that pyterrier_debias did not write \(.git\); name another folder"):
            with whole_folder(tmp_path / "out", overwrite=overwrite):
                raise AssertionError("the work began")
        with pytest.raises(InputError, match="did not write"):
            check_folder(tmp_path / "out", overwrite=overwrite)
    assert content(tmp_path) == strangers


def test_one_thing_does_not_replace_another(tmp_path):
    fill(tmp_path / "out", {"config.json": "{}"}, holds="a model")
    with pytest.raises(InputError, match="out exists already and holds a model, not an audit; name another folder"):
        check_folder(tmp_path / "out", holds="an audit", overwrite=True)
    check_folder(tmp_path / "out", holds="a model", overwrite=True)
    check_folder(tmp_path / "new", holds="a model")


def test_others_files_stay_beside_ours(tmp_path):
    fill(tmp_path / "out", {"stale.png": "old", "sub/stale.png": "old"})
    strangers = {"out/notes.txt": "mine", "out/.git/config": "[core]", "out/sub/cat.png": "a cat", "out/deep/er/x": "mine"}
    for name, text in strangers.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "out" / "empty").mkdir()
    fill(tmp_path / "out", {"new.png": "new"}, overwrite=True)
    assert content(tmp_path) == {**strangers, "out/empty": None, "out/new.png": "new"}
    for clash in ("notes.txt", "deep/er", "empty", ".git"):
        with pytest.raises(InputError, match=rf"holds {clash} already, which pyterrier_debias did not write"):
            fill(tmp_path / "out", {"another": "new", clash: "new"}, overwrite=True)
    with pytest.raises(InputError, match=r"holds notes.txt already, which .*; the new files are in ") as made:
        fill(tmp_path / "out", {"another": "new", "notes.txt/below": "hours of work"}, overwrite=True)
    kept = Path(str(made.value).rpartition(" are in ")[2])
    assert not list((tmp_path / "out").glob(".out.*.new.*")) and kept.name.endswith(".kept.pyterrier_debias")
    assert (kept / "notes.txt" / "below").read_text() == "hours of work"
    left = {name: text for name, text in content(tmp_path).items() if not Path(name).parts[1].startswith(".out.")}
    assert left == {**strangers, "out/empty": None, "out/new.png": "new"}
    # What a killed process, or a refusal, leaves there does not stand in the way.
    fill(tmp_path / "out", {"next.png": "new"}, overwrite=True)
    assert (tmp_path / "out" / "next.png").is_file() and not (tmp_path / "out" / "new.png").exists()


def test_a_file_that_was_changed_is_the_users(tmp_path):
    fill(tmp_path / "out", {"a": "old", "sub/b": "old"})
    (tmp_path / "out" / "sub" / "b").write_text("my")
    for edit in ("my", "own"):  # another size, and the same
        (tmp_path / "out" / "sub" / "b").write_text(edit)
        with pytest.raises(InputError, match=r"holds sub/b, which has changed since .*; move it away, or name another folder"):
            with whole_folder(tmp_path / "out", overwrite=True):
                raise AssertionError("the work began")
    assert content(tmp_path) == {"out/a": "old", "out/sub/b": "own"}
    (tmp_path / "out" / "sub" / "b").rename(tmp_path / "mine")
    fill(tmp_path / "out", {"a": "new"}, overwrite=True)
    assert content(tmp_path) == {"mine": "own", "out/a": "new"}


def test_what_changes_during_the_work_is_kept(tmp_path):
    fill(tmp_path / "out", {"a": "old"})
    with pytest.raises(InputError, match="holds a, which was changed meanwhile; the new files are in"):
        with whole_folder(tmp_path / "out", overwrite=True) as scratch:
            (tmp_path / "out" / "a").write_text("my")
            (scratch / "a").write_text("new")
    assert (tmp_path / "out" / "a").read_text() == "my"
    (tmp_path / "out" / "a").write_text("old")
    fill(tmp_path / "other", {"a": "theirs"})
    with pytest.raises(InputError, match="was written by another process meanwhile; the new files are in"):
        with whole_folder(tmp_path / "out", overwrite=True) as scratch:
            shutil.copytree(tmp_path / "other", tmp_path / "out", dirs_exist_ok=True)  # by one who knows no locks
            (scratch / "a").write_text("new")
    assert (tmp_path / "out" / "a").read_text() == "theirs"


def test_links_are_not_followed(tmp_path):
    """Neither is what a link leads to removed, nor anything written through it."""
    fill(tmp_path / "out", {"a": "1", "sub/b": "2"})
    (tmp_path / "out" / "sub").rename(tmp_path / "moved")
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match="holds sub/b, which has changed"):
        check_folder(tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "sub").unlink()
    (tmp_path / "out" / "a").rename(tmp_path / "a")
    (tmp_path / "out" / "a").symlink_to(tmp_path / "a")
    with pytest.raises(InputError, match="holds a, which has changed"):
        check_folder(tmp_path / "out", overwrite=True)
    (tmp_path / "out" / "a").unlink()
    (tmp_path / "out" / "linked").symlink_to(tmp_path / "moved")
    with pytest.raises(InputError, match="holds linked already"):
        fill(tmp_path / "out", {"linked/c": "3"}, overwrite=True)
    assert (tmp_path / "a").read_text() == "1" and content(tmp_path / "moved") == {"b": "2"}


@pytest.mark.parametrize(
    "told",
    [
        "{", "[]", "{}", '{"package": "another", "holds": "files", "files": {}}',
        '{"package": "pyterrier_debias", "holds": "files", "files": ["x"]}',
        '{"package": "pyterrier_debias", "holds": "files", "files": {"x": {"bytes": 4}}}',
        '{"package": "pyterrier_debias", "holds": "files", "files": {"../victim": {"bytes": 4, "blake2b": "CHECKSUM"}}}',
        '{"package": "pyterrier_debias", "holds": "files", "files": {"VICTIM": {"bytes": 4, "blake2b": "CHECKSUM"}}}',
    ],
)  # fmt: skip
def test_a_list_that_is_not_ours_lists_nothing(tmp_path, told):
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine")
    out.mkdir()
    (out / "x").write_text("mine")
    checksum = blake2b(b"mine", digest_size=16).hexdigest()
    (out / MANIFEST).write_text(told.replace("CHECKSUM", checksum).replace("VICTIM", str(victim)))
    with pytest.raises(InputError, match="did not write"):
        check_folder(out, overwrite=True)
    remove_written(out)
    assert content(tmp_path) == {"out/x": "mine", "victim": "mine"}


def test_what_was_written_is_removed_and_nothing_else(tmp_path):
    fill(tmp_path / "out", {"a": "1", "b": "2", "sub/c": "3", "other/d": "4"})
    (tmp_path / "out" / "b").write_text("mine")
    (tmp_path / "out" / "sub" / "x").write_text("mine")
    remove_written(tmp_path / "out")
    assert content(tmp_path) == {"out/b": "mine", "out/sub/x": "mine"}
    fill(tmp_path / "whole", {"a/b/c": "1"})
    remove_written(tmp_path / "whole")
    assert not (tmp_path / "whole").exists()


def test_what_a_killed_process_leaves_does_not_stand_in_the_way(tmp_path):
    code = """
import os, signal, sys
from pyterrier_debias.core.files import whole_folder
with whole_folder(sys.argv[1], overwrite=True) as scratch:
    (scratch / "x").write_text("1")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    out = tmp_path / "out"
    out.mkdir()
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, str(out)], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert len(list(out.iterdir())) == 1 and entries(out) == []
        fill(out, {"x": "2"})
        assert sorted(out.iterdir()) == [out / MANIFEST, out / "x"]
        fill(out, {"y": "2"}, overwrite=True)
        remove_written(out)
        out.mkdir()


class Killed(BaseException):
    """Nothing that comes after it changes anything, as behind a kill -9."""


CHANGES = ("replace", "link", "unlink", "mkdir", "rmdir")


def killed_at(monkeypatch, moment, links=True):
    """Let the process die when it changes the file system for so many times; locks are the system's."""
    done = []

    def dying(real, name):
        def call(path, *args, **options):
            if ".lock." in str(path):
                return real(path, *args, **options)
            done.append(name)
            if len(done) >= moment:
                raise Killed
            if name == "link" and not links:
                raise OSError(errno.EPERM, "Operation not permitted")
            return real(path, *args, **options)

        return call

    for name in CHANGES:
        monkeypatch.setattr(os, name, dying(getattr(os, name), name))


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("case", ["absent", "empty", "ours", "beside others"])
def test_killed_at_any_moment_there_is_the_old_or_the_new_result(tmp_path, monkeypatch, case, links):
    """What cannot be read is put right by the next reader, and what is left over is removed by the next writer."""
    old = {"a": "old", "b": "old", "c/d": "old"} if case in ("ours", "beside others") else {}
    new = {"a": "new", "b/x": "new", "e": "new"} if not old else {"a": "new", "c/y": "new", "e": "new"}
    others = {"mine": "mine", "c/mine": "mine"} if case == "beside others" else {}
    seen = []
    monkeypatch.setattr(os, "fsync", lambda handle: None)  # it takes time, and a process that is killed loses nothing
    for moment in itertools.count(1):
        out = tmp_path / f"{moment}" / "out"
        out.parent.mkdir()
        if case == "empty":
            out.mkdir()
        if old:
            fill(out, old)
        for name, text in others.items():
            (out / name).parent.mkdir(exist_ok=True, parents=True)
            (out / name).write_text(text)
        with monkeypatch.context() as patch, suppress(Killed):
            killed_at(patch, moment, links)
            fill(out, new, overwrite=bool(old))
            break
        found = read_whole(out, lambda: content(out)) if out.exists() else {}  # noqa: B023
        found = {name: text for name, text in found.items() if text is not None and not name.startswith(".out.")}
        assert found in ({**old, **others}, {**new, **others})
        seen.append(found == {**new, **others})
        fill(out, {"f": "newer"}, overwrite=True)
        assert content(out.parent) == {f"out/{name}": text for name, text in {**others, "f": "newer"}.items()}
        assert not [path for path in out.parent.rglob("*") if is_unfinished(path) and path.name != MANIFEST]
    assert seen == sorted(seen) and not seen[0] and (seen[-1] or case == "absent") and len(seen) > 3


WRITER = """
import itertools, sys, time
from pathlib import Path
from pyterrier_debias.core.files import whole_folder
print("started", flush=True)
for number in itertools.count(int(sys.argv[2])):
    with whole_folder(sys.argv[1], overwrite=True) as scratch:
        for name in "abcdefgh":
            (scratch / name).write_text(str(number))
        (scratch / f"only-{number}").write_text(str(number))
    time.sleep(0.005)
"""


@contextmanager
def started(code, *arguments):
    """A process that runs this code, and is killed at the end, however that comes: leaving its block would wait for it."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_result_that_was_moved_while_it_was_looked_for_is_not_taken_for_the_old_one(tmp_path, monkeypatch):
    """The writer stops before it moves its list, and goes on as soon as the reader has looked at one thing."""
    out, go_on, stopped = tmp_path / "out", threading.Event(), threading.Event()
    fill(out, {"a": "old", "b": "old"})
    real = os.replace

    def stopping(before, after):
        if Path(after) == out / MANIFEST:
            stopped.set()
            assert go_on.wait(60)
        real(before, after)

    def looked(look):
        def call(*arguments):
            seen = look(*arguments)
            if stopped.is_set():
                go_on.set()
                writer.join()
            return seen

        return call

    writer = threading.Thread(target=lambda: fill(out, {"a": "new", "b": "new"}, overwrite=True))

    def read():
        found = [(out / "a").read_text()]
        if not stopped.is_set():
            monkeypatch.setattr(os, "replace", stopping)
            writer.start()
            assert stopped.wait(60)
        return [*found, (out / "b").read_text()]

    for name in ("_temporaries", "_content", "_state"):
        monkeypatch.setattr(files, name, looked(getattr(files, name)))
    assert read_whole(out, read) == ["new", "new"]


def test_readers_see_one_result_while_others_take_its_place(tmp_path):
    """And go on doing so when the writer is killed, again and again."""
    out = tmp_path / "out"
    fill(out, dict.fromkeys([*"abcdefgh", "only-0"], "0"))
    (out / "mine").write_text("mine")
    numbers = []

    def read():
        numbers.append({(out / name).read_text() for name in "abcdefgh"})
        only = [path.name for path in out.iterdir() if path.name.startswith("only-")]
        return numbers[-1], only

    for first in (1, 10_000, 20_000):
        with started(WRITER, out, first) as writer:
            assert writer.stdout.readline() == "started\n"
            begun, before = time.monotonic(), len(numbers)
            # A second; on a busy machine until the writer has had its turns.
            while (taken := time.monotonic() - begun) < 1 or (taken < 60 and len(set(map(frozenset, numbers[before:]))) < 3):
                found, only = read_whole(out, read)
                assert len(found) == 1 and only == [f"only-{next(iter(found))}"]
            assert writer.poll() is None, "readers do not stop a writer"
        found, only = read_whole(out, read)
        assert len(found) == 1 and only == [f"only-{next(iter(found))}"]
    assert len({frozenset(found) for found in numbers}) > 5
    assert (out / "mine").read_text() == "mine"


def test_a_second_writer_is_told_who_is_first(tmp_path):
    code = """
import sys
from pyterrier_debias.core.files import locked_inside, whole_folder
with {call} as scratch:
    print("in it", flush=True)
    sys.stdin.read()
"""
    fill(tmp_path / "old", {"a": "old"})
    for name, call in (("new", "whole_folder(sys.argv[1])"), ("old", "whole_folder(sys.argv[1], overwrite=True)"),
                       ("work", "locked_inside(sys.argv[1])")):  # fmt: skip
        second = locked_inside if name == "work" else partial(whole_folder, overwrite=True)
        with started(code.format(call=call), tmp_path / name) as first:
            assert first.stdout.readline() == "in it\n"
            with pytest.raises(InputError, match=f"is being written by process {first.pid} on host {socket.gethostname()}; "):
                with second(tmp_path / name):
                    raise AssertionError("both write")
        with second(tmp_path / name):
            assert tmp_path.exists()
        assert not [path for path in tmp_path.rglob("*") if is_unfinished(path)]
    with whole_folder(tmp_path / "mine"), pytest.raises(InputError, match=f"is being written by process {os.getpid()} "):
        with whole_folder(tmp_path / "mine"):
            raise AssertionError("both write")


def test_a_file_that_is_not_as_it_was_written_is_not_read(tmp_path):
    out = tmp_path / "out"
    fill(out, {"a": "some text", "sub/b": "more", "README.md": "a card"})
    assert read_whole(out, lambda: "read") == "read"
    (out / "README.md").write_text("my card")
    (out / "mine").write_text("mine")
    assert read_whole(out, lambda: "read") == "read"
    for name, damaged, told in (
        ("a", b"some tex!", "a has changed since it was written; copy the folder again"),
        ("sub/b", b"mor", "sub/b has changed since it was written"),
        ("sub/b", None, "sub/b is missing"),
        (MANIFEST, b"{", f"{MANIFEST} cannot be read"),
    ):
        whole = (out / name).read_bytes()
        (out / name).unlink() if damaged is None else (out / name).write_bytes(damaged)
        with pytest.raises(InputError, match=f"out is damaged: {told}"):
            read_whole(out, lambda: "read")
        (out / name).write_bytes(whole)
    (out / "a").write_text("my text")
    (out / MANIFEST).unlink()  # as the message says
    assert read_whole(out, (out / "a").read_text) == "my text"


def test_what_cannot_be_put_right_where_nothing_may_be_written_is_told(tmp_path, monkeypatch):
    fill(tmp_path / "out", {"a": "old"})
    real = os.replace

    def dies(before, after):
        if ".commit." in str(before):
            raise Killed
        real(before, after)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", dies)
        fill(tmp_path / "out", {"a": "new"}, overwrite=True)

    def refused(*args, **options):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(InputError, match=r"left incomplete by a process that was .*Read-only file system.*; read it once"):
        read_whole(tmp_path / "out", lambda: "read")
    monkeypatch.undo()
    assert read_whole(tmp_path / "out", (tmp_path / "out" / "a").read_text) == "new"


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_the_umask_is_respected(tmp_path, mask):
    old = os.umask(mask)
    try:
        (tmp_path / "empty").mkdir()
        for name in ("new", "empty"):
            with whole_folder(tmp_path / name) as scratch:
                write_whole(scratch / "a", "x")
                (scratch / "b").write_text("x")
        write_whole(tmp_path / "file", "x")
        (tmp_path / "private").write_text("old")
        (tmp_path / "private").chmod(0o600)
        write_whole(tmp_path / "private", "new")
    finally:
        os.umask(old)
    modes = {path.relative_to(tmp_path).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes.pop("private") == 0o600
    assert {name: oct(mode) for name, mode in modes.items()} == {
        name: oct((0o777 if name in ("new", "empty") else 0o666) & ~mask) for name in modes
    }
    assert len(modes) == 9


def test_a_seal_tells_what_was_changed():
    made = sealed({"a": [1, 2.5, None, "é"], "b": {"c": math.nan}})
    read = json.loads(json.dumps(made, indent=2, ensure_ascii=False))
    assert list(check_seal(read, "x.json")) == ["a", "b"]
    assert check_seal({"a": 1}, "x.json") == {"a": 1}
    for change in ({"a": [1, 2.5, None, "e"]}, {"d": 1}, {"blake2b": "0"}):
        with pytest.raises(InputError, match=r"x.json is damaged: its content does not match its checksum"):
            check_seal({**read, **change}, "x.json")


def test_a_name_as_a_part_of_a_path():
    plain = ["position", "BM25 >> all-MiniLM-L6-v2".replace(">", "-"), "größe", "मात्रा"[:1], "a+b(c)=1, 2%@x.y"]
    assert [file_name(name) for name in plain] == plain
    odd = ["", ".", "..", "../x", "a/b", "a\\b", "C:x", "a\0b", "a\nb", "\x1b[31m", ".hidden", "x" * 300, "😀" * 100, "\ud800"]
    made = [file_name(name) for name in odd]
    assert len(set(made)) == len(odd)
    assert all(re.fullmatch(r"[^/\\:\0-\x1f.][^/\\:\0-\x1f]*", name) and len(os.fsencode(name)) < 150 for name in made)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_cannot_be_renamed_is_filled(tmp_path, monkeypatch, overwrite):
    """The current folder, and one that is mounted: the system gives EBUSY or EXDEV where anything would take its place."""
    out = tmp_path / "out"
    out.mkdir()
    if overwrite:
        fill(out, {"x": "old"})
    monkeypatch.chdir(out)
    real = os.replace

    def replace(source, target):
        if out in (Path(source), Path(target)):
            raise OSError(errno.EBUSY, "Device or resource busy")
        if (out in Path(source).parents) != (out in Path(target).parents):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "replace", replace)
    for target in (".", "", out):
        with whole_folder(target, overwrite=overwrite or target != ".") as scratch:
            (scratch / "x").write_text(f"new {target}")
            (scratch / "sub").mkdir()
        assert Path("x").read_text() == f"new {target}" and sorted(p.name for p in out.iterdir()) == [MANIFEST, "sub", "x"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "there")
    for number in range(2):
        with whole_folder(tmp_path / "out", overwrite=bool(number)) as scratch:
            (scratch / "x").write_text(str(number))
    assert (tmp_path / "out").is_symlink() and (tmp_path / "there" / "x").read_text() == "1"


def test_what_cannot_be_put_in_place_is_kept_and_the_old_content_too(tmp_path, monkeypatch):
    out = tmp_path / "out"
    fill(out, {"a": "old", "b": "old", "sub/c": "old"})
    told = (out / MANIFEST).read_bytes()
    real = os.replace

    def full(source, target):
        if Path(source).name == "b" and Path(target) == out / "b" and Path(source).read_text() == "new":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left on device; the new files are in "):
        with whole_folder(out, overwrite=True) as scratch:
            (scratch / "0").mkdir()
            for name in ("0/a", "a", "b"):
                (scratch / name).write_text("new")
    (kept,) = out.glob(".out.*")
    assert content(kept) == {"0/a": "new", "a": "new", "b": "new"}
    assert sorted(p.name for p in out.iterdir()) == sorted([MANIFEST, "a", "b", "sub", kept.name])
    assert (out / MANIFEST).read_bytes() == told
    assert [(out / name).read_text() for name in ("a", "b", "sub/c")] == ["old", "old", "old"]


def test_what_appears_meanwhile_is_kept(tmp_path):
    with whole_folder(tmp_path / "out") as scratch:
        (tmp_path / "out" / "kept").mkdir(parents=True)
        (scratch / "x").write_text("1")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == [MANIFEST, "kept", "x"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "out").write_text("kept")
    with pytest.raises(InputError, match="is a file"), whole_folder(tmp_path / "out", overwrite=True):
        pass


def test_an_empty_folder_may_be_filled(tmp_path):
    (tmp_path / "out").mkdir()
    with whole_folder(tmp_path / "out") as scratch:
        (scratch / "new").write_text("2")
    assert (tmp_path / "out" / "new").exists()


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_whole(tmp_path / "file" / "x", "1")
    with pytest.raises(InputError, match="cannot be written"), whole_folder(tmp_path / "file" / "x"):
        pass


def test_one_file_is_replaced_whole(tmp_path):
    write_whole(tmp_path / "x", "old")
    write_whole(tmp_path / "x", b"new")
    assert (tmp_path / "x").read_bytes() == b"new"
    with pytest.raises(TypeError):
        write_whole(tmp_path / "x", 3)
    with pytest.raises(InputError, match="x exists already"):
        write_whole(tmp_path / "x", "newer", replace=False)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"


def test_a_home_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with whole_folder("~/made") as scratch:
        write_whole(scratch / "x", "some text")
    write_whole("~/made.txt", "more")
    assert (tmp_path / "made" / "x").read_text() == "some text" and (tmp_path / "made.txt").read_text() == "more"
    assert not (tmp_path / "~").exists()
    with pytest.raises(InputError, match="~/made exists already and holds files"):
        check_folder("~/made")
