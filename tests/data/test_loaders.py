"""Small files in every format, right and wrong."""

import gzip
import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyterrier_debias import Collection, Finding, InputError, System, audit, open_dataset
from pyterrier_debias.core.dataset import Dataset, provided
from pyterrier_debias.data import lines
from pyterrier_debias.data.answers import locate, read_qna, read_spans, read_squad
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.data.readers import read_corpus, read_qrels, read_run, read_topics
from tests.biases import Made

RUN_LINE = b"1 Q0 a 1 1 t\n"
QUESTION = {"id": "q1", "question": " Who? ", "answers": [{"text": "Ada", "answer_start": 7}]}


def write(folder, name, content):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def squad(*questions, context="It was Ada."):
    article = {"title": "T", "paragraphs": [{"context": context, "qas": list(questions)}]}
    return json.dumps({"version": "v2.0", "data": [article]})


def moved(start):
    """The question with its answer's offset wrong."""
    return {**QUESTION, "answers": [{"text": "Ada", "answer_start": start}]}


# --- halves of surrogate pairs


@pytest.mark.parametrize(
    ("read", "content", "line"),
    [
        (read_corpus, '{"_id": "d1", "text": "a"}\n{"_id": "d2", "text": "water \\ud83d"}\n', 2),
        (read_corpus, '{"_id": "d1", "text": "\\uDE00\\uD83D"}\n', 1),
        (read_topics, '{"_id": "q\\udfff", "text": "water"}\n', 1),
        (read_squad, squad(context="It was Ada. \ud83d"), 1),
        (read_spans, '{"qid": 1, "query": "who", "psgid": 7, "passage": "Ada \\ud83d\\u0041", "selected_spans": []}', 1),
        (read_qna, '{"query_id": 1, "query": "a \\ud83d", "passages": []}', 1),
    ],
)
def test_half_of_a_surrogate_pair_is_named_with_its_line(tmp_path, read, content, line):
    path = write(tmp_path, "f.json", content)
    with pytest.raises(InputError, match=rf"f\.json:{line}: column \d+ holds half of a surrogate pair, \\u\w{{4}}; write both"):
        read(path)


def test_whole_pairs_and_escaped_backslashes_are_no_halves(tmp_path):
    rows = '{"_id": "1", "text": "\\ud83d\\ude00"}\n{"_id": "2", "text": "\\\\ud83d"}\n{"_id": "3", "text": "\\ud7ff\\ue000"}\n'
    assert read_corpus(write(tmp_path, "c.jsonl", rows))["text"].tolist() == ["\U0001f600", "\\ud83d", "\ud7ff\ue000"]


# --- right files


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("c.tsv", "1\tone\n2\ttwo too\n"),
        ("c.tsv.gz", "1\tone\n2\ttwo too\n"),
        ("c.tsv", "docno\ttext\n1\tone\n2\ttwo too\n"),
        ("c.tsv", "\ufeff1\tone\r\n2\ttwo too\r\n\r\n"),
        ("c.jsonl", '{"_id": 1, "text": "one", "metadata": {}}\n{"_id": "2", "text": "two too", "metadata": {}}\n'),
        ("c.jsonl.gz", '{"id": "1", "contents": "one"}\n\n{"id": "2", "contents": "two too"}\n'),
        ("c.trec", "<DOC>\n<DOCNO> 1 </DOCNO>\none\n</DOC>\n<DOC>\n<DOCNO>2</DOCNO>\n<TEXT>\ntwo\n  too\n</TEXT>\n</DOC>\n"),
    ],
)
def test_corpora(tmp_path, name, content):
    frame = read_corpus(write(tmp_path, name, content))
    assert frame[["docno", "text"]].values.tolist() == [["1", "one"], ["2", "two too"]]


def test_a_comparison_in_a_trec_document_is_no_tag(tmp_path):
    text = "<DOC>\n<DOCNO>1</DOCNO>\n<!-- a remark --><P align='left'>if a < b and c > d</P><BR/>, it ends\n</DOC>\n"
    (row,) = read_corpus(write(tmp_path, "c.trec", text)).to_dict("records")
    assert row == {"docno": "1", "text": "if a < b and c > d , it ends"}


def test_other_fields_of_a_corpus(tmp_path):
    path = write(tmp_path, "c.jsonl", '{"_id": "1", "text": "one", "title": "I"}\n{"_id": "2", "text": "", "url": "u"}\n')
    assert read_corpus(path).fillna("?").to_dict("records") == [
        {"docno": "1", "text": "one", "title": "I", "url": ""},
        {"docno": "2", "text": "", "title": "", "url": "u"},
    ]
    path = write(tmp_path, "c.tsv", "D1\thttp://x\ta title\ta body\n")
    frame = read_corpus(path, columns=("docno", "url", "title", "text"))
    assert frame.to_dict("records") == [{"docno": "D1", "url": "http://x", "title": "a title", "text": "a body"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "1\t do goldfish grow\n2\twho?\n"),
        ("t.tsv", "qid\tquery\n1\tdo goldfish grow\n2\twho?\n"),
        ("t.jsonl", '{"_id": "1", "text": "do goldfish grow"}\n{"_id": 2, "text": "who?"}\n'),
        ("t.trec", "<top>\n<num> Number: 1\n<title> do goldfish grow\n\n<desc> Description:\nGrowth.\n</top>\n"
                   "<top>\n<num>2</num><title>\nwho?\n</title>\n</top>\n"),
        ("t.trec.gz", "<top>\n<num>1</num><title>do goldfish grow</title>\n</top>\n"
                      "<top>\n<num>2</num><title>who?</title>\n</top>\n"),
        ("t.trec", "<top><num>1</num><title>do goldfish grow</title></top><top><num>2</num><title>who?</title></top>\n"),
        ("t.xml", '<?xml version="1.0" encoding="UTF-8"?>\n<topics>\n<topic number="1"><query>do goldfish grow</query></topic>\n'
                  '<topic number="2"><query>who?</query></topic>\n</topics>\n'),
        ("t.xml", '<topics><title>A track</title>\n<topic number="1"><title>do goldfish grow</title>'
                  '<narrative>Of growth.</narrative></topic>\n'
                  '<topic number="2"><title>People</title><query>who?</query></topic>\n</topics>\n'),
        ("t.xml", '<topics><topic number="1"><title/><question>do goldfish grow</question></topic>\n'
                  '<topic number="2"><title/><query>who?</query></topic>\n</topics>\n'),
        ("t", gzip.compress(b"\xef\xbb\xbf<top>\n<num> Number: 1\n<title> do goldfish grow\n\n<desc> Growth.\n</top>\n"
                            b"<top>\n<num>2</num><title>\nwho?\n</title>\n</top>\n", mtime=0)),
        ("t.tsv", "1 \tdo goldfish grow\n 2\twho?\n"),
    ],
)  # fmt: skip
def test_topics(tmp_path, name, content):
    frame = read_topics(write(tmp_path, name, content))
    assert frame[["qid", "query"]].values.tolist() == [["1", "do goldfish grow"], ["2", "who?"]]


