"""Source, length and order bias: known answers, rankers with and without the bias, and what an audit says of them."""

import ast
import inspect
import itertools
from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from matplotlib.colors import to_hex
from scipy import stats

from pyterrier_debias import InputError, PlantedCollection, PlantedRanker, System, audit
from pyterrier_debias.core.counterfactuals import ranks_among_others
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.plots import colour
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.core.systems import Context
from pyterrier_debias.data.base import Collection
from pyterrier_debias.data.planted_rankers import machine_written
from pyterrier_debias.further.length import LengthBias, document_shares, equal_weights, length_percentiles
from pyterrier_debias.further.order import OrderBias, given_order, kendall, slope
from pyterrier_debias.further.shared import by_document, document_parts, mean_test
from pyterrier_debias.further.source import SourceBias, displacements, relative_delta
from pyterrier_debias.gender.audit import WordListBias
from pyterrier_debias.report.checkpoint import made_from
from pyterrier_debias.report.compare import compare
from pyterrier_debias.report.gate import Budget, Gate, check_budgets, check_names
from pyterrier_debias.report.inputs import BIASES, find_biases
from pyterrier_debias.report.request import Request
from pyterrier_debias.report.verdict import verdicts
from tests.biases import compare_with_values, drawn, examined, primary_tests

NAMES = ("source", "length", "order")
KINDS = {"biased": 1.0, "twin": 0.0}


def rewritten(collection):
    return collection.corpus[["docno"]].assign(text=collection.corpus["text"].map(machine_written))


def first_stage(collection):
    return pt.Transformer.from_df(collection.get_runs()["bm25"]) >> collection.text_loader()


def bias_of(name, collection):
    return SourceBias(rewritten(collection)) if name == "source" else find_biases(name)[0]


@pytest.fixture(scope="module")
def world():
    return PlantedCollection(5, topics=30, passages=240)


@pytest.fixture(scope="module")
def results(world):
    """An audit of each bias on a ranker with it and on its twin."""
    found = {}
    for name in NAMES:
        systems = {kind: first_stage(world) >> PlantedRanker(name, strength=s) for kind, s in KINDS.items()}
        found[name] = audit(systems, world, biases=[bias_of(name, world)], depth=20, draws=2)
    return found


def context(world, *systems, **more):
    given = {"topics": world.get_topics(), "qrels": world.get_qrels(), "depth": 20, "draws": 2, **more}
    return Context(list(systems), world, **given)


# ------------------------------------------------------------------------------------------------ design


@pytest.mark.parametrize("kind", [SourceBias, LengthBias, OrderBias])
def test_a_bias_is_a_class_of_at_most_80_lines_of_code(kind):
    source = inspect.getsource(kind)
    tree = ast.parse(source)
    told = {
        line
        for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node)
        for line in range(node.body[0].lineno, node.body[0].end_lineno + 1)
    }  # fmt: skip
    code = [
        line for number, line in enumerate(source.splitlines(), start=1)
        if number not in told and line.strip() and not line.strip().startswith("#")
    ]  # fmt: skip
    assert 20 < len(code) <= 80


def test_two_biases_of_one_audit_have_two_names():
    """None is dropped without a word; only in ``'all'``, an object of the same class stands for the default one."""
    five, ten, own, words = LengthBias(cutoff=5), LengthBias(), find_biases("gender")[0], {"young": ["boy"], "old": ["man"]}
    ages = WordListBias(words, "gender")
    default, given = "the library's own bias '{}'", "an object of the class {}"
    for biases, one, other in [
        (["gender", ages], default.format("gender"), given.format("WordListBias")),
        ([ages, "gender"], given.format("WordListBias"), default.format("gender")),
        (["all", ages], default.format("gender") + " (in 'all')", given.format("WordListBias")),
        ([ages, "all"], given.format("WordListBias"), default.format("gender") + " (in 'all')"),
        ([own, ages], given.format("GenderBias"), given.format("WordListBias")),
        (["all", own, ages], given.format("GenderBias"), given.format("WordListBias")),
        (["length", five], default.format("length"), given.format("LengthBias")),
        ([five, "length"], given.format("LengthBias"), default.format("length")),
        ([five, "gender", ten], given.format("LengthBias"), given.format("LengthBias")),
    ]:
        with pytest.raises(InputError) as raised:
            find_biases(biases)
        name = "length" if "length" in one + other or "LengthBias" in one + other else "gender"
        told = f"audit: two biases are named '{name}': {one} and {other}; give the second another name, or leave one out"
        assert str(raised.value) == told
    assert [bias.name for bias in find_biases(["gender", WordListBias(words, "age")])] == ["gender", "age"]
    assert find_biases(["gender", "all", "gender"])[0].name == "gender"


