"""A small English test collection with biases planted at a known strength.

The page "The planted collection" describes how each bias is planted. The generator is frozen: a seed and options give the same
collection in every release and on every platform, and a test checks its fingerprint. If a statistic disagrees with the planted
bias, the statistic is corrected, not the generator.
"""

from __future__ import annotations

import inspect
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from numbers import Integral
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import pandas as pd

from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data import planted_material as material
from pyterrier_debias.data.base import Collection

T = TypeVar("T")

#: How many passages labellers were shown for a topic.
SHOWN = 10
#: Share of topics for which, at survivorship 1, the list shown to labellers loses every answer.
UNANSWERED = 0.25
#: How many passages a training topic adds.
PER_TRAIN_TOPIC = 6
#: The smallest number of passages for a test topic.
FEWEST = 8
#: Share of topics about persons with a question that names a gender.
GENDERED = 0.5
#: Probability that a passage uses a synonym for its kind, property or attribute although it is not a paraphrase.
LOOSE = 0.4
#: Shares of passages that mention somebody in passing, and that add a remark.
ASIDES, REMARKS = 0.6, 0.4
#: The part of the scale of difficulty over which the share of paraphrases rises from none to all.
RAMP = 0.7

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December",
)
_NUMBERS = (
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "fifteen", "twenty", "thirty",
)
_SIXTEEN = struct.Struct(">16I")
_START, _END = "\x01", "\x02"
#: Templates in which a pronoun would read badly.
_OBLIQUE = re.compile(
    r"\b(of|at|for|on|in|from|to|by|through|with|around|after|under|than|along|between|and) \{S\}|\{S\} and"
)


class _Draws:
    """A stream of random draws for the given identifiers, the same on every platform.

    The bits come directly from a keyed hash, because a library's random-number generator may change between releases.
    """

    __slots__ = ("_count", "_key", "_left")

    def __init__(self, seed: int, *ids: object):
        self._key = "\0".join(map(str, (seed, *ids))).encode()
        self._count = 0
        self._left: list[int] = []

    def bits(self) -> int:
        """32 random bits."""
        return (self._left or self._more()).pop()

    def _more(self) -> list[int]:
        block = blake2b(self._key, digest_size=64, salt=self._count.to_bytes(8, "big")).digest()
        self._left = list(_SIXTEEN.unpack(block))
        self._count += 1
        return self._left

    def uniform(self) -> float:
        """A number in [0, 1)."""
        return self.bits() / 2**32

    def below(self, n: int) -> int:
        """An integer in {0, ..., n-1}."""
        return (self.bits() * n) >> 32

    def pick(self, items: Sequence[T]) -> T:
        """One of the items."""
        return items[(self.bits() * len(items)) >> 32]

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """The items in a random order."""
        order, left = list(items), self._left
        for i in range(len(order) - 1, 0, -1):
            left = left or self._more()
            j = (left.pop() * (i + 1)) >> 32  # below(i + 1), written out: most of the time is spent here
            order[i], order[j] = order[j], order[i]
        return order


class _Combination(NamedTuple):
    """The content of a question: an attribute of entities of a kind that have a property, as indices into the material."""

    group: int
    kind: int
    property: int
    attribute: int


@dataclass
class _Topic:
    """A question, and the decisions about it that precede any passage."""

    key: str
    asks: _Combination
    gender: str
    difficulty: float
    complexity: int
    query: str


@dataclass
class _Plan:
    """The facts that a passage must state."""

    key: str
    entity: str
    asks: _Combination
    properties: list[int]
    attributes: list[int]
    gender: str | None
    paraphrased: bool
    loose: float
    role: str


class _Part(NamedTuple):
    """A planned sentence: its template, the attribute that it states with its value, and whether it may open a passage."""

    template: str
    attribute: int | None = None
    value: str = ""
    opens: bool = True
    fixed: Mapping[str, str] = MappingProxyType({})


@dataclass
class _Passage:
    """A written passage."""

    plan: _Plan
    text: str
    name: str
    gender: str
    trade: tuple[str, str]
    spans: dict[int, tuple[int, int]]
    sentences: int
    answer_sentence: int


@cache
def _combinations() -> tuple[_Combination, ...]:
    return tuple(
        _Combination(g, k, p, a)
        for g, group in enumerate(material.GROUPS)
        for k in range(len(group.kinds))
        for p in range(len(group.properties))
        for a in range(len(group.attributes))
    )


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


class _Slots(dict):
    """Fills the slots of a template, each drawn when it is asked for."""

    def __init__(self, draws: _Draws, fixed: Mapping[str, str], places: Sequence[str], era: int = 0):
        super().__init__(fixed)
        self.draws = draws
        self.era = era
        self.places = places

    def __missing__(self, slot: str) -> str:
        draws = self.draws
        if slot == "y":
            return str(self.era + draws.below(30))
        if slot == "n":
            return draws.pick(_NUMBERS)
        if slot == "k":
            return str(10 * (4 + draws.below(600)))
        if slot == "t":
            return draws.pick(self.places)
        if slot == "m":
            return draws.pick(_MONTHS)
        if slot == "s":
            return draws.pick(("spring", "summer", "autumn"))
        if slot == "d":
            return draws.pick(("north", "south", "east", "west"))
        raise KeyError(slot)


