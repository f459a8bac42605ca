"""How often the gender room's tests are wrong, and how often they find what was planted.

For each seed planted collections are made, and planted rankers rerank their BM25 candidates for the neutral topics. The worlds:

- null: passages speak of men and women alike and the ranker is blind to it: every p value at or below 0.05 is a false alarm;
- stereotyped: passages' genders follow their topics' stereotypes (gender strength 1 of the collection), the ranker is blind: the
  candidates of a query lean together, which no ranker is to be blamed for: still a null of the primary test;
- lopsided: of the passages that lean to female words half are left out, whichever, and the ranker is blind: candidates lean to
  men as a whole, and the mean ARaB is not 0. A null of the primary test, and one that a test of the plain mean against 0 takes
  for a bias of the ranker;
- biased: the ranker loves female words, at several strengths: what should be found.

The primary test must raise between 3 and 7 % of false alarms (the 99 % binomial interval must meet that range) in the null
worlds.

    python benchmarks/gender_calibration.py --out gender-calibration

writes p_values.csv (one row a seed, world and test), rates.csv, calibration.png and gender_calibration.inc (the table of the
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
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.gender.evaluator import AnnotateGender, ARaBEvaluator
from pyterrier_debias.gender.result import against_zero
from pyterrier_debias.statistics import binomial_interval, paired_t, randomisation_test, wilcoxon
from pyterrier_debias.text import keyed_hash

LEVEL = 0.05
CUTOFF = 10
PRIMARY = "order - random order (primary)"
NULLS = ("null", "stereotyped", "lopsided")


def biased(strength: float) -> str:
    """The name of a world whose ranker loves female words."""
    return f"biased, strength {strength:g}"


def p_values(task: tuple[int, list[float], int, int, int]) -> list[dict[str, Any]]:
    """p of every test of the room, in each world of one seed."""
    seed, strengths, topics, depth, draws = task
    logging.disable(logging.WARNING)
    rows = []
    for planted in (0.0, 1.0):
        collection = PlantedCollection(
            seed, topics=topics, linguistic=0.0, pooling=0.0, survivorship=0.0, gender=planted
        )
        asked = collection.get_topics()
        run = collection.get_runs()["bm25"].merge(asked[["qid", "query"]], on="qid")
        run = collection.text_loader()(run[run["rank"] < depth])
        run = run[run["qid"].isin(set(neutral_qids(asked)))].reset_index(drop=True)
        if planted:
            rows += tests(seed, "stereotyped", run, 0.0, draws)
            continue
        rows += tests(seed, "null", run, 0.0, draws)
        lean = AnnotateGender()(run)["lean"].to_numpy()
        kept = np.array([keyed_hash(seed, docno) % 2 == 0 for docno in run["docno"]])
        lopsided = run[(lean >= 0) | kept].reset_index(drop=True)
        rows += tests(seed, "lopsided", lopsided, 0.0, draws)
        for strength in strengths:
            rows += tests(seed, biased(strength), run, strength, draws)
    return rows


def tests(seed: int, world: str, run: pd.DataFrame, strength: float, draws: int) -> list[dict[str, Any]]:
    """The tests of one ranking."""
    ranking = PlantedRanker("gender", strength=strength, seed=seed)(run)
    evaluator = ARaBEvaluator([CUTOFF])
    before, after = evaluator(run).set_index("qid"), evaluator(ranking).set_index("qid")
    before = before.loc[after.index]
    added = (after["ARaB"] - after["expected"]).to_numpy()
    orders = after["sd"].to_numpy()
    chance = 2 * stats.norm.sf(abs(added.sum()) / np.sqrt((orders**2).sum()))
    zero = np.zeros(len(added))
    found = [
        (PRIMARY, added.mean(), randomisation_test(zero, added, draws=draws, seed=seed).p),
        ("the same by Student's t", added.mean(), paired_t(zero, added).p),
        ("the same by Wilcoxon's signed ranks", added.mean(), wilcoxon(zero, added).p),
        ("the same, all orders taken for alike", added.mean(), chance),
        ("signed mean of ARaB against 0", after["ARaB"].mean(), against_zero(after["ARaB"].to_numpy(), seed=seed).p),
    ]
    for name in ("ARaB", "NFaiRR"):
        change = float((after[name] - before[name]).mean())
        found.append((f"{name}, ranker - candidates", change, paired(before[name], after[name], draws, seed)))
    return [{"seed": seed, "world": world, "test": test, "value": value, "p": p} for test, value, p in found]


def paired(before: pd.Series, after: pd.Series, draws: int, seed: int) -> float:
    """p of a change, query by query."""
    both = pd.concat([before, after], axis=1).dropna().to_numpy()
    return randomisation_test(both[:, 0], both[:, 1], draws=draws, seed=seed).p


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Share of p values at or below the level, with its exact 99 % interval."""
    rows = []
    for keys, group in found.groupby(["test", "world"], sort=False):
        p = group["p"].dropna()
        interval = binomial_interval(int((p <= LEVEL).sum()), len(p), level=0.99)
        rows.append((*keys, len(p), interval.estimate, interval.low, interval.high, group["value"].mean()))
    return pd.DataFrame(rows, columns=["test", "world", "seeds", "rate", "low", "high", "value"])