def test_they_are_named_and_are_not_among_all():
    assert [bias.name for bias in find_biases(list(NAMES))] == list(NAMES)
    assert [bias.name for bias in find_biases("all")] == list(BIASES) and not set(NAMES) & set(BIASES)
    assert [bias.name for bias in find_biases(["all", "order", "gender"])] == [*BIASES, "order"]
    assert [bias.name for bias in find_biases(["order", "pooling", "all"])] == ["order", "pooling", *list(BIASES)[:-1]]
    own = find_biases("gender")[0]
    assert all(any(one is own for one in find_biases(biases)) for biases in (["all", own], [own, "all"]))
    five = LengthBias(cutoff=5)
    assert find_biases([five, five]) == [five] and [bias.name for bias in find_biases(["length", "length"])] == ["length"]
    with pytest.raises(InputError, match="did you mean 'length'"):
        find_biases("lenght")
    check_names(Gate((Budget("order", at_most=1),), Request(biases=["order"])), "budget.toml")
    with pytest.raises(InputError, match="examines position, not 'order'; add it to biases"):
        check_names(Gate((Budget("order", at_most=1),), Request(biases=["position"])), "budget.toml")


def test_a_checkpoint_tells_pairs_apart(world):
    pairs = rewritten(world)
    keys = [str(made_from(SourceBias(own), [])) for own in (pairs, pairs.copy(), pairs.assign(text=pairs["text"] + "."))]
    assert keys[0] == keys[1] != keys[2]


# ------------------------------------------------------------------------------------------------ formulas


def test_displacements_are_ranks_among_the_others():
    """Against the ranks of position bias: once among the originals of the other documents, once among their rewritten texts."""
    rng = np.random.default_rng(0)
    human, machine = rng.permutation(14)[:7].astype(float), rng.permutation(14)[7:] + 0.5
    docnos = [f"d{i}" for i in range(7)]
    expected = np.zeros(7)
    for others in (human, machine):
        listed = pd.DataFrame({"qid": "q", "docno": docnos, "score": others})
        after, before = (ranks_among_others(listed.assign(score=own), listed) for own in (machine, human))
        expected += (after - before) / 2
    np.testing.assert_allclose(displacements(human, machine), expected)
    np.testing.assert_allclose(displacements(machine, human), -expected)
    assert displacements(human, human).tolist() == [0.0] * 7
    # A text that nothing returned is behind all that was: two texts and a tie of two halves.
    assert displacements([2.0, 1.0, -np.inf], [-np.inf, 1.0, -np.inf]).tolist() == [1.5, 0.0, 0.0]


def test_relative_delta_is_the_published_one():
    assert relative_delta([0.5, 0.3], [0.5, 0.3]) == 0 and relative_delta([0.2], [0.0]) == 200
    table = np.random.default_rng(1).random((2, 4, 3))
    human, machine = table.mean(axis=-1)
    np.testing.assert_allclose(relative_delta(*table), (human - machine) / ((human + machine) / 2) * 100)
    assert np.isnan(relative_delta([0.0], [0.0]))


@pytest.mark.parametrize("every", [1, 12])
def test_a_prior_by_docno_is_not_taken_for_a_preference(world, every):
    """The same text has no prior under the name of a rewritten one."""
    prior = {docno: 5.0 + number % 7 for number, docno in enumerate(world.corpus["docno"]) if number % every == 0}
    ranker = pt.apply.doc_score(lambda row: len(row["text"]) / 1e4 + prior.get(row["docno"], 0.0))
    with pytest.raises(InputError, match="looks up documents by docno, or queries by qid"):
        examined(SourceBias(world.corpus[["docno", "text"]]), context(world, System("prior", first_stage(world), ranker)))


def test_a_relative_delta_without_an_interval_says_why(world):
    """A measure that is 0 for most queries is 0 for all of some resamples."""
    pairs, relevant = rewritten(world), world.get_qrels().query("label > 0")
    qrels = relevant[relevant["qid"].isin(sorted(set(relevant["qid"]))[:7])]
    own = set(world.text_loader()(qrels[["docno"]].drop_duplicates())["text"])
    last = pt.apply.doc_score(lambda row: float(row["text"] not in own) - len(row["text"]) / 1e6)
    rows = examined(SourceBias(pairs), context(world, System("last", first_stage(world), last), qrels=qrels)).table
    rows = rows[rows["measure"].str.startswith("relative delta")]
    assert rows["low"].isna().equals(rows["convention"].str.endswith("the measure is 0 for all texts"))


def test_a_list_that_is_given_again_is_scored_again(tmp_path, monkeypatch):
    """Scores that a checkpoint kept would hide the noise of a ranker, which would look like a dependence on order."""
    monkeypatch.setattr("pyterrier_debias.core.kept_scores._SECONDS", -1.0)
    world, draw = PlantedCollection(3, topics=12, passages=120), np.random.default_rng(0)
    noisy = pt.apply.generic(lambda inp: pt.model.add_ranks(inp.assign(score=draw.normal(size=len(inp)))))
    found = audit({"noisy": noisy}, world, biases=["order"], depth=20, draws=1, checkpoint=tmp_path / "kept").findings
    tau = found[found["measure"] == "Kendall's tau"].iloc[0]
    assert tau["null_value"] < 0.3 and abs(tau["value"]) < 0.3


