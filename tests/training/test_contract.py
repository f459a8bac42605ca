"""Every loss and weight on every architecture, in miniature: it learns, resumes, reloads. A new hook joins by one line."""

import numpy as np
import pytest
import torch

from pyterrier_debias import (
    TK,
    AdversarialReranker,
    BiasAwareReranker,
    BiEncoder,
    ColumnWeights,
    CrossEncoder,
    MultiVector,
    RotatePassages,
    SparseEncoder,
    T5Reranker,
)
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.losses import LOSSES
from tests.training.toy import candidates, no_dropout, qrels, training


def of(name, tiny, **options):
    return BiEncoder.of(name, tiny("build_published", name=name), **options)


RANKERS = {
    "CrossEncoder": lambda tiny: CrossEncoder(tiny()),
    "CrossEncoder(mean)": lambda tiny: CrossEncoder(tiny(labels=None), head="mean"),
    "CrossEncoder(roberta)": lambda tiny: CrossEncoder(tiny(architecture="roberta")),
    "BiEncoder": lambda tiny: BiEncoder(tiny("build_sentence_transformer")),
    "BiEncoder(cosine)": lambda tiny: BiEncoder(tiny("build_sentence_transformer"), similarity="cosine"),
    "MultiVector": lambda tiny: MultiVector(tiny("build_multi_vector")),
    "SparseEncoder": lambda tiny: SparseEncoder(tiny("build_sparse")),
    "SparseEncoder(distilbert)": lambda tiny: SparseEncoder(tiny(architecture="distilbert", labels=None, masked=True)),
    "T5Reranker": lambda tiny: T5Reranker(tiny("build_t5")),
    "TK": lambda tiny: TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1}),
}

#: Other heads and checkpoints of the same classes: they learn, resume and reload.
OTHERS = {
    "T5Reranker(rankt5)": lambda tiny: T5Reranker(tiny("build_t5", extra=True), head="rankt5"),
    "T5Reranker(rankt5-encoder)": lambda tiny: T5Reranker(tiny("build_t5", extra=True), head="rankt5-encoder"),
    **{
        f"CrossEncoder({name})": lambda tiny, name=name: CrossEncoder.of(
            name, tiny(labels=None), passage_length=4, passage_stride=3, max_passages=2
        )
        for name in ("parade-max", "parade-transformer", "cedr-knrm")
    },
    **{f"BiEncoder({name})": lambda tiny, name=name: of(name, tiny) for name in ("repbert", "ance", "tct-colbert", "star")},
    "MultiVector(dnn)": lambda tiny: MultiVector.from_dnn(f"{tiny('build_dnn')}/colbert.dnn", base=f"{tiny('build_dnn')}/base"),
    "BiEncoder(adore)": lambda tiny: of("adore", tiny, documents_by=of("star", tiny)),
}

#: Losses as they are used: name, and options of the training.
HOOKS = {name: {"loss": name} for name in LOSSES}
HOOKS["infonce, in batch"] = {"loss": "infonce", "in_batch_negatives": True}
HOOKS["infonce, pairs"] = {"loss": "infonce", "in_batch_negatives": True, "negatives_per_positive": 0}
HOOKS["lambda, all positives"] = {"loss": "lambda", "positives": "all"}

WEIGHTS = {"query": ColumnWeights("ease"), "document": ColumnWeights("trust", per="document")}


def weighed():
    return candidates().assign(ease=lambda f: 0.5 + f["qid"].str[1:].astype(int) / 8, trust=lambda f: 1 - f["rank"] / 20)


@pytest.fixture(autouse=True)
def silent(caplog):
    """Fresh heads announce themselves."""
    caplog.set_level("ERROR")


def small(**options):
    return training(**{"batch_size": 4, "negatives_per_positive": 2, **options})


def losses_of(ranker):
    return [entry["loss"] for entry in ranker.training_report.history if "loss" in entry]


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("name", RANKERS)
def test_every_loss_and_weight_trains_every_ranker(name, hook, tiny):
    """Two steps without weights and under one weighting: finite losses, changed weights, another fingerprint, another first loss.

    Each ranker and each loss meets both weightings.
    """
    weighting = list(WEIGHTS)[(list(RANKERS).index(name) + list(HOOKS).index(hook)) % 2]
    found = []
    for weights in (None, WEIGHTS[weighting]):
        ranker = RANKERS[name](tiny)
        before, start = ranker.fingerprint(), [p.detach().clone() for p in ranker.module.parameters()]
        ranker.training = small(max_steps=2, warmup=0, weights=weights, **HOOKS[hook])
        assert ranker.fit(weighed(), qrels()) is ranker
        assert np.isfinite(losses_of(ranker)).all()
        assert len(losses_of(ranker)) == 2
        assert any(not torch.equal(a, b) for a, b in zip(start, ranker.module.parameters()))
        assert ranker.fingerprint() != before
        found += losses_of(ranker)[:1]
    assert found[0] != found[1] or (weighting, hook) == ("document", "hinge")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_weight_of_a_query_is_a_factor_of_its_loss(hook, tiny):
    """Weights of 1/2 for every query halve the loss, whatever it makes of documents' weights."""
    losses = []
    for ease in (1.0, 0.5):
        ranker = no_dropout(BiEncoder(tiny("build_sentence_transformer")))
        ranker.training = small(max_steps=1, weights=ColumnWeights("ease"), **HOOKS[hook])
        losses += losses_of(ranker.fit(candidates().assign(ease=ease), qrels()))
    assert losses[1] == pytest.approx(losses[0] / 2, rel=1e-4)


