"""Bi-encoders trained by CET, as rerankers and as retrievers, against plain training and an oracle.

    python examples/pooling_bias/retrieval.py --dataset nfcorpus --out retrieval

trains a bi-encoder (the first layers of all-MiniLM-L6-v2 with mean pooling) on the judgements that a pool leaves: by plain
training, by CET, and with an oracle that never draws a hidden document as a negative. Each one re-ranks the candidates of the
test queries, and also retrieves from the whole collection by itself. The untrained bi-encoder is measured as well. Evaluation is
on all judgements. Collections, pool and candidates are as in corrections.py. `--ranker adapter` trains linear layers over the
vectors of the whole encoder instead.

A run that was stopped continues with the same command. The small setting is the default; `--estimate` prints how long it takes.

What it cannot tell: how good a retriever would be after training to convergence. A few hundred triples with one hard negative
each, without negatives from the batch, do not make a good retriever; the result is the difference between trainings, not their
level.
"""

import sys
import time

import pandas as pd
from protocol import COSTS, Setup, compared, opened, parser
from workshop import Arm, Workshop, encoder_of, minutes, pace, program, write_results

from pyterrier_debias import BiEncoder, CETReranker, ExcludeNegatives
from pyterrier_debias.core.evaluation import from_grade, per_query
from pyterrier_debias.pooling.measures.hidden import seeded

ARMS = ("plain", "oracle", "CET", "CET, paper")

#: How a trained bi-encoder is used.
USES = ("reranked", "retrieved")

NOTES = [
    "reranked: the candidates that were given; retrieved: the whole collection. mean, difference (from plain): with 95 % "
    "intervals from a bootstrap over seeds and queries, in mean_low, mean_high and low, high.",
    "p: Wilcoxon's signed-rank test over queries, each query's mean over seeds; p_corrected: Holm, over all rows of a use.",
    "CET, paper: both models start from the same weights, because a bi-encoder has no head that could be drawn separately.",
]


def bi_encoder(setup: Setup, **options) -> BiEncoder:
    """An untrained bi-encoder, or a linear layer over the vectors of one; options are those of its training."""
    settings = setup.settings
    if settings.ranker == "adapter":
        return setup.ranker(**options)
    rate = {"learning_rate": settings.dense_learning_rate, "schedule": settings.dense_schedule}
    training = setup.training(**rate, **options)
    return BiEncoder(encoder_of(settings, setup.out), max_length=settings.max_length, training=training)


def correction(setup: Setup, name: str):
    """The stage that is fitted for a correction."""
    if name == "plain":
        return bi_encoder(setup)
    if name == "oracle":
        return bi_encoder(setup, negatives=ExcludeNegatives(setup.judgements.hidden))
    make = CETReranker if name == "CET" else CETReranker.paper
    return make(bi_encoder(setup), training=bi_encoder(setup).training)


def with_true_negatives(train: pd.DataFrame, setup: Setup) -> pd.DataFrame:
    """Candidates of queries that have a candidate without a relevant judgement; for others an oracle has no negative to draw."""
    known = setup.judgements.full.loc[setup.judgements.full["label"] > 0, ["qid", "docno"]].assign(relevant=True)
    true = train.merge(known, how="left", on=["qid", "docno"])["relevant"].isna().to_numpy()
    return train[train["qid"].isin(set(train.loc[true, "qid"]))].reset_index(drop=True)


def measure(ranker: BiEncoder, setup: Setup) -> pd.DataFrame:
    """Measures of each test query, under both uses."""
    recall = {from_grade(f"R@{k}", setup.source.min_label): f"Recall@{k}" for k in (10, 100)}
    measures = {setup.source.measures[0]: "nDCG@10", **recall}
    topics = setup.fold.test
    runs = {
        "reranked": ranker(setup.candidates("test")),
        "retrieved": ranker.retriever(setup.source.dataset, num_results=100)(topics),
    }
    return pd.concat(
        [
            per_query(runs[use], setup.judgements.full, list(measures), topics["qid"].tolist())
            .set_axis(list(measures.values()), axis="columns").reset_index().assign(use=use)
            for use in USES
        ],
        ignore_index=True,
    )


def pace_of(setup: Setup) -> tuple[float, float, float]:
    """Seconds per step, before the first step, and per text that is read."""
    train, ranker = setup.candidates("train"), bi_encoder(setup)
    some = train[train["qid"].isin(sorted(set(setup.judgements.pooled["qid"]))[:40])]
    step, base = pace(ranker, some, setup.judgements.pooled, ranker.training)
    texts = list(dict.fromkeys(train["text"]))[:100]
    started = time.perf_counter()
    ranker.encode_docs(texts)
    return step, base, (time.perf_counter() - started) / len(texts)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS), help="arms to make (default: all)")
    options = options.parse_args()
    settings, lists, setups, sizes = opened(options, "retrieval")
    arms = [name for name in ARMS if name in {"plain", *options.arms}]
    workshop = Workshop(options.out, "retrieval", settings, [lists.source])
    documents, steps = int(sizes["documents"].iloc[0]), settings.optimiser_steps()

    def arm_of(setup: Setup, name: str, seed: int) -> Arm:
        def make(folder, checkpoints):
            train = setup.candidates("train")
            fitted = seeded(correction(setup, name), seed)
            fitted.fit(with_true_negatives(train, setup) if name == "oracle" else train, setup.judgements.pooled)
            return measure(getattr(fitted, "relevance", fitted), setup)

        labels = {"fold": setup.fold.name, "correction": name, "seed": seed}
        return Arm(labels, make, "dot", steps, documents + len(setup.candidates("test")))

    # Seed by seed, so that a stopped run has complete seeds.
    planned = [(setup, arm_of(setup, name, seed)) for seed in range(settings.seeds) for setup in setups for name in arms]
    seconds = {}
    for setup in setups:
        left = workshop.open([arm for where, arm in planned if where is setup])
        step, base, text = pace_of(setup) if left else (0, 0, 0)
        for arm in left:
            seconds[arm.name] = base + arm.steps * step * COSTS.get(arm.labels["correction"], 1) + arm.reads * text
    print(f"{len(seconds)} of {len(planned)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = workshop.carry_out([arm for _, arm in planned], seconds)
    untrained = pd.concat([measure(bi_encoder(setup), setup) for setup in setups])
    seeds = [untrained.assign(correction="untrained", seed=seed) for seed in range(settings.seeds)]
    rows = pd.concat([rows, *seeds], ignore_index=True)
    measures = ("nDCG@10", "Recall@10", "Recall@100")
    table = pd.concat(
        [
            compared(rows[rows["use"] == use], measures, "correction", "plain", settings.resamples).assign(use=use)
            for use in USES
        ],
        ignore_index=True,
    )
    table = table[["use", *(column for column in table.columns if column != "use")]]
    title = f"Bi-encoders as rerankers and as retrievers: {lists.source.name}"
    write_results(options.out, title, settings, {"retrieval": table, "sizes": sizes}, NOTES, {"retrieval": title})


if __name__ == "__main__":
    sys.exit(program(main))
