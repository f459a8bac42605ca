"""Unjudged documents: removed, inferred, and what a system owes to its own contribution to the pool."""

import itertools
import logging
import math

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, Judged, P, nDCG
from scipy import stats

from pyterrier_debias import InputError, open_dataset
from pyterrier_debias.core import frames
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.linguistic.measures.over_queries import OverQueries
from pyterrier_debias.pooling.measures.unjudged import (
    ExpectedNDCG,
    OnlyJudged,
    expected_labels,
    infer_judgements,
    kendall_tau,
    leave_one_out,
    ndcg,
)


def run_of(lists):
    """A run from query to docnos, best first."""
    return pd.DataFrame(
        [(qid, docno, float(-rank), rank) for qid, docnos in lists.items() for rank, docno in enumerate(docnos)],
        columns=["qid", "docno", "score", "rank"],
    )


def judged(labels):
    """Judgements from query to (docno to label)."""
    rows = [(qid, docno, label) for qid, own in labels.items() for docno, label in own.items()]
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


RUN = run_of({"q1": ["d1", "d2", "d3", "d4"], "q2": ["d5", "d6"]})
QRELS = judged({"q1": {"d1": 0, "d3": 2, "d9": 1}, "q2": {"d8": 1}})


@pytest.fixture(scope="module", params=["dl19", "dl20"])
def deep_learning(request, shared_data):
    return open_dataset(shared_data / "msmarco_trec_dl", split=request.param)


# ------------------------------------------------------------------------------------------------------------- removed


def test_judgements_of_another_collection_leave_nothing_and_that_is_told(caplog):
    other = QRELS.assign(docno="x" + QRELS["docno"])
    with caplog.at_level(logging.WARNING):
        assert len(OnlyJudged(QRELS)(RUN)) and OnlyJudged(QRELS)(RUN.head(0)).empty
        assert caplog.text == ""
        assert OnlyJudged(other)(RUN).empty
    assert "OnlyJudged: none of its 6 rows (e.g. qid='q1', docno='d1') is judged" in caplog.text


def test_only_judged_rows_stay_and_move_up():
    out = OnlyJudged(QRELS)(RUN.assign(text="any"))
    assert out[["qid", "docno", "score", "rank", "text"]].values.tolist() == [
        ["q1", "d1", 0.0, 0, "any"],
        ["q1", "d3", -2.0, 1, "any"],
    ]


def test_only_judged_is_a_stage():
    stage = OnlyJudged(QRELS)
    assert stage == OnlyJudged(QRELS.copy()) and stage != OnlyJudged(QRELS.head(2))
    assert len(stage(RUN.head(0))) == 0
    assert set(pt.inspect.transformer_outputs(stage, ["qid", "query", "docno", "score", "rank"])) == {
        "qid", "query", "docno", "score", "rank",
    }  # fmt: skip
    assert stage(RUN.sample(frac=1, random_state=1)).equals(stage(RUN).set_index("qid").loc[["q1"]].reset_index())
    with pytest.raises(pt.validate.InputValidationError):
        stage(RUN[["qid", "docno"]])
    with pytest.raises(InputError, match="'docno' of the judgements is missing; there are qid"):
        OnlyJudged(QRELS[["qid"]])(RUN)
    numbers = QRELS.assign(qid=[1, 1, 1, 2])
    assert len(OnlyJudged(numbers)(RUN.assign(qid=RUN["qid"].str[1:]))) == 2


def test_removing_agrees_with_trec_eval(deep_learning):
    """`judged_only=True` makes trec_eval skip unjudged documents itself."""
    qrels = deep_learning.get_qrels()
    stage = OnlyJudged(qrels)
    qids = list(dict.fromkeys(qrels["qid"]))
    measures = [nDCG @ 10, AP @ 100, P @ 10, RR]
    for name, run in list(deep_learning.get_runs().items())[:3]:
        removed = per_query(stage(run), qrels, measures, qids)
        skipped = per_query(run, qrels, [m(judged_only=True) for m in measures], qids)
        np.testing.assert_allclose(removed.to_numpy(), skipped.to_numpy(), atol=1e-12)
        plain = per_query(run, qrels, measures, qids)
        assert (removed.to_numpy() >= plain.to_numpy() - 1e-12).all(), name
        assert per_query(stage(run), qrels, [Judged @ 10], qids).to_numpy().min() == 1


