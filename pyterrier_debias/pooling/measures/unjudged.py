"""Evaluation with unjudged documents, by removing them or by inferring their labels.

A ranking can be scored in three ways: unjudged documents count as not relevant (the default of measures), they are removed from
the ranking (:class:`OnlyJudged`, or ``judged_only=True`` for measures that have it), or their labels are inferred
(:func:`infer_judgements`, :class:`ExpectedNDCG`). :func:`leave_one_out` shows how each system would score if it had not
contributed to the judgements. For the share of judged documents, use ``Judged@k`` of ir_measures.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt
from ir_measures import Metric
from ir_measures.measures import Measure, ParamInfo

from pyterrier_debias.core.errors import InputError, check_number, shortened
from pyterrier_debias.core.evaluation import evaluated_qids, parse_measures, per_query
from pyterrier_debias.core.frames import (
    check_overlap,
    first_rows,
    highest_grades,
    numbers,
    pair_numbers,
    parts_together,
    ranked,
    reads_frames,
    with_string_ids,
)
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.statistics import without_rounding
from pyterrier_debias.core.systems import check_run

logger = logging.getLogger(__name__)

#: The constant of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009).
FUSION = 60


class OnlyJudged(Stage):
    """Removes unjudged documents from a ranking, so that judged ones move up (a condensed list).

    Input: a result frame ``qid``, ``docno``, ``score``. Output: the judged rows with all their columns and new ranks; scores
    stay the same. A query without judgements keeps no row; a warning is logged if no row at all is judged.

    Put it last in a pipeline that is *evaluated*. It has the effect of ``judged_only=True`` for measures that lack this option,
    such as ``RR@10``; but that option removes documents with labels below 0, too. Sakai (SIGIR 2007) proposes condensed lists in
    place of measures made for incomplete judgements.

    When not to use it: before any stage that is trained (it reveals which documents are judged), or as the only figure. A system
    with many unjudged documents looks better than it is, and this error is larger than the opposite one that is made when
    unjudged documents count as misses (Sakai, CIKM 2008).

    Example:
        >>> import pandas as pd
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2", "d3"], "score": [3.0, 2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["q1", "q1"], "docno": ["d1", "d3"], "label": [0, 1]})
        >>> OnlyJudged(judged)(run)[["docno", "rank"]].values.tolist()
        [['d1', 0], ['d3', 1]]
    """

    schematic = {"label": "OnlyJudged", "help_url": None}  # noqa: RUF012

    def __init__(self, qrels: pd.DataFrame):
        """
        Args:
            qrels: Judgements: ``qid``, ``docno``. If a column is missing, the stage raises an InputError when it is first used.
        """
        self.qrels = qrels

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Remove unjudged rows and rank the others; see the class."""
        pt.validate.result_frame(inp, extra_columns=["score"], context=self)
        judged = _pairs(_checked_qrels(self.qrels, "OnlyJudged", ["qid", "docno"]))
        kept = inp[_pairs(inp).isin(judged)]
        if len(inp) and not len(kept):
            logger.warning(
                "OnlyJudged: none of its %d rows (e.g. qid=%r, docno=%r) is judged, so none is left; check that the judgements "
                "are of this collection",
                len(inp), inp["qid"].iloc[0], inp["docno"].iloc[0],
            )  # fmt: skip
        return ranked(kept, self)


