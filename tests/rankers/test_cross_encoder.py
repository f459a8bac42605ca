"""CrossEncoder: its scores against Hugging Face and sentence-transformers, and its promises as a stage."""

from __future__ import annotations

import copy
import logging
import pickle
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import BiEncoder, CrossEncoder, InputError, Training
from pyterrier_debias.core.cache_key import cache_key, marks, tokenizer_fingerprint, weights_fingerprint
from pyterrier_debias.rankers import base
from pyterrier_debias.rankers.base import InMemory
from pyterrier_debias.training.scorer import Scorer
from tests.contract import Case, assert_contract
from tests.tiny_models import WORDS
from tests.training.toy import no_dropout

ARCHITECTURES = ["bert", "roberta", "electra", "distilbert"]


def pairs(n: int, seed: int = 0, longest: int = 60) -> tuple[list[str], list[str]]:
    draw = random.Random(seed)
    queries = [" ".join(draw.choices(WORDS, k=draw.randint(1, 8))) for _ in range(n)]
    return queries, [" ".join(draw.choices(WORDS, k=draw.randint(0, longest))) for _ in range(n)]


def frame(n: int = 8, seed: int = 0, longest: int = 60) -> pd.DataFrame:
    _, docs = pairs(n, seed, longest)
    qids = [f"q{i % 2}" for i in range(n)]
    query = {"q0": "who built the bridge", "q1": "where is the old harbour"}
    return pd.DataFrame({"qid": qids, "query": [query[q] for q in qids], "docno": [f"d{i}" for i in range(n)], "text": docs})


def same(left: object, right: object) -> bool:
    """Equal scores: a matrix product may round differently with where its operands lie in memory."""
    np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)
    return True


