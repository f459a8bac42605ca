"""Measures on questions that labellers could answer, compared with the truth over all questions, which is known for SQuAD.

    python examples/survivorship_bias/real_questions.py --questions squad_dev_v1.1_rebuilt.json \\
        --unanswerable squad_dev_v2.0_rebuilt.json --out real

Every question of SQuAD was asked about one paragraph. Suppose that labellers had seen only the first k paragraphs of a list, and
that questions whose paragraph was not among them had been dropped. Lists are those of BM25, of the lowest layer of
all-MiniLM-L6-v2, and of both together; systems are BM25, all-MiniLM-L6-v2, their fusion, further rankers
(`--ranker NAME=FOLDER`, over the fusion's first `rerank` paragraphs) and further runs (`--run NAME=FILE`). The program shows

- how far each system's mean over the surviving questions is from that over all (`distortion`), how much its lead over BM25
  changes (`lead`), and which systems change places (`order`);
- how well a question's text predicts whether it survives, or whether it has an answer at all (`answerability`, with SQuAD 2.0's
  unanswerable questions), tested on articles that were not in training, and on random questions;
- whether questions that are answered late or never are worded in a more complex way (`complexity`).

Questions about one article share the ranked paragraphs, so intervals are over articles (`clusters` shows how much wider this
makes them). Runs are stored in the folder; a call that was stopped continues from them.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt
from scipy import stats

from pyterrier_debias import Answerability, InputError
from pyterrier_debias.core import plots
from pyterrier_debias.core.files import file_name
from pyterrier_debias.core.statistics import Interval, detectable_effect
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.data.answers import read_squad
from pyterrier_debias.data.readers import read_run
from pyterrier_debias.report.cross_bias import wording_by_rank
from pyterrier_debias.report.models import find_model
from pyterrier_debias.survivorship.data.ranks import with_ranks
from pyterrier_debias.survivorship.formulas.nested import difference_of_means
from pyterrier_debias.survivorship.measures.curve import SurvivorshipCurve, SurvivorshipResult
from pyterrier_debias.survivorship.training.answerability import calibration_error

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from questions import BM25, ONE_LAYER, Questions, bi_encoder, dense, fused, kept, lists
from questions import bm25 as run_bm25
from workshop import named, program, read_settings, same_run, write_results

MINILM, FUSED = "all-MiniLM-L6-v2", "BM25 + MiniLM"
#: Thresholds in tables; curves show all.
SHOWN = ("1", "3", "10")
MEASURES = ("RR@10", "nDCG@10")
#: Groups of questions by the place of their paragraph in a list.
GROUPS = {"1": (1, 1), "2 to 3": (2, 3), "4 to 10": (4, 10), "never": (11, np.inf)}

#: Captions of the tables in the documentation.
CAPTIONS = {
    "distortion_by_k": "RR@10 over survivors minus RR@10 over all questions",
    "lead_by_k": "How much each system's lead over BM25 changes",
    "order_changes": "Pairs of systems that change places among survivors",
    "complexity": "Wording of questions, by the rank of their paragraph in the list",
    "answerability": "Predicting from a question whether it is answered",
}

NOTES = [
    "Intervals: 95 %, over articles: from the sums of each article's deviations and Student's quantile (answerability: from a "
    "bootstrap over articles).",
    "distortion: mean over survivors minus mean over all questions; lead: the same for each system minus BM25.",
    "reversed: pairs that change places, and for which the intervals of both differences exclude 0.",
    "detectable: the smallest effect that one two-sided test at 5 % finds with a power of 80 %.",
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a run.

    Attributes:
        questions: SQuAD file whose questions all have an answer.
        unanswerable: SQuAD file with unanswerable questions.
        model: Bi-encoder that is measured, and whose lowest layer makes a list.
        max_length: Largest number of tokens of a passage for the bi-encoder; None for its own.
        shown: Number of documents of a list that labellers see.
        queries: Largest number of questions; None for all.
        folds: Number of folds for answerability.
        resamples: Number of bootstrap resamples of articles, and of permutations for trends.
        rerank: Number of the fusion's documents that further rankers rerank.
        ranker: Further systems, NAME=FOLDER.
        run: Further systems, NAME=FILE.
    """

    questions: str = ""
    unanswerable: str = ""
    model: str = "minilm"
    max_length: int | None = None
    shown: int = 10
    queries: int | None = None
    folds: int = 4
    resamples: int = 999
    rerank: int = 20
    ranker: tuple[str, ...] = field(default=())
    run: tuple[str, ...] = field(default=())

    POSITIVE: ClassVar[tuple[str, ...]] = ("shown", "folds", "resamples", "rerank")
    CHOICES: ClassVar[Mapping[str, tuple[str, ...]]] = {}

    def record(self) -> dict[str, Any]:
        """The settings that all runs in a folder share, with files by their names."""
        said = {name: value for name, value in asdict(self).items() if name not in ("folds", "resamples", "ranker", "run")}
        return said | {name: Path(said[name]).name for name in ("questions", "unanswerable")}


