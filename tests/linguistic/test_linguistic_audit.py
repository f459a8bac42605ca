"""The linguistic bias: what it says, over which values, and how often it is wrong."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, PlantedCollection, PlantedRanker, System, audit, open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.core.systems import Context
from pyterrier_debias.data.planted_rankers import wording_complexity
from pyterrier_debias.linguistic.audit import LinguisticBias, _not_english, of_candidates, prepared_topics, ranker_slope
from pyterrier_debias.linguistic.data import analysers
from pyterrier_debias.linguistic.data.analysers import LexiconTagger
from pyterrier_debias.linguistic.formulas.slope import design, partial_slope
from pyterrier_debias.linguistic.measures.wording import WordingSensitivity
from pyterrier_debias.report.baseline import against_baseline
from tests.biases import compare_with_values, drawn, examined, primary_tests
from tests.parsed import Parsed

BIAS = LinguisticBias()

PLANTED = PlantedCollection(4, topics=40, passages=400, linguistic=0.0, pooling=0.0, survivorship=0.0)
TOPICS = PLANTED.get_topics().assign(complexity=lambda topics: topics["query"].map(wording_complexity))
QRELS = PLANTED.get_qrels()
BM25 = pt.Transformer.from_df(PLANTED.get_runs()["bm25"])
SYSTEMS = [
    System("run", BM25),
    System("blind", BM25 >> PLANTED.text_loader(), PlantedRanker("linguistic", strength=0.0)),
    System("biased", BM25 >> PLANTED.text_loader(), PlantedRanker("linguistic", strength=1.0)),
]
REWORDED = ["noun_phrases - original", "question_frame - original", "relative_clause - original", "keywords - original"]


@pytest.fixture(scope="module")
def context():
    return Context(SYSTEMS, PLANTED, TOPICS, QRELS, depth=20, seed=1)


def test_needs_words():
    assert BIAS.name == "linguistic" and BIAS.needs(SYSTEMS[0], PLANTED) is None and BIAS.needs(SYSTEMS[0], object()) is None
    wordless = Collection("w", corpus=PLANTED.corpus, topics={"t": TOPICS[["qid", "query"]]}, qrels={"t": QRELS})
    wordless.get_topics = lambda: TOPICS[["qid"]]
    assert "'query'" in BIAS.needs(SYSTEMS[0], wordless)
    wordless.get_topics = lambda: TOPICS[["qid", "complexity"]]
    assert BIAS.needs(SYSTEMS[0], wordless) is None


HINDI, CHINESE, KEYWORDS = ["निगम क्या है", "PDF फ़ाइल कैसे खोलें"], ["什么是公司", "如何打开PDF文件"], ["Nike Air 90", "café 2 go"]


@pytest.mark.parametrize(("queries", "refused"), [(HINDI, True), (CHINESE, True), (KEYWORDS, False), (["10 + 2", "7"], False)])
def test_queries_of_another_script_are_not_read_as_english(queries, refused):
    dataset = Collection("other", corpus=PLANTED.corpus, topics={"t": TOPICS.head(2).assign(query=queries)}, qrels={"t": QRELS})
    known, unknown = dataset.get_topics(), dataset.get_topics().drop(columns="complexity")
    dataset.get_topics = lambda: unknown
    reason = BIAS.needs(SYSTEMS[0], dataset)
    assert (reason is not None) == refused
    if refused:
        assert "are for English" in reason and "of the letters of the queries are Latin" in reason and "'complexity'" in reason
    dataset.get_topics = lambda: known
    assert BIAS.needs(SYSTEMS[0], dataset) is None
    # Of known complexity, but not to be reworded with English phrases.
    found = examined(BIAS, Context(SYSTEMS[1:2], PLANTED, known, QRELS, depth=20)).table
    assert set(found["contrast"]).isdisjoint(REWORDED) == refused


GERMAN = ["wie lange kocht man ein Ei", "was ist die Hauptstadt von Frankreich", "warum ist der Himmel blau", "Umzug nach Köln"]
FRENCH = ["quelle est la capitale de la France", "pourquoi le ciel est bleu"] * 2
TURKISH = ["Fransa'nın başkenti neresi", "gökyüzü neden mavi", "yumurta kaç dakikada pişer", "kütüphane çalışma saatleri"] * 2
PRODUCTS = ["nike air 90", "levi's men's jacket", "sony wh-1000xm4", "usb c hub", "café 2 go", "metformin hba1c nsaid"] * 2


@pytest.mark.parametrize(
    ("queries", "language"),
    [(GERMAN, "de"), (FRENCH, "fr"), (TURKISH, "tr"), (PRODUCTS, None), (GERMAN[:2], None), (["habeas corpus"] * 3, None)],
)
def test_queries_of_another_language_are_not_read_as_english(queries, language):
    topics = TOPICS.head(len(queries)).assign(query=queries)
    dataset = Collection("other", corpus=PLANTED.corpus, topics={"t": topics}, qrels={"t": QRELS})
    unknown = topics.drop(columns="complexity")
    dataset.get_topics = lambda: unknown
    reason = BIAS.needs(SYSTEMS[0], dataset)
    assert (reason is not None) == (language is not None)
    if language:
        assert reason.startswith(
            f"its indices and rewrites are for English, and the words of the queries are more frequent in the language "
            f"{language!r}; give the topics a column 'complexity'"
        )
    found = examined(BIAS, Context(SYSTEMS[1:2], PLANTED, topics, QRELS, depth=20)).table
    assert set(found["contrast"]).isdisjoint(REWORDED) == (language is not None)


@pytest.mark.parametrize("name", ["msmarco_trec_dl", "nfcorpus", "fiqa_subset", "msmarco_dev600", "cisi", "vaswani"])
def test_english_queries_are_read_as_english(name, shared_data):
    """Also a few of them, and keywords such as NFCorpus's."""
    queries = open_dataset(shared_data / name).get_topics()["query"]
    for n in (len(queries), *range(10, 30)):
        assert _not_english(pd.DataFrame({"query": queries.sample(n, random_state=n)})) is None


