"""Words in any script: what a word is, where words are in a text, and where a text may be cut.

A word is a run of letters, digits and their combining marks (vowel signs, points, accents), including the joiners of Indic and
Arabic script and invisible characters such as the soft hyphen. In scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer,
Burmese) a run contains many words, and only a dictionary could tell where they end. There each ideograph and kana is one word,
and so is each grapheme cluster of the other scripts (Unicode Standard Annex 29), unless the user gives a segmenter.

Texts that look alike can be stored in several forms (``é`` as one character or as two): they are compared in normal form C,
without invisible characters, but written back unchanged.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import regex

from pyterrier_debias.core.errors import InputError

#: From a stretch of text without blanks to its words, in their order.
Segmenter = Callable[[str], Iterable[str]]

# Scripts without blanks between words: ideographs, kana, and those that Unicode calls "complex context" (South East Asian).
_SCRIPTS = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\p{Line_Break=Complex_Context}"
# Marks of length and repetition continue what stands before them. Ideographs that are numbers count as letters here.
_BASE = rf"[[{_SCRIPTS}]&&[\p{{L}}\p{{N}}]--\p{{Lm}}]"
_LETTER = r"[\p{L}\p{N}_]"
_SPACED = rf"[{_LETTER}--{_BASE}]"
_ALONE = rf"(?={_BASE})\X\p{{Lm}}*+"
_OPENING = r"[\p{Ps}\p{Pi}]"
# Soft hyphen, word joiner, byte order mark and marks of direction do not end a word (Unicode Standard Annex 29, rule WB4).
_INVISIBLE = r"\u00AD\u2060\uFEFF\u200E\u200F"
_JOINERS = rf"\u200C\u200D{_INVISIBLE}"


def _compiled(pattern: str) -> regex.Pattern[str]:
    return regex.compile(pattern, regex.V1)


_WORD = _compiled(rf"{_ALONE}|{_SPACED}(?:[{_SPACED}\p{{M}}]|[{_JOINERS}]+(?={_SPACED}))*+")
_PLAIN_WORD = re.compile(r"\w+")
_UNSPACED = _compiled(_BASE)
_UNSEEN = re.compile(f"[{_INVISIBLE}]+")
_OPENINGS = _compiled(rf"{_OPENING}*")
_STRETCH = _compiled(rf"(?:{_ALONE})+")
_CLUSTER = _compiled(r"\X")
_RUN = re.compile(r"\S+")
# A piece of a run without blanks: closing signs stay with what they close, opening ones with what they open.
_PIECE = _compiled(
    rf"{_OPENING}*+(?:{_ALONE}(?:(?![{_LETTER}{_OPENING}])\X)*+|(?:(?!{_OPENING}*+{_BASE})\X)+)|{_OPENING}+"
)
# Where no blank is due: after and before letters of these scripts, and their full-width punctuation.
_TIGHT = _compiled(rf"[{_SCRIPTS}\u3000-\u303F\uFF00-\uFFEF]")


@cache
def _searched(characters: str) -> re.Pattern[str]:
    """A class of characters for the standard library's expressions, which search much faster; of those beyond 16 bits, all."""
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000)]))
    runs = [run.group() for run in regex.finditer(rf"[{characters}]+", everything, regex.V1)]
    return re.compile("[" + "".join(f"{re.escape(run[0])}-{re.escape(run[-1])}" for run in runs) + "\U00010000-\U0010FFFF]")


def more_characters() -> str:
    """The characters of 16 bits that make :func:`has_more` true; all beyond do."""
    everything = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x10000)]))
    return "".join(regex.findall(rf"[{_BASE}\p{{M}}{_JOINERS}]+", everything, regex.V1))


def has_more(text: str) -> bool:
    r"""Whether ``\w+`` may cut a word of the text in pieces, or leave several in one."""
    return not text.isascii() and _searched(rf"{_BASE}\p{{M}}{_JOINERS}").search(text) is not None


def word_pattern(text: str) -> re.Pattern[str] | regex.Pattern[str]:
    """The regular expression that finds the words of a text: the faster of two if it is enough, otherwise the complete one."""
    return _WORD if has_more(text) else _PLAIN_WORD


@cache
def _token_patterns(pattern: str) -> tuple[re.Pattern[str], regex.Pattern[str]]:
    marked = rf"(?:{_LETTER}(?:\p{{M}}|[{_JOINERS}]+(?={_LETTER}))*+)"
    sign = r"(?:(?![\s\x1C-\x1F])\X)"
    wider = pattern.replace(r"\w", marked).replace(r"\S", sign).replace(r"[^\W\d_]", r"(?:\p{L}\p{M}*+)")
    flags = regex.VERBOSE | regex.IGNORECASE
    return re.compile(pattern, re.VERBOSE | re.IGNORECASE), regex.compile(wider, flags | regex.V1)


