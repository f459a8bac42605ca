"""The trainer: what it promises beyond the loss."""

import json
import os
import random
import re
import shutil
from functools import partial
from pathlib import Path
from threading import Thread

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import BiEncoder, ColumnWeights, CrossEncoder, InputError, T5Reranker, Training
from pyterrier_debias.core.files import locked_inside
from pyterrier_debias.training import precision
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.losses import ranknet
from pyterrier_debias.training.method import Ranking
from pyterrier_debias.training.samplers import UniformNegatives
from pyterrier_debias.training.trainer import remove_checkpoints
from tests.training.networks import difference, weights
from tests.training.toy import candidates, no_dropout, qrels, scores_of, training

ROOT = Path(__file__).resolve().parents[2]


def fitted(folder, *validation, **options):
    ranker = folder if isinstance(folder, CrossEncoder) else CrossEncoder(folder)
    ranker.training = training(**options)
    return ranker.fit(candidates(), qrels(), *validation)


def test_seeds_make_runs_repeatable_whatever_the_order_of_rows(tiny):
    runs = [fitted(tiny(), seed=seed, max_steps=3) for seed in (1, 1, 2)]
    shuffled = CrossEncoder(tiny(), training=training(seed=1, max_steps=3))
    shuffled.fit(candidates().sample(frac=1, random_state=2), qrels().iloc[::-1])
    found = [weights(run) for run in [*runs, shuffled]]
    assert difference(found[0], found[1]) == 0
    assert difference(found[0], found[3]) == 0
    assert difference(found[0], found[2]) > 0
    assert runs[0] == runs[1] != runs[2]
    assert runs[0] != CrossEncoder(tiny())


def test_trainings_in_threads_are_those_of_one_after_another(tiny):
    expected = [weights(fitted(tiny(), seed=seed, max_steps=6)) for seed in (0, 1)]
    torch.manual_seed(7)
    state, found = torch.get_rng_state(), {}
    threads = [Thread(target=lambda seed=seed: found.update({seed: fitted(tiny(), seed=seed, max_steps=6)})) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [difference(weights(found[seed]), expected[seed]) for seed in (0, 1)] == [0, 0]
    assert torch.equal(torch.get_rng_state(), state)


def test_a_fresh_head_waits_for_the_training_of_another_thread(tiny):
    head = CrossEncoder(tiny(labels=None))
    expected, thread = weights(CrossEncoder(tiny(labels=None))), Thread(target=lambda: head.module)
    with trainer_module.as_found(torch.device("cpu")):
        torch.manual_seed(7)
        draws = torch.rand(2)
        torch.manual_seed(7)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert torch.equal(torch.rand(2), draws)
    thread.join()
    assert difference(weights(head), expected) == 0


def test_checkpoints_change_no_weights(tiny, tmp_path):
    """What writes a pooled head makes layers, which draw weights."""
    found = []
    for folder in (None, tmp_path):
        ranker = CrossEncoder(tiny(labels=None), head="mean")
        found.append(weights(fitted(ranker, max_steps=3, evaluate_every=1, checkpoints=folder)))
    assert difference(*found) == 0


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_training_has_gradients_wherever_it_is_called(tiny, without):
    expected = weights(fitted(tiny(), max_steps=1))
    with without():
        found = fitted(tiny(), max_steps=1)
        assert not torch.is_grad_enabled()
    assert difference(weights(found), expected) == 0


def test_the_rest_of_the_process_is_left_as_it_was(tiny, capfd):
    from transformers.utils import logging as hf_logging

    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    expected = random.random(), np.random.random(), torch.rand(1).item()  # noqa: NPY002
    random.seed(5), np.random.seed(5), torch.manual_seed(5)  # noqa: NPY002
    level = hf_logging.get_verbosity()
    fitted(tiny(), candidates("v"), qrels("v"), max_steps=1)
    assert (random.random(), np.random.random(), torch.rand(1).item()) == expected  # noqa: NPY002
    assert hf_logging.get_verbosity() == level
    assert capfd.readouterr() == ("", "")


def test_progress_is_pyterriers_bar(tiny, monkeypatch):
    shown = []

    class Bar:
        def __init__(self, *args, **options):
            shown.append((options.get("desc"), options.get("total"), options.get("disable")))

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def update(self, n=1):
            shown.append(n)

        def set_postfix(self, found, refresh=True):
            shown.append(sorted(found))

        def close(self):
            shown.append("closed")

    monkeypatch.setattr(pt, "tqdm", Bar)
    CrossEncoder(tiny(), verbose=True, training=training(max_steps=2)).fit(candidates(), qrels())
    assert ("training", 2, False) in shown
    assert shown[-1] == "closed"
    assert ["loss"] in shown


def test_checkpoints_hold_the_ranker_in_its_public_form(tiny, tmp_path):
    ranker = fitted(tiny(), max_steps=4, evaluate_every=2, checkpoints=tmp_path / "run")
    (last,) = (tmp_path / "run").glob("checkpoint-*")
    assert last.name == "checkpoint-4"
    scores = CrossEncoder(str(last / "ranker")).score(["where is the king"], ["the king found relevant red works"])
    np.testing.assert_allclose(scores, ranker.score(["where is the king"], ["the king found relevant red works"]), atol=1e-6)


@pytest.mark.parametrize(
    ("make", "builder", "options"),
    [
        (CrossEncoder, {"builder": "build"}, {"text_field": "body", "long": "firstp", "passage_length": 3}),
        (CrossEncoder, {"builder": "build", "labels": None}, {"head": "mean", "max_length": 10}),
        (BiEncoder, {"builder": "build_sentence_transformer"}, {"similarity": "cosine"}),
        (T5Reranker, {"builder": "build_t5"}, {"max_length": 12}),
        (T5Reranker, {"builder": "build_t5", "extra": True}, {"head": "rankt5"}),
    ],
)
def test_the_ranker_of_a_checkpoint_has_its_options(make, builder, options, tiny, tmp_path):
    frame = candidates().assign(body=lambda f: f["text"], text=lambda f: f["text"].iloc[::-1].tolist())
    model = tiny(**builder)
    # A report of an earlier training says nothing about the weights of a checkpoint.
    ranker = make(model, training=training(max_steps=1), **options).fit(frame, qrels())
    ranker.training = training(max_steps=2, checkpoints=tmp_path)
    ranker.fit(frame, qrels())
    expected = ranker(frame)["score"]
    for opens in (make, make.load, pt.Artifact.load):
        opened = opens(str(tmp_path / "checkpoint-2" / "ranker"))
        assert type(opened) is make and opened.training_report is None
        np.testing.assert_allclose(opened(frame)["score"], expected, rtol=1e-5, atol=1e-6)


def test_another_runs_checkpoints_are_refused(tiny, tmp_path):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    with pytest.raises(InputError, match=r"holds the checkpoints of a run; continue with Training\(resume=True\)"):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    with pytest.raises(InputError, match=r"another run, with other .*learning_rate=0.001 \(0.002 there\)"):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True, learning_rate=1e-3)
    with pytest.raises(InputError, match=r"another run, with other data"):
        ranker = CrossEncoder(tiny(), training=training(max_steps=2, checkpoints=tmp_path, resume=True))
        ranker.fit(candidates().assign(text="other"), qrels())
    with pytest.raises(InputError, match=r"another run, with other validation \(None there\)"):
        fitted(tiny(), candidates("v"), qrels("v"), max_steps=2, checkpoints=tmp_path, resume=True)
    for other in (tiny(architecture="electra"), tiny(seed=1)):
        with pytest.raises(InputError, match=r"another run, with other starting weights \('weights:[0-9a-f]+' there\)"):
            fitted(other, max_steps=2, checkpoints=tmp_path, resume=True)
    with pytest.raises(InputError, match=r"another run, with other max_length=64 \(None there\)"):
        ranker = CrossEncoder(tiny(), max_length=64, training=training(max_steps=2, checkpoints=tmp_path, resume=True))
        ranker.fit(candidates(), qrels())

    class Another(CrossEncoder):
        pass

    with pytest.raises(InputError, match=r"another run, with other class='Another' \('CrossEncoder' there\)"):
        Another(tiny(), training=training(max_steps=2, checkpoints=tmp_path, resume=True)).fit(candidates(), qrels())
    fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True, log_every=5)


