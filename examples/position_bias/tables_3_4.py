"""Rankers trained and evaluated on original and on rotated passages: Tables 3 and 4 of Hofstätter et al. (ECIR 2021).

    python examples/position_bias/tables_3_4.py --dataset squad_dev_v1.1.json squad_train_v1.1.json --out tables_3_4

trains BERT_CAT, BERT_DOT and TK on unchanged passages and on passages that are rotated anew in each epoch, and evaluates each
on original and on rotated candidates of BM25. Several files after one `--dataset` are one collection.

There are two arms. *natural* uses all training questions. *planted* only uses those whose answers lie in the first third of their
passage, so that the bias is strong, and evaluates on test questions with early and with late answers (SQuAD). For a collection
in which the positions of answers are unknown (MS MARCO), it uses all questions, and rotates each relevant training passage so
that it begins with the sentence that contains most of the question's words.

    python examples/position_bias/tables_3_4.py --dataset FOLDER --config examples/position_bias/msmarco.json --out msmarco

takes a folder with the samples `msmarco_dev_small`, `msmarco_trec_dl` and `msmarco_dev600` of MS MARCO: Table 3 on a small scale.

A run that was stopped continues with the same command. Processes that are started with it share the arms, for example
one per core, or some that use one GPU. Arms can also be made by several commands (`--arms`, `--rankers`, `--seeds`); the last,
which names all of them, reads the finished ones. `--keep` saves each ranker in the folder of its arm.
Beyond the paper are `--rankers splade`, a sparse encoder, whose encoder first learns to predict masked words of the passages, and
`--trained original rotated both`, where *both* rotates each passage in half of the epochs.

The small setting is the default: about an hour per arm on two cores with `--precision bfloat16`. `--config full.json` is close to
the paper's setting (it needs a GPU, and GloVe's file). Its re-ranking depth is chosen by validation, up to 1,000; the paper goes
up to 100 on SQuAD (`--depth 100`). `--estimate` prints how long it takes.
"""

import sys
from pathlib import Path

import pandas as pd
from experiment import (
    BOTH,
    MEASURES,
    PAPER,
    RANKERS,
    SIZE_CAPTIONS,
    VIEWS,
    Candidates,
    Material,
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
    paper_delta,
    parser,
    plain_delta,
    reads,
    size_tables,
    table_1,
)
from figure2 import some_passages
from masked import masked_encoder
from workshop import (
    KEEP,
    KEPT,
    Arm,
    Workshop,
    compare,
    corrected,
    draw,
    encoder_of,
    locked,
    matrix,
    minutes,
    program,
    read_settings,
    write_results,
)

from pyterrier_debias import InputError
from pyterrier_debias.core.evaluation import per_query

ARMS = ("planted", "natural")
#: Columns that identify the questions and the ranker of a row.
WHO = ["arm", "group", "ranker"]


def topics_of(material: Material, arm: str, settings: Settings) -> pd.DataFrame:
    """The test questions of an arm; in the planted arm half have early answers and half late ones, if positions are known."""
    seed, n = settings.split_seed, settings.queries
    if arm == "natural" or not material.has_places:
        return draw(material.topics["test"], n, seed, "test")
    half = (n + 1) // 2
    topics = pd.concat([draw(material.early("test"), half, seed, "test"), draw(material.late("test"), half, seed, "test")])
    if len(topics) == 0:
        raise InputError(f"{material.name}: no test question has only early or only late answers; leave out the planted arm")
    return topics.reset_index(drop=True)


def groups_of(material: Material, arm: str, topics: pd.DataFrame) -> dict[str, list[str]]:
    """Test questions by the positions of their answers, or by the groups of the test."""
    if "group" in topics:
        return {name: part["qid"].tolist() for name, part in topics.groupby("group", sort=False)}
    groups = {"all": topics["qid"].tolist()} if arm == "natural" else {}
    if material.has_places:
        groups["early"] = topics.loc[topics["qid"].isin(material.early("test")["qid"]), "qid"].tolist()
        groups["late"] = topics.loc[topics["qid"].isin(material.late("test")["qid"]), "qid"].tolist()
    return {name: qids for name, qids in groups.items() if qids}


def by_evaluation(rows: pd.DataFrame, resamples: int) -> pd.DataFrame:
    """Each trained ranker on original and on rotated passages; one row for each arm, group, ranker, training and measure."""
    out = []
    for (arm, group, ranker, trained), part in rows.groupby(["arm", "group", "ranker", "trained"], sort=False):
        for name in MEASURES.values():
            _, values = matrix(part, name, ["evaluated"])
            original, rotated = (float(values[..., i].mean()) for i in (0, 1))
            out.append(
                {
                    "arm": arm,
                    "group": group,
                    "ranker": RANKERS[ranker],
                    "trained": trained,
                    "measure": name,
                    "original": original,
                    "rotated": rotated,
                    "paper_delta_percent": paper_delta(original, rotated),
                    "delta_percent": plain_delta(original, rotated),
                    **compare(values[..., 0], values[..., 1], resamples),
                }
            )
    return corrected(pd.DataFrame(out))


def in_paper_layout(table: pd.DataFrame) -> pd.DataFrame:
    """:func:`by_evaluation` in the paper's layout: a line for each ranker and training, with the measures side by side."""
    out = []
    for what, part in table.groupby(["arm", "group", "ranker", "trained"], sort=False):
        line = dict(zip(("arm", "group", "ranker", "trained"), what))
        for row in part.itertuples():
            star = "*" if row.p_corrected < 0.05 else ""
            line[f"{row.measure} original"], line[f"{row.measure} rotated"] = row.original, row.rotated
            line[f"{row.measure} delta"] = f"{row.paper_delta_percent:+.1f} %{star}"
        out.append(line)
    return pd.DataFrame(out)


