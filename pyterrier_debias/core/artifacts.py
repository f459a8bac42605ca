"""Folders that this package saves, as PyTerrier artifacts for ``pt.Artifact.load``, ``to_hf`` and ``from_hf``.

PyTerrier finds the class by the file :data:`META` in the folder and by the entry points of the group ``pyterrier.artifact``.
Folders that were written before this file existed are recognised by their list of files, see :func:`told_by_files`.
"""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import MANIFEST, is_unfinished, read_whole, whole_folder, write_whole
from pyterrier_debias.core.stage import same_value

#: The file by which PyTerrier knows what a folder holds.
META = "pt_meta.json"
#: Documentation of a folder, which is the user's.
README = "README.md"
#: Bytes that PyTerrier reads from a package at a time, and those of the mark that ends it.
_READ, _END_MARK = 8192, 4

#: Files of ours that name a class, to the name's key; the first that is there counts.
_NAMED_IN = {"pyterrier_debias_stage.json": "stage", "pyterrier_debias_training.json": "ranker"}
#: What a folder holds, in the words of its list of files, to the type and the class.
_HOLDS = {
    "vectors of documents": ("dense_index", "Vectors"),
    "MATS sums": ("attributions", "MATSAccumulator"),
    "a classifier of gender": ("query_classifier", "GenderClassifier"),
    "an audit": ("bias_audit", "AuditResult"),
}


def format_of(name: str, package: str = "pyterrier_debias") -> str:
    """The format of an artifact: the package and the class, spelt like PyTerrier's own formats.

    Args:
        name: The class's name.
        package: The package of the class.

    Returns:
        The format.

    Example:
        >>> format_of("CETReranker"), format_of("T5Reranker"), format_of("MyRanker", "other_package")
        ('debias_cet_reranker', 'debias_t5_reranker', 'other_package_my_ranker')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return f"{package.removeprefix('pyterrier_')}_{words}"


class Saved(pt.Artifact):
    """A class whose objects are written to folders by ``save`` and opened by ``load``; a PyTerrier artifact.

    The type is the class's ``ARTIFACT_TYPE``, the format its package and name (:func:`format_of`). A class of another package
    joins by an entry point ``type.format = module:Class.load`` in the group ``pyterrier.artifact``.
    """

    ARTIFACT_TYPE: ClassVar[str]
    ARTIFACT_FORMAT: ClassVar[str]
    ARTIFACT_PACKAGE_HINT: ClassVar[str]
    #: A stage that calls another one is drawn with it.
    ARTIFACT_SCHEMATIC_SHOW_AS_TRANSFORMER: ClassVar[bool] = True

    #: The folder that it was opened from or last saved to.
    path: Any = pt.Artifact.NO_PATH

    def __init__(self) -> None:
        super(pt.Artifact, self).__init__()  # which would ask for a path

    def __init_subclass__(cls, **options: Any) -> None:
        """Set the format of the class."""
        super().__init_subclass__(**options)
        package = cls.__module__.partition(".")[0]
        cls.ARTIFACT_FORMAT, cls.ARTIFACT_PACKAGE_HINT = format_of(cls.__name__, package), package

    @abstractmethod
    def saved_state(self) -> Any:
        """The state that :meth:`build_package` compares with the folder: equal for the saved and the opened object."""

    @classmethod
    def write_meta(cls, folder: Path) -> None:
        """Write :data:`META` into a folder that is about to appear."""
        meta = {"type": cls.ARTIFACT_TYPE, "format": cls.ARTIFACT_FORMAT, "package_hint": cls.ARTIFACT_PACKAGE_HINT}
        write_whole(folder / META, json.dumps(meta, indent=1) + "\n")

    @contextmanager
    def saving(self, folder: str | Path, *, holds: str, overwrite: bool) -> Iterator[Path]:
        """Like :func:`~pyterrier_debias.core.files.whole_folder`, and adds :data:`META` to what the block writes.

        Args:
            folder: The folder to make.
            holds: What is written, in words.
            overwrite: Whether an earlier result in the folder may be replaced.

        Yields:
            A temporary folder.

        Raises:
            InputError: See ``whole_folder``.
        """
        with whole_folder(folder, holds=holds, overwrite=overwrite) as scratch:
            yield scratch
            self.write_meta(scratch)
        self.kept_in(folder)

    def kept_in(self, folder: str | Path) -> None:
        """Remember the folder in which this object is saved, unless it is a temporary one."""
        place = Path(folder).expanduser().resolve()
        if not any(map(is_unfinished, (place, *place.parents))):
            self.path = place

    # Packages

    def build_package(self, package_path: str | None = None, **options: Any) -> str:
        """Pack the folder into one file, as ``to_hf``, ``to_zenodo`` and ``to_p2p`` do.

        The folder is opened again first, to make sure that it agrees with the object in memory and is undamaged. If PyTerrier
        would refuse a package of this size for its checksum, ``./`` is put before the names of its files.

        Args:
            package_path: The file; by default the name of the folder followed by ``.tar.lz4``.
            options: See ``pt.Artifact.build_package``.

        Returns:
            The file.

        Raises:
            InputError: If nothing was saved or opened, weights or options have changed since, or the folder is damaged.
        """
        name, folder = type(self).__name__, self.path
        if not isinstance(folder, Path):
            raise InputError(f"{name}: there is no folder to pack; call save(folder) first")

        def pack() -> str:
            opened: Any = type(self).load(str(folder))
            if not same_value(self.saved_state(), opened.saved_state()):
                raise InputError(f"{name}: it differs from what {folder} holds; call save(folder) first")
            package = super(Saved, self).build_package(package_path, **options)
            if _ends_unread(package):
                shifted = [(name if name == META else f"./{name}", file) for name, file in self._package_files()]
                package = _Files(folder, shifted).build_package(package_path, **options)
            return package

        return read_whole(folder, pack)

    def _package_files(self) -> Iterator[tuple[str, Any]]:
        """PyTerrier's list of what is packed, without locks and unfinished files."""
        for name, file in super()._package_files():
            if not any(is_unfinished(Path(part)) for part in Path(name).parts):
                yield name, file

    def _hf_readme(self, **about: Any) -> str | None:
        """PyTerrier's first draft of a page for the hub, with what the folder's own says behind it."""
        draft, own = super()._hf_readme(**about), Path(str(self.path)) / README
        if draft is None or not own.is_file():
            return draft
        from huggingface_hub import ModelCard

        return f"{draft}\n{ModelCard(own.read_text(encoding='utf-8'), ignore_metadata_errors=True).text.lstrip()}"


