"""ATS and MATS of sums over pairs, under every convention that the paper leaves open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number

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
ROUNDING = 64 * np.finfo(np.float64).eps


def check_conventions(values: Mapping[str, Any]) -> None:
    """Refuse conventions that are not known.

    Args:
        values: Value of each of :data:`CONVENTIONS`, of ``ddof``, ``max_delta`` and ``min_pairs``; others are ignored.

    Raises:
        InputError: Naming the convention and what it may be.
    """
    for name, known in CONVENTIONS.items():
        check_choice("MATSProbe", name, values[name], known)
    check_number("MATSProbe", "ddof", values["ddof"], least=0, whole=True)
    for name in ("max_delta", "min_pairs"):
        if values[name] is not None or name == "min_pairs":
            check_number("MATSProbe", name, values[name], least=1, whole=True)


def mats_value(ats: np.ndarray, normaliser: str = "paper") -> tuple[float, str]:
    """MATS of a curve.

    The sum of ATS(0) - ATS(i) is over the distances i >= 1 that have a pair. If all distances up to max D have one, ``'max'`` and
    ``'count'`` are the same, and so are ``'paper'`` and ``'count_less_one'``.

    Args:
        ats: ATS(0), ATS(1), ..., NaN if a distance has no pair.
        normaliser: What the sum is divided by. ``'paper'``: max D - 1, as the paper prints it, max D being the largest distance
            that has a pair; ``'max'``: max D; ``'count'``: the number of distances that have a pair, which gives a plain mean;
            ``'count_less_one'``: one less than their number; ``'sum'``: nothing.

    Returns:
        The value and an empty string; or NaN and the reason why it is not defined.

    Example:
        >>> mats_value(np.array([1.0, 0.75, 0.5])), mats_value(np.array([1.0, 0.75, 0.5]), "count")
        ((0.75, ''), (0.375, ''))
        >>> mats_value(np.array([np.nan, 0.8]))[1]
        'ATS(0) is not defined: no word stands at the same position of two passages'

        Distances 1 and 4: the differences 0.25 and 0.5, divided by max D - 1 = 3.

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
        return np.nan, f"only one distance has a pair, so {what} is 0; mats_mean is defined"
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
        falls: The terms' mean cosine at distance 0 minus that at this distance, summed over the terms with enough pairs at both.
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
        occurrences: How many of their words had a vector.
        skipped: How many had a zero vector, which has no direction, and were left out.
        kept: None if the spread over pairs is exact; otherwise the most occurrences of each word from which it is estimated (0:
            it is not computed). The means are always exact.
        min_pairs: The fewest pairs with which a word counts at a distance.
        pair_scope: The convention of :meth:`curve` and of the first row of :meth:`mats`; see :class:`MATSProbe`.
        normaliser: Likewise.
        term_average: Likewise.
        std: Likewise.
        max_delta: Likewise; None for all distances.
        ddof: Likewise.
        duplicates: How many passages were left out because their text had been seen.

    Example:
        >>> from pyterrier_debias.position.formulas.mats import MATSAccumulator
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
        """MATS, the number of passages and words, and the conventions; not the sums, which would fill many screens."""
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
            InputError: For an unknown convention, and for an option that the sums were made with, such as ``min_pairs``.
        """
        known = (*CONVENTIONS, "ddof", "max_delta")
        others = [name for name in conventions if name not in known]
        if others:
            raise InputError(
                f"MATSResult.under: there is no convention {others[0]!r}; use {', '.join(known)} (min_pairs is an option of "
                f"MATSProbe, and of MATSAccumulator.result())"
            )
        return replace(self, **conventions)

    def ats(self, pair_scope: str | None = None, term_average: str | None = None) -> np.ndarray:
        """ATS(0), ATS(1), ... up to ``max_delta``; NaN if a distance has no pair.

        Args:
            pair_scope: ``'cross_passage'`` or ``'all'``; None for the result's own.
            term_average: ``'present'``, ``'all'``, ``'any'`` or ``'paired'``; None for the result's own.

        Returns:
            Shape [max D + 1], max D being the largest distance with a pair, or ``max_delta`` if that is less.
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
        """The requested conventions, or the result's own."""
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
            all pairs around their own mean, each pair counting once (the last three over the words that are present, whatever
            ``term_average`` is); ``pairs``; ``terms``; ``pair_scope`` and ``term_average``. All but ``std_pairs``, which has no
            single count, follow ``ddof``.
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
            that counted; ``deltas``, how many distances counted; ``pairs``; ``terms``, the distinct words; ``passages``;
            ``duplicates``, how many more passages were left out because their text had been seen; ``spread_from`` (``'all
            pairs'``, or how they were sampled); ``reason``, why ``mats`` is NaN, otherwise empty.
        """
        ways = [(scope, average) for scope in PAIR_SCOPES for average in TERM_AVERAGES]
        own = (self.pair_scope, self.term_average)
        return pd.DataFrame([self._summary(*way) for way in sorted(ways, key=lambda way: way != own)])

    def _size(self, sums: DeltaSums) -> int:
        """One more than the largest distance that has a pair and is requested."""
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
    """Mean square minus squared mean, 0 if the difference is rounding error."""
    return np.where(square - mean**2 > ROUNDING * square, square - mean**2, 0.0)


def _unbiased(variance: np.ndarray, n: np.ndarray, ddof: int) -> np.ndarray:
    """Variances of n values each, from those with ddof 0; NaN for no more values than ``ddof``."""
    return variance * np.divide(n, n - ddof, out=np.full(len(n), np.nan), where=n > ddof)
