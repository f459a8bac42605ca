import logging
import pickle
import shutil
import string
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import InputError, MultiVector
from tests.tiny_models import WORDS

RNG = np.random.default_rng(3)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 2, 4, 8, 16, 30, 80)] + ["", "!?.,;", "Ünïcode, and: punctuation."]
PAIRS = pd.DataFrame(
    [
        {"qid": q, "query": q, "docno": str(i), "text": text}
        for q in ("what is the red king", "river?", " ".join(WORDS[:40]))
        for i, text in enumerate(TEXTS)
    ]
)


@pytest.fixture(scope="module", params=["build_multi_vector", "build_stanford"])
def folder(request, tiny):
    return tiny(request.param)


def library(folder):
    from sentence_transformers import MultiVectorEncoder

    return MultiVectorEncoder(folder, device="cpu")


def by_row(out):
    return out.set_index(["qid", "docno"]).loc[list(zip(PAIRS["qid"], PAIRS["docno"]))]["score"].to_numpy()


def test_scores_are_the_librarys_similarity(folder):
    peer = library(folder)
    queries = PAIRS["query"].drop_duplicates().tolist()
    scores = peer.similarity(peer.encode_query(queries), peer.encode_document(TEXTS)).numpy()
    found = by_row(MultiVector(folder)(PAIRS))
    np.testing.assert_allclose(found, scores.ravel(), rtol=1e-5, atol=1e-5)
    assert found.std() > 0.01


def test_scores_are_the_sum_of_the_best_matches(folder):
    peer, model = library(folder), MultiVector(folder)
    for query, text in (("what is the red king", TEXTS[4]), ("river?", "!?.,;"), ("a", TEXTS[6])):
        left, right = peer.encode_query([query])[0].numpy(), peer.encode_document([text])[0].numpy()
        expected = sum(max(float(q @ d) for d in right) for q in left)
        assert model.score_pairs([query], [text])[0] == pytest.approx(expected, abs=1e-5)


def test_a_stanford_checkpoint_brings_its_own_lengths(tiny):
    model = MultiVector(tiny("build_stanford"))
    assert model.task_window("document") == 40
    assert MultiVector(model.model, max_length=20).task_window("document") == 20
    query = model.tokenise(["river"], ["river"])
    assert query["query_input_ids"].shape == (1, 12)  # expanded to its fixed length
    [(_, terms)] = model.encoded(["king " + string.punctuation], "document")
    assert terms.mask.sum() == 4  # [CLS], marker, king, [SEP]


@pytest.mark.parametrize("expansion", [{"strategy": "min", "length": 16}, {"strategy": "fixed", "length": 8, "attend": True}])
def test_queries_are_expanded_as_the_library_does_it(tiny, tmp_path, expansion):
    peer = library(tiny("build_multi_vector"))
    peer[0].query_expansion = {"attend": False, "token": None, **expansion}
    peer[0].query_length = 20
    peer.save(str(tmp_path))
    peer, queries = library(str(tmp_path)), PAIRS["query"].drop_duplicates().tolist()
    scores = peer.similarity(peer.encode_query(queries), peer.encode_document(TEXTS)).numpy()
    np.testing.assert_allclose(by_row(MultiVector(str(tmp_path), batch_tokens=20)(PAIRS)), scores.ravel(), atol=1e-5)


def test_mean_similarity_where_the_checkpoint_asks_for_it(tiny, tmp_path):
    peer = library(tiny("build_multi_vector"))
    peer.similarity_fn_name = "meanmaxsim"
    peer.save(str(tmp_path))
    scores = library(str(tmp_path)).similarity(peer.encode_query(["red river"]), peer.encode_document(TEXTS))[0]
    found = MultiVector(str(tmp_path)).score_pairs(["red river"] * len(TEXTS), TEXTS)
    np.testing.assert_allclose(found, scores.numpy(), atol=1e-5)
    assert np.abs(found).max() <= 1 + 1e-5


@pytest.fixture(scope="module")
def scorer(folder):
    return MultiVector(folder)


@settings(max_examples=15)
@given(
    rows=st.lists(st.integers(0, len(PAIRS) - 1), min_size=1, max_size=10, unique=True),
    budget=st.sampled_from([1, 40, 100, 4096]),
)
def test_a_score_depends_on_its_pair_only(scorer, rows, budget):
    scorer.batch_tokens = budget
    inp = PAIRS.iloc[rows]
    out = scorer(inp).set_index(["qid", "docno"])["score"]
    expected = [scorer(inp.iloc[[i]])["score"].iloc[0] for i in range(len(inp))]
    np.testing.assert_allclose(out.loc[list(zip(inp["qid"], inp["docno"]))], expected, rtol=1e-5, atol=1e-5)


