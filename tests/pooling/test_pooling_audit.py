"""The pooling bias: what it says, over which values, and how often it is wrong."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import Judged
from scipy import stats

from pyterrier_debias import Collection, InputError, PlantedCollection, PlantedRanker, System, audit, bias_measures, open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.core.systems import Context
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.pooling.audit import (
    TREATMENTS,
    PoolingBias,
    _Lists,
    _resampled_means,
    judged_difference,
    judged_shares,
    pools_run,
    tie_change,
)
from pyterrier_debias.pooling.measures.unjudged import ExpectedNDCG, infer_judgements, strictly_ranked
from tests.biases import compare_with_values, drawn, examined, primary_tests

BIAS = PoolingBias()

PLANTED = PlantedCollection(1, topics=40, pooling=0.7)
BM25 = pt.Transformer.from_df(PLANTED.get_runs()["bm25"])
SYSTEMS = [
    System("bm25", BM25),
    System("words", BM25 >> PLANTED.text_loader(), PlantedRanker(strength=0.0)),
]
PRIMARY = "system - pool (bm25)"


@pytest.fixture(scope="module")
def context():
    return Context(SYSTEMS, PLANTED, PLANTED.get_topics(), PLANTED.get_qrels(), depth=50, seed=3)


def test_needs_judgements_of_documents_that_are_not_relevant():
    assert BIAS.name == "pooling"
    assert BIAS.needs(SYSTEMS[0], PLANTED) is None
    assert BIAS.needs(SYSTEMS[0], object()) is None
    positives = Collection(
        "positives", corpus=PLANTED.get_corpus(), topics={"test": PLANTED.get_topics()},
        qrels={"test": PLANTED.get_qrels().query("label > 0")},
    )  # fmt: skip
    assert "relevant documents only" in BIAS.needs(SYSTEMS[0], positives)


def test_runs_can_be_audited_without_the_texts_of_the_collection():
    whole, run = PLANTED, PLANTED.get_runs()["bm25"]
    bare = Collection("bare", topics=whole.topics, qrels=whole.qrels, runs=whole.runs)
    found, with_texts = (audit(run, dataset, biases=["gender", "pooling"]).verdict() for dataset in (bare, whole))
    assert found["sentence"][0] == "Not examined: TextLoader: the collection has no texts; give it a corpus."
    assert found["sentence"][1] == with_texts["sentence"][1] and found["outcome"][1] != "not examined"


def test_a_run_over_another_corpus_is_refused_and_the_others_are_examined():
    run = PLANTED.get_runs()["bm25"]
    other = run.assign(docno="msmarco_" + run["docno"])
    with pytest.raises(InputError, match=r"none of its documents \(e.g. 'msmarco_.*those of another corpus"):
        audit({"mine": other}, PLANTED, biases="pooling", depth=20)
    found = audit({"bm25": run, "mine": other}, PLANTED, biases="pooling", depth=20)
    assert set(found.findings["system"]) == {"bm25"} and found.skipped["system"].tolist() == ["mine"]
    # Unjudged documents of the corpus are no mistake.
    judged = set(PLANTED.get_qrels()["docno"])
    unjudged = run[~run["docno"].isin(judged)]
    assert audit({"mine": unjudged}, PLANTED, biases="pooling", depth=20).skipped.empty


def test_a_few_labels_of_0_do_not_tell_what_is_unjudged():
    """12 % of them: 'inferred' took .735 for .300 there."""
    qrels = PLANTED.get_qrels()
    positive = qrels[qrels["label"] > 0]
    few = pd.concat([positive, qrels[qrels["label"] <= 0].head(len(positive) * 12 // 88)])
    mostly = Collection("mostly", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels={"test": few})
    reason = BIAS.needs(SYSTEMS[0], mostly)
    assert "mainly (labels of 0 are 12%, at least 25% are needed)" in reason
    assert PoolingBias().needs(None, PLANTED) is None


def test_findings_do_not_depend_on_how_many_queries_are_examined_at_a_time(monkeypatch):
    qrels = PLANTED.get_qrels().sample(frac=1, random_state=0)
    of_others = PLANTED.get_runs()["bm25"].query("rank < 30").assign(score=lambda run: -run["score"])
    collection = Collection(
        "parts", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels={"test": qrels},
        runs={"reversed": of_others, **PLANTED.get_runs()},
    )  # fmt: skip
    found = []
    for rows in (1, 7 * 50 * 2, 10**6):
        monkeypatch.setattr("pyterrier_debias.pooling.audit.ROWS", rows)
        lists = _Lists(context := Context(SYSTEMS, collection, PLANTED.get_topics(), qrels, depth=50, seed=3))
        found.append((len(list(lists.parts())), lists.inferred_from, examined(BIAS, context)))
    assert [parts for parts, _, _ in found] == [35, 5, 1]
    assert all(names == ["bm25", "words", "reversed (the pool)"] for _, names, _ in found)
    for _, _, parts in found[:2]:
        pd.testing.assert_frame_equal(parts.table, found[2][2].table, rtol=1e-12)
        pd.testing.assert_frame_equal(parts.per_query, found[2][2].per_query, rtol=1e-12)


def test_a_negative_label_is_a_judgement_that_a_document_is_not_relevant():
    """As TREC Web marks spam; ir_measures' judged_only=True would remove such documents."""
    qrels = PLANTED.get_qrels()
    spam = qrels.assign(label=qrels["label"].where(qrels["label"] > 0, -2))
    plain, marked = (examined(BIAS, Context(SYSTEMS, PLANTED, PLANTED.get_topics(), own, depth=50)) for own in (qrels, spam))
    pd.testing.assert_frame_equal(plain.table, marked.table)


