"""How often the pooling room's primary test is wrong, and how often it finds a pool that was one system's.

For each seed a planted collection is made and two rankers of equal quality (they differ by their noise only) rerank its BM25 run.
Judgements are made in several ways, and the room's test compares Judged@10:

- of one ranker with the other's: nothing but chance can tell them apart, however judgements were made, so that every p value
  at or below 0.05 is a false alarm;
- of a ranker with BM25's: a false alarm where judgements are drawn without regard to ranks, the effect that was planted where
  they were pooled from BM25's first documents.

The test must raise between 3 and 7 % of false alarms (the 99 % binomial interval must meet that range) where judgements are drawn
evenly, and must find the shallow pool in more than 90 % of seeds.

    python benchmarks/pooling_calibration.py --out pooling-calibration

writes p_values.csv (one row a seed and world), rates.csv, calibration.png and pooling_calibration.inc (the table of the
documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
import pyterrier as pt

from pyterrier_debias import PlantedCollection, PlantedRanker, plots
from pyterrier_debias.pooling.audit import judged_difference
from pyterrier_debias.statistics import binomial_interval
from pyterrier_debias.text import keyed_hash

LEVEL = 0.05
TWINS, AGAINST_BM25, AGAINST_SHOWN = "ranker, its twin", "ranker, BM25", "ranker, list shown to labellers"
#: Judgements, and whether the null hypothesis holds between a ranker and BM25.
COMPLETE, EVEN, BOTH, GRADED = "every passage judged", "half, at random", "first 5 of both rankers", "relevant ones more often"
NULL = {COMPLETE: True, EVEN: True, BOTH: False, GRADED: False}


def pooled(strength: float) -> str:
    """The name of a world in which BM25's first documents were judged."""
    return f"pooled from BM25, strength {strength:g}"


def drawn(qrels: pd.DataFrame, seed: int, chances: Any) -> pd.DataFrame:
    """Judgements that are kept with a chance each, whatever ranks the passage."""
    ids = zip(qrels["qid"], qrels["docno"])
    return qrels[[keyed_hash(seed, "judged", *pair) < chance * 2**64 for pair, chance in zip(ids, chances)]]


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of the primary test, for each way to judge one world and each comparison."""
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
    # What nobody has among the first ten plays no part.
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
    for world, qrels in judgements.items():
        qids = list(dict.fromkeys(qrels["qid"]))
        for compared, reference in ((TWINS, other), (AGAINST_BM25, bm25), (AGAINST_SHOWN, shown)):
            if compared == AGAINST_SHOWN:
                if world != EVEN:
                    continue
                qrels = pd.concat([qrels, full.merge(shown[["qid", "docno"]])]).drop_duplicates(["qid", "docno"])
            frame, test = judged_difference(one, reference, qrels, qids, seed=seed)
            found = {"n": test.n, "judged": frame["system"].mean(), "difference": test.statistic, "p": test.p}
            rows.append({"world": world, "compared": compared, "seed": seed, **found})
    return rows


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Share of p values at or below the level, with its exact 99 % interval."""
    rows = []
    for (world, compared), group in found.groupby(["world", "compared"], sort=False):
        interval = binomial_interval(int((group["p"] <= LEVEL).sum()), len(group), level=0.99)
        means = group[["judged", "difference"]].mean()
        rows.append((world, compared, len(group), interval.estimate, interval.low, interval.high, *means))
    return pd.DataFrame(rows, columns=["world", "compared", "seeds", "rate", "low", "high", "judged", "difference"])


def draw(found: pd.DataFrame, path: Path) -> None:
    """The share of p values up to x, for each world; the diagonal is what a null hypothesis gives."""
    axes = plots.new_axes()
    with plots.house_style():
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle="--", label="uniform")
        lines = [(EVEN, TWINS), (EVEN, AGAINST_BM25), (BOTH, TWINS)]
        lines += [(world, AGAINST_BM25) for world in found["world"].unique() if world not in NULL]
        for number, (world, compared) in enumerate(lines):
            group = found[(found["world"] == world) & (found["compared"] == compared)]
            axes.ecdf(group["p"], color=plots.colour(number), label=f"{world}: {compared}, {len(group)} seeds")
        axes.legend(fontsize=8)
        plots.label_axes(axes, x="p of the primary test", y="share of seeds with a p up to this")
    plots.save(axes.figure, path)


def write_table(table: pd.DataFrame, topics: int, path: Path) -> None:
    """The rates as a reStructuredText table: one row a way to judge, one column a comparison."""
    cells = table.set_index(["world", "compared"])
    seeds = table["seeds"].max()
    lines = [
        f".. list-table:: Share of seeds with p at or below {LEVEL} [99 % interval], and mean difference of Judged@10; {seeds} "
        f"worlds of {topics} topics; ``python benchmarks/pooling_calibration.py --seeds {seeds}``",
        "   :header-rows: 1",
        "",
        "   * - Judgements",
        "     - judged of the ranker's first 10",
        "     - ranker against its twin",
        "     - ranker against BM25",
    ]
    for world in table["world"].unique():
        lines += [f"   * - {world}", f"     - {cells.loc[(world, TWINS), 'judged']:.1%}"]
        for compared in (TWINS, AGAINST_BM25):
            row = cells.loc[(world, compared)]
            lines.append(f"     - {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]; {row['difference']:+.3f}")
    row = cells.loc[(EVEN, AGAINST_SHOWN)]
    lines += [
        "",
        f"Were the system compared with the list shown to labellers, which is judged by construction, then judgements drawn at "
        f"random would raise the alarm in {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}] of the worlds. That is why the "
        f"reference is a run.",
    ]
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=500, help="worlds")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.5, 0.7, 1.0], help="how shallow BM25's pool is")
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--depth", type=int, default=100, help="candidates of a query")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("pooling-calibration"))
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.depth) for seed in range(options.seeds)]
    started = time.perf_counter()
    with ProcessPoolExecutor(options.workers) as pool:
        worlds = list(pt.tqdm(pool.map(p_values, tasks), total=len(tasks), desc="worlds"))
    found = pd.DataFrame([row for rows in worlds for row in rows])
    table = rates(found)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "p_values.csv", index=False)
    table.to_csv(options.out / "rates.csv", index=False)
    draw(found, options.out / "calibration.png")
    write_table(table, options.topics, options.out / "pooling_calibration.inc")

    seconds = time.perf_counter() - started
    print(f"{len(tasks)} worlds of {options.topics} topics, depth {options.depth}, in {seconds:.0f} s")
    print(table.round(4).to_string(index=False))
    cells = table.set_index(["world", "compared"])
    for world, compared in ((EVEN, TWINS), (EVEN, AGAINST_BM25), (BOTH, TWINS)):
        null = cells.loc[(world, compared)]
        calibrated = null["low"] <= 0.07 and null["high"] >= 0.03
        print(f"false alarms, {world}, {compared}: {null['rate']:.1%} [{null['low']:.1%}, {null['high']:.1%}]:", end=" ")
        print(f"the interval {'meets' if calibrated else 'MISSES'} 3 to 7 %")
    for strength in options.strengths:
        power = cells.loc[(pooled(strength), AGAINST_BM25)]
        print(f"power, {pooled(strength)}: {power['rate']:.1%} [{power['low']:.1%}, {power['high']:.1%}]")


if __name__ == "__main__":
    main()
