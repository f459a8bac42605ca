"""How often the primary tests of source, length and order bias raise false alarms, and how often they find what was planted.

For each seed a planted collection is made, and its BM25 candidates are ranked by rankers with a planted bias of a given strength.
At strength 0 none of them has a preference, and every p value at or below 0.05 is a false alarm: the 99 % binomial interval must
overlap 3 to 7 %.

- source: the planted ranker. The rewritten text of a passage is the passage with one more word, and gets noise of its own;
- length: relevance with noise, plus an amount in proportion to the strength for each doubling of the number of words. (The
  planted ranker counts matched words, of which longer passages have more, so even its unbiased twin depends on length);
- order: the planted ranker. It scores passages one by one, so it could never raise a false alarm. Therefore every list gets its
  own noise, as from a model that samples its answers.

    python benchmarks/further_calibration.py --out further-calibration

writes p_values.csv (one row per seed), rates.csv (one row per test and strength), calibration.png and further_calibration.inc
(the table of the documentation), and prints the rates. Finished collections are kept in the folder: a run that was stopped
resumes, and a run with more seeds adds to it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyterrier as pt
from calibrating import LEVEL, draw, finished, rates, shared_options, shown, verdict, write_frames, write_table

from pyterrier_debias import Context, PlantedCollection, PlantedRanker, System
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data.planted_rankers import keyed_noise, machine_written
from pyterrier_debias.further.length import LengthBias
from pyterrier_debias.further.order import OrderBias
from pyterrier_debias.further.shared import SystemBias
from pyterrier_debias.further.source import SourceBias

#: Standard deviation of the noise that each list has of its own, in matched words.
OF_LISTS = 0.3


def source(collection: PlantedCollection) -> SystemBias:
    """Source bias between every passage and the same passage with one more word."""
    corpus = collection.corpus
    return SourceBias(corpus[["docno"]].assign(text=corpus["text"].map(machine_written)))


TESTS: dict[str, Callable[[PlantedCollection], SystemBias]] = {
    "source": source,
    "length": lambda collection: LengthBias(),
    "order": lambda collection: OrderBias(),
}


def knowing(collection: PlantedCollection, strength: float, seed: int) -> pt.Transformer:
    """A ranker that knows which passages are relevant, and prefers long ones."""
    relevant = set(collection.get_qrels().query("label > 0")[["qid", "docno"]].itertuples(index=False, name=None))

    def score(frame: pd.DataFrame) -> pd.DataFrame:
        known = [float(pair in relevant) for pair in zip(frame["qid"], frame["docno"])]
        words = np.log2([len(regex_word(text)) for text in frame["text"]])
        noise = keyed_noise(seed, frame["query"].tolist(), frame["text"].tolist())[:, 0]
        return ranked(frame.assign(score=2 * np.array(known) + noise + strength * words))

    return pt.apply.generic(score)


def sampling(ranker: pt.Transformer, seed: int) -> pt.Transformer:
    """A ranker with noise that depends on the list (the query and the order that it is given in) and on the passage."""

    def add(frame: pd.DataFrame) -> pd.DataFrame:
        given = frame.groupby("qid")["docno"].agg(" ".join)
        found = ranker(frame)
        noise = keyed_noise(seed, (found["qid"] + " " + found["qid"].map(given)).tolist(), found["docno"].tolist())[:, 0]
        return ranked(found.assign(score=found["score"] + OF_LISTS * noise))

    return pt.apply.generic(add)


def p_values(task: tuple[int, list[float], int, int]) -> list[dict[str, Any]]:
    """p of the three primary tests, on one collection and each strength of the rankers."""
    seed, strengths, topics, depth = task
    collection = PlantedCollection(seed, topics=topics)
    candidates = pt.Transformer.from_df(collection.get_runs()["bm25"]) >> collection.text_loader()
    rows = []
    for strength in strengths:
        for name, make in TESTS.items():
            planted = PlantedRanker(name, strength=strength, seed=seed)
            ranker = {"length": knowing(collection, strength, seed), "order": sampling(planted, seed)}.get(name, planted)
            system = System(name, candidates, ranker)
            context = Context([system], collection, collection.get_topics(), collection.get_qrels(), depth=depth, seed=seed)
            bias = make(collection)
            primary = next(finding for finding in bias.look(system, context) if finding.primary)
            interval = {"value": primary.value, "low": primary.low, "high": primary.high, "n": primary.n}
            rows.append({"strength": strength, "test": name, "seed": seed, "p": primary.p, **interval})
    return rows


def table_rows(table: pd.DataFrame) -> list[list[str]]:
    """One row per test, one column per strength."""
    strengths = sorted(table["strength"].unique())
    cells, seeds = table.set_index(["test", "strength"]), table.groupby("strength")["seeds"].max()
    rows = [["Test", *(f"strength {s:g} ({seeds[s]} seeds)" for s in strengths)]]
    return rows + [[test, *(shown(cells.loc[(test, s)]) for s in strengths)] for test in TESTS]


def main() -> None:
    shared = shared_options(seeds="collections without bias", out="further-calibration")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], parents=[shared])
    parser.add_argument("--power-seeds", type=int, default=100, help="collections at each other strength")
    parser.add_argument("--strengths", type=float, nargs="*", default=[0.25, 1.0])
    parser.add_argument("--depth", type=int, default=20, help="candidates per query")
    options = parser.parse_args()

    def tasks(there: pd.DataFrame) -> Iterator[tuple[int, list[float], int, int]]:
        known = set(zip(there["seed"], there["strength"])) if len(there) else set()
        for seed in range(max(options.seeds, options.power_seeds)):
            strengths = [0.0] * (seed < options.seeds) + options.strengths * (seed < options.power_seeds)
            if left := [strength for strength in strengths if (seed, strength) not in known]:
                yield seed, left, options.topics, options.depth

    options.out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    found = finished(options.out / "p_values.csv", tasks, p_values, options.workers, every=10)
    found = found.sort_values("strength", kind="stable")
    table = rates(found, ["strength", "test"])
    write_frames(found, table, options.out)
    draw({name: own["p"] for name, own in found[found["strength"] == 0].groupby("test")}, options.out / "calibration.png")
    title = (
        f"Share of seeds with p at or below {LEVEL} [99 % interval]; collections of {options.topics} topics; "
        f"``python benchmarks/further_calibration.py --seeds {options.seeds} --power-seeds {options.power_seeds} "
        f"--topics {options.topics}``"
    )
    write_table(options.out / "further_calibration.inc", title, table_rows(table))
    print(f"{len(found)} tests on {found['seed'].nunique()} collections in {time.perf_counter() - started:.0f} s")
    print(table.round(4).to_string(index=False))
    for row in table[table["strength"] == 0].to_dict("records"):
        print(f"false alarms, {row['test']}: {shown(row)} over {row['seeds']} seeds: {verdict(row)}")
    null = found[found["strength"] == 0].groupby("test")
    print("mean figure without bias and its standard error:", null["value"].agg(["mean", "sem"]).round(4).to_dict("index"))


if __name__ == "__main__":
    main()
