"""Relabelling: what is shown to the judge, what is changed, and what the stage promises."""

import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import CETReranker, CrossEncoder, InputError, PlantedRanker
from pyterrier_debias.pooling.data.relabel import RelabelReranker, relabel
from pyterrier_debias.pooling.formulas.negative_weights import emphasis_of
from pyterrier_debias.pooling.training.negatives import RankWindow
from pyterrier_debias.training.groups import make_groups
from tests.contract import Case, assert_contract
from tests.pooling.judge import knows, pooled
from tests.training.toy import candidates, qrels, training

# The pure function


@settings(max_examples=25)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.floats(0, 1)), min_size=1, max_size=25),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(-1, 2)), min_size=1, max_size=15),
    st.sampled_from(["relabel", "drop"]),
    st.floats(0, 1),
    st.sampled_from([None, 1, 3]),
)
def test_relabel_is_its_definition(rows, judged, action, threshold, depth):
    frame = pd.DataFrame(rows, columns=["qid", "docno", "truth"]).astype({"qid": str, "docno": str})
    frame = frame.drop_duplicates(["qid", "docno"]).assign(rank=lambda f: f.groupby("qid").cumcount()).reset_index(drop=True)
    labels = pd.DataFrame(judged, columns=["qid", "docno", "label"]).astype({"qid": str, "docno": str})
    labels = labels.drop_duplicates(["qid", "docno"])
    before, seen = (frame.copy(), labels.copy()), []

    def judge(shown):
        seen.extend(zip(shown["qid"], shown["docno"]))
        return shown["truth"]

    out, new, changes = relabel(frame, labels, judge, action=action, threshold=threshold, depth=depth, label=2)
    known = set(zip(labels["qid"], labels["docno"]))
    expected = [
        (qid, docno)
        for qid, docno, rank in zip(frame["qid"], frame["docno"], frame["rank"])
        if qid in set(labels["qid"]) and (qid, docno) not in known and (depth is None or rank < depth)
    ]
    assert seen == expected
    truth = {(qid, docno): value for qid, docno, value in zip(frame["qid"], frame["docno"], frame["truth"])}
    changed = [(*pair, truth[pair], action) for pair in expected if truth[pair] >= threshold]
    assert list(changes.columns) == ["qid", "docno", "score", "action"]
    assert list(changes.itertuples(index=False, name=None)) == changed
    pairs = {change[:2] for change in changed}
    if action == "drop":
        assert new.equals(labels)
        assert out.equals(frame[[pair not in pairs for pair in zip(frame["qid"], frame["docno"])]].reset_index(drop=True))
    else:
        assert out is frame
        assert dict(zip(zip(new["qid"], new["docno"]), new["label"])) == {
            **dict(zip(zip(labels["qid"], labels["docno"]), labels["label"])),
            **dict.fromkeys(pairs, 2),
        }
    pd.testing.assert_frame_equal(frame, before[0])
    pd.testing.assert_frame_equal(labels, before[1])


def test_a_ranker_can_be_the_judge():
    frame = candidates()
    scores = PlantedRanker()(frame).set_index(["qid", "docno"])["score"]
    threshold = float(scores.median())
    _, _, changes = relabel(frame, pooled(), PlantedRanker(), threshold=threshold)
    labelled = set(zip(pooled()["qid"], pooled()["docno"]))
    expected = {pair for pair, score in scores.items() if score >= threshold and pair not in labelled}
    assert set(zip(changes["qid"], changes["docno"])) == expected
    assert 0 < len(expected) < len(frame)
    by_pair = changes.set_index(["qid", "docno"])["score"]
    assert (by_pair == scores[by_pair.index]).all()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda frame: [0.5], r"got 40 rows and returned shape \(1,\)"),
        (lambda frame: 0.5, r"returned shape \(\)"),
        (lambda frame: ["yes"] * len(frame), "holds no numbers"),
        (lambda frame: [np.nan] * len(frame), r"answer is NaN or None in 40 of 40 rows, first for qid='.*', docno='.*'; where"),
        (lambda frame: [None] * len(frame), "answer is NaN or None in 40 of 40 rows"),
        (lambda frame: frame.loc.__setitem__(40, frame.loc[0]) or [0.5] * len(frame), "adds or removes rows of the frame that"),
        (lambda frame: frame.set_index("docno")["rank"], "is a Series with another index than the frame's"),
    ],
)
def test_a_judges_answer_is_checked(answer, message):
    with pytest.raises(InputError, match=message):
        relabel(candidates(), pooled(), answer)


