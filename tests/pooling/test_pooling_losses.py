"""Losses that expect unlabelled positives, against closed forms, plain loops and finite differences."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import CrossEncoder, InputError
from pyterrier_debias.pooling.formulas.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.training.losses import info_nce, pairwise_cross_entropy
from tests.training.toy import candidates, qrels, training

LOSSES = {
    "debiased": debiased_contrastive,
    "debiased, cosine": lambda scores, **more: debiased_contrastive(scores, temperature=0.3, min_score=-3.0, **more),
    "dynamic": dynamic_pairwise,
}


def scores(rows=4, n=5, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, n)))


def debiased_by_loops(scores, mask, weights, tau_plus, t, min_score):
    """Equation 8 of the paper, one query at a time; weights of negatives count them several times."""
    losses = []
    for row, there, weight in zip(scores.tolist(), mask.tolist(), weights.tolist()):
        positive = math.exp(row[0] / t)
        negatives = [(weight[j], math.exp(row[j] / t)) for j in range(1, len(row)) if there[j]]
        n = sum(count for count, _ in negatives)
        mean = sum(count * value for count, value in negatives) / n
        g = (mean - tau_plus * positive) / (1 - tau_plus)
        g = max(g, math.exp(min_score / t) if min_score is not None else 0)
        losses.append(weight[0] * -math.log(positive / (positive + n * g)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("min_score", [None, -3.0, -0.5])
@pytest.mark.parametrize("t", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("tau_plus", [0.0, 0.01, 0.1, 0.5])
def test_debiased_is_the_papers_estimator(tau_plus, t, min_score):
    values, rng = scores(6, 5), np.random.default_rng(1)
    mask = torch.from_numpy(rng.random(values.shape) < 0.8)
    mask[:, :2] = True
    weights = torch.from_numpy(rng.random(values.shape) * 2)
    found = debiased_contrastive(
        values, mask=mask, weights=weights, tau_plus=tau_plus, temperature=t, min_score=min_score
    )
    assert float(found) == pytest.approx(debiased_by_loops(values, mask, weights, tau_plus, t, min_score), abs=1e-12)


def test_debiased_is_what_was_proposed_for_sentence_transformers():
    """Its definition on a batch of cosines, in-batch negatives: clamp at exp(-scale), N_neg = columns - 1."""
    scale, tau_plus = 20.0, 0.1
    rng = np.random.default_rng(2)
    vectors = torch.nn.functional.normalize(torch.from_numpy(rng.normal(size=(8, 3))), dim=1)
    similar = (vectors[:4] @ vectors[4:].T) * scale
    own = torch.eye(4, dtype=torch.bool)
    negatives = similar.exp().masked_fill(own, 0).sum(dim=1)
    positives = similar.diagonal().exp()
    g = ((negatives / 3 - tau_plus * positives) / (1 - tau_plus)).clamp(min=math.exp(-scale))
    expected = -(positives / (positives + 3 * g)).log().mean()
    rows = torch.stack([torch.cat([similar[i, i : i + 1], similar[i][~own[i]]]) for i in range(4)]) / scale
    found = debiased_contrastive(rows, tau_plus=tau_plus, temperature=1 / scale, min_score=-1.0)
    assert float(found) == pytest.approx(float(expected), rel=1e-9)


def test_debiased_without_a_share_is_info_nce():
    values, mask = scores(5, 4), torch.ones(5, 4, dtype=torch.bool)
    mask[1, 2:] = False
    weights = torch.from_numpy(np.random.default_rng(3).random((5, 4)))
    plain = info_nce(values, mask=mask, weights=weights, temperature=0.7)
    assert float(debiased_contrastive(values, mask=mask, weights=weights, tau_plus=0, temperature=0.7)) == pytest.approx(
        float(plain), abs=1e-12
    )


def test_debiased_stops_where_its_documentation_says():
    """One negative: nothing is left once it lies -t ln(tau+) below the positive, and something is a little before."""
    gap = -2.0 * math.log(0.1)
    for distance, zero in ((gap + 1e-6, True), (gap - 1e-3, False)):
        loss = debiased_contrastive(torch.tensor([[distance, 0.0]], dtype=torch.float64), tau_plus=0.1, temperature=2.0)
        assert (loss.item() == 0) is zero


@settings(max_examples=60)
@given(
    st.lists(st.floats(-1e4, 1e4, width=32), min_size=2, max_size=6),
    st.sampled_from([0.0, 0.05, 0.5, 0.99]),
    st.sampled_from([0.05, 1.0, 10.0]),
    st.sampled_from([None, -1.0]),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_debiased_never_overflows(row, tau_plus, t, min_score, dtype):
    values = torch.tensor([row], dtype=dtype, requires_grad=True)
    loss = debiased_contrastive(values, tau_plus=tau_plus, temperature=t, min_score=min_score)
    loss.backward()
    assert torch.isfinite(loss)
    assert loss >= 0
    assert torch.isfinite(values.grad).all()


def test_dynamic_by_plain_loops():
    values, rng = scores(6, 4, seed=4) * 2, np.random.default_rng(4)
    mask = torch.from_numpy(rng.random(values.shape) < 0.7)
    mask[:, 0] = True
    weights = torch.from_numpy(rng.random(values.shape))
    terms = []
    for row, there, weight in zip(values.tolist(), mask.tolist(), weights.tolist()):
        for j in range(1, len(row)):
            if there[j]:
                p = 1 / (1 + math.exp(row[0] - row[j]))
                terms.append(weight[j] * math.exp(-((p - 0.4) ** 2) / (2 * 0.3**2)) * -math.log(1 - p))
    found = dynamic_pairwise(values, mask=mask, weights=weights, centre=0.4, width=0.3)
    assert float(found) == pytest.approx(sum(terms) / len(terms), abs=1e-12)


def test_dynamic_with_a_wide_gaussian_is_plain():
    values = scores(6, 4, seed=5)
    assert float(dynamic_pairwise(values, width=1e6)) == pytest.approx(float(pairwise_cross_entropy(values)), abs=1e-9)


def test_dynamic_weights_take_no_gradient():
    """The gradient is the weight times the plain gradient, with no term of the weight's own."""
    values = scores(1, 2, seed=6).requires_grad_()
    dynamic_pairwise(values).backward()
    p = torch.sigmoid(values[0, 1] - values[0, 0]).item()
    weight = math.exp(-((p - 0.5) ** 2) / (2 * 0.25**2))
    assert values.grad[0].tolist() == pytest.approx([-weight * p, weight * p], abs=1e-12)


