"""Ask a judge about unlabelled candidates before training on them."""

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
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.variants import with_passages
from pyterrier_debias.pooling.formulas.negative_weights import COLUMNS, pool_chances
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.fitting import Fittable, check_fit
from pyterrier_debias.training.groups import grades, groups_to_fit
from pyterrier_debias.training.options import Training

logger = logging.getLogger(__name__)

#: What may be done to a candidate that the judge considers relevant.
ACTIONS = ("relabel", "drop")

#: Columns of the frame of changes.
CHANGES = ["qid", "docno", "score", "action"]

#: What lies in a saved folder beside the ranker.
_CHANGED = "pyterrier_debias_relabelled.csv"

#: ``judge(frame)`` gives one number a row.
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
    """Show unjudged candidates to a judge, and make those that it considers relevant positives, or leave them out.

    Only queries that have judgements are looked at, and no pair that is judged, whatever its grade, is shown or changed. Passages
    of a judged document are judged: they have its grade, see :func:`~pyterrier_debias.training.groups.make_groups`.

    Args:
        candidates: Candidates ``qid``, ``docno``, and what the judge reads; ``rank`` (from 0) where ``depth`` is given.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        judge: A function from a frame of candidates to one number a row, or a transformer whose scores are these numbers. A
            Series is read by the frame's index, anything else in the frame's order.
        action: ``'relabel'`` adds judgements, ``'drop'`` takes candidates away.
        threshold: The lowest number of a relevant document.
        depth: How many of a query's candidates are shown, by rank; None for all.
        label: The grade of what is relabelled.

    Returns:
        The candidates, the judgements, and what was changed: ``qid``, ``docno``, ``score`` (the judge's number), ``action``.

    Raises:
        InputError: For an unknown option, or a judge whose answer is not one number a row.

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
    """Make changes that were decided before.

    Args:
        candidates: Candidates ``qid``, ``docno``.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        changes: ``qid``, ``docno``, ``action``, see :func:`relabel`.
        label: The grade of what is relabelled.

    Returns:
        The candidates and the judgements; the frames that were given are not changed.
    """
    dropped = set(changes.loc[changes["action"] == "drop", ["qid", "docno"]].itertuples(index=False, name=None))
    added = changes.loc[changes["action"] == "relabel", ["qid", "docno"]].assign(label=label)
    if dropped:
        keep = np.array([pair not in dropped for pair in zip(candidates["qid"], candidates["docno"])], dtype=bool)
        candidates = candidates[keep].reset_index(drop=True)
    if len(added):
        # A passage with a judgement of its own inherits none, in any query: what it inherits elsewhere is written down.
        relabelled = candidates[candidates["docno"].isin(set(added["docno"]))]
        qrels = pd.concat([with_passages(grades(qrels, "relabel"), relabelled), added], ignore_index=True)
    return candidates, qrels


def check_judge(name: str, judge: Any) -> None:
    """Refuse what cannot be asked; see :func:`relabel`.

    Raises:
        InputError: Naming what it is and what it may be.
    """
    if not callable(judge):
        raise InputError(f"{name}: judge is a {type(judge).__name__}; give a function from a frame to numbers, or a transformer")


def check_options(name: str, action: str, threshold: float, depth: int | None) -> None:
    """Refuse options that cannot be used; see :func:`relabel`.

    Raises:
        InputError: Naming the option and what it may be.
    """
    check_choice(name, "action", action, ACTIONS)
    check_number(name, "threshold", threshold)
    if depth is not None:
        check_number(name, "depth", depth, least=1, whole=True, hint="None means all candidates")


def _judged(judge: Judge | pt.Transformer, frame: pd.DataFrame) -> np.ndarray:
    """The judge's numbers, checked."""
    if len(frame) == 0:
        return np.empty(0)
    if isinstance(judge, pt.Transformer):
        return scores_by(judge, frame, "relabel")
    answer = judge(frame)
    if isinstance(answer, pd.Series) and len(answer) == len(frame):
        # A judge may have sorted the rows, and pandas puts its numbers back by their index.
        if set(answer.index) != set(frame.index):
            raise InputError(
                "relabel: the judge's answer is a Series with another index than the frame's; keep the index of the frame, or "
                "give the numbers in its order with .to_numpy()"
            )
        answer = answer.reindex(frame.index)
    try:
        numbers = np.asarray(answer, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"relabel: the judge's answer holds no numbers ({error}); it must give one per row") from error
    if numbers.shape != (len(frame),):
        raise InputError(f"relabel: the judge got {len(frame)} rows and gave shape {numbers.shape}; it must give one number each")
    frames.check_scores(frame[["qid", "docno"]].assign(score=numbers), "relabel, the judge")
    return numbers


