"""Losses against closed forms, plain loops, torch, sentence-transformers and finite differences."""

import inspect
import math

import numpy as np
import pytest
import torch

from pyterrier_debias import InputError
from pyterrier_debias.training import losses
from pyterrier_debias.training.losses import GRADED, LOSSES, get_loss

CASES = [(name, {}) for name in LOSSES]
CASES += [
    ("hinge", {"margin": 0.3}),
    ("infonce", {"temperature": 0.05}),
    ("lambda", {"scheme": "lambdarank"}),
    ("lambda", {"scheme": "ndcg2"}),
]


def scores(rows=4, n=5, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(rows, n)) * 2)


def softplus(x):
    return math.log1p(math.exp(-abs(x))) + max(x, 0)


def by_loops(name, scores, mask, weights):
    """Every loss but lambda, literally, one query at a time."""
    terms = []
    for row, there, weight in zip(scores.tolist(), mask.tolist(), weights.tolist()):
        negatives = [j for j in range(1, len(row)) if there[j] and there[0]]
        if name == "hinge":
            terms += [weight[j] * max(0.0, 1 - row[0] + row[j]) for j in negatives]
        elif name in ("ranknet", "pairwise"):
            terms += [weight[j] * softplus(row[j] - row[0]) for j in negatives]
        elif name == "bce":
            terms += [weight[j] * softplus(row[j] if j else -row[0]) for j in range(len(row)) if there[j]]
        elif name == "softmax" and there[0]:
            terms.append(weight[0] * math.log(1 + sum(math.exp(row[j] - row[0]) for j in negatives)))
        elif there[0]:
            rest = sum(weight[j] * math.exp(row[j] - row[0]) for j in negatives)
            terms.append(weight[0] * math.log(1 + rest))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lambda"])
def test_equals_plain_loops_with_ragged_rows_and_weights(name):
    values, rng = scores(), np.random.default_rng(1)
    mask = torch.from_numpy(rng.random(values.shape) < 0.7)
    mask[:, 0] = True
    weights = torch.from_numpy(rng.random(values.shape) * 2)
    weights[0, 1] = 0
    found = LOSSES[name](values, mask=mask, weights=weights)
    assert float(found) == pytest.approx(by_loops(name, values, mask, weights), abs=1e-12)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "lambda"])
def test_divided_by_the_sum_of_weights_it_is_a_weighted_mean(name):
    """Numpy's weighted average of each term's loss; of InfoNCE negatives' weights are multiplicities and do not divide."""
    values, rng = scores(), np.random.default_rng(1)
    mask = torch.from_numpy(rng.random(values.shape) < 0.7)
    mask[:, 0] = True
    weights = torch.from_numpy(rng.random(values.shape) * 2)
    first = mask & (torch.arange(5) == 0)
    counted = {"bce": mask, "infonce": first, "softmax": first}.get(name, mask & (torch.arange(5) > 0))
    expected = by_loops(name, values, mask, weights) * int(counted.sum()) / float(weights[counted].sum())
    found = LOSSES[name](values, mask=mask, weights=weights, reduction="weights")
    assert float(found) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_common_factor_of_weights_then_changes_nothing(name):
    values, weights = scores(), torch.tensor([0.2, 0.4, 0.0, 0.1], dtype=torch.float64)
    first, second = (LOSSES[name](values, weights=factor * weights, reduction="weights") for factor in (1, 1000))
    assert float(first) == pytest.approx(float(second), rel=1e-12)
    plain = LOSSES[name](values, reduction="weights")
    assert float(plain) == pytest.approx(float(LOSSES[name](values)), rel=1e-12)
    nothing = LOSSES[name](values.clone().requires_grad_(), weights=torch.zeros(4), reduction="weights")
    assert nothing.item() == 0 and nothing.requires_grad
    with pytest.raises(InputError, match="losses: reduction='sum' is not known; use one of 'count', 'weights'"):
        LOSSES[name](values, reduction="sum")


