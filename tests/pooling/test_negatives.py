"""Samplers against their definitions, a reference implementation, and what they draw."""

import logging
import math
import pickle
import sys
import types
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import CrossEncoder, InputError, Training
from pyterrier_debias.pooling.formulas.negative_weights import emphasis_of, pool_chances
from pyterrier_debias.pooling.training.negatives import (
    DenoisedNegatives,
    ExcludeNegatives,
    PositiveAwareNegatives,
    RankDistribution,
    RankWindow,
    positive_aware,
    rank_chances,
)
from pyterrier_debias.training.groups import groups_to_fit, make_groups
from pyterrier_debias.training.samplers import ChanceSampler, UniformNegatives

SAMPLERS = {
    "RankWindow": RankWindow(first=3, last=6),
    "RankWindow(pool)": RankWindow("pool_rank", last=4),
    "DenoisedNegatives": DenoisedNegatives(below=0.3, depth=5),
    "PositiveAware(max)": PositiveAwareNegatives(max_score=0.4),
    "PositiveAware(percentage)": PositiveAwareNegatives(percentage=0.8),
    "PositiveAware(margin)": PositiveAwareNegatives(margin=0.2),
    "RankDistribution": RankDistribution((0.0, 0.1, 0.5, 0.3, 0.1)),
    "ExcludeNegatives": ExcludeNegatives([("q0", "d2"), ("q1", "d9")]),
    "ExcludeNegatives(window)": ExcludeNegatives([("q0", "d2")], RankWindow(last=4)),
}


def world(seed=0, queries=3, size=12, **columns):
    """Queries with candidates d0, d1, ..., of which d0 and, in q1, d1 are relevant."""
    rng = np.random.default_rng(seed)
    rows = []
    for q in range(queries):
        pool_ranks = rng.permutation(size).astype(float)
        pool_ranks[pool_ranks > size // 2] = np.nan
        scores, ranks = rng.random(size), rng.permutation(size)
        for d in range(size):
            rows.append((f"q{q}", f"d{d}", f"query {q}", f"text {d}", ranks[d], pool_ranks[d], scores[d]))
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "rank", "pool_rank", "teacher_score"])
    qrels = pd.DataFrame([(f"q{q}", f"d{d}", 1) for q in range(queries) for d in range(1 + (q == 1))])
    return frame.assign(**columns), qrels.set_axis(["qid", "docno", "label"], axis=1)


def groups_of(frame, qrels):
    return make_groups(frame, qrels, stage="test")


def chances_of(sampler, groups, at=0):
    """Chances by docno, for the first positive of a query."""
    group = groups.groups[at]
    docnos = groups.column("docno")
    found = sampler.chances(groups, group, int(group.positives[0]))
    return {docnos[row]: float(chance) for row, chance in zip(group.pool, found)}


def one_query(scores, positive=0.8, ranks=None):
    """A query whose positive is p and whose candidates n0, n1, ... have these teacher's scores."""
    ranks = range(1, len(scores) + 1) if ranks is None else ranks
    rows = [("q", "p", "a query", "text", 0, positive)]
    rows += [("q", f"n{i}", "a query", "text", rank, score) for i, (score, rank) in enumerate(zip(scores, ranks))]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "rank", "teacher_score"])
    return groups_of(frame, pd.DataFrame({"qid": ["q"], "docno": ["p"], "label": [1]}))


