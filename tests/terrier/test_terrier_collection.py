"""A Terrier index as a collection, its retrievers over changed documents, and what an audit makes of both."""

import gc
import pickle
import tempfile

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    ARaB,
    CrossEncoder,
    InputError,
    PositionSensitivity,
    RotatePassages,
    System,
    TerrierCollection,
    TerrierIndexer,
    audit,
    open_dataset,
)
from pyterrier_debias.core.naming import distinct_names, system_name
from pyterrier_debias.core.systems import BrokenSystemError, named_where_it_raises, with_indexer
from pyterrier_debias.data.terrier import IndexSettings, IndexTexts
from pyterrier_debias.position.audit import PositionBias

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def collection(planted, planted_index):
    return TerrierCollection(planted_index, planted)


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder of its own for temporary files, so that what is left there can be counted."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_documents_and_texts_are_those_of_the_index(collection, planted):
    own = list(planted.get_corpus_iter())
    found = list(collection.get_corpus_iter())
    assert [(d["docno"], d["text"]) for d in found] == [(d["docno"], d["text"]) for d in own]
    frame = pd.DataFrame({"docno": [own[3]["docno"], own[1]["docno"]] * 2, "docid": [0, 0, 7, 9]})
    assert collection.text_loader()(frame)["text"].tolist() == [own[3]["text"], own[1]["text"]] * 2
    assert collection.get_qrels().equals(planted.get_qrels())
    assert collection.get_answers() is not None
    assert open_dataset(collection) is collection
    assert "Terrier index" in collection.name


def test_a_loader_names_what_it_does_not_know_and_can_be_pickled(collection, planted_index):
    loader, first = collection.text_loader(), next(collection.get_corpus_iter())
    with pytest.raises(InputError, match="1 of 2 documents are not in the index, first docno='nobody'"):
        loader(pd.DataFrame({"docno": [first["docno"], "nobody"]}))
    again = pickle.loads(pickle.dumps(loader))
    assert again == loader == IndexTexts(planted_index)
    assert again(pd.DataFrame({"docno": [first["docno"]]}))["text"].tolist() == [first["text"]]
    assert list(loader(pd.DataFrame({"docno": []}, dtype=str))) == ["docno", "text"]


def test_what_is_missing_is_told(planted, planted_index, make_index, tmp_path):
    with pytest.raises(InputError, match=r"there is no Terrier index"):
        TerrierCollection(tmp_path, planted)
    with pytest.raises(InputError, match=r"an index has no topics; give topics="):
        TerrierCollection(planted_index)
    textless = make_index(planted.get_corpus_iter(), meta={"docno": 40})
    with pytest.raises(InputError, match=r"stores no 'text' of its documents \(it stores docno\)"):
        TerrierCollection(textless, planted)
    with pytest.raises(InputError, match=r"no judged docno \(e.g. 'elsewhere'\) is in the index"):
        TerrierCollection(planted_index, planted, qrels=planted.get_qrels().assign(docno="elsewhere"))
    with pytest.raises(InputError, match="Terrier has no weighting model 'BM52'"):
        TerrierCollection(planted_index, planted).retriever("BM52")


def test_frames_and_files_stand_in_for_a_dataset(planted, planted_index, tmp_path):
    planted.get_topics()[["qid", "query"]].to_csv(tmp_path / "topics.tsv", sep="\t", header=False, index=False)
    judged = planted.get_qrels().astype({"label": float})
    files = TerrierCollection(str(planted_index.path), topics=tmp_path / "topics.tsv", qrels=judged)
    assert files.get_qrels()["label"].dtype == "int64"
    assert files.get_topics()[["qid", "query"]].equals(planted.get_topics()[["qid", "query"]])
    assert not hasattr(files, "get_answers")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"stemmer": "weakporter", "stopwords": ["the", "of"], "blocks": False}, ("WeakPorterStemmer", ["the", "of"], False)),
        ({"stemmer": None, "stopwords": None}, (None, None, True)),
    ],
)
def test_changed_documents_are_indexed_as_the_index_was(planted, make_index, temporary, options, expected):
    """The same documents over again: the same results, to the last digit."""
    documents = list(planted.get_corpus_iter())
    index = make_index(documents, **options)
    assert IndexSettings.of(index)[:3] == expected
    retriever = index.bm25(num_results=50)
    again = TerrierCollection(index, planted).indexer_of(retriever)(documents)
    topics = planted.get_topics()[["qid", "query"]]
    columns = ["qid", "docno", "rank", "score"]
    pd.testing.assert_frame_equal(again(topics)[columns], retriever(topics)[columns])
    assert len(list(temporary.glob("terrier-*"))) == 1
    del again
    gc.collect()
    assert not list(temporary.glob("terrier-*"))


