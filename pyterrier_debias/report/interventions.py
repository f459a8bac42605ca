"""Interventions: change one item, keep everything else, and see how far it moves in the ranking.

For any ranker that maps ``query`` and ``text`` to scores. A passage is changed and ranked among the unchanged others; a
query is reworded, and the new ranks of its relevant passages are found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.bias import p_text, query_count
from pyterrier_debias.core.counterfactuals import Arm, never_moved, ranks_among_others, score_arms
from pyterrier_debias.core.decomposition import out_of_reach
from pyterrier_debias.core.errors import InputError, check_number, kind_of
from pyterrier_debias.core.frames import check_pairs, check_text, pair_numbers, reads_frames, with_grades, with_string_ids
from pyterrier_debias.core.stage import flatten
from pyterrier_debias.core.statistics import correct, inverted_interval, randomisation_test
from pyterrier_debias.core.telling import gathered
from pyterrier_debias.core.terrier import warn_of_expressions
from pyterrier_debias.core.variants import reworded

#: A function from text to text, or a stage that changes the column ``text`` (or ``query``) and keeps the rows.
Change = Callable[[str], str] | pt.Transformer

ITEMS = ["change", "kind", "qid", "docno", "before", "after", "displacement", "score_change"]
TABLE = [
    "change", "kind", "items", "n", "displacement", "low", "high", "p", "p_corrected", "down", "up", "left_top_10",
    "score_change", "unchanged",
]  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class InterventionResult:
    """The result of :func:`intervene`: how far items moved.

    Attributes:
        items: One row per change and item: ``change``, ``kind`` (``passage`` or ``query``), ``qid``, ``docno``, ``before`` and
            ``after`` (ranks from 0), ``displacement`` (after - before: positive is further down), ``score_change``.
        table: One row per change: ``items``, ``n`` queries, the mean ``displacement`` (first over the items of a query, then
            over queries) with its interval ``low`` and ``high`` (the means that the test does not reject; NaN if there are too
            few queries), ``p`` (paired randomisation over queries; NaN if no score changed, because the ranker may never have
            seen the change) and ``p_corrected`` (Holm over changes), the shares of items that moved ``down``, ``up`` or out of
            the first ten (``left_top_10``), the mean ``score_change``, and ``unchanged``: the number of items that the change
            did not alter, which are left out of the rest.
    """

    items: pd.DataFrame
    table: pd.DataFrame

    def __repr__(self) -> str:
        """The displacements in one line."""
        parts = [f"{r['change']} {r['displacement']:+.2f}" for r in self.table.to_dict("records")]
        return f"<InterventionResult: mean displacement {', '.join(parts)}>"

    def __str__(self) -> str:
        """One sentence for each change."""
        return "\n".join(_sentence(row) for row in self.table.to_dict("records"))


def _sentence(row: Mapping[str, Any]) -> str:
    if not row["items"]:
        return f"{row['change']}: no {row['kind']} was changed ({row['unchanged']} items were left unchanged)."
    one = row["items"] == 1
    items, on_average = f"{row['items']} item{'s' * (not one)} of {query_count(row['n'])}", " on average" * (not one)
    moved = "keeps its rank" if one else "keep their ranks on average"
    if row["displacement"]:
        way = "down" if row["displacement"] > 0 else "up"
        moved = f"move{'s' * one} {way} by {abs(row['displacement']):.2f} ranks{on_average}"
    if np.isnan(row["p"]):
        return (
            f"{row['change']}: no score of {items} changed, so nothing is tested. Either the ranker does not read what was "
            f"changed, or the change never reached it (a text loader, a cache keyed by docno)."
        )
    low, high = (-row["high"], -row["low"]) if row["displacement"] < 0 else (row["low"], row["high"])  # "up by" has no sign
    interval = "" if np.isnan(low) else f" [{low:+.2f}, {high:+.2f}]"
    return (
        f"{row['change']}: {items} {moved}{interval}; {row['down']:.0%} move down, {row['up']:.0%} up (p = {p_text(row['p'])}, "
        f"corrected {p_text(row['p_corrected'])})."
    )


@reads_frames
@gathered()
def intervene(
    ranker: pt.Transformer,
    candidates: pd.DataFrame,
    *,
    passages: Mapping[str, Change] | None = None,
    queries: Mapping[str, Change] | None = None,
    items: pd.DataFrame | None = None,
    resamples: int = 9_999,
    level: float = 0.95,
    seed: int = 0,
) -> InterventionResult:
    """Change one passage or query at a time, and measure how many ranks the items move.

    A changed passage gets its score in a list in which all passages are changed, and this score ranks it among the unchanged
    others. That is right for rankers that score each pair separately. For rankers that look at whole lists use
    :class:`~pyterrier_debias.PositionSensitivity`, which detects this and changes one passage at a time. Each changed list has a
    query and documents with identifiers of their own, so that no cache can hide the change.

    Args:
        ranker: A black box that reads ``qid``, ``query``, ``docno`` and ``text`` and returns ``score``.
        candidates: The documents that it ranks.
        passages: The changes of passages, by name. A change is a stage, such as ``{'rotated': RotatePassages(seed=1)}`` or one
            that swaps gendered words, or a function from a text to a text.
        queries: The changes of queries, by name: stages, such as ``{'keywords': RewriteQueries('keywords')}``, or functions.
        items: The pairs ``qid``, ``docno`` to examine: judgements (only labels of 1 or more count) or any frame. None examines
            all candidates; over a whole list, displacements under a change of the query sum to 0.
        resamples: The number of sign patterns of the test, which also give the interval; see
            :func:`~pyterrier_debias.core.statistics.inverted_interval`.
        level: Coverage of intervals.
        seed: Seed of the sign patterns.

    Returns:
        The items, and the table with paired tests.

    Raises:
        InputError: If candidates have no text, a pair is repeated, a change returns anything but texts for the same rows, there
            is no change, or the ranker returns other rows than it was given.

    Example:
        >>> candidates = pd.DataFrame({"qid": "q1", "query": "tea", "docno": ["d1", "d2"], "text": ["tea and rain", "old boats"]})
        >>> early = pt.apply.doc_score(lambda row: -float((row["text"] + " tea").split().index("tea")))
        >>> turned = {"reversed": lambda text: " ".join(reversed(text.split()))}
        >>> intervene(early, candidates, passages=turned).items[["docno", "before", "after"]].values.tolist()
        [['d1', 0, 1], ['d2', 1, 1]]

    When not to use it: as a measure of quality. An item may well deserve to move; the question is whether this change should
    move it.
    """
    passages, queries = dict(passages or {}), dict(queries or {})
    check_number("intervene", "resamples", resamples, least=1, whole=True)
    check_number("intervene", "level", level, above=0, most=0.9999)
    twice = set(passages) & set(queries)
    if not passages and not queries:
        raise InputError("intervene: there is no change; give passages={name: change} or queries={name: change}")
    if twice:
        raise InputError(f"intervene: {sorted(twice)[0]!r} is a change of passages and of queries; rename one")
    pt.validate.columns(candidates, includes=["qid", "query", "docno", "text"], context="intervene")  # type: ignore[arg-type]  # printed only
    for name in ("query", "text"):
        check_text(candidates, name, "intervene")
    candidates = candidates.reset_index(drop=True)
    check_pairs(candidates, "intervene")
    reason = out_of_reach(flatten(ranker), list(candidates.columns)) if len(candidates) else ""
    if reason:
        raise InputError(f"intervene: changes cannot reach the ranker: {reason}")
    warn_of_expressions(candidates["query"] if queries else (), "intervene")
    wanted = _wanted(candidates, items)
    new_texts = {name: _changed(change, candidates, "text", name) for name, change in passages.items()}
    new_queries = {name: _changed(change, candidates, "query", name) for name, change in queries.items()}
    frames, unchanged, still = [], {}, set()
    if len(candidates):
        rows = np.arange(len(candidates))
        texts = candidates["text"].tolist()
        # Arms are numbered, because a user may give a change any name, even that of the reference.
        arms = [Arm("original", 0, rows, texts, None)]
        arms += [Arm(f"i{number}", 0, rows, new, f"i{number}") for number, new in enumerate(new_texts.values())]
        scored = score_arms(candidates, arms, ranker, text_field="text", name="intervene")
        original = scored[scored["arm"] == "original"]
        _check_whole(original, candidates, "")
        for number, (name, new) in enumerate(new_texts.items()):
            moved = wanted & (np.array(new, dtype=object) != np.array(texts, dtype=object))
            unchanged[name] = int((wanted & ~moved).sum())
            after = scored[scored["arm"] == f"i{number}"]
            _check_whole(after, candidates, f" after the change {name!r}")
            still |= {name} if never_moved(original, after) else set()
            own = candidates.loc[moved, ["qid", "docno"]].merge(after, on=["qid", "docno"])
            frames.append(_among_others(own, original).assign(change=name, kind="passage"))
        for number, (name, new) in enumerate(new_queries.items()):
            moved = wanted & (np.array(new, dtype=object) != candidates["query"].to_numpy(dtype=object))
            unchanged[name] = int((wanted & ~moved).sum())
            asked = reworded(candidates, new, keep=False)
            after = score_arms(asked, [Arm(name, 0, rows, texts, f"q{number}")], ranker, text_field="text", name="intervene")
            _check_whole(after, candidates, f" after the change {name!r}")
            still |= {name} if never_moved(original, after) else set()
            own = candidates.loc[moved, ["qid", "docno"]]
            frames.append(_in_new_order(own, original, after).assign(change=name, kind="query"))
    kinds = {**dict.fromkeys(passages, "passage"), **dict.fromkeys(queries, "query")}
    found = pd.concat(frames, ignore_index=True)[ITEMS] if frames else pd.DataFrame(columns=ITEMS)
    summaries = []
    for name, kind in kinds.items():
        own = found[found["change"] == name]
        row = _summary(own, name, kind, unchanged.get(name, 0), resamples=resamples, level=level, seed=seed)
        summaries.append(row | {"p": float("nan")} if name in still else row)
    table = pd.DataFrame(summaries, columns=TABLE)
    table["p_corrected"] = correct(table["p"].to_numpy(dtype=float))
    return InterventionResult(found, table)


def _wanted(candidates: pd.DataFrame, items: pd.DataFrame | None) -> np.ndarray:
    if items is None:
        return np.ones(len(candidates), dtype=bool)
    pt.validate.columns(items, includes=["qid", "docno"], context="intervene")  # type: ignore[arg-type]  # printed only
    if "label" in items.columns:
        items = items[with_grades(items, "intervene")["label"] >= 1]
    given, wanted = pair_numbers(candidates, items)
    return np.isin(given, wanted)


def _check_whole(scored: pd.DataFrame, candidates: pd.DataFrame, when: str) -> None:
    if len(scored) < len(candidates):
        count = len(candidates) - len(scored)
        raise InputError(
            f"intervene: the ranker left out {count} of {len(candidates)} candidates{when}, so they have no rank; "
            f"give no more candidates than it ranks, or a ranker that returns all of them"
        )


def _changed(change: Any, candidates: pd.DataFrame, column: str, name: str) -> list[str]:
    """The new texts or queries, row by row."""
    if len(candidates) == 0:
        return []
    old = candidates[column].tolist()
    if isinstance(change, pt.Transformer):
        made = with_string_ids(change(candidates), "intervene, change")
        if column not in made.columns or len(made) != len(candidates):
            told = f"returned {len(made)} rows for {len(candidates)}, or no column {column!r}; return all rows and that column"
            raise InputError(f"intervene: change {name!r} {told}")
        keys = candidates[["qid", "docno"]].merge(made[["qid", "docno", column]], on=["qid", "docno"], how="left")
        new = keys[column].tolist()
    elif callable(change):
        by_text = {text: change(text) for text in dict.fromkeys(old)}
        new = [by_text[text] for text in old]
    else:
        raise InputError(f"intervene: change {name!r} is {kind_of(change)}; give a function from text to text, or a stage")
    bad = next((kind_of(value) for value in new if not isinstance(value, str)), None)
    if bad is not None:
        raise InputError(f"intervene: change {name!r} returned {bad} as {column!r}; it must return text")
    return new


def _among_others(changed: pd.DataFrame, original: pd.DataFrame) -> pd.DataFrame:
    """Ranks of changed passages among the unchanged others."""
    known = original[["qid", "docno", "score", "rank"]]
    both = changed[["qid", "docno", "score"]].merge(known, on=["qid", "docno"], suffixes=("", "_0"))
    return _items(both.assign(after=ranks_among_others(both, original)))


def _in_new_order(pairs: pd.DataFrame, original: pd.DataFrame, reworded: pd.DataFrame) -> pd.DataFrame:
    """Ranks of items in the lists of the reworded queries."""
    both = pairs.merge(reworded[["qid", "docno", "score", "rank"]].rename(columns={"rank": "after"}), on=["qid", "docno"])
    return _items(both.merge(original[["qid", "docno", "score", "rank"]], on=["qid", "docno"], suffixes=("", "_0")))


def _items(both: pd.DataFrame) -> pd.DataFrame:
    before, after = both["rank"].astype(int), both["after"].astype(int)
    frame = both[["qid", "docno"]].assign(before=before, after=after, displacement=after - before)
    return frame.assign(score_change=both["score"] - both["score_0"])


def _summary(
    own: pd.DataFrame, name: str, kind: str, unchanged: int, *, resamples: int, level: float, seed: int
) -> dict[str, Any]:
    row = {**dict.fromkeys(TABLE, float("nan")), "change": name, "kind": kind, "items": len(own), "n": 0, "unchanged": unchanged}
    if own.empty:
        return row
    means = own.groupby("qid")[["before", "after", "score_change"]].mean()
    before, after = means["before"].to_numpy(), means["after"].to_numpy()
    interval = inverted_interval(after - before, level=level, resamples=resamples, seed=seed)
    return row | {
        "n": len(means),
        "displacement": interval.estimate,
        "low": interval.low,
        "high": interval.high,
        "p": randomisation_test(before, after, resamples=resamples, seed=seed).p,
        "down": float((own["displacement"] > 0).mean()),
        "up": float((own["displacement"] < 0).mean()),
        "left_top_10": float(((own["before"] < 10) & (own["after"] >= 10)).mean()),
        "score_change": float(means["score_change"].mean()),
    }
