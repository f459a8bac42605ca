"""Fixtures that all tests share."""

import atexit
import gc
import io
import logging
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PT_TEST_TRANSFORMER_REPORTS", "0")
# Threads that read weights one by one take longer to start than a tiny model to read.
os.environ.setdefault("HF_DEACTIVATE_ASYNC_LOAD", "1")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests run side by side on small models: threads of one would only wait for those of another, which doubles the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Reports are as wide as the terminal.
os.environ["COLUMNS"] = "110"

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Each of several processes begins to collect somewhere else, and finds compiled what the others have been through.

    In a fresh clone all would compile the same files at the same time. Files that tests and examples write without a folder of
    pytest's are removed at the end. The folders of pytest and the sockets of Ray, whose paths must be short, stay where they are.
    """
    for name in ("PYTEST_DEBUG_TEMPROOT", "RAY_TMPDIR"):
        os.environ.setdefault(name, tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="tests-")
    os.chmod(tempfile.tempdir, 0o1777)  # as /tmp: where root runs the tests, some act as another user
    # Registered before multiprocessing, which removes its own files first.
    atexit.register(shutil.rmtree, tempfile.tempdir, ignore_errors=True)
    told = getattr(config, "workerinput", None)
    if told is not None and [Path(given).resolve() for given in config.args] == [ROOT / "tests"]:
        parts = sorted({str(path.relative_to(ROOT / "tests").parts[0]) for path in (ROOT / "tests").rglob("test_*.py")})
        first = len(parts) * int(told["workerid"].removeprefix("gw")) // told["workercount"]
        config.args[:] = [str(ROOT / "tests" / part) for part in parts[first:] + parts[:first]]


_prepared = False


def pytest_collectstart() -> None:
    """Import the large libraries, in processes that run tests alone: the one that only hands out tests to others starts faster.

    While modules are imported nothing is garbage, and looking for it takes a tenth of the time.
    """
    global _prepared
    if _prepared:
        return
    _prepared = True
    gc.disable()
    import pyterrier as pt
    import torch
    from hypothesis import settings

    # Tiny models are slowed down by a second thread, most of all where several test processes share the processor.
    torch.set_num_threads(1)
    # Schematics would otherwise look for documentation pages on the network.
    pt.documentation._cached_objects_inv = {}
    # How long an example takes says nothing about it on a machine that does other things too.
    settings.register_profile("untimed", deadline=None)
    settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """Garbage is looked for again while tests run."""
    gc.enable()


def shuffled(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """Tests in an order that the seed decides: files, and within each file its tests, so that a file's fixtures are made once."""
    chance, files = random.Random(seed), {}
    for item in items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    order = sorted(files)
    chance.shuffle(order)
    return [item for file in order for item in chance.sample(files[file], len(files[file]))]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the tests where ``PYTEST_SHUFFLE`` holds a seed. Those marked ``ray`` come first, those marked ``java`` last.

    Tests over Ray wait for its processes, while others can run; at the end there are no others. A process in which the virtual
    machine has started cannot be forked safely.
    """
    items.sort(key=lambda item: item.path)
    if seed := os.environ.get("PYTEST_SHUFFLE"):
        items[:] = shuffled(items, seed)
    items.sort(key=lambda item: (item.get_closest_marker("java") is not None, item.get_closest_marker("ray") is None))


_frozen = 0


class _NoCollector:
    """In the place of ``gc`` where accelerate collects garbage at the beginning and at the end of every training."""

    @staticmethod
    def collect(*_: int) -> int:
        return 0


def _freeze() -> None:
    """Libraries that were imported since the last time are not looked at by the garbage collector again.

    A training collects garbage twice, which takes as long as a short one itself, even without the objects of torch and
    transformers: Python collects soon enough by itself.
    """
    global _frozen
    if (memory := sys.modules.get("accelerate.utils.memory")) is not None:
        memory.gc = _NoCollector
    if len(sys.modules) > _frozen + 50:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


def pytest_sessionfinish() -> None:
    """What was frozen is freed at the end."""
    gc.unfreeze()


def _seed() -> None:
    import numpy as np
    import torch

    # `torch.manual_seed` also asks for every kind of device, and takes a hundred times as long.
    random.seed(0), np.random.seed(0), torch.default_generator.manual_seed(0)  # noqa: NPY002
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(0)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws, dropout included, depends neither on chance nor on other tests. Terrier starts where it is used."""
    import pyterrier as pt

    _freeze()
    _seed()
    if item.get_closest_marker("java") is not None and not pt.java.started():
        start_terrier()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Fixtures that this test was the first to ask for have drawn numbers, too."""
    _seed()


@pytest.fixture(scope="module")
def result(request: pytest.FixtureRequest) -> Any:
    """What a module's ``BIAS`` finds in its ``context``."""
    from tests.biases import examined

    return examined(request.module.BIAS, request.getfixturevalue("context"))


