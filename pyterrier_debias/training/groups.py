"""Groups: for each training query, the documents from which its examples are drawn, made from candidates and judgements."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core import frames
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.stage import Stage, same_value
from pyterrier_debias.core.variants import document_of, documents_of, with_passages, without_index_columns

#: Grades that judgements may have. TREC uses -2 for spam; a gain of 2 to the power of the grade must stay a small number.
LABELS = (-2, 30)

#: The columns that :attr:`Groups.fingerprint` hashes, in addition to those with the text.
_HASHED = ("qid", "docno", "query", "label")


@dataclass(frozen=True)
class Group:
    """One training query with its positives and the pool of its negatives.

    Attributes:
        qid: The query.
        query: Its text.
        positives: Rows of :attr:`Groups.rows` with a grade of at least ``min_label``.
        pool: Rows from which negatives are drawn; they contain no document with a relevant grade, for this qid or another one
            with the same query text.
        relevant: Docnos of all documents with a relevant grade, for this qid or another one with the same query text, whether
            they are candidates or not; with ``in_batch_negatives`` also those that the sampler of negatives excludes.
    """

    qid: str
    query: str
    positives: np.ndarray
    pool: np.ndarray
    relevant: frozenset[str]


@dataclass(frozen=True)
class Groups:
    """All training queries that have a positive and a negative.

    Attributes:
        rows: The candidates with all their columns and ``label`` (0 if not judged), sorted by qid and docno, so that draws do
            not depend on the order of the input.
        groups: The queries, by qid.
        counts: How much was kept and how much was left out, by name.
        fingerprint: A hash of the training data, the same for the same queries, texts and grades in any order.
    """

    rows: pd.DataFrame
    groups: tuple[Group, ...]
    counts: dict[str, int]
    fingerprint: str
    text_columns: tuple[str, ...] = ("text",)
    _columns: dict[str, list[Any]] = field(default_factory=dict, repr=False, compare=False)
    _places: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.groups)

    def column(self, name: str) -> list[Any]:
        """Return a column of :attr:`rows` as a list, cached for the next call.

        Args:
            name: The column.

        Returns:
            One value per row.

        Raises:
            InputError: If the candidates lack the column.
        """
        if name not in self._columns:
            if name not in self.rows.columns:
                raise InputError(
                    f"training: the candidates have no column '{name}', which an option of the training reads; add it before the "
                    f"ranker (they have {', '.join(map(str, self.rows.columns))})"
                )
            self._columns[name] = self.rows[name].tolist()
        return self._columns[name]

    def answers(self, group: Group) -> list[int]:
        """Rows with the texts of a query's relevant documents, whichever query retrieved them.

        Args:
            group: One of :attr:`groups`.

        Returns:
            One row for each of ``group.relevant`` that is a candidate of any query.
        """
        if not self._places:
            wanted = frozenset().union(*(one.relevant for one in self.groups))
            for row, docno in enumerate(self.column("docno")):
                if docno in wanted:
                    self._places.setdefault(docno, row)
        return [self._places[docno] for docno in sorted(group.relevant) if docno in self._places]

    def columns_read(self) -> dict[str, str]:
        """Return which columns samplers, weights and methods have read so far, apart from those in :attr:`fingerprint`.

        Returns:
            Each further column that was read with :meth:`column`, and a digest of its values.
        """
        further = self._columns.keys() - {*_HASHED, *self.text_columns}
        return {name: _digest(self.rows[name]) for name in sorted(further)}


def check_labels(qrels: pd.DataFrame, stage: Any) -> None:
    """Check that grades are integers in the usual range.

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in the message.

    Raises:
        InputError: For a grade that is missing, not a whole number, or outside -2 to 30.
    """
    pt.validate.columns(qrels, includes=["qid", "docno", "label"], context=stage)
    labels = pd.to_numeric(qrels["label"], errors="coerce").to_numpy(dtype="float64", na_value=np.nan)
    bad = np.flatnonzero(~((labels == np.round(labels)) & (labels >= LABELS[0]) & (labels <= LABELS[1])))
    if len(bad):
        label, qid, docno = (qrels[column].tolist()[bad[0]] for column in ("label", "qid", "docno"))
        raise InputError(
            f"{frames.stage_name(stage)}: column 'label' of the judgements is {label!r} at row {bad[0]} (qid={qid!r}, "
            f"docno={docno!r}); grades must be whole numbers from {LABELS[0]} to {LABELS[1]}, map them first"
        )


def grades(qrels: pd.DataFrame, stage: Any) -> pd.DataFrame:
    """Normalise judgements: string ids, integer grades, and one row per pair (with the highest grade if there are several).

    Args:
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in messages.

    Returns:
        A new frame ``qid``, ``docno``, ``label``.

    Raises:
        InputError: If it is not a frame of judgements, or :func:`check_labels` refuses its grades.
    """
    if not isinstance(qrels, pd.DataFrame):
        raise InputError(f"{frames.stage_name(stage)}, judgements: {frames.no_frame(qrels, 'qrels')}")
    qrels = frames.judgements(qrels, stage)
    check_labels(qrels, stage)
    return frames.highest_grades(qrels, stage)


def groups_to_fit(ranker: Any, training: Any, candidates: pd.DataFrame, qrels: pd.DataFrame, *, stage: Any) -> Groups:
    """Make the groups on which a ranker is trained.

    Args:
        ranker: A ranker; its ``text_columns()`` are the text.
        training: The options of training.
        candidates: Result frame, see :func:`make_groups`.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        stage: The calling stage, named in messages.

    Returns:
        The training queries.

    Raises:
        InputError: See :func:`make_groups`; or if negatives come only from other queries of a batch, and there is only one.
    """
    groups = make_groups(
        candidates, qrels, text_columns=ranker.text_columns(), min_label=training.min_label,
        need_negatives=training.negatives_per_positive > 0, stage=stage,
    )  # fmt: skip
    if training.negatives_per_positive == 0 and len(groups.groups) == 1:
        raise InputError(
            f"{frames.stage_name(stage)}: nothing to train on: {groups.groups[0].qid!r} is the only query with a positive, and "
            f"with negatives_per_positive=0 all negatives come from other queries; raise negatives_per_positive, or add queries"
        )
    if training.in_batch_negatives and hasattr(training.negatives, "excluded"):
        # The sampler does not draw in-batch negatives, so it cannot leave out its excluded pairs itself.
        spared: dict[str, set[str]] = {}
        passages: dict[str, set[str]] = {}
        for docno in set(groups.column("docno")):
            passages.setdefault(document_of(docno), set()).add(docno)
        for qid, docno in training.negatives.excluded():
            spared.setdefault(qid, set()).update({docno}, passages.get(docno, ()))
        own = [replace(group, relevant=group.relevant.union(spared.get(group.qid, ()))) for group in groups.groups]
        groups = replace(groups, groups=tuple(own))
    return groups


def make_groups(
    candidates: pd.DataFrame,
    qrels: pd.DataFrame,
    *,
    text_columns: Sequence[str] = ("text",),
    min_label: int = 1,
    need_negatives: bool = True,
    stage: Any,
) -> Groups:
    """Divide the candidates of each query into positives and a pool of negatives.

    Positives are candidates with a grade of at least ``min_label``. Negatives are candidates with a grade of 0 or less and
    candidates without a judgement; a candidate with a grade above 0 and below ``min_label`` is neither. Nor is a candidate with
    a grade above 0 for another qid with the same query text, even if its grade for this qid is 0 or less. Passages of a judged
    document (``d7%p0``, as ``pt.text.sliding`` calls them) have its grade, unless they are judged themselves. Passages without
    text are left out, and so are queries without a positive or without a negative; both are counted.

    Args:
        candidates: Result frame with ``qid``, ``docno``, ``query`` and the text columns.
        qrels: Judgements ``qid``, ``docno``, ``label``.
        text_columns: Columns that make a document's text.
        min_label: The lowest grade of a positive.
        need_negatives: Whether queries without a negative are left out.
        stage: The calling stage, named in messages.

    Returns:
        The groups.

    Raises:
        InputError: For frames that cannot be used, judgements of other queries, or data without any passage with text, any
            positive or any negative.
    """
    name = frames.stage_name(stage)
    if not isinstance(candidates, pd.DataFrame):
        raise InputError(f"{name}, candidates: {frames.no_frame(candidates, 'candidates')}")
    pt.validate.result_frame(candidates, extra_columns=["query", *text_columns], context=stage)
    judged = grades(qrels, stage)
    rows = frames.with_string_ids(candidates, stage)
    if len(rows) == 0:
        raise InputError(f"{name}: there are no candidates to train on; check the topics and the first stage")
    frames.check_text(rows, "query", stage)
    for column in text_columns:
        frames.check_text(rows, column, stage)
    frames.check_pairs(rows, stage)
    frames.check_overlap(rows, judged, stage)
    asked = dict(zip(rows["qid"], rows["query"]))
    every, documents = rows["docno"].to_numpy(), documents_of(rows["docno"], judged["docno"])
    judged = with_passages(judged, rows)

    written = np.zeros(len(rows), dtype=bool)
    for column in text_columns:
        written |= np.fromiter((bool(text.strip()) for text in rows[column].tolist()), dtype=bool, count=len(rows))
    if not written.any():
        raise InputError(
            f"{name}: the text of all {len(rows)} candidates is empty (column {', '.join(text_columns)}); check the text loader"
        )
    order = np.lexsort((rows["docno"].to_numpy(dtype=object), rows["qid"].to_numpy(dtype=object)))
    rows = rows.drop(columns="label", errors="ignore").iloc[order[written[order]]]
    rows = rows.merge(judged, on=["qid", "docno"], how="left").reset_index(drop=True)
    rows = rows.assign(label=rows["label"].fillna(0).astype("int64"))

    labels, queries = rows["label"].to_numpy(), rows["query"].tolist()
    qids, docnos = (rows[column].to_numpy(dtype=object) for column in ("qid", "docno"))
    passages = pd.DataFrame({"docno": documents, "passage": every}).drop_duplicates()
    relevant = _relevant(judged, passages, {**asked, **dict(zip(qids, queries))})
    starts = np.flatnonzero(np.r_[True, qids[1:] != qids[:-1]])
    found: list[Group] = []
    for start, end in zip(starts, np.r_[starts[1:], len(rows)]):
        if len(set(queries[start:end])) > 1:
            raise InputError(f"{name}: qid {qids[start]!r} has more than one query text; keep one qid for each query")
        own = np.arange(start, end)
        positives, others = own[labels[start:end] >= min_label], own[labels[start:end] <= 0]
        if len(positives):
            answers = relevant[queries[start]]
            pool = others[[docno not in answers for docno in docnos[others]]]
            found.append(Group(qids[start], queries[start], positives, pool, answers))
    groups = [group for group in found if len(group.pool) or not need_negatives]
    counts = {
        "queries": len(asked),
        "trained on": len(groups),
        "without a positive": len(asked) - len(found),
        "without a negative": len(found) - len(groups),
        "positives": sum(len(group.positives) for group in groups),
        "passages without text": int((~written).sum()),
    }
    if not groups:
        what = (
            f"no candidate is judged {min_label} or higher; put AddJudged(qrels) before the text loader, or lower min_label"
            if not (labels >= min_label).any()
            else "no query has both a positive and a negative among its candidates; retrieve more of them"
        )
        raise InputError(f"{name}: nothing to train on in {len(asked)} queries: {what}")
    known = _fingerprint(rows, text_columns, min_label, _found_elsewhere(rows, found))
    return Groups(rows, tuple(groups), counts, known, tuple(text_columns))


def _found_elsewhere(rows: pd.DataFrame, groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Relevant pairs that the labels do not show, because only other queries retrieved the document, or have it judged.

    Such a document must not become a negative of the query.
    """
    found, shown = set(rows["docno"]), rows[rows["label"] > 0]
    own = {*zip(shown["qid"], shown["docno"])}
    return sorted(pair for one in groups for pair in ((one.qid, docno) for docno in one.relevant & found) if pair not in own)