def test_a_series_is_read_by_its_index():
    """A judge may sort the rows to put texts of one length together."""

    def sorting(frame):
        return knows(frame.sort_values("docno", ascending=False))

    for one, other in zip(relabel(candidates(), pooled(), sorting), relabel(candidates(), pooled(), knows)):
        pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"action": "ask"}, "action='ask' is not known"),
        ({"threshold": float("nan")}, "threshold=nan"),
        ({"depth": 0}, "depth=0"),
        ({"judge": "gpt"}, "judge is a str"),
    ],
)
def test_options_are_refused(options, message):
    with pytest.raises(InputError, match=f"relabel: {message}"):
        relabel(**{"candidates": candidates(), "qrels": pooled(), "judge": knows, **options})
    stage = RelabelReranker(PlantedRanker(), **{"judge": knows, **options})
    stage.ranker.fit = stage.ranker.text_columns = lambda *args: ["text"]
    with pytest.raises(InputError, match=f"RelabelReranker: {message}"):
        stage.fit(candidates(), pooled())


def passages(**more):
    """Passages of d7 and d9, which are judged, of d8, which is judged not relevant, and of d1, which is not judged at all."""
    docnos = ["d7%p0", "d7%p1", "d8%p0", "d9%p0", "d1%p0", "d1%p1"]
    frame = {"qid": ["1"] * 3 + ["2"] * 3, "docno": docnos, "query": ["q"] * 3 + ["r"] * 3, "text": list("abcdef"), **more}
    return pd.DataFrame(frame)


@pytest.mark.parametrize("action", ["relabel", "drop"])
def test_passages_of_judged_documents_are_neither_shown_nor_changed(action):
    judged = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["d7", "d8", "d9"], "label": [1, 0, 1]})
    seen = []

    def judge(frame):
        seen.extend(frame["docno"])
        return np.ones(len(frame))

    _, new, changes = relabel(passages(), judged, judge, action=action)
    assert seen == changes["docno"].tolist() == ["d1%p0", "d1%p1"]
    assert new["docno"].tolist() == ["d7", "d8", "d9", *(seen if action == "relabel" else [])]


@pytest.mark.parametrize("action", ["relabel", "drop"])
def test_a_change_in_one_query_leaves_the_grades_of_passages_in_another(action):
    """d9 is judged for query 2 alone. Its passage, relabelled for query 1, keeps the grade that it has for query 2."""
    both = pd.concat([passages(), passages().loc[[3]].assign(qid="1", query="q")], ignore_index=True)
    judged = pd.DataFrame({"qid": ["1", "2"], "docno": ["d7", "d9"], "label": [1, 1]})
    rows, new, changes = relabel(both, judged, lambda frame: frame["docno"] == "d9%p0", action=action)
    assert changes[["qid", "docno"]].values.tolist() == [["1", "d9%p0"]]
    found = make_groups(rows, new, stage="test").rows.set_index(["qid", "docno"])["label"]
    before = make_groups(rows, judged, stage="test").rows.set_index(["qid", "docno"])["label"]
    unchanged = found.index.drop([("1", "d9%p0")], errors="ignore")
    assert found[unchanged].equals(before[unchanged])
    assert found.get(("1", "d9%p0"), 1) == 1


def test_nothing_to_show_asks_nobody():
    def nobody(frame):
        raise AssertionError("asked")

    everything = candidates()[["qid", "docno"]].assign(label=0)
    _, same, changes = relabel(candidates(), everything, nobody)
    assert len(changes) == 0
    assert same is everything


# The stage


def small(**options):
    return training(**{"max_steps": 2, "batch_size": 8, **options})


@pytest.fixture(scope="module")
def fitted(tiny):
    return RelabelReranker(CrossEncoder(tiny()), knows, training=small()).fit(candidates(), pooled())


def test_the_judges_finds_become_positives(fitted):
    assert fitted.relabelled["docno"].tolist() == [f"d{n}-4" for n in range(8)]
    assert (fitted.relabelled[["score", "action"]] == [1.0, "relabel"]).all(axis=None)
    assert fitted.training_report.counts["positives"] == 16


