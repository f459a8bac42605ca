"""The pictures of the documentation's gallery: what each bias looks like when it is planted and when it is not.

    python examples/gallery.py --out pyterrier_debias/pt_docs

makes planted collections in which one bias is as strong as possible, measures it with the code that its page shows, and writes
`gallery_position.png`, `gallery_gender.png`, `gallery_linguistic.png` and `gallery_pooling.png`. It also writes
`gallery_source.png`, `gallery_length.png` and `gallery_order.png`, which show a bias as a function of the planted strength. It
needs no model and no download, and takes a minute on one core with 120 topics (`--topics`). `survivorship_bias/curve.py` draws
the picture of survivorship bias.
"""

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import nDCG
from matplotlib.axes import Axes

from pyterrier_debias import (
    ARaBEvaluator,
    Context,
    Disparity,
    ExpectedNDCG,
    PlantedCollection,
    PlantedRanker,
    PositionSensitivity,
    System,
)
from pyterrier_debias.core import plots
from pyterrier_debias.core.statistics import bootstrap_interval
from pyterrier_debias.data.planted_rankers import machine_written
from pyterrier_debias.further.length import LengthBias
from pyterrier_debias.further.order import OrderBias
from pyterrier_debias.further.shared import SystemBias
from pyterrier_debias.further.source import SourceBias
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.pooling.measures.unjudged import infer_judgements

BIASED, TWIN = "biased ranker", "its unbiased twin"


def rankers(bias: str) -> dict[str, PlantedRanker]:
    """A ranker with this bias, and the same ranker without it."""
    return {BIASED: PlantedRanker(bias, strength=1.0, seed=0), TWIN: PlantedRanker(bias, strength=0.0, seed=0)}


def points(axes: Axes, names: Sequence[str], groups: dict[str, pd.DataFrame]) -> None:
    """Draw points with intervals, one colour per group: columns ``value``, ``low`` and ``high``, in the order of ``names``."""
    for number, (group, rows) in enumerate(groups.items()):
        places = np.arange(len(names)) + (number - (len(groups) - 1) / 2) / (len(groups) + 1)
        errors = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
        axes.errorbar(places, rows["value"], yerr=errors, fmt="o", color=plots.colour(number), label=group)
    axes.set_xticks(range(len(names)), names)
    axes.legend()


def position(axes: Axes, topics: int) -> None:
    """How nDCG@10 changes when passages are rotated, and when the answer is moved from the start to the middle and to the end."""
    dataset = PlantedCollection(seed=1, topics=topics, position=1)
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    changes = {}
    for name, ranker in rankers("position").items():
        table = PositionSensitivity(candidates >> ranker, dataset=dataset).evaluate(dataset.get_topics()).table
        changes[name] = table[table["measure"] == "nDCG@10"].rename(columns={"difference": "value"})
    axes.axhline(0, color=plots.GREY, linewidth=1)
    points(axes, list(changes[BIASED]["comparison"]), changes)
    plots.label_axes(axes, x="passages", y="change of nDCG@10", n=int(changes[BIASED]["n"].iloc[0]))


def gender(axes: Axes, topics: int) -> None:
    """ARaB over cut-offs, on queries that name no gender."""
    dataset = PlantedCollection(seed=1, topics=topics, gender=0)
    asked = dataset.get_topics("full")
    candidates = (pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader())(asked)
    evaluator = ARaBEvaluator([1, 3, 5, 10, 20], query_filter=neutral_qids(asked))
    runs = {name: ranker(candidates) for name, ranker in rankers("gender").items()}
    evaluator.evaluate(runs, asked).plot(axes, measure="ARaB")


def linguistic(axes: Axes, topics: int) -> None:
    """nDCG@10 against the complexity of the wording that was planted."""
    dataset = PlantedCollection(seed=1, topics=topics, linguistic=0, survivorship=0)
    asked = dataset.get_topics().merge(dataset.truth["topics"][["qid", "complexity"]], on="qid")
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    systems = {name: candidates >> ranker for name, ranker in rankers("linguistic").items()}
    values = pt.Experiment(systems, asked, dataset.get_qrels(), [nDCG @ 10], perquery=True, plan="tree")
    Disparity(controls=["relevant"]).evaluate(values, asked, dataset.get_qrels()).plot_curve(axes)


