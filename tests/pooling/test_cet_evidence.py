"""What the selection model may see: features against brute force and a reference, missing evidence, what is kept."""

import json
import math
import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import InputError
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.pooling.data.evidence import (
    FOLLOWS,
    EvidenceModel,
    PoolEvidence,
    check_direction,
    check_known,
    collection_statistics,
    evidence_direction,
    lexical_features,
)
from tests.pooling.cet_toy import World, auc, length_scorer

TEXTS = ["the red bridge over the river", "a river", "red red red works", "", "the doctor lives by the river bridge"]


def frame(**columns):
    rows = {
        "qid": ["a", "a", "a", "b", "b"],
        "docno": [f"d{i}" for i in range(5)],
        "query": ["red bridge"] * 3 + ["the river doctor"] * 2,
        "text": TEXTS,
        "pool_score": [3.0, 1.0, np.nan, 7.0, np.nan],
        "pool_rank": [0.0, 4.0, np.nan, 2.0, np.nan],
    }
    return pd.DataFrame({**rows, **columns})


def learned(evidence, candidates, weights=None):
    model = evidence.learn(candidates, candidates["text"].tolist())
    return model if weights is None else model.with_weights(weights)


def test_lexical_features_by_brute_force():
    """BM25's sum term by term; the shares by counting."""
    statistics = collection_statistics(TEXTS, regex_word)
    lengths = [len(text.split()) for text in TEXTS]
    assert (statistics.documents, statistics.mean_length) == (5, sum(lengths) / 5)
    for query in ("red bridge", "the river doctor", "red red", "unseen red", ""):
        terms = sorted(set(query.split()))
        for text, length in zip(TEXTS, lengths):
            holding = {t: sum(t in other.split() for other in TEXTS) for t in terms}
            idf = {t: math.log(1 + (5 - n + 0.5) / (n + 0.5)) for t, n in holding.items()}
            bm25 = 0.0
            for t in terms:
                tf = text.split().count(t)
                bm25 += idf[t] * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length / statistics.mean_length))
            held = [t for t in terms if t in text.split()]
            shares = (sum(idf[t] for t in held) / sum(idf.values()), len(held) / len(terms)) if terms else (0.0, 0.0)
            expected = (bm25, *shares, math.log(1 + length))
            assert lexical_features(query.split(), text.split(), statistics) == pytest.approx(expected, abs=1e-12)


