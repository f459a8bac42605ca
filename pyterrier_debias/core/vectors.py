"""Checks of vectors from users and their encoders."""

from __future__ import annotations

from typing import Any

import numpy as np

from pyterrier_debias.core.errors import InputError


def real_array(values: Any, what: str, dtype: Any = np.float64) -> np.ndarray:
    """Values as an array of real numbers; complex numbers are refused, because a conversion would drop their imaginary parts.

    Args:
        values: Anything that ``np.asarray`` accepts.
        what: The stage and a description of the values, for the message: ``"Retriever: column 'query_vec'"``.
        dtype: The type of the result.

    Returns:
        The array; the same object if no conversion is needed.

    Raises:
        InputError: If numbers are complex. Values that are not numbers raise NumPy's TypeError or ValueError.

    Example:
        >>> real_array([1, 2], "example").tolist()
        [1.0, 2.0]
    """
    array = np.asarray(values)
    # Columns of objects may hold complex numbers, too.
    if np.iscomplexobj(array) or (array.dtype == object and any(map(np.iscomplexobj, array.flat))):
        raise InputError(
            f"{what} holds complex numbers, whose imaginary parts would be lost; give real numbers, e.g. the real and the "
            f"imaginary parts side by side"
        )
    return np.asarray(array, dtype=dtype)
