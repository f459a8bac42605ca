"""ARaBEvaluator, AnnotateGender and sums over collections."""

import logging
import pickle
from itertools import permutations, product

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.statistics import bootstrap_interval, inverted_interval, randomisation_test
from pyterrier_debias.gender.data import documents
from pyterrier_debias.gender.data.words import DEBIAS, WordList
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.attributions import order_parts
from pyterrier_debias.gender.measures.evaluation import RandomOrders, against_zero, mean_floor
from pyterrier_debias.gender.measures.evaluator import AnnotateGender, ARaBEvaluator, GenderCounts, marked_words, union_background
from pyterrier_debias.gender.measures.over_rankings import ARaB, FaiRR, NFaiRR, RaB
from tests.gender.rankings import CORPUS, ONE, QRELS, TEXTS, TOPICS, TWO, frame


@pytest.mark.parametrize(
    "options", [{}, {"method": "bool"}, {"method": "tc", "tokeniser": "whitespace"}, {"tf_form": "sum_log1p"}]
)
def test_the_evaluator_and_the_measures_agree(options):
    found = ARaBEvaluator([1, 2, 9], **options)(frame(ONE)).set_index(["qid", "cutoff"])
    fair = {name: value for name, value in options.items() if name == "tokeniser"}
    for cutoff in (1, 2, 9):
        measures = [ARaB(**options) @ cutoff, RaB(**options) @ cutoff, FaiRR(**fair) @ cutoff, NFaiRR(**fair) @ cutoff, RR @ 10]
        rows = pt.Experiment([pt.Transformer.from_df(frame(ONE))], TOPICS, QRELS, measures, perquery=True, verbose=False)
        for name, measure in zip(("ARaB", "RaB", "FaiRR", "NFaiRR"), measures):
            expected = rows[rows["measure"] == str(measure)].set_index("qid")["value"]
            assert found.xs(cutoff, level="cutoff")[name].to_dict() == pytest.approx(expected.to_dict())


def test_what_an_evaluation_says():
    found = ARaBEvaluator([2, 5], method="tc")(frame(ONE))
    assert list(found.columns) == [
        "qid", "query", "cutoff", "documents", "ARaB", "RaB", "FaiRR", "IFaiRR", "NFaiRR", "agnostic", "expected", "sd",
    ]  # fmt: skip
    assert found["documents"].tolist() == [2, 3, 2, 2, 2, 3]
    # The documents of query 1 lean 3, -2 and 0: 1/3 on average in any order, at any cut-off.
    assert found["expected"].tolist()[:2] == pytest.approx([1 / 3, 1 / 3])
    # All orders of the two documents of query 2: -1 * 3/4 and -1 * 1/4.
    assert found["sd"].tolist()[2] == pytest.approx(1 / 4)


def test_order_is_by_rank_then_score_then_docno():
    run = pd.DataFrame({"qid": "1", "docno": ["a", "b", "c"], "text": ["he", "she", "rain"]})
    first = ARaBEvaluator([1], method="tc")
    by_score = run.assign(score=[1.0, 2.0, 0.0])
    assert first(by_score)["ARaB"].tolist() == [-1]
    # Ranks count where scores are equal, or not all known.
    assert first(by_score.assign(score=1.0, rank=[0, 1, 2]))["ARaB"].tolist() == [1]
    assert first(by_score.assign(score=[1.0, 2.0, np.nan], rank=[0, 1, 2]))["ARaB"].tolist() == [1]
    # Ties: trec_eval puts the last docno first.
    assert first(run.assign(score=1.0))["ARaB"].tolist() == [0]
    assert first(by_score.assign(rank=0))["ARaB"].tolist() == [-1]
    for score in (np.nan, [np.nan, 2.0, 1.0]):
        with pytest.raises(InputError, match="ARaBEvaluator: column 'score' is NaN"):
            first(run.assign(score=score))
    with pytest.raises(pt.validate.InputValidationError):
        first(run)
    with pytest.raises(InputError, match="neither 'score' nor 'rank'"):
        documents.in_order(run, first)


def test_a_rank_that_contradicts_the_score_is_refused():
    run = frame(ONE)
    changed = run.assign(score=run["score"].where(run["qid"] != "2", -run["score"]))
    evaluator = ARaBEvaluator([1])
    for call in (evaluator, evaluator.evaluate, evaluator.contributions, ARaBEvaluator([1], background=changed)):
        given = run if call not in (evaluator, evaluator.evaluate, evaluator.contributions) else changed
        with pytest.raises(InputError, match="ARaBEvaluator: rank contradicts score in query '2'; drop the column 'rank'"):
            call(given)
    assert len(evaluator(changed.drop(columns="rank"))) == 3


def test_tests_do_not_depend_on_the_order_of_rows():
    generator = np.random.default_rng(0)
    lists = {str(q): generator.permutation(["d1", "d2", "d3"]).tolist() for q in range(60)}
    rows = [(q, d, float(-i), TEXTS[d]) for q, docs in lists.items() for i, d in enumerate(docs)]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score", "text"])
    one, other = (ARaBEvaluator([1, 3]).evaluate(given) for given in (run, run.sample(frac=1, random_state=4)))
    pd.testing.assert_frame_equal(one.table, other.table)
    pd.testing.assert_frame_equal(one.per_query, other.per_query)
    assert (one.table["p"].between(0.01, 0.99)).all()  # neither end, which any order gives


