"""How often the linguistic room's tests are wrong, and how often they find what was planted.

For each seed planted collections are made, and planted rankers rerank their BM25 candidates under the original and the rewritten
queries. The worlds:

- null: complex wording goes with nothing and the ranker is blind to it: every p value at or below 0.05 is a false alarm;
- uneven: the same, but effectiveness varies the more the more complex the query is (noise of mean 0 is added to nDCG@10): still a
  null for the slope, and one that a test which takes all residuals for alike gets wrong;
- confounded: needs that are asked in complex words *are* the difficult ones (linguistic strength 1 of the collection), and the
  ranker is blind to wording: a slope over queries is there and is found, and the same needs in other words show that the ranker
  is not its cause;
- biased: the ranker fails on complex wording, at two strengths: what should be found.

The primary test must raise between 3 and 7 % of false alarms (the 99 % binomial interval must meet that range) in the null
worlds, and must find the full strength in more than 90 % of the seeds where complexity is measured as it was planted.

    python benchmarks/linguistic_calibration.py --out linguistic-calibration

writes p_values.csv (one row a seed, world and test), rates.csv, calibration.png and linguistic_calibration.inc (the table of the
documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyterrier as pt
from scipy import stats

from pyterrier_debias import PlantedCollection, PlantedRanker, plots
from pyterrier_debias.collections.planted_rankers import wording_complexity
from pyterrier_debias.linguistic.audit import prepared_topics, room_complexity
from pyterrier_debias.linguistic.slope import design, partial_slope
from pyterrier_debias.linguistic.spread import bin_numbers, inner_edges, permutation_tests
from pyterrier_debias.linguistic.wording import ORIGINAL, WordingSensitivity
from pyterrier_debias.statistics import binomial_interval

LEVEL = 0.05
MEASURE = "nDCG@10"
NULL, UNEVEN, CONFOUNDED = "null", "uneven", "confounded"
PRIMARY = "slope"


def biased(strength: float) -> str:
    """The name of a world whose ranker fails on complex wording."""
    return f"biased, strength {strength:g}"


def p_values(task: tuple[int, list[float], int, int, int]) -> list[dict[str, Any]]:
    """p of every test of the room, in each world of one seed."""
    seed, strengths, topics, depth, draws = task
    logging.disable(logging.WARNING)
    rows = []
    worlds = [(NULL, 0.0, 0.0), (CONFOUNDED, 1.0, 0.0), *((biased(s), 0.0, s) for s in strengths)]
    for world, coupled, strength in worlds:
        collection = PlantedCollection(seed, topics=topics, linguistic=coupled, pooling=0.0, survivorship=0.0)
        asked = collection.get_topics()
        qrels = collection.get_qrels().query("label > 0")  # every passage is judged; what is not relevant changes no nDCG
        run = collection.get_runs()["bm25"].merge(asked[["qid", "query"]], on="qid")
        candidates = collection.text_loader()(run[run["rank"] < depth])
        ranker = PlantedRanker("linguistic", strength=strength, seed=seed)
        probe = WordingSensitivity(ranker, measures=[MEASURE], draws=draws, seed=seed)
        found = probe.evaluate(candidates, qrels, topics=asked)
        planted = asked.assign(complexity=asked["query"].map(wording_complexity))
        values = found.per_query.set_index("qid")[ORIGINAL]
        measured = {"planted": planted, "measured": room_complexity()(asked)}
        for how, complexity in measured.items():
            prepared, controls, _ = prepared_topics(complexity, qrels)
            prepared = prepared.sort_values("qid")
            y, x = values.loc[prepared["qid"]].to_numpy(), prepared["complexity"].to_numpy()
            rows += tests(seed, world, how, y, x, prepared, controls, draws)
            if world == NULL:
                noise = np.random.default_rng(seed).normal(size=len(y)) * stats.rankdata(x) / len(x)
                rows += tests(seed, UNEVEN, how, y + noise, x, prepared, controls, draws)
        about = {"seed": seed, "world": world}
        for row in found.table.to_dict("records"):
            rows.append({**about, "complexity": "", "test": row["comparison"], "value": row["difference"], "p": row["p"]})
        within = found.slopes[MEASURE]
        value = within.per_sd.estimate
        rows.append({**about, "complexity": "words", "test": "slope within needs", "value": value, "p": within.p})
    return rows


def tests(
    seed: int, world: str, how: str, y: np.ndarray, x: np.ndarray, topics: pd.DataFrame, controls: list[str], draws: int
) -> list[dict[str, Any]]:
    """The tests over different queries."""
    z, longer = design(topics, controls), design(topics, [*controls, "length"])
    slope = partial_slope(y, x, z, draws=draws, seed=seed)
    beyond = partial_slope(y, x, longer, draws=draws, seed=seed)
    others = permutation_tests(y, x, bin_numbers(x, inner_edges(x, "tertile")), draws=draws, seed=seed)
    found = [
        (PRIMARY, slope.per_sd.estimate, slope.p),
        ("slope beyond length", beyond.per_sd.estimate, beyond.p),
        ("slope, residuals taken for alike", slope.per_sd.estimate, ordinary_p(y, x, z)),
        ("rank correlation", others.rho, others.rho_p),
        ("Kruskal-Wallis", others.kruskal, others.kruskal_p),
        ("gap", others.gap, others.gap_p),
    ]
    return [{"seed": seed, "world": world, "complexity": how, "test": t, "value": v, "p": p} for t, v, p in found]


def ordinary_p(y: np.ndarray, x: np.ndarray, z: np.ndarray) -> float:
    """p of the slope by ordinary least squares, for comparison."""
    full = np.column_stack([x, np.ones(len(x)), z])
    coefficients, _, rank, _ = np.linalg.lstsq(full, y, rcond=None)
    residuals = y - full @ coefficients
    df = len(y) - rank
    variance = residuals @ residuals / df * np.linalg.pinv(full.T @ full)[0, 0]
    return float(2 * stats.t.sf(abs(coefficients[0]) / np.sqrt(variance), df))


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Share of p values at or below the level, with its exact 99 % interval."""
    rows = []
    for keys, group in found.groupby(["complexity", "test", "world"], sort=False):
        p = group["p"].dropna()
        interval = binomial_interval(int((p <= LEVEL).sum()), len(p), level=0.99)
        rows.append((*keys, len(p), interval.estimate, interval.low, interval.high, group["value"].mean()))
    return pd.DataFrame(rows, columns=["complexity", "test", "world", "seeds", "rate", "low", "high", "value"])


