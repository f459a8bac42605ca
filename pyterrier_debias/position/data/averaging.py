"""AverageRotations: a ranker's scores averaged over rotations of each passage."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.caches import VARIANT, check_caches, marked
from pyterrier_debias.core.counterfactuals import scores_by
from pyterrier_debias.core.decomposition import out_of_reach
from pyterrier_debias.core.errors import InputError, check_choice, check_number, kind_of
from pyterrier_debias.core.scripts import Segmenter
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.text import Tokeniser, keyed_generator
from pyterrier_debias.position.data.rotation import RotatePassages


def _mean(scores: list[float]) -> float:
    """The mean, rounded once, so that the order of the rotations makes no difference."""
    if math.inf in scores and -math.inf in scores:
        raise InputError(
            "AverageRotations: rotations of one passage have the scores inf and -inf, which have no mean; use combine='max', or "
            "a ranker with finite scores"
        )
    try:
        return (math.fsum(scores) if all(map(math.isfinite, scores)) else sum(scores)) / len(scores)
    except OverflowError:  # the sum of the lowest floats
        return math.fsum(score / len(scores) for score in scores)


COMBINE: dict[str, Callable[[list[float]], float]] = {"mean": _mean, "max": max}
SPACING = ("even", "random")
ALL = "all"


def even_offsets(n: int, rotations: int, *, original: bool = True) -> list[int]:
    """Evenly spaced rotations of n units.

    Args:
        n: How many units the passage has.
        rotations: r, the number of offsets.
        original: Whether offset 0 is one of them: floor(k n / r) for k from 0 to r - 1. Otherwise those for r + 1, without 0.

    Returns:
        Distinct offsets in ascending order; fewer than r if the passage has fewer. With fewer than two units, only 0.

    Example:
        >>> even_offsets(60, 4), even_offsets(60, 2, original=False), even_offsets(3, 8)
        ([0, 15, 30, 45], [20, 40], [0, 1, 2])
    """
    if n < 2:
        return [0]
    if original:
        return sorted({k * n // rotations for k in range(rotations)})
    return sorted({k * n // (rotations + 1) for k in range(1, rotations + 1)} - {0})


class AverageRotations(Stage):
    """Score each passage in several rotations, and rank by the mean (or highest) score: less position bias, without training.

    A ranker that prefers early words prefers different words in each rotation. Over all rotations of a passage, the mean or
    highest score does not depend on where the passage is cut, so no dependence on positions in the passage is left; a few evenly
    spaced rotations leave the dependence on the position within one of r equal parts.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, the text, and what else the ranker reads
    columns out      the same, with ``score`` and ``rank``, sorted by query and rank; texts are unchanged
    ===============  ==========================================================================

    The ranker gets each list r times, once per rotation, under the same docnos, so it must score a pair by its texts alone. A
    cache inside this stage that identifies documents by docno is refused, as after :class:`~pyterrier_debias.RotatePassages`; a
    cache *around* this stage is right. Random rotations depend on the text: equal texts get equal scores, whatever their docno.

    Source: no paper. The rotation is that of Hofstätter, Lipani, Althammer, Zlabinger and Hanbury, "Mitigating the Position Bias
    of Transformer Models in Passage Re-Ranking", ECIR 2021, who train on rotated passages.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    Example:
        >>> import pandas as pd
        >>> found = pd.DataFrame({"qid": "1", "query": "tea", "docno": ["d1", "d2"], "text": ["tea and rain", "rain and tea"]})
        >>> early = pt.apply.doc_score(lambda row: float(row["text"].startswith("tea")))
        >>> AverageRotations(early, "all")(found)[["docno", "score"]].round(2).values.tolist()
        [['d2', 0.33], ['d1', 0.33]]

        In a pipeline: ``bm25 % 100 >> texts >> AverageRotations(BiEncoder(model), 4)``.

    When not to use it: if the ranker's time matters, which it multiplies by r; if the order of a passage is part of its content
    (code, recipes, dialogues); if editors put the answer first, so that the bias is knowledge; for rankers that compare the
    documents of a list (duoT5), whose scores for two rotations do not come from the same list.

    .. cite.dblp:: journals/corr/abs-2101-06980
    """

    schematic = {"label": "AverageRotations", "help_url": None}  # noqa: RUF012
    pieces = "scores"

    def __init__(
        self,
        ranker: pt.Transformer,
        rotations: int | str = 4,
        *,
        combine: str = "mean",
        spacing: str = "even",
        original: bool = True,
        unit: str = "word",
        tokeniser: str | Tokeniser = "whitespace",
        segmenter: Segmenter | None = None,
        text_field: str = "text",
        seed: int = 0,
    ):
        """
        Args:
            ranker: The ranker, which scores every row of a result frame by query and text.
            rotations: r, the number of rotations in which a passage is scored; ``'all'``: every rotation. A passage with fewer
                units is scored in all its rotations.
            combine: ``'mean'`` or ``'max'`` of the scores.
            spacing: ``'even'``: evenly spaced cuts, see :func:`even_offsets`; ``'random'``: cuts drawn without replacement.
            original: Whether the original passage counts among the r; otherwise only rotations that change it do.
            unit: The unit that is moved; see :class:`~pyterrier_debias.RotatePassages`.
            tokeniser: What counts as a word; see :class:`~pyterrier_debias.RotatePassages`.
            segmenter: How scripts without blanks are cut; see :class:`~pyterrier_debias.RotatePassages`.
            text_field: The column that is rotated and that the ranker reads.
            seed: Seed of random cuts.
        """
        self.ranker = ranker
        self.rotations = rotations
        self.combine = combine
        self.spacing = spacing
        self.original = original
        self.unit = unit
        self.tokeniser = tokeniser
        self.segmenter = segmenter
        self.text_field = text_field
        self.seed = seed

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank every row; see the class.

        Raises:
            InputError: If an option is unknown, a text is missing, a pair is repeated, a cache inside identifies documents by
                docno, or the ranker leaves rows out, returns anything but numbers, or loads the stored texts itself.
        """
        self._check_options()
        modes = pt.inspect.transformer_inputs(self.ranker, strict=False) or [[]]
        with pt.validate.any(inp, context=self) as checked:
            for columns in modes:
                needed = dict.fromkeys([*columns, self.text_field])
                # A cache inside reads the name of the rotated text, which this stage adds.
                checked.result_frame([column for column in needed if column not in ("qid", "docno", VARIANT)])
        if len(inp) == 0:
            return frames.ranked(inp, self)
        for column in ("query", self.text_field):
            if column in inp.columns:  # a ranker may read no query
                frames.check_text(inp, column, self)
        frames.check_pairs(inp, self)
        reason = out_of_reach(flatten(self.ranker), list(inp.columns))
        if reason:
            raise InputError(f"AverageRotations: rotations cannot reach the ranker, so nothing would be averaged: {reason}")
        rotated = self._rotator()
        turned = [rotated(text) for text in inp[self.text_field]]
        scores: list[list[float]] = [[] for _ in turned]
        for turn in range(max(map(len, turned))):
            rows = [row for row, texts in enumerate(turned) if turn < len(texts)]
            given = inp.iloc[rows].assign(**{self.text_field: [turned[row][turn] for row in rows]})
            found = scores_by(self.ranker, marked(given.reset_index(drop=True), self.text_field), self)
            for row, score in zip(rows, found.tolist()):
                scores[row].append(score)
        return frames.ranked(inp.assign(score=[*map(COMBINE[self.combine], scores)]), self)

    def changes_within(self) -> frozenset[str]:
        """The text column, which this stage changes for the ranker inside; see :class:`~pyterrier_debias.core.stage.Stage`."""
        return frozenset({self.text_field})

    def _check_options(self) -> None:
        name = "AverageRotations"
        if not isinstance(self.ranker, pt.Transformer):
            raise InputError(f"{name}: ranker is {kind_of(self.ranker)}; give a ranker or a pipeline of rankers")
        if isinstance(self.rotations, str):
            check_choice(name, "rotations", self.rotations, (ALL,), "a whole number")
        else:
            check_number(name, "rotations", self.rotations, least=1, whole=True, hint=f"{ALL!r} means every rotation")
        check_number(name, "seed", self.seed, whole=True)
        check_choice(name, "combine", self.combine, COMBINE)
        check_choice(name, "spacing", self.spacing, SPACING)
        reads = self.ranker.text_columns() if hasattr(self.ranker, "text_columns") else [self.text_field]
        if self.text_field not in reads:
            raise InputError(
                f"{name}: text_field={self.text_field!r} is rotated, but the ranker reads {', '.join(reads)}; set text_field of "
                f"one of them"
            )
        check_caches(self.ranker, self.changes_within(), self)

    def _rotator(self) -> Callable[[str], list[str]]:
        """A function from a passage to its distinct rotations."""
        rotation = partial(RotatePassages, unit=self.unit, tokeniser=self.tokeniser, segmenter=self.segmenter)
        split = rotation().splitter()
        turn = cache(lambda offset: rotation(offset=offset).rotator())

        @cache
        def rotated(text: str) -> list[str]:
            return [turn(offset)(text, "")[0] for offset in self._offsets(text, len(split(text)))]

        return rotated

    def _offsets(self, text: str, n: int) -> list[int]:
        """How many of n units are moved in each rotation."""
        if self.rotations == ALL or n < 2:
            return list(range(n))[not self.original :] or [0]
        if self.spacing == "even":
            return even_offsets(n, int(self.rotations), original=self.original)
        others = 1 + keyed_generator(self.seed, "rotations", text).permutation(n - 1)
        return [0, *others.tolist()][not self.original :][: int(self.rotations)]
