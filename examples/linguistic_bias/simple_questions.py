"""A positive control for bias by wording: what does a ranker lose on complex questions if it only learns from simple ones?

    python examples/linguistic_bias/simple_questions.py --train squad_train_v1.1_44articles.json \\
        --test squad_dev_v1.1_rebuilt.json --config examples/linguistic_bias/simple_questions.json --out simple

trains bi-encoders that read the text (the lowest layers of all-MiniLM-L6-v2; the other paragraphs of a batch are negatives) on
equal numbers of questions of one SQuAD file: from its simplest third, from its most complex third, or from all. They rank all
paragraphs of the other file for its questions. With `--config simple_questions_cross.json` the rankers are cross-encoders
instead: negatives are paragraphs that BM25 finds, and BM25's first paragraphs are re-ranked. The gap is a difference of
differences: the gain of learning from all questions over learning from simple ones on complex test questions, minus the same gain
on simple test questions. The limits of the thirds come from the training questions and are applied to the test questions.
Intervals and tests are over seeds and articles, because questions about one article share the ranked paragraphs.

Some training articles are held out for the pilot. With `--pilot`, rankers learn from all questions at each of the learning rates
in the settings, and from simple questions at the chosen rate, with one seed each. They are tested only on the held-out articles.
The rate and the sizes are fixed before the test data are used.

If the gap is above `least_gap`, and only then, the treatments of the settings (`treatments`) are trained on the same simple
questions, to see which share of the gap each closes.

A run that was stopped continues with the same command. Complexity is computed once. `--estimate` prints how long it takes.

With `complex_share`, that share of the simple questions is replaced by questions of the most complex third: rankers that learn
from few complex questions are compared with those that learn from all questions, and treatments can give the few more weight.
"""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias import InputError
from pyterrier_debias.core import plots
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.linguistic.measures.disparity import query_length
from pyterrier_debias.training.groups import AddJudged

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from questions import Questions, bm25, dense, file_names, kept, train_and_test
from reporting import cv_of, mean_of, moments
from study import CROSS, WAYS, Way, at_alpha, complexity_of, keep_beside, new_ranker, training_of
from study import Settings as Wording
from workshop import (
    Arm,
    Workshop,
    article_interval,
    base_parser,
    corrected,
    draw,
    ends,
    matrix,
    minutes,
    over_articles,
    pace,
    program,
    read_settings,
    share_closed,
    write_results,
)

MEASURES = ("nDCG@10", "RR@10")
#: Parts of the questions by their complexity, simplest first, and the name of all together.
THIRDS = ("simple", "middle", "complex")
ALL = "all"
#: The questions that rankers learn from; other choices are compared with the first, or with the second if `complex_share` is set.
TRAINED_ON = ("simple", "mostly simple", ALL, "complex")
UNTRAINED = "nothing: untrained"
#: Treatments that are tried on simple questions: EqualizeIR, its alternatives, and EqualizeIR with larger alphas.
TREATMENTS: dict[str, Way] = {
    **{name: way for name, way in WAYS.items() if name not in ("plain", "reverse weight, of the probability")},
    **{f"Equalize, alpha {alpha:g}": Way(at_alpha(alpha), 1.2, after="Equalize, weaker model") for alpha in (0.5, 1.0)},
}
#: The names of arms with a treatment by the questions that they learn from, and the treatments.
TREATED = {f"{base}: {name}": name for base in TRAINED_ON[:2] for name in TREATMENTS}
#: Columns that name an arm, without its seed.
ARM = ["tested_on", "rate", "trained_on"]


