"""No misspelt choice is taken for another: every option whose docstring names its words refuses a wrong one, by one helper."""

import importlib
import inspect
import pkgutil
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyterrier_debias
from pyterrier_debias import (
    TK,
    AddScores,
    AnnotateGender,
    Answerability,
    AnswerPositions,
    ARaBEvaluator,
    AverageRotations,
    BalancedPairs,
    BiasAwareNegatives,
    BiasAwareReranker,
    BiEncoder,
    CETReranker,
    ColumnWeights,
    CrossEncoder,
    Disparity,
    EqualizeReranker,
    HiddenJudgements,
    InputError,
    LinguisticComplexity,
    MATSProbe,
    MultiVector,
    NeutralReranker,
    OverQueries,
    PlantedRanker,
    PositionSensitivity,
    QueryGender,
    RelabelReranker,
    RepeatNounPhrases,
    ReverseComplexity,
    RewriteQueries,
    RotatePassages,
    SparseEncoder,
    SurvivorshipCurve,
    SurvivorshipSubset,
    T5Reranker,
    Training,
    audit,
)
from pyterrier_debias.core import bias, errors, plots, statistics, text
from pyterrier_debias.data.opening import open_dataset
from pyterrier_debias.data.readers import read_run
from pyterrier_debias.further.order import given_order
from pyterrier_debias.gender.data import documents, swap
from pyterrier_debias.gender.formulas import arab, exposure, leaning, matching
from pyterrier_debias.gender.measures import background
from pyterrier_debias.gender.measures.exposure import AWRF, ExpectedExposure
from pyterrier_debias.gender.measures.over_rankings import NFaiRR
from pyterrier_debias.gender.training import neutral_reranker
from pyterrier_debias.gender.training.balanced import augment_balanced
from pyterrier_debias.linguistic.data import analysers, noun_phrases, stanford
from pyterrier_debias.linguistic.formulas import kernel_whitening, lexical, spread
from pyterrier_debias.linguistic.measures import over_queries
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.pooling.data import relabel
from pyterrier_debias.pooling.formulas import cet_weights
from pyterrier_debias.pooling.formulas.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.pooling.training.propensities import KnownPropensities
from pyterrier_debias.position.formulas import psi
from pyterrier_debias.position.formulas.mats_result import mats_value
from pyterrier_debias.position.measures.mats_probe import plot_ats
from pyterrier_debias.rankers import dual_encoder, engine, tk_model
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from pyterrier_debias.rankers.heads import PassageHead, PooledHead, joint_head
from pyterrier_debias.rankers.word_vectors import HuggingFaceWords
from pyterrier_debias.report import attributions, gate, inputs, perform, pictures
from pyterrier_debias.report.request import Request
from pyterrier_debias.survivorship.data import ranks
from pyterrier_debias.survivorship.data.annotations import rank_annotations
from pyterrier_debias.training import losses
from tests import contract_cases as given
from tests.position.toy import Overlap
from tests.survivorship.toy import ASKED, LABELS, RESULTS, SHOWN, answerable

VALUES = np.array([0.1, 0.5, 0.4])
CANDIDATES = given.texts()
WOMEN = given.women()
JUDGED = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1})
LEXICON = {"work": ["government"], "family": ["mother"]}
CARRIES = [(["a", "b"], np.eye(2)), (["b", "a"], np.eye(2))]


def tensor(*values):
    return importlib.import_module("torch").tensor([values])


def figure():
    axes = plots.new_axes()
    return axes.figure


def sensitivity(**more):
    documents = given.RESULTS.merge(given.CORPUS, on="docno")
    return PositionSensitivity(Overlap(), **more)(documents)


def place(make):
    return f"{make.__module__.removeprefix('pyterrier_debias.')}.{make.__name__}"


def trained_by(make):
    """A ranker that is trained; its options are checked before a model is loaded."""
    return lambda **more: make("no/such-model", **more).fit(CANDIDATES.assign(complexity=1.0), JUDGED)


def mats_result():
    probe = MATSProbe(lambda texts: [CARRIES[i % 2] for i, _ in enumerate(texts)])
    return probe.result(pd.DataFrame({"docno": ["x", "y"], "text": ["a b", "b a"]}))