@pytest.mark.parametrize(
    "content",
    [
        "1 0 a 1\n1 0 b -2\n",
        "1\tQ0\ta\t1\n1\tQ0\tb\t-2",
        "query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t-2\n",
        "1\ta\t1\n1\tb\t-2\n",
    ],
)
def test_qrels(tmp_path, content):
    frame = read_qrels(write(tmp_path, "qrels", content))
    assert frame.values.tolist() == [["1", "a", 1], ["1", "b", -2]]
    assert frame["label"].dtype == "int64"


@pytest.mark.parametrize(
    "content", ["query-id\tcorpus-id\tscore\n1\tNew York\t1\n1\t York \t0\n", "1\t0\tNew York\t1\n1\t0\tYork\t0"]
)
def test_tabs_let_identifiers_hold_spaces(tmp_path, content):
    path = write(tmp_path, "qrels", content)
    assert read_qrels(path).values.tolist() == [["1", "New York", 1], ["1", "York", 0]]
    with pytest.raises(InputError, match=r"qrels:\d: [34] fields were expected, found 1"):  # one separator for a file
        read_qrels(write(tmp_path, "qrels", f"{content.rstrip()}\n1 0 Paris 1\n"))


@pytest.mark.parametrize(
    "content",
    [
        "qid\tdocno\tlabel\titeration\n1\ta\t1\t0\n1\tb\t-2\t0\n",  # as ir_datasets' judgements in PyTerrier
        "qid\tlabel\tdocno\n1\t1\ta\n1\t-2\tb\n",
        "Doc_ID Query_ID Relevance\na 1 1\nb 1 -2\n",
        "score\tcorpus-id\tquery-id\n1\ta\t1\n-2\tb\t1\n",
        "qid Q0 docno label\n1 Q0 a 1\n1 Q0 b -2\n",
        "qid\tsubtopic\tdocument\tlabel\n1\t0\ta\t1\n1\t0\tb\t-2\n",  # unknown names count by their places
        "id docno label\n1 a 1\n1 b -2\n",
        "qid\tdocno\tlabel\n1 a 1\n1 b -2\n",
    ],
)
def test_the_header_of_judgements_says_which_field_is_which(tmp_path, content):
    assert read_qrels(write(tmp_path, "qrels", content)).values.tolist() == [["1", "a", 1], ["1", "b", -2]]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("\tqid\tdocno\tlabel", "'', qid, docno, label"),  # to_csv with the index
        ("\tqid\tdocno\tlabel\titeration", "'', qid, docno, label, iteration"),
        ("qid\tlabel\tdocument", "qid, label, document"),
        ("qid\tdocno\tlabel\tassessor", "qid, docno, label, assessor"),
        ("qid docno", "qid, docno"),
    ],
)
def test_a_header_of_judgements_with_other_columns_is_an_error(tmp_path, header, told):
    path = write(tmp_path, "qrels", f"{header}\n0\t1\t2\t1\n")
    with pytest.raises(
        InputError, match=rf"qrels:1: the header is {told}; write the columns qid, docno, label \(to_csv\(index=False\)\)$"
    ):
        read_qrels(path)


def test_errors_below_a_header_name_its_order(tmp_path):
    with pytest.raises(InputError, match="f:2: 3 fields were expected, found 4; write 'docno qid label'"):
        read_qrels(write(tmp_path, "f", "docno qid label\na 1 0 1\n"))
    with pytest.raises(InputError, match="f:3: label 'b' is not a whole number; write 'qid label docno'"):
        read_qrels(write(tmp_path, "f", "qid label docno\n1 1 a\n1 b 1\n"))


def test_the_header_of_a_table_says_which_field_is_which(tmp_path):
    def read(function, content, **options):
        return function(write(tmp_path, "f.tsv", content), **options)

    for header in ("text\tdocno", "contents\tid", "Body\tDocno"):
        frame = read(read_corpus, f"{header}\nwater\td1\ntea\td2\n")
        assert frame.to_dict("records") == [{"docno": "d1", "text": "water"}, {"docno": "d2", "text": "tea"}]
        assert list(frame) == ["docno", "text"]
    for header in ("query\tqid", "text\t_id"):
        assert read(read_topics, f"{header}\nwhat is tea\t1\n").values.tolist() == [["1", "what is tea"]]
    assert read(read_topics, "query_id\tquery_text\n1\twhat is tea\n").values.tolist() == [["1", "what is tea"]]
    columns = ("docno", "url", "title", "text")
    frame = read(read_corpus, "title\tbody\tid\turl\nT\tB\td1\tU\n", columns=columns)
    assert frame.to_dict("records") == [{"docno": "d1", "url": "U", "title": "T", "text": "B"}]
    message = r"f.tsv:1: the header is {}; write the columns {} \(to_csv\(index=False\)\)$"
    for header, there in (("\tdocno\ttext", "'', docno, text"), ("headline\tdocno", "headline, docno")):
        with pytest.raises(InputError, match=message.format(there, "docno, text")):
            read(read_corpus, f"{header}\n0\td1\twater\n")
    with pytest.raises(InputError, match=message.format("'', qid, query", "qid, query")):
        read(read_topics, "\tqid\tquery\n0\t1\twhat\n")
    with pytest.raises(InputError, match=r"f\.tsv:2: 2 tab-separated fields were expected, found 1; write 'text<TAB>docno'"):
        read(read_corpus, "text\tdocno\nwater\n")


def test_a_first_line_with_a_name_of_a_column_in_it_is_no_header(tmp_path):
    assert read_topics(write(tmp_path, "f", "1\tid\n2\ttitle\n")).values.tolist() == [["1", "id"], ["2", "title"]]
    assert read_corpus(write(tmp_path, "f", "1\ttext\n"))["text"].tolist() == ["text"]
    assert read_qrels(write(tmp_path, "f", "1 0 docno 1\n")).values.tolist() == [["1", "docno", 1]]
    assert read_qrels(write(tmp_path, "f", "1 Q0 id 1\n")).values.tolist() == [["1", "id", 1]]


def test_runs_are_ranked_by_score_whatever_their_ranks_say(tmp_path):
    path = write(tmp_path, "r", "q2 Q0 a 1 1 t\nq1 Q0 a 1 1 t\nq1 Q0 b 3 2.5 t\nq1 Q0 c 2 1 t\nq1 Q0 d 4 -inf t\n")
    frame = read_run(path)
    assert frame["docno"].tolist() == ["a", "b", "c", "a", "d"]  # a tie: descending docno, as trec_eval breaks it
    assert frame["qid"].tolist() == ["q2"] + ["q1"] * 4
    assert frame["rank"].tolist() == [0, 0, 1, 2, 3]
    assert frame["score"].dtype == "float64"


def test_tied_scores_can_follow_the_files_ranks(tmp_path):
    path = write(tmp_path, "r", "1 Q0 a 1 .5 t\n1 Q0 b 2 .5 t\n1 Q0 c 3 .5 t\n1 Q0 d 4 .49999999 t\n2 Q0 a 1 .5 t\n")
    frame = read_run(path, ties="rank")
    assert frame["docno"].tolist() == ["a", "b", "c", "d", "a"]
    first = frame[frame["qid"] == "1"]["score"].to_numpy()
    assert (np.diff(first.astype("float32")) < 0).all()  # trec_eval holds scores in 32 bits
    assert first == pytest.approx([0.5, 0.5, 0.5, 0.5], abs=1e-6)
    assert frame["score"].iloc[0] == frame["score"].iloc[4] == 0.5
    with pytest.raises(InputError, match="ties='file' is not known"):
        read_run(path, ties="file")
    with pytest.raises(InputError, match=r"r:1: rank 'x' is not a number"):
        read_run(write(tmp_path, "r", "1 Q0 a x .5 t\n"), ties="rank")


