"""Linguistic bias in an audit: whether quality depends on how a query is worded.

Null hypothesis of the primary test: quality does not depend on the complexity of a query's wording, given the number of its
relevant documents and, if known, its type (partial slope, permutation test). For a ranker, the effectiveness of its candidates is
a control too, in the order before the ranker and in the best order: most differences between queries exist before the ranker, and
it cannot find relevant documents that are not among its candidates.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.bias import Examined, Figure, Finding, JointBias, p_text
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.evaluation import deepest, judged_qids, per_query
from pyterrier_debias.core.frames import highest_grades, pair_numbers, with_string_ids
from pyterrier_debias.core.retrieval import unanswered_notes
from pyterrier_debias.core.systems import Context, System, named_where_it_raises
from pyterrier_debias.core.text import as_name, regex_word
from pyterrier_debias.core.variants import query_forms
from pyterrier_debias.linguistic.formulas.slope import Slope, design, partial_slope
from pyterrier_debias.linguistic.measures.disparity import (
    EVERYONE,
    LENGTH,
    RELEVANT,
    Disparity,
    DisparityResult,
    log_relevant,
    query_length,
    with_complexity,
)
from pyterrier_debias.linguistic.measures.wording import (
    AS_IT_COMES,
    ORIGINAL,
    WordingResult,
    WordingSensitivity,
    asking_again_reason,
)

if TYPE_CHECKING:
    from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

_MAIN = "nDCG@10"
_SLOPE, _SHARE, _RHO, _GAP = (f"{what} of {_MAIN}" for what in ("slope", "share", "rho", "gap"))
#: The column of the topics that the audit uses as complexity of the wording, if there is one.
COMPLEXITY = "complexity"
#: The contrast of the slope given the quality of the candidates, as in gender bias.
_ADDED = "complexity, given the candidates"
_RESAMPLES = 9_999
#: The indices used here: all of Lu's, which follow planted wording more closely than those over words only.
INDEX_SET = "lu"
#: If a smaller share of the letters of all queries is in ASCII, they are in another script. English queries have few other
#: letters, and in languages with marked letters, such as Vietnamese, most are in ASCII, too.
_FEWEST_LATIN = 0.5
#: Queries are in another language if their words are this many powers of ten more frequent in it than in English, on average. In
#: keyword queries such as NFCorpus's, all other languages lie at least 0.2 below English, from ten words on; in French, German or
#: Turkish queries, these languages lie at least 2 above it.
_MORE_FREQUENT = 1.0
#: In English queries words are mostly more frequent than this (powers of ten), so other languages need no look.
_FREQUENT_ENGLISH = -4.75
_UNSEEN = 1e-7
_FEWEST_WORDS = 20
_QUERIES_READ = 1_000
_EVERY_CAUSE = "all spread between queries, whatever its cause"
#: The unit of a slope, in sentences.
_STEP = "for each standard deviation of a query's complexity"


def complexity_stage() -> LinguisticComplexity:
    """The stage that measures complexity in an audit."""
    from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity

    return LinguisticComplexity(INDEX_SET)


def measured_complexity(topics: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Add complexity to topics, unless they have it.

    Args:
        topics: ``qid``, and ``query`` or ``complexity``.

    Returns:
        The topics with ``complexity``; and a description of how it was measured.
    """
    if COMPLEXITY in topics.columns:
        return topics.assign(**{COMPLEXITY: pd.to_numeric(topics[COMPLEXITY])}), "complexity from the topics"
    stage = complexity_stage()
    how = f"complexity by LinguisticComplexity({INDEX_SET!r}) ({stage.tools}), normalised over these queries"
    return with_complexity(topics, stage), how


def prepared_topics(topics: pd.DataFrame, qrels: pd.DataFrame) -> tuple[pd.DataFrame, list[str], str]:
    """Add complexity and controls to the judged topics.

    Args:
        topics: ``qid``, ``query``; if there are columns ``type`` (names, or codes for them) and ``complexity``, the former is a
            control, and the latter is used as complexity.
        qrels: Judgements.

    Returns:
        The judged topics with ``complexity``, ``relevant`` and ``length``; the names of the controls of the primary test; and a
        description of how complexity was measured.
    """
    topics = with_string_ids(topics, "linguistic bias, topics").drop_duplicates("qid")
    topics = topics[topics["qid"].isin(judged_qids(topics, qrels))]
    topics, how = measured_complexity(topics)
    topics = topics.assign(**{RELEVANT: log_relevant(topics, qrels)})
    if "query" in topics.columns:
        topics = topics.assign(**{LENGTH: query_length(topics["query"])})
    controls = [RELEVANT] if topics[RELEVANT].nunique() > 1 else []
    if "type" in topics.columns:
        topics = topics.assign(type=topics["type"].map(as_name, na_action="ignore"))  # codes stand for names, not for amounts
        if topics["type"].nunique() > 1:
            controls.append("type")
    return topics, controls, how


