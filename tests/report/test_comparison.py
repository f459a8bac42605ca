import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from pyterrier_debias import AuditResult, Finding, InputError
from pyterrier_debias.core.bias import corrected, findings_frame, per_query_frame
from pyterrier_debias.core.plots import close, colour, new_axes, rendered
from pyterrier_debias.core.statistics import inverted_interval, randomisation_test
from pyterrier_debias.report.compare import compare
from pyterrier_debias.report.noninferiority import change_interval, size_interval
from pyterrier_debias.report.pareto import pareto, pareto_figures, plot_pareto
from tests.report.browser import in_a_browser, needs_chromium
from tests.report.html_page import Page

QIDS = [f"q{i:02d}" for i in range(40)]
BIAS = "rotated - original"
EVIL = "<script>alert('x')</script>"


def made(systems, dataset="toy", depth=100, qids=QIDS):
    """An audit of the position bias: name to (values of the bias, values of nDCG@10)."""
    findings = []
    for name, (bias, quality) in systems.items():
        half = 1.96 * np.std(bias) / np.sqrt(len(bias))
        ends = {"low": np.mean(bias) - half, "high": np.mean(bias) + half, "primary": True}
        bias, quality = (pd.Series(values, index=qids) for values in (bias, quality))
        about = {"system": name, "bias": "position", "measure": "nDCG@10", "n": len(bias)}
        findings.append(Finding(**about, contrast=BIAS, value=bias.mean(), values=bias, **ends))
        findings.append(Finding(**about, contrast="original", value=quality.mean(), values=quality))
    settings = {
        "dataset": dataset, "split": None, "systems": list(systems), "biases": ["position"], "baseline": None,
        "topics": len(qids), "judged_topics": len(qids), "depth": depth, "draws": None, "seed": 0,
        "correction": "holm", "notes": [],
        "created": "2026-01-01T00:00:00+00:00", "seconds": 1.0, "versions": {"pyterrier-debias": "0.0"},
    }  # fmt: skip
    empty = pd.DataFrame(columns=["bias", "system", "reason"]), pd.DataFrame(columns=["bias", "system", "error", "traceback"])
    return AuditResult(findings_frame(corrected(findings, "holm")), per_query_frame(findings), *empty, settings)


def values(bias, quality, seed=0, noise=0.02):
    """The same queries before and after: their noise is shared but for a little."""
    shared, own = np.random.default_rng(99), np.random.default_rng(seed)
    return tuple(mean + shared.normal(0, 0.1, 40) + own.normal(0, noise, 40) for mean in (bias, quality))


PLAIN = values(-0.20, 0.5, 1)
DEBIASED = values(-0.02, 0.5, 2)
BROKEN = values(-0.02, 0.3, 3)


def by_kind(comparison, kind):
    (row,) = comparison.table[comparison.table["kind"] == kind].to_dict("records")
    return row


def test_gain_and_cost_are_the_paired_tests():
    found = compare(made({"plain": PLAIN}), made({"debiased": DEBIASED}), margin=0.03)
    bias, cost = by_kind(found, "bias"), by_kind(found, "cost")
    peer = stats.ttest_rel(DEBIASED[0], PLAIN[0])
    assert bias["p"] == pytest.approx(peer.pvalue, abs=1e-12)
    assert (bias["low"], bias["high"]) == pytest.approx(peer.confidence_interval(), abs=1e-12)
    size = abs(DEBIASED[0].mean()) - abs(PLAIN[0].mean())
    assert bias["size_change"] == pytest.approx(size) and bias["verdict"] == "smaller" and bias["system"] == "plain -> debiased"
    loss = stats.ttest_1samp(DEBIASED[1] - PLAIN[1], -0.03, alternative="greater")
    assert cost["p"] == pytest.approx(loss.pvalue, abs=1e-12) and cost["p_equivalent"] >= cost["p"]
    assert cost["verdict"] == "kept"
    assert f"nDCG@10 from {PLAIN[1].mean():.3f} to {DEBIASED[1].mean():.3f}" in cost["text"]


