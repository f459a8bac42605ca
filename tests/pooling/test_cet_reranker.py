"""CETReranker: what fit trains and leaves alone, what is refused, and what comes back from a folder."""

import logging
import pickle

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import TK, BiEncoder, ColumnWeights, CrossEncoder, InputError
from pyterrier_debias.pooling.data.evidence import PoolEvidence
from pyterrier_debias.pooling.formulas.negative_weights import emphasis_of, pool_chances
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.pooling.training.cet_method import Coupled, RankerScores
from pyterrier_debias.training.groups import make_groups
from tests.pooling.cet_toy import candidates, length_scorer, pooled, qrels, training
from tests.training.networks import difference, weights
from tests.training.toy import no_dropout


@pytest.fixture(autouse=True)
def only_ours():
    """Fresh heads announce themselves."""
    logger = logging.getLogger("pyterrier_debias.rankers")
    logger.setLevel("ERROR")
    yield
    logger.setLevel("NOTSET")


def fitted(ranker, frame=None, **options):
    run = {"max_steps": 2, **options.pop("run", {})}
    return CETReranker(ranker, training=training(**run), **options).fit(pooled() if frame is None else frame, qrels())


def texts_of(frame):
    return frame["query"].tolist(), frame["text"].tolist()


def test_before_fit_only_an_empty_frame_is_answered():
    stage = CETReranker("no/such-model")
    assert set(stage(candidates().iloc[:0]).columns) == set(candidates().columns)
    for ask in (stage, stage.selection_scores, lambda f: stage.emphasis(f, qrels())):
        with pytest.raises(InputError, match=r"fit\(\) must be called first"):
            ask(candidates())
    with pytest.raises(InputError, match=r"fit\(\) must be called first"):
        stage.save("anywhere")


@pytest.mark.parametrize("selection", ["first_stage", "lexical", "same"])
def test_fit_trains_copies(selection, tiny):
    ranker = CrossEncoder(tiny())
    before = weights(ranker)
    stage = fitted(ranker, selection=selection)
    assert difference(before, weights(ranker)) == 0
    assert ranker.training_report is None
    assert difference(before, weights(stage.relevance)) > 0
    scored = stage(candidates())
    assert scored.equals(stage.relevance(candidates()))
    np.testing.assert_allclose(scored["score"], stage.relevance.score(*texts_of(scored)), atol=1e-6)
    logged = stage.training_report.history[0]
    assert {"relevance_loss", "selection_loss", "weight_mean", "weight_max", "weight_effective_share"} <= set(logged)
    assert logged["loss"] == pytest.approx(logged["relevance_loss"] + logged["selection_loss"], rel=1e-5)
    selected = stage.selection_scores(pooled())
    assert selected["selection_score"].std() > 0
    if selection == "same":
        assert difference(before, weights(stage.selection_model)) > 0
        np.testing.assert_allclose(selected["selection_score"], stage.selection_model.score(*texts_of(pooled())), atol=1e-6)
    else:
        assert set(stage.selection_model.coefficients) >= {"bm25", "coverage"}
        assert ("pool_score" in stage.selection_model.coefficients) == (selection == "first_stage")
        assert stage.training_report.options["learning_rate"] == {"ranker": 2e-3, "selection": PoolEvidence().learning_rate}


def test_a_large_temperature_is_plain_training_from_the_same_weights(tiny):
    """Dropout is the same draw for both; the selection model draws none."""
    plain = CrossEncoder(tiny(), training=training(max_steps=3)).fit(pooled(), qrels())
    stage = fitted(CrossEncoder(tiny()), tau=1e9, run={"max_steps": 3})
    np.testing.assert_allclose(stage.relevance.score(*texts_of(pooled())), plain.score(*texts_of(pooled())), atol=1e-4)
    weighed = fitted(CrossEncoder(tiny()), max_weight=None, run={"max_steps": 3})
    assert np.abs(weighed.relevance.score(*texts_of(pooled())) - plain.score(*texts_of(pooled()))).max() > 1e-3


