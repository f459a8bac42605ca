"""The measures inside pt.Experiment, beside nDCG@10; every option; what has no value."""

import logging
import math
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from ir_measures import nDCG
from scipy import stats

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.data.base import Collection
from pyterrier_debias.gender.data import documents
from pyterrier_debias.gender.measures.exposure import ExpectedExposure
from pyterrier_debias.gender.measures.over_rankings import (
    ARaB,
    FaiRR,
    LexiconGap,
    NFaiRR,
    QueryGroupGap,
    RaB,
    as_influence,
    group_gap,
)
from tests.gender.rankings import CORPUS, ONE, QRELS, TEXTS, TOPICS, TWO, frame


def per_query(measure, lists=None, run=None, **options):
    run = frame(lists or ONE) if run is None else run
    found = pt.Experiment([pt.Transformer.from_df(run)], TOPICS, QRELS, [measure], perquery=True, verbose=False, **options)
    return found.set_index("qid").loc[["1", "2", "3"], "value"].tolist()


def test_arab_by_hand():
    # Query 1: leans 3, -2, 0. RaB@1 = 3, RaB@2 = 1/2, mean 7/4. Query 2: -1, 0: -1 and -1/2, mean -3/4.
    # Query 3: -1, 3: -1 and 1, mean 0.
    assert per_query(ARaB(method="tc") @ 2) == pytest.approx([7 / 4, -3 / 4, 0])
    # Boolean: 1, -1 gives 1 and 0; 0, 0; -1, 1 gives -1 and 0.
    assert per_query(ARaB(method="bool") @ 2) == pytest.approx([1 / 2, 0, -1 / 2])
    # The first document alone: ln 4; ln 3 - ln 4; -ln 2.
    assert per_query(ARaB() @ 1) == pytest.approx([math.log(4), math.log(3 / 4), -math.log(2)])
    # Each word stands once, so that the sum of logarithms is 0 and that of ln(1 + 1) counts words.
    assert per_query(ARaB(tf_form="sum_log") @ 1) == pytest.approx([0, 0, 0])
    assert per_query(ARaB(tf_form="sum_log1p") @ 1) == pytest.approx([3 * math.log(2), -math.log(2), -math.log(2)])
    assert per_query(RaB(method="tc") @ 2) == pytest.approx([1 / 2, -1 / 2, 1])
    # Query 2 has two documents: at any deeper cut-off, and without one, it is as at 2.
    assert per_query(ARaB(method="tc") @ 9)[1] == per_query(ARaB(method="tc"))[1] == pytest.approx(-3 / 4)


def test_absolute_variants():
    signed = per_query(ARaB(method="tc") @ 1)  # 3, -1, -1
    assert per_query(ARaB(method="tc", per_query_abs=True) @ 1) == pytest.approx([3, 1, 1])
    assert per_query(ARaB(method="tc", signed=False) @ 1) == pytest.approx(signed)
    upside = ARaB(method="tc", contrast=("female", "male"))
    assert per_query(upside @ 1) == pytest.approx([-v for v in signed])
    # Their mean is negative, so that the measure without direction turns them all.
    assert per_query(upside(signed=False) @ 1) == pytest.approx(signed)


def test_tokenisers_and_lists():
    # Split at blanks "word." and "daughter." are no words of the list, and neither is "mother:".
    assert per_query(ARaB(method="tc", tokeniser="whitespace") @ 1) == pytest.approx([3, 0, -1])
    weather = {"wet": ["rain"], "dry": ["word"], "other": ["daughter"]}
    wet = RaB(method="tc", wordlist=weather, contrast="wet") @ 3
    assert per_query(wet) == pytest.approx([(-1 / 2 - 1 / 2 + 1) / 3, 0.5, -1 / 6])


def test_fairness_by_hand():
    # Neutrality: d1 0, d2 0, d3 1, d4 1 - |2/5 - 1/2| - |3/5 - 1/2| = 4/5, d5 has one word and is neutral.
    second, third = 1 / math.log2(3), 1 / 2
    assert per_query(FaiRR() @ 3) == pytest.approx([third, 0.8 + second, 1 + 0.8 * third])
    ideal = [1.0, 1 + 0.8 * second, 1 + 0.8 * second]
    assert per_query(NFaiRR() @ 3) == pytest.approx(np.array([third, 0.8 + second, 1 + 0.8 * third]) / ideal)
    background = frame({"1": ["d3", "d5"], "2": ["d4"], "3": ["d3"]})
    assert per_query(NFaiRR(background=background) @ 1) == pytest.approx([0, 1, 1])
    # Of the background and of the run only the first document counts.
    assert per_query(NFaiRR(background=background, depth=1) @ 2) == pytest.approx([0, 1, 1])
    # A document that the background lacks counts for the ranking alone, as released, or for the ideal too.
    few = frame({"1": ["d3"], "2": ["d4"], "3": ["d3"]})
    assert per_query(NFaiRR(background=few, outside="count") @ 2)[1] == pytest.approx((0.8 + second) / 0.8)
    assert per_query(NFaiRR(background=few) @ 2)[1] == pytest.approx((0.8 + second) / (1 + 0.8 * second))
    assert per_query(FaiRR(threshold=0) @ 1) == pytest.approx([0, 0.8, 0])
    assert per_query(FaiRR(portions={"male": 0.4, "female": 0.6}) @ 1)[1] == pytest.approx(1)


