import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import CrossEncoder, InputError, T5Reranker
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.t5 import log_probability_of_first
from tests.rankers.t5_models import log_probability, with_positions
from tests.tiny_models import WORDS, unigram_tokenizer

RNG = np.random.default_rng(2)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 2, 4, 8, 16, 30)] + ["", " Odd  spacing, Ünïcode {text} ", "true"]
PAIRS = pd.DataFrame(
    [
        {"qid": q, "query": q, "docno": str(i), "text": text}
        for q in ("what is the red king", "how does a {query} work")
        for i, text in enumerate(TEXTS)
    ]
)


@pytest.fixture(scope="session")
def folder(tiny):
    return with_positions(tiny("build_t5"))


def by_row(out):
    return out.set_index(["qid", "docno"]).loc[list(zip(PAIRS["qid"], PAIRS["docno"]))]["score"].to_numpy()


def peer(folder, batch_size=1, **config):
    from pyterrier_t5 import MonoT5ReRanker

    found = MonoT5ReRanker(tok_model=folder, model=folder, batch_size=batch_size, device="cpu", verbose=False)
    for name, value in config.items():
        setattr(found.model.config, name, value)
    return found


def peer_scores(folder, pairs, **config):
    out = peer(folder, **config)(pairs.reset_index(drop=True))
    return out.set_index(["qid", "docno"]).loc[list(zip(pairs["qid"], pairs["docno"]))]["score"].to_numpy()


def test_scores_are_those_of_pyterrier_t5_one_pair_at_a_time(folder):
    scores = by_row(T5Reranker(folder)(PAIRS))
    np.testing.assert_allclose(scores, peer_scores(folder, PAIRS), atol=1e-5)
    assert scores.std() > 1e-3 and (scores < 0).all()


def test_pyterrier_t5s_own_scores_depend_on_their_batch(folder):
    """A short text beside the longest one is padded between its end and "Relevant:". Ours are those of one pair a batch."""
    alone, beside = peer_scores(folder, PAIRS), peer_scores(folder, PAIRS, batch_size=4)
    assert np.abs(beside - alone).max() > 1e-2
    np.testing.assert_allclose(by_row(T5Reranker(folder, batch_tokens=4096)(PAIRS)), alone, atol=1e-5)


@pytest.mark.parametrize("window", [20, 512])
def test_a_reranker_of_pyterrier_t5_is_taken_over(folder, window):
    theirs = peer(folder, batch_size=4, n_positions=window)
    theirs.text_field = "body"
    ours = T5Reranker.from_pyterrier_t5(theirs, batch_tokens=64)
    np.testing.assert_allclose(
        by_row(ours(PAIRS.rename(columns={"text": "body"}))), peer_scores(folder, PAIRS, n_positions=window), atol=1e-5
    )
    assert ours.module is theirs.model and ours.batch_tokens == 64


def test_a_multilingual_reranker_of_pyterrier_t5_is_taken_over(tmp_path):
    """It answers yes and no, and reads 512 tokens whatever the configuration says."""
    import torch
    from pyterrier_t5 import mT5ReRanker
    from transformers import MT5Config, MT5ForConditionalGeneration

    tokenizer = unigram_tokenizer()
    tokenizer.add_tokens(["yes", "no"])
    torch.manual_seed(5)
    module = MT5ForConditionalGeneration(
        MT5Config(vocab_size=len(tokenizer), d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, decoder_start_token_id=0)
    )
    module.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    theirs = mT5ReRanker(tok_model=str(tmp_path), model=str(tmp_path), batch_size=1, verbose=False)
    ours = T5Reranker.from_pyterrier_t5(theirs)
    assert (ours.tokens, ours.window) == (("yes", "no"), 512)
    pairs = pd.concat([PAIRS, PAIRS.iloc[[5]].assign(docno="long", text=lambda f: f["text"] * 30)], ignore_index=True)
    expected = theirs(pairs).set_index(["qid", "docno"])["score"]
    pd.testing.assert_series_equal(ours(pairs).set_index(["qid", "docno"])["score"].loc[expected.index], expected, atol=1e-5)


def test_no_other_reranker_is_taken_over():
    with pytest.raises(InputError, match="a CrossEncoder is not a MonoT5ReRanker or mT5ReRanker"):
        T5Reranker.from_pyterrier_t5(CrossEncoder("any/model"))


@pytest.mark.parametrize("window", [12, 20, 33])
def test_a_long_document_is_cut_and_the_question_survives(folder, window, caplog):
    model = T5Reranker(folder, max_length=window)
    with caplog.at_level(logging.WARNING):
        scores = by_row(model(PAIRS))
    np.testing.assert_allclose(scores, peer_scores(folder, PAIRS, n_positions=window), atol=1e-5)
    sequences = model.sequences(PAIRS["query"].tolist(), PAIRS["text"].tolist())
    assert sequences.lengths.max() == window
    for i in range(len(PAIRS)):
        assert model.tokenizer.decode(sequences.ids(i)).endswith("Relevant:</s>")
    (message,) = caplog.messages
    cut = int((sequences.cut > 0).sum())
    assert 0 < cut and message.startswith(f"T5Reranker: {cut} of {len(PAIRS)} texts were cut to the window of {window} tokens")


