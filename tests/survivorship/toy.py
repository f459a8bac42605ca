"""A handful of queries: what labellers were shown of each, what they found, and what a system ranks."""

import numpy as np
import pandas as pd

SHOWN = pd.DataFrame(
    {"qid": ["q1"] * 3 + ["q2"] * 2 + ["q3"], "docno": ["a", "b", "c", "d", "e", "f"], "rank": [0, 1, 2, 0, 1, 0]}
)
LABELS = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["c", "d"], "label": [1, 2]})
ASKED = pd.DataFrame({"qid": ["q1", "q2", "q3", "q4"], "query": ["w", "x", "y", "z"], "type": ["A", "A", "B", "B"]})
RESULTS = pd.DataFrame({"qid": ["q1", "q1", "q2"], "docno": ["b", "c", "d"], "score": [2.0, 1.0, 1.0], "rank": [0, 1, 0]})

WORDS = "who wrote the book when was a town founded how does rain form why do people sing what is the best feeling".split()


def answerable(n, seed, prefix="q"):
    """Queries whose chance of an answer depends on their words: factual ones .85, vague ones .25."""
    rng = np.random.default_rng(seed)
    factual = rng.random(n) < 0.5
    starts = np.where(factual, "when was founded", "why do feel about")
    query = [f"{start} {' '.join(rng.choice(WORDS, 3))} {rng.integers(1000)}" for start in starts]
    answered = rng.random(n) < np.where(factual, 0.85, 0.25)
    return pd.DataFrame({"qid": [f"{prefix}{i}" for i in range(n)], "query": query, "answered": answered}), factual
