"""Tests may run in any order."""

import random
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests.conftest import shuffled

ITEMS = [SimpleNamespace(nodeid=f"tests/test_{file}.py::test_{n}[a::b]") for file in "abcde" for n in range(6)]


def names(items):
    return [item.nodeid for item in items]


def test_a_seed_decides_the_order_and_files_stay_together():
    first, again, other = (names(shuffled(items, seed)) for items, seed in ((ITEMS, "1"), (ITEMS[::-1], "1"), (ITEMS, "2")))
    assert sorted(first) == sorted(names(ITEMS)) and first != names(ITEMS) and first != other
    files = [name.partition("::")[0] for name in first]
    assert sum(one != next_one for one, next_one in pairwise(files)) == 4
    assert list(dict.fromkeys(files)) != sorted(set(files))
    assert [name.partition("::")[0] for name in again] == files


@pytest.fixture(scope="module")
def drawn():
    return {"fixture": draw(), "tests": []}


def draw():
    return random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002


@pytest.mark.parametrize("turn", [0, 1])
def test_what_is_drawn_depends_on_no_other_test(turn, drawn):
    drawn["tests"].append(draw())
    assert set(drawn["tests"]) == {drawn["fixture"]}
