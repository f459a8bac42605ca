"""MaxRep against the definition, and inside a measure."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import ExpectedNDCG
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.pooling.measures.max_rep import MaxRep
from pyterrier_debias.pooling.measures.unjudged import infer_judgements

JUDGED = pd.DataFrame({"qid": ["q1", "q1", "q1", "q2"], "docno": ["a", "b", "c", "b"], "label": [1, 2, 0, 1]})
NEAR = {"a": ["x", "b", "y", "z"], "b": ["b", "z", "y"], "c": ["w"]}


def by_loops(qid, docno, k):
    """The largest (k' - i) / k' over relevant documents, k' neighbours that are not the document itself."""
    relevant = [d for q, d, label in JUDGED.values.tolist() if q == qid and label >= 1]
    if docno in relevant:
        return 1.0
    found = [0.0]
    for one in relevant:
        near = [d for d in NEAR[one] if d != one][:k]
        found += [(len(near) - i) / len(near) for i, d in enumerate(near) if d == docno]
    return max(found)


@pytest.mark.parametrize("k", [1, 2, 3, 128])
def test_labels_are_the_definition(k):
    asked = pd.DataFrame([(q, d) for q in ("q1", "q2", "q3") for d in "abcwxyzn"], columns=["qid", "docno"])
    out = MaxRep(NEAR, JUDGED, k=k)(asked)
    assert out["label"].tolist() == [by_loops(q, d, k) for q, d in asked.values.tolist()]
    # Results of documents as queries say the same.
    rows = [(one, d, -float(i)) for one, near in NEAR.items() for i, d in enumerate(near)]
    results = pd.DataFrame(rows, columns=["qid", "docno", "score"]).sample(frac=1, random_state=0)
    assert MaxRep(results, JUDGED, k=k)(asked)["label"].tolist() == out["label"].tolist()
    # Equal scores are ordered as trec_eval does it: the later name is nearer.
    tied = results.sort_values("docno").assign(score=0.0)
    near = {one: sorted(docnos, reverse=True) for one, docnos in NEAR.items()}
    assert MaxRep(tied, JUDGED, k=k)(asked)["label"].tolist() == MaxRep(near, JUDGED, k=k)(asked)["label"].tolist()


def test_identifiers_are_read_as_those_of_frames():
    judged = pd.DataFrame({"qid": [1], "docno": [7], "label": [1]})
    asked = pd.DataFrame({"qid": [1.0, 1.0, 1.0], "docno": [7.0, 8.0, 9.0]})
    assert MaxRep({7.0: [8.0, 9.0]}, judged)(asked)["label"].tolist() == [1.0, 1.0, 0.5]


def test_in_a_measure():
    run = pd.DataFrame({"qid": "q1", "docno": ["x", "w", "a"], "score": [3.0, 2.0, 1.0]})
    judged = pd.DataFrame({"qid": ["q1"], "docno": ["a"], "label": [1]})
    measure = ExpectedNDCG(infer_judgements(run, judged, MaxRep({"a": ["y", "x"]}, judged))) @ 10
    # x is the second of two neighbours: 1/2; w is none: 0.
    ideal = 1 + 0.5 / np.log2(3)
    assert pt.Evaluate(run, judged, [measure])[str(measure)] == pytest.approx((0.5 + 1 / np.log2(4)) / ideal)


def test_which_labels_are_relevant_and_how_many_neighbours_count():
    # a, b and c have labels 1, 2 and 0; the nearest neighbour of each has 1.
    asked = pd.DataFrame({"qid": "q1", "docno": ["a", "b", "x", "z", "w"]})
    labels = {least: MaxRep(NEAR, JUDGED, k=1, min_label=least)(asked)["label"].tolist() for least in (0, 1, 2)}
    assert labels == {0: [1, 1, 1, 1, 1], 1: [1, 1, 1, 1, 0], 2: [0, 1, 0, 1, 0]}
    many = {"a": [f"n{i}" for i in range(200)]}
    found = MaxRep(many, JUDGED)(pd.DataFrame({"qid": "q1", "docno": ["n0", "n1", "n127", "n128"]}))
    assert found["label"].tolist() == [1, 127 / 128, 1 / 128, 0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MaxRep(NEAR, JUDGED, k=0), "k=0"),
        (lambda: MaxRep(NEAR, JUDGED, k=1.5), "k=1.5"),
        (lambda: MaxRep({"a": "bc"}, JUDGED), "the neighbours of 'a' are a str; give a list of docnos"),
        (lambda: MaxRep({"a": None}, JUDGED), "the neighbours of 'a' are None; give a list of docnos"),
        (lambda: MaxRep([("a", "b")], JUDGED), "neighbours is a list; give a mapping"),
        (lambda: MaxRep(NEAR, JUDGED.drop(columns="label")), "no column 'label'"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()(pd.DataFrame({"qid": ["q1"], "docno": ["a"]}))
