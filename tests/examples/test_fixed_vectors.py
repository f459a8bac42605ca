"""Linear layers over fixed vectors, which the programs train: scores against arithmetic, and what training leaves alone."""

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias import Training
from tests import tiny_models
from tests.conftest import ROOT, importable

QUERIES = ["who built the bridge", "where is the old harbour"]
DOCS = ["the bridge was built in stone", "a harbour for ships", "the king"]


@pytest.fixture(scope="module")
def adapters():
    """The module of the examples."""
    with importable(ROOT / "examples"):
        import fixed_vectors

        yield fixed_vectors


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build_sentence_transformer(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
def cosines(model):
    """Of each query with each document, by the library itself."""
    from sentence_transformers import SentenceTransformer

    module = SentenceTransformer(str(model), device="cpu")
    return module.encode_query(QUERIES, normalize_embeddings=True) @ module.encode_document(DOCS, normalize_embeddings=True).T


def candidates():
    rows = [(f"q{i}", query, f"d{j}", text) for i, query in enumerate(QUERIES) for j, text in enumerate(DOCS)]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])


def test_an_untrained_adapter_is_the_cosine(adapters, model, cosines):
    ranker = adapters.adapter(str(model))
    frame = candidates()
    found = ranker.score(frame["query"].tolist(), frame["text"].tolist()).reshape(2, 3)
    np.testing.assert_allclose(found, adapters.SCALE * cosines, atol=1e-4)


def test_training_moves_the_layer_and_nothing_else(adapters, model):
    ranker = adapters.adapter(str(model), dropout=0.0, training=Training(max_steps=100, batch_size=2, learning_rate=0.02))
    fixed = adapters.vectors(str(model), "document", DOCS).copy()
    qrels = pd.DataFrame({"qid": ["q0", "q1"], "docno": ["d1", "d0"], "label": 1})
    # Each query's answer is the other's: the cosine has to be unlearned.
    ranked = ranker(candidates()).groupby("qid")["docno"].first()
    ranker.fit(candidates(), qrels)
    after = ranker(candidates()).groupby("qid")["docno"].first()
    assert after.to_dict() == {"q0": "d1", "q1": "d0"} != ranked.to_dict()
    np.testing.assert_array_equal(adapters.vectors(str(model), "document", DOCS), fixed)
    (weights,) = ranker.module.parameters()
    assert not torch.equal(weights, torch.eye(len(weights)) * adapters.SCALE**0.5)


def test_vectors_that_were_kept_are_read_back(adapters, model, tmp_path, monkeypatch):
    texts = ["a red bridge", "the old harbour", "a red bridge"]
    adapters.read_once(str(model), "document", texts, tmp_path)
    made = adapters.vectors(str(model), "document", texts)
    adapters._known.cache_clear()
    monkeypatch.setattr(type(adapters._encoder(str(model))), "encode", lambda *_, **__: pytest.fail("encoded again"))
    for _ in range(2):
        adapters.read_once(str(model), "document", texts, tmp_path)
    np.testing.assert_array_equal(adapters.vectors(str(model), "document", texts), made)


def test_a_text_is_encoded_once_for_all_adapters(adapters, model, monkeypatch):
    first, second = (adapters.adapter(str(model)) for _ in range(2))
    first.score(QUERIES, DOCS[:2])
    monkeypatch.setattr(type(adapters._encoder(str(model))), "encode", lambda *_, **__: pytest.fail("encoded again"))
    assert second.score(QUERIES, DOCS[:2]).shape == (2,)
