"""The table of findings."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from pyterrier_debias import Bias, Finding
from pyterrier_debias.core.bias import clusters_of, corrected, findings_frame, p_text
from pyterrier_debias.core.statistics import Interval, detectable_effect, inverted_interval, t_interval
from pyterrier_debias.report.baseline import against_baseline


def finding(p):
    return Finding(system="s", bias="position", measure="nDCG@10", contrast="rotated - original", value=-0.1, p=p)


def test_one_row_a_finding_and_one_column_an_attribute():
    frame = findings_frame([finding(0.01), finding(float("nan"))])
    assert frame.columns.tolist() == [
        "system", "bias", "measure", "contrast", "value", "low", "high", "p", "p_corrected", "n", "convention",
        "null_value", "detectable", "text", "primary",
    ]  # fmt: skip
    assert frame["p_corrected"].isna().all()


def test_correction_is_over_what_was_tested():
    frame = findings_frame(corrected([finding(0.01), finding(float("nan")), finding(0.04)], "holm"))
    np.testing.assert_allclose(frame["p_corrected"], [0.02, np.nan, 0.04])


class Own(Bias):
    """A bias of a user's."""

    name = "own"

    def examine(self, context):
        yield from ()


def test_where_no_query_changed_nothing_was_tested():
    """As for BM25 against the pool that was made from it: p is 1 by construction, and would count among the tests."""
    still, moved = (pd.Series([0.0, change], index=["1", "2"]) for change in (0.0, 0.1))
    assert np.isnan(Own().finding("s", "m", "c", 0.0, p=1.0, values=still).p)
    assert Own().finding("s", "m", "c", 0.05, p=0.5, values=moved).p == 0.5
    assert Own().finding("s", "m", "c", 0.0, p=0.5).p == 0.5


def test_against_a_baseline_that_never_changes_a_figure_is_tested_once():
    def primary(system, values, **more):
        values = pd.Series(2 * values, index=list("123456"))
        return Own().finding(system, "m", "c", values.mean(), values=values, primary=True, **more)

    mine = primary("mine", [0.1, 0.0, 0.4], low=-0.05, high=0.6, p=0.2)
    (found,) = against_baseline([primary("first", [0.0, 0.0, 0.0], low=0.0, high=0.0, p=1.0), mine], "first")
    assert (found.value, found.low, found.high, found.n) == (mine.value, -0.05, 0.6, 6)
    assert np.isnan(found.p) and "not tested again" in found.convention
    (found,) = against_baseline([primary("first", [0.1, 0.0, 0.0]), mine], "first")
    assert 0 < found.p < 1


def test_a_system_that_never_differs_from_the_baseline_is_not_tested():
    """p would be 1 by construction, and raise the corrected p of the other comparisons."""
    moved = pd.Series([0.1, 0.2, 0.1, 0.3, 0.2, 0.2], index=list("123456"))
    of = {"first": moved, "same": moved, "rounded": np.nextafter(moved, 9), "other": moved + [0.1, 0.2, 0.1, 0.2, 0.1, 0.2]}
    both = [Own().finding(name, "m", "c", own.mean(), values=own, primary=True) for name, own in of.items()]
    same, rounded, other = against_baseline(both, "first")
    for still in (same, rounded):
        assert (still.value, still.low, still.high) == (0, 0, 0) and np.isnan(still.p)
        assert still.convention == "no query differs: not tested"
        assert still.text.endswith(": m (c) equals first's for every query, over 6 queries.")
    assert other.p < 0.05 and other.convention == "paired t-test"


def test_against_a_baseline_over_a_handful_of_queries_there_is_neither_interval_nor_test():
    for n, told in ((5, "a's by +0.100, over 5"), (6, "a's by +0.100, 95 % interval [0.100, 0.100], over 6")):
        values = {name: pd.Series(value, index=list("123456")[:n]) for name, value in (("a", 0.1), ("b", 0.2))}
        both = [Own().finding(name, "m", "c", own.mean(), values=own, primary=True) for name, own in values.items()]
        (found,) = against_baseline(both, "a")
        assert told in found.text and (n < 6) == np.isnan([found.low, found.high, found.p]).all()


