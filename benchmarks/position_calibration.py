"""How often the tests of the position bias raise false alarms, and how often they find what was planted.

For each seed a planted collection is made, its BM25 candidates are ranked by a planted ranker of a given strength, and
PositionSensitivity probes it. At strength 0 the ranker ignores positions: every p value at or below 0.05 is a false alarm. The
primary test must raise false alarms in 3 to 7 % of 500 seeds (the 99 % binomial interval must overlap this range), and must
detect the full strength in more than 90 % of 100 seeds.

    python benchmarks/position_calibration.py --out position-calibration

writes p_values.csv (one row per seed), rates.csv (one row per test and strength), calibration.png and position_calibration.inc
(the table of the documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd
from calibrating import LEVEL, draw, over_cases, rates, shared_options, shown, verdict, write_frames, write_table

from pyterrier_debias import PlantedCollection, PlantedRanker, PositionSensitivity, RotatePassages

PRIMARY = "displacement"
CHANGE = "rotated - original"


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of every test of the bias, on one collection and each strength of the ranker."""
    seed, strengths, topics, depth = task
    collection = PlantedCollection(seed, topics=topics)
    run = collection.get_runs()["bm25"].merge(collection.get_topics()[["qid", "query"]], on="qid")
    candidates = collection.text_loader()(run)
    rows = []
    for strength in strengths:
        probe = PositionSensitivity(
            PlantedRanker("position", strength=strength, seed=seed),
            dataset=collection,
            rotation=RotatePassages(seed=seed),
            measures=["nDCG@10"],
            depth=depth,
            resamples=999,
            seed=seed,
        )
        result = probe.evaluate(candidates, topics=collection.get_topics())
        table = result.table.set_index("comparison")
        index = result.psi.set_index("answers")
        rows.append(
            {
                "strength": strength,
                "seed": seed,
                "n": table.loc[CHANGE, "n"],
                "difference": table.loc[CHANGE, "difference"],
                CHANGE: table.loc[CHANGE, "p"],
                "rotated - original, paired t": table.loc[CHANGE, "p_t"],
                "end - start": table.loc["end - start", "p"],
                PRIMARY: result.displacement_summary()["p"],
                "PSI, answers as found": index["p_blind"].get("as found"),
                "PSI, buckets of queries": index["p"].get("as found"),
                "PSI, answers placed": index["p"].get("placed"),
            }
        )
    return rows


#: The last one is not a test of the ranker: buckets may hold queries of different difficulty.
TESTS = (
    CHANGE, "rotated - original, paired t", "end - start", PRIMARY, "PSI, answers as found", "PSI, answers placed",
    "PSI, buckets of queries",
)  # fmt: skip


def table_rows(table: pd.DataFrame) -> list[list[str]]:
    """One row per test, one column per strength."""
    strengths = sorted(table["strength"].unique())
    cells = table.set_index(["test", "strength"])
    seeds = table.groupby("strength")["seeds"].max()
    rows = [["Test", *(f"strength {s:g} ({seeds[s]} seeds)" for s in strengths)]]
    for test in TESTS:
        rows.append([test + (" (primary)" if test == PRIMARY else ""), *(shown(cells.loc[(test, s)]) for s in strengths)])
    return rows


def main() -> None:
    shared = shared_options(seeds="collections without bias", out="position-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--power-seeds", type=int, default=100, help="collections at each other strength")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.5, 1.0])
    parser.add_argument("--depth", type=int, default=20, help="candidates per query")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed; another one gives fresh collections")
    options = parser.parse_args()

    tasks = []
    for seed in range(max(options.seeds, options.power_seeds)):
        strengths = [0.0] * (seed < options.seeds) + options.strengths * (seed < options.power_seeds)
        tasks.append((options.first_seed + seed, strengths, options.topics, options.depth))
    started = time.perf_counter()
    found = over_cases(p_values, tasks, options.workers, chunksize=5)
    # One row per p value, strengths ascending, so that rates come in the order of the table.
    tests = found.melt(["strength"], TESTS, "test", "p").sort_values("strength", kind="stable")
    table = rates(tests, ["strength", "test"])
    write_frames(found, table, options.out)
    draw({f"strength {s:g}": own[PRIMARY] for s, own in found.groupby("strength")}, options.out / "calibration.png")
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval]; collections of {options.topics} topics; "
        f"``python benchmarks/position_calibration.py``"
    )
    note = (
        "The test in the last row permutes queries over buckets. A small p there shows that buckets differ, but not why: in "
        "these collections queries with late answers also differ in other ways, so it is not a test of the ranker. The audit's p "
        "is that of *answers as found*."
    )
    write_table(options.out / "position_calibration.inc", title, table_rows(table), note)

    seconds = time.perf_counter() - started
    size = f"{len(tasks)} collections of {options.topics} topics"
    print(f"{len(found)} probes of {size}, depth {options.depth}, in {seconds:.0f} s")
    print(table.round(4).to_string(index=False))
    primary = table[table["test"] == PRIMARY].set_index("strength")
    null = primary.loc[0.0]
    print(f"false alarms of the primary test: {shown(null)} over {null['seeds']} seeds: {verdict(null)}")
    if 1.0 in primary.index:
        full = primary.loc[1.0]
        reached = "above" if full["rate"] > 0.9 else "NOT ABOVE"
        print(f"power at full strength: {full['rate']:.1%} over {full['seeds']} seeds: {reached} 90 %")


if __name__ == "__main__":
    main()
