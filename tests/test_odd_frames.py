"""Frames with cells, columns or rows that cannot be used: one sentence that names the stage or function that the user called."""

import re

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import (
    AddJudged,
    BalancedPairs,
    Disparity,
    GenderClassifier,
    InputError,
    NFaiRR,
    PlantedRanker,
    PositionSensitivity,
    SurvivorshipCurve,
    TerrierCollection,
    WordingSensitivity,
)
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.gender.audit import GenderBias
from pyterrier_debias.linguistic.audit import prepared_topics
from pyterrier_debias.pooling.formulas.attributions import unjudged_parts
from pyterrier_debias.pooling.measures.max_rep import MaxRep
from pyterrier_debias.survivorship.audit import answer_grade
from pyterrier_debias.survivorship.data.annotations import check_annotations, rank_annotations, summary
from pyterrier_debias.survivorship.data.ranks import answered_qids
from pyterrier_debias.survivorship.measures.curve import curve_of_values
from tests import contract_cases as cases
from tests.gender.letters import Letters, annotated
from tests.survivorship.toy import ASKED, LABELS, RESULTS, SHOWN

ARRAY = np.array(["a", "b"])
BLANK = cases.RESULTS.drop(columns=["score", "rank"])
CODES = pd.DataFrame({"qid": ["a", "b", "a", "b"], "annotator": ["x", "x", "y", "y"], "code": [0, 3, 1, 3]})
CURVE = pd.DataFrame({
    "qid": ["1", "2"], "name": "mine", "measure": "RR@10", "value": [0.5, 1.0], "first_relevant_rank": [1.0, np.inf],
})  # fmt: skip


def cells(frame, column, value, row=None):
    """The frame with a value in one cell, or all cells, of a column."""
    values = pd.Series([None] * len(frame), index=frame.index, dtype=object)
    for i in range(len(frame)):
        values.iat[i] = value if row in (None, i) else frame[column].iloc[i] if column in frame else "a"
    return frame.assign(**{column: values})


def curve(**given):
    options = {"systems": {"mine": RESULTS}, "candidates": SHOWN, "qrels": LABELS, **given}
    return SurvivorshipCurve(**options, ranks=3, resamples=9)


def doubled(frame, column):
    return pd.concat([frame, frame[[column]]], axis=1)


def nfairr_of(background):
    from tests.contract_cases import women

    run = women().rename(columns={"qid": "query_id", "docno": "doc_id"})
    judged = pd.DataFrame({"query_id": run["query_id"].unique(), "doc_id": "d0", "relevance": 1})
    return lambda: list((NFaiRR(background=background(women())) @ 2).runtime_impl(judged, run))


class Answers:
    """A data set with an answer in a document without a name."""

    def get_answers(self):
        return pd.DataFrame({"qid": ["q1"], "docno": [None], "answer": ["tea"]})


def both(probe, frame, message):
    """``transform`` and ``evaluate`` of a probe, each on the frame."""
    return [(lambda: probe(frame), message), (lambda: probe.evaluate(frame, cases.JUDGED), message)]


