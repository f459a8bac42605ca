"""What every stage inherits."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias.stage import Stage, chain, flatten


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
