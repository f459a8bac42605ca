"""The survivorship bias: what it says, over which values, and how often it is wrong."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import Collection, InputError, PlantedCollection, PlantedRanker, System, audit, open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.core.systems import Context
from pyterrier_debias.survivorship.audit import SurvivorshipBias, _Examined, answer_grade
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks
from pyterrier_debias.survivorship.formulas.nested import rank_influence, trend
from tests.biases import compare_with_values, drawn, examined, primary_tests

BIAS = SurvivorshipBias()

PLANTED = PlantedCollection(4, topics=40, passages=400, survivorship=1.0)
TOPICS, QRELS = PLANTED.get_topics(), PLANTED.get_qrels()
BM25 = pt.Transformer.from_df(PLANTED.get_runs()["bm25"])
SYSTEMS = [System("run", BM25), System("blind", BM25 >> PLANTED.text_loader(), PlantedRanker(strength=0.0))]
MEASURE = "RR(rel=2)@10"
PARTS = {"corpus": PLANTED.corpus, "topics": {"test": TOPICS}, "qrels": {"test": QRELS}}
SHOWN = PLANTED.get_candidates()


@pytest.fixture(scope="module")
def context():
    return Context(SYSTEMS, PLANTED, TOPICS, QRELS, depth=50, seed=1)


def test_needs_what_labellers_were_shown():
    assert BIAS.name == "survivorship" and BIAS.needs(SYSTEMS[0], PLANTED) is None
    assert "get_candidates" in BIAS.needs(SYSTEMS[0], Collection("blind", **PARTS))
    assert "get_candidates" in BIAS.needs(SYSTEMS[0], object())
    unanswered = Collection("none", **{**PARTS, "qrels": {"test": QRELS.assign(label=0)}}, candidates=SHOWN)
    assert "no document that labellers were shown is judged relevant" in BIAS.needs(SYSTEMS[0], unanswered)


def test_a_run_is_not_taken_for_what_was_shown():
    """As ir_datasets gives candidates for reranking: long lists, or lists that hardly anybody judged."""
    docnos = [f"x{i}" for i in range(101)]
    long = pd.DataFrame({"qid": np.repeat(TOPICS["qid"], 101), "docno": docnos * len(TOPICS), "score": 0.0})
    reason = BIAS.needs(SYSTEMS[0], Collection("long", **PARTS, candidates=long.assign(rank=0)))
    assert "101 documents per query" in reason and "a run" in reason
    sparse = QRELS[QRELS["qid"].map(lambda qid: qid == TOPICS["qid"].iloc[0]) | ~QRELS["docno"].isin(SHOWN["docno"])]
    some = pd.concat([sparse, QRELS[~QRELS.index.isin(sparse.index)].iloc[::50]])
    reason = BIAS.needs(SYSTEMS[0], Collection("sparse", **{**PARTS, "qrels": {"test": some}}, candidates=SHOWN))
    assert "are judged, so they are a run, not lists that labellers were shown" in reason


def test_other_columns_of_the_topics_change_nothing():
    """'cluster' changed the intervals of the figure, or was refused where one is missing."""
    found = []
    for more in ({}, {"cluster": "a", "name": None, "value": "z"}, {"cluster": [None, *["a"] * (len(TOPICS) - 1)]}):
        known = Collection("known", **{**PARTS, "topics": {"test": TOPICS.assign(**more)}}, candidates=SHOWN)
        examined_ = _Examined.of(BIAS, Context(SYSTEMS[:1], known, TOPICS.assign(**more), QRELS, depth=50, seed=1))
        found.append(examined_.curve.table)
    assert found[0].equals(found[1]) and found[0].equals(found[2])


def test_an_answer_has_the_label_of_documents_that_answer():
    assert answer_grade(PLANTED, QRELS) == 2
    assert answer_grade(Collection("no answers", **PARTS), QRELS) == 1


def test_one_primary_test_a_system(findings):
    primary = primary_tests(findings)
    assert list(primary.index) == ["run", "blind"]
    assert (primary["measure"] == "rho of DCG(rel=2)@10").all() and (primary["contrast"] == "first relevant rank").all()
    assert (primary["value"] < -0.3).all() and (primary["p"] < 0.05).all()
    assert "the worse its results" in primary.loc["run", "text"] and "chance alone" in primary.loc["run", "text"]


def test_the_primary_figure_is_the_rank_correlation(findings, context):
    qids = sorted(TOPICS["qid"])
    # ir_measures' nDCG on labels of 0 and 1, times the ideal that it divided by.
    answers = QRELS[QRELS["label"] >= 2].assign(label=1)
    ideal = [sum(1 / math.log2(i + 1) for i in range(1, min(n, 10) + 1)) for n in answers.groupby("qid").size().loc[qids]]
    values = per_query(context.results(SYSTEMS[1]), answers, ["nDCG@10"], qids)["nDCG@10"].to_numpy() * ideal
    first = PLANTED.truth["topics"].set_index("qid")["first_shown"].loc[qids].to_numpy(dtype=float)
    shown = SHOWN.merge(answers, on=["qid", "docno"]).groupby("qid").size().loc[qids].to_numpy()
    assert len(set(shown)) > 1
    row = findings[findings["primary"] & (findings["system"] == "blind")].iloc[0]
    # Ranks less the mean rank of queries with as many answers shown.
    centred = [pd.Series(stats.rankdata(a)) for a in (first, values)]
    centred = [ranks - ranks.groupby(shown).transform("mean") for ranks in centred]
    assert row["value"] == pytest.approx(np.corrcoef(*centred)[0, 1])
    # Unanswered queries come in between by their qid, but are left out of the test.
    assert row["p"] == trend(values, first, strata=shown, resamples=9_999, seed=1).p and row["n"] == len(TOPICS) == 30


def test_what_did_not_survive_is_counted(findings):
    own = findings[findings["system"] == "all systems"].set_index("contrast")
    assert own.loc["all queries", "value"] == 0.75 and own.loc["all queries", "n"] == 40
    assert "10 queries were shown but never answered, and are missing from the topics" in own.loc["all queries", "text"]
    truth = PLANTED.truth["topics"]
    person = truth[truth["type"] == "PERSON"]
    assert own.loc["type PERSON", "value"] == pytest.approx(person["survived"].mean())


def test_both_means_and_their_identity(findings):
    for name in ("run", "blind"):
        own = findings[(findings["system"] == name) & (findings["measure"] == MEASURE)].set_index("contrast")
        assert own.loc["zero-filled", "value"] == pytest.approx(own.loc["answered", "value"] * 0.75)
        assert (own.loc["zero-filled", "n"], own.loc["answered", "n"]) == (40, 30)
        bins = own.loc[[group for group in own.index if group.startswith("first met")]]
        assert len(bins) == 3 and bins["n"].sum() == 30
        assert (bins["value"] * bins["n"]).sum() / 30 == pytest.approx(own.loc["answered", "value"])
        assert (own["low"].dropna() >= 0).all() and (own["high"].dropna() <= 1).all()
        types = own.loc[[group for group in own.index if group.startswith("answered, type")]]
        assert types["n"].sum() == 30


def test_values_stand_behind_findings(result, findings):
    assert compare_with_values(findings, result.per_query) == len(findings) - 2  # all but the correlations within types


def test_influence_is_the_jackknife():
    rng = np.random.default_rng(0)
    v, r = rng.choice([0, 0.5, 1.0], 25), rng.integers(1, 5, 25).astype(float)
    rho = stats.spearmanr(v, r).statistic
    without = np.array([stats.spearmanr(np.delete(v, i), np.delete(r, i)).statistic for i in range(25)])
    np.testing.assert_allclose(rank_influence(v, r), rho + 24 * (without.mean() - without))
    approximate = rank_influence(v, r, most=10)
    assert approximate.mean() == pytest.approx(rho) and np.corrcoef(approximate, rank_influence(v, r))[0, 1] > 0.95
    assert np.isnan(rank_influence(v, np.ones(25))).all()


def test_influence_within_strata_is_the_jackknife_too():
    rng = np.random.default_rng(2)
    v, r, strata = rng.choice([0, 0.5, 1.0], 25), rng.integers(1, 5, 25).astype(float), rng.integers(0, 4, 25)

    def rho(kept):
        return trend(v[kept], r[kept], strata=strata[kept], resamples=1).rho

    without = np.array([rho(np.arange(25) != i) for i in range(25)])
    np.testing.assert_allclose(rank_influence(v, r, strata=strata), rho(slice(None)) + 24 * (without.mean() - without))
    assert rank_influence(v, r, strata=strata, most=10).mean() == pytest.approx(rho(slice(None)))
    assert np.isnan(rank_influence(v, r, strata=range(25))).all()
    with pytest.raises(InputError, match="rank_influence: there must be one stratum per value"):
        rank_influence(v, r, strata=[1])


def randomly_shown(seed, queries=80):
    """Lists of ten in a random order, with one to four answers; the more there are, the higher is DCG@10."""
    rng = np.random.default_rng(seed)
    places = [set(rng.permutation(10)[: rng.integers(1, 5)]) for _ in range(queries)]
    rows = [(f"q{q}", f"d{q}-{i}", i, int(i in own)) for q, own in enumerate(places) for i in range(10)]
    shown = pd.DataFrame(rows, columns=["qid", "docno", "rank", "label"])
    topics = pd.DataFrame({"qid": shown["qid"].unique(), "query": "words"})
    corpus = pd.DataFrame({"docno": shown["docno"], "text": "words"})
    qrels = {"test": shown[["qid", "docno", "label"]]}
    listed = shown.assign(score=-shown["rank"])
    return Collection("random", corpus=corpus, topics={"test": topics}, qrels=qrels, candidates=listed)


def test_the_number_of_answers_explains_no_trend():
    """Many answers come early and make a high DCG@10 whatever the order shown: without strata every such collection is biased."""
    alarms = {"given the number of answers": 0, "without strata": 0}
    for seed in range(40):
        collection = randomly_shown(seed)
        shown = collection.get_candidates()
        run = pt.Transformer.from_df(shown[["qid", "docno"]].assign(score=np.random.default_rng(seed + 99).random(len(shown))))
        context = Context([System("random", run)], collection, collection.get_topics(), collection.get_qrels())
        (primary,) = (finding for finding in BIAS.examine(context) if finding.primary)
        alarms["given the number of answers"] += primary.p <= 0.05
        computed = BIAS._computed(context)
        alarms["without strata"] += trend(computed.gains["random"], computed.ranks, resamples=199).p <= 0.05
    assert alarms["without strata"] >= 38
    assert binomial_interval(alarms["given the number of answers"], 40, level=0.99).low < 0.05
    assert "among queries with equally many answers in lists of equal length" in primary.text


def test_types_can_explain_a_trend():
    """Easy questions of one type were answered early: the trend is there, and none within types."""
    rng = np.random.default_rng(1)
    kind = np.repeat(["easy", "hard"], 60)
    v = rng.random(120) + (kind == "easy")
    r = np.where(kind == "easy", rng.integers(1, 4, 120), rng.integers(4, 8, 120)).astype(float)
    assert trend(v, r, resamples=499).p < 0.01 < trend(v, r, strata=kind, resamples=499).p
    assert trend(v, r, strata=["same"] * 120, resamples=499, seed=2) == trend(v, r, resamples=499, seed=2)


def test_figures_show_every_system(result):
    assert [figure.name for figure in result.figures] == ["curve", "strata", "first-ranks"]
    for _, axes, _ in drawn(result.figures):
        assert "n = " in axes.get_xlabel()


def test_the_whole_audit():
    found = audit({system.name: system for system in SYSTEMS}, PLANTED, biases=[BIAS], baseline="run", depth=50, seed=1)
    assert not len(found.failed) and not len(found.skipped)
    against = found.findings.query("contrast == 'first relevant rank, vs run'")
    assert against["system"].tolist() == ["blind"] and against["n"].tolist() == [30]
    assert type(found).from_json(found.to_json()).findings.equals(found.findings)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_topics(n):
    few = examined(BIAS, Context(SYSTEMS, PLANTED, TOPICS.head(n), QRELS, depth=50, seed=1))
    found = few.table
    assert found.loc[found["measure"] == "answered", "n"].iloc[0] == n  # not all of the split: nothing is added from 'full'
    assert n > 2 or any("nothing can be said" in f.text for f in few.findings)
    assert all(axes.get_xlabel() for _, axes, _ in drawn(few.figures))


@pytest.mark.parametrize("what", ["the rank of the first answer", "their results"])
def test_why_nothing_can_be_said(what):
    """What does not differ is named: labellers met each answer first, or the system finds none of them."""
    first = what == "the rank of the first answer"
    qids = [f"q{n}" for n in range(6)]
    shown = pd.DataFrame([(qid, f"{qid}d{place}", place) for qid in qids for place in range(4)], columns=["qid", "docno", "rank"])
    shown = shown.assign(score=-shown["rank"])
    qrels = pd.DataFrame({"qid": qids, "docno": [f"{qid}d{0 if first else n % 4}" for n, qid in enumerate(qids)], "label": 1})
    run = shown.assign(score=[(n * 7 % 5) for n in range(len(shown))], docno=shown["docno"] if first else "x" + shown["docno"])
    topics = pd.DataFrame({"qid": qids, "query": "tea"})
    corpus = shown[["docno"]].assign(text="tea")
    collection = Collection("six", corpus=corpus, topics={"test": topics}, qrels={"test": qrels}, candidates=shown)
    found = examined(BIAS, Context([System("run", pt.Transformer.from_df(run))], collection, topics, qrels)).table
    (text,) = found.loc[found["contrast"] == "first relevant rank", "text"]
    assert text == (
        f"run: nothing can be said about how early queries were answered: queries with equally many answers in lists of equal "
        f"length do not differ in {what}."
    )


def test_topics_that_nobody_was_shown():
    shown = SHOWN[SHOWN["qid"].isin(set(TOPICS["qid"].head(20)))]
    some = Collection("some", **PARTS, candidates=shown)
    found = examined(BIAS, Context(SYSTEMS, some, TOPICS, QRELS, depth=50, seed=1))
    assert "10 queries for which nobody was shown anything are left out" in found.findings[0].text
    assert found.findings[0].n == 20


def test_no_systems(context):
    nothing = examined(BIAS, replace(context, systems=[]))
    assert (list(nothing.findings), len(nothing.per_query), list(nothing.figures)) == ([], 0, [])


def test_ms_marco_qna(shared_data):
    """Real lists and labels: the order in which passages were shown, as a system of its own."""
    dataset = open_dataset(shared_data / "msmarco_qna", split="qna")
    found = audit({"as shown": dataset.get_candidates()}, dataset, biases=[BIAS])
    own = found.findings.set_index(["measure", "contrast"])
    assert own.loc[("answered", "all queries"), ["value", "n"]].tolist() == [0.51, 100]
    # Its reciprocal rank is that of the first relevant rank itself; its gain that of all passages that answer.
    ranks = first_relevant_ranks(dataset.get_candidates(), dataset.get_qrels())["first_relevant_rank"]
    assert own.loc[("RR@10", "zero-filled"), "value"] == pytest.approx((1 / ranks).mean())
    labelled = dataset.get_candidates().merge(dataset.get_qrels(), on=["qid", "docno"]).query("label > 0 and rank < 10")
    each = labelled.assign(gain=1 / np.log2(labelled["rank"] + 2)).groupby("qid")
    table = each.agg(gain=("gain", "sum"), first=("rank", "min"), answers=("rank", "size"))
    table = table.assign(shown=dataset.get_candidates().groupby("qid").size().loc[table.index])
    assert len(set(table["shown"])) > 1 and len(set(table["answers"])) > 1
    centred = table[["gain", "first"]].rank()
    centred -= centred.groupby([table["answers"], table["shown"]]).transform("mean")
    assert own.loc[("rho of DCG@10", "first relevant rank"), "value"] == pytest.approx(np.corrcoef(centred.T)[0, 1])
    assert not len(found.failed)


def p_values(strength, seeds):
    """p of the primary test over planted worlds; `benchmarks/survivorship_calibration.py` does more."""
    found = []
    for seed in seeds:
        planted = PlantedCollection(seed, topics=30, passages=300, survivorship=strength)
        qrels, run = planted.get_qrels().query("label > 0"), planted.get_runs()["bm25"].query("rank < 10")
        qids = sorted(planted.get_topics()["qid"])
        values = per_query(run, qrels, [MEASURE], qids)[MEASURE].to_numpy()
        ranks = first_relevant_ranks(planted.get_candidates(), qrels, min_label=2).set_index("qid")["first_relevant_rank"]
        found.append(trend(values, ranks.loc[qids].to_numpy(), resamples=199, seed=seed).p)
    return np.array(found)


def test_false_alarms_are_as_rare_as_they_claim():
    p = p_values(0.0, range(12))
    interval = binomial_interval(int((p <= 0.05).sum()), len(p))
    assert interval.low <= 0.05 <= interval.high
    assert 0.2 < p.mean() < 0.8


def test_a_planted_bias_is_found():
    assert (p_values(1.0, range(20, 24)) <= 0.05).sum() >= 3