def test_features_are_standardised_and_kept():
    model = learned(PoolEvidence(), frame())
    features, known = model.features(frame(), TEXTS)
    assert model.names == ("pool_score", "pool_rank", "bm25", "idf_overlap", "coverage", "log_length")
    assert known.tolist() == [True, True, False, True, False]
    np.testing.assert_allclose(features[known].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(features[known].std(axis=0), 1, atol=1e-12)
    expected = np.array([3.0, 1.0, 7.0])
    np.testing.assert_allclose(features[known, 0], (expected - expected.mean()) / expected.std())
    logs = np.log1p([0.0, 4.0, 2.0])
    np.testing.assert_allclose(features[known, 1], (logs - logs.mean()) / logs.std())
    # A pair is scored alike in another frame, whose words and numbers are spread otherwise.
    one = frame().iloc[[0]].assign(kept=1)
    np.testing.assert_allclose(model.features(one, [TEXTS[0]])[0][0], features[0])


def test_missing_evidence_is_bounded_by_what_is_known():
    model = learned(PoolEvidence(lexical=False), frame())
    values, _ = model.features(frame(), TEXTS)
    full, known = model.features(frame(pool_score=[3.0, 1.0, 1.0, 7.0, 7.0], pool_rank=[0.0, 4.0, 5.0, 2.0, 3.0]), TEXTS)
    assert known.all()
    np.testing.assert_allclose(values, full)
    # A query of which nothing is known: behind everything that was learned on.
    nothing = frame(pool_score=[3.0, 1.0, np.nan, np.nan, np.nan], pool_rank=[0.0, 4.0, np.nan, np.nan, np.nan])
    values, _ = model.features(nothing, TEXTS)
    full, _ = model.features(frame(pool_score=[3.0, 1.0, 1.0, 1.0, 1.0], pool_rank=[0.0, 4.0, 5.0, 5.0, 5.0]), TEXTS)
    np.testing.assert_allclose(values, full)
    weights = np.array([1.0, -1.0])
    scores = model.with_weights(weights).score(frame(), TEXTS)
    assert scores[2] < scores[:2].min()
    assert scores[4] < scores[3]


def test_a_row_lacking_one_number_is_not_learned_from():
    """AddJudged gives its rows a last rank and no score."""
    candidates = frame(score=[3.0, 1.0, np.nan, 7.0, 6.0], rank=[0, 1, 2, 0, 1]).drop(columns=["pool_score", "pool_rank"])
    model = learned(PoolEvidence(lexical=False), candidates)
    assert model.columns == ("score", "rank")
    values, known = model.features(candidates, TEXTS)
    assert known.tolist() == [True, True, False, True, True]
    expected, _ = model.features(candidates.assign(score=[3.0, 1.0, 1.0, 7.0, 6.0]), TEXTS)
    np.testing.assert_allclose(values, expected)


def test_a_row_lacking_one_number_keeps_the_others():
    candidates = pd.DataFrame({"qid": ["1"] * 4 + ["2"] * 2, "docno": list("abcdef"), "query": "x"})
    candidates = candidates.assign(bm25=[9.0, 5.0, 1.0, 30.0, 0.5, np.nan], splade_rank=[0, 1, 2, np.nan, np.nan, 7])
    model = PoolEvidence(columns=["bm25", "splade_rank"], lexical=False).learn(candidates, [""] * 6)
    scores = model.with_weights(np.array([1.0, 0.0])).score(candidates, [""] * 6)
    assert scores[3] == scores.max() > scores[0]
    # A missing number is the query's worst one of its column; of query 2 either column has one row to be read.
    filled = candidates.assign(bm25=[9.0, 5.0, 1.0, 30.0, 0.5, 0.5], splade_rank=[0, 1, 2, 3, 8, 7])
    values, known = model.features(candidates, [""] * 6)
    assert known.tolist() == [True, True, True, False, False, False]
    np.testing.assert_allclose(values, model.features(filled, [""] * 6)[0])
    # What stands in where a query has no number at all is the worst of all rows that have one.
    assert model.worst == (0.5, 8.0)


def test_what_does_not_vary_counts_nothing():
    model = learned(PoolEvidence(lexical=False), frame(pool_score=[2.0] * 5, pool_rank=[0.0, 1.0, 2.0, 3.0, 4.0]))
    values, _ = model.features(frame(pool_score=[9.0] * 5, pool_rank=[0.0, 1.0, 2.0, 3.0, 4.0]), TEXTS)
    assert not values[:, 0].any()
    assert values[:, 1].all()


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        (["pool_score", "pool_rank", "score", "rank"], ("pool_score", "pool_rank")),
        (["pool_rank", "score"], ("pool_rank",)),
        (["score", "rank"], ("score", "rank")),
    ],
)
def test_the_pools_own_columns_come_first(columns, chosen):
    assert PoolEvidence().chosen(pd.DataFrame(columns=columns)) == chosen


def test_scores_that_stand_in_for_the_pools_are_noticed(caplog):
    """Behind a stronger system than the pool's they say what that system thinks, which nobody was shown."""
    caplog.set_level("WARNING")
    bare = frame().drop(columns=["pool_score", "pool_rank"])
    numbers = {"score": [5.0, 4.0, 3.0, 2.0, 1.0], "rank": range(5)}
    learned(PoolEvidence(), bare.assign(**numbers))
    [record] = caplog.records
    said = record.getMessage()
    assert all(part in said for part in ("score and rank", "pool_score", "only where", "scorer=", "'lexical'", "columns="))
    caplog.clear()
    learned(PoolEvidence(), frame(**numbers))
    learned(PoolEvidence(columns=["score", "rank"]), bare.assign(**numbers))
    learned(PoolEvidence(columns=()), bare.assign(**numbers))
    assert not caplog.records


def test_columns_that_are_missing_or_no_numbers_are_named():
    bare = frame().drop(columns=["pool_score", "pool_rank"])
    with pytest.raises(InputError, match=r"no column pool_score, pool_rank, score or rank.*selection='lexical'"):
        learned(PoolEvidence(), bare)
    with pytest.raises(InputError, match="have no column 'splade'"):
        learned(PoolEvidence(columns=["splade"]), frame())
    for bad in ("high", np.inf):
        with pytest.raises(InputError, match=f"column 'pool_score' is {bad!r} at row 1; .* must be a finite number, or missing"):
            learned(PoolEvidence(), frame(pool_score=[1.0, bad, 2.0, 3.0, 4.0]))
    with pytest.raises(InputError, match="column 'pool_rank', which its selection model was fitted on"):
        learned(PoolEvidence(), frame()).score(frame().drop(columns="pool_rank"), TEXTS)
    assert learned(PoolEvidence(columns=()), bare).names == ("bm25", "idf_overlap", "coverage", "log_length")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": "pool_score"}, "must be a list of names"),
        ({"columns": (), "lexical": False}, "has no input"),
        ({"learning_rate": 0}, "learning_rate=0 must be a number above 0 and at most 1"),
        ({"tokeniser": "letters"}, "tokeniser='letters' is not known"),
    ],
)
def test_options_that_cannot_be_used_are_named(options, message):
    with pytest.raises(InputError, match=message):
        PoolEvidence(**options)


