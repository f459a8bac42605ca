"""Rankers with a known bias of a chosen strength, and their unbiased twin.

They complement the planted collection: at strength 0 there is no bias to find, and at strength 1 the bias of the ranker is at its
maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import check_choice, check_number
from pyterrier_debias.core.frames import check_text, ranked
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.text import regex_word
from pyterrier_debias.data import planted_material as material

FEMALE_WORDS = frozenset({"she", "her", "hers", "herself"})
MALE_WORDS = frozenset({"he", "him", "his", "himself"})

BIASES = ("position", "gender", "linguistic")
#: The three biases that an audit examines only on request.
FURTHER_BIASES = ("source", "length", "order")
#: The word that marks texts of a language model in planted collections.
MACHINE_WORD = "moreover"

#: For the ranker that prefers early matches: after how many words a match counts 1/e of a match at the start.
REACH = 20.0
#: The largest bonus for the words of one gender, in matched words.
GENDER_PULL = 2.0
#: Standard deviation, in matched words, of the guesses of a ranker that does not understand a query.
CONFUSION = 2.0
#: Bonuses, in matched words, for a text of a language model, a doubling of a text's length, and the top of the given list.
SOURCE_PULL, LENGTH_PULL, ORDER_PULL = 1.0, 1.0, 2.0
#: After how many ranks a place in the given list counts 1/e of the first.
ORDER_REACH = 10.0

_SUBORDINATE = frozenset(
    "that which who whom whose whether if unless provided supposing assuming insofar although because while where as".split()
)


def wording_complexity(query: str) -> float:
    """Compute the complexity of a query's wording, from its length and its subordinate clauses.

    Args:
        query: The query.

    Returns:
        A number in [0, 1]: the mean of (words - 8) / 32 and of (subordinating words - 1) / 7, each clipped to [0, 1].

    Example:
        >>> wording_complexity("who built the ship")
        0.0
        >>> wording_complexity("who built the ship if it was built and if so whether that is known")
        0.3950892857142857
    """
    words = regex_word(query)
    clauses = sum(word in _SUBORDINATE for word in words)
    return (min(max((len(words) - 8) / 32, 0.0), 1.0) + min(max((clauses - 1) / 7, 0.0), 1.0)) / 2


def keyed_noise(seed: int, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
    """Draw two independent numbers from the standard normal distribution for each pair of texts.

    Args:
        seed: Seed of the noise.
        queries: n queries.
        texts: The texts of n documents, not their docnos, so that a changed text has noise of its own.

    Returns:
        Shape [n, 2]; Box-Muller on a keyed hash, hence the same on every platform and for every batch and order.
    """
    digest = b"".join(
        blake2b(f"{seed}\0{query}\0{text}".encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for query, text in zip(queries, texts)
    )
    uniform = (np.frombuffer(digest, dtype=">u8").reshape(-1, 2).astype(np.float64) + 1) / (2.0**64 + 2)
    radius, angle = np.sqrt(-2 * np.log(uniform[:, 0])), 2 * np.pi * uniform[:, 1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def machine_written(text: str) -> str:
    """Mark a text as written by a planted language model: the same words after one word that identifies it.

    Args:
        text: The text.

    Returns:
        The text after :data:`MACHINE_WORD`, which occurs in no query and no passage of a planted collection.

    Example:
        >>> machine_written("a yard built the ship")
        'moreover a yard built the ship'
    """
    return f"{MACHINE_WORD} {text}"


class PlantedRanker(Stage):
    """A reranker with one known bias of a chosen strength, to test whether an audit finds it.

    Input: a result frame with ``qid``, ``docno``, ``query`` and ``text``. Output: the same rows, scored and ranked.

    A pair's score is the number of the query's distinct content words that occur in the text, plus noise. A bias changes it in
    proportion to its strength s:

    - ``'position'``: a word whose first occurrence is after p words counts 1 - s + s exp(-p / 20), so early matches count more;
    - ``'gender'``: s times up to 2 is added, in proportion to the excess (at most 3) of one gender's pronouns over the
      other's;
    - ``'linguistic'``: with c the complexity of the query's wording (:func:`wording_complexity`), the count is multiplied by
      1 - s c, and a guess with standard deviation 2 s c is added: the more complex the wording, the more is guessed;
    - ``'source'``: s is added to texts of a planted language model (:func:`machine_written`);
    - ``'length'``: s is added for each doubling of a text's words. (Longer texts contain more of a query's words by chance, so
      the twin has a slight preference, too);
    - ``'order'``: 2 s exp(-r / 10) is added to the document that was given at rank r; this needs the column ``rank``, and is the
      only bias with scores that depend on more than query and text.

    At strength 0 all of them are the same unbiased ranker, whose count does not depend on the order of words. Noise is drawn for
    a seed, a query and a text, never for a docno: the twin gives a rotated passage noise of its own, exchangeable with the
    original's, so that a test of the original against the rotated passage is a true null with variance. A biased ranker and
    its twin share their noise.

    When not to use it: for ranking.

    Example:
        >>> import pandas as pd
        >>> pairs = pd.DataFrame({
        ...     "qid": "q1", "query": "who built the ship", "docno": ["d1", "d2"],
        ...     "text": ["In that year, or shortly afterwards, a yard built the ship.", "Built in a year: the ship of the yard."],
        ... })
        >>> PlantedRanker("position", strength=1.0, noise=0.0)(pairs)["docno"].tolist()
        ['d2', 'd1']
        >>> PlantedRanker("position", strength=0.0, noise=0.0)(pairs)["score"].tolist()
        [2.0, 2.0]
    """

    schematic = {"label": "PlantedRanker", "help_url": None}  # noqa: RUF012
    pieces = "scores"

    def __init__(
        self,
        bias: str = "position",
        *,
        strength: float = 1.0,
        noise: float = 0.3,
        favours: str = "female",
        seed: int = 0,
        text_field: str = "text",
        verbose: bool = False,
    ):
        """
        Args:
            bias: ``'position'``, ``'gender'``, ``'linguistic'``, ``'source'``, ``'length'`` or ``'order'``.
            strength: In [0, 1]; 0 is the unbiased twin.
            noise: Standard deviation of the noise, in matched words; at least 0.
            favours: Which pronouns the gender bias prefers: ``'female'`` or ``'male'``.
            seed: Seed of the noise.
            text_field: The column that holds the documents' text.
            verbose: Whether to show progress.

        An option out of range raises an InputError when the ranker is first used.
        """
        self.bias = bias
        self.strength = strength
        self.noise = noise
        self.favours = favours
        self.seed = seed
        self.text_field = text_field
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Score and rank; see the class."""
        given = ["rank"] if self.bias == "order" else []
        pt.validate.result_frame(inp, extra_columns=["query", self.text_field, *given], context=self)
        self._check()
        check_text(inp, "query", self)
        check_text(inp, self.text_field, self)
        if len(inp) == 0:
            return ranked(inp, self)
        scores = self.scores(inp["query"].tolist(), inp[self.text_field].tolist())
        if self.bias == "order":
            scores += self.strength * ORDER_PULL * np.exp(-inp["rank"].to_numpy(dtype=float) / ORDER_REACH)
        return ranked(inp.assign(score=scores), self)

    def scores(self, queries: Sequence[str], texts: Sequence[str]) -> np.ndarray:
        """Score pairs.

        Args:
            queries: n queries.
            texts: n texts.

        Returns:
            float64 scores, shape [n]; without the addition of the bias ``'order'`` for a given rank.
        """
        asked = {query: set(regex_word(query)) - material.FUNCTION_WORDS for query in set(queries)}
        read: dict[str, dict[str, int]] = {}
        match = np.empty(len(texts))
        early = self.bias == "position" and self.strength > 0
        pairs = pt.tqdm(zip(queries, texts), total=len(texts), desc="PlantedRanker", disable=not self.verbose)
        for i, (query, text) in enumerate(pairs):
            if text not in read:
                read[text] = _first_positions(text)
            first = read[text]
            places = [first[word] for word in asked[query] if word in first]
            if early:
                match[i] = sum(1 - self.strength + self.strength * math.exp(-p / REACH) for p in sorted(places))
            else:
                match[i] = len(places)
        noise = keyed_noise(self.seed, queries, texts)
        if self.bias == "gender":
            lean = {text: _lean(text) for text in read}
            sign = 1.0 if self.favours == "female" else -1.0
            match += sign * self.strength * GENDER_PULL * np.array([lean[text] for text in texts])
        elif self.bias == "linguistic":
            complexity = {query: wording_complexity(query) for query in asked}
            lost = self.strength * np.array([complexity[query] for query in queries])
            match = (1 - lost) * match + lost * CONFUSION * noise[:, 1]
        elif self.bias == "source":
            match += self.strength * SOURCE_PULL * np.array([MACHINE_WORD in read[text] for text in texts], dtype=float)
        elif self.bias == "length":
            words = {text: len(regex_word(text)) for text in read}
            match += self.strength * LENGTH_PULL * np.log2([1 + words[text] for text in texts])
        return match + self.noise * noise[:, 0]

    def _check(self) -> None:
        """Refuse options out of range."""
        check_choice("PlantedRanker", "bias", self.bias, BIASES + FURTHER_BIASES)
        check_choice("PlantedRanker", "favours", self.favours, ("female", "male"))
        check_number("PlantedRanker", "strength", self.strength, least=0, most=1)
        check_number("PlantedRanker", "noise", self.noise, least=0)
        check_number("PlantedRanker", "seed", self.seed, whole=True)


def _first_positions(text: str) -> dict[str, int]:
    """Each word of a text, and how many words precede its first occurrence."""
    words = regex_word(text)
    return dict(zip(reversed(words), range(len(words) - 1, -1, -1)))


def _lean(text: str) -> float:
    """Excess of female over male pronouns, in [-1, 1]; an excess of three or more is 1."""
    words = regex_word(text)
    excess = sum(map(FEMALE_WORDS.__contains__, words)) - sum(map(MALE_WORDS.__contains__, words))
    return min(max(excess / 3, -1.0), 1.0)
