"""Statistics over queries as measures: what Experiment averages is the statistic."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import RR, nDCG
from scipy import stats

from pyterrier_debias import InputError
from pyterrier_debias.linguistic.formulas.slope import partial_slope
from pyterrier_debias.linguistic.measures.over_queries import OverQueries, influence_values

QIDS = [f"q{i}" for i in range(24)]
GENERATOR = np.random.default_rng(4)
COMPLEXITY = pd.DataFrame({"qid": QIDS, "complexity": GENERATOR.normal(size=24)})
DOCNOS = [f"d{i}" for i in range(8)]
RUNS = {  # the last query has no results
    name: pd.DataFrame(
        [(q, d, s) for q in QIDS[:-1] for d, s in zip(DOCNOS, GENERATOR.normal(size=8))], columns=["qid", "docno", "score"]
    )
    for name in ("one", "two")
}
QRELS = pd.DataFrame([(q, d, int(d in ("d1", "d4"))) for q in QIDS for d in DOCNOS], columns=["qid", "docno", "label"])
MEASURES = {s: OverQueries(nDCG @ 5, s, COMPLEXITY) for s in ("sd", "cv", "slope", "worst", "gap")}


def experiment(**options):
    systems = {name: pt.Transformer.from_df(run) for name, run in RUNS.items()}
    topics = pd.DataFrame({"qid": QIDS, "query": "any"})
    return pt.Experiment(systems, topics, QRELS, [nDCG @ 5, *MEASURES.values()], verbose=False, **options)


def values_of(name):
    found = experiment(perquery=True)
    return found[(found["name"] == name) & (found["measure"] == "nDCG@5")].set_index("qid").loc[QIDS, "value"].to_numpy()


@pytest.mark.parametrize("name", list(RUNS))
def test_columns_of_an_experiment(name):
    y, x = values_of(name), COMPLEXITY["complexity"].to_numpy()
    assert y[-1] == 0 and len(y) == 24
    edges = np.quantile(x, [1 / 3, 2 / 3])
    means = [part.mean() for part in (y[x < edges[0]], y[(x >= edges[0]) & (x < edges[1])], y[x >= edges[1]])]
    expected = {
        "sd": y.std(),
        "cv": y.std() / y.mean(),
        "slope": np.polyfit(x / x.std(), y, 1)[0],
        "worst": min(means),
        "gap": max(means) - min(means),
    }
    row = experiment().set_index("name").loc[name]
    assert {s: row[str(MEASURES[s])] for s in expected} == pytest.approx(expected)
    assert row["nDCG@5"] == pytest.approx(y.mean())


@pytest.mark.parametrize("options", [{}, {"plan": "tree"}, {"perquery": True}, {"baseline": 0}])
@pytest.mark.parametrize("size", [4, 100])
def test_batches_are_refused(options, size):
    """Four queries at a time, the mean of the batches' statistics was another number: of cv, .286 instead of .378."""
    with pytest.raises(InputError, match=f"over all queries cannot be computed from batches of {size}; leave batch_size"):
        experiment(batch_size=size, **options)


def test_the_baselines_test_is_the_delta_method():
    one, two, x = values_of("one"), values_of("two"), COMPLEXITY["complexity"].to_numpy()
    found = experiment(baseline="one").set_index("name").loc["two"]
    for statistic in ("cv", "slope"):
        paired = stats.ttest_rel(influence_values(two, statistic, x), influence_values(one, statistic, x))
        assert found[f"{MEASURES[statistic]} p-value"] == pytest.approx(paired.pvalue)
    # For the slope that is the slope of the differences, tested with a robust standard error.
    change = partial_slope(two - one, x, resamples=1)
    assert (influence_values(two, "slope", x) - influence_values(one, "slope", x)).mean() == pytest.approx(change.per_sd.estimate)


@pytest.mark.parametrize("statistic", ["sd", "cv", "slope"])
def test_standard_errors_are_those_of_the_bootstrap(statistic):
    generator = np.random.default_rng(0)
    x = generator.normal(size=150)
    y = np.clip(0.5 - 0.1 * x + 0.2 * generator.normal(size=150), 0, 1)
    drawn = []
    for _ in range(400):
        own = generator.integers(0, 150, 150)
        drawn.append(influence_values(y[own], statistic, x[own]).mean())
    error = influence_values(y, statistic, x).std(ddof=1) / np.sqrt(150)
    assert error == pytest.approx(np.std(drawn), rel=0.15)


