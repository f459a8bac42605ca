"""Kernel whitening: formulas against scikit-learn and the exact kernel, and the reranker that trains through them."""

import copy

import numpy as np
import pytest
import torch
from sklearn.kernel_approximation import Nystroem

from pyterrier_debias import BiEncoder, CrossEncoder, InputError, MultiVector
from pyterrier_debias.linguistic.formulas import kernel_whitening as formulas
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from tests.training.toy import candidates, no_dropout, qrels, scores_of, training


@pytest.fixture(autouse=True)
def silent(caplog):
    """Fresh heads announce themselves."""
    caplog.set_level("ERROR")


def vectors(n=40, d=6, seed=0):
    """Sentence vectors as they are: a common direction, and unequal spreads."""
    rng = np.random.default_rng(seed)
    return formulas.unit_length(3 + rng.normal(size=(n, d)) * np.geomspace(2, 0.2, d))


# Formulas


def nystroem_features(vectors, landmarks, **options):
    """k(x, L) k(L, L)^-1/2: between landmarks the inner products are the kernel itself."""
    kernels = (formulas.kernel_of(x, landmarks, **options) for x in (vectors, landmarks))
    return next(kernels) @ formulas.inverse_root(next(kernels))


def test_features_are_those_of_scikit_learn():
    x = vectors()
    theirs = Nystroem(kernel="rbf", gamma=0.7, n_components=8, random_state=0).fit(x)
    ours = nystroem_features(x, theirs.components_, gamma=0.7)
    np.testing.assert_allclose(ours, theirs.transform(x), atol=1e-7)


@pytest.mark.parametrize("kernel", formulas.KERNELS)
def test_with_all_vectors_as_landmarks_the_kernel_is_exact(kernel):
    x = vectors(12)
    features = nystroem_features(x, x, kernel=kernel, gamma=2.0)
    squared = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    exact = np.exp(-2 * squared) if kernel == "rbf" else 1 - squared / 2
    np.testing.assert_allclose(features @ features.T, exact, atol=1e-8)