ROWS = st.tuples(st.integers(0, 3), st.integers(0, 20), st.floats(-5, 5, width=32))


@settings(max_examples=50)
@given(st.lists(ROWS, unique_by=lambda r: r[:2], min_size=1))
def test_a_run_survives_a_round_trip(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("runs") / "run"
    path.write_text("".join(f"q{q} Q0 d{d} 0 {s!r} t\n" for q, d, s in rows))
    frame = read_run(path)
    assert {(r.qid, r.docno, r.score) for r in frame.itertuples()} == {(f"q{q}", f"d{d}", float(s)) for q, d, s in rows}
    for _, group in frame.groupby("qid"):
        assert group["rank"].tolist() == list(range(len(group)))
        assert group.sort_values(["score", "docno"], ascending=False)["docno"].tolist() == group["docno"].tolist()


# --- wrong files: message and line

LONG_RUN = "".join(f"1 Q0 d{i} 1 1 t\n" for i in range(50)).encode()
RUN, QRELS, CORPUS, TOPICS = read_run, read_qrels, read_corpus, read_topics


@pytest.mark.parametrize(
    ("read", "content", "message"),
    [
        (RUN, "1 Q0 a 1 1.0 t\n1 Q0 b 2 1.0\n", r"f:2: 6 fields were expected, found 5; write 'qid Q0 docno rank score tag'"),
        (RUN, "1 Q0 a 1 high t\n", r"f:1: score 'high' is not a number"),
        (RUN, "1 Q0 a 1 1_0.5 t\n", r"f:1: score '1_0.5' is not a number"),
        (RUN, "1 Q0 a 1 2 t\n1 Q0 b 2 NaN t\n", r"f:2: the score is NaN; .*leave such lines out"),
        (RUN, "1 Q0 a 1 2 t\n\n1 Q0 a 2 1 t\n", r"f:3: qid '1' and docno 'a' already occur together in line 1; keep one line"),
        (QRELS, "1 0 a 1\n1 0 b\n", r"f:2: 4 fields were expected, found 3; write 'qid 0 docno label'"),
        (QRELS, "1 0 a b 1\n", r"f:1: 3 or 4 fields were expected, found 5"),
        (QRELS, "1 0 a 0.5\n", r"f:1: label '0.5' is not a whole number"),
        (QRELS, "1 0 a 1\n1 0 b 99999999999999999999\n",
         r"f:2: label 99999999999999999999 is not a whole number up to 1000000; write 'qid 0 docno label'"),
        (QRELS, "1 0 a 1_0\n", r"f:1: label '1_0' is not a whole number"),
        (QRELS, "1\ta\t1\n1\t \t1\n", r"f:2: the qid or the docno is empty; write 'qid docno label'"),
        (QRELS, "query-id\tcorpus-id\tscore\n1\ta\t1\n1\ta\t0\n", r"f:3: qid '1' and docno 'a' already occur together in line 2"),
        (QRELS, "query-id\tcorpus-id\tscore\n", r"f:1: 3 or 4 fields were expected, found 0"),
        (CORPUS, "1\tone\n1\ttwo\n", r"f:2: docno '1' already occurs in line 1; keep one of the two"),
        (CORPUS, "1\tone\n2 two\n", r"f:2: 2 tab-separated fields were expected, found 1; write 'docno<TAB>text'"),
        (CORPUS, "1\tone\n \ttwo\n", r"f:2: the docno is empty"),
        (CORPUS, '{"_id": "1", "text": "a"}\n{"_id": "2", "te', r"f:2: not valid JSON at column 14 \(.*\); write one JSON"),
        (CORPUS, '{"_id": "1", "text": "a"}\n[1]\n', r"f:2: a JSON object was expected, found a list"),
        (CORPUS, '{"_id": "1", "txt": "a"}\n', r"f:1: no field 'text' \(it has _id, txt\); name it 'text'"),
        (CORPUS, '{"_id": "1", "text": 5}\n', r"f:1: field 'text' is an int; write a string"),
        (CORPUS, '{"_id": "1", "text": "a"}\n{"_id": "2", "text": null}\n', r"f:2: field 'text' is null; give it a value, or"),
        (TOPICS, '{"_id": null, "text": "a"}\n', r"f:1: field '_id' is null"),
        (CORPUS, '[{"_id": "1", "text": "a"}]', r"f:1: the file is a JSON array; write one JSON object per line"),
        (TOPICS, '[\n{"_id": "1", "text": "a"}\n]', r"f:1: the file is a JSON array; write one JSON object per line"),
        (CORPUS, "docno\ttext\n", r"f: the file has only a header"),
        (CORPUS, "<DOC>\n<DOCNO>1</DOCNO>\na\n", r"f:1: the document that begins here does not end"),
        (CORPUS, "<DOC>\n<DOC>\n", r"f:2: the document that begins in line 1 does not end"),
        (CORPUS, "<DOC>\nx\n</DOC>\n", r"f:1: the document has no docno"),
        (CORPUS, "<DOCUMENT>\n", r"f:1: there is text outside of a document"),
        (CORPUS, "</DOC>\n", r"f:1: </DOC> ends a document that did not begin"),
        (TOPICS, "1\ta\n1\tb\n", r"f:2: qid '1' already occurs in line 1"),
        (TOPICS, "<top><num>1</num><title>a</title></top><top><num>1</num><title>b</title></top>\n", r"f:1: qid '1' already"),
        (TOPICS, "1\ta\n1 \tb\n", r"f:2: qid '1' already occurs in line 1"),
        (TOPICS, "<topics><topic number='1'><description>a</description></topic></topics>\n",
         r"f:1: topic '1' has no query or title; write <query>\.\.\.</query>"),
        (TOPICS, "1 a\n", r"f:1: 2 tab-separated fields were expected, found 1"),
        (TOPICS, "<top>\n<num>1</num><title>a</title>\n</top>\n<top>\n<num>2</num>\n</top>\n", r"f:4: topic '2' has no title"),
        (TOPICS, "<top>\n<title>a</title>\n</top>\n", r"f:1: not TREC topics"),
        (TOPICS, "<html>\n", r"f:1: not TREC topics"),
        (TOPICS, "<topics><topic number='1'><query>a</query></topic>\n", r"f:1: not TREC topics \(no element found"),
        (TOPICS, b"1\tcaf\xe9\n", r"f:1: byte 0xe9 at offset 5 is not UTF-8; convert the file from its encoding, e.g. iconv"),
        (TOPICS, "1\ta\n".encode("utf-16"), r"f:1: the file is UTF-16, not UTF-8; convert the file, e.g. iconv -f UTF-16 -t"),
        (TOPICS, b"\xfe\xff" + "1\ta\n".encode("utf-16-be"), r"f:1: the file is UTF-16"),
        (CORPUS, b"1\tone\n2\tcaf\xe9\n", r"f:2: byte 0xe9 at offset 11 is not UTF-8"),
        (CORPUS, b"", r"f: the file is empty"),
        (QRELS, b"\n  \n", r"f: the file is empty"),
        (RUN, gzip.compress(LONG_RUN, mtime=0)[:-12], r"f:\d+: the gzip file is damaged or ends here too early; copy or"),
        (RUN, gzip.compress(b"1 Q0 a 1 1 t\n", mtime=0)[:3], r"f:1: the gzip file is damaged"),
    ],
)
def test_wrong_files_are_named_with_their_line(tmp_path, read, content, message):
    path = write(tmp_path, "f", content)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_corpus_needs_a_column_of_identifiers(tmp_path):
    with pytest.raises(InputError, match=r"read_corpus: columns=\('id', 'text'\) does not contain 'docno'; name the field"):
        read_corpus(write(tmp_path, "c.tsv", "1\tone\n"), columns=("id", "text"))


@pytest.fixture
def piped():
    """A function that gives the path of a pipe, as bash's <(cat file) does."""
    ends = []

    def pipe(content):
        end, begin = os.pipe()
        ends.append(end)
        with open(begin, "wb") as file:
            file.write(content)
        return f"/dev/fd/{end}"

    yield pipe
    for end in ends:
        os.close(end)


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="the system does not name pipes")
def test_runs_and_judgements_are_read_from_a_pipe(piped):
    assert read_run(piped(RUN_LINE)).values.tolist() == [["1", "a", 1.0, 0]]
    assert read_run(piped(gzip.compress(RUN_LINE)))["docno"].tolist() == ["a"]
    assert read_qrels(piped(b"1 0 a 1\n")).values.tolist() == [["1", "a", 1]]