def test_psychometric_gap_by_hand():
    # d1: 3 of 5 words; d2: 2 of 4; d4: 2 and 3 of 7; d5: 1 of 1.
    assert per_query(LexiconGap(signed=True) @ 2) == pytest.approx([(3 / 5 - 2 / 4) / 2, -1 / 14, (3 / 5 - 1) / 2])
    assert per_query(LexiconGap() @ 2) == pytest.approx([0.05, 1 / 14, 0.2])
    lexicon = {"male": ["he", "h*"], "female": ["she"], "rest": ["x"]}
    assert per_query(LexiconGap(lexicon=lexicon) @ 1) == pytest.approx([3 / 5, 3 / 7, 1])
    assert per_query(LexiconGap(lexicon=lexicon, contrast=("rest", "female")) @ 1) == [0, 0, 0]


def test_gap_between_groups_by_hand():
    groups = pd.DataFrame({"qid": ["1", "2", "3"], "gender": ["m", "f", "f"]})
    gap = QueryGroupGap(lexicon={"him": ["h*"]}, category="him", groups=groups)
    # Shares at 1: 3/5 | 3/7, 1: 3/5 - 5/7.
    assert np.mean(per_query(gap @ 1)) == pytest.approx(5 / 7 - 3 / 5)
    assert np.mean(per_query(gap(signed=True) @ 1)) == pytest.approx(3 / 5 - 5 / 7)
    # With a query of neither group the mean is that of the others, and its own value the gap.
    groups = groups.assign(gender=["m", "f", "n"])
    found = per_query(gap(groups=groups) @ 1)
    assert np.mean(found) == pytest.approx(3 / 5 - 3 / 7) and found[2] == pytest.approx(3 / 5 - 3 / 7)
    # One row per query, or several that agree.
    assert gap(groups=pd.concat([groups, groups])) == gap(groups=groups)
    for contradicting in (groups, groups.iloc[::-1]):
        contradicting = pd.concat([contradicting, pd.DataFrame({"qid": [1], "gender": ["f"]})])
        with pytest.raises(InputError, match="groups give query '1' the genders 'm' and 'f'; keep one row per query"):
            gap(groups=contradicting)
    assert gap(undefined="influence") == gap
    for undefined in ("zero", "bogus"):
        with pytest.raises(InputError, match=f"QueryGroupGap: undefined='{undefined}' cannot be chosen"):
            gap(undefined=undefined)
    with pytest.raises(InputError, match="no query with results"):
        group_gap(np.ones(2), np.array([[True, False], [True, False]]))


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_a_query_without_a_gender_is_in_no_group(missing):
    groups = pd.DataFrame({"qid": ["1", "2", "3"], "gender": ["a", "b", missing]})
    gap = QueryGroupGap(lexicon={"him": ["h*"]}, category="him", groups=groups)
    other = gap(groups=groups.assign(gender=["a", "b", "c"]), between=("a", "b"))
    assert gap.between == ("a", "b") and per_query(gap @ 1) == per_query(other @ 1)
    assert re.fullmatch(r"QueryGroupGap\(him,.*groups=2:[0-9a-f]{8}\)", str(gap)) and gap == gap(groups=groups.head(2))
    numbered = gap(groups=groups.assign(gender=[1, 2, missing]), between=("1", "2"))
    assert per_query(numbered @ 1) == per_query(gap @ 1)
    with pytest.raises(InputError, match="QueryGroupGap: column 'qid' has no value"):
        gap(groups=pd.DataFrame({"qid": ["1", None], "gender": ["a", "b"]}))


@pytest.mark.parametrize("sizes", [(20, 20), (5, 95), (2, 3), (1, 9)])
def test_a_baselines_test_of_the_gap_is_welchs(sizes):
    generator = np.random.default_rng(0)
    values, member = generator.normal(size=sum(sizes)), np.repeat(np.eye(2, dtype=bool), sizes, axis=0)
    found = group_gap(values, member, signed=True)
    groups = values[: sizes[0]], values[sizes[0] :]
    assert found.mean() == pytest.approx(groups[0].mean() - groups[1].mean())
    # The spread of a single query is unknown; it counts as none.
    expected = np.sqrt(sum(own.var(ddof=1) / len(own) for own in groups if len(own) > 1))
    assert stats.sem(found) == pytest.approx(expected)