@pytest.mark.parametrize("name", LOSSES)
def test_closed_forms_where_all_scores_are_equal(name):
    known = {
        "hinge": 1.0,
        "ranknet": math.log(2),
        "pairwise": math.log(2),
        "infonce": math.log(3),
        "softmax": math.log(3),
        "bce": math.log(2),
        # Ranks 0, 1, 2, ideal DCG 1, gap 1: mu times the step at distance 1 and 2, plus the difference of discounts.
        "lambda": np.mean([10 * (1 - 1 / math.log2(3)) + (1 - 1 / math.log2(3)), 10 * (1 / math.log2(3) - 1 / 2) + (1 - 1 / 2)]),
    }
    assert float(LOSSES[name](torch.zeros(2, 3, dtype=torch.float64))) == pytest.approx(known[name], abs=1e-12)


@pytest.mark.parametrize(("name", "options"), CASES)
def test_gradients_are_those_of_finite_differences(name, options):
    loss, rng = get_loss(name, options), np.random.default_rng(5)
    values = scores(3, 4, seed=2).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 1]]).bool()
    labels = torch.tensor([[3, 1, 0, 0], [1, 0, 0, 0], [2, 0, 1, 0]]) if name in GRADED else None
    weights = torch.from_numpy(rng.random((3, 4)))
    assert torch.autograd.gradcheck(lambda s: loss(s, labels=labels, mask=mask, weights=weights), (values,))


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_masked_plays_no_part(name):
    values = scores().requires_grad_()
    mask = torch.ones_like(values, dtype=torch.bool)
    mask[:, -2:] = False
    dirty = values.detach().clone()
    dirty[:, -2:] = float("nan")
    dirty.requires_grad_()
    whole, padded = LOSSES[name](values[:, :-2]), LOSSES[name](dirty, mask=mask)
    assert padded.item() == pytest.approx(whole.item(), abs=1e-12)
    whole.backward()
    padded.backward()
    assert torch.allclose(dirty.grad[:, :-2], values.grad[:, :-2], atol=1e-12)
    assert (dirty.grad[:, -2:] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_weights_multiply_and_take_no_gradient(name):
    values = scores().requires_grad_()
    weights = torch.full((4,), 0.5, dtype=torch.float64, requires_grad=True)
    halved = LOSSES[name](values, weights=weights)
    assert halved.item() == pytest.approx(0.5 * LOSSES[name](values).item(), abs=1e-12)
    halved.backward()
    assert weights.grad is None
    one_query = torch.tensor([1.0, 0, 0, 0])
    assert LOSSES[name](values, weights=one_query).item() == pytest.approx(LOSSES[name](values[:1]).item() / 4, abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_a_batch_without_anything_to_compare_costs_nothing(name):
    values = scores().requires_grad_()
    loss = LOSSES[name](values, mask=torch.zeros_like(values, dtype=torch.bool))
    loss.backward()
    assert loss.item() == 0
    assert (values.grad == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_huge_scores_stay_finite_and_half_precision_is_computed_in_float32(name):
    huge = torch.tensor([[-500.0, 500.0, 0.0]], requires_grad=True)
    loss = LOSSES[name](huge)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(huge.grad).all()
    rounded = scores().bfloat16()
    assert LOSSES[name](rounded).dtype == torch.float32
    assert float(LOSSES[name](rounded)) == pytest.approx(float(LOSSES[name](rounded.float())))


def test_against_torchs_own():
    values = scores()
    target = torch.zeros(len(values), dtype=torch.long)
    assert torch.allclose(losses.info_nce(values, temperature=0.2), torch.nn.functional.cross_entropy(values / 0.2, target))
    ranking = torch.nn.MarginRankingLoss(margin=0.7)
    first, others = values[:, :1].expand(-1, 4).reshape(-1), values[:, 1:].reshape(-1)
    assert torch.allclose(losses.pairwise_hinge(values, margin=0.7), ranking(first, others, torch.ones_like(first)))
    graded = torch.tensor([[2, 0, 1, 0, 0]] * 4)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(values, (graded > 0).double())
    assert torch.allclose(losses.pointwise_bce(values, labels=graded), expected)
    pair = values[:, :2]
    assert torch.allclose(losses.pairwise_cross_entropy(pair), torch.nn.functional.cross_entropy(pair, target))
    assert torch.allclose(losses.info_nce(pair), losses.ranknet(pair))
    expected = torch.nn.functional.cross_entropy(values, graded.double())
    assert torch.allclose(losses.listwise_softmax(values, labels=graded), expected)


def test_rankt5s_losses_over_graded_lists_of_different_length():
    """By loops, with weights of documents: the term of a relevant one, the pair of its less relevant one; a list without any."""
    values, weights = scores(4, 4), torch.from_numpy(np.random.default_rng(3).random((4, 4)))
    labels = torch.tensor([[2, 1, 0, 0], [1, 0, -2, 1], [3, 1, 2, 0], [0, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 1, 1]]).bool()
    lists, pairs = [], []
    for row, there, grade, weight in zip(values.tolist(), mask.tolist(), labels.clamp(min=0).tolist(), weights.tolist()):
        rows = [j for j in range(4) if there[j]]
        normaliser = math.log(sum(math.exp(row[j]) for j in rows))
        if any(grade[j] for j in rows):
            lists.append(sum(weight[j] * grade[j] * (normaliser - row[j]) for j in rows))
        pairs += [weight[j] * softplus(row[j] - row[i]) for i in rows for j in rows if grade[i] > grade[j]]
    found = {name: float(LOSSES[name](values, labels=labels, mask=mask, weights=weights)) for name in ("softmax", "ranknet")}
    assert found == pytest.approx({"softmax": sum(lists) / 3, "ranknet": sum(pairs) / len(pairs)}, abs=1e-12)


class Fixed(torch.nn.Module):
    """What sentence-transformers' LambdaLoss asks of a model; it scores pairs by numbers that are given."""

    num_labels, device = 1, torch.device("cpu")

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def preprocess(self, pairs, prompt=None, task=None):
        return {"at": torch.tensor([[int(query), int(document)] for query, document in pairs])}

    def forward(self, features):
        return {"scores": self.scores[features["at"][:, 0], features["at"][:, 1]]}


@pytest.mark.parametrize("scheme", losses.LAMBDA_SCHEMES)
def test_lambda_loss_equals_sentence_transformers(scheme):
    from sentence_transformers.cross_encoder import losses as theirs

    weighting = {"lambdarank": theirs.LambdaRankScheme, "ndcg2": theirs.NDCGLoss2Scheme, "ndcg2++": theirs.NDCGLoss2PPScheme}
    values = scores(seed=7).float().requires_grad_()
    labels = torch.tensor([[3, 0, 2, 0, 1], [1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [2, 1, 0, 0, 0]]).float()
    lengths = [5, 5, 3, 4]
    other = values.detach().clone().requires_grad_()
    loss = theirs.LambdaLoss(Fixed(other), weighting_scheme=weighting[scheme]())
    inputs = [[str(i) for i in range(4)], [[str(j) for j in range(n)] for n in lengths]]
    expected = loss(inputs, [row[:n] for row, n in zip(labels, lengths)])
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    found = losses.lambda_loss(values, labels=labels, mask=mask, scheme=scheme)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    expected.backward()
    found.backward()
    assert torch.allclose(values.grad, other.grad, atol=1e-6)


def test_every_loss_has_one_signature():
    for loss in LOSSES.values():
        names = list(inspect.signature(loss).parameters)
        assert names[:4] == ["scores", "labels", "mask", "weights"]


def test_what_cannot_be_used_is_named():
    def mean(scores, mask=None, weights=None):
        return scores.mean()

    with pytest.raises(InputError, match="loss='hing' is not known; use one of 'hinge'"):
        get_loss("hing")
    with pytest.raises(InputError, match=r"'mean' does not take the keyword 'labels'; define it as a function \(scores, labels"):
        get_loss(mean)
    with pytest.raises(InputError, match="scheme='ndcg9'"):
        losses.lambda_loss(scores(), scheme="ndcg9")
    with pytest.raises(InputError, match="shape"):
        losses.ranknet(scores()[0])
    with pytest.raises(InputError, match="weights"):
        losses.ranknet(scores(), weights=torch.ones(3))
