"""Audits over Terrier: all biases with indexing anew, rotation of what reads no order, and an audit that was killed."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, System, audit
from tests.report.killed import check_that_it_goes_on, in_a_new_process

pytestmark = pytest.mark.java

BIASES = ["position", "survivorship", "gender", "linguistic", "pooling"]
#: Name: a retriever over an index.
RETRIEVERS = {
    "BM25": lambda index: index.bm25(),
    "DPH": lambda index: index.dph(),
    "RM3": lambda index: index.bm25() >> index.rm3() >> index.bm25(),
    "SDM": lambda index: pt.rewrite.SequentialDependence() >> index.bm25(),
}
ADJECTIVES = "amber crimson silver golden wooden frozen hollow gentle".split()
NOUNS = "lantern harbour bridge engine mirror garden teapot kitchen".split()


@pytest.fixture
def systems(make_index):
    """Retrievers that can be had over changed documents, all of them over one index of each version of the documents."""
    made = {}

    def index_of(documents):
        documents = list(documents)
        key = str(documents)
        if key not in made:
            made[key] = make_index(documents)
        return made[key]

    def of(names, documents):
        first = index_of(documents)
        return {
            name: System(name, make(first), indexer=lambda changed, make=make: make(index_of(changed)))
            for name, make in RETRIEVERS.items()
            if name in names
        }

    return of


@pytest.fixture(scope="module")
def pairs():
    """Each query is two words; the document that has them in this order is relevant, the other one is not."""
    rows = list(zip(range(8), ADJECTIVES, NOUNS))
    texts = [(f"a{i}", f"{one} {two}, a gift") for i, one, two in rows]
    texts += [(f"b{i}", f"{two} {one}, a prize") for i, one, two in rows]
    return Collection(
        "pairs",
        corpus=pd.DataFrame(texts, columns=["docno", "text"]),
        topics={"test": pd.DataFrame([(f"q{i}", f"{one} {two}") for i, one, two in rows], columns=["qid", "query"])},
        qrels={"test": pd.DataFrame([(f"q{i}", f"a{i}", 1) for i, _, _ in rows], columns=["qid", "docno", "label"])},
    )


def test_rotation_changes_what_reads_the_order_of_words_and_nothing_else(pairs, systems):
    examined = systems(["BM25", "DPH", "SDM"], pairs.get_corpus_iter())
    findings = audit(examined, pairs, biases="position", draws=2).findings
    change = findings[findings["primary"]].set_index("system")["value"]
    assert change["BM25"] == change["DPH"] == 0
    assert change["SDM"] < -0.01


def test_all_biases_with_indexing_anew(planted, systems):
    examined = systems(["RM3"], planted.get_corpus_iter(verbose=False))
    result = audit(examined, planted, topics=8, draws=1)
    assert result.failed.empty and result.skipped.empty
    primary = result.findings[result.findings["primary"]].set_index("bias")["value"]
    assert sorted(primary.index) == sorted(BIASES) and primary.notna().all()
    assert primary["position"] == 0


def test_an_audit_that_was_killed_goes_on(planted_index, tmp_path):
    check_that_it_goes_on(in_a_new_process, tmp_path / "kept", str(planted_index.path))
