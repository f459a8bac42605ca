"""Models are loaded one at a time in a process: transformers changes itself for the whole process while it loads one."""

import ast
import json
import random
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel, initialization
from transformers.utils import logging as hf_logging

import pyterrier_debias
from pyterrier_debias import TK, BiEncoder, CrossEncoder, InputError, MultiVector, SparseEncoder, T5Reranker
from pyterrier_debias.linguistic.training.kernel_whitening import KernelWhiteningReranker
from pyterrier_debias.rankers import base, cross_encoder, tying
from pyterrier_debias.rankers.word_tokenizer import word_tokenizer
from pyterrier_debias.rankers.word_vectors import HuggingFaceWords
from pyterrier_debias.training import seeds
from tests.training.toy import candidates, qrels, training

#: How long a thread waits for what cannot happen where models are loaded one at a time.
PATIENCE = 0.3

TRUE_TYING = PreTrainedModel.tie_weights


def saved(ranker, folder):
    """A save that has to load: sentence-transformers reads back what stands under a head of ours."""
    ranker.warm_up()
    return lambda: ranker.save(folder / "saved")


#: Everything in the package that loads a model: from a fixture and a folder to a function that does it.
LOADS = {
    "CrossEncoder": lambda tiny, folder: CrossEncoder(tiny(seed=3)).warm_up,
    "head on the mean": lambda tiny, folder: CrossEncoder(tiny(labels=None), head="mean").warm_up,
    "save of a head": lambda tiny, folder: saved(CrossEncoder(tiny(labels=None), head="mean"), folder),
    "BiEncoder": lambda tiny, folder: BiEncoder(tiny("build_sentence_transformer")).warm_up,
    "BiEncoder of a plain encoder": lambda tiny, folder: BiEncoder(tiny(labels=None), pooling="cls").warm_up,
    "MultiVector": lambda tiny, folder: MultiVector(tiny("build_multi_vector")).warm_up,
    "SparseEncoder": lambda tiny, folder: SparseEncoder(tiny("build_sparse")).warm_up,
    "SparseEncoder of a plain encoder": lambda tiny, folder: SparseEncoder(tiny(labels=None)).warm_up,
    "T5Reranker": lambda tiny, folder: T5Reranker(tiny("build_t5")).warm_up,
    "TK": lambda tiny, folder: TK(tiny("build_tk")).warm_up,
    "copy of a TK": lambda tiny, folder: TK(TK(tiny("build_tk"))).warm_up,
    "TK.from_embeddings": lambda tiny, folder: lambda: TK.from_embeddings(tiny(labels=None)),
    "words of an encoder": lambda tiny, folder: lambda: HuggingFaceWords(tiny(labels=None)).word_vectors(["the red king"]),
}


class Crossing:
    """Lets two loads cross wherever they can: the second begins within the first, and ends after it."""

    def __init__(self):
        self.begun = [threading.Event(), threading.Event()]
        self.ended = [threading.Event(), threading.Event()]
        self.place = threading.local()

    def wrap(self, original):
        @contextmanager
        def crossed():
            turn = getattr(self.place, "turn", None)
            with original():
                if turn is None:
                    yield
                    return
                self.begun[turn].set()
                (self.begun[1] if turn == 0 else self.ended[0]).wait(PATIENCE)
                yield
            self.ended[turn].set()

        return crossed

    def run(self, *loads):
        def one(turn):
            self.place.turn = turn
            if turn:
                assert self.begun[0].wait(60)
            loads[turn]()

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(one, range(2)))


@pytest.fixture
def crossing(monkeypatch):
    made = Crossing()
    monkeypatch.setattr(PreTrainedModel, "tie_weights", TRUE_TYING)
    monkeypatch.setattr(initialization, "no_tie_weights", made.wrap(initialization.no_tie_weights))
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    yield made
    hf_logging.set_verbosity(level)
    if bars:
        hf_logging.enable_progress_bar()


@pytest.mark.parametrize("name", LOADS)
def test_loads_in_two_threads_leave_the_process_as_it_was(name, tiny, tmp_path, crossing):
    level, bars = hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()
    crossing.run(LOADS[name](tiny, tmp_path), CrossEncoder(tiny()).warm_up)
    assert all(event.is_set() for event in (*crossing.begun, *crossing.ended))
    assert PreTrainedModel.tie_weights is TRUE_TYING
    assert (hf_logging.get_verbosity(), hf_logging.is_progress_bar_enabled()) == (level, bars)
    scores = T5Reranker(tiny("build_t5")).score(["what is the red king"] * 2, ["the red king", "a bridge"])
    assert np.isfinite(scores).all() and scores[0] != scores[1]


