"""ARaB, RaB, FaiRR, NFaiRR and psychometric gaps as measures for ``pt.Experiment`` and ir_measures.

They can be used next to ``nDCG@10`` in one experiment. Judgements only determine which queries count; texts come from the
results' column ``text`` or from a loader passed to the measure.

An experiment averages and tests over all judged queries, including those that do not count here. Their values are NaN, and so is
the experiment's mean. With ``undefined='influence'``, mean and test are those of the queries that count (:func:`as_influence`).
"""

from __future__ import annotations

import logging
from abc import ABCMeta, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import Metric
from ir_measures.measures import MeanAgg, Measure, ParamInfo

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.evaluation import evaluated_qids, refuse_batches
from pyterrier_debias.core.frames import ranked, with_string_ids
from pyterrier_debias.core.text import Tokeniser, as_name, content_mark
from pyterrier_debias.gender.data.documents import Texts, counted, query_slices, wanted_qids
from pyterrier_debias.gender.data.profiles import Lexicon, LexiconLike, category_counts, columns_of
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas import arab
from pyterrier_debias.gender.formulas.counting import document_numbers, get_gender_tokeniser, tokeniser_name
from pyterrier_debias.gender.measures.background import Background, check_background, collection, is_collection, tell_outside

logger = logging.getLogger(__name__)

UNDEFINED = ("nan", "influence", "zero")
#: Options left out of a measure's list of options, and those too long for a name, which contains a hash of them instead.
_NOT_IN_NAMES, _LONG = ("cutoff", "name"), ("query_filter", "background", "groups")
#: Options that do not change what is computed from the others.
_LATE = {"cutoff", "name", "undefined"}
#: With fewer queries in a group, a t-test with the degrees of freedom of all queries rejects too often.
_FEWEST_OF_A_GROUP = 20


def parameters(**own: str) -> dict[str, ParamInfo]:
    """The options of one measure and those that all of them share, as ir_measures expects them."""
    shared = {
        "tokeniser": "how texts are split into words",
        "unknown": "what is done with documents without text",
        "undefined": "what a query without a value gets",
        "query_filter": "qids that count",
        "name": "what tables call the measure",
        "cutoff": "ranking cutoff threshold",
    }
    return {name: ParamInfo(required=False, default=None, desc=desc) for name, desc in {**own, **shared}.items()}


def as_influence(values: np.ndarray, n: int) -> np.ndarray:
    """Rescale the values of k of n queries so that a paired t-test over all n queries gives the t of the k queries.

    The n - k other queries get the mean of the k values as their value. The k values keep their mean, and their deviations from
    it are multiplied by sqrt(n (n - 1) / (k (k - 1))). The mean and the standard error of the n values, and of differences
    between two systems, are then those of the k values: sum d^2 / (n (n - 1)) is what sum d^2 / (k (k - 1)) was. So the paired t
    is the same; only its degrees of freedom are n - 1. Without rescaling, the standard error would be too small by about k / n.
    The results are influence values: what each of the n queries adds to an estimate that is made from k of them.

    Args:
        values: Shape [k].
        n: How many queries there are, at least k.

    Returns:
        Shape [k]; the values are unchanged if k = n, or if k = 1, where there is no spread.

    Example:
        >>> from scipy import stats
        >>> one, other = np.array([1.0, 2.0, 4.0]), np.array([2.0, 5.0, 4.0])
        >>> filled = [np.r_[as_influence(own, 20), np.full(17, own.mean())] for own in (one, other)]
        >>> [round(float(stats.ttest_rel(*pair).statistic), 6) for pair in ((one, other), filled)]
        [-1.511858, -1.511858]
    """
    values = np.asarray(values, dtype=np.float64)
    k = len(values)
    if not 1 < k < n:
        return values
    mean = values.mean()
    return mean + np.sqrt(n * (n - 1) / (k * (k - 1))) * (values - mean)


class _MeanOfKnown(MeanAgg):
    """The mean over the queries that have a value."""

    def __init__(self, measure: str):
        super().__init__()
        self._measure = measure
        self._judged = 0

    def add(self, value: float) -> None:
        self._judged += 1
        if not np.isnan(value):
            super().add(value)

    def result(self) -> float:
        if not self._judged:
            raise InputError(f"{self._measure}: no query is judged; give qrels with a row for each query that counts")
        return super().result()


class _Cut(ABCMeta):
    """Lets a class take a cut-off as its instances do: ``ARaB @ 10`` is ``ARaB() @ 10``."""

    def __matmul__(cls, cutoff: int) -> Measure:
        try:
            measure = cls()
        except TypeError as error:
            raise InputError(f"{cls.__name__} needs options: {cls.__name__}(...) @ {cutoff} ({error})") from error
        return measure @ cutoff