def test_it_trains_as_if_the_labels_had_been_there(fitted, tiny):
    plain = CrossEncoder(tiny(), training=small()).fit(candidates(), qrels().assign(label=1))
    assert fitted.relevance.fingerprint() == plain.fingerprint()
    pd.testing.assert_frame_equal(fitted(candidates("v")), plain(candidates("v")))


def test_dropping_trains_without_them(tiny):
    stage = RelabelReranker(CrossEncoder(tiny(), training=small()), knows, action="drop").fit(candidates(), pooled())
    without = candidates()[lambda frame: ~frame["docno"].str.endswith("-4")]
    plain = CrossEncoder(tiny(), training=small()).fit(without, pooled())
    assert stage.relevance.fingerprint() == plain.fingerprint()
    assert set(stage.relabelled["action"]) == {"drop"}


def test_the_given_ranker_stays_and_fitting_again_goes_on(fitted, tiny):
    assert fitted.ranker == CrossEncoder(tiny())
    assert fitted.relevance != fitted.ranker
    assert fitted.training_report.started_from == fitted.ranker.fingerprint()
    again = pickle.loads(pickle.dumps(fitted))
    again.fit(candidates(), pooled())
    assert again.training_report.started_from == fitted.relevance.fingerprint()


def test_fit_comes_first(tiny):
    stage = RelabelReranker(CrossEncoder(tiny()), knows)
    for call in (lambda: stage(candidates()), lambda: stage.save("nowhere"), lambda: stage.relevance):
        with pytest.raises(InputError, match=r"fit\(\) must be called first"):
            call()
    assert len(stage(candidates().head(0))) == 0
    assert stage.training_report is None


def test_frames_are_refused_before_the_judge_is_asked(tiny):
    def nobody(frame):
        raise AssertionError("asked")

    stage = RelabelReranker(CrossEncoder(tiny()), nobody)
    with pytest.raises(InputError, match="RelabelReranker: no qid is in both"):
        stage.fit(candidates(), qrels("other"))
    with pytest.raises(InputError, match="give a ranker of this package"):
        RelabelReranker(pt.Transformer.identity(), nobody).fit(candidates(), pooled())
    sampler = small(negatives=RankWindow("pool_rank"))
    for options, validation, message in (
        (small(), (candidates("v"), None), "needs both validation candidates and their judgements"),
        (small(), (candidates("v"), qrels("other")), "no qid is in both"),
        (small(patience=2), (None, None), "needs validation"),
        (sampler, (None, None), "no column 'pool_rank'"),
    ):
        plain = CrossEncoder(tiny(), training=options)
        for ranker in (plain, CETReranker(plain)):
            with pytest.raises(InputError, match=message):
                RelabelReranker(ranker, nobody).fit(candidates(), pooled(), *validation)


def test_judgements_are_kept_where_training_fails(tiny):
    stage = RelabelReranker(CrossEncoder(tiny(), training=small(learning_rate={"rankr": 1e-3})), knows)
    with pytest.raises(InputError, match="learning_rate names rankr"):
        stage.fit(candidates(), pooled())
    assert stage.relabelled["docno"].tolist() == [f"d{n}-4" for n in range(8)]
    assert not stage.fitted


def test_a_judge_that_finds_everything_relevant_is_named(tiny):
    stage = RelabelReranker(CrossEncoder(tiny(), training=small()), lambda frame: np.ones(len(frame)))
    message = r"^RelabelReranker: the judge finds \d+ candidates relevant, and the rest cannot be trained on; raise threshold"
    with pytest.raises(InputError, match=message):
        stage.fit(candidates(), pooled())


@pytest.fixture(scope="module")
def around_another(tiny):
    inner = CETReranker(CrossEncoder(tiny(), training=small(max_steps=3, min_label=2)))
    return RelabelReranker(inner, knows).fit(candidates(), qrels()[lambda frame: frame["label"] == 2])


def test_around_another_way_of_training_it_trains_with_the_ranker_s_options(around_another):
    """The judge's finds have the grade of a positive, which here is 2."""
    assert around_another.training_report.steps == around_another.training_options().max_steps == 3
    assert around_another.training_report.counts["positives"] == 16


