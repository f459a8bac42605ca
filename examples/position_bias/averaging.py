"""How much position bias is removed by averaging scores over rotations of a passage, without training, and at what cost?

    python examples/position_bias/averaging.py --dataset msmarco_trec_dl dl19 dl20 --out averaging

reranks BM25's candidates with an unchanged ranker, and with the mean and the highest of its scores over r rotations of each
passage (`AverageRotations`). For each of these scores it rotates relevant passages at random, one at a time, and counts the ranks
that they move down among the unchanged candidates, as the audit does. nDCG@10 is measured on unchanged passages.

A collection is a folder, file or `irds:` id, followed by its splits if it has several; splits are measured together. Give
`--dataset` again for another collection. Here the ranker encodes each text only once; the column *passages read* shows the cost
for a deployed ranker.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import experiment  # noqa: F401 -- it finds workshop
import numpy as np
import pandas as pd
from workshop import draw, ends, program, share_of_mean_closed, write_results

from pyterrier_debias import BiEncoder, InputError, RotatePassages, open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.frames import with_string_ids
from pyterrier_debias.core.statistics import bootstrap_interval, correct, detectable_effect, wilcoxon
from pyterrier_debias.position.data.averaging import COMBINE, AverageRotations
from pyterrier_debias.position.measures.sensitivity_result import displacements
from pyterrier_debias.report.first_stage import first_stage
from pyterrier_debias.report.models import find_model

MEASURE = "nDCG@10"


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        model: A bi-encoder: folder, hub name, or ``minilm``.
        depth: Candidates per query.
        queries: Largest number of queries per split of a collection.
        rotations: The numbers r of rotations over which scores are combined.
        draws: Random rotations of each relevant passage.
        resamples: Bootstrap resamples.
        seed: Seed of the draws of queries and rotations, and of the resamples.
    """

    model: str = "minilm"
    depth: int = 30
    queries: int = 300
    rotations: tuple[int, ...] = (2, 4)
    draws: int = 2
    resamples: int = 9999
    seed: int = 0


def candidates_of(specs: list[str], settings: Settings, folder: Path) -> tuple[str, pd.DataFrame, pd.DataFrame, list[str]]:
    """Name of a collection, BM25's candidates with texts, judgements, and the qids of the queries."""
    parts, labels = [], []
    for split in specs[1:] or [None]:
        dataset = open_dataset(specs[0], split=split)
        qrels = with_string_ids(dataset.get_qrels(), "qrels")
        topics = with_string_ids(dataset.get_topics(), "topics")[["qid", "query"]]
        topics = topics[topics["qid"].isin(set(qrels.loc[qrels["label"] > 0, "qid"]))]
        topics = draw(topics, settings.queries, settings.seed, "averaging")
        stage = first_stage(dataset, folder, depth=settings.depth)
        found = with_string_ids(stage.candidates(topics), "run")[["qid", "docno", "score", "rank"]]
        found = found[found["rank"] < settings.depth].merge(topics, on="qid")
        parts.append(dataset.text_loader()(found))
        labels.append(qrels[qrels["qid"].isin(set(topics["qid"]))])
    candidates, qrels = (pd.concat(several, ignore_index=True) for several in (parts, labels))
    qids = sorted(set(qrels["qid"]))
    if len(qids) < len(labels) or qrels.duplicated(["qid", "docno"]).any():
        raise InputError(f"{specs[0]}: its splits share queries; measure them in separate runs")
    return dataset.name + (f" ({', '.join(specs[1:])})" if specs[1:] else ""), candidates, qrels, qids


def measured(ranker, candidates: pd.DataFrame, qrels: pd.DataFrame, qids: list[str], settings: Settings) -> pd.DataFrame:
    """For each query: nDCG@10, and how many ranks its relevant passages move down (NaN if no candidate is relevant)."""
    original = ranker(candidates)
    relevant = candidates.merge(qrels.loc[qrels["label"] >= 1, ["qid", "docno"]], on=["qid", "docno"])
    arms = [original.assign(arm="original", draw=0)]
    for number in range(settings.draws):
        rotated = RotatePassages(seed=settings.seed, draw=number)(relevant)
        arms.append(ranker(rotated).assign(arm="rotated", draw=number))
    columns = ["qid", "docno", "arm", "draw", "score", "rank"]
    moved = displacements(pd.concat([arm[columns] for arm in arms], ignore_index=True), qrels, qids)
    found = per_query(original, qrels, [MEASURE], qids)
    return found.assign(displacement=moved.groupby("qid")["displacement"].mean().reindex(found.index))


