"""How much an audit saves by remembering scores: pairs scored, distinct pairs and CPU time, with and without memory, in one run.

Three rankers rerank the first run of a planted collection: a cross-encoder, a bi-encoder (both with the weights of the extra
``demo``; the cross-encoder's head is new, which costs as much as a trained one) and a function that pt.apply calls for each row.
"given" counts the pairs whose score a ranker computed (for the bi-encoder, the documents that it encoded), "distinct" those with
different texts. The findings must be the same. Example::

    OMP_NUM_THREADS=1 python benchmarks/scored_twice.py --topics 40 --depth 10
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import time
import warnings
from collections.abc import Iterator, Sequence
from unittest.mock import patch

import pandas as pd
import pyterrier as pt

from pyterrier_debias import BiEncoder, CrossEncoder, audit, open_dataset
from pyterrier_debias.core.foreign_memory import ForeignMemory
from pyterrier_debias.report import run

MODEL = "all-MiniLM-L6-v2"
BIASES = ["position", "gender", "linguistic"]
RANKERS = ["CrossEncoder", "BiEncoder", "pt.apply"]


@contextlib.contextmanager
def forgetful() -> Iterator[None]:
    """Audits without any memory."""
    with (
        patch.object(run, "_remembering", lambda systems: contextlib.nullcontext()),
        patch.object(ForeignMemory, "ask", lambda self, ranker, inp: ranker(inp)),
    ):
        yield


def ranker_of(name: str, given: list) -> pt.Transformer:
    """A ranker that notes the pairs or documents whose scores or vectors it computes."""

    class Pairs(CrossEncoder):
        def score_pairs(self, queries: Sequence[str], docs: Sequence[str]):
            given.extend(zip(queries, docs))
            return super().score_pairs(queries, docs)

    class Documents(BiEncoder):
        def encoded(self, texts: Sequence[str], task: str, cuts=None):
            given.extend(texts if task == "document" else [])
            return super().encoded(texts, task, cuts)

    def overlap(row) -> float:
        given.append((row["query"], row["text"]))
        words = row["text"].lower().split()
        return sum(1 / (1 + words.index(word)) for word in set(row["query"].lower().split()) if word in words)

    if name == "pt.apply":
        return pt.apply.doc_score(overlap)
    return (Pairs(MODEL, head="mean") if name == "CrossEncoder" else Documents(MODEL)).warm_up()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=40)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--rankers", nargs="+", default=RANKERS, choices=RANKERS)
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    dataset = open_dataset(f"planted/topics={options.topics},passages={15 * options.topics},position=1,linguistic=1")
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    settings = {"biases": BIASES, "depth": options.depth, "draws": options.draws}
    # Loading modules in the first audit is not counted.
    audit({"warm up": candidates}, dataset, **settings)
    given: list = []
    print(f"{'ranker':14} {'memory':8} {'given':>7} {'distinct':>8} {'CPU s':>7}  same findings")
    for name in options.rankers:
        ranker = ranker_of(name, given)
        before: pd.DataFrame | None = None
        for memory in ("without", "with"):
            given.clear()
            start = time.process_time()
            with forgetful() if memory == "without" else contextlib.nullcontext():
                found = audit({name: candidates >> ranker}, dataset, **settings).findings.round(6)
            took = time.process_time() - start
            same = "" if before is None else str(found.equals(before))
            before = found
            print(f"{name:14} {memory:8} {len(given):7} {len(set(given)):8} {took:7.1f}  {same}", flush=True)


if __name__ == "__main__":
    main()
