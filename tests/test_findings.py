"""The table of findings."""

import numpy as np
import pandas as pd

from pyterrier_debias import Bias, Finding
from pyterrier_debias.core.bias import corrected, findings_frame
from pyterrier_debias.report.baseline import against_baseline


def finding(p):
    return Finding(system="s", bias="position", measure="nDCG@10", contrast="rotated - original", value=-0.1, p=p)


def test_one_row_a_finding_and_one_column_an_attribute():
    frame = findings_frame([finding(0.01), finding(float("nan"))])
    assert frame.columns.tolist() == [
        "system", "bias", "measure", "contrast", "value", "low", "high", "p", "p_corrected", "n", "convention",
        "null_value", "text", "primary",
    ]  # fmt: skip
    assert frame["p_corrected"].isna().all()


def test_correction_is_over_what_was_tested():
    frame = findings_frame(corrected([finding(0.01), finding(float("nan")), finding(0.04)], "holm"))
    np.testing.assert_allclose(frame["p_corrected"], [0.02, np.nan, 0.04])


class Own(Bias):
    """A bias of a user's."""

    name = "own"

    def examine(self, context):
        yield from ()


def test_where_no_query_changed_nothing_was_tested():
    """As for BM25 against the pool that was made from it: p is 1 by construction, and would count among the tests."""
    still, moved = (pd.Series([0.0, change], index=["1", "2"]) for change in (0.0, 0.1))
    assert np.isnan(Own().finding("s", "m", "c", 0.0, p=1.0, values=still).p)
    assert Own().finding("s", "m", "c", 0.05, p=0.5, values=moved).p == 0.5
    assert Own().finding("s", "m", "c", 0.0, p=0.5).p == 0.5


def test_against_a_baseline_that_never_changes_a_figure_is_tested_once():
    def primary(system, values, **more):
        values = pd.Series(values, index=["1", "2", "3"])
        return Own().finding(system, "m", "c", values.mean(), values=values, primary=True, **more)

    mine = primary("mine", [0.1, 0.0, 0.4], low=-0.05, high=0.6, p=0.2)
    (found,) = against_baseline([primary("first", [0.0, 0.0, 0.0], low=0.0, high=0.0, p=1.0), mine], "first")
    assert (found.value, found.low, found.high, found.n) == (mine.value, mine.low, mine.high, 3)
    assert np.isnan(found.p) and "not tested again" in found.convention
    (found,) = against_baseline([primary("first", [0.1, 0.0, 0.0]), mine], "first")
    assert 0 < found.p < 1


def test_no_findings_is_an_empty_table():
    assert isinstance(findings_frame(corrected([], "holm")), pd.DataFrame)
