"""Are the audit's five primary tests calibrated, alone and together?

The collections are planted ones, with a planted ranker over their frozen BM25 candidates. In the null collections no bias is
planted; in the others one bias is, at several strengths. All five primary tests are made in every collection, by the functions
that the biases use. The program measures:

- false alarms: how often a test's p is at or below 0.05 in null collections. The 99 % binomial interval must overlap 3 to 7 %;
- power: how often a test finds its own bias. It must be above 95 % at the middle strength;
- cross-talk: how often a test fires on another's bias. The 99 % interval must reach down to 5 %;
- order: Kendall's tau between planted strength and mean measured figure, at least 0.9;
- coverage: how often the stated 95 % interval contains 0 in null collections. The 99 % interval must overlap 93 to 97 %;
- together: in how many null collections any of the five tests rejects after Holm's correction, as an audit corrects its primary
  tests; and in how many a whole audit shows any primary finding, and any further one, after correction in two steps
  (``--audits``; slow). The share should be at most 5 %: the 99 % interval must reach no higher than 8 %.

A second kind of null collection has *several answers*. For each query, between one and all of the passages that answer it count
as answers, and labellers were shown half of these, among other passages, in a random order. Queries with more answers are then
answered earlier, and their rankings differ in quality, whatever the ranker. Tests must keep their level there, too.

Null collections are small, because tests fail there first; collections with a bias are as large as a usual set of test queries.

There are two differences from an audit. In collections without a planted pool, the pooling test sees each judgement with a
probability of one half: if every passage were judged, it would have nothing to compare (p would be 1 by construction). The other
tests see all judgements. Complexity is the planted complexity (``planted.wording_complexity``), because how well indices measure
it is a different question (``linguistic_calibration.py``).

    python benchmarks/calibration.py --out calibration

takes an hour to an hour and a half on two cores, and writes p_values.csv (one row per collection and test), rates.csv,
coverage.csv, calibration.png, calibration.inc, calibration_power.inc and calibration_coverage.inc (the tables of the
documentation), and prints them. Finished collections are kept in the folder: a run that was stopped resumes, and a run with more
collections adds to it.

    python benchmarks/calibration.py --real FOLDER --nulls 2000 --out calibration

makes null cases from real collections instead, with ``real_nulls.py``, and writes them to the folder ``calibration/real``.

    python benchmarks/calibration.py --primaries 600 --first-seed 300000 --out calibration

makes only the primary tests of whole audits instead. Their p values are those that ``--audits`` would give, but they take seconds
per collection, not minutes. The program writes primaries.csv, and prints how often any of these tests is a finding after
correction.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyterrier as pt
import real_nulls
from calibrating import LEVEL, finished, rates, share, shown, write_table
from survivorship_calibration import random_lists

from pyterrier_debias import PlantedCollection, PlantedRanker, RotatePassages, audit
from pyterrier_debias.core import plots
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.statistics import correct, exchange_test, inverted_interval
from pyterrier_debias.core.text import keyed_hash, keyed_integer
from pyterrier_debias.data import planted, planted_rankers
from pyterrier_debias.data.planted_rankers import BIASES, wording_complexity
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.gender.measures.evaluator import ARaBEvaluator
from pyterrier_debias.linguistic.audit import COMPLEXITY, of_candidates, prepared_topics, ranker_slope
from pyterrier_debias.linguistic.formulas.slope import Slope
from pyterrier_debias.pooling.audit import judged_difference
from pyterrier_debias.position.measures.sensitivity_result import displacements
from pyterrier_debias.survivorship.audit import answer_grade
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks, list_strata
from pyterrier_debias.survivorship.formulas.binary_gain import discounted_gain
from pyterrier_debias.survivorship.formulas.nested import trend

MEASURE = "nDCG@10"
NOTHING, SEVERAL = NULLS = "nothing", "nothing, several answers"
#: How strongly each bias is planted: weak, middle, strong. For pooling, N ** (1 - strength) of N passages are pooled per query:
#: 49, 22 and 10 of 2,400. With fewer than ten, the first ten of the pool and of the system would be equally unjudged.
STRENGTHS = {
    "position": (0.25, 0.5, 1.0),
    "survivorship": (0.25, 0.5, 1.0),
    "gender": (0.25, 0.5, 1.0),
    "linguistic": (0.25, 0.5, 1.0),
    "pooling": (0.5, 0.6, 0.7),
}
LEVELS = ("weak", "middle", "strong")
#: Seeds between two writings of the file.
LOT = 50


def written_once(write: Callable[..., Any]) -> Callable[..., Any]:
    """``_Writer.passage`` that remembers the last collection's passages; collections with other judgements have the same."""
    cases: dict[tuple[Any, ...], dict[str, Any]] = {}

    def passage(writer: Any, plan: Any) -> Any:
        case = (writer.seed, writer.position, writer.gender)
        if case not in cases:
            cases.clear()
        kept, about = cases.setdefault(case, {}), repr(plan)
        if about not in kept:
            kept[about] = write(writer, plan)
        return kept[about]

    return passage


