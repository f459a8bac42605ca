"""Tied weights, which a checkpoint stores once and a model uses in several places, when several threads load models.

Imported only when transformers is used. While transformers builds a model that it loads, it replaces
``PreTrainedModel.tie_weights`` for the whole process. If two threads load at the same time, the later one mistakes the other's
replacement for the original and leaves it in place permanently: the tied weights of models that are loaded afterwards stay on the
device ``meta``, without values. This library's own loads never overlap (see :func:`~pyterrier_debias.rankers.base.quiet`), but a
user's threads may.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from transformers import PreTrainedModel

from pyterrier_debias.core.errors import InputError

logger = logging.getLogger(__name__)

#: Seconds within which another thread builds its model; a replacement that is in place longer was left behind.
_PATIENCE = 5.0


def _found() -> Callable[..., None] | None:
    """The present method, or None if it is the replacement."""
    method = PreTrainedModel.tie_weights
    return None if "no_tie_weights" in method.__qualname__ else method


#: transformers' own method at the time when this module was imported, which is usually before the first load.
_own = _found()


def restore(patience: float | None = None) -> None:
    """Wait until no other thread builds a model, and restore transformers' method if threads have lost it.

    Args:
        patience: Largest number of seconds to wait; None for as long as building a large model takes.

    Example:
        >>> restore()      # nothing is lost: nothing happens
    """
    global _own
    end = time.monotonic() + (_PATIENCE if patience is None else patience)
    while (found := _found()) is None and time.monotonic() < end:
        time.sleep(0.01)
    if found is not None:
        _own = found
    elif _own is not None:
        PreTrainedModel.tie_weights = _own  # type: ignore[method-assign]  # transformers itself exchanges it so
        logger.warning(
            "models were loaded in several threads at the same time, after which transformers no longer tied weights; this is "
            "repaired, but models that were loaded in the meantime may lack weights: load them again, one after another"
        )


def check_whole(module: Any, model: Any, name: str) -> None:
    """Refuse a module with weights that have no values.

    Args:
        module: A torch module that was just loaded.
        model: Its source, named in the message.
        name: The stage that loads; named in the message.

    Raises:
        InputError: If a weight or buffer is on the device ``meta``.

    Example:
        >>> import torch
        >>> check_whole(torch.nn.Linear(2, 1), "a/model", "CrossEncoder")
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    empty = [which for which, tensor in tensors if tensor.device.type == "meta"]
    if empty:
        raise InputError(
            f"{name}: model {str(model)!r} has {len(empty)} weights without values after loading ({', '.join(empty[:3])}), which "
            f"happens if another thread loads a model with transformers at the same time; load models one after another, "
            f"and try again in a new process"
        )
