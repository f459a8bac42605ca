from dataclasses import replace

import pandas as pd
import pyterrier as pt
import pytest
from typer.testing import CliRunner

from pyterrier_debias import AuditResult, InputError, audit
from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.errors import visible
from pyterrier_debias.report import inputs
from pyterrier_debias.report.cli import app
from pyterrier_debias.report.gate import Budget, check_budgets, read_gate
from tests.biases import Made
from tests.report import toy
from tests.report.toy import BROKEN, CONTRAST, ORDER, PICKY
from tests.report.verdicts import found, made

FIGURE = f"order: BM25: RR@10 ({CONTRAST}) is -0.5000 [-0.7000, -0.3000]"


@pytest.fixture(scope="module")
def result():
    dataset = toy.collection()
    result = audit(toy.systems(dataset), dataset, biases=[ORDER, PICKY, BROKEN])
    primary = result.findings["primary"]
    result.findings.loc[primary, ["low", "high"]] = [-0.7, -0.3]
    return result


@pytest.fixture
def saved(result, tmp_path):
    (tmp_path / "audit.json").write_text(result.to_json())
    return tmp_path / "audit.json"


def budget_file(folder, *tables, audit=""):
    path = folder / "budget.toml"
    path.write_text(audit + "".join(f"[[budget]]\n{table}\n" for table in tables))
    return path


def check(*arguments):
    found = CliRunner().invoke(app, ["check", *map(str, arguments)], catch_exceptions=False)
    return found.exit_code, found.stdout.splitlines(), found.stderr.splitlines()


@pytest.mark.parametrize(
    ("limits", "crossed"),
    [
        ({"at_least": -0.7}, False),  # a bound that touches the budget keeps it
        ({"at_least": -0.69}, True),  # the figure itself, -0.5, would keep it
        ({"at_most": -0.3}, False),
        ({"at_most": -0.31}, True),
        ({"at_most": -0.31, "bound": "value"}, False),
        ({"at_least": -0.49, "bound": "value"}, True),
        ({"at_least": -0.7, "at_most": 0.0}, False),
    ],
)
def test_the_end_of_the_interval_is_what_counts(result, limits, crossed):
    verdicts = check_budgets(result, [Budget("order", system="BM25", **limits)])
    assert [v.crossed for v in verdicts] == [crossed] * len([k for k in limits if k.startswith("at_")])


def test_a_crossed_budget_is_named_in_one_line(result):
    (verdict,) = check_budgets(result, [Budget("order", system="BM25", at_least=-0.25)])
    assert verdict.text == f"{FIGURE}: its lower end is below the budget of -0.25"
    (verdict,) = check_budgets(result, [Budget("order", system="BM25", at_most=0)])
    assert verdict.text == f"{FIGURE}: within the budget of at most 0"


def test_without_a_measure_the_primary_figures_of_all_systems_count(result):
    verdicts = check_budgets(result, [Budget("order", at_least=-1.0)])
    assert len(verdicts) == 2 and all(CONTRAST in v.text for v in verdicts)


def test_what_has_no_interval_is_not_shown_to_keep_a_budget(result):
    (verdict,) = check_budgets(result, [Budget("order", "RR@10", "original", "BM25", at_least=0.5)])
    assert verdict.crossed and "has no interval" in verdict.text
    (verdict,) = check_budgets(result, [Budget("order", "RR@10", "original", "BM25", at_least=0.5, bound="value")])
    assert not verdict.crossed


def test_where_nothing_relevant_is_found_no_change_keeps_no_budget():
    qids = [f"q{number}" for number in range(50)]
    still = found("position", 0.0, 0.0, 0.0, p=float("nan"), p_corrected=float("nan"), values=pd.Series(0.0, index=qids))
    for quality, crossed in ((0.0, True), (0.4, False)):
        own = replace(still, value=quality, contrast="original", primary=False, values=pd.Series(quality, index=qids))
        (verdict,) = check_budgets(made([still, own], biases=["position"]), [Budget("position", at_least=-0.02)])
        assert verdict.crossed == crossed
        told = "0.0000], but its nDCG@10 is 0 for every query (50 queries): 'at least -0.02' is not shown"
        assert verdict.text.endswith(told) == crossed
        (verdict,) = check_budgets(made([still, own], biases=["position"]), [Budget("position", at_least=-0.02, bound="value")])
        assert verdict.crossed == crossed


