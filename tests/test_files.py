"""Files are whole or not there."""

import errno
import os
from pathlib import Path

import pytest

from pyterrier_debias import InputError
from pyterrier_debias.files import whole_folder, write_whole


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


def test_a_failure_leaves_the_old_folder(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("kept")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "out", overwrite=True):
        raise RuntimeError
    assert (tmp_path / "out" / "old").read_text() == "kept"


def test_an_old_folder_is_replaced_only_on_request(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("old", "same"):
        (tmp_path / "out" / name).write_text("kept")
    with pytest.raises(InputError, match="exists already"), whole_folder(tmp_path / "out"):
        pass
    with whole_folder(tmp_path / "out", overwrite=True) as scratch:
        (scratch / "new").write_text("2")
        (scratch / "same").write_text("2")
        assert (tmp_path / "out" / "same").read_text() == "kept"
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["new", "same"]
    assert (tmp_path / "out" / "same").read_text() == "2"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_folder_of_something_else_is_not_replaced_and_no_work_is_lost(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"out holds nothing of the kind .* what was made is in ") as caught:
        with whole_folder(tmp_path / "out", overwrite=True) as scratch:
            (scratch / "model").write_text("hours of work")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "years of work"
    kept = Path(str(caught.value).rpartition(" is in ")[2])
    assert kept == scratch and (kept / "model").read_text() == "hours of work"


def test_what_is_not_ours_stays(tmp_path):
    (tmp_path / "out").mkdir()
    for name in ("stale.png", "notes.txt"):
        (tmp_path / "out" / name).write_text("old")
    with whole_folder(tmp_path / "out", overwrite=True, ours=lambda name: name.endswith(".png")) as scratch:
        (scratch / "new.png").write_text("new")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["new.png", "notes.txt"]
    with pytest.raises(InputError, match=r"holds notes.txt already; what was made is in"):
        with whole_folder(tmp_path / "out", overwrite=True, ours=lambda name: name.endswith(".png")) as scratch:
            (scratch / "notes.txt").write_text("new")
    assert (tmp_path / "out" / "notes.txt").read_text() == "old"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_cannot_be_renamed_is_filled(tmp_path, monkeypatch, overwrite):
    """The current folder, and one that is mounted: the system gives EBUSY or EXDEV where anything would take its place."""
    out = tmp_path / "out"
    out.mkdir()
    if overwrite:
        (out / "x").write_text("old")
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
        assert Path("x").read_text() == f"new {target}" and sorted(p.name for p in out.iterdir()) == ["sub", "x"]


def test_a_link_to_a_folder_stays_a_link(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "there")
    for number in range(2):
        with whole_folder(tmp_path / "out", overwrite=bool(number)) as scratch:
            (scratch / "x").write_text(str(number))
    assert (tmp_path / "out").is_symlink() and (tmp_path / "there" / "x").read_text() == "1"


def test_what_cannot_be_put_in_place_is_kept_and_the_old_content_too(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("a", "b"):
        (out / name).write_text("old")
    real = os.replace

    def full(source, target):
        if Path(source).name == "b" and Path(target) == out / "b" and Path(source).read_text() == "new":
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target)

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot be written: No space left on device; what was made is in "):
        with whole_folder(out, overwrite=True) as scratch:
            for name in ("a", "b"):
                (scratch / name).write_text("new")
    assert [(out / name).read_text() for name in ("a", "b")] == ["old", "old"]
    assert [(scratch / name).read_text() for name in ("a", "b")] == ["new", "new"]
    assert sorted(p.name for p in out.iterdir()) == sorted(["a", "b", scratch.name])


def test_what_appears_meanwhile_is_kept(tmp_path):
    with whole_folder(tmp_path / "out") as scratch:
        (tmp_path / "out" / "kept").mkdir(parents=True)
        (scratch / "x").write_text("1")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["kept", "x"]
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
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert (tmp_path / "x").read_bytes() == b"new"
