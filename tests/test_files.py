"""Files are whole or not there."""

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
    (tmp_path / "out" / "old").write_text("kept")
    with pytest.raises(InputError, match="exists already"), whole_folder(tmp_path / "out"):
        pass
    with whole_folder(tmp_path / "out", overwrite=True) as scratch:
        (scratch / "new").write_text("2")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["new"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


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
