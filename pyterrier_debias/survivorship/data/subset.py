"""SurvivorshipSubset: keeps the queries whose answer labellers met early enough."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Self

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.frames import with_string_ids
from pyterrier_debias.core.stage import RowWise, same_value
from pyterrier_debias.survivorship.data.ranks import (
    ANSWERED_BY,
    check_threshold,
    first_relevant_ranks,
    shown_to_labellers,
    survives,
    with_ranks,
)

logger = logging.getLogger(__name__)


class SurvivorshipSubset(RowWise):
    """Keeps the queries whose labellers met an answer among the first ``rank`` documents shown to them (Gupta 2021).

    ===============  ==============================================================================================
    columns in       ``qid``: a query frame, a result frame or a frame of training examples
    columns out      the same, with ``first_relevant_rank`` (from 1) and ``first_relevant_in``: ``'shown'``, or
                     ``'proxy: <run>'`` if a run is used instead of what labellers were shown
    ===============  ==============================================================================================

    Rows keep their order. A query that is not among the candidates never survives. If fewer than ``rank`` documents were shown,
    these count. Ranks, scores and documents are not changed, so the stage can be used before retrieval or anywhere after it:
    ``SurvivorshipSubset(...) >> bm25`` runs only the surviving queries, ``bm25 >> SurvivorshipSubset(...) >> texts >> ranker``
    trains on them. With ``pt.Experiment``, apply it to the *topics*, ``pt.Experiment(systems, subset(topics), qrels, ...)``: if
    the stage is inside a system, the other topics count as 0, and the mean shows how many queries survived.

    Source: Gupta, "Survivorship Bias in IR Datasets", MSc thesis, University of Glasgow, 2021, whose function is ``1 in
    labels[:k]``; on graded labels this is ``exact=True``.

    When not to use it: to evaluate a ranker. It removes the queries that nobody could answer from one system's list, and a mean
    over the rest is a mean over survivors. Use it to *simulate* more survivorship, and
    :class:`~pyterrier_debias.survivorship.measures.curve.SurvivorshipCurve` to see both means.

    Example:
        >>> import pandas as pd
        >>> shown = pd.DataFrame({"qid": ["q1", "q1", "q2", "q2"], "docno": ["a", "b", "c", "d"], "rank": [0, 1, 0, 1]})
        >>> qrels = pd.DataFrame({"qid": ["q1", "q2"], "docno": ["b", "c"], "label": 1})
        >>> topics = pd.DataFrame({"qid": ["q1", "q2"], "query": ["late", "early"]})
        >>> SurvivorshipSubset(shown, qrels, rank=1)(topics)[["qid", "first_relevant_rank"]].values.tolist()
        [['q2', 1]]
        >>> SurvivorshipSubset(shown, qrels, rank=2)(topics)[["qid", "first_relevant_rank"]].values.tolist()
        [['q1', 2], ['q2', 1]]

    .. cite.dblp:: journals/corr/abs-2204-12852
    """

    schematic: ClassVar[dict[str, Any]] = {"label": "SurvivorshipSubset", "help_url": None}

    def __init__(
        self,
        candidates: Any,
        qrels: pd.DataFrame | None = None,
        *,
        rank: int | None = 10,
        min_label: int = 1,
        exact: bool = False,
        docno: str = "qna",
        repeats: str = "keep",
        answered_by: str = "qrels",
        answers: pd.DataFrame | None = None,
        proxy: str | None = None,
        verbose: bool = False,
    ):
        """
        Args:
            candidates: What labellers were shown: a frame ``qid``, ``docno`` and ``score`` or ``rank``; or a dataset whose
                ``get_candidates()`` returns it, such as ``open_dataset('irds:msmarco-qna/dev')``. If a dataset does not know it,
                its first run is used and marked as a proxy.
            qrels: Judgements ``qid``, ``docno``, ``label``; None for the dataset's. Ranks are computed once: pass a new frame if
                judgements or candidates change, because changes of a frame in place are not noticed.
            rank: Within how many documents a query must be answered, from 1; None for any number.
            min_label: The lowest grade that is relevant.
            exact: Whether the grade must equal ``min_label`` (the thesis' function).
            docno: ``'qna'`` uses docnos as they are, ``'passage'`` the part before ``-``, for candidates with ids of
                ``msmarco-qna`` and judgements with those of ``msmarco-passage``.
            repeats: ``'keep'``: lists count as they were shown. ``'drop'``: passages that repeat an earlier one of their list are
                removed before ranks are counted, as the thesis did before labelling (its Section 3.4); see
                :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`. Texts are the candidates' column ``text``,
                or those of the dataset that was passed.
            answered_by: ``'qrels'``: a query is answered if a relevant document was shown. ``'answers'``: its answer must also
                be given.
            answers: ``qid`` and ``answer`` or ``answers``, for ``answered_by='answers'``; None for the dataset's, or else the
                column ``answers`` of its topics.
            proxy: The name of the run given as candidates, if it is not known what labellers were shown; None if it is known.
            verbose: Has no effect: every stage accepts it, and this one is fast.

        An option out of range raises an InputError when the stage is first used.
        """
        self.candidates = candidates
        self.qrels = qrels
        self.rank = rank
        self.min_label = min_label
        self.exact = exact
        self.docno = docno
        self.repeats = repeats
        self.answered_by = answered_by
        self.answers = answers
        self.proxy = proxy
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Keep the rows of surviving queries, and add the columns that the class describes.

        Raises:
            InputError: For an option out of range, or candidates and judgements that do not fit together; see
                :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`.
        """
        pt.validate.columns(inp, includes=["qid"], context=self)
        check_threshold(self.rank, self)
        self._check()
        if len(inp) == 0:
            return inp.assign(first_relevant_rank=pd.Series(dtype="int64"), first_relevant_in=pd.Series(dtype="str"))
        source, found = self.source, with_ranks(inp, self.ranks())
        kept = found[survives(found["first_relevant_rank"].to_numpy(), self.rank)].reset_index(drop=True)
        if len(kept) == 0:
            logger.warning(
                "SurvivorshipSubset: none of %d queries was answered %s; the result is empty",
                found["qid"].nunique(), f"within the first {self.rank} documents" if self.rank else "at all",
            )  # fmt: skip
        return kept.assign(
            first_relevant_rank=kept["first_relevant_rank"].astype("int64"),
            first_relevant_in=pd.Series(source, index=kept.index, dtype="str"),
        )

    def ranks(self) -> pd.DataFrame:
        """The first relevant rank of every query of the candidates, computed once.

        Returns:
            The frame of :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`.
        """
        names = ("candidates", "qrels", "min_label", "exact", "docno", "repeats", "answered_by", "answers")
        options = {name: getattr(self, name) for name in names}
        known = self.__dict__.get("_known")
        if known is None or not same_value(known[0], options):
            self._check()
            found = first_relevant_ranks(
                self._compared(), self._judgements(), min_label=self.min_label, exact=self.exact, docno=self.docno,
                repeats=self.repeats,
                answers=self._answers() if self.answered_by == "answers" else None, stage=self,
            )  # fmt: skip
            known = self.__dict__["_known"] = (options, found)
        return known[1]

    @property
    def source(self) -> str:
        """The list that ranks refer to: ``'shown'``, or ``'proxy: <run>'``."""
        proxy = self.proxy or (self._shown()[1] if not isinstance(self.candidates, pd.DataFrame) else "")
        return f"proxy: {proxy}" if proxy else "shown"

    def __getstate__(self) -> dict[str, Any]:
        """Only the options are pickled; ranks are computed again."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_known", "_listed", "_judged")}

    def __copy__(self) -> Self:
        """A copy, possibly with other options; it shares what was read and computed, which is stored with its source."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _check(self) -> None:
        check_choice("SurvivorshipSubset", "answered_by", self.answered_by, ANSWERED_BY)
        check_number("SurvivorshipSubset", "min_label", self.min_label, hint="it is the lowest grade that is relevant")
        if self.candidates is None:
            raise InputError(
                "SurvivorshipSubset: candidates is None (as get_candidates() is if the dataset does not say what labellers were "
                "shown); give a frame qid, docno, score of what they were shown, or a run, and name it with proxy="
            )

    def _shown(self) -> tuple[pd.DataFrame, str]:
        if isinstance(self.candidates, pd.DataFrame):
            return self.candidates, ""
        return self._read("_listed", lambda: shown_to_labellers(self.candidates, stage=self))

    def _compared(self) -> pd.DataFrame:
        """The lists, with texts if these are needed to find repeats."""
        shown, _ = self._shown()
        load = getattr(self.candidates, "text_loader", None)
        if self.repeats == "drop" and self.docno != "passage" and "text" not in shown.columns and load is not None:
            return load()(shown)
        return shown

    def _judgements(self) -> pd.DataFrame:
        if self.qrels is not None:
            return self.qrels
        qrels = None
        if not isinstance(self.candidates, pd.DataFrame):
            qrels = self._read("_judged", lambda: provided(self.candidates, "get_qrels"))
        if qrels is None:
            raise InputError("SurvivorshipSubset: there are no judgements; give qrels=, or a dataset that has some")
        return qrels

    def _read(self, name: str, read: Callable[[], Any]) -> Any:
        """Data from the dataset, read only once: large collections take minutes."""
        if self.__dict__.get(name, (None,))[0] is not self.candidates:
            self.__dict__[name] = (self.candidates, read())
        return self.__dict__[name][1]

    def _answers(self) -> pd.DataFrame:
        if self.answers is not None:
            return with_string_ids(self.answers, "SurvivorshipSubset, answers")
        dataset = None if isinstance(self.candidates, pd.DataFrame) else self.candidates
        found = provided(dataset, "get_answers")
        topics = provided(dataset, "get_topics") if found is None else None
        found = topics if topics is not None and "answers" in topics.columns else found
        if found is None:
            raise InputError("SurvivorshipSubset: answered_by='answers' needs answers; give answers=, or a dataset that has them")
        return found
