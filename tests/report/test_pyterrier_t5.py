"""Rerankers of pyterrier_t5 in an audit, and what it says of them."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import T5Reranker, audit
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from tests.rankers.t5_models import with_positions
from tests.report.three_documents import RUN, TOY
from tests.tiny_models import build_t5


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return with_positions(build_t5(tmp_path_factory.mktemp("t5") / "my-t5"))


def rerankers(folder, batch_size):
    from pyterrier_t5 import DuoT5ReRanker, MonoT5ReRanker

    options = {"tok_model": folder, "model": folder, "batch_size": batch_size, "device": "cpu", "verbose": False}
    return {"mono": MonoT5ReRanker(**options), "duo": DuoT5ReRanker(**options)}


def audited(rankers, **options):
    first = pt.Transformer.from_df(RUN) >> TOY.text_loader()
    systems = {name: first >> ranker for name, ranker in rankers.items()}
    result = audit(systems, TOY, biases=["position"], draws=1, **options)
    assert result.failed.empty and set(result.findings["system"]) == set(rankers)
    return result


def notes_on_batches(result):
    return [note for note in result.settings["notes"] if "prompts per batch" in note]


def test_they_are_audited_and_what_depends_on_batches_is_said(folder, tmp_path):
    def systems():
        theirs = rerankers(folder, 4)
        return {**theirs, "inside": theirs["mono"] + T5Reranker(folder, device="cpu")}

    result = audited(systems(), checkpoint=tmp_path / "kept")
    mono, duo = notes_on_batches(result)
    assert mono.startswith("mono, inside: MonoT5ReRanker scores 4 prompts per batch") and "T5Reranker.from_pyterrier_t5" in mono
    assert duo.startswith("duo: DuoT5ReRanker scores 4 prompts per batch") and "or DuoT5Reranker" in duo
    again = audited(systems(), checkpoint=tmp_path / "kept")  # loaded anew, and known by its weights
    pd.testing.assert_frame_equal(again.findings, result.findings)


def test_with_one_prompt_a_batch_ours_and_theirs_have_the_same_findings(folder):
    ours = {"our mono": T5Reranker(folder, device="cpu"), "our duo": DuoT5Reranker(folder, device="cpu")}
    result = audited({**rerankers(folder, 1), **ours})
    assert notes_on_batches(result) == []
    numbers = result.findings.set_index(["system", "measure", "contrast"])[["value", "low", "high"]]
    for name in ("mono", "duo"):
        pd.testing.assert_frame_equal(numbers.loc[name], numbers.loc[f"our {name}"], atol=1e-4)
