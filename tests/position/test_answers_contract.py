"""AnswerPositions keeps the contract of every public stage."""


import pandas as pd
import pytest

from pyterrier_debias import AnswerPositions, RotatePassages
from tests.contract import Case, assert_contract

FRAME = pd.DataFrame({
    "qid": ["q1", "q1", "q2", "q2"],
    "docno": ["d0", "d1", "d0", "d2"],
    "text": ["Paris lies on the Seine. It is in France.", "France, and France again.", "Paris. It is old. France.", ""],
    "answer": "France",
    "answers": [["France", "Gaul"]] * 4,
})  # fmt: skip
SENTENCES = RotatePassages(unit="sentence")
PAIR = RotatePassages(scope="pair")

CASES = [
    Case("default", AnswerPositions, lambda: FRAME, lambda: AnswerPositions(case="keep"), rowwise=False),
    Case(
        "rotation",
        lambda: AnswerPositions(rotation=PAIR),
        lambda: FRAME,
        lambda: AnswerPositions(rotation=SENTENCES),
        rowwise=False,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case):
    assert_contract(case)
