"""What tests of programs share."""

import runpy
import sys

import pytest

from tests.conftest import importable, small_pictures


@pytest.fixture
def run(request, monkeypatch, capsys):
    """Run a program of the test module's ``FOLDER``; gives its exit status and what it printed.

    Figures are laid out and small pictures written, but where the module sets ``DRAWN``.
    """
    folder = request.module.FOLDER
    if not getattr(request.module, "DRAWN", False):
        small_pictures(monkeypatch)

    def program(name, *options):
        monkeypatch.setattr(sys, "argv", [str(folder / name), *map(str, options)])
        with importable(folder), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(folder / name), run_name="__main__")
        return ended.value.code, capsys.readouterr()

    return program