@dataclass(frozen=True, kw_only=True)
class Settings(Wording):
    """The settings of a run; ``queries`` is the number of test questions.

    ``ranker`` may also be ``'cross'``: a cross-encoder over BM25's first ``depth`` paragraphs, in training and in the test.

    Attributes:
        train: SQuAD file of the questions to learn from.
        test: SQuAD file of the questions to test on.
        size: Number of training questions per arm.
        complex_share: Share of questions of the most complex third among the questions that treatments learn from; 0 for none.
        held_out: Number of training articles that are held out for the pilot; no arm learns from them.
        rates: Learning rates that the pilot tries; ``learning_rate`` is one of them.
        least_gap: The stop rule: treatments are only tried if the interval of the gap is above this value.
        treatments: Names of treatments in ``TREATMENTS``; one that learns against the weak model of another comes after it.
    """

    train: str | None = None
    test: str | None = None
    size: int = 900
    complex_share: float = 0.0
    held_out: int = 4
    learning_rate: float = 3e-4
    rates: tuple[float, ...] = (1e-4, 3e-4)
    least_gap: float = 0.0
    treatments: tuple[str, ...] = ()
    negatives_per_positive: int = 0
    queries: int = 2000
    seeds: int = 3

    POSITIVE: ClassVar[tuple[str, ...]] = (*Wording.POSITIVE, "size", "held_out")
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {**Wording.CHOICES, "ranker": (*Wording.CHOICES["ranker"], CROSS)}

    @property
    def base(self) -> str:
        """The questions that treatments learn from, and with which other arms are compared."""
        return TRAINED_ON[1] if self.complex_share else TRAINED_ON[0]

    @property
    def trained_on(self) -> tuple[str, ...]:
        """The questions that arms without a treatment learn from."""
        return (self.base, ALL) if self.complex_share else (self.base, *TRAINED_ON[2:])

    def record(self) -> dict[str, Any]:
        """The settings of a folder; files by their names, without rates and treatments, which are in the names of arms."""
        known = {**super().record(), **file_names(self.train, self.test)}
        return {name: value for name, value in known.items() if name not in ("learning_rate", "rates", "treatments")}

    def check(self) -> None:
        """Refuse a share outside 0 to 1, unknown treatments, and treatments whose weak model is not made before them.

        Raises:
            InputError: For such a share or treatment.
        """
        if not 0 <= self.complex_share < 1:
            raise InputError(f"setting complex_share={self.complex_share} must be at least 0 and less than 1")
        for at, name in enumerate(self.treatments):
            if name not in TREATMENTS:
                raise InputError(f"setting treatments: there is no {name!r}; use some of {', '.join(TREATMENTS)}")
            after = TREATMENTS[name].after
            if after and after not in self.treatments[:at]:
                raise InputError(f"setting treatments: {name!r} needs the weak model of {after!r}, which must come before it")


@dataclass(frozen=True)
class Setup:
    """Two files of questions with their complexity.

    Attributes:
        name: The names of both files.
        train: The training questions, each with its paragraph; with ``complexity``, ``third``, ``article``.
        qrels: Their judgements.
        tests: The test sets by name: the held-out articles of the training file, and the test file.
        found: For cross-encoders: the candidates to learn from, and the candidates to re-rank by the name of the test set.
        report: One row each for training and test: number of questions in each third, and how far complexity is only length.
    """

    name: str
    train: pd.DataFrame
    qrels: pd.DataFrame
    tests: Mapping[str, Questions]
    found: Mapping[str, pd.DataFrame]
    report: pd.DataFrame

    @classmethod
    def of(cls, settings: Settings, out: Path) -> "Setup":
        """Read both files.

        Raises:
            InputError: For a missing file, articles in common, or thirds with fewer questions than an arm needs.
        """
        if settings.test is None or settings.train is None:
            raise InputError("name two SQuAD files, --train and --test")
        train, test = train_and_test(settings.train, settings.test)
        articles = sorted(set(train.topics["article"]), key=lambda name: keyed_hash(settings.split_seed, "held out", name))
        aside = train.topics["article"].isin(articles[: settings.held_out])
        known = complexities(train.topics, aside, test.topics, settings, out)
        edges = np.quantile(known[known["part"] == "train"]["complexity"], [1 / 3, 2 / 3])
        known["third"] = np.array(THIRDS)[np.searchsorted(edges, known["complexity"], side="right")]
        about = known.set_index("qid")[["complexity", "third", "words"]]
        drawn = draw(test.topics, settings.queries, settings.split_seed, "test")
        tests = {
            "held out": replace(train, topics=train.topics[aside].join(about, on="qid").reset_index(drop=True)),
            "test": replace(test, topics=drawn.join(about, on="qid")),
        }
        frame = train.with_paragraphs().merge(known.loc[known["part"] == "train", ["qid", "complexity", "third"]], on="qid")
        fewest = int(frame["third"].value_counts().min())
        if fewest < settings.size:
            raise InputError(f"setting size={settings.size}: a third has only {fewest} training questions; choose a smaller size")
        parts = {"training": known[known["part"] == "train"], "test": tests["test"].topics}
        report = pd.DataFrame([{"questions": name, **described(part)} for name, part in parts.items()])
        found = {}
        if settings.ranker == CROSS:
            found = {name: own.collection.text_loader()(candidates(own, name, settings, out)) for name, own in tests.items()}
            learned = candidates(replace(train, topics=frame[["qid", "query"]]), "train", settings, out)
            learned = (AddJudged(train.qrels) >> train.collection.text_loader())(learned)
            found["train"] = learned.merge(frame[["qid", "complexity"]], on="qid")
        return cls(f"{train.name}, {test.name}", frame, train.qrels, tests, found, report)

    def part(self, name: str, settings: Settings, seed: int) -> pd.DataFrame:
        """The questions that an arm learns from, with their paragraphs: the same number for all arms, drawn by the seed."""
        if name == TRAINED_ON[1]:
            few = round(settings.complex_share * settings.size)
            sizes = {THIRDS[0]: settings.size - few, THIRDS[2]: few}
        else:
            sizes = {name: settings.size}
        able = {part: self.train if part == ALL else self.train[self.train["third"] == part] for part in sizes}
        return pd.concat([draw(able[part], size, seed, "train") for part, size in sizes.items()], ignore_index=True)

    def lists(self, part: pd.DataFrame) -> pd.DataFrame:
        """The training data of a ranker: these questions with all their candidates."""
        known = self.found.get("train")
        return part if known is None else known[known["qid"].isin(part["qid"])].reset_index(drop=True)


