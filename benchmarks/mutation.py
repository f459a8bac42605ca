"""Mutation testing of the mathematics: does a test fail when one operator or number of a formula is changed?

    python benchmarks/mutation.py [pyterrier_debias/gender/formulas/arab.py ...] [--sample 20] [--seed 0] [--out mutants.csv]

The program changes one comparison, arithmetic or Boolean operator, number, sign or ``not`` at a time, in whole modules: those
that are given, or all that contain mathematics (``MATHEMATICS``). For each module, pytest collects once the tests that name
something in it (``TESTS``) and the module's own examples. Everything else happens in forks of that process. The first fork runs
the tests on the unchanged module, and notes which of its lines each test runs. Then there is one fork for each mutant. It gives
the module's functions the changed code and runs the tests of the changed line, the quickest first, until one fails or they have
taken ``--seconds``. A mutant that runs for longer than ``--timeout`` counts as killed. No file is changed.

``--out`` names a table of all mutants that were tried: module, number of the mutant, line, original, mutant, and whether it was
killed, survived, or is in a line that no test runs. The table grows as mutants are finished, and a program that was stopped
continues from it. Mutants of a module whose text has changed are tried again; with ``--again``, so are those that no test killed.
``--until 14:30`` stops before that time. The exit status says whether the program ran, not whether mutants survived: some
survivors are equivalent to the original (a tolerance, a default that every caller overrides), the others show that a test is
missing.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import csv
import gc
import hashlib
import importlib
import json
import os
import random
import re
import resource
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
#: The modules that are tested if none is named, as patterns inside the package.
MATHEMATICS = (
    "core/statistics.py", "core/evaluation.py", "*/formulas/*.py", "*/measures/*.py", "survivorship/data/ranks.py",
    "training/losses.py", "training/weights.py",
)  # fmt: skip
#: The places of the tests of each folder of the package; the files that name something in the module are run.
TESTS = {
    "core": ("tests/test_statistics.py", "tests/test_evaluation.py", "tests/survivorship/test_nested.py"),
    "training": (
        "tests/training/test_losses.py", "tests/training/test_examples.py", "tests/training/test_trainer.py",
        "tests/pooling/test_pooling_losses.py",
    ),
    **{
        bias: (f"tests/{bias}/test_*.py", "tests/report/test_contributions.py")
        for bias in ("gender", "linguistic", "pooling", "position", "survivorship")
    },
}
#: Libraries that tests need; they are imported once, before any process is forked.
IMPORTED = (
    "numpy", "pandas", "scipy.stats", "scipy.optimize", "sklearn.linear_model", "sklearn.metrics", "statsmodels.api", "torch",
    "matplotlib.pyplot", "transformers", "sentence_transformers", "ir_measures", "hypothesis.strategies", "pytest",
    "pytest_timeout", "pyterrier",
)  # fmt: skip
SWAPS: dict[type, type] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.Pow: ast.Mult,
    ast.Mod: ast.Mult, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
#: Outcomes: a test failed, no test failed, no test runs the line.
KILLED, SURVIVED, NOT_RUN = "killed", "survived", "not run"
#: Memory of a mutant, which may ask for any number of cells.
MEMORY = 12 * 2**30


@dataclass(frozen=True)
class Mutant:
    """One changed place.

    Attributes:
        number: Number of the mutant in its module.
        line: The line where the changed expression begins.
        lines: The lines of the statement around it, or of that statement's head.
        always: Whether the statement runs when the module is imported.
        original: The expression around the change, before it.
        mutant: The expression after the change.
    """

    number: int
    line: int
    lines: range
    always: bool
    original: str
    mutant: str


def mutations(tree: ast.Module) -> Iterator[ast.expr | ast.stmt]:
    """Change one place of the tree after another, and yield the changed node; each change is undone afterwards."""
    written = {id(part) for node in ast.walk(tree) for part in annotations(node)}
    for node in ast.walk(tree):
        if id(node) in written:
            continue
        if isinstance(node, (ast.BinOp, ast.BoolOp, ast.AugAssign)) and type(node.op) in SWAPS:
            before, node.op = node.op, SWAPS[type(node.op)]()
            yield node
            node.op = before
        elif isinstance(node, ast.Compare):
            for place, operator in enumerate(node.ops):
                node.ops[place] = SWAPS[type(operator)]()
                yield node
                node.ops[place] = operator
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            before, inner, node.op = node.op, node.operand, ast.UAdd()
            if isinstance(before, ast.Not):
                node.op, node.operand = before, ast.UnaryOp(ast.Not(), inner)
            yield node
            node.op, node.operand = before, inner
        elif isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            number = node.value
            node.value = not number if isinstance(number, bool) else number + 1
            yield node
            node.value = number


def annotations(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes of the types that a node is annotated with, where ``|`` is not an operator."""
    for part in (getattr(node, "annotation", None), getattr(node, "returns", None)):
        yield from ast.walk(part) if isinstance(part, ast.AST) else ()