def test_a_column_that_is_read_belongs_to_the_run(tiny, tmp_path):
    """Weights and samplers read columns; those that nothing reads may differ, as scores of a first stage on a GPU do."""

    def go(folder, frame, **options):
        ranker = CrossEncoder(tiny(), training=training(max_steps=2, checkpoints=tmp_path / folder, **options))
        return ranker.fit(frame, qrels())

    frame, weighed = candidates().assign(ease=1.0), {"weights": ColumnWeights("ease")}
    go("weighed", frame, **weighed)
    go("plain", frame)
    with pytest.raises(InputError, match=r"another run, with other column 'ease' \('[0-9a-f]+' there\); name another folder"):
        go("weighed", frame.assign(ease=7.0), resume=True, **weighed)
    go("weighed", frame.assign(score=0.5), resume=True, **weighed)
    go("plain", frame.assign(ease=7.0, score=0.5), resume=True)


def test_the_first_stages_ranks_belong_to_a_run_that_chooses_a_depth(tiny, tmp_path):
    def go(folder, ranks, **options):
        options = training(max_steps=2, checkpoints=tmp_path / folder, **options)
        return CrossEncoder(tiny(), training=options).fit(candidates(), qrels(), candidates("v").assign(rank=ranks), qrels("v"))

    ranks = candidates("v")["rank"]
    go("depths", ranks, rerank_depth=[2, 4])
    go("all", ranks)
    with pytest.raises(InputError, match="another run, with other validation"):
        go("depths", 5 - ranks, rerank_depth=[2, 4], resume=True)
    go("depths", ranks + 1, rerank_depth=[2, 4], resume=True)
    go("all", 5 - ranks, resume=True)


def test_an_encoder_that_stays_as_it_is_belongs_to_the_run(tiny, tmp_path):
    """By its weights and options, wherever it lies and whatever device it is on."""
    model = tiny("build_sentence_transformer")

    def go(documents, **options):
        options = training(max_steps=2, checkpoints=tmp_path / "run", **options)
        return BiEncoder(model, documents_by=documents, training=options).fit(candidates(), qrels())

    go(BiEncoder(model))
    shutil.copytree(model, tmp_path / "moved")
    go(BiEncoder(str(tmp_path / "moved"), device="cpu", batch_tokens=99), resume=True)
    other = BiEncoder(model)
    with torch.no_grad():
        other.module[0].model.embeddings.word_embeddings.weight.mul_(1.5)
    for documents in (other, BiEncoder(model, max_length=6), None):
        with pytest.raises(InputError, match="another run, with other documents_by="):
            go(documents, resume=True)