@pytest.mark.skipif(not Path("/dev/fd").is_dir(), reason="the system does not name pipes")
@pytest.mark.parametrize("read", [read_corpus, read_topics])
def test_a_pipe_that_would_be_read_twice_is_refused(piped, read):
    path = piped(b"1\twater\n")
    with pytest.raises(InputError, match=f"{path}: .* a pipe can be read only once; write it to a file first"):
        read(path)


def test_files_that_are_not_there(tmp_path):
    for read in (read_run, read_qrels, read_corpus, read_topics, read_squad, read_spans, read_qna):
        with pytest.raises(InputError, match="no such file; check the path"):
            read(tmp_path / "nothing")
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        read_run(tmp_path)


@pytest.mark.parametrize("read", [read_run, read_qrels, read_corpus, read_topics, read_squad, read_spans, read_qna])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, read, monkeypatch):
    path = tmp_path / "f.gz"
    monkeypatch.setattr(lines, "_LONGEST_LINE", 1 << 20)
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(64):
            file.write(bytes([97]) * (1 << 20))
    tracemalloc.start()
    with pytest.raises(InputError, match=r"f.gz:1: the line has more than 1 MiB; write one record per line"):
        read(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20
    path.write_bytes(gzip.compress(b"q1 0 d1 1\n" + b"q1 0 d2 0"))
    if read is read_qrels:
        assert len(read(path)) == 2


def test_a_cut_corpus_is_refused_wherever_it_is_cut(tmp_path):
    """Every truncation of a gzipped file raises; none gives a shorter corpus."""
    whole = gzip.compress("".join(f"{i}\ttext number {i}\n" for i in range(40)).encode())
    path = tmp_path / "c.tsv.gz"
    for length in range(2, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(InputError, match="damaged or ends here too early"):
            read_corpus(path)


# --- answers


def test_squad(tmp_path):
    impossible = {"id": "q2", "question": "Why?", "is_impossible": True, "answers": []}
    again = {"id": "q3", "question": "Who?", "answers": [{"text": "was", "answer_start": 3, "offset": "first"}]}
    one = read_squad(write(tmp_path, "dev.json.gz", squad(QUESTION, impossible, again)))
    assert one.get_topics().values.tolist() == [["q1", "Who?"], ["q3", "Who?"]]
    assert one.get_answers()[["qid", "answer", "start", "end", "offset"]].values.tolist() == [
        ["q1", "Ada", 7, 10, "given"], ["q3", "was", 3, 6, "first"],
    ]  # fmt: skip
    docno = one.get_corpus()["docno"].item()
    assert one.get_qrels().values.tolist() == [["q1", docno, 1], ["q3", docno, 1]]
    certain = read_squad(tmp_path / "dev.json.gz", only_certain=True)
    assert certain.get_answers()["qid"].tolist() == ["q1"]
    every = read_squad(tmp_path / "dev.json.gz", unanswerable=True)
    assert every.get_topics().to_dict("list") == {
        "qid": ["q1", "q2", "q3"], "query": ["Who?", "Why?", "Who?"], "answered": [True, False, True], "title": ["T"] * 3,
    }  # fmt: skip
    assert every.get_qrels().equals(one.get_qrels()) and every.get_answers().equals(one.get_answers())
    nothing = read_squad(write(tmp_path, "none.json", squad(impossible)), unanswerable=True)
    assert nothing.get_topics()["answered"].tolist() == [False] and nothing.get_qrels().empty
    other = read_squad(write(tmp_path, "train.json", squad(QUESTION)), split="train")
    assert other.split == "train"
    assert other.get_corpus()["docno"].item() == docno


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad(moved(8)), "answer 'Ada' of question 'q1' is not at offset 8 .*'da.'"),
        (squad(moved(-4)), "answer 'Ada' of question 'q1' is not at offset -4"),
        (squad(QUESTION, QUESTION), "question id 'q1' occurs twice"),
        (squad({"id": "q1", "question": "Who?"}), "not SQuAD JSON .KeyError.'answers'"),
        (squad(context=5), "not SQuAD JSON"),
        ('{"data": [{"title": 1}]}', "not SQuAD JSON .KeyError.'paragraphs'"),
        ('{"data": []}', "contains no paragraphs"),
        (squad(), "contains no answerable questions"),
        ('{\n"data": [\n', r"dev.json:2: not valid JSON at column \d+"),
        ("[]", "dev.json:1: a JSON object was expected, found a list"),
    ],
)
def test_wrong_squad(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        read_squad(write(tmp_path, "dev.json", content))


def test_spans(tmp_path):
    rows = [
        {"qid": 1, "query": "who", "psgid": 7, "passage": "It was Ada. Ada!", "selected_spans": [" was Ada", "Ada", "Bob", ""]},
        {"qid": 1, "query": "", "psgid": 7, "passage": "", "selected_spans": [""]},
        {"qid": 2, "query": "why", "psgid": 7, "passage": "It was Ada. Ada!", "selected_spans": []},
    ]
    one = read_spans(write(tmp_path, "s.jsonl", "\n".join(map(json.dumps, rows))))
    assert one.get_answers()[["answer", "start", "end", "offset"]].values.tolist() == [
        ["was Ada", 3, 10, "unique"], ["Ada", 7, 10, "first"], ["Bob", -1, -1, "absent"],
    ]  # fmt: skip
    assert one.get_qrels().values.tolist() == [["1", "7", 1], ["2", "7", 0]]
    with pytest.raises(InputError, match=r"s\.jsonl:1: field 'psgid' is missing; write the fields qid, query, psgid"):
        read_spans(write(tmp_path, "s.jsonl", '{"qid": 1, "query": "who"}'))
    with pytest.raises(InputError, match=r"s\.jsonl:1: field 'passage' is an int"):
        read_spans(write(tmp_path, "s.jsonl", json.dumps({**rows[0], "passage": 5})))


def test_a_span_that_does_not_print_is_absent():
    assert locate("\x80", "a\x80b") == (-1, -1, "absent")


@given(st.text(max_size=30), st.integers(0, 29), st.integers(1, 10))
def test_a_span_is_found_in_its_text(text, start, length):
    span = text[start : start + length].strip()
    if not any(character.isprintable() for character in span):
        return
    begin, end, offset = locate(span, text)
    assert offset in ("unique", "first")
    assert begin <= text.find(span) or not span.isprintable()
    shown = "".join(filter(str.isprintable, text[begin:end]))
    assert shown == "".join(filter(str.isprintable, span))
    assert text[begin].isprintable()
    assert text[end - 1].isprintable()


QNA = [
    {"query_id": 9, "query": "when?", "query_type": "NUMERIC", "answers": ["in 1900", "1900"], "passages": [
        {"is_selected": 0, "passage_text": "No.", "url": "u"}, {"is_selected": 1, "passage_text": "It was 1900.", "url": "v"}]},
    {"query_id": 8, "query": "why?", "query_type": "DESCRIPTION", "answers": ["No Answer Present."], "passages": [
        {"is_selected": 0, "passage_text": "Because.", "url": "w"}]},
]  # fmt: skip


@pytest.mark.parametrize("layout", ["lines", "columns"])
def test_qna(tmp_path, layout):
    fields = ("answers", "passages", "query", "query_id", "query_type")
    columns = {field: {str(i): row[field] for i, row in enumerate(QNA)} for field in fields}
    content = "\n".join(map(json.dumps, QNA)) if layout == "lines" else json.dumps(columns)
    path = write(tmp_path, "dev_v2.1.json.gz", content)
    for one in (read_qna(path), open_dataset(path), open_dataset(tmp_path)):
        assert one.get_topics().values.tolist() == [["9", "when?", "NUMERIC"], ["8", "why?", "DESCRIPTION"]]
        assert one.get_candidates().values.tolist() == [["9", "9-0", 0.0, 0], ["9", "9-1", -1.0, 1], ["8", "8-0", 0.0, 0]]
        assert one.get_qrels()["label"].tolist() == [0, 1, 0]
        assert one.get_answers().values.tolist() == [["9", "9-1", "in 1900", -1, -1], ["9", "9-1", "1900", -1, -1]]
        assert one.get_corpus()["url"].tolist() == ["u", "v", "w"]


@pytest.mark.parametrize("first", ["passages", "query_id"])
def test_qna_of_columns_in_any_order_and_without_answers(tmp_path, first):
    """As the published files of the evaluation set are."""
    fields = sorted(("passages", "query", "query_id", "query_type"), key=lambda name: name != first)
    columns = {field: {str(i): row[field] for i, row in enumerate(QNA)} for field in fields}
    for separators in ((",", ":"), None):
        path = write(tmp_path, "eval.json", json.dumps(columns, separators=separators))
        for one in (read_qna(path), open_dataset(path)):
            assert one.get_topics().values.tolist() == [["9", "when?", "NUMERIC"], ["8", "why?", "DESCRIPTION"]]
            assert one.get_qrels()["docno"].tolist() == ["9-0", "9-1", "8-0"]
            assert one.get_answers() is None


def test_wrong_qna(tmp_path):
    with pytest.raises(InputError, match="f:2: field 'passages' is missing"):
        read_qna(write(tmp_path, "f", json.dumps(QNA[0]) + '\n{"query_id": 1}'))
    with pytest.raises(InputError, match="f:1: field 'passage_text' is missing"):
        read_qna(write(tmp_path, "f", '{"query_id": 1, "query": "x", "passages": [{"text": ""}]}'))
    with pytest.raises(InputError, match="f:1: no field 'query'"):
        read_qna(write(tmp_path, "f", '{"query_id": 1, "passages": []}'))


# --- folders

CORPUS_LINES = '{"_id": "d1", "title": "I", "text": "one"}\n{"_id": "d2", "title": "II", "text": "two"}\n'
QUERY_LINES = '{"_id": "1", "text": "a"}\n{"_id": "2", "text": "b"}\n{"_id": "3", "text": "c"}\n'


@pytest.fixture
def beir(tmp_path):
    write(tmp_path, "corpus.jsonl", CORPUS_LINES)
    write(tmp_path, "queries.jsonl", QUERY_LINES)
    write(tmp_path, "qrels/test.tsv", "query-id\tcorpus-id\tscore\n1\td1\t1\n")
    write(tmp_path, "qrels/dev.tsv", "query-id\tcorpus-id\tscore\n2\td2\t1\n")
    return tmp_path


@pytest.fixture
def trec(tmp_path):
    write(tmp_path, "collection.tsv.gz", "d1\tone\nd2\ttwo\n")
    for year in ("19", "20"):
        write(tmp_path, f"topics.dl{year}-passage.tsv", f"{year}\ta\n")
        write(tmp_path, f"qrels.dl{year}-passage.txt", f"{year} 0 d1 1\n")
        write(tmp_path, f"runs/dl{year}.bm25.trec.gz", f"{year} Q0 d2 1 {year} bm25\n")
    write(tmp_path, "runs/mine.run", "20 Q0 d2 1 5 mine\n")
    return tmp_path


def test_tied_scores_of_a_folders_runs_can_follow_the_files_ranks(beir):
    write(beir, "runs/tied.trec", "1 Q0 d1 1 .5 t\n1 Q0 d2 2 .5 t\n")
    assert open_dataset(beir).get_runs()["tied"]["docno"].tolist() == ["d2", "d1"]
    assert open_dataset(beir, ties="rank").get_runs()["tied"]["docno"].tolist() == ["d1", "d2"]


def test_a_table_of_candidates_is_a_run(beir):
    header = "qid\tpid\tbm25_rank\tlabel\n"
    write(beir, "candidates.tsv.gz", f"{header}1\td1\t2\t1\n1\td2\t1\t0\n2\td1\t1\t0\n")
    assert open_dataset(beir).get_runs()["bm25"][["qid", "docno", "score", "rank"]].values.tolist() == [
        ["1", "d2", -1.0, 0], ["1", "d1", -2.0, 1],
    ]  # fmt: skip
    write(beir, "candidates.tsv.gz", f"{header}1\td1\tfirst\t1\n")
    with pytest.raises(InputError, match=r"candidates.tsv.gz: column 'rank' is 'first', not a number, at row 0"):
        open_dataset(beir)
    write(beir, "candidates.tsv.gz", f"{header}1\td1\n")
    with pytest.raises(InputError, match=r"candidates.tsv.gz:2: 4 tab-separated fields were expected, found 2"):
        open_dataset(beir)
    write(beir, "candidates.tsv.gz", "another\ttable\n1\t2\n")
    assert open_dataset(beir).get_runs() == {}


def test_a_beir_folder(beir):
    dataset = open_dataset(str(beir))
    assert isinstance(dataset, Dataset)
    assert dataset.name == beir.name
    assert dataset.split == "test"
    assert dataset.get_topics().values.tolist() == [["1", "a"]]
    assert dataset.get_topics("dev").values.tolist() == [["2", "b"]]
    assert open_dataset(beir, split="dev").get_qrels().values.tolist() == [["2", "d2", 1]]
    assert next(dataset.get_corpus_iter()) == {"docno": "d1", "title": "I", "text": "one"}


def test_a_trec_folder(trec):
    first, second = open_dataset(trec), open_dataset(trec, split="dl20")
    assert (first.split, second.split) == ("dl19", "dl20")
    assert first.get_topics("dl20").equals(second.get_topics())
    assert list(first.get_runs()) == ["bm25"]  # mine.run ranks topics of the other split
    assert list(second.get_runs()) == ["bm25", "mine"]
    assert second.get_runs()["bm25"].values.tolist() == [["20", "d2", 20.0, 0]]


def test_an_opened_folder_has_the_runs_of_the_split_that_it_is_asked_for(trec):
    first, second = open_dataset(trec, ties="rank"), open_dataset(trec, split="dl20", ties="rank")
    write(trec, "runs/dl20.tied.trec", "20 Q0 d1 1 .5 t\n20 Q0 d2 2 .5 t\n")
    other = open_dataset(pickle.loads(pickle.dumps(first)), split="dl20")
    assert list(other.get_runs()) == ["bm25", "mine", "tied"]
    assert other.get_runs()["bm25"].equals(second.get_runs()["bm25"])
    assert other.get_runs()["tied"]["docno"].tolist() == ["d1", "d2"]
    assert first.get_runs()["bm25"]["qid"].tolist() == ["19"]
    again = open_dataset(other, split="dl19")
    assert again.get_runs()["bm25"].equals(first.get_runs()["bm25"])


def test_one_file_of_topics_and_of_judgements_keeps_all_topics(beir):
    (beir / "qrels" / "dev.tsv").unlink()
    assert len(open_dataset(beir).get_topics()) == 3


def test_one_file_of_judgements_is_shared_out_between_topics(trec):
    for year in ("19", "20"):
        (trec / f"qrels.dl{year}-passage.txt").unlink()
    write(trec, "qrels.txt", "19 0 d1 1\n20 0 d2 1\n")
    assert open_dataset(trec).get_qrels().values.tolist() == [["19", "d1", 1]]
    assert open_dataset(trec, split="dl20").get_qrels().values.tolist() == [["20", "d2", 1]]


def test_topics_and_judgements_of_other_names(trec):
    for year in ("19", "20"):
        (trec / f"qrels.dl{year}-passage.txt").rename(trec / f"qrels.year{year}.txt")
    with pytest.raises(InputError, match="topics are named dl19, dl20 and judgements year19, year20; give those that belong"):
        open_dataset(trec)
    (trec / "qrels.year20.txt").rename(trec / "qrels.dl20.txt")
    assert open_dataset(trec).split == "dl20"
    assert len(open_dataset(trec).get_topics("dl19")) == 1


def test_runs_of_one_name_are_not_guessed_between(trec):
    write(trec, "runs/dl19.bm25.run", "19 Q0 d2 1 5 bm25\n")
    with pytest.raises(InputError, match="there is another run called 'bm25' for the split 'dl19'; rename"):
        open_dataset(trec)
    assert set(open_dataset(trec, split="dl20").get_runs()) == {"bm25", "mine"}


def test_files_that_claim_one_place_are_not_guessed_between(tmp_path):
    write(tmp_path, "collection.tsv", "d1\tx\nd2\ty\n")
    write(tmp_path, "queries.tsv", "q1\tx\n")
    write(tmp_path, "qrels.txt", "q1 0 d1 1\n")
    write(tmp_path, "runs/bm25.trec", "q1 Q0 d1 1 9 t\n")
    assert open_dataset(tmp_path).get_runs()["bm25"]["docno"].tolist() == ["d1"]
    write(tmp_path, "candidates.tsv", "qid\tpid\tbm25_rank\nq1\td2\t1\n")
    with pytest.raises(InputError, match=r"candidates.tsv: there is another run called 'bm25' for the split 'test'; rename"):
        open_dataset(tmp_path)
    (tmp_path / "candidates.tsv").unlink()
    write(tmp_path, "qrels.test.txt", "q1 0 d2 1\n")
    with pytest.raises(InputError, match="several files for the split 'test': one with judgements names it, and another names"):
        open_dataset(tmp_path, "test")


def test_splits_that_are_not_there(beir):
    with pytest.raises(InputError, match="there is no split 'train'; it has dev, test"):
        open_dataset(beir, split="train")


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("corpus.jsonl", "it holds no corpus; add corpus.jsonl"),
        ("queries.jsonl", "it holds no topics; add queries.jsonl"),
        ("qrels", "it holds no judgements; add qrels/<split>.tsv or qrels.<split>.txt"),
    ],
)
def test_a_missing_file_of_a_folder(beir, missing, message):
    (beir / missing).rename(beir / "elsewhere")
    with pytest.raises(InputError, match=message):
        open_dataset(beir)


