"""A toy collection on which every ranker can learn what is relevant: passages that hold the query's word, and its opposite."""

from __future__ import annotations

import pandas as pd

from pyterrier_debias import Training

TOPICS = ("city", "river", "king", "queen", "doctor", "nurse", "engine", "signal")


def candidates(prefix: str = "q", topics: int = 8) -> pd.DataFrame:
    """Each topic with six passages; docno d<topic>-<place>, the relevant ones stand at places 4 and 5."""
    rows = []
    for number, word in enumerate(TOPICS[:topics]):
        for place in range(6):
            text = f"the {word} found {'relevant red works' if place > 3 else 'short blue bridge'} {TOPICS[(number + place) % 8]}"
            rows.append((f"{prefix}{number}", f"d{number}-{place}", f"where is the {word}", text, place, 6.0 - place))
    return pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "rank", "score"])


def qrels(prefix: str = "q", topics: int = 8) -> pd.DataFrame:
    """Places 4 and 5 with grades 1 and 2."""
    pairs = [(f"{prefix}{n}", f"d{n}-{place}", place - 3) for n in range(topics) for place in (4, 5)]
    return pd.DataFrame(pairs, columns=["qid", "docno", "label"])


def training(**options) -> Training:
    """Options with which the tiny models learn the toy collection in a second."""
    return Training(**{"learning_rate": 2e-3, "batch_size": 4, "epochs": 2, "log_every": 1, **options})


def no_dropout(ranker):
    """Switch dropout off, where two runs must see the same numbers but not the same draws."""
    import torch

    for part in ranker.module.modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.0
    return ranker


def scores_of(ranker):
    """Scores of the toy collection; weights would show how Adam blows up rounding where a gradient is 0 by nature."""
    return ranker.score(candidates()["query"].tolist(), candidates()["text"].tolist())


#: A program that trains in each of two processes, with a folder and without. Its arguments: a model, and where weights go.
TWO = """
import os, sys, torch
from dataclasses import replace
torch.set_num_threads(1)
from pyterrier_debias import BiEncoder
from pyterrier_debias.training.validation import Validation
from tests.training.toy import candidates, no_dropout, qrels, training

options = training(batch_size=4, max_steps=4, checkpoints=sys.argv[2] + "-run")
ranker = no_dropout(BiEncoder(sys.argv[1], training=options))
ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
state = {name: value.cpu().clone() for name, value in ranker.module.state_dict().items()}
torch.save(state, sys.argv[2] + "-" + os.environ.get("RANK", "0"))

# Once more, from its last checkpoint: no step is left.
again = BiEncoder(sys.argv[1], training=replace(options, resume=True))
again.fit(candidates(), qrels(), candidates("v"), qrels("v"))
assert again.training_report.steps == 4
assert all(torch.equal(value.cpu(), state[name]) for name, value in again.module.state_dict().items())
ranker.save(sys.argv[2] + "-saved")

# Without a folder, and with weights that are best before the end.
measure, worse = Validation.measure, iter([0.9, 0.5])
Validation.measure = lambda self, scores: (measure(self, scores)[0] * 0 + next(worse), None)
ranker.training = training(batch_size=4, max_steps=4, evaluate_every=2)
ranker.fit(candidates(), qrels(), candidates("v"), qrels("v"))
assert ranker.training_report.best_step == 2
best = {name: value.cpu() for name, value in ranker.module.state_dict().items()}
torch.save(best, sys.argv[2] + "-best-" + os.environ.get("RANK", "0"))
"""
