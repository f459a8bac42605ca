"""Samplers that avoid false negatives: alternatives to coupled estimation.

Each sampler computes the probability of drawing each document of a pool
(:class:`~pyterrier_debias.training.samplers.ChanceSampler`), so that its assumptions can be compared with known judgements, see
:func:`~pyterrier_debias.pooling.formulas.negative_weights.emphasis_of`. A draw depends on the training's seed, the epoch and the
identifiers, never on the order of the candidates.

Every example needs a negative. If no candidate of a query is suitable, a sampler uses the least unsuitable ones (the class says
which these are), and reports once per training how often this happens.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.columns import remedy
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.core.text import keyed_generator, keyed_hash
from pyterrier_debias.core.variants import document_of, with_passages
from pyterrier_debias.training.groups import grades
from pyterrier_debias.training.samplers import ChanceSampler, UniformNegatives

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups

logger = logging.getLogger(__name__)

#: Groups, and samplers or excluded pairs about which a warning was logged; an entry lives as long as its groups.
_SAID: WeakValueDictionary[tuple[int, Any], Groups] = WeakValueDictionary()


class CarefulSampler(ChanceSampler):
    """Base class of samplers that filter candidates, with a fallback for queries without a suitable one.

    A subclass implements :meth:`wanted` and :meth:`otherwise`.
    """

    #: The name of the fallback, for the log.
    otherwise_text = "all candidates"

    @abstractmethod
    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The chance of each document of ``group.pool``, or whether it is suitable; may be 0 (False) for all."""

    def otherwise(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The chance of each document if none is suitable; not 0 for all."""
        return np.ones(len(group.pool))

    def chances(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The chances of :meth:`wanted`, or of :meth:`otherwise` if these are all 0; see :class:`ChanceSampler`."""
        chances = np.asarray(self.wanted(groups, group, positive), dtype=np.float64)
        if chances.any():
            return chances
        self._say(groups)
        return np.asarray(self.otherwise(groups, group, positive), dtype=np.float64)

    def _say(self, groups: Groups) -> None:
        """Log how often no document is suitable, once for these groups."""
        if (id(groups), self) in _SAID:
            return
        _SAID[id(groups), self] = groups
        units = [(group, positive) for group in groups.groups for positive in group.positives.tolist()]
        without = sum(not np.any(self.wanted(groups, group, positive)) for group, positive in units)
        named, otherwise = type(self).__name__, self.otherwise_text
        warn_of(
            logger,
            f"{named}: no candidate is suitable for %d of %d positives; for these it draws from {otherwise}",
            without,
            len(units),
        )


@dataclass(frozen=True)
class RankWindow(CarefulSampler):
    """Draws negatives with equal chance from the candidates whose rank lies in a window.

    With ``column='pool_rank'``, negatives are documents that the pooling system itself retrieved, however strong the system is
    whose candidates are reranked later. Cai et al. (CIKM 2022) call this "zhan" in their tables.

    Source: Zhan, Mao, Liu, Guo, Zhang and Ma, "Optimizing Dense Retrieval Model Training with Hard Negatives", SIGIR 2021, whose
    rerankers learn from the negatives of BM25 and are tested on stronger lists.

    It assumes that unlabelled documents that the pooling system ranked high were judged not relevant. If a query has no
    candidate in the window, the nearest ranks outside it are drawn; if no candidate has a rank, all candidates are.

    Args:
        column: The column with ranks, from 0. Missing ranks are outside every window.
        first: The first rank of the window.
        last: The last rank of the window, included; None for no end.

    Raises:
        InputError: For an option that is unknown or out of range.

    When not to use it: if the pooling system is weak, since its negatives teach little; if the ranks are those of the strong
    system, since false negatives are concentrated at its top (cut this off with ``first``).

    Example:
        ``Training(negatives=RankWindow('pool_rank', last=99))``

    .. cite.dblp:: journals/corr/abs-2104-08051
    """

    column: str = "rank"
    first: int = 0
    last: int | None = None

    otherwise_text = "the nearest ranks"

    def __post_init__(self) -> None:
        """Raise an error for an empty window."""
        for option in ("first", "last"):
            if option == "first" or self.last is not None:
                check_number("RankWindow", option, getattr(self, option), whole=True)
        if self.first < 0 or (self.last is not None and self.last < self.first):
            raise InputError(f"RankWindow: first={self.first} and last={self.last} leave no rank; ranks begin at 0")

    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """Whether each candidate's rank is in the window."""
        return self._distances(groups, group) == 0

    def otherwise(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The candidates with the nearest ranks outside the window."""
        distances = self._distances(groups, group)
        return distances == distances.min()

    def _distances(self, groups: Groups, group: Group) -> np.ndarray:
        ranks = _values(groups, group.pool, self.column, self)
        beyond = ranks - (np.inf if self.last is None else self.last)
        distances = np.maximum(0, np.maximum(self.first - ranks, beyond))
        return np.where(np.isnan(ranks), np.inf, distances)


@dataclass(frozen=True)
class DenoisedNegatives(CarefulSampler):
    """Draws negatives among the top candidates that a teacher considers irrelevant, and fills up with lower-ranked ones.

    Source: Qu, Ding, Liu, Liu, Ren, Zhao, Dong, Wu and Wang, "RocketQA: An Optimized Training Approach to Dense Passage Retrieval
    for Open-Domain Question Answering", NAACL 2021: a cross-encoder scores the top 50 of a dense retriever, those with a score
    below .1 are hard negatives, and random ones from below the top 50 make up the four negatives of a positive.

    It assumes that the teacher can tell relevant from irrelevant, and that documents beyond the depth are irrelevant. If a query
    has neither kind, the candidates with the lowest teacher's probability are drawn.

    Args:
        column: The column with the teacher's probability, from 0 to 1, for every candidate; see
            :class:`~pyterrier_debias.AddScores` with ``activation='sigmoid'``.
        below: A hard negative's probability is below this.
        depth: Number of ranks that count as the top.
        rank_column: The column with ranks, from 0. Candidates without a rank count as beyond the depth.

    Raises:
        InputError: For an option that is unknown or out of range.

    When not to use it: with a teacher that was trained on the same false negatives itself, or whose probabilities are not
    calibrated (the threshold then has another meaning: look at a histogram first).

    Example:
        ``(bm25 >> AddJudged(qrels) >> texts >> AddScores(teacher, activation='sigmoid')
        >> CrossEncoder(model, training=Training(negatives=DenoisedNegatives(), negatives_per_positive=4))).fit(topics, qrels)``

    .. cite.dblp:: journals/corr/abs-2010-08191
    """

    column: str = "teacher_score"
    below: float = 0.1
    depth: int = 50
    rank_column: str = "rank"

    otherwise_text = "the candidates that the teacher scores lowest"

    def __post_init__(self) -> None:
        """Raise an error for options out of range."""
        check_number("DenoisedNegatives", "below", self.below, above=0, most=1, hint="it is a probability")
        check_number("DenoisedNegatives", "depth", self.depth, least=0, whole=True)

    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The candidates that are drawn first: hard negatives, or those beyond the depth if there is none."""
        hard, beyond = self._tiers(groups, group)
        return hard if hard.any() else beyond

    def otherwise(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The candidates with the lowest score."""
        return _lowest(self._probabilities(groups, group))

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw hard negatives, and the missing ones from beyond the depth; see :class:`Sampler`."""
        hard, beyond = self._tiers(groups, group)
        if not hard.any() or not beyond.any():
            return super().sample(groups, group, positive, n, seed=seed, epoch=epoch)
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, groups.column("docno")[positive])
        first = chance.choice(group.pool[hard], size=min(n, int(hard.sum())), replace=False)
        return np.r_[first, chance.choice(group.pool[beyond], size=min(n - len(first), int(beyond.sum())), replace=False)]

    def _probabilities(self, groups: Groups, group: Group) -> np.ndarray:
        values = _values(groups, group.pool, self.column, self, complete=True)
        bad = np.flatnonzero((values < 0) | (values > 1))
        if len(bad):
            raise InputError(
                f"DenoisedNegatives: column '{self.column}' is {values[bad[0]]:g} at {_pair(groups, group.pool[bad[0]])}, which "
                f"is not a probability; add it with AddScores(teacher, activation='sigmoid')"
            )
        return values

    def _tiers(self, groups: Groups, group: Group) -> tuple[np.ndarray, np.ndarray]:
        """Masks of the candidates that are hard negatives, and of those beyond the depth."""
        top = _values(groups, group.pool, self.rank_column, self) < self.depth
        return top & (self._probabilities(groups, group) < self.below), ~top


@dataclass(frozen=True)
class PositiveAwareNegatives(CarefulSampler):
    r"""Draws negatives with equal chance from the candidates that a teacher scores clearly below the positive.

    With the positive's score s+, a candidate of score s is left out if :math:`s > m` (``max_score``), if
    :math:`s > s^+ - (1 - p) |s^+|` (``percentage`` p; for a positive s+ this is p s+), or if :math:`s + d > s^+` (``margin``
    d). Several rules may be given; a candidate has to pass all of them.

    Source: Moreira, Osmulski, Xu, Ak, Schifferer and Oldridge, "NV-Retriever: Improving Text Embedding Models with Effective
    Hard-Negative Mining", 2024, arXiv 2407.15831, who find a percentage of .95 best. The rules are those of
    ``sentence_transformers.util.mine_hard_negatives`` (``max_score``, ``relative_margin`` = 1 - p, ``absolute_margin``), also for
    negative scores, for which p s+ would lie above s+. If a query has several positives, however, each candidate is compared
    with the positive that it is paired with, not with the lowest of them.

    It assumes that the teacher gives a query's relevant documents similar scores. If no candidate passes, those with the lowest
    score are drawn.

    Args:
        column: The column with the teacher's score of every candidate, including the positives; see
            :class:`~pyterrier_debias.AddScores`.
        max_score: The highest score that a negative may have.
        percentage: The share of the positive's score that a negative may have, above 0 and at most 1.
        margin: How far a negative must lie below the positive, at least 0.

    Raises:
        InputError: For an option that is unknown or out of range.

    When not to use it: ``percentage`` with scores whose zero means nothing, such as logits (use ``margin``); for a positive
    that the teacher scores low, since hardly any candidate passes.

    Example:
        ``Training(negatives=PositiveAwareNegatives(percentage=0.95), negatives_per_positive=4)``

    .. cite.dblp:: journals/corr/abs-2407-15831
    """

    column: str = "teacher_score"
    max_score: float | None = None
    percentage: float | None = None
    margin: float | None = None

    otherwise_text = "the candidates that the teacher scores lowest"

    def __post_init__(self) -> None:
        """Raise an error for options out of range."""
        if self.max_score is None and self.percentage is None and self.margin is None:
            raise InputError("PositiveAwareNegatives: give max_score, percentage or margin, e.g. percentage=0.95")
        if self.percentage is not None:
            check_number("PositiveAwareNegatives", "percentage", self.percentage, above=0, most=1, hint="such as 0.95")
        if self.margin is not None:
            check_number("PositiveAwareNegatives", "margin", self.margin, least=0)
        if self.max_score is not None:
            check_number("PositiveAwareNegatives", "max_score", self.max_score)

    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """Whether each candidate passes all rules."""
        scores = _values(groups, group.pool, self.column, self, complete=True)
        above = _values(groups, np.array([positive]), self.column, self, complete=True)[0]
        return positive_aware(scores, above, max_score=self.max_score, percentage=self.percentage, margin=self.margin)

    def otherwise(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The candidates with the lowest score."""
        return _lowest(_values(groups, group.pool, self.column, self, complete=True))


def positive_aware(
    scores: np.ndarray,
    positive: float,
    *,
    max_score: float | None = None,
    percentage: float | None = None,
    margin: float | None = None,
) -> np.ndarray:
    """Find the candidates that score clearly below a positive; see :class:`PositiveAwareNegatives`.

    Args:
        scores: The teacher's scores of n candidates.
        positive: The teacher's score of the positive.
        max_score: The rule ``max_score`` of the class; None for no such rule.
        percentage: The rule ``percentage`` of the class; None for no such rule.
        margin: The rule ``margin`` of the class; None for no such rule.

    Returns:
        n booleans.

    Example:
        >>> positive_aware(np.array([0.2, 0.79, 0.81]), 0.8, percentage=0.95).tolist()
        [True, False, False]
        >>> positive_aware(np.array([-5.0, -4.1, -3.0]), -4.0, percentage=0.95).tolist()
        [True, False, False]
    """
    passing = np.ones(len(scores), dtype=bool)
    if max_score is not None:
        passing &= scores <= max_score
    if percentage is not None:
        passing &= scores <= positive - (1 - percentage) * abs(positive)
    if margin is not None:
        passing &= scores + margin <= positive
    return passing


def rank_chances(counts: np.ndarray, queries: int, *, k: float = 2.0, window: int = 9, degree: int = 4) -> np.ndarray:
    r"""Compute how likely each rank should be drawn, given how often it held a relevant document (RANCE).

    The gain :math:`(1 - c_i / |Q|) / \ln(i + K)` of rank i (from 0) is smoothed by a centred mean over whole windows. A
    polynomial is fitted to it, and held constant for half a window at both ends. The lowest smoothed gain is subtracted, and
    negative values are set to 0.

    Args:
        counts: c, the number of queries with a relevant document at each rank, shape [depth].
        queries: |Q|, at least 1.
        k: K, above 1; the larger, the less the top is favoured.
        window: Number of ranks over which the mean is taken, odd.
        degree: Degree of the polynomial.

    Returns:
        Chances of the ranks, which sum to 1, shape [depth].

    Raises:
        InputError: For an option out of range, counts that are not from 0 to |Q|, or fewer ranks than the fit needs.

    Example:
        >>> int(rank_chances(np.zeros(100), 10).argmax())  # nothing is relevant: the top is drawn most often
        0
    """
    counts = np.asarray(counts, dtype=np.float64)
    check_number("RANCE", "k", k, above=1)
    check_number("RANCE", "window", window, least=1, whole=True)
    check_number("RANCE", "degree", degree, least=0, whole=True)
    check_number("RANCE", "queries", queries, least=1, whole=True, hint="it is how many queries were judged")
    if window % 2 == 0:
        raise InputError(f"RANCE: window={window!r} must be odd")
    if not ((counts >= 0) & (counts <= queries)).all():
        bad = int(np.flatnonzero(~((counts >= 0) & (counts <= queries)))[0])
        raise InputError(
            f"RANCE: {counts[bad]:g} of {queries} queries have a relevant document at rank {bad}; counts must be from 0 to "
            f"queries={queries}"
        )
    if len(counts) < window + degree:
        raise InputError(
            f"RANCE: {len(counts)} ranks are too few for window={window} and degree={degree}, which need {window + degree}; give "
            f"deeper lists, or a smaller window and degree"
        )
    gains = (1 - counts / queries) / np.log(np.arange(len(counts)) + k)
    smooth = np.convolve(gains, np.full(window, 1 / window), mode="valid")
    at = np.arange(len(smooth))
    fit = np.polynomial.Polynomial.fit(at, smooth, degree)(at)
    chances = np.clip(np.pad(fit, window // 2, mode="edge") - smooth.min(), 0, None)
    return chances / chances.sum() if chances.sum() > 0 else np.full(len(counts), 1 / len(counts))


@dataclass(frozen=True, repr=False)
class RankDistribution(CarefulSampler):
    """Draws negatives by rank, from a distribution that is estimated on a few densely judged queries (RANCE).

    Source: Prakash, Killingback and Zamani, "Learning Robust Dense Retrieval Models from Incomplete Relevance Labels", SIGIR
    2021, and its released code (depth 500, five negatives, K = 2, window 9, degree 4). The original estimates the distribution
    again at each checkpoint, from the present retriever's own lists; to do this here, make a new sampler from new candidates.

    It assumes that the densely judged queries are like the others: that relevant documents are at the same ranks of their lists.
    If all of a query's candidates are at ranks with a chance of 0, they are drawn with equal chance.

    Args:
        chances_by_rank: The chance of each rank, from 0; it is 0 for further ranks. Chances need not sum to 1.
        column: The column with ranks, from 0, of the system for which the distribution was estimated.

    Raises:
        InputError: For chances that are not a list of numbers, negative, or all 0.

    When not to use it: with the ranks of a system other than the one used for the estimate; with so few judged queries that the
    counts are noise (look at ``chances_by_rank``).

    Example:
        ``Training(negatives=RankDistribution.estimate(candidates, dense_qrels), negatives_per_positive=5)``
    """

    chances_by_rank: tuple[float, ...]
    column: str = "rank"

    def __post_init__(self) -> None:
        """Accept any sequence of numbers; raise an error if it is not a distribution."""
        if isinstance(self.chances_by_rank, str) or not isinstance(self.chances_by_rank, Iterable):
            raise InputError(f"RankDistribution: chances_by_rank={self.chances_by_rank!r} must be a list of numbers")
        given = list(self.chances_by_rank)
        for chance in given:
            check_number("RankDistribution", "chances_by_rank", chance, least=0)
        object.__setattr__(self, "chances_by_rank", tuple(map(float, given)))
        if not any(given):
            raise InputError("RankDistribution: chances_by_rank are all 0; at least one must be above")

    def __repr__(self) -> str:
        """The constructor call, with a digest in place of the chances."""
        digest = keyed_hash(0, *map(repr, self.chances_by_rank))
        return f"RankDistribution(<{len(self.chances_by_rank)} ranks, {digest:016x}>, column={self.column!r})"

    @classmethod
    def estimate(
        cls,
        candidates: pd.DataFrame,
        dense_qrels: pd.DataFrame,
        *,
        depth: int = 500,
        k: float = 2.0,
        window: int = 9,
        degree: int = 4,
        min_label: int = 1,
        column: str = "rank",
    ) -> Self:
        """Make a sampler by estimating the distribution from densely judged queries; see :func:`rank_chances`.

        Args:
            candidates: The system's lists for densely judged queries: ``qid``, ``docno`` and ranks.
            dense_qrels: Their judgements, ``qid``, ``docno``, ``label``. Passages (``d7%p0``) get their document's label.
            depth: Number of ranks to use, if the lists are that long.
            k: K, 2 in the released code.
            window: Window of the smoothing, in ranks.
            degree: Degree of the polynomial.
            min_label: The lowest grade that counts as relevant.
            column: The column with ranks, from 0.

        Returns:
            The sampler.

        Raises:
            InputError: If a column is missing, a rank is not a whole number from 0, no query or no document of the candidates is
                judged, or the lists are too short.

        Example:
            >>> lists = pd.DataFrame({"qid": ["q"] * 50, "docno": [f"d{i}" for i in range(50)], "rank": range(50)})
            >>> RankDistribution.estimate(lists, pd.DataFrame({"qid": ["q"], "docno": ["d0"], "label": [1]}))
            RankDistribution(<50 ranks, ...>, column='rank')
        """
        judged = grades(dense_qrels, cls.__name__)
        rows = frames.with_string_ids(candidates, cls.__name__)
        missing = [name for name in ("qid", "docno", column) if name not in rows.columns]
        if missing:
            there = ", ".join(rows.columns) or "none"
            raise InputError(
                f"{cls.__name__}: the candidates have no column {missing[0]!r} (they have {there}); {remedy(missing)}"
            )
        frames.check_pairs(rows, cls.__name__)
        frames.check_overlap(rows, judged, cls.__name__)
        rows = rows[rows["qid"].isin(set(judged["qid"])) & rows[column].notna()]
        at = frames.numbers(rows[column], cls.__name__)
        bad = rows[~((at >= 0) & (at % 1 == 0))]
        if len(bad):
            raise InputError(
                f"{cls.__name__}: column {column!r} is {bad[column].iloc[0]} for qid={bad['qid'].iloc[0]!r}, "
                f"docno={bad['docno'].iloc[0]!r}; ranks are whole numbers from 0, e.g. pt.model.add_ranks(candidates)"
            )
        found = rows.assign(at=at.astype("int64")).merge(with_passages(judged, rows), on=["qid", "docno"])
        if len(rows) and found.empty:
            raise InputError(
                f"{cls.__name__}: no judged docno (e.g. {judged['docno'].iloc[0]!r}) is among the candidates (e.g. "
                f"{rows['docno'].iloc[0]!r}); check that both name documents alike"
            )
        relevant = found.loc[found["label"].ge(min_label), "at"].to_numpy()
        ranks = min(depth, int(at.max()) + 1) if len(rows) else 0
        counts = np.bincount(relevant[relevant < ranks], minlength=ranks)
        return cls(tuple(rank_chances(counts, rows["qid"].nunique(), k=k, window=window, degree=degree)), column)

    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The chances of the candidates' ranks."""
        ranks, by_rank = _values(groups, group.pool, self.column, self), np.array(self.chances_by_rank)
        known = (ranks >= 0) & (ranks < len(by_rank))
        return np.where(known, by_rank[np.where(known, ranks, 0).astype(np.int64)], 0.0)


@dataclass(frozen=True, repr=False)
class ExcludeNegatives(CarefulSampler):
    """Draws negatives with another sampler, but never the given pairs.

    Use it for negatives that are known to be bad, and in experiments for the oracle, which knows all false negatives. With
    ``Training(in_batch_negatives=True)`` the pairs are no in-batch negatives either, nor are copies of their texts.

    It uses the other sampler's chances, not its own way of drawing if it has one. If that sampler gives all its chance to
    excluded documents, the others are drawn with equal chance. Two such samplers are equal if their pairs and their samplers are.

    Args:
        pairs: A frame with ``qid`` and ``docno``, or an iterable of such pairs; kept as a frozenset of strings. With a document,
            its passages (``d7%p0``) are excluded, too. If no pair is among the possible negatives, a warning says so.
        negatives: The sampler that draws among the other pairs.

    Raises:
        InputError: In training, for a query whose candidates are all excluded. Remove the pairs from the candidates instead:
            queries without a negative are then left out.

    When not to use it: with pairs that come from the test judgements, except in an experiment about exactly that.

    Example:
        >>> ExcludeNegatives([("q1", "d7")])
        ExcludeNegatives(<1 pairs, ...>, UniformNegatives())
    """

    if TYPE_CHECKING:
        # Any pairs are accepted, and kept as a set.
        pairs: frozenset[tuple[str, str]]
        negatives: ChanceSampler

        def __init__(
            self,
            pairs: Iterable[tuple[str, str]] | pd.DataFrame,
            negatives: ChanceSampler = UniformNegatives(),  # noqa: B008
        ) -> None:
            """Make the sampler; see the class."""
    else:
        pairs: Iterable[tuple[str, str]] | pd.DataFrame
        negatives: ChanceSampler = field(default_factory=UniformNegatives)

    def __post_init__(self) -> None:
        """Turn the pairs into a frozenset."""
        pairs: Any = self.pairs
        if not isinstance(pairs, pd.DataFrame):
            pairs = pd.DataFrame(list(pairs), columns=["qid", "docno"])
        pairs, context = frames.with_string_ids(pairs, "ExcludeNegatives, pairs"), "ExcludeNegatives"
        pt.validate.columns(pairs, includes=["qid", "docno"], context=context)  # type: ignore[arg-type]  # printed only
        object.__setattr__(self, "pairs", frozenset(zip(pairs["qid"], pairs["docno"])))
        if not hasattr(self.negatives, "chances"):
            raise InputError(f"ExcludeNegatives: {self.negatives!r} does not provide its chances; make it a ChanceSampler")

    def __repr__(self) -> str:
        """The constructor call, with a digest in place of the pairs."""
        digest = keyed_hash(0, *chain.from_iterable(sorted(self.pairs)))
        return f"ExcludeNegatives(<{len(self.pairs)} pairs, {digest:016x}>, {self.negatives!r})"

    def excluded(self) -> frozenset[tuple[str, str]]:
        """The given pairs, and those that the other sampler excludes."""
        return self.pairs | getattr(self.negatives, "excluded", frozenset)()

    otherwise_text = "all that is not excluded"

    def wanted(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The other sampler's chances, with 0 for excluded documents."""
        return np.where(self._allowed(groups, group), self.negatives.chances(groups, group, positive), 0.0)

    def otherwise(self, groups: Groups, group: Group, positive: int) -> np.ndarray:
        """The documents that are not excluded."""
        allowed = self._allowed(groups, group)
        if not allowed.any():
            raise InputError(
                f"ExcludeNegatives: all {len(allowed)} possible negatives of query {group.qid!r} are excluded; take the pairs "
                f"out of the candidates, and such queries are left out"
            )
        return allowed

    def _allowed(self, groups: Groups, group: Group) -> np.ndarray:
        if self.pairs and (id(groups), self.pairs) not in _SAID:
            _SAID[id(groups), self.pairs] = groups
            if not any(self._excluded(groups, one).any() for one in groups.groups):
                warn_of(
                    logger,
                    "ExcludeNegatives: none of its %d pairs is among the possible negatives of %d queries, so nothing is "
                    "excluded; check that they name queries and documents as the candidates do",
                    len(self.pairs),
                    len(groups),
                )
        return ~self._excluded(groups, group)

    def _excluded(self, groups: Groups, group: Group) -> np.ndarray:
        """Whether each document of ``group.pool`` is in a given pair, or is a passage of one that is."""
        docnos, qid, pairs = groups.column("docno"), group.qid, self.pairs
        pool = [docnos[row] for row in group.pool.tolist()]
        return np.array([(qid, docno) in pairs or (qid, document_of(docno)) in pairs for docno in pool], dtype=bool)


def _values(groups: Groups, rows: np.ndarray, column: str, sampler: Any, *, complete: bool = False) -> np.ndarray:
    """A column's values at some rows, as float64; with ``complete``, a missing one is an error."""
    values = groups.column(column)
    try:
        found = np.array([values[row] for row in rows.tolist()], dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{type(sampler).__name__}: column '{column}' holds a value that is not a number ({error})") from error
    bad = np.flatnonzero(np.isnan(found)) if complete else np.empty(0, dtype=np.int64)
    if len(bad):
        first = int(rows[bad[0]])
        raise InputError(
            f"{type(sampler).__name__}: column '{column}' has no value at {_pair(groups, first)}; every candidate needs it: "
            f"put AddScores(teacher) after whatever adds candidates"
        )
    return found


def _pair(groups: Groups, row: int) -> str:
    return f"qid={groups.column('qid')[row]!r}, docno={groups.column('docno')[row]!r}"


def _lowest(values: np.ndarray) -> np.ndarray:
    return values == values.min()