def test_pipelines_over_the_index_are_made_anew_and_others_are_not(collection, planted, planted_index, make_index, temporary):
    documents = [dict(document, text=document["text"].upper()[:200]) for document in planted.get_corpus_iter()]
    other, bm25 = make_index(documents), planted_index.bm25()
    rm3 = bm25 >> pt.rewrite.RM3(planted_index) >> bm25
    topics = planted.get_topics()[["qid", "query"]]
    expected = (other.bm25() >> pt.rewrite.RM3(other) >> other.bm25())(topics)
    found = collection.indexer_of(rm3)(documents)(topics)
    columns = ["qid", "docno", "rank"]
    pd.testing.assert_frame_equal(found[columns], expected[columns])
    for foreign in (
        other.bm25(),
        bm25 >> pt.rewrite.RM3(other) >> bm25,
        bm25 >> pt.apply.generic(lambda frame: frame),
        bm25 + planted_index.dph(),
        pt.Transformer.from_df(expected),
    ):
        assert collection.indexer_of(foreign) is None


@pytest.mark.filterwarnings("ignore:Multi-threaded retrieval", "ignore:Upgrading indexref")
def test_a_retriever_with_several_threads_is_made_anew_too(collection, planted, planted_index):
    """PyTerrier puts a word before the place of its index, and the queries in any order."""
    topics = planted.get_topics()[["qid", "query"]]
    several = planted_index.bm25(threads=2)
    again = collection.indexer_of(several)(planted.get_corpus_iter())
    assert again.threads == 2
    columns = ["qid", "rank", "docno", "score"]
    ours, theirs = (stage(topics)[columns].sort_values(columns, ignore_index=True) for stage in (again, several))
    pd.testing.assert_frame_equal(ours, theirs)


def test_only_its_own_indexes_are_removed(planted, planted_index, tmp_path):
    for name in ("terrier-mine", "index"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.properties").write_text("mine")
    indexer = TerrierIndexer(planted_index, lambda index: index.bm25(), folder=tmp_path)
    retriever = indexer(planted.get_corpus_iter())
    assert len(list(tmp_path.iterdir())) == 3
    del retriever
    gc.collect()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "terrier-mine"]
    assert all((path / "data.properties").read_text() == "mine" for path in tmp_path.iterdir())


def test_documents_that_cannot_be_indexed_are_told(planted, planted_index, temporary):
    indexer = TerrierIndexer(planted_index, lambda index: index.bm25())

    def broken(at):
        for number, document in enumerate(planted.get_corpus_iter()):
            yield dict(document, text=None) if number == at else document

    for at in (0, 150):
        with pytest.raises(InputError, match="has no text to index"):
            indexer(broken(at))
    with pytest.raises(InputError, match="docno 'ddddd"):
        indexer([{"docno": "d" * 300, "text": "a text"}])

    def failing():
        yield {"docno": "d1", "text": "a text"}
        raise ZeroDivisionError("in the stream")

    with pytest.raises(ZeroDivisionError, match="in the stream"):
        indexer(failing())
    with pytest.raises(InputError, match="0 of 0 documents"):
        indexer([])
    assert not list(temporary.iterdir())


def test_from_an_index_to_the_position_bias_in_one_line(collection, planted_index, temporary, tmp_path_factory, monkeypatch):
    """Bags of words do not know positions: exactly 0 over documents that were indexed anew. No folder is left."""
    options = {"biases": "position", "draws": 1, "topics": 8, "checkpoint": tmp_path_factory.mktemp("kept")}
    result = audit([planted_index.bm25(), planted_index.dph()], collection, **options)
    assert result.settings["systems"] == ["BM25", "DPH"]
    assert {"terrier", "java"} <= result.settings["versions"].keys()
    assert len(result.failed) == 0 and len(result.skipped) == 0
    rows = result.findings.query("measure == 'nDCG@10' and contrast == 'rotated - original'")
    assert rows["system"].tolist() == ["BM25", "DPH"]
    assert rows["value"].tolist() == [0.0, 0.0]
    gc.collect()
    assert not list(temporary.iterdir())
    # The same call reads what was kept, though the audit's folder is another one; another weight is another system.
    monkeypatch.setattr(TerrierIndexer, "__call__", lambda *_: pytest.fail("indexed again"))
    again = audit([planted_index.bm25(), planted_index.dph()], collection, **options)
    pd.testing.assert_frame_equal(again.findings, result.findings)
    told = r"pyterrier.terrier.retriever.Retriever has 'bm25.b': 0.75 in the folder, 'bm25.b': 0.4 now"
    with pytest.raises(InputError, match=told) as caught:
        audit({"BM25": planted_index.bm25(b=0.4), "DPH": planted_index.dph()}, collection, **options)
    assert len(str(caught.value)) < 500


