"""Methods with more than one network, in the form that the biases use: the trainer carries them as it is."""

import numpy as np
import pytest
import torch
from torch.nn.functional import softplus

from pyterrier_debias import CrossEncoder, InputError
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.method import Method, Ranking
from tests.training.networks import difference
from tests.training.toy import candidates, no_dropout, qrels, training


class Experts(Ranking):
    """A robust ranker corrected by a frozen biased one (product of experts)."""

    def __init__(self, ranker, biased, alpha=0.5):
        super().__init__(ranker, None)
        self.biased, self.frozen, self.alpha = biased, biased.module, alpha
        self.frozen.requires_grad_(False)

    def forward(self, **batch):
        texts = {name.removeprefix("text_"): value for name, value in batch.items() if name.startswith("text_")}
        robust = self.scores(batch)
        with torch.no_grad():
            biased = torch.zeros_like(robust).masked_scatter(batch["mask"], self.biased.forward(**texts))
        joint = (robust + self.alpha * biased).log_softmax(dim=1)
        return {"loss": -joint[:, 0].mean(), "scores": robust, "biased_margin": (biased[:, 0] - biased[:, 1]).mean()}

    def record(self):
        return {**super().record(), "biased": self.biased.fingerprint()}


class Coupled(Method):
    """Two rankers that weigh each other's pairs (coupled estimation); each has its own rate."""

    def __init__(self, relevance, selection):
        super().__init__()
        self.plain, self.other = Ranking(relevance, None), selection
        self.relevance, self.selection = relevance.module, selection.module

    def networks(self):
        return {"relevance": self.relevance, "selection": self.selection}

    def collate(self, examples):
        return self.plain.collate(examples)

    def forward(self, **batch):
        texts = {name.removeprefix("text_"): value for name, value in batch.items() if name.startswith("text_")}
        r, s = (ranker.forward(**texts).view(batch["mask"].shape) for ranker in (self.plain.ranker, self.other))
        r_gap, s_gap = r[:, 1:] - r[:, :1], s[:, 1:] - s[:, :1]
        for_r, for_s = (gap.detach().float().exp().clamp(max=1.0) for gap in (s_gap, r_gap))
        loss = (for_r * softplus(r_gap)).mean() + (for_s * softplus(s_gap)).mean()
        return {"loss": loss, "scores": r, "mean_weight": for_r.mean()}


class TrainedWith(CrossEncoder):
    """A ranker whose ``fit`` trains by another method."""

    build = None

    def method(self, training):
        return self.build(self)


def with_experts(model, biased, **options):
    ranker = TrainedWith(model, training=training(negatives_per_positive=4, **options))
    ranker.build = lambda self=ranker: Experts(self, biased)
    return ranker


def with_a_pair(model, other, **options):
    ranker = TrainedWith(model, training=training(**options))
    ranker.build = lambda self=ranker: Coupled(self, other)
    return ranker


def test_a_frozen_network_stays_as_it_is_and_out_of_what_is_saved(tiny, tmp_path):
    biased = CrossEncoder(tiny(seed=1))
    before = {name: value.clone() for name, value in biased.module.state_dict().items()}
    ranker = with_experts(tiny(), biased, max_steps=3, checkpoints=tmp_path / "run")
    ranker.fit(candidates(), qrels())
    assert difference(before, biased.module.state_dict()) == 0
    assert not ranker.module.training
    assert all("biased_margin" in entry for entry in ranker.training_report.history if "loss" in entry)
    ranker.save(tmp_path / "saved")
    pairs = ["where is the king"], ["the king found relevant red works"]
    np.testing.assert_allclose(CrossEncoder(str(tmp_path / "saved")).score(*pairs), ranker.score(*pairs), atol=1e-6)


def test_the_frozen_networks_dropout_draws_nothing(tiny):
    """One batch holds every positive with its whole pool: with the robust ranker's dropout off, seeds change the order only."""
    losses = []
    for seed in (1, 2):
        ranker = no_dropout(with_experts(tiny(), CrossEncoder(tiny(seed=1)), max_steps=1, batch_size=16, seed=seed))
        losses.append(ranker.fit(candidates(), qrels()).training_report.history[0]["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_a_resumed_run_meets_the_same_frozen_network(tiny, tmp_path):
    options = {"max_steps": 2, "checkpoints": tmp_path}
    with_experts(tiny(), CrossEncoder(tiny(seed=1)), **options).fit(candidates(), qrels())
    with pytest.raises(InputError, match="another run, with other biased"):
        with_experts(tiny(), CrossEncoder(tiny(seed=2)), **options, resume=True).fit(candidates(), qrels())
    with_experts(tiny(), CrossEncoder(tiny(seed=1)), **options, resume=True).fit(candidates(), qrels())


def test_each_network_has_its_own_rate_and_norm(tiny):
    """A rate of next to nothing holds one network still while the other learns; each gradient is clipped by itself."""
    other, norms = CrossEncoder(tiny(seed=1)), []
    start = {name: value.clone() for name, value in other.module.state_dict().items()}
    ranker = with_a_pair(tiny(), other, max_steps=3, clip=0.1, learning_rate={"relevance": 1e-3, "selection": 1e-30})
    began = {name: value.clone() for name, value in ranker.module.state_dict().items()}
    step = torch.optim.AdamW.step

    def spied(self, *args, **options):
        for network in (ranker.module, other.module):
            norms.append(float(torch.stack([p.grad.norm() for p in network.parameters() if p.grad is not None]).norm()))
        return step(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", spied)
        ranker.fit(candidates(), qrels())
    assert norms == pytest.approx([0.1] * 6, rel=1e-3)
    assert difference(start, other.module.state_dict()) < 1e-25
    assert difference(began, ranker.module.state_dict()) > 1e-4


def test_a_weight_that_no_network_holds_is_not_forgotten(tiny):
    ranker = with_a_pair(tiny(), CrossEncoder(tiny(seed=1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Coupled, "networks", lambda self: {"relevance": self.relevance})
        with pytest.raises(InputError, match=r"Coupled holds trainable weights that none of its networks\(\) holds"):
            ranker.fit(candidates(), qrels())


def test_both_networks_resume_and_the_best_of_both_comes_back(tiny, tmp_path, monkeypatch):
    def run(folder, **more):
        other = CrossEncoder(tiny(seed=1))
        ranker = with_a_pair(tiny(), other, max_steps=4, evaluate_every=2, checkpoints=folder, **more)
        ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
        return ranker, other

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = run(tmp_path / "run")
    best = straight[0].training_report.best_step
    kept = torch.load(tmp_path / "run" / f"checkpoint-{best}" / "pytorch_model.bin", weights_only=True)
    for prefix, ranker in zip(("relevance", "selection"), straight):
        own = {name.removeprefix(f"{prefix}."): value for name, value in kept.items() if name.startswith(f"{prefix}.")}
        assert difference(own, ranker.module.state_dict()) == 0
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-4", whole=False)  # as after a kill while it was written
    resumed = run(tmp_path / "run", resume=True)
    for left, right in zip(straight, resumed):
        assert difference(left.module.state_dict(), right.module.state_dict()) == 0
