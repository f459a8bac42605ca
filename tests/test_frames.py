"""Frames: ranks, identifiers, values."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError, RepeatNounPhrases, RewriteQueries, SwapGender
from pyterrier_debias.core import frames
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.variants import query_forms, reworded, variant_docno

RESULTS = pd.DataFrame(
    {"qid": ["q2", "q1", "q2", "q1"], "docno": ["a", "b", "c", "a"], "score": [1.0, 2.0, 3.0, 2.0], "extra": list("wxyz")}
)


def test_ranked_sorts_by_query_and_score_and_breaks_ties_by_descending_docno():
    out = frames.ranked(RESULTS)
    assert out[["qid", "docno", "rank"]].values.tolist() == [["q2", "c", 0], ["q2", "a", 1], ["q1", "b", 0], ["q1", "a", 1]]
    assert out["extra"].tolist() == ["y", "w", "x", "z"]
    assert RESULTS.columns.tolist() == ["qid", "docno", "score", "extra"]  # the input is left alone


def test_ranked_agrees_with_trec_eval_on_ties():
    import ir_measures

    qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    run = pd.DataFrame({"qid": "q", "docno": ["a", "b", "c"], "score": [1.0, 1.0, 1.0]})
    rank = frames.ranked(run).set_index("docno")["rank"]["b"]
    trec = run.rename(columns={"qid": "query_id", "docno": "doc_id"})
    assert ir_measures.calc_aggregate([ir_measures.RR], qrels, trec)[ir_measures.RR] == pytest.approx(1 / (rank + 1))


@given(st.permutations(range(8)))
def test_ranked_does_not_depend_on_row_order_within_queries(order):
    run = pd.DataFrame({"qid": "q", "docno": [f"d{i}" for i in range(8)], "score": [0.0, 1, 1, 2, 0, 3, 3, -1]})
    pd.testing.assert_frame_equal(frames.ranked(run.iloc[list(order)]), frames.ranked(run))


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=12))
def test_ranks_are_those_of_a_plain_sort(scores):
    docnos = [f"d{i}" for i in range(len(scores))]
    run = pd.DataFrame({"qid": "q", "docno": docnos, "score": scores})
    expected = [docno for _, docno in sorted(zip(scores, docnos), reverse=True)]
    out = frames.ranked(run)
    assert out["docno"].tolist() == expected
    assert out["rank"].tolist() == list(range(len(scores)))


SCORES = [0.0, -0.0, 0.5, 1e-9, np.inf, -np.inf, -3.0]
ROWS = st.tuples(st.sampled_from(["q2", "q1", "q3"]), st.integers(0, 30), st.sampled_from(SCORES))


@given(st.lists(ROWS, unique_by=lambda row: row[:2], min_size=1, max_size=40))
def test_ranks_of_several_queries_are_those_of_a_plain_sort(rows):
    run = pd.DataFrame([(qid, f"d{number}", score) for qid, number, score in rows], columns=["qid", "docno", "score"])
    expected = []
    for qid in dict.fromkeys(run["qid"]):
        own = sorted(((score, docno) for q, docno, score in run.itertuples(index=False) if q == qid), reverse=True)
        expected += [(qid, docno, score, rank) for rank, (score, docno) in enumerate(own)]
    assert list(frames.ranked(run).itertuples(index=False, name=None)) == expected


def test_docnos_are_sorted_only_where_they_decide(monkeypatch):
    """A million docnos take seconds to sort, and most scores do not tie."""
    run = pd.DataFrame({"qid": ["q"] * 100, "docno": [f"d{i}" for i in range(100)], "score": range(100)})
    tied = run.assign(score=run["score"].replace({3: 4, 7: 9}))
    sorted_at_once, argsort = [], np.argsort

    def counted(values, **options):
        if values.dtype == object:  # pandas sorts numbers of its own
            sorted_at_once.append(len(values))
        return argsort(values, **options)

    monkeypatch.setattr(np, "argsort", counted)
    frames.ranked(run)
    frames.ranked(tied)
    assert sorted_at_once == [4]


def test_ranked_of_nothing_has_the_columns():
    out = frames.ranked(pd.DataFrame(columns=["qid", "docno", "score", "rank", "extra"]))
    assert out.columns.tolist() == ["qid", "docno", "score", "extra", "rank"]
    assert len(out) == 0


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (RESULTS.assign(score=[1.0, np.nan, 2.0, 3.0]), r"Stage: column 'score' is NaN .* row 1 \(qid='q1', docno='b'\)"),
        (RESULTS.assign(score=["1", "x", "2", "3"]), "Stage: column 'score' is 'x', not a number, at row 1"),
        (RESULTS.assign(docno=["a", "b", "a", "b"]), r"2 \(qid, docno\) pairs occur more than once"),
    ],
)
def test_bad_scores_and_pairs_are_named(frame, message):
    with pytest.raises(InputError, match=message):
        frames.ranked(frame, "Stage")


def test_missing_text_is_named():
    with pytest.raises(InputError, match=r"Stage: column 'text' has no value at row 1"):
        frames.check_text(pd.DataFrame({"docno": ["a", "b"], "text": ["x", None]}), "text", "Stage")
    with pytest.raises(InputError, match="is an int, not text"):
        frames.check_text(pd.DataFrame({"docno": ["a"], "text": pd.Series([3], dtype=object)}), "text", "Stage")
    frames.check_text(pd.DataFrame({"docno": ["a"], "text": [""]}), "text", "Stage")


def test_ids_become_strings_and_strings_are_left_alone():
    converted = frames.with_string_ids(pd.DataFrame({"qid": [1, 2], "docno": ["a", "b"]}), "Stage")
    assert converted["qid"].tolist() == ["1", "2"]
    assert frames.with_string_ids(converted, "Stage") is converted


def test_ids_of_any_type_in_object_columns_become_strings():
    mixed = pd.DataFrame({"qid": [1, 2], "docno": ["a", 7], "doc_id": ["a", "b"]}).astype({"qid": object})
    converted = frames.with_string_ids(mixed, "Stage")
    assert converted[["qid", "docno", "doc_id"]].values.tolist() == [["1", "a", "a"], ["2", "7", "b"]]
    for dtype in (object, "str"):
        strings = pd.DataFrame({"qid": pd.Series(["1"], dtype=dtype)})
        assert frames.with_string_ids(strings, "Stage") is strings


KINDS = ["category", "string", "string[pyarrow]", pd.StringDtype("python"), object, "str"]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_strings_of_every_kind_are_the_same_strings(kind):
    plain = RESULTS.assign(query="tea", text="hot")
    out = frames.with_string_ids(plain.astype(dict.fromkeys(["qid", "docno", "query", "text", "extra"], kind)), "Stage")
    assert out.values.tolist() == plain.values.tolist()
    assert set(out.dtypes.map(type)) <= {pd.Series(["a"]).dtype.__class__, np.dtype("O").__class__, np.dtype("float64").__class__}
    assert (out["qid"] == "q1").dtype == bool  # neither pandas' nor pyarrow's three-valued one


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_frames_that_convert_dtypes_made_are_read_as_before(backend):
    plain = RESULTS.assign(rank=[1, 0, 0, 1], label=[1, None, 0, 2.0], seen=[True, False, True, None])
    out = frames.with_string_ids(plain.convert_dtypes(dtype_backend=backend), "Stage")
    assert out["rank"].dtype == "int64" and out["score"].dtype in ("int64", "float64")
    assert out.drop(columns=["label", "seen"]).values.tolist() == plain.drop(columns=["label", "seen"]).values.tolist()
    assert out["label"].isna().tolist() == [False, True, False, False] and out["seen"].tolist() == [True, False, True, None]


def test_numbers_that_are_equal_are_one_identifier():
    given = pd.DataFrame({"qid": [7, 7.0, np.int8(7), "7"], "docno": pd.Series([1.5, 0.0, -1, 2**70], dtype=object)})
    out = frames.with_string_ids(given, "Stage")
    assert out.values.tolist() == [["7", "1.5"], ["7", "0"], ["7", "-1"], ["7", str(2**70)]]
    assert frames.with_string_ids(pd.DataFrame({"qid": [1, 2]}, dtype="double[pyarrow]"), "Stage")["qid"].tolist() == ["1", "2"]


NO_IDS = [None, np.nan, pd.NA, pd.NaT, True, b"d1", ["d1"], {"d1"}, ("d1",), 2j, np.inf, 2.0**53, object()]


@pytest.mark.parametrize("column", ["qid", "docno"])
@pytest.mark.parametrize("value", NO_IDS, ids=lambda value: repr(value).split(" at ")[0])
def test_what_is_no_identifier_is_named(column, value):
    frame = RESULTS.assign(**{column: pd.Series(["a", "b", value, "c"], dtype=object)})
    with pytest.raises(InputError, match=rf"Stage: column '{column}' (is .*,|has no value) at row 2; "):
        frames.with_string_ids(frame, "Stage")


@pytest.mark.parametrize("docno", ["d\0one", "d\ud800", "\udc80"], ids=ascii)
def test_a_name_that_no_file_or_measure_takes_is_named(docno):
    """trec_eval ends a name at NUL: the document is then another one, and its judgement is not found."""
    with pytest.raises(InputError, match="Stage: column 'docno' holds NUL or half of a surrogate pair at row 1 "):
        frames.with_string_ids(pd.DataFrame({"docno": ["a\U0001f600", docno]}, dtype=object), "Stage")
    with pytest.raises(InputError, match="Stage: column 'text' holds half of a surrogate pair"):
        texts = pd.array(["caf\u00e9", "tea\ud800"], dtype=pd.StringDtype("python"))
        frames.check_text(frames.with_string_ids(pd.DataFrame({"text": texts}), "Stage"), "text", "Stage")


def test_numeric_text_is_a_score():
    text = RESULTS.assign(score=["1", " 2.50", "-inf", "1e-3"], rank=["3", "2", "1", "0"])
    out = frames.with_string_ids(text, "Stage")
    assert out["score"].tolist() == [1.0, 2.5, -np.inf, 0.001] and out["rank"].tolist() == [3, 2, 1, 0]
    assert text["score"].tolist()[0] == "1"
    added = frames.with_string_ids(RESULTS.assign(score=[1, None, pd.NA, Decimal("2.5")]), "Stage")["score"]
    assert added.dtype == "float64" and added.isna().tolist() == [False, True, True, False]


NO_SCORES = ["x", "", "nan", 2j, [1.0], np.zeros(2), pd.Timestamp(0), 10**400]


@pytest.mark.parametrize("score", NO_SCORES, ids=lambda value: repr(value)[:20])
def test_a_score_that_is_no_number_is_named(score):
    with pytest.raises(InputError, match=r"Stage: column 'score' is .*, not a number, at row 1; "):
        frames.with_string_ids(RESULTS.assign(score=pd.Series([1.0, score, 2.0, 3.0], dtype=object)), "Stage")


def test_column_labels_are_text_and_occur_once():
    out = frames.with_string_ids(RESULTS.rename(columns={"extra": 0}), "Stage")
    assert out.columns.tolist() == ["qid", "docno", "score", "0"] and out["0"].tolist() == list("wxyz")
    with pytest.raises(InputError, match="Stage: column '0' occurs more than once"):
        frames.with_string_ids(RESULTS.assign(**{"0": 1}).rename(columns={"extra": 0}), "Stage")
    with pytest.raises(InputError, match="Stage: column 'qid' occurs more than once"):
        frames.with_string_ids(pd.concat([RESULTS, RESULTS["qid"]], axis=1), "Stage")
    with pytest.raises(InputError, match=r"Stage: the columns have 2 levels \(the first is \('a', 'qid'\)\)"):
        frames.with_string_ids(pd.concat({"a": RESULTS}, axis=1), "Stage")
    with pytest.raises(InputError, match="Stage: needs a pandas DataFrame, not a dict"):
        frames.with_string_ids({"qid": ["1"]}, "Stage")
    own = RESULTS.assign(qid=1).rename(columns={"extra": "self"})
    assert frames.with_string_ids(own, "Stage")["self"].tolist() == list("wxyz")


INDEXES = [[0, 0, 1, 1], pd.Index(range(4), name="qid"), pd.MultiIndex.from_product([[0, 1], [0, 1]])]


@pytest.mark.parametrize("index", INDEXES, ids=["repeated", "named", "levels"])
def test_an_index_that_pandas_takes_for_something_is_replaced(index):
    assert frames.with_string_ids(RESULTS.set_axis(index), "Stage").index.tolist() == [0, 1, 2, 3]
    named = RESULTS.set_axis([3, 1, 2, 0])
    assert frames.with_string_ids(named, "Stage") is named


def test_a_grade_that_no_measure_takes_is_named():
    """trec_eval asks for a table as long as the highest grade: 2**31 ends the process, 10**9 takes minutes."""
    qrels = RESULTS[["qid", "docno"]].assign(label=[0, 1, 2**40, -2])
    for kind in ("int64", "float64", object):
        with pytest.raises(InputError, match=r"Stage: column 'label' is NaN or not a whole number up to 1000000 in 1 .*row 2"):
            frames.with_grades(qrels.astype({"label": kind}), "Stage")
    assert frames.with_grades(qrels.replace(2**40, 10**6), "Stage")["label"].tolist() == [0, 1, 10**6, -2]


def test_every_stage_gets_such_frames():
    """By the base class: a stage that someone else writes, too."""

    class Seen(Stage):
        def transform(self, inp):
            """Hand on."""
            return inp

    given = RESULTS.astype({"qid": "category"})
    assert Seen()(given)["qid"].tolist() == RESULTS["qid"].tolist()
    assert not isinstance(Seen()(given)["qid"].dtype, pd.CategoricalDtype)
    assert Seen()([{"qid": 1}]) == [{"qid": "1"}]
    with pytest.raises(InputError, match="Seen: column 'qid' has no value at row 1"):
        (pt.Transformer.identity() >> Seen())(pd.DataFrame({"qid": ["1", None]}))


def test_no_common_qid_is_named():
    with pytest.raises(InputError, match=r"no qid is in both .* \(e.g. 'a'\) .* \(e.g. 'b'\)"):
        frames.check_overlap(pd.DataFrame({"qid": ["a"]}), pd.DataFrame({"qid": ["b"]}), "Stage")


@pytest.mark.parametrize("rank", [None, [1, 0, 0, 1]])
def test_first_candidates_are_those_that_rank_first(rank):
    frame = RESULTS if rank is None else RESULTS.assign(rank=rank, score=[0.0, np.nan, 1.0, 5.0])
    assert frames.first_candidates(frame, 1, "Stage")[["qid", "docno"]].values.tolist() == [["q2", "c"], ["q1", "b"]]
    assert frames.first_candidates(frame, None, "Stage")["docno"].tolist() == ["c", "a", "b", "a"]
    plain = RESULTS.drop(columns="score")
    assert frames.first_candidates(plain, 1, "Stage")[["qid", "docno"]].values.tolist() == [["q2", "a"], ["q1", "b"]]


def test_variants_are_new_names():
    assert variant_docno("d7", 1) == "d7%r1"


FORMS = pd.DataFrame(
    {
        "qid": ["1"], "query": ["Teas of May"], "query_0": ["teas"], "query_type": ["x"], "query_toks": [{"tea": 1.0}],
        "query_vec": [np.zeros(2)], "query_embs": 0.0, "query_of_a_kind": [[1, 2]], "docno": ["d1"], "text": ["his tea"],
    }
)  # fmt: skip


def test_other_forms_of_a_query_are_what_was_made_from_its_words():
    assert query_forms(FORMS) == ["query_toks", "query_vec", "query_embs", "query_of_a_kind"]
    assert query_forms(FORMS.iloc[:0]) == ["query_toks", "query_vec", "query_embs"]


@pytest.mark.parametrize(
    "stage",
    [RewriteQueries("keywords"), RepeatNounPhrases(tagger="textblob"), SwapGender(queries=True)],
    ids=lambda stage: type(stage).__name__,
)
def test_who_changes_a_query_drops_its_other_forms(stage):
    out = stage(FORMS)
    assert query_forms(out) == []
    assert out[["query_0", "query_1", "query_type"]].values.tolist() == [["Teas of May", "teas", "x"]]


def test_a_stage_that_leaves_the_query_alone_keeps_its_other_forms():
    assert query_forms(SwapGender()(FORMS)) == query_forms(FORMS)


def test_a_new_query_takes_the_place_of_earlier_ones_where_none_is_kept():
    out = reworded(FORMS, ["tea"], keep=False)
    assert out[["query", "query_0", "query_type"]].values.tolist() == [["tea", "tea", "x"]] and "query_1" not in out.columns
    assert FORMS["query_0"].tolist() == ["teas"]


def evaluators():
    """What measures results or topics, and the other columns that its frames have."""
    from pyterrier_debias import (
        Answerability,
        ARaBEvaluator,
        Disparity,
        PlantedRanker,
        PositionSensitivity,
        SurvivorshipCurve,
        WordingSensitivity,
    )
    from tests.survivorship import toy

    return {
        "Answerability": Answerability().evaluate,
        "Disparity": Disparity().evaluate,
        "PositionSensitivity": PositionSensitivity(PlantedRanker()).evaluate,
        "SurvivorshipCurve": SurvivorshipCurve({"mine": toy.RESULTS}, toy.SHOWN, toy.LABELS).evaluate,
        "WordingSensitivity": WordingSensitivity(PlantedRanker()).evaluate,
        "ARaBEvaluator": ARaBEvaluator().evaluate,
        "ARaBEvaluator ": ARaBEvaluator().contributions,
    }


@pytest.mark.parametrize("name", [
    "ARaBEvaluator", "ARaBEvaluator ", "Answerability", "Disparity", "PositionSensitivity", "SurvivorshipCurve",
    "WordingSensitivity",
])  # fmt: skip
def test_what_is_no_frame_is_named(name):
    """A pipeline, several, rows, a file, a dataset: what was given, and what to do."""
    pipeline, evaluate = pt.Transformer.identity(), evaluators()[name]
    frame = pd.DataFrame({"qid": ["1"]})
    for instead, told in (
        ({"x": pipeline}, "pipeline"), ([pipeline], "pipeline"), ([frame, frame], "by name|the frame of one system"),
        ("a/run.txt", "read_results"), ([{"qid": "1"}], r"pd\.DataFrame\(rows\)"), (3, "not an int"), ("", "read"),
    ):
        with pytest.raises(InputError, match=f"^{name.strip()}.*({told})"):
            evaluate(instead)
    if name not in ("Answerability", "SurvivorshipCurve", "ARaBEvaluator "):
        with pytest.raises(InputError, match=r"not a str.*read_"):
            evaluate(frame, "qrels.txt")


def test_pipelines_are_run_where_several_systems_can_be_given():
    from pyterrier_debias import ARaBEvaluator

    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["a", "b"]})
    run = pd.DataFrame({"qid": ["1", "2"], "docno": "d", "score": 1.0, "text": ["he and his", "her son"]})
    pipeline, evaluator = pt.Transformer.from_df(run), ARaBEvaluator([10], method="tc")
    wanted = evaluator.evaluate({"x": run}, topics)
    pd.testing.assert_frame_equal(evaluator.evaluate({"x": pipeline}, topics).table, wanted.table)
    pd.testing.assert_frame_equal(evaluator.evaluate(pipeline, topics).table, evaluator.evaluate(run, topics).table)
