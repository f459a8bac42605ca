"""The largest logits of terms, and their gradients, against PyTorch's own operations and against numerical derivatives."""

import pytest
import torch

from pyterrier_debias import SparseEncoder
from pyterrier_debias.rankers import sparse_encoder
from pyterrier_debias.rankers.largest_logits import largest_logits
from tests.training.toy import candidates, no_dropout, qrels, training


def given(seed, *, n=3, tokens=5, width=4, terms=11, dtype=torch.float64):
    drawn = torch.Generator().manual_seed(seed)
    shapes = (n, tokens, width), (terms, width), (terms,)
    states, weight, bias = (torch.randn(shape, generator=drawn, dtype=dtype) for shape in shapes)
    mask = torch.rand(n, tokens, generator=drawn) < 0.6
    mask[:, 2] = True
    return states.requires_grad_(), mask.long(), weight.requires_grad_(), bias.requires_grad_()


def plain(states, mask, weight, bias):
    logits = torch.nn.functional.linear(states, weight, bias)
    return logits.masked_fill(~mask.bool()[..., None], -torch.inf).max(dim=1).values


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_values_and_gradients_are_those_of_pytorch(seed, biased):
    states, mask, weight, bias = given(seed)
    bias = bias if biased else None
    inputs = [one for one in (states, weight, bias) if one is not None]
    found, expected = largest_logits(states, mask, weight, bias), plain(states, mask, weight, bias)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    # Weights of terms are 0 below 0: most gradients are.
    by = torch.randn(found.shape, generator=torch.Generator().manual_seed(9), dtype=found.dtype) * (found > 0.5)
    own, theirs = (torch.autograd.grad(values, inputs, by, retain_graph=True) for values in (found, expected))
    for one, other in zip(own, theirs):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_numerical_derivatives():
    states, mask, weight, bias = given(4, n=2, tokens=4, terms=5)
    assert torch.autograd.gradcheck(lambda s, w, b: largest_logits(s, mask, w, b), (states, weight, bias))


def test_the_first_of_several_and_nothing_at_all():
    states = torch.ones(1, 3, 2, requires_grad=True)
    weight = torch.ones(4, 2, requires_grad=True)
    found = largest_logits(states, torch.tensor([[0, 1, 1]]), weight, None)
    found.sum().backward()
    assert states.grad[0].tolist() == [[0, 0], [4, 4], [0, 0]]
    states.grad = weight.grad = None
    (largest_logits(states, torch.tensor([[0, 1, 1]]), weight, None) * 0).sum().backward()
    assert not states.grad.any() and not weight.grad.any()


def test_what_is_frozen_gets_no_gradient():
    states, mask, weight, bias = given(5)
    largest_logits(states, mask, weight.requires_grad_(False), bias).sum().backward()
    assert weight.grad is None and states.grad is not None and bias.grad is not None


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_sparse_encoder_is_trained_the_same(precision, tiny, monkeypatch):
    """Loss by loss, and in all weights at the end."""

    def trained():
        ranker = no_dropout(SparseEncoder(tiny("build_sparse"), query_flops=0.01, document_flops=0.01))
        ranker.training = training(max_steps=6, precision=precision)
        ranker.fit(candidates(), qrels())
        history = ranker.training_report.history
        return [entry["loss"] for entry in history if "loss" in entry], ranker.module.state_dict()

    losses, weights = trained()
    calls = []
    monkeypatch.setattr(sparse_encoder, "_trains_fast", lambda *args: calls.append(args))
    expected, theirs = trained()
    assert calls and len(losses) == 6
    tolerance = 1e-4 if precision == "float32" else 0.05
    assert losses == pytest.approx(expected, rel=tolerance)
    if precision == "float32":
        for name, value in weights.items():
            # Attention does not depend on the biases of its keys: their gradients are rounding errors, which Adam scales up.
            if not name.endswith("attention.self.key.bias"):
                torch.testing.assert_close(value, theirs[name], rtol=1e-3, atol=2e-4, msg=name)


def test_the_sum_of_logits_and_hooks_go_the_librarys_way(tiny):
    ranker = SparseEncoder(tiny("build_sparse"))
    encoder, pooling = ranker.module
    assert sparse_encoder._trains_fast(encoder.model, pooling)
    seen = []
    hook = encoder.model.cls.predictions.decoder.register_forward_hook(lambda *args: seen.append(args))
    assert not sparse_encoder._trains_fast(encoder.model, pooling)
    ranker.training = training(max_steps=1)
    ranker.fit(candidates(), qrels())
    assert seen
    hook.remove()
    pooling.pooling_strategy = "sum"
    assert not sparse_encoder._trains_fast(encoder.model, pooling)
