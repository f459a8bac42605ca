"""The packed path equals Hugging Face's own path."""

from __future__ import annotations

import copy
import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, BertConfig, BertModel

from pyterrier_debias.rankers import packed as packed_module
from pyterrier_debias.rankers.packed import PackedBert, in_float32, means

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


@pytest.mark.parametrize("name", SERVED)
def test_padding_tokens_that_a_text_holds_have_the_positions_of_the_plain_path(encoders, name):
    encoder = encoders[name]
    sequences, types = drawn(encoder, [12, 9, 9, 3], seed=4)
    for one, places in zip(sequences, ([1, 5, 6], [0, 8], [], [0, 1, 2])):
        one[places] = encoder.config.pad_token_id
    arguments = np.concatenate(sequences), np.concatenate(types), np.array([12, 9, 9, 3])
    with torch.inference_mode():
        found = PackedBert(encoder).hidden(*arguments)
    torch.testing.assert_close(found, torch.cat(plain(encoder, sequences, types)), rtol=0, atol=1e-5)


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
    monkeypatch.setattr("pyterrier_debias.rankers.packed.onednn_operators", dict)
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


def attended(query, key, value, ends, key_ends, most, most_keys):
    """What ``torch.nn.attention.varlen.varlen_attn`` computes, by its own description, one sequence at a time."""
    assert ends.dtype == key_ends.dtype == torch.int32 and ends[0] == key_ends[0] == 0
    assert ends.diff().max() == most and key_ends.diff().max() == most_keys
    out = []
    for row in range(len(ends) - 1):
        asked, given = slice(ends[row], ends[row + 1]), slice(key_ends[row], key_ends[row + 1])
        logits = torch.einsum("qhw,khw->hqk", query[asked].float(), key[given].float()) * query.shape[-1] ** -0.5
        out.append(torch.einsum("hqk,khw->qhw", logits.softmax(dim=-1), value[given].float()))
    return torch.cat(out).to(query.dtype)


@pytest.mark.parametrize("name", SERVED)
def test_attention_over_lengths_of_all_kinds_agrees_with_runs_of_one_length(encoders, name, monkeypatch):
    encoder = encoders[name]
    sequences, types = drawn(encoder, [17, 9, 9, 4, 1], seed=1)
    arguments = np.concatenate(sequences), np.concatenate(types), np.array([17, 9, 9, 4, 1])
    packed = PackedBert(encoder)
    with torch.inference_mode():
        expected = [packed.hidden(*arguments), packed.first(*arguments), packed.mean(*arguments)]
        monkeypatch.setattr("pyterrier_debias.rankers.packed._varlen", lambda device, dtype: attended)
        found = [packed.hidden(*arguments), packed.first(*arguments), packed.mean(*arguments)]
    for one, other in zip(found, expected):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


@pytest.mark.parametrize(("width", "taken"), [(8, True), (64, True), (256, True), (26, False), (10, False), (264, False)])
def test_the_kernel_for_all_lengths_is_for_heads_of_some_widths_only(width, taken, monkeypatch):
    config = BertConfig(vocab_size=50, hidden_size=2 * width, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8)
    asked = []

    def kernel(*arguments, **options):
        asked.append(arguments[0].shape[-1])
        return attended(*arguments, **options)

    monkeypatch.setattr("pyterrier_debias.rankers.packed._varlen", lambda device, dtype: kernel)
    assert packed_module._takes_width(width) == taken
    encoder = BertModel(config).eval()
    sequences, types = drawn(encoder, [5, 3], seed=0)
    with torch.inference_mode():
        found = PackedBert(encoder).hidden(np.concatenate(sequences), np.concatenate(types), np.array([5, 3]))
    assert asked == ([width] if taken else [])
    torch.testing.assert_close(found, torch.cat(plain(encoder, sequences, types)), rtol=0, atol=1e-5)


def test_the_kernel_for_all_lengths_has_the_arguments_that_it_is_called_with():
    varlen = pytest.importorskip("torch.nn.attention.varlen", exc_type=ImportError)
    named = list(inspect.signature(varlen.varlen_attn).parameters.values())
    assert [p.name for p in named[:7]] == ["query", "key", "value", "cu_seq_q", "cu_seq_k", "max_q", "max_k"]


def test_the_kernel_for_all_lengths_is_for_half_precision_on_cuda_only(monkeypatch):
    packed_module._varlen.cache_clear()
    assert packed_module._varlen("cpu", torch.bfloat16) is None
    assert packed_module._varlen("mps", torch.float16) is None
    assert packed_module._varlen("cuda", torch.float32) is None
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 5))
    assert packed_module._varlen("cuda", torch.float16) is None
    packed_module._varlen.cache_clear()


@pytest.mark.parametrize("has_option", [True, False])
def test_keys_are_never_split_where_the_kernel_could(has_option, monkeypatch):
    """For other values a result depends on the batch."""
    varlen = pytest.importorskip("torch.nn.attention.varlen", exc_type=ImportError)
    older, newer = (lambda *given: {}), (lambda *given, num_splits=None: {"num_splits": num_splits})
    monkeypatch.setattr(varlen, "varlen_attn", newer if has_option else older)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
    packed_module._varlen.cache_clear()
    assert packed_module._varlen("cuda", torch.float16)() == ({"num_splits": 1} if has_option else {})
    packed_module._varlen.cache_clear()


@pytest.mark.parametrize("name", SERVED)
def test_what_is_pooled_of_half_precision_is_float32_and_nearer(encoders, name):
    encoder = encoders[name]
    sequences, types = drawn(encoder, [30, 21, 21, 12, 5] * 4, seed=2)
    order = np.argsort([-len(one) for one in sequences], kind="stable")
    sequences, types = [sequences[i] for i in order], [types[i] for i in order]
    arguments = np.concatenate(sequences), np.concatenate(types), np.array([len(one) for one in sequences])
    half = copy.deepcopy(encoder).to(torch.bfloat16)
    with torch.inference_mode():
        exact = PackedBert(encoder).mean(*arguments)
        found = PackedBert(half).mean(*arguments)
        rounded = means(PackedBert(half).hidden(*arguments), arguments[2]).float()
        assert PackedBert(half).hidden(*arguments).dtype == torch.bfloat16
        assert found.dtype == PackedBert(half).first(*arguments).dtype == torch.float32
    assert (found.to(torch.bfloat16).float() != found).float().mean() > 0.9
    assert (found - exact).square().mean() < (rounded - exact).square().mean()


def test_a_small_module_in_half_precision_computes_in_float32():
    layer = torch.nn.Linear(8, 2).to(torch.bfloat16)
    vectors = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    expected = vectors.double() @ layer.weight.double().T + layer.bias.double()
    with torch.inference_mode():
        torch.testing.assert_close(in_float32(layer, vectors).double(), expected, rtol=0, atol=1e-6)
    assert layer.weight.dtype == torch.bfloat16
