"""Systems are taken apart where text is known; what biases share runs once."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError
from pyterrier_debias.core.systems import (
    BrokenSystemError,
    Context,
    System,
    UnfitSystemError,
    named_where_it_raises,
    probed_system,
    takes_topics,
)
from pyterrier_debias.data.base import TextLoader
from tests.toy import TOY as BIG
from tests.toy import TopK

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


class Unchecked(pt.Transformer):
    """A ranker as users write them: it validates nothing, so that topics end in a KeyError."""

    def transform(self, inp):
        return pt.model.add_ranks(inp.assign(score=inp["text"].str.len().astype(float)))


def test_a_loader_before_a_ranker_alone_belongs_to_its_candidates():
    """Behind texts that a probe has changed it would bring the original ones back."""
    loader, ranker = TextLoader(CORPUS), Length()
    system = System.of("a", loader >> ranker, dataset=TOY)
    assert system.ranker is ranker
    assert system.candidates(TOPICS)["text"].tolist() == ["one", "two words", "now three words"]
    no_runs = Collection("toy", corpus=CORPUS, topics={"test": TOPICS}, qrels={"test": QRELS})
    with pytest.raises(InputError, match=r"'a' does not start from topics, and the collection has no run.*retriever and a text"):
        System.of("a", loader >> ranker, dataset=no_runs)


class Broken(pt.Transformer):
    """Fails, and has a long description."""

    def __repr__(self):
        return "Broken(" + "x" * 1281 + ")"

    def transform(self, inp):
        raise ValueError("no luck in /tmp/a/b/index " + "y" * 900)


@pytest.mark.parametrize("pipeline", [Length() >> Broken() >> Length(), Broken() >> Length(), Length() >> (Broken() % 2)])
def test_the_stage_that_raised_is_named(pipeline):
    context = Context([System("a", pt.Transformer.from_df(RUN) >> TextLoader(CORPUS), pipeline)], TOY, TOPICS, QRELS)
    with pytest.raises(BrokenSystemError) as caught:
        context.results(context.systems[0])
    message = str(caught.value)
    assert message.startswith("system 'a' raised ValueError: no luck in index yyy") and message.endswith("(in its stage Broken)")
    assert len(message) < 450


def test_a_probe_of_a_pipeline_is_named_by_what_it_is_made_of():
    assert probed_system(pt.Transformer.from_df(RUN) >> TextLoader(CORPUS) >> Broken(), TOY, "probe").name == (
        "SourceTransformer >> Broken"
    )


@pytest.mark.parametrize(
    "ranker",
    [pt.apply.doc_score(lambda row: len(row["text"])), pt.apply.doc_score(lambda row: 1.0) >> pt.RankCutoff(2), Unchecked()],
    ids=["doc_score", "doc_score % 2", "unchecked"],
)
def test_a_ranker_that_validates_nothing_is_a_ranker_alone(ranker):
    system = System.of("s", ranker, dataset=TOY)
    assert system.ranker is ranker
    assert system.candidates(TOPICS)["text"].tolist() == ["one", "two words", "now three words"]
    assert not takes_topics(ranker, None, "probe")


@pytest.mark.parametrize("kind", [pt.apply.generic, pt.apply.by_query])
def test_a_retriever_that_shows_nothing_of_itself_is_no_ranker(kind):
    search = kind(lambda topics: topics.merge(RUN, on="qid"))
    assert System.of("s", search, dataset=TOY).ranker is None
    assert System.of("s", search >> TOY.text_loader(), dataset=TOY).candidates(TOPICS)["docno"].tolist() == ["d1", "d2", "d3"]


def test_a_ranker_alone_without_a_run_is_an_error():
    bare = Collection("bare", corpus=CORPUS, topics={"test": TOPICS}, qrels={"test": QRELS})
    with pytest.raises(InputError, match="put a retriever and a text loader before it"):
        System.of("s", Length(), dataset=bare)


def test_what_is_no_pipeline_is_named():
    with pytest.raises(InputError, match="system 's' is an int"):
        System.of("s", 3)


def context(*systems):
    return Context(systems, TOY, TOPICS, QRELS)


def test_retrieval_and_scoring_run_once():
    asked, run = [], retriever()

    def retrieve(topics):
        asked.append(len(topics))
        return run(topics)

    first, ranker = pt.apply.generic(retrieve) >> TOY.text_loader(), Length()
    a, b = System("a", first, ranker), System("b", first, None)
    shared = context(a, b)
    assert shared.results(a) is shared.results(a)
    assert ranker.calls == 1
    assert shared.candidates(b) is shared.candidates(b)
    assert [n for n in asked if n] == [len(TOPICS)]


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


def test_a_system_that_raises_runs_once_and_is_named_each_time():
    calls = []

    def broken(row):
        calls.append(row["docno"])
        raise ZeroDivisionError("no  luck")

    first = retriever() >> TOY.text_loader()
    a, b, c = System("a", first, pt.apply.doc_score(broken)), System("b", first, Length()), System("c", pt.apply.generic(broken))
    shared = context(a, b, c)
    for again in (shared, replace(shared, systems=[a])):
        with pytest.raises(BrokenSystemError, match=r"^system 'a' raised ZeroDivisionError: no luck$") as caught:
            again.results(a)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert calls == ["d1"]
    assert len(shared.results(b)) == 3
    for _ in range(2):
        with pytest.raises(BrokenSystemError, match="system 'c' raised KeyError"):
            shared.candidates(c)


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


def test_a_run_of_other_topics_is_told_by_its_qids():
    shared = context(System.of("mine", RUN.assign(qid="other")))
    with pytest.raises(InputError, match=r"run 'mine': none of its qids \(e\.g\. 'other'\) is among the topics \(e\.g\. 'q1'\)"):
        shared.results(shared.systems[0])


@pytest.mark.parametrize("operator", ["__or__", "__and__"])
def test_operators_that_leave_scores_out_are_named(operator):
    """PyTerrier's | sorts documents by docno, which is no order to cut at a depth or to compare a ranker with."""
    both = getattr(retriever(), operator)(pt.Transformer.from_df(RUN))
    for pipeline, kind in ((both >> TOY.text_loader() >> Length(), "candidates"), (both, "results")):
        mine = System.of("mine", pipeline)
        told = rf"run 'mine': its {kind} have no column 'score'.*\(a \| b\) >> bm25 .* a \+ b .* leaves docid and query empty"
        with pytest.raises(InputError, match=told):
            context(mine).candidates(mine)
    scored = System.of("mine", both >> pt.apply.doc_score(lambda row: 0.0) >> TOY.text_loader() >> Length())
    assert len(context(scored).results(scored)) == len(RUN) and scored.ranker is not None


