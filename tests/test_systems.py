"""Systems are taken apart where text is known; what rooms share runs once."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError
from pyterrier_debias.systems import Context, System

CORPUS = pd.DataFrame({"docno": ["d1", "d2", "d3"], "text": ["one", "two words", "now three words"]})
TOPICS = pd.DataFrame({"qid": ["q1", "q2"], "query": ["first", "second"]})
QRELS = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d1", "d3"], "label": [1, 1]})
RUN = pd.DataFrame(
    {"qid": ["q1", "q1", "q2"], "docno": ["d1", "d2", "d3"], "score": [2.0, 1.0, 1.0], "rank": [0, 1, 0]}
)
TOY = Collection("toy", corpus=CORPUS, topics={"test": TOPICS}, qrels={"test": QRELS}, runs={"bm25": RUN})


class Length(pt.Transformer):
    """Scores by the number of words, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        self.calls += len(inp) > 0
        return inp.assign(score=[float(len(t.split())) for t in inp["text"]])


def retriever():
    return pt.Transformer.from_df(RUN)


def test_a_pipeline_is_split_after_the_stage_that_adds_text():
    ranker = Length()
    system = System.of("s", retriever() >> TOY.text_loader() >> ranker)
    assert system.ranker is ranker
    assert system.candidates(TOPICS)["text"].tolist() == ["one", "two words", "now three words"]


def test_stages_after_the_text_are_all_the_ranker():
    system = System.of("s", retriever() >> TOY.text_loader() >> Length() % 1)
    assert len(system.ranker(system.candidates(TOPICS))) == 2


def test_a_retriever_has_no_ranker():
    assert System.of("s", retriever()).ranker is None
    assert System.of("s", RUN).ranker is None


def test_a_ranker_alone_gets_the_run_of_the_collection():
    system = System.of("s", Length(), dataset=TOY)
    assert isinstance(system.ranker, Length)
    assert system.candidates(TOPICS)["docno"].tolist() == ["d1", "d2", "d3"]


def test_a_ranker_alone_without_a_run_is_an_error():
    bare = Collection("bare", corpus=CORPUS, topics={"test": TOPICS}, qrels={"test": QRELS})
    with pytest.raises(InputError, match="put a retriever and a text loader before it"):
        System.of("s", Length(), dataset=bare)


def test_what_is_no_pipeline_is_named():
    with pytest.raises(InputError, match="system 's' is a int"):
        System.of("s", 3)


def context(*systems):
    return Context(systems, TOY, TOPICS, QRELS)


def test_retrieval_and_scoring_run_once():
    first, ranker = retriever() >> TOY.text_loader(), Length()
    a, b = System("a", first, ranker), System("b", first, None)
    shared = context(a, b)
    assert shared.results(a) is shared.results(a)
    assert ranker.calls == 1
    assert shared.candidates(b) is shared.candidates(b)
    assert len(shared._retrieved) == 1


def test_results_are_the_rankers_order():
    system = System("a", retriever() >> TOY.text_loader(), Length())
    out = context(system).results(system)
    assert out[["qid", "docno", "rank"]].values.tolist() == [["q1", "d2", 0], ["q1", "d1", 1], ["q2", "d3", 0]]


def test_depth_cuts_what_a_ranker_sees_and_not_what_a_retriever_returns():
    system = System("a", retriever() >> TOY.text_loader(), Length())
    shallow = Context([system], TOY, TOPICS, QRELS, depth=1)
    assert shallow.results(system)["docno"].tolist() == ["d1", "d3"]
    alone = System("b", retriever())
    assert len(Context([alone], TOY, TOPICS, QRELS, depth=1).results(alone)) == 3


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (RUN.iloc[:0], "is empty; nothing was retrieved"),
        (RUN.assign(score=float("nan")), "is NaN"),
        (pd.concat([RUN, RUN]), "occur more than once"),
        (RUN.drop(columns="score"), "column 'score' is missing"),
    ],
)
def test_bad_runs_are_named(run, message):
    with pytest.raises(InputError, match=f"run 's'.*{message}"):
        System.of("s", run)


def test_topics_that_are_not_judged_are_an_error():
    system = System.of("s", RUN)
    with pytest.raises(InputError, match="no qid is in both"):
        Context([system], TOY, TOPICS, QRELS.assign(qid="other")).results(system)
