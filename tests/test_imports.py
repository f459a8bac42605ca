"""Importing is light, and a layer imports only from layers beneath it."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pyterrier_debias

PACKAGE = Path(pyterrier_debias.__file__).parent

HEAVY = ("torch", "transformers", "sentence_transformers", "matplotlib", "scipy.stats", "statsmodels")

BIASES = ("position", "survivorship", "gender", "linguistic", "pooling", "further")

#: From the lowest layer up. A bias imports no other bias.
LAYERS = (("core",), ("data",), ("training",), ("rankers",), BIASES, ("report",))
LAYER = {folder: number for number, folders in enumerate(LAYERS) for folder in folders}


STATEMENTS = (
    "import pyterrier_debias",
    "from pyterrier_debias import RotatePassages, PositionSensitivity, AnswerPositions",
    "from pyterrier_debias import CETReranker, HiddenJudgements, RelabelReranker, RankWindow, OnlyJudged; CETReranker('a')",
    "from pyterrier_debias import LinguisticComplexity, EqualizeReranker, RepeatNounPhrases; EqualizeReranker('a')",
    "from pyterrier_debias import SurvivorshipCurve, SurvivorshipSubset, Answerability, dataset_report; Answerability()",
    "from pyterrier_debias import ARaBEvaluator, ARaB, BalancedPairs, SwapGender, AdversarialReranker; SwapGender()",
    "from pyterrier_debias import PlantedCollection, PlantedRanker, open_dataset, audit, System",
    "from pyterrier_debias import TK, BiEncoder, CrossEncoder, MultiVector, T5Reranker; CrossEncoder('a'); BiEncoder('b')",
    "from pyterrier_debias import TK, AddJudged, ColumnWeights, Training; TK('a', training=Training())",
)


def test_import_is_light():
    """In one process: what a statement loads is what was not there after those before it."""
    code = f"""
import json, sys
loaded = {{}}
for statement in {STATEMENTS!r}:
    exec(statement, {{}})
    loaded[statement] = [name for name in {HEAVY!r} if name in sys.modules]
print(json.dumps(loaded))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {statement: [] for statement in STATEMENTS}


def test_every_public_name_is_there_and_documented():
    names = [name for name in pyterrier_debias.__all__ if name != "__version__"]
    assert len(names) > 50 and pyterrier_debias.__version__
    assert [name for name in names if not getattr(getattr(pyterrier_debias, name, None), "__doc__", None)] == []


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        _ = pyterrier_debias.NoSuchThing


def test_type_checkers_are_told_of_every_public_name():
    """By an import under its own name, which is how a typed package says that the name is public."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    told = {name.asname: node.module for node in block.body for name in node.names if name.asname == name.name}
    assert told == {name: f"pyterrier_debias.{module}" for name, module in pyterrier_debias._PUBLIC.items()}


def imported(path: Path) -> set[str]:
    """Modules of this package that a file imports, wherever in the file; as paths below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pyterrier_debias"):
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name.startswith("pyterrier_debias"))
    return {name.removeprefix("pyterrier_debias").lstrip(".") for name in found}


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent != PACKAGE]


def test_imports_go_down():
    for path in FILES:
        here = path.relative_to(PACKAGE).parts[0]
        for module in imported(path) - {"", "_version"}:
            there = module.split(".")[0]
            assert LAYER[there] <= LAYER[here], f"{path.relative_to(PACKAGE)}, in {here}, imports {module}"
            assert here == there or not {here, there} <= set(BIASES), f"{here} imports {there}"


def test_no_test_file_is_imported():
    """What tests share stands in modules of its own. Code that tests run in other processes counts."""
    named = re.compile(r"\bfrom [\w.]*\btest_\w+ import|\bfrom tests[\w.]* import (\([^)]*|.*)\btest_|\bimport [\w.]*\btest_")
    assert [file.name for file in Path(__file__).parent.rglob("*.py") if named.search(file.read_text())] == []
