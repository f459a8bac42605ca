"""CET's formulas, against closed forms and against autograd written out."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import InputError
from pyterrier_debias.pooling.formulas.cet_weights import (
    LARGEST,
    Coupling,
    effective_share,
    log_weights,
    pair_losses,
    pair_weights,
    rank_correlation,
    weighted_mean,
)
from pyterrier_debias.training.losses import info_nce, ranknet

CALM = st.floats(-8, 8)
WILD = st.floats(-1e4, 1e4)
TAU = st.floats(0.05, 10)
REDUCTION = st.sampled_from(["pairs", "queries"])


def doubles(values):
    return torch.tensor(values, dtype=torch.float64)


@given(CALM, st.lists(CALM, min_size=1, max_size=5), TAU)
def test_weights_are_the_printed_and_the_released_formula(positive, negatives, tau):
    i, j = doubles([positive]), doubles(negatives)
    for formula, weighting in ((lambda s: (s - positive) / tau, "paper"), (lambda s: math.log1p(math.exp(s / tau)), "released")):
        expected = [formula(s) for s in negatives]
        found = log_weights(i, j, tau=tau, weighting=weighting)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        weights = pair_weights(i, j, tau=tau, weighting=weighting, max_weight=None)
        np.testing.assert_allclose(weights, np.exp(np.minimum(expected, LARGEST)), rtol=1e-6)
        bounded = pair_weights(i, j, tau=tau, weighting=weighting, max_weight=1.5)
        np.testing.assert_allclose(bounded, np.minimum(np.exp(expected), 1.5), rtol=1e-6)
        one = pair_weights(i, j, tau=tau, weighting=weighting, max_weight=None, normalise="mean_one")
        relative = np.exp(np.array(expected) - max(expected))
        np.testing.assert_allclose(one, relative / relative.mean(), rtol=1e-6)


def test_the_released_weight_is_one_over_one_minus_the_sigmoid():
    j = doubles([-3.0, 0.0, 2.5])
    expected = 1 / (1 - torch.sigmoid(j / 10))
    found = pair_weights(doubles([7.0]), j, tau=10.0, weighting="released", max_weight=None)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", ["pairs", "listwise"])
@settings(max_examples=25)
@given(data=st.data())
def test_nothing_runs_over(dtype, loss, data):
    """Scores up to 1e4 either way, every tau: finite weights, losses and gradients."""
    rows = data.draw(st.lists(st.lists(WILD, min_size=3, max_size=3), min_size=1, max_size=3))
    coupling = Coupling(
        tau=data.draw(TAU),
        weighting=data.draw(st.sampled_from(["paper", "released"])),
        max_weight=data.draw(st.sampled_from([None, 2.0])),
        normalise_weights=data.draw(st.sampled_from([None, "mean_one"])),
        loss=loss,
    )
    scores = torch.tensor(rows, dtype=dtype, requires_grad=True)
    others = torch.tensor(rows, dtype=dtype).flip(0)
    valid = torch.ones(len(rows), 2, dtype=torch.bool)
    weights = coupling.weights(others[:, :1], others[:, 1:], valid)
    value = coupling.loss_of(scores, weights, valid)
    value.backward()
    assert weights.dtype == value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert weights.isfinite().all()
    assert (weights >= 0).all()
    assert value.isfinite()
    assert scores.grad.isfinite().all()
    if coupling.normalise_weights == "mean_one":
        assert float(weights.mean()) == pytest.approx(1, rel=1e-5)
    elif coupling.max_weight is not None:
        assert float(weights.max()) <= 2.0000001


def test_half_precision_scores_weigh_as_their_exact_values():
    scores = torch.tensor([[8.0, 1.125], [-3.5, 4.25]], dtype=torch.bfloat16)
    found = pair_weights(scores[:, :1], scores[:, 1:], max_weight=None)
    np.testing.assert_allclose(found.flatten(), np.exp([1.125 - 8, 4.25 + 3.5]), rtol=1e-6)


@settings(max_examples=25)
@given(st.lists(st.lists(CALM, min_size=4, max_size=4), min_size=1, max_size=4), st.floats(0.6, 10), REDUCTION)
def test_both_gradients_are_those_of_the_equations(rows, tau, reduction):
    """Written out with loops and plain autograd, weights as constants; a second run with the models' roles swapped."""
    r, s = doubles(rows), doubles(rows).flip(1) / 2
    coupling, results = Coupling(tau=tau, max_weight=None, reduction=reduction), []
    for left, right in ((r, s), (s, r)):
        left, right = left.clone().requires_grad_(), right.clone().requires_grad_()
        valid = torch.ones(len(rows), 3, dtype=torch.bool)
        loss = sum(
            coupling.loss_of(own, coupling.weights(other[:, :1], other[:, 1:], valid), valid)
            for own, other in ((left, right), (right, left))
        )
        loss.backward()
        results.append((float(loss.detach()), left.grad, right.grad))

    a, b = r.clone().requires_grad_(), s.clone().requires_grad_()
    total = 0.0
    for own, other in ((a, b), (b, a)):
        for row in range(len(rows)):
            for j in range(1, 4):
                constant = math.exp(float((other[row, j] - other[row, 0]).detach()) / tau)
                term = constant * -torch.log(torch.sigmoid(own[row, 0] - own[row, j]))
                total = total + term / (len(rows) * (3 if reduction == "pairs" else 1))
    total.backward()
    for loss, of_r, of_s in (results[0], (results[1][0], results[1][2], results[1][1])):
        assert loss == pytest.approx(float(total.detach()), rel=1e-6)
        torch.testing.assert_close(of_r, a.grad, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(of_s, b.grad, rtol=1e-6, atol=1e-9)


def test_weights_carry_no_gradient():
    s = torch.randn(3, 4, requires_grad=True)
    for weighting in ("paper", "released"):
        weights = pair_weights(s[:, :1], s[:, 1:], weighting=weighting, max_weight=None, normalise="mean_one")
        assert not weights.requires_grad


def test_a_large_temperature_is_plain_training():
    r, s = doubles([[1.0, 3.0, -2.0], [0.0, 0.5, 4.0]]).requires_grad_(), doubles([[5.0, -1.0, 2.0], [1.0, 8.0, 0.0]])
    valid = torch.ones(2, 2, dtype=torch.bool)
    for loss, plain in (("pairs", ranknet), ("listwise", info_nce)):
        for coupling in (Coupling(tau=1e9, max_weight=None, loss=loss), Coupling(tau=1e9, loss=loss)):
            weights = coupling.weights(s[:, :1], s[:, 1:], valid)
            found = coupling.loss_of(r, weights, valid)
            assert found.item() == pytest.approx(plain(r).item(), rel=1e-7)


def test_the_listwise_loss_counts_each_negative_as_often_as_its_weight_says():
    """A weight of 3 is the document three times; with one negative of weight 1 it is the pair's loss."""
    scores, valid = doubles([[0.3, 1.2, -0.7]]), torch.ones(1, 2, dtype=torch.bool)
    coupling = Coupling(loss="listwise", max_weight=None)
    found = coupling.loss_of(scores, doubles([[3.0, 1.0]]), valid)
    repeated = info_nce(doubles([[0.3, 1.2, 1.2, 1.2, -0.7]]))
    assert found.item() == pytest.approx(repeated.item(), abs=1e-12)
    one = coupling.loss_of(scores[:, :2], doubles([[1.0]]), valid[:, :1])
    assert one.item() == pytest.approx(pair_losses(scores[:, :2]).item(), abs=1e-12)
    without = coupling.loss_of(scores, doubles([[0.0, 1.0]]), valid)
    assert without.item() == pytest.approx(info_nce(scores[:, [0, 2]]).item(), abs=1e-12)


def test_weights_given_beforehand_multiply():
    scores, valid = doubles([[0.3, 1.2, -0.7], [1.0, 0.0, 2.0]]), torch.tensor([[True, True], [True, False]])
    weights, known = doubles([[0.5, 2.0], [1.0, 9.0]]), doubles([[1.0, 3.0, 0.25], [1.0, 0.5, 1.0]])
    losses = [math.log1p(math.exp(gap)) for gap in (0.9, -1.0, -1.0)]
    total = 0.5 * 3 * losses[0] + 2 * 0.25 * losses[1] + 0.5 * losses[2]
    assert Coupling().loss_of(scores, weights, valid, known).item() == pytest.approx(total / 3, rel=1e-9)
    assert Coupling(reduction="queries").loss_of(scores, weights, valid, known).item() == pytest.approx(total / 2, rel=1e-9)


def test_a_batch_without_a_pair_costs_nothing_and_has_a_gradient():
    scores, none = torch.zeros(2, 3, requires_grad=True), torch.zeros(2, 2, dtype=torch.bool)
    for options in ({}, {"normalise_weights": "mean_one"}, {"loss": "listwise"}, {"reduction": "queries"}):
        coupling = Coupling(**options)
        value = coupling.loss_of(scores, coupling.weights(scores[:, :1], scores[:, 1:], none), none)
        value.backward()
        assert value.item() == 0
        assert not scores.grad.any()


def test_weighted_mean_by_hand():
    losses, weights = doubles([[1.0, 2.0], [4.0, 8.0]]), doubles([[1.0, 0.5], [0.25, 7.0]])
    valid = torch.tensor([[True, True], [True, False]])
    assert weighted_mean(losses, weights, valid).item() == pytest.approx(1.0)
    assert weighted_mean(losses, weights, valid, "queries").item() == pytest.approx(1.5)


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=20))
def test_effective_share_by_its_definition(values):
    w = np.array(values)
    assert effective_share(doubles(values)).item() == pytest.approx(w.sum() ** 2 / (w**2).sum() / len(w))


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=20))
def test_rank_correlation_is_scipys(pairs):
    left, right = np.array(pairs, dtype=float).T
    found = rank_correlation(torch.from_numpy(left), torch.from_numpy(right)).item()
    if left.std() == 0 or right.std() == 0:
        assert math.isnan(found)
    else:
        assert found == pytest.approx(scipy.stats.spearmanr(left, right).statistic, abs=1e-9)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tau": 0.0}, "tau=0.0 must be a number above 0"),
        ({"tau": math.inf}, "tau=inf must be"),
        ({"tau": "1"}, "tau='1' must be a number above 0"),
        ({"weighting": "printed"}, "weighting='printed' is not known; use one of 'paper', 'released'"),
        ({"max_weight": 0.0}, "max_weight=0.0 must be a number above 0"),
        ({"weighting": "released"}, "plain training; use max_weight=None"),
        ({"normalise_weights": "sum"}, "use one of None, 'mean_one'"),
        ({"weight_pass": "both"}, "weight_pass='both'"),
        ({"reduction": "mean"}, "reduction='mean'"),
        ({"unweighted_steps": -1}, "unweighted_steps=-1 must be a whole number"),
        ({"loss": "hinge"}, "loss='hinge' is not known; use one of 'pairs', 'listwise'"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, message):
    with pytest.raises(InputError, match=message):
        Coupling(**options)
