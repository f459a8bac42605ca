"""Queries over Terrier: which retrieval is the same, what the parser obeys, what cannot be answered, and who reads what."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import RewriteQueries, System, WordingSensitivity, audit, open_dataset
from pyterrier_debias.core.cache_key import cache_key
from pyterrier_debias.core.retrieval import answered, asking_for
from pyterrier_debias.core.systems import Context
from pyterrier_debias.core.terrier import tokenising
from pyterrier_debias.linguistic.measures.wording import ORIGINAL
from tests.conftest import ROOT, importable

pytestmark = pytest.mark.java

RANKER = pt.apply.doc_score(lambda row: float(len(set(row["query"].lower().split()) & set(row["text"].lower().split()))))
COLONS = ("PLAIN-307", "PLAIN-2440", "PLAIN-2500", "PLAIN-2530")


@pytest.fixture(scope="module")
def few(shared_data):
    """Twenty topics of NFCorpus, four with a colon, and the documents that are judged for them."""
    whole = open_dataset(shared_data / "nfcorpus", split="test")
    topics = whole.get_topics()
    topics = pd.concat([topics[topics["qid"].isin(COLONS)], topics[~topics["qid"].isin(COLONS)].head(16)], ignore_index=True)
    qrels = whole.get_qrels()
    qrels = qrels[qrels["qid"].isin(topics["qid"])].reset_index(drop=True)
    judged = set(qrels["docno"])
    return topics, qrels, [document for document in whole.get_corpus_iter() if document["docno"] in judged]


@pytest.fixture(scope="module")
def index(few, make_index):
    return make_index(few[2])


@pytest.fixture(scope="module")
def dataset(few):
    from pyterrier_debias import Collection

    topics, qrels, documents = few
    return Collection("few", corpus=pd.DataFrame(documents), topics={"test": topics}, qrels={"test": qrels})


def reversed_model(keyword, posting, entry, collection):
    return 1.0 / posting.getTf()


def in_memory(texts, folder):
    made = pt.IterDictIndexer(str(folder), type=pt.terrier.IndexingType.MEMORY, meta={"docno": 20})
    return pt.terrier.Retriever(made.index([{"docno": docno, "text": text} for docno, text in texts.items()]), wmodel="BM25")


def test_retrievers_that_terrier_takes_for_equal_are_two(index, tmp_path):
    topics = pd.DataFrame({"qid": ["1"], "query": ["cats"]})
    qrels = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [1]})
    pairs = [
        (in_memory({"a": "cats"}, tmp_path), in_memory({"b": "cats"}, tmp_path)),
        (pt.terrier.Retriever(index, wmodel=reversed_model), pt.terrier.Retriever(index, wmodel=lambda *given: 1.0)),
        (pt.terrier.Retriever(index, tokeniser="utf"), pt.terrier.Retriever(index)),
    ]
    for one, other in pairs:
        assert one == other
        assert cache_key(one, exact=True) == cache_key(one, exact=True) != cache_key(other, exact=True)
    first, second = System("a", pairs[0][0]), System("b", pairs[0][1])
    for systems in ((first, second), (second, first)):
        context = Context(systems, None, topics, qrels)
        assert context.results(first)["docno"].tolist() == ["a"] and context.results(second)["docno"].tolist() == ["b"]


def test_the_same_retriever_is_asked_once_and_for_no_more_than_is_needed(index, dataset, monkeypatch):
    asked, real = [], pt.terrier.Retriever.transform

    def counting(self, inp):
        out = real(self, inp)
        asked.append(int(out.groupby("qid").size().max()) if len(out) else 0)
        return out

    words = pt.rewrite.tokenise() >> index.bm25()
    topics, qrels = dataset.get_topics(), dataset.get_qrels()
    for pipeline in (words >> pt.rewrite.reset() >> index.text_loader(), words >> index.text_loader()):
        ranker, alone = System("a", pipeline, RANKER), System("b", pipeline)
        whole = Context([ranker, alone], dataset, topics, qrels, depth=5)
        with monkeypatch.context() as patch:
            patch.setattr(pt.terrier.Retriever, "transform", counting)
            asked.clear()
            found = Context([ranker], dataset, topics, qrels, depth=5).candidates(ranker)
            assert asked[0] == 6
            asked.clear()
            expected = whole.candidates(ranker)
            whole.candidates(alone)
            assert len(asked) == 1 and asked[0] > 100
        pd.testing.assert_frame_equal(found, expected)


@pytest.mark.parametrize("cut", [None, 3, 20])
def test_the_candidates_are_those_of_the_whole_retrieval(planted, planted_index, cut):
    topics, qrels = planted.get_topics(), planted.get_qrels()
    for depth in (1, 2, 3, 5, 10, 19, 20, 21, 50):
        first = planted_index.bm25() if cut is None else planted_index.bm25() % cut
        ranker, alone = System("a", first, RANKER), System("b", first)
        found, whole = (Context(own, planted, topics, qrels, depth=depth) for own in ([ranker], [ranker, alone]))
        pd.testing.assert_frame_equal(found.candidates(ranker), whole.candidates(ranker))
        assert found._retrieved[0].depth == depth and whole._retrieved[0].depth is None


def test_what_a_cut_off_would_change_is_left_as_it_is(index):
    plain = index.bm25()
    assert asking_for(plain, 3).controls["end"] == "2"
    assert asking_for(index.bm25(num_results=2), 3).controls["end"] == "1"
    for other in (
        pt.terrier.Retriever(index, tokeniser="utf"),  # a cut-off would lose it
        pt.terrier.Retriever(index, wmodel=reversed_model),
        plain >> index.dph(),  # reranks: it would be asked for fewer than it is given
        plain >> (index.dph() ** index.pl2()),
        plain + index.dph(),
    ):
        assert asking_for(other, 3) is None
    expanded = asking_for(plain >> pt.rewrite.RM3(index) >> plain >> index.text_loader(), 3)
    assert expanded[0] is plain and expanded[2].controls["end"] == "2"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("breast cancer^2", "breast cancer 2"),
        ("breast cancer end:3", "breast cancer end 3"),
        ("breast cancer qe:on", "breast cancer qe on"),
        ("breast: cancer", "breast cancer"),
    ],
)
def test_signs_are_obeyed_as_they_come_and_not_in_words(index, query, words):
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["breast cancer", query]})
    expected = index.bm25()(topics.assign(query=["breast cancer", words]))
    found = tokenising(index.bm25())(topics)
    assert found[["qid", "docno", "score"]].equals(expected[["qid", "docno", "score"]])
    assert found["query"].unique().tolist() == topics["query"].tolist()
    raw, failed = answered(index.bm25(), topics)
    if query == "breast: cancer":
        assert list(failed) == ["2"] and failed["2"].startswith("IllegalStateException: Index must have 1 or more fields.")
        assert "\n" not in failed["2"] and "org.terrier" not in failed["2"]
    else:
        assert not raw[["qid", "docno", "score"]].equals(expected[["qid", "docno", "score"]])


def test_the_documented_pipeline_answers_every_query(index, dataset):
    documented = pt.rewrite.tokenise() >> index.bm25() >> pt.rewrite.reset() >> index.text_loader() >> RANKER
    system = System.of("mine", documented)
    assert system.ranker is RANKER
    context = Context([system], dataset, dataset.get_topics(), dataset.get_qrels())
    found = context.candidates(system)
    assert set(found["qid"]) == set(dataset.get_topics()["qid"]) and context.notes == []
    assert dict(zip(found["qid"], found["query"])) == dict(zip(*(dataset.get_topics()[c] for c in ("qid", "query"))))
    assert tokenising(documented) is documented


def test_an_audit_names_the_queries_that_fail_and_goes_on(index, dataset):
    bm25 = index.bm25()
    systems = {"BM25": bm25, "mine": bm25 >> index.text_loader() >> RANKER}
    result = audit(systems, dataset, biases=["linguistic", "pooling"], depth=20)
    assert result.failed.empty
    notes = [note for note in result.settings["notes"] if "raised" in note]
    assert [note.partition(":")[0] for note in notes] == ["BM25, mine"]
    for note in notes:
        assert all(qid in note for qid in COLONS) and "for 4 of 20 queries" in note and "org.terrier" not in note
    own = result.findings[(result.findings["bias"] == "linguistic") & (result.findings["system"] == "BM25")].set_index("contrast")
    assert "for 4 of 20 queries" in own.loc["original, as it comes", "text"]
    assert own.loc["original, as it comes", "value"] < result.per_query.query(
        "bias == 'linguistic' and system == 'BM25' and contrast == 'all queries' and measure == 'nDCG@10'"
    )["value"].mean() + 1e-9


def test_wordings_of_colon_queries_are_answered(index, dataset):
    sensitivity = WordingSensitivity(index.bm25(), measures=["nDCG@10"], resamples=99)
    found = sensitivity.evaluate(dataset.get_topics(), dataset.get_qrels())
    without = found.unanswered
    assert set(without["arm"]) == {"original, as it comes"} and set(without["qid"]) == set(COLONS)
    values = found.per_query.set_index("qid")[ORIGINAL]
    raw = found.as_it_comes.set_index("qid")["value"].astype(float)
    assert (raw[list(COLONS)] == 0).all() and values[list(COLONS)].mean() > 0.2


def test_a_ranker_behind_rm3_without_reset_is_named(index, dataset):
    topics, qrels, bm25 = dataset.get_topics(), dataset.get_qrels(), index.bm25()
    expanded = pt.rewrite.tokenise() >> bm25 >> pt.rewrite.RM3(index) >> bm25
    read = System.of("mine", expanded >> index.text_loader() >> RANKER)
    context = Context([read], dataset, topics, qrels)
    candidates = context.candidates(read)
    (note,) = context.notes
    assert "instead of the original for 20 of 20 queries, such as 'applypipeline:off " in note and "pt.rewrite.reset()" in note
    found = WordingSensitivity(read, rewrites=["keywords"], measures=["nDCG@10"], resamples=99).evaluate(
        candidates, qrels, topics=topics
    )
    assert found.wordings[found.wordings["arm"] == ORIGINAL]["query"].tolist() == topics["query"].tolist()
    assert len(found.as_it_comes) == 20
    both = expanded >> pt.rewrite.reset() >> pt.rewrite.reset() >> index.text_loader() >> RANKER
    mended = Context([System.of("mine", both)], dataset, topics, qrels)
    mended.candidates(mended.systems[0])
    assert mended.notes == []


def test_terrier_asks_the_new_query_and_not_its_old_tokens(index):
    topics = pd.DataFrame({"qid": ["1"], "query": ["what of the cancer"], "query_toks": [{"zzzz": 1.0}]})
    out = (RewriteQueries("keywords") >> index.bm25())(topics)
    assert len(out) and out["query"].unique().tolist() == ["cancer"]


def test_a_script_that_the_tokeniser_cuts_into_nothing_is_named(index, dataset):
    qrels, first = dataset.get_qrels(), dataset.get_topics().head(2)
    topics = first.assign(query=["日本語の質問", "breast cancer"])
    found = WordingSensitivity(index.bm25(), rewrites=[str.upper], measures=["nDCG@10"], resamples=99).evaluate(topics, qrels)
    assert found.unanswered[found.unanswered["arm"] == ORIGINAL]["qid"].tolist() == first["qid"].tolist()[:1]
    utf = tokenising(pt.terrier.Retriever(index, tokeniser="utf"))
    assert utf(first.head(1).assign(query="cancer 日本語"))["query"].unique().tolist() == ["cancer 日本語"]


def test_properties_of_two_systems_that_differ_are_a_note(index, dataset):
    given = {"termpipelines": "Stopwords"}
    stemmed, other = index.bm25(), pt.terrier.Retriever(index, wmodel="BM25", properties=given)
    index.bm25()  # the properties that are usual hold again
    topics = dataset.get_topics().tail(16)
    context = Context([System("a", stemmed), System("b", other)], dataset, topics, dataset.get_qrels())
    (note,) = context.notes
    assert "property termpipelines is set to 'Stopwords,PorterStemmer' by a and 'Stopwords' by b" in note


def test_the_program_that_asks_all_queries(shared_data):
    with importable(ROOT / "benchmarks"):
        import terrier_queries

        table = terrier_queries.main(["--data", str(shared_data), "--collections", "nfcorpus", "--topics", "20", "--depth", "5"])
    compared = table[table["wording"] != "original, as it comes"]
    assert len(compared) == 5 and (compared["crashes"] == 0).all() and (table["queries"] == 20).all()
