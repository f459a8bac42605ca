"""Does training on rotated passages of one collection help on another? Table 5 of Hofstätter et al. (ECIR 2021).

    python examples/position_bias/table5.py --dataset msmarco_dev600 --dataset squad_dev_v1.1.json --out table5

trains each ranker on the target, the second `--dataset`, from three starts: the encoder without training; a ranker trained on the
unchanged source, the first `--dataset`; and a ranker trained on rotated passages of the source. All are evaluated on the
unchanged target, and so are the three starts themselves, which shows whether training on the source changed anything.

    python examples/position_bias/table5.py --kept msmarco --rankers dot --dataset squad_dev_v1.1.json --out table5

starts from the rankers of `tables_3_4.py --arms natural --keep --out msmarco`, so only the target is trained on.

A run that was stopped continues with the same command. The small setting is the default; `--config full.json` is close to the
paper's setting (it needs a GPU, and GloVe's file). `--estimate` prints how long it takes.
"""

import json
import sys
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from experiment import (
    MEASURES,
    PAPER,
    RANKERS,
    SIZE_CAPTIONS,
    VIEWS,
    Candidates,
    Settings,
    Trainer,
    expected_seconds,
    load_ranker,
    measure,
    new_ranker,
    open_material,
    parser,
    reads,
    size_tables,
    table_1,
)
from workshop import (
    KEPT,
    Arm,
    Workshop,
    article_interval,
    compare,
    corrected,
    draw,
    encoder_of,
    matrix,
    minutes,
    over_articles,
    program,
    read_settings,
    write_results,
)

from pyterrier_debias import InputError
from pyterrier_debias.core.statistics import two_level_interval

#: The starts of training on the target, with the view of the source's passages.
STARTS = {"target only": None, "original, then target": "original", "rotated, then target": "rotated"}
#: The starts themselves, without training on the target.
SOURCES = {"nothing": None, "original only": "original", "rotated only": "rotated"}
#: All that is evaluated on the target.
EVALUATED = {**SOURCES, **STARTS}
#: Settings that two rankers must share, so that only their training differs.
SHARED = ("model", "layers", "head", "pooling", "glove", "tk", "max_length")


def by_start(rows: pd.DataFrame, articles: pd.Series | None, resamples: int) -> pd.DataFrame:
    """Effectiveness on the target; one row for each ranker, measure and start. See :func:`pairwise` for ``articles``."""
    out = []
    for ranker, part in rows.groupby("ranker", sort=False):
        for name in MEASURES.values():
            starts, values = matrix(part, name, ["arm"])
            for start in EVALUATED:
                i = starts.index((start,))

                def mean(m, i=i):
                    return m[..., i]

                if articles is None:
                    interval = two_level_interval(values, mean, resamples=resamples)
                else:
                    interval = article_interval(values, articles_of(part, articles), mean, resamples)
                out.append(
                    {
                        "ranker": RANKERS[ranker],
                        "measure": name,
                        "trained": start,
                        "value": interval.estimate,
                        "low": interval.low,
                        "high": interval.high,
                        "seeds": values.shape[0],
                        "queries": values.shape[1],
                    }
                )
    return pd.DataFrame(out)


def pairwise(rows: pd.DataFrame, articles: pd.Series | None, resamples: int) -> pd.DataFrame:
    """Each start against each other start, before and after training on the target, with corrected p values.

    Args:
        rows: Values by ranker, arm, seed and query.
        articles: The article of each qid, over which intervals and tests are then made; None if the target has no articles.
        resamples: Bootstrap resamples.
    """
    out = []
    for ranker, part in rows.groupby("ranker", sort=False):
        for name in MEASURES.values():
            starts, values = matrix(part, name, ["arm"])
            for before, after in [*combinations(SOURCES, 2), *combinations(STARTS, 2)]:
                pair = [values[..., starts.index((start,))] for start in (before, after)]
                what = {"ranker": RANKERS[ranker], "measure": name, "before": before, "after": after}
                if articles is None:
                    found = compare(*pair, resamples)
                else:
                    found = over_articles(*pair, articles_of(part, articles), resamples)
                out.append({**what, **found})
    return corrected(pd.DataFrame(out))


def articles_of(rows: pd.DataFrame, articles: pd.Series) -> np.ndarray:
    """The articles of the queries, in the order of :func:`workshop.matrix`."""
    return articles.loc[sorted(rows["qid"].unique())].to_numpy()


#: Captions of the tables in the documentation.
CAPTIONS = {
    **SIZE_CAPTIONS,
    "by_start": "Effectiveness on the target, by what a ranker was trained on",
    "pairwise": "Differences between two starting points, before and after training on the target",
}

NOTES = [
    "low and high: 95 % interval from a bootstrap over seeds and queries; difference: after - before.",
    "p: Wilcoxon's signed-rank test over queries, each query's mean over seeds; p_corrected: Holm, over all rows of the table.",
    "If passages belong to articles (SQuAD), intervals are over seeds and articles, and p is from a randomisation of articles.",
    "nothing, original only, rotated only: the starts, without training on the target.",
]


