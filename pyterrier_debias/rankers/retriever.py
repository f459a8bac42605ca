"""Exact dense retrieval as a stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def check_queries(inp: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """The queries of an exact retriever, without scores and ranks of an earlier one.

    Args:
        inp: A query frame.
        stage: The retriever, whose ``num_results`` is looked at too.

    Returns:
        The frame.

    Raises:
        InputError: For a qid that occurs twice, or a number of results below 1.
    """
    name = type(stage).__name__
    if stage.num_results < 1:
        raise InputError(f"{name}: num_results={stage.num_results} must be at least 1")
    inp = inp.drop(columns=["score", "rank"], errors="ignore")
    repeated = inp["qid"].duplicated()
    if repeated.any():
        twice = inp["qid"][repeated].iloc[0]
        raise InputError(f"{name}: qid {twice!r} occurs twice in the topics; keep one row per query")
    return inp


def no_results(inp: pd.DataFrame) -> pd.DataFrame:
    """The result of no queries: their columns, with ``docno``, ``score`` and ``rank``."""
    return inp.assign(docno=pd.Series(dtype="str"), score=pd.Series(dtype="float64"), rank=pd.Series(dtype="int64"))


def results_of(
    inp: pd.DataFrame, found: Iterable[tuple[np.ndarray, np.ndarray]], docnos: np.ndarray, *, verbose: bool
) -> pd.DataFrame:
    """The result frame of what an exact search found.

    Args:
        inp: Queries, one row each, at least one.
        found: For each query the rows of its documents, best first, and their scores.
        docnos: The documents' names, UTF-8 bytes.
        verbose: Whether to show progress.

    Returns:
        The queries' columns with ``docno``, ``score`` and ``rank``.
    """
    rows, scores = zip(*pt.tqdm(found, total=len(inp), desc="retrieving", unit="query", disable=not verbose))
    lengths = [len(best) for best in rows]
    out = inp.iloc[np.repeat(np.arange(len(inp)), lengths)].reset_index(drop=True)
    return out.assign(
        docno=pd.Series([name.decode("utf-8", "surrogatepass") for name in docnos[np.concatenate(rows)].tolist()], dtype="str"),
        score=np.concatenate(scores),
        rank=np.concatenate([np.arange(n) for n in lengths]),
    )


def check_model(stage: Any, made: Any, probe: np.ndarray) -> None:
    """Refuse a model that does not encode queries as the documents were encoded; looked at once for its present weights.

    Args:
        stage: The retriever, whose ``model`` is meant.
        made: What the documents were turned into, named in the message.
        probe: What the model that did so made of a fixed text; its last number is no weight.

    Raises:
        InputError: If the stage's model makes something else of the text.
    """
    model = stage.model
    present = model.fingerprint()
    if stage.__dict__.get("_checked") == present:
        return
    # Loose enough for another machine or device, far closer than two models ever are.
    own = model.probe()
    if own.shape != probe.shape or not np.allclose(own, probe, atol=1e-3 * np.abs(own[:-1]).max()):
        raise InputError(
            f"{type(stage).__name__}: {made!r} were made by another model, or with other options, than the one that encodes "
            f"queries; make them again with {type(model).__name__}(...).retriever(corpus, ...)"
        )
    stage.__dict__["_checked"] = present


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
        inp = check_queries(inp, self)
        if len(inp) == 0:
            return no_results(inp)
        if v.mode == "text":
            frames.check_text(inp, "query", self)
            check_model(self, self.vectors, np.array(self.vectors.probe))
            queries = self.model.encode_queries(inp["query"].tolist())
        else:
            queries = self._stacked(inp)
        found = top_k(
            queries,
            self.vectors.matrix,
            self.vectors.docnos,
            self.num_results,
            longest=self.vectors.longest,
            query_rows=_QUERIES,
        )
        return results_of(inp, found, self.vectors.docnos, verbose=self.verbose)

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
