"""Five published bi-encoders against plain transformers, one text at a time, with weights in their published form."""

import logging
import pickle
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias import BiEncoder, InputError
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.published import PUBLISHED
from tests.tiny_models import WORDS

RNG = np.random.default_rng(4)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 3, 9, 30, 70)] + ["Ünïcode; PUNCTUATION!", " A King "]
PAIRS = pd.DataFrame(
    [{"qid": q, "query": q, "docno": str(i), "text": t} for q in ("Who is the king", TEXTS[4]) for i, t in enumerate(TEXTS)]
)


def model(name, tiny, **options):
    """One of the five; these models have 128 positions, which bounds the longer documents."""
    if name == "adore":
        options["documents_by"] = BiEncoder.of("star", tiny("build_published", name="star", seed=5))
    return BiEncoder.of(name, tiny("build_published", name=name), **options)


LENGTHS = {"repbert": (22, 258), "ance": (64, 512), "tct-colbert": (36, 154), "star": (32, 256), "adore": (64, 0)}


@cache
def parts(name, folder):
    """The encoder and tokeniser of a folder, and all its weights."""
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    encoder = AutoModel.from_config(AutoConfig.from_pretrained(folder)).eval()
    weights = torch.load(f"{folder}/pytorch_model.bin", weights_only=True)
    prefix = f"ance_encoder.{encoder.base_model_prefix}." if name == "ance" else f"{encoder.base_model_prefix}."
    encoder.load_state_dict({k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)})
    return encoder, AutoTokenizer.from_pretrained(folder), {k.removeprefix("ance_encoder."): v for k, v in weights.items()}