# What every sampler promises


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=10)
@given(seed=st.integers(0, 10**6), size=st.integers(3, 15), n=st.integers(1, 20), epoch=st.integers(0, 3))
def test_chances_and_draws_are_sound(name, seed, size, n, epoch):
    """Chances are finite, not negative, not all 0; draws are distinct, of the pool, and blind to the order of rows."""
    sampler = SAMPLERS[name]
    frame, qrels = world(seed, size=size)
    groups = groups_of(frame, qrels)
    shuffled = groups_of(frame.sample(frac=1, random_state=seed % 1000), qrels)
    assert isinstance(sampler, ChanceSampler)
    for group, other in zip(groups.groups, shuffled.groups):
        for positive in group.positives.tolist():
            chances = sampler.chances(groups, group, positive)
            assert chances.dtype == np.float64
            assert chances.shape == group.pool.shape
            assert np.isfinite(chances).all()
            assert (chances >= 0).all()
            assert chances.sum() > 0
            drawn = sampler.sample(groups, group, positive, n, seed=1, epoch=epoch)
            assert 1 <= len(drawn) <= n
            assert len(set(drawn.tolist())) == len(drawn)
            assert set(drawn.tolist()) <= set(group.pool.tolist())
            again = sampler.sample(shuffled, other, positive, n, seed=1, epoch=epoch)
            assert drawn.tolist() == again.tolist()


@pytest.mark.parametrize("chances", [[0] * 11, [-1] + [1] * 10, [np.nan] + [1] * 10, [1e308] * 11, [1] * 3])
def test_chances_that_are_none_are_refused_with_their_sampler_and_query(chances):
    class Mine(ChanceSampler):
        def chances(self, groups, group, positive):
            return np.array(chances)

    groups = groups_of(*world())
    group = groups.groups[0]
    told = r"Mine: chances for query 'q0', whose pool has 11 documents, are \[.*; return one number"
    with pytest.raises(InputError, match=told):
        Mine().sample(groups, group, int(group.positives[0]), 2, seed=0, epoch=0)


@pytest.mark.parametrize("name", SAMPLERS)
def test_draws_are_as_frequent_as_their_chances(name):
    sampler, groups = SAMPLERS[name], groups_of(*world(5))
    group, times = groups.groups[1], 2000
    positive = int(group.positives[0])
    chances = sampler.chances(groups, group, positive)
    chances = chances / chances.sum()
    drawn = Counter(int(sampler.sample(groups, group, positive, 1, seed=3, epoch=e)[0]) for e in range(times))
    found = np.array([drawn[row] for row in group.pool.tolist()]) / times
    assert (found[chances == 0] == 0).all()
    assert (np.abs(found - chances) <= 4.5 * np.sqrt(chances * (1 - chances) / times)).all()


@pytest.mark.parametrize("name", SAMPLERS)
def test_seed_and_epoch_matter_and_samplers_pickle(name):
    sampler, groups = SAMPLERS[name], groups_of(*world(2, size=40))
    draws = {
        tuple(sampler.sample(groups, group, int(group.positives[0]), 2, seed=seed, epoch=epoch).tolist())
        for group in groups.groups[:1]
        for seed in range(3)
        for epoch in range(3)
    }
    assert len(draws) > 1
    copy = pickle.loads(pickle.dumps(sampler))
    assert copy == sampler
    assert hash(copy) == hash(sampler)
    assert repr(copy) == repr(sampler)
    assert len(repr(sampler)) < 150
    assert Training(negatives=sampler).record() == Training(negatives=copy).record()


@pytest.mark.parametrize("name", SAMPLERS)
def test_what_they_believe_can_be_looked_at(name):
    groups = groups_of(*world(7))
    emphasis = pool_chances(groups, Training(negatives=SAMPLERS[name]))
    means = emphasis.groupby(["qid", "positive"])["emphasis"].mean()
    np.testing.assert_allclose(means, 1)


def test_a_ranker_is_asked_by_its_own_training_or_the_usual_one():
    frame, qrels = world(3)

    def asked(training, judged=qrels):
        return emphasis_of(types.SimpleNamespace(training=training, text_columns=lambda: ["text"]), frame, judged)

    plain = asked(None)
    # One positive has 11 negatives, the two of q1 have 10 each: every one as likely as any other.
    assert plain["emphasis"].eq(1).all() and plain.groupby(["qid", "positive"]).size().tolist() == [11, 10, 10, 11]
    window = Training(negatives=RankWindow(first=3, last=6))
    pd.testing.assert_frame_equal(asked(window), pool_chances(groups_of(frame, qrels), window))
    assert not asked(window)["emphasis"].eq(1).any()
    with pytest.raises(InputError, match="judged 2 or higher"):
        asked(Training(min_label=2))
    with pytest.raises(InputError, match="negative"):
        asked(None, frame[["qid", "docno"]].assign(label=1))