def test_a_difference_that_is_shown_is_never_printed_as_zero():
    qids = [str(n) for n in range(20)]
    of = {"a": pd.Series(0.0, index=qids), "b": pd.Series(np.linspace(-3e-5, -1e-5, 20), index=qids)}
    of["a"].iloc[0] = 1e-6  # or the difference would be b's own figure
    both = [Own().finding(name, "m", "c", own.mean(), values=own, primary=True) for name, own in of.items()]
    (found,) = against_baseline(both, "a")
    assert found.p < 1e-6 and "differs from a's by -0.00002, 95 % interval [-0.00002, -0.00002], over 20" in found.text


def test_one_query_is_not_several():
    text = Own().finding("s", "m", "c", 0.1, "it is 0.1 over 1 queries, over 1 neutral queries, and over 11 queries.").text
    assert text == "s: it is 0.1 over 1 query, over 1 neutral query, and over 11 queries."


def test_an_interval_that_is_not_defined_is_not_told():
    found = Own().finding("s", "m", "c", 0.1, "it is lower, 95 % interval [nan, nan], over some, and +0.1 [+nan, +nan] there.")
    assert findings_frame([found])["text"].iloc[0] == "s: it is lower, over some, and +0.1 there."


def made(bias, p, primary=False, system="s", **more):
    return Finding(system, bias, "m", f"{p}", 0.1, p=p, primary=primary, **more)


def corrected_p(findings, **options):
    return [found.p_corrected for found in corrected(findings, "two-step", **options)]


def test_further_tests_are_looked_at_only_where_the_primary_test_rejected():
    """Two families of primaries and of one bias' further tests, by Holm's method written out by hand."""
    nan = float("nan")
    findings = [
        made("a", 0.01, True), made("a", 0.004), made("a", 0.03), made("a", nan),
        made("b", 0.04, True), made("b", 0.0001),
        made("c", 0.3, True), made("d", 0.012),
    ]  # fmt: skip
    # First family: .01, .012 (d has no primary test), .04, .3; a's further tests: .004, .03.
    first = {0.01: 0.04, 0.012: 0.04, 0.04: 0.08, 0.3: 0.3}
    expected = [first[0.01], max(0.008, 0.04), max(0.03, 0.04), nan, first[0.04], nan, first[0.3], first[0.012]]
    np.testing.assert_allclose(corrected_p(findings), expected)
    # Further tests take nothing from primary ones.
    alone = [found for found in findings if found.primary or found.bias == "d"]
    np.testing.assert_allclose(corrected_p(alone), list(first.values())[:1] + [0.08, 0.3, 0.04])


def test_gates_are_those_of_the_system_and_comparisons_have_two():
    findings = [
        made("a", 0.001, True, "x"), made("a", 0.9, True, "y"), made("a", 0.01, system="x"), made("a", 0.01, system="y"),
        Finding("y", "a", "m", "c, vs x", -0.1, p=0.005), Finding("y", "a", "m", "c, vs z", -0.1, p=0.005),
    ]  # fmt: skip
    nan = float("nan")
    # All four further tests of the bias are one family, whichever of them are looked at.
    np.testing.assert_allclose(corrected_p(findings, baseline="x"), [0.002, 0.9, 0.02, nan, 0.02, nan])
    np.testing.assert_allclose(corrected_p(findings), [0.002, 0.9, 0.02, nan, nan, nan])


def test_no_family_is_wrong_too_often():
    """Global null, and one bias that is there: any false primary and any false further finding of a bias, in 2,000 tables."""
    draw, errors = np.random.default_rng(0), []
    for number in range(2_000):
        real = 1e-6 if number % 2 else None
        findings = []
        for bias in "abc":
            primary = real if bias == "a" and real else draw.random()
            findings.append(made(bias, primary, True))
            findings += [made(bias, p) for p in draw.random(4)]
        found = corrected(findings, "two-step")
        wrong = [f for f in found if f.p_corrected < 0.05 and f.p != 1e-6]
        errors.append((any(f.primary for f in wrong), *(any(not f.primary and f.bias == b for f in wrong) for b in "abc")))
    rates = np.mean(errors, axis=0)
    assert (rates < 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 2_000)).all(), rates
    assert rates[0] > 0.03 and rates[1] > 0.02 and (rates[2:] < 0.01).all()