@pytest.mark.parametrize(("missing", "csv"), [("queries.jsonl", "queries.dev.csv"), ("qrels", "qrels/dev.csv")])
def test_files_with_commas_are_pointed_out(beir, missing, csv):
    (beir / missing).rename(beir / "elsewhere")
    (beir / csv).parent.mkdir(exist_ok=True)
    (beir / csv).write_text("qid,query\n")
    with pytest.raises(InputError, match=r"dev.csv is not read, because tabs must separate the fields, not commas"):
        open_dataset(beir)


def test_a_document_without_a_text_is_refused():
    """A missing text is not an empty one, and would end in an error of the ranker."""
    topics = pd.DataFrame({"qid": ["1"], "query": ["a"]})
    corpus = pd.DataFrame({"docno": ["a", "b", "c"], "text": ["", None, np.nan]})
    with pytest.raises(InputError, match=r"mine: document 'b' \(and 1 more\) has no text; give '' for an empty text"):
        Collection("mine", corpus=corpus, topics={"test": topics}, qrels={})
    assert Collection("mine", corpus=corpus.head(1), topics={"test": topics}, qrels={}).corpus["text"].tolist() == [""]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("qrels/test.tsv", "7\td1\t1\n", "no qid is in both the topics or run .e.g. none. and the judgements .e.g. '7'"),
        ("qrels/test.tsv", "1\td7\t1\n", "no judged docno .e.g. 'd7'. is in corpus.jsonl .e.g. 'd1'"),
        ("qrels/test.txt", "1\td1\t1\n", None),
        ("runs/mine", "9 Q0 d1 1 1 t\n", "mine: no qid is in both the topics or run .e.g. '9'. and the judgements"),
        ("runs/mine", "1 Q0 d1 1 t\n", "mine:1: 6 fields were expected"),
        ("corpus.jsonl", "{\n", "corpus.jsonl:1: not valid JSON"),
    ],
)
def test_wrong_files_of_a_folder(beir, name, content, message):
    write(beir, name, content)
    if message is None:
        assert open_dataset(beir).split == "test"
        return
    with pytest.raises(InputError, match=message):
        open_dataset(beir)


