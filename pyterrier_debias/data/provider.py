"""This package's datasets under PyTerrier's names: ``pt.get_dataset('debias:planted')``."""

from __future__ import annotations

import pyterrier as pt


class DebiasDatasets(pt.datasets.DatasetProvider):
    """The provider of ``pt.get_dataset`` names that begin with ``debias:``.

    The only name is ``planted``, the planted collection, also with options: ``debias:planted/seed=3,topics=20``. For folders and
    files, use :func:`~pyterrier_debias.open_dataset`.

    Example:
        >>> DebiasDatasets().get_dataset("planted/seed=1,topics=10,passages=100").get_results().columns.tolist()
        ['qid', 'query', 'docno', 'score', 'rank']
    """

    def get_dataset(self, name: str) -> pt.datasets.Dataset:
        """Make a collection.

        Args:
            name: The name without ``debias:``.

        Returns:
            The collection; a new object each time.

        Raises:
            KeyError: For another name.
            InputError: For options that cannot be used.
        """
        from pyterrier_debias.data.planted import PlantedCollection

        return PlantedCollection.named(name)

    def list_dataset_names(self) -> list[str]:
        """The names without options."""
        return ["planted"]
