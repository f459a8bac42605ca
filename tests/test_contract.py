"""Every public stage keeps the contract of `tests/contract.py`."""

import numpy as np
import pyterrier as pt
import pytest

from pyterrier_debias import Collection
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from tests.contract import Case, assert_contract, assert_same
from tests.contract_cases import CASES, CORPUS, RESULTS, women


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case):
    assert_contract(case)


def test_every_check_that_a_stage_fails_is_named():
    class Forgetful(Stage):
        """Draws a score, and keeps no column."""

        def transform(self, inp):
            return inp[["qid", "docno"]].assign(score=float(np.random.default_rng().normal()), rank=0)

    with pytest.raises(ExceptionGroup) as found:
        assert_contract(Case("Forgetful", Forgetful, women, Forgetful))
    told, errors = found.value.message, found.value.exceptions
    assert told.startswith("Forgetful breaks: ") and told.count(",") == len(errors) - 1
    wanted = {"columns_are_kept", "scores_agree_with_ranks", "order_and_batches", "equality", "pickles", "documented"}
    assert wanted <= set(told.removeprefix("Forgetful breaks: ").split(", "))


#: Stages that look at one row at a time.
ROWWISE = (
    "AnnotateGender", "LexiconProfiles", "QueryGender(documents)", "RepeatNounPhrases", "RewriteQueries(results)",
    "SwapGender", "SwapGender(queries)", "BiEncoder.query_encoder",
)  # fmt: skip


@pytest.mark.parametrize("name", ROWWISE)
def test_a_cut_off_behind_a_rowwise_stage_goes_before_it(name):
    stage = next(case for case in CASES if case.name == name).make()
    first = pt.Transformer.from_df(women())
    cut, asked = (first >> stage % 2).compile(), women()[["qid", "query"]].drop_duplicates()
    assert list(cut)[1:] == [pt.RankCutoff(2), stage]
    assert_same((first >> stage % 2)(asked), cut(asked))


def test_no_reranker_lets_a_cut_off_through():
    rerankers = [case for case in CASES if isinstance(case.make(), (Ranker, TrainedRanker))]
    assert rerankers and not [case.name for case in rerankers if hasattr(case.make(), "fuse_rank_cutoff")]


def test_collections_loader_is_the_same_stage():
    toy = Collection("toy", corpus=CORPUS, topics={"t": RESULTS[["qid", "query"]]}, qrels={"t": RESULTS.assign(label=1)})
    assert isinstance(toy.text_loader(), TextLoader)