def test_a_training_says_once_how_often_nothing_is_suitable(caplog):
    caplog.set_level(logging.WARNING)
    frame, qrels = world(1)
    groups = groups_of(frame.assign(pool_rank=frame["pool_rank"].where(frame["qid"] != "q1")), qrels)
    for _ in range(3):
        for group in groups.groups:
            for positive in group.positives.tolist():
                RankWindow("pool_rank").sample(groups, group, positive, 1, seed=0, epoch=0)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["RankWindow: no candidate is suitable for 2 of 4 positives; for these it draws from the nearest ranks"]


@pytest.mark.parametrize("name", ["RankWindow", "DenoisedNegatives", "PositiveAware(max)", "RankDistribution"])
def test_a_missing_column_is_named(name):
    frame, qrels = world()
    groups = groups_of(frame[["qid", "docno", "query", "text"]], qrels)
    with pytest.raises(InputError, match=r"no column '(rank|teacher_score)'"):
        chances_of(SAMPLERS[name], groups)


def test_a_column_of_words_is_refused():
    frame, qrels = world(rank="first")
    with pytest.raises(InputError, match="column 'rank' is 'first', not a number, at row 0"):
        chances_of(RankWindow(), groups_of(frame, qrels))


# RankWindow


def test_window_holds_both_its_ends():
    found = chances_of(RankWindow(first=2, last=4), one_query([0.1] * 6))
    assert [docno for docno, chance in found.items() if chance] == ["n1", "n2", "n3"]
    assert set(found.values()) == {0.0, 1.0}


def test_window_without_an_end():
    assert [d for d, c in chances_of(RankWindow(first=5), one_query([0.1] * 6)).items() if c] == ["n4", "n5"]


@pytest.mark.parametrize(
    ("window", "ranks", "expected"),
    [
        (RankWindow(first=10, last=20), [1, 2, 3, 8, 8], ["n3", "n4"]),
        (RankWindow(first=0, last=3), [5, 9, 7, 6, 8], ["n0"]),
        (RankWindow(first=5, last=6), [4, 7, 1, 2, 20], ["n0", "n1"]),
        (RankWindow(first=50), [1, 2, np.nan, 3, 4], ["n4"]),
        (RankWindow(), [np.nan] * 5, ["n0", "n1", "n2", "n3", "n4"]),
    ],
)
def test_window_without_a_candidate_takes_the_nearest(window, ranks, expected):
    assert [d for d, c in chances_of(window, one_query([0.1] * 5, ranks=ranks)).items() if c] == expected


@pytest.mark.parametrize("options", [{"first": -1}, {"first": 5, "last": 4}])
def test_window_refuses_to_be_empty(options):
    with pytest.raises(InputError, match="leave no rank"):
        RankWindow(**options)


# DenoisedNegatives


def test_denoised_draws_hard_ones_first_and_fills_up_from_below():
    groups = one_query([0.05, 0.9, 0.02, 0.5, 0.01, 0.99, 0.3], ranks=[1, 2, 3, 4, 60, 70, 80])
    sampler = DenoisedNegatives()
    assert [d for d, c in chances_of(sampler, groups).items() if c] == ["n0", "n2"]
    docnos, group = groups.column("docno"), groups.groups[0]
    fillers = set()
    for epoch in range(60):
        rows = sampler.sample(groups, group, int(group.positives[0]), 3, seed=0, epoch=epoch)
        drawn = [docnos[row] for row in rows]
        assert set(drawn[:2]) == {"n0", "n2"}
        fillers.add(drawn[2])
    assert fillers == {"n4", "n5", "n6"}  # from beyond the depth, whatever the teacher thinks of them
    everything = sampler.sample(groups, group, int(group.positives[0]), 9, seed=0, epoch=0)
    assert sorted(docnos[row] for row in everything) == ["n0", "n2", "n4", "n5", "n6"]


