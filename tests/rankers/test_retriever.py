import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import BiEncoder, Collection, InputError
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.rankers.retriever import Retriever
from pyterrier_debias.rankers.vectors import Vectors
from tests.contract import CHECKS, Case, Counted, assert_contract
from tests.tiny_models import WORDS

RNG = np.random.default_rng(1)
DOCS = [" ".join(RNG.choice(WORDS, size=n)) for n in RNG.integers(1, 30, size=60)]
CORPUS = pd.DataFrame({"docno": [f"d{i}" for i in range(70)], "text": DOCS + DOCS[:10], "title": "the king"})
TOPICS = pd.DataFrame({"qid": ["q2", "q1", "q3"], "query": ["the red king", "a bridge", "doctor"], "type": ["x", "y", "z"]})


@pytest.fixture(scope="module")
def model(tiny):
    return BiEncoder(tiny("build_sentence_transformer", pooling="mean"))


def brute_force(model, corpus, topics, k):
    """Every document scored with sentence-transformers' vectors, then ranked in full."""
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(model.model, device="cpu")
    docs, queries = peer.encode_document(corpus["text"].tolist()), peer.encode_query(topics["query"].tolist())
    pairs = topics.merge(corpus[["docno"]], how="cross")
    scores = queries.astype(np.float64) @ docs.astype(np.float64).T
    out = ranked(pairs.assign(score=scores.round(5).ravel()))  # equal texts get equal scores in one batch only
    return out[out["rank"] < k].reset_index(drop=True)


@pytest.mark.parametrize("k", [1, 7, 65, 70, 1000])
def test_equals_ranking_every_document(model, k):
    out = model.retriever(CORPUS, num_results=k)(TOPICS)
    expected = brute_force(model, CORPUS, TOPICS, k)
    assert list(out.columns) == ["qid", "query", "type", "docno", "score", "rank"]
    pd.testing.assert_frame_equal(out, expected, check_dtype=False, atol=2e-5)
    pd.testing.assert_frame_equal(out, ranked(out))


def test_equal_texts_tie_and_the_larger_docno_comes_first(model):
    out = model.retriever(CORPUS)(TOPICS.head(1))
    first = out.set_index("docno")
    for i in range(10):
        assert first["score"][f"d{i}"] == first["score"][f"d{60 + i}"]
        assert abs(first["rank"][f"d{i}"] - first["rank"][f"d{60 + i}"]) == 1
        assert (first["rank"][f"d{i}"] < first["rank"][f"d{60 + i}"]) == (f"d{i}" > f"d{60 + i}")


def test_reranking_gives_the_retrievers_scores(model):
    found = model.retriever(CORPUS, num_results=20)(TOPICS)
    texts = Collection("c", corpus=CORPUS, topics={"t": TOPICS}, qrels={}).text_loader()
    again = (pt.Transformer.from_df(found) >> texts >> model)(TOPICS)
    np.testing.assert_allclose(again["score"], found["score"], atol=1e-5)


def test_a_query_alone_has_the_results_it_has_among_others(model):
    retriever = model.retriever(CORPUS, num_results=5)
    together = retriever(TOPICS)
    for i in range(len(TOPICS)):
        alone = retriever(TOPICS.iloc[[i]])
        pd.testing.assert_frame_equal(
            alone, together[together["qid"] == TOPICS["qid"].iloc[i]].reset_index(drop=True), atol=1e-5
        )


def test_a_folder_can_be_opened_again(model, tmp_path, monkeypatch):
    built = model.retriever(CORPUS, folder=tmp_path / "v", num_results=9)
    assert isinstance(built.vectors.matrix, np.memmap)
    monkeypatch.setattr(BiEncoder, "_corpus", None)  # documents are not encoded again
    for again in (model.retriever(tmp_path / "v", num_results=9), model.retriever(str(tmp_path / "v"), num_results=9)):
        assert again == built
        pd.testing.assert_frame_equal(again(TOPICS), built(TOPICS))
    assert model.retriever(built.vectors) != built
    assert Vectors.load(tmp_path / "v") == built.vectors


def test_corpora_of_every_shape(model, monkeypatch):
    monkeypatch.setattr("pyterrier_debias.rankers.dual_encoder.CORPUS_ROWS", 32)  # several batches
    expected = model.retriever(CORPUS, num_results=5)(TOPICS)
    dataset = Collection("c", corpus=CORPUS, topics={"t": TOPICS}, qrels={})
    for corpus in (dataset, CORPUS.to_dict(orient="records"), iter(CORPUS.to_dict(orient="records"))):
        pd.testing.assert_frame_equal(model.retriever(corpus, num_results=5)(TOPICS), expected, atol=1e-5)


