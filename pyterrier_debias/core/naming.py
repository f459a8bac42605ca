"""Names of systems, made from their weighting models, rankers and models."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyterrier as pt

from pyterrier_debias.core.errors import shortened
from pyterrier_debias.core.spread import unspread
from pyterrier_debias.core.stage import Stage, brief

#: Stages that do not affect what a pipeline finds or how it ranks.
_SILENT = frozenset({"ResetQuery", "_ResetResults", "_StashResults", "RankCutoff", "IdentityTransformer"})
#: Operators of two pipelines.
_OPERATORS = {"Sum": "+", "SetUnion": "|", "SetIntersection": "&", "Concatenate": "^"}
#: Options that hold what a stage of this package is made around.
_INNER = ("ranker", "model", "scorer")
#: Longer names are cut: they are used in tables and messages.
_LONGEST = 120


def system_name(pipeline: Any) -> str:
    """The name of a pipeline that the user did not name.

    Args:
        pipeline: A transformer.

    Returns:
        The names of its stages (see :func:`stage_name_of`), joined by ``>>``. Text loaders, cut-offs, tokenised queries and
        ``reset`` are left out, unless nothing else remains; so are the workers in which a ranker scores.

    Example:
        >>> from pyterrier_debias import CrossEncoder
        >>> system_name(pt.Transformer.identity() >> CrossEncoder("cross-encoder/ms-marco-MiniLM-L6-v2"))
        'CrossEncoder(ms-marco-MiniLM-L6-v2)'
    """
    stages = unspread(pipeline)
    told = [stage for stage in stages if not _is_silent(stage)]
    return shortened(" >> ".join(map(stage_name_of, told or stages)), _LONGEST)


def stage_name_of(stage: Any) -> str:
    """The name of a stage.

    Args:
        stage: A transformer.

    Returns:
        For a Terrier retriever its weighting model (``BM25``); for a ranker its class and model
        (``CrossEncoder(ms-marco-MiniLM-L6-v2)``); for an operator both sides (``BM25 + DPH``); otherwise its name in PyTerrier's
        schematics, or its class.
    """
    kind = type(stage).__name__
    if isinstance(stage, pt.Compose):
        return f"({system_name(stage)})"
    if kind == "FeatureUnion":
        return f"({' ** '.join(map(system_name, stage))})"
    if kind in _OPERATORS and hasattr(stage, "left"):
        return f"({system_name(stage.left)} {_OPERATORS[kind]} {system_name(stage.right)})"
    if isinstance(stage, Stage):
        options = stage.options()
        inner = next((options[name] for name in _INNER if options.get(name) is not None), None)
        return kind if inner is None else f"{kind}({_model_name(inner)})"
    return _label(stage) or kind


def distinct_names(pipelines: Sequence[Any]) -> list[str]:
    """Distinct names of several pipelines; equal names are extended with the options, or otherwise the stages, that differ.

    Args:
        pipelines: Transformers.

    Returns:
        One name per pipeline. Equal names with equal options are numbered.

    Example:
        >>> from pyterrier_debias import CrossEncoder
        >>> distinct_names([CrossEncoder("hub/model", max_length=length) for length in (128, 256)])
        ['CrossEncoder(model) (max_length=128)', 'CrossEncoder(model) (max_length=256)']
    """
    names = [system_name(pipeline) for pipeline in pipelines]
    found = list(names)
    for name in {name for name in names if names.count(name) > 1}:
        alike = [number for number, one in enumerate(names) if one == name]
        settings = [_settings(pipelines[number]) for number in alike]
        keys = dict.fromkeys(key for one in settings for key in one)
        differ = [key for key in keys if len({one.get(key) for one in settings}) > 1]
        for number, own in zip(alike, settings):
            told = [(re.split("[/.]", key)[-1], shortened(own[key], 40)) for key in differ if key in own][:3]
            parts = [f"{option}={value}" if value else option for option, value in told]
            found[number] = f"{name} ({', '.join(parts)})" if parts else name
    return [
        name if found.count(name) == 1 else f"{name} ({found[: number + 1].count(name)})" for number, name in enumerate(found)
    ]


def is_tokeniser(stage: Any) -> bool:
    """Whether a stage is ``pt.rewrite.tokenise()``, which PyTerrier implements as an applied function.

    Args:
        stage: A transformer.

    Returns:
        True if it is, also with a tokeniser of the user's own.
    """
    function = getattr(stage, "fn", None)
    return getattr(function, "__qualname__", "").startswith("tokenise.") and function.__module__ == "pyterrier.terrier.rewrite"


def is_text_loader(stage: Any) -> bool:
    """Whether a stage is a text loader by its name; its output is not checked.

    Args:
        stage: A transformer.

    Returns:
        True if its class, or PyTerrier's schematic of it, has that name.
    """
    return type(stage).__name__.endswith("TextLoader") or _label(stage) == "TextLoader"


def _is_silent(stage: Any) -> bool:
    return type(stage).__name__ in _SILENT or is_text_loader(stage) or is_tokeniser(stage)


def _label(stage: Any) -> str:
    """What PyTerrier's schematics call a stage; empty where they have no word for it."""
    schematic = getattr(stage, "schematic", None)
    try:
        schematic = schematic(input_columns=None) if callable(schematic) else schematic
        label = schematic.get("label") if isinstance(schematic, Mapping) else None
    except Exception:  # what draws a stage need not work for its name
        return ""
    return label if isinstance(label, str) else ""


def _model_name(inner: Any) -> str:
    """A model by the last part of its path or name, a ranker as a stage is called."""
    if isinstance(inner, pt.Transformer):
        return system_name(inner)
    if isinstance(inner, str) or hasattr(inner, "__fspath__"):
        return str(inner).rstrip("/\\").replace("\\", "/").rpartition("/")[2]
    return type(inner).__name__


def _settings(pipeline: Any) -> dict[str, str]:
    """Options of all stages as short texts, by the stage's kind, its place among those of its kind, and the option's name.

    Stages that names tell come first. One without options has an empty text in their place, as it may be what differs.
    """
    settings: dict[str, str] = {}
    seen: list[str] = []
    for stage in sorted(unspread(pipeline), key=_is_silent):
        if isinstance(stage, Stage):
            own: Mapping[str, Any] = stage.options()
        else:  # what PyTerrier's stages hold; of Terrier's retrievers the controls, and the index by its folder
            held = {name: value for name, value in vars(stage).items() if not name.startswith("_") and name != "verbose"}
            controls, index = held.pop("controls", {}), held.pop("indexref", None)
            own = {**held, **(controls if isinstance(controls, Mapping) else {})}
            own = {name: value for name, value in own.items() if isinstance(value, (str, int, float, bool))}
            if index is not None and hasattr(index, "toString"):
                own["index"] = index.toString().removesuffix("/data.properties").rpartition("/")[2]
        kind = "tokenise" if is_tokeniser(stage) else type(stage).__name__
        place = f"{seen.count(kind)}/{kind}"
        seen.append(kind)
        settings.update({f"{place}/{name}": brief(value).strip("'") for name, value in own.items()} or {place: ""})
    return settings