class RelabelReranker(TrainedRanker):
    """Show unlabelled candidates to a judge before a ranker is trained on them.

    :meth:`fit` shows the unjudged candidates of the training queries to the judge. Those at or above the threshold become
    positives (``action='relabel'``) or leave the pool of negatives (``'drop'``); then a copy of the ranker is trained on what
    results. The ranker that was passed is not changed; fitting again judges anew and continues from the fitted weights.
    Validation topics are not touched.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Source: Thakur, Zhang, Ma and Lin, "Hard Negatives, Hard Lessons: Revisiting Training Data Quality for Robust Information
    Retrieval with LLMs" (RLHN), 2025, arXiv 2505.16967, who let LLMs judge hard negatives and find relabelling better than
    dropping.

    Assumes that the judge is right more often than the missing label, and for reasons that are not the ranker's own.
    **Circularity:** a judge that is the ranker itself, its teacher, or a model of the same family passes its own preferences on
    as truth; judgements of the same kind in the test would then applaud. Judge with something else than you train, and test on
    people's judgements.

    Attributes:
        relabelled: What was changed: ``qid``, ``docno``, ``score`` (the judge's number), ``action``; None before :meth:`fit`,
            and kept where the judge has answered and training fails.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: where the judge is the ranker (see above); where judging every candidate costs more than labelling some
    (use ``depth``); where many of a query's candidates are relevant and ``'drop'`` would leave easy ones only.

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
            judge: A function from a frame of candidates (with all their columns) to one number a row, or a transformer, e.g.
                another ranker, whose scores are these numbers. A Series is read by the frame's index, anything else in the
                frame's order. To pickle the stage it must be a function of a module.
            action: ``'relabel'`` or ``'drop'``.
            threshold: The lowest number of a relevant document. For a ranker that gives logits, 0 is a probability of .5.
            depth: How many of a query's candidates are shown to the judge, by rank; None for all.
            training: How to train; None for what the ranker trains with by itself. Its ``min_label`` is the grade of what is
                relabelled.
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
        """Judge, then let the ranker's own ``fit`` train it.

        Frames and options are checked before the judge is asked, but for columns that another way of training around the ranker
        needs. What was changed is kept where that training fails.

        Raises:
            InputError: For a judge whose answer is not one number a row.
        """
        ranker.training = training
        self._check(ranker, training, train_on, validate_on)
        candidates, qrels, changes = self._relabel(*train_on, training)
        logger.info("RelabelReranker: %s of %d candidates (%s)", len(changes), len(train_on[0]), self.action)
        self.relabelled = changes
        ranker.fit(candidates, qrels, *validate_on)

    def training_options(self) -> Training:
        """The options of training: the stage's, else those that the ranker trains with by itself."""
        if self.training is None and isinstance(self.ranker, TrainedRanker):
            return self.ranker.training_options()
        return super().training_options()

    def emphasis(self, res: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
        """How much each candidate counts as a negative; see
        :func:`~pyterrier_debias.pooling.formulas.negative_weights.emphasis_of`.

        What the judge considers relevant counts 0, and the others of its pool accordingly more. After :meth:`fit` its decisions
        hold; before, the judge is asked.

        Args:
            res: The candidates.
            qrels: The judgements.

        Returns:
            ``qid``, ``positive``, ``docno``, ``emphasis``: a row for each judged positive and each document of its pool.

        Raises:
            InputError: If the sampler of negatives does not tell its chances.
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
        # Chances are relative to equal ones over the pool as it was.
        sizes = both.groupby(keys)["docno"].transform("size") / both.groupby(keys)["emphasis"].transform("sum").where(
            lambda total: total > 0, 1.0
        )
        return both.assign(emphasis=both["emphasis"] * sizes)[COLUMNS]

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write what was fitted, as every stage does.

        Args:
            folder: Where to write; it appears whole or not at all.
            overwrite: Whether what was saved there before may be replaced; files that the package did not write stay.

        Raises:
            InputError: Where another way of training is around the ranker; and as for every stage.
        """
        inner = self.relevance
        if isinstance(inner, TrainedRanker):
            raise InputError(
                f"RelabelReranker: cannot be saved around a {type(inner).__name__}; save that with stage.relevance.save(folder), "
                f"which scores the same, and stage.relabelled as a table"
            )
        super().save(folder, overwrite=overwrite)

    def saved_options(self) -> dict[str, Any]:
        """All options but ranker, judge and training."""
        return {"action": self.action, "threshold": float(self.threshold), "depth": self.depth}

    def write_beside(self, folder: Path) -> dict[str, Any]:
        """Write what was changed; of the judge only its name."""
        write_whole(folder / _CHANGED, cast(pd.DataFrame, self.relabelled).to_csv(index=False), replace=False)
        return {"judge": getattr(self.judge, "__qualname__", repr(self.judge))}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read what was changed; the judge must be given again, and is needed only to fit again."""
        changes = pd.read_csv(folder / _CHANGED, dtype={"qid": str, "docno": str, "score": float}, keep_default_na=False)
        return {"judge": None}, {"relabelled": changes[CHANGES]}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy asks the same judge: it is not fitted, and cannot be copied where it holds a Java object."""
        copied = copy.copy(self)
        memo[id(self)] = copied
        vars(copied).update({name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name != "judge"})
        return copied

    def check_options(self) -> None:
        """Refuse options that cannot be used, before the judge is asked or a model loaded.

        Raises:
            InputError: Naming the option and what it may be.
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
