"""Documents that follow a stereotype, with profiles and labels."""

import numpy as np
import pandas as pd

from pyterrier_debias.gender.data.profiles import LexiconProfiles
from pyterrier_debias.gender.data.query_gender import QueryGender

LEXICON = {"work": ["job", "office", "pay"], "home": ["house", "garden", "bed"], "money": ["pay", "bank"]}


def documents(n=60, seed=0):
    """Women's documents speak of homes, men's of work, as in the stereotype."""
    generator = np.random.default_rng(seed)
    words, rows = ["job", "office", "pay", "house", "garden", "bed", "bank", "sea"], []
    for i in range(n):
        who = ("she", "he", "it")[i % 3]
        lean = {"she": [1, 1, 1, 4, 4, 4, 1, 1], "he": [4, 4, 4, 1, 1, 1, 2, 1], "it": [1] * 8}[who]
        text = " ".join(generator.choice(words, size=12, p=np.array(lean) / sum(lean)))
        rows.append((f"q{i}", f"d{i}", f"what does {who} do", text))
    return pd.DataFrame(rows, columns=["qid", "docno", "query", "text"])


def labelled(frame=None):
    return (QueryGender() >> LexiconProfiles(LEXICON))(documents() if frame is None else frame)
