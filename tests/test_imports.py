"""Importing is light, and imports only go down the floors of the house."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pyterrier_debias

PACKAGE = Path(pyterrier_debias.__file__).parent

HEAVY = ("torch", "transformers", "sentence_transformers", "matplotlib", "scipy.stats", "statsmodels")

ROOMS = ("position", "survivorship", "gender", "linguistic", "pooling")

#: Folder to floor; modules at the top of the package are on floor 0.
FLOORS = {"training": 1, "rankers": 2, **dict.fromkeys(ROOMS, 3), "audit": 4, "collections": 0}


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import pyterrier_debias",
        "from pyterrier_debias import RotatePassages, PositionSensitivity, AnswerPositions",
        "from pyterrier_debias import CETReranker, HiddenJudgements, RelabelReranker, RankWindow, OnlyJudged; CETReranker('a')",
        "from pyterrier_debias import LinguisticComplexity, EqualizeReranker, RepeatNounPhrases; EqualizeReranker('a')",
        "from pyterrier_debias import SurvivorshipCurve, SurvivorshipSubset, Answerability, dataset_report; Answerability()",
        "from pyterrier_debias import ARaBEvaluator, ARaB, BalancedPairs, SwapGender, AdversarialReranker; SwapGender()",
        "from pyterrier_debias import PlantedCollection, PlantedRanker, open_dataset, audit, System",
        "from pyterrier_debias import TK, BiEncoder, CrossEncoder, MultiVector, T5Reranker; CrossEncoder('a'); BiEncoder('b')",
        "from pyterrier_debias import TK, AddJudged, ColumnWeights, Training, UniformNegatives; TK('a', training=Training())",
    ],
)
def test_import_is_light(statement):
    assert modules_after(statement).isdisjoint(HEAVY)


@pytest.mark.parametrize("name", pyterrier_debias.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(pyterrier_debias, name)
    assert name == "__version__" or value.__doc__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'NoSuchThing'"):
        _ = pyterrier_debias.NoSuchThing


@pytest.mark.parametrize(
    "order",
    [
        "from pyterrier_debias import audit\nimport pyterrier_debias.audit.gate as gate",
        "import pyterrier_debias.audit.gate as gate\nfrom pyterrier_debias import audit",
        "import pyterrier_debias\naudit = pyterrier_debias.audit\nfrom pyterrier_debias.audit import gate",
    ],
)
def test_the_audit_is_a_package_and_a_function_whatever_is_imported_first(order):
    code = f"""
import inspect, pickle, sys
{order}
from pyterrier_debias.audit import run
import pyterrier_debias
assert audit is pyterrier_debias.audit is sys.modules["pyterrier_debias.audit"]
assert gate.Budget and audit.gate is gate
assert inspect.signature(audit) == inspect.signature(run.audit) and "baseline" in str(inspect.signature(audit))
assert audit.__doc__ == run.audit.__doc__ and callable(audit)
assert pickle.loads(pickle.dumps(audit)) is audit
try:
    audit(rooms="astrology")
except pyterrier_debias.InputError as error:
    assert "astrology" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def imported(path: Path) -> set[str]:
    """Modules of this package that a file imports, wherever in the file; as paths below the package."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("pyterrier_debias"):
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(a.name for a in node.names if a.name.startswith("pyterrier_debias"))
    return {name.removeprefix("pyterrier_debias").lstrip(".") for name in found}


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if p.parent != PACKAGE or p.name not in ("__init__.py", "__main__.py")]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path):
    here = path.relative_to(PACKAGE).parts[0]
    floor = FLOORS.get(here, 0)
    for module in imported(path):
        there = module.split(".")[0]
        assert FLOORS.get(there, 0) <= floor, f"{path.name} is on floor {floor} and imports {module}"
        assert not (here in ROOMS and there in ROOMS and here != there), f"room {here} imports room {there}"
