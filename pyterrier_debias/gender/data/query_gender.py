"""QueryGender: labels queries with the gender that they ask about, according to their words."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.artifacts import Saved
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.files import read_whole, write_whole
from pyterrier_debias.core.frames import check_text
from pyterrier_debias.core.stage import RowWise, same_value
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.words import WordList, WordListLike
from pyterrier_debias.gender.formulas.counting import count_words, get_gender_tokeniser

#: The labels of queries, in this order. ``other``: more than one gender, or neither of the two.
LABELS = ("female", "male", "neutral", "other")

#: Their abbreviations in annotations.
_SAME = {"f": "female", "m": "male", "n": "neutral", "o": "other", **{label: label for label in LABELS}}

#: Options that affect a bi-encoder's vectors besides its weights.
_READING = ("similarity", "pooling", "max_length")
_ABOUT, _WEIGHTS, _ENCODER = "query_gender.json", "query_gender.npz", "encoder"


def read_gender_queries(path: str | Path) -> pd.DataFrame:
    """Read queries annotated with a gender from a file of lines ``qid,query,label``; the query may contain commas.

    Source: the 3,750 queries of Rekabsaz and Schedl, "Do Neural Ranking Models Intensify Gender Bias?", SIGIR 2020.

    Args:
        path: The file.

    Returns:
        Frame ``qid``, ``query``, ``gender`` (:data:`LABELS`).

    Raises:
        InputError: If the file cannot be read, a line has fewer than two commas, or a label is not f, m, n or o.
    """
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise InputError(f"annotated queries {path} cannot be read: {error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"annotated queries {path} are not UTF-8; convert the file from its encoding, e.g. iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        qid, _, rest = line.partition(",")
        query, comma, label = rest.rpartition(",")
        if not comma or label.strip().lower() not in _SAME:
            raise InputError(f"annotated queries {path}: line {number} is not qid,query,label with a label of f, m, n or o")
        rows.append((qid.strip(), query.strip(), _SAME[label.strip().lower()]))
    return pd.DataFrame(rows, columns=["qid", "query", "gender"])


def label_of(label: Any) -> Any:
    """A label in this library's spelling: ``female``, ``male``, ``neutral`` or ``other`` from abbreviations and in any case.

    Args:
        label: Any label.

    Returns:
        The corresponding label in :data:`LABELS`; any other label unchanged.

    Example:
        >>> label_of("F"), label_of(" Male"), label_of("young")
        ('female', 'male', 'young')
    """
    return _SAME.get(label.strip().lower(), label) if isinstance(label, str) else label


def by_words(
    texts: Sequence[str], wordlist: WordListLike = "debias", tokeniser: str | Tokeniser = "regex_word"
) -> np.ndarray:
    """Label texts with a word list: a gender if only its words occur, ``neutral`` without any, ``other`` with both.

    Args:
        texts: n texts.
        wordlist: A list with the groups ``male`` and ``female`` (or ``m`` and ``f``).
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.

    Returns:
        Shape [n, 4] in the order of :data:`LABELS`: 1 for the label, 0 for the others.

    Raises:
        InputError: For a list without these groups.

    Example:
        >>> by_words(["who is his wife", "her age", "sea"]).argmax(axis=1).tolist()
        [3, 0, 2]
    """
    words = WordList.of(wordlist)
    named = [label_of(name) for name in words.names]
    if not {"female", "male"} <= set(named):
        raise InputError(
            f"QueryGender: the word list has the groups {', '.join(words.names)}; give one with the groups female and male"
        )
    counts = count_words(list(texts), words, tokeniser)
    female, male = (counts[:, named.index(group)] > 0 for group in ("female", "male"))
    return np.stack([female & ~male, male & ~female, ~female & ~male, female & male], axis=1).astype(np.float64)


def label_accuracies(said: Sequence[str] | np.ndarray, labels: Sequence[str] | np.ndarray) -> pd.DataFrame:
    """The accuracy of labels, over all queries and by label.

    Args:
        said: n labels from :data:`LABELS` that a labeller gave.
        labels: The n true labels.

    Returns:
        One row for ``all`` and for each true label: ``label``, ``n``, ``accuracy`` (for a label, its recall), ``low``, ``high``
        (95 %, exact binomial), ``precision`` (NaN for a label that was never given).

    Example:
        >>> label_accuracies(["male", "male", "neutral"], ["female", "male", "neutral"])["accuracy"].round(2).tolist()
        [0.67, 0.0, 1.0, 1.0]
    """
    from pyterrier_debias.core.statistics import binomial_interval

    given, true = np.asarray(said, dtype=object), np.asarray(labels, dtype=object)
    rows = []
    for name in ["all", *(label for label in LABELS if label in set(true.tolist()))]:
        own: np.ndarray = np.ones(len(true), dtype=bool) if name == "all" else true == name
        called: np.ndarray = own if name == "all" else given == name
        interval = binomial_interval(int((given[own] == true[own]).sum()), int(own.sum()), level=0.95)
        precision = float((given[called] == true[called]).mean()) if called.any() else float("nan")
        rows.append((name, int(own.sum()), interval.estimate, interval.low, interval.high, precision))
    return pd.DataFrame(rows, columns=["label", "n", "accuracy", "low", "high", "precision"])


class GenderClassifier(Saved):
    """Classifies queries by the gender they ask about: a linear head on a sentence encoder, fitted on annotated queries.

    The head is a multinomial logistic regression. The encoder is not changed unless ``epochs`` is above 0: a copy of it is then
    fine-tuned together with the fitted head.

    Args:
        encoder: A name or folder of a sentence encoder, or anything with ``encode_queries(texts)``, such as a ``BiEncoder``.
        strength: Inverse of the regularisation strength (scikit-learn's C).
        epochs: Passes over the queries for fine-tuning the encoder; 0 for none.
        learning_rate: Peak learning rate of fine-tuning (AdamW).
        batch_size: Queries per step of fine-tuning.
        seed: Seed of the order of queries and of dropout in fine-tuning.

    Raises:
        InputError: From ``fit``, for an option out of range; from any use before ``fit``.

    Example:
        >>> class Letters:
        ...     def encode_queries(self, texts):
        ...         return np.array([[text.count("f"), text.count("m")] for text in texts], dtype=float)
        >>> head = GenderClassifier(Letters()).fit(["fff", "mm", "xy"] * 5, ["female", "male", "neutral"] * 5)
        >>> head.labels, head.probabilities(["ffff"]).argmax(axis=1).tolist()
        (('female', 'male', 'neutral'), [0])

    When not to use it: on queries of a different kind from those it was fitted on; on names that it has not seen, which the
    encoder may still associate with a gender; to label *users*.
    """

    ARTIFACT_TYPE = "query_classifier"

    def __init__(
        self,
        encoder: Any,
        *,
        strength: float = 3.0,
        epochs: int = 0,
        learning_rate: float = 5e-5,
        batch_size: int = 32,
        seed: int = 0,
    ):
        self.encoder = encoder
        self.strength = strength
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.seed = seed
        self.labels: tuple[str, ...] | None = None
        self._tuned: Any = None
        self._weights: np.ndarray | None = None
        self._bias: np.ndarray | None = None

    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("strength", "epochs", "learning_rate", "batch_size", "seed")}

    def _opened(self) -> Any:
        """The encoder, as a bi-encoder if a name was given; its weights are read once."""
        if isinstance(self.encoder, (str, Path)):
            from pyterrier_debias.rankers.bi_encoder import BiEncoder

            self.encoder = BiEncoder(self.encoder)
        return self.encoder

    def _encode(self, texts: Sequence[str]) -> np.ndarray:
        encoder = self._opened() if self._tuned is None else self._tuned
        return np.asarray(encoder.encode_queries(list(texts)), dtype=np.float64)

    def _head(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(C=self.strength, max_iter=1000)

    def fit(self, texts: Sequence[str], labels: Sequence[str] | np.ndarray) -> Self:
        """Fit the head and, if ``epochs`` is above 0, fine-tune a copy of the encoder; replaces any earlier fit.

        Args:
            texts: n queries.
            labels: Their labels, from :data:`LABELS` or f, m, n, o.

        Returns:
            This classifier.

        Raises:
            InputError: For an option out of range, unequal lengths, fewer than two labels, or an unknown label; for an encoder
                that cannot be fine-tuned.
        """
        check_number("GenderClassifier", "strength", self.strength, above=0)
        check_number("GenderClassifier", "epochs", self.epochs, least=0, whole=True)
        check_number("GenderClassifier", "learning_rate", self.learning_rate, above=0, most=0.9999, hint="such as 5e-5")
        check_number("GenderClassifier", "batch_size", self.batch_size, least=1, whole=True)
        texts = list(texts)  # a Series would be asked by its labels
        checked = _checked_labels(texts, labels)
        if self.epochs:
            from pyterrier_debias.rankers.bi_encoder import BiEncoder

            if not isinstance(self.encoder, (str, Path, BiEncoder)):
                raise InputError(
                    f"GenderClassifier: {kind_of(self.encoder)} cannot be fine-tuned; give a BiEncoder, the name or "
                    f"folder of a sentence encoder, or epochs=0"
                )
        self._tuned = None
        kept, weights, bias = self._keep(self._head().fit(self._encode(texts), checked))
        if self.epochs:
            from pyterrier_debias.gender.training.finetune_encoder import fine_tune

            how = {name: value for name, value in self._options().items() if name != "strength"}
            rows = np.array([kept.index(label) for label in checked])
            self._tuned, self._weights, self._bias = fine_tune(self.encoder, weights, bias, texts, rows, **how)
        return self

    def _keep(self, head: Any) -> tuple[tuple[str, ...], np.ndarray, np.ndarray]:
        """Keep the labels, weights and bias of a fitted head."""
        weights, bias = head.coef_, head.intercept_
        if len(head.classes_) == 2:  # scikit-learn keeps one row for two classes
            weights, bias = np.concatenate([-weights / 2, weights / 2]), np.concatenate([-bias / 2, bias / 2])
        order = [list(head.classes_).index(label) for label in LABELS if label in set(head.classes_)]
        self.labels = tuple(str(head.classes_[i]) for i in order)
        self._weights, self._bias = weights[order], bias[order]
        return self.labels, self._weights, self._bias

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """The probability of each of :attr:`labels` for each text.

        Args:
            texts: n texts.

        Returns:
            Shape [n, labels]; rows sum to 1.

        Raises:
            InputError: Before ``fit``.
        """
        if self._weights is None:
            raise InputError("GenderClassifier: fit() must be called first, or load() what was saved")
        logits = self._encode(texts) @ self._weights.T + self._bias
        logits -= logits.max(axis=1, keepdims=True)
        return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    def cross_validate(self, texts: Sequence[str], labels: Sequence[str], *, folds: int = 5, seed: int = 0) -> pd.DataFrame:
        """The accuracy of a classifier with these options on held-out queries.

        Bigdeli et al. (2023) report .856 for a fine-tuned BERT on these annotations.

        Args:
            texts: n queries.
            labels: Their labels.
            folds: How many folds.
            seed: Seed of the folds, which are stratified by label.

        Returns:
            Accuracies over all queries and by label; see :func:`label_accuracies`.

        Raises:
            InputError: As for :meth:`fit`, and for a label with fewer queries than folds.
        """
        from sklearn.model_selection import StratifiedKFold, cross_val_predict

        texts = list(texts)
        checked = _checked_labels(texts, labels)
        names, counts = np.unique(checked, return_counts=True)
        if counts.min() < folds:
            rare = names[counts.argmin()]
            raise InputError(f"GenderClassifier: {rare!r} has {counts.min()} queries for {folds} folds; use fewer folds")
        split = StratifiedKFold(folds, shuffle=True, random_state=seed)
        if self.epochs:
            said = np.empty(len(checked), dtype=object)
            for own, held_out in split.split(texts, checked):
                fold = type(self)(self._opened(), **self._options()).fit([texts[i] for i in own], checked[own])
                found = fold.probabilities([texts[i] for i in held_out])
                said[held_out] = np.array(fold.labels)[found.argmax(axis=1)]
        else:
            said = cross_val_predict(self._head(), self._encode(texts), checked, cv=split)
        return label_accuracies(said, checked)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Save the head and the encoder's name; the encoder itself is saved only if it was fine-tuned.

        A fine-tuned encoder is written to the subfolder ``encoder``, an ordinary sentence-transformers folder.

        Args:
            folder: Where to write; it is written completely or not at all.
            overwrite: Whether an earlier save there may be replaced; files that the package did not write are kept.

        Raises:
            InputError: Before ``fit``; if the encoder has no name; if the folder exists and may not be replaced.
        """
        if self.labels is None or self._weights is None or self._bias is None:
            raise InputError("GenderClassifier: fit() must be called first; there is nothing to save")
        name = getattr(self.encoder, "model", self.encoder)
        if not isinstance(name, (str, Path)):
            raise InputError(
                "GenderClassifier: the encoder has no name or folder from which it can be loaded; save it, and pass its folder"
            )
        with self.saving(folder, holds="a classifier of gender", overwrite=overwrite) as scratch:
            reads = {option: getattr(self.encoder, option) for option in _READING if hasattr(self.encoder, option)}
            about = {"encoder": str(name), "reads": reads, "labels": list(self.labels), **self._options()}
            if self._tuned is not None:
                self._tuned.save(scratch / _ENCODER)
            write_whole(scratch / _ABOUT, json.dumps(about, indent=1) + "\n")
            np.savez(scratch / _WEIGHTS, weights=self._weights, bias=self._bias)

    def saved_state(self) -> Any:
        """Options, head and, if it was fine-tuned, the encoder."""
        tuned = None if self._tuned is None else self._tuned.saved_state()
        return self._options(), self.labels, self._weights, self._bias, tuned

    @classmethod
    def load(cls, folder: str | Path, *, encoder: Any = None) -> Self:  # type: ignore[override]  # PyTerrier calls it path
        """Load a classifier that :meth:`save` wrote.

        Args:
            folder: The folder.
            encoder: Used instead of the saved name, if the encoder is now elsewhere; a fine-tuned one is in the folder.

        Returns:
            A fitted classifier, whose encoder reads texts as the saved one did; the encoder is loaded on first use.

        Raises:
            InputError: If the folder does not exist, contains something else, or was changed after it was written.
        """
        folder = Path(folder).expanduser()
        return read_whole(folder, lambda: cls._read(folder, encoder))

    @classmethod
    def _read(cls, folder: Path, encoder: Any) -> Self:
        try:
            about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
            with np.load(folder / _WEIGHTS) as arrays:
                weights, bias = arrays["weights"], arrays["bias"]
            name, labels, reads = about.pop("encoder"), about.pop("labels"), about.pop("reads")
            found = cls(name if encoder is None else encoder, **about)
            found.labels = tuple(labels)
        except Exception as error:  # numpy's reader raises whatever its parts do
            raise InputError(f"GenderClassifier: {folder} holds no saved classifier ({error}); check the path") from error
        found._weights, found._bias = weights, bias
        if reads:  # a bi-encoder's
            from pyterrier_debias.rankers.bi_encoder import BiEncoder

            if isinstance(found.encoder, (str, Path)):
                found.encoder = BiEncoder(found.encoder, **reads)
            if found.epochs:
                found._tuned = BiEncoder.load(folder / _ENCODER)
        found.kept_in(folder)
        return found

    def fingerprint(self) -> str:
        """A string that changes whenever the labels may change: with the encoder, the head, or a fine-tuned encoder."""
        state = blake2b(repr(self).encode(), digest_size=16)
        for array in (self._weights, self._bias):
            state.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        for encoder in (self.encoder, self._tuned):
            told = getattr(encoder, "fingerprint", None)
            state.update(str(told()).encode() if callable(told) else b"")
        return state.hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether the encoders and the heads are equal."""
        if not isinstance(other, GenderClassifier):
            return NotImplemented
        names = [getattr(one.encoder, "model", one.encoder) for one in (self, other)]
        same = self.labels == other.labels and self._options() == other._options() and names[0] == names[1]
        return same and same_value(self._weights, other._weights) and same_value(self._bias, other._bias)

    def __hash__(self) -> int:
        return hash(type(self))

    def __repr__(self) -> str:
        state = "not fitted" if self.labels is None else ", ".join(self.labels)
        return f"GenderClassifier({getattr(self.encoder, 'model', self.encoder)!r}, <{state}>)"


def _checked_labels(texts: Sequence[str], labels: Sequence[str] | np.ndarray) -> np.ndarray:
    labels = [str(label).lower() for label in labels]
    if len(texts) != len(labels):
        raise InputError(f"GenderClassifier: {len(texts)} texts and {len(labels)} labels")
    unknown = sorted(set(labels) - set(_SAME))
    if unknown:
        raise InputError(f"GenderClassifier: label {unknown[0]!r} is not known; use {', '.join(LABELS)}")
    found = np.array([_SAME[label] for label in labels])
    if len(set(found.tolist())) < 2:
        raise InputError("GenderClassifier: all queries have the same label; there is nothing to distinguish")
    return found


class QueryGender(RowWise):
    """Labels queries or documents with the gender they are about: female, male, neutral or other.

    ===============  ==========================================================================
    columns in       ``query`` (or another column of texts), and any others
    columns out      the same; ``gender``: the label; ``gender_female``, ``gender_male``, ``gender_neutral``, ``gender_other``:
                     its probability
    ===============  ==========================================================================

    The ``labeller`` can be

    - ``'words'``, a word list: female if only words of that group occur, other if both do. On the 3,750 annotated queries its
      accuracy is .48, since most people are named and not called "he": a lower bound, not a method;
    - a :class:`GenderClassifier`, fitted on annotated queries: .815 in five-fold cross-validation with all-MiniLM-L6-v2, .848
      if the encoder is fine-tuned too; .822 and .854 without ``other``. Bigdeli et al. report .856 for a fine-tuned BERT;
    - a function from a list of texts to labels, or to probabilities of shape [n, 4].

    **What such a label leaves out.** It is about the words of a text, never about the person who asks. It knows two genders and a
    rest: non-binary people, people whom no text calls "he" or "she", and texts about several people all end up in ``neutral`` or
    ``other``, and results for "female" and "male" say nothing about them. Labellers labelled names by the gender usual for them.
    Some labels are wrong, and error rates differ between labels, so a difference between groups can be a difference in errors:
    look at ``cross_validate`` by label. Predicted labels should not be published as facts about queries;
    :func:`~pyterrier_debias.gender.data.balanced_pairs.save_pairs` drops them by default.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> topics = pd.DataFrame({"qid": ["1", "2"], "query": ["age of her son", "depth of the sea"]})
        >>> QueryGender()(topics)["gender"].tolist()
        ['other', 'neutral']

    When not to use it: to profile users; to decide what to show to which user.

    .. cite.dblp:: journals/corr/abs-2005-00372
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "QueryGender", "help_url": None}

    def __init__(
        self,
        labeller: str | GenderClassifier | Callable[[list[str]], Any] = "words",
        *,
        text_field: str = "query",
        wordlist: WordListLike = "debias",
        tokeniser: str | Tokeniser = "regex_word",
    ):
        """
        Args:
            labeller: ``'words'``, a fitted :class:`GenderClassifier`, or a function.
            text_field: The column to label, e.g. ``'text'`` for documents.
            wordlist: A list with the groups ``f`` and ``m``, for ``'words'``.
            tokeniser: For ``'words'``; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        """
        self.labeller = labeller
        self.text_field = text_field
        self.wordlist = wordlist
        self.tokeniser = tokeniser

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the label and its probabilities; each distinct text is labelled once.

        Raises:
            InputError: For a missing text, an unknown labeller, or an invalid answer of the labeller.
        """
        pt.validate.columns(inp, includes=[self.text_field], context=self)
        if not callable(self.labeller) and not isinstance(self.labeller, GenderClassifier):
            check_choice("QueryGender", "labeller", self.labeller, ("words",), "a GenderClassifier or a function")
        if self.labeller == "words":
            get_gender_tokeniser(self.tokeniser)
            WordList.of(self.wordlist)
        check_text(inp, self.text_field, self)
        warn_of_expressions(inp["query"] if self.text_field == "query" else (), self)
        places = {text: i for i, text in enumerate(dict.fromkeys(inp[self.text_field].tolist()))}
        rows = [places[text] for text in inp[self.text_field].tolist()]
        found = self._probabilities(list(places))[rows] if rows else np.empty((0, len(LABELS)))
        gender = [LABELS[i] for i in found.argmax(axis=1)] if rows else []
        columns = {"gender": pd.Series(gender, index=inp.index, dtype="object" if not rows else None)}
        columns |= {f"gender_{label}": found[:, i] for i, label in enumerate(LABELS)}
        return inp.assign(**columns)

    def _probabilities(self, texts: list[str]) -> np.ndarray:
        if isinstance(self.labeller, str):  # 'words'
            return by_words(texts, self.wordlist, self.tokeniser)
        if isinstance(self.labeller, GenderClassifier):
            own = self.labeller.probabilities(texts)
            found = np.zeros((len(texts), len(LABELS)))
            found[:, [LABELS.index(label) for label in cast(tuple[str, ...], self.labeller.labels)]] = own
            return found
        said = self.labeller(texts)
        table = np.asarray(said)
        if table.shape == (len(texts), len(LABELS)):
            table = table.astype(np.float64)
            if not (np.isfinite(table).all() and (table >= 0).all() and np.allclose(table.sum(axis=1), 1, atol=1e-6)):
                raise InputError("QueryGender: the function must return probabilities: none below 0, and rows that sum to 1")
            return table
        if table.shape != (len(texts),):
            raise InputError(
                f"QueryGender: the function returned shape {table.shape} for {len(texts)} texts; it must return one label per "
                f"text"
            )
        labels = [str(label).lower() for label in table.tolist()]
        unknown = sorted(set(labels) - set(_SAME))
        if unknown:
            raise InputError(f"QueryGender: the function returned the label {unknown[0]!r}; use {', '.join(LABELS)}")
        return np.array([[float(_SAME[label] == one) for one in LABELS] for label in labels])
