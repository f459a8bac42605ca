"""Fixtures that all tests share."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("PT_TEST_TRANSFORMER_REPORTS", "0")
os.environ.setdefault("MPLBACKEND", "Agg")
# Tests run side by side on small models: threads of one would only wait for those of another, which doubles the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Reports are as wide as the terminal.
os.environ["COLUMNS"] = "110"

import pyterrier as pt
import pytest
from hypothesis import settings

# Schematics would otherwise look for documentation pages on the network.
pt.documentation._cached_objects_inv = {}

# How long an example takes says nothing about it on a machine that does other things too.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent


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
