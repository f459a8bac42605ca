"""The base class of stages that train a copy of a ranker with their own method, and score with it.

It handles the source of the ranker, the error "fit() must be called first", equality by the fitted weights, and folders that the
ranker's own class can open too.
"""

from __future__ import annotations

import copy
import importlib
import json
import sys
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, kind_of
from pyterrier_debias.core.files import read_whole, write_whole
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.cross_encoder import CrossEncoder
from pyterrier_debias.training.fitting import fit_ranker, process_number, wait_for_all
from pyterrier_debias.training.options import Training, saveable
from pyterrier_debias.training.report import HOLDS, TrainingReport

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Groups
    from pyterrier_debias.training.method import Method

#: The library's own file in a saved folder, beside the ranker's files.
_ABOUT = "pyterrier_debias_stage.json"


class TrainedRanker(Stage, Saved, pt.Estimator):
    """Base class of stages that train a copy of a ranker with their own training method, and then score with it.

    A subclass has the options ``ranker`` and ``training``, and implements :meth:`check_options` and :meth:`make_method`; if it
    fits something else too, :meth:`prepare` and :meth:`keep_beside`; and, for saving, :meth:`saved_options` and related methods.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================
    """

    ARTIFACT_TYPE = "ranker"
    pieces = "scores"

    ranker: Any
    training: Training | None

    _trained: Any = None

    # What a subclass writes

    @abstractmethod
    def check_options(self) -> None:
        """Refuse options that cannot be used, before anything is loaded.

        Raises:
            InputError: Naming the option and the remedy.
        """

    def own_training(self) -> Training:
        """The options of training, checked; by default :meth:`training_options` unchanged.

        Raises:
            InputError: For an option that is incompatible with this training method.
        """
        return self.training_options()

    def prepare(self, ranker: Any, training: Training, groups: Groups, train_on: tuple[pd.DataFrame, pd.DataFrame]) -> Any:
        """Prepare things that training needs, e.g. a second model; by default nothing.

        Args:
            ranker: The ranker that will be trained.
            training: The options.
            groups: The training queries, which have been checked.
            train_on: The candidates and judgements from which they come.

        Returns:
            Anything; :meth:`make_method` and :meth:`keep_beside` get it.
        """
        return None

    @abstractmethod
    def make_method(self, ranker: Any, training: Training, groups: Groups, prepared: Any) -> Method:
        """Make the training method.

        Args:
            ranker: The ranker to train.
            training: The options.
            groups: The training queries; read the columns that the method needs here, before it touches a model.
            prepared: Output of :meth:`prepare`.

        Returns:
            The module that owns all networks.
        """

    def keep_beside(self, method: Any, prepared: Any) -> None:
        """After training, keep further fitted objects; by default nothing.

        Args:
            method: The training method.
            prepared: Output of :meth:`prepare`.
        """

    def saved_options(self) -> dict[str, Any]:
        """The options to store in a saved folder, as JSON-compatible values; by default none."""
        return {}

    def write_beside(self, folder: Path) -> dict[str, Any]:
        """Write further fitted objects into a folder that is being saved.

        Args:
            folder: The folder into which the ranker was written.

        Returns:
            Information to store about them, as JSON-compatible values.
        """
        return {}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read the files of :meth:`write_beside`.

        Args:
            folder: The folder.
            about: The stored information, with the saved ``options``.
            beside: The rankers of :meth:`beside`.
            options: The user's options.

        Returns:
            Options that replace the saved ones, and attributes to set on the stage.
        """
        return {}, {}

    def beside(self) -> dict[str, Any]:
        """Further fitted rankers, which are saved in folders within the stage's own; by default none."""
        return {}

    # The ranker

    def base(self) -> Any:
        """The ranker from which training starts; a name or folder stands for a cross-encoder.

        Raises:
            InputError: If it is neither a ranker, a name nor a folder.
        """
        if isinstance(self.ranker, (str, Path)):
            return CrossEncoder(self.ranker)
        if not (hasattr(self.ranker, "fit") and hasattr(self.ranker, "text_columns")):
            raise InputError(
                f"{type(self).__name__}: ranker is {kind_of(self.ranker)}; give a ranker of this package, or the name or "
                f"folder of a cross-encoder"
            )
        return self.ranker

    def checked_base(self) -> Ranker:
        """The ranker from which training starts, with checked options, for methods that need its internals.

        Raises:
            InputError: If it is not a ranker of this package but a stage around one, or has invalid options.
        """
        base = self.base()
        if not isinstance(base, Ranker):
            raise InputError(
                f"{type(self).__name__}: ranker is {kind_of(base)}; give a ranker of this package, not a stage around one"
            )
        base.check_options()
        return base

    def start(self) -> Any:
        """The ranker that :meth:`fit` trains: the one fitted before, otherwise a copy of the one that was passed."""
        return copy.deepcopy(self.base()) if self._trained is None else self._trained

    def keep(self, ranker: Any) -> None:
        """Score with the given ranker from now on."""
        self._trained = ranker

    @frames.reads_frames
    @gathered()
    def fit(
        self,
        res_tr: pd.DataFrame,
        qrels_tr: pd.DataFrame,
        res_va: pd.DataFrame | None = None,
        qrels_va: pd.DataFrame | None = None,
    ) -> Self:
        """Train a copy of the ranker, and score with it from now on; ``training_report`` has the log and the results.

        Args:
            res_tr: Candidates ``qid``, ``docno``, ``query``, the text and further columns that the class reads. Those judged
                relevant are the positives, the others the pool of negatives.
            qrels_tr: Judgements ``qid``, ``docno``, ``label``.
            res_va: Candidates of validation topics, which need only the ranker's own columns.
            qrels_va: Judgements of the validation topics.

        Returns:
            The stage itself.

        Raises:
            InputError: For frames or options that cannot be used, before a model is loaded; during training: see ``fit`` of the
                ranker.
        """
        self.check_options()
        training, ranker = self.own_training(), self.start()
        self.train(ranker, training, (res_tr, qrels_tr), (res_va, qrels_va))
        self.keep(ranker)
        return self

    def train(
        self,
        ranker: Any,
        training: Training,
        train_on: tuple[pd.DataFrame, pd.DataFrame],
        validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None],
    ) -> None:
        """Train the ranker of :meth:`start` with the method of :meth:`make_method`.

        Args:
            ranker: The ranker, which gets the ``training_report``.
            training: The options.
            train_on: Candidates and judgements.
            validate_on: Candidates and judgements of validation topics, or None and None.
        """
        made: list[Any] = []

        def method(training: Training, groups: Groups) -> Method:
            prepared = self.prepare(ranker, training, groups, train_on)
            made.extend((self.make_method(ranker, training, groups, prepared), prepared))
            return made[0]

        ranker.training_report = fit_ranker(ranker, method, training, train_on, validate_on, stage=self)
        self.keep_beside(*made)

    @property
    def fitted(self) -> bool:
        """Whether :meth:`fit` was called, or the stage was loaded."""
        return self._trained is not None

    @property
    def relevance(self) -> Any:
        """The fitted ranker, which can be used on its own.

        Raises:
            InputError: Before ``fit``.
        """
        if self._trained is None:
            raise InputError(
                f"{type(self).__name__}: fit() must be called first; to score without training use the ranker itself"
            )
        return self._trained

    @property
    def training_report(self) -> TrainingReport | None:
        """The report of the fitted ranker's training; None before ``fit``."""
        return None if self._trained is None else self._trained.training_report

    def training_options(self) -> Training:
        """The options of training: the stage's, otherwise the ranker's, otherwise the defaults."""
        for training in (self.training, getattr(self.ranker, "training", None)):
            if training is not None:
                return training
        return Training()

    def cache_key(self) -> dict[str, Any]:
        """The cache key of every stage, with the ranker and the training options that are used, given or default."""
        return {**super().cache_key(), "ranker": self.base(), "training": self.training_options()}

    def text_columns(self) -> list[str]:
        """The columns that hold the document, which are those of the ranker."""
        return (self.base() if self._trained is None else self._trained).text_columns()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank every row with the fitted ranker.

        Args:
            inp: A result frame with the columns named above.

        Returns:
            A new frame with ``score`` and ``rank``; other columns are unchanged.

        Raises:
            InputError: Before ``fit``, for any frame that is not empty; and see the ranker's own ``transform``.
        """
        pt.validate.result_frame(inp, extra_columns=["query", *self.text_columns()], context=self)
        self.check_options()
        if len(inp) == 0:
            return frames.ranked(inp, self)
        return self.relevance.transform(inp)

    @contextmanager
    def remembering(self, limit: int | None = None) -> Iterator[Self]:
        """Use the fitted ranker's :meth:`remembering <pyterrier_debias.rankers.base.Ranker.remembering>`.

        Args:
            limit: Largest number of items to keep; None for the ranker's own default.

        Yields:
            The stage; before :meth:`fit` nothing is remembered.
        """
        with ExitStack() as stack:
            if self._trained is not None and hasattr(self._trained, "remembering"):
                stack.enter_context(self._trained.remembering(**({} if limit is None else {"limit": limit})))
            yield self

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options and, once fitted, the weights instead of the options of their training."""
        identity = super().identity()
        if self._trained is None:
            return identity
        return {**identity, "training": None, "relevance": self._trained.identity()}

    # Folders

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save the fitted stage as the ranker's ordinary model folder, which the ranker's own class can open too.

        The folder also contains a small JSON file with the options, and further files that the stage needs.

        Args:
            folder: Where to write; the folder is written completely or not at all.
            overwrite: Whether to replace a stage that was saved there before; files that the package did not write stay.

        Raises:
            InputError: Before ``fit``, or if the folder exists and may not be replaced, or cannot be written.
        """
        relevance, beside = self.relevance, self.beside()
        if process_number() == 0:
            with self.saving(folder, holds=HOLDS, overwrite=overwrite) as scratch:
                try:
                    relevance.save(scratch)
                    for name, other in beside.items():
                        other.save(scratch / name)
                except InputError as error:  # of a full disk; the temporary folder is nothing to the user
                    raise InputError(str(error).replace(str(scratch), str(folder))) from error
                about = {
                    "stage": type(self).__name__,
                    "options": saveable(self.saved_options()),
                    "ranker": _name_of(relevance),
                    "beside": {name: _name_of(other) for name, other in beside.items()},
                    **self.write_beside(scratch),
                }
                write_whole(scratch / _ABOUT, json.dumps(about, indent=1) + "\n")
        else:
            # Which writes nothing, but waits as often as the first process does.
            for other in (relevance, *beside.values()):
                other.save(folder)
        wait_for_all()

    def saved_state(self) -> Any:
        """The saved options, and the states of the fitted rankers."""
        states = [other.saved_state() for other in (self.relevance, *self.beside().values())]
        return json.dumps(saveable(self.saved_options()), sort_keys=True), states

    @classmethod
    def load(cls, folder: str | Path, **options: Any) -> Self:  # type: ignore[override]  # PyTerrier calls it path
        """Open a folder that :meth:`save` wrote: the stage is fitted and has its saved options.

        Args:
            folder: The folder.
            options: Options to change, and those that cannot be saved.

        Returns:
            A stage; weights are loaded when a score is first needed.

        Raises:
            InputError: If there is no such folder, it was changed, it contains something else, or its ranker's class is neither
                of this package nor of a module that is imported already.
        """
        folder = Path(folder).expanduser()
        return read_whole(folder, lambda: cls._read(folder, options))

    @classmethod
    def _read(cls, folder: Path, options: dict[str, Any]) -> Self:
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            if about["stage"] != cls.__name__:
                raise InputError(f"{cls.__name__}: {folder} holds a {about['stage']}; open it with {about['stage']}.load")
            make = _class_of(about["ranker"], folder)
            kinds = {_plain_name(name, folder): _class_of(kind, folder) for name, kind in about["beside"].items()}
            beside = {name: kind.load(folder / name) for name, kind in kinds.items()}
            more, attributes = cls.read_beside(folder, about, beside, options)
        except (OSError, ValueError, KeyError, TypeError, ImportError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{cls.__name__}: {folder} holds no saved {cls.__name__} ({error}); check the path") from error
        stage = cls(make.load(folder), **{**about["options"], **more, **options})  # type: ignore[call-arg]  # as every subclass
        stage.keep(make.load(folder))
        for name, value in attributes.items():
            setattr(stage, name, value)
        stage.kept_in(folder)
        return stage


def _name_of(ranker: Any) -> str:
    return f"{type(ranker).__module__}:{type(ranker).__qualname__}"


def _class_of(name: Any, folder: Path) -> type[Ranker]:
    """The class of a saved ranker; the folder's author must not be able to choose what is imported or called."""
    module, _, attribute = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not module or not attribute:
        raise InputError(f"{folder}: {_ABOUT} names no class of a ranker ({name!r}); save the stage again")
    if module not in sys.modules and module.partition(".")[0] != __package__.partition(".")[0]:
        raise InputError(f"{folder} was saved with a ranker of the module {module}; import {module} first, if you trust it")
    found = getattr(importlib.import_module(module), attribute)
    if not (isinstance(found, type) and issubclass(found, Ranker)):
        raise InputError(f"{folder}: {attribute} of the module {module} is not a ranker, so it is not opened")
    return found


def _plain_name(name: str, folder: Path) -> str:
    if name in ("", ".", "..") or set(name) & set("/\\"):
        raise InputError(f"{folder}: {_ABOUT} names a ranker {name!r}, which is not a folder inside it; save the stage again")
    return name
