"""How often the test of the survivorship bias raises false alarms, and how often it finds what was planted.

For each seed planted collections are made, whose labellers were shown ten passages per question. BM25 and an unbiased planted
ranker rank passages for the answered questions, and the primary test is run. These are the collections:

- null: the place of the first answer shown is independent of the question's difficulty, so every p value at or below 0.05 is a
  false alarm. Judgements are pooled (strength 0.5), so a part of the labels depends on what labellers were shown;
- complete null: the same, with every passage judged;
- typed null: the same as null, but questions of one type are easier (their gain is greater by 1) and were answered earlier (their
  place is halved). There is a trend over all questions, but the test within types must keep its level;
- random order: the ten passages shown include half of a question's answers, in a random order. The more answers there are, the
  earlier the first one comes, and the higher DCG@10 is. The test among questions with the same number of answers shown must
  keep its level;
- planted, at three strengths: for this share of the questions, the more difficult a question is, the later its first answer
  comes.

In the null collections, the primary test must raise false alarms in 3 to 7 % of the seeds (the 99 % binomial interval must
overlap this range).

    python benchmarks/survivorship_calibration.py --out survivorship-calibration

writes p_values.csv (one row per seed, collection, system and test), rates.csv, calibration.png and survivorship_calibration.inc
(the table of the documentation), and prints the rates, and Kendall's tau between planted strength and measured correlation.
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
from calibrating import LEVEL, draw, over_cases, rates, shared_options, shown, verdict, write_frames, write_table

from pyterrier_debias import PlantedCollection, PlantedRanker
from pyterrier_debias.survivorship.audit import answer_grade
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks
from pyterrier_debias.survivorship.formulas.binary_gain import discounted_gain
from pyterrier_debias.survivorship.formulas.nested import trend

NULLS = NULL, COMPLETE, TYPED, RANDOM = "null", "complete null", "typed null", "random order"
PRIMARY, WITHIN, RAW = "given the number of answers shown", "within types", "over all questions"


def planted(strength: float) -> str:
    """The name of a collection in which easy questions were answered early."""
    return f"planted, strength {strength:g}"


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of the tests, in each collection of one seed."""
    seed, strengths, topics, draws = task
    logging.disable(logging.WARNING)
    rows = []
    cases = [(NULL, 0.0, 0.5), (COMPLETE, 0.0, 0.0), *((planted(s), s, 0.5) for s in strengths)]
    for case, strength, pooling in cases:
        collection = PlantedCollection(seed, topics=topics, survivorship=strength, pooling=pooling)
        asked = collection.get_topics().sort_values("qid")
        qrels = collection.get_qrels().query("label > 0")  # passages that are not relevant change no gain
        grade = answer_grade(collection, qrels)
        lists = {case: collection.get_candidates()}
        if case == COMPLETE:
            lists[RANDOM] = random_lists(collection, qrels, grade, seed)
        run = collection.get_runs()["bm25"].merge(asked[["qid", "query"]], on="qid")
        reranked = PlantedRanker(strength=0.0, seed=seed)(collection.text_loader()(run))
        for system, results in (("BM25", run), ("reranker", reranked)):
            values = discounted_gain(results, qrels, asked["qid"].tolist(), min_label=grade)
            for name, shown_lists in lists.items():
                ranks = first_relevant_ranks(shown_lists, qrels, min_label=grade).set_index("qid").loc[asked["qid"]]
                found, answers = ranks["first_relevant_rank"].to_numpy(), ranks["relevant_shown"].to_numpy()
                about = {"seed": seed, "case": name, "system": system}
                rows += tests(about, values, found, answers, asked["type"], draws)
                if name == NULL:
                    easy = (asked["type"] == "NUMERIC").to_numpy()
                    about = {**about, "case": TYPED}
                    early = np.where(easy, np.ceil(found / 2), found)
                    rows += tests(about, values + easy, early, answers, asked["type"], draws)
    return rows