def test_rows_may_come_in_any_order():
    run = frame(ONE)
    shuffled = run.sample(frac=1, random_state=3).sort_values("qid", kind="stable")
    pd.testing.assert_frame_equal(ARaBEvaluator()(run), ARaBEvaluator()(shuffled))


def test_an_empty_frame_has_the_columns(monkeypatch):
    found = ARaBEvaluator()(frame(ONE).head(0))
    assert len(found) == 0 and {"qid", "query", "cutoff", "ARaB"} <= set(found.columns)
    assert found["ARaB"].dtype == "float64"
    annotated = AnnotateGender()(frame(ONE).head(0))
    assert {"count_male", "magnitude_female", "lean", "neutrality", "words"} <= set(annotated.columns)
    assert pt.inspect.transformer_outputs(AnnotateGender(), ["qid", "docno", "text"])[-1] == "words"
    assert "ARaB" in pt.inspect.transformer_outputs(ARaBEvaluator(), ["qid", "docno", "score", "text"])


def test_queries_that_do_not_count_are_left_out(caplog):
    evaluator = ARaBEvaluator([2], method="tc", query_filter=["1", "3"])
    assert evaluator(frame(ONE))["qid"].tolist() == ["1", "3"]
    with caplog.at_level(logging.WARNING):
        found = evaluator.evaluate(frame({"1": ["d1"], "2": ["d4"]}), TOPICS)
    assert found.table.iloc[0][["n", "missing"]].tolist() == [1, 1]
    assert "left out: {'system': 1}" in caplog.text


@pytest.mark.parametrize("dtype", [float, "float32", int, str])
def test_identifiers_in_options_are_read_as_those_of_frames(dtype):
    """A merge makes floats of whole numbers; 7, 7.0 and "7" are one."""
    run = frame({"1": ["d1", "d2"], "2": ["d4"], "3": ["d5"]})
    run, named = (rows.assign(docno=rows["docno"].str[1:]) for rows in (run, CORPUS))
    qids, numbered = pd.Series([1, 2]).astype(dtype), named.assign(docno=pd.Series([1, 2, 3, 4, 5]).astype(dtype))
    for query_filter in (qids, qids.to_numpy(), qids.tolist()):
        assert ARaBEvaluator([5], query_filter=query_filter)(run)["qid"].tolist() == ["1", "2"]
    for texts in (numbered, dict(zip(numbered["docno"], numbered["text"]))):
        pd.testing.assert_frame_equal(ARaBEvaluator([5], texts=texts)(run.drop(columns="text")), ARaBEvaluator([5])(run))
    found, expected = (ARaBEvaluator([1], background=background)(run) for background in (numbered, named))
    pd.testing.assert_frame_equal(found, expected)


def test_identifiers_in_options_that_are_none_are_named():
    with pytest.raises(InputError, match=r"ARaBEvaluator, query_filter: column 'qid' has no value at row 1"):
        ARaBEvaluator(query_filter=pd.Series(["1", None]))(frame(ONE))
    for measure in (ARaB, ARaBEvaluator):
        with pytest.raises(InputError, match=r"unknown='zero' must be set on the given Texts"):
            found = measure(texts=documents.Texts(TEXTS), unknown="zero")
            found(frame(ONE))
    assert ARaB(texts=documents.Texts(TEXTS, unknown="zero"), unknown="zero").option("unknown") == "zero"
    with pytest.raises(InputError, match=r"texts: column 'docno' has no value at row 0"):
        ARaB(texts=pd.DataFrame({"docno": [None], "text": ["he"]}))
    with pytest.raises(InputError, match=r"ARaBEvaluator, background: column 'docno' has no value at row 5"):
        ARaBEvaluator(background=pd.concat([CORPUS, pd.DataFrame({"docno": [None], "text": "he"})]))(frame(ONE))


def test_background_and_loader():
    run, background = frame(ONE, texts=False), frame({"1": ["d3", "d5"], "2": ["d4"]}, texts=False)
    found = ARaBEvaluator([1], texts=CORPUS, background=background)(run)
    assert found["NFaiRR"].tolist() == pytest.approx([0, 1, np.nan], nan_ok=True)
    # One document of the background is one rank of the run: FaiRR is over both, NFaiRR and its ideal over the first.
    shallow = ARaBEvaluator([2], texts=TEXTS, background=background, depth=1)(run)
    assert shallow.loc[1, ["FaiRR", "IFaiRR", "NFaiRR"]].tolist() == pytest.approx([0.8 + 1 / np.log2(3), 0.8, 1])
    few = frame({"1": ["d3"], "2": ["d4"]}, texts=False)
    released = ARaBEvaluator([2], texts=TEXTS, background=few, outside="count")(run)
    assert released["NFaiRR"][1] == pytest.approx((0.8 + 1 / np.log2(3)) / 0.8)
    assert ARaBEvaluator([2], texts=TEXTS, background=few)(run)["NFaiRR"][1] < 1
    for background, column in ((TOPICS, "docno"), (CORPUS.assign(score=1.0), "qid"), (CORPUS.assign(qid="1"), "score")):
        with pytest.raises(InputError, match=f"background lacks the column '{column}'"):
            ARaBEvaluator(background=background)(frame(ONE))
    told = r"background is a dict, not a frame; give a result frame \(qid, docno, score\), or a frame of documents"
    for make in (lambda: ARaBEvaluator(background=TEXTS)(frame(ONE)), lambda: NFaiRR(background=TEXTS) @ 10):
        with pytest.raises(InputError, match=told):
            make()
    with pytest.raises(InputError, match=r"depth=1.5 must be a whole number"):
        ARaBEvaluator(background=background, depth=1.5)(frame(ONE))


