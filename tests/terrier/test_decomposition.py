"""Forty pipelines over Terrier: where each is cut, whether it is probed, what is said."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import PositionSensitivity, audit
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.core.systems import System
from pyterrier_debias.position.data.rotation import RotatePassages
from pyterrier_debias.report.interventions import intervene
from tests.terrier.decomposition import DEPTH, TABLE, Cached, Common, Early, examined, printed, with_text

pytestmark = pytest.mark.java


@pytest.fixture(scope="module")
def seen(planted, planted_index):
    """What became of each row, examined once."""
    known = {}

    def examine(row):
        if row not in known:
            known[row] = examined(row.pipeline(planted_index), planted)
        return known[row]

    return examine


def test_the_table_has_forty_rows_of_every_kind():
    assert len(TABLE) == len(set(TABLE)) == 40
    pairs = {(row.first, row.follows) for row in TABLE}
    kinds = ("one ranker", "two rankers", "fusion", "learner", "cache", "scorer", "sliding")
    assert pairs >= {(first, kind) for first in ("BM25", "DPH", "RM3", "Bo1", "SDM") for kind in kinds}
    texts = {(row.text, row.follows) for row in TABLE}
    assert texts >= {(text, kind) for text in ("stored", "loader, cut", "cut, loader") for kind in ("one ranker", "fusion")}


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row(row, seen):
    found = seen(row)
    assert (found.candidates, found.ranker) == (row.candidates, row.ranker)
    assert row.said in found.said
    assert bool(found.said) == bool(row.said)
    assert (found.p == found.p) == row.p
    assert found.probed == (row.p or row.said == "No score changed")


def test_rows_of_one_first_stage_and_one_ranker_have_one_figure(seen):
    for first in ("BM25", "DPH", "RM3", "Bo1", "SDM"):
        rows = [row for row in TABLE if row.first == first and row.follows in ("one ranker", "cache", "second loader")]
        assert len(rows) >= 2 and len({(seen(row).change, seen(row).p) for row in rows}) == 1
        assert seen(rows[0]).change != 0


def test_a_ranker_of_positions_has_one_figure_in_every_spelling(planted, planted_index):
    """Also where texts are loaded twice, and where a cache or a cut-off stands between."""
    index = planted_index
    spellings = [
        with_text("BM25", "stored", index) >> Early(),
        with_text("BM25", "loader, cut", index) >> Early(),
        with_text("BM25", "cut, loader", index) >> Early(),
        with_text("BM25", "stored", index) >> index.text_loader("text") >> Early(),
        index.bm25(include_fields=["text"]) >> pt.text.get_text(index, "text") >> pt.RankCutoff(DEPTH) >> Cached(Early()),
        index.bm25(num_results=DEPTH) >> planted.text_loader() >> index.text_loader("text") >> (Early() >> pt.RankCutoff(DEPTH)),
    ]
    options = {"draws": 2, "measures": ["nDCG@10"], "resamples": 99}
    topics = planted.get_topics().head(8)
    results = [PositionSensitivity(pipeline, dataset=planted, **options).evaluate(topics) for pipeline in spellings]
    first = results[0]
    assert first.table["difference"].iloc[0] < 0 and first.displacement["displacement"].mean() > 0
    for other in results[1:]:
        pd.testing.assert_frame_equal(other.table, first.table)
        pd.testing.assert_frame_equal(other.displacement, first.displacement)


def test_every_first_stage_gives_the_same_candidates_in_every_spelling(planted, planted_index):
    topics = planted.get_topics().head(3)
    for kind in ("BM25", "DPH", "RM3", "Bo1", "SDM"):
        pipelines = [with_text(kind, how, planted_index) for how in ("stored", "loader, cut", "cut, loader")]
        found = [System.of("s", pipeline >> Early()).candidates(topics) for pipeline in pipelines]
        assert set(topics["query"]) == set(found[0]["query"])  # no ranker gets an expanded query
        for other in found[1:]:
            pd.testing.assert_frame_equal(other[["qid", "docno", "query", "text"]], found[0][["qid", "docno", "query", "text"]])


def test_intervene_restores_no_text_either(planted, planted_index):
    topics = planted.get_topics().head(4)
    candidates = with_text("BM25", "stored", planted_index)(topics)
    turned = {"rotated": RotatePassages(seed=1)}
    plain = intervene(Early(), candidates, passages=turned, resamples=99)
    assert "docid" in candidates and plain.table["displacement"].iloc[0] != 0
    with pytest.raises(InputError, match="TerrierTextLoader, which replaces changed passages by the stored"):
        intervene(planted_index.text_loader("text") >> Early(), candidates, passages=turned)
    with pytest.raises(InputError, match="Retriever, which scores documents of an index"):
        intervene(Early() + planted_index.bm25(), candidates, passages=turned)


def test_a_scorer_in_memory_takes_variants_of_the_longest_docnos(planted):
    """PyTerrier's index in memory keeps 20 characters of a docno, a passage's number included."""
    topics = planted.get_topics().head(2)
    texts = planted.get_corpus()["text"].head(6)
    candidates = topics.merge(pd.DataFrame({"docno": [f"long-{number:015d}" for number in range(6)], "text": texts}), how="cross")
    candidates = candidates.assign(score=0.0, rank=0)
    assert candidates["docno"].str.len().eq(20).all()
    scorer = pt.text.scorer(body_attr="text", wmodel="TF_IDF")
    arms = PositionSensitivity(scorer, draws=2).transform(candidates)
    assert set(arms["docno"]) == set(candidates["docno"]) and set(arms["qid"]) == set(topics["qid"])
    short = candidates.assign(docno=candidates["docno"].str[-3:])
    passages = pt.text.sliding("text", 4, 2, prepend_attr=None) >> scorer >> pt.text.max_passage()
    arms = PositionSensitivity(passages, draws=1).transform(short)
    assert set(arms.loc[arms["arm"] == "rotated", "docno"]) == set(short["docno"])


def test_an_audit_names_what_it_cannot_probe_and_finishes_the_others(planted, planted_index):
    index = planted_index
    inside = (index.text_loader("text") >> Early()) ** index.pl2()
    systems = {
        "early": with_text("BM25", "cut, loader", index) >> Early(),
        "loader inside": index.bm25() % DEPTH >> inside >> pt.apply.doc_score(_sum),
        "index behind": index.bm25() % DEPTH >> (index.text_loader("text") >> (Early() + index.bm25())),
        "loader between": with_text("BM25", "stored", index) >> Common() % 10 >> index.text_loader("text") >> Early(),
        "blind": with_text("BM25", "stored", index) >> Common(),
    }
    result = audit(systems, planted, biases=["position"], topics=6, draws=1, depth=DEPTH)
    assert result.failed.empty
    reasons = result.skipped.set_index("system")["reason"]
    assert reasons.index.tolist() == ["loader inside", "index behind", "loader between"]
    assert "put the text loader before that stage" in reasons["loader inside"]
    assert "before the text loader: retriever >> (a ** b) >> text loader >> ranker" in reasons["index behind"]
    assert "one text loader, before the first ranker" in reasons["loader between"]
    assert any(note.startswith("loader inside: the depth does not affect its ranker") for note in result.settings["notes"])
    primary = result.findings[result.findings["primary"]].set_index("system")
    assert primary.loc["early", "p"] <= 1 and primary.loc["early", "value"] != 0
    assert pd.isna(primary.loc["blind", ["value", "p", "p_corrected"]]).all()
    assert "it never saw the rotated passages" in primary.loc["blind", "text"]


def _sum(row):
    return float(sum(row["features"]))


def test_the_table_can_be_printed(seen):
    lines = printed(seen).splitlines()
    assert len(lines) == 41
    assert lines[1].split()[:2] == ["1", "BM25,"] and not any("nan" in line for line in lines)
