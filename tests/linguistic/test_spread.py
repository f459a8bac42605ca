"""Spread and tests of arrays: against the paper's figures, scipy, statsmodels and enumeration."""

import tracemalloc
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.linguistic.formulas import slope
from pyterrier_debias.linguistic.formulas.spread import (
    AVERAGES,
    STATISTICS,
    bin_names,
    bin_numbers,
    influence,
    inner_edges,
    over_collections,
    permutation_tests,
    smooth,
    spread,
)

#: Mean and standard deviation of BM25 on FiQA, MS MARCO, NFCorpus and SciFact, and the c_v that is printed (Table 2).
BM25 = {"fiqa": (0.25, 0.32, 1.26), "msmarco": (0.48, 0.25, 0.53), "nfcorpus": (0.34, 0.32, 0.92), "scifact": (0.69, 0.39, 0.56)}
VALUES = st.lists(st.floats(0, 1).map(lambda v: round(v, 3)), min_size=2, max_size=30).map(np.array)


def two(mean, sd):
    """Two queries with that mean and standard deviation (ddof 0)."""
    return np.array([mean - sd, mean + sd])


def test_table_2_of_the_paper():
    for mean, sd, cv in BM25.values():
        assert spread(two(mean, sd), "mean") == pytest.approx(mean)
        assert spread(two(mean, sd), "sd") == pytest.approx(sd)
        assert spread(two(mean, sd), "cv") == pytest.approx(cv, abs=0.03)  # printed from figures before rounding


def test_table_1_averages_the_coefficients_of_table_2():
    """.82 is the mean of the printed c_v; sd by mean of the row would be .73, and neither is that of all queries."""
    printed = [np.array([1 - cv, 1 + cv]) for *_, cv in BM25.values()]  # mean 1, so that the sd is the c_v
    assert over_collections(printed, average="macro")["cv"].estimate == pytest.approx(0.82, abs=0.005)
    rounded = [two(mean, sd) for mean, sd, _ in BM25.values()]
    found = {way: over_collections(rounded, average=way) for way in AVERAGES}
    assert found["macro"]["cv"].estimate == pytest.approx(0.82, abs=0.01)
    assert found["ratio_of_means"]["cv"].estimate == pytest.approx(0.73, abs=0.005)
    for way in ("macro", "ratio_of_means"):
        assert found[way]["mean"].estimate == pytest.approx(0.44)
        assert found[way]["sd"].estimate == pytest.approx(0.32)
    together = np.concatenate(rounded)
    assert found["pooled"]["cv"].estimate == pytest.approx(together.std() / together.mean())


@given(VALUES, st.sampled_from(STATISTICS), st.sampled_from([0, 1]))
def test_influence_values_average_to_the_statistic(values, statistic, ddof):
    expected = {"mean": np.mean, "sd": lambda v: np.std(v, ddof=ddof), "cv": lambda v: np.std(v, ddof=ddof) / np.mean(v)}
    if values.mean() == 0:
        assert np.isnan(spread(values, "cv"))
        return
    assert spread(values, statistic, ddof) == pytest.approx(expected[statistic](values))
    assert influence(values, statistic, ddof).mean() == pytest.approx(expected[statistic](values))


@given(VALUES, st.floats(0.1, 10))
def test_scale(values, factor):
    if values.std() > 0:
        assert spread(values * factor, "cv") == pytest.approx(spread(values, "cv"))
        assert spread(values * factor, "sd") == pytest.approx(spread(values, "sd") * factor)


def test_influence_is_the_derivative():
    """Of the statistic, when the weight of one query grows (a finite difference)."""
    values = np.array([0.0, 0.1, 0.4, 0.4, 0.9])
    for query in range(5):
        weights = np.full(5, 0.2 * (1 - 1e-6)) + 1e-6 * (np.arange(5) == query)
        mean = weights @ values
        sd = np.sqrt(weights @ values**2 - mean**2)
        for statistic, moved in (("mean", mean), ("sd", sd), ("cv", sd / mean)):
            slope = (moved - spread(values, statistic)) / 1e-6
            assert influence(values, statistic)[query] - spread(values, statistic) == pytest.approx(slope, abs=1e-4)


def test_what_is_not_defined():
    assert all(np.isnan(spread(np.array([]), statistic)) for statistic in STATISTICS)
    assert np.isnan(spread(np.array([0.5]), "sd", ddof=1))
    zeros = over_collections([np.zeros(3)])
    assert (zeros["mean"].estimate, zeros["sd"].estimate, zeros["sd"].low) == (0, 0, 0) and np.isnan(zeros["cv"].estimate)
    assert np.isnan(over_collections([np.array([0.3, 0.4]), np.array([0.5])])["mean"].low)
    with pytest.raises(InputError, match="'var'"):
        spread(np.ones(2), "var")
    for collections, average in (([], "macro"), ([np.ones(2)], "mean")):
        with pytest.raises(InputError):
            over_collections(collections, average=average)