def test_numbers_of_numpy_train_as_pythons_own(tiny, tmp_path):
    """Seeds from np.arange, rates from np.logspace; a checkpoint that could not be written blamed the disk."""
    numbers = {
        "max_steps": np.int64(2),
        "batch_size": np.int64(4),
        "accumulation": np.int32(1),
        "seed": np.int64(3),
        "patience": np.int64(9),
        "evaluate_every": np.int64(2),
        "rerank_depth": [np.int64(2), np.int64(6)],
        "learning_rate": {"ranker": np.float64(0.002)},
        "warmup": np.float32(0.5),
        "loss_options": {"margin": np.float32(0.5)},
    }
    fit = partial(validated, loss="hinge", checkpoints=tmp_path)
    first = fit(CrossEncoder(tiny(), max_length=np.int64(32)), **numbers)
    first.save(tmp_path / "saved")
    assert CrossEncoder.load(tmp_path / "saved").training_report.options["rerank_depth"] == [2, 6]
    plain = {**numbers, "max_steps": 2, "batch_size": 4, "accumulation": 1, "seed": 3, "patience": 9, "evaluate_every": 2}
    plain |= {"rerank_depth": [2, 6], "learning_rate": {"ranker": 0.002}, "warmup": 0.5, "loss_options": {"margin": 0.5}}
    again = fit(CrossEncoder(tiny(), max_length=32), resume=True, **plain)
    assert difference(weights(first), weights(again)) == 0


STRANGERS = {
    "checkpoint-500/model.pt": "weights",
    "checkpoint-best/last.ckpt": "weights",
    "checkpoint-9/model.safetensors": "weights",
    "checkpoint-1/pyterrier_debias.json": '{"whole": false}',  # no mark of ours
    "checkpoint-3.txt": "a note",
}


def test_what_others_call_checkpoints_stays(tiny, tmp_path):
    for name, content in STRANGERS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "checkpoint-7").mkdir()
    options = {"evaluate_every": 2, "checkpoints": tmp_path}
    fitted(tiny(), max_steps=4, **options)
    # A copy that the user kept, and a note in the folder of a checkpoint.
    shutil.copytree(tmp_path / "checkpoint-4", tmp_path / "checkpoint-kept")
    trainer_module.mark_checkpoint(tmp_path / "checkpoint-4", whole=False)
    (tmp_path / "checkpoint-4" / "note.txt").write_text("a note")
    (tmp_path / "checkpoint-4" / "ranker" / "note.txt").write_text("a note")
    with pytest.raises(InputError, match=r"holds checkpoint-4, which pyterrier_debias did not write.*move it away"):
        fitted(tiny(), max_steps=4, **options)
    shutil.move(tmp_path / "checkpoint-4", tmp_path / "elsewhere")
    found = sorted(path.relative_to(tmp_path / "elsewhere").as_posix() for path in (tmp_path / "elsewhere").rglob("*"))
    assert found == ["note.txt", "ranker", "ranker/note.txt"]
    fitted(tiny(), max_steps=4, **options)
    assert {name: (tmp_path / name).read_text() for name in STRANGERS} == STRANGERS
    assert list((tmp_path / "checkpoint-7").iterdir()) == []
    assert (tmp_path / "checkpoint-kept" / "pytorch_model.bin").stat().st_size > 0
    marked = [path.parent.name for path in tmp_path.glob("checkpoint-*/pytorch_model.bin")]
    assert sorted(marked) == ["checkpoint-4", "checkpoint-kept"]
    trainer_module.remove_checkpoints(tmp_path)
    found = sorted(path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(set(found)) == sorted({*(name.split("/")[0] for name in STRANGERS), "checkpoint-kept", "elsewhere"})


def test_checkpoints_of_a_finished_run_go_with_their_folder(tiny, tmp_path):
    for folder in ("run", "run/biased"):
        fitted(tiny(), max_steps=1, checkpoints=tmp_path / folder)
    trainer_module.remove_checkpoints(tmp_path / "run")
    trainer_module.remove_checkpoints(tmp_path / "nowhere")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["checkpoint-2", "checkpoint-4", "checkpoint-5"])
def test_no_checkpoint_is_written_into_a_folder_of_others(tiny, tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / "optimizer.pt").write_text("mine")
    with pytest.raises(InputError, match=rf"holds {name}, which pyterrier_debias did not write"):
        fitted(tiny(), max_steps=5, evaluate_every=2, checkpoints=tmp_path)
    assert [(tmp_path / name / "optimizer.pt").read_text()] == ["mine"]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_same_model_elsewhere_goes_on(tiny, tmp_path):
    """Where the model lies, how it is batched and what it shows make no other run."""
    fitted(tiny(), max_steps=2, checkpoints=tmp_path / "run")
    shutil.copytree(tiny(), tmp_path / "moved")
    options = training(max_steps=2, checkpoints=tmp_path / "run", resume=True)
    ranker = CrossEncoder(str(tmp_path / "moved"), batch_tokens=99, verbose=True, device="cpu", training=options)
    assert ranker.fit(candidates(), qrels()).training_report.steps == 2


def test_a_damaged_checkpoint_is_named(tiny, tmp_path):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    last = tmp_path / "checkpoint-2"
    told = json.loads((last / "pyterrier_debias.json").read_text())
    assert {"pytorch_model.bin", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"} < set(told["files"])
    for name in told["files"]:
        if name.endswith(".md"):
            continue
        whole = (last / name).read_bytes()
        (last / name).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        message = rf"checkpoint-2 is damaged: {re.escape(name)} has changed since it was written.*, or remove it"
        with pytest.raises(InputError, match=message):
            fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True)
        (last / name).write_bytes(whole)
    (last / "pyterrier_debias.json").write_text(json.dumps({**told, "version": "another"}))
    with pytest.raises(InputError, match=r"pyterrier_debias.json is damaged: its content does not match its checksum"):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True)


