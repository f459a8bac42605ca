"""StanfordParser: constituency trees by the parser that Lu's analyser uses, in a Java process of its own.

The parser (Klein and Manning, "Accurate unlexicalized parsing", ACL 2003) is under the GNU GPL, version 2. It is neither part of
this package nor required by it. Maven fetches it with the two commands that :func:`maven_commands` returns.
"""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pyterrier_debias.core.errors import InputError, check_choice, check_number, shortened
from pyterrier_debias.core.files import check_seal, sealed, write_whole
from pyterrier_debias.core.scripts import composed
from pyterrier_debias.core.text import digest
from pyterrier_debias.linguistic.data.analysers import is_sign, words_of
from pyterrier_debias.linguistic.formulas.trees import check_parsed, read_trees

#: Trees in brackets, one for each sentence; None for a text that was not parsed.
Parses = tuple[str, ...] | None
Parser = Callable[[Sequence[str]], Sequence[Any]]

#: The names of grammars here, and their file names in the jar of models.
GRAMMARS = {"caseless": "englishPCFG.caseless.ser.gz", "cased": "englishPCFG.ser.gz"}
_MODELS = "edu/stanford/nlp/models/lexparser/"
_MAIN = "edu.stanford.nlp.parser.lexparser.LexicalizedParser"
#: Input: one tokenised sentence per line, with brackets and quotes as in the treebank. Output: one tree per line.
_OPTIONS = (
    "-encoding", "utf-8", "-sentences", "newline", "-tokenized", "-escaper", "edu.stanford.nlp.process.PTBEscapingProcessor",
    "-outputFormat", "oneline",
)  # fmt: skip
_MEMORY = re.compile(r"[1-9]\d*[kmgKMG]")
#: Trees are kept in memory for texts of so many characters in all.
_KEPT = 20_000_000
#: Version of the tokenisation; a change of it needs a new number, so that cached trees of another version are not used.
_TOKENS = 1

_WHOLE = re.compile(r"(?:https?://|www\.)\S*\w|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|ph\.d\.", re.IGNORECASE)
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof sr jr st mt ft vs etc inc ltd co corp dept gov gen col sen rep rev "
    "jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
_ENDS = frozenset(".?!")
_OPENING = frozenset("([{“‘`")
_QUOTES = {"“": "``", "”": "''", "‘": "`", "’": "'", "–": "--", "—": "--"}


def sentences_of(text: str) -> list[list[str]]:
    """Cut a text into sentences, and these into tokens as in the Penn Treebank.

    Tokens are those of :func:`~pyterrier_debias.linguistic.data.analysers.words_of`, but addresses (``node.js``), words with a
    slash and common abbreviations (``Dr.``) are one token, and ``cannot`` is two. A sentence ends at ``.``, ``?`` or ``!``.
    Control and format characters, at which the parser would cut tokens, are removed.

    Args:
        text: Any text.

    Returns:
        The tokens of each sentence; none for a text without a word.

    Example:
        >>> sentences_of("Is node.js free? Dr. Who can't tell.")
        [['Is', 'node.js', 'free', '?'], ['Dr.', 'Who', 'ca', "n't", 'tell', '.']]
    """
    sentences: list[list[str]] = [[]]
    ended = worded = False
    for token in _tokens(text):
        # Closing signs stay with the sentence that they close; every sentence has a word.
        if ended and worded and (not is_sign(token) or token in _OPENING):
            sentences.append([])
            ended = worded = False
        sentences[-1].append(token)
        ended, worded = ended or token in _ENDS, worded or not is_sign(token)
    if not worded:
        last = sentences.pop()
        if sentences:
            sentences[-1] += last
    return sentences