def test_denoised_fillers_are_drawn_alike():
    groups = one_query([0.05, 0.9, 0.2, 0.3, 0.4], ranks=[1, 2, 60, 70, 80])
    group, docnos = groups.groups[0], groups.column("docno")
    sampler, times = DenoisedNegatives(), 3000
    drawn = Counter(docnos[sampler.sample(groups, group, int(group.positives[0]), 2, seed=0, epoch=e)[1]] for e in range(times))
    for docno in ("n2", "n3", "n4"):
        assert abs(drawn[docno] / times - 1 / 3) < 4.5 * math.sqrt(2 / 9 / times)


def test_denoised_without_hard_ones_draws_from_below_and_without_both_the_lowest():
    assert [d for d, c in chances_of(DenoisedNegatives(), one_query([0.9, 0.8], ranks=[1, np.nan])).items() if c] == ["n1"]
    assert [d for d, c in chances_of(DenoisedNegatives(), one_query([0.9, 0.2, 0.4])).items() if c] == ["n1"]


@pytest.mark.parametrize(
    ("scores", "message"),
    [([0.1, 3.2], r"is 3.2 .*sigmoid"), ([0.1, np.nan], r"has no value at qid='q', docno='n1'; .*AddScores")],
)
def test_denoised_refuses_what_is_no_probability(scores, message):
    with pytest.raises(InputError, match=message):
        chances_of(DenoisedNegatives(), one_query(scores))


@pytest.mark.parametrize("options", [{"below": 0.0}, {"below": 1.5}, {"depth": -1}])
def test_denoised_refuses_options(options):
    with pytest.raises(InputError, match="DenoisedNegatives"):
        DenoisedNegatives(**options)


# PositiveAwareNegatives


@pytest.mark.parametrize(
    ("rule", "positive", "passing"),
    [
        ({"max_score": 0.5}, 0.8, [True, True, False, False]),
        ({"percentage": 0.5}, 0.8, [True, False, False, False]),
        ({"margin": 0.25}, 0.75, [True, True, False, False]),
        ({"margin": 0.25, "max_score": 0.3}, 0.75, [True, False, False, False]),
    ],
)
def test_positive_aware_rules(rule, positive, passing):
    groups = one_query([0.25, 0.5, 0.74, 0.9], positive)
    found = chances_of(PositiveAwareNegatives(**rule), groups)
    assert [bool(chance) for chance in found.values()] == passing


def test_positive_aware_takes_the_lowest_where_nothing_passes():
    found = chances_of(PositiveAwareNegatives(percentage=0.95), one_query([0.9, 0.85, 0.85, 0.99]))
    assert [d for d, c in found.items() if c] == ["n1", "n2"]


def test_positive_aware_compares_with_the_positive_at_hand():
    rows = [("q", d, "a query", "text", s) for d, s in (("p1", 0.9), ("p2", 0.3), ("n", 0.5), ("m", 0.1))]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "teacher_score"])
    groups = groups_of(frame, pd.DataFrame({"qid": "q", "docno": ["p1", "p2"], "label": 1}))
    group, sampler = groups.groups[0], PositiveAwareNegatives(margin=0.1)
    sums = [sampler.chances(groups, group, int(positive)).sum() for positive in group.positives]
    assert sums == [2, 1]


def test_positive_aware_needs_the_positives_score():
    with pytest.raises(InputError, match="has no value at qid='q', docno='p'"):
        chances_of(PositiveAwareNegatives(margin=0.1), one_query([0.1], np.nan))


@pytest.mark.parametrize("options", [{}, {"percentage": 0.0}, {"percentage": 95}, {"margin": -0.1}])
def test_positive_aware_refuses_options(options):
    with pytest.raises(InputError, match="PositiveAwareNegatives"):
        PositiveAwareNegatives(**options)


