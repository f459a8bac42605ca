"""Small worlds for CET: the toy collection with a pool's numbers, and one with known relevance, without texts."""

from __future__ import annotations

import numpy as np
import pyterrier as pt
import torch

from pyterrier_debias.core.frames import ranked
from pyterrier_debias.pooling.training.cet_method import Coupled, EvidenceScores
from tests.training.toy import candidates, qrels, training

__all__ = ["Toy", "World", "auc", "candidates", "length_scorer", "pooled", "qrels", "training"]


def pooled(prefix: str = "q", topics: int = 8):
    """The toy collection; the pooling system put a relevant passage first and missed the last place. Lengths differ."""
    frame = candidates(prefix, topics)
    frame["text"] = [text + " early" * (place % 3) for text, place in zip(frame["text"], frame["rank"])]
    rank = frame["rank"].map({4: 0, 0: 1, 1: 2, 2: 3, 3: 4}).astype(float)  # place 5 was not retrieved
    return frame.assign(pool_rank=rank, pool_score=20 - 2 * rank)


def length_scorer(seen: list | None = None):
    """A pooling system that counts letters; notes the columns that it is given."""

    def score(candidates):
        if seen is not None:
            seen.append(list(candidates.columns))
        return ranked(candidates.assign(score=candidates["text"].str.len().astype(float)))

    return pt.apply.generic(score)


def auc(low, high) -> float:
    """The chance that a value of ``low`` lies below one of ``high``."""
    low, high = np.asarray(low)[:, None], np.asarray(high)[None, :]
    return float((low < high).mean() + 0.5 * (low == high).mean())


class Toy(torch.nn.Module):
    """A relevance model of two numbers: what words tell, and what meaning tells."""

    def __init__(self, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = torch.nn.Sequential(torch.nn.Linear(2, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    def networks(self):
        return {"ranker": self.network}

    def scores(self, batch, *, fixed=False):
        return self.network(batch["input"])[..., 0]


class World:
    """Known relevance, of which a pool by words alone shows a part.

    Each query has 60 documents, six of them relevant; of those two in five share few words with the query, and a quarter of the
    others share many. Documents have two numbers, words and meaning. The pooling system sees words, its top 10 are judged;
    training candidates are the top 15 by both.
    """

    def __init__(self, seed: int, queries: int = 80, documents: int = 60):
        chance = np.random.default_rng(seed)
        shape = queries, documents
        self.relevant = np.zeros(shape, dtype=bool)
        self.relevant[:, :6] = True
        paraphrased = self.relevant & (chance.random(shape) < 0.4)
        lookalike = ~self.relevant & (chance.random(shape) < 0.25)
        words = chance.normal(size=shape) + 2.2 * (self.relevant & ~paraphrased) + 1.5 * lookalike
        meaning = chance.normal(size=shape) + 2.2 * self.relevant
        pool = words + 0.3 * chance.normal(size=shape)
        rank = (-pool).argsort(axis=1).argsort(axis=1)
        strong = 0.5 * words + meaning + 0.3 * chance.normal(size=shape)
        self.inputs = np.stack([words, meaning], axis=-1).astype(np.float32)
        evidence = np.stack([pool, np.log1p(rank)], axis=-1)
        self.evidence = (evidence - evidence.mean(axis=(0, 1))) / evidence.std(axis=(0, 1))
        self.labelled = self.relevant & (rank < 10)
        self.pool = ((-strong).argsort(axis=1).argsort(axis=1) < 15) & ~self.labelled
        self.chance = chance

    def train(self, coupling, *, steps: int, rate: float, seed: int = 0, clean: bool = False):
        """Train both models; with ``clean`` hidden positives are never drawn."""
        relevance = Toy(seed)
        selection = EvidenceScores(self.evidence.reshape(-1, 2), np.ones(self.relevant.size, dtype=bool), np.zeros(2))
        both = Coupled(relevance, selection, coupling).train()
        groups = [{"params": relevance.parameters(), "lr": 0.02}, {"params": selection.parameters(), "lr": rate}]
        optimiser = torch.optim.AdamW(groups)
        positives = np.argwhere(self.labelled)
        pool = self.pool & ~self.relevant if clean else self.pool
        for _ in range(steps):
            drawn = positives[self.chance.integers(len(positives), size=32)]
            rows = drawn[:, :1]
            columns = np.array([[i, self.chance.choice(np.flatnonzero(pool[q]))] for q, i in drawn])
            place = torch.ones(columns.shape, dtype=torch.bool)
            batch = {
                "mask": place,
                "known": place,
                "weights": place.float(),
                "input": torch.from_numpy(self.inputs[rows, columns]),
                "evidence": torch.from_numpy(self.evidence[rows, columns].astype(np.float32)),
            }
            optimiser.zero_grad()
            both(**batch)["loss"].backward()
            optimiser.step()
        return both

    def quality(self, both) -> float:
        """nDCG@10 of the relevance model over all documents, by the full truth."""
        with torch.no_grad():
            scores = both.relevance.scores({"input": torch.from_numpy(self.inputs)}).numpy()
        order = (-scores).argsort(axis=1)[:, :10]
        discount = 1 / np.log2(np.arange(2, 12))
        gains = np.take_along_axis(self.relevant, order, axis=1) @ discount
        return float((gains / discount[:6].sum()).mean())

    def told_apart(self, both) -> float:
        """AUC of the weights: how often a hidden positive weighs less than a true negative against the same positive."""
        with torch.no_grad():
            scores = both.selection.scores({"evidence": torch.from_numpy(self.evidence.astype(np.float32))})
        found = []
        for q, i in np.argwhere(self.labelled):
            pool = np.flatnonzero(self.pool[q])
            weights = both.coupling.weights(scores[q, i], scores[q, pool]).numpy()
            hidden = self.relevant[q, pool]
            if hidden.any() and not hidden.all():
                found.append(auc(weights[hidden], weights[~hidden]))
        return float(np.mean(found))
