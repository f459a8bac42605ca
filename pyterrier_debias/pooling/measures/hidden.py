"""HiddenJudgements: hides documents that a pooling system would not have shown, to test which correction works."""

from __future__ import annotations

import copy
import gzip
import json
import logging
import numbers
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias._version import __version__
from pyterrier_debias.core import frames
from pyterrier_debias.core.cache_key import cache_key
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.evaluation import from_grade, parse_measures, per_query
from pyterrier_debias.core.files import read_whole, restore, whole_folder, write_whole
from pyterrier_debias.core.stage import Stage, chain, flatten
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.core.variants import documents_of, with_passages
from pyterrier_debias.pooling.data.relabel import RelabelReranker, apply
from pyterrier_debias.pooling.formulas.negative_weights import emphasis_of
from pyterrier_debias.pooling.measures.hidden_result import BETWEEN, HIDDEN, TRUE, HiddenResult
from pyterrier_debias.pooling.measures.unjudged import own_judgements
from pyterrier_debias.pooling.training.negatives import ExcludeNegatives
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.examples import Examples, run_length
from pyterrier_debias.training.fitting import Fittable
from pyterrier_debias.training.groups import grades, groups_to_fit
from pyterrier_debias.training.options import Training
from pyterrier_debias.training.samplers import ChanceSampler

logger = logging.getLogger(__name__)

#: What can be done with judgements of documents that are not relevant.
NON_RELEVANT = ("shown", "none")

_PAIR = ["qid", "docno"]
#: What the folder of a finished training holds, for messages.
_HOLDS = "a training of a comparison"


def shown_by(
    qrels: pd.DataFrame, run: pd.DataFrame, *, depth: int, per_query: int | None = None, min_label: int = 1
) -> np.ndarray:
    """Find the judgements that a pool would have produced.

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``, one row per pair.
        run: The pooling system's results ``qid``, ``docno``, ``rank`` (from 0).
        depth: How many results of a query labellers look at.
        per_query: After how many relevant documents of a query labellers stop; None for no limit.
        min_label: The lowest grade of a relevant document.

    Returns:
        True for pairs within the depth; of the relevant ones, only for the ``per_query`` best ranked. Shape [rows of qrels].

    Example:
        >>> qrels = pd.DataFrame({"qid": ["q"] * 3, "docno": ["a", "b", "c"], "label": [1, 1, 0]})
        >>> run = pd.DataFrame({"qid": ["q"] * 3, "docno": ["b", "c", "a"], "rank": [0, 1, 2]})
        >>> shown_by(qrels, run, depth=2).tolist()
        [False, True, True]
    """
    rank = qrels[_PAIR].merge(run[[*_PAIR, "rank"]], on=_PAIR, how="left")["rank"].to_numpy(dtype=np.float64)
    shown = rank < depth
    if per_query is not None:
        found = np.flatnonzero(shown & (qrels["label"] >= min_label).to_numpy())
        place = pd.Series(rank[found]).groupby(qrels["qid"].to_numpy()[found]).rank(method="first").to_numpy()
        shown[found[place > per_query]] = False
    return shown