class FakeDataset(pd.DataFrame):
    """As much of a ``datasets.Dataset`` as mining reads."""

    @property
    def column_names(self):
        return list(self.columns)

    def to_pandas(self):
        return pd.DataFrame(self)

    @classmethod
    def from_dict(cls, content):
        return cls(content)


class FakeModel:
    """Query i looks along axis i, so that a document's similarity to it is what its vector holds there."""

    device = "cpu"

    def __init__(self, vectors):
        self.vectors = vectors

    def encode_document(self, texts, **options):
        return np.array([self.vectors[text] for text in texts])

    def encode_query(self, texts, **options):
        return np.eye(len(texts))[[int(text[1:]) for text in texts]]

    def similarity(self, queries, documents):
        import torch

        return torch.as_tensor(queries) @ torch.as_tensor(documents).T

    def similarity_pairwise(self, queries, documents):
        import torch

        return (torch.as_tensor(queries) * torch.as_tensor(documents)).sum(dim=1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"percentage": 0.95}, {"relative_margin": 1 - 0.95}),
        ({"percentage": 0.4}, {"relative_margin": 1 - 0.4}),
        ({"margin": 0.3}, {"absolute_margin": 0.3}),
        ({"max_score": 0.1}, {"max_score": 0.1}),
        (
            {"percentage": 0.7, "margin": 0.2, "max_score": 0.6},
            {"relative_margin": 1 - 0.7, "absolute_margin": 0.2, "max_score": 0.6},
        ),
    ],
)
def test_positive_aware_is_what_sentence_transformers_mines(ours, theirs, monkeypatch):
    """The installed ``mine_hard_negatives`` itself, on scores of both signs, with stand-ins for model and dataset."""
    from sentence_transformers.util import hard_negatives

    queries, size = 12, 25
    rng = np.random.default_rng(11)
    scores = rng.normal(size=(queries, size))
    corpus = {f"q{q}-d{d}": np.eye(queries)[q] * scores[q, d] for q in range(queries) for d in range(size)}
    monkeypatch.setattr(hard_negatives, "is_datasets_available", lambda: True)
    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(Dataset=FakeDataset))
    kept = {q: set() for q in range(queries)}
    for q in range(queries):  # one at a time: other queries' documents, of similarity 0, are no candidates here
        model = FakeModel({text: vector[[q]] for text, vector in corpus.items()})
        found = hard_negatives.mine_hard_negatives(
            FakeDataset({"anchor": ["q0"], "positive": [f"q{q}-d0"]}),
            model,
            corpus=[f"q{q}-d{d}" for d in range(size)],
            num_negatives=size,
            range_max=size,
            output_format="labeled-pair",
            use_faiss=False,
            verbose=False,
            **theirs,
        )
        kept[q] = {text for text, label in zip(found["positive"], found["label"]) if label == 0}
    mine = {
        q: {f"q{q}-d{d}" for d in range(1, size) if positive_aware(scores[q, [d]], scores[q, 0], **ours)[0]}
        for q in range(queries)
    }
    assert mine == kept
    assert any(mine.values())
    assert sum(map(len, mine.values())) < queries * (size - 1)
    assert {np.sign(score) for score in scores[:, 0]} == {-1, 1}


# RankDistribution


def rance_by_loops(counts, queries, k, window, degree):
    """The published recipe, literally: gains, centred means, a fit by least squares, the lowest gain taken off."""
    gains = [(1 - count / queries) / math.log(i + k) for i, count in enumerate(counts)]
    half = window // 2
    smooth = [sum(gains[i - half : i + half + 1]) / window for i in range(half, len(gains) - half)]
    powers = np.vander(np.arange(len(smooth)) / len(smooth), degree + 1)
    fit = powers @ np.linalg.lstsq(powers, np.array(smooth), rcond=None)[0]
    fit = [fit[0]] * half + fit.tolist() + [fit[-1]] * half
    chances = np.array([max(value - min(smooth), 0) for value in fit])
    return chances / chances.sum()