@pytest.mark.parametrize(("after", "margin", "verdict"), [(BROKEN, 0.03, "lost"), (DEBIASED, 1e-4, "not ruled out")])
def test_losses_are_shown_or_left_open(after, margin, verdict):
    assert by_kind(compare(made({"plain": PLAIN}), made({"new": after}), margin=margin), "cost")["verdict"] == verdict


def test_the_verdict_on_costs_is_that_of_the_test():
    for margin in np.linspace(0.001, 0.02, 4):
        cost = by_kind(compare(made({"plain": PLAIN}), made({"new": DEBIASED}), margin=margin), "cost")
        assert (cost["p"] < 0.05) == (cost["verdict"] == "kept")


def test_nothing_happened():
    found = compare(made({"a": PLAIN}), made({"b": PLAIN}))
    assert by_kind(found, "bias")["verdict"] == "no change shown" and np.isnan(by_kind(found, "bias")["p"])
    cost = by_kind(found, "cost")
    assert cost["verdict"] == "kept" and np.isnan([cost["p"], cost["p_corrected"], cost["p_equivalent"]]).all()
    assert cost["text"].endswith("a loss of more than 0.01 is ruled out; over 40 queries.")


def test_a_difference_by_rounding_is_no_change():
    rounded = tuple(np.nextafter(values, 9) for values in PLAIN)
    bias = by_kind(compare(made({"a": PLAIN}), made({"b": rounded})), "bias")
    assert (bias["change"], bias["verdict"]) == (0, "no change shown") and np.isnan(bias["p"])


def test_a_change_that_is_shown_is_never_printed_as_zero():
    """Small figures, such as those of the rate of rare words; and no "-0.000"."""
    before, after = (np.random.default_rng(seed).normal(mean, 1e-6, 40) for seed, mean in ((0, 2e-4), (1, 5e-5)))
    found = compare(made({"a": (before, PLAIN[1])}), made({"b": (after, PLAIN[1] - 1e-5)}))
    assert "the bias became smaller, by 0.0001 [0.0001, 0.0002]" in by_kind(found, "bias")["text"]
    assert "a change of -0.00001 [-0.00001, -0.00001]" in by_kind(found, "cost")["text"]
    back = compare(made({"b": (after, PLAIN[1])}), made({"a": (before, PLAIN[1])}))
    assert "the bias became larger, by 0.0001 [0.0001, 0.0002]" in by_kind(back, "bias")["text"]
    noise = np.random.default_rng(2).normal(-1e-5, 1e-3, 40)
    text = by_kind(compare(made({"a": (-noise, PLAIN[1])}), made({"b": (noise * 0.1, PLAIN[1])})), "bias")["text"]
    assert "-0.000" not in text and "no change is shown" in text


def test_over_a_handful_of_queries_nothing_is_shown():
    """No test of so few could reject: neither intervals, nor p, nor a verdict."""
    for n, few in ((5, True), (6, False)):
        one, other = ({"qids": QIDS[:n], "systems": {"a": tuple(v[:n] for v in both)}} for both in (PLAIN, DEBIASED))
        found = compare(made(**one), made(**other), margin=0.2)
        table = found.table[["low", "high", "p", "p_corrected", "p_equivalent", "size_low"]]
        assert table.isna().all(axis=None) == few
        verdicts = ("no change shown", "not ruled out") if few else ("smaller", "kept")
        assert (by_kind(found, "bias")["verdict"], by_kind(found, "cost")["verdict"]) == verdicts
        assert "nan" not in str(found) and found.table["text"].str.contains("[", regex=False).all() != few


def test_a_bias_that_turns_round_is_no_smaller():
    text = by_kind(compare(made({"a": PLAIN}), made({"b": (-PLAIN[0], PLAIN[1])})), "bias")
    assert text["verdict"] == "no change shown" and text["low"] > 0
    assert "the figure changed (+0.361" in text["text"] and "no change in its size is shown" in text["text"]