@pytest.mark.parametrize("name", ["runs", "qrels"])
def test_a_folder_that_cannot_be_read_does_not_count_as_empty(beir, name, monkeypatch):
    (beir / name).mkdir(exist_ok=True)
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != beir / name and access(path, mode))  # root may read all
    with pytest.raises(InputError, match=rf"{name}: this folder cannot be read; change its permissions"):
        open_dataset(beir)


def test_several_corpora_are_not_guessed_between(beir):
    (beir / "corpus.jsonl").rename(beir / "corpus.a.jsonl")
    write(beir, "corpus.b.jsonl", CORPUS_LINES)
    with pytest.raises(InputError, match=r"several files may be the corpus .corpus.a.jsonl, corpus.b.jsonl.; keep one, and join"):
        open_dataset(beir)
    (beir / "corpus.a.jsonl").rename(beir / "corpus.jsonl")
    assert len(open_dataset(beir).get_corpus()) == 2


def test_several_files_with_answers(tmp_path):
    for name in ("train-v2.0.json", "dev-v1.1.json", "dev-v2.0.json"):
        write(tmp_path, name, squad(QUESTION))
    assert open_dataset(tmp_path).split == "dev-v2.0"
    assert open_dataset(tmp_path, split="train").name == "train-v2.0"
    assert open_dataset(tmp_path, split="train").split == "train"
    with pytest.raises(InputError, match=r"split 'dev' matches several files; name one of dev-v1\.1, dev-v2\.0, train-v2\.0"):
        open_dataset(tmp_path, split="dev")
    with pytest.raises(InputError, match="split 'eval' matches no file"):
        open_dataset(tmp_path, split="eval")


