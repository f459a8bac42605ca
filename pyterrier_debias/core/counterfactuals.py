"""Score lists of changed texts with a black-box ranker: one pass over all variants, mapped back to the original names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from numbers import Number
from typing import Any, cast

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.caches import VARIANT, is_dense, marked
from pyterrier_debias.core.errors import InputError, one_line
from pyterrier_debias.core.frames import check_scores, ranked, stage_name
from pyterrier_debias.core.naming import system_name
from pyterrier_debias.core.pieces import no_query_is_cut
from pyterrier_debias.core.stage import Stage, all_stages, scores_rows
from pyterrier_debias.core.systems import BrokenSystemError, check_run
from pyterrier_debias.core.text import keyed_mark
from pyterrier_debias.core.variants import OF_ANOTHER_INDEX, VARIANT_MARK, document_of, variant_docno

#: Columns for the list that a row belongs to, and its position there.
COLUMNS = ["qid", "docno", "arm", "draw", "score", "rank"]

#: Changes of a score (as a share of the range of its list) above this are more than rounding in half precision.
TOLERANCE = 0.01

#: Changes above this are more than the rounding of sums in single precision, which depend on the batch.
_ROUNDING = 1e-6

#: Length of a variant's docno: PyTerrier's indexes in memory keep 20 characters, and a passage's number needs some.
_LONGEST = 14

#: The unchanged lists that are scored under names of variants: the name of their arm, and the number of queries.
_RENAMED, _RENAMED_QUERIES = "renamed", 3

#: The variant of unchanged texts.
_SAME = "same"


@dataclass(frozen=True)
class Arm:
    """One variant of the candidates' lists.

    Attributes:
        name: The name of the variant, such as ``'rotated'``.
        draw: The number of the draw, from 0.
        rows: Positions of the candidates that are in these lists.
        texts: Their texts in this variant.
        variant: The suffix of the variant's names for the ranker; None for the original, which keeps its names.
    """

    name: str
    draw: int
    rows: np.ndarray
    texts: Sequence[str]
    variant: str | None


class Variants:
    """A store of changed texts and their names, made once for all lists and systems with the same documents.

    Args:
        limit: The largest number to keep (200,000 passages take about 100 MB); those beyond it are made again.

    Example:
        >>> variants, asked = Variants(), []
        >>> def louder(docno, text):
        ...     asked.append(docno)
        ...     return text.upper()
        >>> variants.made("louder", [("d1", "tea"), ("d2", "oolong"), ("d1", "tea")], louder)
        ['TEA', 'OOLONG', 'TEA']
        >>> variants.made("louder", [("d2", "oolong")], louder), asked
        (['OOLONG'], ['d1', 'd2'])
    """

    def __init__(self, limit: int = 200_000):
        self._room = limit
        self._kept: dict[Any, dict[tuple[str, ...], str]] = {}

    def made(self, what: Hashable, keys: Sequence[tuple[str, ...]], make: Callable[..., str]) -> list[str]:
        """Make a text or name for each key, or return the stored one.

        Args:
            what: The name of the change; with the key it determines the result.
            keys: n keys of names and texts, which may be repeated.
            make: A function that makes the result from the parts of a key; not called if the result is known.

        Returns:
            n texts or names.
        """
        kept = self._kept.setdefault(what, {})
        found = list(map(kept.get, keys))
        lacking = dict.fromkeys(key for key, one in zip(keys, found) if one is None)
        if lacking:
            new = {key: make(*key) for key in lacking}
            found = [new[key] if one is None else one for key, one in zip(keys, found)]
            some = dict(islice(new.items(), self._room))
            self._room -= len(some)
            kept |= some
        return cast(list[str], found)


def score_arms(
    candidates: pd.DataFrame,
    arms: Sequence[Arm],
    ranker: pt.Transformer,
    *,
    text_field: str,
    name: str,
    variants: Variants | None = None,
) -> pd.DataFrame:
    """Score several variants of lists in one call of the ranker.

    For the ranker each variant of a list is a separate query (``q1%r0``, in the words of ``q1``) over separate documents
    (``d7%r0-1c9ff02e``, the last part a hash of the text): rankers that read whole lists, cut them or scale their scores see
    one list at a time as they would without the probe, and no cache confuses two texts, not even one that is kept after a
    change of seed. All variants of a document are adjacent. Names have at most 20 characters, and those of documents
    leave room for a passage's number (``%p12``); longer ones are replaced by hashes.

    Nothing identifies the original of a variant: columns that a stage may have looked up for the document (``docid``,
    vectors, tokens) are left out, also in the original lists. In addition, a few unchanged lists are scored under other names:
    a ranker that gives them different scores looks up documents or queries by name, so the probe would measure the look-up.

    Args:
        candidates: Result frame with ``qid``, ``docno``, ``query`` and the text.
        arms: The variants.
        ranker: A transformer that scores frames with ``query`` and text.
        text_field: The column that holds the text.
        name: The system's name, for messages.
        variants: The store of names from earlier calls; None stores none.

    Returns:
        Frame ``qid, docno, arm, draw, score, rank`` under the original names. Rows that the ranker left out are missing.

    Raises:
        InputError: If the ranker returns no rows or no scores, returns documents that it was not given, needs a column that is
            left out, gives an unchanged text a different score under other names, or raises an error about a new name.
    """
    left_out = [column for column in candidates.columns if _leads_back(column, candidates[column])]
    candidates = candidates.drop(columns=left_out)
    scored_as = partial(_scored, candidates, ranker, text_field, name, left_out, Variants() if variants is None else variants)
    original = next((arm for arm in arms if arm.variant is None), None)
    if original is None:
        return scored_as(arms)
    qids = candidates["qid"].iloc[original.rows].unique()
    qids = [qids[n] for n in np.unique(np.linspace(0, len(qids) - 1, min(_RENAMED_QUERIES, len(qids))).astype(int))]
    rows = original.rows[candidates["qid"].iloc[original.rows].isin(qids).to_numpy()]
    renamed = Arm(_RENAMED, 0, rows, candidates[text_field].iloc[rows].tolist(), _SAME)
    scored = scored_as([*arms, renamed])
    known = scored[(scored["arm"] == original.name) & scored["qid"].isin(qids)]
    other = scored[scored["arm"] == _RENAMED]
    if _differ(known, other):

        def alone(variant: str | None) -> pd.DataFrame:
            return scored_as([Arm("alone", 0, rows, renamed.texts, variant)])

        # Other scores mean nothing for a ranker that never gives the same scores twice, nor for one whose scores depend on what
        # shares their batch: where these lists are all that it is given, their names make no difference to it.
        again = alone(None)
        if (other.empty or _differ(again, alone(renamed.variant))) and not _differ(again, alone(None)):
            raise InputError(
                f"ranker of {name!r} gives the same texts different scores under another qid and other docnos (first "
                f"qid={qids[0]!r}, docno={_own_docno(candidates['docno'].iloc[rows])!r}): {_why_names_matter(ranker)}"
            )
    return scored[scored["arm"] != _RENAMED].reset_index(drop=True)


def _own_docno(docnos: pd.Series) -> str:
    """The first docno that no probe has made, where there is one."""
    return next((docno for docno in docnos if VARIANT_MARK not in docno), docnos.iloc[0])


def _why_names_matter(ranker: pt.Transformer) -> str:
    """Why a ranker's scores depend on names, and what to do about it: a stage that draws by docno, or else a look-up."""
    for stage in all_stages(ranker):
        drawn = stage.by_docno() if isinstance(stage, Stage) else None
        if drawn is not None:
            return (
                f"its stage {type(stage).__name__} {drawn[0]}, so it treats a document differently when a probe renames it; "
                f"audit the pipeline without this stage, or {drawn[1]}"
            )
    return (
        "it looks up documents by docno, or queries by qid, in an index or a store without the changed ones; put stages that "
        "look up documents or queries before the text loader"
    )


