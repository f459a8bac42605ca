"""Checks of an audit's inputs: settings, biases, topics, judgements, systems."""

from __future__ import annotations

import difflib
import importlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.bias import Bias
from pyterrier_debias.core.errors import InputError, check_choice, kind_of, visible
from pyterrier_debias.core.evaluation import judged_qids
from pyterrier_debias.core.frames import (
    check_overlap,
    check_pairs,
    check_text,
    reads_frames,
    with_grades,
    with_query,
    with_string_ids,
)
from pyterrier_debias.core.naming import distinct_names
from pyterrier_debias.core.systems import System, with_indexer
from pyterrier_debias.report.text import CORRECTION_NAMES

#: The biases in the order of reports: name to the module and the class.
BIASES = {
    "position": ("pyterrier_debias.position.audit", "PositionBias"),
    "survivorship": ("pyterrier_debias.survivorship.audit", "SurvivorshipBias"),
    "gender": ("pyterrier_debias.gender.audit", "GenderBias"),
    "linguistic": ("pyterrier_debias.linguistic.audit", "LinguisticBias"),
    "pooling": ("pyterrier_debias.pooling.audit", "PoolingBias"),
}
#: Biases that ``'all'`` leaves out: they are examined only if they are named.
FURTHER = {
    "source": ("pyterrier_debias.further.source", "SourceBias"),
    "length": ("pyterrier_debias.further.length", "LengthBias"),
    "order": ("pyterrier_debias.further.order", "OrderBias"),
}

#: Columns of judgements.
JUDGEMENT = ["qid", "docno", "label"]


def check_settings(
    *, correction: str, depth: Any, draws: Any, topics: Any, seed: Any = 0
) -> tuple[int, int | None, pd.DataFrame | int | None, int]:
    """Refuse invalid settings of an audit.

    Args:
        correction: As for :func:`~pyterrier_debias.report.run.audit`.
        depth: As for :func:`~pyterrier_debias.report.run.audit`.
        draws: As for :func:`~pyterrier_debias.report.run.audit`.
        topics: As for :func:`~pyterrier_debias.report.run.audit`.
        seed: As for :func:`~pyterrier_debias.report.run.audit`.

    Returns:
        Depth, draws, topics and seed, with numbers as Python's own types.

    Raises:
        InputError: If the correction is unknown, or a number is not whole or too small.
    """
    check_choice("audit", "correction", correction, CORRECTION_NAMES)
    return (
        _whole("depth", depth),
        None if draws is None else _whole("draws", draws),
        topics if topics is None or isinstance(topics, pd.DataFrame) else _limit(topics),
        _whole("seed", seed, 0),
    )


def _whole(name: str, number: Any, least: int = 1, instead: str = "") -> int:
    try:
        if isinstance(number, bool):
            raise TypeError
        number = operator.index(number)
    except TypeError:
        raise InputError(f"audit: {name} is {number!r}; it must be a whole number{instead}") from None
    if number < least:
        raise InputError(f"audit: {name} is {number}; it must be {least} or more")
    return number


def _limit(topics: Any) -> int:
    return _whole("topics", topics, instead=", or a frame with qid and query")


def check_baseline(baseline: str | None, systems: Sequence[System]) -> None:
    """Refuse a baseline that is not among the systems.

    Args:
        baseline: As for :func:`~pyterrier_debias.report.run.audit`.
        systems: The systems to examine.

    Raises:
        InputError: If no system has that name.
    """
    names = [system.name for system in systems]
    if baseline is not None and baseline not in names:
        raise InputError(f"audit: baseline {baseline!r} is not one of the systems; use one of {', '.join(names)}")


def meant(name: str, choices: Iterable[str]) -> str:
    """The choice that is closest to a misspelt name, as a part of a message.

    Args:
        name: The misspelt name.
        choices: The possible names.

    Returns:
        Text such as ``" (did you mean 'position'?)"``; empty if no choice is similar.

    Example:
        >>> meant("positon", ["position", "pooling"]), meant("astrology", ["position", "pooling"])
        (" (did you mean 'position'?)", '')
    """
    like = difflib.get_close_matches(name, list(choices), n=1)
    return f" (did you mean {like[0]!r}?)" if like else ""


def find_biases(biases: str | Bias | Sequence[str | Bias]) -> list[Bias]:
    """Find biases by name.

    Args:
        biases: ``'all'`` (the five), a name, a bias, or names and biases; ``'all'`` does not include those of ``FURTHER``.

    Returns:
        The biases, each once. In ``'all'``, a given object of one of the five classes, such as ``GenderBias(clusters=...)``,
        takes the place of the default one.

    Raises:
        InputError: If a name is unknown, something is not a bias, two biases have the same name, or there is no bias.
    """
    wanted = [biases] if isinstance(biases, (str, Bias)) else list(biases or ())
    found: dict[str, tuple[Bias, str | Bias]] = {}
    for one in wanted:
        for bias in BIASES if isinstance(one, str) and one == "all" else [one]:
            if isinstance(bias, str) and bias in found and found[bias][1] in (bias, "all"):
                continue
            made = _bias(bias)
            before = found.get(made.name)
            if before is not None and before[1] == "all" and isinstance(bias, Bias) and isinstance(bias, type(before[0])):
                before = None
            if before is not None and one == "all" and isinstance(before[1], Bias) and isinstance(before[0], type(made)):
                continue
            if before is not None and before[0] is not made:
                both = " and ".join(_as_given(given, made.name) for given in (before[1], one))
                told = "give the second another name, or leave one out"
                raise InputError(f"audit: two biases are named {made.name!r}: {both}; {told}")
            found[made.name] = made, one
    if not found:
        raise InputError(f"audit: no bias is given; use 'all' or some of {', '.join(BIASES)}")
    return [bias for bias, _ in found.values()]