def token_pattern(pattern: str, text: str) -> re.Pattern[str] | regex.Pattern[str]:
    r"""An expression over ``\w``, ``\S`` and ``[^\W\d_]``, in which marks belong to letters if the text needs it.

    Args:
        pattern: The expression, verbose and in any case.
        text: What it is to be searched in, without stretches of scripts without blanks.
    """
    return _token_patterns(pattern)[has_more(text)]


def composed(text: str) -> str:
    """A text in normal form C without invisible characters, in which texts that look alike are equal.

    Example:
        >>> composed("cafe\\u0301") == "caf\\u00e9", composed("wo\\u00adman")
        (True, 'woman')
    """
    return text if text.isascii() else unicodedata.normalize("NFC", _UNSEEN.sub("", text))


def folded(text: str) -> str:
    """The form of a text for comparisons that ignore case and the form of apostrophes and accents.

    Example:
        >>> folded("Don\\u2019t") == folded("don't"), folded("STRASSE") == folded("Straße")
        (True, True)
    """
    if text.isascii():
        return text.lower()
    return composed(unicodedata.normalize("NFD", text).casefold()).replace("\u2019", "'")


def is_unspaced(text: str) -> bool:
    """Whether a text contains letters of a script that is written without blanks between words.

    Example:
        >>> is_unspaced("green tea"), is_unspaced("お茶")
        (False, True)
    """
    found = None if text.isascii() else _searched(_BASE).search(text)
    return found is not None and (found.group() < "\U00010000" or _UNSPACED.search(text, found.start()) is not None)


def word_places(text: str, segmenter: Segmenter | None = None) -> list[tuple[int, int]]:
    """The places of the words in a text.

    Args:
        text: Any text.
        segmenter: A function that cuts text in scripts without blanks; None cuts by ideograph, kana or grapheme cluster.

    Returns:
        One (start, end) per word, in characters, end exclusive.

    Raises:
        InputError: If the words of the segmenter are not pieces of the text.

    Example:
        >>> text = "हिन्दी and 东京"
        >>> [text[start:end] for start, end in word_places(text)]
        ['हिन्दी', 'and', '东', '京']
        >>> [text[start:end] for start, end in word_places(text, lambda stretch: [stretch])]
        ['हिन्दी', 'and', '东京']
    """
    places = [found.span() for found in word_pattern(text).finditer(text)]
    if segmenter is None or not is_unspaced(text):
        return places
    inside = _starts(text, segmenter)
    joined: list[tuple[int, int]] = []
    for start, end in places:
        if joined and start not in inside and joined[-1][1] == start and _UNSPACED.match(text, start):
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return joined


def unspaced_places(text: str, segmenter: Segmenter | None = None) -> list[tuple[int, int]]:
    """The places from :func:`word_places` of words in scripts without blanks."""
    if not is_unspaced(text):
        return []
    return [place for place in word_places(text, segmenter) if _UNSPACED.match(text, place[0])]


def units(text: str, segmenter: Segmenter | None = None) -> list[str]:
    """The pieces between which a text may be cut: words with their punctuation; in text with blanks, whatever is between these.

    Args:
        text: Any text.
        segmenter: See :func:`word_places`.

    Returns:
        The pieces, which leave out nothing but white space.

    Raises:
        InputError: See :func:`word_places`.

    Example:
        >>> units("Don't  stop, please."), units("他说:「你好!」 OK")
        (["Don't", 'stop,', 'please.'], ['他', '说:', '「你', '好!」', 'OK'])
    """
    if text.isascii() or not is_unspaced(text):
        return text.split()
    inside = None if segmenter is None else _starts(text, segmenter)
    pieces: list[str] = []
    for run in _RUN.finditer(text):
        end = run.start()
        for found in _PIECE.finditer(text, *run.span()):
            piece = found.group()
            letter = found.start() + len(_OPENINGS.match(piece).group())
            # What the segmenter did not part goes to the piece before.
            if inside is not None and end > run.start() and letter not in inside and _UNSPACED.match(text, letter):
                pieces[-1] += piece
            else:
                pieces.append(piece)
            end = found.end()
    return pieces