class ExpectedNDCG(Measure):
    """nDCG with expected labels as gains, for rankings with unjudged documents: a measure for ``pt.Experiment`` and ir_measures.

    With e(d) the (expected) label of document d and ranks i from 1, the value of a query is the sum over the first k documents of
    e(d_i) / log2(i + 1), divided by the largest such sum of any ranking of the query's documents. This is the ratio of two
    expectations, not the expectation of their ratio. If all labels are whole numbers, it is trec_eval's nDCG. Labels below 0
    count as 0; ties of scores are broken as in trec_eval (by docno, descending).

    The judgements are part of the measure, so that one experiment can score a ranking with each way to handle unjudged documents;
    the experiment's own judgements only determine which queries count.

    If a document has several labels, the highest counts.

    Raises:
        InputError: During evaluation, if a query has no judgements here, or a label is missing or infinite.

    Example:
        >>> import pandas as pd
        >>> from ir_measures import nDCG
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d2"], "label": [1]})
        >>> inferred = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "label": [0.5, 1.0]})
        >>> measures = [nDCG @ 10, nDCG(judged_only=True) @ 10, ExpectedNDCG(inferred) @ 10]
        >>> found = pt.Evaluate(run, judged, measures)
        >>> [round(found[str(measure)], 3) for measure in measures]
        [0.631, 1.0, 0.86]

    When not to use it: with judgements inferred from the scores of one of the compared systems, which would then judge itself.
    """

    __name__ = "ExpectedNDCG"
    NAME = __name__
    #: It reads each list only up to its cut-off.
    CUTS_LISTS = True
    PRETTY_NAME = "nDCG of expected gains"
    SHORT_DESC = "Discounted expected gain, normalised by that of the best ranking."
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "judgements": ParamInfo(dtype=pd.DataFrame, required=True, desc="frame qid, docno, label; labels may be fractions"),
        "name": ParamInfo(dtype=str, required=False, default="ExpectedNDCG", desc="what tables call the measure"),
        "cutoff": ParamInfo(dtype=int, required=False, desc="ranking cutoff threshold"),
    }

    def __init__(self, judgements: pd.DataFrame, *, name: str = "ExpectedNDCG", **params: Any):
        """
        Args:
            judgements: ``qid``, ``docno``, ``label``, as returned by :func:`infer_judgements`.
            name: The name of the measure in tables. Measures with the same name and cut-off are equal, so use different names for
                two sets of judgements in one experiment.
            params: ``cutoff``; usually written as ``ExpectedNDCG(judgements) @ 10``.

        Raises:
            InputError: For a cut-off that is not a whole number of at least 1.
        """
        if params.get("cutoff") is not None:
            check_number("ExpectedNDCG", "cutoff", params["cutoff"], least=1, whole=True)
        super().__init__(judgements=judgements, name=name, **params)

    def __repr__(self) -> str:
        """The name and the cut-off, never the judgements."""
        cutoff = self.params.get("cutoff")
        return self.params["name"] + (f"@{cutoff}" if cutoff else "")

    def runtime_impl(self, qrels: pd.DataFrame, run: pd.DataFrame) -> Iterator[Metric]:
        """Compute the values of queries; called by ir_measures.

        Args:
            qrels: ``query_id`` of the queries that count.
            run: ``query_id``, ``doc_id``, ``score``.

        Yields:
            A value for each query of the run that is in ``qrels``.
        """
        judgements = _checked_qrels(self.params["judgements"], repr(self), ["qid", "docno", "label"])
        judgements = judgements.assign(label=numbers(judgements["label"], "ExpectedNDCG"))
        bad = np.flatnonzero(~np.isfinite(judgements["label"].to_numpy(dtype=np.float64)))
        if len(bad):
            label, qid, docno = (judgements[name].tolist()[bad[0]] for name in ("label", "qid", "docno"))
            raise InputError(
                f"{self!r}: column 'label' of the judgements is {label} at row {bad[0]} (qid={qid!r}, docno={docno!r}); leave "
                f"out documents without a label, or infer their labels with infer_judgements()"
            )
        named, cutoff, unknown = evaluated_qids(qrels, self), self.params.get("cutoff"), 0
        run = ranked(run.rename(columns={"query_id": "qid", "doc_id": "docno"}), repr(self))
        run, judgements = (frame[frame["qid"].isin(set(named))] for frame in (run, judgements))
        for lists, judged in parts_together(run, judgements):
            gains: dict[str, dict[str, float]] = {}
            # If a document has several labels, the last one is kept, which is the highest.
            ordered = judged.sort_values("label")
            for qid, docno, label in zip(*(ordered[name].tolist() for name in ("qid", "docno", "label"))):
                gains.setdefault(qid, {})[docno] = label
            for qid, rows in lists.groupby("qid", sort=False):
                if qid not in gains:
                    raise InputError(f"{self!r}: query {qid!r} is evaluated, but its judgements lack it; infer them for it too")
                docnos = rows["docno"].tolist()[:cutoff]
                unknown += sum(docno not in gains[qid] for docno in docnos)
                value = ndcg([gains[qid].get(docno, 0.0) for docno in docnos], list(gains[qid].values()), cutoff)
                yield Metric(named[qid], self, value)
        if unknown and cutoff:
            logger.warning(
                "%r: %d documents above the cut-off have no label, not even an inferred one, and count as not relevant; give "
                "infer_judgements every run that is evaluated",
                self,
                unknown,
            )


