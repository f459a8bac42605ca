"""HiddenJudgements: which judgements are hidden, what its statistics say, what trainings meet; closed forms and brute force."""

import copy
import itertools
import pickle
from collections import Counter
from dataclasses import dataclass, replace

import ir_measures
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import (
    AdversarialReranker,
    ARaB,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    EqualizeReranker,
    ExpectedNDCG,
    GroupDROReranker,
    InputError,
    Training,
)
from pyterrier_debias.core import plots
from pyterrier_debias.core.statistics import randomisation_test, two_level_interval
from pyterrier_debias.pooling.data.evidence import PoolEvidence
from pyterrier_debias.pooling.data.relabel import RelabelReranker
from pyterrier_debias.pooling.data.scores import AddScores
from pyterrier_debias.pooling.measures.hidden import HiddenJudgements, seeded, told
from pyterrier_debias.pooling.measures.hidden_result import HiddenResult, auc, auc_draws, auc_within, combined
from pyterrier_debias.pooling.training.negatives import RankWindow
from pyterrier_debias.training.samplers import UniformNegatives
from tests.pooling.tastes import CORRECTIONS, Taste, small_collection
from tests.training.toy import candidates, training
from tests.training.toy import qrels as toy_qrels


@pytest.fixture(autouse=True)
def silent(caplog):
    caplog.set_level("ERROR")


def judgements(rows):
    return pd.DataFrame(rows, columns=["qid", "docno", "label"])


def run_of(rows):
    return pd.DataFrame(rows, columns=["qid", "docno", "score"])


# What is hidden


@st.composite
def worlds(draw):
    qids, docnos = [f"q{i}" for i in range(3)], [f"d{i}" for i in range(6)]
    pair = st.sampled_from(qids), st.sampled_from(docnos)
    labels = draw(st.lists(st.tuples(*pair, st.integers(-1, 3)), min_size=1, max_size=18))
    scores = draw(st.lists(st.tuples(*pair, st.integers(0, 4)), min_size=1, max_size=18))
    qrels = judgements([(*pair, label) for pair, label in {(q, d): label for q, d, label in labels}.items()])
    run = run_of([(*pair, float(score)) for pair, score in {(q, d): score for q, d, score in scores}.items()])
    options = {
        "depth": draw(st.integers(1, 5)),
        "per_query": draw(st.none() | st.integers(1, 3)),
        "min_label": draw(st.integers(1, 2)),
        "non_relevant": draw(st.sampled_from(["shown", "none"])),
    }
    return qrels, run, options


def by_hand(qrels, run, *, depth, per_query, min_label, non_relevant):
    """The protocol in loops: labellers walk down the list, ties by descending docno."""
    pooled, hidden = {}, {}
    label = {(q, d): grade for q, d, grade in qrels.itertuples(index=False)}
    for qid in sorted(set(qrels["qid"])):
        results = sorted(((s, d) for q, d, s in run.itertuples(index=False) if q == qid), reverse=True)
        found = 0
        for rank, (_, docno) in enumerate(results):
            grade = label.get((qid, docno))
            if rank >= depth or grade is None:
                continue
            if grade >= min_label and (per_query is None or found < per_query):
                found += 1
                pooled[qid, docno] = grade
            elif grade < min_label and non_relevant == "shown":
                pooled[qid, docno] = grade
        ranks = {docno: rank for rank, (_, docno) in enumerate(results)}
        for (q, d), grade in label.items():
            if q == qid and grade >= min_label and (q, d) not in pooled:
                hidden[q, d] = (grade, ranks.get(d))
    return pooled, hidden


@given(worlds())
@settings(max_examples=60)
def test_pooled_and_hidden_are_those_of_a_walk_down_the_list(world):
    qrels, run, options = world
    pooled, hidden = by_hand(qrels, run, **options)
    kept = sum(grade >= options["min_label"] for grade in pooled.values())
    try:
        made = HiddenJudgements(qrels, run, **options)
    except InputError as error:
        assert (not kept) or (not hidden) or not set(qrels["qid"]) & set(run["qid"]), str(error)
        return
    assert {(q, d): grade for q, d, grade in made.pooled.itertuples(index=False)} == pooled
    found = made.hidden.itertuples(index=False)
    assert {(q, d): (grade, None if np.isnan(rank) else int(rank)) for q, d, grade, rank in found} == hidden
    counts = made.counts
    assert counts["kept"] == kept and counts["hidden"] == len(hidden) and counts["relevant"] == kept + len(hidden)
    assert counts["non-relevant kept"] == len(pooled) - kept
    assert counts["hidden and not retrieved"] == sum(rank is None for _, rank in hidden.values())
    assert counts["hidden above the depth"] == sum(rank is not None and rank < options["depth"] for _, rank in hidden.values())


def test_the_order_of_rows_and_the_type_of_ids_change_nothing():
    qrels = judgements([(q, d, int(d) % 2) for q in (1, 2) for d in range(8)])
    run = run_of([(q, d, float((7 * d) % 5)) for q in (1, 2) for d in range(8)])
    one = HiddenJudgements(qrels, run, depth=4)
    shuffled = qrels.sample(frac=1, random_state=1).astype(str), run.sample(frac=1, random_state=2).astype({"qid": str})
    two = HiddenJudgements(*shuffled, depth=4)
    for what in ("pooled", "hidden"):
        frames = [getattr(one_, what).sort_values(["qid", "docno"]).reset_index(drop=True) for one_ in (one, two)]
        pd.testing.assert_frame_equal(*frames)
    by_rank = HiddenJudgements(qrels, one.run.drop(columns="score").sample(frac=1, random_state=3), depth=4)
    assert set(map(tuple, by_rank.hidden[["qid", "docno"]].values)) == set(map(tuple, one.hidden[["qid", "docno"]].values))


def test_evidence_is_that_of_the_pool():
    made = HiddenJudgements(
        judgements([("q", "a", 1), ("q", "b", 1)]), run_of([("q", "a", 2.0), ("q", "c", 1.5), ("q", "b", 1.0)]), depth=1
    )
    found = made.evidence(pd.DataFrame({"qid": "q", "docno": ["b", "x", "a"], "score": [9.0, 8.0, 7.0], "pool_rank": 5}))
    assert found["docno"].tolist() == ["b", "x", "a"] and found["score"].tolist() == [9.0, 8.0, 7.0]
    np.testing.assert_array_equal(found["pool_score"], [1.0, np.nan, 2.0])
    np.testing.assert_array_equal(found["pool_rank"], [2.0, np.nan, 0.0])
    passages = made.evidence(pd.DataFrame({"qid": "q", "docno": ["b%p0", "b%p1", "x%p0", "a"]}))
    assert passages["docno"].tolist() == ["b%p0", "b%p1", "x%p0", "a"]
    np.testing.assert_array_equal(passages["pool_rank"], [2.0, 2.0, np.nan, 0.0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"depth": 0}, "depth=0"),
        ({"per_query": 0}, "per_query=0"),
        ({"min_label": 2}, "no judgement has a label of 2"),
        ({"non_relevant": "all"}, "non_relevant='all'"),
        ({"depth": 9}, "nothing is hidden"),
        ({"run": run_of([("q", "c", 1.0)])}, "no relevant document among its first 1"),
        ({"run": run_of([("other", "a", 1.0)])}, "no qid is in both"),
        ({"run": run_of([("q", "a", 1.0), ("q", "a", 2.0)])}, "more than once"),
        ({"run": run_of([("q", "a", float("nan"))])}, "NaN"),
        ({"run": run_of([("q", "a", 1.0)]).drop(columns="score")}, "'score' or 'rank'"),
        ({"qrels": judgements([("q", "a", 0.5)])}, "whole numbers"),
    ],
)
def test_bad_input_is_named(change, message):
    options = {"depth": 1, **change}
    qrels = options.pop("qrels", judgements([("q", "a", 1), ("q", "b", 1)]))
    run = options.pop("run", run_of([("q", "a", 2.0), ("q", "b", 1.0)]))
    with pytest.raises(InputError, match=message):
        HiddenJudgements(qrels, run, **options)


