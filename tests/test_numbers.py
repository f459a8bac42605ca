"""Options that are numbers refuse text, lists and NaN in words, before anything is loaded or computed."""

import inspect
import re

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

import pyterrier_debias
from pyterrier_debias import (
    TK,
    AddJudged,
    AdversarialReranker,
    AnnotateGender,
    Answerability,
    ARaBEvaluator,
    AverageRotations,
    BalancedPairs,
    BiasAwareNegatives,
    BiasAwareReranker,
    BiEncoder,
    CETReranker,
    Collection,
    CrossEncoder,
    DenoisedNegatives,
    Disparity,
    EqualizeReranker,
    FaiRR,
    FewerSteps,
    FocalReranker,
    GenderClassifier,
    GroupDROReranker,
    HiddenJudgements,
    InputError,
    LessData,
    LinguisticComplexity,
    MATSProbe,
    MultiVector,
    NeutralReranker,
    NFaiRR,
    PlantedCollection,
    PlantedRanker,
    PoolEvidence,
    PositionSensitivity,
    PositiveAwareNegatives,
    RankDistribution,
    RankWindow,
    RelabelReranker,
    RepeatNounPhrases,
    RotatePassages,
    SparseEncoder,
    SurvivorshipCurve,
    SurvivorshipSubset,
    SwapGender,
    T5Reranker,
    Training,
    WeakerModel,
    WordingSensitivity,
    compare,
    dataset_report,
    intervene,
)
from pyterrier_debias.gender.measures.exposure import ExpectedExposure
from pyterrier_debias.gender.training.balanced import augment_balanced, choose_ratio
from pyterrier_debias.linguistic.formulas.product_of_experts import joint_scores
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.pooling.formulas.cet_weights import log_weights, pair_weights
from pyterrier_debias.pooling.formulas.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.pooling.measures.max_rep import MaxRep
from pyterrier_debias.pooling.training.negatives import rank_chances
from pyterrier_debias.survivorship.data.annotations import rank_annotations
from tests.contract_cases import CORPUS, blind, folder, profiled, texts, topics, values, women
from tests.contract_cases import RESULTS as FOUND
from tests.gender.letters import Letters
from tests.position.toy import Overlap
from tests.survivorship.toy import ASKED, LABELS, RESULTS, SHOWN, answerable

JUDGED = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1})


def tensor(*numbers):
    import torch

    return torch.tensor([numbers])


def trained(make, **given):
    return lambda **more: make(CrossEncoder("no/such-model"), **given, **more).fit(women().assign(complexity=1.0), JUDGED)


def report(**options):
    toy = Collection("toy", corpus=CORPUS, topics={"test": topics()}, qrels={"test": JUDGED}, candidates=FOUND)
    return dataset_report(toy, **options)


def evaluated(measure):
    return pt.Evaluate(women(), JUDGED, [measure])


def long_texts(make, builder):
    return lambda **options: make(folder(builder), long="maxp", **options)(texts())


def classifier(**options):
    queries = ["tea for her", "tea for him", "tea and water"] * 4
    return GenderClassifier(Letters(), **options).fit(queries, ["female", "male", "neutral"] * 4)