def test_cut_documents_are_reported_once_for_the_corpus(model, monkeypatch, caplog):
    monkeypatch.setattr("pyterrier_debias.rankers.dual_encoder.CORPUS_ROWS", 16)
    BiEncoder(model.model, max_length=16, similarity="cosine").retriever(CORPUS)
    # Every word is one token, two tokens are special; equal texts of one batch count once, and ours stand in different ones.
    cut = sum(len(text.split()) > 14 for text in CORPUS["text"])
    (message,) = caplog.messages
    assert message.startswith(f"BiEncoder, documents: {cut} of 70 texts were cut to the window of 16 tokens")


def test_fields_are_joined(tiny):
    model = BiEncoder(tiny("build_sentence_transformer", pooling="mean"), fields=["title", "text"])
    joined = CORPUS.assign(text=CORPUS["title"] + " " + CORPUS["text"])
    plain = BiEncoder(model.model)
    pd.testing.assert_frame_equal(model.retriever(CORPUS)(TOPICS), plain.retriever(joined)(TOPICS), atol=1e-5)


def test_cutoff_compiles_into_the_retriever(model):
    retriever = model.retriever(CORPUS, num_results=20)
    for k, expected in ((3, 3), (50, 20)):
        compiled = (retriever % k).compile()
        assert isinstance(compiled, Retriever) and compiled.num_results == expected
        pd.testing.assert_frame_equal(compiled(TOPICS), (retriever % k)(TOPICS))


def test_pickles_and_runs_elsewhere(model, tmp_path):
    for folder in (None, tmp_path / "v"):
        retriever = model.retriever(CORPUS, folder=folder, num_results=4)
        copy = pickle.loads(pickle.dumps(retriever))
        pd.testing.assert_frame_equal(copy(TOPICS), retriever(TOPICS))
    assert copy == retriever and len(pickle.dumps(retriever)) < 2000


def test_given_query_vectors_are_used_without_a_model(model):
    vectors = model.retriever(CORPUS).vectors
    encoded = model.query_encoder()(TOPICS)
    expected = Retriever(model, vectors, num_results=6)(TOPICS)
    out = Retriever(BiEncoder("no/such-model"), vectors, num_results=6)(encoded)
    pd.testing.assert_frame_equal(out[expected.columns], expected)
    assert "query_vec" in out.columns


def test_contract(model, tmp_path):
    retriever = model.retriever(CORPUS, folder=tmp_path / "v", num_results=5)
    case = Case(
        "Retriever",
        lambda: model.retriever(tmp_path / "v", num_results=5),
        lambda: TOPICS,
        lambda: model.retriever(retriever.vectors, num_results=6),
        rowwise=False,
    )
    assert_contract(case, [check for check in CHECKS if check != "missing_columns"])
    # This check takes the columns of each of the two kinds of input away in turn.
    assert_contract(replace(case, frame=lambda: model.query_encoder()(TOPICS)), ["missing_columns"])


def test_an_experiment_retrieves_once_for_systems_that_share_the_stage(model, tmp_path, monkeypatch):
    model.retriever(CORPUS, folder=tmp_path / "v")
    counted = Counted(monkeypatch, Retriever)
    systems = [model.retriever(tmp_path / "v") >> pt.apply.doc_score(len) for _ in range(2)]
    qrels = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
    pt.Experiment(systems, TOPICS, qrels, [pt.measures.RR], plan="tree", validate="ignore")
    assert counted.calls == 1


def test_inspection_and_empty_frames_need_no_model(model):
    vectors = model.retriever(CORPUS, num_results=3).vectors
    fresh = Retriever(BiEncoder("no/such-model"), vectors)
    assert pt.inspect.transformer_inputs(fresh) == [["qid", "query_vec"], ["qid", "query"]]
    assert pt.inspect.subtransformers(fresh) == {}
    assert len(fresh(TOPICS.iloc[:0])) == 0


def test_vectors_of_another_model_are_refused(model, tiny, tmp_path):
    vectors = model.retriever(CORPUS, folder=tmp_path / "v").vectors
    other = tiny("build_sentence_transformer", pooling="cls")
    for wrong in (BiEncoder(other), BiEncoder(model.model, similarity="cosine"), BiEncoder(model.model, max_length=9)):
        with pytest.raises(InputError, match="made by a different model"):
            wrong.retriever(tmp_path / "v")(TOPICS)
    assert len(BiEncoder(model.model).retriever(vectors, num_results=1)(TOPICS)) == 3


def test_vectors_are_refused_once_the_model_is_trained(model):
    import torch

    trained = BiEncoder(model.model)
    retriever = trained.retriever(CORPUS, num_results=1)
    retriever(TOPICS)
    with torch.no_grad():
        next(trained.module.parameters()).mul_(1.5)
    with pytest.raises(InputError, match="made by a different model"):
        retriever(TOPICS)


