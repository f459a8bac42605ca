"""What an audit says in plain words, of results whose figures are known."""

import json
import math
import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_debias
from pyterrier_debias import AuditResult, Collection, InputError, audit
from pyterrier_debias.report import verdict as told
from pyterrier_debias.report.gate import Budget, check_budgets
from pyterrier_debias.report.treatments import TREATMENTS, treatments
from pyterrier_debias.report.verdict import margins, title, verdicts
from tests.report import toy
from tests.report.verdicts import BIASES, PRIMARY, found, made, settings

DOCS = Path(pyterrier_debias.__file__).parent / "pt_docs"
MINE = "BM25 >> mine"
NAN = math.nan

def answer(finding, **more):
    (verdict,) = verdicts(made([finding], biases=[finding.bias], **more))
    (one,) = verdict.answers
    return one


@pytest.mark.parametrize(
    ("bias", "value", "said"),
    [
        ("position", -0.03, "Yes: nDCG@10 falls by 0.030 [0.010, 0.050] when passages are rotated."),
        ("position", 0.03, "Yes: nDCG@10 rises by 0.030 [0.010, 0.050] when passages are rotated."),
        ("survivorship", -0.43, "Yes: the later labellers found an answer, the worse the results"),
        ("survivorship", 0.43, "Yes: the later labellers found an answer, the better the results"),
        ("gender", -0.2, "Yes: towards female words, by 0.200 [0.180, 0.220] ARaB@10"),
        ("gender", 0.2, "Yes: towards male words, by 0.200 [0.180, 0.220] ARaB@10"),
        ("linguistic", -0.05, "Yes: nDCG@10 falls by 0.050 [0.030, 0.070] per standard deviation of query complexity"),
        ("linguistic", 0.05, "Yes: nDCG@10 rises by 0.050 [0.030, 0.070] per standard deviation of query complexity"),
        ("pooling", -0.06, "Yes: 0.6 [0.4, 0.8] fewer of its first ten documents are judged"),
        ("pooling", 0.06, "Yes: 0.6 [0.4, 0.8] more of its first ten documents are judged"),
        ("source", -1.5, "Yes: the rewritten text of a relevant document is 1.50 [1.48, 1.52] ranks ahead of the original."),
        ("source", 1.5, "Yes: the original of a relevant document is 1.50 [1.48, 1.52] ranks ahead of the rewritten text."),
        ("length", -0.1, "Yes: its first documents are 10.0 [8.0, 12.0] percentile points shorter than the median"),
        ("length", 0.1, "Yes: its first documents are 10.0 [8.0, 12.0] percentile points longer than the median"),
        ("order", -0.3, "Yes: a document that is given ten places earlier is ranked 3.0 [2.8, 3.2] places later."),
        ("order", 0.3, "Yes: a document that is given ten places earlier is ranked 3.0 [2.8, 3.2] places earlier."),
    ],
)
def test_a_significant_primary_test_is_a_yes_that_says_how_much_and_which_way(bias, value, said):
    one = answer(found(bias, value, value - 0.02, value + 0.02))
    assert one.outcome == "yes" and one.sentence.startswith(said)
    assert (one.effect, one.low, one.high) == (value, value - 0.02, value + 0.02) and one.queries_needed is None


def test_a_displacement_is_told_in_ranks():
    one = answer(found(value=1.26, low=0.93, high=1.66, measure="displacement", contrast="rotated alone"))
    assert one.sentence == "Yes: a relevant passage moves down by 1.26 [0.93, 1.66] ranks when its text is rotated."
    assert one.unit == "ranks"


def test_a_yes_below_what_matters_says_so():
    one = answer(found(value=-0.01, low=-0.015, high=-0.005))
    assert one.outcome == "yes" and "but by less than the margin (0.02 nDCG@10)" in one.sentence


@pytest.mark.parametrize("ends", [(-0.021, -0.001), (NAN, NAN)])
def test_a_yes_whose_interval_reaches_what_matters_does_not_say_less(ends):
    one = answer(found("position", -0.011, *ends))
    assert one.outcome == "yes" and one.sentence.startswith("Yes: ") and "margin" not in one.sentence


def test_a_yes_also_says_what_it_means_for_effectiveness():
    change = found("pooling", -0.06, -0.1, -0.02)
    beside = found("pooling", 0.0124, measure="nDCG@10", contrast="removed - as non-relevant", primary=False, p_corrected=NAN)
    (verdict,) = verdicts(made([change, beside], biases=["pooling"]))
    (one,) = verdict.answers
    beside = "; leaving out unjudged documents raises its nDCG@10 by 0.012"
    assert one.sentence == (
        f"Yes: 0.6 [0.2, 1.0] fewer of its first ten documents are judged than for the run the judgements came from{beside}."
    )
    assert one.asides == (beside,)
    assert one.brief == "Yes: 0.6 [0.2, 1.0] fewer of ten are judged than in the judged run."
    early = found("survivorship", 0.96, measure="RR(rel=2)@10", contrast="first met at 1 to 3", primary=False)
    late = found("survivorship", 0.76, measure="RR(rel=2)@10", contrast="first met at 7 or later", primary=False)
    (verdict,) = verdicts(made([found("survivorship", -0.4), early, late], biases=["survivorship"]))
    assert "RR(rel=2)@10 is 0.96 for answers shown at ranks 1 to 3, 0.76 at 7 or later" in verdict.answers[0].sentence


def test_an_arab_is_told_in_documents():
    # A document with one word more of a group has a magnitude of ln 2.
    one = answer(found("gender", math.log(2) / 7, convention="tf, log1p_total; m minus f"))
    assert "as if one in 7 of its first ten documents had one more such word" in one.sentence
    one = answer(found("gender", 0.505, convention="tf, log1p_total; m minus f"))
    assert "as if each of its first ten documents had 0.7 more such words" in one.sentence


@pytest.mark.parametrize("bias", [*BIASES, "source", "length", "order"])
def test_an_interval_within_the_margin_is_a_no_with_a_bound(bias):
    (margin,) = list(margins()[bias].values())[-1:]
    one = answer(found(bias, margin / 4, -margin / 2, margin, p=0.5, p_corrected=1.0))
    assert one.outcome == "no" and one.sentence.startswith("No: any effect is below ") and one.queries_needed is None
    beyond = answer(found(bias, margin / 4, -margin / 2, 1.01 * margin, p=0.5, p_corrected=1.0))
    assert beyond.outcome == "cannot tell" and beyond.queries_needed > 50


