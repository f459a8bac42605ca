"""The Stanford parser: what goes to Java and what comes back, by a stand-in for ``java``; and the parser itself, where it is."""

import json
import logging
import pickle
import re
import stat
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.linguistic.data import stanford
from pyterrier_debias.linguistic.data.stanford import StanfordParser, get_parser, maven_commands, sentences_of
from pyterrier_debias.linguistic.formulas.trees import LU, read_trees, tree_counts
from pyterrier_debias.linguistic.measures.complexity import LinguisticComplexity
from tests.conftest import ROOT, importable

#: Every word a noun of one phrase; what some words do is in their names. Each call leaves its arguments and its lines.
JAVA = """
import json, sys
lines = sys.stdin.buffer.read().decode("utf-8").split("\\n")[:-1]
with open({log!r}, "a", encoding="utf-8") as log:
    print(json.dumps([sys.argv[1:], lines]), file=log)
for line in lines:
    words = line.split(" ")
    tree = "(ROOT (NP " + " ".join("(NN " + word + ")" for word in words) + "))"
    if "skipped" in words:
        tree = "(())"
    if "flat" in words:
        tree = "(X " + " ".join("(X " + word + ")" for word in words) + ")"
    if "crash" in words:
        print("Parsing [sent. 1 len. 1]: crash\\nException: java.lang.OutOfMemoryError: Java heap space", file=sys.stderr)
        sys.exit(1)
    if "torn" in words:
        tree = "(ROOT (NN torn) (NN apart))"
    if "mute" not in words:
        sys.stdout.buffer.write((tree + "\\n").encode("utf-8"))
"""


