"""Lists of words that represent groups: the library's own, published lists read from files, or the user's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyterrier_debias.core.errors import InputError, kind_of
from pyterrier_debias.core.scripts import composed

#: The library's own list, under its licence: titles, kinship, pronouns and plain nouns for persons. No names, no trades; nothing
#: that is as often something else ("miss", "ms", "lord", "queen", "guy", "mummy", "pop").
DEBIAS = {
    "male": frozenset(
        """he him his himself mr mister sir gentleman gentlemen man men boy boys male males
        father fathers dad dads daddy papa stepfather stepfathers grandfather grandfathers grandpa grandpas granddad godfather
        son sons stepson stepsons grandson grandsons godson brother brothers stepbrother stepbrothers
        uncle uncles nephew nephews husband husbands bridegroom bridegrooms widower widowers boyfriend boyfriends
        fatherhood boyhood fatherly brotherly""".split()
    ),
    "female": frozenset(
        """she her hers herself mrs madam lady ladies woman women girl girls female females
        mother mothers mom moms mommy mum mama stepmother stepmothers grandmother grandmothers grandma grandmas godmother
        daughter daughters stepdaughter stepdaughters granddaughter granddaughters goddaughter sister sisters
        stepsister stepsisters aunt aunts niece nieces wife wives bride brides widow widows girlfriend girlfriends
        motherhood girlhood motherly sisterly""".split()
    ),
}

#: Possible names of the words' column in a header.
_WORD_NAMES = ("word", "words", "term", "token")
#: Names of the two groups of gendered word lists in files, and their names here.
_SAME = {
    **dict.fromkeys(("m", "male", "males", "man", "men", "masculine"), "male"),
    **dict.fromkeys(("f", "female", "females", "woman", "women", "feminine"), "female"),
}


@dataclass(frozen=True)
class WordList:
    """Words that represent groups, such as gendered words; each word belongs to one group.

    Words are lower-cased and in Unicode's normal form C, like the texts in which they are looked up: the published list of 326
    words has capitalised names, which would otherwise never be found.

    Attributes:
        groups: Mapping from each group to its words. The order matters: signed measures are "first group minus second", so lists
            with the groups in a different order are not equal.
        name: The list's name in conventions.

    Raises:
        InputError: If there is no group, a group has no words, an entry is not a word, or a word is in two groups.

    Example:
        >>> ages = WordList({"old": ["Elderly", "senior"], "young": ["teen", "young"]}, "ages")
        >>> ages.names, ages.size
        (('old', 'young'), 4)
        >>> WordList.of("debias").names
        ('male', 'female')

    When not to use it: to decide who a text is about. A word shows that a group is mentioned, not how; people whom a text only
    mentions by name or occupation are not counted, and two groups do not represent people who belong to neither. Forms written
    for both genders ("s/he", "(wo)men") count as male, because their last part is a word of its own.
    """

    if TYPE_CHECKING:
        # Any iterable of words is accepted; they are kept as sets.
        groups: Mapping[str, frozenset[str]]
        name: str = "words"

        def __init__(self, groups: Mapping[str, Iterable[str]], name: str = "words") -> None:
            """The attributes that the class describes."""
    else:
        groups: Mapping[str, Iterable[str]]
        name: str = "words"

    def __post_init__(self) -> None:
        groups: dict[str, frozenset[str]] = {}
        owner: dict[str, str] = {}
        given: Mapping[str, Iterable[str]] = self.groups
        for group, words in dict(given).items():
            if isinstance(words, str):
                raise InputError(f"word list {self.name!r}: group {group!r} is one string; give a list of words")
            words = list(words)
            bad = [word for word in words if not isinstance(word, str) or not word.strip()]
            if bad or not words:
                what = f"holds {bad[0]!r}, which is not a word" if bad else "has no words"
                raise InputError(f"word list {self.name!r}: group {group!r} {what}")
            groups[str(group)] = frozenset(composed(word.strip().lower()) for word in words)
            shared = sorted(word for word in groups[str(group)] if owner.setdefault(word, str(group)) != str(group))
            if shared:
                raise InputError(
                    f"word list {self.name!r}: {len(shared)} words are in group {owner[shared[0]]!r} and in group {group!r}, "
                    f"e.g. {', '.join(map(repr, shared[:3]))}; remove them from one of the two, or from both"
                )
        if not groups:
            raise InputError(f"word list {self.name!r} has no groups; give a mapping from a group to its words")
        object.__setattr__(self, "groups", groups)

    @classmethod
    def of(cls, spec: WordListLike) -> WordList:
        """A word list from its name, its file, or a mapping.

        Args:
            spec: ``'debias'`` (the library's own); a path, see :func:`read_word_list`; a mapping from each group to its words; or
                a word list, which is returned unchanged.

        Returns:
            The list.

        Raises:
            InputError: For any other value.
        """
        if isinstance(spec, WordList):
            return spec
        if isinstance(spec, Mapping):
            return cls(spec)
        if spec == "debias":
            return cls(DEBIAS, "debias")
        if isinstance(spec, (str, Path)):
            if not Path(spec).exists():
                raise InputError(f"word list {str(spec)!r} is neither 'debias' nor an existing file or folder")
            return read_word_list(spec)
        raise InputError(
            f"a word list must be 'debias', a path or a mapping from a group to its words, not {kind_of(spec)}"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The groups' names, in order."""
        return tuple(self.groups)

    @property
    def size(self) -> int:
        """How many words there are in all groups."""
        return sum(map(len, self.groups.values()))

    @cached_property
    def words(self) -> tuple[str, ...]:
        """All words, group by group, sorted within each group."""
        return tuple(word for words in self.groups.values() for word in sorted(words))

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """The number of the group of each of :attr:`words`."""
        return tuple(number for number, words in enumerate(self.groups.values()) for _ in words)

    @cached_property
    def fingerprint(self) -> str:
        """Eight hexadecimal digits that change with any word or group."""
        content = "\n".join(f"{group}\t{' '.join(sorted(words))}" for group, words in self.groups.items())
        return blake2b(content.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()

    def group_of(self, word: str) -> str | None:
        """The group of a word, whatever its case; None if it has none."""
        word = composed(word.lower())
        return next((group for group, words in self.groups.items() if word in words), None)

    def without(self, words: Iterable[str]) -> WordList:
        """The same list without some words, for example first names that are common words.

        Args:
            words: Words to remove, in upper or lower case; words that are not in the list are ignored.

        Returns:
            A list whose name says that it is only a part.

        Raises:
            InputError: If ``words`` is a string, which would be read letter by letter, or if a group has no word left.
        """
        if isinstance(words, str):
            raise InputError(f"word list {self.name!r}: without({words!r}) is one string; give a list of words, [{words!r}]")
        out = {composed(word.strip().lower()) for word in words}
        return WordList({group: own - out for group, own in self.groups.items()}, f"{self.name} (part)")

    def contrast(self, contrast: str | tuple[str, str] | None = None) -> dict[str, float]:
        """The weights of the groups in a signed measure.

        Args:
            contrast: Two groups: the first minus the second. One group: that group minus the mean of the others (minus nothing
                if there are none). None: the first minus the second of two groups, or the only group.

        Returns:
            Mapping from each group to its weight, in the order of the groups.

        Raises:
            InputError: For an unknown group, or if there are more than two groups and none are named.

        Example:
            >>> WordList.of("debias").contrast()
            {'male': 1.0, 'female': -1.0}
            >>> WordList({"a": ["x"], "b": ["y"], "c": ["z"]}).contrast("b")
            {'a': -0.5, 'b': 1.0, 'c': -0.5}
        """
        names = self.names
        if contrast is None:
            if len(names) > 2:
                raise InputError(
                    f"word list {self.name!r} has the groups {', '.join(names)}; name the contrast, e.g. "
                    f"contrast=({names[0]!r}, {names[1]!r}), or contrast={names[0]!r} for that group against the others' mean"
                )
            contrast = names[0] if len(names) == 1 else (names[0], names[1])
        asked = (contrast,) if isinstance(contrast, str) else tuple(contrast)
        unknown = [group for group in asked if group not in names]
        if unknown or len(asked) not in (1, 2) or len(set(asked)) != len(asked):
            raise InputError(f"contrast {contrast!r}: give one or two different groups of {', '.join(names)}")
        if len(asked) == 2:
            return {name: 1.0 if name == asked[0] else -1.0 if name == asked[1] else 0.0 for name in names}
        return {name: 1.0 if name == asked[0] else -1.0 / (len(names) - 1) for name in names}

    def __eq__(self, other: object) -> bool:
        """Whether name and content are equal, including the order of the groups."""
        if not isinstance(other, WordList):
            return NotImplemented
        return self.name == other.name and list(self.groups.items()) == list(other.groups.items())

    def __hash__(self) -> int:
        """A hash of name and content."""
        return hash((self.name, self.fingerprint))

    def __repr__(self) -> str:
        """Name, sizes and fingerprint."""
        return f"<WordList {self}>"

    def __str__(self) -> str:
        """Name, sizes and fingerprint, as conventions show them."""
        sizes = ", ".join(f"{group} {len(words)}" for group, words in self.groups.items())
        return f"{self.name} ({sizes}; {self.fingerprint})"


#: What :meth:`WordList.of` accepts.
WordListLike = str | Path | Mapping[str, Iterable[str]] | WordList


def read_word_list(path: str | Path, *, groups: tuple[str, str] | None = None, name: str | None = None) -> WordList:
    """Read a word list from a file or a folder.

    It reads the formats in which lists of gendered words are published:

    - lines ``word,group`` or ``word<tab>group`` (Rekabsaz and Schedl 2020: 64 words; Rekabsaz et al. 2021: 326);
    - one word per line, or a JSON array of words: one group, named after the file;
    - a folder with one such file per group (gn_glove: ``male_word_file.txt``, ``female_word_file.txt``);
    - a JSON array of pairs (debiaswe's equalize and definitional pairs): the first words form one group, the second another;
    - a JSON object with the words of each group.

    A first line that begins with the field ``word``, ``words``, ``term`` or ``token`` is a header and is left out.

    Groups called ``m`` or ``men`` in files are ``male`` here, and ``f`` or ``women`` are ``female``. These two come first, in
    this order, so signed measures are male minus female for every list.

    Args:
        path: The file or folder.
        groups: The names of the groups of the first and the second words of pairs. None: the side with more of this library's own
            male words is ``male``.
        name: The list's name in conventions; by default the file's name without its ending.

    Returns:
        The list.

    Raises:
        InputError: If the file is missing, empty, or in none of these formats, and for all that :class:`WordList` rejects.

    When not to use it: with scores for words (debiaswe's professions): you must decide where the line between groups lies; then
    give a mapping.
    """
    path = Path(path).expanduser()
    name = name or path.stem
    if path.is_dir():
        files = sorted(file for file in path.iterdir() if file.suffix in (".txt", ".json"))
        if not files:
            raise InputError(f"word list {path}: the folder holds no .txt or .json file")
        found: dict[str, list[str]] = {}
        for file in files:
            for group, words in _file_groups(file, groups).items():
                found.setdefault(group, []).extend(words)
    else:
        found = _file_groups(path, groups)
    order: list[str] = [group for group in ("male", "female") if group in found]
    order += [group for group in found if group not in order]
    return WordList({group: found[group] for group in order}, name)


def _file_groups(path: Path, groups: tuple[str, str] | None) -> dict[str, list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(f"word list {path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"word list {path} is not UTF-8; convert the file from its encoding, e.g. iconv -f ISO-8859-1 -t UTF-8"
        ) from error
    stem = path.stem.lower()
    for ending in ("_word_file", "_words", "_wordlist", "_list"):
        stem = stem.removesuffix(ending)
    alone = _SAME.get(stem, stem)
    if path.suffix == ".json":
        try:
            return _json_groups(json.loads(text), path, alone, groups)
        except json.JSONDecodeError as error:
            raise InputError(f"word list {path} is not JSON: {error}") from error
    rows = list(_lines(text))
    if not rows:
        raise InputError(f"word list {path} is empty")
    if rows[0][1].split(",")[0].strip().lower() in _WORD_NAMES:
        del rows[0]
    if not rows:
        raise InputError(f"word list {path} has only a header; write 'word,group' in the lines below it")
    split = [line.rsplit(",", 1) for _, line in rows]
    named = [len(parts) == 2 for parts in split]
    if not any(named):
        return {alone: [line for _, line in rows]}
    if not all(named):
        number = rows[named.index(False)][0]
        raise InputError(f"word list {path}, line {number}: there is no group; write 'word,group' in every line or in none")
    found: dict[str, list[str]] = {}
    for (number, _), (word, group) in zip(rows, split):
        if not word.strip() or not group.strip():
            raise InputError(f"word list {path}, line {number}: word or group is empty; write 'word,group'")
        found.setdefault(_SAME.get(group.strip().lower(), group.strip()), []).append(word)
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield number, line.strip().replace("\t", ",")


def _json_groups(content: Any, path: Path, alone: str, groups: tuple[str, str] | None) -> dict[str, list[str]]:
    if isinstance(content, Mapping):
        found: dict[str, list[str]] = {}
        for group, words in content.items():
            if not isinstance(words, list):
                raise InputError(f"word list {path}: group {group!r} holds {words!r}; give a list of words")
            found.setdefault(_SAME.get(str(group).lower(), str(group)), []).extend(words)
        return found
    if isinstance(content, list) and content:
        if all(isinstance(word, str) for word in content):
            return {alone: content}
        pairs = [row for row in content if isinstance(row, list) and len(row) == 2 and all(isinstance(w, str) for w in row)]
        if len(pairs) == len(content):
            first, second = (list(side) for side in zip(*pairs))
            if groups is None:
                groups = _sides(first, second, path)
            return {groups[0]: first, groups[1]: second}
    raise InputError(
        f"word list {path}: give a JSON array of words, an array of pairs of words, or an object from a group to its words"
    )


def _sides(first: list[str], second: list[str], path: Path) -> tuple[str, str]:
    """Which side of pairs is male: the one with more male words of the library's own list."""
    known = [sum(word.lower() in DEBIAS[group] for word in side) for side in (first, second) for group in ("male", "female")]
    lean = known[0] - known[1] - known[2] + known[3]
    if lean == 0:
        raise InputError(f"word list {path}: the groups of the two sides are not known; name them, groups=('a', 'b')")
    return ("male", "female") if lean > 0 else ("female", "male")
