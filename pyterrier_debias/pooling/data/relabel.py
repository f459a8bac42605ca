"""RelabelReranker: asks a judge about unlabelled candidates before training on them."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.counterfactuals import scores_by
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.variants import with_passages
from pyterrier_debias.pooling.formulas.negative_weights import COLUMNS, pool_chances
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.fitting import Fittable, check_fit
from pyterrier_debias.training.groups import grades, groups_to_fit
from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: What can be done with a candidate that the judge considers relevant.
ACTIONS = ("relabel", "drop")

#: Columns of the frame of changes.
CHANGES = ["qid", "docno", "score", "action"]

#: The file of changes in a saved folder.
_CHANGED = "pyterrier_debias_relabelled.csv"

#: ``judge(frame)`` returns one number per row.
Judge = Callable[[pd.DataFrame], Any]


@frames.reads_frames
def relabel(
    candidates: pd.DataFrame,
    qrels: pd.DataFrame,
    judge: Judge | pt.Transformer,
    *,
    action: str = "relabel",
    threshold: float = 0.5,
    depth: int | None = None,
    label: int = 1,
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Show unjudged candidates to a judge, and make those that it considers relevant positives, or remove them.

    Only queries with judgements are considered; judged pairs, whatever their grade, are neither shown nor changed. Passages of a
    judged document count as judged, with its grade; see :func:`~pyterrier_debias.training.groups.make_groups`.

    Args:
        candidates: Candidates ``qid``, ``docno``, and the columns that the judge reads; ``rank`` (from 0) if ``depth`` is given.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        judge: A function from a frame of candidates to one number per row, or a transformer whose scores are these numbers. A
            Series is matched by the frame's index, anything else by the frame's order.
        action: ``'relabel'`` adds judgements, ``'drop'`` removes candidates.
        threshold: The lowest number of a relevant document.
        depth: How many of a query's candidates are shown, by rank; None for all.
        label: The grade given to relabelled candidates.

    Returns:
        The candidates, the judgements, and the changes: ``qid``, ``docno``, ``score`` (the judge's number), ``action``.

    Raises:
        InputError: For an unknown option, or a judge that does not return one number per row.

    Example:
        >>> found = pd.DataFrame({"qid": ["1", "1", "1"], "docno": ["d1", "d2", "d3"]})
        >>> qrels = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "label": [1]})
        >>> _, qrels, changes = relabel(found, qrels, lambda frame: frame["docno"] == "d3")
        >>> qrels.values.tolist(), changes.values.tolist()
        ([['1', 'd1', 1], ['1', 'd3', 1]], [['1', 'd3', 1.0, 'relabel']])
    """
    check_judge("relabel", judge)
    check_options("relabel", action, threshold, depth)
    context: Any = "relabel"  # printed only
    pt.validate.columns(candidates, includes=["qid", "docno", *(["rank"] if depth is not None else [])], context=context)
    rows, judged = frames.with_string_ids(candidates, "relabel"), grades(qrels, "relabel")
    frames.check_pairs(rows, "relabel")
    inherited = with_passages(judged, rows)
    known, asked = set(zip(inherited["qid"], inherited["docno"])), set(judged["qid"])
    shown = np.array([qid in asked and (qid, docno) not in known for qid, docno in zip(rows["qid"], rows["docno"])], dtype=bool)
    if depth is not None:
        shown &= (rows["rank"] < depth).to_numpy(dtype=bool)
    scores = np.full(len(rows), -np.inf)
    scores[shown] = _judged(judge, rows[shown].reset_index(drop=True))
    changed = shown & (scores >= threshold)
    changes = rows.loc[changed, ["qid", "docno"]].assign(score=scores[changed], action=action).reset_index(drop=True)
    return (*apply(candidates, qrels, changes, label=label), changes)


