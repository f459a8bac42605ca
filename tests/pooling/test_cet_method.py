"""Coupled estimation as a method: what each model gets, what is counted, what is warned of, and that the direction is right."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from pyterrier_debias import BiEncoder, CrossEncoder
from pyterrier_debias.pooling.data.evidence import PoolEvidence
from pyterrier_debias.pooling.formulas.cet_weights import Coupling
from pyterrier_debias.pooling.training.cet_method import Coupled, EvidenceScores, RankerScores, tokenise_alike
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from tests.pooling.cet_toy import Toy, World, candidates, qrels, training
from tests.training.toy import no_dropout

LOGGER = "pyterrier_debias.pooling.training.cet_method"


def batch_of(n=6, **options):
    made = Examples(make_groups(candidates(), qrels(), stage="fit"), training(**options), n)
    return [made[i] for i in range(n)]


def pair(relevance, selection, coupling=None, **options):
    """Two rankers, coupled."""
    first, second = relevance.method(training()), selection.method(training())
    shared = tokenise_alike(relevance, selection)
    return Coupled(first, RankerScores(second, shared=shared), coupling or Coupling(max_weight=None), **options)


def grads(network):
    return torch.cat([p.grad.flatten() for p in network.parameters() if p.grad is not None])


def test_each_model_gets_the_gradient_of_its_own_loss(tiny):
    """Against two losses of one equation each, with weights as constants, and two backward passes."""
    examples = batch_of(negatives_per_positive=2)
    r, s = no_dropout(CrossEncoder(tiny())), no_dropout(CrossEncoder(tiny(seed=1)))
    both = pair(r, s, Coupling(tau=0.7, max_weight=None)).train()
    batch = both.collate(examples)
    out = both(**batch)
    out["loss"].backward()
    found = {name: grads(network) for name, network in both.networks().items()}
    assert set(found) == {"ranker", "selection_ranker"}

    both.zero_grad()
    of_r, of_s = both.relevance.scores(batch), both.selection.ranking.scores(batch)
    gap_r, gap_s = (x[:, 1:] - x[:, :1] for x in (of_r, of_s))
    first = ((gap_s.detach() / 0.7).exp() * softplus(gap_r)).mean()
    second = ((gap_r.detach() / 0.7).exp() * softplus(gap_s)).mean()
    first.backward()
    second.backward()
    assert out["loss"].item() == pytest.approx(first.item() + second.item(), rel=1e-6)
    assert out["relevance_loss"].item() == pytest.approx(first.item(), rel=1e-6)
    torch.testing.assert_close(found["ranker"], grads(r.module), rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found["selection_ranker"], grads(s.module), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(out["scores"].detach(), of_r.detach())


def test_swapping_the_models_swaps_their_roles(tiny):
    examples = batch_of()
    r, s = no_dropout(CrossEncoder(tiny())), no_dropout(CrossEncoder(tiny(seed=1)))
    one, other = pair(r, s), pair(s, r)
    batch = one.collate(examples)
    first, second = one(**batch), other(**batch)
    assert first["relevance_loss"].item() == pytest.approx(second["selection_loss"].item(), rel=1e-6)
    assert first["selection_loss"].item() == pytest.approx(second["relevance_loss"].item(), rel=1e-6)
    assert first["relevance_loss"].item() != pytest.approx(first["selection_loss"].item(), rel=1e-3)


def step_many(both, examples, steps, rate=1e-2):
    optimiser = torch.optim.AdamW([p for n in both.networks().values() for p in n.parameters()], lr=rate)
    batch = both.collate(examples)
    for _ in range(steps):
        optimiser.zero_grad()
        out = both(**batch)
        out["loss"].backward()
        optimiser.step()
    return out


def test_models_that_begin_equal_stay_equal_and_are_told(tiny, caplog):
    r, s = no_dropout(CrossEncoder(tiny())), no_dropout(CrossEncoder(tiny()))
    both = pair(r, s).train()
    step_many(both, batch_of(8), 40)
    for left, right in zip(r.module.parameters(), s.module.parameters()):
        assert torch.equal(left, right)
    said = [record.getMessage() for record in caplog.records if record.name == LOGGER]
    assert sum("begin with equal weights, and nothing distinguishes them: they will stay equal" in text for text in said) == 1
    assert sum("the two models have become one: they order the last 200 pairs alike" in text for text in said) == 1


def test_dropout_alone_is_named_as_such(tiny, caplog):
    both = pair(CrossEncoder(tiny()), CrossEncoder(tiny())).train()
    step_many(both, batch_of(4), 1)
    assert "begin with equal weights, and nothing but dropout distinguishes them" in caplog.text


def test_models_with_heads_of_their_own_are_met_in_silence(tiny, caplog):
    """The paper's form on a checkpoint without a head, long enough to fill the window three times."""
    bare = tiny(labels=None)
    both = pair(CrossEncoder(bare), CrossEncoder(bare, seed=1)).train()
    step_many(both, batch_of(16), 40, rate=2e-3)
    assert [record.getMessage() for record in caplog.records if record.name == LOGGER] == []