def test_a_name_is_a_cross_encoder_and_the_paper_draws_its_heads_apart(tiny, caplog):
    bare = tiny(labels=None)
    stage = CETReranker.paper(bare, training=training(max_steps=1, learning_rate=1e-9)).fit(pooled(), qrels())
    assert isinstance(stage.relevance, CrossEncoder)
    assert (stage.relevance.seed, stage.selection_model.seed) == (0, 1)
    assert "begin with equal weights" not in caplog.text
    assert np.abs(stage.relevance.score(*texts_of(pooled())) - stage.selection_model.score(*texts_of(pooled()))).max() > 1e-3
    trained = CrossEncoder(bare, training=training(max_steps=1)).fit(candidates(), qrels())
    CETReranker.paper(trained, training=training(max_steps=1)).fit(pooled(), qrels())
    assert "begin with equal weights" in caplog.text
    released = CETReranker.released(bare)
    assert (released.weighting, released.tau, released.weight_pass, released.max_weight) == ("released", 10.0, "eval", None)
    assert CETReranker.paper(bare, tau=2.0).tau == 2.0


def test_another_ranker_may_select(tiny, caplog):
    other = BiEncoder(tiny("build_sentence_transformer"))
    before = weights(other)
    rates = {"ranker": 1e-3, "selection_ranker": 1e-30}
    stage = fitted(CrossEncoder(tiny()), selection=other, run={"learning_rate": rates, "weight_decay": 0.0})
    assert isinstance(stage.selection_model, BiEncoder)
    assert difference(before, weights(other)) == 0
    assert difference(before, weights(stage.selection_model)) < 1e-20
    assert not stage.selection_model.module.training


@pytest.mark.parametrize("long", ["truncate", "firstp", "maxp"])
def test_a_selection_model_reads_its_own_part_of_a_text(long, tiny, monkeypatch):
    """What it reads in training is what selection_scores tells, whichever part the ranker reads."""
    seen, examples = [], []
    scores, collate = RankerScores.scores, Coupled.collate
    monkeypatch.setattr(RankerScores, "scores", lambda *a, **k: seen.append(scores(*a, **k)) or seen[-1])
    monkeypatch.setattr(Coupled, "collate", lambda self, some: examples.extend(some) or collate(self, some))
    frame = pooled().assign(text=lambda f: f["text"] + " harbour market found early" * 4)
    second = no_dropout(CrossEncoder(tiny(seed=1), long=long, passage_length=6, passage_stride=3))
    ranker = no_dropout(CrossEncoder(tiny(), long="firstp", passage_length=4))
    stage = fitted(ranker, frame, selection=second, run={"max_steps": 1, "learning_rate": 1e-30, "workers": 0})
    told = stage.selection_scores(frame).set_index(["qid", "docno"])["selection_score"]
    for row, example in zip(seen[0], examples):
        expected = [told[example.qid, docno] for docno in example.docnos]
        np.testing.assert_allclose(row[: len(expected)].detach(), expected, atol=1e-5)


def test_tk_keeps_the_names_of_its_networks(tiny):
    tk = TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1})
    stage = fitted(tk, run={"learning_rate": {"terms": 1e-3, "kernels": 1e-2}})
    assert set(stage.training_report.options["learning_rate"]) == {"terms", "kernels", "selection"}
    neural = fitted(tk, selection="same", tau=2.0)
    assert isinstance(neural.selection_model, TK)


def test_fitting_again_goes_on(tiny, tmp_path):
    again = candidates("q").assign(text=lambda f: f["text"] + " again")
    for selection in ("first_stage", CrossEncoder(tiny(seed=1))):
        twice = fitted(CrossEncoder(tiny()), selection=selection)
        once = twice.relevance.fingerprint()
        twice.save(tmp_path / "saved", overwrite=True)
        twice.fit(again, qrels())
        assert twice.training_report.started_from == once
        loaded = CETReranker.load(tmp_path / "saved", training=twice.training).fit(again, qrels())
        assert difference(weights(twice.relevance), weights(loaded.relevance)) == 0


@pytest.mark.parametrize("selection", ["first_stage", "same"])
def test_both_models_come_back(selection, tiny, tmp_path):
    stage = fitted(CrossEncoder(tiny(labels=None), head="mean"), selection=selection, tau=3.0)
    stage.save(tmp_path / "saved")
    loaded = CETReranker.load(tmp_path / "saved")
    assert (loaded.tau, loaded.selection) == (3.0, selection)
    assert loaded.training_report == stage.training_report
    np.testing.assert_allclose(loaded(candidates())["score"], stage(candidates())["score"], atol=1e-6)
    found, expected = (s.selection_scores(pooled())["selection_score"] for s in (loaded, stage))
    np.testing.assert_allclose(found, expected, atol=1e-6)
    # The folder is an ordinary one.
    alone = CrossEncoder.load(tmp_path / "saved")
    np.testing.assert_allclose(alone(candidates())["score"], stage(candidates())["score"], atol=1e-6)
    assert loaded == CETReranker.load(tmp_path / "saved") != stage
    with pytest.raises(InputError, match="exists already"):
        stage.save(tmp_path / "saved")
    with pytest.raises(InputError, match="holds no saved CETReranker"):
        CETReranker.load(tmp_path)


