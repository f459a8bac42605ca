"""Dataset report: which queries a collection has, and which of them were answered.

It reproduces Chapter 3 of Gupta (2021) for any collection like MS MARCO QnA: sizes, types, answered share, the histogram of first
relevant ranks, overall and by type, and duplicates. Figures that cannot be computed for a collection are listed with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.core.dataset import provided
from pyterrier_debias.core.errors import InputError, check_number
from pyterrier_debias.core.frames import with_grades, with_string_ids
from pyterrier_debias.core.statistics import binomial_interval
from pyterrier_debias.data.base import Collection
from pyterrier_debias.survivorship.data.ranks import (
    NEVER,
    answered_qids,
    first_relevant_ranks,
    normal_text,
    presented,
    shown_to_labellers,
    types_of,
    with_ranks,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The tables of a report, in their order.
TABLES = ("sizes", "types", "first_ranks", "first_ranks_by_type", "shown", "duplicates", "answers")
NAN = float("nan")


@dataclass(frozen=True, eq=False, repr=False)
class DatasetReport:
    """The result of :func:`dataset_report`: tables about a collection's queries.

    Attributes:
        name: The collection's name.
        tables: Mapping from names to frames: ``sizes`` (queries, judgements, ...), ``types`` (queries by type and answered
            share, with intervals), ``first_ranks`` (histogram), ``first_ranks_by_type`` (one row per type; shares over its
            *answered* queries, as in the thesis; NaN if there are none), ``shown`` (how many documents a list has),
            ``duplicates``, ``answers`` (labels against written answers).
        missing: Mapping from each missing table to the reason.
        ranks: ``qid``, ``first_relevant_rank`` (NaN if what labellers were shown is not known), ``type``, ``answered``: the data
            behind the tables.
        source: ``'shown'``; ``'proxy: <run>'`` if a run was used instead of what labellers were shown; ``'judgements only'`` if
            neither is known.
    """

    name: str
    tables: Mapping[str, pd.DataFrame]
    missing: Mapping[str, str]
    ranks: pd.DataFrame
    source: str

    def __repr__(self) -> str:
        """Sizes in one line."""
        answered = int(self.ranks["answered"].sum())
        return f"<DatasetReport of {self.name!r}: {answered} of {len(self.ranks)} queries answered ({self.source})>"

    def available(self) -> pd.DataFrame:
        """Which tables this collection allows.

        Returns:
            One row per table: ``table``, ``there`` (whether it exists), ``reason`` (empty if it does).
        """
        rows = [(table, table in self.tables, self.missing.get(table, "")) for table in TABLES]
        return pd.DataFrame(rows, columns=["table", "there", "reason"])

    def plot_types(self, ax: Axes | None = None) -> Axes:
        """Draw the answered share of each type, with intervals.

        Args:
            ax: Matplotlib axes; None makes new ones.

        Returns:
            The axes.

        Raises:
            InputError: If the table is missing.
        """
        from pyterrier_debias.core import plots

        table = self._table("types")
        axes = plots.new_axes() if ax is None else ax
        own = table[table["type"] != "all types"]
        with plots.style():
            ends = np.clip([own["share"] - own["low"], own["high"] - own["share"]], 0, None)
            axes.bar(own["type"], own["share"], yerr=ends, color=plots.colour(0))
            axes.axhline(float(table["share"].iloc[0]), color=plots.GREY, linestyle="--")
            axes.set_ylim(0, 1)
            axes.tick_params(axis="x", labelrotation=20)
            plots.label_axes(axes, x="type of query", y="share answered", n=int(table["queries"].iloc[0]))
        return axes

    def plot_first_ranks(self, ax: Axes | None = None, *, by_type: bool = False) -> Axes:
        """Draw the histogram of first relevant ranks.

        Args:
            ax: Matplotlib axes; None makes new ones.
            by_type: Whether to draw a line for each type, as shares of its answered queries.

        Returns:
            The axes.

        Raises:
            InputError: If the table is missing.
        """
        from pyterrier_debias.core import plots

        table = self._table("first_ranks_by_type" if by_type else "first_ranks")
        axes = plots.new_axes() if ax is None else ax
        with plots.style():
            if by_type:
                places = [c for c in table.columns if c.isdigit()]
                for number, row in enumerate(table.to_dict("records")):
                    shares = [row[place] for place in places]
                    label = plots.legend_label(row["type"])
                    axes.plot([int(place) for place in places], shares, "o-", color=plots.colour(number), label=label)
                axes.legend()
                y = "share of the type's answered queries"
            else:
                own = table[np.isfinite(table["first_relevant_rank"])]
                axes.bar(own["first_relevant_rank"], own["queries"], color=plots.colour(0))
                y = "queries"
            ranks = self.ranks["first_relevant_rank"].to_numpy(dtype=float)
            axes.set_xticks(range(1, int(ranks[np.isfinite(ranks)].max(initial=1)) + 1))
            plots.label_axes(axes, x="first relevant rank", y=y, n=int(np.isfinite(ranks).sum()), unit="answered queries")
        return axes

    def _table(self, name: str) -> pd.DataFrame:
        if name not in self.tables:
            reason = self.missing.get(name, "it is not known")
            raise InputError(f"DatasetReport of {self.name}: there is no table {name!r}: {reason}")
        return self.tables[name]


def dataset_report(
    dataset: Any,
    split: str | None = None,
    *,
    min_label: int = 1,
    exact: bool = False,
    docno: str = "qna",
    by: str = "type",
    proxy: bool = False,
) -> DatasetReport:
    """Describe a collection's queries: how many, of which types, and which were answered at which rank.

    The tables are those of Chapter 3 of the thesis, which describes MS MARCO QnA.

    Source: Gupta, "Survivorship Bias in IR Datasets", MSc thesis, University of Glasgow, 2021.

    When not to use it: to judge rankers; it describes queries and, if a run is used as a proxy, the system of that run.

    Args:
        dataset: Any dataset; candidates, answers and the column of types are used if it has them.
        split: Split of topics and judgements; None for its default.
        min_label: The lowest label that is relevant.
        exact: Whether a label must equal ``min_label``, as in the thesis.
        docno: How docnos are compared; see :func:`~pyterrier_debias.survivorship.data.ranks.first_relevant_ranks`.
        by: The topics' column of types.
        proxy: Whether to use the first run if the collection does not say what labellers were shown; the report says so.

    Returns:
        The report. Topics without a list shown to labellers count as not answered. Repeated texts are counted only for
        collections in memory. Datasets of ir_datasets have written answers for relevant documents only, so no answer is without
        one.

    Raises:
        InputError: If the dataset has no topics or no judgements.

    Example:
        >>> from pyterrier_debias import PlantedCollection
        >>> report = dataset_report(PlantedCollection(1, topics=20, passages=200, survivorship=1.0), "full")
        >>> report
        <DatasetReport of 'planted-1-survivorship1': 15 of 20 queries answered (shown)>
        >>> report.tables["first_ranks"]["queries"].tolist()
        [1, 2, 1, 2, 1, 2, 1, 2, 1, 2, 5]
    """
    check_number("dataset_report", "min_label", min_label, hint="it is the lowest grade that is relevant")
    arguments = [] if split is None else [split]
    topics, qrels = (provided(dataset, method, *arguments) for method in ("get_topics", "get_qrels"))
    name = getattr(dataset, "name", type(dataset).__name__)
    if topics is None or qrels is None:
        raise InputError(
            f"dataset_report: {name} has no {'topics' if topics is None else 'judgements'}; name a split that has them"
        )
    topics = with_string_ids(topics, "dataset_report, topics").drop_duplicates("qid")
    qrels = with_grades(qrels, "dataset_report")
    qrels = qrels[qrels["qid"].isin(set(topics["qid"]))]
    tables: dict[str, pd.DataFrame] = {}
    missing: dict[str, str] = {}
    try:
        shown, stand_in = shown_to_labellers(dataset, proxy=proxy, stage="dataset_report")
    except InputError:
        reason = "the collection does not say what labellers were shown (get_candidates)"
        missing |= dict.fromkeys(("first_ranks", "first_ranks_by_type", "shown"), reason)
        source, places = "judgements only", None
        best = set(qrels.loc[qrels["label"] == min_label if exact else qrels["label"] >= min_label, "qid"])
        found = topics.assign(first_relevant_rank=NAN)
        answered = topics["qid"].isin(best).to_numpy()
    else:
        source = f"proxy: {stand_in}" if stand_in else "shown"
        shown = with_string_ids(shown, "dataset_report, candidates")
        shown = shown[shown["qid"].isin(set(topics["qid"]))]
        places = presented(shown, "dataset_report")
        ranks = first_relevant_ranks(shown, qrels, min_label=min_label, exact=exact, docno=docno, stage="dataset_report")
        found = with_ranks(topics, ranks)
        answered = np.isfinite(found["first_relevant_rank"].to_numpy())
    kinds = types_of(found[by]) if by in found.columns else None
    ranks_frame = found[["qid", "first_relevant_rank"]].assign(
        type="" if kinds is None else kinds.to_numpy(), answered=answered
    )
    answers = provided(dataset, "get_answers")
    written = None if answers is None else answered_qids(answers) & set(topics["qid"])

    tables["sizes"] = _sizes(topics, qrels, places, answered, min_label, exact)
    if kinds is None or kinds.nunique() < 2:
        reason = f"the topics have no column {by!r} with several types"
        missing["types"] = reason
        missing.setdefault("first_ranks_by_type", reason)
    else:
        tables["types"] = _types(ranks_frame)
    if places is not None:
        tables["first_ranks"] = _histogram(ranks_frame)
        tables["shown"] = places.groupby("qid").size().value_counts().sort_index().rename_axis("documents").rename(
            "queries"
        ).reset_index()  # fmt: skip
        if "types" in tables:
            tables["first_ranks_by_type"] = _by_type(ranks_frame)
    tables["duplicates"] = _duplicates(dataset, topics, qrels, places)
    if written is None:
        missing["answers"] = "the collection has no written answers (get_answers)"
    else:
        has = ranks_frame["qid"].isin(written).to_numpy()
        cells = [(label, text) for label in (True, False) for text in (True, False)]
        rows = [(label, text, int(((answered == label) & (has == text)).sum())) for label, text in cells]
        tables["answers"] = pd.DataFrame(rows, columns=["relevant_label", "written_answer", "queries"])
    ordered = {table: tables[table] for table in TABLES if table in tables}
    return DatasetReport(name, ordered, missing, ranks_frame.reset_index(drop=True), source)


def _sizes(
    topics: pd.DataFrame, qrels: pd.DataFrame, places: pd.DataFrame | None, answered: np.ndarray, min_label: int, exact: bool
) -> pd.DataFrame:
    positive = qrels["label"] == min_label if exact else qrels["label"] >= min_label
    rows = [
        ("queries", len(topics)),
        ("judgements", len(qrels)),
        ("relevant judgements", int(positive.sum())),
        ("answered queries", int(answered.sum())),
        ("unanswered queries", int((~answered).sum())),
    ]
    if places is not None:
        rows.insert(1, ("documents shown", len(places)))
        rows.append(("queries for which nothing was shown", int((~topics["qid"].isin(set(places["qid"]))).sum())))
    return pd.DataFrame(rows, columns=["what", "count"])


def _types(ranks: pd.DataFrame) -> pd.DataFrame:
    rows = []
    groups = [("all types", ranks), *ranks.groupby("type")]
    for kind, own in sorted(groups[1:], key=lambda group: -len(group[1])) + groups[:1]:
        answered = int(own["answered"].sum())
        found = binomial_interval(answered, len(own), level=0.95)
        rows.append((kind or "(none)", len(own), len(own) / len(ranks), answered, len(own) - answered, found.estimate, found.low,
                     found.high))  # fmt: skip
    columns = ["type", "queries", "of_all", "answered", "unanswered", "share", "low", "high"]
    return pd.DataFrame([rows[-1], *rows[:-1]], columns=columns)


def _histogram(ranks: pd.DataFrame) -> pd.DataFrame:
    """How many queries were first answered at each rank, or never, with shares of all queries and running totals."""
    values = ranks["first_relevant_rank"].to_numpy(dtype=float)
    finite = values[np.isfinite(values)]
    places = [*map(float, range(1, int(finite.max(initial=0)) + 1)), NEVER]
    counts = [int((values == place).sum()) for place in places]
    total = max(len(values), 1)
    within = np.cumsum(counts)
    return pd.DataFrame(
        {
            "first_relevant_rank": places, "queries": counts, "share": np.array(counts) / total,
            "answered_within": [*within[:-1].tolist(), int(within[-1] - counts[-1])],
        }
    )  # fmt: skip


def _by_type(ranks: pd.DataFrame) -> pd.DataFrame:
    values = ranks["first_relevant_rank"].to_numpy(dtype=float)
    last = int(values[np.isfinite(values)].max(initial=0))
    rows = []
    for kind, own in ranks.groupby("type"):
        found = own["first_relevant_rank"].to_numpy(dtype=float)
        answered = found[np.isfinite(found)]
        shares = {str(place): float((answered == place).mean()) if len(answered) else NAN for place in range(1, last + 1)}
        rows.append({"type": kind or "(none)", "queries": len(own), "answered": len(answered), **shares})
    return pd.DataFrame(rows)


def _duplicates(dataset: Any, topics: pd.DataFrame, qrels: pd.DataFrame, places: pd.DataFrame | None) -> pd.DataFrame:
    """Queries and documents that occur more than once in a collection, and contradictory judgements."""
    rows = []
    if "query" in topics.columns:
        texts = topics["query"].fillna("").astype(str).map(normal_text)
        texts = texts[texts != ""]
        rows.append(("queries with a text that another query has", len(texts), int(texts.duplicated(keep=False).sum())))
    pairs = qrels.groupby(["qid", "docno"])["label"].agg(["size", "nunique"])
    rows.append(("pairs judged more than once", len(pairs), int((pairs["size"] > 1).sum())))
    rows.append(("pairs judged more than once with different labels", len(pairs), int((pairs["nunique"] > 1).sum())))
    # Texts are compared only for collections that are already in memory.
    if isinstance(dataset, Collection):
        corpus = dataset.get_corpus()
        texts = corpus["text"].astype(str).map(normal_text)
        rows.append(("documents with a text that another document has", len(texts), int(texts.duplicated(keep=False).sum())))
        if places is not None:
            listed = places[["qid", "docno"]].assign(text=places["docno"].map(dict(zip(corpus["docno"], texts))))
            again = listed.duplicated(["qid", "text"]) & listed["text"].notna()
            rows.append(("documents shown to one labeller with a text shown before", len(listed), int(again.sum())))
            labelled = listed.merge(qrels[["qid", "docno", "label"]].drop_duplicates(["qid", "docno"]), on=["qid", "docno"])
            several = labelled[labelled["text"].notna()].groupby(["qid", "text"])["label"].agg(["size", "nunique"])
            several = several[several["size"] > 1]
            what = "texts shown twice for one query, with different labels"
            rows.append((what, len(several), int((several["nunique"] > 1).sum())))
    if places is not None:
        rows.append(("docnos shown twice for one query", len(places), int(places.duplicated(["qid", "docno"]).sum())))
    return pd.DataFrame(rows, columns=["what", "of", "count"])
