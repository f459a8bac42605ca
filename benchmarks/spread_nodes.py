"""Two nodes of a Ray cluster on this machine, for ``spread.py --two-nodes``.

Each node is a process (``ray start``). The program connects to them as to any cluster. Four workers score on both nodes, and then
once more while the second node is killed.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias import PlantedRanker
from pyterrier_debias.core.spread import Spread

#: Paths on which nodes find this file and the package.
PATHS = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]


@contextmanager
def node(*arguments: str) -> Iterator[subprocess.Popen]:
    """A node of the cluster, as a group of processes."""
    paths = os.pathsep.join([*PATHS, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"}
    command = [str(Path(sys.executable).parent / "ray"), "start", "--block", "--num-cpus", "1", *arguments]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env=environment, start_new_session=True, **quiet)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


class OnNodes(pt.Transformer):
    """A slow ranker that records on which node it scores."""

    def __init__(self, ranker: pt.Transformer, seconds: float = 0.0):
        self.ranker, self.seconds = ranker, seconds

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score."""
        import ray

        time.sleep(self.seconds if len(inp) else 0)
        return self.ranker(inp).assign(node=ray.get_runtime_context().get_node_id() if ray.is_initialized() else "")


def kill(pid: int) -> None:
    """Kill a node at once: ``ray start``, and the processes that it has started."""
    group = subprocess.run(["ps", "-s", str(pid), "-o", "pid="], capture_output=True, text=True).stdout.split()
    for one in {pid, *map(int, group)}:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def free_port() -> str:
    """A free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def alive(ray: Any) -> int:
    """How many nodes the cluster has."""
    return sum(one["Alive"] for one in ray.nodes())


def over_two_nodes(frame: pd.DataFrame) -> None:
    """Score a frame on both nodes, and once more while the second one is killed; prints what was found."""
    # The token keeps others from connecting; Ray reads these variables when it is imported.
    os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    import ray

    alone, port = PlantedRanker()(frame), free_port()
    with ExitStack() as stack:
        # Do not use the port and the folder of a cluster that may already run here.
        folder = stack.enter_context(TemporaryDirectory(prefix="ray"))
        here = ("--node-ip-address", "127.0.0.1")
        stack.enter_context(node("--head", *here, "--port", port, "--include-dashboard", "false", "--temp-dir", folder))
        second = stack.enter_context(node("--address", f"127.0.0.1:{port}", *here))
        end = time.monotonic() + 180
        while not (ray.is_initialized() and alive(ray) == 2):
            time.sleep(2)
            with suppress(ConnectionError, RuntimeError) if time.monotonic() < end else nullcontext():
                if not ray.is_initialized():
                    ray.init(f"127.0.0.1:{port}", log_to_driver=False, logging_level="ERROR", _node_ip_address="127.0.0.1")
            assert time.monotonic() < end, "the second node did not start"
        stack.callback(ray.shutdown)
        for what, seconds in (("both nodes", 0.0), ("the second node is killed", 3.0)):
            spread = Spread(OnNodes(PlantedRanker(), seconds), 4, gpus_per_worker=0, whole_queries=False)
            if seconds:
                Timer(seconds / 2, kill, (second.pid,)).start()
            start = time.perf_counter()
            found = spread(frame)
            numbers = sorted(Counter(found["node"]).values(), reverse=True)
            far = (found["score"] - alone["score"]).abs().max()
            same = found[["qid", "docno", "rank"]].equals(alone[["qid", "docno", "rank"]])
            print(
                f"{what}: {len(found)} rows on {len(numbers)} nodes ({' + '.join(map(str, numbers))}), scores differ by at most "
                f"{far:.0e} from one process, {'the same order' if same else 'ANOTHER ORDER'}, "
                f"{time.perf_counter() - start:.0f} s; {alive(ray)} nodes alive",
                flush=True,
            )