def test_nothing_to_open(tmp_path):
    with pytest.raises(InputError, match="no such folder or file; name one, or 'planted', or"):
        open_dataset(tmp_path / "nothing")
    with pytest.raises(InputError, match="it holds no corpus"):
        open_dataset(tmp_path)
    with pytest.raises(InputError, match="not SQuAD JSON, marked spans or MS MARCO QnA; name the folder"):
        open_dataset(write(tmp_path, "corpus.jsonl", CORPUS_LINES))


# --- objects


class Foreign:
    """A dataset of a user's own, with identifiers of the type given."""

    name = "mine"

    def __init__(self, kind):
        self.kind = kind

    def get_corpus_iter(self, verbose=False):
        yield {"docno": self.kind(1), "text": "one"}

    def get_topics(self, variant=None):
        return pd.DataFrame({"qid": [self.kind(2)], "query": [variant or "none"]})

    def get_qrels(self, variant=None):
        return pd.DataFrame({"qid": [self.kind(2)], "docno": [self.kind(1)], "label": [1]})

    def text_loader(self, fields="text", *, verbose=False):
        pytest.fail("texts of a dataset in memory are loaded from its corpus")


def test_objects():
    own = Foreign(str)
    assert open_dataset(own) is own
    numbered = open_dataset(Foreign(int))
    assert isinstance(numbered, Collection)
    assert numbered.name == "mine"
    assert numbered.get_qrels().values.tolist() == [["2", "1", 1]]
    assert numbered.text_loader()(pd.DataFrame({"docno": ["1"]}))["text"].tolist() == ["one"]
    assert open_dataset(own, split="dev").get_topics()["query"].tolist() == ["dev"]
    with pytest.raises(InputError, match="a dict is not a dataset: it lacks get_corpus_iter, get_topics, get_qrels, text_loader"):
        open_dataset({})
    lacking = SimpleNamespace(get_index=None, get_corpus_iter=None, get_topics=None, get_qrels=None)
    with pytest.raises(InputError, match=r"it lacks text_loader; give pt.get_dataset\('irds:...'\) or TerrierCollection\("):
        open_dataset(lacking)


class Large(Foreign):
    """One that knows more, and whose corpus nobody should read."""

    def __init__(self):
        super().__init__(str)
        self.read = 0

    def get_corpus_iter(self, verbose=False):
        self.read += 1
        yield from super().get_corpus_iter()

    def get_qrels(self, variant=None):
        return super().get_qrels().assign(label={"full": 3, "dev": 2}.get(variant, 1))

    def get_runs(self):
        return {"bm25": pd.DataFrame({"qid": ["2"], "docno": ["1"], "score": [1.0], "rank": [0]})}

    def text_loader(self, fields="text", *, verbose=False):
        return pt.apply.text(lambda row: f"{fields} of {row['docno']}")


def test_runs_and_lists_with_numbers_as_identifiers_are_read_as_strings():
    class Numbered(Large):
        def get_topics(self, variant=None):
            return pd.DataFrame({"qid": ["2"], "query": ["a"]})

        def get_runs(self):
            return {"bm25": super().get_runs()["bm25"].astype({"qid": int, "docno": int})}

        def get_candidates(self):
            return self.get_runs()["bm25"]

    own = open_dataset(Numbered())
    for frame in (provided(own, "get_runs")["bm25"], provided(own, "get_candidates")):
        assert frame[["qid", "docno"]].values.tolist() == [["2", "1"]]
    kept = Large().get_runs()
    assert provided(SimpleNamespace(get_runs=lambda: kept), "get_runs")["bm25"] is kept["bm25"]
    ranker = pt.apply.doc_score(lambda row: 1.0)
    results = System.of("mine", ranker, dataset=own).candidates(own.get_topics())
    assert results[["qid", "docno"]].values.tolist() == [["2", "1"]]
    wrong = SimpleNamespace(name="mine", get_runs=lambda: {"bm25": pd.DataFrame({"qid": [None]})})
    with pytest.raises(InputError, match=r"mine, get_runs\(\) 'bm25': column 'qid' has no value at row 0"):
        provided(wrong, "get_runs")


def test_another_split_of_an_object_is_a_view():
    large = Large()
    dev = open_dataset(large, split="dev")
    assert (dev.name, dev.get_topics()["query"].item(), dev.get_qrels()["label"].item()) == ("mine", "dev", 2)
    assert dev.get_topics("test")["query"].item() == "test" and dev.get_qrels("full")["label"].item() == 3
    assert list(dev.get_runs()) == ["bm25"] and provided(dev, "get_answers") is None
    assert dev.text_loader("title")(pd.DataFrame({"docno": ["1"]}))["text"].tolist() == ["title of 1"]
    assert isinstance(dev, Dataset) and not hasattr(dev, "truth") and repr(dev).endswith("split 'dev'>")
    assert large.read == 0 and list(dev.get_corpus_iter()) == [{"docno": "1", "text": "one"}]
    assert open_dataset(dev, split="test").get_topics()["query"].item() == "test"
    assert pickle.loads(pickle.dumps(dev)).get_qrels()["label"].item() == 2
    assert len(audit({"run": large.get_runs()["bm25"]}, large, split="dev", biases=[MADE]).findings) == 1


MADE = Made("made", lambda context: [Finding("run", "made", "m", "g", 1.0)])


def test_fuller_judgements_of_an_object_with_numbers_are_kept():
    class Numbered(Large):
        def get_topics(self, variant=None):
            return super().get_topics(variant).astype({"qid": int})

    full = open_dataset(Numbered()).get_qrels("full")
    assert full[["qid", "label"]].values.tolist() == [["2", 3]]

    class Strict(Foreign):
        def get_qrels(self, variant=None):
            if variant == "full":
                raise KeyError(variant)
            return super().get_qrels(variant)

    with pytest.raises(InputError, match="no judgements for 'full'"):
        open_dataset(Strict(int)).get_qrels("full")


