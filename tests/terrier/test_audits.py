"""Audits over Terrier: all biases with indexing anew, rotation of what reads no order, and an audit that was killed."""

import signal
import subprocess
import sys

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, System, audit
from tests.conftest import ROOT
from tests.terrier import killed

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


def system(name, make_index, documents):
    """A retriever that can be had over changed documents."""
    make = RETRIEVERS[name]
    return System(name, make(make_index(documents)), indexer=lambda changed: make(make_index(changed)))


@pytest.fixture(scope="module")
def pairs():
    """Each query is two words; relevant is the document that has them in this order, not the one that has them in the other."""
    rows = list(zip(range(8), ADJECTIVES, NOUNS))
    return Collection(
        "pairs",
        corpus=pd.DataFrame(
            [(f"a{i}", f"{one} {two}") for i, one, two in rows] + [(f"b{i}", f"{two} {one}") for i, one, two in rows],
            columns=["docno", "text"],
        ),
        topics={"test": pd.DataFrame([(f"q{i}", f"{one} {two}") for i, one, two in rows], columns=["qid", "query"])},
        qrels={"test": pd.DataFrame([(f"q{i}", f"a{i}", 1) for i, _, _ in rows], columns=["qid", "docno", "label"])},
    )


@pytest.mark.parametrize("name", RETRIEVERS)
def test_rotation_changes_what_reads_the_order_of_words_and_nothing_else(name, pairs, make_index):
    examined = system(name, make_index, pairs.get_corpus_iter())
    findings = audit({name: examined}, pairs, rooms="position", draws=2).findings
    (change,) = findings.loc[findings["primary"], "value"]
    assert change < -0.05 if name == "SDM" else change == 0


def test_all_biases_with_indexing_anew(planted, make_index):
    examined = system("BM25", make_index, planted.get_corpus_iter(verbose=False))
    result = audit({"BM25": examined}, planted, topics=10, draws=1)
    assert result.failed.empty and result.skipped.empty
    primary = result.findings[result.findings["primary"]].set_index("bias")["value"]
    assert sorted(primary.index) == sorted(BIASES) and primary.notna().all()
    assert primary["position"] == 0


def test_an_audit_that_was_killed_goes_on(planted, planted_index, tmp_path):
    kept = tmp_path / "kept"
    call = [sys.executable, "-m", "tests.terrier.killed", str(planted_index.path), str(kept)]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == -signal.SIGKILL, done.stderr
    before = {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}
    assert sorted(name.split("-")[0] for name in before if "position" in name) == []
    gone_on, whole = (killed.examine(planted_index.path, planted, folder) for folder in (kept, None))
    for name, of in (("findings", lambda result: result.findings), ("values", lambda result: result.per_query)):
        pd.testing.assert_frame_equal(of(gone_on), of(whole), obj=name)
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}.items()
