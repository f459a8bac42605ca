"""What tests over Terrier share: small indexes on disk, each made once a session."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyterrier as pt
import pytest

from pyterrier_debias import PlantedCollection


def terrier_index(folder: Path, documents: Iterable[dict[str, Any]], **options: Any) -> pt.terrier.TerrierIndex:
    """An index with positions and stored texts.

    Args:
        folder: A folder that does not exist yet.
        documents: Dictionaries with ``docno`` and ``text``.
        options: For ``IterDictIndexer``; docnos of 60 and texts of 8,192 characters are stored whole unless it says otherwise.
    """
    given = {"meta": {"docno": 60, "text": 8_192}, "blocks": True, **options}
    pt.IterDictIndexer(str(folder), **given).index(documents)
    return pt.terrier.TerrierIndex(str(folder))


@pytest.fixture(scope="session")
def make_index(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., pt.terrier.TerrierIndex]:
    """Makes an index of documents in a folder of its own."""
    return lambda documents, **options: terrier_index(tmp_path_factory.mktemp("terrier") / "index", documents, **options)


@pytest.fixture(scope="session")
def planted() -> PlantedCollection:
    """A small planted collection."""
    return PlantedCollection(seed=3, topics=20, passages=200)


@pytest.fixture(scope="session")
def planted_index(planted: PlantedCollection, make_index: Callable[..., pt.terrier.TerrierIndex]) -> pt.terrier.TerrierIndex:
    """Terrier's index of it."""
    return make_index(planted.get_corpus_iter(verbose=False))