@pytest.fixture(scope="module")
def findings(result: Any) -> Any:
    """The same as a table."""
    return result.table


@pytest.fixture(autouse=True)
def undisturbed() -> Iterator[None]:
    """What programs under test change for their whole process is put back: what is logged, and the threads of torch."""
    import torch

    logger, threads = logging.getLogger("pyterrier_debias"), torch.get_num_threads()
    disabled, level = logging.root.manager.disable, logger.level
    yield
    # Each of these makes all loggers forget what they would log, which takes longer than many a test.
    if logging.root.manager.disable != disabled:
        logging.disable(disabled)
    if logger.level != level:
        logger.setLevel(level)
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Modules of these folders can be imported while this lasts; what programs add to the path meanwhile is forgotten, too."""
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before


@cache
def _small_picture(kind: str) -> bytes:
    from matplotlib.figure import Figure

    content = io.BytesIO()
    Figure((1, 1)).savefig(content, format=kind)
    return content.getvalue()


def small_pictures(monkeypatch: pytest.MonkeyPatch, *, laid_out: bool = True) -> None:
    """Let matplotlib write small pictures in place of figures, for tests that look at no pixel: these take most of the time.

    Args:
        monkeypatch: Ends it.
        laid_out: Whether every figure is still laid out and drawn, with whatever matplotlib then warns of, but without pixels.
    """
    from matplotlib.figure import Figure

    for kind in ("png", "svg", "pdf"):
        _small_picture(kind)

    def save(figure: Figure, file: Any, *, format: str | None = None, **options: Any) -> None:
        if laid_out:
            figure.draw_without_rendering()
        if isinstance(file, str | Path):
            Path(file).write_bytes(_small_picture(format or Path(file).suffix[1:]))
        else:
            file.write(_small_picture(format or "png"))

    monkeypatch.setattr(Figure, "savefig", save)


@pytest.fixture
def pictures_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """See :func:`small_pictures`."""
    small_pictures(monkeypatch)


def terrier_missing() -> str | None:
    """Why tests marked ``java`` cannot run here; None where they can. Jars are fetched by the installation, never by a test."""
    import pyterrier as pt

    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java: install one (11 or newer)"
    for package in ("terrier-assemblies", "terrier-python-helper"):
        if pt.java.mavenresolver.latest_local_version_num(package) is None:
            return f"{package}'s jar is missing: pyterrier.java.init() fetches it, as `make test` does where Java is there"
    return None


def start_terrier() -> None:
    """Start Terrier from the jars that are there; skip the test where that is not possible."""
    import pyterrier as pt

    reason = terrier_missing()
    if reason is not None:
        pytest.skip(reason)
    pt.java.mavenresolver.offline()
    pt.java.set_memory_limit(2048)
    # A test ends long before the second compiler and parallel collectors would pay.
    pt.java.add_option("-XX:TieredStopAtLevel=1")
    pt.java.add_option("-XX:+UseSerialGC")
    pt.java.init()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests ran over Terrier, in one line."""
    outcomes = {
        outcome: sum("java" in getattr(report, "keywords", ()) for report in terminalreporter.stats.get(outcome, []))
        for outcome in ("passed", "failed", "error", "skipped")
    }
    if any(outcomes.values()):
        counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items() if count)
        terminalreporter.write_line(f"tests marked java: {counts}")


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """``tiny('build', architecture='roberta')`` gives a model folder; the same request gives the same folder."""
    from tests import tiny_models

    made: dict[str, str] = {}

    def get(builder: str = "build", **options: Any) -> str:
        key = f"{builder}{sorted(options.items())}"
        if key not in made:
            made[key] = str(getattr(tiny_models, builder)(tmp_path_factory.mktemp("models") / builder, **options))
        return made[key]

    return get


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real test collections; tests that need it are skipped where it is missing."""
    folder = Path(os.environ.get("PYTERRIER_DEBIAS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real collections at {folder}; set PYTERRIER_DEBIAS_DATA")
    return folder