def test_one_primary_test_a_system(findings):
    primary = primary_tests(findings)
    assert list(primary.index) == ["run", "blind", "biased"]
    assert (primary["measure"] == "slope of nDCG@10").all()
    # A run has no candidates that could be told from what it made of them.
    assert list(primary["contrast"]) == ["complexity", *["complexity, given the candidates"] * 2]
    assert primary.loc["biased", "value"] < -0.05 and primary.loc["biased", "p"] <= 0.01
    assert primary.loc["blind", "p"] > 0.05
    row = primary.loc["biased"]
    assert f"falls by {-row['value']:.3f}" in row["text"] and f"[{row['low']:+.3f}, {row['high']:+.3f}]" in row["text"]
    row = findings[(findings["system"] == "biased") & (findings["contrast"] == "complexity")].iloc[0]
    assert "given the number of relevant documents (logarithm) and the type of the query" in row["text"]


def controlled(system, context):
    """A system's values, the topics in the same order, and their controls."""
    values = per_query(context.results(system), QRELS, ["nDCG@10"], sorted(TOPICS["qid"]))["nDCG@10"]
    topics = TOPICS.set_index("qid").loc[values.index].reset_index()
    counts = QRELS[QRELS["label"] > 0].groupby("qid").size()
    return values, topics, design(topics.assign(relevant=np.log(topics["qid"].map(counts))), ["relevant", "type"])


def test_the_slope_is_the_partial_slope(findings, context):
    values, topics, controls = controlled(SYSTEMS[2], context)
    expected = partial_slope(values, topics["complexity"], controls, resamples=9_999, seed=1)
    row = findings[(findings["system"] == "biased") & (findings["contrast"] == "complexity")].iloc[0]
    found = expected.per_sd
    assert (row["value"], row["low"], row["high"]) == pytest.approx((found.estimate, found.low, found.high))
    assert row["p"] == expected.p and row["n"] == 40


