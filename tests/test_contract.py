"""Every public stage keeps the contract of `tests/contract.py`."""

import inspect

import pyterrier as pt
import pytest

from pyterrier_debias import Collection
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from tests.contract import CHECKS, assert_same
from tests.contract_cases import CASES, CORPUS, RESULTS, women


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case, check, monkeypatch):
    function = CHECKS[check]
    function(case, monkeypatch) if "monkeypatch" in inspect.signature(function).parameters else function(case)


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
