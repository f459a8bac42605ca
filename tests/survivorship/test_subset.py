"""SurvivorshipSubset and SurvivorshipCurve: what they keep, say and refuse."""

import functools
import logging
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import Collection, InputError, PlantedCollection
from pyterrier_debias.core import plots
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.survivorship.data.annotations import rank_annotations
from pyterrier_debias.survivorship.data.ranks import survives
from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset
from pyterrier_debias.survivorship.formulas.nested import nested_means, trend
from pyterrier_debias.survivorship.measures.curve import SurvivorshipCurve, curve_of_values
from pyterrier_debias.survivorship.training.rank_filtered import DRAWN, FILTERED, LATER, training_subsets
from tests.survivorship import published
from tests.survivorship.toy import ASKED, LABELS, RESULTS, SHOWN

PLANTED = PlantedCollection(5, topics=30, passages=300, survivorship=1.0)
TOPICS = PLANTED.get_topics("full")
QRELS = PLANTED.get_qrels()
RUN = PLANTED.get_runs()["bm25"]
FIRST = PLANTED.truth["topics"].set_index("qid")["first_shown"]


# ----------------------------------------------------------------------------------------------------- subset


@pytest.mark.parametrize("k", [1, 4, 10, None])
def test_it_keeps_the_queries_answered_in_time(k):
    kept = SurvivorshipSubset(PLANTED, QRELS, rank=k)(TOPICS)
    expected = FIRST[(FIRST > 0) & (FIRST <= (k or 99))]
    assert dict(zip(kept["qid"], kept["first_relevant_rank"])) == expected.to_dict()
    assert kept["qid"].tolist() == [qid for qid in TOPICS["qid"] if qid in expected.index]
    assert (kept["first_relevant_in"] == "shown").all() and set(TOPICS.columns) < set(kept.columns)


def test_repeats_are_removed_before_places_are_counted():
    """Closed form: with every passage shown twice, one after the other, an answer at place 2r-1 or 2r stands at r then."""
    words = ["one", "two", "three", "four"]
    shown = pd.DataFrame(
        [
            (f"q{r}", f"d{n}-{copy}", 2.0 * n + copy, word.upper() + "  passage" if copy else f"{word} passage")
            for r in range(1, 5)
            for n, word in enumerate(words)
            for copy in (0, 1)
        ],
        columns=["qid", "docno", "rank", "text"],
    )
    qrels = pd.DataFrame({"qid": [f"q{r}" for r in range(1, 5)], "docno": [f"d{r - 1}-1" for r in range(1, 5)], "label": 1})
    topics = shown[["qid"]].drop_duplicates(ignore_index=True)

    def ranks(lists=shown, judged=qrels, **options):
        return SurvivorshipSubset(lists, judged, rank=None, **options)(topics)["first_relevant_rank"].tolist()

    assert ranks() == [2, 4, 6, 8]
    assert ranks(repeats="drop") == [1, 2, 3, 4]
    # The order of rows does not matter, and of the labels of one text the highest counts.
    both = pd.concat([qrels.assign(docno=qrels["docno"].str[:-1] + "0", label=0), qrels])
    assert ranks(shown.sample(frac=1, random_state=1), both, repeats="drop") == [1, 2, 3, 4]
    # Ids of passages tell repeats without texts; a dataset brings its texts along.
    bare = shown.drop(columns="text")
    assert ranks(bare, docno="passage") == [1, 3, 5, 7]
    assert ranks(bare, docno="passage", repeats="drop") == [1, 2, 3, 4]
    corpus = shown[["docno", "text"]].drop_duplicates("docno")
    scored, asked = bare.assign(score=-bare["rank"]), {"test": topics.assign(query="w")}
    toy = Collection("toy", corpus=corpus, topics=asked, qrels={"test": qrels}, candidates=scored)
    assert ranks(toy, None, repeats="drop") == [1, 2, 3, 4]
    found = SurvivorshipSubset(shown, qrels, repeats="drop").ranks()
    assert found[["shown", "relevant_shown"]].to_numpy().tolist() == [[4, 1]] * 4
    with pytest.raises(InputError, match=r"SurvivorshipSubset: repeats='drop' compares texts, but there is no column 'text'"):
        ranks(bare, repeats="drop")
    # What is empty repeats nothing.
    assert ranks(shown.assign(text=""), repeats="drop") == [2, 4, 6, 8]


def test_it_composes_before_retrieval_and_filters_results_alike():
    subset, bm25 = SurvivorshipSubset(PLANTED, QRELS, rank=5), pt.Transformer.from_df(RUN)
    asked = (subset >> bm25)(TOPICS)
    filtered = (bm25 >> subset)(TOPICS)
    assert 0 < asked["qid"].nunique() < len(TOPICS)
    pd.testing.assert_frame_equal(
        asked[["qid", "docno", "score", "rank"]].reset_index(drop=True), filtered[["qid", "docno", "score", "rank"]]
    )
    compiled = ((bm25 >> subset) % 3).compile()
    pd.testing.assert_frame_equal(compiled(TOPICS), ((bm25 >> subset) % 3)(TOPICS))


