"""Frames with random flaws: a result, or an error that says what is wrong; see benchmarks/fuzz.py, which makes more of them."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def fuzz(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import fuzz

    yield fuzz
    del sys.modules["fuzz"]


#: What needs no model, so that hundreds of calls take seconds.
QUICK = (
    "^(TextLoader|AddJudged|OnlyJudged|Rotate|AnswerP|Repeat|Rewrite|Disparity$|Linguistic|Annotate|ARaB|Lexicon|QueryGender|Balanced|"
    "SwapGender|Neutral|Survivorship|MATS|Planted|Collection|FaiRR|NFaiRR|Over|Expected|augment|infer|leave|relabel|Hidden|Exclude|"
    "training_subsets|first_|check_)"
)


def test_no_frame_ends_in_an_obscure_error_and_none_is_changed(fuzz):
    counts, bad = fuzz.fuzz(260, seed=1, only=QUICK)
    assert bad == []
    assert counts["fine"] > 80 and counts["clear"] > 60
    assert counts["fine"] + counts["clear"] == 260


def test_the_program_finds_each_kind_of_bad_call(fuzz):
    """Functions that are wrong in one way each are found out."""
    frame = fuzz.RUN

    def changing(given):
        given["score"] = 1.0

    wrong = {
        "obscure": lambda given: given["qid"].iloc[99], "changed": changing, "different": lambda given: str(given.dtypes["qid"]),
    }  # fmt: skip
    for kind, run in wrong.items():
        call = fuzz.Call("wrong", run, frame, ("wrong",))
        ended = {fuzz.run_call(call, lambda run=run: run(frame), f"{number}")[0] for number in range(60)}
        assert kind in ended


def test_calls_are_those_of_the_seed(fuzz):
    one, same, other = (fuzz.fuzz(30, seed, "^Rotate") for seed in (1, 1, 2))
    assert one == same != other