# ------------------------------------------------------------------------------------------------------------- expected gains


def test_ndcg_by_hand():
    ideal = 2 + 1.5 / math.log2(3) + 0.25 / 2
    assert ndcg([0.25, 2.0], [2.0, 0.25, 1.5]) == pytest.approx((0.25 + 2 / math.log2(3)) / ideal)
    assert ndcg([0.25, 2.0], [2.0, 0.25, 1.5], 1) == pytest.approx(0.25 / 2)
    assert ndcg([-2.0, 1.0], [-2.0, 1.0]) == pytest.approx(1 / math.log2(3))
    assert ndcg([0.0], [0.0, -1.0]) == 0
    assert ndcg([], [1.0]) == 0


@settings(max_examples=30)
@given(st.lists(st.floats(0, 3), min_size=1, max_size=5), st.integers(1, 6))
def test_no_ranking_beats_the_ideal(gains, cutoff):
    values = [ndcg(order, gains, cutoff) for order in itertools.permutations(gains)]
    assert max(values) <= 1 + 1e-12
    assert max(values) == pytest.approx(1 if max(gains) > 1e-300 else max(values))


def test_expected_ndcg_is_trec_evals_where_labels_are_whole(deep_learning):
    qrels = deep_learning.get_qrels()
    qids = list(dict.fromkeys(qrels["qid"]))
    measures = [nDCG @ 10, nDCG @ 3, nDCG]
    ours = [ExpectedNDCG(qrels) @ 10, ExpectedNDCG(qrels) @ 3, ExpectedNDCG(qrels)]
    runs = deep_learning.get_runs()
    for run in (runs["bm25"].assign(score=runs["bm25"]["score"].round(0)), runs["tasb"]):
        theirs = per_query(run, qrels, measures, qids).to_numpy()
        np.testing.assert_allclose(per_query(run, qrels, ours, qids).to_numpy(), theirs, atol=1e-9)


def test_three_treatments_in_one_experiment(caplog):
    topics = pd.DataFrame({"qid": ["q1", "q2", "q3"], "query": ["one", "two", "three"]})
    inferred = pd.concat([QRELS, judged({"q1": {"d2": 0.5, "d4": 0.0}, "q2": {"d5": 0.25, "d6": 0.0}})])
    expected = [ExpectedNDCG(inferred) @ 2, ExpectedNDCG(QRELS, name="Known") @ 2]
    measures = [nDCG @ 2, nDCG(judged_only=True) @ 2, *expected, Judged @ 2]
    with caplog.at_level(logging.WARNING), pytest.warns(UserWarning, match="1 topic"):
        table = pt.Experiment([pt.Transformer.from_df(RUN)], topics, QRELS, measures, names=["a"], perquery=True)
    values = table.set_index(["qid", "measure"])["value"]
    ideal = 2 + 1 / math.log2(3)
    assert values["q1", "nDCG@2"] == 0 == values["q1", "Known@2"] == values["q2", "nDCG@2"]
    assert values["q1", "nDCG(judged_only=True)@2"] == pytest.approx(2 / math.log2(3) / ideal)
    assert values["q1", "ExpectedNDCG@2"] == pytest.approx(0.5 / math.log2(3) / ideal)
    assert values["q2", "ExpectedNDCG@2"] == pytest.approx(0.25 / (1 + 0.25 / math.log2(3)))
    assert values["q1", "Judged@2"] == 0.5
    assert values["q3"].isna().all()
    assert "Known@2: 3 documents above the cut-off have no label" in caplog.text
    assert "ExpectedNDCG@2" not in caplog.text


def test_expected_ndcg_refuses_a_query_that_it_does_not_know():
    measure = ExpectedNDCG(QRELS[QRELS["qid"] == "q1"]) @ 10
    with pytest.raises(InputError, match="query 'q2' is evaluated"):
        pt.Evaluate(RUN, QRELS, [measure])
    with pytest.raises(InputError, match="column 'label'"):
        pt.Evaluate(RUN, QRELS, [ExpectedNDCG(QRELS[["qid", "docno"]])])


