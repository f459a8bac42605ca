"""Exact retrieval with an inverted index of weighted terms, as a stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.rankers.postings import Postings
from pyterrier_debias.rankers.retriever import ExactRetriever

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


class TermModel(Protocol):
    """The model that encoded the documents and encodes the queries: a :class:`~pyterrier_debias.SparseEncoder`."""

    def encode_queries(self, queries: Sequence[str]) -> csr_matrix:
        """Weights of terms, shape [queries, terms]."""

    def describe(self, texts: Sequence[str], task: str = "query") -> pd.DataFrame:
        """How many terms have a weight in texts, and how many of them are expansions."""

    def probe(self) -> np.ndarray:
        """The model's weights for a fixed text: nearly the same for one model on any machine, very different for two models."""

    def fingerprint(self) -> str:
        """A hash of the weights."""


class SparseRetriever(ExactRetriever):
    """A first stage over an inverted index of weighted terms; made by :meth:`~pyterrier_debias.SparseEncoder.retriever`.

    ===============  ==========================================================================
    columns in       ``qid`` and ``query``
    columns out      the same, with ``docno``, ``score`` and ``rank``: the best documents first
    ===============  ==========================================================================

    The result is that of scoring every document (sums in float64) and a full sort with ties by descending docno, and does not
    depend on the other queries. Documents without a common term are left out, so a query may have fewer than ``num_results``. A
    cut-off after it (``retriever % 10``) is compiled into it. ``retriever.postings.per_document`` is the mean number of terms per
    document; :meth:`describe` shows further sizes.

    When not to use it: for a model that was not trained to be sparse, whose postings contain nearly every term of every document;
    for collections of many millions of documents, where an engine that skips postings (PISA) is faster.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> from pyterrier_debias import SparseEncoder
        >>> postings = Postings.gather([(["d1", "d2"], csr_matrix([[0.0, 1.5, 0.5], [2.0, 0.0, 0.5]]))])
        >>> SparseRetriever(SparseEncoder("a/model"), postings, num_results=10).postings.per_document
        2.0

        From queries: ``SparseEncoder(model).retriever(dataset, folder='postings')(topics)``.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "SparseRetriever", "help_url": None}

    def __init__(self, model: TermModel, postings: Postings, *, num_results: int = 1000, verbose: bool = False):
        """
        Args:
            model: The encoder of queries.
            postings: The documents' terms, computed by the same model with the same options.
            num_results: Largest number of results per query.
            verbose: Whether to show progress.
        """
        self.model = model
        self.postings = postings
        self.num_results = num_results
        self.verbose = verbose

    @property
    def kept(self) -> Postings:
        """See :attr:`~pyterrier_debias.rankers.retriever.ExactRetriever.kept`."""
        return self.postings

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Retrieve for every query.

        Args:
            inp: A query frame.

        Returns:
            A result frame; the other columns of the query are repeated.

        Raises:
            InputError: For a query without text or without finite weights, a qid that occurs twice, or postings of another model.
        """
        pt.validate.query_frame(inp, extra_columns=["query"], context=self)
        inp = self.asked(inp)
        if len(inp) == 0:
            return self.results(inp, ())
        return self.results(inp, self.postings.search(self.encoded(inp), self.num_results))

    def describe(self, topics: pd.DataFrame) -> pd.Series:
        """Measure the size of the index, and the work that queries cause.

        Args:
            topics: A query frame, ``qid`` and ``query``.

        Returns:
            ``documents``; ``floats_per_document`` (mean number of weights per document); ``terms_per_query``; ``expansion_share``
            (the mean, over queries with terms, of the share of their terms that are not their own tokens); ``products_per_pair``
            (mean number of products per query, divided by the number of documents).

        Raises:
            InputError: For the same errors as :meth:`transform`.
        """
        pt.validate.query_frame(topics, extra_columns=["query"], context=self)
        products = self.postings.products(self.encoded(topics))
        sparse = self.model.describe(topics["query"].tolist())
        return pd.Series(
            {
                "documents": float(len(self.postings)),
                "floats_per_document": self.postings.per_document,
                "terms_per_query": sparse["terms"].mean(),
                "expansion_share": sparse["expansion_share"].mean(),
                "products_per_pair": products.mean() / len(self.postings) if len(products) else float("nan"),
            }
        )
