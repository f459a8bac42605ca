"""Documents, words and positions: their parts sum to the figures, by arithmetic that the biases did not do."""

import json
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyterrier_debias import ARaBEvaluator, AuditResult, InputError, PlantedCollection, PlantedRanker, WordList, audit
from pyterrier_debias.core.bias import ATTRIBUTION_COLUMNS, PART_TYPES, Parts, attributions_frame, parts_frame, parts_of
from pyterrier_debias.data.base import Collection
from pyterrier_debias.gender.audit import GenderBias, WordListBias
from pyterrier_debias.gender.data.documents import Texts
from pyterrier_debias.gender.formulas.arab import arab, magnitudes
from pyterrier_debias.gender.formulas.attributions import order_parts, order_weights, word_parts
from pyterrier_debias.gender.formulas.counting import word_counts
from pyterrier_debias.pooling.formulas.attributions import unjudged_parts
from pyterrier_debias.position.formulas.attributions import answer_thirds, move_parts, third_parts
from pyterrier_debias.report import run
from pyterrier_debias.report.attributions import ITEM_COLUMNS
from tests.report import toy

TEXTS = {
    "a": "He and his son met her.", "b": "She, she and the king", "c": "rain", "d": "his his his mother", "e": "women and he",
}  # fmt: skip
RUN = pd.DataFrame(
    {"qid": list("1112223"), "docno": list("abcdeab"), "score": [3.0, 2.0, 1.0, 3.0, 2.0, 1.0, 1.0]}
)  # fmt: skip
FORMS = [("tf", "log1p_total"), ("tf", "sum_log"), ("tf", "sum_log1p"), ("tc", "log1p_total"), ("bool", "log1p_total")]
LINEAR = FORMS[1:4]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("cutoff", [1, 3, 10])
def test_weights_are_those_of_the_order_less_those_of_all_orders(n, cutoff):
    lean = np.random.default_rng(n).normal(size=n)
    every = np.mean([arab(np.array(order), cutoff) for order in permutations(lean[:5])])
    own = order_weights(min(n, 5), cutoff) @ lean[:5]
    assert own == pytest.approx(arab(lean[:5], cutoff) - every, abs=1e-12)
    assert order_weights(n, cutoff).sum() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("method", "form"), FORMS)
def test_parts_of_words_sum_to_the_magnitude(method, form):
    counts = word_counts(list(TEXTS.values()))
    parts, exact = word_parts(counts, method, form)
    table = np.zeros((counts.n, 2))
    np.add.at(table, (counts.rows, np.array(counts.wordlist.owners)[counts.words]), parts)
    np.testing.assert_allclose(table, magnitudes(counts, method, form), atol=1e-12)
    assert exact == ((method, form) in LINEAR)


def test_words_of_a_logarithm_have_their_aumann_shapley_value():
    # Brute force: the word's count times the mean slope of ln(1 + s c) along the way from no word to all of them.
    counts = word_counts(["he he his"])
    parts, _ = word_parts(counts)
    s = (np.arange(100_000) + 0.5) / 100_000
    np.testing.assert_allclose(parts, [(own / (1 + 3 * s)).mean() for own in counts.counts], atol=1e-9)


@pytest.mark.parametrize(("method", "form"), FORMS)
@pytest.mark.parametrize("cutoff", [1, 2, 10])
def test_documents_and_words_sum_to_what_the_order_adds(method, form, cutoff):
    evaluator = ARaBEvaluator([cutoff], method=method, tf_form=form, texts=TEXTS)
    table = evaluator.evaluate(RUN).table
    documents, words, exact = order_parts(RUN, Texts(TEXTS), cutoff, method=method, tf_form=form)
    assert documents["contribution"].sum() == pytest.approx(table["added"][0], abs=1e-12)
    assert words["contribution"].sum() == pytest.approx(table["added"][0], abs=1e-12)
    assert exact == ((method, form) in LINEAR)
    assert not set(documents["item"]) & {"c"}, "a document without words of the list contributes nothing"


