"""The packed path equals Hugging Face's own path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel

from pyterrier_debias.rankers.packed import PackedBert

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
