"""NeutralReranker: trades off a ranker's scores against the bias of the documents at query time."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.words import WordListLike
from pyterrier_debias.gender.formulas.leaning import check_reader, lean_by

NORMALISATIONS = (None, "minmax", "zscore")


def normalised(values: np.ndarray, how: str | None) -> np.ndarray:
    """Rescale the values of one list.

    Args:
        values: Shape [n].
        how: ``'minmax'`` (from 0 to 1), ``'zscore'`` (mean 0, standard deviation 1 over the list, divided by n), or None.

    Returns:
        Shape [n]; zeros where all values are equal.

    Example:
        >>> normalised(np.array([1.0, 3.0, 2.0]), "minmax").tolist()
        [0.0, 1.0, 0.5]
    """
    check_choice("normalised", "how", how, NORMALISATIONS)
    values = np.asarray(values, dtype=np.float64)
    if how is None or not len(values):
        return values
    shifted = values - (values.min() if how == "minmax" else values.mean())
    scale = np.ptp(values) if how == "minmax" else values.std()
    return shifted / scale if np.ptp(values) > 0 else np.zeros(len(values))


class NeutralReranker(Stage):
    r"""Reranks by :math:`(1 - \lambda)\, \mathrm{relevance} - \lambda\, \mathrm{bias}`, without training.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, ``score`` and the text (or the column given as ``bias``)
    columns out      the same, with the new ``score`` and ``rank``; ``score_0``: the old score; ``bias``, at least 0
    ===============  ==========================================================================

    Relevance is the incoming score, and bias is the absolute lean of the document's words; both are brought to a common scale
    within each query's list (:func:`normalised`). So the result depends on the list: first cut it to the depth that matters.

    Source: the trade-off is that of Bigdeli, Arabzadeh, Seyedsalehi, Zihayat and Bagheri, "On the Orthogonality of Bias and
    Utility in Ad hoc Retrieval", SIGIR 2021, who apply it to terms of pseudo-relevance feedback, with lambda = .5.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> run = pd.DataFrame({"qid": "1", "docno": ["d1", "d2", "d3"], "score": [3.0, 2.9, 0.0],
        ...                     "text": ["he and his son", "people", "a sea"]})
        >>> NeutralReranker()(run)[["docno", "score"]].round(2).values.tolist()
        [['d2', 0.48], ['d3', 0.0], ['d1', 0.0]]

        After a ranker: ``bm25 % 100 >> texts >> ranker >> NeutralReranker(strength=0.2)``.

    When not to use it: for queries that ask about a gender, whose best answers it moves down (label queries with ``QueryGender``
    first); as the only treatment, because the ranker stays as biased as it is, and texts that count as neutral may be about women
    in words that no list contains.
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "NeutralReranker", "help_url": None}

    def __init__(
        self,
        strength: float = 0.5,
        *,
        normalise: str | None = "minmax",
        method: str = "tf",
        bias: str | None = None,
        wordlist: WordListLike = "debias",
        tokeniser: str | Tokeniser = "regex_word",
        contrast: str | tuple[str, str] | None = None,
        text_field: str = "text",
    ):
        """
        Args:
            strength: lambda, from 0 (only the scale changes) to 1 (rank by bias alone).
            normalise: The common scale: ``'minmax'``, ``'zscore'``, or None for scores and biases as they are.
            method: How a document's bias is computed: ``'tf'``, ``'bool'`` or ``'tc'``.
            bias: A column with the bias; None computes it from the text.
            wordlist: The words of each group; see :meth:`~pyterrier_debias.gender.data.words.WordList.of`.
            tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
            contrast: Which groups are compared; see :meth:`~pyterrier_debias.gender.data.words.WordList.contrast`.
            text_field: The column that holds the text.
        """
        self.strength = strength
        self.normalise = normalise
        self.method = method
        self.bias = bias
        self.wordlist = wordlist
        self.tokeniser = tokeniser
        self.contrast = contrast
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rerank each query's documents by the trade-off.

        Raises:
            InputError: For options that are unknown or out of range, missing texts or scores, and infinite scores that the scale
                cannot represent (always with ``normalise``).
        """
        column = self.text_field if self.bias is None else self.bias
        pt.validate.result_frame(inp, extra_columns=["score", column], context=self)
        check_number("NeutralReranker", "strength", self.strength, least=0, most=1)
        check_choice("NeutralReranker", "normalise", self.normalise, NORMALISATIONS)
        check_reader(self)
        frames.check_scores(inp, self)
        if self.bias is None:
            frames.check_text(inp, column, self)
            bias = np.abs(lean_by(self, inp[column].tolist()))
        else:
            frames.check_scores(inp, self, column)
            bias = np.abs(inp[column].to_numpy(dtype=np.float64))
        relevance = inp["score"].to_numpy(dtype=np.float64)
        score = np.empty(len(inp))
        for rows in inp.reset_index(drop=True).groupby("qid", sort=False).indices.values():
            with np.errstate(invalid="ignore"):
                own = normalised(relevance[rows], self.normalise), normalised(bias[rows], self.normalise)
                score[rows] = (1 - self.strength) * own[0] - self.strength * own[1]
        self._refuse_infinite(inp, score, {"score": relevance, "bias" if self.bias is None else self.bias: bias})
        return frames.ranked(inp.assign(score_0=relevance, bias=bias, score=score), self)

    def _refuse_infinite(self, inp: pd.DataFrame, score: np.ndarray, columns: dict[str, np.ndarray]) -> None:
        if not np.isnan(score).any():
            return
        for column, values in columns.items():
            for row in np.flatnonzero(np.isinf(values))[:1].tolist():
                raise InputError(
                    f"NeutralReranker: column '{column}' is infinite at row {row} (qid={inp['qid'].iloc[row]!r}, "
                    f"docno={inp['docno'].iloc[row]!r}), and infinite values cannot be combined with the others of the list; "
                    f"drop such rows, or give them the lowest or highest finite value"
                )
