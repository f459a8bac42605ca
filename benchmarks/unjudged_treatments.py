"""Which treatment of unjudged documents comes closest to the result of full judgements?

The deep judgements of TREC Deep Learning are thinned out in several ways, and six runs are evaluated with the remaining ones.
Unjudged documents count as not relevant, are removed, or get inferred labels. The result under full judgements is the truth.

    python benchmarks/unjudged_treatments.py --dataset msmarco_trec_dl --out unjudged-treatments

writes treatments.csv (one row per way of thinning, treatment and run) and unjudged_treatments.inc (the table of the
documentation), and prints the table.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import pandas as pd

from pyterrier_debias import open_dataset
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.pooling.measures.unjudged import ExpectedNDCG, infer_judgements, kendall_tau

TREATMENTS = ("as non-relevant", "removed", "inferred")


def thinned(qrels: pd.DataFrame, runs: dict[str, pd.DataFrame], pool: str) -> dict[str, pd.DataFrame]:
    """The remaining judgements, by the name of the way of thinning."""
    tops = pd.concat([run[run["rank"] < 10].assign(run=name) for name, run in runs.items()])
    others = tops[tops["run"] != pool][["qid", "docno"]].drop_duplicates()
    half = [keyed_hash(0, qid, docno) % 2 == 0 for qid, docno in zip(qrels["qid"], qrels["docno"])]
    first = runs[pool]
    return {
        f"first 10 of {pool}": qrels.merge(first[first["rank"] < 10][["qid", "docno"]]),
        f"first 30 of {pool}": qrels.merge(first[first["rank"] < 30][["qid", "docno"]]),
        f"first 10 of all but {pool}": qrels.merge(others),
        "half, at random": qrels[half],
    }


def evaluated(runs: dict[str, pd.DataFrame], qrels: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    """nDCG@10 by the full judgements and under each treatment, by run and query."""
    qids = list(dict.fromkeys(qrels["qid"]))
    known = [qid for qid in qids if qid in set(kept["qid"])]
    measures = ["nDCG@10", "nDCG(judged_only=True)@10", ExpectedNDCG(infer_judgements(runs, kept)) @ 10]
    frames = {}
    for name, run in runs.items():
        truth = per_query(run, qrels, ["nDCG@10"], qids).set_axis(["truth"], axis=1)
        frames[name] = truth.join(per_query(run, kept, measures, known).set_axis(list(TREATMENTS), axis=1)).fillna(0.0)
    return pd.concat(frames, names=["run"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", type=Path, required=True, help="a folder with deep judgements and several runs")
    parser.add_argument("--splits", nargs="*", default=["dl19", "dl20"])
    parser.add_argument("--pool", default="bm25", help="the run that judgements are pooled from")
    parser.add_argument("--out", type=Path, default=Path("unjudged-treatments"))
    options = parser.parse_args()

    rows = []
    for split in options.splits:
        dataset = open_dataset(options.dataset, split=split)
        runs, qrels = dataset.get_runs(), dataset.get_qrels()
        for name, kept in thinned(qrels, runs, options.pool).items():
            found = evaluated(runs, qrels, kept)
            means = found.groupby("run").mean()
            for treatment in TREATMENTS:
                error = (found[treatment] - found["truth"]).groupby("run")
                for run in runs:
                    rows.append(
                        {
                            "split": split,
                            "judgements": name,
                            "treatment": treatment,
                            "run": run,
                            "truth": means.loc[run, "truth"],
                            "value": means.loc[run, treatment],
                            "error": error.mean()[run],
                            "absolute": error.apply(lambda e: e.abs().mean())[run],
                            "tau": float(kendall_tau(means["truth"].to_numpy(), means[treatment].to_numpy())),
                        }
                    )
    frame = pd.DataFrame(rows)
    options.out.mkdir(parents=True, exist_ok=True)
    frame.to_csv(options.out / "treatments.csv", index=False)
    order = ["split", "judgements", "treatment"]
    table = frame.groupby(order, sort=False)[["error", "absolute", "tau"]].mean()
    print(table.round(3).to_string())
    lines = [
        f".. list-table:: ``nDCG@10`` of {frame['run'].nunique()} runs on thinned judgements compared with full ones: mean "
        f"error, mean absolute error per query, Kendall's tau of the order; "
        f"``python benchmarks/unjudged_treatments.py --dataset {options.dataset.name}``",
        "   :header-rows: 1",
        "",
        "   * - Judgements kept",
        *(f"     - {treatment}" for treatment in TREATMENTS),
    ]
    for split, name in dict.fromkeys(zip(frame["split"], frame["judgements"])):
        lines.append(f"   * - {split}: {name}")
        for treatment in TREATMENTS:
            row = table.loc[(split, name, treatment)]
            lines.append(f"     - {row['error']:+.3f}, {row['absolute']:.3f}, {row['tau']:+.2f}")
    (options.out / "unjudged_treatments.inc").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
