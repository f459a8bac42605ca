"""Errors in the stream of documents that Terrier's indexing thread reads."""

import pyterrier as pt
import pytest

from pyterrier_debias import InputError, PositionSensitivity, RotatePassages, System

pytestmark = pytest.mark.java


def indexer(folder, **options):
    return pt.IterDictIndexer(str(folder / "index"), meta={"docno": 20}, **options)


def spoilt(documents, at=120):
    for number, document in enumerate(documents):
        yield {**document, "text": None} if number == at else document


def test_rotated_documents_are_indexed(planted, tmp_path):
    pipeline = RotatePassages(seed=1) >> indexer(tmp_path)
    index = pt.terrier.TerrierIndex.coerce(pipeline.index(planted.get_corpus_iter(verbose=False)))
    assert len(index) == 200
    topics = planted.get_topics().head(3)
    assert set(index.bm25()(topics)["qid"]) == set(topics["qid"])


def test_a_document_without_text_is_an_error_and_no_short_index(planted, tmp_path):
    pipeline = RotatePassages(seed=1) >> indexer(tmp_path)
    with pytest.raises(InputError, match=r"RotatePassages: column 'text'.*'d12\d'") as caught:
        pipeline.index(spoilt(planted.get_corpus_iter(verbose=False)))
    assert "had received 120 documents" in caught.value.__notes__[0]


def test_an_audits_index_of_a_part_of_the_corpus_is_refused(planted, tmp_path_factory):
    class Spoilt:
        def __getattr__(self, name):
            return getattr(planted, name)

        def get_corpus_iter(self, verbose=False):
            return spoilt(planted.get_corpus_iter(verbose=False))

    def anew(documents):
        return pt.terrier.TerrierIndex.coerce(indexer(tmp_path_factory.mktemp("anew")).index(documents)).bm25()

    system = System("BM25", pt.Transformer.identity(), None, anew)
    topics = planted.get_topics().head(5)
    with pytest.raises(InputError, match="of the corpus has no text in column 'text'"):
        PositionSensitivity(system, dataset=Spoilt(), draws=1, resamples=99).evaluate(topics)
    found = PositionSensitivity(system, dataset=planted, draws=1, resamples=99).evaluate(topics)
    assert (found.table["difference"] == 0).all() and found.table["p"].isna().all()
    assert "0 by construction, not tested" in found.untested


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_what_terriers_own_thread_raises_is_told_as_well(planted, tmp_path):
    """A document without a column that is stored: nothing of ours raises, but Terrier stops reading."""
    pipeline = RotatePassages(seed=1) >> pt.IterDictIndexer(str(tmp_path / "index"), meta={"docno": 20, "title": 30})
    documents = [{**document, "title": "t"} for document in planted.get_corpus_iter(verbose=False)]
    del documents[30]["title"]
    with pytest.raises(InputError, match=r"stopped after 31 documents.*without one of the columns that it stores"):
        pipeline.index(documents)
