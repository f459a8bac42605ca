"""What single documents, words and positions contribute to the rooms' figures. Floor 4.

Made where the rankings are still at hand, since results of rooms hold values of queries only. Contributions of everything sum to
the figure; where they do not (another room under the same name, another measure) nothing is said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from pyterrier_debias.collections.base import provided
from pyterrier_debias.evaluation import judged_qids
from pyterrier_debias.findings import Finding, Room, RoomResult
from pyterrier_debias.frames import ranked, with_string_ids
from pyterrier_debias.systems import Context

if TYPE_CHECKING:
    from pyterrier_debias.gender.counting import WordCounts

CONTRIBUTION_COLUMNS = [
    "kind", "system", "bias", "measure", "group", "item", "note", "qid", "queries", "contribution", "share", "exact",
]  # fmt: skip
#: What can be asked for, and what an item of it is.
KINDS = {"documents": "document", "words": "word", "positions": "position"}
#: How many documents of each figure are kept, those that push it furthest in its own direction.
KEPT = 50

_TYPES = {"queries": "int64", "contribution": "float64", "share": "float64", "exact": "bool"}
_ITEM = ["item", "note", "qid", "queries", "contribution"]
#: Forms of the magnitude that are a sum over words, each by its own count.
_LINEAR = (("tc", ""), ("tf", "sum_log"), ("tf", "sum_log1p"))
_SIDES = {"m": "male", "f": "female"}
_THIRDS = ("first", "middle", "last")


def contributions_frame(rows: Any = ()) -> pd.DataFrame:
    """A table of contributions with its types.

    Args:
        rows: Dictionaries, or columns, or nothing.

    Returns:
        A frame with ``CONTRIBUTION_COLUMNS``.

    Raises:
        KeyError: Where columns are given and one is missing.
    """
    frame = pd.DataFrame(rows) if len(rows) else pd.DataFrame(columns=CONTRIBUTION_COLUMNS)
    return frame[CONTRIBUTION_COLUMNS].astype({c: _TYPES.get(c, "str") for c in CONTRIBUTION_COLUMNS})


def contributions_of(room: Room, context: Context, result: RoomResult) -> pd.DataFrame:
    """What items contribute to the figures of a room that has run.

    Args:
        room: One of the library's rooms; others have none.
        context: What it ran on, with the rankings that it shared.
        result: What it found.

    Returns:
        One row an item of a figure, those that push it furthest in its own direction first: ``kind`` (``'document'``, ``'word'``
        or ``'position'``), ``system``, ``bias``, ``measure``, ``group``, ``item``, ``note`` (what is known of it), ``qid`` (where
        it counts most; empty for positions), ``queries`` (how many it counts in), ``contribution`` (in the figure's unit),
        ``share`` (of the figure; NaN where that is 0), ``exact`` (whether it is the item's own, or was divided among items by a
        rule). Items that contribute 0 are left out. All words and positions are kept, and ``KEPT`` documents.
    """
    run = room.run.func if isinstance(room.run, partial) else room.run
    module = getattr(run, "__module__", "")
    parts: Sequence[pd.DataFrame] = ()
    if module == "pyterrier_debias.gender.audit":
        from pyterrier_debias.gender.audit import GENDER

        parts = _gender(context, result, room.run.args[0] if isinstance(room.run, partial) else GENDER)
    elif module == "pyterrier_debias.pooling.audit":
        parts = _pooling(context, result)
    elif module == "pyterrier_debias.position.audit":
        parts = _position(context, result)
    parts = [part for part in parts if len(part)]
    return pd.concat(parts, ignore_index=True) if parts else contributions_frame()


def parts_of_figure(
    kind: str, finding: Finding, items: pd.DataFrame, *, exact: bool = True, keep: int | None = None
) -> pd.DataFrame:
    """Items of one figure in the shape of the table, where they sum to it.

    Args:
        kind: ``'document'``, ``'word'`` or ``'position'``.
        finding: The figure.
        items: All that contribute: ``item``, ``note``, ``qid``, ``queries``, ``contribution``; equal pushes keep this order.
        exact: See :func:`contributions_of`.
        keep: How many of them; None for all.

    Returns:
        See :func:`contributions_of`; empty where the items do not sum to the figure.

    Example:
        >>> figure = Finding("m", "pooling", "Judged@10", "system - pool (bm25)", -0.3)
        >>> items = pd.DataFrame({"item": ["a", "b"], "note": "", "qid": "1", "queries": 1, "contribution": [0.1, -0.4]})
        >>> parts_of_figure("document", figure, items)[["item", "share"]].round(2).values.tolist()
        [['b', 1.33], ['a', -0.33]]
    """
    figure = float(finding.value)
    values = items["contribution"].to_numpy(dtype=float)
    if not np.isclose(values.sum(), figure, rtol=1e-6, atol=1e-9):
        return contributions_frame()
    items = items[np.abs(values) > 1e-15]
    values = items["contribution"].to_numpy(dtype=float)
    pushed = values * np.sign(figure) if figure else np.abs(values)
    # Sums of equal parts differ in their last bits.
    items = items.iloc[np.argsort(-np.round(pushed, 12), kind="stable")[:keep]]
    if not len(items):
        return contributions_frame()
    about = {name: getattr(finding, name) for name in ("system", "bias", "measure", "group")}
    with np.errstate(over="ignore"):  # a figure may be all but 0
        share = items["contribution"] / figure if figure else np.nan
    return contributions_frame(items[_ITEM].assign(**about, kind=kind, share=share, exact=exact))


def _primary(result: RoomResult, system: str) -> Finding | None:
    """The room's primary figure of a system; None where it has none."""
    found = [f for f in result.findings if f.system == system and f.primary and np.isfinite(f.value)]
    return found[0] if found else None


# ------------------------------------------------------------------------------------------------------------- gender


def order_weights(n: int, cutoff: int) -> np.ndarray:
    """What the lean of each rank counts in ARaB@t of an order less that of a random order: w_i - 1/n, with w_i = 0 below t.

    Args:
        n: Documents of the list, at least 1.
        cutoff: t.

    Returns:
        Shape [n]; the weights sum to 0.

    Example:
        >>> order_weights(4, 2).tolist()
        [0.5, 0.0, -0.25, -0.25]
    """
    from pyterrier_debias.gender.arab import rank_weights

    own = rank_weights(min(cutoff, n))
    return np.concatenate([own, np.zeros(n - len(own))]) - 1 / n


def word_parts(counts: WordCounts, method: str = "tf", tf_form: str = "log1p_total") -> tuple[np.ndarray, bool]:
    r"""The part that each word has in its group's magnitude of a document.

    Where the magnitude is a sum over words (``'tc'``, ``'sum_log'``, ``'sum_log1p'``) it is the word's own term. ``'bool'`` and
    ``'log1p_total'``, ln(1 + c), are not: they are divided in proportion to the words' counts, which for a smooth function of the
    sum of counts is its Aumann-Shapley value, c_w times the integral over s in [0, 1] of f'(s c) = (c_w / c) f(c).

    Args:
        counts: The words of documents.
        method: See :func:`pyterrier_debias.gender.arab.magnitudes`.
        tf_form: The same.

    Returns:
        Shape [entries] of ``counts``, and whether these are the words' own terms.

    Example:
        >>> from pyterrier_debias.gender.counting import word_counts
        >>> parts, exact = word_parts(word_counts(["he he his"]))
        >>> parts.round(3).tolist(), exact
        ([0.924, 0.462], False)
    """
    from pyterrier_debias.gender.arab import magnitudes

    own = counts.counts.astype(np.float64)
    if (method, tf_form if method == "tf" else "") in _LINEAR:
        return {"sum_log": np.log, "sum_log1p": np.log1p}.get(tf_form if method == "tf" else "", np.array)(own), True
    group = np.array(counts.wordlist.owners, dtype=np.int64)[counts.words]
    total, magnitude = counts.total(), magnitudes(counts, method, tf_form)
    return own / total[counts.rows, group] * magnitude[counts.rows, group], False


def order_parts(
    results: pd.DataFrame, texts: Any, cutoff: int = 10, *, wordlist: Any = "debias",
    contrast: str | tuple[str, str] | None = None, method: str = "tf", tf_form: str = "log1p_total",
    tokeniser: Any = "regex_word",
) -> tuple[pd.DataFrame, pd.DataFrame, bool]:  # fmt: skip
    """What documents and words contribute to the mean difference of ARaB@t between an order and a random order.

    With b(d) the lean of a document the figure is (1/m) sum over m queries and their ranks i of (w_i - 1/n) b(d_i), so that each
    row has its part; see :func:`order_weights` and :func:`word_parts`.

    Args:
        results: ``qid``, ``docno``, ``score`` or ``rank``: all queries that count.
        texts: A :class:`~pyterrier_debias.gender.documents.Texts`.
        cutoff: t.
        wordlist: See :class:`~pyterrier_debias.gender.evaluator.ARaBEvaluator`, as for the rest.
        contrast: The same.
        method: The same.
        tf_form: The same.
        tokeniser: The same.

    Returns:
        Documents (``item``: docno, ``note``: words found) and words (``note``: the group), each with ``qid``, ``queries`` and
        ``contribution``, in no order of size; and whether the words' parts are their own.

    Example:
        >>> from pyterrier_debias.gender.documents import Texts
        >>> run = pd.DataFrame({"qid": "1", "docno": ["a", "b"], "score": [2.0, 1.0]})
        >>> documents, words, exact = order_parts(run, Texts({"a": "He and she saw her.", "b": "Rain."}), method="tc")
        >>> words[["item", "note", "contribution"]].values.tolist(), exact
        ([['he', 'male', 0.25], ['her', 'female', -0.25], ['she', 'female', -0.25]], True)
    """
    from pyterrier_debias.gender import arab
    from pyterrier_debias.gender.documents import counted, in_order, query_slices
    from pyterrier_debias.gender.words import WordList

    words = WordList.of(wordlist)
    run = in_order(with_string_ids(results), "contributions")
    counts, own = counted(run, texts, words, tokeniser, "contributions")
    slices = query_slices(run["qid"])
    weight = np.concatenate([order_weights(rows.stop - rows.start, cutoff) for rows in slices.values()]) / len(slices)
    lean = arab.leans(arab.magnitudes(counts, method, tf_form), words, contrast)
    found = [", ".join(f"{word} {count}" for word, count in said.items()) for said in counts.found()]
    documents = _summed(run["docno"].to_numpy(), run["qid"].to_numpy(), weight * lean[own], [found[i] for i in own])
    rows = counts.take(own)
    part, exact = word_parts(rows, method, tf_form)
    owner = np.array(words.owners, dtype=np.int64)[rows.words]
    names = [_SIDES.get(name, name) for name in words.names]
    values = weight[rows.rows] * np.array(list(words.contrast(contrast).values()))[owner] * part
    listed = np.array(words.words, dtype=object)[rows.words]
    return documents, _summed(listed, run["qid"].to_numpy()[rows.rows], values, [names[i] for i in owner]), exact


def _summed(items: Any, qids: Any, values: np.ndarray, notes: Any) -> pd.DataFrame:
    """The sum of each item's parts, by name; the query where it counts most, and in how many it counts."""
    frame = pd.DataFrame({"item": items, "qid": qids, "note": notes, "contribution": values}).astype({"item": "str"})
    frame = frame[frame["contribution"] != 0]
    frame = frame.groupby(["item", "note", "qid"], as_index=False, sort=True)["contribution"].sum()
    frame = frame.assign(size=frame["contribution"].abs()).sort_values(["item", "size"], ascending=[True, False], kind="stable")
    summed = frame.groupby(["item", "note"], as_index=False, sort=True).agg(
        qid=("qid", "first"), queries=("qid", "nunique"), contribution=("contribution", "sum")
    )
    return summed[_ITEM]


def _gender(context: Context, result: RoomResult, attribute: Any) -> list[pd.DataFrame]:
    from pyterrier_debias.gender.audit import neutral_qids
    from pyterrier_debias.gender.documents import Texts

    qids = set(neutral_qids(context.topics, attribute)) & set(judged_qids(context.topics, context.qrels))
    texts, parts = Texts(context.dataset), []
    for system in context.systems:
        finding = _primary(result, system.name)
        if finding is None:
            continue
        run = context.results(system)
        run = run[run["qid"].isin(qids) & (run["rank"] < context.depth)]
        cutoff = int(finding.measure.rpartition("@")[2])
        documents, words, exact = order_parts(
            run, texts, cutoff, wordlist=attribute.wordlist, contrast=attribute.contrast
        )
        parts.append(parts_of_figure("document", finding, documents, keep=KEPT))
        parts.append(parts_of_figure("word", finding, words, exact=exact))
    return parts


# ------------------------------------------------------------------------------------------------------------ pooling


def unjudged_parts(
    runs: Mapping[str, pd.DataFrame], qrels: pd.DataFrame, qids: Sequence[str], cutoff: int = 10
) -> pd.DataFrame:
    """What unjudged documents contribute to the mean difference of Judged@k between a system and the pool's run.

    Judged@k is 1 less the share of unjudged documents. So each of them takes 1 / (k m) from the system, or from the pool's run,
    which gives it to the difference: with k the documents that the query has there, m queries.

    Args:
        runs: The system's results and the pool's, in this order, by name.
        qrels: Judgements.
        qids: Queries; those count for which both have results.
        cutoff: k, of longer lists.

    Returns:
        ``item`` (docno), ``note`` (where it stands highest), ``qid``, ``queries``, ``contribution``; those that stand highest
        first.

    Example:
        >>> run = lambda docnos: pd.DataFrame({"qid": "1", "docno": docnos, "score": [2.0, 1.0]})
        >>> judged = pd.DataFrame({"qid": ["1"], "docno": ["a"], "label": [0]})
        >>> unjudged_parts({"mine": run(["b", "c"]), "bm25": run(["a", "c"])}, judged, ["1"]).values.tolist()
        [['b', 'unjudged at rank 1 of mine', '1', 1, -0.5]]
    """
    tops = {}
    for name, results in runs.items():
        run = ranked(with_string_ids(results)[["qid", "docno", "score"]], name)
        tops[name] = run[run["qid"].isin(set(qids)) & (run["rank"] < cutoff)]
    common = set.intersection(*(set(top["qid"]) for top in tops.values()))
    judged = set(zip(with_string_ids(qrels)["qid"], with_string_ids(qrels)["docno"]))
    rows = []
    for (name, top), sign in zip(tops.items(), (-1.0, 1.0)):
        top = top[top["qid"].isin(common)]
        sizes = top.groupby("qid")["docno"].transform("size").to_numpy()
        known = np.array([pair in judged for pair in zip(top["qid"], top["docno"])], dtype=bool)
        part = sign / sizes / max(len(common), 1)
        rows.append(top.assign(owner=name, contribution=part)[~known])
    frame = pd.concat(rows, ignore_index=True)
    # Where both have it the parts cancel, and it counts in no query.
    frame = frame.assign(net=frame.groupby(["qid", "docno"])["contribution"].transform("sum"))
    frame = frame[frame["net"].abs() > 1e-15].sort_values(["rank", "docno", "qid"], kind="stable")
    note = [f"unjudged at rank {rank + 1} of {owner}" for rank, owner in zip(frame["rank"], frame["owner"])]
    grouped = frame.assign(note=np.array(note, dtype=object)).groupby("docno", sort=False)
    found = grouped.agg(
        note=("note", "first"), qid=("qid", "first"), queries=("qid", "nunique"), contribution=("contribution", "sum")
    )
    return found.rename_axis("item").reset_index()[_ITEM]


def _pooling(context: Context, result: RoomResult) -> list[pd.DataFrame]:
    from pyterrier_debias.pooling.audit import pools_run

    pool, parts = pools_run(context.dataset), []
    if pool is None:
        return parts
    qids = judged_qids(context.topics, context.qrels)
    for system in context.systems:
        finding = _primary(result, system.name)
        if finding is not None:
            runs = {system.name: context.results(system), f"{pool[0]} (the pool)": pool[1]}
            cutoff = int(finding.measure.rpartition("@")[2])
            items = unjudged_parts(runs, context.qrels, qids, cutoff)
            parts.append(parts_of_figure("document", finding, items, keep=KEPT))
    return parts


# ----------------------------------------------------------------------------------------------------------- position


def _position(context: Context, result: RoomResult) -> list[pd.DataFrame]:
    parts, thirds = [], answer_thirds(context)
    values = {key: own.set_index("qid")["value"] for key, own in result.per_query.groupby(["system", "measure", "group"])}
    for system in context.systems:
        for finding in result.findings:
            if finding.system == system.name and finding.group == "end - start":
                places = [values.get((finding.system, finding.measure, f"answer at the {p}")) for p in ("start", "middle", "end")]
                if all(place is not None for place in places):
                    parts.append(parts_of_figure("position", finding, move_parts(*places)))
        finding = _primary(result, system.name)
        own = None if finding is None else values.get((system.name, finding.measure, finding.group))
        if thirds and own is not None:
            parts.append(parts_of_figure("position", finding, third_parts(own, thirds)))
    return parts


def move_parts(start: pd.Series, middle: pd.Series, end: pd.Series) -> pd.DataFrame:
    """The two moves of an answer that the way from the start to the end of its passage is the sum of.

    Args:
        start: Quality with the answer at the start, by qid.
        middle: The same in the middle.
        end: The same at the end.

    Returns:
        ``item``, ``note``, ``qid`` (empty), ``queries`` (that change), ``contribution``: means over all queries.

    Example:
        >>> one = lambda value: pd.Series([value], index=["q"])
        >>> move_parts(one(1.0), one(0.75), one(0.0))[["item", "contribution"]].values.tolist()
        [['start to middle', -0.25], ['middle to end', -0.75]]
    """
    moves = {"start to middle": middle - start, "middle to end": end - middle}
    return pd.DataFrame(
        [
            {"item": item, "note": f"over {len(change)} queries", "qid": "", "queries": int((change != 0).sum()),
             "contribution": float(change.mean())}
            for item, change in moves.items()
        ]
    )  # fmt: skip


def answer_thirds(context: Context) -> dict[str, str]:
    """In which third of their passages the answers of a query begin: the mean over its relevant passages.

    Args:
        context: The audit.

    Returns:
        Query to ``'first'``, ``'middle'`` or ``'last'``; without those whose answers, or their passages' texts, are not known.
    """
    answers = provided(context.dataset, "get_answers")
    if answers is None or not len(answers) or getattr(context.dataset, "text_loader", None) is None:
        return {}
    from pyterrier_debias.position.answers import AnswerPositions

    relevant = context.qrels.loc[context.qrels["label"] >= 1, ["qid", "docno"]].drop_duplicates()
    known = with_string_ids(answers).merge(relevant, on=["qid", "docno"])
    known = known[known["qid"].isin(set(context.topics["qid"]))].reset_index(drop=True)
    if not len(known):
        return {}
    places = AnswerPositions()(context.dataset.text_loader()(known))
    places = places[places["matched"].to_numpy(dtype=bool)].sort_values(["qid", "docno", "start", "end"])
    mean = places.drop_duplicates(["qid", "docno"]).groupby("qid")["relative"].mean()
    return {qid: _THIRDS[min(int(3 * place), 2)] for qid, place in mean.items()}


def third_parts(values: pd.Series, thirds: Mapping[str, str]) -> pd.DataFrame:
    """A mean over queries, divided among the queries whose answers begin in the first, middle and last third of their passages.

    Args:
        values: By qid.
        thirds: What :func:`answer_thirds` returned.

    Returns:
        ``item``, ``note``, ``qid`` (empty), ``queries``, ``contribution``: the sum of the group's values over all m queries.

    Example:
        >>> values = pd.Series([-0.4, 0.0, 0.1], index=["1", "2", "3"])
        >>> third_parts(values, {"1": "first", "2": "last"})[["item", "contribution"]].round(3).values.tolist()
        [['answers in the first third', -0.133], ['answers in the last third', 0.0], ['answers not known', 0.033]]
    """
    names = {f"answers in the {third} third": third for third in _THIRDS} | {"answers not known": None}
    rows = []
    for item, wanted in names.items():
        own = values[[thirds.get(qid) == wanted for qid in values.index]]
        if len(own):
            note = f"mean {own.mean():+.3f} over {len(own)} of {len(values)} queries"
            rows.append({"item": item, "note": note, "qid": "", "queries": len(own), "contribution": own.sum() / len(values)})
    return pd.DataFrame(rows, columns=_ITEM)
