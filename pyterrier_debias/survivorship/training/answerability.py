"""Answerability: predicts for which queries labellers will find an answer.

This is the future work of Gupta (2021): a classifier on the text of queries, fitted on one split and tested on another, which
predicts the answered share of a split without labels. It uses scikit-learn, which is imported when something is fitted.
"""

from __future__ import annotations

import logging
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.frames import check_text, reads_frames
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import Interval, bootstrap_interval
from pyterrier_debias.core.text import keyed_hash, regex_word
from pyterrier_debias.survivorship.data.ranks import check_threshold, survives

if TYPE_CHECKING:
    from matplotlib.axes import Axes

logger = logging.getLogger(__name__)

#: Texts to numbers: an array or a sparse matrix with one row per text.
Features = Callable[[Sequence[str]], Any]

_FEATURES = ("words", "characters")
#: Hashed features: 2 to the power of this many columns.
_BITS = 18
RELIABILITY_COLUMNS = ["bin", "low", "high", "n", "predicted", "observed", "observed_low", "observed_high"]


def bins_of(p: np.ndarray, bins: int) -> np.ndarray:
    """The number of the bin of each probability; bins are equally wide, and 1 belongs to the last."""
    return np.minimum((np.asarray(p, dtype=float) * bins).astype(int), bins - 1)


def calibration_error(p: np.ndarray, y: np.ndarray, *, bins: int = 10) -> float:
    """Expected calibration error: how far predicted and observed shares are apart, over bins of equal width.

    Args:
        p: Predicted probabilities, shape [n], in [0, 1].
        y: Outcomes, shape [n], 0 or 1.
        bins: How many bins.

    Returns:
        sum over bins of n_b / n |mean p - mean y|, in [0, 1]; NaN without queries. It is above 0 by chance alone, and the more
        so the fewer queries a bin has.

    Example:
        >>> round(calibration_error([0.25, 0.25, 0.75, 0.75], [0, 0, 1, 1]), 3)
        0.25
    """
    p, y = np.asarray(p, dtype=float), np.asarray(y, dtype=float)
    if not len(p):
        return float("nan")
    gaps = np.bincount(bins_of(p, bins), p - y, minlength=bins)
    return float(np.abs(gaps).sum() / len(p))


def reliability(p: np.ndarray, y: np.ndarray, *, bins: int = 10, level: float = 0.95) -> pd.DataFrame:
    """The reliability table: predicted and observed shares in bins of the prediction.

    Args:
        p: Predicted probabilities, shape [n], in [0, 1].
        y: Outcomes, shape [n], 0 or 1.
        bins: Bins of equal width.
        level: Coverage of the intervals (Clopper and Pearson).

    Returns:
        One row per bin that is not empty: ``bin``, ``low``, ``high``, ``n``, ``predicted`` (mean), ``observed`` (share) with its
        interval.
    """
    from pyterrier_debias.core.statistics import binomial_interval

    p, y = np.asarray(p, dtype=float), np.asarray(y, dtype=float)
    rows, numbers = [], bins_of(p, bins)
    for number in range(bins):
        own = numbers == number
        if own.any():
            share = binomial_interval(int(y[own].sum()), int(own.sum()), level=level)
            ends = (share.estimate, share.low, share.high)
            rows.append((number, number / bins, (number + 1) / bins, int(own.sum()), float(p[own].mean()), *ends))
    return pd.DataFrame(rows, columns=RELIABILITY_COLUMNS)


def predicted_share(p: np.ndarray, held_p: np.ndarray, held_y: np.ndarray, *, level: float = 0.95) -> Interval:
    """Estimate the share of unlabelled queries that would be answered, from calibrated probabilities.

    It is mean(p) plus mean(y - p) over labelled queries that the model has not seen, which corrects the model's average error
    there (prediction-powered inference, Angelopoulos et al. 2023). Its uncertainty has two sources: sum p (1 - p) / N^2, since a
    query with probability p is either answered or not; and the variance of mean(y - p) over the labelled queries.

    Args:
        p: Probabilities of the unlabelled queries, shape [N].
        held_p: Probabilities of labelled queries that were held out, shape [n].
        held_y: Outcomes of these, shape [n], 0 or 1.
        level: Coverage of the interval.

    Returns:
        The share, in [0, 1], and a normal interval for the share of *these* N queries; NaN without queries.

    When not to use it: if the unlabelled queries are of a different kind from those the model was fitted on. The data cannot show
    this, and the interval does not allow for it.
    """
    from scipy import stats

    p, held_p, held_y = (np.asarray(a, dtype=float) for a in (p, held_p, held_y))
    if not len(p) or len(held_p) < 2:
        return Interval(float("nan"), float("nan"), float("nan"), level, len(p))
    errors = held_y - held_p
    estimate = float(p.mean() + errors.mean())
    variance = float((p * (1 - p)).sum() / len(p) ** 2 + errors.var(ddof=1) / len(errors))
    half = float(stats.norm.ppf((1 + level) / 2)) * np.sqrt(variance)
    low, value, high = (float(np.clip(x, 0, 1)) for x in (estimate - half, estimate, estimate + half))
    return Interval(value, low, high, level, len(p))


