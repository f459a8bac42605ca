"""Every public stage beside a Terrier retriever: the table of `tests/contract_cases.py` over what Terrier gives."""

import pickle
from functools import cache

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import LexiconProfiles, QueryGender
from tests.contract import Case, Counted, assert_contract, assert_same
from tests.contract_cases import CASES, CORPUS

pytestmark = pytest.mark.java

TOPICS = pd.DataFrame(
    {"qid": ["q1", "q2"], "query": ["what capital lies on the seine of france", "is tea made of hot water or of sea water"]}
)
QRELS = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": [1, 1]})
#: What some of the documents say beside.
SPOKEN_OF = {"d0": " His father ruled.", "d1": " She and her mother.", "d4": " He and his sons.", "d5": " Women know it."}
#: These read measures of queries or systems, and no candidate.
OF_QUERIES = {"Disparity", "SurvivorshipCurve"}
#: What these return is no ranking: rows without a score, and matches of rows.
NO_RANKINGS = {"AddJudged", "BalancedPairs"}

AT_TOPICS = [case for case in CASES if "docno" not in case.frame().columns and case.name not in OF_QUERIES]
AT_CANDIDATES = [case for case in CASES if "docno" in case.frame().columns]
AT_DOCUMENTS = [case for case in AT_CANDIDATES if "qid" not in case.frame().columns and case.rowwise]


def with_answers(frame):
    return frame.assign(answer="France", answers=[["France"]] * len(frame))


ANSWERS = pt.apply.generic(with_answers)
#: What adds the columns that a stage asks for and no retriever gives.
BETWEEN = {
    "AnswerPositions": ANSWERS,
    "AnswerPositions(pair)": ANSWERS,
    "BalancedPairs": LexiconProfiles({"a": ["the"], "b": ["of"]}) >> QueryGender(text_field="text"),
}

named = {"ids": lambda case: case.name}
composed = pytest.mark.parametrize("case", AT_TOPICS + AT_CANDIDATES, **named)


@pytest.fixture(scope="module")
def index(make_index):
    texts = CORPUS["text"] + CORPUS["docno"].map(SPOKEN_OF).fillna("")
    return make_index(CORPUS.assign(text=texts)[["docno", "text"]].to_dict("records"))


@pytest.fixture
def retriever(case, index):
    """Gives a stage its candidates."""
    stored = index.bm25(include_fields=["text"])
    return stored >> BETWEEN[case.name] if case.name in BETWEEN else stored


@pytest.fixture(scope="module")
def results(index):
    """What stands before a stage, retrieved once."""
    retrieved = index.bm25(include_fields=["text"])(TOPICS)
    return lambda between: retrieved.copy() if between is None else between(retrieved)


@cache
def made(case):
    """The case's stage, with its model loaded once."""
    return case.make()


@pytest.fixture
def pipeline(case, retriever):
    """The stage before or behind the retriever."""
    return made(case) >> retriever if case in AT_TOPICS else retriever >> made(case)


def columns_of(pipeline):
    return pt.inspect.transformer_outputs(pipeline, list(TOPICS.columns))


@composed
def test_inspection_tells_what_comes_out(case, pipeline):
    assert any(set(columns) <= set(TOPICS.columns) for columns in pt.inspect.transformer_inputs(pipeline))
    found = pipeline(TOPICS)
    assert len(found)
    assert columns_of(pipeline) == list(found.columns)


@composed
def test_a_copy_finds_the_same_query_by_query(case, pipeline):
    """The whole pipeline is pickled; its copy is asked in another order and in other batches."""
    copy = pickle.loads(pickle.dumps(pipeline))
    rows = [[1], [0]] if case.rowwise else [[1, 0]]
    assert_same(pipeline(TOPICS), pd.concat([copy(TOPICS.iloc[some]) for some in rows], ignore_index=True))


@composed
def test_compiling_changes_nothing(case, pipeline, index):
    if case in AT_CANDIDATES and case.name not in BETWEEN:  # with the texts loaded between the two
        pipeline = index.bm25() >> index.text_loader() >> made(case)
    if case.rowwise and "score" in columns_of(pipeline):
        pipeline = pipeline % 2
    assert_same(pipeline(TOPICS), pipeline.compile()(TOPICS))


@composed
def test_shared_stages_run_once(case, retriever, pipeline, monkeypatch):
    """An experiment that validates finds nothing wrong; with ``plan='tree'`` it retrieves once, and runs equal stages once."""
    again = case.make() >> retriever if case in AT_TOPICS else retriever >> case.make()
    if "docno" not in columns_of(pipeline):
        assert pipeline == again
        return
    retrievals, runs = Counted(monkeypatch, pt.terrier.Retriever), Counted(monkeypatch, type(made(case)))
    scored = [pt.apply.doc_score(lambda row, k=k: float(k) + len(row["docno"])) for k in (1, 2)]
    pt.Experiment(
        [pipeline >> scored[0], again >> scored[1]], TOPICS, QRELS, [pt.measures.RR @ 10], plan="tree", validate="error"
    )
    assert (retrievals.calls, runs.calls) == (1, 1)


@composed
def test_a_query_that_finds_nothing(case, pipeline):
    """Rows of the other query are as they were; alone it gives the same columns and no row."""
    nothing = TOPICS.assign(query=[TOPICS["query"][0], "zyzzyva"])
    found = pipeline(nothing.tail(1))
    assert list(found.columns) == columns_of(pipeline)
    # Judged documents are added, and of vectors some are always the nearest.
    assert len(found) == 0 or case.name in ("AddJudged", "BiEncoder.retriever")
    if case.rowwise:
        assert_same(pipeline(nothing), pipeline(nothing.head(1)))


@pytest.mark.parametrize("case", AT_CANDIDATES, **named)
def test_terriers_frames_keep_the_contract(case, results):
    found = results(BETWEEN.get(case.name)).drop(columns=["score", "rank"] if case.name in NO_RANKINGS else [])
    over_terrier = Case(case.name, lambda: made(case), found.copy, case.other, case.rowwise)
    assert_contract(over_terrier, ["columns_are_kept", "order_and_batches"])


@pytest.mark.parametrize("case", AT_DOCUMENTS, **named)
def test_before_an_indexer(case, tmp_path):
    documents = [document for document in CORPUS[["docno", "text"]].to_dict("records") if document["text"]]
    indexer = pt.IterDictIndexer(str(tmp_path / "index"), meta={"docno": 20, "text": 200})
    index = pt.terrier.TerrierIndex.coerce((case.make() >> indexer).index(documents))
    stored = [(document["docno"], document["text"]) for document in index.get_corpus_iter(return_toks=False)]
    assert stored == list(case.make()(pd.DataFrame(documents))[["docno", "text"]].itertuples(index=False, name=None))
