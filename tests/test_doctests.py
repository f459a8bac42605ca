"""Examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import pyterrier_debias

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(pyterrier_debias.__path__, "pyterrier_debias.") if not m.name.endswith("__main__")
)
FOLDERS = sorted({name.split(".")[1] for name in MODULES})


@pytest.mark.parametrize("folder", FOLDERS)
def test_examples_run(folder):
    """What an example printed instead is in the captured output."""
    modules = [importlib.import_module(name) for name in MODULES if name.split(".")[1] == folder]
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    assert [module.__name__ for module in modules if doctest.testmod(module, optionflags=flags).failed] == []
