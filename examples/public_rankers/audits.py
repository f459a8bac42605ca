"""Biases of ten public rankers, on real passages.

    python examples/public_rankers/audits.py --data FOLDER --out public

reads two folders in `FOLDER`: `msmarco_trec_dl` (TREC DL 2019 and 2020: passages, judgements, published runs) and
`survivorship_msmarco_v2` (50 queries of MS MARCO QnA that nobody could answer, with 100 passages each, which BM25, ANCE, ColBERT
and monoT5 ranked; no judgements). It makes one audit for each of these arms:

- published: six published runs of TREC DL, both years together (97 queries, with the year as a factor), and all-MiniLM-L6-v2 over
  BM25's first candidates: gender, wording, pooling and length, each compared with BM25;
- moved: position, for rankers that can be given rotated passages: BM25 (PISA, over the available passages) and all-MiniLM-L6-v2;
  and two treatments without training: scores averaged over rotations, and an index of passages that were rotated once;
- reworded: BM25 (PISA) on reworded queries;
- terrier, only with `--terrier` (it needs Java): position and wording of Terrier's BM25 over the same passages;
- parsed, only with `--parser stanford`: wording again, with the syntactic indices included in complexity;
- pairs: the same 5,000 pairs, ranked by four rankers: gender, length, and how far the rankings agree.

`--ranker NAME=FOLDER` adds a ranker that you have trained (the folder that its `save()` wrote) to each arm that examines
all-MiniLM-L6-v2; `--retrained NAME=FOLDER` adds the same ranker, trained on rotated passages, to the arm moved. A run that was
stopped continues with the same command: finished arms are kept. Tables (`*.csv`, `*.inc`, `results.json`) contain identifiers and
figures, but no texts; `picture.png` is drawn from them.

What it cannot tell: how a ranker that is not available would react to changed texts (its position bias is not examined); whether
judgements or rankers are to blame if both lean one way; how the rankers of the 5,000 pairs would rank a whole collection.
"""

import argparse
import itertools
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from scipy import stats

from pyterrier_debias import (
    ARaBEvaluator,
    AuditResult,
    Collection,
    InputError,
    LinguisticComplexity,
    System,
    TerrierIndexer,
    audit,
)
from pyterrier_debias.core import plots
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.locks import scratch_folder
from pyterrier_debias.core.statistics import ALPHA, Interval, bootstrap_interval, correct, detectable_effect
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data.readers import read_corpus, read_run, read_topics
from pyterrier_debias.further.length import length_percentiles
from pyterrier_debias.further.shared import mean_test
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.linguistic.audit import INDEX_SET
from pyterrier_debias.position.data.averaging import AverageRotations
from pyterrier_debias.report.first_stage import PisaIndexer
from pyterrier_debias.report.models import find_model
from pyterrier_debias.report.pareto import pareto
from pyterrier_debias.report.result import RESULT_FILE
from pyterrier_debias.report.verdict import margins

# The modules that programs share are one folder up.
sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import both_years, ends, named, program, share_of_mean_closed, write_results