def systems_of(questions: Questions, settings: Settings, out: Path) -> dict[str, pd.DataFrame]:
    """The runs that are measured."""
    depth = 5 * settings.shown
    lexical = kept(out / "runs" / "bm25.trec.gz", lambda: run_bm25(questions, depth))
    ranker = bi_encoder(settings.model, None, out, max_length=settings.max_length)
    neural = kept(out / "runs" / "minilm.trec.gz", lambda: dense(questions, ranker, depth))
    both = fused([lexical, neural], depth)
    runs = {BM25: lexical, MINILM: neural, FUSED: both}
    for name, folder in named("--ranker", settings.ranker, "FOLDER").items():
        ranker = find_model(folder).ranker()
        own = out / "runs" / file_name(f"{name} {keyed_hash(0, 'ranker', ranker.fingerprint()):x}")
        runs[name] = reranked(questions, ranker, both[both["rank"] < settings.rerank], own)
    return runs | {name: read_run(path) for name, path in named("--run", settings.run).items()}


def reranked(questions: Questions, ranker: Any, candidates: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Candidates in a ranker's order; the runs of each article's questions are stored, so that a stopped call can continue."""
    pipeline, parts = questions.collection.text_loader() >> ranker, []
    with ranker.remembering():  # an encoder reads each paragraph once
        for article, own in pt.tqdm(questions.topics.groupby("article", sort=False), desc=folder.name):
            rows = candidates.merge(own[["qid", "query"]], on="qid")
            parts.append(kept(folder / f"{file_name(article)}.trec.gz", lambda rows=rows: pipeline(rows)))
    return pd.concat(parts, ignore_index=True)


def curves(
    questions: Questions, systems: Mapping[str, pd.DataFrame], settings: Settings, out: Path
) -> dict[str, SurvivorshipResult]:
    """A curve for each list."""
    seen = lists(questions, settings.model, out, depth=settings.shown)
    every = {**systems, ONE_LAYER: seen[ONE_LAYER]}
    return {
        name: SurvivorshipCurve(
            every, run, questions.qrels, measures=list(MEASURES), ranks=settings.shown, baseline=BM25, cluster="article",
            resamples=settings.resamples,
        ).evaluate(questions.topics)
        for name, run in seen.items()
    }  # fmt: skip


def shares(found: Mapping[str, SurvivorshipResult]) -> pd.DataFrame:
    """How many questions survive."""
    parts = []
    for name, result in found.items():
        own = result.table[(result.table["name"] == BM25) & (result.table["measure"] == MEASURES[0])]
        own = own[own["subset"].str.isdigit()]
        parts.append(own[["k", "n", "share"]].astype({"k": "int64"}).assign(shown=name))
    return pd.concat(parts, ignore_index=True)[["shown", "k", "n", "share"]]


def against_all(found: Mapping[str, SurvivorshipResult], baseline: str | None) -> pd.DataFrame:
    """Distortions of means, or of leads over the baseline."""
    parts = [result.against_all(baseline=baseline).assign(shown=name) for name, result in found.items()]
    table = pd.concat(parts, ignore_index=True)
    table = table[table["subset"].isin(SHOWN)].rename(columns={"name": "system", "subset": "k"})
    return table[["measure", "shown", "system", "k", "n", "all", "survivors", "distortion", "low", "high"]]


def orders(found: Mapping[str, SurvivorshipResult]) -> pd.DataFrame:
    """Orders of the systems."""
    table = pd.concat([result.order().assign(shown=name) for name, result in found.items()], ignore_index=True)
    table = table[table["subset"] != "answered"].rename(columns={"subset": "k"})
    return table[["measure", "shown", "k", "n", "tau", "swapped", "reversed"]]


def widths(found: Mapping[str, SurvivorshipResult]) -> pd.DataFrame:
    """How much wider intervals over articles are than over questions: of a mean over all, and of a lead."""
    values = next(iter(found.values())).per_query
    values = values[values["measure"] == MEASURES[0]]
    wide = values.pivot(index="qid", columns="name", values="value")
    articles = values.drop_duplicates("qid").set_index("qid")["cluster"].reindex(wide.index).tolist()
    every = np.ones(len(wide), dtype=bool)
    rows = []
    for name in dict.fromkeys(values["name"]):
        for what, v in (("mean", wide[name]), (f"minus {BM25}", wide[name] - wide[BM25])):
            if v.any():
                one, two = (difference_of_means(v.to_numpy(), every, None, clusters=c) for c in (None, articles))
                rows.append((name, what, one.estimate, two.low, two.high, (two.high - two.low) / (one.high - one.low)))
    return pd.DataFrame(rows, columns=["system", "of", "value", "low", "high", "wider by"])


# Answerability


def auc(p: np.ndarray, y: np.ndarray, articles: np.ndarray, resamples: int) -> Interval:
    """Area under the ROC curve, with a bootstrap over articles."""
    names, place = np.unique(articles, return_inverse=True)
    rows = [np.flatnonzero(place == i) for i in range(len(names))]

    def area(chosen: np.ndarray) -> float:
        ranks, positive = stats.rankdata(p[chosen]), y[chosen] == 1
        n, m = positive.sum(), (~positive).sum()
        return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * m)) if n and m else float("nan")

    generator = np.random.default_rng(0)
    drawn = [area(np.concatenate([rows[i] for i in generator.integers(0, len(rows), len(rows))])) for _ in range(resamples)]
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return Interval(area(np.arange(len(p))), float(low), float(high), 0.95, len(names))


def predicted(topics: pd.DataFrame, units: pd.Series, settings: Settings) -> np.ndarray:
    """Each question's probability of an answer, by models that were not trained on its unit (article or question)."""
    order = sorted(set(units), key=lambda unit: (keyed_hash(0, "answerability", unit), unit))
    fold = units.map({unit: i % settings.folds for i, unit in enumerate(order)}).to_numpy()
    p = np.full(len(topics), np.nan)
    for number in range(settings.folds):
        held = fold == number
        if held.any():
            model = Answerability(folds=3).fit(topics[~held])
            p[held] = model(topics[held])["p_answered"]
    return p


def answerability(questions: Questions, found: Mapping[str, SurvivorshipResult], settings: Settings) -> pd.DataFrame:
    """How well the text of a question predicts whether it will be answered."""
    plain = read_squad(settings.unanswerable, unanswerable=True).get_topics().rename(columns={"title": "article"})
    if settings.queries is not None:
        plain = plain.iloc[:: max(1, len(plain) // settings.queries)].reset_index(drop=True)
    tasks: list[tuple[str, pd.DataFrame, str]] = [("has an answer (SQuAD 2.0)", plain, split) for split in ("article", "qid")]
    for name, k in ((BM25, 1), (ONE_LAYER, settings.shown)):
        ranks = found[name].per_query.drop_duplicates("qid")[["qid", "first_relevant_rank"]]
        seen = with_ranks(questions.topics, ranks)
        seen = seen.assign(answered=seen["first_relevant_rank"] <= k)[["qid", "query", "article", "answered"]]
        tasks.append((f"survives: {name}, k = {k}", seen, "article"))
    rows = []
    for outcome, topics, split in tasks:
        p, y = predicted(topics, topics[split], settings), topics["answered"].to_numpy(dtype=float)
        area = auc(p, y, topics["article"].to_numpy(), settings.resamples)
        skill = 1 - ((p - y) ** 2).mean() / ((y - y.mean()) ** 2).mean()
        rows.append(
            {
                "outcome": outcome, "tested on": "other articles" if split == "article" else "other questions",
                "questions": len(y), "share": y.mean(), "AUC": area.estimate, "AUC_low": area.low, "AUC_high": area.high,
                "detectable": detectable_effect(area), "skill": skill, "calibration error": calibration_error(p, y),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


# Complexity


def complexity(questions: Questions, found: Mapping[str, SurvivorshipResult]) -> pd.DataFrame:
    """How questions are worded, by the place of their paragraph in a list."""
    topics, _ = wording_by_rank(questions.topics)
    topics = topics.assign(words=topics["query"].str.split().str.len())
    rows = []
    for name, result in found.items():
        ranks = result.per_query.drop_duplicates("qid")[["qid", "first_relevant_rank"]]
        r = with_ranks(questions.topics, ranks)["first_relevant_rank"].to_numpy()
        for measure in ("complexity", "TTR", "words"):
            v = topics[measure].to_numpy(dtype=float)
            there = np.isfinite(v)
            member = {group: (r >= low) & (r <= high) & there for group, (low, high) in GROUPS.items()}
            row: dict[str, Any] = {"shown": name, "measure": measure}
            for group, own in member.items():
                row[f"at {group}" if group != "never" else group] = v[own].mean() if own.any() else float("nan")
            clusters = questions.topics["article"].tolist()
            gap = difference_of_means(np.where(there, v, 0.0), member["never"], member["1"], clusters=clusters)
            spread = v[there].std() or float("nan")
            scaled = [x / spread for x in (gap.estimate, gap.low, gap.high)]
            rows.append({**row, **dict(zip(("never minus first, in sd", "gap_low", "gap_high"), scaled)),
                         "detectable": detectable_effect(Interval(*scaled, 0.95, len(set(clusters))))})  # fmt: skip
    return pd.DataFrame(rows)


def draw(found: Mapping[str, SurvivorshipResult], path: Path) -> None:
    """Draw one panel per list: means over survivors for each k, and over all questions."""
    from matplotlib import pyplot

    with plots.style():
        figure, axes = pyplot.subplots(1, len(found), figsize=(10, 4), sharey=True)
        for panel, (name, result) in zip(axes, found.items()):
            own = result.table[(result.table["measure"] == MEASURES[0]) & (result.table["type"] == "all types")]
            for number, (system, rows) in enumerate(own.groupby("name", sort=False)):
                rows = rows[rows["subset"].str.isdigit() | (rows["subset"] == "all")]
                place = np.arange(len(rows))
                colour = plots.colour(number)
                low, high = rows["mean_low"][:-1], rows["mean_high"][:-1]
                panel.fill_between(place[:-1], low, high, color=colour, alpha=0.15, linewidth=0)
                panel.plot(place[:-1], rows["mean"][:-1], "o-", color=colour, label=system, markersize=4)
                last = rows.iloc[-1]
                ends = plots.ends(last["mean"], last["mean_low"], last["mean_high"])
                panel.errorbar(place[-1:], [last["mean"]], yerr=ends.reshape(2, 1), fmt="D", color=colour, markersize=5)
            panel.set_xticks(place, rows["subset"])
            panel.set_title(f"labellers saw: {name}")
            panel.set_xlabel("first k shown; all questions")
        axes[0].set_ylabel(f"mean {MEASURES[0]} over surviving questions")
        axes[0].set_ylim(0, 1.02)
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
        plots.save(figure, path)


def by_k(table: pd.DataFrame) -> pd.DataFrame:
    """Distortions of the first measure, a column for each threshold."""
    own = table[table["measure"] == MEASURES[0]]
    rows = []
    for (shown, system), part in own.groupby(["shown", "system"], sort=False):
        row: dict[str, Any] = {"shown": shown, "system": system, "all": part["all"].iloc[0]}
        for k, one in part.set_index("k").iterrows():
            row |= {f"k = {k}": one["distortion"], f"k = {k}_low": one["low"], f"k = {k}_high": one["high"]}
        rows.append(row)
    return pd.DataFrame(rows)


def changes(table: pd.DataFrame) -> pd.DataFrame:
    """Where systems change places by the first measure."""
    own = table[(table["measure"] == MEASURES[0]) & (table["swapped"] != "")]
    return own.drop(columns="measure")


def results(questions: Questions, settings: Settings, out: Path) -> Iterator[tuple[str, pd.DataFrame]]:
    """All tables, by name."""
    found = curves(questions, systems_of(questions, settings, out), settings, out)
    draw(found, out / "curves.png")
    yield "shares", shares(found)
    for name, table in (("distortion", against_all(found, None)), ("lead", against_all(found, BM25))):
        yield name, table
        yield f"{name}_by_k", by_k(table)
    order = orders(found)
    yield "order", order
    yield "order_changes", changes(order)
    yield "clusters", widths(found)
    yield "complexity", complexity(questions, found)
    yield "answerability", answerability(questions, found, settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", help="SQuAD file whose questions all have an answer (v1.1)")
    parser.add_argument("--unanswerable", help="SQuAD file with unanswerable questions (v2.0)")
    parser.add_argument("--ranker", action="append", metavar="NAME=FOLDER", help="a further system: folder of a saved ranker")
    parser.add_argument("--run", action="append", metavar="NAME=FILE", help="a further system; may be repeated")
    parser.add_argument("--model", help="bi-encoder: hub name, folder, or minilm (default minilm)")
    parser.add_argument("--queries", type=int, help="largest number of questions (default all)")
    parser.add_argument("--resamples", type=int, help="draws of articles, and permutations (default 999)")
    parser.add_argument("--config", type=Path, help="JSON file with further settings")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a call that was stopped continues from it")
    options = parser.parse_args()
    settings = read_settings(options, Settings())
    if not settings.questions or not settings.unanswerable:
        raise InputError("name both files: --questions and --unanswerable")
    questions = Questions.of(settings.questions, settings.queries)
    same_run(options.out, "real_questions", settings, [questions.name])
    tables = dict(results(questions, settings, options.out))
    write_results(options.out, "Survivors of real questions", settings, tables, NOTES, CAPTIONS)


if __name__ == "__main__":
    sys.exit(program(main))
