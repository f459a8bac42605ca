"""Tables and pictures of spread, slopes and tests over seeds and queries. The programs import this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from study import MEASURES, USES, Source
from workshop import ends, matrix

from pyterrier_debias import Disparity
from pyterrier_debias.core import plots
from pyterrier_debias.core.statistics import correct, paired_t, two_level_interval
from pyterrier_debias.linguistic.formulas.slope import design, partial_slope

#: The controls of the slope: words of the query, and the logarithm of the number of its relevant documents.
CONTROLS = ("length", "relevant")
#: The name of all collections together.
TOGETHER = "all collections (macro)"


# Statistics of means of values and of their squares


def mean_of(m: np.ndarray) -> np.ndarray:
    """The mean, mu."""
    return m[..., 0]


def sd_of(m: np.ndarray) -> np.ndarray:
    """The standard deviation, sigma, with ddof 0."""
    return np.sqrt(np.maximum(m[..., 1] - m[..., 0] ** 2, 0.0))


def cv_of(m: np.ndarray) -> np.ndarray:
    """The coefficient of variation, c_v = sigma / mu."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(m[..., 0] > 0, sd_of(m) / m[..., 0], np.nan)


STATISTICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {"mean": mean_of, "sd": sd_of, "cv": cv_of}


def moments(values: np.ndarray) -> np.ndarray:
    """Values and their squares, shape [seeds, queries, 2]."""
    return np.stack([values, values**2], axis=-1)


def macro(collections: Sequence[np.ndarray], statistic: Callable[[np.ndarray], np.ndarray], resamples: int) -> dict[str, float]:
    """The mean over collections of a statistic; the bootstrap draws the same seeds for all of them, and queries in each.

    Args:
        collections: Arrays of shape [seeds, queries, conditions].
        statistic: A function from means of shape [..., conditions] to values of shape [...].
        resamples: Number of bootstrap resamples.

    Returns:
        ``estimate``, ``low``, ``high``.
    """
    generator, found = np.random.default_rng(0), []
    seeds = collections[0].shape[0]
    of_seeds = generator.multinomial(seeds, np.full(seeds, 1 / seeds), size=resamples) / seeds
    for values in collections:
        queries = values.shape[1]
        of_queries = generator.multinomial(queries, np.full(queries, 1 / queries), size=resamples) / queries
        found.append(statistic(np.einsum("ds,sqc,dq->dc", of_seeds, values, of_queries, optimize=True)))
    low, high = np.quantile(np.mean(found, axis=0), [0.025, 0.975])
    estimate = np.mean([statistic(values.mean(axis=(0, 1))) for values in collections])
    return {"estimate": float(estimate), "low": float(low), "high": float(high)}


