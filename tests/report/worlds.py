"""A small collection, systems and rooms whose figures are known, for the audit's tests."""

from functools import partial

import pandas as pd
import pyterrier as pt

from pyterrier_debias import Collection, Finding, Room, System
from pyterrier_debias.core.bias import Figure, RoomResult
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.statistics import paired_t, t_interval

QIDS = [f"q{i}" for i in range(6)]
GROUP = "reversed - original"


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


def _run(context, bias="order"):
    """RR@10 of a system's results, and how it changes when the results are turned upside down."""
    findings, rows = [], []
    for system in context.systems:
        results = context.results(system)
        before = per_query(results, context.qrels, ["RR@10"], QIDS)["RR@10"]
        upside_down = results.assign(score=-results["score"])
        after = per_query(upside_down, context.qrels, ["RR@10"], QIDS)["RR@10"]
        change = t_interval((after - before).to_numpy())
        findings.append(Finding(system.name, bias, "RR@10", "original", before.mean(), n=len(before), convention="trec_eval"))
        findings.append(
            Finding(
                system.name, bias, "RR@10", GROUP, change.estimate, change.low, change.high,
                p=paired_t(before.to_numpy(), after.to_numpy()).p, n=change.n, convention="trec_eval", primary=True,
                text=f"{system.name}: upside down, RR@10 changes by {change.estimate:.3f}.",
            )
        )  # fmt: skip
        rows += [
            {"system": system.name, "bias": bias, "measure": "RR@10", "group": group, "qid": qid, "value": value}
            for group, values in (("original", before), (GROUP, after - before))
            for qid, value in values.items()
        ]
    figure = Figure("change", "Change of RR@10, 6 queries", lambda axes: axes.bar(["a", "b"], [1, 2]))
    return RoomResult(findings, pd.DataFrame(rows), [figure])


ORDER = Room("order", lambda system, dataset: None, _run)
PICKY = Room("picky", lambda system, dataset: None if system.ranker else "it has no ranker to probe", partial(_run, bias="picky"))


def _break(context):
    raise RuntimeError("the room\nfell down")


BROKEN = Room("broken", lambda system, dataset: None, _break)
