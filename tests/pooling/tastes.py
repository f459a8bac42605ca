"""Stand-ins for trained rankers whose comparison has a known outcome, and the collection that they are compared on."""

import itertools

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.stage import Stage
from pyterrier_debias.pooling.measures.hidden import HiddenJudgements


class Taste(Stage, pt.Estimator):
    """Scores by grade, less noise the better it is; tells a known emphasis. Stands in for a trained ranker."""

    schematic = {"label": "Taste", "help_url": None}  # noqa: RUF012

    def __init__(self, noise=1.0, trust=0.0, training=None):
        super().__init__()
        self.noise, self.trust, self.training = noise, trust, training
        self.fitted = None

    def fit(self, res_tr, qrels_tr, res_va=None, qrels_va=None):
        self.fitted = (len(res_tr), len(qrels_tr), self.training.seed)
        return self

    def transform(self, inp):
        chance = np.random.default_rng(self.training.seed)
        order = np.lexsort((inp["docno"], inp["qid"]))
        noise = np.empty(len(inp))
        noise[order] = chance.normal(size=len(inp))
        return inp.assign(score=inp["grade"] + self.noise * noise)

    def emphasis(self, res_tr, qrels_tr):
        known = set(zip(qrels_tr["qid"], qrels_tr["docno"]))
        pool = res_tr[[pair not in known for pair in zip(res_tr["qid"], res_tr["docno"])]]
        shade = pool["shade"] + 0.1 * self.training.seed * (pool["docno"].str[-1] == "7")
        return pool[["qid", "docno"]].assign(positive="p", emphasis=1 - self.trust * shade)


def small_collection():
    """12 queries of 10 passages; half of the relevant ones hidden. ``shade`` is larger for hidden positives, not always."""
    generator = np.random.default_rng(5)
    rows = []
    for q, d in itertools.product(range(12), range(10)):
        grade = int(generator.integers(0, 3)) if d > 3 else 2 - d % 2
        rows.append((f"q{q:02d}", f"d{q}-{d}", f"query {q}", "a text", grade, float(10 - d)))
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "grade", "score"])
    shade = generator.random(len(frame)).round(1) + 0.3 * (frame["grade"] > 0)
    frame = frame.assign(shade=shade.round(1))
    qrels = frame[frame["grade"] > 0][["qid", "docno"]].assign(label=frame["grade"])
    made = HiddenJudgements(qrels, frame[["qid", "docno", "score"]], depth=3)
    # Shown relevant ones are d0 to d2, none of whose labels is 0.
    return made, frame[frame["qid"] < "q06"], frame[frame["qid"] >= "q06"]


CORRECTIONS = {"plain": Taste(2.0), "some": Taste(1.2, 0.5), "oracle": Taste(0.3, 1.0)}
