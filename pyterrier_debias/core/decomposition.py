"""Where to split a pipeline: after the stage that provides the texts of the candidates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyterrier as pt

from pyterrier_debias.core.naming import is_text_loader
from pyterrier_debias.core.stage import flatten, join, parts_of
from pyterrier_debias.core.terrier import is_reset

_TOPICS = ["qid", "query"]

#: A column that no stage knows. What comes back without it was not made of the frame that was given, such as the columns that
#: some rankers always give to an empty frame.
_MARK = "query_mark"


@dataclass(frozen=True)
class Parts:
    """A pipeline from topics, split into candidates and ranker.

    Attributes:
        candidates: The stages that produce candidates: up to the texts, with the text loaders, cut-offs and resets of the query
            (``pt.rewrite.reset()``) right after.
        ranker: The stages that score texts; none if the pipeline is a retriever, or cannot be split.
        reason: Why changed texts cannot reach the ranker, in one sentence; empty if they can, or if there is no ranker.
    """

    candidates: list[pt.Transformer]
    ranker: list[pt.Transformer]
    reason: str = ""


def take_apart(stages: Sequence[pt.Transformer]) -> Parts:
    """Split a pipeline from topics after its text stage.

    A text stage adds the column ``text`` without scoring the texts: a retriever that returns stored texts, a text loader, a
    fusion of these. A stage that both loads and scores texts (``(loader >> ranker) ** pl2``) is not a text stage; such a pipeline
    is not split.

    Args:
        stages: The stages in order; see :func:`pyterrier_debias.core.stage.flatten`.

    Returns:
        The parts. Without a text stage, all stages belong to the candidates.
    """
    columns: list[str] = _TOPICS
    loader = None
    for position, stage in enumerate(stages):
        outputs = _outputs(stage, columns)
        if outputs is None or "text" in outputs:
            if _scores_inside(stage, columns):
                return Parts(list(stages), [], _inside(stage, columns))
        if outputs is None:
            break
        columns = outputs
        if "text" in outputs:
            behind = behind_text(stages[position + 1 :], columns)
            return Parts([*stages[: position + 1], *behind.candidates], behind.ranker, behind.reason)
        if is_text_loader(stage):
            loader = stage
    return Parts(list(stages), [], "" if loader is None or loader is stages[-1] else _without_text(loader))


def behind_text(stages: Sequence[pt.Transformer], columns: Sequence[str]) -> Parts:
    """Split the stages that follow candidates with texts into those that still belong to the candidates, and the ranker.

    Args:
        stages: The stages in order.
        columns: The columns of the candidates.

    Returns:
        The parts.
    """
    columns, end = list(columns), 0
    while end < len(stages) and _belongs_to_candidates(stages[end], columns):
        columns = _outputs(stages[end], columns) or columns
        end += 1
    ranker = list(stages[end:])
    return Parts(list(stages[:end]), ranker, out_of_reach(ranker, columns))


def out_of_reach(ranker: Sequence[pt.Transformer], columns: Sequence[str]) -> str:
    """Why changed texts under new docnos cannot reach every part of a ranker, judged by what its stages do with empty frames.

    Args:
        ranker: The stages of the ranker.
        columns: The columns of the candidates.

    Returns:
        One sentence; empty if no obstacle was found. Obstacles that only rows can show (a store that looks up docnos) are found
        by :func:`pyterrier_debias.core.counterfactuals.score_arms`.
    """
    for stage, given in _leaves(ranker, list(columns)):
        if _is_function(stage):
            continue
        if _makes_documents(stage, given):
            return (
                f"its ranker holds {_name(stage)}, which scores documents of an index and not changed passages; put "
                f"index-based scores and features before the text loader: retriever >> (a ** b) >> text loader >> ranker"
            )
        if loads_text(stage, given):
            return (
                f"its ranker holds {_name(stage)}, which replaces changed passages by the stored texts; use only one text "
                f"loader, before the first ranker"
            )
    return ""


def text_loader_at_end(pipeline: pt.Transformer) -> pt.Transformer | None:
    """The text loader at the end of a pipeline from topics, after which no stage scores the texts.

    Args:
        pipeline: The pipeline; cut-offs and resets of the query after the loader do not matter.

    Returns:
        The text loader; None if the pipeline does not end in one, as far as empty frames show. A single stage that both loads and
        scores texts is none, nor is a retriever that returns stored texts.
    """
    walked = list(_walk(flatten(pipeline), _TOPICS))
    while walked and (is_reset(walked[-1][0]) or _is_cutoff(walked[-1][0])):
        walked.pop()
    return walked[-1][0] if walked and loads_text(*walked[-1]) else None


def _without_text(loader: pt.Transformer) -> str:
    fields = getattr(loader, "fields", None)
    has = f" (it has {', '.join(map(str, fields))})" if isinstance(fields, (list, tuple)) else ""
    return (
        f"its text loader ({_name(loader)}) adds no column 'text'{has}; load the texts from where they are stored, such as "
        f"dataset.text_loader(), or rename the column that holds them: text loader >> pt.apply.rename({{'body': 'text'}})"
    )


def _inside(stage: pt.Transformer, columns: Sequence[str]) -> str:
    if "docno" not in columns and not parts_of(stage):
        return (
            f"its first stage ({_name(stage)}) both supplies texts and computes features, so changed passages cannot be put in "
            f"between; leave 'text' out of its metadata, and put a text loader after it: retriever >> text loader >> ranker"
        )
    if _name(stage) == "Sum":
        remedy = (
            ": retriever >> text loader >> (ranker * 0.6 + pt.Transformer.identity() * 0.4), where identity() keeps the "
            "retriever's scores"
        )
    else:
        remedy = ", and index-based features before the text loader: retriever >> text loader >> ((ranker ** ...) >> learner)"
    return (
        f"its texts are loaded and scored inside one stage ({_name(stage)}), so changed passages cannot be put in between; "
        f"put the text loader before that stage{remedy}"
    )


def _name(stage: pt.Transformer) -> str:
    return type(stage).__name__


def _outputs(stage: pt.Transformer, columns: Sequence[str]) -> list[str] | None:
    return pt.inspect.transformer_outputs(stage, list(columns), strict=False)


def _walk(stages: Sequence[pt.Transformer], columns: list[str]) -> Iterator[tuple[pt.Transformer, list[str]]]:
    """The stages, and the columns that each is given."""
    for stage in stages:
        yield stage, columns
        columns = _outputs(stage, columns) or columns


def _leaves(stages: Sequence[pt.Transformer], columns: list[str]) -> Iterator[tuple[pt.Transformer, list[str]]]:
    """The stages that ask no others, and the columns that each is given."""
    for stage, given in _walk(stages, columns):
        parts = parts_of(stage)
        if not parts:
            yield stage, given
        for part in parts:
            yield from _leaves(flatten(part), given)


def _scores_inside(stage: pt.Transformer, columns: list[str]) -> bool:
    """Whether texts are loaded inside a stage, together with features or with scores that are made of them."""
    outputs = _outputs(stage, columns)
    if outputs is not None and "text" in outputs:
        if "features" in outputs and "features" not in columns:
            return True
        adds_score = "docno" in columns and "score" in outputs and "score" not in columns
        if adds_score and not _makes_documents(stage, columns):
            return True
    return any(_goes_on(flatten(part), columns) for part in parts_of(stage))


def _goes_on(stages: Sequence[pt.Transformer], columns: list[str]) -> bool:
    """Whether a pipeline loads texts and continues to score."""
    has_text = False
    for stage, given in _walk(stages, columns):
        if has_text and _scores(stage, given):
            return True
        if _scores_inside(stage, given):
            return True
        has_text = has_text or "text" in (_outputs(stage, given) or given)
    return False


def _scores(stage: pt.Transformer, columns: Sequence[str]) -> bool:
    """Whether a stage gives scores or features to documents that have none."""
    bare = [c for c in columns if c not in ("score", "rank", "features")]
    return bool({"score", "features"} & set(_outputs(stage, bare) or ()))


def _belongs_to_candidates(stage: pt.Transformer, columns: Sequence[str]) -> bool:
    """Whether a stage right after the text stage still makes candidates. What a reset gives is the query that probes reword."""
    return is_reset(stage) or _is_cutoff(stage) or loads_text(stage, columns)


def without_cutoff(ranker: pt.Transformer) -> tuple[pt.Transformer, int | None]:
    """A ranker without the cut-offs at its end, so that a probe sees where all documents are ranked.

    Args:
        ranker: A ranker, such as ``scorer % 10``.

    Returns:
        The ranker, and the number of documents per query that it returns with its cut-offs; None if it has none.

    Example:
        >>> scorer = pt.apply.doc_score(lambda row: 1.0)
        >>> ranker, k = without_cutoff(scorer % 10)
        >>> ranker is scorer, k
        (True, 10)
    """
    *stages, last = flatten(ranker)
    if not stages or not isinstance(last, pt.RankCutoff):
        return ranker, None
    whole, k = without_cutoff(join(*stages))
    return whole, last.k if k is None else min(k, last.k)


def _is_cutoff(stage: pt.Transformer) -> bool:
    return all(isinstance(part, pt.RankCutoff) for part in flatten(stage.compile()))


def _makes_documents(stage: pt.Transformer, columns: Sequence[str]) -> bool:
    """Whether a stage makes documents of queries: a retriever, also where it is given documents to score."""
    outputs = _outputs(stage, [*(c for c in columns if c == "qid" or c.startswith("query")), _MARK]) or ()
    return "docno" in outputs and _MARK in outputs


def loads_text(stage: pt.Transformer, columns: Sequence[str]) -> bool:
    """Whether a stage adds texts to documents that have none, without scores.

    Args:
        stage: A transformer.
        columns: The columns of its input.

    Returns:
        Whether it does, judged by its output for empty frames.
    """
    parts = parts_of(stage)
    if parts:
        return len(parts) == 1 and loads_text(parts[0], columns)
    if _is_function(stage):
        return False
    outputs = _outputs(stage, [*(c for c in columns if c not in ("text", "score", "rank", "features")), _MARK]) or ()
    return "text" in outputs and _MARK in outputs and "score" not in outputs


def _is_function(stage: pt.Transformer) -> bool:
    """Whether a stage is a function of ``pt.apply``: empty frames do not tell what it makes of rows."""
    return type(stage).__module__ == "pyterrier.apply_base"