@pytest.mark.parametrize(("method", "form"), [("tc", "log1p_total"), ("tf", "sum_log1p")])
def test_where_it_is_exact_a_words_part_is_what_goes_with_the_word(method, form):
    """Taking a word out of the list changes the figure by its part."""
    full = WordList({"m": ["he", "his", "son", "king"], "f": ["she", "her", "mother", "women"]})
    options = {"method": method, "tf_form": form}
    _, words, _ = order_parts(RUN, Texts(TEXTS), 2, wordlist=full, **options)
    parts = words.set_index("item")["contribution"]
    whole = ARaBEvaluator([2], wordlist=full, texts=TEXTS, **options).evaluate(RUN).table["added"][0]
    for word in ("he", "his", "she"):
        left = {group: [other for other in own if other != word] for group, own in full.groups.items()}
        without = ARaBEvaluator([2], wordlist=WordList(left), texts=TEXTS, **options).evaluate(RUN).table["added"][0]
        assert whole - without == pytest.approx(parts.get(word, 0.0), abs=1e-12)


def test_a_document_names_its_words_and_where_it_counts_most():
    documents, words, _ = order_parts(RUN, Texts(TEXTS), 2, method="tc")
    own = documents.set_index("item")
    # Leans: a 3 - 1 = 2 ("he", "his", "son" against "her"), d 3 - 1 = 2, e 0, b -2. Weights of rank 1 and 2 of 3 at a
    # cut-off of 2: 3/4 - 1/3 = 5/12, 1/4 - 1/3 = -1/12, of rank 3: -1/3; three queries. Query 3 has one document: no order.
    assert own.loc["a", "contribution"] == pytest.approx((5 / 12 - 1 / 3) * 2 / 3)
    assert own.loc["b", "contribution"] == pytest.approx(-1 / 12 * -2 / 3)
    assert own.loc["a", ["qid", "queries"]].tolist() == ["1", 2] and "he 1" in own.loc["a", "note"]
    assert set(words["note"]) == {"male", "female"}


RUNS = st.lists(st.permutations(list("abcdefgh")), min_size=1, max_size=4)


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(RUNS, RUNS, st.sets(st.tuples(st.integers(0, 3), st.sampled_from("abcdefgh"))), st.integers(1, 9))
def test_unjudged_documents_sum_to_the_difference_of_judged_shares(one, other, judged, cutoff):
    def frame(lists):
        rows = [{"qid": str(q), "docno": d, "score": -float(i)} for q, docs in enumerate(lists) for i, d in enumerate(docs)]
        return pd.DataFrame(rows)

    qids = [str(q) for q in range(4)]
    qrels = pd.DataFrame([{"qid": str(q), "docno": d, "label": 0} for q, d in judged], columns=["qid", "docno", "label"])
    found = unjudged_parts({"mine": frame(one), "pool": frame(other)}, qrels, qids, cutoff)
    shares = [
        np.mean([(q, d) in judged for d in mine[:cutoff]]) - np.mean([(q, d) in judged for d in theirs[:cutoff]])
        for q, (mine, theirs) in enumerate(zip(one, other))
    ]
    assert found["contribution"].sum() == pytest.approx(np.mean(shares), abs=1e-12)


def test_unjudged_documents_that_stand_highest_come_first():
    def frame(docnos):
        return pd.DataFrame({"qid": "1", "docno": list(docnos), "score": -np.arange(len(docnos), dtype=float)})

    qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
    found = unjudged_parts({"mine": frame("bcad"), "bm25": frame("adce")}, qrels, ["1"], 3)
    # Both have c: its parts cancel. b takes a third, d, which only the pool has so high, gives one.
    assert found[["item", "note", "qid", "queries"]].values.tolist() == [
        ["b", "unjudged at rank 1 of mine", "1", 1], ["d", "unjudged at rank 2 of bm25", "1", 1],
    ]  # fmt: skip
    assert found["contribution"].tolist() == pytest.approx([-1 / 3, 1 / 3])
    # Queries that were not asked, and those that one of the two has no results for, play no part.
    other = [pd.concat([frame(own), frame("xyz").assign(qid="2")]) for own in ("bcad", "adce")]
    third = {"mine": pd.concat([other[0], frame("xyz").assign(qid="3")]), "bm25": other[1]}
    assert unjudged_parts(third, qrels, ["1", "3"], 3).equals(found)
    table = parts_of(0.0, Parts("document", found))
    assert table["item"].tolist() == ["b", "d"] and table["share"].isna().all()