@pytest.mark.parametrize(("k", "window", "degree"), [(2, 9, 4), (10, 9, 4), (2, 5, 3), (2, 1, 2)])
def test_rank_chances_are_the_recipe(k, window, degree):
    rng = np.random.default_rng(3)
    counts = rng.binomial(43, np.exp(-np.arange(200) / 30))
    found = rank_chances(counts, 43, k=k, window=window, degree=degree)
    np.testing.assert_allclose(found, rance_by_loops(counts, 43, k, window, degree), atol=1e-9)
    assert found.sum() == pytest.approx(1)


def test_rank_chances_avoid_ranks_that_are_relevant():
    nobody, top = np.zeros(100), np.r_[np.full(20, 9.0), np.zeros(80)]
    assert rank_chances(nobody, 10)[:10].sum() > 2 * rank_chances(top, 10)[:10].sum()
    assert rank_chances(top, 10).argmax() > 15


@settings(max_examples=40)
@given(st.lists(st.integers(0, 20), min_size=13, max_size=80), st.floats(1.5, 50))
def test_rank_chances_are_chances(counts, k):
    found = rank_chances(np.array(counts), 20, k=k)
    assert found.shape == (len(counts),)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)


def test_estimate_counts_what_the_judgements_say():
    """Grades below min_label, unjudged queries and ranks beyond the depth do not count; neither does the order of rows."""
    rng = np.random.default_rng(8)
    lists = pd.DataFrame([(f"q{q}", f"d{d}", d) for q in range(6) for d in range(40)], columns=["qid", "docno", "rank"])
    judged = pd.DataFrame(
        [(f"q{q}", f"d{d}", int(rng.integers(-1, 3))) for q in range(4) for d in rng.choice(40, 25, replace=False)],
        columns=["qid", "docno", "label"],
    )
    counts = np.zeros(30)
    for _, docno, label in judged.values.tolist():
        if label >= 2 and int(docno[1:]) < 30:
            counts[int(docno[1:])] += 1
    found = RankDistribution.estimate(lists.sample(frac=1, random_state=1), judged, depth=30, min_label=2)
    np.testing.assert_allclose(found.chances_by_rank, rank_chances(counts, 4), atol=1e-12)
    assert found.column == "rank"
    assert RankDistribution.estimate(lists, judged, depth=30, min_label=2) == found
    assert RankDistribution.estimate(lists, judged, depth=30, min_label=1) != found


def test_estimate_counts_passages_by_the_judgements_of_their_documents():
    passages = pd.DataFrame({"qid": "q", "docno": [f"d{i // 2}%p{i % 2}" for i in range(20)], "rank": range(20)})
    qrels = pd.DataFrame({"qid": ["q"], "docno": ["d3"], "label": [1]})
    counts = np.isin(np.arange(20), (6, 7)).astype(float)
    np.testing.assert_allclose(RankDistribution.estimate(passages, qrels).chances_by_rank, rank_chances(counts, 1), atol=1e-12)
    with pytest.raises(InputError, match=r"no judged docno \(e\.g\. 'D3'\) is among the candidates \(e\.g\. 'd0%p0'\)"):
        RankDistribution.estimate(passages, qrels.assign(docno="D3"))