@pytest.mark.parametrize(("bias", "contrast", "quality"), [
    ("position", "rotated - original", "original"), ("pooling", "removed - as non-relevant", "as non-relevant"),
])  # fmt: skip
def test_where_nothing_relevant_is_found_no_other_figure_keeps_a_budget_either(bias, contrast, quality):
    """Such as the change of another measure, which the documentation tells users to name."""
    qids = [f"q{number}" for number in range(50)]
    still = {"system": "s", "bias": bias, "low": 0.0, "high": 0.0, "n": 50, "convention": "lists of 20 documents; not tested"}
    change = Finding(measure="RR@10", contrast=contrast, value=0.0, values=pd.Series(0.0, index=qids), **still)
    for value, crossed in ((0.0, True), (0.4, False)):
        own = Finding(measure="nDCG@10", contrast=quality, value=value, values=pd.Series(value, index=qids), **still)
        for bound in ("interval", "value"):
            budget = Budget(bias, "RR@10", contrast, at_most=0.04, bound=bound)
            assert [v.crossed for v in check_budgets(made([change, own], biases=[bias]), [budget])] == [crossed]


def of_unanswered(missing):
    """A change of quality over 50 queries, some of which have no results."""
    qids = [f"q{number}" for number in range(50)]
    values = pd.Series([0.0] * missing + [-0.01] * (50 - missing), index=qids)
    change = found("position", values.mean(), -0.012, -0.002, p=0.5, p_corrected=0.5, values=values)
    without = pd.Series([1.0] * missing + [0.0] * (50 - missing), index=qids)
    share = Finding(change.system, "unanswered", "share of queries", "without results", missing / 50, n=50, values=without)
    return made([change, share], biases=["position"])


@pytest.mark.parametrize(("missing", "crossed"), [(5, False), (6, True), (50, True)])
def test_queries_without_results_do_not_keep_a_budget(missing, crossed):
    result = of_unanswered(missing)
    (verdict,) = check_budgets(result, [Budget("position", at_least=-0.04)])
    assert verdict.crossed == crossed
    told = f"but {missing} of 50 queries have no results"
    assert verdict.text.endswith(f"{told}: 'at least -0.04' is not shown") == crossed
    assert (result.verdict()["outcome"] == ("cannot tell" if crossed else "no")).all()
    assert result.verdict()["sentence"].iloc[0].endswith(f"{told}.") == crossed
    # They make a limit on the other side of 0 no easier to keep, and what crosses a limit is told as such.
    (verdict,) = check_budgets(result, [Budget("position", at_most=-0.001)])
    assert not verdict.crossed
    (verdict,) = check_budgets(result, [Budget("position", at_least=-0.01)])
    assert verdict.text.endswith("its lower end is below the budget of -0.01")


def test_a_figure_of_0_over_few_queries_is_compared_as_a_value():
    values = pd.Series(0.0, index=list("12345"))
    still = found("position", 0.0, float("nan"), float("nan"), p=float("nan"), p_corrected=float("nan"), n=5, values=values)
    audited = made([still], biases=["position"])
    assert [v.crossed for v in check_budgets(audited, [Budget("position", at_most=0.1)])] == [True]
    assert [v.crossed for v in check_budgets(audited, [Budget("position", at_most=0.1, bound="value")])] == [False]


def test_a_system_is_found_under_the_name_that_the_user_gave():
    audited = made([found("order", 0.0, -0.1, 0.1, system="two\ufffdlines")], systems=["two\ufffdlines"], biases=["order"])
    assert visible("two\nlines") == "two\ufffdlines"
    (verdict,) = check_budgets(audited, [Budget("order", system="two\nlines", at_least=-0.2)])
    assert not verdict.crossed


def test_a_bias_that_broke_off_keeps_the_gate_shut(result):
    (verdict,) = check_budgets(result, [Budget("broken", at_most=9.0)])
    assert verdict.crossed and "the bias fell down" in verdict.text