class _OfTexts(Measure, metaclass=_Cut):
    """The base of the gender measures: options, texts, names, queries without a value."""

    NAME: str
    QREL_INPUTS: tuple[str, ...] = ("query_id",)
    DEFAULTS: Mapping[str, Any] = {"tokeniser": "regex_word", "unknown": "raise", "undefined": "nan"}

    def __init__(self, *, texts: Any = None, text_field: str = "text", **params: Any):
        unknown = params.keys() - self.SUPPORTED_PARAMS.keys()
        if unknown:
            known = ", ".join([*self.SUPPORTED_PARAMS, "texts", "text_field"])
            raise InputError(f"{self.NAME} has no option {', '.join(sorted(unknown))}; it has {known}")
        params["query_filter"] = wanted_qids(params.get("query_filter"), self)
        super().__init__(**{name: value for name, value in params.items() if value is not None})
        check_choice(self.NAME, "undefined", self.option("undefined"), UNDEFINED)
        get_gender_tokeniser(self.option("tokeniser"))
        if "cutoff" in self.params:
            check_number(self.NAME, "cutoff", self.params["cutoff"], least=1, whole=True)
        self.text_field = text_field
        self.texts = Texts.given(texts, text_field, self.option("unknown"))
        # What was computed from long options, shared with measures that differ only in the cut-off.
        self._worked_out: dict[str, Any] = {}

    @property
    def RUN_INPUTS(self) -> list[str]:  # noqa: N802
        """The columns that the results must have; an experiment checks them."""
        return ["query_id", "doc_id", "score", *([self.text_field] if self.texts.source is None else [])]

    def option(self, name: str) -> Any:
        """An option's value, or its default."""
        return self.params.get(name, self.DEFAULTS.get(name))

    def __call__(self, **params: Any) -> _OfTexts:
        """The same measure with other options; texts that were loaded are kept."""
        anew = {"texts", "text_field", "unknown"} & params.keys()
        kept = {"texts": self.texts.source if anew else self.texts, "text_field": self.text_field}
        found = type(self)(**{**kept, **self.params, **params})
        if params.keys() <= _LATE:
            found._worked_out = self._worked_out
        return found

    def __repr__(self) -> str:
        """The name, the options that differ from the defaults, and the cut-off.

        Measures with the same repr are equal, and an experiment has one column for them. Long options appear as their length
        and a hash.
        """
        name, cutoff = self.params.get("name"), self.params.get("cutoff")
        if name is None:
            parts = self._parts()
            name = self.NAME + (f"({','.join(parts)})" if parts else "")
        return name + (f"@{cutoff}" if cutoff else "")

    def _parts(self) -> list[str]:
        parts = []
        for key, value in self.params.items():
            if key in _LONG:
                parts.append(f"{key}={self._mark(key)}")
            elif key not in _NOT_IN_NAMES and value != self.DEFAULTS.get(key):
                parts.append(f"{key}={_brief(value)}")
        return parts + ([] if self.text_field == "text" else [f"text_field={self.text_field!r}"])

    def _mark(self, key: str) -> str:
        if key not in self._worked_out:
            self._worked_out[key] = content_mark(self._content(key))
        return self._worked_out[key]

    def _content(self, key: str) -> Any:
        """The part of a long option that the measure reads."""
        return self.params[key]

    def runtime_impl(self, qrels: pd.DataFrame, run: pd.DataFrame) -> Iterator[Metric]:
        """Compute the values of all judged queries; ir_measures calls this.

        Args:
            qrels: Frame with the ``query_id`` of the queries that count.
            run: Frame ``query_id``, ``doc_id``, ``score``, and the text if no loader was given.

        Yields:
            A value for each judged query.
        """
        named = evaluated_qids(qrels, self)
        qids = sorted(named)
        run = with_string_ids(run.rename(columns={"query_id": "qid", "doc_id": "docno"}), self)
        pt.validate.columns(run, includes=["qid", "docno", "score"], context=self)  # type: ignore[arg-type]  # printed only
        asked = self._counting(set(qids))
        if not asked:
            logger.warning("%r: none of the %d judged queries counts; check the qids given to the measure", self, len(qids))
        whole, run = run, run[run["qid"].isin(asked)]
        values = self.judged_values(ranked(run, repr(self)), qrels, whole) if len(run) else {}
        known = {qid: value for qid, value in values.items() if not np.isnan(value)}
        undefined = self.option("undefined")
        fill = 0.0 if undefined == "zero" else float("nan")
        if undefined == "influence" and known:
            own = np.array(list(known.values()))
            fill, known = float(own.mean()), dict(zip(known, as_influence(own, len(qids)).tolist()))
        lacking, others = len(asked - known.keys()), len(qids) - len(asked)
        if undefined == "influence" and lacking + others:
            refuse_batches(self)
        if undefined == "nan" and lacking + others:
            logger.warning(
                "%r: %d of %d judged queries are NaN (%d have no results or no ideal above 0, %d do not count), and so is the "
                "mean of pt.Experiment; set undefined='influence' to take means and t-tests over the queries that count",
                self, lacking + others, len(qids), lacking, others,
            )  # fmt: skip
        if undefined == "influence" and lacking:
            logger.warning(
                "%r: %d of %d queries have no value (no results, or no ideal above 0); they get %s",
                self, lacking, len(asked), "the mean of the others" if fill == fill else "NaN",
            )  # fmt: skip
        if undefined == "influence" and len(known) == 1 < len(qids):
            logger.warning("%r: only one query has a value; the p value of a comparison with a baseline is meaningless", self)
        for qid in qids:
            yield Metric(named[qid], self, float(known.get(qid, fill)))

    def aggregator(self) -> MeanAgg:
        """The aggregator that ``pt.Evaluate`` and ir_measures use: the mean over the queries that have a value.

        Its ``result`` raises an InputError if no query is judged.
        """
        return _MeanOfKnown(repr(self))

    def _counting(self, judged: set[str]) -> set[str]:
        """Which of the judged queries count."""
        wanted = self.option("query_filter")
        return judged if wanted is None else judged & wanted

    @abstractmethod
    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""

    def judged_values(self, run: pd.DataFrame, qrels: pd.DataFrame, whole: pd.DataFrame | None = None) -> dict[str, float]:
        """As :meth:`values`, for measures that also read the labels of the judgements, or texts from the lists of all queries."""
        return self.values(run)

    def _head(self, run: pd.DataFrame) -> pd.DataFrame:
        cutoff = self.option("cutoff")
        return run if cutoff is None else run[run["rank"] < cutoff].reset_index(drop=True)


