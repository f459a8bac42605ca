"""Vectors of the terms of passages, kept in a folder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import whole_folder

_FORMAT = 1

DTYPES = ("float32", "float16")

#: Names of some documents, and one matrix [terms, d] for each of them.
Batch = tuple[list[str], list[np.ndarray]]


class TermStore:
    """Matrices of passages, one row a term, in memory or memory-mapped from a folder.

    A folder holds ``vectors.bin`` (all matrices one after the other), ``starts.npy`` (each passage's first row, and one past the
    last), ``docnos.npy`` (UTF-8 bytes) and ``meta.json``. Any number of processes may read it at once. Pickles of a folder's
    store hold its path only.

    When not to use it: for one vector a passage, see :class:`~pyterrier_debias.rankers.vectors.Vectors`.

    Example:
        >>> store = TermStore.make([(["d1", "d2"], [np.eye(2), np.empty((0, 2))])])
        >>> store, store.matrix(store.rows(["d1"])[0]).tolist()
        (<TermStore of 2 passages, 2 terms, in memory>, [[1.0, 0.0], [0.0, 1.0]])
    """

    def __init__(
        self, vectors: np.ndarray, starts: np.ndarray, docnos: np.ndarray, probe: tuple[float, ...], folder: Path | None = None
    ):
        """
        Args:
            vectors: Rows of all passages, shape [terms, d].
            starts: Where each passage starts, and the number of terms, shape [n + 1].
            docnos: UTF-8 bytes (numpy dtype ``S``), shape [n].
            probe: What the model makes of a fixed text.
            folder: Where the arrays are mapped from; None for arrays in memory.
        """
        self.vectors = vectors
        self.starts = starts
        self.docnos = docnos
        self.probe = probe
        self.folder = folder
        self._order: np.ndarray | None = None

    @classmethod
    def make(
        cls,
        batches: Iterable[Batch],
        *,
        folder: str | Path | None = None,
        dtype: str = "float32",
        probe: Iterable[float] = (),
        overwrite: bool = False,
    ) -> TermStore:
        """Keep matrices, in memory or in a folder (whole or not at all, one batch in memory at a time).

        Args:
            batches: Pairs of docnos and matrices, float, shape [terms, d].
            folder: The folder to make; None for memory.
            dtype: ``'float32'`` or ``'float16'``.
            probe: See the constructor.
            overwrite: Whether what was saved there before may be replaced; files that the package did not write stay.

        Returns:
            The store.

        Raises:
            InputError: For no documents at all, a docno that occurs twice, a vector that is not finite, or a folder that exists
                already or cannot be written.
        """
        if dtype not in DTYPES:
            raise InputError(f"dtype={dtype!r} is not known; use one of {', '.join(DTYPES)}")
        probe, index = tuple(float(value) for value in probe), _Index()
        if folder is None:
            parts = [index.add(*batch, dtype) for batch in batches]
            starts, docnos = index.arrays()
            return cls(np.concatenate(parts), starts, docnos, probe)
        with whole_folder(folder, holds="vectors of passages' terms", overwrite=overwrite) as scratch:
            with open(scratch / "vectors.bin", "wb") as file:
                for batch in batches:
                    file.write(index.add(*batch, dtype).tobytes())
            starts, docnos = index.arrays()
            np.save(scratch / "starts.npy", starts)
            np.save(scratch / "docnos.npy", docnos)
            meta = {"format": _FORMAT, "dtype": dtype, "dimensions": index.dimensions, "probe": list(probe)}
            (scratch / "meta.json").write_text(json.dumps(meta), encoding="utf-8")
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | Path) -> TermStore:
        """Map the matrices of a folder.

        Args:
            folder: A folder that :meth:`make` wrote.

        Returns:
            The store; vectors are not read into memory yet.

        Raises:
            InputError: Where the folder does not hold matrices, or not whole ones.
        """
        folder = Path(folder)
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            starts, docnos = np.load(folder / "starts.npy"), np.load(folder / "docnos.npy", mmap_mode="r")
            shape, dtype = (int(starts[-1]), int(meta["dimensions"])), np.dtype(meta["dtype"])
            size = (folder / "vectors.bin").stat().st_size
            whole = meta["format"] == _FORMAT and size == shape[0] * shape[1] * dtype.itemsize and len(starts) == len(docnos) + 1
            probe = tuple(meta["probe"])
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(
                f"{folder} is no folder of passages' vectors ({type(error).__name__}); make one with TK(...).precomputed(corpus, "
                f"folder={str(folder)!r})"
            ) from error
        if not whole:
            raise InputError(f"{folder}: its files do not belong together; make the vectors again in another folder")
        # A file without bytes cannot be mapped.
        vectors = np.memmap(folder / "vectors.bin", dtype, mode="r", shape=shape) if size else np.empty(shape, dtype)
        return cls(vectors, starts, docnos, probe, folder.resolve())

    @property
    def dimensions(self) -> int:
        """How long a vector is."""
        return self.vectors.shape[1]

    @property
    def lengths(self) -> np.ndarray:
        """Terms of each passage, shape [n]."""
        return np.diff(self.starts)

    def __len__(self) -> int:
        """How many passages there are."""
        return len(self.docnos)

    def rows(self, docnos: list[str]) -> np.ndarray:
        """Where passages stand in the store.

        Args:
            docnos: Their names.

        Returns:
            int64, one for each.

        Raises:
            InputError: For a passage that is not in the store.
        """
        if self._order is None:
            self._order = np.argsort(self.docnos, kind="stable")
        wanted = np.array([docno.encode("utf-8", "surrogatepass") for docno in docnos], dtype=np.bytes_)
        at = np.minimum(np.searchsorted(self.docnos, wanted, sorter=self._order), len(self) - 1)
        found = self._order[at]
        missing = self.docnos[found] != wanted
        if missing.any():
            raise InputError(
                f"docno {docnos[int(np.argmax(missing))]!r} has no stored vectors ({int(missing.sum())} of {len(docnos)} rows); "
                f"make them with TK(...).precomputed over the whole collection"
            )
        return found

    def matrix(self, row: int) -> np.ndarray:
        """The vectors of one passage, float32, shape [terms, d], in memory of their own."""
        return np.array(self.vectors[self.starts[row] : self.starts[row + 1]], dtype=np.float32)

    def __eq__(self, other: object) -> bool:
        """Equal folder with equal content; matrices in memory are equal to themselves only."""
        if not isinstance(other, TermStore):
            return NotImplemented
        if self.folder is None:
            return self is other
        return (self.folder, self.vectors.shape, self.probe) == (other.folder, other.vectors.shape, other.probe)

    def __hash__(self) -> int:
        """Hash of the folder, or of the object where there is none."""
        return hash(self.folder) if self.folder is not None else id(self)

    def __repr__(self) -> str:
        """Sizes and place."""
        return f"<TermStore of {len(self)} passages, {len(self.vectors)} terms, in {self.folder or 'memory'}>"

    def __getstate__(self) -> dict[str, Any]:
        """A folder is pickled as its path; the arrays in memory are pickled as they are."""
        return self.__dict__.copy() if self.folder is None else {"folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the folder again."""
        self.__dict__.update(state if state["folder"] is None else vars(TermStore.open(state["folder"])))


class _Index:
    """Names and lengths of what is stored so far."""

    def __init__(self) -> None:
        self.docnos: dict[bytes, None] = {}
        self.lengths: list[int] = []
        self.dimensions = 0

    def add(self, docnos: list[str], matrices: list[np.ndarray], dtype: str) -> np.ndarray:
        for docno, matrix in zip(docnos, matrices):
            name = docno.encode("utf-8", "surrogatepass")
            if name in self.docnos:
                raise InputError(f"docno {docno!r} occurs twice in the corpus; give each document a name of its own")
            if not np.isfinite(matrix).all():
                raise InputError(f"the vectors of document {docno!r} are not finite; encode with dtype='float32'")
            self.docnos[name] = None
            self.lengths.append(len(matrix))
            self.dimensions = matrix.shape[1]
        return np.concatenate(matrices).astype(dtype)

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        if not self.docnos:
            raise InputError("the corpus holds no documents; there is nothing to store")
        return np.concatenate([[0], np.cumsum(self.lengths)]), np.array(list(self.docnos), dtype=np.bytes_)
