"""Options that are numbers refuse text, lists and NaN in words, before anything is loaded or computed."""

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import (
    Answerability,
    CETReranker,
    CrossEncoder,
    DenoisedNegatives,
    Disparity,
    EqualizeReranker,
    FewerSteps,
    FocalReranker,
    GroupDROReranker,
    InputError,
    LessData,
    LinguisticComplexity,
    PoolEvidence,
    PositiveAwareNegatives,
    RankWindow,
    RelabelReranker,
    SparseEncoder,
    SurvivorshipCurve,
    SurvivorshipSubset,
    Training,
    WordingSensitivity,
)
from pyterrier_debias.linguistic.formulas.product_of_experts import joint_scores
from pyterrier_debias.pooling.formulas.cet_weights import log_weights, pair_weights
from pyterrier_debias.pooling.formulas.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.pooling.training.negatives import rank_chances
from tests.contract_cases import texts, topics, values
from tests.position.toy import Overlap
from tests.survivorship.toy import ASKED, LABELS, RESULTS, SHOWN, answerable

JUDGED = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["d0", "d5"], "label": 1})


def tensor(*numbers):
    import torch

    return torch.tensor([numbers])


def trained(make, **given):
    return lambda **more: make(CrossEncoder("no/such-model"), **given, **more).fit(texts().assign(complexity=1.0), JUDGED)


CALLS = {
    ("Disparity", "draws", "level"): lambda **o: Disparity(**o)(values()),
    ("LinguisticComplexity", "segment", "min_defined"): lambda **o: LinguisticComplexity(**o)(topics()),
    ("WordingSensitivity", "depth", "draws", "level"): lambda **o: WordingSensitivity(Overlap(), **o)(texts()),
    ("SurvivorshipCurve", "draws", "level", "ranks"): lambda **o: SurvivorshipCurve({"m": RESULTS}, SHOWN, LABELS, **o)(ASKED),
    ("SurvivorshipSubset", "min_rel"): lambda **o: SurvivorshipSubset(SHOWN, LABELS, **o)(ASKED),
    ("Answerability", "folds", "strength", "draws", "level"): lambda **o: Answerability(**o).fit(answerable(60, 0)[0]),
    ("CETReranker", "tau", "max_weight", "unweighted_steps"): trained(CETReranker),
    ("EqualizeReranker", "alpha", "biased_temperature"): trained(EqualizeReranker),
    ("FocalReranker", "gamma", "biased_temperature"): trained(FocalReranker),
    ("GroupDROReranker", "step", "bins"): trained(GroupDROReranker),
    ("SparseEncoder", "query_flops", "document_flops", "flops_warmup"): lambda **o: SparseEncoder("no/such-model", **o)(texts()),
    ("LessData", "share"): lambda **o: trained(EqualizeReranker, biased=LessData(**o))(),
    ("FewerSteps", "share"): lambda **o: trained(EqualizeReranker, biased=FewerSteps(**o))(),
    ("RelabelReranker", "threshold", "depth"): trained(RelabelReranker, judge=Overlap()),
    ("RankWindow", "first", "last"): RankWindow,
    ("DenoisedNegatives", "below", "depth"): DenoisedNegatives,
    ("PositiveAwareNegatives", "percentage", "margin"): PositiveAwareNegatives,
    ("PoolEvidence", "learning_rate"): PoolEvidence,
    ("Training", "epochs", "clip", "learning_rate", "warmup", "weight_decay", "batch_size"): Training,
    ("pair_weights", "tau", "max_weight"): lambda **o: pair_weights(tensor(1.0), tensor(0.0), **o),
    ("log_weights", "tau"): lambda **o: log_weights(tensor(1.0), tensor(0.0), **o),
    ("joint_scores", "alpha", "biased_temperature"): lambda **o: joint_scores(tensor(1.0), tensor(0.0), **o),
    ("debiased_contrastive", "tau_plus", "temperature"): lambda **o: debiased_contrastive(tensor(1.0, 0.0), **o),
    ("dynamic_pairwise", "width"): lambda **o: dynamic_pairwise(tensor(1.0, 0.0), **o),
    ("RANCE", "queries"): lambda **o: rank_chances(np.zeros(30), **o),
}


@pytest.mark.parametrize("bad", ["1", float("nan"), [2]])
@pytest.mark.parametrize(("names", "option"), [(names, option) for names in CALLS for option in names[1:]])
def test_what_is_no_number_is_refused(names, option, bad):
    with pytest.raises(InputError, match=rf"{option}=.*must be"):
        CALLS[names](**{option: bad})


def test_no_queries_have_no_chances():
    """No judged query was a division by 0, and uniform chances."""
    with pytest.raises(InputError, match="RANCE: queries=0 must be a whole number of 1 or more"):
        rank_chances(np.zeros(30), 0)