# How well hidden positives are told


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 2)), min_size=1, max_size=14), st.integers(0, 99))
@settings(max_examples=60)
def test_auc_is_the_share_of_pairs_also_of_samples(rows, seed):
    values, hidden, group = (np.array(column) for column in zip(*rows))
    times = np.random.default_rng(seed).integers(0, 3, size=(3, 3))
    for drawn, found in zip(times, auc_draws(values.astype(float), hidden, group, times)):
        of = {kind: [v for v, h, g in rows if h == kind for _ in range(drawn[g])] for kind in (True, False)}
        wins = [(t > h) + 0.5 * (t == h) for h, t in itertools.product(of[True], of[False])]
        np.testing.assert_allclose(found, np.mean(wins) if wins else np.nan)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 3)), max_size=20))
@settings(max_examples=60)
def test_the_area_within_queries_is_the_mean_of_theirs(rows):
    values, hidden, query = np.array(rows, dtype=float).reshape(-1, 3).T
    hidden, query = hidden.astype(bool), query.astype(int)
    areas = [auc(values[(query == q) & hidden], values[(query == q) & ~hidden]) for q in range(4)]
    known = [area for area in areas if not np.isnan(area)]
    np.testing.assert_equal(auc_within(values, hidden, query), np.mean(known) if known else np.nan)


def test_auc_is_that_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    values, hidden = generator.integers(0, 20, 500) / 20, generator.random(500) < 0.2
    assert auc(values[hidden], values[~hidden]) == pytest.approx(metrics.roc_auc_score(~hidden, values), abs=1e-12)


# A comparison whose outcome is known


@pytest.fixture(scope="module")
def world():
    return small_collection()


@pytest.fixture(scope="module")
def result(world):
    made, train, test = world
    return made.compare(CORRECTIONS, train, test, seeds=(3, 1), resamples=300)


def test_values_are_those_of_ir_measures_and_means_are_over_seeds_and_queries(world, result):
    made, _, test = world
    for kind, qrels in (("full", made.full), ("pooled", made.pooled)):
        means = {}
        for name, taste in CORRECTIONS.items():
            of_seed = []
            for seed in (1, 3):
                run = replace_training(taste, seed).transform(test)
                run = run.rename(columns={"qid": "query_id", "docno": "doc_id"})[["query_id", "doc_id", "score"]]
                judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
                judged = judged[judged["query_id"].isin(run["query_id"])]
                of_seed.append(ir_measures.calc_aggregate([ir_measures.nDCG @ 10], judged, run)[ir_measures.nDCG @ 10])
            means[name] = np.mean(of_seed)
        table = result.table[(result.table["judgements"] == kind) & (result.table["measure"] == "nDCG@10")]
        rows = table.set_index("correction")
        for name, mean in means.items():
            assert rows.loc[name, "mean"] == pytest.approx(mean, abs=1e-12)
            assert rows.loc[name, "difference"] == pytest.approx(mean - means["plain"], abs=1e-12)
            closed = (mean - means["plain"]) / (means["oracle"] - means["plain"])
            assert rows.loc[name, "gap_closed"] == pytest.approx(closed, abs=1e-12)
        assert rows["seeds"].eq(2).all() and rows["queries"].eq(6).all()


def replace_training(taste, seed):
    made = copy.deepcopy(taste)
    made.training = Training(seed=seed)
    return made


def test_intervals_and_tests_are_those_of_the_statistics(result):
    part = result.per_query.query("judgements == 'full' and measure == 'nDCG@10'")
    names = ["plain", "some", "oracle"]
    wide = part.pivot(index=["seed", "qid"], columns="correction", values="value")[names].sort_index()
    values = wide.to_numpy().reshape(2, 6, 3)
    row = result.table.query("judgements == 'full' and measure == 'nDCG@10' and correction == 'some'").iloc[0]
    for statistic, low, high in (
        (lambda m: m[..., 1], "low", "high"),
        (lambda m: m[..., 1] - m[..., 0], "difference_low", "difference_high"),
        (lambda m: (m[..., 1] - m[..., 0]) / (m[..., 2] - m[..., 0]), "gap_low", "gap_high"),
    ):
        interval = two_level_interval(values, statistic, resamples=300, seed=0)
        assert (row[low], row[high]) == pytest.approx((interval.low, interval.high), abs=1e-12)
    p = randomisation_test(values[..., 0].mean(axis=0), values[..., 1].mean(axis=0)).p
    assert row["p"] == pytest.approx(p) and row["p_corrected"] == pytest.approx(p)


def test_with_one_seed_the_interval_of_a_difference_agrees_with_its_p():
    """Also if few queries change, where a bootstrap excludes 0 too often."""
    draw, agrees = np.random.default_rng(0), []
    for changing in (3, 8, 20):
        for _ in range(10):
            change = np.zeros(50)
            change[:changing] = draw.normal(0.05, 0.1, changing)
            rows = [
                (correction, 0, f"q{i:02}", judgements, "nDCG@10", 0.5 + (own if correction == "CET" else 0.0))
                for judgements in ("full", "pooled") for correction in ("plain", "CET") for i, own in enumerate(change)
            ]  # fmt: skip
            values = pd.DataFrame(rows, columns=["correction", "seed", "qid", "judgements", "measure", "value"])
            drawn = pd.DataFrame(columns=["correction", "seed", "qid", "docno", "kind", "emphasis", "positives", "drawn"])
            table = HiddenResult(values, drawn, pd.DataFrame(), ["plain", "CET"], "plain", None, {}, ()).table
            row = table[(table["correction"] == "CET") & (table["judgements"] == "full")].iloc[0]
            assert (row["difference_low"] > 0 or row["difference_high"] < 0) == (row["p"] <= 0.05)
            agrees.append(row["p"] <= 0.05)
    assert 0 < sum(agrees) < 30


def test_no_share_of_a_gap_that_may_be_none(world):
    made, train, test = world
    same = {"plain": Taste(1.0), "other": Taste(1.1), "oracle": Taste(1.0001)}
    table = made.compare(same, train, test, seeds=(0, 1), resamples=200).table
    assert table[["gap_closed", "gap_low", "gap_high"]].isna().all(axis=None)
    assert table["gap_reason"].str.contains(r"^the oracle's own difference, .* may be 0$").all()