def test_options():
    assert SurvivorshipSubset(SHOWN, LABELS, rank=2)(ASKED)["qid"].tolist() == ["q2"]
    assert SurvivorshipSubset(SHOWN, LABELS, rank=3)(ASKED)["qid"].tolist() == ["q1", "q2"]
    assert SurvivorshipSubset(SHOWN, LABELS, min_label=2)(ASKED)["qid"].tolist() == ["q2"]
    assert SurvivorshipSubset(SHOWN, LABELS, exact=True)(ASKED)["qid"].tolist() == ["q1"]
    answers = pd.DataFrame({"qid": ["q1", "q3"], "answer": ["yes", "no"]})
    assert SurvivorshipSubset(SHOWN, LABELS, answered_by="answers", answers=answers)(ASKED)["qid"].tolist() == ["q1"]
    lists = pd.DataFrame({"qid": ["q1", "q3"], "answers": [np.array(["yes"]), np.array([])]})  # as parquet gives them
    assert SurvivorshipSubset(SHOWN, LABELS, answered_by="answers", answers=lists)(ASKED)["qid"].tolist() == ["q1"]
    assert SurvivorshipSubset(PLANTED, answered_by="answers")(TOPICS)["qid"].nunique() == (FIRST > 0).sum()


def test_a_run_is_called_a_proxy():
    blind = Collection("blind", corpus=PLANTED.corpus, topics=PLANTED.topics, qrels=PLANTED.qrels, runs=PLANTED.get_runs())
    assert set(SurvivorshipSubset(blind)(TOPICS)["first_relevant_in"]) == {"proxy: bm25"}
    assert set(SurvivorshipSubset(RUN, QRELS, proxy="my run")(TOPICS)["first_relevant_in"]) == {"proxy: my run"}


def test_in_an_experiment_the_topics_are_what_is_filtered():
    bm25, subset = pt.Transformer.from_df(RUN), SurvivorshipSubset(PLANTED, rank=3)
    kept = subset(TOPICS)
    own = pt.Experiment([bm25], kept, QRELS, ["recip_rank"])["recip_rank"][0]
    inside = pt.Experiment([subset >> bm25], TOPICS, QRELS, ["recip_rank"])["recip_rank"][0]
    judged = TOPICS["qid"].isin(QRELS["qid"]).sum()
    assert inside == pytest.approx(own * len(kept) / judged) and inside < own


def test_nobody_survives(caplog):
    with caplog.at_level(logging.WARNING, logger="pyterrier_debias"):
        kept = SurvivorshipSubset(SHOWN, LABELS, rank=1)(ASKED[ASKED["qid"] != "q2"])
    assert len(kept) == 0 and "none of 3 queries was answered within the first 1 documents" in caplog.text
    assert kept["first_relevant_rank"].dtype == "int64"


def test_options_that_make_no_sense():
    with pytest.raises(InputError, match="rank=0"):
        SurvivorshipSubset(SHOWN, LABELS, rank=0)(ASKED)
    with pytest.raises(InputError, match="answered_by='me'"):
        SurvivorshipSubset(SHOWN, LABELS, answered_by="me")(ASKED)
    with pytest.raises(InputError, match="min_label='1'"):
        SurvivorshipSubset(SHOWN, LABELS, min_label="1")(ASKED)
    with pytest.raises(InputError, match=r"candidates is None.*name it with proxy="):
        SurvivorshipSubset(None, LABELS)(ASKED)
    with pytest.raises(InputError, match="no judgements"):
        SurvivorshipSubset(SHOWN)(ASKED)
    with pytest.raises(InputError, match="needs answers"):
        SurvivorshipSubset(SHOWN, LABELS, answered_by="answers")(ASKED)


def test_a_changed_option_is_looked_up_again():
    stage = SurvivorshipSubset(SHOWN, LABELS)
    assert len(stage(ASKED)) == 2
    stage.min_label = 2
    assert len(stage(ASKED)) == 1


class Counting(Collection):
    """Notes what it is asked for; a large collection takes minutes over each."""

    def __init__(self):
        own = {"corpus": PLANTED.corpus, "candidates": PLANTED.get_candidates()}
        super().__init__("counting", topics={"test": TOPICS}, qrels={"test": QRELS}, **own)
        self.asked = []

    def get_candidates(self):
        self.asked.append("candidates")
        return super().get_candidates()

    def get_qrels(self, variant=None):
        self.asked.append("qrels")
        return super().get_qrels(variant)


def test_a_collection_is_read_once():
    collection = Counting()
    subset = SurvivorshipSubset(collection, rank=5)
    inspected = pt.inspect.transformer_outputs(subset, list(TOPICS.columns))
    assert collection.asked == [] and inspected == subset(TOPICS.iloc[:0]).columns.tolist() == subset(TOPICS).columns.tolist()
    assert collection.asked == ["candidates", "qrels"]
    subset(TOPICS)
    changed = pt.inspect.transformer_apply_attributes(subset, rank=3)
    pd.testing.assert_frame_equal(changed(TOPICS), SurvivorshipSubset(PLANTED, QRELS, rank=3)(TOPICS))
    assert (subset.source, changed.source) == ("shown", "shown")
    assert collection.asked == ["candidates", "qrels"]
    # Other grades are other ranks, and another collection has its own.
    subset.min_label = 2
    assert subset(TOPICS).equals(SurvivorshipSubset(PLANTED, QRELS, rank=5, min_label=2)(TOPICS))
    assert collection.asked == ["candidates", "qrels"]
    changed.candidates = other = Counting()
    assert len(changed(TOPICS)) and other.asked == ["candidates", "qrels"]
    assert not {"_known", "_listed", "_judged"} & subset.__getstate__().keys()


def test_curves_and_training_sets_read_a_collection_once():
    collection = Counting()
    found = SurvivorshipCurve({"bm25": RUN}, collection, ranks=3, resamples=9).evaluate(TOPICS)
    assert collection.asked == ["candidates", "qrels"]
    assert found.table.equals(SurvivorshipCurve({"bm25": RUN}, PLANTED, QRELS, ranks=3, resamples=9).evaluate(TOPICS).table)
    collection.asked.clear()
    subset = SurvivorshipSubset(collection)
    for seed in (0, 1):
        parts = list(training_subsets(TOPICS, subset, [1, 4, None], seed=seed))
        alike = training_subsets(TOPICS, SurvivorshipSubset(PLANTED, QRELS), [1, 4, None], seed=seed)
        assert all(one.frame.equals(other.frame) for one, other in zip(parts, alike, strict=True))
    assert collection.asked == ["candidates", "qrels"]


