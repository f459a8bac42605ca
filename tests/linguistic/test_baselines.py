"""The rivals of EqualizeReranker: weights by complexity, group DRO, focal weighting."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import TK, BiEncoder, CrossEncoder, InputError, MultiVector, SparseEncoder, T5Reranker
from pyterrier_debias.linguistic.training.baselines import (
    FocalReranker,
    GroupDROReranker,
    ReverseComplexity,
    group_codes,
    reverse_weights,
    weighted_probability,
)
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.losses import info_nce
from tests.training.networks import difference, weights
from tests.training.toy import candidates, qrels, training


def complexity():
    """0 to 7, as the queries are numbered."""
    return candidates().assign(complexity=lambda f: f["qid"].str[1:].astype(float))


def small(**options):
    return training(**{"max_steps": 2, "negatives_per_positive": 2, **options})


def logs(stage):
    return [entry for entry in stage.training_report.history if "loss" in entry]


# Reverse weighting


@given(st.lists(st.floats(-100, 100).map(lambda x: round(x, 3)), min_size=2, max_size=20))
def test_reverse_weights_fall_in_a_straight_line_to_0(values):
    values = np.array(values)
    found = reverse_weights(values)
    assert found.mean() == pytest.approx(1)
    if np.ptp(values) == 0:
        assert (found == 1).all()
        return
    assert found[values.argmax()] == 0
    minmax = (values - values.min()) / (values.max() - values.min())
    np.testing.assert_allclose(found / found.max(), 1 - minmax, atol=1e-9)


def test_reverse_weights_of_training_queries(tiny):
    groups = make_groups(complexity(), qrels(), stage="test")
    weigh = ReverseComplexity()
    found = [weigh.weigh(groups, group, group.positives[:1]) for group in groups.groups]
    np.testing.assert_allclose(found, np.arange(7, -1, -1) / 3.5)
    assert pickle.loads(pickle.dumps(weigh)) == weigh
    other = make_groups(complexity().assign(complexity=lambda f: -f["complexity"]), qrels(), stage="test")
    assert [weigh.weigh(other, group, group.positives[:1]) for group in other.groups] == pytest.approx(found[::-1])
    # As it was probably meant: complex queries count more.
    hard = ReverseComplexity(favour="hard")
    assert [hard.weigh(groups, group, group.positives[:1]) for group in groups.groups] == pytest.approx(found[::-1])
    assert pickle.loads(pickle.dumps(hard)) == hard != weigh
    turned = replace(weigh, favour="hard")  # which keeps none of the other's weights
    assert turned.weigh(groups, groups.groups[0], groups.groups[0].positives[:1]) == pytest.approx(found[-1])
    with pytest.raises(InputError, match="favour='both'"):
        ReverseComplexity(favour="both")
    # Judged documents that were added behind the stage that made the column lack it.
    added = complexity()
    added.loc[added["docno"].str.endswith(("4", "5")), "complexity"] = np.nan
    groups = make_groups(added, qrels(), stage="test")
    assert [weigh.weigh(groups, group, group.positives[:1]) for group in groups.groups] == pytest.approx(found)
    for column, message in (
        ("nothing", r"^training: the candidates have no column 'nothing'"),
        ("text", "column 'text' holds no numbers"),
    ):
        with pytest.raises(InputError, match=message):
            ReverseComplexity(column).weigh(groups, groups.groups[0], np.array([0]))
    unknown = make_groups(added.assign(complexity=added["complexity"].where(added["qid"] != "q3")), qrels(), stage="test")
    with pytest.raises(InputError, match=r"ReverseComplexity: 1 training queries have no finite value .the first is 'q3'"):
        weigh.weigh(unknown, unknown.groups[0], np.array([0]))
    message = r"reverse_weights: 1 of 2 queries have no finite complexity \(the first is at row 1\); leave them out, or give"
    with pytest.raises(InputError, match=message):
        reverse_weights(np.array([1.0, np.nan]))


def scores_and_weights():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    return scores, torch.tensor([0.0, 0.5, 1.0, 2.5], dtype=torch.float64)


def test_a_weight_of_the_probability_changes_the_loss_and_never_the_gradient():
    """-log(w p): as the paper words it, and why it cannot do anything."""
    scores, w = scores_and_weights()
    raised = w.clamp(min=1e-6)
    by_hand = -(raised * scores.softmax(dim=1)[:, 0]).log().mean()
    found = weighted_probability(scores, weights=w)
    assert found.item() == pytest.approx(by_hand.item(), rel=1e-9)
    (gradient,) = torch.autograd.grad(found, scores)
    (plain,) = torch.autograd.grad(info_nce(scores), scores)
    torch.testing.assert_close(gradient, plain, rtol=0, atol=0)
    (weighed,) = torch.autograd.grad(info_nce(scores, weights=w), scores)
    assert (weighed - plain).abs().max() > 1e-2
    assert weighted_probability(scores).item() == info_nce(scores).item()


def test_both_train_as_they_say(tiny):
    def run(loss, weigh):
        return CrossEncoder(tiny(), training=small(loss=loss, weights=weigh)).fit(complexity(), qrels())

    plain = run("infonce", None)
    assert difference(weights(plain), weights(run(weighted_probability, ReverseComplexity()))) == 0
    assert difference(weights(plain), weights(run("infonce", ReverseComplexity()))) > 0


# Group DRO


def test_groups_are_names_or_quantiles(caplog):
    codes, names = group_codes([3.0, 1.0, 2.0, 6.0, 5.0, 4.0], 3)
    assert codes.tolist() == [1, 0, 0, 2, 2, 1]
    assert names == ["bin 1 of 3", "bin 2 of 3", "bin 3 of 3"]
    codes, names = group_codes(["who", "what", "who"], None)
    assert (codes.tolist(), names) == ([1, 0, 1], ["what", "who"])
    for simple in (3, 4):  # the simplest are in the first group, however many they are
        codes, names = group_codes([0.0] * simple + [1.0] * (5 - simple), 3)
        assert (codes.tolist(), names) == ([0] * simple + [1] * (5 - simple), ["bin 1 of 2", "bin 2 of 2"])
        assert f"there are 2 groups instead of 3 (of {simple}, {5 - simple} queries)" in caplog.messages[-1]
    assert len(caplog.messages) == 2
    for values, bins, message in (
        ([1.0, np.nan], 2, "1 training queries have no finite value .the first is 'q2'"),
        (["who", None], None, "query 'q2' has no group; give it one, or leave it out"),
        (["who", "what"], 2, "groups are not numbers .* use bins=None"),
        ([1.0, 1.0], 2, "all training queries are in one group"),
    ):
        with pytest.raises(InputError, match=message):
            group_codes(values, bins, ["q1", "q2"])
    with pytest.raises(InputError, match="query 1 has no group"):
        group_codes(["who", None], None)


def test_shares_follow_the_source(tiny):
    """Algorithm 1 by hand: from the losses in the log to the shares, step by step; what is trained is the sum of both."""
    stage = GroupDROReranker(CrossEncoder(tiny()), bins=2, step=0.5, training=small(max_steps=3, batch_size=4))
    stage.fit(complexity(), qrels())
    names = ["bin 1 of 2", "bin 2 of 2"]
    q = np.full(2, 0.5)
    for entry in logs(stage):
        losses = np.array([entry.get(f"loss of {name}", 0.0) for name in names])
        q = q * np.exp(0.5 * losses)
        q /= q.sum()
        assert [entry[f"share of {name}"] for name in names] == pytest.approx(q, rel=1e-5)
        assert entry["loss"] == pytest.approx(q @ losses, rel=1e-4)
    assert sum(map(all, ([f"loss of {name}" in entry for name in names] for entry in logs(stage)))) > 0


def test_the_harder_group_comes_to_count_more():
    """A model of one number for each group; both want the same number, of which one group needs more."""
    from pyterrier_debias.linguistic.training.dro_method import GroupDRO, places_of

    class One(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Parameter(torch.zeros(1))
            self.loss = lambda scores, **more: ((scores - 1) ** 2).mean()

        def scores(self, batch):
            return self.a * torch.where(batch["group"] == 0, 1.0, -0.5)[:, None]

    found = {}
    for step in (0.0, 0.5):
        one = One()
        method = GroupDRO(one, {}, ["easy", "hard"], step=step).train()
        groups = np.array([0, 0, 1, 1])
        batch = {name: torch.ones(4, 1) for name in ("grades", "mask", "weights")}
        batch |= {"group": torch.from_numpy(groups), **places_of(groups)}
        optimiser = torch.optim.SGD(one.parameters(), lr=0.05)
        for _ in range(200):
            optimiser.zero_grad()
            out = method(**batch)
            out["loss"].backward()
            optimiser.step()
        found[step] = float(out["loss of hard"]), float(out["loss of easy"]), method.shares.tolist()
    # Losses (a - 1)^2 and (a/2 + 1)^2: their mean is least at a = 0.4, their maximum at a = 0.
    assert found[0.0][:2] == pytest.approx(((0.2 + 1) ** 2, 0.36), rel=1e-3)
    assert found[0.5][:2] == pytest.approx((1.0, 1.0), abs=0.02)
    assert found[0.5][2][1] > 0.5


class Given(torch.nn.Module):
    """A ranking whose losses are given."""

    def __init__(self):
        super().__init__()
        self.loss = lambda scores, **more: scores.mean()

    def scores(self, batch):
        return batch["given"]


def test_shares_grow_as_much_in_several_passes_of_a_step():
    """Four forward passes, each with the same losses, and one: the shares grow alike. The log has those of all groups."""
    from pyterrier_debias.linguistic.training.dro_method import GroupDRO, places_of

    found = []
    for passes in (1, 4):
        method = GroupDRO(Given(), {}, ["a", "b", "c"], step=2.0, passes=passes).train()
        given = torch.tensor([[0.9], [0.1]])
        more = {name: torch.ones_like(given) for name in ("grades", "mask", "weights")}
        for _ in range(passes):
            out = method(given=given, **more, **places_of(np.array([0, 2])))
        assert sum(float(out[f"share of {name}"]) for name in "abc") == pytest.approx(1.0) and "loss of b" not in out
        found.append(method.shares.tolist())
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0] == pytest.approx(np.exp([1.8, 0.0, 0.2]) / np.exp([1.8, 0.0, 0.2]).sum(), rel=1e-5)


def test_training_divides_the_step_by_the_number_of_passes(tiny):
    stage = GroupDROReranker(CrossEncoder(tiny()), bins=2, step=4.0, training=small(max_steps=1, batch_size=1, accumulation=8))
    (entry,) = logs(stage.fit(complexity(), qrels()))
    shares = [entry[f"share of bin {bin} of 2"] for bin in (1, 2)]
    # Eight losses of about .7 in one group would at most multiply its share by exp(4 * .7) within the step, not by exp(22).
    assert sum(shares) == pytest.approx(1.0) and min(shares) > 0.05


def test_a_large_step_follows_the_worst_group():
    """Exponents beyond float32: the shares are those of the largest exponent, and a group that comes back can grow again."""
    from pyterrier_debias.linguistic.training.dro_method import GroupDRO, places_of

    method = GroupDRO(Given(), {}, ["a", "b"], step=1000.0).train()
    for losses, groups, expected in (
        ([0.7, 0.69], [0, 1], [1.0, np.exp(-10)]),
        ([0.7], [1], [0.0, 1.0]),
        ([0.7], [0], [1.0, 0.0]),
    ):
        given = torch.tensor(losses)[:, None]
        more = {name: torch.ones_like(given) for name in ("grades", "mask", "weights")}
        out = method(given=given, **more, **places_of(np.array(groups)))
        assert method.shares.tolist() == pytest.approx(np.array(expected) / sum(expected), rel=1e-3, abs=1e-9)
        assert torch.isfinite(out["loss"])


def test_a_column_of_documents_is_no_column_of_queries(tiny):
    groups = make_groups(complexity(), qrels(), stage="test")
    message = r"^training: column '{}' has several values for query 'q0' .*; name a column that has one value per query"
    with pytest.raises(InputError, match=message.format("score")):
        ReverseComplexity("score").weigh(groups, groups.groups[0], np.array([0]))
    with pytest.raises(InputError, match=message.format("docno")):
        GroupDROReranker(CrossEncoder(tiny()), group="docno", bins=None, training=small()).fit(candidates(), qrels())


def test_group_dro_resumes_with_its_shares(tiny, tmp_path, monkeypatch):
    frame = complexity()

    def run(frame=frame, **options):
        more = small(max_steps=4, evaluate_every=1, checkpoints=tmp_path / "run", resume=(tmp_path / "run").exists())
        return GroupDROReranker(tiny(), **{"step": 0.5, **options}, training=more).fit(frame, qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = run()
    for step in (3, 4):
        trainer_module.mark_checkpoint(tmp_path / "run" / f"checkpoint-{step}", whole=False)
    resumed = run()
    assert difference(weights(straight.relevance), weights(resumed.relevance)) == 0
    with pytest.raises(InputError, match="another run, with other step"):
        run(step=0.1)
    with pytest.raises(InputError, match="another run, with other groups"):
        run(frame.assign(complexity=-frame["complexity"]))
    straight.save(tmp_path / "saved")
    loaded = GroupDROReranker.load(tmp_path / "saved")
    assert (loaded.group, loaded.bins, loaded.step) == ("complexity", 3, 0.5)
    np.testing.assert_allclose(loaded(candidates())["score"], straight(candidates())["score"], atol=1e-6)


RANKERS = {
    "BiEncoder": lambda tiny: BiEncoder(tiny("build_sentence_transformer")),
    "MultiVector": lambda tiny: MultiVector(tiny("build_multi_vector")),
    "SparseEncoder": lambda tiny: SparseEncoder(tiny("build_sparse")),
    "T5Reranker": lambda tiny: T5Reranker(tiny("build_t5")),
    "TK": lambda tiny: TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 2}),
}


@pytest.mark.parametrize("name", RANKERS)
def test_rivals_train_every_ranker(name, tiny):
    start = RANKERS[name](tiny)
    before = weights(start)
    dro = GroupDROReranker(start, training=small(loss="hinge"))
    focal = FocalReranker(start, biased="fewer_steps", negatives="in_batch", training=small())
    for stage in (dro, focal):
        stage.fit(complexity(), qrels())
        assert difference(before, weights(start)) == 0
        assert difference(before, weights(stage.relevance)) > 0
        assert np.isfinite([entry["loss"] for entry in logs(stage)]).all()


# Focal weighting


def test_focal_weighting_at_0_is_plain_training(tiny, tmp_path):
    plain = CrossEncoder(tiny(), training=small(loss="infonce")).fit(candidates(), qrels())
    biased = CrossEncoder(tiny(seed=1))
    found = {g: FocalReranker(tiny(), biased=biased, gamma=g, training=small()).fit(candidates(), qrels()) for g in (0, 2.0)}
    assert difference(weights(plain), weights(found[0].relevance)) == 0
    assert difference(weights(plain), weights(found[2.0].relevance)) > 0
    assert all(entry["loss"] < entry["plain_loss"] for entry in logs(found[2.0]))
    found[2.0].save(tmp_path / "saved")
    loaded = FocalReranker.load(tmp_path / "saved")
    assert loaded.gamma == 2.0
    np.testing.assert_allclose(loaded(candidates())["score"], found[2.0](candidates())["score"], atol=1e-6)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (FocalReranker("no/such", gamma=-1), "gamma=-1 must be a number of at least 0"),
        (FocalReranker("no/such", training=small(loss="bce")), "leave loss='bce' out of Training, or use loss='infonce'"),
        (GroupDROReranker("no/such", step=float("inf")), "step=inf must be a number"),
        (GroupDROReranker("no/such", bins=1), "bins=1 must be a whole number of at least 2; None makes"),
        (GroupDROReranker("no/such", group="kind"), "no column 'kind'"),
        (GroupDROReranker("no/such", group="text"), "groups are not numbers"),
        (GroupDROReranker(4), "ranker is an int"),
    ],
)
def test_options_that_cannot_be_used_are_named_before_a_model_is_loaded(stage, message):
    with pytest.raises(InputError, match=message):
        stage.fit(complexity(), qrels())
