"""AddScores: another ranker's score as a column, for samplers of negatives."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.counterfactuals import scores_by
from pyterrier_debias.core.errors import InputError, check_choice, kind_of
from pyterrier_debias.core.stage import RowWise, scores_rows

#: Columns that a score must not replace.
_TAKEN = ("qid", "docno", "query", "score", "rank")


class AddScores(RowWise):
    """Adds another ranker's score as a column, without changing the candidates' own scores, ranks and order.

    It adds a teacher's score to each candidate, for samplers that use it (:class:`~pyterrier_debias.DenoisedNegatives`,
    :class:`~pyterrier_debias.PositiveAwareNegatives`). Put it after all stages that add candidates and their texts. If the scorer
    may depend on whole lists, PyTerrier does not move a later rank cut-off before it.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, and the columns that the scorer reads
    columns out      the same, and ``column``; an older column of that name is replaced
    ===============  ==========================================================================

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: in the deployed pipeline, where nothing reads the column any more and the teacher costs time; with
    the ranker that you train as its own teacher, since it would confirm its own mistakes.

    Example:
        >>> import pandas as pd
        >>> found = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "query": ["bridges"], "score": [3.5], "rank": [0]})
        >>> teacher = pt.apply.doc_score(lambda row: 0.0)
        >>> AddScores(teacher, activation="sigmoid")(found)[["docno", "score", "teacher_score"]].values.tolist()
        [['d1', 3.5, 0.5]]

        In a pipeline that is fitted: ``bm25 >> AddJudged(qrels) >> texts >> AddScores(CrossEncoder(teacher)) >> ranker``.
    """

    schematic = {"label": "AddScores", "help_url": None}  # noqa: RUF012

    def __init__(self, scorer: pt.Transformer, column: str = "teacher_score", activation: str | None = None):
        """
        Args:
            scorer: A ranker or a pipeline that scores every row of a result frame.
            column: The column to write.
            activation: How the score is transformed: None leaves it unchanged; ``'sigmoid'`` converts a logit to a probability.
                Rankers of this package return logits, whatever ``activation`` their checkpoint names.
        """
        self.scorer = scorer
        self.column = column
        self.activation = activation

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the column; see the class.

        Raises:
            InputError: For an unknown option, repeated pairs, or a scorer that leaves out rows or returns no number.
        """
        self._check_options()
        modes = pt.inspect.transformer_inputs(self.scorer, strict=False) or [[]]
        with pt.validate.any(inp, context=self) as checked:
            for columns in modes:
                checked.result_frame([column for column in columns if column not in ("qid", "docno")])
        frames.check_pairs(inp, self)
        scores = scores_by(self.scorer, inp, self)
        if self.activation == "sigmoid":
            scores = 0.5 * (1 + np.tanh(scores / 2))  # without overflow
        return inp.assign(**{self.column: scores})

    @property
    def pieces(self) -> str:  # type: ignore[override]  # a class has one that is never made
        """``'rows'`` if the scorer scores each row by itself; otherwise ``'queries'``."""
        return "rows" if self._of_rows() else "queries"

    def fuse_rank_cutoff(self, k: int) -> pt.Transformer | None:  # type: ignore[override]  # None leaves it where it is
        """Apply the cut-off first, if the scores of the kept documents do not depend on the others."""
        return super().fuse_rank_cutoff(k) if self._of_rows() else None

    def _of_rows(self) -> bool:
        return isinstance(self.scorer, pt.Transformer) and scores_rows(self.scorer)

    def _check_options(self) -> None:
        if not isinstance(self.scorer, pt.Transformer):
            raise InputError(f"AddScores: scorer is {kind_of(self.scorer)}; give a ranker or a pipeline")
        check_choice("AddScores", "activation", self.activation, (None, "sigmoid"))
        if self.column in _TAKEN:
            raise InputError(f"AddScores: column={self.column!r} is a column that the frame needs itself; choose another name")
