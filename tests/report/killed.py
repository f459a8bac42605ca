"""An audit that is killed when its second bias begins, in a process of its own, and goes on in another."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_debias import AuditResult, PlantedCollection, PlantedRanker, audit
from pyterrier_debias.core.files import entries
from tests.conftest import ROOT

#: Names the checkpoint of an audit that is to die.
DIES = "PYTERRIER_DEBIAS_TEST_DIES"


class Mortal(pt.Transformer):
    """Ranks, unless it is to die and the first bias has been examined."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        if any(Path(os.environ.get(DIES, os.devnull)).glob("bias-*")):
            os.kill(os.getpid(), signal.SIGKILL)
        return PlantedRanker()(inp)


def examine(checkpoint: Path | str | None, index: str | None) -> AuditResult:
    """Two biases of a ranker behind BM25: Terrier's over an index of the collection, or the collection's own run."""
    dataset = PlantedCollection(seed=3, topics=20, passages=200)
    if index is None:
        retriever = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    else:
        retriever = pt.terrier.TerrierIndex(index).bm25(include_fields=["text"])
    options = {"biases": ["gender", "position"], "topics": 6, "depth": 5, "draws": 1}
    return audit({"mortal": retriever % 5 >> Mortal()}, dataset, checkpoint=checkpoint, **options)


def in_a_new_process(source: str, *arguments: str) -> tuple[int, str]:
    """Run code in a process that shares nothing with this one: its exit code, and its stderr."""
    done = subprocess.run([sys.executable, "-c", source, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stderr


def check_that_it_goes_on(run: Callable[..., tuple[int | None, str]], kept: Path, index: str | None = None) -> None:
    """Killed in the middle, and called again with the same folder, it finds what an audit finds that nothing interrupts.

    Args:
        run: Runs code with arguments in a process of its own: its exit code, and its stderr.
        kept: The folder.
        index: As for :func:`examine`.
    """
    source = "import sys; from tests.report import killed; killed.die(*sys.argv[1:])"
    code, told = run(source, str(kept), *([] if index is None else [index]))
    assert code == -signal.SIGKILL, told
    before = {path.name: path.stat().st_mtime_ns for path in entries(kept)}
    assert any("gender" in name for name in before) and not any("position" in name for name in before)
    gone_on, whole = (examine(folder, index) for folder in (kept, None))
    pd.testing.assert_frame_equal(gone_on.findings, whole.findings)
    pd.testing.assert_frame_equal(gone_on.per_query, whole.per_query)
    assert set(whole.findings["bias"]) == {"gender", "position"}
    # What had finished was not examined again.
    assert before.items() <= {path.name: path.stat().st_mtime_ns for path in kept.iterdir()}.items()


def die(checkpoint: str, index: str | None = None) -> None:
    """What the process runs that is killed."""
    os.environ[DIES] = checkpoint
    if index is not None:
        pt.java.mavenresolver.offline()
    examine(checkpoint, index)