@frames.reads_frames
def apply(
    candidates: pd.DataFrame, qrels: pd.DataFrame, changes: pd.DataFrame, *, label: int = 1
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Apply changes that :func:`relabel` decided before.

    Args:
        candidates: Candidates ``qid``, ``docno``.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        changes: ``qid``, ``docno``, ``action``, see :func:`relabel`.
        label: The grade given to relabelled candidates.

    Returns:
        The new candidates and judgements; the frames that you pass in are not changed.
    """
    dropped = set(changes.loc[changes["action"] == "drop", ["qid", "docno"]].itertuples(index=False, name=None))
    added = changes.loc[changes["action"] == "relabel", ["qid", "docno"]].assign(label=label)
    if dropped:
        keep = np.array([pair not in dropped for pair in zip(candidates["qid"], candidates["docno"])], dtype=bool)
        candidates = candidates[keep].reset_index(drop=True)
    if len(added):
        # A passage with its own judgement inherits none, in any query: judgements inherited in other queries are made explicit.
        relabelled = candidates[candidates["docno"].isin(set(added["docno"]))]
        qrels = pd.concat([with_passages(grades(qrels, "relabel"), relabelled), added], ignore_index=True)
    return candidates, qrels


def check_judge(name: str, judge: Any) -> None:
    """Raise an error for a judge that cannot be called; see :func:`relabel`.

    Raises:
        InputError: If it is neither a function nor a transformer.
    """
    if not callable(judge):
        raise InputError(f"{name}: judge is {kind_of(judge)}; give a function from a frame to numbers, or a transformer")


def check_options(name: str, action: str, threshold: float, depth: int | None) -> None:
    """Check the options; see :func:`relabel`.

    Raises:
        InputError: For an option that cannot be used; the message says what is allowed.
    """
    check_choice(name, "action", action, ACTIONS)
    check_number(name, "threshold", threshold)
    if depth is not None:
        check_number(name, "depth", depth, least=1, whole=True, hint="None means all candidates")


def _judged(judge: Judge | pt.Transformer, frame: pd.DataFrame) -> np.ndarray:
    """The judge's checked numbers."""
    if len(frame) == 0:
        return np.empty(0)
    if isinstance(judge, pt.Transformer):
        return scores_by(judge, frame, "relabel")
    shown = frame.copy()
    answer = judge(shown)
    if not isinstance(answer, pd.Series) and not shown.index.equals(frame.index):
        raise InputError(
            "relabel: the judge sorts, adds or removes rows of the frame that it is given; let it change a copy, e.g. "
            "frame.sort_values('docno'), and return one number per row in the given order"
        )
    if isinstance(answer, pd.Series) and len(answer) == len(frame):
        # The judge may have sorted the rows; pandas restores the order by the index.
        if set(answer.index) != set(frame.index):
            raise InputError(
                "relabel: the judge's answer is a Series with another index than the frame's; keep the index of the frame, or "
                "give the numbers in its order with .to_numpy()"
            )
        answer = answer.reindex(frame.index)
    try:
        numbers = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"relabel: the judge's answer holds no numbers ({error}); it must have one per row") from error
    if numbers.shape != (len(frame),):
        raise InputError(
            f"relabel: the judge got {len(frame)} rows and returned shape {numbers.shape}; it must return one number per row"
        )
    missing = np.flatnonzero(np.isnan(numbers))
    if len(missing):
        first = frame.iloc[missing[0]]
        raise InputError(
            f"relabel: the judge's answer is NaN or None in {len(missing)} of {len(frame)} rows, first for qid={first['qid']!r}, "
            f"docno={first['docno']!r}; where it has no answer, let it return a number below the threshold"
        )
    return numbers


