"""Per-query measures against hand computation and pt.Experiment."""

import math
import re

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import InputError
from pyterrier_debias.core.evaluation import judged_input, judged_qids, parse_measures, per_query

TOPICS = pd.DataFrame({"qid": ["q3", "q1", "q2"], "query": ["c", "a", "b"]})
QRELS = pd.DataFrame({"qid": ["q1", "q1", "q3"], "docno": ["d1", "d2", "d1"], "label": [2, 1, 1]})
RUN = pd.DataFrame({"qid": ["q1", "q1", "q2"], "docno": ["d2", "d1", "d9"], "score": [2.0, 1.0, 1.0]})


def test_values_by_hand_and_judged_queries_without_results_count_zero():
    qids = judged_qids(TOPICS, QRELS)
    assert qids == ["q3", "q1"]
    table = per_query(RUN, QRELS, ["nDCG@10", "RR@10"], qids)
    ideal = 2 + 1 / math.log2(3)
    assert table.loc["q1", "nDCG@10"] == pytest.approx((1 + 2 / math.log2(3)) / ideal)
    assert table.loc["q1", "RR@10"] == 1
    assert table.loc["q3"].tolist() == [0, 0]


def test_agrees_with_pyterriers_experiment():
    generator = np.random.default_rng(0)
    run = pd.DataFrame(
        {
            "qid": np.repeat([f"q{i}" for i in range(9)], 20),
            "docno": [f"d{i}" for i in range(20)] * 9,
            "score": generator.random(180),
        }
    )
    qrels = run[["qid", "docno"]].assign(label=generator.integers(0, 3, 180)).sample(60, random_state=0)
    topics = pd.DataFrame({"qid": [f"q{i}" for i in range(9)], "query": "x"})
    measures = parse_measures(["nDCG@10", "R@10"])
    theirs = pt.Experiment([run], topics, qrels, measures, perquery=True, filter_by_qrels=True)
    ours = per_query(run, qrels, measures, judged_qids(topics, qrels))
    for row in theirs.itertuples():
        assert ours.loc[row.qid, row.measure] == pytest.approx(row.value)


def test_a_query_with_nothing_but_negative_labels_counts_zero():
    """trec_eval sizes an array by a query's highest label, and ends the process where that is below -1, as of junk pages."""
    rows = [("q1", "d1", 1), ("q1", "d2", -2), ("q2", "d3", -2), ("q3", "d1", 1), ("q4", "d1", -1)]
    qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    run = pd.DataFrame([(qid, docno, 1.0) for qid, docno, _ in qrels.to_numpy()], columns=["qid", "docno", "score"])
    found = per_query(run, qrels, ["nDCG@10", "RR@10", "AP", "Judged@10"], ["q1", "q2", "q3", "q4"])
    # Equal scores: d2, whose docno is greater, comes first.
    assert found.loc["q1"].to_numpy() == pytest.approx([1 / math.log2(3), 0.5, 0.5, 1.0])
    assert found.loc["q3"].tolist() == [1, 1, 1, 1]
    assert found.loc[["q2", "q4"]].to_numpy().tolist() == [[0, 0, 0, 1]] * 2


def test_unknown_measures_are_named():
    with pytest.raises(InputError, match="measure 'nDGC@10' is not known"):
        parse_measures(["nDGC@10"])


@pytest.mark.parametrize("name", ["nDCG@ten", "nDCG@", "nDCG(2)@10", "nDCG@10 P@5", "2", ""])
def test_what_is_no_measure_at_all_is_named(name):
    with pytest.raises(InputError, match=f"measure {re.escape(repr(name))} is not known"):
        parse_measures([name])


@pytest.mark.parametrize("error", [AttributeError("module 'ast' has no attribute 'Num'"), DeprecationWarning("ast.Num")])
def test_other_trouble_in_reading_a_name_is_not_said_to_be_the_names_fault(error, monkeypatch):
    def parse_measure(name):
        raise error

    monkeypatch.setattr(ir_measures, "parse_measure", parse_measure)
    with pytest.raises(type(error)):
        parse_measures(["nDCG@10"])


def test_no_results_at_all_is_zero():
    assert per_query(RUN.iloc[:0], QRELS, ["nDCG@10"], ["q1"]).loc["q1", "nDCG@10"] == 0