def test_a_system_that_could_not_be_examined_keeps_a_budget_of_every_system_shut(result):
    # picky examines rankers only: of BM25 it shows nothing, and a budget of every system speaks of BM25 too.
    kept, missing = check_budgets(result, [Budget("picky", at_least=-1.0)])
    assert not kept.crossed and missing.crossed
    assert missing.text == (
        "picky: primary figure: BM25 was not examined (it has no ranker to probe), so nothing is shown for it; "
        "if the budget is for certain systems only, name each with system ="
    )
    (named,) = check_budgets(result, [Budget("picky", system="longest", at_least=-1.0)])
    assert not named.crossed
    (_, figure) = check_budgets(result, [Budget("picky", "RR@10", "original", at_least=0.5, bound="value")])
    assert figure.crossed


def test_a_named_system_that_could_not_be_examined_crosses_its_budget_and_hides_no_other(result):
    budgets = [Budget("picky", system="BM25", at_most=1), Budget("order", system="BM25", at_least=0)]
    crossed, below = check_budgets(result, budgets)
    assert crossed.crossed and crossed.text == (
        "picky: primary figure of BM25: BM25 was not examined (it has no ranker to probe), so nothing is shown for it"
    )
    assert below.crossed and "its lower end is below the budget of 0" in below.text
    with pytest.raises(InputError, match=r"no system 'DPH'; it has longest"):
        check_budgets(result, [Budget("picky", system="DPH", at_most=1)])


def test_a_bias_that_could_be_examined_on_no_system_crosses_its_budget():
    dataset = toy.collection()
    result = audit(toy.bm25_system(dataset), dataset, biases=[ORDER, PICKY])
    (crossed,) = check_budgets(result, [Budget("picky", at_most=1)])
    assert crossed.crossed and "BM25 was not examined (it has no ranker to probe)" in crossed.text


def test_a_system_without_a_primary_figure_keeps_the_gate_shut(result):
    f = result.findings
    fewer = replace(result, findings=f[~((f["system"] == "BM25") & f["primary"])])
    (kept, missing) = check_budgets(fewer, [Budget("order", at_least=-1.0)])
    assert not kept.crossed and missing.crossed and "order: primary figure: the audit has no such figure for BM25" in missing.text
    (kept, missing) = check_budgets(fewer, [Budget("order", contrast=CONTRAST, at_least=-1.0)])
    assert not kept.crossed and missing.crossed and f"order: ({CONTRAST}): the audit has no such figure for BM25" in missing.text


def test_a_bias_without_a_primary_figure_says_why(result):
    f = result.findings
    bare = replace(result, findings=f[~(f["bias"].eq("order") & f["primary"])].assign(text="no query changed"))
    found = check_budgets(bare, [Budget("order", at_most=1), Budget("order", system="BM25", at_most=1)])
    told = "was not examined (no query changed), so nothing is shown for it"
    systems = bare.settings["systems"]
    assert [verdict.text.endswith(f"{name} {told}") for verdict, name in zip(found, [*systems, "BM25"], strict=True)]
    assert all(verdict.crossed for verdict in found)
    silent = replace(bare, findings=bare.findings.assign(text=""))
    with pytest.raises(InputError, match="the audit has no primary figure for 'order'; name a measure and a contrast"):
        check_budgets(silent, [Budget("order", at_most=1)])


def test_an_infinite_figure_is_not_defined_in_a_live_audit_as_in_a_saved_one():
    def found(context):
        yield bias.finding("BM25", "odds", "of it", float("inf"), values=pd.Series([float("inf"), 1.0], index=["q0", "q1"]))

    dataset, bias = toy.collection(), Made("odd", found)
    live = audit([toy.bm25_system(dataset)], dataset, biases=[bias])
    saved = AuditResult.from_json(live.to_json())
    (one,), (other,) = (check_budgets(r, [Budget("odd", measure="odds", at_least=-5, bound="value")]) for r in (live, saved))
    assert one == other and one.crossed and "it is not defined" in one.text
    pd.testing.assert_frame_equal(live.findings, saved.findings)
    pd.testing.assert_frame_equal(live.per_query, saved.per_query)