def test_agnostic_is_the_mean_over_all_orders_of_the_background():
    background, neutral = ["d1", "d3", "d4"], {"d1": 0.0, "d3": 1.0, "d4": 0.8}
    run, documents = frame({"1": ["d1"]}), frame({"1": background})
    for cutoff in (1, 2, 3, 5):
        discounts = 1 / np.log2(np.arange(2, 2 + min(cutoff, 3)))
        orders = [np.array([neutral[d] for d in order])[: len(discounts)] @ discounts for order in permutations(background)]
        ideal = np.array([1, 0.8, 0])[: len(discounts)] @ discounts
        found = ARaBEvaluator([cutoff], background=documents)(run)
        assert found["agnostic"].tolist() == pytest.approx([np.mean(orders) / ideal])
        assert found["IFaiRR"].tolist() == pytest.approx([ideal])
    # Of the whole collection, whose neutralities are 0, 0, 1, 0.8 and 1.
    whole = ARaBEvaluator([1], background=CORPUS)(run)
    assert whole[["IFaiRR", "NFaiRR", "agnostic"]].values.tolist() == [[1, 0, pytest.approx(2.8 / 5)]]


def test_a_background_has_the_texts_of_all_runs():
    plain = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "score": [2.0, 1.0]})
    texts = plain.assign(text=["he he", "he he she"])
    for runs in ([plain, texts], [texts, plain]):
        assert union_background(runs)["text"].tolist() == ["he he", "he he she"]


def test_one_group_against_several_with_equal_magnitudes_leans_to_neither():
    """1 - 3 * (1 / 3), and more groups; a sum of rounded weights is not 0."""
    for n in range(3, 9):
        words = {f"g{i}": [f"word{i}"] for i in range(n)}
        run = pd.DataFrame({"qid": "1", "docno": ["a"], "score": 1.0, "text": " ".join(f"word{i}" for i in range(n))})
        found = ARaBEvaluator([1], wordlist=words, contrast="g1").evaluate(run)
        assert found.table.loc[0, ["ARaB", "first", "neither"]].tolist() == [0.0, 0, 1]


def test_union_background():
    both = union_background([frame(ONE), frame(TWO)], depth=1)
    assert both["qid"].tolist() == ["1", "2", "3", "1", "2", "3"]
    assert both["docno"].tolist() == ["d1", "d4", "d5", "d2", "d3", "d4"]
    # The ranks in the single runs say nothing of the union, whose order is that of its scores: for stage and measure alike.
    others = {"1": ["d4", "d5"], "2": ["d2", "d3"], "3": ["d3", "d2", "d1"]}
    union = union_background([frame(ONE), frame(others)])
    assert "rank" not in union.columns
    stage = ARaBEvaluator([2], background=union, depth=3)(frame(ONE)).set_index("qid")["NFaiRR"]
    measure = NFaiRR(background=union, depth=3) @ 2
    table = pt.Experiment([pt.Transformer.from_df(frame(ONE))], TOPICS, QRELS, [measure], perquery=True)
    assert stage.to_dict() == pytest.approx(table.set_index("qid")["value"].to_dict())


def test_annotations_by_hand():
    out = AnnotateGender(method="tc")(frame(ONE)).set_index(["qid", "docno"])
    row = out.loc[("2", "d4")]
    assert row[["count_male", "count_female", "magnitude_male", "magnitude_female", "lean"]].tolist() == [2, 3, 2, 3, -1]
    assert row["neutrality"] == pytest.approx(0.8)
    assert row["words"] == "he 1, his 1, her 1, mother 1, sister 1"
    assert out.loc[("1", "d3"), "words"] == ""
    alone = AnnotateGender(wordlist={"wet": ["rain"]})(frame(ONE))
    assert alone["neutrality"].isna().all()
    assert alone["lean"].max() == pytest.approx(np.log(2))


def test_a_document_is_read_once(monkeypatch):
    seen = []
    original = documents.word_counts
    monkeypatch.setattr(documents, "word_counts", lambda texts, *more: seen.append(len(texts)) or original(texts, *more))
    AnnotateGender()(frame(ONE))
    assert seen == [5]


