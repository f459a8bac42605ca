"""The same needs in other words: a ranker that fails on complex wording, one that does not, and what cannot be asked again."""

import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import nDCG
from scipy import stats

from pyterrier_debias import (
    InputError,
    LinguisticComplexity,
    PlantedCollection,
    PlantedRanker,
    QueryGender,
    RepeatNounPhrases,
    RewriteQueries,
    SwapGender,
    System,
)
from pyterrier_debias.core.statistics import inverted_interval, randomisation_test
from pyterrier_debias.data.planted_rankers import wording_complexity
from pyterrier_debias.linguistic.data.rewrites import REWRITES, rewritten
from pyterrier_debias.linguistic.formulas.slope import within_slope
from pyterrier_debias.linguistic.measures.wording import AS_IT_COMES, COLUMNS, ORIGINAL, WordingSensitivity
from tests.parsed import Parsed

PLANTED = PlantedCollection(2, topics=30, passages=300, pooling=0.0, survivorship=0.0, linguistic=1.0)
TOPICS, QRELS = PLANTED.get_topics(), PLANTED.get_qrels()
RUN = PLANTED.get_runs()["bm25"].merge(TOPICS[["qid", "query"]], on="qid")
CANDIDATES = PLANTED.text_loader()(RUN[RUN["rank"] < 20])
COMPLEXITY = pt.apply.generic(lambda topics: topics.assign(complexity=topics["query"].map(wording_complexity)))
OPTIONS = {"complexity": COMPLEXITY, "resamples": 499, "measures": ["nDCG@10"]}


def probe(strength, **options):
    ranker = PlantedRanker("linguistic", strength=strength, seed=2)
    return WordingSensitivity(ranker, **{**OPTIONS, **options}).evaluate(CANDIDATES, QRELS, topics=TOPICS)


@pytest.fixture(scope="module")
def found():
    return probe(1.0)


def test_the_tagger_is_named_where_a_rewrite_uses_it():
    def nouns(texts):
        return [[(word, "NN") for word in text.split()] for text in texts]

    ranker = PlantedRanker("linguistic")
    assert WordingSensitivity(ranker, tagger=nouns).convention.endswith("keywords; tagger nouns; depth 100")
    assert WordingSensitivity(ranker, tagger="textblob").convention.endswith("; tagger textblob; depth 100")
    assert WordingSensitivity(ranker, rewrites=["keywords"], tagger=nouns).convention == "rewrites keywords; depth 100"


def test_rankings_are_those_of_rewritten_queries(found):
    texts = TOPICS["query"].tolist()
    new = dict(zip(TOPICS["qid"], rewritten(texts, "keywords")))
    ranker = PlantedRanker("linguistic", strength=1.0, seed=2)
    expected = ranker(CANDIDATES.assign(query=CANDIDATES["qid"].map(new)))
    own = found.rankings[found.rankings["arm"] == "keywords"]
    merged = own.merge(expected, on=["qid", "docno"], suffixes=("", "_expected"))
    assert len(merged) == len(CANDIDATES) and (merged["score"] == merged["score_expected"]).all()
    assert list(found.rankings.columns) == COLUMNS
    means = pt.Evaluate(expected, QRELS, [nDCG @ 10])["nDCG@10"]
    row = found.table.set_index("comparison").loc["keywords - original"]
    assert row["after"] == pytest.approx(means) and row["difference"] == pytest.approx(row["after"] - row["before"])


def test_queries_without_a_noun_phrase_are_part_of_the_result():
    def tagger(queries):
        return [[(word, "NN" if word == "tea" else "VB") for word in query.split()] for query in queries]

    topics = pd.DataFrame({"qid": list("1234"), "query": ["tea", "run and go", "drink tea", "run and go"]})
    candidates = topics.assign(docno="d1", text="tea")
    qrels = pd.DataFrame({"qid": list("1234"), "docno": "d1", "label": 1})
    rewrites = ["noun_phrases", "relative_clause", "keywords", str.upper]
    stage = WordingSensitivity(PlantedRanker(), rewrites=rewrites, tagger=tagger, complexity=COMPLEXITY, resamples=9)
    found = stage.evaluate(candidates, qrels)
    assert found.without_phrases == {"noun_phrases": (1, 3), "relative_clause": (1, 3)}  # two of the queries are the same