@pytest.mark.parametrize("kernel", formulas.KERNELS)
def test_whitened_features_have_the_identity_as_covariance(kernel):
    x = vectors(60)
    features = nystroem_features(x, x[:5], kernel=kernel)
    mean, matrix = formulas.whitening(features, floor=0)
    white = (features - mean) @ matrix
    np.testing.assert_allclose(np.cov(white.T, ddof=0), np.eye(5), atol=1e-8)
    np.testing.assert_allclose(white.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(matrix, matrix.T)
    # As two layers: the same.
    (weight, bias), (second, shift) = formulas.as_layers(x, x[:5], kernel=kernel, floor=0)
    inner = torch.from_numpy(x @ weight.T + bias)
    inner = torch.nn.functional.elu(inner) if kernel == "rbf" else inner
    np.testing.assert_allclose(inner.numpy() @ second.T + shift, white, atol=1e-8)


def test_directions_without_variance_are_left_out():
    x = vectors()
    features = np.hstack([x[:, :3], x[:, :1]])  # one column twice
    mean, matrix = formulas.whitening(features)
    spread = np.linalg.eigvalsh(np.cov(((features - mean) @ matrix).T, ddof=0))
    np.testing.assert_allclose(spread, [0, 1, 1, 1], atol=1e-8)
    mean, matrix = formulas.whitening(features, floor=1.0)  # the largest alone
    assert np.linalg.matrix_rank(matrix) == 1
    assert np.array_equal(formulas.inverse_root(np.zeros((2, 2))), np.zeros((2, 2)))
    # Landmarks that repeat others change nothing.
    twice = nystroem_features(x, np.vstack([x[:4], x[:4]]))
    once = nystroem_features(x, x[:4])
    np.testing.assert_allclose(twice @ twice.T, once @ once.T, atol=1e-7)
    for wrong in (np.ones((1, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(InputError, match="give at least two rows of finite numbers"):
            formulas.whitening(wrong)
    broken = np.full((3, 3), np.nan)
    for use in (formulas.inverse_root, lambda wrong: formulas.as_layers(wrong, wrong)):
        with pytest.raises(InputError, match="inverse_root: the matrix has numbers that are not finite"):
            use(broken)


# Training

MAKE = {
    "CrossEncoder": lambda tiny: CrossEncoder(tiny()),
    "CrossEncoder(mean)": lambda tiny: CrossEncoder(tiny(labels=None), head="mean"),
    "CrossEncoder(roberta)": lambda tiny: CrossEncoder(tiny(architecture="roberta")),
    "BiEncoder": lambda tiny: BiEncoder(tiny("build_sentence_transformer")),
}
SMALL = {"landmarks": 12, "sample": 40}


def small(**options):
    return training(**{"negatives_per_positive": 2, "warmup": 0, "schedule": "constant", **options})


def method_of(stage, start):
    """A copy of the ranker, the method of a stage on the toy collection before training, and a batch."""
    ranker, groups = copy.deepcopy(start), make_groups(candidates(), qrels(), stage="test")
    method = stage.make_method(ranker, small(), groups, None)
    return ranker, method, method.collate([Examples(groups, small(), 8)[i] for i in range(8)])


@pytest.mark.parametrize("kernel", formulas.KERNELS)
@pytest.mark.parametrize("name", ["CrossEncoder(mean)", "BiEncoder"])
def test_the_networks_own_features_are_white(name, kernel, tiny):
    from pyterrier_debias.linguistic.training import kernel_whitening_method as module

    start, seen = MAKE[name](tiny), module.seen
    ranker, method, batch = method_of(KernelWhiteningReranker(start, kernel=kernel, **SMALL), start)
    head = method.layers.head
    features, given = (found.double().numpy() for found in seen(ranker, method.pairs, head, head))
    np.testing.assert_allclose(features.mean(axis=0), 0, atol=1e-3)
    spread = np.linalg.eigvalsh(np.cov(features.T, ddof=0))
    kept = spread > 0.5
    assert kept.sum() >= 5
    np.testing.assert_allclose(spread[kept], 1, atol=1e-2)
    np.testing.assert_allclose(spread[~kept], 0, atol=1e-2)
    # The head begins as the least-squares fit of what the ranker gave.
    if name == "BiEncoder":
        towers = (start.encode_queries(method.pairs.queries), start.encode_docs(method.pairs.docs))
        wanted = np.vstack([vectors[at : at + 32] for at in range(0, len(method.pairs.queries), 32) for vectors in towers])
    else:
        wanted = module.scores_of(start, method.pairs).double().numpy()[:, None]
    design = np.column_stack([features, np.ones(len(features))])
    np.testing.assert_allclose(given, design @ np.linalg.lstsq(design, wanted, rcond=1e-3)[0], atol=2e-2)
    # ... and goes on with what it gave, whatever becomes of the whitening.
    with torch.no_grad():
        head.weight *= 2
    method.whiten()
    again = seen(ranker, method.pairs, head, head)[1].double().numpy()
    np.testing.assert_allclose(again - again.mean(axis=0), 2 * (given - given.mean(axis=0)), atol=5e-2)
    # A step along the gradient lowers the loss of its batch.
    method.eval()
    losses = []
    for _ in range(2):
        loss = method(**batch)["loss"]
        losses.append(loss.item())
        gradients = torch.autograd.grad(loss, list(method.parameters()), allow_unused=True)
        with torch.no_grad():
            for value, gradient in zip(method.parameters(), gradients):
                if gradient is not None:
                    value -= 1e-3 * gradient
    assert losses[1] < losses[0]
    # The head is trained; the whitening is kept in the state.
    assert any(value is head.weight for value in method.parameters())
    for layer in (method.layers.first, method.layers.second):
        assert any(value is layer.weight for value in method.buffers())


@pytest.mark.parametrize("name", ["CrossEncoder(mean)", "BiEncoder"])
def test_the_whitening_is_the_same_in_mixed_precision(name, tiny):
    start = MAKE[name](tiny)
    _, method, _ = method_of(KernelWhiteningReranker(start, **SMALL), start)
    before, states = copy.deepcopy(method.state_dict()), []
    for mixed in (False, True):
        method.load_state_dict(before)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            method.whiten()
        states.append(copy.deepcopy(method.state_dict()))
    assert all(torch.equal(value, states[1][key]) for key, value in states[0].items())


@pytest.mark.parametrize("kernel", formulas.KERNELS)
@pytest.mark.parametrize("name", ["CrossEncoder(mean)", "BiEncoder"])
def test_in_mixed_precision_a_step_passes_white_features_in_float32_and_trains_the_encoder(name, kernel, tiny):
    from pyterrier_debias.linguistic.training.kernel_whitening_method import vector

    start = no_dropout(MAKE[name](tiny))
    ranker, method, batch = method_of(KernelWhiteningReranker(start, kernel=kernel, refresh=1, **SMALL), start)
    reads, first, second, head = method.layers
    method.train()
    method.counted("batches", more=1)  # the next batch whitens first
    read, gave = [], []
    reads.register_forward_pre_hook(lambda _, args: read.append(vector(args[0])))
    head.register_forward_hook(lambda _, args, out: gave.append(out))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method(**batch)["loss"]
    given, found = read[-1].float(), gave[-1]  # of the batch, after the passes that whiten
    with torch.no_grad():
        inner = first(torch.nn.functional.normalize(given, dim=-1))
        expected = head(second(torch.nn.functional.elu(inner) if kernel == "rbf" else inner))
    torch.testing.assert_close(found, expected)
    loss.backward()
    weights = {key: value for key, value in ranker.module.named_parameters() if "attention" in key and key.endswith("weight")}
    assert weights and all(value.grad is not None and value.grad.any() for value in weights.values())


def test_refreshes_alone_change_no_score(tiny):
    scores = []
    for refresh in (100, 1):
        still = small(max_steps=6, learning_rate=1e-12, weight_decay=0.0, precision="bfloat16")
        stage = KernelWhiteningReranker(no_dropout(MAKE["BiEncoder"](tiny)), refresh=refresh, training=still, **SMALL)
        scores.append(scores_of(stage.fit(candidates(), qrels()).relevance))
    np.testing.assert_allclose(scores[1], scores[0], atol=1e-2 * scores[0].std())


@pytest.mark.parametrize("kernel", formulas.KERNELS)
@pytest.mark.parametrize("name", ["CrossEncoder(mean)", "BiEncoder"])
def test_refreshes_change_nothing_where_rounding_keeps_features_from_being_white(name, kernel, tiny):
    from pyterrier_debias.linguistic.training.kernel_whitening_method import seen

    start = MAKE[name](tiny)
    ranker, method, _ = method_of(KernelWhiteningReranker(start, kernel=kernel, floor=0, **{**SMALL, "landmarks": 40}), start)
    head = method.layers.head
    features, before = (found.double() for found in seen(ranker, method.pairs, head, head))
    assert torch.linalg.eigvalsh(features.T.cov(correction=0))[-1] > 1.002  # rounding that whitening enlarged
    for _ in range(5):
        method.whiten()
    after = seen(ranker, method.pairs, head, head)[1].double()
    assert (after - before).norm() < 1e-3 * (before - before.mean(dim=0)).norm()


def diverging(scores, **_):
    """A loss that is a number, with a gradient that is none."""
    return (scores * 0).abs().sqrt().sum()


@pytest.mark.parametrize("name", ["CrossEncoder", "BiEncoder"])
def test_training_that_diverges_says_so_and_keeps_the_batch(name, tiny, tmp_path):
    wild = small(max_steps=3, loss=diverging, checkpoints=tmp_path / "run")
    stage = KernelWhiteningReranker(MAKE[name](tiny), refresh=1, training=wild, **SMALL)
    with pytest.raises(InputError, match=r"the loss became nan at step 1; its batch is in .*; lower learning_rate"):
        stage.fit(candidates(), qrels())
    assert (tmp_path / "run" / "batch-of-step-1-process-0.json").is_file()


def interrupted(scores, **_):
    """A loss that ends the training."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["CrossEncoder(mean)", "CrossEncoder(roberta)"])
def test_other_heads_train_and_reload(name, tiny, tmp_path):
    stage = KernelWhiteningReranker(MAKE[name](tiny), training=small(max_steps=1), **SMALL).fit(candidates(), qrels())
    stage.save(tmp_path / "saved")
    expected, found = stage(candidates()), KernelWhiteningReranker.load(tmp_path / "saved")(candidates())
    np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4, atol=1e-4)
    assert expected["score"].std() > 0.01


@pytest.mark.parametrize("name", ["CrossEncoder", "BiEncoder"])
def test_it_resumes_and_reloads(name, tiny, tmp_path, monkeypatch):
    start = MAKE[name](tiny)

    def fitted(**more):
        options = small(max_steps=4, batch_size=8, learning_rate=1e-3, checkpoints=tmp_path / "run", evaluate_every=2, **more)
        stage = KernelWhiteningReranker(no_dropout(copy.deepcopy(start)), refresh=3, training=options, **SMALL)
        return stage.fit(candidates(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = fitted()
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-4", whole=False)
    resumed = fitted(resume=True)
    expected = straight(candidates())
    assert resumed(candidates())["score"].tolist() == expected["score"].tolist()
    straight.save(tmp_path / "saved")
    loaded = KernelWhiteningReranker.load(tmp_path / "saved")
    alone = type(start)(str(tmp_path / "saved"))
    for other in (loaded, straight.relevance, alone):
        found = other(candidates())
        assert found["docno"].tolist() == expected["docno"].tolist()
        np.testing.assert_allclose(found["score"], expected["score"], rtol=1e-4, atol=1e-4)
    # A score depends on its own pair: alone, and in any company.
    one = straight(candidates().head(1))
    same = expected[(expected["qid"] == one["qid"][0]) & (expected["docno"] == one["docno"][0])]
    np.testing.assert_allclose(one["score"], same["score"], rtol=1e-4, atol=1e-4)
    # sentence-transformers opens the folder without code of ours.
    pairs = expected.head(4)[["query", "text"]].to_numpy().tolist()
    if name == "BiEncoder":
        from sentence_transformers import SentenceTransformer

        model = SentenceTransformer(str(tmp_path / "saved"), device="cpu")
        theirs = [float(a @ b) for a, b in zip(*(model.encode([pair[i] for pair in pairs]) for i in (0, 1)))]
    else:
        from sentence_transformers import CrossEncoder as Theirs

        theirs = Theirs(str(tmp_path / "saved"), device="cpu", activation_fn=torch.nn.Identity()).predict(pairs)
    np.testing.assert_allclose(theirs, expected["score"].head(4), rtol=1e-3, atol=1e-3)
    # Fitting again goes on with the same layers; where that fails, nothing has changed.
    structure = [tuple(value.shape) for value in loaded.relevance.module.state_dict().values()]
    before = {key: value.clone() for key, value in loaded.relevance.module.state_dict().items()}
    loaded.training = small(max_steps=1, loss=interrupted)
    with pytest.raises(KeyboardInterrupt):
        loaded.fit(candidates().assign(query="another one"), qrels())
    assert all(torch.equal(value, before[key]) for key, value in loaded.relevance.module.state_dict().items())
    loaded.training = small(max_steps=1)
    loaded.fit(candidates(), qrels())
    assert [tuple(value.shape) for value in loaded.relevance.module.state_dict().values()] == structure


@pytest.mark.parametrize(("name", "kernel", "other"), [("CrossEncoder", "rbf", "cosine"), ("BiEncoder", "cosine", "rbf")])
def test_the_layers_are_not_those_of_other_options(name, kernel, other, tiny):
    stage = KernelWhiteningReranker(MAKE[name](tiny), training=small(max_steps=1), landmarks=6, sample=12, kernel=kernel)
    stage.fit(candidates(), qrels())
    for option, value, fitted in (("landmarks", 8, 6), ("kernel", other, kernel)):
        setattr(stage, option, value)
        message = f"KernelWhiteningReranker: {option}={value!r}, but the stage was fitted with {option}={fitted!r}; keep"
        with pytest.raises(InputError, match=message):
            stage.fit(candidates(), qrels())
        setattr(stage, option, fitted)
    stage.fit(candidates(), qrels())


def test_rankers_that_have_no_vectors_to_whiten(tiny):
    for ranker, message in (
        (MultiVector(tiny("build_multi_vector")), "ranker is a MultiVector; give a CrossEncoder or a BiEncoder"),
        (BiEncoder.of("repbert", "no/such-model"), "the BiEncoder is a published one"),
        (CrossEncoder("a/model", head="parade-max"), "head='parade-max' reads several passages together"),
        (BiEncoder("a/model", documents_by=BiEncoder("b/model")), "has documents_by="),
    ):
        with pytest.raises(InputError, match=message):
            KernelWhiteningReranker(ranker).fit(candidates(), qrels())
    with pytest.raises(InputError, match=r"fit\(\) must be called first"):
        KernelWhiteningReranker(CrossEncoder(tiny()))(candidates())