@pytest.mark.parametrize("oracle", ["oracle", None])
def test_a_share_of_a_gap_is_blank_with_its_reason(oracle):
    """Queries gain .2 by the oracle, or half gain .3 and half lose .26: of .02 a correction's loss of .117 would be -5.85.

    Where few queries change, a bootstrap would exclude 0, and the test of the difference does not.
    """
    tables = []
    for gains in ([0.2] * 8, [0.3, -0.26] * 4, [-0.2] * 8, [0.2] * 5, [0.3, 0.2, 0.25, 0.1, 0.1, -0.02] + [0.0] * 44):
        values = {name: [0.4 + change] * len(gains) for name, change in (("plain", 0.0), ("worse", -0.117))}
        values["oracle"] = [0.4 + gain for gain in gains]
        rows = [(name, 0, f"q{i:02}", "full", "nDCG@10", value) for name, own in values.items() for i, value in enumerate(own)]
        per_query = pd.DataFrame(rows, columns=["correction", "seed", "qid", "judgements", "measure", "value"])
        result = HiddenResult(per_query, pd.DataFrame(), pd.DataFrame(), list(values), "plain", oracle, {}, ())
        tables.append(result.table.set_index("correction"))
    clear, vague, loss, few, changing = tables
    if oracle is None:
        assert clear["gap_closed"].isna().all() and set(clear["gap_reason"]) == {"there is no oracle"}
        return
    assert clear.loc["worse", "gap_closed"] == pytest.approx(-0.585) and (clear["gap_reason"] == "").all()
    assert clear.loc[["plain", "oracle"], "gap_closed"].tolist() == [0, 1]
    assert vague[["gap_closed", "gap_low", "gap_high"]].isna().all(axis=None)
    low, high = vague.loc["oracle", ["difference_low", "difference_high"]]
    assert low < 0 < high
    assert set(vague["gap_reason"]) == {f"the oracle's own difference, +0.020 [{low:+.3f}, {high:+.3f}], may be 0"}
    assert loss[["gap_closed", "gap_low", "gap_high"]].isna().all(axis=None)
    assert set(loss["gap_reason"]) == {"the oracle's own difference, -0.200 [-0.200, -0.200], is below 0"}
    without = "the oracle's own difference, +0.200 without an interval, since too few queries change, may be 0"
    assert set(few["gap_reason"]) == {without} and few["gap_closed"].isna().all()
    assert changing.loc["oracle", "difference_low"] <= 0 and changing["gap_closed"].isna().all()
    assert changing["gap_reason"].str.endswith("may be 0").all()


def test_what_tells_hidden_positives_by_hand(world, result):
    made, train, _ = world
    hidden = set(map(tuple, made.hidden[["qid", "docno"]].values))
    kept = set(map(tuple, made.pooled[["qid", "docno"]].values))
    row = result.false_negatives.set_index("correction").loc["some"]
    areas, weights = [], []
    for seed in (1, 3):
        taste = replace_training(CORRECTIONS["some"], seed)
        values = {(q, d): e for q, d, _, e in taste.emphasis(train, made.pooled).itertuples(index=False)}
        h, t = ([e for pair, e in values.items() if (pair in hidden) == kind] for kind in (True, False))
        areas.append(np.mean([(b > a) + 0.5 * (a == b) for a, b in itertools.product(h, t)]))
        sizes = pd.Series([q for q, _ in values]).value_counts()
        mass = {pair: e / sizes[pair[0]] for pair, e in values.items()}
        weights.append(sum(m for pair, m in mass.items() if pair in hidden) / sum(mass.values()))
    assert row["auc"] == pytest.approx(np.mean(areas)) and row["auc_low"] < row["auc"] < row["auc_high"]
    assert row["false_weight"] == pytest.approx(np.mean(weights))
    assert row["candidates"] == len(train) - len([p for p in kept if p in set(zip(train["qid"], train["docno"]))])
    assert np.isnan(row["drawn"]) and np.isnan(row["false_share"])
    assert result.costs["seconds"].between(0, 100).all()
    # The same area query by query, where a query has both kinds.
    within = []
    for seed in (1, 3):
        own = result.negatives.query(f"correction == 'some' and seed == {seed}")
        parts = [(p[p["kind"] == "hidden"]["emphasis"], p[p["kind"] == "true"]["emphasis"]) for _, p in own.groupby("qid")]
        within.append(np.mean([auc(h.to_numpy(), t.to_numpy()) for h, t in parts if len(h) and len(t)]))
    assert row["auc_within"] == pytest.approx(np.mean(within)) and row["hidden"] == (own["kind"] == "hidden").sum()
    plain = result.false_negatives.set_index("correction").loc["plain"]
    assert plain["auc"] == plain["auc_within"] == 0.5


def test_results_can_be_read(result):
    assert "3 trainings, 2 seeds, 6 test queries" in repr(result)
    assert list(result.summary()["correction"]) == ["plain", "some", "oracle"]
    assert "count as not relevant" in result.to_html() and "<table" in result._repr_html_()
    with pytest.raises(InputError, match="P@3"):
        result.summary("P@3")
    with pytest.raises(InputError, match="no correction 'nobody'"):
        result.plot_emphasis("nobody")


def test_trainings_that_know_more_are_no_corrections(world):
    """Neither the oracle nor a training on all judgements counts among those that are tested, or is the best of them."""
    made, train, test = world
    options = {"seeds": (0,), "resamples": 50}
    arms = {"plain": Taste(2.0), "some": Taste(1.2), "little": Taste(1.9), "oracle": Taste(0.8)}
    result = made.compare({**arms, "everything": Taste(0.0)}, train, test, full="everything", **options)
    rows = result.table.query("judgements == 'full' and measure == 'nDCG@10'").set_index("correction")
    assert rows["mean"].idxmax() == "everything"
    assert ": some" in repr(result) and "everything" not in repr(result)
    assert rows["p_corrected"].notna().to_dict() == {name: name in ("some", "little") for name in rows.index}
    without = made.compare(arms, train, test, **options).table
    without = without.query("judgements == 'full' and measure == 'nDCG@10'").set_index("correction")
    pd.testing.assert_series_equal(rows["p_corrected"].drop("everything"), without["p_corrected"])
    assert rows["p"]["everything"] == result.table["p"].min()
    # Results that were pickled before `full` was remembered.
    old = copy.copy(result)
    del old.__dict__["full"]
    old = pickle.loads(pickle.dumps(old))
    assert old.full is None and ": everything" in repr(old)
    assert combined({"a": old}).full is None and combined({"a": result}).full == "everything"


def test_figure_5_shows_shares_of_both_kinds(result):
    axes = result.plot_emphasis("some", bins=10)
    outlines = [patch for patch in axes.patches if not patch.get_fill()]
    assert len(outlines) == 2
    legend = [text.get_text() for text in axes.get_legend().get_texts()]
    assert legend == ["true negatives", "hidden positives"]
    bars = np.array([patch.get_height() for patch in axes.patches if patch.get_fill()]).reshape(2, 10)
    # Means over seeds, true negatives first; each kind's shares sum to 1.
    means = result.negatives.query("correction == 'some'").groupby(["qid", "docno", "kind"])["emphasis"].mean().reset_index()
    edges = np.linspace(means["emphasis"].min(), means["emphasis"].max(), 11)
    for kind, heights in zip(("true", "hidden"), bars, strict=True):
        values = means.loc[means["kind"] == kind, "emphasis"]
        assert heights == pytest.approx(np.histogram(values, edges)[0] / len(values))
    area = auc(*(means.loc[means["kind"] == kind, "emphasis"].to_numpy() for kind in ("hidden", "true")))
    assert area > 0.5 and f"AUC {area:.2f}" in axes.get_title(loc="left") and f"{len(means)} candidates" in axes.get_xlabel()
    assert result.plot_emphasis("some", axes) is axes
    plots.close(axes.figure)


