"""Profiles of texts: the share of a text's words in each category of a lexicon.

LIWC's dictionary is proprietary and not included: use your own copy of its ``.dic`` file, Empath's open categories, or a mapping.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import pandas as pd
import pyterrier as pt

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.frames import check_text
from pyterrier_debias.core.scripts import composed
from pyterrier_debias.core.stage import RowWise
from pyterrier_debias.core.text import Tokeniser
from pyterrier_debias.gender.data.words import WordList
from pyterrier_debias.gender.formulas.counting import document_numbers, get_gender_tokeniser

logger = logging.getLogger(__name__)

#: The four categories of Bigdeli et al. (2023), Table 2, and the 22 columns of their profiles.
FOUR = {
    "affect": ("posemo", "negemo", "anx", "anger", "sad"),
    "cogproc": ("insight", "cause", "discrep", "tentat", "certain", "differ"),
    "drives": ("affiliation", "achiev", "power", "reward", "risk"),
    "persconc": ("work", "leisure", "home", "money", "relig", "death"),
}
PAPER_COLUMNS = tuple(column for columns in FOUR.values() for column in columns)
#: LIWC2015's own file says achieve, its manual achiev.
_SAME = {"achieve": "achiev"}


@dataclass(frozen=True)
class Lexicon:
    """Categories of words; a word may belong to several, and ``happ*`` stands for all words that begin with ``happ``.

    A word counts once in each category that contains the word or one of its beginnings.

    Attributes:
        categories: Mapping from each category to its words and beginnings, lower-cased.
        name: The lexicon's name in conventions.

    Raises:
        InputError: If there is no category, a category is not a list of words, or an entry is a bare ``*``.

    When not to use it: where the sense of a word matters; a lexicon only counts words.

    Example:
        >>> mood = Lexicon({"posemo": ["happ*", "joy"], "affect": ["happ*", "joy", "sad"]}, "mood")
        >>> category_shares(["Happy, happiest of all!", "a sad joy"], mood).tolist()
        [[0.5, 0.5], [0.3333333333333333, 0.6666666666666666]]
    """

    categories: Mapping[str, Iterable[str]]
    name: str = "lexicon"

    def __post_init__(self) -> None:
        own: dict[str, frozenset[str]] = {}
        for category, words in dict(self.categories).items():
            if isinstance(words, str):
                raise InputError(f"lexicon {self.name!r}: category {category!r} is one string; give a list of words")
            words = list(words)
            bad = [word for word in words if not isinstance(word, str) or not word.strip() or word.strip().startswith("*")]
            if bad:
                raise InputError(
                    f"lexicon {self.name!r}: category {category!r} holds {bad[0]!r}; give words or beginnings (happ*)"
                )
            own[str(category)] = frozenset(composed(word.strip().lower()) for word in words)
        if not own:
            raise InputError(f"lexicon {self.name!r} has no categories; give a mapping from a category to its words")
        object.__setattr__(self, "categories", own)

    @classmethod
    def of(cls, spec: LexiconLike) -> Lexicon:
        """A lexicon from a mapping, a word list or a file.

        Args:
            spec: A mapping from each category to its words, a :class:`WordList` or ``'debias'`` (its groups are the categories),
                the path of a ``.dic`` file (:func:`read_dic`) or of Empath's categories (:func:`read_empath`), or a lexicon.

        Returns:
            The lexicon.

        Raises:
            InputError: For any other value.
        """
        if isinstance(spec, Lexicon):
            return spec
        if isinstance(spec, WordList) or spec == "debias":
            words = WordList.of(spec)
            return cls(words.groups, words.name)
        if isinstance(spec, Mapping):
            return cls(spec)
        if isinstance(spec, (str, Path)):
            path = Path(spec)
            if not path.is_file():
                raise InputError(f"lexicon {str(spec)!r} is not a file; give a .dic file, Empath's categories, or a mapping")
            return read_dic(path) if path.suffix.lower() == ".dic" else read_empath(path)
        raise InputError(f"Lexicon.of: got a value of type {type(spec).__name__}; give a mapping, a word list or a path")

    @property
    def names(self) -> tuple[str, ...]:
        """The categories' names, in order."""
        return tuple(self.categories)

    @cached_property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits that change with any word or category."""
        content = "\n".join(f"{category}\t{' '.join(sorted(words))}" for category, words in self.categories.items())
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()

    @cached_property
    def _entries(self) -> tuple[dict[str, frozenset[int]], dict[str, frozenset[int]]]:
        """Mappings from whole words, and from beginnings, to the numbers of their categories."""
        found: tuple[dict[str, set[int]], dict[str, set[int]]] = {}, {}
        for number, words in enumerate(self.categories.values()):
            for word in words:
                part = word.endswith("*")
                found[part].setdefault(word.rstrip("*"), set()).add(number)
        whole, beginnings = ({word: frozenset(numbers) for word, numbers in part.items()} for part in found)
        return whole, beginnings

    def of_word(self, word: str) -> frozenset[int]:
        """The numbers of the categories that a lower-cased word belongs to."""
        whole, beginnings = self._entries
        found = whole.get(word, frozenset())
        for end in range(1, len(word) + 1):
            found |= beginnings.get(word[:end], frozenset())
        return found

    def __eq__(self, other: object) -> bool:
        """Whether name and content are equal, including the order of categories, which is that of arrays of shares."""
        if not isinstance(other, Lexicon):
            return NotImplemented
        return self.name == other.name and list(self.categories.items()) == list(other.categories.items())

    def __hash__(self) -> int:
        """A hash of the content."""
        return hash((self.name, self.fingerprint))

    def __repr__(self) -> str:
        """Name, number of categories and fingerprint."""
        return f"<Lexicon {self}>"

    def __str__(self) -> str:
        """Name, number of categories and fingerprint, as conventions show them."""
        return f"{self.name} ({len(self.categories)} categories; {self.fingerprint})"


#: What :meth:`Lexicon.of` takes.
LexiconLike = str | Path | Mapping[str, Iterable[str]] | WordList | Lexicon


def category_counts(
    texts: Sequence[str] | pd.Series, lexicon: LexiconLike, tokeniser: str | Tokeniser = "regex_word"
) -> tuple[np.ndarray, np.ndarray]:
    r"""How many words of each text belong to each category, and how many words there are.

    Args:
        texts: n texts.
        lexicon: Anything that :meth:`Lexicon.of` accepts.
        tokeniser: How texts are split; see :func:`~pyterrier_debias.gender.formulas.counting.get_gender_tokeniser`. The default
            is that of the original scripts, runs of ``\w`` in lower case.

    Returns:
        The words in each category, shape [n, categories], and all words, shape [n]; whole numbers.

    Raises:
        InputError: For a text that is not a string.

    Example:
        >>> counts, words = category_counts(["Happy days, happily", ""], {"happy": ["happ*"]})
        >>> counts.tolist(), words.tolist()
        ([[2], [0]], [3, 0])
    """
    lexicon = Lexicon.of(lexicon)
    split = get_gender_tokeniser(tokeniser)
    texts = texts.tolist() if isinstance(texts, pd.Series) else list(texts)
    # Each distinct word is looked up once: word to the number of its set of categories, 0 for none.
    sets: dict[frozenset[int], int] = {frozenset(): 0}
    known: dict[str, int] = {}
    lengths = np.zeros(len(texts), dtype=np.int64)
    rows: list[np.ndarray] = []
    numbers: list[int] = []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"category_counts: text {row} is {text!r}, not a string; load texts for every document, or leave out documents "
                f"without one"
            )
        words = split(text)
        lengths[row] = len(words)
        before = len(numbers)
        for word in words:
            number = known.get(word)
            if number is None:
                number = known[word] = sets.setdefault(lexicon.of_word(word), len(sets))
            if number:
                numbers.append(number)
        rows.append(np.full(len(numbers) - before, row))
    categories = len(lexicon.names)
    if not numbers:
        return np.zeros((len(texts), categories), dtype=np.int64), lengths
    sizes = np.array([len(own) for own in sets])
    members = np.array([category for own in sets for category in sorted(own)], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    which, places = np.array(numbers), np.concatenate(rows)
    repeats = sizes[which]
    entries = np.repeat(starts[which] - np.concatenate([[0], np.cumsum(repeats)[:-1]]), repeats) + np.arange(repeats.sum())
    cells = np.repeat(places, repeats) * categories + members[entries]
    return np.bincount(cells, minlength=len(texts) * categories).reshape(len(texts), categories), lengths


def category_shares(
    texts: Sequence[str] | pd.Series,
    lexicon: LexiconLike,
    *,
    columns: str | Sequence[str] = "all",
    tokeniser: str | Tokeniser = "regex_word",
) -> np.ndarray:
    """The profile of each text: the share of its words in each category.

    Args:
        texts: n texts.
        lexicon: Anything that :meth:`Lexicon.of` accepts.
        columns: ``'all'``, ``'paper'`` (the 22 of Bigdeli et al. 2023, for a lexicon that has them), or names of categories. The
            name ``persconc`` is the sum of its six categories, as in the paper.
        tokeniser: How texts are split into words, as in :func:`category_counts`.

    Returns:
        Shape [n, columns], in [0, 1] (``persconc`` can exceed 1); 0 for a text without words.

    Raises:
        InputError: For a column that the lexicon lacks.

    When not to use it: to compare texts of very different lengths, because most shares of a short text are 0.
    """
    lexicon = Lexicon.of(lexicon)
    wanted = chosen_columns(lexicon, columns)
    counts, words = category_counts(texts, lexicon, tokeniser)
    return columns_of(counts / np.maximum(words, 1)[:, None], lexicon.names, wanted)


def chosen_columns(lexicon: LexiconLike, columns: str | Sequence[str] = "all") -> tuple[str, ...]:
    """The names of a profile's columns; see :func:`category_shares`.

    Args:
        lexicon: Anything that :meth:`Lexicon.of` accepts.
        columns: ``'all'``, ``'paper'`` or names.

    Returns:
        The names.

    Raises:
        InputError: For a column that the lexicon lacks.
    """
    lexicon = Lexicon.of(lexicon)
    if columns == "all":
        return lexicon.names
    wanted = PAPER_COLUMNS if columns == "paper" else (columns,) if isinstance(columns, str) else tuple(columns)
    columns_of(np.zeros((0, len(lexicon.names))), lexicon.names, wanted, f"lexicon {lexicon.name!r}")
    return wanted


def columns_of(table: np.ndarray, names: Sequence[str], wanted: Sequence[str], what: str = "the table") -> np.ndarray:
    """Select columns of a table of categories by name; ``persconc`` is the sum that the paper defines.

    ``persconc`` (personal concerns) is not a category of LIWC: it is the sum of work, leisure, home, money, relig and death.
    ``achieve`` and ``achiev`` are the same name.

    Args:
        table: Shape [n, len(names)].
        names: The categories.
        wanted: Names of categories, or ``'persconc'``.
        what: What the table belongs to, for messages.

    Returns:
        Shape [n, len(wanted)].

    Raises:
        InputError: For an unknown name.

    Example:
        >>> names = ["work", "leisure", "home", "money", "relig", "death"]
        >>> columns_of(np.array([[1, 0, 2, 0, 0, 4]]), names, ["home", "persconc"]).tolist()
        [[2, 7]]
    """
    place = {_SAME.get(name, name): number for number, name in enumerate(names)}
    place.update({name: number for number, name in enumerate(names)})
    found, lacking = [], []
    for name in wanted:
        parts = (name,) if name in place or _SAME.get(name, name) in place or name != "persconc" else FOUR["persconc"]
        numbers = [place.get(part, place.get(_SAME.get(part, part))) for part in parts]
        lacking += [part for part, number in zip(parts, numbers) if number is None]
        known = [number for number in numbers if number is not None]
        if len(known) == len(numbers):
            found.append(table[:, known].sum(axis=1))
    if lacking:
        some = ", ".join(list(names)[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(f"{what} has no category {', '.join(map(repr, lacking))}; choose from {some}")
    return np.stack(found, axis=1) if found else np.zeros((len(table), 0))


def read_dic(path: str | Path, name: str | None = None) -> Lexicon:
    """Read a dictionary in LIWC's ``.dic`` format.

    The categories, each a number and a name, are between two lines ``%``; words follow, each with the numbers of its categories.
    LIWC 2007 has a few entries whose category depends on the word before, such as ``(02 134)125/464``; their last number is used.
    Phrases and signs are kept, but no tokeniser for words finds them.

    Args:
        path: Your own copy of the file (the dictionary is sold).
        name: The lexicon's name in conventions; by default the file's name.

    Returns:
        The lexicon, with categories in the file's order.

    Raises:
        InputError: If the file lacks the two lines, or a category is not declared; the message names the line.
    """
    path = Path(path).expanduser()
    lines = _text(path).splitlines()
    marks = [number for number, line in enumerate(lines) if line.strip() == "%"]
    if len(marks) < 2:
        raise InputError(f"lexicon {path}: the categories of a .dic file must be between two lines that hold only '%'")
    names: dict[str, str] = {}
    for number in range(marks[0] + 1, marks[1]):
        parts = lines[number].split(maxsplit=1)
        if not parts:
            continue
        if len(parts) < 2 or not parts[0].isdigit():
            line = lines[number].strip()
            raise InputError(f"lexicon {path}, line {number + 1}: a category is a number and a name, not {line!r}")
        # Names may carry a description in brackets.
        names[str(int(parts[0]))] = parts[1].split("(")[0].strip().lower() or parts[1].strip().lower()
    found: dict[str, set[str]] = {category: set() for category in names.values()}
    conditional = 0
    for number in range(marks[1] + 1, len(lines)):
        line = lines[number].strip()
        if not line:
            continue
        word, _, rest = line.partition("\t") if "\t" in line else line.partition(" ")
        for part in rest.split():
            last = part.rsplit("/", 1)[-1].rsplit(")", 1)[-1]
            conditional += last != part
            if not last.isdigit():
                conditional += 1
                continue
            if str(int(last)) not in names:
                raise InputError(f"lexicon {path}, line {number + 1}: category {last} of {word!r} is not declared above")
            found[names[str(int(last))]].add(word)
    if conditional:
        logger.warning("lexicon %s: %d conditions on the preceding word were ignored", path, conditional)
    return Lexicon(found, name or path.stem)


def read_empath(path: str | Path, name: str | None = None) -> Lexicon:
    """Read Empath's categories: one per line, a name and its words, separated by tabs (Fast, Chen and Bernstein, CHI 2016).

    Args:
        path: The file.
        name: The lexicon's name in conventions; by default the file's name.

    Returns:
        The lexicon.

    Raises:
        InputError: If a line has no words; the message has its number.
    """
    path = Path(path).expanduser()
    found: dict[str, set[str]] = {}
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        category, *words = (part.strip() for part in line.split("\t"))
        words = [word for word in words if word]
        if not category or not words:
            raise InputError(f"lexicon {path}, line {number}: write the category and its words with tabs between them")
        found.setdefault(category, set()).update(words)
    return Lexicon(found, name or path.stem)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        # Every file can be read as Latin-1; that it is in this encoding is a guess.
        logger.warning(
            "lexicon %s is not UTF-8 and was read as Latin-1; if it has another encoding, its words are wrong: convert it, e.g. "
            "iconv -f GB18030 -t UTF-8",
            path,
        )
        return path.read_text(encoding="latin-1")
    except OSError as error:
        raise InputError(f"lexicon {path} cannot be read: {error.strerror or error}") from error


class LexiconProfiles(RowWise):
    """Adds the profile of each document: one column per category, named ``profile.<category>``.

    Input: any frame with ``docno`` and the text. Output: the same rows with float columns in [0, 1], the share of the document's
    words that belong to the category; 0 for a document without words. Each document is read once, however many rows it has.

    When not to use it: on titles and queries, where a single word changes everything.

    Example:
        >>> frame = pd.DataFrame({"docno": ["d1"], "text": ["Happy days"]})
        >>> LexiconProfiles({"posemo": ["happ*"]})(frame)["profile.posemo"].tolist()
        [0.5]
    """

    schematic = {"label": "LexiconProfiles", "help_url": None}  # noqa: RUF012

    def __init__(
        self,
        lexicon: LexiconLike,
        *,
        columns: str | Sequence[str] = "all",
        tokeniser: str | Tokeniser = "regex_word",
        text_field: str = "text",
        verbose: bool = False,
    ):
        """
        Args:
            lexicon: The categories; anything that :meth:`Lexicon.of` accepts.
            columns: ``'all'``, ``'paper'`` or names; see :func:`category_shares`.
            tokeniser: How texts are split into words, as in :func:`category_counts`.
            text_field: The column that holds the text.
            verbose: Has no effect: every stage accepts it, and this one is fast.

        An invalid option raises an InputError when the stage is first used.
        """
        self.lexicon = lexicon
        self.columns = columns
        self.tokeniser = tokeniser
        self.text_field = text_field
        self.verbose = verbose

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add the columns that the class describes."""
        pt.validate.columns(inp, includes=["docno", self.text_field], context=self)
        names = chosen_columns(self.lexicon, self.columns)
        check_text(inp, self.text_field, self)
        texts = inp[self.text_field].tolist()
        first, own = document_numbers(inp["docno"].tolist(), texts)
        shares = category_shares([texts[i] for i in first], self.lexicon, columns=names, tokeniser=self.tokeniser)[own]
        return inp.assign(**{f"profile.{name}": shares[:, number] for number, name in enumerate(names)})
