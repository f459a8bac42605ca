"""Forty queries over nine documents, and a retriever that takes a cut-off."""

import pandas as pd
import pyterrier as pt

from pyterrier_debias import Collection
from pyterrier_debias.core.stage import Stage

TOPICS = pd.DataFrame({"qid": [str(n) for n in range(40)], "query": [f"query {n}" for n in range(40)]})
CORPUS = pd.DataFrame({"docno": [f"d{n}" for n in range(9)], "text": [f"text {n}" for n in range(9)]})
TOY = Collection("toy", corpus=CORPUS, topics={"test": TOPICS}, qrels={"test": TOPICS[["qid"]].assign(docno="d1", label=1)})


class TopK(Stage):
    """A retriever of this package: documents by a fixed score, of which some are equal."""

    def __init__(self, num_results=1000):
        self.num_results = num_results

    def transform(self, inp):
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        scores = pd.DataFrame({"docno": CORPUS["docno"], "score": [9.0, 8, 7, 7, 7, 6, 5, 4, 3], "rank": range(9)})
        return inp.merge(scores.head(self.num_results), how="cross")

    def fuse_rank_cutoff(self, k):
        return TopK(min(k, self.num_results))
