"""Syntactic complexity of a text: counts of structures in constituency trees, and Lu's fourteen indices.

The structures are those of Lu ("Automatic analysis of syntactic complexity in second language writing", International Journal of
Corpus Linguistics 15, 2010), which his analyser finds by patterns over trees in the style of the Penn Treebank; heads of phrases
are Collins' (1999). A node counts once for each pattern that it matches.

=====  ==========================================================================================================================
W      words: leaves whose tag consists of letters (and ``$``) and that have a letter or digit; Lu's analyser leaves out
       words with a hyphen, which is an option here
S      sentences: trees
VP     verb phrases under S, SINV or SQ; and a finite verb or modal under an SQ that has no VP
C      clauses: S, SINV, SQ with a finite head, or with a VP that has one (or that joins VPs one of which has one); imperatives at
       the root; and a FRAG at the root that contains no clause
T      T-units: S, SBARQ, SINV, SQ at the root, or with an earlier sister of these labels and neither SBAR nor VP above; and a
       FRAG at the root that contains no T-unit
DC     dependent clauses: SBAR over a clause
CT     complex T-units: those that contain a dependent clause
CP     coordinate phrases: ADJP, ADVP, NP, VP over CC
CN     complex nominals: outermost NPs with an adjective, possessive, prepositional phrase, clause, participle or apposition; SBAR
       as a subject or object; gerunds and infinitives as subjects
=====  ==========================================================================================================================

FRAG at the root is the parse of a query that is a fragment; a query that parses to a bare NP has no T-unit and no clause.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from pyterrier_debias.core.errors import InputError

#: Lu's 14 syntactic indices: numerator and denominator.
RATIOS = {
    "MLS": ("W", "S"), "MLT": ("W", "T"), "MLC": ("W", "C"), "C/S": ("C", "S"), "VP/T": ("VP", "T"), "C/T": ("C", "T"),
    "DC/C": ("DC", "C"), "DC/T": ("DC", "T"), "T/S": ("T", "S"), "CT/T": ("CT", "T"), "CP/T": ("CP", "T"),
    "CP/C": ("CP", "C"), "CN/T": ("CN", "T"), "CN/C": ("CN", "C"),
}  # fmt: skip
LU = tuple(RATIOS)

_FINITE = frozenset({"MD", "VBZ", "VBP", "VBD"})
_CLAUSES = frozenset({"S", "SINV", "SQ"})
_UNITS = frozenset({"S", "SBARQ", "SINV", "SQ"})
_PHRASES = frozenset({"ADJP", "ADVP", "NP", "VP"})
_MODIFIERS = frozenset({"JJ", "POS", "PP", "S", "VBG"})
_PUNCTUATION = frozenset({"''", "``", "-LRB-", "-RRB-", ".", ":", ","})
_ROOTS = frozenset({"", "ROOT", "TOP", "S1"})
#: How treebanks write brackets, which are not words whatever tag a parser gives them.
_WRITTEN_BRACKETS = frozenset({"-LRB-", "-RRB-", "-LSB-", "-RSB-", "-LCB-", "-RCB-"})

#: Collins' head rules for the categories in the patterns: labels by priority, each searched from the left.
_HEADS = {
    "S": "TO IN VP S SBAR ADJP UCP NP",
    "SBAR": "WHNP WHPP WHADVP WHADJP IN DT S SQ SINV SBAR FRAG",
    "SINV": "VBZ VBD VBP VB MD VP S SINV ADJP NP",
    "SQ": "VBZ VBD VBP VB MD VP SQ",
    "VP": "TO VBD VBN MD VBZ VB VBG VBP AUX AUXG VP ADJP NN NNS NP",
}

#: Only ASCII blanks separate tokens; no-break spaces occur inside tokens (``7 1/2``).
_BRACKET = re.compile(r"[()]|[^\s()]+", re.ASCII)
_WORD_TAG = re.compile(r"[A-Z]+\$?")


class TreeCounts(NamedTuple):
    """How often each structure occurs; see the module."""

    W: int
    S: int
    VP: int
    C: int
    T: int
    DC: int
    CT: int
    CP: int
    CN: int


class Node:
    """A node of a constituency tree.

    Attributes:
        label: Its category or tag, without functions (``NP-SBJ`` is ``NP``).
        children: The nodes directly under it; none for a leaf.
        word: The word of a leaf, otherwise None.
        parent: The node above it; None for the root.
        place: Its position among the children of its parent.
    """

    __slots__ = ("children", "label", "parent", "place", "word")

    def __init__(self, label: str, word: str | None = None):
        self.label = label if label.startswith("-") else re.split(r"[-=]", label, maxsplit=1)[0]
        self.word = word
        self.children: list[Node] = []
        self.parent: Node | None = None
        self.place = 0

    def add(self, child: Node) -> None:
        """Add a node as the last child of this one."""
        child.parent, child.place = self, len(self.children)
        self.children.append(child)

    def below(self) -> Iterator[Node]:
        """All nodes under this one."""
        for child in self.children:
            yield child
            yield from child.below()

    def above(self) -> Iterator[Node]:
        """All nodes above this one, the nearest first."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def sisters(self) -> list[Node]:
        """The children of its parent, including this node."""
        return [self] if self.parent is None else self.parent.children

    def next(self) -> str:
        """The label of the sister right after it; empty if there is none."""
        sisters = self.sisters()
        return sisters[self.place + 1].label if self.place + 1 < len(sisters) else ""

    def head(self) -> Node | None:
        """The child that is its head by Collins' rules; None for a leaf."""
        children = self.children
        if len(children) < 2:
            return children[0] if children else None
        labels = [child.label for child in children]
        place = next((labels.index(label) for label in _HEADS.get(self.label, "").split() if label in labels), None)
        if place is None:
            place = next((i for i, label in enumerate(labels) if label not in _PUNCTUATION), 0)
        # The head of coordinated phrases is the first of them.
        if place >= 2 and labels[place - 1] in ("CC", "CONJP"):
            place = next((i for i in range(place - 2, -1, -1) if labels[i] not in _PUNCTUATION), place)
        return children[place]


