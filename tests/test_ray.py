"""More than one process: Spread, audits with workers, and Ray Data. One small cluster for all tests of this file."""

import ctypes
import os
import pickle
import runpy
import signal
import sys
import threading
from collections import deque
from functools import reduce
from importlib.metadata import version
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch
from packaging.version import Version

from pyterrier_debias import (
    ARaBEvaluator,
    AverageRotations,
    CrossEncoder,
    InputError,
    PlantedCollection,
    PlantedRanker,
    RotatePassages,
    audit,
)
from pyterrier_debias.core import spread
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.naming import system_name
from pyterrier_debias.core.pieces import by_query
from pyterrier_debias.core.spread import Spread, unspread
from tests.conftest import ROOT
from tests.contract import Case, assert_contract
from tests.contract_cases import folder, texts
from tests.ray_stages import OfLists, OfTwo, Raising, Telling, accumulated

# Ray leaves files and processes of its own to Python, which says so where pytest is older than 9.
pytestmark = [
    pytest.mark.ray, pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]  # fmt: skip


@pytest.fixture(scope="module")
def cluster():
    """Two processors; the largest part of the time of this file."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray = pytest.importorskip("ray", reason="the extra 'ray' is not installed")
    with spread.signal_handlers_kept():
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", object_store_memory=80_000_000)
    yield ray
    with spread.signal_handlers_kept():
        ray.shutdown()


@pytest.mark.skipif(sys.platform == "win32", reason="its faults are no signals")
def test_faults_of_memory_stay_with_whom_they_were(monkeypatch):
    """Java answers them to stop its threads; Ray's start gives them to Python, and its end to nobody."""
    library, fault = ctypes.CDLL(None), int(signal.SIGSEGV)

    def action():
        found = ctypes.create_string_buffer(512)
        assert library.sigaction(fault, None, found) == 0
        return found

    def handler():
        return action().raw[:8]  # the address; after it flags that the C library fills in

    before, address, seen = action(), handler(), []

    def start(**options):
        library.signal(fault, ctypes.c_void_p(1))  # SIG_IGN, which nobody else sets
        seen.append(handler())

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=start, cluster_resources=dict))
    monkeypatch.setattr(spread, "_POOLS", {})
    try:
        spread._pool(1, 0)
        assert seen != [address] and handler() == address
    finally:
        library.sigaction(fault, before, None)


def many(copies: int) -> pd.DataFrame:
    """The same lists under other names, with other texts."""
    one = texts()
    parts = [one.assign(qid=one["qid"] + f"-{i}", text=one["text"] + f" of {i % 7}") for i in range(copies)]
    return pd.concat(parts, ignore_index=True)


def ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """Ranked, queries in the order of their names."""
    return ranked(frame.sort_values("qid", kind="stable"))


@pytest.mark.parametrize(
    "ranker",
    [
        pt.apply.doc_score(lambda row: 1.0 if len(row["text"]) > 12 else row["score"]),
        pt.apply.generic(lambda inp: inp.assign(text=inp["text"].str[:12])),
    ],
)
def test_a_column_that_some_pieces_leave_as_it_is(ranker):
    inp = texts().reset_index(drop=True).assign(score=0.0)
    inp["text"] = ["short" if i % 2 else "a rather long text" for i in range(len(inp))]
    found = []
    for rows in (np.flatnonzero(np.arange(len(inp)) % 2 == part) for part in (0, 1)):
        places, whole, answer = spread._news(inp.iloc[rows].reset_index(drop=True), ranker(inp.iloc[rows]))
        found.append((rows[places], whole, answer))
    together, alone = spread._together(inp, found), ranker(inp)
    assert together[["qid", "docno", "text", "score"]].equals(alone.sort_index()[["qid", "docno", "text", "score"]])


def test_an_error_that_no_pickle_makes_again_is_told_in_words():
    """Ray would take it for the end of the worker."""
    errors = pytest.importorskip("ray.exceptions", reason="the extra 'ray' is not installed")
    worker = spread._Worker()
    for make, kind, told in (
        (lambda: OfTwo("it is", "wrong"), RuntimeError, r"^OfTwo: it is wrong$"),
        (lambda: OfTwo(threading.Lock(), "wrong"), RuntimeError, r"^OfTwo: .* wrong$"),
        (lambda: InputError("it is wrong"), InputError, r"^it is wrong$"),
    ):
        worker._rankers["mine"] = Raising(make)
        with pytest.raises(kind, match=told) as found:
            worker.ask("mine", [], texts(), None)
        sent = errors.RayTaskError("ask", "", found.value).to_bytes()
        assert str(errors.RayError.from_bytes(sent).cause) == str(found.value)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"Spread: more than one process needs.*pyterrier-debias\[ray\]"):
        Spread(PlantedRanker())(texts())
    assert Spread(PlantedRanker())(texts().iloc[:0]).columns.tolist() == PlantedRanker()(texts().iloc[:0]).columns.tolist()


