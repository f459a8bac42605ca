"""How far do published rankings lean to one gender's words? ARaB and NFaiRR of runs on queries for which it matters.

    python examples/gender_bias/runs.py --dataset msmarco_trec_dl --queries trecdeep19_passage.fair.tsv \\
        --run BM25=BM25.trec.gz --run "BERT L4"=bert_L4.trec.gz --run "AdvBERT L4"=advbert_L4.trec.gz \\
        --words wordlist_genderspecific.txt --words wordlist_gender_representative.txt --out gender-runs

reads runs from files, or from the collection itself (without `--run`), and takes the queries of a file (`qid<tab>query`; without
`--queries` all topics that name no gender). It writes

- for each word list and magnitude, the mean ARaB@10 with its interval and its test against zero, the part that is due to the
  order (ARaB minus that of a random order of the same documents), and NFaiRR@10 against one background for all runs;
- the same at the cut-offs 5, 10 and 20, with a plot over cut-offs;
- comparisons of the systems with each other, query by query;
- the documents that contribute most.

The word lists are the library's own list and those given by `--words`. The tokeniser matters more than one would expect:
`--tokeniser blank` does exactly what the released script does; `regex_word` gives the words that the script expects after a
cleaning step that was not published.

What it cannot tell: whether a difference between systems is a difference in bias or comes from missing texts (the results say how
many documents have no text); and whom a passage is about if it has no word of the list.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

sys.path.append(str(Path(__file__).resolve().parent.parent))
from workshop import named, program, write_results

from pyterrier_debias import open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.data.readers import read_run, read_topics
from pyterrier_debias.gender.audit import neutral_qids
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.measures.evaluator import ARaBEvaluator, union_background

CUTOFFS = (5, 10, 20)
NOTES = [
    "ARaB: mean over queries, positive where rankings lean to male words; p: by flipping signs at random, not corrected for "
    "the number of rows; low, high: the 95 % interval that inverts this test. magnitude: mean of the queries' absolute values.",
    "order: ARaB minus that of a random order of the same documents (to the depth of the run), with its own interval and p "
    "(by flipping signs and by random orders, whichever is larger); floor: its value by chance alone.",
    "NFaiRR: the background is the union of all runs' documents to --depth, threshold 1, equal portions.",
    "no_text, no_text_deep: share of the documents without a text among the first 20, and to --depth; they count as documents "
    "without words, which draws the random order's value towards 0.",
    "comparison: paired by query; p by randomisation, corrected by Holm over the pairs of a word list and magnitude.",
]


@dataclass(frozen=True)
class Settings:
    """The settings of a run.

    Attributes:
        dataset: The collection.
        queries: The file of queries; empty for the neutral topics.
        runs: The runs' names.
        words: The word lists.
        tokeniser: How texts are split into words.
        depth: How many documents per query of a run are used.
        seed: Seed of intervals and tests.
    """

    dataset: str
    queries: str
    runs: list[str]
    words: list[str]
    tokeniser: str
    depth: int
    seed: int


def runs_of(options: argparse.Namespace, dataset: object) -> dict[str, pd.DataFrame]:
    """The runs by name."""
    if not options.run:
        return dict(dataset.get_runs())
    return {name: read_run(path) for name, path in named("--run", options.run).items()}


def excerpt(marked: str, around: int = 60) -> str:
    """The text around the first marked word."""
    place = max(marked.find("[["), 0)
    start, end = max(place - around, 0), place + around
    return ("..." if start else "") + marked[start:end] + ("..." if end < len(marked) else "")


def main() -> None:
    options = parser().parse_args()
    dataset = open_dataset(options.dataset, split=options.split)
    runs = runs_of(options, dataset)
    if options.queries:
        qids = list(read_topics(options.queries)["qid"])
    else:
        qids = neutral_qids(dataset.get_topics())
    keep = set(qids)
    runs = {name: run[run["qid"].isin(keep) & (run["rank"] < options.depth)] for name, run in runs.items()}
    runs = {name: run.reset_index(drop=True) for name, run in runs.items()}
    wanted = pd.concat([run[["docno"]] for run in runs.values()]).drop_duplicates()
    corpus = dataset.get_corpus()
    texts = dict(zip(corpus["docno"], corpus["text"]))
    known = set(wanted["docno"]) & texts.keys()
    lost = {name: float((~run.loc[run["rank"] < max(CUTOFFS), "docno"].isin(known)).mean()) for name, run in runs.items()}
    deep = {name: float((~run["docno"].isin(known)).mean()) for name, run in runs.items()}
    background = union_background(runs.values(), options.depth)

    lists = [WordList.of("debias"), *(WordList.of(path) for path in options.words)]
    summary, pairs, top = [], [], []
    for words in lists:
        for method in ("tf", "bool"):
            evaluator = ARaBEvaluator(
                CUTOFFS, wordlist=words, method=method, tokeniser=options.tokeniser, background=background, texts=texts,
                query_filter=qids, unknown="zero", depth=len(runs) * options.depth,
            )  # fmt: skip
            found = evaluator.evaluate(runs, seed=options.seed)
            about = {"words": f"{words.name} ({words.size})", "magnitude_by": method}
            summary.append(found.table.assign(**about))
            for measure in ("ARaB", "NFaiRR") if method == "tf" else ("ARaB",):
                own = found.compare(measure)
                pairs.append(own[own["cutoff"] == 10].assign(**about, measure=measure))
            if words is lists[0] and method == "tf":
                for name, run in runs.items():
                    part = evaluator.contributions(run, 10, top=5)
                    shown = [excerpt(text) for text in part["marked"]]
                    top.append(part.assign(system=name, marked=shown))
                for measure in ("ARaB", "added", "NFaiRR"):
                    plots.save(found.plot(measure=measure).figure, options.out / f"{measure.lower()}.png")
                found.per_query.to_csv(options.out / "per_query.csv", index=False)
    table = pd.concat(summary, ignore_index=True)
    table = table.assign(no_text=table["system"].map(lost), no_text_deep=table["system"].map(deep))
    renamed = {"added": "order", "added_low": "order_low", "added_high": "order_high", "added_p": "order_p"}
    table = table.rename(columns=renamed)
    columns = ["words", "magnitude_by", "system", "cutoff", "n", "ARaB", "low", "high", "p", "magnitude", "order", "order_low"]
    columns += ["order_high", "order_p", "floor", "NFaiRR", "NFaiRR_low", "NFaiRR_high", "no_text", "no_text_deep"]
    table = table[columns]
    comparison = pd.concat(pairs, ignore_index=True)
    first = ["words", "magnitude_by", "measure"]
    comparison = comparison[[*first, *(column for column in comparison if column not in first)]]
    tables = {"lean": table[table["cutoff"] == 10].drop(columns="cutoff"), "cutoffs": table, "comparison": comparison}
    tables["documents"] = pd.concat(top, ignore_index=True)[["system", "docno", "part", "share", "words", "marked"]]
    settings = Settings(
        Path(options.dataset).name, Path(options.queries).name if options.queries else "", list(runs), [str(w) for w in lists],
        options.tokeniser, options.depth, options.seed,
    )  # fmt: skip
    write_results(options.out, f"ARaB and NFaiRR of {len(runs)} runs on {len(keep)} queries", settings, tables, NOTES)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", required=True, help="collection with the passages' texts")
    parser.add_argument("--split", help="split of the collection's topics (default: the collection's own)")
    parser.add_argument("--queries", help="file of the queries to use: qid<tab>query (default: topics that name no gender)")
    parser.add_argument("--run", action="append", default=[], help="NAME=FILE in TREC's format (default: the collection's runs)")
    parser.add_argument("--words", action="append", default=[], help="file of a word list; may be repeated")
    parser.add_argument("--tokeniser", default="regex_word", help="regex_word (default), whitespace or blank")
    parser.add_argument("--depth", type=int, default=100, help="documents per query of a run that are used (default 100)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for results")
    return parser


if __name__ == "__main__":
    sys.exit(program(main))