def test_a_budget_without_a_limit_is_refused():
    with pytest.raises(InputError, match="Budget: 'gender' has no limit; give at_most or at_least"):
        Budget("gender")
    for wrong in (float("nan"), float("inf"), 10**400, "1", True):
        with pytest.raises(InputError, match=r"Budget: at_least=.* must be a finite number"):
            Budget("gender", at_most=0.5, at_least=wrong)


def test_a_baseline_needs_no_comparison_with_itself():
    dataset = toy.collection()
    result = audit(toy.systems(dataset), dataset, biases=[ORDER], baseline="BM25")
    (only,) = check_budgets(result, [Budget("order", contrast=f"{CONTRAST}, vs BM25", at_least=-1.0)])
    assert not only.crossed


def test_a_system_that_raises_crosses_its_own_budget_only():
    dataset = toy.collection()

    def broken(row):
        raise ValueError("not yet")

    first = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    result = audit({**toy.systems(dataset), "mine": first >> pt.apply.doc_score(broken)}, dataset, biases=[ORDER])
    assert result.failed["system"].tolist() == ["mine"]
    (kept,) = check_budgets(result, [Budget("order", system="longest", at_least=-1.0)])
    (crossed,) = check_budgets(result, [Budget("order", system="mine", at_least=-1.0)])
    assert not kept.crossed and crossed.crossed
    assert crossed.text == "order: primary figure of mine: system 'mine' raised ValueError: not yet, so nothing is shown"
    every = check_budgets(result, [Budget("order", at_least=-1.0)])
    assert [verdict.crossed for verdict in every] == [False, False, True]
    # Where every system raised there is no figure, and no error in the budget.
    alone = audit({"mine": first >> pt.apply.doc_score(broken)}, dataset, biases=[ORDER])
    (crossed,) = check_budgets(alone, [Budget("order", at_least=-1.0)])
    assert crossed.crossed and "not yet" in crossed.text


@pytest.mark.parametrize(
    ("budget", "message"),
    [
        (Budget("astrology", at_most=1), r"no figures for the bias 'astrology'; it has order, picky"),
        (Budget("order", system="DPH", at_most=1), r"no system 'DPH'; it has BM25, longest"),
        (Budget("order", measure="MAP", at_most=1), r"no measure 'MAP'; it has RR@10"),
        (Budget("order", contrast="sideways", at_most=1), f"no contrast 'sideways'; it has original, {CONTRAST}"),
    ],
)
def test_figures_that_the_audit_lacks_are_named_with_what_there_is(result, budget, message):
    with pytest.raises(InputError, match=message):
        check_budgets(result, [budget])


def test_the_command_says_what_is_crossed(saved, tmp_path):
    path = budget_file(tmp_path, "bias = 'order'\nat_least = -0.25\nsystem = 'BM25'", "bias = 'order'\nat_most = 0")
    code, out, err = check(path, "--audit", saved)
    assert (code, out, err) == (1, [f"{FIGURE}: its lower end is below the budget of -0.25"], ["1 of 3 limits crossed"])
    code, out, _ = check(path, "--audit", saved.parent, "--verbose")
    assert code == 1 and len(out) == 3
    kept = budget_file(tmp_path, "bias = 'order'\nat_most = 0.0")
    assert check(kept, "--audit", saved) == (0, [], ["0 of 2 limits crossed"])


def test_the_file_may_name_the_saved_audit(saved, tmp_path):
    path = budget_file(tmp_path, "bias = 'order'\nat_most = 0.0", audit=f"[audit]\nfile = '{saved}'\n")
    assert check(path)[0] == 0


