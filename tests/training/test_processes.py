"""Trainings and an audit in processes of their own: in one that is killed, and in two at once."""

import json
import signal
from functools import partial

import numpy as np
import torch

from pyterrier_debias import BiEncoder, CETReranker, SparseEncoder
from tests.pooling.cet_toy import pooled
from tests.processes import run, run_two
from tests.report.killed import check_that_it_goes_on
from tests.training.networks import difference, resumable, weights
from tests.training.toy import TWO, candidates, no_dropout, qrels, scores_of, training

STOPPED = """
import os, signal, sys, torch
torch.set_num_threads(1)
from pyterrier_debias import CrossEncoder, RotatePassages
from pyterrier_debias.training import trainer
from tests.training.networks import resumable
from tests.training.toy import candidates, qrels

save = trainer._Trainer._save_checkpoint
def killed(self, model, trial):
    if self.state.global_step == 6:
        # In the middle of writing: the folder is there, and is not whole.
        self._save(os.path.join(self.args.output_dir, "checkpoint-6"))
        os.kill(os.getpid(), signal.SIGKILL)
    save(self, model, trial)
trainer._Trainer._save_checkpoint = killed
resumable(sys.argv[1], sys.argv[2])
"""


def test_a_run_that_was_killed_goes_on_as_if_nothing_had_happened(tiny, tmp_path):
    model, folder = tiny(), tmp_path / "run"
    code, told = run(STOPPED, model, str(folder), folder=tmp_path)
    assert code == -signal.SIGKILL, told
    assert sorted(path.name for path in folder.glob("checkpoint-*"))[-2:] == ["checkpoint-4", "checkpoint-6"]
    resumed = resumable(model, folder, resume=True)
    straight = resumable(model, tmp_path / "other")
    assert resumed.training_report.steps == straight.training_report.steps == 8
    last = [torch.load(at / "checkpoint-8" / "pytorch_model.bin", weights_only=True) for at in (folder, tmp_path / "other")]
    assert difference(*last) == 0
    assert difference(weights(resumed), weights(straight)) == 0
    assert resumed.training_report.best_step == straight.training_report.best_step
    assert resumed.training_report.validation == straight.training_report.validation
    measured = [
        [(entry["step"], entry["eval_ndcg_10"]) for entry in run.training_report.history if "eval_ndcg_10" in entry]
        for run in (resumed, straight)
    ]
    assert measured[0] == measured[1]
    # A finished run is resumed to its result, and took as long as all of its parts.
    again = resumable(model, folder, resume=True)
    assert difference(weights(again), weights(straight)) == 0
    until = json.loads((folder / "checkpoint-8" / "pyterrier_debias.json").read_text())["seconds"]
    assert 0 < until < min(again.training_report.seconds, resumed.training_report.seconds)


def test_an_audit_that_was_killed_goes_on(tmp_path):
    check_that_it_goes_on(partial(run, folder=tmp_path), tmp_path / "kept")


def test_two_processes_stay_in_step_and_equal_one_with_the_whole_batch(tiny, tmp_path):
    """Over gloo. BiEncoders call their encoder twice a step, and have weights that no score depends on."""
    model = tiny("build_sentence_transformer")
    run_two(TWO, model, str(tmp_path / "two"), folder=tmp_path)
    best = [torch.load(tmp_path / f"two-best-{rank}", weights_only=True) for rank in range(2)]
    assert difference(*best) == 0
    first, second = (torch.load(tmp_path / f"two-{rank}", weights_only=True) for rank in range(2))
    assert difference(first, second) == 0
    options = training(batch_size=8, max_steps=4)
    alone = no_dropout(BiEncoder(model, training=options)).fit(candidates(), qrels(), candidates("v"), qrels("v"))
    saved = BiEncoder.load(tmp_path / "two-saved")
    assert difference(weights(saved), first) == 0
    assert saved.training_report.validation == alone.training_report.validation
    np.testing.assert_allclose(scores_of(saved), scores_of(alone), rtol=1e-3)
    assert np.abs(scores_of(saved) / scores_of(BiEncoder(model)) - 1).max() > 0.01


CET = """
import os, sys, torch
torch.set_num_threads(1)
from pyterrier_debias import CETReranker, CrossEncoder
from tests.pooling.cet_toy import candidates, pooled, qrels, training

for selection in ("first_stage", CrossEncoder(sys.argv[2])):
    options = training(batch_size=4, max_steps=3)
    stage = CETReranker(CrossEncoder(sys.argv[1]), selection=selection, weight_pass="eval", tau=0.5, training=options)
    stage.fit(pooled(), qrels(), candidates("v"), qrels("v"))
    name = sys.argv[3] + ("-features" if selection == "first_stage" else "-ranker")
    scores = stage.selection_scores(pooled())["selection_score"].tolist() + stage(pooled())["score"].tolist()
    torch.save(scores, name + os.environ["RANK"])
    stage.save(name)
"""


def test_two_processes_stay_in_step_with_cet(tiny, tmp_path):
    """Over gloo; the second pass and the counters included."""
    run_two(CET, tiny(), tiny(seed=1), str(tmp_path / "two"), folder=tmp_path)
    for kind in ("features", "ranker"):
        first, second = (torch.load(tmp_path / f"two-{kind}{rank}", weights_only=True) for rank in range(2))
        assert first == second
        loaded = CETReranker.load(tmp_path / f"two-{kind}")
        np.testing.assert_allclose(loaded.selection_scores(pooled())["selection_score"], first[:48], atol=1e-6)


SPARSE = """
import os, sys, torch
torch.set_num_threads(1)
from pyterrier_debias import SparseEncoder
from tests.training.toy import candidates, no_dropout, qrels, training

options = training(batch_size=4, max_steps=3)
ranker = SparseEncoder(sys.argv[1], query_flops=0.1, document_flops=0.1, flops_warmup=0, training=options)
no_dropout(ranker).fit(candidates(), qrels())
torch.save(ranker.module.state_dict(), sys.argv[2] + "-" + os.environ["RANK"])
"""


def test_two_processes_add_the_same_gradient_of_their_penalties(tiny, tmp_path):
    """Over gloo: the penalty is computed outside of what the processes share."""
    run_two(SPARSE, tiny("build_sparse"), str(tmp_path / "two"), folder=tmp_path)
    first, second = (torch.load(tmp_path / f"two-{rank}", weights_only=True) for rank in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)
    start = SparseEncoder(tiny("build_sparse")).module.state_dict()
    assert not all(torch.equal(start[name], first[name]) for name in first)