def test_an_end_that_was_cut_at_what_is_possible_does_not_make_a_test_sharper():
    whole = Interval(-0.2, -0.5, 0.1, 0.95, 40)
    cut = whole.of_change_from(1.0)
    assert cut.high == 0 and detectable_effect(cut) == pytest.approx(detectable_effect(whole))


def test_the_detectable_effect_of_a_correlation_is_found_in_four_of_five_samples():
    draw, n = np.random.default_rng(2), 20
    for rho in (0.0, 0.6):
        ends = np.tanh(np.arctanh(rho) + np.array([-1.96, 1.96]) / np.sqrt(n - 3))
        least = detectable_effect(Interval(rho, *ends, 0.95, n), correlation=True)
        x, noise = draw.normal(size=(2, 2_000, n))
        y = least * x + np.sqrt(1 - least**2) * noise
        assert np.mean(stats.pearsonr(x, y, axis=1).pvalue < 0.05) == pytest.approx(0.8, abs=0.03)
    # Without this scale the effect would be beyond what a correlation can be.
    few = Interval(-0.3, -0.9, 0.7, 0.95, 8)
    assert detectable_effect(few) > 1 > detectable_effect(few, correlation=True)
    finding = dataclasses.replace(made("a", 0.2, True, low=-0.9, high=0.7, n=8), measure="rho of nDCG@10", value=-0.3)
    assert corrected([finding], "two-step")[0].detectable == pytest.approx(detectable_effect(few, correlation=True))


def test_a_test_of_signs_over_few_queries_cannot_be_significant_among_many():
    """Over n queries the lowest p is 2 / 2**n; eight tests need one below .05 / 8."""
    how = "tf; p by flipping signs; the interval inverts this test"
    for n, hopeless in ((7, True), (8, True), (9, False)):
        few = [dataclasses.replace(made("a", 2.0 ** (1 - n), True, low=0.7, high=1.1, n=n), value=0.9, convention=how)] * 8
        found = corrected(few, "two-step")[0]
        said = f"With {n} queries and 8 tests, no effect can be significant."
        assert found.text.endswith(said) == hopeless == np.isnan(found.detectable) and (found.p_corrected >= 0.05) == hopeless
    # A test that permutes queries has more arrangements.
    permuted = [dataclasses.replace(one, convention="p by permutation") for one in few]
    assert np.isfinite(corrected([dataclasses.replace(one, n=7) for one in permuted], "two-step")[0].detectable)
    larger = "p by studentised permutation and by flipping signs, whichever is larger"
    few = [dataclasses.replace(one, n=7, p=0.0156, convention=larger) for one in few]
    assert corrected(few, "two-step")[0].text.endswith("no effect can be significant.")


def test_a_comparison_is_by_cluster_where_queries_are_not_independent():
    how = "p by flipping signs of all queries with the same 'article' together; the interval agrees with it"
    qids = [str(n) for n in range(32)]
    values = pd.Series(np.random.default_rng(0).normal(0.1, 0.05, 32), index=qids)
    of = pd.Series([f"a{n % 8}" for n in range(32)], index=qids)
    one, two = (
        Finding(name, "gender", "ARaB@10", "order", own.mean(), primary=True, values=own, convention=how, clusters=of)
        for name, own in (("one", values), ("two", 2 * values))
    )
    (found,) = against_baseline([one, dataclasses.replace(two, values=two.values[::-1])], "one")
    sums = values.groupby(of).sum()
    assert found.value == pytest.approx(values.mean()) and found.p == 2 / 2**8
    ends = inverted_interval(values.to_numpy(), clusters=of)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high)) and sums.gt(0).all()
    assert found.convention.endswith(
        "; p by randomisation of all queries with the same 'article' together; the interval inverts this test"
    )
    assert clusters_of([one, two, found]) == {"gender": of.to_dict()}
    # Five clusters are too few, whatever their size.
    few = [dataclasses.replace(one, clusters=of.str.replace(r"[567]", "4", regex=True)) for one in (one, two)]
    (found,) = against_baseline(few, "one")
    assert np.isnan([found.low, found.high, found.p]).all() and "95 % interval" not in found.text
    (found,) = against_baseline([dataclasses.replace(finding, clusters=None) for finding in (one, two)], "one")
    assert found.p < 1e-6 and "paired t-test" in found.convention