def hugging_face(folder: str, queries: list[str], docs: list[str], max_length: int) -> np.ndarray:
    """Logits of pairs one at a time: the tokenizer's own encoding, the model's own forward."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return np.array(
            [
                model(**tokenizer([q], [d], truncation=True, max_length=max_length, return_tensors="pt")).logits[0].numpy()
                for q, d in zip(queries, docs)
            ]
        )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_scores_are_the_models_own_logits(tiny, architecture):
    folder = tiny(architecture=architecture)
    queries, docs = pairs(25)
    ours = CrossEncoder(folder, max_length=48).score(queries, docs)
    theirs = hugging_face(folder, queries, docs, max_length=48)[:, 0]
    assert theirs.std() > 0.01
    assert same(ours, theirs)


def test_two_labels_score_by_the_log_odds_of_relevance(tiny):
    folder = tiny(labels=2)
    queries, docs = pairs(10)
    logits = torch.from_numpy(hugging_face(folder, queries, docs, max_length=64))
    probability = torch.softmax(logits, dim=1)[:, 1]
    ours = torch.from_numpy(CrossEncoder(folder).score(queries, docs))
    torch.testing.assert_close(torch.sigmoid(ours).float(), probability, rtol=0, atol=1e-5)


def test_the_sigmoid_of_a_score_is_what_sentence_transformers_predicts(tiny):
    from sentence_transformers import CrossEncoder as Theirs

    folder = tiny()
    queries, docs = pairs(30)
    theirs = Theirs(folder, device="cpu", max_length=40).predict(list(zip(queries, docs)), show_progress_bar=False)
    ours = 1 / (1 + np.exp(-CrossEncoder(folder, max_length=40).score(queries, docs)))
    assert np.ptp(theirs) > 0.01
    assert same(ours, theirs)


@pytest.mark.parametrize("options", [{"head": "cls"}, {"head": "mean"}, {"head": "cls", "architecture": "distilbert"}])
def test_a_bare_encoder_gets_a_fresh_head_that_its_seed_decides(tiny, options, caplog):
    options = dict(options)
    folder = tiny(labels=None, architecture=options.pop("architecture", "bert"))
    queries, docs = pairs(6)
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    with caplog.at_level(logging.WARNING):
        one = CrossEncoder(folder, seed=1, **options).score(queries, docs)
    assert "no classification head" in caplog.text
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(2)
    assert same(one, CrossEncoder(folder, seed=1, **options).score(queries, docs))
    assert np.abs(one - CrossEncoder(folder, seed=2, **options).score(queries, docs)).max() > 1e-4


def test_the_mean_head_reads_the_mean_of_the_encoders_states(tiny):
    from transformers import AutoModel, AutoTokenizer

    folder = tiny(labels=None)
    ranker = CrossEncoder(folder, head="mean")
    queries, docs = pairs(6)
    encoder, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    head = ranker.module.classifier
    with torch.no_grad():
        states = [encoder(**tokenizer(q, d, return_tensors="pt")).last_hidden_state[0] for q, d in zip(queries, docs)]
        expected = [float(head(one.mean(0))) for one in states]
    assert same(ranker.score(queries, docs), expected)


@pytest.mark.parametrize("options", [{}, {"architecture": "distilbert"}, {"labels": 2}, {"labels": None, "head": "mean"}])
def test_the_protocols_path_is_the_engines_path(tiny, options):
    options = dict(options)
    extra = {"head": options.pop("head")} if "head" in options else {}
    ranker = CrossEncoder(tiny(**options), max_length=40, **extra)
    assert isinstance(ranker, Scorer)
    queries, docs = pairs(12)
    tensors = ranker.tokenise(queries, docs)
    assert {len(tensor) for tensor in tensors.values()} == {12}
    ranker.module.eval()
    scores = ranker.forward(**tensors)
    assert scores.shape == (12,)
    assert same(ranker.score(queries, docs), scores.detach().numpy())
    scores.sum().backward()
    gradients = {name: parameter.grad for name, parameter in ranker.module.named_parameters() if parameter.grad is not None}
    reached = ("classifier.weight", "word_embeddings.weight")
    assert all(any(name.endswith(end) and gradients[name].abs().sum() > 0 for name in gradients) for end in reached)


@pytest.fixture(scope="module")
def rankers(tiny):
    return {
        "packed": CrossEncoder(tiny(), max_length=50),
        "plain": CrossEncoder(tiny(architecture="distilbert"), max_length=50),
        "mean": CrossEncoder(tiny(labels=None), head="mean", max_length=50),
    }


@pytest.mark.parametrize("name", ["packed", "plain", "mean"])
@settings(max_examples=15)
@given(data=st.data(), budget=st.integers(1, 600))
def test_a_pairs_score_is_the_same_in_any_batch_order_and_budget(rankers, name, data, budget):
    ranker = rankers[name]
    queries, docs = pairs(20)
    whole = ranker.score(queries, docs)
    chosen = data.draw(st.lists(st.integers(0, 19), min_size=1, max_size=20, unique=True))
    ranker.batch_tokens = budget
    some = ranker.score([queries[i] for i in chosen], [docs[i] for i in chosen])
    ranker.batch_tokens = None
    assert same(some, whole[chosen])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_moves_scores_by_no_more_than_its_rounding(tiny, dtype):
    queries, docs = pairs(20)
    whole = CrossEncoder(tiny()).score(queries, docs)
    half = CrossEncoder(tiny(), dtype=dtype)
    assert next(half.module.parameters()).dtype == getattr(torch, dtype)
    scores = half.score(queries, docs)
    assert 0 < np.abs(scores - whole).max() < 0.05 * np.ptp(whole)
    alone = np.concatenate([half.score([q], [d]) for q, d in zip(queries, docs)])
    assert np.abs(scores - alone).max() < 0.02 * np.ptp(whole)


def test_equal_pairs_are_computed_once_and_scored_alike(tiny, monkeypatch):
    seen = []
    original = CrossEncoder.score_pairs
    monkeypatch.setattr(CrossEncoder, "score_pairs", lambda self, q, d: seen.extend(zip(q, d)) or original(self, q, d))
    inp = frame(8)
    inp["text"] = ["the king", "the king", "the queen", "the queen"] * 2
    out = CrossEncoder(tiny())(inp)
    assert len(seen) == 4 == len(set(seen))
    assert out.groupby(["query", "text"])["score"].nunique().eq(1).all()


def test_a_bert_with_the_heads_of_its_pretraining_opens(tiny, caplog):
    """As PROP is published: its encoder is taken, its heads are not."""
    from transformers import BertForPreTraining

    pretrained = BertForPreTraining.from_pretrained(tiny("build_pretrained"))
    ranker = CrossEncoder(tiny("build_pretrained"))
    assert np.isfinite(ranker(frame(3))["score"]).all() and "a new one on the first token" in caplog.text
    for name, weight in pretrained.bert.named_parameters():
        assert torch.equal(weight, ranker.module.base_model.get_parameter(name)), name


def test_fields_are_joined(tiny):
    inp = frame(6).assign(url="bridge north", title=[f"the {word}" for word in WORDS[10:16]])
    ranker = CrossEncoder(tiny(), fields=["url", "title", "text"])
    joined = inp.assign(text=inp["url"] + " " + inp["title"] + " " + inp["text"])
    expected = CrossEncoder(tiny())(joined)
    pd.testing.assert_frame_equal(ranker(inp)[["qid", "docno", "score"]], expected[["qid", "docno", "score"]])
    assert ["qid", "docno", "query", "url", "title", "text"] in [list(c) for c in pt.inspect.transformer_inputs(ranker)]


@pytest.mark.parametrize(("long", "passage"), [("maxp", pt.text.max_passage), ("firstp", pt.text.first_passage)])
def test_long_documents_are_scored_as_pyterriers_passages(tiny, long, passage):
    inp = frame(8, longest=45)
    ranker = CrossEncoder(tiny())
    sliding = pt.text.sliding(text_attr="text", prepend_attr=None, length=12, stride=5)
    theirs = (sliding >> ranker >> passage())(inp.assign(score=0.0, rank=0))
    ours = CrossEncoder(tiny(), long=long, passage_length=12, passage_stride=5)(inp)
    merged = ours.merge(theirs, on=["qid", "docno"], suffixes=("", "_theirs"))
    assert len(merged) == len(inp)
    assert same(merged["score"], merged["score_theirs"])


def test_words_that_no_passage_holds_are_reported(tiny, caplog):
    inp = frame(2).assign(text=["word " * 11 + "word", "word " * 13 + "word"])
    with caplog.at_level(logging.WARNING):
        CrossEncoder(tiny(), long="maxp", passage_length=10, passage_stride=4)(inp)
    # 12 words hold one window of 10, 14 words two.
    assert "1 of 2 texts lost 2 words at their end" in caplog.text


def test_truncation_is_reported(tiny, caplog):
    with caplog.at_level(logging.WARNING):
        CrossEncoder(tiny(), max_length=20)(frame(4).assign(text=["the river"] * 2 + ["the river " * 20] * 2))
    [record] = [r for r in caplog.records if "cut to the window" in r.getMessage()]
    # Query of 4 and 5 tokens, text of 40, room for 17.
    assert record.getMessage().startswith("CrossEncoder: 2 of 4 texts were cut to the window of 20 tokens and lost 55 of")


def test_a_window_beyond_the_models_positions_is_refused(tiny):
    with pytest.raises(InputError, match="max_length=200 is more than the 64 tokens"):
        CrossEncoder(tiny(), max_length=200)(frame(2))
    with pytest.raises(InputError, match="max_length=65 is more than the 64 tokens"):
        CrossEncoder(tiny(architecture="roberta"), max_length=65)(frame(2))
    assert CrossEncoder(tiny(architecture="roberta")).window == 64


# Weights and identity


def test_nothing_is_loaded_before_a_score_is_needed(tiny, monkeypatch):
    monkeypatch.setattr(CrossEncoder, "read", lambda self, model: pytest.fail("a model was loaded"))
    ranker = CrossEncoder(tiny())
    out = ranker(frame(0))
    assert list(out.columns) == ["qid", "query", "docno", "text", "score", "rank"]
    assert ranker == CrossEncoder(tiny())
    assert ranker != CrossEncoder(tiny(), max_length=20)
    assert ranker != CrossEncoder(tiny(seed=5))
    assert ranker == CrossEncoder(tiny(), batch_tokens=9, verbose=True)
    repr(ranker), hash(ranker), pickle.dumps(ranker)
    pt.inspect.transformer_outputs(ranker, ["qid", "docno", "query", "text"])


def train_a_little(ranker: CrossEncoder, seed: int = 0) -> CrossEncoder:
    queries, docs = pairs(4, seed)
    optimiser = torch.optim.SGD(ranker.module.parameters(), lr=0.1)
    ranker.forward(**ranker.tokenise(queries, docs)).sum().backward()
    optimiser.step()
    return ranker


def test_trained_rankers_are_never_equal_to_others(tiny):
    fresh = CrossEncoder(tiny())
    one, two, same = (train_a_little(CrossEncoder(tiny()), seed) for seed in (0, 1, 0))
    assert one != fresh and two != fresh and one != two
    assert one == same
    queries, docs = pairs(5)
    assert np.abs(one.score(queries, docs) - two.score(queries, docs)).max() > 1e-4


def by_sgd(module):
    next(module.parameters()).grad = torch.ones_like(next(module.parameters()))
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def by_a_fused_optimiser(module):
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    torch.optim.AdamW(module.parameters(), lr=0.1, fused=True).step()


def by_data(module):
    """One number of the largest matrix."""
    module.get_input_embeddings().weight.data[7, 3] += 0.5


def by_assigning(module):
    state = {name: value.clone() for name, value in module.state_dict().items()}
    state["classifier.bias"] += 1
    module.load_state_dict(state, assign=True)


def by_a_buffer(module):
    module.register_buffer("more", getattr(module, "more", torch.zeros(3)).clone())
    module.more.data += 1


@pytest.mark.parametrize("change", [by_sgd, by_a_fused_optimiser, by_data, by_assigning, by_a_buffer])
def test_a_ranker_notices_its_training_whichever_way_weights_are_written(tiny, change):
    fresh, ranker, queries = CrossEncoder(tiny()), CrossEncoder(tiny()).warm_up(), pairs(5)
    assert ranker == fresh
    change(ranker.module)
    assert ranker != fresh
    assert ranker.fingerprint().startswith("weights:")
    copied = pickle.loads(pickle.dumps(ranker))
    assert copied == ranker
    assert same(copied.score(*queries), ranker.score(*queries))
    # And once more, from weights that are trained already.
    before = copy.deepcopy(ranker)
    change(ranker.module)
    assert ranker != before


def test_trained_weights_are_hashed_once(tiny, monkeypatch):
    ranker, hashed, whole = train_a_little(CrossEncoder(tiny())), [], base.weights_fingerprint
    monkeypatch.setattr(base, "weights_fingerprint", lambda module: hashed.append(1) or whole(module))
    other = CrossEncoder(tiny(seed=5))
    first = ranker.fingerprint()
    assert all(ranker != other and ranker.fingerprint() == first for _ in range(3))
    assert len(hashed) == 1
    train_a_little(ranker)
    assert ranker.fingerprint() != first
    assert len(hashed) == 2
    ranker.mark_trained()
    tokenizer = tokenizer_fingerprint(ranker.tokenizer)
    assert ranker.fingerprint() == f"{whole(ranker.module)} {tokenizer}"
    assert len(hashed) == 3
    ranker.module.dropout = torch.nn.Dropout(0.25)  # The same weights, which compute otherwise.
    assert ranker.fingerprint() == f"{whole(ranker.module)} {tokenizer}"
    assert len(hashed) == 4
    ranker.tokenizer.truncation_side = "left"
    assert ranker.fingerprint() == f"{whole(ranker.module)} {tokenizer_fingerprint(ranker.tokenizer)}" != first
    assert len(hashed) == 5


@pytest.mark.parametrize("length", [0, 1, 2, 3, 5, 8, 21])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
def test_any_number_that_changes_is_marked(length, dtype):
    """Wherever in memory a weight begins, and however long it is."""
    for offset in (0, 1, 3):
        whole = torch.zeros(offset + length, dtype=dtype)
        module = torch.nn.Module()
        module.register_buffer("weight", whole[offset:])
        seen = {marks(module)}
        for place in range(length):
            module.weight.data.view(torch.uint8)[place * whole.element_size()] = 1
            seen.add(marks(module))
        assert len(seen) == length + 1


def test_training_is_kept_by_pickle_copy_save_and_further_rankers(tiny, tmp_path):
    ranker = train_a_little(CrossEncoder(tiny(), max_length=30))
    queries, docs = pairs(6)
    expected = ranker.score(queries, docs)
    for other in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker), CrossEncoder(ranker, max_length=30)):
        assert other == ranker
        assert same(other.score(queries, docs), expected)
        assert other.module is not ranker.module
        assert pickle.loads(pickle.dumps(other)) == ranker
    ranker.save(tmp_path / "saved")
    assert same(CrossEncoder(tmp_path / "saved", max_length=30).score(queries, docs), expected)
    with pytest.raises(InputError, match="exists already"):
        ranker.save(tmp_path / "saved")
    with pytest.raises(InputError, match="after training"):
        ranker.seed = 3
        ranker.score(queries, docs)


def test_a_ranker_made_from_another_is_a_copy_of_what_it_was_then(tiny):
    first = CrossEncoder(tiny(), training=Training(seed=3))
    before = CrossEncoder(first)
    assert before == first
    queries, docs = pairs(5)
    expected = CrossEncoder(tiny()).score(queries, docs)
    train_a_little(first)
    assert before != first
    for other in (pickle.loads(pickle.dumps(before)), copy.deepcopy(before), before):
        assert other == CrossEncoder(tiny())
        assert same(other.score(queries, docs), expected)
    after, trained = CrossEncoder(first), first.score(queries, docs)
    assert after == first
    train_a_little(first, seed=1)
    train_a_little(before)
    assert after != first
    for other in (pickle.loads(pickle.dumps(after)), after):
        assert same(other.score(queries, docs), trained)
    assert len(pickle.dumps(CrossEncoder(CrossEncoder(tiny())))) < 4000


def test_a_copy_takes_no_more_memory_than_its_weights(tiny):
    """What was loaded for a copy is the copy's own; the ranker inside it holds weights only where they cannot be loaded again."""
    copied = CrossEncoder(CrossEncoder(tiny())).warm_up()
    assert copied.model._loaded is None
    copied.dtype = "bfloat16"
    assert next(copied.module.parameters()).dtype == torch.bfloat16
    copied.dtype = "float32"
    queries, docs = pairs(5)
    assert same(copied.score(queries, docs), CrossEncoder(tiny()).score(queries, docs))


