"""Disparity over frames: what Experiment returns, complexities, controls, collections."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, nDCG
from scipy import stats

from pyterrier_debias import Collection, InputError
from pyterrier_debias.core import plots
from pyterrier_debias.linguistic.formulas.slope import partial_slope
from pyterrier_debias.linguistic.formulas.spread import permutation_tests, smooth
from pyterrier_debias.linguistic.measures.disparity import (
    TABLE_COLUMNS,
    TOGETHER,
    Disparity,
    log_relevant,
    query_length,
    with_complexity,
)

QIDS = [f"q{i:02d}" for i in range(36)]
TOPICS = pd.DataFrame({
    "qid": QIDS,
    "query": ["word " * (i % 7 + 1) for i in range(36)],
    "complexity": np.round(np.sin(np.arange(36.0)) + np.arange(36) / 12, 2),
    "type": ["who", "what", "where"] * 12,
    "MLS": np.cos(np.arange(36.0)),
})  # fmt: skip
QRELS = pd.DataFrame(
    [(q, f"d{j}", int(j % 2 == 0)) for i, q in enumerate(QIDS) for j in range(2 + i % 5)], columns=["qid", "docno", "label"]
)


def per_query(dataset=None, names=("a", "b")):
    rows = []
    for number, name in enumerate(names):
        for qid, x in zip(QIDS, TOPICS["complexity"]):
            noise = np.sin(37.0 * int(qid[1:]) + number)
            rows.append((name, qid, "nDCG@10", float(np.clip(0.7 - (0.15 if number else 0.0) * x + 0.2 * noise, 0, 1))))
            rows.append((name, qid, "RR@10", float(np.clip(0.5 + 0.3 * noise, 0, 1))))
    frame = pd.DataFrame(rows, columns=["name", "qid", "measure", "value"])
    return frame if dataset is None else frame.assign(dataset=dataset)


LONG = per_query()
KNOWN = LONG.merge(TOPICS[["qid", "complexity"]])
PROBE = {"resamples": 499}


@pytest.fixture(scope="module")
def result():
    return Disparity(controls=["type", "relevant"], indices=["MLS", "complexity"], **PROBE).evaluate(LONG, TOPICS, QRELS)


def test_the_table_holds_means_of_thirds():
    table = Disparity()(KNOWN)
    assert list(table.columns) == TABLE_COLUMNS and len(table) == 2 * 2 * 4
    own = KNOWN[(KNOWN["name"] == "b") & (KNOWN["measure"] == "nDCG@10")].sort_values("complexity")
    rows = table[(table["name"] == "b") & (table["measure"] == "nDCG@10")].set_index("group")
    assert list(rows.index) == ["all", "easy", "medium", "hard"] and rows["n"].tolist() == [36, 12, 12, 12]
    for group, part in (("all", own), ("easy", own[:12]), ("medium", own[12:24]), ("hard", own[24:])):
        found, values = rows.loc[group], part["value"].to_numpy()
        expected = (values.mean(), values.std(), values.std() / values.mean())
        assert (found["mean"], found["sd"], found["cv"]) == pytest.approx(expected)
        assert found["complexity"] == pytest.approx(part["complexity"].mean())
        assert found["mean_low"] < found["mean"] < found["mean_high"] and found["sd_low"] < found["sd"] < found["sd_high"]


def test_wide_and_long_forms_say_the_same():
    wide = LONG.pivot(index=["name", "qid"], columns="measure", values="value").reset_index().merge(TOPICS, on="qid")
    expected = Disparity()(KNOWN)
    for measures in (["nDCG@10", "RR@10"], [nDCG @ 10, RR @ 10]):
        pd.testing.assert_frame_equal(Disparity(measures=measures)(wide), expected)
    pd.testing.assert_frame_equal(Disparity()(wide), Disparity(measures=["RR@10", "nDCG@10"])(KNOWN))
    one = Disparity(measures=["RR@10"]).evaluate(wide.drop(columns="name").drop_duplicates("qid"))
    assert one.tests["name"].unique().tolist() == ["system"] and set(one.tests["measure"]) == {"RR@10"}
    trec = wide.rename(columns={"nDCG@10": "ndcg_cut_10", "RR@10": "recip_rank"})
    assert set(Disparity()(trec)["measure"]) == {"ndcg_cut_10", "recip_rank"}


def test_from_experiment_directly():
    corpus = pd.DataFrame({"docno": ["d0", "d1", "d2"], "text": "any"})
    dataset = Collection("small", corpus=corpus, topics={"t": TOPICS.head(6)}, qrels={"t": QRELS[QRELS["qid"].isin(QIDS[:6])]})
    rows = [(q, d, float(s)) for q in QIDS[:6] for s, d in enumerate(["d0", "d1", "d2"])]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score"])
    systems = {"one": pt.Transformer.from_df(run), "two": pt.Transformer.from_df(run.assign(score=-run["score"]))}
    topics = dataset.get_topics()
    values = pt.Experiment(systems, topics, dataset.get_qrels(), [nDCG @ 10, "recip_rank"], perquery=True, verbose=False)
    found = Disparity(**PROBE).evaluate(values, topics)
    means = pt.Experiment(systems, topics, dataset.get_qrels(), [nDCG @ 10], verbose=False).set_index("name")["nDCG@10"]
    rows = found.table[(found.table["group"] == "all") & (found.table["measure"] == "nDCG@10")].set_index("name")
    assert rows["mean"].to_dict() == pytest.approx(means.to_dict())


def test_tests_are_those_of_the_arrays(result):
    own = LONG[(LONG["name"] == "b") & (LONG["measure"] == "nDCG@10")].sort_values("qid")["value"].to_numpy()
    types = (TOPICS["type"].to_numpy()[:, None] == np.array(["what", "who", "where"])).astype(float)
    controls = np.column_stack([types, np.log([(2 + i % 5 + 1) // 2 for i in range(36)])])
    expected = partial_slope(own, TOPICS["complexity"].to_numpy(), controls, resamples=499)
    row = result.test("slope", "b", "nDCG@10")
    assert (row["value"], row["low"], row["high"]) == pytest.approx(
        (expected.per_sd.estimate, expected.per_sd.low, expected.per_sd.high)
    )
    assert row["p"] == expected.p == 0.002 and row["n"] == 36
    assert "given type, relevant" in row["convention"]
    share = result.test("share", "b", "nDCG@10")
    assert (share["value"], share["noise_floor"]) == pytest.approx((expected.share, expected.share_floor))
    assert result.test("rank correlation", "b")["value"] == pytest.approx(stats.spearmanr(own, TOPICS["complexity"]).statistic)
    assert result.test("worst group", "b")["group"] == "hard"
    assert result.test("slope", "a", "RR@10")["p"] > 0.05
    influence = result.per_query.query("name == 'b' and measure == 'nDCG@10'")["influence"]
    assert influence.mean() == pytest.approx(row["value"])
    assert "b: " in repr(result)
    with pytest.raises(InputError, match="no test"):
        result.test("slope", "c")


def test_every_number_of_the_tests_and_the_table_at_another_level():
    """By scipy and by the array functions: groups in the order of complexity, not of their names or sizes."""
    found = Disparity(level=0.8, ddof=1, resamples=99, seed=4, bins=4).evaluate(LONG, TOPICS)
    own = LONG[(LONG["name"] == "b") & (LONG["measure"] == "nDCG@10")].merge(TOPICS).sort_values("qid")
    group = found.per_query.query("name == 'b' and measure == 'nDCG@10'")["group"].to_numpy()
    y, x = own["value"].to_numpy(), own["complexity"].to_numpy()
    order = [f"bin {i} of 4" for i in (1, 2, 3, 4)]
    parts = [y[group == name] for name in order]
    assert [len(part) for part in parts] == [9] * 4 and group[x.argmin()] == order[0] and group[x.argmax()] == order[3]
    tests = found.tests.query("name == 'b' and measure == 'nDCG@10'").set_index("test")
    means = np.array([part.mean() for part in parts])
    assert tests.loc["Kruskal-Wallis", "value"] == pytest.approx(stats.kruskal(*parts).statistic)
    assert tests.loc["gap", "value"] == pytest.approx(means.max() - means.min())
    worst = parts[means.argmin()]
    row = tests.loc["worst group"]
    assert (row["group"], row["value"]) == (order[means.argmin()], pytest.approx(worst.mean()))
    assert (row["low"], row["high"]) == pytest.approx(tuple(stats.ttest_1samp(worst, 0).confidence_interval(0.8)))
    peer = permutation_tests(y, x, np.array([order.index(name) for name in group]), level=0.8, resamples=99, seed=4)
    rho = stats.spearmanr(y, x).statistic
    ends = [peer.rho, peer.rho_low, peer.rho_high, peer.rho_p]
    assert tests.loc["rank correlation", ["value", "low", "high", "p"]].tolist() == ends
    assert peer.rho == pytest.approx(rho) and peer.rho_low < rho < peer.rho_high
    assert [tests.loc["Kruskal-Wallis", "p"], tests.loc["gap", "p"]] == [peer.kruskal_p, peer.gap_p]
    assert tests.loc["gap", "noise_floor"] == peer.gap_floor
    slope = partial_slope(y, x, None, level=0.8, resamples=99, seed=4)
    ends = [slope.per_sd.estimate, slope.per_sd.low, slope.per_sd.high, slope.p]
    assert tests.loc["slope", ["value", "low", "high", "p"]].tolist() == pytest.approx(ends)
    share = [slope.share, slope.share_low, slope.share_high, slope.p, slope.share_floor]
    assert tests.loc["share", ["value", "low", "high", "p", "noise_floor"]].tolist() == pytest.approx(share)
    rows = found.table.query("name == 'b' and measure == 'nDCG@10'").set_index("group")
    for name, part in zip(["all", *order], [y, *parts]):
        assert rows.loc[name, "sd"] == pytest.approx(part.std(ddof=1))
        ends = stats.ttest_1samp(part, 0).confidence_interval(0.8)
        assert rows.loc[name, ["mean_low", "mean_high"]].tolist() == pytest.approx(list(ends))
    assert found.per_query.index.tolist() == list(range(144))
    same = Disparity(level=0.8, ddof=1, resamples=99, seed=4, bins=np.int64(4)).evaluate(LONG, TOPICS)
    assert same.convention == found.convention and same.convention.startswith("bins 4;")


def test_curves_reach_from_the_first_to_the_99th_percentile(result):
    curve = result.curve(resamples=9)
    assert curve.groupby("name").size().tolist() == [40, 40]
    at = np.linspace(*np.quantile(TOPICS["complexity"], [0.01, 0.99]), 40)
    own = LONG[(LONG["name"] == "b") & (LONG["measure"] == "nDCG@10")]["value"].to_numpy()
    expected = smooth(own, TOPICS["complexity"].to_numpy(), at, span=2 / 3, level=0.95, resamples=9, seed=0)
    found = curve[curve["name"] == "b"][["complexity", "value", "low", "high"]].to_numpy().T
    np.testing.assert_allclose(found, [at, *expected])
    # Three queries are enough, two are not.
    for n, systems in ((3, {"a", "b"}), (2, set())):
        few = replace(result, per_query=result.per_query[result.per_query["qid"].isin(QIDS[:n])])
        assert set(few.curve("nDCG@10", points=2, resamples=9)["name"]) == systems


def test_curves_stay_within_the_range_of_the_measure():
    """At the ends, a few resampled queries make steep lines, which go far beyond 0 and 1."""
    x = np.array([0.0, 0.1, 0.2, 5.0, 5.2, 5.4, 9.0, 9.5])
    frame = pd.DataFrame({"name": "a", "qid": list("abcdefgh"), "complexity": x})
    for measure, least, most in (("nDCG@10", 0.0, 1.0), ("NumRet", -np.inf, np.inf)):
        values = frame.assign(measure=measure, value=[1.0, 0.9, 0.6, 0.0, 0.1, 0.0, 1.0, 0.9])
        curve = Disparity(resamples=9).evaluate(values).curve(resamples=99)
        free = smooth(values["value"].to_numpy(), x, curve["complexity"].to_numpy(), resamples=99)
        assert free[1].min() < 0 and free[2].max() > 1
        np.testing.assert_allclose(curve[["value", "low", "high"]].to_numpy().T, np.clip(free, least, most))


def test_single_indices(result):
    assert set(result.indices["index"]) == {"MLS", "complexity"} and len(result.indices) == 8
    rows = result.indices.query("name == 'b' and measure == 'nDCG@10'").set_index("index")
    assert rows.loc["complexity", "slope"] == pytest.approx(result.test("slope", "b")["value"])
    assert rows.loc["MLS", "p_corrected"] >= rows.loc["MLS", "p"] and rows.loc["complexity", "p_corrected"] == 0.004
    own = LONG[(LONG["name"] == "b") & (LONG["measure"] == "nDCG@10")].sort_values("qid")["value"]
    assert rows.loc["MLS", "rho"] == pytest.approx(stats.spearmanr(own, TOPICS["MLS"]).statistic)
    # A query without an index is left out of its row alone.
    known = (TOPICS.index % 5 > 0).tolist()
    part = Disparity(indices=["MLS", "complexity"], **PROBE).evaluate(LONG, TOPICS.assign(MLS=TOPICS["MLS"].where(known)))
    rows = part.indices.query("name == 'b' and measure == 'nDCG@10'").set_index("index")
    assert rows["n"].to_dict() == {"MLS": sum(known), "complexity": 36}
    expected = partial_slope(own.to_numpy()[known], TOPICS["MLS"].to_numpy()[known], None, resamples=499)
    assert rows.loc["MLS", ["slope", "low", "high", "p"]].tolist() == pytest.approx(
        [expected.per_sd.estimate, expected.per_sd.low, expected.per_sd.high, expected.p]
    )
    assert rows.loc["MLS", "rho"] == pytest.approx(stats.spearmanr(own[known], TOPICS["MLS"][known]).statistic)


def test_collections_are_averaged_and_have_bins_of_their_own():
    other = per_query("two").assign(value=lambda f: f["value"] / 2)
    values = pd.concat([per_query("one"), other])
    shifted = pd.concat([TOPICS.assign(dataset="one"), TOPICS.assign(dataset="two", complexity=TOPICS["complexity"] + 100)])
    found = Disparity(**PROBE).evaluate(values, shifted)
    rows = found.table.query("name == 'a' and measure == 'nDCG@10'").set_index(["dataset", "group"])
    for statistic in ("mean", "sd", "cv"):
        both = [rows.loc[(d, "all"), statistic] for d in ("one", "two")]
        assert rows.loc[(TOGETHER, "all"), statistic] == pytest.approx(np.mean(both))
    assert [rows.loc[(d, "easy"), "n"] for d in ("one", "two", TOGETHER)] == [12, 12, 24]
    backwards = Disparity(**PROBE)(values[::-1].merge(shifted, on=["dataset", "qid"]))
    assert backwards["dataset"].drop_duplicates().tolist() == ["two", "one", TOGETHER]
    pooled = Disparity(cv_average="pooled")(values.merge(shifted, on=["dataset", "qid"]))
    together = values.query("name == 'a' and measure == 'nDCG@10'")["value"]
    row = pooled[(pooled["dataset"] == TOGETHER) & (pooled["group"] == "all")].iloc[0]
    assert row["cv"] == pytest.approx(together.std(ddof=0) / together.mean())
    # A shift of all complexities of a collection changes nothing: it has a level of its own.
    same = Disparity(**PROBE).evaluate(values, TOPICS)
    one, two = (r.test("slope", "b") for r in (found, same))
    sd = [r.per_query["complexity"].std() for r in (found, same)]
    assert one["value"] / sd[0] == pytest.approx(two["value"] / sd[1]) and one["p"] == two["p"]


def test_rows_may_come_in_any_order():
    shuffled = LONG.sample(frac=1, random_state=2)
    one, two = (Disparity(**PROBE).evaluate(f, TOPICS.sample(frac=1, random_state=s)) for s, f in enumerate((LONG, shuffled)))
    keys = ["name", "measure", "test"]
    pd.testing.assert_frame_equal(
        one.tests.sort_values(keys, ignore_index=True), two.tests.sort_values(keys, ignore_index=True), rtol=1e-9
    )


def test_complexity_by_a_stage():
    length = pt.apply.generic(lambda topics: topics.assign(complexity=query_length(topics["query"])))
    found = Disparity(length, bins=[3, 5], **PROBE).evaluate(LONG, TOPICS.drop(columns="complexity"))
    assert found.per_query.groupby("group")["complexity"].agg(["min", "max"]).loc["hard"].tolist() == [5, 7]
    named = Disparity("MLS", bins=4, **PROBE).evaluate(LONG, TOPICS)
    assert named.table["group"].unique().tolist() == ["all", *(f"bin {i} of 4" for i in (1, 2, 3, 4))]
    other = pt.apply.generic(lambda topics: topics)
    with pytest.raises(InputError, match="added no column 'complexity'"):
        with_complexity(TOPICS[["qid", "query"]], other)


def test_a_stage_sees_one_collection_at_a_time():
    """What it normalises over is the collection, as where it is given alone."""

    def normalised(topics):
        length = query_length(topics["query"])
        return topics.assign(complexity=length - length.mean())

    values = pd.concat([per_query("one"), per_query("two").query("qid < 'q10'")])
    found = Disparity(pt.apply.generic(normalised), **PROBE).evaluate(values, TOPICS.drop(columns="complexity")).per_query
    assert found.groupby("dataset")["complexity"].mean().abs().max() < 1e-12


def test_linguistic_complexity_is_the_default():
    found = Disparity(None, **PROBE).evaluate(LONG, TOPICS[["qid", "query"]])
    assert found.per_query["complexity"].notna().all() and found.per_query["complexity"].nunique() > 3


def test_what_is_missing_is_left_out_and_said():
    topics = TOPICS.assign(complexity=TOPICS["complexity"].where(TOPICS.index > 2))
    values = LONG.assign(value=LONG["value"].where(LONG["qid"] != "q10"))
    found = Disparity(**PROBE).evaluate(values, topics)
    assert found.notes == ("1 query without a value is left out.", "3 queries without a complexity are left out.")
    assert (found.tests[found.tests["test"] == "slope"]["n"] == 32).all()


def test_systems_over_different_queries_are_told(caplog):
    values = LONG[~((LONG["name"] == "b") & LONG["qid"].isin(["q01", "q02"]))]
    note = (
        "nDCG@10: systems have values for different queries ('a' has 36, 'b' has 34; 34 are common to all), so their figures "
        "cannot be compared; give all of them the same queries."
    )
    assert Disparity(**PROBE).evaluate(values, TOPICS).notes[0] == note
    caplog.clear()
    Disparity()(values.merge(TOPICS[["qid", "complexity"]]))
    assert note in caplog.text
    assert Disparity(**PROBE).evaluate(LONG, TOPICS).notes == ()


@pytest.mark.parametrize(
    ("controls", "topics", "reason"),
    [
        (["double"], TOPICS.assign(double=2 * TOPICS["complexity"] + 1), "the controls double determine complexity (they"),
        (["c1", "c2"], TOPICS.assign(c1=TOPICS["MLS"], c2=TOPICS["complexity"] - TOPICS["MLS"]), "the controls c1, c2 determine"),
        (["type"], TOPICS.head(4), "4 queries are too few for the controls type"),
        (["double"], TOPICS.head(5).assign(double=2 * TOPICS["complexity"]), "the controls double determine complexity"),
        (["double"], TOPICS.head(4).assign(double=2 * TOPICS["complexity"]), "4 queries are too few for the controls double"),
        ([], TOPICS.head(3), "3 queries are too few"),
        ([], TOPICS.assign(complexity=1.0), "all its queries have the same complexity"),
    ],
)
def test_why_a_slope_is_not_defined_is_told(controls, topics, reason):
    found = Disparity(controls=controls, **PROBE).evaluate(LONG[LONG["qid"].isin(topics["qid"])], topics)
    assert np.isnan(found.test("slope")["value"]) and np.isnan(found.test("slope")["p"])
    assert any(note.startswith(f"nDCG@10 of 'a': the slope is not defined, because {reason}") for note in found.notes)


def test_a_slope_that_few_queries_decide_is_told_once():
    topics = TOPICS.assign(complexity=[9.0, 8.5, *([1.0, 1.1] * 17)])
    found = Disparity(**PROBE).evaluate(LONG, topics)
    assert [note for note in found.notes if "decide the slope" in note] == [
        "About 2 of 36 queries decide the slope, because their complexity is far from that of the others; with so few, a slope "
        "can seldom be distinguished from chance."
    ]


def test_queries_of_one_complexity_are_not_called_hard():
    found = Disparity(**PROBE).evaluate(LONG, TOPICS.assign(complexity=2.0))
    assert set(found.table["group"]) == {"all", "undivided"} and set(found.per_query["group"]) == {"undivided"}
    assert "All queries have the same complexity, so they form one group, 'undivided'." in found.notes
    assert "gap" not in set(found.tests["test"]) and np.isnan(found.test("rank correlation")["p"])


@pytest.mark.parametrize("what", ["complexity", "MLS", "RR@10", "nDCG@10"])
@pytest.mark.parametrize(("bad", "message"), [("high", "'high'; it must be a number"), (np.inf, "infinite; give a number")])
def test_what_is_no_finite_number_is_refused(what, bad, message):
    """Infinity gave a slope of NaN with p = 1; text raised pandas' own error."""
    topics, values = TOPICS.astype({"complexity": "object", "MLS": "object"}), LONG.astype({"value": "object"})
    if what in topics:
        topics.loc[topics["qid"] == "q03", what] = bad
    else:
        values.loc[(values["qid"] == "q03") & (values["measure"] == what), "value"] = bad
    with pytest.raises(InputError, match=rf"of query 'q03' is {message}"):
        Disparity(indices=["MLS"], **PROBE).evaluate(values, topics)