def places(tree: ast.Module) -> dict[int, tuple[range, bool]]:
    """By the id of each node: the lines of its statement (of its head, if it has a body), and whether an import runs it."""
    found: dict[int, tuple[range, bool]] = {}

    def walk(node: ast.AST, lines: range, imported: bool) -> None:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            last = body[0].lineno - 1 if body else node.end_lineno
            lines = range(node.lineno, max(node.lineno, last) + 1)
        found[id(node)] = lines, imported
        inside = node.body if isinstance(node, (ast.FunctionDef, ast.Lambda)) else ()
        for child in ast.iter_child_nodes(node):
            walk(child, lines, imported and child not in (inside if isinstance(inside, list) else (inside,)))

    walk(tree, range(0), True)
    return found


def mutants(source: str) -> list[Mutant]:
    """All mutants of a module."""
    tree = ast.parse(source)
    where = places(tree)
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    before = {id(node): ast.unparse(node) for node in ast.walk(tree) if isinstance(node, (ast.expr, ast.AugAssign))}
    # A decorator cannot be exchanged once the class is made, and options of dataclasses are not mathematics.
    decorating = {id(part) for node in ast.walk(tree) for said in getattr(node, "decorator_list", ()) for part in ast.walk(said)}
    found = []
    for number, node in enumerate(mutations(tree)):
        if id(node) in decorating:
            continue
        around = node
        while isinstance(parents.get(id(around)), ast.expr) and len(before[id(around)]) < 25:
            around = parents[id(around)]
        lines, imported = where[id(node)]
        after = ast.unparse(around)
        found.append(Mutant(number, node.lineno, lines, imported, before[id(around)], after))
    return found


