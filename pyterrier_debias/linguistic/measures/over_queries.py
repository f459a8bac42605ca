"""OverQueries: the statistics of Disparity as measures for ``pt.Experiment`` and ir_measures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
from ir_measures import Metric
from ir_measures.measures import Measure, ParamInfo

from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.evaluation import evaluated_qids, parse_measures, per_query, refuse_batches
from pyterrier_debias.core.frames import numbers, reads_frames, with_string_ids
from pyterrier_debias.core.text import content_mark
from pyterrier_debias.linguistic.formulas.slope import partial_slope
from pyterrier_debias.linguistic.formulas.spread import bin_numbers, influence, inner_edges

#: Statistics that need the complexity of queries.
_BY_COMPLEXITY = ("slope", "worst", "gap")
#: All statistics.
STATISTICS = ("sd", "cv", *_BY_COMPLEXITY)


class OverQueries(Measure):
    """A measure for ``pt.Experiment`` and ir_measures: how another measure varies over queries, or with their complexity.

    - ``'sd'`` and ``'cv'``: standard deviation (ddof 0), and standard deviation divided by mean;
    - ``'slope'``: the slope over complexity, for one standard deviation of complexity, without controls;
    - ``'worst'``: the mean of the worst third, that is, of the third of the queries, by complexity, with the lowest mean;
    - ``'gap'``: the mean of the best third less that of the worst.

    Evaluation averages the values of queries, so each query gets its *influence value*: the statistic plus the query's
    contribution to it. The mean of these values is exactly the statistic, so the columns of ``pt.Experiment`` are right. So are
    tests against its ``baseline``: the paired t-test of influence values is the delta method's test of a difference between the
    statistics. The value of a single query has no meaning of its own.

    Measures with equal names are equal, and an experiment has one column per name. The names of the last three statistics
    therefore identify the complexity that they use, by its number of queries and a hash:
    ``slope(nDCG@10,complexity=43:9f2c81d0)``. Choose another name with ``name=``.

    Raises:
        InputError: During evaluation, if a judged query has no complexity; in ``pt.Experiment(..., batch_size=n)``, which passes
            only a few queries at a time.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> from ir_measures import RR
        >>> run = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "a"], "score": [2.0, 1.0, 1.0]})
        >>> qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["b", "a"], "label": 1})
        >>> pt.Evaluate(run, qrels, [RR @ 10, OverQueries(RR @ 10, "sd"), OverQueries(RR @ 10, "cv")])
        {'RR@10': 0.75, 'sd(RR@10)': 0.25, 'cv(RR@10)': 0.3333333333333333}

    When not to use it: to search for the best parameters (a ranker that is equally bad everywhere has a small spread), or
    if several datasets or controls matter: use :class:`~pyterrier_debias.linguistic.measures.disparity.Disparity`.
    """

    __name__ = "OverQueries"
    NAME = __name__
    PRETTY_NAME = "A statistic over queries of another measure"
    SHORT_DESC = "Standard deviation, coefficient of variation, slope on complexity, worst third or gap of another measure."
    SUPPORTED_PARAMS = {  # noqa: RUF012
        "of": ParamInfo(required=True, desc="the other measure"),
        "statistic": ParamInfo(dtype=str, required=True, desc="sd, cv, slope, worst or gap"),
        "complexity": ParamInfo(required=False, desc="frame qid, complexity"),
        "name": ParamInfo(required=False, desc="what tables call the measure"),
    }

    @reads_frames
    def __init__(self, of: Any, statistic: str, complexity: pd.DataFrame | None = None, *, name: str | None = None):
        """
        Args:
            of: The other measure, as an ir_measures object or by name.
            statistic: ``'sd'``, ``'cv'``, ``'slope'``, ``'worst'`` or ``'gap'``.
            complexity: A frame with ``qid`` and ``complexity``, such as the output of ``LinguisticComplexity()`` for topics.
                Needed for the last three statistics.
            name: The name of the measure in tables; None for the one described above.

        Raises:
            InputError: For an unknown measure or statistic, if complexity is needed and not given, or if a query has several.
        """
        check_choice("OverQueries", "statistic", statistic, STATISTICS)
        if statistic in _BY_COMPLEXITY and (complexity is None or not {"qid", "complexity"} <= set(complexity.columns)):
            raise InputError(f"OverQueries: {statistic!r} needs complexity, a frame with the columns qid and complexity")
        super().__init__(of=parse_measures([of])[0], statistic=statistic, complexity=complexity, name=name)
        by = f",complexity={_mark(complexity)}" if statistic in _BY_COMPLEXITY else ""
        self._name = name or f"{statistic}({self.params['of']}{by})"

    def __repr__(self) -> str:
        """The name; by default made of the statistic, the measure, and the complexity."""
        return self._name

    def runtime_impl(self, qrels: pd.DataFrame, run: pd.DataFrame) -> Iterator[Metric]:
        """Compute the values of queries; called by ir_measures.

        Args:
            qrels: ``query_id``, ``doc_id``, ``relevance``.
            run: ``query_id``, ``doc_id``, ``score``.

        Yields:
            The influence value of each judged query; the other measure counts as 0 for a query without results.
        """
        refuse_batches(self)
        named = evaluated_qids(qrels, self)
        qrels = with_string_ids(qrels.rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"}), self)
        run = with_string_ids(run.rename(columns={"query_id": "qid", "doc_id": "docno"}), self)
        qids = sorted(named)
        of, statistic = self.params["of"], self.params["statistic"]
        values = per_query(run, qrels, [of], qids)[str(of)].to_numpy()
        complexity = self._complexity(qids) if statistic in _BY_COMPLEXITY else None
        for qid, value in zip(qids, influence_values(values, statistic, complexity)):
            yield Metric(named[qid], self, float(value))

    def _complexity(self, qids: list[str]) -> np.ndarray:
        given = with_string_ids(self.params["complexity"], self)
        known = dict(zip(given["qid"], numbers(given["complexity"], self).astype(float)))
        lacking = [qid for qid in qids if np.isnan(known.get(qid, np.nan))]
        if lacking:
            raise InputError(
                f"{self!r}: {len(lacking)} judged queries have no complexity, e.g. {lacking[0]!r}; give all of them one, or "
                f"leave them out of topics and judgements"
            )
        return np.array([known[qid] for qid in qids])


def _mark(complexity: pd.DataFrame) -> str:
    values = numbers(complexity["complexity"], "OverQueries").to_numpy(dtype=np.float64)
    known = pd.DataFrame({"qid": complexity["qid"].to_numpy(dtype=object), "complexity": values}).drop_duplicates()
    twice = known["qid"].duplicated()
    if twice.any():
        qid = known.loc[twice, "qid"].iloc[0]
        raise InputError(f"OverQueries: query {qid!r} has several complexities; keep one row per query")
    return content_mark(known)


def influence_values(values: np.ndarray, statistic: str, complexity: np.ndarray | None = None) -> np.ndarray:
    """Compute a value for each query such that their mean is the statistic; see :class:`OverQueries`.

    Args:
        values: Shape [n].
        statistic: ``'sd'``, ``'cv'``, ``'slope'``, ``'worst'`` or ``'gap'``.
        complexity: Shape [n], for the last three.

    Returns:
        Shape [n].

    Example:
        >>> values, complexity = np.array([0.9, 0.5, 0.4, 0.0]), np.array([1.0, 2.0, 2.0, 3.0])
        >>> [round(float(influence_values(values, s, complexity).mean()), 3) for s in ("slope", "worst", "gap")]
        [-0.318, 0.3, 0.6]
    """
    check_choice("influence_values", "statistic", statistic, STATISTICS)
    if statistic in ("sd", "cv"):
        return influence(values, statistic)
    x = cast(np.ndarray, complexity)  # which the others need
    if statistic == "slope":
        found = partial_slope(values, x, resamples=1)
        return found.influence * found.sd
    bins = bin_numbers(x, inner_edges(x, "tertile"))
    member = bins[:, None] == np.unique(bins)
    shares = member.mean(axis=0)
    means = values @ member / member.sum(axis=0)
    # Of bin b: m_b + 1[query in b] (y - m_b) / share_b, whose mean is m_b.
    own = means + member * (values[:, None] - means) / shares
    worst = own[:, np.argmin(means)]
    return worst if statistic == "worst" else own[:, np.argmax(means)] - worst