def _as_given(bias: str | Bias, name: str) -> str:
    """A bias as the user gave it, in words: by its name, in 'all', or as an object."""
    if isinstance(bias, Bias):
        return f"an object of the class {type(bias).__name__}"
    return f"the library's own bias {name!r}" + (" (in 'all')" if bias == "all" else "")


def _bias(bias: str | Bias) -> Bias:
    """One bias, given by its name or as an object."""
    if isinstance(bias, str):
        known = [*BIASES, *FURTHER]
        if bias not in known:
            raise InputError(f"audit: bias {bias!r} is not known{meant(bias, known)}; use 'all' or some of {', '.join(known)}")
        module, name = BIASES.get(bias) or FURTHER[bias]
        bias = getattr(importlib.import_module(module), name)()
    if not isinstance(bias, Bias) or not bias.name:
        raise InputError(f"audit: {bias!r} is not a bias; give a name, or an instance of a subclass of Bias that has a name")
    if visible(bias.name) != bias.name:
        raise InputError(f"audit: the name of bias {bias.name!r} has characters that cannot be printed; rename it")
    return bias


@reads_frames
def topics_and_qrels(
    collection: Any, topics: pd.DataFrame | int | None = None, qrels: Any = None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The topics and judgements of an audit, checked.

    Args:
        collection: The dataset.
        topics: As for :func:`~pyterrier_debias.report.run.audit`.
        qrels: As for :func:`~pyterrier_debias.report.run.audit`.

    Returns:
        Topics (``qid``, ``query``, ...) and judgements (``qid``, ``docno``, ``label``) with string identifiers.

    Raises:
        InputError: If a column is missing, a query is not a text, a qid is repeated, a label is not a whole number, a pair has
            two labels, or topics and judgements do not overlap.
    """
    limit = None if topics is None or isinstance(topics, pd.DataFrame) else _limit(topics)
    asked: pd.DataFrame = topics if isinstance(topics, pd.DataFrame) else collection.get_topics()
    qrels = collection.get_qrels() if qrels is None else qrels
    asked = with_query(asked) if isinstance(asked, pd.DataFrame) else asked
    for name, frame, columns in (("topics", asked, ["qid", "query"]), ("judgements", qrels, JUDGEMENT)):
        if not isinstance(frame, pd.DataFrame):
            raise InputError(f"{name}: {kind_of(frame)} is not a DataFrame; give one with {', '.join(columns)}")
        missing = [c for c in columns if c not in frame.columns]
        if missing:
            there = ", ".join(map(str, frame.columns))
            remedy = "; rename the column that holds it, as in topics.rename(columns={'title': 'query'})" * (missing == ["query"])
            raise InputError(f"{name}: column {missing[0]!r} is missing; the columns are {there}{remedy}")
    asked, qrels = with_string_ids(asked, "topics"), with_grades(qrels, "audit")
    check_text(asked, "query", "topics")
    repeated = asked["qid"].duplicated()
    if repeated.any():
        raise InputError(f"topics: qid {asked['qid'][repeated].iloc[0]!r} occurs twice; keep one row per query")
    qrels = qrels.drop_duplicates(JUDGEMENT, ignore_index=True) if qrels.duplicated(JUDGEMENT).any() else qrels
    check_pairs(qrels, "judgements")
    check_overlap(asked, qrels, "audit")
    if limit is not None:
        asked = asked[asked["qid"].isin(judged_qids(asked, qrels)[:limit])].reset_index(drop=True)
    return asked, qrels


def named_systems(systems: Any, collection: Any) -> list[System]:
    """The systems that a user passed, with names.

    Args:
        systems: A dictionary from name to system, a list, or one system; see :func:`~pyterrier_debias.report.run.audit`.
        collection: The dataset, the source of candidates for rankers alone.

    Returns:
        Systems with distinct names.

    Raises:
        InputError: If there are none, two share a name, one has an empty name, or one cannot be examined.
    """
    several = systems if isinstance(systems, (Mapping, list, tuple)) else [systems]
    named = list(several.items()) if isinstance(several, Mapping) else list(zip(_labels(several), several))
    if not named:
        raise InputError("audit: there are no systems; give a dictionary from name to pipeline, or None for the defaults")
    for name, pipeline in named:
        if isinstance(pipeline, pt.Indexer):
            raise InputError(
                f"audit: system {str(name)!r} is an index ({type(pipeline).__name__}), not a retriever; give e.g. index.bm25(), "
                f"and TerrierCollection(index, dataset) as the dataset if the index's documents are to be the collection"
            )
    names = [str(name) for name, _ in named]
    found = [System.of(name, pipeline, dataset=collection) for name, (_, pipeline) in zip(names, named)]
    found = [replace(with_indexer(system, collection), name=name) for name, system in zip(names, found)]
    names = [visible(name) for name in names]
    if not all(name.strip() for name in names):
        raise InputError("audit: a system has an empty name; give a dictionary with a name for each")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"audit: two systems are named {twice!r}; give a dictionary with a different name for each")
    return found


def _labels(systems: Sequence[Any]) -> list[str]:
    """Short names for systems that were given without one."""
    found = iter(distinct_names([system for system in systems if isinstance(system, pt.Transformer)]))
    return [
        system.name if isinstance(system, System) else next(found) if isinstance(system, pt.Transformer) else f"run {number}"
        for number, system in enumerate(systems, start=1)
    ]
