"""Fixtures that all tests share."""

import gc
import logging
import os
import random
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PT_TEST_TRANSFORMER_REPORTS", "0")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests run side by side on small models: threads of one would only wait for those of another, which doubles the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Reports are as wide as the terminal.
os.environ["COLUMNS"] = "110"

import numpy as np
import pyterrier as pt
import pytest
import torch
from hypothesis import settings

# Schematics would otherwise look for documentation pages on the network.
pt.documentation._cached_objects_inv = {}

# How long an example takes says nothing about it on a machine that does other things too.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent


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
    """Shuffle the tests where ``PYTEST_SHUFFLE`` holds a seed. Those marked ``java`` come last in any order.

    A process in which the virtual machine has started cannot be forked safely.
    """
    if seed := os.environ.get("PYTEST_SHUFFLE"):
        items[:] = shuffled(items, seed)
    items.sort(key=lambda item: item.get_closest_marker("java") is not None)


_frozen = 0


def _freeze() -> None:
    """Libraries that were imported since the last time are not looked at by the garbage collector again.

    A training collects garbage more than once, and half of its time went into the objects of torch and transformers.
    """
    global _frozen
    if len(sys.modules) > _frozen + 50:
        gc.collect()
        gc.freeze()
        _frozen = len(sys.modules)


def pytest_sessionfinish() -> None:
    """What was frozen is freed at the end."""
    gc.unfreeze()


def _seed() -> None:
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws, dropout included, depends neither on chance nor on other tests. Terrier starts where it is used."""
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
    logger, threads = logging.getLogger("pyterrier_debias"), torch.get_num_threads()
    disabled, level = logging.root.manager.disable, logger.level
    yield
    logging.disable(disabled)
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


def terrier_missing() -> str | None:
    """Why tests marked ``java`` cannot run here; None where they can. Jars are fetched by the installation, never by a test."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        return "there is no Java: install one (11 or newer)"
    for package in ("terrier-assemblies", "terrier-python-helper"):
        if pt.java.mavenresolver.latest_local_version_num(package) is None:
            return f"{package}'s jar is missing: pyterrier.java.init() fetches it, as `make test` does where Java is there"
    return None


def start_terrier() -> None:
    """Start Terrier from the jars that are there; skip the test where that is not possible."""
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
def shared_data() -> Path:
    """The folder of real test collections; tests that need it are skipped where it is missing."""
    folder = Path(os.environ.get("PYTERRIER_DEBIAS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real collections at {folder}; set PYTERRIER_DEBIAS_DATA")
    return folder
