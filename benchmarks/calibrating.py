"""Code shared by the calibration programs: collections in several processes, rates of small p values, and output."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from copy import deepcopy
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import plots
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.statistics import binomial_interval

LEVEL = 0.05


def biased(strength: float) -> str:
    """The name of a collection with a ranker that has the bias."""
    return f"biased, strength {strength:g}"


def shared_options(*, seeds: str, out: str) -> argparse.ArgumentParser:
    """A parent parser with the options that all calibration programs have.

    Args:
        seeds: What ``--seeds`` counts, for the help.
        out: The default folder.
    """
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--seeds", type=int, default=500, help=seeds)
    parser.add_argument("--topics", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path(out))
    return parser


def over_cases(
    p_values: Callable[[Any], list[dict[str, Any]]], tasks: Sequence[Any], workers: int, *, chunksize: int = 1
) -> pd.DataFrame:
    """The rows of all tasks, in the order of the tasks, computed in several processes (in this one if ``workers`` is 1)."""

    def gathered(cases: Iterator[list[dict[str, Any]]]) -> pd.DataFrame:
        return pd.DataFrame([row for rows in pt.tqdm(cases, total=len(tasks), desc="collections") for row in rows])

    if workers == 1:
        return gathered(map(p_values, tasks))
    with ProcessPoolExecutor(workers) as pool:
        return gathered(pool.map(p_values, tasks, chunksize=chunksize))


def finished(
    path: Path,
    tasks: Callable[[pd.DataFrame], Iterable[Any]],
    p_values: Callable[[Any], list[dict[str, Any]]],
    workers: int,
    *,
    every: int = 1,
) -> pd.DataFrame:
    """The rows of all tasks. Those that a file already contains are not computed again; the file grows as tasks are finished.

    Args:
        path: A CSV file, which may exist.
        tasks: The tasks that are left, given the rows of the file.
        p_values: Computes the rows of a task.
        workers: Number of processes; 1 for this process alone.
        every: Number of tasks between two writings of the file.
    """
    there = pd.read_csv(path) if path.is_file() else pd.DataFrame()
    rows, left = there.to_dict("records"), list(tasks(there))
    with ProcessPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        # Use copies, as other processes would have: otherwise everything that tasks store would stay in memory to the end.
        made = pool.map(p_values, left) if pool else map(p_values, map(deepcopy, left))
        for number, own in enumerate(pt.tqdm(made, total=len(left), desc=path.stem), start=1):
            rows += own
            if number % every == 0 or number == len(left):
                write_whole(path, pd.DataFrame(rows).to_csv(index=False))
    return pd.DataFrame(rows)


def share(hits: pd.Series) -> dict[str, float]:
    """A share with its exact 99 % interval: ``rate``, ``low``, ``high``."""
    interval = binomial_interval(int(hits.sum()), len(hits), level=0.99)
    return {"rate": interval.estimate, "low": interval.low, "high": interval.high}


def rates(found: pd.DataFrame, keys: Sequence[str], *, means: Sequence[str] = ()) -> pd.DataFrame:
    """Share of p values at or below the level, with its exact 99 % interval.

    Args:
        found: One row per p value: the keys, ``p``, and the columns of means.
        keys: Columns that distinguish the kinds of p values; kinds are in the order of their first rows.
        means: Further columns to average.

    Returns:
        One row per kind: the keys, ``seeds``, ``rate``, ``low``, ``high``, and the means.
    """
    rows = []
    for kind, group in found.groupby(list(keys), sort=False):
        p = group["p"].dropna()
        rows.append((*kind, len(p), *share(p <= LEVEL).values(), *(group[name].mean() for name in means)))
    return pd.DataFrame(rows, columns=[*keys, "seeds", "rate", "low", "high", *means])


def shown(row: Mapping[str, Any]) -> str:
    """A rate and its interval."""
    return f"{row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"


def verdict(row: Mapping[str, Any]) -> str:
    """Whether the share of false alarms is acceptable."""
    meets = row["low"] <= 0.07 and row["high"] >= 0.03
    return f"the interval {'meets' if meets else 'MISSES'} 3 to 7 %"


def draw(curves: Mapping[str, pd.Series], path: Path, *, x: str = "p of the primary test", **legend: Any) -> None:
    """Draw the share of p values up to x, one line per kind; under a null hypothesis it is the diagonal."""
    axes = plots.new_axes()
    with plots.style():
        axes.plot([0, 1], [0, 1], color=plots.GREY, linestyle="--", label="uniform")
        for number, (label, p) in enumerate(curves.items()):
            axes.ecdf(p.dropna(), color=plots.colour(number), label=f"{label}, {len(p)} seeds")
        axes.legend(**legend)
        plots.label_axes(axes, x=x, y="share of seeds with a p up to this")
    plots.save(axes.figure, path)


def write_frames(found: pd.DataFrame, table: pd.DataFrame, out: Path) -> None:
    """Write p_values.csv and rates.csv into a folder, which is made if it is missing."""
    out.mkdir(parents=True, exist_ok=True)
    found.to_csv(out / "p_values.csv", index=False)
    table.to_csv(out / "rates.csv", index=False)


def write_table(path: Path, title: str, rows: Sequence[Sequence[str]], note: str = "") -> None:
    """Write a reStructuredText table whose first row is its head, and a paragraph after it."""
    lines = [f".. list-table:: {title}", "   :header-rows: 1", ""]
    for first, *others in rows:
        lines += [f"   * - {first}", *(f"     - {cell}".rstrip() for cell in others)]
    if note:
        lines += ["", note]
    path.write_text("\n".join(lines) + "\n")
