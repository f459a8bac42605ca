"""The systems that an audit examines where the user names models and runs, or nothing at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pyterrier_debias.core.systems import System
from pyterrier_debias.data.planted import PlantedCollection
from pyterrier_debias.report.first_stage import first_stage, run_stage, terrier_stage
from pyterrier_debias.report.models import DEFAULT_MODEL, Model, find_model


def default_systems(
    dataset: Any,
    folder: Path,
    *,
    models: Sequence[Model] | None = None,
    runs: Mapping[str, pd.DataFrame] | None = None,
    weighting_models: Sequence[str] = (),
    depth: int = 100,
    **ranker_options: Any,
) -> list[System]:
    """First stages alone, and each of them followed by each model.

    Args:
        dataset: The collection.
        folder: An existing folder for indexes; it must last as long as the systems are used.
        models: The models; None means all-MiniLM-L6-v2, an empty list none.
        runs: Name to result frame: used in place of a retriever. Where there are none, the first stage is the collection's
            BM25 run or BM25 through PISA; see :func:`pyterrier_debias.report.first_stage.first_stage`.
        weighting_models: Of Terrier, over the index of a :class:`~pyterrier_debias.TerrierCollection`; used in place of runs.
        depth: How many candidates the models rerank.
        ranker_options: Options of the rankers, such as ``device`` and ``dtype``.

    Returns:
        The systems.

    Raises:
        InputError: Where there are no candidates, or the default model is not installed.
    """
    if models is None:
        models = [find_model(DEFAULT_MODEL)]
    if weighting_models:
        stages = [terrier_stage(dataset, model, depth=depth) for model in weighting_models]
    elif runs:
        stages = [run_stage(name, run) for name, run in runs.items()]
    else:
        stages = [first_stage(dataset, folder, depth=depth, complete=isinstance(dataset, PlantedCollection))]
    rankers = [(name, model.ranker(**ranker_options)) for name, model in _distinct_names(models).items()]
    systems = []
    for stage in stages:
        systems.append(System(stage.name, stage.retriever, None, stage.indexer, stage.note))
        for name, ranker in rankers:
            systems.append(System(f"{stage.name} >> {name}", stage.retriever >> dataset.text_loader(), ranker))
    return systems


def _distinct_names(models: Sequence[Model]) -> dict[str, Model]:
    """Models by their short names, or by their whole sources where two short names are the same."""
    short = [model.name for model in models]
    return {model.name if short.count(model.name) == 1 else f"{model.kind}:{model.source}": model for model in models}
