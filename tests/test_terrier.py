"""What is special over Terrier, without Java: stand-ins that belong to its module, and read queries as its parser does."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias.core.systems import System, named_where_it_raises
from pyterrier_debias.core.terrier import as_asked, is_expression, is_terrier, nested, property_notes, tokenising
from tests.parsed import TEXTS, Parsed

TOPICS = pd.DataFrame({"qid": ["1", "2", "3"], "query": ["mice: cats?", "Birds!", "???"]})


class ResetQuery(pt.Transformer):
    """What gives back the earlier query."""

    __module__ = "pyterrier.terrier.rewrite"

    def transform(self, inp):
        return pt.model.pop_queries(inp)


class Loading(pt.Transformer):
    """Terrier's text loader, nearly."""

    __module__ = "pyterrier.terrier._text_loader"

    def transform(self, inp):
        return inp.assign(text=inp["docno"].map(TEXTS))


class Expanding(pt.Transformer):
    """RM3, nearly."""

    __module__ = "pyterrier.terrier.rewrite"

    def transform(self, inp):
        queries = pt.model.push_queries(inp[["qid", "query"]].drop_duplicates())
        return queries.assign(query="applypipeline:off " + queries["query_0"] + " mice^0.300")


def seen_by(pipeline, topics=TOPICS):
    """The results, and the queries that a stage at the end reads."""
    seen = []
    out = (pipeline >> pt.apply.generic(lambda frame: seen.append(frame) or frame))(topics)
    return out, seen[0]


def test_terriers_own_stages_are_known_without_java():
    assert is_terrier(Parsed()) and is_terrier(Expanding()) and not is_terrier(pt.RankCutoff(2))


@pytest.mark.parametrize(
    ("query", "expression"),
    [
        ("applypipeline:off littl^0.036 cat^0.5", True),
        ("#combine:0=0.1:wmodel=org.terrier(#1(cats mice))", True),
        ("#uw8(cats mice)", True),
        ("#base64(w6k=) cats", True),
        ("littl^.03", True),
        ("cats chase mice", False),
        ("what is 2^8?", False),
        ("who is #1 in chess", False),
        ("C#: how to", False),
        (None, False),
    ],
)
def test_expressions_are_told_from_words(query, expression):
    assert is_expression(query) is expression


def test_words_come_to_terrier_and_the_query_stays_as_it_was():
    first = Parsed()
    out, read = seen_by(tokenising(first))
    assert first.asked == ["mice cats", "birds"]
    assert out[["qid", "docno"]].values.tolist() == [["1", "d1"], ["1", "d2"], ["2", "d3"]]
    assert read["query"].tolist() == ["mice: cats?", "mice: cats?", "Birds!"]


def test_a_query_without_words_has_no_results():
    out, _ = seen_by(tokenising(Parsed()), TOPICS.iloc[[2]])
    assert len(out) == 0


def test_an_expression_that_is_made_later_stays():
    class Weighted(Parsed):
        def transform(self, inp):
            self.asked += inp["query"].tolist()
            return super().transform(inp.assign(query=inp["query"].str.replace("applypipeline:off ", "")))

    first, second = Parsed(), Weighted()
    out, read = seen_by(tokenising(first >> Expanding() >> second), TOPICS.iloc[:1])
    assert first.asked == ["mice cats"] and second.asked[0] == "applypipeline:off mice cats mice^0.300"
    assert read["query_0"].unique().tolist() == ["mice: cats?"] and len(out)


@pytest.mark.parametrize("behind", [lambda first: first % 1, lambda first: first + Parsed()], ids=["cut", "sum"])
def test_operators_over_terrier_alone_get_words(behind):
    out, read = seen_by(tokenising(behind(Parsed())), TOPICS.iloc[:2])
    assert set(read["query"]) == set(TOPICS["query"].iloc[:2]) and len(out)