def test_contributions_sum_to_the_mean():
    evaluator = ARaBEvaluator([2, 3], method="tc")
    run = frame(ONE)
    table = evaluator.contributions(run, top=None)
    mean = evaluator.evaluate(run).table.set_index("cutoff").loc[3, "ARaB"]
    assert table["part"].sum() == pytest.approx(mean)
    assert table["share"].sum() == pytest.approx(1)
    # d1 stands first for query 1 and second for query 3: (11/18 + 5/18) * 3 / 3.
    top = table.iloc[0]
    assert top["docno"] == "d1"
    assert top["part"] == pytest.approx(16 / 18)
    assert (top["queries"], top["qid"], top["words"]) == (2, "1", "he 1, him 1, his 1")
    assert top["marked"] == "[[He]] gave [[him]] [[his]] word."
    assert evaluator.contributions(run, cutoff=2, top=1)["docno"].tolist() == ["d1"]
    assert len(evaluator.contributions(frame(ONE).assign(text=""))) == 0
    # Of as large a part, whichever its sign, by name.
    tied = pd.DataFrame({"qid": list("123"), "docno": list("bca"), "score": 1.0, "text": ["he", "she", "he"]})
    table = evaluator.contributions(tied)
    assert table[["docno", "part", "share"]].values.tolist() == [["a", 1 / 3, 1 / 3], ["b", 1 / 3, 1 / 3], ["c", -1 / 3, 1 / 3]]
    assert len(evaluator.contributions(pd.concat([tied.assign(qid=f"{q}", docno=f"d{q}") for q in range(25)]).iloc[::3])) == 20


def test_marks():
    assert marked_words("he.", ["he"], "whitespace") == "he."
    assert marked_words("she he", ["he", "she"], "blank") == "[[she]] [[he]]"
    assert marked_words("text", []) == "text"


def test_every_number_of_a_row():
    """Nine queries that were asked, seven with results; one leans to nobody, one has no document that is neutral."""
    lists = {"1": ["d1", "d4"], "2": ["d4", "d1"], "3": ["d3"], "4": ["d2", "d3"], "5": ["d1"], "6": ["d1", "d3"], "7": ["d5"]}
    rows = [(q, d, float(-i), TEXTS[d]) for q, docs in lists.items() for i, d in enumerate(docs)]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score", "text"])
    result = ARaBEvaluator([2], method="tc").evaluate(run, pd.DataFrame({"qid": list("123456789")}), seed=5)
    # Leans: d1 3, d2 -2, d3 0, d4 -1, d5 -1; ARaB@2 is 3/4 of the first and 1/4 of the second.
    leans = {"1": [3, -1], "2": [-1, 3], "3": [0], "4": [-2, 0], "5": [3], "6": [3, 0], "7": [-1]}
    arab = np.array([np.dot(own, [0.75, 0.25] if len(own) == 2 else [1]) for own in leans.values()])
    expected = np.array([np.mean(own) for own in leans.values()])
    sd = np.array([np.ptp(own) / 4 for own in leans.values()])
    row = result.table.iloc[0]
    assert row[["n", "missing", "first", "second", "neither"]].tolist() == [7, 2, 3, 2, 2]
    assert arab.tolist() == result.per_query["ARaB"].tolist() == [2, 0, 0, -1.5, 3, 2.25, -1]
    assert (row["ARaB"], row["magnitude"]) == pytest.approx((arab.mean(), np.abs(arab).mean()))
    assert (row["expected"], row["added"]) == pytest.approx((expected.mean(), (arab - expected).mean()))
    assert row["floor"] == pytest.approx(np.sqrt(2 / np.pi * (sd**2).sum()) / 7)
    fair = np.array([0.8 / np.log2(3) / 0.8, 1, 1, 1 / np.log2(3), 1 / np.log2(3), 1])  # all but query 5: its ideal is 0
    found = result.per_query["NFaiRR"]
    assert found.dropna().tolist() == pytest.approx(fair.tolist()) and found.isna().tolist() == [q == "5" for q in lists]
    interval = bootstrap_interval(found.dropna().to_numpy(), seed=5)
    assert (row["NFaiRR"], row["NFaiRR_low"], row["NFaiRR_high"]) == (interval.estimate, interval.low, interval.high)
    assert row["NFaiRR_n"] == 6 and row["NFaiRR"] == pytest.approx(fair.mean())
    told = result.directions().set_index("qid")
    assert told.index.tolist() == ["5", "6", "1", "2", "3", "7", "4"]
    assert told["side"].tolist() == [1, 1, 1, 0, 0, -1, -1]
    assert told.loc[list(lists), "z"].tolist() == pytest.approx([1, -1, 0, -1, 0, 1, 0])


def test_the_usual_cut_offs_and_conventions():
    run = frame(ONE)
    assert ARaBEvaluator()(run)["cutoff"].drop_duplicates().tolist() == [5, 10, 20]
    assert ARaBEvaluator([1, 3]).evaluate(run).directions()["ARaB"].tolist() == sorted(
        ARaBEvaluator([3])(run)["ARaB"], reverse=True
    )
    one, two = ARaBEvaluator([3]), ARaBEvaluator([3], threshold=3, portions={"male": 0.4, "female": 0.6})
    # Query 2: d4 has five words, two fifths of one group; d5's and d2's counts are within the other threshold.
    assert [stage(run)["FaiRR"].tolist()[1] for stage in (one, two)] == pytest.approx([0.8 + 1 / np.log2(3), 1 + 1 / np.log2(3)])
    assert [stage(run)["FaiRR"].tolist()[0] for stage in (one, two)] == pytest.approx([0.5, 1 + 1 / np.log2(3) + 0.5])
    three = {"a": ["x"], "b": ["y"], "c": ["z"]}
    said = ARaBEvaluator([1], wordlist=three, contrast="b").convention()
    assert said.startswith("tf, log1p_total; b minus a and c; words: words (a 1, b 1, c 1;")
    assert ARaBEvaluator([1], wordlist={"a": ["x"]}).convention().startswith("tf, log1p_total; a; words: words (a 1;")


