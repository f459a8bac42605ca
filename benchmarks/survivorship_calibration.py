"""How often the survivorship room's test is wrong, and how often it finds what was planted.

For each seed planted collections are made whose labellers were shown ten passages a question. BM25 and an unbiased planted ranker
rank for the answered questions, and the room's primary test is carried out. The worlds:

- null: the place of the first answer shown is independent of the question's difficulty: every p value at or below 0.05 is a false
  alarm. Judgements are pooled (strength 0.5), so that what labellers were shown decides part of the labels;
- complete null: the same with every passage judged;
- typed null: the same as null, but questions of one type are easier (a reciprocal rank of 1 is put in for them) and were answered
  earlier (their place is halved): a trend over all questions is there, and the one within types must stay silent;
- planted, at three strengths: the share of questions whose first answer comes as late as they are difficult.

The primary test must raise between 3 and 7 % of false alarms in the null worlds: the 99 % binomial interval must meet that range.

    python benchmarks/survivorship_calibration.py --out survivorship-calibration

writes p_values.csv (one row a seed, world, system and test), rates.csv, calibration.png and survivorship_calibration.inc (the
table of the documentation), and prints the rates, and Kendall's tau between planted strength and measured correlation.
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

from pyterrier_debias import PlantedCollection, PlantedRanker, plots
from pyterrier_debias.evaluation import per_query
from pyterrier_debias.frames import ranked
from pyterrier_debias.statistics import binomial_interval
from pyterrier_debias.survivorship.audit import answer_grade, measure_name
from pyterrier_debias.survivorship.nested import trend
from pyterrier_debias.survivorship.ranks import first_relevant_ranks

LEVEL = 0.05
NULL, COMPLETE, TYPED = "null", "complete null", "typed null"
PRIMARY, WITHIN = "rank correlation", "within types"


def planted(strength: float) -> str:
    """The name of a world in which easy questions were answered early."""
    return f"planted, strength {strength:g}"


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of the room's tests, in each world of one seed."""
    seed, strengths, topics, draws = task
    logging.disable(logging.WARNING)
    rows = []
    worlds = [(NULL, 0.0, 0.5), (COMPLETE, 0.0, 0.0), *((planted(s), s, 0.5) for s in strengths)]
    for world, strength, pooling in worlds:
        collection = PlantedCollection(seed, topics=topics, survivorship=strength, pooling=pooling)
        asked = collection.get_topics().sort_values("qid")
        qrels = collection.get_qrels().query("label > 0")  # what is not relevant changes no reciprocal rank
        grade = answer_grade(collection, qrels)
        ranks = first_relevant_ranks(collection.get_candidates(), qrels, min_rel=grade).set_index("qid")["first_relevant_rank"]
        found = ranks.loc[asked["qid"]].to_numpy()
        run = collection.get_runs()["bm25"].merge(asked[["qid", "query"]], on="qid")
        reranked = PlantedRanker(strength=0.0, seed=seed)(collection.text_loader()(run))
        for system, results in (("BM25", run), ("reranker", reranked)):
            name = measure_name(grade)
            top = ranked(results)
            values = per_query(top[top["rank"] < 10], qrels, [name], asked["qid"].tolist())[name].to_numpy()
            about = {"seed": seed, "world": world, "system": system}
            rows += tests(about, values, found, asked["type"], draws)
            if world == NULL:
                easy = (asked["type"] == "NUMERIC").to_numpy()
                about = {**about, "world": TYPED}
                rows += tests(about, np.where(easy, 1.0, values), np.where(easy, np.ceil(found / 2), found), asked["type"], draws)
    return rows


def tests(about: dict[str, Any], values: np.ndarray, ranks: np.ndarray, kinds: pd.Series, draws: int) -> list[dict[str, Any]]:
    """The trend over all questions, and within their types."""
    found = []
    for test, strata in ((PRIMARY, None), (WITHIN, kinds)):
        own = trend(values, ranks, strata=strata, draws=draws, seed=about["seed"])
        found.append({**about, "test": test, "rho": own.rho, "p": own.p})
    return found


def rates(found: pd.DataFrame) -> pd.DataFrame:
    """Share of p values at or below the level, with its exact 99 % interval."""
    rows = []
    for keys, group in found.groupby(["test", "system", "world"], sort=False):
        p = group["p"].dropna()
        interval = binomial_interval(int((p <= LEVEL).sum()), len(p), level=0.99)
        rows.append((*keys, len(p), interval.estimate, interval.low, interval.high, group["rho"].mean()))
    return pd.DataFrame(rows, columns=["test", "system", "world", "seeds", "rate", "low", "high", "rho"])