def test_lists_are_cut_to_one_depth():
    """The same order, 40 and 15 documents deep: with unjudged documents removed a deeper list has more to move up."""
    deep = PLANTED.get_runs()["bm25"]
    runs = {"deep": deep[deep["rank"] < 40], "shallow": deep[deep["rank"] < 15]}
    found = audit(runs, PLANTED, biases="pooling").findings
    values = found[found["measure"] == "nDCG@10"].pivot(index="contrast", columns="system", values="value")
    assert len(values) == 5 and (values["deep"] == values["shallow"]).all()
    removed = found[found["contrast"] == "removed"]
    assert removed["convention"].str.contains("lists of 15 documents, as many as all systems have").all()
    inferred = found[found["contrast"] == "inferred"]
    assert inferred["convention"].str.endswith("; from the first 15 documents of each list").all()
    order = found[found["measure"] == "tau of nDCG@10"]
    assert order["value"].isna().all() and order["text"].str.contains("not defined, because all systems have the same mean").all()


def pooled_collection(pool):
    """A collection whose pool's run is given."""
    pool = pool if "rank" in pool else pool.assign(rank=pool.groupby("qid").cumcount())
    return Collection("pooled", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels, runs={"pool": pool})


def inferred_by_hand(runs, systems):
    """Mean nDCG@10 of systems with labels inferred from runs."""
    qrels, qids = PLANTED.get_qrels(), sorted(PLANTED.get_topics()["qid"])
    judgements = infer_judgements(runs, qrels[qrels["qid"].isin(qids)])
    measure = [ExpectedNDCG(judgements) @ 10]
    return [per_query(strictly_ranked(run, "run"), qrels, measure, qids)["ExpectedNDCG@10"].mean() for run in systems]


@pytest.fixture(scope="module")
def two_runs():
    """The pool's run, and another order of it, both without ranks."""
    run = PLANTED.get_runs()["bm25"][["qid", "docno", "score"]]
    return run, run.assign(score=run["score"] + np.random.default_rng(0).normal(0, run["score"].std(), len(run)))


def test_the_pool_counts_once_where_it_is_audited(two_runs):
    """As evidence for labels, that is: a list that counts twice draws labels to its own order."""
    pool, other = two_runs
    given = {"mine": pool, "other": other}
    found = audit(given, pooled_collection(pool), biases="pooling").findings
    inferred = found[found["contrast"] == "inferred"]
    assert inferred["value"].tolist() == pytest.approx(inferred_by_hand([pool, other], [pool, other]))
    assert inferred["convention"].str.contains("that all systems together rank as highly").all()
    # A pool that is not audited counts beside the systems, and is named.
    found = audit({"other": other}, pooled_collection(pool), biases="pooling").findings
    inferred = found[found["contrast"] == "inferred"]
    assert inferred["value"].tolist() == pytest.approx(inferred_by_hand([pool, other], [other]))
    assert inferred["convention"].str.contains(r"that all systems and pool \(the pool\) together rank as highly").all()


