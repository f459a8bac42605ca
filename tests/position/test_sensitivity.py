"""PositionSensitivity against pipelines, brute force and scipy."""

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import AnswerPositions, Collection, InputError, PositionSensitivity, RotatePassages, System
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.scripts import sentences
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import bootstrap_interval, exchange_test, inverted_interval
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.position.formulas import psi
from pyterrier_debias.position.measures.sensitivity_result import passage_clusters, relative_change
from tests.position.toy import Overlap, collection, world

CANDIDATES, QRELS, ANSWERS = world(3)
EARLY = Overlap(early=1.0, noise=0.3)
FAST = {"resamples": 199}


@pytest.fixture(scope="module")
def result():
    return PositionSensitivity(EARLY, answers=ANSWERS, **FAST).evaluate(CANDIDATES, QRELS)


def arm(arms, name, draw=0):
    frame = arms[(arms["arm"] == name) & (arms["draw"] == draw)]
    return frame[["qid", "docno", "score", "rank"]].sort_values(["qid", "rank"], ignore_index=True)


def same_ranking(left, right):
    columns = ["qid", "docno", "score", "rank"]
    right = right[columns].sort_values(["qid", "rank"], ignore_index=True)
    pd.testing.assert_frame_equal(left, right, check_dtype=False)


class Spy(Stage):
    """Keeps what a ranker was given."""

    def __init__(self, ranker, seen):
        self.ranker = ranker
        self.seen = seen

    def transform(self, inp):
        if len(inp):  # inspection asks with empty frames
            self.seen.append(inp)
        return self.ranker(inp)


# ---------------------------------------------------------------------------------------------- rankings


def test_arms_are_pipelines(result):
    same_ranking(arm(result.arms, "original"), EARLY(CANDIDATES))
    for draw in range(3):
        same_ranking(arm(result.arms, "rotated", draw), (RotatePassages(draw=draw) >> EARLY)(CANDIDATES))


def test_placed_arms_change_the_passages_with_answers_only(result):
    spans = ANSWERS.set_index(["qid", "docno"])
    for where in psi.PLACEMENTS:
        texts = [
            psi.place(t, spans.loc[(q, d), "start"], spans.loc[(q, d), "end"], where, sentences) if (q, d) in spans.index else t
            for q, d, t in CANDIDATES[["qid", "docno", "text"]].itertuples(index=False)
        ]
        same_ranking(arm(result.arms, where), EARLY(CANDIDATES.assign(text=texts)))


def test_passages_too_short_for_three_places_stay_as_they_are():
    texts = ["Tea is hot. Boats are wet.", "Tea is old. It came far. Many drink it.", "No one knows."]
    candidates = pd.DataFrame({"qid": ["q1", "q2", "q3"], "query": "tea", "docno": ["d1", "d2", "d3"], "text": texts})
    answers = pd.DataFrame({"qid": ["q1", "q2", "q3"], "docno": ["d1", "d2", "d3"], "answer": ["hot", "old", "No"]})
    seen = []
    probe = PositionSensitivity(Spy(EARLY, seen), answers=answers, draws=1, **FAST)
    found = probe.evaluate(candidates, answers.assign(label=1))
    placed = seen[0][seen[0]["qid"].str.contains("%r(?:start|middle|end)")]
    assert set(placed["text"]) == {texts[1], "Many drink it. Tea is old. It came far.", "It came far. Many drink it. Tea is old."}
    assert (found.placements["n"] == 1).all()
    values = found.per_query[found.per_query["measure"] == "nDCG@10"].set_index("qid")
    assert values["end"].notna().tolist() == [False, True, False]


def test_answers_that_are_in_no_relevant_candidate_are_noted(result):
    """Otherwise, tables of places and PSI would be missing without a reason."""
    told = "No given answer is in the text of a relevant candidate"
    for wrong in (ANSWERS.assign(answer="nowhere", start=-1, end=-1), ANSWERS.assign(qid="another")):
        found = PositionSensitivity(EARLY, answers=wrong, draws=1, **FAST).evaluate(CANDIDATES, QRELS)
        assert found.psi.empty and found.placements.empty and sum(told in note for note in found.notes) == 1
    without = PositionSensitivity(EARLY, draws=1, **FAST).evaluate(CANDIDATES, QRELS)
    assert not any(told in note for note in (*result.notes, *without.notes))


def test_offsets_in_another_text_are_not_used():
    """The candidates were rotated, or have titles, and the offsets of the answers are those of the dataset."""
    strings, titled = ANSWERS[["qid", "docno", "answer"]], CANDIDATES.assign(text="Of words. " + CANDIDATES["text"])
    for candidates in (titled, RotatePassages(seed=1, unit="sentence")(CANDIDATES)):
        marked, searched = (
            PositionSensitivity(EARLY, answers=known, draws=1, **FAST).evaluate(candidates, QRELS) for known in (ANSWERS, strings)
        )
        pd.testing.assert_frame_equal(marked.table, searched.table)
        pd.testing.assert_frame_equal(marked.psi, searched.psi)
        assert any("answers are not at their offsets" in note for note in marked.notes)
        assert not any("offsets" in note for note in searched.notes)


def test_answers_can_be_placed_by_words():
    spans = ANSWERS.set_index(["qid", "docno"])
    probe = PositionSensitivity(EARLY, answers=ANSWERS, placement_unit="word", placements=["start"], draws=1)
    found = probe.transform(CANDIDATES)
    texts = [
        psi.place(t, spans.loc[(q, d), "start"], spans.loc[(q, d), "end"], "start", str.split) if (q, d) in spans.index else t
        for q, d, t in CANDIDATES[["qid", "docno", "text"]].itertuples(index=False)
    ]
    same_ranking(arm(found, "start"), EARLY(CANDIDATES.assign(text=texts)))


def test_the_black_box_sees_variants_under_names_of_their_own():
    seen = []
    columns = CANDIDATES.assign(url=CANDIDATES["docno"])
    PositionSensitivity(Spy(EARLY, seen), answers=ANSWERS, draws=2).transform(columns)
    assert len(seen) == 1
    given = seen[0]
    assert set(columns.columns) == set(given.columns)
    assert not given.duplicated(["qid", "docno"]).any()
    # A document name stands for one text, so no cache keyed by it can hide a change; every list keeps the words of its query.
    assert (given.groupby("docno")["text"].nunique() == 1).all()
    queries = CANDIDATES.drop_duplicates("qid").set_index("qid")["query"]
    assert (given["query"] == given["qid"].str.split("%").str[0].map(queries)).all()
    variants = set(given["qid"].str.partition("%")[2])
    assert variants == {"", "r0", "r1", "rstart", "rmiddle", "rend", "rcontrol", "rsame"}
    # All variants of a document stand side by side.
    assert (given["url"] != given["url"].shift()).sum() == len(CANDIDATES)