def draw(found: pd.DataFrame, path: Path) -> None:
    """The share of p values of the primary test up to x, for each world; the diagonal is what a null hypothesis gives."""
    axes = plots.new_axes()
    with plots.house_style():
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle="--", label="uniform")
        own = found[(found["test"] == PRIMARY) & (found["complexity"] == "planted")]
        for number, (world, group) in enumerate(own.groupby("world", sort=False)):
            axes.ecdf(group["p"], color=plots.colour(number), label=f"{world}, {len(group)} seeds")
        axes.legend()
        plots.label_axes(axes, x="p of the primary test", y="share of seeds with a p up to this")
    plots.save(axes.figure, path)


def write_table(table: pd.DataFrame, topics: int, draws: int, path: Path) -> None:
    """The rates as a reStructuredText table: one row a test, one column a world."""
    worlds = list(dict.fromkeys(table["world"]))
    worlds.sort(key=lambda world: [NULL, UNEVEN, CONFOUNDED].index(world) if world in (NULL, UNEVEN, CONFOUNDED) else 9)
    seeds = table["seeds"].max()
    lines = [
        f".. list-table:: Share of seeds with p at or below {LEVEL} [99 % interval]; {seeds} seeds, {topics} topics; "
        f"``python benchmarks/linguistic_calibration.py --seeds {seeds} --topics {topics} --draws {draws}``",
        "   :header-rows: 1",
        "",
        "   * - Test",
        *(f"     - {world}" for world in worlds),
    ]
    words = {"planted": ", complexity as planted", "measured": ", complexity as measured", "words": ", complexity of words"}
    cells = table.set_index(["complexity", "test", "world"])
    for how, test in dict.fromkeys(zip(table["complexity"], table["test"])):
        lines.append(f"   * - {test}{words.get(how, '')}" + (" (primary)" if test == PRIMARY else ""))
        for world in worlds:
            if (how, test, world) not in cells.index:
                lines.append("     -")
                continue
            row = cells.loc[(how, test, world)]
            lines.append(f"     - {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=500, help="worlds of each kind")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.5, 1.0], help="of the biased ranker")
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--depth", type=int, default=50, help="candidates of a query")
    parser.add_argument("--draws", type=int, default=999, help="permutations of a test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("linguistic-calibration"))
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.depth, options.draws) for seed in range(options.seeds)]
    started = time.perf_counter()
    with ProcessPoolExecutor(options.workers) as pool:
        worlds = list(pt.tqdm(pool.map(p_values, tasks), total=len(tasks), desc="worlds"))
    found = pd.DataFrame([row for rows in worlds for row in rows])
    table = rates(found)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "p_values.csv", index=False)
    table.to_csv(options.out / "rates.csv", index=False)
    draw(found, options.out / "calibration.png")
    write_table(table, options.topics, options.draws, options.out / "linguistic_calibration.inc")

    print(f"{len(tasks)} seeds of {options.topics} topics, depth {options.depth}, in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    cells = table.set_index(["complexity", "test", "world"])
    for world in (NULL, UNEVEN):
        null = cells.loc[("planted", PRIMARY, world)]
        calibrated = null["low"] <= 0.07 and null["high"] >= 0.03
        print(f"false alarms, {world}: {null['rate']:.1%} [{null['low']:.1%}, {null['high']:.1%}]:", end=" ")
        print(f"the interval {'meets' if calibrated else 'MISSES'} 3 to 7 %")
    for strength in options.strengths:
        power = cells.loc[("planted", PRIMARY, biased(strength))]
        print(f"power, strength {strength:g}: {power['rate']:.1%} [{power['low']:.1%}, {power['high']:.1%}]")


if __name__ == "__main__":
    main()
