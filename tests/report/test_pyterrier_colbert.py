"""Stages of pyterrier_colbert (a stub with its factory's methods) and of pyterrier_dr in an audit: rankers and retrievers."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import audit
from pyterrier_debias.core.systems import System, takes_topics
from tests.report.three_documents import QUERIES, RUN, TEXTS, TOY
from tests.tiny_models import build_sentence_transformer

DOCS = {f"d{i}": text for i, text in enumerate(TEXTS)}
TOPICS = pd.DataFrame({"qid": ["q0", "q1", "q2"], "query": QUERIES})


def overlap(query, text):
    return float(len(set(query.split()) & set(text.replace(".", " ").split())))


class ColBERTFactory:
    """The methods of pyterrier_colbert's factory, made by the same functions of PyTerrier from frames of the same columns."""

    def text_scorer(self):
        def score(frame):
            rows = []
            for qid, group in frame.groupby("qid"):
                query = group["query"].values[0]
                scored = [(overlap(query, t), d) for d, t in zip(group["docno"].values, group["text"].values)]
                for rank, (value, docno) in enumerate(sorted(scored, key=lambda pair: -pair[0])):
                    rows.append([qid, query, docno, value, rank])
            return pd.DataFrame(rows, columns=["qid", "query", "docno", "score", "rank"])

        return pt.apply.generic(score)

    def set_retrieve(self, docnos=False):
        def retrieve(frame):
            encoded = (np.zeros(2), np.ones((2, 2)))
            found = [[row.qid, row.query, i, *encoded] for row in frame.itertuples() for i in range(len(DOCS))]
            out = pd.DataFrame(found, columns=["qid", "query", "docid", "query_toks", "query_embs"])
            return out.assign(docno=[f"d{i}" for i in out["docid"]]) if docnos else out

        return pt.apply.generic(retrieve)

    def index_scorer(self):
        def score(group):
            group = group.copy()
            if "docid" not in group.columns:
                group["docid"] = [int(docno[1:]) for docno in group["docno"]]
            group = group.sort_values("docid")
            group["score"] = [overlap(group.iloc[0]["query"], TEXTS[i]) for i in group["docid"]]
            return group if "docno" in group.columns else group.assign(docno=[f"d{i}" for i in group["docid"]])

        return pt.apply.by_query(score, add_ranks=True)

    def end_to_end(self):
        return self.set_retrieve() >> self.index_scorer()


@pytest.fixture(scope="module")
def dr(tmp_path_factory):
    theirs = pytest.importorskip("pyterrier_dr")
    folder = tmp_path_factory.mktemp("dr")
    encoder = theirs.SBertBiEncoder(str(build_sentence_transformer(folder / "model")), verbose=False)
    index = theirs.FlexIndex(str(folder / "index"), verbose=False)
    (encoder >> index).index([{"docno": docno, "text": text} for docno, text in DOCS.items()])
    return encoder, index


def test_rankers_are_told_from_retrievers(dr):
    factory, (encoder, index) = ColBERTFactory(), dr
    first = pt.Transformer.from_df(RUN)
    rankers = [factory.text_scorer(), encoder, encoder.text_scorer(), first >> TOY.text_loader() >> factory.text_scorer()]
    for ranker in rankers:
        system = System.of("a", ranker, dataset=TOY)
        assert system.ranker is not None
        assert system.ranker(system.candidates(TOPICS))["docno"].nunique() == 3
    with_docnos = factory.set_retrieve(docnos=True) >> factory.index_scorer()
    for retriever in (factory.end_to_end(), with_docnos, encoder >> index.np_retriever()):
        system = System.of("a", retriever, dataset=TOY)
        assert system.ranker is None
        assert system.candidates(TOPICS)["docno"].nunique() == 3
    assert not any(takes_topics(ranker, None, "probe") for ranker in rankers[:3])
    assert takes_topics(factory.end_to_end(), None, "probe") and takes_topics(encoder >> index.np_retriever(), None, "probe")
    # What retrieves nothing and scores nothing is not taken for a ranker.
    assert System.of("a", encoder.query_encoder(), dataset=TOY).ranker is None


def test_they_are_audited(dr):
    factory, (encoder, index) = ColBERTFactory(), dr
    systems = {
        "scorer": factory.text_scorer(),
        "end to end": factory.end_to_end(),
        "encoder": encoder,
        "dense": encoder >> index.np_retriever(),
    }
    result = audit(systems, TOY, biases=["position"], draws=1)
    assert result.failed.empty
    assert set(result.findings["system"]) == {"scorer", "encoder"}
    assert {"end to end", "dense"} <= set(result.skipped["system"])
