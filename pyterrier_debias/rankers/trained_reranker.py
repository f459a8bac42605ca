"""Stages that train a copy of a ranker with their own method, and score with it.

The base class of these rerankers handles where the ranker comes from, "fit() must be called first", equality by the fitted
weights, and folders that the ranker's own class opens too.
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
from pyterrier_debias.core.errors import InputError
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

#: The file of ours in a saved folder, beside the ranker's own files.
_ABOUT = "pyterrier_debias_stage.json"


class TrainedRanker(Stage, Saved, pt.Estimator):
    """A stage that trains a copy of a ranker in a way of its own.

    A subclass has the options ``ranker`` and ``training``, and writes :meth:`check_options` and :meth:`make_method`; where
    something else is fitted too, :meth:`prepare` and :meth:`keep_beside`; and, to be saved, :meth:`saved_options` and the like.

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
        """The options of training, checked; by default :meth:`training_options` as they are.

        Raises:
            InputError: For an option that does not go together with this way of training.
        """
        return self.training_options()

    def prepare(self, ranker: Any, training: Training, groups: Groups, train_on: tuple[pd.DataFrame, pd.DataFrame]) -> Any:
        """What must be there before the ranker is trained, e.g. a second model; by default nothing.

        Args:
            ranker: What is going to be trained.
            training: The options.
            groups: The training queries, which are known to be usable.
            train_on: The candidates and judgements that they come from.

        Returns:
            Anything; :meth:`make_method` and :meth:`keep_beside` get it.
        """
        return None

    @abstractmethod
    def make_method(self, ranker: Any, training: Training, groups: Groups, prepared: Any) -> Method:
        """What is trained.

        Args:
            ranker: The ranker that is the result.
            training: The options.
            groups: The training queries; columns that the method needs are asked for here, before it touches a model.
            prepared: What :meth:`prepare` gave.

        Returns:
            The module that owns all networks.
        """

    def keep_beside(self, method: Any, prepared: Any) -> None:
        """Keep what else was fitted, once training has ended; by default nothing.

        Args:
            method: What was trained.
            prepared: What :meth:`prepare` gave.
        """

    def saved_options(self) -> dict[str, Any]:
        """The options that a saved folder keeps, as JSON-compatible values; by default none."""
        return {}

    def write_beside(self, folder: Path) -> dict[str, Any]:
        """Write what else was fitted into a folder that is about to appear.

        Args:
            folder: The folder, which the ranker was written into.

        Returns:
            What is to be remembered of it, as JSON-compatible values.
        """
        return {}

    @classmethod
    def read_beside(
        cls, folder: Path, about: dict[str, Any], beside: dict[str, Any], options: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read what :meth:`write_beside` wrote.

        Args:
            folder: The folder.
            about: What was remembered, with the saved ``options``.
            beside: The rankers of :meth:`beside`.
            options: What the user asks for.

        Returns:
            Options in place of the saved ones, and attributes to set on the stage.
        """
        return {}, {}

    def beside(self) -> dict[str, Any]:
        """Fitted rankers that are saved in folders of their own within the stage's; by default none."""
        return {}

    # The ranker

    def base(self) -> Any:
        """The ranker that training starts from; a name or folder stands for a cross-encoder.

        Raises:
            InputError: If it is none of these.
        """
        if isinstance(self.ranker, (str, Path)):
            return CrossEncoder(self.ranker)
        if not (hasattr(self.ranker, "fit") and hasattr(self.ranker, "text_columns")):
            raise InputError(
                f"{type(self).__name__}: ranker is a {type(self.ranker).__name__}; give a ranker of this package, or the name or "
                f"folder of a cross-encoder"
            )
        return self.ranker

    def checked_base(self) -> Ranker:
        """The ranker that training starts from, with options that can be used, where training looks inside it.

        Raises:
            InputError: If it is not a ranker of this package, but a stage around one; for its options.
        """
        base = self.base()
        if not isinstance(base, Ranker):
            raise InputError(
                f"{type(self).__name__}: ranker is a {type(base).__name__}; give a ranker of this package that stands alone"
            )
        base.check_options()
        return base

    def start(self) -> Any:
        """What :meth:`fit` trains: the ranker that was fitted before, or else a copy of the one that was passed."""
        return copy.deepcopy(self.base()) if self._trained is None else self._trained

    def keep(self, ranker: Any) -> None:
        """Score with a ranker from now on."""
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
        """Train a copy of the ranker, and score with it from now on; how it went is in ``training_report``.

        Args:
            res_tr: Candidates ``qid``, ``docno``, ``query``, the text and what else the class reads. Those judged relevant are
                the positives, the others the pool of negatives.
            qrels_tr: Judgements ``qid``, ``docno``, ``label``.
            res_va: Candidates of validation topics, which need the ranker's own columns only.
            qrels_va: Their judgements.

        Returns:
            The stage itself.

        Raises:
            InputError: For frames or options that cannot be used, before a model is loaded; from training: see ``fit`` of the
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
        """Train what :meth:`start` gave, with what :meth:`make_method` gives.

        Args:
            ranker: The ranker; its ``training_report`` tells how it went.
            training: The options.
            train_on: Candidates and judgements.
            validate_on: Those of validation topics, or None and None.
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
        """The fitted ranker, which works on its own.

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
        """How the fitted ranker was trained; None before."""
        return None if self._trained is None else self._trained.training_report

    def training_options(self) -> Training:
        """The options of training: the stage's, else the ranker's, else the defaults."""
        for training in (self.training, getattr(self.ranker, "training", None)):
            if training is not None:
                return training
        return Training()

    def cache_key(self) -> dict[str, Any]:
        """As for every stage, with the ranker and the training that are meant, whoever named them."""
        return {**super().cache_key(), "ranker": self.base(), "training": self.training_options()}

    def text_columns(self) -> list[str]:
        """The columns that hold the document: those of the ranker."""
        return (self.base() if self._trained is None else self._trained).text_columns()

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank every row with the fitted ranker.

        Args:
            inp: A result frame with the columns named above.

        Returns:
            A new frame with ``score`` and ``rank``; other columns as they were.

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
        """Let the fitted ranker remember; see :meth:`Ranker.remembering <pyterrier_debias.rankers.base.Ranker.remembering>`.

        Args:
            limit: How much it keeps at most; None for the ranker's own default.

        Yields:
            The stage; before :meth:`fit` nothing is remembered.
        """
        with ExitStack() as stack:
            if self._trained is not None and hasattr(self._trained, "remembering"):
                stack.enter_context(self._trained.remembering(**({} if limit is None else {"limit": limit})))
            yield self

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options and, once fitted, the weights in place of how they were trained."""
        identity = super().identity()
        if self._trained is None:
            return identity
        return {**identity, "training": None, "relevance": self._trained.identity()}

    # Folders

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write what was fitted. The folder is the ranker's ordinary model folder, which its own class opens too.

        Beside it lie a small JSON with the options, and what else the stage needs.

        Args:
            folder: Where to write; it appears whole or not at all.
            overwrite: Whether what was saved there before may be replaced; files that the package did not write stay.

        Raises:
            InputError: Before ``fit``; where the folder exists and may not be replaced, or cannot be written.
        """
        relevance, beside = self.relevance, self.beside()
        if process_number() == 0:
            with self.saving(folder, holds=HOLDS, overwrite=overwrite) as scratch:
                relevance.save(scratch)
                for name, other in beside.items():
                    other.save(scratch / name)
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
        """Open what :meth:`save` wrote: fitted, with the options that it was saved with.

        Args:
            folder: The folder.
            options: Options to change, and those that cannot be saved.

        Returns:
            A stage; weights are loaded when a score is first asked for.

        Raises:
            InputError: If there is no such folder, it is not as it was written, it holds something else, or a ranker whose class
                is neither of this package nor of a module that is imported already.
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
    """The class of a saved ranker: whoever wrote the folder decides neither what is imported nor what is called."""
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
        raise InputError(f"{folder}: {_ABOUT} names a ranker beside the stage {name!r}, which is not the name of a folder in it")
    return name
