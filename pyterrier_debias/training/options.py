"""Training: all options of a training run in one object."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, cast

import numpy as np
from ir_measures.measures import Measure

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.evaluation import parse_measures
from pyterrier_debias.core.stage import brief, described
from pyterrier_debias.training.losses import GRADED, get_loss
from pyterrier_debias.training.precision import default_precision
from pyterrier_debias.training.samplers import Sampler, UniformNegatives
from pyterrier_debias.training.seeds import check_seed
from pyterrier_debias.training.weights import ExampleWeights

PRECISIONS = (None, "float32", "tf32", "bfloat16", "float16")
SCHEDULES = ("linear", "cosine", "constant")
LOGS = (None, "tensorboard")

#: Options that change neither what is learned nor its order, so a resumed run may have other values.
NOT_RECORDED = ("checkpoints", "resume", "workers", "log_every", "log_to")


@dataclass(frozen=True, kw_only=True)
class Training:
    """All options of a ranker's training: give it to a ranker as ``training``, and the ranker's ``fit`` follows it.

    The defaults are for fine-tuning a pretrained encoder. An example is a positive with its negatives; an epoch uses each judged
    positive once.

    Args:
        loss: ``'pairwise'`` (cross-entropy within pairs), ``'hinge'``, ``'ranknet'``, ``'infonce'``, ``'softmax'``, ``'bce'``,
            ``'lambda'``, or a function ``loss(scores, labels=..., mask=..., weights=...)``; see
            :mod:`pyterrier_debias.training.losses`.
        loss_options: Further keywords of the loss, e.g. ``{'margin': 0.5}`` for the hinge.
        epochs: How often each positive is used; may be a fraction. Rounded up to whole steps: the last one is filled with
            positives of the next epoch.
        max_steps: Number of optimiser steps, instead of ``epochs``.
        batch_size: Examples per forward pass on each device.
        accumulation: Forward passes per step; a step uses ``batch_size`` times ``accumulation`` times the number of processes.
        negatives: The sampler of negatives; see :class:`~pyterrier_debias.training.samplers.Sampler`.
        negatives_per_positive: How many negatives are drawn for each positive; 0 for only those of ``in_batch_negatives``.
        positives: ``'one'``: an example is one positive and its negatives. ``'all'``: all positives of a query with the negatives
            of each, for losses that use graded labels (``'ranknet'``, ``'softmax'``, ``'bce'``, ``'lambda'``).
        in_batch_negatives: Whether the documents of the other examples in a batch are negatives too, except those judged relevant
            for the query (for any qid with its text) or excluded (``ExcludeNegatives``), and copies of their texts (before
            ``augment``). Cheap for rankers that encode texts separately; others score every combination.
        min_label: The lowest grade of a positive.
        weights: How much an example counts, e.g. :class:`~pyterrier_debias.training.weights.ColumnWeights`; None for 1.
        augment: Changes passages anew in each epoch, e.g. ``RotatePassages()``: any object with ``text_field`` and
            ``rotator(draw=epoch)``. Queries and validation passages are not changed.
        learning_rate: Peak learning rate, or a mapping from network to rate if a method trains several networks.
        warmup: Share of the steps (below 1) or number of steps in which the rate rises from 0; the step after them has the peak.
        schedule: Course of the rate after warmup: ``'linear'`` and ``'cosine'`` fall to 0, ``'constant'`` stays.
        weight_decay: Weight decay of AdamW, on all weights but biases and normalisation.
        clip: Largest norm of each network's gradient; None for no clipping.
        precision: ``'float32'``, or mixed precision in ``'bfloat16'`` or ``'float16'`` (CUDA only); ``'tf32'`` is float32 with
            matrix products in TF32 (CUDA only). None: ``'bfloat16'`` on a CUDA device that supports it, else ``'float32'``.
        metric: The measure on validation topics, whose largest value decides which checkpoint is kept; not a measure of bias.
        evaluate_every: Steps from one evaluation (and checkpoint) to the next; None: every epoch.
        patience: Stop after this many evaluations without a new best; None: never. Needs validation topics.
        rerank_depth: How many first-stage candidates are reranked in validation: None for all, a number, or several numbers, of
            which the best is chosen and reported. The other candidates follow in their order. Needs validation topics.
        checkpoints: Folder for checkpoints; None keeps the best one in a temporary folder until training ends.
        resume: Whether to resume from the last checkpoint in that folder, exactly where it was written. Starts from the
            beginning if there is none; a run that has ended, or that stopped early, returns its result again.
        workers: Processes that prepare batches; 0 prepares them in the training process. None: up to 4 on a GPU, else 0.
        log_every: Steps from one entry of the log to the next; there is also one at each checkpoint, and at the end.
        log_to: ``'tensorboard'`` also writes the log for TensorBoard, into ``checkpoints``; None keeps it only in the report.
        seed: Seed of the order of examples, of negatives and of dropout.

    Raises:
        InputError: For an option that is unknown or out of range.

    Example:
        >>> from pyterrier_debias import Training
        >>> Training(loss="hinge", learning_rate=7e-6, epochs=3)
        Training(loss='hinge', epochs=3, learning_rate=7e-06)

        In a pipeline: ``(bm25 >> texts >> CrossEncoder(model, training=Training(epochs=2))).fit(topics, qrels)``.

    When not to use it: to score with a checkpoint that is already trained; rankers need no ``training`` for that.
    """

    loss: Any = "pairwise"
    loss_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: float = 1
    max_steps: int | None = None
    batch_size: int = 16
    accumulation: int = 1
    negatives: Sampler = field(default_factory=UniformNegatives)
    negatives_per_positive: int = 1
    positives: str = "one"
    in_batch_negatives: bool = False
    min_label: int = 1
    weights: ExampleWeights | None = None
    augment: Any = None
    learning_rate: float | Mapping[str, float] = 2e-5
    warmup: float = 0.1
    schedule: str = "linear"
    weight_decay: float = 0.01
    clip: float | None = 1.0
    precision: str | None = None
    metric: Any = "nDCG@10"
    evaluate_every: int | None = None
    patience: int | None = None
    rerank_depth: int | Sequence[int] | None = None
    checkpoints: str | Path | None = None
    resume: bool = False
    workers: int | None = None
    log_every: int = 10
    log_to: str | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Convert NumPy numbers to Python's, and refuse invalid options."""
        for f in fields(self):
            object.__setattr__(self, f.name, _pythons(getattr(self, f.name)))
        if not isinstance(self.loss_options, Mapping):
            told = "is not a mapping; write e.g. loss_options={'reduction': 'weights'}"
            raise InputError(f"Training: loss_options={self.loss_options!r} {told}")
        get_loss(self.loss, dict(self.loss_options))
        for name, known in (
            ("positives", ("one", "all")),
            ("precision", PRECISIONS),
            ("schedule", SCHEDULES),
            ("log_to", LOGS),
        ):
            check_choice("Training", name, getattr(self, name), known)
        for name, least in _WHOLE.items():
            value = getattr(self, name)
            if value is not None or _default(self.__dataclass_fields__[name]) is not None:
                check_number("Training", name, value, least=least, whole=True)
        check_seed("Training", self.seed)
        for name in ("epochs", "clip"):
            value = getattr(self, name)
            if value is not None:
                check_number("Training", name, value, above=0)
        for rate in self.learning_rate.values() if isinstance(self.learning_rate, Mapping) else [self.learning_rate]:
            check_number("Training", "learning_rate", rate, above=0, most=0.9999, hint="such as 2e-5")
        for name in ("warmup", "weight_decay"):
            check_number("Training", name, getattr(self, name), least=0)
        for depth in self.depths() or ():
            check_number("Training", "rerank_depth", depth, least=1, whole=True)
        if not hasattr(self.negatives, "sample"):
            raise InputError(f"Training: negatives={self.negatives!r} has no method sample; use e.g. UniformNegatives()")
        if self.weights is not None and not hasattr(self.weights, "weigh"):
            raise InputError(f"Training: weights={self.weights!r} has no method weigh; use e.g. ColumnWeights('column')")
        if self.augment is not None and not hasattr(self.augment, "rotator"):
            raise InputError(f"Training: augment={self.augment!r} has no method rotator; use e.g. RotatePassages()")
        if self.positives == "all" and isinstance(self.loss, str) and self.loss not in GRADED:
            graded = ", ".join(GRADED)
            raise InputError(f"Training: positives='all' needs a loss that uses graded labels ({graded}), not {self.loss!r}")
        if self.positives == "all" and self.in_batch_negatives:
            raise InputError("Training: in_batch_negatives needs positives='one'")
        if getattr(self.weights, "own_pairs_only", False) and (self.in_batch_negatives or self.positives == "all"):
            raise InputError(
                f"Training: {type(self.weights).__name__} weights pairs of one positive and its own negatives; use it with "
                f"positives='one' and without in_batch_negatives"
            )
        if self.negatives_per_positive == 0 and not (self.in_batch_negatives and self.batch_size > 1):
            raise InputError("Training: negatives_per_positive=0 needs in_batch_negatives=True and a batch_size above 1")
        if self.resume and self.checkpoints is None:
            raise InputError("Training: resume=True needs checkpoints, the folder to resume from")
        if self.log_to is not None and self.checkpoints is None:
            raise InputError(f"Training: log_to={self.log_to!r} needs checkpoints, the folder to write into")
        if not isinstance(self.metric, (str, Measure)):
            raise InputError(f"Training: metric={self.metric!r} is not a measure; name one, such as 'nDCG@10'")
        [measure] = parse_measures([self.metric])
        if "relevance" not in getattr(measure, "QREL_INPUTS", ["relevance"]):
            raise InputError(
                f"Training: metric={measure} does not read relevance, so its largest value is not the best; use e.g. 'nDCG@10'"
            )

    def __hash__(self) -> int:
        return hash((self.seed, self.epochs, self.batch_size))

    def __repr__(self) -> str:
        """The constructor call, with only the options that differ from their defaults."""
        changed = [f.name for f in fields(self) if getattr(self, f.name) != _default(f)]
        return f"Training({', '.join(f'{name}={brief(getattr(self, name))}' for name in changed)})"

    def depths(self) -> tuple[int, ...] | None:
        """The reranking depths to choose from; None for all candidates."""
        if self.rerank_depth is None:
            return None
        if isinstance(self.rerank_depth, Sequence) and not isinstance(self.rerank_depth, str):
            return tuple(self.rerank_depth)
        return (cast(int, self.rerank_depth),)

    def describe(self) -> dict[str, Any]:
        """All options as JSON-compatible values; objects and functions by their names."""
        return {f.name: plain(getattr(self, f.name)) for f in fields(self)}

    def cache_key(self) -> dict[str, Any]:
        """The cache key: everything on which trained weights depend, except the seed; with the precision used on this machine."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*NOT_RECORDED, "seed")}
        return {**known, "precision": default_precision() if self.precision is None else self.precision}

    def record(self) -> dict[str, Any]:
        """The options that a resumed run must share with the run that wrote the checkpoint."""
        return {name: value for name, value in self.describe().items() if name not in NOT_RECORDED}


#: Whole-number options and the smallest value of each.
_WHOLE = {
    **dict.fromkeys(("max_steps", "batch_size", "accumulation", "min_label"), 1),
    **dict.fromkeys(("evaluate_every", "patience", "log_every"), 1),
    **dict.fromkeys(("workers", "negatives_per_positive"), 0),
}


def _default(option: Field[Any]) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def _pythons(value: Any) -> Any:
    """An option with NumPy numbers, also nested ones, converted to Python's; torch and transformers do not always accept them."""
    if isinstance(value, np.generic):
        return value.item()
    if type(value) in (list, tuple):
        return type(value)(map(_pythons, value))
    return {name: _pythons(one) for name, one in value.items()} if type(value) is dict else value


def saveable(value: Any) -> Any:
    """An option in the form in which it is saved: with Python's numbers and lists instead of NumPy's numbers and arrays.

    Args:
        value: Any value.

    Returns:
        The value. Types that JSON does not know are left unchanged, so that saving fails instead of turning them into text.

    Example:
        >>> import numpy as np
        >>> saveable({"max_length": np.int64(32), "weights": np.array([1.0, 0.5])})
        {'max_length': 32, 'weights': [1.0, 0.5]}
    """
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: saveable(one) for name, one in value.items()}
    return [saveable(one) for one in value] if isinstance(value, (list, tuple)) else value


def plain(value: Any) -> Any:
    """An option as JSON-compatible values.

    Args:
        value: Any value.

    Returns:
        Numbers, texts, lists and mappings unchanged; objects and functions as described by
        :func:`~pyterrier_debias.core.stage.described`.
    """
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value) if isinstance(value, Path) else described(value)
