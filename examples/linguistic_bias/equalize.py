"""EqualizeIR and its alternatives: Tables 1 to 3 and 5 to 8 and Figures 3 to 5 of Cheng and Amiri (NAACL 2025).

    python examples/linguistic_bias/equalize.py --dataset nfcorpus --out equalize

trains bi-encoders (the first three layers of all-MiniLM-L6-v2, because the whole model without training is already better than
any ranker after so little training) on NFCorpus: by plain training, by EqualizeReranker with each of its four biased learners,
and by alternatives: reverse weighting by complexity, group DRO over thirds of complexity, focal weighting. A last alternative
needs no training: the plain ranker's scores minus alpha times those of the weak learner. All rankers retrieve from the whole
collection, as in the paper, and re-rank BM25's candidates. BM25 and the ranker before training are measured as well.

The tables have the mean, standard deviation and coefficient of variation of nDCG@10 over queries, as in the paper, and also the
slope of nDCG@10 on complexity with and without controls (the number of words of the query, the logarithm of the number of its
relevant documents), because a spread between queries may have other causes than wording. Intervals draw seeds and queries.

- Further collections (`--dataset fiqa_subset --dataset msmarco_trec_dl`) are used for tests only. In collections larger than
  `max_documents`, candidates are only re-ranked.
- `--config adapters.json` trains linear layers over vectors of the whole model (`examples/fixed_vectors.py`), with learners over
  vectors of its first layer. Such rankers are good from the start, and train in seconds once all texts are encoded.
- `--config full.json` is close to the paper's setting, on BEIR: `--train irds:beir/nfcorpus/train --dataset
  irds:beir/nfcorpus/test`. The paper trains on each collection, which takes one run per collection.
- Arms can be made by several commands (`--arms`, `--seeds`); the last one, which names all of them, reads the finished ones. A
  run that was stopped continues with the same command. The small setting is the default; on NFCorpus its 24 arms took some two
  minutes each on one core, less than an hour in all. `--estimate` prints how long it takes on this machine.

What it cannot tell: the results of training to convergence, or of a larger model. Half of NFCorpus' queries have one or two
words, so their complexity reflects little more than their number of words.
"""

import sys
from collections.abc import Sequence

import pandas as pd
from reporting import Results, by_use
from study import (
    EQUALIZED,
    USES,
    WAYS,
    Settings,
    Study,
    begin,
    encoded_rows,
    expected_seconds,
    new_ranker,
    of_run,
    parser,
    place_of,
    sizes,
)
from workshop import minutes, program, read_settings, write_results

#: The ranker that others are compared with, and the one that the paper is about.
PLAIN, PAPERS = "plain", "Equalize, weaker model"
#: The arms that are made by default.
ARMS = [name for name in WAYS if name not in ("reverse weight, of the probability", "weight by complexity", "kernel whitening")]

#: Captions of the tables in the documentation.
CAPTIONS = {
    "validation": "nDCG@10 on validation queries",
    "spread": "Mean, sd and c_v of nDCG@10",
    "over_datasets": "Means over collections",
    "changes": "Change from plain training",
    "slopes": "Slope of nDCG@10 on complexity",
    "thirds": "nDCG@10 by third of complexity",
    "tests": "EqualizeIR minus each other ranker",
    "learners": "Biased learners, and EqualizeIR with each of them",
}

NOTES = [
    "mean, sd, cv: of nDCG@10 over queries (sd with ddof 0, cv = sd / mean), with 95 % intervals from a bootstrap over seeds and "
    "queries.",
    "retrieved: the whole collection is searched; reranked: BM25's candidates; validated: retrieved, for validation queries.",
    "slope: change of nDCG@10 with one standard deviation of complexity; given controls: length of the query and logarithm of "
    "the number of relevant documents. Intervals draw seeds and queries; p: permutation, of the mean over seeds; share: share of "
    "the variance of nDCG@10 that complexity explains beyond the controls; share by chance: its value by chance alone; "
    "p_corrected: Holm.",
    "changes: differences from plain training; p: paired t-test of the slope given controls; p_corrected: Holm.",
    "tests: EqualizeReranker with the weaker model against each other ranker; p: paired t-test over queries, of the means over "
    "seeds; p_corrected: Bonferroni over the table.",
    "learners: accuracy, biased accuracy: the share of training pairs in which the robust and the biased model rank the positive "
    "higher, over the last half of the steps; learners that were trained on all data already know these pairs. biased mean: the "
    "mean of the learner by itself, if it was measured. Changes are differences from plain training.",
    "plain minus weaker model: scores of the plain ranker minus alpha times those of the weaker learner, without training.",
]