@pytest.mark.parametrize("rows", [slice(None), slice(None, None, -1)])
def test_the_highest_of_repeated_judgements_counts(rows):
    twice = judged({"q1": {"d1": 0.25, "d2": 1.0}})
    twice = pd.concat([twice, judged({"q1": {"d1": 0.75}}), judged({"q1": {"d2": 0}})])[rows]
    run = run_of({"q1": ["d1", "d2"]})
    once = judged({"q1": {"d1": 0.75, "d2": 1.0}})
    asked = QRELS[QRELS["qid"] == "q1"]
    one, other = (pt.Evaluate(run, asked, [ExpectedNDCG(labels) @ 2]) for labels in (twice, once))
    assert one == other
    # Inference learns from the highest, gives it back once, and leaving a system out removes it once.
    again = pd.concat([QRELS, QRELS.assign(label=0)])[rows]
    pd.testing.assert_frame_equal(
        infer_judgements(RUN, again).sort_values(["qid", "docno"], ignore_index=True),
        infer_judgements(RUN, QRELS).sort_values(["qid", "docno"], ignore_index=True),
    )
    runs = {"a": RUN, "b": run_of({"q1": ["d2"], "q2": ["d6"]})}
    pd.testing.assert_frame_equal(leave_one_out(runs, again), leave_one_out(runs, QRELS))


def test_integers_may_name_queries():
    numbered = [frame.assign(qid=frame["qid"].str[1:].astype(int)) for frame in (RUN, QRELS)]
    measure, same = ExpectedNDCG(numbered[1]) @ 4, ExpectedNDCG(QRELS) @ 4
    assert pt.Evaluate(*numbered, [measure]) == pt.Evaluate(RUN, QRELS, [same]) and pt.Evaluate(RUN, QRELS, [same])[str(same)] > 0


@pytest.mark.parametrize("label", [math.nan, None, math.inf])
def test_expected_ndcg_refuses_a_label_that_is_no_number(label):
    labels = judged({"q1": {"d1": 0.5, "d2": label}})
    with pytest.raises(InputError, match=r"ExpectedNDCG@2: column 'label' of the judgements .* row 1 \(qid='q1', docno='d2'\)"):
        pt.Evaluate(RUN, QRELS, [ExpectedNDCG(labels) @ 2])


def test_measures_of_one_name_are_equal():
    one, other = ExpectedNDCG(QRELS) @ 10, ExpectedNDCG(QRELS, name="ENDCG") @ 10
    assert (repr(one), repr(other), repr(ExpectedNDCG(QRELS))) == ("ExpectedNDCG@10", "ENDCG@10", "ExpectedNDCG")
    assert one == ExpectedNDCG(QRELS) @ 10 and one != other and hash(one) != hash(other)


# ------------------------------------------------------------------------------------------------------------- inference