def of_candidates(candidates: pd.DataFrame, qrels: pd.DataFrame, qids: Sequence[str]) -> np.ndarray:
    """What candidates leave a ranker: their nDCG@10 as they are ordered before it, and in the best order.

    Args:
        candidates: Result frame.
        qrels: Judgements.
        qids: The queries to evaluate, all of them judged.

    Returns:
        Shape [n, 2]. The second number is the highest nDCG@10 that an order of the candidates can have; it is below 1 if relevant
        documents are not among them.
    """
    relevant = highest_grades(qrels, "linguistic bias")
    relevant = relevant[relevant["label"] > 0]
    judged, found = pair_numbers(relevant, candidates)
    best = relevant[np.isin(judged, found)]
    orders = candidates, best.assign(score=best["label"].astype(float))
    return np.column_stack([per_query(order, qrels, [_MAIN], qids)[_MAIN] for order in orders])


def ranker_slope(
    values: np.ndarray,
    candidates: np.ndarray,
    topics: pd.DataFrame,
    controls: list[str],
    *,
    resamples: int = 9_999,
    seed: int = 0,
) -> Slope:
    """Run the primary test of a ranker: the slope of its quality over complexity, given its candidates.

    Args:
        values: Shape [n]: the ranker's quality.
        candidates: Shape [n, 2]: see :func:`of_candidates`.
        topics: n rows with ``complexity`` and the controls; see :func:`prepared_topics`.
        controls: Names of further controls.
        resamples: Number of permutations.
        seed: Seed of the permutations.

    Returns:
        The slope; all 0 with p = 1 for a ranker that changes no order.
    """
    given = np.column_stack([design(topics, controls), candidates])
    return partial_slope(values, topics[COMPLEXITY].to_numpy(dtype=float), given, resamples=resamples, seed=seed)


class LinguisticBias(JointBias):
    """Examines whether quality depends on how a query is worded, by slopes over complexity and by reworded queries.

    If topics have a column ``complexity``, it is used; otherwise it is computed by ``LinguisticComplexity('lu')``. Source: Cheng
    and Amiri 2025; see :class:`~pyterrier_debias.Disparity` and :class:`~pyterrier_debias.WordingSensitivity`.

    Queries that are not English, by their script or by the frequency of their words, are not reworded, and their complexity is
    not computed: the topics must have it.

    When not to use it: on queries in languages other than English.
    """

    name = "linguistic"

    def needs(self, system: System | None, dataset: Any) -> str | None:
        """See :meth:`Bias.needs`: the topics' complexity, or queries and a list of frequent words."""
        topics = provided(dataset, "get_topics")
        if topics is not None and COMPLEXITY in topics.columns:
            known = pd.to_numeric(topics[COMPLEXITY], errors="coerce")
            words = topics[COMPLEXITY][known.isna() & topics[COMPLEXITY].notna()]
            if len(words):
                return (
                    f"the topics' column 'complexity' must hold numbers, but holds {words.iloc[0]!r}; map it, or leave it out"
                )
            if known.isna().all():
                return "the topics' column 'complexity' is empty; fill it, or leave it out, so that it is computed"
        if topics is not None and "query" not in topics.columns and COMPLEXITY not in topics.columns:
            return "the topics have no column 'query', so nothing is known about their wording"
        if importlib.util.find_spec("wordfreq") is None and (topics is None or COMPLEXITY not in topics.columns):
            return (
                "complexity needs a list of frequent words: pip install 'pyterrier-debias[linguistic]', or give the topics a "
                "column 'complexity'"
            )
        foreign = None if topics is None or COMPLEXITY in topics.columns else _not_english(topics)
        if foreign is not None:
            return (
                f"its indices and rewrites are for English, and {foreign}; give the topics a column 'complexity' of indices for "
                f"their language"
            )
        return None

    def measures(self, context: Context) -> tuple[list[Any], dict[str, str]]:
        """See :meth:`Bias.measures`: spread; slope, gap and worst third if all judged queries have a complexity."""
        from pyterrier_debias.linguistic.measures.over_queries import OverQueries

        second = {
            f"{_SLOPE} on complexity, with controls": "Disparity(...).evaluate(...)",
            f"{_MAIN}, the same need in other words": (
                "WordingSensitivity(...).evaluate(...), or RewriteQueries(...) before a ranker"
            ),
        }
        found = [OverQueries(_MAIN, "sd"), OverQueries(_MAIN, "cv")]
        reason = self.needs(None, context.asked)
        if reason is None:
            topics, _, _ = prepared_topics(context.topics, context.qrels)
            complexity = topics[["qid", COMPLEXITY]]
            unknown = set(context.qrels["qid"]) - set(topics["qid"])
            if complexity[COMPLEXITY].notna().all() and not unknown and complexity[COMPLEXITY].nunique() > 1:
                # There is only one complexity here, so names need not identify it.
                own = [OverQueries(_MAIN, s, complexity, name=f"{s}({_MAIN})") for s in ("slope", "gap", "worst")]
                return found + own, second
            reason = "some judged queries have no complexity, or all have the same"
        return found, {f"slope, gap and worst third of {_MAIN} by complexity": reason, **second}

    def compute(self, context: Context) -> Examined:
        """See :meth:`JointBias.compute`."""
        return _Examined.of(self, context)


