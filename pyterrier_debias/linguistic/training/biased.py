"""The four biased learners of Cheng and Amiri: deliberately weak models for training another without their shortcuts."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_number, kind_of
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.core.variants import reworded
from pyterrier_debias.linguistic.data.noun_phrases import RepeatNounPhrases
from pyterrier_debias.rankers.base import InMemory, Ranker
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.groups import Groups

#: Number of layers of a weaker model, the same as in BERT-Tiny.
LAYERS = 2


@dataclass(frozen=True, kw_only=True)
class BiasedLearner:
    """Describes how a biased learner is made; each subclass changes one of three things: the model, the data, or the training.

    Args:
        training: How the learner is trained; None for the options of the robust ranker. Its settings of checkpoints, resumption
            and validation are ignored: the learner uses the folder ``biased`` in the robust ranker's checkpoints, and has no
            validation.
    """

    training: Training | None = None

    def check(self, stage: str) -> None:
        """Check the options, before anything is loaded.

        Args:
            stage: The name used in messages.

        Raises:
            InputError: For an option that cannot be used; the message names it and the remedy.
        """
        if self.training is not None and not isinstance(self.training, Training):
            raise InputError(f"{stage}: {type(self).__name__}(training=...) is {kind_of(self.training)}, not a Training")

    def start(self, ranker: Ranker) -> Ranker:
        """The model before its training.

        Args:
            ranker: The ranker from which the robust ranker starts; it is not changed.

        Returns:
            A separate ranker; by default a copy.
        """
        return copy.deepcopy(ranker)

    def data(self, candidates: pd.DataFrame, groups: Groups, seed: int) -> pd.DataFrame:
        """The learner's training data.

        Args:
            candidates: The training candidates.
            groups: The queries among them with a positive and a negative.
            seed: The training's seed.

        Returns:
            A frame of candidates; by default all of them.
        """
        return candidates

    def options(self, training: Training) -> Training:
        """The learner's options of training; by default ``training``."""
        return training

    def fit(
        self, ranker: Ranker, training: Training, candidates: pd.DataFrame, qrels: pd.DataFrame, groups: Groups
    ) -> Ranker:
        """Train a biased learner.

        Args:
            ranker: The ranker from which the robust ranker starts; it is not changed.
            training: How the robust ranker is trained.
            candidates: The training candidates.
            qrels: Their judgements.
            groups: The training queries made from both.

        Returns:
            The fitted learner.

        Raises:
            InputError: As in ``fit`` of the ranker.
        """
        own = self.training if self.training is not None else training
        folder = None if training.checkpoints is None else Path(training.checkpoints) / "biased"
        unvalidated: dict[str, Any] = {"patience": None, "rerank_depth": None}
        own = replace(self.options(own), checkpoints=folder, resume=training.resume, log_to=training.log_to, **unvalidated)
        learner = self.start(ranker)
        learner.training = own
        return learner.fit(self.data(candidates, groups, own.seed), qrels)