# ----------------------------------------------------------------------------------------------------- curve


@pytest.fixture(scope="module")
def result():
    worse = RUN.assign(score=-RUN["score"])
    systems, measures = {"bm25": RUN, "upside down": worse}, ["RR(rel=2)@10", "nDCG@10"]
    curve = SurvivorshipCurve(systems, PLANTED, QRELS, measures=measures, baseline="upside down", resamples=199)
    return curve.evaluate(TOPICS)


def test_the_table_is_that_of_ordinary_evaluation(result):
    values = per_query(RUN, QRELS, ["nDCG@10"], TOPICS["qid"].tolist())["nDCG@10"]
    first = FIRST[TOPICS["qid"]]
    rows = result.table.query("name == 'bm25' and measure == 'nDCG@10' and type == 'all types'").set_index("subset")
    assert list(rows.index) == [*map(str, range(1, 11)), "answered", "all"]
    for k in (2, 5, 10):
        within = first[(first > 0) & (first <= k)].index
        row = rows.loc[str(k)]
        assert (row["n"], row["total"]) == (len(within), len(TOPICS))
        assert row["mean"] == pytest.approx(values[within].mean())
        assert row["zero_filled"] == pytest.approx(values[within].sum() / len(TOPICS))
        assert len(within) < 6 or row["mean_low"] <= row["mean"] <= row["mean_high"]
    assert rows.loc["all", "mean"] == pytest.approx(rows.loc["answered", "zero_filled"])  # the unanswered are worth 0


def test_the_identity_holds_in_every_system(result):
    found = result.identity()
    assert len(found) == 4
    np.testing.assert_allclose(found["all"], found["product"])
    assert (found["share"] == (FIRST > 0).mean()).all()


def test_fuller_judgements_tell_what_unanswered_queries_are_worth():
    """Zeros are what was not judged: with every passage judged, the mean over all queries is above the zero-filled one."""
    full = PLANTED.get_qrels("full")
    values = per_query(RUN, full, ["nDCG@10"], sorted(TOPICS["qid"]))["nDCG@10"].reset_index()
    ranks = SurvivorshipSubset(PLANTED, QRELS).ranks().set_index("qid")["first_relevant_rank"]
    frame = values.rename(columns={"nDCG@10": "value"}).assign(name="bm25", measure="nDCG@10")
    found = curve_of_values(frame.assign(first_relevant_rank=frame["qid"].map(ranks)), resamples=99)
    rows = found.table.set_index("subset")
    assert rows.loc["all", "mean"] > rows.loc["all", "zero_filled"] == rows.loc["answered", "zero_filled"]


def test_the_layout_of_the_appendix(result):
    table = result.appendix("nDCG@10")
    assert table["k"].tolist() == ["All", *map(str, range(10, 0, -1))]
    assert list(table.columns) == ["k", "n", "bm25", "upside down"]
    own = result.table.query("name == 'bm25' and measure == 'nDCG@10' and type == 'all types'").set_index("subset")
    assert table["bm25"].iloc[0] == own.loc["answered", "zero_filled"] and table["n"].iloc[0] == len(TOPICS)
    assert table["bm25"].iloc[1:].tolist() == own.loc[table["k"].iloc[1:], "mean"].tolist()
    zero = result.appendix("nDCG@10", unanswered="zero_fill")
    assert zero["bm25"].iloc[1:].is_monotonic_decreasing and zero["bm25"].iloc[1] == pytest.approx(table["bm25"].iloc[0])
    with pytest.raises(InputError, match="unanswered='mean'"):
        result.appendix(unanswered="mean")
    with pytest.raises(InputError, match="there is no type 'X'"):
        result.appendix(kind="X")


def test_the_published_appendix_comes_out_of_its_own_sums():
    """Values with the published stratum sums give back the published table, row All included."""
    ranker, sizes, means = "ANCE", published.SIZES, published.MRR["ANCE"][::-1]
    sums = np.diff(np.array(sizes) * means, prepend=0)
    counts = np.diff(sizes, prepend=0)
    ranks = np.repeat(np.arange(1, 11, dtype=float), counts)
    value = np.repeat(sums / counts, counts)
    unanswered = published.TOTAL - sizes[-1]
    ranks, value = (np.append(a, np.full(unanswered, fill)) for a, fill in ((ranks, np.inf), (value, 0.0)))
    frame = pd.DataFrame({"qid": np.arange(len(ranks)).astype(str), "first_relevant_rank": ranks, "value": value})
    found = curve_of_values(frame.assign(name=ranker, measure="RR@10"), resamples=1)
    table = found.appendix()
    assert table["n"].tolist() == [published.TOTAL, *sizes[::-1]]
    np.testing.assert_allclose(table[ranker].iloc[1:], published.MRR[ranker], atol=1e-9)
    assert table[ranker].iloc[0] == pytest.approx(published.MRR_ALL[ranker], abs=5e-5)
    assert found.trend["rho"].iloc[0] > 0