def test_names_of_variants_change_with_the_text():
    names = []
    for seed in (1, 2):
        seen = []
        PositionSensitivity(Spy(EARLY, seen), rotation=RotatePassages(seed=seed), draws=1).transform(CANDIDATES)
        names.append({(d, t) for d, t in seen[0][["docno", "text"]].itertuples(index=False)})
    texts = dict(names[0])
    assert all(texts.get(docno, text) == text for docno, text in names[1])


def test_no_cache_hides_the_change(result):
    class Cached(Stage):
        """A cache that goes by (query, docno), as PyTerrier's does, and outlives the call."""

        def __init__(self, ranker, known):
            self.ranker = ranker
            self.known = known

        def transform(self, inp):
            new = self.ranker(inp)
            for q, d, s in new[["query", "docno", "score"]].itertuples(index=False):
                self.known.setdefault((q, d), s)
            return ranked(new.assign(score=[self.known[q, d] for q, d in zip(new["query"], new["docno"])]))

    cache = Cached(EARLY, {})
    cache(CANDIDATES)
    PositionSensitivity(cache, rotation=RotatePassages(seed=5)).transform(CANDIDATES)
    cached = PositionSensitivity(cache, answers=ANSWERS, **FAST).evaluate(CANDIDATES, QRELS)
    pd.testing.assert_frame_equal(cached.arms, result.arms)


def test_size_of_calls_changes_nothing(result):
    seen = []
    small = PositionSensitivity(Spy(EARLY, seen), answers=ANSWERS, queries_per_call=7, **FAST).evaluate(CANDIDATES, QRELS)
    assert len(seen) == 5
    pd.testing.assert_frame_equal(small.table, result.table)
    pd.testing.assert_frame_equal(small.displacement, result.displacement)


def test_depth_cuts_by_rank():
    shuffled = CANDIDATES.sample(frac=1, random_state=1)
    arms = PositionSensitivity(EARLY, depth=4, draws=1).transform(shuffled)
    assert set(arms["docno"]) == {f"d{q}_{d}" for q in range(30) for d in range(4)}
    unscored = PositionSensitivity(EARLY, depth=4, draws=1).transform(CANDIDATES.drop(columns=["score", "rank"]))
    assert set(unscored["docno"]) == set(arms["docno"])


def test_pipelines_and_systems_are_taken_apart(result):
    dataset = collection(3)
    first = pt.Transformer.from_df(CANDIDATES[["qid", "docno", "score", "rank"]]) >> dataset.text_loader()
    topics = dataset.get_topics()
    for pipeline in (first >> EARLY, System("mine", first, EARLY), EARLY):
        found = PositionSensitivity(pipeline, dataset=dataset, **FAST).evaluate(topics)
        pd.testing.assert_frame_equal(found.table, result.table)
    given = PositionSensitivity(first >> EARLY, answers=ANSWERS, **FAST).evaluate(CANDIDATES, QRELS)
    pd.testing.assert_frame_equal(given.table, result.table)


# ---------------------------------------------------------------------------------------------- values and tests


def test_a_ranker_of_given_candidates_needs_no_run_of_its_dataset(result):
    """The dataset is asked for judgements and answers only."""
    known = collection(3)
    bare = Collection(
        "bare", corpus=known.get_corpus(), topics={"test": known.get_topics()}, qrels={"test": QRELS}, answers=ANSWERS
    )
    found = PositionSensitivity(EARLY, dataset=bare, **FAST).evaluate(CANDIDATES)
    pd.testing.assert_frame_equal(found.table, result.table)
    pd.testing.assert_frame_equal(found.psi, result.psi)
    with pytest.raises(InputError, match="the collection has no run for it to rank"):
        PositionSensitivity(EARLY, dataset=bare, **FAST).evaluate(bare.get_topics())


def test_values_are_those_of_experiments(result):
    topics = CANDIDATES[["qid", "query"]].drop_duplicates()
    first = pt.Transformer.from_df(CANDIDATES)
    systems = [first >> EARLY, *[first >> RotatePassages(draw=k) >> EARLY for k in range(3)]]
    measures = [pt.measures.nDCG @ 10, pt.measures.RR @ 10, pt.measures.R @ 10]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        means = pt.Experiment(systems, topics, QRELS, measures)
    for measure in ("nDCG@10", "RR@10", "R@10"):
        row = result.table[(result.table["comparison"] == "rotated - original") & (result.table["measure"] == measure)].iloc[0]
        before, after = means[measure].iloc[0], means[measure].iloc[1:].mean()
        assert row["before"] == pytest.approx(before)
        assert row["after"] == pytest.approx(after)
        assert row["difference"] == pytest.approx(after - before)
        assert row["delta"] == pytest.approx(before / after - 1)
        assert row["low"] < row["difference"] < row["high"]
        assert row["delta_low"] < row["delta"] < row["delta_high"]


def test_t_is_scipys_over_queries(result):
    values = result.per_query[result.per_query["measure"] == "nDCG@10"]
    row = result.table.iloc[0]
    assert row["p_t"] == pytest.approx(stats.ttest_rel(values["rotated"], values["original"]).pvalue)
    assert row["n"] == len(values) == 30
    assert np.allclose(values["rotated"], values[["rotated_0", "rotated_1", "rotated_2"]].mean(axis=1))
    placed = result.table[result.table["comparison"] == "end - start"].iloc[0]
    assert placed["p_t"] == pytest.approx(stats.ttest_rel(values["end"], values["start"]).pvalue)
    assert placed["difference"] < -0.1


@pytest.mark.parametrize(("comparison", "measure"), [("rotated - original", "RR@10"), ("end - start", "nDCG@10")])
def test_intervals_and_tests_are_those_of_the_statistics(result, comparison, measure):
    values = result.per_query[result.per_query["measure"] == measure]
    columns = ["start", "end"] if comparison == "end - start" else ["original", "rotated_0", "rotated_1", "rotated_2"]
    table = values[columns].to_numpy(dtype=float)
    row = result.table.query(f"comparison == '{comparison}' and measure == '{measure}'").iloc[0]
    interval = inverted_interval(table, resamples=199, least=-1, most=1)
    assert (row["low"], row["high"]) == (interval.low, interval.high)
    assert row["p"] == exchange_test(table, resamples=199).p
    both = np.column_stack([table[:, 0], table[:, 1:].mean(axis=1)])
    delta = bootstrap_interval(both, relative_change, method="percentile", resamples=199)
    assert (row["delta_low"], row["delta_high"]) == pytest.approx((delta.low, delta.high))
    assert row["changed"] == (table != table[:, :1]).any(axis=1).sum() and (row["changed"] < 30) == (measure == "RR@10")
    assert (row["before"], row["after"]) == pytest.approx(tuple(both.mean(axis=0)))