@dataclass(frozen=True, kw_only=True)
class WeakerModel(BiasedLearner):
    """A biased learner with a smaller model: the first layers of the ranker, or another ranker. It is the paper's best.

    Args:
        layers: How many layers are kept, counted from the input; None for 2, the depth of BERT-Tiny, or fewer if that is more
            than half of the model.
        model: A ranker to train instead of the ranker's own layers, e.g. ``BiEncoder('prajjwal1/bert-tiny')``; it must read the
            same text columns. It is copied.
        training: How the learner is trained, as in :class:`BiasedLearner`.

    When not to use it: with models of one layer, or whose layers share their weights (ALBERT), unless you give ``model``.

    Example:
        ``EqualizeReranker(ranker, biased=WeakerModel(layers=1))``

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    layers: int | None = None
    model: Any = None

    def check(self, stage: str) -> None:
        """Refuse options that cannot be used; see :meth:`BiasedLearner.check`."""
        super().check(stage)
        if self.layers is not None:
            check_number(f"{stage}, WeakerModel", "layers", self.layers, least=1, whole=True)
        if self.model is not None:
            if not isinstance(self.model, Ranker):
                raise InputError(f"{stage}: WeakerModel(model=...) is {kind_of(self.model)}; give a ranker of this package")
            if self.layers is not None:
                raise InputError(f"{stage}: WeakerModel takes layers or a model, not both")
            self.model.check_options()

    def start(self, ranker: Ranker) -> Ranker:
        """A copy of the other ranker, or the first layers of this one."""
        return copy.deepcopy(self.model) if self.model is not None else first_layers(ranker, self.layers)


@dataclass(frozen=True, kw_only=True)
class LessData(BiasedLearner):
    """A biased learner with the same model, trained on a random share of the training queries.

    With ``Training(epochs=...)`` it also takes fewer steps; with ``max_steps`` it sees its few queries more often.

    Args:
        share: Share of the usable training queries, above 0 and at most 1; at least one is kept. Which ones are kept depends only
            on the seed of the training and their qids.
        training: How the learner is trained, as in :class:`BiasedLearner`.

    When not to use it: if a fifth of the queries is only a handful.

    Example:
        ``EqualizeReranker(ranker, biased=LessData(share=0.1))``

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    share: float = 0.2

    def check(self, stage: str) -> None:
        """Refuse options that cannot be used; see :meth:`BiasedLearner.check`."""
        super().check(stage)
        _check_share(stage, self)

    def fit(
        self, ranker: Ranker, training: Training, candidates: pd.DataFrame, qrels: pd.DataFrame, groups: Groups
    ) -> Ranker:
        """Train on the drawn queries, unless a single one is left that has no negatives; see :meth:`BiasedLearner.fit`."""
        alone = self._count(groups) == 1 < len(groups)
        if alone and (self.training or training).negatives_per_positive == 0:
            raise InputError(
                f"LessData: share={self.share:g} of {len(groups)} training queries is one query, but with "
                f"negatives_per_positive=0 all negatives come from other queries; raise share or negatives_per_positive, or add "
                f"queries"
            )
        return super().fit(ranker, training, candidates, qrels, groups)

    def data(self, candidates: pd.DataFrame, groups: Groups, seed: int) -> pd.DataFrame:
        """The candidates of the drawn queries."""
        qids = sorted((group.qid for group in groups.groups), key=lambda qid: keyed_hash(seed, "less data", qid))
        kept = set(qids[: self._count(groups)])
        drawn = frames.with_string_ids(candidates, type(self).__name__)["qid"].isin(kept)
        return candidates[drawn.to_numpy()].reset_index(drop=True)

    def _count(self, groups: Groups) -> int:
        """How many queries are kept."""
        # 0.28 * 25 is 7.000000000000001; and a tiny share is one query.
        return max(1, math.ceil(round(self.share * len(groups), 6)))


