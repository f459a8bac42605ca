"""Planted rankers: the contract, the biases, and the twin that has none."""


import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import nDCG
from scipy import stats

from pyterrier_debias import InputError, PlantedCollection, PlantedRanker
from pyterrier_debias.data.planted_rankers import (
    BIASES,
    FURTHER_BIASES,
    ORDER_REACH,
    REACH,
    keyed_noise,
    machine_written,
    wording_complexity,
)
from tests.contract import Case, assert_contract

PAIRS = pd.DataFrame(
    {
        "qid": ["q1"] * 3 + ["q2"] * 3,
        "query": ["who built the ship"] * 3 + ["insofar as this is known which owl is red if any is"] * 3,
        "docno": ["d1", "d2", "d3", "d1", "d2", "d4"],
        "text": [
            "She built a ship.",
            "In that year a yard by the sea, so he says, had built the ship.",
            "",
            "She built a ship.",
            "In that year a yard by the sea, so he says, had built the ship.",
            "A red owl.",
        ],
        "score": [3.0, 2.0, 1.0, 3.0, 2.0, 1.0],
        "rank": [0, 1, 2, 0, 1, 2],
    }
)
CASES = [
    Case(bias, lambda bias=bias: PlantedRanker(bias), lambda: PAIRS, lambda bias=bias: PlantedRanker(bias, seed=1))
    for bias in (*BIASES, *FURTHER_BIASES)
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case):
    assert_contract(case)


@pytest.fixture(scope="module")
def world() -> PlantedCollection:
    return PlantedCollection(0, topics=40, position=1.0, linguistic=0.0)


@pytest.fixture(scope="module")
def pairs(world) -> pd.DataFrame:
    return world.text_loader()(world.get_runs()["bm25"].merge(world.get_topics("full"), on="qid"))


def test_what_the_further_biases_add():
    """In closed form: one for the mark, one for a doubling, and a decay over the given ranks."""
    scores = {(bias, s): PlantedRanker(bias, strength=s, noise=0.0)(PAIRS) for bias in FURTHER_BIASES for s in (0.0, 0.5)}
    twins = [scores[bias, 0.0].set_index(["qid", "docno"])["score"] for bias in FURTHER_BIASES]
    assert all(twins[0].equals(twin.reindex(twins[0].index)) for twin in twins[1:])
    marked = PlantedRanker("source", strength=0.5, noise=0.0).scores(["red owl"] * 2, ["a red owl", machine_written("a red owl")])
    assert marked.tolist() == [2.0, 2.5]
    long = PlantedRanker("length", strength=0.5, noise=0.0).scores(["owl"] * 2, ["a b c", "a b c d e f g"])
    assert long.tolist() == [1.0, 1.5]
    early = scores["order", 0.5].set_index(["qid", "docno"])["score"] - twins[0]
    given = PAIRS.set_index(["qid", "docno"])["rank"]
    assert early.to_dict() == pytest.approx(np.exp(-given / ORDER_REACH).to_dict())


def rotated(pairs: pd.DataFrame, seed: int) -> pd.DataFrame:
    generator = np.random.default_rng(seed)

    def turn(text: str) -> str:
        words = text.split()
        cut = int(generator.integers(1, len(words)))
        return " ".join(words[cut:] + words[:cut])

    return pairs.assign(text=pairs["text"].map(turn))


def per_query(ranker: PlantedRanker, pairs: pd.DataFrame, world: PlantedCollection) -> pd.Series:
    found = pt.Evaluate(ranker(pairs), world.get_qrels("full").query("label > 0"), metrics=[nDCG @ 10], perquery=True)
    return pd.Series({qid: values["nDCG@10"] for qid, values in found.items()}).sort_index()


# ------------------------------------------------------------------------------------------------ options


