"""Groups of candidates and AddJudged."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import InputError
from pyterrier_debias.training.groups import AddJudged, make_groups
from pyterrier_debias.training.weights import ColumnWeights, weights_of


def candidates(**more):
    rows = [("q1", "d1"), ("q1", "d2"), ("q1", "d3"), ("q1", "d4"), ("q2", "d1"), ("q2", "d5"), ("q3", "d2"), ("q4", "d3")]
    frame = pd.DataFrame(rows, columns=["qid", "docno"])
    return frame.assign(query=lambda f: "text of " + f["qid"], text=lambda f: "text of " + f["docno"], **more)


QRELS = pd.DataFrame(
    [("q1", "d2", 2), ("q1", "d4", 1), ("q1", "d3", 0), ("q2", "d5", 3), ("q2", "d9", 1), ("q3", "d2", 1), ("q9", "d1", 1)],
    columns=["qid", "docno", "label"],
)


def readable(groups):
    docnos = groups.column("docno")
    return {g.qid: ([docnos[i] for i in g.positives], [docnos[i] for i in g.pool]) for g in groups.groups}


def test_positives_and_pools():
    groups = make_groups(candidates(), QRELS, stage="fit")
    assert readable(groups) == {"q1": (["d2", "d4"], ["d1", "d3"]), "q2": (["d5"], ["d1"])}
    assert groups.rows.set_index(["qid", "docno"]).loc[("q1", "d2"), "label"] == 2
    assert groups.counts == {
        "queries": 4,
        "trained on": 2,
        "without a positive": 1,  # q4
        "without a negative": 1,  # q3
        "positives": 3,
        "passages without text": 0,
    }


def test_queries_without_a_negative_stay_where_none_is_needed():
    groups = make_groups(candidates(), QRELS, need_negatives=False, stage="fit")
    assert readable(groups)["q3"] == (["d2"], [])
    assert groups.counts["without a negative"] == 0


def test_a_grade_between_is_neither_positive_nor_negative():
    groups = make_groups(candidates(), QRELS, min_label=2, stage="fit")
    assert readable(groups)["q1"] == (["d2"], ["d1", "d3"])


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_against_sets_whatever_the_order_of_rows(random, min_label):
    pairs = [(f"q{q}", f"d{d}") for q in range(4) for d in range(6) if random.random() < 0.7]
    judged = [(q, d, random.randint(-1, 3)) for q, d in pairs if random.random() < 0.5] + [("q0", "elsewhere", 1)]
    frame = pd.DataFrame(pairs, columns=["qid", "docno"]).assign(query="a query", text="a text")
    qrels = pd.DataFrame(judged, columns=["qid", "docno", "label"])
    label = {(q, d): n for q, d, n in judged}
    expected = {}
    for qid in sorted({q for q, _ in pairs}):
        own = sorted(d for q, d in pairs if q == qid)
        positives = [d for d in own if label.get((qid, d), 0) >= min_label]
        # All qids have the same text: what is relevant for one of them is no negative of another.
        pool = [d for d in own if all(label.get((f"q{q}", d), 0) <= 0 for q in range(4))]
        if positives and pool:
            expected[qid] = (positives, pool)
    shuffled = frame.sample(frac=1, random_state=random.randint(0, 99))
    if not expected or not {q for q, _ in pairs} & set(qrels["qid"]):
        with pytest.raises(InputError):
            make_groups(frame, qrels, min_label=min_label, stage="fit")
        return
    groups = make_groups(frame, qrels, min_label=min_label, stage="fit")
    assert readable(groups) == expected
    again = make_groups(shuffled, qrels.iloc[::-1], min_label=min_label, stage="fit")
    assert again.fingerprint == groups.fingerprint
    pd.testing.assert_frame_equal(again.rows, groups.rows)


def twice(qrels, more=(), **options):
    """The same question under two qids, with three candidates each, and more pairs."""
    pairs = [(qid, docno) for qid in ("s1", "s2") for docno in ("eggs_a", "eggs_b", "noise")]
    frame = pd.DataFrame([*pairs, *more], columns=["qid", "docno"]).assign(text=lambda f: "text of " + f["docno"])
    frame["query"] = frame["qid"].str[0].map({"s": "how to boil an egg", "t": "how to fry one"})
    return make_groups(frame, pd.DataFrame(qrels, columns=["qid", "docno", "label"]), stage="fit", **options)


def test_what_is_relevant_under_another_qid_of_the_same_text_is_no_negative():
    groups = twice([("s1", "eggs_a", 1), ("s2", "eggs_b", 1)])
    assert readable(groups) == {"s1": (["eggs_a"], ["noise"]), "s2": (["eggs_b"], ["noise"])}
    # The higher of two grades counts, as for a pair that is judged twice; a grade below min_label is enough.
    groups = twice([("s1", "eggs_a", 2), ("s2", "eggs_b", 2), ("s2", "eggs_a", 0), ("s1", "eggs_b", 1)], min_label=2)
    assert readable(groups) == {"s1": (["eggs_a"], ["noise"]), "s2": (["eggs_b"], ["noise"])}


def test_passages_of_what_is_relevant_under_another_qid_are_no_negatives():
    pairs = [("s1", "d1%p0"), ("s1", "d1%p1"), ("s2", "d1%p1"), ("s2", "d1%p2"), ("s2", "d2%p0")]
    qrels = [("s1", "d1", 1), ("s1", "d1%p1", 0), ("s2", "d2", 1)]
    # A passage that is judged for any query is a document of its own, which has no grade for s2.
    assert readable(twice(qrels, pairs)) == {
        "s1": (["d1%p0"], ["d1%p1", "eggs_a", "eggs_b", "noise"]),
        "s2": (["d2%p0"], ["d1%p1", "eggs_a", "eggs_b", "noise"]),
    }


def test_a_query_without_negatives_but_those_of_another_qid_is_left_out():
    rows, qrels = [("t1", "eggs_a"), ("t1", "noise")], [("s1", "eggs_a", 1), ("s1", "eggs_b", 1), ("t1", "noise", 1)]
    groups, without = twice(qrels, rows), twice([*qrels, ("s2", "noise", 1)], rows)
    assert readable(groups) == {"s1": (["eggs_a", "eggs_b"], ["noise"]), "t1": (["noise"], ["eggs_a"])}
    assert readable(without) == {"t1": (["noise"], ["eggs_a"])}
    assert (groups.counts["without a negative"], without.counts["without a negative"]) == (0, 2)
    assert groups.fingerprint != without.fingerprint


def test_the_fingerprint_knows_texts_queries_and_grades():
    def print_of(frame=None, qrels=QRELS, **options):
        return make_groups(candidates() if frame is None else frame, qrels, stage="fit", **options).fingerprint

    prints = [
        print_of(),
        print_of(min_label=2),
        print_of(candidates().assign(text="other")),
        print_of(candidates().assign(query=lambda f: f["qid"])),
        print_of(qrels=QRELS.assign(label=1)),
    ]
    assert len(set(prints)) == len(prints)


def test_the_fingerprint_knows_what_is_relevant_among_the_candidates_of_other_queries():
    frame = pd.DataFrame({"qid": list("1122"), "docno": list("abcd"), "query": "a query", "text": "a text"})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["a", "c"], "label": 1})

    def print_of(*pair):
        more = pd.DataFrame([pair], columns=["qid", "docno", "label"]) if pair else None
        return make_groups(frame, pd.concat([qrels, more]), stage="fit").fingerprint

    # In a batch of both queries "d" would be a negative of query 1; what nobody found is no negative of anyone.
    assert print_of("1", "d", 1) != print_of()
    assert print_of("1", "elsewhere", 1) == print_of() == print_of("1", "d", 0)


def test_other_columns_stay_and_a_missing_one_is_named():
    groups = make_groups(candidates(score=range(8)), QRELS, stage="fit")
    assert groups.column("score") == list(range(8))
    with pytest.raises(InputError, match="no column 'bias'"):
        groups.column("bias")


def test_columns_that_were_read_are_known_by_their_values():
    def read(*names, **columns):
        groups = make_groups(candidates(**{"score": range(8), **columns}), QRELS, stage="fit")
        for name in ("docno", "text", "label", *names):
            groups.column(name)
        return groups.columns_read()

    assert read() == {}
    assert list(read("score")) == ["score"]
    assert read("score") == read("score", other=1) != read("score", score=range(1, 9))
    shuffled = make_groups(candidates(score=range(8)).sample(frac=1, random_state=2), QRELS, stage="fit")
    shuffled.column("score")
    assert shuffled.columns_read() == read("score") == read("score", score=[float(at) for at in range(8)])
    vectors = [[np.full(2000, at) for at in range(8)] for _ in range(2)]
    vectors[1][3][1000] = 0.5
    assert read("vector", vector=vectors[0]) == read("vector", vector=vectors[0]) != read("vector", vector=vectors[1])


def test_passages_without_text_are_left_out_and_counted():
    frame = candidates()
    frame.loc[0, "text"] = "  "
    groups = make_groups(frame, QRELS, stage="fit")
    assert readable(groups)["q1"] == (["d2", "d4"], ["d3"])
    assert groups.counts["passages without text"] == 1
    with pytest.raises(InputError, match="text of all 8 candidates is empty"):
        make_groups(candidates().assign(text=""), QRELS, stage="fit")


def test_integer_ids_and_one_word_passages_do():
    frame = candidates().assign(qid=lambda f: f["qid"].str[1:].astype(int), text="word")
    qrels = QRELS.assign(qid=QRELS["qid"].str[1:].astype(int))
    assert set(readable(make_groups(frame, qrels, stage="fit"))) == {"1", "2"}


@pytest.mark.parametrize(
    ("frame", "qrels", "message"),
    [
        (
            candidates(),
            QRELS.assign(label=0),
            r"fit: nothing to train on in 4 queries: no candidate is judged 1 or higher; put Add",
        ),
        (candidates(), QRELS[QRELS["docno"] == "d9"], r"no candidate is judged"),
        (candidates().query("docno == 'd2'"), QRELS, r"no query has both a positive and a negative"),
        (candidates().iloc[:0], QRELS, r"there are no candidates"),
        (candidates(), QRELS.assign(qid="other"), r"no qid is in both"),
        (candidates(), QRELS.assign(label=0.5), r"column 'label' of the judgements is 0.5 at row 0 \(qid='q1'"),
        (candidates(), QRELS.assign(label=100), r"label.* is 100 .*from -2 to 30"),
        (candidates(), QRELS.assign(label=["good"] * len(QRELS)), r"'good' at row 0"),
        (candidates(), QRELS.assign(label=float("nan")), r"nan at row 0"),
        (candidates().assign(text=None), QRELS, r"column 'text' has no value"),
        (candidates().assign(query=lambda f: f["docno"]), QRELS, r"qid 'q1' has more than one query text"),
        (pd.concat([candidates()] * 2), QRELS, r"8 \(qid, docno\) pairs occur more than once"),
    ],
)
def test_frames_that_cannot_be_trained_on(frame, qrels, message):
    with pytest.raises(InputError, match=message):
        make_groups(frame, qrels, stage="fit")


# AddJudged


def found():
    notes = [f"{number} of the first stage" for number in range(8)]
    return candidates(score=[4.0, 3, 2, 1, 2, 1, 1, 1], rank=[0, 1, 2, 3, 0, 1, 0, 0], note=notes).drop(columns="text")


def test_added_rows_know_the_query_and_have_no_score():
    out = AddJudged(QRELS)(found())
    added = out[~out.set_index(["qid", "docno"]).index.isin(found().set_index(["qid", "docno"]).index)]
    assert added[["qid", "docno", "query", "rank"]].values.tolist() == [["q2", "d9", "text of q2", 2]]
    assert added["score"].isna().all()
    assert added["note"].isna().all()
    assert out["qid"].is_monotonic_increasing
    assert out["rank"].dtype == found()["rank"].dtype
    kept = out.merge(found(), how="inner")
    assert len(kept) == len(found())


def added_to(frame, qrels=QRELS):
    out = AddJudged(qrels)(frame)
    return out[~out.set_index(["qid", "docno"]).index.isin(frame.set_index(["qid", "docno"]).index)]


def test_what_does_not_differ_within_queries_is_the_querys_and_goes_with_it():
    ease = found()["qid"].map({"q1": 0.5, "q2": 2.0, "q3": 1.0, "q4": float("nan")})
    vectors = [np.full(2, int(qid[1])) for qid in found()["qid"]]
    frame = found().assign(ease=ease, kind="who", query_vec=vectors, query_0="before", stashed_results_0=None)
    # Each of these belongs to a document, however it is called, and whatever it looks like in the candidates at hand.
    frame = frame.assign(quality=range(8), text="the same", title="the same", pool_score=1.0, pool_rank=3)
    [row] = added_to(frame).to_dict("records")
    assert (row["qid"], row["docno"]) == ("q2", "d9")
    assert (row["query"], row["ease"], row["kind"], row["query_0"]) == ("text of q2", 2.0, "who", "before")
    assert row["query_vec"].tolist() == [2, 2]
    assert pd.isna([row[name] for name in ("quality", "text", "title", "pool_score", "pool_rank", "score", "note")]).all()
    # Of another query's candidates nothing follows.
    for off, known in ((2, True), (5, False)):
        one_vector_off = frame.assign(query_vec=[vector + (place == off) for place, vector in enumerate(vectors)])
        assert added_to(one_vector_off)["query_vec"].notna().tolist() == [known]


def test_what_is_added_to_a_query_depends_on_no_other_query():
    frame = found().assign(
        ease=found()["qid"].map({"q1": 0.5, "q2": 2.0, "q3": 1.0, "q4": 3.0}), source=["web", "web", "web", "book", *["web"] * 4]
    )
    qrels = pd.DataFrame({"qid": ["q1", "q2", "q3", "q4"], "docno": "d9", "label": 1})
    whole = added_to(frame, qrels)
    alone = pd.concat([added_to(frame[frame["qid"] == qid], qrels) for qid in qrels["qid"]])
    pd.testing.assert_frame_equal(whole.reset_index(drop=True), alone.reset_index(drop=True), check_dtype=False)
    assert whole["ease"].fillna(-1).tolist() == [0.5, 2.0, -1, -1] and whole["source"].fillna("").tolist() == ["", "web", "", ""]


def test_where_each_query_has_one_candidate_only_names_tell():
    """What does not differ within a query says nothing there."""
    frame = found().drop_duplicates("qid").assign(ease=1.0, url="x", query_toks=[{"a": 1.0}] * 4)
    row = added_to(frame).iloc[0]
    assert row["query"] == "text of q1" and row["query_toks"] == {"a": 1.0}
    assert pd.isna(row["ease"]) and pd.isna(row["url"])


def test_weights_of_queries_reach_added_positives():
    qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d9", "d9"], "label": [1, 1]})
    ease = found()["qid"].map({"q1": 0.5, "q2": 2.0, "q3": 1.0, "q4": 3.0})
    frame = AddJudged(qrels)(found().assign(ease=ease)).assign(text=lambda f: "text of " + f["docno"])
    groups = make_groups(frame, qrels, stage="fit")
    weights = [weights_of(ColumnWeights("ease"), groups, group, group.positives).tolist() for group in groups.groups]
    assert weights == [0.5, 2.0]


def test_only_queries_of_its_judgements_change():
    validation = found().assign(qid=lambda f: "v" + f["qid"])
    pd.testing.assert_frame_equal(AddJudged(QRELS)(validation), validation)
    assert AddJudged(QRELS, min_label=2)(found()).equals(found())


def test_several_additions_stand_behind_their_own_query():
    qrels = pd.DataFrame({"qid": ["q1", "q1", "q3"], "docno": ["z", "y", "d1"], "label": 1})
    out = AddJudged(qrels)(found())
    assert out[out["qid"] == "q1"][["docno", "rank"]].values.tolist()[4:] == [["y", 4], ["z", 5]]
    assert out["qid"].tolist() == ["q1"] * 6 + ["q2"] * 2 + ["q3"] * 2 + ["q4"]


def test_it_refuses_grades_out_of_range():
    with pytest.raises(InputError, match="AddJudged: column 'label'"):
        AddJudged(QRELS.assign(label=99))(found())


def test_it_makes_a_missed_positive_trainable():
    qrels = pd.DataFrame({"qid": ["q4"], "docno": ["d9"], "label": [1]})
    frame = AddJudged(qrels)(found()).assign(text=lambda f: "text of " + f["docno"])
    assert readable(make_groups(frame, qrels, stage="fit")) == {"q4": (["d9"], ["d3"])}


def test_nothing_leads_an_index_to_other_documents_than_docnos_do():
    """An index's own number of a document is not known of what is added; a loader would read NaN, or an older document's."""
    vectors = [np.zeros(2)] * 8
    frame = found().assign(docid=range(8), doc_vec=vectors, toks=[{"a": 1.0}] * 8)
    out = AddJudged(QRELS)(frame)
    assert set(frame) - set(out) == {"docid", "doc_vec", "toks"}
    # The columns do not depend on what the queries lack, nor on whether there are any.
    assert set(AddJudged(QRELS, min_label=2)(frame)) == set(AddJudged(QRELS)(frame.head(0))) == set(out)


# Passages of documents


def cut(frame, passages=2):
    """As pt.text.sliding does it: every candidate in passages, each with the candidate's columns."""
    parts = [frame.assign(docno=frame["docno"] + f"%p{n}", text=frame["text"] + f", part {n}") for n in range(passages)]
    return pd.concat(parts, ignore_index=True)


