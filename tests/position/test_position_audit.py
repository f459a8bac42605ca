"""The position bias: what it says, over which values, and how often it is wrong."""

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    Collection,
    CrossEncoder,
    PlantedCollection,
    PlantedRanker,
    PositionSensitivity,
    RotatePassages,
    System,
    audit,
)
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.core.systems import Context
from pyterrier_debias.position.audit import PositionBias, _draw_buckets
from tests import tiny_models
from tests.biases import compare_with_values, drawn, examined, primary_tests
from tests.position.toy import Overlap, collection

BIAS = PositionBias()

DATASET = collection(3)
RUN = pt.Transformer.from_df(DATASET.get_candidates())
FIRST = RUN >> DATASET.text_loader()


def index(documents):
    texts = pd.DataFrame([(d["docno"], d["text"]) for d in documents], columns=["docno", "text"])
    return pt.apply.generic(lambda topics: ranked(Overlap()(topics.merge(texts, how="cross"))).query("rank < 20"))


SYSTEMS = [
    System("words", RUN, None, index),
    System("early", FIRST, Overlap(early=1.0, noise=0.3)),
    System("run", RUN),
]


@pytest.fixture(scope="module")
def context():
    return Context(SYSTEMS, DATASET, DATASET.get_topics(), DATASET.get_qrels(), depth=12, seed=4)


def test_needs():
    assert BIAS.name == "position"
    assert [BIAS.needs(system, DATASET) is None for system in SYSTEMS] == [True, True, False]
    assert BIAS.needs(SYSTEMS[2], DATASET).startswith("it is a run")
    assert "indexer" in BIAS.needs(System("retriever", pt.apply.generic(RUN.transform)), DATASET)
    assert "get_corpus_iter" in BIAS.needs(SYSTEMS[0], object())


def test_one_primary_test_a_system(findings):
    primary = primary_tests(findings)
    assert list(primary.index) == ["words", "early"]
    assert (primary["measure"] + ", " + primary["contrast"]).tolist() == [
        "nDCG@10, rotated - original", "displacement, rotated alone",
    ]  # fmt: skip
    assert primary.loc["words", ["value", "low", "high"]].tolist() == [0, 0, 0]
    assert np.isnan(primary.loc["words", "p"])
    assert primary.loc["early", "value"] > 0 and primary.loc["early", "p"] < 0.05


def test_findings_are_those_of_the_probe(findings, context):
    probe = PositionSensitivity(SYSTEMS[1], dataset=DATASET, rotation=RotatePassages(seed=4), depth=12, seed=4)
    found = probe.evaluate(DATASET.get_topics())
    mine = findings[findings["system"] == "early"].set_index(["measure", "contrast"])
    row = found.table.iloc[0]
    assert mine.loc[("nDCG@10", "original"), "value"] == pytest.approx(row["before"])
    assert mine.loc[("nDCG@10", "rotated"), "value"] == pytest.approx(row["after"])
    for ours, theirs in (("value", "difference"), ("low", "low"), ("high", "high"), ("p", "p"), ("n", "n")):
        assert mine.loc[("nDCG@10", "rotated - original"), ours] == pytest.approx(row[theirs])
    assert mine.loc[("delta nDCG@10", "original/rotated"), "value"] == pytest.approx(row["delta"])
    index = found.psi.set_index("answers")
    assert mine.loc[("PSI", "answers as found"), "null_value"] == pytest.approx(index.loc["as found", "noise_floor"])
    assert mine.loc[("PSI", "answers placed"), "value"] == pytest.approx(index.loc["placed", "value"])
    assert mine.loc[("displacement", "rotated alone"), "value"] == pytest.approx(found.displacement_summary()["mean"])
    assert mine.loc[("nDCG@10", "end - start"), "p"] < 0.01


def test_a_retriever_is_shown_as_it_is_and_indexed_anew(findings, context):
    mine = findings[findings["system"] == "words"].set_index(["measure", "contrast"])["value"]
    own = pt.Evaluate(context.results(SYSTEMS[0]), DATASET.get_qrels(), ["ndcg_cut_10"])["ndcg_cut_10"]
    assert mine["nDCG@10", "original"] == pytest.approx(own)
    anew = index(DATASET.get_corpus_iter())(DATASET.get_topics())
    anew = pt.Evaluate(anew, DATASET.get_qrels(), ["ndcg_cut_10"])["ndcg_cut_10"]
    assert mine["nDCG@10", "original, indexed anew"] == pytest.approx(anew)
    assert mine["nDCG@10", "rotated"] == pytest.approx(anew)
    assert mine["nDCG@10", "original"] != pytest.approx(anew)


