"""How often the primary test of the pooling bias raises false alarms, and how often it finds a pool of one system.

For each seed a planted collection is made and two rankers of equal quality (they differ by their noise only) rerank its BM25 run.
Judgements are made in several ways, and the test compares the Judged@10

- of one ranker with that of the other: only chance can distinguish them, however judgements were made, so every p value at or
  below 0.05 is a false alarm;
- of a ranker with that of BM25: a small p value is a false alarm if judgements were drawn without regard to ranks, and the
  planted effect if they were pooled from BM25's first documents.

If judgements are drawn without regard to ranks, the test must raise false alarms in 3 to 7 % of the seeds (the 99 % binomial
interval must overlap this range). It must detect the shallow pool in more than 90 % of the seeds.

    python benchmarks/pooling_calibration.py --out pooling-calibration

writes p_values.csv (one row per seed and collection), rates.csv, calibration.png and pooling_calibration.inc (the table of the
documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
from calibrating import LEVEL, draw, over_cases, rates, shared_options, shown, verdict, write_frames, write_table

from pyterrier_debias import PlantedCollection, PlantedRanker
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.pooling.audit import judged_difference

TWINS, AGAINST_BM25, AGAINST_SHOWN = "ranker, its twin", "ranker, BM25", "ranker, list shown to labellers"
#: Judgements, and whether the null hypothesis holds between a ranker and BM25.
COMPLETE, EVEN, BOTH = "every passage judged", "half, at random", "first 5 of both rankers"
GRADED = "relevant passages more often"
NULL = {COMPLETE: True, EVEN: True, BOTH: False, GRADED: False}


def pooled(strength: float) -> str:
    """The name of a collection in which BM25's first documents were judged."""
    return f"pooled from BM25, strength {strength:g}"


def drawn(qrels: pd.DataFrame, seed: int, chances: Any) -> pd.DataFrame:
    """Judgements that are each kept with a given probability, regardless of which ranker returns the passage."""
    ids = zip(qrels["qid"], qrels["docno"])
    return qrels[[keyed_hash(seed, "judged", *pair) < chance * 2**64 for pair, chance in zip(ids, chances)]]


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of the primary test, for each way to judge one collection and each comparison."""
    seed, strengths, topics, depth = task
    collection = PlantedCollection(seed, topics=topics, pooling=0.0, survivorship=0.0)
    asked = collection.get_topics()
    bm25 = collection.get_runs()["bm25"]
    bm25 = bm25[bm25["rank"] < depth].merge(asked[["qid", "query"]], on="qid")
    texts = collection.text_loader()(bm25)
    one, other = (PlantedRanker(strength=0.0, seed=2 * seed + i)(texts) for i in (0, 1))
    shown = collection.get_candidates()
    top = pd.concat([one[one["rank"] < 5], other[other["rank"] < 5]])[["qid", "docno"]].drop_duplicates()
    pools = {s: bm25.loc[bm25["rank"] < len(collection.get_corpus()) ** (1 - s), ["qid", "docno"]] for s in strengths}
    # Only the first ten passages of each ranking matter.
    bm25, one, other = (run[run["rank"] < 10] for run in (bm25, one, other))
    seen = pd.concat([bm25, one, other, shown])[["qid", "docno"]].drop_duplicates()
    full = collection.get_qrels("full").merge(seen, on=["qid", "docno"])
    judgements = {
        COMPLETE: full,
        EVEN: drawn(full, seed, [0.5] * len(full)),
        BOTH: full.merge(top, on=["qid", "docno"]),
        GRADED: drawn(full, seed, full["label"].map({0: 0.3, 1: 0.6, 2: 0.9})),
    }
    for strength, pool in pools.items():
        judgements[pooled(strength)] = full.merge(pool, on=["qid", "docno"])
    rows = []
    for case, qrels in judgements.items():
        qids = list(dict.fromkeys(qrels["qid"]))
        for compared, reference in ((TWINS, other), (AGAINST_BM25, bm25), (AGAINST_SHOWN, shown)):
            if compared == AGAINST_SHOWN:
                if case != EVEN:
                    continue
                qrels = pd.concat([qrels, full.merge(shown[["qid", "docno"]])]).drop_duplicates(["qid", "docno"])
            frame, test = judged_difference(one, reference, qrels, qids, seed=seed)
            found = {"n": test.n, "judged": frame["system"].mean(), "difference": test.statistic, "p": test.p}
            rows.append({"case": case, "compared": compared, "seed": seed, **found})
    return rows


def curves(found: pd.DataFrame) -> dict[str, pd.Series]:
    """The curves of the picture: p of the null collections, and of the pooled ones."""
    lines = [(EVEN, TWINS), (EVEN, AGAINST_BM25), (BOTH, TWINS)]
    lines += [(case, AGAINST_BM25) for case in found["case"].unique() if case not in NULL]
    by = found.set_index(["case", "compared"])["p"]
    return {f"{case}: {compared}": by.loc[[(case, compared)]] for case, compared in lines}


def table_rows(table: pd.DataFrame) -> list[list[str]]:
    """One row per way to judge, one column per comparison."""
    cells = table.set_index(["case", "compared"])
    rows = [["Judgements", "judged of the ranker's first 10", "ranker against its twin", "ranker against BM25"]]
    for case in table["case"].unique():
        twins, bm25 = cells.loc[(case, TWINS)], cells.loc[(case, AGAINST_BM25)]
        rows.append([case, f"{twins['judged']:.1%}", *(f"{shown(row)}; {row['difference']:+.3f}" for row in (twins, bm25))])
    return rows


def main() -> None:
    shared = shared_options(seeds="collections", out="pooling-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.5, 0.7, 1.0], help="how shallow BM25's pool is")
    parser.add_argument("--depth", type=int, default=100, help="candidates per query")
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.depth) for seed in range(options.seeds)]
    started = time.perf_counter()
    found = over_cases(p_values, tasks, options.workers)
    table = rates(found, ["case", "compared"], means=["judged", "difference"])
    write_frames(found, table, options.out)
    draw(curves(found), options.out / "calibration.png", fontsize=8)
    cells = table.set_index(["case", "compared"])
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval], and mean difference of ``Judged@10``; "
        f"{options.seeds} collections of {options.topics} topics; "
        f"``python benchmarks/pooling_calibration.py --seeds {options.seeds}``"
    )
    note = (
        f"If the system were compared with the list shown to labellers, which is judged by construction, the test would "
        f"raise a false alarm in {shown(cells.loc[(EVEN, AGAINST_SHOWN)])} of the collections with judgements drawn at random. "
        f"Therefore the reference is a run."
    )
    write_table(options.out / "pooling_calibration.inc", title, table_rows(table), note)

    seconds = time.perf_counter() - started
    print(f"{len(tasks)} collections of {options.topics} topics, depth {options.depth}, in {seconds:.0f} s")
    print(table.round(4).to_string(index=False))
    for case, compared in ((EVEN, TWINS), (EVEN, AGAINST_BM25), (BOTH, TWINS)):
        null = cells.loc[(case, compared)]
        print(f"false alarms, {case}, {compared}: {shown(null)}: {verdict(null)}")
    for strength in options.strengths:
        print(f"power, {pooled(strength)}: {shown(cells.loc[(pooled(strength), AGAINST_BM25)])}")


if __name__ == "__main__":
    main()
