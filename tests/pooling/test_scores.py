"""AddScores: the contract of stages, and what it asks of a scorer."""

import math

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import InputError, PlantedRanker
from pyterrier_debias.core.counterfactuals import scores_by
from pyterrier_debias.pooling.data.scores import AddScores
from tests.contract import Case, assert_contract


def found():
    rows = [("q1", f"d{i}", "where is the king", f"the king {'found ' * i}", 5.0 - i, i) for i in range(5)]
    rows += [("q2", f"d{i}", "a red bridge", f"a bridge {'red ' * i}", 5.0 - i, i) for i in (2, 0, 4)]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "score", "rank"])
    return frame.assign(rank=frame.groupby("qid").cumcount(), score=8.0 - frame.groupby("qid").cumcount())


CASES = [
    Case("AddScores", lambda: AddScores(PlantedRanker()), found, lambda: AddScores(PlantedRanker(), "other")),
    Case(
        "AddScores(sigmoid)",
        lambda: AddScores(PlantedRanker(), activation="sigmoid"),
        found,
        lambda: AddScores(PlantedRanker(strength=0.0), activation="sigmoid"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case):
    assert_contract(case)


class Fixed(pt.Transformer):
    """Returns a frame whatever it gets, in another order."""

    def __init__(self, out):
        self.out = out

    def transform(self, inp):
        return self.out.sample(frac=1, random_state=0)


def test_scores_come_to_their_rows_and_nothing_else_changes():
    inp = found()
    values = np.linspace(-3, 3, len(inp))
    out = AddScores(Fixed(inp.assign(score=values, rank=99)))(inp)
    pd.testing.assert_frame_equal(out.drop(columns="teacher_score"), inp)
    assert out["teacher_score"].tolist() == values.tolist()
    sigmoid = AddScores(Fixed(inp.assign(score=values)), activation="sigmoid")(inp)["teacher_score"]
    assert sigmoid.tolist() == pytest.approx([1 / (1 + math.exp(-value)) for value in values])


def test_a_scorer_that_writes_into_its_frame_does_not_change_that_of_the_caller():
    def score(frame):
        frame["score"], frame["text"] = 0.0, "read"
        return frame

    inp = found()
    out = AddScores(pt.apply.generic(score))(inp)
    pd.testing.assert_frame_equal(inp, found())
    pd.testing.assert_frame_equal(out.drop(columns="teacher_score"), found())
    assert set(out["teacher_score"]) == {0.0}


def test_extreme_scores_are_probabilities():
    inp = found()
    values = np.array([-np.inf, -1e4, -1, 0, 1, 1e4, np.inf, 2])
    assert AddScores(Fixed(inp.assign(score=values)), activation="sigmoid")(inp)["teacher_score"].between(0, 1).all()


def test_columns_that_the_scorer_reads_are_asked_for():
    assert set(pt.inspect.transformer_inputs(AddScores(PlantedRanker()))[0]) == {"qid", "docno", "query", "text"}


def least_of_list(frame):
    """Scores that depend on the other rows of the list."""
    return frame.assign(score=frame["score"] - frame.groupby("qid")["score"].transform("min"))


def test_a_cut_off_stays_behind_a_scorer_of_whole_lists():
    stage = AddScores(pt.apply.generic(least_of_list))
    pipeline = (pt.Transformer.from_df(found()) >> stage) % 2
    plain, compiled = (one(found()[["qid", "query"]].drop_duplicates()) for one in (pipeline, pipeline.compile()))
    assert compiled["teacher_score"].tolist() == plain["teacher_score"].tolist() == [4.0, 3.0, 2.0, 1.0]
    assert (stage.pieces, AddScores(PlantedRanker()).pieces) == ("queries", "rows")


def test_a_cut_off_behind_it_cuts_before_it():
    pipeline = (pt.Transformer.from_df(found()) >> AddScores(PlantedRanker()) % 2).compile()
    assert isinstance(pipeline[-1], AddScores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scorer": len}, "scorer is a builtin_function_or_method"),
        ({"activation": "softmax"}, "activation='softmax' is not known"),
        ({"column": "score"}, "column='score' is a column that the frame needs itself"),
    ],
)
def test_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        AddScores(**{"scorer": PlantedRanker(), **options})(found())


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (lambda frame: frame.head(5), r"leaves out 3 of 8 rows, e.g. qid='q2', docno='d2'; give a scorer without a cut-off"),
        (lambda frame: frame.assign(score=math.nan), "column 'score' is NaN"),
        (lambda frame: frame.drop(columns="score"), "returns no column 'score'"),
        (lambda frame: pd.concat([frame, frame]), r"returns 16 rows for 8 pairs .* \(several for qid='q1', .* not a retriever"),
    ],
)
def test_a_scorer_that_does_not_score_every_row_is_refused(out, message):
    with pytest.raises(InputError, match=message):
        AddScores(Fixed(out(found())))(found())


def test_repeated_pairs_are_refused():
    with pytest.raises(InputError, match="occur more than once"):
        AddScores(PlantedRanker())(pd.concat([found(), found()]))


def test_numbers_as_ids_meet_strings():
    inp = pd.DataFrame({"qid": [1, 1], "docno": [7, 8], "score": [0.0, 1.0]})
    assert scores_by(Fixed(inp.astype({"qid": str, "docno": str})), inp, "test").tolist() == [0.0, 1.0]