def test_what_was_drawn_by_hand():
    """Two seeds over two queries; a candidate between the grades counts as neither."""
    rows = [
        # seed, qid, docno, kind, emphasis, positives, drawn
        (0, "q1", "h", "hidden", 1.0, 2, 3), (0, "q1", "t", "true", 0.5, 2, 1), (0, "q1", "b", "between", 9.0, 2, 50),
        (0, "q2", "u", "true", 1.0, 1, 4), (1, "q1", "h", "hidden", 0.2, 2, 1), (1, "q1", "t", "true", 0.6, 2, 5),
        (1, "q2", "u", "true", 0.8, 1, 2),
    ]  # fmt: skip
    columns = ["seed", "qid", "docno", "kind", "emphasis", "positives", "drawn"]
    negatives = pd.DataFrame(rows, columns=columns).assign(correction="mine")
    row = HiddenResult(pd.DataFrame(), negatives, pd.DataFrame(), ["mine"], "mine", None, {}, (), resamples=9).false_negatives
    row = row.iloc[0]
    assert row[["candidates", "hidden", "drawn", "false_drawn", "false_share"]].tolist() == [3, 1, 8, 2, 0.25]
    # Weight: emphasis by positives over the query's candidates: 1 of 2.5; .2 of 1.6.
    assert row["false_weight"] == pytest.approx((1 / 2.5 + 0.2 / 1.6) / 2)
    # Of two true negatives none and one (tie) count more than the hidden one; in the other seed both do.
    assert (row["auc"], row["auc_within"]) == ((0.25 + 1) / 2, (0 + 1) / 2)


def test_collections_are_combined_as_seeds_with_queries_of_their_own(world):
    made, train, test = world
    one, two = (made.compare(CORRECTIONS, train, test, seeds=(seed,), resamples=400) for seed in (1, 3))
    both = combined({"a": one, "b": two})
    row, rows = ((r.table.query("judgements == 'full'").iloc[1]) for r in (both, one))
    assert row["mean"] == pytest.approx(np.mean([r.table.query("judgements == 'full'").iloc[1]["mean"] for r in (one, two)]))
    assert row["seeds"] == 2 and row["queries"] == 2 * rows["queries"]
    assert both.false_negatives["auc"][1] == pytest.approx(np.mean([r.false_negatives["auc"][1] for r in (one, two)]))
    assert both.counts["hidden"] == 2 * one.counts["hidden"]
    # Queries are drawn within their collection: the variance of the mean is that of two independent means, plus between seeds.
    values = [r.per_query.query("judgements == 'full' and measure == 'nDCG@10' and correction == 'some'")["value"].to_numpy()
              for r in (one, two)]  # fmt: skip
    chance = np.random.default_rng(9)
    pick, at = chance.integers(0, 2, size=(20_000, 2)), chance.integers(0, 6, size=(20_000, 2, 6))
    means = np.stack(values)[pick[..., None], at].mean(axis=(1, 2))
    # A seed that is drawn twice brings the same queries twice in ours, which makes it a little wider, never much narrower.
    low, high = np.quantile(means, [0.025, 0.975])
    assert row["high"] - row["low"] > 0.85 * (high - low)
    with pytest.raises(InputError, match="several seeds"):
        combined({"a": made.compare(CORRECTIONS, train, test, seeds=(1, 3), resamples=10)})
    with pytest.raises(InputError, match="other corrections"):
        combined({"a": one, "b": made.compare({**CORRECTIONS, "x": Taste()}, train, test, seeds=(1,), resamples=10)})
    with pytest.raises(InputError, match="combined: results is a list; give names to the results"):
        combined([one, two])


def test_a_collection_of_more_queries_does_not_count_more_in_p_either(world):
    made, train, test = world
    whole = made.compare(CORRECTIONS, train, test, seeds=(1,), resamples=10)

    def with_gains(gains):
        """The result over as many queries, in which a correction gains this much."""
        frame = whole.per_query.query("judgements == 'full' and measure == 'nDCG@10'")
        frame = frame[frame["qid"].isin(sorted(frame["qid"].unique())[: len(gains)])]
        own = frame["qid"].rank(method="dense").astype(int).to_numpy() - 1
        return replace(whole, per_query=frame.assign(value=0.5 + np.array(gains)[own] * (frame["correction"] == "some")))

    few, many = [0.2, 0.1], [-0.05, -0.04, -0.06, 0.01, -0.03, -0.02]
    row = combined({"few": with_gains(few), "many": with_gains(many)}).table.query("correction == 'some'").iloc[0]
    signs = np.array(list(itertools.product((-1, 1), repeat=8)))
    drawn = ((signs[:, :2] * few).mean(axis=1) + (signs[:, 2:] * many).mean(axis=1)) / 2
    assert row["difference"] == pytest.approx((np.mean(few) + np.mean(many)) / 2)
    assert row["p"] == pytest.approx((np.abs(drawn) >= abs(row["difference"]) - 1e-12).mean(), abs=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corrections": {"other": Taste()}}, "baseline='plain' is not among"),
        ({"corrections": {"plain": pt.Transformer.identity()}}, "has no fit"),
        ({"corrections": {"plain": Taste() >> Taste()}}, "has a Taste before its last stage"),
        ({"corrections": {"plain": Taste()}}, "an oracle cannot be made from a Taste"),
        ({"seeds": (1, 1)}, "different numbers"),
        ({"seeds": 3}, r"seeds=3 must be a list of numbers, e.g. seeds=\(0, 1, 2\)"),
        ({"level": 95}, "level=95 must be a number above 0 and at most 0.9999"),
        ({"resamples": 0}, "resamples=0 must be a whole number of at least 1"),
        ({"measures": ("nonsense",)}, "not known to ir_measures"),
        ({"measures": ()}, "measures is empty"),
        ({"measures": ("nDCG@10", ARaB @ 10)}, "the results have no column 'text'"),
        ({"corrections": Taste()}, "corrections is a Taste; give names to what is fitted"),
        ({"corrections": [Taste()]}, "corrections is a list"),
        ({"oracle": "plain"}, "baseline='plain', oracle='plain' must be different names"),
        ({"full": "oracle"}, "oracle='oracle', full='oracle' must be different names"),
        ({"test": "train"}, "are in both train and test"),
        ({"validation": "test"}, "are in both validation and test"),
    ],
)
def test_bad_comparisons_are_refused_before_anything_is_fitted(world, change, message, monkeypatch):
    made, train, test = world
    monkeypatch.setattr(Taste, "fit", lambda *_: pytest.fail("fitted"))
    frames = {"train": train, "test": test}
    changed = {name: frames.get(value, value) if isinstance(value, str) else value for name, value in change.items()}
    options = {"corrections": CORRECTIONS, **frames, **changed}
    with pytest.raises(InputError, match=message):
        made.compare(**options)


