"""Losses, samplers and rerankers against bias: closed forms, autograd, plain training at strength 0, and what is learned."""

import copy
import pickle
import re

import numpy as np
import pytest
import torch

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.data.swap import SwapGender
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas.leaning import gendered, lean_of_texts
from pyterrier_debias.gender.formulas.losses import bias_aware_hinge, reversed_gradient
from pyterrier_debias.gender.training import negatives
from pyterrier_debias.gender.training.fair_methods import Adversarial, Annotated
from pyterrier_debias.gender.training.fair_rerankers import AdversarialReranker, BiasAwareReranker
from pyterrier_debias.gender.training.negatives import BiasAwareNegatives
from pyterrier_debias.rankers.bi_encoder import BiEncoder
from pyterrier_debias.rankers.cross_encoder import CrossEncoder
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.losses import pairwise_hinge
from pyterrier_debias.training.method import ranking_of
from pyterrier_debias.training.options import Training
from pyterrier_debias.training.weights import ColumnWeights
from tests import tiny_models
from tests.training.toy import candidates, no_dropout, qrels, training


@pytest.fixture(autouse=True)
def silent(caplog):
    """Fresh heads announce themselves."""
    caplog.set_level("ERROR")


@pytest.fixture
def model(tmp_path):
    return tiny_models.build(tmp_path / "model")


def world(prefix="q"):
    """The toy collection; every second passage speaks of women or of men."""
    said = ["she and her works", "", "he works", "", "his his his", "her sister"]
    return candidates(prefix).assign(text=lambda f: [t + " " + said[int(d[-1])] for t, d in zip(f["text"], f["docno"])])


def weights_of(ranker):
    return {name: value.clone() for name, value in ranker.module.state_dict().items()}


def assert_like(one, other):
    for name, value in weights_of(one).items():
        assert torch.equal(value, other.module.state_dict()[name]), name


# Documents


def test_leans_and_gendered_texts():
    texts = ["he he she", "", "her", "he he she"]
    # Male counts minus female ones: 2 - 1; and ln 3 - ln 2.
    assert lean_of_texts(texts, method="tc").tolist() == [1, 0, -1, 1]
    assert lean_of_texts(texts).tolist() == pytest.approx([np.log(3 / 2), 0, -np.log(2), np.log(3 / 2)])
    assert lean_of_texts([]).shape == (0,) and gendered([]).shape == (0,)
    # Neutrality of (2, 1): 1 - |2/3 - 1/2| - |1/3 - 1/2| = 2/3; one word alone is not counted.
    assert gendered(texts).tolist() == [True, False, False, True]
    assert gendered(["her"], threshold=0).tolist() == [True]


# Losses


def test_the_loss_is_the_published_one_pair_by_pair():
    generator = torch.Generator().manual_seed(1)
    scores, psi = torch.randn(4, 5, generator=generator), torch.rand(4, 5, generator=generator)
    mask = torch.rand(4, 5, generator=generator) > 0.2
    mask[:, 0] = True
    weights = torch.rand(4, 5, generator=generator)
    losses = [
        weights[i, j] * max(0.0, 1.0 - float(scores[i, 0]) + float(scores[i, j]) + float(psi[i, j]))
        for i in range(4)
        for j in range(1, 5)
        if mask[i, j]
    ]
    found = bias_aware_hinge(scores, psi, mask=mask, weights=weights)
    assert float(found) == pytest.approx(float(sum(losses) / len(losses)), rel=1e-5)
    plain = pairwise_hinge(scores, mask=mask, weights=weights, margin=0.3)
    assert float(bias_aware_hinge(scores, torch.zeros_like(psi), mask=mask, weights=weights, margin=0.3)) == float(plain)


