"""A small collection, systems and biases whose figures are known, for the audit's tests."""

import pandas as pd
import pyterrier as pt

from pyterrier_debias import Bias, Collection, Figure, System
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import paired_t, t_interval

QIDS = [f"q{i}" for i in range(6)]
CONTRAST = "reversed - original"


def collection(name="toy"):
    """Six topics; each has one relevant document, which the run ranks first, and one that is not, second."""
    corpus = pd.DataFrame(
        [{"docno": f"{qid}-{kind}", "text": f"{kind} text about {qid}"} for qid in QIDS for kind in ("good", "bad")]
    )
    run = pd.DataFrame(
        [
            {"qid": qid, "docno": f"{qid}-{kind}", "score": score, "rank": rank}
            for qid in QIDS
            for rank, (kind, score) in enumerate([("good", 2.0), ("bad", 1.0)])
        ]
    )
    return Collection(
        name,
        corpus=corpus,
        topics={"test": pd.DataFrame({"qid": QIDS, "query": [f"tell me about {qid}" for qid in QIDS]})},
        qrels={"test": pd.DataFrame({"qid": QIDS, "docno": [f"{qid}-good" for qid in QIDS], "label": 1})},
        runs={"bm25": run},
    )


def write_files(place):
    """The toy collection as files."""
    (place / "runs").mkdir(parents=True)
    dataset = collection()
    dataset.get_corpus().to_csv(place / "passages.tsv", sep="\t", header=False, index=False)
    dataset.get_topics().to_csv(place / "topics.tsv", sep="\t", header=False, index=False)
    (place / "qrels.txt").write_text("".join(f"{q} 0 {q}-good 1\n" for q in QIDS))
    run = dataset.get_runs()["bm25"]
    (place / "runs" / "bm25.trec").write_text("".join(f"{r.qid} Q0 {r.docno} 1 {r.score} x\n" for r in run.itertuples()))


class CountingRanker(pt.Transformer):
    """Scores a document by its length, and counts how often it is called with rows."""

    def __init__(self, sign=1):
        self.sign = sign
        self.calls = 0

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        if len(inp):
            self.calls += 1
        return pt.model.add_ranks(inp.assign(score=self.sign * inp["text"].str.len().astype(float)))


def bm25_system(dataset=None):
    dataset = dataset or collection()
    return System("BM25", pt.Transformer.from_df(dataset.get_runs()["bm25"]))


def systems(dataset):
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    return {"BM25": first, "longest": first >> dataset.text_loader() >> CountingRanker()}


class Order(Bias):
    """RR@10 of a system's results, and how it changes when the results are turned upside down."""

    name = "order"

    def examine(self, context):
        for system in context.systems:
            results = context.results(system)
            before = per_query(results, context.qrels, ["RR@10"], QIDS)["RR@10"]
            upside_down = results.assign(score=-results["score"])
            after = per_query(upside_down, context.qrels, ["RR@10"], QIDS)["RR@10"]
            yield self.finding(system.name, "RR@10", "original", before.mean(), convention="trec_eval", values=before)
            change = t_interval((after - before).to_numpy())
            yield self.finding(
                system.name, "RR@10", CONTRAST, change, f"upside down, RR@10 changes by {change.estimate:.3f}.",
                p=paired_t(before.to_numpy(), after.to_numpy()).p, convention="trec_eval", primary=True, values=after - before,
            )  # fmt: skip

    def figures(self, context):
        return [Figure("change", "Change of RR@10, 6 queries", lambda axes: axes.bar(["a", "b"], [1, 2]))]


class Picky(Order):
    """The same for systems with a ranker."""

    name = "picky"

    def needs(self, system, dataset):
        return None if system.ranker else "it has no ranker to probe"


class Broken(Bias):
    """A bias with a defect."""

    name = "broken"

    def examine(self, context):
        raise RuntimeError("the bias\nfell down")


ORDER, PICKY, BROKEN = Order(), Picky(), Broken()