def test_numbers_as_text_are_numbers():
    found = Disparity(**PROBE).evaluate(LONG.astype({"value": str}), TOPICS.astype({"complexity": str}))
    # The layout of numbers in memory decides the last bits of their mean.
    pd.testing.assert_frame_equal(found.table, Disparity(**PROBE).evaluate(LONG, TOPICS).table, rtol=1e-12)


def test_controls_by_name():
    found = Disparity(controls=["length"], **PROBE).evaluate(LONG, TOPICS)
    assert found.per_query["length"].max() == 7
    assert log_relevant(TOPICS.head(2), QRELS).tolist() == pytest.approx([0, np.log(2)])
    assert log_relevant(pd.DataFrame({"qid": ["none"]}), QRELS).tolist() == [0]
    # Labels above 0 count, each dataset's own where both frames name one.
    graded = pd.DataFrame({"dataset": list("aaab"), "qid": "q", "docno": list("uvwx"), "label": [3, 1, 0, 1]})
    asked = pd.DataFrame({"dataset": ["a", "b"], "qid": "q"}, index=[7, 8])
    assert log_relevant(asked, graded).to_dict() == pytest.approx({7: np.log(2), 8: 0})
    assert log_relevant(asked, graded.drop(columns="dataset")).tolist() == pytest.approx([np.log(3)] * 2)