def test_a_checkpoint_of_an_older_version_has_no_checksums(tiny, tmp_path):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    record = tmp_path / "checkpoint-2" / "pyterrier_debias.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps({name: value for name, value in told.items() if name not in ("files", "blake2b")}))
    fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True)
    torch.save({"something": torch.zeros(1)}, tmp_path / "checkpoint-2" / "pytorch_model.bin")
    with pytest.raises(InputError, match=r"checkpoint-2 does not fit this model \(.*\); resume with the model"):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True)


def test_two_trainings_in_one_folder(tiny, tmp_path):
    """The second is refused; what a killed one left there is removed, an empty checkpoint too."""
    told = rf"run is being written by process {os.getpid()} on host"
    with locked_inside(tmp_path / "run"), pytest.raises(InputError, match=told):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path / "run")
    (tmp_path / "run" / "checkpoint-2").mkdir()
    left = tmp_path / "run" / "checkpoint-2" / ".pyterrier_debias.json.0123abcd.pyterrier_debias"
    left.write_text("{")
    fitted(tiny(), max_steps=2, checkpoints=tmp_path / "run", resume=True)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint-2"]


def test_a_checkpoint_that_is_half_removed_is_not_resumed_from(tiny, tmp_path, monkeypatch):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)

    def dies(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer_module, "remove_written", dies)
    with pytest.raises(KeyboardInterrupt):
        remove_checkpoints(tmp_path)
    monkeypatch.undo()
    assert fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True).training_report.steps == 2


@pytest.mark.parametrize("again", ["resumed", "removed"])
def test_a_checkpoint_that_was_all_but_removed_is_removed(tiny, tmp_path, monkeypatch, again):
    """Killed between its mark and its folder: an empty folder without a mark could be anybody's, and stayed for ever."""
    fitted(tiny(), max_steps=1, checkpoints=tmp_path / "run")
    remove = Path.rmdir

    def dies(folder):
        if "checkpoint-1" in folder.name:
            raise KeyboardInterrupt
        remove(folder)

    monkeypatch.setattr(Path, "rmdir", dies)
    with pytest.raises(KeyboardInterrupt):
        remove_checkpoints(tmp_path / "run")
    monkeypatch.undo()
    assert list((tmp_path / "run").iterdir())
    if again == "resumed":
        fitted(tiny(), max_steps=2, evaluate_every=2, checkpoints=tmp_path / "run", resume=True)
        assert [path.name for path in (tmp_path / "run").iterdir()] == ["checkpoint-2"]
    remove_checkpoints(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_the_log_of_a_resumed_run_is_that_of_the_whole(tiny, tmp_path, monkeypatch):
    """Interrupted after a checkpoint that is not at a multiple of ``log_every``."""
    options = {"max_steps": 6, "evaluate_every": 3, "log_every": 2}
    whole = fitted(tiny(), **options, checkpoints=tmp_path / "whole").training_report
    losses = trainer_module._Trainer.compute_loss

    def interrupted(self, *args, **given):
        if self.state.global_step == 3:
            raise KeyboardInterrupt
        return losses(self, *args, **given)

    monkeypatch.setattr(trainer_module._Trainer, "compute_loss", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fitted(tiny(), **options, checkpoints=tmp_path / "cut")
    monkeypatch.undo()
    resumed = fitted(tiny(), **options, checkpoints=tmp_path / "cut", resume=True).training_report
    logs = [[(e["step"], e["loss"], e["accuracy"]) for e in report.history if "loss" in e] for report in (whole, resumed)]
    assert [step for step, *_ in logs[0]] == [2, 3, 4, 6]
    assert logs[0] == logs[1]


def test_folders_of_a_ranker_that_is_half_removed_are_removed(tiny, tmp_path, monkeypatch):
    """Killed between the last file and the folder: what is left has no list of files any more."""
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    remove = trainer_module.remove_written

    def dies(folder):
        remove(folder)
        (folder / "beside").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer_module, "remove_written", dies)
    with pytest.raises(KeyboardInterrupt):
        remove_checkpoints(tmp_path)
    monkeypatch.undo()
    assert list(tmp_path.rglob("beside"))
    remove_checkpoints(tmp_path)
    assert not list(tmp_path.iterdir() if tmp_path.exists() else ())


@pytest.mark.parametrize("where", ["weights", "optimizer", "ranker", "record", "all from the optimizer on"])
def test_a_full_disk_leaves_the_checkpoint_before(tiny, tmp_path, monkeypatch, where):
    """Writing fails at step 4, wherever in the checkpoint; step 2 stays whole and is gone on from."""
    save, record = torch.save, trainer_module.write_whole
    full = OSError(28, "No space left on device")

    def fails_with_the_optimizer(target, content):
        if (Path(target).parent / "pytorch_model.bin").is_file() and "checkpoint-4" in str(target):
            raise InputError(f"{target} cannot be written: No space left on device")
        record(target, content)

    def fails(*args, real=None, marks=("",), **options):
        target = str(args[1] if real is save else args[0])
        if "checkpoint-4" in target and target.endswith(marks):
            raise full
        return real(*args, **options)

    marks = {"weights": "pytorch_model.bin", "optimizer": "optimizer.pt", "record": "pyterrier_debias.json"}
    with monkeypatch.context() as patch:
        if where == "ranker":
            write = CrossEncoder.write
            patch.setattr(CrossEncoder, "write", lambda self, at: fails(at, real=partial(write, self)))
        elif where == "record":
            patch.setattr(trainer_module, "write_whole", partial(fails, real=record, marks=(marks[where],)))
        else:
            if where not in marks:
                patch.setattr(trainer_module, "write_whole", fails_with_the_optimizer)
            patch.setattr(torch, "save", partial(fails, real=save, marks=(marks.get(where, marks["optimizer"]),)))
        with pytest.raises(InputError, match=r"checkpoint-4 cannot be written \(.*No space left.*resume from checkpoint-2 with"):
            fitted(tiny(), max_steps=4, evaluate_every=2, checkpoints=tmp_path)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    resumed = fitted(tiny(), max_steps=4, evaluate_every=2, checkpoints=tmp_path, resume=True)
    assert difference(weights(resumed), weights(fitted(tiny(), max_steps=4))) == 0


def test_a_loss_that_is_no_number_stops_with_its_batch(tiny, tmp_path):
    def loss(scores, *, labels=None, mask=None, weights=None):
        loss.calls += 1
        return ranknet(scores, mask=mask, weights=weights) * (float("nan") if loss.calls == 4 else 1)

    loss.calls = 0
    with pytest.raises(InputError, match=r"the loss became nan at step 3; its batch is in .*batch-of-step-3-process-0\.json"):
        fitted(tiny(), loss=loss, max_steps=9, evaluate_every=2, checkpoints=tmp_path)
    content = json.loads((tmp_path / "batch-of-step-3-process-0.json").read_text())
    assert content["step"] == 3
    assert len(content["examples"]) == 4
    for example in content["examples"]:
        assert example["query"].startswith("where is the")
        assert [document["label"] > 0 for document in example["documents"]] == [True, False]
        assert len(example["scores"]) == 2
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]


