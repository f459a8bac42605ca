"""Every loss and weight on every architecture, in miniature: it learns, resumes, reloads. A new hook joins by one line."""

import copy

import numpy as np
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import (
    TK,
    AdversarialReranker,
    BiasAwareReranker,
    BiEncoder,
    ColumnWeights,
    CrossEncoder,
    EqualizeReranker,
    MultiVector,
    RotatePassages,
    SparseEncoder,
    T5Reranker,
)
from pyterrier_debias.linguistic.training.baselines import ReverseComplexity
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.pooling.training.propensities import KnownPropensities
from pyterrier_debias.rankers.tk_model import PRINTED_MU
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.losses import LOSSES
from pyterrier_debias.training.method import Method
from tests.training.toy import candidates, no_dropout, qrels, scores_of, training


def of(name, tiny, **options):
    return BiEncoder.of(name, tiny("build_published", name=name), **options)


def fresh_tk(tiny, **options):
    positional = options.pop("positional", "absolute")
    return TK.from_embeddings(tiny(labels=None), positional=positional, config={"num_hidden_layers": 1, **options})


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
    "TK": fresh_tk,
}

#: Other heads and checkpoints of the same classes: they learn, resume and reload.
OTHERS = {
    "T5Reranker(rankt5)": lambda tiny: T5Reranker(tiny("build_t5", extra=True), head="rankt5"),
    "T5Reranker(rankt5-encoder)": lambda tiny: T5Reranker(tiny("build_t5", extra=True), head="rankt5-encoder"),
    **{
        f"CrossEncoder({name})": lambda tiny, name=name: CrossEncoder.of(
            name, tiny(labels=None), passage_length=4, passage_stride=3, max_passages=2
        )
        for name in ("parade-max", "parade-avg", "parade-attention", "parade-transformer", "cedr-knrm")
    },
    "CrossEncoder(birch)": lambda tiny: CrossEncoder.of("birch", tiny()),
    "CrossEncoder(prop)": lambda tiny: CrossEncoder(tiny("build_pretrained")),
    **{f"BiEncoder({name})": lambda tiny, name=name: of(name, tiny) for name in ("repbert", "ance", "tct-colbert", "star")},
    "MultiVector(dnn)": lambda tiny: MultiVector.from_dnn(f"{tiny('build_dnn')}/colbert.dnn", base=f"{tiny('build_dnn')}/base"),
    "MultiVector(stanford)": lambda tiny: MultiVector(tiny("build_stanford")),
    "BiEncoder(adore)": lambda tiny: of("adore", tiny, documents_by=of("star", tiny)),
    "TK(shaw)": lambda tiny: fresh_tk(tiny, positional="shaw"),
    "TK(vaswani, printed kernels)": lambda tiny: fresh_tk(tiny, positional="vaswani", kernel_mu=PRINTED_MU),
}

