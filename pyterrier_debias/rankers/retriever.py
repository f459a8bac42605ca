"""Exact dense retrieval as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.vectors import real_array
from pyterrier_debias.rankers.vectors import Vectors, top_k


class QueryModel(Protocol):
    """What encodes queries as it encoded the documents: a :class:`~pyterrier_debias.BiEncoder`."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Vectors of queries, shape [queries, dimensions]."""

    def probe(self) -> np.ndarray:
        """What the model makes of a fixed text: close for one model on any machine, far apart for two."""

    def fingerprint(self) -> str:
        """A hash of the weights."""


_QUERIES = 1024


class Retriever(Stage):
    """Compares queries with every document of a collection; made by :meth:`~pyterrier_debias.BiEncoder.retriever`.

    ===============  ==========================================================================
    columns in       ``qid`` and ``query``, or ``qid`` and ``query_vec``
    columns out      the same, with ``docno``, ``score`` and ``rank``: the best documents first
    ===============  ==========================================================================

    The result is that of a full sort by score (inner products of the stored float32 vectors, summed in float64), ties by
    descending docno, whatever else is in the frame. Memory is bounded: documents pass in blocks. A cut-off after it
    (``retriever % 10``) compiles into it.

    When not to use it: for collections so large that comparing with every document is too slow (a core compares 60 to 100 million
    vectors of 384 dimensions a second when many queries come at once, some 8 million for one query alone); give the vectors to an
    approximate index there.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from pyterrier_debias import BiEncoder
        >>> from pyterrier_debias.rankers.vectors import Vectors
        >>> vectors = Vectors.gather([(["d1", "d2"], np.array([[1.0, 0.0], [0.6, 0.8]]))])
        >>> topics = pd.DataFrame({"qid": ["q1"], "query_vec": [np.array([0.0, 1.0])]})
        >>> Retriever(BiEncoder("a/model"), vectors)(topics)["docno"].tolist()
        ['d2', 'd1']

        From queries: ``BiEncoder(model).retriever(dataset, folder='vectors')(topics)``.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Retriever", "help_url": None}

    def __init__(self, model: QueryModel, vectors: Vectors, *, num_results: int = 1000, verbose: bool = False):
        """
        Args:
            model: The encoder of queries.
            vectors: The documents' vectors, made by the same model with the same options.
            num_results: Largest number of results per query.
            verbose: Whether to show progress.
        """
        self.model = model
        self.vectors = vectors
        self.num_results = num_results
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Retrieve for every query.

        Args:
            inp: A query frame.

        Returns:
            A result frame; the other columns of the query are repeated.

        Raises:
            InputError: For a query without text, a qid that occurs twice, or vectors of another model.
        """
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_vec"], mode="vectors")
            v.query_frame(extra_columns=["query"], mode="text")
        if self.num_results < 1:
            raise InputError(f"Retriever: num_results={self.num_results} must be at least 1")
        inp = inp.drop(columns=["score", "rank"], errors="ignore")
        if len(inp) == 0:
            return inp.assign(
                docno=pd.Series(dtype="str"), score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64")
            )
        repeated = inp["qid"].duplicated()
        if repeated.any():
            twice = inp["qid"][repeated].iloc[0]
            raise InputError(f"Retriever: qid {twice!r} occurs twice in the topics; keep one row per query")
        if v.mode == "text":
            frames.check_text(inp, "query", self)
            self._check_model()
            queries = self.model.encode_queries(inp["query"].tolist())
        else:
            queries = self._stacked(inp)
        rows, scores = [], []
        found = top_k(
            queries,
            self.vectors.matrix,
            self.vectors.docnos,
            self.num_results,
            longest=self.vectors.longest,
            query_rows=_QUERIES,
        )
        for best, score in pt.tqdm(found, total=len(queries), desc="retrieving", unit="query", disable=not self.verbose):
            rows.append(best)
            scores.append(score)
        lengths = [len(best) for best in rows]
        docnos = self.vectors.docnos[np.concatenate(rows)].tolist()
        out = inp.iloc[np.repeat(np.arange(len(inp)), lengths)].reset_index(drop=True)
        return out.assign(
            docno=[docno.decode("utf-8", "surrogatepass") for docno in docnos],
            score=np.concatenate(scores),
            rank=np.concatenate([np.arange(n) for n in lengths]),
        )

    def _check_model(self) -> None:
        """Queries must be encoded as the documents were; looked at once for the model's present weights."""
        present = self.model.fingerprint()
        if self.__dict__.get("_checked") == present:
            return
        # Loose enough for another machine or device, far closer than two models ever are.
        probe, made_by = self.model.probe(), np.array(self.vectors.probe)
        if probe.shape != made_by.shape or not np.allclose(probe, made_by, atol=1e-3 * np.abs(probe[:-1]).max()):
            raise InputError(
                f"Retriever: {self.vectors!r} were made by another model, or with other options, than the one that encodes "
                f"queries; make them again with {type(self.model).__name__}(...).retriever(corpus, ...)"
            )
        self.__dict__["_checked"] = present

    def _stacked(self, inp: pd.DataFrame) -> np.ndarray:
        """The column ``query_vec`` as float32, shape [n, d]."""
        try:
            queries = real_array(np.stack(inp["query_vec"].tolist()), "Retriever: column 'query_vec'", np.float32)
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError("Retriever: column 'query_vec' must hold arrays of one length; encode the queries again") from error
        if queries.shape[1:] != (self.vectors.dimensions,):
            raise InputError(
                f"Retriever: column 'query_vec' holds arrays of shape {queries.shape[1:]}, the documents' vectors have "
                f"{self.vectors.dimensions} dimensions; encode queries with the same model"
            )
        if not np.isfinite(queries).all():
            raise InputError("Retriever: column 'query_vec' holds values that are not finite; encode the queries again")
        return queries

    def fuse_rank_cutoff(self, k: int) -> Retriever:
        """A cut-off after the retriever becomes its number of results."""
        return Retriever(self.model, self.vectors, num_results=min(k, self.num_results), verbose=self.verbose)

    def subtransformers(self) -> dict[str, Any]:
        """None: the model is not a stage of the pipeline here."""
        return {}