def test_two_systems_of_one_audit_and_common_ones_of_two():
    both = made({"plain": PLAIN, "debiased": DEBIASED})
    expected = compare(made({"plain": PLAIN}), made({"debiased": DEBIASED})).table
    pd.testing.assert_frame_equal(compare(both).table, expected)
    pd.testing.assert_frame_equal(compare(both, systems=("plain", "debiased")).table, expected)
    back = compare(both, systems=("debiased", "plain"))
    assert by_kind(back, "bias")["verdict"] == "larger"
    # Each audit has one system that the other lacks: those are compared, not BM25 with itself.
    found = compare(made({"BM25": BROKEN, "plain": PLAIN}), made({"BM25": BROKEN, "debiased": DEBIASED}))
    assert found.table["system"].unique().tolist() == ["plain -> debiased"]
    found = compare(made({"mine": PLAIN}), made({"mine": DEBIASED}))
    assert found.table["system"].unique().tolist() == ["mine"]


def test_queries_that_only_one_audit_has_are_left_out():
    fewer = made({"b": tuple(v[:30] for v in DEBIASED)}, qids=QIDS[:30])
    assert set(compare(made({"a": PLAIN}), fewer).table["n"]) == {30}


def in_clusters(systems, size=8, **how):
    """An audit whose queries share what they have in common with the ``size`` queries of their cluster."""
    found = made(systems, **how)
    found.clusters = {"position": {qid: f"article {n // size}" for n, qid in enumerate(QIDS)}}
    return found