def test_differences_are_paired(found):
    own = found.per_query.set_index("qid")
    for arm in ("noun_phrases", "question_frame", "relative_clause", "keywords"):
        row = found.table.set_index("comparison").loc[f"{arm} - original"]
        change = own[arm] - own["original"]
        assert row["difference"] == pytest.approx(change.mean()) and row["low"] <= row["difference"] <= row["high"]
        signs = np.random.default_rng(0).choice([-1, 1], (9_999, 30))
        assert row["p"] == pytest.approx((np.abs(signs @ change) >= abs(change.sum()) - 1e-9).mean(), abs=0.06)
        assert row["p"] == randomisation_test(own["original"].to_numpy(), own[arm].to_numpy(), resamples=499).p
        interval = inverted_interval(change.to_numpy(), resamples=499, least=-1, most=1)
        assert (row["low"], row["high"]) == (interval.low, interval.high)
        texts = found.wordings.pivot(index="qid", columns="arm", values="query")
        assert row["changed"] == (texts[arm] != texts["original"]).sum() and row["n"] == 30
        words = texts.map(lambda query: len(re.findall(r"\w+", query)))
        assert row["words"] == pytest.approx((words[arm] - words["original"]).mean())
        x = found.wordings.pivot(index="qid", columns="arm", values="complexity")
        assert row["complexity"] == pytest.approx((x[arm] - x["original"]).mean() / x["original"].std(ddof=0))
    changes = found.table.set_index("comparison")
    assert changes.loc["keywords - original", "complexity"] < 0 and changes.loc["keywords - original", "words"] < 0
    assert changes.loc["relative_clause - original", "words"] == 5


def test_the_slope_is_that_within_needs(found):
    arms = ["original", "noun_phrases", "question_frame", "relative_clause", "keywords"]
    y = found.per_query.set_index("qid").sort_index()[arms].to_numpy()
    x = found.wordings.pivot(index="qid", columns="arm", values="complexity").sort_index()[arms].to_numpy()
    expected = within_slope(y, x, resamples=499)
    slope = found.slopes["nDCG@10"]
    assert (slope.slope, slope.p, slope.n) == (pytest.approx(expected.slope), expected.p, 30)
    assert "nDCG@10 per sd" in repr(found)


def test_a_ranker_that_fails_on_complex_wording_is_found_out(found):
    assert found.slopes["nDCG@10"].p <= 0.01 and found.slopes["nDCG@10"].per_sd.high < 0
    row = found.table.set_index("comparison").loc["keywords - original"]
    assert row["difference"] > 0.05 and row["p"] <= 0.05


def test_difficult_needs_in_complex_words_are_not_mistaken_for_it():
    """Here difficult needs are asked in complex words: quality goes with complexity, and wording is not the cause."""
    blind = probe(0.0)
    y = blind.per_query.set_index("qid")["original"]
    x = TOPICS.set_index("qid")["query"].map(wording_complexity)
    assert stats.spearmanr(x, y[x.index]).pvalue < 0.001
    assert blind.slopes["nDCG@10"].p > 0.05 and (blind.table["p"] > 0.05).all()