def test_the_primary_figure_takes_out_what_the_candidates_had(findings, context):
    values, topics, controls = controlled(SYSTEMS[2], context)
    candidates = context.candidates(SYSTEMS[2])
    labels = candidates.merge(QRELS, on=["qid", "docno"], how="left")["label"].fillna(0)
    orders = (candidates, candidates.assign(score=labels))
    before = [per_query(order, QRELS, ["nDCG@10"], list(values.index))["nDCG@10"] for order in orders]
    assert (before[0] <= before[1]).all() and before[1].min() < 1
    model = np.column_stack([topics["complexity"], *before, controls, np.ones(40)])
    slope = np.linalg.lstsq(model, values.to_numpy(), rcond=None)[0][0]
    row = findings[findings["primary"] & (findings["system"] == "biased")].iloc[0]
    assert row["value"] == pytest.approx(slope * topics["complexity"].std(ddof=0)) and row["n"] == 40
    # What one query has over another before the ranker hides less.
    total = findings[(findings["system"] == "biased") & (findings["contrast"] == "complexity")].iloc[0]
    assert row["high"] - row["low"] < total["high"] - total["low"]


def test_relevant_documents_that_a_first_stage_misses_are_not_held_against_the_ranker():
    """The first stage finds fewer relevant documents for complex queries; the ranker has never read a query."""
    rejected = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        topics = pd.DataFrame({"qid": [f"{number:02}" for number in range(60)], "complexity": rng.normal(size=60)})
        rows = pd.MultiIndex.from_product([topics["qid"], map(str, range(50))], names=["qid", "docno"]).to_frame(index=False)
        there = np.repeat(rng.binomial(10, 1 / (1 + np.exp(topics["complexity"]))), 50)
        relevant = rows["docno"].astype(int).to_numpy() < there
        candidates, results = (rows.assign(score=2 * relevant + sd * rng.normal(size=len(rows))) for sd in (2, 1))
        qrels = pd.MultiIndex.from_product([topics["qid"], map(str, range(10))], names=["qid", "docno"]).to_frame(index=False)
        qrels.loc[qrels["docno"].astype(int) >= there[::5], "docno"] += " is not found"
        before = of_candidates(candidates, qrels.assign(label=1), list(topics["qid"]))
        values = per_query(results, qrels.assign(label=1), ["nDCG@10"], list(topics["qid"]))["nDCG@10"].to_numpy()
        rejected.append([
            ranker_slope(values, given, topics, [], resamples=199, seed=seed).p <= 0.05 for given in (before, before[:, :1])
        ])  # fmt: skip
    assert np.mean(rejected, axis=0)[0] <= 0.1 and np.mean(rejected, axis=0)[1] >= 0.8


def test_a_ranker_that_changes_no_order_adds_nothing(context):
    values, topics, _ = controlled(SYSTEMS[0], context)
    given = of_candidates(context.results(SYSTEMS[0]), QRELS, list(topics["qid"]))
    slope = ranker_slope(values.to_numpy(), given, topics, ["type"], resamples=99)
    assert (slope.slope, slope.low, slope.high, slope.p) == (0, 0, 0, 1)


