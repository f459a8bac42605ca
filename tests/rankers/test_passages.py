"""Long documents in passages: PARADE, CEDR-KNRM and Birch against their formulas, one sequence at a time."""

from __future__ import annotations

import logging
import math
import pickle
import random

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import AdversarialReranker, CrossEncoder, InputError
from pyterrier_debias.rankers import heads
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.long_documents import CONVENTIONS, PassageSequences, spread, windows
from tests.tiny_models import WORDS
from tests.training.toy import candidates, qrels, training

DRAW = random.Random(0)
QUERIES = ["who built the old bridge", "harbour"]
#: From no passage's worth of words to more passages than are read, in sentences of five words.
DOCS = [
    "".join(f"{word}{'. ' if i % 5 == 4 else ' '}" for i, word in enumerate(DRAW.choices(WORDS, k=k)))
    for k in (0, 3, 11, 12, 24, 60)
]
PAIRS = [(query, doc) for query in QUERIES for doc in DOCS]
CUT = {"passage_length": 12, "passage_stride": 9, "max_passages": 4}
SYSTEMS = {
    **{name: ("bert", {"head": name, "long": "windows"}) for name in CONVENTIONS if name != "birch"},
    "parade-max, sentences": ("bert", {"head": "parade-max", "long": "sentences"}),
    "cedr-knrm, sentences": ("distilbert", {"head": "cedr-knrm", "long": "sentences"}),
    "cedr-knrm, one passage": ("roberta", {"head": "cedr-knrm"}),
    "parade-transformer, narrow embeddings": ("electra", {"head": "parade-transformer", "long": "windows"}),
    "parade-attention, without token types": ("roberta", {"head": "parade-attention", "long": "windows"}),
}


@pytest.fixture(scope="module")
def folders(tiny, tmp_path_factory):
    """Each system with weights of the head that are no longer small."""
    found = {}
    for name, (architecture, options) in SYSTEMS.items():
        ranker = CrossEncoder(tiny(architecture=architecture, labels=None, positions=128), **CUT, **options)
        torch.manual_seed(1)
        with torch.no_grad():
            for weight in ranker.module.on_top.parameters():
                weight += torch.randn_like(weight) * (0.02 if name.startswith("cedr") else 0.2)
        found[name] = str(tmp_path_factory.mktemp("passages") / "saved")
        ranker.save(found[name])
    return found


def cut(tokenizer, text, long):
    """The passages of a text as token ids: by a loop over tokens, or by a split at full stops."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if long == "sentences":
        parts = [part + "." for part in text.strip().split(". ") if part.strip(".")]
        if not text.rstrip().endswith(".") and parts:
            parts[-1] = parts[-1].removesuffix(".")
        pieces = [tokenizer(part.replace("..", "."), add_special_tokens=False)["input_ids"] for part in parts] or [[]]
    elif long == "windows":
        pieces, start = [], 0
        while start == 0 or start - CUT["passage_stride"] + CUT["passage_length"] < len(ids):
            pieces.append(ids[start : start + CUT["passage_length"]])
            start += CUT["passage_stride"]
    else:
        pieces = [ids]
    most = CUT["max_passages"]
    if len(pieces) > most:
        pieces = [pieces[round(i * (len(pieces) - 1) / (most - 1))] for i in range(most)]
    return pieces


def read(tokenizer, query, piece):
    """One sequence as its architecture frames it, and where in it the query and the passage stand."""
    ids = tokenizer(query, add_special_tokens=False)["input_ids"]
    between = [tokenizer.sep_token_id] * (2 if tokenizer.sep_token == "</s>" else 1)
    whole = [tokenizer.cls_token_id, *ids, *between, *piece, tokenizer.sep_token_id]
    end = len(whole) - 1 - len(piece)
    tensors = {"input_ids": torch.tensor([whole]), "attention_mask": torch.ones(1, len(whole), dtype=torch.long)}
    if "token_type_ids" in tokenizer.model_input_names:
        first = len(ids) + 2
        tensors["token_type_ids"] = torch.tensor([[0] * first + [1] * (len(whole) - first)])
    return tensors, range(1, 1 + len(ids)), range(end, len(whole) - 1)


def vectors_of(encoder, tokenizer, query, pieces):
    out = []
    for piece in pieces:
        found = encoder(**read(tokenizer, query, piece)[0])
        out.append(found.pooler_output[0] if getattr(found, "pooler_output", None) is not None else found.last_hidden_state[0, 0])
    return torch.stack(out)


def bert_layer(weights, place, encoder):
    """transformers' own layer with the weights of ours."""
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertLayer

    size, before = encoder.config.hidden_size, f"aggregation.{place}."
    layer = BertLayer(BertConfig(hidden_size=size, num_attention_heads=4, intermediate_size=64, _attn_implementation="eager"))
    state = {}
    for kind in ("weight", "bias"):
        parts = weights[f"{before}self_attn.in_proj_{kind}"].split(size)
        state |= {f"attention.self.{name}.{kind}": part for name, part in zip(("query", "key", "value"), parts)}
        for theirs, ours in {
            "attention.output.dense": "self_attn.out_proj",
            "attention.output.LayerNorm": "norm1",
            "intermediate.dense": "linear1",
            "output.dense": "linear2",
            "output.LayerNorm": "norm2",
        }.items():
            state[f"{theirs}.{kind}"] = weights[f"{before}{ours}.{kind}"]
    layer.load_state_dict(state)
    return layer.eval()


