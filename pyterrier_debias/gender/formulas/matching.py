r"""Matching the documents of two groups by their profiles.

A profile is a row of numbers that are not all 0, such as shares of words in categories of a lexicon. Documents of one group are
paired with documents of the other whose profiles point in a similar direction (cosine). All results are exact: blockwise products
in single precision only select candidates, and the decisive cosines are computed in double precision. Nothing depends on the
order of rows: both sides are first sorted by their profiles and identifiers, and profiles with the same direction (to nine
decimals) are treated as one profile with a multiplicity.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.vectors import real_array
from pyterrier_debias.gender.formulas.counting import threads

#: Which way nearest neighbours are looked for where a document may be matched more than once.
DIRECTIONS = ("f2m", "m2f", "both")

#: How one-to-one pairs are found.
METHODS = ("greedy", "optimal")

#: The longest side of an optimal matching, whose matrix of similarities is held in memory.
OPTIMAL_LIMIT = 10_000

# Rows of a block, candidates of a block, candidates that share a maximum, and how many maxima are looked behind at first.
_ROWS, _COLUMNS, _TILE, _TILES = 256, 1024, 64, 8
# How far single precision may be off for unit vectors of a few hundred columns.
_SLACK = 2e-5
# Candidates that are kept of each row.
_KEPT = 32


@dataclass(frozen=True)
class Matching:
    """The matched pairs of rows, the most similar ones first.

    Attributes:
        left: Rows of the first group, shape [pairs].
        right: Rows of the second group, shape [pairs].
        similarity: Cosines, shape [pairs].
        dropped: How many profiles of the first and of the second group were left out because they are all zero.
        below: How many matches were left out because their similarity is too low; for one-to-one pairs, how many rows of the
            smaller side have no partner.
    """

    left: np.ndarray
    right: np.ndarray
    similarity: np.ndarray
    dropped: tuple[int, int]
    below: int

    def __len__(self) -> int:
        return len(self.left)


def match(
    first: np.ndarray,
    second: np.ndarray,
    *,
    replacement: bool = False,
    method: str = "greedy",
    direction: str = "f2m",
    min_similarity: float | None = None,
    first_ids: Sequence[str] | None = None,
    second_ids: Sequence[str] | None = None,
) -> Matching:
    r"""Pair rows of two matrices of profiles by their cosine.

    - ``'greedy'`` one-to-one (the default): the most similar pair of all is taken, then the most similar pair of the remaining
      rows, and so on, until one side is used up.
    - ``'optimal'`` one-to-one: the pairs with the largest sum of cosines (``scipy.optimize.linear_sum_assignment``), up to 10,000
      rows per side.
    - ``replacement=True``: each row of the first side with the nearest row of the second (``direction='f2m'``), the reverse
      (``'m2f'``), or the union of both (``'both'``). A row may then be in many pairs, and the two sides are no longer equally
      long lists of different documents.

    Args:
        first: Profiles of the first side, shape [n, c], usually at least 0; "f" in ``direction``.
        second: Profiles of the second side, shape [m, c]; "m" in ``direction``.
        replacement: Whether a row may be matched more than once.
        method: ``'greedy'`` or ``'optimal'``; used only without replacement.
        direction: ``'f2m'``, ``'m2f'`` or ``'both'``; used only with replacement, since one-to-one pairs have no direction.
        min_similarity: Pairs with a lower cosine are left out; None keeps all. An optimal matching maximises the sum over the
            pairs that reach it.
        first_ids: Identifiers of the first side's rows, which distinguish equal profiles, so that the result does not depend on
            the order of rows; None for row numbers.
        second_ids: Identifiers of the second side's rows.

    Returns:
        The pairs; none if all profiles of a side are zero.

    Raises:
        InputError: For unknown options, matrices that do not fit together or contain NaN, or too many rows for ``'optimal'``.

    Example:
        >>> female = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
        >>> male = np.array([[2.0, 2.0], [3.0, 1.0]])
        >>> found = match(female, male)
        >>> found.left.tolist(), found.right.tolist(), found.similarity.round(3).tolist(), found.dropped
        ([1, 0], [0, 1], [1.0, 0.949], (1, 0))

    When not to use it: on profiles with so few or so coarse categories that most cosines are 1; check the standardised mean
    differences before and after (:func:`standardised_differences`).
    """
    first, second = _checked(first, second)
    for name, value, known in (("method", method, METHODS), ("direction", direction, DIRECTIONS)):
        check_choice("match", name, value, known)
    if min_similarity is not None:
        check_number("match", "min_similarity", min_similarity, hint="use a cosine such as 0.9, or None")
    least = -np.inf if min_similarity is None else float(min_similarity)
    left, right = _Side(first, first_ids, "first_ids"), _Side(second, second_ids, "second_ids")
    dropped = len(first) - len(left.rows), len(second) - len(right.rows)
    if not len(left.rows) or not len(right.rows):
        nothing = np.empty(0, dtype=np.int64)
        return Matching(nothing, nothing, np.empty(0), dropped, 0)
    codes = _Codes(left, right)
    if replacement:
        pairs = _nearest_pairs(codes, direction)
        asked = len(pairs[0])
        kept = pairs[2] >= least
        pairs = pairs[0][kept], pairs[1][kept], pairs[2][kept]
    else:
        pairs = (_greedy_pairs if method == "greedy" else _optimal_pairs)(codes, least)
        asked = min(len(left.rows), len(right.rows))
    one, other, similarity = pairs
    order = np.lexsort((other, one, -similarity))
    return Matching(left.rows[one[order]], right.rows[other[order]], similarity[order], dropped, asked - len(one))


def _checked(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    matrices = []
    for name, matrix in (("first", first), ("second", second)):
        matrix = real_array(matrix, f"matching: the profiles of the {name} group")
        if matrix.ndim != 2:
            raise InputError(
                f"matching: the profiles of the {name} group have shape {matrix.shape}; give one row per profile and one column "
                f"per category"
            )
        bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
        if len(bad):
            raise InputError(f"matching: row {bad[0]} of the {name} group's profiles is not a finite number; fill or drop it")
        matrices.append(matrix)
    if matrices[0].shape[1] != matrices[1].shape[1]:
        one, other = (matrix.shape[1] for matrix in matrices)
        raise InputError(
            f"matching: the profiles of the two groups have {one} and {other} categories; use the same categories for both"
        )
    return matrices[0], matrices[1]


class _Side:
    """The rows of one group that have a direction, sorted by it and by identifier.

    Attributes:
        rows: The row numbers, in this order.
        directions: The rows' unit vectors to nine decimals, in this order.
    """

    def __init__(self, profiles: np.ndarray, ids: Sequence[str] | None, name: str):
        if ids is not None and len(ids) != len(profiles):
            raise InputError(f"matching: {name} has {len(ids)} identifiers for {len(profiles)} profiles; give one per profile")
        length = np.abs(profiles).max(axis=1, initial=0.0)
        rows = np.flatnonzero(length > 0)
        # Divided by the largest value first, so that tiny profiles do not vanish when they are squared.
        scaled = profiles[rows] / length[rows, None]
        directions = np.round(scaled / np.sqrt((scaled**2).sum(axis=1, keepdims=True)), 9) + 0.0
        keys = np.arange(len(rows)) if ids is None else _ranks([str(ids[row]) for row in rows.tolist()])
        order = np.lexsort((keys, *directions.T[::-1]))
        self.rows, self.directions = rows[order], directions[order]


def _ranks(ids: list[str]) -> np.ndarray:
    ranks = np.empty(len(ids), dtype=np.int64)
    ranks[np.argsort(np.array(ids, dtype=object), kind="stable")] = np.arange(len(ids))
    return ranks


class _Codes:
    """Both sides as distinct directions with their numbers of rows.

    Attributes:
        vectors: The distinct directions of both sides, as unit vectors, shape [codes, c].
        left, right: The code of each row of a side; rows with the same code are adjacent.
        left_start, right_start: Where the rows of each code begin, shape [codes].
        left_count, right_count: How many rows each code has, shape [codes].
    """

    def __init__(self, left: _Side, right: _Side):
        both = np.concatenate([left.directions, right.directions])
        order = np.lexsort(both.T[::-1])
        new = np.r_[True, (both[order][1:] != both[order][:-1]).any(axis=1)]
        code = np.empty(len(both), dtype=np.int64)
        code[order] = np.cumsum(new) - 1
        vectors = both[order][new]
        self.vectors = vectors / np.sqrt((vectors**2).sum(axis=1, keepdims=True))
        self.left, self.right = code[: len(left.rows)], code[len(left.rows) :]
        codes = np.arange(len(vectors))
        self.left_start, self.right_start = np.searchsorted(self.left, codes), np.searchsorted(self.right, codes)
        self.left_count = np.searchsorted(self.left, codes, side="right") - self.left_start
        self.right_count = np.searchsorted(self.right, codes, side="right") - self.right_start


Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]


def _nearest_pairs(codes: _Codes, direction: str) -> Pairs:
    """Nearest neighbours of one side, of the other, or both; each pair once."""
    found = []
    if direction in ("f2m", "both"):
        nearest, similarity = _nearest(codes.vectors, codes.left_count > 0, codes.right_count > 0)
        own = np.arange(len(codes.left))
        found.append((own, codes.right_start[nearest[codes.left]], similarity[codes.left]))
    if direction in ("m2f", "both"):
        nearest, similarity = _nearest(codes.vectors, codes.right_count > 0, codes.left_count > 0)
        own = np.arange(len(codes.right))
        found.append((codes.left_start[nearest[codes.right]], own, similarity[codes.right]))
    one, other, similarity = (np.concatenate(parts) for parts in zip(*found))
    _, kept = np.unique(one * (len(codes.right) + 1) + other, return_index=True)
    return one[kept], other[kept], similarity[kept]


def _nearest(vectors: np.ndarray, asking: np.ndarray, asked: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each direction of one side, the nearest one of the other and its cosine; ties by the order of directions."""
    nearest, similarity = np.full(len(vectors), -1), np.full(len(vectors), np.nan)
    same = np.flatnonzero(asking & asked)
    nearest[same], similarity[same] = same, 1.0
    rest, there = np.flatnonzero(asking & ~asked), np.flatnonzero(asked)
    if len(rest):
        lists = best_candidates(vectors[rest], vectors[there], kept=1)
        nearest[rest], similarity[rest] = there[lists.columns[:, 0]], lists.values[:, 0]
    return nearest, similarity