def _cause(error: Exception) -> BaseException:
    """The error that a system raised."""
    return error.__cause__ if isinstance(error, BrokenSystemError) and error.__cause__ is not None else error


def _about_renamed(error: Exception, given: pd.DataFrame, candidates: pd.DataFrame) -> str:
    """An error in one line if its text holds a docno or qid that only the probe uses; otherwise empty."""
    text = str(_cause(error))
    if not any(name in text for column in ("docno", "qid") for name in set(given[column]) - set(candidates[column])):
        return ""
    return str(error.args[1]) if isinstance(error, BrokenSystemError) else one_line(error)


def _differ(before: pd.DataFrame, after: pd.DataFrame) -> bool:
    """Whether a document has another score, or is in one of two rankings only."""
    changes = score_changes(before, after)
    return len(changes) < max(len(before), len(after)) or bool((changes["change"] > TOLERANCE).any())


def _leads_back(column: str, values: pd.Series) -> bool:
    """Whether a column was looked up or computed for the original document: a docid, vectors, tokens.

    Texts and numbers stay, so do features, and what belongs to the query.
    """
    if column in OF_ANOTHER_INDEX:
        return True
    if column == "features" or column.startswith("query") or not pd.api.types.is_object_dtype(values):
        return False
    return not all(value is None or isinstance(value, (str, Number)) for value in values)