@pytest.mark.parametrize(("options", "told"), [
    ({"workers": 0}, "workers=0"), ({"workers": "two"}, "workers"), ({"gpus_per_worker": -1}, "gpus_per_worker=-1"),
    ({"ranker": "model"}, "ranker is a str"),
])  # fmt: skip
def test_options(options, told):
    with pytest.raises(InputError, match=f"Spread: {told}"):
        Spread(**{"ranker": PlantedRanker(), **options})(texts())


def test_rows_go_by_all_fields_of_a_document():
    frame = texts().assign(title="one")
    of_fields, of_text = (Spread(CrossEncoder("m", **options), 2) for options in ({"fields": ["title", "text"]}, {}))
    for one in (of_fields, of_text):
        of_worker = [set(frame["text"].iloc[np.concatenate(pieces)]) for pieces in one._pieces(frame, 100)]
        assert all(of_worker) and not of_worker[0] & of_worker[1]


def test_any_text_has_a_worker():
    frame = texts().assign(text=pd.Series([f"\ud800 {number}" for number in range(len(texts()))], dtype=object))
    pieces = Spread(CrossEncoder("m"), 2)._pieces(frame, 100)
    assert sorted(np.concatenate([rows for own in pieces for rows in own])) == list(range(len(frame)))


def test_queries_are_dealt_whole_and_evenly():
    queries = np.repeat(np.arange(9), [5, 1, 7, 2, 2, 6, 3, 3, 1])
    pieces = spread._dealt(queries, 3, 4)
    rows = [np.concatenate(own) for own in pieces]
    assert sorted(map(len, rows)) == [10, 10, 10] and sorted(np.concatenate(rows)) == list(range(30))
    of_query = [{number for number, own in enumerate(rows) if np.isin(np.flatnonzero(queries == q), own).any()} for q in range(9)]
    assert all(len(one) == 1 for one in of_query)
    assert [list(map(list, own)) for own in spread._dealt(np.zeros(2, dtype=int), 3, 4)] == [[[0, 1]], [], []]


def test_a_ranker_scores_as_in_one_process(cluster, monkeypatch):
    """In other batches, also after its weights have changed, and remembering. One worker: each loads torch."""
    monkeypatch.setattr(spread, "_ROWS", 50)
    ranker, frame = CrossEncoder(folder("build")), many(40)
    # With torch 2.6 sums depend a little more on how many rows there are: by up to 1.9e-6.
    near = 1e-6 if Version(version("torch")) > Version("2.7") else 4e-6
    both = Spread(ranker, 1)
    assert len(pickle.dumps(ranker.warm_up())) < 3000  # without weights
    for _ in range(2):
        alone, found = ranker(frame), both(frame)
        assert found.columns.tolist() == alone.columns.tolist()
        assert found[["qid", "docno"]].equals(alone[["qid", "docno"]]) and found["rank"].equals(alone["rank"])
        np.testing.assert_allclose(found["score"], alone["score"], rtol=0, atol=near)
        with both.remembering():
            pd.testing.assert_frame_equal(both(frame), both(frame))
            np.testing.assert_allclose(both(frame)["score"], found["score"], rtol=0, atol=near)
        before = found["score"]
        for weight in ranker.module.parameters():
            weight.data.mul_(1.5)
    assert (before - both(frame)["score"]).abs().max() > 1e-3


def test_workers_score_like_a_ranker_whose_folder_was_written_anew(cluster, tmp_path):
    """The folder changes after one of the workers has loaded it, and before the other does."""
    CrossEncoder(folder("build")).save(tmp_path / "m")
    ranker, inp = CrossEncoder(tmp_path / "m").warm_up(), texts()
    expected, spread_over = ranker(inp), Spread(ranker, workers=2).warm_up()
    tuned = CrossEncoder(ranker)
    with torch.no_grad():
        for weight in tuned.module.parameters():
            weight.mul_(1.3)
    tuned.save(tmp_path / "m", overwrite=True)
    for stage in (spread_over, Spread(ranker, workers=2)):
        pd.testing.assert_frame_equal(stage(inp), expected, rtol=0, atol=1e-5)
    assert not np.allclose(tuned(inp)["score"], expected["score"], atol=1e-3)