def test_a_detectable_effect_counts_clusters():
    values = pd.Series(np.random.default_rng(0).normal(0, 1, 28), index=map(str, range(28)))
    of = pd.Series([f"a{n % 7}" for n in range(28)], index=values.index)
    how = "p by flipping signs of all queries with the same 'article' together"
    one = dataclasses.replace(made("a", 0.2, True, low=-0.5, high=0.5, n=28), value=0.0, values=values, convention=how)
    alone, together = (corrected([dataclasses.replace(one, clusters=c)], "two-step")[0].detectable for c in (None, of))
    assert alone != together == pytest.approx(detectable_effect(Interval(0, -0.5, 0.5, 0.95, 7)))
    others = [dataclasses.replace(made(name, 0.5, True, n=40), convention="p by permutation") for name in "bcdefgh"]
    (found, *_) = corrected([dataclasses.replace(one, clusters=of), *others], "two-step")
    assert found.text.endswith("With 7 clusters of queries and 8 tests, no effect can be significant.")
    assert np.isnan(found.detectable)


def test_a_later_step_may_be_significant_where_the_first_could_not_be():
    """Holm's method multiplies the smallest p by the number of tests, later ones by less; the pooling test exchanges lists."""
    how = "p by exchange of the two lists within queries; the interval inverts this test"
    few = [dataclasses.replace(made("a", 0.0156, True, low=0.7, high=1.1, n=7), value=0.9, convention=how)]
    strong = [dataclasses.replace(few[0], p=p, convention="p by permutation") for p in (1e-4, 2e-4, 3e-4)]
    said = "With 7 queries and 4 tests, no effect can be significant."
    found = corrected([*strong, *few], "two-step")[-1]
    assert found.p_corrected < 0.05 and said not in found.text and np.isfinite(found.detectable)
    weak = [dataclasses.replace(one, p=0.5) for one in strong]
    found = corrected([*weak, *few], "two-step")[-1]
    assert found.p_corrected > 0.05 and found.text.endswith(said) and np.isnan(found.detectable)


def test_a_primary_test_says_what_it_could_have_missed():
    """The detectable effect is the one that the test finds in four of five samples."""
    draw, n, hits = np.random.default_rng(1), 60, []
    standard = Interval(0.0, *(stats.t.ppf([0.025, 0.975], n - 1) / np.sqrt(n)), 0.95, n)  # of a spread of 1
    least = detectable_effect(standard, tests=3)
    for _ in range(1_000):
        values = draw.normal(0, 1, n)
        own = detectable_effect(t_interval(values), tests=3)
        hits.append(stats.ttest_1samp(values + own, 0).pvalue < 0.05 / 3)
    assert np.mean(hits) == pytest.approx(0.8, abs=0.03)
    assert least == pytest.approx(TTestPower().solve_power(nobs=n, alpha=0.05 / 3, power=0.8), rel=0.01)
    found = corrected([made("a", 0.2, True, low=-0.1, high=0.3, n=50, text="s: some.")], "two-step")[0]
    assert found.detectable == pytest.approx(0.2 / stats.t.ppf(0.975, 49) * stats.t.ppf([0.975, 0.8], 49).sum())
    assert found.text == f"s: some. An effect below {found.detectable:.3f} may have been missed (power under 80%)."
    (sure,) = corrected([made("a", 0.001, True, low=0.1, high=0.3, n=50, text="s: some.")], "two-step")
    assert sure.text == "s: some." and sure.detectable > 0
    assert np.isnan(corrected([made("a", 0.2, True)], "two-step")[0].detectable)


def test_of_a_handful_of_queries_there_is_no_interval():
    few, enough = (
        Own().finding("s", "m", "c", Interval(0.2, -1.0, 1.4, 0.95, n), "it is 0.2 [-1.0, 1.4] over some.") for n in (5, 6)
    )
    assert np.isnan([few.low, few.high]).all() and few.text == "s: it is 0.2 over some."
    assert (enough.low, enough.text) == (-1.0, "s: it is 0.2 [-1.0, 1.4] over some.")


def test_no_p_is_shown_as_0():
    assert [p_text(p) for p in (0.0, 1e-20, 0.0012, 0.5)] == ["below 1e-16", "below 1e-16", "0.0012", "0.50"]


def test_no_findings_is_an_empty_table():
    assert isinstance(findings_frame(corrected([], "holm")), pd.DataFrame)