def ndcg(gains: Sequence[float], judged: Sequence[float], cutoff: int | None = None) -> float:
    """Discounted gain of a ranking divided by that of the best ranking; see :class:`ExpectedNDCG`.

    Args:
        gains: The labels of the ranked documents, best rank first.
        judged: The labels of all the query's documents, in any order.
        cutoff: How many ranks count; None for all.

    Returns:
        A number in [0, 1]; 0 if no document has a label above 0.

    Example:
        >>> round(ndcg([0.0, 1.0], [1.0, 0.0]), 4)
        0.6309
    """

    def discounted(labels: Any) -> float:
        labels = np.maximum(np.asarray(labels, dtype=np.float64)[:cutoff], 0.0)
        return float(labels @ (1 / np.log2(np.arange(2, len(labels) + 2))))

    best = discounted(np.sort(np.asarray(judged, dtype=np.float64))[::-1])
    return discounted(gains) / best if best else 0.0


@reads_frames
def infer_judgements(
    runs: Mapping[str, pd.DataFrame] | Sequence[pd.DataFrame] | pd.DataFrame,
    qrels: pd.DataFrame,
    infer: pt.Transformer | None = None,
    *,
    depth: int = 100,
) -> pd.DataFrame:
    """Complete judgements with inferred labels for the unjudged documents of runs; judged documents keep their labels.

    By default, a document gets the average label of judged documents of *other* queries that the runs rank equally high:
    with x(d) = sum over runs of 1 / (60 + rank of d, from 1), the expected label is the isotone regression of the judged
    documents' labels on x (:func:`expected_labels`). This needs only runs and judgements. It assumes that among documents
    that the runs rank alike, unjudged ones are relevant as often as judged ones. If labellers were shown the results of *more*
    systems, it overestimates documents that only the given runs found; if these systems share a preference, so do the labels.
    Aslam and Yilmaz (CIKM 2007) infer relevance from ranks in a related way.

    Any other source of labels is a transformer that adds ``label``: a model that judges, or a scorer whose scores are expected
    labels. It gets each unjudged pair once, with the columns of the runs (``query``, ``text`` ...), each with the value of the
    first run that has one; ``score`` and ``rank`` are those of the fusion x.

    Args:
        runs: All runs that will be evaluated: result frames ``qid``, ``docno``, ``score``.
        qrels: ``qid``, ``docno``, ``label``; if a document has several judgements, the highest counts. Queries without judgements
            are left out.
        infer: A transformer that returns its rows with a column ``label``, at least 0; None for the default.
        depth: How many documents of each run are considered for each query.

    Returns:
        ``qid``, ``docno``, ``label`` and ``inferred`` (whether the label is inferred), the judged rows first. If all inferred
        labels are whole numbers, the column is ``int64``, so that the frame can be used like any judgements; otherwise they are
        expectations for :class:`ExpectedNDCG`.

    Raises:
        InputError: If a run or the judgements lack a column, do not overlap, or ``infer`` is not a transformer or leaves a pair
            without a label; for a judgement whose label is missing or not a whole number.

    When not to use it: to make judgements for training; and never with an ``infer`` that is one of the compared systems, or was
    trained on the same preferences: a judge that is also ranked rates itself best.

    Example:
        >>> import pandas as pd
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d2"], "label": [1]})
        >>> infer_judgements(run, judged, pt.apply.label(lambda row: 2)).values.tolist()
        [['q1', 'd2', 1, False], ['q1', 'd1', 2, True]]
    """
    if infer is not None and not callable(infer):
        raise InputError(
            f"infer_judgements: infer={shortened(repr(infer), 80)} cannot label documents; give None (labels inferred from "
            f"ranks) or a transformer that adds the column 'label'"
        )
    qrels = highest_grades(qrels, "infer_judgements")
    pooled = _pooled(_named(runs), qrels, depth)
    unjudged = pooled["label"].isna().to_numpy()
    known = qrels.assign(inferred=False)
    if infer is None:
        queries = pd.factorize(pooled["qid"])[0]
        labels = expected_labels(pooled["score"].to_numpy(), pooled["label"].to_numpy(dtype=np.float64), queries)
        found = pooled.loc[unjudged, ["qid", "docno"]].assign(label=labels)
    else:
        found = _asked(infer, ranked(pooled[unjudged].drop(columns="label"), "infer_judgements"))
    if len(found) == 0:
        return known.reset_index(drop=True)
    if np.array_equal(found["label"], np.floor(found["label"])):
        found = found.astype({"label": "int64"})
    return pd.concat([known, found.assign(inferred=True)], ignore_index=True)