@pytest.mark.parametrize("every", [2, 100])
def test_losses_that_are_looked_at_seldom_tell_the_same_batch(every, tiny, tmp_path, monkeypatch):
    """As on a GPU, which would be idle after each look: the first bad one is told, and no checkpoint holds its weights."""

    def loss(scores, *, labels=None, mask=None, weights=None):
        loss.calls += 1
        return ranknet(scores, mask=mask, weights=weights) * (float("nan") if loss.calls == 4 else 1)

    told = []
    for often in (1, every):
        loss.calls, folder = 0, tmp_path / str(often)
        monkeypatch.setattr(trainer_module, "_check_every", lambda device, training, often=often: often)
        with pytest.raises(InputError, match="the loss became nan at step 3"):
            fitted(tiny(), loss=loss, max_steps=9, evaluate_every=5, checkpoints=folder, log_every=50)
        told.append(json.loads((folder / "batch-of-step-3-process-0.json").read_text()))
        assert not list(folder.glob("checkpoint-*"))
    assert told[0] == told[1]
    assert loss.calls == (4 if every == 2 else 5)


def test_a_part_that_is_not_known_in_a_batch_is_left_out_of_the_log(tiny, monkeypatch):
    forward = Ranking.forward

    def told(self, **batch):
        told.calls += 1
        nan = torch.tensor(float("nan"))
        known = {"odd": torch.tensor(2.0) if told.calls % 2 else nan, "never": nan}
        return {**forward(self, **batch), **known}

    told.calls = 0
    monkeypatch.setattr(Ranking, "forward", told)
    logged = [entry for entry in fitted(tiny(), max_steps=4, log_every=4).training_report.history if "loss" in entry]
    assert [entry["odd"] for entry in logged] == [2.0] and not any("never" in entry for entry in logged)


def scripted(monkeypatch, *values):
    """Let validation measure these values, one after the other; a value that is an exception is raised."""
    planned, measure = iter(values), trainer_module.Validation.measure

    def measured(self, scores):
        value, (found, depth) = next(planned), measure(self, scores)
        if isinstance(value, BaseException):
            raise value
        return found * 0 + value, depth

    monkeypatch.setattr(trainer_module.Validation, "measure", measured)


def test_early_stopping_keeps_the_best_weights(tiny, monkeypatch):
    """The measure rises twice and falls; the weights of the second evaluation come back."""
    kept = []
    scripted(monkeypatch, 0.2, 0.5, 0.4, 0.3, 0.2, 0.1)
    evaluate = trainer_module._Trainer.evaluate

    def spy(self, *args, **options):
        kept.append({name: value.clone() for name, value in self.model.network.state_dict().items()})
        return evaluate(self, *args, **options)

    monkeypatch.setattr(trainer_module._Trainer, "evaluate", spy)
    ranker = fitted(tiny(), candidates("v"), qrels("v"), max_steps=20, evaluate_every=2, patience=2)
    report = ranker.training_report
    assert (report.steps, report.best_step, report.best) == (8, 4, 0.5)
    assert len(kept) == 4
    assert difference(weights(ranker), kept[1]) == 0
    assert difference(weights(ranker), kept[3]) > 0


def validated(folder, **options):
    return fitted(folder, candidates("v"), qrels("v"), **options)


def of_checkpoint(folder, step):
    state = torch.load(folder / f"checkpoint-{step}" / "pytorch_model.bin", weights_only=True)
    return {name.removeprefix("network."): value for name, value in state.items()}