@pytest.mark.parametrize("kind", [int, object])
def test_whole_numbers_as_ids_do(kind):
    """Given as numbers anywhere, they are the same queries; the answer is indexed as it was asked for."""

    def numbers(frame):
        ids = [name for name in ("qid", "docno") if name in frame]
        return frame.assign(**{name: frame[name].str[1:].astype(int).astype(kind) for name in ids})

    expected = per_query(RUN, QRELS, ["nDCG@10"], ["q3", "q1"])["nDCG@10"].tolist()
    assert expected[1] > 0
    found = per_query(numbers(RUN), numbers(QRELS), ["nDCG@10"], judged_qids(numbers(TOPICS), numbers(QRELS)))
    assert found["nDCG@10"].tolist() == expected
    assert found.index.tolist() == [3, 1]
    strings = QRELS.assign(qid=QRELS["qid"].str[1:], docno=QRELS["docno"].str[1:])
    assert per_query(numbers(RUN), strings, ["nDCG@10"], ["3", "1"])["nDCG@10"].tolist() == expected
    assert judged_qids(numbers(TOPICS), strings) == [3, 1]


def test_a_name_is_no_list_of_measures():
    with pytest.raises(InputError, match=r"must be a list, not 'nDCG@10'; give \['nDCG@10'\]"):
        parse_measures("nDCG@10")


@pytest.mark.parametrize("measure", ["nDCG@2", "RR", "RR@10", "P@1", "AP", "Success@1", "R@1"])
@pytest.mark.parametrize("step", [0.0, 1e-12])
def test_every_measure_breaks_ties_in_one_order(measure, step):
    """The greater docno first: ir_measures' RR@10 had the other order, so that one table told of two rankings."""
    judged = pd.DataFrame({"qid": ["q"], "docno": ["b"], "label": [1]})
    for scores, first in (([1.0, 1.0], True), ([1.0 + step, 1.0], not step), ([1.0, 1.0 + step], True)):
        run = pd.DataFrame({"qid": "q", "docno": ["a", "b"], "score": scores})
        ordered = run.assign(score=[0.0, 1.0] if first else [1.0, 0.0])
        assert per_query(run, judged, [measure], ["q"]).equals(per_query(ordered, judged, [measure], ["q"])), scores
    assert per_query(run, judged, [measure], ["q"]).iloc[0, 0] == 1
    assert per_query(run, judged.assign(docno="a"), ["Judged@1"], ["q"]).iloc[0, 0] == 0


class Stage(pt.Transformer):
    """What has an evaluate."""

    dataset = None

    def transform(self, inp):
        return inp


def test_what_is_evaluated_are_the_judged_queries():
    rows, qrels, topics, qids = judged_input(Stage(), RUN, QRELS, TOPICS)
    assert qids == ["q1", "q3"] and rows["qid"].tolist() == ["q1", "q1"] and len(topics) == 3 and len(qrels) == 3
    stage = Stage()
    stage.dataset = type("Dataset", (), {"get_qrels": lambda self: QRELS.tail(1)})()
    assert judged_input(stage, TOPICS, None, None)[3] == ["q3"]  # the topics are those of the input
    assert judged_input(stage, TOPICS, QRELS, None)[3] == ["q1", "q3"]  # what is given goes first
    with pytest.raises(InputError, match="there are no judgements"):
        judged_input(Stage(), RUN, None, TOPICS)
    with pytest.raises(InputError, match="none of the judged queries has candidates"):
        judged_input(Stage(), RUN.tail(1), QRELS, TOPICS)


def test_lists_are_cut_to_what_measures_see(monkeypatch):
    rng = np.random.default_rng(0)
    run = pd.DataFrame({"qid": np.repeat(["1", "2", "3"], 40), "docno": [f"d{i}" for i in range(40)] * 3})
    run = run.assign(score=rng.integers(0, 15, 120).astype(float)).sample(frac=1, random_state=0)
    qrels = run[["qid", "docno"]].sample(50, random_state=1).assign(label=rng.integers(0, 3, 50))
    names = ["nDCG@10", "RR@5", "R@10", "P@3", "Judged@10", "AP@10", "Success@1", "AP", "RR(rel=2)@5"]
    names += ["nDCG(judged_only=True)@10"]
    for scores in (run, run.assign(score=rng.permutation(120) / 7)):  # with ties and without
        found = per_query(scores, qrels, names, ["3", "1", "2"])
        with monkeypatch.context() as whole:
            whole.setattr("pyterrier_debias.core.evaluation._CUT", frozenset())
            pd.testing.assert_frame_equal(found, per_query(scores, qrels, names, ["3", "1", "2"]))


def test_of_repeated_judgements_the_highest_counts():
    run = pd.DataFrame({"qid": "q1", "docno": ["a", "b"], "score": [2.0, 1.0]})
    qrels = pd.DataFrame({"qid": "q1", "docno": ["a", "b"], "label": [2, 1]})
    twice = pd.concat([qrels.assign(label=0), qrels, qrels.assign(label=[1, 0])])
    measures = ["nDCG@10", "RR(rel=2)@10", "Judged@10"]
    pd.testing.assert_frame_equal(per_query(run, twice, measures, ["q1"]), per_query(run, qrels, measures, ["q1"]))