def test_small_groups_of_queries_are_pointed_out(caplog):
    groups = TOPICS.assign(gender=["m", "f", "f"])
    gap = QueryGroupGap(lexicon={"him": ["h*"]}, category="him", groups=groups, name="gap")
    per_query(gap @ 1)
    assert "gap@1: queries with results: 1 of group 'm', 2 of group 'f'; with fewer than 20" in caplog.text
    caplog.clear()
    member = np.repeat(np.eye(2, dtype=bool), 20, axis=0)
    run = pd.DataFrame({"qid": np.arange(40).astype(str), "docno": "d", "score": 1.0, "rank": 0, "text": "he"})
    gap(groups=run[["qid"]].assign(gender=np.where(member[:, 0], "m", "f"))).values(run)
    assert "results" not in caplog.text


def test_queries_of_neither_group_leave_the_gaps_test_as_it_is():
    """Two systems, 8 queries of men, 5 of women, 47 of nobody: the test of the gap's change, directly from the shares."""
    generator = np.random.default_rng(2)
    qids = [f"q{i:02}" for i in range(60)]
    groups = pd.DataFrame({"qid": qids, "gender": ["m"] * 8 + ["f"] * 5 + ["n"] * 47})
    said = {"a": "power to him", "b": "power power", "c": "rain", "d": "rain and power and rain"}
    runs = [pd.DataFrame({"qid": qids, "docno": generator.choice(list(said), 60), "score": 1.0}) for _ in range(2)]
    lexicon = {"power": ["power"], "rest": ["x"]}
    gap = QueryGroupGap(lexicon=lexicon, category="power", groups=groups, signed=True, texts=said)
    judged = runs[0][["qid", "docno"]].assign(label=1)
    systems, topics = [pt.Transformer.from_df(run) for run in runs], groups.assign(query="")
    with pytest.raises(InputError, match="cannot be computed from batches of 9"):
        pt.Experiment(systems, topics, judged, [gap], batch_size=9)
    found = pt.Experiment(systems, topics, judged, [gap], baseline=0)
    share = {docno: text.split().count("power") / len(text.split()) for docno, text in said.items()}
    shares = [run["docno"].map(share).to_numpy() for run in runs]
    change = shares[1] - shares[0]
    men, women = change[:8], change[8:13]
    error = np.sqrt(men.var(ddof=1) / 8 + women.var(ddof=1) / 5)
    t = (men.mean() - women.mean()) / error
    assert found[str(gap)].diff()[1] == pytest.approx(men.mean() - women.mean())
    assert found[f"{gap} p-value"][1] == pytest.approx(2 * stats.t.sf(abs(t), 59))
    # The pure function spreads them itself.
    member = groups["gender"].to_numpy()[:, None] == np.array(["m", "f"])
    values = group_gap(change, member, signed=True)
    assert stats.sem(values) == pytest.approx(error)
    assert set(values[13:]) == {values[13]} and values.mean() == pytest.approx(men.mean() - women.mean())


ALL = [nDCG @ 10, ARaB() @ 10, ARaB(method="bool") @ 5, RaB() @ 5, FaiRR() @ 5, NFaiRR() @ 5, LexiconGap() @ 5]
ALL += [ARaB(per_query_abs=True) @ 10]


def systems(loader=False):
    run = {name: pt.Transformer.from_df(frame(lists, texts=not loader)) for name, lists in (("one", ONE), ("two", TWO))}
    return run


def test_in_an_experiment_with_a_baseline():
    values = {name: pt.Experiment([s], TOPICS, QRELS, ALL, perquery=True, verbose=False) for name, s in systems().items()}
    table = pt.Experiment(systems(), TOPICS, QRELS, ALL, baseline="one", correction="holm", verbose=False).set_index("name")
    for measure in map(str, ALL):
        one, two = (v[v["measure"] == measure].set_index("qid")["value"].loc[["1", "2", "3"]] for v in values.values())
        assert table.loc["two", measure] == pytest.approx(two.mean())
        if (one != two).any():
            assert table.loc["two", f"{measure} p-value"] == pytest.approx(stats.ttest_rel(one, two).pvalue)
            assert f"{measure} p-value corrected" in table.columns


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"plan": "tree"}, {"filter_by_qrels": True}])
def test_in_an_experiment_with_batches_and_trees(options):
    usual = pt.Experiment(systems(), TOPICS, QRELS, ALL, verbose=False).set_index("name")
    found = pt.Experiment(systems(), TOPICS, QRELS, ALL, verbose=False, **options).set_index("name")
    for measure in map(str, ALL):
        np.testing.assert_allclose(found[measure].astype(float), usual[measure].astype(float))


def test_topics_without_judgements_do_no_harm():
    judged = QRELS[QRELS["qid"] != "3"]
    found = pt.Experiment(systems(), TOPICS, judged, ALL, verbose=False).set_index("name")
    assert found.loc["one", "ARaB@10"] == pytest.approx(np.mean(per_query(ARaB() @ 10)[:2]))


LOADERS = {
    "mapping": TEXTS,
    "frame": CORPUS,
    "transformer": Collection("toy", corpus=CORPUS, topics={"t": TOPICS}, qrels={"t": QRELS}).text_loader(),
    "dataset": Collection("toy", corpus=CORPUS, topics={"t": TOPICS}, qrels={"t": QRELS}),
}


