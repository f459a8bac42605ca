"""Every program of the examples is started by a test of this folder, and by no other name than there is."""

import ast
import importlib
from pathlib import Path

from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"


def started(path: Path) -> set[str]:
    """Programs that the tests of a file start with the fixture ``run``, as paths below ``examples``."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tests = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    names = {
        call.args[0].value
        for test in tests if "run" in [argument.arg for argument in test.args.args]
        for call in ast.walk(test)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "run" and isinstance(call.args[0], ast.Constant)
    }  # fmt: skip
    module = importlib.import_module(f"tests.examples.{path.stem}")
    return {str((module.FOLDER / name).relative_to(EXAMPLES)) for name in names}


def test_every_program_is_started():
    programs = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.py") if "__main__" in path.read_text()}
    assert set().union(*map(started, Path(__file__).parent.glob("test_*.py"))) == programs
    assert "pooling_bias/planted.py" in programs


def test_the_list_of_programs_names_them_all():
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    modules = [path for path in EXAMPLES.rglob("*") if path.suffix in (".py", ".ipynb")]
    assert [path.name for path in modules if f"{path.name}`" not in listed] == []
