"""ATS and MATS: how much a word's vector depends on its position. Arrays and sums, no frames in, no neural library.

Symbols of Hofstätter et al. 2021, section 5: T is the set of terms, r_a^t the vector of an occurrence of term t at position a,
D a distance between positions, C_{t,D} the pairs of occurrences of t whose positions a and b differ by D, and::

    ATS(D) = 1/|T| sum_t 1/|C_{t,D}| sum_{pairs in C_{t,D}} cos(r_a^t, r_b^t)
    MATS   = 1/(max D - 1) sum_{i=1..max D} (ATS(0) - ATS(i))

There are quadratically many pairs, but the mean does not require visiting them: with u the unit vector of r, and S_{t,a} the sum
of u over the occurrences of t at position a, the pairs of t at distance D > 0 sum to ``sum_a S_{t,a}.S_{t,a+D}``, those at
distance 0 to half of ``sum_a (S_{t,a}.S_{t,a} - n_{t,a})``. Pairs within one passage are few, are counted apart, and are
subtracted where they do not belong. The squares of the cosines sum in the same way over second moments, since ``(u.v)^2 = <u u',
v v'>``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, check_choice, check_number, one_line
from pyterrier_debias.core.files import read_whole
from pyterrier_debias.core.text import keyed_hash, mixed
from pyterrier_debias.core.vectors import real_array

#: Words of one passage, and one vector each: shape [n, d].
Passage = tuple[Sequence[str], np.ndarray]

PAIR_SCOPES = ("cross_passage", "all")
NORMALISERS = ("paper", "max", "count", "count_less_one", "sum")
TERM_AVERAGES = ("present", "all", "any", "paired")
SPREADS = ("deltas", "pairs", "terms", "plain")

#: Conventions that the paper leaves open, and what each may be.
CONVENTIONS = {"pair_scope": PAIR_SCOPES, "normaliser": NORMALISERS, "term_average": TERM_AVERAGES, "std": SPREADS}

#: Columns of :meth:`MATSResult.curve`.
CURVE = {
    "delta": "int64",
    "ats": "float64",
    "std": "float64",
    "std_deltas": "float64",
    "std_pairs": "float64",
    "std_terms": "float64",
    "std_plain": "float64",
    "pairs": "int64",
    "terms": "int64",
    "pair_scope": "object",
    "term_average": "object",
}

#: A variance below this share of the mean square is rounding.
_ROUNDING = 64 * np.finfo(np.float64).eps

#: Numbers of one temporary array, about 32 MiB.
_BLOCK = 4 * 2**20

#: Occurrences of a word in one passage from which their pairs are no longer listed one by one.
_MANY = 128

#: Multiplications spent on one word's squared cosines; beyond, they are estimated from some of its occurrences.
_WORK = 10**11

#: What looking a pair up by its distance costs, in multiplications.
_LOOK_UP = 150

#: The largest sum of squares for which Fourier transforms are exact to some 1e-9.
_EXACT = 1e6

_FORMAT = 2

logger = logging.getLogger(__name__)


def check_conventions(values: Mapping[str, Any]) -> None:
    """Refuse conventions that are not known.

    Args:
        values: Value of each of :data:`CONVENTIONS`, of ``ddof``, ``max_delta`` and ``min_pairs``; others are not looked at.

    Raises:
        InputError: Naming the convention and what it may be.
    """
    for name, known in CONVENTIONS.items():
        check_choice("MATSProbe", name, values[name], known)
    check_number("MATSProbe", "ddof", values["ddof"], least=0, whole=True)
    for name in ("max_delta", "min_pairs"):
        if values[name] is not None or name == "min_pairs":
            check_number("MATSProbe", name, values[name], least=1, whole=True)


def autocorrelate(positions: np.ndarray, rows: np.ndarray, size: int) -> np.ndarray:
    """Sum the inner products of all ordered pairs of rows (a row with itself included) by the distance of their positions.

    By a matrix product over the positions where the term was seen, which most often are few: measured, that is 2 to 20 times as
    fast as Fourier transforms, which win for a term that was seen at hundreds of positions only. Those are taken for thousands of
    positions, where the product's quadratic cost would be minutes.

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
    step = max(1, _BLOCK // max(len(rows), 1))
    total = np.zeros(size)
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        distance = np.abs(positions[part, None] - positions)
        total += np.bincount(distance.ravel(), (rows[part] @ rows.T).ravel(), size)
    return total


def _by_transform(positions: np.ndarray, rows: np.ndarray, size: int, length: int) -> np.ndarray:
    """:func:`autocorrelate` by the power spectrum, which is summed over columns before the one transform back."""
    power = np.zeros(length // 2 + 1)
    step = max(1, _BLOCK // length)
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
        counts: n_{t,a}, how many they are, shape [p].
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
        moments = n * n * (d + _LOOK_UP) > n * d * d + len(places) ** 2 * (d * d + _LOOK_UP)
    total = np.zeros(size)
    if moments:
        bounds = [*starts, n]
        step = max(1, _BLOCK // (len(places) * d))
        for first in range(0, d, step):
            part = slice(first, first + step)
            slices = [units[a:b, part].T @ units[a:b] for a, b in pairwise(bounds)]
            total += autocorrelate(places, np.stack(slices).reshape(len(places), -1), size)
    else:
        step = max(1, _BLOCK // n)
        for start in range(0, n, step):
            part = slice(start, start + step)
            distance = np.abs(positions[part, None] - positions)
            total += np.bincount(distance.ravel(), np.square(units[part] @ units.T).ravel(), size)
    total[0] -= n
    return total / 2


def twins(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of entries that stand in one group.

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
        # Those that still have a companion so many places on; the others never get one further on.
        start = start[start + apart < len(groups)]
        start = start[ordered[start] == ordered[start + apart]]
        if not len(start):
            return np.concatenate(left), np.concatenate(right)
        left.append(order[start])
        right.append(order[start + apart])
        apart += 1


def mats_value(ats: np.ndarray, normaliser: str = "paper") -> tuple[float, str]:
    """MATS of a curve.

    The sum of ATS(0) - ATS(i) is over the distances i >= 1 that have a pair. Where all up to max D have one, ``'max'`` and
    ``'count'`` are the same, and so are ``'paper'`` and ``'count_less_one'``.

    Args:
        ats: ATS(0), ATS(1), ..., NaN if a distance has no pair.
        normaliser: What the sum is divided by. ``'paper'``: max D - 1, as the paper prints it, max D being the largest distance
            that has a pair; ``'max'``: max D; ``'count'``: the number of distances that have a pair, which gives a plain mean;
            ``'count_less_one'``: one less than their number; ``'sum'``: nothing.

    Returns:
        The value, and an empty text; or NaN, and why it is not defined.

    Example:
        >>> mats_value(np.array([1.0, 0.75, 0.5])), mats_value(np.array([1.0, 0.75, 0.5]), "count")
        ((0.75, ''), (0.375, ''))
        >>> mats_value(np.array([np.nan, 0.8]))[1]
        'ATS(0) is not defined: no word stands at the same position of two passages'

        Distances 1 and 4: the falls 0.25 and 0.5 by max D - 1 = 3.

        >>> mats_value(np.array([1.0, 0.75, np.nan, np.nan, 0.5]))
        (0.25, '')
    """
    check_choice("mats_value", "normaliser", normaliser, CONVENTIONS["normaliser"])
    falls = ats[0] - ats[1:][~np.isnan(ats[1:])] if len(ats) else np.empty(0)
    if not len(ats) or np.isnan(ats).all():
        return np.nan, "no word occurs in enough pairs"
    if np.isnan(ats[0]):
        return np.nan, "ATS(0) is not defined: no word stands at the same position of two passages"
    if not len(falls):
        return np.nan, "no word stands at two different positions"
    largest = int(np.flatnonzero(~np.isnan(ats))[-1])
    divisor = {"paper": largest - 1, "max": largest, "count": len(falls), "count_less_one": len(falls) - 1, "sum": 1}[normaliser]
    if not divisor:
        what = "the paper's divisor, max delta - 1," if normaliser == "paper" else "the number of distances less one"
        return np.nan, f"only one distance has a pair, and {what} is then 0; mats_mean is defined"
    return float(falls.sum() / divisor), ""


@dataclass(frozen=True)
class DeltaSums:
    """What is known at each distance D, summed over the terms with enough pairs there; arrays of shape [max D + 1].

    Attributes:
        terms: How many terms have enough pairs.
        pairs: How many pairs they have.
        means: The terms' mean cosines, summed.
        squares: The squares of these means, summed.
        within: The variances of the cosines within terms, summed over the terms where they are known.
        within_terms: How many terms that are.
        falls: The terms' mean cosine at distance 0 less that at this one, summed over the terms with enough pairs at both.
        paired_terms: How many terms that are.
        paired_pairs: How many pairs they have at this distance.
        first: How many terms have enough pairs here and at no smaller distance.
        cosines: The cosines of all pairs, summed.
        weighted: The squares of the terms' mean cosines, summed with the terms' pairs as weights.
        weighted_within: The variances of the cosines within terms, summed with the terms' pairs as weights, where known.
        weighted_pairs: How many pairs these terms have.
    """

    terms: np.ndarray
    pairs: np.ndarray
    means: np.ndarray
    squares: np.ndarray
    within: np.ndarray
    within_terms: np.ndarray
    falls: np.ndarray
    paired_terms: np.ndarray
    paired_pairs: np.ndarray
    first: np.ndarray
    cosines: np.ndarray
    weighted: np.ndarray
    weighted_within: np.ndarray
    weighted_pairs: np.ndarray

    @classmethod
    def zeros(cls, size: int) -> DeltaSums:
        """Nothing added yet, at distances 0 to ``size`` - 1."""
        return cls(*(np.zeros(size) for _ in fields(cls)))


@dataclass(frozen=True)
class MATSResult:
    """ATS at every distance and MATS, under every convention that the paper leaves open.

    Attributes:
        sums: For ``'cross_passage'`` and ``'all'`` pairs, what is known at each distance.
        vocabulary: Distinct words with a vector, the paper's set T.
        passages: How many passages were seen.
        occurrences: How many words of theirs had a vector.
        skipped: How many had a zero vector, which has no direction, and were left out.
        kept: The spread over pairs is exact where this is None; otherwise it is estimated from at most so many occurrences of
            each word (0: not at all). The means are exact always.
        min_pairs: A word counts at a distance where it has at least so many pairs.
        pair_scope: The convention of :meth:`curve` and of the first row of :meth:`mats`; see :class:`MATSProbe`.
        normaliser: Likewise.
        term_average: Likewise.
        std: Likewise.
        max_delta: Likewise; None for all distances.
        ddof: Likewise.
        duplicates: How many passages were left out, because a text that was seen counts once.

    Example:
        >>> words = MATSAccumulator()
        >>> east, north = [1.0, 0.0], [0.0, 1.0]
        >>> _ = words.update(["d1", "d2"], [(["a", "b", "a"], np.array([east, north, east])), (["a"], np.array([east]))])
        >>> words.result().curve()[["delta", "ats", "pairs", "terms"]].values.tolist()
        [[0.0, 1.0, 1.0, 1.0], [2.0, 1.0, 1.0, 1.0]]
    """

    sums: Mapping[str, DeltaSums]
    vocabulary: int
    passages: int
    occurrences: int
    skipped: int
    kept: int | None
    min_pairs: int = 1
    pair_scope: str = "cross_passage"
    normaliser: str = "paper"
    term_average: str = "present"
    std: str = "deltas"
    max_delta: int | None = None
    ddof: int = 0
    duplicates: int = 0

    def __post_init__(self) -> None:
        """Refuse conventions that are not known."""
        check_conventions(self.__dict__)

    def __repr__(self) -> str:
        """MATS, of how much, and under which conventions; not the sums, which fill many screens."""
        own = self.mats().iloc[0]
        conventions = ", ".join(f"{name}={getattr(self, name)!r}" for name in (*CONVENTIONS, "ddof", "max_delta", "min_pairs"))
        return f"<MATSResult: {own['mats']:.4f} over {self.passages} passages, {self.vocabulary} words; {conventions}>"

    def under(self, **conventions: Any) -> MATSResult:
        """The same sums under other conventions.

        Args:
            conventions: ``pair_scope``, ``normaliser``, ``term_average``, ``std``, ``ddof`` or ``max_delta``.

        Returns:
            A result whose curve, and whose first row of :meth:`mats`, follow them.

        Raises:
            InputError: For a convention that is not known, and for what the sums were made with, such as ``min_pairs``.
        """
        known = (*CONVENTIONS, "ddof", "max_delta")
        others = [name for name in conventions if name not in known]
        if others:
            raise InputError(
                f"MATSResult.under: it has no convention {others[0]}; it has {', '.join(known)} (min_pairs is an option of "
                f"MATSProbe, and of MATSAccumulator.result())"
            )
        return replace(self, **conventions)

    def ats(self, pair_scope: str | None = None, term_average: str | None = None) -> np.ndarray:
        """ATS(0), ATS(1), ... up to ``max_delta``; NaN if a distance has no pair.

        Args:
            pair_scope: ``'cross_passage'`` or ``'all'``; None for the result's own.
            term_average: ``'present'``, ``'all'``, ``'any'`` or ``'paired'``; None for the result's own.

        Returns:
            Shape [max D + 1], max D being the largest distance with a pair, or less where ``max_delta`` says so.
        """
        scope, average = self._chosen(pair_scope, term_average)
        sums = self.sums[scope]
        size = self._size(sums)
        terms, paired = sums.terms[:size], sums.paired_terms[:size]
        divisor = {"all": np.full(size, self.vocabulary), "any": np.full(size, sums.first[:size].sum())}.get(average, terms)
        ats = np.divide(sums.means[:size], divisor, out=np.full(size, np.nan), where=terms > 0)
        if average == "paired":
            return ats[0] - np.divide(sums.falls[:size], paired, out=np.full(size, np.nan), where=paired > 0)
        return ats

    def _chosen(self, pair_scope: str | None, term_average: str | None) -> tuple[str, str]:
        """What was asked for, else the result's own."""
        scope = self.pair_scope if pair_scope is None else pair_scope
        average = self.term_average if term_average is None else term_average
        check_choice("MATSResult", "pair_scope", scope, PAIR_SCOPES)
        check_choice("MATSResult", "term_average", average, TERM_AVERAGES)
        return scope, average

    def curve(self, pair_scope: str | None = None, term_average: str | None = None) -> pd.DataFrame:
        """One row for each distance that has a pair.

        Args:
            pair_scope: ``'cross_passage'`` or ``'all'``; None for the result's own.
            term_average: ``'present'``, ``'all'``, ``'any'`` or ``'paired'``; None for the result's own.

        Returns:
            A frame with ``delta``; ``ats``; ``std``, the spread that the result's convention names, and all four:
            ``std_deltas``, of ATS(0) - ATS(i) over i = 1 to this distance; ``std_pairs``, of the cosines around ``ats`` when a
            word is drawn and then one of its pairs; ``std_terms``, of the words' mean cosines; ``std_plain``, of the cosines of
            all pairs around their own mean, each pair counting once (the last three over what is present whatever
            ``term_average`` says); ``pairs``; ``terms``; ``pair_scope`` and ``term_average``. All but ``std_pairs``, which has no
            one count, follow ``ddof``.
        """
        pair_scope, term_average = self._chosen(pair_scope, term_average)
        ats = self.ats(pair_scope, term_average)
        sums = self.sums[pair_scope]
        size, paired = len(ats), term_average == "paired"
        present = ~np.isnan(ats)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean, square = (part[:size] / sums.terms[:size] for part in (sums.means, sums.squares))
            between = _variance(square, mean)
            within = sums.within[:size] / sums.within_terms[:size]
            mean, square = (part[:size] / sums.pairs[:size] for part in (sums.cosines, sums.weighted))
            plain = _variance(square, mean) + sums.weighted_within[:size] / sums.weighted_pairs[:size]
        columns = {
            "delta": np.arange(size),
            "ats": ats,
            "std_deltas": np.append(np.nan, _running_spread(ats[0] - ats[1:], self.ddof)),
            "std_pairs": np.sqrt(between + within),
            "std_terms": np.sqrt(_unbiased(between, sums.terms[:size], self.ddof)),
            "std_plain": np.sqrt(_unbiased(plain, sums.pairs[:size], self.ddof)),
            "pairs": (sums.paired_pairs if paired else sums.pairs)[:size],
            "terms": (sums.paired_terms if paired else sums.terms)[:size],
        }
        columns = {name: np.asarray(values)[present] for name, values in columns.items()}
        columns["std"] = columns[f"std_{self.std}"]
        frame = pd.DataFrame({**columns, "pair_scope": pair_scope, "term_average": term_average}, columns=list(CURVE))
        return frame.astype(CURVE)

    def mats(self) -> pd.DataFrame:
        """MATS under every convention, the result's own first.

        Returns:
            One row for each way to form pairs and to average over words: ``pair_scope``, ``term_average``, ``normaliser``;
            ``mats``, the value under that normaliser, and under two: ``mats_paper`` and ``mats_mean`` (``'count'``); ``std``, the
            spread that the convention names, and all four: ``std_deltas`` (of ATS(0) - ATS(i) over i), ``std_pairs``,
            ``std_terms`` and ``std_plain`` (means over i >= 1 of the curve's); ``ats_0``; ``max_delta``, the largest distance
            that counted; ``deltas``, how many did; ``pairs``; ``terms``, the distinct words; ``passages``; ``duplicates``, how
            many more were left out, since their text was seen; ``spread_from`` (``'all pairs'``, or how they were sampled);
            ``reason``, why ``mats`` is NaN, otherwise empty.
        """
        ways = [(scope, average) for scope in PAIR_SCOPES for average in TERM_AVERAGES]
        own = (self.pair_scope, self.term_average)
        return pd.DataFrame([self._summary(*way) for way in sorted(ways, key=lambda way: way != own)])

    def _size(self, sums: DeltaSums) -> int:
        """One more than the largest distance that has a pair and is asked for."""
        found = np.flatnonzero(sums.terms)
        largest = int(found[-1]) if len(found) else 0
        return 1 + (largest if self.max_delta is None else min(largest, self.max_delta))

    def _summary(self, pair_scope: str, term_average: str) -> dict[str, Any]:
        ats, curve = self.ats(pair_scope, term_average), self.curve(pair_scope, term_average)
        apart = curve[curve["delta"] > 0]
        values = {name: mats_value(ats, name) for name in NORMALISERS}
        spreads = {
            "std_deltas": _spread(ats[0] - ats[1:], self.ddof),
            **{name: apart[name].mean() if len(apart) else np.nan for name in ("std_pairs", "std_terms", "std_plain")},
        }
        sampled = "not computed" if self.kept == 0 else f"pairs among at most {self.kept} occurrences of a word"
        return {
            "pair_scope": pair_scope,
            "term_average": term_average,
            "normaliser": self.normaliser,
            "mats": values[self.normaliser][0],
            "mats_paper": values["paper"][0],
            "mats_mean": values["count"][0],
            "std": spreads[f"std_{self.std}"],
            **spreads,
            "ats_0": ats[0],
            "max_delta": int(apart["delta"].max()) if len(apart) else 0,
            "deltas": len(apart),
            "pairs": int(curve["pairs"].sum()),
            "terms": self.vocabulary,
            "passages": self.passages,
            "duplicates": self.duplicates,
            "spread_from": "all pairs" if self.kept is None else sampled,
            "reason": values[self.normaliser][1],
        }


def _text_key(text: str) -> int:
    return keyed_hash(0, "mats text", text)


class MATSAccumulator(Saved):
    """The sums that ATS and MATS need, over passages that come in any order and in any number of pieces.

    Give each passage once. Shards that are accumulated apart and merged, in any order, give the result of one pass.

    Sums are d + 1 float64 numbers for each word and position that were seen together (at most words x positions), in memory. For
    the spread over pairs the vectors themselves are kept, as they came, up to ``memory`` bytes. Beyond that, or where ``sample``
    says so, each word keeps the k occurrences whose keyed hash of (seed, docno, position) is smallest, k being the largest power
    of two that fits: a uniform sample that does not depend on the order of passages. The spread within words is then estimated by
    the mean square of the sampled pairs' cosines around the word's mean, which is exact like all means. The
    same is done where one word alone would take minutes, such as one that a passage repeats tens of thousands of times.

    Passages of one text: :meth:`fresh` tells which to leave out. A shard knows only its own, so put equal texts into one shard.

    When not to use it: on documents of many thousand words, whose positions are too many to compare word by word.

    Args:
        sample: None: exact while it fits into ``memory``. k >= 2: at most k occurrences of a word are kept for the spread over
            pairs; 0: no spread over pairs.
        memory: Bytes for the vectors that are kept for the spread over pairs.
        seed: Seed of the sample.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> passages = [("the cat saw the dog".split(), rng.normal(size=(5, 8))) for _ in range(4)]
        >>> one = MATSAccumulator().update(list("abcd"), passages)
        >>> parts = [MATSAccumulator().update(["a"], passages[:1]), MATSAccumulator().update(list("bcd"), passages[1:])]
        >>> two = parts[1].merge(parts[0])
        >>> bool(np.allclose(one.result().curve()["ats"], two.result().curve()["ats"]))
        True
    """

    ARTIFACT_TYPE = "attributions"

    def __init__(self, *, sample: int | None = None, memory: int = 2 * 2**30, seed: int = 0):
        if sample is not None:
            check_number("MATS", "sample", sample, least=0, whole=True)
        if sample == 1:
            raise InputError(f"MATS: sample={sample} is not possible; use 0 (no spread over pairs), 2 or more, or None (all)")
        self.sample = sample
        self.memory = memory
        self.seed = seed
        self.passages = 0
        self.skipped = 0
        self.duplicates = 0
        self.dimensions: int | None = None
        self._terms: dict[str, int] = {}
        self.occurrences = 0
        self._cells = _KeyedSums()
        self._within = _KeyedSums()
        self._kept = _Kept(sample, memory)
        self._texts: set[int] = set()

    def fresh(self, texts: Sequence[str]) -> list[bool]:
        """Which texts were not seen before, neither here nor among those remembered. Nothing is noted.

        Args:
            texts: The passages' texts.

        Returns:
            One truth value each.

        Example:
            >>> words = MATSAccumulator()
            >>> before = words.fresh(["a b", "c", "a b"])
            >>> words.remember(["a b", "c"])
            >>> before, words.fresh(["c"])
            ([True, True, False], [False])
        """
        own: set[int] = set()
        found = []
        for key in map(_text_key, texts):
            found.append(key not in self._texts and key not in own)
            own.add(key)
        return found

    def remember(self, texts: Sequence[str]) -> None:
        """Note texts as seen: those of passages that were added, since others may fail to be.

        Args:
            texts: The texts of passages that were added.
        """
        self._texts.update(map(_text_key, texts))

    def update(self, docnos: Sequence[str], passages: Sequence[Passage]) -> MATSAccumulator:
        """Add passages.

        Args:
            docnos: One name per passage.
            passages: For each passage its words and their vectors, shape [n, d]; a word's position is its index.

        Returns:
            The accumulator itself.

        Raises:
            InputError: If words and vectors do not match in number, or vectors are not real and finite numbers, or not all of one
                length.
        """
        if len(set(docnos)) != len(passages):
            raise InputError(f"MATS: {len(passages)} passages need as many different docnos, got {len(set(docnos))}")
        matrices = [self._checked(docno, words, vectors) for docno, (words, vectors) in zip(docnos, passages)]
        self.passages += len(passages)
        matrices = [matrix for matrix in matrices if len(matrix)]
        if not matrices:
            return self
        ids = self._terms
        terms = np.fromiter((ids.setdefault(w, len(ids)) for words, _ in passages for w in words), dtype=np.int64)
        lengths = np.array([len(words) for words, _ in passages])
        positions = np.concatenate([np.arange(n) for n in lengths])
        passage = np.repeat(np.arange(len(passages)), lengths)
        raw = np.concatenate(matrices)
        units, real = _units(raw)
        if not real.all():
            self.skipped += int(len(real) - real.sum())
            terms, positions, passage, raw, units = (part[real] for part in (terms, positions, passage, raw, units))
        self.occurrences += len(terms)
        self._cells.add(_key(terms, positions), units)
        for keys, sums in _inner(passage << 32 | terms, terms, positions, units[:, :-1], squares=False):
            self._within.add(keys, sums[:, ::-1])
        if self.sample != 0:
            names = np.array([keyed_hash(self.seed, "mats", docno) for docno in docnos], dtype=np.uint64)
            self._kept.add(terms, positions, names[passage], raw)
        return self

    def _checked(self, docno: str, words: Sequence[str], vectors: Any) -> np.ndarray:
        matrix = np.asarray(vectors)
        if not len(words) and not matrix.size:
            return np.empty((0, 0), dtype=np.float32)  # what encoders give for an empty text, in whatever shape
        matrix = real_array(matrix, f"MATS: the matrix of passage {docno!r}", None)
        if matrix.dtype.kind not in "fiu":
            raise InputError(f"MATS: the vectors of passage {docno!r} are of type {matrix.dtype}; an encoder gives numbers")
        if matrix.ndim != 2 or len(matrix) != len(words):
            raise InputError(
                f"MATS: passage {docno!r} has {len(words)} words and vectors of shape {matrix.shape}; an encoder gives one "
                f"vector per word, shape [words, dimensions]"
            )
        if self.dimensions is None:
            self.dimensions = matrix.shape[1]
        if matrix.shape[1] != self.dimensions:
            raise InputError(
                f"MATS: passage {docno!r} has vectors of {matrix.shape[1]} numbers where others have {self.dimensions}; use one "
                f"encoder and one layer for all passages"
            )
        if not np.isfinite(matrix).all():
            raise InputError(f"MATS: the vectors of passage {docno!r} hold NaN or infinity; check the encoder and its dtype")
        return matrix if matrix.dtype == np.float64 else matrix.astype(np.float32, copy=False)

    def merge(self, other: MATSAccumulator) -> MATSAccumulator:
        """Add what another accumulator holds, of other passages; the other one is not changed.

        Args:
            other: Made with the same options, and with vectors of the same length.

        Returns:
            The accumulator itself.

        Raises:
            InputError: If options or vectors differ.
        """
        mine, theirs = (self.sample, self.memory, self.seed), (other.sample, other.memory, other.seed)
        if mine != theirs:
            raise InputError(f"MATS: accumulators with (sample, memory, seed) {mine} and {theirs} cannot be merged")
        if None not in (self.dimensions, other.dimensions) and self.dimensions != other.dimensions:
            raise InputError(f"MATS: vectors of {self.dimensions} and of {other.dimensions} numbers cannot be merged")
        self.dimensions = self.dimensions or other.dimensions
        both = len(self._texts & other._texts)
        if both:
            logger.warning("MATS: %d texts are in both sums that are merged, and count twice; put equal texts in one shard", both)
        self._texts |= other._texts
        self.duplicates += other.duplicates
        self.passages += other.passages
        self.skipped += other.skipped
        self.occurrences += other.occurrences
        ids = self._terms
        mapped = np.fromiter((ids.setdefault(w, len(ids)) for w in list(other._terms)), dtype=np.int64, count=len(other._terms))
        for own, foreign in ((self._cells, other._cells), (self._within, other._within)):
            keys = foreign.keys()
            own.add(_key(mapped[keys >> 32], keys & 0xFFFFFFFF), foreign.values)
        self._kept.merge(other._kept, mapped)
        return self

    def result(
        self,
        *,
        min_pairs: int = 1,
        pair_scope: str = "cross_passage",
        normaliser: str = "paper",
        term_average: str = "present",
        std: str = "deltas",
        max_delta: int | None = None,
        ddof: int = 0,
    ) -> MATSResult:
        """ATS and MATS of what was added so far; more may be added afterwards.

        Args:
            min_pairs: A word counts at a distance where it has at least so many pairs; at least 1.
            pair_scope: Convention of the result, see :class:`MATSProbe`.
            normaliser: Likewise.
            term_average: Likewise.
            std: Likewise.
            max_delta: Likewise.
            ddof: Likewise.

        Returns:
            The result. Time is linear in the number of (word, position) cells, and for the spread in kept occurrences times
            the smaller of their number a word and d.
        """
        cells = self._cells.ordered()
        limit, kept = self._kept.by_term(self._affordable(cells))
        size = int((cells.keys & 0xFFFFFFFF).max()) + 1 if len(cells.keys) else 1
        sums = {scope: DeltaSums.zeros(size) for scope in PAIR_SCOPES}
        inner = self._within.ordered()
        known = np.unique(cells.keys >> 32)
        step = max(1, _BLOCK // (size * max(16, (self.dimensions or 0) + 1)))
        for first in range(0, len(known), step):
            ids = known[first : first + step]
            keys, values = cells.of_terms(ids)
            positions, starts = keys & 0xFFFFFFFF, np.searchsorted(keys >> 32, ids)
            pairs, cosines = np.zeros((2, len(ids), size))
            for row, (start, end) in enumerate(pairwise([*starts, len(keys)])):
                if end - start > 1 or values[start, -1] > 1:
                    part = slice(start, end)
                    pairs[row], cosines[row] = pair_sums(positions[part], values[part, :-1], values[part, -1], size)
            inner_cosines, inner_pairs = inner.block(ids, size, width=2)
            sampled = kept.block(ids, size, pairs, cosines) if kept else None
            _reduce(sums["all"], pairs, cosines, sampled and sampled[0], min_pairs)
            _reduce(sums["cross_passage"], pairs - inner_pairs, cosines - inner_cosines, sampled and sampled[1], min_pairs)
        return MATSResult(
            sums=sums,
            vocabulary=len(known),
            passages=self.passages,
            occurrences=self.occurrences,
            skipped=self.skipped,
            kept=limit,
            min_pairs=min_pairs,
            pair_scope=pair_scope,
            normaliser=normaliser,
            term_average=term_average,
            std=std,
            max_delta=max_delta,
            ddof=ddof,
            duplicates=self.duplicates,
        )

    def _affordable(self, cells: _Ordered) -> int | None:
        """How many occurrences of a word may be looked at for the spread over pairs; None for all.

        By all occurrences, not by those that are kept, so that shards and their order make no difference.
        """
        if not len(cells.keys) or self.sample == 0:
            return None
        starts = np.unique(cells.keys >> 32, return_index=True)[1]
        places = np.diff([*starts, len(cells.keys)]).astype(np.float64)
        occurrences = np.add.reduceat(cells.counts(), starts)
        d = self.dimensions or 1
        work = np.minimum(occurrences**2 * (d + _LOOK_UP), places**2 * (d * d + _LOOK_UP))
        return 1 << int(np.log2(_WORK / (d + _LOOK_UP)) / 2) if work.max() > _WORK else None

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the sums to a folder, whole or not at all.

        Args:
            folder: The folder to make: arrays as ``.npy``, words and options as JSON.
            overwrite: Whether what was saved there before may be replaced; files that the package did not write stay.

        Raises:
            InputError: If the folder exists and may not be replaced, or cannot be written.
        """
        self._kept.settle()
        meta = {
            "format": _FORMAT,
            "sample": self.sample,
            "memory": self.memory,
            "seed": self.seed,
            "passages": self.passages,
            "skipped": self.skipped,
            "duplicates": self.duplicates,
            "occurrences": self.occurrences,
            "dimensions": self.dimensions,
            "limit": self._kept.limit,
        }
        with self.saving(folder, holds="MATS sums", overwrite=overwrite) as scratch:
            for name, sums in (("cells", self._cells), ("within", self._within)):
                np.save(scratch / f"{name}_keys.npy", sums.keys())
                np.save(scratch / f"{name}.npy", sums.values)
            for name, part in self._kept.parts.items():
                np.save(scratch / f"kept_{name}.npy", part.values)
            np.save(scratch / "texts.npy", np.array(sorted(self._texts), dtype=np.uint64))
            (scratch / "words.json").write_text(json.dumps(list(self._terms)), encoding="utf-8")
            (scratch / "meta.json").write_text(json.dumps(meta, indent=1), encoding="utf-8")

    def saved_state(self) -> Any:
        """How much was added, and the sums."""
        counts = (self.passages, self.skipped, self.duplicates, self.occurrences, self.sample, self.memory, self.seed)
        return counts, list(self._terms), self._cells.keys(), self._cells.values

    @classmethod
    def load(cls, folder: str | Path) -> MATSAccumulator:  # type: ignore[override]  # PyTerrier calls it path
        """Read what :meth:`save` wrote.

        Args:
            folder: The folder.

        Returns:
            An accumulator to which more can be added.

        Raises:
            InputError: If there is no such folder, it holds something else, or is not as it was written.
        """
        return read_whole(folder, lambda: cls._read(Path(folder).expanduser()))

    @classmethod
    def _read(cls, folder: Path) -> MATSAccumulator:
        try:
            meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
            if meta["format"] != _FORMAT:
                raise InputError(f"MATS: folder {folder} has format {meta['format']}, this version reads {_FORMAT}")
            words = json.loads((folder / "words.json").read_text(encoding="utf-8"))
            made = cls(sample=meta["sample"], memory=meta["memory"], seed=meta["seed"])
            for name in ("passages", "skipped", "duplicates", "occurrences", "dimensions"):
                setattr(made, name, meta[name])
            made._terms = {word: i for i, word in enumerate(words)}
            for name, sums in (("cells", made._cells), ("within", made._within)):
                sums.add(np.load(folder / f"{name}_keys.npy"), np.load(folder / f"{name}.npy"))
            made._texts = set(np.load(folder / "texts.npy").tolist())
            parts = {name: np.load(folder / f"kept_{name}.npy") for name in made._kept.parts}
        except Exception as error:  # numpy's reader raises whatever its parts do
            if isinstance(error, InputError):
                raise
            raise InputError(f"MATS: {folder} holds no saved MATS sums ({one_line(error)})") from error
        made._kept.limit = meta["limit"]
        made._kept.add(**parts)
        made.kept_in(folder)
        return made


def _spread(values: np.ndarray, ddof: int = 0) -> float:
    """Standard deviation of the values that are not NaN; NaN for no more than ``ddof``."""
    values = values[~np.isnan(values)]
    return float(values.std(ddof=ddof)) if len(values) > ddof else np.nan


def _running_spread(values: np.ndarray, ddof: int) -> np.ndarray:
    """Standard deviations of the first, the first two, ... values, of those that are not NaN."""
    known = ~np.isnan(values)
    n = np.cumsum(known)
    # Around one mean, so that little is lost in the difference of two sums.
    around = np.where(known, values - values[known].sum() / max(n[-1] if len(n) else 0, 1), 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt(_unbiased(_variance(np.cumsum(around**2) / n, np.cumsum(around) / n), n, ddof))


def _variance(square: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Mean square less squared mean, 0 where that is rounding."""
    return np.where(square - mean**2 > _ROUNDING * square, square - mean**2, 0.0)


def _unbiased(variance: np.ndarray, n: np.ndarray, ddof: int) -> np.ndarray:
    """Variances of n values each, from those with ddof 0; NaN for no more values than ``ddof``."""
    return variance * np.divide(n, n - ddof, out=np.full(len(n), np.nan), where=n > ddof)


def _key(terms: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """One integer for a term and a position or distance."""
    return terms << 32 | numbers


def _units(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in float64 with a 1 behind each (so that summing counts too), and which vectors are not zero."""
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


def _reduce(into: DeltaSums, pairs: np.ndarray, cosines: np.ndarray, kept: tuple[np.ndarray, ...] | None, min_pairs: int) -> None:
    """Add a block of terms, shape [terms, distances], to the sums over terms; ``kept`` holds pairs, cosines and squares."""
    counts = (pairs >= min_pairs) & (pairs > 0)
    mean = np.divide(cosines, pairs, out=np.zeros_like(cosines), where=counts)
    into.terms[:] += counts.sum(axis=0)
    into.pairs[:] += np.where(counts, pairs, 0).sum(axis=0)
    into.means[:] += mean.sum(axis=0)
    into.squares[:] += np.square(mean).sum(axis=0)
    into.cosines[:] += np.where(counts, cosines, 0.0).sum(axis=0)
    into.weighted[:] += (np.square(mean) * np.where(counts, pairs, 0)).sum(axis=0)
    into.first[:] += np.bincount(counts.argmax(axis=1)[counts.any(axis=1)], minlength=counts.shape[1])
    paired = counts & counts[:, :1]
    into.falls[:] += np.where(paired, mean[:, :1] - mean, 0.0).sum(axis=0)
    into.paired_terms[:] += paired.sum(axis=0)
    into.paired_pairs[:] += np.where(paired, pairs, 0).sum(axis=0)
    if kept is None:
        return
    n, first, second = kept
    known = counts & (n > 0)
    # The mean square around the exact mean of all pairs, so that a sample of them is enough.
    around = np.divide(second - 2 * mean * first, n, out=np.zeros_like(mean), where=known) + np.square(mean) * known
    noise = _ROUNDING * np.divide(second, n, out=np.zeros_like(mean), where=known)
    around = np.where(around > noise, around, 0)
    into.weighted_within[:] += (around * np.where(known, pairs, 0)).sum(axis=0)
    into.weighted_pairs[:] += np.where(known, pairs, 0).sum(axis=0)
    into.within[:] += around.sum(axis=0)
    into.within_terms[:] += known.sum(axis=0)


def _runs(groups: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """An order in which equal entries stand together, where their runs begin, and how long they are."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    return order, starts, np.diff(starts, append=len(order))


def _inner(
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
        Keys of (term, distance), and for each pairs, cosines and, where asked for, squares. A key may come more than once.
    """
    order, starts, counts = _runs(groups)
    # A word that one passage repeats thousands of times has too many pairs to list.
    for start, count in zip(starts[counts > _MANY], counts[counts > _MANY]):
        rows = order[start : start + count]
        places = positions[rows] - positions[rows].min()
        size = int(places.max()) + 1
        found = [*pair_sums(places, units[rows], np.ones(count), size)]
        found += [pair_squares(places, units[rows], size)] if squares else []
        there = np.flatnonzero(found[0])
        yield _key(np.full(len(there), terms[rows[0]]), there), np.column_stack(found)[there]
    few = order[np.repeat(counts <= _MANY, counts)]
    left, right = (few[side] for side in twins(groups[few]))
    step = max(1, _BLOCK // units.shape[1])
    for start in range(0, len(left), step):
        i, j = left[start : start + step], right[start : start + step]
        cosines = np.einsum("ij,ij->i", units[i], units[j])
        sums = [np.ones(len(i)), cosines, *([cosines**2] if squares else [])]
        yield _key(terms[i], np.abs(positions[i] - positions[j])), np.column_stack(sums)


class _Grown:
    """Rows that are appended to one array, which grows in place where the system can: no second copy of what is large."""

    def __init__(self) -> None:
        self._store = np.empty((0, 0))
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> np.ndarray:
        return self._store[: self._count]

    def append(self, rows: np.ndarray) -> None:
        if not self._count:
            self._store = np.empty((0, *rows.shape[1:]), rows.dtype)
        elif np.promote_types(self._store.dtype, rows.dtype) != self._store.dtype:
            self._store = self._store.astype(rows.dtype)
        needed = self._count + len(rows)
        if needed > len(self._store):
            capacity = max(needed, len(self._store) * 5 // 4, 4096)
            self._store.resize((capacity, *rows.shape[1:]), refcheck=False)
        self._store[self._count : needed] = rows
        self._count = needed

    def keep(self, rows: np.ndarray) -> None:
        """Let all rows go but these."""
        self._store = self.values[rows]
        self._count = len(self._store)


class _KeyedSums:
    """Rows of numbers, summed by an integer key."""

    def __init__(self) -> None:
        self._rows: dict[int, int] = {}
        self._sums = _Grown()

    @property
    def values(self) -> np.ndarray:
        """The sums, one row per key, in the order of :meth:`keys`."""
        return self._sums.values

    def keys(self) -> np.ndarray:
        """The keys, in the order in which they were first seen."""
        return np.fromiter(self._rows, dtype=np.int64, count=len(self._rows))

    def ordered(self) -> _Ordered:
        """The sums in the order of their keys, as they are now."""
        return _Ordered(self.keys(), self.values)

    def add(self, keys: np.ndarray, values: np.ndarray) -> None:
        from scipy.sparse import csr_array

        if not len(keys):
            return
        distinct, place = np.unique(keys, return_inverse=True)
        by_key = csr_array((np.ones(len(keys)), (place, np.arange(len(keys)))), shape=(len(distinct), len(keys)))
        known = self._rows
        rows = np.fromiter((known.setdefault(key, len(known)) for key in distinct.tolist()), np.int64, len(distinct))
        if len(known) > len(self._sums):
            self._sums.append(np.zeros((len(known) - len(self._sums), values.shape[1])))
        self._sums.values[rows] += by_key @ values


class _Ordered:
    """Sums by term and a number (a position or a distance), in ascending order; reads them by blocks of terms."""

    def __init__(self, keys: np.ndarray, values: np.ndarray):
        self._order = np.argsort(keys)
        self.keys, self._values = keys[self._order], values

    def counts(self) -> np.ndarray:
        """The last of each row's sums, in the order of the keys."""
        return self._values[self._order, -1]

    def of_terms(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Keys and sums of a run of terms, ids ascending."""
        part = slice(*np.searchsorted(self.keys, (int(ids[0]) << 32, int(ids[-1]) + 1 << 32)))
        return self.keys[part], self._values[self._order[part]]

    def block(self, ids: np.ndarray, size: int, width: int) -> np.ndarray:
        """Sums of some terms, ids ascending, by distance: shape [width, len(ids), size], 0 where nothing was summed."""
        found = np.zeros((width, len(ids), size))
        keys, values = self.of_terms(ids)
        if len(keys):
            found[:, np.searchsorted(ids, keys >> 32), keys & 0xFFFFFFFF] = values.T
        return found


class _Kept:
    """Occurrences that are kept for the spread over pairs: all of them, or of each term those with the smallest keys."""

    def __init__(self, sample: int | None, memory: int):
        self.memory = memory
        self.limit = sample
        self.parts = {name: _Grown() for name in ("terms", "positions", "passages", "vectors")}
        self._settled = 0

    def __len__(self) -> int:
        return len(self.parts["terms"])

    def add(self, terms: np.ndarray, positions: np.ndarray, passages: np.ndarray, vectors: np.ndarray) -> None:
        if self.limit == 0 or not len(terms):
            return
        for part, rows in zip(self.parts.values(), (terms, positions, passages, vectors)):
            part.append(rows)
        if len(self) > (self._settled * 2 + 100_000 if self.limit is not None else self._room() * 1.5):
            self.settle()

    def merge(self, other: _Kept, mapped: np.ndarray) -> None:
        """Add another one's occurrences; ``mapped`` translates its terms' numbers."""
        if other.limit is not None:
            self.limit = other.limit if self.limit is None else min(self.limit, other.limit)
        self._settled = 0
        terms, *others = (part.values for part in other.parts.values())
        if len(terms):
            self.add(mapped[terms], *(part.copy() for part in others))

    def _room(self) -> int:
        """How many vectors fit into the memory."""
        vectors = self.parts["vectors"].values
        return self.memory // max(vectors.itemsize * vectors.shape[1], 1)

    def settle(self) -> None:
        """Let go of what does not fit. What stays depends on what was added, not on its order or on earlier calls."""
        terms, room = self.parts["terms"].values, self._room()
        if not len(self) or (self.limit is None and len(self) <= room):
            return
        counts = np.bincount(terms)
        limit = 1 << int(counts.max()).bit_length() if self.limit is None else self.limit
        while np.minimum(counts, limit).sum() > room:
            limit //= 2
        self.limit = limit if limit > 1 else 0
        if counts.max() > self.limit:
            rows = self._smallest(self.limit)
            for part in self.parts.values():
                part.keep(rows)
        self._settled = len(self)

    def _smallest(self, limit: int) -> np.ndarray:
        """The rows of each term's occurrences with the smallest keys, at most so many a term."""
        terms = self.parts["terms"].values
        draws = _draws(self.parts["passages"].values, self.parts["positions"].values)
        order, counts = np.lexsort((draws, terms)), np.bincount(terms)
        rank = np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
        return np.sort(order[rank < limit])

    def by_term(self, most: int | None = None) -> tuple[int | None, _KeptTerms | None]:
        """What is kept, ready to be read by terms.

        Args:
            most: How many occurrences of a term are read; None for all that are kept.

        Returns:
            How many occurrences a term has at most, None for all that there are; and what is kept, None for nothing.
        """
        self.settle()
        limits = [limit for limit in (self.limit, most) if limit is not None]
        limit = min(limits) if limits else None
        if not len(self):
            return limit, None
        rows = slice(None) if limit == self.limit else self._smallest(cast(int, limit))
        return limit, _KeptTerms(*(part.values[rows] for part in self.parts.values()), sampled=limit is not None)


def _draws(passages: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """A 64-bit hash for each occurrence: the passage's own, mixed with the position."""
    return mixed(passages + positions.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15), 0)


class _KeptTerms:
    """Kept occurrences in the order of their terms."""

    def __init__(self, terms: np.ndarray, positions: np.ndarray, passages: np.ndarray, vectors: np.ndarray, *, sampled: bool):
        self._positions, self._vectors, self._sampled = positions, vectors, sampled
        self._order = np.argsort(terms, kind="stable")
        self._terms = terms[self._order]
        groups, inner = np.unique(passages, return_inverse=True)[1] << 32 | terms, _KeyedSums()
        order, _, counts = _runs(groups)
        order, counts = order[np.repeat(counts > 1, counts)], counts[counts > 1]
        # Whole groups, in parts of about one block, so that few unit vectors are held at once.
        part = np.repeat((np.cumsum(counts) - counts) // max(1, _BLOCK // vectors.shape[1]), counts)
        for bounds in np.split(order, np.flatnonzero(np.diff(part)) + 1):
            if len(bounds):
                units = _units(vectors[bounds])[0][:, :-1]
                for keys, sums in _inner(groups[bounds], terms[bounds], positions[bounds], units, squares=True):
                    inner.add(keys, sums)
        self._inner = inner.ordered()

    def block(
        self, ids: np.ndarray, size: int, pairs: np.ndarray, cosines: np.ndarray
    ) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]:
        """Pairs, summed cosines and summed squares among kept occurrences of some terms: of all pairs, and across passages.

        Args:
            ids: The terms, ascending.
            size: Distances.
            pairs: All the terms' pairs, which are the kept ones where every occurrence is kept; shape [len(ids), size].
            cosines: Their summed cosines.

        Returns:
            Twice three arrays of shape [len(ids), size].
        """
        squares = np.zeros_like(pairs)
        if self._sampled:
            pairs, cosines = np.zeros_like(pairs), np.zeros_like(pairs)
        starts, ends = (np.searchsorted(self._terms, ids, side=side) for side in ("left", "right"))
        for row, (start, end) in enumerate(zip(starts, ends)):
            if end - start < 2:
                continue
            rows = self._order[start:end]
            positions, units = self._positions[rows], _units(self._vectors[rows])[0]
            squares[row] = pair_squares(positions, units[:, :-1], size)
            if self._sampled:
                own = _KeyedSums()
                own.add(positions, units)
                pairs[row], cosines[row] = pair_sums(own.keys(), own.values[:, :-1], own.values[:, -1], size)
        whole = (pairs, cosines, squares)
        inner = self._inner.block(ids, size, width=3)
        return whole, tuple(all_pairs - own for all_pairs, own in zip(whole, inner))