def test_a_control_in_names_has_a_level_for_what_is_missing_and_one_in_numbers_none():
    """As the page of evaluate() says."""
    kinds = TOPICS.assign(type=TOPICS["type"].where(TOPICS.index >= 6), number=TOPICS["MLS"].where(TOPICS.index >= 6))
    named = Disparity(controls=["type"], **PROBE).evaluate(LONG, kinds)
    assert named.per_query["qid"].nunique() == len(TOPICS) and not named.notes
    counted = Disparity(controls=["number"], **PROBE).evaluate(LONG, kinds)
    assert counted.per_query["qid"].nunique() == len(TOPICS) - 6
    assert "6 queries without a control 'number' are left out." in counted.notes


def test_relevant_documents_are_counted_once():
    expected = log_relevant(TOPICS, QRELS)
    for again in (pd.concat([QRELS, QRELS]), pd.concat([QRELS, QRELS.assign(label=0)]), QRELS.astype({"label": str})):
        assert log_relevant(TOPICS, again).equals(expected)
    graded = pd.DataFrame({"dataset": list("aab"), "qid": [1.0, 1.0, 1.0], "docno": "d", "label": 1})
    assert log_relevant(pd.DataFrame({"dataset": ["a", "b"], "qid": [1, 1]}), graded).tolist() == [0, 0]
    with pytest.raises(InputError, match="judgements have no column 'docno'"):
        log_relevant(TOPICS, QRELS.drop(columns="docno"))


