"""HiddenResult: effectiveness, false negatives, and how well corrections detect them, in a comparison with hidden judgements.

The mathematics is in functions on arrays (:func:`auc`, :func:`auc_draws`, :func:`shares`); :class:`HiddenResult` presents the
results as tables, a plot and a page.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, kind_of
from pyterrier_debias.core.statistics import correct, inverted_interval, randomisation_test

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The kinds of training candidates, by all judgements.
HIDDEN, TRUE, BETWEEN = "hidden", "true", "between"

#: Largest number of values in a block of bootstrap samples.
_BLOCK = 20_000_000


def auc(hidden: np.ndarray, true: np.ndarray) -> float:
    """Compute how well a value separates hidden positives, which should have lower values, from true negatives.

    This is the chance that a true negative has a larger value than a hidden positive, where ties count as a half: Mann-Whitney's
    U divided by the number of pairs, the area under the ROC curve. 0.5 is no better than tossing a coin.

    Args:
        hidden: Values of hidden positives, shape [h].
        true: Values of true negatives, shape [t].

    Returns:
        The area; NaN if either is empty.

    Example:
        >>> import numpy as np
        >>> auc(np.array([0.1, 0.5]), np.array([0.5, 0.9]))
        0.875
    """
    values = np.concatenate([hidden, true])
    is_hidden = np.arange(len(values)) < len(hidden)
    return float(auc_draws(values, is_hidden, np.zeros(len(values), dtype=np.int64), np.ones((1, 1)))[0])


def auc_draws(values: np.ndarray, hidden: np.ndarray, group: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Compute :func:`auc` for samples in which each group (query) occurs a given number of times.

    Args:
        values: Shape [n].
        hidden: Which values are of hidden positives, shape [n]; the others are of true negatives.
        group: The group of each value, numbers below g, shape [n].
        times: How often each group is drawn, shape [resamples, g].

    Returns:
        The areas, shape [resamples]; NaN if a draw lacks either kind.
    """
    values, hidden = np.asarray(values, dtype=np.float64), np.asarray(hidden, dtype=bool)
    times = np.asarray(times, dtype=np.float64)
    out = np.full(len(times), np.nan)
    if not len(values):
        return out
    order = np.argsort(values, kind="stable")
    values, hidden, group = values[order], hidden[order], np.asarray(group)[order]
    starts = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    step = max(1, _BLOCK // len(values))
    for begin in range(0, len(times), step):
        drawn = times[begin : begin + step][:, group]
        of_hidden = np.add.reduceat(drawn * hidden, starts, axis=1)
        of_true = np.add.reduceat(drawn * ~hidden, starts, axis=1)
        # For each value: hidden positives below it win against true negatives at it, hidden positives at it tie with them.
        below = np.cumsum(of_hidden, axis=1) - of_hidden
        pairs = of_hidden.sum(axis=1) * of_true.sum(axis=1)
        wins = ((below + 0.5 * of_hidden) * of_true).sum(axis=1)
        out[begin : begin + step] = np.divide(wins, pairs, out=np.full(len(pairs), np.nan), where=pairs > 0)
    return out


def shares(resamples: int, n: int, generator: np.random.Generator) -> np.ndarray:
    """Draw bootstrap samples of n units, each given as the units' shares in it, shape [resamples, n]; 1 for a single unit."""
    return generator.multinomial(n, np.full(n, 1 / n), size=resamples) / n


def _limits(values: np.ndarray, level: float) -> tuple[float, float]:
    values = values[~np.isnan(values)]
    if not len(values):
        return float("nan"), float("nan")
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


@dataclass(frozen=True, eq=False, repr=False)
class HiddenResult:
    """The result of :meth:`HiddenJudgements.compare`.

    Intervals are percentile intervals of a bootstrap over seeds and queries together: seeds and queries are drawn with
    replacement, and all drawn seeds have the same queries, unless each has its own (:func:`combined`). With S seeds, the
    intervals include only (S - 1) / S of the variance between seeds; with one seed, only queries are drawn.

    Attributes:
        per_query: One row per correction, seed, query, kind of judgements and measure: ``correction``, ``seed``, ``qid``,
            ``judgements`` (``full`` or ``pooled``), ``measure``, ``value``.
        negatives: One row per correction, seed and candidate of the training that is not judged relevant in the pool:
            ``correction``, ``seed``, ``qid``, ``docno``, ``kind`` (``hidden``: a hidden positive; ``true``: a true negative;
            ``between``: a grade above 0 and below ``min_label``, counted as neither), ``emphasis`` (how much it counts as a
            negative, 1 as in plain training, mean over positives; NaN if a correction does not report it), ``positives`` (number
            for the query), ``drawn`` (how often it was drawn as a negative, without in-batch negatives; NaN if unknown).
        costs: One row per correction and seed: ``correction``, ``seed``, ``seconds`` (training and testing).
        corrections: The names of the corrections, in the order of the tables.
        baseline: Name of the plain training with which all are compared.
        oracle: Name of the training that knows the hidden documents; None without one.
        counts: How much was hidden, see :attr:`HiddenJudgements.counts`, and the sizes of training and test data.
        notes: What a reader should know.
        level: Coverage of the intervals.
        resamples: Number of bootstrap samples; tests use the default number of
            :func:`~pyterrier_debias.core.statistics.randomisation_test`.
        seed: Seed of the bootstrap and of the tests.
        full: Name of the training on all judgements; None without one.
    """

    per_query: pd.DataFrame
    negatives: pd.DataFrame
    costs: pd.DataFrame
    corrections: Sequence[str]
    baseline: str
    oracle: str | None
    counts: dict[str, int]
    notes: tuple[str, ...]
    level: float = 0.95
    resamples: int = 2000
    seed: int = 0
    full: str | None = None  # also of results that were pickled without it

    def __repr__(self) -> str:
        """Sizes, and the first measure on full judgements for the best training that only knows the pooled judgements."""
        rows = self.table[self.table["judgements"] == "full"]
        rows = rows[rows["measure"] == rows["measure"].iloc[0]].sort_values("mean", ascending=False, kind="stable")
        best = rows[~rows["correction"].isin([self.oracle, self.full])].iloc[0]
        return (
            f"<HiddenResult: {len(self.corrections)} trainings, {best['seeds']} seeds, {best['queries']} test queries; best "
            f"{best['measure']} on full judgements: {best['correction']} {best['mean']:.4f} ({best['difference']:+.4f})>"
        )

    # Effectiveness

    @cached_property
    def table(self) -> pd.DataFrame:
        """Effectiveness: one row per kind of judgements, measure and correction.

        ``judgements``, ``measure``, ``correction``; ``mean`` over seeds and queries, ``low``, ``high``; ``difference`` from the
        baseline, ``difference_low``, ``difference_high``, ``p`` (randomisation test over queries, on each query's mean over
        seeds: it generalises over queries, for these seeds). With one seed, the interval of the difference inverts this test;
        with several, it is over seeds, too. ``p_corrected`` (Holm, over the corrections for a kind of judgements and a measure,
        without the oracle and the training on all judgements); ``gap_closed``: the share of the oracle's difference that the
        correction reaches, with ``gap_low`` and ``gap_high``; all three are NaN, and ``gap_reason`` says why, if there is no
        oracle or the interval of the oracle's own difference is not above 0 or is NaN (without a gain of the oracle there is no
        gap);
        ``seeds`` and ``queries``.
        """
        parts = self.per_query.groupby(["judgements", "measure"], sort=False)
        return pd.DataFrame([row for (judgements, measure), part in parts for row in self._compared(judgements, measure, part)])

    def _compared(self, judgements: str, measure: str, part: pd.DataFrame) -> list[dict[str, Any]]:
        names = list(self.corrections)
        wide = [one.pivot(index="correction", columns="qid", values="value").loc[names] for _, one in part.groupby("seed")]
        values = [one.to_numpy(dtype=np.float64) for one in wide]
        of_seeds, of_queries = self._drawn([one.columns for one in wide])
        means = sum(of_seeds[:, at, None] * (drawn @ one.T) for at, (drawn, one) in enumerate(zip(of_queries, values))).T
        found = np.mean([one.mean(axis=1) for one in values], axis=0)
        # Each query's mean over seeds; if seeds have different queries, these are put side by side.
        crossed = all(one.columns.equals(wide[0].columns) for one in wide)
        if crossed:
            units = np.mean(values, axis=0)
        else:  # weighted, so that their mean is the mean over seeds or collections, as the difference is
            each = sum(one.shape[1] for one in values) / len(values)
            units = np.concatenate([one * (each / one.shape[1]) for one in values], axis=1)
        base = names.index(self.baseline)
        if len(values) == 1:  # then p and interval are about the same thing, and must agree
            each = [inverted_interval(own - units[base], level=self.level, seed=self.seed) for own in units]
            changes = [(one.low, one.high) for one in each]
        else:
            changes = [_limits(own - means[base], self.level) for own in means]
        gap, gaps, reason = None, None, "there is no oracle"
        if self.oracle is not None:
            at = names.index(self.oracle)
            gap, gaps = found[at] - found[base], means[at] - means[base]
            low, high = changes[at]
            ends = "without an interval, since too few queries change" if np.isnan(low) else f"[{low:+.3f}, {high:+.3f}]"
            verdict = "is below 0" if high < 0 else "may be 0"
            reason = "" if low > 0 else f"the oracle's own difference, {gap:+.3f} {ends}, {verdict}"
        rows = []
        for number, name in enumerate(names):
            row = {"judgements": judgements, "measure": measure, "correction": name, "mean": float(found[number])}
            row["low"], row["high"] = _limits(means[number], self.level)
            row["difference"] = float(found[number] - found[base])
            row["difference_low"], row["difference_high"] = changes[number]
            test = randomisation_test(units[base], units[number], seed=self.seed)
            row |= {"p": float("nan") if number == base else test.p, "p_corrected": float("nan")}
            row |= dict.fromkeys(("gap_closed", "gap_low", "gap_high"), float("nan")) | {"gap_reason": reason}
            if gap is not None and not reason:
                row["gap_closed"] = row["difference"] / gap
                with np.errstate(divide="ignore", invalid="ignore"):
                    row["gap_low"], row["gap_high"] = _limits((means[number] - means[base]) / gaps, self.level)
            rows.append({**row, "seeds": len(values), "queries": units.shape[1]})
        tested = [row for row in rows if row["correction"] not in (self.baseline, self.oracle, self.full)]
        for row, p in zip(tested, correct(np.array([row["p"] for row in tested]))):
            row["p_corrected"] = float(p)
        return rows

    def _drawn(self, queries: Sequence[Any]) -> tuple[np.ndarray, list[np.ndarray]]:
        """Bootstrap samples of seeds, and of the queries of each seed; these are equal if all seeds have the same queries."""
        generator = np.random.default_rng(self.seed)
        of_seeds = shares(self.resamples, len(queries), generator)
        if all(list(one) == list(queries[0]) for one in queries):
            return of_seeds, [shares(self.resamples, len(queries[0]), generator)] * len(queries)
        return of_seeds, [shares(self.resamples, len(one), generator) for one in queries]

    # False negatives

    @cached_property
    def false_negatives(self) -> pd.DataFrame:
        """Report how each correction treated the hidden positives among its candidates, with one row per correction.

        Candidates of the kind ``between`` and in-batch negatives are left out of all columns. ``candidates`` (per seed) and
        ``hidden`` among them; ``drawn``: negatives drawn in a seed's training, ``false_drawn`` and ``false_share``: the number
        and share of these that were hidden positives; ``false_weight``: the share of the weight of all negatives that was on
        hidden positives (by emphasis, with equal weight for each positive), which is below ``false_share`` if a correction draws
        them but punishes them less; ``auc`` with ``auc_low`` and ``auc_high``: the chance that a true negative counts more than a
        hidden positive, over all pairs (see :func:`auc`); ``auc_within``: the AUC within queries, averaged over queries that have
        both. All are means over seeds; NaN if a correction does not report its emphasis.
        """
        kept = self.negatives[self.negatives["kind"] != BETWEEN]
        return pd.DataFrame([self._met(name, part) for name, part in kept.groupby("correction", sort=False)])

    def _met(self, name: str, part: pd.DataFrame) -> dict[str, Any]:
        seeds = [one.assign(hidden=one["kind"] == HIDDEN) for _, one in part.groupby("seed", sort=True)]
        coded = [pd.factorize(one["qid"], sort=True) for one in seeds]
        of_seeds, of_queries = self._drawn([names for _, names in coded])
        areas, within, drawn, false_drawn, weight = [], [], [], [], []
        for one, (query, _), times in zip(seeds, coded, of_queries):
            hidden, emphasis = one["hidden"].to_numpy(), one["emphasis"].to_numpy(dtype=np.float64)
            times = np.concatenate([np.ones((1, times.shape[1])), times])
            told = not np.isnan(emphasis).any()
            areas.append(auc_draws(emphasis, hidden, query, times) if told else np.full(len(times), np.nan))
            within.append(auc_within(emphasis, hidden, query) if told else np.nan)
            shown = one["drawn"].to_numpy(dtype=np.float64)
            drawn.append(shown.sum())
            false_drawn.append(shown[hidden].sum())
            mass = emphasis * one["positives"].to_numpy() / np.bincount(query)[query]
            weight.append(mass[hidden].sum() / mass.sum() if mass.sum() > 0 else np.nan)
        area, shown_mean, false_mean = np.array(areas), float(np.mean(drawn)), float(np.mean(false_drawn))
        low, high = _limits(np.einsum("ds,sd->d", of_seeds, area[:, 1:]), self.level)
        return {
            "correction": name,
            "candidates": len(part) / len(seeds),
            "hidden": sum(int(one["hidden"].sum()) for one in seeds) / len(seeds),
            "drawn": shown_mean,
            "false_drawn": false_mean,
            "false_share": false_mean / shown_mean if shown_mean > 0 else float("nan"),
            "false_weight": float(np.mean(weight)),
            "auc": float(area[:, 0].mean()),
            "auc_low": low,
            "auc_high": high,
            "auc_within": float(np.mean(within)),
        }

    def plot_emphasis(self, correction: str, ax: Axes | None = None, *, bins: int = 20) -> Axes:
        """Draw how a correction weights hidden positives and true negatives, as in Figure 5 of Cai et al. (2022).

        Args:
            correction: Name of the correction.
            ax: Matplotlib axes; None makes new ones.
            bins: Number of bins of equal width. Emphasis is the mean over positives and seeds.

        Returns:
            The axes.

        Raises:
            InputError: For an unknown name, or a correction that does not report its emphasis.
        """
        from pyterrier_debias.core import plots

        if correction not in self.corrections:
            raise InputError(f"HiddenResult: there is no correction {correction!r}; there are {', '.join(self.corrections)}")
        part = self.negatives[(self.negatives["correction"] == correction) & (self.negatives["kind"] != BETWEEN)]
        if part["emphasis"].isna().any():
            raise InputError(f"HiddenResult: {correction!r} does not provide how much each candidate counts as a negative")
        means = part.groupby(["qid", "docno", "kind"], sort=True)["emphasis"].mean().reset_index()
        axes = plots.new_axes() if ax is None else ax
        low, high = means["emphasis"].min(), means["emphasis"].max()
        ends = (low, high) if high > low else (low - 0.5, high + 0.5)
        edges = np.linspace(*ends, bins + 1).tolist()
        area = auc(*(means.loc[means["kind"] == kind, "emphasis"].to_numpy() for kind in (HIDDEN, TRUE)))
        with plots.style():
            for number, (kind, label) in enumerate(((TRUE, "true negatives"), (HIDDEN, "hidden positives"))):
                values = means.loc[means["kind"] == kind, "emphasis"].to_numpy()
                if len(values):
                    share = np.full(len(values), 1 / len(values))
                    colour = plots.colour(number)
                    axes.hist(values, bins=edges, weights=share, color=colour, alpha=0.25)
                    axes.hist(values, bins=edges, weights=share, color=colour, histtype="step", linewidth=2, label=label)
            axes.legend()
            plots.label_axes(
                axes,
                x="weight as a negative (plain training: 1)",
                y="share of candidates",
                title=f"{correction}: AUC {area:.2f}",
                n=len(means),
                unit="candidates",
            )
        return axes

    # Reading

    def summary(self, measure: str | None = None) -> pd.DataFrame:
        """Return the most important columns, one row per correction.

        Args:
            measure: Name of the measure; None for the first.

        Returns:
            ``correction``; on full judgements ``full`` with ``low`` and ``high``, ``difference``, ``p`` and ``gap_closed`` with
            its limits, or ``gap_reason``, which says why there is none; ``pooled``: the mean on pooled judgements;
            ``false_share``, ``false_weight``, ``auc`` with its limits.

        Raises:
            InputError: For a measure that was not computed.
        """
        measures = list(dict.fromkeys(self.table["measure"]))
        measure = measures[0] if measure is None else measure
        if measure not in measures:
            raise InputError(f"HiddenResult: measure {measure!r} was not computed; there are {', '.join(measures)}")
        rows = self.table[self.table["measure"] == measure].drop(columns=["measure", "seeds", "queries", "p_corrected"])
        full = rows[rows["judgements"] == "full"].drop(columns="judgements").rename(columns={"mean": "full"})
        pooled = rows.loc[rows["judgements"] == "pooled", ["correction", "mean"]].rename(columns={"mean": "pooled"})
        told = self.false_negatives[["correction", "false_share", "false_weight", "auc", "auc_low", "auc_high"]]
        return full.merge(pooled, on="correction", how="left").merge(told, on="correction", how="left")

    def to_html(self) -> str:
        """The summary of the first measure, the counts and the notes as an HTML fragment."""
        measure = self.table["measure"].iloc[0]
        table = self.summary().to_html(index=False, border=0, float_format=lambda value: f"{value:.3f}", na_rep="")
        counts = ", ".join(f"{name}: {n:,}" for name, n in self.counts.items())
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<p><b>Hidden judgements</b>, {html.escape(measure)}. {html.escape(counts)}</p>{table}<ul>{notes}</ul>"

    def _repr_html_(self) -> str:
        return self.to_html()


def auc_within(values: np.ndarray, hidden: np.ndarray, query: np.ndarray) -> float:
    """Compute the mean over queries of the area (see :func:`auc`) within each query.

    Args:
        values: Emphasis of n negatives, shape [n].
        hidden: Whether each is a hidden positive, shape [n].
        query: The number of each one's query, shape [n].

    Returns:
        The mean over queries with both kinds; NaN if there are none.
    """
    if not len(values):
        return float("nan")
    order = np.lexsort((values, query))
    values, hidden, query = values[order], hidden[order], query[order]
    starts = np.flatnonzero(np.r_[True, (query[1:] != query[:-1]) | (values[1:] != values[:-1])])
    # For each query and value: as in auc_draws, but only the query's own values are counted as below.
    of_hidden, of_true = (np.add.reduceat(kind.astype(np.float64), starts) for kind in (hidden, ~hidden))
    query = query[starts]
    all_hidden, all_true = np.bincount(query, of_hidden), np.bincount(query, of_true)
    below = np.cumsum(of_hidden) - of_hidden - (np.cumsum(all_hidden) - all_hidden)[query]
    wins, pairs = np.bincount(query, (below + 0.5 * of_hidden) * of_true), all_hidden * all_true
    return float(np.mean(wins[pairs > 0] / pairs[pairs > 0])) if (pairs > 0).any() else float("nan")


def _names(result: HiddenResult) -> tuple[Any, ...]:
    return list(result.corrections), result.baseline, result.oracle, result.full


def combined(results: Mapping[str, HiddenResult]) -> HiddenResult:
    """Combine the results of several collections: each collection becomes a seed with its own queries.

    Args:
        results: For each name of a collection its result, all with one seed and the same corrections.

    Returns:
        A result whose bootstrap draws queries within their collection, and collections like seeds. Its counts are sums.

    Raises:
        InputError: For results with different corrections or several seeds, or without any result.
    """
    if not isinstance(results, Mapping):
        raise InputError(f"combined: results is {kind_of(results)}; give names to the results, e.g. {{'dl19': result}}")
    parts = list(results.values())
    if not parts:
        raise InputError("combined: there are no results")
    first = parts[0]
    for name, one in results.items():
        if _names(one) != _names(first):
            raise InputError(f"combined: result {name!r} compares other corrections than the first; compare the same ones")
        if one.per_query["seed"].nunique() != 1:
            raise InputError(f"combined: result {name!r} has several seeds; combine results of one seed each")

    def joined(attribute: str) -> pd.DataFrame:
        tables = [getattr(one, attribute).assign(seed=name) for name, one in results.items()]
        named = [t.assign(qid=[f"{name}:{qid}" for qid in t["qid"]]) if "qid" in t else t for name, t in zip(results, tables)]
        return pd.concat(named, ignore_index=True)

    notes = tuple(dict.fromkeys(note for one in parts for note in one.notes))
    counts = {name: sum(one.counts.get(name, 0) for one in parts) for name in first.counts}
    tables = {attribute: joined(attribute) for attribute in ("per_query", "negatives", "costs")}
    return replace(first, **tables, notes=notes, counts=counts)