def test_the_pool_is_ranked_by_its_scores(two_runs):
    """Its ranks may count from 1, or be of another list."""
    pool, other = two_runs
    shifted = pool.assign(rank=pool.groupby("qid").cumcount() + 1)
    shallow = other.groupby("qid").head(12)
    found = [
        audit({"other": shallow}, pooled_collection(own), biases="pooling").findings["value"].tolist()
        for own in (pool, shifted, shifted.assign(rank=99))
    ]
    assert found[1] == pytest.approx(found[0]) and found[2] == pytest.approx(found[0])


def test_measures_infer_labels_as_an_audit_does(two_runs):
    """Of runs that are not equally deep, and with the pool."""
    pool, other = two_runs
    systems = {"deep": other, "shallow": pool.groupby("qid").head(15).assign(score=lambda run: -run["score"])}
    collection = pooled_collection(pool)
    found = audit(systems, collection, biases="pooling").findings
    own = found[found["contrast"] == "inferred"].set_index("system")["value"]
    measures = bias_measures(collection, systems=systems, biases="pooling")
    table = pt.Experiment(systems, PLANTED.get_topics(), PLANTED.get_qrels(), measures).set_index("name")
    assert table["ExpectedNDCG@10"].to_dict() == pytest.approx(own.to_dict())


def test_where_ties_decide_it_is_said():
    qrels, qids = PLANTED.get_qrels(), sorted(PLANTED.get_topics()["qid"])
    tied = PLANTED.get_runs()["bm25"].assign(score=lambda run: run["score"].round(0))
    parted = tied.assign(score=-PLANTED.get_runs()["bm25"]["rank"].astype(float))
    found = audit({"tied": tied, "parted": parted}, PLANTED, biases="pooling").findings.set_index(["system", "contrast"])["text"]
    change = tie_change(tied, qrels, qids, per_query(tied, qrels, ["nDCG@10"], qids)["nDCG@10"].mean())
    assert abs(change) > 0.0005
    assert f"with tied scores in the opposite order, it changes by {change:+.4f}" in found["tied", "as non-relevant"]
    assert "Ties" not in found["parted", "as non-relevant"]
    # trec_eval orders equal scores by descending docno: with docnos reversed it gives the other order.
    other = {docno: f"{10**6 - i:07d}" for i, docno in enumerate(sorted({*tied["docno"], *qrels["docno"]}))}
    mapped = [frame.assign(docno=frame["docno"].map(other)) for frame in (tied, qrels)]
    means = [
        pt.Evaluate(run, labels[labels["qid"].isin(qids)], ["ndcg_cut_10"])["ndcg_cut_10"]
        for run, labels in ((tied, qrels), mapped)
    ]
    assert change == pytest.approx(means[1] - means[0])