def test_what_is_said_of_each_system(findings):
    own = findings[findings["system"] == "biased"].set_index(["measure", "contrast"])
    figures = [
        ("nDCG@10", "all queries"), ("sigma of nDCG@10", "all queries"), ("c_v of nDCG@10", "all queries"),
        ("slope of nDCG@10", "complexity"), ("share of nDCG@10", "complexity"),
        ("slope of nDCG@10", "complexity, given the candidates"), ("slope of nDCG@10", "beyond length"),
        ("rho of nDCG@10", "complexity"), ("nDCG@10", "easy"), ("nDCG@10", "medium"), ("nDCG@10", "hard"),
        ("gap of nDCG@10", "best - worst"), *(("nDCG@10", group) for group in REWORDED),
    ]  # fmt: skip
    assert list(own.index) == figures
    assert own.loc[figures[2], "value"] == pytest.approx(own.loc[figures[1], "value"] / own.loc[figures[0], "value"])
    assert own.loc[figures[8], "value"] > own.loc[figures[10], "value"]
    assert own.loc[("gap of nDCG@10", "best - worst"), "value"] > own.loc[("gap of nDCG@10", "best - worst"), "null_value"]
    assert "whatever its cause" in own.loc[figures[1], "convention"] and "whatever its cause" in own.loc[figures[1], "text"]
    assert own.loc[("nDCG@10", "keywords - original"), "value"] > 0.05
    # A run cannot be asked again.
    assert not set(findings.loc[findings["system"] == "run", "contrast"]) & set(REWORDED)


def test_what_is_said_where_nothing_changes():
    """Queries that a rewrite leaves as they are are not "asked" in another way; a system may also ignore a rewrite."""
    topics = TOPICS.head(3).assign(query=["tea coffee", "river stone", "train bridge"])
    mute = System("mute", BM25 >> PLANTED.text_loader(), pt.apply.doc_score(lambda row: float(len(row["text"]))))
    table = examined(BIAS, Context([mute], PLANTED, topics, QRELS, depth=20)).table.set_index("contrast")
    assert table.loc["keywords - original", "text"] == (
        "mute: asked as keywords, all 3 queries keep their wording, so nothing is tested."
    )
    for rewrite in ("question_frame", "noun_phrases"):
        text = table.loc[f"{rewrite} - original", "text"]
        assert f"does not change in any query when the same needs are asked as {rewrite.replace('_', ' ')}" in text
        assert "so nothing is tested; 3 of 3 queries are reworded." in text
    assert table["text"].str.contains("such as PISA's retrievers, ignore how often").sum() == 1


def test_queries_without_a_complexity_are_counted(context):
    unknown = TOPICS.assign(complexity=TOPICS["complexity"].mask(TOPICS["qid"].isin(TOPICS["qid"].head(3))))
    table = examined(BIAS, replace(context, systems=SYSTEMS[:1], topics=unknown)).table
    text = table.query("contrast == 'all queries' and measure == 'nDCG@10'")["text"].item()
    assert "over 37 queries;" in text and "3 queries without a complexity are left out." in text


def test_what_is_said_where_every_query_has_nothing(context):
    """As in the table: no coefficient of variation, and no p of slopes. An order that a ranker keeps is no test of it either."""
    nothing = replace(context, systems=SYSTEMS[:1], qrels=QRELS.assign(label=0))
    kept = replace(context, systems=[System("kept", BM25 >> PLANTED.text_loader(), pt.apply.doc_score(lambda row: -row["rank"]))])
    for asked, contrasts in ((nothing, ["complexity", "beyond length"]), (kept, ["complexity, given the candidates"])):
        table = examined(BIAS, asked).table
        own = table[table["contrast"].isin(contrasts) & (table["measure"] == "slope of nDCG@10")]
        assert len(own) == len(contrasts) and own["p"].isna().all()
        assert own["text"].str.contains("(not tested, since no query contributes to it)", regex=False).all()
        assert not own["text"].str.contains("p = ").any() and not table["text"].str.contains("nan").any()
    spread = examined(BIAS, nothing).table.query("contrast == 'all queries'")
    told = "run: nDCG@10 is 0 for all 40 queries, so it has no coefficient of variation."
    why = "The queries are not asked in other words: its results are a run, which cannot answer reworded queries"
    assert set(spread["text"]) == {f"{told} {why}; give the pipeline that made it."}