def test_workers_score_with_the_hooks_of_a_ranker(cluster):
    ranker, inp, lock = CrossEncoder(folder("build")), texts(), threading.Lock()
    stage, before = Spread(ranker, workers=1), ranker(inp)
    pd.testing.assert_frame_equal(stage(inp), before, rtol=0, atol=1e-5)
    layer = ranker.module.bert.encoder.layer[0]
    layer.register_forward_hook(lambda module, args, output: output * 0.2)
    pd.testing.assert_frame_equal(stage(inp), ranker(inp), rtol=0, atol=1e-5)
    assert not np.allclose(ranker(inp)["score"], before["score"], atol=1e-3)
    layer.register_forward_hook(lambda module, args, output: None if lock.locked() else output * 2)
    with pytest.raises(InputError, match=r"Spread: the ranker cannot be sent to other processes .*lock.*; leave out Spread"):
        stage(inp)


def test_the_contract(cluster):
    assert_contract(Case("Spread", lambda: Spread(PlantedRanker(), 2), texts, lambda: Spread(PlantedRanker(strength=0.0), 2)))


def test_a_text_goes_to_one_worker_and_memory_is_forwarded(cluster, tmp_path):
    ranker, frame = Telling(str(tmp_path / "told")), many(30)
    both = Spread(ranker, 2, whole_queries=False)
    with both.remembering(9), both.remembering(100):
        both(frame)
        both(frame.assign(docno=frame["docno"] + "%r1"))
    inside = ranker.told()
    both(frame)
    outside = ranker.told()
    with both.remembering():
        both(frame)
    assert set(ranker.told()["limit"]) == {"7"}  # the ranker's own, in each worker
    with both.remembering(4):
        both(frame)
    assert set(ranker.told()["limit"]) == {"2"}  # another context, with no frame in between
    assert set(inside["limit"]) == {"5"} and set(outside["limit"]) == {"None"}
    owners = pd.concat([inside, outside]).groupby("text")["process"].nunique()
    assert len(owners) == 42 and set(owners) == {1}
    assert inside["process"].nunique() == 2 and os.getpid() not in set(inside["process"].astype(int))
    assert not hasattr(Spread(OfLists(), 2), "remembering") and not hasattr(Spread(CrossEncoder("m") >> OfLists()), "remembering")


def test_workers_let_go_of_rankers(cluster, tmp_path, monkeypatch):
    gone = []
    original = spread._Pool.forget
    monkeypatch.setattr(spread._Pool, "forget", lambda pool, version: gone.append(version) or original(pool, version))
    both = Spread(PlantedRanker(), 2)
    expected = both(many(3))
    both.ranker = PlantedRanker(strength=0.0)
    assert not both(many(3))["score"].equals(expected["score"]) and len(gone) == 1
    both.forget()
    both.forget()
    assert len(set(gone)) == len(gone) == 2
    both.ranker = PlantedRanker()
    pd.testing.assert_frame_equal(both(many(3)), expected)
    # An audit's own workers are left without its rankers.
    planted = PlantedCollection(topics=12, passages=240, position=1)
    audit({"planted": PlantedRanker()}, planted, biases=["pooling"], depth=8, draws=1, workers=2)
    assert len(set(gone)) == len(gone) == 3


def test_lists_of_other_rankers_stay_whole(cluster):
    frame = many(30).sample(frac=1, random_state=1)
    found, alone = (ordered(ranker(frame)) for ranker in (Spread(OfLists(), 2), OfLists()))
    assert len(found) < len(frame)
    pd.testing.assert_frame_equal(found, alone[found.columns])
    # A cut-off and a second ranker need lists, too.
    twice = PlantedRanker() % 2 >> PlantedRanker(strength=0.0)
    pd.testing.assert_frame_equal(Spread(twice, 2)(frame), twice(frame))


def test_rows_of_a_worker_that_ends_are_scored_again(cluster, tmp_path, caplog, monkeypatch):
    frame = many(30)
    both = Spread(Telling(str(tmp_path / "told"), str(tmp_path / "ends")), 2, whole_queries=False)
    found = both(frame)
    assert (tmp_path / "ends").exists() and "a worker has ended" in caplog.text
    assert found["score"].tolist() == found["text"].str.len().tolist() and len(found) == len(frame)
    # Of rows with which every worker ends, one after the other is not tried for ever.
    monkeypatch.setattr(spread, "_TRIES", 1)
    why = r"1 workers ended while they scored .* rows, the last one with ActorDiedError \(The actor died[^\n]{,80}\); check"
    with pytest.raises(RuntimeError, match=why):
        Spread(Telling(str(tmp_path / "told"), str(tmp_path)), 2)(frame)