def _relevant(judged: pd.DataFrame, passages: pd.DataFrame, queries: Mapping[str, str]) -> dict[str, frozenset[str]]:
    """For each query text, the relevant documents and their passages, including those that only other queries retrieved."""
    rows = judged.loc[judged["label"] > 0, ["qid", "docno"]]
    cut = rows.merge(passages, on="docno").drop(columns="docno").rename(columns={"passage": "docno"})
    pairs = pd.concat([rows, cut], ignore_index=True)
    return pairs.assign(query=pairs["qid"].map(queries)).groupby("query")["docno"].agg(frozenset).to_dict()


def _fingerprint(rows: pd.DataFrame, text_columns: Sequence[str], min_label: int, elsewhere: Iterable[tuple[str, str]]) -> str:
    state = blake2b(str(min_label).encode(), digest_size=16)
    cells = zip(*(rows[column].tolist() for column in ("qid", "docno", "query", *text_columns, "label")))
    for row in chain(cells, elsewhere):
        for value in row:
            part = str(value).encode("utf-8", "surrogatepass")
            state.update(b"%d\0" % len(part))
            state.update(part)
    return state.hexdigest()


def _digest(column: pd.Series) -> str:
    """A digest of a column's values in their order, the same for every type of number."""
    if not pd.api.types.is_numeric_dtype(column):
        return frames.frame_digest(column.to_numpy(dtype=object))
    return blake2b(column.to_numpy(dtype=np.float64, na_value=np.nan).tobytes(), digest_size=16).hexdigest()


