"""Examples in docstrings run and print what they say."""

import doctest
import importlib
import pkgutil

import pytest

import pyterrier_debias

MODULES = sorted(
    m.name for m in pkgutil.walk_packages(pyterrier_debias.__path__, "pyterrier_debias.") if not m.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    module = importlib.import_module(name)
    outcome = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert outcome.failed == 0