@pytest.mark.parametrize("named", ["", "topics", "qrels", "topics qrels"])
def test_datasets_that_the_values_do_not_name_are_no_key(named, result):
    """Judgements with ``dataset`` made the control 'relevant' 0 for every query, without a word."""
    topics = TOPICS.assign(dataset="one") if "topics" in named else TOPICS
    qrels = QRELS.assign(dataset="one") if "qrels" in named else QRELS
    found = Disparity(controls=["relevant"], **PROBE).evaluate(LONG, topics, qrels)
    assert found.per_query.groupby("qid")["relevant"].first().tolist() == pytest.approx(log_relevant(TOPICS, QRELS).tolist())
    of_several = pd.concat([QRELS.assign(dataset="one"), QRELS.assign(dataset="two")])
    with pytest.raises(InputError, match="judgements are of the datasets 'one', 'two' but the values name none"):
        Disparity(controls=["relevant"]).evaluate(LONG, topics, of_several)


def test_datasets_are_compared_as_text():
    """A number and a text raised pandas' own error."""
    for values, topics, qrels in ((1, "1", "1"), ("1", 1, 1), (1, 1, "1")):
        frames = per_query(values), TOPICS.assign(dataset=topics), QRELS.assign(dataset=qrels)
        relevant = Disparity(controls=["relevant"], **PROBE).evaluate(*frames).per_query["relevant"]
        assert relevant.max() == np.log(3)
    assert log_relevant(TOPICS.assign(dataset=1), QRELS.assign(dataset="1")).tolist() == log_relevant(TOPICS, QRELS).tolist()