@dataclass(frozen=True, eq=False)
class _Examined:
    """The results for all systems of an audit.

    Attributes:
        bias: The bias that makes the findings.
        context: The audit.
        found: The result of Disparity, with the controls of the primary test.
        beyond: The result with the length of queries as a further control; None if queries are not known.
        added: For each ranker the slope given its candidates, and the queries over which it was computed.
        reworded: For each system the result with reworded queries.
        unasked: For each other system the reason why it could not be asked again.
        how: How complexity was measured.
        controls: The controls of the primary test, in words; empty if there are none.
    """

    bias: LinguisticBias
    context: Context
    found: DisparityResult
    beyond: DisparityResult | None
    added: dict[str, tuple[Slope, pd.Index]]
    reworded: dict[str, WordingResult]
    unasked: dict[str, str]
    how: str
    controls: str

    @classmethod
    def of(cls, bias: LinguisticBias, context: Context) -> _Examined:
        qrels = context.qrels
        topics, controls, how = prepared_topics(context.topics, qrels)
        depth, qids = deepest([_MAIN]), list(topics["qid"])
        runs = {system.name: context.results(system, depth=depth) for system in context.systems}
        values = [per_query(run, qrels, [_MAIN], qids).reset_index().assign(name=name) for name, run in runs.items()]
        values = pd.concat(values, ignore_index=True)
        options: dict[str, Any] = {"measures": [_MAIN], "resamples": _RESAMPLES, "seed": context.seed}
        found = Disparity(controls=controls, **options).evaluate(values, topics)
        beyond = None
        if LENGTH in topics.columns:
            beyond = Disparity(controls=[*controls, LENGTH], **options).evaluate(values, topics)
        added, reworded, unasked = {}, {}, {}
        for system in context.systems:
            if system.ranker is not None:
                own = values[values["name"] == system.name].set_index("qid")[_MAIN]
                added[system.name] = cls._given_candidates(system, own, context, topics, controls)
            reason = _unasked_reason(system, context, topics)
            if reason is None:
                reworded[system.name] = context.once("rewordings", system, partial(cls._reword, system, context, topics))
            else:
                unasked[system.name] = reason
        words = {RELEVANT: "the number of relevant documents (logarithm)", "type": "the type of the query"}
        given = " and ".join(words[control] for control in controls)
        return cls(bias, context, found, beyond, added, reworded, unasked, how, given)

    @staticmethod
    def _given_candidates(
        system: System, values: pd.Series, context: Context, topics: pd.DataFrame, controls: list[str]
    ) -> tuple[Slope, pd.Index]:
        # Permutations depend on the order of the queries.
        topics = topics.dropna(subset=[COMPLEXITY]).sort_values("qid")
        first, qids = context.first_alike(system), list(topics["qid"])

        def quality() -> np.ndarray:
            return of_candidates(context.candidates(first), context.qrels, qids)

        given, own = context.once("quality of candidates", first, quality), values.loc[qids].to_numpy()
        found = ranker_slope(own, given, topics, controls, resamples=_RESAMPLES, seed=context.seed)
        return found, pd.Index(topics["qid"], name="qid")

    @staticmethod
    def _reword(system: System, context: Context, topics: pd.DataFrame) -> WordingResult:
        probe = WordingSensitivity(
            named_where_it_raises(system),
            measures=[_MAIN],
            depth=context.depth,
            resamples=_RESAMPLES,
            seed=context.seed,
            verbose=context.verbose,
        )
        inp = topics if system.ranker is None else context.candidates(system)
        return probe.figures(inp, context.qrels, topics=topics)

    # ------------------------------------------------------------------------------------------- findings

    def findings(self) -> Iterator[Finding]:
        """For each system spread, slopes over complexity, thirds, and the effect of rewording."""
        for system in self.context.systems:
            yield from self._spread(system.name)
            yield from self._slopes(system.name)
            yield from self._groups(system.name)
            yield from self._reworded(system.name)

    def _values(self, name: str, column: str = "value", of: DisparityResult | None = None) -> pd.Series:
        own = (of or self.found).per_query
        return own[own["name"] == name].set_index("qid")[column]

    def _spread(self, name: str) -> Iterator[Finding]:
        table = self.found.table
        row = table[(table["name"] == name) & (table["group"] == EVERYONE)].iloc[0]
        text = (
            f"{_MAIN} has mean {row['mean']:.3f} [{row['mean_low']:.3f}, {row['mean_high']:.3f}], standard deviation "
            f"{row['sd']:.3f} [{row['sd_low']:.3f}, {row['sd_high']:.3f}] and coefficient of variation {row['cv']:.2f} "
            f"[{row['cv_low']:.2f}, {row['cv_high']:.2f}] over {row['n']} queries; the last two measure {_EVERY_CAUSE}."
        )
        if np.isnan(row["cv"]):
            text = f"{_MAIN} is 0 for all {row['n']} queries, so it has no coefficient of variation."
        text += "".join(f" {note}" for note in self.found.notes if "without a complexity" in note)
        if name in self.unasked:
            text += f" The queries are not asked in other words: {self.unasked[name]}."
        for statistic, measure in (("mean", _MAIN), ("sd", f"sigma of {_MAIN}"), ("cv", f"c_v of {_MAIN}")):
            convention = "" if statistic == "mean" else f"over queries, ddof 0; {_EVERY_CAUSE}"
            ends: dict[str, Any] = {"low": row[f"{statistic}_low"], "high": row[f"{statistic}_high"], "n": int(row["n"])}
            values = self._values(name) if statistic == "mean" else None
            ends |= {"convention": convention, "values": values}
            yield self.bias.finding(name, measure, "all queries", row[statistic], text, **ends)

    def _slopes(self, name: str) -> Iterator[Finding]:
        slope, share = self.found.test("slope", name), self.found.test("share", name)
        notes = "".join(f" {note}" for note in self.found.notes)
        given = f", given {self.controls}" if self.controls else ""
        test = (
            f"for one standard deviation of complexity{given}; p by studentised permutation and by flipping signs, whichever is "
            f"larger; {self.how}"
        )
        if np.isnan(slope["value"]):
            text = f"nothing can be said about complexity.{notes}"  # the notes say why
            yield self.bias.finding(name, _SLOPE, "complexity", np.nan, text, convention=test, n=slope["n"])
            return
        influence = self._values(name, "influence")
        text = (
            f"{_direction(slope)} {_STEP}{given} [{slope['low']:+.3f}, {slope['high']:+.3f}], over {slope['n']} queries "
            f"({_tested(slope['p'], influence)}); wording explains {share['value']:.1%} of the variance between queries, chance "
            f"alone {share['noise_floor']:.1%}.{notes}"
        )
        added = self.added.get(name)
        primary = added is None or np.isnan(added[0].slope)
        ends = {"low": slope["low"], "high": slope["high"], "n": slope["n"], "p": slope["p"], "primary": primary}
        yield self.bias.finding(name, _SLOPE, "complexity", slope["value"], text, convention=test, values=influence, **ends)
        ends = {"low": share["low"], "high": share["high"], "n": share["n"], "null_value": share["noise_floor"]}
        ends["convention"] = f"share of variance: gain of R squared{given}; interval of the slope; {self.how}"
        yield self.bias.finding(name, _SHARE, "complexity", share["value"], text, **ends)
        if added is not None and not primary:
            yield self._ranker_slope(name, *added)
        if self.beyond is None:
            return
        more = self.beyond.test("slope", name)
        if np.isnan(more["value"]):
            return
        values = self._values(name, "influence", self.beyond)
        text = (
            f"given the length of the query too, {_direction(more)} {_STEP} "
            f"[{more['low']:+.3f}, {more['high']:+.3f}] ({_tested(more['p'], values)}); length is itself a part of complexity."
        )
        ends = {"low": more["low"], "high": more["high"], "n": more["n"], "p": more["p"]}
        and_length = f"{given}, {'and' if given else 'given'} the number of words"
        convention = f"for one standard deviation of complexity{and_length}; {self.how}"
        ends |= {"convention": convention, "values": values}
        yield self.bias.finding(name, _SLOPE, "beyond length", more["value"], text, **ends)

    def _ranker_slope(self, name: str, slope: Slope, qids: pd.Index) -> Finding:
        found = slope.per_sd
        influence = pd.Series(slope.influence * slope.sd, index=qids)
        text = (
            f"given its candidates, {_direction({'value': found.estimate})} {_STEP} [{found.low:+.3f}, {found.high:+.3f}], over "
            f"{found.n} queries ({_tested(slope.p, influence)}). {slope.caution}"
        ).rstrip()
        controls = f", and {self.controls}" if self.controls else ""
        convention = (
            f"for one standard deviation of complexity, given {_MAIN} of the candidates as they were ordered before the ranker, "
            f"and in the best order{controls}; p by studentised permutation and by flipping signs, whichever is larger; "
            f"{self.how}"
        )
        ends: dict[str, Any] = {"low": found.low, "high": found.high, "n": found.n, "p": slope.p, "primary": True}
        return self.bias.finding(name, _SLOPE, _ADDED, found.estimate, text, convention=convention, values=influence, **ends)

    def _groups(self, name: str) -> Iterator[Finding]:
        rho = self.found.test("rank correlation", name)
        if np.isfinite(rho["value"]):
            text = (
                f"the rank correlation of {_MAIN} and complexity is {rho['value']:+.2f} [{rho['low']:+.2f}, {rho['high']:+.2f}] "
                f"(p = {p_text(rho['p'])})."
            )
            ends = {"low": rho["low"], "high": rho["high"], "n": rho["n"], "p": rho["p"]}
            ends["convention"] = f"Spearman's, no controls; p by permutation; {self.how}"
            yield self.bias.finding(name, _RHO, "complexity", rho["value"], text, **ends)
        table = self.found.table
        rows = table[(table["name"] == name) & (table["group"] != EVERYONE)].to_dict("records")
        if len(rows) < 2:
            return
        means = ", ".join(f"{row['mean']:.3f} on {row['group']}" for row in rows)
        kruskal, gap = self.found.test("Kruskal-Wallis", name), self.found.test("gap", name)
        worst = self.found.test("worst group", name)["group"]
        text = (
            f"{_MAIN} is {means} queries; the gap between the best group and the worst ({worst}) is {gap['value']:.3f}, chance "
            f"alone gives {gap['noise_floor']:.3f} (Kruskal-Wallis: p = {p_text(kruskal['p'])})."
        )
        own, group = self._values(name), self._values(name, "group")
        for row in rows:
            ends = {"low": row["mean_low"], "high": row["mean_high"], "n": int(row["n"])}
            ends["convention"] = f"thirds of the queries by complexity, equal values in one third; {self.how}"
            yield self.bias.finding(name, _MAIN, row["group"], row["mean"], text, values=own[group == row["group"]], **ends)
        ends = {"p": kruskal["p"], "null_value": gap["noise_floor"], "n": gap["n"]}
        ends["convention"] = f"best third minus worst; p of the Kruskal-Wallis test over the thirds, by permutation; {self.how}"
        yield self.bias.finding(name, _GAP, "best - worst", gap["value"], text, **ends)

    def _reworded(self, name: str) -> Iterator[Finding]:
        if name not in self.reworded:
            return
        result = self.reworded[name]
        own = result.per_query.set_index("qid")
        without = {arm: dict(zip(rows["qid"], rows["reason"])) for arm, rows in result.unanswered.groupby("arm")}
        yield from self._as_it_comes(name, result, own[ORIGINAL], without)
        for row in result.table.to_dict("records"):
            arm = row["comparison"].split(" - ")[0]
            change = own[arm] - own["original"]
            what = f"as {arm.replace('_', ' ')}"
            if change.any():
                text = (
                    f"{_MAIN} changes from {row['before']:.3f} to {row['after']:.3f} when the same needs are asked {what}: "
                    f"{row['difference']:+.3f} [{row['low']:+.3f}, {row['high']:+.3f}] over {row['n']} queries, of which "
                    f"{row['changed']} are reworded (by {row['words']:+.1f} words on average) and {int((change != 0).sum())} "
                    f"change in value (p = {p_text(row['p'])})."
                )
            elif not row["changed"]:
                text = f"asked {what}, all {row['n']} queries keep their wording, so nothing is tested."
            else:
                text = (
                    f"{_MAIN} does not change in any query when the same needs are asked {what}, so nothing is tested; "
                    f"{row['changed']} of {row['n']} queries are reworded."
                )
                if arm == "noun_phrases":
                    text += (
                        " This wording only repeats words, and some systems, such as PISA's retrievers, ignore how often a word "
                        "occurs in a query."
                    )
            number, different = result.without_phrases.get(arm, (0, 0))
            if number:
                text += f" No noun phrase was found in {number} of {different} different queries; these are treated as a whole."
            text += "".join(f" {note}" for note in unanswered_notes(f"Asked {what}", len(own), without.get(arm, {})))
            ends = {"low": row["low"], "high": row["high"], "p": row["p"], "n": row["n"]}
            convention = f"paired by query; p by randomisation; the interval inverts this test; {result.convention}"
            ends |= {"convention": convention, "values": change}
            yield self.bias.finding(name, _MAIN, row["comparison"], row["difference"], text, **ends)

    def _as_it_comes(
        self, name: str, result: WordingResult, compared: pd.Series, without: dict[str, dict[str, str]]
    ) -> Iterator[Finding]:
        """A finding on the original queries as they come, if wordings are compared in another form; not tested."""
        own = result.as_it_comes.set_index("qid")["value"].astype(float)
        if own.empty:  # the wordings are compared with the queries as they come
            return
        text = (
            f"{_MAIN} is {own.mean():.3f} when the queries are asked as they come, and {compared.mean():.3f} in the form in "
            f"which the wordings are compared: as words alone if Terrier reads the queries, since it interprets signs, and in "
            f"the topic's words if a stage wrote a query of its own."
        )
        for arm, what in ((AS_IT_COMES, "As they come"), (ORIGINAL, "As they are compared")):
            text += "".join(f" {note}" for note in unanswered_notes(what, len(own), without.get(arm, {})))
        convention = "the original queries, unchanged; for comparison, not tested"
        yield self.bias.finding(name, _MAIN, AS_IT_COMES, own.mean(), text, convention=convention, values=own)

    # ------------------------------------------------------------------------------------------- figures

    def figures(self) -> list[Figure]:
        """Quality against complexity, by thirds, and for reworded queries."""
        n = self.found.per_query["qid"].nunique()
        figures = [
            Figure(
                "curve",
                f"Mean {_MAIN} against the complexity of queries: local lines with pointwise 95 % bootstrap bands, {n} queries.",
                partial(self.found.plot_curve, order=self.context.names),
            ),
            Figure(
                "thirds",
                f"Mean {_MAIN} of thirds of {n} queries by complexity, with 95 % intervals. The thirds hold different queries.",
                partial(self.found.plot_groups, order=self.context.names),
            ),
        ]
        if self.reworded:
            figures.append(
                Figure(
                    "rewrites",
                    f"Change of {_MAIN} when the same needs are asked in other words, with 95 % intervals of the "
                    f"paired differences over {n} queries.",
                    self._draw_rewrites,
                )
            )
        return figures

    def _draw_rewrites(self, axes: Any) -> None:
        from pyterrier_debias.core import plots

        with plots.style():
            axes.axhline(0, color=plots.GREY, linewidth=1)
            colours = plots.colours(self.context.names)
            for number, system in enumerate(self.context.systems):
                if system.name not in self.reworded:
                    continue
                table = self.reworded[system.name].table
                place = np.arange(len(table)) + 0.5 * ((number + 0.5) / len(self.context.systems) - 0.5)
                ends = plots.ends(table["difference"], table["low"], table["high"])
                label = plots.legend_label(system.name)
                axes.errorbar(place, table["difference"], yerr=ends, fmt="o", color=colours[system.name], label=label)
            axes.set_xticks(range(len(table)), [c.split(" - ")[0].replace("_", " ") for c in table["comparison"]])
            axes.legend()
            n = self.found.per_query["qid"].nunique()
            plots.label_axes(axes, x="the query asked in other words", y=f"change of {_MAIN}", n=n)


