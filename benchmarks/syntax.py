"""The thirty indices of Cheng and Amiri's Table 4 on real queries, with trees by the Stanford parser.

    NLTK_DATA=nltk_data python benchmarks/syntax.py --queries "MS MARCO dev=queries.dev.small.tsv.gz" \\
        --queries FiQA=fiqa/queries.jsonl.gz --queries NFCorpus=nfcorpus/queries.jsonl.gz [--out pyterrier_debias/pt_docs]

The files have the formats that complexity.py reads; ``--sample`` different queries are drawn from each. The program needs Java
and the parser's jars; if they are missing, the error says how to get them. Rates are queries per CPU second, including the start
of Java. It takes five minutes on one core.

With ``--agreement benchmarks/syntax_trees.tsv`` it instead compares the parser with reference trees that were written without it
(a minute). The file has a line for each query: ``collection`` (a NAME of ``--queries``), ``qid``, the nine counts of two passes
over the queries (``first``, ``second``), and the final ``tree``. Words in trees are replaced by ``x`` and punctuation by ``.``,
because structures are counted by tags.
"""

import argparse
import csv
import resource
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from complexity import rank_correlation, read_queries, share, table
from scipy import stats

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.statistics import binomial_interval, bootstrap_interval
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.linguistic.data.analysers import default_tagger
from pyterrier_debias.linguistic.data.stanford import StanfordParser
from pyterrier_debias.linguistic.formulas.trees import TreeCounts, read_trees, tree_counts
from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity


def sampled(path: str, number: int) -> pd.DataFrame:
    """A number of different queries of a file, drawn by their texts."""
    topics = read_queries(path).drop_duplicates("query")
    drawn = topics["query"].map(lambda text: keyed_hash(0, text)).sort_values().index[:number]
    return topics.loc[drawn].reset_index(drop=True)


def cpu_seconds() -> float:
    """CPU seconds of this process and of the finished processes that it started."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def counted(parser: StanfordParser, texts: list[str]) -> np.ndarray:
    """The structures of each text, shape [texts, 9]; NaN if the text was not parsed."""
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


# ------------------------------------------------------------------------------------------------ reference trees


def read_agreement(path: str, topics: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """The lines of a file of trees, with each query's text as ``query``.

    Raises:
        InputError: For a query that is in none of the collections.
    """
    lines = pd.read_csv(path, sep="\t", dtype=str, quoting=csv.QUOTE_NONE)
    known = pd.concat([frame.assign(collection=name) for name, frame in topics.items()]).drop_duplicates(["collection", "qid"])
    lines = lines.merge(known[["collection", "qid", "query"]], on=["collection", "qid"], how="left")
    lacking = lines[lines["query"].isna()]
    if len(lacking):
        name, qid = lacking.iloc[0][["collection", "qid"]]
        raise InputError(f"{path}: no query {qid!r} of {name!r}; give each collection as --queries NAME=PATH")
    return lines


def written(counts: pd.Series) -> np.ndarray:
    """The nine counts from the trees of one pass, shape [queries, 9]."""
    return np.array([one.split() for one in counts], dtype=float)


def agreeing(same: np.ndarray) -> str:
    """A share of queries with its exact interval; 100 only if all of them agree."""
    found = binomial_interval(int(same.sum()), len(same), 0.95)
    return f"{100 if same.all() else min(100 * found.estimate, 99):.0f} [{100 * found.low:.0f}, {100 * found.high:.0f}]"


def ranked(left: pd.Series, right: pd.Series) -> str:
    """Spearman's correlation with a bootstrap interval over queries."""

    def correlation(a: np.ndarray, b: np.ndarray, axis: int) -> np.ndarray:
        a, b = (stats.rankdata(one, axis=axis) - (a.shape[axis] + 1) / 2 for one in (a, b))
        return (a * b).sum(axis=axis) / np.sqrt((a**2).sum(axis=axis) * (b**2).sum(axis=axis))

    both = np.column_stack([left, right])
    found = bootstrap_interval(both[~np.isnan(both).any(axis=1)], correlation, method="percentile", resamples=1_999)
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"


def kinds_of(trees: pd.Series) -> dict[str, np.ndarray]:
    """Masks of the queries of each kind, by the label under the first root."""
    under = trees.map(lambda tree: read_trees(tree)[0].children[0].label)
    kinds = under.map({"SBARQ": "questions", "SQ": "questions", "NP": "noun phrases"}).fillna("others")
    return {kind: (kinds == kind).to_numpy() for kind in ("questions", "noun phrases", "others") if (kinds == kind).any()}


