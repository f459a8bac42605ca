"""A stand-in for Terrier's retriever that reads queries as its parser does, without Java."""

import pandas as pd
import pyterrier as pt

TEXTS = {"d1": "little cats chase mice", "d2": "dogs and mice", "d3": "birds"}


class Words:
    """Terrier's tokeniser for English, nearly."""

    def getTokens(self, query):  # noqa: N802 (Java's name)
        return "".join(c if c.isalnum() else " " for c in query.lower()).split()


class Parsed(pt.Transformer):
    """A retriever of Terrier that keeps what it was asked; its parser knows no signs."""

    __module__ = "pyterrier.terrier.retriever"
    tokeniser = Words()

    def __init__(self, properties=None, texts=TEXTS):
        self.properties = properties or {}
        self.texts = texts
        self.asked = []

    def transform(self, inp):
        self.asked += inp["query"].tolist()
        if inp["query"].str.contains(":").any():
            raise ValueError("Index must have 1 or more fields.")
        rows = [
            {**row, "docno": docno, "score": float(len(shared))}
            for row in inp.to_dict("records") for docno, text in self.texts.items()
            if (shared := set(row["query"].split()) & set(text.split()))
        ]
        return pt.model.add_ranks(pd.DataFrame(rows, columns=[*inp.columns, "docno", "score"]))