def test_weights_that_explode_are_told_once_and_only_without_a_bound(tiny, caplog):
    caplog.set_level("WARNING")
    r, s = CrossEncoder(tiny()), CrossEncoder(tiny(seed=1))
    with torch.no_grad():
        s.module.classifier.weight.mul_(200)
    for max_weight in (1.0, None):
        both = pair(r, s, Coupling(max_weight=max_weight)).train()
        batch = both.collate(batch_of(8))
        for _ in range(3):
            both(**batch)
        assert caplog.text.count("weights explode") == (max_weight is None)


def test_unweighted_steps_count_steps_of_the_optimiser(tiny):
    """Without dropout and without a bound, which could make all weights 1 by chance."""
    r, s = no_dropout(CrossEncoder(tiny())), no_dropout(CrossEncoder(tiny(seed=1)))
    both = pair(r, s, Coupling(unweighted_steps=2, max_weight=None), accumulation=3).train()
    batch = both.collate(batch_of())
    means = [both(**batch)["weight_mean"].item() for _ in range(8)]
    gaps = np.diff(both.selection.scores(batch).detach(), axis=1)
    assert means == [1.0] * 6 + [pytest.approx(np.exp(gaps).mean(), rel=1e-6)] * 2
    assert means[6] != pytest.approx(1.0, rel=1e-3)
    assert int(both.state_dict()["passes"]) == 8
    both.eval()
    both(**batch)
    assert int(both.passes) == 8


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_pass_without_dropout_weighs_and_leaves_gradients_alone(precision, tiny):
    """Under autocast a first pass without a gradient would keep its casts, and the second pass would lose its own."""
    examples = batch_of()
    r, s = CrossEncoder(tiny()), CrossEncoder(tiny(seed=1))
    both = pair(r, s, Coupling(weight_pass="eval", max_weight=None)).train()
    batch = both.collate(examples)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bfloat16"):
        out = both(**batch)
    out["loss"].backward()
    assert all(part.training for part in (both, r.module, s.module))
    assert grads(r.module).abs().sum() > 0
    assert grads(s.module).abs().sum() > 0
    sure = np.array(s.score([e.query for e in examples for _ in e.texts], [t for e in examples for t in e.texts])).reshape(6, 2)
    expected = np.exp(sure[:, 1] - sure[:, 0]).mean()
    assert out["weight_mean"].item() == pytest.approx(expected, rel=1e-5 if precision == "float32" else 0.05)


def test_rows_without_evidence_are_weighed_but_not_learned_from():
    evidence = np.array([[1.0], [0.0], [-1.0], [0.5]])
    known = np.array([True, True, False, True])
    relevance, selection = Toy(), EvidenceScores(evidence, known, np.array([2.0]))
    both = Coupled(relevance, selection, Coupling(max_weight=None)).train()
    mask = torch.ones(1, 4, dtype=torch.bool)
    batch = {
        "mask": mask,
        "weights": mask.float(),
        "input": torch.randn(1, 4, 2, generator=torch.Generator().manual_seed(0)),
        "evidence": torch.from_numpy(evidence[None].astype(np.float32)),
        "known": torch.from_numpy(known[None]),
    }
    out = both(**batch)
    r = relevance.scores(batch)[0].detach()
    gaps, weights = r[1:] - r[0], torch.tensor([-2.0, -4.0, -1.0]).exp()
    assert out["relevance_loss"].item() == pytest.approx((weights * softplus(gaps)).mean().item(), rel=1e-5)
    of_s = (gaps.exp() * softplus(torch.tensor([-2.0, -4.0, -1.0])))[[0, 2]].mean()
    assert out["selection_loss"].item() == pytest.approx(of_s.item(), rel=1e-5)


def test_coefficients_are_single_precision_whatever_the_programs_default():
    torch.set_default_dtype(torch.float64)
    try:
        assert EvidenceScores(np.ones((2, 3)), np.ones(2, dtype=bool), np.ones(3)).network.weight.dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_tokens_are_shared_only_where_they_are_the_same(tiny):
    base, texts = CrossEncoder(tiny()), batch_of()
    assert tokenise_alike(base, CrossEncoder(tiny(seed=1)))
    assert tokenise_alike(base, CrossEncoder(base))
    for other in (
        CrossEncoder(tiny(), max_length=16),
        CrossEncoder(tiny(architecture="roberta")),
        BiEncoder(tiny("build_sentence_transformer")),
    ):
        assert not tokenise_alike(base, other)
        both = pair(base, other).eval()
        batch = both.collate(texts)
        found = both.selection.scores(batch)
        for row, example in enumerate(texts):
            expected = other.score([example.query] * len(example.texts), example.texts)
            np.testing.assert_allclose(found[row].detach(), expected, atol=1e-5)


def test_the_default_tells_hidden_positives_apart_and_helps():
    """Over three worlds with known relevance; what is compared stands in limits that chance does not reach."""
    found = {"plain": [], "default": [], "auc": []}
    for seed in range(3):
        world, rate = World(seed), PoolEvidence().learning_rate
        found["plain"].append(world.quality(world.train(Coupling(tau=1e9), steps=100, rate=rate, seed=seed)))
        both = world.train(Coupling(), steps=100, rate=rate, seed=seed)
        found["default"].append(world.quality(both))
        found["auc"].append(world.told_apart(both))
    assert min(found["auc"]) > 0.6
    assert np.mean(found["default"]) > np.mean(found["plain"]) + 0.05