def _brief(value: Any) -> str:
    if isinstance(value, (WordList, Lexicon)):
        return f"{value.name}:{value.fingerprint}"
    return tokeniser_name(value) if callable(value) else repr(value)


class OfWords(_OfTexts):
    """The base of the measures that use a word list."""

    def __init__(self, *, wordlist: WordListLike | None = None, **params: Any):
        if wordlist is not None:
            wordlist = WordList.of(wordlist)
            params["wordlist"] = None if wordlist == WordList.of("debias") else wordlist
        super().__init__(**params)

    @property
    def wordlist(self) -> WordList:
        """The word list that the measure uses."""
        return self.option("wordlist") or WordList.of("debias")


class _Lean(OfWords):
    """ARaB and RaB."""

    SUPPORTED_PARAMS = parameters(
        method="tf, bool or tc",
        tf_form="log1p_total, sum_log or sum_log1p",
        signed="whether the mean keeps its sign",
        per_query_abs="whether each query's value loses its sign",
        contrast="what is compared: two groups, or one with the mean of the others",
        wordlist="words of groups",
    )
    DEFAULTS = {  # noqa: RUF012
        **_OfTexts.DEFAULTS, "method": "tf", "tf_form": "log1p_total", "signed": True, "per_query_abs": False,
    }  # fmt: skip

    def __init__(
        self,
        *,
        method: str | None = None,
        tf_form: str | None = None,
        signed: bool | None = None,
        per_query_abs: bool | None = None,
        contrast: str | tuple[str, str] | None = None,
        wordlist: WordListLike | None = None,
        tokeniser: str | Tokeniser | None = None,
        texts: Any = None,
        text_field: str = "text",
        unknown: str | None = None,
        undefined: str | None = None,
        query_filter: Collection[str] | None = None,
        name: str | None = None,
        **params: Any,
    ):
        """
        Args:
            method: ``'tf'`` (default), ``'bool'`` or ``'tc'``: see :func:`~pyterrier_debias.gender.formulas.arab.magnitudes`.
            tf_form: ``'log1p_total'`` (default, what the released code computes), ``'sum_log'`` (as printed) or ``'sum_log1p'``.
            signed: True (default): male minus female, positive where rankings lean to men. False: without direction; each query's
                value is multiplied by the sign of the mean, so that the mean over queries becomes its absolute value.
            per_query_abs: Whether to take each query's absolute value before averaging. Leans of queries then cannot cancel, and
                chance alone gives a value above 0.
            contrast: Which groups are compared if the list has other groups; see :meth:`WordList.contrast`.
            wordlist: ``'debias'`` (default), a path or a mapping; see :meth:`WordList.of`.
            tokeniser: ``'regex_word'`` (default), ``'whitespace'``, ``'blank'`` or a function.
            texts: Where texts come from: None for the column; a text loader, a dataset or an index that has one (such as
                ``pt.terrier.TerrierIndex``), a frame or a mapping.
            text_field: The column that holds the text.
            unknown: What to do with documents without text: ``'raise'`` (default), or ``'zero'``: count them as without words.
            undefined: Value of queries that have none of their own (such as no results) or do not count: ``'nan'`` (default)
                leaves them NaN; ``pt.Evaluate`` then takes the mean over the others, and the mean of ``pt.Experiment`` is NaN.
                ``'influence'`` gives them the mean of the others and rescales these (:func:`as_influence`), so that an
                experiment's mean and t-test are as if they were absent; single values then have no meaning. An experiment with
                ``batch_size`` rejects it, and ``signed=False``: both need all queries. ``'zero'`` counts them as 0.
            query_filter: List of the qids that count, such as those of neutral queries; None for all.
            name: The measure's name in tables. By default it contains all options except ``texts``, with ``query_filter`` as its
                length and a hash; measures over two versions of the same documents therefore need names.
            params: ``cutoff``; usually written ``ARaB() @ 10``.

        Raises:
            InputError: For an unknown option.
        """
        own = {"method": method, "tf_form": tf_form, "signed": signed, "per_query_abs": per_query_abs, "contrast": contrast}
        shared = {"tokeniser": tokeniser, "unknown": unknown, "undefined": undefined, "query_filter": query_filter, "name": name}
        super().__init__(wordlist=wordlist, texts=texts, text_field=text_field, **own, **shared, **params)
        arab.check_magnitude(self.option("method"), self.option("tf_form"))
        self.wordlist.contrast(contrast)

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""
        run = self._head(run)
        counts, own = counted(run, self.texts, self.wordlist, self.option("tokeniser"), repr(self))
        if not np.isin(own, counts.rows).any():
            logger.warning(
                "%r: no word of the list occurs in the %d documents of this run that count, so a value of 0 says nothing about "
                "their order; check that the list is in their language",
                self, len(np.unique(own)),
            )  # fmt: skip
        magnitude = arab.magnitudes(counts, self.option("method"), self.option("tf_form"))
        lean = arab.leans(magnitude, self.wordlist, self.option("contrast"))[own]
        values = {qid: self._value(lean[rows]) for qid, rows in query_slices(run["qid"]).items()}
        if self.option("per_query_abs"):
            return {qid: abs(value) for qid, value in values.items()}
        if not self.option("signed"):
            refuse_batches(self)
            side = -1.0 if np.mean(list(values.values())) < 0 else 1.0
            return {qid: side * value for qid, value in values.items()}
        return values

    @abstractmethod
    def _value(self, lean: np.ndarray) -> float:
        """The value of one query, from the leans of its documents up to the cut-off."""