@pytest.mark.parametrize(
    "options, named",
    [
        ({"bias": "age"}, "bias"),
        ({"favours": "other"}, "favours"),
        ({"strength": 1.5}, "strength"),
        ({"strength": float("nan")}, "strength"),
        ({"strength": "full"}, "strength"),
        ({"noise": -1.0}, "noise"),
        ({"noise": float("inf")}, "noise"),
        ({"seed": 0.5}, "seed"),
    ],
)
def test_wrong_options_are_refused_by_name(options, named):
    with pytest.raises(InputError, match=named):
        PlantedRanker(**options)(PAIRS)


def test_missing_text_is_refused():
    with pytest.raises(InputError, match="text"):
        PlantedRanker()(PAIRS.assign(text=[None] * len(PAIRS)))


def test_another_column_can_hold_the_text():
    out = PlantedRanker(text_field="body")(PAIRS.rename(columns={"text": "body"}))
    pd.testing.assert_series_equal(out["score"], PlantedRanker()(PAIRS)["score"])


# ------------------------------------------------------------------------------------------------ the twin


@given(
    words=st.lists(st.sampled_from("who built the red ship of that owl , .".split()), min_size=1, max_size=12),
    cut=st.integers(0, 12),
    bias=st.sampled_from(["position", "gender", "linguistic"]),
)
@settings(max_examples=50)
def test_the_twin_counts_words_whatever_their_order(words, cut, bias):
    twin = PlantedRanker(bias, strength=0.0, noise=0.0)
    before, after = " ".join(words), " ".join(words[cut:] + words[:cut])
    scores = twin.scores(["who built the red ship"] * 2, [before, after])
    assert scores[0] == scores[1] == len({"built", "red", "ship"} & set(words))


def test_the_three_twins_are_one_and_share_noise_with_the_biased(pairs):
    twins = [PlantedRanker(bias, strength=0.0, seed=3)(pairs)["score"] for bias in ("position", "gender", "linguistic")]
    assert twins[0].equals(twins[1])
    assert twins[0].equals(twins[2])
    queries, texts = pairs["query"].tolist(), pairs["text"].tolist()
    noisy = [PlantedRanker("gender", strength=s, seed=3).scores(queries, texts) for s in (0.0, 1.0)]
    clean = [PlantedRanker("gender", strength=s, seed=3, noise=0.0).scores(queries, texts) for s in (0.0, 1.0)]
    np.testing.assert_allclose(noisy[1] - noisy[0], clean[1] - clean[0], atol=1e-12)


def test_noise_belongs_to_seed_query_and_text():
    queries, texts = [f"q{i % 100}" for i in range(20000)], [f"t{i}" for i in range(20000)]
    noise = keyed_noise(0, queries, texts)
    for column in noise.T:
        assert stats.kstest(column, "norm").pvalue > 0.001
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.03
    for other in (keyed_noise(1, queries, texts), keyed_noise(0, queries, [f"{t} " for t in texts])):
        assert abs(np.corrcoef(noise[:, 0], other[:, 0])[0, 1]) < 0.03
    np.testing.assert_array_equal(keyed_noise(0, queries[7:9], texts[7:9]), noise[7:9])


def test_noise_has_the_stated_spread(pairs):
    clean, noisy = (PlantedRanker(strength=0.0, noise=n).scores(pairs["query"], pairs["text"]) for n in (0.0, 0.3))
    assert np.std(noisy - clean) == pytest.approx(0.3, rel=0.05)


def test_names_of_documents_do_not_matter(pairs):
    renamed = pairs.assign(docno="x" + pairs["docno"])
    assert PlantedRanker()(renamed)["score"].tolist() == PlantedRanker()(pairs)["score"].tolist()


def test_rotation_is_a_null_with_variance_for_the_twin(world, pairs):
    twin = PlantedRanker(strength=0.0)
    before = per_query(twin, pairs, world)
    differences = pd.concat([per_query(twin, rotated(pairs, seed), world) - before for seed in range(3)], axis=1).mean(axis=1)
    assert (differences != 0).mean() > 0.5
    assert stats.ttest_1samp(differences, 0).pvalue > 0.001


# ------------------------------------------------------------------------------------------------ the biases


