"""MaxRep: labels unjudged documents by their similarity to relevant ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError, check_number, kind_of
from pyterrier_debias.core.frames import with_grades, with_string_ids
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.text import as_name


class MaxRep(RowWise):
    """Labels each document by its position among the nearest neighbours of the query's relevant documents.

    If a relevant document's k neighbours are sorted from the nearest on, the one at position i (from 0) has the label
    (k - i) / k, and all other documents have 0; a query's relevant documents themselves have 1. With several relevant documents,
    the largest label counts.

    Source: MacAvaney and Soldaini, "One-Shot Labeling for Automatic Relevance Estimation", SIGIR 2023, who take one relevant
    document per query and k = 128 neighbours by BM25 or a bi-encoder. For one relevant document, labels are those of their
    released code; the maximum over several is ours.

    Input: any frame with ``qid`` and ``docno``. Output: the same rows with ``label``, from 0 to 1.

    As a measure: ``ExpectedNDCG(infer_judgements(runs, qrels, MaxRep(neighbours, qrels))) @ 10``.

    Raises:
        InputError: When it is first used, for judgements that lack a column, or neighbours that are not a list.

    When not to use it: with neighbours from one of the compared systems, which would then judge itself; together with graded
    labels, as if they had the same scale: the labels inferred here are at most 1.

    Example:
        >>> judged = pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})
        >>> asked = pd.DataFrame({"qid": "q1", "docno": ["d3", "d2", "d9"]})
        >>> MaxRep({"d1": ["d2", "d3"]}, judged)(asked)["label"].tolist()
        [0.5, 1.0, 0.0]
    """

    schematic = {"label": "MaxRep", "help_url": None}  # noqa: RUF012

    def __init__(
        self, neighbours: Mapping[str, Sequence[str]] | pd.DataFrame, qrels: pd.DataFrame, *, k: int = 128, min_label: int = 1
    ):
        """
        Args:
            neighbours: For each docno the docnos of its nearest neighbours, the nearest first; or a frame of results with
                documents as queries: ``qid`` (the document), ``docno``, ``score``. A document is not its own neighbour.
            qrels: Judgements ``qid``, ``docno``, ``label``.
            k: How many neighbours count. If there are fewer, all count, and k is their number.
            min_label: The lowest label of a relevant document.
        """
        self.neighbours = neighbours
        self.qrels = qrels
        self.k = k
        self.min_label = min_label

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the labels; see the class."""
        pt.validate.columns(inp, includes=["qid", "docno"], context=self)
        check_number("MaxRep", "k", self.k, least=1, whole=True)
        check_number("MaxRep", "min_label", self.min_label)
        judged = with_grades(self.qrels, self)
        judged = judged[judged["label"] >= self.min_label]
        known, labels = self._lists(), dict[str, dict[str, float]]()
        for qid, docnos in judged.groupby("qid", sort=False)["docno"]:
            own = labels.setdefault(qid, {})
            for docno in docnos:
                near = known.get(docno, ())
                if isinstance(near, str) or not isinstance(near, Iterable):
                    raise InputError(f"MaxRep: the neighbours of {docno!r} are {kind_of(near)}; give a list of docnos")
                near = [other for other in map(as_name, near) if other != docno][: self.k]
                for place, other in enumerate(near):
                    own[other] = max(own.get(other, 0.0), (len(near) - place) / len(near))
            own.update(dict.fromkeys(docnos, 1.0))
        pairs = zip(inp["qid"], inp["docno"])
        return inp.assign(label=np.array([labels.get(qid, {}).get(docno, 0.0) for qid, docno in pairs], dtype=np.float64))

    def _lists(self) -> Mapping[str, Any]:
        if not isinstance(self.neighbours, (Mapping, pd.DataFrame)):
            raise InputError(
                f"MaxRep: neighbours is {kind_of(self.neighbours)}; give a mapping from docnos to lists of docnos, or a frame of "
                f"results with documents as queries"
            )
        if isinstance(self.neighbours, Mapping):
            return {as_name(docno): near for docno, near in self.neighbours.items()}
        pt.validate.columns(self.neighbours, includes=["qid", "docno", "score"], context=self)
        frame = with_string_ids(self.neighbours, "MaxRep, neighbours")
        frame = frame.sort_values(["score", "docno"], ascending=[False, False], kind="stable")
        return {qid: docnos.tolist() for qid, docnos in frame.groupby("qid", sort=False)["docno"]}