def test_columns_in_an_array_are_names_in_a_list():
    names = ["pool_score", "pool_rank"]
    for given in (np.array(names), pd.Index(names)):
        found = PoolEvidence(columns=given, lexical=False)
        assert found == PoolEvidence(columns=names, lexical=False) and repr(names) in repr(found)


def test_a_scorer_takes_the_place_of_columns():
    seen = []
    model = learned(PoolEvidence(scorer=length_scorer(seen), lexical=False), frame(label=[1, 0, 0, 1, 0]))
    assert model.names == ("scorer",)
    values, known = model.features(frame(), TEXTS)
    assert known.all()
    lengths = np.array([len(text) for text in TEXTS], dtype=float)
    np.testing.assert_allclose(values[:, 0], (lengths - lengths.mean()) / lengths.std())
    assert "label" not in seen[0]
    some = pt.apply.generic(lambda candidates: length_scorer()(candidates).query("docno != 'd1'"))
    assert PoolEvidence(scorer=some).learn(frame(), TEXTS).features(frame(), TEXTS)[1].tolist() == [True, False, True, True, True]


def test_too_little_evidence_is_refused_or_told():
    model = learned(PoolEvidence(), frame())
    groups = [(np.array([0]), np.arange(1, 30)), (np.array([30]), np.arange(31, 60))]
    everything = np.ones(60, dtype=bool)
    assert check_known(model, everything, groups) is None
    for lost in (np.array([0, 30]), np.r_[1:30, 31:60]):
        known = everything.copy()
        known[lost] = False
        with pytest.raises(InputError, match="no query has both a positive and an unlabelled candidate"):
            check_known(model, known, groups)
    known = everything.copy()
    known[3:] = False
    assert check_known(model, known, groups) == (
        "the selection model learns from 2 of 58 pairs: pool_score, pool_rank are there for 50% of the positives "
        "and 3% of the others"
    )