def test_moves_and_thirds():
    index = ["1", "2", "3", "4"]
    start, middle, end = (pd.Series(v, index=index) for v in ([1, 1, 0.5, 0], [1, 0.5, 0.5, 0], [0.5, 0.25, 0, 0]))
    found = move_parts(start, middle, end).set_index("item")
    # (0 - 1/2 + 0 + 0) / 4 and (-1/2 - 1/4 - 1/2 + 0) / 4.
    assert found["contribution"].tolist() == [-0.125, -0.3125] and found["queries"].tolist() == [1, 3]
    parts = third_parts(end - start, {"1": "first", "2": "middle", "3": "first"})
    assert parts["item"].tolist() == ["answers in the first third", "answers in the middle third", "answers not known"]
    assert parts["contribution"].sum() == pytest.approx((end - start).mean())
    assert parts["contribution"][0] == -1 / 4 and parts["queries"].tolist() == [2, 1, 1]


def test_thirds_in_which_answers_begin():
    """The mean over a query's relevant passages of where its answer begins; judgements of 0 play no part."""
    texts = {"a": "owl fox elk ant bee cat", "b": "red sky sea oak ash elm"}
    asked = [("1", "a", 1, "owl"), ("2", "a", 2, "ant"), ("3", "a", 1, "cat"), ("4", "a", 1, "owl"), ("4", "b", 1, "oak"),
             ("5", "b", 0, "red")]  # fmt: skip
    spans = [(q, d, word, texts[d].index(word), texts[d].index(word) + 3) for q, d, _, word in asked]
    qrels = pd.DataFrame([row[:3] for row in asked], columns=["qid", "docno", "label"])
    topics = pd.DataFrame({"qid": list("12345"), "query": "x"})

    def thirds(answers):
        dataset = Collection(
            "toy", corpus=pd.DataFrame({"docno": list(texts), "text": list(texts.values())}), topics={"test": topics},
            qrels={"test": qrels}, answers=answers,
        )  # fmt: skip
        return answer_thirds(SimpleNamespace(dataset=dataset, qrels=qrels, topics=topics))

    answers = pd.DataFrame(spans, columns=["qid", "docno", "answer", "start", "end"])
    assert thirds(answers) == {"1": "first", "2": "middle", "3": "last", "4": "first"}
    assert thirds(None) == thirds(answers.head(0)) == thirds(answers.tail(1)) == {}


def test_what_does_not_sum_to_the_figure_is_not_shown():
    items = third_parts(pd.Series([0.1, 0.3], index=["1", "2"]), {"1": "first"})
    assert parts_of(0.9, Parts("position", items)).empty
    whole = parts_of(0.2, Parts("position", items))
    assert list(whole) == list(PART_TYPES) and whole["share"].tolist() == pytest.approx([0.75, 0.25])
    assert parts_frame().dtypes["exact"] == "bool"


def test_findings_that_are_not_taken_apart_have_no_parts():
    dataset = toy.collection()
    found = audit({"BM25": toy.bm25_system(dataset)}, dataset, biases=[toy.ORDER]).attributions
    assert found.empty and list(found) == ATTRIBUTION_COLUMNS == list(attributions_frame([]))