def test_beside_terrier_a_stage_gets_the_query_as_it_was():
    first, asked = Parsed(), []

    def encoded(topics):
        asked.extend(topics["query"])
        return topics

    dense = pt.apply.generic(encoded) >> pt.apply.generic(lambda topics: topics.assign(docno="d3", score=0.5, rank=0)) % 3
    out, _ = seen_by(tokenising(first + dense), TOPICS.iloc[:2])
    assert first.asked == ["mice cats", "birds"] and asked == TOPICS["query"].tolist()[:2]
    assert len(out) == 4


@pytest.mark.parametrize(
    "pipeline",
    [
        pt.apply.query(lambda row: row["query"].replace(":", "")) >> Parsed(),
        pt.apply.generic(lambda frame: frame),
        pt.apply.generic(lambda frame: frame) + pt.apply.generic(lambda frame: frame),
        pt.RankCutoff(3) >> pt.apply.generic(lambda frame: frame),
        Loading() >> ResetQuery() >> pt.apply.generic(lambda frame: frame),
    ],
    ids=["rewritten before", "no Terrier", "no Terrier in a sum", "a cut-off alone", "texts"],
)
def test_what_is_rewritten_before_and_what_is_no_terrier_stays(pipeline):
    assert tokenising(pipeline) is pipeline


def test_terrier_behind_other_stages_gets_words_too():
    """Such as a model that reranks, or one of several features."""
    first, read = Parsed(), []

    class Scoring(Parsed):
        def transform(self, inp):
            self.asked += inp["query"].tolist()
            return inp

    behind, summed = Scoring(), Scoring()
    ranker = pt.apply.doc_score(lambda row: read.append(row["query"]) or 1.0)
    found = tokenising(first >> Loading() >> ranker >> behind >> (ranker + summed) >> pt.RankCutoff(3))(TOPICS.iloc[:2])
    assert set(first.asked) == set(behind.asked) == set(summed.asked) == {"mice cats", "birds"}
    assert set(read) == set(found["query"]) == set(TOPICS["query"].iloc[:2])
    expression = TOPICS.iloc[:1].assign(docno="d1", score=1.0, rank=0, query="applypipeline:off mice^0.300")
    kept = Scoring()
    tokenising(ranker >> kept)(expression)
    assert kept.asked == ["applypipeline:off mice^0.300"]


def test_query_toks_are_left_alone():
    first = Parsed()
    tokenising(first)(TOPICS.iloc[[1]].assign(query_toks=[{"birds": 1.0}]))
    assert first.asked == ["Birds!"]


def test_a_system_that_tells_its_name_is_looked_into():
    first = Parsed()
    system = named_where_it_raises(System("s", first))
    assert len(tokenising(system.candidates)(TOPICS)) == 3 and first.asked == ["mice cats", "birds"]


def test_earlier_queries_take_the_place_of_expressions():
    frame = pd.DataFrame({"query": ["a^0.1", "tea"], "query_0": ["b^0.2", "x"], "query_1": ["words", "y"]})
    assert as_asked(frame)["query"].tolist() == ["words", "tea"]
    plain = frame.assign(query="tea")
    assert as_asked(plain) is plain
    assert as_asked(frame[["query"]])["query"].tolist() == ["a^0.1", "tea"]


def test_stages_inside_others_are_found():
    one, other = Parsed(), Parsed()
    assert {id(one), id(other)} <= {id(stage) for stage in nested((one % 3) + other >> pt.apply.generic(lambda frame: frame))}


def test_properties_that_differ_are_named_with_the_systems():
    shared = {"querying.processes": "all"}
    ours, theirs = Parsed({**shared, "termpipelines": "Stopwords"}), Parsed({**shared, "termpipelines": ""})
    (note,) = property_notes({"A": ours, "B": theirs % 3, "C": ours >> pt.apply.generic(lambda frame: frame)})
    assert note.startswith("Terrier's property termpipelines is set to 'Stopwords' by A, C and '' by B; ")
    assert property_notes({"A": ours, "C": ours}) == []