def test_estimate_takes_lists_as_long_as_they_are():
    lists = pd.DataFrame({"qid": "q", "docno": [f"d{i}" for i in range(20)], "rank": range(20)})
    qrels = pd.DataFrame({"qid": ["q"], "docno": ["d0"], "label": [1]})
    assert len(RankDistribution.estimate(lists, qrels).chances_by_rank) == 20
    with pytest.raises(InputError, match="12 ranks are too few"):
        RankDistribution.estimate(lists.head(12), qrels)
    with pytest.raises(InputError, match="no qid is in both"):
        RankDistribution.estimate(lists, qrels.assign(qid="other"))
    texts = lists.assign(pool_rank=lists["rank"].astype(str))
    assert RankDistribution.estimate(texts, qrels, column="pool_rank").chances_by_rank == (
        RankDistribution.estimate(lists, qrels).chances_by_rank
    )


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        (None, r"RankDistribution: the candidates have no column 'pool_rank' \(they have qid, docno, rank\)"),
        (["first"] * 20, "column 'pool_rank' is 'first', not a number, at row 0"),
        (range(-1, 19), "column 'pool_rank' is -1 for qid='q', docno='d0'; ranks are whole numbers from 0"),
        ([0.5] * 20, "column 'pool_rank' is 0.5 for qid='q'"),
        ([np.inf] * 20, "column 'pool_rank' is inf for qid='q'"),
    ],
)
def test_estimate_refuses_what_are_no_ranks(ranks, message):
    lists = pd.DataFrame({"qid": "q", "docno": [f"d{i}" for i in range(20)], "rank": range(20)})
    lists = lists if ranks is None else lists.assign(pool_rank=ranks)
    with pytest.raises(InputError, match=message):
        RankDistribution.estimate(lists, pd.DataFrame({"qid": ["q"], "docno": ["d0"], "label": [1]}), column="pool_rank")


def test_distribution_is_drawn_by_rank():
    groups = one_query([0.1] * 4, ranks=[2, 0, 9, np.nan])
    assert chances_of(RankDistribution((0.5, 0.1, 0.4)), groups) == {"n0": 0.4, "n1": 0.5, "n2": 0.0, "n3": 0.0}
    assert set(chances_of(RankDistribution((0.5,)), one_query([0.1] * 3)).values()) == {1.0}


@pytest.mark.parametrize("chances", [(), (0.0, 0.0), (0.5, -0.1), (0.5, math.nan)])
def test_distribution_refuses_what_is_none(chances):
    with pytest.raises(InputError, match="RankDistribution"):
        RankDistribution(chances)


@pytest.mark.parametrize("options", [{"k": 1}, {"window": 4}, {"window": 0}, {"degree": -1}])
def test_rank_chances_refuse_options(options):
    with pytest.raises(InputError, match="RANCE"):
        rank_chances(np.zeros(50), 5, **options)


@pytest.mark.parametrize("queries", [0, -3, 2.5, math.nan, True, "5"])
def test_rank_chances_need_judged_queries(queries):
    with pytest.raises(InputError, match=r"queries=.* must be a whole number of at least 1"):
        rank_chances(np.zeros(50), queries)


@pytest.mark.parametrize("count", [6.0, -1.0, math.nan])
def test_rank_chances_refuse_counts_that_cannot_be(count):
    with pytest.raises(InputError, match="of 5 queries have a relevant document at rank 3"):
        rank_chances(np.r_[np.zeros(3), count, np.zeros(50)], 5)


# ExcludeNegatives


def test_excluded_pairs_are_never_drawn():
    frame, qrels = world(4)
    bad = pd.DataFrame({"qid": ["q0", "q0", "q2"], "docno": ["d3", "d5", "d7"]})
    groups = groups_of(frame, qrels)
    sampler, docnos = ExcludeNegatives(bad), groups.column("docno")
    drawn = set()
    for group in groups.groups:
        for epoch in range(40):
            rows = sampler.sample(groups, group, int(group.positives[0]), 20, seed=0, epoch=epoch)
            drawn |= {(group.qid, docnos[row]) for row in rows}
    everything = {(group.qid, docnos[row]) for group in groups.groups for row in group.pool.tolist()}
    assert drawn == everything - {("q0", "d3"), ("q0", "d5"), ("q2", "d7")}


def test_passages_of_excluded_documents_are_excluded():
    frame, qrels = world(4, size=4)
    frame = pd.concat([frame.assign(docno=frame["docno"] + f"%p{i}", text=frame["text"] + f" {i}") for i in (0, 1)])
    groups = groups_of(frame, qrels)
    chances = chances_of(ExcludeNegatives([("q0", "d1"), ("q0", "d2%p0"), ("q1", "d3")]), groups)
    assert {docno for docno, chance in chances.items() if chance} == {"d2%p1", "d3%p0", "d3%p1"}