def test_an_index_of_other_words_is_not_taken_for_the_audited_one():
    """Such as one of titles and texts, where only texts are indexed anew; a run has other documents behind it by intention."""
    titled = DATASET.get_corpus().merge(DATASET.get_qrels().query("qid < 'q15'"), how="left", on="docno")
    titles = ("q" + titled["docno"].str.extract(r"d(\d+)_")[0]).map(DATASET.get_topics().set_index("qid")["query"])
    texts = titled["text"] + (" " + titles).where(titled["label"].notna(), "")
    whole = index(titled.assign(text=texts).to_dict("records"))
    alike = index(DATASET.get_corpus_iter())
    found = audit([System("titles", whole, None, index), System("alike", alike, None, index), SYSTEMS[0]], DATASET,
                  biases="position", draws=1)  # fmt: skip
    assert found.findings["system"].unique().tolist() == ["alike", "words"]
    assert found.skipped["system"].tolist() == ["titles"]
    told = r"ranks otherwise than .* \(nDCG@10 0\.\d{3} instead of 0\.\d{3}, \d+ of 30 queries differ\): .* titles"
    assert re.search(told, found.skipped["reason"].iloc[0])
    assert found.verdict().set_index("system").loc["titles", "sentence"].startswith("Not examined: the index over the same")


def test_values_stand_behind_findings(result, findings):
    assert compare_with_values(findings, result.per_query) == 15


def test_every_finding_says_what_it_is(findings):
    assert (findings["bias"] == "position").all()
    assert (findings["n"] == 30).all()
    assert findings["text"].str.fullmatch(r"(words|early): .*\.").all()
    assert findings["convention"].str.contains("mean of 3 draws, seed 4").all()
    text = findings.loc[findings["primary"], "text"].tolist()
    assert text[0].endswith("0 by construction, not tested.")
    assert not findings["text"].str.contains("nan").any()
    assert findings.loc[findings["system"] == "words", "p"].isna().all()  # no part of the family of tests
    row = findings[findings["primary"]].iloc[1]
    assert f"moves down by {row['value']:.2f} ranks on average [{row['low']:+.2f}, {row['high']:+.2f}]" in text[1]
    change = findings.set_index(["system", "contrast"]).sort_index().loc[("early", "rotated - original")].iloc[0]
    assert "falls from" in change["text"]
    assert f"{change['value']:+.3f} [{change['low']:+.3f}, {change['high']:+.3f}]" in change["text"]


def test_a_passage_that_moves_up_has_an_interval_upwards():
    """The finding counts downwards; words and interval of its sentence have one direction."""
    late = System("late", FIRST, pt.apply.doc_score(lambda row: -Overlap(early=1.0).score(row["query"], row["text"])))
    row = audit(late, DATASET, biases="position").findings.set_index(["measure", "contrast"]).loc["displacement", "rotated alone"]
    assert row["low"] < row["value"] < 0
    ends = f"[{-row['high']:+.2f}, {-row['low']:+.2f}]"
    assert f"moves up by {-row['value']:.2f} ranks on average {ends}" in row["text"]


def test_draws_are_the_audits(context):
    from dataclasses import replace

    one = examined(BIAS, replace(context, systems=[SYSTEMS[1]], draws=1))
    assert all("mean of 1 draw," in finding.convention for finding in one.findings)


def test_questions_about_one_passage_are_one_cluster(context):
    """The questions' lists are copied under other qids: as many figures, not more evidence."""
    from dataclasses import replace

    twice = {"qid": lambda frame: frame["qid"] + "b"}
    topics, qrels, run = (
        pd.concat([frame, frame.assign(**twice)], ignore_index=True)
        for frame in (DATASET.get_topics(), DATASET.get_qrels(), DATASET.get_candidates())
    )
    copied = replace(SYSTEMS[1], candidates=pt.Transformer.from_df(run) >> DATASET.text_loader())
    alone = {finding.key: finding for finding in examined(BIAS, replace(context, systems=[SYSTEMS[1]])).findings}
    both = examined(BIAS, replace(context, systems=[copied], topics=topics, qrels=qrels)).findings
    primary = next(finding for finding in both if finding.primary)
    single = alone[primary.key]
    assert (primary.n, primary.value, primary.low, primary.high, primary.p) == pytest.approx(
        (60, single.value, single.low, single.high, single.p)
    )
    assert single.clusters is None and primary.clusters.nunique() == 30
    assert "p by exchange randomisation of all queries with the same 'relevant passages' together" in primary.convention
    assert all((finding.clusters is None) == (finding.values is None) for finding in both)