def test_results_under_different_conventions_never_look_alike():
    own = "FaiRR: threshold 1, equal portions; NFaiRR: background each system's own results, to rank 200"
    assert ARaBEvaluator([1]).evaluate(frame(ONE)).convention == f"{ARaBEvaluator([1]).convention()}; {own}"
    alone = ARaBEvaluator([1], wordlist={"a": ["he"]})
    assert alone.evaluate(frame(ONE)).convention == alone.convention()
    background = {"background": frame(TWO)}
    options = [
        {}, {"threshold": 3}, {"portions": {"male": 0.4, "female": 0.6}}, {"depth": 2}, background, {**background, "depth": 2},
        {**background, "outside": "count"}, {"background": frame(ONE)}, {"background": CORPUS},
        {"background": CORPUS, "outside": "count"}, {"background": CORPUS.head(4)},
    ]  # fmt: skip
    said = [ARaBEvaluator([1], **more).evaluate(frame(ONE)).convention for more in options]
    assert len(set(said)) == len(options)
    assert said[2].endswith("portions male 0.4, female 0.6; NFaiRR: background each system's own results, to rank 200")
    assert "NFaiRR: background results, to rank 2 (8:" in said[5] and said[5].endswith("), documents outside it added")
    assert "background one set of documents (5:" in said[9] and said[9].endswith("counted for the ranking alone")
    # The order of rows is no other background.
    shuffled = frame(TWO).sample(frac=1, random_state=1)
    assert ARaBEvaluator([1], background=shuffled).evaluate(frame(ONE)).convention == said[4]


def test_rankings_with_documents_that_the_background_lacks_are_counted(caplog):
    # Query 1 ranks two that the background lacks, query 2 one, and query 3 none.
    background = frame({"1": ["d1"], "2": ["d4"], "3": ["d5", "d1", "d4"]})
    ARaBEvaluator([1, 3], background=background)(frame(ONE))
    assert "ARaBEvaluator: 2 of 3 rankings have documents that the background lacks; they are added to it" in caplog.text
    caplog.clear()
    ARaBEvaluator([1, 3], background=background, outside="count")(frame(ONE))
    assert "2 of 3 rankings have documents that the background lacks; values may exceed 1" in caplog.text
    caplog.clear()
    ARaBEvaluator([1, 3], background=frame(ONE))(frame(ONE))
    assert caplog.text == ""


def test_tests_and_intervals():
    runs = {"one": frame(ONE), "two": frame(TWO)}
    result = ARaBEvaluator([1, 3], method="tc").evaluate(runs, TOPICS)
    assert result.table[["system", "cutoff"]].values.tolist() == [["one", 1], ["one", 3], ["two", 1], ["two", 3]]
    row = result.table.iloc[0]
    values = result.per_query.query("system == 'one' and cutoff == 1")
    assert values["ARaB"].tolist() == [3, -1, -1]
    assert row["ARaB"] == pytest.approx(1 / 3) and row["magnitude"] == pytest.approx(5 / 3)
    assert row[["first", "second", "neither"]].tolist() == [1, 2, 0]
    assert row["added"] == pytest.approx(row["ARaB"] - row["expected"])
    assert np.isnan([row["low"], row["high"]]).all()  # no test of three queries can reject
    repeated = ARaBEvaluator([1], method="tc").evaluate(
        {"one": pd.concat([frame(ONE).assign(qid=lambda f, i=i: f["qid"] + f" {i}") for i in range(4)])}
    )
    twelve = repeated.table.iloc[0]
    assert twelve["ARaB"] == pytest.approx(1 / 3) and twelve["low"] < 1 / 3 < twelve["high"]
    assert (twelve["low"] <= 0 <= twelve["high"]) == (twelve["p"] > 0.05)
    # Eight patterns of signs; |3 - 1 - 1| = 1 is the least that any of them has.
    assert row["p"] == 1
    assert row["floor"] == pytest.approx(mean_floor(values["sd"].to_numpy()))
    assert "tc; male minus female; words: debias" in result.convention and "tokeniser regex_word" in result.convention
    pairs = result.compare("ARaB")
    assert pairs["difference"].tolist()[0] == pytest.approx((-2 + 0 - 1) / 3 - 1 / 3)
    assert pairs[["before", "after", "n"]].iloc[0].tolist() == ["one", "two", 3]
    assert result.compare("abs(ARaB)")["difference"].tolist()[0] == pytest.approx(1 - 5 / 3)
    assert len(result.compare("NFaiRR")) == 2
    directions = result.directions(1)
    assert directions.query("system == 'one'")["side"].tolist() == [1, -1, -1]
    assert (directions["z"].abs() < 3).all()
    with pytest.raises(InputError, match="measure 'x'"):
        result.compare("x")
    assert against_zero(np.ones(6)).p == pytest.approx(2 / 64)


