import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix

from pyterrier_debias import Collection, InputError, SparseEncoder
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.rankers.postings import Postings
from pyterrier_debias.rankers.sparse_retriever import SparseRetriever
from tests.contract import CHECKS, Case, Counted, assert_contract
from tests.tiny_models import WORDS

RNG = np.random.default_rng(1)
DOCS = [" ".join(RNG.choice(WORDS, size=n)) for n in RNG.integers(1, 30, size=60)]
CORPUS = pd.DataFrame({"docno": [f"d{i}" for i in range(70)], "text": DOCS + DOCS[:10], "title": "the king"})
TOPICS = pd.DataFrame({"qid": ["q2", "q1", "q3"], "query": ["the red king", "a bridge", "doctor"], "type": ["x", "y", "z"]})


# Postings


def sparse(rng, rows, terms, share):
    """Weights of which some are 0; few different values, so that scores tie."""
    values = rng.integers(1, 4, size=(rows, terms)) / 4
    return csr_matrix(np.where(rng.random((rows, terms)) < share, values, 0.0).astype(np.float32))


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    terms=st.integers(1, 20),
    k=st.integers(1, 70),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    batch=st.integers(1, 25),
)
def test_search_is_a_full_sort_of_all_scores(seed, n, terms, k, share, batch):
    rng = np.random.default_rng(seed)
    docs, queries = sparse(rng, n, terms, share), sparse(rng, 5, terms, share)
    names = [f"d{i}" for i in rng.permutation(n)]
    postings = Postings.gather([(names[i : i + batch], docs[i : i + batch]) for i in range(0, n, batch)])
    scores = queries.toarray().astype(np.float64) @ docs.toarray().astype(np.float64).T  # quarters: exact in float64
    found = list(postings.search(queries, k))
    assert len(found) == 5
    for query, (rows, values) in enumerate(found):
        matched = [i for i in range(n) if scores[query, i] > 0]
        expected = sorted(matched, key=lambda i: (scores[query, i], names[i].encode()), reverse=True)[:k]
        assert rows.tolist() == expected
        assert values.tolist() == scores[query, expected].tolist()
    assert postings.per_document == docs.nnz / n
    expected = [sum(docs[:, t].nnz for t in queries[row].indices) for row in range(5)]
    assert postings.products(queries).tolist() == expected


def batches_of(n=10, size=3):
    docs = sparse(np.random.default_rng(n), n, 6, 0.5)
    names = [f"dö{i}" for i in range(n)]
    return docs, names, [(names[i : i + size], docs[i : i + size]) for i in range(0, n, size)]


def dense(postings):
    matrix = np.zeros((len(postings), postings.terms), dtype=np.float32)
    for term in range(postings.terms):
        part = slice(postings.starts[term], postings.starts[term + 1])
        matrix[postings.documents[part], term] = postings.weights[part]
    return matrix


def test_a_folder_holds_what_was_written(tmp_path):
    docs, names, batches = batches_of()
    written = Postings.write(tmp_path / "p", iter(batches), probe=np.array([0.5, 2.0]))
    assert isinstance(written.weights, np.memmap)
    for postings in (written, Postings.load(tmp_path / "p"), pickle.loads(pickle.dumps(written))):
        np.testing.assert_array_equal(dense(postings), docs.toarray())
        assert [name.decode() for name in postings.docnos] == names
        assert (len(postings), postings.terms, postings.probe.tolist()) == (10, 6, [0.5, 2.0])
        assert postings == written and hash(postings) == hash(written)
    assert len(pickle.dumps(written)) < 500
    other = Postings.gather(batches)
    assert other != written and other == other and pickle.loads(pickle.dumps(other)) != other


def test_a_folder_that_was_written_anew_is_another_one(tmp_path):
    """Although the numbers of documents and weights, and the probe, stay."""
    docs, names, batches = batches_of()
    first = Postings.write(tmp_path / "p", batches)
    pickled = pickle.dumps(first)
    second = Postings.write(tmp_path / "p", [(names[::-1], docs)], overwrite=True)
    assert second != first and second == Postings.load(tmp_path / "p")
    with pytest.raises(InputError, match=r"SparseEncoder: \S+p holds other postings now than when they were pickled"):
        pickle.loads(pickled)


