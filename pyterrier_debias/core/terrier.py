"""Particularities of pipelines over Terrier: its query language, its properties.

PyTerrier passes a query to Terrier's parser unchanged, where a colon names a field (and fails for the whole frame without such a
field), ``^2`` is a weight, ``end:3`` a setting. Queries with certain characters are split into words first. A question mark
therefore determines the parser of a query, and with it the meaning of other characters. Nothing here starts Java.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeGuard

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.frames import stage_name
from pyterrier_debias.core.stage import flatten, join, named_parts, parts_of, same_value
from pyterrier_debias.core.text import digest
from pyterrier_debias.core.variants import earlier_queries

#: What stages that rewrite for Terrier leave in ``query``: RM3 and Bo1 weights, SDM operators, ``tokenise(matchop=True)`` codes.
_EXPRESSION = re.compile(r"applypipeline:|#(combine|uw\d|band|syn|prefix|tag|base64|\d+)[:(\[]|\S\^\d*\.\d")


def is_expression(query: Any) -> bool:
    """Whether a query is an expression that a stage wrote for Terrier, rather than words that people and neural rankers read.

    Args:
        query: A query.

    Returns:
        A guess.

    Example:
        >>> is_expression("applypipeline:off littl^0.036 cat^0.5"), is_expression("what is 2^8?")
        (True, False)
    """
    return isinstance(query, str) and _EXPRESSION.search(query) is not None


def as_asked(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame with its queries in words: an expression is replaced with the query that it was made from, if the frame has it.

    Args:
        frame: A frame with ``query``, and earlier queries in ``query_0`` and so on.

    Returns:
        The same frame if no query is an expression, otherwise a copy.

    Example:
        >>> as_asked(pd.DataFrame({"query": ["applypipeline:off littl^0.03"], "query_0": ["a little"]}))["query"].tolist()
        ['a little']
    """
    queries, number = frame["query"], 0
    while queries.map(is_expression).any() and f"query_{number}" in frame.columns:
        queries = queries.where(~queries.map(is_expression).astype(bool), frame[f"query_{number}"])
        number += 1
    return frame if number == 0 else frame.assign(query=queries)


def warn_of_expressions(queries: Iterable[Any], stage: Any) -> None:
    """Warn if a stage that reads the words of queries is given expressions for Terrier.

    Args:
        queries: The queries.
        stage: The calling stage, which the message names.
    """
    written = next((query for query in queries if is_expression(query)), None)
    if written is not None:
        warnings.warn(
            f"{stage_name(stage)}: the query is an expression for Terrier ({written[:60]!r}); put pt.rewrite.reset() before this "
            f"stage, once for each rewriting",
            stacklevel=3,
        )


def is_terrier(stage: Any) -> bool:
    """Whether a stage is one of PyTerrier's own stages over Terrier: a retriever, a rewriter, a text loader.

    Args:
        stage: Any stage.

    Returns:
        True if its class, or a base class, is in ``pyterrier.terrier``.
    """
    return any(kind.__module__.split(".")[:2] == ["pyterrier", "terrier"] for kind in type(stage).__mro__)


def is_retriever(stage: Any) -> TypeGuard[pt.terrier.Retriever]:
    """Whether a stage is Terrier's retriever, or one made from it."""
    return isinstance(stage, pt.terrier.Retriever)


def is_reset(stage: Any) -> bool:
    """Whether a stage is ``pt.rewrite.reset()``."""
    return is_terrier(stage) and type(stage).__name__ == "ResetQuery"


def nested(pipeline: pt.Transformer) -> Iterator[pt.Transformer]:
    """All stages of a pipeline and the stages inside them, outer ones first.

    Args:
        pipeline: Any pipeline.

    Yields:
        Each stage.
    """
    yield pipeline
    for part in parts_of(pipeline):
        yield from nested(part)


def _only_terrier(stage: pt.Transformer) -> bool:
    """Whether a stage asks nothing but Terrier: one of its stages, a cut-off or a factor, an operator or a cache over such."""
    if is_terrier(stage):
        return True
    parts = parts_of(stage)
    return all(map(_only_terrier, parts)) if parts else type(stage).__module__ == pt.RankCutoff.__module__


def _reads_queries(stage: Any) -> bool:
    """Whether a stage hands queries to Terrier's parser, as its text loaders and ``reset()`` do not."""
    return is_terrier(stage) and not is_reset(stage) and not type(stage).__module__.endswith("._text_loader")


def tokenising(pipeline: pt.Transformer) -> pt.Transformer:
    """A pipeline in which Terrier gets the words of each query instead of its original text.

    The same parser then reads every query, whatever characters it contains, even if Terrier scores documents after other stages.
    Those stages get the original query. Queries that are rewritten before Terrier (by ``pt.rewrite.tokenise()``, or the user's
    own stage) are not changed.

    Args:
        pipeline: Any pipeline.

    Returns:
        The pipeline; the same object if no unchanged query reaches Terrier.
    """
    stages, number = flatten(pipeline), 0
    made: list[pt.Transformer] = []
    while number < len(stages):
        if _only_terrier(stages[number]):
            end = next((n for n in range(number, len(stages)) if not _only_terrier(stages[n])), len(stages))
            asks = join(*stages[number:end])
            reads = any(map(_reads_queries, nested(asks)))
            made += [Tokenised(asks, first=number == 0)] if reads else stages[number:end]
            number = end
        elif _may_rewrite(stages[number]):
            break
        else:
            made.append(_around(stages[number]))
            number += 1
    made += stages[number:]
    return pipeline if all(new is old for new, old in zip(made, stages)) else join(*made)