def test_a_topics_own_text_is_no_documents():
    given = TOPICS.assign(text=TOPICS["query"])
    bare, loaded = System.of("bare", retriever()), System.of("loaded", retriever() >> TOY.text_loader() >> Length())
    shared = Context([bare, loaded], TOY, given, QRELS)
    assert "text" not in shared.candidates(bare).columns
    assert shared.candidates(loaded)["text"].tolist() == ["one", "two words", "now three words"]


def test_what_is_no_indexer_is_refused():
    with pytest.raises(InputError, match="System 'mine': indexer is a str; give a function from documents to a retriever"):
        System("mine", retriever(), indexer="terrier")


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_ranker_of_pyterriers_that_gives_no_number_is_told_so(batch_size):
    def score(inp):
        return float("nan") if batch_size is None else [float("nan")] * len(inp)

    mine = System("mine", retriever() >> TOY.text_loader(), pt.apply.doc_score(score, batch_size=batch_size))
    for asked in (context(mine).results, lambda system: named_where_it_raises(system).ranker(context(system).candidates(system))):
        with pytest.raises(UnfitSystemError, match=r"^system 'mine': column 'score' is NaN or not a number in 3 of 3 rows"):
            asked(mine)


def test_topics_that_are_not_judged_are_an_error():
    system = System.of("s", RUN)
    with pytest.raises(InputError, match="no qid is in both"):
        Context([system], TOY, TOPICS, QRELS.assign(qid="other")).results(system)


