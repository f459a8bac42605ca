"""Results of ARaBEvaluator: means over queries with intervals, tests, comparisons, and a plot."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import stage_name
from pyterrier_debias.core.statistics import (
    ALPHA,
    Interval,
    TestResult,
    bootstrap_interval,
    correct,
    inverted_interval,
    randomisation_test,
)
from pyterrier_debias.core.text import keyed_hash, mixed
from pyterrier_debias.gender.formulas.arab import shifted_arab

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)


def against_zero(values: np.ndarray, *, clusters: np.ndarray | None = None, seed: int = 0) -> TestResult:
    """Test whether the mean of signed values is zero, by flipping each query's sign at random.

    The null hypothesis is that each query's value is equally likely with the opposite sign. It holds for a system that leans in
    single queries, but to either side by chance.

    Args:
        values: Shape [n], no NaN.
        clusters: Which queries flip together; see :func:`~pyterrier_debias.core.statistics.randomisation_test`.
        seed: Seed of the signs.

    Returns:
        The mean and p.

    Example:
        >>> against_zero(np.array([1.0, 2.0, 1.0, 3.0, 2.0, 1.0])).p
        0.03125
    """
    values = np.asarray(values, dtype=np.float64)
    return randomisation_test(np.zeros(len(values)), values, clusters=clusters, seed=seed)


def cluster_of(topics: pd.DataFrame | None, column: str, stage: Any) -> dict[str, str]:
    """The cluster of each topic; topics of a cluster flip together.

    Args:
        topics: ``qid`` and the column.
        column: The name of the column.
        stage: The calling stage, named in the message.

    Returns:
        Mapping from each query to its cluster, as text.

    Raises:
        InputError: If there are no topics, they lack the column, or a topic has no cluster.

    Example:
        >>> cluster_of(pd.DataFrame({"qid": ["1", "2"], "article": ["sea", "sea"]}), "article", "mine")
        {'1': 'sea', '2': 'sea'}
    """
    if topics is None or column not in topics.columns:
        raise InputError(f"{stage_name(stage)}: clusters={column!r} must be a column of the topics; give topics that have it")
    lacking = topics.loc[topics[column].isna(), "qid"]
    if len(lacking):
        raise InputError(f"{stage_name(stage)}: topic {lacking.iloc[0]!r} has no {column!r}; every topic needs a cluster")
    return dict(zip(topics["qid"].astype(str), topics[column].astype(str)))


def mean_floor(sd: np.ndarray) -> float:
    """The null value: the expected absolute mean over queries if the order of documents is random.

    Each query's ARaB then has the standard deviation of :func:`~pyterrier_debias.gender.formulas.arab.random_order_arab`. The
    mean of n queries is approximately normal, so its absolute value has the mean sqrt(2 / pi) times its standard deviation.

    Args:
        sd: The queries' standard deviations, shape [n].

    Returns:
        The null value; NaN for no queries.

    Example:
        >>> round(mean_floor(np.array([1.0, 1.0, 1.0, 1.0])), 4)
        0.3989
    """
    sd = np.asarray(sd, dtype=np.float64)
    return float(np.sqrt(2 / np.pi) * np.sqrt((sd**2).sum()) / len(sd)) if len(sd) else float("nan")


#: The column for ARaB with tied documents in random order.
TIES_DRAWN = "ARaB, ties drawn"
#: How many random orders of all lists are drawn for a test.
_ORDERS = 10_000
#: At least how many orders of each list these are drawn from.
_OF_EACH = 2_000
#: How many permutations of the documents of a cluster.
_OF_CLUSTER = 32


class RandomOrders:
    """The sum over queries of what a random order adds to ARaB, drawn many times, for a test of what an order added.

    The test that flips signs (:func:`against_zero`) assumes that a query leans as strongly to either side by chance. This does
    not hold where listed words are rare and of one group: of a hundred documents, one that leans by 1 adds 0.28 to ARaB@10 at
    the first rank, and subtracts 0.01 below the tenth. For forty queries with such lists in random order, that test rejects in
    22 % of cases (``benchmarks/gender_calibration.py``). This test compares with random orders, however skewed their values are.
    The orders of a list are random permutations with all of their cyclic shifts
    (:func:`~pyterrier_debias.gender.formulas.arab.shifted_arab`), so that each document is equally often at each rank.

    It does not replace the other test: a system whose order leans to one side in some queries and to the other in the rest
    differs from random orders, too. What an order adds is significant only if both tests reject.

    Args:
        qids: The queries that count; None for all.
        clusters: Mapping from each query to its cluster. In all lists of a cluster, documents have the same random order. None if
            each list has its own.
        seed: Seed of the orders. Those of a query depend on this and its qid or cluster, not on the other queries.

    Example:
        >>> orders = RandomOrders()
        >>> for qid in "123456":
        ...     orders.add(qid, ["a", "b", "c"], np.array([0.0, 0.0, 1.0]), {1: 1})
        >>> orders.p(1, 6 * (0 - 1 / 3)) > 0.1  # in 9 % of random orders the third document is never first
        True

    When not to use it: alone, to test whether a system leans to one side; see above.
    """

    def __init__(self, qids: set[str] | None = None, clusters: Mapping[str, str] | None = None, seed: int = 0):
        self._qids, self._clusters, self._seed = qids, clusters, seed
        self._sums: dict[int, np.ndarray] = {}
        self._sizes: dict[tuple[str, int], float] = {}
        self._added: set[str] = set()

    def add(self, qid: str, docnos: Sequence[str], lean: np.ndarray, cutoffs: Mapping[int, int]) -> None:
        """Add a query, unless it does not count or was added before.

        Args:
            qid: The query.
            docnos: Its documents by rank.
            lean: Their leans, shape [n].
            cutoffs: Mapping from each cut-off to t, which is lower where the system returned fewer documents.
        """
        if qid in self._added or (self._qids is not None and qid not in self._qids):
            return
        self._added.add(qid)
        if np.ptp(lean) == 0:  # all orders are alike
            for cutoff in cutoffs:
                self._sums.setdefault(cutoff, np.zeros(_ORDERS))
                self._sizes[qid, cutoff] = abs(float(lean[0]))
            return
        shuffled, drawn = self._shuffled(qid, docnos, lean)
        for cutoff, t in cutoffs.items():
            values = shifted_arab(shuffled, t).ravel()
            self._sizes[qid, cutoff] = float(np.abs(values).mean())
            self._sums[cutoff] = self._sums.get(cutoff, 0.0) + (values - values.mean())[drawn]

    def _shuffled(self, qid: str, docnos: Sequence[str], lean: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Permutations of a list, and which of their shifts are drawn."""
        n = len(lean)
        if self._clusters is None:
            generator = np.random.default_rng(keyed_hash(self._seed, "order", qid))
            shuffled = generator.permuted(np.tile(lean, (-(-_OF_EACH // n), 1)), axis=1)
            return shuffled, generator.integers(0, shuffled.size, _ORDERS)
        cluster = self._clusters[qid]
        names = np.array([keyed_hash(self._seed, "order", docno) for docno in docnos], dtype=np.uint64)
        keys = [keyed_hash(self._seed, "order", cluster, str(number)) for number in range(_OF_CLUSTER)]
        generator = np.random.default_rng(keyed_hash(self._seed, "order", cluster))
        permutation, shift = generator.integers(0, _OF_CLUSTER, _ORDERS), generator.random(_ORDERS)
        # The same shift in a list that has a document more or less.
        return np.stack([lean[mixed(names, key).argsort()] for key in keys]), permutation * n + (shift * n).astype(np.int64)

    def size(self, qid: str, cutoff: int) -> float:
        """The mean absolute ARaB of a query over random orders.

        Args:
            qid: A query that was added.
            cutoff: The cut-off.

        Returns:
            The mean.
        """
        return self._sizes[qid, cutoff]

    def p(self, cutoff: int, total: float) -> float:
        """How often random orders add at least as much, with equal tails.

        Args:
            cutoff: t.
            total: What the order added, summed over the queries.

        Returns:
            Twice the smaller of both one-sided p values, (1 + number at least as extreme) / (1 + number of draws); at most 1.
        """
        sums = self._sums[cutoff]
        same = 1e-9 * np.abs(sums).max()  # sums in a different order differ in their last bits
        extreme = min((sums >= total - same).sum(), (sums <= total + same).sum())
        return float(min(2 * (1 + extreme) / (1 + _ORDERS), 1.0))

    def widened(self, cutoff: int, interval: Interval) -> Interval:
        """An interval of the mean that contains 0 if this test does not reject.

        Args:
            cutoff: t.
            interval: The interval of the test that flips signs.

        Returns:
            The interval; if it excludes 0 and this test does not reject, it is extended by the means that this test does not
            reject, which contain 0.
        """
        if self.p(cutoff, interval.estimate * interval.n) <= ALPHA or not (interval.low > 0 or interval.high < 0):
            return interval
        sums = np.sort(self._sums[cutoff])
        beyond = int(ALPHA / 2 * (_ORDERS + 1))  # a sum that so many draws reach is not rejected
        low, high = (interval.estimate - end / interval.n for end in (sums[-beyond], sums[beyond - 1]))
        return replace(interval, low=min(interval.low, low, 0.0), high=max(interval.high, high, 0.0))


@dataclass(frozen=True, eq=False)
class BiasResult:
    """The result of :meth:`ARaBEvaluator.evaluate`: how far each system leans.

    Attributes:
        per_query: The evaluator's output, sorted by qid, preceded by ``system``, with ``added`` (``ARaB`` less ``expected``),
            ``expected_abs`` (the mean of absolute values of ARaB over all orders), and ``cluster`` if queries flip by cluster.
        table: One row per system and cut-off: ``system``, ``cutoff``, ``n`` (queries), ``missing`` (queries without results); the
            mean ``ARaB`` with ``low``, ``high`` and ``p`` (:func:`against_zero`; the 95 % interval is this test inverted, NaN
            if fewer than six queries are not 0); ``magnitude``: the mean of absolute values; ``first``, ``second``, ``neither``:
            how many queries lean to which side; ``expected``: the mean over all orders of the same documents; ``added``,
            ``added_low``, ``added_high``, ``added_p``: what the order adds to it, with the larger p of :func:`against_zero` and
            of random orders (:class:`RandomOrders`), and an interval that contains 0 if this p is above .05; ``floor``: the
            value of ``added`` to expect by chance alone (:func:`mean_floor`); ``NFaiRR``, ``NFaiRR_low``, ``NFaiRR_high`` (95 %
            bootstrap, of clusters if queries flip by cluster), ``NFaiRR_n`` over the queries where it is defined.
        convention: The options under which this was computed, those of FaiRR and NFaiRR at the end. If it contains ``background
            each system's own results``, do not compare the NFaiRR of systems whose results are different documents.
        seed: Seed of intervals and tests.

    When not to use it: to compare systems by their intervals, because the systems share queries; :meth:`compare` pairs them.
    """

    per_query: pd.DataFrame
    table: pd.DataFrame
    convention: str
    seed: int = 0

    @classmethod
    def of(
        cls, found: Mapping[str, pd.DataFrame], orders: Mapping[str, RandomOrders], asked: set[str], convention: str, *, seed: int
    ) -> BiasResult:
        """Make the result from the values of the systems.

        Args:
            found: Mapping from each system to the evaluator's output, sorted by qid; resampling draws by position. If it has a
                column :data:`TIES_DRAWN`, ``added`` is computed from that instead of ``ARaB``.
            orders: Random orders of the same lists, of the queries that count.
            asked: The queries that count.
            convention: The options under which it was computed.
            seed: Seed of everything random.

        Returns:
            The result.

        Raises:
            InputError: If a system has no results for any query that counts.
        """
        found = {name: frame[frame["qid"].isin(asked)] for name, frame in found.items()}
        ordered = {name: frame.get(TIES_DRAWN, frame["ARaB"]) for name, frame in found.items()}
        found = {
            name: frame.assign(
                added=ordered[name] - frame["expected"],
                expected_abs=[orders[name].size(qid, cutoff) for qid, cutoff in zip(frame["qid"], frame["cutoff"])],
            )
            for name, frame in found.items()
        }
        empty = [name for name, frame in found.items() if len(frame) == 0]
        if empty:
            raise InputError(
                f"ARaBEvaluator: system {empty[0]!r} has no results for any query that counts; check qids, topics, query_filter"
            )
        rows = []
        for name, frame in found.items():
            for cutoff, part in frame.groupby("cutoff", sort=True):
                rows.append(_row(name, int(cutoff), part, len(asked) - len(part), orders[name], seed))
        per_query = pd.concat([frame.assign(system=name) for name, frame in found.items()], ignore_index=True)
        per_query = per_query[["system", *(column for column in per_query.columns if column != "system")]]
        missing = {row["system"]: row["missing"] for row in rows if row["missing"]}
        if missing:
            logger.warning("ARaBEvaluator: queries without results are left out: %s", missing)
        return cls(per_query, pd.DataFrame(rows), convention, seed)

    def compare(self, measure: str = "ARaB", correction: str = "holm") -> pd.DataFrame:
        """Compare each pair of systems, paired by query.

        NFaiRR compares a system with the best order of its background. Without a background, this is each system's own results,
        and a difference may be due to the documents alone: give ``ARaBEvaluator`` one background for all systems, such as
        :func:`~pyterrier_debias.gender.measures.evaluator.union_background`.

        Args:
            measure: ``'ARaB'``, ``'RaB'``, ``'FaiRR'``, ``'NFaiRR'``, ``'added'``, or ``'abs(ARaB)'`` for the absolute values.
            correction: How to correct the p values of each cut-off: ``'holm'``, ``'bonferroni'`` or ``'fdr_bh'``.

        Returns:
            One row per pair and cut-off: ``cutoff``, ``before``, ``after`` (systems), ``n`` (queries that both have),
            ``difference`` (after - before), ``low``, ``high``, ``p`` (paired randomisation), ``p_corrected``.
        """
        column = "ARaB" if measure == "abs(ARaB)" else measure
        if column not in self.per_query.columns:
            raise InputError(f"measure {measure!r} is not known; use ARaB, abs(ARaB), RaB, added, FaiRR or NFaiRR")
        rows, clusters = [], None
        if "cluster" in self.per_query.columns:
            clusters = self.per_query.drop_duplicates("qid").set_index("qid")["cluster"]
        for cutoff, part in self.per_query.groupby("cutoff", sort=True):
            wide = part.pivot(index="qid", columns="system", values=column)
            wide = wide.abs() if measure == "abs(ARaB)" else wide
            own = []
            for before, after in combinations(dict.fromkeys(self.per_query["system"]), 2):
                both = wide[[before, after]].dropna()
                a, b = both[before].to_numpy(), both[after].to_numpy()
                of = None if clusters is None else clusters.loc[both.index].to_numpy()
                interval = inverted_interval(b - a, clusters=of, seed=self.seed)
                test = randomisation_test(a, b, clusters=of, seed=self.seed)
                own.append(
                    {"cutoff": cutoff, "before": before, "after": after, "n": len(both), "difference": interval.estimate,
                     "low": interval.low, "high": interval.high, "p": test.p}
                )  # fmt: skip
            corrected: Iterable[float] = correct(np.array([row["p"] for row in own]), correction) if own else []
            rows += [{**row, "p_corrected": float(p)} for row, p in zip(own, corrected)]
        columns = ["cutoff", "before", "after", "n", "difference", "low", "high", "p", "p_corrected"]
        return pd.DataFrame(rows, columns=columns)

    def directions(self, cutoff: int | None = None) -> pd.DataFrame:
        """To which side each query leans, and whether this is due to the order of its documents.

        Args:
            cutoff: t; None for the largest.

        Returns:
            One row per system and query: ``system``, ``qid``, ``ARaB``, ``side`` (1 for the first group of the contrast, -1 for
            the second, 0 for neither), ``expected``, ``added``, and ``z``: ``added`` in standard deviations of a random order, 0
            if all orders are alike. Sorted by system and ARaB, the strongest lean to the first group first.
        """
        cutoff = int(self.per_query["cutoff"].max()) if cutoff is None else cutoff
        own = self.per_query[self.per_query["cutoff"] == cutoff]
        sd = own["sd"].to_numpy()
        z = np.where(sd > 0, own["added"] / np.where(sd > 0, sd, 1.0), 0.0)
        own = own.assign(side=np.sign(own["ARaB"]).astype(int), z=z)
        own = own.sort_values(["system", "ARaB", "qid"], ascending=[True, False, True], kind="stable")
        return own[["system", "qid", "ARaB", "side", "expected", "added", "z"]].reset_index(drop=True)

    def plot(self, ax: Axes | None = None, *, measure: str = "ARaB") -> Axes:
        """Plot the mean over queries at each cut-off, with 95 % intervals.

        Args:
            ax: Matplotlib axes; None makes new ones.
            measure: ``'ARaB'``, ``'added'`` or ``'NFaiRR'``.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        ends = {"ARaB": ("low", "high"), "added": ("added_low", "added_high"), "NFaiRR": ("NFaiRR_low", "NFaiRR_high")}
        if measure not in ends:
            raise InputError(f"measure {measure!r} cannot be drawn; use {', '.join(ends)}")
        axes = plots.new_axes() if ax is None else ax
        with plots.style():
            cutoffs = sorted(self.table["cutoff"].unique())
            if measure != "NFaiRR":
                axes.axhline(0, color=plots.GREY, linewidth=1)
            for number, (name, own) in enumerate(self.table.groupby("system", sort=False)):
                own = own.sort_values("cutoff")
                x = np.array([cutoffs.index(cutoff) for cutoff in own["cutoff"]]) + 0.06 * number
                low, high = (own[end].to_numpy() for end in ends[measure])
                values = own[measure].to_numpy()
                bars, label = plots.ends(values, low, high), plots.legend_label(name)
                axes.errorbar(x, values, yerr=bars, fmt="o-", color=plots.colour(number), label=label)
            axes.set_xticks(range(len(cutoffs)), [str(cutoff) for cutoff in cutoffs])
            axes.legend()
            labels = {"ARaB": "ARaB@k", "added": "ARaB@k minus that of a random order", "NFaiRR": "NFaiRR@k"}
            plots.label_axes(axes, x="k (documents from the top)", y=labels[measure], n=int(self.table["n"].max()))
        return axes


def _row(name: str, cutoff: int, part: pd.DataFrame, missing: int, orders: RandomOrders, seed: int) -> dict[str, Any]:
    values, added = part["ARaB"].to_numpy(), part["added"].to_numpy()
    how: dict[str, Any] = {"clusters": part["cluster"].to_numpy() if "cluster" in part.columns else None, "seed": seed}
    mean, order = inverted_interval(values, **how), orders.widened(cutoff, inverted_interval(added, **how))
    added_p = max(against_zero(added, **how).p, orders.p(cutoff, added.sum()))
    fair = part.dropna(subset="NFaiRR")
    fairness = bootstrap_interval(fair["NFaiRR"].to_numpy(), clusters=fair.get("cluster"), seed=seed)
    return {
        "system": name, "cutoff": cutoff, "n": len(part), "missing": missing,
        "ARaB": mean.estimate, "low": mean.low, "high": mean.high, "p": against_zero(values, **how).p,
        "magnitude": float(np.abs(values).mean()),
        "first": int((values > 0).sum()), "second": int((values < 0).sum()), "neither": int((values == 0).sum()),
        "expected": float(part["expected"].mean()),
        "added": order.estimate, "added_low": order.low, "added_high": order.high, "added_p": added_p,
        "floor": mean_floor(part["sd"].to_numpy()),
        "NFaiRR": fairness.estimate, "NFaiRR_low": fairness.low, "NFaiRR_high": fairness.high, "NFaiRR_n": fairness.n,
    }  # fmt: skip
