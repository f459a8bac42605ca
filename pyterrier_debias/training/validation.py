"""Validation: how well a ranker reranks the candidates of validation topics, and the best reranking depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.evaluation import per_query
from pyterrier_debias.core.text import keyed_hash
from pyterrier_debias.core.variants import documents_of
from pyterrier_debias.training.groups import grades


class Validation:
    """Validation candidates with their judgements, to measure a ranker during training.

    Passages of documents (``d7%p0``, as ``pt.text.sliding`` calls them; see :func:`~pyterrier_debias.core.variants.documents_of`)
    are scored one by one, but evaluated as documents: each document has the score of its best passage, as after
    ``pt.text.max_passage()``.

    Args:
        candidates: Result frame with ``qid``, ``docno``, ``query``, the text columns, and, if depths are given, ``rank``: the
            first stage's order, counted from any number. A judged query without a candidate has no value, because candidates do
            not show whether it is a validation query at all.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        texts: The document of each row.
        metric: An ir_measures object or name.
        depths: Reranking depths to choose from; None for all candidates.
        stage: The calling stage, named in messages.

    Raises:
        InputError: For frames that cannot be used, judgements of other queries, or judgements that give the metric the value 0
            whatever the order of the candidates.
    """

    def __init__(
        self,
        candidates: pd.DataFrame,
        qrels: pd.DataFrame,
        texts: Sequence[str],
        *,
        metric: Any,
        depths: Sequence[int] | None,
        stage: Any,
    ):
        name = frames.stage_name(stage)
        pt.validate.result_frame(candidates, extra_columns=["query"], context=stage)
        if len(candidates) == 0:
            raise InputError(f"{name}: there are no validation candidates; check the topics and the first stage")
        if depths is not None and "rank" not in candidates.columns:
            raise InputError(f"{name}: rerank_depth needs the first stage's column 'rank' in the validation candidates")
        self.qrels = grades(qrels, stage)
        rows = frames.with_string_ids(candidates, stage)
        frames.check_text(rows, "query", stage)
        frames.check_pairs(rows, stage)
        frames.check_overlap(rows, self.qrels, stage)
        judged = rows["qid"].isin(set(self.qrels["qid"])).to_numpy()
        kept = [name for name in ("qid", "docno", "rank") if name in rows.columns]
        self.rows = rows.loc[judged, kept].reset_index(drop=True)
        self._documents = documents_of(self.rows["docno"], self.qrels["docno"])
        self.queries = rows.loc[judged, "query"].tolist()
        self.texts = [texts[i] for i in np.flatnonzero(judged).tolist()]
        self.qids = list(dict.fromkeys(self.rows["qid"]))
        self.metric = metric
        self.depths = None if depths is None else sorted(depths)
        if depths is not None:
            frames.check_scores(self.rows, stage, column="rank")
            first = self._of_documents(-pd.to_numeric(self.rows["rank"]).to_numpy())
            places = frames.ranked(first).set_index(["qid", "docno"])["rank"]
            self._places = places.loc[list(zip(self.rows["qid"], self._documents))].to_numpy(dtype=np.float64)
        # The best order shows whether training can be measured at all, before it takes its time.
        given = pd.DataFrame({"qid": self.rows["qid"].to_numpy(dtype=object), "docno": self._documents})
        known = self.qrels[["qid", "docno", "label"]].drop_duplicates(["qid", "docno"])
        labels = given.merge(known, on=["qid", "docno"], how="left")["label"]
        ideal = labels.fillna(self.qrels["label"].min() - 1).to_numpy(dtype=np.float64)
        if per_query(self._of_documents(ideal), self.qrels, [metric], self.qids).iloc[:, 0].max() == 0:
            raise InputError(
                f"{name}: {metric} of the validation candidates is 0 in any order, so validation cannot choose the best weights; "
                f"check that some of the candidates are judged relevant, with a grade that the metric counts"
            )

    def __len__(self) -> int:
        return len(self.qids)

    def fingerprint(self) -> str:
        """A hash of queries, passages and grades, and of ranks if there are depths; it does not depend on the order of rows."""
        places = [] if self.depths is None else [[str(int(place)) for place in self._places]]
        pairs = zip(self.rows["qid"], self.rows["docno"], self.queries, self.texts, *places)
        judged = self.qrels[self.qrels["qid"].isin(set(self.qids))].astype(str)
        parts = [*sorted(pairs), *sorted(judged.itertuples(index=False, name=None))]
        return f"{keyed_hash(0, *(value for row in parts for value in row)):016x}"

    def share(self, part: int, parts: int) -> np.ndarray:
        """The rows of every ``parts``-th query, beginning with query ``part``."""
        return np.flatnonzero(pd.factorize(self.rows["qid"])[0] % parts == part)

    def _of_documents(self, scores: np.ndarray) -> pd.DataFrame:
        """The run of the rows' documents, each with the highest of its rows' scores."""
        run = pd.DataFrame({"qid": self.rows["qid"], "docno": self._documents, "score": scores})
        return run.groupby(["qid", "docno"], sort=False, as_index=False)["score"].max()

    def measure(self, scores: np.ndarray) -> tuple[pd.Series, int | None]:
        """Compute the metric of each query at the best reranking depth.

        Args:
            scores: One score per row.

        Returns:
            Values by qid, and the depth (the smallest of equally good ones; None if all candidates are reranked).

        Raises:
            InputError: If a score is NaN.
        """
        best: tuple[pd.Series, int | None] | None = None
        for depth in self.depths or (None,):
            run = self.rows.assign(score=np.asarray(scores, dtype=np.float64))
            frames.check_scores(run, "validation")
            if depth is not None:
                below = np.nanmin(run["score"].to_numpy()) - 1 - self._places
                run = run.assign(score=run["score"].where(self._places < depth, below))
            values = per_query(self._of_documents(run["score"].to_numpy()), self.qrels, [self.metric], self.qids).iloc[:, 0]
            if best is None or values.mean() > best[0].mean():
                best = values, depth
        return cast(tuple[pd.Series, int | None], best)  # there is one depth at least