TEXTS, VALUES, PLANTED = cases.texts(), cases.values(), PlantedRanker()
POSITION, WORDING = PositionSensitivity(PLANTED, draws=1), WordingSensitivity(PLANTED, rewrites=["keywords"], resamples=9)
DISPARITY = Disparity(resamples=9)
FITTED = GenderClassifier(Letters()).fit(*annotated())
NOBODYS = pd.DataFrame({"qid": [None], "query": "tea", "docno": "d1", "label": 1})
CALLS = [
    *both(POSITION, cells(TEXTS, "query", ("a", "b")), r"PositionSensitivity: column 'query' is a tuple, not text, at row 0"),
    *both(POSITION, cells(TEXTS, "query", None, 3), r"PositionSensitivity: column 'query' has no value at row 3"),
    *both(WORDING, TEXTS.drop(columns="text"), r"WordingSensitivity: .*PlantedRanker.*'text'"),
    *both(WORDING, cells(TEXTS, "text", b"a", 6), r"WordingSensitivity: .*column 'text' is a bytes, not text, at row 6"),
    (lambda: DISPARITY(cells(VALUES, "name", ARRAY, 1)), r"Disparity: column 'name' is an ndarray, not a name, at row 1 .*name"),
    (lambda: DISPARITY.evaluate(cells(VALUES, "name", ["a"])), r"Disparity: column 'name' is a list"),
    (lambda: DISPARITY.evaluate(cells(VALUES, "name", None)), r"Disparity: column 'name' has no value at row 0"),
    (lambda: DISPARITY(cells(VALUES, "name", np.nan, 2)), r"Disparity: column 'name' has no value at row 2"),
    (lambda: DISPARITY(cells(VALUES, "dataset", None, 2)), r"Disparity: column 'dataset' has no value at row 2"),
    (lambda: DISPARITY(cells(VALUES, "measure", None, 2)), r"Disparity: column 'measure' has no value at row 2"),
    (lambda: curve(systems={"mine": pd.concat([RESULTS, RESULTS[:1]])}).evaluate(ASKED),
     r"SurvivorshipCurve, results of 'mine': 1 \(qid, docno\) pairs occur more than once"),
    (lambda: curve(systems={"mine": RESULTS.assign(score=np.nan)})(ASKED),
     r"SurvivorshipCurve, results of 'mine': column 'score' is NaN"),
    (lambda: curve_of_values(cells(CURVE, "name", ["a"], 1)), r"curve_of_values: column 'name' is a list"),
    (lambda: curve_of_values(cells(CURVE, "name", None, 1)), r"curve_of_values: column 'name' has no value at row 1"),
    (lambda: BalancedPairs()(cells(cases.profiled(), "profile.a", np.nan)),
     r"BalancedPairs: the profile column 'profile.a' .* row 0"),
    (lambda: BalancedPairs().balance(cells(cases.profiled(), "profile.a", None, 1), cases.profiled()),
     r"BalancedPairs: the profile column 'profile.a' .* row 1"),
    (lambda: check_annotations(cells(CODES, "annotator", ARRAY)),
     r"annotations: column 'annotator' is an ndarray, not a name, at row 0"),
    (lambda: summary(cells(CODES, "annotator", {}, 1)), r"annotations: column 'annotator' is a dict, not a name, at row 1"),
    (lambda: check_annotations(cells(CODES, "system", ["a"], 2)), r"annotations: column 'system' is a list"),
    (lambda: check_annotations(cells(CODES, "annotator", None, 2)), r"annotations: column 'annotator' has no value at row 2"),
    (nfairr_of(lambda women: cells(women, "text", ["a"], 1)),
     r"NFaiRR.*: column 'text' is a list, not text, at row \d \(qid='q1', docno='d1'\)"),
    (nfairr_of(lambda women: cells(women, "text", {3})), r"NFaiRR.*: column 'text' is a set, not text, at row 0"),
    *((lambda column=column: AddJudged(doubled(cases.JUDGED, column))(BLANK),
       rf"AddJudged, judgements: column '{column}' occurs more than once") for column in cases.JUDGED),
    (lambda: MaxRep({"d1": ["d2"]}, NOBODYS)(BLANK), r"MaxRep, judgements: column 'qid' has no value at row 0"),
    (lambda: MaxRep(cells(cases.RESULTS, "docno", None), cases.JUDGED)(BLANK),
     r"MaxRep, neighbours: column 'docno' has no value"),
    (lambda: TerrierCollection(None, topics=NOBODYS, qrels=cases.JUDGED),
     r"TerrierCollection, topics: column 'qid' has no value"),
    (lambda: TerrierCollection(None, topics=cases.topics(), qrels=NOBODYS),
     r"TerrierCollection, qrels: column 'qid' has no value"),
    (lambda: rank_annotations({"mine": cells(RESULTS, "qid", None)}, LABELS, labelled_by="me"),
     r"rank_annotations, runs 'mine': column 'qid' has no value"),
    (lambda: answered_qids(pd.DataFrame({"qid": [None], "answer": ["tea"]}), "dataset_report"),
     r"dataset_report, answers: column 'qid' has no value"),
    (lambda: answer_grade(Answers(), cases.JUDGED), r"Answers, get_answers\(\): column 'docno' has no value"),
    (lambda: GenderBias(classifier=FITTED).neutral_qids(NOBODYS), r"gender bias, topics: column 'qid' has no value"),
    (lambda: prepared_topics(NOBODYS, cases.JUDGED), r"linguistic bias, topics: column 'qid' has no value"),
    (lambda: unjudged_parts({"mine": cases.RESULTS}, NOBODYS, ["q1"]), r"pooling bias, judgements: column 'qid' has no value"),
    (lambda: per_query(cells(cases.RESULTS, "docno", None), cases.JUDGED, ["nDCG@10"], ["q1"]),
     r"per_query: column 'docno' has no value"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), CALLS, ids=[message[:60] for _, message in CALLS])
def test_what_cannot_be_used_is_named(call, message):
    with pytest.raises(InputError) as raised:
        call()
    assert re.match(message, str(raised.value)) and "\n" not in str(raised.value), str(raised.value)