class Lying(pt.Transformer):
    """A retriever that says it equals any other, as Terrier's do over indexes in memory."""

    def __init__(self, docno):
        self.docno = docno

    def __eq__(self, other):
        return isinstance(other, Lying)

    def __hash__(self):
        return 0

    def transform(self, inp):
        pt.validate.query_frame(inp, context=self)
        return inp.assign(docno=self.docno, score=1.0, rank=0)


def test_equal_to_its_own_word_is_not_the_same_retriever():
    first, other = System("a", Lying("d1")), System("b", Lying("d3"))
    for systems in ((first, other), (other, first)):
        shared = context(*systems)
        assert shared.results(first)["docno"].tolist() == ["d1", "d1"]
        assert shared.results(other)["docno"].tolist() == ["d3", "d3"]


@pytest.mark.parametrize(
    "build",
    [lambda r: r >> TOY.text_loader(), lambda r: r % 2, lambda r: r + r, lambda r: 2.0 * r, lambda r: r % 3 >> TOY.text_loader()],
    ids=["loader", "cut", "sum", "product", "nested"],
)
def test_the_same_stages_are_asked_once_in_pipelines_of_their_own(build):
    first = Lying("d1")
    a, b, c = System("a", build(first)), System("b", build(first)), System("c", build(Lying("d3")))
    shared = context(a, b, c)
    assert shared.candidates(a) is shared.candidates(b)
    assert shared.candidates(c)["docno"].unique().tolist() == ["d3"]


def test_options_that_are_pipelines_are_compared_likewise():
    from pyterrier_debias import AddScores

    first = Lying("d1")
    assert AddScores(first, column="a") == AddScores(first, column="a") != AddScores(Lying("d3"), column="a")


class Counting(TopK):
    """Counts the rows that it returned."""

    rows = 0

    def transform(self, inp):
        out = super().transform(inp)
        Counting.rows += len(out)
        return out

    def fuse_rank_cutoff(self, k):
        return Counting(min(k, self.num_results))


@pytest.mark.parametrize("depth", range(1, 10))
def test_less_is_retrieved_and_the_candidates_are_the_same(depth):
    def asked(*systems):
        Counting.rows = 0
        found = Context(systems, BIG, BIG.get_topics(), BIG.get_qrels(), depth=depth).candidates(systems[0])
        return found, Counting.rows

    ranker = System("a", Counting() >> BIG.text_loader(), Length())
    found, rows = asked(ranker)
    whole, all_rows = asked(ranker, System("b", Counting() >> BIG.text_loader()))
    pd.testing.assert_frame_equal(found, whole)
    topics = len(BIG.get_topics())
    assert all_rows == 9 * topics
    # Documents 3 to 5 have one score: a cut among them is not the retriever's to decide.
    assert rows == min(depth + 1, 9) * topics + (all_rows if depth in (3, 4) else 0)


def test_a_retriever_alone_later_gets_all():
    Counting.rows = 0
    ranker, alone = System("a", Counting() >> BIG.text_loader(), Length()), System("b", Counting() >> BIG.text_loader())
    shared = Context([ranker, alone], BIG, BIG.get_topics(), BIG.get_qrels(), depth=2)
    first = replace(shared, systems=[ranker])
    assert len(first.candidates(ranker)) == 2 * len(BIG.get_topics())
    assert len(shared.candidates(alone)) == 9 * len(BIG.get_topics())
    assert Counting.rows == 9 * len(BIG.get_topics())  # of one retrieval


