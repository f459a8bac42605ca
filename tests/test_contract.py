"""Every public stage keeps the contract of `tests/contract.py`."""

import inspect

import pandas as pd
import pytest

from pyterrier_debias import Collection, RotatePassages, TextLoader
from tests.contract import CHECKS, Case

CORPUS = pd.DataFrame(
    {
        "docno": [f"d{i}" for i in range(6)],
        "text": [
            "Paris lies on the Seine. It is the capital of France.",
            "The Seine flows into the sea. Boats go up and down.",
            "one",
            "",
            "A capital is where the government of a country sits. Some move.",
            "Tea is made with hot water, not with boiling milk.",
        ],
        "title": list("abcdef"),
    }
)
RESULTS = pd.DataFrame(
    {
        "qid": ["q1"] * 4 + ["q2"] * 4,
        "query": ["what is the capital of france"] * 4 + ["how is tea made"] * 4,
        "docno": ["d0", "d1", "d2", "d4", "d5", "d3", "d0", "d4"],
        "score": [4.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0, 1.0],
        "rank": [0, 1, 2, 3, 0, 1, 2, 3],
    }
)


def texts() -> pd.DataFrame:
    return RESULTS.merge(CORPUS[["docno", "text"]], on="docno", how="left")


CASES = [
    Case("TextLoader", lambda: TextLoader(CORPUS), lambda: RESULTS, lambda: TextLoader(CORPUS, ("title",))),
    Case("RotatePassages", RotatePassages, texts, lambda: RotatePassages(seed=1)),
    Case("RotatePassages(pair)", lambda: RotatePassages(scope="pair"), texts, lambda: RotatePassages(unit="sentence")),
    Case("RotatePassages(documents)", RotatePassages, lambda: CORPUS, lambda: RotatePassages(keep_original=True)),
]


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case, check, monkeypatch):
    function = CHECKS[check]
    function(case, monkeypatch) if "monkeypatch" in inspect.signature(function).parameters else function(case)


def test_collections_loader_is_the_same_stage():
    toy = Collection("toy", corpus=CORPUS, topics={"t": RESULTS[["qid", "query"]]}, qrels={"t": RESULTS.assign(label=1)})
    assert isinstance(toy.text_loader(), TextLoader)