def test_rewrites_are_those_of_the_probe(findings, context):
    probe = WordingSensitivity(SYSTEMS[2].ranker, measures=["nDCG@10"], resamples=9_999, seed=1)
    found = probe.evaluate(context.candidates(SYSTEMS[2]), QRELS, topics=TOPICS)
    own = findings[(findings["system"] == "biased") & findings["contrast"].isin(REWORDED)]
    for ours, theirs in (("value", "difference"), ("low", "low"), ("high", "high"), ("p", "p")):
        if ours in ("low", "high"):
            assert own[ours].to_numpy() == pytest.approx(found.table[theirs].to_numpy(), abs=0.01)
        else:
            assert own[ours].to_numpy() == pytest.approx(found.table[theirs].to_numpy())


def test_values_stand_behind_findings(result, findings):
    assert compare_with_values(findings, result.per_query) == 3 * 6 + 2 * (1 + 4)


def test_every_finding_says_what_it_is(findings):
    assert (findings["bias"] == "linguistic").all()
    assert findings["text"].str.fullmatch(r"(run|blind|biased): .*\.", flags=16).all()
    assert (findings.loc[findings["contrast"] != "all queries", "convention"] != "").all()


def test_figures_show_every_system(result):
    assert [figure.name for figure in result.figures] == ["curve", "thirds", "rewrites"]
    for figure, axes, shown in drawn(result.figures):
        assert "40 queries" in axes.get_xlabel() and "40" in figure.caption
        assert {"blind", "biased"} <= shown


@pytest.mark.usefixtures("pictures_small")
def test_the_whole_audit():
    systems = {system.name: system for system in SYSTEMS}
    found = audit(systems, PLANTED, topics=TOPICS, biases=[BIAS], baseline="blind", depth=20, seed=1)
    assert not len(found.failed) and not len(found.skipped)
    against = found.findings[found.findings["contrast"].str.endswith(", vs blind")].set_index("system")
    assert dict(against["contrast"]) == {
        "run": "complexity, vs blind", "biased": "complexity, given the candidates, vs blind",
    }  # fmt: skip
    assert against.loc["biased", "value"] < -0.05 and against.loc["biased", "p"] < 0.01 < against.loc["run", "p"]
    assert type(found).from_json(found.to_json()).findings.equals(found.findings)
    assert "standard deviation" in found.to_html()


def test_a_first_stage_as_baseline_is_compared_by_its_own_figure(result):
    against = against_baseline(result.findings, "run")
    assert [(f.system, f.contrast) for f in against] == [("blind", "complexity, vs run"), ("biased", "complexity, vs run")]
    assert against[1].value < -0.05 and against[1].p < 0.01 < against[0].p


def test_complexity_is_computed_where_topics_have_none(context):
    topics, controls, how = prepared_topics(TOPICS.drop(columns="complexity"), QRELS)
    assert topics["complexity"].notna().all() and "LinguisticComplexity" in how and controls == ["relevant", "type"]
    alone = examined(BIAS, replace(context, systems=SYSTEMS[:1], topics=TOPICS.drop(columns="complexity")))
    assert [f.n for f in alone.findings if f.primary] == [40] and len(alone.figures) == 2


def test_figures_name_the_tagger_and_the_tools_of_complexity(context):
    def nouns(texts):
        return [[(word, "NN") for word in text.split()] for text in texts]

    found = {}
    for tagger in (LexiconTagger(), nouns):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(analysers, "default_tagger", lambda tagger=tagger: tagger)
            unmeasured = replace(context, systems=SYSTEMS[1:2], topics=TOPICS.drop(columns="complexity"))
            found[analysers.tool_name(tagger)] = examined(BIAS, unmeasured).findings
    assert list(found) == ["textblob", "nouns"]
    for name, findings in found.items():
        told = {f.contrast: f.convention for f in findings}
        assert f"('lu') (tagger {name}, " in told["complexity, given the candidates"]
        assert "list wordfreq, no parser), normalised" in told["complexity, given the candidates"]
        assert f"; tagger {name}; depth 20" in told["keywords - original"]