def test_the_gradient_is_reversed_and_the_values_are_not():
    values = torch.randn(3, 4, requires_grad=True, dtype=torch.float64)
    head = torch.randn(4, dtype=torch.float64)
    straight = torch.autograd.grad((values @ head).tanh().sum(), values)[0]
    for factor in (0.0, 0.5, 1.0):
        out = reversed_gradient(values, factor)
        torch.testing.assert_close(out, values)
        turned = torch.autograd.grad((out @ head).tanh().sum(), values)[0]
        torch.testing.assert_close(turned, -factor * straight)
    plainly = torch.autograd.grad((reversed_gradient(values) @ head).tanh().sum(), values)[0]
    torch.testing.assert_close(plainly, -straight)  # the usual factor is 1
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        rounded = torch.linspace(-3, 3, 100).to(dtype)
        assert all(torch.equal(reversed_gradient(rounded, factor), rounded) for factor in (0.0, 0.3, 10.0, 100.0))


# Negatives


def test_bias_aware_negatives_are_the_most_biased_ones():
    groups = make_groups(world(), qrels(), stage="test")
    sampler = BiasAwareNegatives(share=0.5)
    docnos, bias = groups.column("docno"), sampler.biases(groups)
    group = groups.groups[0]
    # Places 0 to 3 are the pool; "she and her" leans by ln 3, "he" by ln 2, the others not at all.
    drawn = sampler.sample(groups, group, group.positives[0], 2, seed=1, epoch=0)
    assert docnos[drawn[0]] == "d0-0" and bias[drawn[0]] == pytest.approx(np.log(3))
    assert len(set(drawn.tolist())) == 2 and set(drawn.tolist()) <= set(group.pool.tolist())
    every = BiasAwareNegatives(share=1.0).sample(groups, group, group.positives[0], 2, seed=1, epoch=0)
    assert [docnos[row] for row in every] == ["d0-0", "d0-2"]
    all_of_them = sampler.sample(groups, group, group.positives[0], 20, seed=1, epoch=0)
    assert sorted(all_of_them.tolist()) == sorted(group.pool.tolist())


def test_a_share_of_single_negatives():
    groups = make_groups(world(), qrels(), stage="test")
    sampler, group = BiasAwareNegatives(share=0.6), groups.groups[0]
    docnos = groups.column("docno")
    drawn = [docnos[sampler.sample(groups, group, group.positives[0], 1, seed=3, epoch=e)[0]] for e in range(600)]
    # .6 of the draws, and a quarter of the others, in which any of the four may come.
    assert np.mean([docno == "d0-0" for docno in drawn]) == pytest.approx(0.6 + 0.4 / 4, abs=0.06)


def test_negatives_do_not_depend_on_order_and_can_be_sent_away():
    frame = world()
    one, other = (make_groups(f, qrels(), stage="test") for f in (frame, frame.sample(frac=1, random_state=2)))
    sampler = BiasAwareNegatives()
    for epoch in range(3):
        for a, b in zip(one.groups, other.groups):
            assert [one.column("docno")[r] for r in sampler.sample(one, a, a.positives[0], 2, seed=0, epoch=epoch)] == [
                other.column("docno")[r] for r in sampler.sample(other, b, b.positives[0], 2, seed=0, epoch=epoch)
            ]
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    given = BiasAwareNegatives(column="known", share=1.0)
    groups = make_groups(frame.assign(known=frame["rank"].astype(float)), qrels(), stage="test")
    drawn = given.sample(groups, groups.groups[0], groups.groups[0].positives[0], 2, seed=0, epoch=0)
    assert [groups.column("docno")[row] for row in drawn] == ["d0-3", "d0-2"]


def test_each_docno_is_hashed_once_and_ties_are_drawn_anew(monkeypatch):
    groups = make_groups(world().assign(known=1.0), qrels(), stage="test")
    sampler, hashed = BiasAwareNegatives(column="known", share=1.0), []
    original = negatives.keyed_hash
    monkeypatch.setattr(negatives, "keyed_hash", lambda seed, *ids: hashed.append(ids) or original(seed, *ids))
    group, docnos = groups.groups[0], groups.column("docno")
    drawn = [sampler.sample(groups, group, group.positives[0], 1, seed=5, epoch=epoch)[0] for epoch in range(400)]
    assert len(hashed) == len(set(docnos)) + 400
    # All are equally biased, and equally often the first.
    shares = np.bincount(np.searchsorted(group.pool, drawn), minlength=len(group.pool)) / 400
    assert shares == pytest.approx(np.full(len(group.pool), 1 / len(group.pool)), abs=0.08)
    again = pickle.loads(pickle.dumps(sampler))
    assert [again.sample(groups, group, group.positives[0], 1, seed=5, epoch=epoch)[0] for epoch in range(9)] == drawn[:9]