class ARaB(_Lean):
    """Average rank bias: how far rankings lean to one group's words (Rekabsaz and Schedl, SIGIR 2020).

    b(d) is the magnitude of the first group in document d minus that of the second; RaB_q@t is the mean of b over the first t
    documents, and ARaB_q@t the mean of RaB_q@1 to RaB_q@t. See :mod:`pyterrier_debias.gender.formulas.arab`. With the library's
    word list, positive is male. ``ARaB(signed=False)`` and ``ARaB(per_query_abs=True)`` are the absolute variants. ``ARaB @ 10``
    is short for ``ARaB() @ 10``.

    Judged queries that do not count (excluded by ``query_filter``, or without results) are NaN. If there are any, use
    ``undefined='influence'`` for an experiment's means and its paired t-tests against a ``baseline``. The other values are then
    rescaled about their mean, so that mean and t are those of the queries that count (:func:`as_influence`); single values are
    *influence values*.

    Documents are ordered by score, and ties by descending docno as in trec_eval, whatever the column ``rank`` says;
    :class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator` uses ``rank`` if it is present.

    Raises:
        InputError: For an unknown option; during evaluation, if a document has no text.

    If no document of a run has a word of the list, all values are 0, and a warning says that this is not informative.

    When not to use it: over queries that themselves name a gender; restrict it to neutral ones. Nor by itself: a system that
    leans one way in half of the queries and the other way in the rest is also near 0. Part of it is the lean of the candidates
    (:class:`~pyterrier_debias.gender.measures.evaluator.ARaBEvaluator` separates the two). Nor with ``undefined='influence'`` and
    ``test='wilcoxon'``: influence values are meant for t-tests.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "she"]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
        >>> measures = [ARaB(method="tc") @ 2, ARaB(method="bool") @ 2, ARaB() @ 1]
        >>> found = pt.Evaluate(run, judged, measures)

        Counts 3 and -1: RaB@1 = 3, RaB@2 = 1, and their mean is 2. Boolean 1 and -1: (1 + 0) / 2. ln(1 + 3) = 1.3863.

        >>> [round(found[str(measure)], 4) for measure in measures]
        [2.0, 0.5, 1.3863]

    .. cite.dblp:: journals/corr/abs-2005-00372
    """

    __name__ = "ARaB"
    NAME = __name__
    PRETTY_NAME = "Average rank bias"
    SHORT_DESC = "How far rankings lean to one group's words, averaged over cut-offs."

    def _value(self, lean: np.ndarray) -> float:
        return arab.arab(lean, len(lean))


class RaB(_Lean):
    """Rank bias: how far the first t documents lean to one group's words (Rekabsaz and Schedl, SIGIR 2020).

    It is the mean of the leans of these documents; :class:`ARaB` is its mean over cut-offs. Options, and the treatment of queries
    that do not count, are those of :class:`ARaB`.

    A word list with one group gives the rank bias of that group alone, which is the mean magnitude of its words:
    ``RaB(wordlist={"male": WordList.of("debias").groups["male"]})``. RaB is the difference of two of these, RaB_m and RaB_f in
    the paper.

    When not to use it: see :class:`ARaB`.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "she"]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
        >>> pt.Evaluate(run, judged, [RaB(method="tc") @ 2])
        {"RaB(method='tc')@2": 1.0}

        Of each group: (3 + 0) / 2 and (0 + 1) / 2.

        >>> from pyterrier_debias import WordList
        >>> groups = WordList.of("debias").groups
        >>> [pt.Evaluate(run, judged, [RaB(method="tc", wordlist={g: groups[g]}, name=g) @ 2]) for g in groups]
        [{'male@2': 1.5}, {'female@2': 0.5}]

    .. cite.dblp:: journals/corr/abs-2005-00372
    """

    __name__ = "RaB"
    NAME = __name__
    PRETTY_NAME = "Rank bias"
    SHORT_DESC = "How far the documents above the cut-off lean to one group's words."

    def _value(self, lean: np.ndarray) -> float:
        return arab.rab(lean, len(lean))


