"""Every program compiles and says how it is called; notebooks are in test_notebooks.py."""

import os
import runpy
import sys
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT, importable

FILES = sorted([*ROOT.glob("examples/**/*.py"), *ROOT.glob("benchmarks/*.py")])
# What programs share is a module beside them, and no program.
PROGRAMS = [file for file in FILES if "__main__" in file.read_text()]


def test_programs_compile_and_say_how_they_are_called():
    def says_it(program):
        source = program.read_text()
        compile(source, str(program), "exec")  # names the file where it cannot
        return f"python {program.relative_to(ROOT)}" in source.split('"""')[1]

    assert len(PROGRAMS) > 20
    assert [str(program) for program in PROGRAMS if not says_it(program)] == []


WITH_OPTIONS = [p for p in PROGRAMS if "ArgumentParser" in p.read_text() or "base_parser" in p.read_text()]
FOLDERS = sorted({program.parent for program in WITH_OPTIONS})


@contextmanager
def fresh(folder):
    """As in a process of its own, but for libraries: what lies beside programs is imported anew, from where programs find it."""

    def ours():
        return {name: module for name, module in sys.modules.items() if _lies_in_programs_folders(module)}

    before = ours()
    for name in before:
        del sys.modules[name]
    try:
        with importable(folder):
            yield
    finally:
        for name in ours():
            del sys.modules[name]
        sys.modules.update(before)


def _lies_in_programs_folders(module):
    folders = tuple(f"{ROOT}{os.sep}{name}{os.sep}" for name in ("examples", "benchmarks"))
    return (getattr(module, "__file__", None) or "").startswith(folders)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_programs_answer_help(folder, monkeypatch, capsys):
    for program in (p for p in WITH_OPTIONS if p.parent == folder):
        monkeypatch.setattr(sys, "argv", [str(program), "--help"])
        with fresh(folder), pytest.raises(SystemExit) as ended:
            runpy.run_path(str(program), run_name="__main__")
        assert not ended.value.code and "usage" in capsys.readouterr().out, program