@pytest.mark.parametrize("options", [{"head": "mean"}, {"seed": 5}, {"head": "mean", "seed": 5}, {"dtype": "bfloat16"}])
def test_copies_of_rankers_that_were_loaded_otherwise_are_not_equal(tiny, options):
    folder = tiny(labels=None)
    ranker, copied = CrossEncoder(folder), CrossEncoder(CrossEncoder(folder, **options))
    further, again = CrossEncoder(copied), CrossEncoder(CrossEncoder(folder, **options, max_length=9))
    for _ in range(2):  # a ranker with its weights in memory is told as one that will load them
        assert ranker != copied and further == copied == again and ranker != further
        assert CrossEncoder(CrossEncoder(folder, **options), **options) == CrossEncoder(folder, **options)
        assert not np.array_equal(copied.score(*pairs(5)), ranker.score(*pairs(5)))


def test_a_copy_of_a_model_in_memory_does_not_learn_with_it(tiny):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    there = InMemory(AutoModelForSequenceClassification.from_pretrained(tiny()), AutoTokenizer.from_pretrained(tiny()))
    first = CrossEncoder(there)
    before, queries = CrossEncoder(first), pairs(5)
    expected = first.score(*queries)
    train_a_little(first)
    assert before != first
    assert same(before.score(*queries), expected)


