"""Sums of cosines over all pairs of occurrences, by their distance."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

#: Numbers of one temporary array, about 32 MiB.
BLOCK = 4 * 2**20

#: Above this number of occurrences of a word in one passage, their pairs are not listed one by one.
_MANY = 128

#: The cost of looking up a pair by its distance, in multiplications.
LOOK_UP = 150

#: The largest sum of squares for which Fourier transforms are exact to some 1e-9.
_EXACT = 1e6


def autocorrelate(positions: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """Sum the inner products of all ordered pairs of rows (a row with itself included) by the distance of their positions.

    This is a matrix product over the positions where the term was seen, which are usually few. It was measured to be 2 to 20
    times as fast as Fourier transforms, which are faster only if the term was seen at hundreds of positions. Transforms are
    used for thousands of positions, where the quadratic cost of the product would be minutes.

    Args:
        positions: Integers from 0, shape [p].
        rows: Shape [p, k].
        size: One more than the largest distance.

    Returns:
        Shape [size]; entry D sums the products of rows i and j over all i and j whose positions differ by D.

    Example:
        >>> autocorrelate(np.array([0, 2]), np.array([[1.0], [3.0]]), 3)
        array([10.,  0.,  6.])
    """
    length = 1 << (2 * size - 1).bit_length()
    product, transform = len(rows) ** 2 * (rows.shape[1] + 20), 40 * length * np.log2(length) * rows.shape[1]
    if len(rows) > 1024 and product > transform and np.square(rows).sum() <= _EXACT:
        return _by_transform(positions, rows, size, length)
    step = max(1, BLOCK // max(len(rows), 1))
    total = np.zeros(size)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        distance = np.abs(positions[part, None] - positions)
        total += np.bincount(distance.ravel(), (rows[part] @ rows.T).ravel(), size)
    return total


def _by_transform(positions: np.ndarray, rows: np.ndarray, size: int, length: int) -> np.ndarray:
    """:func:`autocorrelate` by the power spectrum, which is summed over columns before a single inverse transform."""
    power = np.zeros(length // 2 + 1)
    step = max(1, BLOCK // length)
    for first in range(0, rows.shape[1], step):
        columns = rows[:, first : first + step].T
        spread = np.zeros((len(columns), length))
        spread[:, positions - positions.min()] = columns
        spectrum = np.fft.rfft(spread, axis=1)
        power += (spectrum.real**2 + spectrum.imag**2).sum(axis=0)
    found = np.fft.irfft(power, length)[:size]
    found[1:] *= 2
    return found


def pair_sums(positions: np.ndarray, sums: np.ndarray, counts: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Count one term's pairs of occurrences at each distance, and sum their cosines, from sums over positions.

    Args:
        positions: Distinct positions of the term, shape [p].
        sums: S_{t,a}, the unit vectors of the occurrences at each position summed, shape [p, d].
        counts: n_{t,a}, the number of occurrences at each position, shape [p].
        size: One more than the largest distance.

    Returns:
        Pairs and summed cosines, shape [size] each; an occurrence makes no pair with itself.

    Example:
        >>> n, cosines = pair_sums(np.array([0, 3]), np.array([[1.0, 1.0], [1.0, 0.0]]), np.array([2.0, 1.0]), 4)
        >>> n.tolist(), cosines.tolist()
        ([1.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.0, 1.0])
    """
    pairs = np.rint(autocorrelate(positions, counts[:, None], size))
    cosines = np.where(pairs > 0, autocorrelate(positions, sums, size), 0.0)
    pairs[0] -= counts.sum()
    cosines[0] -= counts.sum()
    return pairs / 2, cosines / 2


