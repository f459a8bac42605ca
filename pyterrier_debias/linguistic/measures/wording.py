"""WordingSensitivity: whether a system answers the same need equally well when it is worded differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.caches import check_caches
from pyterrier_debias.core.errors import InputError, check_number, one_line
from pyterrier_debias.core.evaluation import deepest, judged_input, parse_measures, per_query, value_range
from pyterrier_debias.core.frames import check_pairs, check_text, first_candidates, in_parts, ranked, reads_frames, top_of_lists
from pyterrier_debias.core.retrieval import answered, unanswered_queries
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.statistics import inverted_interval, randomisation_test
from pyterrier_debias.core.systems import System, check_run, probed_system, takes_topics
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.core.terrier import as_asked, tokenising
from pyterrier_debias.core.variants import query_forms, reworded
from pyterrier_debias.linguistic.data.analysers import Tagger, get_tagger, tool_name
from pyterrier_debias.linguistic.data.rewrites import REWRITES, TAGGED, check_rewrite, rewrite_name, rewritten_and_told
from pyterrier_debias.linguistic.formulas.slope import Slope, within_slope
from pyterrier_debias.linguistic.measures.disparity import query_length, with_complexity

ORIGINAL = "original"
#: The name of the original queries as they come, where wordings are compared in another form.
AS_IT_COMES = "original, as it comes"
#: The columns of the rankings for the wordings.
COLUMNS = ["qid", "docno", "score", "rank", "arm"]
_UNANSWERED = ["qid", "arm", "query", "reason"]
_TABLE = ["comparison", "measure", "before", "after", "difference", "low", "high", "p", "n", "changed", "words", "complexity"]


@dataclass(frozen=True, eq=False, repr=False)
class WordingResult:
    """The result of :meth:`WordingSensitivity.evaluate`.

    Attributes:
        table: One row per rewrite and measure: ``comparison`` (such as ``keywords - original``), ``measure``, ``before`` and
            ``after`` (means over queries), ``difference``, ``p`` (paired randomisation) with the interval ``low`` and ``high``
            (from inverting this test), ``n`` queries, ``changed`` (queries whose wording the rewrite changed), ``words`` (the
            mean change in the number of words), and ``complexity``: the mean change of complexity, in standard deviations of the
            original queries' complexity.
        slopes: For each measure the :class:`~pyterrier_debias.linguistic.formulas.slope.Slope` of effectiveness over complexity
            *within* needs, over all wordings.
        per_query: One row per query and measure: ``qid``, ``measure``, and one column per wording, the original first.
        wordings: One row per query and wording: ``qid``, ``arm``, ``query``, ``complexity``.
        rankings: The rankings that :meth:`WordingSensitivity.transform` returns.
        convention: The options under which all this was computed.
        as_it_comes: Effectiveness on the original queries exactly as they come (``qid``, ``measure``, ``value``), if the wordings
            are compared with another form of them; otherwise empty. With Terrier, every wording is reduced to its words, so that
            one parser reads all of them, and a query that a stage wrote for Terrier is replaced by the topic's.
        unanswered: One row per query and wording without results, which counts as 0: ``qid``, ``arm`` (also
            :data:`AS_IT_COMES`), ``query``, ``reason`` (the error; empty if nothing was found).
        without_phrases: For each rewrite that looks for noun phrases: in how many of how many different queries it found none;
            it treats such a query as one phrase.
    """

    table: pd.DataFrame
    slopes: dict[str, Slope]
    per_query: pd.DataFrame
    wordings: pd.DataFrame
    rankings: pd.DataFrame
    convention: str
    as_it_comes: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["qid", "measure", "value"]))
    unanswered: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=_UNANSWERED))
    without_phrases: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The slope of the first measure in one line."""
        measure, slope = next(iter(self.slopes.items()))
        return f"<WordingResult: {slope.per_sd.estimate:+.4f} {measure} per sd of complexity, {slope.n} needs, p = {slope.p:.2g}>"


@dataclass(frozen=True)
class _Asked:
    """What a system returned for the wordings.

    Attributes:
        rankings: The rankings that :meth:`WordingSensitivity.transform` returns.
        as_it_comes: Its ranking for the original queries as they come, if they were also asked in another form; otherwise None.
        unanswered: As in :class:`WordingResult`.
        tokenised: Whether queries were reduced to their words for Terrier.
    """

    rankings: pd.DataFrame
    as_it_comes: pd.DataFrame | None
    unanswered: pd.DataFrame
    tokenised: bool