def read_trees(trees: Any) -> list[Node]:
    """Read trees in any of the forms that parsers return, each under a node ``ROOT``.

    Traces (``-NONE-``) of raw treebanks are removed, with the phrases that this leaves empty, since Lu's patterns are for the
    output of parsers.

    Args:
        trees: Text in brackets (one tree or several), an ``nltk.Tree``, anything whose ``str()`` is text in brackets (a tree of
            stanza), or a sequence of these; None or an empty text means no tree.

    Returns:
        The roots.

    Raises:
        InputError: If brackets do not match, or words are outside brackets.

    Example:
        >>> [root.children[0].label for root in read_trees("(S (NP (PRP it)) (VP (VBZ works))) (NP (NN tea))")]
        ['S', 'NP']
    """
    if trees is None:
        return []
    if isinstance(trees, str):
        found = _from_brackets(trees)
    elif callable(getattr(trees, "label", None)):
        found = [_from_nltk(trees)]
    elif isinstance(trees, (list, tuple)):
        return [root for tree in trees for root in read_trees(tree)]
    else:
        found = _from_brackets(str(trees))
    return [_rooted(node) for node in found if _stays(node)]


def _stays(node: Node) -> bool:
    """Remove traces, and what they leave empty; True if the node itself stays."""
    if not node.children:
        return node.label != "-NONE-"
    stay = [child for child in node.children if _stays(child)]
    if len(stay) < len(node.children):
        node.children = []
        for child in stay:
            node.add(child)
    return bool(stay)