def test_slopes_of_places():
    given = np.array([given_order(arm, 5, 3, "q") for arm in ("own", "reversed", "shuffled 0", "shuffled 1")], dtype=float)
    assert (slope(given, given), slope(given, 4 - given)) == (1, -1)
    assert slope(given, given[[0, 0, 0, 0]]) == 0 and np.isnan(slope(given[[0, 0]], given[:2]))
    result = np.random.default_rng(2).permuted(given, axis=1)
    centred = [(table - table.mean(axis=0)).ravel() for table in (given, result)]
    assert slope(given, result) == pytest.approx(stats.linregress(*centred).slope)
    assert kendall(given[0], result[2]) == pytest.approx(stats.kendalltau(given[0], result[2]).statistic)
    # By hand: two documents change places in one of two lists.
    assert slope(np.array([[0, 1], [1, 0]]), np.array([[0, 1], [0, 1]])) == 0
    half = slope(np.array([[0, 1, 2], [2, 1, 0]]), np.array([[0, 1, 2], [1, 0, 2]]))
    assert half == pytest.approx(0.25)  # of 4 squared places of the first and the last, one is followed: (-1)(-.5) + (1)(.5) ...


def test_length_percentiles_have_no_preference_over_all_orders():
    """Of all orders of five documents, two of them relevant, the first two have a mean of exactly the middle."""
    relevant, words = pd.Series([True, True, False, False, False]), pd.Series([90, 70, 10, 30, 30])
    above = length_percentiles(pd.Series(["q"] * 5), relevant, words) - 0.5
    np.testing.assert_allclose(above, [0.25, -0.25, -1 / 3, 1 / 6, 1 / 6])
    means = [above[list(order[:2])].mean() for order in itertools.permutations(range(5))]
    assert np.mean(means) == pytest.approx(0, abs=1e-15)


def test_false_alarms_of_rankers_without_a_bias():
    """Scores, lengths and orders that have nothing to do with each other; the benchmark does it with whole collections."""
    rng, found = np.random.default_rng(3), {name: [] for name in NAMES}
    qids, relevant = pd.Series(np.repeat(np.arange(9), 20)), pd.Series(np.tile(np.arange(20) < 4, 9))
    for seed in range(100):
        above = length_percentiles(qids, relevant, pd.Series(rng.lognormal(size=180))).reshape(9, 20) - 0.5
        orders = rng.permuted(np.broadcast_to(np.arange(8.0), (9, 2, 4, 8)), axis=-1)
        values = {
            "source": [displacements(*rng.normal(size=(2, 12)))[:2].mean() for _ in range(9)],
            "length": rng.permuted(above, axis=1)[:, :10].mean(axis=1),
            "order": [slope(*both) for both in orders],
        }
        for name in NAMES:
            found[name].append(mean_test(pd.Series(values[name]), seed)[1])
    for name, p in found.items():
        interval = binomial_interval(int((np.array(p) <= 0.05).sum()), len(p))
        assert interval.low <= 0.05 <= interval.high and 0.4 < np.mean(p) < 0.6, name


def test_a_test_over_documents_is_that_of_scipy_where_each_has_one_query():
    """Equal weights; shares are parts of the mean, so that n times a share is the document's value."""
    shares = np.random.default_rng(0).normal(0.3, 1.0, 24)
    rows = pd.DataFrame({"docno": [f"d{i}" for i in range(24)], "share": shares / 2, "weight": 0.5})
    low, high, p = by_document(rows, 12)
    expected = stats.ttest_1samp(shares, 0.0)
    assert p == pytest.approx(expected.pvalue)
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    one = by_document(rows.assign(docno="d"), 12)
    assert np.isnan(one[0]) and np.isnan(one[1]) and one[2] == 1.0
    assert by_document(rows.assign(share=0.1), 12)[2] == 0.0  # the same in all of them


def test_queries_that_share_documents_are_no_independent_evidence():
    """Lengths are permuted among 30 documents, of which 60 queries list 20 each: no ranking of them can prefer a length."""
    rng, each, both, means = np.random.default_rng(4), [], [], []
    documents = np.concatenate([rng.choice(30, 20, replace=False) for _ in range(60)])
    listed = pd.DataFrame({"qid": np.repeat([f"q{i:02}" for i in range(60)], 20), "docno": documents})
    # A ranker that prefers some documents in every query, as most do.
    listed["rank"] = listed.groupby("qid")["docno"].rank().astype(int) - 1
    listed["label"] = np.where(rng.random(len(listed)) < 0.2, 1.0, np.nan)
    for seed in range(150):
        words = pd.Series(rng.permutation(30)[documents])
        listed["above"] = length_percentiles(listed["qid"], listed["label"].notna(), words) - 0.5
        inside = (listed["rank"] < 10).to_numpy()
        first, shares = listed[inside], document_shares(listed, equal_weights(listed["qid"], inside))
        values = first.groupby("qid")["above"].mean()
        pd.testing.assert_series_equal(shares.groupby("qid")["share"].sum(), values, check_names=False)
        interval, p, _ = mean_test(values, seed, documents=shares, least=-0.5, most=0.5)
        assert (interval.low <= 0 <= interval.high) == (p > 0.05)
        means.append(values.mean())
        each.append(mean_test(values, seed)[1])
        both.append(p)
    alone, together = (binomial_interval(int((np.array(p) <= 0.05).sum()), 150) for p in (each, both))
    assert alone.low > 0.3 and together.low <= 0.05 <= together.high
    low, high, _ = by_document(shares, 60)
    assert high - low == pytest.approx(2 * 2.2 * np.std(means), rel=0.35)  # t of a dozen effective documents