def test_a_model_survives_json_and_pickle():
    model = learned(PoolEvidence(), frame(), np.arange(6.0))
    for copy in (EvidenceModel.from_json(json.loads(json.dumps(model.to_json()))), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(copy.score(frame(), TEXTS), model.score(frame(), TEXTS))
        assert copy.coefficients == model.coefficients
        assert copy.fingerprint() == model.fingerprint()
    flat = learned(PoolEvidence(), frame(pool_score=[1.0] * 5))
    assert np.isinf(EvidenceModel.from_json(json.loads(json.dumps(flat.to_json()))).scale[0])


def test_what_cannot_be_saved_has_to_be_given_again():
    scorer = length_scorer()
    content = learned(PoolEvidence(scorer=scorer), frame(), np.ones(5)).to_json()
    with pytest.raises(InputError, match=r"give it again: CETReranker\.load"):
        EvidenceModel.from_json(content)
    again = EvidenceModel.from_json(content, scorer=scorer)
    expected = learned(PoolEvidence(scorer=scorer), frame(), np.ones(5)).score(frame(), TEXTS)
    np.testing.assert_allclose(again.score(frame(), TEXTS), expected)
    content = learned(PoolEvidence(tokeniser=str.split), frame()).to_json()
    with pytest.raises(InputError, match="splits words with a function; give it again"):
        EvidenceModel.from_json(content)
    assert EvidenceModel.from_json(content, tokeniser=str.split).evidence == PoolEvidence(tokeniser=str.split)


def test_evidence_is_equal_by_its_options():
    assert PoolEvidence() == PoolEvidence()
    assert hash(PoolEvidence()) == hash(PoolEvidence())
    assert PoolEvidence() != PoolEvidence(columns=())
    assert repr(PoolEvidence(columns=("bm25",), lexical=False)) == "PoolEvidence(columns=('bm25',), lexical=False)"


def groups_of(world):
    """Rows of the world's labelled documents and of its training candidates, query by query."""
    rows = np.arange(world.relevant.size).reshape(world.relevant.shape)
    groups = [(own[labelled], own[pool]) for own, labelled, pool in zip(rows, world.labelled, world.pool)]
    return [(positives, pool) for positives, pool in groups if len(positives) and len(pool)]


def direction(world, score):
    features, known = world.evidence.reshape(-1, 2), np.ones(world.relevant.size, dtype=bool)
    return evidence_direction(features, known, score.ravel(), groups_of(world))


@pytest.mark.parametrize("seed", range(4))
def test_the_direction_of_evidence_is_that_of_the_hidden_positives(seed):
    """Paraphrases are hidden where words say little, and the evidence helps; where all relevant documents share words, the pool's
    order goes on behind its cut, and hidden positives are those that the evidence puts high."""
    world = World(seed)
    words, meaning = world.inputs[..., 0].astype(float), world.inputs[..., 1].astype(float)
    hidden = world.relevant & world.pool
    first = world.evidence[..., 0]
    assert auc(first[hidden], first[~world.relevant & world.pool]) > 0.6
    assert direction(world, 0.5 * words + meaning).estimate < FOLLOWS

    generator = np.random.default_rng(seed)
    words = generator.normal(size=words.shape) + 1.5 * world.relevant
    strong = words + generator.normal(size=words.shape) + 1.5 * world.relevant
    rank = (-words).argsort(axis=1).argsort(axis=1)
    world.evidence = np.stack([words, -np.log1p(rank)], axis=-1)
    world.labelled = world.relevant & (rank < 3)
    world.pool = ((-strong).argsort(axis=1).argsort(axis=1) < 15) & ~world.labelled
    hidden = world.relevant & world.pool
    assert auc(words[hidden], words[~world.relevant & world.pool]) < 0.5
    found = direction(world, strong)
    assert found.estimate > FOLLOWS and found.low > 0


def many(generator, follows):
    """Thirty queries: the pool put the labelled document first; ``score`` follows its order of the others, or does not."""
    rows = []
    for qid in range(30):
        pool = generator.normal(size=8)
        pool[0] += 4
        score = (pool if follows else 0) + generator.normal(size=8) / 2 + np.eye(8)[0] * 5
        rows += [
            {"qid": str(qid), "docno": f"d{i}", "query": "red", "text": "red", "pool_score": pool[i], "score": score[i]}
            for i in range(8)
        ]
    return pd.DataFrame(rows).assign(pool_rank=lambda f: f.groupby("qid")["pool_score"].rank(ascending=False) - 1)


@pytest.mark.parametrize("follows", [True, False])
def test_a_warning_tells_where_evidence_points_the_wrong_way(follows):
    candidates = many(np.random.default_rng(3), follows)
    model = learned(PoolEvidence(lexical=False), candidates)
    features, known = model.features(candidates, candidates["text"].tolist())
    groups = [(np.array([i]), np.arange(i + 1, i + 8)) for i in range(0, 240, 8)]
    said = check_direction(model, features, known, candidates, groups)
    assert (said is not None) == follows
    if follows:
        assert "over 30 held-out queries" in said and "rank correlation +0.86" in said
    assert check_direction(model, features, known, candidates.drop(columns="score"), groups) is None
    assert check_direction(model, features, known, candidates, groups[:8]) is None  # too few to tell
    own = learned(PoolEvidence(columns=["score"], lexical=False), candidates)
    assert check_direction(own, features, known, candidates, groups) is None


@pytest.mark.parametrize("columns", [["pool_score"], ["pool_rank"], None])
@pytest.mark.parametrize(
    "change",
    [
        lambda own: own,
        lambda own: own.where(own.index != 8),  # a positive that AddJudged added behind the first stage has no score
        lambda own: own.round(1),
        lambda own: np.exp(own / 2) - 7,
    ],
    ids=["equal", "missing", "rounded", "rescaled"],
)
def test_the_pools_own_score_says_nothing_about_direction(columns, change):
    candidates = many(np.random.default_rng(3), True)
    candidates["score"] = change(candidates["pool_score"])
    model = learned(PoolEvidence(columns=columns, lexical=False), candidates)
    features, known = model.features(candidates, candidates["text"].tolist())
    groups = [(np.array([i]), np.arange(i + 1, i + 8)) for i in range(0, 240, 8)]
    assert check_direction(model, features, known, candidates, groups) is None
