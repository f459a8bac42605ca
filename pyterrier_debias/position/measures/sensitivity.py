"""PositionSensitivity: the effect on a ranking of moving content within passages."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.counterfactuals import COLUMNS, TOLERANCE, Arm, Variants, never_moved, score_arms, score_changes
from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.decomposition import out_of_reach, text_loader_at_end, without_cutoff
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.evaluation import deepest, judged_input, parse_measures
from pyterrier_debias.core.frames import (
    check_pairs,
    check_text,
    first_candidates,
    in_parts,
    pair_numbers,
    ranked,
    reads_frames,
    top_of_lists,
    with_string_ids,
)
from pyterrier_debias.core.indexing import handed_over
from pyterrier_debias.core.retrieval import answered, unanswered_notes
from pyterrier_debias.core.stage import Stage, flatten, parts_of
from pyterrier_debias.core.systems import System, check_run, probed_system, takes_topics
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.position.data.answers import AnswerPositions, answers_in_texts
from pyterrier_debias.position.data.rotation import RotatePassages
from pyterrier_debias.position.formulas import psi
from pyterrier_debias.position.measures.sensitivity_result import (
    BUCKET_UNITS,
    Outcome,
    SensitivityResult,
    displacement_frame,
    displacements,
    passage_clusters,
)

logger = logging.getLogger(__name__)

#: Candidates of a query of which ``queries_per_call`` queries are scored at a time; fewer of more.
_LONG = 500

#: Queries whose list is cut in half to see whether the ranker notices.
_CONTROL_QUERIES = 10
#: From which share of tokens, or of texts that are cut, on the window of a ranker is worth a note.
_MUCH_UNREAD = 0.05
#: The shortest list of which half can be ranked.
_CONTROLLED = 3

#: Messages if nothing changed, for a ranker and for a rebuilt retriever.
_UNSEEN = (
    "no score changed when passages were rotated: either the ranker does not read the order of words, or it never saw the "
    "rotated passages (because of a later text loader or a cache keyed by docno); nothing was tested"
)
_BY_CONSTRUCTION = (
    "no score changed when the corpus was rotated and indexed anew, as expected of a retriever that only counts words; 0 by "
    "construction, not tested"
)
#: Message if no passage changed.
_FIXED = (
    "no passage changed when it was rotated ({} of {} have fewer than two {}s), so nothing can be said about positions; nothing "
    "was tested"
)


class PositionSensitivity(Stage):
    """Measure how effectiveness changes when relevant content is moved within passages.

    A black-box probe for any ranker that reads ``query`` and text. The candidates of each query are scored unchanged and

    - **rotated**: every candidate rotated at a random word, in several draws (the evaluation of Hofstätter, Lipani, Althammer,
      Zlabinger and Hanbury, "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking", ECIR 2021);
    - **placed**, if answers are known: the relevant passages rotated by whole sentences, so that the sentence with the answer
      comes first, in the middle or last; the other candidates are unchanged (as a stage, which has no judgements: all passages
      with an answer). A passage in which these are not three different places is not changed;
    - **one at a time**: a relevant passage rotated among the un-rotated others, which gives its *rank displacement*.

    A retriever without a text stage is probed by indexing both the original and the rotated corpus, so that only the rotation
    differs. This needs ``System(..., indexer=...)`` and a dataset with a corpus; placement and displacement are left out.

    Draw k is the rotation that ``rotation`` makes with ``draw=k``, so each arm can also be run as a pipeline:
    ``bm25 >> texts >> RotatePassages(draw=1) >> ranker``. The ranker gets each variant of a list as a separate query (``q1%r1``
    with the words of ``q1``) over separate documents (``d7%r1-...``), all in one call: no cache can hide the change, and rankers
    that look at whole lists see one list at a time. A ranker gets draws + 1 lists per query, plus one for each placement; with a
    remote reranker you pay for all of them.

    If no score of any variant differs from the original one although texts changed, nothing is tested: p is NaN, and
    ``untested`` and the first note say that the ranker either ignores the order of words or never saw the rotated passages.
    The same holds if no text changed, because all are too short; a note gives the share of passages that rotation cannot change.
    A pipeline into which changed passages cannot be put (texts loaded and scored inside one stage, a second text loader after
    the first ranker, scores from an index after the text loader) is refused with the reason.

    **As a stage** it takes candidates (``qid``, ``query``, ``docno``, text), or topics (``qid``, ``query``) if the pipeline
    begins with a retriever, and returns one row per document and list: ``qid``, ``docno``, ``arm`` (``original``, ``rotated``,
    ``start``, ``middle``, ``end``), ``draw`` (0 except for ``rotated``), ``score``, ``rank``. :meth:`evaluate` turns these into
    tables.

    Statistics: the unit is the query; draws are averaged within a query before anything else; judged queries without results
    count 0. p comes from :func:`pyterrier_debias.core.statistics.exchange_test`: under the null hypothesis that position makes no
    difference, the original list is exchangeable with its rotations, because "nothing moved" is one of them
    (``RotatePassages(allow_identity=True)``), however few units a passage has. Intervals are bootstrap intervals over queries.
    Questions about the same passage, as in SQuAD, see the same rotations of it. Queries that have at least half of their
    relevant passages in common are therefore exchanged and drawn together
    (:func:`~pyterrier_debias.position.measures.sensitivity_result.passage_clusters`); with ``RotatePassages(scope='pair')``,
    each query has its own rotations and stays alone.

    Raises:
        InputError: If an option is unknown or out of range; raised when it is first used.

    When not to use it: if the order of a passage is part of its content (code, recipes, dialogues). With judgements that were
    pooled from the examined ranker: they contain its luck with the original texts. Also, the cut leaves broken sentences, so a
    small loss may be due to these rather than to position: compare ``start`` with ``end``, which break none, or use
    ``RotatePassages(unit='sentence')``.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> candidates = pd.DataFrame({
        ...     "qid": "q1", "query": "tea", "docno": ["d1", "d2", "d3"],
        ...     "text": ["tea is a hot drink", "rain and tea and rain", "boats go up and down"],
        ... })
        >>> early = pt.apply.doc_score(lambda row: -float((row["text"] + " tea").split().index("tea")))
        >>> qrels = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
        >>> result = PositionSensitivity(early, draws=4).evaluate(candidates, qrels)
        >>> result.table[["comparison", "measure", "before", "after"]].round(2).iloc[0].to_dict()
        {'comparison': 'rotated - original', 'measure': 'nDCG@10', 'before': 1.0, 'after': 0.82}

    .. cite.dblp:: journals/corr/abs-2101-06980
    """

    schematic = {"label": "PositionSensitivity", "help_url": None, "inner_pipelines_mode": "linked"}  # noqa: RUF012

    _NOT_IDENTITY = Stage._NOT_IDENTITY | {"queries_per_call"}

    def __init__(
        self,
        pipeline: pt.Transformer | System,
        *,
        dataset: Any = None,
        answers: pd.DataFrame | None = None,
        rotation: RotatePassages | None = None,
        draws: int = 3,
        placements: Sequence[str] = psi.PLACEMENTS,
        placement_unit: str = "sentence",
        measures: Sequence[Any] = ("nDCG@10", "RR@10", "R@10"),
        buckets: int | Sequence[float] = 3,
        bucket_unit: str = "characters",
        depth: int | None = 100,
        queries_per_call: int = 100,
        level: float = 0.95,
        resamples: int = 9_999,
        seed: int = 0,
        verbose: bool = False,
    ):
        """
        Args:
            pipeline: A ranker, a pipeline that begins with a retriever, or a :class:`pyterrier_debias.System`.
            dataset: The source of judgements, answers and, for retrievers, the corpus, if they are not given.
            answers: A frame with ``qid``, ``docno``, ``answer``, and ``start`` and ``end`` (in characters) if known. Otherwise,
                or if the answer is not there (its passage was rotated, or has a title), the string is searched for in the
                passage; a note says how many were not there. The first answer in a passage counts. Default is the dataset's.
            rotation: How passages are rotated; None means ``RotatePassages()``. Its ``text_field`` is the column that is read.
                A tokeniser that rewrites texts (any except ``'whitespace'``) rewrites all lists, so that only positions differ:
                the original list is then that of ``RotatePassages(..., offset=0) >> ranker``.
                ``allow_identity=False`` works only with ``draws=1``: of several draws, none could be the original.
            draws: The number of rotations of each list, at least 1. The mean over them is compared with the original.
            placements: Any of ``'start'``, ``'middle'``, ``'end'``; none leaves placement out.
            placement_unit: ``'sentence'`` moves the answer within its sentence. ``'word'`` puts the answer itself first or last,
                which separates it from the words before it (at the start) or after it (at the end). The words before an answer
                often include those of the query, so start and end then differ by more than the place of the answer.
            measures: ir_measures objects or names; PSI is computed on the first one.
            buckets: For PSI over answers as found: the number of buckets, which hold equally many queries, or their edges (a
                bucket includes its lower edge), such as ``[0, 100, 200, 300, 400, 500, 3120]``, which the PSI paper used on
                SQuAD.
            bucket_unit: ``'characters'`` or ``'words'`` before the answer, or ``'relative'``: the words before it divided by all
                words.
            depth: The number of candidates per query that the ranker gets, by rank; None for all.
            queries_per_call: The number of queries whose lists the ranker gets in one call. It limits memory and changes no
                result. Rankers that encode each text of a call once are faster with more.
            level: Coverage of intervals.
            resamples: The number of bootstrap resamples, and of permutations of each test.
            seed: Seed of both; rotations have their own seed.
            verbose: Whether to show progress.
        """
        self.pipeline = pipeline
        self.dataset = dataset
        self.answers = answers
        self.rotation = rotation
        self.draws = draws
        self.placements = placements
        self.placement_unit = placement_unit
        self.measures = measures
        self.buckets = buckets
        self.bucket_unit = bucket_unit
        self.depth = depth
        self.queries_per_call = queries_per_call
        self.level = level
        self.resamples = resamples
        self.seed = seed
        self.verbose = verbose

    @gathered()
    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rank every variant of every list; see the class.

        Raises:
            InputError: If an option is unknown, a text is missing, a pair is repeated, the ranker returns scores that are not
                numbers or documents that it was not given, or looks documents up by docno, the pipeline cannot be split, or the
                retriever cannot be indexed again.
        """
        given = self._mode(inp)
        self._check_options()
        check_text(inp, "query", self)
        if len(inp) == 0:
            return pd.DataFrame(columns=COLUMNS)
        return self._lists(inp, given).returned

    @reads_frames
    @gathered()
    def evaluate(
        self, inp: pd.DataFrame, qrels: pd.DataFrame | None = None, *, topics: pd.DataFrame | None = None
    ) -> SensitivityResult:
        """Rank every variant of every list, and compare them with the original list.

        Args:
            inp: Candidates or topics, as for :meth:`transform`.
            qrels: Judgements ``qid``, ``docno``, ``label``; default is the dataset's. A passage with a label of 1 or more is
                relevant.
            topics: The topics, if ``inp`` are candidates and some topics have none: these count 0 if they are judged.

        Returns:
            The result.

        Raises:
            InputError: As for :meth:`transform`; also if there are no judgements, or no query is judged.
        """
        return self._evaluated(inp, qrels, topics, None)

    @reads_frames
    @gathered()
    def figures(
        self,
        inp: pd.DataFrame,
        qrels: pd.DataFrame | None = None,
        *,
        topics: pd.DataFrame | None = None,
        variants: Variants | None = None,
    ) -> SensitivityResult:
        """As :meth:`evaluate`, but without keeping all rankings in memory.

        Args:
            inp: See :meth:`evaluate`.
            qrels: See :meth:`evaluate`.
            topics: See :meth:`evaluate`.
            variants: A store of rotated texts for other systems with the same documents; None stores none.

        Returns:
            The result. If all measures have a cut-off, its ``arms`` hold only what the figures need: the documents of each list
            up to the cut-off, its last document, and relevant ones.
        """
        return self._evaluated(inp, qrels, topics, deepest(self.measures), variants)

    def _evaluated(
        self,
        inp: pd.DataFrame,
        qrels: pd.DataFrame | None,
        topics: pd.DataFrame | None,
        kept: int | None,
        variants: Variants | None = None,
    ) -> SensitivityResult:
        given = self._mode(inp)
        self._check_options()
        check_text(inp, "query", self)
        # Only judged queries have a value, so only these are ranked.
        inp, qrels, _, judged = judged_input(self, inp, qrels, topics)
        relevant = qrels.loc[(qrels["label"] >= 1) & qrels["qid"].isin(set(judged)), ["qid", "docno", "label"]]
        return self._result(self._lists(inp, given, relevant, kept, variants), judged, qrels)

    # ------------------------------------------------------------------------------------------------ options

    def _mode(self, inp: pd.DataFrame) -> str:
        with pt.validate.any(inp, context=self) as v:
            v.columns(includes=["qid", "query", "docno", self._turning.text_field], mode="candidates")
            if takes_topics(self.pipeline, self.dataset, self):
                v.query_frame(extra_columns=["query"], mode="topics")
        return v.mode

    def _check_options(self) -> None:
        listed = isinstance(self.placements, Iterable) and not isinstance(self.placements, str)
        if not listed or any(p not in psi.PLACEMENTS for p in self.placements):
            known = ", ".join(map(repr, psi.PLACEMENTS))
            raise InputError(f"PositionSensitivity: placements={self.placements!r} must be a list of some of {known}")
        check_choice("PositionSensitivity", "placement_unit", self.placement_unit, ("word", "sentence"))
        check_choice("PositionSensitivity", "bucket_unit", self.bucket_unit, BUCKET_UNITS)
        for option in ("draws", "depth", "queries_per_call", "resamples"):
            if option != "depth" or self.depth is not None:
                check_number("PositionSensitivity", option, getattr(self, option), least=1, whole=True)
        check_number("PositionSensitivity", "level", self.level, above=0, most=0.9999)
        if self._turning.share < 1:
            raise InputError(
                f"PositionSensitivity: RotatePassages(share={self._turning.share}) leaves passages as they are, so that their "
                f"sensitivity is not seen; leave out share, which is for training"
            )
        if not self._turning.allow_identity and self.draws > 1:
            raise InputError(
                f"PositionSensitivity: RotatePassages(allow_identity=False) with draws={self.draws} excludes the original text "
                f"from the rotations, so chance alone would count as sensitivity; use allow_identity=True, or draws=1"
            )
        if not parse_measures(self.measures):
            raise InputError("PositionSensitivity: measures is empty; give at least one, e.g. ['nDCG@10']")
        psi.bucket_of(np.empty(0), self.buckets)

    @property
    def _turning(self) -> RotatePassages:
        return RotatePassages() if self.rotation is None else self.rotation

    @property
    def _placing(self) -> RotatePassages:
        """The function that splits texts into the units of placement."""
        turning = self._turning
        return RotatePassages(unit=self.placement_unit, tokeniser=turning.tokeniser, segmenter=turning.segmenter)

    # ------------------------------------------------------------------------------------------------ rankings

    def _lists(
        self,
        inp: pd.DataFrame,
        given: str,
        relevant: pd.DataFrame | None = None,
        kept: int | None = None,
        variants: Variants | None = None,
    ) -> _Lists:
        """Rankings of all arms; how relevant passages move; and of each list only the first ``kept``, where that is not None."""
        system = probed_system(self.pipeline, self.dataset, self, candidates=given == "candidates")
        text = self._turning.text_field
        if given == "topics" and system.ranker is None:
            return self._indexed_anew(system, inp, relevant, kept)
        told: list[str] = []
        if given == "topics":
            found, failed = answered(system.candidates, inp)
            told = unanswered_notes(system.name, len(inp), failed)
            inp = ranked(check_run(found, system.name), system.name)
            pt.validate.columns(inp, includes=["qid", "query", "docno", text], context=self)
        # Candidates with text, and a pipeline without a stage that adds text: then all of it is the ranker.
        ranker = system.ranker if system.ranker is not None or isinstance(self.pipeline, System) else self.pipeline
        if ranker is None:
            raise InputError(f"PositionSensitivity: system {system.name!r} has no ranker for candidates; give topics instead")
        reason = system.out_of_reach or out_of_reach(flatten(ranker), list(inp.columns))
        if reason:
            raise InputError(f"PositionSensitivity: system {system.name!r} cannot be probed: {reason}")
        candidates = first_candidates(inp, self.depth, self)
        check_text(candidates, text, self)
        check_pairs(candidates, self)
        answers, astray = self._positions(candidates)
        told += astray
        variants = variants or Variants()
        ranker, cut = without_cutoff(ranker)
        frames, moves, still, change, checked = [], [], True, 0.0, False
        for part, arms in self._ranked(candidates, ranker, answers, relevant, system.name, variants):
            change = max(change, _context_change(part, arms, self.draws))
            checked = checked or (arms["arm"] == "control").any()
            arms = arms[arms["arm"] != "control"].reset_index(drop=True)
            still = still and ((arms["arm"] == "original").all() or _never_moved(arms))
            if relevant is not None:
                moves.append(displacements(arms, relevant, relevant["qid"].unique().tolist()))
            frames.append(arms if kept is None else _top(arms, kept, relevant))
        arms = pd.concat(frames, ignore_index=True)
        if not (arms["arm"] == "rotated").any():
            raise InputError(
                f"PositionSensitivity: ranker of {system.name!r} returned no results for the rotated lists; check that it keeps "
                f"candidates whose docno and text are changed"
            )
        fixed = self._fixed(candidates.drop_duplicates("docno")[text])
        untested = "" if not still else _UNSEEN if self._changes(candidates, variants) else self._nothing_changed(fixed)
        if untested:
            logger.warning("PositionSensitivity: system %r: %s", system.name, untested)
        moved = pd.concat(moves, ignore_index=True) if moves else None
        change = change if checked or np.isinf(change) else float("nan")
        return _Lists(arms, answers, system.name, candidates, ranker, cut, moved, change, untested, tuple(told), fixed, variants)

    def _fixed(self, texts: Iterable[str]) -> tuple[int, int]:
        """The number of texts that no rotation changes, and the number of all texts."""
        fixed = [*map(self._turning.cannot_turn(), texts)]
        return sum(fixed), len(fixed)

    def _nothing_changed(self, fixed: tuple[int, int]) -> str:
        return _FIXED.format(*fixed, self._turning.unit)

    def _changes(self, candidates: pd.DataFrame, variants: Variants) -> bool:
        """Whether any draw changes any text."""
        texts = self._unmoved(candidates)[self._turning.text_field].tolist()
        return any(self._turned(candidates, draw, variants) != texts for draw in range(self.draws))

    def _unmoved(self, part: pd.DataFrame) -> pd.DataFrame:
        """Candidates with the texts that rotated ones are compared with: see :meth:`RotatePassages.unmoved`."""
        text, turning = self._turning.text_field, self._turning
        return part.assign(**{text: [*map(turning.unmoved(), part[text].tolist())]}) if turning.rewrites else part

    def _turned(self, part: pd.DataFrame, draw: int, variants: Variants) -> list[str]:
        """The texts of a frame in one draw; each text with a draw of its own is rotated once."""
        turn, ids = self._turning.rotator(draw), ["docno", "qid"][: 2 if self._turning.scope == "pair" else 1]
        keys = list(zip(*(part[column].tolist() for column in (self._turning.text_field, *ids))))
        return variants.made(("rotated", self._turning, draw), keys, lambda *key: turn(*key)[0])

    def _positions(self, texts: pd.DataFrame) -> tuple[pd.DataFrame | None, list[str]]:
        """The first answer of each (qid, docno) that has a text here: ``start``, ``end``, ``position``, ``relative``; notes."""
        answers = self.answers if self.answers is not None else provided(self.dataset, "get_answers")
        if answers is None:
            return None, []
        pt.validate.columns(answers, includes=["qid", "docno", "answer"], context=self)
        text = self._turning.text_field
        keys = [c for c in ("qid", "docno") if c in texts]
        answers = with_string_ids(answers, self).drop(columns=text, errors="ignore")
        known = answers.merge(texts[[*keys, text]].drop_duplicates(keys), on=keys)
        known = answers_in_texts(known, self.dataset, text, self)
        found, (astray, marked) = AnswerPositions(text_field=text, rotation=self._turning).located(known)
        found = found[found["matched"].to_numpy(dtype=bool)].sort_values(["qid", "docno", "start", "end"])
        told = (
            f"{astray} of {marked} answers are not at their offsets (start, end) in these passages; their strings were searched "
            f"for."
        )
        return found.drop_duplicates(["qid", "docno"]).reset_index(drop=True), [told] if astray else []

    def _ranked(
        self,
        candidates: pd.DataFrame,
        ranker: pt.Transformer,
        answers: pd.DataFrame | None,
        relevant: pd.DataFrame | None,
        name: str,
        variants: Variants,
    ) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
        """Score all arms, some queries at a time: their candidates, and the rankings. Answers are placed in relevant passages; if
        these are not known, in all that have one."""
        text = self._turning.text_field
        sizes = candidates["qid"].value_counts()
        qids, control = list(sizes.index), set(sorted(sizes.index[sizes >= _CONTROLLED])[:_CONTROL_QUERIES])
        if answers is not None and relevant is not None:
            answers = answers.merge(relevant[["qid", "docno"]], on=["qid", "docno"])
        spans = {} if answers is None else {
            (q, d): (s, e) for q, d, s, e in zip(*(answers[name].tolist() for name in ("qid", "docno", "start", "end")))
        }
        # Of long lists fewer queries at a time, so that memory does not grow with the depth.
        queries = max(1, min(self.queries_per_call, self.queries_per_call * _LONG * len(qids) // max(len(candidates), 1)))
        parts, calls = in_parts(candidates, queries), -(-len(qids) // queries)
        for part in pt.tqdm(parts, total=calls, desc="PositionSensitivity", unit="call", disable=not self.verbose):
            unmoved = self._unmoved(part)
            arms = [
                *self._rotated_arms(part, unmoved[text].tolist(), variants),
                *self._placed_arms(part, unmoved[text].tolist(), spans),
                *_control_arm(unmoved, control, text),
            ]
            yield part, score_arms(unmoved, arms, ranker, text_field=text, name=name, variants=variants)

    def _rotated_arms(self, part: pd.DataFrame, unmoved: list[str], variants: Variants) -> list[Arm]:
        rows = np.arange(len(part))
        arms = [Arm("original", 0, rows, unmoved, None)]
        for draw in range(self.draws):
            arms.append(Arm("rotated", draw, rows, self._turned(part, draw, variants), str(draw)))
        return arms

    def _placed_arms(self, part: pd.DataFrame, unmoved: list[str], spans: dict[tuple[str, str], tuple[int, int]]) -> list[Arm]:
        """Whole lists in which the passages with answers are changed, for the queries that have such a passage.

        A passage that is too short for different places of the answer is not changed: if two of the three places were the same,
        they would not be exchangeable under the null hypothesis.
        """
        split, rewritten = self._placing.splitter(), self._turning.unmoved()
        texts = part[self._turning.text_field].tolist()
        placed: dict[int, list[str]] = {}
        for row, pair in enumerate(zip(part["qid"].tolist(), part["docno"].tolist())):
            if pair in spans:
                tried = [psi.place(texts[row], *spans[pair], where, split) for where in self.placements]
                variants = [rewritten(text) for text in tried if text is not None]
                if len(set(variants)) == len(tried):
                    placed[row] = variants
        rows = np.flatnonzero(part["qid"].isin(set(part["qid"].iloc[list(placed)])))
        if not len(rows):
            return []
        return [
            Arm(where, 0, rows, [placed[row][number] if row in placed else unmoved[row] for row in rows.tolist()], where)
            for number, where in enumerate(self.placements)
        ]

    def _indexed_anew(
        self, system: System, topics: pd.DataFrame, relevant: pd.DataFrame | None, top: int | None
    ) -> _Lists:
        """Retrieval from the original and the rotated corpus, both indexed in the same way."""
        reason = reindexing_reason(system, self.dataset)
        if reason is not None:
            raise InputError(f"PositionSensitivity: system {system.name!r} cannot be probed: {reason}")
        indexer = cast(Callable[[Iterable[dict[str, Any]]], pt.Transformer], system.indexer)
        kept: dict[str, str] = {}
        still: list[bool] = []
        answers = self.answers if self.answers is not None else provided(self.dataset, "get_answers")
        wanted = set() if answers is None else set(with_string_ids(answers, self)["docno"])
        frames, failed, unmoved, original = [], {}, True, pd.DataFrame()
        for draw in pt.tqdm([None, *range(self.draws)], desc="PositionSensitivity", unit="index", disable=not self.verbose):
            with handed_over(self._corpus(draw, wanted, kept, still)) as documents:
                if draw is None and system.indexed and not self._turning.rewrites:
                    deque(documents, maxlen=0)  # what is asked of the texts is asked still
                    retriever = system.candidates
                else:
                    retriever = indexer(documents)
            found, failing = answered(retriever, topics)
            failed.update(failing)
            run = ranked(check_run(found, system.name), system.name)
            run = run.assign(arm="original" if draw is None else "rotated", draw=draw or 0)[COLUMNS]
            original = run if draw is None else original
            unmoved = unmoved and (draw is None or never_moved(original, run))
            frames.append(run if top is None else _top(run, top, relevant))
        texts = pd.DataFrame({"docno": list(kept), self._turning.text_field: list(kept.values())}, dtype=str)
        arms = pd.concat(frames, ignore_index=True)
        fixed = sum(still), len(still)
        untested = "" if not unmoved else self._nothing_changed(fixed) if all(still) else _BY_CONSTRUCTION
        answered_at, astray = self._positions(texts)
        told = (*unanswered_notes(system.name, len(topics), failed), *astray)
        return _Lists(arms, answered_at, system.name, untested=untested, told=told, fixed=fixed)

    def _corpus(
        self, draw: int | None, wanted: set[str], kept: dict[str, str], still: list[bool]
    ) -> Iterator[dict[str, Any]]:
        """The documents, rotated. If ``draw`` is None, nothing is moved: wanted texts are kept, and those that no draw changes
        are noted."""
        text, cannot_turn = self._turning.text_field, self._turning.cannot_turn()
        turn, unmoved = None if draw is None else self._turning.rotator(draw), self._turning.unmoved()
        for document in self.dataset.get_corpus_iter(verbose=False):
            if not isinstance(document.get(text), str):
                raise InputError(
                    f"PositionSensitivity: document {document.get('docno')!r} of the corpus has no text in column {text!r}; name "
                    f"the column by RotatePassages(text_field=...), or add the text"
                )
            if turn is None:
                still.append(cannot_turn(document[text]))
                if str(document["docno"]) in wanted:
                    kept[str(document["docno"])] = document[text]
                yield {**document, text: unmoved(document[text])} if self._turning.rewrites else document
            else:
                yield {**document, text: turn(document[text], str(document["docno"]))[0]}

    # ------------------------------------------------------------------------------------------------ what follows

    def _result(self, lists: _Lists, qids: list[str], qrels: pd.DataFrame) -> SensitivityResult:
        arms = lists.returned
        clusters = passage_clusters(qrels, qids) if self._drawn_for(lists) == "passage" else None
        outcome = Outcome(
            arms, qids, qrels, self.measures, lists.answers, self.level, self.resamples, self.seed, not lists.untested, clusters
        )
        values = outcome.per_query()
        index, buckets, placements = outcome.sensitivity(values, self.buckets, self.bucket_unit)
        displacement, notes, cut_off = self._displacement(lists, qids, qrels)
        if lists.untested:
            notes.insert(0, f"{lists.untested[0].upper()}{lists.untested[1:]}.")
        notes += lists.told
        fixed, texts = lists.fixed
        if fixed:
            notes.append(
                f"{fixed} of {texts} passages ({fixed / texts:.1%}) have fewer than two {self._turning.unit}s, so no rotation "
                f"changes them: they show nothing about position."
            )
        absent = len(set(qids) - set(arms.loc[arms["arm"] == "original", "qid"]))
        if absent:
            notes.append(f"{absent} of {len(qids)} judged queries have no candidates; they count as 0 in every arm.")
        if clusters is not None:
            notes.append(
                f"Some of the {len(qids)} judged queries have at least half of their relevant passages in common, and see the "
                f"same rotations: they are tested together, as {clusters.nunique()} clusters of queries."
            )
        unread = "" if lists.ranker is None else _unread(lists.ranker, lists.candidates)
        if unread:
            notes.append(unread)
        if lists.answers is not None and outcome.answered().empty:
            notes.append(
                "No given answer is in the text of a relevant candidate, so no answer was placed, and there is no PSI: check "
                "that the answers belong to these candidates and judgements."
            )
        return SensitivityResult(
            table=outcome.table(values),
            per_query=values,
            psi=index,
            buckets=buckets,
            placements=placements,
            displacement=displacement,
            arms=arms,
            notes=tuple(notes),
            convention=self._convention(lists),
            level=self.level,
            resamples=self.resamples,
            seed=self.seed,
            untested=lists.untested,
            cut_off=cut_off,
            unread=unread,
            clusters=clusters,
        )

    def _displacement(self, lists: _Lists, qids: list[str], qrels: pd.DataFrame) -> tuple[pd.DataFrame, list[str], int]:
        """How relevant passages move, notes on it, and how many queries have one that the ranker left out of a list."""
        if lists.ranker is None or lists.moved is None:
            return displacements(lists.arms.iloc[:0], qrels, qids), [], 0
        change = lists.change
        if change <= TOLERANCE:
            return lists.moved, [], 0
        how_much = "all" if np.isinf(change) else f"{change:.0%}"
        note = (
            f"The ranker scores a passage differently in another list (by up to {how_much} of a list's range of scores), because "
            f"it looks at whole lists, scales or cuts them, or is not deterministic"
        )
        if np.isnan(change):
            note = f"Lists of fewer than {_CONTROLLED} documents do not show whether the ranker scores each passage by itself"
        note += ": rank displacement was measured on whole lists, one passage per query."
        moved, cut_off = self._displacement_in_lists(lists, lists.ranker, qids, qrels)
        notes = [note]
        if cut_off:
            notes.append(
                f"The ranker leaves out the rotated passage in some list of {cut_off} of {moved['qid'].nunique()} queries. Such "
                f"a passage counts as ranked after all that were returned, so displacement is underestimated: use a ranker that "
                f"returns all candidates."
            )
        return moved, notes, cut_off

    def _displacement_in_lists(
        self, lists: _Lists, ranker: pt.Transformer, qids: list[str], qrels: pd.DataFrame
    ) -> tuple[pd.DataFrame, int]:
        """Rank whole lists in which one passage is rotated: the most relevant one, or the first of several in the list.

        Also returns how many queries have a list without this passage.
        """
        text = self._turning.text_field
        judged = lists.candidates.merge(qrels[["qid", "docno", "label"]], on=["qid", "docno"], how="left")
        judged = judged[(judged["label"] >= 1) & judged["qid"].isin(set(qids))]
        probed = judged.sort_values("label", ascending=False, kind="stable").drop_duplicates("qid")[["qid", "docno", "label"]]
        chosen = set(zip(probed["qid"], probed["docno"]))
        parts = []
        for start in range(0, len(probed), self.queries_per_call):
            wanted = set(probed["qid"].iloc[start : start + self.queries_per_call])
            part = lists.candidates[lists.candidates["qid"].isin(wanted)].reset_index(drop=True)
            unmoved = self._unmoved(part)
            own = [pair in chosen for pair in zip(part["qid"].tolist(), part["docno"].tolist())]
            rows = np.arange(len(part))
            arms = []
            for draw in range(self.draws):
                turned = np.array(self._turned(part, draw, lists.variants), object)
                texts = np.where(own, turned, unmoved[text].to_numpy(dtype=object)).tolist()
                arms.append(Arm("one rotated", draw, rows, texts, f"{draw}one"))
            parts.append(score_arms(unmoved, arms, ranker, text_field=text, name=lists.name, variants=lists.variants))
        if not parts:
            return displacements(lists.arms.iloc[:0], qrels, qids), 0
        # A passage that the ranker cut off comes after all that it returned.
        original, rotated = lists.arms[lists.arms["arm"] == "original"], pd.concat(parts)
        places, left_out = _places(original, rotated, probed, self.draws)
        return displacement_frame(places), left_out

    def _drawn_for(self, lists: _Lists) -> str:
        """What has a rotation of its own: the documents of a corpus are rotated without a query."""
        return "passage" if lists.ranker is None else self._turning.scope

    def _convention(self, lists: _Lists) -> str:
        rotation = self._turning
        parts = [
            f"rotation by {rotation.unit}" + (f" ({rotation.tokeniser})" if rotation.unit == "word" else ""),
            f"one draw per {self._drawn_for(lists)}" if rotation.scope == "pair" else "",
            "" if rotation.allow_identity else "identity left out",
            f"mean of {self.draws} draw{'s' if self.draws > 1 else ''}, seed {rotation.seed}",
            "corpus indexed anew" if lists.ranker is None else f"depth {'all' if self.depth is None else self.depth}",
            f"answers placed by {self.placement_unit}" if lists.answers is not None and lists.ranker is not None else "",
        ]
        return "; ".join(part for part in parts if part)


def reindexing_reason(system: System, dataset: Any) -> str | None:
    """The reason why a retriever cannot be probed by indexing changed documents, in one sentence; None if it can."""
    if system.indexer is None:
        return system.out_of_reach or _no_ranker(system.candidates)
    if not hasattr(dataset, "get_corpus_iter"):
        return "it must be indexed anew over changed passages, and the dataset has no get_corpus_iter()"
    return None


def _no_ranker(pipeline: pt.Transformer) -> str:
    """Why no ranker can be given changed passages, in one sentence: none follows the text loader, or their place is not known."""
    if isinstance(without_cutoff(pipeline)[0], pt.transformer.SourceTransformer):
        remedy = "audit the ranker itself (on the command line: --model NAME reranks it)"
        return f"it is a run, whose texts cannot be changed; {remedy}"
    loader = text_loader_at_end(pipeline)
    if loader is not None:
        told = (
            f"no ranker that could be given changed passages follows its text loader ({type(loader).__name__}); put one after it "
            f"(retriever >> text loader >> ranker); a retriever alone must"
        )
    else:
        told = (
            "its stages do not show where texts are added before a ranker, so changed passages cannot be given to it; if it ends "
            "in a ranker, or one of its stages both loads and scores texts, put a text loader before the ranker (retriever >> "
            "dataset.text_loader() >> ranker); if it is a retriever, it must"
        )
    return (
        f"{told} index changed passages anew: for Terrier, audit it on TerrierCollection(index, dataset); otherwise give "
        f"System(name, pipeline, indexer=...)"
    )


@dataclass(frozen=True, eq=False)
class _Lists:
    """Rankings of all arms, what they were made from, notes, and how many of how many texts no rotation changes.

    ``ranker`` is without the cut-offs at its end, ``cut`` the number of documents that it returns with them. ``moved`` says how
    relevant passages move among the unchanged others, ``change`` how much the score of a text differs in another list
    (:func:`_context_change`; NaN if all lists are too short to tell). A retriever has no ranker and no candidates.
    """

    arms: pd.DataFrame
    answers: pd.DataFrame | None
    name: str
    candidates: pd.DataFrame = field(default_factory=pd.DataFrame)
    ranker: pt.Transformer | None = None
    cut: int | None = None
    moved: pd.DataFrame | None = None
    change: float = 0.0
    untested: str = ""
    told: tuple[str, ...] = ()
    fixed: tuple[int, int] = (0, 0)
    variants: Variants = field(default_factory=Variants)

    @property
    def returned(self) -> pd.DataFrame:
        """The rankings as the system returns them, with its cut-offs."""
        if self.cut is None:
            return self.arms
        return self.arms[self.arms["rank"] < self.cut].reset_index(drop=True)


def _unread(ranker: pt.Transformer, candidates: pd.DataFrame) -> str:
    """A sentence if a ranker of this package leaves out much of the texts, which it reads as they are; the windows of others are
    not known."""
    from pyterrier_debias.rankers.base import Ranker

    stage = flatten(ranker)[0]
    while not isinstance(stage, Ranker) and (inner := parts_of(stage)):
        stage = flatten(inner[0])[0]
    found = stage.unread(candidates) if isinstance(stage, Ranker) else None
    if found is None or max(found[:2]) < _MUCH_UNREAD:
        return ""
    tokens, texts, window = found
    return (
        f"{type(stage).__name__} does not read {tokens:.0%} of the tokens of the passages: {texts:.0%} of them are longer than "
        f"its window of {window} tokens, so a displacement may be due to this window. Raise max_length where the model allows "
        f"it, or use long='maxp'."
    )


def _never_moved(arms: pd.DataFrame) -> bool:
    return never_moved(arms[arms["arm"] == "original"], arms[arms["arm"] != "original"])


def _places(original: pd.DataFrame, rotated: pd.DataFrame, probed: pd.DataFrame, draws: int) -> tuple[pd.DataFrame, int]:
    """The ranks of one passage per query, ``before`` in the original list and ``after`` in that of each draw.

    A passage that a list lacks comes after as many documents as any list of the query has besides it: an empty list has no last
    rank of its own. Also returns how many queries have such a list; those without any list are left out.
    """
    keys = probed[["qid", "docno"]]
    both = pd.concat([original.assign(draw=-1), rotated])
    own = both.merge(keys, on=["qid", "docno"]).set_index(["qid", "draw"])["rank"]
    others = both.groupby(["qid", "draw"])["rank"].max() + 1
    last = (others - own.notna().reindex(others.index, fill_value=False)).groupby(level="qid").max()
    before = original.merge(keys, on=["qid", "docno"])[["qid", "rank"]].rename(columns={"rank": "before"})
    after = rotated.merge(keys, on=["qid", "docno"])[["qid", "draw", "rank"]].rename(columns={"rank": "after"})
    every = probed[probed["qid"].isin(last.index)].merge(pd.DataFrame({"draw": range(draws)}), how="cross")
    found = every.merge(before, on="qid", how="left").merge(after, on=["qid", "draw"], how="left")
    left_out = found.loc[found[["before", "after"]].isna().any(axis=1), "qid"].nunique()
    lengths = found["qid"].map(last)
    return found.assign(**{name: found[name].fillna(lengths).astype(int) for name in ("before", "after")}), left_out


def _control_arm(part: pd.DataFrame, qids: set[str], text_field: str) -> list[Arm]:
    """Every second candidate of a few queries, unchanged, in a separate list."""
    by_docno = part.groupby("qid")["docno"].rank(method="first").to_numpy()
    rows = np.flatnonzero(part["qid"].isin(qids).to_numpy() & (by_docno % 2 == 1))
    if not len(rows):
        return []
    return [Arm("control", 0, rows, part[text_field].iloc[rows].tolist(), "control")]


def _context_change(candidates: pd.DataFrame, arms: pd.DataFrame, draws: int) -> float:
    """The largest change of a score in the control lists, as a share of the range of the list's scores; infinite if the
    ranker left out candidates of original or rotated lists."""
    original, control = arms[arms["arm"] == "original"], arms[arms["arm"] == "control"]
    if len(original) < len(candidates) or (arms["arm"] == "rotated").sum() < draws * len(candidates):
        return float("inf")
    return float(score_changes(original, control)["change"].max()) if len(control) else 0.0


def _top(arms: pd.DataFrame, depth: int, relevant: pd.DataFrame | None) -> pd.DataFrame:
    """The rows of lists that figures of measures with a cut-off need; see :meth:`PositionSensitivity.figures`."""
    if relevant is None:
        return top_of_lists(arms, depth)
    own, kept = pair_numbers(arms, relevant)
    return top_of_lists(arms, depth, np.isin(own, kept))