def pair_squares(positions: np.ndarray, units: np.ndarray, size: int, *, moments: bool | None = None) -> np.ndarray:
    """Sum the squared cosines of one term's pairs of occurrences at each distance.

    Args:
        positions: Position of each occurrence, shape [n].
        units: Unit vectors, shape [n, d].
        size: One more than the largest distance.
        moments: Whether to go through the second moments of each position, d x d numbers, computed in slices; cost n d^2.
            Otherwise all pairs are formed, in blocks; cost n^2 d. None takes the cheaper way.

    Returns:
        Shape [size].
    """
    n, d = units.shape
    order = np.argsort(positions, kind="stable")
    positions, units = positions[order], units[order]
    places, starts = np.unique(positions, return_index=True)
    if moments is None:
        moments = n * n * (d + LOOK_UP) > n * d * d + len(places) ** 2 * (d * d + LOOK_UP)
    total = np.zeros(size)
    if moments:
        bounds = [*starts, n]
        step = max(1, BLOCK // (len(places) * d))
        for first in range(0, d, step):
            part = slice(first, first + step)
            slices = [units[a:b, part].T @ units[a:b] for a, b in pairwise(bounds)]
            total += autocorrelate(places, np.stack(slices).reshape(len(places), -1), size)
    else:
        step = max(1, BLOCK // n)
        for start in range(0, n, step):
            part = slice(start, start + step)
            distance = np.abs(positions[part, None] - positions)
            total += np.bincount(distance.ravel(), np.square(units[part] @ units.T).ravel(), size)
    total[0] -= n
    return total / 2


def twins(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of entries in the same group.

    Args:
        groups: Integers, shape [n].

    Returns:
        Indices i and j, each unordered pair once.

    Example:
        >>> [sorted(pair) for pair in zip(*(side.tolist() for side in twins(np.array([5, 7, 5]))))]
        [[0, 2]]
    """
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    left, right = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    start = np.arange(len(groups))
    apart = 1
    while True:
        # Entries that have a companion this many places further on; the others have none beyond it.
        start = start[start + apart < len(groups)]
        start = start[ordered[start] == ordered[start + apart]]
        if not len(start):
            return np.concatenate(left), np.concatenate(right)
        left.append(order[start])
        right.append(order[start + apart])
        apart += 1


def key_of(terms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """One integer for a term and a position or distance."""
    return terms << 32 | numbers


def units_of(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in float64, each followed by a 1 (so that sums also count), and which vectors are not zero."""
    units = np.empty((len(raw), raw.shape[1] + 1))
    units[:, :-1] = raw
    # Scaled first, so that neither tiny nor huge vectors leave the range of numbers when squared.
    largest = np.abs(units[:, :-1]).max(axis=1, initial=0.0)
    real = largest > 0
    largest[~real] = 1.0
    units[:, :-1] /= largest[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", units[:, :-1], units[:, :-1]))
    norms[~real] = 1.0
    units[:, :-1] /= norms[:, None]
    units[:, -1] = 1.0
    return units, real


def runs(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An order in which equal entries are adjacent, where their runs begin, and how long the runs are."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    return order, starts, np.diff(starts, append=len(order))


def inner_pairs(
    groups: np.ndarray, terms: np.ndarray, positions: np.ndarray, units: np.ndarray, *, squares: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs within groups (a passage's occurrences of one term), their cosines and the squares of these, in parts.

    Args:
        groups: At least 0, shape [n].
        terms: Shape [n].
        positions: Shape [n].
        units: Unit vectors, shape [n, d].
        squares: Whether squares are summed.

    Yields:
        Keys of (term, distance); and for each key its pairs, cosines and, if requested, squares. A key may occur more than once.
    """
    order, starts, counts = runs(groups)
    # A word that one passage repeats thousands of times has too many pairs to list.
    for start, count in zip(starts[counts > _MANY], counts[counts > _MANY]):
        rows = order[start : start + count]
        places = positions[rows] - positions[rows].min()
        size = int(places.max()) + 1
        found = [*pair_sums(places, units[rows], np.ones(count), size)]
        found += [pair_squares(places, units[rows], size)] if squares else []
        there = np.flatnonzero(found[0])
        yield key_of(np.full(len(there), terms[rows[0]]), there), np.column_stack(found)[there]
    few = order[np.repeat(counts <= _MANY, counts)]
    left, right = (few[side] for side in twins(groups[few]))
    step = max(1, BLOCK // units.shape[1])
    for start in range(0, len(left), step):
        i, j = left[start : start + step], right[start : start + step]
        cosines = np.einsum("ij,ij->i", units[i], units[j])
        sums = [np.ones(len(i)), cosines, *([cosines**2] if squares else [])]
        yield key_of(terms[i], np.abs(positions[i] - positions[j])), np.column_stack(sums)
