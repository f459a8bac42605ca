"""Does Terrier answer all queries of three collections, both unchanged and in every wording of this package?

Each query is sent to Terrier's BM25 as an audit sends it: reduced to its words (see `pyterrier_debias/core/terrier.py`), without
words for which Terrier raises an error. For comparison, the unchanged queries are also sent to Terrier's parser. For each
collection and wording the program prints the number of queries, of crashes (queries that raised an error), and of queries without
results, and lists all queries of the last two kinds.

    PYTERRIER_DEBIAS_DATA=folder python benchmarks/terrier_queries.py

The folder contains `nfcorpus`, `msmarco_trec_dl`, `msmarco_dev600` and `msmarco_dev_small`; the queries of the last one are sent
to an index of all passages of the three MS MARCO samples. The program needs Java, and takes a few minutes.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias import open_dataset
from pyterrier_debias.core.retrieval import answered, unanswered_notes, unanswered_queries
from pyterrier_debias.core.terrier import tokenising
from pyterrier_debias.data.readers import read_topics
from pyterrier_debias.linguistic.data.rewrites import REWRITES, rewritten
from pyterrier_debias.linguistic.measures.wording import AS_IT_COMES, ORIGINAL

DEFAULT_DATA = Path(os.environ.get("PYTERRIER_DEBIAS_DATA", Path(__file__).parents[2] / "shared" / "data"))
COLUMNS = ["collection", "wording", "queries", "changed", "crashes", "without results", "seconds"]


def trec_dl(data: Path) -> tuple[list[dict[str, str]], pd.DataFrame]:
    """TREC Deep Learning 2019 and 2020: passages and topics."""
    folder = data / "msmarco_trec_dl"
    parts = [open_dataset(folder, split=split).get_topics() for split in ("dl19", "dl20")]
    return list(open_dataset(folder, split="dl19").get_corpus_iter()), pd.concat(parts, ignore_index=True)


def dev_small(data: Path) -> tuple[list[dict[str, str]], pd.DataFrame]:
    """MS MARCO's small development set: its topics, and all passages of MS MARCO that the folder holds, each once."""
    found = {document["docno"]: document["text"] for document in trec_dl(data)[0]}
    found |= {document["docno"]: document["text"] for document in open_dataset(data / "msmarco_dev600").get_corpus_iter()}
    folder = data / "msmarco_dev_small"
    known = set(found.values())
    for line in _lines(next(folder.glob("positives_text.jsonl*"))):
        text = line["positive"].removeprefix("- ")
        found |= {} if text in known else {f"of-{line['qid']}": text}
    return [{"docno": docno, "text": text} for docno, text in found.items()], read_topics(next(folder.glob("queries*")))


def nfcorpus(data: Path) -> tuple[list[dict[str, str]], pd.DataFrame]:
    """NFCorpus: its documents, and the topics of its test set."""
    dataset = open_dataset(data / "nfcorpus", split="test")
    return list(dataset.get_corpus_iter()), dataset.get_topics()


COLLECTIONS = {"nfcorpus": nfcorpus, "TREC DL 2019 and 2020": trec_dl, "MS MARCO dev small": dev_small}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def bm25_over(documents: list[dict[str, str]], folder: Path) -> pt.Transformer:
    """BM25 of Terrier over documents."""
    indexer = pt.IterDictIndexer(str(folder), meta={"docno": max(len(document["docno"]) for document in documents)})
    indexer.index({"docno": document["docno"], "text": document["text"]} for document in documents)
    return pt.terrier.TerrierIndex(str(folder)).bm25()


def asked(name: str, bm25: pt.Transformer, topics: pd.DataFrame, depth: int) -> tuple[list[dict[str, Any]], list[str]]:
    """A row of the table for each wording, and remarks on queries without results."""
    rows, notes = [], []
    wordings = {AS_IT_COMES: topics["query"].tolist(), ORIGINAL: topics["query"].tolist()}
    wordings |= {rewrite: rewritten(wordings[ORIGINAL], rewrite) for rewrite in REWRITES}
    for wording, queries in wordings.items():
        started = time.perf_counter()
        retriever = (bm25 % depth).compile()
        new = topics[["qid"]].assign(query=queries)
        found, failed = answered(retriever if wording == AS_IT_COMES else tokenising(retriever), new)
        without = unanswered_queries(new, found, failed)
        row = [name, wording, len(new), int((new["query"] != topics["query"]).sum()), len(failed), len(without) - len(failed)]
        rows.append(dict(zip(COLUMNS, [*row, round(time.perf_counter() - started, 1)])))
        notes += unanswered_notes(f"{name}, {wording}", len(new), without, named=len(new))
    return rows, notes


def main(arguments: list[str] | None = None) -> pd.DataFrame:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DEFAULT_DATA, help="the folder of the collections (default: %(default)s)")
    parser.add_argument("--collections", nargs="+", choices=list(COLLECTIONS), default=list(COLLECTIONS))
    parser.add_argument("--topics", type=int, help="number of first topics of each collection (default: all)")
    parser.add_argument("--depth", type=int, default=100, help="results per query (default: %(default)s)")
    options = parser.parse_args(arguments)
    rows, notes = [], []
    for name in options.collections:
        documents, topics = COLLECTIONS[name](options.data)
        with tempfile.TemporaryDirectory() as folder:
            bm25 = bm25_over(documents, Path(folder) / "index")
            print(f"{name}: {len(documents)} documents, {len(topics)} topics", flush=True)
            own, said = asked(name, bm25, topics.head(options.topics or len(topics)), options.depth)
            rows, notes = rows + own, notes + said
    table = pd.DataFrame(rows, columns=COLUMNS)
    print(table.to_string(index=False))
    print("\n".join(notes))
    return table


if __name__ == "__main__":
    main()