def test_the_margins_are_documented():
    page = (DOCS / "audit.rst").read_text().partition("The margins are")[2]
    rows = dict(re.findall(r"^(\w+) {2,}(.*)$", page.partition("A bias of your own")[0], re.MULTILINE))
    assert rows.keys() == margins().keys()
    for bias, units in margins().items():
        for unit, margin in units.items():
            told = "half a rank" if unit == "ranks" else f"{margin:g}"
            assert told in rows[bias] and unit.replace("@", "\\@").rstrip("s") in rows[bias], (bias, unit)


def test_a_bound_is_rounded_upwards():
    one = answer(found(value=0.0, low=-0.0101, high=0.0121, p=0.5, p_corrected=1.0))
    assert one.sentence == "No: any effect is below 0.013 nDCG@10 (on 50 queries)."


def test_where_no_query_changes_the_answer_is_no_without_a_number():
    one = answer(found(value=0.0, low=0.0, high=0.0, p=NAN, p_corrected=NAN))
    assert (one.outcome, one.sentence) == ("no", "No: no query's nDCG@10 changes when passages are rotated (on 50 queries).")
    assert answer(found("pooling", 0.0, 0.0, 0.0, p=1.0, p_corrected=1.0)).sentence.startswith("No: as many are judged")
    of_none = found("brevity", 0.0, NAN, NAN, p=NAN, p_corrected=NAN, values=pd.Series([0.0, 0.0], index=["1", "2"]))
    assert answer(of_none).outcome == "no"
    of_mean = found("brevity", 0.0, NAN, NAN, p=NAN, p_corrected=NAN, values=pd.Series([-1.0, 1.0], index=["1", "2"]))
    assert answer(of_mean).outcome == "cannot tell"


def test_an_end_that_is_not_0_is_not_printed_as_0():
    one = answer(found("pooling", -0.018, -0.0318, -0.0043, p=0.015, p_corrected=0.015))
    assert "0.18 [0.04, 0.32] fewer of its first ten documents" in one.sentence
    assert "0.6 [0.2, 1.0] fewer" in answer(found("pooling", -0.06, -0.1, -0.025, p=0.001, p_corrected=0.001)).sentence
    assert "0.0002 [0.0001, 0.0004]" in answer(found("brevity", 2.4e-4, 9e-5, 3.9e-4, p=0.001, p_corrected=0.001)).sentence
    assert "0.000 [0.000, 0.001]" in answer(found("brevity", 4e-4, -1e-4, 9e-4, p=0.2, p_corrected=0.2)).sentence


@pytest.mark.parametrize(("bias", "outcome"), [("position", "cannot tell"), ("gender", "cannot tell"), ("order", "no")])
def test_a_handful_of_queries_shows_no_absence(bias, outcome):
    """But that a ranker scores one by one, which is so by construction."""
    for n, said in ((1, "but 1 query is too few to show that."), (5, "but 5 queries are too few to show that.")):
        still = pd.Series(0.0, index=list("12345")[:n])
        one = answer(found(bias, 0.0, NAN, NAN, p=NAN, p_corrected=NAN, n=n, values=still))
        assert one.outcome == outcome and one.sentence.endswith(said) == (outcome == "cannot tell")
    assert answer(found(bias, 0.0, 0.0, 0.0, p=NAN, p_corrected=NAN, n=6)).outcome == "no"