def test_a_copy_keeps_the_training_options_shared_and_its_form(tiny):
    class Large:
        def sample(self, groups, group, positive, n, *, seed, epoch):
            return group.pool[:n]

        def __deepcopy__(self, memo):
            raise AssertionError("options of a training need not be copied")

    first = CrossEncoder("a/model", training=Training(negatives=Large()))
    assert repr(CrossEncoder(first, max_length=20)).startswith("CrossEncoder(CrossEncoder('a/model', training=")
    second = CrossEncoder("b/model")
    second.set_parameter("model", first)
    assert second == first and second.get_parameter("model") == first
    assert pt.inspect.transformer_apply_attributes(second, max_length=9).model == first


def test_a_saved_mean_head_comes_back(tiny, tmp_path):
    ranker = train_a_little(CrossEncoder(tiny(labels=None), head="mean"))
    ranker.save(tmp_path / "saved")
    queries, docs = pairs(6)
    assert same(CrossEncoder(str(tmp_path / "saved")).score(queries, docs), ranker.score(queries, docs))


def test_a_mean_head_comes_back_from_the_hub_too(tiny, tmp_path, monkeypatch):
    """Read from where the hub's client keeps what it has fetched."""
    ranker = train_a_little(CrossEncoder(tiny(labels=None), head="mean"))
    kept = tmp_path / "hub" / "models--group--ranker"
    ranker.save(kept / "snapshots" / "c0ffee")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("c0ffee")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    queries, docs = pairs(6)
    assert same(CrossEncoder("group/ranker").score(queries, docs), ranker.score(queries, docs))


