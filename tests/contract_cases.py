"""Every public stage, with an input: a new stage joins by one line here."""

import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_debias import (
    TK,
    AddJudged,
    AddScores,
    AdversarialReranker,
    AnnotateGender,
    Answerability,
    AnswerPositions,
    ARaBEvaluator,
    AverageRotations,
    BalancedPairs,
    BiasAwareReranker,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    Disparity,
    EqualizeReranker,
    FocalReranker,
    GroupDROReranker,
    LexiconProfiles,
    LinguisticComplexity,
    MATSProbe,
    MultiVector,
    NeutralReranker,
    OnlyJudged,
    PlantedRanker,
    PositionSensitivity,
    QueryGender,
    RelabelReranker,
    RepeatNounPhrases,
    RewriteQueries,
    RotatePassages,
    SparseEncoder,
    SurvivorshipCurve,
    SurvivorshipSubset,
    SwapGender,
    T5Reranker,
    Training,
    WordingSensitivity,
)
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.pooling.measures.max_rep import MaxRep
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from tests import tiny_models
from tests.contract import Case
from tests.position.toy import Overlap, blind
from tests.survivorship import toy as survivorship

CORPUS = pd.DataFrame(
    {
        "docno": [f"d{i}" for i in range(6)],
        "text": [
            "Paris lies on the Seine. It is the capital of France.",
            "The Seine flows into the sea. Boats go up and down.",
            "one",
            "",
            "A capital is where the government of a country sits. Some move.",
            "Tea is made with hot water, not with boiling milk.",
        ],
        "title": list("abcdef"),
    }
)
RESULTS = pd.DataFrame(
    {
        "qid": ["q1"] * 4 + ["q2"] * 4,
        "query": ["what is the capital of france"] * 4 + ["how is tea made"] * 4,
        "docno": ["d0", "d1", "d2", "d4", "d5", "d3", "d0", "d4"],
        "score": [4.0, 3.0, 2.0, 1.0, 4.0, 3.0, 2.0, 1.0],
        "rank": [0, 1, 2, 3, 0, 1, 2, 3],
    }
)
JUDGED = pd.DataFrame({"qid": ["q1", "q2", "q3"], "docno": ["d3", "d1", "d2"], "label": [2, 1, 1]})


def texts() -> pd.DataFrame:
    return RESULTS.merge(CORPUS[["docno", "text"]], on="docno", how="left")


def women() -> pd.DataFrame:
    """Some of the documents speak of women."""
    frame = texts()
    return frame.assign(text=frame["text"] + np.where(frame["docno"].isin(["d1", "d5"]), " She and her mother.", ""))


def profiled() -> pd.DataFrame:
    """Documents with a gender and a profile."""
    return women().assign(gender=["female", "male"] * 4, **{"profile.a": range(8), "profile.b": range(8, 0, -1)})


def answers() -> pd.DataFrame:
    return texts()[["qid", "docno", "text"]].assign(answer="France", answers=[["France"]] * len(RESULTS))


@cache
def folder(builder: str, **options) -> str:
    """A tiny random model, built when a check first asks for it."""
    return str(getattr(tiny_models, builder)(Path(tempfile.mkdtemp()) / builder, **options))


def ranker(make: type, builder: str, **options) -> Case:
    """A case of a ranker; its double differs by the text it reads, so that no second model is needed."""

    def build(**more):
        return make(folder(builder), **options, **more)

    told = ", ".join(value if isinstance(value, str) else name for name, value in options.items())
    return Case(f"{make.__name__}({told})", build, texts, partial(build, max_length=16))


def rankt5(**options) -> T5Reranker:
    """The head that reads the logit of a further token, which the tokeniser must know."""
    return T5Reranker(folder("build_t5", extra=True), head="rankt5", **options)


@cache
def published(name: str) -> str:
    """Random weights of a published bi-encoder."""
    return str(tiny_models.build_published(Path(tempfile.mkdtemp()) / name, name=name))