def test_each_distinct_text_is_encoded_once(folder, monkeypatch):
    model = MultiVector(folder).warm_up()
    seen = []
    original = MultiVector.represent

    def counting(self, features):
        seen.append(len(features["token_embeddings"]))
        return original(self, features)

    monkeypatch.setattr(MultiVector, "represent", counting)
    model(PAIRS)
    assert sum(seen) == len(TEXTS) + 3


def test_protocol_scores_are_the_engines(folder, tmp_path):
    import torch

    model = MultiVector(folder)
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    tensors = model.tokenise(queries, docs)
    assert {len(tensor) for tensor in tensors.values()} == {len(PAIRS)}
    scores = model.forward(**tensors)
    np.testing.assert_allclose(scores.detach().numpy(), model.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)
    copy = MultiVector(folder)
    assert model == copy
    scores.sum().backward()
    torch.optim.SGD(model.module.parameters(), lr=0.1).step()
    assert model != copy
    expected = model.score_pairs(queries, docs)
    assert not np.allclose(expected, copy.score_pairs(queries, docs), atol=1e-3)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(model)).score_pairs(queries, docs), expected, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_allclose(MultiVector(tmp_path / "saved").score_pairs(queries, docs), expected, atol=1e-5)


def test_cut_documents_are_reported(folder, caplog):
    with caplog.at_level(logging.WARNING):
        MultiVector(folder, max_length=16)(PAIRS)
    expected = "MultiVector, documents: 4 of 10 texts were cut to the window of 16 tokens"
    assert any(message.startswith(expected) for message in caplog.messages)


def test_cut_queries_are_reported(tiny, tmp_path, caplog):
    MultiVector(tiny("build_stanford"))(PAIRS[PAIRS["docno"] == "0"])
    (message,) = caplog.messages
    assert message.startswith("MultiVector, queries: 1 of 3 texts were cut to the window of 12 tokens")


def test_a_fresh_projection_is_announced_and_seeded(tiny, caplog):
    encoder = tiny("build", labels=None)
    one, two, other = MultiVector(encoder), MultiVector(encoder), MultiVector(encoder, seed=1)
    texts = TEXTS[3:6], TEXTS[2:5]
    assert np.array_equal(one.score_pairs(*texts), two.score_pairs(*texts)) and one == two
    assert not np.allclose(one.score_pairs(*texts), other.score_pairs(*texts), atol=1e-3) and one != other
    assert sum("has no projection" in message for message in caplog.messages) == 3
    caplog.clear()
    MultiVector(tiny("build_multi_vector")).warm_up()
    assert caplog.messages == []


def test_many_threads_share_a_model(folder):
    model = MultiVector(folder)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: by_row(model(PAIRS)), range(6)))
    np.testing.assert_allclose(results, np.tile(results[0], (6, 1)), rtol=1e-5, atol=1e-5)


def test_no_thread_meets_a_comparison_that_is_half_chosen(folder, monkeypatch):
    from sentence_transformers import SimilarityFunction

    chosen = SimilarityFunction.to_similarity_pairwise_fn
    slowly = staticmethod(lambda name: time.sleep(0.2) or chosen(name))
    monkeypatch.setattr(SimilarityFunction, "to_similarity_pairwise_fn", slowly)
    model = MultiVector(folder)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(lambda _: model(PAIRS), range(4)))) == 4


def test_half_precision_stays_close(folder):
    scores = by_row(MultiVector(folder, dtype="bfloat16")(PAIRS))
    np.testing.assert_allclose(scores, by_row(MultiVector(folder)(PAIRS)), rtol=0.05)


def test_bad_input_and_empty_frames(folder):
    out = MultiVector("no/such-model")(PAIRS.iloc[:0])
    assert list(out.columns) == [*PAIRS.columns, "score", "rank"]
    with pytest.raises(InputError, match="there is no model folder"):
        MultiVector("/no/such/folder")(PAIRS)
    with pytest.raises(InputError, match="column 'text' has no value at row 0"):
        MultiVector(folder)(PAIRS.assign(text=None))
    with pytest.raises(InputError, match="more than the 64 tokens"):
        MultiVector(folder, max_length=1000)(PAIRS)


@pytest.fixture(scope="module")
def dnn(tiny):
    return Path(tiny("build_dnn"))


