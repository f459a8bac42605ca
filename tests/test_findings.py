"""The table of findings."""

import numpy as np
import pandas as pd

from pyterrier_debias import Finding
from pyterrier_debias.core.bias import corrected, findings_frame


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


def test_no_findings_is_an_empty_table():
    assert isinstance(findings_frame(corrected([], "holm")), pd.DataFrame)