def adore(**options) -> BiEncoder:
    """Queries and documents have an encoder each; the options are those of the documents'."""
    return BiEncoder.of("adore", published("adore"), documents_by=BiEncoder.of("star", published("star"), **options))


@cache
def fitted(make: type) -> str:
    """A stage that trains a copy of a ranker, fitted for one step, as a folder."""
    path = Path(tempfile.mkdtemp()) / make.__name__
    stage = make(CrossEncoder(folder("build")), training=Training(max_steps=1, batch_size=2))
    qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1})
    stage.fit(women().assign(complexity=lambda f: f["qid"].str[1:].astype(float)), qrels).save(path)
    return str(path)


def lengths(frame: pd.DataFrame) -> pd.Series:
    """A judge who likes long texts."""
    return frame["text"].str.len() / 100


@cache
def relabelled() -> str:
    """A stage with a judge, fitted for one step, as a folder."""
    path = Path(tempfile.mkdtemp()) / "RelabelReranker"
    stage = RelabelReranker(CrossEncoder(folder("build")), lengths, training=Training(max_steps=1, batch_size=2))
    stage.fit(women(), pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1})).save(path)
    return str(path)


@cache
def vectors() -> str:
    """A folder of the corpus' vectors."""
    path = Path(tempfile.mkdtemp()) / "vectors"
    BiEncoder(folder("build_sentence_transformer")).retriever(CORPUS[CORPUS["text"] != ""], folder=path)
    return str(path)


def trained(make: type, **other) -> Case:
    """A case of such a stage."""
    return Case(make.__name__, lambda: make.load(fitted(make)), women, lambda: make.load(fitted(make), **other))


RANDOM = {"rotations": 2, "combine": "max", "spacing": "random", "original": False}


def averaged(**options) -> AverageRotations:
    """A ranker that likes early words, over rotations."""
    return AverageRotations(Overlap(early=1.0), **options)


def topics() -> pd.DataFrame:
    return RESULTS[["qid", "query"]].drop_duplicates(ignore_index=True)


def values() -> pd.DataFrame:
    """A measure of each query, and the complexity of its wording."""
    frame = pd.DataFrame({"qid": [f"q{i}" for i in range(4)], "value": [0.1, 0.7, 0.4, 0.9], "complexity": [1.0, 3.0, 2.0, 0.0]})
    return frame.assign(name="one", measure="nDCG@10")