# ------------------------------------------------------------------------------------------------ planted


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_bias_is_found_and_its_twin_has_none(name, results):
    assert not len(results[name].failed) and not len(results[name].skipped)
    primary = primary_tests(results[name].findings)
    assert primary.loc["biased", "p"] < 0.01 and not primary.loc["twin", "p"] < 0.01
    assert primary.loc["biased", "value"] * (-1 if name == "source" else 1) > 3 * abs(primary.loc["twin", "value"])
    biased, twin = verdicts(results[name])[0].answers
    assert biased.outcome == "yes" and twin.outcome in ("no", "cannot tell")
    said = {"source": "ranks ahead of the original", "length": "percentile points longer", "order": "places earlier"}[name]
    assert said in biased.sentence and verdicts(results[name])[0].nothing_helps == "No treatment has been shown to help yet."


@pytest.mark.parametrize("name", NAMES)
def test_it_has_all_that_the_five_have(name, results):
    result = results[name]
    assert compare_with_values(result.findings, result.per_query) >= 4
    parts = result.worst(10_000, kind="documents", bias=name)
    assert len(parts) == 0 if name == "order" else set(parts["system"]) == {"biased", "twin"}
    assert len(result.worst(3, bias=name)) == 6 or name == "order"
    assert f"{name}-bias" in result.card("biased") and name.upper() in result.to_text()
    crossed = [verdict.crossed for verdict in check_budgets(result, [Budget(name, at_most=100.0)])]
    assert crossed[0] is False
    ((figure, axes, shown),) = drawn([figure for _, figure in result.figures])
    assert figure.name == name and {"biased", "twin"} <= shown and "queries" in axes.get_xlabel()


def test_what_could_not_have_come_out_otherwise_is_no_test(world, results):
    """Order of a pointwise ranker; two texts with the same score."""
    rows = results["order"].findings.query("system == 'twin'").set_index(["measure", "contrast"])
    assert rows.loc[("places", "result by given list"), ["value", "low", "high"]].tolist() == [0, 0, 0]
    assert rows["p"].isna().all() and "no query changed" in rows["text"].iloc[0]
    assert rows.loc[("Kendall's tau", "own order, shuffled"), "value"] == 1
    silent = System("silent", first_stage(world), PlantedRanker("position", strength=0.0, noise=0.0))
    row = primary_tests(examined(bias_of("source", world), context(world, silent)).table).loc["silent"]
    assert row["value"] == 0 and np.isnan(row["p"]) and "no query changed" in row["text"]


def test_length_needs_more_candidates_than_documents_that_count(world):
    """Every order of ten documents has a mean percentile of one half, so that nothing can be found in them."""
    short = System("short", first_stage(world), PlantedRanker("length"))
    with pytest.raises(InputError, match="no judged query has more than 10 candidates"):
        examined(LengthBias(), context(world, short, depth=10))
    run = world.get_runs()["bm25"]
    cut = run[(run["rank"] < 10) | ~run["qid"].isin(run["qid"].unique()[:9])]
    some = System("some", pt.Transformer.from_df(cut) >> world.text_loader(), PlantedRanker())
    found = examined(LengthBias(), context(world, some))
    long = cut.groupby("qid").filter(lambda own: len(own) > 10)["qid"]
    values = found.per_query.query("measure == 'length percentile'")
    assert set(values["qid"]) == set(long) & set(world.get_qrels().query("label > 0")["qid"]) and len(values) > 10
    result = audit({"short": first_stage(world) % 10, "long": first_stage(world)}, world, biases=["length"], depth=20)
    assert result.verdict().set_index("system")["outcome"]["short"] == "not examined"


@pytest.mark.parametrize(("depth", "most"), [(11, 0.5 * (1 - 10 / 11)), (20, 0.25)])
def test_lists_hardly_longer_than_what_counts_do_not_show_that_length_has_no_effect(depth, most):
    """Of eleven candidates, no order has 5 percentile points, not even that by length."""
    qids = [f"q{number}" for number in range(30)]
    run = pd.DataFrame(list(itertools.product(qids, range(1, depth + 1))), columns=["qid", "words"])
    run["docno"] = run["qid"] + "-" + run["words"].astype(str)
    short = Collection(
        "short", corpus=run[["docno"]].assign(text=run["words"].map(lambda words: "word " * words)),
        topics={"t": pd.DataFrame({"qid": qids, "query": "word"})},
        qrels={"t": pd.DataFrame({"qid": qids, "docno": "none of them", "label": 1})},
    )  # fmt: skip
    run = run.assign(score=run["words"].astype(float))
    chance = np.random.default_rng(0).normal(size=len(run))
    result = audit({"long": run, "any": run.assign(score=chance)}, short, biases=[LengthBias()], depth=depth)
    attainable = result.per_query.query("measure == 'attainable length percentile' and system == 'any'")["value"]
    np.testing.assert_allclose(attainable, [most] * 30)
    longest, chance = verdicts(result)[0].answers
    assert longest.effect == pytest.approx(most) and longest.outcome == "yes"
    few = "no order of its candidates has more than 4.5 percentile points of length, because they are few or equally long"
    assert "less than the margin" not in longest.sentence and (few in chance.sentence) == (depth == 11)
    assert chance.outcome == ("cannot tell" if depth == 11 else "no")
    kept = check_budgets(result, [Budget("length", at_most=0.05)])
    assert [verdict.crossed for verdict in kept] == [True, depth == 11]