def pooling(axes: Axes, topics: int) -> None:
    """nDCG@10 of BM25, whose first passages were judged, and of a ranker that was not pooled, with four sets of judgements."""
    dataset = PlantedCollection(seed=1, topics=topics, pooling=0.7, survivorship=0)
    asked, pooled, full = dataset.get_topics(), dataset.get_qrels(), dataset.get_qrels("full")
    bm25 = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    runs = {"BM25 (pooled)": bm25(asked), "another ranker": (bm25 >> dataset.text_loader() >> PlantedRanker(seed=0))(asked)}
    inferred = ExpectedNDCG(infer_judgements(runs, pooled)) @ 10
    ways = {
        "as non-relevant": (pooled, nDCG @ 10), "removed": (pooled, nDCG(judged_only=True) @ 10), "inferred": (pooled, inferred),
        "complete\njudgements": (full, nDCG @ 10),
    }  # fmt: skip
    groups = {}
    for name, run in runs.items():
        rows = []
        for qrels, measure in ways.values():
            found = pt.Experiment([run], asked, qrels, [measure], perquery=True)
            interval = bootstrap_interval(found["value"].to_numpy(), seed=0)
            rows.append({"value": interval.estimate, "low": interval.low, "high": interval.high})
        groups[name] = pd.DataFrame(rows)
    points(axes, list(ways), groups)
    plots.label_axes(axes, x="unjudged documents", y="nDCG@10", n=full["qid"].nunique())


def by_strength(axes: Axes, topics: int, bias: SystemBias, *, name: str) -> None:
    """The primary figure of a bias as a function of the strength of a ranker's bias."""
    dataset = PlantedCollection(seed=1, topics=topics)
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    strengths = (0.0, 0.5, 1.0)
    systems = [System(f"{s:g}", candidates, PlantedRanker(name, strength=s, seed=0)) for s in strengths]
    context = Context(systems, dataset, dataset.get_topics(), dataset.get_qrels(), depth=20)
    found = [next(finding for finding in bias.look(system, context) if finding.primary) for system in systems]
    value, low, high = (np.array([getattr(one, end) for one in found]) for end in ("value", "low", "high"))
    axes.axhline(0, color=plots.GREY, linewidth=1)
    axes.errorbar(strengths, value, yerr=plots.ends(value, low, high), fmt="o-", color=plots.colour(0))
    plots.label_axes(axes, x=f"strength of the planted {name} bias", y=textwrap.fill(bias.axis, 34), n=found[0].n)


def source(axes: Axes, topics: int) -> None:
    """How far originals are ranked above rewritten texts."""
    corpus = PlantedCollection(seed=1, topics=topics).corpus
    by_strength(axes, topics, SourceBias(corpus[["docno"]].assign(text=corpus["text"].map(machine_written))), name="source")


def length(axes: Axes, topics: int) -> None:
    """How long the first documents are, compared with documents of the same relevance."""
    by_strength(axes, topics, LengthBias(), name="length")


def order(axes: Axes, topics: int) -> None:
    """How far a result follows the order of the given list."""
    by_strength(axes, topics, OrderBias(shuffles=1), name="order")


DRAWN: dict[str, Callable[[Axes, int], None]] = {
    "position": position,
    "gender": gender,
    "linguistic": linguistic,
    "pooling": pooling,
    "source": source,
    "length": length,
    "order": order,
}


def main() -> int:
    """Draw every picture; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the pictures")
    parser.add_argument("--topics", type=int, default=120, help="topics of each planted collection")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWN.items():
        with plots.style():
            axes = plots.new_axes(6.4, 3.6)
            draw(axes, options.topics)
            plots.save(axes.figure, options.out / f"gallery_{name}.png", dpi=100)
            plots.close(axes.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
