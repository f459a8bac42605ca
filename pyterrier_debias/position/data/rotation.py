"""RotatePassages: cuts every passage at a random word and swaps the two parts; and functions for the new positions of words.

Symbols of Hofstätter et al. 2021: a passage has words p_1 .. p_n; rotated at r it reads p_r .. p_n p_1 .. p_{r-1}. Here the
offset is r - 1, the number of units moved from the front to the end, and positions count from 0.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.caches import VARIANT, marked, variant_name
from pyterrier_debias.core.errors import InputError, check_choice, check_number
from pyterrier_debias.core.frames import check_text, with_string_ids
from pyterrier_debias.core.scripts import Segmenter, joint, places_of, sentences, units
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.telling import warn_of
from pyterrier_debias.core.text import Tokeniser, as_name, get_tokeniser, keyed_draws

#: ``turn(text, docno, qid)`` gives the rotated text and the offset.
Rotator = Callable[..., tuple[str, int]]

logger = logging.getLogger(__name__)

#: In how many equal parts a chance is divided.
_CHANCES = 2**32


def rotate(units: Sequence[str], offset: int) -> list[str]:
    """Move the first units to the end.

    Args:
        units: n words or sentences.
        offset: How many to move; taken modulo n, so ``-offset`` undoes ``offset``.

    Returns:
        The n units in their new order.

    Example:
        >>> rotate(["a", "b", "c"], 1), rotate(rotate(["a", "b", "c"], 1), -1)
        (['b', 'c', 'a'], ['a', 'b', 'c'])
    """
    offset = offset % len(units) if units else 0
    return [*units[offset:], *units[:offset]]


def moved(position: Any, offset: Any, n: Any) -> Any:
    """The position of a word after rotation: (position - offset) mod n.

    In the paper's notation, a word at position a is at ((a - r) mod n) + 1 afterwards. If the offset is uniform on
    {0, ..., n-1}, so is the new position, whatever the old one was.

    Args:
        position: From 0 to n - 1; an integer or an array.
        offset: How many words were moved from the front to the end.
        n: How many words the passage has.

    Returns:
        The new position, from 0 to n - 1.

    Example:
        >>> moved(1, 2, 5)
        4
    """
    return (position - offset) % n


def is_cut(position: Any, length: Any, offset: Any, n: Any) -> Any:
    """Whether rotation cuts a run of words in two, so that its first words end the passage and the others begin it.

    Of the n offsets, L - 1 cut a run of L words.

    Args:
        position: Where the run begins before rotation, from 0.
        length: L, how many words it has.
        offset: How many words were moved from the front to the end.
        n: How many words the passage has.

    Returns:
        True or False, or an array of them.
    """
    return moved(position, offset, n) + length > n


def occurrences(words: Sequence[str], sought: Sequence[str]) -> list[int]:
    """All positions, from 0, at which a run of words begins, including overlapping runs.

    Args:
        words: The passage.
        sought: The run; an empty one occurs nowhere.

    Returns:
        The positions in ascending order.

    Example:
        >>> occurrences("to be or not to be".split(), ["to", "be"])
        [0, 4]
    """
    length = len(sought)
    if not length:
        return []
    first, run = sought[0], list(sought)
    return [i for i in range(len(words) - length + 1) if words[i] == first and list(words[i : i + length]) == run]


def word_spans(text: str, words: Sequence[str]) -> list[tuple[int, int]]:
    """The places of a tokeniser's words in the text.

    Args:
        text: The text.
        words: Its words in order, each a piece of the text: unchanged, lower-cased, or in another Unicode normal form.

    Returns:
        One (start, end) per word, in characters, end exclusive.

    Raises:
        InputError: If a word is not a piece of the text, because the tokeniser rewrites it.

    Example:
        >>> word_spans("so, it is", ["so,", "it", "is"])
        [(0, 3), (4, 6), (7, 9)]
    """
    spans = places_of(text, words)
    if spans is None:
        raise InputError(
            f"the tokeniser's words {list(words[:5])!r} are not successive pieces of the text {text[:40]!r}; character offsets "
            f"need a tokeniser that returns pieces of the text"
        )
    return spans


def rotated_text(text: str, spans: Sequence[tuple[int, int]], offset: int) -> str:
    """Move the first units of a text to the end, and keep all its white space.

    The text between the two parts moves between the last unit and the first; if there is none (Chinese, Thai), a blank may be
    added, see :func:`~pyterrier_debias.core.scripts.joint`. Text before the first unit and after the last is not moved.

    Args:
        text: The text.
        spans: The places of its n units, at least one.
        offset: How many units to move; taken modulo n.

    Returns:
        The rotated text. Rotating it by ``-offset`` restores the text if there is something between units.

    Example:
        >>> rotated_text("one two\\nthree", [(0, 3), (4, 7), (8, 13)], 2)
        'three\\none two'
    """
    offset %= len(spans)
    if not offset:
        return text
    first, last = spans[0][0], spans[-1][1]
    before, cut = spans[offset - 1][1], spans[offset][0]
    between = text[before:cut] or joint(text[:last], text[first:])
    return "".join((text[:first], text[cut:last], between, text[first:before], text[last:]))


def words_of_span(spans: Sequence[tuple[int, int]], start: int, end: int) -> tuple[int, int]:
    """The words that a stretch of characters touches.

    Args:
        spans: What :func:`word_spans` returned.
        start: First character, from 0.
        end: One past the last character.

    Returns:
        The position of the first word touched, from 0, and the number of words touched, which may be 0.

    Example:
        >>> words_of_span([(0, 3), (4, 6), (7, 9)], 5, 9)
        (1, 2)
    """
    first = bisect_right(spans, start, key=itemgetter(1))
    return first, max(0, bisect_left(spans, end, key=itemgetter(0)) - first)


def bin_of(position: Any, n: Any, bins: int) -> Any:
    """Which of the equal parts of a passage a position falls into: floor(bins * position / n), in integer arithmetic.

    Args:
        position: From 0 to n - 1; an integer or an array.
        n: How many words the passage has.
        bins: How many parts.

    Returns:
        The number of the part, from 0 to ``bins`` - 1.
    """
    return position * bins // n


def bin_shares(n: int, bins: int, length: int = 1) -> np.ndarray:
    """The probability that a run of words begins in each bin, if all whole places (starts 0 to n - length) are equally likely.

    For a single word this is also the distribution of its bin over all rotations, and so it is for the first word of any run.

    Args:
        n: How many words the passage has.
        bins: How many bins.
        length: How many words the run has, at most n.

    Returns:
        Shape [bins]; the sum is 1.

    Example:
        >>> bin_shares(5, 2).tolist(), bin_shares(5, 2, length=4).tolist()
        ([0.6, 0.4], [1.0, 0.0])
    """
    starts = n - length + 1
    edges = np.minimum(-(-np.arange(bins + 1) * n // bins), starts)
    return np.diff(edges) / starts


def rotation_null(
    position: np.ndarray, n: np.ndarray, passage: np.ndarray, bins: int, *, resamples: int, seed: int, block: int = 64
) -> np.ndarray:
    """Histograms of positions if each passage is rotated by its own offset, drawn uniformly and independently.

    All answers of a passage are rotated together, so that the dependence between them is kept.

    Args:
        position: Shape [answers], from 0 to n - 1.
        n: Shape [answers], the number of words of the answer's passage.
        passage: Shape [answers], codes of the passages, from 0; answers with the same code have the same n.
        bins: How many bins.
        resamples: How many histograms.
        seed: Any integer.
        block: How many histograms are drawn at a time; it changes the use of memory, not the result.

    Returns:
        Counts, shape [resamples, bins].
    """
    rng = np.random.default_rng(seed)
    words = np.zeros(passage.max(initial=-1) + 1, dtype=np.int64)
    words[passage] = n
    counts = []
    for begin in range(0, resamples, block):
        rows = min(block, resamples - begin)
        offsets = rng.integers(0, words, size=(rows, len(words)))
        drawn = bin_of(moved(position, offsets[:, passage], n), n, bins) + bins * np.arange(rows)[:, None]
        counts.append(np.bincount(drawn.ravel(), minlength=rows * bins).reshape(rows, bins))
    return np.concatenate(counts)


class RotatePassages(RowWise):
    """Rotate each passage at a random word, so that position carries no information.

    A passage p_1 .. p_n becomes p_r .. p_n p_1 .. p_{r-1} with r uniform on {1, ..., n} (Hofstätter, Lipani, Althammer,
    Zlabinger and Hanbury, "Mitigating the Position Bias of Transformer Models in Passage Re-Ranking", ECIR 2021).
    All words are kept, and all pairs of neighbours except one. Queries are not changed. Put this stage before any truncation, as
    the paper's released code does.

    Input: any frame or stream with ``docno`` and the text column (documents, results, ``transform_iter`` before an indexer);
    with ``scope='pair'`` also ``qid``. Output: the same rows and columns in the same order, with the text column rotated, and

    - ``rotation``: how many units were moved from the front to the end, from 0 (nothing moved) to n - 1; r - 1 in the paper;
    - ``text_variant`` if there is a ``qid``: the docno and a hash of the rotated text, for caches;
    - ``text_orig`` with ``keep_original=True``: the original text.

    Terrier indexes in a separate thread, where an error would be lost. A pipeline that begins with this stage (or any other of
    this package) and ends in an indexer raises such an error all the same.

    ``docno``, ``score`` and ``rank`` are kept. Score *after* rotation: scores in the input belong to the original text. After
    this stage, a cache that identifies documents by docno is refused; use ``ScorerCache(path, ranker, key='text_variant')`` with
    a separate folder. Offsets of answers (``start``, ``end``) are kept, too, although they are those in the original text;
    ``AnswerPositions`` and ``PositionSensitivity`` notice this, and search for the answers' strings.

    The draw depends only on ``seed``, docno (and qid) and ``draw``, not on the order of rows or the size of batches. An empty or
    one-word passage is not changed; a warning gives the share of such passages.

    Raises:
        InputError: For an option that is unknown or out of range, when the stage is first used.

    When not to use it: except as a check, on text whose order is part of the content (dialogues, code, lists of steps); with
    ``unit='sentence'`` to make answer positions uniform (they do not become so, see ``AnswerPositions``, and passages without
    punctuation do not change at all); as a cure for a ranker that is already trained, which it only probes: to remove the bias,
    train on its output.

    Example:
        >>> import pandas as pd
        >>> docs = pd.DataFrame({"docno": ["d1"], "text": ["the answer sits at the very front"]})
        >>> out = RotatePassages(seed=1)(docs)
        >>> out["text"][0], int(out["rotation"][0])
        ('answer sits at the very front the', 1)

        In a pipeline: ``bm25 >> texts >> RotatePassages(seed=1) >> CrossEncoder(...)``; before an indexer:
        ``(RotatePassages() >> indexer).index(dataset.get_corpus_iter())``. An index whose ``meta`` names
        ``rotation`` stores it as text, since Terrier stores nothing else.

    .. cite.dblp:: journals/corr/abs-2101-06980
    """

    schematic = {"label": "RotatePassages", "help_url": None}  # noqa: RUF012

    def __init__(
        self,
        *,
        unit: str = "word",
        tokeniser: str | Tokeniser = "whitespace",
        scope: str = "passage",
        allow_identity: bool = True,
        seed: int = 208973249,
        draw: int = 0,
        offset: int | None = None,
        share: float = 1.0,
        text_field: str = "text",
        keep_original: bool = False,
        verbose: bool = False,
        segmenter: Segmenter | None = None,
    ):
        """
        Args:
            unit: ``'word'``, the published method, or ``'sentence'``, which its authors tried in a pilot and rejected.
            tokeniser: What counts as a word. ``'whitespace'`` (default) keeps line breaks and tabs, and leaves a passage that is
                not moved exactly as it was; in scripts without blanks between words (Chinese, Japanese, Thai) it also cuts
                inside runs, see ``segmenter``. ``'blingfire'``, which the released code used, separates punctuation and joins
                all tokens with spaces, even in a passage that is not moved. Or a function from a text to its words. Has no
                effect with ``unit='sentence'``.
            scope: ``'passage'``: one draw per document, as in the paper's text; ``'pair'``: one draw per query and document, as
                in the released evaluation.
            allow_identity: Whether "nothing moved" may be drawn (probability 1/n), as in the paper. Needed by anything that
                compares several draws with the original (``PositionSensitivity``).
            seed: Any integer. The default is that of the released code, but the draws differ from it.
            draw: The number of an independent draw under this seed: 0, 1, 2, ... give different rotations of a passage.
            offset: How many units are moved from the front of every passage to its end, instead of a random number: r - 1 in the
                paper. It is taken modulo the number of units, so that ``-offset`` undoes ``offset``. None draws at random.
            share: The chance that a passage is rotated at all, drawn like the rotation. With .5, ``Training(augment=...)`` shows
                each passage rotated in half of the epochs and original in the others. Not in the paper.
            text_field: The column to rotate.
            keep_original: Whether to add ``text_orig``.
            verbose: Whether to show progress.
            segmenter: With ``'whitespace'``: a function that cuts text without blanks into words that are pieces of it, such as
                ``jieba.lcut`` or PyThaiNLP's ``word_tokenize``. None: each ideograph and kana is a word, and in other scripts
                each grapheme cluster; this may split a word of several, but never separates a letter from its marks.
        """
        self.unit = unit
        self.tokeniser = tokeniser
        self.scope = scope
        self.allow_identity = allow_identity
        self.seed = seed
        self.draw = draw
        self.offset = offset
        self.share = share
        self.text_field = text_field
        self.keep_original = keep_original
        self.verbose = verbose
        self.segmenter = segmenter

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rotate the passages of a frame; see the class.

        Raises:
            InputError: If an option is unknown, an identifier is missing, or a text is missing or not a string.
        """
        pt.validate.columns(inp, includes=self._columns(), context=self)
        turn = self.rotator()
        check_text(inp, self.text_field, self)
        originals = inp[self.text_field].tolist()
        docnos = inp["docno"].tolist()
        qids = inp["qid"].tolist() if self.scope == "pair" else [""] * len(inp)
        rows = pt.tqdm(zip(originals, docnos, qids), total=len(inp), desc="RotatePassages", disable=not self.verbose)
        turned = [turn(text, docno, qid) for text, docno, qid in rows]
        still = [text for text, (_, offset) in zip(originals, turned) if offset == 0]
        self._warn_of_fixed(sum(map(self.cannot_turn(), still)), len(inp))
        added: dict[str, Any] = {"text_orig": inp[self.text_field]} if self.keep_original else {}
        added[self.text_field] = pd.Series([text for text, _ in turned], index=inp.index, dtype="str")
        added["rotation"] = np.array([offset for _, offset in turned], dtype=np.int64)
        return marked(inp.assign(**added), self.text_field)

    def changes(self) -> frozenset[str]:
        """The text column; see :class:`~pyterrier_debias.core.stage.Stage`."""
        return frozenset({self.text_field})

    def transform_iter(self, inp: pt.model.IterDict) -> pt.model.IterDict:
        """Rotate the passages of a stream of dictionaries, one at a time; see the class.

        Raises:
            InputError: If an option is unknown, or a text is missing or not a string.
        """
        inp = pt.utils.peekable(inp)
        try:
            inp.peek()
        except StopIteration:
            return iter(())
        pt.validate.columns_iter(inp, includes=self._columns(), context=self)
        return self._stream(inp, self.rotator())

    def _stream(self, documents: Any, turn: Rotator) -> Iterator[dict[str, Any]]:
        attr, pair, keep, ids = self.text_field, self.scope == "pair", self.keep_original, self._ids()
        fixed = number = 0
        cannot_turn = self.cannot_turn()
        for document in pt.tqdm(documents, desc="RotatePassages", disable=not self.verbose):
            text = document.get(attr)
            if not isinstance(text, str) or any(type(document.get(column)) not in (str, int) for column in ids):
                one = pd.DataFrame([{name: document.get(name) for name in self._columns()}], dtype=object)
                try:
                    check_text(with_string_ids(one, self), attr, self)
                except InputError as error:
                    raise InputError(str(error).replace("at row 0", f"at row {number}")) from None
            out = dict(document, text_orig=text) if keep else dict(document)
            out[attr], offset = turn(text, as_name(document["docno"]), as_name(document["qid"]) if pair else "")
            out["rotation"] = offset
            if "qid" in document:
                before = document.get(VARIANT)  # missing where texts that were changed before and others were joined
                out[VARIANT] = variant_name(document["docno"], out[attr], before if isinstance(before, str) else "")
            number += 1
            if offset == 0:
                fixed += cannot_turn(text)
            yield out
        self._warn_of_fixed(fixed, number)

    def cannot_turn(self) -> Callable[[str], bool]:
        """A function that tells whether a text has fewer than two units, so that no draw can change it.

        Raises:
            InputError: If the unit or tokeniser is unknown.

        Example:
            >>> [RotatePassages().cannot_turn()(text) for text in ("tea", "green tea", "绿茶")]
            [True, False, False]
        """
        split = self.splitter()
        return lambda text: len(split(text)) < 2

    @property
    def rewrites(self) -> bool:
        """Whether the tokeniser joins words with blanks, even in a text in which nothing is moved."""
        return self.unit == "word" and self.tokeniser != "whitespace"

    def unmoved(self) -> Callable[[str], str]:
        """A function that returns a text as rotations are compared with it: not moved, but rewritten if the tokeniser does so.

        Raises:
            InputError: If the tokeniser is unknown.

        Example:
            >>> [RotatePassages(tokeniser=name).unmoved()("Tea,  please") for name in ("whitespace", "regex_word")]
            ['Tea,  please', 'tea please']
        """
        if not self.rewrites:
            return lambda text: text
        turn = RotatePassages(tokeniser=self.tokeniser, offset=0).rotator()
        return lambda text: turn(text, "")[0]

    def _warn_of_fixed(self, fixed: int, number: int) -> None:
        if fixed:
            warn_of(
                logger,
                f"RotatePassages: %d of %d passages have fewer than two units of rotation ({self.unit}) and never change; they "
                f"show nothing about position bias",
                fixed,
                number,
            )

    def rotator(self, draw: int | None = None) -> Rotator:
        """A function that rotates one text, for code outside a pipeline, such as training with new draws in each epoch.

        Args:
            draw: The number of the independent draw; None means the stage's own.

        Returns:
            ``turn(text, docno, qid='')``, which returns the rotated text and how many units were moved; ``qid`` matters only with
            ``scope='pair'``.

        Raises:
            InputError: If an option is unknown or out of range, or ``offset`` is set together with ``share``, another draw or
                ``allow_identity=False``.

        Example:
            >>> RotatePassages().rotator(draw=3)("one two three four", "d1")
            ('two three four one', 1)
        """
        split = self.splitter()
        # What rewrites a text must do so in every rotation of it alike, the identity included.
        keeps = not self.rewrites
        by_blanks = self.unit == "word" and self.tokeniser == "whitespace"
        pair = _one_of("scope", self.scope, ("passage", "pair")) == "pair"
        first = 0 if self.allow_identity else 1
        draw = self.draw if draw is None else draw
        check_number("RotatePassages", "draw", draw, whole=True)
        check_number("RotatePassages", "seed", self.seed, whole=True)
        check_number("RotatePassages", "share", self.share, above=0, most=1)
        fixed = self.offset
        if fixed is not None:
            check_number("RotatePassages", "offset", fixed, whole=True, hint="it counts units; None draws one at random")
            if draw != 0 or first or self.share < 1:
                raise InputError(
                    f"RotatePassages: offset={fixed} leaves nothing to draw; leave out draw, share and allow_identity, or leave "
                    f"out offset"
                )
        # Four lengths of key, so that no qid can be mistaken for the number of a draw.
        after = [] if draw == 0 else ["draw", str(draw)]
        drawn = keyed_draws(self.seed, ["rotation"], after)
        chosen, least = keyed_draws(self.seed, ["rotated"], after), self.share * _CHANCES

        def turn(text: str, docno: str, qid: str = "") -> tuple[str, int]:
            pieces = text.split() if by_blanks and text.isascii() else split(text)
            n = len(pieces)
            if n < 2:
                return text, 0
            ids = (docno, qid) if pair else (docno,)
            if fixed is not None:
                offset = int(fixed) % n
            elif least < _CHANCES and chosen(_CHANCES, *ids) >= least:
                offset = 0
            else:
                offset = first + drawn(n - first, *ids)
            if offset == 0 and keeps:
                return text, 0
            if not keeps:
                return " ".join(rotate(pieces, offset)), offset
            head, tail = " ".join(pieces[:offset]), " ".join(pieces[offset:])
            # Most passages have single blanks between words and no other white space: then words need not be looked for.
            if text == f"{head} {tail}":
                return f"{tail} {head}", offset
            return rotated_text(text, word_spans(text, pieces), offset), offset

        return turn

    def by_docno(self) -> tuple[str, str] | None:
        """The draw, unless the offset is fixed; see :class:`~pyterrier_debias.core.stage.Stage`."""
        drawn = "draws a rotation for each docno"
        return (drawn, "average over rotations (AverageRotations)") if self.offset is None else None

    def splitter(self) -> Tokeniser:
        """A function that cuts a text into the units that are rotated.

        Raises:
            InputError: If the unit or tokeniser is unknown.
        """
        if _one_of("unit", self.unit, ("word", "sentence")) == "sentence":
            return sentences
        if self.tokeniser == "whitespace":
            return units if self.segmenter is None else partial(units, segmenter=self.segmenter)
        if self.segmenter is not None:
            raise InputError(
                "RotatePassages: segmenter works only with tokeniser='whitespace'; leave one of the two out"
            )
        return get_tokeniser(self.tokeniser)

    def _ids(self) -> list[str]:
        """The columns on which the draw depends."""
        return ["docno", *(["qid"] if self.scope == "pair" else [])]

    def _columns(self) -> list[str]:
        return ["docno", self.text_field, *self._ids()[1:]]


def _one_of(option: str, value: str, known: tuple[str, ...]) -> str:
    check_choice("RotatePassages", option, value, known)
    return value
