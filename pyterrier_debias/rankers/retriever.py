"""Exact retrieval as a stage: the base class of exact retrievers, and the retriever over vectors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.stage import Stage, same_value
from pyterrier_debias.core.vectors import real_array
from pyterrier_debias.rankers.kept import Kept
from pyterrier_debias.rankers.vectors import Vectors, top_k


class QueryModel(Protocol):
    """The model that encoded the documents and encodes the queries: a :class:`~pyterrier_debias.BiEncoder`."""

    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """Vectors of queries, shape [queries, dimensions]."""

    def probe(self) -> np.ndarray:
        """The model's vector of a fixed text: nearly the same for one model on any machine, very different for two models."""

    def fingerprint(self) -> str:
        """A hash of the weights."""


_QUERIES = 1024


class ExactRetriever(Stage):
    """Base class of exact retrievers: queries, stored documents, and result frames.

    A subclass searches :attr:`kept` with queries that its ``model`` encodes.
    """

    model: Any
    num_results: int
    verbose: bool

    @property
    @abstractmethod
    def kept(self) -> Kept:
        """The stored representations of the documents."""

    def asked(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Return the queries, without scores and ranks of an earlier stage.

        Args:
            inp: A query frame.

        Returns:
            The frame.

        Raises:
            InputError: For a qid that occurs twice, or a number of results that is not a number or below 1.
        """
        name = type(self).__name__
        check_number(name, "num_results", self.num_results, least=1, whole=True)
        inp = inp.drop(columns=["score", "rank"], errors="ignore")
        repeated = inp["qid"].duplicated()
        if repeated.any():
            twice = inp["qid"][repeated].iloc[0]
            raise InputError(f"{name}: qid {twice!r} occurs twice in the topics; keep one row per query")
        return inp

    def encoded(self, inp: pd.DataFrame) -> Any:
        """Encode the queries of a frame, and check that the model is the one that encoded the documents.

        Args:
            inp: A query frame.

        Returns:
            Output of the model's ``encode_queries``.

        Raises:
            InputError: For a query without text, or one for which the model returns numbers that are not finite; or if the model
                encodes a fixed text differently from the model of the documents, which is checked again when its weights, its
                options or the documents change.
        """
        frames.check_text(inp, "query", self)
        self._check_model()
        found = self.model.encode_queries(inp["query"].tolist())
        self._check_finite(inp, found)
        return found

    def _check_finite(self, inp: pd.DataFrame, found: Any) -> None:
        """Refuse vectors or sparse weights that are not finite: their query would silently find nothing."""
        bad = _not_finite(found)
        if len(bad):
            raise InputError(
                f"{type(self).__name__}: the vector of query {inp['qid'].iloc[bad.min()]!r} is not finite; encode queries and "
                f"documents with dtype='float32', or, if you already do, repair the model's weights"
            )

    def _check_model(self) -> None:
        # What changes vectors beside weights: a ranker's options, with those of its encoder of documents.
        options = self.model.identity() if isinstance(self.model, Stage) else {}
        present = self.model.fingerprint(), options, self.kept
        if same_value(self.__dict__.get("_checked"), present):
            return
        # Loose enough for another machine or device, far closer than two models ever are; the last number is no weight.
        own, probe = self.model.probe(), np.array(self.kept.probe)
        if own.shape != probe.shape or not np.allclose(own, probe, atol=1e-3 * np.abs(own[:-1]).max()):
            raise InputError(
                f"{type(self).__name__}: {self.kept!r} were made by a different model, or with different options, than the "
                f"one that encodes queries; make them again with {type(self.model).__name__}(...).retriever(corpus, ...)"
            )
        self.__dict__["_checked"] = present

    def results(self, inp: pd.DataFrame, found: Iterable[tuple[np.ndarray, np.ndarray]]) -> pd.DataFrame:
        """Make the result frame of the documents found.

        Args:
            inp: Queries, one row each.
            found: For each query the rows of its documents, best first, and their scores.

        Returns:
            The queries' columns with ``docno``, ``score`` and ``rank``.
        """
        if len(inp) == 0:
            return inp.assign(docno=pd.Series(dtype="str"), score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64"))
        rows, scores = zip(*pt.tqdm(found, total=len(inp), desc="retrieving", unit="query", disable=not self.verbose))
        lengths = [len(best) for best in rows]
        names = self.kept.docnos[np.concatenate(rows)].tolist()
        return inp.iloc[np.repeat(np.arange(len(inp)), lengths)].reset_index(drop=True).assign(
            docno=pd.Series([name.decode("utf-8", "surrogatepass") for name in names], dtype="str"),
            score=np.concatenate(scores),
            rank=np.concatenate([np.arange(n) for n in lengths]),
        )

    def fuse_rank_cutoff(self, k: int) -> Self:
        """Use a cut-off after the retriever as its number of results."""
        make: Any = type(self)
        fused: Self = make(self.model, self.kept, num_results=min(k, self.num_results), verbose=self.verbose)
        return fused

    def subtransformers(self) -> dict[str, Any]:
        """None: the model is not a stage of the pipeline here."""
        return {}


def _not_finite(found: Any) -> np.ndarray:
    """Rows of vectors, or of a sparse matrix, with numbers that are not finite."""
    if isinstance(found, np.ndarray):
        return np.flatnonzero(~np.isfinite(found).all(axis=1))
    kept = found.tocoo()
    rows: np.ndarray = kept.row[~np.isfinite(kept.data)]
    return rows


class Retriever(ExactRetriever):
    """A first stage that compares queries with every document; made by :meth:`~pyterrier_debias.BiEncoder.retriever`.

    ===============  ==========================================================================
    columns in       ``qid`` and ``query``, or ``qid`` and ``query_vec``
    columns out      the same, with ``docno``, ``score`` and ``rank``: the best documents first
    ===============  ==========================================================================

    The result is that of a full sort by score (inner products of the stored float32 vectors, summed in float64) with ties by
    descending docno, and does not depend on the other queries. Memory is bounded, because documents are compared in blocks. A
    cut-off after it (``retriever % 10``) is compiled into it.

    When not to use it: for collections so large that comparing with every document is too slow (a core compares 60 to 100 million
    vectors of 384 dimensions per second for many queries at once, and about 8 million for a single query); give the vectors to
    an approximate index instead.

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
    pieces = "rows"

    def __init__(self, model: QueryModel, vectors: Vectors, *, num_results: int = 1000, verbose: bool = False):
        """
        Args:
            model: The encoder of queries.
            vectors: The documents' vectors, computed by the same model with the same options.
            num_results: Largest number of results per query.
            verbose: Whether to show progress.
        """
        self.model = model
        self.vectors = vectors
        self.num_results = num_results
        self.verbose = verbose

    @property
    def kept(self) -> Vectors:
        """See :attr:`ExactRetriever.kept`."""
        return self.vectors

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Retrieve for every query.

        Args:
            inp: A query frame.

        Returns:
            A result frame; the other columns of the query are repeated.

        Raises:
            InputError: For a query without text or with a vector that is not finite, a qid that occurs twice, or vectors of
                another model.
        """
        with pt.validate.any(inp, context=self) as v:
            v.query_frame(extra_columns=["query_vec"], mode="vectors")
            v.query_frame(extra_columns=["query"], mode="text")
        inp = self.asked(inp)
        if len(inp) == 0:
            return self.results(inp, ())
        queries = self.encoded(inp) if v.mode == "text" else self._stacked(inp)
        if queries.shape[1:] != (self.vectors.dimensions,):
            what = "the model makes vectors" if v.mode == "text" else "column 'query_vec' holds arrays"
            raise InputError(
                f"Retriever: {what} of shape {queries.shape[1:]}, but the documents' vectors have {self.vectors.dimensions} "
                f"dimensions; encode queries with the same model, or with one that has as many dimensions"
            )
        found = top_k(
            queries,
            self.vectors.matrix,
            self.vectors.docnos,
            self.num_results,
            longest=self.vectors.longest,
            query_rows=_QUERIES,
        )
        return self.results(inp, found)

    def _stacked(self, inp: pd.DataFrame) -> np.ndarray:
        """The column ``query_vec`` as float32, shape [n, d]."""
        try:
            queries = real_array(np.stack(inp["query_vec"].tolist()), "Retriever: column 'query_vec'", np.float32)
        except InputError:
            raise
        except (TypeError, ValueError) as error:
            raise InputError("Retriever: column 'query_vec' must hold arrays of equal length; encode queries again") from error
        if not np.isfinite(queries).all():
            raise InputError("Retriever: column 'query_vec' holds values that are not finite; encode the queries again")
        return queries