def inferred_in_parts(
    parts: Callable[[], Iterable[tuple[Mapping[str, pd.DataFrame], pd.DataFrame]]], *, depth: int
) -> Iterator[pd.DataFrame]:
    """:func:`infer_judgements` with its default, for runs that are too large to be held at once.

    Args:
        parts: A function that returns the runs and the judgements of some queries at a time, each query in one part; it is called
            twice. Runs are by name and ranked; judgements have one label per pair.
        depth: See :func:`infer_judgements`.

    Yields:
        For each part ``qid``, ``docno``, ``label`` and ``inferred``; labels may be fractions.
    """
    judged = [pooled[pooled["label"].notna()] for pooled in (_pooled_part(*part, depth) for part in parts())]
    evidence = pd.concat([part[["qid", "score", "label"]] for part in judged], ignore_index=True)
    columns = (evidence[name].to_numpy(dtype=kind) for name, kind in (("score", float), ("label", float), ("qid", object)))
    known = JudgedEvidence.of(*columns)
    for runs, qrels in parts():
        pooled = _pooled_part(runs, qrels, depth)
        found = pooled.loc[pooled["label"].isna(), ["qid", "docno", "score"]].reset_index(drop=True)
        labels, scores = np.zeros(len(found)), found["score"].to_numpy()
        for qid, rows in found.groupby("qid", sort=False).indices.items():
            labels[rows] = known.expected(qid, scores[rows])
        inferred = found[["qid", "docno"]].assign(label=labels, inferred=True)
        yield pd.concat([qrels[["qid", "docno", "label"]].assign(inferred=False), inferred], ignore_index=True)