class FaiRR(OfWords):
    """Fairness of a ranking: the discounted sum of its documents' neutrality (Rekabsaz, Kopeinik and Schedl, SIGIR 2021).

    A document is neutral if it mentions the groups in the desired portions, or hardly at all; see
    :func:`~pyterrier_debias.gender.formulas.arab.neutrality`. The sum over ranks i of neutrality / log2(i + 1) is not normalised.
    Queries that do not count are NaN; see :class:`ARaB`.

    Raises:
        InputError: For an unknown option; during evaluation, if a document has no text.

    When not to use it: to compare queries or collections, because the sum depends on how many documents there were to
    rank; use :class:`NFaiRR` for this.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "rain"]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
        >>> found = pt.Evaluate(run, judged, [FaiRR() @ 2, NFaiRR() @ 2])

        Neutrality 0 and 1: 0 / log2(2) + 1 / log2(3), and the best order has 1 / log2(2).

        >>> {name: round(value, 4) for name, value in found.items()}
        {'FaiRR@2': 0.6309, 'NFaiRR@2': 0.6309}

    .. cite.dblp:: journals/corr/abs-2104-13640
    """

    __name__ = "FaiRR"
    NAME = __name__
    PRETTY_NAME = "Fairness of a ranking"
    SHORT_DESC = "Discounted sum of the documents' neutrality."
    SUPPORTED_PARAMS = parameters(
        threshold="how many words still count as none", portions="the wished portion of each group", wordlist="words of groups"
    )
    DEFAULTS = {**_OfTexts.DEFAULTS, "threshold": 1}  # noqa: RUF012

    def __init__(
        self,
        *,
        threshold: int | None = None,
        portions: Mapping[str, float] | None = None,
        wordlist: WordListLike | None = None,
        tokeniser: str | Tokeniser | None = None,
        texts: Any = None,
        text_field: str = "text",
        unknown: str | None = None,
        undefined: str | None = None,
        query_filter: Collection[str] | None = None,
        name: str | None = None,
        **params: Any,
    ):
        """
        Args:
            threshold: How many words of the list a document may have and still count as neutral; default 1 (released code).
            portions: Mapping from each group to its desired portion; by default they are equal.
            wordlist: The words of each group, as in :class:`ARaB`.
            tokeniser: How texts are split into words, as in :class:`ARaB`.
            texts: Where texts come from, as in :class:`ARaB`.
            text_field: The column that holds the text.
            unknown: What to do with documents without text, as in :class:`ARaB`.
            undefined: What queries without a value get, as in :class:`ARaB`.
            query_filter: The qids that count; None for all.
            name: The measure's name in tables, as in :class:`ARaB`.
            params: ``cutoff``.

        Raises:
            InputError: For an unknown option.
        """
        own = {"threshold": threshold, "portions": portions}
        shared = {"tokeniser": tokeniser, "unknown": unknown, "undefined": undefined, "query_filter": query_filter, "name": name}
        super().__init__(wordlist=wordlist, texts=texts, text_field=text_field, **own, **shared, **params)
        words = self.wordlist.names
        arab.neutrality(np.zeros((0, len(words))), words, self.option("portions"), self.option("threshold"))

    def _neutral(self, run: pd.DataFrame) -> np.ndarray:
        counts, own = counted(run, self.texts, self.wordlist, self.option("tokeniser"), repr(self))
        words = self.wordlist.names
        return arab.neutrality(counts.total(), words, self.option("portions"), self.option("threshold"))[own]

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""
        run = self._head(run)
        neutral = self._neutral(run)
        return {qid: arab.fairr(neutral[rows], len(neutral)) for qid, rows in query_slices(run["qid"]).items()}


class NFaiRR(FaiRR):
    """How neutral a ranking is: its :class:`FaiRR` divided by the best that the background allows; 1 is as neutral as possible.

    The background is the set of documents that could have been ranked, usually the first 200 results of the first stage; by
    default it is the evaluated run itself, to the same depth. A frame of documents without ``qid`` and ``score`` is the
    background of every query, such as the whole collection, as for the ranker-agnostic value
    (:class:`~pyterrier_debias.gender.measures.background.Fairness`).

    The sums for the ideal and for the run are over the same ranks: up to the cut-off, and at most to the depth of the background.
    Ranked documents that are not in the background are added to it. So no value exceeds 1. Values below 0 occur where neutrality
    is below 0 (unequal portions, three groups). As FaiRR is a sum, a list shorter than the cut-off has a low value. A query that
    is not in the background, or whose ideal is not above 0, has no value; see :class:`ARaB`.

    A background is ranked and counted once for all systems and cut-offs: after ``fair = NFaiRR(background=run)``, ``fair @ 5``
    and ``fair @ 10`` share it.

    Raises:
        InputError: For an unknown option; during evaluation, if a document has no text.

    When not to use it: to find a *direction*; a ranking about men only and one about women only have the same value. Do not
    compare two systems that have different backgrounds: give both the same one.

    Example:
        See :class:`FaiRR`.

    .. cite.dblp:: journals/corr/abs-2104-13640
    """

    __name__ = "NFaiRR"
    NAME = __name__
    PRETTY_NAME = "Normalised fairness of a ranking"
    SHORT_DESC = "FaiRR divided by that of the most neutral order of the background."
    SUPPORTED_PARAMS = FaiRR.SUPPORTED_PARAMS | parameters(
        background="run whose documents could have been ranked",
        depth="how many of the background's documents count",
        outside="what is done with documents that the background lacks",
    )
    DEFAULTS = {**FaiRR.DEFAULTS, "depth": 200, "outside": "add"}  # noqa: RUF012

    def __init__(
        self,
        *,
        background: pd.DataFrame | None = None,
        depth: int | None = None,
        outside: str | None = None,
        **params: Any,
    ):
        """
        Args:
            background: A result frame ``qid``, ``docno``, ``score``, or a frame of documents (``docno``) for every query, with
                the text if no loader is given; None for the evaluated run.
            depth: How many documents from the top of the result frame or run form a query's background; default 200.
            outside: What to do with ranked documents that are not in the background: ``'add'`` (default) lets the ideal contain
                them too; ``'count'`` counts them for the ranking alone, as the released code does, so that values can exceed 1.
            params: The options of :class:`FaiRR`.

        Raises:
            InputError: For an unknown option, or a background that lacks a column.
        """
        super().__init__(background=background, depth=depth, outside=outside, **params)
        check_background(background, self.option("depth"), self.option("outside"), "NFaiRR")
        if background is not None and "qid" in background.columns and "score" not in background.columns:
            raise InputError("NFaiRR: the background lacks the column 'score'; give a result frame")

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""
        head = self._head(run)
        neutral, others = self._neutral(head), self._candidates(run)
        outside, docnos = self.option("outside"), head["docno"].tolist()
        found = {}
        for qid, rows in query_slices(head["qid"]).items():
            cutoff = self.option("cutoff") or rows.stop - rows.start
            found[qid] = others[qid].compare(docnos[rows], neutral[rows], cutoff, outside)
        tell_outside((one.outside for qid, one in found.items() if len(others[qid])), outside, repr(self))
        return {qid: one.nfairr for qid, one in found.items()}

    def _candidates(self, run: pd.DataFrame) -> dict[str, Background]:
        """The documents that could have been ranked for each query of a run; none if the background lacks the query."""
        background = self.option("background")
        if background is None:
            return self._of_depth(run)
        known = self._worked_out.setdefault("candidates", {})
        lacking = set(run["qid"]) - known.keys()
        if lacking and is_collection(background):
            if "all" not in self._worked_out:
                self._worked_out["all"] = collection(background, self._neutral, "NFaiRR")
            known.update(dict.fromkeys(lacking, self._worked_out["all"]))
        elif lacking:
            whole = with_string_ids(background, self)
            whole = ranked(whole[whole["qid"].isin(lacking)], f"background of {self!r}")
            known.update({**dict.fromkeys(lacking, Background()), **self._of_depth(whole)})
        return known

    def _of_depth(self, whole: pd.DataFrame) -> dict[str, Background]:
        depth = self.option("depth")
        whole = whole[whole["rank"] < depth].reset_index(drop=True)
        neutral, docnos = self._neutral(whole), whole["docno"].tolist()
        return {q: Background(docnos[rows], neutral[rows], depth) for q, rows in query_slices(whole["qid"]).items()}

    def _content(self, key: str) -> Any:
        """The part of the background that is read: its ranking, and its texts if no loader is given."""
        if key != "background":
            return super()._content(key)
        frame, field = with_string_ids(self.params[key], self), self.text_field
        own = [column for column in ("qid", "docno", "score") if column in frame.columns]
        own = [*own, *([field] if self.texts.source is None and field in frame.columns else [])]
        return frame[own]


