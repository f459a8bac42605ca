"""Places that the command line cannot read or write: one line names the place and the reason, and the exit code is 2."""

import errno
import sys
from pathlib import Path

import pytest

from pyterrier_debias import __main__
from pyterrier_debias.report import inputs
from tests.report import toy

LONG = "a" * 300


@pytest.fixture
def main(monkeypatch, tmp_path, capfd):
    """The console script on the toy collection: a function of options that returns the exit code and the lines on stderr."""
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})
    monkeypatch.chdir(tmp_path)
    toy.write_files(tmp_path / "toy")

    def call(*options):
        monkeypatch.setattr(sys, "argv", ["pyterrier-debias", "audit", "--dataset", "toy", *options])
        with pytest.raises(SystemExit) as end:
            __main__.main()
        return end.value.code, capfd.readouterr().err.splitlines()

    return call


@pytest.mark.parametrize("option", ["--out", "--checkpoint", "--dataset", "--run", "--model"])
def test_a_name_that_is_too_long(main, option):
    code, lines = main(*([] if option == "--model" else ["--model", "none"]), option, LONG)
    assert code == 2 and len(lines) == 1, lines
    assert lines[0].startswith("pyterrier-debias: ")
    assert f"{LONG}" in lines[0] and "cannot be read or written: File name too long; check the path" in lines[0]


def test_a_dataset_without_permission(main, monkeypatch):
    def refuse(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)  # root may read anything
    told = "toy/data.properties cannot be read or written: Permission denied; check the path and its permissions"
    assert main("--model", "none") == (2, [f"pyterrier-debias: {told}"])


def test_an_error_of_the_program_keeps_its_traceback(main, monkeypatch):
    def defect(path, *_):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))

    monkeypatch.setattr(Path, "is_file", defect)
    with pytest.raises(FileNotFoundError):
        main("--model", "none")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no full device")
@pytest.mark.parametrize("options", [["--help"], ["--model", "none"]])
def test_a_full_standard_output(main, monkeypatch, options):
    out = open("/dev/full", "w")
    monkeypatch.setattr(sys, "stdout", out)
    told = "pyterrier-debias: the standard output cannot be written: No space left on device; send it to another place"
    assert main(*options) == (2, [told])
    assert out.closed  # otherwise Python writes to it again when it ends, and the exit code is another