class RelabelReranker(TrainedRanker):
    """Trains a ranker after a judge, such as an LLM, has relabelled or dropped unlabelled candidates that it finds relevant.

    :meth:`fit` shows the unjudged candidates of the training queries to the judge. Those at or above the threshold become
    positives (``action='relabel'``) or are removed from the negatives (``'drop'``); then a copy of the ranker is trained on the
    result. The ranker that you pass in is not changed; fitting again asks the judge again and continues from the fitted weights.
    Validation data are not changed.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Thakur, Zhang, Ma and Lin, "Hard Negatives, Hard Lessons: Revisiting Training Data Quality for Robust Information
    Retrieval with LLMs" (RLHN), 2025, arXiv 2505.16967, who let LLMs judge hard negatives and find relabelling better than
    dropping.

    It assumes that the judge is right more often than the missing label, and for reasons other than the ranker's own.
    **Circularity:** a judge that is the ranker itself, its teacher, or a model of the same family passes on its own preferences
    as truth; test judgements of the same kind would then confirm them. Use a judge that differs from the ranker, and test on
    human judgements.

    Attributes:
        relabelled: The changes: ``qid``, ``docno``, ``score`` (the judge's number), ``action``; None before :meth:`fit`. They are
            kept if training fails after the judge has answered.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: if the judge is the ranker (see above); if judging every candidate costs more than labelling some
    (use ``depth``); if many of a query's candidates are relevant and ``'drop'`` would leave only easy ones.

    Example:
        ``judged = RelabelReranker(CrossEncoder(model), judge=llm_judge, depth=20)``,
        ``(bm25 >> AddJudged(qrels) >> texts >> judged).fit(topics, qrels)``, with
        ``def llm_judge(frame): return [ask(q, t) for q, t in zip(frame['query'], frame['text'])]``.

    .. cite.dblp:: journals/corr/abs-2505-16967
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Relabel", "help_url": None}

    relabelled: pd.DataFrame | None = None

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        judge: Judge | pt.Transformer,
        *,
        action: str = "relabel",
        threshold: float = 0.5,
        depth: int | None = None,
        training: Training | None = None,
    ):
        """
        Args:
            ranker: The ranker to train, of any class with ``fit``.
            judge: A function from a frame of candidates (with all their columns) to one number per row, or a transformer, e.g.
                another ranker, whose scores are these numbers. A Series is matched by the frame's index, anything else by the
                frame's order. To pickle the stage, a function must be defined at the top level of a module.
            action: ``'relabel'`` makes relevant candidates positives, ``'drop'`` removes them.
            threshold: The lowest number of a relevant document. For a ranker that returns logits, 0 is a probability of .5.
            depth: How many of a query's candidates are shown to the judge, by rank; None for all.
            training: How ``fit`` trains; None for the ranker's own ``training``. Its ``min_label`` is the grade given to
                relabelled candidates.
        """
        super().__init__()
        self.ranker = ranker
        self.judge = judge
        self.action = action
        self.threshold = threshold
        self.depth = depth
        self.training = training

    def train(
        self,
        ranker: Any,
        training: Training,
        train_on: tuple[pd.DataFrame, pd.DataFrame],
        validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None],
    ) -> None:
        """Ask the judge, then train the ranker with its own ``fit``.

        Frames and options are checked before the judge is asked, except for columns needed by another stage that trains the
        ranker. The changes are kept if that training fails.

        Raises:
            InputError: For a judge that does not return one number per row, or that leaves no negatives.
        """
        ranker.training = training
        self._check(ranker, training, train_on, validate_on)
        candidates, qrels, changes = self._relabel(*train_on, training)
        logger.info("RelabelReranker: %s of %d candidates (%s)", len(changes), len(train_on[0]), self.action)
        self.relabelled = changes
        try:
            self._check(ranker, training, (candidates, qrels), validate_on)
        except InputError as error:
            raise InputError(
                f"RelabelReranker: the judge finds {len(changes)} candidates relevant, and the rest cannot be trained on; raise "
                f"threshold, or check the judge ({error})"
            ) from error
        ranker.fit(candidates, qrels, *validate_on)

    def training_options(self) -> Training:
        """The options of training: those of the stage, otherwise those of the ranker."""
        if self.training is None and isinstance(self.ranker, TrainedRanker):
            return self.ranker.training_options()
        return super().training_options()

    def emphasis(self, res: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
        """Compute how much each candidate counts as a negative; see
        :func:`~pyterrier_debias.pooling.formulas.negative_weights.emphasis_of`.

        Candidates that the judge considers relevant count as 0, and the others of their pool accordingly more. After :meth:`fit`,
        the judge's decisions from then are used; before, the judge is asked.

        Args:
            res: The candidates.
            qrels: The judgements.

        Returns:
            ``qid``, ``positive``, ``docno``, ``emphasis``: a row for each judged positive and each document of its pool.

        Raises:
            InputError: If the sampler of negatives has no ``chances``.
        """
        self.check_options()
        training = self.training_options()
        before = pool_chances(groups_to_fit(self, training, res, qrels, stage=self), Training())
        if self.relabelled is None:
            candidates, judged, _ = self._relabel(res, qrels, training)
        else:
            candidates, judged = apply(res, qrels, self.relabelled, label=training.min_label)
        after = pool_chances(groups_to_fit(self, training, candidates, judged, stage=self), training)
        keys = ["qid", "positive"]
        both = before.drop(columns="emphasis").merge(after, on=[*keys, "docno"], how="left").fillna({"emphasis": 0.0})
        # Chances are relative to equal chances over the original pool.
        sizes = both.groupby(keys)["docno"].transform("size") / both.groupby(keys)["emphasis"].transform("sum").where(
            lambda total: total > 0, 1.0
        )
        return both.assign(emphasis=both["emphasis"] * sizes)[COLUMNS]

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save the fitted stage to a folder.

        Args:
            folder: Where to write; the folder is written completely or not at all.
            overwrite: Whether an earlier saved stage may be replaced; files that the package did not write stay.

        Raises:
            InputError: If the ranker is trained by another stage such as ``CETReranker``; and as for every stage.
        """
        inner = self.relevance
        if isinstance(inner, TrainedRanker):
            raise InputError(
                f"RelabelReranker: cannot be saved around {kind_of(inner)}; save that with stage.relevance.save(folder), "
                f"which scores the same, and stage.relabelled as a table"
            )
        super().save(folder, overwrite=overwrite)

    def saved_options(self) -> dict[str, Any]:
        """All options except the ranker, the judge and ``training``."""
        return {"action": self.action, "threshold": float(self.threshold), "depth": self.depth}

    def write_beside(self, folder: Path) -> dict[str, Any]:
        """Write the changes, and the name of the judge."""
        write_whole(folder / _CHANGED, cast(pd.DataFrame, self.relabelled).to_csv(index=False), replace=False)
        return {"judge": getattr(self.judge, "__qualname__", repr(self.judge))}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the changes; the judge must be given again, but is needed only to fit again."""
        changes = pd.read_csv(folder / _CHANGED, dtype={"qid": str, "docno": str, "score": float}, keep_default_na=False)
        return {"judge": None}, {"relabelled": changes[CHANGES]}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with the same judge, which is not fitted, and cannot be copied if it has a Java object."""
        copied = copy.copy(self)
        memo[id(self)] = copied
        vars(copied).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name != "judge"})
        return copied

    def check_options(self) -> None:
        """Check the options, before the judge is asked or a model is loaded.

        Raises:
            InputError: For an option that cannot be used; the message says what is allowed.
        """
        self.base()
        if self.judge is not None or not self.fitted:  # a loaded stage scores without its judge
            check_judge("RelabelReranker", self.judge)
        check_options("RelabelReranker", self.action, self.threshold, self.depth)

    def _check(
        self,
        ranker: Any,
        training: Training,
        train_on: tuple[pd.DataFrame, pd.DataFrame],
        validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None],
    ) -> None:
        inner = ranker
        if isinstance(ranker, TrainedRanker):
            ranker.check_options()
            training = ranker.own_training()
        while isinstance(inner, TrainedRanker):
            inner = inner.relevance if inner.fitted else inner.base()
        if isinstance(inner, Fittable):
            check_fit(inner, training, train_on, validate_on, stage=self)
        else:
            groups_to_fit(self, training, *train_on, stage=self)

    def _relabel(self, res: pd.DataFrame, qrels: pd.DataFrame, training: Training) -> tuple[pd.DataFrame, ...]:
        return relabel(
            res, qrels, self.judge, action=self.action, threshold=self.threshold, depth=self.depth, label=training.min_label
        )