class _Writer:
    """Writes passages and questions of one collection."""

    def __init__(self, seed: int, position: float, gender: float):
        self.seed = seed
        self.position = position
        self.gender = gender
        draws = _Draws(seed, "places")
        self.places = [draws.pick(material.STARTS) + draws.pick(material.PLACE_ENDS + material.ENDS) for _ in range(80)]

    @staticmethod
    def root(draws: _Draws) -> str:
        return draws.pick(material.STARTS) + draws.pick(material.ENDS)

    def gender_of(self, stereotype: str, *key: str) -> str:
        """The gender of a person: either with equal probability at strength 0, the stereotype's at strength 1."""
        female = 0.5 + (0.5 if stereotype == "female" else -0.5) * self.gender
        return "female" if _Draws(self.seed, "gender", *key).uniform() < female else "male"

    def name(self, entity: str, group: material.Group, gender: str) -> str:
        draws = _Draws(self.seed, "name", entity)
        first = draws.below(24)
        one = other = self.root(draws)
        while other == one:
            other = self.root(draws)
        fixed = {
            "a": one,
            "b": other,
            "c": draws.pick(material.PLACE_ENDS),
            "f": material.FIRST_NAMES.get(gender, material.FIRST_NAMES["female"])[first],
        }
        return draws.pick(group.pattern).format_map(_Slots(draws, fixed, self.places))

    def value(self, kind: str, draws: _Draws, era: int) -> str:
        """An answer."""
        if kind in material.VALUES:
            return draws.pick(material.VALUES[kind])
        if kind == "year":
            return str(era + draws.below(30))
        if kind == "place":
            return draws.pick(self.places)
        if kind == "person":
            return f"{draws.pick(material.FIRST_NAMES[draws.pick(('female', 'male'))])} {self.root(draws)}"
        if kind == "club":
            return f"the {self.root(draws)} {draws.pick(('Circle', 'Society', 'League', 'Guild'))}"
        if kind == "month":
            return draws.pick(_MONTHS)
        if kind == "few":
            return draws.pick(_NUMBERS[:11])
        if kind == "count":
            return str(10 * (4 + draws.below(900)))
        if kind == "money":
            return f"{5 * (2 + draws.below(1500))} crowns"
        limits = {"metres": 300, "degrees": 9, "kilograms": 400, "grams": 90, "years": 40, "minutes": 90}
        return f"{3 + draws.below(limits[kind])} {kind}"

    def introduction(self, draws: _Draws, name: str, noun: str, group: material.Group) -> str:
        adjective, form = draws.pick(group.adjectives), draws.below(6)
        at = draws.pick(group.at).format_map(_Slots(draws, {}, self.places))
        if form == 0:
            return f"the {adjective} {noun} known as {name}"
        if form == 1:
            return f"the {noun} called {name}"
        if form == 2:
            return f"{name}, the {adjective} {noun} {at},"
        if form == 3:
            return f"{name}, {_article(f'{adjective} {noun}')} {at},"
        return f"{name}, {_article(noun)} {at},"

    def passage(self, plan: _Plan) -> _Passage:
        """Write a passage. The draws for a sentence do not depend on its position."""
        group = material.GROUPS[plan.asks.group]
        kind = group.kinds[plan.asks.kind]
        gender = "neutral"
        if kind.stereotype:
            gender = plan.gender or self.gender_of(kind.stereotype, "entity", plan.entity)
        name = self.name(plan.entity, group, gender)
        era = 1840 + _Draws(self.seed, "era", plan.entity).below(120)
        noun, parts, trade = self._parts(plan, group, kind, era)
        order = self._order(plan.key, parts)
        subjects = self._subjects(plan.key, [parts[number] for number in order], group, kind, name, noun, gender)

        sentences, spans, offset = [], {}, 0
        for number, subject in zip(order, subjects):
            part = parts[number]
            words = {"S": subject, "v": f"{_START}{part.value}{_END}", "their": material.PRONOUNS[gender]["her"]}
            slots = _Slots(_Draws(self.seed, "slots", plan.key, number), {**part.fixed, **words}, self.places, era)
            sentence = part.template.format_map(slots).replace(",,", ",").replace(",.", ".").replace(",:", ":")
            begin = 1 if sentence[0] == _START else 0
            sentence = sentence[:begin] + sentence[begin].upper() + sentence[begin + 1 :]
            if part.attribute is not None:
                spans[part.attribute] = (offset + sentence.index(_START), offset + sentence.index(_END) - 1)
                sentence = sentence.replace(_START, "").replace(_END, "")
            sentences.append(sentence)
            offset += len(sentence) + 1
        return _Passage(plan, " ".join(sentences), name, gender, trade, spans, len(parts), order.index(0))

    def _parts(
        self, plan: _Plan, group: material.Group, kind: material.Kind, era: int
    ) -> tuple[str, list[_Part], tuple[str, str]]:
        """The noun that a passage uses, the facts that it states, and the trade and gender of the person mentioned.

        The first part is the answer, the second the property that belongs to it.
        """
        loose, style = _Draws(self.seed, "loose", plan.key), _Draws(self.seed, "style", plan.key)

        def register() -> str:
            # One draw in any case, so that the share of paraphrases changes nothing else.
            synonymous = loose.uniform() < plan.loose
            return "paraphrase" if plan.paraphrased or synonymous else "literal"

        def attribute(number: int) -> _Part:
            stated = group.attributes[number]
            template = style.pick(getattr(stated, register()))
            return _Part(template, number, self.value(stated.value, _Draws(self.seed, "value", plan.entity, number), era))

        def had(number: int) -> _Part:
            return _Part(style.pick(getattr(group.properties[number], register())))

        noun = kind.synonym if register() == "paraphrase" else kind.noun
        parts = [attribute(plan.attributes[0]), had(plan.properties[0])]
        parts += [attribute(number) for number in plan.attributes[1:]]
        parts += [had(number) for number in plan.properties[1:]]

        stereotype = style.pick(("female", "male"))
        trade = style.pick(material.ROLES[stereotype])
        gender = self.gender_of(stereotype, "aside", plan.key)
        aside = remark = None
        if style.uniform() < ASIDES:
            opening = style.pick(material.PERSON_OPENINGS if kind.stereotype else material.OPENINGS)
            aside = opening + style.pick(material.ENDINGS)
        if style.uniform() < REMARKS:
            remark = style.pick(group.remarks)
        person = f"{style.pick(material.FIRST_NAMES[gender])} {self.root(style)}"
        if aside:
            parts.append(_Part(aside, opens=False, fixed={"r": trade, "P": person, **material.PRONOUNS[gender]}))
        if remark:
            parts.append(_Part(remark, opens=False))
        return noun, parts, (trade, gender)

    def _subjects(
        self, key: str, parts: Sequence[_Part], group: material.Group, kind: material.Kind, name: str, noun: str, gender: str
    ) -> Iterator[str]:
        """How each sentence names the passage's entity: in full first, then by a pronoun, its kind or its name."""
        draws = _Draws(self.seed, "reference", key)
        pronoun = material.PRONOUNS[gender]["she"] if kind.stereotype else "it"
        for place, part in enumerate(parts):
            u = draws.uniform()
            if place == 0:
                yield self.introduction(_Draws(self.seed, "introduction", key), name, noun, group)
            elif u < 0.5 and parts[place - 1].opens and not _OBLIQUE.search(part.template):
                yield pronoun
            else:
                yield f"the {noun}" if u < 0.8 else name

    def _order(self, key: str, parts: Sequence[_Part]) -> list[int]:
        """The order of sentences. The answer (part 0) is equally likely at any position; at strength 1 it is always first.

        Asides and remarks never open a passage, because they would refer to something that was not named.
        """
        draws = _Draws(self.seed, "order", key)
        shuffled = draws.shuffled(range(1, len(parts)))
        place = draws.below(len(parts))
        if draws.uniform() < self.position:
            return [0, 1] + [part for part in shuffled if part != 1]
        opener = next(part for part in shuffled if parts[part].opens)
        rest = [part for part in shuffled if part != opener]
        order = [opener, *rest] if place else shuffled
        order.insert(place, 0)
        return order

    def question(self, topic: _Topic) -> str:
        """Word a question; the complexity is the number of parts that are added around and within it."""
        group = material.GROUPS[topic.asks.group]
        draws = _Draws(self.seed, "wording", topic.key)
        parts = [draws.pick(p) for p in (material.FRONT, material.MIDDLE, material.END, material.TAIL)]
        used = set(draws.shuffled(range(4))[: topic.complexity])
        front, middle, end, tail = (part if i in used else "" for i, part in enumerate(parts))
        their = material.PRONOUNS[topic.gender]["her"]
        clause = group.properties[topic.asks.property].clause.format(their=their)
        phrase = " ".join(filter(None, [_article(group.kinds[topic.asks.kind].noun), middle, clause]))
        question = group.attributes[topic.asks.attribute].question.format(np=phrase)
        return " ".join(filter(None, [front, question, end, tail]))