def taus(found: pd.DataFrame, strengths: list[float]) -> pd.DataFrame:
    """Kendall's tau between planted strength and mean measured correlation (with its sign turned), by system."""
    from scipy import stats

    rows = []
    for system, own in found[found["test"] == PRIMARY].groupby("system", sort=False):
        names = [NULL, *map(planted, strengths)]
        means = own.groupby("world")["rho"].mean().reindex(names)
        rows.append((system, float(stats.kendalltau([0, *strengths], -means).statistic)))
    return pd.DataFrame(rows, columns=["system", "tau"])


def draw(found: pd.DataFrame, path: Path) -> None:
    """The share of p values of the primary test up to x, for each world; the diagonal is what a null hypothesis gives."""
    axes = plots.new_axes()
    with plots.house_style():
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle="--", label="uniform")
        own = found[(found["test"] == PRIMARY) & (found["system"] == "reranker")]
        for number, (world, group) in enumerate(own.groupby("world", sort=False)):
            axes.ecdf(group["p"].dropna(), color=plots.colour(number), label=f"{world}, {len(group)} seeds")
        axes.legend()
        plots.label_axes(axes, x="p of the primary test, unbiased reranker", y="share of seeds with a p up to this")
    plots.save(axes.figure, path)


def write_table(table: pd.DataFrame, topics: int, draws: int, path: Path) -> None:
    """The rates as a reStructuredText table: one row a test and system, one column a world."""
    worlds = list(dict.fromkeys(table["world"]))
    worlds.sort(key=lambda world: [NULL, COMPLETE, TYPED].index(world) if world in (NULL, COMPLETE, TYPED) else 9)
    seeds = table["seeds"].max()
    lines = [
        f".. list-table:: Share of seeds with p at or below {LEVEL} [99 % interval]; {seeds} seeds, {topics} topics; "
        f"``python benchmarks/survivorship_calibration.py --seeds {seeds} --topics {topics} --draws {draws}``",
        "   :header-rows: 1",
        "",
        "   * - Test, system",
        *(f"     - {world}" for world in worlds),
    ]
    cells = table.set_index(["test", "system", "world"])
    for test, system in dict.fromkeys(zip(table["test"], table["system"])):
        lines.append(f"   * - {test}{' (primary)' if test == PRIMARY else ''}, {system}")
        for world in worlds:
            row = cells.loc[(test, system, world)]
            lines.append(f"     - {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]")
    path.write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=500, help="worlds of each kind")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.25, 0.5, 1.0], help="of the planted bias")
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--draws", type=int, default=999, help="permutations of a test")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("survivorship-calibration"))
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.draws) for seed in range(options.seeds)]
    started = time.perf_counter()
    if options.workers > 1:
        with ProcessPoolExecutor(options.workers) as pool:
            worlds = list(pt.tqdm(pool.map(p_values, tasks), total=len(tasks), desc="worlds"))
    else:
        worlds = [p_values(task) for task in pt.tqdm(tasks, desc="worlds")]
    found = pd.DataFrame([row for rows in worlds for row in rows])
    table = rates(found)
    options.out.mkdir(parents=True, exist_ok=True)
    found.to_csv(options.out / "p_values.csv", index=False)
    table.to_csv(options.out / "rates.csv", index=False)
    draw(found, options.out / "calibration.png")
    write_table(table, options.topics, options.draws, options.out / "survivorship_calibration.inc")

    print(f"{len(tasks)} seeds of {options.topics} topics in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    print(taus(found, options.strengths).to_string(index=False))
    cells = table.set_index(["test", "system", "world"])
    for world in (NULL, COMPLETE):
        for system in dict.fromkeys(table["system"]):
            null = cells.loc[(PRIMARY, system, world)]
            calibrated = null["low"] <= 0.07 and null["high"] >= 0.03
            print(f"false alarms, {world}, {system}: {null['rate']:.1%} [{null['low']:.1%}, {null['high']:.1%}]:", end=" ")
            print(f"the interval {'meets' if calibrated else 'MISSES'} 3 to 7 %")
    for strength in options.strengths:
        for system in dict.fromkeys(table["system"]):
            power = cells.loc[(PRIMARY, system, planted(strength))]
            print(f"power, strength {strength:g}, {system}: {power['rate']:.1%} [{power['low']:.1%}, {power['high']:.1%}]")


if __name__ == "__main__":
    main()