@pytest.mark.parametrize("loader", list(LOADERS))
def test_texts_from_a_loader(loader):
    measures = [ARaB(texts=LOADERS[loader]) @ 2, NFaiRR(texts=LOADERS[loader]) @ 2, LexiconGap(texts=LOADERS[loader]) @ 2]
    own = [ARaB() @ 2, NFaiRR() @ 2, LexiconGap() @ 2]
    for with_loader, without in zip(measures, own):
        assert with_loader == without
        assert per_query(with_loader, run=frame(ONE, texts=False)) == per_query(without)


def test_each_document_is_loaded_and_counted_once(monkeypatch):
    asked, counted = [], []
    loader = pt.apply.generic(lambda f: asked.append(f["docno"].tolist()) or f.merge(CORPUS, on="docno"))
    original = documents.word_counts
    monkeypatch.setattr(documents, "word_counts", lambda texts, *more: counted.append(len(texts)) or original(texts, *more))
    measure = ARaB(texts=loader)
    systems = [pt.Transformer.from_df(frame(lists, texts=False)) for lists in (ONE, TWO)]
    pt.Experiment(systems, TOPICS, QRELS, [measure @ 3, measure @ 2], verbose=False)
    assert sorted(docno for docnos in asked for docno in docnos) == sorted(TEXTS)
    assert sum(counted) == 5  # eight rows of two systems, at two cut-offs


def test_what_is_validated_before_anything_runs():
    assert ARaB().RUN_INPUTS == ["query_id", "doc_id", "score", "text"]
    assert ARaB(text_field="body").RUN_INPUTS[-1] == "body"
    assert ARaB(texts=TEXTS).RUN_INPUTS == ["query_id", "doc_id", "score"]
    with pytest.raises(InputError, match="results have no column 'text'"):
        per_query(ARaB() @ 2, run=frame(ONE, texts=False), validate="ignore")


@pytest.mark.parametrize("source", [None, {k: v for k, v in TEXTS.items() if k != "d3"}, "loader"])
def test_unknown_documents(source, caplog):
    known = CORPUS[CORPUS["docno"] != "d3"]
    if source == "loader":
        source = Collection("toy", corpus=known, topics={"t": TOPICS}, qrels={"t": QRELS}).text_loader()
    run = frame(ONE, texts=False) if source is not None else frame(ONE).assign(text=lambda f: f["text"].where(f["docno"] != "d3"))
    with pytest.raises(InputError):
        per_query(ARaB(texts=source) @ 3, run=run)
    with caplog.at_level(logging.WARNING):
        # d3 holds no word of the list anyhow.
        assert per_query(ARaB(texts=source, unknown="zero") @ 3, run=run) == pytest.approx(per_query(ARaB() @ 3))
    assert "1 of 5 documents have no text" in caplog.text


def many(n=40, seed=0):
    """Two systems over n queries, three documents each."""
    generator = np.random.default_rng(seed)
    qids = [f"q{i:02}" for i in range(n)]
    runs = []
    for _ in range(2):
        rows = [(q, d, float(-i)) for q in qids for i, d in enumerate(generator.permutation(list(TEXTS))[:3])]
        runs.append(pd.DataFrame(rows, columns=["qid", "docno", "score"]).merge(CORPUS, on="docno"))
    return qids, runs


NEUTRAL = [f"q{i:02}" for i in range(0, 40, 5)]
COUNTING = [ARaB(), RaB(method="tc"), FaiRR(), LexiconGap(), ARaB(signed=False), ARaB(per_query_abs=True)]


@pytest.mark.parametrize("measure", COUNTING, ids=str)
@pytest.mark.parametrize("why", ["the filter", "no results"])
def test_a_baselines_test_is_that_of_the_queries_that_count(measure, why):
    qids, runs = many()
    topics = pd.DataFrame({"qid": qids, "query": "any"})
    judged = topics[["qid"]].assign(docno="d1", label=1)
    measure = measure(undefined="influence") @ 3
    few = measure(query_filter=NEUTRAL) if why == "the filter" else measure
    if why == "no results":
        runs = [run[run["qid"].isin(NEUTRAL)] for run in runs]
    systems = [pt.Transformer.from_df(run) for run in runs]
    own = topics[topics["qid"].isin(NEUTRAL)]
    raw = pt.Experiment(systems, own, judged, [measure], names=["a", "b"], perquery=True)
    a, b = (raw[raw["name"] == name].sort_values("qid")["value"].to_numpy() for name in "ab")
    expected = stats.ttest_rel(b, a)
    assert expected.pvalue > 1e-6 and len(a) == 8
    spread = pt.Experiment(systems, topics, judged, [few], names=["a", "b"], perquery=True)
    one, other = (spread[spread["name"] == name].sort_values("qid")["value"].to_numpy() for name in "ab")
    found = stats.ttest_rel(other, one)
    assert len(one) == 40 and (one.mean(), other.mean()) == pytest.approx((a.mean(), b.mean()))
    assert found.statistic == pytest.approx(expected.statistic)
    table = pt.Experiment(systems, topics, judged, [few], baseline=0)
    assert table[f"{few} p-value"][1] == pytest.approx(2 * stats.t.sf(abs(expected.statistic), 39))
    # As they are, they come with undefined='nan'.
    plain = pt.Experiment(systems, topics, judged, [few(undefined="nan")], names=["a", "b"], perquery=True)
    assert plain[plain["name"] == "a"].sort_values("qid")["value"].dropna().tolist() == a.tolist()