def test_zeros_that_a_matrix_stores_are_not_kept():
    stored = csr_matrix((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    postings = Postings.gather([(["d"], stored)])
    assert postings.documents.tolist() == [0] and postings.per_document == 1.0


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_weights_that_cannot_be_searched_are_refused(bad):
    weights = np.ones((3, 2), dtype=np.float32)
    weights[1, 1] = bad
    with pytest.raises(InputError, match="document 'd1' has a weight that is not a finite number of at least 0"):
        Postings.gather([(["d0", "d1", "d2"], csr_matrix(weights))])


def test_bad_names_and_other_vocabularies_are_refused():
    docs, _, batches = batches_of()
    with pytest.raises(InputError, match="'dö0' occurs twice"):
        Postings.gather([*batches, batches[0]])
    with pytest.raises(InputError, match="holds no documents"):
        Postings.gather([])
    with pytest.raises(InputError, match=r"a batch of 1 documents has representations of shape \(2, 6\); give one row for each"):
        Postings.gather([(["d1"], docs[:2])])
    with pytest.raises(InputError, match=r"a batch of 1 documents has representations of shape \(1, 5\)"):
        Postings.gather([(["d1"], docs[:1]), (["d2"], docs[:1, :5])])
    with pytest.raises(InputError, match="queries have weights for 5 terms, but the index has 6"):
        list(Postings.gather(batches).search(docs[:, :5], 1))


def test_a_folder_that_was_changed_or_is_another_is_refused(tmp_path):
    _, _, batches = batches_of()
    Postings.write(tmp_path / "p", batches)
    with pytest.raises(InputError, match="not a folder of postings"):
        Postings.load(tmp_path)
    (tmp_path / "p" / MANIFEST).unlink()
    np.save(tmp_path / "p" / "weights.npy", np.ones(3, dtype=np.float32))
    with pytest.raises(InputError, match="do not belong together"):
        Postings.load(tmp_path / "p")


def test_what_fails_half_way_leaves_nothing(tmp_path):
    _, _, batches = batches_of()

    def broken():
        yield from batches
        raise RuntimeError("the corpus ended early")

    with pytest.raises(RuntimeError):
        Postings.write(tmp_path / "p", broken())
    assert not (tmp_path / "p").exists()


# The retriever


@pytest.fixture(scope="module")
def model(tiny):
    return SparseEncoder(tiny("build_sparse"))


def all_scores(docs, queries):
    """Every query with every document, in float64, as a ranking of those that share a term."""
    products = queries.astype(np.float64)[:, None] * docs.astype(np.float64)
    scores = products.sum(axis=-1)  # a matrix product may tell equal rows apart
    pairs = TOPICS.merge(CORPUS[["docno"]], how="cross").assign(score=scores.ravel())
    return ranked(pairs[pairs["score"] > 0])


@pytest.mark.parametrize("k", [1, 7, 65, 70, 1000])
def test_equals_ranking_every_document(model, k):
    """Scores are those of the library's vectors; the order, ties included, is a full sort of ours."""
    from sentence_transformers import SparseEncoder as Library

    out = model.retriever(CORPUS, num_results=k)(TOPICS)
    assert list(out.columns) == ["qid", "query", "type", "docno", "score", "rank"]
    peer, texts, queries = Library(model.model, device="cpu"), CORPUS["text"].tolist(), TOPICS["query"].tolist()
    theirs = all_scores(peer.encode_document(texts).to_dense().numpy(), peer.encode_query(queries).to_dense().numpy())
    both = out.merge(theirs, on=["qid", "docno"], suffixes=("", "_theirs"))
    assert len(both) == len(out) == 3 * min(k, 70)
    np.testing.assert_allclose(both["score"], both["score_theirs"], rtol=1e-5)
    ours = all_scores(model.encode_docs(texts).toarray(), model.encode_queries(queries).toarray())
    expected = ours[ours["rank"] < k].reset_index(drop=True)
    pd.testing.assert_frame_equal(out, expected, check_dtype=False, rtol=1e-12)
    assert k < 65 or out.duplicated(["qid", "score"]).sum() >= 20  # equal texts tie


def test_reranking_gives_the_retrievers_scores(model):
    found = model.retriever(CORPUS, num_results=20)(TOPICS)
    texts = Collection("c", corpus=CORPUS, topics={"t": TOPICS}, qrels={}).text_loader()
    again = (pt.Transformer.from_df(found) >> texts >> model)(TOPICS)
    np.testing.assert_allclose(again["score"], found["score"], rtol=1e-6)


def test_a_query_alone_has_the_results_it_has_among_others(model):
    retriever = model.retriever(CORPUS, num_results=5)
    together = retriever(TOPICS)
    for i in range(len(TOPICS)):
        own = together[together["qid"] == TOPICS["qid"].iloc[i]].reset_index(drop=True)
        pd.testing.assert_frame_equal(retriever(TOPICS.iloc[[i]]), own, rtol=1e-6)


def test_a_folder_can_be_opened_again(model, tmp_path, monkeypatch):
    built = model.retriever(CORPUS, folder=tmp_path / "p", num_results=9)
    monkeypatch.setattr(SparseEncoder, "_corpus", None)  # documents are not encoded again
    for again in (model.retriever(tmp_path / "p", num_results=9), model.retriever(str(tmp_path / "p"), num_results=9)):
        assert again == built
        pd.testing.assert_frame_equal(again(TOPICS), built(TOPICS))
    assert model.retriever(built.postings) != built
    copy = pickle.loads(pickle.dumps(built))
    assert copy == built and len(pickle.dumps(built)) < 2000
    pd.testing.assert_frame_equal(copy(TOPICS), built(TOPICS))


def test_corpora_of_every_shape(model, monkeypatch):
    monkeypatch.setattr("pyterrier_debias.rankers.dual_encoder.CORPUS_ROWS", 32)  # several batches
    expected = model.retriever(CORPUS, num_results=5)(TOPICS)
    dataset = Collection("c", corpus=CORPUS, topics={"t": TOPICS}, qrels={})
    for corpus in (dataset, CORPUS.to_dict(orient="records"), iter(CORPUS.to_dict(orient="records"))):
        pd.testing.assert_frame_equal(model.retriever(corpus, num_results=5)(TOPICS), expected, rtol=1e-6)


def test_cut_documents_are_reported_once_for_the_corpus(model, monkeypatch, caplog):
    monkeypatch.setattr("pyterrier_debias.rankers.dual_encoder.CORPUS_ROWS", 16)
    SparseEncoder(model.model, max_length=16).retriever(CORPUS)
    cut = sum(len(text.split()) > 14 for text in CORPUS["text"])
    (message,) = caplog.messages
    assert message.startswith(f"SparseEncoder, documents: {cut} of 70 texts were cut to the window of 16 tokens")


def test_describe_tells_what_is_kept_and_what_is_expansion(model):
    retriever = model.retriever(CORPUS)
    docs, queries = model.encode_docs(CORPUS["text"].tolist()), model.encode_queries(TOPICS["query"].tolist())
    shown = [model.terms(query, "query") for query in TOPICS["query"]]
    found = retriever.describe(TOPICS)
    assert found["documents"] == 70
    assert found["floats_per_document"] == retriever.postings.per_document == docs.nnz / 70
    assert found["terms_per_query"] == np.mean([len(frame) for frame in shown]) == queries.nnz / 3
    assert found["expansion_share"] == pytest.approx(np.mean([frame["expansion"].mean() for frame in shown]))
    pairs = ((queries > 0).astype(int) @ (docs > 0).astype(int).T).toarray()
    assert found["products_per_pair"] == pytest.approx(pairs.mean())


def test_queries_and_documents_without_terms(model):
    import torch

    mute = SparseEncoder(model)
    with torch.no_grad():
        mute.module[0].model.cls.predictions.bias.sub_(1000.0)
    out = mute.retriever(CORPUS)(TOPICS)
    assert len(out) == 0 and list(out.columns) == ["qid", "query", "type", "docno", "score", "rank"]
    assert out.dtypes.equals(model.retriever(CORPUS)(TOPICS.iloc[:0]).dtypes)


def test_cutoff_compiles_into_the_retriever(model):
    retriever = model.retriever(CORPUS, num_results=20)
    for k, expected in ((3, 3), (50, 20)):
        compiled = (retriever % k).compile()
        assert isinstance(compiled, SparseRetriever) and compiled.num_results == expected
        pd.testing.assert_frame_equal(compiled(TOPICS), (retriever % k)(TOPICS))


def test_contract(model, tmp_path):
    retriever = model.retriever(CORPUS, folder=tmp_path / "p", num_results=5)
    case = Case(
        "SparseRetriever",
        lambda: model.retriever(tmp_path / "p", num_results=5),
        lambda: TOPICS,
        lambda: model.retriever(retriever.postings, num_results=6),
        rowwise=False,
    )
    assert_contract(case, CHECKS)


def test_an_experiment_retrieves_once_for_systems_that_share_the_stage(model, tmp_path, monkeypatch):
    model.retriever(CORPUS, folder=tmp_path / "p")
    counted = Counted(monkeypatch, SparseRetriever)
    systems = [model.retriever(tmp_path / "p") >> pt.apply.doc_score(len) for _ in range(2)]
    qrels = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
    pt.Experiment(systems, TOPICS, qrels, [pt.measures.RR], plan="tree", validate="ignore")
    assert counted.calls == 1


def test_postings_of_another_model_are_refused(model, tiny, tmp_path):
    import torch

    postings = model.retriever(CORPUS, folder=tmp_path / "p").postings
    for wrong in (SparseEncoder(tiny("build_sparse", seed=1)), SparseEncoder(model.model, max_length=9)):
        with pytest.raises(InputError, match="made by a different model"):
            wrong.retriever(tmp_path / "p")(TOPICS)
    trained = SparseEncoder(model.model)
    retriever = trained.retriever(postings, num_results=1)
    assert len(retriever(TOPICS)) == 3
    with torch.no_grad():
        next(trained.module.parameters()).mul_(1.5)
    with pytest.raises(InputError, match="made by a different model"):
        retriever(TOPICS)


def test_a_query_of_which_the_model_makes_no_numbers_is_named(model):
    import torch

    broken = SparseEncoder(model.model)
    masked = broken.module[0].model
    # The terms' own weights stay finite: only what is read of this word is not.
    masked.get_output_embeddings().weight = torch.nn.Parameter(masked.get_output_embeddings().weight.detach().clone())
    with torch.no_grad():
        masked.get_input_embeddings().weight[broken.tokenizer.convert_tokens_to_ids("signal")] = np.nan
    retriever = broken.retriever(CORPUS[~CORPUS["text"].str.contains("signal")], num_results=2)
    assert set(retriever(TOPICS)["qid"]) == {"q1", "q2", "q3"}
    topics = TOPICS.assign(query=["the red king", "a signal", "doctor"])
    for ask in (retriever, retriever.describe):
        with pytest.raises(InputError, match=r"SparseRetriever: the vector of query 'q1' is not finite; .*dtype='float32'"):
            ask(topics)


def test_bad_topics_and_corpora(model, tmp_path):
    retriever = model.retriever(CORPUS)
    with pytest.raises(InputError, match="SparseRetriever: qid 'q1' occurs twice"):
        retriever(TOPICS.assign(qid="q1"))
    with pytest.raises(InputError, match="column 'query' has no value at row 1"):
        retriever(TOPICS.assign(query=["a", None, "b"]))
    with pytest.raises(InputError, match="'d0' occurs twice"):
        model.retriever(pd.concat([CORPUS, CORPUS]), folder=tmp_path / "p")
    with pytest.raises(InputError, match="long='maxp' scores passages"):
        SparseEncoder(model.model, long="maxp").retriever(CORPUS)
    with pytest.raises(InputError, match="num_results=0 must be a whole number of at least 1"):
        model.retriever(CORPUS, num_results=0)(TOPICS)
    with pytest.raises(InputError, match="not a folder of postings"):
        model.retriever(tmp_path / "none")