def test_strata_types_and_differences(result):
    strata = result.strata.query("name == 'bm25' and measure == 'nDCG@10' and type == 'all types'")
    assert strata["n"].sum() == (FIRST > 0).sum() and strata["first_relevant_rank"].tolist() == list(range(1, 11))
    by_type = result.table.query("name == 'bm25' and measure == 'nDCG@10' and subset == 'all' and type != 'all types'")
    assert by_type.set_index("type")["n"].to_dict() == TOPICS["type"].value_counts().to_dict()
    rows = result.differences.query("measure == 'nDCG@10'").set_index("subset")
    table = result.table.query("measure == 'nDCG@10' and type == 'all types'").set_index(["name", "subset"])["mean"]
    for k in ("3", "10", "answered"):
        assert rows.loc[k, "difference"] == pytest.approx(table["bm25", k] - table["upside down", k])
    tested = result.differences[result.differences["p"].notna()]
    assert len(tested) and (tested["p_corrected"] >= tested["p"] - 1e-15).all()


@functools.cache
def small_curve(baseline=None):
    """33 queries, six of which are never answered, with two systems and two measures; answers as late as place 5."""
    ranks = np.tile([1, 1, 1, 2, 2, 3, 5, 5, 2, np.inf, np.inf], 3)
    rng = np.random.default_rng(7)
    parts = [
        pd.DataFrame({
            "name": name, "measure": measure, "qid": [f"q{i:02}" for i in range(33)], "value": rng.random(33).round(3),
            "first_relevant_rank": ranks, "type": list("AABBABABAAB" * 3), "list": [f"{1 + i % 2} of 5" for i in range(33)],
        })
        for measure in ("RR@10", "AP") for name in ("one", "two")
    ]  # fmt: skip
    values = pd.concat(parts, ignore_index=True)
    backwards = values.sort_values("qid", ascending=False, kind="stable")
    return values, curve_of_values(backwards, ranks=3, level=0.8, resamples=99, seed=3, baseline=baseline)


def ends(values):
    """The interval of a mean of values from 0 to 1; none of fewer than six."""
    found = stats.ttest_1samp(values, 0).confidence_interval(0.8) if len(values) >= 6 else (np.nan, np.nan)
    return pytest.approx(tuple(np.clip(found, 0, 1)), nan_ok=True)


@pytest.mark.parametrize(("name", "measure"), [("one", "RR@10"), ("two", "AP")])
def test_every_number_of_a_small_curve(name, measure):
    """Each figure of every table from the values by scipy, at a level that is not the usual one."""
    values, found = small_curve("two")
    own = values[(values["name"] == name) & (values["measure"] == measure)]
    own = {"all types": own, "A": own[own["type"] == "A"]}

    def rows(table, kind="all types"):
        return table[(table["name"] == name) & (table["measure"] == measure) & (table["type"] == kind)]

    for kind, part in own.items():
        v, r = part["value"].to_numpy(), part["first_relevant_rank"].to_numpy()
        table = rows(found.table, kind).set_index("subset")
        assert table.index.tolist() == ["1", "2", "3", "answered", "all"]
        assert table["k"].tolist() == [1, 2, 3, np.inf, np.inf]
        within = [r <= 1, r <= 2, r <= 3, np.isfinite(r), np.ones(len(r), dtype=bool)]
        for row, chosen in zip(table.itertuples(), within):
            assert (row.n, row.total, row.share) == (chosen.sum(), len(v), chosen.mean())
            assert row.mean == pytest.approx(v[chosen].mean())
            assert (row.mean_low, row.mean_high) == ends(v[chosen])
            zero = np.where(chosen & np.isfinite(r), v, 0.0)
            assert row.zero_filled == pytest.approx(zero.mean())
            assert (row.zero_filled_low, row.zero_filled_high) == ends(zero)
            change = np.nan if row.Index == "all" else v[chosen].mean() - v[np.isfinite(r)].mean()
            assert row.change == pytest.approx(change, abs=1e-12, nan_ok=True)
        strata = rows(found.strata, kind)
        assert strata["first_relevant_rank"].tolist() == [1, 2, 3, 4, 5]  # as far as there are answers, beyond ranks=3
        assert strata["n"].tolist() == [(r == rank).sum() for rank in range(1, 6)]
        several = strata[strata["n"] > 0]
        for row in several.itertuples():
            there = v[r == row.first_relevant_rank]
            assert row.mean == pytest.approx(there.mean())
            assert (row.mean_low, row.mean_high) == ends(there)
    v, r, lists = (own["all types"][column].to_numpy() for column in ("value", "first_relevant_rank", "list"))
    expected = trend(v, r, strata=lists.tolist(), resamples=99, level=0.8, seed=3)
    row = rows(found.trend).iloc[0]
    for figure in ("rho", "low", "high", "p", "noise_floor", "slope", "n"):
        assert row[figure] == getattr(expected, figure), figure
    assert expected.rho != trend(v, r, resamples=99, level=0.8, seed=3).rho
    # The corrected p values are Holm's over the whole table.
    tested = found.trend[found.trend["p"].notna()].sort_values("p")
    holm = np.minimum(np.maximum.accumulate(tested["p"] * np.arange(len(tested), 0, -1)), 1)
    assert tested["p_corrected"].tolist() == pytest.approx(holm.tolist())


def test_every_number_of_the_differences_of_a_small_curve():
    values, found = small_curve("two")
    assert set(found.differences["name"]) == {"one"} and set(found.differences["baseline"]) == {"two"}
    assert len(found.differences) == 2 * 4
    wide = values.pivot(index="qid", columns=["measure", "name"], values="value")
    ranks = values.drop_duplicates("qid").set_index("qid")["first_relevant_rank"]
    for row in found.differences.itertuples():
        within = np.isfinite(ranks) if row.subset == "answered" else ranks <= int(row.subset)
        one, two = (wide.loc[within, (row.measure, name)] for name in ("one", "two"))
        peer = stats.ttest_rel(one, two)
        assert (row.n, row.difference) == (within.sum(), pytest.approx((one - two).mean()))
        assert (row.low, row.high, row.p) == pytest.approx((*peer.confidence_interval(0.8), peer.pvalue))
    assert small_curve()[1].differences.empty