# The collections of a seed share their passages: these are written, searched and split into words only once.
_search = lru_cache(maxsize=1)(lambda texts, queries, search=planted.bm25: list(search(texts, queries)))
planted._Writer.passage = written_once(planted._Writer.passage)
planted.bm25 = lambda texts, queries: _search(tuple(texts), tuple(queries))
planted_rankers._first_positions = lru_cache(maxsize=20_000)(planted_rankers._first_positions)
planted_rankers._lean = lru_cache(maxsize=20_000)(planted_rankers._lean)


@dataclass(frozen=True)
class Setting:
    """The sizes that all collections share."""

    topics: int
    depth: int
    deep: int
    rotations: int
    draws: int


@dataclass(frozen=True)
class Ground:
    """What the collections of a seed have in common: BM25's results for all topics, and rotations of them."""

    seed: int
    setting: Setting

    def collection(self, survivorship: float = 0.0, pooling: float = 0.0) -> PlantedCollection:
        """Position: half of the answers come early; otherwise a ranker's preference for early answers would have no effect."""
        judged = {"survivorship": survivorship, "pooling": pooling}
        return PlantedCollection(self.seed, topics=self.setting.topics, gender=0.0, linguistic=0.0, **judged)

    @cached_property
    def unbiased(self) -> PlantedCollection:
        """All topics survived, and all passages are judged."""
        return self.collection()

    @cached_property
    def deep(self) -> pd.DataFrame:
        """BM25's results with texts, deeper than the pools."""
        run = self.unbiased.get_runs()["bm25"].merge(self.unbiased.get_topics()[["qid", "query"]], on="qid")
        return ranked(self.unbiased.text_loader()(run[run["rank"] < self.setting.deep]))

    @cached_property
    def half_judged(self) -> pd.DataFrame:
        """Judgements of these results, each kept with a probability of one half; no test here needs other passages."""
        return self.some_judged(self.unbiased.get_qrels())

    def some_judged(self, qrels: pd.DataFrame) -> pd.DataFrame:
        """Given judgements of these results, each kept with a probability of one half."""
        qrels = qrels.merge(self.deep[["qid", "docno"]], on=["qid", "docno"])
        pairs = zip(qrels["qid"].tolist(), qrels["docno"].tolist())
        return qrels[[keyed_hash(self.seed, "judged", *pair) < 2**63 for pair in pairs]]

    @cached_property
    def several(self) -> pd.DataFrame:
        """All judgements, but only some of a query's answers (one to all) are kept; the others count as not relevant."""
        qrels = self.unbiased.get_qrels()
        answers = qrels[qrels["label"] == qrels["label"].max()].copy()
        pairs = zip(answers["qid"].tolist(), answers["docno"].tolist())
        answers["chance"] = [keyed_hash(self.seed, "answer", *pair) for pair in pairs]
        answers = answers.sort_values("chance")
        sizes = answers.groupby("qid").size().items()
        kept = answers["qid"].map({qid: 1 + keyed_integer(size, self.seed, "answers", qid) for qid, size in sizes})
        dropped = answers.index[answers.groupby("qid").cumcount() >= kept]
        return qrels.assign(label=qrels["label"].where(~qrels.index.isin(dropped), 0))

    @cached_property
    def bm25(self) -> pd.DataFrame:
        """The candidates: the first of these results."""
        return self.deep[self.deep["rank"] < self.setting.depth].reset_index(drop=True)

    @cached_property
    def rotated(self) -> list[pd.DataFrame]:
        """The candidates with rotated texts, once for each draw."""
        frames = []
        for draw in range(self.setting.rotations):
            turn = RotatePassages(seed=self.seed).rotator(draw)
            rows = zip(self.bm25["text"].tolist(), self.bm25["docno"].tolist(), self.bm25["qid"].tolist())
            frames.append(self.bm25.assign(text=[turn(text, docno, qid)[0] for text, docno, qid in rows]))
        return frames


