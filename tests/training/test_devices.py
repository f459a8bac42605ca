"""What has to hold on every device. The processor's parts run everywhere; those marked ``gpu`` run where a CUDA device is.

``make gpu-check`` runs these on a GPU, measures the speed there, and writes both down.
"""

import os
import pickle
import subprocess
import sys
import traceback

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pyterrier_debias import TK, BiasAwareReranker, BiEncoder, CrossEncoder, MultiVector, SparseEncoder, T5Reranker
from pyterrier_debias.gender.training.fair_rerankers import AdversarialReranker
from pyterrier_debias.linguistic.training.baselines import GroupDROReranker
from pyterrier_debias.pooling.training.cet import CETReranker
from pyterrier_debias.pooling.training.cet_method import _places
from pyterrier_debias.rankers import engine, packed
from pyterrier_debias.rankers.base import on_cpu
from pyterrier_debias.training import trainer as trainer_module
from pyterrier_debias.training.precision import default_precision, default_workers
from tests.conftest import ROOT
from tests.tiny_models import WORDS
from tests.training.toy import TWO, candidates, qrels, training

RANKERS = {
    "CrossEncoder": lambda tiny, **options: CrossEncoder(tiny(), **options),
    "CrossEncoder(distilbert)": lambda tiny, **options: CrossEncoder(tiny(architecture="distilbert"), **options),
    "CrossEncoder(parade-max)": lambda tiny, **options: CrossEncoder(
        tiny(labels=None), head="parade-max", long="windows", passage_length=24, passage_stride=16, **options
    ),
    "BiEncoder": lambda tiny, **options: BiEncoder(tiny("build_sentence_transformer"), **options),
    "MultiVector": lambda tiny, **options: MultiVector(tiny("build_multi_vector"), **options),
    "SparseEncoder": lambda tiny, **options: SparseEncoder(tiny("build_sparse"), **options),
    "T5Reranker": lambda tiny, **options: T5Reranker(tiny("build_t5"), **options),
    "TK": lambda tiny, **options: TK.from_embeddings(tiny(labels=None), config={"num_hidden_layers": 1}, **options),
}


