"""The TK model against its equations, written out in numpy, and against torch's own Transformer layers."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.rankers.tk_model import (
    CONVENTIONS,
    POSITIONAL,
    PRINTED_MU,
    KernelPooling,
    TKConfig,
    TKModel,
    kernel_sums,
    positional_table,
    unit,
)

SIZES = {"vocab_size": 40, "hidden_size": 10, "num_attention_heads": 4, "head_dim": 3, "intermediate_size": 7}


def model(seed: int = 0, **fields) -> TKModel:
    """A tiny TK whose every weight differs from its initial value, so that none of them can be forgotten."""
    torch.manual_seed(seed)
    made = TKModel(TKConfig(**{**SIZES, **fields})).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return made


def ids(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(2, 40, shape, generator=torch.Generator().manual_seed(seed))


# The equations, literally


def numbers(tk: TKModel) -> dict[str, np.ndarray]:
    return {name: value.double().numpy() for name, value in tk.state_dict().items()}


def layer_norm(x, scale, shift):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def attention(x, w, name, config, scale):
    """One text, one head and one pair of positions at a time; keys of all positions count."""
    heads, width, n = config.num_attention_heads, config.head_dim, len(x)
    qkv = x @ w[f"{name}.qkv.weight"].T + w[f"{name}.qkv.bias"]
    query, key, value = np.split(qkv, 3, axis=1)
    out = np.zeros((n, heads * width))
    for h in range(heads):
        part = slice(h * width, (h + 1) * width)
        for i in range(n):
            limit = config.max_distance
            rows = [min(max(j - i, -limit), limit) + limit for j in range(n)]
            keys, values = [key[j, part] for j in range(n)], [value[j, part] for j in range(n)]
            if config.positional == "shaw":
                keys = [keys[j] + w[f"{name}.key_offsets.weight"][rows[j]] for j in range(n)]
                values = [values[j] + w[f"{name}.value_offsets.weight"][rows[j]] for j in range(n)]
            logits = np.array([query[i, part] @ keys[j] * scale for j in range(n)])
            if config.positional == "relative":
                logits += [w["terms.distance_bias.weight"][rows[j], h] for j in range(n)]
            weights = np.exp(logits) / np.exp(logits).sum()
            out[i, part] = sum(weights[j] * values[j] for j in range(n))
    return out @ w[f"{name}.output.weight"].T + w[f"{name}.output.bias"]


def feed_forward(x, w, name):
    inner = np.maximum(x @ w[f"{name}.expand.weight"].T + w[f"{name}.expand.bias"], 0)
    return inner @ w[f"{name}.contract.weight"].T + w[f"{name}.contract.bias"]


def contextualised(tk, text, start):
    """Equation 4 for one text without padding."""
    w, config = numbers(tk), tk.config
    static = w["terms.embeddings.weight"][text]
    x = static.copy()
    if config.positional == "absolute":
        half = config.hidden_size // 2
        for p in range(len(x)):
            for i in range(half):
                rate = 10000.0 ** (-i / (half - 1))
                x[p, i] += math.sin((start + p) * rate)
                x[p, half + i] += math.cos((start + p) * rate)
    if config.positional == "vaswani":
        for p in range(len(x)):
            for i in range(config.hidden_size):
                angle = (start + p) / 10000.0 ** ((i - i % 2) / config.hidden_size)
                x[p, i] += math.cos(angle) if i % 2 else math.sin(angle)
    for i in range(config.num_hidden_layers):
        name = f"terms.layers.{i}"
        norm = w[f"{name}.attention_norm.weight"], w[f"{name}.attention_norm.bias"]
        if config.convention == "released_v1":
            fed = feed_forward(x, w, name) + (x if i else 0)
            scale = (config.hidden_size // config.num_attention_heads) ** -0.5
            x = layer_norm(attention(fed, w, name, config, scale) + fed, *norm)
        else:
            x = layer_norm(x + attention(x, w, name, config, config.head_dim**-0.5), *norm)
            norm = w[f"{name}.feed_forward_norm.weight"], w[f"{name}.feed_forward_norm.bias"]
            x = layer_norm(x + feed_forward(x, w, name), *norm)
    alpha = w["terms.alpha"][0]
    return alpha * static + (1 - alpha) * x


RELEASED = [1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9]


def score(tk, query, document, centres=RELEASED):
    """Equations 5 and 6 for one pair, one kernel, one query term and one passage term at a time."""
    w, convention = numbers(tk), tk.config.convention
    q = contextualised(tk, query, 0)
    d = contextualised(tk, document, 0 if convention == "released_v1" else 500)
    logs, means = [], []
    for k, mu in enumerate(centres):
        log, mean = 0.0, 0.0
        for i in range(len(q)):
            total = 0.0
            for j in range(len(d)):
                cosine = q[i] @ d[j] / math.sqrt(q[i] @ q[i]) / math.sqrt(d[j] @ d[j])
                total += math.exp(-((cosine - mu) ** 2) / (2 * 0.1**2))
            if convention == "released_v2":
                total *= w["pooling.factors"][k]
            floored = max(total, 1e-10)
            if convention == "released_v1":
                log += math.log2(floored) * w["pooling.scaler"][0]
                mean += total / (len(d) + 1) * w["pooling.scaler"][0]
            else:
                log += math.log(floored)
        logs.append(log)
        means.append(mean)
    first = np.array(logs) @ w["pooling.weights"]
    if convention != "released_v1":
        return first
    return w["pooling.combine"] @ [first, np.array(means) @ w["pooling.mean_weights"]]


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_scores_and_vectors_are_those_of_the_equations(convention, positional):
    tk = model(convention=convention, positional=positional, max_distance=3).double()
    for lengths in ((1, 1), (3, 8), (5, 2)):
        query, document = ids(1, lengths[0], seed=1), ids(1, lengths[1], seed=2)
        with torch.no_grad():
            out = tk(document, query_input_ids=query)
        start = 0 if convention == "released_v1" else 500
        expected = contextualised(tk, document[0].numpy(), start)
        np.testing.assert_allclose(out.last_hidden_state[0].numpy(), expected, atol=1e-6)  # the table is float32
        expected_score = [score(tk, query[0].numpy(), document[0].numpy())]
        np.testing.assert_allclose(out.scores.numpy(), expected_score, rtol=1e-6)


def test_kernels_from_minus_one_to_one_as_printed():
    printed = [1 - k / 5 for k in range(11)]
    np.testing.assert_allclose(PRINTED_MU, printed, atol=1e-12)
    assert (printed[0], printed[-1]) == (1.0, -1.0)
    tk, query, document = model(kernel_mu=PRINTED_MU).double(), ids(1, 3, seed=1), ids(1, 8, seed=2)
    with torch.no_grad():
        found = tk(document, query_input_ids=query).scores.item()
    assert found == pytest.approx(score(tk, query[0].numpy(), document[0].numpy(), printed), rel=1e-6)
    assert abs(found - score(tk, query[0].numpy(), document[0].numpy())) > 1e-3


def test_a_layer_is_torchs_own_where_its_heads_share_the_width():
    tk = model(hidden_size=12, num_attention_heads=4, head_dim=3, positional="none")
    layer = torch.nn.TransformerEncoderLayer(12, 4, dim_feedforward=7, dropout=0, batch_first=True)
    own = tk.terms.layers[0]
    with torch.no_grad():
        for theirs, ours in (
            (layer.self_attn.in_proj_weight, own.qkv.weight),
            (layer.self_attn.in_proj_bias, own.qkv.bias),
            (layer.self_attn.out_proj.weight, own.output.weight),
            (layer.self_attn.out_proj.bias, own.output.bias),
            (layer.linear1.weight, own.expand.weight),
            (layer.linear1.bias, own.expand.bias),
            (layer.linear2.weight, own.contract.weight),
            (layer.linear2.bias, own.contract.bias),
            (layer.norm1.weight, own.attention_norm.weight),
            (layer.norm1.bias, own.attention_norm.bias),
            (layer.norm2.weight, own.feed_forward_norm.weight),
            (layer.norm2.bias, own.feed_forward_norm.bias),
        ):
            theirs.copy_(ours)
        states, mask = torch.randn(3, 6, 12), torch.tensor([[True] * n + [False] * (6 - n) for n in (6, 4, 1)])
        expected = layer(states, src_key_padding_mask=~mask)
        found = own(states, tk.terms.attention_bias(mask, torch.float32))
    torch.testing.assert_close(found[mask], expected[mask], rtol=1e-5, atol=1e-5)


def test_the_papers_sizes():
    fresh = TKModel(TKConfig(vocab_size=5))
    assert len(fresh.terms.layers) == 2
    assert fresh.terms.layers[0].qkv.weight.shape == (3 * 16 * 32, 300)
    assert fresh.terms.layers[0].expand.weight.shape == (100, 300)
    assert sum(p.numel() for p in fresh.pooling.parameters()) == 11  # no bias
    assert fresh.terms.alpha.item() == 0.5
    assert fresh.pooling.weights.abs().max() <= 0.014
    assert fresh.pooling.weights.std() > 0.002
    assert not any(isinstance(module, torch.nn.Dropout) for module in fresh.modules())


def test_what_the_conventions_start_from():
    second = TKModel(TKConfig(**SIZES, convention="released_v2"))
    assert second.pooling.factors.tolist() == [1.0] * 11
    first = TKModel(TKConfig(**SIZES, convention="released_v1"))
    assert first.pooling.scaler.item() == pytest.approx(0.01)
    assert (first.config.document_shift, second.config.document_shift) == (0, 500)
    assert first.pooling.mean_weights.abs().max() <= 0.014


def test_the_second_version_is_the_papers_where_its_factors_are_one():
    pairs = {"input_ids": ids(4, 6), "query_input_ids": ids(4, 3, seed=1)}
    with torch.no_grad():
        paper = model()
        second = model(convention="released_v2")
        second.load_state_dict({**second.state_dict(), **paper.state_dict()})
        assert not torch.allclose(paper(**pairs).scores, second(**pairs).scores)
        second.pooling.factors.fill_(1.0)
        torch.testing.assert_close(paper(**pairs).scores, second(**pairs).scores)


# Kernels and positions


def test_a_passage_without_any_match_has_the_floors_score():
    pooling = KernelPooling(TKConfig())
    mask = torch.tensor([[True, True]])
    found = pooling(torch.zeros(1, 2, 0), mask, torch.zeros(1, 0, dtype=torch.bool))
    torch.testing.assert_close(found, 2 * math.log(1e-10) * pooling.weights.sum()[None])


@given(st.integers(0, 2**31))
@settings(max_examples=20)
def test_kernel_sums_are_sums_of_gaussians(seed):
    rng = np.random.default_rng(seed)
    cosines, mask = rng.uniform(-1, 1, (2, 3, 4)), rng.random((2, 4)) < 0.7
    expected = (np.exp(-((cosines[..., None] - np.array([1.0, -0.3])) ** 2) / 0.02) * mask[:, None, :, None]).sum(axis=2)
    found = kernel_sums(torch.from_numpy(cosines), torch.from_numpy(mask), (1.0, -0.3), 0.1)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize("d", [4, 7, 300])
def test_the_table_holds_sines_then_cosines(d):
    table, half = positional_table(700, d), d // 2
    for p, i in ((0, 0), (1, half - 1), (612, half // 2)):
        angle = p * math.exp(-i * math.log(10_000) / (half - 1))
        assert table[p, i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[p, half + i] == pytest.approx(math.cos(angle), abs=1e-6)
    assert (table[:, 2 * half :] == 0).all()
    np.testing.assert_allclose((table**2).sum(axis=1), half, rtol=1e-5)


def test_documents_stand_500_rows_behind_queries():
    tk, text = model(), ids(1, 5)
    shifted = model(document_shift=0)
    with torch.no_grad():
        query, _ = tk.represent(text, query=True)
        torch.testing.assert_close(query, shifted.represent(text)[0])
        assert not torch.allclose(query, tk.represent(text)[0], atol=1e-3)
        table = torch.from_numpy(positional_table(505, 10)[500:])
        hidden = tk(text, output_hidden_states=True).hidden_states
        torch.testing.assert_close(hidden[0][0], tk.terms.embeddings.weight[text[0]] + table)
        assert len(hidden) == 3


def rotated(text: torch.Tensor, by: int) -> torch.Tensor:
    return torch.roll(text, by, dims=1)


@pytest.mark.parametrize("convention", CONVENTIONS)
@given(length=st.integers(1, 12), by=st.integers(0, 11), seed=st.integers(0, 100))
@settings(max_examples=15)
def test_without_positions_a_terms_vector_does_not_depend_on_where_it_stands(convention, length, by, seed):
    tk, text = model(convention=convention, positional="none").double(), ids(1, length, seed=seed)
    with torch.no_grad():
        before, after = tk.represent(text)[0], tk.represent(rotated(text, by))[0]
        torch.testing.assert_close(rotated(before, by), after, rtol=0, atol=1e-12)
        query = ids(1, 3, seed=seed + 1)
        scores = [tk(one, query_input_ids=query).scores for one in (text, rotated(text, by), text.flip(1))]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(scores[0], scores[2], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("positional", [kind for kind in POSITIONAL if kind != "none"])
def test_with_positions_it_does(positional):
    tk, text = model(positional=positional), ids(1, 9)
    with torch.no_grad():
        before, after = tk.represent(text)[0], tk.represent(rotated(text, 4))[0]
    assert not torch.allclose(rotated(before, 4), after, atol=1e-3)


@pytest.mark.parametrize("positional", ["relative", "shaw"])
def test_relative_positions_know_distances_only(positional):
    """A text behind 30 masked tokens has the vectors of the text alone: only differences of positions count."""
    tk, text = model(positional=positional, mask_unknown=True, unk_token_id=1), ids(1, 6)
    behind = torch.cat([torch.ones(1, 30, dtype=torch.long), text], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(tk.represent(behind)[0][:, 30:], tk.represent(text)[0], rtol=1e-5, atol=1e-5)
        absolute = model(mask_unknown=True, unk_token_id=1)
        assert not torch.allclose(absolute.represent(behind)[0][:, 30:], absolute.represent(text)[0], atol=1e-3)


# Masks


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", CONVENTIONS)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 6), st.integers(0, 15)), min_size=1, max_size=5),
    more=st.integers(0, 5),
    filler=st.integers(0, 39),
)
@settings(max_examples=15)
def test_padding_plays_no_part(convention, positional, lengths, more, filler):
    tk = model(convention=convention, positional=positional)
    queries = [ids(q, seed=i) for i, (q, _) in enumerate(lengths)]
    documents = [ids(d, seed=100 + i) for i, (_, d) in enumerate(lengths)]

    def padded(texts: list[torch.Tensor], room: int) -> tuple[torch.Tensor, torch.Tensor]:
        out = torch.full((len(texts), max(map(len, texts)) + room), filler)
        mask = torch.zeros_like(out)
        for row, text in enumerate(texts):
            out[row, : len(text)], mask[row, : len(text)] = text, 1
        return out, mask

    def scores(which: list[int], room: int) -> np.ndarray:
        d, d_mask = padded([documents[i] for i in which], room)
        q, q_mask = padded([queries[i] for i in which], room)
        with torch.no_grad():
            return tk(d, d_mask, q, q_mask).scores.numpy()

    alone = np.concatenate([scores([i], 0) for i in range(len(lengths))])
    np.testing.assert_allclose(scores(list(range(len(lengths))), more), alone, rtol=1e-5, atol=1e-5)
    assert np.isfinite(alone).all()
    assert all(alone[i] == 0 for i, (q, _) in enumerate(lengths) if q == 0)


def test_unknown_words_keep_their_place_but_count_for_nothing():
    tk = model(mask_unknown=True, unk_token_id=1)
    text = ids(1, 6)
    text[0, 2] = 1
    with torch.no_grad():
        vectors, mask = tk.represent(text)
        tk.terms.embeddings.weight[1] = 5.0
        again, _ = tk.represent(text)
        kept = model(unk_token_id=1)
        other = kept.represent(text)[0]
    assert mask.tolist() == [[True, True, False, True, True, True]]
    assert (vectors[0, 2] == 0).all()
    torch.testing.assert_close(vectors, again)
    assert (other[0, 2] != 0).any()
    with torch.no_grad():
        nothing = tk(torch.ones(1, 4, dtype=torch.long), query_input_ids=ids(1, 2)).scores
    torch.testing.assert_close(nothing, 2 * math.log(1e-10) * tk.pooling.weights.sum()[None])


# Training


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_gradients_are_those_of_finite_differences(convention, positional):
    tk = model(convention=convention, positional=positional, max_distance=2, hidden_size=6, num_attention_heads=2, head_dim=2)
    tk = tk.double().requires_grad_(False)
    with torch.no_grad():
        tk.terms.embeddings.weight.mul_(0.3)
        tk.pooling.weights.mul_(20)
    names = [
        "terms.alpha",
        "terms.embeddings.weight",
        "terms.layers.0.qkv.weight",
        "terms.layers.1.expand.bias",
        "pooling.weights",
    ]
    names += [name for name, _ in tk.pooling.named_parameters(prefix="pooling") if name != "pooling.weights"]
    names += ["terms.distance_bias.weight"] if positional == "relative" else []
    d, q = ids(2, 4) % 6, ids(2, 2, seed=3) % 6
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    own = dict(tk.named_parameters())

    def scores(*values: torch.Tensor) -> torch.Tensor:
        rows = {"terms.embeddings.weight": torch.cat([values[1], own["terms.embeddings.weight"][6:]])}
        given = {**dict(zip(names, values)), **rows}
        return torch.func.functional_call(tk, given, (d, mask, q)).scores

    start = [own[name][:6] if name == "terms.embeddings.weight" else own[name] for name in names]
    assert torch.autograd.gradcheck(
        scores, [value.clone().requires_grad_() for value in start], atol=1e-6, rtol=1e-4, fast_mode=True
    )


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_every_weight_is_trained(convention, positional):
    tk = model(convention=convention, positional=positional)
    tk(ids(8, 6), query_input_ids=ids(8, 3, seed=1)).scores.square().sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in tk.parameters())


def test_texts_without_terms_give_finite_gradients():
    tk = model()
    mask = torch.tensor([[0, 0, 0], [1, 1, 0]])
    tk(ids(2, 3), mask, ids(2, 3, seed=1), mask).scores.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in tk.parameters() if parameter.grad is not None)


def test_unit_vectors_of_zeros_are_zeros():
    torch.testing.assert_close(unit(torch.tensor([[0.0, 0.0], [3.0, 4.0]])), torch.tensor([[0.0, 0.0], [0.6, 0.8]]))


# As a Hugging Face model


@pytest.mark.parametrize("positional", POSITIONAL)
@pytest.mark.parametrize("convention", CONVENTIONS)
def test_the_library_saves_and_loads_it(convention, positional, tmp_path):
    from transformers import AutoConfig, AutoModel

    tk = model(convention=convention, positional=positional)
    tk.save_pretrained(tmp_path)
    assert {**AutoConfig.from_pretrained(tmp_path).to_dict(), "_name_or_path": ""} == tk.config.to_dict()
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is TKModel
    assert not loaded.training
    pair = {"input_ids": ids(2, 5), "query_input_ids": ids(2, 3, seed=1)}
    with torch.no_grad():
        torch.testing.assert_close(loaded(**pair).scores, tk(**pair).scores)
    assert all(torch.equal(value, tk.state_dict()[name]) for name, value in loaded.state_dict().items())


def test_what_a_folder_lacks_is_drawn_anew(tmp_path):
    """As for any Hugging Face model: missing weights start as those of a new model, nothing is left undefined."""
    from safetensors.torch import load_file, save_file

    tk = model(convention="released_v2")
    tk.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    kept = {name: value for name, value in weights.items() if name not in ("terms.alpha", "pooling.weights", "pooling.factors")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    loaded = TKModel.from_pretrained(tmp_path)
    assert loaded.terms.alpha.item() == 0.5
    assert loaded.pooling.factors.tolist() == [1.0] * 11
    assert 0 < loaded.pooling.weights.abs().max() <= 0.014
    torch.testing.assert_close(loaded.terms.layers[1].qkv.weight, tk.terms.layers[1].qkv.weight)


def test_sizes_and_names_that_cannot_be():
    with pytest.raises(InputError, match="convention='v3' is not known; use one of 'paper'"):
        TKConfig(convention="v3")
    with pytest.raises(InputError, match="positional='learned' is not known"):
        TKConfig(positional="learned")
    with pytest.raises(InputError, match="needs unk_token_id"):
        TKConfig(mask_unknown=True)
    with pytest.raises(InputError, match="at least 4 dimensions, not 3"):
        TKModel(TKConfig(vocab_size=5, hidden_size=3))
    with pytest.raises(InputError, match="8 dimensions are fewer than 10 heads"):
        TKModel(TKConfig(vocab_size=5, hidden_size=8, num_attention_heads=10, convention="released_v1"))
    # Only that convention divides dimensions by heads.
    TKModel(TKConfig(vocab_size=5, hidden_size=8, num_attention_heads=10))
    for option in ({"num_attention_heads": 0}, {"head_dim": 0}, {"intermediate_size": -1}, {"num_attention_heads": 2.5}):
        with pytest.raises(InputError, match="must be a whole number of 1 or more"):
            TKModel(TKConfig(vocab_size=5, hidden_size=8, **option))


@pytest.mark.parametrize("positional", POSITIONAL)
def test_mixed_precision_matches_in_full(positional):
    """Terms are encoded in bfloat16, but cosines near 1 are not rounded to its three digits."""
    tk = model(positional=positional)
    mask = torch.tensor([[1] * 6, [1, 1, 0, 0, 0, 0], [0] * 6])
    pairs = ids(3, 6), mask, ids(3, 3, seed=1)
    full = tk(*pairs).scores
    with torch.autocast("cpu", torch.bfloat16):
        mixed = tk(*pairs).scores
    mixed.sum().backward()
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, full, rtol=0.1, atol=0.5)
    assert all(torch.isfinite(parameter.grad).all() for parameter in tk.parameters())
