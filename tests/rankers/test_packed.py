"""The packed path equals Hugging Face's own path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from pyterrier_debias.rankers.packed import PackedBert, means

SERVED = ["bert", "roberta", "electra"]


def plain(encoder, sequences: list[np.ndarray], types: list[np.ndarray]) -> list[torch.Tensor]:
    """Token states of each sequence, run alone through the model's own forward: no padding, no packing."""
    takes_types = encoder.config.type_vocab_size > 1
    with torch.no_grad():
        return [
            encoder(
                input_ids=torch.from_numpy(one)[None],
                **({"token_type_ids": torch.from_numpy(kinds)[None]} if takes_types else {}),
            ).last_hidden_state[0]
            for one, kinds in zip(sequences, types)
        ]


def drawn(encoder, lengths: list[int], seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    generator = np.random.default_rng(seed)
    kinds = encoder.config.type_vocab_size
    ids = [generator.integers(5, encoder.config.vocab_size, size=length) for length in lengths]
    return ids, [np.sort(generator.integers(0, kinds, size=length)) for length in lengths]


@pytest.fixture(scope="module")
def encoders(tiny):
    return {name: AutoModel.from_pretrained(tiny(architecture=name, labels=None, layers=3)).eval() for name in SERVED}


@pytest.mark.parametrize("name", SERVED)
@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=8), seed=st.integers(0, 1000))
def test_states_first_and_mean_agree_with_the_plain_path(encoders, name, lengths, seed):
    encoder = encoders[name]
    assert PackedBert.supports(encoder)
    sequences, types = drawn(encoder, lengths, seed)
    expected = plain(encoder, sequences, types)
    arguments = np.concatenate(sequences), np.concatenate(types), np.array(lengths)
    with torch.inference_mode():
        packed = PackedBert(encoder)
        torch.testing.assert_close(packed.hidden(*arguments), torch.cat(expected), rtol=0, atol=1e-5)
        torch.testing.assert_close(packed.first(*arguments), torch.stack([s[0] for s in expected]), rtol=0, atol=1e-5)
        torch.testing.assert_close(packed.mean(*arguments), torch.stack([s.mean(0) for s in expected]), rtol=0, atol=1e-5)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=8), st.sampled_from([1, 7, 32, 384]), st.integers(0, 99))
def test_means_are_those_of_segments_and_know_nothing_of_the_batch(lengths, hidden, seed):
    lengths = sorted(lengths + lengths[:3])
    states = torch.randn(sum(lengths), hidden, generator=torch.Generator().manual_seed(seed))
    found = means(states, np.array(lengths))
    segments = torch.segment_reduce(states, "mean", lengths=torch.tensor(lengths))
    torch.testing.assert_close(found, segments, rtol=0, atol=1e-6)
    for mean, own in zip(found, states.split(lengths)):
        assert torch.equal(mean, means(own, np.array([len(own)]))[0])


def test_the_mean_asks_for_no_kernel_that_a_device_lacks(tiny, monkeypatch):
    monkeypatch.setattr(torch, "segment_reduce", lambda *args, **options: pytest.fail("MPS has no such kernel"))
    encoder = AutoModel.from_pretrained(tiny(labels=None)).eval()
    sequences, types = drawn(encoder, [9, 4], seed=0)
    with torch.inference_mode():
        found = PackedBert(encoder).mean(np.concatenate(sequences), np.concatenate(types), np.array([9, 4]))
    assert found.shape == (2, 32)


def test_it_works_without_onednn(tiny, monkeypatch):
    encoder = AutoModel.from_pretrained(tiny(labels=None)).eval()
    sequences, types = drawn(encoder, [9, 9, 4], seed=0)
    arguments = np.concatenate(sequences), np.concatenate(types), np.array([9, 9, 4])
    monkeypatch.setattr("pyterrier_debias.rankers.packed._onednn", dict)
    with torch.inference_mode():
        states = PackedBert(encoder).hidden(*arguments)
    torch.testing.assert_close(states, torch.cat(plain(encoder, sequences, types)), rtol=0, atol=1e-5)


def test_training_the_encoder_is_seen_at_once(tiny):
    encoder = AutoModel.from_pretrained(tiny(labels=None)).eval()
    packed = PackedBert(encoder)
    sequences, types = drawn(encoder, [7, 7], seed=0)
    arguments = np.concatenate(sequences), np.concatenate(types), np.array([7, 7])
    with torch.inference_mode():
        before = packed.first(*arguments).clone()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.mul_(1.5)
    with torch.inference_mode():
        after = packed.first(*arguments)
    assert (after - before).abs().max() > 0.01
    torch.testing.assert_close(after, torch.stack([s[0] for s in plain(encoder, sequences, types)]), rtol=0, atol=1e-5)


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
def test_other_activations_are_the_models_own(tiny, activation):
    encoder = AutoModel.from_pretrained(tiny(labels=None), hidden_act=activation).eval()
    sequences, types = drawn(encoder, [9, 9, 4], seed=0)
    with torch.inference_mode():
        states = PackedBert(encoder).hidden(np.concatenate(sequences), np.concatenate(types), np.array([9, 9, 4]))
    torch.testing.assert_close(states, torch.cat(plain(encoder, sequences, types)), rtol=0, atol=1e-5)


def test_what_it_does_not_know_takes_the_plain_path(tiny):
    assert not PackedBert.supports(AutoModel.from_pretrained(tiny(architecture="distilbert", labels=None)))
    assert not PackedBert.supports(None)
    replaced = AutoModel.from_pretrained(tiny(labels=None))
    replaced.encoder.layer[0].attention.self.query = torch.nn.Sequential(replaced.encoder.layer[0].attention.self.query)
    assert not PackedBert.supports(replaced)
    hooked = AutoModel.from_pretrained(tiny(labels=None))
    hooked.encoder.layer[1].register_forward_hook(lambda *arguments: None)
    assert not PackedBert.supports(hooked)
