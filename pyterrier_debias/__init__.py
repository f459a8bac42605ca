"""Measure and treat bias in rankers, as stages of PyTerrier pipelines.

The public names below are loaded when they are first used, so that importing the package imports no neural library.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pyterrier_debias._version import __version__
from pyterrier_debias.core.options import with_known_options
from pyterrier_debias.rankers.auto_models import register as _register_models

#: Public name to the module that defines it.
_PUBLIC = {
    # position
    "RotatePassages": "position.data.rotation",
    "AverageRotations": "position.data.averaging",
    "AnswerPositions": "position.data.answers",
    "PositionSensitivity": "position.measures.sensitivity",
    "MATSProbe": "position.measures.mats_probe",
    # survivorship
    "SurvivorshipSubset": "survivorship.data.subset",
    "SurvivorshipCurve": "survivorship.measures.curve",
    "Answerability": "survivorship.training.answerability",
    "dataset_report": "survivorship.data.dataset_report",
    # gender
    "ARaB": "gender.measures.over_rankings",
    "RaB": "gender.measures.over_rankings",
    "FaiRR": "gender.measures.over_rankings",
    "NFaiRR": "gender.measures.over_rankings",
    "LexiconGap": "gender.measures.over_rankings",
    "QueryGroupGap": "gender.measures.over_rankings",
    "ARaBEvaluator": "gender.measures.evaluator",
    "AnnotateGender": "gender.measures.evaluator",
    "WordList": "gender.data.words",
    "Lexicon": "gender.data.profiles",
    "LexiconProfiles": "gender.data.profiles",
    "QueryGender": "gender.data.query_gender",
    "GenderClassifier": "gender.data.query_gender",
    "BalancedPairs": "gender.data.balanced_pairs",
    "SwapGender": "gender.data.swap",
    "BiasAwareNegatives": "gender.training.negatives",
    "BiasAwareReranker": "gender.training.fair_rerankers",
    "AdversarialReranker": "gender.training.fair_rerankers",
    "NeutralReranker": "gender.training.neutral_reranker",
    "WordListBias": "gender.audit",
    # pooling
    "CETReranker": "pooling.training.cet",
    "PoolEvidence": "pooling.data.evidence",
    "HiddenJudgements": "pooling.measures.hidden",
    "RelabelReranker": "pooling.data.relabel",
    "AddScores": "pooling.data.scores",
    "RankWindow": "pooling.training.negatives",
    "DenoisedNegatives": "pooling.training.negatives",
    "PositiveAwareNegatives": "pooling.training.negatives",
    "RankDistribution": "pooling.training.negatives",
    "ExcludeNegatives": "pooling.training.negatives",
    "OnlyJudged": "pooling.measures.unjudged",
    "ExpectedNDCG": "pooling.measures.unjudged",
    # linguistic
    "LinguisticComplexity": "linguistic.measures.complexity",
    "Disparity": "linguistic.measures.disparity",
    "OverQueries": "linguistic.measures.over_queries",
    "WordingSensitivity": "linguistic.measures.wording",
    "RewriteQueries": "linguistic.data.rewrites",
    "RepeatNounPhrases": "linguistic.data.noun_phrases",
    "EqualizeReranker": "linguistic.training.equalize",
    "WeakerModel": "linguistic.training.biased",
    "LessData": "linguistic.training.biased",
    "FewerSteps": "linguistic.training.biased",
    "BiasedData": "linguistic.training.biased",
    "FocalReranker": "linguistic.training.baselines",
    "GroupDROReranker": "linguistic.training.baselines",
    "ReverseComplexity": "linguistic.training.baselines",
    # rankers
    "CrossEncoder": "rankers.cross_encoder",
    "BiEncoder": "rankers.bi_encoder",
    "MultiVector": "rankers.multi_vector",
    "SparseEncoder": "rankers.sparse_encoder",
    "T5Reranker": "rankers.t5",
    "TK": "rankers.tk",
    # training
    "Training": "training.options",
    "AddJudged": "training.groups",
    "ColumnWeights": "training.weights",
    # collections
    "Collection": "data.base",
    "PlantedCollection": "data.planted",
    "PlantedRanker": "data.planted_rankers",
    "open_dataset": "data.opening",
    "TerrierCollection": "data.terrier",
    "TerrierIndexer": "data.terrier",
    # the audit
    "audit": "report.run",
    "AuditResult": "report.result",
    "compare": "report.compare",
    "pareto": "report.pareto",
    "bias_measures": "report.bias_measures",
    "intervene": "report.interventions",
    "System": "core.systems",
    "Bias": "core.bias",
    "Context": "core.systems",
    "Figure": "core.bias",
    "Finding": "core.bias",
    # input errors
    "InputError": "core.errors",
}

__all__ = ["__version__", *_PUBLIC]

if TYPE_CHECKING:
    # ``X as X`` exports a name to type checkers.
    from pyterrier_debias.core.bias import Bias as Bias
    from pyterrier_debias.core.bias import Figure as Figure
    from pyterrier_debias.core.bias import Finding as Finding
    from pyterrier_debias.core.errors import InputError as InputError
    from pyterrier_debias.core.systems import Context as Context
    from pyterrier_debias.core.systems import System as System
    from pyterrier_debias.data.base import Collection as Collection
    from pyterrier_debias.data.opening import open_dataset as open_dataset
    from pyterrier_debias.data.planted import PlantedCollection as PlantedCollection
    from pyterrier_debias.data.planted_rankers import PlantedRanker as PlantedRanker
    from pyterrier_debias.data.terrier import TerrierCollection as TerrierCollection
    from pyterrier_debias.data.terrier import TerrierIndexer as TerrierIndexer
    from pyterrier_debias.gender.audit import WordListBias as WordListBias
    from pyterrier_debias.gender.data.balanced_pairs import BalancedPairs as BalancedPairs
    from pyterrier_debias.gender.data.profiles import Lexicon as Lexicon
    from pyterrier_debias.gender.data.profiles import LexiconProfiles as LexiconProfiles
    from pyterrier_debias.gender.data.query_gender import GenderClassifier as GenderClassifier
    from pyterrier_debias.gender.data.query_gender import QueryGender as QueryGender
    from pyterrier_debias.gender.data.swap import SwapGender as SwapGender
    from pyterrier_debias.gender.data.words import WordList as WordList
    from pyterrier_debias.gender.measures.evaluator import AnnotateGender as AnnotateGender
    from pyterrier_debias.gender.measures.evaluator import ARaBEvaluator as ARaBEvaluator
    from pyterrier_debias.gender.measures.over_rankings import ARaB as ARaB
    from pyterrier_debias.gender.measures.over_rankings import FaiRR as FaiRR
    from pyterrier_debias.gender.measures.over_rankings import LexiconGap as LexiconGap
    from pyterrier_debias.gender.measures.over_rankings import NFaiRR as NFaiRR
    from pyterrier_debias.gender.measures.over_rankings import QueryGroupGap as QueryGroupGap
    from pyterrier_debias.gender.measures.over_rankings import RaB as RaB
    from pyterrier_debias.gender.training.fair_rerankers import AdversarialReranker as AdversarialReranker
    from pyterrier_debias.gender.training.fair_rerankers import BiasAwareReranker as BiasAwareReranker
    from pyterrier_debias.gender.training.negatives import BiasAwareNegatives as BiasAwareNegatives
    from pyterrier_debias.gender.training.neutral_reranker import NeutralReranker as NeutralReranker
    from pyterrier_debias.linguistic.data.noun_phrases import RepeatNounPhrases as RepeatNounPhrases
    from pyterrier_debias.linguistic.data.rewrites import RewriteQueries as RewriteQueries
    from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity as LinguisticComplexity
    from pyterrier_debias.linguistic.measures.disparity import Disparity as Disparity
    from pyterrier_debias.linguistic.measures.over_queries import OverQueries as OverQueries
    from pyterrier_debias.linguistic.measures.wording import WordingSensitivity as WordingSensitivity
    from pyterrier_debias.linguistic.training.baselines import FocalReranker as FocalReranker
    from pyterrier_debias.linguistic.training.baselines import GroupDROReranker as GroupDROReranker
    from pyterrier_debias.linguistic.training.baselines import ReverseComplexity as ReverseComplexity
    from pyterrier_debias.linguistic.training.biased import BiasedData as BiasedData
    from pyterrier_debias.linguistic.training.biased import FewerSteps as FewerSteps
    from pyterrier_debias.linguistic.training.biased import LessData as LessData
    from pyterrier_debias.linguistic.training.biased import WeakerModel as WeakerModel
    from pyterrier_debias.linguistic.training.equalize import EqualizeReranker as EqualizeReranker
    from pyterrier_debias.pooling.data.evidence import PoolEvidence as PoolEvidence
    from pyterrier_debias.pooling.data.relabel import RelabelReranker as RelabelReranker
    from pyterrier_debias.pooling.data.scores import AddScores as AddScores
    from pyterrier_debias.pooling.measures.hidden import HiddenJudgements as HiddenJudgements
    from pyterrier_debias.pooling.measures.unjudged import ExpectedNDCG as ExpectedNDCG
    from pyterrier_debias.pooling.measures.unjudged import OnlyJudged as OnlyJudged
    from pyterrier_debias.pooling.training.cet import CETReranker as CETReranker
    from pyterrier_debias.pooling.training.negatives import DenoisedNegatives as DenoisedNegatives
    from pyterrier_debias.pooling.training.negatives import ExcludeNegatives as ExcludeNegatives
    from pyterrier_debias.pooling.training.negatives import PositiveAwareNegatives as PositiveAwareNegatives
    from pyterrier_debias.pooling.training.negatives import RankDistribution as RankDistribution
    from pyterrier_debias.pooling.training.negatives import RankWindow as RankWindow
    from pyterrier_debias.position.data.answers import AnswerPositions as AnswerPositions
    from pyterrier_debias.position.data.averaging import AverageRotations as AverageRotations
    from pyterrier_debias.position.data.rotation import RotatePassages as RotatePassages
    from pyterrier_debias.position.measures.mats_probe import MATSProbe as MATSProbe
    from pyterrier_debias.position.measures.sensitivity import PositionSensitivity as PositionSensitivity
    from pyterrier_debias.rankers.bi_encoder import BiEncoder as BiEncoder
    from pyterrier_debias.rankers.cross_encoder import CrossEncoder as CrossEncoder
    from pyterrier_debias.rankers.multi_vector import MultiVector as MultiVector
    from pyterrier_debias.rankers.sparse_encoder import SparseEncoder as SparseEncoder
    from pyterrier_debias.rankers.t5 import T5Reranker as T5Reranker
    from pyterrier_debias.rankers.tk import TK as TK
    from pyterrier_debias.report.bias_measures import bias_measures as bias_measures
    from pyterrier_debias.report.compare import compare as compare
    from pyterrier_debias.report.interventions import intervene as intervene
    from pyterrier_debias.report.pareto import pareto as pareto
    from pyterrier_debias.report.result import AuditResult as AuditResult
    from pyterrier_debias.report.run import audit as audit
    from pyterrier_debias.survivorship.data.dataset_report import dataset_report as dataset_report
    from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset as SurvivorshipSubset
    from pyterrier_debias.survivorship.measures.curve import SurvivorshipCurve as SurvivorshipCurve
    from pyterrier_debias.survivorship.training.answerability import Answerability as Answerability
    from pyterrier_debias.training.groups import AddJudged as AddJudged
    from pyterrier_debias.training.options import Training as Training
    from pyterrier_debias.training.weights import ColumnWeights as ColumnWeights


_register_models()


if not TYPE_CHECKING:  # who checks types would take any name for one that is there

    def __getattr__(name: str) -> Any:
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(f"{__name__}.{_PUBLIC[name]}")
        value = with_known_options(getattr(module, name))
        setattr(module, name, value)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(__all__)