def test_places_and_buckets_have_intervals_of_their_own(result):
    values = result.per_query[result.per_query["measure"] == "nDCG@10"].set_index("qid")
    start = ANSWERS.groupby("qid")["start"].mean()[values.index]
    bucket, place = result.buckets.iloc[0], result.placements.iloc[-1]
    inside = (start >= bucket["left"]) & (start < bucket["right"])
    for row, own in ((bucket, values.loc[inside, "original"]), (place, values[place["placement"]])):
        expected = bootstrap_interval(own.to_numpy(), resamples=199)
        assert (row["value"], row["low"], row["high"]) == (expected.estimate, expected.low, expected.high)
        assert row["n"] == len(own)


def test_a_result_says_what_it_holds(result):
    assert "nDCG@10" in repr(result)
    assert "30 queries" in repr(result)


def test_delta_is_the_papers():
    # Table 4 of Hofstätter et al. 2021: BERT_CAT, MS MARCO, trained on original passages.
    assert relative_change([0.432], [0.395]) == pytest.approx(0.094, abs=5e-4)
    assert relative_change([0.372], [0.336]) == pytest.approx(0.107, abs=5e-4)
    assert np.isnan(relative_change([0.4], [0.0]))


def test_a_ranker_that_sees_no_positions_does_not_change():
    blind = PositionSensitivity(Overlap(), answers=ANSWERS, **FAST).evaluate(CANDIDATES, QRELS)
    assert (blind.table[["difference", "low", "high", "delta"]] == 0).all(axis=None)
    assert blind.table[["p", "p_t"]].isna().all(axis=None)
    assert "never saw the rotated passages" in blind.untested
    assert blind.notes[0].startswith("No score changed when passages were rotated")
    assert "not tested" in repr(blind) and "nan" not in repr(blind)
    assert (blind.displacement["displacement"] == 0).all()
    assert np.isnan(blind.displacement_summary()["p"])
    placed = blind.psi[blind.psi["answers"] == "placed"].iloc[0]
    found = blind.psi[blind.psi["answers"] == "as found"].iloc[0]
    assert found["blind_floor"] == pytest.approx(found["value"])
    assert placed["value"] == placed["noise_floor"] == 0
    assert np.isnan([found["p_blind"], placed["p"]]).all() and found["p"] > 0


def test_queries_without_candidates_count_zero():
    topics = CANDIDATES[["qid", "query"]].drop_duplicates()
    topics = pd.concat([topics, pd.DataFrame({"qid": ["lost", "unjudged"], "query": "x"})])
    qrels = pd.concat([QRELS, pd.DataFrame({"qid": ["lost"], "docno": ["d"], "label": [1]})])
    found = PositionSensitivity(EARLY, **FAST).evaluate(CANDIDATES, qrels, topics=topics)
    values = found.per_query.set_index(["measure", "qid"])
    assert values.loc[("nDCG@10", "lost"), ["original", "rotated", "difference"]].tolist() == [0, 0, 0]
    assert "unjudged" not in set(found.per_query["qid"])
    assert found.table["n"].iloc[0] == 31
    assert any("1 of 31 judged queries" in note for note in found.notes)


def test_unjudged_queries_are_not_ranked():
    seen = []
    qrels = QRELS[QRELS["qid"].isin(["q3", "q4"])]
    found = PositionSensitivity(Spy(EARLY, seen), **FAST).evaluate(CANDIDATES, qrels)
    assert set(seen[0]["query"]) == {"a3 b3 c3", "a4 b4 c4"}
    assert found.table["n"].iloc[0] == 2


def test_a_constant_loss_of_few_queries_is_no_proof():
    candidates, qrels, _ = world(1, queries=2)
    originals = set(candidates["text"])
    first = {" ".join(sorted(t.split())) for t, d in zip(candidates["text"], candidates["docno"]) if d.endswith("_0")}
    one_first = pt.apply.doc_score(
        lambda row: float((" ".join(sorted(row["text"].split())) in first) == (row["text"] in originals))
    )
    qrels = qrels[qrels["docno"].str.endswith("_0")]
    turned = RotatePassages(allow_identity=False)
    found = PositionSensitivity(one_first, rotation=turned, draws=1, measures=["RR@1"]).evaluate(candidates, qrels)
    assert found.table.iloc[0]["difference"] == -1
    assert found.table.iloc[0]["p"] == 0.5  # two of the four ways to choose an original are as extreme


# ---------------------------------------------------------------------------------------------- PSI and placement


def test_buckets_are_groups_of_queries(result):
    values = result.per_query[result.per_query["measure"] == "nDCG@10"].set_index("qid")
    start = ANSWERS.groupby("qid")["start"].mean()
    for _, bucket in result.buckets.iterrows():
        last = bucket["bucket"] == len(result.buckets) - 1
        inside = start[(start >= bucket["left"]) & ((start <= bucket["right"]) if last else (start < bucket["right"]))].index
        assert bucket["n"] == len(inside)
        assert bucket["value"] == pytest.approx(values.loc[inside, "original"].mean())
    found = result.psi[result.psi["answers"] == "as found"].iloc[0]
    assert found["value"] == pytest.approx(1 - result.buckets["value"].min() / result.buckets["value"].max())
    assert found["n"] == 30


def test_placements_are_means_over_the_same_queries(result):
    values = result.per_query[result.per_query["measure"] == "nDCG@10"]
    means = values[list(psi.PLACEMENTS)].mean()
    assert np.allclose(result.placements.set_index("placement")["value"], means)
    assert result.psi["value"].iloc[-1] == pytest.approx(1 - means.min() / means.max())
    assert result.psi["p"].iloc[-1] <= 0.01