def _tokens(text: str) -> list[str]:
    text = composed(text.replace("\u200b", " ").replace("\u180e", " "))
    if not text.isascii() or not text.isprintable():
        text = "".join(c for c in text if c.isspace() or unicodedata.category(c) not in ("Cc", "Cf", "Cs"))
    tokens: list[str] = []
    for chunk in text.split():
        whole = _WHOLE.match(chunk)
        start = whole.end() if whole else 0
        tokens += [chunk[:start]] if start else []
        tokens += _joined(words_of(chunk[start:]))
    return tokens


def _joined(pieces: list[str]) -> list[str]:
    """The tokens of a stretch without blanks; it is not cut at dots and slashes inside it, nor at the dot of an abbreviation."""
    found: list[str] = []
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        last = found[-1] if found else ""
        after = pieces[position + 1] if position + 1 < len(pieces) else ""
        inside = bool(last) and bool(after) and last[-1].isalnum() and after[0].isalnum()
        if inside and (piece == "/" or (piece == "." and not after[0].isupper())):
            found[-1] += piece + after
            position += 1
        elif piece == "." and not after and (last.lower() in _ABBREVIATIONS or (len(last) == 1 and last.isupper())):
            found[-1] += piece
        elif piece.lower() == "cannot":
            found += [piece[:3], piece[3:]]
        else:
            found.append(piece)
        position += 1
    return found


def _written(tokens: Sequence[str]) -> str:
    """The line of a sentence in the parser's input."""
    tokens = [_QUOTES.get(token, token.replace("’", "'")) for token in tokens]
    return " ".join(tokens)


def maven_commands(version: str = "3.3.1") -> tuple[str, str]:
    """The two commands that fetch the parser and its grammars into Maven's local repository.

    Args:
        version: The parser's version.

    Example:
        >>> maven_commands()[1]
        'mvn dependency:get -Dartifact=edu.stanford.nlp:stanford-parser:3.3.1:jar:models -Dtransitive=false'
    """
    artifact = f"mvn dependency:get -Dartifact=edu.stanford.nlp:stanford-parser:{version}"
    return f"{artifact} -Dtransitive=false", f"{artifact}:jar:models -Dtransitive=false"


