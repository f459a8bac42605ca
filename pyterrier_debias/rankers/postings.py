"""An inverted index of weighted terms, stored in a folder, and exact search in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import whole_folder
from pyterrier_debias.rankers.kept import Docnos, Kept

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

_FORMAT = 1

#: Names of some documents, and the weights of their terms, shape [documents, terms].
Batch = tuple[list[str], "csr_matrix"]


class Postings(Kept):
    """An inverted index: for each term, its documents and their weights, in memory or memory-mapped from a folder.

    A folder contains ``starts.npy`` (int64, shape [terms + 1]), ``documents.npy`` (int32) and ``weights.npy`` (float32), in which
    term t has the part ``starts[t]:starts[t + 1]``, ``docnos.npy`` (UTF-8 bytes, shape [n]), ``probe.npy`` and ``meta.json``. Any
    number of processes may read it at once. A pickle of a folder's postings contains only its path and a checksum.

    When not to use it: for collections whose postings do not fit into memory twice while they are built (8 bytes for each term
    of a document); index these with PISA or Terrier.

    Example:
        >>> from scipy.sparse import csr_matrix
        >>> postings = Postings.gather([(["d1", "d2"], csr_matrix([[0.0, 1.5, 0.5], [2.0, 0.0, 0.5]]))])
        >>> len(postings), postings.terms, postings.per_document, postings.folder
        (2, 3, 2.0, None)
        >>> [(rows.tolist(), scores.tolist()) for rows, scores in postings.search(csr_matrix([[0.0, 1.0, 2.0]]), 10)]
        [([0, 1], [2.5, 1.0])]
    """

    ARTIFACT_TYPE = "sparse_index"
    _MAKER = "SparseEncoder"
    _ARRAYS = ("starts", "documents", "weights", "docnos", "probe")

    def __init__(
        self,
        starts: np.ndarray,
        documents: np.ndarray,
        weights: np.ndarray,
        docnos: np.ndarray,
        *,
        probe: np.ndarray | None = None,
        folder: Path | None = None,
    ):
        """
        Args:
            starts: Where the postings of each term start, shape [terms + 1].
            documents: Rows of documents, ascending within a term.
            weights: Their weights, float32, all above 0.
            docnos: UTF-8 bytes (NumPy dtype ``S``), shape [n], all different.
            probe: The model's weights for a fixed text, to check that the same model encodes the queries.
            folder: The folder from which the arrays are mapped; None for arrays in memory.
        """
        self.starts = starts
        self.documents = documents
        self.weights = weights
        self._set_place(docnos, folder)
        self.probe = np.empty(0, dtype=np.float32) if probe is None else np.asarray(probe, dtype=np.float32)

    @classmethod
    def gather(cls, batches: Iterable[Batch], *, probe: np.ndarray | None = None) -> Postings:
        """Build postings in memory.

        Args:
            batches: Pairs of docnos and weights, a scipy CSR matrix of shape [m, terms].
            probe: See the constructor.

        Returns:
            The postings of all batches.

        Raises:
            InputError: For no documents at all, a docno that occurs twice, a batch without exactly one row for each docno,
                rows over different terms, or weights that are not finite or below 0.
        """
        from scipy.sparse import csr_matrix, vstack

        names, parts = Docnos(), []
        for docnos, weights in batches:
            names.add(docnos, weights.shape)
            _check_weights(docnos, weights)
            parts.append(csr_matrix(weights, dtype=np.float32))
        named = names.array()
        rows = vstack(parts, format="csr")
        rows.eliminate_zeros()
        by_term = rows.tocsc()
        by_term.sort_indices()
        return cls(
            by_term.indptr.astype(np.int64),
            by_term.indices.astype(np.int32),
            by_term.data,
            named,
            probe=probe,
        )

    @classmethod
    def write(
        cls, folder: str | Path, batches: Iterable[Batch], *, probe: np.ndarray | None = None, overwrite: bool = False
    ) -> Postings:
        """Write postings to a folder, completely or not at all.

        Args:
            folder: The folder to make.
            batches: Pairs of docnos and weights, see :meth:`gather`.
            probe: See the constructor.
            overwrite: Whether to replace postings that were saved there before; files that the package did not write stay.

        Returns:
            The postings, mapped from the folder.

        Raises:
            InputError: As :meth:`gather`, and if the folder exists already or cannot be written.
        """
        with whole_folder(folder, holds="postings of documents", overwrite=overwrite) as scratch:
            made = cls.gather(batches, probe=probe)
            for name in cls._ARRAYS:
                np.save(scratch / f"{name}.npy", getattr(made, name))
            meta = {"format": _FORMAT, "documents": len(made), "terms": made.terms, "postings": len(made.documents)}
            (scratch / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
            cls.write_meta(scratch)
        return cls.load(folder)

    @classmethod
    def _read(cls, folder: Path, meta: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        found = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in cls._ARRAYS}
        starts = np.array(found["starts"])
        told = (meta["format"], meta["documents"], meta["terms"], meta["postings"])
        lengths = len(found["docnos"]), len(starts) - 1, len(found["documents"])
        return told == (_FORMAT, *lengths) and starts[-1] == len(found["weights"]) == lengths[2], {**found, "starts": starts}

    @property
    def terms(self) -> int:
        """The number of terms in the vocabulary."""
        return len(self.starts) - 1

    @property
    def per_document(self) -> float:
        """The mean number of weights (float32, each with its term) per document."""
        return len(self.documents) / len(self)

    def search(self, queries: csr_matrix, k: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Search exactly by inner product, term by term.

        The result is that of scoring every document in float64, with terms in their order, and a full sort with ties by
        descending docno, as in trec_eval; documents that share no term with the query are left out.

        Args:
            queries: Weights of terms, not negative, shape [n, terms].
            k: Largest number of documents per query.

        Yields:
            For each query the rows of its documents, best first, and their scores (float64).

        Raises:
            InputError: If queries have another vocabulary.
        """
        if queries.shape[1] != self.terms:
            raise InputError(
                f"queries have weights for {queries.shape[1]} terms, but the index has {self.terms}; encode both with one model"
            )
        scores = np.zeros(len(self))
        queries = queries.sorted_indices()
        for first, end in zip(queries.indptr[:-1], queries.indptr[1:]):
            for term, weight in zip(queries.indices[first:end].tolist(), queries.data[first:end].astype(np.float64)):
                part = slice(self.starts[term], self.starts[term + 1])
                scores[self.documents[part]] += weight * self.weights[part].astype(np.float64)
            rows = np.flatnonzero(scores)
            found = scores[rows]
            scores[rows] = 0.0
            if len(rows) > k:
                # Every tie at the last place stays until names decide.
                near = found >= np.partition(found, -k)[-k]
                rows, found = rows[near], found[near]
            order = np.lexsort((self.docnos[rows], found))[::-1][:k]
            yield rows[order], found[order]

    def products(self, queries: csr_matrix) -> np.ndarray:
        """Count the products that the index computes for each query.

        Args:
            queries: Weights of terms, shape [n, terms].

        Returns:
            Whole numbers, shape [n]: for each query, the sum of the lengths of its terms' postings.
        """
        lengths = np.diff(self.starts)
        return np.array([lengths[queries[row].indices].sum() for row in range(queries.shape[0])], dtype=np.int64)

    def __repr__(self) -> str:
        """Sizes and place."""
        return f"<Postings {len(self)}x{self.terms}, {len(self.documents)} weights in {self.folder or 'memory'}>"


def _check_weights(docnos: list[str], weights: csr_matrix) -> None:
    bad = ~np.isfinite(weights.data) | (weights.data < 0)
    if bad.any():
        row = int(np.searchsorted(weights.indptr, np.flatnonzero(bad)[0], side="right")) - 1
        raise InputError(
            f"document {docnos[row]!r} has a weight that is not a finite number of at least 0; encode with dtype='float32'"
        )