#: Every option with a closed list of words: how it is called with a wrong one, and the words where a call takes others too.
CASES = {
    "core.bias.corrected(correction)": lambda word: bias.corrected([], word),
    "core.plots.rendered(kind)": lambda word: plots.rendered(figure(), word),
    "core.statistics.bootstrap_interval(method)": lambda word: statistics.bootstrap_interval(VALUES, method=word),
    "core.statistics.correct(method)": lambda word: statistics.correct(VALUES, word),
    "core.statistics.p_from_null(alternative)": lambda word: statistics.p_from_null(0.1, VALUES, alternative=word),
    "core.text.get_tokeniser(tokeniser)": text.get_tokeniser,
    "data.planted_rankers.PlantedRanker(bias)": lambda word: PlantedRanker(word)(CANDIDATES),
    "further.order.given_order(arm)": lambda word: given_order(word, 3, 0, "q1"),
    "data.planted_rankers.PlantedRanker(favours)": lambda word: PlantedRanker(favours=word)(CANDIDATES),
    "data.opening.open_dataset(ties)": lambda word: open_dataset("planted", ties=word),
    "data.readers.read_run(ties)": lambda word: read_run("no-such-file", ties=word),
    "gender.data.balanced_pairs.BalancedPairs(method)": lambda word: BalancedPairs(method=word)(given.profiled()),
    "gender.data.balanced_pairs.BalancedPairs(direction)": lambda word: BalancedPairs(direction=word)(given.profiled()),
    "gender.data.documents.Texts(unknown)": lambda word: documents.Texts(unknown=word),
    "gender.data.query_gender.QueryGender(labeller)": lambda word: QueryGender(labeller=word)(given.topics()),
    "gender.data.query_gender.QueryGender(tokeniser)": lambda word: QueryGender(tokeniser=word)(given.topics()),
    "gender.data.swap.swap_gender(to)": lambda word: swap.swap_gender("she", to=word),
    "gender.data.swap.SwapGender(to)": lambda word: swap.SwapGender(to=word).rotator(),
    "gender.formulas.arab.magnitudes(method)": lambda word: arab.magnitudes(None, word),
    "gender.formulas.arab.magnitudes(tf_form)": lambda word: arab.magnitudes(None, "tf", word),
    "gender.formulas.leaning.lean_of_texts(method)": lambda word: leaning.lean_of_texts(["she"], method=word),
    "gender.formulas.matching.match(method)": lambda word: matching.match(np.eye(2), np.eye(2), method=word),
    "gender.formulas.matching.match(direction)": lambda word: matching.match(np.eye(2), np.eye(2), direction=word),
    "gender.measures.evaluator.AnnotateGender(method)": lambda word: AnnotateGender(method=word)(WOMEN),
    "gender.measures.evaluator.AnnotateGender(tf_form)": lambda word: AnnotateGender(tf_form=word)(WOMEN),
    "gender.measures.evaluator.AnnotateGender(unknown)": lambda word: AnnotateGender(unknown=word)(WOMEN),
    "gender.formulas.exposure.attention(discount)": lambda word: exposure.attention(3, word),
    "gender.formulas.exposure.expected_exposure(part)": lambda word: exposure.expected_exposure(VALUES, VALUES, word),
    "gender.measures.background.Background.compare(outside)": lambda word: background.check_background(None, 10, word, "NFaiRR"),
    "gender.measures.evaluator.ARaBEvaluator(outside)": lambda word: ARaBEvaluator(outside=word)(WOMEN),
    "gender.measures.exposure.AWRF(discount)": lambda word: AWRF(discount=word),
    "gender.measures.exposure.ExpectedExposure(part)": lambda word: ExpectedExposure(part=word),
    "gender.measures.over_rankings.NFaiRR(outside)": lambda word: NFaiRR(outside=word),
    "gender.training.balanced.augment_balanced(on_short)": lambda word: augment_balanced(
        given.topics(), JUDGED, given.topics().assign(match=0, docno="d1"), ratio=0.5, on_short=word
    ),
    "gender.measures.evaluator.ARaBEvaluator(unknown)": lambda word: ARaBEvaluator(unknown=word)(WOMEN),
    "gender.training.fair_rerankers.BiasAwareReranker(method)": lambda word: trained_by(BiasAwareReranker)(method=word),
    "gender.training.negatives.BiasAwareNegatives(method)": lambda word: BiasAwareNegatives(method=word),
    "gender.training.neutral_reranker.normalised(how)": lambda word: neutral_reranker.normalised(VALUES, word),
    "gender.training.neutral_reranker.NeutralReranker(normalise)": lambda word: NeutralReranker(normalise=word)(WOMEN),
    "gender.training.neutral_reranker.NeutralReranker(method)": lambda word: NeutralReranker(method=word)(WOMEN),
    "linguistic.data.analysers.get_tagger(tagger)": analysers.get_tagger,
    "linguistic.data.analysers.get_lemmatiser(lemmatiser)": analysers.get_lemmatiser,
    "linguistic.data.stanford.get_parser(parser)": stanford.get_parser,
    "linguistic.data.stanford.StanfordParser(grammar)": lambda word: stanford.StanfordParser(grammar=word)(["tea"]),
    "linguistic.data.stanford.StanfordParser(memory)": lambda word: stanford.StanfordParser(memory=word)(["tea"]),
    "linguistic.data.stanford.StanfordParser(version)": lambda word: stanford.StanfordParser(version=word)(["tea"]),
    "linguistic.data.noun_phrases.repeat_noun_phrases(position)": lambda word: noun_phrases.repeat_noun_phrases(
        "a", [("a", "DT")], position=word
    ),
    "linguistic.data.noun_phrases.RepeatNounPhrases(position)": lambda word: RepeatNounPhrases(position=word)(given.topics()),
    "linguistic.data.noun_phrases.RepeatNounPhrases(tagger)": lambda word: RepeatNounPhrases(tagger=word)(given.topics()),
    "linguistic.data.rewrites.RewriteQueries(rewrite)": lambda word: RewriteQueries(word)(given.topics()),
    "linguistic.data.rewrites.RewriteQueries(tagger)": lambda word: RewriteQueries("noun_phrases", tagger=word)(given.topics()),
    "linguistic.formulas.lexical.lexical_indices(nv)": lambda word: lexical.lexical_indices({}, nv=word),
    "linguistic.formulas.lexical.lexical_indices(uber)": lambda word: lexical.lexical_indices({}, uber=word),
    "linguistic.formulas.spread.spread(statistic)": lambda word: spread.spread(VALUES, word),
    "linguistic.formulas.spread.influence(statistic)": lambda word: spread.influence(VALUES, word),
    "linguistic.formulas.spread.over_collections(average)": lambda word: spread.over_collections([VALUES], average=word),
    "linguistic.formulas.spread.inner_edges(bins)": lambda word: spread.inner_edges(VALUES, word),
    "linguistic.measures.disparity.Disparity(bins)": lambda word: Disparity(bins=word)(given.values()),
    "linguistic.measures.disparity.Disparity(cv_average)": lambda word: Disparity(cv_average=word)(given.values()),
    "linguistic.measures.over_queries.OverQueries(statistic)": lambda word: OverQueries("RR@10", word),
    "linguistic.measures.over_queries.influence_values(statistic)": lambda word: over_queries.influence_values(VALUES, word),
    "linguistic.training.baselines.ReverseComplexity(favour)": lambda word: ReverseComplexity(favour=word),
    "linguistic.formulas.kernel_whitening.kernel_of(kernel)": lambda word: kernel_whitening.kernel_of(
        VALUES, VALUES, kernel=word
    ),
    "linguistic.training.kernel_whitening.KernelWhiteningReranker(kernel)": lambda word: trained_by(KernelWhiteningReranker)(
        kernel=word
    ),
    "linguistic.training.equalize.EqualizeReranker(biased)": lambda word: trained_by(EqualizeReranker)(biased=word),
    "linguistic.training.equalize.EqualizeReranker(negatives)": lambda word: trained_by(EqualizeReranker)(negatives=word),
    **{
        f"linguistic.measures.complexity.LinguisticComplexity({option})": lambda word, option=option: LinguisticComplexity(
            **{"index_set": "table4", option: word}
        )(given.topics())
        for option in ("index_set", "preset", "undefined", "normalise", "segment", "nv", "uber", "tagger", "lemmatiser", "parser")
    },
    "pooling.data.relabel.relabel(action)": lambda word: relabel.relabel(CANDIDATES, JUDGED, Overlap(), action=word),
    "pooling.data.relabel.RelabelReranker(action)": lambda word: RelabelReranker(
        CrossEncoder("no/such-model"), Overlap(), threshold=0.5, action=word
    ).fit(CANDIDATES, JUDGED),
    "pooling.data.scores.AddScores(activation)": lambda word: AddScores(Overlap(), activation=word)(CANDIDATES),
    "pooling.formulas.cet_weights.log_weights(weighting)": lambda word: cet_weights.log_weights(
        tensor(1.0), tensor(0.0), tau=1.0, weighting=word
    ),
    "pooling.formulas.cet_weights.pair_weights(weighting)": lambda word: cet_weights.pair_weights(
        tensor(1.0), tensor(0.0), weighting=word
    ),
    "pooling.formulas.cet_weights.pair_weights(normalise)": lambda word: cet_weights.pair_weights(
        tensor(1.0), tensor(0.0), normalise=word
    ),
    "pooling.training.propensities.KnownPropensities(negatives)": lambda word: KnownPropensities(negatives=word),
    "pooling.formulas.cet_weights.weighted_mean(reduction)": lambda word: cet_weights.weighted_mean(
        tensor(1.0), tensor(1.0), tensor(True), word
    ),
    "pooling.measures.hidden.HiddenJudgements(non_relevant)": lambda word: HiddenJudgements(
        JUDGED, CANDIDATES, depth=1, non_relevant=word
    ),
    **{
        f"position.data.averaging.AverageRotations({option})": lambda word, option=option: AverageRotations(
            Overlap(), **{option: word}
        )(given.texts())
        for option in ("rotations", "combine", "spacing", "unit", "tokeniser")
    },
    "position.data.rotation.RotatePassages(tokeniser)": lambda word: RotatePassages(tokeniser=word)(CANDIDATES),
    "position.data.rotation.RotatePassages(scope)": lambda word: RotatePassages(scope=word)(CANDIDATES),
    "position.data.rotation.RotatePassages(unit)": lambda word: RotatePassages(unit=word)(CANDIDATES),
    "position.data.answers.AnswerPositions(match)": lambda word: AnswerPositions(match=word)(given.answers()),
    "position.data.answers.AnswerPositions(case)": lambda word: AnswerPositions(case=word)(given.answers()),
    "position.data.answers.AnswerPositions(repeats)": lambda word: AnswerPositions(repeats=word)(given.answers()),
    "position.data.answers.AnswerPositions(tokeniser)": lambda word: AnswerPositions(tokeniser=word)(given.answers()),
    "position.data.answers.Positions.uniformity_test(method)": lambda word: AnswerPositions()
    .measure(given.answers())
    .uniformity_test(method=word),
    "position.formulas.mats_result.mats_value(normaliser)": lambda word: mats_value(VALUES, word),
    "position.formulas.mats_result.MATSResult.ats(pair_scope)": lambda word: mats_result().ats(word),
    "position.formulas.mats_result.MATSResult.ats(term_average)": lambda word: mats_result().ats(None, word),
    "position.formulas.mats_result.MATSResult.curve(pair_scope)": lambda word: mats_result().curve(word),
    "position.formulas.mats_result.MATSResult.curve(term_average)": lambda word: mats_result().curve(None, word),
    "position.formulas.psi.place(where)": lambda word: psi.place("a b c", 0, 1, word, str.split),
    **{
        f"position.measures.mats_probe.MATSProbe({option})": lambda word, option=option: MATSProbe(
            "no/such-model", **{option: word}
        )(given.CORPUS)
        for option in ("tokeniser", "pair_scope", "normaliser", "term_average", "std", "piece", "dtype", "duplicates")
    },
    "position.measures.mats_probe.plot_ats(std)": lambda word: plot_ats({"a": mats_result()}, std=word),
    "position.measures.sensitivity.PositionSensitivity(placements)": lambda word: sensitivity(placements=[word]),
    "position.measures.sensitivity.PositionSensitivity(placement_unit)": lambda word: sensitivity(placement_unit=word),
    "position.measures.sensitivity.PositionSensitivity(bucket_unit)": lambda word: sensitivity(bucket_unit=word),
    "rankers.bi_encoder.BiEncoder(similarity)": lambda word: BiEncoder("no/such-model", similarity=word)(CANDIDATES),
    "rankers.bi_encoder.BiEncoder(pooling)": lambda word: BiEncoder("no/such-model", pooling=word)(CANDIDATES),
    "rankers.bi_encoder.BiEncoder.of(name)": lambda word: BiEncoder.of(word, "no/such-model"),
    "rankers.cross_encoder.CrossEncoder(head)": lambda word: CrossEncoder("no/such-model", head=word)(CANDIDATES),
    "rankers.t5.T5Reranker(head)": lambda word: T5Reranker("no/such-model", head=word)(CANDIDATES),
    "rankers.cross_encoder.CrossEncoder.of(name)": lambda word: CrossEncoder.of(word, "no/such-model"),
    "rankers.heads.PooledHead(pooling)": lambda word: PooledHead(None, word),
    "rankers.heads.PassageHead(aggregate)": lambda word: PassageHead(None, word),
    "rankers.heads.joint_head(name)": lambda word: joint_head(None, word),
    **{
        f"{place(make)}({option})": lambda word, make=make, option=option: make("no/such-model", **{option: word})(CANDIDATES)
        for make in (BiEncoder, CrossEncoder, MultiVector, SparseEncoder, T5Reranker, TK)
        for option in ("dtype", "long")
    },
    "rankers.duo_t5.DuoT5Reranker(dtype)": lambda word: DuoT5Reranker("no/such-model", dtype=word)(CANDIDATES),
    "rankers.base.Ranker(dtype)": lambda word: CrossEncoder("no/such-model", dtype=word)(CANDIDATES),
    "rankers.base.Ranker(long)": lambda word: CrossEncoder("no/such-model", long=word)(CANDIDATES),
    "rankers.dual_encoder.prompt_of(task)": lambda word: dual_encoder.prompt_of(None, word),
    "rankers.dual_encoder.reads_plain_text(task)": lambda word: dual_encoder.reads_plain_text(None, word),
    "rankers.engine.cut_lengths(truncation)": lambda word: engine.cut_lengths(VALUES, VALUES, 1, word),
    "rankers.engine.Sequences(truncation)": lambda word: engine.Sequences(SimpleNamespace(special=0), 1, [], truncation=word),
    "rankers.engine.Sequences(side)": lambda word: engine.Sequences(SimpleNamespace(special=0), 1, [], side=word),
    "rankers.sparse_encoder.SparseEncoder.terms(task)": lambda word: SparseEncoder("no/such-model").terms("a", word),
    "rankers.sparse_encoder.SparseEncoder.describe(task)": lambda word: SparseEncoder("no/such-model").describe(["a"], word),
    "rankers.tk.TK.from_embeddings(convention)": lambda word: tk_model.TKConfig(convention=word),
    "rankers.tk.TK.from_embeddings(positional)": lambda word: tk_model.TKConfig(positional=word),
    "rankers.tk_model.TKConfig(positional)": lambda word: tk_model.TKConfig(positional=word),
    **{
        f"{place(HuggingFaceWords)}({option})": lambda word, option=option: HuggingFaceWords(
            "no/such-model", **{option: word}
        ).word_vectors(["a"])
        for option in ("piece", "dtype")
    },
    "report.attributions.worst_items(kind)": lambda word: attributions.worst_items(pd.DataFrame({"kind": []}), word),
    "report.gate.Budget(bound)": lambda word: gate.Budget("position", bound=word, at_most=0),
    "report.inputs.find_biases(biases)": inputs.find_biases,
    "report.request.Request(device)": lambda word: perform.perform(Request(device=word), print),
    "report.pictures.picture(kind)": lambda word: pictures.picture(bias.Figure("a", "b", lambda axes: None), word),
    "report.run.audit(biases)": lambda word: audit({}, "planted", biases=word),
    "report.run.audit(correction)": lambda word: audit({}, "planted", correction=word),
    "survivorship.data.ranks.mapped(docno)": lambda word: ranks.mapped(SHOWN, word),
    "survivorship.data.ranks.first_relevant_ranks(docno)": lambda word: ranks.first_relevant_ranks(SHOWN, LABELS, docno=word),
    "survivorship.data.ranks.first_relevant_ranks(repeats)": lambda word: ranks.first_relevant_ranks(SHOWN, LABELS, repeats=word),
    "survivorship.data.ranks.check_repeats(repeats)": lambda word: ranks.check_repeats(word, ["text"], "qna", "a stage"),
    "survivorship.data.annotations.rank_annotations(repeats)": lambda word: rank_annotations(
        {"mine": RESULTS}, LABELS, labelled_by="me", repeats=word
    ),
    "survivorship.data.subset.SurvivorshipSubset(repeats)": lambda word: SurvivorshipSubset(SHOWN, LABELS, repeats=word)(ASKED),
    "survivorship.data.subset.SurvivorshipSubset(docno)": lambda word: SurvivorshipSubset(SHOWN, LABELS, docno=word)(ASKED),
    "survivorship.data.subset.SurvivorshipSubset(answered_by)": lambda word: SurvivorshipSubset(SHOWN, LABELS, answered_by=word)(
        ASKED
    ),
    "survivorship.measures.curve.SurvivorshipResult.appendix(unanswered)": lambda word: SurvivorshipCurve(
        {"mine": RESULTS}, SHOWN, LABELS, resamples=9
    )
    .evaluate(ASKED)
    .appendix(unanswered=word),
    "survivorship.training.answerability.Answerability(features)": lambda word: Answerability(features=word).fit(
        answerable(60, 0)[0]
    ),
    **{
        f"{loss.__module__.removeprefix('pyterrier_debias.')}.{loss.__name__}(reduction)": lambda word, loss=loss: loss(
            tensor(1.0, 0.0), reduction=word
        )
        for loss in (*losses.LOSSES.values(), debiased_contrastive, dynamic_pairwise)
    },
    "training.losses.mean_over(reduction)": lambda word: losses.mean_over(tensor(1.0), tensor(True), tensor(1.0), word),
    "training.losses.lambda_loss(scheme)": lambda word: losses.lambda_loss(tensor(1.0, 0.0), scheme=word),
    **{
        f"training.options.Training({option})": lambda word, option=option: Training(**{option: word})
        for option in ("loss", "positives", "schedule", "precision", "log_to")
    },
    "training.weights.ColumnWeights(per)": lambda word: ColumnWeights("a", per=word),
    **{
        f"pooling.formulas.cet_weights.Coupling({option})": lambda word, option=option: cet_weights.Coupling(**{option: word})
        for option in ("weighting", "normalise_weights", "weight_pass", "reduction", "loss")
    },
    **{
        f"pooling.training.cet.CETReranker({option})": lambda word, option=option: trained_by(CETReranker)(**{option: word})
        for option in ("weighting", "selection", "normalise_weights", "weight_pass", "reduction", "loss")
    },
}

