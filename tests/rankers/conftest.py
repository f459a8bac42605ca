"""Model folders that the tests of rankers share, built once a session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny_models


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Callable[..., str]:
    """``tiny('build', architecture='roberta')`` gives a folder; the same request gives the same folder."""
    made: dict[str, str] = {}

    def get(builder: str = "build", **options) -> str:
        key = f"{builder}{sorted(options.items())}"
        if key not in made:
            folder = Path(tmp_path_factory.mktemp("models")) / builder
            made[key] = str(getattr(tiny_models, builder)(folder, **options))
        return made[key]

    return get


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny models are slowed down by a second thread, most of all where several test processes share the processor."""
    import torch

    torch.set_num_threads(1)
