"""Indices of linguistic complexity on real queries: how fast they are, how many are informative, and how far taggers agree.

    NLTK_DATA=nltk_data python benchmarks/complexity.py --queries "MS MARCO dev=queries.dev.small.tsv.gz" \\
        --queries NFCorpus=nfcorpus/queries.jsonl.gz --queries SQuAD=squad_dev_v1.1.json.gz [--out pyterrier_debias/pt_docs]

A collection is a file of lines ``qid<TAB>query`` (.tsv), of JSON objects with ``_id`` and ``text`` (.jsonl), or SQuAD's JSON;
gzipped or not. Taggers that are not installed are left out. Rates are queries per CPU second of this process, on one core, with
models already loaded: the best of three rounds for words, and a single round for taggers.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd

from pyterrier_debias import open_dataset
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.linguistic.data.analysers import get_tagger, is_sign
from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

#: Lu's lexical indices that use tags but no list of words; a tagger's mistakes change them.
TAGGED = ["LD", "LV", "VV1", "VV2", "NV", "AdjV", "AdvV"]
TAGGERS = ("spacy", "nltk", "textblob")


def read_queries(path: str) -> pd.DataFrame:
    if path.removesuffix(".gz").endswith(".json"):
        return open_dataset(path).get_topics()[["qid", "query"]]
    with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as lines:
        if path.removesuffix(".gz").endswith(".jsonl"):
            return pd.DataFrame([{"qid": row["_id"], "query": row["text"]} for row in map(json.loads, lines)])
        return pd.DataFrame([line.rstrip("\n").split("\t")[:2] for line in lines], columns=["qid", "query"])


def rate(call, queries: int, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        call()
        best = min(best, time.process_time() - begin)
    return queries / best


def table(caption: str, rows: list[dict]) -> str:
    """A table in reStructuredText."""
    heads = list(rows[0])
    cells = [heads] + [[str(row[head]) for head in heads] for row in rows]
    widths = [max(len(line[i]) for line in cells) for i in range(len(heads))]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in cells]
    body = "\n".join(f"   {line}" for line in [rule, lines[0], rule, *lines[1:], rule])
    return f".. table:: {caption}\n\n{body}\n"


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def rank_correlation(left: pd.Series, right: pd.Series) -> str:
    """Spearman's correlation, undefined if either column has the same value for all queries."""
    if min(left.nunique(), right.nunique()) < 2:
        return "undefined"
    return f"{left.corr(right, method='spearman'):.3f}"


def of_words(name: str, topics: pd.DataFrame) -> dict:
    stage = LinguisticComplexity("words", keep_indices=True)
    scored = stage(topics)
    report = stage.report().set_index("index")
    length = topics["query"].str.split().str.len()
    return {
        "collection": name,
        "queries": f"{len(topics):,}",
        "words": f"{length.mean():.1f}",
        "all words differ": share((scored["TTR"] == 1).mean()),
        "Uber defined": share(report.loc["Uber", "defined"]),
        "50 words": share(report.loc["MSTTR-50", "defined"]),
        "live of ten": report["live"].sum(),
        "rank correlation with length": rank_correlation(scored["complexity"], length),
        "queries/s": f"{rate(lambda: LinguisticComplexity('words')(topics), len(topics), 3):,.0f}",
    }