def test_topics_are_enough_for_what_retrieves():
    texts = CANDIDATES.drop(columns="query")
    retriever = pt.apply.generic(lambda topics: PlantedRanker(strength=0.0)(texts.merge(topics[["qid", "query"]])))
    retriever.transform_outputs = lambda columns: ["qid", "query", "docno", "score", "rank"]
    system = System("retriever", retriever)
    asked = WordingSensitivity(system, rewrites=["keywords", str.upper], **OPTIONS).evaluate(TOPICS, QRELS)
    assert asked.table["comparison"].tolist() == ["keywords - original", "upper - original"]
    ranker = WordingSensitivity(PlantedRanker(strength=0.0), rewrites=["keywords"], **OPTIONS).evaluate(CANDIDATES, QRELS)
    pd.testing.assert_frame_equal(asked.table.iloc[:1], ranker.table)
    with_ranker = System("both", pt.Transformer.from_df(RUN) >> PLANTED.text_loader(), PlantedRanker(strength=0.0))
    deep = WordingSensitivity(with_ranker, rewrites=["keywords"], depth=20, **OPTIONS).evaluate(TOPICS, QRELS)
    pd.testing.assert_frame_equal(deep.table, ranker.table)


def test_rows_may_come_in_any_order(found):
    ranker = PlantedRanker("linguistic", strength=1.0, seed=2)
    again = WordingSensitivity(ranker, **OPTIONS).evaluate(CANDIDATES.sample(frac=1, random_state=0), QRELS, topics=TOPICS)
    pd.testing.assert_frame_equal(again.table, found.table)
    assert again.slopes["nDCG@10"].p == found.slopes["nDCG@10"].p


def test_rows_without_scores_are_cut_by_their_ranks():
    """As added judgements have them; however the rows come, the same candidates are asked about."""
    unscored = CANDIDATES.assign(score=np.nan).sort_values(["qid", "rank"], ascending=False)
    stage = WordingSensitivity(PlantedRanker(strength=0.0), rewrites=["keywords"], depth=5)
    found = stage(unscored)
    own = found[found["arm"] == "original"][["qid", "docno"]]
    expected = CANDIDATES[CANDIDATES["rank"] < 5][["qid", "docno"]]
    assert set(own.itertuples(index=False, name=None)) == set(expected.itertuples(index=False, name=None))


def test_a_query_without_candidates_counts_nothing():
    some = CANDIDATES[CANDIDATES["qid"] != TOPICS["qid"][0]]
    ranker = PlantedRanker(strength=0.0)
    found = WordingSensitivity(ranker, rewrites=["keywords"], **OPTIONS).evaluate(some, QRELS, topics=TOPICS)
    row = found.per_query.set_index("qid").loc[TOPICS["qid"][0]]
    assert (row["original"], row["keywords"]) == (0, 0) and (found.table["n"] == 30).all()


def test_linguistic_complexity_is_the_default():
    found = probe(0.0, complexity=None, rewrites=["keywords"])
    assert found.wordings["complexity"].notna().all()


def test_measures_keep_their_order_and_have_their_own_numbers():
    measures = ["RR@10", "nDCG@10", "NumRet"]
    found = probe(1.0, measures=measures, rewrites=["keywords"], level=0.8, seed=5)
    assert found.table["measure"].tolist() == list(found.slopes) == measures
    assert found.per_query["measure"].drop_duplicates().tolist() == measures
    for measure, row in zip(measures, found.table.itertuples()):
        own = found.per_query[found.per_query["measure"] == measure]
        interval = inverted_interval((own["keywords"] - own["original"]).to_numpy(), level=0.8, resamples=499, seed=5)
        ends = (interval.low, interval.high)
        if measure != "NumRet":  # which no range bounds
            ends = tuple(np.clip(ends, -1, 1))
        assert (row.before, row.after) == pytest.approx((own["original"].mean(), own["keywords"].mean()))
        assert (row.low, row.high) == pytest.approx(ends)


def test_what_was_made_from_the_query_before_is_dropped():
    seen = []

    def ranker(frame):
        if len(frame):  # not for inspection only
            seen.append(set(frame.columns))
        return frame.assign(score=1.0)

    stage = pt.apply.generic(ranker)
    WordingSensitivity(stage, rewrites=["keywords"], **OPTIONS)(CANDIDATES.assign(query_vec=1.0, query_0="kept"))
    assert all("query_vec" not in columns and "query_0" in columns for columns in seen) and len(seen) == 2


def test_empty_in_empty_out():
    out = WordingSensitivity(PlantedRanker())(CANDIDATES.iloc[:0])
    assert len(out) == 0 and list(out.columns) == COLUMNS