def test_a_change_that_the_documents_do_not_share_is_refused_whenever_it_comes(model, tiny):
    retriever = BiEncoder(model.model).retriever(CORPUS, num_results=1)
    expected = retriever(TOPICS)
    retriever.model.similarity = "cosine"
    with pytest.raises(InputError, match="made by a different model, or with different options"):
        retriever(TOPICS)
    retriever.model.similarity = "dot"
    pd.testing.assert_frame_equal(retriever(TOPICS), expected)
    retriever.vectors = BiEncoder(tiny("build_sentence_transformer", pooling="cls")).retriever(CORPUS).vectors
    with pytest.raises(InputError, match="made by a different model, or with different options"):
        retriever(TOPICS)


def test_the_model_is_looked_at_once_while_nothing_changes(model, monkeypatch):
    retriever, probe, looked = model.retriever(CORPUS, num_results=1), BiEncoder.probe, []
    monkeypatch.setattr(BiEncoder, "probe", lambda self: looked.append(self) or probe(self))
    for verbose in (False, True, False):
        retriever.model.verbose = verbose
        pickle.loads(pickle.dumps(retriever))(TOPICS)
        retriever(TOPICS)
    model.verbose = False
    assert looked == [model] * 2  # the copy of the first one has not looked yet


def test_models_that_only_encode_queries_are_looked_at_too(model):
    class Other:
        weights = "one"

        def encode_queries(self, queries):
            return model.encode_queries(queries)

        def probe(self):
            return model.probe() + (self.weights != "one")

        def fingerprint(self):
            return self.weights

    retriever = Retriever(Other(), model.retriever(CORPUS).vectors, num_results=3)
    pd.testing.assert_frame_equal(retriever(TOPICS), model.retriever(CORPUS, num_results=3)(TOPICS))
    retriever.model.weights = "two"
    with pytest.raises(InputError, match="made by a different model"):
        retriever(TOPICS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_query_of_which_the_model_makes_no_numbers_is_named(model, bad):
    import torch

    broken = BiEncoder(model.model)
    with torch.no_grad():
        broken.module[0].model.get_input_embeddings().weight[broken.tokenizer.convert_tokens_to_ids("signal")] = bad
    corpus = CORPUS[~CORPUS["text"].str.contains("signal")]
    retriever = broken.retriever(corpus, num_results=2)
    assert set(retriever(TOPICS)["qid"]) == {"q1", "q2", "q3"}
    topics = TOPICS.assign(query=["the red king", "a signal", "doctor"])
    with pytest.raises(InputError, match=r"Retriever: the vector of query 'q1' is not finite; .*dtype='float32'"):
        retriever(topics)


@pytest.mark.parametrize(
    ("topics", "message"),
    [
        (TOPICS.assign(qid="q1"), "qid 'q1' occurs twice"),
        (TOPICS.assign(query=["a", None, "b"]), "column 'query' has no value at row 1"),
        (TOPICS.assign(query_vec=[np.zeros(3)] * 3), r"arrays of shape \(3,\), but the documents' vectors have 32"),
        (TOPICS.assign(query_vec=[np.zeros(3), np.zeros(2), None]), "must hold arrays of equal length"),
        (TOPICS.assign(query_vec=[np.full(32, np.nan)] * 3), "not finite"),
        (TOPICS.assign(query_vec=[np.full(32, 1j)] * 3), "column 'query_vec' holds complex numbers"),
    ],
)
def test_bad_topics(model, topics, message):
    with pytest.raises(InputError, match=message):
        model.retriever(CORPUS)(topics)


def test_bad_corpora(model, tmp_path):
    with pytest.raises(InputError, match="'d0' occurs twice"):
        model.retriever(pd.concat([CORPUS, CORPUS]), folder=tmp_path / "v")
    with pytest.raises(InputError, match="holds no documents"):
        model.retriever(CORPUS.iloc[:0])
    with pytest.raises(InputError, match="column 'text' has no value at row 0"):
        model.retriever([{"docno": "d1", "text": None}])
    with pytest.raises(KeyError, match="text"):
        model.retriever([{"docno": "d1", "body": "x"}])
    with pytest.raises(InputError, match="not a folder of vectors"):
        model.retriever(tmp_path / "v")
    for bad in (0, "10", 2.5):
        with pytest.raises(InputError, match=rf"BiEncoder.retriever: num_results={bad!r} must be a whole number of at least 1"):
            model.retriever(iter([pytest.fail]), num_results=bad)  # no document is read
        with pytest.raises(InputError, match=rf"Retriever: num_results={bad!r} must be a whole number of at least 1"):
            Retriever(model, model.retriever(CORPUS).vectors, num_results=bad)(TOPICS)
    (tmp_path / "v").mkdir()
    (tmp_path / "v" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        model.retriever(CORPUS, folder=tmp_path / "v")
    assert (tmp_path / "v" / "notes.txt").read_text() == "mine"