@pytest.mark.parametrize("measure", ["ARaB", "added", "NFaiRR"])
def test_plot(measure):
    from pyterrier_debias.core import plots

    result = ARaBEvaluator([1, 3]).evaluate({"one": frame(ONE), "two": frame(TWO)})
    axes = result.plot(measure=measure)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["one", "two"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "3"]
    # The systems' points stand side by side, at the figures of the table.
    for number, (name, container) in enumerate(zip(("one", "two"), axes.containers)):
        own = result.table[result.table["system"] == name]
        points = container.lines[0].get_xydata()
        assert points[:, 0] == pytest.approx(np.arange(2) + 0.06 * number) and points[:, 1].tolist() == own[measure].tolist()
    assert result.plot(axes, measure=measure) is axes
    plots.close(axes.figure)
    with pytest.raises(InputError, match="cannot be drawn"):
        result.plot(measure="RaB")


def test_sums_merge_in_any_order():
    texts = list(TEXTS.values()) * 3
    whole = GenderCounts.of("debias").update(texts)
    shards = [GenderCounts.of("debias").update(texts[i::4]) for i in range(4)]
    merged = shards[2].merge(shards[0]).merge(shards[3].merge(shards[1]))
    assert (merged.documents, merged.words.tolist(), merged.spoken.tolist()) == (15, whole.words.tolist(), whole.spoken.tolist())
    for name, sums in whole.sums.items():
        np.testing.assert_allclose(merged.sums[name], sums)
    found = whole.result().set_index("group")
    assert found.loc["male", ["documents", "words"]].tolist() == [6, 15]
    assert found.loc["female", "share"] == pytest.approx(9 / 15)
    assert found.loc["female", "most"].startswith("her 6")
    # Of each text 0 to 3 words: the mean over fifteen documents, six of which have a word of men and nine one of women.
    counts = {"male": np.array([3, 0, 0, 2, 0]), "female": np.array([0, 2, 0, 3, 1])}
    for group, own in counts.items():
        expected = [np.log1p(own).mean(), (own > 0).mean(), own.mean()]
        assert found.loc[group, ["tf", "bool", "tc"]].tolist() == pytest.approx(expected)
        assert found.loc[group, "words"] == 3 * own.sum()
    many = GenderCounts.of({"a": list("bcdefg")}).update(["b b c d e f g g g"]).result()
    assert many["most"].tolist() == ["g 3, b 2, c 1, d 1, e 1"]  # five of six
    read = GenderCounts.of("debias").read(CORPUS, rows=2)
    assert read.words.tolist() == (whole.words // 3).tolist()
    for other in ({"a": ["x"], "b": ["y"]}, WordList(dict(reversed(DEBIAS.items())), "debias")):
        with pytest.raises(InputError, match="cannot be added"):
            whole.merge(GenderCounts.of(other))
    with pytest.raises(InputError, match=r"GenderCounts: the documents have no column 'text' \(there are docno, body\)"):
        GenderCounts.of("debias").read(CORPUS.rename(columns={"text": "body"}))


def test_one_cut_off():
    pd.testing.assert_frame_equal(ARaBEvaluator(2)(frame(ONE)), ARaBEvaluator([2])(frame(ONE)))
    pd.testing.assert_frame_equal(ARaBEvaluator(2).contributions(frame(ONE)), ARaBEvaluator([2]).contributions(frame(ONE)))
    assert ARaBEvaluator(2).evaluate(frame(ONE)).table["cutoff"].tolist() == [2]
    # One that is given twice is one: no query counts twice.
    twice, once = (ARaBEvaluator(cutoffs).evaluate(frame(ONE)) for cutoffs in ([2, 3, 2], [2, 3]))
    pd.testing.assert_frame_equal(twice.table, once.table)


def test_equality_and_pickling():
    assert ARaBEvaluator([5], wordlist={"a": ["x"], "b": ["y"]}) == ARaBEvaluator([5], wordlist={"a": ["x"], "b": ["y"]})
    assert ARaBEvaluator([5]) != ARaBEvaluator([10])
    ordered, turned = (WordList({"male": ["he"], "female": ["she"]}), WordList({"female": ["she"], "male": ["he"]}))
    assert ARaBEvaluator([5], wordlist=ordered) != ARaBEvaluator([5], wordlist=turned)
    assert AnnotateGender() == AnnotateGender(verbose=True)
    for stage in (ARaBEvaluator([1], query_filter=["1"]), AnnotateGender(method="bool")):
        again = pickle.loads(pickle.dumps(stage))
        assert again == stage
        pd.testing.assert_frame_equal(again(frame(ONE)), stage(frame(ONE)))


REFUSED = [
    (AnnotateGender(method="x"), "method='x'"),
    (AnnotateGender(wordlist="nowhere"), "neither 'debias'"),
    (AnnotateGender(portions={"male": 1}), "must name each"),
    (AnnotateGender(unknown="x"), "unknown='x'"),
    (ARaBEvaluator([0]), "ARaBEvaluator: cutoffs=.* must be a whole number of at least 1"),
    (ARaBEvaluator("10"), "ARaBEvaluator: cutoffs=.* must be a whole number of at least 1"),
    (ARaBEvaluator([]), r"cutoffs=\[\] names no cut-off"),
    (ARaBEvaluator(query_filter="12"), r"query_filter='12' is a string; give a list"),
    (ARaBEvaluator(tokeniser="x"), "tokeniser='x'"),
]


@pytest.mark.parametrize(("stage", "message"), REFUSED)
def test_what_is_refused(stage, message):
    with pytest.raises(InputError, match=message):
        stage(frame(ONE))
    for call in (stage.evaluate, stage.contributions) if isinstance(stage, ARaBEvaluator) else ():
        with pytest.raises(InputError, match=message):
            call(frame(ONE))
    with pytest.raises(InputError, match="has no value at row 2"):
        ARaBEvaluator()(frame(ONE).assign(text=lambda f: f["text"].where(f.index != 2)))
    twice = pd.concat([frame(ONE)] * 2)
    for call in (ARaBEvaluator(), ARaBEvaluator().contributions, lambda run: order_parts(run, documents.Texts(TEXTS))):
        with pytest.raises(InputError, match="more than once"):
            call(twice)
    with pytest.raises(InputError, match=r"ARaBEvaluator, background: 8 \(qid, docno\) pairs occur more than once"):
        ARaBEvaluator(background=twice)(frame(ONE))
    with pytest.raises(InputError, match="no results for any query"):
        ARaBEvaluator(query_filter=["9"]).evaluate(frame(ONE))


def equal_tails(sums, total):
    """Twice the smaller share of sums that are at least as extreme."""
    return min(2 * min((sums >= total - 1e-9).mean(), (sums <= total + 1e-9).mean()), 1.0)


def test_random_orders_are_all_orders_of_all_lists():
    """Against every combination of orders; also if a list ends above the cut-off."""
    lists = [np.array([1.0, 0.0, 0.0, -0.5]), np.array([0.0, 2.0, 0.0]), np.array([1.0, 1.0])]
    orders, again = RandomOrders(seed=3), RandomOrders(seed=3)
    for qid, lean in zip("abc", lists):
        orders.add(qid, "wxyz"[: len(lean)], lean, {1: 1, 2: 2})
    for qid, lean in reversed([*zip("abc", lists), *zip("ab", reversed(lists))]):
        again.add(qid, "wxyz"[: len(lean)], lean, {1: 1, 2: 2})  # those that come later are ignored
    for cutoff in (1, 2):
        values = [np.array([arab.arab(np.array(order), cutoff) for order in permutations(lean)]) for lean in lists]
        sums = np.array([sum(added) for added in product(*(own - own.mean() for own in values))])
        for total in (-1.5, -0.4, 0.1, 0.75, 2.0):
            assert orders.p(cutoff, total) == pytest.approx(equal_tails(sums, total), abs=0.03)
        for qid, own in zip("abc", values):
            assert orders.size(qid, cutoff) == pytest.approx(np.abs(own).mean(), abs=0.02)
    assert again.p(1, 1.0) != orders.p(1, 1.0)  # "a" and "b" had the lists of one another
    some, short = RandomOrders({"a"}), RandomOrders()
    some.add("a", "wxyz", lists[0], {2: 2})
    some.add("b", "wxyz", lists[1], {2: 2})
    short.add("a", "wxyz", lists[0], {2: 1})
    for orders, t in ((some, 2), (short, 1)):
        added = np.array([arab.arab(np.array(order), t) - lists[0].mean() for order in permutations(lists[0])])
        assert orders.p(2, 0.3) == pytest.approx(equal_tails(added, 0.3), abs=0.03)


def test_documents_of_a_cluster_have_one_order_in_all_of_its_lists():
    """Twelve clusters of five queries with nearly the same list, of 46 to 50 documents; one document has a word."""
    draw, significant = np.random.default_rng(5), []
    lean = np.array([1.0, 0.0, 0.0, 0.0])
    alone, together = RandomOrders(), RandomOrders(clusters={"a": "x", "b": "x"})
    for orders in (alone, together):
        orders.add("a", "wxyz", lean, {1: 1})
        orders.add("b", "wxyz", lean, {1: 1})
    assert alone.p(1, 1.5) == pytest.approx(2 / 16, abs=0.02) and together.p(1, 1.5) == pytest.approx(2 / 4, abs=0.06)
    for seed in range(40):
        rows = []
        for cluster in range(12):
            place = draw.integers(45)
            for question in range(5):
                docnos = [f"{cluster}-{i}" for i in range(50 - question)]
                texts = ["he" if i == place else "rain" for i in range(50 - question)]
                of_list = {"qid": f"{cluster}-{question}", "docno": docnos, "text": texts, "rank": range(len(texts))}
                rows.append(pd.DataFrame(of_list))
        run = pd.concat(rows, ignore_index=True)
        topics = pd.DataFrame({"qid": run["qid"].unique()}).assign(cluster=lambda t: t["qid"].str.split("-").str[0])
        row = ARaBEvaluator([10]).evaluate(run, topics, clusters="cluster", seed=seed).table.iloc[0]
        significant.append(row["added_p"] <= 0.05)
        assert significant[-1] == (row["added_low"] > 0 or row["added_high"] < 0)
    assert np.mean(significant) <= 0.15


def one_old_of_100(qid, place):
    texts = ["rain"] * 100
    texts[place] = "elderly"
    return pd.DataFrame({"qid": qid, "docno": [f"d{i}" for i in range(100)], "score": -np.arange(100.0), "text": texts})


def test_rare_words_of_one_group_raise_no_false_alarms():
    """One listed word among the hundred documents of a query: below the cut-off it always takes the same .01 away."""
    ages, found = WordList({"old": ["elderly"], "young": ["teen"]}, "age"), []
    draw = np.random.default_rng(0)
    for _ in range(40):
        run = pd.concat([one_old_of_100(str(q), draw.integers(100)) for q in range(20)], ignore_index=True)
        found.append(ARaBEvaluator([10], wordlist=ages).evaluate(run).table.iloc[0])
    found = pd.DataFrame(found)
    assert ((found["added_p"] <= 0.05) == ((found["added_low"] > 0) | (found["added_high"] < 0))).all()
    assert (found["added_p"] <= 0.05).mean() <= 0.1
    run = pd.concat([one_old_of_100(str(q), 10 + q) for q in range(20)], ignore_index=True)
    none_above = ARaBEvaluator([10], wordlist=ages).evaluate(run)
    assert against_zero(none_above.per_query["added"].to_numpy()).p < 0.001  # signs alone would be sure
    # Of random orders, .9 ** 20 = 12 % have no word above the cut-off, and none is lower.
    assert none_above.table.loc[0, "added_p"] == pytest.approx(2 * 0.9**20, abs=0.03)
    run = pd.concat([one_old_of_100(str(q), 99) for q in range(40)], ignore_index=True)
    assert ARaBEvaluator([10], wordlist=ages).evaluate(run).table.loc[0, "added_p"] < 0.05  # 2 * .9 ** 40 = .03
    run = pd.concat([one_old_of_100(str(q), q % 10) for q in range(20)], ignore_index=True)
    assert ARaBEvaluator([10], wordlist=ages).evaluate(run).table.loc[0, "added_p"] < 0.001


def test_queries_that_share_candidates_flip_together():
    """Two questions about each of eight passages: sixteen queries, eight of which are independent."""
    generator = np.random.default_rng(3)
    words = ["he his rain", "she her rain", "rain", "he he he", "her"]
    rows = [
        {"qid": f"{passage}-{question}", "docno": f"{passage}-{place}", "score": -float(place), "text": text}
        for passage in range(8) for lists in [generator.choice(words, 3)] for question in "ab"
        for place, text in enumerate(lists)
    ]  # fmt: skip
    run = pd.DataFrame(rows)
    other = run.assign(score=generator.normal(size=len(run)))
    topics = pd.DataFrame({"qid": run["qid"].unique()}).assign(passage=lambda t: t["qid"].str[0].astype(int))
    found = ARaBEvaluator([3]).evaluate({"one": run, "other": other}, topics, clusters="passage")
    plain = ARaBEvaluator([3]).evaluate({"one": run, "other": other}, topics)
    own = found.per_query[found.per_query["system"] == "one"].sort_values("qid")
    assert own["cluster"].tolist() == own["qid"].str[0].tolist()
    sums = own.groupby("cluster")[["ARaB", "added"]].sum()
    row = found.table.set_index("system").loc["one"]
    for name, p, ends in (("ARaB", "p", ("low", "high")), ("added", "added_p", ("added_low", "added_high"))):
        assert row[p] >= against_zero(sums[name].to_numpy()).p
        assert name == "added" or row[p] == against_zero(sums[name].to_numpy()).p
        interval = inverted_interval(own[name].to_numpy(), clusters=own["cluster"])
        assert tuple(row[list(ends)]) == (interval.low, interval.high) and row[name] == pytest.approx(own[name].mean())
    assert found.table.loc[0, "p"] > plain.table.loc[0, "p"]
    fair = own.dropna(subset="NFaiRR")
    interval = bootstrap_interval(fair["NFaiRR"].to_numpy(), clusters=fair["cluster"])
    assert (row["NFaiRR_low"], row["NFaiRR_high"], row["NFaiRR_n"]) == (interval.low, interval.high, len(fair))
    assert row["NFaiRR_low"] < plain.table.loc[0, "NFaiRR_low"]
    wide = found.per_query.pivot(index="qid", columns="system", values="ARaB")
    test = randomisation_test(wide["one"].to_numpy(), wide["other"].to_numpy(), clusters=wide.index.str[0])
    assert found.compare()["p"].tolist() == [test.p] and plain.compare()["p"].tolist() != [test.p]
    for given in (None, topics.drop(columns="passage")):
        with pytest.raises(InputError, match="clusters='passage' must be a column of the topics"):
            ARaBEvaluator([3]).evaluate(run, given, clusters="passage")
    with pytest.raises(InputError, match="topic '0-a' has no 'passage'"):
        ARaBEvaluator([3]).evaluate(run, topics.assign(passage=[None, *"x" * 15]), clusters="passage")