def test_unchanged_weights_do_not_travel(tiny):
    ranker = CrossEncoder(tiny()).warm_up()
    assert len(pickle.dumps(ranker)) < 2000
    assert pickle.loads(pickle.dumps(ranker)) == ranker == CrossEncoder(tiny())


def frozen(ranker):
    """A ranker of which only the head is trained, without dropout."""
    ranker.module.bert.requires_grad_(False)
    return no_dropout(ranker)


def trained_alike(ranker):
    """Names of the weights that are trained, and each dropout."""
    dropout = [part.p for part in ranker.module.modules() if isinstance(part, torch.nn.Dropout)]
    return [name for name, value in ranker.module.named_parameters() if value.requires_grad], dropout


def test_copies_are_trained_like_the_ranker(tiny):
    """Frozen weights and dropout are kept although no weight has changed; scores, and so equality, do not depend on them."""
    ranker = frozen(CrossEncoder(tiny(), max_length=30))
    names, dropout = expected = trained_alike(ranker)
    assert names == ["classifier.weight", "classifier.bias"] and not any(dropout)
    made = [pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker), copy.copy(ranker), CrossEncoder(ranker, max_length=30)]
    made[-1].warm_up()
    for one in [*made, copy.deepcopy(made[1]), copy.deepcopy(made[-1]), CrossEncoder(CrossEncoder(made[1]), max_length=30)]:
        assert trained_alike(one) == expected
        assert one == ranker == CrossEncoder(tiny(), max_length=30) and one.fingerprint() == ranker.fingerprint()
    trained = copy.deepcopy(train_a_little(copy.deepcopy(ranker)))
    assert trained_alike(trained) == expected and trained != ranker
    with pytest.raises(InputError, match="after a change of its module"):
        ranker.seed = 3
        ranker.warm_up()


def test_any_change_of_a_module_is_kept_by_copies(tiny):
    ranker = CrossEncoder(tiny()).warm_up()
    ranker.module.bert.encoder.layer[0].intermediate.intermediate_act_fn = torch.nn.ReLU()
    ranker.module.config.layer_norm_eps, ranker.module.bert.scale = 0.5, 2.0
    copied = copy.deepcopy(ranker).module
    assert isinstance(copied.bert.encoder.layer[0].intermediate.intermediate_act_fn, torch.nn.ReLU)
    assert (copied.config.layer_norm_eps, copied.bert.scale) == (0.5, 2.0)


def as_trained(ranker, queries, docs):
    """Scores that the module itself computes, as training does."""
    with torch.no_grad():
        return ranker.forward(**ranker.tokenise(queries, docs)).numpy()


def double(module, inputs, output):
    output.logits = 2 * output.logits
    return output


@pytest.mark.parametrize(
    "change",
    [
        lambda module: setattr(module.bert.encoder.layer[1].intermediate, "intermediate_act_fn", torch.nn.ReLU()),
        lambda module: setattr(module.bert.encoder.layer[1].attention.self, "scaling", 0.01),
        lambda module: setattr(module.bert.encoder.layer[1].attention.self, "attention_head_size", 16),
        lambda module: module.register_forward_hook(double),
    ],
)
def test_scores_are_those_of_a_module_that_computes_otherwise(tiny, change):
    ranker, (queries, docs) = CrossEncoder(tiny()), pairs(6)
    before = ranker.score(queries, docs)
    change(ranker.module)
    after = ranker.score(queries, docs)
    assert same(after, as_trained(ranker, queries, docs)) and np.abs(after - before).max() > 1e-3


def louder(module, args, keywords):
    return (2 * args[0], *args[1:]), keywords


def test_hooks_are_kept_by_copies(tiny, monkeypatch):
    ranker, plain, (queries, docs) = CrossEncoder(tiny()).warm_up(), CrossEncoder(tiny()).warm_up(), pairs(6)
    before, tokenizer = ranker.score(queries, docs), ranker.tokenizer
    hooks = [
        ranker.module.register_forward_hook(double),
        ranker.module.bert.encoder.layer[0].register_forward_pre_hook(louder, with_kwargs=True),
    ]
    expected = ranker.score(queries, docs)
    assert ranker.altered() and np.abs(expected - before).max() > 1e-3
    for other in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker), CrossEncoder(ranker), copy.copy(ranker)):
        assert other == ranker != plain and same(other.score(queries, docs), expected)
        assert InMemory(other.module, tokenizer) == InMemory(ranker.module, tokenizer) != InMemory(plain.module, tokenizer)
    hooked = ranker.fingerprint()
    for hook in hooks:
        hook.remove()
    assert not ranker.altered() and ranker == plain and same(ranker.score(queries, docs), before)
    # What a hook computes is not known: another one is another ranker, and so is that of another process.
    plain.module.register_forward_hook(double)
    plain.module.bert.encoder.layer[0].register_forward_pre_hook(louder, with_kwargs=True)
    assert plain.fingerprint() != hooked
    hooked = weights_fingerprint(plain.module)
    monkeypatch.setattr("pyterrier_debias.core.cache_key._PROCESS", "another")
    assert weights_fingerprint(plain.module) != hooked


class Counting(torch.nn.Module):
    """Of a user: notes how often it is called."""

    calls = 0

    def forward(self, states):
        self.calls += 1
        return states.relu()


