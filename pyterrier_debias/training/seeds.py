"""New weights from a seed, without changing the program's random numbers. torch is imported inside functions."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyterrier_debias.core.errors import check_number

#: Held by whoever trains, loads weights or draws new ones: random states belong to the whole process. It is taken before a
#: ranker's own lock, never inside it.
RANDOM = threading.RLock()


def check_seed(where: str, seed: Any) -> None:
    """Refuse seeds that not every random-number generator accepts; NumPy's takes 32 bits.

    Args:
        where: The function or stage that is named in the message.
        seed: The seed.

    Raises:
        InputError: If it is not a whole number from 0 to 2**32 - 1.
    """
    check_number(where, "seed", seed, least=0, most=2**32 - 1, whole=True)


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore Python's random state, and torch's on the CPU, when this context ends; other threads that train or load wait.

    Example:
        >>> import torch
        >>> before = torch.get_rng_state()
        >>> with random_state_kept():
        ...     layer = torch.nn.Linear(1, 1)
        >>> torch.equal(torch.get_rng_state(), before)
        True

    When not to use it: for weights that are created on a GPU, which has its own generator.
    """
    import torch

    with RANDOM, torch.random.fork_rng(devices=[]):
        python = random.getstate()  # libraries draw from it when they are imported
        try:
            yield
        finally:
            random.setstate(python)


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Draw weights on the CPU from a seed while this context lasts; the program's random state is restored afterwards.

    A thread waits here while another one trains, or draws weights.

    Args:
        seed: The seed.

    Example:
        >>> import torch
        >>> def weights():
        ...     with drawn_from(1):
        ...         return torch.nn.Linear(1, 1).weight
        >>> bool(weights() == weights())
        True

    When not to use it: for weights that are created on a GPU, which has its own generator; this context does not affect it.
    """
    import torch

    with random_state_kept():
        # Not torch.manual_seed, which would seed every GPU's generator, and nothing puts those back.
        torch.default_generator.manual_seed(seed)
        yield
