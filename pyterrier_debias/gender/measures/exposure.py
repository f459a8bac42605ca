"""AWRF and ExpectedExposure: measures of how much attention the groups of a word list get."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from ir_measures.measures import ParamInfo

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import highest_grades
from pyterrier_debias.gender.data.documents import counted, query_slices
from pyterrier_debias.gender.formulas import exposure
from pyterrier_debias.gender.formulas.arab import wished_portions
from pyterrier_debias.gender.measures.over_rankings import OfWords, parameters


def _info(**own: str) -> dict[str, ParamInfo]:
    return parameters(wordlist="words of groups", **own)


class AWRF(OfWords):
    """Attention-weighted rank fairness: how close the groups' shares of a reader's attention are to the desired shares.

    A document belongs to a group to the degree of the group's share of its listed words. The attention that each group gets over
    the first t ranks is compared with the desired portions; the value is 1 minus the Jensen-Shannon divergence in bits, see
    :func:`~pyterrier_debias.gender.formulas.exposure.awrf`. Unlike in :class:`~pyterrier_debias.NFaiRR`, a document about men and
    one about women offset each other.

    Source: Sapiezynski, Zeng, Robertson, Mislove and Wilson, "Quantifying the Impact of User Attention on Fair Group
    Representation in Ranked Lists", WWW 2019 Companion, which leaves the comparison open; the divergence is that of the TREC Fair
    Ranking tracks of 2021 and 2022, where documents without a group are left out too.

    Raises:
        InputError: For an unknown option; during evaluation, if a document has no text.

    When not to use it: to see how much of a list is gendered; a single gendered document among a hundred determines the value. A
    query without any has no value, and is NaN like those that do not count (``undefined``, see :class:`~pyterrier_debias.ARaB`).

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "she"]})
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})

        Ranks 1 and 2 get the same attention; the first alone goes to one group, .311 bits from an even share.

        >>> found = pt.Evaluate(run, judged, [AWRF() @ 2, AWRF() @ 1])
        >>> {name: round(value, 4) for name, value in found.items()}
        {'AWRF@2': 1.0, 'AWRF@1': 0.6887}
    """

    __name__ = "AWRF"
    NAME = __name__
    PRETTY_NAME = "Attention-weighted rank fairness"
    SHORT_DESC = "How close the groups' shares of attention are to the wished ones."
    SUPPORTED_PARAMS = _info(portions="the wished portion of each group", discount="attention to ranks")
    DEFAULTS = {**OfWords.DEFAULTS, "discount": "trec"}  # noqa: RUF012

    def __init__(self, *, portions: Mapping[str, float] | None = None, discount: str | None = None, **params: Any):
        """
        Args:
            portions: Mapping from each group to its desired portion; by default they are equal.
            discount: Attention at rank i: ``'trec'`` (default): 1 / log2(max(i, 2)); ``'dcg'``: 1 / log2(i + 1).
            params: ``wordlist``, ``tokeniser``, ``texts``, ``text_field``, ``unknown``, ``undefined``, ``query_filter``,
                ``name``, ``cutoff``, as in :class:`~pyterrier_debias.ARaB`.

        Raises:
            InputError: For an unknown option, portions of other groups, or a list of one group.
        """
        super().__init__(portions=portions, discount=discount, **params)
        exposure.attention(0, self.option("discount"))
        self._target()

    def _target(self) -> np.ndarray:
        if len(self.wordlist.names) < 2:
            raise InputError(
                f"AWRF compares groups; the word list has only {', '.join(self.wordlist.names)}; give a word list with at least "
                f"two groups"
            )
        return wished_portions(self.wordlist.names, self.option("portions"))

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """The value of each query of a run, sorted by query and rank."""
        run = self._head(run)
        counts, own = counted(run, self.texts, self.wordlist, self.option("tokeniser"), repr(self))
        shares, target = exposure.memberships(counts.total())[own], self._target()
        return {
            qid: exposure.awrf(shares[rows], target, rows.stop - rows.start, self.option("discount"))
            for qid, rows in query_slices(run["qid"]).items()
        }


class ExpectedExposure(OfWords):
    """Expected exposure under rank-biased precision: how far a ranking's exposure is from what documents' relevance deserves.

    Rank i gets the exposure p^(i - 1); ranks below the cut-off get none. A document deserves its average exposure over all ideal
    rankings, which sort documents by label, and those with equal labels in any order
    (:func:`~pyterrier_debias.gender.formulas.exposure.target_exposure`). With ``by_group=True``, the exposures of documents are
    first summed by group; a document belongs to each group to the degree of the group's share of its listed words. The loss then
    shows whether the relevant documents *of each group* get the exposure that they deserve.

    Source: Diaz, Mitra, Ekstrand, Biega and Carterette, "Evaluating Stochastic Rankings with Expected Exposure", CIKM 2020: EE-L,
    EE-D and EE-R with the user model RBP. A run is one ranking, that is, a deterministic policy.

    Raises:
        InputError: For an unknown option; during evaluation of groups, if a ranked or relevant document has no text. Without
            ``texts``, the whole run is searched for a text, also below the cut-off; relevant documents that are not in the run
            need ``texts``.

    When not to use it: with few judged documents, because unjudged ones count as deserving no exposure; with ``part='disparity'``
    of documents, which is the same for all rankings of one length. A query without a relevant document has no value.

    Example:
        >>> import pandas as pd
        >>> import pyterrier as pt
        >>> run = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "score": [2.0, 1.0], "text": ["he and his son", "she"]})
        >>> judged = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2"], "label": [1, 1]})

        Both should get (1 + .5) / 2, so that each is .25 off: 2 * .25^2.

        >>> pt.Evaluate(run, judged, [ExpectedExposure(by_group=False) @ 10, ExpectedExposure() @ 10])
        {'ExpectedExposure(by_group=False)@10': 0.125, 'ExpectedExposure@10': 0.125}
    """

    __name__ = "ExpectedExposure"
    NAME = __name__
    PRETTY_NAME = "Expected exposure"
    SHORT_DESC = "How far exposure is from what relevance calls for."
    QREL_INPUTS = ("query_id", "doc_id", "relevance")
    SUPPORTED_PARAMS = _info(by_group="whether exposure is summed by group", part="of the loss, or it", patience="of RBP")
    DEFAULTS = {**OfWords.DEFAULTS, "by_group": True, "part": "loss", "patience": 0.5}  # noqa: RUF012

    def __init__(self, *, by_group: bool | None = None, part: str | None = None, patience: float | None = None, **params: Any):
        """
        Args:
            by_group: Whether to sum exposure by group (default) or compare it document by document, which needs no texts.
            part: The part to report: ``'loss'`` (default), ``'disparity'`` or ``'relevance'``; see
                :func:`~pyterrier_debias.gender.formulas.exposure.expected_exposure`.
            patience: p, the probability that a reader goes on to the next rank, above 0 and below 1; default .5.
            params: The shared options, as in :class:`AWRF`.

        Raises:
            InputError: For an unknown option.
        """
        super().__init__(by_group=by_group, part=part, patience=patience, **params)
        exposure.rank_exposure(0, self.option("patience"))
        exposure.expected_exposure(np.zeros(0), np.zeros(0), self.option("part"))
        if not isinstance(self.option("by_group"), bool):
            raise InputError(f"ExpectedExposure: by_group={by_group!r} must be True or False")

    @property
    def RUN_INPUTS(self) -> list[str]:  # noqa: N802
        """The columns that the results must have."""
        return super().RUN_INPUTS if self.option("by_group") else ["query_id", "doc_id", "score"]

    def judged_values(self, run: pd.DataFrame, qrels: pd.DataFrame, whole: pd.DataFrame | None = None) -> dict[str, float]:
        """The value of each query of a run that has at least one relevant document."""
        whole = run if whole is None else whole
        run = self._head(run)
        graded = qrels.rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"})[["qid", "docno", "label"]]
        graded = highest_grades(graded, repr(self))
        graded = graded[graded["qid"].isin(set(run["qid"])) & (graded["label"] > 0)]
        patience, parts = self.option("patience"), []
        for _, rows in graded.groupby("qid", sort=False):
            parts.append(rows.assign(target=exposure.target_exposure(rows["label"].to_numpy(), patience)))
        if not parts:
            return {}
        ranks = run.groupby("qid", sort=False).cumcount().to_numpy()
        ranked = run.assign(exposure=exposure.rank_exposure(int(ranks.max()) + 1, patience)[ranks])
        both = ranked.merge(pd.concat(parts)[["qid", "docno", "target"]], on=["qid", "docno"], how="outer")
        both = both[both["qid"].isin(set(graded["qid"]))].sort_values(["qid", "docno"], ignore_index=True)
        got, wanted = (both[name].fillna(0.0).to_numpy() for name in ("exposure", "target"))
        shares = self._shares(both, whole) if self.option("by_group") else None
        found = {}
        for qid, rows in query_slices(both["qid"]).items():
            one, other = (given[rows] if shares is None else given[rows] @ shares[rows] for given in (got, wanted))
            found[qid] = exposure.expected_exposure(one, other, self.option("part"))
        return found

    def _shares(self, documents: pd.DataFrame, whole: pd.DataFrame) -> np.ndarray:
        if self.texts.source is None and self.text_field in whole.columns:
            # A relevant document may be ranked below the cut-off, or only for another query.
            known = whole.dropna(subset=[self.text_field]).drop_duplicates("docno").set_index("docno")[self.text_field]
            documents = documents.assign(**{self.text_field: documents["docno"].map(known)})
            if self.texts.unknown == "raise":
                self._check_known(documents, set(whole["docno"]))
        counts, own = counted(documents, self.texts, self.wordlist, self.option("tokeniser"), repr(self))
        return exposure.memberships(counts.total())[own]

    def _check_known(self, documents: pd.DataFrame, ranked: set[str]) -> None:
        """Refuse documents whose text no row of the run has."""
        lacking = documents[[not isinstance(text, str) for text in documents[self.text_field]]]
        if not len(lacking):
            return
        outside = lacking[~lacking["docno"].isin(ranked)]
        qid, docno = (outside if len(outside) else lacking)[["qid", "docno"]].iloc[0]
        if not len(outside):
            raise InputError(
                f"{self!r}: column {self.text_field!r} of the run has no text for docno={docno!r} (qid={qid!r}); use a text "
                f"loader that covers every document, or unknown='zero' to count such documents as having no words"
            )
        number = outside["docno"].nunique()
        told = "1 relevant document is" if number == 1 else f"{number} relevant documents are"
        raise InputError(
            f"{self!r}: {told} not in the run and thus without text, e.g. docno={docno!r} (qid={qid!r}); give the measure a "
            f"source of texts, e.g. texts=dataset.text_loader(), or unknown='zero' to count such documents as having no words"
        )

    def values(self, run: pd.DataFrame) -> dict[str, float]:
        """Not defined without judgements; see :meth:`judged_values`."""
        raise InputError("ExpectedExposure needs judgements; give it to pt.Evaluate or pt.Experiment")