def test_an_interrupted_audit_leaves_no_index(collection, planted_index, temporary):
    made = []

    def interrupted(topics):
        made.extend(temporary.rglob("data.properties"))
        raise KeyboardInterrupt

    # A retriever that is kept beyond the audit: its index goes with the audit's folder.
    kept = pt.apply.generic(interrupted)
    system = System("BM25", planted_index.bm25(), indexer=TerrierIndexer(planted_index, lambda index: kept))
    with pytest.raises(KeyboardInterrupt):
        audit(system, collection, biases="position", draws=1)
    assert made
    gc.collect()
    assert not list(temporary.iterdir())


def test_a_probe_alone_indexes_anew_too(collection, planted_index, planted, temporary):
    probe = PositionSensitivity(planted_index.bm25(), dataset=collection, draws=1)
    result = probe.evaluate(planted.get_topics().head(5), planted.get_qrels())
    assert (result.per_query["difference"] == 0).all()


def test_gender_measures_read_texts_from_an_index(planted, planted_index, make_index):
    run = planted_index.bm25(num_results=10)(planted.get_topics())[["qid", "docno", "score", "rank", "query"]]
    texts = {document["docno"]: document["text"] for document in planted.get_corpus_iter()}
    measures = [ARaB(texts=source, name=name) @ 10 for source, name in ((texts, "own"), (planted_index, "index"))]
    measures.append(ARaB(texts=planted_index.text_loader("text"), name="loader") @ 10)
    values = pt.Evaluate(run, planted.get_qrels(), measures)
    assert len(set(values.values())) == 1
    textless = make_index(planted.get_corpus_iter(), meta={"docno": 40})
    remedy = r"the TerrierIndex has no loader for 'text'.*meta=\{'docno': 40, 'text': 20000\}"
    with pytest.raises(InputError, match=remedy) as caught:
        ARaB(texts=textless)
    assert str(textless.path) not in str(caught.value)
    with pytest.raises(InputError, match="no text of document 'nobody' could be loaded"):
        pt.Evaluate(run.assign(docno="nobody").head(1), planted.get_qrels(), [ARaB(texts=planted_index) @ 10])


class OfPyTerrier:
    """A dataset of PyTerrier's that has topics and judgements, with numbers for identifiers, and no documents."""

    def __init__(self, planted):
        numbers = {qid: number for number, qid in enumerate(planted.get_topics("full")["qid"])}
        self.frames = [frame.assign(qid=frame["qid"].map(numbers)) for frame in (planted.get_topics(), planted.get_qrels())]

    def get_topics(self, variant=None):
        return self.frames[0]

    def get_qrels(self, variant=None):
        return self.frames[1]


def test_topics_of_a_dataset_without_documents(planted, planted_index):
    found = TerrierCollection(planted_index, OfPyTerrier(planted))
    assert set(found.get_qrels()["qid"]) <= {str(number) for number in range(20)}
    assert set(found.get_topics()["qid"]) >= set(found.get_qrels()["qid"])


@pytest.mark.filterwarnings("ignore:Indexing meta key text length")
def test_texts_that_the_index_cut_are_told(planted, make_index, caplog):
    """Known answers stand behind the end of some of them; the others are examined, and the audit goes on."""
    index = make_index(planted.get_corpus_iter(), meta={"docno": 40, "text": 150})
    whole, cut = TerrierCollection(index, planted), planted
    system = index.bm25() % 10 >> index.text_loader("text") >> pt.apply.doc_score(lambda row: float(len(row["text"])))
    for dataset in (whole, cut):
        result = audit({"mine": system}, dataset, biases="position", draws=1, topics=8)
        assert len(result.failed) == 0
        [note] = [note for note in result.settings["notes"] if "that it reads" in note]
        assert "mine: " in note and "texts that it reads seem to be truncated" in note
    [note] = audit(index.bm25(), whole, biases="pooling", topics=4).settings["notes"]
    assert note.startswith("BM25: 200 of 200 texts in its index seem to be truncated, and the index over changed texts is")
    assert "texts with answers seem to be truncated" in caplog.text


