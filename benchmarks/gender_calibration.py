"""How often the tests of the gender bias raise false alarms, and how often they find what was planted.

For each seed planted collections are made, and planted rankers rerank their BM25 candidates for the neutral topics. These are the
collections:

- null: passages mention men as often as women, and the ranker ignores gender: every p value at or below 0.05 is a false alarm;
- stereotyped: the genders in passages follow the stereotypes of their topics (gender strength 1 of the collection), and the
  ranker ignores gender. The candidates of a query lean to one side, for which no ranker is to blame: the null hypothesis of the
  primary test still holds;
- lopsided: a random half of the passages that lean to female words is left out, and the ranker ignores gender. Candidates as a
  whole lean to men, and the mean ARaB is not 0. The null hypothesis of the primary test holds, but a test of the plain mean
  against 0 mistakes this for a bias of the ranker;
- rare: a hundred documents per query, one of which has a male word, in random order. The null hypothesis holds, but the values of
  queries are skewed: most orders have that document below the cut-off, and differ from a random order by the same small amount;
- biased: the ranker prefers female words, at several strengths. The test should detect this.

In the null collections, the primary test must raise false alarms in 3 to 7 % of the seeds (the 99 % binomial interval must
overlap this range).

    python benchmarks/gender_calibration.py --out gender-calibration

writes p_values.csv (one row per seed, collection and test), rates.csv, calibration.png and gender_calibration.inc (the table of
the documentation), and prints the rates.
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
from pyterrier_debias.core.statistics import paired_t, randomisation_test, wilcoxon
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.gender.measures.evaluation import against_zero
from pyterrier_debias.gender.measures.evaluator import AnnotateGender, ARaBEvaluator

CUTOFF = 10
PRIMARY = "order - random order (primary)"
NULLS = ("null", "stereotyped", "lopsided", "rare")


def p_values(task: tuple[int, list[float], int, int, int]) -> list[dict[str, Any]]:
    """p of every test of the bias, in each collection of one seed."""
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
        unbiased = PlantedRanker("gender", strength=0.0, seed=seed)
        if planted:
            rows += tests(seed, "stereotyped", run, unbiased(run), draws)
            continue
        rows += tests(seed, "null", run, unbiased(run), draws)
        lean = AnnotateGender()(run)["lean"].to_numpy()
        kept = np.array([keyed_hash(seed, docno) % 2 == 0 for docno in run["docno"]])
        lopsided = run[(lean >= 0) | kept].reset_index(drop=True)
        rows += tests(seed, "lopsided", lopsided, unbiased(lopsided), draws)
        rows += tests(seed, "rare", *(rare_words([seed, order], asked["qid"].nunique()) for order in (1, 2)), draws)
        for strength in strengths:
            rows += tests(seed, biased(strength), run, PlantedRanker("gender", strength=strength, seed=seed)(run), draws)
    return rows


def rare_words(seed: list[int], queries: int, documents: int = 100) -> pd.DataFrame:
    """Results in random order; in each list, one document has a male word."""
    places = np.random.default_rng(seed).integers(documents, size=queries)
    rows = [
        {"qid": str(query), "docno": f"{query}-{rank}", "rank": rank, "text": "he saw rain" if rank == place else "some saw rain"}
        for query, place in enumerate(places) for rank in range(documents)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def tests(seed: int, case: str, run: pd.DataFrame, ranking: pd.DataFrame, draws: int) -> list[dict[str, Any]]:
    """The tests of one ranking of a run's documents."""
    evaluator = ARaBEvaluator([CUTOFF])
    result = evaluator.evaluate(ranking, seed=seed)
    before, after = evaluator(run).set_index("qid"), result.per_query.set_index("qid")
    before, added = before.loc[after.index], after["added"].to_numpy()
    orders = after["sd"].to_numpy()
    chance = 2 * stats.norm.sf(abs(added.sum()) / np.sqrt((orders**2).sum()))
    zero = np.zeros(len(added))
    found = [
        (PRIMARY, added.mean(), result.table.loc[0, "added_p"]),
        ("the same by flipping signs alone", added.mean(), randomisation_test(zero, added, resamples=draws, seed=seed).p),
        ("the same by Student's t", added.mean(), paired_t(zero, added).p),
        ("the same by Wilcoxon's signed ranks", added.mean(), wilcoxon(zero, added).p),
        ("the same, all orders equally likely", added.mean(), chance),
        ("signed mean of ARaB against 0", after["ARaB"].mean(), against_zero(after["ARaB"].to_numpy(), seed=seed).p),
    ]
    for name in ("ARaB", "NFaiRR"):
        change = float((after[name] - before[name]).mean())
        found.append((f"{name}, ranker - candidates", change, paired(before[name], after[name], draws, seed)))
    return [{"seed": seed, "case": case, "test": test, "value": value, "p": p} for test, value, p in found]


def paired(before: pd.Series, after: pd.Series, draws: int, seed: int) -> float:
    """p of a change, query by query."""
    both = pd.concat([before, after], axis=1).dropna().to_numpy()
    return randomisation_test(both[:, 0], both[:, 1], resamples=draws, seed=seed).p


def table_rows(table: pd.DataFrame, cases: list[str]) -> list[list[str]]:
    """One row per test, one column per collection."""
    cells = table.set_index(["test", "case"])
    tests = dict.fromkeys(table["test"])
    return [["Test", *cases], *([test, *(shown(cells.loc[(test, case)]) for case in cases)] for test in tests)]


def main() -> None:
    shared = shared_options(seeds="collections of each kind", out="gender-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.05, 0.1, 0.25], help="strengths of the biased ranker")
    parser.add_argument("--depth", type=int, default=50, help="candidates per query")
    parser.add_argument("--draws", type=int, default=999, help="sign patterns per test")
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.depth, options.draws) for seed in range(options.seeds)]
    started = time.perf_counter()
    found = over_cases(p_values, tasks, options.workers)
    table = rates(found, ["test", "case"], means=["value"])
    write_frames(found, table, options.out)
    primary = found[found["test"] == PRIMARY].groupby("case", sort=False)["p"]
    draw(dict(iter(primary)), options.out / "calibration.png")
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval]; {options.seeds} seeds, {options.topics} topics per "
        f"collection; ``python benchmarks/gender_calibration.py --seeds {options.seeds} --topics {options.topics} "
        f"--draws {options.draws}``"
    )
    cases = [*NULLS, *(biased(strength) for strength in options.strengths)]
    write_table(options.out / "gender_calibration.inc", title, table_rows(table, cases))

    print(f"{len(tasks)} seeds of {options.topics} topics, depth {options.depth}, in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    cells = table.set_index(["test", "case"])
    for case in NULLS:
        null = cells.loc[(PRIMARY, case)]
        print(f"false alarms, {case}: {shown(null)}: {verdict(null)}")
    for strength in options.strengths:
        print(f"power, strength {strength:g}: {shown(cells.loc[(PRIMARY, biased(strength))])}")


if __name__ == "__main__":
    main()
