"""BiasAwareReranker and AdversarialReranker: train rankers with a loss that counteracts bias."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_number, kind_of
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas.leaning import check_reader, gendered, lean_by
from pyterrier_debias.gender.formulas.losses import bias_aware_hinge
from pyterrier_debias.rankers.base import Ranker
from pyterrier_debias.rankers.cross_encoder import CrossEncoder
from pyterrier_debias.rankers.trained_reranker import TrainedRanker
from pyterrier_debias.training.fitting import check_fit, fit_ranker
from pyterrier_debias.training.options import Training

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Groups
    from pyterrier_debias.training.method import Method
    from pyterrier_debias.training.report import TrainingReport


class _FairReranker(TrainedRanker):
    """The base of both stages: a subclass checks its own options, and adds them to those saved."""

    wordlist: WordListLike
    tokeniser: str | Tokeniser

    def own_training(self) -> Training:
        """The options of training, checked."""
        training = self.training_options()
        if training.in_batch_negatives:
            name = type(self).__name__
            raise InputError(f"{name}: supports only a query's own candidates; leave in_batch_negatives out of Training")
        return training

    def saved_options(self) -> dict[str, Any]:
        """The word list (its words, unless it is the library's own), and the tokeniser.

        A tokeniser that is a function cannot be saved: pass it to ``load`` to fit again.
        """
        words = self.wordlist
        if words != "debias":  # a file may be gone when the folder is opened
            words = {group: sorted(own) for group, own in WordList.of(words).groups.items()}
        tokeniser = {"tokeniser": self.tokeniser} if isinstance(self.tokeniser, str) else {}
        return {"wordlist": words, **tokeniser}

    def _texts(self, groups: Groups) -> list[str]:
        """Each row's text, or its first passage with ``long='firstp'``, without augmentation, and not cut to the window."""
        read = self.checked_base().training_text
        return [read(" ".join(parts)) for parts in zip(*(groups.column(name) for name in groups.text_columns))]


def _note(what: str, column: str | None) -> str:
    """What is said of tokens that are not read: that their words count, unless a column has the values."""
    return f", whose words count for {what} all the same" if column is None else ""


def _numbers(groups: Groups, column: str, stage: str) -> np.ndarray:
    """A column of the candidates as numbers."""
    found = groups.column(column)
    try:
        values = np.array(found, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{stage}: column '{column}' holds no numbers ({error})") from error
    if not np.isfinite(values).all():
        lost = int((~np.isfinite(values)).sum())
        raise InputError(f"{stage}: column '{column}' has no value in {lost} rows; fill or drop them")
    return values


class BiasAwareReranker(_FairReranker):
    r"""Trains a ranker with a hinge whose margin grows with the bias of the negative, :math:`m + \Psi(d^-)`.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    Psi is the absolute lean of the negative's words (Boolean: 1 if only one gender is mentioned). The paper keeps its sign
    (``signed=True``); a negative that leans to female words then gets a *smaller* margin, and the ranker learns to prefer it.
    It is computed from the text after ``Training(augment=...)``, with ``long='firstp'`` from the first passage. Words beyond the
    ranker's window count, too; a warning of ``fit`` says whether there are any. Then cut the candidates into passages.

    Args:
        ranker: Any ranker of this package, or a name or folder, from which a ``CrossEncoder`` is made. It is copied.
        strength: Factor by which psi is multiplied; 0 is plain training with ``loss='hinge'``.
        signed: Whether psi keeps its sign, as published.
        method: How psi is computed: ``'bool'`` (the paper's), ``'tf'`` or ``'tc'``.
        column: A column with psi, which holds whatever an augmentation does; None computes it from the texts.
        wordlist: The words of each group; see :meth:`~pyterrier_debias.gender.data.words.WordList.of`.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        contrast: Which groups are compared; see :meth:`~pyterrier_debias.gender.data.words.WordList.contrast`.
        training: How ``fit`` trains; None for the ranker's own options. Leave its ``loss`` at the default, which means the hinge
            here, or set it to ``'hinge'``, for its margin.

    Raises:
        InputError: For options that are unknown or out of range; when scoring before ``fit``.

    While all pairs are within the margin, as at the start from a fresh head, psi changes the loss but no gradient: it only
    affects pairs that are ranked correctly by about the margin.

    When not to use it: with rankers whose scores are bounded (cosine), unless ``margin`` and ``strength`` are small; for few
    steps from a fresh head; on training queries that ask about a gender.

    Example:
        >>> BiasAwareReranker("distilbert-base-uncased", strength=0.5)
        BiasAwareReranker('distilbert-base-uncased', strength=0.5)

        In a pipeline: ``(bm25 >> AddJudged(qrels) >> texts >> BiasAwareReranker(ranker)).fit(topics, qrels)``.

    References:
        Seyedsalehi, Bigdeli, Arabzadeh, Mitra, Zihayat and Bagheri, EDBT 2022.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "BiasAware", "help_url": None}

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        strength: float = 1.0,
        signed: bool = False,
        method: str = "bool",
        column: str | None = None,
        wordlist: WordListLike = "debias",
        tokeniser: str | Tokeniser = "regex_word",
        contrast: str | tuple[str, str] | None = None,
        training: Training | None = None,
    ):
        super().__init__()
        self.ranker = ranker
        self.strength = strength
        self.signed = signed
        self.method = method
        self.column = column
        self.wordlist = wordlist
        self.tokeniser = tokeniser
        self.contrast = contrast
        self.training = training

    @property
    def note_on_unread(self) -> str:
        """What the warning of training texts that are longer than the window adds; see :func:`_note`."""
        return _note("psi", self.column)

    def check_options(self) -> None:
        """Refuse options that cannot be used; see :class:`~pyterrier_debias.rankers.trained_reranker.TrainedRanker`.

        Raises:
            InputError: Naming the option and the remedy.
        """
        self.checked_base()
        check_number("BiasAwareReranker", "strength", self.strength, least=0)
        check_reader(self)

    def own_training(self) -> Training:
        """The options of training, checked, with the hinge."""
        training = super().own_training()
        if training.loss not in ("pairwise", "hinge"):
            raise InputError(
                f"BiasAwareReranker: has its own loss; leave loss={training.loss!r} out of Training, or use loss='hinge'"
            )
        unknown = next((option for option in training.loss_options if option != "margin"), None)
        if unknown is not None:
            raise InputError(f"BiasAwareReranker: its loss has no option {unknown!r}, only margin; correct loss_options")
        return replace(training, loss="hinge")

    def make_method(self, ranker: Ranker, training: Training, groups: Groups, prepared: None) -> Method:
        """The training method, with the hinge that the class describes."""
        if self.column is None:
            psi = self._psi(lean_by(self, self._texts(groups)))
        else:
            psi = self._psi(_numbers(groups, self.column, "BiasAwareReranker"))
        live = self.column is None and training.augment is not None
        from functools import partial

        from pyterrier_debias.gender.training.fair_methods import BiasAware
        from pyterrier_debias.training.method import ranking_of

        loss = partial(bias_aware_hinge, **dict(training.loss_options))
        about = {"bias": {"strength": self.strength, "signed": self.signed}}
        read = (lambda example: self._psi(lean_by(self, example.texts))) if live else None
        return BiasAware(ranking_of(ranker, training, "BiasAwareReranker"), psi, about, loss, read)

    def _psi(self, leans: np.ndarray) -> np.ndarray:
        return self.strength * (leans if self.signed else np.abs(leans))

    def saved_options(self) -> dict[str, Any]:
        """The word list and tokeniser, and the options of the loss."""
        own = {"strength": self.strength, "signed": self.signed, "method": self.method, "column": self.column}
        return {**super().saved_options(), **own, "contrast": self.contrast}


class AdversarialReranker(_FairReranker):
    r"""Trains a cross-encoder so that a small network cannot detect gendered pairs from the input of its head (AdvBERT).

    .. math:: L = L_{\mathrm{rank}} + L_{\mathrm{adv}}\big(\mathrm{adv}(\mathrm{grl}_\lambda(h))\big)

    h is the vector that the ranking head reads, adv is two layers with a tanh between them, and grl passes h on unchanged but
    multiplies the gradient on its way back by :math:`-\lambda`: the adversary learns the attribute, the encoder unlearns it. A
    pair has the attribute if the neutrality of its query or of its document is below 1. The document's text is that after
    ``Training(augment=...)``, with ``long='firstp'`` its first passage. Words beyond the ranker's window count, too; a warning of
    ``fit`` says whether there are any. Then cut the candidates into passages. Scoring uses only the ranker.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``query`` and the ranker's text columns
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank
    ===============  ==========================================================================

    The log contains ``adversary_accuracy``, and ``attribute``, the share of pairs that have the attribute. If the accuracy stays
    above that of guessing, the encoder still represents the attribute.

    In the paper, the adversary is added to a ranker that is already trained to rank. Pass such a ranker, and training starts from
    exactly its weights, or let ``fit`` train it first with ``first_training``. Otherwise both learn together from the start.

    Args:
        ranker: A ``CrossEncoder``, or the name or folder of one. It is copied.
        reversal: lambda, 1 in the paper; 0 trains the ranker as without an adversary.
        attribute: A column of the candidates with 0 and 1, which holds whatever an augmentation does; None: whether the pair is
            gendered, as above.
        threshold: How many gendered words a text may have and still count as neutral.
        wordlist: The words of each group; see :meth:`~pyterrier_debias.gender.data.words.WordList.of`.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        training: How ``fit`` trains, with any loss (the paper's is ``'bce'``, 2 epochs at a learning rate of 3e-5); None for the
            ranker's own options. ``learning_rate={'ranker': 3e-5, 'adversary': 1e-3}`` trains the adversary faster.
        first_training: How the first ``fit`` trains the ranker alone, as ``ranker.fit`` would, before the adversary is added;
            None if the ranker is already trained, or should start together with the adversary. Its report is ``first_report``.

    Raises:
        InputError: For options that are unknown or out of range, or a ranker of another kind; when scoring before ``fit``.

    When not to use it: to lower a measure of bias in rankings without checking that measure: the encoder unlearns the *presence*
    of gendered words, not a preference for one gender; a linear probe after training shows whether it worked.

    Example:
        >>> AdversarialReranker("distilbert-base-uncased", reversal=0.5)
        AdversarialReranker('distilbert-base-uncased', reversal=0.5)

        In a pipeline: ``(bm25 >> AddJudged(qrels) >> texts >> AdversarialReranker(ranker)).fit(topics, qrels)``.

    References:
        Rekabsaz, Kopeinik and Schedl, "Societal Biases in Retrieved Contents: Measurement Framework and Adversarial Mitigation of
        BERT Rankers", SIGIR 2021.

    .. cite.dblp:: journals/corr/abs-2104-13640
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "Adversarial", "help_url": None}

    #: The report of training the ranker alone, with ``first_training``; None after loading.
    first_report: TrainingReport | None = None

    def __init__(
        self,
        ranker: str | Path | Ranker | TrainedRanker,
        *,
        reversal: float = 1.0,
        attribute: str | None = None,
        threshold: int = 1,
        wordlist: WordListLike = "debias",
        tokeniser: str | Tokeniser = "regex_word",
        training: Training | None = None,
        first_training: Training | None = None,
    ):
        super().__init__()
        self.ranker = ranker
        self.reversal = reversal
        self.attribute = attribute
        self.threshold = threshold
        self.wordlist = wordlist
        self.tokeniser = tokeniser
        self.training = training
        self.first_training = first_training

    @property
    def note_on_unread(self) -> str:
        """What the warning of training texts that are longer than the window adds; see :func:`_note`."""
        return _note("the attribute", self.attribute)

    def check_options(self) -> None:
        """Refuse options that cannot be used; see :class:`~pyterrier_debias.rankers.trained_reranker.TrainedRanker`.

        Raises:
            InputError: Naming the option and the remedy.
        """
        base = self.checked_base()
        if not isinstance(base, CrossEncoder):
            raise InputError(
                f"AdversarialReranker: ranker is {kind_of(base)}; give a CrossEncoder, since the adversary reads the "
                f"input of its head"
            )
        check_number("AdversarialReranker", "reversal", self.reversal, least=0)
        names = WordList.of(self.wordlist).names
        if len(names) < 2:
            raise InputError(
                f"AdversarialReranker: neutrality compares groups; the word list has only {names[0]}; give a word list with at "
                f"least two groups"
            )
        gendered([""], wordlist=self.wordlist, tokeniser=self.tokeniser, threshold=self.threshold)
        first = self.first_training
        if first is not None and not isinstance(first, Training):
            raise InputError(f"AdversarialReranker: first_training is {kind_of(first)}; give a Training, or None")
        folders = [one.checkpoints for one in (self.training_options(), first) if one is not None and one.checkpoints is not None]
        if len(folders) > len({Path(folder).expanduser().resolve() for folder in folders}):
            raise InputError(
                f"AdversarialReranker: training and first_training have the same checkpoints={str(folders[0])!r}; give each its "
                f"own folder"
            )

    def train(
        self,
        ranker: Ranker,
        training: Training,
        train_on: tuple[pd.DataFrame, pd.DataFrame],
        validate_on: tuple[pd.DataFrame | None, pd.DataFrame | None],
    ) -> None:
        """Train the ranker with its adversary; the first ``fit`` with ``first_training`` trains the ranker alone before."""
        if self.first_training is not None and not self.fitted:
            # What is asked for later is refused before the longer training.
            check_fit(ranker, training, train_on, validate_on, stage=self)

            def alone(options: Training, groups: Groups) -> Method:
                from pyterrier_debias.training.trainer import check_rates

                both = self.make_method(ranker, training, groups, None)
                check_rates(self, both, training.learning_rate)
                return ranker.method(options)

            self.first_report = fit_ranker(ranker, alone, self.first_training, train_on, validate_on, stage=self)
        super().train(ranker, training, train_on, validate_on)

    def attribute_of_rows(self, groups: Groups) -> np.ndarray:
        """Which pairs have the attribute.

        Args:
            groups: The training queries.

        Returns:
            0 or 1 for every row of ``groups``, shape [rows].

        Raises:
            InputError: If all rows have the same value, or the column ``attribute`` has values other than 0 and 1.
        """
        if self.attribute is None:
            values = self._gendered(self._texts(groups)) | self._gendered(groups.column("query"))
        else:
            values = _numbers(groups, self.attribute, "AdversarialReranker")
            if not np.isin(values, (0, 1)).all():
                raise InputError(f"AdversarialReranker: column '{self.attribute}' must hold only 0 and 1")
        if len(np.unique(values)) < 2:
            raise InputError(
                "AdversarialReranker: all candidates have the same attribute, so there is nothing to unlearn; check the word "
                "list, or train the ranker without an adversary"
            )
        return values

    def _gendered(self, texts: Sequence[str]) -> np.ndarray:
        return gendered(texts, wordlist=self.wordlist, tokeniser=self.tokeniser, threshold=self.threshold)

    def make_method(self, ranker: Ranker, training: Training, groups: Groups, prepared: None) -> Method:
        """The training method with ranker and adversary."""
        values = self.attribute_of_rows(groups)
        live = self.attribute is None and training.augment is not None
        from pyterrier_debias.gender.training.fair_methods import Adversarial
        from pyterrier_debias.training.method import ranking_of

        return Adversarial(
            ranking_of(ranker, training, "AdversarialReranker"),
            values,
            {"reversal": self.reversal},
            reversal=self.reversal,
            seed=training.seed,
            stage="AdversarialReranker",
            read=(lambda example: self._gendered(example.texts) | self._gendered([example.query])) if live else None,
        )

    def saved_options(self) -> dict[str, Any]:
        """The word list and tokeniser, and the options of the adversary."""
        own = {"reversal": self.reversal, "attribute": self.attribute, "threshold": self.threshold}
        return {**super().saved_options(), **own}

    def identity(self) -> dict[str, Any]:  # type: ignore[override]  # see Stage.identity
        """The options; once fitted, the weights instead of the options of training."""
        return {**super().identity(), **({"first_training": None} if self.fitted else {})}