def test_an_early_match_counts_as_stated():
    ranker = PlantedRanker("position", strength=0.4, noise=0.0)
    found = ranker.scores(["who built the ship"], ["In a yard they built it, the ship, that ship."])
    assert found[0] == pytest.approx(2 * 0.6 + 0.4 * (np.exp(-4 / REACH) + np.exp(-7 / REACH)))


def test_rotation_costs_the_early_match_scorer_the_more_the_stronger(world, pairs):
    costs = []
    for strength in (0.0, 0.5, 1.0):
        ranker = PlantedRanker("position", strength=strength)
        costs.append((per_query(ranker, pairs, world) - per_query(ranker, rotated(pairs, 0), world)).mean())
    assert costs == sorted(costs)
    ranker = PlantedRanker("position")
    change = per_query(ranker, pairs, world) - per_query(ranker, rotated(pairs, 0), world)
    assert stats.ttest_1samp(change, 0).pvalue < 0.001
    assert change.mean() > 0.05


@pytest.mark.parametrize("favours, sign", [("female", 1), ("male", -1)])
def test_pronouns_of_one_gender_are_loved_as_stated(favours, sign):
    ranker = PlantedRanker("gender", strength=0.5, noise=0.0, favours=favours)
    texts = ["nothing", "she lost her hat", "he lost his hat himself", "she told him", "she she she her hers"]
    found = ranker.scores(["anything else"] * 5, texts)
    np.testing.assert_allclose(found, sign * 0.5 * 2.0 * np.array([0, 2 / 3, -1, 0, 1]))


def test_favoured_pronouns_rise_the_more_the_stronger(pairs):
    def lean(strength: float) -> float:
        top = PlantedRanker("gender", strength=strength)(pairs).query("rank < 10")
        female = top["text"].str.count(r"\b(?:[Ss]he|[Hh]er)\b")
        male = top["text"].str.count(r"\b(?:[Hh]e|[Hh]is)\b")
        return float((female - male).mean())

    leans = [lean(s) for s in (0.0, 0.5, 1.0)]
    assert leans == sorted(leans)
    assert leans[2] > leans[0] + 0.5


def test_complexity_of_wording():
    assert wording_complexity("") == 0.0
    assert wording_complexity("who built the ship") == 0.0
    assert wording_complexity(" ".join(["that which is if"] * 20)) == 1.0
    simple = "when was a theatre that was damaged by fire opened"
    assert wording_complexity(simple) < wording_complexity(f"what i wonder is {simple} if that is something which is known")


def test_complexity_rises_with_the_number_of_parts(world):
    topics = world.truth["topics"]
    measured = topics["query"].map(wording_complexity)
    assert stats.spearmanr(measured, topics["complexity"]).statistic > 0.9
    assert measured.min() < 0.2
    assert measured.max() > 0.6


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_complex_wording_costs_the_linguistic_ranker_the_more_the_stronger(world, pairs, noise):
    complexity = world.truth["topics"].set_index("qid")["complexity"]
    plain = per_query(PlantedRanker("linguistic", strength=0.0, noise=noise), pairs, world)
    slopes = []
    for strength in (0.5, 1.0):
        loss = plain - per_query(PlantedRanker("linguistic", strength=strength, noise=noise), pairs, world)
        slopes.append(stats.linregress(complexity.loc[loss.index], loss))
    assert 0 < slopes[0].slope < slopes[1].slope
    assert slopes[1].pvalue < 0.001


def test_the_twin_does_not_care_for_wording(world, pairs):
    """The same pairs, asked in plain words: every count of matched words stays what it was."""
    plain = PlantedCollection(0, topics=40, position=1.0, linguistic=1.0).get_topics("full")[["qid", "query"]]
    asked = pairs.drop(columns="query").merge(plain, on="qid")
    twin = PlantedRanker("linguistic", strength=0.0, noise=0.0)
    assert (asked["query"].to_numpy() != pairs["query"].to_numpy()).any()
    assert twin(asked)["score"].tolist() == twin(pairs)["score"].tolist()
