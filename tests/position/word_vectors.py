"""Passages of a few words with random vectors, and their sums."""

import numpy as np

from pyterrier_debias.position.formulas.mats import MATSAccumulator


def collection(passages=12, words=6, longest=9, d=5, seed=0, dtype=np.float64):
    """Random passages over few words, so that words repeat within and across passages."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(passages):
        n = int(rng.integers(0, longest + 1))
        made.append(([f"w{i}" for i in rng.integers(0, words, n)], rng.normal(size=(n, d)).astype(dtype)))
    return [f"d{i}" for i in range(passages)], made


def accumulated(docnos, passages, **options):
    return MATSAccumulator(**options).update(docnos, passages)