@pytest.mark.parametrize("how", ["moved", "copied", "another directory"])
def test_a_finished_run_gives_its_best_weights_wherever_its_folder_lies(how, tiny, tmp_path, monkeypatch):
    """Its own, also where another run is in the place in which it was trained."""
    options, run = {"max_steps": 6, "evaluate_every": 2}, tmp_path / "run"
    monkeypatch.chdir(tmp_path)
    scripted(monkeypatch, *[0.5, 0.9, 0.6] * 2)
    first = validated(tiny(), checkpoints="run" if how == "another directory" else run, **options)
    best = of_checkpoint(run, 4)
    assert difference(weights(first), best) == 0 < difference(of_checkpoint(run, 6), best)
    folder = shutil.move(run, tmp_path / "moved") if how == "moved" else run
    if how == "copied":
        folder = shutil.copytree(run, tmp_path / "copied")
        remove_checkpoints(run)
        validated(tiny(), checkpoints=run, seed=5, **options)
    if how == "another directory":
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        folder = Path("..") / "run"
    resumed = validated(tiny(), checkpoints=folder, resume=True, **options)
    assert difference(weights(resumed), best) == 0
    assert (resumed.training_report.best_step, resumed.training_report.best) == (4, pytest.approx(0.9))
    assert resumed.training_report.validation == first.training_report.validation


def test_a_run_that_was_moved_half_way_ends_with_its_best_weights(tiny, tmp_path, monkeypatch):
    options = {"max_steps": 6, "evaluate_every": 2}
    scripted(monkeypatch, 0.5, 0.9, KeyboardInterrupt(), 0.6)
    with pytest.raises(KeyboardInterrupt):
        validated(tiny(), checkpoints=tmp_path / "run", **options)
    folder = shutil.move(tmp_path / "run", tmp_path / "moved")
    resumed = validated(tiny(), checkpoints=folder, resume=True, **options)
    assert sorted(path.name for path in folder.iterdir()) == ["checkpoint-4", "checkpoint-6"]
    assert difference(weights(resumed), of_checkpoint(folder, 4)) == 0 < difference(weights(resumed), of_checkpoint(folder, 6))
    assert (resumed.training_report.steps, resumed.training_report.best_step) == (6, 4)


def test_a_run_that_stopped_early_is_at_its_end(tiny, tmp_path, monkeypatch):
    """It trained on for four steps, to other weights."""
    options = {"max_steps": 10, "evaluate_every": 1, "patience": 2, "checkpoints": tmp_path, "log_to": "tensorboard"}
    scripted(monkeypatch, 0.5, 0.6, 0.4, 0.3, 0.9, 0.95, 0.1, 0.1)
    first = validated(tiny(), **options)
    # What a run would write that goes on; this one writes nothing.
    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-9" / "model.pt").write_text("mine")
    there = sorted(tmp_path.rglob("*"))
    again = validated(tiny(), resume=True, **options)
    told, before = again.training_report, first.training_report
    assert (before.steps, before.best_step) == (told.steps, told.best_step) == (4, 2)
    assert told.validation == before.validation
    assert [entry for entry in told.history if "eval_ndcg_10" in entry] == [e for e in before.history if "eval_ndcg_10" in e]
    assert difference(weights(again), weights(first)) == 0
    assert sorted(tmp_path.rglob("*")) == there
    with pytest.raises(InputError, match=r"another run, with other patience=9 \(2 there\)"):
        validated(tiny(), resume=True, **{**options, "patience": 9})


@pytest.mark.parametrize("evaluated", [True, False])
def test_a_run_that_was_killed_behind_its_last_checkpoint_is_at_its_end(evaluated, tiny, tmp_path, monkeypatch):
    """With all that it had learned, and without another step."""
    fit = validated if evaluated else fitted
    options = {"max_steps": 4, "evaluate_every": 2, "checkpoints": tmp_path}
    if evaluated:
        scripted(monkeypatch, 0.5, 0.4)
    with monkeypatch.context() as patch:
        patch.setattr(trainer_module._Trainer, "_finalize_training", lambda *args: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit(tiny(), **options)
    with monkeypatch.context() as patch:
        patch.setattr(trainer_module._Trainer, "compute_loss", lambda *args, **more: pytest.fail("a step was taken"))
        resumed = fit(tiny(), resume=True, **options)
    assert resumed.training_report.steps == 4
    assert resumed.training_report.best_step == (2 if evaluated else None)
    assert difference(weights(resumed), of_checkpoint(tmp_path, 2 if evaluated else 4)) == 0


def test_a_run_without_its_best_checkpoint_is_refused(tiny, tmp_path, monkeypatch):
    """It gave the last weights, and reported the best ones."""
    options = {"max_steps": 6, "evaluate_every": 2, "checkpoints": tmp_path}
    scripted(monkeypatch, 0.5, 0.9, 0.6)
    validated(tiny(), **options)
    shutil.rmtree(tmp_path / "checkpoint-4")
    with pytest.raises(InputError, match=r"lacks checkpoint-4, which holds the best weights of its run; put it back"):
        validated(tiny(), resume=True, **options)


def test_a_checkpoint_that_does_not_tell_whether_its_run_had_ended_is_refused(tiny, tmp_path):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path)
    record = tmp_path / "checkpoint-2" / "pyterrier_debias.json"
    told = json.loads(record.read_text())
    record.write_text(json.dumps({name: value for name, value in told.items() if name not in ("ended", "blake2b")}))
    with pytest.raises(InputError, match=r"checkpoint-2 was written by an earlier version of pyterrier_debias, .*another folder"):
        fitted(tiny(), max_steps=2, checkpoints=tmp_path, resume=True)
    remove_checkpoints(tmp_path)
    assert not tmp_path.exists()