def test_ties_are_those_of_whole_lists():
    """The common cut separates tied documents, and leaves those that come first in the usual order."""
    run = PLANTED.get_runs()["bm25"]
    tied, short = run.assign(score=(run["rank"] // -20).astype(float)), run[run["rank"] < 10]
    found = []
    for systems in ({"tied": tied}, {"tied": tied, "short": short}):
        table = audit(systems, PLANTED, biases="pooling").findings.set_index(["system", "contrast"])["text"]
        found.append(re.search("Ties affect it: .* it changes by (.*)", table["tied", "as non-relevant"]))
    assert found[0][0] == found[1][0] and float(found[0][1][:-1]) > 0.02


def test_the_pool_is_the_first_run_then_what_was_shown():
    assert pools_run(PLANTED)[0] == "bm25"
    shown = Collection("shown", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels, candidates=PLANTED.candidates)
    assert pools_run(shown)[0] == "the list shown to labellers"
    assert pools_run(shown)[1].equals(shown.candidates)
    assert pools_run(Collection("bare", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels)) is None


def test_one_primary_test_a_system(findings, context):
    primary = primary_tests(findings)
    assert list(primary.index) == ["bm25", "words"]
    assert (primary["measure"] == "Judged@10").all() and (primary["contrast"] == PRIMARY).all()
    # The run that judgements were pooled from against itself is no test, and takes nothing from those that are corrected.
    assert primary.loc["bm25", ["value", "low", "high"]].tolist() == [0, 0, 0] and np.isnan(primary.loc["bm25", "p"])
    assert primary.loc["words", "value"] < -0.05 and primary.loc["words", "p"] < 0.001
    assert "in every query" in primary.loc["bm25", "text"]
    row = primary.loc["words"]
    assert f"{row['value']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}]" in row["text"]


def test_the_primary_figures_are_those_of_ir_measures(findings, context):
    """Judged@10 by ir_measures itself, and scipy's permutation test."""
    mine = findings.set_index(["system", "measure", "contrast"])
    values = {}
    for system in SYSTEMS:
        results = context.results(system)
        table = pt.Evaluate(results.assign(score=-results["rank"]), context.qrels, [Judged @ 10], perquery=True)
        values[system.name] = np.array([table[qid]["Judged@10"] for qid in context.topics["qid"]])
        assert mine.loc[(system.name, "Judged@10", "system"), "value"] == pytest.approx(values[system.name].mean())
    change = values["words"] - values["bm25"]
    assert mine.loc[("words", "Judged@10", PRIMARY), "value"] == pytest.approx(change.mean())
    draws = {"permutation_type": "samples", "n_resamples": 9_999, "rng": np.random.default_rng(0)}
    reference = stats.permutation_test((change,), np.mean, **draws)
    assert mine.loc[("words", "Judged@10", PRIMARY), "p"] == pytest.approx(reference.pvalue, abs=0.01)


def test_treatments(findings):
    mine = findings[findings["measure"] == "nDCG@10"].set_index(["system", "contrast"])["value"]
    for name in ("bm25", "words"):
        usual, removed, inferred = (mine[name, treatment] for treatment in TREATMENTS)
        assert removed > usual and inferred != usual
        assert mine[name, "removed - as non-relevant"] == pytest.approx(removed - usual)
        assert mine[name, "inferred - as non-relevant"] == pytest.approx(inferred - usual)
    # What was judged fell to BM25: removal and inference both give the other more.
    assert mine["words", "removed - as non-relevant"] > mine["bm25", "removed - as non-relevant"]
    assert mine["words", "inferred - as non-relevant"] > mine["bm25", "inferred - as non-relevant"]


def test_values_stand_behind_findings(result, findings):
    own = findings[findings["system"] != "all systems"]
    assert compare_with_values(own, result.per_query) == len(own) == 14
    assert result.per_query.groupby(["system", "measure", "contrast"]).ngroups == 14
    assert ((own["low"] <= own["value"]) & (own["value"] <= own["high"])).all()


def test_every_finding_says_what_it_is(findings):
    assert (findings["bias"] == "pooling").all()
    assert findings["text"].str.fullmatch(r"(bm25|words|all systems): .*\.", flags=16).all()
    assert (findings["convention"] != "").all()
    conventions = findings[findings["measure"] == "nDCG@10"].groupby("contrast")["convention"].nunique()
    assert (conventions == 1).all()


def lists(docnos):
    rows = [(qid, docno, -float(i)) for qid, own in docnos.items() for i, docno in enumerate(own)]
    return pd.DataFrame(rows, columns=["qid", "docno", "score"])


@pytest.fixture
def swapping():
    """`a` ranks two documents of label 1 first; `b` unjudged ones and, behind them, one of label 2."""
    qids = [f"q{i}" for i in range(12)]
    labels = {"x": 1, "y": 1, "z": 2, "n": 0}
    qrels = pd.DataFrame([{"qid": q, "docno": f"{q}{d}", "label": label} for q in qids for d, label in labels.items()])
    a = lists({q: [f"{q}x", f"{q}y", f"{q}n"] for q in qids})
    b = lists({q: [*(f"{q}u{i}" for i in range(5)), f"{q}z", f"{q}x"] for q in qids})
    collection = Collection(
        "swapping",
        corpus=pd.DataFrame({"docno": sorted({*a["docno"], *b["docno"]}), "text": "any"}),
        topics={"test": pd.DataFrame({"qid": qids, "query": qids})},
        qrels={"test": qrels},
    )
    return collection, {"a": a, "b": b}


def test_the_order_of_systems_and_who_changes_places(swapping):
    collection, runs = swapping
    result = audit(runs, collection, biases="pooling")
    order = result.findings[result.findings["system"] == "all systems"].set_index("contrast")
    row = order.loc["as non-relevant, removed"]
    assert (row["value"], row["low"], row["high"], row["null_value"]) == (-1, -1, -1, 1)
    assert np.isnan(row["p"])
    means = result.findings.query("measure == 'nDCG@10'").set_index(["contrast", "system"])["value"]
    usual, removed = means["as non-relevant"], means["removed"]
    assert usual["a"] > usual["b"] and removed["a"] < removed["b"]
    assert f"a ({usual['a']:.3f}) is above b ({usual['b']:.3f}), but below it with unjudged documents removed" in row["text"]
    # The collection names no run and no list, so nothing says what was pooled.
    assert not result.findings["primary"].any()
    assert "names no run that judgements were pooled from" in result.findings["text"].iloc[0]


def test_one_system_has_no_order(context):
    alone = examined(BIAS, replace(context, systems=SYSTEMS[:1]))
    assert "all systems" not in {finding.system for finding in alone.findings}


def test_judgements_of_relevant_documents_only(context):
    result = examined(BIAS, Context(SYSTEMS, PLANTED, context.topics, context.qrels.query("label > 0"), depth=50, seed=3))
    assert [(f.measure, f.primary) for f in result.findings] == [("Judged@10", False)] * 2
    assert all("relevant documents only" in finding.text for finding in result.findings)
    assert [figure.name for figure in result.figures] == ["judged"]


def test_a_pool_that_lacks_queries_or_all_of_them(context):
    run = PLANTED.get_runs()["bm25"]
    some = Collection(
        "some", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels,
        runs={"bm25": run[run["qid"].isin(context.topics["qid"].head(10))]},
    )  # fmt: skip
    primary = [f for f in examined(BIAS, replace(context, dataset=some)).findings if f.primary]
    assert [f.n for f in primary] == [10, 10]
    none = Collection("none", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels, runs={"bm25": run.head(0)})
    assert not any(f.primary for f in examined(BIAS, replace(context, dataset=none)).findings)


def test_no_systems():
    nothing = examined(BIAS, Context([], PLANTED, PLANTED.get_topics(), PLANTED.get_qrels()))
    assert (list(nothing.findings), len(nothing.per_query), list(nothing.figures)) == ([], 0, [])


def test_shares_of_short_and_tied_lists():
    results = pd.DataFrame({"qid": "q1", "docno": ["a", "b", "c"], "score": [1.0, 1.0, 0.0]})
    qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["b", "b"], "label": [0, 1]})
    shares = judged_shares(results, qrels, ["q2", "q1"], [1, 2, 10])
    assert shares.index.tolist() == ["q1"]
    assert shares.values.tolist() == [[1.0, 0.5, 1 / 3]]  # of ties the larger docno comes first, as in trec_eval


