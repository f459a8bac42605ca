"""How the memory and time of an audit grow with the number of queries, with rankers whose own cost is not counted.

Five systems rerank one run; their scores are hashes of query and text, whose time is not counted. Each size is audited in its own
process. "rows" are the rows that the rankers scored, "peak" is the peak memory of the process minus its memory before
the audit, and "us per row" is the processor time outside the rankers. Exponents are slopes of a line through the logarithms.
``--survivorship`` adds the trend of SurvivorshipCurve over 100,000 queries, and SurvivorshipSubset over a million rows, compared
with a merge in pandas. Example::

    OMP_NUM_THREADS=1 python benchmarks/growth.py --sizes 100:100,700,7000 1000:30,90 --each --survivorship --include
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import logging
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
    """A ranker whose score is a hash of query and text; ``seconds`` and ``rows`` are its time and the rows that it scored."""

    seconds, rows = 0.0, 0

    def __init__(self, seed: int):
        self.seed = seed

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        start = time.process_time()
        parts = [pd.util.hash_array(inp[name].to_numpy(dtype=object)) for name in ("query", "text")]
        mixed = (parts[0] ^ (parts[1] * np.uint64(2 * self.seed + 1))) * np.uint64(0x9E3779B97F4A7C15)
        out = inp.assign(score=(mixed >> np.uint64(11)).astype(np.float64) / 2**53)
        Hashed.seconds += time.process_time() - start
        Hashed.rows += len(inp)
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


def memory(what: str) -> float:
    """The memory of this process in MB: the current memory (``VmRSS``), or the peak memory (``VmHWM``)."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(what))
    return int(line.split()[1]) / 1024


def held() -> float:
    """The current memory of this process in MB; also resets the peak."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def measured(queries: int, depth: int, systems: int, biases: list[str], draws: int) -> dict[str, float]:
    """One audit in this process."""
    from pyterrier_debias import audit

    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")

    def rankers(dataset):
        candidates = pt.Transformer.from_df(dataset.get_results()) >> dataset.text_loader()
        return {f"system {number}": candidates >> Hashed(number) for number in range(systems)}

    few = collection(10, 10)
    audit(rankers(few), few, biases=biases, depth=10, draws=1)  # loading modules in the first audit is not counted
    dataset = collection(queries, depth)
    made = rankers(dataset)
    before, start, Hashed.seconds, Hashed.rows = held(), time.process_time(), 0.0, 0
    audit(made, dataset, biases=biases, depth=depth, draws=draws)
    took = time.process_time() - start
    return {"queries": queries, "peak": memory("VmHWM") - before, "seconds": took - Hashed.seconds, "rows": Hashed.rows}


def exponent(rows: list[dict[str, float]], what: str) -> float:
    """The slope of the logarithm of a figure on that of the number of queries."""
    points = [(row["queries"], row[what]) for row in rows if row[what] > 0]
    return float(np.polyfit(*np.log(points).T, 1)[0]) if len(points) > 1 else float("nan")


def survivorship() -> list[str]:
    """Sentences about the cost of the curve's trend and of the subset."""
    from pyterrier_debias import SurvivorshipSubset
    from pyterrier_debias.survivorship.formulas.nested import trend

    rng, queries = np.random.default_rng(0), 100_000
    strata = [f"{answers} of {shown}" for answers, shown in zip(rng.integers(1, 5, queries), rng.integers(7, 11, queries))]
    start = time.process_time()
    trend(1 / rng.integers(1, 12, queries), rng.integers(1, 8, queries).astype(float), strata=strata)
    told = [
        f"The trend of ``SurvivorshipCurve`` over {queries:,} queries (RR\\@10, 9,999 permutations) takes "
        f"{time.process_time() - start:.0f} seconds of CPU time."
    ]
    qids = np.array([f"q{i}" for i in range(20_000)], dtype=object)
    docnos, rank = [f"d{i}" for i in range(200_000)], np.tile(np.arange(10), 20_000)
    shown = pd.DataFrame({"qid": np.repeat(qids, 10), "docno": docnos, "rank": rank})
    qrels = shown[shown["rank"] == np.repeat(rng.integers(0, 14, 20_000), 10)][["qid", "docno"]].assign(label=1)
    run = pd.DataFrame({"qid": np.repeat(qids, 50), "docno": np.tile([f"d{i}" for i in range(50)], 20_000), "score": 1.0})
    subset, times = SurvivorshipSubset(shown, qrels, rank=5), ([], [])
    ranks = subset.ranks()
    for _ in range(3):
        start = time.process_time()
        kept = subset(run)
        times[0].append(time.process_time() - start)
        start = time.process_time()
        merged = run.merge(ranks[["qid", "first_relevant_rank"]], on="qid")
        merged = merged[merged["first_relevant_rank"] <= 5].reset_index(drop=True)
        times[1].append(time.process_time() - start)
        assert len(kept) == len(merged)
    told.append(
        f"``SurvivorshipSubset`` over {len(run):,} rows takes {min(times[0]):.2f} seconds; merging the ranks in pandas and "
        f"selecting the rows takes {min(times[1]):.2f}."
    )
    return told