@pytest.mark.parametrize("kind", ["T5", "MT5", "UMT5"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_architecture_answers_as_its_own_forward_does(kind, tied):
    import torch
    import transformers

    tokenizer = unigram_tokenizer()
    options = {"vocab_size": len(tokenizer), "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4}
    config = getattr(transformers, f"{kind}Config")(
        **options, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, tie_word_embeddings=tied
    )
    torch.manual_seed(3)
    module = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    model = T5Reranker(
        InMemory(module, tokenizer), prompt="Document for {query} : {text} answer ?", tokens=("bridge", "river")
    )
    pairs = [("red king", "a long river"), ("blue", "city")]
    expected = [
        log_probability(module, tokenizer, f"Document for {q} : {d} answer ?", ("bridge", "river")) for q, d in pairs
    ]
    np.testing.assert_allclose(model.score_pairs(*map(list, zip(*pairs))), expected, atol=1e-5)


HEADS = {name: {"head": name} for name in ("rankt5", "rankt5-encoder")}


@pytest.fixture(scope="module")
def extra(tiny):
    return tiny("build_t5", extra=True)


@pytest.mark.parametrize("head", HEADS)
def test_rankt5_scores_are_transformers_own_one_pair_at_a_time(extra, head, tmp_path):
    """The whole T5 and its whole vocabulary; or the encoder alone, with the saved layer on its first state, by hand."""
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, T5EncoderModel, T5ForConditionalGeneration

    model = T5Reranker(extra, head=head, seed=3, batch_tokens=4096)
    scores = by_row(model(PAIRS))
    tokenizer = AutoTokenizer.from_pretrained(extra)
    if head == "rankt5":
        whole = T5ForConditionalGeneration.from_pretrained(extra).eval()
        start, one = torch.zeros(1, 1, dtype=torch.long), tokenizer.get_vocab()["<extra_id_10>"]

        def score(read):
            return whole(**read, decoder_input_ids=start).logits[0, 0, one]
    else:
        model.save(tmp_path / "saved")
        encoder = T5EncoderModel.from_pretrained(tmp_path / "saved").eval()
        layer = load_file(tmp_path / "saved" / "head.safetensors")

        def score(read):
            return encoder(**read).last_hidden_state[0, 0] @ layer["weight"][0] + layer["bias"][0]

    with torch.inference_mode():
        expected = [
            float(score(tokenizer(f"Query: {query} Document: {text}", return_tensors="pt")))
            for query, text in zip(PAIRS["query"], PAIRS["text"])
        ]
    np.testing.assert_allclose(scores, expected, atol=1e-5)
    assert np.std(expected) > 1e-3
    alone = [model(PAIRS.iloc[[i]])["score"].iloc[0] for i in range(0, len(PAIRS), 4)]
    np.testing.assert_allclose(alone, scores[::4], atol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_a_rankt5_is_saved_copied_and_sent(extra, head, tmp_path, caplog):
    model = T5Reranker(extra, head=head, seed=3)
    scores = by_row(model(PAIRS))
    fresh = [message for message in caplog.messages if "a new one (seed 3)" in message]
    assert len(fresh) == (head == "rankt5-encoder")
    model.save(tmp_path / "saved")
    caplog.clear()
    saved = T5Reranker(str(tmp_path / "saved"))
    assert saved.head == head and saved != model
    for again in (saved, T5Reranker(model, **HEADS[head]), pickle.loads(pickle.dumps(model))):
        np.testing.assert_allclose(by_row(again(PAIRS)), scores, atol=1e-6)
    other = T5Reranker(extra, head=head, seed=4)
    assert other != model and model == T5Reranker(extra, head=head, seed=3, prompt="Query: {query} Document: {text}")
    assert np.allclose(by_row(other(PAIRS)), scores) == (head == "rankt5")


def test_a_whole_t5_and_its_encoder_are_not_taken_for_each_other(extra, tiny, tmp_path):
    encoder = T5Reranker(extra, head="rankt5-encoder")
    encoder.save(tmp_path / "saved")
    for wrong, message in (
        (T5Reranker(str(tmp_path / "saved"), head="rankt5"), "holds an encoder without a decoder"),
        (T5Reranker(encoder, head="monot5"), "head='monot5' needs a decoder, but the model is an encoder"),
        (T5Reranker(InMemory(encoder.module, encoder.tokenizer)), "head='monot5' needs a decoder, but the model is an encoder"),
        (T5Reranker(T5Reranker(extra), head="rankt5-encoder"), "reads only an encoder, but the model is a whole T5"),
        (T5Reranker(tiny("build_t5"), head="rankt5"), "has no token '<extra_id_10>'"),
        (CrossEncoder(str(tmp_path / "saved")), "is a T5EncoderModel, not an encoder"),
    ):
        with pytest.raises(InputError, match=message):
            wrong(PAIRS)


def test_log_probability():
    import torch

    logits = torch.tensor([[0.0, 0.0], [1.0, 3.0], [200.0, -200.0]])
    expected = [np.log(0.5), -np.log1p(np.exp(2.0)), 0.0]
    np.testing.assert_allclose(log_probability_of_first(logits), expected, atol=1e-6)


@pytest.fixture(scope="module")
def scorer(folder):
    return T5Reranker(folder)


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
    np.testing.assert_allclose(out.loc[list(zip(inp["qid"], inp["docno"]))], expected, atol=1e-5)


def test_pairs_are_tokenised_in_parts(folder, monkeypatch, caplog):
    expected = by_row(T5Reranker(folder, max_length=20)(PAIRS))
    (message,) = caplog.messages
    caplog.clear()
    monkeypatch.setattr("pyterrier_debias.rankers.engine.CHUNK", 5)
    np.testing.assert_allclose(by_row(T5Reranker(folder, max_length=20)(PAIRS)), expected, atol=1e-5)
    assert caplog.messages == [message]


def test_protocol_scores_are_the_engines(folder):
    import torch

    model = T5Reranker(folder, max_length=40)
    queries, docs = PAIRS["query"].tolist(), PAIRS["text"].tolist()
    tensors = model.tokenise(queries, docs)
    assert {len(tensor) for tensor in tensors.values()} == {len(PAIRS)}
    scores = model.forward(**tensors)
    np.testing.assert_allclose(scores.detach().numpy(), model.score_pairs(queries, docs), atol=1e-5)
    before, copy = model.fingerprint(), T5Reranker(folder, max_length=40)
    assert model == copy
    scores.sum().backward()
    torch.optim.SGD(model.module.parameters(), lr=0.1).step()
    assert model.fingerprint() != before and model != copy
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.score_pairs(queries, docs), model.score_pairs(queries, docs), atol=1e-6)


def test_a_saved_ranker_scores_the_same(folder, tmp_path):
    model = T5Reranker(folder)
    model.save(tmp_path / "saved")
    again = T5Reranker(str(tmp_path / "saved"), max_length=model.window)
    np.testing.assert_allclose(by_row(again(PAIRS)), by_row(model(PAIRS)), atol=1e-6)
    with pytest.raises(InputError, match="exists already"):
        model.save(tmp_path / "saved")


def test_half_precision_stays_close(folder):
    np.testing.assert_allclose(by_row(T5Reranker(folder, dtype="bfloat16")(PAIRS)), by_row(T5Reranker(folder)(PAIRS)), atol=0.1)


def test_many_threads_share_a_model(folder):
    model = T5Reranker(folder)
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: by_row(model(PAIRS)), range(6)))
    np.testing.assert_allclose(results, np.tile(results[0], (6, 1)), atol=1e-5)


def test_empty_frames_need_no_model():
    out = T5Reranker("no/such-model")(PAIRS.iloc[:0])
    assert list(out.columns) == [*PAIRS.columns, "score", "rank"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "float16"}, "overflow in float16"),
        ({"prompt": "Query: {query}"}, "must hold {query} and, after it, {text}"),
        ({"prompt": "{text} {query}"}, "must hold {query} and, after it, {text}"),
        ({"tokens": "true"}, "must be two words"),
        ({"tokens": ("true",)}, "must be two words"),
        ({"head": "rankt5", "tokens": ("true", "false")}, "must be one token, with head='rankt5'; e.g. .'<extra_id_10>'"),
        ({"head": "rankt5-encoder", "tokens": ("true",)}, "must be None, with head='rankt5-encoder'"),
    ],
)
def test_bad_options_are_refused_before_a_model_is_looked_for(options, message):
    with pytest.raises(InputError, match=message):
        T5Reranker("/no/such/folder", **options)(PAIRS)


def test_bad_models_and_texts(folder, tiny):
    with pytest.raises(InputError, match="there is no model folder"):
        T5Reranker("/no/such/folder")(PAIRS)
    with pytest.raises(InputError, match="is a bert model, not one of t5"):
        T5Reranker(tiny("build")).warm_up()
    with pytest.raises(InputError, match="does not distinguish 'true' from 'true'"):
        T5Reranker(folder, tokens=("true", "true"))(PAIRS)
    with pytest.raises(InputError, match="does not distinguish '日' from '本'"):
        T5Reranker(folder, tokens=("日", "本"))(PAIRS)
    with pytest.raises(InputError, match="column 'text' has no value at row 0"):
        T5Reranker(folder)(PAIRS.assign(text=None))
