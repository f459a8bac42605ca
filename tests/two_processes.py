"""Code in two processes that train together: forked from a server that has imported the large libraries once."""

import multiprocessing
import os
import socket
import sys

from tests.conftest import ROOT

#: What every process would spend most of its time on. Libraries that start threads when they are imported must not be among them.
LIBRARIES = ["pyterrier_debias", "torch", "transformers", "sentence_transformers", "accelerate"]


def _begin(rank, port, source, arguments, report):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", LOCAL_WORLD_SIZE="2")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    sys.argv = ["two.py", *arguments]
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    with open(report, "w") as file:
        os.dup2(file.fileno(), 2)  # what libraries say is shown where it fails
        exec(compile(source, "two.py", "exec"), {"__name__": "__main__"})


def run_two(source, *arguments, folder, timeout=300):
    """Run code in two processes that know each other through the variables that torchrun sets.

    Args:
        source: The code; ``sys.argv[1:]`` are the arguments.
        arguments: Texts.
        folder: Where what they print on stderr goes.
        timeout: Seconds for both.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(LIBRARIES)
    reports = [folder / f"stderr-{rank}" for rank in range(2)]
    both = [
        context.Process(target=_begin, args=(rank, port, source, arguments, str(reports[rank])), daemon=True) for rank in range(2)
    ]
    for process in both:
        process.start()
    for process in both:
        process.join(timeout)
    codes = [process.exitcode for process in both]
    for process in both:
        process.kill()
    assert codes == [0, 0], "\n".join(report.read_text()[-3000:] for report in reports if report.exists())