def test_a_scorer_has_to_be_given_again(tiny, tmp_path):
    evidence = PoolEvidence(scorer=length_scorer(), lexical=False)
    stage = fitted(CrossEncoder(tiny()), candidates(), selection=evidence)
    stage.save(tmp_path / "saved")
    with pytest.raises(InputError, match="give it again"):
        CETReranker.load(tmp_path / "saved")
    loaded = CETReranker.load(tmp_path / "saved", selection=evidence)
    found, expected = (s.selection_scores(candidates())["selection_score"] for s in (loaded, stage))
    np.testing.assert_array_equal(found, expected)


def test_two_that_were_trained_differently_are_never_equal(tiny):
    def make(**options):
        return CETReranker(tiny(), training=training(max_steps=1, **options))

    assert make() == make() != CETReranker(tiny(), tau=2.0, training=training(max_steps=1))
    one, two, other = (make(seed=seed).fit(pooled(), qrels()) for seed in (1, 1, 2))
    assert one == two != other
    assert one != make(seed=1)
    for stage in (make(), one):
        copy = pickle.loads(pickle.dumps(stage))
        assert copy == stage
    np.testing.assert_allclose(copy(candidates())["score"], one(candidates())["score"], atol=1e-6)
    assert copy.selection_scores(pooled()).equals(one.selection_scores(pooled()))