def test_a_failing_query_is_named_and_the_others_go_on():
    def search(topics):
        if topics["qid"].eq("q1").any():
            raise ValueError("Index must have 1 or more fields.")
        return topics.merge(RUN, on="qid")

    system = System("s", pt.apply.generic(search) >> TOY.text_loader(), Length())
    shared = context(system)
    assert shared.notes == []
    assert shared.results(system)["qid"].tolist() == ["q2"]
    (note,) = shared.notes
    assert note.startswith("s: it raised (ValueError: Index must have 1 or more fields) for 1 of 2 queries, counted as 0")
    assert note.endswith(": q1.")


def test_queries_without_results_are_named():
    system = System("s", pt.apply.generic(lambda topics: topics.merge(RUN[RUN["qid"] == "q2"], on="qid")))
    shared = context(system)
    shared.candidates(system)
    assert shared.notes == ["s: nothing was found for 1 of 2 queries, counted as 0 if judged: q1."]
    run = System("r", pt.Transformer.from_df(RUN[RUN["qid"] == "q2"]))
    given = context(run)
    given.candidates(run)
    assert given.notes == ["r: nothing was found for 1 of 2 queries, counted as 0 if judged: q1."]


def test_queries_for_which_a_ranker_returns_nothing_are_named():
    ranker = pt.apply.generic(lambda frame: Length()(frame).query("qid != 'q1'"))
    system = System("s", pt.Transformer.from_df(RUN) >> TOY.text_loader(), ranker)
    shared = context(system)
    shared.candidates(system)
    assert shared.notes == []  # the ranker is not run for the notes
    shared.results(system)
    assert shared.notes == [
        "s: its ranker returned no document for 1 of 2 queries, counted as 0 if judged: q1."
    ]


def test_a_ranker_that_reads_an_expression_for_terrier_is_named():
    expanded = retriever() >> TOY.text_loader() >> pt.apply.query(lambda row: f"applypipeline:off {row['query']}^0.036")
    system = System("s", expanded, Length())
    shared = context(system)
    shared.candidates(system)
    (note,) = shared.notes
    assert "instead of the original for 2 of 2 queries, such as 'applypipeline:off first^0.036'; put pt.rewrite.reset()" in note
    alone = context(System("s", expanded))
    alone.candidates(alone.systems[0])
    assert alone.notes == []


def test_probes_of_an_audit_leave_out_failing_queries_too():
    def search(topics):
        if topics["qid"].eq("q1").any():
            raise ValueError("no luck")
        return topics.merge(RUN, on="qid")

    system = System("s", pt.apply.generic(search), Length(), lambda documents: pt.apply.generic(search))
    named = named_where_it_raises(system)
    for part in (named.candidates, named.indexer([])):
        assert part(TOPICS)["qid"].tolist() == ["q2"]
    with pytest.raises(BrokenSystemError, match="system 's' raised AttributeError"):
        named.ranker(RUN.assign(query="x", text=1))


def test_large_results_are_held_as_an_order_of_the_candidates(monkeypatch):
    system = System("a", retriever() >> TOY.text_loader(), Length())
    expected = context(system).results(system)
    for place in ("systems", "frames"):
        monkeypatch.setattr(f"pyterrier_debias.core.{place}.ROWS", 1)  # each query is a part
    shared = context(system)
    pd.testing.assert_frame_equal(shared.results(system), expected)
    assert not hasattr(shared._order(system)[0], "results") and system.ranker.calls == 3  # once before, and once for each query
    changing = pt.apply.generic(lambda inp: inp.assign(score=1.0, **({"extra": "x"} if inp["qid"].eq("q2").all() else {})))
    mixed = System("c", retriever() >> TOY.text_loader(), changing)  # of one part only the order is kept, of the other all of it
    out = context(mixed).results(mixed)
    assert out["docno"].tolist() == ["d2", "d1", "d3"] and out["extra"].tolist()[2] == "x" and out["extra"].isna()[:2].all()
    dropping = System("b", retriever() >> TOY.text_loader(), pt.apply.generic(lambda inp: inp[:1].assign(score=1.0, extra="x")))
    out = context(dropping).results(dropping)
    assert out["extra"].tolist() == ["x", "x"]