@pytest.fixture(autouse=True)
def forgetful():
    """What one test parsed, another has not."""
    stanford._kept.cache_clear()
    yield
    stanford._kept.cache_clear()


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A folder with jars, a ``java`` on the path, and what it was asked."""
    home, bin_, log = tmp_path / "home", tmp_path / "bin", tmp_path / "log"
    home.mkdir()
    bin_.mkdir()
    for name in ("stanford-parser-3.3.1.jar", "stanford-parser-3.3.1-models.jar"):
        (home / name).touch()
    (bin_ / "java.py").write_text(JAVA.format(log=str(log)), encoding="utf-8")
    (bin_ / "java").write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{bin_ / "java.py"}" "$@"\n', encoding="utf-8")
    (bin_ / "java").chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(bin_))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    def asked():
        return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []

    return home, asked


def queries(*texts):
    return pd.DataFrame({"qid": [str(i) for i in range(len(texts))], "query": list(texts)})


# ------------------------------------------------------------------------------------------------ sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("green tea", ["green tea"]),
        ("Don't you cannot", ["Do n't you can not"]),
        ("He left. She (Ann) stayed! Why?!", ["He left .", "She ( Ann ) stayed !", "Why ? !"]),
        ('He said "no." She left', ['He said " no . "', "She left"]),
        ("node.js in the U.S. and/or at http://a.b/c?d=e, a@b.c", ["node.js in the U.S. and/or at http://a.b/c?d=e , a@b.c"]),
        ("dr. dre of st. louis. Mr. J. K. Fox, Ph.D.", ["dr. dre of st. louis .", "Mr. J. K. Fox , Ph.D."]),
        ("it ends.Then it goes on", ["it ends .", "Then it goes on"]),
        ("3.5 % of $ 1,000 ... more", ["3.5 % of $ 1,000 ... more"]),
        ("? tea. - (", ["? tea . - ("]),
        ("?! …", []),
        ("", []),
    ],
)
def test_sentences_and_tokens(text, sentences):
    assert [" ".join(one) for one in sentences_of(text)] == sentences


def test_no_token_holds_what_the_parser_cuts_at():
    # Java takes these for blanks, or for nothing: by trying every control, format and space character on the parser.
    characters = map(chr, (*range(0x3100), *range(0xD800, 0xD802), *range(0xFE00, 0x10000), *range(0xE0000, 0xE0080)))
    odd = [c for c in characters if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zs", "Zl", "Zp")]
    for token in sentences_of(" ".join(f"a{c}b" for c in odd))[0]:
        assert token in ("a", "b", "ab")


# ------------------------------------------------------------------------------------------------ a process


def test_one_process_for_many_texts_and_none_for_known_ones(fake):
    home, asked = fake
    parser = StanfordParser(home=home, memory="300m")
    texts = ["green tea", "He left. She stayed.", "?!", "green tea", "“it’s”"]
    found = parser(texts)
    assert found[1] == ("(ROOT (NP (NN He) (NN left) (NN .)))", "(ROOT (NP (NN She) (NN stayed) (NN .)))")
    assert found[0] == found[3] and len(found[0]) == 1 and found[2] == ()
    [[arguments, lines]] = asked()
    assert lines == ["green tea", "He left .", "She stayed .", "`` it 's ''"]
    assert arguments[0] == "-mx300m" and arguments[-2:] == ["edu/stanford/nlp/models/lexparser/englishPCFG.caseless.ser.gz", "-"]
    # Equal parsers know the same trees, also after pickling; other grammars do not.
    assert pickle.loads(pickle.dumps(parser))(texts) == StanfordParser(home=home)(texts) == found
    assert len(asked()) == 1
    StanfordParser(home=home, grammar="cased")(["green tea"])
    assert asked()[1][0][-2].endswith("/englishPCFG.ser.gz")


def test_a_grammar_by_its_path_needs_no_jar_of_grammars(fake, tmp_path):
    home, asked = fake
    (home / "stanford-parser-3.3.1-models.jar").unlink()
    (home / "stanford-parser-3.3.1.jar").rename(home / "stanford-parser.jar")
    path = tmp_path / "my.ser.gz"
    with pytest.raises(InputError, match=r"there is no grammar .*my\.ser\.gz"):
        StanfordParser(home=home, grammar=path)(["tea"])
    path.write_bytes(b"grammar")
    StanfordParser(home=home, grammar=path)(["tea"])
    assert asked()[0][0][-2] == str(path) and str(home / "stanford-parser.jar") in asked()[0][0]
    assert StanfordParser(grammar=path).name == "stanford 3.3.1, my.ser.gz"


def test_trees_in_a_folder_serve_later_processes(fake, tmp_path):
    home, asked = fake
    parser = StanfordParser(home=home, cache=tmp_path / "trees")
    first = parser(["green tea", "black tea"])
    stanford._kept.cache_clear()
    assert parser(["black tea", "green tea"]) == first[::-1] and len(asked()) == 1
    parser(["white tea", "green tea"])
    assert asked()[1][1] == ["white tea"]
    stanford._kept.cache_clear()
    StanfordParser(home=home, grammar="cased", cache=tmp_path / "trees")(["green tea"])
    assert len(asked()) == 3
    [file, *_] = sorted((tmp_path / "trees").iterdir())
    file.write_text(file.read_text().replace("NN", "JJ"))
    stanford._kept.cache_clear()
    with pytest.raises(InputError, match="is damaged"):
        parser(["green tea"])
    file.write_text("(ROOT)")
    with pytest.raises(InputError, match="holds no trees"):
        parser(["green tea"])


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("skipped", r"the text 'tea is skipped' was skipped"),
        ("flat", r"the text 'tea is flat' got a flat tree, which is no parse; give the parser more memory"),
        ("crash", r"Java ended with status 1 at the text 'tea is crash' \(.*OutOfMemoryError.*more than memory='1g'"),
        ("torn", r"has 2 words, but that part of 'tea is torn' has 3"),
        ("mute", r"Java ended with status 0 at the text 'green tea'"),
    ],
)
def test_what_was_not_parsed_is_an_error_with_the_text_and_never_kept(fake, word, message):
    home, asked = fake
    parser = StanfordParser(home=home)
    texts = [f"tea is {word}", "green tea"] if word == "mute" else ["green tea", f"tea is {word}", "tea"]
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            parser(texts)
    assert len(asked()) == 2


def test_what_is_missing_is_named_with_the_commands_that_fetch_it(fake, monkeypatch, tmp_path):
    home, _ = fake
    commands = [
        "mvn dependency:get -Dartifact=edu.stanford.nlp:stanford-parser:3.3.1 -Dtransitive=false",
        "mvn dependency:get -Dartifact=edu.stanford.nlp:stanford-parser:3.3.1:jar:models -Dtransitive=false",
    ]
    assert list(maven_commands()) == commands
    for name in ("stanford-parser-3.3.1-models.jar", "stanford-parser-3.3.1.jar"):
        (home / name).unlink()
        with pytest.raises(InputError, match=f"there is no {name} in .*home") as raised:
            StanfordParser(home=home)(["tea"])
        assert all(command in str(raised.value) for command in commands)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="there is no Java") as raised:
        StanfordParser()(["tea"])
    assert all(command in str(raised.value) for command in commands)
    StanfordParser()(["?"])  # nothing to parse, nothing is needed


def test_the_jars_are_where_maven_puts_them(fake, monkeypatch, tmp_path):
    home, asked = fake
    place = tmp_path / "user" / ".m2" / "repository" / "edu" / "stanford" / "nlp" / "stanford-parser" / "3.3.1"
    place.parent.mkdir(parents=True)
    home.rename(place)
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    StanfordParser()(["tea"])
    assert str(place / "stanford-parser-3.3.1-models.jar") in asked()[0][0][2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory": "1"}, "memory='1' must be"),
        ({"memory": 300}, "memory=300 must be"),
        ({"version": "../3"}, "version='../3' must be"),
        ({"max_words": 0}, "max_words=0 must be"),
        ({"max_words": "9"}, "max_words='9' must be"),
        ({"grammar": "german"}, "grammar='german' is not known; use one of 'caseless', 'cased', or the path"),
    ],
)
def test_options_that_are_not_known_are_named(options, message):
    with pytest.raises(InputError, match=message):
        StanfordParser(**options)(["tea"])


# ------------------------------------------------------------------------------------------------ the stage


def test_long_texts_are_left_out_with_a_warning(fake, caplog):
    home, asked = fake
    parser = StanfordParser(home=home, max_words=3)
    long = "one two three. one two three four"
    assert parser(["a b c", long]) == [("(ROOT (NP (NN a) (NN b) (NN c)))",), None]
    with caplog.at_level(logging.WARNING):
        stage = LinguisticComplexity(["MLS", "NDW"], parser=parser, undefined="zero", keep_indices=True)
        scored = stage(queries("a b c", long, "d"))
    assert "left out 1 of 3 different texts (33.3 %)" in caplog.text
    assert scored["MLS"].tolist()[::2] == [3, 1] and np.isnan(scored["MLS"][1]) and scored["NDW"].tolist() == [3, 4, 1]
    assert stage.report()["by"].iloc[0] == "parser stanford 3.3.1, englishPCFG.caseless.ser.gz"
    assert StanfordParser(home=home)([long])[0] is not None and len(asked()) == 3  # "d"; and without the limit


def test_by_its_name(fake, monkeypatch):
    home, _ = fake
    assert get_parser("stanford") == StanfordParser() and get_parser(None) is None and get_parser(len) is len
    monkeypatch.setattr(stanford, "StanfordParser", lambda: StanfordParser(home=home))
    stage = LinguisticComplexity(["MLS"], parser="stanford")
    assert stage(queries("green tea", "tea"))["complexity"].tolist() == [1, -1]
    with pytest.raises(InputError, match="parser='malt' is not known"):
        LinguisticComplexity(["MLS"], parser="malt")(queries("tea"))


@pytest.fixture
def maven(fake, monkeypatch, tmp_path):
    """The jars where Maven puts them."""
    home, asked = fake
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    place = tmp_path / "user" / ".m2" / "repository" / "edu" / "stanford" / "nlp" / "stanford-parser" / "3.3.1"
    place.parent.mkdir(parents=True)
    home.rename(place)
    return asked


def test_the_benchmark_counts_what_the_parser_gives(maven, monkeypatch, tmp_path, capsys):
    (tmp_path / "queries.tsv").write_text("1\tgreen tea\n2\ttea\n3\tgreen tea\n4\twhat is tea good for\n")
    with importable(ROOT / "benchmarks"):
        import syntax

        command = ["syntax.py", "--queries", f"small={tmp_path / 'queries.tsv'}", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", command)
        syntax.main()
        assert list(syntax.sampled(str(tmp_path / "queries.tsv"), 2)["qid"]) == ["2", "4"]
    # No clause in noun phrases; MLS is their number of words; both grammars of the stand-in are the same.
    tables = (tmp_path / "complexity_syntax.inc").read_text()
    assert re.search(r"small +3 +2\.7 +\d+ +100 % +100 %", tables) and re.search(r"MLS +100 % +1\.000", tables)
    assert re.search(r"small +0 %( +0 %){9} +1\.000", tables) and len(maven()) == 2


def test_the_benchmark_compares_the_parser_with_reference_trees(maven, monkeypatch, tmp_path, capsys):
    """The stand-in makes noun phrases: of three queries one is right, and another one's words and sentence."""
    (tmp_path / "queries.tsv").write_text("1\tgreen tea\n2\tit works\n3\tsam's car\n4\tunused\n")
    phrase, clause = "2 1 0 0 0 0 0 0 0", "2 1 1 1 1 0 0 0 0"
    trees = {
        "1": (phrase, phrase, "(ROOT (NP (NN x) (NN x)))"),
        "2": (clause, phrase, "(ROOT (S (NP (PRP x)) (VP (VBZ x))))"),
        "3": ("3 1 0 0 0 0 0 0 1",) * 2 + ("(ROOT (NP (NP (NNP x) (POS x)) (NN x)))",),
    }
    lines = "".join(f"small\t{qid}\t{chr(9).join(cells)}\n" for qid, cells in trees.items())
    (tmp_path / "trees.tsv").write_text("collection\tqid\tfirst\tsecond\ttree\n" + lines)
    with importable(ROOT / "benchmarks"):
        import syntax

        command = ["syntax.py", "--queries", f"small={tmp_path / 'queries.tsv'}", "--out", str(tmp_path)]
        monkeypatch.setattr(sys, "argv", [*command, "--agreement", str(tmp_path / "trees.tsv")])
        syntax.main()
        monkeypatch.setattr(sys, "argv", [*command, "--agreement", str(tmp_path / "none.tsv")])
        (tmp_path / "none.tsv").write_text("collection\tqid\tfirst\tsecond\ttree\nsmall\t9\n")
        with pytest.raises(InputError, match="no query '9' of 'small'; give each collection"):
            syntax.main()
    tables = (tmp_path / "complexity_agreement.inc").read_text()
    exact, two, one = r"100 \[29, 100\]", r"67 \[9, 99\]", r"33 \[1, 91\]"  # Clopper and Pearson
    for structure, agree, sums in (
        ("W", (exact, exact, exact), ("67", "7", "7", "7")), ("VP", (two, two, two), ("67", "1", "0", "0")),
        ("CN", (exact, two, two), ("67", "1", "0", "0")), ("all nine", (two, one, one), ("–",) * 4),
    ):  # fmt: skip
        assert re.search(rf"^   {structure} +" + " +".join([*agree, *sums]) + "$", tables, re.MULTILINE), structure
    assert re.search(r"queries +3 +2 +1\n   W +" + exact, tables)  # all; noun phrases; others
    assert re.search(r"^   small +3 +67 % +100 % +67 % +100 % +\d", tables, re.MULTILINE)