def test_pairs_that_are_no_candidates_are_pointed_out(caplog):
    groups = groups_of(*world(4))
    for pairs in ([], [("q0", "d3"), ("q0", "D4")], [("q0", "D4"), ("q1", "D3")], [("q0", "d0")]):
        sampler = ExcludeNegatives(pairs)
        for at in (0, 1):
            chances_of(sampler, groups, at)
    assert [message.split(",")[0] for message in caplog.messages] == [
        f"ExcludeNegatives: none of its {n} pairs is among the possible negatives of {len(groups)} queries" for n in (2, 1)
    ]


def test_excluded_pairs_are_no_in_batch_negatives_either():
    frame, qrels = world(4)
    sampler = ExcludeNegatives([("q0", "d3")], ExcludeNegatives([("q0", "elsewhere"), ("q2", "d7")]))
    ranker = CrossEncoder("a/model")
    plain, excluding = (
        {group.qid: group.relevant for group in groups_to_fit(ranker, training, frame, qrels, stage="test").groups}
        for training in (
            Training(loss="infonce", in_batch_negatives=True),
            Training(loss="infonce", in_batch_negatives=True, negatives=sampler),
        )
    )
    spared = {"q0": {"d3", "elsewhere"}, "q2": {"d7"}}
    assert excluding == {qid: relevant | spared.get(qid, set()) for qid, relevant in plain.items()} != plain
    cut = frame.assign(docno=frame["docno"] + "%p0")
    training = Training(loss="infonce", in_batch_negatives=True, negatives=sampler)
    groups = groups_to_fit(ranker, training, cut, qrels, stage="test").groups
    assert {"d3", "d3%p0"} <= next(group.relevant for group in groups if group.qid == "q0")


def test_pairs_are_read_as_frames_are():
    """Numbers among them, which a merge makes floats."""
    rows = [(1.0, "d1"), (2, 7)]
    expected = {("1", "d1"), ("2", "7")}
    assert ExcludeNegatives(rows).pairs == ExcludeNegatives(pd.DataFrame(rows, columns=["qid", "docno"])).pairs == expected
    assert ExcludeNegatives(ExcludeNegatives(rows).pairs).pairs == expected and ExcludeNegatives([]).pairs == set()


def test_excluding_keeps_the_other_samplers_chances():
    groups = groups_of(*world(4))
    window = chances_of(RankWindow(last=6), groups)
    out = next(docno for docno, chance in window.items() if chance)
    assert chances_of(ExcludeNegatives([("q0", out)], RankWindow(last=6)), groups) == {**window, out: 0.0}


def test_excluding_all_that_was_wanted_leaves_the_others():
    groups = one_query([0.1] * 4)
    assert chances_of(ExcludeNegatives([("q", "n0")], RankWindow(last=1)), groups) == {"n0": 0.0, "n1": 1.0, "n2": 1.0, "n3": 1.0}


def test_excluding_everything_is_refused():
    with pytest.raises(InputError, match="all 2 possible negatives of query 'q' are excluded"):
        chances_of(ExcludeNegatives([("q", "n0"), ("q", "n1")]), one_query([0.1, 0.2]))


def test_equal_pairs_make_equal_samplers():
    frame = pd.DataFrame({"qid": [1, 2], "docno": ["a", "b"], "more": [0, 1]})
    one, two = ExcludeNegatives(frame), ExcludeNegatives([("2", "b"), ("1", "a"), ("1", "a")])
    assert one == two
    assert hash(one) == hash(two)
    assert repr(one) == repr(two)
    other = ExcludeNegatives([("1", "b"), ("2", "a")])
    assert other != one
    assert repr(other) != repr(one)
    assert ExcludeNegatives(frame, RankWindow()) != one


def test_excluding_needs_chances():
    class Own:
        def sample(self, groups, group, positive, n, *, seed, epoch):
            return group.pool[:n]

    with pytest.raises(InputError, match="does not provide its chances"):
        ExcludeNegatives([], Own())
    assert ExcludeNegatives([]).negatives == UniformNegatives()
