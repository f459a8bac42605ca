"""Find and remove bias in rankers, as stages of PyTerrier pipelines.

The public names below are loaded when they are first used, so that importing the package pulls in no neural library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyterrier_debias._version import __version__
from pyterrier_debias.rankers.auto_models import register as _register_models

#: Public name to the module that defines it.
_PUBLIC = {
    # position
    "RotatePassages": "position.rotation",
    "AnswerPositions": "position.answers",
    "PositionSensitivity": "position.sensitivity",
    "MATSProbe": "position.mats_probe",
    # survivorship
    "SurvivorshipSubset": "survivorship.subset",
    "SurvivorshipCurve": "survivorship.curve",
    "Answerability": "survivorship.answerability",
    "dataset_report": "survivorship.report",
    "training_subsets": "survivorship.training",
    "read_annotations": "survivorship.annotations",
    "rank_annotations": "survivorship.annotations",
    # gender
    "ARaB": "gender.measures",
    "RaB": "gender.measures",
    "FaiRR": "gender.measures",
    "NFaiRR": "gender.measures",
    "LexiconGap": "gender.measures",
    "QueryGroupGap": "gender.measures",
    "ARaBEvaluator": "gender.evaluator",
    "AnnotateGender": "gender.evaluator",
    "GenderCounts": "gender.evaluator",
    "WordList": "gender.words",
    "read_word_list": "gender.words",
    "Lexicon": "gender.profiles",
    "LexiconProfiles": "gender.profiles",
    "QueryGender": "gender.query_gender",
    "GenderClassifier": "gender.query_gender",
    "read_gender_queries": "gender.query_gender",
    "BalancedPairs": "gender.balanced_pairs",
    "plot_balance": "gender.balanced_pairs",
    "save_pairs": "gender.balanced_pairs",
    "augment_balanced": "gender.balanced_training",
    "choose_ratio": "gender.balanced_training",
    "SwapGender": "gender.swap",
    "BiasAwareNegatives": "gender.negatives",
    "BiasAwareReranker": "gender.fair_rerankers",
    "AdversarialReranker": "gender.fair_rerankers",
    "NeutralReranker": "gender.neutral_reranker",
    "word_list_room": "gender.audit",
    "neutral_qids": "gender.audit",
    # pooling
    "CETReranker": "pooling.cet",
    "PoolEvidence": "pooling.evidence",
    "HiddenJudgements": "pooling.hidden",
    "RelabelReranker": "pooling.relabel",
    "AddScores": "pooling.scores",
    "RankWindow": "pooling.negatives",
    "DenoisedNegatives": "pooling.negatives",
    "PositiveAwareNegatives": "pooling.negatives",
    "RankDistribution": "pooling.negatives",
    "ExcludeNegatives": "pooling.negatives",
    "OnlyJudged": "pooling.unjudged",
    "ExpectedNDCG": "pooling.unjudged",
    "infer_judgements": "pooling.unjudged",
    "leave_one_out": "pooling.unjudged",
    "debiased_contrastive": "pooling.losses",
    "dynamic_pairwise": "pooling.losses",
    # linguistic
    "LinguisticComplexity": "linguistic.complexity",
    "Disparity": "linguistic.disparity",
    "OverQueries": "linguistic.over_queries",
    "WordingSensitivity": "linguistic.wording",
    "RewriteQueries": "linguistic.rewrites",
    "RepeatNounPhrases": "linguistic.noun_phrases",
    "EqualizeReranker": "linguistic.equalize",
    "WeakerModel": "linguistic.biased",
    "LessData": "linguistic.biased",
    "FewerSteps": "linguistic.biased",
    "BiasedData": "linguistic.biased",
    "FocalReranker": "linguistic.baselines",
    "GroupDROReranker": "linguistic.baselines",
    "ReverseComplexity": "linguistic.baselines",
    # rankers
    "CrossEncoder": "rankers.cross_encoder",
    "BiEncoder": "rankers.bi_encoder",
    "MultiVector": "rankers.multi_vector",
    "T5Reranker": "rankers.t5",
    "TK": "rankers.tk",
    # training
    "Training": "training.options",
    "AddJudged": "training.groups",
    "UniformNegatives": "training.samplers",
    "ColumnWeights": "training.weights",
    # collections
    "Collection": "collections.base",
    "Dataset": "collections.base",
    "TextLoader": "collections.base",
    "PlantedCollection": "collections.planted",
    "PlantedRanker": "collections.planted_rankers",
    "open_dataset": "collections.opening",
    "read_corpus": "collections.readers",
    "read_topics": "collections.readers",
    "read_qrels": "collections.readers",
    "read_run": "collections.readers",
    "read_squad": "collections.answers",
    "read_spans": "collections.answers",
    "read_qna": "collections.answers",
    "IRDSCollection": "collections.irds",
    "TerrierCollection": "collections.terrier",
    "TerrierIndexer": "collections.terrier",
    # the audit
    "audit": "audit",  # a package that can be called
    "AuditResult": "audit.result",
    "compare": "audit.comparison",
    "Comparison": "audit.comparison",
    "front": "audit.front",
    "plot_front": "audit.front",
    "measures": "audit.measures",
    "intervene": "audit.interventions",
    "System": "systems",
    "Finding": "findings",
    "Room": "findings",
    # input errors
    "InputError": "errors",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    from pyterrier_debias.audit.comparison import Comparison, compare
    from pyterrier_debias.audit.front import front, plot_front
    from pyterrier_debias.audit.interventions import intervene
    from pyterrier_debias.audit.measures import measures
    from pyterrier_debias.audit.result import AuditResult
    from pyterrier_debias.audit.run import audit
    from pyterrier_debias.collections.answers import read_qna, read_spans, read_squad
    from pyterrier_debias.collections.base import Collection, Dataset, TextLoader
    from pyterrier_debias.collections.irds import IRDSCollection
    from pyterrier_debias.collections.opening import open_dataset
    from pyterrier_debias.collections.planted import PlantedCollection
    from pyterrier_debias.collections.planted_rankers import PlantedRanker
    from pyterrier_debias.collections.readers import read_corpus, read_qrels, read_run, read_topics
    from pyterrier_debias.collections.terrier import TerrierCollection, TerrierIndexer
    from pyterrier_debias.errors import InputError
    from pyterrier_debias.findings import Finding, Room
    from pyterrier_debias.gender.audit import neutral_qids, word_list_room
    from pyterrier_debias.gender.balanced_pairs import BalancedPairs, plot_balance, save_pairs
    from pyterrier_debias.gender.balanced_training import augment_balanced, choose_ratio
    from pyterrier_debias.gender.evaluator import AnnotateGender, ARaBEvaluator, GenderCounts
    from pyterrier_debias.gender.fair_rerankers import AdversarialReranker, BiasAwareReranker
    from pyterrier_debias.gender.measures import ARaB, FaiRR, LexiconGap, NFaiRR, QueryGroupGap, RaB
    from pyterrier_debias.gender.negatives import BiasAwareNegatives
    from pyterrier_debias.gender.neutral_reranker import NeutralReranker
    from pyterrier_debias.gender.profiles import Lexicon, LexiconProfiles
    from pyterrier_debias.gender.query_gender import GenderClassifier, QueryGender, read_gender_queries
    from pyterrier_debias.gender.swap import SwapGender
    from pyterrier_debias.gender.words import WordList, read_word_list
    from pyterrier_debias.linguistic.baselines import FocalReranker, GroupDROReranker, ReverseComplexity
    from pyterrier_debias.linguistic.biased import BiasedData, FewerSteps, LessData, WeakerModel
    from pyterrier_debias.linguistic.complexity import LinguisticComplexity
    from pyterrier_debias.linguistic.disparity import Disparity
    from pyterrier_debias.linguistic.equalize import EqualizeReranker
    from pyterrier_debias.linguistic.noun_phrases import RepeatNounPhrases
    from pyterrier_debias.linguistic.over_queries import OverQueries
    from pyterrier_debias.linguistic.rewrites import RewriteQueries
    from pyterrier_debias.linguistic.wording import WordingSensitivity
    from pyterrier_debias.pooling.cet import CETReranker
    from pyterrier_debias.pooling.evidence import PoolEvidence
    from pyterrier_debias.pooling.hidden import HiddenJudgements
    from pyterrier_debias.pooling.losses import debiased_contrastive, dynamic_pairwise
    from pyterrier_debias.pooling.negatives import (
        DenoisedNegatives,
        ExcludeNegatives,
        PositiveAwareNegatives,
        RankDistribution,
        RankWindow,
    )
    from pyterrier_debias.pooling.relabel import RelabelReranker
    from pyterrier_debias.pooling.scores import AddScores
    from pyterrier_debias.pooling.unjudged import ExpectedNDCG, OnlyJudged, infer_judgements, leave_one_out
    from pyterrier_debias.position.answers import AnswerPositions
    from pyterrier_debias.position.mats_probe import MATSProbe
    from pyterrier_debias.position.rotation import RotatePassages
    from pyterrier_debias.position.sensitivity import PositionSensitivity
    from pyterrier_debias.rankers.bi_encoder import BiEncoder
    from pyterrier_debias.rankers.cross_encoder import CrossEncoder
    from pyterrier_debias.rankers.multi_vector import MultiVector
    from pyterrier_debias.rankers.t5 import T5Reranker
    from pyterrier_debias.rankers.tk import TK
    from pyterrier_debias.survivorship.annotations import rank_annotations, read_annotations
    from pyterrier_debias.survivorship.answerability import Answerability
    from pyterrier_debias.survivorship.curve import SurvivorshipCurve
    from pyterrier_debias.survivorship.report import dataset_report
    from pyterrier_debias.survivorship.subset import SurvivorshipSubset
    from pyterrier_debias.survivorship.training import training_subsets
    from pyterrier_debias.systems import System
    from pyterrier_debias.training.groups import AddJudged
    from pyterrier_debias.training.options import Training
    from pyterrier_debias.training.samplers import UniformNegatives
    from pyterrier_debias.training.weights import ColumnWeights


_register_models()


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.{_PUBLIC[name]}")
    value = module if name == _PUBLIC[name] else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
