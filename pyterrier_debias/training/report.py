"""The report of a training run, in memory and with the saved ranker."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.files import read_whole

#: The library's own file in a ranker's folder.
ABOUT = "pyterrier_debias_training.json"
#: A description of such a folder.
HOLDS = "a ranker"

_PACKAGES = ("pyterrier-debias", "pyterrier", "torch", "transformers", "sentence-transformers", "accelerate", "numpy")


@dataclass
class TrainingReport:
    """The report of a training run: options, data, log and results of validation; rankers keep it in ``training_report``.

    Attributes:
        started_from: The fingerprint of the weights with which training began.
        data: A hash of queries, passages and grades.
        counts: How much was used for training and how much was left out.
        options: The options of :class:`~pyterrier_debias.Training`.
        steps: Number of steps.
        best_step: The step whose weights were kept; None if the last ones were.
        metric: The measure on validation topics; None without them.
        best: Mean of the metric at ``best_step``.
        depth: The reranking depth at which the metric was best; None if all candidates were reranked.
        validation: Values of the metric at ``best_step``, by qid.
        history: The log: dictionaries with ``step``. After a resume, the first entry of ``loss`` and the last one of
            ``train_loss`` and ``train_runtime`` cover only the steps since then.
        seconds: Duration; for a resumed run, including the time until the checkpoint.
        versions: Versions of Python and the packages involved.
    """

    started_from: str
    data: str
    counts: dict[str, int]
    options: dict[str, Any]
    steps: int
    best_step: int | None
    metric: str | None
    best: float | None
    depth: int | None
    validation: dict[str, float]
    history: list[dict[str, Any]]
    seconds: float
    versions: dict[str, str] = field(default_factory=lambda: versions())

    def to_json(self) -> dict[str, Any]:
        """The report as JSON-compatible values."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> TrainingReport:
        """Restore a report from the output of :meth:`to_json`."""
        known = {f.name for f in fields(cls)}
        return cls(**{name: value for name, value in content.items() if name in known})


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that affect the result of training."""
    return {"python": platform.python_version(), **package_versions(_PACKAGES)}


def package_versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of the given packages that are installed, by package name."""
    return {package: found for package in packages if (found := _version(package)) is not None}


@cache  # each reads a file of the package
def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def read_about(folder: str | Path, stage: str) -> dict[str, Any]:
    """Read the library's own file in a ranker's folder.

    Args:
        folder: The folder.
        stage: The calling stage, named in messages.

    Returns:
        Its content; empty if there is none.

    Raises:
        InputError: If the file is damaged.
    """
    file = Path(folder).expanduser() / ABOUT
    if not file.is_file():
        return {}
    try:
        return read_whole(file.parent, lambda: json.loads(file.read_text(encoding="utf-8")), only=ABOUT)
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"{stage}: {file} cannot be read ({error}); save the ranker again") from error