@dataclass(frozen=True, kw_only=True)
class FewerSteps(BiasedLearner):
    """A biased learner with the same model and data, trained for a share of the epochs or steps.

    It has its own learning-rate schedule, which falls to 0 at the end of its shorter training.

    Args:
        share: Share of ``max_steps`` if given, otherwise of ``epochs``, above 0 and at most 1; at least one step is taken.
        training: How the learner is trained, as in :class:`BiasedLearner`; the share refers to this length.

    When not to use it: if the robust ranker itself trains for a few steps only.

    Example:
        ``EqualizeReranker(ranker, biased=FewerSteps(share=0.1))``

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    share: float = 0.2

    def check(self, stage: str) -> None:
        """Refuse options that cannot be used; see :meth:`BiasedLearner.check`."""
        super().check(stage)
        _check_share(stage, self)

    def options(self, training: Training) -> Training:
        """The same options, except for the length."""
        if training.max_steps is not None:
            return replace(training, max_steps=max(1, round(self.share * training.max_steps)))
        return replace(training, epochs=self.share * training.epochs)


@dataclass(frozen=True, kw_only=True)
class BiasedData(BiasedLearner):
    """A biased learner with the same model, trained on rewritten queries: by default, their noun phrases are repeated.

    Args:
        rewrite: A stage that rewrites ``query``; equal queries must be rewritten in the same way.
        training: How the learner is trained, as in :class:`BiasedLearner`.

    When not to use it: on keyword queries: most are a single noun phrase, so the rewriting only doubles them.

    Example:
        ``EqualizeReranker(ranker, biased=BiasedData(rewrite=RepeatNounPhrases(times=2)))``

    .. cite.dblp:: journals/corr/abs-2504-07115
    """

    rewrite: Any = field(default_factory=RepeatNounPhrases)

    def check(self, stage: str) -> None:
        """Refuse options that cannot be used; see :meth:`BiasedLearner.check`."""
        super().check(stage)
        if not callable(self.rewrite):
            raise InputError(
                f"{stage}: BiasedData(rewrite=...) is {kind_of(self.rewrite)}; give a stage such as RepeatNounPhrases()"
            )
        getattr(self.rewrite, "check_options", lambda: None)()

    def data(self, candidates: pd.DataFrame, groups: Groups, seed: int) -> pd.DataFrame:
        """The candidates, with rewritten queries."""
        frame = frames.with_string_ids(candidates, type(self).__name__)
        topics = frame[["qid", "query"]].drop_duplicates("qid")
        new = self.rewrite(topics)
        changed = frame["qid"].map(dict(zip(new["qid"], new["query"])))
        return reworded(candidates, changed.to_numpy(), keep=False)


#: The learners that have a name.
LEARNERS: dict[str, BiasedLearner] = {
    "weaker_model": WeakerModel(),
    "less_data": LessData(),
    "fewer_steps": FewerSteps(),
    "biased_data": BiasedData(),
}


def first_layers(ranker: Ranker, layers: int | None = None) -> Ranker:
    """Make a ranker of the same class from the first layers of a model, with its embeddings and its head.

    A stack of layers is any ``torch.nn.ModuleList`` of two or more modules of one class, as in BERT-like models, T5 (both
    encoder and decoder) and TK. Layers are kept or dropped as a whole.

    Args:
        ranker: The ranker; it is not changed.
        layers: How many layers to keep of each stack; None for 2, or fewer if that is more than half of it.

    Returns:
        A ranker with the same options.

    Raises:
        InputError: For a model without a stack of layers, or with no more layers than are to be kept.
    """
    module = copy.deepcopy(ranker.module)
    found = _stacks(module)
    depth = min((len(stack) for stack in found), default=1)
    name = f"the weaker model of {type(ranker).__name__}"
    if depth < 2:
        raise InputError(
            f"{name}: the model has no stack of at least two layers from which to keep some; use WeakerModel(model=...)"
        )
    keep = max(1, min(LAYERS, depth // 2)) if layers is None else int(layers)  # a NumPy integer cannot be saved
    if keep >= depth:
        raise InputError(f"{name}: layers={keep}, but the model has {depth}; keep fewer, or use another learner")
    for stack in found:
        del stack[keep:]
    for part in module.modules():
        # CEDR's head reads every layer.
        getattr(part, "keep_layers", lambda layers: None)(keep)
    for config in {id(c): c for part in module.modules() if (c := getattr(part, "config", None)) is not None}.values():
        for option in ("num_hidden_layers", "num_decoder_layers"):
            if isinstance(getattr(config, option, None), int):
                setattr(config, option, keep)
        if isinstance(getattr(config, "layer_types", None), list):
            config.layer_types = config.layer_types[:keep]
    options = {**ranker.options(), "model": InMemory(module, ranker.tokenizer), "training": None}
    return type(ranker)(**options)


def _stacks(module: torch.nn.Module) -> list[torch.nn.ModuleList]:
    """The outermost lists of modules of one class."""
    import torch

    found: list[torch.nn.ModuleList] = []
    for part in module.children():
        if isinstance(part, torch.nn.ModuleList) and len(part) > 1 and len({type(layer) for layer in part}) == 1:
            found.append(part)
        else:
            found += _stacks(part)
    return found


def _check_share(stage: str, learner: LessData | FewerSteps) -> None:
    check_number(f"{stage}, {type(learner).__name__}", "share", learner.share, above=0, most=1)
