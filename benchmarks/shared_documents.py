"""How often the test of length bias raises false alarms in real collections, in which queries share documents.

The lengths of a collection's documents are permuted, so that no ranking of them can prefer a length, and BM25's lists of the real
texts are examined. A document that is in many lists moves all of them in the same direction. A test that flips the signs of
queries does not know this; the test of the audit does (``pyterrier_debias.further.shared.mean_test``). Both are counted: every p
value at or below 0.05 is a false alarm.

    python benchmarks/shared_documents.py --data FOLDER --out shared-documents

reads the collections from FOLDER (see ``--collections``), writes rates.csv and shared_documents.inc (the table of the
documentation), and prints the rates.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pandas as pd
import pyterrier as pt
from calibrating import LEVEL, rates, shown, write_table

from pyterrier_debias import Collection, Context, System, open_dataset
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.further.length import LengthBias
from pyterrier_debias.further.shared import mean_test
from pyterrier_debias.report.first_stage import first_stage

#: The tests, in the order of the table.
TESTS = ["signs of queries", "the audit's test"]


def p_values(path: Path, depth: int, nulls: int, queries: int | None) -> Iterator[dict[str, Any]]:
    """Both p values of each null case of a collection."""
    dataset = open_dataset(path, split="test") if (path / "qrels").is_dir() else open_dataset(path)
    topics = dataset.get_topics().head(queries)[["qid", "query"]]
    with tempfile.TemporaryDirectory() as scratch:
        run = first_stage(dataset, Path(scratch), depth=depth).candidates(topics)
    run = run.loc[run["rank"] < depth, ["qid", "query", "docno", "score", "rank"]]
    texts = dataset.text_loader()(run[["docno"]].drop_duplicates().reset_index(drop=True))
    words = np.array([len(regex_word(text)) for text in texts["text"]])
    for seed in range(nulls):
        lengths = np.random.default_rng(seed).permutation(words)
        corpus = pd.DataFrame({"docno": texts["docno"], "text": [" ".join(["word"] * n) for n in lengths]})
        permuted = Collection("permuted", corpus=corpus, topics={"all": topics}, qrels={"all": dataset.get_qrels()})
        system = System("BM25", pt.Transformer.from_df(run))
        context = Context([system], permuted, topics, permuted.get_qrels(), depth=depth, seed=seed)
        primary = next(finding for finding in LengthBias().look(system, context) if finding.primary)
        about = {"collection": path.name.split(".")[0], "queries": primary.n, "documents": len(texts)}
        alone = mean_test(primary.values, seed, least=-0.5, most=0.5)[1]
        for test, p in zip(TESTS, (alone, primary.p)):
            yield {**about, "test": test, "p": p}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with the collections")
    parser.add_argument("--collections", nargs="+", default=["squad/xquad.en.json.gz", "cisi", "nfcorpus"])
    parser.add_argument("--depth", type=int, default=30, help="candidates per query")
    parser.add_argument("--nulls", type=int, default=300, help="permutations of each collection")
    parser.add_argument("--queries", type=int, help="queries of each collection (default: all)")
    parser.add_argument("--out", type=Path, required=True, help="folder for the tables")
    options = parser.parse_args()
    rows = []
    for name in options.collections:
        rows += p_values(options.data / name, options.depth, options.nulls, options.queries)
    table = rates(pd.DataFrame(rows), ["collection", "queries", "documents", "test"])
    options.out.mkdir(parents=True, exist_ok=True)
    write_whole(options.out / "rates.csv", table.to_csv(index=False))
    cells = [["collection", "queries", "documents in their lists", *TESTS]]
    for (collection, queries, documents), own in table.groupby(["collection", "queries", "documents"], sort=False):
        by_test = own.set_index("test")
        cells.append([collection, f"{queries:,}", f"{documents:,}", *(shown(by_test.loc[test]) for test in TESTS)])
    more = "" if options.queries is None else f" --queries {options.queries}"
    title = (
        f"Share of p at or below {LEVEL} [99 % interval] if lengths are permuted among documents; {options.nulls} permutations, "
        f"BM25's first {options.depth}; ``python benchmarks/shared_documents.py --data FOLDER --depth {options.depth} "
        f"--nulls {options.nulls}{more}``"
    )
    write_table(options.out / "shared_documents.inc", title, cells)
    print(table.round(4).to_string(index=False))


if __name__ == "__main__":
    main()