def test_the_file_may_name_what_to_audit(tmp_path, monkeypatch):
    monkeypatch.setattr(inputs, "BIASES", {"order": ("tests.report.toy", "Order")})
    place = tmp_path / "toy"
    dataset = toy.collection()
    (place / "runs").mkdir(parents=True)
    dataset.get_corpus().to_csv(place / "passages.tsv", sep="\t", header=False, index=False)
    dataset.get_topics().to_csv(place / "topics.tsv", sep="\t", header=False, index=False)
    (place / "qrels.txt").write_text("".join(f"{q} 0 {q}-good 1\n" for q in toy.QIDS))
    run = dataset.get_runs()["bm25"]
    lines = [f"{q} Q0 {d} 1 {s} tag\n" for q, d, s in zip(run["qid"], run["docno"], run["score"])]
    (place / "runs" / "bm25.trec").write_text("".join(lines))
    what = f"[audit]\ndataset = '{place}'\nmodel = 'none'\nbiases = 'order'\n"
    path = budget_file(tmp_path, "bias = 'order'\nat_least = -0.4", audit=what)
    code, out, _ = check(path, "--out", tmp_path / "results")
    assert code == 1 and out[0].startswith(f"order: BM25: RR@10 ({CONTRAST}) is -0.5000")
    assert (tmp_path / "results" / "audit.json").is_file()
    assert check(budget_file(tmp_path, "bias = 'order'\nat_least = -0.5", audit=what))[0] == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[budget]", "is not TOML"),
        ("", "holds no budget"),
        ("budget = 3", "holds no budget"),
        ("[budgets]\n", "table 'budgets' is not known"),
        ("[[budget]]\nbias = 'order'\nlimit = 3\n", "key 'limit' is not known; use some of bias, measure"),
        ("[[budget]]\nbias = 'order'\n", "has no limit"),
        ("[[budget]]\nat_most = 1\n", "names no bias"),
        ("[[budget]]\nbias = 'order'\nat_most = '1'\n", "at_most is '1'; it must be a number"),
        ("[[budget]]\nbias = 'order'\nat_most = true\n", "at_most is True; it must be a number"),
        ("[[budget]]\nbias = 'order'\nat_most = nan\n", "must be a number"),
        (f"[[budget]]\nbias = 'order'\nat_most = {10**400}\n", "must be a number"),
        (f"[[budget]]\nbias = 'order'\nat_most = {'9' * 5000}\n", "is not TOML"),
        ("[[budget]]\nbias = 3\nat_most = 1\n", "bias is 3; it must be text"),
        ("[[budget]]\nbias = 'order'\nat_most = 1\nbound = 'mean'\n", "bound='mean' is not known"),
        ("[[budget]]\nbias = 'order'\nat_most = 0\nat_least = 1\n", "no figure can be within both"),
        ("[audit]\ncolour = 'red'\n[[budget]]\nbias = 'order'\nat_most = 1\n", "option 'colour' is not known; use some of"),
        ("[audit]\ndepth = 'deep'\n[[budget]]\nbias = 'order'\nat_most = 1\n", "depth is 'deep'; it must be a whole number"),
        ("[audit]\nmodel = 3\n[[budget]]\nbias = 'order'\nat_most = 1\n", "model is 3; it must be text or a list"),
        ("[audit]\nverbose = 1\n[[budget]]\nbias = 'order'\nat_most = 1\n", "verbose is 1; it must be true or false"),
        ("[audit]\nfile = 'a.json'\ndepth = 3\n[[budget]]\nbias = 'order'\nat_most = 1\n", "the only key"),
        ("[audit]\nfile = 'nowhere.json'\n[[budget]]\nbias = 'order'\nat_most = 1\n", "nowhere.json cannot be read"),
        ("[[budget]]\nbias = 'pooling'\nat_least = -0.9\n", "does not say what to audit; add a table [audit] with dataset"),
        ("[audit]\nbiases = ['pooling']\n[[budget]]\nbias = 'pooling'\nat_most = 1\n", "does not say what to audit"),
        ("[audit]\ndataset = '/nowhere'\n[[budget]]\nbias = 'gender'\nat_most = 1\n", "no such folder"),
    ],
)
def test_bad_files_are_refused_in_one_line(tmp_path, text, message):
    (tmp_path / "budget.toml").write_text(text)
    code, out, err = check(tmp_path / "budget.toml")
    assert (code, out, len(err)) == (2, [], 1), (code, out, err)
    assert err[0].startswith("pyterrier-debias: ") and message in err[0]


