"""MATS of TK, trained on original and on rotated passages: Table 2 of Hofstätter et al. (ECIR 2021), with controls.

    python examples/position_bias/table2.py --dataset msmarco_dev600 --dataset squad_dev_v1.1.json --out table2

trains TK on each collection (one `--dataset` each), on unchanged passages and on passages that are rotated anew in each epoch,
with and without positions (`positional='none'` cannot know a word's position, so its MATS has other causes). Untrained TKs are
measured as well. Each TK is also evaluated on original and on rotated passages, to show how strong its bias is.

The arm *natural* uses all training questions; *planted*, for collections with known positions of answers (SQuAD), only uses those
with answers in the first third of their passage. A run that was stopped continues with the same command. The small setting is the
default; `--config full.json` is close to the paper's setting (it needs a GPU, and GloVe's file). `--estimate` prints how long it
takes.
"""

import sys
from collections.abc import Sequence

import pandas as pd
from experiment import (
    MEASURES,
    SIZE_CAPTIONS,
    VIEWS,
    Candidates,
    Settings,
    Trainer,
    by_training,
    expected_seconds,
    gap_by_seed,
    gap_closed,
    kept_weights,
    measure,
    new_ranker,
    open_material,
    parser,
    reads,
    size_tables,
    table_1,
)
from figure2 import some_passages
from workshop import (
    KEEP,
    KEPT,
    Arm,
    Workshop,
    compare,
    corrected,
    draw,
    encoder_of,
    matrix,
    minutes,
    program,
    read_settings,
    write_results,
)

from pyterrier_debias import MATSProbe
from pyterrier_debias.core.statistics import t_interval
from pyterrier_debias.position.measures.mats_probe import plot_ats

ARMS = ("natural", "planted")
POSITIONAL = ("absolute", "none")
TRAINED = ("untrained", *VIEWS)
VALUES = ["mats_paper", "mats_mean", "std_deltas", "std_pairs", "ats_0"]
CONVENTION = ["pair_scope", "term_average"]
CONDITION = ["collection", "arm", "positional"]


def mats_table(mats: pd.DataFrame) -> pd.DataFrame:
    """MATS under every convention, means and Student's intervals over seeds."""
    out = []
    for what, part in mats.groupby([*CONDITION, "trained", *CONVENTION], sort=False):
        interval = t_interval(part["mats_paper"].to_numpy())
        means = part[VALUES].mean().to_dict()
        first = {"mats_paper": means.pop("mats_paper"), "low": interval.low, "high": interval.high}
        out.append({**dict(zip([*CONDITION, "trained", *CONVENTION], what)), **first, **means, "seeds": len(part)})
    return pd.DataFrame(out)


def mats_change(mats: pd.DataFrame) -> pd.DataFrame:
    """The change of MATS by training on rotated passages: differences of the same seed, with Student's intervals."""
    out = []
    for what, part in mats.groupby([*CONDITION, *CONVENTION], sort=False):
        wide = part.pivot(index="seed", columns="trained", values="mats_paper")
        if not set(VIEWS) <= set(wide.columns):
            continue
        interval = t_interval((wide["rotated"] - wide["original"]).to_numpy())
        limits = {"low": interval.low, "high": interval.high, "seeds": interval.n}
        out.append({**dict(zip([*CONDITION, *CONVENTION], what)), "difference": interval.estimate, **limits})
    return pd.DataFrame(out)


def across_passages(table: pd.DataFrame) -> pd.DataFrame:
    """The rows of pairs across passages, with the paper's average over terms and with the paired average."""
    chosen = table[(table["pair_scope"] == "cross_passage") & table["term_average"].isin(["present", "paired"])]
    return chosen.drop(columns=["pair_scope", "mats_mean", "std_pairs", "ats_0"], errors="ignore").reset_index(drop=True)


def effectiveness(rows: pd.DataFrame, resamples: int) -> pd.DataFrame:
    """The same rankers on original and on rotated passages."""
    out = []
    for what, part in rows.groupby([*CONDITION, "trained"], sort=False):
        for name in MEASURES.values():
            _, values = matrix(part, name, ["evaluated"])
            means = dict(zip(VIEWS, values.mean(axis=(0, 1)).tolist()))
            compared = compare(values[..., 0], values[..., 1], resamples)
            out.append({**dict(zip([*CONDITION, "trained"], what)), "measure": name, **means, **compared})
    return corrected(pd.DataFrame(out))


def draw_figure_2(arms: Sequence[Arm], workshop: Workshop) -> None:
    """Draw ATS over distance for the first seed's rankers (original and rotated training); one picture per collection."""
    for collection in dict.fromkeys(arm.labels["collection"] for arm in arms):
        results = {}
        for arm in arms:
            about = arm.labels
            if about["collection"] == collection and about["seed"] == 0 and about["trained"] in VIEWS:
                name = f"trained on {about['trained']}" + ", no positions" * (about["positional"] == "none")
                name = name if about["arm"] == "natural" else f"{about['arm']}, {name}"
                results[name] = pd.read_pickle(workshop.folder(arm) / "ats.pkl").under(term_average="paired")
        plot_ats(results, std="none", path=workshop.out / f"figure_2_{collection.replace(' ', '_')}.png")