def test_topics_that_contradict_each_other_are_refused():
    twice = pd.concat([TOPICS, TOPICS.assign(complexity=-TOPICS["complexity"])])
    with pytest.raises(InputError, match=r"several values of 'complexity' for query '.+'; keep one row per query"):
        Disparity(**PROBE).evaluate(per_query("a"), twice)
    same = Disparity(**PROBE).evaluate(per_query("a"), pd.concat([TOPICS, TOPICS]))
    assert same.table.equals(Disparity(**PROBE).evaluate(per_query("a"), TOPICS).table)


def test_groups_that_a_dataset_lacks_are_not_averaged():
    values = pd.concat([per_query("a"), per_query("b")])
    simple = TOPICS["complexity"].min()
    topics = pd.concat([TOPICS.assign(dataset="a"), TOPICS.assign(dataset="b", complexity=lambda t: t["complexity"] > simple)])
    table = Disparity(**PROBE).evaluate(values, topics.assign(complexity=topics["complexity"].astype(float))).table
    groups = table.groupby("dataset")["group"].agg(set)
    assert groups["a"] == {"all", "easy", "medium", "hard"} and groups["b"] == {"all", "easy", "hard"}
    assert groups["all datasets"] == groups["b"]


def test_topics_and_judgements_of_other_datasets_or_queries_are_refused():
    named, control = per_query("a"), Disparity(controls=["relevant"], **PROBE)
    with pytest.raises(InputError, match=r"datasets of the values \(e.g. 'a'\) are not those of the topics \(e.g. 'b'\)"):
        control.evaluate(named, TOPICS.assign(dataset="b"), QRELS)
    with pytest.raises(InputError, match="are not those of the judgements"):
        control.evaluate(named, TOPICS, QRELS.assign(dataset="b"))
    with pytest.raises(InputError, match="no judgements of dataset 'b', only of 'a'; name datasets alike"):
        control.evaluate(pd.concat([named, per_query("b")]), TOPICS, QRELS.assign(dataset="a"))
    with pytest.raises(InputError, match="control 'relevant': no qid is in both"):
        control.evaluate(LONG, TOPICS, QRELS.assign(qid="x" + QRELS["qid"]))


