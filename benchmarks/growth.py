"""How memory and time of an audit grow with its queries, over a ranker that costs nothing.

Five systems rerank one run; the score of each is a hash of query and text, whose time is not counted. Each size is audited in a
process of its own. "rows" are those that rankers were given or would have been (queries x depth x systems, in every variant),
"peak" is the process' greatest memory less what it held before the audit, "us a row" the processor's time beside the ranker's.
Exponents are those of a line through the logarithms. Example::

    OMP_NUM_THREADS=1 python benchmarks/growth.py --queries 100 300 1000 --depth 100 --include
"""

from __future__ import annotations

import argparse
import json
import logging
import resource
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

BIASES = ["position", "survivorship", "gender", "linguistic", "pooling"]
INCLUDE = Path(__file__).resolve().parent.parent / "pyterrier_debias" / "pt_docs" / "audit_growth.inc"
#: The collection: documents, words of a document, judged documents of a query.
DOCUMENTS, WORDS, JUDGED = 20_000, 50, 20
_FREQUENT = "the of and to in a is that for it as was with be by on are this from or".split()


class Hashed(pt.Transformer):
    """A ranker whose score is a hash of query and text; ``seconds`` is the time that it took."""

    seconds = 0.0

    def __init__(self, seed: int):
        self.seed = seed

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        start = time.process_time()
        parts = [pd.util.hash_array(inp[name].to_numpy(dtype=object)) for name in ("query", "text")]
        mixed = (parts[0] ^ (parts[1] * np.uint64(2 * self.seed + 1))) * np.uint64(0x9E3779B97F4A7C15)
        out = inp.assign(score=(mixed >> np.uint64(11)).astype(np.float64) / 2**53)
        Hashed.seconds += time.process_time() - start
        return out


def collection(queries: int, depth: int):
    """A collection of random words, with a run, answers and the lists that labellers were shown."""
    from pyterrier_debias.data.base import Collection

    rng = np.random.default_rng(0)
    words = np.array([*_FREQUENT, *(f"{a}{b}{c}" for a in "bdfgklm" for b in "aeiou" for c in "nprst"), "he", "she", "."])
    drawn = words[rng.integers(0, len(words), (DOCUMENTS, WORDS))]
    corpus = pd.DataFrame({"docno": [f"d{i}" for i in range(DOCUMENTS)], "text": list(map(" ".join, drawn.tolist()))})
    qids = [f"q{i}" for i in range(queries)]
    topics = pd.DataFrame({"qid": qids, "query": list(map(" ".join, words[20:-3][rng.integers(0, 150, (queries, 6))]))})
    topics["complexity"] = rng.normal(size=queries)
    numbers = rng.permuted(np.tile(np.arange(DOCUMENTS), (queries, 1)), axis=1)[:, :depth] if queries * DOCUMENTS <= 2e7 else (
        np.stack([rng.choice(DOCUMENTS, depth, replace=False) for _ in range(queries)])
    )
    docnos = corpus["docno"].to_numpy(dtype=object)
    run = pd.DataFrame(
        {
            "qid": np.repeat(np.array(qids, dtype=object), depth), "docno": docnos[numbers.ravel()],
            "score": np.tile(np.arange(depth, 0, -1, dtype=np.float64), queries), "rank": np.tile(np.arange(depth), queries),
        }
    )  # fmt: skip
    judged = run[run["rank"] < JUDGED].reset_index(drop=True)
    labels = rng.permuted(np.tile(np.arange(JUDGED) < 2, (queries, 1)), axis=1)[:, : min(depth, JUDGED)].ravel().astype(int)
    qrels = judged[["qid", "docno"]].assign(label=labels)
    relevant = qrels[qrels["label"] > 0]
    begins = corpus.set_index("docno")["text"].reindex(relevant["docno"]).str.split().str[20].tolist()
    answers = relevant[["qid", "docno"]].assign(answer=begins, start=-1, end=-1)
    return Collection(
        "growth", corpus=corpus, topics={"test": topics}, qrels={"test": qrels}, runs={"first": run}, answers=answers,
        candidates=judged[judged["rank"] < 10],
    )  # fmt: skip


def peak() -> float:
    """The greatest memory of this process so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(queries: int, depth: int, systems: int, biases: list[str], draws: int) -> dict[str, float]:
    """One audit in this process."""
    from pyterrier_debias import audit

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def rankers(dataset):
        candidates = pt.Transformer.from_df(dataset.get_results()) >> dataset.text_loader()
        return {f"system {number}": candidates >> Hashed(number) for number in range(systems)}

    few = collection(10, 10)
    audit(rankers(few), few, biases=biases, depth=10, draws=1)  # what the first audit loads is not counted
    dataset = collection(queries, depth)
    made = rankers(dataset)
    before, start, Hashed.seconds = peak(), time.process_time(), 0.0
    audit(made, dataset, biases=biases, depth=depth, draws=draws)
    took = time.process_time() - start
    return {"queries": queries, "peak": peak() - before, "seconds": took - Hashed.seconds, "ranker": Hashed.seconds}


def exponent(rows: list[dict[str, float]], what: str) -> float:
    """The slope of the logarithm of a figure on that of the number of queries."""
    if len(rows) < 2:
        return float("nan")
    return float(np.polyfit(np.log([row["queries"] for row in rows]), np.log([max(row[what], 1e-9) for row in rows]), 1)[0])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--depth", type=int, default=100)
    parser.add_argument("--systems", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--biases", nargs="+", default=BIASES, choices=BIASES)
    parser.add_argument("--each", action="store_true", help="each bias by itself, too")
    parser.add_argument("--include", action="store_true", help=f"write {INCLUDE.name} of the documentation")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measured(options.one, options.depth, options.systems, options.biases, options.draws)))
        return
    lines = []
    print(f"{'biases':14} {'queries':>8} {'peak MB':>8} {'CPU s':>8} {'ranker s':>8} {'us a candidate':>14}")
    for biases in [options.biases, *([[bias] for bias in options.biases] if options.each else [])]:
        name, rows = "all" if len(biases) > 1 else biases[0], []
        for queries in options.queries:
            arguments = ["--one", queries, "--depth", options.depth, "--systems", options.systems, "--draws", options.draws]
            command = [sys.executable, __file__, *map(str, arguments), "--biases", *biases]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            row = json.loads(told.splitlines()[-1])
            rows.append(row)
            each = 1e6 * row["seconds"] / (queries * options.depth * options.systems)
            cells = [name, f"{queries:,}", f"{row['peak']:,.0f}", f"{row['seconds']:.1f}", f"{row['ranker']:.1f}", f"{each:.1f}"]
            lines.append(cells)
            print(f"{cells[0]:14} {cells[1]:>8} {cells[2]:>8} {cells[3]:>8} {cells[4]:>8} {cells[5]:>14}", flush=True)
        print(f"{name:14} exponents: peak {exponent(rows, 'peak'):.2f}, CPU {exponent(rows, 'seconds'):.2f}", flush=True)


if __name__ == "__main__":
    main()
