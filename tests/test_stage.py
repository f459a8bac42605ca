"""What every stage inherits."""

import pickle
import re
import sys
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import AddScores, InputError, PlantedRanker
from pyterrier_debias.core import pieces
from pyterrier_debias.core.stage import Stage, chain, described, flatten


class Adder(Stage):
    def __init__(self, column, *, by=1.0, table=None, verbose=False):
        self.column = column
        self.by = by
        self.table = table
        self.verbose = verbose

    def transform(self, inp):
        return inp.assign(**{self.column: self.by})


def test_equality_is_by_options():
    assert Adder("a") == Adder("a")
    assert Adder("a") == Adder("a", verbose=True)
    assert Adder("a") != Adder("b")
    assert Adder("a", by=1) != Adder("a", by=1.0)
    assert Adder("a") != 3
    assert hash(Adder("a")) == hash(Adder("b"))  # a tuned stage stays the same key


@pytest.mark.parametrize("table", [pd.DataFrame({"x": [1]}), {"x": pd.Series([1])}, [pd.DataFrame({"x": [1]})]])
def test_tables_compare_by_content(table):
    import copy

    assert Adder("a", table=table) == Adder("a", table=copy.deepcopy(table))
    assert Adder("a", table=table) != Adder("a", table=None)


def test_other_options_keep_what_was_fitted():
    stage = Adder("a")
    stage.fitted = [3]
    other = pt.inspect.transformer_apply_attributes(stage, by=2.0)
    assert (other.column, other.by, other.fitted) == ("a", 2.0, [3])
    assert stage.by == 1.0
    assert other != stage
    with pytest.raises(pt.inspect.InspectError, match="Adder has no option nothing"):
        pt.inspect.transformer_apply_attributes(stage, nothing=1)


def test_repr_is_the_call_with_what_differs():
    assert repr(Adder("a", by=2.0)) == "Adder('a', by=2.0)"
    assert repr(Adder("a", verbose=True)) == "Adder('a')"
    assert repr(Adder("a", table=pd.DataFrame({"x": [1, 2]}))) == "Adder('a', table=<DataFrame 2x1>)"


class Plain:
    """An object without a repr of its own, as users write them."""

    def __init__(self, **options):
        self.__dict__.update(options)

    def act(self, value):
        return value


class Slotted:
    __slots__ = ("by", "unset")

    def __init__(self, by):
        self.by = by


def scaled(value, by=1.0):
    return value * by


@dataclass
class Wrapped:
    inner: object


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: scaled, "scaled"),
        (lambda: len, "len"),
        (lambda: Plain, "Plain"),
        (lambda: partial(scaled, 2, by=Plain(n=3)), "partial(scaled, 2, by=Plain(n=3))"),
        (lambda: Plain(n=3, of=scaled), "Plain(n=3, of=scaled)"),
        (lambda: Plain(), "Plain()"),
        (lambda: Plain(n=3).act, "Plain(n=3).act"),
        (lambda: Slotted(2.0), "Slotted(by=2.0)"),
        (lambda: Wrapped(Plain(n=1)), "Wrapped(inner=Plain(n=1))"),
        (lambda: Wrapped([1, 2]), "Wrapped(inner=[1, 2])"),
        (lambda: [Plain(n=1), (scaled,), {"a": scaled}, {len}], "[Plain(n=1), (scaled,), {'a': scaled}, {len}]"),
        (lambda: Plain(table=pd.DataFrame({"x": [1, 2]})), "Plain(table=<DataFrame 2x1>)"),
        (lambda: "what lies at 0x7f", "'what lies at 0x7f'"),
        (lambda: [1, "a"], "[1, 'a']"),
    ],
)
def test_no_repr_holds_an_address(make, expected):
    assert repr(Adder("a", table=make())) == f"Adder('a', table={expected})"
    exact = described(make())
    assert exact == described(make())
    assert " at 0x7f" not in exact.replace("lies at 0x7f", "")