def test_figures(result):
    curve = result.curve(points=9, resamples=49)
    assert curve.groupby("name").size().tolist() == [9, 9] and (curve["low"] <= curve["high"]).all()
    for drawing in (result.plot_curve, result.plot_groups):
        axes = drawing()
        assert drawing(axes) is axes
        assert "36 queries" in axes.get_xlabel() and axes.get_ylabel() == "mean nDCG@10"
        assert set(axes.get_legend_handles_labels()[1]) == {"a", "b"}
        plots.close(axes.figure)
        axes = drawing(order=["left out", "b", "a"])
        assert axes.lines[0].get_color() == plots.colour(2) and axes.lines[-1].get_color() == plots.colour(1)
        plots.close(axes.figure)
    # Two systems' groups stand .2 apart, around their place, at the figures of the table.
    axes = result.plot_groups(measure="RR@10")
    for shift, name, container in zip((-0.1, 0.1), "ab", axes.containers, strict=True):
        own = result.table.query(f"name == '{name}' and measure == 'RR@10' and group != 'all'")
        points = container.lines[0].get_xydata()
        assert points[:, 0] == pytest.approx(np.arange(3) + shift) and points[:, 1].tolist() == own["mean"].tolist()
    plots.close(axes.figure)
    with pytest.raises(InputError, match="not analysed"):
        result.curve("AP")