def test_negatives_that_cannot_be_drawn():
    with pytest.raises(InputError, match="share=2"):
        BiasAwareNegatives(share=2)
    with pytest.raises(InputError, match="method='log'"):
        BiasAwareNegatives(method="log")
    groups = make_groups(world().assign(known="x"), qrels(), stage="test")
    with pytest.raises(InputError, match="no numbers"):
        BiasAwareNegatives(column="known").biases(groups)
    with pytest.raises(InputError, match=r"^training: the candidates have no column 'absent'"):
        BiasAwareNegatives(column="absent").biases(groups)


# Rerankers


def small(**options):
    return training(**{"max_steps": 3, "warmup": 0, "negatives_per_positive": 2, **options})


def test_strength_zero_is_plain_training(model):
    """With a margin of 0, since psi changes no gradient while all pairs are within the margin anyway."""
    options = small(loss="hinge", loss_options={"margin": 0.0})
    plain = CrossEncoder(model, training=options).fit(world(), qrels())
    fair = BiasAwareReranker(CrossEncoder(model), strength=0, training=options).fit(world(), qrels())
    assert_like(plain, fair.relevance)
    other = BiasAwareReranker(CrossEncoder(model), training=options).fit(world(), qrels())
    assert other.relevance.fingerprint() != plain.fingerprint()
    entry = next(e for e in other.training_report.history if "plain_loss" in e)
    assert 0 < entry["bias_of_negatives"] <= 1 and entry["loss"] >= entry["plain_loss"]


def test_signed_biases_make_some_margins_smaller(model):
    frame = world().assign(text=lambda f: [t if "his" in t else t + " she she" for t in f["text"]])
    found = {}
    for signed in (False, True):
        stage = BiasAwareReranker(CrossEncoder(model), signed=signed, training=small(max_steps=1)).fit(frame, qrels())
        found[signed] = next(e for e in stage.training_report.history if "plain_loss" in e)
    assert found[False]["bias_of_negatives"] > 0 > found[True]["bias_of_negatives"]
    assert found[True]["loss"] < found[True]["plain_loss"] < found[False]["loss"]


class Mute:
    """An augmentation after which a passage no longer speaks of anyone."""

    text_field = "text"

    def rotator(self, *, draw):
        return lambda text, docno, qid: (re.sub(r"\b(he|she|her|his)\b", "it", text), 0)


def collated(stage, monkeypatch):
    """What a training reads of each document, and the number that is known of it."""
    met, collate = [], Annotated.collate

    def spy(self, examples):
        batch = collate(self, examples)
        for row, example in enumerate(examples):
            met.extend(zip(example.texts, batch["known"][row].tolist()))
        return batch

    monkeypatch.setattr(Annotated, "collate", spy)
    stage.fit(world(), qrels())
    return met


@pytest.mark.parametrize("augment", [None, SwapGender(share=1.0), Mute()])
@pytest.mark.parametrize("long", ["truncate", "firstp"])
def test_psi_and_the_attribute_are_those_of_the_text_that_is_read(augment, long, model, monkeypatch):
    ranker = CrossEncoder(model, long=long, passage_length=9)  # cuts "her" off "she and her", and one of three "his"
    options = small(max_steps=4, workers=0, augment=augment)
    met = collated(BiasAwareReranker(ranker, signed=True, strength=2.0, method="tc", training=options), monkeypatch)
    assert [known for _, known in met] == (2 * lean_of_texts([text for text, _ in met], method="tc")).tolist()
    met = collated(AdversarialReranker(ranker, training=options), monkeypatch)
    assert [known for _, known in met] == gendered([text for text, _ in met]).tolist()


