"""What pyterrier_caching offers, as far as this library looks at it: names, options and keys; kept in memory."""

import types

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.frames import ranked


class Sqlite3ScorerCache(pt.Transformer):
    """Scores by ``group`` and ``key``."""

    def __init__(self, path=None, scorer=None, *, group="query", key="docno", value="score", verbose=False):
        self.path, self.scorer, self.group, self.key, self.value, self.verbose = path, scorer, group, key, value, verbose
        self.known = {}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=[self.group, self.key], context=self)
        if len(inp) == 0:
            return inp.assign(score=pd.Series(dtype=float), rank=pd.Series(dtype=int))
        pairs = list(zip(inp[self.group], inp[self.key]))
        new = inp[[pair not in self.known for pair in pairs]]
        if len(new):
            found = self.scorer(new)
            self.known |= dict(zip(zip(found[self.group], found[self.key]), found["score"]))
        return ranked(inp.assign(score=[self.known[pair] for pair in pairs]))


class Hdf5ScorerCache(Sqlite3ScorerCache):
    """Scores by query and docno, without a choice, of the documents that it was built with."""

    def __init__(self, path=None, scorer=None, *, verbose=False):
        super().__init__(path, scorer, verbose=verbose)
        del self.group, self.key, self.value

    def build(self, corpus_iter):
        self.docnos = {document["docno"] for document in corpus_iter}

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        assert self.docnos.issuperset(inp["docno"]), "unknown docno encountered"
        return Sqlite3ScorerCache.transform(Sqlite3ScorerCache(self.path, self.scorer), inp)


class Sqlite3KeyValueCache(pt.Transformer):
    """Columns by columns."""

    def __init__(self, path, transformer=None, *, key=None, value=None, verbose=False):
        self.path, self.transformer, self.verbose = path, transformer, verbose
        self.key, self.value = ([one] if isinstance(one, str) else list(one) for one in (key, value))

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        pt.validate.columns(inp, includes=self.key, context=self)
        return self.transformer(inp)


class DbmRetrieverCache(pt.Transformer):
    """Results by columns; by all columns where none are named."""

    def __init__(self, path=None, retriever=None, *, on=None, verbose=False):
        self.path, self.retriever, self.on, self.verbose = path, retriever, on, verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        return self.retriever(inp)


def package() -> types.ModuleType:
    """A module with these classes, new ones at each call."""
    made = types.ModuleType("pyterrier_caching")
    for kind in (Sqlite3ScorerCache, Hdf5ScorerCache, Sqlite3KeyValueCache, DbmRetrieverCache):
        setattr(made, kind.__name__, type(kind.__name__, (kind,), {"__module__": made.__name__, "transform": kind.transform}))
    made.ScorerCache, made.DenseScorerCache = made.Sqlite3ScorerCache, made.Hdf5ScorerCache
    made.KeyValueCache, made.RetrieverCache = made.Sqlite3KeyValueCache, made.DbmRetrieverCache
    return made
