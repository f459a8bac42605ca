"""PoolEvidence: the input of a selection model, that is, the pooling system's evidence about every candidate.

:class:`PoolEvidence` declares this input. From a frame of candidates it makes an :class:`EvidenceModel`, which converts
candidates to numbers and scores them by a weighted sum with interpretable coefficients.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.statistics import Interval, t_interval
from pyterrier_debias.core.text import Tokeniser, get_tokeniser

logger = logging.getLogger(__name__)

#: The columns of a pooling system, and those used instead if the first stage is the pooling system.
POOL, FIRST_STAGE = ("pool_score", "pool_rank"), ("score", "rank")

#: Names of the lexical features, in order.
LEXICAL = ("bm25", "idf_overlap", "coverage", "log_length")


# Lexical features


@dataclass(frozen=True)
class Statistics:
    """The word statistics of a collection that the lexical features use.

    Attributes:
        documents: Number of texts that were counted.
        mean_length: Their mean length in words.
        frequencies: For each word, the number of these texts in which it occurs.
    """

    documents: int
    mean_length: float
    frequencies: Mapping[str, int] = field(repr=False)

    def idf(self, term: str) -> float:
        r"""The inverse document frequency of a term: :math:`\ln(1 + (N - n + 0.5) / (n + 0.5))`, above 0 for every term."""
        n = self.frequencies.get(term, 0)
        return math.log(1 + (self.documents - n + 0.5) / (n + 0.5))


def collection_statistics(texts: Sequence[str], tokenise: Tokeniser) -> Statistics:
    """Count the words of texts; a text that occurs several times counts once.

    Args:
        texts: Any texts.
        tokenise: A function from a text to its words.

    Returns:
        The statistics.

    Example:
        >>> found = collection_statistics(["a red bridge", "a river", "a river"], str.split)
        >>> found.documents, found.mean_length, found.frequencies["a"]
        (2, 2.5, 2)
    """
    frequencies: Counter[str] = Counter()
    total, distinct = 0, dict.fromkeys(texts)
    for text in distinct:
        words = tokenise(text)
        total += len(words)
        frequencies.update(set(words))
    return Statistics(len(distinct), total / max(len(distinct), 1), dict(frequencies))


#: BM25's saturation and normalisation by length.
_K1, _B = 1.2, 0.75


def lexical_features(query: Sequence[str], words: Sequence[str], statistics: Statistics) -> tuple[float, float, float, float]:
    r"""Compute the lexical features of a pair of query and document.

    Args:
        query: The query's words.
        words: The document's words.
        statistics: Word statistics of the collection.

    Returns:
        BM25, the sum over distinct query terms of :math:`\mathrm{idf} \cdot tf (k_1 + 1) / (tf + k_1 (1 - b + b\, l / \bar{l}))`
        (Robertson and Zaragoza 2009) with :math:`k_1 = 1.2` and :math:`b = 0.75`; the share of query terms that the document
        contains, weighted by idf; the same share without weights; and :math:`\ln(1 + l)` for a document of l words. For a query
        without words, the first three are 0.

    Example:
        >>> statistics = Statistics(1, 3.0, {"red": 1})
        >>> [round(x, 3) for x in lexical_features(["red", "sea"], ["a", "red", "bridge"], statistics)]
        [0.288, 0.172, 0.5, 1.386]
    """
    counts, length = Counter(words), len(words)
    terms = list(dict.fromkeys(query))
    idf = [statistics.idf(term) for term in terms]
    saturation = _K1 * (1 - _B + _B * length / statistics.mean_length) if statistics.mean_length else _K1
    tf = [counts[term] for term in terms]
    bm25 = sum(rare * n * (_K1 + 1) / (n + saturation) for rare, n in zip(idf, tf) if n)
    held = sum(rare for rare, n in zip(idf, tf) if n)
    covered = sum(n > 0 for n in tf)
    return bm25, held / sum(idf) if terms else 0.0, covered / len(terms) if terms else 0.0, math.log1p(length)


# Evidence


@dataclass(frozen=True, kw_only=True)
class PoolEvidence:
    """The features that the selection model of :class:`~pyterrier_debias.CETReranker` may use: only what the pooling system saw.

    Args:
        columns: Columns of the candidates with the pooling system's numbers. Those whose name ends in ``rank`` are ranks from 0,
            and enter as :math:`\\ln(1 + r)`. None takes ``pool_score`` and ``pool_rank``; if the candidates have neither,
            ``score`` and ``rank``, which is right only if the previous stage is the pooling system (a warning says so; with
            ``columns=['score', 'rank']`` you declare that it is). ``()`` takes no column.
        lexical: Whether to add BM25, the idf-weighted and the plain share of query terms covered, and the length, computed for
            every pair from its texts, with word statistics of the candidates.
        scorer: A transformer that computes the pooling system's score of every candidate, e.g. ``pt.terrier.TextScorer(...)``;
            it replaces ``columns`` unless these are given too.
        tokeniser: How texts are cut into words for the lexical features, see :func:`pyterrier_debias.core.text.get_tokeniser`.
        learning_rate: Learning rate of the model's few coefficients, if ``Training.learning_rate`` does not name ``selection``;
            with a ranker's rate, they would stay near 0.

    The model does not learn from candidates without a number in one of the columns (the pooling system did not retrieve them, or
    ``AddJudged`` added them). It scores them all the same, from their numbers in the other columns; a missing number is replaced
    by the lowest score of the query, or one place after its last rank.

    Raises:
        InputError: For options that leave no feature, or are out of range.

    When not to use it: if nothing is known about the pooling system and words say little about it; weights then follow word
    overlap, which punishes lexical matches whoever chose the pool.

    Example:
        >>> PoolEvidence(columns=(), lexical=True)
        PoolEvidence(columns=())

        ``CETReranker(ranker, selection=PoolEvidence(columns=['bm25', 'splade_rank'], lexical=False))``

    .. cite.dblp:: journals/corr/abs-2209-05072
    """

    columns: Sequence[str] | None = None
    lexical: bool = True
    scorer: Any = None
    tokeniser: str | Tokeniser = "regex_word"
    learning_rate: float = 0.02

    def __post_init__(self) -> None:
        """Raise an error for invalid options."""
        if isinstance(self.columns, str):
            raise InputError(f"PoolEvidence: columns={self.columns!r} must be a list of names, e.g. ['pool_score']")
        if self.columns is not None and not isinstance(self.columns, (list, tuple)):
            object.__setattr__(self, "columns", list(map(str, self.columns)))  # an array cannot be compared
        if not self.lexical and self.scorer is None and self.columns is not None and not self.columns:
            raise InputError(
                "PoolEvidence: without columns, scorer and lexical features the selection model has no input; give at least one "
                "of them"
            )
        check_number("PoolEvidence", "learning_rate", self.learning_rate, above=0, most=1)
        get_tokeniser(self.tokeniser)

    def __hash__(self) -> int:
        return hash((self.lexical, self.learning_rate))

    def __deepcopy__(self, memo: dict[int, Any]) -> PoolEvidence:
        """The object itself: its options do not change, and a scorer with a Java object cannot be copied."""
        return self

    def __repr__(self) -> str:
        """The constructor call, with the options that differ from their defaults."""
        default = {"columns": None, "lexical": True, "scorer": None, "tokeniser": "regex_word", "learning_rate": 0.02}
        return f"PoolEvidence({', '.join(f'{n}={getattr(self, n)!r}' for n, v in default.items() if getattr(self, n) != v)})"

    def chosen(self, frame: pd.DataFrame) -> tuple[str, ...]:
        """The columns that are read from a frame.

        Args:
            frame: Candidates.

        Returns:
            Their names.

        Raises:
            InputError: If a column is missing, or there is none to read.
        """
        if self.columns is None and self.scorer is not None:
            return ()
        if self.columns is not None:
            wanted = tuple(self.columns)
        else:
            wanted = next((found for names in (POOL, FIRST_STAGE) if (found := _held(frame, names))), ())
        missing = [name for name in wanted if name not in frame.columns]
        if missing or (self.columns is None and not wanted):
            what = f"column '{missing[0]}'" if missing else "column pool_score, pool_rank, score or rank"
            raise InputError(
                f"CETReranker: the candidates have no {what}, the evidence of the pooling system; keep it from the first "
                f"stage on (e.g. rename score to pool_score), or use selection='lexical', which reads texts only"
            )
        return wanted

    def learn(self, frame: pd.DataFrame, documents: Sequence[str]) -> EvidenceModel:
        """Make the selection model for candidates, from their columns, their words, and the mean and spread of their numbers.

        Args:
            frame: Candidates ``qid``, ``docno``, ``query`` and the columns; at least one row.
            documents: The text of each row.

        Returns:
            A model whose coefficients are 0; training sets them.

        Raises:
            InputError: For missing columns, or values that are not numbers.
        """
        columns = self.chosen(frame)
        if self.columns is None and columns and not set(columns) & set(POOL):
            logger.warning(
                "CETReranker: the candidates have no pool_score or pool_rank; %s stand in for them, which is right only where "
                "the stage before is the system that filled the pool (say so by selection=PoolEvidence(columns=%r)). After a "
                "stronger stage, keep or join the pool's own numbers under these names, compute them "
                "(selection=PoolEvidence(scorer=...)), or use selection='lexical'",
                " and ".join(columns),
                list(columns),
            )
        statistics = collection_statistics(documents, get_tokeniser(self.tokeniser)) if self.lexical else None
        names = (*columns, *(["scorer"] if self.scorer is not None else []))
        width = len(names) + len(LEXICAL) * self.lexical
        blank = EvidenceModel(self, columns, statistics, (0.0,) * len(names), np.zeros(width), np.ones(width), np.zeros(width))
        values, known = blank.numbers(frame)
        worst = tuple(_worst(name, column[~np.isnan(column)]) for name, column in zip(names, values.T))
        features, known = replace(blank, worst=worst).features(frame, documents)
        seen = features[known] if known.any() else features
        scale = seen.std(axis=0)
        # Variation that is tiny relative to the values is due to rounding.
        scale[scale <= 1e-9 * np.abs(seen).max(axis=0, initial=0)] = np.inf
        return replace(blank, worst=worst, mean=seen.mean(axis=0), scale=scale)


@dataclass(frozen=True, eq=False)
class EvidenceModel:
    """A selection model over evidence: its score is the sum of standardised features times coefficients.

    Attributes:
        evidence: The features that it may use.
        columns: The columns that it reads.
        statistics: Word statistics; None without lexical features.
        worst: For each column, the number used for a query that has no number at all: one after all others.
        mean: Means of the features of the candidates from which it was made, shape [d].
        scale: Their standard deviations, shape [d]; infinite for features that do not vary, so that these count as 0.
        weights: The coefficients, shape [d].
    """

    evidence: PoolEvidence
    columns: tuple[str, ...]
    statistics: Statistics | None
    worst: tuple[float, ...]
    mean: np.ndarray
    scale: np.ndarray
    weights: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names, in order."""
        scorer = ("scorer",) if self.evidence.scorer is not None else ()
        return (*self.columns, *scorer, *(LEXICAL if self.evidence.lexical else ()))

    @property
    def coefficients(self) -> dict[str, float]:
        """The coefficients by feature: what one standard deviation of the feature adds to the score."""
        return dict(zip(self.names, map(float, self.weights)))

    def numbers(self, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
        """The pooling system's numbers of every row.

        Args:
            frame: Candidates.

        Returns:
            float64 of shape [n, columns], and of shape [n] whether a row has all of them.

        Raises:
            InputError: For a missing column, a value that is infinite or not a number, or a scorer that returns no scores.
        """
        parts = []
        for name in self.columns:
            if name not in frame.columns:
                raise InputError(
                    f"CETReranker: the candidates have no column '{name}', which its selection model was fitted on; keep it"
                )
            parts.append(_as_numbers(frame[name], name))
        if self.evidence.scorer is not None:
            parts.append(_as_numbers(_scored(self.evidence.scorer, frame), "score of the scorer"))
        values: np.ndarray = np.stack(parts, axis=1) if parts else np.empty((len(frame), 0))
        return values, ~np.isnan(values).any(axis=1)

    def features(self, frame: pd.DataFrame, documents: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Standardised features of every row.

        Args:
            frame: Candidates ``qid``, ``docno``, ``query`` and the columns.
            documents: The text of each row.

        Returns:
            float64 of shape [n, d], and of shape [n] whether all of the pooling system's numbers are known. An unknown one is
            replaced by the query's worst number in that column.

        Raises:
            InputError: As in :meth:`numbers`.
        """
        values, known = self.numbers(frame)
        if not known.all():
            values = self._bounded(values, pd.factorize(frame["qid"])[0])
        for at, name in enumerate(self.columns):
            if name.endswith("rank"):
                values[:, at] = np.log1p(np.maximum(values[:, at], 0))
        if self.statistics is not None:
            values = np.hstack([values, self._lexical(frame["query"].tolist(), documents)])
        return (values - self.mean) / self.scale, known

    def score(self, frame: pd.DataFrame, documents: Sequence[str]) -> np.ndarray:
        """Score how likely each candidate was shown to labellers, in log-odds up to a constant.

        Args:
            frame: Candidates, as for :meth:`features`.
            documents: The text of each row.

        Returns:
            float64, shape [n].
        """
        return self.features(frame, documents)[0] @ self.weights

    def with_weights(self, weights: np.ndarray) -> EvidenceModel:
        """The same model with other coefficients."""
        return replace(self, weights=np.asarray(weights, dtype=np.float64))

    def fingerprint(self) -> str:
        """A hash of everything that the features depend on, without the coefficients."""
        state = blake2b(f"{self.columns} {self.evidence} {self.worst} {self.statistics}".encode(), digest_size=16)
        state.update(self.mean.tobytes() + self.scale.tobytes())
        return state.hexdigest()

    def to_json(self) -> dict[str, Any]:
        """The whole model as JSON-compatible values; for a scorer, only that there was one."""
        evidence, statistics = self.evidence, self.statistics
        tokeniser = evidence.tokeniser if isinstance(evidence.tokeniser, str) else None
        return {
            "evidence": {
                "columns": None if evidence.columns is None else list(evidence.columns),
                "lexical": evidence.lexical,
                "tokeniser": tokeniser,
                "learning_rate": evidence.learning_rate,
            },
            "scorer": None if evidence.scorer is None else repr(evidence.scorer),
            "columns": list(self.columns),
            "statistics": statistics and [statistics.documents, statistics.mean_length, dict(statistics.frequencies)],
            "worst": list(self.worst),
            "mean": self.mean.tolist(),
            # JSON knows no infinity.
            "scale": [None if np.isinf(value) else value for value in self.scale.tolist()],
            "weights": self.weights.tolist(),
        }

    @classmethod
    def from_json(cls, content: Mapping[str, Any], *, scorer: Any = None, tokeniser: Tokeniser | None = None) -> EvidenceModel:
        """Make a model from the result of :meth:`to_json`.

        Args:
            content: The result of :meth:`to_json`.
            scorer: The scorer, if there was one.
            tokeniser: The tokeniser, if it was a function.

        Returns:
            The model.

        Raises:
            InputError: If scorer or tokeniser are needed and not given.
        """
        options = dict(content["evidence"])
        if content["scorer"] is not None and scorer is None:
            raise InputError(
                f"CETReranker: the saved selection model reads {content['scorer']}; give it again: "
                f"CETReranker.load(folder, selection=PoolEvidence(scorer=...))"
            )
        if options["tokeniser"] is None and tokeniser is None:
            raise InputError(
                "CETReranker: the saved selection model splits words with a function; give it again: "
                "CETReranker.load(folder, selection=PoolEvidence(tokeniser=...))"
            )
        options["tokeniser"] = options["tokeniser"] or tokeniser
        numbers = content["statistics"]
        return cls(
            PoolEvidence(**options, scorer=scorer if content["scorer"] is not None else None),
            tuple(content["columns"]),
            numbers and Statistics(*numbers),
            tuple(content["worst"]),
            np.array(content["mean"]),
            np.array([np.inf if value is None else value for value in content["scale"]]),
            np.array(content["weights"]),
        )

    def _bounded(self, values: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Replace missing numbers by the query's worst one in their column, which is all that is known about them."""
        values, queries = values.copy(), int(query.max()) + 1
        for at, name in enumerate((*self.columns, "scorer")[: values.shape[1]]):
            known, bound = ~np.isnan(values[:, at]), np.full(queries, np.nan)
            if name.endswith("rank"):
                np.fmax.at(bound, query[known], values[known, at] + 1)
            else:
                np.fmin.at(bound, query[known], values[known, at])
            values[~known, at] = np.where(np.isnan(bound), self.worst[at], bound)[query[~known]]
        return values

    def _lexical(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        tokenise, statistics = get_tokeniser(self.evidence.tokeniser), cast(Statistics, self.statistics)
        rows: dict[str, list[int]] = {}
        for row, text in enumerate(documents):
            rows.setdefault(text, []).append(row)
        terms = {query: tokenise(query) for query in dict.fromkeys(queries)}
        found = np.empty((len(documents), len(LEXICAL)))
        for text, places in rows.items():
            words = tokenise(text)
            for row in places:
                found[row] = lexical_features(terms[queries[row]], words, statistics)
        return found


def check_known(model: EvidenceModel, known: np.ndarray, groups: Sequence[tuple[np.ndarray, np.ndarray]]) -> str | None:
    """Check that there is enough data to learn a selection model.

    Args:
        model: The model; messages name its columns.
        known: For every row, whether the pooling system's numbers are known.
        groups: Rows of positives and of unlabelled candidates, query by query.

    Returns:
        The text of a warning if little is known; otherwise None.

    Raises:
        InputError: If no query has a positive and an unlabelled candidate whose numbers are known.
    """
    pairs = sum(len(positives) * len(pool) for positives, pool in groups)
    usable = sum(int(known[positives].sum()) * int(known[pool].sum()) for positives, pool in groups)
    positives = float(np.mean(known[np.concatenate([positives for positives, _ in groups])]))
    negatives = float(np.mean(known[np.concatenate([pool for _, pool in groups])]))
    names = ", ".join(name for name in model.names if name not in LEXICAL)
    if usable == 0:
        raise InputError(
            f"CETReranker: no query has both a positive and an unlabelled candidate with the pooling system's numbers ({names} "
            f"are there for {positives:.0%} of the positives and {negatives:.0%} of the others), so nothing can be learned about "
            f"what it chose; add them for every candidate, compute them (PoolEvidence(scorer=...)), or use selection='lexical'"
        )
    if usable < 0.1 * pairs:
        return (
            f"the selection model learns from {usable} of {pairs} pairs: {names} are there for {positives:.0%} of the positives "
            f"and {negatives:.0%} of the others"
        )
    return None


#: Fewer queries, or fewer unlabelled candidates of a query, say nothing about the direction of the evidence.
_FEWEST_QUERIES, _FEWEST_CANDIDATES = 10, 4
#: The rank correlation above which a warning says that the evidence points the wrong way. Where hidden positives had lower
#: selection scores than true negatives (two planted collections, three toy collections) it was -.02 to .12; on TREC DL and
#: Vaswani, where they had higher ones, .15 to .22.
FOLLOWS = 0.13
#: The rank correlation within queries above which two numbers order candidates alike. Rounding makes it less than 1.
_SAME = 0.99
#: The largest number of queries of each half that are used, and of pairs of each query.
_MOST_QUERIES, _MOST_PAIRS = 500, 200


def pairwise_weights(differences: np.ndarray) -> np.ndarray:
    """Coefficients of a pairwise logistic model, slightly regularised.

    Args:
        differences: Features of positives less those of the others, shape [pairs, d].

    Returns:
        Shape [d].

    Example:
        >>> bool(pairwise_weights(np.array([[1.0], [2.0], [-0.5]]))[0] > 0)
        True
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = differences @ weights
        value = np.logaddexp(0, -margins).mean() + 1e-3 * weights @ weights
        return float(value), -differences.T @ expit(-margins) / len(differences) + 2e-3 * weights

    return np.asarray(minimize(loss, np.zeros(differences.shape[1]), jac=True, method="L-BFGS-B").x)


def evidence_direction(
    features: np.ndarray, known: np.ndarray, score: np.ndarray, groups: Sequence[tuple[np.ndarray, np.ndarray]]
) -> Interval:
    """Estimate whether the pool's evidence follows relevance among unlabelled candidates, judging by another system's score.

    A selection model is learned from the labelled positives of one half of the queries and scores the candidates of the other
    half, and the other way round. Hidden positives are found where the other system scores high. The more its score rises with
    the selection score, the larger are CET's weights for them than for true negatives. Labels alone cannot show this, since no
    document that labellers did not see has one.

    Args:
        features: Standardised evidence of all rows, shape [rows, d].
        known: For every row, whether its numbers are known, so that the model may learn from it.
        score: For every row, the score of a system other than the pool's; NaN where it has none.
        groups: Rows of positives and of unlabelled candidates, query by query.

    Returns:
        The rank correlation of selection score and score over a query's unlabelled candidates, averaged over held-out queries,
        with Student's 95 % interval. NaN for fewer than two queries.

    Example:
        >>> evidence = np.tile([3.0, 0.1, 0.4, 0.2, 0.3], 20)[:, None]
        >>> groups = [(np.array([i]), np.arange(i + 1, i + 5)) for i in range(0, 100, 5)]
        >>> found = evidence_direction(evidence, np.ones(100, dtype=bool), -evidence[:, 0], groups)
        >>> round(found.estimate, 3), found.n
        (-1.0, 20)

    When not to use it: with the pool's own score, which follows the evidence by construction.
    """
    from scipy.stats import rankdata

    found = []
    for half in (0, 1):
        differences = [np.empty((0, features.shape[1]))]
        for positives, pool in _spread(groups[1 - half :: 2]):
            i, j = (one.ravel() for one in np.meshgrid(positives[known[positives]], pool[known[pool]]))
            step = max(1, len(i) // _MOST_PAIRS)
            differences.append(features[i[::step]] - features[j[::step]])
        learned = np.concatenate(differences)
        if not len(learned):
            continue
        selection = features @ pairwise_weights(learned)
        for _, pool in _spread(groups[half::2]):
            pool = pool[~np.isnan(score[pool])]
            if len(pool) >= _FEWEST_CANDIDATES and np.ptp(selection[pool]) > 0 and np.ptp(score[pool]) > 0:
                found.append(np.corrcoef(rankdata(selection[pool]), rankdata(score[pool]))[0, 1])
    return t_interval(np.array(found)).within(-1, 1)


def _spread(groups: Sequence[tuple[np.ndarray, np.ndarray]]) -> Sequence[tuple[np.ndarray, np.ndarray]]:
    """At most :data:`_MOST_QUERIES` queries, evenly spread."""
    return groups[:: max(1, -(-len(groups) // _MOST_QUERIES))]


def check_direction(
    model: EvidenceModel,
    features: np.ndarray,
    known: np.ndarray,
    rows: pd.DataFrame,
    groups: Sequence[tuple[np.ndarray, np.ndarray]],
) -> str | None:
    """Check whether the evidence points the wrong way, judging by the candidates' own scores; see :func:`evidence_direction`.

    Args:
        model: The model. Scores that order each query's candidates as one of its columns does are the pool's own, possibly
            rounded or rescaled, and say nothing.
        features: Evidence of every row.
        known: For every row, whether its numbers are known.
        rows: The candidates, with ``score`` where it is known.
        groups: Rows of positives and of unlabelled candidates, query by query.

    Returns:
        The text of a warning if the correlation is above :data:`FOLLOWS` and its interval above 0; otherwise None, as with too
        little data.
    """
    if "score" not in rows.columns or "score" in model.columns:
        return None
    score = pd.to_numeric(rows["score"], errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    if any(_same_order(rows["qid"], own, score) for own in model.numbers(rows)[0].T):
        return None
    found = evidence_direction(features, known, score, groups)
    if found.n < _FEWEST_QUERIES or not (found.estimate > FOLLOWS and found.low > 0):
        return None
    return (
        f"the pool's evidence follows relevance here, so hidden positives probably weigh more as negatives than true negatives "
        f"do, not less: the selection score of unlabelled candidates rises with their given score (rank correlation "
        f"{found.estimate:+.2f} [{found.low:+.2f}, {found.high:+.2f}] over {found.n} held-out queries). Compare with plain "
        f"training (HiddenJudgements), use other evidence, or do without CET"
    )


def _same_order(qids: pd.Series, own: np.ndarray, score: np.ndarray) -> bool:
    """Whether two numbers order each query's candidates alike, ascending or descending, where both are known."""
    known = ~np.isnan(own) & ~np.isnan(score)
    ranks = pd.DataFrame({"own": own[known], "score": score[known]}).groupby(qids.to_numpy()[known]).rank()
    centred = ranks - ranks.groupby(qids.to_numpy()[known]).transform("mean")
    return bool(abs(centred["own"].corr(centred["score"])) > _SAME)


def _held(frame: pd.DataFrame, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in frame.columns)


def _worst(name: str, values: np.ndarray) -> float:
    if not len(values):
        return 0.0
    return float(values.max() + 1 if name.endswith("rank") else values.min())


def _as_numbers(column: pd.Series, name: str) -> np.ndarray:
    values = pd.to_numeric(column, errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    bad = np.flatnonzero(np.isinf(values) | (np.isnan(values) & ~column.isna().to_numpy()))
    if len(bad):
        raise InputError(
            f"CETReranker: column '{name}' is {column.tolist()[bad[0]]!r} at row {bad[0]}; the pooling system's evidence must be "
            f"a finite number, or missing"
        )
    return values


def _scored(scorer: Any, frame: pd.DataFrame) -> pd.Series:
    """The scorer's score of every row; missing where it returns none."""
    asked = frame.drop(columns=["label", "score", "rank"], errors="ignore")
    found = scorer(asked)
    name: Any = "PoolEvidence(scorer=...)"  # PyTerrier does no more with it than to print it
    pt.validate.columns(found, includes=["qid", "docno", "score"], context=name)
    found = frames.with_string_ids(found, name)
    frames.check_pairs(found, name)
    wanted = frames.with_string_ids(frame, name)[["qid", "docno"]]
    return wanted.merge(found[["qid", "docno", "score"]], on=["qid", "docno"], how="left")["score"]