def test_what_goes_wrong_in_a_worker_is_told_as_it_is(cluster):
    with pytest.raises(InputError, match="PlantedRanker: column 'text' has no value at row"):
        Spread(PlantedRanker(), 2)(texts().assign(text=None))
    with pytest.raises(ZeroDivisionError):
        Spread(pt.apply.doc_score(lambda row: 1 / 0), 2)(texts())
    with pytest.raises(InputError, match=r"CrossEncoder needs 'text'.*put a text loader before it"):
        Spread(pt.apply.generic(lambda inp: inp.drop(columns="text")) >> CrossEncoder("model"), 2)(texts())
    with pytest.raises(RuntimeError, match=r"^OfTwo: it is wrong$"):
        Spread(Raising(lambda: OfTwo("it is", "wrong")), 2)(texts())
    lock = threading.Lock()
    with pytest.raises(InputError, match=r"cannot be sent to other processes \(TypeError"):
        Spread(pt.apply.doc_score(lambda row: 1.0 if lock.locked() else 0.0), 2)(texts())
    with pytest.raises(InputError, match=r"2 workers with gpus_per_worker=0.5 need 1 GPUs, and the cluster has 0"):
        Spread(PlantedRanker(), 2, gpus_per_worker=0.5)(texts())


def test_an_audit_with_workers_finds_the_same(cluster, tmp_path):
    planted = PlantedCollection(topics=12, passages=240, position=1)
    systems = {"planted": PlantedRanker(), "length": pt.apply.doc_score(lambda row: float(len(row["text"])))}
    options = {"biases": ["position"], "depth": 8, "draws": 1, "checkpoint": tmp_path / "kept"}
    alone = audit(systems, planted, **options)
    found = audit(systems, planted, **{**options, "checkpoint": None}, workers=2)
    pd.testing.assert_frame_equal(found.findings, alone.findings)
    # What is kept of one serves the other.
    pd.testing.assert_frame_equal(audit(systems, planted, **options, workers=2).findings, alone.findings)
    with pytest.raises(InputError, match="workers=0"):
        audit(systems, planted, workers=0)
    ranker = PlantedRanker()
    assert unspread(Spread(ranker) >> Spread(ranker % 2))[:2] == [ranker, ranker]
    assert unspread(AverageRotations(Spread(ranker), 2)) == [AverageRotations(ranker, 2)]
    assert system_name(Spread(ranker) >> Spread(ranker % 2)) == system_name(ranker >> ranker)