def test_figures_show_every_system(result):
    assert [figure.name for figure in result.figures] == ["judged", "treatments"]
    for figure, axes, shown in drawn(result.figures):
        n = len(PLANTED.get_topics())
        assert f"{n} queries" in axes.get_xlabel() and str(n) in figure.caption
        assert {"bm25", "words"} <= shown


def test_no_interval_reaches_beyond_what_is_possible():
    """Where few queries change, only the range of the measure limits the mean: no more than all documents can be judged."""
    run = pd.DataFrame({"qid": [f"q{i}" for i in range(10) for _ in range(4)], "docno": [f"d{i}" for i in range(40)]})
    run = run.assign(score=[4.0, 3.0, 2.0, 1.0] * 10, rank=[0, 1, 2, 3] * 10)
    topics = pd.DataFrame({"qid": [f"q{i}" for i in range(10)], "query": "a"})
    corpus = pd.DataFrame({"docno": [f"d{i}" for i in range(40)], "text": "a"})
    qrels = run.assign(label=[1, 0, 0, 0] * 10)[["qid", "docno", "label"]]
    collection = Collection("small", corpus=corpus, topics={"test": topics}, qrels={"test": qrels}, runs={"bm25": run})
    other = run.assign(docno=[f"x{i}" if i in (1, 6, 9) else docno for i, docno in enumerate(run["docno"])])
    found = audit({"other": other}, collection, biases=["pooling"]).findings.set_index("contrast")
    judged, removed = found.loc[PRIMARY], found.loc["removed - as non-relevant"]
    assert judged["value"] == pytest.approx(-0.075) and (judged["low"], judged["high"]) == pytest.approx((-0.3, 0))
    quality = found.loc["as non-relevant", "value"]
    assert quality + removed["high"] <= 1 and quality + removed["low"] >= 0


