"""How scoring speeds up with Spread's workers, and where the driver becomes the limit: pairs per second, in one run.

``--workers``: a cross-encoder (the weights of the extra ``demo`` under a new head) scores pairs of a planted collection with this
number of workers, each with one thread. Run it on a machine that does nothing else. ``--sleeping``: the workers sleep for as long
as a model of ``--rate`` pairs per second would compute, so any number of them runs on one machine, and any loss of speed is due
to the driver. Its CPU time per row shows how many rows per second it could serve. The output ends with a projection for 8 GPUs
and 7 million pairs. ``--two-nodes`` instead starts a cluster of two nodes on this machine, kills one of them on the way, and
compares the result with that of one process. Example::

    OMP_NUM_THREADS=1 python benchmarks/spread.py --workers 1 2 --sleeping 1 16 64
    OMP_NUM_THREADS=1 python benchmarks/spread.py --two-nodes --pairs 20000
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

import numpy as np
import pandas as pd
import pyterrier as pt
from spread_nodes import over_two_nodes

from pyterrier_debias import CrossEncoder, open_dataset
from pyterrier_debias.core.spread import Spread

MODEL = "all-MiniLM-L6-v2"
LINE = "==========  =======  ==========  =========  ==============================  ======================"


class Timed(pt.Transformer):
    """A ranker that records the process in which each row was scored, and the row's share of the call's CPU seconds."""

    def __init__(self, ranker: pt.Transformer):
        self.ranker = ranker

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score."""
        start = time.process_time()
        found = self.ranker(inp)
        return found.assign(process=os.getpid(), seconds=(time.process_time() - start) / max(len(inp), 1))


class Sleeping(pt.Transformer):
    """Scores a given number of pairs per second, without computing anything."""

    def __init__(self, rate: float):
        self.rate = rate

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Wait, then score by length."""
        time.sleep(len(inp) / self.rate)
        return inp.assign(score=inp["text"].str.len().astype(float))


def pairs(number: int) -> pd.DataFrame:
    """Lists of 100 documents of a planted collection; all texts are made different."""
    dataset = open_dataset("planted/topics=40,passages=1200")
    few = (pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader())(dataset.get_topics())
    few = few[["qid", "query", "docno", "text"]].drop_duplicates(["qid", "docno"])
    few = few[few.groupby("qid").cumcount() < 100].reset_index(drop=True)
    copy, row = np.divmod(np.arange(number), len(few))
    frame = few.iloc[row].reset_index(drop=True)
    qids = frame["qid"] + "-" + pd.Series(copy).astype(str)
    return frame.assign(qid=qids, text=frame["text"] + " " + pd.Series(np.arange(number)).astype(str))


def timed(stage: Spread, frame: pd.DataFrame, warm: int) -> tuple[float, float, float]:
    """Seconds, and CPU seconds of the busiest worker and of the driver, for a frame, after workers have loaded the model."""
    stage(frame.head(warm))
    wall, cpu = time.perf_counter(), time.process_time()
    found = stage(frame)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert len(found) == len(frame)
    stage.close()
    return wall, float(found.groupby("process")["seconds"].sum().max()), cpu


def show(*cells: str) -> None:
    """Print a row of the table."""
    print("  ".join(cell.ljust(len(rule)) for cell, rule in zip(cells, LINE.split())).rstrip(), flush=True)


def main() -> None:
    """Print the table and the projection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="*", default=[])
    parser.add_argument("--pairs", type=int, default=2000, help="pairs for each number of workers")
    parser.add_argument("--sleeping", type=int, nargs="*", default=[])
    parser.add_argument("--rate", type=float, default=100, help="pairs per second of a sleeping worker")
    parser.add_argument("--seconds", type=float, default=15, help="how long sleeping workers should take")
    parser.add_argument("--gpu-rate", type=float, default=10_000, help="pairs per second of one GPU, for the projection")
    parser.add_argument("--two-nodes", action="store_true", help="start a cluster of two nodes on this machine instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

    if options.two_nodes:
        over_two_nodes(pairs(options.pairs))
        return

    import ray

    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    print(LINE)
    show("ranker", "workers", "pairs/s", "of one", "busiest worker's CPU us a pair", "driver's CPU us a pair")
    print(LINE)
    costs = []
    for kind, counts in (("MiniLM", options.workers), ("sleeping", options.sleeping)):
        first = None
        for workers in counts:
            if kind == "MiniLM":
                ranker: pt.Transformer = CrossEncoder(MODEL, head="mean", device="cpu")
                frame = pairs(options.pairs)
            else:
                ranker = Sleeping(options.rate)
                frame = pairs(int(options.rate * options.seconds * workers))
            stage = Spread(Timed(ranker), workers, gpus_per_worker=0, whole_queries=False)
            wall, worker, cpu = timed(stage, frame, 20 * workers)
            rate = len(frame) / wall
            # The ideal is the perfect rate if workers sleep, otherwise the rate with the first number of workers.
            ideal = options.rate if kind == "sleeping" else (first or rate / workers)
            first = first or ideal
            costs.append(cpu / len(frame) * 1e6)
            show(
                kind, str(workers), f"{rate:,.0f}", f"{rate / ideal:.2f}", f"{worker / len(frame) * 1e6:,.0f}", f"{costs[-1]:.1f}"
            )  # fmt: skip
    print(LINE)
    driver, gpus, million = min(costs), 8, 7e6
    print(
        f"\nThe driver's CPU time allows {1e6 / driver:,.0f} pairs a second. 7 million pairs on {gpus} GPUs of "
        f"{options.gpu_rate:,.0f} pairs a second\neach would take {million / gpus / options.gpu_rate:,.0f} s of the GPUs and "
        f"{million * driver / 1e6:,.0f} s of the driver, which go on at the same time."
    )


if __name__ == "__main__":
    main()
