"""What a ranker loses that learned from survivors: one ranker for each threshold of the first relevant rank, compared.

    python examples/survivorship_bias/filtered_training.py --out filtered --seeds 1

makes a planted collection in which difficult questions were answered late or never. Half of its questions are for training: those
answered within the first k documents shown, and, since these are fewer, as many drawn from all answered ones. Rankers (the lowest
layers of all-MiniLM-L6-v2 as a cross-encoder; with `--ranker adapter` a linear layer over all-MiniLM-L6-v2's vectors, which takes
seconds) learn from each set for the same number of steps and rank the BM25 results of the other half, which are evaluated on
complete judgements, unanswered questions included. What a ranker loses against the one with as many questions is due to *which*
questions survived.

A run that was stopped continues with the same command. `--estimate` says how long it takes, `--config` names a JSON file with
further settings, for example `{"strength": 0.5}`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from pyterrier_debias import BiEncoder, CrossEncoder, InputError, PlantedCollection, Training
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset
from pyterrier_debias.survivorship.training.rank_filtered import DRAWN, FILTERED, TrainingSubset, training_subsets

# What programs share lies one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import (
    Arm,
    Shared,
    Workshop,
    adapter_of,
    base_parser,
    compare,
    corrected,
    encoder_of,
    matrix,
    minutes,
    pace,
    program,
    read_settings,
    write_results,
)

#: A document answers from this label on.
ANSWERS = 2
#: Peak rates by kind of ranker.
LEARNING_RATES = {"cross": 5e-5, "adapter": 1e-3}
MEASURES = ("nDCG@10", "RR(rel=2)@10")


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The numbers of a run; ``queries`` are those of the test, and as many again are there to train on.

    Attributes:
        thresholds: Within how many documents shown a training question was answered; all answered ones are added.
        strength: Of the planted survivorship.
        max_length: Tokens of a pair.
        ranker: ``'cross'``, or ``'adapter'``: a linear layer over the vectors of all layers.
    """

    thresholds: tuple[int, ...] = (2, 5)
    strength: float = 1.0
    max_length: int = 160
    ranker: str = "cross"
    layers: int | None = 3
    dropout: float | None = 0.0
    head_std: float | None = 0.2
    triples: int = 800
    queries: int = 120
    seeds: int = 1

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"ranker": tuple(LEARNING_RATES)}


@dataclass(frozen=True)
class Setup:
    """A planted collection, halved: ``name``, candidates with texts to train and to test on, and their judgements."""

    name: str
    train: pd.DataFrame
    train_qrels: pd.DataFrame
    test: pd.DataFrame
    test_qrels: pd.DataFrame
    subset: SurvivorshipSubset

    @classmethod
    def of(cls, settings: Settings) -> "Setup":
        depth = max(100, settings.depth)
        collection = PlantedCollection(topics=2 * settings.queries, survivorship=settings.strength, depth=depth)
        topics = collection.get_topics("full")
        run = collection.get_runs()["bm25"].merge(topics[["qid", "query"]], on="qid")
        frame = collection.text_loader()(run[run["rank"] < settings.depth])
        # Topics come in no order of difficulty.
        test = set(topics["qid"].iloc[1::2])
        halves = [frame[frame["qid"].isin(test) == side].reset_index(drop=True) for side in (False, True)]
        qrels, full = collection.get_qrels(), collection.get_qrels("full")
        qrels = qrels[~qrels["qid"].isin(test)]
        full = full[full["qid"].isin(test) & (full["label"] > 0)]
        subset = SurvivorshipSubset(collection, qrels, min_label=ANSWERS)
        return cls(collection.name, halves[0], qrels, halves[1], full, subset)

    def measured(self, run: pd.DataFrame) -> pd.DataFrame:
        """Measures of each test question in a ranking of the test's candidates."""
        return per_query(run, self.test_qrels, list(MEASURES), self.test["qid"].drop_duplicates().tolist())

    def parts(self, settings: Settings, seed: int) -> Iterator[TrainingSubset]:
        """What each arm trains on."""
        return training_subsets(self.train, self.subset, [*settings.thresholds, None], seed=seed)


def untrained(settings: Settings, out: Path, seed: int, **options: Any) -> BiEncoder | CrossEncoder:
    """A ranker that is about to learn; options are those of its training."""
    training = Training(
        batch_size=settings.batch_size, min_label=ANSWERS, learning_rate=LEARNING_RATES[settings.ranker],
        precision=settings.precision, seed=seed, **options,
    )  # fmt: skip
    if settings.ranker == "adapter":
        return adapter_of(settings, training=training)
    encoder = encoder_of(settings, out)
    return CrossEncoder(encoder, head="mean", max_length=settings.max_length, seed=seed, training=training)