def test_what_scoring_counts_changes_no_ranker(tiny):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    module = AutoModelForSequenceClassification.from_pretrained(tiny())
    module.bert.encoder.layer[0].intermediate.intermediate_act_fn = counting = Counting()
    module.classifier.max_seq_len_cached = 3
    ranker = CrossEncoder(InMemory(module, AutoTokenizer.from_pretrained(tiny()))).warm_up()
    fingerprint, calls = ranker.fingerprint(), counting.calls
    ranker.score(*pairs(3))
    module.classifier.max_seq_len_cached = 5
    assert counting.calls > calls and ranker.fingerprint() == fingerprint and not ranker.altered()


def test_a_change_of_the_tokenizer_is_noticed_and_kept_by_copies(tiny):
    from tokenizers.normalizers import Replace, Sequence

    ranker, unchanged, (queries, docs) = CrossEncoder(tiny()), CrossEncoder(tiny()).warm_up(), pairs(6)
    with ranker.remembering():
        before = ranker.score(queries, docs)
        backend = ranker.tokenizer.backend_tokenizer
        backend.normalizer = Sequence([backend.normalizer, Replace("river", "queen"), Replace("the", "of")])
        after = ranker.score(queries, docs)
    assert np.abs(after - before).max() > 1e-4 and ranker != unchanged
    for copied in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker)):
        assert same(copied.score(queries, docs), after) and copied == ranker


def test_a_copy_opens_on_the_device_that_there_is(tiny, monkeypatch):
    ranker = train_a_little(CrossEncoder(tiny()))
    sent = pickle.dumps(ranker)
    assert base.on_cpu(ranker.module) is ranker.module
    monkeypatch.setattr(base, "pick_device", lambda device: torch.device("meta"))
    assert {weight.device.type for weight in pickle.loads(sent)._loaded.module.parameters()} == {"meta"}


def test_a_window_without_room_for_text_is_refused(tiny):
    for build, length in ((CrossEncoder, 3), (BiEncoder, 2)):
        with pytest.raises(InputError, match=f"{build.__name__}: max_length={length} leaves no room for text beside the"):
            build(tiny() if build is CrossEncoder else tiny(labels=None), max_length=length).score(["the king"], ["a river"])


def test_a_folder_that_is_written_anew_is_another_model(tiny, tmp_path):
    ranker = CrossEncoder(tiny())
    ranker.save(tmp_path / "m")
    before = CrossEncoder(tmp_path / "m").warm_up()
    train_a_little(ranker).save(tmp_path / "m", overwrite=True)
    assert before != CrossEncoder(tmp_path / "m")


def test_a_loaded_ranker_keeps_its_weights_if_its_folder_is_written_anew(tiny, tmp_path):
    """Copies and pickles of it score like the ranker, not like what is in the folder now."""
    CrossEncoder(tiny()).save(tmp_path / "m")
    ranker, copied, (queries, docs) = CrossEncoder(tmp_path / "m").warm_up(), CrossEncoder(tmp_path / "m"), pairs(6)
    inner = CrossEncoder(copied).warm_up()
    expected, small = ranker.score(queries, docs), pickle.dumps(ranker)
    assert len(small) < 3000 and not ranker.altered()
    tuned = train_a_little(CrossEncoder(ranker))
    tuned.save(tmp_path / "m", overwrite=True)
    assert not np.allclose(tuned.score(queries, docs), expected, atol=1e-3)
    for one in (ranker, inner):
        made = [pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one), CrossEncoder(one)]
        for other in [*made, pickle.loads(pickle.dumps(made[0])), CrossEncoder(made[-1]), copy.deepcopy(made[-1])]:
            assert other == one != CrossEncoder(tmp_path / "m")
            assert same(other.score(queries, docs), expected) and same(one.score(queries, docs), expected)
            assert same(copy.deepcopy(other).score(queries, docs), expected)
    # What reads the folder for the first time reads what is there.
    assert same(pickle.loads(small).score(queries, docs), tuned.score(queries, docs))
    for change in ({"dtype": "bfloat16"}, {"seed": 3}):
        with pytest.raises(InputError, match="after its folder was written anew"):
            ranker.apply_attributes(**change).score(queries, docs)
    assert len(pickle.dumps(CrossEncoder(tmp_path / "m").warm_up())) < 3000


def test_a_ranker_keeps_the_weights_that_a_model_in_memory_had(tiny):
    """It holds them in another number format, and the model is trained elsewhere."""
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    there = InMemory(AutoModelForSequenceClassification.from_pretrained(tiny()), AutoTokenizer.from_pretrained(tiny()))
    ranker, (queries, docs) = CrossEncoder(there, dtype="bfloat16"), pairs(5)
    expected = ranker.score(queries, docs)
    with torch.no_grad():
        for weight in there.module.parameters():
            weight.mul_(1.3)
    for other in (pickle.loads(pickle.dumps(ranker)), copy.deepcopy(ranker), CrossEncoder(ranker, dtype="bfloat16"), ranker):
        np.testing.assert_allclose(other.score(queries, docs), expected, rtol=0, atol=1e-2)
        assert other == ranker


