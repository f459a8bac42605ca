"""fit, save and load: what training adds to every ranker."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.cache_key import marks, weights_fingerprint
from pyterrier_debias.core.errors import InputError, kind_of
from pyterrier_debias.core.files import write_whole
from pyterrier_debias.core.frames import reads_frames
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import Groups, groups_to_fit
from pyterrier_debias.training.options import Training, plain, saveable
from pyterrier_debias.training.report import ABOUT, HOLDS, TrainingReport, read_about
from pyterrier_debias.training.weights import check_column

if TYPE_CHECKING:
    import torch

    from pyterrier_debias.training.method import Method
    from pyterrier_debias.training.validation import Validation

logger = logging.getLogger(__name__)

#: How many training texts, evenly spread, are tokenised beforehand to estimate how many do not fit into the window.
_LOOKED_AT = 1000


class Fittable(Saved, pt.Estimator):
    """Mixin that adds training (``fit``), ``save`` and ``load`` to a ranker.

    The ranker must implement the scorer protocol (:class:`~pyterrier_debias.training.scorer.Scorer`), and ``module``, ``score``,
    ``fingerprint``, ``documents``, ``text_columns``, ``torch_device`` and ``write``.
    """

    ARTIFACT_TYPE = "ranker"

    #: Options that a saved folder stores in another form, or that do not affect scores.
    _NOT_SAVED: ClassVar[frozenset[str]] = frozenset(
        {"model", "training", "device", "batch_tokens", "verbose", "pooling", "documents_by"}
    )

    if TYPE_CHECKING:
        # What a ranker brings.

        def options(self) -> dict[str, Any]:
            """See :class:`~pyterrier_debias.core.stage.Stage`."""

        @property
        def module(self) -> torch.nn.Module:
            """The torch module."""

        def write(self, folder: Path) -> None:
            """Write the model."""

        def mark_trained(self) -> None:
            """Note that the weights have changed."""

    training: Training | None
    training_report: TrainingReport | None = None

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Make the constructor read the options of a saved folder."""
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            cls.__init__ = _as_saved(cls.__init__)  # type: ignore[method-assign]  # wrapped, with the same parameters

    def __setattr__(self, name: str, value: Any) -> None:
        """Convert NumPy numbers to Python's, which tokenizers, random-number generators and files need."""
        super().__setattr__(name, value.item() if isinstance(value, np.generic) else value)

    def method(self, training: Training) -> Method:
        """The training method that ``fit`` uses; rankers with a method of their own override this.

        Args:
            training: The options.

        Returns:
            The module that owns all networks.
        """
        from pyterrier_debias.training.method import Ranking

        return Ranking.of(self, training)

    @reads_frames
    @gathered()
    def fit(
        self,
        res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> Self:
        """Train the ranker on candidates and judgements, starting from its present weights; a second ``fit`` trains it further.

        With validation topics, it keeps the best of the evaluated weights, otherwise the last ones. ``training_report`` has the
        log and the results. If training fails or is interrupted, the ranker keeps the weights with which it began; with
        ``Training(checkpoints=...)`` training can be resumed.

        Args:
            res_tr: Candidates ``qid``, ``docno``, ``query`` and the text. Those judged relevant are the positives, the others the
                pool of negatives.
            qrels_tr: Judgements ``qid``, ``docno``, ``label``.
            res_va: Candidates of validation topics.
            qrels_va: Judgements of the validation topics.

        Returns:
            The ranker itself.

        Raises:
            InputError: For frames or options that cannot be used, before a model is loaded; during training: for a checkpoint of
                another run, a full disk, or a loss that is not a number.

        Example:
            ``(bm25 >> texts >> CrossEncoder(model, training=Training(epochs=2))).fit(topics, qrels, va_topics, va_qrels)``
        """
        self.training_report = fit_ranker(
            self, lambda training, groups: self.method(training), self.training, (res_tr, qrels_tr), (res_va, qrels_va)
        )
        return self

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save the ranker as an ordinary model folder; ``load`` opens it with the same scores.

        A small JSON file next to the model's own files records the ranker's options and its training. The class itself
        (``CrossEncoder(folder)``) reads the options there too, except those that you set anew.

        Args:
            folder: Where to write; the folder is written completely or not at all.
            overwrite: Whether to replace a ranker that was saved there before; files that the package did not write stay.

        Raises:
            InputError: If the folder exists and may not be replaced, or cannot be written.
        """
        from safetensors import SafetensorError

        if process_number() != 0:
            wait_for_all()
            return
        try:
            with self.saving(folder, holds=HOLDS, overwrite=overwrite) as scratch:
                self.write_with_options(scratch, self.training_report)
        except (OSError, SafetensorError) as error:
            raise InputError(f"{type(self).__name__}: {folder} cannot be written ({error}); nothing was changed there") from error
        wait_for_all()

    def write_with_options(self, folder: Path, report: TrainingReport | None = None) -> None:
        """Write the model and, in a small file of its own, the class and the options, with which :meth:`load` opens the folder.

        Args:
            folder: An empty folder.
            report: The report of the training that is complete with these weights; None for no report.
        """
        self.write(folder)
        training = None if report is None else report.to_json()
        about = {"ranker": type(self).__name__, "options": self.saved_options(), "training": training}
        write_whole(folder / ABOUT, json.dumps(about, indent=1, ensure_ascii=False) + "\n")

    def training_text(self, text: str) -> str:
        """The part of a document that training reads; scoring may read another part."""
        return text

    def cuts(self, queries: Sequence[str], docs: Sequence[str]) -> tuple[np.ndarray, np.ndarray, int] | None:
        """Count the tokens of n pairs that do not fit into the window.

        Args:
            queries: n queries.
            docs: n documents.

        Returns:
            Tokens that each pair loses, tokens that it keeps (both of shape [n]), and the window; None if unknown.
        """
        return None

    def record(self) -> dict[str, Any]:
        """The properties that a resumed run must share with the checkpoint's run: the class and options that training uses."""
        unseen = {"model", "training", "device", "batch_tokens", "verbose"}
        options = {name: plain(saveable(value)) for name, value in self.options().items() if name not in unseen}
        return {"class": type(self).__name__, **options}

    def saved_options(self) -> dict[str, Any]:
        """The options that are stored in a folder, as JSON-compatible values."""
        return {name: saveable(value) for name, value in self.options().items() if name not in self._NOT_SAVED}

    def saved_state(self) -> Any:
        """The options that are stored in a folder, and a hash of the weights."""
        return json.dumps(self.saved_options(), sort_keys=True), weights_fingerprint(self.module, structure=False)

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Self:  # type: ignore[override]  # PyTerrier calls it path
        """Open a folder that :meth:`save` wrote, as the class itself does, and restore ``training_report``.

        Args:
            folder: The folder.
            options: Options to change, e.g. ``device`` or ``dtype``.

        Returns:
            A ranker; weights are loaded when a score is first asked for.

        Raises:
            InputError: If there is no such folder, or it holds another kind of ranker.
        """
        name = cls.__name__
        if not Path(folder).expanduser().is_dir():
            raise InputError(f"{name}: there is no folder {str(folder)!r}; check the path")
        about = read_about(folder, name)
        if about and about["ranker"] != name:
            raise InputError(f"{name}: {folder} holds a {about['ranker']}; open it with {about['ranker']}.load")
        ranker = cls(str(folder), **options)  # type: ignore[call-arg]  # every ranker takes them
        if about.get("training"):
            ranker.training_report = TrainingReport.from_json(about["training"])
        ranker.kept_in(folder)
        return ranker


def _as_saved(init: Callable[..., None]) -> Callable[..., None]:
    """A ranker's constructor that takes options which are not given from a folder that :meth:`Fittable.save` wrote."""

    @wraps(init)
    def constructor(self: Fittable, model: Any, *args: Any, **options: Any) -> None:
        about = {}
        if type(self).__init__ is constructor and isinstance(model, (str, Path)):
            about = read_about(model, type(self).__name__)
        if about.get("ranker") == type(self).__name__:
            given = list(inspect.signature(init).parameters)[2 : 2 + len(args)]
            options = {**{name: value for name, value in about["options"].items() if name not in given}, **options}
        init(self, model, *args, **options)

    return constructor


def fit_ranker(
    ranker: Any,
    make_method: Callable[[Training, Groups], Method],
    training: Training | None,
    train_on: tuple[pd.DataFrame, pd.DataFrame],
    validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None] = (None, None),
    *,
    stage: Any = None,
) -> TrainingReport:
    """Train a ranker in place with a training method; every ranker's and every debiasing stage's ``fit`` calls it.

    Args:
        ranker: The ranker to train.
        make_method: ``make_method(training, groups)`` returns the module that owns all networks. It is called after the frames
            have been checked; it must read the columns that the method needs before it touches a model.
        training: The options; None for their defaults.
        train_on: Candidates and judgements.
        validate_on: Candidates and judgements of validation topics, or None and None.
        stage: The name used in messages; None for the ranker.

    Returns:
        The report of the training.

    Raises:
        InputError: See :meth:`Fittable.fit`.
    """
    stage = ranker if stage is None else stage
    name = type(stage).__name__
    training, groups, validation = check_fit(ranker, training, train_on, validate_on, stage=stage)
    skipped = {what: n for what, n in groups.counts.items() if n and what in ("without a positive", "without a negative")}
    if skipped:
        logger.warning(
            "%s: trains on %d of %d queries; %s",
            name,
            len(groups),
            groups.counts["queries"],
            ", ".join(f"{n} are {what}" for what, n in skipped.items()),
        )
    import torch

    from pyterrier_debias.training.trainer import check_rates, take_device, train

    # The caller may have switched gradients off.
    with torch.inference_mode(False), torch.enable_grad():
        take_device(ranker)
        method = make_method(training, groups)
        _tell_what_is_not_read(ranker, groups, stage)
        with _all_or_nothing(method):
            check_rates(stage, method, training.learning_rate)
            report = train(ranker, method, groups, training, validation)
    ranker.mark_trained()
    return report