def _scored(
    candidates: pd.DataFrame,
    ranker: pt.Transformer,
    text_field: str,
    name: str,
    left_out: Sequence[str],
    variants: Variants,
    arms: Sequence[Arm],
) -> pd.DataFrame:
    """The ranker's results for the arms, under the original names."""
    parts = []
    for number, arm in enumerate(arms):
        part = candidates.iloc[arm.rows]
        key = pd.DataFrame({"original_qid": part["qid"].array, "original_docno": part["docno"].array, "arm": number})
        # As objects: what lists have in common is not copied.
        part = part.assign(**{text_field: pd.Series(list(arm.texts), index=part.index, dtype=object)})
        if arm.variant is not None:
            names = _names(part["docno"].tolist(), arm, variants)
            part = part.assign(qid=_renamed(part["qid"].tolist(), arm.variant), docno=names)
            if VARIANT in part.columns:  # what was changed before has other names here, too
                part = marked(part, text_field)
        parts.append((part, key))
    side_by_side = np.argsort(np.concatenate([arm.rows for arm in arms]), kind="stable")
    given = pd.concat([part for part, _ in parts], ignore_index=True).iloc[side_by_side].reset_index(drop=True)
    keys = pd.concat([key for _, key in parts], ignore_index=True).iloc[side_by_side].reset_index(drop=True)
    keys = keys.assign(qid=given["qid"], docno=given["docno"])

    try:
        results = ranker(given)
    except Exception as error:
        if isinstance(_cause(error), AssertionError) and any(map(is_dense, all_stages(ranker))):
            raise InputError(
                f"ranker of {name!r} cannot be probed: a DenseScorerCache stores scores only for the docnos of its collection, "
                f"and a probe gives changed texts docnos of their own; audit the ranker inside it, or use ScorerCache"
            ) from error
        missing = next((column for column in left_out if _is_about(error, column)), None)
        if missing is None and isinstance(error, InputError) and any(repr(d) in str(error) for d in set(given["docno"])):
            raise InputError(f"ranker of {name!r}, given changed texts under new docnos: {error}") from error
        if missing is None:
            renamed = "" if isinstance(error, InputError) else _about_renamed(error, given, candidates)
            if not renamed:
                raise
            raise InputError(
                f"ranker of {name!r}, given documents under new docnos, raised {renamed}: a probe renames documents and queries, "
                f"so a ranker that looks them up by docno or qid cannot be probed; put stages that look up documents before the "
                f"text loader"
            ) from error
        raise InputError(
            f"ranker of {name!r} needs the column {missing!r}, which belongs to the original document, so a probe leaves it out; "
            f"put the stage that makes it from the text after the text loader, as part of the ranker"
        ) from error
    scored = check_run(results, name)[["qid", "docno", "score"]]
    scored = scored.merge(keys, on=["qid", "docno"], how="left")
    unknown = scored["arm"].isna().to_numpy()
    if unknown.any():
        row = scored[unknown].iloc[0]
        if set(scored.loc[unknown, "docno"]) <= {document_of(docno) for docno in given["docno"]}:
            raise InputError(
                f"ranker of {name!r} returns documents for passages (such as docno={row['docno']!r}), as with "
                f"pt.text.max_passage() at its end; a probe needs a ranker that returns what it was given: leave that stage out "
                f"and use judgements of passages, or retrieve documents and cut them after the text loader: retriever >> text "
                f"loader >> pt.text.sliding(...) >> ranker >> pt.text.max_passage()"
            )
        raise InputError(
            f"ranker of {name!r} returned {int(unknown.sum())} pairs that it was not given, first qid={row['qid']!r}, "
            f"docno={row['docno']!r}; a probe needs a ranker that only orders its input (a retriever goes before the text loader)"
        )
    # Ranks are given under the original docnos, so that ties are broken alike in every variant.
    scored = ranked(scored.drop(columns="docno").rename(columns={"original_docno": "docno"}), name)
    number = scored["arm"].astype(int)
    return pd.DataFrame(
        {
            "qid": scored["original_qid"],
            "docno": scored["docno"],
            "arm": pd.array([arm.name for arm in arms], dtype="str").take(number.to_numpy()),
            "draw": np.array([arm.draw for arm in arms])[number.to_numpy()],
            "score": scored["score"],
            "rank": scored["rank"],
        }
    )


