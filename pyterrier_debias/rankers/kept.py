"""Encoded documents of a corpus, in memory or in a folder: the base class of vectors and of postings."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.files import content_of, read_whole


class Kept(Saved):
    """Base class of stored documents: one representation of each document, with its docno.

    A folder is read through a memory map, by any number of processes at once. A pickle of a folder's content is only its path
    and a checksum.

    Attributes:
        docnos: UTF-8 bytes (NumPy dtype ``S``), shape [n], all different.
        probe: The representation of a fixed text by the model of the documents.
        folder: The folder from which the arrays are mapped; None for arrays in memory.
        content: A checksum of the folder's files; empty for arrays in memory.
    """

    #: The ranker whose ``retriever`` writes such a folder.
    _MAKER: ClassVar[str]
    #: The arrays of a folder, one file each.
    _ARRAYS: ClassVar[tuple[str, ...]]

    docnos: np.ndarray
    probe: Any
    folder: Path | None
    content: str

    def _set_place(self, docnos: np.ndarray, folder: Path | None) -> None:
        """Set the attributes of this class, for ``__init__`` of a subclass."""
        self.docnos = docnos
        self.folder = folder
        self.content = "" if folder is None else content_of(folder, ["meta.json", *(f"{name}.npy" for name in self._ARRAYS)])
        if folder is not None:
            self.kept_in(folder)

    @classmethod
    @abstractmethod
    def gather(cls, batches: Iterable[Any], *, probe: Any) -> Self:
        """Collect batches of docnos and representations in memory; ``probe`` identifies the model that made them."""

    @classmethod
    @abstractmethod
    def write(cls, folder: str | Path, batches: Iterable[Any], *, probe: Any, overwrite: bool = False) -> Self:
        """Write such batches to a folder, completely or not at all."""

    @classmethod
    @abstractmethod
    def _read(cls, folder: Path, meta: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether the files of a folder belong together, and the arguments of the constructor."""

    @classmethod
    def _mapped(cls, folder: Path) -> Self:
        """The present content of a folder."""
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

    @classmethod
    def load(cls, folder: str | Path) -> Self:  # type: ignore[override]  # PyTerrier calls it path
        """Open a folder through a memory map.

        Args:
            folder: A folder that :meth:`write` made.

        Returns:
            Its content, which is not kept in memory. The first time in a process, it is compared with its checksums (about a
            second for each gigabyte).

        Raises:
            InputError: If the folder contains something else, or a part of it is missing or changed.
        """
        return read_whole(folder, lambda: cls._mapped(Path(folder).expanduser()))

    def saved_state(self) -> Any:
        """The object itself, because the content of a folder does not change."""
        return self

    def __len__(self) -> int:
        """The number of documents."""
        return len(self.docnos)

    def __eq__(self, other: object) -> bool:
        """Whether both are the same folder with the same content; an object in memory equals only itself."""
        if not isinstance(other, type(self)):
            return NotImplemented
        if self.folder is None:
            return self is other
        return (self.folder, self.content) == (other.folder, other.content)

    def __hash__(self) -> int:
        """Hash of the folder, or of the object if there is none."""
        return hash(self.folder) if self.folder is not None else id(self)

    def __getstate__(self) -> dict[str, Any]:
        """The path and the checksum of a folder; arrays in memory are pickled themselves."""
        return self.__dict__.copy() if self.folder is None else {"folder": self.folder, "content": self.content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Map the folder again, without comparing it with its checksums, which was done when it was first opened.

        Raises:
            InputError: If the folder's content has been replaced since.
        """
        folder = state["folder"]
        if folder is not None:
            present = self._mapped(folder)
            if state.get("content", present.content) != present.content:
                noun = type(self).__name__.lower()
                raise InputError(
                    f"{self._MAKER}: {folder} holds other {noun} now than when they were pickled; open the folder again for "
                    f"its present {noun}, and keep each corpus in a folder of its own"
                )
            state = vars(present)
        self.__dict__.update(state)


class Docnos:
    """Collects the docnos of a corpus by batches, and checks that they are distinct and their representations equally long."""

    def __init__(self) -> None:
        self._names: dict[bytes, None] = {}
        self._width: int | None = None

    def add(self, docnos: Sequence[str], shape: tuple[int, ...]) -> None:
        """Add the docnos of a batch.

        Args:
            docnos: n docnos.
            shape: The shape of their representations: n rows, as wide as those of earlier batches.

        Raises:
            InputError: For a docno that occurs twice, or representations of another shape.
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
                f"equal length"
            )

    def array(self) -> np.ndarray:
        """All docnos as UTF-8 bytes; there must be at least one."""
        if not self._names:
            raise InputError("the corpus holds no documents; there is nothing to retrieve from")
        return np.array(list(self._names), dtype=np.bytes_)
