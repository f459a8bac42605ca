"""Spread: a ranker that scores in several processes, on one machine or a cluster of Ray.

It is in core, not with the rankers, because it wraps any transformer and needs none of them. Audits put it around the given
rankers.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import sys
import threading
import time
import uuid
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_number, kind_of, one_line
from pyterrier_debias.core.stage import Stage, all_stages, flatten, identities, same_value, scores_rows
from pyterrier_debias.core.text import text_keys

logger = logging.getLogger(__name__)

#: How many rows a worker is given at a time: few enough that progress is seen and little is lost with a worker, and enough for
#: batches of texts of about one length. Queries that must stay whole may make it more.
_ROWS, _ROWS_ON_GPU = 1024, 16384

#: So many pieces a worker has at a time: one that it scores, and the next one.
_AHEAD = 2

#: A piece with which so many workers ended is not given to another one.
_TRIES = 3

#: How many seconds to wait for GPUs, which Ray counts as free some time after a worker has ended.
_PATIENCE = 30.0

#: The name of a context of ``remembering``, and its options.
_Memory = tuple[str, dict[str, int]]


class Spread(Stage):
    """Score with a ranker in several processes: each row is scored in one of them, and this stage adds the ranks.

    ===============  ==========================================================================
    columns in       what the ranker needs, including ``qid`` and ``docno``
    columns out      what the ranker returns; with ``score`` also ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Workers are actors of Ray. If the program is not connected to a cluster, it uses the one that ``RAY_ADDRESS`` names, or starts
    one on this machine; call ``ray.init(...)`` first to choose otherwise. Workers start with the first frame, run until the
    program ends or :meth:`close` is called, and are shared by all stages with the same number of workers. They drop a ranker
    whose stage no longer exists when the next ranker is sent. They reserve no processors in Ray, so that Ray Data does not wait
    for them. Each computes with one thread, unless ``OMP_NUM_THREADS`` was set when the cluster was started.

    The ranker is pickled for the workers, without its weights if they can be loaded again; each worker loads them once, and again
    after training. A ranker of another package is sent once: call :meth:`close` after you change it.

    Rows of rankers that score pairs (see :func:`~pyterrier_debias.core.stage.scores_rows`) are assigned to workers by a hash of
    the document's text, so that with ``remembering`` (available if the ranker has it) each worker finds the scores that it
    computed before. For all other rankers, lists are kept whole: queries are distributed over the workers, the longest lists
    first. If a worker ends (no memory, a lost machine), the others score its rows, and a new worker replaces it for the next
    frame. Scores are those of a single process up to rounding.

    Source: no paper; the actors are those of Moritz et al., "Ray: A Distributed Framework for Emerging AI Applications", OSDI
    2018.

    Example:
        ::

            from pyterrier_debias.core.spread import Spread

            pipeline = bm25 % 100 >> texts >> Spread(CrossEncoder(model), workers=8)

    When not to use it: for a few hundred pairs, because a worker takes seconds to start and load a model; on one GPU, which one
    process keeps busy; around stages that need Terrier, which cannot be sent to another process.
    """

    schematic = {"label": "Spread", "help_url": None}  # noqa: RUF012

    _NOT_IDENTITY = frozenset({"verbose", "workers", "gpus_per_worker"})

    def __init__(
        self,
        ranker: pt.Transformer,
        workers: int = 4,
        *,
        gpus_per_worker: float | None = None,
        whole_queries: bool | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            ranker: A transformer that ranks the documents of its input; a ranker of this package, another one, or a pipeline of
                rankers.
            workers: The number of processes.
            gpus_per_worker: The number of GPUs that each worker has for itself: 0, 1, or a fraction. None: one each if the
                cluster has enough, otherwise none. Leave the ranker's ``device`` at None, so that it finds its own.
            whole_queries: Whether all rows of a query go to the same worker. None: only if the ranker is not known to score each
                row separately. Set False for a ranker of another package that does.
            verbose: Whether to show progress.
        """
        super().__init__()
        self.ranker = ranker
        self.workers = workers
        self.gpus_per_worker = gpus_per_worker
        self.whole_queries = whole_queries
        self.verbose = verbose
        self._state: _State = _State()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score every row in one of the workers, and rank.

        Args:
            inp: A result frame with the columns that the ranker needs.

        Returns:
            What the ranker returns; ranked, if there are scores.

        Raises:
            InputError: If an option is invalid, a pair occurs twice, a package is missing, there are fewer GPUs than workers
                need, the ranker cannot be pickled, or the ranker refuses its input.
            RuntimeError: If three workers ended on the same rows; also in place of an error of the ranker that cannot be pickled,
                with its type and message.
        """
        self._check_options()
        modes = pt.inspect.transformer_inputs(self.ranker, strict=False) or [[]]
        # PyTerrier guesses that a sum of rankers needs scores; rankers of other packages refuse what they cannot rank.
        guessed = set() if all(isinstance(stage, Stage) for stage in flatten(self.ranker)) else {"score", "rank"}
        with pt.validate.any(inp, context=self) as checked:
            for columns in modes:
                checked.result_frame([column for column in columns if column not in {"qid", "docno"} | guessed])
        if len(inp) == 0:
            return self.ranker(inp)
        frames.check_pairs(inp, self)
        inp = inp.reset_index(drop=True)
        pool = _pool(self.workers, self.gpus_per_worker)
        version, sent = self._sent(pool)
        memory = self._state.memories[0] if self._state.memories else None
        found = []
        with pt.tqdm(total=len(inp), desc=f"{self.workers} workers", unit="row", disable=not self.verbose) as progress:
            pieces = self._pieces(inp, pool.rows)
            for rows, answer in pool.answers(
                pieces, lambda worker, rows: worker.ask.remote(version, [sent], inp.iloc[rows], memory), self
            ):
                places, whole, answered = answer
                found.append((rows[places], whole, answered))
                progress.update(len(rows))
        together = _together(inp, found)
        if "score" not in together.columns:
            return together
        if len(together) < len(inp):  # queries in the order of the frame, as one process leaves them, whichever rows are left
            order = pd.Index(inp["qid"].unique()).get_indexer(together["qid"])
            together = together.iloc[np.argsort(order, kind="stable")]
        return frames.ranked(together, self)

    def _check_options(self) -> None:
        if not isinstance(self.ranker, pt.Transformer):
            raise InputError(f"Spread: ranker is {kind_of(self.ranker)}; give a ranker or a pipeline of rankers")
        check_number("Spread", "workers", self.workers, least=1, whole=True)
        if self.gpus_per_worker is not None:
            check_number("Spread", "gpus_per_worker", self.gpus_per_worker, least=0)

    def _pieces(self, inp: pd.DataFrame, most: int) -> list[deque[np.ndarray]]:
        """For each worker the rows of its pieces, by position."""
        whole = not scores_rows(self.ranker) if self.whole_queries is None else self.whole_queries
        if whole:
            return _dealt(pd.factorize(inp["qid"])[0], self.workers, most)
        fields = [field for field in self._text_columns() if field in inp.columns] or ["docno"]
        hashed = np.zeros(len(inp), dtype=np.uint64)
        for field in fields:  # a collection may have no more than a few titles
            hashed = hashed * np.uint64(31) + text_keys(map(str, inp[field].tolist()))[:, 0]
        pieces = []
        for worker in range(self.workers):
            own = np.flatnonzero(hashed % self.workers == worker)
            pieces.append(deque(np.array_split(own, -(-len(own) // most)) if len(own) else []))
        return pieces

    def _text_columns(self) -> list[str]:
        return next((stage.text_columns() for stage in all_stages(self.ranker) if hasattr(stage, "text_columns")), ["text"])

    def warm_up(self) -> Self:
        """Start the workers, load the model in one of them and score a pair, so that errors appear at once.

        Returns:
            The stage itself.
        """
        pair = {"qid": "1", "docno": "d", "query": "a query", **dict.fromkeys(self._text_columns(), "a document")}
        self.transform(pd.DataFrame([pair]))
        return self

    def _sent(self, pool: _Pool) -> tuple[str, Any]:
        """A name for the ranker as it is now, and where workers find its pickle."""
        with self._state.lock:
            # A worker that loads it later must not read a folder that was written anew meanwhile.
            replaced = [stage.replaced() for stage in all_stages(self.ranker) if hasattr(stage, "replaced")]
            now = [identities(self.ranker), replaced]
            before = self._state.sent
            if before is None or before[0] is not pool or not same_value(before[1], now):
                try:
                    pickled = importlib.import_module("ray.cloudpickle").dumps(self.ranker)
                except Exception as error:
                    raise InputError(
                        f"Spread: the ranker cannot be sent to other processes ({one_line(error)}); leave out Spread and "
                        f"workers, or put the stages that cannot be pickled (an index, Terrier) before Spread"
                    ) from error
                self.forget()
                pool.forget_gone()
                version = uuid.uuid4().hex
                weakref.finalize(self._state, pool.gone.append, version).atexit = False
                self._state.sent = pool, now, version, pool.ray.put(pickled)
            assert self._state.sent is not None
            return self._state.sent[2:]

    @property
    def remembering(self) -> Callable[..., Any]:
        """The ranker's own ``remembering``, in all workers; see :meth:`pyterrier_debias.rankers.base.Ranker.remembering`.

        ``limit`` is divided among the workers; without it, each keeps as much as the ranker does in a single process. It is not
        available if the ranker has no ``remembering``.
        """
        if not all(any(hasattr(one, "remembering") for one in all_stages(stage)) for stage in flatten(self.ranker)):
            raise AttributeError("remembering")
        return self._remembering

    @contextmanager
    def _remembering(self, limit: int | None = None) -> Iterator[Self]:
        if limit is not None:
            check_number("Spread.remembering", "limit", limit, least=0, whole=True)
        memories = self._state.memories
        # Each worker has an equal part of what may be remembered.
        memories.append((uuid.uuid4().hex, {} if limit is None else {"limit": -(-limit // self.workers)}))
        try:
            yield self
        finally:
            memories.pop()

    def forget(self) -> None:
        """Drop the ranker and its memory in the workers, which keep running for other stages; the next frame sends it again."""
        with self._state.lock:
            if self._state.sent is not None:
                pool, _, version, _ = self._state.sent
                pool.forget(version)
                self._state.sent = None

    def close(self) -> None:
        """End the workers, also for stages that share them; the next frame starts new ones."""
        if self._state.sent is not None:
            self._state.sent[0].close()
            self._state.sent = None

    def changes(self) -> frozenset[str]:
        """The columns that the ranker changes."""
        own = (stage.changes() for stage in flatten(self.ranker) if isinstance(stage, Stage))
        return frozenset().union(*own)

    def cache_key(self) -> dict[str, Any]:
        """The cache key, without the number of workers, which does not change the result."""
        return self.identity()

    def __getstate__(self) -> dict[str, Any]:
        """Only the options."""
        return {name: value for name, value in self.__dict__.items() if name != "_state"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Set the options; nothing is sent yet."""
        self.__dict__.update(state)
        self._state = _State()


