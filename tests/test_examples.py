"""Every program compiles and says how it is called; notebooks are in test_notebooks.py."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
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

# All programs of a folder in one process, which imports the large libraries once.
_ASK = """
import runpy, sys

sys.path[0] = sys.argv[1]
for program in sys.argv[2:]:
    sys.argv = [program, "--help"]
    print(">>>", program)
    try:
        runpy.run_path(program, run_name="__main__")
    except SystemExit as end:
        assert not end.code, program
"""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(ROOT)))
def test_programs_answer_help(folder):
    programs = [str(program) for program in WITH_OPTIONS if program.parent == folder]
    command = [sys.executable, "-W", "ignore", "-c", _ASK, str(folder), *programs]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    answers = done.stdout.split(">>> ")[1:]
    assert [answer.split("\n")[0] for answer in answers] == programs
    for answer in answers:
        assert "usage" in answer, answer
