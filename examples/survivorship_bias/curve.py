"""MRR@10 over the queries that a shallower labelling would have kept: Figure 5.1 and Appendix A of Gupta (2021).

    python examples/survivorship_bias/curve.py --dataset planted --split full --out curve
    python examples/survivorship_bias/curve.py --dataset irds:msmarco-qna/dev --qrels qrels.dev.tsv --docno passage \
        --run BM25=run.bm25.trec.gz --out curve

takes the lists that labellers were shown from the dataset, and runs from files (or the dataset's own). The second call is the
setting of the thesis: lists and queries of MS MARCO QnA, and runs over the passages of `msmarco-passage`, whose judgements
(`--qrels`) have passage ids. The program writes

- `figure_5_1.png` and `strata.png`: means over nested subsets, and over queries by the rank at which they were first answered;
- `appendix_a.csv` and `appendix_a_zero_filled.csv`: a row for all queries and for each threshold, a column per system;
- `table.csv`, `strata.csv`, `trend.csv`, `identity.csv`, `differences.csv`: all figures with n and intervals;
- `curve.inc`: the appendix and the trends for the documentation.

    python examples/survivorship_bias/curve.py --published --out curve

prints what follows from the published figures: that the mean over all queries is the mean over answered queries times their
share, and the means by first relevant rank, which are differences of the published sums.
"""

import argparse
import sys
from pathlib import Path

import pandas as pd

from pyterrier_debias import InputError, PlantedCollection, PlantedRanker, open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.data.readers import read_qrels, read_run
from pyterrier_debias.survivorship.formulas.nested import strata_of_nested, zero_filled
from pyterrier_debias.survivorship.measures.curve import SurvivorshipCurve, SurvivorshipResult

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import markdown, named, restructured

#: Queries of msmarco-qna/dev, and how many of them were answered within k passages, k = 1 to 10.
TOTAL, SIZES = 101_093, [8197, 15543, 22060, 27858, 33062, 38024, 42669, 47146, 51344, 55568]
CAPTIONS = {
    "published_identity": "Published MRR@10 (k = 10) times the share answered, beside the published mean over all queries",
    "published_strata": "MRR@10 by the rank at which labellers first met an answer, from differences of the published sums",
}
#: MRR@10 for k = 10 to 1, and over all queries.
PUBLISHED = {
    "BM25": ([0.18670, 0.18758, 0.18688, 0.18725, 0.18646, 0.18651, 0.18605, 0.18625, 0.18327, 0.18344], 0.10263),
    "MonoT5": ([0.36467, 0.36404, 0.36316, 0.36189, 0.36058, 0.35792, 0.35627, 0.35454, 0.34951, 0.34806], 0.20049),
    "ANCE": ([0.28577, 0.28591, 0.28566, 0.28567, 0.28419, 0.28391, 0.28348, 0.28186, 0.27805, 0.27741], 0.15711),
    "ColBERT": ([0.33124, 0.33095, 0.33035, 0.32892, 0.32674, 0.32452, 0.32340, 0.32220, 0.31789, 0.31509], 0.18210),
}


def published() -> tuple[pd.DataFrame, pd.DataFrame]:
    """The identity in the published figures, and the means by first relevant rank."""
    rows = [(name, means[0], SIZES[-1] / TOTAL, zero_filled(means[0], SIZES[-1], TOTAL), every)
            for name, (means, every) in PUBLISHED.items()]  # fmt: skip
    identity = pd.DataFrame(rows, columns=["ranker", "answered", "share", "answered_x_share", "all_as_printed"])
    strata = pd.DataFrame({"first_relevant_rank": range(1, 11)})
    return identity, strata.assign(**{name: strata_of_nested(SIZES, means[::-1]) for name, (means, _) in PUBLISHED.items()})