def expected_labels(evidence: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Compute expected labels of unjudged documents from judged documents of other queries with similar evidence.

    For each query, the labels of all other queries are regressed on the evidence by isotone least squares (a label never falls as
    the evidence grows), and read off by linear interpolation. Below all judged documents, the curve continues to label 0 at
    evidence 0; above them it is constant.

    Args:
        evidence: Shape [n], above 0, the larger the more likely relevant; 0 would be a document that no system retrieves.
        labels: Shape [n]; NaN if a document is unjudged. Labels below 0 count as 0.
        queries: Shape [n], whole numbers: the query of each document.

    Returns:
        The expected labels of the unjudged documents, in their order; 0 if no other query has a judged document.

    Example:
        >>> nan = float("nan")
        >>> expected_labels(np.array([3, 2, 1, 2.5, 0]), np.array([1, 0, 0, nan, nan]), np.array([0, 0, 0, 1, 1])).tolist()
        [0.5, 0.0]
    """
    wanted = np.isnan(labels)
    known = JudgedEvidence.of(evidence[~wanted], labels[~wanted], queries[~wanted])
    expected = np.zeros(len(labels))
    for query, rows in _rows_of(queries[wanted], np.flatnonzero(wanted)).items():
        expected[rows] = known.expected(query, evidence[rows])
    return expected[wanted]


@dataclass(frozen=True, eq=False)
class JudgedEvidence:
    """The judged documents from which the labels of others are expected; see :func:`expected_labels`.

    Attributes:
        values: The distinct values of their evidence, ascending.
        codes: For each judged document the position of its evidence in ``values``.
        gains: For each judged document its label, at least 0.
        rows: For each query its judged documents.
    """

    values: np.ndarray
    codes: np.ndarray
    gains: np.ndarray
    rows: Mapping[Any, np.ndarray]

    @classmethod
    def of(cls, evidence: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> JudgedEvidence:
        """Collect judged documents.

        Args:
            evidence: Shape [n].
            labels: Shape [n], without NaN.
            queries: Shape [n], sortable.

        Returns:
            Their evidence.
        """
        values, codes = np.unique(evidence, return_inverse=True)
        return cls(values, codes, np.maximum(labels, 0.0), _rows_of(queries, np.arange(len(queries))))

    @cached_property
    def _totals(self) -> tuple[np.ndarray, np.ndarray]:
        return self._sums(slice(None))

    def _sums(self, rows: Any) -> tuple[np.ndarray, np.ndarray]:
        """The sum of labels and the number of documents at each value."""
        codes, n = self.codes[rows], len(self.values)
        return np.bincount(codes, self.gains[rows], n), np.bincount(codes, minlength=n)

    def expected(self, query: Any, evidence: np.ndarray) -> np.ndarray:
        """The expected labels of documents of one query, from the judged documents of the others.

        Args:
            query: The query.
            evidence: Shape [n].

        Returns:
            Shape [n]; 0 if no other query has a judged document.
        """
        from scipy.optimize import isotonic_regression

        sums, counts = self._totals
        own_sums, own_counts = self._sums(self.rows.get(query, np.empty(0, dtype=np.int64)))
        left = counts - own_counts
        there = left > 0
        if not there.any():
            return np.zeros(len(evidence))
        fitted = isotonic_regression((sums - own_sums)[there] / left[there], weights=left[there].astype(np.float64)).x
        return np.interp(evidence, np.append(0.0, self.values[there]), np.append(0.0, fitted))


def _rows_of(queries: np.ndarray, rows: np.ndarray) -> dict[Any, np.ndarray]:
    """The rows of each query."""
    order = np.argsort(queries, kind="stable")
    names, starts = np.unique(queries[order], return_index=True)
    return dict(zip(names.tolist(), np.split(rows[order], starts[1:])))


@reads_frames
def leave_one_out(
    runs: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, measures: Sequence[Any] = ("nDCG@10",), *, depth: int = 10
) -> pd.DataFrame:
    """Score each system as if it had not contributed to the judgements (Zobel, SIGIR 1998).

    For each system, the judgements of documents that only this system has in its first ``depth`` are removed, and all systems are
    evaluated with the rest. A system that loses much scored well because it was in the pool; a new system will fare as badly.
    Judgements of documents that no run has in its first ``depth`` are kept.

    Args:
        runs: For each name a result frame ``qid``, ``docno``, ``score``.
        qrels: ``qid``, ``docno``, ``label``.
        measures: ir_measures objects or names.
        depth: The depth to which the runs are assumed to have been pooled.

    Returns:
        One row per system and measure: ``system``, ``measure``; ``judgements`` and ``relevant`` (how many were removed, how many
        of these have a label above 0), ``score`` and ``without`` (means over the judged queries), ``difference`` (without -
        score), ``place`` and ``place_without`` (1 is the best; ties share the better place), ``tau``: Kendall's tau-b of the
        order of all systems with and without these judgements (NaN for fewer than two), and ``missing``: the number of judged
        queries for which the system has no results. These count as 0 in all of its means; a warning reports them.

    Raises:
        InputError: For an unknown measure, one with judgements of its own (:class:`ExpectedNDCG`), a depth below 1, a run that
            lacks a column or does not overlap the judgements.

    When not to use it: as an estimate of the true score. Runs of one family cover for each other (to leave them out
    together, give only one of them), and systems outside ``runs`` may have contributed the same documents.

    Example:
        >>> import pandas as pd
        >>> run = lambda docnos: pd.DataFrame({"qid": "q1", "docno": docnos, "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2", "d3"], "label": [0, 1, 1]})
        >>> found = leave_one_out({"a": run(["d2", "d1"]), "b": run(["d1", "d3"])}, judged, ["P@2"])
        >>> found[["system", "judgements", "relevant", "score", "without", "place_without"]].values.tolist()
        [['a', 1, 1, 0.5, 0.0, 2], ['b', 1, 1, 0.5, 0.0, 2]]
    """
    check_number("leave_one_out", "depth", depth, least=1, whole=True)
    qrels = highest_grades(qrels, "leave_one_out")
    runs = {name: strictly_ranked(check_run(run, name), f"run {name!r}") for name, run in _named(runs).items()}
    for name, run in runs.items():
        check_overlap(run, qrels, f"run {name!r}")
    parsed = parse_measures(measures)
    for measure in parsed:
        if own_judgements(measure):
            raise InputError(
                f"leave_one_out: measure {measure!r} has judgements of its own, from which nothing would be removed, so no "
                f"system would lose anything; for each system, remove the judgements of documents that only this system has, "
                f"call infer_judgements with the rest, and evaluate with an ExpectedNDCG of the result"
            )
    qids = list(dict.fromkeys(qrels["qid"]))
    missing = {name: len(set(qids) - set(run["qid"])) for name, run in runs.items()}
    for name, number in missing.items():
        if number:
            logger.warning("leave_one_out: %d of %d judged queries have no results of %r and count as 0", number, len(qids), name)
    tops = {name: _pairs(run[run["rank"] < depth]).unique() for name, run in runs.items()}
    times = pd.Index(np.concatenate(list(tops.values()))).value_counts()
    pairs = _pairs(qrels)

    def scores(judgements: pd.DataFrame) -> pd.DataFrame:
        return pd.DataFrame({name: per_query(run, judgements, parsed, qids).mean() for name, run in runs.items()}).T

    whole, rows = scores(qrels), []
    for name, top in tops.items():
        own = pairs.isin(top[times.loc[top].to_numpy() == 1])
        left = scores(qrels[~own])
        for measure in whole.columns:
            before, after = (scored[measure].round(12) for scored in (whole, left))  # equal means may differ in their last bits
            rows.append(
                {
                    "system": name,
                    "measure": measure,
                    "judgements": int(own.sum()),
                    "relevant": int((qrels["label"][own] > 0).sum()),
                    "score": before[name],
                    "without": after[name],
                    "difference": after[name] - before[name],
                    "place": int((before > before[name]).sum()) + 1,
                    "place_without": int((after > after[name]).sum()) + 1,
                    "tau": float(kendall_tau(before.to_numpy(), after.to_numpy())),
                    "missing": missing[name],
                }
            )
    return pd.DataFrame(rows)


def own_judgements(measure: Any) -> bool:
    """Whether a measure, or one that it is computed from, holds judgements, and does not read those of the evaluation.

    Args:
        measure: A measure of ir_measures.

    Returns:
        True for :class:`ExpectedNDCG`.
    """
    params = getattr(measure, "params", {})
    return "judgements" in params or ("of" in params and own_judgements(params["of"]))


def strictly_ranked(run: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Remove ties from a run, so that all measures use one order; ir_measures' Judged breaks ties differently from trec_eval.

    Args:
        run: Result frame ``qid``, ``docno``, ``score``.
        stage: The stage or system of the run, named in messages.

    Returns:
        The run, ranked as in trec_eval, with the negative rank as ``score``.
    """
    run = ranked(run, stage)
    return run.assign(score=-run["rank"].astype("float64"))