def random_lists(collection: PlantedCollection, qrels: pd.DataFrame, grade: int, seed: int) -> pd.DataFrame:
    """Ten passages of each question in a random order, half of its answers among them."""
    rng = np.random.default_rng(seed)
    relevant = qrels[qrels["label"] >= grade]
    others = collection.get_runs()["bm25"].merge(relevant, on=["qid", "docno"], how="left").query("label.isna()")
    frames = []
    for qid, answers in relevant.groupby("qid"):
        some = rng.permutation(answers["docno"])[: (len(answers) + 1) // 2]
        rest = others.loc[others["qid"] == qid, "docno"].head(10 - len(some))
        docnos = rng.permutation([*some, *rest])
        frames.append(pd.DataFrame({"qid": qid, "docno": docnos, "rank": range(len(docnos))}))
    return pd.concat(frames, ignore_index=True)


def tests(
    about: dict[str, Any], values: np.ndarray, ranks: np.ndarray, answers: np.ndarray, kinds: pd.Series, draws: int
) -> list[dict[str, Any]]:
    """The trend among questions with the same number of answers shown, also within their types, and over all questions."""
    found = []
    both = [f"{count} {kind}" for count, kind in zip(answers, kinds)]
    for test, strata in ((PRIMARY, answers), (WITHIN, both), (RAW, None)):
        own = trend(values, ranks, strata=strata, resamples=draws, seed=about["seed"])
        found.append({**about, "test": test, "rho": own.rho, "p": own.p})
    return found


def taus(found: pd.DataFrame, strengths: list[float]) -> pd.DataFrame:
    """Kendall's tau between planted strength and mean measured correlation (with its sign reversed), by system."""
    from scipy import stats

    rows = []
    for system, own in found[found["test"] == PRIMARY].groupby("system", sort=False):
        names = [NULL, *map(planted, strengths)]
        means = own.groupby("case")["rho"].mean().reindex(names)
        rows.append((system, float(stats.kendalltau([0, *strengths], -means).statistic)))
    return pd.DataFrame(rows, columns=["system", "tau"])


def table_rows(table: pd.DataFrame) -> list[list[str]]:
    """One row per test and system, one column per collection, null collections first."""
    cases = sorted(dict.fromkeys(table["case"]), key=lambda case: NULLS.index(case) if case in NULLS else len(NULLS))
    cells = table.set_index(["test", "system", "case"])
    rows = [["Test, system", *cases]]
    for test, system in dict.fromkeys(zip(table["test"], table["system"])):
        name = f"{test}{' (primary)' if test == PRIMARY else ''}, {system}"
        rows.append([name, *(shown(cells.loc[(test, system, case)]) for case in cases)])
    return rows


def main() -> None:
    shared = shared_options(seeds="collections of each kind", out="survivorship-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.25, 0.5, 1.0], help="strengths of the planted bias")
    parser.add_argument("--draws", type=int, default=999, help="permutations per test")
    options = parser.parse_args()

    tasks = [(seed, options.strengths, options.topics, options.draws) for seed in range(options.seeds)]
    started = time.perf_counter()
    found = over_cases(p_values, tasks, options.workers)
    table = rates(found, ["test", "system", "case"], means=["rho"])
    write_frames(found, table, options.out)
    primary = found[(found["test"] == PRIMARY) & (found["system"] == "reranker")].groupby("case", sort=False)["p"]
    draw(dict(iter(primary)), options.out / "calibration.png", x="p of the primary test, unbiased reranker")
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval]; {options.seeds} seeds, {options.topics} topics; ``python "
        f"benchmarks/survivorship_calibration.py --seeds {options.seeds} --topics {options.topics} --draws {options.draws}``"
    )
    write_table(options.out / "survivorship_calibration.inc", title, table_rows(table))

    print(f"{len(tasks)} seeds of {options.topics} topics in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    print(taus(found, options.strengths).to_string(index=False))
    cells = table.set_index(["test", "system", "case"])
    for case in (NULL, COMPLETE, RANDOM):
        for system in dict.fromkeys(table["system"]):
            null = cells.loc[(PRIMARY, system, case)]
            print(f"false alarms, {case}, {system}: {shown(null)}: {verdict(null)}")
    for strength in options.strengths:
        for system in dict.fromkeys(table["system"]):
            power = cells.loc[(PRIMARY, system, planted(strength))]
            print(f"power, strength {strength:g}, {system}: {shown(power)}")


if __name__ == "__main__":
    main()
