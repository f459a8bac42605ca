"""An encoder of letters, and queries whose labels it can tell."""

import numpy as np

from pyterrier_debias.gender.data.query_gender import LABELS


class Letters:
    """An encoder that counts letters."""

    model = "letters"

    def encode_queries(self, texts):
        return np.array([[text.count(letter) for letter in "fmno"] for text in texts], dtype=float).reshape(len(texts), 4)


def annotated(n=30, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.choice(list(LABELS), size=n * 4)
    texts = [label[0] * 3 + "".join(generator.choice(list("fmnox"), size=3)) for label in labels]
    return texts, labels.tolist()
