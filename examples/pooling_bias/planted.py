"""Which correction copes with hidden judgements? CET, its forms and its rivals on planted collections.

    python examples/pooling_bias/planted.py --out planted

makes one planted collection for each seed, in which half of the passages are paraphrases that share no word with the questions
they answer. A pool of BM25's first results hides most of them. Rankers (three layers of all-MiniLM-L6-v2 as a cross-encoder) are
trained on what is left, with negatives from the top of a dense retriever (all six layers), among which the hidden ones turn up;
in the test they rank longer dense lists, and are evaluated on all judgements. Beside the plain training stand an oracle, in which
no hidden document is drawn as a negative, and one that is trained on all judgements.

A run that was stopped goes on with the same command. Seeds can be made by several commands (`--seeds 1 2`, then `--seeds 3`); the
last one, which names all of them, reads back what is there. `--arms` takes some of the corrections, `--estimate` says how long it
takes, `--tiny` is for tests. `--config` names a JSON file with further settings, for example `{"pool_depth": 10}`.
"""

import argparse
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias import AddJudged, BiEncoder, CrossEncoder, InputError, PlantedCollection, Training, plots
from pyterrier_debias.audit.models import find_model
from pyterrier_debias.files import whole_folder
from pyterrier_debias.pooling.cet import CETReranker
from pyterrier_debias.pooling.hidden import HiddenJudgements
from pyterrier_debias.pooling.hidden_result import HiddenResult, auc, combined
from pyterrier_debias.pooling.losses import debiased_contrastive, dynamic_pairwise
from pyterrier_debias.pooling.negatives import (
    DenoisedNegatives,
    PositiveAwareNegatives,
    RankDistribution,
    RankWindow,
)
from pyterrier_debias.pooling.relabel import RelabelReranker
from pyterrier_debias.pooling.scores import AddScores
from pyterrier_debias.text import keyed_hash

# What programs share lies one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import encoder_of, minutes, program, write_results