#: Captions of the tables in the documentation.
CAPTIONS = {
    **SIZE_CAPTIONS,
    "mats_across_passages": "MATS of TK, pairs across passages",
    "mats_change_across_passages": "Change of MATS by training on rotated passages",
    "effectiveness": "TK: effectiveness on original and rotated passages, by what it was trained on",
    "gap_closed": "TK: loss under rotation, and how much of it training on rotated passages removes",
    "gap_by_seed": "TK: loss under rotation, by seed",
    "weights": "Saved rankers",
}

NOTES = [
    "mats_paper divides by max D - 1, mats_mean by the number of distances with a pair; std_deltas is the spread of ATS(0) - "
    "ATS(i) over i, std_pairs that of the cosines around ATS(i); low and high: 95 % of Student's t over seeds, for mats_paper or "
    "for the difference.",
    "difference: rotated - original (training, in MATS; evaluation, in effectiveness, with a bootstrap over seeds and queries).",
    "gap: original - rotated evaluation; share_closed: 1 - gap of rotated training / gap of original training; blank if that "
    "gap's interval contains 0.",
    "p: Wilcoxon's signed-rank test over queries, each query's mean over seeds; p_corrected: Holm, over all rows of the table.",
]


def main() -> None:
    options = parser(__doc__, "files, folders or irds: ids of one collection; give the option once for each collection")
    options.add_argument("--arms", nargs="+", choices=ARMS, default=["natural"], help="arms to make (default: natural)")
    options.add_argument("--positional", nargs="+", choices=POSITIONAL, default=list(POSITIONAL), help="kinds (default: both)")
    options.add_argument("--keep", **KEEP)
    options.add_argument("--passages", type=int, help="passages that MATS reads (default 2000)")
    options = options.parse_args()
    settings = read_settings(options, Settings())
    materials = [open_material(specs, settings.split_seed) for specs in options.dataset]
    sizes = pd.concat([table_1(material, settings) for material in materials], ignore_index=True)
    print(sizes.to_string(index=False), flush=True)
    workshop = Workshop(options.out, "table2", settings, materials)
    encoder = encoder_of(settings, options.out)
    trainers = [Trainer(m, Candidates(m, options.out / "candidates", settings.depth), settings) for m in materials]
    passages = {m.name: some_passages(m.dataset, settings.passages, settings.split_seed) for m in materials}

    def arm_of(trainer: Trainer, arm: str, positional: str, trained: str, seed: int) -> Arm:
        material = trainer.material
        topics = draw(material.topics["test"], settings.queries, settings.split_seed, "test")

        def make(folder, checkpoints):
            tk = new_ranker("tk", encoder, settings, seed, positional=positional)
            if trained != "untrained":
                trainer.fit(tk, "tk", trained, seed, planted=arm == "planted", checkpoints=checkpoints)
            if options.keep:
                tk.save(folder / KEPT)
            result = MATSProbe(tk, max_delta=settings.max_delta).result(passages[material.name])
            result.mats().assign(**labels).to_csv(folder / "mats.csv", index=False)
            pd.to_pickle(result, folder / "ats.pkl")
            views = trainer.candidates.for_tests(topics, settings)
            return measure(tk, views, material.qrels["test"], topics["qid"].tolist(), material.measures)

        labels = {"collection": material.name, "arm": arm, "positional": positional, "trained": trained, "seed": seed}
        steps, validated = (0, 0) if trained == "untrained" else (settings.optimiser_steps(), settings.validation_reads())
        read = len(VIEWS) * reads("tk", trainer.candidates.ranking(topics)) + settings.passages + validated
        return Arm(labels, make, "tk", steps, read)

    # Seed by seed, so that a stopped run has complete seeds.
    conditions = [
        (number, arm, positional, trained)
        for number, material in enumerate(materials) for arm in options.arms if arm == "natural" or material.has_places
        for positional in options.positional for trained in TRAINED
    ]
    arms = [(where, arm_of(trainers[where], *rest, seed)) for seed in range(settings.seeds) for where, *rest in conditions]
    seconds = {}
    for number, trainer in enumerate(trainers):
        seconds |= expected_seconds(workshop.open([arm for where, arm in arms if where == number]), trainer, encoder)
    print(f"{len(seconds)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = workshop.carry_out([arm for _, arm in arms], seconds)
    mats = pd.concat([pd.read_csv(workshop.folder(arm) / "mats.csv") for _, arm in arms], ignore_index=True)
    trained = rows[rows["trained"].isin(VIEWS)]
    draw_figure_2([arm for _, arm in arms], workshop)
    tables = {
        **size_tables(sizes),
        "mats_across_passages": across_passages(mats_table(mats)),
        "mats_change_across_passages": across_passages(mats_change(mats)),
        "mats": mats_table(mats),
        "mats_change": mats_change(mats),
        "effectiveness": effectiveness(rows, settings.resamples),
        "by_training": by_training(trained, CONDITION, settings.resamples),
        "gap_closed": gap_closed(trained, CONDITION, settings.resamples),
        "gap_by_seed": gap_by_seed(trained, CONDITION, settings.resamples),
    }
    tables |= kept_weights(workshop, [arm for _, arm in arms])
    write_results(options.out, "Table 2: MATS of TK", settings, tables, NOTES, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