def by_hand(name, folder, text, task):
    """What the authors' code computes for one text, written with transformers alone."""
    encoder, tokenizer, head = parts(name, folder)
    query, length = task == "query", min(LENGTHS[name][task == "document"], 128)
    if name == "tct-colbert":
        text = f"[CLS] [Q] {text}" + "[MASK]" * 36 if query else f"[CLS] [D] {text}"
    elif name != "repbert":
        text = text.lower()
        text = text if name == "ance" or text[0].isspace() else f" {text}"
    own = {"max_length": length, "truncation": True, "return_tensors": "pt", "add_special_tokens": name != "tct-colbert"}
    ids = tokenizer(text, **own)["input_ids"]
    types = {"token_type_ids": torch.full_like(ids, int(name == "repbert" and not query))}
    types = types if name in ("repbert", "tct-colbert") else {}
    with torch.inference_mode():
        states = encoder(input_ids=ids, attention_mask=torch.ones_like(ids), **types).last_hidden_state[0]
        if name == "repbert":
            return states.mean(dim=0)
        if name == "tct-colbert":
            return states[4:].mean(dim=0)
        projected = torch.nn.functional.linear(states[0], head["embeddingHead.weight"], head["embeddingHead.bias"])
        return torch.nn.functional.layer_norm(projected, (24,), head["norm.weight"], head["norm.bias"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_vectors_and_scores_are_those_of_transformers_one_text_at_a_time(name, tiny, tmp_path, caplog):
    ranker, folder = model(name, tiny), tiny("build_published", name=name)
    other, documents = (folder, name) if name != "adore" else (tiny("build_published", name="star", seed=5), "star")
    queries = torch.stack([by_hand(name, folder, text, "query") for text in TEXTS])
    docs = torch.stack([by_hand(documents, other, text, "document") for text in TEXTS])
    assert queries.shape == docs.shape == (len(TEXTS), 24 if name in ("ance", "star", "adore") else 32)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_allclose(ranker.encode_queries(TEXTS), queries, atol=2e-5)
    assert any("texts were cut to the window" in message for message in caplog.messages)
    np.testing.assert_allclose(ranker.encode_docs(TEXTS), docs, atol=2e-5)
    assert queries.std(dim=0).min() > 1e-3
    assert torch.allclose(queries[:3], docs[:3], atol=1e-3) == (name in ("ance", "star"))

    padded = model(name, tiny)
    padded.packed_features = lambda module: None
    np.testing.assert_allclose(padded.encode_queries(TEXTS), queries, atol=2e-5)
    tensors = ranker.tokenise(PAIRS["query"].tolist(), PAIRS["text"].tolist())
    scores = ranker.score_pairs(PAIRS["query"].tolist(), PAIRS["text"].tolist())
    np.testing.assert_allclose(ranker.forward(**tensors).detach(), scores, atol=1e-3)
    expected = [by_hand(name, folder, PAIRS["query"][0], "query") @ d for d in docs]
    np.testing.assert_allclose(scores[: len(docs)], expected, rtol=1e-4, atol=1e-4)
    alone = [ranker.score_pairs([q], [d])[0] for q, d in zip(PAIRS["query"][:3], PAIRS["text"][:3])]
    np.testing.assert_allclose(alone, scores[:3], atol=1e-4)

    ranker.save(tmp_path / "saved")
    for again in (BiEncoder(str(tmp_path / "saved")), BiEncoder.load(tmp_path / "saved"), pickle.loads(pickle.dumps(ranker))):
        assert again.published == name
        np.testing.assert_allclose(again(PAIRS)["score"], ranker(PAIRS)["score"], atol=1e-4)


def test_a_document_may_be_shorter_than_published(tiny):
    ranker = model("tct-colbert", tiny, max_length=20)
    cut = " ".join(TEXTS[4].split()[:16])  # four tokens are the prefix
    np.testing.assert_allclose(ranker.encode_docs([TEXTS[4]]), ranker.encode_docs([cut]), atol=1e-6)
    assert ranker.task_window("query") == 36
    np.testing.assert_array_equal(ranker.encode_docs([""]), np.zeros((1, 32)))


def test_adores_documents_stay_as_they_are(tiny):
    from tests.training.toy import candidates, qrels, training

    ranker = model("adore", tiny, training=training(max_steps=2, warmup=0, batch_size=4))
    before = ranker.encode_queries(TEXTS), ranker.encode_docs(TEXTS)
    ranker.fit(candidates(), qrels())
    assert np.abs(ranker.encode_queries(TEXTS) - before[0]).max() > 1e-4
    np.testing.assert_array_equal(ranker.encode_docs(TEXTS), before[1])


def test_names_are_found_in_other_spellings_and_no_others_are_guessed(tiny):
    assert [BiEncoder.of(name, "a/model").published for name in ("RepBERT", "TCT_ColBERT", "TCTColBERT", "ANCE")] == [
        "repbert",
        "tct-colbert",
        "tct-colbert",
        "ance",
    ]
    for name in ("tas-b", "DPR", ""):
        with pytest.raises(InputError, match="use one of 'repbert', 'ance', 'tct-colbert', 'star', 'adore'"):
            BiEncoder.of(name, "a/model")
    with pytest.raises(InputError, match="'adore' encodes queries alone; give documents_by="):
        BiEncoder.of("adore", "a/model")
    with pytest.raises(InputError, match="documents_by is a str; give the BiEncoder"):
        BiEncoder.of("adore", "a/model", documents_by="a/star")
    with pytest.raises(InputError, match="has its own pooling"):
        BiEncoder.of("ance", "a/model", pooling="mean")
    for row in PUBLISHED.values():
        assert "github.com/" in row.source


def test_other_checkpoints_are_refused(tiny, tmp_path):
    with pytest.raises(InputError, match="is a bert model, not roberta"):
        BiEncoder.of("ance", tiny(labels=None)).warm_up()
    with pytest.raises(InputError, match="has 0 weights 'embeddingHead"):
        BiEncoder.of("ance", tiny(architecture="roberta", labels=None)).warm_up()
    with pytest.raises(InputError, match="expected Transformer, Pooling, Dense, LayerNorm with cls pooling over roberta"):
        BiEncoder.of("star", tiny("build_sentence_transformer")).warm_up()
    whole, folder = tiny("build_published", name="repbert"), tmp_path / "torn"
    folder.mkdir()
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(whole) / file, folder)
    weights = torch.load(f"{whole}/pytorch_model.bin", weights_only=True)
    torch.save({k: v for k, v in weights.items() if "layer.1.output" not in k}, folder / "pytorch_model.bin")
    with pytest.raises(InputError, match="lacks 4 weights of its encoder"):
        BiEncoder.of("repbert", folder).warm_up()
    ready = model("repbert", tiny)
    same = BiEncoder.of("repbert", InMemory(ready.module, ready.tokenizer))
    np.testing.assert_allclose(same(PAIRS)["score"], ready(PAIRS)["score"], atol=1e-5)