@pytest.mark.parametrize(("unit", "column"), [("words", "position"), ("relative", "relative")])
def test_units_of_buckets(unit, column):
    found = PositionSensitivity(EARLY, answers=ANSWERS, bucket_unit=unit, buckets=[0, 0.25, 5, 10, 40], **FAST)
    found = found.evaluate(CANDIDATES, QRELS)
    positions = AnswerPositions()(ANSWERS.merge(CANDIDATES[["qid", "docno", "text"]])).groupby("qid")[column].mean()
    edges = [*found.buckets["left"], found.buckets["right"].iloc[-1]]
    counts = [((positions >= a) & (positions < b)).sum() for a, b in itertools.pairwise(edges)]
    assert found.buckets["n"].tolist() == counts


def test_answers_of_irrelevant_passages_play_no_part():
    other = ANSWERS.assign(docno=ANSWERS["docno"].str.replace("_0", "_9").str.replace("_1", "_8"), start=-1, end=-1)
    texts = CANDIDATES.set_index("docno")["text"]
    other["answer"] = [texts[docno].split()[3] for docno in other["docno"]]
    found = PositionSensitivity(EARLY, answers=other, **FAST).evaluate(CANDIDATES, QRELS)
    assert found.psi.empty
    assert found.placements.empty
    assert set(found.table["comparison"]) == {"rotated - original"}


def test_without_answers_there_is_rotation_only():
    found = PositionSensitivity(EARLY, **FAST).evaluate(CANDIDATES, QRELS)
    assert set(found.arms["arm"]) == {"original", "rotated"}
    assert found.buckets.empty
    assert found.per_query[["start", "middle", "end"]].isna().all(axis=None)


# ---------------------------------------------------------------------------------------------- displacement


def one_rotated(ranker, qid, docno, draw):
    """The rank of one passage that is rotated alone, by running the whole list again."""
    part = CANDIDATES[CANDIDATES["qid"] == qid]
    rotated = RotatePassages(draw=draw)(part)["text"]
    out = ranker(part.assign(text=rotated.where(part["docno"] == docno, part["text"])))
    found = out.loc[out["docno"] == docno, "rank"]
    return int(found.iloc[0]) if len(found) else len(out)


def test_displacement_is_that_of_whole_lists(result):
    original = EARLY(CANDIDATES).set_index(["qid", "docno"])["rank"]
    assert len(result.displacement) == len(QRELS) * 3
    for row in result.displacement.sample(40, random_state=0).itertuples():
        assert row.before == original[row.qid, row.docno]
        assert row.after == one_rotated(EARLY, row.qid, row.docno, row.draw)
        assert row.displacement == row.after - row.before


def test_summary_of_displacement(result):
    summary, frame = result.displacement_summary(), result.displacement
    by_query = frame.groupby("qid")["displacement"].mean()
    assert summary["mean"] == pytest.approx(by_query.mean())
    assert summary["n"] == 30
    assert summary["passages"] == 60
    assert summary["down"] == pytest.approx((frame["displacement"] > 0).mean())
    assert summary["q50"] == frame["displacement"].median()
    assert summary["low"] < summary["mean"] < summary["high"]


def test_every_number_of_the_displacement(result):
    """Four queries of one passage and one of two, two draws each, with passages that leave the first ten and enter them."""
    before = {("q1", "a"): 9, ("q2", "b"): 8, ("q3", "c"): 10, ("q4", "d"): 3, ("q5", "e"): 0, ("q5", "f"): 12}
    after = {("q1", "a"): (10, 12), ("q2", "b"): (9, 9), ("q3", "c"): (11, 9), ("q4", "d"): (3, 3)}
    after |= {("q5", "e"): (2, 10), ("q5", "f"): (12, 11)}
    rows = [(*pair, draw, before[pair], there) for pair, places in after.items() for draw, there in enumerate(places)]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "draw", "before", "after"])
    frame = frame.assign(displacement=frame["after"] - frame["before"])
    summary = replace(result, displacement=frame, level=0.8, resamples=99).displacement_summary()
    moved = np.array([1, 3, 1, 1, 1, -1, 0, 0, 2, 10, 0, -1])
    assert frame["displacement"].tolist() == moved.tolist()
    values = np.array([[9, 10, 12], [8, 9, 9], [10, 11, 9], [3, 3, 3], [6, 7, 10.5]])
    assert summary["mean"] == pytest.approx(np.mean(values[:, 1:].mean(axis=1) - values[:, 0]))
    assert summary[["n", "passages"]].tolist() == [5, 6]
    # Nine to ten and to twelve, and nought to ten, leave the first ten; ten to eleven was not among them.
    assert summary[["down", "up", "left_top_10"]].tolist() == pytest.approx([7 / 12, 2 / 12, 3 / 12])
    names = [name for name in summary.index if name.startswith("q")]
    assert names == ["q05", "q25", "q50", "q75", "q95"]
    assert summary[names].tolist() == pytest.approx(np.quantile(moved, [0.05, 0.25, 0.5, 0.75, 0.95]).tolist())
    assert summary["p"] == exchange_test(values, resamples=99, seed=result.seed).p
    furthest = float(result.arms["rank"].max())
    interval = inverted_interval(values, level=0.8, resamples=99, seed=result.seed, least=-furthest, most=furthest)
    assert (summary["low"], summary["high"]) == pytest.approx((interval.low, interval.high), nan_ok=True)


def shared_world(passages=24, questions=6, others=8):
    """Several questions about each passage, among others that are not judged."""
    rng = np.random.default_rng(0)

    def text():
        return " ".join(f"w{i}" for i in rng.integers(0, 200, 30))

    texts, rows = [text() for _ in range(passages)], []
    for number in range(passages * questions):
        qid, passage = f"q{number}", number % passages
        rows.append((qid, f"question {number}", f"d{passage}", texts[passage]))
        rows += [(qid, f"question {number}", f"o{number}_{other}", text()) for other in range(others)]
    candidates = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])
    qrels = candidates.loc[candidates["docno"].str.startswith("d"), ["qid", "docno"]].assign(label=1)
    return candidates, qrels.reset_index(drop=True)


#: Scores a text, whatever the question: an order of words that it likes moves all questions about a passage.
BY_TEXT = pt.apply.doc_score(lambda row: float(keyed_hash(0, row["text"]) % 1000))


