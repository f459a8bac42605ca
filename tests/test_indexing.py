"""Errors in a stream of documents reach whoever called the indexer, also where it reads in a thread."""

import pickle
import threading

import pyterrier as pt
import pytest

from pyterrier_debias import InputError, PositionSensitivity, RotatePassages, System
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.stage import flatten
from tests.position.toy import collection

DOCUMENTS = [{"docno": f"d{number}", "text": f"some words and {number}"} for number in range(250)]
BAD = [*DOCUMENTS[:180], {"docno": "bad", "text": None}, *DOCUMENTS[180:]]


class Threaded(pt.Indexer):
    """Reads its documents in a thread, as Terrier and PISA do: what is raised there ends the index and is lost."""

    def __init__(self, *, most=None, needs="text"):
        self.most, self.needs = most, needs
        self.kept = []

    def read(self, documents):
        try:
            for document in documents:
                self.kept.append((document["docno"], document[self.needs]))
                if len(self.kept) == self.most:
                    break
        except Exception:
            return

    def index(self, iter):
        thread = threading.Thread(target=self.read, args=(iter,))
        thread.start()
        thread.join()
        return self


def first_as_it_is(documents):
    yield from documents


def test_a_whole_stream_is_handed_over():
    indexer = Threaded()
    with handed_over(first_as_it_is(DOCUMENTS)) as stream:
        indexer.index(stream)
    assert [docno for docno, _ in indexer.kept] == [d["docno"] for d in DOCUMENTS]


def test_what_the_stream_raises_is_raised_with_the_count():
    def broken():
        yield from DOCUMENTS[:7]
        raise ZeroDivisionError("no luck")

    with pytest.raises(ZeroDivisionError, match="no luck") as caught, handed_over(broken()) as stream:
        Threaded().index(stream)
    assert "had received 7 documents" in caught.value.__notes__[0]


def test_it_comes_before_what_the_indexer_says_of_it():
    def broken():
        raise ZeroDivisionError("no luck")
        yield

    with pytest.raises(ZeroDivisionError), handed_over(broken()) as stream:
        Threaded().index(stream)
        raise ValueError("an empty index")


@pytest.mark.parametrize("indexer", [Threaded(most=3), Threaded(needs="title")], ids=["stops", "lacks a column"])
def test_a_stream_that_is_not_read_to_its_end_is_told(indexer):
    with pytest.raises(InputError, match=r"stopped after [13] documents"), handed_over(DOCUMENTS) as stream:
        indexer.index(stream)


def test_what_the_indexer_raises_is_raised():
    with pytest.raises(ValueError, match="disk full"), handed_over(DOCUMENTS):
        raise ValueError("disk full")


NOTHING = pt.apply.generic(lambda frame: frame, transform_outputs=lambda columns: columns)


@pytest.mark.parametrize(
    "join",
    [
        lambda indexer: RotatePassages() >> indexer,
        lambda indexer: RotatePassages() >> NOTHING >> indexer,
        lambda indexer: RotatePassages() >> (NOTHING >> indexer),
    ],
    ids=["alone", "with another", "nested"],
)
def test_a_bad_document_before_an_indexer_ends_in_an_error(join):
    with pytest.raises(InputError, match=r"RotatePassages.*'bad'") as caught:
        join(Threaded()).index(iter(BAD))
    # Stages that know frames only take batches of 100.
    assert caught.value.__notes__[0].startswith(("The indexer had received 180 doc", "The indexer had received 100 doc"))
    indexer = Threaded()
    assert join(indexer).index(iter(DOCUMENTS)) is indexer
    assert len(indexer.kept) == 250 and indexer.kept != [(d["docno"], d["text"]) for d in DOCUMENTS]


def test_pipelines_that_begin_with_our_stages_are_pipelines_as_all_are():
    ours, other = RotatePassages(seed=1), pt.RankCutoff(3)
    pipeline = ours >> other >> (NOTHING >> ours)
    assert flatten(pipeline) == list(pipeline) == [ours, other, NOTHING, ours]
    assert pipeline == pt.Compose(ours, other, NOTHING, ours) and hash(pipeline) == hash(pt.Compose(ours, other, NOTHING, ours))
    short = ours >> other
    assert pickle.loads(pickle.dumps(short)) == short
    assert repr(short) == repr(pt.Compose(ours, other))
    assert short.compile() == (pt.RankCutoff(3) >> ours)


def test_an_audits_index_of_a_part_of_the_corpus_is_refused():
    dataset = collection(3, queries=8, depth=6)
    whole = dataset.get_corpus()
    system = System("retriever", pt.Transformer.identity(), None, lambda documents: Threaded().index(documents))
    spoilt = whole.assign(text=[None if row == 20 else text for row, text in enumerate(whole["text"])])

    class Spoilt:
        def __getattr__(self, name):
            return getattr(dataset, name)

        def get_corpus_iter(self, verbose=False):
            return iter(spoilt.to_dict("records"))

    with pytest.raises(InputError, match=f"document {whole['docno'][20]!r} of the corpus") as caught:
        PositionSensitivity(system, dataset=Spoilt()).evaluate(dataset.get_topics())
    assert "had received 20 documents" in caught.value.__notes__[0]