def test_length_of_texts_that_are_equally_long_is_not_examined(world):
    corpus = world.get_corpus().assign(text="one two three four")
    alike = Collection("alike", corpus=corpus, topics={"t": world.get_topics()}, qrels={"t": world.get_qrels()})
    run = System("run", pt.Transformer.from_df(world.get_runs()["bm25"]))
    with pytest.raises(InputError, match="equally relevant candidates of a query are equally long, so no order of them prefers"):
        examined(LengthBias(), context(alike, run))


def test_length_of_a_ranker_that_cuts_its_list(world):
    """What it left out is part of what it chose from."""
    whole, cut = (PlantedRanker("length", noise=0.0), PlantedRanker("length", noise=0.0) % 10)
    systems = [System("whole", first_stage(world), whole), System("cut", first_stage(world), cut)]
    rows = examined(LengthBias(), context(world, *systems)).table.set_index(["contrast", "system"])
    for contrast in ("first documents - random order", "first documents - all of the list", "ranker - candidates"):
        np.testing.assert_allclose(*(rows.loc[(contrast, name), "value"] for name in ("whole", "cut")))


def test_length_is_that_of_the_text_that_a_system_reads(world):
    """Not of the document, which another stage may have shortened, for one system or for one query."""

    def shortened(frame):
        ends = [2 + (len(query) * 7 + len(text)) % 9 for query, text in zip(frame["query"], frame["text"])]
        return frame.assign(text=[" ".join(text.split()[:end]) for text, end in zip(frame["text"], ends)])

    ranker = PlantedRanker("length", noise=0.0)
    short = System("short", first_stage(world) >> pt.apply.generic(shortened), ranker)
    systems = [System("full", first_stage(world), ranker), short]
    alone = [primary_tests(examined(LengthBias(), context(world, one)).table).iloc[0]["value"] for one in systems]
    assert alone[0] != alone[1]
    for order in (systems, systems[::-1]):
        found = primary_tests(examined(LengthBias(), context(world, *order)).table)
        assert [found.loc[name, "value"] for name in ("full", "short")] == alone


def test_length_is_not_that_of_a_topics_own_text(world):
    """A run carries along what the topics have beside the query."""
    run, topics = System("run", pt.Transformer.from_df(world.get_runs()["bm25"])), world.get_topics()
    plain, own = (
        primary_tests(examined(LengthBias(), context(world, run, topics=asked)).table).iloc[0]["value"]
        for asked in (topics, topics.assign(text=topics["query"]))
    )
    assert plain == own != 0


def test_a_sentence_has_one_unit_and_one_direction(world, results):
    """The interval and the smallest effect are told as the figure is."""
    for row in pd.concat([primary_tests(results[name].findings) for name in NAMES]).to_dict("records"):
        ends = f"[{row['low']:+.3f}, {row['high']:+.3f}]"
        assert row["low"] == row["high"] or f"{row['value']:+.3f} {ends}" in row["text"], row["text"]
    assert "over 1 query (" in mean_test(pd.Series([0.3]), 0)[2] and "over 1 query:" in mean_test(pd.Series([0.0]), 0)[2]


def test_a_system_keeps_its_colour_in_every_chart(world):
    """Also where others are left out; and of systems that answer different queries the numbers are told."""
    run = world.get_runs()["bm25"]
    some = pt.Transformer.from_df(run[run["qid"].isin(run["qid"].unique()[:9])])
    listwise = first_stage(world) >> pt.apply.by_query(lambda frame: frame.assign(score=-frame["rank"]), add_ranks=True)
    result = audit({"some": some, "mine": listwise}, world, biases=["order", "length"], depth=20)
    found = {figure.name: axes for figure, axes, _ in drawn([figure for _, figure in result.figures])}
    colours = {name: [to_hex(one[0].get_color()).upper() for one in axes.containers] for name, axes in found.items()}
    assert colours == {"order": [colour(1)], "length": [colour(0), colour(1)]}
    least, most = sorted(primary_tests(result.findings.query("bias == 'length'"))["n"])
    assert least < most and f"[n = {least} to {most} queries]" in found["length"].get_xlabel()


def test_a_documents_query_is_the_one_where_it_counts_most():
    rows = pd.DataFrame({"qid": ["1", "2", "3", "1"], "docno": ["a", "a", "a", "b"], "share": [0.1, -0.4, 0.4, 0.2]})
    found = document_parts(rows, 3, "note").set_index("item")
    assert found["qid"].to_dict() == {"a": "2", "b": "1"} and found["queries"].tolist() == [3, 1]