class HiddenJudgements:
    """Hides relevant documents of a deeply judged collection as a pool would, to test corrections of pooling bias.

    Training data come from pools: people judge what a system shows them, and what it did not show counts as irrelevant. Whether a
    correction of this works cannot be seen without the true judgements, which a deeply judged collection has. Here, only those
    relevant documents are kept that a pooling system would have shown, and the others are *hidden*. Rankers are trained on
    the rest, with negatives from a stronger system, which include hidden documents as false negatives, and are evaluated with all
    judgements.

    The protocol is controlled label removal; its plot of the weights (:meth:`HiddenResult.plot_emphasis`) is Figure 5
    of Cai, Guo, Fan, Ai, Zhang and Cheng, "Hard Negatives or False Negatives: Correcting Pooling Bias in Training Neural Ranking
    Models", CIKM 2022.

    In the full judgements, too, unjudged documents count as not relevant. The collection must therefore be judged deeply:
    otherwise "true negatives" contain unknown positives, and full judgements favour the systems from which they were pooled.

    Attributes:
        full: All judgements.
        run: The pooling system's results with ``rank``.

    Args:
        qrels: Deep judgements ``qid``, ``docno``, ``label``.
        pool_run: Results of the pooling system, ``qid``, ``docno`` and ``score`` or ``rank`` (from 0), as deep as available:
            results below ``depth`` are evidence, too (:meth:`evidence`). If there is a score, ranks are computed from it.
        depth: How many results of a query labellers were shown.
        per_query: How many relevant documents a query keeps at most, the best ranked ones; None for all that were shown. A
            small number (MS MARCO: 1) hides documents that the pooling system ranked *high*, after the first.
        min_label: The lowest grade of a relevant document. Lower grades above 0 count neither as hidden positives nor as true
            negatives. Training leaves out those that the pool kept. The others have no judgement there, so they may be drawn as
            negatives, as in practice, also by the oracle (a note says how many there are). Rankers that are compared need the
            same, ``Training(min_label=...)``.
        non_relevant: Which judgements below ``min_label`` are kept: ``'shown'`` keeps those within the depth, ``'none'`` keeps
            none (as in MS MARCO, where it is not known what was shown).

    Raises:
        InputError: For frames that cannot be used, judgements and run of different queries, or if no document is relevant, none
            is kept, or none is hidden.

    When not to use it: on sparsely judged collections (MS MARCO's training set), where "full" judgements lack most relevant
    documents; to choose a correction for a pool other than the simulated one: how documents were hidden decides which
    correction finds them (compare ``per_query=None`` with ``per_query=1``).

    Example:
        >>> qrels = pd.DataFrame({"qid": ["q"] * 3, "docno": ["a", "b", "c"], "label": [1, 1, 0]})
        >>> run = pd.DataFrame({"qid": ["q"] * 3, "docno": ["b", "c", "a"], "score": [3.0, 2.0, 1.0]})
        >>> judgements = HiddenJudgements(qrels, run, depth=2)
        >>> judgements.pooled.values.tolist(), judgements.hidden.values.tolist()
        ([['q', 'b', 1], ['q', 'c', 0]], [['q', 'a', 1, 2.0]])

        With ``train`` and ``test`` candidates of a stronger system:
        ``judgements.compare({'plain': ranker, 'CET': CETReranker(ranker)}, train, test).summary()``.

    .. cite.dblp:: journals/corr/abs-2209-05072
    """

    @frames.reads_frames
    def __init__(
        self,
        qrels: pd.DataFrame,
        pool_run: pd.DataFrame,
        *,
        depth: int = 10,
        per_query: int | None = None,
        min_label: int = 1,
        non_relevant: str = "shown",
    ):
        name = type(self).__name__
        for option, value in (("depth", depth), ("per_query", per_query), ("min_label", min_label)):
            if option != "per_query" or value is not None:
                check_number(name, option, value, least=1, whole=True)
        check_choice(name, "non_relevant", non_relevant, NON_RELEVANT)
        self.depth, self.per_query, self.min_label, self.non_relevant = depth, per_query, min_label, non_relevant
        self.run = _run(pool_run, name)
        self.full = grades(qrels, name)
        frames.check_overlap(self.run, self.full, f"{name}: pool_run")
        relevant = (self.full["label"] >= min_label).to_numpy()
        if not relevant.any():
            raise InputError(f"{name}: no judgement has a label of {min_label} or more; lower min_label")
        self._shown = shown_by(self.full, self.run, depth=depth, per_query=per_query, min_label=min_label)
        if not (self._shown & relevant).any():
            raise InputError(
                f"{name}: the pooling system ranks no relevant document among its first {depth}, so none would be left; raise "
                f"depth, or check that run and judgements name documents alike"
            )
        if self._shown[relevant].all():
            raise InputError(f"{name}: nothing is hidden, because all relevant documents are shown at depth={depth}; lower depth")

    def __repr__(self) -> str:
        """The options and the resulting counts."""
        options = f"depth={self.depth}, per_query={self.per_query}, min_label={self.min_label}"
        return f"<HiddenJudgements({options}): {self.counts['kept']} relevant kept, {self.counts['hidden']} hidden>"

    @cached_property
    def pooled(self) -> pd.DataFrame:
        """The judgements of the pool: ``qid``, ``docno``, ``label``."""
        kept = self._shown & ((self.full["label"] >= self.min_label).to_numpy() | (self.non_relevant == "shown"))
        return self.full[kept].reset_index(drop=True)

    @cached_property
    def hidden(self) -> pd.DataFrame:
        """The hidden relevant documents: ``qid``, ``docno``, ``label``, ``pool_rank`` (NaN if not retrieved)."""
        hidden = self.full[(self.full["label"] >= self.min_label).to_numpy() & ~self._shown]
        ranks = self.run[[*_PAIR, "rank"]].rename(columns={"rank": "pool_rank"}).astype({"pool_rank": "float64"})
        return hidden.merge(ranks, on=_PAIR, how="left").reset_index(drop=True)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many documents were kept and hidden, by name."""
        relevant = self.full[self.full["label"] >= self.min_label]
        kept = self.pooled[self.pooled["label"] >= self.min_label]
        return {
            "queries": relevant["qid"].nunique(),
            "relevant": len(relevant),
            "kept": len(kept),
            "hidden": len(self.hidden),
            "hidden above the depth": int((self.hidden["pool_rank"] < self.depth).sum()),
            "hidden and not retrieved": int(self.hidden["pool_rank"].isna().sum()),
            "non-relevant kept": len(self.pooled) - len(kept),
            "queries without a kept document": relevant["qid"].nunique() - kept["qid"].nunique(),
        }

    @frames.reads_frames
    def evidence(self, candidates: pd.DataFrame) -> pd.DataFrame:
        """Add the pooling system's evidence to candidates of another system.

        Args:
            candidates: A frame with ``qid`` and ``docno``.

        Returns:
            The same rows with ``pool_score`` and ``pool_rank`` (from 0), float64; NaN if the pooling system did not retrieve
            the pair. Passages (``d7%p0``) get the values of their document. Older columns of these names are replaced.

        Example:
            ``train = judgements.evidence((dense >> AddJudged(judgements.pooled) >> texts)(topics))``
        """
        context: Any = self  # PyTerrier does no more with it than to print it
        pt.validate.columns(candidates, includes=_PAIR, context=context)
        rows = frames.with_string_ids(candidates, self)
        columns = {"score": "pool_score", "rank": "pool_rank"}
        known = self.run.rename(columns=columns)[[*_PAIR, *columns.values()]]
        pairs = pd.DataFrame({"qid": rows["qid"].to_numpy(), "docno": documents_of(rows["docno"], self.run["docno"])})
        found = pairs.merge(known, on=_PAIR, how="left")
        return rows.assign(**{name: found[name].to_numpy(dtype=np.float64) for name in columns.values()})

    @frames.reads_frames
    @gathered()
    def compare(
        self,
        corrections: Mapping[str, Any],
        train: pd.DataFrame,
        test: pd.DataFrame,
        *,
        seeds: Sequence[int] = (0, 1, 2),
        baseline: str = "plain",
        oracle: str | None = "oracle",
        full: str | None = None,
        validation: pd.DataFrame | None = None,
        measures: Sequence[Any] | None = None,
        checkpoint: str | Path | None = None,
        level: float = 0.95,
        resamples: int = 2000,
        verbose: bool = False,
    ) -> HiddenResult:
        """Train with every correction on the pooled judgements, and evaluate with all judgements.

        The fitted stage of a correction is copied for each seed; stages before it, judges and scorers are shared. The seed is set
        in its ``Training`` and, if a ranker initialises a new head, in the ranker. A correction that wraps a ranker and has no
        ``training`` of its own uses the ranker's. Validation, if any, uses pooled judgements too, since in practice there are no
        others.

        Args:
            corrections: Names, and what is fitted: a ranker (with another sampler, loss or weights in its ``training``), a
                ``CETReranker``, a ``RelabelReranker``, or a pipeline that ends in one of these and otherwise adds columns, such
                as ``AddScores(teacher) >> ranker``.
            train: Candidates of the training queries from a stronger system: ``qid``, ``docno``, ``query``, the text, and
                the kept positives (``AddJudged(judgements.pooled)``; never ``AddJudged`` of all judgements, which would put
                hidden documents where no system found them).
            test: Candidates of the test queries. If they are passages, a document has the score of its best one.
            seeds: Seeds of the trainings; each correction is trained once with each.
            baseline: Name of the plain training, with which all corrections are compared.
            oracle: Name of a training like the baseline's in which no hidden document is drawn as a negative, or is an in-batch
                negative of its query. It has as many steps, but leaves out queries without a true negative, with a note. It is
                made from the baseline, unless ``corrections`` has this name; None for no oracle.
            full: Name of a training like the baseline's on all judgements (of the same candidates); None for none. Hidden
                documents are positives there, so do not expect a correction of negatives to reach it.
            validation: Candidates of further queries, used to select the best checkpoint; None for no validation.
            measures: ir_measures objects or names; summaries show the first one. None for ``nDCG@10``, ``RR@10`` and
                ``R@10``; the last two count documents of at least grade ``min_label`` (``RR(rel=2)@10`` for 2).
            checkpoint: Folder for the result of each finished training, so that an interrupted comparison can be resumed.
                None saves nothing. The cache key of a training consists of its data, the measures and all parts of its
                correction, including functions and scorers; a measure or correction without a cache key is an error.
                A ``Training(checkpoints=folder)`` saves more, so that each training can be resumed, too: it gets a folder of its
                own in that folder.
            level: Coverage of the intervals.
            resamples: Number of bootstrap samples.
            verbose: Whether to show progress.

        Returns:
            The result.

        Raises:
            InputError: For an option out of range, a baseline that is not among the corrections, queries in both training and
                test, frames that cannot be used, or corrections that cannot be fitted, that have a different ``min_label``, or
                that have no cache key although ``checkpoint`` is given (measures need one, too).
        """
        name = type(self).__name__
        check_number(name, "level", level, above=0, most=0.9999)
        check_number(name, "resamples", resamples, least=1, whole=True)
        self._check_names(corrections, baseline, oracle, full)
        if isinstance(seeds, (str, numbers.Number)):
            raise InputError(f"{name}: seeds={seeds!r} must be a list of numbers, e.g. seeds=(0, 1, 2)")
        seeds = [seed.item() if isinstance(seed, np.generic) else seed for seed in seeds]
        if not seeds or len(set(seeds)) != len(seeds):
            raise InputError(f"{name}: seeds={seeds!r} must be different numbers, at least one")
        parsed = self._measures(measures)
        if not parsed:
            raise InputError(f"{name}: measures is empty; give at least one, e.g. 'nDCG@10'")
        given = {"train": train, "test": test, **({} if validation is None else {"validation": validation})}
        given = {what: self._candidates(frame, what) for what, frame in given.items()}
        self._apart(given)
        tested = self._tested(given["test"], self.full)
        if not tested:
            raise InputError(
                f"{name}: no test query has a document with a label of {self.min_label} or more; give test queries that have one"
            )
        # Evaluate one query first: a measure that needs more than identifiers and scores raises its error before any training.
        per_query(given["test"].assign(score=0.0), self.full, parsed, tested[:1])
        kinds = self._kinds(given["train"])
        arms = self._arms(corrections, baseline, oracle, full)
        notes = self._notes(given["train"], kinds, arms)
        for measure in filter(own_judgements, parsed):
            notes.append(f"{measure} holds judgements of its own: its values on full and on pooled judgements are the same.")
            logger.warning("%s: %s", name, notes[-1])
        # Before any training, since not all measures and corrections have a cache key.
        data = "" if checkpoint is None else self._fingerprint(given, parsed)
        known = {arm.name: None if checkpoint is None else cache_key(arm.estimator, exact=True) for arm in arms}
        results, todo = [], [(seed, arm) for seed in seeds for arm in arms]
        for seed, arm in pt.tqdm(todo, desc=name, unit="training", disable=not verbose):
            make = partial(self._carry_out, arm, seed, given, parsed, kinds)
            made = _kept(checkpoint, arm, known[arm.name], seed, data, make)
            results.append({what: frame.assign(correction=arm.name, seed=seed) for what, frame in made.items()})
        tables = {what: pd.concat([result[what] for result in results], ignore_index=True) for what in results[0]}
        negatives = tables["negatives"].merge(kinds, on=_PAIR, how="left")
        used = negatives.groupby("correction")["qid"].nunique()
        for arm in arms:
            if arm.clean and used[arm.name] < used[baseline]:
                notes.append(
                    f"{used[baseline] - used[arm.name]} of {used[baseline]} training queries have no true negative among their "
                    f"candidates: {arm.name} is trained without them, for as many steps as {baseline}."
                )
                logger.warning("%s: %s", name, notes[-1])
        silent = [one.name for one in arms if negatives.loc[negatives["correction"] == one.name, "emphasis"].isna().any()]
        if silent:
            notes.append(f"Not reported for {', '.join(silent)}: how much each candidate counts as a negative.")
        return HiddenResult(
            per_query=tables["per_query"],
            negatives=negatives,
            costs=tables["costs"],
            corrections=[arm.name for arm in arms],
            baseline=baseline,
            oracle=oracle,
            counts={**self.counts, **self._sizes(given, kinds)},
            notes=tuple(notes),
            level=level,
            resamples=resamples,
            full=full,
        )

    # What is compared

    def _check_names(self, corrections: Any, baseline: str, oracle: str | None, full: str | None) -> None:
        name = type(self).__name__
        if not isinstance(corrections, Mapping):
            raise InputError(
                f"{name}: corrections is {kind_of(corrections)}; give names to what is fitted, e.g. {{'plain': ranker}}"
            )
        options = {option: value for option, value in (("baseline", baseline), ("oracle", oracle), ("full", full)) if value}
        if len(set(options.values())) < len(options):
            told = ", ".join(f"{option}={value!r}" for option, value in options.items())
            raise InputError(f"{name}: {told} must be different names; give each its own, or None for no such training")

    def _arms(
        self, corrections: Mapping[str, Any], baseline: str, oracle: str | None, full: str | None
    ) -> list[_Arm]:
        name = type(self).__name__
        if baseline not in corrections:
            raise InputError(
                f"{name}: baseline={baseline!r} is not among the corrections ({', '.join(corrections) or 'none'}); add the plain "
                f"ranker under this name"
            )
        for what, estimator in corrections.items():
            *earlier, last = flatten(estimator)
            if not hasattr(last, "fit"):
                raise InputError(f"{name}: correction {what!r} ends in {kind_of(last)}, which has no fit()")
            unfit = [type(stage).__name__ for stage in earlier if hasattr(stage, "fit")]
            if unfit:
                raise InputError(
                    f"{name}: correction {what!r} has a {unfit[0]} before its last stage, which would have to be fitted too; fit "
                    f"it first and wrap it, e.g. in pt.apply.generic(fitted)"
                )
            training = _training(last)
            if training is not None and training.min_label != self.min_label:
                raise InputError(
                    f"{name}: correction {what!r} trains with min_label={training.min_label}, while documents of "
                    f"min_label={self.min_label} are hidden; give it training=Training(min_label={self.min_label}, ...), or make "
                    f"HiddenJudgements(min_label={training.min_label})"
                )
        arms = [_Arm(what, estimator) for what, estimator in corrections.items()]
        base = corrections[baseline]
        if full is not None and full not in corrections:
            arms.insert(list(corrections).index(baseline) + 1, _Arm(full, base, judgements="full"))
        if oracle is not None and oracle not in corrections:
            arms.insert(list(corrections).index(baseline) + 1, _Arm(oracle, self._oracle(base), clean=True))
        return arms

    def _measures(self, measures: Sequence[Any] | None) -> list[Any]:
        """The measures; a warning names those with a minimum grade other than that of hidden documents."""
        if measures is None:
            return parse_measures(["nDCG@10", *(from_grade(one, self.min_label) for one in ("RR@10", "R@10"))])
        parsed = parse_measures(measures)
        # Some measures have no minimum grade, or one that has no meaning unless it is given.
        counted = {str(one): one["rel"] for one in parsed if "rel" in getattr(one, "SUPPORTED_PARAMS", ())}
        others = [one for one, grade in counted.items() if isinstance(grade, int) and grade != self.min_label]
        if others:
            logger.warning(
                "%s: %s count documents as relevant from another grade than min_label=%d; write rel=%d in their names, e.g. "
                "RR(rel=%d)@10",
                type(self).__name__,
                ", ".join(others),
                *[self.min_label] * 3,
            )
        return parsed

    def _oracle(self, base: Any) -> Any:
        """The baseline, with a sampler that excludes hidden documents and their passages, whichever query retrieved them."""
        oracle = _copied(base)
        last = flatten(oracle)[-1]
        if not isinstance(last, Fittable):
            raise InputError(
                f"{type(self).__name__}: an oracle cannot be made from {kind_of(last)}; give one in corrections, under "
                f"the name in oracle=, or set oracle=None"
            )
        training = last.training if last.training is not None else Training()
        negatives = cast(ChanceSampler, training.negatives)  # looked at there
        last.training = replace(training, negatives=ExcludeNegatives(self.hidden[_PAIR], negatives))
        return oracle

    def _candidates(self, frame: pd.DataFrame, what: str) -> pd.DataFrame:
        name: Any = f"{type(self).__name__}, {what}"
        pt.validate.columns(frame, includes=[*_PAIR, "query"], context=name)
        if len(frame) == 0:
            raise InputError(f"{name}: there are no candidates")
        rows = frames.with_string_ids(frame, name)
        frames.check_pairs(rows, name)
        frames.check_overlap(rows, self.full if what == "test" else self.pooled, name)
        return rows

    def _apart(self, given: Mapping[str, pd.DataFrame]) -> None:
        qids = {what: set(frame["qid"]) for what, frame in given.items()}
        for one, other in (("train", "test"), ("train", "validation"), ("validation", "test")):
            shared = qids.get(one, set()) & qids.get(other, set())
            if shared:
                raise InputError(
                    f"{type(self).__name__}: {len(shared)} queries are in both {one} and {other}, e.g. {min(shared)!r}; split "
                    f"them"
                )

    def _kinds(self, train: pd.DataFrame) -> pd.DataFrame:
        """The kind of each candidate by all judgements: ``qid``, ``docno``, ``kind``; without those kept as relevant by the pool.

        Passages have their document's grade, as in training.
        """
        full, pooled = (with_passages(judged, train) for judged in (self.full, self.pooled))
        labels = train[_PAIR].merge(full, on=_PAIR, how="left")["label"].fillna(0).to_numpy()
        kept = pooled.loc[pooled["label"] > 0, _PAIR].assign(kept=True)
        known = train[_PAIR].merge(kept, on=_PAIR, how="left")["kept"].notna().to_numpy()
        kind = np.where(labels >= self.min_label, HIDDEN, np.where(labels > 0, BETWEEN, TRUE))
        return train[_PAIR].assign(kind=kind)[~known].reset_index(drop=True)

    def _notes(self, train: pd.DataFrame, kinds: pd.DataFrame, arms: Sequence[_Arm]) -> list[str]:
        notes = ["Unjudged documents count as not relevant, in full judgements too, so these must be deep."]
        missing = sorted(set(train["qid"]) - set(self.run["qid"]))
        if missing:
            notes.append(
                f"{len(missing)} training queries are not in the pooling system's run: all their relevant documents are hidden."
            )
        hidden = train.merge(kinds[kinds["kind"] == HIDDEN], on=_PAIR)
        if "score" in train.columns and hidden["score"].isna().any():
            notes.append(
                f"{int(hidden['score'].isna().sum())} hidden documents among the training candidates have no score; were they "
                f"added by AddJudged? Give it the pooled judgements only."
            )
        between = int((kinds["kind"] == BETWEEN).sum())
        if between:
            notes.append(
                f"{between} training candidates have a grade above 0 and below min_label={self.min_label} that the pool did not "
                f"keep: trainings on its judgements may draw them as negatives, the oracle too. Figures of false negatives leave "
                f"them out; result.negatives says how often each was drawn."
            )
        used = {arm.name: _training(flatten(arm.estimator)[-1]) for arm in arms}
        in_batch = [name for name, training in used.items() if training is not None and training.in_batch_negatives]
        if hidden.empty:
            but = ", except in-batch negatives" if in_batch else ""
            notes.append(
                f"No hidden document is among its query's training candidates, so there are no false negatives to correct{but}."
            )
        for note in notes[1:]:
            logger.warning("%s: %s", type(self).__name__, note)
        if in_batch:
            notes.append(
                f"In-batch negatives of {', '.join(in_batch)} are not counted: drawn, weights and AUC are about the negatives "
                f"that each query draws from its own candidates."
            )
        return notes

    def _sizes(self, given: Mapping[str, pd.DataFrame], kinds: pd.DataFrame) -> dict[str, int]:
        return {
            "training queries": given["train"]["qid"].nunique(),
            "training candidates": len(given["train"]),
            "hidden among them": int((kinds["kind"] == HIDDEN).sum()),
            "test queries": len(self._tested(given["test"], self.full)),
            "test queries with a kept document": len(self._tested(given["test"], self.pooled)),
        }

    def _tested(self, test: pd.DataFrame, qrels: pd.DataFrame) -> list[str]:
        """The test queries that have a relevant document."""
        relevant = set(qrels.loc[qrels["label"] >= self.min_label, "qid"])
        return sorted(set(test["qid"]) & relevant)

    # One training

    def _carry_out(
        self, arm: _Arm, seed: int, given: Mapping[str, pd.DataFrame], measures: Sequence[Any], kinds: pd.DataFrame
    ) -> dict[str, pd.DataFrame]:
        started = time.monotonic()
        estimator = seeded(arm.estimator, seed)
        qrels = self.full if arm.judgements == "full" else self.pooled
        *earlier, last = flatten(estimator)
        before = chain(earlier)
        _checkpoints_within(last, f"{_slug(arm.name, seed)}-{blake2b(arm.name.encode(), digest_size=4).hexdigest()}")

        def prepared(what: str) -> pd.DataFrame:
            return given[what] if before is None else before(given[what])

        train = prepared("train")
        if arm.clean:
            train = _cleaned(last, train, qrels, kinds, type(self).__name__)
        validation = (prepared("validation"), qrels) if "validation" in given else (None, None)
        cast(pt.Estimator, last).fit(train, qrels, *validation)
        run = last.transform(prepared("test"))
        frames.check_scores(run, f"{type(self).__name__}: {arm.name}")
        return {
            "per_query": self._measured(run, given["test"], measures),
            "negatives": _over(kinds[_PAIR], told(last, train, qrels)),
            "costs": pd.DataFrame({"seconds": [round(time.monotonic() - started, 2)]}),
        }

    def _measured(self, run: pd.DataFrame, test: pd.DataFrame, measures: Sequence[Any]) -> pd.DataFrame:
        """The measures over documents, each with the score of its best passage."""
        documents = documents_of(run["docno"], self.full["docno"])
        if (documents != run["docno"].to_numpy()).any():
            run = run.assign(docno=documents).groupby(_PAIR, sort=False, as_index=False)["score"].max()
        parts = []
        for judgements, qrels in (("full", self.full), ("pooled", self.pooled)):
            qids = self._tested(test, qrels)
            if not qids:
                continue
            found = per_query(run, qrels, measures, qids).reset_index()
            parts.append(found.melt("qid", var_name="measure", value_name="value").assign(judgements=judgements))
        return pd.concat(parts, ignore_index=True)[["qid", "judgements", "measure", "value"]]

    def _fingerprint(self, given: Mapping[str, pd.DataFrame], measures: Sequence[Any]) -> str:
        # The name of a measure does not tell all its parameters: it may hold judgements.
        known = [[str(one), one.params] for one in measures]
        options = f"{__version__} {self.min_label} {json.dumps(cache_key(known, exact=True), sort_keys=True)}"
        content = [frames.frame_digest(frame) for frame in (self.full, self.pooled)]
        content += [f"{what} {frames.frame_digest(frame)}" for what, frame in sorted(given.items())]
        return " ".join([options, *content])


@dataclass(frozen=True)
class _Arm:
    """One training: what is fitted, and on which judgements; ``clean`` leaves out queries that have no true negative."""

    name: str
    estimator: Any
    judgements: str = "pooled"
    clean: bool = False


def _run(run: pd.DataFrame, name: Any) -> pd.DataFrame:
    """The checked run, with ranks."""
    pt.validate.columns(run, includes=_PAIR, context=name)
    rows = frames.with_string_ids(run, f"{name}, pool_run")
    if "score" in rows.columns:
        return frames.ranked(rows[[*_PAIR, "score"]], f"{name}: pool_run")
    if "rank" not in rows.columns:
        raise InputError(f"{name}: pool_run has no column 'score' or 'rank'; give the pooling system's results with either")
    frames.check_scores(rows, f"{name}: pool_run", "rank")
    return frames.ranked(rows[_PAIR].assign(score=-pd.to_numeric(rows["rank"]).astype("float64")), f"{name}: pool_run")


def seeded(estimator: Any, seed: int) -> Any:
    """Copy an estimator, and set another seed.

    Args:
        estimator: A ranker, a correction that wraps one, or a pipeline of such stages.
        seed: The seed for the ``Training`` of the fitted stage (a correction without one uses its ranker's), and the ``seed``
            of rankers whose weights are not trained yet. The seed of a selection ranker (``CETReranker(selection=...)``) keeps
            its distance from that of the first.

    Returns:
        The copy.
    """
    made = _copied(estimator)
    _seed(flatten(made)[-1], seed)
    return made


def _copied(estimator: Any) -> Any:
    """A copy of the fitted stage; the stages before it are shared, since those with a Java object cannot be copied."""
    *earlier, last = flatten(estimator)
    return chain([*earlier, copy.deepcopy(last)])


def _seed(stage: Any, seed: int) -> None:
    options = stage.options() if isinstance(stage, Stage) else {}
    own = getattr(stage, "training", False)
    if isinstance(stage, TrainedRanker):
        # The options that the stage uses: its own, otherwise its ranker's.
        own, stage.ranker = stage.training_options(), stage.base()
    if own is None or isinstance(own, Training):
        stage.training = replace(own if own is not None else Training(), seed=seed)
    if "seed" in options and not (isinstance(stage, Ranker) and stage.altered()):
        stage.seed = seed
    inner, second = (getattr(stage, name) if name in options else None for name in ("ranker", "selection"))
    if isinstance(second, Ranker) and hasattr(second, "seed"):
        # Keep the distance between the seeds of two new heads.
        _seed(second, second.seed + seed - getattr(inner, "seed", 0))
    if inner is not None:
        _seed(inner, seed)


def _checkpoints_within(stage: Any, folder: str) -> None:
    """Put the checkpoints of a stage's trainings into a folder of this name in theirs, which holds those of one training only."""
    for name, value in list(vars(stage).items()):
        if isinstance(value, Training) and value.checkpoints is not None:
            setattr(stage, name, replace(value, checkpoints=Path(value.checkpoints) / folder))
        elif name == "ranker" and isinstance(value, Stage):
            _checkpoints_within(value, folder)


def _over(pairs: pd.DataFrame, negatives: pd.DataFrame) -> pd.DataFrame:
    """The frame of :func:`told`, extended to all candidates of the training queries.

    A candidate that is not a negative in the training (relabelled, dropped, or relevant by all judgements) counts as 0.
    """
    found = pairs.merge(negatives, on=_PAIR, how="left")
    if not len(negatives):
        return found
    found = found[found["qid"].isin(set(negatives["qid"]))].reset_index(drop=True)
    unseen = found["positives"].isna()
    for column in ("emphasis", "drawn"):
        if negatives[column].notna().all():
            found.loc[unseen, column] = 0.0
    positives = negatives.groupby("qid")["positives"].max()
    return found.assign(positives=found["qid"].map(positives).astype("float64"))


def told(stage: Any, train: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """Report how a fitted stage used its candidates as negatives.

    Args:
        stage: The stage.
        train: The candidates on which it was fitted.
        qrels: The judgements on which it was fitted.

    Returns:
        A frame ``qid``, ``docno``, ``emphasis`` (mean over positives; NaN if the stage does not report it), ``positives`` (number
        for the query), ``drawn`` (how often the candidate was drawn as a negative; NaN if unknown).
    """
    columns = [*_PAIR, "emphasis", "positives", "drawn"]
    training = _training(stage)
    sampler = training.negatives if training is not None and training.negatives_per_positive else None
    tells = hasattr(stage, "emphasis") or hasattr(sampler, "chances")
    drawn = _draws(stage, train, qrels)
    if tells:
        found = emphasis_of(stage, train, qrels)
        by_pair = found.groupby(_PAIR, sort=True).agg(emphasis=("emphasis", "mean"), positives=("positive", "nunique"))
        frame = by_pair.reset_index()
    elif drawn is not None:
        frame = drawn[_PAIR].assign(emphasis=np.nan, positives=drawn["positives"])
    else:
        return pd.DataFrame(columns=columns).astype({"emphasis": "float64", "positives": "float64", "drawn": "float64"})
    if drawn is None:
        return frame.assign(drawn=np.nan)[columns]
    merged = frame.merge(drawn[[*_PAIR, "drawn"]], on=_PAIR, how="left")
    return merged.assign(drawn=merged["drawn"].fillna(0.0))[columns]


def _training(stage: Any) -> Training | None:
    """The ``Training`` that a stage uses in a comparison; None if it does not use this class."""
    if isinstance(stage, TrainedRanker):
        return stage.own_training()
    for one in (stage, getattr(stage, "ranker", None)):
        own = getattr(one, "training", None)
        if isinstance(own, Training):
            return own
    return Training() if getattr(stage, "training", False) is None or hasattr(stage, "text_columns") else None


def _cleaned(stage: Any, train: pd.DataFrame, qrels: pd.DataFrame, kinds: pd.DataFrame, name: str) -> pd.DataFrame:
    """The candidates of queries with a true negative that has text; an oracle has nothing to draw for the others.

    The stage is told to train for as many steps as on all queries.
    """
    training = _training(stage) or Training()
    if not training.negatives_per_positive:
        return train
    groups = groups_to_fit(stage, training, train, qrels, stage=stage)
    true, docnos = set(kinds.loc[kinds["kind"] == TRUE, _PAIR].itertuples(index=False, name=None)), groups.column("docno")
    kept = {group.qid for group in groups.groups if any((group.qid, docnos[row]) in true for row in group.pool.tolist())}
    if not kept:
        raise InputError(
            f"{name}: no training query has a negative with text that no judgement calls relevant, so an oracle has nothing to "
            f"train on; give more candidates, or oracle=None"
        )
    if len(kept) < len(groups):
        stage.training = replace(training, max_steps=run_length(training, len(Examples(groups, training, 0).units))[0])
    return train[train["qid"].isin(kept)].reset_index(drop=True)


def _draws(stage: Any, train: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame | None:
    """How often each candidate was drawn as a negative, found by drawing the examples again, which the seed determines."""
    training, report = _training(stage), getattr(stage, "training_report", None)
    if training is None or report is None or not hasattr(stage, "text_columns"):
        return None
    if isinstance(stage, RelabelReranker):
        train, qrels = apply(train, qrels, stage.relabelled, label=training.min_label)
    groups = groups_to_fit(stage, training, train, qrels, stage=stage)
    length = report.steps * training.batch_size * training.accumulation
    examples = Examples(groups, replace(training, augment=None, weights=None), length)
    times = np.zeros(len(groups.rows))
    for position in range(length):
        example = examples[position]
        np.add.at(times, example.rows[example.labels <= 0], 1)
    pools = [(group.qid, row, len(group.positives)) for group in groups.groups for row in group.pool.tolist()]
    docnos = groups.column("docno")
    return pd.DataFrame(
        [(qid, docnos[row], positives, times[row]) for qid, row, positives in pools],
        columns=[*_PAIR, "positives", "drawn"],
    )


# What was done before


def _kept(
    checkpoint: str | Path | None, arm: _Arm, known: Any, seed: int, data: str, make: Any
) -> dict[str, pd.DataFrame]:
    """The result of a training: read from its folder if it is complete there, otherwise computed and written."""
    if checkpoint is None:
        return make()
    record = {"name": arm.name, "seed": seed, "judgements": arm.judgements, "estimator": known, "data": data}
    key = blake2b(json.dumps(record, sort_keys=True).encode(), digest_size=8).hexdigest()
    folder = Path(checkpoint).expanduser() / f"{_slug(arm.name, seed)}-{key}"
    names = ("per_query", "negatives", "costs")
    restore(folder)
    if not (folder / "arm.json").is_file():
        # No other process uses the folder during the training, which may take hours.
        with whole_folder(folder, holds=_HOLDS, overwrite=True) as scratch:
            made = make()
            for name in names:
                write_whole(scratch / f"{name}.csv.gz", gzip.compress(made[name].to_csv(index=False).encode(), mtime=0))
            write_whole(scratch / "arm.json", json.dumps(record, indent=1, sort_keys=True) + "\n")
    # Read in both cases, so that a resumed comparison gives the same result as an uninterrupted one.
    return read_whole(folder, lambda: {name: _read(folder / f"{name}.csv.gz") for name in names})


def _slug(name: str, seed: int) -> str:
    """A training as part of a file name, which has at most 255 bytes; a key behind it must distinguish long names."""
    return re.sub(r"[^\w.]+", "_", f"{name[:60]}-{seed}")


def _read(path: Path) -> pd.DataFrame:
    """Read a table exactly as written, to the last digit, which pandas' parser of numbers does not guarantee in all versions."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    numbers = [name for name in ("emphasis", "positives", "drawn", "value", "seconds") if name in table.columns]
    return table.assign(**{name: table[name].replace("", "nan").astype("float64") for name in numbers})