def test_empty_in_empty_out():
    empty = Disparity()(KNOWN.iloc[:0])
    assert len(empty) == 0 and list(empty.columns) == TABLE_COLUMNS
    assert (empty.dtypes == Disparity()(KNOWN).dtypes).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bins": "quartile"}, "bins="),
        ({"cv_average": "mean"}, "cv_average="),
        ({"controls": "type"}, "must be a list"),
        ({"ddof": 2}, "ddof"),
        ({"resamples": 0}, "resamples"),
        ({"resamples": "99"}, "resamples='99' must be a whole number of at least 1"),
        ({"level": "high"}, "level='high' must be a number"),
        ({"level": 1}, "level=1 must be a number above 0 and at most 0.9999"),
        ({"controls": ["mood"]}, "control 'mood'"),
        ({"controls": ["relevant"]}, "qrels"),
        ({"indices": ["XYZ"]}, "index 'XYZ'"),
        ({"measures": ["AP"]}, "no values of 'AP'"),
        ({"complexity": "hardness"}, "complexity 'hardness'"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        Disparity(**options).evaluate(LONG, TOPICS)


def test_bad_frames():
    with pytest.raises(InputError, match="several values"):
        Disparity()(pd.concat([KNOWN, KNOWN.assign(value=0.1)]))
    with pytest.raises(InputError, match="disagree on complexity"):
        Disparity()(KNOWN.assign(complexity=np.arange(len(KNOWN), dtype=float)))
    with pytest.raises(InputError, match="no column is named like a measure"):
        Disparity()(TOPICS[["qid", "complexity"]].assign(mood=1.0))
    with pytest.raises(InputError, match="no query has both"):
        Disparity().evaluate(LONG, TOPICS.assign(qid="x" + TOPICS["qid"]))
    with pytest.raises(pt.validate.InputValidationError, match="complexity"):
        Disparity()(LONG)


@pytest.mark.parametrize(("measure", "limited"), [("nDCG@10", True), ("NumRet", False)])
def test_intervals_of_means_end_where_the_measure_does(measure, limited):
    """Student's interval of two values, one of each third here, is wider than the range of nDCG."""
    values = pd.DataFrame({"qid": list("abcdef"), "measure": measure, "value": [0.0, 1.0, 0.2, 0.9, 1.0, 0.0]})
    topics = pd.DataFrame({"qid": list("abcdef"), "complexity": np.arange(6.0)})
    found = Disparity(measures=[measure], resamples=9).evaluate(values.assign(name="one"), topics)
    ends = found.table[["mean_low", "mean_high"]].to_numpy()
    worst = found.test("worst group", "one")
    assert (ends[:, 0].min() >= 0 and ends[:, 1].max() <= 1 and worst["low"] >= 0) == limited