def test_survivors_against_all_queries():
    values, found = small_curve("two")
    wide = values.pivot(index="qid", columns=["measure", "name"], values="value")
    ranks = values.drop_duplicates("qid").set_index("qid")["first_relevant_rank"]
    for baseline, count in ((None, 2 * 2 * 4), ("two", 2 * 4)):
        table = found.against_all(baseline=baseline)
        assert len(table) == count
        for row in table.itertuples():
            v = wide[row.measure, row.name] - (wide[row.measure, baseline] if baseline else 0)
            within = np.isfinite(ranks) if row.subset == "answered" else ranks <= int(row.subset)
            assert (row.n, row.total, row.baseline) == (within.sum(), 33, baseline or "")
            expected = (v[within].mean(), v.mean(), v[within].mean() - v.mean())
            assert (row.survivors, row.all, row.distortion) == pytest.approx(expected)
            assert row.low < row.distortion < row.high
    with pytest.raises(InputError, match="baseline 'three' is not a system; there are one, two"):
        found.against_all(baseline="three")


def test_the_order_of_systems_among_survivors():
    """Three queries of which one survives: there the worse system of all is the better one."""
    parts = {"good": [0.0, 1.0, 1.0], "bad": [1.0, 0.0, 0.0], "middle": [0.5, 0.5, 0.5]}
    frame = pd.concat([pd.DataFrame({"name": n, "qid": list("abc"), "value": v}) for n, v in parts.items()])
    frame = frame.assign(measure="RR@10", first_relevant_rank=[1.0, 2.0, np.inf] * 3)
    table = curve_of_values(frame, ranks=1, resamples=9).order().set_index("subset")
    assert table.loc["1", "tau"] == -1 and table.loc["1", "n"] == 1
    assert table.loc["1", "swapped"] == "good > bad; good > middle; middle > bad" and table.loc["1", "reversed"] == ""
    assert table.loc["answered", "swapped"] == ""
    rng = np.random.default_rng(1)
    many = pd.concat([frame.assign(qid=frame["qid"] + str(i)) for i in range(40)])
    found = curve_of_values(many.assign(value=many["value"] + rng.normal(0, 0.01, len(many))), ranks=1, resamples=9).order()
    assert found["reversed"].iloc[0] == found["swapped"].iloc[0] == "good > bad; good > middle; middle > bad"


@pytest.mark.parametrize("measure, least, most", [("RR@10", 0.0, 1.0), ("own", -np.inf, np.inf)])
def test_the_interval_of_a_mean_stays_within_the_range_of_its_measure(measure, least, most):
    """Student's interval over few queries goes beyond 1; a measure whose range is unknown is not cut."""
    values = {"name": "one", "measure": measure, "qid": list("123456"), "value": [0.2, 1, 1, 1, 1, 1], "first_relevant_rank": 1.0}
    frame = pd.DataFrame(values)
    found = curve_of_values(frame, ranks=1, resamples=9)
    free = stats.ttest_1samp(values["value"], 0).confidence_interval(0.95)
    low, high = max(free.low, least), min(free.high, most)
    assert free.high > 1
    for table in (found.table, found.strata[found.strata["n"] > 0]):
        np.testing.assert_allclose(table["mean_low"], low)
        np.testing.assert_allclose(table["mean_high"], high)
    np.testing.assert_allclose(found.table["zero_filled_high"], high)