def _unasked_reason(system: System, context: Context, topics: pd.DataFrame) -> str | None:
    """The reason why a system cannot be asked reworded queries; None if it can."""
    if "query" not in topics.columns:
        return "the queries are not known"
    foreign = _not_english(topics)
    if foreign is not None:
        return f"its rewrites are for English, and {foreign}"
    reason = asking_again_reason(system, topics)
    if reason is None and system.ranker is not None:
        forms = query_forms(context.candidates(system))
        if forms:
            return f"its ranker may read {forms[0]!r}, which was made from the original query"
    return reason


def _not_english(topics: pd.DataFrame) -> str | None:
    """The reason why queries cannot be English, by their letters or their words; None if they can.

    Example:
        >>> _not_english(pd.DataFrame({"query": ["निगम क्या है", "PDF क्या है"]}))
        'only 25% of the letters of the queries are Latin'
    """
    queries = tuple(map(str, topics["query"].iloc[:_QUERIES_READ]))
    letters = [letter for letter in "".join(queries) if letter.isalpha()]
    share = sum(map(str.isascii, letters)) / len(letters) if letters else 1.0
    if share < _FEWEST_LATIN:
        return f"only {share:.0%} of the letters of the queries are Latin"
    language = _other_language(queries)
    return None if language is None else f"the words of the queries are more frequent in the language {language!r}"