PAIRS = {"match": [0, 0], "qid": ["a", "b"], "docno": ["d0", "d1"], "query": ["she", "he"], "gender": ["female", "male"]}
NEAR = {"d3": ["d0", "d1"], "d1": ["d5"]}
LIMITS = ("max_length", "batch_tokens", "passage_length", "passage_stride")
CALLS = {
    ("RotatePassages", "seed", "draw", "offset", "share"): lambda **o: RotatePassages(**o)(texts()),
    ("AverageRotations", "seed"): lambda **o: AverageRotations(Overlap(), **o)(texts()),
    ("PositionSensitivity", "draws", "depth", "queries_per_call", "level", "resamples"):
        lambda **o: PositionSensitivity(Overlap(), **o)(texts()),
    ("MATSProbe", "ddof", "max_delta", "min_pairs", "sample", "memory"): lambda **o: MATSProbe(blind, **o)(CORPUS),
    ("SurvivorshipSubset", "rank"): lambda **o: SurvivorshipSubset(SHOWN, LABELS, **o)(ASKED),
    ("SurvivorshipCurve", "min_label"): lambda **o: SurvivorshipCurve({"m": RESULTS}, SHOWN, LABELS, **o)(ASKED),
    ("dataset_report", "min_label"): report,
    ("rank_annotations", "depth"): lambda **o: rank_annotations({"m": RESULTS}, LABELS, labelled_by="me", **o),
    ("FaiRR", "threshold"): lambda **o: evaluated(FaiRR(**o) @ 2),
    ("NFaiRR", "threshold", "depth"): lambda **o: evaluated(NFaiRR(**o) @ 2),
    ("ExpectedExposure", "patience"): lambda **o: evaluated(ExpectedExposure(**o) @ 2),
    ("ARaBEvaluator", "threshold", "depth"): lambda **o: ARaBEvaluator(**o)(women()),
    ("AnnotateGender", "threshold"): lambda **o: AnnotateGender(**o)(women()),
    ("GenderClassifier", "strength", "epochs", "learning_rate", "batch_size"): classifier,
    ("BalancedPairs", "min_similarity"): lambda **o: BalancedPairs(**o)(profiled()),
    ("augment_balanced", "ratio"): lambda **o: augment_balanced(topics(), JUDGED, pd.DataFrame(PAIRS), **o),
    ("choose_ratio", "level", "margin"): lambda **o: choose_ratio({0: [1.0, 2.0], 0.5: [1.0, 2.0]}, **o),
    ("SwapGender", "share"): lambda **o: SwapGender(**o)(women()),
    ("BiasAwareNegatives", "share"): BiasAwareNegatives,
    ("BiasAwareReranker", "strength"): trained(BiasAwareReranker),
    ("AdversarialReranker", "reversal", "threshold"): trained(AdversarialReranker),
    ("NeutralReranker", "strength"): lambda **o: NeutralReranker(**o)(women()),
    ("HiddenJudgements", "depth", "per_query", "min_label"): lambda **o: HiddenJudgements(JUDGED, FOUND, **o),
    ("PositiveAwareNegatives", "max_score"): PositiveAwareNegatives,
    ("MaxRep", "k", "min_label"): lambda **o: MaxRep(NEAR, JUDGED, **o)(FOUND),
    ("AddJudged", "min_label"): lambda **o: AddJudged(JUDGED, **o)(FOUND),
    ("WeakerModel", "layers"): lambda **o: trained(EqualizeReranker, biased=WeakerModel(**o))(),
    ("RepeatNounPhrases", "times", "max_phrases"): lambda **o: RepeatNounPhrases(tagger="textblob", **o)(topics()),
    ("PlantedCollection", "seed", "topics", "passages", "train_topics", "paraphrased", "depth", "position"): PlantedCollection,
    ("PlantedCollection", "pooling", "gender", "linguistic", "survivorship"): PlantedCollection,
    ("PlantedRanker", "strength", "noise", "seed"): lambda **o: PlantedRanker(**o)(texts()),
    ("intervene", "resamples", "level"): lambda **o: intervene(PlantedRanker(), texts(), passages={"loud": str.upper}, **o),
    ("compare", "margin", "resamples"): lambda **o: compare(None, None, **o),
    ("CrossEncoder", *LIMITS, "max_passages"): long_texts(CrossEncoder, "build"),
    ("BiEncoder", *LIMITS): long_texts(BiEncoder, "build_sentence_transformer"),
    ("SparseEncoder", *LIMITS): long_texts(SparseEncoder, "build_sparse"),
    ("MultiVector", *LIMITS): long_texts(MultiVector, "build_multi_vector"),
    ("T5Reranker", *LIMITS): long_texts(T5Reranker, "build_t5"),
    ("TK", *LIMITS): long_texts(TK, "build_tk"),
    ("Disparity", "resamples", "level", "ddof"): lambda **o: Disparity(**o)(values()),
    ("LinguisticComplexity", "segment", "min_defined"): lambda **o: LinguisticComplexity(**o)(topics()),
    ("WordingSensitivity", "depth", "resamples", "level"): lambda **o: WordingSensitivity(Overlap(), **o)(texts()),
    ("SurvivorshipCurve", "resamples", "level", "ranks"): (
        lambda **o: SurvivorshipCurve({"m": RESULTS}, SHOWN, LABELS, **o)(ASKED)
    ),
    ("SurvivorshipSubset", "min_label"): lambda **o: SurvivorshipSubset(SHOWN, LABELS, **o)(ASKED),
    ("Answerability", "folds", "strength", "resamples", "level"): lambda **o: Answerability(**o).fit(answerable(60, 0)[0]),
    ("CETReranker", "tau", "max_weight", "unweighted_steps"): trained(CETReranker),
    ("EqualizeReranker", "alpha", "biased_temperature"): trained(EqualizeReranker),
    ("FocalReranker", "gamma", "biased_temperature"): trained(FocalReranker),
    ("GroupDROReranker", "step", "bins"): trained(GroupDROReranker),
    ("KernelWhiteningReranker", "landmarks", "gamma", "floor", "sample", "refresh"): trained(KernelWhiteningReranker),
    ("SparseEncoder", "query_flops", "document_flops", "flops_warmup"): lambda **o: SparseEncoder("no/such-model", **o)(texts()),
    ("LessData", "share"): lambda **o: trained(EqualizeReranker, biased=LessData(**o))(),
    ("FewerSteps", "share"): lambda **o: trained(EqualizeReranker, biased=FewerSteps(**o))(),
    ("RelabelReranker", "threshold", "depth"): trained(RelabelReranker, judge=Overlap()),
    ("RankWindow", "first", "last"): RankWindow,
    ("DenoisedNegatives", "below", "depth"): DenoisedNegatives,
    ("PositiveAwareNegatives", "percentage", "margin"): PositiveAwareNegatives,
    ("PoolEvidence", "learning_rate"): PoolEvidence,
    ("Training", "epochs", "clip", "learning_rate", "warmup", "weight_decay", "batch_size"): Training,
    ("Training", "max_steps", "accumulation", "negatives_per_positive", "min_label", "evaluate_every", "patience"): Training,
    ("Training", "workers", "log_every"): Training,
    ("pair_weights", "tau", "max_weight"): lambda **o: pair_weights(tensor(1.0), tensor(0.0), **o),
    ("log_weights", "tau"): lambda **o: log_weights(tensor(1.0), tensor(0.0), **o),
    ("joint_scores", "alpha", "biased_temperature"): lambda **o: joint_scores(tensor(1.0), tensor(0.0), **o),
    ("debiased_contrastive", "tau_plus", "temperature"): lambda **o: debiased_contrastive(tensor(1.0, 0.0), **o),
    ("dynamic_pairwise", "width"): lambda **o: dynamic_pairwise(tensor(1.0, 0.0), **o),
    ("RANCE", "queries", "k", "window", "degree"): lambda **o: rank_chances(np.zeros(30), **{"queries": 5, **o}),
}