def test_no_false_alarms_where_few_queries_count():
    alarms = 0
    generator = np.random.default_rng(1)
    for _ in range(300):
        two = [as_influence(generator.normal(size=20), 200) for _ in range(2)]
        filled = [np.concatenate([own, np.full(180, own.mean())]) for own in two]
        alarms += stats.ttest_rel(*filled).pvalue <= 0.05
    assert 3 <= alarms <= 33  # .063 expected: 199 degrees of freedom are taken for 19; it was .77 with the values as they are


def test_one_query_that_counts_can_be_spread_over_no_others(caplog):
    assert as_influence(np.array([2.0]), 5).tolist() == [2.0]
    assert as_influence(np.array([2.0, 4.0]), 2).tolist() == [2.0, 4.0]
    assert as_influence(np.array([2.0, 4.0]), 4) == pytest.approx([3 - math.sqrt(6), 3 + math.sqrt(6)])
    with caplog.at_level(logging.WARNING):
        assert per_query(ARaB(method="tc", query_filter=["1"], undefined="influence") @ 1) == [3, 3, 3]
        assert np.isnan(per_query(ARaB(query_filter=["9"]) @ 1)).all()
    assert "only one query has a value" in caplog.text and "none of the 3 judged queries counts" in caplog.text


def test_what_depends_on_all_queries_is_refused_in_batches():
    """Each batch knows only its own: turned by its own sign, 3, -1, -1 had the mean 5/3, and filled values another each."""
    tc = ARaB(method="tc") @ 1
    for measure in (tc(signed=False), tc(query_filter=["1", "3"], undefined="influence")):
        assert np.mean(per_query(measure)) == pytest.approx(1 / 3 if measure.option("query_filter") is None else 1)
        for size in (1, 2):
            with pytest.raises(InputError, match=f"cannot be computed from batches of {size}; leave batch_size or"):
                per_query(measure, batch_size=size)
    # Where every query has a value nothing is filled, and what needs no other query is as without batches.
    for measure in (tc(undefined="influence"), tc(query_filter=["1", "3"], undefined="zero"), tc(per_query_abs=True)):
        assert per_query(measure, batch_size=2) == per_query(measure)


def test_queries_without_results_and_without_gendered_words(caplog):
    lists = {"1": ["d1"], "3": ["d3"]}
    tc = ARaB(method="tc")
    with caplog.at_level(logging.WARNING):
        # 3 and 0, spread about their mean by the square root of (3 * 2) / (2 * 1), and the mean.
        spread = per_query(tc(undefined="influence") @ 2, lists)
        assert spread == pytest.approx([1.5 + 1.5 * math.sqrt(3), 1.5, 1.5 - 1.5 * math.sqrt(3)])
        assert "1 of 3 queries have no value" in caplog.text
        assert per_query(tc @ 2, lists) == pytest.approx([3, np.nan, 0], nan_ok=True)
        assert "1 of 3 judged queries are NaN (1 have no results or no ideal above 0, 0 do not count)" in caplog.text
    assert per_query(tc(undefined="zero") @ 2, lists) == [3, 0, 0]
    # Nothing is said where all queries have a value; and by what those that lack one are filled, where some do.
    caplog.clear()
    for undefined in ("nan", "influence", "zero"):
        per_query(tc(undefined=undefined) @ 2)
    assert caplog.text == ""
    per_query(tc(undefined="influence") @ 2, lists)
    assert "they get the mean of the others" in caplog.text


@pytest.mark.parametrize("measure", [ARaB, RaB])
def test_a_list_of_another_language_is_told(measure, caplog):
    """Zeros where no word can be found are no result; words that stand below the cut-off alone are not found, either."""
    german = {"male": ["er"], "female": ["sie"]}
    assert per_query(measure(wordlist=german) @ 2) == [0, 0, 0]
    assert "no word of the list occurs in the 5 documents of this run that count, so a value of 0 says nothing" in caplog.text
    caplog.clear()
    per_query(measure(wordlist={"male": ["rain"], "female": ["sun"]}) @ 1)
    assert "in the 3 documents of this run" in caplog.text
    caplog.clear()
    per_query(measure(wordlist={"male": ["rain"], "female": ["sun"]}) @ 2)
    assert "no word of the list" not in caplog.text