def same_counts(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Whether each of the nine counts is the same; the last column says whether all are."""
    same = left == right
    return np.column_stack([same, same.all(axis=1)])


def agreement(lines: pd.DataFrame, cache: str | None) -> str:
    """Tables of how often the counts agree, between the two passes and between the reference and the parser."""
    parsers = {grammar: StanfordParser(grammar=grammar, cache=cache) for grammar in ("caseless", "cased")}
    reference = np.array([tree_counts(read_trees(tree)) for tree in lines["tree"]], dtype=float)
    counts = {"reference": reference, **{grammar: counted(parser, list(lines["query"])) for grammar, parser in parsers.items()}}
    same = {"two passes": same_counts(written(lines["first"]), written(lines["second"]))}
    same |= {grammar: same_counts(counts[grammar], reference) for grammar in parsers}
    collections = {name: (lines["collection"] == name).to_numpy() for name in lines["collection"].unique()}
    groups = collections | kinds_of(lines["tree"])
    rows, by_group = [], [{"structure": "queries", **{name: f"{own.sum()}" for name, own in groups.items()}}]
    for i, structure in enumerate([*TreeCounts._fields, "all nine"]):
        found = {"structure": structure, **{kind: agreeing(one[:, i]) for kind, one in same.items()}}
        if i < reference.shape[1]:
            found["usual count"] = f"{100 * np.unique(reference[:, i], return_counts=True)[1].max() / len(reference):.0f}"
            found |= {f"sum, {kind}": f"{np.nansum(one[:, i]):.0f}" for kind, one in counts.items()}
        rows.append(found)
        by_group.append(
            {"structure": structure, **{name: agreeing(same["caseless"][own, i]) for name, own in groups.items()}}
        )
    rows[-1] = {**dict.fromkeys(rows[0], "–"), **rows[-1]}
    complexity = [with_reference(name, lines[own], parsers) for name, own in collections.items()]
    command = "``python benchmarks/syntax.py --queries NAME=PATH --agreement benchmarks/syntax_trees.tsv``"
    return "\n".join([
        table("Queries for which two passes, and the parser and the reference, give the same count, in % with 95 % intervals; "
              f"*usual count*: the share of queries with the most frequent count; {command}", rows),
        table(f"The parser (caseless) compared with the reference, by collection and by kind of query; {command}", by_group),
        table("Complexity with reference trees and with the parser's: share of queries without a T-unit or clause, and rank "
              f"correlation with intervals from a bootstrap over queries; {command}", complexity),
    ])  # fmt: skip


def with_reference(name: str, lines: pd.DataFrame, parsers: Mapping[str, StanfordParser]) -> dict[str, str]:
    """One collection: how the parser's mistakes change complexity."""
    trees = dict(zip(lines["query"], lines["tree"]))
    stages = {
        kind: LinguisticComplexity("table4", parser=parser)
        for kind, parser in {"reference": lambda texts: [trees[text] for text in texts], **parsers}.items()
    }
    scored = {kind: stage(lines[["qid", "query"]])["complexity"] for kind, stage in stages.items()}
    told = {kind: stages[kind].summary() for kind in ("reference", "caseless")}
    missing = {f"no {key.removeprefix('no_').replace('t_unit', 'T-unit')}, {kind}": share(one[key])
               for key in ("no_t_unit", "no_clause") for kind, one in told.items()}  # fmt: skip
    found = {f"complexity, {kind}": ranked(scored["reference"], scored[kind]) for kind in parsers}
    return {"collection": name, "queries": f"{len(lines)}", **missing, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", action="append", required=True, metavar="NAME=PATH")
    parser.add_argument("--sample", type=int, default=1_000, help="number of different queries of each collection")
    parser.add_argument("--cache", metavar="FOLDER", help="folder of stored trees; rates count the queries that it lacks")
    parser.add_argument("--out", type=Path, help="write the tables to this folder, as complexity_syntax.inc or _agreement.inc")
    parser.add_argument("--agreement", metavar="FILE", help="only compare the parser with the trees of this file")
    options = parser.parse_args()
    begin = time.monotonic()
    print(f"tags by {default_tagger()}", flush=True)
    if options.agreement:
        topics = {name: read_queries(path) for name, path in (pair.split("=", 1) for pair in options.queries)}
        text = agreement(read_agreement(options.agreement, topics), options.cache)
        print(text)
        if options.out is not None:
            write_whole(options.out / "complexity_agreement.inc", text)
        return
    rows, indices, grammars = [], pd.DataFrame(), []
    for name, path in (pair.split("=", 1) for pair in options.queries):
        syntax, each, differences = of_collection(name, sampled(path, options.sample), options.cache)
        rows.append(syntax)
        grammars += differences
        indices = pd.concat([indices, pd.DataFrame(each).set_index("index")], axis=1)
        print(f"{name}: {time.monotonic() - begin:.0f} s", flush=True)
    command = "``python benchmarks/syntax.py --queries NAME=PATH``"
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
