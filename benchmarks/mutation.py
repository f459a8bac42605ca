"""Mutation testing of the formulas: is there a test that fails when one operator or number of a formula is another?

    python benchmarks/mutation.py pyterrier_debias/gender/formulas/arab.py [...] [--sample 20] [--seed 0] [--tests tests/...]

One comparison, arithmetic or Boolean operator, number or sign at a time is changed in a copy of the package, and the tests of the
module are run against the copy until the first fails. Mutants that no test notices are printed: some are equivalent (a tolerance,
a default that every caller gives), the others lack a test. Run by hand; a module takes minutes. The exit status is that of the
program, not of the mutants.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Module to the test files that are run for it; others have the files that import it.
TESTS = {
    "core/statistics.py": "tests/test_statistics.py",
    "gender/formulas/arab.py": "tests/gender/test_arab.py",
    "gender/formulas/matching.py": "tests/gender/test_matching.py",
    "linguistic/formulas/spread.py": "tests/linguistic/test_spread.py",
    "linguistic/formulas/slope.py": "tests/linguistic/test_slope.py",
    "linguistic/formulas/product_of_experts.py": "tests/linguistic/test_product.py",
    "pooling/formulas/cet_weights.py": "tests/pooling/test_cet_weights.py",
    "pooling/formulas/losses.py": "tests/pooling/test_pooling_losses.py",
    "position/formulas/mats.py": "tests/position/test_mats.py",
    "position/formulas/psi.py": "tests/position/test_sensitivity_psi.py",
    "survivorship/formulas/nested.py": "tests/survivorship/test_nested.py",
}
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


def mutations(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Change one place of the tree after another, and give its line and what was changed; it is put back afterwards."""
    written = {id(part) for node in ast.walk(tree) for part in annotations(node)}
    for node in ast.walk(tree):
        if id(node) in written:
            continue
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in SWAPS:
            before, node.op = node.op, SWAPS[type(node.op)]()
            yield node.lineno, f"{type(before).__name__} -> {type(node.op).__name__}"
            node.op = before
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            before, node.ops[0] = node.ops[0], SWAPS[type(node.ops[0])]()
            yield node.lineno, f"{type(before).__name__} -> {type(node.ops[0]).__name__}"
            node.ops[0] = before
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            node.op = ast.UAdd()
            yield node.lineno, "- -> +"
            node.op = ast.USub()
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            number = node.value
            node.value = not number if isinstance(number, bool) else number + 1
            yield node.lineno, f"{number} -> {node.value}"
            node.value = number


def annotations(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of the types that a node is annotated with, where ``|`` is no operator."""
    for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        yield from ast.walk(part) if isinstance(part, ast.AST) else ()


def tests_of(module: Path) -> list[str]:
    """The test files of a module."""
    name = module.relative_to(ROOT / "pyterrier_debias").as_posix()
    if name in TESTS:
        return TESTS[name].split()
    dotted, folder = name.removesuffix(".py").replace("/", "."), name.split("/")[0]
    texts = {path: path.read_text() for path in (ROOT / "tests" / folder).glob("test_*.py")}
    found = [path for path, text in texts.items() if dotted in text or module.stem in text]
    return [str(path.relative_to(ROOT)) for path in found]


def passes(tests: list[str], folder: Path, timeout: float) -> bool:
    """Whether the tests pass with the package in a folder."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=timeout).returncode == 0
    except subprocess.TimeoutExpired:  # a loop that no longer ends
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="+", type=Path)
    parser.add_argument("--sample", type=int, help="how many mutants of a module; all by default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tests", nargs="+", help="test files to run, in place of the module's")
    parser.add_argument("--timeout", type=float, default=300, help="seconds after which tests count as failed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name in ("pyterrier_debias", "tests", "benchmarks"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("setup.cfg", "pyproject.toml"):
            shutil.copy(ROOT / name, folder)
        for module in options.modules:
            examine(ROOT / module, folder, options)


def examine(module: Path, folder: Path, options: argparse.Namespace) -> None:
    tests = options.tests or tests_of(module)
    if not tests:
        sys.exit(f"{module.name}: no test file names it; give --tests")
    if not passes(tests, folder, options.timeout):
        sys.exit(f"{module.name}: {' '.join(tests)} fails without any mutation")
    source = module.read_text()
    mutants = [(line, what, ast.unparse(tree)) for tree in [ast.parse(source)] for line, what in mutations(tree)]
    chosen = mutants if options.sample is None else random.Random(options.seed).sample(mutants, min(options.sample, len(mutants)))
    target = folder / module.relative_to(ROOT)
    survived = []
    for line, what, text in sorted(chosen):
        target.write_text(text)
        if passes(tests, folder, options.timeout):
            survived.append(f"{module.relative_to(ROOT)}:{line}: {what}: {source.splitlines()[line - 1].strip()}")
    target.write_text(source)
    print(f"{module.relative_to(ROOT)}: {len(chosen) - len(survived)} of {len(chosen)} mutants killed", flush=True)
    print("".join(f"  survived: {line}\n" for line in survived), end="", flush=True)


if __name__ == "__main__":
    main()