def test_dynamic_hardly_counts_a_negative_that_looks_far_better():
    def pull(gap):
        values = torch.tensor([[0.0, gap]], requires_grad=True)
        dynamic_pairwise(values).backward()
        return values.grad[0, 1].item()

    assert pull(6.0) < 0.3 < pull(0.5) < 1


def test_gradients_are_those_of_finite_differences():
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]]).bool()
    weights = torch.from_numpy(np.random.default_rng(5).random((3, 4)) + 0.1)
    values = scores(3, 4, seed=2).requires_grad_()
    for min_score in (None, -0.2):
        assert torch.autograd.gradcheck(
            lambda s, m=min_score: debiased_contrastive(s, mask=mask, weights=weights, min_score=m), (values,)
        )


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_masked_plays_no_part(name):
    loss, values = LOSSES[name], scores().requires_grad_()
    mask = torch.ones_like(values, dtype=torch.bool)
    mask[:, -2:] = False
    dirty = values.detach().clone()
    dirty[:, -2:] = float("nan")
    dirty.requires_grad_()
    whole, padded = loss(values[:, :-2]), loss(dirty, mask=mask)
    assert padded.item() == pytest.approx(whole.item(), abs=1e-12)
    whole.backward()
    padded.backward()
    assert torch.allclose(dirty.grad[:, :-2], values.grad[:, :-2], atol=1e-12)
    assert (dirty.grad[:, -2:] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_nothing_to_compare_costs_nothing(name):
    values = scores().requires_grad_()
    for mask in (torch.zeros_like(values, dtype=torch.bool), torch.tensor([[True] + [False] * 4] * 4)):
        loss = LOSSES[name](values, mask=mask)
        loss.backward()
        assert loss.item() == 0
        assert (values.grad == 0).all()
    assert LOSSES[name](scores(4, 1)).item() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_queries_are_weighed(name):
    values = scores() - torch.tensor([3.0, 0, 0, 0, 0])
    one = torch.tensor([1.0, 0, 0, 0])
    assert LOSSES[name](values, weights=one).item() == pytest.approx(LOSSES[name](values[:1]).item() / 4, abs=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"tau_plus": 1.0}, "tau_plus"), ({"tau_plus": -0.1}, "tau_plus"), ({"temperature": 0.0}, "temperature")],
)
def test_debiased_refuses(options, message):
    with pytest.raises(InputError, match=message):
        debiased_contrastive(scores(), **options)


def test_dynamic_refuses_no_width():
    with pytest.raises(InputError, match="width"):
        dynamic_pairwise(scores(), width=0.0)


@pytest.mark.parametrize(("loss", "options"), [(debiased_contrastive, {"tau_plus": 0.01}), (dynamic_pairwise, {"width": 0.5})])
def test_rankers_are_trained_with_them(loss, options, tiny):
    ranker = CrossEncoder(tiny())
    before = ranker.fingerprint()
    ranker.training = training(loss=loss, loss_options=options, max_steps=3, negatives_per_positive=2)
    ranker.fit(candidates(), qrels())
    logged = [entry["loss"] for entry in ranker.training_report.history if "loss" in entry]
    assert len(logged) == 3
    assert np.isfinite(logged).all()
    assert ranker.fingerprint() != before
    assert ranker.training_report.options["loss"].endswith(loss.__qualname__)
    assert ranker.training_report.options["loss_options"] == options


@pytest.mark.parametrize("tau_plus", [0.0, 0.1])
def test_a_weight_of_one_negative_is_its_multiplicity(tau_plus):
    scores = torch.tensor([[1.0, 0.4], [0.2, 0.3]], dtype=torch.float64)
    once = debiased_contrastive(scores, weights=torch.tensor([[1.0, 3.0], [1.0, 3.0]]), tau_plus=tau_plus)
    thrice = debiased_contrastive(scores[:, [0, 1, 1, 1]], tau_plus=tau_plus)
    assert float(once) == pytest.approx(float(thrice), abs=1e-12)