def tests_of(module: Path) -> tuple[str, ...]:
    """The test files that name a public function or class of a module, or the module itself, most often first."""
    folder = module.parts[1]
    if folder not in TESTS:
        sys.exit(f"{module}: its tests are not known; give --tests")
    names = {module.stem}
    for node in ast.parse((ROOT / module).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            names.add(node.name)
    words = re.compile(rf"\b({'|'.join(map(re.escape, sorted(names)))})\b")
    files = [path for pattern in TESTS[folder] for path in sorted(ROOT.glob(pattern))]
    counts = {path.relative_to(ROOT).as_posix(): len(words.findall(path.read_text())) for path in files}
    return tuple(sorted((path for path in counts if counts[path]), key=counts.__getitem__, reverse=True))


# -------------------------------------------------------------------------------------------------------- tests in forks
class Watch:
    """A plugin of pytest that notes which lines of a file each test runs, how long it takes and whether it passes."""

    def __init__(self, file: str, seconds: float):
        self.file, self.until = file, time.process_time() + seconds
        self.now, self.began = "", 0.0
        self.ran: dict[str, set[int]] = {}
        self.seconds: dict[str, float] = {}
        self.left_out: set[str] = set()

    def trace(self, frame: Any, event: str, arg: Any) -> Any:
        """See :func:`sys.settrace`."""
        if frame.f_code.co_filename != self.file:
            return None
        lines = self.ran.setdefault(self.now, set())
        lines.add(frame.f_lineno)

        def line(frame: Any, event: str, arg: Any) -> Any:
            lines.add(frame.f_lineno)
            return line

        return line

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Lines that fixtures run count for all tests of the file."""
        self.now, self.began = nodeid.split("::")[0], time.process_time()
        sys.settrace(self.trace)

    def pytest_runtest_setup(self) -> None:
        """Skip tests when the time is used up; the files that name the module least come last."""
        if time.process_time() > self.until:
            import pytest

            pytest.skip("no time is left")

    def pytest_runtest_call(self, item: Any) -> None:
        """From here on, lines count for the test itself."""
        self.now = item.nodeid

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note how a test ended."""
        sys.settrace(None if report.when == "teardown" else self.trace)
        self.seconds[report.nodeid] = time.process_time() - self.began  # of this process alone, whatever else runs
        if report.outcome != "passed":
            self.left_out.add(report.nodeid)

    def told(self) -> dict[str, Any]:
        """The notes, for another process."""
        ran = {test: sorted(lines) for test, lines in self.ran.items()}
        return {"ran": ran, "seconds": {test: seconds for test, seconds in self.seconds.items() if test not in self.left_out}}


class Examination:
    """A plugin of pytest that runs the collected tests on each mutant of a module, each in its own fork."""

    def __init__(self, module: Path, chosen: list[Mutant], done: Callable[[Mutant, str], None], options: argparse.Namespace):
        self.file, self.chosen, self.done, self.options = str(ROOT / module), chosen, done, options
        self.module = ".".join(module.with_suffix("").parts)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Examine the mutants instead of running the tests."""
        found = self.watched(session)
        self.functions = functions_of(self.file)
        for mutant in self.chosen:
            if self.options.until is not None and datetime.now() >= self.options.until:
                break
            tests = self.meeting(mutant, found)
            status = forked(lambda m=mutant, t=tests: self.meet(session, m, t), self.options.timeout) if tests else 0
            self.done(mutant, NOT_RUN if not tests else SURVIVED if status == 0 else KILLED)
        return True

    def watched(self, session: Any) -> dict[str, Any]:
        """Which lines of the module each test runs; see :class:`Watch`."""
        with tempfile.NamedTemporaryFile("r") as told:

            def work() -> int:
                watch = Watch(self.file, 3 * self.options.seconds)
                session.config.pluginmanager.register(watch)
                run(session)
                Path(told.name).write_text(json.dumps(watch.told()))
                return 0

            status = forked(work, 1_800)
            if status != 0:
                raise RuntimeError(f"the tests of {self.module} did not end without any mutation (status {status})")
            return json.loads(Path(told.name).read_text())

    def meeting(self, mutant: Mutant, found: dict[str, Any]) -> list[str]:
        """The tests that run a mutant's statement, quickest first, as many as the time allows."""
        lines = set(mutant.lines)
        runs = {test for test, ran in found["ran"].items() if mutant.always or lines & set(ran)}
        seconds = found["seconds"]
        chosen, left = [], self.options.seconds
        for test in sorted(seconds, key=seconds.__getitem__):
            if test in runs or test.split("::")[0] in runs:
                left -= seconds[test]
                if left < 0 and chosen:
                    break
                chosen.append(test)
        return chosen

    def meet(self, session: Any, mutant: Mutant, tests: list[str]) -> int:
        """Run tests on a mutant; returns 0 if all of them pass."""
        self.put(mutant)
        items = {item.nodeid: item for item in session.items}
        session.items[:] = [items[test] for test in tests]
        session.config.option.maxfail = 1
        run(session)
        return int(session.testsfailed > 0)

    def put(self, mutant: Mutant) -> None:
        """Give the imported module's functions the code, the defaults and the constants of the changed one."""
        tree = ast.parse(Path(self.file).read_text())
        for number, _ in enumerate(mutations(tree)):
            if number == mutant.number:
                code = compile(tree, self.file, "exec", dont_inherit=True)
                break
        for changed in codes_in(code):
            for function in self.functions.get(named(changed), ()):
                function.__code__ = changed
        if mutant.always:
            imported = sys.modules[self.module]
            namespace = {name: value for name, value in vars(imported).items() if name.startswith("__")}
            exec(code, namespace)
            for functions in functions_of(self.file).values():
                new = [function for function in functions if function.__globals__ is namespace]
                for function in (function for function in functions if new and function.__globals__ is not namespace):
                    function.__defaults__, function.__kwdefaults__ = new[0].__defaults__, new[0].__kwdefaults__
            constants = (bool, int, float, str, tuple, list, dict, set, frozenset)
            for name, value in namespace.items():
                if isinstance(value, constants) and not name.startswith("__"):
                    setattr(imported, name, value)
                elif isinstance(value, type) and value.__module__ == self.module:
                    for key, own in vars(value).items():
                        if isinstance(own, constants) and not key.startswith("__"):
                            setattr(getattr(imported, name), key, own)


def run(session: Any) -> None:
    """Run the session's tests; stopping at the first failure is not an error."""
    from _pytest.main import pytest_runtestloop

    with contextlib.suppress(session.Failed, session.Interrupted):
        pytest_runtestloop(session)


def named(code: types.CodeType) -> tuple[str, int]:
    """A name that identifies a function in its module."""
    return code.co_qualname, code.co_firstlineno


def codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    """A code object and all code objects inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_in(constant)


def functions_of(file: str) -> dict[tuple[str, int], list[types.FunctionType]]:
    """All functions of a file, wherever they are kept."""
    found: dict[tuple[str, int], list[types.FunctionType]] = {}
    for thing in gc.get_objects():
        if type(thing) is types.FunctionType and thing.__code__.co_filename == file:
            found.setdefault(named(thing.__code__), []).append(thing)
    return found


def forked(work: Callable[[], int], timeout: float) -> int:
    """The exit status of some work in its own process; -1 if it ran for too long."""
    child = os.fork()
    if child == 0:
        status = 70
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            void = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(void, stream)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            status = work()
        finally:
            os._exit(status)
    until = time.monotonic() + timeout
    try:
        while time.monotonic() < until:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        return -1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # and the processes that it started


def collected(tests: tuple[str, ...], module: Path, plugin: Examination) -> int:
    """Hand a module's tests to a plugin."""
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-m", "not java and not gpu", "--doctest-modules"]
    options += ["-o", "doctest_optionflags=NORMALIZE_WHITESPACE ELLIPSIS"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # for modules that were imported before
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    return int(pytest.main([*options, str(module), *tests], plugins=[plugin]))


# -------------------------------------------------------------------------------------------------------------- the table
COLUMNS = ("module", "digest", "number", "line", "original", "mutant", "outcome")


def there(path: Path | None) -> dict[tuple[str, str, int], dict[str, str]]:
    """Rows of an earlier run, by module, digest of its text and number."""
    if path is None or not path.is_file():
        return {}
    with path.open(newline="") as file:
        return {(row["module"], row["digest"], int(row["number"])): row for row in csv.DictReader(file)}


def write(path: Path, rows: dict[tuple[str, str, int], dict[str, str]]) -> None:
    """Write all rows, in the order of modules and mutants."""
    scratch = path.with_suffix(".part")
    with scratch.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows))
    scratch.replace(path)