@pytest.fixture
def lost(tiny, monkeypatch):
    """What two threads of a user's own leave behind: transformers ties no weights any more. Gives a T5 that was made before."""
    folder = tiny("build_t5")
    monkeypatch.setattr(PreTrainedModel, "tie_weights", TRUE_TYING)
    crossed = [initialization.no_tie_weights() for _ in range(2)]
    for context in crossed:
        context.__enter__()
    for context in crossed:
        context.__exit__(None, None, None)
    assert PreTrainedModel.tie_weights is not TRUE_TYING
    monkeypatch.setattr(tying, "_PATIENCE", 0.0)
    return folder


def test_what_threads_of_others_left_behind_is_mended_and_told(lost, caplog):
    scores = T5Reranker(lost).score(["what is the red king"] * 2, ["the red king", "a bridge"])
    assert np.isfinite(scores).all() and scores[0] != scores[1]
    assert PreTrainedModel.tie_weights is TRUE_TYING
    (message,) = caplog.messages
    assert message.startswith("models were loaded in several threads at the same time")
    caplog.clear()
    T5Reranker(lost).warm_up()
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("name", "load"),
    [
        ("T5Reranker", lambda folder: T5Reranker(folder).warm_up()),
        ("HuggingFaceWords", lambda folder: HuggingFaceWords(folder).word_vectors(["the red king"])),
        ("TK", lambda folder: TK.from_embeddings(folder)),
    ],
)
def test_weights_without_values_are_one_clear_line(name, load, lost, monkeypatch):
    """Where the method was lost before this package was imported."""
    monkeypatch.setattr(tying, "_own", None)
    with pytest.raises(InputError, match=rf"^{name}: model .* has \d+ weights without values .*embed_tokens") as error:
        load(lost)
    assert "another thread loads a model" in str(error.value) and "\n" not in str(error.value)
    monkeypatch.setattr(PreTrainedModel, "tie_weights", TRUE_TYING)
    load(lost)


def test_a_load_of_another_thread_is_waited_for(monkeypatch):
    """Its stand-in must not be taken away while it is at work."""
    begun, waited = threading.Event(), threading.Event()

    def load():
        with initialization.no_tie_weights():
            begun.set()
            assert waited.wait(60)
            return PreTrainedModel.tie_weights is not TRUE_TYING

    monkeypatch.setattr(PreTrainedModel, "tie_weights", TRUE_TYING)
    monkeypatch.setattr(tying.time, "sleep", lambda seconds: waited.set())
    with ThreadPoolExecutor(1) as pool:
        undisturbed = pool.submit(load)
        assert begun.wait(60)
        tying.restore(patience=60)
        assert PreTrainedModel.tie_weights is TRUE_TYING
        assert undisturbed.result()


class Outermost:
    """A ranker's lock that refuses to be taken by a thread that loads or saves already: two threads could wait for each other."""

    def __init__(self):
        self.lock = threading.RLock()

    def __enter__(self):
        assert not base.LOADING_LOCK._is_owned()
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


@pytest.mark.parametrize(
    "make",
    [
        lambda tiny: CrossEncoder(tiny(), max_length=20),
        lambda tiny: CrossEncoder(tiny(labels=None), head="mean"),
        lambda tiny: BiEncoder(tiny("build_sentence_transformer"), max_length=20),
        lambda tiny: MultiVector(tiny("build_multi_vector")),
        lambda tiny: SparseEncoder(tiny("build_sparse"), max_length=20),
        lambda tiny: T5Reranker(tiny("build_t5")),
        lambda tiny: TK(tiny("build_tk")),
        lambda tiny: TK(TK(tiny("build_tk"))),
    ],
)
def test_locks_of_rankers_are_taken_before_that_of_loading(make, tiny, tmp_path):
    ranker = make(tiny)
    ranker._lock = Outermost()
    if isinstance(ranker.model, TK):
        ranker.model._lock = Outermost()
    ranker.warm_up()
    ranker.save(tmp_path / "saved")
    ranker.module.train()
    ranker.mark_trained()
    ranker.save(tmp_path / "again")


class BeforeRankers:
    """The lock of random states, which refuses a thread that holds the lock of a ranker and not yet this one."""

    def __init__(self, ranker):
        self.lock, self.ranker = threading.RLock(), ranker

    def __enter__(self):
        assert self.lock._is_owned() or not (self.ranker._lock._is_owned() or base.LOADING_LOCK._is_owned())
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()


@pytest.mark.parametrize("head", ["cls", "mean"])
def test_the_lock_of_random_states_is_taken_before_all_others(tiny, tmp_path, monkeypatch, head):
    ranker = CrossEncoder(tiny(labels=None), head=head)
    lock = BeforeRankers(ranker)
    for module in (seeds, cross_encoder):
        monkeypatch.setattr(module, "RANDOM", lock)
    ranker.pooled()
    ranker.save(tmp_path / "saved")
    CrossEncoder.load(tmp_path / "saved").warm_up()