def test_bad_input():
    run = System("run", pt.Transformer.from_df(RUN))
    with pytest.raises(InputError, match="cannot answer reworded queries"):
        WordingSensitivity(run).evaluate(TOPICS, QRELS)
    for options, message in (
        ({"rewrites": []}, "rewrites="),
        ({"rewrites": "keywords"}, "must be a list"),
        ({"rewrites": ["paraphrase"]}, "'paraphrase'"),
        ({"rewrites": ["keywords", "keywords"]}, "have the same name"),
        ({"depth": 0}, "depth"),
        ({"measures": ["nDGC@10"]}, "nDGC"),
    ):
        with pytest.raises(InputError, match=message):
            WordingSensitivity(PlantedRanker(), **options)(CANDIDATES)
    with pytest.raises(InputError, match="no judgements"):
        WordingSensitivity(PlantedRanker()).evaluate(CANDIDATES)
    with pytest.raises(InputError, match="give a ranker"):
        WordingSensitivity("bm25")(CANDIDATES)
    with pytest.raises(InputError, match="no qid is in both"):
        WordingSensitivity(PlantedRanker()).evaluate(CANDIDATES, QRELS.assign(qid="other"))


ASKED = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["mice: cats?", "Birds!", "???"]})
JUDGED = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["d1", "d3", "d1"], "label": 1})
SIGNS = {**OPTIONS, "rewrites": [lambda query: query.replace("cats", "dogs")]}


def test_over_terrier_every_wording_is_asked_in_words():
    retriever = Parsed()
    found = WordingSensitivity(retriever, **SIGNS).evaluate(ASKED, JUDGED)
    assert retriever.asked[:2] == ["mice cats", "birds"] and retriever.asked[-2:] == ["mice dogs", "birds"]
    assert found.per_query.set_index("qid")["original"].to_dict() == {"1": 1.0, "2": 1.0, "3": 0.0}
    assert found.convention.endswith("queries in words for Terrier")


def test_what_the_original_is_worth_as_it_comes_stands_beside():
    found = WordingSensitivity(Parsed(), **SIGNS).evaluate(ASKED, JUDGED)
    # A colon raises, a capital and an exclamation mark are no word of any text.
    assert found.as_it_comes.set_index("qid")["value"].to_dict() == {"1": 0.0, "2": 0.0, "3": 0.0}
    assert set(found.as_it_comes["measure"]) == {"nDCG@10"}


def test_queries_without_results_are_named_in_every_wording():
    found = WordingSensitivity(Parsed(), **SIGNS).evaluate(ASKED, JUDGED)
    rows = found.unanswered[["qid", "arm", "query", "reason"]].values.tolist()
    assert [row for row in rows if row[1] != AS_IT_COMES] == [["3", arm, "???", ""] for arm in (ORIGINAL, "<lambda>")]
    raised = [row for row in rows if row[1] == AS_IT_COMES and row[3]]
    assert ["1", AS_IT_COMES, "mice: cats?", "ValueError: Index must have 1 or more fields."] in raised


def test_a_retriever_that_is_not_terriers_is_asked_as_it_comes():
    def search(topics):
        seen.append(topics["query"].tolist())
        return topics.assign(docno="d1", score=1.0)

    seen = []
    found = WordingSensitivity(System("s", pt.apply.generic(search)), **SIGNS).evaluate(ASKED, JUDGED)
    assert seen == [ASKED["query"].tolist(), ["mice: dogs?", "Birds!", "???"]]
    assert found.as_it_comes.empty and found.unanswered.empty and "Terrier" not in found.convention


def test_by_words_only_repeated_words_are_simple_and_added_ones_complex():
    asked = ["who built the old ship", "cheap flights to paris", "how long does green tea keep", "history of tea in china"]
    arms = {"original": asked} | {rule: rewritten(asked, rule, tagger="textblob") for rule in REWRITES}
    worded = pd.DataFrame([(arm, query) for arm, queries in arms.items() for query in queries], columns=["arm", "query"])
    mean = LinguisticComplexity()(worded).groupby("arm")["complexity"].mean()
    assert mean["noun_phrases"] < mean["original"] and mean["keywords"] < mean["original"]
    assert mean["original"] < mean["question_frame"] < mean["relative_clause"]


