"""Effectiveness and complexity for rankers without further training: Tables 1 and 2, Figure 1 of Cheng and Amiri (NAACL 2025).

    python examples/linguistic_bias/complexity_tables.py --dataset nfcorpus --dataset fiqa_subset --out complexity

measures rankers that are not trained here: BM25, the runs that come with a collection, all-MiniLM-L6-v2 and its first layers,
late interaction (ColBERT) over all-MiniLM-L6-v2's vectors of words, and a T5 ranker if `--t5 FOLDER` names one. `--parser
stanford` adds the syntactic indices, `--runs-only` leaves out whatever needs vectors. Bi-encoders search the whole collection and
also re-rank BM25's candidates; late interaction and T5 only re-rank. For each ranker the tables have the mean, standard deviation
and coefficient of variation of nDCG@10, the slope on complexity with and without controls, thirds by complexity, and each index
of complexity by itself; a picture shows the curve with its confidence band.

`--multi FOLDER` names a trained multi-vector model. Without it, a random projection over MiniLM's vectors of words is used: late
interaction, but not ColBERT. Settings and `--config` are those of equalize.py; `--seeds` has no effect, because the bootstrap
only draws queries. A collection's test queries are used alone, or with training queries that were set aside (see equalize.py).

What it cannot tell: whether wording is the cause; the needs behind complex queries may be the difficult ones (see
WordingSensitivity).
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
from reporting import CONTROLS
from study import MEASURES, USES, Settings, Source, complexity_of, encoded_rows, new_ranker, of_run, opened, parser, sizes
from workshop import keep_layers, program, read_settings, same_run, write_results

from pyterrier_debias import BiEncoder, Disparity, MultiVector, T5Reranker
from pyterrier_debias.core import plots
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.report.models import find_model

NOTES = [
    "mean, sd, cv: of nDCG@10 over queries, Student's 95 % intervals on influence values; groups are thirds by complexity; all "
    "datasets: macro mean of their statistics.",
    "tests: slope for one standard deviation of complexity given the length of the query and the logarithm of the number of "
    "relevant documents, interval and p by permutation; uncontrolled: without the controls.",
    "indices: each index of complexity by itself, given the controls; p_corrected: Holm over the indices of a ranker.",
    "A collection's own runs were made over its whole corpus; here the collection may be only a sample of it.",
]


def reranked(ranker: Any, source: Source) -> pd.DataFrame:
    """Measures of each query when the ranker re-ranks BM25's candidates."""
    return of_run(ranker(source.dataset.text_loader()(source.candidates)), source, USES[1])


def late_interaction(settings: Settings, folder: str | None, out: Path) -> tuple[str, MultiVector]:
    """A trained multi-vector model, or one whose projection is drawn at random over MiniLM's vectors of words."""
    if folder:
        return f"multi-vector ({Path(folder).name})", MultiVector(folder, max_length=settings.max_length)
    # The encoder without its pooling, after which there are no vectors of words.
    where = out / "encoder-whole"
    if not where.is_dir():
        keep_layers(find_model(settings.model, "bi").source, None, where)
    return "late interaction, random projection", MultiVector(str(where), max_length=settings.max_length)


def measured(sources: list[Source], settings: Settings, options: Any) -> pd.DataFrame:
    """Measures of all rankers: ``name``, ``dataset``, ``use``, ``qid`` and the measures."""
    parts = []
    rankers: dict[str, BiEncoder] = {}
    others: dict[str, Any] = {}
    if not options.runs_only:
        model = find_model(settings.model, "bi")
        rankers[model.name] = BiEncoder(model.source, max_length=settings.max_length)
        if settings.layers is not None:
            rankers[f"{model.name}, {settings.layers} layers"] = new_ranker(settings, options.out)
        late_name, late = late_interaction(settings, options.multi, options.out)
        others = {late_name: late} | ({f"T5 ({Path(options.t5).name})": T5Reranker(options.t5)} if options.t5 else {})
    for source in sources:
        runs = provided(source.dataset, "get_runs") or {}
        for name, run in {"BM25": source.candidates, **{n: r for n, r in runs.items() if n != "bm25"}}.items():
            parts.append(of_run(run, source, USES[0]).assign(name=name))
        for name, ranker in rankers.items():
            print(f"{source.name}: {name}", flush=True)
            found = encoded_rows(ranker, "robust", None, [source], settings, None)
            parts.append(found.drop(columns="model").assign(name=name))
        for name, ranker in others.items():
            print(f"{source.name}: {name}", flush=True)
            parts.append(reranked(ranker, source).assign(name=name))
    found = pd.concat(parts, ignore_index=True)
    # One name for each use, because a disparity table distinguishes only systems.
    return found.assign(name=found["name"].where(found["use"] == USES[0], found["name"] + ", re-ranking"))