@pytest.mark.usefixtures("pictures_small")
def test_the_whole_audit(context):
    found = audit({s.name: s for s in SYSTEMS}, PLANTED, biases=["pooling"], baseline="bm25", depth=50, seed=3)
    assert not len(found.failed) and not len(found.skipped)
    against = found.findings.query("contrast == @PRIMARY + ', vs bm25'")
    assert against["system"].tolist() == ["words"] and against["value"].iloc[0] < -0.05
    assert type(found).from_json(found.to_json()).findings.equals(found.findings)
    assert "nDCG@10 with unjudged documents: " in found.to_html()


def test_trec_deep_learning(shared_data):
    """The pool of BM25 was judged to the last document of the first ten, the dense runs' was not."""
    dataset = open_dataset(shared_data / "msmarco_trec_dl", split="dl19")
    runs = {name: dataset.get_runs()[name] for name in ("bm25", "tasb", "ada2")}
    found = audit(runs, dataset, biases="pooling", depth=20).findings.set_index(["system", "measure", "contrast"])
    assert found.loc[("bm25", "nDCG@10", "as non-relevant"), "value"] == pytest.approx(0.5058, abs=5e-5)
    assert found.loc[("tasb", "nDCG@10", "as non-relevant"), "value"] == pytest.approx(0.7210, abs=5e-5)
    assert found.loc[("bm25", "Judged@10", "system"), "value"] > 0.99
    for name in ("tasb", "ada2"):
        primary = found.loc[(name, "Judged@10", PRIMARY)]
        assert -0.15 < primary["value"] < 0 and primary["p"] < 0.01
        assert 0 < found.loc[(name, "nDCG@10", "removed - as non-relevant"), "value"] < 0.05


def p_values(seeds, judge):
    """p of the primary test between two rankers of one quality; `benchmarks/pooling_calibration.py` does more."""
    found = []
    for seed in seeds:
        planted = PlantedCollection(seed, topics=40, passages=400, pooling=0.0, survivorship=0.0)
        run = planted.get_runs()["bm25"].merge(planted.get_topics()[["qid", "query"]], on="qid")
        texts = planted.text_loader()(run[run["rank"] < 40])
        one, other = (PlantedRanker(strength=0.0, seed=2 * seed + i)(texts).query("rank < 10") for i in (0, 1))
        qrels = judge(seed, pd.concat([one, other]).merge(planted.get_qrels("full"), on=["qid", "docno"]), run)
        found.append(judged_difference(one, other, qrels, list(planted.get_topics()["qid"]), seed=seed)[1].p)
    return np.array(found)


def half(seed, qrels, run):
    qrels = qrels.drop_duplicates(["qid", "docno"])
    return qrels[[keyed_hash(seed, *pair) % 2 == 0 for pair in zip(qrels["qid"], qrels["docno"])]]


def test_false_alarms_are_as_rare_as_they_claim():
    p = p_values(range(15), half)
    interval = binomial_interval(int((p <= 0.05).sum()), len(p))
    assert interval.low <= 0.05 <= interval.high
    assert 0.25 < p.mean() < 0.8


def test_nothing_to_find_where_everything_is_judged():
    assert p_values(range(2), lambda seed, qrels, run: qrels.drop_duplicates(["qid", "docno"])).tolist() == [1, 1]