def test_fewer_than_six_queries_show_nothing():
    """Two equal differences have no spread; they were an interval without width, p = 0, and a reversed order."""
    qids, first = [f"q{i:02d}" for i in range(20)], [1.0] * 2 + [5.0] * 18
    one = {"name": "A", "measure": "RR@10", "qid": qids, "value": [0.5, 0.5] + [1.0] * 18, "first_relevant_rank": first}
    other = one | {"name": "B", "value": [1.0, 1.0] + [0.5, 1 / 3] * 9}
    frame = pd.concat([pd.DataFrame(one), pd.DataFrame(other)])
    found = curve_of_values(frame, ranks=1, baseline="B", resamples=9)
    few, all_answered = (found.differences.set_index("subset").loc[subset] for subset in ("1", "answered"))
    assert few["difference"] == -0.5 and few[["low", "high", "p", "p_corrected"]].isna().all()
    assert all_answered["p"] < 0.001 and all_answered["p_corrected"] == all_answered["p"]
    assert found.order().set_index("subset")["swapped"].tolist() == ["A > B", ""] and (found.order()["reversed"] == "").all()
    rows = found.table[found.table["subset"] == "1"]
    assert rows["mean"].notna().all() and rows[["mean_low", "mean_high", "change_low", "change_high"]].isna().all(axis=None)
    assert found.against_all().set_index(["name", "subset"]).loc[("A", "1"), ["low", "high"]].isna().all()
    clustered = curve_of_values(frame.assign(cluster=frame["qid"].str[1:].astype(int) // 5), ranks=1, baseline="B", resamples=9)
    assert clustered.differences[["low", "high", "p"]].isna().all(axis=None), "four clusters"


def test_nowhere_is_never_and_no_rank_is_below_1():
    """Annotations write -1 for a query that nothing answers; it counted as answered at every k."""
    ranks = rank_annotations(
        {"s": pd.DataFrame({"qid": [f"q{i:02d}" for i in range(40)], "docno": "d", "score": 1.0})},
        pd.DataFrame({"qid": [f"q{i:02d}" for i in range(40)], "docno": "d", "label": [i % 2 for i in range(40)]}),
        labelled_by="me",
    )
    assert set(ranks["first_relevant_rank"]) == {-1, 1}
    frame = ranks.rename(columns={"system": "name"}).assign(measure="RR@10", value=[i % 2 for i in range(40)])
    first = curve_of_values(frame, ranks=1, resamples=9).table.iloc[0]
    assert (first["n"], first["total"], first["share"], first["mean"]) == (20, 40, 0.5, 1.0)
    assert survives(np.array([-1, 1, 2]), 1).tolist() == [False, True, False] and not survives(-1, None)
    for call in (
        lambda: survives(0, 1),
        lambda: curve_of_values(frame.assign(first_relevant_rank=0), ranks=1, resamples=9),
        lambda: nested_means(np.ones(2), np.array([1, 0]), [1]),
    ):
        with pytest.raises(InputError, match="is 0; ranks count from 1"):
            call()


def test_a_picture_has_intervals_from_six_queries_on():
    for n, shown in ((5, False), (6, True)):
        values = {"name": "one", "measure": "RR@10", "qid": list("123456")[:n], "value": [0.6, 1, 0.2, 0.9, 1, 0.5][:n]}
        found = curve_of_values(pd.DataFrame(values).assign(first_relevant_rank=1.0), ranks=1, resamples=9)
        row = found.strata[found.strata["n"] > 0].iloc[0]
        axes = found.plot_strata()
        drawn = np.vstack([ends for container in axes.containers for line in container.lines[2] for ends in line.get_segments()])
        ends = (row["mean_low"], row["mean_high"]) if shown else (row["mean"], row["mean"])
        assert (drawn[:, 1].min(), drawn[:, 1].max()) == pytest.approx(ends) and shown == (row["mean_low"] < row["mean"])
        plots.close(axes.figure)


def test_clusters_widen_the_intervals():
    values = small_curve()[0]
    wide = values.assign(cluster=values["qid"].map(lambda qid: f"article {int(qid[1:]) // 2}"))
    twice = pd.concat([wide, wide.assign(qid=wide["qid"] + "'")])
    found, blind = (
        curve_of_values(one, ranks=3, resamples=9, baseline="two") for one in (twice, twice.drop(columns="cluster"))
    )
    once = curve_of_values(wide, ranks=3, resamples=9, baseline="two")
    # A query that is there twice in the same article tells nothing new.
    for table in ("table", "differences"):
        one, two = getattr(found, table), getattr(once, table)
        for column in (c for c in one.columns if c.endswith(("mean", "low", "high", "difference", "change", "p"))):
            np.testing.assert_allclose(one[column], two[column], atol=1e-12)
    last = found.table["subset"] == "all"
    assert (blind.table.loc[last, "mean_high"] < found.table.loc[last, "mean_high"]).any()
    rows = found.differences.query("subset == 'answered'")
    assert (((rows["low"] > 0) | (rows["high"] < 0)) == (rows["p"] < 0.05)).all()


def test_a_cluster_that_is_no_column_is_refused():
    curve = SurvivorshipCurve({"bm25": RUN}, PLANTED, QRELS, cluster="article")
    with pytest.raises(InputError, match="cluster='article' is not a column of the topics; there are qid"):
        curve(TOPICS)
    found = SurvivorshipCurve({"bm25": RUN}, PLANTED, QRELS, cluster="type", resamples=9).evaluate(TOPICS)
    assert "over clusters by type" in found.convention and set(found.per_query["cluster"]) == set(TOPICS["type"])


@pytest.mark.parametrize("articles", [["sea", None], [7, None], [True, None]])
def test_a_topic_without_a_cluster_is_refused(articles):
    topics = TOPICS.assign(article=[articles[qid == TOPICS["qid"][1]] for qid in TOPICS["qid"]])
    curve = SurvivorshipCurve({"bm25": RUN}, PLANTED, QRELS, cluster="article")
    for call in (curve, curve.evaluate):
        with pytest.raises(InputError, match=f"topic '{TOPICS['qid'][1]}' has no 'article'; every topic needs a cluster"):
            call(topics)


def test_values_that_cannot_be_compared_are_refused():
    """A query given twice counted twice, systems over different queries had means over different ones, without a word."""
    values, _ = small_curve("two")
    lacking = values[~((values["name"] == "two") & (values["qid"] == "q03"))]
    told = r"'two' has no RR@10 for 1 of 33 queries, e.g. 'q03'; give every system a value for every query"
    for given, options, message in (
        (pd.concat([values, values.head(1)]), {}, r"query 'q00' has two values of RR@10 for 'one'"),
        (lacking, {}, told),
        (lacking, {"baseline": "one"}, told),
        (values, {"baseline": "three"}, "baseline 'three' is not a system; there are one, two"),
        (values.assign(value=[*values["value"][:-1], np.nan]), {}, r"column 'value' is missing for query 'q32', .* of 'two'"),
        (values.assign(value="high"), {}, "column 'value' is 'high', not a number, at row 0"),
    ):
        with pytest.raises(InputError, match=f"curve_of_values: {message}"):
            curve_of_values(given, ranks=2, resamples=9, **options)


def test_a_result_without_values_has_no_appendix():
    found = curve_of_values(small_curve()[0].head(0), ranks=2, resamples=9)
    with pytest.raises(InputError, match="appendix: the result holds no values"):
        found.appendix()


def test_columns_of_the_topics_stay_the_users():
    """Those that are named as columns of the result: types and clusters are read from them, and systems see no others."""
    topics = ASKED.assign(cluster=["A", "A", "B", "B"], list=["L1", "L1", "L2", "L2"], first_relevant_rank="mine")
    seen = []

    def search(asked):
        seen.append(asked)
        return RESULTS

    curve = {
        by: SurvivorshipCurve({"mine": pt.apply.generic(search)}, SHOWN, LABELS, ranks=1, by=by, resamples=9)
        for by in ("type", "cluster", "list")
    }
    found = {by: set(one(topics)["type"]) for by, one in curve.items()}
    assert found == {"type": {"all types", "A", "B"}, "cluster": {"all types", "A", "B"}, "list": {"all types", "L1", "L2"}}
    assert all(one.equals(topics) for one in seen if len(one))
    values = curve["list"].evaluate(topics).per_query
    assert values["first_relevant_rank"].tolist() == [3, 1, np.inf, np.inf]
    assert values["list"].tolist() == ["1 of 3", "1 of 2", "0 of 1", ""] and set(values["cluster"]) == {""}
    apart = SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, ranks=1, cluster="list", resamples=9).evaluate(topics)
    assert set(apart.per_query["cluster"]) == {"L1", "L2"}


def test_a_result_shows_its_trends_over_all_types():
    _, found = small_curve("two")
    rows = found.trend[found.trend["type"] == "all types"].to_dict("records")
    shown = "; ".join(f"{r['name']}: rho {r['rho']:+.3f} of {r['measure']}, p = {r['p']:.2g}" for r in rows)
    assert len(rows) == 4 and repr(found) == f"<SurvivorshipResult: {shown}>"
    more = found.trend.assign(name="third")
    assert repr(replace(found, trend=pd.concat([found.trend, more]))) == f"<SurvivorshipResult: {shown}; ...>"


def test_figures_show_the_numbers_of_their_measure():
    """Of the second measure, which is not what is drawn by default."""
    _, found = small_curve("two")
    axes = found.plot_strata(measure="AP")
    drawn = [container.lines[0].get_xydata() for container in axes.containers]
    strata, table = (part.query("measure == 'AP' and type == 'all types'") for part in (found.strata, found.table))
    for shift, name, points in zip((-0.125, 0.125), ("one", "two"), drawn, strict=True):
        own = strata[(strata["name"] == name) & (strata["n"] > 0)]
        assert points[:, 1].tolist() == own["mean"].tolist()
        # Two systems stand a quarter of a rank apart, around the rank.
        assert points[:, 0] == pytest.approx(own["first_relevant_rank"] + shift)
    assert "27 answered queries" in axes.get_xlabel() and axes.get_ylabel() == "mean AP"
    plots.close(axes.figure)
    axes = found.plot(measure="AP")
    for number, name in enumerate(("one", "two")):
        solid, dashed = axes.lines[2 * number : 2 * number + 2]
        own = table[table["name"] == name].set_index("subset")
        assert solid.get_ydata().tolist() == own.loc[["3", "2", "1"], "mean"].tolist()
        assert dashed.get_ydata().tolist() == own.loc[["answered", "3", "2", "1"], "zero_filled"].tolist()
        assert (solid.get_xdata().tolist(), list(dashed.get_xdata())) == ([1, 2, 3], [0, 1, 2, 3])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["all", "3", "2", "1"]
    assert "33 queries" in axes.get_xlabel()
    plots.close(axes.figure)
    for drawing in (found.plot, found.plot_strata):
        axes = drawing(order=["left out", "two", "one"])
        assert {line.get_color() for line in axes.lines} == {plots.colour(2), plots.colour(1)}
        assert axes.lines[0].get_color() == plots.colour(2)
        plots.close(axes.figure)


def test_a_planted_trend_is_found(result):
    row = result.trend.query("name == 'bm25' and measure == 'nDCG@10' and type == 'all types'").iloc[0]
    assert row["rho"] < -0.3 and row["p"] < 0.05 and row["low"] < row["rho"] < row["high"]
    assert "nDCG@10" in repr(result) or "RR(rel=2)@10" in repr(result)


def test_figures(result):
    for draw in (result.plot, result.plot_strata):
        axes = draw(measure="nDCG@10")
        assert draw(axes, measure="nDCG@10") is axes
        assert "n =" in axes.get_xlabel() and {"bm25", "upside down"} <= set(axes.get_legend_handles_labels()[1])
        plots.close(axes.figure)


def test_queries_that_nobody_was_shown(caplog):
    found = SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, ranks=3, resamples=9).evaluate(ASKED)
    assert found.notes == ("1 of 4 queries are not among the candidates and count as unanswered.",)
    assert found.table.query("type == 'all types'").set_index("subset").loc["3", ["n", "total"]].tolist() == [2, 4]
    # Labels may be text, and of several for a pair the highest counts, for ranks and quality alike.
    twice = pd.concat([LABELS, LABELS.assign(label=0)]).astype({"label": "str"})
    for labels in (twice, twice[::-1]):
        assert SurvivorshipCurve({"mine": RESULTS}, SHOWN, labels, ranks=3, resamples=9).evaluate(ASKED).table.equals(found.table)
    with pytest.raises(InputError, match="a system is named 'k'"):
        SurvivorshipCurve({"k": RESULTS}, SHOWN, LABELS, ranks=3, resamples=9).evaluate(ASKED).appendix()
    proxied = SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, ranks=3, resamples=9, proxy="a run").evaluate(ASKED)
    assert any("proxy: a run" in note for note in proxied.notes) and "proxy: a run" in proxied.convention


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (RESULTS.iloc[:0], "the results of 'mine' are empty, so all its means would be 0"),
        (RESULTS.assign(qid="x" + RESULTS["qid"]), r"of 'mine' \(e.g. 'xq1'\) have no qid of the topics \(e.g. 'q1'\)"),
    ],
)
def test_results_without_a_common_query_are_refused(results, message):
    curve = SurvivorshipCurve({"mine": results}, SHOWN, LABELS)
    for ask in (curve, curve.evaluate):
        with pytest.raises(InputError, match=message):
            ask(ASKED)