#: The last test says that there is none.
CUDA = [pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else []


@pytest.fixture(params=["cpu", *CUDA])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def silent(caplog):
    """Fresh heads announce themselves."""
    caplog.set_level("ERROR")


def pairs(n=48):
    """Queries, and documents of 1 to 60 words."""
    rng = np.random.default_rng(0)
    queries = [" ".join(rng.choice(WORDS, 4)) for _ in range(n)]
    return queries, [" ".join(rng.choice(WORDS, 1 + i * 60 // n)) for i in range(n)]


#: How far scores may be apart, in spreads of the scores: bfloat16 has 8 bits of precision, TF32 has 11.
APART = {"float32": 1e-4, "tf32": 0.05, "bfloat16": 0.2}


@pytest.mark.parametrize("dtype", APART)
@pytest.mark.parametrize("name", RANKERS)
def test_scores_are_those_of_the_processor_in_float32(name, dtype, device, tiny):
    expected = RANKERS[name](tiny, device="cpu").score(*pairs())
    found = RANKERS[name](tiny, device=device, dtype=dtype).score(*pairs())
    spread = expected.std()
    assert spread > 0
    np.testing.assert_allclose(found, expected, rtol=0, atol=APART[dtype] * spread)
    if dtype == "tf32" and device == "cpu":
        assert (found == expected).all()  # a processor has no such format


@pytest.mark.parametrize("name", RANKERS)
def test_a_score_does_not_depend_on_its_batch(name, device, tiny):
    ranker = RANKERS[name](tiny, device=device)
    queries, docs = pairs()
    alone = np.concatenate([ranker.score(queries[i : i + 1], docs[i : i + 1]) for i in range(0, 48, 6)])
    np.testing.assert_allclose(ranker.score(queries, docs)[::6], alone, rtol=0, atol=1e-4 * max(1.0, np.abs(alone).max()))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["CrossEncoder", "BiEncoder", "CETReranker"])
def test_training_resumes_exactly(name, precision, device, tiny, tmp_path, monkeypatch):
    def fitted(**more):
        options = training(max_steps=4, evaluate_every=2, checkpoints=tmp_path / "run", precision=precision, **more)
        if name == "CETReranker":
            stage = CETReranker(RANKERS["CrossEncoder"](tiny, device=device), training=options)
            return stage.fit(candidates(), qrels()).relevance
        ranker = RANKERS[name](tiny, device=device)
        ranker.training = options
        return ranker.fit(candidates(), qrels())

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "_remove", lambda checkpoint: None)  # keep older checkpoints
        straight = fitted()
    history = [entry["loss"] for entry in straight.training_report.history if "loss" in entry]
    assert np.isfinite(history).all() and len(history) == 4
    trainer_module.mark_checkpoint(tmp_path / "run" / "checkpoint-4", whole=False)  # as after a kill while it was written
    again = fitted(resume=True)
    for (key, left), right in zip(straight.module.state_dict().items(), again.module.state_dict().values()):
        assert torch.equal(left, right), key


def test_training_computes_in_the_format_of_the_device(device, tiny):
    ranker = CrossEncoder(tiny(), device=device, training=training(max_steps=1, precision=None, workers=None))
    options = ranker.fit(candidates(), qrels()).training_report.options
    assert options["precision"] == default_precision(torch.device(device))
    assert options["workers"] == default_workers(torch.device(device))


def test_trained_weights_are_sent_to_processes_without_the_device(device, tiny, monkeypatch):
    ranker = CrossEncoder(tiny(), device=device, training=training(max_steps=2))
    ranker.fit(candidates(), qrels())
    expected, sent = ranker.score(*pairs()), pickle.dumps(ranker)
    assert {weight.device.type for weight in on_cpu(ranker.module).parameters()} == {"cpu"}
    assert ranker.module.device.type == device
    monkeypatch.setattr(CrossEncoder, "torch_device", torch.device("cpu"))
    found = pickle.loads(sent)
    assert {weight.device.type for weight in found.module.parameters()} == {"cpu"}
    np.testing.assert_allclose(found.score(*pairs()), expected, rtol=0, atol=1e-4)


@pytest.mark.gpu
def test_half_precision_attends_in_one_call(tiny, monkeypatch):
    """Where torch has the kernel. The processor's tests put a reference in its place."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    kernel = packed._varlen("cuda", torch.bfloat16)
    if kernel is None:
        pytest.skip("this torch or this device has no attention over sequences of any lengths")
    monkeypatch.setattr(packed, "_varlen", lambda device, dtype: None)
    by_runs = CrossEncoder(tiny(), device="cuda", dtype="bfloat16").score(*pairs())
    calls = []
    monkeypatch.setattr(packed, "_varlen", lambda *of: lambda *a, **more: calls.append(1) or kernel(*a, **more))
    found = CrossEncoder(tiny(), device="cuda", dtype="bfloat16").score(*pairs())
    assert calls
    np.testing.assert_allclose(found, by_runs, rtol=0, atol=0.1 * by_runs.std())


@pytest.mark.gpu
def test_two_processes_over_nccl_stay_in_step(tiny, tmp_path):
    """The same program as over gloo on processors."""
    if torch.cuda.device_count() < 2:
        pytest.skip("fewer than two CUDA devices")
    model, script = tiny("build_sentence_transformer"), tmp_path / "two.py"
    script.write_text(TWO + "assert torch.distributed.get_backend() == 'nccl'\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(script)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, model, str(tmp_path / "two")], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for part in ("", "best-"):
        first, second = (torch.load(tmp_path / f"two-{part}{rank}", weights_only=True) for rank in range(2))
        assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.gpu
def test_a_batch_that_does_not_fit_is_tried_in_smaller_pieces(tiny, caplog, monkeypatch):
    """A real OutOfMemoryError: the process may use 64 MiB more, and all texts are one batch."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    caplog.set_level("WARNING")
    monkeypatch.setattr(engine, "CHUNK", 60_000)
    queries, docs = pairs(60_000)
    torch.cuda.empty_cache()
    expected = CrossEncoder(tiny(), device="cuda", batch_tokens=5_000).score(queries, docs)
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_reserved()
    torch.cuda.set_per_process_memory_fraction((used + 64 * 2**20) / total)
    try:
        found = CrossEncoder(tiny(), device="cuda", batch_tokens=10_000_000).score(queries, docs)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert any("out of memory; continuing with batches of" in record.message for record in caplog.records)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


#: Operators whose result decides on the processor how it goes on, so that CUDA has to finish first.
WAIT = {"_local_scalar_dense", "nonzero", "nonzero_numpy", "masked_select", "_unique2", "unique_dim", "unique_consecutive"}


class Waits(TorchDispatchMode):
    """Notes where this package's code would wait for CUDA: by its operators, which are the same on every device."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        places = args[1] if name in ("index", "index_put", "index_put_") else ()
        if name in WAIT or any(place is not None and place.dtype == torch.bool for place in places):
            asks = [frame for frame in traceback.extract_stack()[:-1] if f"{os.sep}torch{os.sep}" not in frame.filename][-1]
            if str(ROOT / "pyterrier_debias") in asks.filename:
                self.found.append(f"{name} in {os.path.basename(asks.filename)}: {asks.line}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", RANKERS)
def test_no_batch_waits_for_the_device(name, tiny):
    """Scores go back once, at the end. What is known of a batch before it is on the device is not asked there again."""
    ranker = RANKERS[name](tiny, device="cpu").warm_up()
    with Waits() as waits:
        ranker.score(*pairs())
    # How many terms a text has, and how many documents have a further passage, is in the numbers themselves, or in their shapes.
    assert {found.split(":")[0] for found in waits.found} == {
        "SparseEncoder": {"nonzero_numpy in sparse_encoder.py"}, "CrossEncoder(parade-max)": {"nonzero in heads.py"},
    }.get(name, set())  # fmt: skip


TRAINED = {
    "plain": lambda base, options: CrossEncoder(base, training=options),
    "CET": lambda base, options: CETReranker(base, selection="lexical", training=options),
    "CET, same": lambda base, options: CETReranker(base, selection="same", training=options),
    "CET, eval": lambda base, options: CETReranker(
        base, selection="same", weight_pass="eval", normalise_weights="mean_one", training=options
    ),
    "DRO": lambda base, options: GroupDROReranker(base, bins=2, training=options),
    "adversarial": lambda base, options: AdversarialReranker(base, attribute="odd", training=options, first_training=options),
    "bias-aware": lambda base, options: BiasAwareReranker(base, column="odd", training=options),
}


@pytest.mark.parametrize("name", TRAINED)
def test_no_step_waits_for_the_device(name, tiny, monkeypatch):
    """From the second batch on; losses are looked at where the log is written."""
    options = training(max_steps=3, batch_size=4, log_every=9, precision="float32")
    stage, waits = TRAINED[name](CrossEncoder(tiny(), device="cpu"), options), Waits()
    compute = trainer_module._Trainer.compute_loss

    def watched(self, *args, **more):
        if self.state.global_step == 0:
            return compute(self, *args, **more)
        with waits:
            return compute(self, *args, **more)

    monkeypatch.setattr(trainer_module, "_check_every", lambda device, training: 100)
    monkeypatch.setattr(CrossEncoder, "forward_packed", CrossEncoder.forward)  # the way of other devices
    monkeypatch.setattr(trainer_module._Trainer, "compute_loss", watched)
    shown = candidates()
    stage.fit(shown.assign(odd=np.arange(len(shown)) % 2, complexity=np.arange(len(shown)) // 6), qrels())
    assert waits.found == []


def test_what_waits_is_seen():
    """The two tests above could not fail otherwise."""
    with Waits() as waits:
        _places(torch.ones(2, 2, dtype=torch.bool))
    assert waits.found == ["nonzero in cet_method.py: return (mask[:, :1] & mask[:, 1:]).flatten().nonzero()[:, 0]"]
