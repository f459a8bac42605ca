"""The words of the planted collection, from ``planted_material.json``.

The words are grouped by the topics of passages. A group has kinds (the literal noun, and the noun that a paraphrase uses),
properties (by which a question identifies an entity) and attributes (for which a question asks). A property or an attribute can
be stated literally, with the content words of the question, or as a paraphrase, with none of them. Within a group, no paraphrase,
aside or remark contains a content word of any of the group's questions; a test checks this on the tables.

Slots: ``{S}`` the entity, ``{its}`` its possessive, ``{v}`` the answer, ``{y}`` a year, ``{n}`` a small number, ``{k}`` a larger
one, ``{p}`` a person, ``{t}`` a place, ``{m}`` a month, ``{s}`` a season, ``{d}`` a direction. In the group of persons, ``{S}``
occurs only where ``he`` or ``she`` would also be possible.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple


class Property(NamedTuple):
    """A property, by which a question identifies entities."""

    name: str
    clause: str  #: relative clause of the question
    literal: tuple[str, ...]
    paraphrase: tuple[str, ...]


class Attribute(NamedTuple):
    """An attribute, for which a question asks."""

    name: str
    type: str  #: kind of question: NUMERIC, PERSON, LOCATION, ENTITY or DESCRIPTION
    question: str  #: the question, with ``{np}`` for the noun phrase
    value: str  #: name of a list or maker of values
    literal: tuple[str, ...]
    paraphrase: tuple[str, ...]


class Kind(NamedTuple):
    """A kind of entity: its noun, the noun of a paraphrase, and the gender that a stereotype expects (persons only)."""

    noun: str
    synonym: str
    stereotype: str = ""


class Group(NamedTuple):
    """Kinds that share properties and attributes."""

    name: str
    pattern: tuple[str, ...]  #: how entities are named, from roots ``{a}`` and ``{b}``
    at: tuple[str, ...]  #: how an entity is placed
    adjectives: tuple[str, ...]
    kinds: tuple[Kind, ...]
    properties: tuple[Property, ...]
    attributes: tuple[Attribute, ...]
    remarks: tuple[str, ...]


GROUPS: tuple[Group, ...]
#: Lists from which answers are drawn; the generator makes up the other kinds of values.
VALUES: dict[str, tuple[str, ...]]
#: Roots of invented names: a start and an end.
STARTS: tuple[str, ...]
ENDS: tuple[str, ...]
PLACE_ENDS: tuple[str, ...]
FIRST_NAMES: dict[str, tuple[str, ...]]
#: Trades of people who are mentioned in passing, by the gender that a stereotype expects.
ROLES: dict[str, tuple[str, ...]]
#: Asides about such a person: an opening, of things and of persons, and an ending. ``{r}`` the trade, ``{P}`` the name,
#: ``{she}``, ``{her}`` (possessive) and ``{hers}`` (object).
OPENINGS: tuple[str, ...]
PERSON_OPENINGS: tuple[str, ...]
ENDINGS: tuple[str, ...]
PRONOUNS: dict[str, dict[str, str]]
#: Parts that make the wording of a question complex, added before, within and after it. Their words are function words or occur
#: in no passage, so the ranking of a retriever that matches words does not depend on the wording.
FRONT: tuple[str, ...]
MIDDLE: tuple[str, ...]
END: tuple[str, ...]
TAIL: tuple[str, ...]
#: Words that the frozen BM25 run removes from queries.
FUNCTION_WORDS: frozenset[str]


def __getattr__(name: str) -> Any:
    """Read all tables when one of them is first used.

    Args:
        name: Name of a table.

    Returns:
        The table.

    Raises:
        AttributeError: If there is no such table.
    """
    # Python asks modules for names of its own, such as __path__: these must not read the file.
    if name.isupper() and name in _tables():
        globals().update(_tables())
        return _tables()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@cache
def _tables() -> dict[str, Any]:
    content = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    tables = {name.upper(): _frozen(table) for name, table in content.items()}
    classes = {"kinds": Kind, "properties": Property, "attributes": Attribute}
    tables["GROUPS"] = tuple(
        Group(**group | {part: tuple(made(**row) for row in group[part]) for part, made in classes.items()})
        for group in tables["GROUPS"]
    )
    tables["FUNCTION_WORDS"] = frozenset(tables["FUNCTION_WORDS"])
    return tables


def _frozen(value: Any) -> Any:
    """Lists as tuples, at any depth."""
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