@pytest.mark.parametrize("name", RANKERS)
def test_every_ranker_learns_what_there_is_to_learn(name, tiny):
    ranker = RANKERS[name](tiny)
    rate = 1e-2 if name in ("T5Reranker", "TK") else 3e-3
    ranker.training = small(max_steps=40, batch_size=8, learning_rate=rate, schedule="constant")
    ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
    history = losses_of(ranker)
    assert np.mean(history[-10:]) < 0.6 * np.mean(history[:10])
    assert ranker.training_report.best > 0.9


@pytest.mark.parametrize("name", OTHERS)
def test_every_other_head_lowers_a_loss_over_lists(name, tiny):
    ranker = no_dropout(OTHERS[name](tiny))
    ranker.training = small(max_steps=8, batch_size=8, learning_rate=3e-3, schedule="constant", warmup=0, loss="softmax")
    history = losses_of(ranker.fit(candidates(), qrels()))
    assert np.mean(history[-2:]) < 0.9 * np.mean(history[:2])


@pytest.mark.parametrize("name", [*RANKERS, *OTHERS])
def test_every_ranker_resumes_and_reloads(name, tiny, tmp_path, monkeypatch):
    make = {**RANKERS, **OTHERS}[name]
    options = small(max_steps=4, evaluate_every=2, checkpoints=tmp_path / "run", augment=RotatePassages())
    straight = make(tiny)
    straight.training = options
    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight.fit(candidates(), qrels())
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-4", whole=False)  # as after a kill while it was written
    again = make(tiny)
    again.training = small(max_steps=4, evaluate_every=2, checkpoints=tmp_path / "run", augment=RotatePassages(), resume=True)
    opened, load = [], trainer_module._Trainer._load_from_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(
            trainer_module._Trainer, "_load_from_checkpoint", lambda self, at, model=None: (opened.append(at), load(self, at))
        )
        again.fit(candidates(), qrels())
    assert [path.rpartition("/")[2] for path in opened] == ["checkpoint-2"]
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-4"]
    for (key, left), right in zip(straight.module.state_dict().items(), again.module.state_dict().values()):
        assert torch.equal(left, right), key

    straight.save(tmp_path / "saved")
    loaded = type(straight).load(tmp_path / "saved")
    expected = straight(candidates())
    found = loaded(candidates())
    assert found["docno"].tolist() == expected["docno"].tolist()
    np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
    assert loaded.training_report == straight.training_report


#: Selection models of CET: what the pool saw, and a second ranker.
SELECTIONS = {"first_stage": {}, "same": {"selection": "same", "weight_pass": "eval"}}


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("name", RANKERS)
def test_coupled_estimation_trains_resumes_and_reloads_every_ranker(name, selection, tiny, tmp_path, monkeypatch):
    start = RANKERS[name](tiny)

    def fitted(**more):
        options = small(max_steps=2, warmup=0, evaluate_every=1, checkpoints=tmp_path / "run", **more)
        return CETReranker(start, tau=0.5, training=options, **SELECTIONS[selection]).fit(candidates(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = fitted()
    assert np.isfinite(losses_of(straight)).all()
    assert straight.relevance.fingerprint() != start.fingerprint()
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-2", whole=False)
    resumed = fitted(resume=True)
    straight.save(tmp_path / "saved")
    loaded = CETReranker.load(tmp_path / "saved")
    for other, tolerance in ((resumed, 0), (loaded, 1e-5)):
        np.testing.assert_allclose(other(candidates())["score"], straight(candidates())["score"], rtol=0, atol=tolerance)
        found, expected = (stage.selection_scores(candidates())["selection_score"] for stage in (other, straight))
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


def spoken():
    """Half of the passages speak of women."""
    return candidates().assign(text=lambda f: [t + " she and her" * (int(d[-1]) % 2) for t, d in zip(f["text"], f["docno"])])


FAIR = [(BiasAwareReranker, name) for name in RANKERS]
FAIR += [(AdversarialReranker, name) for name in RANKERS if name.startswith("CrossEncoder")]


@pytest.mark.parametrize(("make", "name"), FAIR, ids=lambda value: getattr(value, "__name__", value))
def test_fair_rerankers_train_and_reload_every_ranker(make, name, tiny, tmp_path):
    start = RANKERS[name](tiny)
    stage = make(start, training=small(max_steps=2, warmup=0)).fit(spoken(), qrels())
    assert np.isfinite(losses_of(stage)).all() and stage.relevance.fingerprint() != start.fingerprint()
    stage.save(tmp_path / "saved")
    np.testing.assert_allclose(make.load(tmp_path / "saved")(spoken())["score"], stage(spoken())["score"], atol=1e-5)