def main() -> None:
    options = parser(__doc__, trains=False)
    options.add_argument("--multi", metavar="FOLDER", help="a trained multi-vector (ColBERT) model")
    options.add_argument("--t5", metavar="FOLDER", help="a T5 ranker")
    options.add_argument("--runs-only", action="store_true", help="only BM25 and the collections' own runs: nothing is encoded")
    options = options.parse_args()
    settings = read_settings(options, Settings())
    lessons, sources = opened(options, settings)
    same_run(options.out, "complexity_tables", settings, [source.name for source in sources])
    if options.estimate:
        print("a minute or two for each thousand documents on one core")
        return
    values = measured(sources, settings, options)
    measure = MEASURES[0]
    tables: dict[str, pd.DataFrame] = {"sizes": sizes(lessons, sources)}
    tests, indices, thirds = [], [], []
    for source in sources:
        own = values[values["dataset"] == source.name]
        stage = complexity_of(settings)
        stage.keep_indices = True
        topics = source.topics.drop(columns="complexity").pipe(stage)
        given = {"measures": [measure], "resamples": settings.resamples}
        result = Disparity(controls=CONTROLS, indices=list(source.live), **given).evaluate(own, topics)
        bare = Disparity(**given).evaluate(own, topics)
        slope = bare.tests[bare.tests["test"] == "slope"].assign(test="slope, uncontrolled")
        tests.append(pd.concat([result.tests, slope]).assign(dataset=source.name))
        indices.append(result.indices.assign(dataset=source.name))
        thirds.append(result.table)
        shown = [n for n in dict.fromkeys(own["name"]) if not n.endswith("re-ranking") or "interaction" in n or "T5" in n][:6]
        picture = Disparity(**given).evaluate(own[own["name"].isin(shown)], topics)
        axes = plots.new_axes()
        picture.plot_curve(axes, points=30, resamples=min(settings.resamples, 499))
        axes.set_title(source.name, loc="left")
        plots.save(axes.figure, options.out / f"figure_1_{source.name}.png", dpi=100)
    spread = pd.concat(thirds, ignore_index=True)
    tables["spread"] = spread[spread["group"] == "all"].drop(columns=["group", "measure", "complexity"])
    if len(sources) > 1:
        tables["over_datasets"] = over_datasets(values, sources)
    tables["thirds"] = spread[spread["group"] != "all"].drop(columns=["measure"])
    columns = ["dataset", "name", "test", "value", "low", "high", "p", "noise_floor", "n", "group"]
    tables["tests"] = pd.concat(tests, ignore_index=True)[columns]
    tables["indices"] = pd.concat(indices, ignore_index=True).drop(columns="measure")
    title = f"Wording and rankers without further training: {', '.join(source.name for source in sources)}"
    write_results(options.out, title, settings, tables, NOTES)


def over_datasets(values: pd.DataFrame, sources: list[Source]) -> pd.DataFrame:
    """The layout of Table 1: the macro mean over collections, for rankers that were measured on all of them."""
    count = values.groupby("name", sort=False)["dataset"].nunique()
    everywhere = values[values["name"].isin(count.index[count == len(sources)])]
    known = pd.concat([source.topics[["qid", "complexity"]].assign(dataset=source.name) for source in sources])
    table = Disparity(measures=[MEASURES[0]], resamples=1)(everywhere.merge(known, on=["dataset", "qid"]))
    table = table[(table["group"] == "all") & (table["dataset"] == "all datasets")]
    return table.drop(columns=["group", "measure", "complexity", "dataset"])


if __name__ == "__main__":
    sys.exit(program(main))
