"""Do negatives from stronger retrievers hurt, and does CET help? Recall, false negatives and quality of rankers side by side.

    python examples/pooling_bias/retrievers.py --dataset nfcorpus --out retrievers

trains the same ranker on the candidates of several retrievers, from weak to strong, by plain training and by CET (and, with
`--oracle`, with an oracle that never draws a hidden document as a negative). Each ranker re-ranks the list of the retriever that
it was trained on. The table has Recall@k of the lists, the number of false negatives in training, and the rankers' quality on all
judgements, as Figures 1 and 3 and Table 2 of Cai et al. (CIKM 2022) do. `quality.png` is the picture.

Retrievers are `bm25`, `dense` (all-MiniLM-L6-v2), `weak` (its first layer) and `fusion` (reciprocal ranks of bm25 and dense);
for collections with their own runs (TREC DL has six), these runs are used. `--retrievers` selects others. With `--test NAME` all
rankers re-rank one list, so that recall does not affect their comparison.

A run that was stopped continues with the same command. The small setting is the default; `--estimate` prints how long it takes.
`--config full.json` has the paper's settings, for MS MARCO through ir_datasets (see corrections.py).

What it cannot tell: the effect of a retriever's strength alone. Lists of stronger retrievers contain more hidden documents, but
also harder true negatives, and leave more to gain in the test. Figures for runs of TREC DL depend on its pool, to which BM25
contributed: only judged passages with a text are known to be relevant.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from protocol import CORRECTIONS, RETRIEVERS, carry_out, opened, parser, recall, seconds_of
from workshop import corrected, minutes, program, write_results

from pyterrier_debias.core import plots
from pyterrier_debias.pooling.measures.hidden_result import HiddenResult

ARMS = ("plain", "CET")

NOTES = [
    "nDCG@10 and Recall@k: of the retriever's list for the test queries, all judgements. hidden_share: hidden positives among "
    "the unlabelled candidates of the training; false_share: among the negatives that plain training was shown; false_weight: "
    "their share of the weight under CET.",
    "plain, CET, oracle: nDCG@10 of trained rankers on all judgements; low, high: 95 %, bootstrap over seeds and queries. "
    "difference: CET - plain; p: randomisation test over queries; p_corrected: Holm, over retrievers. queries: those for which "
    "the retriever finds anything; rankers are compared over these queries, lists over all queries.",
]


def row_of(name: str, found: dict[str, float], result: HiddenResult) -> dict[str, object]:
    """A line of the table: the list, the false negatives, the rankers."""
    table = result.table
    full = table[(table["judgements"] == "full") & (table["measure"] == table["measure"].iloc[0])].set_index("correction")
    met = result.false_negatives.set_index("correction")
    line: dict[str, object] = {"retriever": name, **found}
    line["hidden_share"] = met.at["plain", "hidden"] / met.at["plain", "candidates"]
    line["false_share"], line["false_weight"] = met.at["plain", "false_share"], met.at["CET", "false_weight"]
    for correction in result.corrections:
        line[correction] = full.at[correction, "mean"]
        line[f"{correction}_low"], line[f"{correction}_high"] = full.loc[correction, ["low", "high"]]
    line["difference"] = full.at["CET", "difference"]
    line["difference_low"], line["difference_high"] = full.loc["CET", ["difference_low", "difference_high"]]
    return {**line, "p": full.at["CET", "p"], "seeds": full.at["CET", "seeds"], "queries": full.at["CET", "queries"]}


def picture(table: pd.DataFrame, path: Path) -> None:
    """False negatives and quality, retriever by retriever, from weak to strong."""
    import matplotlib.pyplot as plt

    at = range(len(table))
    with plots.style():
        figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4))
        shares = (("Recall@10", "Recall@10 of the list"), ("hidden_share", "hidden share of candidates"),
                  ("false_share", "false negatives, plain"), ("false_weight", "their weight, CET"))  # fmt: skip
        for number, (column, label) in enumerate(shares):
            left.plot(at, table[column], marker="o", color=plots.colour(number), label=label)
        right.plot(at, table["nDCG@10"], marker="o", linestyle="--", color=plots.GREY, label="the list itself")
        for number, name in enumerate(name for name in ("plain", "CET", "oracle") if name in table):
            limits = [table[name] - table[f"{name}_low"], table[f"{name}_high"] - table[name]]
            moved = [x + 0.06 * (number - 1) for x in at]
            right.errorbar(moved, table[name], yerr=limits, marker="o", color=plots.colour(number), label=name)
        for axes in (left, right):
            axes.set_xticks(list(at), table["retriever"])
            axes.legend()
        plots.label_axes(left, x="retriever of the candidates", y="share", title="What training meets")
        n = int(table["queries"].iloc[0])
        plots.label_axes(right, x="retriever of the candidates", y="nDCG@10, all judgements", title="Rankers", n=n)
        plots.save(figure, path)


def ordered(lists: Sequence[dict[str, object]]) -> pd.DataFrame:
    """The table from the weakest to the strongest list, with corrected p values."""
    table = pd.DataFrame(lists).sort_values("nDCG@10", kind="stable", ignore_index=True)
    return corrected(table)


def main() -> None:
    options = parser(__doc__)
    which = f"retrievers: {', '.join(RETRIEVERS)}, or runs (default: the collection's runs, otherwise all four)"
    options.add_argument("--retrievers", nargs="+", help=which)
    options.add_argument("--test", help="the list that all rankers re-rank (default: that of their own retriever)")
    options.add_argument("--oracle", action="store_true", help="also train an oracle, which takes half as long again")
    options = options.parse_args()
    settings, lists, setups, sizes = opened(options, "retrievers")
    names = options.retrievers or list(lists.source.runs) or list(RETRIEVERS)
    found = {name: recall(lists, setups, name) for name in names}
    print(pd.DataFrame(found).T.to_string(float_format="{:.3f}".format), flush=True)
    if options.estimate:
        seconds = seconds_of(setups, [*ARMS, *["oracle"] * options.oracle], negatives=names)
        print(f"about {minutes(seconds)} for all of it on this machine")
        return
    results = {}
    for name in names:
        made = {"negatives": name, "test": options.test, "oracle": "oracle" if options.oracle else None}
        results[name] = carry_out(setups, lambda setup: {arm: CORRECTIONS[arm](setup) for arm in ARMS}, options.out, **made)
    table = ordered([row_of(name, found[name], result) for name, result in results.items()])
    picture(table, options.out / "quality.png")
    effectiveness = pd.concat([result.table.assign(retriever=name) for name, result in results.items()], ignore_index=True)
    tables = {
        "retrievers": table,
        "effectiveness": effectiveness,
        "false_negatives": pd.concat([one.false_negatives.assign(retriever=name) for name, one in results.items()]),
        "sizes": sizes,
    }
    notes = dict.fromkeys(note for result in results.values() for note in result.notes)
    tested = f"the list of {options.test}" if options.test else "each ranker's own list"
    title = f"Negatives of several retrievers: {lists.source.name}, tested on {tested}"
    caption = f"Retrievers of negatives, and rankers trained with them, on {lists.source.name}; tested on {tested}"
    write_results(options.out, title, settings, tables, [*NOTES, *notes], {"retrievers": caption})


if __name__ == "__main__":
    sys.exit(program(main))
