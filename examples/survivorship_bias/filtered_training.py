"""What a ranker loses if it learns from survivors: a comparison of rankers, one for each threshold of the first relevant rank.

    python examples/survivorship_bias/filtered_training.py --out filtered --seeds 1

makes a planted collection in which difficult questions were answered late or never. Half of its questions are for training. For
each k, one set has the questions answered within the first k documents shown; another has the same number of questions, drawn
from all answered ones. Rankers (the lowest layers of all-MiniLM-L6-v2 as a cross-encoder; with `--ranker adapter` a linear layer
over all-MiniLM-L6-v2's vectors, which takes seconds) learn from each set for the same number of steps. They rank the BM25 results
of the other half of the questions, which are evaluated on complete judgements, including unanswered questions. If a ranker is
worse than the one that learned from the same number of drawn questions, this is due to *which* questions survived.

    python examples/survivorship_bias/filtered_training.py --train squad_train_v1.1_44articles.json \
        --test squad_dev_v1.1_rebuilt.json --config examples/survivorship_bias/filtered_squad.json --out filtered

does the same with real questions, those of two SQuAD files. Labellers see lists of BM25 and of the lowest layer of the encoder.
Rankers learn from the same number of questions in each arm, with the other questions' paragraphs of a batch as negatives: from
any questions, from those answered within the first k documents, and, as a control, from those answered later. They rank all
paragraphs of the other file for its questions, whether the lists answer them or not. `--ranker dense` trains bi-encoders that
read the text, the encoder's lowest layers; `adapter` trains linear layers over the vectors of its lowest layer, which take
seconds. Intervals and tests are over seeds and articles, because questions about one article share the ranked paragraphs.

A run that was stopped continues with the same command. `--estimate` prints how long it takes, `--config` names a JSON file with
further settings, for example `{"strength": 0.5}`.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
import pyterrier as pt

from pyterrier_debias import BiEncoder, CrossEncoder, InputError, PlantedCollection, Training
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.survivorship.data.subset import SurvivorshipSubset
from pyterrier_debias.survivorship.training.rank_filtered import DRAWN, FILTERED, TrainingSubset, training_subsets

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from questions import BM25, BOTH, ONE_LAYER, Questions, bi_encoder, dense, file_names, lists, over_layer, train_and_test
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
    over_articles,
    pace,
    program,
    read_settings,
    write_results,
)

#: The lowest label of a document that answers.
ANSWERS = 2
#: Peak learning rates by kind of ranker.
LEARNING_RATES = {"cross": 5e-5, "adapter": 1e-3, "dense": 1e-4}
MEASURES = ("nDCG@10", "RR(rel=2)@10")
#: The measures for questions that have one paragraph each.
REAL_MEASURES = ("nDCG@10", "RR@10")
#: Cosines are divided by this.
TEMPERATURE = 0.05
#: Columns that name an arm.
ARM = ["shown", "k", "trained_on"]


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; ``queries`` is the number of test questions, and a planted collection has as many for training.

    Attributes:
        thresholds: The numbers k of documents shown within which training questions were answered; a set of all answered
            questions is added.
        strength: Strength of the planted survivorship bias.
        max_length: Largest number of tokens of an input.
        ranker: ``'cross'`` for cross-encoders, ``'adapter'`` for a linear layer over the vectors of the whole encoder. For real
            questions, ``'adapter'`` for a linear layer over the vectors of the lowest layer, ``'dense'`` for a bi-encoder of the
            lowest ``layers``.
        train: SQuAD file of the questions to learn from; None for a planted collection.
        test: SQuAD file of the questions to test on.
        size: Number of real questions per arm.
        shown: Number of documents that a labeller sees for a real question.
        lists: Names of the lists that labellers see for real questions.
    """

    thresholds: tuple[int, ...] = (2, 5)
    strength: float = 1.0
    max_length: int = 160
    ranker: str = "cross"
    train: str | None = None
    test: str | None = None
    size: int = 900
    shown: int = 10
    lists: tuple[str, ...] = (BM25, ONE_LAYER, BOTH)
    layers: int | None = 3
    dropout: float | None = 0.0
    head_std: float | None = 0.2
    triples: int = 800
    queries: int = 120
    seeds: int = 1

    POSITIVE: ClassVar[tuple[str, ...]] = (*Shared.POSITIVE, "size", "shown")
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"ranker": tuple(LEARNING_RATES)}

    def record(self) -> dict[str, Any]:
        """The settings of a folder, with files by their names, because the files may be moved."""
        return {**super().record(), **file_names(self.train, self.test)}