def test_a_window_that_leaves_out_much_is_noted(tmp_path):
    tiny_models.build(tmp_path / "model")
    rng = np.random.default_rng(0)
    rows = [(f"q{q}", "the river", f"d{q}_{d}", " ".join(rng.choice(tiny_models.WORDS, 14))) for q in range(8) for d in range(4)]
    candidates = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"]).assign(score=0.0)
    candidates["rank"] = candidates.groupby("qid").cumcount()
    qrels = pd.DataFrame({"qid": [f"q{q}" for q in range(8)], "docno": [f"d{q}_0" for q in range(8)], "label": 1})

    def notes(ranker):
        found = PositionSensitivity(ranker, draws=1, resamples=19).evaluate(candidates, qrels).notes
        return [note for note in found if "window" in note]

    short, whole = (CrossEncoder(str(tmp_path / "model"), max_length=size, device="cpu") for size in (12, 20))
    cut, left, window = short.cuts(candidates["query"].tolist(), candidates["text"].tolist())
    assert window == 12 and (cut > 0).all()
    told = (
        f"CrossEncoder does not read {cut.sum() / (cut + left).sum():.0%} of the tokens of the passages: 100% of them are longer "
        f"than its window of 12 tokens"
    )
    for ranker in (short, short % 3):
        assert len(notes(ranker)) == 1 and notes(ranker)[0].startswith(told)
    # All is read, passages are scored, the ranker reads other texts, or it is not known what it reads.
    passages = CrossEncoder(str(tmp_path / "model"), max_length=12, device="cpu", long="maxp", passage_length=5, passage_stride=5)
    for ranker in (whole, passages, pt.apply.generic(lambda frame: frame) >> short, pt.apply.generic(short.transform)):
        assert notes(ranker) == []
    dataset = Collection(
        "windows", corpus=candidates[["docno", "text"]], topics={"test": candidates[["qid", "query"]].drop_duplicates()},
        qrels={"test": qrels},
    )  # fmt: skip
    run = pt.Transformer.from_df(candidates.drop(columns="text")) >> dataset.text_loader()
    options = {"biases": "position", "draws": 1, "checkpoint": tmp_path / "kept"}
    report = audit({"short": run >> short, "whole": run >> whole}, dataset, **options)
    assert [note for note in report.settings["notes"] if "window" in note] == [f"short: {notes(short)[0]}"]
    again = audit({"short": run >> short, "whole": run >> whole}, dataset, **options)
    assert again.settings["notes"] == report.settings["notes"]


def test_figures_show_every_system(result):

    assert [figure.name for figure in result.figures] == ["rotation", "placement", "answer-position"]
    for figure, axes, shown in drawn(result.figures):
        assert "30 queries" in axes.get_xlabel()
        assert axes.get_ylabel() == "mean nDCG@10"
        assert "30" in figure.caption
        assert "early" in shown


def test_systems_with_different_numbers_of_queries_are_told_as_a_range():
    import matplotlib.pyplot as plt

    def seen(n, place):
        table = pd.DataFrame({"left": [0.0], "right": [9.0], "value": 0.5, "low": 0.4, "high": 0.6, "n": n})
        return SimpleNamespace(result=SimpleNamespace(buckets=table), system=SimpleNamespace(name=f"of {n}"), place=place)

    figure, axes = plt.subplots()
    _draw_buckets(axes, [seen(90, 0), seen(87, 1)])
    assert " ".join(axes.get_xlabel().split()).endswith("[n = 87 to 90 queries]")
    plt.close(figure)


def test_without_answers_or_systems():
    bare = collection(3)
    bare.answers = None
    context = Context([SYSTEMS[1]], bare, bare.get_topics(), bare.get_qrels())
    result = examined(BIAS, context)
    assert [figure.name for figure in result.figures] == ["rotation"]
    measures = {"nDCG@10", "delta nDCG@10", "RR@10", "R@10", "Judged@10", "displacement"}
    assert {finding.measure for finding in result.findings} == measures
    nothing = examined(BIAS, Context([SYSTEMS[2]], bare, bare.get_topics(), bare.get_qrels()))
    assert (list(nothing.findings), len(nothing.per_query), list(nothing.figures)) == ([], 0, [])


def p_values(strength, seeds):
    """p of the primary test over planted worlds; `benchmarks/position_calibration.py` does the same over 500 seeds."""
    found = []
    for seed in seeds:
        planted = PlantedCollection(seed, topics=40, passages=320)
        run = planted.get_runs()["bm25"].merge(planted.get_topics()[["qid", "query"]], on="qid")
        probe = PositionSensitivity(
            PlantedRanker("position", strength=strength, seed=seed),
            dataset=planted,
            rotation=RotatePassages(seed=seed),
            placements=(),
            measures=["nDCG@10"],
            depth=15,
            resamples=199,
        )
        result = probe.evaluate(planted.text_loader()(run), topics=planted.get_topics())
        found.append(result.table["p"].iloc[0])
    return np.array(found)


def test_false_alarms_are_as_rare_as_they_claim():
    p = p_values(0.0, range(20))
    interval = binomial_interval(int((p <= 0.05).sum()), len(p))
    assert interval.low <= 0.05 <= interval.high
    assert 0.3 < p.mean() < 0.7


def test_a_planted_bias_is_found():
    assert (p_values(1.0, range(5)) <= 0.05).mean() >= 0.8
