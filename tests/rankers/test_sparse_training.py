"""The regularisation that makes vectors sparse, in the ranker's own training and inside others."""

import numpy as np
import pytest
import torch

from pyterrier_debias import CETReranker, FocalReranker, InputError, SparseEncoder
from pyterrier_debias.rankers.sparse_method import SparseRanking, flops, grown
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.losses import pairwise_hinge
from tests.training.toy import candidates, no_dropout, qrels, training


def test_flops_are_the_librarys():
    from sentence_transformers.sparse_encoder.losses import FlopsLoss

    weights = torch.rand(7, 30, generator=torch.Generator().manual_seed(0)).relu()
    assert flops(weights).item() == pytest.approx(FlopsLoss(None).compute_loss_from_embeddings(weights).item(), rel=1e-6)
    # Which terms have their weight does not matter, how many texts share a term does.
    assert flops(torch.eye(4)).item() == pytest.approx(4 / 16)
    assert flops(torch.eye(4)[[0, 0, 0, 0]]).item() == pytest.approx(1.0)


@pytest.mark.parametrize("warmup", [1 / 3, 0.5, 1.0, 40, 0])
def test_weights_grow_as_the_librarys_do(warmup):
    from sentence_transformers.sparse_encoder.callbacks.splade_callbacks import SpladeRegularizerWeightSchedulerCallback
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

    loss = SpladeLoss(None, SparseMultipleNegativesRankingLoss(None), 1.0, 1.0)
    theirs = SpladeRegularizerWeightSchedulerCallback(loss)
    theirs.warmup_steps = 120 * warmup if warmup <= 1 else warmup
    for step in (0, 1, 17, 39, 40, 60, 119):
        expected = theirs._calculate_weight_value(step, 1.0) if warmup else 1.0
        assert grown(step, 120, warmup) == pytest.approx(expected)


def batch(n=4):
    made = Examples(make_groups(candidates(), qrels(), stage="fit"), training(negatives_per_positive=2), n)
    return [made[i] for i in range(n)]


@pytest.mark.parametrize("in_batch", [False, True])
def test_penalties_by_brute_force(tiny, in_batch):
    """Half of the warm-up is a quarter of the weights; the gradient is that of the FLOPS."""
    ranker = no_dropout(SparseEncoder(tiny("build_sparse"), query_flops=0.4, document_flops=0.2, flops_warmup=0.5))
    method = SparseRanking(ranker, pairwise_hinge, in_batch=in_batch)
    examples = batch()
    tensors = method.collate(examples)
    assert method.penalties(0, 100) == {}
    for evaluated in (method.eval(), method.train()):
        with torch.no_grad() if evaluated.training else torch.enable_grad():
            method(**tensors)
        assert method.penalties(25, 100) == {}
    method(**tensors)
    found = method.penalties(25, 100)
    assert method.penalties(25, 100) == {}
    if in_batch:
        queries, docs = [e.query for e in examples], list(dict.fromkeys(text for e in examples for text in e.texts))
    else:
        queries, docs = [e.query for e in examples for _ in e.texts], [text for e in examples for text in e.texts]
    expected = {
        "query_penalty": 0.1 * np.square(ranker.encode_queries(queries).toarray().mean(axis=0)).sum(),
        "document_penalty": 0.05 * np.square(ranker.encode_docs(docs).toarray().mean(axis=0)).sum(),
    }
    assert {name: value.item() for name, value in found.items()} == pytest.approx(expected, rel=1e-4)
    sum(found.values()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in [ranker.module[0].model.get_input_embeddings().weight])


def history(ranker, name):
    return [entry[name] for entry in ranker.training_report.history if name in entry]


def test_the_loss_is_the_rankers_and_the_penalties(tiny):
    runs = {}
    for name, weights in {"none": (0.0, 0.0), "both": (0.03, 0.02)}.items():
        ranker = no_dropout(
            SparseEncoder(tiny("build_sparse"), query_flops=weights[0], document_flops=weights[1], flops_warmup=0)
        )
        ranker.training = training(max_steps=1)
        runs[name] = ranker.fit(candidates(), qrels())
    [loss], [query], [document] = (history(runs["both"], name) for name in ("loss", "query_penalty", "document_penalty"))
    assert query > 0 and document > 0
    assert loss == pytest.approx(history(runs["none"], "loss")[0] + query + document, rel=1e-5)
    assert history(runs["none"], "query_penalty") == [0.0]