def test_codes_of_types_are_levels_as_names_are():
    """They are no amounts, and a query without one is a query all the same."""
    codes = np.unique(TOPICS["type"], return_inverse=True)[1]
    for types in (TOPICS["type"], TOPICS["type"].where(TOPICS.index > 3)):
        named, controls, _ = prepared_topics(TOPICS.assign(type=types), QRELS)
        coded, same, _ = prepared_topics(TOPICS.assign(type=pd.Series(codes).where(types.notna().to_numpy())), QRELS)
        np.testing.assert_array_equal(design(coded, same), design(named, controls))


def test_topics_of_one_complexity(context):
    same = examined(BIAS, replace(context, systems=SYSTEMS[:1], topics=TOPICS.assign(complexity=1.0)))
    assert not any(f.primary for f in same.findings)
    assert any("nothing can be said about complexity. All queries have the same complexity" in f.text for f in same.findings)


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_few_topics(n):
    few = examined(BIAS, Context(SYSTEMS[1:], PLANTED, TOPICS.head(n), QRELS, depth=20, seed=1))
    assert {finding.n for finding in few.findings if finding.contrast == "all queries"} == {n}
    for finding in few.findings:
        assert "given nothing" not in finding.text + finding.convention and "not vary" not in finding.text
    if n < 5:
        assert any(f"{n} queries are too few" in f.text or "the same complexity" in f.text for f in few.findings)
    assert all(axes.get_xlabel() for _, axes, _ in drawn(few.figures))


def test_a_slope_that_few_queries_decide_is_told(context):
    """Of the pipeline and of the ranker given its candidates; where many do, nothing is said."""
    skewed = TOPICS.assign(complexity=[20.0, 19.0, *(1 + 0.01 * i for i in range(len(TOPICS) - 2))])
    even = TOPICS.assign(complexity=np.arange(len(TOPICS), dtype=float))
    for topics, told in ((skewed, 3), (even, 0)):
        table = examined(BIAS, replace(context, systems=SYSTEMS[::2], topics=topics)).table
        named = table["contrast"].isin(["complexity", "complexity, given the candidates"])
        texts = table.loc[named & (table["measure"] == "slope of nDCG@10"), "text"]
        assert len(texts) == 3 and texts.str.contains("of 40 queries decide the slope", regex=False).sum() == told, texts.tolist()


def test_topics_without_words(context):
    bare = examined(BIAS, Context(SYSTEMS[:1], PLANTED, TOPICS[["qid", "complexity"]], QRELS, depth=20, seed=1))
    groups = {finding.contrast for finding in bare.findings}
    assert "complexity" in groups and "beyond length" not in groups


def test_what_the_ranker_may_have_read_before(context):
    derived = BM25 >> PLANTED.text_loader() >> pt.apply.generic(lambda frame: frame.assign(query_vec=0.0))
    found = examined(BIAS, replace(context, systems=[System("vectors", derived, PlantedRanker(strength=0.0))]))
    assert any(f.primary for f in found.findings) and not {f.contrast for f in found.findings} & set(REWORDED)


def test_what_the_retriever_may_read_instead_of_the_query(context):
    """Without the tokens it would be another system, which need not be sensitive to wording."""

    def search(topics):
        return BM25(topics) if "query_toks" in topics.columns else BM25(topics).assign(score=0.0)

    encoded = TOPICS.assign(query_toks=[{word: 1.0 for word in query.split()} for query in TOPICS["query"]])
    system = System("impacts", pt.apply.generic(search))
    found = examined(BIAS, replace(context, systems=[system], topics=encoded)).findings
    assert any(f.primary for f in found) and not {f.contrast for f in found} & set(REWORDED)
    told, *_ = [f.text for f in found if "not asked in other words" in f.text]
    assert "its retriever may read 'query_toks', which was made from the original query" in told and "into the pipeline" in told
    kept = TOPICS.assign(query_0=TOPICS["query"], query_type="x")
    assert {f.contrast for f in examined(BIAS, replace(context, systems=[system], topics=kept)).findings} >= set(REWORDED)