def draw(found: pd.DataFrame, path: Path) -> None:
    """The share of p values of the primary test up to x, for each world; the diagonal is what a null hypothesis gives."""
    axes = plots.new_axes()
    with plots.house_style():
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle="--", label="uniform")
        for number, (world, group) in enumerate(found[found["test"] == PRIMARY].groupby("world", sort=False)):
            axes.ecdf(group["p"], color=plots.colour(number), label=f"{world}, {len(group)} seeds")
        axes.legend()
        plots.label_axes(axes, x="p of the primary test", y="share of seeds with a p up to this")
    plots.save(axes.figure, path)


def write_table(table: pd.DataFrame, options: argparse.Namespace, path: Path) -> None:
    """The rates as a reStructuredText table: one row a test, one column a world."""
    worlds = [*NULLS, *(biased(strength) for strength in options.strengths)]
    lines = [
        f".. list-table:: Share of seeds with p at or below {LEVEL} [99 % interval]; {options.seeds} seeds, {options.topics} "
        f"topics a collection; ``python benchmarks/gender_calibration.py --seeds {options.seeds} --topics {options.topics} "
        f"--draws {options.draws}``",
        "   :header-rows: 1",
        "",
        "   * - Test",
        *(f"     - {world}" for world in worlds),
    ]
    cells = table.set_index(["test", "world"])
    for test in dict.fromkeys(table["test"]):
        lines.append(f"   * - {test}")
        for world in worlds:
            row = cells.loc[(test, world)]
            lines.append(f"     - {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=500, help="worlds of each kind")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.05, 0.1, 0.25], help="of the biased ranker")
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--depth", type=int, default=50, help="candidates of a query")
    parser.add_argument("--draws", type=int, default=999, help="sign patterns of a test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("gender-calibration"))
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
    write_table(table, options, options.out / "gender_calibration.inc")

    print(f"{len(tasks)} seeds of {options.topics} topics, depth {options.depth}, in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    cells = table.set_index(["test", "world"])
    for world in NULLS:
        null = cells.loc[(PRIMARY, world)]
        calibrated = null["low"] <= 0.07 and null["high"] >= 0.03
        print(f"false alarms, {world}: {null['rate']:.1%} [{null['low']:.1%}, {null['high']:.1%}]:", end=" ")
        print(f"the interval {'meets' if calibrated else 'MISSES'} 3 to 7 %")
    for strength in options.strengths:
        power = cells.loc[(PRIMARY, biased(strength))]
        print(f"power, strength {strength:g}: {power['rate']:.1%} [{power['low']:.1%}, {power['high']:.1%}]")


if __name__ == "__main__":
    main()