def test_a_text_that_is_missing_is_told(world):
    lost = pt.apply.generic(lambda frame: frame.assign(text=frame["text"].where(frame["rank"] > 0, None)))
    blind = System("blind", first_stage(world) >> lost, pt.apply.doc_score(lambda row: -row["rank"]))
    with pytest.raises(InputError, match="LengthBias: column 'text' has no value at"):
        examined(LengthBias(), context(world, blind))
    pairs = rewritten(world)
    for texts, told in ((7.0, "is a float, not text"), ([None, *pairs["text"][1:]], "has no value")):
        with pytest.raises(InputError, match=f"SourceBias, pairs: column 'text' {told}"):
            SourceBias(pairs.assign(text=texts))


def test_values_are_what_pandas_counts(world, results):
    """Each of the planted figures, computed anew from scores."""
    ranker, texts = PlantedRanker("source"), rewritten(world).set_index("docno")["text"]
    relevant = world.get_qrels().query("label > 0")[["qid", "docno"]]
    run = world.get_runs()["bm25"].query("rank < 20")[["qid", "docno"]]
    listed = pd.concat([run[run["qid"].isin(relevant["qid"])], relevant]).drop_duplicates().merge(world.get_topics(), on="qid")
    corpus = world.corpus.set_index("docno")["text"]
    for column, of in (("human", corpus), ("machine", texts)):
        listed[column] = ranker.scores(listed["query"].tolist(), listed["docno"].map(of).tolist())
    values = {}
    for qid, own in listed.groupby("qid"):
        moved = pd.Series(displacements(own["human"], own["machine"]), index=own["docno"])
        values[qid] = moved[relevant.loc[relevant["qid"] == qid, "docno"]].mean()
    found = results["source"].per_query.query("system == 'biased' and measure == 'displacement'").set_index("qid")["value"]
    pd.testing.assert_series_equal(found.sort_index(), pd.Series(values).sort_index(), check_names=False)


def test_of_a_retriever_both_texts_are_indexed(world):
    """By a retriever that scores as the planted ranker does; it is given each document twice."""
    seen = []

    def index(documents):
        texts = pd.DataFrame([(d["docno"], d["text"]) for d in documents], columns=["docno", "text"])
        seen.append(len(texts))
        ranker = PlantedRanker("source", noise=0.0)
        return pt.apply.generic(lambda topics: ranked(ranker(topics.merge(texts, how="cross").assign(score=0.0))))

    plain = pt.Transformer.from_df(world.get_runs()["bm25"])
    bias = bias_of("source", world)
    assert "indexer" in bias.needs(System("run", plain), world) and OrderBias().needs(System("run", plain), world)
    row = primary_tests(examined(bias, context(world, System("words", plain, None, index))).table).loc["words"]
    assert seen == [2 * len(world.corpus)] and row["value"] < 0 and row["p"] < 0.01