class AddJudged(Stage):
    """Adds the judged relevant documents that the first stage missed, so that training can use each judged query.

    Place it between the first stage and the text loader of a pipeline that you train. Documents with a grade of at least
    ``min_label`` are added to the queries of ``qrels`` that have candidates. Other queries, such as those for validation and for
    tests, do not change.

    ===============  ==========================================================================
    columns in       ``qid``, ``docno``, and any others
    columns out      the same, without ``docid`` and vectors; added rows carry the query's columns, the last ranks, and NaN in
                     ``score`` and all else
    ===============  ==========================================================================

    The query's columns are ``query``, PyTerrier's columns of earlier queries, and every column with the same value in all
    candidates of that query (weights, kinds of question), except scores, ranks and texts; other queries are not considered. If a
    query has only one candidate, only columns whose names begin with ``query`` are copied: add others after this stage if they
    matter. A document column with the same value in all candidates is mistaken for a query column: drop it if that would
    mislead. The index's document number (``docid``) and the output of other models (``doc_vec``, ``toks``) are unknown for the
    added rows, so these columns are dropped, and a later text loader finds every document by its ``docno``.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: in a pipeline that is evaluated on the same judgements, because it leaks the answers; where a later stage
    uses the first-stage score, unless rows without a score are left out or scored anew.

    Example:
        >>> import pandas as pd
        >>> found = pd.DataFrame({"qid": ["1"], "query": ["bridges"], "docno": ["d1"], "score": [3.5], "rank": [0]})
        >>> qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d7", "d8"], "label": [1, 1]})
        >>> AddJudged(qrels)(found)[["qid", "docno", "query", "rank"]].values.tolist()
        [['1', 'd1', 'bridges', 0], ['1', 'd7', 'bridges', 1]]

        In a pipeline: ``(bm25 >> AddJudged(qrels) >> texts >> CrossEncoder(model)).fit(topics, qrels)``.
    """

    schematic = {"label": "AddJudged", "help_url": None}  # noqa: RUF012

    def __init__(self, qrels: pd.DataFrame, *, min_label: int = 1):
        """
        Args:
            qrels: Judgements ``qid``, ``docno``, ``label`` of the training queries.
            min_label: The lowest grade to add.
        """
        self.qrels = qrels
        self.min_label = min_label

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the missing relevant documents; see the class.

        Raises:
            InputError: For judgements with grades out of range.
        """
        pt.validate.result_frame(inp, context=self)
        if len(inp) == 0:
            return without_index_columns(inp)
        check_number("AddJudged", "min_label", self.min_label)
        judged = grades(self.qrels, self)
        frame = inp
        found = {*zip(frame["qid"], frame["docno"]), *zip(frame["qid"], documents_of(frame["docno"], judged["docno"]))}
        judged = judged[judged["label"].ge(self.min_label) & judged["qid"].isin(set(frame["qid"]))]
        pairs = sorted(pair for pair in zip(judged["qid"], judged["docno"]) if pair not in found)
        # Also where nothing is missing, so that what comes out does not depend on the queries at hand.
        inp, frame = without_index_columns(inp), without_index_columns(frame)
        if not pairs:
            return inp
        added = pd.DataFrame(pairs, columns=["qid", "docno"])
        for name, values in _of_queries(frame, added["qid"]).items():
            added[name] = values
        if "rank" in frame.columns:
            last = added["qid"].map(frame.groupby("qid")["rank"].max())
            added["rank"] = (last + 1 + added.groupby("qid").cumcount()).astype(frame["rank"].dtype)
        whole = pd.concat([frame, added.reindex(columns=frame.columns)], ignore_index=True)
        # Each query's additions behind its own candidates.
        order = pd.factorize(whole["qid"])[0].argsort(kind="stable")
        return whole.iloc[order].reset_index(drop=True)


#: PyTerrier's columns of a query and of its earlier forms.
_OF_QUERIES = re.compile(r"query(_\d+)?|stashed_results_\d+")

#: Columns that always belong to a document or a pair, whatever their values.
_OF_DOCUMENTS = re.compile(r"(.*_)?(score|rank)|qid|docno|docid|label|text|title|body|url|contents")


def _of_queries(frame: pd.DataFrame, qids: pd.Series) -> dict[str, pd.Series]:
    """The query columns of a frame: for each column one value per qid, missing if the frame does not determine it."""
    query, names = pd.factorize(frame["qid"])
    first = np.flatnonzero(~frame["qid"].duplicated().to_numpy())
    several = np.bincount(query) > 1
    wanted = pd.Index(names).get_indexer(pd.Index(qids))
    found = {}
    for name in frame.columns:
        if _OF_DOCUMENTS.fullmatch(str(name)):
            continue
        known = np.ones(len(names), dtype=bool)
        if not _OF_QUERIES.fullmatch(str(name)):
            np.logical_and.at(known, query, _equal(frame[name], first[query]))
            known &= several | str(name).startswith("query")
        if known[wanted].any():
            values = frame[name].iloc[first[wanted]].reset_index(drop=True)
            found[name] = values if known[wanted].all() else values.where(known[wanted])
    return found


def _equal(column: pd.Series, others: np.ndarray) -> np.ndarray:
    """Whether each value equals that of another row; missing values are equal."""
    try:
        codes = pd.factorize(column)[0]
    except TypeError:  # Vectors and the like.
        values = column.tolist()
        return np.array([same_value(value, values[other]) for value, other in zip(values, others)], dtype=bool)
    return codes == codes[others]
