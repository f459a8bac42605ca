"""Candidates of Terrier as training reads them."""

import pyterrier as pt
import pytest

from pyterrier_debias import AddJudged, AddScores, PoolEvidence

pytestmark = pytest.mark.java


def missed(planted, index, cutoff=2):
    """The judgements that the first results lack."""
    found = set(map(tuple, (index.bm25() % cutoff)(planted.get_topics())[["qid", "docno"]].values))
    qrels = planted.get_qrels()
    return qrels[qrels["label"].gt(0) & ~qrels[["qid", "docno"]].apply(tuple, axis=1).isin(found)]


def test_texts_of_added_documents_are_loaded(planted, planted_index):
    """The rows that AddJudged adds have no number in the index, by which a loader would look for them."""
    added = missed(planted, planted_index)
    assert len(added)
    texts = {document["docno"]: document["text"] for document in planted.get_corpus_iter()}
    pipeline = planted_index.bm25() % 2 >> AddJudged(added) >> planted_index.text_loader("text")
    teacher = AddScores(pt.apply.doc_score(lambda row: float(len(row["text"]))))
    out = (pipeline >> teacher)(planted.get_topics())
    assert set(map(tuple, added[["qid", "docno"]].values)) <= set(map(tuple, out[["qid", "docno"]].values))
    assert [texts[docno] for docno in out["docno"]] == out["text"].tolist()
    assert out["teacher_score"].tolist() == [len(texts[docno]) for docno in out["docno"]]
    learned = PoolEvidence(columns=["score", "rank"]).learn(out, out["text"].tolist())
    known = learned.numbers(out)[1]
    assert known.tolist() == out["score"].notna().tolist() and not known.all()