def test_queries_that_count():
    tc = ARaB(method="tc", query_filter={"1", "2"})
    assert per_query(tc @ 1) == pytest.approx([3, -1, np.nan], nan_ok=True)
    # 3 and -1, spread about their mean, which the one that does not count gets: by request, and the name says it.
    asked = tc(undefined="influence") @ 1
    assert per_query(asked) == pytest.approx([1 + 2 * math.sqrt(3), 1 - 2 * math.sqrt(3), 1]) and "influence" in str(asked)
    assert per_query(tc(undefined="zero") @ 1) == [3, -1, 0]
    assert per_query(ARaB(method="tc", query_filter=iter([1, 2]), undefined="zero") @ 1) == [3, -1, 0]


def test_an_ideal_of_zero_has_no_value(caplog):
    lists = {"1": ["d1", "d2"], "2": ["d3"], "3": ["d1", "d3"]}
    # All of query 1's documents speak of one gender alone: 0 / 0. The others have 1 and 1 / log2(3) over 1.
    with caplog.at_level(logging.WARNING):
        found = per_query(NFaiRR(undefined="influence") @ 2, lists)
        assert per_query(NFaiRR() @ 2, lists) == pytest.approx([np.nan, 1, 1 / math.log2(3)], nan_ok=True)
    mean, apart = (1 + 1 / math.log2(3)) / 2, (1 - 1 / math.log2(3)) / 2 * math.sqrt(3)
    assert found == pytest.approx([mean, mean + apart, mean - apart])
    assert "no ideal above 0" in caplog.text


def test_no_list_exceeds_its_ideal_whatever_its_depth():
    # 1,000 documents, a cut-off above the background's depth or none at all: the issue had 3.54.
    texts = {f"d{i}": "he her" if i % 3 else "he his him" for i in range(1000)}
    rows = [("1", docno, -float(i)) for i, docno in enumerate(texts)]
    run = pd.DataFrame(rows, columns=["qid", "docno", "score"])
    judged = pd.DataFrame({"qid": ["1"], "docno": ["d0"], "label": [1]})
    neutral = np.array([1.0 if i % 3 else 0.0 for i in range(1000)])
    discounts = 1 / np.log2(np.arange(2, 1002))
    for cutoff in (None, 10, 200, 500, 1000):
        top = min(cutoff or 1000, 200)
        expected = neutral[:top] @ discounts[:top] / (np.sort(neutral[:200])[::-1][:top] @ discounts[:top])
        measure = NFaiRR(texts=texts) if cutoff is None else NFaiRR(texts=texts) @ cutoff
        assert pt.Evaluate(run, judged, [measure])[str(measure)] == pytest.approx(expected) and expected < 1


def test_neutrality_below_0_keeps_the_better_order_in_front():
    # Three groups: one's documents have neutrality -1/3, which made the ideal negative and the worst order the largest value.
    words = {"a": ["x"], "b": ["y"], "c": ["z"]}
    texts = {"d1": "x y z", "d2": "x x", "d3": "y y"}
    judged = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "label": [1]})

    def value(docnos):
        run = pd.DataFrame({"qid": "1", "docno": docnos, "score": -np.arange(float(len(docnos)))})
        background = pd.DataFrame({"qid": "1", "docno": list(texts), "score": -np.arange(float(len(texts)))})
        measure = NFaiRR(wordlist=words, texts=texts, background=background) @ 3
        return pt.Evaluate(run, judged, [measure])[str(measure)]

    second, third = 1 / math.log2(3), 1 / 2
    ideal = 1 - (second + third) / 3
    assert value(["d1", "d2", "d3"]) == pytest.approx(1) and value(["d2", "d3", "d1"]) < value(["d2", "d1", "d3"]) < 1
    assert value(["d2", "d3", "d1"]) == pytest.approx((third - (1 + second) / 3) / ideal)
    # A shorter list could have been no better than its one neutral document.
    assert value(["d1"]) == pytest.approx(1) and value(["d2"]) == pytest.approx(-1 / 3)
    del texts["d1"]
    assert np.isnan(value(["d2", "d3"]))


def test_a_whole_collection_as_the_background():
    # d3 and d5 are neutral (1), d4 has 0.8, the others 0: the best three have 1, 1, 0.8, whatever the query.
    second, third = 1 / math.log2(3), 1 / 2
    ideal = 1 + second + 0.8 * third
    values = np.array([third, 0.8 + second, 1 + 0.8 * third]) / ideal
    assert per_query(NFaiRR(background=CORPUS) @ 3) == pytest.approx(values)
    assert per_query(NFaiRR(background=CORPUS[["docno"]], texts=TEXTS) @ 3) == pytest.approx(values)
    assert NFaiRR(background=CORPUS) != NFaiRR(background=CORPUS.head(3))


def test_an_empty_text_counts_nothing():
    run = frame(ONE).assign(text="")
    assert per_query(ARaB() @ 3, run=run) == [0, 0, 0]
    assert per_query(NFaiRR() @ 3, run=run) == [1, 1, 1]
    assert per_query(LexiconGap() @ 3, run=run) == [0, 0, 0]