class _Files(pt.Artifact):
    """A folder whose files have other names in a package."""

    def __init__(self, folder: Path, files: Sequence[tuple[str, Any]]) -> None:
        super().__init__(folder)
        self._files = files

    def _package_files(self) -> Iterator[tuple[str, Any]]:
        yield from self._files


def _ends_unread(package: str) -> bool:
    """Whether ``pt.Artifact.from_url`` would stop before the end of a package, and refuse it for its checksum.

    It stops at the end of the last file. If the end mark alone is left for the next read, the checksum misses its bytes.
    """
    segments = json.loads(Path(f"{package}.json").read_text(encoding="utf-8")).get("segments")
    files = [package] if segments is None else [f"{package}.{segment['idx']}" for segment in segments]
    return 0 < sum(Path(file).stat().st_size for file in files) % _READ <= _END_MARK


def told_by_files(path: str, names: Sequence[str]) -> dict[str, str] | None:
    """The kind of artifact in a folder without :data:`META`: the entry point of PyTerrier's ``metadata_adapter``.

    Args:
        path: The folder.
        names: The files in it.

    Returns:
        Type, format and package, or None if this package did not write the folder.
    """
    folder = Path(path).expanduser()
    try:
        for file, key in _NAMED_IN.items():
            if file in names:
                return _meta("ranker", str(json.loads((folder / file).read_text(encoding="utf-8"))[key]))
        if MANIFEST in names:
            holds = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["holds"]
            return _meta(*_HOLDS[holds]) if holds in _HOLDS else None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return None


def _meta(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "format": format_of(name), "package_hint": "pyterrier_debias"}