def test_no_systems():
    nothing = examined(BIAS, Context([], PLANTED, TOPICS, QRELS))
    assert (list(nothing.findings), len(nothing.per_query), list(nothing.figures)) == ([], 0, [])


def test_trec_deep_learning(shared_data):
    """A real collection: the figures add up, and a run is not asked again."""
    dataset = open_dataset(shared_data / "msmarco_trec_dl", split="dl19")
    found = audit({"bm25": dataset.get_runs()["bm25"]}, dataset, biases=[BIAS])
    own = found.findings.set_index(["measure", "contrast"])
    assert own.loc[("nDCG@10", "all queries"), "value"] == pytest.approx(0.5058, abs=5e-5)
    assert own.loc[("c_v of nDCG@10", "all queries"), "value"] == pytest.approx(0.53, abs=0.1)  # .25 / .48 in the paper
    assert not len(found.failed) and own["primary"].sum() == 1


def p_values(strength, seeds, topics, share):
    """p of the primary test over planted worlds; `benchmarks/linguistic_calibration.py` does more."""
    found = []
    for seed in seeds:
        planted = PlantedCollection(seed, topics=topics, passages=share * topics, linguistic=0.0, pooling=0.0, survivorship=0.0)
        asked = planted.get_topics().assign(complexity=lambda topics: topics["query"].map(wording_complexity))
        qrels = planted.get_qrels().query("label > 0")
        run = planted.get_runs()["bm25"].query("rank < 2 * @share").merge(asked[["qid", "query"]], on="qid")
        results = PlantedRanker("linguistic", strength=strength, seed=seed)(planted.text_loader()(run))
        known, controls, _ = prepared_topics(asked, qrels)
        values = per_query(results, qrels, ["nDCG@10"], list(known["qid"]))["nDCG@10"]
        found.append(partial_slope(values, known["complexity"], design(known, controls), resamples=199, seed=seed).p)
    return np.array(found)


def test_false_alarms_are_as_rare_as_they_claim():
    p = p_values(0.0, range(20), 24, 10)
    interval = binomial_interval(int((p <= 0.05).sum()), len(p))
    assert interval.low <= 0.05 <= interval.high
    assert 0.3 < p.mean() < 0.7


def test_a_planted_bias_is_found():
    assert (p_values(1.0, range(3), 60, 20) <= 0.05).all()


def test_over_terrier_the_original_as_it_comes_is_told_and_not_tested():
    """A stand-in for Terrier's retriever, which takes a colon for the name of a field."""
    words = [Parsed.tokeniser.getTokens(query) for query in TOPICS["query"]]
    topics = TOPICS.assign(query=[f"{' '.join(own)}{':' * (n < 2)}" for n, own in enumerate(words)])
    documents = {f"d{n}": " ".join(own) for n, own in enumerate(words)}
    documents = dict(list(documents.items())[:-1])
    qrels = topics[["qid"]].assign(docno=[f"d{n}" for n in range(len(topics))], label=1)
    context = Context([System("BM25", Parsed(texts=documents))], PLANTED, topics, qrels)
    found = examined(BIAS, context).table.set_index("contrast")
    row = found.loc["original, as it comes"]
    first, second = topics["qid"][:2]
    assert np.isnan(row["p"]) and not row["primary"] and row["n"] == len(topics)
    assert "As they come: it raised (ValueError: Index must have 1 or more fields) for 2 of 40 queries" in row["text"]
    assert f"{first}, {second}." in row["text"]
    both = context.results(context.systems[0])
    values = per_query(both, qrels, ["nDCG@10"], topics["qid"].tolist())["nDCG@10"]
    assert row["value"] == pytest.approx(values.mean())
    assert found.loc["keywords - original", "convention"].endswith("queries in words for Terrier")
    assert len(context.notes) == 1