def check_fit(
    ranker: Any,
    training: Training | None,
    train_on: tuple[pd.DataFrame, pd.DataFrame],
    validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None] = (None, None),
    *,
    stage: Any,
) -> tuple[Training, Groups, Validation | None]:
    """Check the input of training before a model is loaded.

    :func:`fit_ranker` begins with it; a stage calls it before work that a later error would waste.

    Args:
        ranker: The ranker.
        training: The options; None for their defaults.
        train_on: Candidates and judgements.
        validate_on: Candidates and judgements of validation topics, or None and None.
        stage: The name used in messages.

    Returns:
        The options, the training queries, and the validation; the last is None without validation topics.

    Raises:
        InputError: See :meth:`Fittable.fit`.
    """
    name = type(stage).__name__
    (res_tr, qrels_tr), (res_va, qrels_va) = train_on, validate_on
    ranker.check_options()
    if training is not None and not isinstance(training, Training):
        shown = ", ".join(f"{key}={value!r}" for key, value in training.items()) if isinstance(training, dict) else "..."
        raise InputError(f"{name}: training is {kind_of(training)}; give training=Training({shown})")
    training = training if training is not None else Training()
    if (res_va is None) != (qrels_va is None):
        raise InputError(f"{name}: fit needs both validation candidates and their judgements, or neither")
    for option in ("patience", "rerank_depth"):
        if res_va is None and getattr(training, option) is not None:
            told = f"Training({option}={getattr(training, option)!r})"
            raise InputError(f"{name}: {told} needs validation: fit(..., res_va, qrels_va)")
    groups = groups_to_fit(ranker, training, res_tr, qrels_tr, stage=stage)
    validation = None
    if res_va is not None:
        from pyterrier_debias.training.validation import Validation

        pt.validate.result_frame(res_va, extra_columns=["query", *ranker.text_columns()], context=stage)
        validation = Validation(
            res_va, qrels_va, ranker.documents(res_va), metric=training.metric, depths=training.depths(), stage=stage
        )
    if ranker.dtype not in ("float32", "tf32"):
        raise InputError(
            f"{name}: dtype={ranker.dtype!r} cannot be trained; fit with dtype='float32' (and, for speed, "
            f"Training(precision='bfloat16')), then score the saved ranker with dtype={ranker.dtype!r}"
        )
    from pyterrier_debias.training.trainer import check_device

    check_device(ranker, training)
    # One example shows what samplers, weights and changes of passages ask of the candidates.
    _ = Examples(groups, training, 1)[0]
    check_column(training.weights, groups)
    return training, groups, validation


