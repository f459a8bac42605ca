"""The thirty indices of Cheng and Amiri's Table 4 on real queries, with trees by the Stanford parser.

    NLTK_DATA=nltk_data python benchmarks/syntax.py --queries "MS MARCO dev=queries.dev.small.tsv.gz" \\
        --queries FiQA=fiqa/queries.jsonl.gz --queries NFCorpus=nfcorpus/queries.jsonl.gz [--out pyterrier_debias/pt_docs]

Files are as for complexity.py; of each, ``--sample`` different queries are drawn. It needs Java and the parser's jars; where
they are missing, the error says how to get them. Rates are queries per CPU second, Java's start included. Five minutes on one
core.
"""

import argparse
import resource
import time
from pathlib import Path

import numpy as np
import pandas as pd
from complexity import rank_correlation, read_queries, share, table

from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.linguistic.data.analysers import default_tagger
from pyterrier_debias.linguistic.data.stanford import StanfordParser
from pyterrier_debias.linguistic.formulas.trees import TreeCounts, read_trees, tree_counts
from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity


def sampled(path: str, number: int) -> pd.DataFrame:
    """So many different queries of a file, drawn by their texts."""
    topics = read_queries(path).drop_duplicates("query")
    drawn = topics["query"].map(lambda text: keyed_hash(0, text)).sort_values().index[:number]
    return topics.loc[drawn].reset_index(drop=True)


def cpu_seconds() -> float:
    """Of this process and those that it started and that ended."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def counted(parser: StanfordParser, texts: list[str]) -> np.ndarray:
    """The structures of each text, shape [texts, 9]; NaN where it was not parsed."""
    nothing = (np.nan,) * len(TreeCounts._fields)
    return np.array([nothing if one is None else tree_counts(read_trees(one)) for one in parser(texts)], dtype=float)


def correlation(left: pd.Series, right: pd.Series) -> str:
    known = left.notna()
    varies = left[known].nunique() > 1 and right[known].nunique() > 1
    return rank_correlation(left[known], right[known]) if varies else "–"


def of_collection(name: str, topics: pd.DataFrame, cache: str | None) -> tuple[dict, list[dict], list[dict]]:
    """One collection: complexity with and without trees; each index; the two grammars."""
    texts = list(topics["query"])
    caseless, cased = (StanfordParser(grammar=grammar, cache=cache) for grammar in ("caseless", "cased"))
    begin = cpu_seconds()
    counts = counted(caseless, texts)
    rate = len(texts) / (cpu_seconds() - begin)
    stages = {
        "without trees": LinguisticComplexity("table4"),
        "with trees": LinguisticComplexity("table4", parser=caseless, keep_indices=True),
        "preset": LinguisticComplexity(preset="paper", parser=caseless),
        "cased": LinguisticComplexity("table4", parser=cased),
    }
    scored = {kind: stage(topics) for kind, stage in stages.items()}
    summaries = {kind: stage.summary() for kind, stage in stages.items()}
    live = {kind: f"{summary['live']}" for kind, summary in summaries.items()}
    rho = {kind: f"{summary['rho_words']:.2f}" for kind, summary in summaries.items()}
    told = summaries["with trees"]
    with_trees, without, by_cased = (scored[kind]["complexity"] for kind in ("with trees", "without trees", "cased"))
    syntax = {
        "collection": name, "queries": f"{told['texts']:,}", "words": f"{told['words']:.1f}", "queries/s": f"{rate:.0f}",
        "no T-unit": share(told["no_t_unit"]), "no clause": share(told["no_clause"]),
        "live, trees": live["with trees"], "live, none": live["without trees"],
        "length, trees": rho["with trees"], "length, none": rho["without trees"], "length, preset='paper'": rho["preset"],
        "trees and none": rank_correlation(with_trees, without),
    }  # fmt: skip
    report = stages["with trees"].report().set_index("index")
    # The words of a text as the lexical indices count them, N = (T / sqrt(N))^2 / (T / N)^2.
    words = (scored["with trees"]["RTTR"] / scored["with trees"]["TTR"]).pow(2).round()
    shares = report["defined"].map(share) + np.where(report["live"], "", " (not live)")
    indices = [
        {"index": index, f"{name}, defined": shares[index], f"{name}, length": correlation(scored["with trees"][index], words)}
        for index in report.index
    ]
    differ = ~np.isclose(counts, counted(cased, texts), equal_nan=True)
    grammars = [
        {"collection": name, "counts differ": share(differ.any(axis=1).mean())}
        | {field: share(differ[:, i].mean()) for i, field in enumerate(TreeCounts._fields)}
        | {"rank correlation of complexity": rank_correlation(with_trees, by_cased)}
    ]
    return syntax, indices, grammars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--sample", type=int, default=1_000, help="different queries of each collection")
    parser.add_argument("--cache", metavar="FOLDER", help="keep trees there; rates are of what was not there")
    parser.add_argument("--out", type=Path, help="write the tables to this folder, as complexity_syntax.inc")
    options = parser.parse_args()
    begin = time.monotonic()
    print(f"tags by {default_tagger()}", flush=True)
    rows, indices, grammars = [], pd.DataFrame(), []
    for name, path in (pair.split("=", 1) for pair in options.queries):
        syntax, each, differences = of_collection(name, sampled(path, options.sample), options.cache)
        rows.append(syntax)
        grammars += differences
        indices = pd.concat([indices, pd.DataFrame(each).set_index("index")], axis=1)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    command = "``python benchmarks/syntax.py``"
    text = "\n".join([
        table(f"Thirty indices with and without trees; *length*: rank correlation with the number of words; {command}", rows),
        table(f"Single indices with trees: defined, and rank correlation with the number of words; {command}",
              indices.reset_index().to_dict("records")),
        table(f"Share of queries for which the cased grammar gives other counts than the caseless one; {command}", grammars),
    ])  # fmt: skip
    print(text)
    if options.out is not None:
        write_whole(options.out / "complexity_syntax.inc", text)


if __name__ == "__main__":
    main()