def by_use(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Tables that have rows, each split into one table per use; that of the first use keeps the table's name."""
    out = {}
    for name, table in tables.items():
        parts = dict(list(table.groupby("use", sort=False))) if "use" in table else {"": table}
        for use, part in parts.items():
            if len(part):
                short = name if use in ("", USES[0]) or len(parts) == 1 else f"{name}_{use}"
                out[short] = part.reset_index(drop=True)
    return out


class Results:
    """Per-query values of rankers, and the tables that come from them.

    Args:
        rows: ``seed``, ``qid``, ``dataset``, ``use``, ``ranker`` and the measure; each ranker has the same queries and seeds.
        sources: The collections.
        resamples: Number of bootstrap resamples and of permutations.
        measure: The column of the measure.
    """

    def __init__(self, rows: pd.DataFrame, sources: Sequence[Source], resamples: int, measure: str = MEASURES[0]):
        self.rows, self.resamples, self.measure = rows, resamples, measure
        self.sources = {source.name: source for source in sources}
        self.rankers = list(dict.fromkeys(rows["ranker"]))
        self._values: dict[tuple[str, str], dict[str, np.ndarray]] = {}
        self._slopes: dict[tuple[str, str, str, bool], tuple[np.ndarray, Any]] = {}
        for (use, dataset), part in rows[rows["use"].isin(USES)].groupby(["use", "dataset"], sort=False):
            names, values = matrix(part, measure, ["ranker"])
            self._values[use, dataset] = {name: values[..., at] for at, (name,) in enumerate(names)}
            self._qids = part["qid"]
        self.cells = sorted(self._values, key=lambda cell: (USES.index(cell[0]), list(self.sources).index(cell[1])))

    def values(self, use: str, dataset: str, ranker: str) -> np.ndarray:
        """Shape [seeds, queries], queries in the order of their qids."""
        return self._values[use, dataset][ranker]

    def topics(self, dataset: str) -> pd.DataFrame:
        """The queries in the order of their qids, with complexity and controls."""
        return self.sources[dataset].topics.sort_values("qid", ignore_index=True)

    def of(self, use: str, dataset: str) -> list[str]:
        """Rankers of a table, in order."""
        return [name for name in self.rankers if name in self._values[use, dataset]]

    # Tables

    def spread(self) -> pd.DataFrame:
        """Mean, standard deviation and coefficient of variation with intervals (the layout of the paper's Table 2)."""
        rows = []
        for use, dataset in self.cells:
            for ranker in self.of(use, dataset):
                values = moments(self.values(use, dataset, ranker))
                line = {"use": use, "dataset": dataset, "ranker": ranker, "queries": values.shape[1]}
                for name, statistic in STATISTICS.items():
                    line |= ends(name, two_level_interval(values, statistic, resamples=self.resamples))
                rows.append(line)
        return pd.DataFrame(rows)

    def over_datasets(self) -> pd.DataFrame:
        """The same statistics as means over collections (Table 1); empty if there is only one collection."""
        rows = []
        for use in USES:
            datasets = [dataset for one, dataset in self.cells if one == use]
            for ranker in self.rankers if len(datasets) > 1 else []:
                if all(ranker in self.of(use, dataset) for dataset in datasets):
                    parts = [moments(self.values(use, dataset, ranker)) for dataset in datasets]
                    line = {"use": use, "collections": len(datasets), "ranker": ranker}
                    for name, statistic in STATISTICS.items():
                        found = macro(parts, statistic, self.resamples)
                        line |= {name: found["estimate"], f"{name}_low": found["low"], f"{name}_high": found["high"]}
                    rows.append(line)
        return pd.DataFrame(rows)

    def changes(self, before: str) -> pd.DataFrame:
        """Changes of mean, spread and slopes from one ranker to each other ranker, with intervals over seeds and queries."""
        rows = []
        for use, dataset in self.cells:
            base = self.values(use, dataset, before)
            for ranker in self.of(use, dataset):
                if ranker == before:
                    continue
                own = self.values(use, dataset, ranker)
                both = np.concatenate([moments(base), moments(own)], axis=-1)
                line = {"use": use, "dataset": dataset, "ranker": ranker}
                for name, statistic in STATISTICS.items():
                    line |= ends(
                        name,
                        two_level_interval(both, lambda m, s=statistic: s(m[..., 2:]) - s(m[..., :2]), resamples=self.resamples),
                    )
                for name, controlled in (("slope", False), ("slope given controls", True)):
                    pair = [self._slope(use, dataset, one, controlled)[0] for one in (before, ranker)]
                    slopes = np.stack(pair, axis=-1)
                    change = two_level_interval(slopes, lambda m: m[..., 1] - m[..., 0], resamples=self.resamples)
                    line |= ends(name, change)
                defined = not np.isnan(pair).any()
                line["p"] = paired_t(*(one.mean(axis=0) for one in pair)).p if defined else float("nan")
                rows.append(line)
        table = pd.DataFrame(rows)
        if len(table):
            table["p_corrected"] = correct(table["p"].to_numpy())
        return table

    def slopes(self) -> pd.DataFrame:
        """The slope of the measure on complexity, per standard deviation of complexity, without and with controls."""
        rows = []
        for use, dataset in self.cells:
            for ranker in self.of(use, dataset):
                line = {"use": use, "dataset": dataset, "ranker": ranker}
                for name, controlled in (("slope", False), ("slope given controls", True)):
                    influence, found = self._slope(use, dataset, ranker, controlled)
                    line |= ends(name, two_level_interval(influence[..., None], mean_of, resamples=self.resamples))
                line |= {"share": found.share, "share by chance": found.share_floor, "p": found.p}
                rows.append(line)
        table = pd.DataFrame(rows)
        table["p_corrected"] = correct(table["p"].to_numpy())
        return table

    def _slope(self, use: str, dataset: str, ranker: str, controlled: bool) -> tuple[np.ndarray, Any]:
        """Influence values of each seed, shape [seeds, queries], whose mean is the slope; and the slope of the seeds' mean."""
        key = use, dataset, ranker, controlled
        if key not in self._slopes:
            topics, values = self.topics(dataset), self.values(use, dataset, ranker)
            x, controls = topics["complexity"].to_numpy(), design(topics, CONTROLS if controlled else ())
            seeds = [partial_slope(one, x, controls, resamples=1) for one in values]
            found = partial_slope(values.mean(axis=0), x, controls, resamples=self.resamples)
            self._slopes[key] = np.stack([one.influence * one.sd for one in seeds]), found
        return self._slopes[key]

    def against(self, ranker: str) -> pd.DataFrame:
        """Paired tests of one ranker against each other ranker (Table 3); Bonferroni corrects p values over the table."""
        rows = []
        for use, dataset in self.cells:
            own = self.values(use, dataset, ranker)
            for other in self.of(use, dataset):
                if other == ranker:
                    continue
                pair = np.stack([self.values(use, dataset, other), own], axis=-1)
                interval = two_level_interval(pair, lambda m: m[..., 1] - m[..., 0], resamples=self.resamples)
                means = pair.mean(axis=0).T
                rows.append(
                    {
                        "use": use, "dataset": dataset, "against": other, "difference": interval.estimate, "low": interval.low,
                        "high": interval.high, "p": paired_t(*means).p,
                    }
                )
        table = pd.DataFrame(rows)
        return table.assign(p_corrected=correct(table["p"].to_numpy(), "bonferroni"))

    def groups(self) -> pd.DataFrame:
        """Means of the simplest, the middle and the most complex third of the queries, and the gap between best and worst."""
        rows = []
        for use, dataset in self.cells:
            found = Disparity(resamples=1)(self._long(use, dataset)).query("group != 'all'")
            for ranker in self.of(use, dataset):
                own = found[found["name"] == ranker]
                line = {"use": use, "dataset": dataset, "ranker": ranker}
                for row in own.to_dict("records"):
                    line |= {f"{row['group']}{end}": row[f"mean{end}"] for end in ("", "_low", "_high")}
                rows.append({**line, "gap": own["mean"].max() - own["mean"].min()})
        return pd.DataFrame(rows)

    def learners(self, biased: pd.DataFrame, robust: Mapping[str, str], accuracy: pd.DataFrame, before: str) -> pd.DataFrame:
        """The biased learners, and what the rankers trained against them change (Tables 5 to 8).

        Args:
            biased: Rows like those of the results, but of the learners, under the names of the rankers; some may be missing.
            robust: Names of rankers to names of learners.
            accuracy: ``ranker``, ``accuracy`` and ``biased_accuracy``: the share of the training pairs in which each model ranks
                the positive higher.
            before: The plain ranker.
        """
        weak = Results(biased, list(self.sources.values()), self.resamples, self.measure)
        changes = self.changes(before).set_index(["use", "dataset", "ranker"])
        own, other = (one.spread().set_index(["use", "dataset", "ranker"]) for one in (self, weak))
        shares = accuracy.set_index("ranker")
        rows = []
        for use, dataset in self.cells:
            for ranker, learner in robust.items():
                key = use, dataset, ranker
                line = {"use": use, "dataset": dataset, "learner": learner, **shares.loc[ranker].to_dict()}
                line["biased mean"] = other["mean"].get(key, float("nan"))
                line |= {name: own.at[key, name] for name in STATISTICS}
                for name in ("mean", "cv", "slope given controls"):
                    line |= {f"change of {name}{end}": changes.at[key, f"{name}{end}"] for end in ("", "_low", "_high")}
                rows.append(line)
        return pd.DataFrame(rows)

    # Pictures

    def _long(self, use: str, dataset: str, rankers: Sequence[str] | None = None) -> pd.DataFrame:
        """The mean over seeds of each query, with complexity, in the format of ``pt.Experiment(perquery=True)``."""
        topics = self.topics(dataset)
        found = {name: self.values(use, dataset, name).mean(axis=0) for name in rankers or self.of(use, dataset)}
        own = topics[["qid", "complexity"]].assign(measure=self.measure)
        return pd.concat([own.assign(name=name, value=value) for name, value in found.items()], ignore_index=True)

    def panels(self, use: str, rankers: Sequence[str], caption: str, path: Path) -> None:
        """Draw effectiveness against complexity on each collection, side by side (Figures 4 and 5)."""
        import matplotlib.pyplot as plt

        datasets = [dataset for one, dataset in self.cells if one == use]
        with plots.style():
            size = (5.0 * len(datasets), 4.0)
            figure, axes = plt.subplots(1, len(datasets), figsize=size, squeeze=False, layout="constrained")
        for own, dataset in zip(axes[0], datasets):
            found = Disparity(resamples=1).evaluate(self._long(use, dataset, rankers))
            found.plot_curve(own, points=30, resamples=min(self.resamples, 499))
            own.set_title(dataset, loc="left")
        figure.suptitle(f"{caption}, {use}")
        plots.save(figure, path, dpi=100)

    def curves(self, use: str, dataset: str, rankers: Sequence[str], path: Path) -> None:
        """Draw effectiveness against complexity, with bands over queries (Figures 1 and 3)."""
        result = Disparity(resamples=1).evaluate(self._long(use, dataset, rankers))
        axes = plots.new_axes()
        result.plot_curve(axes, points=30, resamples=min(self.resamples, 499))
        axes.set_title(f"{dataset}, {use}", loc="left")
        plots.save(axes.figure, path, dpi=100)