def test_questions_about_one_passage_are_tested_together():
    """All texts are random rotations, so nothing is planted; a passage has the same rotation for each of its questions."""
    candidates, qrels = shared_world()
    probe = PositionSensitivity(BY_TEXT, draws=12, measures=["nDCG@10"], resamples=99)
    found = probe.evaluate(candidates, qrels)
    places = found.displacement.pivot_table(index=["docno", "qid"], columns="draw", values="after")
    of, alarms, nulls = pd.factorize(places.index.get_level_values("docno"))[0], 0, 100
    for seed in range(nulls):
        order = np.random.default_rng([seed, 1]).permuted(np.tile(np.arange(12), (24, 1)), axis=1)[of, :4]
        drawn = np.take_along_axis(places.to_numpy(), order, axis=1)
        null = pd.DataFrame(drawn[:, 1:], index=places.index).stack().rename_axis(["docno", "qid", "draw"]).rename("after")
        null = null.reset_index().assign(before=np.repeat(drawn[:, 0], 3), displacement=0)
        summary = replace(found, displacement=null, resamples=199, seed=seed).displacement_summary()
        alarms += summary["p"] <= 0.05
        assert (summary["p"] <= 0.05) == (summary["low"] > 0 or summary["high"] < 0)
    assert stats.binomtest(int(alarms), nulls, 0.05).pvalue > 0.01


def test_clusters_are_those_of_shared_passages(result):
    candidates, qrels = shared_world()
    found = PositionSensitivity(BY_TEXT, **FAST).evaluate(candidates, qrels)
    assert found.clusters["q25"] == "q1" and found.clusters.nunique() == 24
    assert "as 24 clusters of queries" in found.notes[-1]
    values = found.per_query[found.per_query["measure"] == "RR@10"]
    table = values[["original", "rotated_0", "rotated_1", "rotated_2"]].to_numpy()
    row, clusters = found.table.set_index("measure").loc["RR@10"], found.clusters.loc[values["qid"]]
    assert row["p"] == exchange_test(table, clusters=clusters, resamples=199).p != exchange_test(table, resamples=199).p
    ends = inverted_interval(table, clusters=clusters, resamples=199, least=-1, most=1)
    assert (row["low"], row["high"]) == (ends.low, ends.high)
    assert result.clusters is None
    own = PositionSensitivity(BY_TEXT, rotation=RotatePassages(scope="pair"), **FAST).evaluate(candidates, qrels)
    assert own.clusters is None


def test_queries_that_share_half_of_their_passages_are_one_cluster():
    relevant = {"1": "a", "2": "ab", "3": "bc", "4": "defgh", "5": "dijkl", "6": "ab", "7": "m", "8": ""}
    qrels = pd.DataFrame([(qid, docno, 1) for qid, own in relevant.items() for docno in own], columns=["qid", "docno", "label"])
    qrels = pd.concat([qrels, pd.DataFrame({"qid": ["8", "0"], "docno": ["m", "m"], "label": [0, 1]})])
    found = passage_clusters(qrels, list("12345678"))
    assert found.to_dict() == {"1": "1", "2": "1", "3": "1", "4": "4", "5": "5", "6": "1", "7": "7", "8": "8"}
    assert passage_clusters(qrels, ["1", "4", "5", "7"]) is None  # one of five in common


def scale(frame):
    return ranked(EARLY(frame).assign(score=lambda f: (f["score"] - f["score"].mean()) / f["score"].std()))


SCALED = pt.apply.by_query(scale, add_ranks=False)
FIRST_FIVE = EARLY >> pt.apply.generic(lambda frame: frame[frame["rank"] < 5])


@pytest.mark.parametrize("ranker", [SCALED, FIRST_FIVE], ids=["scaled by list", "cut"])
def test_rankers_of_whole_lists(ranker):
    found = PositionSensitivity(ranker, **FAST).evaluate(CANDIDATES, QRELS)
    same_ranking(arm(found.arms, "original"), ranker(CANDIDATES))
    same_ranking(arm(found.arms, "rotated", 1), (RotatePassages(draw=1) >> ranker)(CANDIDATES))
    assert "whole lists" in found.notes[0]
    assert len(found.displacement) == 30 * 3  # one passage a query
    for row in found.displacement.sample(20, random_state=0).itertuples():
        assert row.after == one_rotated(ranker, row.qid, row.docno, row.draw)


def test_cut_offs_at_the_end_leave_the_displacement_as_it_is():
    cut = EARLY % 7 % 3
    found, whole = (PositionSensitivity(one, **FAST).evaluate(CANDIDATES, QRELS) for one in (cut, EARLY))
    same_ranking(arm(found.arms, "original"), cut(CANDIDATES))
    same_ranking(arm(found.arms, "rotated", 1), (RotatePassages(draw=1) >> cut)(CANDIDATES))
    assert found.notes == whole.notes and found.cut_off == 0
    pd.testing.assert_frame_equal(found.displacement, whole.displacement)
    pd.testing.assert_series_equal(found.displacement_summary(), whole.displacement_summary())
    assert (found.table["before"] < whole.table["before"]).any(), "the measures are those of the first three documents"


def test_without_the_ranks_of_passages_that_are_left_out_there_is_no_interval():
    found = PositionSensitivity(FIRST_FIVE, **FAST).evaluate(CANDIDATES, QRELS)
    lists = found.displacement.groupby("qid")[["before", "after"]].max()
    assert found.cut_off == (lists >= 5).any(axis=1).sum() > 0
    assert f"in some list of {found.cut_off} of 30 queries" in found.notes[1]
    summary = found.displacement_summary()
    assert summary[["low", "high"]].isna().all() and 0 <= summary["p"] <= 1


def test_passages_that_are_cut_off_once_rotated():
    """A ranker that drops what scores too little drops no candidate as it is; a passage that falls out comes last."""
    word = pt.apply.doc_score(lambda row: 5.0 - float((row["text"] + " tea").split().index("tea")))
    texts = ["tea is a hot drink for all of us here", "rain and tea and rain today", "boats tea go up and down"]
    candidates = pd.DataFrame({"qid": "q1", "query": "tea", "docno": ["d1", "d2", "d3"], "text": texts})
    qrels = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
    dropping = word >> pt.apply.generic(lambda frame: frame[frame["score"] > 0])
    found, whole = (PositionSensitivity(one, draws=6, **FAST).evaluate(candidates, qrels) for one in (dropping, word))
    assert len(dropping(candidates)) == 3 and "whole lists" in found.notes[0] and whole.notes == ()
    assert found.displacement["draw"].tolist() == list(range(6))
    assert found.displacement["displacement"].tolist() == whole.displacement["displacement"].tolist()


def test_of_repeated_judgements_the_highest_counts(result):
    twice = pd.concat([QRELS.assign(label=0), QRELS, QRELS.iloc[::-1]])
    found = PositionSensitivity(EARLY, answers=ANSWERS, **FAST).evaluate(CANDIDATES, twice)
    pd.testing.assert_frame_equal(found.displacement, result.displacement)
    pd.testing.assert_frame_equal(found.table, result.table)