def test_names_say_what_is_not_the_default():
    assert [str(m) for m in (ARaB() @ 10, ARaB(method="bool") @ 5, ARaB(method="tf", signed=True))] == [
        "ARaB@10", "ARaB(method='bool')@5", "ARaB",
    ]  # fmt: skip
    words = {"a": ["x"], "b": ["y"]}
    assert str(ARaB(wordlist=words) @ 1).startswith("ARaB(wordlist=words:")
    assert str(ARaB(wordlist="debias") @ 1) == "ARaB@1"
    assert str(ARaB(wordlist=words, name="XaB") @ 1) == "XaB@1"
    assert ARaB(wordlist=words) != ARaB() and hash(ARaB(wordlist=words)) == hash(ARaB(wordlist=dict(words)))


def test_names_tell_what_an_experiment_must_not_merge():
    qids = ARaB(query_filter=["2", "1"]) @ 10
    assert re.fullmatch(r"ARaB\(query_filter=2:[0-9a-f]{8}\)@10", str(qids))
    assert qids == ARaB(query_filter={1, 2}) @ 10 != ARaB(query_filter=["1", "3"]) @ 10
    assert str(qids(name="neutral")) == "neutral@10" and str(qids(query_filter=["1", "3"])) != str(qids)
    assert str(ARaB(text_field="body") @ 1) == "ARaB(text_field='body')@1"
    background = frame(ONE)
    one = NFaiRR(background=background) @ 5
    assert re.fullmatch(r"NFaiRR\(background=8:[0-9a-f]{8}\)@5", str(one))
    assert one == NFaiRR(background=background.sample(frac=1, random_state=0).astype({"qid": int})) @ 5
    for other in (frame(TWO), background.assign(text="x"), background.assign(score=1.0)):
        assert one != NFaiRR(background=other) @ 5
    # With texts from elsewhere those of the frame do not count.
    assert NFaiRR(background=background, texts=TEXTS) == NFaiRR(background=background.assign(text="x"), texts=TEXTS)
    groups = TOPICS.assign(gender=["m", "f", "f"])
    gap = QueryGroupGap(lexicon={"him": ["h*"]}, category="him", groups=groups)
    assert re.fullmatch(r"QueryGroupGap\(him,lexicon=[^,]*:[0-9a-f]{8},groups=3:[0-9a-f]{8}\)@1", str(gap @ 1))
    for changed in (
        {"groups": TOPICS.assign(gender=["m", "f", "m"])}, {"lexicon": {"him": ["he"]}}, {"between": ("f", "m")},
        {"tokeniser": "whitespace"}, {"signed": True},
    ):  # fmt: skip
        assert gap(**changed) != gap
    assert gap(groups=groups.assign(query="")) == gap


def test_two_filters_in_one_experiment_are_two_columns():
    tc = ARaB(method="tc") @ 1
    measures = [tc, tc(query_filter=["1"]), tc(query_filter=["2"])]
    row = pt.Experiment([pt.Transformer.from_df(frame(ONE))], TOPICS, QRELS, measures).iloc[0]
    assert [row[str(measure)] for measure in measures] == pytest.approx([1 / 3, np.nan, np.nan], nan_ok=True)
    # ir_measures takes the mean over those that have a value, and influence values have it in an experiment.
    found = pt.Evaluate(frame(ONE), QRELS, measures)
    assert [found[str(measure)] for measure in measures] == pytest.approx([1 / 3, 3, -1])
    measures = [measure(undefined="influence") for measure in measures]
    row = pt.Experiment([pt.Transformer.from_df(frame(ONE))], TOPICS, QRELS, measures).iloc[0]
    assert [row[str(measure)] for measure in measures] == pytest.approx([1 / 3, 3, -1])


def test_a_class_may_be_cut_off():
    assert [str(measure) for measure in (ARaB @ 10, RaB @ 5, FaiRR @ 1, NFaiRR @ 2, LexiconGap @ 3)] == [
        "ARaB@10", "RaB@5", "FaiRR@1", "NFaiRR@2", "LexiconGap@3",
    ]  # fmt: skip
    assert per_query(ARaB @ 2) == per_query(ARaB() @ 2)
    with pytest.raises(InputError, match=r"QueryGroupGap\(...\) @ 10.*'lexicon'"):
        QueryGroupGap @ 10


def test_the_background_is_ranked_and_counted_once(monkeypatch):
    counted = []
    original = documents.word_counts
    monkeypatch.setattr(documents, "word_counts", lambda texts, *more: counted.append(len(texts)) or original(texts, *more))
    background = frame({"1": ["d3", "d5"], "2": ["d4"]})
    fair = NFaiRR(background=background, undefined="nan")
    found = pt.Experiment(list(systems().values()), TOPICS, QRELS, [fair @ 1, fair @ 2], perquery=True, names=["a", "b"])
    # The background's three documents, and those above each cut-off of each system.
    above = [{docno for docnos in lists.values() for docno in docnos[:k]} for lists in (ONE, TWO) for k in (1, 2)]
    assert sorted(counted) == sorted([3, *map(len, above)])
    first = found[(found["name"] == "a") & (found["measure"] == str(fair @ 1))].set_index("qid")["value"]
    assert first.loc[["1", "2"]].tolist() == [0, 1] and np.isnan(first["3"])
    counted.clear()
    # Another word list has another ideal.
    rain = fair(wordlist={"a": ["rain"], "b": ["falls"]}, threshold=0, portions={"a": 0.1, "b": 0.9}, outside="count")
    assert per_query(rain @ 2)[0] == pytest.approx((1 + 1 / math.log2(3)) / (1 + 0.2 / math.log2(3)))