def candidates(questions: Questions, name: str, settings: Settings, out: Path) -> pd.DataFrame:
    """BM25's first paragraphs for each question, without their texts; the run is stored in a file."""
    run = kept(out / f"bm25-{name.replace(' ', '_')}.res.gz", lambda: bm25(questions, settings.depth))
    return run.merge(questions.topics[["qid", "query"]], on="qid")


def complexities(train: pd.DataFrame, aside: pd.Series, test: pd.DataFrame, settings: Settings, out: Path) -> pd.DataFrame:
    """``qid``, ``part``, ``words``, ``complexity`` of all questions, normalised over the training questions; stored."""
    path = out / "complexity.csv"
    if not path.is_file():
        stage = complexity_of(settings).fit(train[~aside])
        parts = {"train": train[~aside], "held out": train[aside], "test": test}
        found = pd.concat([stage(topics).assign(part=name) for name, topics in parts.items()])
        found = found.assign(words=query_length(found["query"]))[["qid", "part", "words", "complexity"]]
        if found["complexity"].isna().any():
            raise InputError("some questions have no words and therefore no complexity; leave them out of the files")
        write_whole(path, found.to_csv(index=False))
    return pd.read_csv(path, dtype={"qid": str})


def described(questions: pd.DataFrame) -> dict[str, Any]:
    """Size and mean words of each third, and the rank correlation of complexity with the number of words."""
    thirds = questions.groupby("third")["words"]
    sizes, words = thirds.size().reindex(THIRDS, fill_value=0), thirds.mean().reindex(THIRDS)
    return {
        "all": len(questions), **sizes.astype(int), **{f"words, {name}": words[name] for name in THIRDS},
        "complexity by words": questions["complexity"].corr(questions["words"], method="spearman"),
    }  # fmt: skip


def measured(ranker: Any, questions: Questions, lists: pd.DataFrame | None) -> pd.DataFrame:
    """Measures of each question; the ranker re-ranks the question's list, or ranks all paragraphs of the file."""
    run = ranker(lists) if lists is not None else dense(questions, ranker, 10)
    return per_query(run, questions.qrels, list(MEASURES), questions.topics["qid"].tolist()).reset_index()