def check_parsed(roots: Sequence[Node], text: str, parser: str) -> None:
    """Raise an error for the result of a failed parse, which would otherwise be counted as a tree.

    Args:
        roots: The trees of the text, as returned by :func:`read_trees`.
        text: The text.
        parser: The parser's name, for the message.

    Raises:
        InputError: If a tree has no word, such as ``(())`` for a skipped text, or is flat, such as ``(X (X the) (X tea))`` for
            a text that needs more memory or time.

    Example:
        >>> check_parsed(read_trees("(())"), "green tea", "StanfordParser")
        Traceback (most recent call last):
        pyterrier_debias.core.errors.InputError: StanfordParser: the text 'green tea' was skipped; leave it out, or shorten it
    """
    for root in roots:
        tags = {node.label for node in root.below() if node.word is not None}
        if not tags:
            raise InputError(f"{parser}: the text {_brief(text)!r} was skipped; leave it out, or shorten it")
        if tags == {"X"}:
            raise InputError(
                f"{parser}: the text {_brief(text)!r} got a flat tree, which is no parse; give the parser more memory, or leave "
                f"the text out"
            )


def _rooted(node: Node) -> Node:
    if node.label in _ROOTS and node.word is None:
        node.label = "ROOT"
        return node
    root = Node("ROOT")
    root.add(node)
    return root


def _from_brackets(text: str) -> list[Node]:
    pieces = _BRACKET.findall(text)
    found: list[Node] = []
    stack: list[Node] = []
    position = 0
    while position < len(pieces):
        piece = pieces[position]
        if piece == "(":
            named = position + 1 < len(pieces) and pieces[position + 1] not in "()"
            node = Node(pieces[position + 1] if named else "")
            position += named
            if stack:
                stack[-1].add(node)
            else:
                found.append(node)
            stack.append(node)
        elif not stack:
            raise InputError(f"the tree {_brief(text)!r} has {piece!r} outside of its brackets; pass '(LABEL ...)'")
        elif piece == ")":
            stack.pop()
        elif stack[-1].word is None and not stack[-1].children:
            stack[-1].word = piece
        else:
            raise InputError(f"the tree {_brief(text)!r} has the word {piece!r} without a tag; pass '(TAG word)'")
        position += 1
    if stack:
        raise InputError(f"the tree {_brief(text)!r} lacks {len(stack)} closing brackets")
    return found