def table_of(by_system: dict[str, pd.DataFrame], sizes: dict[str, int], settings: Settings) -> pd.DataFrame:
    """One row per system: displacement, the removed share of the first system's displacement, nDCG@10 and its change."""
    options = {"resamples": settings.resamples, "seed": settings.seed}
    first = next(iter(by_system.values()))
    moved = first["displacement"].dropna().index
    rows = []
    for name, found in by_system.items():
        before, after = first.loc[moved, "displacement"].to_numpy(), found.loc[moved, "displacement"].to_numpy()
        row = {"scores": name, "passages read": sizes[name], **ends("displacement", bootstrap_interval(after, **options))}
        row[MEASURE] = found[MEASURE].mean()
        if found is not first:
            gone = bootstrap_interval(np.column_stack([before, after]), share_of_mean_closed, method="percentile", **options)
            change = bootstrap_interval((found[MEASURE] - first[MEASURE]).to_numpy(), **options)
            row |= ends("share closed", gone) | ends("change", change)
            p = wilcoxon(first[MEASURE].to_numpy(), found[MEASURE].to_numpy()).p
            row |= {"p": p, "detectable": detectable_effect(change)}
        rows.append({**row, "queries": len(found)})
    table = pd.DataFrame(rows)
    tested = table["p"].notna()
    table.loc[tested, "p_corrected"] = correct(table.loc[tested, "p"].to_numpy())
    last = ["detectable", "queries"]
    return table[[*(column for column in table.columns if column not in last), *last]]


NOTES = [
    "displacement: ranks by which a relevant passage moves down if it alone is rotated, mean over a query's passages and draws.",
    "share closed: 1 - displacement / displacement of the first row.",
    "change: change of nDCG@10 from the first row, on unchanged passages; detectable: the smallest change that would have been "
    "found (two-sided test at 5 %, power 80 %, before correction).",
    "p: Wilcoxon's signed-rank test of the change; p_corrected: Holm, over the rows of a collection.",
    "low and high: 95 % interval from a bootstrap over queries.",
    "passages read: number of texts that the ranker scores per candidate.",
]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Settings()
    options.add_argument("--dataset", action="append", nargs="+", required=True, metavar="SPEC", help="collection and its splits")
    options.add_argument("--model", default=default.model, help=f"a bi-encoder (default: {default.model})")
    options.add_argument("--rotations", nargs="+", type=int, default=default.rotations, help="rotations r (default: 2 4)")
    for name in ("depth", "queries", "draws", "resamples", "seed"):
        options.add_argument(f"--{name}", type=int, default=getattr(default, name), help="(default: %(default)s)")
    options.add_argument("--out", type=Path, required=True, help="folder for the tables")
    given = vars(options.parse_args())
    datasets, out = given.pop("dataset"), given.pop("out")
    settings = Settings(**{**given, "rotations": tuple(given["rotations"])})
    tables = []
    for specs in datasets:
        with tempfile.TemporaryDirectory() as folder:
            name, *asked = candidates_of(specs, settings, Path(folder))
        ranker = BiEncoder(find_model(settings.model).source)
        systems, sizes = {"as they are": ranker}, {"as they are": 1}
        for r in settings.rotations:
            for combine in COMBINE:
                told = f"{'mean' if combine == 'mean' else 'highest'} of {r}"
                systems[told], sizes[told] = AverageRotations(ranker, r, combine=combine), r
        with ranker.remembering(1_000_000):
            by_system = {told: measured(system, *asked, settings) for told, system in systems.items()}
        tables.append(table_of(by_system, sizes, settings).assign(collection=name))
        print(tables[-1].to_string(index=False), flush=True)
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "collection", table.pop("collection"))
    captions = {"averaging": "Displacement and nDCG@10 with scores over several rotations"}
    write_results(out, "Scores over rotations", settings, {"averaging": table}, NOTES, captions)


if __name__ == "__main__":
    sys.exit(program(main))