def with_rivals(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of trained rankers, with those of BM25, the untrained ranker, and the alternative that needs no training."""
    settings, seeds = study.settings, range(study.settings.seeds)
    path = study.workshop.out / "untrained.csv"
    if not path.is_file():
        start = new_ranker(settings, study.workshop.out)
        encoded_rows(start, "robust", study.lessons, study.sources, settings, None).to_csv(path, index=False)
    untrained = pd.read_csv(path, dtype={"qid": str}).assign(ranker="untrained")
    first = [of_run(source.candidates, source, use) for source in study.sources for use in USES[0 if source.complete else 1 :]]
    fixed = pd.concat([untrained, *(part.assign(ranker="BM25", model="robust") for part in first)])
    parts = [rows, *(fixed.assign(seed=seed) for seed in seeds)]
    if {PLAIN, PAPERS} <= set(rows["ranker"]):
        parts += [less_biased(study, seed, settings.alpha).assign(ranker="plain minus weaker model") for seed in seeds]
    return pd.concat(parts, ignore_index=True)


def less_biased(study: Study, seed: int, alpha: float) -> pd.DataFrame:
    """The plain ranker's scores minus alpha / T times those of the weaker learner, which EqualizeReranker tends to."""
    parts = []
    for source in study.sources:
        plain, biased = study.encoded(PLAIN, seed, source), study.encoded(PAPERS, seed, source, "biased")
        both = plain.less(biased, alpha / study.settings.biased_temperature)
        parts.append(both.measured(source, study.settings.num_results))
    return pd.concat(parts, ignore_index=True).assign(seed=seed, model="robust")


def validation(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean nDCG@10 of retrieval on validation queries, by ranker and seed: are rankers better than before training?"""
    seen = rows[(rows["use"] == "validated") & (rows["model"] == "robust")]
    if seen.empty:
        return pd.DataFrame({"ranker": []})
    wide = seen.pivot_table(index="ranker", columns="seed", values="nDCG@10", sort=False)
    return wide.rename(columns=lambda seed: f"seed {seed}").assign(mean=wide.mean(axis=1)).reset_index()


def accuracies(study: Study, rankers: Sequence[str]) -> pd.DataFrame:
    """Share of training pairs in which robust and biased model rank the positive higher, over the last half of the steps."""
    rows = []
    for ranker in rankers:
        for seed in range(study.settings.seeds):
            log = pd.read_json(study.workshop.folder(place_of(ranker, seed)) / "history.json")
            log = log[log["biased_accuracy"].notna()]
            last = log.tail(max(1, len(log) // 2))
            rows.append({"ranker": ranker, **last[["accuracy", "biased_accuracy"]].mean()})
    return pd.DataFrame(rows).groupby("ranker", sort=False).mean().reset_index()


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--arms", nargs="+", choices=WAYS, default=ARMS, help="arms to make (default: all but the last three)")
    options = options.parse_args()
    settings = read_settings(options, Settings())
    study = begin(options, settings)
    study.ways = {name: way for name, way in WAYS.items() if name in {PLAIN, PAPERS, *options.arms}}
    arms = study.arms()
    seconds = expected_seconds(study.workshop.open(arms), study.ways, study.lessons, settings, options.out)
    print(f"{len(seconds)} of {len(arms)} arms to make: about {minutes(sum(seconds.values()))} on this machine", flush=True)
    if options.estimate:
        return
    rows = with_rivals(study, study.workshop.carry_out(arms, seconds))
    robust, biased = (rows[rows["model"] == model] for model in ("robust", "biased"))
    order = ["BM25", "untrained", *study.ways, "plain minus weaker model"]
    robust = robust.sort_values("ranker", key=lambda names: names.map(order.index), kind="stable")
    results = Results(robust, study.sources, settings.resamples)
    made = {name: learner for name, learner in EQUALIZED.items() if name in study.ways}
    tables = {
        "sizes": sizes(study.lessons, study.sources),
        "validation": validation(robust),
        "spread": results.spread(),
        "over_datasets": results.over_datasets(),
        "changes": results.changes(PLAIN),
        "slopes": results.slopes(),
        "thirds": results.groups(),
        "tests": results.against(PAPERS),
        "learners": results.learners(biased, made, accuracies(study, list(made)), PLAIN),
    }
    for use, dataset in results.cells:
        results.curves(use, dataset, ["BM25", "untrained", PLAIN, PAPERS], options.out / f"curve_{dataset}_{use}.png")
        results.curves(use, dataset, [PLAIN, *made], options.out / f"learners_{dataset}_{use}.png")
    for use in dict.fromkeys(use for use, _ in results.cells):
        end = "" if use == USES[0] else f"_{use}"
        results.panels(use, [PLAIN, PAPERS], "nDCG@10 over complexity: each collection", options.out / f"figure_4{end}.png")
        results.panels(use, [PLAIN, *made], "nDCG@10 over complexity: each biased learner", options.out / f"figure_5{end}.png")
    title = f"Equalizing over wording: {', '.join(source.name for source in study.sources)}"
    tables = by_use(tables)
    captions = {name: CAPTIONS[name.removesuffix(f"_{USES[1]}")] for name in tables if name != "sizes"}
    write_results(options.out, title, settings, tables, NOTES, captions)


if __name__ == "__main__":
    sys.exit(program(main))
