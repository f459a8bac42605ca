"""Experiments over Terrier: measures beside nDCG, saved results, scans of a stage's options."""

import pickle
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    ARaB,
    FaiRR,
    InputError,
    LexiconGap,
    NeutralReranker,
    NFaiRR,
    PlantedRanker,
    RaB,
    RotatePassages,
    WordList,
)
from tests.contract import Counted

pytestmark = pytest.mark.java

K, DEPTH = 10, 30
LEXICON = {"male": ["he", "his", "him"], "female": ["she", "her", "hers"]}


@pytest.fixture(scope="module")
def asked(planted):
    """Topics of the planted collection, half of them, and all judgements of these."""
    topics = planted.get_topics().head(8)
    qrels = planted.get_qrels()
    return topics[["qid", "query"]], qrels[qrels["qid"].isin(topics["qid"])]


@pytest.fixture(scope="module")
def ranking(planted_index):
    """BM25 with its texts, and a ranker with a preference for one gender."""
    return planted_index.bm25(include_fields=["text"]) % DEPTH >> PlantedRanker("gender", strength=1.0)


# By hand, from a query's rows of the run in the order of their ranks, with texts and labels


def counts(rows):
    """How many male and female words each text has."""
    words = WordList.of("debias").groups
    found = [re.findall(r"\w+", text.lower()) for text in rows["text"]]
    return np.array([[sum(word in words[group] for word in own) for group in ("male", "female")] for own in found], dtype=float)


def rab(rows, k=K):
    return np.mean(np.log1p(counts(rows.head(k))) @ [1, -1])


def neutral(rows):
    own = [(male, male + female) for male, female in counts(rows)]
    return [1 - 2 * abs(male / both - 0.5) if both > 1 else 1.0 for male, both in own]


def fairr(neutrality):
    return sum(value / np.log2(rank + 1) for rank, value in enumerate(neutrality[:K], 1))


def lexicon_gap(rows):
    words = [re.findall(r"\w+", text.lower()) for text in rows["text"].head(K)]
    male, female = ([np.mean([word in LEXICON[name] for word in own]) for own in words] for name in LEXICON)
    return np.mean(male) - np.mean(female)


#: Name: a measure of given texts, and what it is by hand.
MEASURES = {
    "ARaB": (lambda texts: ARaB(texts=texts) @ K, lambda rows: np.mean([rab(rows, k) for k in range(1, min(K, len(rows)) + 1)])),
    "RaB": (lambda texts: RaB(texts=texts) @ K, rab),
    "FaiRR": (lambda texts: FaiRR(texts=texts) @ K, lambda rows: fairr(neutral(rows))),
    "NFaiRR": (
        lambda texts: NFaiRR(texts=texts) @ K,
        lambda rows: fairr(neutral(rows)) / fairr(sorted(neutral(rows), reverse=True)),
    ),
    "LexiconGap": (lambda texts: LexiconGap(lexicon=LEXICON, signed=True, texts=texts) @ K, lexicon_gap),
    "Judged": (lambda texts: pt.measures.Judged @ K, lambda rows: rows["label"].head(K).notna().mean()),
}


def values(pipelines, asked, measure, **options):
    """A measure of each query, worked out beside nDCG."""
    table = pt.Experiment(pipelines, *asked, [pt.measures.nDCG @ K, measure], perquery=True, validate="error", **options)
    assert set(table["measure"]) == {f"nDCG@{K}", str(measure)}
    return dict(table[table["measure"] == str(measure)].set_index("qid")["value"])


@pytest.mark.parametrize("name", MEASURES)
def test_measures_beside_ndcg_are_those_worked_out_by_hand(name, ranking, planted_index, asked):
    make, by_hand = MEASURES[name]
    topics, qrels = asked
    run = ranking(topics).merge(qrels, on=["qid", "docno"], how="left").sort_values("rank")
    expected = pytest.approx({qid: by_hand(rows) for qid, rows in run.groupby("qid")}, abs=1e-6)
    assert values([ranking], asked, make(None)) == expected
    without = pt.apply.generic(lambda frame: frame[["qid", "docno", "rank", "score"]])
    assert values([ranking >> without], asked, make(planted_index.text_loader("text"))) == expected


def test_saved_results_are_measured_as_new_ones(ranking, planted_index, planted, asked, tmp_path, monkeypatch):
    """Results on disk have no text, so measures of texts load it; nothing is retrieved again."""
    measures = [pt.measures.nDCG @ K, pt.measures.Judged @ K]
    measures += [ARaB(texts=planted.text_loader()) @ K, NFaiRR(texts=planted_index.text_loader("text")) @ K]
    options = {"names": ["BM25", "ranker"], "save_dir": str(tmp_path), "save_mode": "reuse"}
    pipelines = [planted_index.bm25(include_fields=["text"]) % DEPTH, ranking]
    new = pt.Experiment(pipelines, *asked, measures, plan="linear", **options)
    retrievals = Counted(monkeypatch, pt.terrier.Retriever)
    saved = pt.Experiment(pipelines, *asked, measures, plan="linear", **options)
    assert retrievals.calls == 0
    pd.testing.assert_frame_equal(new, saved, atol=1e-6)
    assert new["nDCG@10"].nunique() == 2


def test_results_saved_with_their_texts_are_measured_by_them(ranking, asked, tmp_path):
    options = {"names": ["ranker"], "save_dir": str(tmp_path), "save_mode": "reuse", "save_format": pickle}
    new, saved = (pt.Experiment([ranking], *asked, [ARaB @ K, NFaiRR @ K], **options) for _ in range(2))
    pd.testing.assert_frame_equal(new, saved)


def test_measures_of_texts_say_that_saved_results_have_none(ranking, asked, tmp_path):
    options = {"names": ["ranker"], "save_dir": str(tmp_path), "save_mode": "reuse"}
    pt.Experiment([ranking], *asked, [ARaB @ K], **options)
    with pytest.raises(InputError, match="the results have no column 'text'"):
        pt.Experiment([ranking], *asked, [ARaB @ K], **options)


#: Name: a stage behind the retriever, an option, and its values.
SCANS = {
    "RotatePassages": (lambda: RotatePassages(), "draw", [0, 1, 2]),
    "NeutralReranker": (lambda: NeutralReranker(), "strength", [0.0, 0.5, 1.0]),
}


@pytest.mark.parametrize("name", SCANS)
def test_scans_are_experiments_with_each_value(name, planted_index, asked):
    make, option, tried = SCANS[name]
    retriever = planted_index.bm25(include_fields=["text"]) % DEPTH
    ranker = PlantedRanker("position" if name == "RotatePassages" else "gender")

    def placed(stage):
        return retriever >> (stage >> ranker if name == "RotatePassages" else ranker >> stage)

    stage = make()
    measures = [pt.measures.nDCG @ K, ARaB @ K]
    scan = pt.GridScan(placed(stage), {stage: {option: tried}}, *asked, measures)
    alone = pt.Experiment([placed(stage.apply_attributes(**{option: value})) for value in tried], *asked, measures, plan="tree")
    assert scan[f"tran_0_{option}"].tolist() == tried
    assert np.allclose(scan[[str(m) for m in measures]], alone[[str(m) for m in measures]])
    assert alone["nDCG@10"].nunique() > 1