@dataclass(frozen=True, eq=False, repr=False)
class AnswerabilityResult:
    """The result of :meth:`Answerability.evaluate`: how good the predictions are.

    Attributes:
        table: One row per ``figure``: ``Brier``, ``Brier, share alone`` (for a forecast that always gives the answered share of
            the fitted split), ``skill`` (1 - the former / the latter), ``AUC``, ``ECE``, ``answered, observed`` and
            ``answered, predicted``; with ``value``, ``low``, ``high``, ``n``.
        reliability: The table of :func:`reliability`.
        per_query: ``qid``, ``p_answered``, ``answered``.
    """

    table: pd.DataFrame
    reliability: pd.DataFrame
    per_query: pd.DataFrame

    def __repr__(self) -> str:
        """The main figures in one line."""
        found = self.table.set_index("figure")["value"]
        return f"<AnswerabilityResult: Brier {found['Brier']:.3f}, skill {found['skill']:+.3f}, ECE {found['ECE']:.3f}>"

    def figure(self, name: str) -> float:
        """The value of a figure of :attr:`table`.

        Args:
            name: The figure's name, such as ``'Brier'``.

        Returns:
            The value.

        Raises:
            InputError: If there is no figure of this name.
        """
        rows = self.table[self.table["figure"] == name]
        if rows.empty:
            raise InputError(f"AnswerabilityResult: there is no figure {name!r}, only {', '.join(self.table['figure'])}")
        return float(rows["value"].iloc[0])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw observed against predicted shares, with intervals.

        Args:
            ax: Matplotlib axes; None makes new ones.

        Returns:
            The axes.
        """
        from pyterrier_debias.core import plots

        axes = plots.new_axes() if ax is None else ax
        table = self.reliability
        with plots.style():
            axes.plot([0, 1], [0, 1], "--", color=plots.GREY, label="calibrated")
            ends = np.clip([table["observed"] - table["observed_low"], table["observed_high"] - table["observed"]], 0, None)
            axes.errorbar(table["predicted"], table["observed"], yerr=ends, fmt="o", color=plots.colour(0), label="bins")
            axes.legend()
            plots.label_axes(axes, x="predicted probability of an answer", y="share answered", n=len(self.per_query))
        return axes


class Answerability(Stage):
    """Predicts from a query's text whether labellers will find an answer to it.

    ===============  ==============================================================================================
    columns in       ``qid``, ``query``; for ``fit`` and ``evaluate`` also ``answered`` (True or False, 1 or 0) or
                     ``first_relevant_rank`` (infinite for never)
    columns out      the same, with ``p_answered``, a calibrated probability
    ===============  ==============================================================================================

    The model is a logistic regression on hashed words and pairs of words (or on your own features, such as the vectors of a
    sentence encoder). ``fit`` cross-fits: each training query is predicted by a model that has not seen it or any query with the
    same text, a sigmoid is fitted to these predictions (Platt), and the final model learns from all queries.

    Source: the future work of Gupta (2021).

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: to decide which queries to leave out (this is the bias itself); or to tell whether an answer exists,
    because it only learns whether *one system's ten documents* answered such queries.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({
        ...     "qid": [str(i) for i in range(40)],
        ...     "query": [f"who wrote book {i}" if i % 2 else f"feelings about thing {i}" for i in range(40)],
        ...     "answered": [bool(i % 2) for i in range(40)],
        ... })
        >>> stage = Answerability(folds=4).fit(topics)
        >>> new = pd.DataFrame({"qid": ["a", "b"], "query": ["who wrote thing 99", "feelings about book 99"]})
        >>> p = stage(new)["p_answered"]
        >>> bool(p[0] > 0.8 > 0.2 > p[1])
        True

    .. cite.dblp:: journals/corr/abs-2204-12852
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Answerability", "help_url": None}
    pieces = "rows"

    def __init__(
        self,
        features: str | Features = "words",
        *,
        strength: float = 1.0,
        rank: int | None = None,
        folds: int = 5,
        level: float = 0.95,
        resamples: int = 1_999,
        seed: int = 0,
        verbose: bool = False,
    ):
        """
        Args:
            features: ``'words'``: words and pairs of words; ``'characters'``: runs of two to five characters within words, for
                other languages and misspellings; or a function from texts to an array or sparse matrix with one row per text,
                such as ``SentenceTransformer(model).encode``.
            strength: Inverse of the weight of the L2 penalty (scikit-learn's ``C``), positive.
            rank: Within how many documents a query must be answered, for input with ``first_relevant_rank``; None for any number.
            folds: How many folds for cross-fitting, at least 2.
            level: Coverage of intervals.
            resamples: Bootstrap resamples of ``evaluate``.
            seed: Seed of the folds, which depend on the text of queries, and of the resamples.
            verbose: Has no effect: every stage accepts it.
        """
        self.features = features
        self.strength = strength
        self.rank = rank
        self.folds = folds
        self.level = level
        self.resamples = resamples
        self.seed = seed
        self.verbose = verbose
        self._fitted: dict[str, Any] | None = None

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options and the fitted parameters."""
        return {**super().identity(), "fitted": self._fitted["fingerprint"] if self._fitted else None}

    @reads_frames
    def fit(self, inp: pd.DataFrame) -> Answerability:
        """Learn from queries whose outcome is known.

        Args:
            inp: ``qid``, ``query`` and the outcome, in a column that the class describes.

        Returns:
            This stage.

        Raises:
            InputError: For an option out of range; no outcome, or one that is neither true nor false; a split with fewer than
                ``folds`` texts that were answered, or that were answered under no qid; or ``features`` that do not return one row
                of numbers per text.
        """
        topics, y = self._outcomes(inp)
        texts = topics["query"].tolist()
        answered = {text for text, outcome in zip(texts, y) if outcome}
        # Texts with both outcomes are dealt to the folds with the answered ones, so that they may lie in one fold.
        for found, words in ((answered, "answered"), ({*texts} - answered, "not answered under any qid")):
            different = len(found)
            if different < self.folds:
                raise InputError(
                    f"Answerability: only {different} different queries are {words}, but folds={self.folds} needs at least as "
                    f"many; fit on a larger split, or with fewer folds"
                )
        x = self._matrix(texts)
        # A column that no training query has keeps the coefficient 0: leaving it out only saves time.
        columns = None if callable(self.features) else np.flatnonzero(x.getnnz(axis=0))
        x = x if columns is None else x[:, columns]
        fold = self._folds(texts, y)
        logits = np.full(len(y), np.nan)
        for number in range(self.folds):
            held = fold == number
            if held.any():
                logits[held] = self._learn(x[~held], y[~held]).decision_function(x[held])
        sigmoid = self._calibrator(logits, y)
        state = blake2b(digest_size=16)
        for qid, text, outcome in sorted(zip(topics["qid"], texts, y.tolist())):
            state.update(f"{qid}\0{text}\0{outcome}\n".encode("utf-8", "surrogatepass"))
        self._fitted = {
            "model": self._learn(x, y),
            "columns": columns,
            "sigmoid": sigmoid,
            "p": self._held_out(logits, y, fold),
            "y": y,
            "share": float(y.mean()),
            "fingerprint": state.hexdigest(),
        }
        return self

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add ``p_answered``, the calibrated probability that a query is answered."""
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        check_text(inp, "query", self)
        if len(inp) == 0:
            return inp.assign(p_answered=pd.Series(dtype="float64"))
        fitted = self._known()
        texts = list(dict.fromkeys(inp["query"]))
        x = self._matrix(texts)
        x = x if fitted["columns"] is None else x[:, fitted["columns"]]
        p = fitted["sigmoid"](fitted["model"].decision_function(x))
        return inp.assign(p_answered=inp["query"].map(dict(zip(texts, p))).to_numpy(dtype=float))

    @reads_frames
    def evaluate(self, inp: pd.DataFrame, *, bins: int = 10) -> AnswerabilityResult:
        """Test on queries whose outcome is known; use a different split from that of ``fit``.

        Args:
            inp: ``qid``, ``query`` and the outcome, as for ``fit``.
            bins: How many bins the reliability table and ECE have.

        Returns:
            The result, with bootstrap intervals over queries.

        Raises:
            InputError: Without an outcome, without queries, or before ``fit``; for bins below 1.
        """
        check_number("Answerability", "bins", bins, least=1, whole=True)
        fitted = self._known()
        topics, y = self._outcomes(inp)
        if not len(topics):
            raise InputError("Answerability: there are no queries to test on")
        p = self.transform(topics)["p_answered"].to_numpy()
        flat = np.full(len(p), fitted["share"])

        def score(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
            return ((a - b) ** 2).mean(axis=axis)

        def skill(a: np.ndarray, b: np.ndarray, axis: int = -1) -> np.ndarray:
            reference = ((fitted["share"] - b) ** 2).mean(axis=axis)
            return 1 - score(a, b, axis) / np.maximum(reference, 1e-300)

        options: dict[str, Any] = {"level": self.level, "method": "percentile", "resamples": self.resamples, "seed": self.seed}
        pairs = np.column_stack([p, y])
        rows = [
            ("Brier", bootstrap_interval(pairs, score, **options)),
            ("Brier, share alone", bootstrap_interval(np.column_stack([flat, y]), score, **options)),
            ("skill", bootstrap_interval(pairs, skill, **options)),
            ("AUC", _auc(p, y, self.level)),
            ("ECE", Interval(calibration_error(p, y, bins=bins), float("nan"), float("nan"), self.level, len(p))),
            ("answered, observed", bootstrap_interval(y, **options)),
            ("answered, predicted", self.share(topics)),
        ]
        table = pd.DataFrame([(name, i.estimate, i.low, i.high, i.n) for name, i in rows])
        return AnswerabilityResult(
            table.set_axis(["figure", "value", "low", "high", "n"], axis=1),
            reliability(p, y, bins=bins, level=self.level),
            pd.DataFrame({"qid": topics["qid"].to_numpy(), "p_answered": p, "answered": y.astype(bool)}),
        )

    @reads_frames
    def share(self, inp: pd.DataFrame) -> Interval:
        """Estimate the share of queries without labels that would be answered; see :func:`predicted_share`.

        The labelled queries are those of ``fit``. Each was predicted by a model and a sigmoid that were fitted to other folds.

        Args:
            inp: ``qid``, ``query``.

        Returns:
            The share of these queries and its interval; a query in several rows counts once.

        Raises:
            InputError: Before ``fit``.
        """
        fitted = self._known()
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        p = self.transform(inp.drop_duplicates("qid"))["p_answered"].to_numpy(dtype=float)
        return predicted_share(p, fitted["p"], fitted["y"], level=self.level)

    # ------------------------------------------------------------------------------------------------ learning

    def _known(self) -> dict[str, Any]:
        if self._fitted is None:
            raise InputError("Answerability: fit() must be called first, with queries whose outcome is known")
        return self._fitted

    def _outcomes(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, np.ndarray]:
        """The distinct topics by qid, and for each 1 if answered, else 0."""
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        check_text(inp, "query", self)
        check_threshold(self.rank, self)
        check_number("Answerability", "folds", self.folds, least=2, whole=True)
        check_number("Answerability", "strength", self.strength, above=0)
        check_number("Answerability", "resamples", self.resamples, least=1, whole=True)
        check_number("Answerability", "level", self.level, above=0, most=0.9999)
        topics = inp.sort_values("qid", kind="stable").reset_index(drop=True)
        y = self._answered(topics)
        first = ~topics["qid"].duplicated().to_numpy()
        other = np.flatnonzero(y != y[first][np.cumsum(first) - 1])
        if len(other):
            raise InputError(
                f"Answerability: query {topics['qid'].iloc[other[0]]!r} is answered in one row and not in another; "
                f"keep one row per query"
            )
        return topics[first].reset_index(drop=True), y[first]

    def _answered(self, topics: pd.DataFrame) -> np.ndarray:
        """For each row, 1 if answered, else 0."""
        if "answered" in topics.columns:
            known = topics["answered"]
            if known.isna().any():
                raise InputError(
                    f"Answerability: 'answered' is missing for query {topics['qid'][known.isna()].iloc[0]!r}; fill it, or leave "
                    f"the query out"
                )
            # A string would count as true, even "False".
            bad = [not (isinstance(value, (numbers.Real, np.bool_)) and value in (0, 1)) for value in known]
            if any(bad):
                row = bad.index(True)
                raise InputError(
                    f"Answerability: 'answered' is {known.tolist()[row]!r} for query {topics['qid'].iloc[row]!r}; it must be "
                    f"True or False (or 1 or 0), map it first"
                )
            return known.to_numpy(dtype=float)
        if "first_relevant_rank" not in topics.columns:
            raise InputError(
                "Answerability: neither 'answered' nor 'first_relevant_rank' is a column; join the latter with "
                "survivorship.data.ranks.with_ranks(topics, first_relevant_ranks(candidates, qrels))"
            )
        ranks = topics["first_relevant_rank"].to_numpy(dtype=float)
        if np.isnan(ranks).any():
            raise InputError("Answerability: 'first_relevant_rank' is NaN; give infinity for a query that was never answered")
        return survives(ranks, self.rank).astype(float)

    def _folds(self, texts: Sequence[str], y: np.ndarray) -> np.ndarray:
        """The fold of each query: by its text, and with both outcomes in every fold."""
        fold = np.empty(len(texts), dtype=int)
        place: dict[str, int] = {}
        for value in (1.0, 0.0):
            new = sorted({t for t, o in zip(texts, y) if o == value and t not in place}, key=lambda t: keyed_hash(self.seed, t))
            place.update({text: i % self.folds for i, text in enumerate(new)})
        for i, text in enumerate(texts):
            fold[i] = place[text]
        return fold

    def _matrix(self, texts: Sequence[str]) -> Any:
        if callable(self.features):
            return _checked(self.features(list(texts)), len(texts))
        check_choice("Answerability", "features", self.features, _FEATURES, "a function")
        from sklearn.feature_extraction.text import HashingVectorizer

        words = self.features == "words"
        hashing = HashingVectorizer(
            n_features=2**_BITS,
            analyzer="word" if words else "char_wb",
            ngram_range=(1, 2) if words else (2, 5),
            tokenizer=regex_word if words else None,
            token_pattern=None,
            alternate_sign=False,
            norm="l2",
        )
        return hashing.transform(list(texts))

    def _learn(self, x: Any, y: np.ndarray) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=self.strength, max_iter=1000).fit(x, y)

    @classmethod
    def _held_out(cls, logits: np.ndarray, y: np.ndarray, fold: np.ndarray) -> np.ndarray:
        """Each query's probability, from a sigmoid that is fitted to the other folds: its own one makes the mean error 0."""
        p = np.full(len(y), np.nan)
        for number in np.unique(fold):
            held = fold == number
            p[held] = cls._calibrator(logits[~held], y[~held])(logits[held])
        return p

    @staticmethod
    def _calibrator(logits: np.ndarray, y: np.ndarray) -> _Sigmoid:
        """Platt's sigmoid, fitted to held-out logits."""
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(C=100.0, max_iter=1000).fit(logits[:, None], y)
        return _Sigmoid(float(model.coef_[0, 0]), float(model.intercept_[0]))


