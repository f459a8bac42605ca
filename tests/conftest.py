"""Fixtures that all tests share."""

import os
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the tests where ``PYTEST_SHUFFLE`` holds a seed; before other hooks, which may move some of them to the end."""
    if seed := os.environ.get("PYTEST_SHUFFLE"):
        items[:] = shuffled(items, seed)


def _seed() -> None:
    random.seed(0), np.random.seed(0), torch.manual_seed(0)  # noqa: NPY002


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """What a test draws, dropout included, depends neither on chance nor on the tests before it."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Fixtures that this test was the first to ask for have drawn numbers, too."""
    _seed()


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Modules of these folders can be imported while this lasts; what programs add to the path meanwhile is forgotten, too."""
    before = list(sys.path)
    sys.path[:0] = map(str, folders)
    try:
        yield
    finally:
        sys.path[:] = before


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real test collections; tests that need it are skipped where it is missing."""
    folder = Path(os.environ.get("PYTERRIER_DEBIAS_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no folder of real collections at {folder}; set PYTERRIER_DEBIAS_DATA")
    return folder
