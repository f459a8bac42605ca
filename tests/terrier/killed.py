"""An audit of a Terrier pipeline that is killed when its second bias begins; run in a process of its own."""

import os
import signal
import sys
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_debias import AuditResult, PlantedCollection, PlantedRanker, audit

#: Names the checkpoint of an audit that is to die.
DIES = "PYTERRIER_DEBIAS_TEST_DIES"


class Mortal(pt.Transformer):
    """Ranks, unless it is to die and the first bias has been examined."""

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        if any(Path(os.environ.get(DIES, os.devnull)).glob("room-*")):
            os.kill(os.getpid(), signal.SIGKILL)
        return PlantedRanker()(inp)


def examine(index: str, dataset: PlantedCollection, checkpoint: str | Path | None) -> AuditResult:
    """Two biases of a ranker behind BM25."""
    bm25 = pt.terrier.TerrierIndex(index).bm25(include_fields=["text"])
    options = {"rooms": ["gender", "position"], "topics": 6, "depth": 5, "draws": 1}
    return audit({"mortal": bm25 % 5 >> Mortal()}, dataset, checkpoint=checkpoint, **options)


def main(index: str, checkpoint: str) -> None:
    os.environ[DIES] = checkpoint
    pt.java.mavenresolver.offline()
    examine(index, PlantedCollection(seed=3, topics=20, passages=200), checkpoint)


if __name__ == "__main__":
    from tests.terrier import killed  # the ranker's class is the one that others see

    killed.main(*sys.argv[1:])
