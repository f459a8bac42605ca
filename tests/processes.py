"""Code in processes of its own: forked from a server that has imported the large libraries once."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

#: What every process would spend most of its time on. Libraries that start threads when they are imported must not be among them.
LIBRARIES = ["pyterrier_debias", "torch", "transformers", "sentence_transformers", "accelerate"]


def _execute(source: str, arguments: tuple[str, ...]) -> None:
    sys.argv = ["program.py", *arguments]
    exec(compile(source, "program.py", "exec"), {"__name__": "__main__"})


def _launch(source: str, arguments: tuple[str, ...]) -> None:
    """What torchrun does, but that both processes are forked from this one."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1, max_nodes=1, nproc_per_node=2, max_restarts=0, run_id="two", start_method="fork",
        rdzv_backend="c10d", rdzv_endpoint="localhost:0",
    )  # fmt: skip
    elastic_launch(config, _execute)(source, arguments)


def _begin(how: Callable[..., None], source: str, arguments: tuple[str, ...], report: Path) -> None:
    with report.open("w") as file:
        os.dup2(file.fileno(), 2)  # what libraries say is shown where it fails
        how(source, arguments)


def run(source: str, *arguments: str, folder: Path, how: Callable[..., None] = _execute) -> tuple[int | None, str]:
    """Run code in a process of its own.

    Args:
        source: The code; ``sys.argv[1:]`` are the arguments.
        arguments: Texts.
        folder: Where what it prints on stderr goes.
        how: What executes it there.

    Returns:
        Its exit code, a signal's number below 0 where that ended it, None where it took five minutes; and its stderr.
    """
    context, report = multiprocessing.get_context("forkserver"), folder / "stderr"
    context.set_forkserver_preload(LIBRARIES)
    process = context.Process(target=_begin, args=(how, source, arguments, report))
    process.start()
    process.join(300)
    code = process.exitcode
    process.kill()
    return code, report.read_text()[-3000:] if report.exists() else ""


def run_two(source: str, *arguments: str, folder: Path) -> None:
    """Run code in two processes that torchrun's launcher starts; arguments as for :func:`run`."""
    code, told = run(source, *arguments, folder=folder, how=_launch)
    assert code == 0, told