def parade(encoder, tokenizer, weights, how, query, pieces):
    vectors = vectors_of(encoder, tokenizer, query, pieces)
    if how == "max":
        one = torch.stack([max(column) for column in vectors.T])
    elif how == "avg":
        one = sum(vectors) / len(vectors)
    elif how == "attention":
        logits = [float(weights["aggregation.0.weight"][0] @ vector) for vector in vectors]
        total = sum(math.exp(logit) for logit in logits)
        one = sum(math.exp(logit) / total * vector for logit, vector in zip(logits, vectors))
    else:
        start = encoder.embeddings.word_embeddings.weight[tokenizer.cls_token_id]
        start = encoder.embeddings_project(start) if hasattr(encoder, "embeddings_project") else start
        states = torch.cat([start[None], vectors])[None]
        for place in range(2):
            states = bert_layer(weights, place, encoder)(states)
            states = states[0] if isinstance(states, tuple) else states
        one = states[0, 0]
    return float(weights["classifier.weight"][0] @ one + weights["classifier.bias"][0])


def cedr(encoder, tokenizer, weights, query, pieces):
    """One layer, one kernel, one query term and one term of the document at a time."""
    found = [read(tokenizer, query, piece) for piece in pieces]
    states = [[s[0].double().numpy() for s in encoder(**r[0], output_hidden_states=True).hidden_states] for r in found]
    features = []
    for layer in range(len(states[0])):
        terms = [states[0][layer][i] for i in found[0][1]]
        others = [state[layer][j] for state, (_, _, places) in zip(states, found) for j in places]
        cosines = [[q @ d / math.sqrt(q @ q) / math.sqrt(d @ d) for d in others] for q in terms]
        for mu in (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9):
            sigma = 0.001 if mu == 1 else 0.1
            features.append(sum(math.log(sum(math.exp(-((c - mu) ** 2) / 2 / sigma**2) for c in row) + 1e-6) for row in cosines))
    features += list(np.mean([state[-1][0] for state in states], axis=0))
    return float(weights["weight"][0].double().numpy() @ np.array(features) + float(weights["bias"][0]))