class LexiconGap(_OfTexts):
    """Psychometric gap of a ranking: how far apart two categories' shares of words are (Bigdeli et al. 2023, Tables 3 and 4).

    With s_c(d) the share of document d's words in category c, a query's value is abs(mean over the first k documents of
    s_male - s_female). It is a share: the original scripts multiply by 100. Queries that do not count are NaN; see :class:`ARaB`.

    Raises:
        InputError: For an unknown option or category; during evaluation, if a document has no text.

    When not to use it: to find a direction. It is an absolute value for each query, so chance alone gives a value above 0, which
    is larger for shorter documents.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he saw her and him", "she"]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})

        d1: 2/5 - 1/5 = 0.2; d2: 0 - 1 = -1. The mean is -0.4.

        >>> found = pt.Evaluate(run, judged, [LexiconGap() @ 2, LexiconGap(signed=True) @ 2])
        >>> {name: round(value, 4) for name, value in found.items()}
        {'LexiconGap@2': 0.4, 'LexiconGap(signed=True)@2': -0.4}
    """

    __name__ = "LexiconGap"
    NAME = __name__
    PRETTY_NAME = "Psychometric gap"
    SHORT_DESC = "Difference of two categories' shares of words, absolute for each query."
    SUPPORTED_PARAMS = parameters(
        lexicon="categories of words", contrast="the two categories", signed="whether a query's value keeps its sign"
    )
    DEFAULTS = {**_OfTexts.DEFAULTS, "signed": False}  # noqa: RUF012

    def __init__(
        self,
        *,
        lexicon: LexiconLike | None = None,
        contrast: tuple[str, str] | None = None,
        signed: bool | None = None,
        tokeniser: str | Tokeniser | None = None,
        texts: Any = None,
        text_field: str = "text",
        unknown: str | None = None,
        undefined: str | None = None,
        query_filter: Collection[str] | None = None,
        name: str | None = None,
        **params: Any,
    ):
        """
        Args:
            lexicon: See :meth:`Lexicon.of`; by default the library's word list.
            contrast: The two categories; by default ``male`` and ``female`` if the lexicon has them, else ``m`` and ``f``, else
                its only two.
            signed: Whether a query's value keeps its sign; default False.
            tokeniser: How texts are split into words, as in :class:`ARaB`.
            texts: Where texts come from, as in :class:`ARaB`.
            text_field: The column that holds the text.
            unknown: What to do with documents without text, as in :class:`ARaB`.
            undefined: What queries without a value get, as in :class:`ARaB`.
            query_filter: The qids that count; None for all.
            name: The measure's name in tables, as in :class:`ARaB`.
            params: ``cutoff``.

        Raises:
            InputError: For an unknown option or category.
        """
        own = {"lexicon": None if lexicon is None else Lexicon.of(lexicon), "contrast": contrast, "signed": signed}
        shared = {"tokeniser": tokeniser, "unknown": unknown, "undefined": undefined, "query_filter": query_filter, "name": name}
        super().__init__(texts=texts, text_field=text_field, **own, **shared, **params)
        self.contrasted = two_categories(self.lexicon, contrast)

    @property
    def lexicon(self) -> Lexicon:
        """The lexicon."""
        return self.option("lexicon") or Lexicon.of("debias")

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""
        run = self._head(run)
        shares = _shares(run, self, self.contrasted)
        gap = shares[:, 0] - shares[:, 1]
        values = {qid: float(gap[rows].mean()) for qid, rows in query_slices(run["qid"]).items()}
        return values if self.option("signed") else {qid: abs(value) for qid, value in values.items()}