def test_validation_is_ndcg_of_the_reranked_candidates_at_the_best_depth(tiny):
    va, judged = candidates("v"), qrels("v")
    ranker = fitted(tiny(), va, judged, max_steps=3, evaluate_every=3, rerank_depth=[6, 2, 5])
    report, means = ranker.training_report, {}
    for depth in (2, 5, 6):
        top = ranker(va[va["rank"] < depth])
        rest = va[va["rank"] >= depth].assign(score=lambda f: -1000.0 - f["rank"])
        run = pd.concat([top, rest])
        means[depth] = pt.Evaluate(run, judged, ["ndcg_cut_10"], perquery=False)["ndcg_cut_10"]
    assert report.best == pytest.approx(max(means.values()), abs=1e-9)
    assert report.depth == min(depth for depth, value in means.items() if value == max(means.values()))
    assert report.metric == "nDCG@10"
    assert set(report.validation) == {f"v{n}" for n in range(8)}


def test_the_last_step_is_evaluated_wherever_it_falls(tiny):
    report = fitted(tiny(), candidates("v"), qrels("v"), max_steps=5, evaluate_every=3).training_report
    assert [entry["step"] for entry in report.history if "eval_ndcg_10" in entry] == [3, 5]


def test_the_schedule_and_parts_are_logged(tiny):
    report = fitted(tiny(), max_steps=10, warmup=0.2, schedule="linear", epochs=3).training_report
    logged = [entry for entry in report.history if "loss" in entry]
    rates = [entry["learning_rate"] for entry in logged]
    assert np.allclose(rates, [0, 1e-3, *(2e-3 * left / 8 for left in range(8, 0, -1))])
    assert all(0 <= entry["accuracy"] <= 1 and entry["grad_norm"] > 0 for entry in logged)
    assert logged[3]["epoch"] == pytest.approx(1.0)


def test_epochs_become_steps(tiny):
    assert fitted(tiny(), epochs=1.5, batch_size=5).training_report.steps == 5  # 24 examples, 5 at a time
    assert fitted(tiny(), epochs=1, batch_size=2, accumulation=4).training_report.steps == 2


def test_accumulation_equals_a_larger_batch(tiny):
    rankers = []
    for batch_size, accumulation in ((8, 1), (2, 4)):
        options = training(batch_size=batch_size, accumulation=accumulation, max_steps=3)
        ranker = no_dropout(CrossEncoder(tiny(), training=options))
        rankers.append(ranker.fit(candidates(), qrels()))
    np.testing.assert_allclose(*(scores_of(ranker) for ranker in rankers), atol=2e-4)
    assert np.abs(scores_of(rankers[0]) - scores_of(CrossEncoder(tiny()))).max() > 0.01


def test_gradients_are_clipped(tiny):
    def loss(scores, **ignored):
        return 1000 * scores.mean()

    free = fitted(tiny(), loss=loss, clip=None, max_steps=1).training_report.history[0]["grad_norm"]
    assert free > 100
    seen = []

    class Watched(CrossEncoder):
        def method(self, training):
            method = super().method(training)
            for parameter in method.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: seen.append(p))
            return method

    step = torch.optim.AdamW.step

    def spied(self, *args, **options):
        norms = [p.grad.norm() for group in self.param_groups for p in group["params"] if p.grad is not None]
        seen.append(float(torch.stack(norms).norm()))
        return step(self, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim.AdamW, "step", spied)
        Watched(tiny(), training=training(loss=loss, clip=0.5, max_steps=1)).fit(candidates(), qrels())
    assert seen[-1] == pytest.approx(0.5, rel=1e-3)


def test_biases_and_normalisation_do_not_decay(tiny):
    groups = []
    with pytest.MonkeyPatch.context() as patch:
        step = torch.optim.AdamW.step
        patch.setattr(torch.optim.AdamW, "step", lambda self, *a, **o: (groups.extend(self.param_groups), step(self, *a, **o))[1])
        fitted(tiny(), weight_decay=0.1, max_steps=1)
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(parameter.ndim > 1 for parameter in groups[0]["params"])
    assert all(parameter.ndim == 1 for parameter in groups[1]["params"])


def test_mixed_precision_on_the_processor(tiny):
    report = fitted(tiny(), precision="bfloat16", max_steps=2).training_report
    assert np.isfinite([entry["loss"] for entry in report.history if "loss" in entry]).all()
    for one in ("float16", "tf32"):
        with pytest.raises(InputError, match=rf"precision='{one}'\) needs CUDA"):
            fitted(tiny(), precision=one)