@dataclass(frozen=True)
class _Sigmoid:
    """A sigmoid that maps logits to probabilities."""

    slope: float
    intercept: float

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        from scipy.special import expit

        return expit(self.slope * np.asarray(logits, dtype=float) + self.intercept)


def _auc(p: np.ndarray, y: np.ndarray, level: float) -> Interval:
    """Area under the ROC curve, with an interval that holds the areas whose own standard error explains the one found.

    The standard error is Hanley and McNeil's, at the area that is tried, because at an area of 1 it is 0 (Newcombe, Confidence
    intervals for an effect size measure based on the Mann-Whitney statistic, part 2, Statistics in Medicine 25, 2006, method 5).
    """
    from scipy import optimize, stats

    n, m = int(y.sum()), int(len(y) - y.sum())
    if not n or not m:
        return Interval(float("nan"), float("nan"), float("nan"), level, len(y))
    area = float((stats.rankdata(p)[y == 1].sum() - n * (n + 1) / 2) / (n * m))
    quantile, size = float(stats.norm.ppf((1 + level) / 2)), (n + m) / 2 - 1

    def apart(tried: float) -> float:
        """How many variances the area lies from one that is tried, less those of the level, in the unit of squares."""
        variance = tried * (1 - tried) * (1 + size * (1 - tried) / (2 - tried) + size * tried / (1 + tried)) / (n * m)
        return (area - tried) ** 2 - quantile**2 * variance

    # At areas of 0 and 1 the variance is 0, too.
    low = 0.0 if area == 0 else float(optimize.brentq(apart, 0.0, min(area, 1 - 1e-9)))
    high = 1.0 if area == 1 else float(optimize.brentq(apart, max(area, 1e-9), 1.0))
    return Interval(area, low, high, level, len(y))


def _checked(found: Any, n: int) -> Any:
    """The features that a user's function returns for n texts, checked, as an array or a sparse matrix by rows."""
    from scipy.sparse import issparse

    try:
        x = found.tocsr() if issparse(found) else np.asarray(found)
        values = np.asarray(x.data if issparse(x) else x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Answerability: the function features returned no table of numbers ({error})") from error
    if x.ndim != 2 or x.shape[0] != n:
        raise InputError(f"Answerability: the function features returned shape {x.shape} for {n} texts, not one row per text")
    if not np.isfinite(values).all():
        raise InputError("Answerability: the function features returned a value that is missing or infinite; replace such values")
    return x
