"""EqualizeReranker: trains a ranker that need not learn the shortcuts of a biased learner."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.linguistic.formulas.product_of_experts import product_of_experts
from pyterrier_debias.linguistic.training.biased import LEARNERS, BiasedLearner
from pyterrier_debias.rankers.base import Ranker, weights_fingerprint
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Groups
    from pyterrier_debias.training.method import Method

logger = logging.getLogger(__name__)

#: Where negatives come from.
NEGATIVES = ("explicit", "in_batch")


class TrainedAgainstBiased(TrainedRanker):
    """Base class of stages that train a ranker against a frozen biased one.

    ``fit`` trains the biased learner, freezes it, and trains the robust ranker against it. The log has ``plain_loss`` (the loss
    of the robust ranker alone), ``accuracy`` and ``biased_accuracy``; the biased learner's own report is
    ``biased_model.training_report``. A resumed run must use the same biased learner.

    A subclass has the options ``ranker``, ``biased``, ``biased_temperature``, ``negatives`` and ``training``, and implements
    :meth:`combination`.
    """

    #: The loss that each ``loss`` of ``Training`` selects: its default is pairwise, the paper's is a softmax over candidates.
    _LOSSES: ClassVar[dict[str, str]] = {"pairwise": "infonce", "infonce": "infonce", "bce": "bce"}

    _fitted_biased: Ranker | None = None

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        biased: Any,
        biased_temperature: float,
        negatives: str,
        training: Training | None,
    ):
        """
        Args:
            ranker: The ranker, as in :class:`EqualizeReranker`.
            biased: The biased learner, as in :class:`EqualizeReranker`.
            biased_temperature: The divisor of biased scores, as in :class:`EqualizeReranker`.
            negatives: Which negatives are used, as in :class:`EqualizeReranker`.
            training: How ``fit`` trains, as in :class:`EqualizeReranker`.
        """
        super().__init__()
        self.ranker = ranker
        self.biased = biased
        self.biased_temperature = biased_temperature
        self.negatives = negatives
        self.training = training

    @abstractmethod
    def combination(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The loss and its checked options.

        Returns:
            ``loss(scores, biased, labels=..., mask=..., weights=..., loss=..., **options)``, and the options.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """

    @property
    def biased_model(self) -> Ranker:
        """The fitted biased learner, which is a ranker itself.

        Raises:
            InputError: Before ``fit``.
        """
        _ = self.relevance  # which asks for fit() first
        return cast(Ranker, self._fitted_biased)

    def prepare(
        self, ranker: Ranker, training: Training, groups: Groups, train_on: tuple[pd.DataFrame, pd.DataFrame]
    ) -> Ranker:
        """The biased ranker, trained if necessary."""
        learner = self._learner()
        if not isinstance(learner, BiasedLearner):
            return learner
        logger.info("%s: the biased learner is trained first (%r)", type(self).__name__, learner)
        return learner.fit(ranker, training, *train_on, groups)

    def make_method(self, ranker: Ranker, training: Training, groups: Groups, prepared: Ranker) -> Method:
        """The method that trains the robust ranker against the frozen biased one."""
        from pyterrier_debias.linguistic.training.equalize_method import AgainstBiased, CachedScores, LiveScores, cached_scores
        from pyterrier_debias.training.method import ranking_of

        name = type(self).__name__
        loss, options = self.combination()
        biased = {"biased": weights_fingerprint(prepared.module), "biased ranker": prepared.record()}
        about = {"loss": {**options, "negatives": self.negatives}, **biased}
        scores: CachedScores | LiveScores
        if self.negatives == "explicit" and training.augment is None:
            scores = cached_scores(prepared, groups, training, name)
        else:
            # The biased learner must also score other queries' documents, or passages that change in each epoch.
            if prepared.torch_device != ranker.torch_device:
                raise InputError(
                    f"{name}: the biased model computes on {prepared.torch_device}, the ranker on {ranker.torch_device}; give "
                    f"both the same device, or use negatives='explicit' without augment"
                )
            scores = LiveScores(ranking_of(prepared, training, name))
        return AgainstBiased(ranking_of(ranker, training, name), scores, partial(loss, **options), about=about)

    def keep_beside(self, method: Method, prepared: Ranker) -> None:
        """Keep the biased learner with the fitted ranker."""
        self._fitted_biased = prepared

    # Options

    def check_options(self) -> None:
        """Check the options, before anything is loaded.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """
        name = type(self).__name__
        self.combination()
        self.checked_base()
        check_choice(name, "negatives", self.negatives, NEGATIVES)
        learner = self._learner()
        other = learner if isinstance(learner, Ranker) else getattr(learner, "model", None)
        if isinstance(learner, BiasedLearner):
            learner.check(name)
        else:
            learner.check_options()
        if other is not None and other.text_columns() != self.text_columns():
            raise InputError(
                f"{name}: the biased model reads {', '.join(other.text_columns())}, the ranker {', '.join(self.text_columns())}; "
                f"both must read the same columns"
            )

    def _learner(self) -> BiasedLearner | Ranker:
        """The description of how the biased learner is made, or a fitted ranker that was passed."""
        if isinstance(self.biased, (BiasedLearner, Ranker)):
            return self.biased
        check_choice(
            type(self).__name__, "biased", self.biased, LEARNERS, "a learner such as WeakerModel(layers=1), or a fitted ranker"
        )
        return LEARNERS[self.biased]

    def own_training(self) -> Training:
        """The checked options of training."""
        name, training = type(self).__name__, self.training_options()
        if not isinstance(training.loss, str) or training.loss not in self._LOSSES:
            known = " or ".join(map(repr, dict.fromkeys(self._LOSSES.values())))
            raise InputError(f"{name}: has its own loss; leave loss={training.loss!r} out of Training, or use loss={known}")
        if training.in_batch_negatives and self.negatives == "explicit":
            raise InputError(
                f"{name}: Training(in_batch_negatives=True) needs negatives='in_batch', so that both models use them"
            )
        return replace(training, loss=self._LOSSES[training.loss], in_batch_negatives=self.negatives == "in_batch")

    # Folders

    def saved_options(self) -> dict[str, Any]:
        """The options of the loss and of negatives, and the name of the biased learner if it has one."""
        named = self.biased if isinstance(self.biased, str) else None
        return {**self.combination()[1], "biased": named, "negatives": self.negatives}

    def beside(self) -> dict[str, Any]:
        """What is saved beside the ranker: the biased learner."""
        return {"biased": self._fitted_biased}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the biased learner. One that has no name is read as the fitted ranker that it became."""
        biased = beside["biased"]
        return {"biased": about["options"]["biased"] or biased}, {"_fitted_biased": biased}


class EqualizeReranker(TrainedAgainstBiased):
    r"""Trains a ranker so that it need not learn the shortcuts of a deliberately weak, biased learner (EqualizeIR).

    A biased learner B, biased by its size, its data or its training, is trained first and then frozen. The robust ranker R is
    trained on the sum of both models' scores,

    .. math::

        \log z_D = \log\mathrm{softmax}\big(s_R + \alpha\, s_B / T\big), \qquad L = -\log z_D(d^+),

    over the candidates of a query. Where B is confident and right, little is left to learn from the query; where B is confident
    and wrong, more. Only R is used for scoring. With :math:`|s_B| \le 10` and the default :math:`\alpha`, the correction is at
    most one logit: effects are small by design.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The ranker that you pass in is not changed: copies of it are trained. Fitting again continues from the fitted weights, and
    trains a new biased learner from these (a biased ranker that you passed in stays the same). The log of ``fit`` has
    ``plain_loss`` (the loss of the robust ranker alone), ``accuracy`` and ``biased_accuracy``; the log of the biased learner is
    in ``biased_model.training_report``.

    Args:
        ranker: Any ranker of this package; a name or folder is loaded as a ``CrossEncoder``.
        biased: The biased learner. ``'weaker_model'``: the ranker's first layers, two as in BERT-Tiny. ``'less_data'``: a fifth
            of the training queries. ``'fewer_steps'``: a fifth of the training. ``'biased_data'``: queries with repeated noun
            phrases. For other options, pass a :class:`~pyterrier_debias.linguistic.training.biased.WeakerModel`, ``LessData``,
            ``FewerSteps`` or ``BiasedData``; or a fitted ranker of any class, which is used unchanged. It reads the part of a
            text that its own training would read: its first passage with ``long='firstp'``, the start with ``'maxp'``.
        alpha: Weight of the biased scores, from 0 to 1; 0 is plain training with ``loss='infonce'``, to the last bit.
        biased_temperature: T, the divisor of biased scores, if their scale differs from that of the ranker's scores.
        negatives: ``'explicit'``: only the negatives drawn for each query, whose biased scores are computed once, beforehand.
            ``'in_batch'``: also the other queries' documents, which the biased learner scores in each step.
        training: How ``fit`` trains; None for the ranker's own ``training``. Leave its ``loss`` at the default, which here means
            the softmax over all candidates, or set ``'infonce'`` for its temperature (which divides the sum of both scores), or
            ``'bce'``, the product over two classes. With ``augment`` the biased learner scores in each step too.

    Raises:
        InputError: For options that are unknown, out of range or incompatible; when scoring before ``fit``.

    When not to use it: if hard queries are hard for other reasons than their wording (few relevant documents, rare topics):
    the biased learner fails there too, and the robust one is pushed towards noise; to improve a good checkpoint, which a few
    steps of any training can make worse; with a biased learner that is better than the ranker.

    Example:
        >>> EqualizeReranker("distilbert-base-uncased", biased="less_data", alpha=0.2)
        EqualizeReranker('distilbert-base-uncased', biased='less_data', alpha=0.2)

        In a pipeline: ``(bm25 >> AddJudged(qrels) >> texts >> EqualizeReranker(BiEncoder(model))).fit(topics, qrels)``; the
        robust ranker alone is ``stage.relevance``, e.g. for ``stage.relevance.retriever(corpus)``.

    References:
        Cheng and Amiri, EqualizeIR: Mitigating Linguistic Biases in Retrieval Models, NAACL 2025.

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Equalize", "help_url": None}

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        biased: Any = "weaker_model",
        alpha: float = 0.1,
        biased_temperature: float = 1.0,
        negatives: str = "explicit",
        training: Training | None = None,
    ):
        super().__init__(ranker, biased, biased_temperature, negatives, training)
        self.alpha = alpha

    def combination(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        """The product of experts; see :meth:`TrainedAgainstBiased.combination`."""
        check_number("EqualizeReranker", "alpha", self.alpha, least=0, most=1)
        check_number("EqualizeReranker", "biased_temperature", self.biased_temperature, above=0)
        return product_of_experts, {"alpha": self.alpha, "biased_temperature": self.biased_temperature}