def _greedy_pairs(codes: _Codes, least: float) -> Pairs:
    """Greedy matching: the most similar pair of directions first, as often as both have rows left."""
    left_free, right_free = codes.left_count.copy(), codes.right_count.copy()
    taken: list[tuple[int, int, int, float]] = []

    def take(code: int, other: int, value: float) -> None:
        n = int(min(left_free[code], right_free[other]))
        taken.append((code, other, n, value))
        left_free[code] -= n
        right_free[other] -= n

    if least <= 1:
        for code in np.flatnonzero((left_free > 0) & (right_free > 0)).tolist():
            take(code, code, 1.0)
        rest, there = np.flatnonzero(left_free), np.flatnonzero(right_free)
        if len(rest) and len(there):
            _greedy(codes.vectors[rest], codes.vectors[there], left_free, right_free, rest, there, take, least)
    left_next, right_next = codes.left_start.copy(), codes.right_start.copy()
    one, other, similarity = [], [], []
    for code, partner, n, value in taken:
        one.append(np.arange(left_next[code], left_next[code] + n))
        other.append(np.arange(right_next[partner], right_next[partner] + n))
        similarity.append(np.full(n, value))
        left_next[code] += n
        right_next[partner] += n
    if not one:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    return np.concatenate(one), np.concatenate(other), np.concatenate(similarity)


