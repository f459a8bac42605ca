"""Results of a position sensitivity probe: values per query, comparisons, PSI and rank displacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.counterfactuals import ranks_among_others
from pyterrier_debias.core.evaluation import parse_measures, per_query, value_range
from pyterrier_debias.core.statistics import (
    Interval,
    bootstrap_interval,
    exchange_test,
    inverted_interval,
    paired_t,
    sums_by_cluster,
)
from pyterrier_debias.position.formulas import psi

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: In what answer positions are counted, and the column of AnswerPositions that holds it.
BUCKET_UNITS = {"characters": "start", "words": "position", "relative": "relative"}

_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
#: At most how many bars a histogram of displacements has.
_BARS = 41


@dataclass(frozen=True, eq=False, repr=False)
class SensitivityResult:
    """The result of :meth:`PositionSensitivity.evaluate`: tables of comparisons, PSI and rank displacement.

    Attributes:
        table: One row per comparison and measure: ``comparison`` (``rotated - original``, and if answers were placed ``middle
            - start`` and ``end - start``), ``measure``, ``before`` and ``after`` (means over queries), ``difference`` (after -
            before) with its interval ``low`` and ``high``, ``delta`` = before / after - 1 (the convention of Hofstätter et al.,
            whose table is relative to the *debiased* value) with ``delta_low`` and ``delta_high``, ``p`` (exchange
            randomisation), ``p_t`` (paired t, of single queries), ``n`` queries, ``changed``: how many of them have a different
            value in any draw.
            The interval is the exchange test inverted, so that it contains 0 if ``p`` does not reject.
        per_query: One row per query and measure: ``qid``, ``measure``, ``original``, ``rotated`` (mean over draws),
            ``difference``, one column per draw (``rotated_0``, ...), and ``start``, ``middle``, ``end`` (NaN if no relevant
            candidate has a known answer).
        psi: One row per index over the first measure: ``answers`` (``as found``: buckets of different queries; ``placed``: the
            same queries), ``measure``, ``value``, ``low``, ``high``, ``noise_floor`` and ``p`` (mean index under permutation of
            queries over buckets, or of a query's values over places, and the share that is as large), ``n``. For ``as found``
            also ``blind_floor`` and ``p_blind``: the same under exchange of original and rotated lists, which keeps what queries
            in a bucket have in common; only this p is about the ranker rather than the queries.
        buckets: The buckets of ``as found``: ``bucket``, ``left``, ``right``, ``value`` (mean of the first measure on original
            texts), ``low``, ``high``, ``n``; empty if answers are not known.
        placements: The same for each placement: ``placement``, ``value``, ``low``, ``high``, ``n``.
        displacement: One row per relevant candidate and draw: ``qid``, ``docno``, ``label``, ``draw``, ``before``, ``after``
            (ranks from 0 among the un-rotated others), ``displacement`` (after - before: positive is further down).
        arms: The rankings, as :meth:`PositionSensitivity.transform` returns them.
        notes: Remarks for the reader, such as that the ranker looks at whole lists, that its window leaves out much of the
            passages, or that some queries count 0.
        convention: The options under which all this was computed.
        level: Coverage of the intervals.
        resamples: The number of bootstrap resamples and permutations.
        seed: Seed of both.
        untested: If no score of any variant differs from the original one, or no text does: why nothing was tested, in one
            sentence; every p that compares variants is then NaN. Otherwise empty.
        cut_off: The number of queries in which the ranker left the rotated passage out of a list, so that its rank is not known.
            Cut-offs at the end of the ranker (``ranker % 10``) do not count: the probe looks at the ranking before them.
        unread: How much of the passages the window of the ranker leaves out, in a sentence, which is also in the notes; empty if
            it is little, or not known.
        clusters: The first qid of each query's cluster, by qid, if queries have relevant passages in common
            (:func:`passage_clusters`); all tests and intervals but ``p_t`` and the interval of PSI are then by cluster. None if
            all queries are independent.
    """

    table: pd.DataFrame
    per_query: pd.DataFrame
    psi: pd.DataFrame
    buckets: pd.DataFrame
    placements: pd.DataFrame
    displacement: pd.DataFrame
    arms: pd.DataFrame
    notes: tuple[str, ...]
    convention: str
    level: float
    resamples: int
    seed: int
    untested: str = ""
    cut_off: int = 0
    unread: str = ""
    clusters: pd.Series | None = None

    def __repr__(self) -> str:
        """The main comparison in one line."""
        row = self.table.iloc[0]
        tested = "no score changed, not tested" if self.untested else f"p = {row['p']:.2g}"
        return (
            f"<SensitivityResult: {row['measure']} {row['before']:.4f} on original, {row['after']:.4f} on rotated passages, "
            f"{row['n']} queries, {tested}>"
        )

    def displacement_summary(self) -> pd.Series:
        """How far rotated relevant passages move in their lists.

        Returns:
            ``mean`` over queries of the mean over passages and draws, its interval ``low`` and ``high`` (NaN if passages were
            cut off, because their ranks are not known), ``p`` (exchange randomisation over queries or their clusters), ``n``
            queries, ``passages``; then, over all passages and draws, the shares that moved ``down``, ``up``, or out of the first
            ten (``left_top_10``), and the quantiles ``q05`` to ``q95`` in ranks. Empty if nothing was probed.
        """
        frame = self.displacement
        if frame.empty:
            return pd.Series(dtype=float)
        ranks = frame.pivot_table(index="qid", columns="draw", values="after", aggfunc="mean")
        before = frame[frame["draw"] == frame["draw"].iloc[0]].groupby("qid", sort=False)["before"].mean()
        values = np.column_stack([before.loc[ranks.index], ranks])
        furthest = float(max(self.arms["rank"].max(), frame["before"].max(), frame["after"].max()))
        how: dict[str, Any] = {
            "clusters": labels_of(self.clusters, ranks.index), "resamples": self.resamples, "seed": self.seed
        }  # fmt: skip
        interval = inverted_interval(values, level=self.level, least=-furthest, most=furthest, **how)
        moved = frame["displacement"].to_numpy()
        return pd.Series(
            {
                "mean": interval.estimate,
                "low": float("nan") if self.cut_off else interval.low,
                "high": float("nan") if self.cut_off else interval.high,
                "p": float("nan") if self.untested else exchange_test(values, **how).p,
                "n": interval.n,
                "passages": frame[["qid", "docno"]].drop_duplicates().shape[0],
                "down": (moved > 0).mean(),
                "up": (moved < 0).mean(),
                "left_top_10": ((frame["before"] < 10) & (frame["after"] >= 10)).mean(),
                **{f"q{round(100 * q):02d}": value for q, value in zip(_QUANTILES, np.quantile(moved, _QUANTILES))},
            }
        )

    def plot_displacement(self, ax: Axes | None = None) -> Axes:
        """Plot the distribution of rank displacements of rotated relevant passages.

        Args:
            ax: Matplotlib axes; None makes new ones.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        axes = plots.new_axes() if ax is None else ax
        moved = self.displacement["displacement"].to_numpy(dtype=float)
        with plots.style():
            # Bars hold equally many ranks each: others would leave gaps between whole numbers.
            low, high = (int(moved.min()), int(moved.max())) if len(moved) else (0, 0)
            width = 1 + (high - low) // _BARS
            axes.hist(moved, bins=np.arange(low - 0.5, high + width, width).tolist(), color=plots.colour(0))
            axes.axvline(0, color=plots.GREY, linestyle="--")
            plots.label_axes(
                axes,
                x="ranks by which a relevant passage moves down when it alone is rotated",
                y="passages and draws",
                n=len(moved),
                unit="passages and draws",
            )
        return axes


@dataclass(frozen=True, eq=False)
class Outcome:
    """The rankings of all arms and what is needed to evaluate them; computes the tables of :class:`SensitivityResult`.

    Attributes:
        arms: Frame ``qid, docno, arm, draw, score, rank``.
        qids: The judged queries; their order is the one in which resamples are drawn.
        qrels: Judgements.
        measures: ir_measures objects or names; PSI is computed on the first.
        answers: Frame ``qid``, ``docno``, ``start``, ``position``, ``relative`` of the first answer in each passage, or None.
        level: Coverage of intervals.
        resamples: Bootstrap resamples and permutations.
        seed: Seed of both.
        tested: Whether variants are compared by tests; if no score changed, there is nothing to test.
        clusters: See :attr:`SensitivityResult.clusters`.
    """

    arms: pd.DataFrame
    qids: Sequence[str]
    qrels: pd.DataFrame
    measures: Sequence[Any]
    answers: pd.DataFrame | None
    level: float
    resamples: int
    seed: int
    tested: bool = True
    clusters: pd.Series | None = None

    def per_query(self) -> pd.DataFrame:
        """See :attr:`SensitivityResult.per_query`."""
        moved = set(self.answered()["qid"]) & set(self.arms.loc[self.arms["arm"].isin(psi.PLACEMENTS), "qid"])
        values = {
            (arm, draw): per_query(frame, self.qrels, self.measures, self.qids)
            for (arm, draw), frame in self.arms.groupby(["arm", "draw"], sort=False)
        }
        draws = sorted(draw for arm, draw in values if arm == "rotated")
        parts = []
        for measure in map(str, parse_measures(self.measures)):
            original = values["original", 0][measure].to_numpy()
            part = pd.DataFrame({"qid": list(self.qids), "measure": measure, "original": original})
            rotated = np.column_stack([values["rotated", draw][measure] for draw in draws])
            difference = _mean_difference(original, rotated)
            part = part.assign(rotated=original + difference, difference=difference)
            part = part.assign(**{f"rotated_{draw}": rotated[:, column] for column, draw in enumerate(draws)})
            for where in psi.PLACEMENTS:
                placed = values[where, 0][measure].to_numpy() if (where, 0) in values else np.nan
                part[where] = np.where(part["qid"].isin(moved), placed, np.nan)
            parts.append(part)
        return pd.concat(parts, ignore_index=True)

    def answered(self) -> pd.DataFrame:
        """The answers of relevant passages of the judged queries."""
        if self.answers is None:
            return pd.DataFrame({"qid": [], "docno": [], **{column: [] for column in BUCKET_UNITS.values()}})
        relevant = self.qrels.loc[(self.qrels["label"] >= 1) & self.qrels["qid"].isin(set(self.qids)), ["qid", "docno"]]
        return self.answers.merge(relevant, on=["qid", "docno"])

    def table(self, values: pd.DataFrame) -> pd.DataFrame:
        """See :attr:`SensitivityResult.table`.

        Args:
            values: What :meth:`per_query` returned.
        """
        rows, values = [], values.set_index("qid")
        for measure, part in values.groupby("measure", sort=False):
            draws = [c for c in part if c.startswith("rotated_")]
            found = self._compared(part[["original", *draws]], measure)
            rows.append({"comparison": "rotated - original", "measure": measure, **found})
        for where in ("middle", "end"):
            for measure, part in values.groupby("measure", sort=False):
                placed = part[["start", where]].dropna()
                if len(placed):
                    rows.append({"comparison": f"{where} - start", "measure": measure, **self._compared(placed, measure)})
        return pd.DataFrame(rows)

    def _compared(self, values: pd.DataFrame, measure: str) -> dict[str, float]:
        """The first column against the mean of the others."""
        table = values.to_numpy(dtype=float)
        clusters = labels_of(self.clusters, values.index)
        how: dict[str, Any] = {"clusters": clusters, "resamples": self.resamples, "seed": self.seed}
        before, difference = table[:, 0], _mean_difference(table[:, 0], table[:, 1:])
        after = before + difference
        least, most = value_range(measure)
        interval = inverted_interval(table, level=self.level, least=least - most, most=most - least, **how)
        interval = interval.of_change_from(float(before.mean()), least, most)
        delta = self._relative(before, after, clusters)
        return {
            "before": float(before.mean()),
            "after": float(after.mean()),
            "difference": interval.estimate,
            "low": interval.low,
            "high": interval.high,
            "delta": delta[0],
            "delta_low": delta[1],
            "delta_high": delta[2],
            "p": exchange_test(table, **how).p if self.tested else float("nan"),
            "p_t": paired_t(before, after).p if self.tested else float("nan"),
            "n": len(table),
            "changed": int((np.ptp(table, axis=1) != 0).sum()),
        }

    def _interval(self, values: pd.Series) -> Interval:
        clusters = labels_of(self.clusters, values.index)
        options: dict[str, Any] = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        return bootstrap_interval(values.to_numpy(), clusters=clusters, **options)

    def _relative(self, before: np.ndarray, after: np.ndarray, clusters: np.ndarray | None) -> tuple[float, float, float]:
        """before / after - 1 of the means, with its interval; NaN if the mean after is 0."""
        if not after.mean() > 0:
            return (float("nan"),) * 3
        interval = bootstrap_interval(
            sums_by_cluster(np.column_stack([before, after]), clusters)[0],
            relative_change,
            method="percentile",
            level=self.level,
            resamples=self.resamples,
            seed=self.seed,
        )
        return interval.estimate, interval.low, interval.high

    def sensitivity(
        self, values: pd.DataFrame, buckets: int | Sequence[float], unit: str
    ) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
        """See :attr:`SensitivityResult.psi`, ``buckets`` and ``placements``.

        The place of a query is the mean, over its relevant passages, of the position where their first answer begins.

        Args:
            values: What :meth:`per_query` returned.
            buckets: Number or edges, see :func:`pyterrier_debias.position.formulas.psi.bucket_of`.
            unit: A key of :data:`BUCKET_UNITS`.
        """
        first = values[values["measure"] == values["measure"].iloc[0]].set_index("qid")
        options: dict[str, Any] = {"level": self.level, "resamples": self.resamples, "seed": self.seed}
        indices: list[tuple[str, psi.SensitivityIndex]] = []
        bucket_rows: list[tuple[int, float, float, float, float, float, int]] = []
        placed_rows: list[tuple[str, float, float, float, int]] = []

        position = self.answered().groupby("qid", sort=False)[BUCKET_UNITS[unit]].mean()
        position = position[[qid for qid in first.index if qid in position.index]]
        labels, edges = psi.bucket_of(position.to_numpy(dtype=float), buckets)
        bucketed = first.loc[position.index].loc[labels >= 0]
        quality = bucketed["original"].to_numpy()
        rotated = bucketed[[c for c in first if c.startswith("rotated_")]].to_numpy()
        labels = labels[labels >= 0]
        if len(edges) > 2:
            clusters = labels_of(self.clusters, bucketed.index)
            indices.append(("as found", psi.bucketed(quality, labels, rotated, clusters=clusters, **options)))
        for bucket in range(len(edges) - 1):
            interval = self._interval(bucketed["original"][labels == bucket])
            bucket_rows.append((bucket, edges[bucket], edges[bucket + 1], *_shown(interval)))

        placements = [where for where in psi.PLACEMENTS if first[where].notna().any()]
        placed = first[placements].dropna()
        if len(placements) > 1:
            clusters = labels_of(self.clusters, placed.index)
            indices.append(("placed", psi.placed(placed.to_numpy(), clusters=clusters, **options)))
        placed_rows.extend((where, *_shown(self._interval(placed[where]))) for where in placements)

        if not self.tested:
            # Whether buckets of different queries differ can be told from the original lists.
            indices = [
                (kind, replace(index, p=np.nan if kind == "placed" else index.p, p_blind=np.nan)) for kind, index in indices
            ]
        measure = str(parse_measures(self.measures)[0])
        columns = ["value", "low", "high", "noise_floor", "p", "blind_floor", "p_blind", "n"]
        table = [(kind, measure, *(getattr(index, column) for column in columns)) for kind, index in indices]
        return (
            pd.DataFrame(table, columns=["answers", "measure", *columns]),
            pd.DataFrame(bucket_rows, columns=["bucket", "left", "right", "value", "low", "high", "n"]),
            pd.DataFrame(placed_rows, columns=["placement", "value", "low", "high", "n"]),
        )


def passage_clusters(qrels: pd.DataFrame, qids: Sequence[str]) -> pd.Series | None:
    """Which queries have relevant passages in common, so that a rotation that moves one of them moves the others, too.

    Two queries are in one cluster if each has at least half of its relevant passages in common with the other, or if others
    link them in this way. Queries that have only few of many relevant passages in common count as independent.

    Args:
        qrels: Judgements; a label of 1 or more means relevant.
        qids: The queries.

    Returns:
        The first qid of each query's cluster, by qid; None if each query has its own.

    Example:
        >>> qrels = pd.DataFrame({"qid": ["1", "2", "2", "3"], "docno": ["a", "a", "b", "c"], "label": 1})
        >>> passage_clusters(qrels, ["1", "2", "3"]).tolist()
        ['1', '1', '3']
    """
    relevant = qrels.loc[(qrels["label"] >= 1) & qrels["qid"].isin(set(qids)), ["qid", "docno"]].drop_duplicates()
    if not relevant["docno"].duplicated().any():
        return None
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, names = pd.factorize(relevant["qid"], sort=True)
    columns, _ = pd.factorize(relevant["docno"])
    has = coo_array((np.ones(len(rows), dtype=int), (rows, columns))).tocsr()
    common, sizes = (has @ has.T).tocoo(), np.bincount(rows)
    close = 2 * common.data >= np.maximum(sizes[common.row], sizes[common.col])
    linked = coo_array((close[close], (common.row[close], common.col[close])), shape=common.shape)
    number, of = connected_components(linked, directed=False)
    if number == len(names):
        return None
    first = np.unique(of, return_index=True)[1]
    labels = dict(zip(names, names[first[of]]))
    return pd.Series({qid: labels.get(qid, qid) for qid in qids}, dtype=str)


def labels_of(clusters: pd.Series | None, qids: pd.Index) -> np.ndarray | None:
    """The clusters of some queries; None if all are independent."""
    return None if clusters is None else clusters.loc[qids].to_numpy()


def _mean_difference(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Mean of after - before over the columns of ``after``; exactly 0 if all are equal, unlike a difference of means."""
    return (after - before[:, None]).mean(axis=1)


def _shown(interval: Any) -> tuple[float, float, float, int]:
    return interval.estimate, interval.low, interval.high, interval.n


def relative_change(before: Any, after: Any, axis: int = -1) -> Any:
    """The delta of Hofstätter et al.: the original mean relative to the debiased one, before / after - 1.

    Args:
        before: Values on original texts.
        after: Values of the same queries on rotated texts.
        axis: Along which to average.

    Returns:
        The change; NaN if the mean after is 0.

    Example:
        >>> round(float(relative_change([0.432], [0.395])), 3)
        0.094
    """
    before, after = np.mean(before, axis=axis), np.mean(after, axis=axis)
    return np.divide(before, after, out=np.full(np.shape(after), np.nan), where=np.asarray(after) > 0) - 1


def displacements(arms: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str]) -> pd.DataFrame:
    """Ranks of each relevant passage, unchanged and rotated, among the un-rotated others.

    A rotated passage keeps its score from the rotated list, which is right for rankers that score each pair separately.

    Args:
        arms: Rankings of the arms ``original`` and ``rotated``.
        qrels: Judgements; a label of 1 or more means relevant.
        qids: The queries to look at.

    Returns:
        See :attr:`SensitivityResult.displacement`.
    """
    relevant = qrels.loc[(qrels["label"] >= 1) & qrels["qid"].isin(set(qids)), ["qid", "docno", "label"]]
    arms = arms[arms["qid"].isin(set(relevant["qid"]))]
    original = arms[arms["arm"] == "original"]
    probed = original.merge(relevant, on=["qid", "docno"])[["qid", "docno", "label", "rank"]].rename(columns={"rank": "before"})
    rotated = arms.loc[arms["arm"] == "rotated", ["qid", "docno", "draw", "score"]]
    probed = probed.merge(rotated, on=["qid", "docno"])
    return displacement_frame(probed.assign(after=ranks_among_others(probed, original)))


def displacement_frame(probed: pd.DataFrame) -> pd.DataFrame:
    """The columns of :attr:`SensitivityResult.displacement` from ``before`` and ``after``."""
    probed = probed.assign(displacement=probed["after"].astype(int) - probed["before"].astype(int))
    columns = ["qid", "docno", "label", "draw", "before", "after", "displacement"]
    return probed[columns].astype({c: int for c in columns[3:]}).reset_index(drop=True)
