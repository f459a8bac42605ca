"""Vectors of documents, stored in a folder, and exact search in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import whole_folder
from pyterrier_debias.core.vectors import real_array
from pyterrier_debias.rankers.kept import Docnos, Kept

_FORMAT = 1

#: Names and vectors of some documents.
Batch = tuple[list[str], np.ndarray]


class Vectors(Kept):
    """The vectors of a collection's documents, in memory or memory-mapped from a folder.

    A folder contains ``vectors.npy`` (float32, shape [n, d]), ``docnos.npy`` (UTF-8 bytes, shape [n]) and ``meta.json``.
    Any number of processes may read it at once. A pickle of a folder's vectors contains only its path and a checksum.

    When not to use it: for a collection that needs approximate search or compression; give the same vectors to an index
    library (``model.doc_encoder() >> FlexIndex(...)``).

    Example:
        >>> vectors = Vectors.gather([(["d1", "d2"], np.eye(2))])
        >>> len(vectors), vectors.dimensions, vectors.folder
        (2, 2, None)
    """

    ARTIFACT_TYPE = "dense_index"
    _MAKER = "BiEncoder"
    _ARRAYS = ("vectors", "docnos")

    def __init__(
        self,
        matrix: np.ndarray,
        docnos: np.ndarray,
        *,
        longest: float,
        probe: Iterable[float] = (),
        folder: Path | None = None,
    ):
        """
        Args:
            matrix: float32, shape [n, d].
            docnos: UTF-8 bytes (NumPy dtype ``S``), shape [n], all different.
            longest: The largest Euclidean norm of a row.
            probe: The model's vector of a fixed text, to check that the same model encodes the queries.
            folder: The folder from which the arrays are mapped; None for arrays in memory.
        """
        self.matrix = matrix
        self._set_place(docnos, folder)
        self.longest = longest
        self.probe = tuple(float(value) for value in probe)

    @classmethod
    def gather(cls, batches: Iterable[Batch], *, probe: Iterable[float] = ()) -> Vectors:
        """Collect vectors in memory.

        Args:
            batches: Pairs of docnos and vectors, float, shape [m, d].
            probe: See the constructor.

        Returns:
            The vectors of all batches.

        Raises:
            InputError: For no documents at all, a docno that occurs twice, a batch without exactly one vector for each docno,
                vectors of several lengths, or a vector that is not finite.
        """
        check = _Check()
        parts = [check(docnos, vectors) for docnos, vectors in batches]
        names = check.docnos.array()
        return cls(np.concatenate(parts), names, longest=check.longest, probe=probe)

    @classmethod
    def write(
        cls, folder: str | Path, batches: Iterable[Batch], *, probe: Iterable[float] = (), overwrite: bool = False
    ) -> Vectors:
        """Write vectors to a folder, completely or not at all, with one batch in memory at a time.

        Args:
            folder: The folder to make.
            batches: Pairs of docnos and vectors, float, shape [m, d].
            probe: See the constructor.
            overwrite: Whether to replace vectors that were saved there before; files that the package did not write stay.

        Returns:
            The vectors, mapped from the folder.

        Raises:
            InputError: As :meth:`gather`, and if the folder exists already or cannot be written.
        """
        check = _Check()
        with whole_folder(folder, holds="vectors of documents", overwrite=overwrite) as scratch:
            with open(scratch / "vectors.npy", "wb") as file:
                for docnos, vectors in batches:
                    part = check(docnos, vectors)
                    if file.tell() == 0:
                        _npy_header(file, (0, part.shape[1]))
                    file.write(part.tobytes())
                names = check.docnos.array()
                # numpy leaves room in the header for the first dimension to grow.
                file.seek(0)
                _npy_header(file, (len(names), check.dimensions))
            np.save(scratch / "docnos.npy", names)
            meta = {"format": _FORMAT, "documents": len(names), "longest": check.longest, "probe": [float(v) for v in probe]}
            (scratch / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
            cls.write_meta(scratch)
        return cls.load(folder)

    @classmethod
    def _read(cls, folder: Path, meta: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        matrix = np.load(folder / "vectors.npy", mmap_mode="r")
        docnos = np.load(folder / "docnos.npy", mmap_mode="r")
        whole = meta["format"] == _FORMAT and len(matrix) == len(docnos) == meta["documents"]
        return whole, {"matrix": matrix, "docnos": docnos, "longest": float(meta["longest"]), "probe": list(meta["probe"])}

    @property
    def dimensions(self) -> int:
        """The number of dimensions of a vector."""
        return self.matrix.shape[1]

    def __repr__(self) -> str:
        """Sizes and place."""
        return f"<Vectors {len(self)}x{self.dimensions} in {self.folder or 'memory'}>"


class _Check:
    """Receives batches and checks that they are consistent."""

    def __init__(self) -> None:
        self.docnos = Docnos()
        self.dimensions = 0
        self.longest = 0.0

    def __call__(self, docnos: list[str], vectors: np.ndarray) -> np.ndarray:
        part = np.ascontiguousarray(real_array(vectors, "the matrix of document vectors", np.float32))
        self.docnos.add(docnos, part.shape)
        if not np.isfinite(part).all():
            bad = docnos[int(np.flatnonzero(~np.isfinite(part).all(axis=1))[0])]
            raise InputError(f"the vector of document {bad!r} is not finite; encode with dtype='float32'")
        if len(part):
            self.dimensions = part.shape[1]
            self.longest = max(self.longest, float(np.linalg.norm(part.astype(np.float64), axis=1).max()))
        return part


def _npy_header(file: Any, shape: tuple[int, int]) -> None:
    np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})


def dots(query: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Compute inner products that depend only on the two vectors, not on the rest of the call.

    Args:
        query: Shape [d].
        documents: Shape [m, d].

    Returns:
        float64, shape [m]. (A matrix product in float32 may differ in the last digits with the number of rows.)
    """
    return np.einsum("ij,j->i", documents.astype(np.float64), query.astype(np.float64))