def arm_of(setup: Setup, tested: str, rate: float, trained: str, seed: int, settings: Settings, workshop: Workshop) -> Arm:
    """One ranker and its values by question."""
    settings, out = replace(settings, learning_rate=rate), workshop.out
    questions, lists = setup.tests[tested], setup.found.get(tested)

    def labels_of(name: str) -> dict[str, Any]:
        return {"tested_on": tested, "rate": rate, "trained_on": name, "seed": seed}

    name = TREATED.get(trained, "plain")
    way = TREATMENTS.get(name, WAYS["plain"])

    def make(folder: Path, checkpoints: Path) -> pd.DataFrame:
        if trained == UNTRAINED:
            return measured(new_ranker(settings, out), questions, lists).assign(paragraphs=0)
        part = setup.part(settings.base if trained in TREATED else trained, settings, seed)
        other = workshop.waited(Arm(labels_of(f"{settings.base}: {way.after}"), make, "", 0, 0)) if way.after else None
        fitted = way.fit(settings, seed, out, setup.lists(part), setup.qrels, other=other)
        keep_beside(name, fitted, folder)
        found = measured(getattr(fitted, "relevance", fitted), questions, lists)
        return found.assign(paragraphs=part["docno"].nunique())

    steps = 0 if trained == UNTRAINED else round(way.cost * settings.optimiser_steps())
    # A question takes about a fifth of the time of a paragraph.
    reads = len(questions.collection.get_corpus()) + len(questions.topics) // 5 if lists is None else len(lists)
    return Arm(labels_of(trained), make, CROSS if lists is not None else "bi", steps, reads)


def planned(setup: Setup, settings: Settings, workshop: Workshop, *, pilot: bool) -> Iterator[Arm]:
    """The arms, seed by seed; the untrained ranker occurs once."""
    if pilot:
        tried = [(rate, ALL) for rate in settings.rates]
        for rate, trained in [*tried, (settings.learning_rate, settings.base)]:
            yield arm_of(setup, "held out", rate, trained, 0, settings, workshop)
        return
    yield arm_of(setup, "test", 0.0, UNTRAINED, 0, settings, workshop)
    for seed in range(settings.seeds):
        for trained in settings.trained_on:
            yield arm_of(setup, "test", settings.learning_rate, trained, seed, settings, workshop)


def treated(setup: Setup, settings: Settings, workshop: Workshop) -> list[Arm]:
    """The arms with a treatment, seed by seed."""
    return [
        arm_of(setup, "test", settings.learning_rate, f"{settings.base}: {name}", seed, settings, workshop)
        for seed in range(settings.seeds) for name in settings.treatments
    ]  # fmt: skip


