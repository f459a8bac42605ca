"""EqualizeReranker: what fit trains and leaves alone, the biased learners, what is refused, and what comes back from a folder."""

import json
import logging
import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias import (
    TK,
    BiEncoder,
    ColumnWeights,
    CrossEncoder,
    InputError,
    MultiVector,
    RotatePassages,
    SparseEncoder,
    T5Reranker,
)
from pyterrier_debias.linguistic.formulas.product_of_experts import product_of_experts
from pyterrier_debias.linguistic.training.biased import BiasedData, FewerSteps, LessData, WeakerModel, first_layers
from pyterrier_debias.linguistic.training.equalize import EqualizeReranker
from pyterrier_debias.linguistic.training.equalize_method import AgainstBiased, LiveScores, cached_scores, drawn_rows
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.method import ranking_of
from tests.training.networks import difference, weights
from tests.training.toy import candidates, qrels, training

LEARNERS = ("weaker_model", "less_data", "fewer_steps", "biased_data")

RANKERS = {
    "CrossEncoder": lambda tiny: CrossEncoder(tiny()),
    "BiEncoder": lambda tiny: BiEncoder(tiny("build_sentence_transformer")),
    "MultiVector": lambda tiny: MultiVector(tiny("build_multi_vector")),
    "SparseEncoder": lambda tiny: SparseEncoder(tiny("build_sparse")),
    "T5Reranker": lambda tiny: T5Reranker(tiny("build_t5")),
    "TK": lambda tiny: TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 2}),
}
ALL = {**RANKERS, "CrossEncoder(mean)": lambda tiny: CrossEncoder(tiny(labels=None), head="mean")}


@pytest.fixture(autouse=True)
def only_ours():
    """Fresh heads announce themselves, and so does the tagger that stands in."""
    loggers = [logging.getLogger(f"pyterrier_debias.{name}") for name in ("rankers", "linguistic.analysers")]
    for logger in loggers:
        logger.setLevel("ERROR")
    yield
    for logger in loggers:
        logger.setLevel("NOTSET")


def small(**options):
    return training(**{"max_steps": 2, "negatives_per_positive": 2, **options})


def fitted(ranker, run=None, **options):
    return EqualizeReranker(ranker, training=small(**run or {}), **options).fit(candidates(), qrels())


def losses_of(stage):
    return [entry["loss"] for entry in stage.training_report.history if "loss" in entry]


# Every ranker, every learner