def modules_of(named: list[Path]) -> list[Path]:
    """Paths of modules in the project; all modules with mathematics if none is named."""
    package = ROOT / "pyterrier_debias"
    if named:
        return [path.resolve().relative_to(ROOT) for path in (p if p.is_absolute() else ROOT / p for p in named)]
    found = (path for pattern in MATHEMATICS for path in sorted(package.glob(pattern)) if path.name != "__init__.py")
    return [path.relative_to(ROOT) for path in dict.fromkeys(found)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", type=Path)
    parser.add_argument("--sample", type=int, help="number of mutants per module; all by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--tests", nargs="+", help="tests to run, instead of those in TESTS")
    parser.add_argument("--files", type=int, default=4, help="number of test files: those that name the module most often")
    parser.add_argument("--seconds", type=float, default=20, help="seconds of tests that are run on one mutant")
    parser.add_argument("--timeout", type=float, default=120, help="seconds after which a mutant counts as killed")
    parser.add_argument("--out", type=Path, help="a table of all mutants (CSV), from which a stopped run continues")
    parser.add_argument("--again", action="store_true", help="try the mutants in --out again that no test killed")
    parser.add_argument("--until", type=lambda said: datetime.combine(datetime.now(), datetime.strptime(said, "%H:%M").time()))
    options = parser.parse_args()
    if options.sample != 0:
        prepare()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended; --out continues from the finished mutants"))
    modules, rows, total = modules_of(options.modules), there(options.out), {}
    for module in modules:
        total[module] = examine(module, rows, options)
    for module, counts in total.items():
        print(f"{module}: {told(counts)}")
    both = {outcome: sum(counts[outcome] for counts in total.values()) for outcome in (KILLED, SURVIVED, NOT_RUN)}
    print(f"together: {told(both)}")


def told(counts: dict[str, int]) -> str:
    """Counts of outcomes in words."""
    tried = sum(counts.values())
    share = f" ({counts[KILLED] / tried:.1%})" if tried else ""
    return f"{counts[KILLED]} of {tried} mutants killed{share}, {counts[NOT_RUN]} in lines that no test runs"


def prepare() -> None:
    """Import the libraries that tests need, including pytest's own parts."""
    from _pytest.config import default_plugins

    for name in (*IMPORTED, *(f"_pytest.{part}" for part in default_plugins)):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()  # so that no fork scans these objects


def examine(module: Path, rows: dict[tuple[str, str, int], dict[str, str]], options: argparse.Namespace) -> dict[str, int]:
    """Try the mutants of a module that were not tried yet, print those that no test killed, and count outcomes."""
    source = (ROOT / module).read_text()
    digest = hashlib.sha256(source.encode()).hexdigest()[:12]
    chosen = mutants(source)
    if options.sample is not None:
        random.Random(options.seed).shuffle(chosen)
        del chosen[options.sample :]  # a larger sample includes the smaller ones
    about = module.relative_to("pyterrier_debias").as_posix()
    keys = {mutant.number: (about, digest, mutant.number) for mutant in sorted(chosen, key=lambda m: (m.line, m.number))}
    left = [m for m in chosen if keys[m.number] not in rows or (options.again and rows[keys[m.number]]["outcome"] != KILLED)]
    with tempfile.TemporaryDirectory() as scratch:
        path = options.out or Path(scratch) / "mutants.csv"

        def done(mutant: Mutant, outcome: str) -> None:
            row = (about, digest, mutant.number, mutant.line, mutant.original, mutant.mutant, outcome)
            rows[keys[mutant.number]] = dict(zip(COLUMNS, map(str, row)))
            write(path, rows)

        tests = tuple(options.tests) if options.tests else tests_of(module)[: options.files]
        if left and (options.until is None or datetime.now() < options.until):
            status = forked(lambda: collected(tests, module, Examination(module, left, done, options)), 24 * 3600)
            if status != 0:
                print(f"{module}: its tests could not be run (status {status}): {' '.join(tests)}", flush=True)
        rows.update(there(path))
    found = [rows[key] for key in keys.values() if key in rows]
    for row in found:
        if row["outcome"] != KILLED:
            print(f"  {row['outcome']}: {module}:{row['line']}: {row['original']}  ->  {row['mutant']}", flush=True)
    return {outcome: sum(row["outcome"] == outcome for row in found) for outcome in (KILLED, SURVIVED, NOT_RUN)}


if __name__ == "__main__":
    main()