def test_standard_errors_of_groups_are_theirs():
    """Of the worst third the error of its mean; of the gap that of a difference between independent means."""
    y, x = values_of("one"), COMPLEXITY["complexity"].to_numpy()
    edges = np.quantile(x, [1 / 3, 2 / 3])
    parts = sorted((y[np.searchsorted(edges, x, side="right") == b] for b in range(3)), key=np.mean)
    worst, best = parts[0], parts[2]
    errors = {s: influence_values(y, s, x).std() / np.sqrt(24) for s in ("worst", "gap")}
    assert errors["worst"] == pytest.approx(worst.std() / np.sqrt(len(worst)))
    assert errors["gap"] == pytest.approx(np.sqrt(worst.var() / len(worst) + best.var() / len(best)))


def test_names_and_equality():
    assert OverQueries("RR@10", "cv") == OverQueries(RR @ 10, "cv") != OverQueries(RR @ 10, "sd")
    assert [str(MEASURES[s]) for s in ("sd", "cv")] == ["sd(nDCG@5)", "cv(nDCG@5)"]
    # Those by complexity tell which: as many queries, and a hash of theirs.
    assert re.fullmatch(r"slope\(nDCG@5,complexity=24:[0-9a-f]{8}\)", str(MEASURES["slope"]))
    shuffled = COMPLEXITY.sample(frac=1, random_state=0).assign(query="any").astype({"qid": object})
    assert OverQueries(nDCG @ 5, "slope", shuffled) == MEASURES["slope"]
    other = COMPLEXITY.assign(complexity=-COMPLEXITY["complexity"])
    assert OverQueries(nDCG @ 5, "slope", other) != MEASURES["slope"]
    named = OverQueries(nDCG @ 5, "slope", COMPLEXITY, name="slope")
    assert str(named) == str(named()) == "slope" and named.params["complexity"] is COMPLEXITY


def test_two_complexities_in_one_experiment_are_two_columns():
    other = COMPLEXITY.assign(complexity=-COMPLEXITY["complexity"])
    measures = [OverQueries(nDCG @ 5, "slope", frame) for frame in (COMPLEXITY, other)]
    topics = pd.DataFrame({"qid": QIDS, "query": "any"})
    row = pt.Experiment([pt.Transformer.from_df(RUNS["one"])], topics, QRELS, measures).iloc[0]
    assert row[str(measures[0])] == pytest.approx(-row[str(measures[1])]) != 0


def test_integer_identifiers():
    run = pd.DataFrame({"qid": [1, 1, 2], "docno": ["a", "b", "a"], "score": [2.0, 1.0, 1.0]}).astype({"qid": str})
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["b", "a"], "label": 1})
    complexity = pd.DataFrame({"qid": [1, 2], "complexity": [0.0, 1.0]})
    assert pt.Evaluate(run, qrels, [OverQueries(RR, "gap", complexity, name="gap(RR)")]) == {"gap(RR)": 0.5}
    numbered = [frame.astype({"qid": int}) for frame in (run, qrels)]
    assert pt.Evaluate(*numbered, [OverQueries(RR, "gap", complexity, name="gap(RR)")]) == {"gap(RR)": 0.5}


def test_bad_input():
    for arguments, message in (
        ((nDCG, "variance"), "'variance'"),
        ((nDCG, "slope"), "needs complexity"),
        ((nDCG, "gap", COMPLEXITY[["qid"]]), "needs complexity"),
        (("nDGC@10", "sd"), "nDGC"),
    ):
        with pytest.raises(InputError, match=message):
            OverQueries(*arguments)
    twice = pd.concat([COMPLEXITY, COMPLEXITY.head(1)])
    assert OverQueries(nDCG, "slope", twice) == OverQueries(nDCG, "slope", COMPLEXITY)
    with pytest.raises(InputError, match="query 'q0' has several complexities; keep one row per query"):
        OverQueries(nDCG, "slope", twice.assign(complexity=range(25)))
    with pytest.raises(InputError, match="1 judged queries have no complexity"):
        pt.Evaluate(RUNS["one"], QRELS, [OverQueries(nDCG, "slope", COMPLEXITY.drop(index=3))])