@pytest.mark.parametrize("rows", [1, 10**6])
@pytest.mark.parametrize("ranker", [None, Length()])
def test_parts_of_results_are_rows_of_the_whole(ranker, rows, monkeypatch):
    run = pd.concat([RUN, RUN.assign(qid=["q3", "q3", "q4"], score=[1.0, 3.0, 2.0], rank=[1, 0, 0])], ignore_index=True)
    texts = TOY.text_loader() if ranker is not None else pt.Transformer.identity()
    system = System("a", pt.Transformer.from_df(run) >> texts, ranker)
    for place in ("systems", "frames"):
        monkeypatch.setattr(f"pyterrier_debias.core.{place}.ROWS", rows)
    topics = pd.DataFrame({"qid": ["q1", "q2", "q3", "q4"], "query": list("abcd")})
    shared = Context([system], TOY, topics, QRELS, depth=2)
    whole = shared.results(system)
    assert len(whole) == 6 and shared.longest_list(system) == 2
    for depth, qids in ((1, None), (None, ["q4", "q1"]), (1, ["q3", "none", "q2"]), (5, []), (None, None)):
        asked = whole["qid"].unique().tolist() if qids is None else qids
        lists = [whole[(whole["qid"] == qid) & (whole["rank"] < (depth or 9))] for qid in asked]
        expected = pd.concat([whole.head(0), *lists]).reset_index(drop=True)
        pd.testing.assert_frame_equal(shared.results(system, depth=depth, qids=qids), expected)


@pytest.mark.parametrize("depth", [1, 3, 4, None])
def test_tied_documents_have_another_order_for_each_query(depth):
    qids, docnos = [f"q{i}" for i in range(40)], [f"d{i}" for i in range(9)]
    pairs = [(qid, docno) for qid in qids for docno in docnos]
    run = pd.DataFrame(pairs, columns=["qid", "docno"]).assign(score=[min(i // 2, 3) for _ in qids for i in range(9)])
    run.loc[run["qid"] == "q7", "score"] = np.arange(9.0)  # without ties
    system, topics = System("a", pt.Transformer.from_df(run)), pd.DataFrame({"qid": qids, "query": "x"})
    qrels = pd.DataFrame({"qid": qids, "docno": "d0", "label": 1})
    shared = Context([system], TOY, topics, qrels, depth=9)
    found, whole = shared.results_with_ties_drawn(system, depth=depth), shared.results(system)
    assert found.groupby("qid", sort=False)["rank"].apply(list).tolist() == [list(range(depth or 9))] * len(qids)
    assert found["qid"].unique().tolist() == whole["qid"].unique().tolist() == qids
    # Nothing but the order of tied documents differs.
    scores = whole[whole["rank"] < (depth or 9)]["score"].tolist()
    assert found["score"].tolist() == scores and len(found.merge(run, on=["qid", "docno", "score"])) == len(found)
    assert found[found["qid"] == "q7"]["docno"].tolist() == docnos[::-1][:depth]
    # Three documents share the first place, each about as often (P(fewer than 4 of 39 for one) is .0004 at most).
    first = found[(found["rank"] == 0) & (found["qid"] != "q7")]["docno"].value_counts()
    assert set(first.index) == {"d6", "d7", "d8"} and first.min() >= 4
    # The lists of some queries are those of all.
    some = shared.results_with_ties_drawn(system, depth=depth, qids=["q9", "q7", "q3"])
    lists = [found[found["qid"] == qid] for qid in ("q9", "q7", "q3")]
    pd.testing.assert_frame_equal(some, pd.concat(lists, ignore_index=True))
    again = replace(shared, seed=shared.seed + 1).results_with_ties_drawn(system, depth=depth)
    assert again["docno"].tolist() != found["docno"].tolist()
