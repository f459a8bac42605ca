"""Structures in trees, counted by hand and by an independent search, and Lu's ratios of them."""

import functools
import re
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk import ParentedTree, Tree
from nltk.tgrep import tgrep_compile, tgrep_positions

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.linguistic.formulas.trees import (
    LU,
    TreeCounts,
    check_parsed,
    read_trees,
    syntactic_indices,
    tree_counts,
)

# Each comment says which nodes are counted. W S VP C T DC CT CP CN.
BY_HAND = {
    "keywords": (
        # No clause, no T-unit; the NP holds an adjective.
        "(ROOT (NP (JJ green) (NN tea) (NNS benefits)))",
        (3, 1, 0, 0, 0, 0, 0, 0, 1),
    ),
    "one clause": ("(ROOT (S (NP (NN tea)) (VP (VBZ cures) (NP (NNS colds))) (. .)))", (3, 1, 1, 1, 1, 0, 0, 0, 0)),
    "question with a full verb": (
        # SQ is headed by 'does' and has a VP, so 'does' is no verb phrase of its own.
        "(ROOT (SQ (VBZ does) (NP (NN tea)) (VP (VB cure) (NP (NNS colds))) (. ?)))",
        (4, 1, 1, 1, 1, 0, 0, 0, 0),
    ),
    "question with be": (
        # 'is' under an SQ without VP is the verb phrase; SBARQ is the T-unit, SQ the clause; 'green tea' a complex nominal.
        "(ROOT (SBARQ (WHNP (WP what)) (SQ (VBZ is) (NP (JJ green) (NN tea)))))",
        (4, 1, 1, 1, 1, 0, 0, 0, 1),
    ),
    "object clause": (
        # The SBAR is a dependent clause, and as the object of 'say', led by 'that', a complex nominal.
        "(ROOT (S (NP (NNS doctors)) (VP (VBP say) (SBAR (IN that) (S (NP (NN tea)) (VP (VBZ helps)))))))",
        (5, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "coordinated clauses": (
        # T-units: the whole, and the second S, which has an S before it. The whole has no VP of its own: two clauses.
        "(ROOT (S (S (NP (NN tea)) (VP (VBZ calms))) (CC and) (S (NP (NN coffee)) (VP (VBZ wakes)))))",
        (5, 1, 2, 2, 2, 0, 0, 0, 0),
    ),
    "coordinated phrases": (
        # NP and VP over CC. VP under S: the outer one; it joins VPs with finite heads, so S is a clause.
        "(ROOT (S (NP (NN tea) (CC and) (NN coffee)) (VP (VP (VBP help)) (CC and) (VP (VBP harm) (NP (NNS people))))))",
        (7, 1, 1, 1, 1, 0, 0, 2, 0),
    ),
    "imperative": (
        "(ROOT (S (VP (VB compare) (NP (NN tea) (CC and) (NN coffee)))))",
        (4, 1, 1, 1, 1, 0, 0, 1, 0),
    ),
    "fragment without a clause": (
        # FRAG at the root counts as clause and as T-unit.
        "(ROOT (FRAG (NP (NN tea)) (PP (IN for) (NP (NNS colds)))))",
        (3, 1, 0, 1, 1, 0, 0, 0, 0),
    ),
    "fragment with a clause": (
        # The clause is the S; no S is a T-unit, so FRAG is one, but complex T-units are S, SBARQ, SINV or SQ.
        "(ROOT (FRAG (SBAR (WHADVP (WRB why)) (S (NP (NN tea)) (VP (VBZ helps))))))",
        (3, 1, 1, 1, 1, 1, 0, 0, 0),
    ),
    "relative clause": (
        # The outer NP holds an S; the SBAR is under an NP, neither before nor under a VP.
        "(ROOT (S (NP (NP (DT the) (NN tea)) (SBAR (WHNP (WDT that)) (S (NP (PRP they)) (VP (VBP drink))))) (VP (VBZ helps))))",
        (6, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "gerund as subject": (
        # 'drinking tea' is S before VP with a head in VBG; it has no finite head, so there is one clause.
        "(ROOT (S (S (VP (VBG drinking) (NP (NN tea)))) (VP (VBZ helps))))",
        (3, 1, 2, 1, 1, 0, 0, 0, 1),
    ),
    "infinitive as subject": (
        "(ROOT (S (S (VP (TO to) (VP (VB sleep) (ADVP (RB well))))) (VP (VBZ matters))))",
        (4, 1, 2, 1, 1, 0, 0, 0, 1),
    ),
    "clause as subject": (
        "(ROOT (S (SBAR (WHNP (WP what)) (S (NP (PRP they)) (VP (VBP drink)))) (VP (VBZ matters))))",
        (4, 1, 2, 2, 1, 1, 1, 0, 1),
    ),
    "possessive": (
        "(ROOT (S (NP (NP (NNP Freud) (POS 's)) (NN friend)) (VP (VBD slept))))",
        (4, 1, 1, 1, 1, 0, 0, 0, 1),
    ),
    "lists of nouns": (
        # 'tea and milk': the first NP is right before CC. 'food, drink and fun': the first NP is before a comma.
        "(ROOT (S (NP (NP (NN tea)) (CC and) (NP (NN milk))) "
        "(VP (VBZ is) (NP (NP (NN food)) (, ,) (NP (NN drink)) (CC and) (NP (NN fun))))))",
        (8, 1, 1, 1, 1, 0, 0, 2, 1),
    ),
    "inverted": (
        "(ROOT (SINV (ADVP (RB never)) (VBP have) (NP (NNS doctors)) (VP (VBN slept))))",
        (4, 1, 1, 1, 1, 0, 0, 0, 0),
    ),
    "clauses coordinated in a dependent one": (
        # The SBAR is right over an S that is no clause itself (it has no VP), so Lu's pattern finds no dependent clause; the
        # second S has an S before it, but SBAR above.
        "(ROOT (S (NP (PRP he)) (VP (VBZ says) (SBAR (IN that) "
        "(S (S (NP (NN tea)) (VP (VBZ calms))) (CC and) (S (NP (NN coffee)) (VP (VBZ wakes))))))))",
        (8, 1, 3, 3, 1, 0, 0, 0, 1),
    ),
    "signs and hyphens": (
        # 'low-fat' is a word, the tokens '-', '$' and '(' are none; 'fat' alone would have no adjective.
        "(ROOT (NP (JJ low-fat) (HYPH -) ($ $) (CD 3) (-LRB- -LRB-) (NN milk) (-RRB- -RRB-)))",
        (3, 1, 0, 0, 0, 0, 0, 0, 1),
    ),
    "brackets that a parser took for words": (
        "(ROOT (NP (NNP -LSB-) (NNP x) (NNP -RSB-) (NN -LRB-) (CD 7\u00a01/2)))", (2, 1, 0, 0, 0, 0, 0, 0, 0),
    ),
    "traces": (
        # A PP that holds a trace alone makes no complex nominal.
        "( (S (NP-SBJ-1 (NP (NN tea)) (PP (-NONE- *ICH*-2))) (VP (VBZ is) (VP (VBN drunk) (NP (-NONE- *-1)))) (. .)) )",
        (3, 1, 1, 1, 1, 0, 0, 0, 0),
    ),
    "two sentences": (
        "(ROOT (S (NP (NN tea)) (VP (VBZ calms)))) (ROOT (NP (NN sleep)))",
        (3, 2, 1, 1, 1, 0, 0, 0, 0),
    ),
    "treebank style": ("( (S (NP-SBJ (NN tea)) (VP (VBZ calms)) (. .)) )", (2, 1, 1, 1, 1, 0, 0, 0, 0)),
    "no root": ("(S (NP (NN tea)) (VP (VBZ calms)))", (2, 1, 1, 1, 1, 0, 0, 0, 0)),
    "nothing": ("", (0, 0, 0, 0, 0, 0, 0, 0, 0)),
}


def test_words_with_a_hyphen_are_left_out_as_by_lus_analyser():
    """His word count is this pattern over the bracketed tree: no sign that is a hyphen or bracket is inside a word."""
    bracketed = "(ROOT (S (NP (DT the) (JJ well-known) (NN tea)) (VP (VBZ calms) (NP (CD 3) (NNS x-rays))) (. .)))"
    counted = len(re.findall(r"\([A-Z]+\$? [^()-]+\)", bracketed))
    assert tree_counts(read_trees(bracketed), hyphenated=False).W == counted == 4
    assert tree_counts(read_trees(bracketed)) == tree_counts(read_trees(bracketed), hyphenated=False)._replace(W=6)


@pytest.mark.parametrize("name", BY_HAND)
def test_structures_counted_by_hand(name):
    bracketed, counts = BY_HAND[name]
    assert tree_counts(read_trees(bracketed)) == TreeCounts(*counts)


@pytest.mark.parametrize(
    ("phrase", "head"),
    [
        ("(VP (MD will) (VP (VB help)))", "MD"),
        ("(VP (VBZ has) (VP (VBN helped)))", "VBZ"),
        ("(VP (TO to) (VP (VB help)))", "TO"),
        ("(VP (ADVP (RB soon)) (VBD helped))", "VBD"),
        # The past tense goes first by its rank, but it stands behind CC: the head is what is joined to it.
        ("(VP (VB eat) (CC and) (VBD drank))", "VB"),
        ("(VP (VB eat) (, ,) (CC and) (VBD drank))", "VB"),
        ("(S (NP (NN tea)) (VP (VBZ helps)))", "VP"),
        ("(S (`` x) (ADVP (RB so)))", "ADVP"),
        ("(SQ (MD can) (NP (NN tea)) (VP (VB help)))", "MD"),
        ("(SBAR (IN if) (S (NP (NN tea))))", "IN"),
        ("(SBAR (WHNP (WP who)) (IN that) (S (NP (NN tea))))", "WHNP"),
    ],
)
def test_heads(phrase, head):
    assert read_trees(phrase)[0].children[0].head().label == head


LABELS = ["S", "SBAR", "SBARQ", "SINV", "SQ", "VP", "NP", "ADJP", "ADVP", "PP", "FRAG"]
TAGS = ["NN", "JJ", "CC", "VBZ", "VBG", "VB", "MD", "TO", "IN", "POS", ","]


def grown(children):
    phrases = st.lists(children, min_size=1, max_size=3).map(" ".join)
    return st.builds("({} {})".format, st.sampled_from(LABELS), phrases)


TREES = st.recursive(st.sampled_from([f"({tag} x)" for tag in TAGS]), grown, max_leaves=12).map(lambda tree: f"(ROOT {tree})")
UNITS = "S|SBARQ|SINV|SQ"
# The same patterns in the syntax of TGrep2, for NLTK's search; it knows no heads.
SEARCH = {
    "VP": ("VP > S|SINV|SQ", "MD|VBZ > (SQ !< VP)"),
    "CP": ("ADJP|ADVP|NP|VP < CC",),
    "T": (
        f"{UNITS} > ROOT", f"{UNITS} $,, {UNITS} !>> SBAR|VP",
        f"FRAG > ROOT !<< ({UNITS} > ROOT) !<< ({UNITS} $,, {UNITS} !>> SBAR|VP)",
    ),
    "CN": ("NP !> NP << JJ|POS|PP|S|VBG", "NP !> NP << (NP $.. NP !$. CC)"),
}  # fmt: skip


@functools.cache
def compiled(pattern):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NLTK calls pyparsing by names that are out of date
        return tgrep_compile(pattern)


@settings(max_examples=60)
@given(TREES)
def test_patterns_without_heads_agree_with_an_independent_search(bracketed):
    tree = ParentedTree.fromstring(bracketed)
    found = {
        name: len({place for pattern in patterns for place in next(iter(tgrep_positions(compiled(pattern), [tree])))})
        for name, patterns in SEARCH.items()
    }
    counts = tree_counts(read_trees(bracketed))
    assert (counts.VP, counts.CP, counts.T) == (found["VP"], found["CP"], found["T"])
    # The other two patterns of complex nominals need heads, and an SBAR or S.
    assert counts.CN >= found["CN"]
    if not {"SBAR", "S"} & {sub.label() for sub in tree.subtrees()}:
        assert counts.CN == found["CN"]


@settings(max_examples=60)
@given(TREES, TREES)
def test_counts_add_up_and_bound_each_other(one, two):
    first, second = tree_counts(read_trees(one)), tree_counts(read_trees(two))
    both = tree_counts(read_trees(one + two))
    assert both == TreeCounts(*(a + b for a, b in zip(first, second)))
    assert both == tree_counts(read_trees([Tree.fromstring(one), two]))
    assert both.CT <= both.T
    assert both.CT <= both.DC or both.DC == 0 == both.CT


TRACES = ["(-NONE- *T*-1)", "(NP-SBJ (-NONE- *))", "(SBAR (-NONE- 0))"]
TRACED = st.recursive(st.sampled_from([*(f"({tag} x)" for tag in TAGS), *TRACES]), grown, max_leaves=14).map(
    lambda tree: f"(ROOT {tree} (NN x))"
)


@settings(max_examples=60)
@given(TRACED)
def test_traces_and_what_they_leave_empty_are_as_if_they_were_not_there(bracketed):
    """They are cut out of the brackets themselves, again and again, until nothing is empty."""
    cut, before = bracketed, ""
    while cut != before:
        before, cut = cut, re.sub(r" ?\(-NONE- [^()]*\)| ?\([A-Z]+(-[A-Z]+)?\)", "", cut)
    assert tree_counts(read_trees(bracketed)) == tree_counts(read_trees(cut))
    assert tree_counts(read_trees(Tree.fromstring(bracketed))) == tree_counts(read_trees(cut))


def test_a_sentence_of_traces_alone_is_none():
    assert read_trees("(S (NP (-NONE- *)) (VP (-NONE- *?*)))") == []


@pytest.mark.parametrize(("tree", "message"), [
    ("(())", "parser x: the text 'green tea' was skipped"), ("(ROOT (NP))", "was skipped"),
    ("(X (X green) (X tea))", "got a flat tree"), ("(ROOT (X (X green) (X tea)))", "got a flat tree"),
])  # fmt: skip
def test_what_is_no_parse_is_refused(tree, message):
    with pytest.raises(InputError, match=message):
        check_parsed(read_trees(tree), "green tea", "parser x")
    check_parsed(read_trees("(ROOT (X (SYM *)))"), "*", "parser x")
    check_parsed([], "", "parser x")


def test_nltk_trees_are_read_like_brackets():
    for bracketed, counts in list(BY_HAND.values())[:19]:
        assert tree_counts(read_trees(Tree.fromstring(bracketed))) == TreeCounts(*counts)


def test_trees_that_print_themselves_in_brackets_are_read():
    class Printed:
        def __str__(self):
            return BY_HAND["one clause"][0]

    assert tree_counts(read_trees([Printed()])) == TreeCounts(*BY_HAND["one clause"][1])
    assert read_trees(None) == []


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ("(S (NP (NN tea))", "lacks 1 closing"),
        ("tea", "outside of its brackets"),
        ("(S (NN tea)))", "outside of its brackets"),
        ("(NP (NN green tea))", "'tea' without a tag"),
        ("(NP (NN green) tea)", "'tea' without a tag"),
        (Tree("NP", [Tree("NN", ["green"]), "tea"]), "'tea' without a tag"),
    ],
)
def test_what_is_no_tree_is_named(broken, message):
    with pytest.raises(InputError, match=message):
        read_trees(broken)


def test_ratios_by_hand():
    # "doctors say that tea helps", and keywords.
    counts = [BY_HAND["object clause"][1], BY_HAND["keywords"][1]]
    found = syntactic_indices(dict(zip(TreeCounts._fields, np.array(counts).T)))
    assert tuple(found) == LU
    # W S VP C T DC CT CP CN = 5 1 2 2 1 1 1 0 1
    by_hand = {
        "MLS": 5 / 1, "MLT": 5 / 1, "MLC": 5 / 2, "C/S": 2 / 1, "VP/T": 2 / 1, "C/T": 2 / 1, "DC/C": 1 / 2, "DC/T": 1 / 1,
        "T/S": 1 / 1, "CT/T": 1 / 1, "CP/T": 0 / 1, "CP/C": 0 / 2, "CN/T": 1 / 1, "CN/C": 1 / 2,
    }  # fmt: skip
    assert {name: values[0] for name, values in found.items()} == by_hand
    # Keywords: 3 words in a sentence without clause and T-unit.
    keywords = {name: values[1] for name, values in found.items()}
    assert {name for name, value in keywords.items() if not np.isnan(value)} == {"MLS", "C/S", "T/S"}
    assert (keywords["MLS"], keywords["C/S"], keywords["T/S"]) == (3, 0, 0)