class WordingSensitivity(Stage):
    """Rewords queries, and measures how a system's effectiveness changes when the same needs are worded differently.

    Input: candidates (``qid``, ``query``, ``docno`` and the columns that the ranker reads), which the ranker orders for each
    wording; or, for a pipeline that begins with a retriever, topics (``qid``, ``query``). If a stage of the pipeline adds
    ``text``, the stages after it are the ranker: they get the same candidates for each wording, so that only the ranker is
    examined.

    Output: the rankings for each wording: ``qid``, ``docno``, ``score``, ``rank``, ``arm`` (``original``, and the names of the
    rewrites). :meth:`evaluate` compares them.

    With Terrier, every wording, including the original, is reduced to its words: a question mark or a colon in a query decides
    how Terrier reads it, which is not a property of the wording. ``evaluate(...).as_it_comes`` has the effectiveness on the
    unchanged original queries, and ``evaluate(...).unanswered`` lists the queries without results.

    Each need is compared with itself, so its difficulty plays no part. A slope over different queries
    (:class:`~pyterrier_debias.linguistic.measures.disparity.Disparity`) cannot guarantee that. It remains open whether users
    would ask the rewritten queries.

    Source: ours.

    Raises:
        InputError: For an option that is unknown or out of range, when it is first used.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> candidates = pd.DataFrame({
        ...     "qid": ["1", "1", "2", "2", "3", "3"], "query": ["tea"] * 2 + ["rain in may"] * 2 + ["old boats"] * 2,
        ...     "docno": ["d1", "d2"] * 3, "text": ["tea and rain in old boats", "may I ask"] * 3,
        ... })
        >>> overlap = pt.apply.doc_score(lambda row: float(len(set(row["query"].split()) & set(row["text"].split()))))
        >>> qrels = pd.DataFrame({"qid": ["1", "2", "3"], "docno": "d1", "label": 1})
        >>> length = pt.apply.generic(lambda topics: topics.assign(complexity=topics["query"].str.len().astype(float)))
        >>> probe = WordingSensitivity(overlap, rewrites=[lambda query: f"may I ask about {query}"], complexity=length)
        >>> probe.evaluate(candidates, qrels).table[["before", "after", "changed"]].round(2).values.tolist()[0]
        [1.0, 0.63, 3.0]

    When not to use it: for systems given as run files (they cannot be asked again), or to rank systems: a system that
    ignores the query is perfectly insensitive to its wording.
    """

    schematic: ClassVar[dict[str, Any]] = {
        "label": "WordingSensitivity", "help_url": None, "inner_pipelines_mode": "linked",
    }  # fmt: skip

    def __init__(
        self,
        pipeline: pt.Transformer | System,
        *,
        rewrites: Sequence[str | Callable[[str], str]] = tuple(REWRITES),
        complexity: pt.Transformer | None = None,
        dataset: Any = None,
        measures: Sequence[Any] = ("nDCG@10", "RR@10", "R@10"),
        tagger: str | Tagger = "auto",
        depth: int | None = 100,
        level: float = 0.95,
        resamples: int = 9_999,
        seed: int = 0,
        verbose: bool = False,
    ):
        """
        Args:
            pipeline: A ranker, a pipeline that begins with a retriever, or a :class:`pyterrier_debias.System`.
            rewrites: Names in :data:`~pyterrier_debias.linguistic.data.rewrites.REWRITES`, or functions from a query to a query.
            complexity: A stage that adds ``complexity`` to topics; None means ``LinguisticComplexity()``, over words only. It
                gets all wordings together, so that they share one scale. Look at the complexity of the rewrites before you
                interpret a slope: by words only, ``'noun_phrases'`` makes queries longer but *less* complex, since it repeats
                words; by the mean of all of Lu's indices, keywords are *more* complex, since each has content.
            dataset: The source of judgements, if they are not given, and of candidates for a ranker without a first stage.
            measures: ir_measures objects or names.
            tagger: How noun phrases are found; see :class:`~pyterrier_debias.linguistic.data.rewrites.RewriteQueries`.
            depth: Number of candidates that the ranker gets for each query, by rank; None for all.
            level: Coverage of the intervals.
            resamples: Number of permutations in each test; the intervals come from these too.
            seed: Seed of the permutations.
            verbose: Whether to show progress.
        """
        self.pipeline = pipeline
        self.rewrites = rewrites
        self.complexity = complexity
        self.dataset = dataset
        self.measures = measures
        self.tagger = tagger
        self.depth = depth
        self.level = level
        self.resamples = resamples
        self.seed = seed
        self.verbose = verbose

    @gathered()
    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rank for each wording; see the class.

        Raises:
            InputError: For an unknown option, a missing query, a system that cannot be asked again, or a ranker that returns
                scores that are not numbers.
        """
        given = self._mode(inp)
        self._check_options()
        check_text(inp, "query", self)
        if len(inp) == 0:
            return _typed(pd.DataFrame(columns=COLUMNS))
        return self._ask(inp, given, self._wordings(inp)[0]).rankings

    @reads_frames
    @gathered()
    def evaluate(
        self, inp: pd.DataFrame, qrels: pd.DataFrame | None = None, *, topics: pd.DataFrame | None = None
    ) -> WordingResult:
        """Rank for each wording, and compare each rewrite with the original.

        Args:
            inp: Candidates or topics, as for :meth:`transform`.
            qrels: Judgements ``qid``, ``docno``, ``label``; None for those of the dataset.
            topics: All topics. Needed if ``inp`` has candidates, and none for some topic: that topic counts as 0 if it is judged.

        Returns:
            The result.

        Raises:
            InputError: As in :meth:`transform`, and if no query is judged, or there are no judgements.
        """
        return self._evaluated(inp, qrels, topics, None)

    @reads_frames
    @gathered()
    def figures(
        self, inp: pd.DataFrame, qrels: pd.DataFrame | None = None, *, topics: pd.DataFrame | None = None
    ) -> WordingResult:
        """Compute the same figures as :meth:`evaluate` in less memory, by keeping only the top of each ranking.

        Args:
            inp: Candidates or topics, as for :meth:`evaluate`.
            qrels: Judgements, as for :meth:`evaluate`.
            topics: All topics, as for :meth:`evaluate`.

        Returns:
            The result. If all measures have a cut-off, its ``rankings`` end at the largest one, plus the last row of each list.
        """
        return self._evaluated(inp, qrels, topics, deepest(self.measures))

    def _evaluated(
        self, inp: pd.DataFrame, qrels: pd.DataFrame | None, topics: pd.DataFrame | None, kept: int | None
    ) -> WordingResult:
        given = self._mode(inp)
        self._check_options()
        check_text(inp, "query", self)
        if topics is not None:
            pt.validate.columns(topics, includes=["qid", "query"], context=self)
            check_text(topics, "query", self)
        inp, qrels, topics, qids = judged_input(self, inp, qrels, topics)
        wordings, without_phrases = self._wordings(pd.concat([topics[topics["qid"].isin(qids)], inp.drop_duplicates("qid")]))
        wordings = self._with_complexity(wordings)
        asked = self._ask(inp, given, wordings, kept)
        values = pd.concat(
            [per_query(run, qrels, self.measures, qids).assign(arm=arm) for arm, run in asked.rankings.groupby("arm", sort=False)]
        ).reset_index()
        values = values.melt(["qid", "arm"], var_name="measure").pivot(index=["measure", "qid"], columns="arm", values="value")
        values = values[self._arms].loc[[str(m) for m in parse_measures(self.measures)]]
        complexity = wordings.pivot(index="qid", columns="arm", values="complexity").loc[qids, self._arms]
        slopes: dict[str, Slope] = {}
        rows: list[dict[str, Any]] = []
        for measure, own in values.groupby(level="measure", sort=False):
            own = own.droplevel("measure").loc[qids]
            defined = complexity.notna().all(axis=1)
            tables = own[defined].to_numpy(), complexity[defined].to_numpy(dtype=float)
            slopes[measure] = within_slope(*tables, level=self.level, resamples=self.resamples, seed=self.seed)
            rows.extend(self._row(measure, arm, own, complexity, wordings) for arm in self._arms[1:])
        table = pd.DataFrame(rows, columns=_TABLE)
        flat = values.reset_index().rename_axis(columns=None)[["qid", "measure", *self._arms]]
        own = pd.DataFrame() if asked.as_it_comes is None else per_query(asked.as_it_comes, qrels, self.measures, qids)
        own = own.reset_index().melt("qid", var_name="measure") if len(own) else pd.DataFrame(columns=["qid", "measure", "value"])
        convention = self.convention + ("; queries in words for Terrier" if asked.tokenised else "")
        return WordingResult(
            table, slopes, flat, wordings, asked.rankings, convention, own, asked.unanswered, without_phrases
        )

    @property
    def convention(self) -> str:
        """The options under which figures are computed, and the tagger if a rewrite uses it, in words."""
        tagged = any(rewrite in TAGGED for rewrite in self.rewrites)
        tagger = f"; tagger {tool_name(get_tagger(self.tagger))}" if tagged else ""
        return f"rewrites {', '.join(self._arms[1:])}{tagger}; depth {'all' if self.depth is None else self.depth}"

    # ------------------------------------------------------------------------------------------------ what follows

    @property
    def _arms(self) -> list[str]:
        return [ORIGINAL, *map(rewrite_name, self.rewrites)]

    def _mode(self, inp: pd.DataFrame) -> str:
        with pt.validate.any(inp, context=self) as v:
            v.result_frame(extra_columns=["query"], mode="candidates")
            if takes_topics(self.pipeline, self.dataset, self):
                v.query_frame(extra_columns=["query"], mode="topics")
        return v.mode

    def _check_options(self) -> None:
        if isinstance(self.rewrites, str) or not self.rewrites:
            known = ", ".join(REWRITES)
            raise InputError(f"WordingSensitivity: rewrites={self.rewrites!r} must be a list of at least one of {known}")
        for rewrite in self.rewrites:
            check_rewrite(rewrite, "WordingSensitivity")
        if len(set(self._arms)) < len(self._arms):
            arms = ", ".join(self._arms)
            raise InputError(f"WordingSensitivity: two wordings have the same name ({arms}); give functions different names")
        if self.depth is not None:
            check_number("WordingSensitivity", "depth", self.depth, least=1, whole=True)
        check_number("WordingSensitivity", "resamples", self.resamples, least=1, whole=True)
        check_number("WordingSensitivity", "level", self.level, above=0, most=0.9999)
        parse_measures(self.measures)

    def _wordings(self, inp: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, tuple[int, int]]]:
        """Every query in every wording: ``qid``, ``arm``, ``query``; and :attr:`WordingResult.without_phrases`."""
        queries = as_asked(inp)[["qid", "query"]].drop_duplicates("qid").reset_index(drop=True)
        own = queries["query"].tolist()
        frames, without = [queries.assign(arm=ORIGINAL)], {}
        for rewrite in self.rewrites:
            new, told = rewritten_and_told(own, rewrite, self.tagger)
            frames.append(queries.assign(query=new, arm=rewrite_name(rewrite)))
            if told[1]:
                without[rewrite_name(rewrite)] = told
        return pd.concat(frames, ignore_index=True), without

    def _with_complexity(self, wordings: pd.DataFrame) -> pd.DataFrame:
        own = wordings.assign(qid=wordings["qid"] + "%" + wordings["arm"], needed=wordings["qid"])
        own = with_complexity(own, self.complexity)
        return own.assign(qid=own["needed"])[["qid", "arm", "query", "complexity"]]

    def _ask(self, inp: pd.DataFrame, given: str, wordings: pd.DataFrame, kept: int | None = None) -> _Asked:
        system = probed_system(self.pipeline, self.dataset, self, candidates=given == "candidates")
        ranker = system.ranker if system.ranker is not None or isinstance(self.pipeline, System) else self.pipeline
        reason = None if given == "candidates" and ranker is not None else asking_again_reason(system, inp)
        if reason is None and given == "candidates" and ranker is None:
            reason = "it has no ranker for candidates; give topics instead"
        if reason is not None:
            raise InputError(f"WordingSensitivity: system {system.name!r} cannot be examined: {reason}")
        asks, stage = inp, cast(pt.Transformer, ranker)  # where there is none, it is topics that are given
        if given == "topics" and system.ranker is None:
            stage = system.candidates
        elif given == "topics":
            asks = ranked(check_run(answered(system.candidates, inp)[0], system.name), system.name)
        if "docno" in asks.columns:
            check_pairs(asks, self)
            asks = first_candidates(asks, self.depth, self)
        check_caches(stage, ["query"], self)
        in_words = tokenising(stage)
        frames, unanswered, as_it_comes = [], [], None
        for arm, own in pt.tqdm(list(wordings.groupby("arm", sort=False)), desc="wordings", disable=not self.verbose):
            worded = reworded(asks, asks["qid"].map(dict(zip(own["qid"], own["query"]))), keep=False)
            run, failed = self._run(in_words, worded, system, kept)
            frames.append(run.assign(arm=arm)[COLUMNS])
            unanswered.append(_unanswered(worded, run, failed, arm))
            if arm == ORIGINAL and (in_words is not stage or worded["query"].tolist() != asks["query"].tolist()):
                as_it_comes, failed = self._as_it_comes(stage, asks, system, kept)
                unanswered.append(_unanswered(asks, as_it_comes, failed, AS_IT_COMES))
        rankings = _typed(pd.concat(frames, ignore_index=True))
        return _Asked(rankings, as_it_comes, pd.concat(unanswered, ignore_index=True), in_words is not stage)

    def _run(
        self, stage: pt.Transformer, asks: pd.DataFrame, system: System, kept: int | None = None
    ) -> tuple[pd.DataFrame, dict[str, str]]:
        """The ranking of a retriever for topics, or of a ranker for candidates; and the errors that were raised for topics."""
        runs: list[pd.DataFrame] = []
        failed: dict[str, str] = {}
        found: pd.DataFrame
        for part in in_parts(asks) if "docno" in asks.columns else [asks]:
            try:
                found, failed = (stage(part), {}) if "docno" in part.columns else answered(stage, part)
            except (InputError, pt.validate.InputValidationError) as error:
                raise InputError(f"WordingSensitivity: system {system.name!r} cannot use its input: {error}") from error
            runs += [self._ordered(found, system, kept)] if len(found) else []
        return pd.concat(runs, ignore_index=True) if runs else self._ordered(found, system, kept), failed

    @staticmethod
    def _ordered(found: pd.DataFrame, system: System, kept: int | None) -> pd.DataFrame:
        run = ranked(check_run(found, system.name), system.name)
        return run if kept is None else top_of_lists(run[COLUMNS[:-1]], kept)

    def _as_it_comes(
        self, stage: pt.Transformer, asks: pd.DataFrame, system: System, kept: int | None = None
    ) -> tuple[pd.DataFrame, dict[str, str]]:
        """As :meth:`_run`, for queries as they come: an error is recorded, since the system did answer the queries as words."""
        nothing = pd.DataFrame(columns=COLUMNS[:-1])
        found: pd.DataFrame
        try:
            found, failed = (stage(asks), {}) if "docno" in asks.columns else answered(stage, asks)
        except Exception as error:
            return nothing, dict.fromkeys(asks["qid"], one_line(error))
        return (self._ordered(found, system, kept) if len(found) else nothing), failed

    def _row(
        self, measure: str, arm: str, own: pd.DataFrame, complexity: pd.DataFrame, wordings: pd.DataFrame
    ) -> dict[str, Any]:
        before, after = own[ORIGINAL].to_numpy(), own[arm].to_numpy()
        least, most = value_range(measure)
        own_range: dict[str, Any] = {"least": least - most, "most": most - least}
        found = inverted_interval(after - before, level=self.level, resamples=self.resamples, seed=self.seed, **own_range)
        texts = wordings.pivot(index="qid", columns="arm", values="query").loc[own.index]
        sd = complexity[ORIGINAL].std(ddof=0)
        moved = (complexity[arm] - complexity[ORIGINAL]).mean() / sd if sd else float("nan")
        return {
            "comparison": f"{arm} - {ORIGINAL}",
            "measure": measure,
            "before": before.mean(),
            "after": after.mean(),
            "difference": found.estimate,
            "low": found.low,
            "high": found.high,
            "p": randomisation_test(before, after, resamples=self.resamples, seed=self.seed).p,
            "n": len(own),
            "changed": int((texts[arm] != texts[ORIGINAL]).sum()),
            "words": float((query_length(texts[arm]) - query_length(texts[ORIGINAL])).mean()),
            "complexity": float(moved),
        }


def asking_again_reason(system: System, topics: pd.DataFrame) -> str | None:
    """Say why a system cannot be asked reworded queries; None if it can.

    Args:
        system: The system.
        topics: What its retriever gets.

    Returns:
        The reason in one sentence, or None.
    """
    if system.ranker is None and isinstance(flatten(system.candidates)[0], pt.transformer.SourceTransformer):
        return "its results are a run, which cannot answer reworded queries; give the pipeline that made it"
    forms = query_forms(topics) if system.ranker is None else []
    if forms:
        return (
            f"its retriever may read {forms[0]!r}, which was made from the original query; put the stage that makes it (a query "
            f"encoder) into the pipeline, and leave the column out of the topics"
        )
    return None


def _unanswered(asks: pd.DataFrame, run: pd.DataFrame, failed: dict[str, str], arm: str) -> pd.DataFrame:
    """The queries of a wording without results, as :class:`WordingResult` lists them."""
    without = unanswered_queries(asks, run, failed)
    named = asks[asks["qid"].isin(without)]
    queries = dict(zip(named["qid"], named["query"]))
    return pd.DataFrame([(qid, arm, queries[qid], reason) for qid, reason in without.items()], columns=_UNANSWERED, dtype=object)


def _typed(rankings: pd.DataFrame) -> pd.DataFrame:
    return rankings.astype({"qid": "str", "docno": "str", "score": "float64", "rank": "int64", "arm": "str"})