@pytest.mark.parametrize("name", SYSTEMS)
def test_scores_are_those_of_the_formulas_one_sequence_at_a_time(folders, name, caplog):
    from safetensors.torch import load_file
    from transformers import AutoModel, AutoTokenizer

    _, options = SYSTEMS[name]
    folder = folders[name]
    encoder, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    weights, head = load_file(f"{folder}/head.safetensors"), options["head"]
    expected = []
    with torch.inference_mode():
        for query, doc in PAIRS:
            pieces = cut(tokenizer, doc, options.get("long"))
            if head == "cedr-knrm":
                expected.append(cedr(encoder, tokenizer, weights, query, pieces))
            else:
                expected.append(parade(encoder, tokenizer, weights, head.removeprefix("parade-"), query, pieces))
    assert np.std(expected) > 0.05
    ranker = CrossEncoder(folder, batch_tokens=96)
    assert (ranker.head, ranker.passage_length, ranker.max_passages) == (head, 12, 4)
    found = ranker.score(*zip(*PAIRS))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    half = CrossEncoder(folder, dtype="float16").score(*zip(*PAIRS))
    # Half precision has eleven bits, and how it is summed differs by processor: one of these scores is off by up to 0.0054.
    np.testing.assert_allclose(half, expected, atol=0.05 if head == "cedr-knrm" else 0.01)
    # By the training protocol too, all of them at once, and each by itself.
    with torch.enable_grad():
        together = ranker.forward(**ranker.tokenise(*map(list, zip(*PAIRS)))).detach().numpy()
    np.testing.assert_allclose(together, expected, rtol=1e-5, atol=1e-5)
    for i in (4, 5):
        np.testing.assert_allclose(ranker.score(*[[text] for text in PAIRS[i]]), expected[i], rtol=1e-5, atol=1e-5)