class Results:
    """Values of arms by question, and the tables that come from them.

    Args:
        rows: ``seed``, ``qid``, the columns of arms, ``paragraphs`` and the measures.
        topics: The test's questions with ``article`` and ``third``.
        resamples: Number of bootstrap resamples.
        base: The arm with which the others are compared.
    """

    def __init__(self, rows: pd.DataFrame, topics: pd.DataFrame, resamples: int, base: str = TRAINED_ON[0]):
        self.rows, self.resamples, self.base = rows, resamples, base
        topics = topics.sort_values("qid")
        self.articles, self.third = topics["article"].to_numpy(), topics["third"].to_numpy()

    def values(self, measure: str) -> dict[tuple[Any, ...], np.ndarray]:
        """Values by arm, of shape [seeds, questions]; the untrained ranker has a single seed."""
        fixed = self.rows["trained_on"] == UNTRAINED
        return {
            name: values[..., at]
            for part in (self.rows[fixed], self.rows[~fixed]) if len(part)
            for names, values in [matrix(part, measure, ARM)] for at, name in enumerate(names)
        }  # fmt: skip

    def means(self) -> pd.DataFrame:
        """Mean nDCG@10 by third of the test, and mean and coefficient of variation over all its questions."""
        lines = []
        paragraphs = self.rows.groupby(ARM)["paragraphs"].mean()
        for arm, values in self.values(MEASURES[0]).items():
            line: dict[str, Any] = {**dict(zip(ARM, arm)), "paragraphs": round(paragraphs[arm])}
            for third in THIRDS:
                at = self.third == third
                line |= ends(third, article_interval(values[:, at, None], self.articles[at], mean_of, self.resamples))
            for name, statistic in (("mean", mean_of), ("cv", cv_of)):
                line |= ends(name, article_interval(moments(values), self.articles, statistic, self.resamples))
            lines.append(line)
        return pd.DataFrame(lines).sort_values(["rate", "trained_on"], key=in_order, ignore_index=True)

    def gaps(self) -> pd.DataFrame:
        """The gain of each arm over the one that learned from (mostly) simple questions, on complex and on simple test questions,
        and the difference."""
        lines = []
        for measure in MEASURES:
            values = self.values(measure)
            for (tested, rate, trained), after in values.items():
                before = values.get((tested, rate, self.base))
                if before is None or trained == self.base or trained in TREATED:
                    continue
                lines.append({"measure": measure, "rate": rate, "trained_on": trained, **self.gap(before, after)})
        table = corrected(pd.DataFrame(lines))
        return table.sort_values(["measure", "rate", "trained_on"], key=in_order, ignore_index=True)

    def gap(self, before: np.ndarray, after: np.ndarray, name: str = "gap") -> dict[str, Any]:
        """The gains of one arm over another (shape [seeds, questions]) on complex and simple questions; ``name``: their gap."""
        at = {third: self.third == third for third in (THIRDS[2], THIRDS[0])}
        line: dict[str, Any] = {}
        for third, own in at.items():
            found = over_articles(before[:, own], after[:, own], self.articles[own], self.resamples)
            line |= {f"gain, {third}": found["difference"], f"gain, {third}_low": found["low"],
                     f"gain, {third}_high": found["high"]}  # fmt: skip
        both = over_articles(before, after, self.articles, self.resamples, less=(at[THIRDS[2]], at[THIRDS[0]]))
        return {**line, name: both.pop("difference"), **both}

    def treatments(self) -> pd.DataFrame:
        """How much each treatment closes of the gap between learning from (mostly) simple and from all questions, in nDCG@10."""
        values = {trained: own for (_, _, trained), own in self.values(MEASURES[0]).items()}
        simple, full, ones = values[self.base], values[ALL], np.ones_like(values[ALL])
        masks = [self.third == third for third in (THIRDS[2], THIRDS[0])]

        def share(m: np.ndarray) -> np.ndarray:
            # For complex, then for simple questions: sums of the arms simple, treated and all, and the number of questions.
            closed, whole = (
                (m[..., own] - m[..., 0]) / m[..., 3] - (m[..., own + 4] - m[..., 4]) / m[..., 7] for own in (1, 2)
            )  # fmt: skip
            return share_closed(whole, whole - closed)

        def change(m: np.ndarray) -> np.ndarray:
            return cv_of(m[..., 2:]) - cv_of(m[..., :2])

        lines = []
        for arm in (arm for arm in TREATED if arm in values):
            parts = np.stack([own * mask for mask in masks for own in (simple, values[arm], full, ones)], axis=-1)
            both = np.concatenate([moments(simple), moments(values[arm])], axis=-1)
            lines.append({
                "treatment": TREATED[arm], **self.gap(simple, values[arm], "closed"),
                **ends("share closed", article_interval(parts, self.articles, share, self.resamples)),
                **ends("cv change", article_interval(both, self.articles, change, self.resamples)),
            })  # fmt: skip
        return corrected(pd.DataFrame(lines))

    def draw(self, path: Path) -> None:
        """Draw the gains of arms over learning from (mostly) simple questions, by third of the test."""
        values = self.values(MEASURES[0])
        axes = plots.new_axes(6.0, 3.4)
        before = next(own for arm, own in values.items() if arm[2] == self.base)
        others = [(arm[2], own) for arm, own in values.items() if arm[2] in TRAINED_ON and arm[2] != self.base]
        for number, (trained, after) in enumerate(sorted(others, key=lambda pair: TRAINED_ON.index(pair[0]))):
            found = []
            for third in THIRDS:
                own = self.third == third
                found.append(over_articles(before[:, own], after[:, own], self.articles[own], self.resamples))
            centre, low, high = (np.array([one[name] for one in found]) for name in ("difference", "low", "high"))
            axes.errorbar(
                np.arange(len(THIRDS)) + 0.1 * number, centre, plots.ends(centre, low, high), fmt="o", capsize=3,
                color=plots.colour(number), label=f"learned from {trained} questions",
            )  # fmt: skip
        axes.axhline(0.0, color="grey", linewidth=0.8)
        plots.name_ticks(axes, THIRDS)
        axes.set_xlabel("third of the test questions")
        axes.set_ylabel(f"gain in {MEASURES[0]}")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        plots.save(axes.figure, path, dpi=100)


def decision(gaps: pd.DataFrame, least: float) -> tuple[str, bool]:
    """The result of the stop rule for learning from all questions, in nDCG@10, and whether to try treatments."""
    row = gaps[(gaps["measure"] == MEASURES[0]) & (gaps["trained_on"] == ALL)].iloc[0]
    found = f"the gap that learning from all questions closes is {row['gap']:.3f} [{row['low']:.3f}, {row['high']:.3f}]"
    if row["low"] > least:
        return f"{found}, above {least:g}: treatments are worth trying.", True
    unseen = f"a gap of {row['detectable']:.3f} would have been found"
    return f"{found}, not above {least:g}: there is nothing to mend; {unseen}.", False


