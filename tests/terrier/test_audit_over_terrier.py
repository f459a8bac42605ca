"""Audits of pipelines that begin with Terrier."""

import pytest

pytestmark = pytest.mark.java


def test_terrier_agrees_with_itself_through_an_audits_eyes(planted, planted_index):
    """The smallest thing: a retriever is a system, and its results are those that the retriever gives."""
    from pyterrier_debias.core.systems import Context, System

    system = System.of("BM25", planted_index.bm25())
    context = Context([system], planted, planted.get_topics(), planted.get_qrels())
    own = planted_index.bm25()(planted.get_topics())
    assert set(map(tuple, context.results(system)[["qid", "docno"]].values)) == set(map(tuple, own[["qid", "docno"]].values))
