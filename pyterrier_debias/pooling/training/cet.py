"""CETReranker: trains two models that weight each other's pairs, against the false negatives of pooling (CET)."""

from __future__ import annotations

import copy
import json
import logging
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_choice
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.pooling.data.evidence import EvidenceModel, PoolEvidence, check_direction, check_known
from pyterrier_debias.pooling.formulas.cet_weights import Coupling
from pyterrier_debias.pooling.formulas.negative_weights import pool_chances
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.groups import Groups, make_groups
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    from pyterrier_debias.training.method import Method

logger = logging.getLogger(__name__)

#: Selection models that have a name.
SELECTIONS = ("first_stage", "lexical", "same")

#: The file in the folder ``selection`` of a saved stage.
_EVIDENCE = "evidence.json"


class CETReranker(TrainedRanker):
    r"""Trains a ranker on pooled judgements, where unlabelled candidates may be relevant but were never shown to labellers (CET).

    Two models are trained side by side: R scores relevance, S how likely a document was to be *selected* for labelling. Each
    weights the other's pairs of a positive i and an unlabelled candidate j:

    .. math::

        L(R) = \frac{1}{|Q|} \sum w_r \, \mathrm{softplus}(R_j - R_i), \quad w_r = e^{(S_j - S_i)/\tau}; \qquad
        L(S) = \frac{1}{|Q|} \sum w_s \, \mathrm{softplus}(S_j - S_i), \quad w_s = e^{(R_j - R_i)/\tau}.

    A candidate that labellers probably did not see (low S) has a small weight in the training of R; one that R scores high has a
    large weight in the training of S. Only R is used for scoring; S remains available. The equations do not determine which model
    is which: if both read the same input, they are exchangeable, and weights can punish false negatives more. The default
    therefore lets S read only what the pooling system saw, and bounds the weights; :meth:`paper` is the form in the paper,
    :meth:`released` that in its code.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the text; for ``fit`` also those of the pool, see ``selection``
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The ranker that you pass in is not changed: a copy is trained, so that a plain ranker and this one can start from the same
    weights. Fitting again continues from the fitted weights; a selection model of evidence is learned from scratch, because
    other candidates may come from another pool.

    The log of ``fit`` has both losses (``relevance_loss``, ``selection_loss``), the weights of the relevance loss
    (``weight_mean``, ``weight_max``, ``weight_effective_share``: the effective sample size divided by the number of pairs) and
    ``rank_correlation``, of the two models' score differences over the pairs of a batch. Warnings are logged if two rankers begin
    equal, if they come to order pairs in the same way, and if weights without a bound explode.

    Args:
        ranker: Any ranker of this package; a name or folder is loaded as a ``CrossEncoder``.
        tau: Temperature of the weights, above 0; large values lead back to plain training.
        weighting: ``'paper'``: weights as above. ``'released'``: weights :math:`1 + e^{S_j/\tau}`, which are never below 1 and do
            not depend on the positive.
        selection: What S is. ``'first_stage'``: a weighted sum of the pooling system's score and rank (columns ``pool_score`` and
            ``pool_rank``, else, with a warning, ``score`` and ``rank``) and of lexical features. ``'lexical'``: a weighted sum of
            the lexical features only. A :class:`~pyterrier_debias.pooling.data.evidence.PoolEvidence`: a weighted sum of what its
            options name. ``'same'``: a copy of the ranker, with ``seed + 1`` where a new head is initialised. A ranker: a copy of
            it; it must read the same text columns, of which it reads the part that its own training would read: its first
            passage with ``long='firstp'``, the start with ``'maxp'``.
        max_weight: The largest weight; None for no bound, as in the paper.
        normalise_weights: ``'mean_one'`` divides the weights of a batch by their mean; None does not.
        weight_pass: ``'train'``: weights come from the scores of the training pass. ``'eval'``: from a second pass without
            dropout, as in the released code; 20 % slower with a second ranker.
        reduction: ``'pairs'``: the mean over pairs. ``'queries'``: the sum over pairs divided by the number of examples
            (Equation 20).
        unweighted_steps: Number of steps at the start of training in which all weights are 1.
        loss: ``'pairs'``, or, for several negatives per positive, ``'listwise'`` (ours: a softmax over the positive and all its
            negatives, in which each negative counts as often as its weight says).
        training: How ``fit`` trains; None for the ranker's own ``training``. Leave its ``loss`` at the default.
            ``learning_rate`` may name the ranker's networks and ``selection``, which otherwise has its own rate; the networks of
            a second ranker are named ``selection_ranker``, ...

    Raises:
        InputError: For options that are unknown, out of range or incompatible; when scoring before ``fit``.

    When not to use it: if the pool's evidence is also evidence of relevance, as BM25's was on all three real collections that
    we tried (NFCorpus, TREC DL, Vaswani; ``fit`` warns if the candidates' own scores show it); if judgements are complete, or
    negatives come from the pool itself (labellers saw all of them, so weights are noise); if nothing is known about the pooling
    system and ``'lexical'`` does not describe it either. It cost a cross-encoder with a new head .04 to .05 ``nDCG@10`` on the
    three planted collections where this was tried, most of it (.037) even with the weights in random order: compare with plain
    training on some queries with full judgements.

    Example:
        >>> CETReranker("distilbert-base-uncased", tau=2.0)
        CETReranker('distilbert-base-uncased', tau=2.0)

        In a pipeline: ``(candidates >> texts >> CETReranker(ranker)).fit(topics, qrels)``, with ``pool_score`` and ``pool_rank``
        among the candidates' columns.

    References:
        Cai, Guo, Fan, Ai, Zhang and Cheng, CIKM 2022.

    .. cite.dblp:: journals/corr/abs-2209-05072
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "CET", "help_url": None}

    _fitted_selection: Ranker | EvidenceModel | None = None

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        tau: float = 1.0,
        weighting: str = "paper",
        selection: Any = "first_stage",
        max_weight: float | None = 1.0,
        normalise_weights: str | None = None,
        weight_pass: str = "train",
        reduction: str = "pairs",
        unweighted_steps: int = 0,
        loss: str = "pairs",
        training: Training | None = None,
    ):
        super().__init__()
        self.ranker = ranker
        self.tau = tau
        self.weighting = weighting
        self.selection = selection
        self.max_weight = max_weight
        self.normalise_weights = normalise_weights
        self.weight_pass = weight_pass
        self.reduction = reduction
        self.unweighted_steps = unweighted_steps
        self.loss = loss
        self.training = training

    @classmethod
    def paper(cls, ranker: str | Path | Ranker | TrainedRanker, **options: Any) -> Self:
        """Make the paper's form: two models from one checkpoint with independently initialised heads, no bound, tau 1.

        Args:
            ranker: As for the class. Heads are initialised only for a checkpoint without a head; a warning is logged if both
                models begin equal.
            options: Further options of the class.

        Returns:
            A stage.

        Example:
            >>> CETReranker.paper("bert-base-uncased")
            CETReranker('bert-base-uncased', selection='same', max_weight=None)
        """
        return cls(ranker, **{"selection": "same", "max_weight": None, **options})

    @classmethod
    def released(cls, ranker: str | Path | Ranker | TrainedRanker, **options: Any) -> Self:
        """Make the form of the authors' code: weights 1 + exp(S_j / 10), computed without dropout.

        Args:
            ranker: As for :meth:`paper`.
            options: Further options of the class.

        Returns:
            A stage.

        Example:
            >>> CETReranker.released("bert-base-uncased")  # doctest: +NORMALIZE_WHITESPACE
            CETReranker('bert-base-uncased', tau=10.0, weighting='released', selection='same', max_weight=None,
            weight_pass='eval')
        """
        defaults = {"weighting": "released", "tau": 10.0, "weight_pass": "eval", "max_weight": None, "selection": "same"}
        return cls(ranker, **{**defaults, **options})

    # What was fitted

    @property
    def selection_model(self) -> Ranker | EvidenceModel:
        """The fitted selection model: a ranker, or an :class:`~pyterrier_debias.pooling.data.evidence.EvidenceModel` with
        ``coefficients``."""
        _ = self.relevance  # which asks for fit() first
        return cast(Ranker | EvidenceModel, self._fitted_selection)

    @frames.reads_frames
    def selection_scores(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score candidates with the fitted selection model: the higher, the more likely labellers saw the candidate.

        A ranker reads what it read in training, also with ``long='maxp'``.

        Args:
            inp: A result frame with the columns that the selection model reads.

        Returns:
            A new frame with the column ``selection_score`` added.

        Raises:
            InputError: Before ``fit``, or for missing columns.
        """
        pt.validate.result_frame(inp, extra_columns=["query", *self.text_columns()], context=self)
        relevance, selection = self.relevance, self.selection_model
        if len(inp) == 0:
            return inp.assign(selection_score=pd.Series(dtype="float64"))
        frames.check_text(inp, "query", self)
        documents = relevance.documents(inp)
        frames.check_pairs(inp, self)
        return inp.assign(selection_score=_scores(selection, inp, documents))

    @frames.reads_frames
    def emphasis(self, res_tr: pd.DataFrame, qrels_tr: pd.DataFrame) -> pd.DataFrame:
        """Compute how much each candidate counts as a negative: its chance of being drawn, times its weight after training.

        Args:
            res_tr: The candidates that reach the stage.
            qrels_tr: The judgements on which the stage was fitted.

        Returns:
            A frame as from :func:`~pyterrier_debias.pooling.formulas.negative_weights.emphasis_of`. With ``'mean_one'``, the mean
            is taken over all pairs, not over those of a batch.

        Raises:
            InputError: Before ``fit``, and as in ``emphasis_of``.
        """
        import torch

        relevance, selection = self.relevance, self.selection_model
        training = self.own_training()
        columns = relevance.text_columns()
        groups = make_groups(res_tr, qrels_tr, text_columns=columns, min_label=training.min_label, stage=self)
        found = pool_chances(groups, training)
        scores = torch.from_numpy(_scores(selection, groups.rows, relevance.documents(groups.rows)))
        pairs = [(i, j) for group in groups.groups for i in group.positives.tolist() for j in group.pool.tolist()]
        i, j = np.array(pairs).T
        return found.assign(emphasis=found["emphasis"] * self._coupling().weights(scores[i], scores[j]).numpy())

    # Fitting

    def prepare(
        self, ranker: Ranker, training: Training, groups: Groups, train_on: tuple[pd.DataFrame, pd.DataFrame]
    ) -> Ranker | EvidenceModel:
        """The selection model before training: a second ranker, or evidence, which is checked before a model is loaded."""
        second = self._second_ranker()
        return self._evidence().learn(groups.rows, ranker.documents(groups.rows)) if second is None else second

    def make_method(self, ranker: Ranker, training: Training, groups: Groups, prepared: Ranker | EvidenceModel) -> Method:
        """The method that trains both models together."""
        rate = None
        if isinstance(prepared, EvidenceModel):
            rate = self._evidence().learning_rate
            features, known = prepared.features(groups.rows, ranker.documents(groups.rows))
            of_queries = [(group.positives, group.pool) for group in groups.groups]
            for warning in (
                check_known(prepared, known, of_queries),
                check_direction(prepared, features, known, groups.rows, of_queries),
            ):
                if warning:
                    logger.warning("CETReranker: %s", warning)
        from pyterrier_debias.pooling.training.cet_method import Coupled, EvidenceScores, RankerScores, tokenise_alike
        from pyterrier_debias.training.method import ranking_of

        ranking = ranking_of(ranker, training, "CETReranker")
        second: EvidenceScores | RankerScores
        about: dict[str, Any]
        if isinstance(prepared, EvidenceModel):
            second = EvidenceScores(features, known, prepared.weights)
            about = {"selection": prepared.fingerprint(), "evidence": _digest(features, known)}
        else:
            shared = tokenise_alike(ranker, prepared)
            second = RankerScores(ranking_of(prepared, training, "CETReranker"), shared=shared)
            about = {"selection": prepared.record()}
        return Coupled(
            ranking, second, self._coupling(), accumulation=training.accumulation, selection_rate=rate, about=about
        )

    def keep_beside(self, method: Any, prepared: Ranker | EvidenceModel) -> None:
        """Keep the selection model with the fitted ranker."""
        if isinstance(prepared, EvidenceModel):
            prepared = prepared.with_weights(method.selection.weights)
        else:
            prepared.mark_trained()
        self._fitted_selection = prepared

    # Options

    def check_options(self) -> None:
        """Check the options, before anything is loaded.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """
        self._coupling()
        self.checked_base()
        selection = self.selection
        if isinstance(selection, Ranker):
            selection.check_options()
            if selection.text_columns() != self.text_columns():
                raise InputError(
                    f"CETReranker: the selection model reads {', '.join(selection.text_columns())}, the ranker "
                    f"{', '.join(self.text_columns())}; both must read the same columns"
                )
        elif not isinstance(selection, PoolEvidence):
            check_choice("CETReranker", "selection", selection, SELECTIONS, "a ranker or a PoolEvidence")

    def _coupling(self) -> Coupling:
        """The checked options of the formulas."""
        return Coupling(
            tau=self.tau,
            weighting=self.weighting,
            max_weight=self.max_weight,
            normalise_weights=self.normalise_weights,
            weight_pass=self.weight_pass,
            reduction=self.reduction,
            unweighted_steps=self.unweighted_steps,
            loss=self.loss,
        )

    def own_training(self) -> Training:
        """The checked options of training."""
        training = self.training_options()
        if training.loss != "pairwise" or training.loss_options:
            raise InputError(
                f"CETReranker: has its own loss; leave loss={training.loss!r} and loss_options out of Training "
                f"(CETReranker(loss='listwise') is its softmax over several negatives)"
            )
        if training.in_batch_negatives:
            raise InputError(
                "CETReranker: in_batch_negatives are not candidates of the query, so nothing is known about their selection; use "
                "Training(negatives_per_positive=...)"
            )
        return training

    def _evidence(self) -> PoolEvidence:
        if isinstance(self.selection, PoolEvidence):
            return self.selection
        return PoolEvidence() if self.selection == "first_stage" else PoolEvidence(columns=())

    def _second_ranker(self) -> Ranker | None:
        """The ranker that becomes the selection model; None for evidence."""
        if isinstance(self.selection, PoolEvidence) or self.selection in ("first_stage", "lexical"):
            return None
        if isinstance(self._fitted_selection, Ranker):
            return self._fitted_selection
        if isinstance(self.selection, Ranker):
            return copy.deepcopy(self.selection)
        base = self.base()
        copied = copy.deepcopy(base)
        if hasattr(base, "seed") and not base.fingerprint().startswith("weights:"):
            fresh = type(base)(**{**base.options(), "seed": base.seed + 1, "training": None})
            if not base.altered():
                return fresh
            # The weights of another seed, in a module with the same frozen weights and dropout.
            copied.module.load_state_dict(fresh.module.state_dict())
        return copied

    # Folders

    def saved_options(self) -> dict[str, Any]:
        """All options except the ranker, a selection model that has no name, and ``training``."""
        return {**self._coupling().record(), "selection": self.selection if isinstance(self.selection, str) else None}

    def beside(self) -> dict[str, Any]:
        """What is saved beside the ranker: the selection model, if it is a ranker."""
        return {"selection": self._fitted_selection} if isinstance(self._fitted_selection, Ranker) else {}

    def write_beside(self, folder: Path) -> dict[str, Any]:
        """Write a selection model of evidence, except for its ``scorer``."""
        if not isinstance(self._fitted_selection, Ranker):
            evidence = json.dumps(cast(EvidenceModel, self._fitted_selection).to_json()) + "\n"
            write_whole(folder / "selection" / _EVIDENCE, evidence, replace=False)
        return {}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the selection model; its scorer must be given again, with ``selection=PoolEvidence(scorer=...)``."""
        if "selection" in beside:
            selection = unnamed = beside["selection"]
        else:
            content = json.loads((folder / "selection" / _EVIDENCE).read_text(encoding="utf-8"))
            scorer, tokeniser = (getattr(options.get("selection"), name, None) for name in ("scorer", "tokeniser"))
            selection = EvidenceModel.from_json(content, scorer=scorer, tokeniser=tokeniser if callable(tokeniser) else None)
            unnamed = selection.evidence
        return {"selection": about["options"]["selection"] or unnamed}, {"_fitted_selection": selection}


def _digest(*arrays: np.ndarray) -> str:
    state = blake2b(digest_size=16)
    for array in arrays:
        state.update(np.ascontiguousarray(array).data)
    return state.hexdigest()


def _scores(selection: Ranker | EvidenceModel, frame: pd.DataFrame, documents: list[str]) -> np.ndarray:
    if isinstance(selection, Ranker):
        return selection.score_in_training(frame["query"].tolist(), documents)
    return selection.score(frame, documents)
