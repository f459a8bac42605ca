"""Which correction copes with hidden judgements? CET, its forms and its alternatives on planted collections.

    python examples/pooling_bias/planted.py --out planted

makes one planted collection for each seed, in which half of the passages are paraphrases that share no word with the questions
they answer. A pool of BM25's first results hides most of them. Rankers (three layers of all-MiniLM-L6-v2 as a cross-encoder) are
trained on the remaining judgements, with negatives from the top of a dense retriever (all six layers), where the hidden passages
appear. In the test they rank longer dense lists, and are evaluated on all judgements. The corrections are compared with plain
training, with an oracle that never draws a hidden document as a negative, and with training on all judgements.

    python examples/pooling_bias/planted.py --config examples/pooling_bias/strong.json --out strong

is the same experiment with a strong effect of the pool, and without any pre-trained model. Candidates come from a simulated
stronger system. One half of its vector of a text represents words, the other half knowledge of relevance. Most of the passages
that it ranks first were hidden. Rankers are linear layers over such vectors in which words weigh twice as much; they train in
seconds. They have to learn that knowledge counts more than words, although the pool's labels suggest the opposite.
`--config text.json` gives the candidates of this system to cross-encoders.

A run that was stopped continues with the same command. Seeds can be made by several commands (`--seeds 1`, then `--seeds 5`);
finished seeds are read. `--arms` selects some of the corrections, `--estimate` prints how long it takes. `--config` names a JSON
file with further settings, for example `{"pool_depth": 10}`.
"""

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt
from protocol import CONTROLS, CORRECTIONS, COSTS, SimulatedJudge, measures_of, taught

from pyterrier_debias import AddJudged, BiEncoder, CrossEncoder, PlantedCollection, Training
from pyterrier_debias.core import plots
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.files import whole_folder
from pyterrier_debias.core.text import keyed_generator
from pyterrier_debias.pooling.data.scores import AddScores
from pyterrier_debias.pooling.measures.hidden import HiddenJudgements
from pyterrier_debias.pooling.measures.hidden_result import HiddenResult, auc, combined
from pyterrier_debias.pooling.training.negatives import RankDistribution
from pyterrier_debias.report.models import find_model

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import Shared, adapter_of, base_parser, encoder_of, minutes, pace, program, read_settings, same_run, write_results

PARTS = ("train", "test", "dense")
#: The arms that are run by default.
ARMS = [name for name in CORRECTIONS if name not in CONTROLS]


@dataclass(frozen=True, kw_only=True)
class Settings(Shared):
    """The settings of a run; ``depth`` is the number of dense results per topic that are training candidates (the first results,
    which hold most unlabelled positives), ``queries`` the number of test topics.

    Attributes:
        ranker: ``'cross'`` for cross-encoders, ``'bi'`` for bi-encoders, ``'adapter'`` for a linear layer over fixed vectors.
        system: None to take candidates from the dense retriever; a number to take them from a simulated stronger system. One half
            of this system's vectors represents words, the other knowledge. The number is the amount of knowledge, in lengths of
            the noise.
        words: How much more words weigh in the vectors of adapters than in the vectors of the simulated system.
        paraphrased: Share of paraphrases in the collection.
        passages: Passages per topic.
        train_topics: Topics to train on.
        dense_topics: Topics with full judgements, for the rank distribution (RANCE) only.
        pool_depth: BM25 results per topic that labellers saw.
        per_query: Largest number of relevant documents that a topic keeps; None for all that were seen.
        min_label: The lowest grade of a relevant passage (2: it answers; 1: it is on topic).
        test_depth: Dense results per topic that are re-ranked in the test.
        add_judged: Whether kept positives that the dense retriever did not find are added to the training candidates. If they
            are, positives and negatives also differ in the retriever that found them.
        negatives_per_positive: Negatives per triple.
        learning_rate: Peak learning rate.
        schedule: Schedule of the learning rate.
        max_length: Largest number of tokens of a query and a passage together.
        judge_error: How often the simulated judge of the relabelling arm is wrong.
    """

    head_std: float | None = 0.1
    triples: int = 1600
    depth: int = 10
    queries: int = 100
    seeds: int = 5
    ranker: str = "cross"
    system: float | None = None
    words: float = 1.0
    paraphrased: float = 0.5
    passages: int = 20
    train_topics: int = 150
    dense_topics: int = 50
    pool_depth: int = 20
    per_query: int | None = None
    min_label: int = 1
    test_depth: int = 30
    add_judged: bool = False
    negatives_per_positive: int = 1
    learning_rate: float = 1.5e-4
    schedule: str = "linear"
    max_length: int = 160
    judge_error: float = 0.1

    POSITIVE = (*Shared.POSITIVE, "passages", "train_topics", "dense_topics", "pool_depth", "test_depth")
    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {"ranker": ("cross", "bi", "adapter")}