def shared(seed, clusters=10):
    """Differences without an effect that are equal in a cluster but for a little."""
    rng = np.random.default_rng(seed)
    return np.repeat(rng.normal(0, 0.1, clusters), 40 // clusters) + rng.normal(0, 0.01, 40)


def test_queries_that_are_not_independent_are_compared_by_cluster():
    quality = np.full(40, 0.5)
    rejected = {"by query": 0, "by cluster": 0}
    for seed in range(60):
        systems = {"plain": (np.zeros(40) + 0.3, quality), "debiased": (0.3 + shared(seed), quality)}
        for how, results in (("by query", made(systems)), ("by cluster", in_clusters(systems, size=4))):
            row = by_kind(compare(results), "bias")
            rejected[how] += row["p"] <= 0.05
            assert (row["low"] <= 0 <= row["high"]) == (row["p"] > 0.05)
    assert rejected["by query"] > 15 and rejected["by cluster"] <= 7
    # The same test and interval as anywhere else.
    before, after, of = np.zeros(40) + 0.3, 0.25 + shared(0), [n // 4 for n in range(40)]
    row = by_kind(compare(in_clusters({"plain": (before, quality), "debiased": (after, quality)}, size=4)), "bias")
    assert row["p"] == randomisation_test(before, after, clusters=of).p
    ends = inverted_interval(after - before, clusters=of)
    assert [row["low"], row["high"]] == pytest.approx([ends.low, ends.high]) and row["n"] == 40
    assert row["size_high"] - row["size_low"] > 0.05
    plain = by_kind(compare(made({"plain": (before, quality), "debiased": (after, quality)})), "bias")
    assert plain["size_high"] - plain["size_low"] < 0.75 * (row["size_high"] - row["size_low"])


def test_five_clusters_show_nothing():
    systems = {"plain": PLAIN, "debiased": DEBIASED}
    row = by_kind(compare(in_clusters(systems)), "bias")
    assert np.isnan([row["low"], row["high"], row["size_low"], row["size_high"], row["p"]]).all()
    assert row["verdict"] == "no change shown"
    assert by_kind(compare(made(systems)), "bias")["verdict"] == "smaller"


def test_clusters_of_one_query_each_are_the_bootstrap_over_queries():
    before, after = (np.random.default_rng(seed).normal(0.2, 0.1, (3, 40)) for seed in (0, 1))
    alone = list(range(40))
    for interval in (change_interval, size_interval):
        one, other = interval(before, after), interval(before, after, clusters=alone)
        assert (other.low, other.high, other.n) == pytest.approx((one.low, one.high, 40))
    halves = change_interval(before, after, clusters=[n // 2 for n in alone])
    assert halves.estimate == pytest.approx((after - before).mean())


def test_several_training_seeds():
    plain = [made({"m": values(-0.2, 0.5, s)}) for s in range(3)]
    after = [made({"m": values(-0.02 - 0.05 * s, 0.5, 10 + s)}) for s in range(3)]
    found = compare(plain, after)
    bias = by_kind(found, "bias")
    assert bias["seeds"] == 3 and np.isnan(bias["p"]) and bias["verdict"] == "smaller"
    assert "40 queries and 3 training seeds" in bias["text"]
    one = by_kind(compare(plain[0], after[0]), "bias")
    assert bias["high"] - bias["low"] > one["high"] - one["low"]
    assert by_kind(compare(plain[0], after), "bias")["seeds"] == 3
    with pytest.raises(InputError, match="2 audits before and 3 after"):
        compare(plain[:2], after)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((made({"a": PLAIN}), made({"b": PLAIN}, dataset="other")), {}, "dataset is 'toy' in one and 'other'"),
        ((made({"a": PLAIN}), made({"b": PLAIN})), {"margin": 0}, "margin=0 must be a number above 0"),
        ((made({"a": PLAIN}), made({"b": PLAIN})), {"systems": ("a", "c")}, "system 'c' is not in the audit; use a name"),
        ((made({"a": PLAIN}),), {}, "does not have two systems"),
        ((made({"a": PLAIN}), made({"b": PLAIN, "c": PLAIN})), {}, "no system is in both"),
        ((made({"a": PLAIN}), made({"b": PLAIN})), {"systems": "ab"}, "give two names"),
        (([], []), {}, "0 audits"),
    ],
)
def test_what_cannot_be_compared(arguments, options, message):
    with pytest.raises(InputError, match=message):
        compare(*arguments, **options)


def with_other(audit, bias, system, contrast, values, primary=True):
    """The audit with a figure of another bias."""
    values = pd.Series(values, index=QIDS)
    finding = Finding(system, bias, "nDCG@10", contrast, values.mean(), n=len(values), primary=primary, values=values)
    return dataclasses.replace(
        audit,
        findings=pd.concat([audit.findings, findings_frame([finding])], ignore_index=True),
        per_query=pd.concat([audit.per_query, per_query_frame([finding])], ignore_index=True),
    )


def test_a_retriever_and_a_ranker_are_compared_by_what_both_have():
    """A first stage has effectiveness and a slope of its own, under other groups than a ranker's."""
    quality = PLAIN[1]
    audit = made({"BM25": PLAIN, "mine": DEBIASED})
    audit = dataclasses.replace(
        audit,
        findings=audit.findings[audit.findings["system"] == "mine"].reset_index(drop=True),
        per_query=audit.per_query[audit.per_query["system"] == "mine"].reset_index(drop=True),
    )
    audit = with_other(audit, "linguistic", "BM25", "complexity", quality)
    audit = with_other(audit, "linguistic", "mine", "complexity, given the candidates", quality)
    audit = with_other(audit, "linguistic", "mine", "complexity", quality, primary=False)
    for system in ("BM25", "mine"):
        audit = with_other(audit, "pooling", system, "as non-relevant", quality, primary=False)
    for systems in (("BM25", "mine"), ("mine", "BM25")):
        found = compare(audit, systems=systems)
        assert found.table[["kind", "bias", "contrast"]].values.tolist() == [
            ["bias", "linguistic", "complexity"], ["cost", "pooling", "as non-relevant"],
        ]  # fmt: skip
        (note,) = found.notes
        assert note == f"{' and '.join(systems)}: position cannot be compared: no figure is available on both sides."


def test_two_biases_with_one_measure_and_contrast_are_told_apart():
    audit = made({"a": PLAIN, "b": DEBIASED})
    alone = compare(audit)
    for system, quality in (("a", PLAIN[1]), ("b", BROKEN[1])):
        for bias in ("age", "place"):
            audit = with_other(audit, bias, system, "order - random order", quality)
    found = compare(audit)
    own = found.table[found.table["kind"] == "bias"].set_index("bias")["text"]
    assert own["age"].startswith("a -> b, bias 'age': nDCG@10 (order - random order) from ")
    assert own["place"].startswith("a -> b, bias 'place': nDCG@10 (order - random order) from ")
    assert own["position"].startswith("a -> b: nDCG@10 (rotated - original) from ")  # it is the only one
    assert "nDCG@10 (bias age)</td>" in found.to_html() and "(bias" not in alone.to_html()


def test_measures_that_are_asked_for_and_not_there_are_named():
    audit = made({"plain": PLAIN, "debiased": DEBIASED})
    assert compare(audit).notes == ()
    assert compare(audit, effectiveness=["AP", "nDCG@10"]).notes == (
        "plain and debiased: AP cannot be compared: no figure is available on both sides.",
    )
    with pytest.raises(InputError, match=r"give a list of measures, such as \['nDCG@10'\]"):
        compare(audit, effectiveness="nDCG@10")


def test_no_figure_in_common():
    before, after = made({"a": PLAIN}), made({"b": PLAIN})
    after.per_query = after.per_query.assign(bias="pooling", measure="other")
    with pytest.raises(InputError, match="no figure in common"):
        compare(before, after)


@pytest.mark.parametrize(("start", "told"), [(39, "1 query has"), (40, "no query has")])
def test_too_few_queries_in_common(start, told):
    other = made({"b": PLAIN}, qids=[f"q{i:02d}" for i in range(start, start + 40)])
    with pytest.raises(InputError, match=f"^compare: {told} values on both sides, but a comparison needs two or more"):
        compare(made({"a": PLAIN}), other)
    one = made({name: tuple(v[:1] for v in PLAIN) for name in "ab"}, qids=QIDS[:1])
    with pytest.raises(InputError, match="1 query has values on both sides"):
        compare(one)


def test_audits_of_different_splits_are_refused_where_both_name_them():
    named = [with_convention(made({"a": PLAIN}), "", split=split) for split in ("dl19", "dl20", None)]
    with pytest.raises(InputError, match="collections or splits: split is 'dl19' in one and 'dl20' in another"):
        compare(named[0], named[1])
    assert compare(named[0], named[2]).notes == compare(named[2], named[1]).notes == ()


def test_differences_of_settings_are_told():
    found = compare(made({"a": PLAIN}), made({"b": DEBIASED}, depth=50))
    assert found.notes == ("The audits differ in their depth: 100 and 50.",)
    assert found.notes[0] in str(found)


def with_convention(result, convention, **settings):
    return dataclasses.replace(
        result, findings=result.findings.assign(convention=convention), settings={**result.settings, **settings}
    )


def test_figures_of_other_conventions_topics_and_judgements_are_told():
    plain = with_convention(made({"a": PLAIN}), "tagger spaCy; mean of 2 draws", judgements="1f")
    other = with_convention(made({"b": DEBIASED}), "tagger textblob; mean of 2 draws", judgements="2e", judged_topics=30)
    assert compare(plain, other).notes == (
        "The audits differ in their judged topics: 40 and 30. Comparisons leave out 0 and 0 queries that the other audit lacks.",
        "The audits used different judgements, although their collections have the same name.",
        "position: the compared figures were computed under different conventions: 'tagger spaCy' and 'tagger textblob'.",
    )
    assert compare(plain, with_convention(made({"b": DEBIASED}), "tagger spaCy; mean of 2 draws", judgements="1f")).notes == ()
    # Older files lack the digest; two systems of one audit are compared as well.
    assert len(compare(made({"a": PLAIN}), with_convention(made({"b": DEBIASED}), "", judgements="1f")).notes) == 0
    both = made({"a": PLAIN, "b": DEBIASED})
    both.findings["convention"] = np.where(both.findings["system"] == "a", "tagger spaCy", "")
    assert compare(both).notes == (
        "position: the compared figures were computed under different conventions: 'tagger spaCy' and 'none stated'.",
    )
    # Several training seeds: each pair of conventions is told once.
    seeds = [with_convention(made({"a": values(-0.2, 0.5, s)}), "tagger spaCy") for s in range(3)]
    assert len(compare(seeds, [with_convention(made({"b": DEBIASED}), "tagger x") for _ in range(3)]).notes) == 1


def test_as_many_topics_but_others():
    def of(name, own, start, topics):
        at = slice(start, start + 25)
        return with_convention(made({name: tuple(v[at] for v in own)}, qids=QIDS[at]), "", judged_qids=topics)

    one, other = of("a", PLAIN, 0, "1f"), of("b", DEBIASED, 15, "2e")
    told = "judged topics: 25 and 25. Comparisons leave out 15 and 15 queries that the other audit lacks."
    found = compare(one, other)
    assert found.notes == (f"The audits differ in their {told}",) and set(found.table["n"]) == {10}
    with pytest.raises(InputError, match=f"a front compares systems under the same conditions. .* {told} Audit all"):
        pareto([one, other], "position")
    # Queries without a value are not other topics.
    other = of("b", DEBIASED, 15, "1f")
    assert compare(one, other).notes == () and len(pareto([one, other], "position")) == 2


def test_a_slope_of_other_topics_is_not_compared():
    """Influence values of 40 queries do not average to the slope of 20 of them; values of a mean do."""

    def of(measure, qids):
        result = made({"a": tuple(v[: len(qids)] for v in PLAIN)}, qids=qids)
        primary = result.findings.loc[result.findings["primary"].astype(bool), "measure"].iloc[0]
        tables = {name: getattr(result, name).replace({"measure": {primary: measure}}) for name in ("findings", "per_query")}
        return dataclasses.replace(result, **tables)

    assert "slope of nDCG@10" in set(compare(of("slope of nDCG@10", QIDS), of("slope of nDCG@10", QIDS)).table["measure"])
    assert "share of pairs" in set(compare(of("share of pairs", QIDS), of("share of pairs", QIDS[:20])).table["measure"])
    # As many topics, but others: half of each audit's.
    for one, other in ((QIDS, QIDS[:20]), (QIDS[:30], QIDS[10:])):
        with pytest.raises(InputError, match="slopes or correlations over different topics; audit both with the same topics"):
            compare(of("slope of nDCG@10", one), of("slope of nDCG@10", other))


def test_a_front_of_other_judgements_or_conventions():
    one, other = made({"a": PLAIN}), made({"b": DEBIASED})
    table = pareto([with_convention(one, "spaCy"), with_convention(other, "textblob")], "position")
    assert dict(zip(table["system"], table["convention"])) == {"a": "spaCy", "b": "textblob"}
    axes = plot_pareto(table)
    (note,) = [text for text in axes.texts if "under different conventions" in text.get_text()]
    assert note.get_position()[1] > 1, "above what is drawn"
    close(axes.figure)
    axes = plot_pareto(pareto([with_convention(one, "spaCy"), with_convention(other, "spaCy")], "position"))
    assert not any("conventions" in text.get_text() for text in axes.texts)
    close(axes.figure)
    with pytest.raises(InputError, match="used different judgements"):
        pareto([with_convention(one, "", judgements="1f"), with_convention(other, "", judgements="2e")], "position")
    pareto([with_convention(one, "", judgements="1f"), other], "position")


def test_it_can_be_read():
    found = compare(made({EVIL: PLAIN}, dataset=EVIL), made({"new": DEBIASED}, dataset=EVIL), margin=0.03)
    text = " ".join(str(found).split())
    assert text.index("CHANGE IN BIAS") < text.index("the bias became smaller") < text.index("CHANGE IN EFFECTIVENESS")
    told = (
        "A loss of up to 0.03 (the margin) is accepted; one-sided tests at the 5 % level show a larger loss or rule it out. "
        "Intervals are 95 % intervals. Only p corr. is corrected for the number of rows (Holm); intervals and verdicts are not."
    )
    assert text.endswith(told)
    page = Page(found.to_html())
    assert f"{told} Verdict: kept if a larger loss is ruled out, lost if it is shown." in page.text
    assert "script" not in [tag for tag, _ in page.tags] and any(EVIL in t for t in page.text)
    assert "srcdoc=" in found._repr_html_() and "<script>" not in found._repr_html_()
    assert repr(found).startswith("<Comparison on")


def test_the_front_over_systems():
    one = made({"plain": PLAIN, "debiased": DEBIASED, "broken": BROKEN})
    table = pareto(one, "position")
    best = dict(zip(table["system"], table["on_front"]))
    assert not best["broken"] and any(best.values())
    row = table.set_index("system").loc["plain"]
    assert row["size"] == pytest.approx(abs(PLAIN[0].mean())) and row["effectiveness"] == pytest.approx(PLAIN[1].mean())
    assert row["size_low"] <= row["size"] <= row["size_high"]
    again = pareto([made({"plain": PLAIN}), made({"debiased": DEBIASED, "broken": BROKEN})], "position")
    pd.testing.assert_frame_equal(table, again)
    assert rendered(plot_pareto(table).figure).startswith(b"\x89PNG")


def test_a_front_over_few_queries_has_no_intervals_and_none_leaves_the_range():
    def table(n, quality):
        return pareto(made({"a": (PLAIN[0][:n], quality), "b": (DEBIASED[0][:n], quality)}, qids=QIDS[:n]), "position")

    assert table(5, np.array([0.0, 0.0, 0.0, 0.0, 0.9]))[["low", "high"]].isna().all(axis=None)
    wide = table(6, np.array([0.0, 0.0, 0.0, 0.0, 0.0, 0.9]))
    assert (wide["low"] == 0).all() and (wide["high"] < 1).all() and wide["effectiveness"].tolist() == pytest.approx([0.15] * 2)
    few = made({"a": (PLAIN[0][:1], PLAIN[1][:1]), "b": (DEBIASED[0][:1], PLAIN[1][:1])}, qids=QIDS[:1])
    few.findings[["low", "high"]] = np.nan
    (figure,) = pareto_figures(few)
    assert "for 2 systems, over 1 query. " in figure.caption


def test_figures_of_two_measures_share_no_axis():
    one = made({"plain": PLAIN, "debiased": DEBIASED})
    assert [figure.name for figure in pareto_figures(one)] == ["front-position"]
    one.findings.loc[one.findings["primary"] & (one.findings["system"] == "plain"), "measure"] = "displacement"
    assert pareto_figures(one) == []


def test_figures_of_different_kinds_and_audits_under_different_conditions_make_no_front():
    one = made({"plain": PLAIN, "debiased": DEBIASED})
    one.findings.loc[one.findings["primary"] & (one.findings["system"] == "plain"), "contrast"] = "given the candidates"
    with pytest.raises(InputError, match=r"several figures of 'position' are primary, and they are not comparable: .*; select"):
        pareto(one, "position")
    assert pareto_figures(one) == []
    with pytest.raises(InputError, match="the audits have no query in common"):
        pareto([made({name: (own[0][at], own[1][at])}, qids=QIDS[at]) for name, own, at in (
            ("a", PLAIN, slice(0, 20)), ("b", DEBIASED, slice(20, 40))
        )], "position")  # fmt: skip
    with pytest.raises(InputError, match=r"nDCG@10 \(original\) is no size of a bias, because its value without bias is not 0"):
        pareto(made({"a": PLAIN}), "position", measure="nDCG@10", contrast="original")
    for measure, contrast in (("Kendall's tau", "own order, shuffled"), ("tau of nDCG@10", "as non-relevant, condensed"),
                              ("share of pairs", "rewritten ahead"), ("NFaiRR@10", "neutral queries")):  # fmt: skip
        one = made({"a": PLAIN})
        one.findings.loc[one.findings["primary"], ["measure", "contrast"]] = [measure, contrast]
        with pytest.raises(InputError, match=f"^pareto: {re.escape(f'{measure} ({contrast})')} is no size of a bias"):
            pareto(one, "position", measure=measure)
    few = made({"b": (DEBIASED[0][:10], DEBIASED[1][:10])}, qids=QIDS[:10])
    for other, told in ((few, "judged topics: 40 and 10"), (made({"b": DEBIASED}, depth=20), "depth: 100 and 20")):
        with pytest.raises(InputError, match=f"a front compares systems under the same conditions. .* {told}"):
            pareto([made({"a": PLAIN}), other], "position")


def test_the_report_shows_the_front_by_itself():
    one = made({"plain": PLAIN, "debiased": DEBIASED, EVIL: BROKEN})
    (figure,) = pareto_figures(one)
    best = ", ".join(pareto(one, "position").query("on_front")["system"])
    assert figure.name == "front-position"
    assert "|nDCG@10, rotated - original|" in figure.caption
    assert "for 3 systems, with 95 % intervals over 40 queries. " in figure.caption
    assert f"The front ({best}, filled and joined" in figure.caption and "hollow: the other systems" in figure.caption
    axes = new_axes()
    figure.draw(axes)
    # Colours are those of the order in which systems were given, as in other figures.
    drawn = {bars.get_label(): bars.lines[0].get_color() for bars in axes.containers}
    assert drawn == {"plain": colour(0), "debiased": colour(1), EVIL: colour(2)}
    close(axes.figure)
    one.findings.loc[one.findings["system"] == "plain", "n"] = 30
    assert "over 30 to 40 queries (bias) and 40 (effectiveness)." in pareto_figures(one)[0].caption
    page = Page(one.to_html())
    assert "Bias against effectiveness" in page.text and EVIL not in one.to_html()
    assert [a["alt"] for t, a in page.tags if t == "img"] == [pareto_figures(one)[0].caption]
    # From a file there is nothing but values, and they are enough.
    assert AuditResult.from_json(one.to_json()).to_html() == one.to_html()


def test_one_system_has_no_front():
    one = made({"plain": PLAIN})
    assert pareto_figures(one) == [] and "Bias against effectiveness" not in one.to_html()
    unknown = made({"plain": PLAIN, "debiased": DEBIASED})
    assert pareto_figures(unknown, effectiveness="R@10") == []
    unknown.findings["primary"] = False
    assert pareto_figures(unknown) == []


def test_a_bias_around_zero_has_an_interval_from_zero():
    table = pareto(made({"a": (PLAIN[0] - PLAIN[0].mean() + 0.001, PLAIN[1])}), "position")
    assert table["size_low"].item() == 0 and table["size_high"].item() > table["size"].item()


def test_fronts_that_cannot_be_drawn_up():
    with pytest.raises(InputError, match="no system has both"):
        pareto(made({"a": PLAIN}), "gender")
    with pytest.raises(InputError, match="occurs twice"):
        pareto([made({"a": PLAIN}), made({"a": PLAIN})], "position")
    one = made({"a": PLAIN, "b": DEBIASED})
    message = r"several figures of 'position' match: nDCG@10 \(rotated - original\), nDCG@10 \(original\); select one"
    with pytest.raises(InputError, match=message):
        pareto(one, "position", measure="nDCG@10")
    pd.testing.assert_frame_equal(pareto(one, "position", measure="nDCG@10", contrast=BIAS), pareto(one, "position"))
    pd.testing.assert_frame_equal(pareto(one, "position", contrast=BIAS), pareto(one, "position"))
    with pytest.raises(InputError, match="different collections"):
        pareto([made({"a": PLAIN}), made({"b": PLAIN}, dataset="other")], "position")


def test_the_comparison_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        compare(made({"a": PLAIN, "b": DEBIASED})).margin = 3


@needs_chromium
@pytest.mark.parametrize("width", [390, 1280])
def test_verdicts_stay_on_one_line_beside_long_names_in_a_real_browser(width, tmp_path):
    name = "BM25 >> a cross-encoder that was trained on MS MARCO with in-batch negatives, learning rate 2e-5, seed 42 (epoch 3)"
    page = compare(made({name: PLAIN}), made({f"{name}, debiased": DEBIASED}), margin=0.03).to_html()
    page = page.replace("default-src 'none'; style-src", "script-src 'unsafe-inline'; style-src")  # for the probe
    probe = """
      const lines = [...document.querySelectorAll(".badge")].map(e => {
        const text = document.createRange();
        text.selectNodeContents(e);
        return new Set([...text.getClientRects()].map(one => one.top)).size;
      });
      top.document.title = `${lines.join(" ")}, ${Math.max(document.documentElement.scrollWidth - innerWidth, 0)} too wide`;
    """
    assert in_a_browser(page, probe, tmp_path, width) == "1 1, 0 too wide"
