"""The product of experts against its closed form, autograd, and the reading of the printed equation."""

from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError
from pyterrier_debias.linguistic.formulas.product_of_experts import focal_by_confidence, joint_scores, product_of_experts
from pyterrier_debias.training.losses import info_nce, pointwise_bce


def draw(seed, rows=3, n=5, scale=5.0):
    chance = np.random.default_rng(seed)
    scores = torch.tensor(scale * chance.normal(size=(rows, n)), requires_grad=True)
    biased = torch.tensor(scale * chance.normal(size=(rows, n)), requires_grad=True)
    mask = torch.tensor(chance.random((rows, n)) < 0.8)
    mask[:, :2] = True
    return scores, biased, mask


def closed_form(scores, biased, mask, alpha, temperature):
    """z_D in proportion to z_R z_B^alpha, with each softmax worked out row by row in numpy."""
    found = np.zeros(scores.shape)
    for row, there in enumerate(mask.numpy()):
        r, b = (np.exp(x.detach().numpy()[row][there] / t) for x, t in ((scores, 1.0), (biased, temperature)))
        z = r / r.sum() * (b / b.sum()) ** alpha
        found[row, there] = z / z.sum()
    return found


@given(seed=st.integers(0, 2**31), alpha=st.floats(0, 1), temperature=st.floats(0.5, 20))
def test_loss_and_gradient_are_those_of_the_closed_form(seed, alpha, temperature):
    scores, biased, mask = draw(seed)
    loss = product_of_experts(scores, biased, mask=mask, alpha=alpha, biased_temperature=temperature)
    z = closed_form(scores, biased, mask, alpha, temperature)
    assert loss.item() == pytest.approx(-np.log(z[:, 0]).mean(), abs=1e-6)
    loss.backward()
    one = np.eye(scores.shape[1])[0]
    np.testing.assert_allclose(scores.grad.numpy(), (z - one) * mask.numpy() / len(z), atol=1e-6)
    assert biased.grad is None


def test_autograd_agrees_with_finite_differences():
    scores, biased, mask = draw(1)
    assert torch.autograd.gradcheck(lambda s: product_of_experts(s, biased.detach(), mask=mask, alpha=0.7), (scores,), atol=1e-6)


@given(seed=st.integers(0, 2**31), shift=st.floats(-30, 30))
def test_row_constants_of_either_model_cancel(seed, shift):
    scores, biased, mask = draw(seed)
    plain = product_of_experts(scores, biased, mask=mask, alpha=0.5)
    shifted = product_of_experts(scores + shift, biased - shift, mask=mask, alpha=0.5)
    assert shifted.item() == pytest.approx(plain.item(), abs=1e-9)


def test_alpha_0_is_the_plain_loss_to_the_last_bit():
    scores, biased, mask = (x.float() if x.is_floating_point() else x for x in draw(2))
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0))
    for given_weights in (None, weights[:, 0], weights):
        plain = info_nce(scores, mask=mask, weights=given_weights)
        assert torch.equal(product_of_experts(scores, biased, mask=mask, weights=given_weights, alpha=0.0), plain)


def test_sure_and_right_lies_below_the_plain_loss_and_sure_and_wrong_above():
    """Figure 2(b)."""
    scores = torch.zeros(1, 4)
    plain = info_nce(scores)
    right, wrong = torch.tensor([[6.0, 0, 0, 0]]), torch.tensor([[0, 6.0, 0, 0]])
    for alpha in (0.1, 1.0):
        below, above = (product_of_experts(scores, b, alpha=alpha) for b in (right, wrong))
        assert below < plain < above
    assert product_of_experts(scores, torch.full((1, 4), 6.0)).item() == pytest.approx(plain.item(), abs=1e-6)


def test_weights_count_as_in_the_plain_loss():
    """Of queries they are factors, of negatives multiplicities: a negative of weight 2 is one that is there twice."""
    scores, biased, _ = (x.detach() if x.is_floating_point() else x for x in draw(3))
    each = torch.stack([product_of_experts(scores[i : i + 1], biased[i : i + 1], alpha=0.4) for i in range(3)])
    by_query = torch.tensor([0.5, 2.0, 0.0], dtype=torch.float64)
    found = product_of_experts(scores, biased, alpha=0.4, weights=by_query)
    assert found.item() == pytest.approx((each * by_query).mean().item(), rel=1e-12)
    twice = torch.ones_like(scores)
    twice[:, 2] = 2
    repeated = [torch.cat([x, x[:, 2:3]], dim=1) for x in (scores, biased)]
    found = product_of_experts(scores, biased, alpha=0.4, weights=twice)
    assert found.item() == pytest.approx(product_of_experts(*repeated, alpha=0.4).item(), rel=1e-12)


def test_half_precision_is_added_in_float32():
    scores = torch.tensor([[256.0, 0.0]], dtype=torch.bfloat16)  # bf16 has steps of 2 there
    assert joint_scores(scores, torch.tensor([[1.0, 0.0]]), alpha=0.5).tolist() == [[256.5, 0.0]]


def test_two_classes_add_their_logits():
    """The product over relevant and not: odds multiply."""
    scores, biased = torch.tensor([[0.3, -1.0]]), torch.tensor([[2.0, 1.0]])
    odds = scores.exp() * biased.exp() ** 0.5
    p = odds / (1 + odds)
    expected = -(p[0, 0].log() + (1 - p[0, 1]).log()) / 2
    found = product_of_experts(scores, biased, alpha=0.5, loss=pointwise_bce)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_what_is_not_there_keeps_its_score_whatever_the_biased_model_says():
    scores, mask = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[True, True, False]])
    for said in (7.0, float("nan"), float("inf")):
        biased = torch.tensor([[2.0, 4.0, said]])
        assert joint_scores(scores, biased, mask=mask, alpha=0.5).tolist() == [[2.0, 4.0, 3.0]]
    assert joint_scores(scores, torch.tensor([[2.0, 4.0, 6.0]]), alpha=0.5).tolist() == [[2.0, 4.0, 6.0]]


