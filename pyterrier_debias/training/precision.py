"""Number formats on GPUs: the default one, and TF32. torch is imported inside functions."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

#: torch has one switch for TF32 for the whole process.
_LOCK = threading.RLock()

#: The largest number of processes that prepare batches for a GPU.
_MOST_WORKERS = 4


def default_precision(device: torch.device | None = None) -> str:
    """The default number format of training.

    Args:
        device: The device; None for the GPU that a ranker would pick, if there is one.

    Returns:
        ``'bfloat16'`` on a CUDA device that has it (NVIDIA's from Ampere on, compute capability 8.0), else ``'float32'``.
    """
    import torch

    if device is None:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type != "cuda":
        return "float32"
    has_it = torch.version.hip is not None or torch.cuda.get_device_capability(device) >= (8, 0)
    return "bfloat16" if has_it else "float32"


def default_workers(device: torch.device) -> int:
    """The default number of processes that prepare batches.

    Args:
        device: The device on which training computes.

    Returns:
        0 on the CPU, whose cores are busy with training; on a GPU up to four, and at most half of the cores of this training
        process.
    """
    if device.type != "cuda":
        return 0
    cores = (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(_MOST_WORKERS, cores // 2)


@contextmanager
def tf32(asked: bool) -> Iterator[None]:
    """Let CUDA multiply float32 matrices with a 10-bit mantissa (TF32) while this context lasts.

    The switch belongs to the process. Threads that enter this context wait for each other, with or without TF32; a thread that
    multiplies on the GPU outside of any context is affected in the meantime. On other devices nothing changes.

    Args:
        asked: Whether to use TF32; False for full float32, torch's own default.

    Example:
        >>> import torch
        >>> with tf32(True):
        ...     product = torch.ones(2, 2) @ torch.ones(2, 2)

    When not to use it: if you measure small differences of scores; a product has the error of float16.
    """
    import torch

    switch = torch.backends.cuda.matmul
    # Its name since torch 2.9, where the older one must not be mixed with it.
    name, on, off = ("fp32_precision", "tf32", "ieee") if hasattr(switch, "fp32_precision") else ("allow_tf32", True, False)
    with _LOCK:
        before = getattr(switch, name)
        setattr(switch, name, on if asked else off)
        try:
            yield
        finally:
            setattr(switch, name, before)