def test_descriptions_tell_values_apart_whose_short_forms_are_equal():
    def make(n):
        return Plain(table=pd.DataFrame({"x": [1, n]}), at=np.array([n]), names={f"name{i}": n for i in range(9)})

    here, there = make(2), make(3)
    for name in ("table", "at", "names"):
        left, right = getattr(here, name), getattr(there, name)
        assert repr(Adder("a", table=left)) == repr(Adder("a", table=right))
        assert described(left) != described(right)
    assert described(here) != described(there)
    # A user's function by its name and by what it computes.
    assert re.fullmatch(rf"{re.escape(__name__)}\.scaled:[0-9a-f]{{8}}", described(scaled))
    assert described(lambda row: 1) != described(lambda row: 2) and described(str.split) == "str.split"


def test_an_object_that_holds_itself_has_a_repr():
    loop = Plain(n=1)
    loop.itself = loop
    assert repr(Adder("a", table=loop)) == "Adder('a', table=Plain(n=1, itself=...))"


def test_flatten_and_chain_are_inverse():
    stages = [Adder("a"), Adder("b"), Adder("c")]
    assert flatten(chain(stages)) == stages
    assert flatten(stages[0]) == [stages[0]]
    assert chain([]) is None
    assert flatten(pt.Compose(pt.Compose(*stages[:2]), stages[2])) == stages


def test_grid_scan_tunes_options():
    stage = Adder("a")
    stage.set_parameter("by", 3.0)
    assert stage(pd.DataFrame({"qid": ["q"]}))["a"].tolist() == [3.0]


def test_a_stage_that_has_changed_is_sent_again_with_its_function(monkeypatch):
    """A process keeps what it was sent by the function's key."""
    monkeypatch.setattr(pieces, "_GOT", {})
    stage = Adder("a", by=1.0)
    function, frame = pieces.by_query(stage >> Adder("b")), pd.DataFrame({"qid": ["1"]})

    def elsewhere():
        return pickle.loads(pickle.dumps(function))(frame)["a"].tolist()

    assert elsewhere() == elsewhere() == [1.0] and len(pieces._GOT) == 1
    stage.by = 2.0
    assert elsewhere() == function(frame)["a"].tolist() == [2.0] and len(pieces._GOT) == 2


class Shown:
    """An object that prints sets, as dataclasses do; members of sets come in another order in each process."""

    def __init__(self, words, also=""):
        self.words, self.also = words, also

    def __repr__(self):
        return f"Shown({self.words!r}, {self.also!r})"


def test_sets_are_described_in_one_order():
    one, other = frozenset([0, 8]), frozenset([8, 0])  # they share a place in the table, which the first one gets
    assert repr(one) != repr(other)
    assert described(one) == described(other) == "frozenset({0, 8})"
    assert described({"words": Shown(one)}) == described({"words": Shown(other)}) != described({"words": Shown({0, 9})})
    assert described("{b, a}") == "'{b, a}'" and described({"b": 1, "a": 2}) == "{'b': 1, 'a': 2}"


def test_a_stage_of_rows_may_ask_a_scorer_of_pairs_for_a_piece(monkeypatch):
    """As in ``map_batches`` of Ray Data: ranks are not looked at."""
    monkeypatch.setitem(sys.modules, "ray.data", object())
    batches = {"__name__": "ray.data.batches"}
    exec("def mapped(stage, frame):\n    return stage(frame)", batches)
    scorer = PlantedRanker()
    frame = pd.DataFrame({"qid": ["1"], "docno": ["d"], "query": ["tea"], "text": ["green tea"]})
    found = batches["mapped"](AddScores(scorer), frame)
    assert found["teacher_score"].tolist() == scorer(frame)["score"].tolist()
    for stage in (scorer, AddScores(scorer % 1 >> scorer)):
        with pytest.raises(InputError, match="Ray Data gives a piece of the frame"):
            batches["mapped"](stage, frame)