def test_defaults_are_the_papers():
    """alpha = .1 and a temperature of 1, of the sums and of the loss."""
    scores, biased, _ = (x.detach() if x.is_floating_point() else x for x in draw(6))
    assert torch.equal(joint_scores(scores, biased), scores + 0.1 * biased)
    assert product_of_experts(scores, biased).item() == info_nce(scores + 0.1 * biased).item()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"biased_temperature": 0}, "joint_scores: biased_temperature=0 must be a number above 0"),
        ({"biased_temperature": -1.0}, "biased_temperature=-1.0 must be"),
        ({"biased_temperature": "1"}, "biased_temperature='1' must be"),
        ({"alpha": -0.1}, "joint_scores: alpha=-0.1 must be a number of at least 0"),
        ({"alpha": float("nan")}, "alpha=nan must be"),
    ],
)
def test_numbers_out_of_range_are_refused(options, message):
    """A temperature of 0 was a ZeroDivisionError, a negative one turned the biased model round."""
    for call in (joint_scores, product_of_experts):
        with pytest.raises(InputError, match=message):
            call(torch.zeros(1, 2), torch.zeros(1, 2), **options)
    with pytest.raises(InputError, match="gamma='2' must be"):
        focal_by_confidence(torch.zeros(1, 2), torch.zeros(1, 2), gamma="2")


def test_divided_by_the_sum_of_weights_a_large_gamma_is_no_smaller_step():
    scores, biased, mask = draw(5, scale=1.0)
    loss = partial(info_nce, reduction="weights")
    found = focal_by_confidence(scores, biased, mask=mask, gamma=6.0, loss=loss)
    z = closed_form(torch.zeros_like(scores), biased, mask, 1.0, 1.0)[:, 0]
    p = closed_form(scores, biased, mask, 0.0, 1.0)[:, 0]
    assert found.item() == pytest.approx(np.average(-np.log(p), weights=(1 - z) ** 6), abs=1e-6)


def test_both_models_must_score_the_same_candidates():
    with pytest.raises(InputError, match=r"shapes \(1, 2\) and \(1, 3\)"):
        joint_scores(torch.zeros(1, 2), torch.zeros(1, 3))


@given(seed=st.integers(0, 2**31), gamma=st.floats(0, 4), temperature=st.floats(0.5, 20))
def test_focal_weighs_each_query_by_what_the_biased_model_lacks(seed, gamma, temperature):
    scores, biased, mask = draw(seed, scale=2.0)
    found = focal_by_confidence(scores, biased, mask=mask, gamma=gamma, biased_temperature=temperature)
    z = closed_form(torch.zeros_like(scores), biased, mask, 1.0, temperature)[:, 0]
    p = closed_form(scores, biased, mask, 0.0, 1.0)[:, 0]
    assert found.item() == pytest.approx((-((1 - z) ** gamma) * np.log(p)).mean(), abs=1e-6)
    found.backward()
    assert biased.grad is None


def test_focal_keeps_the_weights_that_there_are():
    scores, biased, mask = (x.detach() if x.is_floating_point() else x for x in draw(4))
    weights = torch.rand(scores.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    plain = focal_by_confidence(scores, biased, mask=mask, weights=weights, gamma=0.0)
    assert plain.item() == pytest.approx(info_nce(scores, mask=mask, weights=weights).item(), rel=1e-12)
    of_queries = focal_by_confidence(scores, biased, mask=mask, weights=weights[:, 0])
    ones = torch.cat([weights[:, :1], torch.ones_like(weights[:, 1:])], dim=1)
    assert of_queries.item() == pytest.approx(focal_by_confidence(scores, biased, mask=mask, weights=ones).item(), rel=1e-12)


def words_and_meaning(queries=2000, n=4, seed=0):
    """Candidates of two numbers, of which the positive's are drawn higher: what wording gives away, and what meaning tells."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=(queries, n, 2))
    x[:, 0] += (1.5, 1.0)
    return torch.from_numpy(x)


def least(x, biased, alpha, temperature=1.0):
    """The linear ranker that the loss prefers, shape [2]."""
    w = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([w], max_iter=100, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure():
        optimiser.zero_grad()
        loss = product_of_experts(x @ w, biased, alpha=alpha, biased_temperature=temperature)
        loss.backward()
        return loss

    optimiser.step(closure)
    return w.detach().numpy()


@pytest.mark.parametrize(("alpha", "temperature"), [(0.0, 1.0), (0.1, 1.0), (0.5, 2.0), (1.0, 1.0)])
def test_what_the_biased_model_knows_the_robust_one_leaves_out(alpha, temperature):
    """The biased model reads wording alone, with the weight that is right for it (the mean's shift, as the noise has variance 1).

    A ranker that can say what the biased one says ends at the plain one's scores minus the biased part, to the digit.
    """
    x = words_and_meaning()
    biased = 1.5 * x[..., 0]
    plain = least(x, biased, 0.0)
    assert plain == pytest.approx([1.5, 1.0], abs=0.15)
    robust = least(x, biased, alpha, temperature)
    assert robust == pytest.approx([plain[0] - 1.5 * alpha / temperature, plain[1]], abs=1e-5)
    if alpha == 1.0:
        assert abs(robust[0]) < 0.15