PARTS = ("train", "test", "dense")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The numbers of a run.

    Attributes:
        model: Encoder of the dense retriever, whose lower layers the rankers start from: hub name, folder, or ``minilm``.
        layers: How many of its layers the rankers keep; None for all.
        dropout: Of the rankers' encoders in training; None for the model's own.
        ranker: ``'cross'`` for cross-encoders, ``'bi'`` for bi-encoders.
        head_std: Standard deviation of the weights of a cross-encoder's fresh head; None for the model's own.
        paraphrased: Share of paraphrases in the collection.
        passages: Passages of a topic.
        train_topics: Topics to train on.
        test_topics: Topics to test on.
        dense_topics: Topics with full judgements, for the rank distribution (RANCE) only.
        pool_depth: BM25 results of a topic that labellers saw.
        per_query: Relevant documents that a topic keeps at most; None for all that were seen.
        min_label: The lowest grade of a relevant passage (2: it answers; 1: it is on topic).
        depth: Dense results of a topic that are candidates of training: the first ones, where unlabelled positives gather.
        test_depth: Dense results of a topic that are ranked anew in the test.
        add_judged: Whether kept positives that the dense retriever did not find are added to the training candidates. Where
            they are, positives differ from negatives also by who found them.
        triples: Training triples of an arm.
        batch_size: Triples of a step.
        negatives_per_positive: Negatives of a triple.
        learning_rate: Peak rate.
        precision: Of training; ``'bfloat16'`` is faster where the processor has it.
        max_length: Longest pair in tokens.
        judge_error: How often the simulated judge of the relabelling arm is wrong.
        draws: Of the bootstrap.
    """

    model: str = "minilm"
    layers: int | None = 3
    dropout: float | None = None
    ranker: str = "cross"
    head_std: float | None = 0.1
    paraphrased: float = 0.5
    passages: int = 20
    train_topics: int = 150
    test_topics: int = 100
    dense_topics: int = 50
    pool_depth: int = 20
    per_query: int | None = None
    min_label: int = 1
    depth: int = 10
    test_depth: int = 30
    add_judged: bool = False
    triples: int = 1600
    batch_size: int = 8
    negatives_per_positive: int = 1
    learning_rate: float = 3e-4
    precision: str = "float32"
    max_length: int = 160
    judge_error: float = 0.1
    draws: int = 2000

    def steps(self) -> int:
        """Steps of an arm."""
        return -(-self.triples // self.batch_size)


TINY = {
    "layers": None, "train_topics": 10, "test_topics": 6, "dense_topics": 6, "triples": 4, "batch_size": 4, "max_length": 64,
    "passages": 10, "draws": 50, "add_judged": True,
}  # fmt: skip


@dataclass(frozen=True)
class SimulatedJudge:
    """Knows which candidates are relevant, and errs in a share of them: what a language model would be asked in its place.

    Attributes:
        relevant: Pairs of qid and docno.
        error: The share of candidates on which it is wrong.
        seed: Which ones.
    """

    relevant: frozenset
    error: float
    seed: int

    def __call__(self, frame: pd.DataFrame) -> list[float]:
        wrong = [keyed_hash(self.seed, "judge", q, d) < self.error * 2**64 for q, d in zip(frame["qid"], frame["docno"])]
        return [float(((q, d) in self.relevant) != w) for q, d, w in zip(frame["qid"], frame["docno"], wrong)]


class World:
    """A planted collection with its pool, its dense lists and what a teacher thinks of the candidates.

    Args:
        seed: Of the collection, of the teacher and of the judge.
        settings: How.
        out: Where lists are kept.
    """

    def __init__(self, seed: int, settings: Settings, out: Path):
        self.seed, self.settings, self.out = seed, settings, out
        number = settings.train_topics + settings.test_topics + settings.dense_topics
        self.collection = PlantedCollection(
            seed,
            topics=number,
            passages=settings.passages * number,
            paraphrased=settings.paraphrased,
            # Everything is judged; what a pool of BM25 would have left is hidden below.
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
        dense = BiEncoder(find_model(settings.model, "bi").source)
        topics = self.collection.get_topics("full")[["qid", "query"]]
        depths = {"train": settings.depth, "test": settings.test_depth, "dense": settings.depth}
        found = dense.retriever(self.collection, num_results=max(depths.values()))(topics)
        ends = np.cumsum([settings.train_topics, settings.test_topics, settings.dense_topics])
        parts = {
            part: found[found["qid"].isin(set(topics["qid"][end - size : end])) & (found["rank"] < depths[part])]
            for part, end, size in zip(PARTS, ends, np.diff(ends, prepend=0))
        }
        if settings.add_judged:
            parts["train"] = AddJudged(self.judgements.pooled)(parts["train"])
        texts = self.collection.text_loader()
        parts = {part: texts(frame).reset_index(drop=True) for part, frame in parts.items()}
        train = self.judgements.evidence(AddScores(dense, "cosine")(parts["train"]))
        return {**parts, "train": train.assign(teacher_score=self._teacher(train))}

    def _teacher(self, train: pd.DataFrame) -> np.ndarray:
        """Probabilities of a plain ranker that was trained on the other half of the queries."""
        half = np.array([keyed_hash(self.seed, "half", qid) % 2 for qid in train["qid"]])
        scores = np.empty(len(train))
        for number in (0, 1):
            teacher = plain_ranker(self.settings, self.out, self.seed)
            steps = max(1, self.settings.steps() // 2)
            teacher.training = replace(teacher.training, max_steps=steps)
            teacher.fit(train[half != number], self.judgements.pooled)
            own = train[half == number]
            scores[half == number] = AddScores(teacher, activation="sigmoid")(own)["teacher_score"]
        return scores

    def describe(self) -> dict[str, float]:
        """What the setting is like before anything is trained."""
        train = self.frames()["train"]
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
            "AUC of BM25's score": told(trained["pool_score"].fillna(0)),
            "AUC of the cosine": told(-trained["cosine"]),
            "AUC of the teacher": told(-trained["teacher_score"]),
        }


def base_training(settings: Settings) -> Training:
    """How the plain ranker is trained; the seed is set by the comparison."""
    return Training(
        max_steps=settings.steps(),
        batch_size=settings.batch_size,
        negatives_per_positive=settings.negatives_per_positive,
        learning_rate=settings.learning_rate,
        warmup=0.05,
        schedule="constant",  # in so few steps a rate that falls teaches a fresh head much less
        precision=settings.precision,
    )


def plain_ranker(settings: Settings, out: Path, seed: int = 0) -> CrossEncoder | BiEncoder:
    """The untrained ranker."""
    source = encoder_of(settings, out)
    training = replace(base_training(settings), seed=seed)
    if settings.ranker == "bi":
        return BiEncoder(source, max_length=settings.max_length, training=training)
    return CrossEncoder(source, head="mean", seed=seed, max_length=settings.max_length, training=training)


def corrections(world: World) -> dict[str, Any]:
    """All that is compared but the oracles, by name."""
    settings, train = world.settings, base_training(world.settings)
    plain = replace(plain_ranker(settings, world.out).training, seed=0)
    frames = world.frames()

    def ranker(**options: Any) -> CrossEncoder | BiEncoder:
        made = plain_ranker(settings, world.out)
        made.training = replace(plain, **options)
        return made

    relevant = world.judgements.full[world.judgements.full["label"] >= settings.min_label]
    judge = SimulatedJudge(frozenset(zip(relevant["qid"], relevant["docno"])), settings.judge_error, world.seed)
    ranks = RankDistribution.estimate(
        frames["dense"], world.judgements.full, depth=settings.depth, min_label=settings.min_label, window=5, degree=2
    )
    return {
        "plain": ranker(),
        "CET": CETReranker(ranker(), training=train),
        "CET, lexical": CETReranker(ranker(), selection="lexical", training=train),
        "CET, paper": CETReranker.paper(ranker(), training=train),
        "CET, released": CETReranker.released(ranker(), training=train),
        "BM25's negatives": ranker(negatives=RankWindow("pool_rank", last=99)),
        "denoised": ranker(negatives=DenoisedNegatives(depth=settings.depth)),
        "rank distribution": ranker(negatives=ranks),
        "positive-aware": ranker(negatives=PositiveAwareNegatives("cosine", percentage=0.95)),
        "debiased contrastive": ranker(loss=debiased_contrastive, loss_options={"tau_plus": 0.1}),
        "dynamic weights": ranker(loss=dynamic_pairwise),
        "relabelled": RelabelReranker(ranker(), judge, depth=settings.depth),
    }


#: Forward and backward passes of an arm, in those of the plain ranker.
COSTS = {"CET, paper": 2.0, "CET, released": 3.0}
ARMS = (
    "plain", "CET", "CET, lexical", "CET, paper", "CET, released", "BM25's negatives", "denoised", "rank distribution",
    "positive-aware", "debiased contrastive", "dynamic weights", "relabelled",
)  # fmt: skip


def compare(world: World, arms: list[str]) -> HiddenResult:
    """Carry out the arms of one collection, or read back what is there."""
    settings, frames = world.settings, world.frames()
    made = corrections(world)
    return world.judgements.compare(
        {name: made[name] for name in ARMS if name in arms},
        frames["train"],
        frames["test"],
        seeds=(world.seed,),
        full="all judgements",
        measures=("nDCG@10", "RR@10", "AP"),
        checkpoint=world.out / f"arms-{world.seed}",
        draws=settings.draws,
    )


def estimate(world: World, arms: list[str], seeds: int) -> float:
    """Seconds that the arms will take, from a few steps of the plain one."""
    frames, ranker, seconds = world.frames(), plain_ranker(world.settings, world.out), []
    ranker.score(["a"], ["b"])  # loads weights and libraries
    some = frames["train"][frames["train"]["qid"].isin(frames["train"]["qid"].unique()[:20])]
    for steps in (1, 1, 4):  # the first warms up
        ranker.training = replace(ranker.training, max_steps=steps)
        started = time.perf_counter()
        ranker.fit(some, world.judgements.pooled)
        seconds.append(time.perf_counter() - started)
    step = max((seconds[2] - seconds[1]) / 3, 1e-6)
    started = time.perf_counter()
    ranker(frames["test"].head(100))
    text = (time.perf_counter() - started) / min(100, len(frames["test"]))
    passes = sum(COSTS.get(name, 1.0) for name in arms) + 3  # two oracles and the teacher
    return seeds * (passes * world.settings.steps() * step + (len(arms) + 2) * len(frames["test"]) * text)


NOTES = [
    "gap_closed: share of the oracle's gain over plain training that a correction reaches; its limits are missing where the "
    "oracle's own gain may be 0. low, high: 95 %, bootstrap over collections (seeds) and their queries.",
    "auc: the chance that a true negative counts more than a hidden positive, .5 by guessing; false_share: hidden positives "
    "among the negatives that were shown; false_weight: their share of the weight.",
    "BM25's negatives are those of the dense candidates that BM25 ranks among its first 100. denoised: the teacher is a plain "
    "ranker trained on the other half of the queries. positive-aware: by the cosine of the dense retriever. rank "
    "distribution: from further topics with full judgements. relabelled: a simulated judge that knows the truth and errs in a "
    "share of pairs.",
    "Losses that weigh by the present scores (debiased contrastive, dynamic weights) draw as plain training does and do not "
    "tell their weights: their AUC is that of the draw.",
]


def read_settings(options: argparse.Namespace) -> Settings:
    """Defaults, changed by --tiny, by the configuration and by the command line."""
    chosen: dict[str, Any] = dict(TINY) if options.tiny else {}
    if options.config is not None:
        try:
            chosen |= json.loads(options.config.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(f"--config {options.config} cannot be read as JSON ({error})") from error
    known = {f.name for f in fields(Settings)}
    unknown = sorted(set(chosen) - known)
    if unknown:
        raise InputError(f"--config {options.config}: {unknown[0]!r} is no setting; there are {', '.join(sorted(known))}")
    chosen |= {name: value for name, value in vars(options).items() if name in known and value is not None}
    return Settings(**chosen)


def tables(result: HiddenResult, setting: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """What is written."""
    return {
        "summary": result.summary(),
        "effectiveness": result.table,
        "false_negatives": result.false_negatives,
        "setting": setting,
        "costs": result.costs,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5], help="of collections and trainings (1 to 5)")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="which corrections (default: all)")
    parser.add_argument("--model", help="encoder: hub name, folder, or minilm (default)")
    parser.add_argument("--triples", type=int, help="training triples of an arm (default 1600)")
    parser.add_argument("--precision", help="of training: float32 (default) or bfloat16, faster where the processor has it")
    parser.add_argument("--config", type=Path, help="JSON file with further settings")
    parser.add_argument("--estimate", action="store_true", help="say what the setting is like and how long it takes, and stop")
    parser.add_argument("--tiny", action="store_true", help="numbers for a test, which teach nothing")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a run that was stopped goes on from it")
    options = parser.parse_args()
    settings, arms = read_settings(options), [name for name in ARMS if name in {"plain", *options.arms}]
    record = options.out / "settings.json"
    content = json.dumps(asdict(settings), indent=1) + "\n"
    if record.is_file() and record.read_text(encoding="utf-8") != content:
        raise InputError(f"{options.out} holds a run with other settings (settings.json); name another folder")
    options.out.mkdir(parents=True, exist_ok=True)
    record.write_text(content, encoding="utf-8")
    results, setting = {}, []
    for seed in options.seeds:
        started = time.perf_counter()
        world = World(seed, settings, options.out)
        setting.append({"seed": seed, **world.describe()})
        print(pd.DataFrame(setting[-1:]).to_string(index=False), flush=True)
        if options.estimate:
            print(f"about {minutes(estimate(world, arms, len(options.seeds)))} for all seeds on this machine")
            return
        results[str(seed)] = compare(world, arms)
        print(f"seed {seed}: {minutes(time.perf_counter() - started)}", flush=True)
    result = combined(results)
    for name in (name for name in arms if name.startswith("CET")):
        picture = f"figure5_{'_'.join(name.lower().replace(',', '').split())}.png"
        plots.save(result.plot_emphasis(name).figure, options.out / picture)
    title = "Hidden judgements on planted collections"
    write_results(options.out, title, settings, tables(result, pd.DataFrame(setting)), [*NOTES, *result.notes])


if __name__ == "__main__":
    sys.exit(program(main))