def test_a_resumed_run_ends_as_the_one_that_was_not_stopped(tiny, tmp_path, monkeypatch):
    """Stopped before the unweighted steps are over, with accumulation."""
    from pyterrier_debias.training import trainer as trainer_module

    def run(**more):
        options = training(max_steps=4, accumulation=2, evaluate_every=1, checkpoints=tmp_path / "run", **more)
        return CETReranker(tiny(), tau=0.5, unweighted_steps=2, training=options).fit(pooled(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = run()
    for step in (2, 3, 4):
        trainer_module.mark_checkpoint(tmp_path / "run" / f"checkpoint-{step}", whole=False)
    resumed = run(resume=True)
    assert difference(weights(straight.relevance), weights(resumed.relevance)) == 0
    assert straight.selection_model.coefficients == resumed.selection_model.coefficients
    means = [entry["weight_mean"] for entry in straight.training_report.history if "weight_mean" in entry]
    assert [mean == 1 for mean in means] == [True, True, False, False]
    with pytest.raises(InputError, match="another run, with other coupling"):
        CETReranker(
            tiny(), tau=0.6, unweighted_steps=2, training=training(max_steps=4, accumulation=2, evaluate_every=1,
            checkpoints=tmp_path / "run", resume=True),
        ).fit(pooled(), qrels())  # fmt: skip
    other = pooled().assign(pool_score=lambda f: -f["pool_score"])
    with pytest.raises(InputError, match="another run, with other selection"):
        resumed.training = training(
            max_steps=4, accumulation=2, evaluate_every=1, checkpoints=tmp_path / "run", resume=True
        )
        resumed.fit(other, qrels())


def test_a_run_is_not_resumed_with_the_numbers_of_another_pooling_system(tiny, tmp_path):
    """Whose means and deviations are the same, as those of two permutations of the ranks are."""

    def run(frame, **more):
        options = training(max_steps=2, evaluate_every=1, checkpoints=tmp_path / "run", **more)
        stage = CETReranker(CrossEncoder(tiny()), selection=PoolEvidence(columns=["pool_score"]), training=options)
        return stage.fit(frame, qrels()).selection_model

    frame = pooled().assign(pool_score=lambda f: (f["rank"] % 2).astype(float))
    other = frame.assign(pool_score=1 - frame["pool_score"])
    model = run(frame)
    made = model.evidence.learn(other, other["text"].tolist())
    assert made.fingerprint() == model.fingerprint()
    with pytest.raises(InputError, match="another run, with other evidence"):
        run(other, resume=True)
    assert run(frame, resume=True).coefficients == model.coefficients


def test_example_weights_multiply(tiny):
    """Weights of 1/2 for every query halve both losses."""
    losses = []
    for ease in (1.0, 0.5):
        stage = CETReranker(no_dropout(CrossEncoder(tiny())), training=training(max_steps=1, weights=ColumnWeights("ease")))
        history = stage.fit(pooled().assign(ease=ease), qrels()).training_report.history[0]
        losses.append([history["relevance_loss"], history["selection_loss"]])
    np.testing.assert_allclose(losses[1], np.array(losses[0]) / 2, rtol=1e-5)


def test_emphasis_is_the_chance_times_the_weight(tiny):
    stage = fitted(CrossEncoder(tiny()), tau=0.5)
    found = emphasis_of(stage, pooled(), qrels())
    groups = make_groups(pooled(), qrels(), stage="test")
    assert found[["qid", "positive", "docno"]].equals(pool_chances(groups, stage.training)[["qid", "positive", "docno"]])
    score = stage.selection_scores(pooled()).set_index(["qid", "docno"])["selection_score"]
    for qid, positive, docno, emphasis in found.itertuples(index=False):
        expected = min(1.0, np.exp((score[qid, docno] - score[qid, positive]) / 0.5))
        assert emphasis == pytest.approx(expected, rel=1e-6)
    assert found["emphasis"].std() > 0
    stage.normalise_weights = "mean_one"
    assert stage.emphasis(pooled(), qrels())["emphasis"].mean() == pytest.approx(1)


def test_listwise_takes_several_negatives_at_once(tiny):
    stage = fitted(CrossEncoder(tiny()), loss="listwise", run={"negatives_per_positive": 4, "learning_rate": 1e-9})
    pairs = fitted(CrossEncoder(tiny()), run={"negatives_per_positive": 4, "learning_rate": 1e-9})
    listwise, pairwise = (s.training_report.history[0]["relevance_loss"] for s in (stage, pairs))
    assert listwise == pytest.approx(np.log(5), abs=0.6)  # random scores
    assert pairwise == pytest.approx(np.log(2), abs=0.4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"selection": "bm25"}, "selection='bm25' is not known; use one of 'first_stage', 'lexical', 'same'"),
        ({"tau": -1}, "tau=-1 must be a number above 0"),
        ({"weighting": "released"}, "plain training; use max_weight=None"),
        ({"training": training(loss="hinge")}, "has its own loss"),
        ({"training": training(loss="infonce", in_batch_negatives=True)}, "has its own loss"),
        ({"training": training(in_batch_negatives=True)}, "in_batch_negatives are not candidates of the query"),
        ({"selection": CrossEncoder("a", text_field="body")}, "both must read the same columns"),
        (
            {"training": training(learning_rate={"ranker": 1e-3, "other": 1e-3})},
            "^CETReranker: learning_rate names ranker, other, but the networks are ranker, selection; give",
        ),
    ],
)
def test_options_that_cannot_be_used_are_named(options, message, tiny):
    model = tiny() if "names" in message else "no/such-model"
    with pytest.raises(InputError, match=message):
        CETReranker(model, **options).fit(pooled(), qrels())
    with pytest.raises(InputError, match="ranker is an int; give a ranker"):
        CETReranker(3)(candidates())


def test_evidence_is_looked_at_before_a_model_is_loaded(caplog):
    bare = candidates().drop(columns=["score", "rank"])
    with pytest.raises(InputError, match="selection='lexical'"):
        CETReranker("no/such-model").fit(bare, qrels())
    hidden = pooled().assign(pool_score=lambda f: f["pool_score"].where(~f["docno"].str.endswith(("4", "5"))))
    with pytest.raises(InputError, match="no query has both a positive and an unlabelled candidate"):
        CETReranker("no/such-model").fit(hidden, qrels())
    few = pooled().assign(pool_score=lambda f: f["pool_score"].where(f["qid"] == "q0"))
    with caplog.at_level(logging.WARNING), pytest.raises(InputError):
        CETReranker("/no/such-folder").fit(few, qrels())
    assert "CETReranker: the selection model learns from 4 of 64 pairs" in caplog.text
    assert "evidence follows relevance" not in caplog.text  # too few queries to tell
    more = pd.concat([pooled("q"), pooled("v")]), pd.concat([qrels("q"), qrels("v")])
    with caplog.at_level(logging.WARNING), pytest.raises(InputError):
        CETReranker("/no/such-folder").fit(*more)
    assert "CETReranker: the pool's evidence follows relevance" in caplog.text and "over 16 held-out queries" in caplog.text