def test_precision_and_workers_are_the_devices_unless_they_are_named(tiny, monkeypatch):
    """On the processor as before; as on a GPU where the device says so."""
    assert precision.default_precision(torch.device("cpu")) == precision.default_precision(torch.device("mps")) == "float32"
    assert precision.default_workers(torch.device("cpu")) == 0
    monkeypatch.setattr(precision.os, "cpu_count", lambda: 16)
    for capability, expected in (((7, 5), "float32"), ((8, 0), "bfloat16"), ((9, 0), "bfloat16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, found=capability: found)
        assert precision.default_precision(torch.device("cuda")) == expected
    assert precision.default_workers(torch.device("cuda")) == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert precision.default_workers(torch.device("cuda")) == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    own = fitted(tiny(), max_steps=2)
    assert own.training_report.options["precision"] == "float32" and own.training_report.options["workers"] == 0
    monkeypatch.setattr(trainer_module, "default_precision", lambda device: "bfloat16")
    half = fitted(tiny(), max_steps=2)
    assert half.training_report.options["precision"] == "bfloat16"
    assert difference(weights(half), weights(fitted(tiny(), max_steps=2, precision="bfloat16"))) == 0
    assert difference(weights(half), weights(own)) > 0
    assert difference(weights(own), weights(fitted(tiny(), max_steps=2, precision="float32"))) == 0


def test_the_key_of_a_training_holds_the_precision_that_it_has_here():
    key = Training().cache_key()
    assert key == Training(precision=precision.default_precision()).cache_key()
    assert key != Training(precision="tf32").cache_key()


def test_a_checkpoint_in_half_precision_is_trained_in_float32(tiny, tmp_path):
    (tmp_path / "half").mkdir()
    CrossEncoder(tiny(), dtype="bfloat16").write(tmp_path / "half")  # without the options that save() adds
    ranker = fitted(str(tmp_path / "half"), max_steps=1)
    assert {parameter.dtype for parameter in ranker.module.parameters()} == {torch.float32}


def test_batches_may_come_from_other_processes(tiny):
    alone, helped = fitted(tiny(), max_steps=3), fitted(tiny(), max_steps=3, workers=1)
    assert difference(weights(alone), weights(helped)) == 0


def test_a_run_shorter_than_its_log_has_an_entry_at_its_end(tiny):
    report = fitted(tiny(), max_steps=2, log_every=10).training_report
    assert [entry["step"] for entry in report.history if "accuracy" in entry] == [2]


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (lambda scores: 1.0, "the loss is a float; let it return one number as a torch tensor computed from the scores"),
        (lambda scores: scores.mean(dim=1), r"the loss has the shape \(4,\)"),
        (lambda scores: scores.mean().detach(), "the loss has no gradient"),
    ],
)
def test_losses_along_which_no_step_can_be_taken(returned, message, tiny):
    with pytest.raises(InputError, match=message):
        fitted(tiny(), max_steps=1, loss=lambda scores, **more: returned(scores))


def test_validation_that_cannot_choose_is_told(tiny, monkeypatch, caplog):
    scripted(monkeypatch, 0.5, 0.5, 0.5, 0.6)
    for expected in (1, 0):
        caplog.clear()
        validated(tiny(), max_steps=2, evaluate_every=1)
        told = [record.getMessage() for record in caplog.records if record.name == trainer_module.__name__]
        assert len(told) == expected
        message = "CrossEncoder: nDCG@10 is 0.5000 in all 2 evaluations, so the weights of the first one (step 1) are kept"
        assert all(message in one for one in told)


@pytest.mark.parametrize(
    ("steps", "warmup", "taken"),
    [(2, 3, 3), (2, 2, 2), (1, 1, 1), (1, 0.6, 1), (4, 0.9, 4), (2, 1, None), (1, 0.1, None), (1, 0, None), (4, 0.5, None)],
)
def test_a_warmup_in_which_the_rate_does_not_reach_its_peak_is_told(steps, warmup, taken, tiny, caplog):
    history = fitted(tiny(), max_steps=steps, warmup=warmup, schedule="constant").training_report.history
    told = [record.getMessage() for record in caplog.records if record.name == trainer_module.__name__]
    peak = max(entry["learning_rate"] for entry in history if "loss" in entry)
    assert (peak < 2e-3) == bool(told) == (taken is not None)
    if told:
        expected = f"its warm-up (warmup={warmup:g}) ends with step {taken}, and the run with step {steps}; lower warmup, or"
        assert told[0].startswith(f"CrossEncoder: the learning rate never reaches its peak, because {expected}")


@pytest.mark.parametrize("of", ["weights", "negatives"])
def test_an_error_in_another_process_is_told_as_in_this_one(of, tiny):
    error = InputError("Mine: no such score; add it")

    def check():
        if torch.utils.data.get_worker_info() is not None:
            raise error

    class Mine(UniformNegatives):
        def weigh(self, groups, group, rows):
            check()
            return 1.0

        def sample(self, *args, **options):
            check()
            return super().sample(*args, **options)

    options = {of: Mine()}
    with pytest.raises(InputError) as told:
        fitted(tiny(), max_steps=2, workers=1, **options)
    assert str(told.value) == str(error)
    assert "Original Traceback" in str(told.value.__cause__)


def test_tensorboard_only_on_request(tiny, tmp_path):
    fitted(tiny(), max_steps=2, checkpoints=tmp_path / "quiet")
    assert not list((tmp_path / "quiet").rglob("events.*"))
    fitted(tiny(), max_steps=2, checkpoints=tmp_path / "run", log_to="tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2]
    assert "train/accuracy" in events.Tags()["scalars"]


def test_tensorboard_writes_beside_the_checkpoints_at_home(tiny, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    fitted(tiny(), max_steps=1, checkpoints="~/run", log_to="tensorboard")
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
    assert list((home / "run" / "tensorboard").glob("events.*"))


def test_weights_that_cannot_be_trained_are_named(tiny):
    ranker = CrossEncoder(tiny(), training=Training(max_steps=1))
    ranker.module.requires_grad_(False)
    with pytest.raises(InputError, match="no weight of the model can be trained"):
        ranker.fit(candidates(), qrels())
    with pytest.raises(InputError, match="learning_rate names other, but the networks are ranker"):
        fitted(tiny(), learning_rate={"other": 1e-3})
    assert fitted(tiny(), learning_rate={"ranker": 1e-3}, max_steps=1).training_report.steps == 1