CASES = [
    Case("TextLoader", lambda: TextLoader(CORPUS), lambda: RESULTS, lambda: TextLoader(CORPUS, ("title",))),
    Case(
        "AddJudged",
        lambda: AddJudged(JUDGED),
        lambda: RESULTS.drop(columns=["score", "rank"]),  # what is added has no score, so that ranks cannot agree
        lambda: AddJudged(JUDGED, min_label=2),
        rowwise=False,
    ),
    Case("AddScores", lambda: AddScores(PlantedRanker()), texts, lambda: AddScores(PlantedRanker(), "other")),
    Case(
        "MaxRep",
        lambda: MaxRep({"d3": ["d0", "d1"], "d1": ["d5"]}, JUDGED),
        lambda: RESULTS,
        lambda: MaxRep({"d3": ["d0", "d1"], "d1": ["d5"]}, JUDGED, k=1, min_label=2),
    ),
    Case(
        "OnlyJudged",
        lambda: OnlyJudged(RESULTS[["qid", "docno"]].iloc[[0, 2, 3, 5, 6]].assign(label=1)),
        lambda: RESULTS,
        lambda: OnlyJudged(JUDGED),
    ),
    Case("RotatePassages", RotatePassages, texts, lambda: RotatePassages(seed=1)),
    Case("RotatePassages(pair)", lambda: RotatePassages(scope="pair"), texts, lambda: RotatePassages(unit="sentence")),
    Case("RotatePassages(documents)", RotatePassages, lambda: CORPUS, lambda: RotatePassages(keep_original=True)),
    Case("AverageRotations", averaged, texts, lambda: averaged(rotations=3)),
    Case("AverageRotations(random)", partial(averaged, **RANDOM), texts, lambda: averaged(**RANDOM, seed=1)),
    Case(
        "AnswerPositions",
        AnswerPositions,
        answers,
        lambda: AnswerPositions(rotation=RotatePassages(unit="sentence")),
        rowwise=False,
    ),
    Case(
        "AnswerPositions(pair)",
        lambda: AnswerPositions(rotation=RotatePassages(scope="pair")),
        answers,
        lambda: AnswerPositions(rotation=RotatePassages(scope="pair", seed=1)),
        rowwise=False,
    ),
    Case(
        "PositionSensitivity",
        lambda: PositionSensitivity(Overlap(early=1.0)),
        texts,
        lambda: PositionSensitivity(Overlap(early=0.5)),
        rowwise=False,
    ),
    ranker(CrossEncoder, "build"),
    ranker(CrossEncoder, "build", long="maxp"),
    ranker(CrossEncoder, "build", long="sentences"),
    *(
        ranker(CrossEncoder, "build", head=head, long="windows", passage_length=6, passage_stride=4)
        for head in ("parade-max", "parade-avg", "parade-attention", "parade-transformer", "cedr-knrm")
    ),
    ranker(BiEncoder, "build_sentence_transformer"),
    ranker(BiEncoder, "build_sentence_transformer", similarity="cosine"),
    Case("BiEncoder(documents_by)", adore, texts, partial(adore, max_length=16)),
    ranker(MultiVector, "build_multi_vector"),
    ranker(MultiVector, "build_stanford"),
    ranker(SparseEncoder, "build_sparse"),
    ranker(SparseEncoder, "build_sparse", long="maxp"),
    ranker(T5Reranker, "build_t5"),
    Case("T5Reranker(rankt5)", rankt5, texts, partial(rankt5, max_length=16)),
    ranker(T5Reranker, "build_t5", head="rankt5-encoder"),
    Case(  # compares the documents of a list
        "DuoT5Reranker",
        lambda: DuoT5Reranker(folder("build_t5")),
        texts,
        lambda: DuoT5Reranker(folder("build_t5"), text_field="docno"),
        rowwise=False,
    ),
    ranker(TK, "build_tk"),
    trained(CETReranker, tau=2.0),
    trained(EqualizeReranker, alpha=0.2),
    trained(FocalReranker, gamma=1.0),
    trained(GroupDROReranker, bins=2),
    trained(KernelWhiteningReranker, refresh=2),
    Case(
        "RelabelReranker",
        lambda: RelabelReranker.load(relabelled()),
        women,
        lambda: RelabelReranker.load(relabelled(), action="drop"),
    ),
    trained(BiasAwareReranker, strength=0.5),
    trained(AdversarialReranker, reversal=0.5),
    Case(
        "RepeatNounPhrases",
        lambda: RepeatNounPhrases(tagger="textblob"),
        topics,
        lambda: RepeatNounPhrases(tagger="textblob", times=2),
    ),
    Case("RewriteQueries", RewriteQueries, topics, lambda: RewriteQueries("keywords")),
    Case("RewriteQueries(results)", lambda: RewriteQueries("keywords"), texts, RewriteQueries),
    Case("Disparity", Disparity, values, lambda: Disparity(bins=2), rowwise=False),
    Case(
        "WordingSensitivity",
        lambda: WordingSensitivity(PlantedRanker()),
        texts,
        lambda: WordingSensitivity(PlantedRanker(), rewrites=["keywords"]),
        rowwise=False,
    ),
    Case(
        "LinguisticComplexity",  # normalised over the frame that it is given
        LinguisticComplexity,
        topics,
        lambda: LinguisticComplexity(undefined="zero"),
        rowwise=False,
    ),
    Case(
        "LinguisticComplexity(fitted)",
        lambda: LinguisticComplexity(keep_indices=True).fit(topics()),
        lambda: RESULTS,
        lambda: LinguisticComplexity(keep_indices=True),
    ),
    Case("AnnotateGender", AnnotateGender, women, lambda: AnnotateGender(method="bool")),
    Case(
        "AnnotateGender(documents)",
        lambda: AnnotateGender(wordlist={"a": ["tea"], "b": ["paris"]}),
        lambda: CORPUS,
        AnnotateGender,
    ),
    Case("ARaBEvaluator", lambda: ARaBEvaluator([1, 3]), women, lambda: ARaBEvaluator([2]), rowwise=False),
    Case("LexiconProfiles", lambda: LexiconProfiles({"posemo": ["happ*", "the"]}), texts, lambda: LexiconProfiles("debias")),
    Case("QueryGender", QueryGender, topics, lambda: QueryGender(text_field="text")),
    Case("QueryGender(documents)", lambda: QueryGender(text_field="text"), women, QueryGender),
    Case("BalancedPairs", BalancedPairs, profiled, lambda: BalancedPairs(replacement=True), rowwise=False),
    Case("SwapGender", SwapGender, women, lambda: SwapGender(share=0.5)),
    Case("SwapGender(queries)", lambda: SwapGender(queries=True, share=0.5), women, lambda: SwapGender(queries=True, seed=1)),
    Case("NeutralReranker", NeutralReranker, women, lambda: NeutralReranker(0.2), rowwise=False),
    Case("NeutralReranker(raw)", lambda: NeutralReranker(normalise=None), women, NeutralReranker),
    Case(
        "SurvivorshipSubset",
        lambda: SurvivorshipSubset(survivorship.SHOWN, survivorship.LABELS),
        lambda: survivorship.RESULTS,
        lambda: SurvivorshipSubset(survivorship.SHOWN, survivorship.LABELS, rank=1),
    ),
    Case(
        "SurvivorshipSubset(queries)",
        lambda: SurvivorshipSubset(survivorship.SHOWN, survivorship.LABELS),
        lambda: survivorship.ASKED.head(2),
        lambda: SurvivorshipSubset(survivorship.SHOWN, survivorship.LABELS, exact=True),
    ),
    Case(
        "SurvivorshipCurve",
        lambda: SurvivorshipCurve({"mine": survivorship.RESULTS}, survivorship.SHOWN, survivorship.LABELS, ranks=3),
        lambda: survivorship.ASKED,
        lambda: SurvivorshipCurve({"mine": survivorship.RESULTS}, survivorship.SHOWN, survivorship.LABELS, ranks=2),
        rowwise=False,
    ),
    Case(
        "Answerability",
        lambda: Answerability().fit(survivorship.answerable(60, 1)[0]),
        lambda: survivorship.answerable(4, 2)[0][["qid", "query"]],
        lambda: Answerability(strength=2.0).fit(survivorship.answerable(60, 1)[0]),
    ),
    Case("MATSProbe", lambda: MATSProbe(blind), lambda: CORPUS, lambda: MATSProbe(blind, pair_scope="all"), rowwise=False),
    Case("PlantedRanker", PlantedRanker, texts, lambda: PlantedRanker(strength=0.0)),
    Case(
        "BiEncoder.query_encoder",
        lambda: BiEncoder(folder("build_sentence_transformer")).query_encoder(),
        topics,
        lambda: BiEncoder(folder("build_sentence_transformer"), max_length=16).query_encoder(),
    ),
    Case(
        "BiEncoder.retriever",
        lambda: BiEncoder(folder("build_sentence_transformer")).retriever(vectors(), num_results=5),
        topics,
        lambda: BiEncoder(folder("build_sentence_transformer")).retriever(vectors(), num_results=2),
        rowwise=False,
    ),
    Case(
        "BiEncoder.doc_encoder",
        lambda: BiEncoder(folder("build_sentence_transformer")).doc_encoder(),
        lambda: CORPUS,
        lambda: BiEncoder(folder("build_sentence_transformer"), max_length=16).doc_encoder(),
    ),
]
