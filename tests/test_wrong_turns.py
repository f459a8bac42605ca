"""What a new user does wrong, and the remedy that the error names."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    AddJudged,
    AverageRotations,
    BiEncoder,
    CETReranker,
    Collection,
    CrossEncoder,
    HiddenJudgements,
    InputError,
    OnlyJudged,
    PlantedCollection,
    PositionSensitivity,
    RotatePassages,
    TerrierCollection,
    Training,
    audit,
    compare,
    open_dataset,
    pareto,
)

DATASET = PlantedCollection(topics=4)
TOPICS, QRELS, RUN = DATASET.get_topics(), DATASET.get_qrels(), DATASET.get_runs()["bm25"]
BM25 = pt.Transformer.from_df(RUN)
TEXTS = BM25 >> DATASET.text_loader()
RANKER = BiEncoder("all-MiniLM-L6-v2")

WRONG = {
    "no text loader": (lambda: (BM25 >> RotatePassages() >> RANKER)(TOPICS), r"dataset\.text_loader\(\)"),
    "the text loader last": (lambda: (BM25 >> RANKER >> DATASET.text_loader())(TOPICS), r"dataset\.text_loader\(\)"),
    "no text loader, audited": (lambda: audit({"mine": BM25 >> RANKER}, DATASET, biases="position"), r"dataset\.text_loader\(\)"),
    "a run without text": (lambda: RANKER(RUN.merge(TOPICS, on="qid")), r"dataset\.text_loader\(\)"),
    "no queries": (lambda: RANKER(RUN), r"run\.merge\(topics, on='qid'\)"),
    "fit forgotten": (lambda: (TEXTS >> CETReranker(CrossEncoder("model")))(TOPICS), r"fit\(\) must be called first"),
    "fitted on topics": (lambda: CrossEncoder("model").fit(TOPICS, QRELS), "put a retriever before it"),
    "options in a dictionary": (
        lambda: CrossEncoder("model", training={"epochs": 1}).fit(TEXTS(TOPICS), QRELS), r"training=Training\(epochs=1\)",
    ),
    "an index that is none": (lambda: TerrierCollection("no/index", DATASET), "name the index's folder"),
    "a folder that is none": (lambda: open_dataset("no/folder"), "'irds:"),
    "a retriever, audited": (
        lambda: audit({"mine": BM25 >> pt.apply.generic(lambda found: found)}, DATASET, biases="position"),
        r"put a text loader before the ranker .* if it is a retriever.* TerrierCollection\(index, dataset\).*indexer=",
    ),
    "a run, audited": (lambda: audit({"mine": BM25}, DATASET, biases="position"), r"it is a run, .* audit the ranker itself"),
    "a misspelt bias": (lambda: audit({"mine": BM25}, DATASET, biases="positon"), "position, survivorship"),
    "a misspelt option": (lambda: Training(lr=1e-5), "did you mean 'learning_rate'"),
    "labels in words": (
        lambda: PositionSensitivity(TEXTS >> RANKER).evaluate(TOPICS, QRELS.assign(label="high")), r"\.map\(\{'relevant': 1",
    ),
    "labels under another name": (
        lambda: PositionSensitivity(TEXTS >> RANKER).evaluate(TOPICS, QRELS.rename(columns={"label": "rel"})),
        r"qrels\.rename\(columns=",
    ),
    "a file for judgements": (lambda: AddJudged("qrels.txt")(RUN), r"pt\.io\.read_qrels\('qrels\.txt'\)"),
    "a dataset for judgements": (lambda: AddJudged(DATASET)(RUN), r"dataset\.get_qrels\(\)"),
    "a file for judgements, only judged": (lambda: OnlyJudged("qrels.txt")(RUN), r"read_qrels"),
    "a name for a run": (lambda: HiddenJudgements(QRELS, "bm25"), r"pt\.io\.read_results"),
    "topics without a split": (
        lambda: Collection("x", corpus=DATASET.get_corpus(), topics=TOPICS, qrels={"test": QRELS}),
        r"x: topics is one frame; give a mapping from split to frame, e\.g\. \{'test': frame\}",
    ),
    "judgements without a split": (
        lambda: Collection("x", corpus=DATASET.get_corpus(), topics={"test": TOPICS}, qrels=QRELS), "x: qrels is one frame",
    ),
    "a retriever for a ranker": (
        lambda: (TEXTS >> AverageRotations(BM25))(TOPICS),
        "AverageRotations: rotations cannot reach the ranker.*SourceTransformer, which scores documents of an index",
    ),
    "runs for audits": (lambda: compare(RUN, RUN), "a DataFrame is not an audit"),
    "runs for audits, on a front": (lambda: pareto([RUN], "gender"), "a DataFrame is not an audit"),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_error_names_the_remedy(name):
    wrong, remedy = WRONG[name]
    with pytest.raises(InputError, match=remedy) as found:
        wrong()
    assert "\n" not in str(found.value) and len(str(found.value)) < 600


def test_an_argument_that_is_forgotten_is_told_with_the_class():
    with pytest.raises(TypeError, match=r"HiddenJudgements.*'pool_run'"):
        HiddenJudgements(QRELS)


def test_the_right_way_works():
    assert len(pd.DataFrame((TEXTS >> RotatePassages())(TOPICS)))