def test_test_queries_need_a_relevant_document():
    made = HiddenJudgements(judgements([("q", "a", 1), ("q", "b", 1), ("t", "a", 0)]), run_of([("q", "a", 1.0)]), depth=1)
    frame = pd.DataFrame({"qid": ["q", "t"], "docno": "a", "query": "a query", "text": "a text"})
    with pytest.raises(InputError, match="no test query has a document with a label of 1 or more"):
        made.compare(CORRECTIONS, frame[:1], frame[1:])


def test_validation_is_on_pooled_judgements(world, monkeypatch):
    made, train, test = world
    validation, seen = test[test["qid"] < "q08"], []
    monkeypatch.setattr(Taste, "fit", lambda self, *frames: seen.append(frames))
    rest = test[test["qid"] >= "q08"]
    made.compare(CORRECTIONS, train, rest, seeds=(0,), full=None, validation=validation, resamples=10)
    assert len(seen) == 3
    for res_tr, qrels_tr, res_va, qrels_va in seen:
        assert set(res_tr["qid"]) == set(train["qid"]) and set(res_va["qid"]) == {"q06", "q07"}
        assert qrels_tr.equals(made.pooled) and qrels_va.equals(made.pooled)


# Grades


@pytest.fixture(scope="module")
def graded():
    """Like the toy collection; place 5 is relevant (grade 2), place 4 and 3 are on topic only (grade 1)."""
    frame = candidates()
    rows = [(q, d, {"5": 2, "4": 1, "3": 1}.get(d[-1], 0)) for q, d in zip(frame["qid"], frame["docno"])]
    # The pool shows place 5 to even queries only.
    pool = [{"5": 9.0 if int(q[1]) % 2 == 0 else 0.0}.get(d[-1], 5.0) for q, d in zip(frame["qid"], frame["docno"])]
    made = HiddenJudgements(judgements(rows), frame.assign(score=pool)[["qid", "docno", "score"]], depth=3, min_label=2)
    return made, frame[frame["qid"] < "q6"], frame[frame["qid"] >= "q6"]


@pytest.mark.parametrize(
    "correction",
    [
        CrossEncoder("a/model"),
        CrossEncoder("a/model", training=Training(min_label=1)),
        AddScores(pt.apply.doc_score(len)) >> CrossEncoder("a/model"),
        CETReranker(CrossEncoder("a/model")),
        CETReranker(CrossEncoder("a/model", training=Training(min_label=2)), training=Training()),
        RelabelReranker("a/model", len),
        Taste(),
    ],
)
def test_trainings_that_take_other_grades_for_relevant_are_refused(graded, correction):
    made, train, test = graded
    corrections = {"plain": CrossEncoder("a/model", training=Training(min_label=2)), "other": correction}
    with pytest.raises(InputError, match=r"'other' trains with min_label=1.*min_label=2.*Training\(min_label=2"):
        made.compare(corrections, train, test)


def test_trainings_and_measures_take_the_grades_that_are_hidden(graded, tiny):
    made, train, test = graded
    ranker = CrossEncoder(tiny(), training=training(min_label=2))
    arms = {"plain": ranker, "CET": CETReranker(ranker, selection="lexical")}
    result = made.compare(arms, train, test, seeds=(0,), resamples=10)
    assert list(dict.fromkeys(result.table["measure"])) == ["nDCG@10", "RR(rel=2)@10", "R(rel=2)@10"]
    # Grade 1 is neither relevant nor drawn as a negative.
    drawn = result.negatives
    assert (drawn.loc[drawn["kind"] == "between", "drawn"] == 0).all() and (drawn["drawn"] > 0).any()
    by_hand = seeded(ranker, 0).fit(train, made.pooled)(test).rename(columns={"qid": "query_id", "docno": "doc_id"})
    judged = made.full.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    rr = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.RR(rel=2) @ 10], judged, by_hand)}
    rows = result.per_query.query("judgements == 'full' and measure == 'RR(rel=2)@10' and correction == 'plain'")
    assert dict(zip(rows["qid"], rows["value"])) == pytest.approx({q: rr[q] for q in ("q6", "q7")})


@pytest.mark.parametrize(("kept", "between"), [("shown", 6), ("none", 12)])
def test_grades_between_that_the_pool_did_not_keep_are_noticed(kept, between, graded, tiny):
    """The pool shows place 5 to even queries, and places 3 and 4, of grade 1, to odd ones."""
    made, train, test = graded
    even = made.run["qid"].str[1].astype(int) % 2 == 0
    first = made.run["docno"].str[-1].isin(["3", "4"]).where(~even, made.run["docno"].str[-1] == "5")
    run = made.run[first | made.run["docno"].str[-1].isin(["0", "1"])].assign(score=first * 1.0)[["qid", "docno", "score"]]
    made = HiddenJudgements(made.full, run, depth=4, min_label=2, non_relevant=kept)
    ranker = CrossEncoder(tiny(), training=training(min_label=2, epochs=9))
    result = made.compare({"plain": ranker}, train, test, seeds=(0,), resamples=10)
    [note] = [note for note in result.notes if "below min_label=2" in note]
    assert note.startswith(f"{between} training candidates have a grade above 0")
    # Even queries alone have a kept positive.
    drawn = result.negatives.query("kind == 'between'").groupby("correction")["drawn"]
    assert drawn.size().to_dict() == {"plain": 6, "oracle": 6} and (drawn.sum() > 0).all()


def test_measures_that_count_other_grades_are_noticed(graded, world, caplog):
    caplog.set_level("WARNING")
    made, train, test = graded
    tastes = {"plain": Taste(2.0, training=Training(min_label=2)), "oracle": Taste(0.3, training=Training(min_label=2))}
    frames = [frame.assign(grade=0, shade=0.5) for frame in (train, test)]
    asked = ("nDCG@10", "RR(rel=2)@10", "AP", ir_measures.P(rel=1) @ 5, "Judged@10")
    made.compare(tastes, *frames, seeds=(0,), measures=asked, resamples=10)
    [found] = [record.getMessage() for record in caplog.records if "rel=" in record.getMessage()]
    assert "AP, P@5" in found and "rel=2" in found and "nDCG" not in found
    caplog.clear()
    made, train, test = world
    made.compare(CORRECTIONS, train, test, seeds=(0,), resamples=10)
    assert not [record for record in caplog.records if "rel=" in record.getMessage()]


# Going on


