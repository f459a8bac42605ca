"""Answerability: figures of forecasts, cross-fitting, and shares with intervals that cover."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse, stats
from sklearn import metrics

from pyterrier_debias import InputError
from pyterrier_debias.core import plots
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.survivorship.training import answerability
from pyterrier_debias.survivorship.training.answerability import (
    Answerability,
    bins_of,
    calibration_error,
    predicted_share,
    reliability,
)
from tests.survivorship.toy import answerable


@pytest.fixture(scope="module")
def fitted():
    return Answerability(resamples=199).fit(answerable(600, 1)[0])


def test_figures_of_forecasts_against_scikit_learn():
    rng = np.random.default_rng(0)
    p, y = rng.random(200), rng.integers(0, 2, 200)
    assert np.isnan(calibration_error([], []))
    # |.2 - .5| * 2/3 + |.9 - 1| * 1/3 = .2333
    assert calibration_error([0.2, 0.2, 0.9], [0, 1, 1], bins=2) == pytest.approx(0.7 / 3)
    assert bins_of([0.0, 0.1, 0.99, 1.0], 10).tolist() == [0, 1, 9, 9]
    table = reliability(p, y, bins=5)
    assert table["n"].sum() == 200 and (table["observed_low"] <= table["observed"]).all()
    error = (table["n"] / 200 * (table["predicted"] - table["observed"]).abs()).sum()
    assert calibration_error(p, y, bins=5) == pytest.approx(error)


def test_it_finds_what_can_be_found_and_is_calibrated(fitted):
    test, factual = answerable(500, 2)
    found = fitted.evaluate(test)
    p = found.per_query.set_index("qid").loc[test["qid"], "p_answered"].to_numpy()
    assert p[factual].mean() == pytest.approx(0.85, abs=0.08) and p[~factual].mean() == pytest.approx(0.25, abs=0.08)
    # The best there can be: .85 * .15 and .25 * .75 in even shares, .1575.
    assert 0.13 < found.figure("Brier") < 0.19 < found.figure("Brier, share alone")
    assert found.figure("skill") == pytest.approx(1 - found.figure("Brier") / found.figure("Brier, share alone"))
    assert found.figure("ECE") < 0.1
    ordered = found.per_query
    assert found.figure("AUC") == pytest.approx(metrics.roc_auc_score(ordered["answered"], ordered["p_answered"]))
    assert found.figure("Brier") == pytest.approx(metrics.brier_score_loss(ordered["answered"], ordered["p_answered"]))
    assert found.figure("answered, observed") == test["answered"].mean()
    rows = found.table.set_index("figure")
    assert rows.loc["answered, predicted", "low"] < test["answered"].mean() < rows.loc["answered, predicted", "high"]
    axes = found.plot()
    assert found.plot(axes) is axes
    plots.close(axes.figure)
    with pytest.raises(InputError, match="no figure 'F1'"):
        found.figure("F1")


def test_nothing_can_be_learned_from_coin_flips():
    rng = np.random.default_rng(33)
    topics = answerable(400, 3)[0].assign(answered=rng.random(400) < 0.5)
    found = Answerability(resamples=99).fit(topics.head(300)).evaluate(topics.tail(100))
    assert abs(found.figure("skill")) < 0.1 and found.per_query["p_answered"].between(0.2, 0.8).all()


def test_the_share_of_a_split_without_labels(fitted):
    """Another mix of queries: the share follows it."""
    topics, factual = answerable(800, 5)
    for chosen, share in ((factual, 0.85), (~factual, 0.25)):
        found = fitted.share(topics.loc[chosen, ["qid", "query"]])
        assert found.estimate == pytest.approx(share, abs=0.07) and found.n == chosen.sum()
    assert fitted.share(pd.concat([topics, topics[factual]])[["qid", "query"]]) == fitted.share(topics[["qid", "query"]])
    nothing = fitted.share(topics.iloc[:0])
    assert np.isnan(nothing.estimate) and nothing.n == 0


def test_the_interval_of_the_share_covers():
    rng = np.random.default_rng(7)
    covered = 0
    for _ in range(400):
        held, new = rng.beta(2, 2, 150), rng.beta(2, 2, 100)
        held_y, new_y = rng.random(150) < held, rng.random(100) < new
        found = predicted_share(new, held, held_y)
        covered += found.low <= new_y.mean() <= found.high
    interval = binomial_interval(covered, 400)
    assert interval.low <= 0.95 <= interval.high


def test_a_query_is_predicted_by_models_that_have_not_seen_its_text():
    texts = [f"a{i % 12}" for i in range(60)]
    stage = Answerability(folds=3)
    fold = stage._folds(texts, np.array([float(i % 2) for i in range(60)]))
    assert all(len({f for f, t in zip(fold, texts) if t == text}) == 1 for text in set(texts))
    assert set(fold) == {0, 1, 2}


def test_the_errors_of_the_share_are_of_sigmoids_that_have_not_seen_the_query():
    """Turning the outcomes of one fold leaves its probabilities as they are; with one sigmoid, all errors would sum to 0."""
    topics, _ = answerable(90, 3)
    texts, y = topics["query"].tolist(), topics["answered"].to_numpy(dtype=float)
    logits, fold = np.random.default_rng(0).normal(size=90), Answerability(folds=3)._folds(texts, y)
    p = Answerability._held_out(logits, y, fold)
    turned = Answerability._held_out(logits, np.where(fold == 1, 1 - y, y), fold)
    assert (p[fold == 1] == turned[fold == 1]).all() and (p[fold != 1] != turned[fold != 1]).all()
    stage = Answerability(folds=3).fit(topics)
    assert abs((stage._fitted["y"] - stage._fitted["p"]).mean()) > 1e-6


def test_answered_within_some_rank():
    ranks = [1.0, 2.0, 5.0, 9.0, np.inf, np.inf] * 4
    topics = pd.DataFrame({"qid": [str(i) for i in range(24)], "query": [f"query {i}" for i in range(24)]})
    topics = topics.assign(first_relevant_rank=ranks)
    assert Answerability(folds=2).fit(topics)._fitted["share"] == pytest.approx(16 / 24)
    assert Answerability(folds=2, rank=2).fit(topics)._fitted["share"] == pytest.approx(8 / 24)


def test_features_of_ones_own(fitted):
    topics, _ = answerable(200, 8)

    def encode(texts):
        return np.array([[float("founded" in text), float("feel" in text), 1.0] for text in texts])

    assert Answerability(encode, resamples=9).fit(topics).evaluate(answerable(200, 9)[0]).figure("AUC") > 0.7
    assert Answerability("characters", resamples=9).fit(topics).evaluate(answerable(200, 9)[0]).figure("AUC") > 0.7


@pytest.mark.parametrize(
    ("encode", "message"),
    [
        (lambda texts: [len(text) for text in texts], r"shape \(60,\) for 60 texts, not one row per text"),
        (lambda texts: np.zeros((1, 2)), r"shape \(1, 2\) for 60 texts"),
        (lambda texts: sparse.csr_matrix((1, 2)), r"shape \(1, 2\) for 60 texts"),
        (lambda texts: np.full((len(texts), 2), np.nan), "a value that is missing or infinite"),
        (lambda texts: [["a", "b"]] * len(texts), "no table of numbers"),
        (lambda texts: [[1.0] * (1 + len(text) % 2) for text in texts], "no table of numbers"),
    ],
)
def test_what_own_features_return_is_looked_at(encode, message):
    with pytest.raises(InputError, match=f"Answerability: the function features returned {message}"):
        Answerability(encode, folds=2).fit(answerable(60, 8)[0])


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.coo_matrix, sparse.csc_array])
def test_sparse_features_are_those_of_an_array(kind):
    topics, _ = answerable(200, 8)

    def encode(texts):
        return np.array([[float("founded" in text), float("feel" in text)] for text in texts])

    found, expected = (
        Answerability(features).fit(topics)(topics)["p_answered"] for features in (lambda texts: kind(encode(texts)), encode)
    )
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_texts_with_both_outcomes_are_no_unanswered_ones(seed):
    """They may all be dealt to one fold, and the others then have nothing that was not answered."""
    rows = [(f"{outcome}{i}", f"x {i}", outcome) for i in range(2) for outcome in (True, False)]
    rows += [(f"c{i}", f"y {i}", True) for i in range(8)]
    topics = pd.DataFrame(rows, columns=["qid", "query", "answered"])
    with pytest.raises(InputError, match="only 0 different queries are not answered under any qid, but folds=2"):
        Answerability(folds=2, seed=seed).fit(topics)
    more = pd.DataFrame({"qid": ["d0", "d1"], "query": ["z 0", "z 1"], "answered": False})
    assert Answerability(folds=2, seed=seed).fit(pd.concat([topics, more]))._fitted["share"] == pytest.approx(10 / 14)


def test_what_it_refuses(fitted):
    topics, _ = answerable(20, 1)
    with pytest.raises(InputError, match=r"fit\(\) must be called first"):
        Answerability()(topics)
    assert Answerability()(topics.iloc[:0]).columns.tolist() == [*topics.columns, "p_answered"]
    with pytest.raises(InputError, match="are not answered"):
        Answerability().fit(topics.assign(answered=True))
    with pytest.raises(InputError, match="neither 'answered' nor 'first_relevant_rank'"):
        Answerability().fit(topics.drop(columns="answered"))
    with pytest.raises(InputError, match="features='tree' is not known"):
        Answerability("tree", folds=2).fit(answerable(60, 1)[0])
    with pytest.raises(InputError, match="no queries to test on"):
        fitted.evaluate(topics.iloc[:0])
    with pytest.raises(InputError, match="Answerability: bins=0 must be a whole number of at least 1"):
        fitted.evaluate(topics, bins=0)


def test_a_query_in_several_rows():
    topics, _ = answerable(600, 1)
    assert Answerability(resamples=199).fit(pd.concat([topics, topics[:9]])) == Answerability(resamples=199).fit(topics)
    turned = topics[5:6].assign(answered=~topics["answered"][5:6].astype(bool))
    said = f"query '{topics['qid'][5]}' is answered in one row and not in another"
    for rows in ([topics, turned], [turned, topics]):
        with pytest.raises(InputError, match=said):
            Answerability().fit(pd.concat(rows))


@pytest.mark.parametrize("kind", [bool, int, float, "boolean", "Int64", "float32", object])
def test_outcomes_in_any_kind_of_number(kind, fitted):
    topics, _ = answerable(600, 1)
    assert Answerability(resamples=199).fit(topics.astype({"answered": kind})) == fitted


@pytest.mark.parametrize("value", ["False", "no", "0", "", 2, -1, 0.5, [False]])
def test_outcomes_that_are_none_are_refused(value, fitted):
    topics = answerable(20, 1)[0].astype({"answered": object})
    topics.at[7, "answered"] = value
    said = rf"'answered' is {re.escape(repr(value))} for query '{topics['qid'][7]}'; it must be True or False"
    for use in (Answerability().fit, fitted.evaluate):
        with pytest.raises(InputError, match=said):
            use(topics)


def test_fitting_changes_identity_and_survives_pickling(fitted):
    again = Answerability(resamples=199).fit(answerable(600, 1)[0].sample(frac=1, random_state=0))
    assert again == fitted and again != Answerability(resamples=199)
    assert again != Answerability(resamples=199).fit(answerable(600, 2)[0])
    topics, _ = answerable(20, 4)
    np.testing.assert_allclose(again(topics)["p_answered"], fitted(topics)["p_answered"], atol=1e-9)
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy == fitted and copy(topics).equals(fitted(topics))


@pytest.mark.parametrize(("size", "apart"), [(5, 1.5), (10, 2.5), (50, 1.0)])
def test_the_interval_of_an_area_covers(size, apart):
    """With Hanley and McNeil's standard error at the area found it had no width at an area of 1, a quarter of such samples."""
    rng, true = np.random.default_rng(0), stats.norm.cdf(apart / np.sqrt(2))
    answered = np.repeat([1.0, 0.0], size)
    found = [answerability._auc(rng.normal(size=2 * size) + apart * answered, answered, 0.95) for _ in range(400)]
    assert 0.92 <= np.mean([one.low <= true <= one.high for one in found]) <= 0.99
    assert all(one.low < one.high and one.low <= one.estimate <= one.high for one in found)
    worst = answerability._auc(-answered, answered, 0.95)
    assert (worst.low, worst.estimate) == (0, 0) and 0 < worst.high < 1
