"""The rank at which labellers first met an answer: definitions, edge cases, schemes of ids."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import Collection, InputError, PlantedCollection, open_dataset
from pyterrier_debias.survivorship.data.ranks import (
    NEVER,
    answered_qids,
    first_relevant,
    first_relevant_ranks,
    list_strata,
    passage_ids,
    presented,
    shown_to_labellers,
    survives,
    with_ranks,
)
from tests.survivorship import published


def shown(*docnos, qid="q1", **columns):
    frame = pd.DataFrame({"qid": qid, "docno": list(docnos)})
    return frame.assign(**columns) if columns else frame.assign(score=-np.arange(len(docnos), dtype=float))


def judged(labels, qid="q1"):
    return pd.DataFrame({"qid": qid, "docno": list(labels), "label": list(labels.values())})


def ranks_of(candidates, qrels, **options):
    found = first_relevant_ranks(candidates, qrels, **options)
    return dict(zip(found["qid"], found["first_relevant_rank"]))


def test_labels_may_be_text_and_are_compared_as_numbers():
    qrels = pd.concat([judged({"a": "9"}), judged({"b": "9"}), judged({"b": "10"})])
    assert ranks_of(shown("a", "b"), qrels, min_label=10) == {"q1": 2.0}


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(1, 15))
def test_survival_is_the_thesis_function(labels, k):
    """The printed function asks whether 1 is among labels[:k]; on graded labels that is exact=True."""
    assert survives(first_relevant(labels, exact=True), k) == (1 in labels[:k])
    assert survives(first_relevant(labels), k) == any(label >= 1 for label in labels[:k])
    assert survives(first_relevant(labels), None) == any(label >= 1 for label in labels)


@given(st.lists(st.integers(0, 2), max_size=8), st.integers(1, 9))
def test_who_survives_at_k_survives_at_the_next(labels, k):
    rank = first_relevant(labels)
    assert survives(rank, k) <= survives(rank, k + 1) <= survives(rank, None)


def test_survival_of_many():
    ranks = np.array([1.0, 3.0, NEVER])
    assert survives(ranks, 2).tolist() == [True, False, False]
    assert survives(ranks, float("inf")).tolist() == survives(ranks, None).tolist() == [True, True, False]


@pytest.mark.parametrize("k", [0, -1, 1.5, "3", True, float("nan")])
def test_thresholds_count_documents(k):
    with pytest.raises(InputError, match="number of documents from 1"):
        survives(1.0, k)


def test_the_highest_score_was_shown_first():
    assert ranks_of(shown("a", "b", "c", score=[0.1, 0.3, 0.2]), judged({"c": 1})) == {"q1": 2.0}
    assert ranks_of(shown("a", "b", "c", rank=[2, 0, 1]), judged({"c": 1})) == {"q1": 2.0}
    # The score decides, the rank parts ties, and what is equal still keeps its order.
    assert ranks_of(shown("a", "b", "c", score=[0.0, 0.0, 9.0], rank=[5, 4, 7]), judged({"a": 1})) == {"q1": 3.0}
    assert ranks_of(shown("a", "b", score=[1.0, 1.0]), judged({"b": 1})) == {"q1": 2.0}


def test_places_are_counted_within_queries():
    frame = pd.concat([shown("a", "b", qid="q2"), shown("c", qid="1")]).sample(frac=1, random_state=0)
    places = presented(frame).sort_values(["qid", "place"])
    assert places[["qid", "docno", "place"]].values.tolist() == [["1", "c", 1], ["q2", "a", 1], ["q2", "b", 2]]


def test_whom_nobody_answered_never_survives():
    found = first_relevant_ranks(pd.concat([shown("a", "b"), shown("c", qid="q2")]), judged({"a": 0, "b": 1}))
    assert found.values.tolist() == [["q1", 2.0, 2, 1], ["q2", NEVER, 1, 0]]
    assert len(first_relevant_ranks(shown(), judged({"a": 1}))) == 0


def test_graded_labels():
    candidates, qrels = shown("a", "b", "c", "d"), judged({"b": 2, "c": 1, "d": 3})
    assert ranks_of(candidates, qrels) == {"q1": 2.0}
    assert ranks_of(candidates, qrels, exact=True) == {"q1": 3.0}
    assert ranks_of(candidates, qrels, min_label=3) == {"q1": 4.0}


def test_a_passage_behind_several_addresses():
    """Best place and highest label; the others keep their places (a labeller saw four documents)."""
    candidates = shown("7-0", "8-0", "7-1", "9-0")
    qrels = judged({"7-0": 0, "7-1": 1, "8-0": 0, "9-0": 1})
    assert ranks_of(candidates, qrels) == {"q1": 3.0}
    assert ranks_of(candidates, qrels, docno="passage") == {"q1": 1.0}
    assert ranks_of(candidates, judged({"9": 1}), docno="passage") == {"q1": 4.0}
    found = first_relevant_ranks(candidates, qrels, docno="passage")
    assert found[["shown", "relevant_shown"]].values.tolist() == [[3, 2]]
    assert passage_ids(["7-0", "77-12", "5", "-1"]) == ["7", "77", "5", "-1"]


def test_repeated_judgements_count_by_the_highest():
    qrels = pd.concat([judged({"a": 0}), judged({"a": 1}), judged({"a": 0})])
    assert ranks_of(shown("b", "a"), qrels) == {"q1": 2.0}


def test_ids_that_do_not_meet():
    with pytest.raises(InputError, match=r"no judged docno.*docno='passage' joins"):
        first_relevant_ranks(shown("7-0", "8-0"), judged({"8": 1}))
    with pytest.raises(InputError, match="follow another scheme: use docno='qna'"):
        first_relevant_ranks(shown("q1-0", "q1-1", "q1-2"), judged({"q1-0": 1}), docno="passage")
    with pytest.raises(InputError, match="docno='url' is not known"):
        first_relevant_ranks(shown("a"), judged({"a": 1}), docno="url")


def test_two_addresses_of_one_passage_may_be_a_whole_list():
    assert ranks_of(shown("7-0", "7-1"), judged({"7": 1}), docno="passage") == {"q1": 1.0}


def test_strata_of_lists_are_their_answers_and_lengths():
    lengths = [1, 9, 10, 11, 20, 21, 30, 100, 101]
    expected = ["1", "9", "10", "11 to 20", "11 to 20", "21 to 30", "21 to 30", "91 to 100", "101 to 110"]
    assert list_strata([3] * 9, lengths) == [f"3 of {name}" for name in expected]
    # As text or numbers of any kind.
    assert list_strata(np.array([1.0, 0.0]), np.array([10.0, 12.0])) == ["1 of 10", "0 of 11 to 20"]


def test_input_that_cannot_be_used():
    with pytest.raises(InputError, match="no column 'docno', so the order shown is not known; they have qid, score"):
        first_relevant_ranks(shown("a").drop(columns="docno"), judged({"a": 1}))
    with pytest.raises(InputError, match=r"'answers', a list\); they have none"):
        answered_qids(pd.DataFrame())
    with pytest.raises(InputError, match="no column 'score' or 'rank'"):
        first_relevant_ranks(shown("a").drop(columns="score"), judged({"a": 1}))
    with pytest.raises(InputError, match=r"column 'score' is NaN.*docno='b'"):
        first_relevant_ranks(shown("a", "b", score=[1.0, float("nan")]), judged({"a": 1}))
    with pytest.raises(InputError, match="judgements have no column 'label'"):
        first_relevant_ranks(shown("a"), judged({"a": 1}).drop(columns="label"))


def test_answered_by_its_answer_too():
    candidates = pd.concat([shown("a", qid=q) for q in ("1", "2", "3")])
    qrels = pd.concat([judged({"a": 1}, "1"), judged({"a": 1}, "2"), judged({"a": 0}, "3")])
    answers = pd.DataFrame({"qid": [1, 2, 3], "answer": ["at 100 degrees", "No Answer Present.", "yes"]})
    assert ranks_of(candidates, qrels) == {"1": 1.0, "2": 1.0, "3": NEVER}
    assert ranks_of(candidates, qrels, answers=answers) == {"1": 1.0, "2": NEVER, "3": NEVER}
    with pytest.raises(InputError, match="'qid' and 'answer'"):
        answered_qids(answers.rename(columns={"answer": "text"}))


@pytest.mark.parametrize("name", ["answer", "answers"])
@pytest.mark.parametrize(
    ("value", "answered"),
    [
        ("100 degrees", True),
        ("No Answer Present.", False),
        (" No Answer Present. ", False),
        ("  ", False),
        (None, False),
        (float("nan"), False),
        ([], False),
        (["", "No Answer Present."], False),
        (["No Answer Present.", "two"], True),
        ([None, "two"], True),
        ([None, float("nan")], False),
        (("two",), True),
        (np.array(["two"], dtype=object), True),
        (np.array([], dtype=object), False),
        ({"text": ["two"], "answer_start": [0]}, True),
        ({"text": np.array(["two"], dtype=object)}, True),
        ({"text": [], "answer_start": []}, False),
        ({"text": ["", "No Answer Present."], "answer_start": [0, 0]}, False),
    ],
)
def test_who_was_answered(name, value, answered):
    written = pd.DataFrame({"qid": [7, 8], name: pd.Series([value, "always"], dtype=object)})
    assert answered_qids(written) == ({"7", "8"} if answered else {"8"})


def test_answers_in_mappings():
    some = pd.DataFrame({"qid": ["7", "8", "9"], "answers": [{"text": ["two"]}, None, "tea"]})
    assert answered_qids(some) == {"7", "9"}
    written = pd.DataFrame({"qid": ["7"], "answers": [{"spans": ["two"]}]})
    with pytest.raises(InputError, match=r"answers: column 'answers' .* row 0 \(qid='7'\).*give a list of texts"):
        answered_qids(written)


def test_what_a_dataset_knows():
    planted = PlantedCollection(1, topics=8, passages=100)
    assert shown_to_labellers(planted)[0].equals(planted.get_candidates()) and shown_to_labellers(planted)[1] == ""
    parts = {"corpus": planted.corpus, "topics": planted.topics, "qrels": planted.qrels}
    blind = Collection("blind", **parts, runs=planted.get_runs())
    run, name = shown_to_labellers(blind)
    assert name == "bm25" and run.equals(planted.get_runs()["bm25"])
    with pytest.raises(InputError, match=r"get_candidates.*no run that could stand in"):
        shown_to_labellers(Collection("bare", **parts))
    with pytest.raises(InputError, match="get_candidates"):
        shown_to_labellers(blind, proxy=False)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_the_planted_first_answer_is_found(strength):
    planted = PlantedCollection(3, topics=20, passages=200, survivorship=strength)
    found = first_relevant_ranks(planted.get_candidates(), planted.get_qrels("full")).set_index("qid")["first_relevant_rank"]
    truth = planted.truth["topics"].set_index("qid")["first_shown"]
    assert found.replace(NEVER, 0).astype(int).to_dict() == truth.to_dict()
    assert (found == NEVER).sum() == round(0.25 * strength * 20)


def test_ranks_join_any_frame():
    ranks = pd.DataFrame({"qid": ["1"], "first_relevant_rank": [4.0]})
    joined = with_ranks(pd.DataFrame({"qid": [1, 2], "query": ["a", "b"]}), ranks)
    assert joined["first_relevant_rank"].tolist() == [4.0, NEVER] and joined["qid"].tolist() == ["1", "2"]


def test_the_published_histogram_is_that_of_the_published_sizes():
    assert np.diff(published.SIZES, prepend=0).tolist() == published.HISTOGRAM
    assert published.ANSWERED + published.UNANSWERED == published.TOTAL
    assert sum(total for total, _ in published.TYPES.values()) == published.TOTAL
    assert sum(unanswered for _, unanswered in published.TYPES.values()) == published.UNANSWERED


def test_a_real_sample(shared_data):
    """100 queries of MS MARCO QnA v2.1: 51 answered, as its own fields say."""
    dataset = open_dataset(shared_data / "msmarco_qna", split="qna")
    found = first_relevant_ranks(dataset.get_candidates(), dataset.get_qrels())
    assert len(found) == 100 and found["shown"].sum() == 995
    assert np.isfinite(found["first_relevant_rank"]).sum() == 51
    counts = found["first_relevant_rank"].value_counts()
    assert [int(counts.get(rank, 0)) for rank in range(1, 11)] == [7, 3, 10, 6, 9, 5, 1, 6, 3, 1]
