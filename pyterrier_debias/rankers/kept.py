"""Encoded documents of a corpus, in memory or in a folder: the base of vectors and of postings."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.files import read_whole


class Kept(Saved):
    """One representation of each document, with the documents' names.

    A folder is read through a memory map, by any number of processes at once. Pickles of what a folder holds are its path only.

    Attributes:
        docnos: UTF-8 bytes (numpy dtype ``S``), shape [n], all different.
        probe: What the model that made them makes of a fixed text.
        folder: Where the arrays are mapped from; None for arrays in memory.
    """

    #: The ranker whose ``retriever`` makes such a folder.
    _MAKER: ClassVar[str]

    docnos: np.ndarray
    probe: Any
    folder: Path | None

    def _set_place(self, docnos: np.ndarray, folder: Path | None) -> None:
        """Set the attributes of this class, for ``__init__`` of a subclass."""
        self.docnos = docnos
        self.folder = folder
        if folder is not None:
            self.kept_in(folder)

    @classmethod
    @abstractmethod
    def gather(cls, batches: Iterable[Any], *, probe: Any) -> Self:
        """Keep what batches hold, pairs of docnos and representations, in memory; ``probe`` tells which model made them."""

    @classmethod
    @abstractmethod
    def write(cls, folder: str | Path, batches: Iterable[Any], *, probe: Any, overwrite: bool = False) -> Self:
        """Write the same to a folder, whole or not at all."""

    @classmethod
    @abstractmethod
    def _read(cls, folder: Path, meta: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether the files of a folder belong together, and what the constructor needs of them."""

    @classmethod
    def _mapped(cls, folder: Path) -> Self:
        """What a folder holds, as it lies there."""
        noun = cls.__name__.lower()
        try:
            whole, found = cls._read(folder, json.loads((folder / "meta.json").read_text(encoding="utf-8")))
        except Exception as error:  # numpy's reader raises whatever its parts do
            raise InputError(
                f"{folder} is not a folder of {noun} ({one_line(error)}); make one with {cls._MAKER}(...).retriever(corpus, "
                f"folder={str(folder)!r})"
            ) from error
        if not whole:
            raise InputError(f"{folder}: its files do not belong together; make the {noun} again in another folder")
        return cls(**found, folder=folder.resolve())  # type: ignore[call-arg]  # a subclass takes what it reads

    @abstractmethod
    def _content(self) -> tuple[Any, ...]:
        """What tells two contents of one folder apart."""

    @classmethod
    def load(cls, folder: str | Path) -> Self:  # type: ignore[override]  # PyTerrier calls it path
        """Map what a folder holds.

        Args:
            folder: A folder that :meth:`write` made.

        Returns:
            What it holds, compared with its checksums where this process has not done so (about a second for each gigabyte), and
            not kept in memory.

        Raises:
            InputError: If the folder holds something else, or not all of it as it was written.
        """
        return read_whole(folder, lambda: cls._mapped(Path(folder).expanduser()))

    def saved_state(self) -> Any:
        """The object itself: what a folder holds does not change."""
        return self

    def __len__(self) -> int:
        """How many documents there are."""
        return len(self.docnos)

    def __eq__(self, other: object) -> bool:
        """Equal folder with equal content; what is in memory is equal to itself only."""
        if not isinstance(other, type(self)):
            return NotImplemented
        if self.folder is None:
            return self is other
        return (self.folder, len(self), *self._content()) == (other.folder, len(other), *other._content())

    def __hash__(self) -> int:
        """Hash of the folder, or of the object where there is none."""
        return hash(self.folder) if self.folder is not None else id(self)

    def __getstate__(self) -> dict[str, Any]:
        """A folder is pickled as its path; the arrays in memory are pickled as they are."""
        return self.__dict__.copy() if self.folder is None else {"folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the folder again; whoever opened it first compared it with its checksums."""
        self.__dict__.update(state if state["folder"] is None else vars(self._mapped(state["folder"])))


class Docnos:
    """Takes in the names of a corpus batch by batch; none may occur twice, and each has a representation of one length."""

    def __init__(self) -> None:
        self._names: dict[bytes, None] = {}
        self._width: int | None = None

    def add(self, docnos: Sequence[str], shape: tuple[int, ...]) -> None:
        """Take in the names of a batch.

        Args:
            docnos: n names.
            shape: The shape of their representations: n rows, as wide as those of the batches before.

        Raises:
            InputError: For a name that occurs twice, or representations that are not the names' own.
        """
        self._check_shape(len(docnos), shape)
        for docno in docnos:
            name = docno.encode("utf-8", "surrogatepass")
            if name in self._names:
                raise InputError(f"docno {docno!r} occurs twice in the corpus; give each document a name of its own")
            self._names[name] = None

    def _check_shape(self, names: int, shape: tuple[int, ...]) -> None:
        fits = len(shape) == 2 and shape[0] == names
        if names and fits:
            self._width = shape[1] if self._width is None else self._width
            fits = shape[1] == self._width
        if not fits:
            raise InputError(
                f"a batch of {names} documents has representations of shape {shape}; give one row for each document, all rows of "
                f"one length"
            )

    def array(self) -> np.ndarray:
        """All names as UTF-8 bytes; there must be one."""
        if not self._names:
            raise InputError("the corpus holds no documents; there is nothing to retrieve from")
        return np.array(list(self._names), dtype=np.bytes_)