@pytest.mark.parametrize(("make", "option", "what"), [
    (BiasAwareReranker, "column", "psi"), (AdversarialReranker, "attribute", "the attribute"),
])  # fmt: skip
def test_words_beyond_the_window_are_pointed_out(make, option, what, model, caplog):
    caplog.set_level("WARNING")
    told = f", whose words count for {what} all the same; raise max_length"
    frame, ranker = world().assign(known=lambda f: f["rank"] % 2), CrossEncoder(model, max_length=6)
    make(ranker, training=small(max_steps=1)).fit(frame, qrels())
    assert "longer than the window of 6 tokens" in caplog.text and told in caplog.text
    caplog.clear()
    make(ranker, training=small(max_steps=1), **{option: "known"}).fit(frame, qrels())
    assert "longer than the window of 6 tokens" in caplog.text and told not in caplog.text


def test_a_given_psi_stands_under_augmentation_too(model, monkeypatch):
    stage = BiasAwareReranker(CrossEncoder(model), column="rank", training=small(workers=0, augment=SwapGender(share=1.0)))
    assert {known for _, known in collated(stage, monkeypatch)} > {0.0, 1.0, 2.0}


@pytest.mark.parametrize("architecture", ["bert", "roberta", "distilbert", "electra", "mean"])
def test_without_reversal_the_ranker_learns_as_alone(architecture, tmp_path):
    mean = architecture == "mean"
    folder = tiny_models.build(tmp_path / "m", architecture="bert" if mean else architecture, labels=None if mean else 1)

    def start():
        return no_dropout(CrossEncoder(folder, head="mean" if mean else "cls"))

    alone = start()
    alone.training = small(clip=None)
    alone.fit(world(), qrels())
    pair = AdversarialReranker(start(), reversal=0.0, training=small(clip=None)).fit(world(), qrels())
    assert_like(alone, pair.relevance)
    turned = AdversarialReranker(start(), reversal=1.0, training=small(clip=None)).fit(world(), qrels())
    assert turned.relevance.fingerprint() != alone.fingerprint()


def test_the_adversary_learns_and_the_encoder_hides(model):
    """Without reversal the adversary finds the attribute; with it, it finds less, while the ranker still learns to rank."""
    options = small(max_steps=80, batch_size=8, learning_rate=3e-3, schedule="constant", log_every=10)
    found = {}
    for reversal in (0.0, 1.0):
        ranker = no_dropout(CrossEncoder(model))
        stage = AdversarialReranker(ranker, reversal=reversal, training=options).fit(world(), qrels())
        history = [e for e in stage.training_report.history if "adversary_loss" in e]
        found[reversal] = history[-1]
        assert history[-1]["accuracy"] > 0.9
    assert found[0.0]["adversary_accuracy"] > 0.7  # half of the pairs have the attribute
    assert found[1.0]["adversary_loss"] > found[0.0]["adversary_loss"]


def test_the_adversarys_gradient_by_hand(model):
    """One batch: the encoder's gradient is that of the ranking loss minus lambda times that of the adversary's."""
    ranker = no_dropout(CrossEncoder(model))
    options = Training(batch_size=4)
    groups = make_groups(world(), qrels(), stage="test")
    values = gendered(groups.column("text"))
    from pyterrier_debias.training.examples import Examples

    examples = [Examples(groups, options, 4)[i] for i in range(4)]

    def gradient(reversal):
        method = Adversarial(ranking_of(ranker, options, "test"), values, {}, reversal=reversal, seed=0, stage="test").eval()
        batch = method.collate(examples)
        # The attribute of each pair stands where the pair stands.
        for row, example in enumerate(examples):
            assert batch["known"][row, : len(example.rows)].tolist() == values[example.rows].tolist()
        ranker.module.zero_grad()
        method(**batch)["loss"].backward()
        return {name: p.grad.clone() for name, p in ranker.module.named_parameters() if p.grad is not None}

    alone, once, twice = gradient(0.0), gradient(1.0), gradient(2.0)
    for name in alone:
        torch.testing.assert_close(twice[name] - alone[name], 2 * (once[name] - alone[name]), rtol=1e-3, atol=1e-6)
    assert any(not torch.equal(once[name], alone[name]) for name in alone)