@pytest.mark.parametrize(
    ("share", "low", "high", "outcome"),
    [
        (0.5, 0.5, 0.5, "no"), (0.59, 0.55, 0.65, "no"), (0.65, 0.49, 0.8, "no"),
        (1.0, 1.0, 1.0, "cannot tell"), (0.62, 0.55, 0.7, "cannot tell"), (0.2, 0.1, 0.3, "cannot tell"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", [0.0, 0.1])
def test_texts_side_by_side_have_no_displacement_though_one_is_ahead(share, low, high, outcome, end):
    """Other documents are between few of the pairs, or none; the gate says the same."""
    values = pd.Series(end, index=list("123456")) * [1, -1, 1, -1, 1, -1]
    figure = found("source", 0.0, -end, end, p=NAN if end == 0 else 1.0, p_corrected=NAN, n=6, values=values)
    more = {"measure": "share of pairs", "contrast": "rewritten ahead", "null_value": 0.5, "primary": False}
    result = made([figure, found("source", share, low, high, p=NAN, p_corrected=NAN, **more)], biases=["source"])
    ((one,),) = (verdict.answers for verdict in verdicts(result))
    still = "no other document stands between a relevant document and its rewritten text"
    said = {
        "no": "No: {} (on 6 queries).",
        "cannot tell": f"Cannot tell: {{}}, but the rewritten text is ahead in {share:.1%} of a query's pairs (on 6 queries).",
    }
    assert (one.outcome, one.sentence) == (outcome, said[outcome].format("any effect is below 0.1 ranks" if end else still))
    (kept,) = check_budgets(result, [Budget("source", at_least=-0.5)])
    assert kept.crossed == ("ahead in" in kept.text) == (outcome != "no")


@pytest.mark.parametrize(
    ("high", "again", "outcome"), [(0.951, 1.0, "no"), (0.949, 1.0, "cannot tell"), (0.36, 0.4, "no"), (NAN, 1.0, "cannot tell")]
)
@pytest.mark.parametrize("p", [0.5, 0.001])
def test_results_that_depend_on_the_order_without_a_direction_are_not_a_no(high, again, outcome, p):
    """The gate says so, too; a ranker that does not repeat itself is compared with itself."""
    own = found("order", 0.01, -0.02, 0.04, p=p, p_corrected=p)
    more = {"measure": "Kendall's tau", "contrast": "own order, shuffled", "null_value": again, "primary": False}
    tau = found("order", 0.3, 0.2, high, p=NAN, p_corrected=NAN, **more)
    result = made([own, tau], biases=["order"])
    ((one,),) = (verdict.answers for verdict in verdicts(result))
    size = f"Kendall's tau 0.300{'' if math.isnan(high) else f' [0.200, {high:.3f}]'}"
    told = f"shuffled lists and of the own order, {size}; for those of the same list given again, 1.000"
    if p < 0.05:
        assert one.outcome == "yes" and one.sentence.startswith("Yes, but by less") == (outcome == "no")
    else:
        assert one.outcome == outcome and (f"{told} (on 50 queries)." in one.sentence) == (outcome != "no")
        assert outcome == "no" or one.sentence.startswith("Cannot tell: any effect is below 0.4 places per ten, but only effects")
    (kept,) = check_budgets(result, [Budget("order", at_most=0.05)])
    assert kept.crossed == (told in kept.text) == (outcome != "no")
    steep = made([replace(own, value=0.5, low=0.45, high=0.55), tau], biases=["order"])
    assert not check_budgets(steep, [Budget("order", at_most=0.6)])[0].crossed  # the direction explains it


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome"),
    [
        (-0.109, -0.139, -0.08, "cannot tell"), (0.109, 0.08, 0.139, "cannot tell"), (-0.05, -0.08, -0.0201, "cannot tell"),
        (-0.05, -0.08, -0.02, "no"), (0.05, -0.01, 0.1, "no"), (0.05, NAN, NAN, "no"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("p", [0.5, 0.001])
def test_where_the_place_of_an_answer_matters_a_small_mean_displacement_is_not_a_no(value, low, high, outcome, p):
    """The mean is small if answers are spread over their passages; the gate says the same."""
    more = {"measure": "displacement", "contrast": "rotated alone"}
    ranks = found(value=0.1, low=-0.01, high=0.2, p=p, p_corrected=p, **more)
    moved = found(value=value, low=low, high=high, measure="nDCG@10", contrast="end - start", primary=False, n=40)
    result = made([ranks, moved], biases=["position"])
    ((one,),) = (verdict.answers for verdict in verdicts(result))
    size = f"{abs(value):.3f} [{min(abs(low), abs(high)):.3f}, {max(abs(low), abs(high)):.3f}]"
    told = (
        f"this is a mean over rotations: nDCG@10 {'falls' if value < 0 else 'rises'} by {size} when the answers of 40 queries "
        f"move from the start of their passages to the end"
    )
    if p < 0.05:
        assert one.outcome == "yes" and one.sentence.startswith("Yes, but by less") == (outcome == "no")
    else:
        doubted = f"Cannot tell: any effect is below 0.2 ranks, but {told} (on 50 queries)."
        assert (one.outcome, one.sentence == doubted) == (outcome, outcome != "no")
    (kept,) = check_budgets(result, [Budget("position", at_most=0.5)])
    assert kept.crossed == (told in kept.text) == (outcome != "no")
    far = made([replace(ranks, value=1.5, low=1.2, high=1.8), moved], biases=["position"])
    assert not check_budgets(far, [Budget("position", at_most=2)])[0].crossed  # this one is known, and allowed


@pytest.mark.parametrize(("bias", "contrast"), [("position", "original"), ("linguistic", "all queries")])
@pytest.mark.parametrize(
    ("quality", "convention", "outcome"), [(0.0, "", "cannot tell"), (0.1, "", "no"), (0.0, "a; not tested", "no")]
)
def test_where_nothing_relevant_is_found_no_change_is_not_a_no(bias, contrast, quality, convention, outcome):
    qids = [f"q{number}" for number in range(50)]
    still = found(bias, 0.0, 0.0, 0.0, p=NAN, p_corrected=NAN, convention=convention, values=pd.Series(0.0, index=qids))
    own = found(bias, quality, measure="nDCG@10", contrast=contrast, primary=False, values=pd.Series(quality, index=qids))
    ((one,),) = (verdict.answers for verdict in verdicts(made([still, own], biases=[bias])))
    assert one.outcome == outcome
    doubt = "but its nDCG@10 is 0 for every query (50 queries)."
    assert one.sentence.endswith(doubt) == (outcome != "no")


@pytest.mark.parametrize("high", [0.0, 0.01])
@pytest.mark.parametrize(("judged", "outcome"), [(0.8, "no"), (0.799, "cannot tell")])
def test_where_little_is_judged_no_difference_from_the_pool_is_not_a_no(high, judged, outcome):
    own = found("pooling", judged, contrast="system", primary=False, p=NAN, p_corrected=NAN)
    result = made([own, found("pooling", 0.0, 0.0, high, p=1.0, p_corrected=1.0)], biases=["pooling"])
    (one,) = verdicts(result)[0].answers
    still = "as many are judged as for the run the judgements came from"
    said = "any effect is below 0.1 judged documents in its first ten" if high else still
    sentences = {
        "no": f"No: {said} (on 50 queries; Judged@10 is 0.800).",
        "cannot tell": f"Cannot tell: {said}, but Judged@10 is only 0.799 (on 50 queries).",
    }
    assert (one.outcome, one.sentence, one.queries_needed) == (outcome, sentences[outcome], None)


@pytest.mark.parametrize(
    ("n", "changed", "text", "why"),
    [
        (30, 20, "it moves (no interval: lists are cut); so.", "; there is no interval, because lists are cut"),
        (5, 5, "", ", too few for an interval (at least 6)"),
        (30, 2, "", "; it differs from 0 for 2 queries only, too few for an interval"),
        (30, 1, "", "; it differs from 0 for 1 query only, too few for an interval"),
        (30, 20, "", ""),
    ],
)
def test_a_figure_without_interval_says_why(n, changed, text, why):
    values = pd.Series([0.3] * changed + [0.0] * (n - changed), index=[f"q{i}" for i in range(n)])
    one = answer(found("gender", 0.02, NAN, NAN, p=0.4, p_corrected=0.4, n=n, values=values, text=text))
    assert (one.outcome, one.sentence) == ("cannot tell", f"Cannot tell: 0.020 ARaB@10 on {n} queries{why}.")


@pytest.mark.parametrize(("changed", "why"), [(5, "; it differs from 0 for 5 queries only, too few for a test"), (6, "")])
def test_a_wide_interval_over_few_changed_queries_says_why(changed, why):
    values = pd.Series([0.3] * changed + [0.0] * (30 - changed), index=[f"q{i}" for i in range(30)])
    one = answer(found("gender", 0.02, -0.1, 0.12, p=0.4, p_corrected=0.4, n=30, values=values))
    assert one.sentence.startswith(f"Cannot tell: 0.020 [-0.100, 0.120] ARaB@10 on 30 queries{why}; about ")
    assert one.asides == ((why,) if why else ())


@pytest.mark.parametrize(("draws", "changed", "few"), [(1, 5, True), (3, 2, True), (3, 3, False), (5, 2, False), (5, 1, True)])
def test_how_few_changed_queries_are_too_few_depends_on_the_draws(draws, changed, few):
    """m - 1 draws of k queries have m**k equally likely arrangements; two have the same distance from 0 if m is 2."""
    values = pd.Series([0.3] * changed + [0.0] * (30 - changed), index=[f"q{i}" for i in range(30)])
    how = f"rotation by word; mean of {draws} draw{'s' * (draws > 1)}, seed 0; depth 9; p by exchange randomisation; the interval"
    one = answer(found("position", 0.02, -0.1, 0.12, p=0.4, p_corrected=0.4, n=30, values=values, convention=how))
    assert ("too few for a test" in one.sentence) == few


def test_a_test_that_could_be_significant_is_not_called_too_small():
    values = pd.Series([0.3] * 4 + [0.0] * 26, index=[f"q{i}" for i in range(30)])
    for more in ({"p": 0.06}, {"p": 0.4, "convention": "p by permutation"}):
        one = answer(found("gender", 0.02, -0.1, 0.12, p_corrected=0.4, n=30, values=values, **more))
        assert "too few for a test" not in one.sentence


def test_a_test_that_could_not_be_significant_says_so():
    text = "it leans. With 7 queries and 8 tests, no effect can be significant."
    one = answer(found("gender", 0.908, 0.734, 1.062, p=0.0156, p_corrected=0.125, n=7, text=text))
    why = ", too few for any effect to be significant in 8 tests"
    assert one.outcome == "cannot tell" and one.asides == (why,)
    # 2 / 2^9 times 8 tests is below .05, 2 / 2^8 is not. More queries would not narrow an interval around 0.908 to the margin.
    assert one.sentence.startswith(f"Cannot tell: 0.908 [0.734, 1.062] ARaB@10 on 7 queries{why}; with 9 or more, it could be")
    assert one.queries_needed == 9
    small = answer(found("gender", 0.02, -0.7, 0.8, p=0.9, p_corrected=1.0, n=7, text=text))
    assert small.sentence.startswith(f"Cannot tell: 0.020 [-0.700, 0.800] ARaB@10 on 7 queries{why}; about ")


def test_few_groups_of_queries_are_the_reason_for_no_interval():
    values = pd.Series([0.3] * 30, index=[f"q{i}" for i in range(30)])
    how = "tf; p by flipping signs of all queries with the same 'topic' together; the interval inverts this test"
    one = answer(found("gender", 0.02, NAN, NAN, p=0.4, p_corrected=0.4, n=30, values=values, convention=how))
    why = "; queries with the same 'topic' count as one, too few for an interval"
    assert one.sentence == f"Cannot tell: 0.020 ARaB@10 on 30 queries{why}."


def test_what_could_not_be_seen_says_how_many_queries_would_tell():
    result = made([found(value=0.01, low=-0.03, high=0.05, p=0.6, p_corrected=1.0)], biases=["position"])
    one = verdicts(result)[0].answers[0]
    # Power of 80 % is at 2.80 standard errors, of which the interval has 3.92: 50 (2.8 / 1.96 * .04 / .02)^2 = 408.8
    assert (one.outcome, one.queries_needed) == ("cannot tell", 410)
    assert one.sentence == "Cannot tell: 0.010 [-0.030, 0.050] nDCG@10 on 50 queries; about 410 would detect 0.02."
    result.findings["detectable"] = 0.08
    one = verdicts(result)[0].answers[0]
    assert one.queries_needed == 50 * (0.08 / 0.02) ** 2
    assert one.sentence.endswith("on 50 queries, too few to detect less than 0.08; about 800 would detect 0.02.")
    assert one.brief == "Cannot tell (800 queries needed): 0.010 [-0.030, 0.050] nDCG@10"
    assert one.asides == (", too few to detect less than 0.08",)
    result.findings["detectable"] = NAN
    assert verdicts(result)[0].answers[0].queries_needed == 410
    # There were enough queries to detect the margin, but the interval reaches beyond it: 50 (.024 / .02)^2 = 72.
    between = made([found(value=0.012, low=0.0, high=0.024, p=0.06, p_corrected=0.06)], biases=["position"])
    between.findings["detectable"] = 0.018
    assert verdicts(between)[0].answers[0].sentence == (
        "Cannot tell: 0.012 [0.000, 0.024] nDCG@10 on 50 queries; 0.02 would probably have been found, but the interval "
        "exceeds it; about 72 would narrow it to 0.02."
    )


@pytest.mark.parametrize(
    ("bias", "unit", "largest", "margin"),
    [("survivorship", "rank correlation", 1, 0.1), ("linguistic", "nDCG@10", 1, 0.02), ("length", "points of length", 0.5, 0.05)],
)
def test_nothing_larger_than_what_is_possible_is_said_to_be_missed(bias, unit, largest, margin):
    """Over few queries, the smallest effect that a test detects is beyond what the figure can be: it detects none."""
    result = made([found(bias, -0.31, -0.73, 0.28, p=0.09, p_corrected=1.0, n=30)], biases=[bias])
    for detectable, most in ((0.9 * largest, "less than "), (largest, "any;"), (1.095 * largest, "any;")):
        result.findings["detectable"] = detectable
        one = verdicts(result)[0].answers[0]
        assert f"on 30 queries, too few to detect {most}" in one.sentence and unit in one.sentence
        if bias != "survivorship":
            assert one.queries_needed == pytest.approx(30 * (detectable / margin) ** 2, rel=0.1)


def test_queries_needed_to_find_a_correlation():
    """Of Fisher's z, whose standard error is one over the root of n - 3."""
    error = 1 / math.sqrt(40 - 3)
    low, high = np.tanh(np.arctanh(-0.2) + np.array([-1.96, 1.96]) * error)
    result = made([found("survivorship", -0.2, low, high, p=0.2, p_corrected=0.2, n=40)], biases=["survivorship"])
    result.findings["detectable"] = np.tanh(2.8 * error)
    answer = verdicts(result)[0].answers[0]
    assert answer.queries_needed == pytest.approx((2.8 / np.arctanh(0.1)) ** 2, rel=0.1)


def test_more_queries_are_asked_for_than_there_were():
    # Such an effect would have been found, and yet the interval leaves the margin.
    result = made([found(value=0.015, low=0.0, high=0.03, p=0.06, p_corrected=0.06)], biases=["position"])
    result.findings["detectable"] = 0.019
    assert verdicts(result)[0].answers[0].queries_needed > 50


def test_one_query_is_one_and_a_judged_share_says_what_it_counts():
    one = answer(found("pooling", -0.6, NAN, NAN, p=1.0, p_corrected=1.0, n=1))
    few = "on 1 query, too few for an interval (at least 6)"
    assert one.sentence == f"Cannot tell: -6.0 judged documents in its first ten {few}."
    result = made([found("pooling", n=1)], biases=["pooling"], judged_topics=1, topics=2)
    assert "toy: 1 judged topic of 2, depth" in result.to_text().replace("the planted collection", "toy")
    assert ": 1 judged topic, depth" in result.card() and "<p>1 judged topic of 2 of" in result.to_html()


def test_what_correction_took_away_points_to_yes():
    one = answer(found(p=0.016, p_corrected=0.2))
    assert one.outcome == "cannot tell" and "The uncorrected p (0.016) points to yes." in one.sentence


def test_without_an_interval_the_detectable_effect_bounds_it():
    result = made([found(value=0.001, low=NAN, high=NAN, p=0.6, p_corrected=1.0)], biases=["position"])
    one = verdicts(result)[0].answers[0]
    assert (one.outcome, one.queries_needed) == ("cannot tell", None)
    result.findings["detectable"] = 0.01
    assert verdicts(result)[0].answers[0].outcome == "no"


@pytest.mark.parametrize(
    ("result", "why"),
    [
        (made([], skipped=[["position", "BM25", "it gives no texts"]], biases=["position"]), "it gives no texts"),
        (made([], failed=[["position", "", "RuntimeError: it fell", "..."]], biases=["position"]),
         "an internal error (RuntimeError: it fell)"),
        (made([], failed=[["position", "BM25", "system 'BM25' raised KeyError: 'x'", "..."]], biases=["position"]),
         "system 'BM25' raised KeyError: 'x'"),
        (made([found(value=NAN, low=NAN, high=NAN, p=NAN, p_corrected=NAN, text="BM25: never seen.")], biases=["position"]),
         "never seen"),
        (made([found("pooling", primary=False, text="BM25: there is no run, so that nothing is tested.")], biases=["pooling"]),
         "there is no run, so that nothing is tested"),
        (made([], biases=["position"]), "the audit has no primary figure for this bias"),
    ],
)  # fmt: skip
def test_what_was_not_examined_says_why(result, why):
    (verdict,) = verdicts(result)
    (one,) = verdict.answers
    assert (one.outcome, one.sentence) == ("not examined", f"Not examined: {why}.")
    assert math.isnan(one.effect) and verdict.treatments == () and verdict.nothing_helps == ""


def test_nothing_is_ever_said_to_have_no_effect():
    ends = [(-0.5, 0.5), (-0.05, 0.05), (-0.001, 0.001), (0.0, 0.0), (NAN, NAN)]
    cases = list(product(ends, (NAN, 0.001, 0.04, 0.6), (NAN, 0.01, 1.0)))
    systems = [f"system {number}" for number in range(len(cases))]
    for bias in [*BIASES, "brevity"]:
        findings = [
            found(bias, 0.0 if math.isnan(low) else (low + high) / 2, low, high, p, corrected, system)
            for system, ((low, high), p, corrected) in zip(systems, cases)
        ]
        (verdict,) = verdicts(made(findings, systems=systems, biases=[bias]))
        assert [one.system for one in verdict.answers] == systems
        for sentence in (one.sentence for one in verdict.answers):
            assert not re.search("no effect|no bias|nan|not significant", sentence), sentence
            assert len(sentence) < 260 and sentence.endswith(".")


def test_a_bias_of_ones_own_gets_a_question_and_no_margin():
    (verdict,) = verdicts(made([found("brevity", 12.5, 10.0, 15.0)], biases=["brevity"]))
    assert verdict.question == "Do results show the bias 'brevity'?"
    assert verdict.answers[0].sentence == "Yes: words 12.500 [10.000, 15.000]."
    assert verdict.nothing_helps == "No treatment has been shown to help yet."
    one = answer(found("brevity", 12.5, 10.0, 15.0, p=NAN, p_corrected=NAN))
    assert one.sentence == "Cannot tell: words 12.500 [10.000, 15.000] on 50 queries."
    (verdict,) = verdicts(made([found("age", 0.1, measure="ARaB@10")], biases=["age"]))
    assert verdict.question == "Do rankings for neutral queries lean to one side of 'age'?"
    assert verdict.answers[0].sentence.startswith("Yes: towards the first group, by 0.100")


def test_a_bias_of_ones_own_may_have_a_name_of_ours():
    (verdict,) = verdicts(made([found("order", -0.5, measure="RR@10")], biases=["order"]))
    assert verdict.question == "Do results show the bias 'order'?"


def test_an_audit_with_a_bias_of_ones_own_is_told():
    dataset = toy.collection()
    result = audit(toy.systems(dataset), dataset, biases=[toy.ORDER, toy.PICKY, toy.BROKEN])
    order, picky, broken = verdicts(result)
    assert [a.outcome for a in order.answers] == ["yes", "yes"]
    assert [a.outcome for a in picky.answers] == ["not examined", "yes"]
    assert [a.sentence for a in broken.answers] == ["Not examined: an internal error (RuntimeError: the bias fell down)."] * 2


def test_every_bias_that_was_asked_for_is_told_for_every_system_in_order():
    findings = [found(bias, system=system) for bias in reversed(BIASES) for system in (MINE, "BM25")]
    told = verdicts(made(findings, systems=["BM25", MINE, "third"]))
    assert [verdict.bias for verdict in told] == BIASES
    assert all([a.system for a in verdict.answers] == ["BM25", MINE, "third"] for verdict in told)
    assert [a.outcome for a in told[0].answers] == ["yes", "yes", "not examined"]


def test_the_worst_of_several_primary_figures_is_told():
    no = found("brevity", 0.0, 0.0, 0.0, NAN, NAN)
    unclear = found("brevity", 1.0, -1.0, 3.0, 0.4, 0.8, contrast="first five")
    assert verdicts(made([no, unclear], biases=["brevity"]))[0].answers[0].outcome == "cannot tell"
    yes = found("brevity", 1.0, 0.5, 3.0, contrast="first three")
    assert verdicts(made([no, unclear, yes], biases=["brevity"]))[0].answers[0].outcome == "yes"


def test_the_title_has_collection_and_systems():
    assert title(made([])) == "Bias audit of BM25 on the planted collection"
    assert title(made([], dataset="planted-3-order1")) == "Bias audit of BM25 on the planted collection"
    assert title(made([], dataset="planted-hedges")) == "Bias audit of BM25 on planted-hedges"
    several = made([], systems=["BM25", MINE], dataset="msmarco_trec_dl", split="dl19")
    assert title(several) == "Bias audit of BM25 and BM25 >> mine on msmarco_trec_dl (dl19)"
    assert title(made([], systems=list("abcdef"))) == "Bias audit of a, b and 4 more on the planted collection"


# ------------------------------------------------------------------------------------------- treatments


def test_treatments_are_shown_where_something_was_found_and_nowhere_else():
    for bias in BIASES:
        (yes,) = verdicts(made([found(bias)], biases=[bias]))
        assert bool(yes.treatments) == (bias in TREATMENTS) and bool(yes.nothing_helps) == (bias not in TREATMENTS)
        (no,) = verdicts(made([found(bias, 0.0, -0.001, 0.001, 0.6, 1.0)], biases=[bias]))
        assert no.treatments == () and no.nothing_helps == ""


def test_code_names_what_was_audited():
    findings = [found(system="BM25", value=0.0, low=0.0, high=0.0, p_corrected=NAN), found(system=MINE)]
    (verdict,) = verdicts(made(findings, ["BM25", MINE], ["position"], rankers={MINE: "BiEncoder('my/model')"}))
    averaged, trained = verdict.treatments
    assert averaged.code == (
        "ranker = AverageRotations(BiEncoder('my/model'), rotations=4)\n"
        "averaged = systems['BM25'] % 30 >> dataset.text_loader() >> ranker"
    )
    assert trained.code == (
        "ranker = BiEncoder('my/model', training=Training(augment=RotatePassages()))\n"
        "training = systems['BM25'] % 30 >> AddJudged(train_qrels) >> dataset.text_loader() >> ranker\n"
        "training.fit(train_topics, train_qrels)"
    )
    bare = treatments("position", "mine", settings(["mine"], []))[-1]
    assert bare.code.startswith("ranker = CrossEncoder(model, training=") and "training = candidates % 30 >>" in bare.code


@pytest.mark.parametrize("bias", TREATMENTS)
def test_every_figure_of_a_treatment_is_on_its_page_and_its_page_exists(bias):
    for one in TREATMENTS[bias]:
        page = (DOCS / f"{one.page}.rst").read_text()
        page += "".join((DOCS / name).read_text() for name in re.findall(r"\.\. include:: (\S+)", page))
        numbers = set(re.findall(r"(?<![@\d])-?0?\.\d+", page)) | {n.lstrip("-") for n in re.findall(r"-?\d*\.\d+", page)}
        known = {f"{float(n):.3f}" for n in numbers}
        quoted = re.findall(r"(?<![@\d])\d*\.\d+", one.sentence)
        assert quoted, one
        for number in quoted:
            assert f"{float(number):.3f}" in known, (one.name, number)
        for share in re.findall(r"\d+ %", one.sentence):
            assert share in page, (one.name, share)
        assert one.address.endswith(f"/pt_docs/{one.page}.rst")


def test_training_on_rotated_passages_is_not_recommended_to_a_ranker_that_prefers_them():
    def told(**figure):
        (verdict,) = verdicts(made([found("position", **figure)], biases=["position"]))
        return [one.name for one in verdict.treatments]

    both = ["Average over rotations", "Train on rotated passages"]
    up = {"value": 0.03, "low": 0.01, "high": 0.05}
    down = {"value": -0.03, "low": -0.05, "high": -0.01}
    assert told(**down) == both and told(**up) == both[:1]
    ranks = {"measure": "displacement of a relevant passage, rotated alone"}
    assert told(**up, **ranks) == both and told(**down, **ranks) == both[:1]


def test_a_treatment_is_not_recommended_to_a_system_that_has_it():
    from pyterrier_debias import NeutralReranker

    dataset = toy.collection()
    bm25 = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    mine = bm25 >> dataset.text_loader() >> toy.CountingRanker()
    result = audit({"mine": mine, "treated": mine >> NeutralReranker()}, dataset, biases="position")
    assert result.settings["treated"] == {"treated": ["NeutralReranker"]}
    named = {system: [one.name for one in treatments("gender", system, result.settings)] for system in ("mine", "treated")}
    assert named["mine"][0] == "Re-rank by neutrality" and named["treated"] == named["mine"][1:] != []
    assert AuditResult.from_json(result.to_json()).settings == result.settings


def test_a_system_beside_its_treated_form():
    """What to do is told of the untreated one, and what the treatment cost of the other."""
    treated = f"{MINE} (4 rotations)"
    findings = [found(system=MINE), found(system=treated, value=-0.001, low=-0.002, high=0.0, p_corrected=0.04)]
    for system, values in ((MINE, [0.2, 0.4, 0.9]), (treated, [0.1, 0.4, 0.7])):
        quality = pd.Series(values * 2, index=list("123456"))
        findings.append(found(system=system, contrast="original", primary=False, values=quality))
    known = {"untreated": {treated: MINE}, "treated": {treated: ["AverageRotations"]}, "rankers": {treated: "BiEncoder('mine')"}}
    result = made(findings, [MINE, treated], ["position"], **known)
    (verdict,) = verdicts(result)
    assert [one.name for one in verdict.treatments] == ["Average over rotations", "Train on rotated passages"]
    told = verdict.answers[1].sentence
    assert " Cost: nDCG@10 on unchanged passages differs by -0.100 [" in told and told.endswith(f"] from {MINE}.")
    assert "Cost" not in verdict.answers[0].sentence
    (alone,) = treatments("position", treated, result.settings)
    assert "BiEncoder('mine', training=" in alone.code
    result.per_query = result.per_query[result.per_query["qid"].isin(list("12345"))]
    (verdict,) = verdicts(result)
    assert verdict.answers[1].sentence.endswith(f" differs by -0.080 from {MINE}.")  # of five queries there is no interval


# ------------------------------------------------------------------------------------------- text, frame, JSON


def long_result(systems=3):
    names = [f"BM25 >> a model with a long name {i}" for i in range(systems)]
    findings = [found(bias, system=name) for bias in BIASES for name in names]
    return made(findings, names, notes=["a note that is long enough to fill more than one line of the screen " * 3])


@pytest.mark.parametrize("width", [80, 110])
@pytest.mark.parametrize("systems", [1, 2, 3, 20])
def test_the_verdict_fits_a_screen_and_names_every_question(systems, width):
    result = long_result(systems)
    text = result.to_text(width, most=38)
    assert len(text.splitlines()) <= 38
    assert max(len(line) for line in text.splitlines() if not line.startswith(" " * 7)) <= width  # code is not broken
    flat = " ".join(text.split())
    for verdict in verdicts(result):
        assert verdict.question in flat
    assert "Average over rotations" in flat and "No treatment has been shown to help yet." in flat
    assert ("a model with a long name 0" in flat) or systems == 20


@pytest.mark.parametrize("values", [(0.1, 0.1, 0.1), (0.1, 0.2, 0.3)])  # systems with one sentence share it
def test_long_names_of_systems_are_shown_whole(values):
    names = [f"BM25 >> CrossEncoder('models/a-name-without-spaces-{i}') >> MeanOverRotations(draws={i})" for i in range(3)]
    names.append("BM25")
    findings = [found(value=value, system=name) for name, value in zip(names, (*values, 0.4))]
    text = made(findings, names, ["position"]).to_text(100)
    column = "".join(line[2:45].strip() for line in text.splitlines() if line.startswith("  "))
    assert all("".join(name.split()) in "".join(column.split()) for name in names)
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize("name", ["検索モデル", "ranker 検索", "e\u0301" * 8, "モデル" * 20, "\u0301"])
def test_answers_are_aligned_for_names_of_any_width(name):
    lines = made([found(system="BM25", value=0.1), found(system=name, value=0.4)], ["BM25", name], ["position"]).to_text(100)
    width = pytest.importorskip("wcwidth").wcswidth
    begins = [width(line[: line.index("Yes:")]) for line in lines.splitlines() if "Yes:" in line]
    assert len(begins) == 2 and begins[0] == begins[1] == 4 + max(4, min(width(name), 43))
    assert all(width(line) <= 100 for line in lines.splitlines() if line.startswith("  ") and not line.startswith(" " * 7))


def test_a_shortened_answer_still_says_how_many_queries_would_tell():
    systems = {f"BM25 >> a model with a long name {i}": i / 10 for i in range(4)}
    unclear = [found(bias, i, i - 0.5, i + 0.5, 0.9, 1.0, system=name) for bias in BIASES for name, i in systems.items()]
    lines = made(unclear, systems).to_text(100, most=38).splitlines()
    answers = [line for line in lines if "Cannot tell" in line]
    assert len(answers) == 20 and len(lines) <= 38
    assert all(re.search(r"Cannot tell \([\d,]+ queries needed\): \S", line) for line in answers)


def test_systems_that_share_a_line_are_only_named():
    systems = {f"BM25 on part {i}": i / 10 for i in range(12)}
    unclear = [found(bias, i, i - 0.5, i + 0.5, 0.9, 1.0, system=name) for bias in BIASES for name, i in systems.items()]
    lines = made(unclear, systems).to_text(100, most=38).splitlines()
    shared = [line for line in lines if line.startswith("  cannot tell")]
    assert len(shared) == 5 and all(line.split("  ")[2].startswith("BM25 on part 0, BM25 on part 1, ") for line in shared)
    assert not any("queries needed" in line for line in lines)


def test_what_is_printed_begins_with_the_verdict_and_then_has_everything():
    result = long_result(2)
    text = str(result)
    assert text.startswith("Bias audit of BM25 >> a model with a long name 0 and BM25 >> a model")
    assert text.index("Does the ranking depend on where") < text.index("-0.0300  [-0.050, -0.010]")
    for one in TREATMENTS["gender"]:
        assert " ".join(one.sentence.split()) in " ".join(text.split())
    assert "-0.0300  [-0.050, -0.010]" not in result.to_text(most=38)


def test_the_verdict_as_a_frame_has_a_row_a_bias_and_system():
    frame = long_result(2).verdict()
    assert len(frame) == 10 and frame["outcome"].eq("yes").all() and frame["queries_needed"].isna().all()
    told = "Re-rank by neutrality; Train with biased negatives; Swap gendered words in training"
    assert frame.query("bias == 'gender'")["treatments"].iloc[0] == told
    assert frame.query("bias == 'linguistic'")["treatments"].iloc[0] == "No treatment has been shown to help yet."
    assert list(frame)[:5] == ["bias", "question", "system", "outcome", "sentence"]


def test_json_has_the_verdict_in_plain_data_and_is_read_with_and_without_it():
    jsonschema = pytest.importorskip("jsonschema")
    unclear = found("gender", 0.01, -0.3, 0.5, 0.6, 1.0)
    result = made([found(), unclear], skipped=[["pooling", "BM25", "no run"]])
    content = json.loads(result.to_json())
    schema = json.loads((Path(told.__file__).with_name("result.schema.json")).read_text())
    jsonschema.validate(content, schema)
    by_bias = {one["bias"]: one for one in content["verdict"]}
    assert by_bias["position"]["answers"][0]["outcome"] == "yes"
    assert by_bias["position"]["treatments"][0]["page"] == "position_results"
    assert by_bias["pooling"]["answers"][0]["effect"] is None
    assert by_bias["gender"]["answers"][0]["queries_needed"] > 1000
    back = AuditResult.from_json(result.to_json())
    assert verdicts(back) == verdicts(result) or str(verdicts(back)) == str(verdicts(result))  # nan is not itself
    assert back.to_json() == result.to_json()
    # An older file has neither a verdict nor the checksum over it.
    older = {name: part for name, part in content.items() if name not in ("verdict", "blake2b")}
    jsonschema.validate(older, schema)
    assert str(AuditResult.from_json(json.dumps(older)).verdict()) == str(result.verdict())
    with pytest.raises(InputError, match="damaged"):
        AuditResult.from_json(result.to_json().replace('"outcome": "yes"', '"outcome": "no"'))


def test_the_difference_from_the_baseline_is_told_where_it_is_tested():
    def compared(p_corrected):
        _, contrast = PRIMARY["position"]
        difference = found(value=-0.02, low=-0.03, high=-0.01, p=0.001, p_corrected=p_corrected, system="mine", primary=False)
        difference = replace(difference, contrast=f"{contrast}, vs BM25")
        both = [found(system="BM25"), found(system="mine"), difference]
        result = made(both, systems=["BM25", "mine"], biases=["position"], baseline="BM25")
        return [answer.sentence for answer in verdicts(result)[0].answers]

    plain, told = compared(0.004)
    assert "Difference" not in plain
    assert told.endswith(" Difference from BM25: -0.020 [-0.030, -0.010] nDCG@10 (significant, p = 0.004).")
    assert compared(0.4)[1].endswith("nDCG@10 (not significant, p = 0.40).")
    assert "Difference" not in compared(float("nan"))[1]


def judged_of(judged, n=43, labels=lambda row: row % 2):
    """An audit of the run from which the judgements came, whose first documents are judged."""
    qids = [f"q{i}" for i in range(n)]
    rows = [(qid, f"d{place}", 20.0 - place, place) for qid in qids for place in range(10)]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score", "rank"])
    qrels = run[run["rank"] < judged].reset_index(drop=True)
    qrels = qrels[["qid", "docno"]].assign(label=[labels(row) for row in range(len(qrels))])
    corpus = pd.DataFrame({"docno": [f"d{place}" for place in range(10)], "text": "t"})
    topics = {"test": pd.DataFrame({"qid": qids, "query": "q"})}
    collection = Collection("x", corpus=corpus, topics=topics, qrels={"test": qrels}, runs={"bm25": run})
    return audit({"bm25": run}, collection, biases="pooling")


def test_the_gate_doubts_what_the_verdict_doubts():
    """With one judged document in ten, equal to the pool's run shows nothing."""
    result = judged_of(1)
    assert "but Judged@10 is only 0.100" in result.verdict()["sentence"].iloc[0]
    (found,) = check_budgets(result, [Budget("pooling", at_least=-0.02)])
    assert found.crossed and found.text.endswith("but Judged@10 is only 0.100: 'at least -0.02' is not shown")
    f, own = result.findings, result.per_query
    nearly = f.assign(value=f["value"].where(~f["primary"], -0.0006), low=f["low"].where(~f["primary"], -0.0056))
    one = own["contrast"].str.startswith("system - ") & (own["qid"] == "q0")
    nearly = replace(result, findings=nearly, per_query=own.assign(value=own["value"].where(~one, -0.1)))
    assert nearly.verdict()["outcome"].iloc[0] == "cannot tell"
    (found,) = check_budgets(nearly, [Budget("pooling", at_least=-0.02)])
    assert found.crossed and found.text.endswith("but Judged@10 is only 0.100: 'at least -0.02' is not shown")


@pytest.mark.parametrize("n", [40, 43])
def test_a_limit_that_is_met_exactly_is_met(n):
    """The mean of 43 values of .8 is a bit below .8."""
    result = judged_of(8, n)
    assert result.verdict()["sentence"].iloc[0].startswith("No: ")
    (found,) = check_budgets(result, [Budget("pooling", contrast="system", at_least=0.8)])
    assert not found.crossed


def test_a_figure_of_all_systems_needs_a_name_in_a_budget():
    result = judged_of(8)
    with pytest.raises(InputError, match="no primary figure for 'pooling: all systems'; name a measure and a contrast"):
        check_budgets(with_order(result), [Budget("pooling", system="all systems", at_least=0)])


def with_order(result):
    """With a finding about all systems together."""
    row = result.findings.iloc[[0]].assign(system="all systems", measure="tau", primary=False)
    return replace(result, findings=pd.concat([result.findings, row], ignore_index=True))


def test_labels_below_0_are_pointed_out():
    """Sampled judgements write -1 for what nobody judged."""
    sampled = judged_of(10, labels=lambda row: (1, 0, -1)[row % 3])
    told = " ".join(sampled.settings["notes"])
    assert "143 of 430 labels are below 0: their documents count as judged and not relevant" in told
    assert "labels are below 0" not in " ".join(judged_of(10).settings["notes"])


def test_inferred_labels_say_from_how_many_documents():
    own = judged_of(8).findings
    assert own.loc[own["contrast"] == "inferred", "convention"].str.endswith("; from the first 10 documents of each list").all()


@pytest.mark.parametrize(("size", "why"), [(10, "; it differs from 0 for 4 clusters of queries only, too few for"), (5, "")])
def test_of_queries_that_are_not_independent_clusters_are_counted(size, why):
    """Forty queries that change are few if they are about four articles."""
    values = pd.Series(0.3, index=[f"q{i}" for i in range(40)])
    of = pd.Series([f"article {i // size}" for i in range(40)], index=values.index)
    how = "p by flipping signs of all queries with the same 'article' together"
    result = made([found("gender", 0.02, -0.1, 0.2, p=0.4, p_corrected=0.4, n=40, values=values, convention=how, clusters=of)])
    result.clusters = {"gender": of.to_dict()}
    (one,) = next(each for each in verdicts(result) if each.bias == "gender").answers
    assert one.outcome == "cannot tell" and (why in one.sentence if why else "differs from 0" not in one.sentence)