def test_a_model_in_memory_scores_and_is_compared_by_its_weights(tiny):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    def load():
        model = AutoModelForSequenceClassification.from_pretrained(tiny())
        return InMemory(model, AutoTokenizer.from_pretrained(tiny()))

    queries, docs = pairs(5)
    ranker = CrossEncoder(load())
    assert ranker == CrossEncoder(load())
    assert same(ranker.score(queries, docs), CrossEncoder(tiny()).score(queries, docs))
    assert same(pickle.loads(pickle.dumps(ranker)).score(queries, docs), ranker.score(queries, docs))
    assert train_a_little(ranker) != CrossEncoder(load())
    assert "BertForSequenceClassification" in repr(ranker)


def test_models_in_memory_are_told_by_tokenizer_and_configuration_too(tiny):
    """Weights of the same values, of which another tokenizer or another number of heads makes other scores."""
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

    def load(tokenizer=None, heads=4):
        config = AutoConfig.from_pretrained(tiny(), num_attention_heads=heads)
        model = AutoModelForSequenceClassification.from_pretrained(tiny(), config=config)
        return CrossEncoder(InMemory(model, tokenizer or AutoTokenizer.from_pretrained(tiny())), max_length=8)

    plain, queries = load(), pairs(5)
    plain.score(*queries)
    used = AutoTokenizer.from_pretrained(tiny())
    used("a call leaves its truncation and padding behind", truncation=True, max_length=3, padding="max_length")
    assert plain == load() == load(used) == copy.deepcopy(plain)
    left = AutoTokenizer.from_pretrained(tiny(), truncation_side="left")
    longer = AutoTokenizer.from_pretrained(tiny(), model_max_length=9)
    words = AutoTokenizer.from_pretrained(tiny())
    words.add_tokens(["unheard"])
    for other in (load(left), load(longer), load(words), load(heads=2)):
        assert other != plain and other.model != plain.model and cache_key(other) != cache_key(plain)
        other.warm_up()
        assert other != plain and copy.deepcopy(other) == other == CrossEncoder(other, max_length=8)
    assert not np.allclose(load(left).score(*queries), plain.score(*queries), atol=1e-3)


def test_a_tokenizer_that_is_changed_belongs_to_the_ranker(tiny):
    """Without training: copies, what is remembered, and equality go by it."""
    ranker, fresh, queries = CrossEncoder(tiny(), max_length=8), CrossEncoder(tiny(), max_length=8), pairs(5)
    with ranker.remembering():
        before = ranker.score(*queries)
        assert ranker == fresh
        ranker.tokenizer.truncation_side = "left"
        after = ranker.score(*queries)
    assert not np.allclose(after, before, atol=1e-3) and ranker != fresh and same(ranker.score(*queries), after)
    for copied in (copy.deepcopy(ranker), pickle.loads(pickle.dumps(ranker)), CrossEncoder(ranker, max_length=8)):
        assert copied == ranker and copied.tokenizer.truncation_side == "left" and same(copied.score(*queries), after)


def test_a_model_in_memory_keeps_its_number_format(tiny):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    there = InMemory(AutoModelForSequenceClassification.from_pretrained(tiny()), AutoTokenizer.from_pretrained(tiny()))
    ranker, queries = CrossEncoder(there), pairs(5)
    expected = ranker.score(*queries)
    half = CrossEncoder(there, dtype="bfloat16")
    assert not np.allclose(half.score(*queries), expected, rtol=0, atol=1e-5) and half.module.dtype == torch.bfloat16
    assert there.module.dtype == torch.float32 and there.module is ranker.module is not half.module
    assert same(ranker.score(*queries), expected) and same(CrossEncoder(there).score(*queries), expected)


def test_the_code_of_a_ranker_keeps_its_options(tiny):
    """Where no name tells its weights it is made from the ranker itself."""
    ranker = CrossEncoder(tiny(), long="maxp", passage_length=3, device="cpu")
    assert ranker.as_code() == "CrossEncoder(ranker, long='maxp', passage_length=3)"
    named = CrossEncoder("a/model", long="maxp", passage_length=3)
    assert named.as_code() == "CrossEncoder('a/model', long='maxp', passage_length=3)"
    trained = train_a_little(CrossEncoder(tiny(labels=None), head="mean"))
    beside = BiEncoder(tiny(labels=None), similarity="cosine", documents_by=BiEncoder(tiny(labels=None), pooling="cls"))
    assert beside.as_code() == "BiEncoder(ranker, similarity='cosine', documents_by=ranker.documents_by)"
    assert BiEncoder("a/model", documents_by=beside).as_code() == "BiEncoder(ranker, documents_by=ranker.documents_by)"
    for one in (trained, beside):
        assert eval(one.as_code(), {"CrossEncoder": CrossEncoder, "BiEncoder": BiEncoder, "ranker": one}) == one


def test_a_changed_option_loads_anew(tiny):
    ranker = CrossEncoder(tiny(labels=None), seed=1)
    queries, docs = pairs(4)
    one = ranker.score(queries, docs)
    ranker.set_parameter("seed", 2)
    assert np.abs(one - ranker.score(queries, docs)).max() > 1e-4


def test_a_model_that_is_loaded_in_inference_mode_can_still_be_trained(tiny):
    with torch.inference_mode():
        ranker = CrossEncoder(tiny()).warm_up()
    assert ranker == CrossEncoder(tiny())
    assert train_a_little(ranker) != CrossEncoder(tiny())


def test_scores_are_computed_without_dropout(tiny):
    ranker = CrossEncoder(tiny())
    queries, docs = pairs(6)
    expected = ranker.score(queries, docs)
    for part in (ranker.module, ranker.module.bert, ranker.module.bert.encoder.layer[0].output):
        part.train()
        assert same(ranker.score(queries, docs), expected)