def rounding(queries: np.ndarray, longest: float) -> np.ndarray:
    r"""The largest error of a float32 inner product: :math:`\gamma_d \|q\| \|d\|` with :math:`\gamma_d = du/(1-du)`.

    It holds for every order of summation (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).

    Args:
        queries: Shape [n, d].
        longest: The largest norm of a document's vector.

    Returns:
        float64, shape [n].
    """
    unit = queries.shape[1] * 2.0**-24
    return unit / (1 - unit) * np.linalg.norm(queries.astype(np.float64), axis=1) * longest


def _best(query: np.ndarray, documents: np.ndarray, names: np.ndarray, rows: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k best of some documents by exact score, with ties by descending name."""
    scores = dots(query, documents[rows])
    order = np.lexsort((names[rows], scores))[::-1][:k]
    return rows[order], scores[order]


def top_k(
    queries: np.ndarray,
    documents: np.ndarray,
    names: np.ndarray,
    k: int,
    *,
    longest: float,
    query_rows: int = 1024,
    block_rows: int = 16384,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Search exactly by inner product, block by block.

    Blocks are compared by a float32 matrix product; documents that could be among the k best, given the product's rounding, are
    compared again in float64. The result is therefore that of a full sort in float64, for any size of the blocks. Memory holds at
    most ``query_rows * block_rows`` scores and a few times ``query_rows * k`` candidates.

    Args:
        queries: float32, shape [n, d].
        documents: float32, shape [m, d]; may be memory-mapped.
        names: Shape [m]; of documents with equal scores, the larger name comes first, as in trec_eval.
        k: Largest number of documents per query.
        longest: The largest norm of a document's vector.
        query_rows: How many queries are compared at once.
        block_rows: How many documents are compared at once.

    Yields:
        For each query the rows of its documents, best first, and their scores (float64); both of length min(k, m).
    """
    for first in range(0, len(queries), query_rows):
        yield from _search(queries[first : first + query_rows], documents, names, k, longest, block_rows)


def _search(
    queries: np.ndarray, documents: np.ndarray, names: np.ndarray, k: int, longest: float, block_rows: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    # Twice: the k-th best may be that much worse than it looks, and a candidate that much better. The third part covers
    # the rounding of norms and of this comparison itself.
    slack = 3 * rounding(queries, longest)
    floor = np.full(len(queries), -np.inf, dtype=np.float32)
    pool = (np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
    parts, size = [pool], 0
    for start in range(0, len(documents), block_rows):
        scores = queries @ documents[start : start + block_rows].T
        if start == 0 and scores.shape[1] > k:
            floor = np.partition(scores, -k, axis=1)[:, -k] - slack.astype(np.float32)
        query, row = np.nonzero(scores >= floor[:, None])
        parts.append((query, row + start, scores[query, row]))
        size += len(query)
        if size > 4 * k * len(queries):
            parts = [_pruned(parts, queries, documents, names, k, slack, floor)]
            size = len(parts[0][0])
    query, row, _ = _pruned(parts, queries, documents, names, k, slack, floor)
    bounds = np.searchsorted(query, np.arange(len(queries) + 1))
    for i in range(len(queries)):
        yield _best(queries[i], documents, names, row[bounds[i] : bounds[i + 1]], k)


def _pruned(
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]],
    queries: np.ndarray,
    documents: np.ndarray,
    names: np.ndarray,
    k: int,
    slack: np.ndarray,
    floor: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop candidates that cannot be among the k best, and raise (in place) the score that later ones must reach."""
    query, row, score = (np.concatenate(column) for column in zip(*parts))
    order = np.argsort(query, kind="stable")
    query, row, score = query[order], row[order], score[order]
    bounds = np.searchsorted(query, np.arange(len(queries) + 1))
    kept = []
    for i in range(len(queries)):
        mine = np.arange(bounds[i], bounds[i + 1])
        if len(mine) > k:
            floor[i] = np.partition(score[mine], -k)[-k] - slack[i]
            mine = mine[score[mine] >= floor[i]]
        if len(mine) > 2 * k:
            # So many (nearly) equal scores that only the exact comparison can thin them out.
            best, _ = _best(queries[i], documents, names, row[mine], k)
            mine = mine[np.isin(row[mine], best)]
        kept.append(mine)
    chosen = np.concatenate(kept)
    return query[chosen], row[chosen], score[chosen]