OPTIONS = [(names, option) for names in CALLS for option in names[1:]]


@pytest.mark.parametrize(("names", "option"), OPTIONS)
def test_what_is_no_number_is_refused(names, option):
    for bad in ("1", float("nan"), [2]):
        with pytest.raises(InputError, match=rf"{option}=.*must be"):
            CALLS[names](**{option: bad})


#: Options that ask a model to be loaded or trained, or a command to go on, where their values are in order.
HEAVY = {"CETReranker", "EqualizeReranker", "FocalReranker", "GroupDROReranker", "LessData", "FewerSteps", "RelabelReranker"}
HEAVY |= {"WeakerModel", "BiasAwareReranker", "AdversarialReranker", "compare", "GenderClassifier", "PlantedCollection"}
HEAVY |= {"KernelWhiteningReranker"}


@pytest.mark.parametrize(("names", "option"), [one for one in OPTIONS if one[0][0] not in HEAVY])
def test_a_number_out_of_range_is_no_raw_error(names, option):
    """Where it is in range, or stands for something, it is used."""
    for odd in (float("inf"), -1, None, 1.5, 0):
        try:
            CALLS[names](**{option: odd})
        except InputError as error:
            assert "\n" not in str(error), odd


#: Options that must be whole numbers, with what checks them before a model is loaded.
WHOLE = {
    "unweighted_steps": lambda number: CETReranker("no/such", unweighted_steps=number).check_options(),
    "bins": lambda number: GroupDROReranker("no/such", bins=number).check_options(),
    "layers": lambda number: EqualizeReranker("no/such", biased=WeakerModel(layers=number)).check_options(),
    "times": lambda number: RepeatNounPhrases(times=number).check_options(),
    "max_phrases": lambda number: RepeatNounPhrases(max_phrases=number).check_options(),
}