@dataclass(frozen=True)
class Setup:
    """A planted collection in halves: ``name``, candidates with texts to train and to test on, and their judgements."""

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
        # Topics are not ordered by difficulty.
        test = set(topics["qid"].iloc[1::2])
        halves = [frame[frame["qid"].isin(test) == side].reset_index(drop=True) for side in (False, True)]
        qrels, full = collection.get_qrels(), collection.get_qrels("full")
        qrels = qrels[~qrels["qid"].isin(test)]
        full = full[full["qid"].isin(test) & (full["label"] > 0)]
        subset = SurvivorshipSubset(collection, qrels, min_label=ANSWERS)
        return cls(collection.name, halves[0], qrels, halves[1], full, subset)

    #: The measures of the test.
    MEASURES: ClassVar[tuple[str, ...]] = MEASURES

    def measured(self, run: pd.DataFrame) -> pd.DataFrame:
        """Measures of each test question in a ranking of the test's candidates."""
        return per_query(run, self.test_qrels, list(MEASURES), self.test["qid"].drop_duplicates().tolist())

    def ranking(self, ranker: Any) -> pd.DataFrame:
        """The test's candidates, ranked by a ranker."""
        return ranker(self.test)

    @property
    def reads(self) -> int:
        """Number of texts that are read in evaluation."""
        return len(self.test)

    def parts(self, settings: Settings, seed: int) -> Iterator[tuple[str, TrainingSubset]]:
        """The list that labellers saw, and the training data, of each arm."""
        for part in training_subsets(self.train, self.subset, [*settings.thresholds, None], seed=seed):
            yield "planted", part


@dataclass(frozen=True)
class RealSetup:
    """Two files of questions: ``name``, training questions with paragraphs, judgements, subsets by list, both files."""

    name: str
    train: pd.DataFrame
    train_qrels: pd.DataFrame
    subsets: dict[str, SurvivorshipSubset]
    source: Questions
    test: Questions

    MEASURES: ClassVar[tuple[str, ...]] = REAL_MEASURES

    @classmethod
    def of(cls, settings: Settings, out: Path) -> "RealSetup":
        if settings.test is None or settings.train is None:
            raise InputError("real questions need both --train and --test, two SQuAD files")
        train, test = train_and_test(settings.train, settings.test, settings.queries)
        seen = lists(train, settings.model, out, depth=settings.shown)
        subsets = {}
        unknown = sorted(set(settings.lists) - set(seen))
        if unknown or not settings.lists:
            raise InputError(f"setting lists={list(settings.lists)} must be some of {', '.join(seen)}")
        for name in settings.lists:
            run = seen[name]
            # If the list lacks the answer, it comes right after the documents that labellers saw, as in a thorough search.
            missed = train.qrels.merge(run[["qid", "docno"]], how="left", indicator=True).query("_merge == 'left_only'")
            last = missed[["qid", "docno"]].assign(rank=settings.shown)
            subsets[name] = SurvivorshipSubset(pd.concat([run[["qid", "docno", "rank"]], last]), train.qrels)
        return cls(f"{train.name}, {test.name}", train.with_paragraphs(), train.qrels, subsets, train, test)

    def measured(self, run: pd.DataFrame) -> pd.DataFrame:
        """Measures of each test question, and its article."""
        found = per_query(run, self.test.qrels, list(REAL_MEASURES), self.test.topics["qid"].tolist())
        return found.assign(article=self.test.topics.set_index("qid")["article"].reindex(found.index))

    def ranking(self, ranker: Any) -> pd.DataFrame:
        """A ranker's first documents among all paragraphs."""
        return dense(self.test, ranker, 10)

    @property
    def reads(self) -> int:
        """Number of texts that are read in evaluation."""
        return len(self.test.collection.get_corpus()) + len(self.test.topics)

    def parts(self, settings: Settings, seed: int) -> Iterator[tuple[str, TrainingSubset]]:
        """The list that labellers saw, and the training data, of each arm; all arms have the same number of questions."""
        any_list = next(iter(self.subsets.values()))
        yield "any", next(training_subsets(self.train, any_list, [None], seed=seed, size=settings.size))
        for name, subset in self.subsets.items():
            given = {"seed": seed, "drawn": False, "later": True, "size": settings.size}
            for part in training_subsets(self.train, subset, settings.thresholds, **given):
                # An arm with fewer questions could not be compared with the others.
                if part.queries == settings.size:
                    yield name, part


