"""EqualizeIR over alpha: how mean, spread and slope change as the weight of the biased learner grows.

    python examples/linguistic_bias/alpha.py --dataset nfcorpus --out equalize

trains bi-encoders against one weak learner (the weaker model) at several alphas, and draws mean, coefficient of variation and
slope on complexity over alpha. Each ranker is compared with an alternative that needs no training: the plain ranker's scores
minus alpha times those of the learner. Alpha 0 is plain training. All alphas of a seed share one learner, that of alpha 0.1.

If `--out` is the folder of equalize.py, its finished arms are used; the tables go into the subfolder `alpha`. Settings,
`--config`, `--estimate` and continuing a run that was stopped work as in equalize.py.
"""

import sys
from collections.abc import Sequence

import numpy as np
import pandas as pd
from equalize import PAPERS, PLAIN, less_biased
from reporting import Results, by_use
from study import WAYS, Settings, Way, at_alpha, begin, expected_seconds, parser, sizes
from workshop import minutes, program, read_settings, write_results

from pyterrier_debias import InputError
from pyterrier_debias.core import plots

#: Alphas besides 0 and the value in the settings.
ALPHAS = (0.25, 0.5, 1.0)
#: The columns that the pictures show, and their names on the axes.
SHOWN = {"mean": "mean nDCG@10", "sd": "sd of nDCG@10", "cv": "c_v of nDCG@10", "slope given controls": "slope, controlled"}

NOTES = [
    "trained: EqualizeReranker against the weaker model; untrained: scores of the plain ranker minus alpha times the learner's.",
    "mean, sd, cv: of nDCG@10 over queries; slope: of nDCG@10 for one standard deviation of complexity, given the length of the "
    "query and the logarithm of the number of relevant documents. 95 % intervals from a bootstrap over seeds and queries.",
    "changes: from alpha 0, which is plain training; p: paired t-test of the slope given controls, p_corrected: Holm.",
]


def trained_name(alpha: float) -> str:
    """The name of a trained ranker."""
    return f"Equalize, alpha {alpha:g}"


def rival_name(alpha: float) -> str:
    """The name of the alternative that needs no training."""
    return f"plain minus {alpha:g} times weaker model"


def curve_of(results: Results, alphas: Sequence[float], names: dict[float, str]) -> pd.DataFrame:
    """Mean, spread and slope by alpha; one row per use, collection, kind and alpha."""
    spread = results.spread().merge(results.slopes(), on=["use", "dataset", "ranker"])
    rows = []
    for kind, name in (("trained", lambda alpha: names[alpha]), ("untrained", rival_name)):
        for alpha in alphas:
            own = spread[spread["ranker"] == (name(alpha) if alpha else PLAIN)]
            rows.append(own.assign(kind=kind, alpha=alpha))
    table = pd.concat(rows, ignore_index=True).sort_values(["use", "dataset"], kind="stable", ignore_index=True)
    columns = [f"{column}{end}" for column in SHOWN for end in ("", "_low", "_high")]
    return table[["use", "dataset", "kind", "alpha", *columns]]


def draw_curve(table: pd.DataFrame, path) -> None:
    """One picture of a use and collection: four panels over alpha."""
    import matplotlib.pyplot as plt

    with plots.style():
        figure, panels = plt.subplots(2, 2, figsize=(8, 6), sharex=True, layout="constrained")
        for axes, (column, name) in zip(panels.flat, SHOWN.items()):
            for number, (kind, rows) in enumerate(table.groupby("kind", sort=False)):
                place = rows["alpha"] + 0.01 * (2 * number - 1)
                ends = np.clip([rows[column] - rows[f"{column}_low"], rows[f"{column}_high"] - rows[column]], 0, None)
                axes.errorbar(place, rows[column], yerr=ends, fmt="o-", color=plots.colour(number), label=kind)
            plots.label_axes(axes, x="alpha", y=name)
        panels.flat[0].legend()
    plots.save(figure, path, dpi=90)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--alphas", nargs="+", type=float, default=list(ALPHAS), help="alphas besides 0 and the settings' value")
    options = options.parse_args()
    settings = read_settings(options, Settings())
    if not all(0 < alpha <= 1 for alpha in options.alphas):
        raise InputError(f"--alphas {options.alphas}: each must be above 0 and at most 1")
    study = begin(options, settings)
    names = {settings.alpha: PAPERS} | {a: trained_name(a) for a in sorted(options.alphas) if a != settings.alpha}
    own = {name: Way(at_alpha(alpha), 1.2, after=PAPERS) for alpha, name in names.items() if name != PAPERS}
    study.ways = {PLAIN: WAYS[PLAIN], PAPERS: WAYS[PAPERS], **own}
    arms = study.arms()
    seconds = expected_seconds(study.workshop.open(arms), study.ways, study.lessons, settings, options.out)
    print(f"{len(seconds)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = study.workshop.carry_out(arms, seconds)
    rivals = [
        less_biased(study, seed, alpha).assign(ranker=rival_name(alpha)) for seed in range(settings.seeds) for alpha in names
    ]
    results = Results(pd.concat([rows[rows["model"] == "robust"], *rivals]), study.sources, settings.resamples)
    curve = curve_of(results, [0.0, *sorted(names)], names)
    out = options.out / "alpha"
    out.mkdir(parents=True, exist_ok=True)
    for (use, dataset), part in curve.groupby(["use", "dataset"], sort=False):
        draw_curve(part, out / f"alpha_{dataset}_{use}.png")
    tables = {"alpha": curve, "alpha_changes": results.changes(PLAIN), "sizes": sizes(study.lessons, study.sources)}
    title = f"EqualizeIR over alpha: {', '.join(source.name for source in study.sources)}"
    captions = {"alpha": "EqualizeIR over alpha", "alpha_changes": "Change from plain training, over alpha"}
    write_results(out, title, settings, by_use(tables), NOTES, captions)


if __name__ == "__main__":
    sys.exit(program(main))