def test_rankers_of_pairs_are_recognised(result):
    assert result.notes == ()


def test_figure_of_displacement(result):
    from pyterrier_debias.core import plots

    axes = result.plot_displacement()
    assert sum(patch.get_height() for patch in axes.patches) == len(result.displacement)
    assert result.plot_displacement(axes) is axes
    plots.close(axes.figure)


@pytest.mark.parametrize("furthest", [0, 9, 18, 21, 100])
def test_bars_of_displacement_hold_equally_many_ranks(result, furthest):
    from pyterrier_debias.core import plots

    ranks = np.arange(-furthest // 2, furthest + 1)
    axes = replace(result, displacement=pd.DataFrame({"displacement": ranks})).plot_displacement()
    heights = [patch.get_height() for patch in axes.patches]
    assert sum(heights) == len(ranks) and len(heights) <= 42
    assert set(heights[:-1]) <= {heights[0]} and 0 < heights[-1] <= heights[0]  # one passage a rank: all alike but the last
    plots.close(axes.figure)


# ---------------------------------------------------------------------------------------------- retrievers


def indexer(ranker):
    """Indexes documents by remembering them; retrieves by scoring all of them."""

    def index(documents):
        texts = pd.DataFrame([(d["docno"], d["text"]) for d in documents], columns=["docno", "text"])
        return pt.apply.generic(lambda topics: ranked(ranker(topics.merge(texts, how="cross"))).drop(columns="text"))

    return index


def test_retrievers_are_indexed_anew():
    dataset = collection(3, queries=8, depth=6)
    topics, corpus = dataset.get_topics(), dataset.get_corpus()
    system = System("retriever", indexer(EARLY)(dataset.get_corpus_iter()), None, indexer(EARLY))
    found = PositionSensitivity(system, dataset=dataset, draws=2, **FAST).evaluate(topics)
    pairs = topics.merge(corpus, how="cross")
    same_ranking(arm(found.arms, "original"), EARLY(pairs))
    for draw in range(2):
        same_ranking(arm(found.arms, "rotated", draw), (RotatePassages(draw=draw) >> EARLY)(pairs))
    assert found.displacement.empty
    assert found.displacement_summary().empty
    assert found.buckets["n"].sum() == 8
    assert "indexed anew" in found.convention


def test_queries_that_a_retriever_raises_for_are_named_and_count_zero():
    dataset = collection(3, queries=8, depth=6)
    topics, run = dataset.get_topics(), dataset.get_candidates()
    failing = topics["qid"].iloc[0]

    def guarded(stage):
        def search(topics):
            if topics["qid"].eq(failing).any():
                raise ValueError("Index must have 1 or more fields")
            return stage(topics)

        return pt.apply.generic(search)

    first = guarded(pt.Transformer.from_df(run))
    retriever = System("retriever", first, None, lambda documents: guarded(indexer(EARLY)(documents)))
    for system in (System("mine", first >> dataset.text_loader(), EARLY), retriever):
        found = PositionSensitivity(system, dataset=dataset, **FAST).evaluate(topics)
        assert any("it raised (ValueError: Index must have 1 or more fields) for 1 of" in note for note in found.notes)
        assert any(note.endswith(f"judged: {failing}.") for note in found.notes)
        assert found.per_query.set_index("qid").loc[failing, "original"].eq(0).all() and found.table["n"].iloc[0] > 1


def test_bags_of_words_do_not_change_when_indexed_anew():
    dataset = collection(3, queries=8, depth=6)
    system = System("retriever", pt.Transformer.identity(), None, indexer(Overlap()))
    found = PositionSensitivity(system, dataset=dataset, **FAST).evaluate(dataset.get_topics())
    assert found.table["p"].isna().all()
    assert (found.table["difference"] == 0).all()
    assert "by construction, not tested" in found.untested


def test_a_retriever_without_indexer_cannot_be_probed():
    run = pt.Transformer.from_df(CANDIDATES[["qid", "docno", "score"]])
    retriever = run >> pt.apply.generic(lambda found: found)
    for candidates, told in ((retriever, r"cannot be probed.*indexer"), (run, "cannot be probed: it is a run, .* audit the")):
        with pytest.raises(InputError, match=told):
            PositionSensitivity(System("bm25", candidates)).transform(CANDIDATES[["qid", "query"]].drop_duplicates())
    with pytest.raises(InputError, match="get_corpus_iter"):
        PositionSensitivity(System("bm25", run, None, indexer(EARLY))).transform(CANDIDATES[["qid", "query"]].drop_duplicates())


# ---------------------------------------------------------------------------------------------- texts that are rewritten

#: Counts the query's words, capitals and commas as they are: blind to position, not to a text that is rewritten.
STRICT = pt.apply.doc_score(lambda row: float(sum(word in row["query"].split() for word in row["text"].split())))


def capitals():
    """Candidates of which one in each list holds the query's word with its capital, or before a comma."""
    rng = np.random.default_rng(0)
    rows = []
    for query in range(20):
        for number in range(6):
            words = [*rng.choice(list("abcdefgh"), 12), "Tea" if number == 0 else "tea,", "z"]
            rows.append((f"q{query}", "Tea tea", f"d{query}_{number}", " ".join(words), float(6 - number)))
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score"])
    first = frame.drop_duplicates("qid")[["qid", "docno"]]
    return frame, first.assign(label=1), first.assign(answer="z")


@pytest.mark.parametrize("tokeniser", ["regex_word", lambda text: text.replace(",", " ,").split()])
def test_a_tokeniser_that_rewrites_texts_rewrites_all_lists(tokeniser):
    candidates, qrels, answers = capitals()
    rotation = RotatePassages(tokeniser=tokeniser)
    found = PositionSensitivity(STRICT, answers=answers, rotation=rotation, **FAST).evaluate(candidates, qrels)
    assert (found.table["difference"] == 0).all() and (found.displacement["displacement"] == 0).all()
    assert "no score changed when passages were rotated" in found.untested
    early = PositionSensitivity(EARLY, answers=answers, rotation=rotation, **FAST).evaluate(candidates, qrels)
    same_ranking(arm(early.arms, "original"), (RotatePassages(tokeniser=tokeniser, offset=0) >> EARLY)(candidates))
    for draw in range(3):
        same_ranking(arm(early.arms, "rotated", draw), (RotatePassages(tokeniser=tokeniser, draw=draw) >> EARLY)(candidates))
    # Rankers of whole lists see one passage moved among others that are rewritten, too.
    listwise = pt.apply.generic(lambda frame: ranked(STRICT(frame).assign(score=lambda f: f["score"] / len(f))))
    lists = PositionSensitivity(listwise, rotation=rotation, **FAST).evaluate(candidates, qrels)
    assert (lists.displacement["displacement"] == 0).all()


def test_a_corpus_is_rewritten_as_its_rotations_are():
    candidates, qrels, _ = capitals()
    dataset = Collection(
        "capitals", corpus=candidates[["docno", "text"]], qrels={"test": qrels},
        topics={"test": candidates[["qid", "query"]].drop_duplicates(ignore_index=True)},
    )  # fmt: skip
    for indexed in (False, True):
        retriever = indexer(STRICT)(dataset.get_corpus_iter(verbose=False))
        system = System("strict", retriever, None, indexer(STRICT), indexed=indexed)
        rotation = RotatePassages(tokeniser="regex_word", scope="pair")
        found = PositionSensitivity(system, dataset=dataset, rotation=rotation, **FAST).evaluate(dataset.get_topics())
        assert (found.table["difference"] == 0).all() and "by construction" in found.untested
        # Of a corpus there is one rotation, whatever the query.
        assert "one draw per passage" in found.convention
    pairs = PositionSensitivity(STRICT, rotation=RotatePassages(scope="pair"), **FAST).evaluate(candidates, qrels)
    assert "one draw per pair" in pairs.convention


def test_answers_may_bring_their_texts(result):
    """The text is that of the candidates; a column of that name among the answers is none."""
    texts = CANDIDATES.drop_duplicates("docno").set_index("docno")["text"]
    answers = ANSWERS.assign(text=ANSWERS["docno"].map(texts))
    found = PositionSensitivity(EARLY, answers=answers, **FAST).evaluate(CANDIDATES, QRELS)
    pd.testing.assert_frame_equal(found.table, result.table)


# ---------------------------------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws=0 must be a whole number of at least 1"),
        ({"depth": 0}, "depth=0"),
        ({"placements": ["top"]}, "placements="),
        ({"placement_unit": "letter"}, "placement_unit="),
        ({"placements": "start"}, "placements="),
        ({"placements": True}, "placements=True must be a list of some of"),
        ({"bucket_unit": "lines"}, "bucket_unit='lines'"),
        ({"buckets": 1}, "buckets=1"),
        ({"measures": ["no such"]}, "measure 'no such'"),
        ({"measures": []}, "measures is empty; give at least one"),
        ({"rotation": RotatePassages(unit="page")}, "unit='page'"),
        ({"rotation": RotatePassages(allow_identity=False)}, "allow_identity=False.*draws=3"),
        ({"rotation": RotatePassages(share=0.5)}, "share=0.5.*leave out share"),
    ],
)
def test_options_that_are_not_known(options, message):
    with pytest.raises(InputError, match=message):
        PositionSensitivity(EARLY, **options).evaluate(CANDIDATES, QRELS)