def test_a_comparison_that_was_killed_goes_on(world, tmp_path, monkeypatch):
    made, train, test = world
    fit, calls = Taste.fit, []

    def counted(self, *frames):
        calls.append(self.training.seed)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fit(self, *frames)

    monkeypatch.setattr(Taste, "fit", counted)
    options = {"seeds": (0, 1), "resamples": 50, "checkpoint": tmp_path / "arms"}
    with pytest.raises(KeyboardInterrupt):
        made.compare(CORRECTIONS, train, test, **options)
    finished = sorted(path.name for path in (tmp_path / "arms").iterdir())
    assert len(finished) == 3
    again = made.compare(CORRECTIONS, train.sample(frac=1, random_state=1), test[test.columns[::-1]], **options)
    assert calls == [0, 0, 0, 1, 1, 1, 1]
    straight = made.compare(CORRECTIONS, train, test, seeds=(0, 1), resamples=50)
    assert len(calls) == 13
    by = ["correction", "seed", "qid", "judgements", "measure"]
    pd.testing.assert_frame_equal(
        again.per_query.sort_values(by)[[*by, "value"]].reset_index(drop=True),
        straight.per_query.sort_values(by)[[*by, "value"]].reset_index(drop=True),
        check_exact=True,
    )
    pd.testing.assert_frame_equal(again.false_negatives, straight.false_negatives, check_exact=False, rtol=1e-12)
    made.compare(CORRECTIONS, train, test, **options)
    assert len(calls) == 13
    made.compare({**CORRECTIONS, "some": Taste(1.1, 0.5)}, train, test, **options)
    assert len(calls) == 15
    made.compare(CORRECTIONS, train.assign(grade=1), test, **options)
    assert len(calls) == 21


def test_another_teacher_is_another_training(world, tmp_path, monkeypatch):
    made, train, test = world
    fit, calls = Taste.fit, []
    monkeypatch.setattr(Taste, "fit", lambda self, *frames: calls.append(1) or fit(self, *frames))

    def compared(teacher):
        arms = {"plain": Taste(2.0), "taught": AddScores(teacher) >> Taste(1.0)}
        made.compare(arms, train, test, seeds=(0,), oracle=None, resamples=10, checkpoint=tmp_path)
        return len(calls)

    assert compared(pt.apply.doc_score(lambda row: 1.0)) == 2
    assert compared(pt.apply.doc_score(lambda row: 1.0)) == 2
    assert compared(pt.apply.doc_score(lambda row: 2.0)) == 3


def test_another_measure_of_the_same_name_is_computed_anew(world, tmp_path):
    made, train, test = world

    def means(highest, folder):
        measure = ExpectedNDCG(made.full.assign(label=highest - made.full["label"])) @ 10
        options = {"seeds": (0,), "resamples": 10, "measures": [measure], "checkpoint": folder}
        result = made.compare(CORRECTIONS, train, test, **options)
        assert any("its values on full and on pooled judgements are the same" in note for note in result.notes)
        full, pooled = (part["mean"].tolist() for _, part in result.table.groupby("judgements"))
        assert full == pooled
        return full

    resumed, anew = ([means(highest, folder) for highest in (3, 5, 3)] for folder in (tmp_path, None))
    assert resumed == anew and anew[0] != anew[1]
    assert len(list(tmp_path.iterdir())) == 2 * len(CORRECTIONS)


def test_what_cannot_be_told_apart_is_refused_before_anything_is_fitted(world, tmp_path, monkeypatch):
    made, train, test = world
    monkeypatch.setattr(Taste, "fit", lambda *_: pytest.fail("fitted"))
    model = Opaque()
    arms = {"plain": Taste(2.0), "taught": AddScores(pt.apply.doc_score(lambda row: model.score(row))) >> Taste(1.0)}
    with pytest.raises(InputError, match=r"a .*Opaque in a ApplyDocumentScoringTransformer has no cache key.*fingerprint"):
        made.compare(arms, train, test, oracle=None, checkpoint=tmp_path)
    monkeypatch.undo()
    made.compare(arms, train, test, seeds=(0,), oracle=None, resamples=10)
    model.fingerprint = lambda: "second version"
    made.compare(arms, train, test, seeds=(0,), oracle=None, resamples=10, checkpoint=tmp_path)


class Opaque:
    """Knows nothing of itself."""

    __slots__ = ("fingerprint",)

    def score(self, row):
        return 1.0


# Real trainings in miniature


@dataclass(frozen=True)
class Recording(UniformNegatives):
    """Remembers what it draws, once for each example: a look at the first one before training draws the same."""

    seen = {}  # noqa: RUF012

    def sample(self, groups, group, positive, n, *, seed, epoch):
        rows = super().sample(groups, group, positive, n, seed=seed, epoch=epoch)
        self.seen[group.qid, positive, epoch] = [(group.qid, groups.column("docno")[row]) for row in rows]
        return rows


def test_seeds_and_names_of_any_kind_are_taken(world, tmp_path):
    made, train, test = world
    arms = {"plain": Taste(2.0), "x" * 300: Taste(1.0)}
    options = {"oracle": None, "resamples": 10}
    expected = made.compare(arms, train, test, seeds=(0, 1), **options)
    found = made.compare(arms, train, test, seeds=np.arange(2), checkpoint=tmp_path, **options)
    pd.testing.assert_frame_equal(found.per_query, expected.per_query)


def tiny_world():
    """Place 4 is shown by the pool, place 5 hidden; six training queries, two for the test."""
    frame = candidates()
    qrels = judgements([(q, d, 1) for q, d in zip(frame["qid"], frame["docno"]) if d[-1] in "45"])
    pool = frame.assign(score=[{"4": 9.0, "5": 0.0}.get(d[-1], 5.0 - int(d[-1])) for d in frame["docno"]])
    made = HiddenJudgements(qrels, pool[["qid", "docno", "score"]], depth=3)
    train = made.evidence(frame[frame["qid"] < "q6"])
    return made, train, frame[frame["qid"] >= "q6"]


def test_the_negatives_that_training_shows_are_counted(tiny):
    made, train, _ = tiny_world()
    Recording.seen.clear()
    ranker = CrossEncoder(tiny(), training=training(negatives=Recording(), negatives_per_positive=2, epochs=3, seed=4))
    ranker.fit(train, made.pooled)
    recorded = Counter(itertools.chain.from_iterable(Recording.seen.values()))
    found = told(ranker, train, made.pooled)
    drawn = {(q, d): n for q, d, n in found[["qid", "docno", "drawn"]].itertuples(index=False) if n}
    assert drawn == recorded and sum(drawn.values()) == 5 * 4 * 2  # five steps of four examples
    assert (found["positives"] == 1).all() and np.allclose(found["emphasis"], 1.0)


def test_a_comparison_of_real_trainings(tiny, tmp_path):
    made, train, test = tiny_world()
    ranker = CrossEncoder(tiny(), training=training(epochs=2, negatives_per_positive=2))
    judge = RelabelReranker(ranker, right_about_hidden)
    bounded = CrossEncoder(tiny(), training=replace(ranker.training, negatives=RankWindow("pool_rank", last=2)))
    corrections = {"plain": ranker, "judged": judge, "window": AddScores(pt.apply.doc_score(len)) >> bounded}
    options = {"seeds": (0,), "resamples": 100, "checkpoint": tmp_path / "arms"}
    result = made.compare(corrections, train, test, full="full", **options)
    assert list(result.corrections) == ["plain", "oracle", "full", "judged", "window"]
    met = result.false_negatives.set_index("correction")
    assert (met["candidates"] == 30).all() and (met["hidden"] == 6).all()
    assert met.loc["plain", "auc"] == 0.5 and met.loc["plain", "false_weight"] == pytest.approx(0.2)
    assert met.loc["plain", "drawn"] == 3 * 4 * 2 and met.loc["plain", "false_drawn"] > 0
    for clean in ("oracle", "full", "judged"):
        assert met.loc[clean, "auc"] == 1.0 and met.loc[clean, "false_drawn"] == met.loc[clean, "false_weight"] == 0.0
    # The window holds what the pool ranked first: ranks 1 and 2, never the last one.
    assert met.loc["window", "auc"] == pytest.approx(0.5 + 0.5 * 2 / 4) and met.loc["window", "false_drawn"] == 0
    assert result.counts["training queries"] == 6 and result.counts["hidden among them"] == 6
    assert ranker.training_report is None and judge.training_report is None
    # The plain training is what fitting by hand with that seed gives.
    by_hand = seeded(ranker, 0).fit(train, made.pooled)
    run = by_hand(test).rename(columns={"qid": "query_id", "docno": "doc_id"})
    judged = made.full.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    ndcg = {m.query_id: m.value for m in ir_measures.iter_calc([ir_measures.nDCG @ 10], judged, run)}
    rows = result.per_query.query("judgements == 'full' and measure == 'nDCG@10' and correction == 'plain'")
    assert dict(zip(rows["qid"], rows["value"])) == pytest.approx({q: ndcg[q] for q in ("q6", "q7")})
    assert len(list((tmp_path / "arms").iterdir())) == 5
    again = made.compare(corrections, train, test, full="full", **options)
    pd.testing.assert_frame_equal(again.table, result.table)
    pd.testing.assert_frame_equal(again.false_negatives, result.false_negatives)