def included(tables: dict[tuple[str, int], list[dict[str, float]]], options: argparse.Namespace, told: list[str]) -> str:
    """The table for the documentation."""
    command = f"OMP_NUM_THREADS=1 python benchmarks/growth.py {' '.join(sys.argv[1:])}"
    lines = [
        f"An audit of {options.systems} systems over the same candidates of each query, {options.draws} draws; rankers are "
        f"hashes, whose time is not counted (``{command}``; CPU time on a shared virtual machine).",
        "", ".. list-table::", "   :header-rows: 1", "",
    ]  # fmt: skip
    cells = [["biases", "candidates", "queries", "rows scored", "peak, MB", "CPU seconds", "microseconds per row"]]
    for (name, depth), rows in tables.items():
        for row in rows:
            each = f"{1e6 * row['seconds'] / row['rows']:.1f}" if row["rows"] else ""
            numbers = [f"{number:,}" for number in (depth, row["queries"], row["rows"])]
            cells.append([name, *numbers, f"{row['peak']:,.0f}", f"{row['seconds']:.1f}", each])
    lines += [f"   {'* -' if not column else '  -'} {cell}" for row in cells for column, cell in enumerate(row)]
    exponents = [
        f"{depth:,} candidates: {exponent(rows, 'peak'):.2f} and {exponent(rows, 'seconds'):.2f}"
        for (_, depth), rows in tables.items() if len(rows) > 2
    ]  # fmt: skip
    grows = f"Exponents of peak memory and CPU time over the number of queries: {'; '.join(exponents)}." if exponents else ""
    return "\n".join([*lines, "", grows, "", *told]) + "\n"


def _size(text: str) -> tuple[int, list[int]]:
    """``100:40,120`` as 100 candidates for 40 and for 120 queries."""
    depth, _, queries = text.partition(":")
    return int(depth), [int(number) for number in queries.split(",")]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = "candidates per query and numbers of queries, such as 100:100,700,7000 (default: 100:100,300,1000)"
    parser.add_argument("--sizes", type=_size, nargs="+", default=[(100, [100, 300, 1000])], metavar="N:N,N", help=sizes)
    parser.add_argument("--systems", type=int, default=5)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--biases", nargs="+", default=BIASES, choices=BIASES)
    parser.add_argument("--each", action="store_true", help="also each bias by itself, with the fewest queries of the first size")
    parser.add_argument("--survivorship", action="store_true", help="also the trend of the curve, and the subset")
    parser.add_argument("--include", action="store_true", help=f"write {INCLUDE.name} of the documentation")
    parser.add_argument("--one", action="store_true", help="audit a single size in this process, and print its figures")
    options = parser.parse_args()
    if options.one:
        ((depth, (queries,)),) = options.sizes
        print(json.dumps(measured(queries, depth, options.systems, options.biases, options.draws)))
        return
    tables: dict[tuple[str, int], list[dict[str, float]]] = {}
    print(f"{'biases':14} {'depth':>6} {'queries':>8} {'rows':>10} {'peak MB':>8} {'CPU s':>8} {'us per row':>10}")
    alone = [[bias] for bias in options.biases] if options.each and len(options.biases) > 1 else []
    for number, (depth, counts) in enumerate(options.sizes):
        for biases in [options.biases, *(alone if number == 0 else [])]:
            name = "all" if biases == BIASES else " ".join(biases)
            rows = tables.setdefault((name, depth), [])
            for queries in counts if biases == options.biases else [min(counts)]:
                arguments = ["--one", "--sizes", f"{depth}:{queries}", "--systems", options.systems, "--draws", options.draws]
                command = [sys.executable, __file__, *map(str, arguments), "--biases", *biases]
                told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                rows.append(row := json.loads(told.splitlines()[-1]))
                print(
                    f"{name:14} {depth:6,} {queries:8,} {row['rows']:10,} {row['peak']:8,.0f} {row['seconds']:8.1f} "
                    f"{1e6 * row['seconds'] / max(row['rows'], 1):10.1f}", flush=True,
                )  # fmt: skip
            if len(rows) > 1:
                print(f"{'':14} exponents: peak {exponent(rows, 'peak'):.2f}, CPU {exponent(rows, 'seconds'):.2f}", flush=True)
    told = survivorship() if options.survivorship else []
    print("\n".join(told))
    if options.include:
        INCLUDE.write_text(included(tables, options, told))


if __name__ == "__main__":
    main()