def false_alarms(allow_identity, *, units=3, draws=3, queries=30, worlds=300):
    """How often the test rejects at 0.05 where a passage's quality depends on its order, and every order is as likely."""
    text, alarms = " ".join("abcdefgh"[:units]), 0
    for seed in range(worlds):
        chance = np.random.default_rng(seed)
        quality = chance.random((queries, units))
        place = chance.integers(0, units, size=queries)
        values = [quality[np.arange(queries), place]]
        for draw in range(draws):
            turn = RotatePassages(seed=seed, allow_identity=allow_identity).rotator(draw)
            moved = np.array([turn(text, f"d{row}")[1] for row in range(queries)])
            values.append(quality[np.arange(queries), (place + moved) % units])
        alarms += exchange_test(np.column_stack(values), resamples=199, seed=seed).p <= 0.05
    return alarms / worlds


def test_rotations_are_exchangeable_where_the_identity_is_among_them():
    """With few units, too, such as sentences: original and rotations are independent draws of one passage's orders."""
    assert stats.binomtest(round(300 * false_alarms(True)), 300, 0.05).pvalue > 0.01
    # Left out, the original is the one that differs from all others; with one rotation each differs from the other.
    assert false_alarms(False) > 0.1
    assert stats.binomtest(round(300 * false_alarms(False, draws=1)), 300, 0.05).pvalue > 0.01
    one = PositionSensitivity(EARLY, rotation=RotatePassages(allow_identity=False), draws=1, **FAST)
    assert "identity left out" in one.evaluate(CANDIDATES, QRELS).convention


def test_what_is_no_pipeline():
    with pytest.raises(InputError, match="the pipeline is a DataFrame"):
        PositionSensitivity(CANDIDATES).transform(CANDIDATES)


def test_input_that_cannot_be_used():
    probe = PositionSensitivity(EARLY)
    with pytest.raises(pt.validate.InputValidationError, match="PositionSensitivity"):
        probe.evaluate(CANDIDATES.drop(columns="text"), QRELS)
    with pytest.raises(InputError, match="no judgements"):
        probe.evaluate(CANDIDATES)
    with pytest.raises(InputError, match="no qid is in both"):
        probe.evaluate(CANDIDATES, QRELS.assign(qid="other"))
    with pytest.raises(InputError, match="none of the judged queries"):
        probe.evaluate(CANDIDATES[CANDIDATES["qid"] == "q1"], QRELS[QRELS["qid"] != "q1"], topics=CANDIDATES)
    with pytest.raises(InputError, match="'text' has no value at row 0"):
        probe.evaluate(CANDIDATES.assign(text=None), QRELS)
    with pytest.raises(InputError, match="more than once"):
        probe.evaluate(pd.concat([CANDIDATES, CANDIDATES]).drop(columns=["score", "rank"]), QRELS)


def test_rankers_that_cannot_be_used():
    nan = pt.apply.generic(lambda frame: frame.assign(score=np.nan))
    with pytest.raises(InputError, match="NaN"):
        PositionSensitivity(nan).evaluate(CANDIDATES, QRELS)
    retriever = pt.apply.generic(lambda frame: frame.assign(docno=[f"x{i}" for i in range(len(frame))], score=1.0))
    with pytest.raises(InputError, match="was not given"):
        PositionSensitivity(retriever).evaluate(CANDIDATES, QRELS)