def test_penalties_grow_and_make_vectors_sparser(tiny):
    texts = candidates()["text"].tolist()
    kept = {}
    for weight in (0.0, 3e-3, 3e-1):
        ranker = no_dropout(SparseEncoder(tiny("build_sparse"), query_flops=weight, document_flops=weight))
        ranker.training = training(max_steps=40, learning_rate=3e-3, schedule="constant")
        ranker.fit(candidates(), qrels())
        kept[weight] = ranker.describe(texts, "document")["terms"].mean()
        if weight:
            penalties = history(ranker, "query_penalty")
            assert penalties[0] == 0 and penalties[1] < penalties[3] < penalties[6]
    assert kept[3e-1] < 0.3 * kept[0.0] and kept[3e-1] < kept[3e-3] < kept[0.0]


def test_the_warm_up_goes_on_after_a_resume(tiny, tmp_path, monkeypatch):
    def run(**more):
        ranker = SparseEncoder(tiny("build_sparse"), query_flops=0.1, document_flops=0.1, flops_warmup=1.0)
        ranker.training = training(max_steps=6, evaluate_every=3, checkpoints=tmp_path, **more)
        return ranker.fit(candidates(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = run()
    trainer_module.mark_checkpoint(tmp_path / "checkpoint-6", whole=False)
    resumed = run(resume=True)
    assert history(resumed, "document_penalty") == history(straight, "document_penalty")
    for left, right in zip(straight.module.state_dict().values(), resumed.module.state_dict().values()):
        assert torch.equal(left, right)
    with pytest.raises(InputError, match="query_flops"):
        other = SparseEncoder(tiny("build_sparse"), query_flops=0.2, document_flops=0.1, flops_warmup=1.0)
        other.training = training(max_steps=6, evaluate_every=3, checkpoints=tmp_path, resume=True)
        other.fit(candidates(), qrels())


def test_mixed_precision_keeps_the_sums_of_scores(tiny):
    """Scores of some hundreds have steps of one in bfloat16."""
    ranker = no_dropout(SparseEncoder(tiny("build_sparse")))
    drawn = torch.Generator().manual_seed(0)
    queries, docs = ({"sentence_embedding": 2 * torch.rand(n, 500, generator=drawn)} for n in (3, 4))
    expected = queries["sentence_embedding"].double() @ docs["sentence_embedding"].double().T
    with torch.autocast("cpu", torch.bfloat16):
        matrix, rows = (
            ranker.matrix_of(queries, docs),
            ranker.similarity_of(queries, {"sentence_embedding": docs["sentence_embedding"][:3]}),
        )
    np.testing.assert_allclose(matrix, expected, rtol=1e-5)
    np.testing.assert_allclose(rows, expected.diagonal(), rtol=1e-5)
    ranker.training = training(max_steps=2, precision="bfloat16", in_batch_negatives=True, loss="infonce")
    ranker.fit(candidates(), qrels())
    assert all(p.dtype == torch.float32 for p in ranker.module.parameters())


def test_accumulated_passes_have_the_weight_of_their_step(tiny):
    ranker = no_dropout(SparseEncoder(tiny("build_sparse"), query_flops=0.1, document_flops=0.1, flops_warmup=1.0))
    ranker.training = training(max_steps=3, accumulation=2, batch_size=2)
    ranker.fit(candidates(), qrels())
    assert history(ranker, "query_penalty")[0] == 0 < history(ranker, "query_penalty")[1]


@pytest.mark.parametrize("selection", ["first_stage", "same"])
@pytest.mark.parametrize("weight_pass", ["train", "eval"])
def test_coupled_rankers_are_regularised(tiny, selection, weight_pass):
    start = SparseEncoder(tiny("build_sparse"), query_flops=0.1, document_flops=0.1, flops_warmup=0)
    options = {} if selection == "first_stage" else {"selection": "same"}
    stage = CETReranker(start, weight_pass=weight_pass, training=training(max_steps=2), **options).fit(candidates(), qrels())
    for step, (loss, own, other, query, document) in enumerate(
        zip(*(history(stage, n) for n in ("loss", "relevance_loss", "selection_loss", "query_penalty", "document_penalty")))
    ):
        assert query > 0 and document > 0
        assert loss == pytest.approx(own + other + query + document, rel=1e-4), step


def test_a_frozen_sparse_encoder_is_not_regularised(tiny):
    """Of a biased model that is itself one, nothing is added."""
    start = no_dropout(SparseEncoder(tiny("build_sparse"), query_flops=0.1, document_flops=0.1, flops_warmup=0))
    stage = FocalReranker(start, biased="fewer_steps", negatives="in_batch", training=training(max_steps=1))
    stage.fit(candidates(), qrels())
    [query], [document] = history(stage, "query_penalty"), history(stage, "document_penalty")
    assert 0 < query < 2 * 0.1 * np.square(start.encode_queries(candidates()["query"]).toarray().mean(axis=0)).sum()
    assert 0 < document < 2 * 0.1 * np.square(start.encode_docs(candidates()["text"]).toarray().mean(axis=0)).sum()