def test_intervals_cover():
    """Of all three statistics, of one collection and of two, in nine of ten worlds or more."""
    generator = np.random.default_rng(0)

    def drawn(n):
        return np.where(generator.random(n) < 0.35, 0.0, generator.beta(2, 2, n))

    truth = {"mean": 0.325, "sd": np.sqrt(0.65 * 0.3 - 0.325**2)}
    truth["cv"] = truth["sd"] / truth["mean"]
    for sizes in ([43], [43, 80], [12, 500]):
        inside = dict.fromkeys(STATISTICS, 0)
        for _ in range(200):
            for statistic, found in over_collections([drawn(n) for n in sizes]).items():
                inside[statistic] += found.low <= truth[statistic] <= found.high
        assert all(180 <= count <= 200 for count in inside.values()), inside


@pytest.mark.parametrize("bins", ["tertile", 4, "equal_width", [0.2, 0.5]])
def test_bins_hold_every_query_in_order(bins):
    x = np.random.default_rng(1).normal(size=101)
    edges = inner_edges(x, bins)
    numbers = bin_numbers(x, edges)
    assert (np.diff(numbers[np.argsort(x)]) >= 0).all() and len(bin_names(edges)) == len(edges) + 1
    if bins == "tertile":
        assert np.bincount(numbers).tolist() == [34, 33, 34] and bin_names(edges) == ["easy", "medium", "hard"]
    if bins == "equal_width":
        assert np.bincount(numbers, minlength=10).tolist() == np.histogram(x, bins=10)[0].tolist()
    if bins == 4:
        assert np.bincount(numbers).tolist() == [25, 25, 25, 26]


def test_equal_complexities_share_a_bin():
    x = np.array([0.0] * 5 + [1.0] * 5)
    assert bin_numbers(x, inner_edges(x, "tertile")).tolist() == [0] * 5 + [2] * 5
    for simple in (7, 9):
        mostly = np.array([0.0] * simple + [1.0] * (10 - simple))
        assert bin_numbers(mostly, inner_edges(mostly, "tertile")).tolist() == [0] * simple + [2] * (10 - simple)
        assert len(set(bin_numbers(mostly, inner_edges(mostly, 5)))) == 2
    constant = np.ones(4)
    assert len(set(bin_numbers(constant, inner_edges(constant, "tertile")))) == 1


@pytest.mark.parametrize("bins", ["quartile", 1, True, [], [1.0, 1.0], [2.0, 1.0], None])
def test_bins_that_there_are_not(bins):
    with pytest.raises(InputError, match="bins="):
        inner_edges(np.arange(3.0), bins)


def a_sample(n, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n).round(1)
    return np.where(generator.random(n) < 0.3, 0.0, generator.random(n).round(2)), x


def test_statistics_and_p_values_are_those_of_scipy():
    y, x = a_sample(80)
    bins = bin_numbers(x, inner_edges(x, "tertile"))
    found = permutation_tests(y, x, bins, resamples=4_999)
    rho, kruskal = stats.spearmanr(x, y), stats.kruskal(*[y[bins == b] for b in range(3)])
    assert (found.rho, found.kruskal) == pytest.approx((rho.statistic, kruskal.statistic))
    assert found.rho_p == pytest.approx(rho.pvalue, abs=0.02)
    assert found.kruskal_p == pytest.approx(kruskal.pvalue, abs=0.03)
    means = [y[bins == b].mean() for b in range(3)]
    assert (found.gap, found.worst) == (pytest.approx(max(means) - min(means)), int(np.argmin(means)))
    assert 0 < found.gap_floor < 2 * found.gap


@pytest.mark.parametrize("strata", [[0] * 6, [0, 0, 0, 1, 1, 1]])
def test_p_values_are_those_of_all_permutations(strata):
    y, x = np.array([0.9, 0.7, 0.4, 0.8, 0.1, 0.2]), np.array([1.0, 2.0, 4.0, 1.0, 3.0, 2.0])
    bins, labels = np.array([0, 1, 1, 0, 1, 0]), np.array(strata)

    def centred(values):
        ranks = np.empty(6)
        for label in set(labels):
            own = labels == label
            ranks[own] = (stats.rankdata(values[own]) - (own.sum() + 1) / 2) / own.sum()
        return ranks

    ranks_y, ranks_x = centred(y), centred(x)

    def statistics(order):
        ry = ranks_y[order]
        rho = ry @ ranks_x / np.sqrt((ry @ ry) * (ranks_x @ ranks_x))
        h = sum(ry[bins == b].sum() ** 2 / (bins == b).sum() for b in (0, 1)) * 5 / (ry @ ry)
        return abs(rho), h, abs(y[order][bins == 0].mean() - y[order][bins == 1].mean())

    every = [np.array(p) for p in permutations(range(6)) if (labels[list(p)] == labels).all()]
    null = np.array([statistics(order) for order in every])
    exact = (null >= null[0] - 1e-9).mean(axis=0)
    found = permutation_tests(y, x, bins, strata=strata, resamples=9_999)
    assert (found.rho_p, found.kruskal_p, found.gap_p) == pytest.approx(tuple(exact), abs=0.02)
    assert found.gap_floor == pytest.approx(null[:, 2].mean(), abs=0.01)