def _renamed(qids: list[str], variant: str) -> list[str]:
    """The names of queries in a variant, each made once."""
    names = {qid: variant_docno(qid, variant) for qid in set(qids)}
    return [names[qid] for qid in qids]


def _names(docnos: list[str], arm: Arm, variants: Variants) -> list[str]:
    """The names of documents in a variant, each made once however many lists have the document.

    Those of unchanged texts have the order of the documents' own names, so that a ranker breaks ties alike.
    """
    if arm.variant == _SAME:
        place = {docno: number for number, docno in enumerate(sorted(set(docnos)))}
        return [f"{VARIANT_MARK}{place[docno]:04x}{keyed_mark(0, text)}" for docno, text in zip(docnos, arm.texts)]

    def named(docno: str, text: str) -> str:
        return variant_docno(docno, f"{arm.variant}-{keyed_mark(0, text)}", longest=_LONGEST)

    return variants.made(("name", arm.variant), list(zip(docnos, arm.texts)), named)


def _is_about(error: Exception, column: str) -> bool:
    """Whether something was raised because a column is missing."""
    if isinstance(error, pt.validate.InputValidationError):
        return any(column in mode.missing_columns for mode in error.modes)
    return repr(column) in str(error)


def score_changes(before: pd.DataFrame, after: pd.DataFrame) -> pd.DataFrame:
    """The changes of the scores of the same documents between two rankings.

    Args:
        before: Frame ``qid, docno, score``, whole lists.
        after: Frame ``qid, docno, score`` for some of their documents.

    Returns:
        Frame ``qid, docno, change``, one row per document in both: the absolute change as a share of the range of the list's
        finite scores before; infinite if one of the two scores is. Changes within the rounding of a single number are 0.

    Example:
        >>> before = pd.DataFrame({"qid": "q1", "docno": ["d1", "d2", "d3"], "score": [3.0, 2.0, 1.0]})
        >>> score_changes(before, before[:2].assign(score=2.5))["change"].tolist()
        [0.25, 0.25]
    """
    both = before.merge(after[["qid", "docno", "score"]], on=["qid", "docno"], suffixes=("", "_after"))
    # Some rankers give -inf to what they do not score; the range of such a list would be infinite, and every change of it 0.
    finite = before["score"].where(np.isfinite(before["score"].to_numpy(dtype=float))).groupby(before["qid"])
    spread = (finite.max() - finite.min()).fillna(0.0).reindex(both["qid"]).to_numpy(dtype=float)
    old, new = both["score"].to_numpy(dtype=float), both["score_after"].to_numpy(dtype=float)
    with np.errstate(invalid="ignore"):  # inf - inf
        change = np.abs(new - old)
    rounding = _ROUNDING * np.maximum(np.abs(old), np.abs(new))
    alike = (old == new) | (np.isfinite(change) & (change <= rounding))
    return both[["qid", "docno"]].assign(change=np.where(alike, 0.0, change / np.maximum(spread, 1e-12)))