PLANTED = PlantedCollection(4, topics=16, passages=300, position=1.0, gender=1.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    first = pt.Transformer.from_df(PLANTED.get_runs()["bm25"])
    ranker = PlantedRanker("gender", strength=1.0)
    systems = {"BM25": first, "mine": first >> PLANTED.text_loader() >> ranker}
    options = {"biases": ["position", "gender", "pooling"], "depth": 20, "draws": 1}
    return systems, {**options, "checkpoint": tmp_path_factory.mktemp("kept") / "audit"}


@pytest.fixture(scope="module")
def result(world):
    systems, options = world
    return audit(systems, PLANTED, **options)


def figure(result, row):
    f = result.findings
    own = f[(f["system"] == row.system) & (f["bias"] == row.bias)]
    return own.loc[(own["measure"] == row.measure) & (own["contrast"] == row.contrast), "value"].item()


def test_an_audit_takes_its_figures_apart(result):
    assert not len(result.failed)
    seen = set()
    for kind in ("documents", "words", "positions"):
        table = result.worst(1000, kind=kind)
        assert list(table) == ITEM_COLUMNS
        for _, own in table.groupby(["system", "bias", "measure", "contrast"], sort=False):
            row = own.iloc[0]
            seen.add((kind, row.bias, row.system))
            if kind != "documents" or len(own) < 50:
                assert own["contribution"].sum() == pytest.approx(figure(result, row), rel=1e-9, abs=1e-12)
                assert own["share"].sum() == pytest.approx(1.0)
    assert {("documents", "gender", "mine"), ("words", "gender", "mine"), ("documents", "pooling", "mine")} <= seen
    assert ("positions", "position", "mine") in seen
    assert not result.worst(kind="words")["exact"].any(), "the magnitude is ln(1 + c)"


def test_the_worst_is_what_pushes_most(result):
    for kind in ("documents", "words"):
        for _, own in result.worst(20, kind=kind, bias="gender").groupby("system"):
            pushed = (own["contribution"] * np.sign(figure(result, own.iloc[0]))).to_numpy()
            assert (np.diff(pushed) <= 1e-12).all()
    assert len(result.worst(1, kind="documents", bias="gender", system="mine")) == 1
    assert set(result.worst(kind="documents")["bias"]) == {"gender", "pooling"}
    pd.testing.assert_frame_equal(result.worst(2), result.worst(2, kind="queries"))


def test_it_round_trips(result, world, monkeypatch):
    systems, options = world
    text = result.to_json()
    schema = Path(run.__file__).with_name("result.schema.json").read_text()
    jsonschema.validate(json.loads(text), json.loads(schema))
    back = AuditResult.from_json(text)
    assert back.to_json() == text
    pd.testing.assert_frame_equal(back.attributions, result.attributions, check_dtype=False)
    older = json.loads(text)
    del older["attributions"], older["blake2b"]
    assert AuditResult.from_json(json.dumps(older)).worst(kind="words").empty
    # Kept ones are read: nothing is ranked anew.
    monkeypatch.setattr(GenderBias, "examine", None)
    again = audit(systems, PLANTED, **options)
    pd.testing.assert_frame_equal(again.attributions, result.attributions)


def test_the_page_shows_them(result):
    page = result.to_html()
    for title in ("The documents that contribute most", "The words that contribute most", "The positions that contribute most"):
        assert title in page
    assert "divided among" in page


def test_a_bias_of_other_words_has_them_too():
    first = pt.Transformer.from_df(PLANTED.get_runs()["bm25"])
    words = WordList({"warm": ["tea", "soup", "ginger"], "cold": ["ice", "juice", "the"]}, "heat")
    found = audit({"run": first}, PLANTED, biases=[WordListBias(words)], depth=20)
    table = found.worst(100, kind="words")
    assert set(table["bias"]) == {"heat"} and set(table["note"]) <= {"warm", "cold"}
    assert table["contribution"].sum() == pytest.approx(figure(found, table.iloc[0]))


def test_kinds_that_there_are_not(result):
    with pytest.raises(InputError, match="kind='people' is not known; use one of 'queries', 'documents', 'words', 'positions'"):
        result.worst(kind="people")