def test_passages_inherit_their_documents_label():
    groups = make_groups(cut(candidates()), QRELS, stage="fit")
    whole = readable(make_groups(candidates(), QRELS, stage="fit"))
    assert readable(groups) == {
        qid: tuple(sorted(f"{docno}%p{n}" for docno in docnos for n in range(2)) for docnos in both)
        for qid, both in whole.items()
    }


def test_a_passage_that_is_judged_itself_keeps_its_own_grade():
    frame = pd.DataFrame({"qid": "q1", "query": "a query", "docno": ["d1%p0", "d1%p1", "d2%p0"], "text": ["a", "b", "c"]})
    qrels = pd.DataFrame({"qid": "q1", "docno": ["d1", "d1%p1"], "label": [1, 0]})
    assert readable(make_groups(frame, qrels, stage="fit")) == {"q1": (["d1%p0"], ["d1%p1", "d2%p0"])}


def test_names_that_only_look_like_passages_are_documents():
    frame = pd.DataFrame({"qid": "q1", "query": "a query", "docno": ["d1%p0", "d1%p1"], "text": ["a", "b"]})
    qrels = pd.DataFrame({"qid": "q1", "docno": ["d1%p0"], "label": [1]})
    assert readable(make_groups(frame, qrels, stage="fit")) == {"q1": (["d1%p0"], ["d1%p1"])}