def _greedy(
    rows: np.ndarray,
    columns: np.ndarray,
    left_free: np.ndarray,
    right_free: np.ndarray,
    row_codes: np.ndarray,
    column_codes: np.ndarray,
    take: Callable[[int, int, float], None],
    least: float,
) -> None:
    """Take pairs in the order of (cosine, row, column), with short lists of each row's best candidates.

    The heap contains each row with its best remaining candidate or, if its list is used up, with a bound on any others. Lists are
    rebuilt only when such a bound comes first, and then for all rows with few candidates left at once.
    """
    lists = best_candidates(rows, columns, kept=_KEPT)
    at = np.zeros(len(rows), dtype=np.int64)
    heap: list[tuple[float, int, int, int]] = []

    def push(row: int) -> None:
        place, end = int(at[row]), int(lists.lengths[row])
        while place < end and right_free[column_codes[lists.columns[row, place]]] == 0:
            place += 1
        at[row] = place
        if place < end:
            heapq.heappush(heap, (-float(lists.values[row, place]), 1, row, int(lists.columns[row, place])))
        elif lists.bounds[row] > -np.inf:
            # A bound comes before candidates of the same value.
            heapq.heappush(heap, (-float(lists.bounds[row]), 0, row, -1))

    for row in range(len(rows)):
        push(row)
    while heap:
        negative, kind, row, column = heapq.heappop(heap)
        if -negative < least:
            return
        if left_free[row_codes[row]] == 0:
            continue
        if kind == 1:
            # Outdated where the list was rebuilt, or another row was faster.
            current = at[row] < lists.lengths[row] and lists.columns[row, at[row]] == column
            if not current or right_free[column_codes[column]] == 0:
                if current:
                    push(row)
                continue
            take(int(row_codes[row]), int(column_codes[column]), -negative)
            if left_free[row_codes[row]]:
                push(row)
            continue
        if at[row] < lists.lengths[row]:
            continue  # rebuilt in the meantime
        left = np.flatnonzero(right_free[column_codes] > 0)
        if not len(left):
            return
        few = _few_left(lists, at, right_free[column_codes] > 0) & (left_free[row_codes] > 0)
        few[row] = True
        again = np.flatnonzero(few)
        lists.replace(again, best_candidates(rows[again], columns[left], kept=_KEPT), left)
        at[again] = 0
        for one in again.tolist():
            push(one)