@pytest.mark.parametrize(
    "make",
    [
        lambda tiny: CrossEncoder(tiny(labels=None), head="mean"),
        lambda tiny: BiEncoder(tiny("build_sentence_transformer")),
    ],
)
def test_fitting_saving_and_loading_leave_the_random_states(make, tiny, tmp_path):
    """Whitening adds layers, whose first weights are drawn."""
    torch.manual_seed(0)
    before = torch.get_rng_state()
    stage = KernelWhiteningReranker(make(tiny), landmarks=4, sample=8, training=training(max_steps=1))
    stage.fit(candidates(), qrels()).save(tmp_path / "saved")
    KernelWhiteningReranker.load(tmp_path / "saved").relevance.warm_up()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_random_states_are_those_of_before():
    before = random.getstate(), torch.get_rng_state()
    with pytest.raises(KeyError), seeds.random_state_kept():
        raise KeyError(random.random(), torch.rand(1))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def test_no_call_that_loads_a_model_runs_code_of_its_own():
    """transformers asks at the terminal where nothing is said."""
    loads = {"SentenceTransformer", "MultiVectorEncoder", "Transformer"}
    found = []
    for path in Path(pyterrier_debias.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if name.endswith(".from_pretrained") or (name in loads and not any(k.arg == "modules" for k in node.keywords)):
                found.append((f"{path.name}:{node.lineno}", ast.unparse(node)))
    assert len(found) > 10
    told = ("trust_remote_code=False", "untrusted", "**options")
    assert [place for place, call in found if not any(word in call for word in told) and path_is_not_ours(call)] == []


def path_is_not_ours(call):
    """What was just written by the package itself is its own."""
    return not call.startswith("Transformer(str(folder)")


def test_a_model_with_code_of_its_own_is_refused(tiny, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(tiny(), folder)
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    config["auto_map"] = {name: f"own.{name}" for name in ("AutoConfig", "AutoModel", "AutoModelForSequenceClassification")}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    with pytest.raises(InputError, match="cannot be loaded"):
        CrossEncoder(folder).warm_up()
    assert not (tmp_path / "ran").exists()


def without_tokenizer(folder, tmp_path):
    """As ``model.save_pretrained`` leaves a folder."""
    return shutil.copytree(folder, tmp_path / "alone", ignore=lambda at, names: [n for n in names if n.startswith("tokenizer")])


#: Models by their builder or its options, and what reads them.
READERS = {
    "CrossEncoder": ({}, lambda at: CrossEncoder(at).warm_up()),
    "CrossEncoder of RoBERTa": ({"architecture": "roberta"}, lambda at: CrossEncoder(at).warm_up()),
    "BiEncoder": ("build_sentence_transformer", lambda at: BiEncoder(at).warm_up()),
    "BiEncoder of a plain encoder": ({"labels": None}, lambda at: BiEncoder(at).warm_up()),
    "MultiVector": ({"labels": None}, lambda at: MultiVector(at).warm_up()),
    "SparseEncoder": ({"labels": None, "masked": True}, lambda at: SparseEncoder(at).warm_up()),
    "T5Reranker": ("build_t5", lambda at: T5Reranker(at).warm_up()),
    "TK.from_embeddings": ({"labels": None}, lambda at: TK.from_embeddings(at)),
    "HuggingFaceWords": ({"labels": None}, lambda at: HuggingFaceWords(at).word_vectors(["the red king"])),
}


@pytest.mark.parametrize("name", READERS)
def test_a_folder_without_a_tokenizer_is_refused(name, tiny, tmp_path):
    """transformers makes an empty one, to which all texts are the same."""
    built, read = READERS[name]
    whole = tiny(built) if isinstance(built, str) else tiny(**built)
    alone, stage = without_tokenizer(whole, tmp_path), re.match(r"\w+", name)[0]
    with pytest.raises(InputError, match=rf"^{stage}: model '{alone}' has no tokenizer .* tokenizer\.save_pretrained"):
        read(alone)


def test_tokenizers_are_looked_at_before_weights(tiny, tmp_path):
    alone = without_tokenizer(tiny(), tmp_path)
    (alone / "model.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match="has no tokenizer"):
        CrossEncoder(alone).warm_up()


def test_tokenizers_with_few_words_are_tokenizers():
    base.check_tokenizer(word_tokenizer(["tea"]), "a/model", "TK")
    base.check_tokenizer(word_tokenizer(["\u8336"]), "a/model", "TK")
    base.check_tokenizer(None, "a/model", "TK")
    for words in ([], ["\u2581", "."]):
        with pytest.raises(InputError, match=r"^TK: model 'a/model' has no tokenizer"):
            base.check_tokenizer(word_tokenizer(words), "a/model", "TK")