def test_reference_trees_hold_no_text():
    """The published trees: 200 queries, no word, the counts of both passes."""
    lines = pd.read_csv(ROOT / "benchmarks" / "syntax_trees.tsv", sep="\t", dtype=str)
    assert lines["collection"].value_counts().to_dict() == {"MS MARCO dev": 100, "FiQA": 60, "NFCorpus": 40}
    assert not lines.duplicated(["collection", "qid"]).any()
    for _, _, first, second, tree in lines.itertuples(index=False):
        assert {node.word for root in read_trees(tree) for node in root.below()} <= {None, "x", "."}
        counts = tree_counts(read_trees(tree))
        passes = {tuple(map(int, one.split())) for one in (first, second)}
        assert all(len(one) == 9 for one in passes)
        # Where both agree, nothing was to be settled.
        assert len(passes) == 2 or passes == {counts}


# ------------------------------------------------------------------------------------------------ the parser itself


@pytest.fixture(scope="module")
def parsed():
    """Trees of real grammars: caseless, cased."""
    home = Path("~/.m2/repository/edu/stanford/nlp/stanford-parser/3.3.1").expanduser()
    if not (home / "stanford-parser-3.3.1-models.jar").is_file():
        pytest.skip(f"the Stanford parser is not in {home}: {' && '.join(maven_commands())}")
    texts = [
        "what is the capital of france", "green tea benefits", "He left. She (Ann) stayed in a/b!", "doctors say that tea helps",
        "naïve “tea” 7½ \xa0 [x] {y} * 😀 <b> C:\\x 50% ’s #1 a\u200bb",
    ]  # fmt: skip
    return texts, StanfordParser(memory="300m")(texts)