def test_a_shallow_pool_of_one_of_them_is_found():
    """Only what the one ranker ranks first is judged."""
    own = p_values(range(3), lambda seed, qrels, run: qrels.drop_duplicates(["qid", "docno"]).groupby("qid").head(10))
    assert (own <= 0.01).all()


def test_systems_are_resampled_a_few_times_at_once_with_the_same_draws():
    chance = np.random.default_rng(0)
    tables = [chance.random((2500, systems)) for systems in (3, 3)]
    drawn = np.random.default_rng(4).integers(0, 2500, (999, 2500))
    for found, table in zip(_resampled_means(tables, 4), tables):
        np.testing.assert_array_equal(found, np.stack([table[rows].mean(axis=0) for rows in drawn]))


def toy(lists, labels, pool):
    """A collection of ten queries, each with the documents d00 to d39, and a run."""
    qids = [f"q{i}" for i in range(10)]
    topics = pd.DataFrame({"qid": qids, "query": qids})
    rows = [(q, f"d{d:02}", label) for q in qids for d, label in enumerate(labels)]
    qrels = pd.DataFrame(rows, columns=["qid", "docno", "label"])
    rows = [(q, f"d{d:02}", -float(i), i) for q in pool for i, d in enumerate(lists)]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
    corpus = pd.DataFrame({"docno": [f"d{d:02}" for d in range(40)], "text": "rain"})
    return Collection("toy", corpus=corpus, topics={"t": topics}, qrels={"t": qrels}, runs={"pool": run}), run


def test_a_pool_without_judged_queries_is_named():
    dataset, run = toy(range(15), [0, 1] * 5, pool=[f"q{i}" for i in range(10)])
    judged = {"t": dataset.get_qrels().query("qid < 'q8'")}
    runs = {"bm25": run[run["qid"] >= "q8"]}
    other = Collection("toy", corpus=dataset.get_corpus(), topics={"t": dataset.get_topics()}, qrels=judged, runs=runs)
    text = audit({"mine": run}, other, biases="pooling").findings["text"][0]
    assert "the run 'bm25', which judgements were pooled from, has results for no judged query, so nothing is tested" in text


def test_experiments_leave_judged_only_out_where_it_would_remove_labels_below_0():
    dataset, run = toy(range(15), [-2, 1, 0, 1, 0, 1], pool=[f"q{i}" for i in range(10)])
    found = bias_measures(dataset, biases="pooling", systems={"mine": run})
    assert [str(m) for m in found] == ["nDCG@10", "Judged@10", "ExpectedNDCG@10"]
    assert found.second_run["nDCG(judged_only=True)@10"].startswith("OnlyJudged(qrels)")
    usual, run = toy(range(15), [0, 1, 0, 1, 0, 1], pool=[f"q{i}" for i in range(10)])
    assert "nDCG(judged_only=True)@10" in [str(m) for m in bias_measures(usual, biases="pooling")]


def test_differences_due_to_rounding_are_no_changes():
    """All documents are judged: inferred labels are the judged ones, and sums in another order differ in their last bits."""
    draw = np.random.default_rng(0)
    qids = [f"q{i:02}" for i in range(30)]
    docnos = [f"d{i:02}" for i in range(40)]
    labels = [(q, d, int(draw.choice([0, 0, 1, 2, 3]))) for q in qids for d in docnos]
    qrels = pd.DataFrame(labels, columns=["qid", "docno", "label"])

    def ranking():
        rows = [(q, d, -float(i), i) for q in qids for i, d in enumerate(draw.permutation(docnos)[:15])]
        return pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])

    topics = pd.DataFrame({"qid": qids, "query": qids})
    corpus = pd.DataFrame({"docno": docnos, "text": "rain"})
    dataset = Collection("all", corpus=corpus, topics={"t": topics}, qrels={"t": qrels}, runs={"pool": ranking()})
    found = audit({"a": ranking(), "b": ranking()}, dataset, biases="pooling").findings
    own = found[found["contrast"] == "inferred - as non-relevant"]
    assert own["text"].str.endswith("nDCG@10 does not change in any query where unjudged documents are inferred.").all()
