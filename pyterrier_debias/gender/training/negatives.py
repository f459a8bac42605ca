"""BiasAwareNegatives: draws part of the negatives from the most biased candidates."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.text import Tokeniser, keyed_generator, keyed_hash, mixed
from pyterrier_debias.gender.data.words import WordListLike
from pyterrier_debias.gender.formulas.leaning import check_reader, lean_by

if TYPE_CHECKING:
    from pyterrier_debias.training.groups import Group, Groups


@dataclass(frozen=True)
class BiasAwareNegatives:
    """Draws part of the training negatives from the most biased candidates, so that bias goes with irrelevance.

    Of n negatives, ``share`` times n are the candidates with the largest absolute lean, ties drawn anew in each epoch; the others
    are drawn uniformly from the rest. A fractional number is rounded at random: with one negative and a share of .6, it is the
    most biased candidate in 60 % of the draws. Documents are chosen before they are read: biases are those of their whole texts,
    before ``Training(augment=...)``.

    Source: Bigdeli, Arabzadeh, Seyedsalehi, Zihayat and Bagheri, "A Light-Weight Strategy for Restraining Gender Biases in Neural
    Rankers", ECIR 2022: 20 negatives, 12 of them the most biased of BM25's top 1,000.

    Args:
        share: The share of the negatives that are the most biased candidates, from 0 to 1; .6 in the paper.
        column: A column with the bias of each candidate; None computes it from the texts.
        method: How a document's bias is computed: ``'tf'``, ``'bool'`` or ``'tc'``.
        wordlist: The words of each group; see :meth:`~pyterrier_debias.gender.data.words.WordList.of`.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`.
        contrast: Which groups are compared; see :meth:`~pyterrier_debias.gender.data.words.WordList.contrast`.

    Raises:
        InputError: For options that are unknown or out of range; in training, for a column that does not hold numbers.

    When not to use it: with candidates of which hardly any are gendered (the most biased ones are then arbitrary); with training
    queries that ask about a gender, whose gendered candidates may be relevant.

    Example:
        ``Training(negatives=BiasAwareNegatives(), negatives_per_positive=20)``
    """

    share: float = 0.6
    column: str | None = None
    method: str = "tf"
    wordlist: WordListLike = "debias"
    tokeniser: str | Tokeniser = "regex_word"
    contrast: str | tuple[str, str] | None = None
    _known: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Reject invalid options."""
        check_number("BiasAwareNegatives", "share", self.share, least=0, most=1)
        check_reader(self)

    def biases(self, groups: Groups) -> np.ndarray:
        """The absolute lean of each candidate, computed once for all groups.

        Args:
            groups: The training queries with their candidates.

        Returns:
            Shape [rows].

        Raises:
            InputError: For a column that is missing or does not hold numbers.
        """
        if not self._known or self._known[0]() is not groups:
            if self.column is None:
                columns = [groups.column(name) for name in groups.text_columns]
                found = lean_by(self, [" ".join(parts) for parts in zip(*columns)])
            else:
                values = groups.column(self.column)
                try:
                    found = np.array(values, dtype=np.float64)
                except (TypeError, ValueError) as error:
                    raise InputError(f"BiasAwareNegatives: column '{self.column}' holds no numbers ({error})") from error
                if np.isnan(found).any():
                    raise InputError(
                        f"BiasAwareNegatives: column '{self.column}' has no value in {int(np.isnan(found).sum())} rows; every "
                        f"candidate needs it"
                    )
            codes, docnos = pd.factorize(groups.rows["docno"])
            hashes = np.array([keyed_hash(0, "biased", docno) for docno in docnos], dtype=np.uint64)
            self._known[:] = [weakref.ref(groups), np.abs(found), hashes[codes]]
        return self._known[1]

    def sample(self, groups: Groups, group: Group, positive: int, n: int, *, seed: int, epoch: int) -> np.ndarray:
        """Draw negatives; see :class:`~pyterrier_debias.training.samplers.Sampler`."""
        docnos = groups.column("docno")
        chance = keyed_generator(seed, "negatives", str(epoch), group.qid, docnos[positive])
        n = min(n, len(group.pool))
        wanted = self.share * n
        biased = int(wanted) + int(chance.random() < wanted - int(wanted))
        bias = self.biases(groups)[group.pool]
        ties = mixed(self._known[2][group.pool], keyed_hash(seed, "biased", str(epoch)))
        order = np.lexsort((ties, -bias))
        rest = np.sort(group.pool[order[biased:]])
        return np.r_[group.pool[order[:biased]], chance.choice(rest, size=n - biased, replace=False)]

    def __getstate__(self) -> dict[str, Any]:
        """Only the options; biases are computed again."""
        return {**self.__dict__, "_known": []}
