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