def test_integer_ids_are_names():
    numbers = CANDIDATES.assign(qid=CANDIDATES["qid"].str[1:].astype(int))
    qrels = QRELS.assign(qid=QRELS["qid"].str[1:].astype(int))
    found = PositionSensitivity(EARLY, **FAST).evaluate(numbers, qrels)
    assert set(found.per_query["qid"]) == {str(q) for q in range(30)}


def test_figures_without_all_rankings_are_the_same(result, monkeypatch):
    monkeypatch.setattr("pyterrier_debias.position.measures.sensitivity._LONG", 1)  # as few lists at a time as there are
    found = PositionSensitivity(EARLY, answers=ANSWERS, **FAST).figures(CANDIDATES, QRELS)
    for name in ("table", "per_query", "psi", "buckets", "placements", "displacement"):
        pd.testing.assert_frame_equal(getattr(found, name), getattr(result, name))
    pd.testing.assert_series_equal(found.displacement_summary(), result.displacement_summary())
    assert (found.notes, found.untested) == (result.notes, result.untested)
    assert len(found.arms) < 0.9 * len(result.arms)
    # A measure without a cut-off looks at whole lists.
    whole = PositionSensitivity(EARLY, answers=ANSWERS, measures=["nDCG@10", "AP"], **FAST).figures(CANDIDATES, QRELS)
    assert len(whole.arms) == len(result.arms)


TEA = ["rain falls.", "tea is hot.", "boats go.", "trees grow."]


def placed_in(answered):
    """``end - start`` of a ranker that likes tea early, where answers are known for the named passages of each query."""
    text = {"rel": " ".join(TEA), "non": " ".join(reversed(TEA))}
    rows = [(f"q{i}", "tea", f"{kind}{i}", text[kind]) for i in range(20) for kind in text]
    candidates = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])
    qrels = candidates[["qid", "docno"]].assign(label=candidates["docno"].str.startswith("rel").astype(int))
    answers = pd.DataFrame([(f"q{i}", f"{kind}{i}", "tea is hot") for i in range(20) for kind in answered])
    answers.columns = ["qid", "docno", "answer"]
    early = pt.apply.doc_score(lambda row: -float(row["text"].split().index("tea")))
    table = PositionSensitivity(early, answers=answers, draws=1).evaluate(candidates, qrels).table
    return table[(table["comparison"] == "end - start") & (table["measure"] == "RR@10")]


def test_answers_are_placed_in_relevant_passages_only():
    """Where the others moved too, nothing changed between them, and a bias was 0."""
    alone, both = placed_in(["rel"]), placed_in(["rel", "non"])
    assert alone["difference"].tolist() == [-0.5] and alone["p"].iloc[0] < 0.001
    pd.testing.assert_frame_equal(both, alone)
    assert placed_in(["non"]).empty


def words_of(queries, documents, seed=0):
    """Lists of short passages in which tea may occur; the first passage of each is relevant."""
    rng, words = np.random.default_rng(seed), ["tea", "rain", "boat", "sun", "tree", "hill"]
    rows = [(f"q{q}", "tea", f"d{q}_{d}", " ".join(rng.choice(words, 8))) for q in range(queries) for d in range(documents)]
    qrels = pd.DataFrame({"qid": [f"q{q}" for q in range(queries)], "docno": [f"d{q}_0" for q in range(queries)], "label": 1})
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text"]), qrels


def place_of_tea(text):
    return f"{text} tea".split().index("tea")


def test_a_ranker_that_returns_an_empty_list_loses_no_figure():
    """A list without rows has no last rank; the query, and then all figures of all systems, were lost."""
    candidates, qrels = words_of(30, 2)
    whole = pt.apply.doc_score(lambda row: -float(place_of_tea(row["text"])))
    some = pt.apply.generic(lambda frame: whole(frame[frame["text"].map(place_of_tea) < 2]))
    result = PositionSensitivity(some, draws=3).evaluate(candidates, qrels)
    arms = result.arms.merge(qrels[["qid", "docno"]], on=["qid", "docno"])
    answered = set(result.displacement["qid"])
    assert set(arms.loc[arms["arm"] == "original", "qid"]) <= answered
    assert (result.displacement["qid"].value_counts() == 3).all()
    found = result.displacement_summary()
    assert found["n"] == len(answered) and np.isnan([found["low"], found["high"]]).all()
    # Of two documents, one that is left out stands second at most, and first where nothing else was ever returned.
    assert result.displacement[["before", "after"]].max(axis=None) == 1
    assert "leaves out the rotated passage" in " ".join(result.notes)


@pytest.mark.parametrize("documents", [2, 3, 4])
def test_a_ranker_of_lists_is_recognised_in_short_lists(documents):
    candidates, qrels = words_of(40, documents)

    def scored(frame):
        places = -frame["text"].map(place_of_tea).astype(float)
        return pt.model.add_ranks(frame.assign(score=places.groupby(frame["qid"]).rank()).copy())

    def ranks(frame):
        found = scored(frame).sort_values(["qid", "score", "docno"], ascending=[True, False, False])
        return found.assign(place=found.groupby("qid").cumcount()).set_index("docno")["place"]

    expected = []
    for draw in range(3):
        turned = RotatePassages(draw=draw)(candidates)["text"]
        one = candidates.assign(text=turned.where(candidates["docno"].str.endswith("_0"), candidates["text"]))
        expected.append((ranks(one) - ranks(candidates))[qrels["docno"]].to_numpy())
    result = PositionSensitivity(pt.apply.generic(scored), draws=3).evaluate(candidates, qrels)
    assert result.displacement_summary()["mean"] == pytest.approx(np.mean(expected))
    told = "whole lists" if documents > 2 else "Lists of fewer than 3 documents do not show whether the ranker"
    assert told in result.notes[0] and "measured on whole lists" in result.notes[0]


def test_whole_texts_of_equal_length_are_not_called_truncated(caplog):
    """Of a frame, nothing says that its texts come from an index; a warning where an answer is lost."""
    texts = ["tea xx yy zz", "xx yy zz tea", "yy zz tea xx", "zz tea xx yy"] * 2
    candidates = pd.DataFrame({"qid": [f"q{i}" for i in range(8)], "query": "tea", "docno": [f"d{i}" for i in range(8)]})
    candidates, early = candidates.assign(text=texts), pt.apply.doc_score(lambda row: -float(place_of_tea(row["text"])))
    qrels = candidates[["qid", "docno"]].assign(label=1)
    for answer, warned in (("tea", False), ("water", True)):
        caplog.clear()
        PositionSensitivity(early, answers=qrels.assign(answer=answer)).evaluate(candidates, qrels)
        assert ("seem to be truncated" in caplog.text) == warned