def kept_rankers(folder: Path, settings: Settings) -> SimpleNamespace:
    """The source of rankers that ``tables_3_4.py --keep`` saved: its ``name``.

    Raises:
        InputError: If the folder is not of that program, or its rankers differ in more than their training.
    """
    path = folder / "arms.json"
    record = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if record.get("program") != "tables_3_4":
        raise InputError(f"--kept: {folder} was not written by tables_3_4.py; name its --out folder")
    own = settings.record()
    for name in SHARED:
        if record[name] != own[name]:
            raise InputError(f"--kept: the rankers in {folder} have {name}={record[name]!r}, not {own[name]!r}; use one setting")
    return SimpleNamespace(name=f"{', '.join(record['collections'])} (rankers in {folder})")


def main() -> None:
    options = parser(__doc__, "files, folders or irds: ids; give the option twice, for source and target")
    options.add_argument("--kept", type=Path, metavar="FOLDER", help="results of tables_3_4.py --keep, in place of a source")
    options.add_argument("--rankers", nargs="+", choices=PAPER, default=list(PAPER), help="rankers to train (default: all)")
    options = options.parse_args()
    if options.kept is None and len(options.dataset) != 2:
        raise InputError(f"table5 needs --dataset twice, for source and target, not {len(options.dataset)} times")
    if options.kept is not None and len(options.dataset) != 1:
        raise InputError(f"table5 needs --dataset once with --kept, for the target, not {len(options.dataset)} times")
    settings = read_settings(options, Settings())
    materials = [open_material(specs, settings.split_seed) for specs in options.dataset]
    source, target = materials[0] if options.kept is None else kept_rankers(options.kept, settings), materials[-1]
    sizes = pd.concat([table_1(material, settings) for material in materials], ignore_index=True)
    print(sizes.to_string(index=False), flush=True)
    workshop = Workshop(options.out, "table5", settings, [source, target])
    encoder = encoder_of(settings, options.out)
    trainers = [Trainer(m, Candidates(m, options.out / "candidates", settings.depth), settings) for m in materials]
    topics = draw(target.topics["test"], settings.queries, settings.split_seed, "test")
    steps = settings.optimiser_steps()

    def source_arm(kind: str, view: str, seed: int) -> Arm:
        def make(folder, checkpoints):
            ranker = new_ranker(kind, encoder, settings, seed)
            trainers[0].fit(ranker, kind, view, seed, checkpoints=checkpoints).save(folder / "model")
            return pd.DataFrame(columns=["qid"])

        labels = {"arm": "source", "ranker": kind, "trained": view, "seed": seed}
        return Arm(labels, make, kind, steps, settings.validation_reads())

    def source_folder(kind: str, view: str, seed: int) -> Path:
        if options.kept is None:
            return workshop.folder(source_arm(kind, view, seed)) / "model"
        folder = options.kept / "arms" / f"natural-{kind}-{view}-{seed}" / KEPT
        if not folder.is_dir():
            raise InputError(f"--kept: there is no {folder}; run tables_3_4.py with --keep, --arms natural and as many seeds")
        return folder

    def target_arm(kind: str, start: str, seed: int) -> Arm:
        view = EVALUATED[start]

        def make(folder, checkpoints):
            if view is None:
                ranker = new_ranker(kind, encoder, settings, seed)
            else:
                ranker = load_ranker(kind, source_folder(kind, view, seed))
            if start in STARTS:
                trainers[-1].fit(ranker, kind, "original", seed, checkpoints=checkpoints)
            views = {"original": trainers[-1].candidates.for_tests(topics, settings)["original"]}
            return measure(ranker, views, target.qrels["test"], topics["qid"].tolist(), target.measures)

        read = reads(kind, trainers[-1].candidates.ranking(topics))
        labels = {"arm": start, "ranker": kind, "seed": seed}
        if start in SOURCES:
            return Arm(labels, make, kind, 0, read)
        return Arm(labels, make, kind, steps, read + settings.validation_reads())

    # Seed by seed, so that a stopped run has complete seeds.
    each = [(seed, kind) for seed in range(settings.seeds) for kind in options.rankers]
    sources = [source_arm(kind, view, seed) for seed, kind in each for view in VIEWS] if options.kept is None else []
    targets = [target_arm(kind, start, seed) for seed, kind in each for start in EVALUATED]
    if options.kept is not None:  # all are looked for before the first is trained further
        for kind, view, seed in product(options.rankers, VIEWS, range(settings.seeds)):
            source_folder(kind, view, seed)
    seconds = {}
    for arms, trainer in zip(([sources] if sources else []) + [targets], trainers):
        seconds |= expected_seconds(workshop.open(arms), trainer, encoder)
    made = len(sources) + len(targets)
    print(f"{len(seconds)} of {made} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    if sources:  # the targets' rankers start from them
        workshop.carry_out(sources, seconds)
    rows = workshop.carry_out(targets, seconds)
    n, articles = settings.resamples, topics.set_index("qid")["article"] if "article" in topics else None
    tables = {**size_tables(sizes), "by_start": by_start(rows, articles, n), "pairwise": pairwise(rows, articles, n)}
    write_results(options.out, f"Table 5: from {source.name} to {target.name}", settings, tables, NOTES, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