def test_the_benchmark_starts_and_ends(cluster, monkeypatch, capsys):
    """``--two-nodes`` starts a cluster of its own, and is run by hand."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.setattr(sys, "argv", ["spread.py", *"--sleeping 1 --rate 2000 --seconds 0.1".split()])
    runpy.run_path(str(ROOT / "benchmarks" / "spread.py"), run_name="__main__")
    assert "sleeping    1 " in capsys.readouterr().out


def test_ray_data(cluster):
    """Actors that are there take no processor from it."""
    ray = cluster
    data = pytest.importorskip("ray.data")
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    # The default one starts processes of its own, each time again.
    context.shuffle_strategy = data.context.ShuffleStrategy.SORT_SHUFFLE_PULL_BASED
    frame, ranker = many(6), PlantedRanker()
    Spread(ranker, 2)(frame)
    results = data.from_pandas([frame.iloc[:21], frame.iloc[21:]])
    grouped = results.groupby("qid").map_groups(by_query(ranker), batch_format="pandas").to_pandas()
    pd.testing.assert_frame_equal(ordered(grouped), ordered(ranker(frame))[grouped.columns], check_dtype=False)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"PlantedRanker: Ray Data gives a piece of the frame.*map_groups"):
        results.map_batches(ranker, batch_format="pandas").to_pandas()

    # A measure of queries has as many rows however the frame is cut, or raises an error.
    ranking, measure, by = ranker(frame), ARaBEvaluator(), ["qid", "cutoff"]
    cut = data.from_pandas([ranking.iloc[:21], ranking.iloc[21:]])
    grouped = pd.concat([by_query(measure)(own) for _, own in ranking.groupby("qid")])  # as map_groups does, but at once
    whole = measure(ranking).sort_values(by, ignore_index=True)
    pd.testing.assert_frame_equal(grouped.sort_values(by, ignore_index=True)[whole.columns], whole, check_dtype=False)
    with pytest.raises(ray.exceptions.RayTaskError, match=r"ARaBEvaluator: Ray Data gives a piece"):
        cut.map_batches(measure, batch_format="pandas").to_pandas()

    corpus = frame.drop_duplicates("text")[["docno", "text"]].assign(docno=lambda f: [f"p{i}" for i in range(len(f))])
    passages = data.from_pandas([corpus.iloc[:5], corpus.iloc[5:]])
    rotated = passages.map_batches(RotatePassages(seed=1), batch_format="pandas")
    parts = [pickle.loads(row["sums"]) for row in rotated.map_batches(accumulated, batch_format="pandas").take_all()]
    assert len(parts) == 2 and RotatePassages(seed=1)(corpus)["text"].tolist() != corpus["text"].tolist()
    genders, terms = (reduce(type(one[0]).merge, one) for one in zip(*parts))
    whole, at_once = pickle.loads(accumulated(RotatePassages(seed=1)(corpus))["sums"][0])
    pd.testing.assert_frame_equal(genders.result(), whole.result())
    np.testing.assert_allclose(terms.result().curve()["ats"], at_once.result().curve()["ats"])


def test_another_connection_to_ray_has_other_workers(monkeypatch):
    """The first job of each cluster has the same name, and so has the process that connects to it."""
    monkeypatch.setattr(spread, "_POOLS", {})
    about = SimpleNamespace(get_worker_id=lambda: "01000000ffff", get_job_id=lambda: "01000000", get_node_id=lambda: "one")
    ray = SimpleNamespace(is_initialized=lambda: True, cluster_resources=dict, get_runtime_context=lambda: about)
    monkeypatch.setitem(sys.modules, "ray", ray)
    first = spread._pool(2, 0)
    assert spread._pool(2, 0) is first
    about.get_node_id = lambda: "another"
    assert spread._pool(2, 0) is not first


class Actor:
    """A worker of the cluster below."""

    def __init__(self, hide_gpus):
        self.hide_gpus = hide_gpus


def test_workers_that_do_nothing_give_their_gpus_back(monkeypatch):
    """Ray would wait for ever for GPUs that other workers of the program hold."""
    running = []

    def remote(made):
        def options(num_gpus, **others):
            def make(**options):
                running.append((num_gpus, Actor(**options)))
                return running[-1][1]

            return SimpleNamespace(remote=make)

        return SimpleNamespace(options=options)

    ray = SimpleNamespace(
        is_initialized=lambda: True, cluster_resources=lambda: {"GPU": 2.0}, remote=remote,
        available_resources=lambda: {"GPU": 2.0 - sum(gpus for gpus, _ in running)},
        get_runtime_context=lambda: SimpleNamespace(get_job_id=lambda: "1", get_node_id=lambda: "one"),
        kill=lambda actor: running.remove(next(one for one in running if one[1] is actor)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(spread, "_POOLS", {})
    monkeypatch.setattr(spread, "_PATIENCE", 0.0)
    both = spread._pool(2, None)
    first, _ = both.actor(0), both.actor(1)
    assert not first.hide_gpus and spread._pool(2, 1) is both and len(running) == 2
    one = spread._pool(1, None)
    assert running == [] and both.missing == 2
    one.actor(0), one.actor(0)
    one.frames += 1  # it scores
    with pytest.raises(InputError, match=r"Spread: 2 workers wait for 2 GPUs, and the cluster has 1 that are free; end what"):
        spread._pool(2, None)
    assert spread._pool(2, 0).actor(0).hide_gpus and len(running) == 2


def test_a_worker_without_a_gpu_sees_none(monkeypatch):
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "0")
    spread._Worker()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    spread._Worker(hide_gpus=True)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == os.environ["HIP_VISIBLE_DEVICES"] == "-1"


def test_what_a_sum_of_other_rankers_needs_is_not_guessed(cluster):
    length = pt.apply.doc_score(lambda row: float(len(row["text"])))
    frame = texts().drop(columns=["score", "rank"], errors="ignore")
    found, alone = Spread(length + length, 2)(frame), (length + length)(frame)
    assert ordered(found)[["qid", "docno", "score"]].equals(ordered(alone)[["qid", "docno", "score"]])


def test_a_ranker_goes_from_the_workers_after_its_stage():
    pytest.importorskip("ray.cloudpickle", reason="the extra 'ray' is not installed")
    told, pool = [], spread._Pool.__new__(spread._Pool)
    pool.ray, pool.gone, pool._tell = SimpleNamespace(put=lambda pickled: pickled), deque(), told.append
    first, second = Spread(PlantedRanker(), 2), Spread(PlantedRanker(), 2)
    version, _ = first._sent(pool)
    second._sent(pool)
    assert told == []
    del first
    Spread(PlantedRanker(), 2)._sent(pool)
    assert told == [version]
