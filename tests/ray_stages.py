"""What workers of Ray are sent by name: a module of its own, as each worker imports it, and would import all tests with it."""

import os
import pickle
import signal
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyterrier as pt

from pyterrier_debias.gender.measures.evaluator import GenderCounts
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from tests.position.toy import blind


class OfLists(pt.Transformer):
    """Scores that depend on the list: a text's length among those of the others; cuts the list, and drops a column."""

    def transform(self, inp):
        length = inp["text"].str.len().astype(float)
        score = length - length.groupby(inp["qid"]).transform("mean")
        return pt.model.add_ranks(inp.assign(score=score, length=length)[score > -5].drop(columns="query"))


class Telling(pt.Transformer):
    """Another package's ranker of pairs that can remember: writes down who asks it for what."""

    def __init__(self, path, ends=None):
        self.path, self.ends, self.limit = path, ends, None

    @contextmanager
    def remembering(self, limit=7):
        self.limit = limit
        yield self
        self.limit = None

    def transform(self, inp):
        if len(inp) and self.ends is not None and not Path(self.ends).is_file():
            if not Path(self.ends).is_dir():
                Path(self.ends).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        with open(self.path, "a") as file:
            file.writelines(f"{os.getpid()}\t{self.limit}\t{text}\n" for text in inp["text"])
        return inp.assign(score=inp["text"].str.len().astype(float))

    def told(self):
        rows = [line.split("\t") for line in Path(self.path).read_text().splitlines()]
        Path(self.path).unlink()
        return pd.DataFrame(rows, columns=["process", "limit", "text"])


class OfTwo(Exception):  # noqa: N818 - others call theirs as they like
    """An error that a pickle does not make again: it holds the message alone."""

    def __init__(self, one, two):
        super().__init__(f"{one} {two}")
        self.one = one


class Raising(pt.Transformer):
    """Another package's ranker that raises what a function makes."""

    def __init__(self, make):
        self.make = make

    def transform(self, inp):
        raise self.make()


def accumulated(frame):
    """The sums of a piece of a corpus."""
    genders = GenderCounts.of().update(frame["text"])
    terms = MATSAccumulator().update(frame["docno"].tolist(), blind(frame["text"].tolist()))
    return pd.DataFrame({"sums": [pickle.dumps((genders, terms))]})