def in_order(column: pd.Series) -> pd.Series:
    """Sort keys: names in the order of this program, numbers as they are."""
    order = {name: at for at, name in enumerate((UNTRAINED, *TRAINED_ON, *TREATED, *MEASURES))}
    return column if pd.api.types.is_numeric_dtype(column) else column.map(order)


#: Captions of the tables in the documentation.
CAPTIONS = {
    "questions": "The questions that rankers learn from",
    "means": "nDCG@10 by third of the test questions",
    "gap": "Gain over learning from simple questions, and the gap between complex and simple ones",
    "treatments": "Treatments, trained on the same questions as plain training: how much of the gap each closes",
}

NOTES = [
    "trained_on: equal numbers of questions of the simplest third, of all, or of the most complex third; mostly simple: of the "
    "simplest third, but for a share of the most complex third; paragraphs: number of their paragraphs. simple, middle, complex, "
    "mean: nDCG@10 over test questions of that third, and over all; cv: sd / mean over all.",
    "gain: over learning from simple or mostly simple questions, on complex and on simple test questions; gap: the first minus "
    "the second; closed: the same for a treatment; share closed: closed as a share of the gap that learning from all questions "
    "closes.",
    "Intervals: 95 %, bootstrap over seeds and articles; p: randomisation of articles, p_corrected: Holm over the table; "
    "detectable: the smallest effect that one test finds with a power of 80 %.",
]


def main() -> None:
    options = base_parser(__doc__, Settings())
    options.add_argument("--train", help="SQuAD file of the questions to learn from")
    options.add_argument("--test", help="SQuAD file of the questions to test on")
    options.add_argument("--pilot", action="store_true", help="one seed at each rate, tested on held-out training articles")
    options.add_argument("--treatments", nargs="+", choices=TREATMENTS, help="treatments, instead of those in the settings")
    options = options.parse_args()
    settings = read_settings(options, Settings())
    if options.pilot and settings.learning_rate not in settings.rates:
        raise InputError(f"setting learning_rate={settings.learning_rate} is not among rates={settings.rates}")
    settings.check()
    setup = Setup.of(settings, options.out)
    workshop = Workshop(options.out, "simple_questions", settings, [setup])
    arms = list(planned(setup, settings, workshop, pilot=options.pilot))
    later = [] if options.pilot else treated(setup, settings, workshop)
    left = workshop.open([*arms, *later])
    step = before = 0.0
    if left:
        trial = new_ranker(settings, options.out, training=training_of(settings, 0))
        step, before = pace(trial, setup.lists(setup.part(ALL, settings, 0)), setup.qrels, trial.training)
    # A text is read in a third of the time that it takes to learn from it.
    seconds = {arm.name: before + step * (arm.steps + arm.reads / (3 * settings.batch_size)) for arm in left}
    every, time = len(arms) + len(later), minutes(sum(seconds.values()))
    print(f"{len(left)} of {every} arms to make: about {time} on this machine", flush=True)
    if options.estimate:
        return
    rows = workshop.carry_out(arms, seconds)
    tested = "held out" if options.pilot else "test"
    results = Results(rows, setup.tests[tested].topics, settings.resamples, settings.base)
    gaps, more = results.gaps(), {}
    if options.pilot:
        tables = {"questions": setup.report, "means": results.means(), "gap": gaps}
        write_results(options.out / "pilot", "Pilot on held-out articles", settings, tables, NOTES)
        return
    found, mend = decision(gaps, settings.least_gap)
    if mend and later:
        print(found, flush=True)
        rows = workshop.carry_out([*arms, *later], seconds)
        results = Results(rows, setup.tests[tested].topics, settings.resamples, settings.base)
        more = {"treatments": results.treatments()}
    tables = {"questions": setup.report, "means": results.means(), "gap": gaps, **more}
    results.draw(options.out / "gains.png")
    notes = [*NOTES, f"stop rule: {found}"]
    # All rows have the same test and, except for the untrained ranker, the same rate.
    tables = {name: table.drop(columns=["tested_on", "rate"], errors="ignore") for name, table in tables.items()}
    write_results(options.out, "Learning from simple questions", settings, tables, notes, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