class _State:
    """What a stage knows of its workers."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        #: The pool, what the ranker was, its name there, and where its pickle is.
        self.sent: tuple[_Pool, list[Any], str, Any] | None = None
        #: The contexts of ``remembering`` that last: a name, and what each worker's ranker is asked for.
        self.memories: list[_Memory] = []


def unspread(pipeline: pt.Transformer) -> list[pt.Transformer]:
    """The stages of a pipeline as they would be in one process.

    Args:
        pipeline: A transformer.

    Returns:
        Its stages, in which each :class:`Spread` is replaced with the stages inside it, even if it is an option of another stage.
    """
    stages = []
    for stage in flatten(pipeline):
        if isinstance(stage, Spread):
            stages += unspread(stage.ranker)
        else:
            options = stage.options() if isinstance(stage, Stage) else {}
            inner = {name: one.ranker for name, one in options.items() if isinstance(one, Spread)}
            stages.append(stage.apply_attributes(**inner) if isinstance(stage, Stage) and inner else stage)
    return stages


def _dealt(queries: np.ndarray, workers: int, most: int) -> list[deque[np.ndarray]]:
    """Whole queries (their number for each row) as pieces of about ``most`` rows: the longest list to who has fewest rows."""
    order = np.argsort(queries, kind="stable")
    lists = np.split(order, np.flatnonzero(np.diff(queries[order])) + 1)
    loads = np.zeros(workers, dtype=int)
    owned: list[list[np.ndarray]] = [[] for _ in range(workers)]
    for rows in sorted(lists, key=len, reverse=True):
        worker = int(np.argmin(loads))
        loads[worker] += len(rows)
        owned[worker].append(rows)
    pieces: list[deque[np.ndarray]] = [deque() for _ in range(workers)]
    for worker, own in enumerate(owned):
        ends = np.cumsum([len(rows) for rows in own]) if own else np.empty(0, dtype=int)
        for number in range(int(ends[-1]) // most + 1 if own else 0):
            some = [rows for rows, end in zip(own, ends) if (end - 1) // most == number]
            if some:
                pieces[worker].append(np.sort(np.concatenate(some)))
    return pieces


def _together(inp: pd.DataFrame, found: Sequence[tuple[np.ndarray, bool, pd.DataFrame]]) -> pd.DataFrame:
    """What workers found, in the order of the rows of a frame: where each row belongs, whether it is whole, and the answer."""
    wholes = any(whole for _, whole, _ in found)
    # A column may be new in some pieces, and the given one in others.
    new = {name for _, whole, answer in found if not whole for name in answer.columns} & set(inp.columns)
    found = [
        (at, whole, answer if whole else answer.assign(**{name: inp[name].to_numpy()[at] for name in new - set(answer.columns)}))
        for at, whole, answer in found
    ]
    answers = [
        answer if whole or not wholes else inp.iloc[at].reset_index(drop=True).assign(**dict(answer.items()))
        for at, whole, answer in found
    ]
    at, answer = np.concatenate([at for at, _, _ in found]), pd.concat(answers, ignore_index=True)
    order = np.argsort(at, kind="stable")
    at, answer = at[order], answer.iloc[order].reset_index(drop=True)
    if wholes:
        return answer
    # Texts of a large frame are not copied where all rows are there.
    kept = inp if len(at) == len(inp) else inp.iloc[at].reset_index(drop=True)
    return kept.assign(**dict(answer.items()))


def _news(given: pd.DataFrame, found: pd.DataFrame) -> tuple[np.ndarray, bool, pd.DataFrame]:
    """Which given row each row of a ranker's answer belongs to, whether the answer is whole, and the answer.

    It is whole where it has rows, or lacks columns, of what was given; rows that were not given belong to the first one of their
    query. Otherwise it is only the columns that are new: texts do not travel back.
    """
    key = ["qid", "docno"]
    found = found.reset_index(drop=True)
    places = pd.MultiIndex.from_frame(given[key]).get_indexer(pd.MultiIndex.from_frame(found[key]))
    if (places < 0).any() or found.duplicated(key).any() or not set(given.columns) <= {*found.columns, "rank"}:
        first = pd.Index(given["qid"].drop_duplicates().to_numpy()).get_indexer(found["qid"])
        first = np.flatnonzero(~given.duplicated("qid").to_numpy())[first]
        return np.where(places < 0, first, places), True, found
    before = given.iloc[places].reset_index(drop=True)
    left_out = {*key, "rank"} if "score" in found.columns else set(key)
    same = {name for name in given.columns if name in found.columns and before[name].equals(found[name])}
    return places, False, found[[name for name in found.columns if name not in left_out | same]]


# Workers


class _Worker:
    """What runs in each process of a pool."""

    def __init__(self, *, hide_gpus: bool = False) -> None:
        self._rankers: dict[str, pt.Transformer] = {}
        #: The context in which a ranker remembers, and what ends it.
        self._memories: dict[str, tuple[str, ExitStack]] = {}
        if hide_gpus:  # Ray leaves all of them visible to a worker that asks for none
            os.environ.update(CUDA_VISIBLE_DEVICES="-1", HIP_VISIBLE_DEVICES="-1")

    def ask(self, version: str, sent: Sequence[Any], frame: pd.DataFrame, memory: _Memory | None) -> Any:
        """What a ranker makes of a piece; see :func:`_news`. ``memory``: how it remembers; None: it does not."""
        try:
            return self._answer(version, sent, frame, memory)
        except Exception as error:
            if _can_be_sent(error):
                raise
            raise RuntimeError(one_line(error)) from error

    def _answer(self, version: str, sent: Sequence[Any], frame: pd.DataFrame, memory: _Memory | None) -> Any:
        if version not in self._rankers:
            ray = importlib.import_module("ray")
            self._rankers[version] = importlib.import_module("ray.cloudpickle").loads(ray.get(sent[0]))
        ranker = self._rankers[version]
        if version in self._memories and (memory is None or memory[0] != self._memories[version][0]):
            self._memories.pop(version)[1].close()
        if memory is not None and version not in self._memories:
            context, options = memory
            _, stack = self._memories[version] = context, ExitStack()
            for stage in {id(one): one for one in all_stages(ranker) if hasattr(one, "remembering")}.values():
                stack.enter_context(stage.remembering(**options))
        given = frame.reset_index(drop=True)
        return _news(given, ranker(given))

    def forget(self, version: str) -> None:
        """Let go of a ranker."""
        self._rankers.pop(version, None)
        if version in self._memories:
            self._memories.pop(version)[1].close()


def _can_be_sent(error: Exception) -> bool:
    """Whether an error survives a pickle; one that does not looks to Ray like the end of the worker."""
    pickle = importlib.import_module("ray.cloudpickle")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return False
    return True


class _Pool:
    """Workers that stages share."""

    def __init__(self, ray: Any, workers: int, gpus: float):
        self.ray, self.gpus, self.session = ray, gpus, _session(ray)
        self.rows = _ROWS_ON_GPU if gpus else _ROWS
        #: Rankers whose stages there are no more. Workers are told with the next ranker, not while garbage is collected.
        self.gone: deque[str] = deque()
        self._actors: list[Any] = [None] * workers
        self._lock = threading.Lock()
        #: How many frames are being scored.
        self.frames = 0

    @property
    def missing(self) -> int:
        """How many workers do not run."""
        return sum(actor is None for actor in self._actors)

    def actor(self, number: int) -> Any:
        """One of the workers; started where there is none."""
        with self._lock:
            if self._actors[number] is None:
                make = self.ray.remote(_Worker).options(num_cpus=0, num_gpus=self.gpus, scheduling_strategy="SPREAD")
                self._actors[number] = make.remote(hide_gpus=not self.gpus)
            return self._actors[number]

    def lost(self, number: int, actor: Any) -> None:
        """Note that a worker has ended, unless another one has taken its place already."""
        with self._lock:
            if self._actors[number] is actor:
                self._actors[number] = None

    def answers(
        self, pieces: list[deque[np.ndarray]], ask: Callable[[Any, np.ndarray], Any], stage: Any
    ) -> Iterator[tuple[np.ndarray, Any]]:
        """Each piece with its answer, as they come."""
        ray, errors = self.ray, self.ray.exceptions
        self.frames += 1
        # Workers without rows are started, too: they have some of the next frame.
        actors = {number: self.actor(number) for number in range(len(pieces))}
        going: dict[Any, tuple[int, Any, np.ndarray]] = {}
        busy, ended = Counter[int](), Counter[int]()
        try:
            while going or any(pieces):
                for number, actor in actors.items():
                    while pieces[number] and busy[number] < _AHEAD:
                        rows = pieces[number].popleft()
                        going[ask(actor, rows)] = number, actor, rows
                        busy[number] += 1
                ready, _ = ray.wait(list(going), num_returns=1)
                ready, _ = ray.wait(list(going), num_returns=len(going), timeout=0) if len(going) > 1 else (ready, [])
                for ref in ready:
                    number, actor, rows = going.pop(ref)
                    busy[number] -= 1
                    try:
                        answer = ray.get(ref)
                    except errors.RayTaskError as error:
                        raise error.cause from error
                    except errors.RayError as error:
                        ended[id(rows)] += 1
                        if ended[id(rows)] == _TRIES:
                            [reason, *_] = str(error).splitlines() or [""]  # then follow ids, addresses and log files
                            raise RuntimeError(
                                f"{frames.stage_name(stage)}: {_TRIES} workers ended while they scored the same "
                                f"{len(rows)} rows, the last one with {type(error).__name__} ({reason.strip(' .')}); "
                                f"check how much memory they need"
                            ) from error
                        pieces[number].appendleft(rows)
                        self._hand_over(number, actor, actors, pieces)
                    else:
                        yield rows, answer
        finally:
            self.frames -= 1
            for ref in going:
                with suppress(errors.RayError):
                    ray.cancel(ref)
            # Ray prints errors that nobody has looked at; a worker that is busy is not waited for.
            for ref in ray.wait(list(going), num_returns=len(going), timeout=1)[0] if going else ():
                with suppress(Exception):
                    ray.get(ref)

    def _hand_over(self, number: int, actor: Any, actors: dict[int, Any], pieces: list[deque[np.ndarray]]) -> None:
        """Give the pieces of a worker that has ended to the others; to a new one where there is no other."""
        if actors.get(number) is actor:
            self.lost(number, actors.pop(number))
            logger.warning("Spread: a worker has ended; another one scores its rows")
        if not actors:
            actors[number] = self.actor(number)
        while number not in actors and pieces[number]:
            pieces[min(actors, key=lambda other: len(pieces[other]))].append(pieces[number].popleft())

    def forget(self, version: str) -> None:
        """Let the workers go of a ranker; nothing where the connection is another one by now."""
        self._tell(version)

    def _tell(self, version: str) -> None:
        for actor in self._actors:
            if actor is not None and _session(self.ray) == self.session:
                actor.forget.remote(version)

    def forget_gone(self) -> None:
        """Let the workers go of rankers whose stages there are no more."""
        while self.gone:
            self._tell(self.gone.popleft())

    def close(self) -> None:
        """End the workers."""
        for number, actor in enumerate(self._actors):
            if actor is not None:
                self.lost(number, actor)
                if _session(self.ray) == self.session:
                    self.ray.kill(actor)


#: Pools of this process, by the connection to Ray, the number of workers and the GPUs of each.
_POOLS: dict[tuple[str, int, float], _Pool] = {}
_POOLS_LOCK = threading.Lock()


@contextmanager
def signal_handlers_kept() -> Iterator[None]:
    """Restore the handlers of memory and arithmetic faults (signals) after the block; Ray replaces them when it starts and ends.

    Java uses such faults to stop its threads: without its handler, the next garbage collection in Terrier can end the process.
    :mod:`signal` knows only Python's own handlers, so this calls the C library, with buffers large enough for any record.
    """
    if sys.platform == "win32":  # its faults are no signals
        yield
        return
    library = ctypes.CDLL(None)
    faults = signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL
    before = {number: ctypes.create_string_buffer(512) for number in faults}
    for number, action in before.items():
        library.sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in before.items():
            library.sigaction(int(number), action, None)


def _session(ray: Any) -> str:
    """A name for the connection to Ray; empty where there is none."""
    if not ray.is_initialized():
        return ""
    about = ray.get_runtime_context()
    # Jobs of every new cluster are counted from 1, and the calling process' worker id is made of its job's; a node's is random.
    return f"{about.get_job_id()}-{about.get_node_id()}"


def _pool(workers: int, gpus: float | None) -> _Pool:
    """The pool of so many workers; Ray is started where it does not run."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise InputError("Spread: more than one process needs the package ray: pip install 'pyterrier-debias[ray]'") from error
    with _POOLS_LOCK:
        if not ray.is_initialized():
            with signal_handlers_kept():
                ray.init(log_to_driver=False, logging_level=logging.ERROR)
        there = ray.cluster_resources().get("GPU", 0)
        gpus = float(there >= workers) if gpus is None else gpus
        if gpus * workers > there:
            raise InputError(
                f"Spread: {workers} workers with gpus_per_worker={gpus:g} need {gpus * workers:g} GPUs, and the cluster has "
                f"{there:g}; use fewer workers, or gpus_per_worker=0"
            )
        key = _session(ray), workers, gpus
        if key not in _POOLS:
            _POOLS[key] = _Pool(ray, workers, gpus)
        _make_room(ray, _POOLS[key])
        return _POOLS[key]


def _make_room(ray: Any, pool: _Pool) -> None:
    """Wait until there are GPUs for the workers of a pool that do not run yet; pools that score nothing give theirs back.

    Ray would wait for ever.
    """
    needed = pool.gpus * pool.missing

    def lacking() -> bool:
        return bool(needed) and ray.available_resources().get("GPU", 0.0) < needed - 1e-6

    if lacking():
        for other in _POOLS.values():
            if other is not pool and other.session == pool.session and other.gpus and not other.frames:
                other.close()
    end = time.monotonic() + _PATIENCE
    while lacking():
        if time.monotonic() > end:
            raise InputError(
                f"Spread: {pool.missing} workers wait for {needed:g} GPUs, and the cluster has "
                f"{ray.available_resources().get('GPU', 0.0):g} that are free; end what holds the others, use fewer workers, or "
                f"gpus_per_worker=0"
            )
        time.sleep(0.1)