def start_of(kind: str, encoder: str, material: Material, settings: Settings, out: Path) -> str:
    """The encoder that a ranker starts from; SPLADE's has learned to predict masked words of the collection's passages."""
    if kind != "splade":
        return encoder

    def texts() -> list[str]:
        return some_passages(material.dataset, settings.masked_passages, settings.split_seed)["text"].tolist()

    options = {"learning_rate": settings.masked_rate, "batch_size": 2 * settings.batch_size, "max_length": settings.max_length}
    with locked(out, "masked"):
        return masked_encoder(encoder, texts, out / "masked", seed=settings.split_seed, **options)


def effects(rows: pd.DataFrame, view: str, resamples: int) -> dict[str, pd.DataFrame]:
    """The tables that compare training on a view of the passages with training on original ones."""
    made = {"by_training": by_training, "gap_closed": gap_closed, "gap_by_seed": gap_by_seed}
    suffix = "" if view == "rotated" else f"_{view}"
    return {f"{name}{suffix}": table(rows, WHO, resamples, view) for name, table in made.items()}


#: Captions of the tables in the documentation.
CAPTIONS = {
    **SIZE_CAPTIONS,
    "gap_closed_both": "Loss under rotation, and how much of it training on original and rotated passages removes",
    "effectiveness": "Effectiveness on original and rotated passages, by what a ranker was trained on",
    "gap_closed": "Loss under rotation, and how much of it training on rotated passages removes",
    "weights": "Saved rankers",
}

NOTES = [
    "difference: rotated - original (of the evaluation, or of the training); low and high: 95 % interval from a bootstrap over "
    "seeds and queries.",
    "paper_delta_percent, and delta in the first table: relative to the rotated value, as in the paper, with a star if "
    "p_corrected is below .05; delta_percent: relative to the original value.",
    "p: Wilcoxon's signed-rank test over queries, each query's mean over seeds; p_corrected: Holm, over all rows of the table.",
    "share_closed: 1 - gap of rotated training / gap of original training; blank if that gap's interval contains 0.",
    "early: all answers end in the first third of the passage; late: all begin in the last third.",
]


def main() -> None:
    options = parser(__doc__, "files, folders or irds: ids; several are one collection")
    options.add_argument("--rankers", nargs="+", choices=RANKERS, default=list(PAPER), help="rankers (default: the paper's)")
    options.add_argument("--keep", **KEEP)
    options.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="arms to make (default: both)")
    how = "what to train on (default: original and rotated)"
    options.add_argument("--trained", nargs="+", choices=(*VIEWS, BOTH), default=list(VIEWS), help=how)
    options = options.parse_args()
    compared = [view for view in (*VIEWS, BOTH) if view in options.trained and view != "original"]
    if not compared or "original" not in options.trained:
        raise InputError("--trained: name original, with which the others are compared, and at least one other")
    settings = read_settings(options, Settings())
    material = open_material([spec for specs in options.dataset for spec in specs], settings.split_seed)
    sizes = table_1(material, settings)
    print(sizes.to_string(index=False), flush=True)
    workshop = Workshop(options.out, "tables_3_4", settings, [material])
    encoder = encoder_of(settings, options.out)
    candidates = Candidates(material, options.out / "candidates", settings.depth)
    trainer = Trainer(material, candidates, settings)
    qrels = material.qrels["test"]
    topics = {arm: topics_of(material, arm, settings) for arm in options.arms}

    def arm_of(arm: str, kind: str, trained: str, seed: int) -> Arm:
        def make(folder, checkpoints):
            ranker = new_ranker(kind, start_of(kind, encoder, material, settings, options.out), settings, seed)
            trainer.fit(ranker, kind, trained, seed, planted=arm == "planted", checkpoints=checkpoints)
            if options.keep:
                ranker.save(folder / KEPT)
            views, qids = candidates.for_tests(topics[arm], settings), topics[arm]["qid"].tolist()
            return measure(ranker, views, qrels, qids, material.measures)

        labels = {"arm": arm, "ranker": kind, "trained": trained, "seed": seed}
        read = len(VIEWS) * reads(kind, candidates.ranking(topics[arm])) + settings.validation_reads()
        return Arm(labels, make, kind, settings.optimiser_steps(), read)

    # Seed by seed, so that a stopped run has complete seeds.
    arms = [
        arm_of(arm, kind, trained, seed)
        for seed in range(settings.seeds) for arm in options.arms for kind in options.rankers for trained in options.trained
    ]
    seconds = expected_seconds(workshop.open(arms), trainer, encoder)
    print(f"{len(seconds)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    measured = workshop.carry_out(arms, seconds)

    parts, bm25 = [], []
    for arm, frame in topics.items():
        found = per_query(candidates.ranking(frame), qrels, list(material.measures), frame["qid"].tolist())
        found = found.rename(columns=material.measures)
        for group, qids in groups_of(material, arm, frame).items():
            parts.append(measured[(measured["arm"] == arm) & measured["qid"].isin(qids)].assign(group=group))
            bm25.append({"arm": arm, "group": group, "queries": len(qids), **found.loc[qids].mean()})
    rows = pd.concat(parts, ignore_index=True)
    evaluated = by_evaluation(rows, settings.resamples)
    named = rows.assign(ranker=rows["ranker"].map(RANKERS))
    tables = {
        **size_tables(sizes),
        "effectiveness": in_paper_layout(evaluated),
        "by_evaluation": evaluated,
        **{name: table for view in compared for name, table in effects(named, view, settings.resamples).items()},
        "bm25": pd.DataFrame(bm25),
    }
    tables |= kept_weights(workshop, arms)
    write_results(options.out, "Tables 3 and 4: original and rotated passages", settings, tables, NOTES, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