#: What other training there is of the papers' and their rivals': a ranker, and how it is trained.
WAYS = {
    "KernelWhiteningReranker(CrossEncoder)": lambda tiny: KernelWhiteningReranker(CrossEncoder(tiny()), landmarks=12, sample=40),
    "KernelWhiteningReranker(BiEncoder)": lambda tiny: KernelWhiteningReranker(
        BiEncoder(tiny("build_sentence_transformer")), landmarks=12, sample=40
    ),
    "AdversarialReranker(first_training)": lambda tiny: AdversarialReranker(
        CrossEncoder(tiny()), first_training=small(max_steps=1)
    ),
    "CETReranker": lambda tiny: CETReranker(CrossEncoder(tiny())),
    "EqualizeReranker": lambda tiny: EqualizeReranker(CrossEncoder(tiny()), biased=CrossEncoder(tiny(seed=1))),
}
#: The same by weights of examples, on any ranker.
WEIGHED = {
    "LC as reverse weight": ReverseComplexity(),
    "LC as reverse weight, hard": ReverseComplexity(favour="hard"),
    "known propensities": KnownPropensities(),
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


def first_steps(name, hook, tiny, weights=None):
    """A ranker that took two steps by a loss; before them its fingerprint, and copies of its weights."""
    ranker = RANKERS[name](tiny)
    before, start = ranker.fingerprint(), [p.detach().clone() for p in ranker.module.parameters()]
    ranker.training = small(max_steps=2, warmup=0, weights=weights, **HOOKS[hook])
    assert ranker.fit(weighed(), qrels()) is ranker
    return ranker, before, start


@pytest.mark.parametrize("name", [*RANKERS, *OTHERS])
def test_scores_alter_no_ranker_and_copies_are_trained_like_it(name, tiny):
    """Copies of a ranker that was only used load it again; what was frozen stays frozen in them."""
    ranker = {**RANKERS, **OTHERS}[name](tiny)
    scores = scores_of(ranker)
    assert not ranker.altered()
    next(iter(ranker.module.parameters())).requires_grad_(False)
    copied = copy.deepcopy(ranker)
    assert ranker.altered() and not next(iter(copied.module.parameters())).requires_grad
    assert copied == ranker and np.allclose(scores_of(copied), scores, atol=1e-5)


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("name", RANKERS)
def test_every_loss_and_weight_trains_every_ranker(name, hook, tiny):
    """Two steps under one weighting: finite losses, changed weights, another fingerprint. Each ranker and loss meets both."""
    weighting = list(WEIGHTS)[(list(RANKERS).index(name) + list(HOOKS).index(hook)) % 2]
    ranker, before, start = first_steps(name, hook, tiny, WEIGHTS[weighting])
    assert np.isfinite(losses_of(ranker)).all()
    assert len(losses_of(ranker)) == 2
    assert any(not torch.equal(a, b) for a, b in zip(start, ranker.module.parameters()))
    assert ranker.fingerprint() != before


@pytest.mark.parametrize("hook", HOOKS)
def test_weights_change_every_loss(hook, tiny):
    """How scores are made plays no part in that, so that each loss has one ranker, another than its neighbours'."""
    name = list(RANKERS)[list(HOOKS).index(hook) % len(RANKERS)]
    plain, query, document = (losses_of(first_steps(name, hook, tiny, w)[0])[0] for w in (None, *WEIGHTS.values()))
    assert plain != query and plain != document


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


def known():
    """The toy collection with all that a way to train reads: complexity, propensities, passages about women."""
    frame = spoken()
    place = frame.groupby("qid").cumcount()
    return frame.assign(complexity=frame["qid"].str[1:].astype(float), propensity=0.5 + place / 12, selected=place != 1)


@pytest.mark.parametrize("name", [*RANKERS, *OTHERS, *WAYS, *WEIGHED])
def test_one_step_lowers_the_loss_of_its_own_batch(name, tiny, monkeypatch):
    """Every batch holds all examples, and dropout is off: what changes from one to the next is the step between them."""
    monkeypatch.setattr(Method, "train", lambda self, mode=True: super(Method, self).train(False))
    stage = {**RANKERS, **OTHERS, **WAYS}.get(name, RANKERS["BiEncoder"])(tiny)
    options = {"batch_size": 16, "negatives_per_positive": 4, "warmup": 0, "schedule": "constant", "weights": WEIGHED.get(name)}
    stage.training = training(**options, max_steps=2, learning_rate=1e-4)
    stage.fit(known(), qrels())
    # The adversary works against the ranker: each has its own part.
    part = "plain_loss" if name.startswith("Adversarial") else "loss"
    before, after = [entry[part] for entry in stage.training_report.history if part in entry]
    assert after < before


@pytest.mark.parametrize("name", WEIGHED)
def test_weights_of_examples_resume_and_reload(name, tiny, tmp_path, monkeypatch):
    def fitted(**more):
        options = small(max_steps=2, warmup=0, evaluate_every=1, checkpoints=tmp_path / "run", weights=WEIGHED[name], **more)
        return CrossEncoder(tiny(), training=options).fit(known(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = fitted()
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-2", whole=False)
    assert_reranks_alike(fitted(resume=True), straight, 0)
    straight.save(tmp_path / "saved")
    assert_reranks_alike(CrossEncoder.load(tmp_path / "saved"), straight, 1e-5)


def assert_reranks_alike(found, expected, tolerance):
    """Two rankers give the same ranking in a pipeline, behind a first stage."""
    asked, first = candidates()[["qid", "query"]].drop_duplicates(), pt.Transformer.from_df(candidates())
    left, right = ((first % 5 >> stage % 3)(asked) for stage in (found, expected))
    assert left["docno"].tolist() == right["docno"].tolist()
    assert len(left) == 3 * asked["qid"].nunique() and set(left["rank"]) == {0, 1, 2}
    np.testing.assert_allclose(left["score"], right["score"], rtol=0, atol=tolerance)


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
    assert_reranks_alike(loaded, straight, 1e-5)
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
