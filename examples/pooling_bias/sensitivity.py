"""How much do CET's temperature and RocketQA's threshold matter? Figure 4 of Cai et al. (CIKM 2022) under hidden judgements.

    python examples/pooling_bias/sensitivity.py --dataset nfcorpus --out sensitivity

trains a ranker by CET at several temperatures tau (`--taus`), and by denoising at several thresholds (`--thresholds`: candidates
that a teacher scores lower are negatives), on the judgements that a pool leaves, and evaluates on all judgements. They are
compared with plain training and with an oracle that never draws a hidden document. `sensitivity.png` is the picture. Collections,
pool, candidates and teacher are as in corrections.py.

A run that was stopped continues with the same command. The small setting is the default; `--estimate` prints how long it takes.

What it cannot tell: the best value for another collection or ranker. The best of several values on the test queries is partly
luck, so do not compare it with methods that were run with one value. A threshold depends on how the teacher is calibrated: if no
candidate is below it, denoising falls back to the lowest-scored ones.
"""

import sys
from pathlib import Path

import pandas as pd
from protocol import CORRECTIONS, carry_out, opened, parser, seconds_of
from workshop import minutes, program, write_results

from pyterrier_debias import CETReranker, DenoisedNegatives
from pyterrier_debias.core import plots
from pyterrier_debias.pooling.measures.hidden_result import HiddenResult

TAUS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)
THRESHOLDS = (0.05, 0.1, 0.5, 0.9)

NOTES = [
    "full, pooled: nDCG@10 against all judgements and against those that the pool left. low, high: 95 %, bootstrap over seeds "
    "and queries; difference: from plain training; gap_closed: share of the oracle's gain over it, "
    "missing where that gain may be 0.",
    "false_share: hidden positives among the negatives that were shown; false_weight: their share of the weight; auc: the chance "
    "that a true negative counts more than a hidden positive.",
]


def corrections(setup, taus, thresholds):
    """The corrections to compare, by name."""
    made = {"plain": CORRECTIONS["plain"](setup)}
    for tau in taus:
        made[f"CET, tau {tau:g}"] = CETReranker(setup.ranker(), tau=tau, training=setup.training())
    for below in thresholds:
        denoised = DenoisedNegatives(below=below, depth=setup.settings.depth)
        made[f"denoised, below {below:g}"] = setup.teachers() >> setup.ranker(negatives=denoised)
    return made


def picture(result: HiddenResult, panels: dict[str, tuple[str, tuple[float, ...]]], path: Path) -> None:
    """Quality over each of the two numbers, with plain training and the oracle as lines."""
    import matplotlib.pyplot as plt

    table = result.table
    measure = table["measure"].iloc[0]
    full = table[(table["judgements"] == "full") & (table["measure"] == measure)].set_index("correction")
    panels = {label: panel for label, panel in panels.items() if panel[1]}
    with plots.style():
        figure, drawn = plt.subplots(1, len(panels), figsize=(6.2 * len(panels), 4.4), squeeze=False, sharey=True)
        for axes, (label, (name, values)) in zip(drawn[0], panels.items()):
            rows = full.loc[[f"{name} {value:g}" for value in values]]
            limits = [rows["mean"] - rows["low"], rows["high"] - rows["mean"]]
            axes.errorbar(values, rows["mean"], yerr=limits, marker="o", color=plots.colour(0), label=name.split(",")[0])
            for other, style in (("plain", "--"), ("oracle", ":")):
                axes.axhline(full.at[other, "mean"], color=plots.GREY, linestyle=style, label=other)
            if name.startswith("CET"):
                axes.set_xscale("log")
                axes.set_xticks(values, [f"{value:g}" for value in values], minor=False)
                axes.minorticks_off()
            axes.legend()
            plots.label_axes(axes, x=label, y=f"{measure}, all judgements", n=int(full["queries"].iloc[0]))
        plots.save(figure, path)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--taus", nargs="*", type=float, default=list(TAUS), help=f"temperatures (default {TAUS})")
    options.add_argument("--thresholds", nargs="*", type=float, default=list(THRESHOLDS), help=f"(default {THRESHOLDS})")
    options = options.parse_args()
    settings, lists, setups, sizes = opened(options, "sensitivity")
    if options.estimate:
        names = ["plain", "oracle", *options.taus, *options.thresholds]
        print(f"about {minutes(seconds_of(setups, names, teachers=bool(options.thresholds)))} for all of it on this machine")
        return
    result = carry_out(setups, lambda setup: corrections(setup, options.taus, options.thresholds), options.out)
    panels = {
        "tau of CET": ("CET, tau", tuple(options.taus)),
        "threshold of the teacher's probability": ("denoised, below", tuple(options.thresholds)),
    }
    picture(result, panels, options.out / "sensitivity.png")
    tables: dict[str, pd.DataFrame] = {
        "summary": result.summary(),
        "effectiveness": result.table,
        "false_negatives": result.false_negatives,
        "sizes": sizes,
    }
    title = f"Temperature and threshold: {lists.source.name}"
    captions = {"summary": f"CET over tau, and denoising over its threshold, on {lists.source.name}"}
    write_results(options.out, title, settings, tables, [*NOTES, *result.notes], captions)


if __name__ == "__main__":
    sys.exit(program(main))