@contextmanager
def _all_or_nothing(method: Method) -> Iterator[None]:
    """Restore the weights of a method's networks if training ends with an exception."""
    import torch

    def weights() -> dict[str, torch.Tensor]:
        trainable = {name: value for name, value in method.named_parameters() if value.requires_grad}
        return {**trainable, **dict(method.named_buffers())}

    began, kept = marks(method), {name: value.detach().to("cpu", copy=True) for name, value in weights().items()}
    try:
        yield
    except BaseException:
        # Weights that no step has changed are left alone, so that the ranker is not taken for a trained one.
        if marks(method) != began:
            present = weights()
            with torch.no_grad():
                for name in kept.keys() & present.keys():
                    present[name].copy_(kept[name])
        raise


def _tell_what_is_not_read(ranker: Any, groups: Groups, stage: Any) -> None:
    """Log how much of the training texts does not fit into the window; training itself does not show this."""
    name = type(stage).__name__
    if getattr(ranker, "long_for_scoring_only", False):
        logger.warning(
            "%s: long=%r is for scoring; training reads each text from its start, as far as the window goes; cut the "
            "candidates into passages, or use long='firstp'",
            name,
            ranker.long,
        )
    rows = np.concatenate([rows for group in groups.groups for rows in (group.positives, group.pool)])
    chosen = groups.rows.iloc[rows[np.linspace(0, len(rows) - 1, min(len(rows), _LOOKED_AT)).astype(int)]]
    found = ranker.cuts(chosen["query"].tolist(), [ranker.training_text(text) for text in ranker.documents(chosen)])
    if found is not None and found[0].any():
        cut, left, window = found
        share = 100 * cut.sum() / (cut.sum() + left.sum())
        logger.warning(
            "%s: %d of %d%s training texts are longer than the window of %d tokens, and training does not read %s %% of all "
            "tokens%s; raise max_length where the model allows it, or cut the candidates into passages",
            name,
            np.count_nonzero(cut),
            len(chosen),
            f" (of {len(rows)})" if len(rows) > len(chosen) else "",
            window,
            "less than 1" if share < 1 else f"{share:.0f}",
            getattr(stage, "note_on_unread", ""),
        )


def process_number() -> int:
    """Return the number of this process.

    Returns:
        Its rank under ``torchrun`` or ``accelerate launch``; 0 for a single process.
    """
    import torch

    distributed = torch.distributed
    return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0


def wait_for_all() -> None:
    """Wait for the other processes, if there are any."""
    import torch

    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