def untrained(setup: "Setup | RealSetup", settings: Settings, out: Path, seed: int, **options: Any) -> BiEncoder | CrossEncoder:
    """An untrained ranker; options are those of its training."""
    if isinstance(setup, RealSetup):
        read = settings.ranker == "dense"
        training = Training(
            # An adapter's scores are cosines times a constant already.
            loss="infonce", loss_options={"temperature": TEMPERATURE if read else 1.0}, in_batch_negatives=True,
            negatives_per_positive=0, batch_size=settings.batch_size, learning_rate=LEARNING_RATES[settings.ranker],
            precision=settings.precision, seed=seed, **options,
        )  # fmt: skip
        if read:
            return bi_encoder(settings.model, settings.layers, out, max_length=settings.max_length, training=training)
        over_layer(setup.source, settings.model, out)  # reads the vectors of the texts to learn from
        return over_layer(setup.test, settings.model, out, training=training)
    training = Training(
        batch_size=settings.batch_size, min_label=ANSWERS, learning_rate=LEARNING_RATES[settings.ranker],
        precision=settings.precision, seed=seed, **options,
    )  # fmt: skip
    if settings.ranker == "adapter":
        return adapter_of(settings, training=training)
    encoder = encoder_of(settings, out)
    return CrossEncoder(encoder, head="mean", max_length=settings.max_length, seed=seed, training=training)


def arm_of(setup: Setup | RealSetup, shown: str, part: TrainingSubset, out: Path, settings: Settings, seed: int) -> Arm:
    """One ranker and its values by query; its ranking for real questions is stored with them."""

    def make(folder: Path, checkpoints: Path) -> pd.DataFrame:
        ranker = untrained(setup, settings, out, seed, max_steps=settings.optimiser_steps())
        ranker.fit(part.frame, setup.train_qrels)
        run = setup.ranking(ranker)
        if isinstance(setup, RealSetup):
            pt.io.write_results(run, str(folder / "run.trec.gz"))
        return setup.measured(run).reset_index().assign(training_queries=part.queries)

    k = "all" if part.k == float("inf") else str(int(part.k))
    labels = {"shown": shown, "k": k, "trained_on": part.kind, "seed": seed}
    return Arm(labels, make, "cross", settings.optimiser_steps(), setup.reads)


def without_training(setup: Setup | RealSetup, settings: Settings, out: Path) -> pd.DataFrame:
    """Means for the candidates' own order, if there are candidates, and for an untrained bi-encoder."""
    runs = {} if isinstance(setup, RealSetup) else {"nothing: BM25's order": setup.test}
    if settings.ranker != "cross":
        runs["nothing: untrained"] = setup.ranking(untrained(setup, settings, out, 0))
    rows = [
        {"shown": "", "k": "", "trained_on": name, "training_queries": 0, **setup.measured(run)[list(setup.MEASURES)].mean()}
        for name, run in runs.items()
    ]
    return pd.DataFrame(rows)