def by_tagger(name: str, topics: pd.DataFrame, taggers: list[str]) -> tuple[list[dict], list[dict]]:
    texts = list(topics["query"].unique())
    topics = pd.DataFrame({"qid": np.arange(len(texts)).astype(str), "query": texts})
    tagged, scored, reports, rates = {}, {}, {}, {}
    for tagger in taggers:
        tag = get_tagger(tagger)
        rates[tagger] = rate(lambda tag=tag: tagged.update({tagger: tag(texts)}), len(texts), 1)  # noqa: B023
        stage = LinguisticComplexity([*TAGGED, "NDW", "TTR", "CTTR"], tagger=tagger, keep_indices=True)
        scored[tagger] = stage(topics)
        reports[tagger] = stage.report().set_index("index")
    first = taggers[0]

    def tags(tagger: str) -> np.ndarray:
        return np.array([t for text in tagged[tagger] for word, t in text if not is_sign(word)])

    def verbless(tagger: str) -> float:
        return float(np.mean([not any(t.startswith("V") for _, t in text) for text in tagged[tagger]]))

    agreement = [
        {
            "collection": name,
            "tagger": tagger,
            "queries/s": f"{rates[tagger]:,.0f}",
            f"same tag as {first}": f"{(tags(tagger) == tags(first)).mean():.3f}",
            "same kind": f"{np.mean([a[0] == b[0] for a, b in zip(tags(tagger), tags(first))]):.3f}",
            "no verb": share(verbless(tagger)),
            "rank correlation of complexity": rank_correlation(scored[tagger]["complexity"], scored[first]["complexity"]),
        }
        for tagger in taggers
    ]
    indices = []
    for index in TAGGED:
        row = {"collection": name, "index": index}
        for tagger in taggers:
            row[f"mean, {tagger}"] = f"{scored[tagger][index].mean():.3f}"
            row[f"defined, {tagger}"] = share(reports[tagger].loc[index, "defined"])
        for tagger in taggers[1:]:
            row[f"rank correlation, {tagger}"] = rank_correlation(scored[first][index], scored[tagger][index])
        indices.append(row)
    return agreement, indices


#: Options of complexity; without a parser the fourteen syntactic indices are left out of every mean.
CHOICES = {
    "'words'": {},
    "'table4'": {"index_set": "table4"},
    "'lu'": {"index_set": "lu"},
    "'lu', undefined='zero'": {"index_set": "lu", "undefined": "zero"},
    "preset='paper'": {"preset": "paper"},
}


def by_choice(name: str, topics: pd.DataFrame, tagger: str) -> list[dict]:
    """What complexity depends on under each choice: length, or the presence of a verb."""
    topics = topics.drop_duplicates("query").reset_index(drop=True)
    length = topics["query"].str.split().str.len()
    verb = np.array([any(t.startswith("V") for _, t in text) for text in get_tagger(tagger)(list(topics["query"]))])
    rows = []
    for choice, options in CHOICES.items():
        stage = LinguisticComplexity(**options, tagger=tagger)
        found = stage(topics)["complexity"]
        report = stage.report()
        rows.append({
            "collection": name,
            "choice": choice,
            "live (constant)": f"{report['live'].sum()} ({(report['live'] & report['constant']).sum()})",
            "of": len(report),
            "rank correlation with length": rank_correlation(found, length),
            "with a verb - without": f"{(found[verb].mean() - found[~verb].mean()) / found.std(ddof=0):+.2f} sd",
        })
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--out", type=Path, help="write the tables to this folder, as complexity_*.inc")
    options = parser.parse_args()
    collections = {name: read_queries(path) for name, path in (pair.split("=", 1) for pair in options.queries)}
    taggers = []
    for tagger in TAGGERS:
        try:
            get_tagger(tagger)(["warm up"])
            taggers.append(tagger)
        except InputError:
            print(f"{tagger} is not installed, or its data is not: left out")
    LinguisticComplexity(["LD"])(pd.DataFrame({"qid": ["1"], "query": ["studies warmed up"]}))

    words = [of_words(name, topics) for name, topics in collections.items()]
    choices = [row for name, topics in collections.items() for row in by_choice(name, topics, taggers[0])]
    found = [by_tagger(name, topics, taggers) for name, topics in collections.items()]
    agreement, indices = ([row for pair in found for row in pair[i]] for i in (0, 1))
    command = "``python benchmarks/complexity.py --queries NAME=PATH``"
    files = {
        "complexity_choices.inc": [
            table(f"Ten indices of words on real queries; queries per CPU second of one core; {command}", words),
            table(f"What complexity depends on under each choice; tags by {taggers[0]}, no parser; {command}", choices),
        ],
        "complexity_backends.inc": [
            table(f"Tags of the same tokens, without signs; {command}", agreement),
            table(f"Single indices by {' and '.join(taggers)}; {command}", indices),
        ],
    }
    for name, tables in files.items():
        text = "\n".join(tables)
        print(text)
        if options.out is not None:
            write_whole(options.out / name, text)


if __name__ == "__main__":
    main()