MEASURE = "nDCG@10"
#: Published runs: names of files, and of their rankers. The others are compared with the first.
RUNS = {
    "bm25": "BM25", "bm25_rm3": "BM25+RM3", "splade_pp_ed": "SPLADE++", "tasb": "TAS-B", "ada2": "ada-002",
    "repllama": "RepLLaMA",
}  # fmt: skip
PAIRS = {"bm25": "BM25", "ance": "ANCE", "colbert": "ColBERT", "monot5": "monoT5"}
FIRST = RUNS["bm25"]
LIVE = "BM25 (PISA)"
TERRIER = "BM25 (Terrier)"
#: The biases of the arm ``published`` in the order of the page, and their names in the tables.
BIASES = {"gender": "gender", "linguistic": "wording", "pooling": "pooling", "length": "length"}
CUTOFF = 10
#: Captions of the tables in the documentation.
CAPTIONS = {
    "gender": "ARaB@10 of each ranker's order",
    "wording": "Slope of nDCG@10 on complexity by lexical indices",
    "wording_parsed": "Slope of nDCG@10 on complexity, with syntactic indices",
    "pooling": "Judged documents of the first ten, against BM25's",
    "length": "Length percentile of the first ten",
    "position": "Ranks that a rotated passage moves down",
    "reworded": "Change of nDCG@10 where queries are reworded",
    "unjudged": "nDCG@10 by treatment of unjudged documents",
    "years": "Figures by year",
    "carriers": "The queries and passages with the largest shares of each figure that was found",
    "pairs": "Gender and length over the same 5,000 pairs",
    "agreement": "How far the rankers of the 5,000 pairs agree",
}
NOTES = [
    "value: the primary figure of the bias; low, high: its 95 % interval.",
    "p_corrected: by Holm's method in two steps over the tests of an audit; for the 5,000 pairs, over their eight tests.",
    "detectable: the smallest effect that the test would have found with a power of 80 %, after correction.",
    "verdict: yes (significant), no (the whole interval is within the margin, the smallest effect that matters), cannot tell.",
    "against BM25: the same figure minus that of BM25, paired by query, with Student's interval; p against BM25: paired t-test, "
    "corrected by Holm's method over the rows of the table. For wording it is the slope without the candidates as a control.",
    "removed, inferred: unjudged documents are left out, or get the expected label of judged documents that are ranked equally "
    "high.",
    "front: yes if no other system of the table is at most as biased and at least as effective.",
    "TREC DL: tied scores are in the order of the published files. The first run, BM25, represents the runs of the pool.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        model: The bi-encoder.
        rankers: Folders of further rankers, by name.
        retrained: Folders of the same rankers, trained on rotated passages, by name.
        depth: Documents per list.
        moved_depth: Candidates per query when passages are rotated.
        queries: Number of queries of each year and of the pairs, counted from the first; None for all.
        draws: Rotations of each relevant passage.
        rotations: Numbers of rotations to average scores over.
        seed: Seed of everything random.
        parser: Parser of the arm ``parsed``; empty to leave out this arm.
        terrier: Whether to make the arm ``terrier``.
    """

    model: str
    rankers: dict[str, str]
    retrained: dict[str, str]
    depth: int
    moved_depth: int
    queries: int | None
    draws: int
    rotations: tuple[int, ...]
    seed: int
    parser: str = ""
    terrier: bool = False


def trec_dl(folder: Path, queries: int | None) -> Collection:
    """Both years, with at most ``queries`` queries of each, and the runs under the rankers' names."""
    c = both_years(folder, ties="rank")
    runs = {new: c.runs[old] for old, new in RUNS.items() if old in c.runs}
    if FIRST not in runs:
        raise InputError(f"{folder} lacks the run {next(iter(RUNS))!r}, with which the others are compared; add it")
    qrels = c.get_qrels()
    topics = c.get_topics()
    topics = topics[topics["qid"].isin(set(qrels["qid"]))].groupby("type").head(queries or len(topics)).reset_index(drop=True)
    return Collection(c.name, corpus=c.corpus, topics={c.split: topics}, qrels={c.split: qrels}, runs=runs)


def kept(out: Path, name: str, *args: Any, **options: Any) -> AuditResult:
    """An audit; it is run once, and its result is stored."""
    path = out / name / RESULT_FILE
    if not path.is_file():
        print(f"{name} ...", flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, audit(*args, **options).to_json())
    return AuditResult.from_json(path.read_text(encoding="utf-8"))


# TREC DL


def treated(name: str, system: System, settings: Settings) -> dict[str, System]:
    """A reranker, and variants of it that depend less on positions, made without training."""
    systems = {name: system}
    for r in settings.rotations:
        system_r = replace(system, ranker=AverageRotations(system.ranker, r), untreated=name)
        systems[f"{name}, mean of {r} rotations"] = system_r
    # One rotation per passage, drawn by its text, as in an index whose passages were rotated once before they were encoded.
    once = AverageRotations(system.ranker, 1, spacing="random", original=False, seed=settings.seed)
    systems[f"{name}, index rotated once"] = replace(system, ranker=once, untreated=name)
    return {told: replace(one, name=told) for told, one in systems.items()}


def parsed(trec: Collection, parser: str) -> Collection:
    """The collection with its topics' complexity by all indices, which an audit uses instead of its own complexity."""
    complexity = LinguisticComplexity(INDEX_SET, parser=parser)
    topics = complexity(trec.get_topics())
    told = complexity.summary()
    shown = f"{told['live']} live indices, {told['no_t_unit']:.0%} of the queries without a T-unit"
    print(f"{shown}; rank correlation of complexity with the number of words {told['rho_words']:.2f}", flush=True)
    return Collection(
        trec.name, corpus=trec.corpus, topics={trec.split: topics}, qrels={trec.split: trec.get_qrels()}, runs=trec.get_runs()
    )


def terrier_system(trec: Collection, folder: Path, depth: int) -> System:
    """Terrier's BM25 over the available passages; a probe indexes changed passages in the same way."""

    def bm25(index: pt.terrier.TerrierIndex) -> pt.Transformer:
        return pt.rewrite.tokenise() >> index.bm25(num_results=max(1000, depth)) >> pt.rewrite.reset()

    index = pt.terrier.TerrierIndex(str(folder / "terrier"))
    index.indexer().index(trec.get_corpus_iter())
    return System(TERRIER, bm25(index), indexer=TerrierIndexer(index, bm25, folder=folder))


def audits(trec: Collection, rankers: Mapping[str, Any], settings: Settings, out: Path) -> dict[str, AuditResult]:
    """The audits of TREC DL by name."""
    options: dict[str, Any] = {"depth": settings.depth, "seed": settings.seed}
    moving = {**options, "depth": settings.moved_depth}
    runs = trec.get_runs()
    candidates = pt.Transformer.from_df(runs[FIRST]) >> trec.text_loader()
    rerankers = {name: System(name, candidates, ranker) for name, ranker in rankers.items()}
    with scratch_folder() as scratch:
        indexer = PisaIndexer(scratch, max(1000, settings.depth))
        live = System(LIVE, indexer(trec.get_corpus_iter()), None, indexer)
        both = [treated(name, system, settings) for name, system in rerankers.items()]
        moved = {LIVE: live, **{name: one for several in both for name, one in several.items()}}
        for name, folder in settings.retrained.items():
            told = f"{name}, trained on rotated passages"
            moved[told] = System(told, candidates, find_model(folder).ranker(), untreated=name)
        found = {
            "published": kept(out, "published", {**runs, **rerankers}, trec, biases=list(BIASES), baseline=FIRST, **options),
            "moved": kept(out, "moved", moved, trec, biases="position", draws=settings.draws, **moving),
            "reworded": kept(out, "reworded", {LIVE: live}, trec, biases="linguistic", **options),
        }
        if settings.terrier:
            lexical = terrier_system(trec, scratch, settings.depth)
            of_words = {"biases": ["position", "linguistic"], "draws": settings.draws, **options}
            found["terrier"] = kept(out, "terrier", {TERRIER: lexical}, trec, **of_words)
        if settings.parser:
            of_wording = {"biases": "linguistic", "baseline": FIRST, **options}
            found["parsed"] = kept(out, "parsed", {**runs, **rerankers}, parsed(trec, settings.parser), **of_wording)
        return found


def effectiveness(result: AuditResult, system: str) -> pd.Series:
    """nDCG@10 of a system by qid."""
    own = result.per_query
    own = own[(own["system"] == system) & (own["measure"] == MEASURE) & own["contrast"].isin(["original", "all queries"])]
    return own.drop_duplicates("qid").set_index("qid")["value"]


def primary_rows(result: AuditResult, bias: str) -> list[dict[str, Any]]:
    """The primary figure of each system, with the verdict."""
    told = result.verdict().query("bias == @bias").set_index("system")["outcome"]
    rows = result.findings[(result.findings["bias"] == bias) & result.findings["primary"].astype(bool)]
    return [
        {
            "system": row["system"], MEASURE: effectiveness(result, row["system"]).mean(), "contrast": row["contrast"],
            "value": row["value"], "low": row["low"], "high": row["high"], "p": row["p"], "p_corrected": row["p_corrected"],
            "detectable": row["detectable"], "verdict": told[row["system"]], "queries": row["n"],
        }
        for row in rows.to_dict("records")
    ]  # fmt: skip


def bias_table(result: AuditResult, bias: str) -> pd.DataFrame:
    """One row per system: effectiveness, primary figure, verdict, and the difference from BM25's figure."""
    table = pd.DataFrame(primary_rows(result, bias)).drop(columns="p")
    if table["contrast"].nunique() == 1:  # a slope given the candidates is not compared with one that is not
        table["front"] = table["system"].map(pareto(result, bias).set_index("system")["on_front"].map({True: "yes", False: ""}))
    if bias == "pooling":  # it is a difference from BM25 already
        return table
    suffix = f", vs {FIRST}"
    of = result.findings[(result.findings["bias"] == bias) & result.findings["contrast"].str.endswith(suffix)].set_index("system")
    table["against_BM25"] = table["system"].map(of["value"])
    for end in ("low", "high"):
        table[f"against_BM25_{end}"] = table["system"].map(of[end])
    table["p_against_BM25"] = correct(table["system"].map(of["p"]).to_numpy())
    last = [column for column in ("front", "queries") if column in table]
    return table[[*(column for column in table if column not in last), *last]]


def unjudged_table(result: AuditResult) -> pd.DataFrame:
    """Effectiveness by treatment of unjudged documents, and the change from the usual treatment."""
    found = result.findings[(result.findings["bias"] == "pooling") & (result.findings["measure"] == MEASURE)]
    found = found.set_index(["contrast", "system"])
    table = pd.DataFrame({"system": result.settings["systems"]})
    table["as non-relevant"] = table["system"].map(found.loc["as non-relevant", "value"])
    for way in ("removed", "inferred"):
        change = found.loc[f"{way} - as non-relevant"]
        table[way] = table["system"].map(found.loc[way, "value"])
        for name, column in (("", "value"), ("_low", "low"), ("_high", "high")):
            table[f"{way}, change{name}"] = table["system"].map(change[column])
    return table


def year_table(result: AuditResult, years: Mapping[str, str]) -> pd.DataFrame:
    """Each figure that is a mean over queries, by year, and whether the years differ (Welch's t)."""
    rows = []
    for system in result.settings["systems"]:
        figures = {MEASURE: effectiveness(result, system)}
        for bias, told in BIASES.items():
            own = result.findings[(result.findings["bias"] == bias) & (result.findings["system"] == system)]
            own = own[own["primary"].astype(bool)]
            if bias != "linguistic" and len(own):  # its slope has the year as a control
                figures[told] = values_of(result, own.iloc[0])
        for figure, values in figures.items():
            parts = [values[values.index.map(years) == year].to_numpy() for year in dict.fromkeys(years.values())]
            if min(map(len, parts)) > 1 and any(np.ptp(part) for part in parts):
                test = stats.ttest_ind(parts[1], parts[0], equal_var=False)
                low, high = test.confidence_interval()
                means = {year: part.mean() for year, part in zip(dict.fromkeys(years.values()), parts)}
                difference = parts[1].mean() - parts[0].mean()
                rows.append({
                    "figure": figure, "system": system, **means, "difference": difference, "low": low, "high": high,
                    "p": test.pvalue,
                })  # fmt: skip
    table = pd.DataFrame(rows).sort_values("figure", kind="stable", ignore_index=True)
    return table.assign(p_corrected=correct(table["p"].to_numpy()))


def values_of(result: AuditResult, row: Mapping[str, Any]) -> pd.Series:
    """The values of a figure by qid."""
    own = result.per_query
    for name in ("system", "bias", "measure", "contrast"):
        own = own[own[name] == row[name]]
    return own.set_index("qid")["value"].dropna()


def position_table(result: AuditResult, untreated: Mapping[str, str], settings: Settings) -> pd.DataFrame:
    """One row per system: displacement, the removed share of the untreated system's, effectiveness and its change."""
    rows = []
    for row in primary_rows(result, "position"):
        system = row["system"]
        plain, own = untreated.get(system), effectiveness(result, system)
        if plain is not None:
            figures = result.findings[result.findings["primary"].astype(bool)].set_index("system", drop=False)
            before, after = (values_of(result, figures.loc[one]) for one in (plain, system))
            pairs = pd.concat([before, after], axis=1, keys=["before", "after"]).dropna()
            gone = bootstrap_interval(pairs.to_numpy(), share_of_mean_closed, method="percentile", seed=settings.seed)
            cost = bootstrap_interval((own - effectiveness(result, plain)).dropna().to_numpy(), seed=settings.seed)
            row |= ends("share closed", gone) | ends("change", cost) | {"detectable change": detectable_effect(cost)}
        rows.append({**row, "measure": "nDCG@10" if "rotated - original" in row["contrast"] else "ranks"})
    return pd.DataFrame(rows).drop(columns=["contrast", "p"])


def carriers(result: AuditResult, biases: Sequence[str]) -> pd.DataFrame:
    """For each bias that was found: how many queries account for half of it, and the first queries and passages."""
    rows = []
    for bias in biases:
        for row in primary_rows(result, bias):
            if row["verdict"] != "yes":
                continue
            queries = result.worst(10_000, bias=bias, system=row["system"])
            passages = result.worst(5, kind="documents", bias=bias, system=row["system"])
            figure = result.findings[result.findings["primary"].astype(bool)].query("bias == @bias").set_index("system")
            passages = passages[passages["measure"] == figure.loc[row["system"], "measure"]]
            half = int((queries["share"].cumsum() < 0.5).sum()) + 1
            rows.append({
                "bias": BIASES.get(bias, bias), "system": row["system"], "half comes from": f"{half} of {row['queries']} queries",
                "queries": _listed(queries.head(5), "qid"), "passages": _listed(passages.head(5), "item"),
            })  # fmt: skip
    return pd.DataFrame(rows, columns=["bias", "system", "half comes from", "queries", "passages"])


def _listed(found: pd.DataFrame, name: str) -> str:
    return ", ".join(f"{row[name]} ({row['share']:.0%})" for row in found.to_dict("records"))


def reworded_table(results: Sequence[AuditResult]) -> pd.DataFrame:
    """How quality changes if the same need is expressed in other words."""
    found = pd.concat([result.findings[result.findings["bias"] == "linguistic"] for result in results], ignore_index=True)
    found = found[found["contrast"].str.endswith("- original") & (found["measure"] == MEASURE)]
    found = found.assign(p_corrected=correct(found["p"].to_numpy()))
    columns = ["system", "contrast", "value", "low", "high", "p", "p_corrected", "n"]
    return found[columns].rename(columns={"n": "queries"}).reset_index(drop=True)


# The same pairs


def pair_runs(folder: Path, settings: Settings) -> tuple[pd.DataFrame, dict[str, pd.DataFrame]]:
    """Topics, and the same passages in the order of each ranker, with texts."""
    topics, corpus = read_topics(folder / "queries.tsv"), read_corpus(folder / "passages.tsv.gz")
    topics = topics.head(settings.queries or len(topics))
    texts = Collection("pairs", corpus=corpus, topics={"all": topics}, qrels={}).text_loader()
    runs = {}
    for file, name in PAIRS.items():
        run = read_run(folder / f"run.{file}.trec.gz")
        runs[name] = texts(run.merge(topics, on="qid")[["qid", "query", "docno", "score", "rank"]])
    if len({frozenset(zip(run["qid"], run["docno"])) for run in runs.values()}) > 1:
        raise InputError(f"{folder}: its runs do not rank the same passages; their orders cannot be compared")
    return topics, runs


def pair_table(topics: pd.DataFrame, runs: Mapping[str, pd.DataFrame], settings: Settings) -> pd.DataFrame:
    """Gender and length of each ranker's first ten, against a random order of the same passages."""
    found = ARaBEvaluator([CUTOFF], depth=10 * settings.depth).evaluate(
        dict(runs), topics[topics["qid"].isin(neutral_qids(topics))], seed=settings.seed
    )
    rows = [
        {"bias": "gender", "system": row["system"], "value": row["added"], "low": row["added_low"], "high": row["added_high"],
         "p": row["added_p"], "queries": row["n"]}
        for row in found.table.to_dict("records")
    ]  # fmt: skip
    for name, run in runs.items():
        words = run["text"].map(lambda text: len(regex_word(text)))
        above = pd.Series(length_percentiles(run["qid"], pd.Series(False, run.index), words) - 0.5, run.index)
        first = run["rank"] < CUTOFF
        interval, p, _ = mean_test(above[first].groupby(run["qid"][first]).mean(), settings.seed, least=-0.5, most=0.5)
        rows.append({"bias": "length", "system": name, "value": interval.estimate, "low": interval.low, "high": interval.high,
                     "p": p, "queries": interval.n})  # fmt: skip
    table = pd.DataFrame(rows)
    table["p_corrected"] = correct(table["p"].to_numpy())
    figures = table[["value", "low", "high", "queries"]].itertuples(index=False)
    table["detectable"] = [detectable_effect(Interval(*row[:3], 0.95, row[3]), tests=len(table)) for row in figures]
    margin = table["bias"].map({bias: next(iter(units.values())) for bias, units in margins().items()})
    within = table[["low", "high"]].abs().max(axis=1) <= margin
    table["verdict"] = np.select([table["p_corrected"] < ALPHA, within], ["yes", "no"], "cannot tell")
    return table[["bias", "system", "value", "low", "high", "p", "p_corrected", "detectable", "verdict", "queries"]]


def agreement_table(runs: Mapping[str, pd.DataFrame], settings: Settings) -> pd.DataFrame:
    """For each pair of rankings: Kendall's tau, and how many of the first ten passages they share; means over queries."""
    rows = []
    for (a, one), (b, other) in itertools.combinations(runs.items(), 2):
        both = one.merge(other, on=["qid", "docno"], suffixes=("", "_other"))
        queries = both.groupby("qid")[["rank", "rank_other"]]
        tau = queries.apply(lambda q: float(stats.kendalltau(q["rank"], q["rank_other"]).statistic)).to_numpy()
        shared = queries.apply(lambda q: int(((q["rank"] < CUTOFF) & (q["rank_other"] < CUTOFF)).sum())).to_numpy(dtype=float)
        cells = ends("tau", bootstrap_interval(tau, seed=settings.seed))
        cells |= ends("common in the first ten", bootstrap_interval(shared, seed=settings.seed))
        rows.append({"ranker": a, "other ranker": b, **cells, "queries": len(tau)})
    return pd.DataFrame(rows)


# The picture

#: Colours of points by verdict; points of the verdict ``cannot tell`` are hollow.
COLOURS = {"yes": plots.colour(1), "no": plots.colour(0), "cannot tell": plots.GREY}
PALE = "#8C8C8C"
AXES = {
    "position": "ranks that a rotated\npassage moves down", "gender": "to female < ARaB@10\n> to male words",
    "wording": "nDCG@10 for each\nstep of complexity", "pooling": "judged of the first\nten, minus BM25's",
    "length": "length percentile\nof the first ten",
}  # fmt: skip


def draw(tables: Mapping[str, pd.DataFrame], path: Path) -> None:
    """Draw systems as rows, effectiveness and biases as columns: figures with intervals, coloured by the verdict."""
    import matplotlib.pyplot as plt

    dl = tables["gender"].sort_values(MEASURE, ascending=False)
    further = [name for name in dict.fromkeys(tables["pairs"]["system"]) if name not in set(dl["system"])]
    places = {name: -place for place, name in enumerate(dl["system"])}
    places |= {name: -len(dl) - 0.4 - place for place, name in enumerate(further)}
    own = {bias: tables[bias] for bias in AXES}
    pairs = tables["pairs"]
    pairs = pairs[pairs["system"].isin(further)]
    own |= {bias: pd.concat([own[bias], pairs[pairs["bias"] == bias]]) for bias in ("gender", "length")}
    bm25 = tables["position"]["system"].replace(LIVE, FIRST)
    own["position"] = tables["position"].assign(system=bm25)[tables["position"]["measure"].eq("ranks") | bm25.eq(FIRST)]
    limits = {told: next(iter(margins()[bias].values())) for bias, told in {"position": "position", **BIASES}.items()}
    with plots.style():
        figure, axes = plt.subplots(1, 1 + len(AXES), figsize=(11.0, 0.36 * len(places) + 1.3), sharey=True)
        axes[0].barh([places[name] for name in dl["system"]], dl[MEASURE], color=plots.colour(5), height=0.6)
        for name, value in zip(dl["system"], dl[MEASURE]):
            axes[0].text(value - 0.02, places[name], f"{value:.2f}".lstrip("0"), va="center", ha="right", fontsize=9)
        for name in further:
            axes[0].text(0.02, places[name], "no judgements", va="center", fontsize=8, color=PALE)
        axes[0].set_xlabel(f"{MEASURE},\nTREC DL 2019 and 2020")
        axes[0].set_title("effectiveness", loc="left")
        for panel, bias in zip(axes[1:], AXES):
            panel.axvspan(-limits[bias], limits[bias], color="#EEEEEE", zorder=0)
            panel.axvline(0, color=plots.GREY, linewidth=1)
            for row in own[bias].to_dict("records"):
                if row["system"] not in places or not np.isfinite(row["value"]):
                    continue
                colour, y = COLOURS[row["verdict"]], places[row["system"]]
                panel.errorbar(
                    row["value"], y, xerr=plots.ends(row["value"], row["low"], row["high"]), fmt="o", color=colour, linewidth=1.5,
                    markerfacecolor=_inside(row["verdict"]),
                )  # fmt: skip
            for name in set(places) - set(own[bias]["system"]):
                told, across = "not available" if bias == "position" else "no judgements", panel.get_yaxis_transform()
                panel.text(0.5, places[name], told, va="center", ha="center", fontsize=8, color=PALE, transform=across)
            panel.set_title(bias, loc="left")
            panel.set_xlabel(AXES[bias])
            panel.grid(False)
        for panel in axes:
            panel.tick_params(labelsize=9)
            panel.xaxis.label.set_size(9)
        axes[0].set_yticks(list(places.values()), list(places))
        marks = {"yes": "found", "no": "smaller than the margin (grey band)", "cannot tell": "cannot tell"}
        handles = [
            plt.Line2D([], [], marker="o", color=COLOURS[verdict], markerfacecolor=_inside(verdict), label=told)
            for verdict, told in marks.items()
        ]
        figure.legend(handles=handles, loc="outside upper right", ncols=3)
    plots.save(figure, path, dpi=100)


def _inside(verdict: str) -> str:
    return "white" if verdict == "cannot tell" else COLOURS[verdict]


def tables_of(found: Mapping[str, AuditResult], trec: Collection, settings: Settings) -> dict[str, pd.DataFrame]:
    """The tables of TREC DL."""
    published, moved = found["published"], found["moved"]
    years = trec.get_topics().set_index("qid")["type"].to_dict()
    untreated = moved.settings["untreated"]
    parsed = {"wording_parsed": bias_table(found["parsed"], "linguistic")} if "parsed" in found else {}
    terrier = [found["terrier"]] if "terrier" in found else []
    positions = [position_table(result, untreated, settings) for result in (*terrier, moved)]
    return {
        **{told: bias_table(published, bias) for bias, told in BIASES.items()},
        **parsed,
        "position": pd.concat(positions, ignore_index=True),
        "reworded": reworded_table([*terrier, found["reworded"], published]),
        "unjudged": unjudged_table(published),
        "years": year_table(published, years),
        "carriers": pd.concat([carriers(moved, ["position"]), carriers(published, list(BIASES))], ignore_index=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder that holds the two folders above")
    parser.add_argument("--model", default="minilm", help="the bi-encoder: hub name, folder, or minilm")
    parser.add_argument("--ranker", action="append", default=[], metavar="NAME=FOLDER", help="a further ranker; may be repeated")
    retrained = "a ranker of --ranker, trained on rotated passages"
    parser.add_argument("--retrained", action="append", default=[], metavar="NAME=FOLDER", help=retrained)
    parser.add_argument("--depth", type=int, default=100, help="documents per list (default: %(default)s)")
    parser.add_argument("--moved-depth", type=int, default=20, help="candidates if passages are rotated (default: %(default)s)")
    parser.add_argument("--queries", type=int, help="queries of each year and of the pairs (default: all)")
    parser.add_argument("--draws", type=int, default=1, help="rotations of each relevant passage (default: %(default)s)")
    parser.add_argument("--rotations", nargs="+", type=int, default=[2], help="rotations to average over (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="seed of everything random (default: %(default)s)")
    parser.add_argument("--parser", choices=["", "stanford"], default="", help="parser of the arm parsed (default: no such arm)")
    parser.add_argument("--terrier", action="store_true", help="also examine Terrier's BM25, which needs Java")
    parser.add_argument("--out", type=Path, required=True, help="folder for results; a run that was stopped continues from it")
    o = parser.parse_args()
    given, retrained = named("--ranker", o.ranker, "FOLDER"), named("--retrained", o.retrained, "FOLDER")
    if unknown := sorted(set(retrained) - set(given)):
        raise InputError(f"--retrained {unknown[0]}: there is no --ranker of this name to compare it with; add it")
    settings = Settings(
        model=o.model, rankers=given, retrained=retrained, depth=o.depth, moved_depth=o.moved_depth, queries=o.queries,
        draws=o.draws, rotations=tuple(o.rotations), seed=o.seed, parser=o.parser, terrier=o.terrier,
    )  # fmt: skip
    trec = trec_dl(o.data / "msmarco_trec_dl", o.queries)
    models = [find_model(o.model, "bi"), *(find_model(folder) for folder in settings.rankers.values())]
    rankers = {name: model.ranker() for name, model in zip([models[0].name, *settings.rankers], models)}
    tables = tables_of(audits(trec, rankers, settings, o.out), trec, settings)
    topics, runs = pair_runs(o.data / "survivorship_msmarco_v2", settings)
    tables |= {"pairs": pair_table(topics, runs, settings), "agreement": agreement_table(runs, settings)}
    write_results(o.out, "Public rankers", settings, tables, NOTES, CAPTIONS)
    draw(tables, o.out / "picture.png")


if __name__ == "__main__":
    sys.exit(program(main))