def _around(stage: pt.Transformer) -> pt.Transformer:
    """A stage around others, such as an operator, with these tokenised."""
    parts = named_parts(stage)
    changed = {
        name: [tokenising(one) for one in part] if isinstance(part, (list, tuple)) else tokenising(part)
        for name, part in parts.items()
    }
    if all(same_value(changed[name], list(part) if isinstance(part, tuple) else part) for name, part in parts.items()):
        return stage
    try:
        return pt.inspect.transformer_apply_attributes(stage, **changed)
    except pt.inspect.InspectError:  # it cannot be rebuilt around other parts
        return stage


def _may_rewrite(stage: pt.Transformer) -> bool:
    """Whether a stage that is not Terrier's changes queries, or may: it keeps earlier ones, or is a function of whole frames."""
    columns = ["qid", "query", "docno", "score", "rank", "text"]
    kind = type(stage)
    if kind.__module__ == "pyterrier.apply_base" and "Generic" in kind.__name__:
        return True
    return "query_0" in (pt.inspect.transformer_outputs(stage, columns, strict=False) or ())


class Tokenised(pt.Transformer):
    """Stages over Terrier that get the words of each query; their results have the original query.

    A query without words has no results. Frames with ``query_toks``, which Terrier reads instead, are not changed.
    """

    def __init__(self, stages: pt.Transformer, first: bool = True):
        """
        Args:
            stages: Stages over Terrier.
            first: Whether they get the original queries. After other stages, expressions written for Terrier are kept.
        """
        self.stages = stages
        self.first = first

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Run the stages with the words of each query."""
        if "query" not in inp.columns or "query_toks" in inp.columns or len(inp) == 0:
            return self.stages(inp)
        words = self._words()
        asked = dict(zip(inp["qid"], inp["query"]))
        given = {
            qid: query if is_expression(query) and not self.first else " ".join(words(query)) for qid, query in asked.items()
        }
        new = inp.assign(query=inp["qid"].map(given))
        out: pd.DataFrame = self.stages(new[new["query"] != ""].reset_index(drop=True))
        if len(out) == 0:
            return out
        before, after = out["qid"].map(asked), out["qid"].map(given)
        kept = [column for column in ("query", *earlier_queries(out)) if column in out.columns]
        return out.assign(**{column: out[column].where(out[column] != after, before) for column in kept})

    def _words(self) -> Callable[[str], Iterable[str]]:
        """What cuts a query into words: the tokeniser of the first stage that has one, else Terrier's for English."""
        for stage in nested(self.stages):
            tokens = getattr(getattr(stage, "tokeniser", None), "getTokens", None)
            if callable(tokens):
                return tokens
        return pt.java.autoclass("org.terrier.indexing.tokenisation.EnglishTokeniser")().getTokens


def property_notes(pipelines: Mapping[str, pt.Transformer]) -> list[str]:
    """Notes on Terrier properties that systems set to different values, although all retrievers of a process share them.

    Args:
        pipelines: The pipeline of each system, by name.

    Returns:
        One sentence per property.
    """
    values: dict[str, dict[str, list[str]]] = {}
    for name, pipeline in pipelines.items():
        for stage in nested(pipeline):
            own = getattr(stage, "properties", None) if is_terrier(stage) else None
            for key, value in own.items() if isinstance(own, Mapping) else ():
                names = values.setdefault(key, {}).setdefault(str(value), [])
                names.extend([name] if name not in names else [])
    notes = []
    for key, given in values.items():
        if len(given) > 1:
            told = " and ".join(f"{value!r} by {', '.join(names)}" for value, names in given.items())
            notes.append(
                f"Terrier's property {key} is set to {told}; properties are shared by a whole process, and the value set last "
                f"applies to all of these systems: audit them in separate processes."
            )
    return notes


def retriever_key(retriever: Any) -> dict[str, Any]:
    """Everything that determines the results of a Terrier retriever; ``==`` of two retrievers leaves some of it out.

    Args:
        retriever: A ``pt.terrier.Retriever`` or an object of a subclass.

    Returns:
        Its index (the location and the counts; for an index in memory its docnos and words), its settings, its tokeniser and its
        weighting model (a Python function if it was made with one).
    """
    index = pt.terrier.J.IndexFactory.of(retriever.indexref)
    place = str(retriever.indexref.toString())
    about = [place, str(index.getCollectionStatistics().toString())]
    if not place.endswith(".properties"):
        meta, documents = index.getMetaIndex(), index.getCollectionStatistics().getNumberOfDocuments()
        about.append(digest(str(meta.getItem("docno", number)) for number in range(documents)))
        about.append(digest(sorted(f"{entry.getKey()} {entry.getValue().toString()}" for entry in index.getLexicon())))
    callback = getattr(retriever, "_callback", None)
    return {
        "object": f"{type(retriever).__module__}.{type(retriever).__qualname__}",
        "index": about,
        "tokeniser": str(retriever.tokeniser.getClass().getName()),
        "model": retriever.search_context if callback is None else callback.fn,
        **{name: getattr(retriever, name) for name in ("controls", "properties", "metadata")},
        **{name: getattr(retriever, name) for name in ("features",) if hasattr(retriever, name)},
    }


def terrier_versions() -> dict[str, str]:
    """Versions of Terrier and Java if they have been started; otherwise empty.

    Returns:
        ``{'terrier': '5.11', 'java': '17.0.15'}``, or nothing.
    """
    if not pt.java.started():
        return {}
    java = pt.java.autoclass("java.lang.System").getProperty("java.version")
    return {"terrier": str(pt.terrier.version()), "java": str(java)}
