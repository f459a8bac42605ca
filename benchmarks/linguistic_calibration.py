"""How often the tests of the linguistic bias raise false alarms, and how often they find what was planted.

For each seed planted collections are made, and planted rankers rerank their BM25 candidates under the original and the rewritten
queries. These are the collections:

- null: complexity is unrelated to everything else, and the ranker ignores it: every p value at or below 0.05 is a false alarm;
- uneven: the same, but effectiveness varies more for more complex queries (noise of mean 0 is added to nDCG@10). The slope is
  still 0, but a test that assumes the same variance for all residuals is wrong here;
- confounded: the needs that are expressed in complex words *are* the difficult ones (linguistic strength 1 of the collection),
  and the ranker ignores wording. There is a slope over queries, which tests should find; the same needs in other words show that
  the ranker is not its cause;
- biased: the ranker fails on complex wording, at two strengths. The tests should detect this.

In the null collections, the primary test must raise false alarms in 3 to 7 % of the seeds (the 99 % binomial interval must
overlap this range). With complexity as planted, it must detect the full strength in more than 90 % of the seeds.

    python benchmarks/linguistic_calibration.py --out linguistic-calibration

writes p_values.csv (one row per seed, collection and test), rates.csv, calibration.png and linguistic_calibration.inc (the table
of the documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
from calibrating import LEVEL, biased, draw, over_cases, rates, shared_options, shown, verdict, write_frames, write_table
from scipy import stats

from pyterrier_debias import PlantedCollection, PlantedRanker
from pyterrier_debias.data.planted_rankers import wording_complexity
from pyterrier_debias.linguistic.audit import complexity_stage, of_candidates, prepared_topics, ranker_slope
from pyterrier_debias.linguistic.formulas.slope import design, partial_slope
from pyterrier_debias.linguistic.formulas.spread import bin_numbers, inner_edges, permutation_tests
from pyterrier_debias.linguistic.measures.wording import ORIGINAL, WordingSensitivity

MEASURE = "nDCG@10"
NULLS = NULL, UNEVEN, CONFOUNDED = "null", "uneven", "confounded"
PRIMARY = "slope given the candidates"


def p_values(task: tuple[int, list[float], int, int, int]) -> list[dict[str, Any]]:
    """p of every test of the bias, in each collection of one seed."""
    seed, strengths, topics, depth, draws = task
    logging.disable(logging.WARNING)
    rows = []
    cases = [(NULL, 0.0, 0.0), (CONFOUNDED, 1.0, 0.0), *((biased(s), 0.0, s) for s in strengths)]
    for case, coupled, strength in cases:
        collection = PlantedCollection(seed, topics=topics, linguistic=coupled, pooling=0.0, survivorship=0.0)
        asked = collection.get_topics()
        qrels = collection.get_qrels().query("label > 0")  # every passage is judged; what is not relevant changes no nDCG
        run = collection.get_runs()["bm25"].merge(asked[["qid", "query"]], on="qid")
        candidates = collection.text_loader()(run[run["rank"] < depth])
        ranker = PlantedRanker("linguistic", strength=strength, seed=seed)
        probe = WordingSensitivity(ranker, measures=[MEASURE], resamples=draws, seed=seed)
        found = probe.evaluate(candidates, qrels, topics=asked)
        planted = asked.assign(complexity=asked["query"].map(wording_complexity))
        values = found.per_query.set_index("qid")[ORIGINAL]
        measured = {"planted": planted, "measured": complexity_stage()(asked)}
        for how, complexity in measured.items():
            prepared, controls, _ = prepared_topics(complexity, qrels)
            prepared = prepared.sort_values("qid")
            y, given = values.loc[prepared["qid"]].to_numpy(), of_candidates(candidates, qrels, list(prepared["qid"]))
            x = prepared["complexity"].to_numpy()
            rows += tests(seed, case, how, y, given, prepared, controls, draws)
            if case == NULL:
                noise = np.random.default_rng(seed).normal(size=len(y)) * stats.rankdata(x) / len(x)
                rows += tests(seed, UNEVEN, how, y + noise, given, prepared, controls, draws)
        about = {"seed": seed, "case": case}
        for row in found.table.to_dict("records"):
            rows.append({**about, "complexity": "", "test": row["comparison"], "value": row["difference"], "p": row["p"]})
        within = found.slopes[MEASURE]
        value = within.per_sd.estimate
        rows.append({**about, "complexity": "words", "test": "slope within needs", "value": value, "p": within.p})
    return rows


def tests(
    seed: int, case: str, how: str, y: np.ndarray, given: np.ndarray, topics: pd.DataFrame, controls: list[str], draws: int
) -> list[dict[str, Any]]:
    """The tests over different queries; y is the effectiveness of the ranker, ``given`` what its candidates leave it."""
    x = topics["complexity"].to_numpy()
    z, longer = design(topics, controls), design(topics, [*controls, "length"])
    added = ranker_slope(y, given, topics, controls, resamples=draws, seed=seed)
    slope = partial_slope(y, x, z, resamples=draws, seed=seed)
    beyond = partial_slope(y, x, longer, resamples=draws, seed=seed)
    others = permutation_tests(y, x, bin_numbers(x, inner_edges(x, "tertile")), resamples=draws, seed=seed)
    found = [
        (PRIMARY, added.per_sd.estimate, added.p),
        ("slope", slope.per_sd.estimate, slope.p),
        ("slope beyond length", beyond.per_sd.estimate, beyond.p),
        ("slope, ordinary least squares", slope.per_sd.estimate, ordinary_p(y, x, z)),
        ("rank correlation", others.rho, others.rho_p),
        ("Kruskal-Wallis", others.kruskal, others.kruskal_p),
        ("gap", others.gap, others.gap_p),
    ]
    return [{"seed": seed, "case": case, "complexity": how, "test": t, "value": v, "p": p} for t, v, p in found]


def ordinary_p(y: np.ndarray, x: np.ndarray, z: np.ndarray) -> float:
    """p of the slope by ordinary least squares, for comparison."""
    full = np.column_stack([x, np.ones(len(x)), z])
    coefficients, _, rank, _ = np.linalg.lstsq(full, y, rcond=None)
    residuals = y - full @ coefficients
    df = len(y) - rank
    variance = residuals @ residuals / df * np.linalg.pinv(full.T @ full)[0, 0]
    return float(2 * stats.t.sf(abs(coefficients[0]) / np.sqrt(variance), df))


def table_rows(table: pd.DataFrame) -> list[list[str]]:
    """One row per test, one column per collection, null collections first."""
    cases = sorted(dict.fromkeys(table["case"]), key=lambda case: NULLS.index(case) if case in NULLS else len(NULLS))
    words = {"planted": ", complexity as planted", "measured": ", complexity as measured", "words": ", complexity of words"}
    cells = table.set_index(["complexity", "test", "case"])
    rows = [["Test", *cases]]
    for how, test in dict.fromkeys(zip(table["complexity"], table["test"])):
        keys = [(how, test, case) for case in cases]
        name = f"{test}{words.get(how, '')}" + (" (primary)" if test == PRIMARY else "")
        rows.append([name, *(shown(cells.loc[key]) if key in cells.index else "" for key in keys)])
    return rows


def main() -> None:
    shared = shared_options(seeds="collections of each kind", out="linguistic-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.5, 1.0], help="strengths of the biased ranker")
    parser.add_argument("--depth", type=int, default=50, help="candidates per query")
    parser.add_argument("--draws", type=int, default=999, help="permutations per test")
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.depth, options.draws) for seed in range(options.seeds)]
    started = time.perf_counter()
    found = over_cases(p_values, tasks, options.workers)
    table = rates(found, ["complexity", "test", "case"], means=["value"])
    write_frames(found, table, options.out)
    primary = found[(found["test"] == PRIMARY) & (found["complexity"] == "planted")].groupby("case", sort=False)["p"]
    draw(dict(iter(primary)), options.out / "calibration.png")
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval]; {options.seeds} seeds, {options.topics} topics; ``python "
        f"benchmarks/linguistic_calibration.py --seeds {options.seeds} --topics {options.topics} --draws {options.draws}``"
    )
    write_table(options.out / "linguistic_calibration.inc", title, table_rows(table))

    print(f"{len(tasks)} seeds of {options.topics} topics, depth {options.depth}, in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    cells = table.set_index(["complexity", "test", "case"])
    for case in (NULL, UNEVEN):
        null = cells.loc[("planted", PRIMARY, case)]
        print(f"false alarms, {case}: {shown(null)}: {verdict(null)}")
    for strength in options.strengths:
        print(f"power, strength {strength:g}: {shown(cells.loc[('planted', PRIMARY, biased(strength))])}")


if __name__ == "__main__":
    main()