def test_around_another_way_of_training_it_names_what_can_be_saved(around_another, tmp_path):
    with pytest.raises(InputError, match=r"around a CETReranker; save that with stage\.relevance\.save\(folder\)"):
        around_another.save(tmp_path / "saved")
    around_another.relevance.save(tmp_path / "saved")
    loaded = CETReranker.load(tmp_path / "saved")
    pd.testing.assert_frame_equal(loaded(candidates("v")), around_another(candidates("v")), atol=1e-5)


def test_saved_and_loaded_it_scores_the_same(fitted, tmp_path):
    fitted.save(tmp_path / "saved")
    expected = fitted(candidates("v"))
    for loaded in (CrossEncoder.load(tmp_path / "saved"), RelabelReranker.load(tmp_path / "saved")):
        pd.testing.assert_frame_equal(loaded(candidates("v")), expected, atol=1e-5)
        assert loaded.training_report == fitted.training_report
    pd.testing.assert_frame_equal(loaded.relabelled, fitted.relabelled)
    assert (loaded.action, loaded.threshold, loaded.depth, loaded.judge) == ("relabel", 0.5, None, None)
    with pytest.raises(InputError, match="judge is None"):
        loaded.fit(candidates(), pooled())
    with pytest.raises(InputError, match="exists already"):
        fitted.save(tmp_path / "saved")
    with pytest.raises(InputError, match="holds no saved RelabelReranker"):
        RelabelReranker.load(tmp_path)


def test_fitting_makes_another_stage(fitted, tiny):
    fresh = RelabelReranker(CrossEncoder(tiny()), knows, training=small())
    assert fresh != fitted
    copy = pickle.loads(pickle.dumps(fitted))
    assert copy == fitted
    pd.testing.assert_frame_equal(copy.relabelled, fitted.relabelled)


def test_in_a_pipeline_it_is_fitted_on_what_reaches_it(fitted, tiny):
    stage = RelabelReranker(CrossEncoder(tiny()), knows, training=small())
    topics = candidates()[["qid", "query"]].drop_duplicates()
    (pt.Transformer.from_df(candidates()) >> stage).fit(topics, pooled(), None, None)
    assert stage == fitted


@pytest.mark.parametrize("action", ["relabel", "drop"])
def test_emphasis_is_gone_from_what_was_found(action, tiny):
    stage = RelabelReranker(CrossEncoder(tiny()), knows, action=action)
    found = emphasis_of(stage, candidates(), pooled())
    assert list(found.columns) == ["qid", "positive", "docno", "emphasis"]
    assert len(found) == 8 * 5  # one labelled positive each, and five others
    assert (found["emphasis"][found["docno"].str.endswith("-4")] == 0).all()
    np.testing.assert_allclose(found["emphasis"][~found["docno"].str.endswith("-4")], 5 / 4)


def test_emphasis_keeps_the_samplers_chances(tiny):
    """Places 0 to 4 are unlabelled: the judge takes 4, the window leaves 2 and 3."""
    stage = RelabelReranker(CrossEncoder(tiny()), knows, training=small(negatives=RankWindow(first=2, last=4)))
    found = stage.emphasis(candidates(), pooled())
    places = found["docno"].str[-1].astype(int)
    np.testing.assert_allclose(found["emphasis"], np.where(places.isin([2, 3]), 5 / 2, 0))


def test_emphasis_of_a_fitted_stage_asks_nobody_again(fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    copy.judge = None
    copy.judge = lambda frame: 1 / 0
    pd.testing.assert_frame_equal(copy.emphasis(candidates(), pooled()), fitted.emphasis(candidates(), pooled()))


def test_emphasis_is_nothing_where_the_whole_pool_is_gone(tiny):
    def all_of_the_first(frame):
        return frame["qid"] == "q0"

    found = RelabelReranker(CrossEncoder(tiny()), all_of_the_first, action="drop").emphasis(candidates(), pooled())
    assert (found["emphasis"][found["qid"] == "q0"] == 0).all()
    assert (found["emphasis"][found["qid"] != "q0"] == 1).all()


def test_contract(fitted, tiny):
    def make():
        return pickle.loads(pickle.dumps(fitted))

    case = Case("RelabelReranker", make, lambda: candidates("v", topics=2), lambda: RelabelReranker(CrossEncoder(tiny()), knows))
    assert_contract(case)