@pytest.fixture
def unscored(monkeypatch):
    """No audit may run."""
    from pyterrier_debias.report import perform

    def audit(*arguments, **more):
        raise AssertionError("the audit ran")

    monkeypatch.setattr(perform, "audit", audit)
    monkeypatch.setattr(perform, "_load_models", audit)


@pytest.mark.parametrize(
    ("biases", "budget", "message"),
    [
        ("all", "bias = 'positon'\nat_most = 1", "budget 2: bias 'positon' is not known (did you mean 'position'?)"),
        ("all", "bias = 'astrology'\nat_most = 1", "budget 2: bias 'astrology' is not known; [audit] examines position, surv"),
        ("position", "bias = 'gendr'\nat_most = 1", "'gendr' is not known (did you mean 'gender'?); [audit] examines position"),
        ("position", "bias = 'gender'\nat_most = 1", "[audit] examines position, not 'gender'; add it to biases"),
        ("positon", "bias = 'position'\nat_most = 1", "bias 'positon' is not known (did you mean 'position'?); use 'all' or"),
        ("all", "bias = 'gender'\nsystem = 'BM52'\nat_most = 1", "no system 'BM52' (did you mean 'BM25'?)"),
    ],
)
def test_the_whole_file_is_checked_before_anything_is_scored(tmp_path, unscored, biases, budget, message):
    toy.write_files(tmp_path / "toy")
    what = f"[audit]\ndataset = '{tmp_path / 'toy'}'\nmodel = 'none'\nbiases = '{biases}'\n"
    path = budget_file(tmp_path, "bias = 'position'\nsystem = 'BM25'\nat_least = -1", budget, audit=what)
    code, out, err = check(path)
    assert (code, out, len(err)) == (2, [], 1) and message in err[0], err
    assert "budget 2" in err[0] or biases == "positon"


def test_files_may_begin_with_a_byte_order_mark(saved, tmp_path):
    path = budget_file(tmp_path, "bias = 'order'\nat_most = 0.0", audit=f"\ufeff[audit]\nfile = '{saved}'\n")
    saved.write_text("\ufeff" + saved.read_text())
    assert check(path)[0] == 0


def test_options_of_an_audit_that_is_run_are_refused_for_a_saved_one(saved, tmp_path):
    path = budget_file(tmp_path, "bias = 'order'\nat_most = 0.0")
    for option in (["--out", tmp_path / "results"], ["--overwrite"]):
        code, _, err = check(path, "--audit", saved, *option)
        assert code == 2 and f"{option[0]} is only for an audit that is run now" in " ".join(err)


def test_a_bias_of_ones_own_in_a_saved_audit_needs_not_be_known(saved, tmp_path):
    assert check(budget_file(tmp_path, "bias = 'order'\nat_most = 0.0"), "--audit", saved)[0] == 0


def test_a_missing_file_and_a_figure_that_is_not_there(saved, tmp_path):
    code, _, err = check(tmp_path / "nowhere.toml")
    assert code == 2 and "cannot be read" in err[0]
    code, out, err = check(budget_file(tmp_path, "bias = 'gender'\nat_most = 1"), "--audit", saved)
    assert (code, out) == (2, []) and "it has order, picky" in err[0]


def test_options_are_those_of_the_command_line():
    from dataclasses import fields

    import typer

    from pyterrier_debias.report.request import Request

    command = typer.main.get_command(app).commands["audit"]
    assert {f.name for f in fields(Request)} == {p.name for p in command.params if p.name not in ("help", "full")}


def test_a_file_is_read_as_written(tmp_path):
    path = budget_file(tmp_path, "bias = 'order'\nat_most = 1", audit="[audit]\nbiases = ['order']\ntopics = 7\nout = 'here'\n")
    gate = read_gate(path)
    assert gate.request.biases == ["order"] and gate.request.topics == 7 and str(gate.request.out) == "here"
    path = budget_file(tmp_path, "bias = 'order'\nat_most = 1", audit="[audit]\ndataset = 'planted'\n")
    assert read_gate(path).named and not gate.named
    assert gate.budgets == (Budget("order", at_most=1),) and gate.file is None