@dataclass(frozen=True)
class StanfordParser:
    """Parses texts with the Stanford parser and its unlexicalised grammars; call it with texts to get the trees of each.

    Every call starts one Java process for all new texts (1 to 2 seconds), which ends with the call; PyTerrier's own Java is not
    used. On one core it parses some 60 queries of MS MARCO a second, and 20 of FiQA. Trees are cached by text: in memory, shared
    by all equal parsers, and in the folder ``cache`` if you name one.

    It needs Java (8 or newer) and two files, which the commands of :func:`maven_commands` fetch: the parser (3 MB) and its
    grammars (183 MB, of which one of 2 MB is used). They are under the GNU GPL, version 2.

    A failed parse is never counted: if the parser skips a text, returns a flat tree for it, or ends, an error names the text.

    When not to use it: on languages other than English; on millions of texts; where you may not use software under the GPL.

    Args:
        version: The parser's version. Lu's analyser (L2SCA 3.3.3) comes with ``'3.3.1'``; others have not been tried here.
        grammar: ``'caseless'`` (trained without case, for queries), ``'cased'`` (as in Lu's analyser, for edited texts), or the
            path of a grammar (``.ser.gz``); with a path, the jar of grammars is not needed.
        home: The folder with the jars; None for the folders below ``~/.m2/repository`` where Maven puts them.
        memory: Java's maximum heap size, such as ``'1g'``. It must suffice for the longest sentence: memory grows with the square
            of its length.
        max_words: A text with a sentence of more words is not parsed: its result is None. Time grows with the cube of the length;
            120 words take about ten seconds.
        cache: A folder where trees are kept for later processes, one file for each call; None keeps them in memory only.

    Example::

        from pyterrier_debias.linguistic.data.stanford import StanfordParser

        parser = StanfordParser(grammar='cased', cache='trees')
        LinguisticComplexity('lu', parser=parser)(topics)
    """

    version: str = "3.3.1"
    grammar: str | Path = "caseless"
    home: str | Path | None = None
    memory: str = "1g"
    max_words: int = 100
    cache: str | Path | None = None

    @property
    def name(self) -> str:
        """Version and grammar, for reports."""
        return f"stanford {self.version}, {GRAMMARS.get(str(self.grammar)) or Path(self.grammar).name}"

    def __call__(self, texts: Sequence[str]) -> list[Parses]:
        """Parse texts.

        Args:
            texts: Any texts.

        Returns:
            For each text the trees of its sentences in brackets: an empty tuple for a text without a word, and None for one with
            a sentence of more than ``max_words`` tokens.

        Raises:
            InputError: For an unknown option; if Java, a jar or the grammar is missing (the message gives the commands that
                fetch them); if the process ends with an error, skips a text or returns a flat tree for it.
        """
        self._check()
        trees = _kept(self._source(), self.cache)
        if sum(map(len, trees)) > _KEPT:
            trees.clear()
        cut = {text: sentences_of(text) for text in dict.fromkeys(texts)}
        able = {text: all(len(one) <= self.max_words for one in sentences) for text, sentences in cut.items()}
        found: dict[str, Parses] = {text: trees[text] if text in trees and able[text] else None for text in cut}
        missing = {text: sentences for text, sentences in cut.items() if able[text] and found[text] is None}
        if missing:
            new = self._parsed(missing)
            trees.update(new)
            found.update(new)
            if self.cache is not None:
                self._keep(new)
        return [found[text] for text in texts]

    def _check(self) -> None:
        if not (isinstance(self.memory, str) and _MEMORY.fullmatch(self.memory)):
            raise InputError(f"StanfordParser: memory={self.memory!r} must be a number with k, m or g, such as '1g'")
        if not (isinstance(self.version, str) and re.fullmatch(r"\d+(\.\d+)*", self.version)):
            raise InputError(f"StanfordParser: version={self.version!r} must be a version, such as '3.3.1'")
        check_number("StanfordParser", "max_words", self.max_words, least=1, whole=True)
        if not str(self.grammar).endswith(".ser.gz"):
            check_choice("StanfordParser", "grammar", self.grammar, GRAMMARS, "the path of a grammar (.ser.gz)")

    # ------------------------------------------------------------------------------------------------ what is kept

    def _source(self) -> str:
        """A description of everything that a text's trees depend on besides the text."""
        grammar = GRAMMARS.get(str(self.grammar))
        if grammar is None:
            path = Path(self.grammar).expanduser()
            if not path.is_file():
                raise InputError(f"StanfordParser: there is no grammar {path}; fetch it, or use grammar='caseless'")
            grammar = blake2b(path.read_bytes(), digest_size=16).hexdigest()
        return f"{self.version} {grammar} {_TOKENS}"

    def _keep(self, new: dict[str, tuple[str, ...]]) -> None:
        content = sealed({"source": self._source(), "trees": new})
        name = f"trees-{digest([self._source(), *new])}.json"
        write_whole(Path(str(self.cache)).expanduser() / name, json.dumps(content))

    # ------------------------------------------------------------------------------------------------ Java

    def _command(self) -> list[str]:
        fetch = " and ".join(f"'{command}'" for command in maven_commands(self.version))
        fetch = f"run {fetch} (3 and 183 MB; the parser is under the GPL, version 2), or name the folder of the jars by home="
        java = shutil.which("java", path=str(Path(os.environ["JAVA_HOME"], "bin"))) if os.environ.get("JAVA_HOME") else None
        java = java or shutil.which("java")
        if java is None:
            raise InputError(f"StanfordParser: there is no Java on PATH or in JAVA_HOME; install it (8 or newer), and {fetch}")
        home = Path(self.home or Path("~/.m2/repository/edu/stanford/nlp/stanford-parser", self.version)).expanduser()
        stem = f"stanford-parser-{self.version}"
        # The second name is that of the jar in the archive on the parser's own page.
        jars = [[f"{stem}.jar", "stanford-parser.jar"]]
        grammar = GRAMMARS.get(str(self.grammar))
        if grammar is None:
            grammar = str(Path(self.grammar).expanduser())
        else:
            jars.append([f"{stem}-models.jar"])
            grammar = _MODELS + grammar
        paths = []
        for names in jars:
            path = next((home / name for name in names if (home / name).is_file()), None)
            if path is None:
                raise InputError(f"StanfordParser: there is no {names[0]} in {home}; {fetch}")
            paths.append(str(path))
        options = [*_OPTIONS, "-maxLength", str(self.max_words), grammar, "-"]
        return [java, f"-mx{self.memory}", "-cp", os.pathsep.join(paths), _MAIN, *options]

    def _parsed(self, texts: dict[str, list[list[str]]]) -> dict[str, tuple[str, ...]]:
        """Parse tokenised texts in one process."""
        owners = [text for text, sentences in texts.items() for _ in sentences]
        lines = [_written(sentence) for sentences in texts.values() for sentence in sentences]
        trees: dict[str, list[str]] = {text: [] for text in texts}
        if lines:
            done = subprocess.run(self._command(), input="\n".join([*lines, ""]).encode(), capture_output=True, check=False)
            output = done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[:-1]
            if done.returncode or len(output) != len(lines):
                self._refuse(done, owners[min(len(output), len(owners) - 1)])
            for text, line, tree in zip(owners, lines, output):
                roots = read_trees(tree)
                check_parsed(roots, text, f"StanfordParser (memory={self.memory!r})")
                leaves = sum(node.word is not None for root in roots for node in root.below())
                if len(roots) != 1 or leaves != len(line.split(" ")):
                    raise InputError(
                        f"StanfordParser: the tree {shortened(tree, 80)!r} has {leaves} words, but that part of "
                        f"{shortened(text, 80)!r} has {len(line.split(' '))}; leave this text out, and report it"
                    )
                trees[text].append(tree)
        return {text: tuple(found) for text, found in trees.items()}

    def _refuse(self, done: subprocess.CompletedProcess[bytes], text: str) -> None:
        said = done.stderr.decode("utf-8", "replace")
        lines = [line.strip() for line in said.splitlines() if re.search("exception|error", line, re.IGNORECASE)]
        short = "out of memory" in said.lower() or "OutOfMemoryError" in said or "NoSuchParseException" in said
        remedy = f"give it more than memory={self.memory!r}" if short else "see whether 'java -version' works"
        reason = shortened(lines[-1] if lines else said.strip().rpartition("\n")[2] or "without a message", 160)
        raise InputError(
            f"StanfordParser: Java ended with status {done.returncode} at the text {shortened(text, 80)!r} ({reason}); {remedy}"
        )


@functools.cache
def _kept(source: str, cache: str | Path | None) -> dict[str, tuple[str, ...]]:
    """The known trees by text, beginning with those that the folder has at the first call."""
    found: dict[str, tuple[str, ...]] = {}
    for path in sorted(Path(cache).expanduser().glob("trees-*.json")) if cache is not None else ():
        try:
            content = check_seal(json.loads(path.read_text(encoding="utf-8")), path)
        except json.JSONDecodeError as error:
            raise InputError(f"{path} holds no trees of StanfordParser; move it away, or give another cache=") from error
        if content["source"] == source:
            found.update((text, tuple(trees)) for text, trees in content["trees"].items())
    return found


def get_parser(parser: str | Parser | None) -> Parser | None:
    """Look a parser up by name; a callable is returned as it is.

    Args:
        parser: ``'stanford'`` (:class:`StanfordParser` with its defaults), a function from texts to the trees of each, or None.

    Returns:
        The function, or None.

    Raises:
        InputError: For an unknown name.
    """
    if parser is None or callable(parser):
        return parser
    check_choice("get_parser", "parser", parser, ("stanford",), "a function, or None")
    return StanfordParser()