#: Words in docstrings that are not a closed list of choices: names of the reader's own, and examples.
FREE = {
    "core.bias.Finding(bias)", "core.bias.Finding(measure)", "core.bias.Finding(contrast)", "core.bias.Parts(kind)",
    "core.counterfactuals.Arm(name)", "core.dataset.provided(method)", "core.files.whole_folder(holds)",
    "rankers.bi_encoder.BiEncoder(model)",
    "data.base.Collection(qrels)", "data.irds.IRDSCollection.get_topics(variant)", "data.terrier.IndexSettings(stopwords)",
    "data.terrier.check_weighting_model(model)", "gender.data.profiles.category_shares(columns)",
    "gender.data.profiles.chosen_columns(columns)", "gender.data.profiles.columns_of(wanted)",
    "gender.data.profiles.LexiconProfiles(columns)", "gender.data.query_gender.QueryGender(text_field)",
    "gender.data.query_gender.QueryGender(wordlist)", "gender.measures.evaluation.BiasResult.compare(measure)",
    "gender.measures.evaluation.BiasResult.compare(correction)", "gender.measures.evaluation.BiasResult.plot(measure)",
    "gender.measures.evaluator.AnnotateGender(wordlist)", "gender.measures.evaluator.GenderCounts(sums)",
    "linguistic.data.analysers.SpacyTagger(pipeline)", "linguistic.data.rewrites.rewritten(tagger)",
    "linguistic.measures.complexity.LinguisticComplexity(common_words)", "linguistic.measures.disparity.Disparity(controls)",
    "linguistic.measures.disparity.DisparityResult.test(test)", "position.formulas.mats_result.MATSResult(sums)",
    "rankers.dual_encoder.TwoTowers.encoded(task)", "report.first_stage.terrier_stage(model)",
    "report.pictures.DrawnFigure(pictures)", "report.pictures.DrawnFigure.from_pictures(pictures)",
    "report.run.audit(dataset)", "report.treatments.Treatment(page)", "report.verdict.Answer(unit)",
    "survivorship.data.dataset_report.DatasetReport(source)",
    "survivorship.data.ranks.passage_ids(docnos)", "survivorship.training.answerability.AnswerabilityResult.figure(name)",
    "survivorship.training.rank_filtered.TrainingSubset(kind)",
}  # fmt: skip