@dataclass(frozen=True)
class Arms:
    """A ranker's orders of a ground's lists: the candidates, their rotations, and the deeper list."""

    ground: Ground
    bias: str
    strength: float

    @cached_property
    def ranker(self) -> PlantedRanker:
        """Biased in one way, or unbiased."""
        return PlantedRanker(self.bias, strength=self.strength, seed=self.ground.seed)

    @cached_property
    def results(self) -> pd.DataFrame:
        """The candidates, reranked."""
        return self.ranker(self.ground.bm25)

    @cached_property
    def rotated(self) -> list[pd.DataFrame]:
        """The rotated candidates, reranked."""
        return [self.ranker(frame) for frame in self.ground.rotated]

    @cached_property
    def deep(self) -> pd.DataFrame:
        """The deeper list, reranked."""
        return self.ranker(self.ground.deep)


# The collections of a seed are examined one after the other, and within a seed those with the same ranker.
ground, arms = lru_cache(maxsize=1)(Ground), lru_cache(maxsize=1)(Arms)


@dataclass(frozen=True)
class Case:
    """A collection and a ranker in which one bias or no bias is planted.

    Attributes:
        seed: Seed of the collection.
        bias: Name of a bias, or of a kind of null collection.
        strength: Strength of the bias, from 0 to 1.
        setting: The sizes.
    """

    seed: int
    bias: str
    strength: float
    setting: Setting

    @cached_property
    def ground(self) -> Ground:
        """The part that the collection shares with the other collections of its seed."""
        return ground(self.seed, self.setting)

    @cached_property
    def arms(self) -> Arms:
        """The ranker's orders of the lists of the ground."""
        own = self.bias in BIASES
        return arms(self.ground, self.bias if own else "position", self.strength if own else 0.0)

    @cached_property
    def collection(self) -> PlantedCollection:
        """Topics and judgements of this collection."""
        judged = {bias: self.strength for bias in ("survivorship", "pooling") if bias == self.bias}
        return self.ground.collection(**judged) if judged else self.ground.unbiased

    @cached_property
    def topics(self) -> pd.DataFrame:
        """The topics, sorted because permutations depend on the order."""
        return self.collection.get_topics().sort_values("qid", ignore_index=True)

    @cached_property
    def qrels(self) -> pd.DataFrame:
        """Judgements."""
        return self.ground.several if self.bias == SEVERAL else self.collection.get_qrels()

    @cached_property
    def relevant(self) -> pd.DataFrame:
        """Judgements above 0."""
        return self.qrels[self.qrels["label"] > 0]

    @cached_property
    def shown(self) -> pd.DataFrame:
        """The lists that labellers were shown."""
        if self.bias != SEVERAL:
            return self.collection.get_candidates()
        return random_lists(self.collection, self.relevant, answer_grade(self.collection, self.relevant), self.seed)

    @cached_property
    def results(self) -> pd.DataFrame:
        """The candidates of this collection's topics, reranked."""
        return self.asked(self.arms.results)

    def asked(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The rows of this collection's topics; some topics of the ground may not have survived."""
        return frame[frame["qid"].isin(self.topics["qid"])]

    def quality(self, results: pd.DataFrame) -> np.ndarray:
        """nDCG@10 of each topic, in the topics' order."""
        head = self.asked(results[results["rank"] < 10])
        return per_query(head, self.relevant, [MEASURE], self.topics["qid"].tolist())[MEASURE].to_numpy()


def position(case: Case) -> tuple[float, float, float, float]:
    """Ranks that relevant passages move down when they alone are rotated."""
    rotated = [case.asked(arm).assign(arm="rotated", draw=draw) for draw, arm in enumerate(case.arms.rotated)]
    arms = pd.concat([case.results.assign(arm="original", draw=0), *rotated])
    moved = displacements(arms, case.relevant, case.topics["qid"].tolist())
    after = moved.pivot_table(index="qid", columns="draw", values="after")
    table = np.column_stack([moved.groupby("qid")["before"].mean(), after])
    interval = inverted_interval(table, resamples=case.setting.draws, seed=case.seed)
    p = exchange_test(table, resamples=case.setting.draws, seed=case.seed).p
    return interval.estimate, interval.low, interval.high, p


def survivorship(case: Case) -> tuple[float, float, float, float]:
    """Quality and the rank at which labellers first met the answer."""
    grade = answer_grade(case.collection, case.relevant)
    ranks = first_relevant_ranks(case.shown, case.relevant, min_label=grade).set_index("qid")
    ranks = ranks.reindex(case.topics["qid"])
    first = ranks["first_relevant_rank"].fillna(np.inf).to_numpy()
    lists = list_strata(ranks["relevant_shown"].fillna(0), ranks["shown"].fillna(0))
    values = discounted_gain(case.results, case.relevant, case.topics["qid"].tolist(), min_label=grade)
    found = trend(values, first, strata=lists, resamples=case.setting.draws, seed=case.seed)
    return found.rho, found.low, found.high, found.p


def gender(case: Case) -> tuple[float, float, float, float]:
    """ARaB of the ranker's order against that of a random order of the same candidates."""
    neutral = set(neutral_qids(case.topics))
    found = ARaBEvaluator([10]).evaluate(case.results[case.results["qid"].isin(neutral)], seed=case.seed).table.iloc[0]
    return found["added"], found["added_low"], found["added_high"], found["added_p"]


def linguistic(case: Case) -> tuple[float, float, float, float]:
    """The slope of quality on the complexity of a query's wording as it was planted."""
    slope = slope_given(case, case.topics.assign(complexity=case.topics["query"].map(wording_complexity)))
    return slope.per_sd.estimate, slope.per_sd.low, slope.per_sd.high, slope.p


def slope_given(case: Case, topics: pd.DataFrame) -> Slope:
    """The slope, given the controls and the candidates' quality; complexity is measured if the topics do not have it."""
    prepared, controls, _ = prepared_topics(topics, case.qrels)
    prepared = prepared.dropna(subset=[COMPLEXITY]).sort_values("qid")
    after = pd.Series(case.quality(case.results), index=topics["qid"]).loc[prepared["qid"]].to_numpy()
    before = of_candidates(case.ground.bm25, case.qrels, list(prepared["qid"]))
    return ranker_slope(after, before, prepared, controls, resamples=case.setting.draws, seed=case.seed)


def pooling(case: Case) -> tuple[float, float, float, float]:
    """Judged@10 of the ranker and of BM25, over a list deeper than the pool: pooled documents are judged in any order."""
    if case.bias == "pooling":
        qrels = case.qrels
    else:
        qrels = case.asked(case.ground.some_judged(case.qrels) if case.bias == SEVERAL else case.ground.half_judged)
    lists = case.asked(case.arms.deep), case.asked(case.ground.deep)
    frame, test = judged_difference(*lists, qrels, case.topics["qid"].tolist(), seed=case.seed)
    interval = inverted_interval(frame["difference"].to_numpy(), seed=case.seed)
    return interval.estimate, interval.low, interval.high, test.p


TESTS: dict[str, Callable[[Case], tuple[float, float, float, float]]] = {
    "position": position, "survivorship": survivorship, "gender": gender, "linguistic": linguistic, "pooling": pooling,
}  # fmt: skip


def examined(cases: list[Case]) -> list[dict[str, Any]]:
    """All five tests in each of the collections of a seed; collections with the unbiased ranker come first."""
    return [row for case in sorted(cases, key=lambda case: case.bias in BIASES) for row in examined_case(case)]


def examined_case(case: Case) -> list[dict[str, Any]]:
    """All five tests in one collection."""
    logging.disable(logging.WARNING)
    about = {"seed": case.seed, "bias": case.bias, "strength": case.strength}
    rows = []
    for test, function in TESTS.items():
        value, low, high, p = function(case)
        rows.append({**about, "test": test, "value": value, "low": low, "high": high, "p": p})
    return rows


def audited(cases: list[Case]) -> list[dict[str, Any]]:
    """A whole audit of one null collection: its tests, and the smallest corrected p of primary and of further ones."""
    logging.disable(logging.WARNING)
    (case,) = cases
    candidates = pt.Transformer.from_df(case.ground.bm25.drop(columns=["text", "query"]))
    system = candidates >> case.collection.text_loader() >> case.arms.ranker
    found = audit({"ranker": system}, case.collection, depth=case.setting.depth, seed=case.seed).findings
    tested = found.dropna(subset=["p"])
    smallest = tested.groupby("primary")["p_corrected"].min()
    both = {"smallest": smallest.get(True), "further": smallest.get(False)}
    return [{"seed": case.seed, "tests": len(tested), "primaries": int(tested["primary"].sum()), **both}]


def primary_tests(cases: list[Case]) -> list[dict[str, Any]]:
    """The primary tests that an audit of one null collection makes, without the rest of the audit: p of each, and the smallest.

    Every passage is judged, so pooling has no p.
    """
    logging.disable(logging.WARNING)
    (case,) = cases
    case = replace(case, setting=replace(case.setting, draws=9_999))
    p = {"position": position(case)[3], "survivorship": survivorship(case)[3], "gender": gender(case)[3]}
    p["linguistic"] = slope_given(case, case.topics).p
    return [{"seed": case.seed, **p, "smallest": float(correct(np.array(list(p.values())), "holm").min())}]


def done(
    path: Path, cases: list[Case], function: Callable[[list[Case]], list[dict[str, Any]]], workers: int
) -> pd.DataFrame:
    """Rows of all collections. Those that a file already contains are not computed again; the file grows with finished seeds."""
    keys = ["seed", "bias", "strength"] if function is examined else ["seed"]

    def lots(there: pd.DataFrame) -> Iterator[list[Case]]:
        known = {tuple(row[key] for key in keys) for row in there.to_dict("records")}
        left: dict[int, list[Case]] = {}
        for case in cases:
            if tuple(getattr(case, key) for key in keys) not in known:
                left.setdefault(case.seed, []).append(case)
        yield from left.values()

    return finished(path, lots, function, workers, every=LOT)


def in_order(found: pd.DataFrame) -> pd.DataFrame:
    """Rows sorted by the planted bias, in the order of the tests, and by its strength."""
    biases = [*NULLS, *TESTS]
    return found.sort_values(["bias", "strength"], key=lambda c: c.map(biases.index) if c.name == "bias" else c, kind="stable")


def coverage(found: pd.DataFrame) -> pd.DataFrame:
    """How often the stated interval contains 0 in null collections, with the exact 99 % interval of that share."""
    rows = []
    nulls = found[found["bias"].isin(NULLS)].dropna(subset=["low"])
    for (bias, test), group in nulls.groupby(["bias", "test"], sort=False):
        holds = (group["low"] <= 0) & (group["high"] >= 0)
        rows.append((test if bias == NOTHING else f"{test}, several answers", len(group), *share(holds).values()))
    return pd.DataFrame(rows, columns=["test", "collections", "coverage", "low", "high"])


def order(table: pd.DataFrame) -> pd.DataFrame:
    """Kendall's tau between planted strength (0 among them) and the mean figure, test by test.

    Every bias but one lowers its figure: correlation, slope and judged share fall, and ARaB falls because the planted ranker
    prefers female words. Rotated passages move to higher rank numbers.
    """
    from scipy import stats

    rows = []
    for test in TESTS:
        own = table[(table["test"] == test) & table["bias"].isin([test, NOTHING])]
        if len(own) < 2:
            continue
        falls = -own["value"] if test != "position" else own["value"]
        rows.append((test, float(stats.kendalltau(own["strength"], falls).statistic)))
    return pd.DataFrame(rows, columns=["test", "tau"])


def together(found: pd.DataFrame, whole: pd.DataFrame | None) -> dict[str, dict[str, float]]:
    """The joint results of the tests in collections without bias, after correction: shares of collections by name."""
    shares = {}
    for bias, own in found[found["bias"].isin(NULLS)].groupby("bias", sort=False):
        nulls = own.pivot_table(index="seed", columns="test", values="p")
        smallest = pd.Series([np.min(correct(p[np.isfinite(p)], "holm")) for p in nulls.to_numpy()])
        what = f"any of {nulls.shape[1]} tests after Holm's correction, {len(nulls)} collections"
        shares[what if bias == NOTHING else f"{what} with several answers"] = share(smallest <= LEVEL)
    if whole is not None and len(whole):
        for column, what in (("smallest", "primary"), ("further", "further")):
            made = f"{whole['primaries'].median():.0f} primary tests of {whole['tests'].median():.0f}"
            shares[f"any {what} finding, {len(whole)} audits, {made}"] = share(whole[column] <= LEVEL)
    return shares


def verdicts(table: pd.DataFrame, covered: pd.DataFrame, taus: pd.DataFrame, shares: dict[str, dict[str, float]]) -> list[str]:
    """One line for each goal: whether it is reached or missed."""

    def line(what: str, row: Any, name: str, reached: bool) -> str:
        return f"{what}: {row[name]:.1%} [{row['low']:.1%}, {row['high']:.1%}]: {'reached' if reached else 'MISSED'}"

    lines = []
    for row in table.to_dict("records"):
        if row["bias"] in NULLS:
            what = f"false alarms, {row['bias']}, {row['test']}"
            lines.append(line(what, row, "rate", row["low"] <= 0.07 and row["high"] >= 0.03))
        elif row["bias"] != row["test"]:
            if row["low"] > LEVEL:
                what = f"cross-talk, {row['test']} where {row['bias']} is planted at {row['strength']:g}"
                lines.append(line(what, row, "rate", False))
        elif row["strength"] == STRENGTHS[row["test"]][LEVELS.index("middle")]:
            lines.append(line(f"power at {row['strength']:g}, {row['test']}", row, "rate", row["rate"] > 0.95))
    for row in covered.to_dict("records"):
        lines.append(line(f"coverage, {row['test']}", row, "coverage", row["low"] <= 0.97 and row["high"] >= 0.93))
    lines += [f"tau, {r['test']}: {r['tau']:.2f}: {'reached' if r['tau'] >= 0.9 else 'MISSED'}" for r in taus.to_dict("records")]
    return lines + [line(what, row, "rate", row["high"] <= 0.08) for what, row in shares.items()]


def draw(table: pd.DataFrame, path: Path) -> None:
    """Draw, on the left, every test on each bias planted at the middle strength; on the right, each test over its own bias."""
    axes = plots.new_axes(11.0, 4.6)
    figure = axes.figure
    axes.remove()
    with plots.style():
        matrix, curves = figure.subplots(1, 2, width_ratios=[1.15, 1])
        draw_matrix(table, matrix)
        curves.axhline(LEVEL, color=plots.GREY, linestyle="--", label="5 %")
        for number, test in enumerate(TESTS):
            own = table[(table["test"] == test) & table["bias"].isin([test, NOTHING])].sort_values("strength")
            x = own["strength"] + (number - 2) * 0.008
            error = np.clip([own["rate"] - own["low"], own["high"] - own["rate"]], 0, None)
            curves.errorbar(x, own["rate"], yerr=error, fmt="o-", color=plots.colour(number), label=test)
        curves.legend()
        share = "share of collections with p at or below .05"
        plots.label_axes(curves, x="strength of the test's own bias; 0: nothing is planted", y=share)
    plots.save(figure, path)


def draw_matrix(table: pd.DataFrame, axes: Any) -> None:
    """Draw shares as numbers; the larger the share, the darker the cell."""
    nulls = {bias: 0.0 for bias in NULLS if (table["bias"] == bias).any()}
    middle = {**nulls, **{bias: strengths[LEVELS.index("middle")] for bias, strengths in STRENGTHS.items()}}
    own = table[table["strength"] == table["bias"].map(middle)].pivot_table(index="bias", columns="test", values="rate")
    own = own.reindex(index=list(middle), columns=list(TESTS))
    axes.imshow(own, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axes.grid(False)
    for row, rates_of in enumerate(own.to_numpy()):
        for column, rate in enumerate(rates_of):
            if np.isfinite(rate):
                axes.text(column, row, f"{rate:.1%}", ha="center", va="center", color="white" if rate > 0.5 else "black")
    axes.set_xticks(range(len(TESTS)), list(TESTS), rotation=20)
    axes.set_yticks(range(len(middle)), [f"{bias}, {strength:g}" if strength else bias for bias, strength in middle.items()])
    plots.label_axes(axes, x="test: share of collections with p at or below .05", y="planted, at this strength")


def topics_for(power: float, topics: int, aim: float = 0.95) -> float:
    """How many topics a test needs, given its measured power: the effect in standard errors grows with their square root.

    The approximation treats the test as one of a normal mean at the 5 % level.
    """
    from scipy import stats

    quantile = stats.norm.isf(LEVEL / 2)
    return topics * float((quantile + stats.norm.ppf(aim)) / (quantile + stats.norm.ppf(power))) ** 2


def needed(row: dict[str, Any], topics: int) -> str:
    """The number of needed topics with its interval, as text; no estimate is given below the number that was tried."""
    if row["low"] > 0.95:
        return f"fewer than {topics}"
    most, least = (topics_for(row[end], topics) for end in ("low", "high"))
    return f"{topics_for(row['rate'], topics):.0f} [{least:.0f}, {most:.0f}]"


def write_tables(
    table: pd.DataFrame,
    covered: pd.DataFrame,
    shares: dict[str, dict[str, float]],
    command: str,
    sizes: str,
    topics: int,
    out: Path,
) -> None:
    """Write three tables: every test on every kind of collection, with the joint results; power alone; coverage."""
    rows = [["Planted", "strength", "collections", *TESTS]]
    for (bias, strength), own in table.groupby(["bias", "strength"], sort=False):
        cells = own.set_index("test").to_dict("index")
        rows.append([bias, f"{strength:g}", str(own["seeds"].max()), *(shown(cells[test]) for test in TESTS)])
    title = f"Share of collections with p at or below {LEVEL} [99 % interval]; {sizes}; ``{command}``"
    note = "; ".join(f"{what}: {shown(row)}" for what, row in shares.items())
    note = note and f"Null collections in which at least one test rejects: {note}."
    write_table(out / "calibration.inc", title, rows, note)
    own = table[table["bias"] == table["test"]]
    middle = LEVELS.index("middle")
    rows = [["Test", *(f"{level}" for level in LEVELS), "topics for 95 % power, middle"]]
    for test, found in own.groupby("test", sort=False):
        cells = {row["strength"]: row for row in found.to_dict("records")}
        powers = [f"{s:g}: {shown(cells[s])}" if s in cells else "" for s in STRENGTHS[test]]
        at_middle = cells.get(STRENGTHS[test][middle])
        rows.append([test, *powers, needed(at_middle, topics) if at_middle else ""])
    title = f"Share of collections in which a test finds its own bias [99 % interval], by strength; {sizes}; ``{command}``"
    write_table(out / "calibration_power.inc", title, rows)
    rows = [["Test", "collections", "coverage"]]
    rows += [[r["test"], str(r["collections"]), shown({**r, "rate": r["coverage"]})] for r in covered.to_dict("records")]
    title = "Share of null collections whose 95 % interval contains 0 [99 % interval]"
    write_table(out / "calibration_coverage.inc", title, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--collections", type=int, default=2_000, help="null collections, without a bias")
    parser.add_argument("--several-collections", type=int, default=0, help="null collections with several answers")
    parser.add_argument("--power-collections", type=int, default=300, help="collections for each bias and strength")
    parser.add_argument("--levels", nargs="*", choices=LEVELS, default=LEVELS, help="strengths to plant; see STRENGTHS")
    parser.add_argument("--first-seed", type=int, default=0, help="first seed; another one gives new collections and null cases")
    parser.add_argument("--topics", type=int, default=60, help="topics of a null collection")
    parser.add_argument("--power-topics", type=int, default=120, help="topics of a collection with a bias")
    parser.add_argument("--depth", type=int, default=20, help="candidates per query")
    parser.add_argument("--deep", type=int, default=50, help="candidates per query in the pooling test")
    parser.add_argument("--rotations", type=int, default=3, help="rotations of each passage")
    parser.add_argument("--draws", type=int, default=999, help="permutations per test, resamples per interval")
    parser.add_argument("--audits", type=int, default=0, help="null collections that are audited as a whole (minutes each)")
    parser.add_argument("--primaries", type=int, default=0, help="null collections for only the primary tests of audits")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("calibration"))
    parser.add_argument("--real", type=Path, help="folder of real collections; make null cases from these instead")
    parser.add_argument("--nulls", type=int, default=2_000, help="null cases of each kind on each real collection")
    options = parser.parse_args()
    if options.real is not None:
        seeds = range(options.first_seed, options.first_seed + options.nulls)
        told = real_nulls.examine(
            options.real, real_nulls.COLLECTIONS, seeds, options.out / "real", queries=100, draws=options.draws,
            workers=options.workers,
        )  # fmt: skip
        print("\n".join(told))
        return

    options.out.mkdir(parents=True, exist_ok=True)
    sizes = (options.depth, options.deep, options.rotations, options.draws)
    first = options.first_seed
    nulls = [Case(first + seed, NOTHING, 0.0, Setting(options.topics, *sizes)) for seed in range(options.collections)]
    setting = Setting(options.power_topics, *sizes)
    cases = list(nulls)
    if options.primaries:
        made = [Case(first + seed, NOTHING, 0.0, Setting(options.topics, *sizes)) for seed in range(options.primaries)]
        found = done(options.out / "primaries.csv", made, primary_tests, options.workers)
        print(f"any primary finding, {len(found)} collections: {shown(share(found['smallest'] <= LEVEL))}")
        return
    several = range(first, first + options.several_collections)
    cases += [Case(seed, SEVERAL, 0.0, Setting(options.topics, *sizes)) for seed in several]
    for bias, level in itertools.product(TESTS, options.levels):
        strength = STRENGTHS[bias][LEVELS.index(level)]
        cases += [Case(first + seed, bias, strength, setting) for seed in range(options.power_collections)]
    started = time.perf_counter()
    found = done(options.out / "p_values.csv", cases, examined, options.workers)
    whole = None
    if options.audits:
        whole = done(options.out / "audits.csv", nulls[: options.audits], audited, options.workers)
    table, covered = rates(in_order(found), ["bias", "strength", "test"], means=["value"]), coverage(found)
    taus = order(table)
    table.to_csv(options.out / "rates.csv", index=False)
    covered.to_csv(options.out / "coverage.csv", index=False)
    draw(table, options.out / "calibration.png")
    numbers = f"--collections {options.collections} --power-collections {options.power_collections}"
    for name in ("several_collections", "topics", "power_topics", "first_seed", "audits"):
        if getattr(options, name) != parser.get_default(name):
            numbers += f" --{name.replace('_', '-')} {getattr(options, name)}"
    command = f"python benchmarks/calibration.py {numbers}"
    sizes = f"{options.topics} topics of null collections, {options.power_topics} of others"
    shares = together(found, whole)
    write_tables(table, covered, shares, command, sizes, options.power_topics, options.out)
    print(f"{sizes}; {len(cases)} collections, {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    print("\n".join(verdicts(table, covered, taus, shares)))


if __name__ == "__main__":
    main()