def test_each_training_has_its_own_checkpoints(tiny, tmp_path):
    """Also the first training of an adversary, whose stage a judge's stage wraps."""
    made, train, test = tiny_world()
    train = train.assign(odd=train["rank"] % 2)
    own, first = (training(max_steps=2, checkpoints=tmp_path / name, resume=True) for name in ("own", "first"))
    ranker = CrossEncoder(tiny(), training=own)
    judged = RelabelReranker(AdversarialReranker(ranker, attribute="odd", first_training=first), right_about_hidden)
    arms = {"plain": ranker, "a/b": CETReranker(ranker), "a b": judged}
    once, again = (made.compare(arms, train, test, seeds=(0, 1), resamples=10).per_query for _ in range(2))
    pd.testing.assert_frame_equal(once, again)
    assert len(list((tmp_path / "own").iterdir())) == 4 * 2 and len(list((tmp_path / "first").iterdir())) == 2
    without = {"plain": CrossEncoder(tiny(), training=training(max_steps=2))}
    expected = made.compare(without, train, test, seeds=(0, 1), resamples=10).per_query
    pd.testing.assert_frame_equal(once[once["correction"].isin(["plain", "oracle"])].reset_index(drop=True), expected)
    assert ranker.training == own and judged.ranker.first_training == first


def test_passages_of_hidden_documents_are_hidden(tiny):
    """Each candidate is cut into two passages."""
    made, train, test = tiny_world()
    cut, cut_test = (
        pd.concat([frame.assign(docno=frame["docno"] + f"%p{part}") for part in (0, 1)], ignore_index=True)
        for frame in (train, test)
    )
    ranker = CrossEncoder(tiny(), training=training(epochs=2, negatives_per_positive=2))
    result = made.compare({"plain": ranker}, cut, test, seeds=(0,), resamples=10)
    assert result.counts["hidden among them"] == 12 and not any("No hidden document" in note for note in result.notes)
    negatives = result.negatives.assign(place=lambda frame: frame["docno"].str.split("[-%]").str[1])
    assert set(negatives["place"]) == set("01235") and (negatives["kind"] == "hidden").eq(negatives["place"] == "5").all()
    met = result.false_negatives.set_index("correction")
    assert met.loc["oracle", "false_drawn"] == met.loc["oracle", "false_weight"] == 0
    assert met.loc["plain", "false_weight"] == pytest.approx(0.2)
    # In the test a document has the score of its best passage; here both are the whole document.
    of_passages = made.compare({"plain": ranker}, cut, cut_test, seeds=(0,), resamples=10)
    pd.testing.assert_frame_equal(of_passages.per_query, result.per_query)
    assert result.per_query["value"].gt(0).any()


def test_the_oracle_leaves_out_queries_whose_true_negatives_have_no_text(tiny):
    made, train, test = tiny_world()
    blank = train["qid"].eq("q0") & ~train["docno"].str[-1].isin(["4", "5"])
    ranker = CrossEncoder(tiny(), training=training(max_steps=2))
    result = made.compare({"plain": ranker}, train.assign(text=train["text"].mask(blank, " ")), test, seeds=(0,), resamples=10)
    trained_on = result.negatives[result.negatives["drawn"].notna()].groupby("correction")["qid"].agg(set)
    assert trained_on["oracle"] == trained_on["plain"] - {"q0"}
    relevant = train["docno"].str[-1].isin(["4", "5"])
    with pytest.raises(InputError, match="no training query has a negative with text that no judgement calls relevant"):
        made.compare({"plain": ranker}, train.assign(text=train["text"].where(relevant, " ")), test, seeds=(0,), resamples=10)


@pytest.mark.parametrize("passage", ["", "%p0"])
def test_the_oracle_has_no_hidden_document_among_in_batch_negatives(passage, tiny, monkeypatch):
    """Each query's labelled document is a hidden positive of the query before."""
    from pyterrier_debias.training import method

    frame = candidates()
    relevant = [(f"q{n}", f"d{(n + more) % 8}-4", 1) for n in range(8) for more in (0, 1)]
    made = HiddenJudgements(judgements(relevant), frame[["qid", "docno", "score"]], depth=6)
    hidden = {(q, d + passage) for q, d in made.hidden[["qid", "docno"]].itertuples(index=False)}
    met, docno_of = Counter(), dict(zip(frame["text"], frame["docno"] + passage))

    class Seen(method.Candidates):
        def __init__(self, examples, **options):
            super().__init__(examples, **options)
            for example, columns, mask in zip(examples, self.columns, self.mask):
                pairs = {(example.qid, docno_of[self.docs[at]]) for at in columns[mask]}
                met["hidden"] += len(pairs & hidden)
                met["others"] += len(pairs - hidden)

    monkeypatch.setattr(method, "Candidates", Seen)
    frame = frame.assign(docno=frame["docno"] + passage)
    options = training(in_batch_negatives=True, loss="infonce", batch_size=6)
    arms = {"base": BiEncoder(tiny("build_sentence_transformer"), training=options)}
    counts = []
    for oracle in (None, "oracle"):
        met.clear()
        train, test = frame[frame["qid"] < "q6"], frame[frame["qid"] >= "q6"]
        result = made.compare(arms, train, test, seeds=(0,), baseline="base", oracle=oracle, resamples=10)
        counts.append(dict(met))
    plain, both = counts
    assert plain["hidden"] > 0 and both["hidden"] == plain["hidden"] and both["others"] > plain["others"]
    assert any("correct, except in-batch negatives" in note for note in result.notes)
    assert any(note.startswith("In-batch negatives of base, oracle are not counted") for note in result.notes)


def right_about_hidden(frame):
    return [float(docno.endswith("5")) for docno in frame["docno"]]


def test_queries_whose_candidates_are_all_hidden_are_left_out_of_the_oracle_only(tiny):
    made, train, test = tiny_world()
    train = train[(train["qid"] > "q0") | train["docno"].str[-1].isin(["4", "5"])]
    result = made.compare({"plain": CrossEncoder(tiny(), training=training())}, train, test, seeds=(0,), resamples=10)
    sizes = result.false_negatives.set_index("correction")["candidates"]
    assert sizes.to_dict() == {"plain": 26, "oracle": 25}