def test_in_mixed_precision_shares_are_logged_exactly(model):
    options = small(max_steps=1, batch_size=8, negatives_per_positive=4, precision="bfloat16", learning_rate=1e-9)
    given = world().assign(known=lambda f: (f["docno"] == "d3-2") * 1.0)
    stage = AdversarialReranker(CrossEncoder(model), attribute="known", training=options).fit(given, qrels())
    entry = stage.training_report.history[0]
    for name in ("attribute", "adversary_accuracy"):  # of 40 pairs
        assert entry[name] * 40 == pytest.approx(round(entry[name] * 40), abs=1e-4)
    assert 0 < entry["attribute"] < 0.1


@pytest.mark.parametrize(
    ("make", "more"),
    [(BiasAwareReranker, {}), (AdversarialReranker, {}), (AdversarialReranker, {"first_training": small(max_steps=1)})],
)
def test_rerankers_resume_and_reload(make, more, model, tmp_path):
    def fitted(**options):
        options = small(max_steps=2, evaluate_every=1, checkpoints=tmp_path / "run", **options)
        return make(CrossEncoder(model), training=options, **more).fit(world(), qrels(), world("v"), qrels("v"))

    straight = fitted()
    with pytest.raises(InputError, match="fit"):
        make(CrossEncoder(model))(world())
    resumed = fitted(resume=True)
    straight.save(tmp_path / "saved")
    for other, tolerance in ((resumed, 0), (make.load(tmp_path / "saved"), 1e-5)):
        found, expected = other(world()), straight(world())
        assert found["docno"].tolist() == expected["docno"].tolist()
        np.testing.assert_allclose(found["score"], expected["score"], rtol=0, atol=tolerance)


def test_the_adversary_is_single_precision_whatever_the_programs_default(model):
    torch.set_default_dtype(torch.float64)
    try:
        AdversarialReranker(CrossEncoder(model), training=small(max_steps=1)).fit(world(), qrels())
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_adversary_joins_a_ranker_that_was_trained_first(model, tmp_path):
    """As published: from the given weights exactly, and by an option the same as in two steps by hand."""
    step = small(max_steps=1)
    trained = CrossEncoder(model, training=step).fit(world(), qrels())
    assert trained.fingerprint() != CrossEncoder(model).fingerprint()
    # In single precision this rate is 0: a bias whose gradient is only rounding may be as small as 1e-25.
    still = small(max_steps=1, learning_rate={"ranker": 1e-60, "adversary": 1e-3})
    begun = AdversarialReranker(trained, training=still).fit(world(), qrels())
    assert_like(trained, begun.relevance)
    assert begun.training_report.started_from == trained.fingerprint()
    by_hand = AdversarialReranker(trained, training=step).fit(world(), qrels())
    together = AdversarialReranker(CrossEncoder(model), training=step, first_training=step).fit(world(), qrels())
    assert_like(by_hand.relevance, together.relevance)
    assert together.training_report.started_from == trained.fingerprint()
    first = [e["loss"] for e in together.first_report.history if "loss" in e]
    assert first == [e["loss"] for e in trained.training_report.history if "loss" in e]
    other = copy.copy(together)
    other.first_training = None
    assert other == together  # once fitted, the weights tell
    together.fit(world(), qrels())  # from the fitted weights: the ranker is not trained alone once more
    assert together.training_report.started_from == by_hand.relevance.fingerprint()
    # What cannot be used is said before the first training.
    for options, message in (
        ({"first_training": {"epochs": 1}}, "first_training is a dict; give a Training"),
        ({"first_training": small(checkpoints=tmp_path)}, "the same checkpoints="),
        ({"first_training": small(checkpoints=f"{tmp_path}/x/..")}, "the same checkpoints="),
        ({"first_training": step, "attribute": "rank"}, "column 'rank' must hold only 0 and 1"),
        ({"first_training": step, "training": small(patience=2)}, "needs validation"),
        ({"first_training": step, "training": small(min_label=9)}, "no candidate is judged 9 or higher"),
        ({"first_training": step, "training": small(weights=ColumnWeights("trust"))}, "no column 'trust'"),
        (
            {"first_training": step, "training": small(learning_rate={"ranker": 1e-3, "advesary": 1e-3})},
            "AdversarialReranker: learning_rate names ranker, advesary, but the networks are ranker, adversary",
        ),
    ):
        stage = AdversarialReranker(CrossEncoder(model), **{"training": small(checkpoints=tmp_path), **options})
        with pytest.raises(InputError, match=message):
            stage.fit(world(), qrels())
        assert stage.first_report is None


