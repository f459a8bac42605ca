r"""Kernel whitening: features of a kernel, transformed so that their covariance is the identity.

Pure functions on arrays. Vectors are scaled to unit length, so that the kernel of two of them is a function of their cosine:
:math:`k(x, y) = e^{-\gamma \lVert x - y \rVert^2}` (``'rbf'``), or the cosine itself (``'cosine'``).

Sources: Gao, Dou, Zhang and Huang, "Kernel-Whitening: Overcome Dataset Bias with Isotropic Sentence Embedding", EMNLP 2022: a
Nystroem approximation of a kernel of sentence vectors, made isotropic by whitening; their released code has the cosine as kernel.
Nystroem: Williams and Seeger, NIPS 2000. Whitening of sentence vectors: Su, Cao, Liu and Ou, 2021 (arXiv:2103.15316).
"""

from __future__ import annotations

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number

#: Kernels of vectors of unit length.
KERNELS = ("rbf", "cosine")

#: Eigenvalues of a kernel matrix below this share of the largest are due to rounding, from landmarks that repeat others.
_ROUNDING = 1e-10


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Divide vectors by their lengths, in float64; a vector of zeros stays the same.

    Args:
        vectors: Shape [n, d].

    Returns:
        Shape [n, d].

    Example:
        >>> unit_length(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.6, 0.8], [0.0, 0.0]]
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def kernel_of(vectors: np.ndarray, others: np.ndarray, *, kernel: str = "rbf", gamma: float = 1.0) -> np.ndarray:
    """Compute the kernel of each of ``vectors`` with each of ``others``.

    Args:
        vectors: Vectors of unit length, shape [n, d].
        others: Vectors of unit length, shape [m, d].
        kernel: ``'rbf'`` or ``'cosine'``.
        gamma: gamma of ``'rbf'``.

    Returns:
        Shape [n, m].

    Raises:
        InputError: For another kernel.

    Example:
        >>> kernel_of(np.eye(2), np.eye(2), gamma=0.5).round(3).tolist()
        [[1.0, 0.368], [0.368, 1.0]]
    """
    check_choice("kernel_of", "kernel", kernel, KERNELS)
    cosine = vectors @ others.T
    return cosine if kernel == "cosine" else np.exp(-gamma * (2 - 2 * cosine))


def inverse_root(matrix: np.ndarray, floor: float = _ROUNDING) -> np.ndarray:
    r"""Compute the symmetric :math:`A^{-1/2}` of a covariance or kernel matrix, over its non-zero directions.

    Args:
        matrix: A symmetric and positive semi-definite matrix, shape [m, m].
        floor: Directions whose eigenvalue is below this share of the largest are left out.

    Returns:
        Shape [m, m]; all 0 for a matrix of zeros.

    Raises:
        InputError: For a number that is not finite.

    Example:
        >>> inverse_root(np.diag([4.0, 1.0, 0.0])).round(3).tolist()
        [[0.5, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if not np.isfinite(matrix).all():
        raise InputError("inverse_root: the matrix has numbers that are not finite; check the vectors that it is made of")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    kept = (values >= floor * values[-1]) & (values > np.finfo(np.float64).tiny)
    roots = np.where(kept, 1 / np.sqrt(np.where(kept, values, 1.0)), 0.0)
    return (vectors * roots) @ vectors.T


def whitening(features: np.ndarray, floor: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    r"""Compute the mean :math:`\mu` and the symmetric :math:`W = \Sigma^{-1/2}` with which :math:`(\varphi - \mu) W` is white.

    White means that the mean is 0, and the covariance is the identity on the directions that are kept. The symmetric form changes
    the features least, and changes continuously with them.

    Args:
        features: Shape [n, m].
        floor: Directions in which the variance is below this share of the largest are left out, as noise that whitening would
            enlarge.

    Returns:
        The mean, shape [m], and W, shape [m, m].

    Raises:
        InputError: For fewer than two rows, a number that is not finite, or a floor that is not a share.

    Example:
        >>> mean, matrix = whitening(np.array([[0.0, 1.0], [4.0, 1.0]]))
        >>> ((np.array([[0.0, 1.0], [4.0, 1.0]]) - mean) @ matrix).round(3).tolist()
        [[-1.0, 0.0], [1.0, 0.0]]
    """
    check_number("whitening", "floor", floor, least=0, most=1)
    features = np.asarray(features, dtype=np.float64)
    if len(features) < 2 or not np.isfinite(features).all():
        odd = int((~np.isfinite(features)).any(axis=-1).sum())
        raise InputError(
            f"whitening: {len(features)} rows of features, of which {odd} are not finite; give at least two rows of finite "
            f"numbers"
        )
    mean = features.mean(axis=0)
    centred = features - mean
    return mean, inverse_root(centred.T @ centred / len(features), max(floor, _ROUNDING))


def as_layers(
    vectors: np.ndarray, landmarks: np.ndarray, *, kernel: str = "rbf", gamma: float = 1.0, floor: float = 1e-3
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    r"""Express kernel whitening as two linear layers, which any network library can store.

    On unit vectors :math:`-\gamma \lVert x - l \rVert^2 = 2 \gamma\, x \cdot l - 2 \gamma \le 0`, so that an ELU after the
    first layer gives :math:`k(x, l) - 1`; the second layer adds the 1, and contains :math:`k(L, L)^{-1/2}`, the mean and W. The
    cosine needs no ELU.

    Args:
        vectors: The vectors to whiten, of unit length, shape [n, d].
        landmarks: Landmarks of unit length, shape [m, d].
        kernel: See :func:`kernel_of`.
        gamma: See :func:`kernel_of`.
        floor: See :func:`whitening`.

    Returns:
        Weight and bias of the first layer, shapes [m, d] and [m], and of the second, [m, m] and [m].

    Raises:
        InputError: As in :func:`whitening` and :func:`inverse_root`.

    Example:
        >>> x = unit_length(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]))
        >>> (weight, bias), (second, shift) = as_layers(x, x[:1], gamma=0.5)
        >>> elu = np.exp(x @ weight.T + bias) - 1
        >>> white = elu @ second.T + shift
        >>> abs(round(float(white.mean()), 6)), round(float(white.var()), 6)
        (0.0, 1.0)
    """
    options = {"kernel": kernel, "gamma": gamma}
    root = inverse_root(kernel_of(landmarks, landmarks, **options))  # type: ignore[arg-type]
    mean, matrix = whitening(kernel_of(vectors, landmarks, **options) @ root, floor)  # type: ignore[arg-type]
    second, ones = root @ matrix, np.ones(len(landmarks))
    if kernel == "cosine":
        return (landmarks, np.zeros(len(landmarks))), (second.T, -mean @ matrix)
    return (2 * gamma * landmarks, -2 * gamma * ones), (second.T, ones @ second - mean @ matrix)