def documented():
    """Every public option whose docstring quotes a word that it can be."""
    found = set()
    for info in pkgutil.walk_packages(pyterrier_debias.__path__, "pyterrier_debias."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        for name, thing in vars(module).items():
            if name.startswith("_") or getattr(thing, "__module__", None) != info.name:
                continue
            for path, call, docs in callables(name, thing):
                if not docs:
                    continue
                for option in inspect.signature(call).parameters.values():
                    entry = re.search(rf"^( *){option.name}: ((?:.*\n?)(?:\1 +.*\n|\n)*)", docs, re.M)
                    textual = isinstance(option.default, str) or re.search("str|Any", str(option.annotation))
                    if entry and textual and re.search(r"``'[\w +-]*'``", entry[2]):
                        found.add(f"{info.name.removeprefix('pyterrier_debias.')}.{path}({option.name})")
    return found


def callables(name, thing):
    if inspect.isfunction(thing):
        yield name, thing, thing.__doc__ or ""
    elif inspect.isclass(thing) and not issubclass(thing, Exception):
        own = vars(thing).get("__init__")
        if own is not None and not own.__qualname__.startswith(f"{name}."):  # a base's, which looks at keywords
            own = None
        yield name, thing, "\n".join(filter(None, [vars(thing).get("__doc__"), getattr(own, "__doc__", None)]))
        for method, call in vars(thing).items():
            call = getattr(call, "__func__", call)
            if not method.startswith("_") and inspect.isfunction(call):
                yield f"{name}.{method}", call, call.__doc__ or ""


def test_every_documented_choice_is_tried():
    found = documented()
    assert found - CASES.keys() - FREE == set()
    assert FREE - found == set() and not FREE & CASES.keys()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("word", ["no-such-word", ""])
def test_a_wrong_word_is_refused(case, word):
    with pytest.raises(InputError, match=r"is not known; use|must be"):
        CASES[case](word)


@pytest.mark.parametrize("value", [["holm"], True, None, VALUES, pd.DataFrame({"a": [1]}), {"holm": 1}])
def test_what_is_no_word_is_refused_in_words(value):
    with pytest.raises(InputError, match=r"correct: method=.* is not known; use one of 'holm', 'bonferroni'$"):
        errors.check_choice("correct", "method", value, ("holm", "bonferroni"))


def test_words_of_other_kinds_are_words():
    errors.check_choice("correct", "method", np.array(["holm"])[0], ("holm",))
    errors.check_choice("AddScores", "activation", None, (None, "sigmoid"))


@pytest.mark.parametrize(
    "value", ["1", None, True, float("nan"), float("inf"), pytest.param(10**400, id="huge"), 0.0, -1, VALUES, [1.0]]
)
def test_what_is_no_number_in_range_is_refused_in_words(value):
    with pytest.raises(InputError, match=r"CETReranker: tau=.* must be a number above 0$"):
        errors.check_number("CETReranker", "tau", value, above=0)


def test_limits_are_of_the_range():
    errors.check_number("a", "b", np.float32(0.5), above=0, most=0.5)
    errors.check_number("a", "b", 0, least=0)
    with pytest.raises(InputError, match=r"a: b=0\.6 must be a number of at least 0 and at most 0\.5; or leave it out"):
        errors.check_number("a", "b", 0.6, least=0, most=0.5, hint="or leave it out")