def two_categories(lexicon: Lexicon, contrast: tuple[str, str] | None = None) -> tuple[str, str]:
    """Which two categories of a lexicon are compared.

    Args:
        lexicon: The lexicon.
        contrast: Two names; None for ``male`` and ``female``, else ``m`` and ``f``, else the only two categories.

    Returns:
        Two names.

    Raises:
        InputError: For a name that the lexicon lacks, or if no names are given and there is no default.
    """
    if contrast is None:
        known = [pair for pair in (("male", "female"), ("m", "f")) if set(pair) <= set(lexicon.names)]
        if known:
            return known[0]
        if len(lexicon.names) == 2:
            return lexicon.names[0], lexicon.names[1]
        raise InputError(f"lexicon {lexicon.name!r} has {len(lexicon.names)} categories; name two, e.g. ('male', 'female')")
    if isinstance(contrast, str) or len(contrast) != 2 or not set(contrast) <= set(lexicon.names):
        some = ", ".join(lexicon.names[:8])
        raise InputError(f"contrast {contrast!r} must be two categories of lexicon {lexicon.name!r}, which has {some}")
    return contrast[0], contrast[1]


def _shares(run: pd.DataFrame, measure: Any, columns: tuple[str, ...]) -> np.ndarray:
    """Shares of words in categories, shape [rows, columns]; each document is read once."""
    texts = measure.texts.of(run, repr(measure))
    first, own = document_numbers(run["docno"].tolist(), texts)
    counts, words = category_counts([texts[i] for i in first], measure.lexicon, measure.option("tokeniser"))
    shares = counts / np.maximum(words, 1)[:, None]
    return columns_of(shares, measure.lexicon.names, columns, f"lexicon {measure.lexicon.name!r}")[own]