def test_a_checkpoint_in_half_precision_is_read_as_float32(tiny, tmp_path):
    ranker = CrossEncoder(tiny(), dtype="bfloat16")
    (tmp_path / "half").mkdir()
    ranker.write(tmp_path / "half")  # without the options that save() adds
    assert next(CrossEncoder(tmp_path / "half").module.parameters()).dtype == torch.float32


def test_many_threads_share_one_ranker(tiny):
    ranker, inp = CrossEncoder(tiny()), frame(12)
    expected = CrossEncoder(tiny())(inp)
    with ThreadPoolExecutor(6) as pool:
        for found in pool.map(lambda _: ranker(inp), range(18)):
            pd.testing.assert_frame_equal(found, expected)


# Errors


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("/no/such/folder", "there is no model folder"),
        ("./no-such-folder", "there is no model folder"),
        ("nobody/no-such-model", "HF_HUB_OFFLINE is set"),
        (3, "model is an int"),
    ],
)
def test_a_model_that_is_not_there_is_one_clear_line(model, message):
    with pytest.raises(InputError, match=message) as error:
        CrossEncoder(model)(frame(2))
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_a_folder_that_cannot_be_used_is_one_clear_line(tiny, tmp_path):
    with pytest.raises(InputError, match=r"holds no config\.json"):
        CrossEncoder(tmp_path)(frame(2))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(InputError, match="has no tokenizer"):
        CrossEncoder(tmp_path)(frame(2))
    CrossEncoder(tiny()).tokenizer.save_pretrained(tmp_path)
    with pytest.raises(InputError, match="cannot be loaded"):
        CrossEncoder(tmp_path)(frame(2))
    with pytest.raises(InputError, match="has 3 labels"):
        CrossEncoder(tiny(labels=3))(frame(2))
    with pytest.raises(InputError, match="use T5Reranker"):
        CrossEncoder(tiny("build_t5"))(frame(2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int8"}, "dtype='int8' is not known"),
        ({"long": "mean"}, "long='mean' is not known"),
        ({"head": "max"}, "head='max' is not known"),
        ({"fields": []}, "names no column"),
        ({"max_length": 0}, "max_length=0 must be a whole number of at least 1"),
        ({"seed": -1}, "CrossEncoder: seed=-1 must be a whole number of at least 0"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
    ],
)
def test_unknown_options_are_refused_before_anything_is_loaded(options, message, monkeypatch):
    monkeypatch.setattr(CrossEncoder, "read", lambda self, model: pytest.fail("a model was loaded"))
    with pytest.raises(InputError, match=message):
        CrossEncoder("any", **options)(frame(2).assign(title=""))


def test_bad_frames_are_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(CrossEncoder, "read", lambda self, model: pytest.fail("a model was loaded"))
    ranker = CrossEncoder("any")
    with pytest.raises(pt.validate.InputValidationError, match="text"):
        ranker(frame(2).drop(columns="text"))
    with pytest.raises(InputError, match=r"column 'text' has no value at row 1 \(qid='q1', docno='d1'\)"):
        ranker(frame(2).assign(text=["a", None]))
    with pytest.raises(InputError, match="occur more than once"):
        ranker(pd.concat([frame(2), frame(2)]))


def test_a_model_that_answers_nan_is_an_error(tiny):
    ranker = CrossEncoder(tiny())
    with torch.no_grad():
        ranker.module.classifier.bias.fill_(float("nan"))
    with pytest.raises(InputError, match="CrossEncoder: column 'score' is NaN"):
        ranker(frame(2))


def test_contract(tiny):
    folder = tiny()
    case = Case("CrossEncoder", lambda: CrossEncoder(folder), lambda: frame(8), lambda: CrossEncoder(folder, max_length=16))
    assert_contract(case)


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra", "distilbert"])
def test_scores_without_padding_and_gradients_are_those_of_forward(architecture, tiny):
    ranker = CrossEncoder(tiny(architecture=architecture))
    docs = [" ".join(["harbour bridge river king"] * n) for n in (3, 1, 9, 0, 9, 5)]
    tensors = ranker.tokenise(["who built it"] * len(docs), docs)
    ranker.module.eval()
    with torch.no_grad():
        expected = ranker.forward(**tensors)
        found = ranker.forward_packed(**tensors)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(ranker.forward_packed(**tensors), ranker.forward(**tensors), rtol=0, atol=0)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert found.std() > 0.05


def test_a_prompt_that_the_model_was_saved_with_is_told(tiny, tmp_path, caplog):
    """It is not added; the remedy that the warning names gives the scores of sentence-transformers."""
    import sentence_transformers

    folder, prompt = str(tmp_path / "prompted"), "what is "
    asked = {"prompts": {"q": prompt}, "default_prompt_name": "q"}
    sentence_transformers.CrossEncoder(tiny(), device="cpu", **asked).save_pretrained(folder)
    peer = sentence_transformers.CrossEncoder(folder, device="cpu", activation_fn=torch.nn.Identity())
    expected = peer.predict([("the king", "a red bridge")])
    ranker = CrossEncoder(folder)
    np.testing.assert_allclose(ranker.score([prompt + "the king"], ["a red bridge"]), expected, atol=1e-5)
    assert f"was saved with the prompt {prompt!r} before each query, which is not added here" in caplog.text