def test_means_of_zero_for_lack_of_results_are_told(caplog):
    """Half of the answered queries missing halves the mean; no common document makes it 0. Neither is silent."""
    whole = SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, resamples=9).evaluate(ASKED)
    half = SurvivorshipCurve({"mine": RESULTS[RESULTS["qid"] == "q1"]}, SHOWN, LABELS, resamples=9).evaluate(ASKED)
    curve = SurvivorshipCurve({"mine": RESULTS.assign(docno="other-" + RESULTS["docno"])}, SHOWN, LABELS, resamples=9)
    other = curve.evaluate(ASKED)
    tables = [found.table.query("type == 'all types' and subset == 'answered'") for found in (whole, half, other)]
    means = [table["mean"].iloc[0] for table in tables]
    assert means == [0.75, 0.25, 0.0]
    assert half.notes[-1] == "1 of 2 queries that have a relevant document have no results of 'mine' and count as 0."
    assert "No document of 'mine' (e.g. 'other-b') is judged (e.g. 'c'), so its means are 0" in other.notes[-1]
    caplog.clear()
    curve(ASKED)
    assert "No document of 'mine'" in caplog.text  # a table has no notes


def test_nothing_is_answered(caplog):
    nothing = SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS.assign(label=0), ranks=2, resamples=9).evaluate(ASKED)
    rows = nothing.table.query("type == 'all types'").set_index("subset")
    assert rows.loc["answered", "n"] == 0 and np.isnan(rows.loc["answered", "mean"]) and rows.loc["answered", "zero_filled"] == 0
    assert np.isnan(nothing.trend["rho"]).all() and "conditional means are NaN" in caplog.text