@lru_cache(maxsize=8)
def _other_language(queries: tuple[str, ...]) -> str | None:
    """The language of queries that are not English; None if they are too few to tell, or the package wordfreq is missing.

    Example:
        >>> _other_language(("was ist die Hauptstadt von Frankreich", "wie lange kocht man ein Ei", "Umzug nach Köln") * 2)
        'de'
    """
    words = [word for query in queries for word in regex_word(query)]
    if len(words) < _FEWEST_WORDS or importlib.util.find_spec("wordfreq") is None:
        return None
    from wordfreq import available_languages, get_frequency_dict, get_frequency_list

    def frequency(language: str) -> float:
        known = get_frequency_dict(language, "small")
        return float(np.mean([math.log10(known.get(word, _UNSEEN)) for word in words]))

    english = frequency("en")
    if english >= _FREQUENT_ENGLISH:
        return None
    found = []
    for language in available_languages("small"):
        found.append((frequency(language), language))
        for cached in (get_frequency_dict, get_frequency_list):  # all languages together have 200 MB
            cached.cache_clear()
    highest, language = max(found)
    return language if highest >= english + _MORE_FREQUENT else None


def _tested(p: float, influence: pd.Series) -> str:
    """The p of a slope in words; a slope to which no query contributes is not tested, see :meth:`Bias.finding`."""
    return f"p = {p_text(p)}" if influence.any() else "not tested, since no query contributes to it"


def _direction(test: dict[str, Any]) -> str:
    """A slope in words; one that is printed as 0 neither falls nor rises.

    Example:
        >>> _direction({"value": -0.02}), _direction({"value": -0.0002})
        ('nDCG@10 falls by 0.020', 'nDCG@10 changes by less than 0.0005')
    """
    if abs(test["value"]) < 0.0005:
        return f"{_MAIN} changes by less than 0.0005"
    verb = "falls" if test["value"] < 0 else "rises"
    return f"{_MAIN} {verb} by {abs(test['value']):.3f}"