def isotone_by_brute_force(x, y):
    """The isotone fit by its min-max formula: at i, the largest over j <= i of the smallest over k >= i of means of j..k."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    blocks = {value: y[x == value] for value in np.unique(x)}
    keys = list(blocks)
    fitted = {}
    for i, key in enumerate(keys):
        fitted[key] = max(
            min(np.concatenate([blocks[b] for b in keys[j : k + 1]]).mean() for k in range(i, len(keys))) for j in range(i + 1)
        )
    return np.array(keys), np.array(list(fitted.values()))


ROW = st.tuples(st.integers(1, 7), st.sampled_from([math.nan, -1, 0, 1, 2, 3]), st.integers(0, 3))


@pytest.mark.parametrize("labels", [["good", "bad"], [np.nan, 1.0], pd.to_datetime(["2026-01-01", None])])
def test_labels_that_are_no_grades_are_refused(labels):
    qrels = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "label": labels})
    with pytest.raises(InputError, match=r"infer_judgements: column 'label' is NaN or not a whole number .* row 0"):
        infer_judgements(RUN, qrels)


@settings(max_examples=60)
@given(st.lists(ROW, min_size=1, max_size=14))
def test_expected_labels_agree_with_brute_force(rows):
    x, y, q = (np.array(column, dtype=float) for column in zip(*rows))
    q = q.astype(int)
    expected = []
    for i in np.flatnonzero(np.isnan(y)):
        others = ~np.isnan(y) & (q != q[i])
        if others.any():
            keys, fitted = isotone_by_brute_force(x[others], np.maximum(y[others], 0))
            expected.append(np.interp(x[i], [0, *keys], [0, *fitted]))
        else:
            expected.append(0.0)
    np.testing.assert_allclose(expected_labels(x, y, q), expected, atol=1e-9)


def test_a_querys_own_labels_are_left_out():
    a, b = run_of({"q1": ["d1", "d2"], "q2": ["e1", "e2"]}), run_of({"q1": ["d2"], "q2": ["e2"]})
    qrels = judged({"q1": {"d1": 3}, "q2": {"e1": 0, "e2": 1}})
    found = infer_judgements({"a": a, "b": b}, qrels).set_index("docno")
    assert found.loc["d2", "label"] == 1  # what e2, ranked the same, has; its own query's 3 plays no part
    assert found["inferred"].to_dict() == {"d1": False, "e1": False, "e2": False, "d2": True}
    assert found["label"].dtype == "int64"
    other = infer_judgements({"a": a, "b": b}, judged({"q1": {"d1": 0}, "q2": {"e1": 0, "e2": 1}})).set_index("docno")
    assert other.loc["d2", "label"] == 1


def test_inferred_judgements_are_order_free(deep_learning):
    runs = deep_learning.get_runs()
    qrels = deep_learning.get_qrels().sample(frac=0.5, random_state=2)
    key = ["qid", "docno"]
    found = infer_judgements(runs, qrels).sort_values(key, ignore_index=True)
    shuffled = {name: run.sample(frac=1, random_state=1) for name, run in reversed(list(runs.items()))}
    again = infer_judgements(shuffled, qrels.sample(frac=1, random_state=3)).sort_values(key, ignore_index=True)
    pd.testing.assert_frame_equal(found, again)


def test_inferred_judgements_do_not_depend_on_how_many_queries_are_pooled_at_a_time(deep_learning, monkeypatch):
    runs, qrels, key = deep_learning.get_runs(), deep_learning.get_qrels(), ["qid", "docno"]
    whole = infer_judgements(runs, qrels, depth=30).sort_values(key, ignore_index=True)
    monkeypatch.setattr(frames, "ROWS", 2_000)
    parts = len(list(frames.parts_together(qrels, *runs.values())))
    assert parts > 5
    found = infer_judgements(runs, qrels, depth=30).sort_values(key, ignore_index=True)
    pd.testing.assert_frame_equal(found, whole)


def test_inferred_judgements_cover_the_runs_and_keep_what_is_judged(deep_learning):
    qrels, runs = deep_learning.get_qrels(), deep_learning.get_runs()
    found = infer_judgements(runs, qrels, depth=20)
    assert not found.duplicated(["qid", "docno"]).any()
    pd.testing.assert_frame_equal(found.loc[~found["inferred"], list(qrels)], qrels, check_dtype=False)
    assert found["label"].between(0, 3).all()
    top = pd.concat([run[run["rank"] < 20] for run in runs.values()])[["qid", "docno"]].drop_duplicates()
    merged = top.merge(found, on=["qid", "docno"], how="left")
    assert merged["label"].notna().all()
    assert found["inferred"].sum() == merged["inferred"].astype(bool).sum()


def test_hidden_labels_are_better_inferred_than_called_zero(deep_learning):
    """Half of the judgements are hidden at random: then the assumption holds, and expectations are right on average."""
    qrels, runs = deep_learning.get_qrels(), deep_learning.get_runs()
    kept = qrels.sample(frac=0.5, random_state=0)
    found = infer_judgements(runs, kept, depth=20)
    hidden = found[found["inferred"]].merge(qrels, on=["qid", "docno"], suffixes=("", "_true"))
    assert len(hidden) > 500
    error = hidden["label"] - hidden["label_true"]
    assert abs(error.mean()) < 0.1
    assert (error**2).mean() < 0.9 * (hidden["label_true"] ** 2).mean()
    assert stats.spearmanr(hidden["label"], hidden["label_true"])[0] > 0.2
    for run in runs.values():
        truth = pt.Evaluate(run, qrels, [nDCG @ 10])["nDCG@10"]
        as_zero = pt.Evaluate(run, kept, [nDCG @ 10])["nDCG@10"]
        inferred = pt.Evaluate(run, kept, [ExpectedNDCG(found) @ 10])["ExpectedNDCG@10"]
        assert abs(inferred - truth) < abs(as_zero - truth)


def test_labels_from_a_transformer():
    seen = []

    def judge(pairs):
        seen.append(pairs)
        return pairs.assign(label=pairs["text"].str.len())[::-1]

    texts = pd.DataFrame({"docno": [f"d{i}" for i in range(1, 7)], "text": ["x" * i for i in range(1, 7)]})
    runs = {"a": RUN.merge(texts), "b": run_of({"q1": ["d2"], "q3": ["d1"]}).assign(text="xx")}
    found = infer_judgements(runs, QRELS, pt.apply.generic(judge))
    assert [list(pairs["docno"]) for pairs in seen] == [["d2", "d4", "d5", "d6"]]
    assert seen[0]["rank"].tolist() == [0, 1, 0, 1]
    # d2 is second of one run and first of the other, d4 fourth, d5 and d6 first and second: 1 / (60 + rank), summed.
    assert seen[0]["score"].tolist() == pytest.approx([1 / 62 + 1 / 61, 1 / 64, 1 / 61, 1 / 62], abs=1e-12)
    labels = found[found["inferred"]].set_index("docno")["label"]
    assert labels.to_dict() == {"d2": 2, "d4": 4, "d5": 5, "d6": 6}
    assert ir_measures.calc_aggregate(
        [nDCG @ 10], *(f.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"}) for f in (found, RUN))
    )[nDCG @ 10] == pytest.approx(pt.Evaluate(RUN, QRELS, [ExpectedNDCG(found) @ 10])["ExpectedNDCG@10"])


@pytest.mark.parametrize("order", [("ids", "texts"), ("texts", "ids")])
def test_what_any_run_knows_of_a_document_is_handed_over(order):
    """Documents that both runs have, where only one of them brings the text, and another column that nobody has."""
    runs = {"ids": RUN, "texts": RUN.assign(text="text of " + RUN["docno"], url=None)}
    seen = []

    def judge(pairs):
        seen.append(pairs)
        return pairs.assign(label=1)

    infer_judgements({name: runs[name] for name in order}, QRELS, pt.apply.generic(judge))
    assert (seen[0]["text"] == "text of " + seen[0]["docno"]).all() and seen[0]["url"].isna().all()


def test_nothing_to_infer_loads_nothing():
    def never(pairs):
        raise AssertionError("asked")

    everything = judged({"q1": {f"d{i}": 1 for i in range(1, 5)}, "q2": {"d5": 0, "d6": 0}})
    found = infer_judgements(RUN, everything, pt.apply.generic(never))
    assert found[["qid", "docno", "label"]].equals(everything) and not found["inferred"].any()
    assert not infer_judgements([RUN], everything)["inferred"].any()


@pytest.mark.parametrize(
    ("infer", "message"),
    [
        (lambda pairs: pairs, "returned no column 'label'"),
        (lambda pairs: pairs.assign(label=-1.0), "gave 4 of 4 pairs no label"),
        (lambda pairs: pairs.head(1).assign(label=1), "gave 3 of 4 pairs no label .* first query 'q1', document 'd4'"),
        (lambda pairs: pairs.assign(label="good"), "no label that is a number"),
    ],
)
def test_what_infer_must_return(infer, message):
    with pytest.raises(InputError, match=message):
        infer_judgements(RUN, QRELS, pt.apply.generic(infer))


def test_a_hundred_documents_of_a_query_are_looked_at():
    run, qrels = run_of({"q1": [f"d{i}" for i in range(120)]}), judged({"q1": {"d5": 1, "d110": 1}})
    found = infer_judgements(run, qrels)
    assert found["docno"].tolist() == ["d5", "d110"] + [f"d{i}" for i in range(100) if i != 5]
    assert infer_judgements(run, qrels, depth=3)["docno"].tolist() == ["d5", "d110", "d0", "d1", "d2"]
    # One query alone teaches nothing: the labels of others would.
    assert found["label"].tolist() == [1, 1] + [0] * 99


def test_bad_input_is_refused():
    with pytest.raises(InputError, match="no runs"):
        infer_judgements({}, QRELS)
    for depth in (0, "x", 1.5):
        with pytest.raises(InputError, match=r"infer_judgements: depth=.* must be a whole number of at least 1"):
            infer_judgements(RUN, QRELS, depth=depth)
        with pytest.raises(InputError, match=r"leave_one_out: depth=.* must be a whole number of at least 1"):
            leave_one_out({"a": RUN}, QRELS, depth=depth)
    for qrels in (QRELS, RUN[["qid", "docno"]].assign(label=1)):  # also where nothing is to be inferred
        with pytest.raises(InputError, match=r"infer_judgements: infer='rank' cannot .*give None .* or a transformer"):
            infer_judgements(RUN, qrels, infer="rank")
    with pytest.raises(InputError, match="run 'a': no qid is in both"):
        infer_judgements({"a": RUN.assign(qid="z")}, QRELS)
    with pytest.raises(InputError, match="the judgements have no column 'label'"):
        infer_judgements(RUN, QRELS[["qid", "docno"]])
    with pytest.raises(InputError, match="measure 'nonsense'"):
        leave_one_out({"a": RUN}, QRELS, ["nonsense"])
    with pytest.raises(InputError, match="run 'a': column 'score'"):
        leave_one_out({"a": RUN[["qid", "docno"]]}, QRELS)


# ------------------------------------------------------------------------------------------------------------- leave one out


def test_leaving_a_system_out_by_hand():
    runs = {
        "a": run_of({"q1": ["d1", "d2"], "q2": ["e1", "e2"]}),
        "b": run_of({"q1": ["d2", "d3"], "q2": ["e1", "e3"]}),
        "c": run_of({"q1": ["d2", "d4"], "q2": ["e1", "e2", "e3"]}),
    }
    qrels = judged({"q1": {"d1": 1, "d2": 1, "d3": 0, "d4": 0, "d9": 1}, "q2": {"e1": 1, "e2": 0, "e3": 1}})
    found = leave_one_out(runs, qrels, ["P@2", "R@2"], depth=2).set_index(["system", "measure"])
    p = found.xs("P@2", level="measure")
    assert p["judgements"].to_dict() == {"a": 1, "b": 2, "c": 1}  # d1; d3 and e3 (which c has at rank 3 only); d4
    assert p["relevant"].to_dict() == {"a": 1, "b": 1, "c": 0}
    assert p["score"].to_dict() == {"a": 0.75, "b": 0.75, "c": 0.5}
    assert p["without"].to_dict() == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert p["place"].to_dict() == {"a": 1, "b": 1, "c": 3}
    assert p["place_without"].to_dict() == {"a": 2, "b": 2, "c": 3}
    # Without a's own judgements: a .5, b .75, c .5 against .75, .75, .5: one of three pairs is ordered alike, none upside down.
    assert p.loc["a", "tau"] == pytest.approx(stats.kendalltau([0.75, 0.75, 0.5], [0.5, 0.75, 0.5]).statistic)
    assert p.loc["c", "tau"] == 1
    assert found.loc[("a", "R@2"), "without"] == pytest.approx((1 / 2 + 1 / 2) / 2)


def test_leaving_out_refuses_measures_with_judgements_of_their_own():
    """Nothing would be removed from them, so no system would lose anything."""
    inferred = ExpectedNDCG(infer_judgements(RUN, QRELS), name="inferred") @ 10
    for measure in (inferred, OverQueries(inferred, "sd")):
        with pytest.raises(InputError, match=r"leave_one_out: .*inferred@10.* has judgements of its own.* infer_judgements"):
            leave_one_out({"a": RUN}, QRELS, ["nDCG@10", measure])


def test_queries_without_results_are_counted_and_told(caplog):
    """They count as 0, with and without the judgements."""
    whole, part = {"q1": ["d1"], "q2": ["e1"], "q3": ["f1"]}, {"q1": ["d1"]}
    qrels = judged({"q1": {"d1": 1}, "q2": {"e1": 1}, "q3": {"f1": 1}})
    found = leave_one_out({"a": run_of(whole), "b": run_of(part)}, qrels, ["P@1"]).set_index("system")
    assert found["missing"].to_dict() == {"a": 0, "b": 2}
    assert found["score"].to_dict() == {"a": 1.0, "b": pytest.approx(1 / 3)}
    assert "2 of 3 judged queries have no results of 'b' and count as 0" in caplog.text and "'a'" not in caplog.text


def test_leaving_systems_out_of_trec_deep_learning(shared_data):
    dataset = open_dataset(shared_data / "msmarco_trec_dl", split="dl19")
    runs = {name: run[run["rank"] < 10] for name, run in dataset.get_runs().items()}
    qrels = dataset.get_qrels()
    found = leave_one_out(runs, qrels, ["nDCG@10", "Judged@10"]).set_index(["system", "measure"])
    quality = found.xs("nDCG@10", level="measure")
    assert (quality["difference"] < 0).all() and (quality["difference"] > -0.1).all()
    assert quality["tau"].between(0.4, 1).all()
    # Judgements that a system's own first ten alone explain are what its Judged@10 loses: counted by hand.
    tops = {name: set(zip(run["qid"], run["docno"])) for name, run in runs.items()}
    known = set(zip(qrels["qid"], qrels["docno"]))
    for name, top in tops.items():
        own = (top - set().union(*(other for key, other in tops.items() if key != name))) & known
        assert quality.loc[name, "judgements"] == len(own)
        lost = len(own) / 10 / qrels["qid"].nunique()
        assert found.loc[(name, "Judged@10"), "difference"] == pytest.approx(-lost, abs=1e-9)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=7))
def test_kendalls_tau_agrees_with_scipy(pairs):
    a, b = np.array(pairs, dtype=float).T
    reference = stats.kendalltau(a, b).statistic
    np.testing.assert_allclose(kendall_tau(a, b), reference, atol=1e-12)
    np.testing.assert_allclose(kendall_tau(np.stack([a, b]), np.stack([b, b])), [reference, kendall_tau(b, b)], atol=1e-12)


@pytest.mark.parametrize("cutoff", [0, -1, 2.5, "x"])
def test_expected_ndcg_rejects_a_cutoff_that_is_not_a_rank(cutoff):
    judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
    with pytest.raises(InputError, match=r"^ExpectedNDCG: cutoff=.* must be a whole number of at least 1"):
        ExpectedNDCG(judged) @ cutoff


def test_equal_means_are_equal_whatever_their_last_bits():
    """Three runs with the same reciprocal ranks in another order of queries, whose mean differs in its last bits."""
    ranks = [1, 2, 3, 7, 6, 9, 2, 3]
    means = [np.mean([1 / rank for rank in own]) for own in (ranks, ranks[::-1], sorted(ranks))]
    assert len(set(means)) > 1  # otherwise this tests nothing
    assert np.isnan(kendall_tau(np.array(means), np.array([3.0, 2.0, 1.0])))
    assert kendall_tau(np.array([means[0], means[1], 0.9]), np.array([0.1, 0.1, 0.9])) == 1
    runs = {}
    for name, own in zip("abc", (ranks, ranks[::-1], sorted(ranks))):
        runs[name] = run_of({f"q{i}": [f"x{j}" for j in range(rank - 1)] + ["d"] for i, rank in enumerate(own)})
    labels = judged({f"q{i}": {"d": 1, **{f"x{j}": 0 for j in range(9)}} for i in range(len(ranks))})
    found = leave_one_out(runs, labels, ["RR@10"])
    assert found["place"].tolist() == found["place_without"].tolist() == [1, 1, 1] and found["tau"].isna().all()