@pytest.mark.parametrize("negatives", ["explicit", "in_batch"])
@pytest.mark.parametrize("name", RANKERS)
def test_every_ranker_trains_resumes_and_reloads(name, negatives, tiny, tmp_path, monkeypatch):
    start = RANKERS[name](tiny)
    before = weights(start)

    def run(**more):
        options = small(warmup=0, evaluate_every=1, checkpoints=tmp_path / "run", **more)
        return EqualizeReranker(start, alpha=0.5, negatives=negatives, training=options).fit(candidates(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = run()
    assert difference(before, weights(start)) == 0
    assert np.isfinite(losses_of(straight)).all()
    assert len(losses_of(straight)) == 2
    assert difference(before, weights(straight.relevance)) > 0
    assert sum(p.numel() for p in straight.biased_model.module.parameters()) < sum(p.numel() for p in start.module.parameters())
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-2", whole=False)
    resumed = run(resume=True)
    assert difference(weights(straight.relevance), weights(resumed.relevance)) == 0
    assert difference(weights(straight.biased_model), weights(resumed.biased_model)) == 0

    straight.save(tmp_path / "saved")
    loaded = EqualizeReranker.load(tmp_path / "saved")
    alone = type(start).load(tmp_path / "saved")
    expected = straight(candidates())
    for other in (loaded, alone):
        found = other(candidates())
        assert found["docno"].tolist() == expected["docno"].tolist()
        np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
    weak = [stage.biased_model(candidates())["score"] for stage in (loaded, straight)]
    np.testing.assert_allclose(*weak, atol=1e-5)


@pytest.mark.parametrize("biased", LEARNERS)
def test_alpha_0_is_plain_training_to_the_last_bit(biased, tiny):
    """With dropout: what the biased learner draws leaves the robust one's draws alone."""
    plain = CrossEncoder(tiny(), training=small(loss="infonce", max_steps=3)).fit(candidates(), qrels())
    found = {0: fitted(CrossEncoder(tiny()), {"max_steps": 3}, biased=biased, alpha=0)}
    found[0.5] = fitted(CrossEncoder(tiny()), {"max_steps": 3}, biased=found[0].biased_model, alpha=0.5)
    assert difference(weights(plain), weights(found[0].relevance)) == 0
    assert difference(weights(plain), weights(found[0.5].relevance)) > 0
    history = [[e for e in stage.training_report.history if "loss" in e] for stage in (found[0], found[0.5])]
    assert [e["loss"] for e in history[0]] == pytest.approx([e["plain_loss"] for e in history[0]], rel=1e-6)
    assert [e["loss"] for e in history[0]] == pytest.approx(losses_of(plain), rel=1e-6)
    assert [e["loss"] for e in history[1]] != pytest.approx([e["plain_loss"] for e in history[1]], rel=1e-3)
    assert all({"accuracy", "biased_accuracy"} <= set(entry) for entry in history[1])


def test_alpha_0_is_plain_training_in_the_batch_too(tiny):
    model = tiny("build_sentence_transformer")
    options = {"negatives_per_positive": 0, "in_batch_negatives": True, "max_steps": 3}
    plain = BiEncoder(model, training=small(loss="infonce", **options)).fit(candidates(), qrels())
    stage = fitted(BiEncoder(model), options, alpha=0, negatives="in_batch")
    assert difference(weights(plain), weights(stage.relevance)) == 0
    assert difference(weights(plain), weights(fitted(BiEncoder(model), options, alpha=0.5, negatives="in_batch").relevance)) > 0


# What the biased learners are


def test_a_learner_is_trained_as_its_name_says(tiny):
    base = CrossEncoder(tiny(layers=4))
    stages = {name: fitted(base, {"max_steps": 5, "batch_size": 2}, biased=name) for name in LEARNERS}
    models = {name: stage.biased_model for name, stage in stages.items()}
    layers = {name: len(model.module.bert.encoder.layer) for name, model in models.items()}
    assert layers == {"weaker_model": 2, "less_data": 4, "fewer_steps": 4, "biased_data": 4}
    reports = {name: model.training_report for name, model in models.items()}
    assert {name: report.steps for name, report in reports.items()} == dict.fromkeys(LEARNERS, 5) | {"fewer_steps": 1}
    counts = {name: report.counts["queries"] for name, report in reports.items()}
    assert counts == dict.fromkeys(LEARNERS, 8) | {"less_data": 2}  # a fifth of eight, rounded up
    prints = {name: report.data for name, report in reports.items()}
    assert prints["weaker_model"] == prints["fewer_steps"] == stages["less_data"].training_report.data
    assert len(set(prints.values())) == 3
    assert FewerSteps().options(small(max_steps=None, epochs=5)).epochs == pytest.approx(1)


def test_queries_repeat_their_noun_phrases_for_the_learner_only(tiny):
    seen = []

    def rewrite(topics):
        seen.append(topics)
        return topics.assign(query=topics["query"] + " again")

    before = candidates()
    frame = before.copy()
    stage = EqualizeReranker(CrossEncoder(tiny()), biased=BiasedData(rewrite=rewrite), training=small()).fit(frame, qrels())
    assert frame.equals(before)
    assert [len(topics) for topics in seen] == [8]
    by_hand = before.assign(query=before["query"] + " again")
    learner = CrossEncoder(tiny(), training=small(loss="infonce")).fit(by_hand, qrels())
    assert difference(weights(learner), weights(stage.biased_model)) == 0


def test_which_queries_are_kept_depends_on_their_names_and_the_seed_only():
    frame = candidates()
    groups = make_groups(frame, qrels(), stage="test")
    kept = {seed: set(LessData(share=0.5).data(frame, groups, seed)["qid"]) for seed in range(5)}
    assert {len(qids) for qids in kept.values()} == {4}
    assert len(set(map(frozenset, kept.values()))) > 1
    shuffled = frame.sample(frac=1, random_state=1)
    assert set(LessData(share=0.5).data(shuffled, make_groups(shuffled, qrels(), stage="test"), 0)["qid"]) == kept[0]
    assert set(LessData(share=0.25).data(frame, groups, 0)["qid"]) < kept[0]


def test_a_share_of_the_queries_is_that_share_in_spite_of_rounding():
    parts = (("a", 8), ("b", 8), ("c", 8), ("d", 1))
    frame, judged = (pd.concat([of(prefix, topics) for prefix, topics in parts]) for of in (candidates, qrels))
    groups = make_groups(frame, judged, stage="test")
    for share, kept in ((0.28, 7), (0.281, 8), (1e-9, 1), (1.0, 25)):  # 0.28 * 25 is 7.000000000000001
        drawn = LessData(share=share).data(frame, groups, 0)  # the index of the frame has duplicates
        assert drawn["qid"].nunique() == kept and len(drawn) == 6 * kept


@pytest.mark.parametrize("name", ALL)
def test_the_first_layers_are_copies_of_the_models_own(name, tiny):
    whole = ALL[name](tiny)
    part = first_layers(whole, 1)
    state, small_state = whole.module.state_dict(), part.module.state_dict()
    assert set(small_state) < set(state)
    assert {key.replace(".1.", ".0.", 1) for key in set(state) - set(small_state)} <= set(small_state)
    assert all(torch.equal(small_state[key], state[key]) for key in small_state)
    assert not {p.data_ptr() for p in part.module.parameters()} & {p.data_ptr() for p in whole.module.parameters()}
    pairs = candidates()["query"].tolist(), candidates()["text"].tolist()
    assert np.abs(part.score(*pairs) - whole.score(*pairs)).max() > 1e-3


def test_a_single_query_is_not_enough_for_in_batch_negatives(tiny):
    options = small(in_batch_negatives=True, negatives_per_positive=0)
    stage = EqualizeReranker(CrossEncoder(tiny()), biased="less_data", negatives="in_batch", training=options)
    message = "^LessData: share=0.2 of 4 training queries is one query, but with negatives_per_positive=0 .* raise share"
    with pytest.raises(InputError, match=message):
        stage.fit(candidates(topics=4), qrels(topics=4))


def test_a_number_of_layers_of_numpy_can_be_saved(tiny, tmp_path):
    first_layers(CrossEncoder(tiny()), np.int64(1)).save(tmp_path / "saved")
    assert CrossEncoder(str(tmp_path / "saved")).module.config.num_hidden_layers == 1


def test_what_is_left_out_is_what_the_other_layers_add(tiny):
    """T5's second layers, made to add nothing, leave the scores of the first ones."""
    whole = T5Reranker(tiny("build_t5"))
    with torch.no_grad():
        for stack in (whole.module.encoder, whole.module.decoder):
            for key, value in stack.block[1].named_parameters():
                if key.endswith((".o.weight", ".wo.weight")):
                    value.zero_()
    pairs = candidates()["query"].tolist(), candidates()["text"].tolist()
    np.testing.assert_allclose(whole.score(*pairs), first_layers(whole).score(*pairs), atol=1e-5)


def test_a_head_that_reads_all_layers_reads_those_that_are_left(tiny, tmp_path):
    """The weights of the kernels of two of three states, and of the classification token."""
    whole = CrossEncoder.of("cedr-knrm", tiny(labels=None))
    part = first_layers(whole)
    given, kept = whole.module.combine.weight[0], part.module.combine.weight[0]
    assert torch.equal(kept, torch.cat([given[:22], given[33:]]))
    stage = EqualizeReranker(whole, training=small(max_steps=1)).fit(candidates(), qrels())
    stage.save(tmp_path / "saved")
    pairs = candidates()["query"].tolist()[:4], candidates()["text"].tolist()[:4]
    loaded = EqualizeReranker.load(tmp_path / "saved").relevance
    np.testing.assert_allclose(loaded.score(*pairs), stage.relevance.score(*pairs), atol=1e-5)


@pytest.mark.parametrize("architecture", ["electra", "distilbert", "roberta"])
def test_other_encoders_are_cut_and_come_back(architecture, tiny, tmp_path):
    part = first_layers(CrossEncoder(tiny(architecture=architecture)))
    assert part.module.config.num_hidden_layers == 1
    part.save(tmp_path / "part")
    pairs = candidates()["query"].tolist(), candidates()["text"].tolist()
    np.testing.assert_allclose(CrossEncoder.load(tmp_path / "part").score(*pairs), part.score(*pairs), atol=1e-6)


def test_how_many_layers_are_kept(tiny):
    kept = {n: len(first_layers(CrossEncoder(tiny(layers=n))).module.bert.encoder.layer) for n in (2, 3, 4, 6)}
    assert kept == {2: 1, 3: 1, 4: 2, 6: 2}
    with pytest.raises(InputError, match="layers=2, but the model has 2"):
        first_layers(CrossEncoder(tiny()), 2)
    with pytest.raises(InputError, match=r"no stack of at least two layers .* use WeakerModel\(model=...\)"):
        first_layers(CrossEncoder(tiny(layers=1)))


def test_another_model_may_be_the_weaker_one(tiny):
    """Of another class, with a training of its own; what was passed stays as it is."""
    other = BiEncoder(tiny("build_sentence_transformer"))
    before = weights(other)
    learner = WeakerModel(model=other, training=small(max_steps=3, learning_rate=1e-3))
    for negatives in ("explicit", "in_batch"):
        stage = fitted(CrossEncoder(tiny()), {"learning_rate": {"ranker": 1e-3}}, biased=learner, negatives=negatives)
        assert isinstance(stage.biased_model, BiEncoder)
        assert stage.biased_model.training_report.steps == 3
        assert difference(before, weights(other)) == 0
        assert difference(before, weights(stage.biased_model)) > 0
    # A cross-encoder beside a ranker that scores in matrices.
    stage = fitted(other, biased=WeakerModel(model=CrossEncoder(tiny())), negatives="in_batch")
    assert isinstance(stage.biased_model, CrossEncoder)


# The biased scores


def joined(robust, biased, groups, options, alpha=0.5, live=False):
    scores = LiveScores(ranking_of(biased, options, "test")) if live else cached_scores(biased, groups, options, "test")
    return AgainstBiased(
        ranking_of(robust, options, "test"), scores, lambda s, b, **more: product_of_experts(s, b, alpha=alpha, **more), about={}
    )


@pytest.mark.parametrize("name", ["CrossEncoder", "BiEncoder"])
def test_the_loss_is_that_of_both_models_scores(name, tiny):
    """Against scores that the stages give, with the examples' own candidates; cached and live."""
    robust, biased = RANKERS[name](tiny), CrossEncoder(tiny(seed=1))
    options = small(loss="infonce", weights=ColumnWeights("ease"))
    frame = candidates().assign(ease=lambda f: 0.5 + f["qid"].str[1:].astype(int) / 8)
    groups = make_groups(frame, qrels(), stage="test")
    made = Examples(groups, options, 6)
    examples = [made[i] for i in range(6)]
    expected = []
    for example in examples:
        r, b = (torch.tensor(m.score([example.query] * len(example.texts), example.texts)) for m in (robust, biased))
        expected.append(example.weights * -(r + 0.5 * b).log_softmax(dim=0)[0].item())
    for live in (False, True):
        method = joined(robust, biased, groups, options, live=live)
        robust.scoring_module()
        out = method(**method.collate(examples))
        assert out["loss"].item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_in_batch_both_models_score_the_same_matrix(tiny):
    robust, biased = BiEncoder(tiny("build_sentence_transformer")), CrossEncoder(tiny(seed=1))
    options = small(loss="infonce", in_batch_negatives=True, negatives_per_positive=1)
    groups = make_groups(candidates(), qrels(), stage="test")
    made = Examples(groups, options, 4)
    examples = [made[i] for i in range(4)]
    method = joined(robust, biased, groups, options, live=True)
    batch = method.collate(examples)
    mask = batch["mask"]
    robust.scoring_module()
    out, b = method(**batch), method.biased.scores(batch)
    docs = {docno: text for e in examples for docno, text in zip(e.docnos, e.texts)}
    for row, example in enumerate(examples):
        others = [docno for docno in docs if docno not in example.docnos]
        known = [docno not in example.relevant for docno in others]
        assert mask[row].tolist() == [True] * len(example.docnos) + known
        texts = [docs[docno] for docno in (*example.docnos, *others)]
        for scores, model in ((out["scores"], robust), (b, biased)):
            expected = np.array(model.score([example.query] * len(texts), texts))
            np.testing.assert_allclose(scores[row].detach()[mask[row]], expected[mask[row].numpy()], atol=1e-4)


def test_the_biased_model_is_frozen_and_out_of_the_way(tiny):
    """Its dropout is off, no gradient reaches it, and the module that is trained and saved does not hold it."""
    robust, biased = CrossEncoder(tiny()), CrossEncoder(tiny(seed=1))
    options = small(loss="infonce")
    groups = make_groups(candidates(), qrels(), stage="test")
    examples = [Examples(groups, options, 4)[i] for i in range(4)]
    method = joined(robust, biased, groups, options, live=True).train()
    biased.module.train()
    batch = method.collate(examples)
    first, second = method.biased.scores(batch), method.biased.scores(batch)
    assert torch.equal(first, second)
    assert not first.requires_grad
    method(**batch)["loss"].backward()
    assert all(p.grad is None for p in biased.module.parameters())
    assert any(p.grad is not None for p in robust.module.parameters())
    assert len(list(method.parameters())) == len(list(robust.module.parameters()))
    assert len(method.state_dict()) == len(robust.module.state_dict())


def test_cached_scores_are_computed_once_for_what_is_shown(tiny, monkeypatch):
    groups = make_groups(candidates(), qrels(), stage="test")
    few, many = small(max_steps=1, batch_size=2), small(epochs=50, max_steps=None)
    assert len(drawn_rows(groups, few)) < len(drawn_rows(groups, many)) == len(groups.rows)
    shown = Examples(groups, few, 2)
    assert set(drawn_rows(groups, few)) == {int(row) for i in range(2) for row in shown[i].rows}
    calls, score = [], CrossEncoder.score_in_training

    def spy(self, queries, docs):
        calls.append(len(docs))
        return score(self, queries, docs)

    monkeypatch.setattr(CrossEncoder, "score_in_training", spy)
    fitted(CrossEncoder(tiny()), {"epochs": 3, "max_steps": None}, biased=CrossEncoder(tiny(seed=1)))
    assert len(calls) == 1
    assert calls[0] <= len(groups.rows)


def test_passages_that_change_in_each_epoch_are_scored_as_they_are_shown(tiny, monkeypatch):
    calls, score = [], LiveScores.scores

    def spy(self, batch):
        calls.append(batch)
        return score(self, batch)

    monkeypatch.setattr(LiveScores, "scores", spy)
    run = {"augment": RotatePassages(), "precision": "bfloat16", "warmup": 0}
    stage = fitted(CrossEncoder(tiny()), run, biased=CrossEncoder(tiny(seed=1)))
    assert len(calls) == 2
    assert difference(weights(CrossEncoder(tiny())), weights(stage.relevance)) > 1e-3
    fitted(CrossEncoder(tiny()), biased=CrossEncoder(tiny(seed=1)))
    assert len(calls) == 2


@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("long", ["truncate", "firstp", "maxp", "birch"])
@pytest.mark.parametrize("robust_long", ["truncate", "firstp"])
def test_the_biased_model_reads_its_own_part_of_a_text_whoever_reads_beside_it(robust_long, long, in_batch, tiny):
    """The part that its training reads, whether scores are cached or live; with maxp, for scoring only, the start."""
    if long == "birch":
        biased = CrossEncoder.of("birch", tiny())
    else:
        biased = CrossEncoder(tiny(seed=1), long=long, passage_length=5, passage_stride=2)
    robust = CrossEncoder(tiny(), long=robust_long, passage_length=3)
    options = small(loss="infonce", in_batch_negatives=in_batch)
    frame = candidates().assign(text=lambda f: f["text"] + ". harbour market. found early" * 3)
    groups = make_groups(frame, qrels(), stage="test")
    made = Examples(groups, options, 4, read=robust.training_text)
    examples = [made[i] for i in range(4)]
    method = joined(robust, biased, groups, options, live=True)
    found, batch = method.biased.scores(method.collate(examples)), method.collate(examples)
    cached = joined(robust, biased, groups, options).biased
    plain = CrossEncoder(biased.model)
    for row, example in enumerate(examples):
        texts = [groups.column("text")[at] for at in example.rows]
        read = [" ".join(text.split()[:5]) for text in texts] if long == "firstp" else texts
        expected = plain.score([example.query] * len(read), read)
        np.testing.assert_allclose(found[row, : len(read)], expected, atol=1e-5)
        np.testing.assert_allclose(cached.by_row[example.rows], expected, atol=1e-5)
    assert (found[~batch["mask"]] == 0).all() and found.shape == batch["mask"].shape


def test_a_run_is_not_resumed_with_a_biased_model_that_reads_another_part(tiny, tmp_path):
    def run(long, **more):
        biased = CrossEncoder(tiny(seed=1), long=long, passage_length=3)
        return fitted(CrossEncoder(tiny()), {"checkpoints": tmp_path / "run", **more}, biased=biased)

    run("firstp")
    with pytest.raises(InputError, match="another run, with other biased ranker"):
        run("truncate", resume=True)
    run("firstp", resume=True)


def test_scores_that_are_no_numbers_are_named(tiny):
    biased = CrossEncoder(tiny(seed=1))
    with torch.no_grad():
        biased.module.classifier.bias.fill_(float("nan"))
    with pytest.raises(InputError, match=r"the biased model gives \d+ candidates no finite score, first qid='q\d', docno"):
        fitted(CrossEncoder(tiny()), biased=biased)


# The same weak learner


def test_a_fitted_ranker_is_used_as_it_is(tiny):
    biased = CrossEncoder(tiny(seed=1), training=training(max_steps=2)).fit(candidates(), qrels())
    before, report = weights(biased), biased.training_report
    stage = fitted(CrossEncoder(tiny()), biased=biased)
    assert stage.biased_model is biased
    assert difference(before, weights(biased)) == 0
    assert biased.training_report is report
    biased.fit(candidates(), qrels())  # and can be trained on
    assert difference(before, weights(biased)) > 0


def test_a_resumed_run_must_meet_the_same_weak_learner(tiny, tmp_path):
    def run(biased, **options):
        more = {"evaluate_every": 1, "checkpoints": tmp_path / "run", "resume": (tmp_path / "run").exists()}
        return fitted(CrossEncoder(tiny()), more, biased=biased, **options)

    first = run(CrossEncoder(tiny(seed=1)))
    about = json.loads((tmp_path / "run" / "checkpoint-2" / "pyterrier_debias.json").read_text())
    assert about["record"]["biased"].startswith("weights:")
    again = run(CrossEncoder(tiny(seed=1)))
    assert difference(weights(first.relevance), weights(again.relevance)) == 0
    with pytest.raises(InputError, match="another run, with other biased"):
        run(CrossEncoder(tiny(seed=2)))
    with pytest.raises(InputError, match="another run, with other loss"):
        run(CrossEncoder(tiny(seed=1)), alpha=0.2)


def test_a_learner_that_was_trained_is_not_trained_again(tiny, tmp_path, monkeypatch):
    run = {"evaluate_every": 1, "checkpoints": tmp_path / "run"}
    first = fitted(CrossEncoder(tiny()), run, biased="less_data")
    assert (tmp_path / "run" / "biased").is_dir()
    steps, step = [], torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self, *args, **more: steps.append(1) or step(self, *args, **more))
    again = fitted(CrossEncoder(tiny()), {**run, "resume": True}, biased="less_data")
    assert not steps
    assert difference(weights(first.biased_model), weights(again.biased_model)) == 0
    with pytest.raises(InputError, match="biased holds the checkpoints of another run, with other data"):
        fitted(CrossEncoder(tiny()), {**run, "resume": True}, biased=LessData(share=0.5))


# The stage


def test_before_fit_only_an_empty_frame_is_answered():
    stage = EqualizeReranker("no/such-model")
    assert set(stage(candidates().iloc[:0]).columns) == set(candidates().columns)
    for ask in (lambda: stage(candidates()), lambda: stage.biased_model, lambda: stage.save("anywhere")):
        with pytest.raises(InputError, match=r"EqualizeReranker: fit\(\) must be called first"):
            ask()


def test_fitting_again_goes_on(tiny, tmp_path):
    again = candidates().assign(text=lambda f: f["text"] + " again")
    twice = fitted(CrossEncoder(tiny()))
    once = twice.relevance.fingerprint()
    twice.save(tmp_path / "saved")
    twice.fit(again, qrels())
    assert twice.training_report.started_from == once
    loaded = EqualizeReranker.load(tmp_path / "saved", training=twice.training).fit(again, qrels())
    assert difference(weights(twice.relevance), weights(loaded.relevance)) == 0


def test_options_come_back_and_a_learner_without_a_name_as_what_it_became(tiny, tmp_path):
    stage = fitted(CrossEncoder(tiny()), biased=WeakerModel(layers=1), alpha=0.3, biased_temperature=2.0)
    stage.save(tmp_path / "saved")
    loaded = EqualizeReranker.load(tmp_path / "saved")
    assert (loaded.alpha, loaded.biased_temperature, loaded.negatives) == (0.3, 2.0, "explicit")
    assert loaded.biased is loaded.biased_model
    assert loaded.training_report == stage.training_report
    assert loaded == EqualizeReranker.load(tmp_path / "saved") != stage
    named = fitted(CrossEncoder(tiny()), biased="fewer_steps")
    named.save(tmp_path / "named")
    assert EqualizeReranker.load(tmp_path / "named").biased == "fewer_steps"


def test_two_that_were_trained_differently_are_never_equal(tiny):
    def make(**options):
        return EqualizeReranker(tiny(), training=small(max_steps=1), **options)

    assert make() == make() != make(alpha=0.2)
    assert make(biased=LessData(share=0.3)) == make(biased=LessData(share=0.3)) != make(biased=LessData(share=0.4))
    one, two = (make(biased=CrossEncoder(tiny(seed=1))).fit(candidates(), qrels()) for _ in range(2))
    other = make(biased=CrossEncoder(tiny(seed=2))).fit(candidates(), qrels())
    assert one == two != other
    for stage in (make(), one):
        copy = pickle.loads(pickle.dumps(stage))
        assert copy == stage
    np.testing.assert_allclose(copy(candidates())["score"], one(candidates())["score"], atol=1e-6)


def test_validation_is_the_robust_rankers(tiny):
    options = small(evaluate_every=1, patience=5)
    stage = EqualizeReranker(CrossEncoder(tiny()), training=options)
    stage.fit(candidates(), qrels(), candidates("v"), qrels("v"))
    assert stage.training_report.best is not None
    assert stage.biased_model.training_report.best is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"biased": "tiny"}, "biased='tiny' is not known; use one of 'weaker_model', 'less_data', 'fewer_steps', 'biased_data'"),
        ({"biased": None}, "biased=None is not known"),
        ({"alpha": -0.1}, "alpha=-0.1 must be a number of at least 0 and at most 1"),
        ({"alpha": 1.5}, "alpha=1.5 must be"),
        ({"alpha": float("nan")}, "alpha=nan must be"),
        ({"alpha": "half"}, "alpha='half' must be"),
        ({"biased_temperature": 0}, "biased_temperature=0 must be a number above 0"),
        ({"negatives": "hard"}, "negatives='hard' is not known; use one of 'explicit', 'in_batch'"),
        ({"biased": LessData(share=1.0, training=3)}, r"LessData\(training=...\) is an int"),
        ({"biased": LessData(share=2)}, "LessData: share=2 must be a number above 0 and at most 1"),
        ({"biased": FewerSteps(share=0)}, "FewerSteps: share=0 must be"),
        ({"biased": WeakerModel(layers=0)}, "WeakerModel: layers=0 must be a whole number"),
        ({"biased": WeakerModel(model="bert-tiny")}, r"WeakerModel\(model=...\) is a str"),
        ({"biased": WeakerModel(layers=1, model=CrossEncoder("a"))}, "layers or a model, not both"),
        ({"biased": BiasedData(rewrite="x")}, r"BiasedData\(rewrite=...\) is a str"),
        ({"biased": CrossEncoder("a", text_field="body")}, "the biased model reads body, the ranker text"),
        ({"biased": CrossEncoder("a", dtype="int8")}, "dtype='int8' is not known"),
        ({"training": small(loss="hinge")}, "has its own loss; leave loss='hinge' out"),
        ({"training": small(in_batch_negatives=True)}, "needs negatives='in_batch'"),
        ({"ranker": 3}, "ranker is an int; give a ranker"),
        ({"ranker": EqualizeReranker("a")}, "ranker is an EqualizeReranker; give a ranker of this package, not a stage"),
    ],
)
def test_options_that_cannot_be_used_are_named_before_a_model_is_loaded(options, message):
    with pytest.raises(InputError, match=message):
        EqualizeReranker(**{"ranker": "no/such-model", **options}).fit(candidates(), qrels())


def test_frames_are_looked_at_before_a_model_is_loaded():
    with pytest.raises(InputError, match="EqualizeReranker: no qid is in both"):
        EqualizeReranker("no/such-model").fit(candidates(), qrels("x"))
    with pytest.raises(InputError, match="fit needs both validation candidates and their judgements"):
        EqualizeReranker("no/such-model").fit(candidates(), qrels(), candidates("v"))
