"""Queries that a retriever raises for are left out and named; cut-offs reach retrievers where that changes nothing."""

import pyterrier as pt
import pytest

from pyterrier_debias import InputError
from pyterrier_debias.core.retrieval import answered, asking_for, tied_at, unanswered_notes
from tests.toy import TOPICS, TOY, TopK


def failing(*bad, calls=None):
    """A retriever that raises where a frame holds one of these qids."""

    def search(topics):
        if calls is not None:
            calls.append(len(topics))
        if topics["qid"].isin(bad).any():
            raise ValueError("no  luck")
        return topics.assign(docno="d1", score=1.0)

    return search


@pytest.mark.parametrize("bad", [["0"], ["39"], ["7", "8", "23"], [str(n) for n in range(1, 20)]])
def test_the_queries_that_fail_are_found_and_the_others_answered(bad):
    found, failed = answered(failing(*bad), TOPICS)
    assert failed == dict.fromkeys(bad, "ValueError: no luck")
    assert found["qid"].tolist() == [qid for qid in TOPICS["qid"] if qid not in bad]
    assert found.index.tolist() == list(range(len(found)))


def test_where_all_goes_well_there_is_one_call():
    calls = []
    found, failed = answered(failing(calls=calls), TOPICS)
    assert calls == [40] and failed == {} and len(found) == 40


def test_a_retriever_that_fails_wherever_it_is_asked_is_broken():
    calls = []
    with pytest.raises(ValueError, match="no  luck"):
        answered(failing(*TOPICS["qid"], calls=calls), TOPICS)
    assert calls == [40, *[1] * 8]
    with pytest.raises(ValueError, match="no  luck"):
        answered(failing("0"), TOPICS.head(1))


def test_an_error_for_every_query_with_results_is_not_an_empty_result():
    """As of a run that a ranker without texts reads: it has nothing to score for queries without results."""

    def search(topics):
        found = topics[topics["qid"].isin(["1", "2", "3"])].assign(docno="d1", score=1.0)
        if len(found):
            raise KeyError("text")
        return found

    with pytest.raises(KeyError, match="text"):
        answered(search, TOPICS)


@pytest.mark.parametrize("column", ["text", None])
def test_what_is_wrong_with_the_input_is_raised_as_it_is(column):
    def search(topics):
        pt.validate.columns(topics, includes=[column or "qid"])
        raise InputError("qid '3' occurs twice")

    with pytest.raises(pt.validate.InputValidationError if column else InputError):
        answered(search, TOPICS)


def test_notes_count_all_and_name_ten():
    many = {str(n): "" for n in range(13)}
    (note,) = unanswered_notes("BM25", 40, many)
    assert note.startswith("BM25: nothing was found for 13 of 40 queries, counted as 0") and note.endswith("9 and 3 more.")
    assert unanswered_notes("BM25", 40, {}) == []
    first, second = unanswered_notes("BM25", 40, {"7": "", "9": "E: no luck."})
    assert "nothing was found for 1 of 40 queries, counted as 0 if judged: 7." in first
    assert "it raised (E: no luck) for 1 of 40" in second


def test_a_cut_off_reaches_the_retriever_through_rowwise_stages():
    fewer = asking_for(TopK() >> TOY.text_loader(), 3)
    assert [type(stage).__name__ for stage in fewer] == ["TopK", "TextLoader"] and fewer[0].num_results == 3
    assert asking_for(TopK(2), 3).num_results == 2
    assert asking_for(TopK() % 2 >> TOY.text_loader(), 3)[0].num_results == 2
    assert asking_for(TopK() >> TOY.text_loader() % 5, 3)[0].num_results == 3
    rewritten = asking_for(pt.apply.query(lambda row: "tea") >> TopK() >> TOY.text_loader(), 3)
    assert rewritten[1].num_results == 3


@pytest.mark.parametrize(
    "pipeline",
    [
        TopK() >> pt.apply.doc_score(lambda row: 1.0),
        TopK() + TopK(),
        TopK() >> TOY.text_loader() >> TopK(),
        pt.Transformer.from_df(TOPICS),
        TopK() >> TOY.text_loader() >> pt.apply.generic(lambda frame: frame),
    ],
    ids=["reranked", "sum", "twice", "run", "unknown stage"],
)
def test_a_cut_off_that_could_change_something_is_not_pushed_down(pipeline):
    assert asking_for(pipeline, 3) is None


def test_equal_scores_at_a_cut_off_are_noticed():
    found = TopK(4)(TOPICS.head(2))
    assert tied_at(found, 3) == {"0", "1"} and tied_at(found, 2) == set() and tied_at(found, 4) == set()