def tables(rows: pd.DataFrame, settings: Settings) -> dict[str, pd.DataFrame]:
    """Means by arm, and differences of each set of questions from a drawn set of equal size and from all answered questions."""
    rows = rows.assign(k=rows["k"].astype(str))
    real = settings.train is not None
    measures = REAL_MEASURES if real else MEASURES
    means = rows.groupby(ARM, sort=False)[["training_queries", *measures]].mean().reset_index()
    means["training_queries"] = means["training_queries"].astype(int)
    articles = rows.drop_duplicates("qid").sort_values("qid")["article"].to_numpy() if real else None
    less: dict[str, list[dict[str, Any]]] = {"drawn": [], "all": []}
    for measure in measures:
        names, values = matrix(rows, measure, ARM)
        at = {name: i for i, name in enumerate(names)}
        for shown, k, kind in names:
            if kind == DRAWN or k == "all":
                continue
            others = {"drawn": ("any", "all", FILTERED) if real else (shown, k, DRAWN), "all": (shown, "all", FILTERED)}
            for name, other in others.items():
                if other not in at:
                    continue
                pair = values[..., at[other]], values[..., at[shown, k, kind]]
                extra = () if articles is None else (articles,)
                found = (over_articles if extra else compare)(*pair, *extra, settings.resamples)
                less[name].append({"measure": measure, "shown": shown, "k": k, "trained_on": kind, **found})
    differences = {f"filtered_less_{name}": corrected(pd.DataFrame(found)) for name, found in less.items() if found}
    return {"effectiveness": means, **differences}


#: Captions of the tables in the documentation.
CAPTIONS = {
    "filtered_less_drawn": "Training on survivors minus training on as many questions drawn at random",
    "filtered_less_all": "Training on survivors minus training on all answered questions",
}

NOTES = [
    "k: training questions answered within the first k documents shown, or later; all: all answered questions, or as many of "
    "them as the other sets have.",
    "filtered_less_drawn: a set minus a drawn set of the same size; filtered_less_all: a set minus all answered questions; "
    "interval: bootstrap over seeds and queries, or articles.",
    "With one seed the interval holds for these rankers, not for others trained the same way.",
]


def main() -> None:
    options = base_parser(__doc__, Settings())
    options.add_argument("--train", help="SQuAD file of the questions to learn from, instead of a planted collection")
    options.add_argument("--test", help="SQuAD file of the questions to test on")
    options.add_argument("--thresholds", nargs="+", type=int, metavar="K", help="numbers of documents shown (default 2 5)")
    options.add_argument(
        "--ranker", choices=Settings.CHOICES["ranker"],
        help="cross-encoders (default), linear layers over fixed vectors, or, for real questions, bi-encoders",
    )
    options = options.parse_args()
    settings = read_settings(options, Settings())
    if any(k < 1 for k in settings.thresholds):
        raise InputError(f"setting thresholds={settings.thresholds} must be at least 1 each")
    if settings.train is not None or settings.test is not None:
        if settings.ranker == "cross":
            raise InputError("real questions need --ranker adapter or dense")
        setup: Setup | RealSetup = RealSetup.of(settings, options.out)
    else:
        setup = Setup.of(settings)
    workshop = Workshop(options.out, "filtered_training", settings, [setup])
    arms = [
        arm_of(setup, shown, part, options.out, settings, seed)
        for seed in range(settings.seeds)
        for shown, part in setup.parts(settings, seed)
    ]
    left = workshop.open(arms)
    step, before = (0.0, 0.0)
    if left:
        _, part = next(setup.parts(settings, 0))
        trial = untrained(setup, settings, options.out, 0, max_steps=1)
        step, before = pace(trial, part.frame, setup.train_qrels, trial.training)
    # Reading a text takes a sixth of the time of learning from one text of a pair.
    seconds = {arm.name: before + step * (arm.steps + arm.reads / (12 * settings.batch_size)) for arm in left}
    print(f"{len(left)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = workshop.carry_out(arms, seconds)
    found = tables(rows, settings)
    found["effectiveness"] = pd.concat([without_training(setup, settings, options.out), found["effectiveness"]])
    write_results(options.out, "Training on survivors", settings, found, NOTES, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