@pytest.mark.java
def test_real_trees(parsed):
    texts, trees = parsed
    counts = {text: tree_counts(read_trees(one)) for text, one in zip(texts, trees)}
    # W S VP C T DC CT CP CN, by hand: an SBARQ with one clause and a complex nominal; a fragment; two sentences; an SBAR.
    assert counts[texts[0]] == (6, 1, 1, 1, 1, 0, 0, 0, 1)
    assert counts[texts[1]][:5] == (3, 1, 0, 0, 0)
    assert counts[texts[2]][:5] == (7, 2, 2, 2, 2)
    assert counts[texts[3]] == (5, 1, 2, 2, 1, 1, 1, 0, 1)
    assert len(trees[4]) == 1


@pytest.mark.java
def test_a_small_heap_is_an_error_with_the_text(parsed):
    stanford._kept.cache_clear()
    long = "the cat that saw a dog in the park which was near my old house said that " * 4
    with pytest.raises(InputError, match=r"at the text 'the cat that saw .*more than memory='60m'"):
        StanfordParser(memory="60m")(["green tea", long])


@pytest.mark.java
def test_no_index_of_table_4_is_missing_for_lack_of_a_tool(parsed):
    texts, _ = parsed
    stage = LinguisticComplexity("table4", parser="stanford", keep_indices=True, tagger="textblob", lemmatiser="form")
    scored = stage(queries(*texts))
    assert scored[list(LU)].notna().any().all()
    assert stage.summary()["no_t_unit"] == 2 / 5