class Setup:
    """A planted collection with its pool, its dense lists and a teacher's scores of the candidates.

    Args:
        seed: Seed of the collection, of the teacher and of the judge.
        settings: The settings of the run.
        out: The folder where lists are kept.
    """

    def __init__(self, seed: int, settings: Settings, out: Path):
        self.seed, self.settings, self.out = seed, settings, out
        number = settings.train_topics + settings.queries + settings.dense_topics
        self.collection = PlantedCollection(
            seed,
            topics=number,
            passages=settings.passages * number,
            paraphrased=settings.paraphrased,
            # Everything is judged here; documents that a pool of BM25 would miss are hidden below.
            pooling=0.0,
            survivorship=0.0,
            linguistic=0.0,
            depth=settings.passages * number,
        )
        qrels = self.collection.get_qrels("full")
        self.judgements = HiddenJudgements(
            qrels[qrels["label"] > 0],
            self.collection.get_runs()["bm25"],
            depth=settings.pool_depth,
            per_query=settings.per_query,
            min_label=settings.min_label,
        )
        self.system, self.start = (None, None) if settings.system is None else self._simulated()

    def frames(self) -> dict[str, pd.DataFrame]:
        """Candidates of each part; those for training with ``pool_score``, ``pool_rank``, ``cosine`` and ``teacher_score``."""
        folder = self.out / f"candidates-{self.seed}"
        if not folder.is_dir():
            made = self._made()
            with whole_folder(folder) as scratch:
                for part, frame in made.items():
                    frame.to_csv(scratch / f"{part}.csv.gz", index=False)
        ids = {"qid": str, "docno": str, "query": str, "text": str}
        return {part: pd.read_csv(folder / f"{part}.csv.gz", dtype=ids) for part in PARTS}

    def _made(self) -> dict[str, pd.DataFrame]:
        settings = self.settings
        dense = BiEncoder(find_model(settings.model, "bi").source) if self.system is None else adapter_of(settings, self.system)
        topics = self.collection.get_topics("full")[["qid", "query"]]
        depths = {"train": settings.depth, "test": settings.test_depth, "dense": settings.depth}
        found = dense.retriever(self.collection, num_results=max(depths.values()))(topics)
        ends = np.cumsum([settings.train_topics, settings.queries, settings.dense_topics])
        parts = {
            part: found[found["qid"].isin(set(topics["qid"][end - size : end])) & (found["rank"] < depths[part])]
            for part, end, size in zip(PARTS, ends, np.diff(ends, prepend=0))
        }
        if settings.add_judged:
            parts["train"] = AddJudged(self.judgements.pooled, min_label=settings.min_label)(parts["train"])
        texts = self.collection.text_loader()
        parts = {part: texts(frame).reset_index(drop=True) for part, frame in parts.items()}
        train = self.judgements.evidence(AddScores(dense, "cosine")(parts["train"]))
        return {**parts, "train": train.assign(teacher_score=self._teacher(train))}

    def _simulated(self) -> list[str]:
        """Make the vectors of the stronger system, and those that rankers start from; returns the names for adapters.

        One half of a vector represents words (tf-idf, projected at random); for rankers it is ``words`` times as long. The other
        half represents knowledge. Each topic has a direction. A query's half is this direction; a passage's half is noise, which
        is moved by ``system`` in this direction if the passage is relevant.
        """
        from fixed_vectors import remember
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.preprocessing import normalize
        from sklearn.random_projection import GaussianRandomProjection

        topics, documents = self.collection.get_topics("full"), pd.DataFrame(self.collection.get_corpus_iter())
        words = TfidfVectorizer(sublinear_tf=True).fit(documents["text"])
        projection = GaussianRandomProjection(512, random_state=self.seed).fit(words.transform(documents["text"]))
        directions = {qid: normalize(keyed_generator(self.seed, "direction", qid).normal(size=(1, 128))) for qid in topics["qid"]}
        noise = [keyed_generator(self.seed, "noise", docno).normal(size=128) / 128**0.5 for docno in documents["docno"]]
        known = pd.DataFrame(noise, index=documents["docno"].to_numpy())
        for qid, docno in zip(*self.relevant()):
            known.loc[docno] += self.settings.system * directions[qid][0]
        knowledge = {"query": np.concatenate([directions[qid] for qid in topics["qid"]]), "document": normalize(known)}
        names = [f"simulated-{self.seed}-{self.settings.system}-{weight}" for weight in (1.0, self.settings.words)]
        for task, texts in (("query", topics["query"]), ("document", documents["text"])):
            wording = normalize(projection.transform(words.transform(texts)))
            for name, weight in zip(names, (1.0, self.settings.words)):
                remember(name, task, texts, normalize(np.hstack([weight * wording, knowledge[task]])))
        return names

    def relevant(self) -> tuple[pd.Series, pd.Series]:
        """Qids and docnos of all relevant documents, hidden ones included."""
        full = self.judgements.full[self.judgements.full["label"] >= self.settings.min_label]
        return full["qid"], full["docno"]

    def _teacher(self, train: pd.DataFrame) -> np.ndarray:
        """Probabilities of a plain ranker that was trained with half the steps; see :func:`protocol.taught`."""
        steps = max(1, self.settings.optimiser_steps() // 2)
        return taught(lambda: self.ranker(max_steps=steps, seed=self.seed), train, self.judgements.pooled, self.seed)

    def describe(self) -> dict[str, float]:
        """Figures that describe the setting before training."""
        frames = self.frames()
        train = frames["train"]
        rankings = {"candidates": frames["test"]}
        if self.settings.ranker == "adapter":  # an untrained cross-encoder ranks at random
            rankings["the untrained ranker"] = self.ranker()(frames["test"])
        qids = frames["test"]["qid"].unique()
        quality = {
            f"nDCG@10 of {name}": float(per_query(ranking, self.judgements.full, ["nDCG@10"], qids).mean().iloc[0])
            for name, ranking in rankings.items()
        }
        full, pooled = (q.loc[q["label"] >= self.settings.min_label, ["qid", "docno"]] for q in
                        (self.judgements.full, self.judgements.pooled))  # fmt: skip
        known = train.merge(pooled.assign(kept=1.0), how="left").merge(full.assign(relevant=1.0), how="left")
        trained = known[known["qid"].isin(known.loc[known["kept"].notna(), "qid"]) & known["kept"].isna()]
        hidden = trained["relevant"].notna()

        def told(values: pd.Series) -> float:
            return auc(values[hidden].to_numpy(), values[~hidden].to_numpy())

        return {
            "relevant a topic": len(full) / full["qid"].nunique(),
            "hidden share": 1 - len(pooled) / len(full),
            "training topics": trained["qid"].nunique(),
            "positives": int(known["kept"].sum()),
            "hidden share of candidates": float(hidden.mean()),
            # 0, below all others: BM25 did not return the document.
            "AUC of BM25's score": told(trained["pool_score"].fillna(0)),
            "AUC of the cosine": told(-trained["cosine"]),
            "AUC of the teacher": told(-trained["teacher_score"]),
            **quality,
        }

    def training(self, **options: Any) -> Training:
        """Training options of the plain ranker; the comparison sets the seed."""
        settings = self.settings
        given = {
            "max_steps": settings.optimiser_steps(),
            "batch_size": settings.batch_size,
            "negatives_per_positive": settings.negatives_per_positive,
            "learning_rate": settings.learning_rate,
            "warmup": 0.05,
            "schedule": settings.schedule,
            "precision": settings.precision,
            "min_label": settings.min_label,
        }
        return Training(**{**given, **options})

    def ranker(self, **options: Any) -> CrossEncoder | BiEncoder:
        """An untrained ranker; options are those of its training."""
        if self.settings.ranker == "adapter":
            return adapter_of(self.settings, self.start, training=self.training(**options))
        source, length = encoder_of(self.settings, self.out), self.settings.max_length
        if self.settings.ranker == "bi":
            return BiEncoder(source, max_length=length, training=self.training(**options))
        return CrossEncoder(source, head="mean", max_length=length, training=self.training(**options))

    def teachers(self) -> pt.Transformer:
        """A stage that changes nothing, because the frames already have ``cosine`` and ``teacher_score``."""
        return pt.Transformer.identity()

    def judge(self) -> SimulatedJudge:
        """A judge that knows which documents are relevant, and errs in a share of them."""
        return SimulatedJudge(frozenset(zip(*self.relevant())), self.settings.judge_error, self.seed)

    def ranks(self) -> RankDistribution:
        """RANCE's distribution, from further topics with full judgements."""
        settings = self.settings
        return RankDistribution.estimate(
            self.frames()["dense"],
            self.judgements.full,
            depth=settings.depth,
            min_label=settings.min_label,
            window=5,
            degree=2,
        )


def compared(setup: Setup, arms: list[str]) -> HiddenResult:
    """Run the arms of one collection, or read the finished ones."""
    frames = setup.frames()
    return setup.judgements.compare(
        {name: CORRECTIONS[name](setup) for name in arms},
        frames["train"],
        frames["test"],
        seeds=(setup.seed,),
        full="all judgements",
        measures=measures_of(setup.settings.min_label),
        checkpoint=setup.out / f"arms-{setup.seed}",
        resamples=setup.settings.resamples,
    )


def estimate(setup: Setup, arms: list[str], seeds: int) -> float:
    """Seconds that the arms will take, from a few steps of plain training."""
    frames, ranker, steps = setup.frames(), setup.ranker(), setup.settings.optimiser_steps()
    some = frames["train"][frames["train"]["qid"].isin(frames["train"]["qid"].unique()[:20])]
    step, base = pace(ranker, some, setup.judgements.pooled, ranker.training)
    started = time.perf_counter()
    ranker(frames["test"].head(100))
    text = (time.perf_counter() - started) / min(100, len(frames["test"]))
    passes = sum(COSTS.get(name, 1.0) for name in arms) + 3  # two oracles and the teacher
    return seeds * (passes * (base + steps * step) + (len(arms) + 2) * len(frames["test"]) * text)


NOTES = [
    "gap_closed: share of the oracle's gain over plain training that a correction reaches; it is missing where the "
    "oracle's own gain may be 0. low, high: 95 %, bootstrap over collections (seeds) and their queries.",
    "auc: the chance that a true negative counts more than a hidden positive, .5 by guessing; false_share: hidden positives "
    "among the negatives that were shown; false_weight: their share of the weight.",
    "BM25's negatives are the dense candidates that BM25 ranks among its first 100, judged negatives those that labellers were "
    "shown (known propensities of 0 and 1). denoised: the teacher is a plain "
    "ranker trained on the other half of the queries. positive-aware: by the cosine of the dense retriever. rank "
    "distribution: from further topics with full judgements. relabelled: a simulated judge that knows the truth and errs in a "
    "share of pairs.",
    "Losses that weight pairs by the current scores (debiased contrastive, dynamic weights) draw negatives like plain training "
    "and do not report their weights: their AUC is that of the draw.",
]


def tables(result: HiddenResult, setting: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The tables that are written; with the control, also the differences from it."""
    control, against = "CET, shuffled", {}
    if control in result.corrections:
        against = {"against_shuffled": replace(result, baseline=control, oracle=None).table}
    return {
        "summary": result.summary(),
        "effectiveness": result.table,
        **against,
        "false_negatives": result.false_negatives,
        "setting": setting,
        "costs": result.costs,
    }


def main() -> None:
    parser = base_parser(__doc__, Settings())
    which = f"corrections to run (default: {', '.join(ARMS)})"
    parser.add_argument("--arms", nargs="+", choices=CORRECTIONS, default=ARMS, help=which)
    options = parser.parse_args()
    settings, arms = read_settings(options, Settings()), [name for name in CORRECTIONS if name in {"plain", *options.arms}]
    options.out.mkdir(parents=True, exist_ok=True)
    same_run(options.out, "planted", settings, [])
    results, setting = {}, []
    for seed in range(1, settings.seeds + 1):
        started = time.perf_counter()
        setup = Setup(seed, settings, options.out)
        setting.append({"seed": seed, **setup.describe()})
        print(pd.DataFrame(setting[-1:]).to_string(index=False), flush=True)
        if options.estimate:
            print(f"about {minutes(estimate(setup, arms, settings.seeds))} for all seeds on this machine")
            return
        results[str(seed)] = compared(setup, arms)
        print(f"seed {seed}: {minutes(time.perf_counter() - started)}", flush=True)
    result = combined(results)
    for name in (name for name in arms if name.startswith("CET")):
        picture = f"figure5_{'_'.join(name.lower().replace(',', '').split())}.png"
        plots.save(result.plot_emphasis(name).figure, options.out / picture)
    title = "Hidden judgements on planted collections"
    write_results(options.out, title, settings, tables(result, pd.DataFrame(setting)), [*NOTES, *result.notes])


if __name__ == "__main__":
    sys.exit(program(main))