class _World:
    """All content of a collection, as determined by the seed and options, before it is put into frames."""

    def __init__(
        self, seed: int, topics: int, train_topics: int, passages: int, paraphrased: float, strengths: dict[str, float]
    ):
        self.seed = seed
        self.paraphrased = paraphrased
        self.strengths = strengths
        self.writer = _Writer(seed, strengths["position"], strengths["gender"])
        chosen = self._chosen(topics + train_topics)
        self.test = self._topics("test", chosen[:topics])
        self.train = self._topics("train", chosen[topics:])
        share = (passages - PER_TRAIN_TOPIC * train_topics) // max(topics, 1)
        self._due = {role: _Draws(seed, "due", role).uniform() for role in ("relevant", "partial", "attribute", "kind")}
        plans = [plan for topic in self.test for plan in self._plans(topic, *self._sizes(topic, share))]
        plans += [plan for topic in self.train for plan in self._plans(topic, 3, 1, 1, 1)]
        plans += [self._any(f"any{i}") for i in range(passages - len(plans))]
        plans.sort(key=lambda plan: _Draws(seed, "docno", plan.key).bits())
        self.passages = [self.writer.passage(plan) for plan in plans]
        self.of_group: dict[int, list[int]] = {number: [] for number in range(len(material.GROUPS))}
        for i, passage in enumerate(self.passages):
            self.of_group[passage.plan.asks.group].append(i)
        self.docnos = [f"d{i:0{len(str(passages))}d}" for i in range(1, passages + 1)]

    def _chosen(self, n: int) -> list[_Combination]:
        """Different questions, spread over kinds as evenly as possible."""
        shuffled = _Draws(self.seed, "combinations").shuffled(_combinations())
        seen: dict[tuple[int, int], int] = {}
        turns = []
        for asks in shuffled:
            kind = (asks.group, asks.kind)
            seen[kind] = turn = seen.get(kind, 0) + 1
            turns.append(turn)
        return [shuffled[i] for i in sorted(range(len(shuffled)), key=turns.__getitem__)[:n]]

    def _topics(self, split: str, chosen: Sequence[_Combination]) -> list[_Topic]:
        """Questions whose difficulties are spread evenly over [0, 1)."""
        order = _Draws(self.seed, "difficulty", split).shuffled(range(len(chosen)))
        return [self._topic(f"{split}{i}", asks, (order[i] + 0.5) / len(chosen)) for i, asks in enumerate(chosen)]

    def _topic(self, key: str, asks: _Combination, difficulty: float) -> _Topic:
        draws = _Draws(self.seed, "topic", key)
        gender = "neutral"
        stereotype = material.GROUPS[asks.group].kinds[asks.kind].stereotype
        if stereotype and draws.uniform() < GENDERED:
            gender = self.writer.gender_of(stereotype, "question", key)
        complexity = int(5 * self._coupled("linguistic", key, difficulty))
        topic = _Topic(key, asks, gender, difficulty, complexity, "")
        topic.query = self.writer.question(topic)
        return topic

    def _coupled(self, bias: str, key: str, difficulty: float) -> float:
        """A number in [0, 1): with the probability of the bias' strength the difficulty, otherwise independent of it."""
        draws = _Draws(self.seed, bias, key)
        own = draws.uniform()
        return difficulty if draws.uniform() < self.strengths[bias] else own

    def _sizes(self, topic: _Topic, share: int) -> tuple[int, int, int, int]:
        """Numbers of passages that answer, state only the property, state only the attribute, and state both for another kind."""
        draws = _Draws(self.seed, "sizes", topic.key)
        relevant = round(share * (0.2 + 0.2 * draws.uniform()))
        partial = round(share * (0.08 + 0.08 * draws.uniform()))
        attribute = round(share * (0.1 + 0.1 * draws.uniform()))
        return max(relevant, 2), max(partial, 1), max(attribute, 1), max(share // 10, 1)

    def _plans(self, topic: _Topic, relevant: int, partial: int, attribute: int, kind: int) -> Iterator[_Plan]:
        asks, group = topic.asks, material.GROUPS[topic.asks.group]
        others = [k for k in range(len(group.kinds)) if k != asks.kind]
        for role, count in (("relevant", relevant), ("partial", partial), ("attribute", attribute), ("kind", kind)):
            for i in range(count):
                key = f"{topic.key} {role} {i}"
                draws = _Draws(self.seed, "plan", key)
                entity = f"{topic.key} relevant {i}" if role == "partial" else key
                properties = self._drawn(draws, len(group.properties), asks.property, role != "attribute")
                attributes = self._drawn(draws, len(group.attributes), asks.attribute, role != "partial")
                about = asks._replace(kind=draws.pick(others)) if role == "kind" else asks
                gender = topic.gender if topic.gender != "neutral" and role in ("relevant", "partial") else None
                yield _Plan(
                    key, entity, about, properties[: 1 + draws.below(2)], attributes[: 2 + draws.below(2)], gender,
                    self._is_due(role, topic.difficulty),
                    2 * LOOSE * topic.difficulty if role in ("relevant", "partial") else LOOSE,
                    role,
                )

    @staticmethod
    def _drawn(draws: _Draws, n: int, wanted: int, stated: bool) -> list[int]:
        """Numbers below n in random order; the wanted one is first if it is to be stated, otherwise left out."""
        others = draws.shuffled([i for i in range(n) if i != wanted])
        return [wanted, *others] if stated else others

    def _any(self, key: str) -> _Plan:
        """A passage that is planned for no topic."""
        draws = _Draws(self.seed, "plan", key)
        asks = draws.pick(_combinations())
        group = material.GROUPS[asks.group]
        properties = self._drawn(draws, len(group.properties), asks.property, True)[: 1 + draws.below(2)]
        attributes = self._drawn(draws, len(group.attributes), asks.attribute, True)[: 2 + draws.below(2)]
        paraphrased = draws.uniform() < self.paraphrased
        return _Plan(key, key, asks, properties, attributes, None, paraphrased, LOOSE, "any")

    def _is_due(self, role: str, difficulty: float) -> bool:
        """Whether the next passage of a role must be a paraphrase, so that each role reaches the set share.

        Among passages on topic, the share grows with the topic's difficulty: from none to all over RAMP of the scale.
        """
        share = self.paraphrased
        if role in ("relevant", "partial") and 0 < share < 1:
            width = min(RAMP, 2 * share, 2 * (1 - share))
            share = min(max((difficulty - (1 - share)) / width + 0.5, 0.0), 1.0)
        self._due[role] += share
        paraphrased = self._due[role] >= 1
        self._due[role] -= paraphrased
        return paraphrased

    def labels(self, topics: Sequence[_Topic]) -> list[dict[int, int]]:
        """For each topic, the grade of every passage that has one: 2 if it answers, 1 if it is only on topic."""
        states: dict[tuple[int, int, int], list[int]] = {}
        for i, passage in enumerate(self.passages):
            asks = passage.plan.asks
            for stated in passage.plan.properties:
                states.setdefault((asks.group, asks.kind, stated), []).append(i)
        found = []
        for topic in topics:
            grades = {}
            for i in states.get((topic.asks.group, topic.asks.kind, topic.asks.property), []):
                passage = self.passages[i]
                meant = topic.gender in ("neutral", passage.gender)
                grades[i] = 2 if meant and topic.asks.attribute in passage.spans else 1
            found.append(grades)
        return found

    def shown(self, topic: _Topic, grades: Mapping[int, int]) -> tuple[list[int], int]:
        """The passages that labellers were shown, in order, and the rank of the first answer (0 if there is none)."""
        draws = _Draws(self.seed, "shown", topic.key)
        lost = UNANSWERED * self.strengths["survivorship"]
        z = self._coupled("survivorship", topic.key, difficulty=topic.difficulty)
        first = 0 if z >= 1 - lost else 1 + int(SHOWN * z / (1 - lost))
        answers = draws.shuffled([i for i, grade in grades.items() if grade == 2])
        partial = draws.shuffled([i for i, grade in grades.items() if grade == 1])
        others = draws.shuffled([i for i in self.of_group[topic.asks.group] if i not in grades])[-SHOWN:]
        if len(others) < SHOWN:  # a tiny collection: show passages about something else too
            known = {*others, *grades}
            others = draws.shuffled([i for i in range(len(self.passages)) if i not in known])[: SHOWN - len(others)] + others
            first = min(first, len(others) + 1)
        listed = []
        for place in range(1, SHOWN + 1):
            u = draws.uniform()
            if place == first:
                listed.append(answers.pop())
            elif first and place > first and u < 0.1 and answers:
                listed.append(answers.pop())
            elif first and place > first and u > 0.8 and partial:
                listed.append(partial.pop())
            elif others:
                listed.append(others.pop())
        return listed, first


def bm25(texts: Sequence[str], queries: Sequence[str], *, k1: float = 0.9, b: float = 0.4) -> Iterator[np.ndarray]:
    """BM25 as PISA computes it, in memory, without stemming.

    score(q, d) = sum over the query's words t of idf(t) tf(t, d) (k1 + 1) / (tf(t, d) + k1 (1 - b + b |d| / avgdl)), with
    idf(t) = max(1e-6, ln((N - df(t) + 0.5) / (df(t) + 0.5))). Words are lower-cased runs of ``\\w``; function words are left out
    of queries, but count in the lengths of texts.

    Args:
        texts: The documents.
        queries: The queries.
        k1: Saturation of term frequency.
        b: Normalisation by length.

    Yields:
        For each query its scores, shape [documents], rounded to six decimals so that ties are the same on every platform.

    Example:
        >>> [scores.tolist() for scores in bm25(["a red owl", "a red fox", "the sea"], ["where is the owl"])]
        [[0.499007, 0.0, 0.0]]
    """
    wanted = {word for query in queries for word in regex_word(query)} - material.FUNCTION_WORDS
    lengths = np.zeros(len(texts))
    postings: dict[str, dict[int, int]] = {}
    for i, text in enumerate(texts):
        words = regex_word(text)
        lengths[i] = len(words)
        for word in words:
            if word in wanted:
                counts = postings.setdefault(word, {})
                counts[i] = counts.get(i, 0) + 1
    norm = k1 * (1 - b + b * lengths / max(lengths.mean(), 1)) if len(texts) else lengths
    weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    for word, counts in postings.items():
        where = np.fromiter(counts, dtype=np.int64)
        tf = np.fromiter(counts.values(), dtype=np.float64)
        idf = max(1e-6, float(np.log((len(texts) - len(where) + 0.5) / (len(where) + 0.5))))
        weights[word] = where, idf * tf * (k1 + 1) / (tf + norm[where])
    for query in queries:
        scores = np.zeros(len(texts))
        for word in regex_word(query):
            if word in weights:
                where, weight = weights[word]
                scores[where] += weight
        yield np.round(scores, 6)


class _Frames:
    """The frames of a planted collection."""

    def __init__(self, world: _World, depth: int):
        self.world = world
        self.docnos = np.array(world.docnos, dtype=object)
        self.texts = [passage.text for passage in world.passages]
        self.pool = len(self.texts) ** (1 - world.strengths["pooling"])
        asked = [*world.test, *world.train]
        splits = ["test"] * len(world.test) + ["train"] * len(world.train)
        width = len(str(len(asked)))
        self.qids = [f"{split}{i:0{width}d}" for i, split in enumerate(splits, start=1)]
        self.topics = pd.DataFrame(
            {
                "qid": self.qids,
                "query": [topic.query for topic in asked],
                "type": [material.GROUPS[t.asks.group].attributes[t.asks.attribute].type for t in asked],
                "gender": [topic.gender for topic in asked],
            }
        )
        self.is_test = np.array([split == "test" for split in splits])
        self.grades = world.labels(asked)
        listed = [world.shown(topic, grades) for topic, grades in zip(world.test, self.grades)]
        self.shown = [passages for passages, _ in listed]
        self.first_shown = np.array([first for _, first in listed] + [0] * len(world.train))
        self.survived = self.first_shown > 0
        self._rank(depth)

    def _rank(self, depth: int) -> None:
        """BM25 over all topics: the run, and the passages that the pool judged."""
        rows: dict[str, list[Any]] = {"qid": [], "docno": [], "score": [], "rank": []}
        self.pooled: list[np.ndarray] = []
        for qid, scores in zip(self.qids, bm25(self.texts, self.topics["query"])):
            found = np.flatnonzero(scores > 0)[::-1]
            found = found[np.argsort(-scores[found], kind="stable")]
            order = np.concatenate([found, np.flatnonzero(scores == 0)[::-1]])
            self.pooled.append(order[np.arange(len(order)) < self.pool])
            top = found[:depth]
            rows["qid"] += [qid] * len(top)
            rows["docno"] += self.docnos[top].tolist()
            rows["score"] += scores[top].tolist()
            rows["rank"] += range(len(top))
        self.run = pd.DataFrame(rows).astype({"score": "float64", "rank": "int64"})

    def judgements(self, judged: Mapping[int, np.ndarray]) -> pd.DataFrame:
        """Labels of the judged passages: number of the topic to sorted numbers of passages."""
        lengths = [len(passages) for passages in judged.values()]
        labels = np.zeros(sum(lengths), dtype=np.int64)
        begin = 0
        for number, passages in judged.items():
            of_all = np.zeros(len(self.docnos), dtype=np.int64)
            of_all[list(self.grades[number])] = list(self.grades[number].values())
            labels[begin : begin + len(passages)] = of_all[passages]
            begin += len(passages)
        which = np.concatenate([np.empty(0, dtype=np.int64), *judged.values()])
        topics = np.repeat(np.fromiter(judged, dtype=np.int64), lengths)
        # Names are taken from columns, which copy them faster than a list of names becomes a column.
        qids, docnos = pd.Series(self.qids), pd.Series(self.docnos)
        return pd.DataFrame({"qid": qids.take(topics).array, "docno": docnos.take(which).array, "label": labels})

    def qrels(self) -> dict[str, pd.DataFrame]:
        """Judgements of every split."""
        test = range(len(self.world.test))
        train = range(len(self.world.test), len(self.qids))
        seen = {i: np.union1d(self.pooled[i], self.shown[i]) for i in test if self.survived[i]}
        everything = np.arange(len(self.docnos))
        frames = {"test": self.judgements(seen), "full": self.judgements(dict.fromkeys(test, everything))}
        if self.world.train:
            known = {i: np.array(sorted(self.grades[i]), dtype=np.int64) for i in train}
            frames["train"] = self.judgements({i: np.intersect1d(known[i], self.pooled[i]) for i in train})
            frames["train_full"] = self.judgements(known)
        return frames

    def splits(self) -> dict[str, pd.DataFrame]:
        """Topics of every split."""
        frames = {
            "test": self.topics[self.is_test & self.survived].reset_index(drop=True),
            "full": self.topics[self.is_test].reset_index(drop=True),
        }
        if self.world.train:
            frames["train"] = self.topics[~self.is_test].reset_index(drop=True)
        return frames

    def candidates(self) -> pd.DataFrame:
        """The passages shown to labellers; the score falls by one per rank."""
        lengths = [len(listed) for listed in self.shown]
        rank = np.concatenate([np.arange(n) for n in lengths])
        docnos = self.docnos[np.concatenate([np.array(listed, dtype=np.int64) for listed in self.shown])]
        qids = np.repeat(np.array(self.qids[: len(lengths)], dtype=object), lengths)
        return pd.DataFrame({"qid": qids, "docno": docnos, "score": -rank.astype("float64"), "rank": rank})

    def answers(self) -> pd.DataFrame:
        """The positions of the answers in the passages that contain one."""
        rows = []
        for qid, topic, grades in zip(self.qids, [*self.world.test, *self.world.train], self.grades):
            for i, grade in grades.items():
                if grade == 2:
                    start, end = self.world.passages[i].spans[topic.asks.attribute]
                    rows.append((qid, self.docnos[i], self.texts[i][start:end], start, end))
        return pd.DataFrame(rows, columns=["qid", "docno", "answer", "start", "end"])

    def truth(self) -> dict[str, Any]:
        """The planted biases and facts."""
        world = self.world
        asked = [*world.test, *world.train]
        groups = [material.GROUPS[topic.asks.group] for topic in asked]
        topics = self.topics.assign(
            split=np.where(self.is_test, "test", "train"),
            kind=[group.kinds[t.asks.kind].noun for group, t in zip(groups, asked)],
            property=[group.properties[t.asks.property].name for group, t in zip(groups, asked)],
            attribute=[group.attributes[t.asks.attribute].name for group, t in zip(groups, asked)],
            stereotype=[group.kinds[t.asks.kind].stereotype for group, t in zip(groups, asked)],
            difficulty=[topic.difficulty for topic in asked],
            complexity=[topic.complexity for topic in asked],
            first_shown=self.first_shown,
            survived=self.survived | ~self.is_test,
            answering=[sum(grade == 2 for grade in grades.values()) for grades in self.grades],
        )
        keys = {topic.key: qid for topic, qid in zip(asked, self.qids)}
        plans = [passage.plan for passage in world.passages]
        kinds = [material.GROUPS[plan.asks.group].kinds[plan.asks.kind] for plan in plans]
        trade_gender = {trade: gender for gender, trades in material.ROLES.items() for trade in trades}
        documents = pd.DataFrame(
            {
                "docno": self.docnos,
                "kind": [kind.noun for kind in kinds],
                "entity": [passage.name for passage in world.passages],
                "gender": [passage.gender for passage in world.passages],
                "stereotype": [kind.stereotype for kind in kinds],
                "trade": [passage.trade[0] for passage in world.passages],
                "trade_gender": [passage.trade[1] for passage in world.passages],
                "trade_stereotype": [trade_gender[passage.trade[0]] for passage in world.passages],
                "paraphrased": [plan.paraphrased for plan in plans],
                "role": [plan.role for plan in plans],
                "planned_for": [keys.get(plan.key.split(" ")[0], "") for plan in plans],
                "sentences": [passage.sentences for passage in world.passages],
                "answer_sentence": [passage.answer_sentence for passage in world.passages],
            }
        )
        return {
            "strengths": dict(world.strengths),
            "paraphrased": world.paraphrased,
            "pool": {"system": "bm25", "depth": int(np.ceil(self.pool))},
            "topics": topics,
            "documents": documents,
        }


class PlantedCollection(Collection):
    """A small English test collection, generated from a seed, with biases planted at a known strength; for testing measures.

    Passages of a few sentences describe invented entities (theatres, rivers, ships, nurses, beetles, soups, ...). A question
    asks for an attribute of entities of a kind that have a property: *who was the architect of a theatre that was damaged by
    fire*. A passage has label 2 if it is about such an entity and states the attribute (with the span of the answer in
    :meth:`get_answers`), label 1 if it is about such an entity but leaves the attribute out (or, if the question names a
    gender, is about somebody of the other one), and 0 otherwise. Passages of one kind share their vocabulary, so that several
    compete for a question.

    Splits: ``test`` (the topics that survived, with the passages that were judged: the default), ``full`` (all test topics, every
    passage judged), and, with training topics, ``train`` and ``train_full`` (judgements only). Judgements of training topics list
    only passages with labels above 0.

    Each bias has a strength in [0, 1]: 0 is its exact absence, 1 the maximum. Each has its own random stream, so changing one
    does not affect the others.

    - ``position``: the share of passages with the answer in the first sentence, followed by its property;
      in the other passages, the answer is equally likely in any sentence.
    - ``pooling``: of n passages, the ``n ** (1 - pooling)`` that BM25 ranks first were judged (all at 0, one at 1), and
      those shown to labellers. ``get_qrels('full')`` keeps all judgements.
    - ``gender``: people of a trade have the gender of its stereotype with probability ``(1 + gender) / 2``; so do the
      people for whom gendered questions ask.
    - ``linguistic``: the share of topics with wording as complex as the topic is difficult; the wording of the others is
      independent of difficulty. A topic is difficult if many of its passages are paraphrases. Complex wording adds no
      word that occurs in any passage.
    - ``survivorship``: the share of topics with the first answer as late in the list shown to labellers as the topic is
      difficult; a quarter of this strength is also the share of topics for which no shown passage answers: they are missing
      from ``test``.

    Its name is ``planted-0``, after the seed, followed by the strengths that differ from the defaults: ``planted-0-position1``.
    ``get_runs()['bm25']`` is a frozen BM25 run over all topics (k1 0.9, b 0.4, no stemming), so that no index library is needed.
    ``truth`` holds the strengths and, in the frames ``topics`` and ``documents``, the properties of each topic and document.

    When not to use it: to compare rankers. Its language is narrow and its entities are invented; it shows whether a measure
    finds the planted bias, not which ranker is better.

    Example:
        >>> collection = PlantedCollection(seed=1, topics=10, passages=100)
        >>> collection
        <Collection 'planted-1': 100 documents; topics: test 8, full 10>
        >>> answer = collection.get_answers().iloc[0]
        >>> text = collection.get_corpus().set_index("docno")["text"][answer["docno"]]
        >>> text[answer["start"] : answer["end"]] == answer["answer"]
        True
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        topics: int = 60,
        passages: int | None = None,
        train_topics: int = 0,
        paraphrased: float = 0.35,
        position: float = 0.5,
        pooling: float = 0.5,
        gender: float = 0.5,
        linguistic: float = 0.5,
        survivorship: float = 0.5,
        depth: int = 100,
    ):
        """
        Args:
            seed: Seed of the collection.
            topics: Number of test topics, before any is dropped.
            passages: Number of passages; at least 8 per test topic and 6 per training topic. Default: 20 per test topic and 6
                per training topic.
            train_topics: Number of training topics, up to 2,000.
            paraphrased: Share of passages that share no content word with any question they could answer.
            position: Strength of position bias, in [0, 1].
            pooling: Strength of pooling bias, in [0, 1].
            gender: Strength of gender bias, in [0, 1].
            linguistic: Strength of linguistic bias, in [0, 1].
            survivorship: Strength of survivorship bias, in [0, 1].
            depth: Number of passages per topic in the frozen run.

        Raises:
            InputError: For a value out of range.
        """
        strengths = {
            "position": position, "pooling": pooling, "gender": gender, "linguistic": linguistic, "survivorship": survivorship,
        }
        if passages is None and isinstance(topics, Integral) and isinstance(train_topics, Integral):
            passages = 20 * topics + PER_TRAIN_TOPIC * train_topics
        _check(seed, topics, passages, train_topics, depth, {**strengths, "paraphrased": paraphrased})
        strengths = {bias: float(strength) for bias, strength in strengths.items()}
        world = _World(seed, topics, train_topics, cast(int, passages), float(paraphrased), strengths)  # checked above
        frames = _Frames(world, depth)
        super().__init__(
            _name(seed, {"paraphrased": float(paraphrased), **strengths}),
            corpus=pd.DataFrame({"docno": frames.docnos, "text": frames.texts}),
            topics=frames.splits(),
            qrels=frames.qrels(),
            split="test",
            candidates=frames.candidates(),
            runs={"bm25": frames.run},
            answers=frames.answers(),
            truth=frames.truth(),
        )

    @classmethod
    def named(cls, name: str) -> PlantedCollection:
        """Make the collection that a name with options describes, as ``pt.get_dataset`` and the command line accept it.

        Args:
            name: ``planted``, or ``planted`` with options of the constructor: ``planted/seed=3,topics=20,position=1``.

        Returns:
            The collection.

        Raises:
            KeyError: For any other name.
            InputError: For an unknown option, or a value that is not a number or out of range.

        Example:
            >>> PlantedCollection.named("planted/seed=1,topics=10,passages=100")
            <Collection 'planted-1': 100 documents; topics: test 8, full 10>
        """
        first, _, rest = name.partition("/")
        if first != "planted":
            raise KeyError(name)
        known = list(inspect.signature(cls.__init__).parameters)[1:]
        options: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            option, _, value = part.partition("=")
            check_choice(name, "option", option, known)
            try:
                options[option] = float(value) if set(".eE") & set(value) else int(value)
            except ValueError as error:
                raise InputError(f"{name}: {option}={value!r} is not a number; write for example {option}=1") from error
        return cls(**options)

    def get_corpus_lang(self) -> str:
        """English."""
        return "en"

    def get_topics_lang(self) -> str:
        """English."""
        return "en"


def _name(seed: int, shares: Mapping[str, float]) -> str:
    """The seed, and the shares and strengths that differ from the defaults: collections of one name have the same biases."""
    usual = {"paraphrased": 0.35}
    return "-".join([f"planted-{seed}", *(f"{name}{share:g}" for name, share in shares.items() if share != usual.get(name, 0.5))])


def _check(seed: Any, topics: Any, passages: Any, train_topics: Any, depth: Any, shares: Mapping[str, Any]) -> None:
    """Refuse options from which no collection can be made."""
    for name, value, least in (
        ("seed", seed, None), ("topics", topics, 1), ("train_topics", train_topics, 0), ("passages", passages, 1),
        ("depth", depth, 1),
    ):
        check_number("PlantedCollection", name, value, least=least, whole=True)
    for name, value in shares.items():
        check_number("PlantedCollection", name, value, least=0, most=1)
    if topics + train_topics > len(_combinations()):
        raise InputError(
            f"PlantedCollection: topics + train_topics = {topics + train_topics}, but there are only "
            f"{len(_combinations())} questions; ask for fewer topics"
        )
    needed = FEWEST * topics + PER_TRAIN_TOPIC * train_topics
    if passages < needed:
        raise InputError(
            f"PlantedCollection: passages={passages} is too few for {topics} topics and {train_topics} training topics; "
            f"allow at least {needed}"
        )