def test_what_a_curve_refuses():
    with pytest.raises(InputError, match="baseline 'x' is not a system; there are mine"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, baseline="x")(ASKED)
    with pytest.raises(InputError, match="'system 1' is an int"):
        SurvivorshipCurve(3, SHOWN, LABELS)(ASKED)
    with pytest.raises(InputError, match=r"must be a list, such as \['RR@10'\]"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, measures="RR@10")(ASKED)
    with pytest.raises(InputError, match=r"level=1\.0"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, level=1.0)(ASKED)
    with pytest.raises(InputError, match=r"resamples=9\.5"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, resamples=9.5)(ASKED)
    with pytest.raises(InputError, match=r"ranks=2\.5"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, ranks=2.5)(ASKED)
    with pytest.raises(InputError, match="ranks=0"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS, ranks=0)(ASKED)
    with pytest.raises(InputError, match="there are no topics"):
        SurvivorshipCurve({"mine": RESULTS}, SHOWN, LABELS).evaluate(ASKED.iloc[:0])


# ----------------------------------------------------------------------------------------------------- training sets


def test_training_sets_come_with_one_of_equal_size():
    subset = SurvivorshipSubset(PLANTED, QRELS)
    found = list(training_subsets(RUN, subset, [2, 6, None], seed=3))
    assert [(s.k, s.kind) for s in found] == [(2, FILTERED), (2, DRAWN), (6, FILTERED), (6, DRAWN), (np.inf, FILTERED)]
    two, two_drawn, six, six_drawn, every = (set(s.frame["qid"]) for s in found)
    assert two == set(FIRST[(FIRST > 0) & (FIRST <= 2)].index) and len(two_drawn) == len(two) == found[0].queries
    assert two <= six <= every and two_drawn <= six_drawn <= every and two_drawn != two
    sized = {(s.k, s.kind): s for s in training_subsets(RUN, subset, [2, 6, None], seed=3, later=True, size=4)}
    assert {s.queries for s in sized.values()} == {4}
    assert list(sized) == [(k, kind) for k in (2.0, 6.0) for kind in (FILTERED, DRAWN, LATER)] + [(np.inf, FILTERED)]
    for (k, kind), one in sized.items():
        ranks = one.frame.drop_duplicates("qid")["first_relevant_rank"]
        assert one.queries == len(ranks) and (kind != FILTERED or (ranks <= k).all()) and (kind != LATER or (ranks > k).all())
    # What is drawn of all is the same at every threshold, and is what all are cut down to.
    assert set(sized[2.0, DRAWN].frame["qid"]) == set(sized[6.0, DRAWN].frame["qid"]) == set(sized[np.inf, FILTERED].frame["qid"])
    whole = {(s.k, s.kind): s for s in training_subsets(RUN, subset, [2], later=True)}
    assert whole[2.0, FILTERED].queries + whole[2.0, LATER].queries == found[-1].queries
    assert [s.k for s in training_subsets(RUN, subset, np.array([2, 6]), seed=3)] == [2, 2, 6, 6]
    with pytest.raises(InputError, match="ranks=3 must be a list"):
        list(training_subsets(RUN, subset, 3))
    with pytest.raises(InputError, match="size=0"):
        list(training_subsets(RUN, subset, [2], size=0))
    again = list(training_subsets(RUN.sample(frac=1, random_state=0), subset, [2], seed=3))
    assert set(again[1].frame["qid"]) == two_drawn
    with pytest.raises(InputError, match="no query of the frame was answered"):
        list(training_subsets(ASKED, subset, [1]))