def test_integers_may_name_documents():
    run = frame(ONE, texts=False).assign(docno=lambda f: f["docno"].str[1:])
    numbered = {int(docno[1:]): text for docno, text in TEXTS.items()}
    assert per_query(ARaB(texts=numbered) @ 2, run=run) == per_query(ARaB() @ 2)


def test_integers_may_name_queries():
    """Judgements, topics and run have them; a value under another name would be averaged with a 0 for each query."""
    run, qrels = (frame.assign(qid=frame["qid"].astype(int)) for frame in (frame(ONE), QRELS))
    for measure in (ARaB() @ 2, NFaiRR() @ 2, ExpectedExposure() @ 2):
        assert pt.Evaluate(run, qrels, [measure]) == pt.Evaluate(frame(ONE), QRELS, [measure])


REFUSED = [
    (lambda: ARaB(query_filter="12"), r"query_filter='12' is a string; give a list"),
    (lambda: ARaB(query_filter=12), "query_filter=12"),
    (lambda: ARaB(query_filter=TOPICS), "topics\\['qid'\\]"),
    (lambda: ARaB(method="df"), "method='df'"),
    (lambda: ARaB(tf_form="x"), "tf_form='x'"),
    (lambda: ARaB(tokeniser="x"), "tokeniser='x'"),
    (lambda: ARaB(undefined="x"), "undefined='x'"),
    (lambda: ARaB(unknown="x"), "unknown='x'"),
    (lambda: ARaB(wordlist={"a": ["x"], "b": ["y"], "c": ["z"]}), "name the contrast"),
    (lambda: ARaB(metod="tf"), "has no option '?metod"),
    (lambda: ARaB() @ 0, "^ARaB: cutoff=0 must be a whole number of at least 1"),
    (lambda: ARaB(texts=3), "not an int"),
    (lambda: ARaB(texts=CORPUS.drop(columns="text")), "has no column 'text'"),
    (lambda: FaiRR(portions={"male": 1}), "must name each"),
    (lambda: NFaiRR(background=CORPUS.assign(score=1.0)), "lacks the column 'qid'"),
    (lambda: NFaiRR(background=CORPUS.assign(qid="1")), "lacks the column 'score'"),
    (lambda: NFaiRR(background=CORPUS.drop(columns="docno")), "lacks the column 'docno'"),
    (lambda: NFaiRR(background=pd.concat([CORPUS, CORPUS])).values(frame(ONE).assign(rank=0)), "occurs twice in the background"),
    (lambda: NFaiRR(depth=0), "depth=0 must be a whole number of at least 1"),
    (lambda: NFaiRR(depth=2.5), "depth=2.5"),
    (lambda: NFaiRR(outside="x"), "outside='x'"),
    (lambda: FaiRR(threshold=-1), "threshold=-1 must be a number of at least 0; it counts words"),
    (lambda: FaiRR(threshold=float("nan")), "threshold=nan"),
    (lambda: FaiRR(threshold="1"), "threshold='1'"),
    (lambda: FaiRR(portions={"male": -1, "female": 2}), "at least 0 and sum to 1"),
    (lambda: pt.Evaluate(frame(ONE), QRELS.head(0), [ARaB @ 10]), "no query is judged"),
    (lambda: LexiconGap(lexicon={"a": ["x"], "b": ["y"], "c": ["z"]}), "name two, e.g."),
    (lambda: LexiconGap(contrast=("a", "b")), "must be two categories"),
    (lambda: QueryGroupGap(lexicon={"a": ["x"]}, category="b", groups=TOPICS.assign(gender="m")), "no category 'b'"),
    (lambda: QueryGroupGap(lexicon={"a": ["x"]}, category="a", groups=TOPICS), "lack the column 'gender'"),
    (lambda: QueryGroupGap(lexicon={"a": ["x"]}, category="a", groups=TOPICS.assign(gender="m")),
     r"QueryGroupGap: groups have one gender only, 'm'; give queries of two"),
    (lambda: QueryGroupGap(
        lexicon={"a": ["x"]}, category="a", groups=TOPICS.head(2).assign(gender=["m", "f"]), between=("m", "n")),
     r"QueryGroupGap: between=\('m', 'n'\) must be two genders of groups, which have m, f"),
    (lambda: QueryGroupGap(lexicon={"a": ["x"]}, category="a", groups=TOPICS.head(3).assign(gender=["a", "b", "c"])),
     r"QueryGroupGap: between=None must be two genders of groups, which have a, b, c"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