def test_other_queries_passages_of_a_relevant_document_are_known_to_be_relevant():
    """They share a batch, and must not be taken for negatives there."""
    frame = pd.DataFrame(
        {"qid": ["q1", "q1", "q2", "q2"], "docno": ["d1%p0", "d2%p0", "d1%p7", "d3%p0"], "text": list("abcd")}
    ).assign(query=lambda f: "text of " + f["qid"])
    qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d1", "d3"], "label": 1})
    [first, _] = make_groups(frame, qrels, stage="fit").groups
    assert {"d1", "d1%p0", "d1%p7"} <= first.relevant
    assert "d3%p0" not in first.relevant


def test_documents_of_which_passages_are_there_are_not_added_again():
    frame = cut(candidates().assign(rank=0, score=1.0))
    assert set(AddJudged(QRELS)(frame)["docno"]) - set(frame["docno"]) == {"d9"}


def test_topics_in_place_of_judgements_are_told():
    topics, found = pd.DataFrame({"qid": ["1"], "query": ["a"]}), pd.DataFrame({"qid": ["1"], "query": ["a"], "docno": ["d"]})
    with pytest.raises(InputError, match=r"AddJudged: the judgements have no column 'docno'.*give dataset.get_qrels\(\)"):
        AddJudged(topics)(found.assign(score=1.0, rank=0))