def colbert(dnn, text, task, numbers):
    """ColBERT's own computation for one text, with transformers' BERT: the vectors that count, shape [tokens, 16]."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, BertModel

    state = torch.load(dnn / "colbert.dnn", weights_only=True)["model_state_dict"]
    encoder = BertModel(AutoConfig.from_pretrained(dnn / "base")).eval()
    encoder.load_state_dict({k.removeprefix("bert."): v for k, v in state.items() if k.startswith("bert.")})
    tokenizer = AutoTokenizer.from_pretrained(dnn / "base")
    length = {"max_length": 12, "padding": "max_length"} if task == "query" else {"max_length": 40}
    read = tokenizer(". " + text, truncation=True, return_tensors="pt", **length)
    ids, attended = read["input_ids"], read["attention_mask"]
    ids[0, 1] = tokenizer.convert_tokens_to_ids("[unused0]" if task == "query" else "[unused1]")
    ids[ids == 0] = tokenizer.mask_token_id
    with torch.inference_mode():
        vectors = encoder(input_ids=ids, attention_mask=attended).last_hidden_state[0] @ state["linear.weight"].T
    vectors = torch.nn.functional.normalize(vectors, dim=-1).to(numbers).float()
    skipped = {tokenizer.convert_tokens_to_ids(symbol) for symbol in string.punctuation}
    return vectors if task == "query" else vectors[[i not in skipped for i in ids[0].tolist()]]


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float16", 0.05)])
def test_a_dnn_file_scores_as_colberts_own_code(dnn, dtype, tolerance, tmp_path):
    """MaxSim over vectors in float32, or kept in float16 as ColBERT's index keeps them."""
    import torch

    model = MultiVector.from_dnn(dnn / "colbert.dnn", base=dnn / "base", dtype=dtype)
    queries, numbers = PAIRS["query"].drop_duplicates().tolist(), getattr(torch, dtype)
    left = [colbert(dnn, text, "query", numbers) for text in queries]
    right = [colbert(dnn, text, "document", numbers) for text in TEXTS]
    expected = [float((q @ d.T).max(dim=1).values.sum()) for q in left for d in right]
    assert {len(vectors) for vectors in left} == {12} and len(right[TEXTS.index("!?.,;")]) == 3
    np.testing.assert_allclose(by_row(model(PAIRS)), expected, atol=tolerance)
    assert np.std(expected) > 0.1
    if dtype == "float32":
        model.save(tmp_path / "saved")
        np.testing.assert_allclose(by_row(MultiVector(tmp_path / "saved")(PAIRS)), expected, atol=tolerance)


def test_what_a_dnn_file_lacks_is_named(dnn, tiny, tmp_path):
    import torch

    def refused(message, content=None, file="colbert.dnn", base=None, **options):
        if content is not None:
            torch.save(content, tmp_path / file)
        with pytest.raises(InputError, match=message):
            MultiVector.from_dnn((dnn if content is None else tmp_path) / file, base=base or dnn / "base", **options)

    whole = torch.load(dnn / "colbert.dnn", weights_only=True)
    state = whole["model_state_dict"]
    refused("there is no file", file="other.dnn")
    refused("is not a ColBERT checkpoint", {"weights": 1})
    refused("cannot be loaded without running pickled code", {**whole, "arguments": torch.nn.Linear(1, 1)})
    refused("does not record its query_maxlen; give the query_length", {"model_state_dict": state})
    refused("query_length=3 must be", query_length=3)
    torn = {name: value for name, value in state.items() if "0.output.dense.bias" not in name}
    refused("lacks 1 weights of base", {**whole, "model_state_dict": torn})
    refused("lacks 1 weights of base='.*', or has them in another shape", base=tiny("build", labels=None))
    shutil.copytree(dnn / "base", tmp_path / "unmarked")
    words = tmp_path / "unmarked" / "tokenizer.json"
    words.write_text(words.read_text().replace("[unused", "[other"))
    refused(r"has no \[unused0\] and no \[unused1\]", base=tmp_path / "unmarked")
    parallel = {**whole, "model_state_dict": {f"module.{key}": value for key, value in state.items()}, "arguments": None}
    torch.save(parallel, tmp_path / "parallel.dnn")
    given = {"query_length": 12, "document_length": 40, "mask_punctuation": True}
    model = MultiVector.from_dnn(tmp_path / "parallel.dnn", base=dnn / "base", **given)
    own = MultiVector.from_dnn(dnn / "colbert.dnn", base=dnn / "base")
    np.testing.assert_allclose(by_row(model(PAIRS)), by_row(own(PAIRS)), atol=1e-6)