def _few_left(lists: Candidates, at: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Rows with few free candidates left, which may have more than are in their lists."""
    places = np.arange(lists.columns.shape[1])
    ahead = (places >= at[:, None]) & (places < lists.lengths[:, None])
    return ((ahead & free[lists.columns]).sum(axis=1) <= _KEPT // 8) & (lists.bounds > -np.inf)


def _optimal_pairs(codes: _Codes, least: float) -> Pairs:
    """The pairs with the largest sum of cosines."""
    from scipy.optimize import linear_sum_assignment

    n, m = len(codes.left), len(codes.right)
    if max(n, m) > OPTIMAL_LIMIT:
        raise InputError(
            f"matching: method='optimal' takes at most {OPTIMAL_LIMIT:,} profiles per group, not {n:,} and {m:,}; use 'greedy'"
        )
    cosines = np.minimum(codes.vectors[codes.left] @ codes.vectors[codes.right].T, 1.0)
    cosines[codes.left[:, None] == codes.right[None, :]] = 1.0
    # What may not be matched counts as much as staying alone.
    gains = np.where(cosines >= least, cosines, 0.0)
    one, other = linear_sum_assignment(gains, maximize=True)
    similarity = cosines[one, other]
    kept = similarity >= least
    return one[kept], other[kept], similarity[kept]


# Blocked products


@dataclass
class Candidates:
    """The best columns of each row, as exact but possibly incomplete lists.

    Attributes:
        columns: Shape [rows, kept]; only the first ``lengths`` of each row count.
        values: Their cosines, descending; ties by column.
        lengths: How many columns the list of each row has.
        bounds: The largest cosine that columns outside the list can have; -inf if the list is complete.
    """

    columns: np.ndarray
    values: np.ndarray
    lengths: np.ndarray
    bounds: np.ndarray

    def replace(self, rows: np.ndarray, other: Candidates, names: np.ndarray) -> None:
        """Replace the lists of some rows, with their columns renamed."""
        self.columns[rows] = names[other.columns]
        self.values[rows], self.lengths[rows], self.bounds[rows] = other.values, other.lengths, other.bounds


def best_candidates(rows: np.ndarray, columns: np.ndarray, *, kept: int) -> Candidates:
    """The columns with the largest cosines for each row, without storing all cosines at once.

    Products in single precision give the maximum of every 64 columns; for the largest maxima, the cosines are computed in double
    precision, each from its two vectors alone, so that a cosine does not depend on what else is computed.

    Args:
        rows: Unit vectors, shape [n, c].
        columns: Unit vectors, shape [m, c], m at least 1; fastest if similar ones are adjacent.
        kept: The maximum number of columns per row, at least 1.

    Returns:
        The lists, none of which is empty.

    Example:
        >>> found = best_candidates(np.eye(2), np.array([[1.0, 0.0], [0.6, 0.8]]), kept=1)
        >>> found.columns[:, 0].tolist(), found.values[:, 0].tolist()
        ([0, 1], [1.0, 0.8])
    """
    single = columns.astype(np.float32)
    padded = np.zeros((-(-len(columns) // _TILE) * _TILE, columns.shape[1]), dtype=np.float32)
    padded[: len(columns)] = single
    starts = range(0, len(rows), _ROWS)
    work = [rows[start : start + _ROWS] for start in starts]
    if len(work) == 1:
        parts = [_best_block(work[0], columns, padded, kept)]
    else:
        with ThreadPoolExecutor(min(len(work), threads())) as pool:
            parts = list(pool.map(lambda block: _best_block(block, columns, padded, kept), work))
    names = ("columns", "values", "lengths", "bounds")
    return Candidates(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _best_block(rows: np.ndarray, columns: np.ndarray, padded: np.ndarray, kept: int) -> Candidates:
    """:func:`best_candidates` of a few rows."""
    transposed = np.ascontiguousarray(rows.T, dtype=np.float32)
    maxima = np.empty((len(padded) // _TILE, len(rows)), dtype=np.float32)
    products = np.empty((min(_COLUMNS, len(padded)), len(rows)), dtype=np.float32)
    for start in range(0, len(padded), _COLUMNS):
        part = padded[start : start + _COLUMNS]
        out = products[: len(part)]
        np.matmul(part, transposed, out=out)
        tile = start // _TILE
        np.maximum.reduce(out.reshape(-1, _TILE, len(rows)), axis=1, out=maxima[tile : tile + len(part) // _TILE])
    found = Candidates(
        np.zeros((len(rows), kept), dtype=np.int64),
        np.full((len(rows), kept), -np.inf),
        np.zeros(len(rows), dtype=np.int64),
        np.full(len(rows), -np.inf),
    )
    todo, tiles = np.arange(len(rows)), min(_TILES if kept > 1 else 2, len(maxima))
    while len(todo):
        # Wide lists, which only ties bring about, are looked through a few rows at a time.
        step = max(1, _ROWS * _TILES // tiles)
        for start in range(0, len(todo), step):
            _look_behind(found, todo[start : start + step], rows, columns, maxima, tiles, kept)
        todo, tiles = todo[found.lengths[todo] == 0], min(2 * tiles, len(maxima))
    return found


def _look_behind(
    found: Candidates, at: np.ndarray, rows: np.ndarray, columns: np.ndarray, maxima: np.ndarray, tiles: int, kept: int
) -> None:
    """Fill the lists of some rows from their best tiles; lists without any certain column stay empty."""
    own = maxima[:, at].T
    if tiles < len(maxima):
        order = np.argpartition(-own, tiles, axis=1)[:, : tiles + 1]
        best, bound = order[:, :tiles], np.take_along_axis(own, order[:, tiles:], axis=1)[:, 0].astype(np.float64) + _SLACK
    else:
        best, bound = np.broadcast_to(np.arange(len(maxima)), own.shape), np.full(len(at), -np.inf)
    places = np.sort((best[:, :, None] * _TILE + np.arange(_TILE)).reshape(len(at), -1), axis=1)
    inside = places < len(columns)
    places = np.where(inside, places, 0)
    cosines = np.minimum((rows[at][:, None, :] * columns[places]).sum(axis=2), 1.0)
    cosines = np.where(inside, cosines, -np.inf)
    order = np.argsort(-cosines, axis=1, kind="stable")[:, : kept + 1]
    values, places = np.take_along_axis(cosines, order, axis=1), np.take_along_axis(places, order, axis=1)
    certain = (values > bound[:, None]) & (values > -np.inf)
    width = min(kept, values.shape[1])
    found.columns[at, :width], found.values[at, :width] = places[:, :width], values[:, :width]
    found.lengths[at] = certain[:, :width].sum(axis=1)
    if values.shape[1] > kept:  # the best one that finds no place bounds what is missing, too
        bound = np.where(certain[:, kept], np.maximum(bound, values[:, kept]), bound)
    found.bounds[at] = bound


# Balance


def standardised_differences(
    first: np.ndarray, second: np.ndarray, matched_first: np.ndarray | None = None, matched_second: np.ndarray | None = None
) -> np.ndarray:
    r"""Standardised mean differences between the columns of two groups.

    .. math:: d_j = \frac{\bar f_j - \bar m_j}{\sqrt{(s^2_{f_j} + s^2_{m_j}) / 2}}

    with the groups' variances (divided by n - 1) before matching, so that differences before and after have the same unit.

    Source: Austin, "An Introduction to Propensity Score Methods for Reducing the Effects of Confounding in Observational
    Studies", Multivariate Behavioral Research 2011, who regards an absolute value below .1 as balance.

    Args:
        first: Profiles of the first group before matching, shape [n, c].
        second: Profiles of the second group before matching, shape [m, c].
        matched_first: Profiles of the first group's matched rows, shape [pairs, c]; None for the difference before matching.
        matched_second: Profiles of the second group's matched rows.

    Returns:
        Shape [c]. In a column that does not vary, 0 if the means agree and NaN if they differ; NaN also if a group has fewer than
        two rows before matching or none after.

    Example:
        >>> standardised_differences(np.array([[1.0], [3.0]]), np.array([[0.0], [2.0]])).round(4).tolist()
        [0.7071]
    """
    what = "standardised_differences: a profile"
    first, second = real_array(first, what), real_array(second, what)
    one = first if matched_first is None else real_array(matched_first, what)
    other = second if matched_second is None else real_array(matched_second, what)
    if min(len(first), len(second)) < 2 or not len(one) or not len(other):
        return np.full(first.shape[1], np.nan)
    difference = one.mean(axis=0) - other.mean(axis=0)
    spread = np.sqrt((first.var(axis=0, ddof=1) + second.var(axis=0, ddof=1)) / 2)
    tiny = 1e-12 * np.maximum(np.abs(first).max(axis=0), np.abs(second).max(axis=0))
    varies = spread > tiny
    out = np.where(np.abs(difference) <= tiny, 0.0, np.nan)
    out[varies] = difference[varies] / spread[varies]
    return out