def _starts(text: str, segmenter: Segmenter) -> set[int]:
    """Where the segmenter's words begin, and every stretch that it was given."""
    found: set[int] = set()
    for stretch in _STRETCH.finditer(text):
        words = list(segmenter(stretch.group()))
        places = places_of(stretch.group(), words)
        if places is None:
            raise InputError(
                f"segmenter: its words {words[:5]!r} are not successive pieces of {stretch.group()[:40]!r}; give a function that "
                f"splits a text without changing it"
            )
        found.add(stretch.start())
        found.update(stretch.start() + start for start, _ in places)
    return found


def places_of(text: str, pieces: Sequence[str]) -> list[tuple[int, int]] | None:
    """The places of pieces in a text: unchanged, lower-cased, or in another normal form.

    Args:
        text: The text.
        pieces: Its pieces in order.

    Returns:
        One (start, end) per piece, in characters, end exclusive; None if one is not a piece of the text.

    Example:
        >>> places_of("So, it is", ["so,", "it", "is"]), places_of("so", ["s", "x"])
        ([(0, 3), (4, 6), (7, 9)], None)
    """
    places = _found(text, text.lower(), pieces)
    if places is not None or text.isascii():
        return places
    # In normal form, with the character that each one came from; a cluster is never cut in two by normalisation.
    clusters = [found.group() for found in _CLUSTER.finditer(text)]
    forms = [composed(cluster.lower()) for cluster in clusters]
    begins, ends, at = [], [], 0
    for cluster, form in zip(clusters, forms):
        begins += [at] * len(form)
        at += len(cluster)
        ends += [at] * len(form)
    plain = "".join(forms)
    places = _found(plain, plain, [composed(piece.lower()) for piece in pieces])
    return None if places is None else [(begins[start], ends[end - 1]) if end > start else (0, 0) for start, end in places]


def _found(text: str, lowered: str, pieces: Sequence[str]) -> list[tuple[int, int]] | None:
    places, end = [], 0
    for piece in pieces:
        start = text.find(piece, end)
        # Lower-casing changes the length of few texts (Turkish dotted I); offsets in those cannot be trusted.
        if len(lowered) == len(text):
            other = lowered.find(piece, end)
            start = other if start < 0 else start if other < 0 else min(start, other)
        if start < 0:
            return None
        end = start + len(piece)
        places.append((start, end))
    return places


def joint(last: str, first: str) -> str:
    """What to put between two pieces that become neighbours: nothing in scripts without blanks, otherwise a blank.

    Args:
        last: The piece before; not empty.
        first: The piece after; not empty.

    Example:
        >>> joint("tea", "time"), joint("茶", "time"), joint("です。", "お")
        (' ', '', '')
    """
    pair = last[-1] + first[0]
    return "" if _TIGHT.search(pair) and not _CLUSTER.fullmatch(pair) else " "


_SENTENCE_END = re.compile(
    r"""
    (?: (?<=[.!?؟۔।॥։።។။]) | (?<=[.!?؟۔।॥։።។။]["')\]”’»]) ) \s+             # scripts with blanks
    | (?: (?<=[。！？｡．]) | (?<=[。！？｡．][」』”’）]) ) (?!(?<=\d．)\d)           # and without; not in a number
      \s* (?![。！？｡．」』”’）\s]) (?!$)
    """,
    re.VERBOSE,
)
_STRAIGHT_QUOTED = re.compile(r'("[^"]*[。！？｡．])"|"[^"]*"')


def sentences(text: str) -> list[str]:
    """Cut a text after ``.``, ``!`` or ``?`` (and a closing quote or bracket) if white space follows.

    The same applies to the marks of other scripts (``।``, ``؟``); full-width marks (``。``) need no white space after them, but
    decimal points (``３．５``) are not cut. This is a rule, not a model: abbreviations such as ``Dr. Brown`` are cut too, and a
    text without such marks (Thai) is one sentence.

    Args:
        text: Any text.

    Returns:
        The sentences without the white space between them; none for a blank text.

    Example:
        >>> sentences('It rains. "Why?" she asked.')
        ['It rains.', '"Why?"', 'she asked.']
        >>> sentences("下雨了。「为什么？」她问。")
        ['下雨了。', '「为什么？」', '她问。']
    """
    text = text.strip()
    if not text:
        return []
    # Where no white space follows, only the order of straight quotes tells which of them close.
    curved = _STRAIGHT_QUOTED.sub(lambda quoted: f"{quoted[1]}”" if quoted[1] else quoted[0], text)
    places = [0, *(place for end in _SENTENCE_END.finditer(curved) for place in end.span()), len(text)]
    return [text[start:end] for start, end in zip(places[::2], places[1::2])]