@pytest.mark.parametrize("more", [{"epochs": 4, "batch_size": 2}, {"max_steps": 3}])
def test_an_oracle_without_some_queries_has_the_steps_of_plain_training_and_a_note(more, tiny, tmp_path):
    made, train, test = tiny_world()
    train = train[(train["qid"] > "q2") | train["docno"].str[-1].isin(["4", "5"])]
    arms = {"plain": CrossEncoder(tiny(), training=training(**more))}
    for _ in range(2):  # the second one reads what the first one finished
        result = made.compare(arms, train, test, seeds=(0,), resamples=10, checkpoint=tmp_path)
        drawn = result.false_negatives.set_index("correction")["drawn"]
        assert drawn["oracle"] == drawn["plain"] > 0
        assert any(note.startswith("3 of 6 training queries have no true negative among their") for note in result.notes)


def test_an_oracle_with_only_in_batch_negatives_leaves_no_query_out(tiny):
    made, train, test = tiny_world()
    train = train[(train["qid"] > "q0") | train["docno"].str[-1].isin(["4", "5"])]
    options = training(loss="infonce", in_batch_negatives=True, negatives_per_positive=0)
    arms = {"plain": BiEncoder(tiny("build_sentence_transformer"), training=options)}
    result = made.compare(arms, train, test, seeds=(0,), resamples=10)
    assert result.false_negatives["candidates"].tolist() == [26, 26] and result.negatives["emphasis"].isna().all()
    assert not any("no true negative" in note for note in result.notes)


def test_seeds_are_set_where_they_count(tiny):
    ranker = CrossEncoder(tiny(labels=None), head="mean", training=training(epochs=3))
    made = seeded(ranker, 5)
    assert (made.seed, made.training.seed, made.training.epochs) == (5, 5, 3) and ranker.seed == ranker.training.seed == 0
    inner = seeded(AddScores(ranker) >> RelabelReranker(ranker, right_about_hidden), 5)[-1]
    assert inner.training == inner.ranker.training == training(epochs=3, seed=5) and inner.ranker.seed == 5
    outer = seeded(RelabelReranker(ranker, right_about_hidden, training=training(epochs=7)), 5)
    assert (outer.training.seed, outer.training.epochs) == (5, 7)
    frames = candidates(), judgements([(f"q{n}", f"d{n}-4", 1) for n in range(8)])
    trained = CrossEncoder(tiny(), training=training(max_steps=1)).fit(*frames)
    assert seeded(trained, 5).seed == 0  # its head is no longer drawn


class OfJava(pt.Transformer):
    """Cannot be copied, as stages that hold a Java object cannot; scores by the length of the text."""

    def __reduce_ex__(self, protocol):
        raise TypeError("no default __reduce__ due to non-trivial __cinit__")

    def transform(self, inp):
        return pt.model.add_ranks(inp.assign(score=inp["text"].str.len().astype("float64")))


OF_JAVA = {
    "before the ranker": lambda ranker: AddScores(OfJava()) >> ranker,
    "judge": lambda ranker: RelabelReranker(ranker, OfJava(), threshold=1e9),
    "judge of an inner stage": lambda ranker: AddScores(OfJava()) >> RelabelReranker(ranker, OfJava() >> OfJava(), threshold=1e9),
    "evidence": lambda ranker: CETReranker(ranker, selection=PoolEvidence(scorer=OfJava())),
    "evidence of an inner stage": lambda ranker: RelabelReranker(
        CETReranker(ranker, selection=PoolEvidence(scorer=OfJava())), right_about_hidden
    ),
}


@pytest.mark.parametrize("where", OF_JAVA)
def test_what_is_asked_and_not_fitted_need_not_be_copied(where, tiny):
    made, train, test = tiny_world()
    ranker = CrossEncoder(tiny(), training=training())
    corrections = {"plain": AddScores(OfJava()) >> ranker, where: OF_JAVA[where](ranker)}
    result = made.compare(corrections, train, test, seeds=(0,), resamples=10)
    assert result.corrections == ["plain", "oracle", where]


@pytest.mark.parametrize("correction", [CETReranker, EqualizeReranker, GroupDROReranker])
def test_a_correction_without_training_keeps_its_ranker_s(correction, tiny):
    """Whoever compares a plain ranker with a correction around it compares like trainings."""
    ranker = CrossEncoder(tiny(labels=None), training=training(max_steps=7, learning_rate=3e-4))
    made = seeded(correction(ranker), 5)
    assert made.training_options() == replace(ranker.training, seed=5) and made.ranker.seed == 5
    own = seeded(correction(ranker, training=training(epochs=9)), 5)
    assert own.training_options() == training(epochs=9, seed=5)
    assert seeded(correction(CrossEncoder("a/model")), 5).training_options() == Training(seed=5)
    assert ranker.training.seed == ranker.seed == 0
    # A name stands for a cross-encoder, whose head is drawn too.
    named = seeded(correction("a/model"), 5)
    assert isinstance(named.base(), CrossEncoder) and named.base().seed == 5 and named.training_options() == Training(seed=5)


def test_a_selection_model_draws_its_head_anew_and_apart_from_the_ranker_s(tiny):
    ranker, other = (CrossEncoder(tiny(labels=None), seed=seed) for seed in (0, 1))
    made = seeded(CETReranker(ranker, selection=other), 5)
    assert (made.ranker.seed, made.selection.seed, other.seed) == (5, 6, 1)
    assert seeded(CETReranker("a/model", selection=other), 5).selection.seed == 6
    fitted = CrossEncoder(tiny(labels=None), training=training(max_steps=1)).fit(candidates(), toy_qrels())
    assert seeded(CETReranker(ranker, selection=fitted), 5).selection.seed == 0
    assert seeded(CETReranker(ranker, selection="same"), 5).selection == "same"


def test_a_comparison_trains_a_correction_as_long_as_the_plain_ranker(tiny, monkeypatch):
    made, train, test = tiny_world()
    ranker = CrossEncoder(tiny(), training=training(max_steps=2))
    steps = {}
    transform = CETReranker.transform

    def remembered(self, inp):
        steps[self.training.seed] = self.training_report.steps
        return transform(self, inp)

    monkeypatch.setattr(CETReranker, "transform", remembered)
    corrections = {"plain": ranker, "CET": CETReranker(ranker)}
    made.compare(corrections, train, test, seeds=(3, 4), oracle=None, resamples=10)
    assert steps == {3: 2, 4: 2}


def test_judged_documents_that_nobody_retrieved_are_noticed(world):
    made, train, test = world
    pairs = set(map(tuple, made.hidden[["qid", "docno"]].values))
    hidden = np.array([pair in pairs for pair in zip(train["qid"], train["docno"])])
    notes = made.compare(CORRECTIONS, train.assign(score=train["score"].mask(hidden)), test, seeds=(0,), resamples=10).notes
    assert any("AddJudged" in note for note in notes)
    notes = made.compare(CORRECTIONS, train[~hidden], test, seeds=(0,), resamples=10).notes
    assert any("there are no false negatives to correct" in note for note in notes)