def test_numbers_are_stored_as_text(planted, tmp_path):
    """Terrier stores nothing else; behind other stages a document's numbers are made text as the documentation writes it."""
    turn = RotatePassages(seed=1).rotator()
    expected = [str(turn(d["text"], d["docno"])[1]) for d in planted.get_corpus_iter()]
    as_text = pt.apply.rotation(lambda row: str(row["rotation"]))
    for name, stages in {"plain": RotatePassages(seed=1), "written": RotatePassages(seed=1) >> as_text}.items():
        indexer = pt.IterDictIndexer(str(tmp_path / name), meta={"docno": 40, "text": 20000, "rotation": 8})
        (stages >> indexer).index(planted.get_corpus_iter())
        stored = pt.terrier.TerrierIndex(str(tmp_path / name)).get_corpus_iter(return_toks=False)
        assert [d["rotation"] for d in stored] == expected


def test_systems_over_terrier_are_named_by_their_models(planted_index):
    bm25, texts = planted_index.bm25(), planted_index.text_loader("text")
    expected = {
        "BM25": pt.rewrite.tokenise() >> bm25 >> pt.rewrite.reset(),
        "DPH": planted_index.dph() % 10,
        "BM25 >> RM3 >> BM25": bm25 >> pt.rewrite.RM3(planted_index) >> bm25,
        "BM25 >> Bo1 >> DPH": bm25 >> pt.rewrite.Bo1QueryExpansion(planted_index) >> planted_index.dph(),
        "SDM >> BM25": pt.rewrite.SDM() >> bm25,
        "BM25 >> CrossEncoder(ms-marco-MiniLM-L6-v2)": bm25 % 100 >> texts >> CrossEncoder("x/ms-marco-MiniLM-L6-v2"),
        "BM25 >> (PL2 ** TF_IDF)": bm25 >> (planted_index.pl2() ** planted_index.tf_idf()),
    }
    assert list(map(system_name, expected.values())) == list(expected)
    assert distinct_names([planted_index.bm25(b=0.4), planted_index.bm25(b=0.3)]) == ["BM25 (b=0.4)", "BM25 (b=0.3)"]
    words = pt.rewrite.tokenise() >> planted_index.bm25()
    assert distinct_names([planted_index.bm25(), planted_index.bm25(b=0.4), words]) == [
        "BM25 (b=0.75)", "BM25 (b=0.4)", "BM25 (b=0.75, tokenise)",
    ]  # fmt: skip
    assert distinct_names([planted_index.bm25(), words]) == ["BM25", "BM25 (tokenise)"]


def test_an_index_with_fields_is_the_reason_that_it_is_not_made_anew(planted, planted_index, make_index):
    documents = [dict(document, title="any") for document in planted.get_corpus_iter()]
    fields = TerrierCollection(make_index(documents, text_attrs=["title", "text"], fields=True), planted)
    over = with_indexer(System.of("mine", pt.rewrite.tokenise() >> fields.index.bm25()), fields)
    told = PositionBias().needs(over, fields)
    assert told.startswith("its index has fields (title, text), which changed passages do not have")
    other = with_indexer(System.of("mine", planted_index.bm25()), fields)
    assert other.indexer is None and "fields" not in PositionBias().needs(other, fields)


def test_an_error_of_terrier_is_one_readable_line(planted, planted_index):
    """A colon is Terrier's query language; the index has no fields."""
    system = named_where_it_raises(System("mine", planted_index.bm25() % 5 >> planted_index.dph()))
    with pytest.raises(BrokenSystemError) as caught:
        system.candidates(planted.get_topics().assign(query="title:bridge"))
    message = str(caught.value)
    assert message.startswith("system 'mine' raised IllegalStateException: Index must have 1 or more fields")
    assert message.endswith("(in its stage BM25)") and "/tmp" not in message and ".java" not in message and len(message) < 300


def test_an_index_in_memory_is_a_collection_that_is_not_made_anew(planted, tmp_path):
    """It does not tell how it was made; to ask it as one on disk would end the process."""
    indexer = pt.IterDictIndexer(str(tmp_path), type=pt.IndexingType.MEMORY, meta={"docno": 40, "text": 20000})
    collection = TerrierCollection(indexer.index(planted.get_corpus_iter()), planted)
    assert len(list(collection.get_corpus_iter())) == 200
    assert collection.longest_text is None
    assert collection.indexer_of(collection.index.bm25()) is None
    assert "cannot be rebuilt" in with_indexer(System.of("mine", collection.index.bm25()), collection).out_of_reach
    with pytest.raises(InputError, match="an index in memory does not record how it was made"):
        TerrierIndexer(collection.index, lambda index: index.bm25())(planted.get_corpus_iter())