def kendall_tau(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Kendall's tau-b of two lists of scores, many at once.

    Args:
        a: Shape [..., systems].
        b: Shape [..., systems].

    Returns:
        Shape [...]: 1 for the same order of systems, -1 for the reverse order; NaN if all scores of one list are equal, up to
        rounding.

    Example:
        >>> kendall_tau(np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0])).round(3).tolist()
        0.333
    """
    first, second = np.triu_indices(np.shape(a)[-1], 1)
    one, other = (np.sign(without_rounding(np.asarray(x)[..., first] - np.asarray(x)[..., second])) for x in (a, b))
    untied = np.sqrt((one**2).sum(-1) * (other**2).sum(-1))
    return np.where(untied > 0, (one * other).sum(-1) / np.where(untied > 0, untied, 1.0), np.nan)


# ------------------------------------------------------------------------------------------------------------- inputs


def _named(runs: Any) -> dict[str, pd.DataFrame]:
    if isinstance(runs, pd.DataFrame):
        runs = [runs]
    named = dict(runs) if isinstance(runs, Mapping) else {f"run {i}": run for i, run in enumerate(runs, start=1)}
    if not named:
        raise InputError("there are no runs; give the runs that are evaluated")
    return named


def _pairs(frame: pd.DataFrame) -> pd.Series:
    """For each row one string that identifies its query and document."""
    return frame["qid"].astype(str) + "\0" + frame["docno"].astype(str)


def _checked_qrels(qrels: pd.DataFrame, stage: str, columns: Sequence[str]) -> pd.DataFrame:
    qrels = with_string_ids(qrels, f"{stage}, judgements")
    missing = [c for c in columns if c not in qrels.columns]
    if missing:
        there = ", ".join(map(str, qrels.columns))
        raise InputError(f"{stage}: column {missing[0]!r} of the judgements is missing; there are {there}")
    return qrels


def _pooled(runs: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, depth: int) -> pd.DataFrame:
    """The first documents of all runs, each pair once: its columns, its ``label`` (NaN if unjudged), and the fused score.

    Queries are processed in parts, so that memory does not grow with the number of runs.
    """
    check_number("infer_judgements", "depth", depth, least=1, whole=True)
    checked = {name: check_run(run, name) for name, run in runs.items()}
    for name, run in checked.items():
        check_overlap(run, qrels, f"run {name!r}")
    names, frames = [f"run {name!r}" for name in checked], list(checked.values())
    parts = [_pooled_part(dict(zip(names, runs)), own, depth) for own, *runs in parts_together(qrels, *frames)]
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _pooled_part(runs: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, depth: int) -> pd.DataFrame:
    """As :func:`_pooled`, for runs over judged queries; the keys are names for messages."""
    lists = [ranked(run, name) for name, run in runs.items()]
    rows = pd.concat([run[run["rank"] < depth] for run in lists], ignore_index=True)
    own, pairs = pd.factorize(pair_numbers(rows)[0])
    first = first_rows(own, len(pairs))
    # Sums of the same ranks may differ in the last bit, depending on the order of runs.
    fused = np.bincount(own, 1 / (FUSION + 1 + rows["rank"].to_numpy()), len(pairs)).round(12)
    rows = rows.drop(columns=["label", "score", "rank"], errors="ignore")
    known = rows.iloc[first].reset_index(drop=True)
    gaps = known.columns[known.isna().any()].tolist()
    if gaps:  # another run that has the pair may know more of it, such as its text
        known[gaps] = rows[gaps].groupby(own).first()
    return known.assign(score=fused).merge(qrels, on=["qid", "docno"], how="left")


def _asked(infer: pt.Transformer, pairs: pd.DataFrame) -> pd.DataFrame:
    """Labels of a transformer for pairs, in the order of the pairs."""
    if len(pairs) == 0:
        return pairs[["qid", "docno"]].assign(label=pd.Series(dtype="float64"))
    answer: pd.DataFrame = infer(pairs)
    missing = [c for c in ("qid", "docno", "label") if c not in answer.columns]
    if missing:
        raise InputError(
            f"infer_judgements: infer returned no column {missing[0]!r}; it must return its rows with a 'label', for example "
            f"scorer >> pt.apply.label(lambda row: row['score'])"
        )
    answer = with_string_ids(answer, "infer_judgements, infer")[["qid", "docno", "label"]].drop_duplicates(["qid", "docno"])
    found = pairs[["qid", "docno"]].merge(answer, on=["qid", "docno"], how="left")
    labels = pd.to_numeric(found["label"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    bad = np.flatnonzero(~(np.isfinite(labels) & (labels >= 0)))
    if len(bad):
        row = found.iloc[int(bad[0])]
        raise InputError(
            f"infer_judgements: infer gave {len(bad)} of {len(found)} pairs no label that is a number of at least 0, first query "
            f"{row['qid']!r}, document {row['docno']!r}; label every row that it is given"
        )
    return found.assign(label=labels)
