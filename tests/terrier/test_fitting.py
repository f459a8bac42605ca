"""Every ranker and every stage that trains one, fitted at the end of a Terrier pipeline."""

import pyterrier as pt
import pytest

from pyterrier_debias import (
    TK,
    AddJudged,
    AddScores,
    AdversarialReranker,
    BiasAwareReranker,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    EqualizeReranker,
    FocalReranker,
    GroupDROReranker,
    HiddenJudgements,
    InputError,
    LinguisticComplexity,
    MultiVector,
    PlantedRanker,
    PoolEvidence,
    RelabelReranker,
    ReverseComplexity,
    RotatePassages,
    SparseEncoder,
    T5Reranker,
    Training,
)
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from tests.contract_cases import folder

pytestmark = pytest.mark.java

STEP = Training(max_steps=1, batch_size=2)
DEPTH = 6


def of_folder(make, builder, **options):
    return lambda: make(folder(builder), training=Training(max_steps=1, batch_size=2, **options))


def around(make, **options):
    return lambda: make(CrossEncoder(folder("build"), max_length=32), training=STEP, **options)


#: Name: how the stage is made.
ESTIMATORS = {
    "CrossEncoder": of_folder(CrossEncoder, "build"),
    "CrossEncoder(augment)": of_folder(CrossEncoder, "build", augment=RotatePassages()),
    "CrossEncoder(weights)": of_folder(CrossEncoder, "build", weights=ReverseComplexity()),
    "BiEncoder": of_folder(BiEncoder, "build_sentence_transformer", in_batch_negatives=True),
    "MultiVector": of_folder(MultiVector, "build_multi_vector"),
    "SparseEncoder": of_folder(SparseEncoder, "build_sparse"),
    "T5Reranker": of_folder(T5Reranker, "build_t5"),
    "TK": of_folder(TK, "build_tk"),
    "CETReranker": around(CETReranker),
    "EqualizeReranker": around(EqualizeReranker),
    "FocalReranker": around(FocalReranker),
    "GroupDROReranker": around(GroupDROReranker),
    "KernelWhiteningReranker": around(KernelWhiteningReranker, landmarks=8, sample=16),
    "BiasAwareReranker": around(BiasAwareReranker),
    "AdversarialReranker": around(AdversarialReranker),
    "RelabelReranker": around(RelabelReranker, judge=PlantedRanker()),
}


@pytest.fixture(scope="module")
def asked(planted):
    """Topics for training, others for the experiment, and the judgements of both; tiny models read short queries only."""
    topics = planted.get_topics()
    topics = topics.loc[topics["query"].str.len().sort_values().index[:6]]
    return topics.head(4), topics.tail(2), planted.get_qrels()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_with_judged_documents_and_the_datasets_texts(name, planted, planted_index, asked):
    train, test, qrels = asked
    stage = ESTIMATORS[name]()
    retriever = planted_index.bm25() % DEPTH >> LinguisticComplexity()
    (retriever >> AddJudged(qrels) >> planted.text_loader() >> stage).fit(train, qrels)
    check_experiment(retriever >> planted.text_loader(), stage, test, qrels)


@pytest.mark.parametrize("name", ["CrossEncoder", "CETReranker"])
def test_fit_with_the_indexs_texts(name, planted_index, asked):
    train, test, qrels = asked
    stage = ESTIMATORS[name]()
    bm25, texts = planted_index.bm25() % DEPTH, planted_index.text_loader("text")
    (bm25 >> AddJudged(qrels) >> texts >> stage).fit(train, qrels)
    check_experiment(bm25 >> texts, stage, test, qrels)


def test_added_documents_get_their_evidence_from_another_retriever(planted_index, asked):
    """Added documents have no docid; the retriever that scores them finds them by docno."""
    train, test, qrels = asked
    stage = around(CETReranker, selection=PoolEvidence(scorer=planted_index.dph()))()
    bm25, texts = planted_index.bm25() % DEPTH, planted_index.text_loader("text")
    (bm25 >> AddJudged(qrels) >> texts >> stage).fit(train, qrels)
    check_experiment(bm25 >> texts, stage, test, qrels)


def check_experiment(candidates, stage, topics, qrels):
    """The fitted stage was trained, and ranks other topics' candidates anew, all of them."""
    assert stage.training_report.steps == 1
    measures = [pt.measures.nDCG @ 10, pt.measures.NumRet]
    table = pt.Experiment([candidates, candidates >> stage], topics, qrels, measures, validate="error", plan="tree")
    assert table["NumRet"].nunique() == 1 and table["nDCG@10"].between(0, 1).all()
    found = (candidates >> stage)(topics)
    assert found.groupby("qid")["score"].nunique().gt(1).all()


def test_trainings_behind_the_indexs_text_loader_are_compared(planted, planted_index, tmp_path):
    """Stages that hold a Java object cannot be copied; text loaders of indexes in memory cannot be distinguished."""
    topics, qrels = planted.get_topics(), planted.get_qrels()
    candidates = (planted_index.dph() % DEPTH)(topics)
    train, test = (candidates[candidates["qid"].isin(some["qid"])] for some in (topics.head(10), topics.tail(4)))
    judgements = HiddenJudgements(qrels, planted_index.bm25()(topics), depth=3)

    def compare(loader, **options):
        corrections = {"plain": loader >> ESTIMATORS["CrossEncoder"]()}
        return judgements.compare(corrections, train, test, seeds=(0,), resamples=10, oracle=None, **options)

    assert compare(planted_index.text_loader("text")).corrections == ["plain"]
    in_memory = pt.IterDictIndexer(str(tmp_path), type=pt.terrier.IndexingType.MEMORY, meta={"docno": 20, "text": 8_192})
    index = pt.terrier.TerrierIndex.coerce(in_memory.index(planted.get_corpus_iter(verbose=False)))
    with pytest.raises(InputError, match="index into a folder, or leave checkpoint out"):
        compare(index.text_loader("text"), checkpoint=tmp_path / "kept")
    # A retriever in memory is told from others by its words and documents.
    scored = AddScores(index.bm25()) >> planted_index.text_loader("text")
    assert compare(scored, checkpoint=tmp_path / "scored").corrections == ["plain"]