def test_pairs_may_be_documents_of_the_collection(world, results):
    """The same rewritten texts as documents of their own give the same figures; pairs that are none are refused."""
    from pyterrier_debias import Collection

    other = rewritten(world).assign(docno="w" + world.corpus["docno"])
    both = Collection(
        "both", corpus=pd.concat([world.corpus[["docno", "text"]], other]), topics={"test": world.get_topics()},
        qrels={"test": world.get_qrels()},
    )  # fmt: skip
    pairs = pd.DataFrame({"docno": world.corpus["docno"], "counterpart": other["docno"]})
    run = world.get_runs()["bm25"].assign(score=lambda run: -2.0 * run["rank"])
    run = pd.concat([run, run.assign(docno="w" + run["docno"], score=run["score"] - 1)], ignore_index=True)
    system = System("biased", pt.Transformer.from_df(run) >> both.text_loader(), PlantedRanker("source"))
    row = primary_tests(examined(SourceBias(pairs), context(both, system, depth=40)).table).loc["biased"]
    assert row["value"] == pytest.approx(primary_tests(results["source"].findings).loc["biased", "value"])
    turned = pairs.rename(columns={"docno": "counterpart", "counterpart": "docno"})
    twice = pairs.assign(counterpart=pairs["counterpart"].iloc[0])
    for wrong, told in (
        (pairs[["docno"]], "docno and text"), (pd.concat([pairs, pairs]), "two rewritten texts"),
        (pd.concat([pairs, turned]), "list each pair once"), (twice, "list each pair once"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=told):
            SourceBias(wrong)
    assert "give SourceBias(pairs)" in SourceBias().needs(None, world)


def displaced(world, system, pairs=None):
    pairs = rewritten(world) if pairs is None else pairs
    found = primary_tests(examined(SourceBias(pairs), context(world, System("s", first_stage(world), system))).table)
    return found.loc["s", "value"]


def test_documents_without_a_rewritten_text_stay_in_the_list(world):
    """Only the relevant documents are rewritten: others stand between the two texts as before."""
    ranker, pairs = PlantedRanker("source", noise=0.0), rewritten(world)
    relevant = set(world.get_qrels().query("label > 0")["docno"])
    whole = displaced(world, ranker)
    assert displaced(world, ranker, pairs[pairs["docno"].isin(relevant)]) == pytest.approx(whole, rel=0.25)
    assert displacements([3.0, 2.5, 1.0], [np.nan, 4.0, 0.0]).tolist()[1:] == [-1.0, 0.0]
    assert displacements([4.0, 3.0, 2.0, 3.0], [1.0, np.nan, np.nan, np.nan])[0] == 3.0


@pytest.mark.parametrize("empty", [False, True])
def test_relevant_documents_that_the_collection_lacks_are_left_out(world, empty):
    """Rewritten texts of a whole corpus, used with a part of it; a loader may raise an error, or leave such texts empty."""

    class Part(Collection):
        def text_loader(self, fields="text", **more):
            loader = super().text_loader(fields, **more)
            return pt.apply.generic(lambda frame: frame.merge(self.get_corpus(), on="docno", how="left")) if empty else loader

    own = {"topics": {"t": world.get_topics()}, "corpus": world.get_corpus()[["docno", "text"]]}
    beyond = world.get_qrels().query("label > 0").groupby("qid").head(1).head(3).assign(docno=["b1", "b2", "b3"])
    part = Part("part", qrels={"t": pd.concat([world.get_qrels(), beyond], ignore_index=True)}, **own)
    pairs = pd.concat([rewritten(world), beyond[["docno"]].assign(text="moreover")], ignore_index=True)
    system = System("s", first_stage(world), PlantedRanker("source", noise=0.0))
    table = examined(SourceBias(pairs), context(part, system)).table
    before = examined(SourceBias(rewritten(world)), context(world, system)).table
    np.testing.assert_array_equal(table["value"], before["value"])
    told = "; 3 pairs left out, because the original is not in the collection"
    assert told in table["convention"].iloc[0] and told not in before["convention"].iloc[0]
    with pytest.raises(InputError, match="no relevant document has a rewritten text, and its original in the collection"):
        examined(SourceBias(pairs.tail(3)), context(part, system))


def test_places_are_those_in_the_whole_list_of_a_ranker_that_cuts_it(world):
    ranker = PlantedRanker("source", noise=0.0)
    assert displaced(world, ranker % 5) == displaced(world, ranker)
    machine = set(rewritten(world)["text"])
    leaving = ranker >> pt.apply.generic(lambda found: found[~found["text"].isin(machine)])
    with pytest.raises(InputError, match=r"left out \d+ of \d+ texts that it was given \(first qid='test\d+', docno='d\d+'\)"):
        displaced(world, leaving)


def test_a_preference_within_a_pair_is_not_said_to_be_none(world):
    """Sorted in blocks of five: a border falls on as many pairs with the original first as with the rewritten text first."""
    pairs = rewritten(world)
    machine = set(pairs["text"])
    numbers = {text: number for frame in (world.corpus, pairs) for number, text in enumerate(frame["text"])}

    def blocks(frame, most):
        frame = frame.sort_values("rank")
        worth = -frame["text"].map(numbers).to_numpy() - most * frame["text"].isin(machine).to_numpy()
        order = np.lexsort((worth, np.arange(len(frame)) // 5))
        return frame.iloc[order].assign(score=-np.arange(len(frame), dtype=float))

    systems = {
        name: first_stage(world) >> pt.apply.by_query(lambda frame, most=most: blocks(frame, most), add_ranks=True)
        for name, most in (("a little", 0.5), ("none", 0.0))
    }
    result = audit(systems, world, biases=[SourceBias(pairs)], depth=20)
    assert (result.per_query.query("measure == 'displacement'")["value"] != 0).any()
    little, none = verdicts(result)[0].answers
    assert (little.outcome, none.outcome) == ("cannot tell", "no")
    assert little.sentence.startswith("Cannot tell: any effect is below ")
    assert "but the rewritten text is ahead in 9" in little.sentence
    assert [kept.crossed for kept in check_budgets(result, [Budget("source", at_least=-0.5)])] == [True, False]


def test_a_ranker_may_read_other_columns_of_its_candidates(world):
    """A title is that of the original for both texts; the collection tells those of documents that the first stage missed."""
    corpus = world.get_corpus().assign(title=lambda corpus: corpus["docno"] + " its title")
    titled = Collection("titled", corpus=corpus, topics={"t": world.get_topics()}, qrels={"t": world.get_qrels()})
    ranker, seen = PlantedRanker("source", noise=0.0), []

    def read(frame):
        seen.append(frame)
        return ranker(frame)

    run = pt.Transformer.from_df(world.get_runs()["bm25"].query("rank < 6")) >> titled.text_loader(["title", "text"])
    system = System("s", run, pt.apply.generic(read))
    found = primary_tests(examined(SourceBias(rewritten(world)), context(titled, system)).table).loc["s", "value"]
    few = System("s", pt.Transformer.from_df(world.get_runs()["bm25"].query("rank < 6")) >> world.text_loader(), ranker)
    assert found == primary_tests(examined(SourceBias(rewritten(world)), context(world, few)).table).loc["s", "value"]
    given = pd.concat(seen)
    assert given["title"].str.endswith("its title").all() and (given["docno"] + " its title" == given["title"]).mean() > 0.3


def test_documents_that_a_ranker_adds_are_refused(world):
    """Length and order compare the result with the candidates."""

    def more(frame):
        new = frame.groupby("qid").head(1).assign(docno="new")
        return ranked(pd.concat([PlantedRanker("length")(frame), new.assign(score=9.0)]).drop(columns="rank"))

    adding = pt.apply.generic(more)
    for bias in (LengthBias(), OrderBias()):
        with pytest.raises(InputError, match=r"a document that is not among its candidates .*docno='new'"):
            examined(bias, context(world, System("adding", first_stage(world), adding)))


def test_a_comparison_of_audits_with_other_rewritten_texts_says_so(world, results):
    other = rewritten(world).assign(text=lambda pairs: pairs["text"] + " indeed")
    after = audit({"biased": first_stage(world) >> PlantedRanker("source")}, world, biases=[SourceBias(other)], depth=20)
    (note,) = [note for note in compare(results["source"], after).notes if "convention" in note]
    assert note.count("rewritten texts ") == 2


def test_a_reranker_of_windows_depends_on_the_order(world):
    """It sorts the last four, then four that overlap, up to the top: two at a time can rise to it."""
    ranker = PlantedRanker("length", strength=1.0)

    def windows(frame):
        frame = ranker(frame).rename(columns={"score": "worth"}).drop(columns="rank").merge(
            frame[["docno", "rank"]], on="docno"
        ).sort_values("rank")  # fmt: skip
        rows = frame.to_dict("records")
        for start in range(len(rows) - 4, -1, -2):
            rows[start : start + 4] = sorted(rows[start : start + 4], key=lambda row: -row["worth"])
        return pd.DataFrame(rows).assign(score=-np.arange(len(rows), dtype=float))

    listwise = System("windows", first_stage(world), pt.apply.by_query(windows, add_ranks=True))
    few = {"topics": world.get_topics().head(9), "draws": 1}
    row = primary_tests(examined(OrderBias(), replace(context(world, listwise), **few)).table).loc["windows"]
    assert 0 < row["value"] < 1 and row["p"] < 0.01 and "own order, reversed and 1 shuffle, seed 0;" in row["convention"]
    cut = System("windows", first_stage(world), pt.apply.by_query(windows, add_ranks=True) % 10 % 5)
    tables = [examined(OrderBias(), replace(context(world, system), **few)).table for system in (listwise, cut)]
    pd.testing.assert_frame_equal(*tables)
    silent = set(world.get_topics()["qid"].head(2))
    for leaving, told in (
        (lambda found: found[found["rank"] < 5], r"left out \d+ of \d+ texts that it was given \(first qid="),
        (lambda found: found[~found["qid"].isin(silent)], r"texts that it was given, among them all of 2 queries \(first qid="),
    ):
        system = System("leaving", first_stage(world), PlantedRanker("order") >> pt.apply.generic(leaving))
        with pytest.raises(InputError, match=told + r".*; it must return every text of every list; only a cut-off at its end"):
            examined(OrderBias(), replace(context(world, system), **few))


def test_a_reranker_that_prefers_both_ends_of_a_list_is_not_said_to_ignore_its_order(world):
    """Its results have no slope on the places of the lists."""
    ranker = PlantedRanker("length", strength=1.0)

    def ends(frame):
        frame = ranker(frame).rename(columns={"score": "worth"}).drop(columns="rank").merge(frame[["docno", "rank"]], on="docno")
        return frame.assign(score=frame["worth"] / 9 + (frame["rank"] - frame["rank"].mean()).abs())

    both = first_stage(world) >> pt.apply.by_query(ends, add_ranks=True)
    result = audit({"both": both, "none": first_stage(world) >> ranker}, world, biases=["order"], depth=20)
    row = primary_tests(result.findings).loc["both"]
    assert abs(row["low"]) < 0.05 and abs(row["high"]) < 0.05 and row["p"] > 0.05
    both, none = verdicts(result)[0].answers
    assert (both.outcome, none.outcome) == ("cannot tell", "no")
    assert "only effects with a direction count: for results of shuffled lists" in both.sentence
    assert [kept.crossed for kept in check_budgets(result, [Budget("order", at_most=0.1)])] == [True, False]


def test_what_cannot_be_examined_says_why(world):
    single = System("single", first_stage(world), PlantedRanker())
    with pytest.raises(InputError, match="two documents to compare"):
        examined(OrderBias(), context(world, single, depth=1))
    other = SourceBias(pd.DataFrame({"docno": ["none of them"], "text": ["a text"]}))
    with pytest.raises(InputError, match="no relevant document has a rewritten text"):
        examined(other, context(world, single))


def test_options_are_refused():
    for wrong in ("1", float("nan"), 0, 1.5):
        with pytest.raises(InputError, match=r"cutoff=.*must be"):
            LengthBias(cutoff=wrong)
        with pytest.raises(InputError, match=r"shuffles=.*must be"):
            OrderBias(shuffles=wrong)