def write(result: SurvivorshipResult, out: Path, measure: str | None) -> None:
    """Write all tables and pictures."""
    for name in ("table", "strata", "trend", "differences"):
        write_whole(out / f"{name}.csv", getattr(result, name).to_csv(index=False))
    write_whole(out / "identity.csv", result.identity().to_csv(index=False))
    tables = {"appendix_a": result.appendix(measure), "appendix_a_zero_filled": result.appendix(measure, unanswered="zero_fill")}
    for name, table in tables.items():
        write_whole(out / f"{name}.csv", table.to_csv(index=False))
    for name, draw in (("figure_5_1", result.plot), ("strata", result.plot_strata)):
        axes = plots.new_axes()
        draw(axes, measure=measure)
        plots.save(axes.figure, out / f"{name}.png")
    trend = result.trend[result.trend["type"] == "all types"].drop(columns=["type", "p_corrected"])
    shown = {"appendix": tables["appendix_a"], "trend": trend, "identity": result.identity()}
    write_whole(out / "curve.inc", "\n".join(restructured(table, name) for name, table in shown.items()))
    print("\n\n".join(markdown(table) for table in shown.values()))
    print("\n".join([*result.notes, f"({result.convention})", f"\nwritten to {out}"]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="planted, a folder, or an id of ir_datasets as irds:...")
    parser.add_argument("--split", help="split of the dataset; the planted collection's 'full' includes unanswered queries")
    parser.add_argument("--topics", type=int, default=60, help="topics of the planted collection (default 60)")
    parser.add_argument("--strength", type=float, default=1.0, help="strength of the planted survivorship bias (default 1)")
    parser.add_argument("--run", action="append", default=[], metavar="NAME=FILE", help="a run; may be repeated")
    parser.add_argument("--qrels", type=Path, help="judgements, instead of the dataset's")
    parser.add_argument("--docno", default="qna", choices=["qna", "passage"], help="passage: docnos match up to the hyphen")
    parser.add_argument("--measure", default="RR@10", help="measure (default RR@10)")
    parser.add_argument("--min-label", type=int, default=1, help="lowest label of an answer (default 1)")
    parser.add_argument("--ranks", type=int, default=10, help="the last threshold (default 10)")
    parser.add_argument("--resamples", type=int, default=9999, help="permutations of a test (default 9999)")
    parser.add_argument("--published", action="store_true", help="print what follows from the published figures, and stop")
    parser.add_argument("--out", type=Path, default=Path("curve"), help="folder for results")
    options = parser.parse_args()
    if not options.published and not options.dataset:
        parser.error("give --dataset or --published")
    try:
        if options.published:
            for name, table in zip(("published_identity", "published_strata"), published()):
                write_whole(options.out / f"{name}.csv", table.to_csv(index=False))
                write_whole(options.out / f"{name}.inc", restructured(table, CAPTIONS[name]))
                print(f"{markdown(table)}\n")
            return 0
        if options.dataset == "planted":
            dataset = PlantedCollection(topics=options.topics, survivorship=options.strength)
        else:
            dataset = open_dataset(options.dataset)
        topics = dataset.get_topics(options.split) if options.split else dataset.get_topics()
        qrels = read_qrels(options.qrels) if options.qrels else dataset.get_qrels()
        given = named("--run", options.run)
        systems = {name: read_run(path) for name, path in given.items()} or dict(provided(dataset, "get_runs") or {})
        if not systems:
            raise InputError(f"{options.dataset} has no run; name some with --run NAME=FILE")
        if options.dataset == "planted":
            run = systems["bm25"].merge(topics[["qid", "query"]], on="qid")
            systems["unbiased reranker"] = PlantedRanker(strength=0.0)(dataset.text_loader()(run))
        curve = SurvivorshipCurve(
            systems, dataset, qrels, measures=[options.measure], ranks=options.ranks, min_label=options.min_label,
            docno=options.docno, resamples=options.resamples, baseline=next(iter(systems)),
        )  # fmt: skip
        write(curve.evaluate(topics), options.out, None)
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