def arm_of(setup: Setup, part: TrainingSubset, out: Path, settings: Settings, seed: int) -> Arm:
    """One ranker and its values by query."""

    def make(folder: Path, checkpoints: Path) -> pd.DataFrame:
        ranker = untrained(settings, out, seed, max_steps=settings.optimiser_steps())
        ranker.fit(part.frame, setup.train_qrels)
        return setup.measured(ranker(setup.test)).reset_index().assign(training_queries=part.queries)

    k = "all" if part.k == float("inf") else str(int(part.k))
    labels = {"k": k, "trained_on": part.kind, "seed": seed}
    return Arm(labels, make, "cross", settings.optimiser_steps(), len(setup.test))


def without_training(setup: Setup, settings: Settings, out: Path) -> pd.DataFrame:
    """Means of the candidates' own order, and of a linear layer that has learned nothing."""
    runs = {"nothing: BM25's order": setup.test}
    if settings.ranker == "adapter":
        runs["nothing: untrained"] = untrained(settings, out, 0)(setup.test)
    rows = [{"k": "", "trained_on": name, "training_queries": 0, **setup.measured(run).mean()} for name, run in runs.items()]
    return pd.DataFrame(rows)


def tables(rows: pd.DataFrame, settings: Settings) -> dict[str, pd.DataFrame]:
    """Means by arm, and the filtered against the drawn set of equal size and against all answered questions."""
    rows = rows.assign(k=rows["k"].astype(str))
    means = rows.groupby(["k", "trained_on"], sort=False)[["training_queries", *MEASURES]].mean().reset_index()
    means["training_queries"] = means["training_queries"].astype(int)
    less: dict[str, list[dict[str, Any]]] = {"drawn": [], "all": []}
    for measure in MEASURES:
        names, values = matrix(rows, measure, ["k", "trained_on"])
        at = {name: i for i, name in enumerate(names)}
        for k in map(str, settings.thresholds):
            for name, other in (("drawn", (k, DRAWN)), ("all", ("all", FILTERED))):
                if {(k, FILTERED), other} <= at.keys():
                    found = compare(values[..., at[other]], values[..., at[k, FILTERED]], settings.resamples)
                    less[name].append({"measure": measure, "k": k, **found})
    differences = {f"filtered_less_{name}": corrected(pd.DataFrame(found)) for name, found in less.items() if found}
    return {"effectiveness": means, **differences}


NOTES = [
    "k: training questions answered within the first k documents shown; all: every answered one.",
    "filtered_less_drawn: first k less as many drawn, filtered_less_all: less all answered ones; interval: bootstrap over seeds "
    "and queries.",
    "With one seed the interval holds for these rankers, not for others trained the same way.",
]


def main() -> None:
    options = base_parser(__doc__, Settings())
    options.add_argument("--thresholds", nargs="+", type=int, metavar="K", help="first documents shown (default 2 5)")
    options.add_argument(
        "--ranker", choices=Settings.CHOICES["ranker"], help="cross-encoders (default), or linear layers over fixed vectors"
    )
    options = options.parse_args()
    settings = read_settings(options, Settings())
    if any(k < 1 for k in settings.thresholds):
        raise InputError(f"setting thresholds={settings.thresholds} must be numbers of documents from 1")
    setup = Setup.of(settings)
    workshop = Workshop(options.out, "filtered_training", settings, [setup])
    arms = [
        arm_of(setup, part, options.out, settings, seed)
        for seed in range(settings.seeds)
        for part in setup.parts(settings, seed)
    ]
    left = workshop.open(arms)
    step, before = (0.0, 0.0)
    if left:
        part = next(setup.parts(settings, 0))
        trial = untrained(settings, options.out, 0, max_steps=1)
        step, before = pace(trial, part.frame, setup.train_qrels, trial.training)
    # A text is read in a sixth of the time that it takes to learn from one of a pair.
    seconds = {arm.name: before + step * (arm.steps + arm.reads / (12 * settings.batch_size)) for arm in left}
    print(f"{len(left)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = workshop.carry_out(arms, seconds)
    found = tables(rows, settings)
    found["effectiveness"] = pd.concat([without_training(setup, settings, options.out), found["effectiveness"]])
    write_results(options.out, "Training on survivors", settings, found, NOTES)


if __name__ == "__main__":
    sys.exit(program(main))