def test_the_interval_of_a_rank_correlation_agrees_with_its_p():
    """Also where ranks are centred within collections, each of which takes one degree of freedom."""
    contradicted, within = 0, 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x, strata = rng.normal(size=20), np.repeat(np.arange(5), 4)
        y = rng.normal(size=20) - 0.3 * x * (seed % 2)
        for labels in (None, strata):
            found = permutation_tests(y, x, np.zeros(20, dtype=int), strata=labels, resamples=199, seed=seed)
            assert (found.rho_low > 0 or found.rho_high < 0) == (found.rho_p <= 0.05), seed
            assert found.rho_low <= found.rho <= found.rho_high
            half = 1.959964 * np.sqrt((1 + found.rho**2 / 2) / (20 - (1 if labels is None else 5) - 2))
            usual = np.tanh(np.arctanh(found.rho) + np.array([-half, half]))
            contradicted += (usual[0] > 0 or usual[1] < 0) != (found.rho_p <= 0.05)
            within += np.allclose(usual, [found.rho_low, found.rho_high])
    assert contradicted > 3 and within == 400 - contradicted


def test_many_queries_are_permuted_a_few_at_a_time(monkeypatch):
    y, x = a_sample(400)
    bins = bin_numbers(x, inner_edges(x, "tertile"))
    usual, band = permutation_tests(y, x, bins, resamples=600), smooth(y, x, np.array([0.0]), resamples=600)
    monkeypatch.setattr(slope, "CELLS", 4_000)
    tracemalloc.start()
    found = permutation_tests(y, x, bins, resamples=600)
    assert (found.rho_p, found.kruskal_p, found.gap_p) == (usual.rho_p, usual.kruskal_p, usual.gap_p)
    assert found.gap_floor == pytest.approx(usual.gap_floor)
    assert smooth(y, x, np.array([0.0]), resamples=600) == pytest.approx(band)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500 * 400 * 8


def test_nothing_to_test():
    y, x = a_sample(20)
    same = permutation_tests(np.ones(20), x, bin_numbers(x, inner_edges(x, 2)), resamples=99)
    assert np.isnan(same.rho) and np.isnan(same.rho_p) and same.kruskal_p == same.gap_p == 1
    one = permutation_tests(y, np.ones(20), np.zeros(20, dtype=int), resamples=99)
    assert np.isnan(one.rho) and np.isnan(one.gap) and one.worst == -1


@pytest.mark.parametrize("span", [2 / 3, 0.3])
def test_the_curve_is_lowess(span):
    import statsmodels.api as sm

    y, x = a_sample(120)
    at = np.unique(x)
    reference = sm.nonparametric.lowess(y, x, frac=span, it=0, delta=0, xvals=at)
    assert smooth(y, x, at, span=span, resamples=0)[0] == pytest.approx(reference, abs=1e-9)


def test_the_band_is_that_of_refitted_resamples():
    y, x = a_sample(40)
    at = np.array([-0.5, 0.7])
    _, low, high = smooth(y, x, at, resamples=200, seed=3)
    counts = np.random.default_rng(3).multinomial(40, np.full(40, 1 / 40), size=200)
    heights = []
    for point in at:
        reach = np.sort(np.abs(x - point))[int(40 * 2 / 3) - 1]
        weights = np.maximum(1 - (np.abs(x - point) / reach) ** 3, 0) ** 3
        heights.append([np.polyfit(x - point, y, 1, w=np.sqrt(weights * own))[1] for own in counts])
    assert np.quantile(heights, [0.025, 0.975], axis=1) == pytest.approx(np.stack([low, high]), abs=1e-9)


def test_curves_where_complexity_has_few_values():
    x, y = np.array([0.0] * 10 + [1.0] * 10), np.array([0.2, 0.4] * 5 + [0.8] * 10)
    assert smooth(y, x, np.array([0.0, 1.0]), span=0.4, resamples=49)[0] == pytest.approx([0.3, 0.8])
    with pytest.raises(InputError, match="span"):
        smooth(y, x, np.array([0.0]), span=0.0)


def test_of_one_collection_every_average_is_one():
    """The delta method of sd / mean over one collection is that of c_v."""
    values = [np.random.default_rng(0).uniform(0.1, 0.5, 20)]
    for statistic in ("mean", "sd", "cv"):
        ends = [(way.estimate, way.low, way.high) for way in (over_collections(values, average=a)[statistic] for a in AVERAGES)]
        assert ends == [pytest.approx(ends[0])] * 3