def test_topics_with_another_form_of_the_query_are_refused_for_a_retriever():
    search = System("s", pt.apply.generic(lambda topics: topics.assign(docno="d1", score=1.0)))
    with pytest.raises(InputError, match=r"its retriever may read 'query_toks', .*into the pipeline"):
        WordingSensitivity(search, **SIGNS)(ASKED.assign(query_toks=[{"mice": 1.0}] * len(ASKED)))
    assert len(WordingSensitivity(search, **SIGNS)(ASKED.assign(query_0="kept", query_type="x"))) == 2 * len(ASKED)


def test_wordings_start_from_the_topic_and_not_from_what_was_written_for_terrier():
    topics = ASKED.iloc[:2]
    candidates = topics.merge(JUDGED, on="qid").assign(text="mice and birds", score=1.0, rank=0)
    candidates = pt.model.push_queries(candidates).assign(query=["applypipeline:off mice^0.300", "birds^0.100"])
    seen = []

    def score(frame):
        seen.extend([frame["query"].tolist()] if len(frame) else [])
        return frame.assign(score=1.0)

    options = {**SIGNS, "rewrites": [str.upper]}
    found = WordingSensitivity(pt.apply.generic(score), **options).evaluate(candidates, JUDGED, topics=topics)
    assert seen == [topics["query"].tolist(), candidates["query"].tolist(), ["MICE: CATS?", "BIRDS!"]]
    assert len(found.as_it_comes) == 2 and "Terrier" not in found.convention
    # Without topics the query that is kept beside counts.
    seen.clear()
    WordingSensitivity(pt.apply.generic(score), **options)(candidates)
    assert seen[0] == topics["query"].tolist()


def test_a_ranker_that_gives_back_an_earlier_query_reads_the_wording():
    candidates = pt.model.push_queries(CANDIDATES).assign(query="applypipeline:off word^0.300")
    ranker = PlantedRanker("linguistic", strength=1.0, seed=2)
    system = System("s", pt.Transformer.identity(), pt.apply.generic(pt.model.pop_queries) >> ranker)
    found = WordingSensitivity(system, **OPTIONS).evaluate(candidates, QRELS, topics=TOPICS)
    expected = probe(1.0)
    pd.testing.assert_frame_equal(found.table, expected.table)
    assert found.as_it_comes["value"].tolist() == expected.per_query["original"].tolist()


@pytest.mark.parametrize(
    "stage",
    [
        RewriteQueries("keywords"), RepeatNounPhrases(tagger="textblob"), SwapGender(queries=True, text_field=None),
        LinguisticComplexity(), QueryGender(),
    ],
    ids=lambda stage: type(stage).__name__,
)  # fmt: skip
def test_stages_that_read_the_words_of_queries_warn_of_expressions(stage):
    told = rf"{type(stage).__name__}: .*'littl\^0.036 cat'.*pt.rewrite.reset\(\) before this stage"
    with pytest.warns(UserWarning, match=told):
        stage(pd.DataFrame({"qid": ["1"], "query": ["littl^0.036 cat"]}))


def test_figures_without_all_rankings_are_the_same(found, monkeypatch):
    monkeypatch.setattr("pyterrier_debias.core.frames.ROWS", 100)  # a few lists at a time
    stage = WordingSensitivity(PlantedRanker("linguistic", strength=1.0, seed=2), **OPTIONS)
    brief = stage.figures(CANDIDATES, QRELS, topics=TOPICS)
    for name in ("table", "per_query", "wordings", "unanswered", "as_it_comes"):
        pd.testing.assert_frame_equal(getattr(brief, name), getattr(found, name))
    assert len(brief.rankings) < 0.7 * len(found.rankings)