def by_parameter(ranker):
    ranker.module.zero_grad()
    ranker.forward(**ranker.tokenise(*map(list, zip(*PAIRS)))).square().sum().backward()
    return {name: weight.grad for name, weight in ranker.module.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("name", ["parade-max", "cedr-knrm"])
def test_passages_are_computed_once_more_for_the_same_gradients(folders, name, monkeypatch):
    """Each passage's place goes through the encoder twice, so that nothing inside needs to be kept between the passes."""
    ranker, calls = CrossEncoder(folders[name]), []
    ranker.scoring_module().encoder.register_forward_pre_hook(lambda *_: calls.append(torch.is_grad_enabled()))
    found = by_parameter(ranker)
    assert len(calls) == 2 * CUT["max_passages"]
    monkeypatch.setattr(heads, "_recomputed", lambda run, tensors, needed: run(**tensors))
    calls.clear()
    expected = by_parameter(ranker)
    assert len(calls) == CUT["max_passages"] and found.keys() == expected.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(found[weight], gradient, rtol=1e-4, atol=1e-6)
    assert any(gradient.abs().max() > 1e-3 for name, gradient in expected.items() if name.startswith("encoder."))


def test_birch_adds_the_probabilities_of_the_best_sentences(tiny):
    folder, plain = tiny(labels=2), CrossEncoder(tiny(labels=2))
    weights = [1.0, 0.5]
    expected = []
    for query, doc in PAIRS:
        sentences = [part for part in doc.strip().replace(". ", ".\n").split("\n") if part] or [doc]
        chances = sorted((1 / (1 + math.exp(-plain.score([query], [one])[0])) for one in sentences), reverse=True)
        expected.append(sum(weight * chance for weight, chance in zip(weights, chances)))
    birch = CrossEncoder.of("birch", folder, sentence_weights=weights)
    np.testing.assert_allclose(birch.score(*zip(*PAIRS)), expected, atol=1e-6)
    assert np.ptp(expected) > 0.1
    third = CrossEncoder.of("birch", folder)
    assert third == CrossEncoder(folder, long="sentences", sentence_weights=(1, 1, 1)) != birch
    assert birch != plain


@given(length=st.integers(0, 90), size=st.integers(1, 20), overlap=st.integers(0, 19), most=st.integers(1, 8))
@settings(max_examples=60)
def test_windows_are_those_of_parades_public_code(length, size, overlap, most):
    """Its rule: from the start on, until nothing or no more than the overlap is left."""
    stride = max(size - overlap, 1)
    expected, start = [], 0
    while start < length:
        end = min(start + size, length)
        if expected and end - start <= size - stride:
            break
        expected.append((start, end))
        start += stride
    found = windows(length, size, stride)
    assert found == (expected or [(0, 0)])
    kept = spread(len(found), most)
    assert len(set(kept)) == len(kept) == min(most, len(found)) and kept == sorted(kept) and kept[0] == 0
    assert most == 1 or kept[-1] == len(found) - 1


def test_what_no_passage_holds_is_counted(tiny, caplog):
    """Against a set of the tokens that are read; windows that do not fit lose their ends."""
    tokenizer = CrossEncoder(tiny()).tokenizer
    for window, most, stride in ((128, 3, 9), (14, 4, 9), (128, 2, 15)):
        query = "old bridge"
        found = PassageSequences(
            tokenizer, window, [query] * len(DOCS), DOCS, long="windows", size=12, stride=stride, most=most
        )
        room = window - 3 - 2
        for doc, lost, left in zip(DOCS, found.cut, found.lengths):
            length = len(tokenizer(doc, add_special_tokens=False)["input_ids"])
            places = windows(length, 12, stride)
            held = {i for at in spread(len(places), most) for i in range(places[at][0], min(places[at][1], places[at][0] + room))}
            assert (lost, left) == (length - len(held), len(held))
    with caplog.at_level(logging.WARNING):
        CrossEncoder(tiny(labels=None), head="parade-max", long="windows", passage_length=20, passage_stride=20, max_passages=2)(
            pd.DataFrame({"qid": "1", "query": "bridge", "docno": ["a", "b"], "text": DOCS[-2:]})
        )
    assert "1 of 2 documents are not read completely" in caplog.text


def test_they_are_saved_copied_and_not_taken_for_each_other(folders, tiny, tmp_path, caplog):
    ranker = CrossEncoder(folders["parade-max"])
    scores = ranker.score(*zip(*PAIRS))
    assert not [record for record in caplog.records if "random" in record.getMessage()]
    for again in (pickle.loads(pickle.dumps(ranker)), CrossEncoder(ranker, head="parade-max", long="windows", **CUT)):
        np.testing.assert_allclose(again.score(*zip(*PAIRS)), scores, atol=1e-6)
    fresh = CrossEncoder.of("parade-avg", tiny(labels=None))
    assert (fresh.passage_length, fresh.passage_stride, fresh.max_passages) == (225, 200, 16)
    assert fresh != CrossEncoder.of("parade-avg", tiny(labels=None), seed=1) != CrossEncoder.of("parade-max", tiny(labels=None))
    fresh.warm_up()
    assert "has no classification head; a new one on passages (parade-avg)" in caplog.text
    ranker.write(tmp_path / "bare")  # without the file that tells the options
    for wrong, message in (
        (CrossEncoder(tmp_path / "bare"), "has the head 'parade-max'; open it with head='parade-max'"),
        (CrossEncoder(tmp_path / "bare", head="cedr-knrm"), "has the head 'parade-max'"),
        (CrossEncoder(ranker), "head='cls' does not fit the model in memory"),
        (CrossEncoder(InMemory(ranker.module, ranker.tokenizer), head="cedr-knrm"), "does not fit the model in memory"),
        (CrossEncoder(CrossEncoder(tiny()), head="parade-max"), "does not fit the model in memory"),
        (CrossEncoder(tiny(), long="windows"), "long='windows' needs a head that reads passages together"),
        *((CrossEncoder(tiny(), sentence_weights=some), "sentence_weights=.* must be a list") for some in ([], "1", 1.0)),
        *((CrossEncoder(tiny(), sentence_weights=[1, some]), "must be a finite number") for some in ("1", float("nan"), None)),
    ):
        with pytest.raises(InputError, match=message):
            wrong(candidates())


def test_rates_of_its_own_and_other_ways_to_train(tiny):
    ranker = CrossEncoder(tiny(labels=None), head="cedr-knrm", long="windows", passage_length=6, passage_stride=6)
    before = {name: weight.detach().clone() for name, weight in ranker.module.named_parameters()}
    ranker.training = training(max_steps=1, warmup=0, learning_rate={"encoder": 1e-12, "head": 1e-2})
    ranker.fit(candidates(), qrels())
    change = {name: float((weight - before[name]).abs().max()) for name, weight in ranker.module.state_dict().items()}
    assert "combine.weight" in {name for name, step in change.items() if step > 1e-6} <= {"combine.weight", "combine.bias"}
    spoken = candidates().assign(text=lambda f: [t + " she and her" * (int(d[-1]) % 2) for t, d in zip(f["text"], f["docno"])])
    options = training(max_steps=1)
    parade = CrossEncoder.of("parade-max", tiny(labels=None))
    assert np.isfinite(AdversarialReranker(parade, training=options).fit(spoken, qrels())(spoken)["score"]).all()
    with pytest.raises(InputError, match="has no classification head for the adversary"):
        AdversarialReranker(ranker, training=options).fit(spoken, qrels())