class QueryGroupGap(_OfTexts):
    """How differently documents are worded for two groups of queries: the gap of Bigdeli et al. (2023), Table 2.

    A query's share of a category is the mean over its first k documents. The gap is the difference between the mean shares of the
    two groups' queries, by default its absolute value.

    Evaluation averages the values of queries, so each query's value is its *influence value*: the gap plus what the query adds to
    it. The mean of these over the queries of both groups is exactly the gap. Queries in neither group get the gap itself, and the
    others are rescaled by :func:`as_influence`. A paired t-test against a baseline then uses the standard error of Welch's test,
    sqrt(SS_1 / (n_1 (n_1 - 1)) + SS_2 / (n_2 (n_2 - 1))), with a group's sum of squares SS and size n. A single query's value has
    no meaning of its own.

    Raises:
        InputError: For an unknown option or category; during evaluation, if one of the groups has no query with results, and in
            ``pt.Experiment(..., batch_size=n)``, which would compute a gap for each batch.

    The paper's table is computed from the first documents of two rankers, trained on the original and on balanced judgements, for
    the gendered queries that the authors identified in 2021. So evaluate both rankers on the same queries and groups, and compare
    their gaps.

    When not to use it: to blame one ranker for its gap. Queries of two groups ask for different things; only the difference
    between two rankers on the same queries can be attributed to the rankers. Nor to test the gap of a group with fewer than about
    20 queries: the degrees of freedom are those of all judged queries, so that the test rejects too often. A warning says so.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> lexicon = {"power": ["boss", "rule*"], "home": ["house"]}
        >>> run = pd.DataFrame({
        ...     "qid": ["1", "2", "3"], "docno": ["a", "b", "c"], "score": 1.0, "text": ["the boss rules", "a house", "the boss"],
        ... })
        >>> judged = run[["qid", "docno"]].assign(label=1)
        >>> groups = pd.DataFrame({"qid": ["1", "2", "3"], "gender": ["male", "female", "female"]})

        Male queries: 2/3. Female ones: (0 + 1/2) / 2 = 1/4. The gap is 5/12.

        >>> found = pt.Evaluate(run, judged, [QueryGroupGap(lexicon=lexicon, category="power", groups=groups) @ 1])
        >>> {name: round(value, 4) for name, value in found.items()}
        {'QueryGroupGap(power,lexicon=lexicon:58c810fa,groups=3:56ae5079)@1': 0.4167}
    """

    __name__ = "QueryGroupGap"
    NAME = __name__
    PRETTY_NAME = "Psychometric gap between groups of queries"
    SHORT_DESC = "Difference between the mean shares of a category for two groups of queries."
    SUPPORTED_PARAMS = parameters(
        lexicon="categories of words", category="which category", groups="frame qid, gender", between="the two groups",
        signed="whether the gap keeps its sign",
    )  # fmt: skip
    DEFAULTS = {**_OfTexts.DEFAULTS, "signed": False, "undefined": "influence"}  # noqa: RUF012

    def __init__(
        self,
        *,
        lexicon: LexiconLike,
        category: str,
        groups: pd.DataFrame,
        between: tuple[str, str] | None = None,
        signed: bool | None = None,
        tokeniser: str | Tokeniser | None = None,
        texts: Any = None,
        text_field: str = "text",
        unknown: str | None = None,
        name: str | None = None,
        **params: Any,
    ):
        """
        Args:
            lexicon: See :meth:`Lexicon.of`.
            category: A category of the lexicon, or ``persconc``; see :func:`~pyterrier_debias.gender.data.profiles.columns_of`.
            groups: Frame ``qid``, ``gender`` with one gender per query; a query whose gender is missing is in no group.
            between: The two groups; by default ``male`` and ``female``, else ``m`` and ``f``, else the only two.
            signed: Whether the gap keeps its sign (the first group minus the second); default False.
            tokeniser: How texts are split into words, as in :class:`ARaB`.
            texts: Where texts come from, as in :class:`ARaB`.
            text_field: The column that holds the text.
            unknown: What to do with documents without text, as in :class:`ARaB`.
            name: The measure's name in tables, as in :class:`ARaB`.
            params: ``cutoff``.

        Raises:
            InputError: For an unknown option, category or group.
        """
        undefined = params.pop("undefined", None)
        if undefined not in (None, "influence"):
            raise InputError(
                f"QueryGroupGap: undefined={undefined!r} cannot be chosen, because queries without a value get the gap itself "
                f"(as with 'influence'); leave the option out"
            )
        lexicon = Lexicon.of(lexicon)
        own = {"lexicon": lexicon, "category": category, "groups": groups, "between": between, "signed": signed}
        shared = {"tokeniser": tokeniser, "unknown": unknown, "name": name}
        super().__init__(texts=texts, text_field=text_field, **own, **shared, **params)
        columns_of(np.zeros((0, len(lexicon.names))), lexicon.names, [category], f"lexicon {lexicon.name!r}")
        lacking = [column for column in ("qid", "gender") if column not in groups.columns]
        if lacking:
            raise InputError(f"QueryGroupGap: groups lack the column {lacking[0]!r}; give a frame qid, gender")
        known = _genders(groups)
        names = list(dict.fromkeys(known["gender"]))
        if len(names) < 2:
            there = f"one gender only, {names[0]!r}" if names else "no gender"
            raise InputError(f"QueryGroupGap: groups have {there}; give queries of two")
        try:
            self.between = two_categories(Lexicon({group: ["x"] for group in names}, "groups"), between)
        except InputError:
            told = f"between={between!r} must be two genders of groups, which have {', '.join(names[:8])}"
            raise InputError(f"QueryGroupGap: {told}") from None
        self._gender = {qid: gender for qid, gender in zip(known["qid"], known["gender"]) if gender in self.between}

    def _parts(self) -> list[str]:
        category, signed = (f"{name}={self.option(name)!r}" for name in ("category", "signed"))
        others = [part for part in super()._parts() if part not in (category, signed)]
        return [self.option("category"), *(["signed"] if self.option("signed") else []), *others]

    def _content(self, key: str) -> Any:
        """The part of ``groups`` that is read: which query belongs to which group."""
        return _genders(self.params[key]) if key == "groups" else super()._content(key)

    def _counting(self, judged: set[str]) -> set[str]:
        return super()._counting(judged) & self._gender.keys()

    @property
    def lexicon(self) -> Lexicon:
        """The lexicon."""
        return self.option("lexicon")

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The influence value of each query of a run, sorted by query and rank."""
        refuse_batches(self)
        run = self._head(run)
        shares = _shares(run, self, (self.option("category"),))[:, 0]
        own = {qid: float(shares[rows].mean()) for qid, rows in query_slices(run["qid"]).items()}
        y = np.array(list(own.values()))
        member = np.array([[self._gender.get(qid) == group for group in self.between] for qid in own])
        (one, other), (n, rest) = self.between, member.sum(axis=0)
        if min(n, rest) < _FEWEST_OF_A_GROUP:
            logger.warning(
                "%r: queries with results: %d of group %r, %d of group %r; with fewer than %d, a t-test against a baseline "
                "rejects too often",
                self, n, one, rest, other, _FEWEST_OF_A_GROUP,
            )  # fmt: skip
        return dict(zip(own, group_gap(y, member, signed=bool(self.option("signed"))).tolist()))


def _genders(groups: pd.DataFrame) -> pd.DataFrame:
    """Queries and their genders as text, without queries that have none. A missing one turns whole numbers into floats."""
    known = with_string_ids(groups[["qid", "gender"]], "QueryGroupGap").dropna(subset=["gender"])
    known = known.assign(gender=known["gender"].map(as_name)).drop_duplicates()
    twice = known["qid"].duplicated(keep=False)
    if twice.any():
        qid = known.loc[twice, "qid"].iloc[0]
        said = " and ".join(map(repr, known.loc[known["qid"] == qid, "gender"]))
        raise InputError(f"QueryGroupGap: groups give query {qid!r} the genders {said}; keep one row per query")
    return known


def group_gap(values: np.ndarray, member: np.ndarray, *, signed: bool = False) -> np.ndarray:
    """A value for each query; the mean of the values over the queries of two groups is the gap between the groups' means.

    Args:
        values: The queries' own values, shape [n].
        member: Shape [n, 2], true where a query belongs to a group.
        signed: Whether the gap is the first group's mean minus the second's; otherwise it is the absolute value of this.

    Returns:
        Shape [n]; the gap itself for queries in neither group. The standard error of the mean is that of Welch's test. The spread
        of a group with one query is not known; the standard error is then that of the other group alone.

    Raises:
        InputError: If a group has no query.

    Example:
        >>> found = group_gap(np.array([1.0, 3.0, 0.0]), np.array([[1, 0], [1, 0], [0, 1]], dtype=bool))
        >>> round(float(found.mean()), 6)
        2.0
    """
    sizes = member.sum(axis=0)
    if (sizes == 0).any():
        raise InputError("QueryGroupGap: one of the two groups has no query with results; give topics of both groups")
    means = values @ member / sizes
    gap = means[0] - means[1]
    side = 1.0 if signed or gap >= 0 else -1.0
    n = len(values)
    # A t-test divides by n (n - 1), which is for one mean. This makes the divisor n_g (n_g - 1) for each group's sum of squares.
    weights = member * np.array([1.0, -1.0]) * np.sqrt(n * (n - 1) / (sizes * np.maximum(sizes - 1, 1)))
    return side * (gap + (weights * (values[:, None] - means)).sum(axis=1))