@pytest.mark.parametrize("option", WHOLE)
def test_whole_numbers_of_numpy_are_whole_numbers_and_true_is_none(option):
    WHOLE[option](np.int64(2))
    for bad in (True, 2.0):
        with pytest.raises(InputError, match=rf": {option}={bad} must be a whole number of at least \d"):
            WHOLE[option](bad)


def test_sequences_of_numbers():
    for wrong in (float("nan"), None, "1", 3.0, [-1.0, 1.0], ["1"]):
        with pytest.raises(InputError, match=r"RankDistribution: chances_by_rank=.* must be"):
            RankDistribution(wrong)
    for wrong in (float("nan"), "1", 1.5, [0], [float("nan")], ["1"]):
        with pytest.raises(InputError, match=r"Training: rerank_depth=.* must be a whole number of at least 1"):
            Training(rerank_depth=wrong)
    assert Training(rerank_depth=np.int64(5)).depths() == (5,) and Training(rerank_depth=[5, 10]).depths() == (5, 10)
    for wrong in (float("nan"), None, "1", 1.5, 1, [1, "b", 3], [3, 2, 1]):
        with pytest.raises(InputError, match=r"PositionSensitivity: buckets=.*must be"):
            PositionSensitivity(Overlap(), buckets=wrong)(texts())
    for wrong in ("1", float("nan"), [2], {"female": "a", "male": 0.5}):
        with pytest.raises(InputError, match=r"portions.*must be"):
            AnnotateGender(portions=wrong)(women())
    for wrong in ("1", float("nan"), [1.5], 0):
        with pytest.raises(InputError, match=r"ARaBEvaluator: cutoffs=.* must be a whole number of at least 1"):
            ARaBEvaluator(wrong)(women())


#: Options that may be words or lists, see above and the tests of their classes; what tokenisers and encoders are given.
ELSEWHERE = {
    ("PositionSensitivity", "buckets"), ("FaiRR", "portions"), ("ARaBEvaluator", "portions"), ("AnnotateGender", "portions"),
    ("ARaBEvaluator", "cutoffs"), ("RankDistribution", "chances_by_rank"), ("Disparity", "bins"), ("Training", "rerank_depth"),
    ("MATSProbe", "layer"), ("MATSProbe", "max_length"), ("MATSProbe", "batch_tokens"), ("Answerability", "rank"),
    ("CrossEncoder", "sentence_weights"),
    ("AverageRotations", "rotations"),
}  # fmt: skip


def test_every_number_of_a_public_name_is_tried():
    tried = {(names[0], option) for names, option in OPTIONS} | ELSEWHERE
    missing = []
    for name in pyterrier_debias.__all__:
        thing = getattr(pyterrier_debias, name)
        if name in ("audit", "bias_measures", "Context", "Finding") or not callable(thing):  # see tests/report; results
            continue
        given = inspect.signature(thing.__init__ if inspect.isclass(thing) else thing).parameters.values()
        numeric = [one.name for one in given if re.search(r"\b(int|float)\b", str(one.annotation)) and one.name != "seed"]
        missing += [(name, option) for option in numeric if (name, option) not in tried]
    assert not missing


def test_no_queries_have_no_chances():
    """No judged query was a division by 0, and uniform chances."""
    with pytest.raises(InputError, match="RANCE: queries=0 must be a whole number of at least 1"):
        rank_chances(np.zeros(30), 0)