def _brief(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _from_nltk(tree: Any) -> Node:
    if len(tree) == 1 and isinstance(tree[0], str):
        return Node(str(tree.label()), tree[0])
    node = Node(str(tree.label()))
    for child in tree:
        if isinstance(child, str):
            raise InputError(f"the tree under {tree.label()!r} has the word {child!r} without a tag; pass '(TAG word)'")
        node.add(_from_nltk(child))
    return node


def tree_counts(roots: Sequence[Node], *, hyphenated: bool = True) -> TreeCounts:
    """Count the structures in the trees of one text.

    Args:
        roots: The trees of its sentences, as returned by :func:`read_trees`.
        hyphenated: Whether words with a hyphen (``well-known``) count. False leaves them out, as in the word count of Lu's
            analyser, which makes MLS, MLT and MLC lower.

    Returns:
        The counts, summed over sentences.

    Example:
        >>> tree_counts(read_trees("(ROOT (S (NP (PRP It)) (VP (VBZ works))))"))
        TreeCounts(W=2, S=1, VP=1, C=1, T=1, DC=0, CT=0, CP=0, CN=0)
    """
    w = vp = c = t = dc = ct = cp = cn = 0
    for root in roots:
        for node in root.below():
            if node.word is not None:
                w += _is_word(node) and (hyphenated or "-" not in node.word)
                vp += _is_question_verb(node)
                continue
            label, parent = node.label, cast(Node, node.parent)
            if label == "VP":
                vp += parent.label in _CLAUSES
            if label in _UNITS:
                c += _is_clause(node)
                if _is_unit(node):
                    t += 1
                    ct += any(map(_is_dependent, node.below()))
                cn += _is_verbal_subject(node)
            elif label == "SBAR":
                dc += _is_dependent(node)
                cn += _is_nominal_clause(node)
            elif label == "FRAG" and parent.label == "ROOT":
                c += not any(map(_is_clause, node.below()))
                t += not any(map(_is_unit, node.below()))
            if label in _PHRASES:
                cp += _has(node, "CC")
            if label == "NP":
                cn += _is_complex_phrase(node)
    return TreeCounts(w, len(roots), vp, c, t, dc, ct, cp, cn)


def syntactic_indices(counts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Compute Lu's fourteen ratios of the counts.

    Args:
        counts: Arrays by the names of :class:`TreeCounts`, one value per text.

    Returns:
        Arrays by index; NaN if the denominator is 0.

    Example:
        >>> counts = dict(zip(TreeCounts._fields, np.array([[89, 5, 11, 7, 5, 1, 1, 1, 12]]).T))
        >>> [round(float(v[0]), 4) for v in syntactic_indices(counts).values()][:4]
        [17.8, 17.8, 12.7143, 1.4]
    """
    c = {name: np.asarray(values, dtype=np.float64) for name, values in counts.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        found = {name: c[above] / c[below] for name, (above, below) in RATIOS.items()}
    return {name: np.where(np.isfinite(values), values, np.nan) for name, values in found.items()}


# ------------------------------------------------------------------------------------------------ the patterns


def _has(node: Node, label: str) -> bool:
    return any(child.label == label for child in node.children)


def _head_in(node: Node, labels: frozenset[str] | set[str]) -> bool:
    head = node.head()
    return head is not None and head.label in labels


def _is_word(node: Node) -> bool:
    word = node.word or ""
    return _WORD_TAG.fullmatch(node.label) is not None and word not in _WRITTEN_BRACKETS and any(map(str.isalnum, word))


def _is_question_verb(node: Node) -> bool:
    return node.label in _FINITE and node.parent is not None and node.parent.label == "SQ" and not _has(node.parent, "VP")


def _is_finite_phrase(node: Node) -> bool:
    if node.label != "VP":
        return False
    joined = _has(node, "CC") and any(child.label == "VP" and _head_in(child, _FINITE) for child in node.children)
    return joined or _head_in(node, _FINITE)


def _is_clause(node: Node) -> bool:
    if node.label not in _CLAUSES or not node.children:
        return False
    first = node.children[0]
    imperative = node.parent is not None and node.parent.label == "ROOT" and first.label == "VP" and _head_in(first, {"VB"})
    return imperative or _head_in(node, _FINITE) or any(map(_is_finite_phrase, node.children))


def _is_unit(node: Node) -> bool:
    if node.label not in _UNITS or node.parent is None:
        return False
    if node.parent.label == "ROOT":
        return True
    earlier = any(sister.label in _UNITS for sister in node.sisters()[: node.place])
    return earlier and not any(up.label in ("SBAR", "VP") for up in node.above())


def _is_dependent(node: Node) -> bool:
    return node.label == "SBAR" and any(map(_is_clause, node.children))


def _is_complex_phrase(node: Node) -> bool:
    if node.parent is not None and node.parent.label == "NP":
        return False
    return any(under.label in _MODIFIERS or _is_apposed(under) for under in node.below())


def _is_apposed(node: Node) -> bool:
    later = (sister.label == "NP" for sister in node.sisters()[node.place + 1 :])
    return node.label == "NP" and node.next() != "CC" and any(later)


def _is_nominal_clause(node: Node) -> bool:
    if node.next() != "VP" and (node.parent is None or node.parent.label != "VP"):
        return False
    head = node.head()
    if head is None:
        return False
    joining = head.label == "IN" and (head.word or "").lower() in ("that", "for")
    return head.label == "WHNP" or joining or node.children[0].label == "S"


def _is_verbal_subject(node: Node) -> bool:
    if node.label != "S" or node.next() != "VP":
        return False
    return any(child.label == "VP" and _head_in(child, {"VBG", "TO"}) for child in node.children)
