"""A ranker with a known taste for early matches, and a small world for it. Written for these tests only."""

from statistics import NormalDist

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias import Collection
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.text import keyed_hash

NORMAL = NormalDist()


class Overlap(Stage):
    """Counts the query's words in the text, each the less the later it stands, plus noise keyed by query and text."""

    schematic = {"label": "Overlap", "help_url": None}  # noqa: RUF012

    def __init__(self, *, early: float = 0.0, noise: float = 0.0, seed: int = 0):
        """
        Args:
            early: 0 for a ranker that does not see where words stand; 1 where a last word counts nothing.
            noise: Standard deviation of the noise.
            seed: Seed of the noise.
        """
        self.early = early
        self.noise = noise
        self.seed = seed

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        return ranked(inp.assign(score=[self.score(q, t) for q, t in zip(inp["query"], inp["text"])]))

    def score(self, query: str, text: str) -> float:
        wanted, words = set(query.split()), text.split()
        places = [place for place, word in enumerate(words) if word in wanted]
        score = sum(1 - self.early * place / len(words) for place in places)
        if self.noise:
            score += self.noise * NORMAL.inv_cdf((keyed_hash(self.seed, query, text) + 0.5) / 2**64)
        return score


def punctuated(words: list[str]) -> list[str]:
    """The words with a full stop behind every fifth of them, unless that is a query's word."""
    return [f"{word}." if i % 5 == 4 and word.startswith("w") else word for i, word in enumerate(words)]


def world(
    seed: int = 0, *, queries: int = 30, depth: int = 15, relevant: int = 2
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Candidates, judgements and answers: relevant passages hold two of a query's words early, the others up to two anywhere."""
    rng = np.random.default_rng(seed)
    rows, qrels, answers = [], [], []
    for q in range(queries):
        terms = [f"a{q}", f"b{q}", f"c{q}"]
        for d in range(depth):
            qid, docno = f"q{q}", f"d{q}_{d}"
            words = [f"w{i}" for i in rng.integers(0, 200, rng.integers(15, 40))]
            if d < relevant:
                place = int(rng.beta(1, 4) * len(words))
                words[place:place] = list(rng.permutation(terms)[:2])
                words = punctuated(words)
                start = len(" ".join([*words[:place], ""]))
                answer = " ".join(words[place : place + 2])
                answers.append((qid, docno, answer, start, start + len(answer)))
                qrels.append((qid, docno, 1))
            else:
                for term in rng.permutation(terms)[: rng.integers(0, 3)]:
                    words.insert(rng.integers(0, len(words) + 1), term)
                words = punctuated(words)
            rows.append((qid, " ".join(terms), docno, " ".join(words), float(depth - d), d))
    return (
        pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score", "rank"]),
        pd.DataFrame(qrels, columns=["qid", "docno", "label"]),
        pd.DataFrame(answers, columns=["qid", "docno", "answer", "start", "end"]),
    )


def collection(seed: int = 0, **sizes: int) -> Collection:
    """The same world as a collection."""
    candidates, qrels, answers = world(seed, **sizes)
    return Collection(
        "small world",
        corpus=candidates[["docno", "text"]],
        topics={"test": candidates[["qid", "query"]].drop_duplicates(ignore_index=True)},
        qrels={"test": qrels},
        candidates=candidates[["qid", "docno", "score", "rank"]],
        answers=answers,
    )


def blind(documents: list[str]) -> list[tuple[list[str], np.ndarray]]:
    """Words with vectors that know nothing but the word's length."""
    return [(words, np.array([[len(w), 1.0] for w in words]).reshape(-1, 2)) for words in map(str.split, documents)]