AGES = {"young": ("teen", "Boyish"), "old": {"she"}, "any": ["adult"]}


@pytest.mark.parametrize("given", ["a mapping", "a word list", "a path"])
@pytest.mark.parametrize(
    ("make", "more"), [(BiasAwareReranker, {"contrast": ("old", "young")}), (AdversarialReranker, {"threshold": 0})]
)
def test_words_of_ones_own_are_saved(make, more, given, model, tmp_path):
    path = tmp_path / "ages.csv"
    path.write_text("".join(f"{word},{group}\n" for group, words in AGES.items() for word in words))
    words = {"a mapping": AGES, "a word list": WordList(AGES, "ages"), "a path": str(path)}[given]
    stage = make(CrossEncoder(model), wordlist=words, tokeniser="whitespace", training=small(max_steps=1), **more)
    stage.fit(world(), qrels()).save(tmp_path / "saved")
    path.unlink()
    loaded = make.load(tmp_path / "saved")
    words = WordList.of(loaded.wordlist)
    assert list(words.groups.items()) == [("young", {"teen", "boyish"}), ("old", {"she"}), ("any", {"adult"})]
    assert loaded.tokeniser == "whitespace"
    if make is BiasAwareReranker:
        assert words.contrast(loaded.contrast) == {"young": -1.0, "old": 1.0, "any": 0.0}


def test_fitting_again_reads_the_saved_words(model, tmp_path):
    aged = candidates().assign(text=lambda f: [f"{t} adult adult" if d[-1] == "1" else t for t, d in zip(f["text"], f["docno"])])
    AdversarialReranker(CrossEncoder(model), wordlist=AGES, training=small(max_steps=1)).fit(aged, qrels()).save(tmp_path / "one")
    AdversarialReranker.load(tmp_path / "one", training=small(max_steps=1)).fit(aged, qrels())
    with pytest.raises(InputError, match="same attribute"):
        AdversarialReranker.load(tmp_path / "one", wordlist="debias", training=small(max_steps=1)).fit(aged, qrels())


def test_what_cannot_be_trained(model, tmp_path):
    for stage, words in (
        (BiasAwareReranker(CrossEncoder(model), strength=-1), "strength=-1"),
        (BiasAwareReranker(CrossEncoder(model), training=Training(loss="bce")), "loss='bce'"),
        (BiasAwareReranker(CrossEncoder(model), training=Training(loss="hinge", loss_options={"reduction": "weights"})),
         "no option 'reduction'"),
        (BiasAwareReranker(CrossEncoder(model), training=Training(loss="hinge", in_batch_negatives=True)), "in_batch_negatives"),
        (BiasAwareReranker(CrossEncoder(model), column="known"), r"^training: the candidates have no column 'known'"),
        (AdversarialReranker(CrossEncoder(model), attribute="known"), r"^training: the candidates have no column 'known'"),
        (AdversarialReranker(BiEncoder("nobody/nothing")), "the adversary reads the input of its head"),
        (AdversarialReranker(CrossEncoder(model), reversal=-1), "reversal=-1"),
        (AdversarialReranker(CrossEncoder(model), wordlist={"old": ["old"]}), "has only old"),
        (AdversarialReranker(CrossEncoder(model), attribute="rank"), "only 0 and 1"),
    ):
        with pytest.raises(InputError, match=words):
            stage.fit(world(), qrels())
    with pytest.raises(InputError, match="same attribute"):
        AdversarialReranker(CrossEncoder(model)).fit(candidates(), qrels())
