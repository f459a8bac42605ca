"""SurvivorshipSubset: keeps the queries that were answered early enough."""

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
    """Keeps the queries whose labellers met an answer among the first ``rank`` documents they were shown (Gupta 2021).

    ===============  ==============================================================================================
    columns in       ``qid``: a query frame, a result frame or a frame of training examples
    columns out      the same, with ``first_relevant_rank`` (from 1) and ``first_relevant_in``: ``'shown'``, or
                     ``'proxy: <run>'`` where a run stands in for what labellers were shown
    ===============  ==============================================================================================

    Rows keep their order. A query that is not among the candidates never survives. With fewer documents shown than ``rank``,
    those that were shown count. Ranks, scores and documents are left alone, so the stage may stand before retrieval or anywhere
    behind: ``SurvivorshipSubset(...) >> bm25`` asks the surviving queries only, ``bm25 >> SurvivorshipSubset(...) >> texts >>
    ranker`` trains on them. In ``pt.Experiment`` give it the *topics*, ``pt.Experiment(systems, subset(topics), qrels, ...)``:
    with the stage inside a system the other topics count as 0, so that the mean says how many queries survived.

    Source: Gupta, "Survivorship Bias in IR Datasets", MSc thesis, University of Glasgow, 2021, whose function is ``1 in
    labels[:k]``; on graded labels that is ``exact=True``.

    When not to use it: to evaluate a ranker. What is left out are the queries that nobody could answer from one system's list; a
    mean over what is left is a mean over survivors. Use it to *simulate* more survivorship, and
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
                ``get_candidates()`` says it, such as ``open_dataset('irds:msmarco-qna/dev')``. A dataset that does not know is
                asked for its first run, which is then called a proxy.
            qrels: Judgements ``qid``, ``docno``, ``label``; None for the dataset's. Ranks are computed once: give another frame
                where judgements or candidates change, a frame that is changed in place is not noticed.
            rank: Within how many documents a query must be answered, from 1; None for any number.
            min_label: The lowest grade that is relevant.
            exact: Whether the grade must equal ``min_label`` (the thesis' function).
            docno: ``'qna'`` takes docnos as they are, ``'passage'`` by the part before ``-``, where candidates have ids of
                ``msmarco-qna`` and judgements those of ``msmarco-passage``.
            repeats: ``'keep'``: lists count as they were shown. ``'drop'``: passages that repeat an earlier one of their list are
                removed before places are counted, as the thesis removed them before it labelled (its Section 3.4); see
                :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`. Texts are the candidates' column ``text``,
                or those of the dataset that was passed.
            answered_by: ``'qrels'``: a query is answered where a relevant document was shown. ``'answers'``: its answer must be
                there too.
            answers: ``qid`` and ``answer`` or ``answers``, for ``answered_by='answers'``; None for the dataset's, then for
                the column ``answers`` of its topics.
            proxy: The name of the run that the candidates are, where what labellers were shown is not known; None for none.
            verbose: Accepted for uniformity; nothing here takes long.

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
        """Keep the rows of surviving queries; see the class.

        Raises:
            InputError: For an option out of range, or candidates and judgements that do not fit; see
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
            See :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`.
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
        """What the rank is a rank in: ``'shown'``, or ``'proxy: <run>'``."""
        proxy = self.proxy or (self._shown()[1] if not isinstance(self.candidates, pd.DataFrame) else "")
        return f"proxy: {proxy}" if proxy else "shown"

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled: the options; ranks are computed again."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_known", "_listed", "_judged")}

    def __copy__(self) -> Self:
        """A stage with other options shares what was read and computed, which says what it is of."""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        return made

    def _check(self) -> None:
        check_choice("SurvivorshipSubset", "answered_by", self.answered_by, ANSWERED_BY)
        check_number("SurvivorshipSubset", "min_label", self.min_label, hint="it is the lowest grade that is relevant")
        if self.candidates is None:
            raise InputError(
                "SurvivorshipSubset: candidates is None; give a frame qid, docno, score of what labellers were shown (where the "
                "dataset does not say it, its get_candidates() is None), or a run, and name it with proxy="
            )

    def _shown(self) -> tuple[pd.DataFrame, str]:
        if isinstance(self.candidates, pd.DataFrame):
            return self.candidates, ""
        return self._read("_listed", lambda: shown_to_labellers(self.candidates, stage=self))

    def _compared(self) -> pd.DataFrame:
        """The lists, with texts where repeats are to be found by them."""
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
        """What the dataset gives, read once: large collections take minutes."""
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