def never_moved(original: pd.DataFrame, variants: pd.DataFrame) -> bool:
    """Whether no score and no list of any variant differs from the original's.

    Args:
        original: Frame ``qid, docno, score`` of the original lists.
        variants: Frame ``qid, docno, arm, draw, score`` of variants of these lists, or of some of them.

    Returns:
        True if they are equal up to rounding; False if there are no variants.
    """
    if variants.empty:
        return False
    sizes = original.groupby("qid").size()
    for _, variant in variants.groupby(["arm", "draw"], sort=False):
        changes = score_changes(original, variant)
        if len(changes) < len(variant) or len(variant) < sizes.reindex(variant["qid"].unique()).sum() or changes["change"].any():
            return False
    return True


def ranks_among_others(changed: pd.DataFrame, original: pd.DataFrame) -> np.ndarray:
    """The rank, from 0, of each changed document among the unchanged others of its list; ties by descending docno as elsewhere.

    Args:
        changed: Frame ``qid, docno, score`` of n documents: their scores in the variant.
        original: Frame ``qid, docno, score`` of all lists as they were.

    Returns:
        Shape [n]: how many of the others are ahead of each.

    Example:
        >>> original = pd.DataFrame({"qid": "q1", "docno": ["d0", "d1", "d2", "d3"], "score": [3.0, 9.0, 2.0, 1.0]})
        >>> ranks_among_others(pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "score": [2.0]}), original).tolist()
        [2]
    """
    lists = {q: (g["score"].to_numpy(), g["docno"].to_numpy(dtype=object)) for q, g in original.groupby("qid", sort=False)}
    ranks = []
    for qid, docno, score in zip(changed["qid"], changed["docno"], changed["score"]):
        scores, docnos = lists[qid]
        before = (scores > score) | ((scores == score) & (docnos > docno))
        ranks.append(int((before & (docnos != docno)).sum()))
    return np.array(ranks, dtype=int)


def scores_by(scorer: pt.Transformer, frame: pd.DataFrame, stage: Any) -> np.ndarray:
    """A ranker's scores for the rows of a frame, in the order of the rows.

    Args:
        scorer: Any transformer from result frames to result frames.
        frame: Rows with distinct pairs of ``qid`` and ``docno``, and the columns that the scorer reads.
        stage: The calling stage, which messages name.

    Returns:
        float64, one score per row.

    Raises:
        InputError: If the scorer leaves rows out, repeats them, or returns anything but numbers.
    """
    name = stage_name(stage)
    with no_query_is_cut() if scores_rows(scorer) else nullcontext():  # its ranks are not looked at
        out: pd.DataFrame = scorer(frame.copy(deep=False))  # into which it may write
    if len(frame) == 0:
        return np.empty(0)
    missing = [column for column in ("qid", "docno", "score") if column not in out.columns]
    if missing:
        raise InputError(f"{name}: {system_name(scorer)} returns no column '{missing[0]}'; give a ranker of result frames")
    check_scores(out, name)
    repeated = out.duplicated(["qid", "docno"])
    if repeated.any():  # not of the frame that was given
        row = out[repeated].iloc[0]
        raise InputError(
            f"{name}: {system_name(scorer)} returns {len(out)} rows for {int((~repeated).sum())} pairs of qid and docno "
            f"(several for qid={row['qid']!r}, docno={row['docno']!r}); give a ranker, which scores each row once, not a "
            f"retriever"
        )
    keys = [(str(qid), str(docno)) for qid, docno in zip(frame["qid"], frame["docno"])]
    found = dict(zip(zip(out["qid"].astype(str), out["docno"].astype(str)), out["score"].astype("float64")))
    absent = [key for key in keys if key not in found]
    if absent:
        raise InputError(
            f"{name}: {system_name(scorer)} leaves out {len(absent)} of {len(keys)} rows, e.g. qid={absent[0][0]!r}, "
            f"docno={absent[0][1]!r}; give a scorer without a cut-off"
        )
    return np.array([found[key] for key in keys], dtype=np.float64)