def test_a_field_that_the_corpus_lacks_is_named_with_those_that_there_are():
    corpus = pd.DataFrame({"docno": ["d1"], "text": ["one"], "url": ["x"]})
    own = Collection("toy", corpus=corpus, topics={"test": pd.DataFrame({"qid": ["1"], "query": ["a"]})}, qrels={})
    for fields in ("title", ["text", "title"]):
        with pytest.raises(InputError, match="toy: documents have no field 'title'; there are text, url"):
            own.text_loader(fields)
    with pytest.raises(InputError, match="TextLoader: documents have no field 'title'; there are text, url"):
        TextLoader(corpus, ("title",))(pd.DataFrame({"docno": ["d1"]}))
    assert own.text_loader("*").fields == ("text", "url")


def test_a_text_loader_goes_by_its_present_options():
    corpus = pd.DataFrame({"docno": ["d1"], "text": ["old"], "title": ["T"]})
    load, inp = TextLoader(corpus), pd.DataFrame({"docno": ["d1"]})
    assert load(inp)["text"].item() == "old"
    other = pt.inspect.transformer_apply_attributes(load, fields=("title",))
    assert other(inp).to_dict("records") == [{"docno": "d1", "title": "T"}]
    load.corpus = corpus.assign(text="new")
    assert load(inp)["text"].item() == "new"
    assert len(pickle.dumps(load)) == len(pickle.dumps(TextLoader(load.corpus)))  # what was made of them does not travel


@pytest.mark.parametrize("labels", [[1.0, 0.0], ["1", "0"], [True, False], pd.array([1, 0], dtype="Int64")])
def test_labels_of_a_collection_are_integers(labels):
    corpus, topics = pd.DataFrame({"docno": ["d1"], "text": ["one"]}), pd.DataFrame({"qid": ["1"], "query": ["a"]})
    qrels = pd.DataFrame({"qid": "1", "docno": ["d1", "d2"], "label": labels})
    own = Collection("toy", corpus=corpus, topics={"test": topics}, qrels={"test": qrels})
    assert own.get_qrels()["label"].dtype == "int64" and own.get_qrels()["label"].tolist() == [1, 0]
    run = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "score": [1.0], "rank": [0]})
    options = {"names": ["run"], "plan": "tree"}
    assert pt.Experiment([run], own.get_topics(), own.get_qrels(), ["P_1"], **options)["P_1"].tolist() == [1.0]


@pytest.mark.parametrize("label", [0.5, np.nan, "high"])
def test_labels_that_are_no_grades_are_refused_where_they_are_given(label):
    qrels = pd.DataFrame({"qid": ["1", "2"], "docno": ["d1", "d2"], "label": [1, label]})
    message = "toy: qrels 'test': column 'label' is NaN or not a whole number up to .* in 1 of 2 .*row 1 .qid='2', docno='d2'."
    with pytest.raises(InputError, match=message):
        Collection("toy", topics={"test": pd.DataFrame({"qid": ["1"], "query": ["a"]})}, qrels={"test": qrels})


def test_frames_of_a_collection_are_the_callers_own():
    topics = pd.DataFrame({"qid": ["1"], "query": ["a"]})
    run = pd.DataFrame({"qid": ["1"], "docno": ["d1"], "score": [1.0], "rank": [0]})
    own = Collection(
        "toy",
        corpus=pd.DataFrame({"docno": ["d1"], "text": ["one"]}),
        topics={"test": topics},
        qrels={"test": pd.DataFrame({"qid": ["1"], "docno": ["d1"], "label": [1]})},
        candidates=run,
        runs={"bm25": run},
        answers=pd.DataFrame({"qid": ["1"], "docno": ["d1"], "answer": ["one"], "start": [0], "end": [3]}),
    )
    asks = [own.get_topics, own.get_qrels, own.get_candidates, own.get_answers, own.get_corpus, lambda: own.get_runs()["bm25"]]
    for ask in asks:
        before = ask().copy()
        mine = ask()
        mine[mine.columns[-1]], mine["more"] = "changed", 1
        pd.testing.assert_frame_equal(ask(), before)
    own.get_runs().clear()
    mine = own.get_topics()
    mine.loc[0, "query"] = "changed"
    assert list(own.get_runs()) == ["bm25"] and own.get_topics()["query"].item() == "a"


def test_the_planted_collection_is_opened_by_name(monkeypatch):
    own = Foreign(str)
    planted = SimpleNamespace(named=lambda name: own)
    monkeypatch.setitem(sys.modules, "pyterrier_debias.data.planted", SimpleNamespace(PlantedCollection=planted))
    assert open_dataset("planted") is own
    assert open_dataset("planted", split="dev").get_topics()["query"].tolist() == ["dev"]


def test_a_collection_with_another_split(beir):
    dataset = open_dataset(beir)
    assert open_dataset(dataset) is dataset
    other = open_dataset(dataset, split="dev")
    assert (dataset.split, other.split) == ("test", "dev")
    assert other.get_topics()["qid"].tolist() == ["2"]
    with pytest.raises(InputError, match="no topics for 'train'"):
        open_dataset(dataset, split="train")


def test_home_is_understood(beir, monkeypatch):
    monkeypatch.setenv("HOME", str(beir.parent))
    monkeypatch.setenv("USERPROFILE", str(beir.parent))
    assert open_dataset(f"~/{beir.name}").name == beir.name
    assert open_dataset(Path("~") / beir.name).split == "test"


def test_topics_of_trec_are_read_under_any_encoding(tmp_path):
    """The parser opens files in the system's encoding, which may lack letters."""
    text = "<top>\n<num> Number: 1\n<title> café α &amp; 茶\n</top>\n"
    (tmp_path / "uni.trec").write_text(text, encoding="utf-8")
    code = "import sys; from pyterrier_debias.data.readers import read_topics; print(ascii(read_topics(sys.argv[1])['query'][0]))"
    plain = {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    command = [sys.executable, "-W", "ignore", "-c", code, str(tmp_path / "uni.trec")]
    told = subprocess.run(command, env={**os.environ, **plain}, check=True, capture_output=True, text=True).stdout
    assert told.strip() == ascii(read_topics(tmp_path / "uni.trec")["query"][0]) == ascii("café α & 茶")


@pytest.mark.parametrize("score", ["5", "-3.4028235e+38", "-inf", "3.4028235e+38", "inf"])
def test_ties_keep_the_order_of_the_file_at_either_end_of_the_scale(tmp_path, score):
    lines = "".join(f"1 Q0 {docno} {rank} {score} t\n" for rank, docno in enumerate("abc", start=1))
    frame = read_run(write(tmp_path, "r", f"{lines}2 Q0 a 1 5 t\n2 Q0 b 2 -1 t\n"), ties="rank")
    assert frame["docno"].tolist() == ["a", "b", "c", "a", "b"] and frame["score"].tolist()[3:] == [5, -1]
    assert np.float32(frame["score"][:3]).tolist() == sorted(set(np.float32(frame["score"][:3]).tolist()), reverse=True)
