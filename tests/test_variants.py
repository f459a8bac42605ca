"""Variants of texts under names of their own: what they keep, what they lose, and rankers that look names up."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError, PositionSensitivity, RotatePassages, SwapGender, System, audit
from pyterrier_debias.core.counterfactuals import Arm, Variants, never_moved, score_arms, score_changes
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.core.systems import named_where_it_raises
from pyterrier_debias.core.variants import variant_docno
from pyterrier_debias.report.interventions import intervene
from tests.position.toy import Overlap, world

CANDIDATES, QRELS, _ = world(3, queries=6)
AUDITED = Collection(
    "three", corpus=CANDIDATES[["docno", "text"]].drop_duplicates("docno"),
    topics={"test": CANDIDATES[["qid", "query"]].drop_duplicates()}, qrels={"test": QRELS},
)  # fmt: skip
EARLY = Overlap(early=1.0, noise=0.3)
FAST = {"draws": 1, "resamples": 99}


class Spy(Stage):
    """Keeps what a ranker was given."""

    def __init__(self, ranker, seen):
        self.ranker, self.seen = ranker, seen

    def transform(self, inp):
        if len(inp):
            self.seen.append(inp)
        return self.ranker(inp)


class Store(Stage):
    """Scores by docno, as an index does, and one that it does not know as another; texts play no part."""

    def __init__(self, known, *, unknown=0.5, weight=1.0):
        self.known, self.unknown, self.weight = known, unknown, weight

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        kept = inp if self.unknown is not None else inp[inp["docno"].isin(list(self.known))]
        return ranked(kept.assign(score=[self.weight * self.known.get(d, self.unknown) for d in kept["docno"]]))


KNOWN = {docno: float(number % 11) for number, docno in enumerate(CANDIDATES["docno"])}


class Batched(Stage):
    """A score depends on how many rows the lists before its own have, as where batches run over lists and are padded."""

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["query", "text"], context=self)
        before = inp.groupby("qid").size().cumsum().shift(fill_value=0)
        return ranked(inp.assign(score=(31 * inp["text"].str.len() + 7 * inp["qid"].map(before)) % 101.0))


def test_names_are_short_and_of_one_variant_each():
    names = ["d7", "x" * 14, "clueweb22-en0000-00-00000", "clueweb22-en0000-00-00001", "%p1%r2"]
    made = [variant_docno(name, variant) for name in names for variant in (0, 1, "start", "0-1c9ff02e")]
    assert len(set(made)) == len(made)
    assert max(map(len, made)) <= 20
    assert made[1] == "d7%r1"
    longer = [variant_docno(f"document-{number}", "0-1c9ff02e", longest=14) for number in range(20_000)]
    assert len(set(longer)) == 20_000 and {len(name) for name in longer} == {14}
    assert not any("%p" in name for name in longer)  # at which PyTerrier cuts passages off


@pytest.mark.parametrize("prefix", ["", "a-collection-with-long-names-"])
def test_variants_have_short_names_and_come_back_under_the_original_ones(prefix):
    frame = CANDIDATES.assign(docno=prefix + CANDIDATES["docno"], qid=prefix + CANDIDATES["qid"])
    seen = []
    arms = PositionSensitivity(Spy(EARLY, seen), draws=2).transform(frame)
    given = pd.concat(seen)
    variants = given[~given["docno"].isin(frame["docno"])]
    assert variants["docno"].str.len().max() <= 14 and variants["qid"].str.len().max() <= 20
    assert (given.groupby("docno")["text"].nunique() == 1).all() and not given.duplicated(["qid", "docno"]).any()
    for draw in range(2):
        expected = (RotatePassages(draw=draw) >> EARLY)(frame)[["qid", "docno", "score", "rank"]]
        own = arms[(arms["arm"] == "rotated") & (arms["draw"] == draw)]
        pd.testing.assert_frame_equal(own[expected.columns].reset_index(drop=True), expected, check_dtype=False)


def test_nothing_leads_back_to_the_original_and_all_arms_are_alike():
    n = len(CANDIDATES)
    frame = CANDIDATES.assign(
        docid=range(n), doc_vec=list(np.zeros((n, 3))), toks=[{"tea": 2}] * n, tokens=[["tea"]] * n, title="kept", year=1990,
        query_0="before", query_vec=list(np.ones((n, 3))), features=list(np.ones((n, 2))), url=pd.Series(["u"] * n, dtype=object),
        weight=pd.Series([1.5] * n, dtype=object),
    )  # fmt: skip
    seen = []
    PositionSensitivity(Spy(EARLY, seen), draws=1).transform(frame)
    (given,) = seen
    assert set(frame.columns) - set(given.columns) == {"docid", "doc_vec", "toks", "tokens"}
    kept = given[["title", "year", "query_0", "url", "weight"]].drop_duplicates()
    assert kept.values.tolist() == [["kept", 1990, "before", "u", 1.5]]
    seen = []
    intervene(Spy(EARLY, seen), frame, passages={"a": RotatePassages(seed=1)}, queries={"b": lambda query: f"{query} b3"})
    assert all(not {"docid", "doc_vec", "toks", "tokens"} & set(given.columns) for given in seen)
    assert "query_vec" in seen[0].columns and "query_vec" not in seen[1].columns  # which was made of the query as it was


def test_a_ranker_that_needs_what_is_left_out_is_told_which_column():
    frame = CANDIDATES.assign(doc_vec=list(np.zeros((len(CANDIDATES), 3))))
    by_vector = pt.apply.generic(lambda inp: ranked(inp.assign(score=[float(v.sum()) for v in inp["doc_vec"]])))
    with pytest.raises(InputError, match=r"needs the column 'doc_vec'.*put the stage"):
        PositionSensitivity(by_vector, **FAST).transform(frame)

    class Validating(Stage):
        def transform(self, inp):
            pt.validate.result_frame(inp, extra_columns=["doc_vec"], context=self)
            return ranked(inp.assign(score=0.0))

    with pytest.raises(InputError, match=r"needs the column 'doc_vec'"):
        PositionSensitivity(Validating(), **FAST).transform(frame)
    with pytest.raises(KeyError, match="another"):
        PositionSensitivity(pt.apply.generic(lambda inp: inp[["another"]]), **FAST).transform(frame)


@pytest.mark.parametrize(
    "ranker",
    [Store(KNOWN), Store(KNOWN, unknown=None), EARLY + Store(KNOWN), (EARLY % 6) >> Store(KNOWN)],
    ids=["another score", "no score", "in a sum", "behind a cut"],
)
def test_a_ranker_that_looks_names_up_is_refused(ranker):
    with pytest.raises(InputError, match="looks up documents by docno"):
        PositionSensitivity(ranker, **FAST).evaluate(CANDIDATES, QRELS)
    with pytest.raises(InputError, match="looks up documents by docno"):
        intervene(ranker, CANDIDATES, passages={"a": RotatePassages(seed=1)})


def test_a_ranker_that_returns_documents_for_passages_is_told_so():
    """Over an index of passages; where they are cut after the loader, the documents are what it was given."""
    passages = CANDIDATES.assign(docno=CANDIDATES["docno"] + "%p0")
    with pytest.raises(InputError, match=r"returns documents for passages.*d0_0'.*pt\.text\.sliding\(\.\.\.\) >> ranker"):
        PositionSensitivity(EARLY >> pt.text.max_passage(), **FAST).transform(passages)
    cut = pt.text.sliding("text", 10, 5, prepend_attr=None) >> EARLY >> pt.text.max_passage()
    arms = PositionSensitivity(cut, **FAST).transform(CANDIDATES)
    assert set(arms["docno"]) == set(CANDIDATES["docno"])


@pytest.mark.parametrize("known", ["a third of the documents", "all queries but one"])
def test_a_ranker_that_looks_up_some_names_is_refused(known):
    """It counts words, so that no rotation changes its scores."""
    documents = {docno: 30.0 for docno in sorted(set(CANDIDATES["docno"]))[::3]} if "documents" in known else {}
    queries = sorted(set(CANDIDATES["qid"]))[1:] if "queries" in known else []
    ranker = pt.apply.doc_score(
        lambda row: (len(row["text"].split()) + documents.get(row["docno"], 0.0)) * (2.0 if row["qid"] in queries else 1.0)
    )
    with pytest.raises(InputError, match="looks up documents by docno, or queries by qid"):
        PositionSensitivity(ranker, **FAST).evaluate(CANDIDATES, QRELS)
    with pytest.raises(InputError, match="looks up documents by docno, or queries by qid"):
        intervene(ranker, CANDIDATES, items=QRELS, passages={"a": RotatePassages(seed=1)})
    with pytest.raises(InputError, match="looks up documents by docno, or queries by qid"):
        audit({"a": pt.Transformer.from_df(CANDIDATES) >> ranker}, AUDITED, biases="position", draws=1)


def test_a_stage_that_draws_by_docno_is_not_taken_for_a_look_up():
    told = r"its stage RotatePassages draws a rotation for each docno, .*or average over rotations \(AverageRotations\)$"
    for ranker in (RotatePassages(seed=3) >> EARLY, (RotatePassages(seed=3) >> EARLY) + EARLY * 0.1):
        with pytest.raises(InputError, match=told) as raised:
            PositionSensitivity(ranker, **FAST).evaluate(CANDIDATES, QRELS)
        assert "looks up" not in str(raised.value) and "audit the pipeline without this stage" in str(raised.value)
    assert SwapGender(share=0.5).by_docno()[1] == "swap every text (share=1)"
    assert [stage.by_docno() for stage in (RotatePassages(offset=2), SwapGender(), EARLY)] == [None, None, None]


def test_a_stage_that_draws_by_docno_for_some_documents_is_refused():
    """Where half of the texts are swapped, most scores of a list may stay."""
    texts = CANDIDATES["text"].where(CANDIDATES.index % 3 > 0, "he " + CANDIDATES["text"])
    men = pt.apply.doc_score(lambda row: (" " + row["text"]).count(" he ") + len(row["text"]) / 1e3)
    assert len(PositionSensitivity(SwapGender() >> men, **FAST).transform(CANDIDATES.assign(text=texts)))
    with pytest.raises(InputError, match=r"its stage SwapGender draws for each docno .* swap every text \(share=1\)$"):
        PositionSensitivity(SwapGender(share=0.5) >> men, **FAST).transform(CANDIDATES.assign(text=texts))


def test_a_ranker_that_raises_on_a_new_name_is_told_that_probes_rename():
    by_docno = pt.apply.doc_score(lambda row: KNOWN[row["docno"]])
    lists = dict.fromkeys(CANDIDATES["qid"], 1.0)
    by_qid = pt.apply.doc_score(lambda row: lists[row["qid"]])
    told = r"^ranker of '.*', given documents under new docnos, raised KeyError: .*%r.*: a probe renames documents and queries"
    for ranker in (by_docno, by_qid):
        with pytest.raises(InputError, match=told):
            PositionSensitivity(ranker, **FAST).evaluate(CANDIDATES, QRELS)
        system = named_where_it_raises(System("mine", pt.Transformer.from_df(CANDIDATES), ranker))
        with pytest.raises(InputError, match="ranker of 'mine', given documents under new docnos, raised KeyError"):
            PositionSensitivity(system, **FAST).evaluate(CANDIDATES[["qid", "query"]].drop_duplicates(), QRELS)
    fails = pt.apply.doc_score(lambda row: {}["d"])
    with pytest.raises(KeyError):
        PositionSensitivity(fails, **FAST).evaluate(CANDIDATES, QRELS)


def test_a_ranker_whose_scores_depend_on_its_batch_is_not_taken_for_one_that_looks_names_up():
    ranker = Batched()
    together = ranker(CANDIDATES)["score"].tolist()
    assert together != [score for _, of_query in CANDIDATES.groupby("qid") for score in ranker(of_query)["score"]]
    assert len(PositionSensitivity(ranker, **FAST).transform(CANDIDATES))
    with pytest.raises(InputError, match="looks up documents by docno"):
        PositionSensitivity(ranker + Store(KNOWN, weight=1000.0), **FAST).transform(CANDIDATES)


def test_rankers_that_break_ties_by_docno_or_draw_lots_are_not_refused():
    few = pt.apply.doc_score(lambda row: float(len(row["text"].split()) > 9))  # full of ties, which the names decide
    by_rank = few >> pt.apply.generic(lambda inp: ranked(inp.assign(score=-inp["rank"].astype(float))))
    generator = np.random.default_rng(0)
    lots = pt.apply.generic(lambda inp: ranked(inp.assign(score=generator.normal(size=len(inp)))))
    for ranker in (few % 4, by_rank + EARLY * 10.0, lots):
        assert len(PositionSensitivity(ranker, **FAST).transform(CANDIDATES))


def test_a_dense_index_gives_unknown_names_no_score(tmp_path):
    """pyterrier_dr's scorer takes an unknown docno for the last one of its index, without an error."""
    flex = pytest.importorskip("pyterrier_dr").FlexIndex(str(tmp_path / "index"), verbose=False)
    generator = np.random.default_rng(1)
    docnos = CANDIDATES["docno"].drop_duplicates()
    flex.index([{"docno": docno, "doc_vec": generator.normal(size=4).astype(np.float32)} for docno in docnos])
    vectors = {qid: generator.normal(size=4).astype(np.float32) for qid in CANDIDATES["qid"]}
    frame = CANDIDATES.assign(query_vec=CANDIDATES["qid"].map(vectors), docid=-1)
    assert flex.scorer()(frame.drop(columns="docid").assign(docno="none"))["score"].notna().all()
    with pytest.raises(InputError, match="looks up documents by docno"):
        PositionSensitivity(flex.scorer(), **FAST).evaluate(frame, QRELS)
    with pytest.raises(InputError, match="FlexIndex, which scores documents of an index"):
        PositionSensitivity(flex, **FAST).evaluate(frame, QRELS)


def test_never_moved():
    original = CANDIDATES.assign(score=np.arange(len(CANDIDATES), dtype=float))[["qid", "docno", "score"]]
    variant = original.assign(arm="rotated", draw=0)
    assert never_moved(original, variant)
    assert never_moved(original, variant.assign(score=variant["score"] * (1 + 1e-8)))  # rounding
    assert never_moved(original, variant[variant["qid"] == variant["qid"].iloc[0]])
    assert not never_moved(original, variant.iloc[:0])
    assert not never_moved(original, variant.iloc[1:])  # one was cut off
    assert not never_moved(original, variant.assign(score=variant["score"].where(variant.index != 5, 5.01)))


@pytest.mark.parametrize("worst", [-np.inf, np.inf])
def test_an_infinite_score_hides_no_change(worst):
    """Its list has no range; the others of it move all the same."""
    original = CANDIDATES.assign(score=np.arange(len(CANDIDATES), dtype=float), arm="original", draw=0)
    original = original[["qid", "docno", "score", "arm", "draw"]]
    original.loc[~original["qid"].duplicated(), "score"] = worst
    assert never_moved(original, original) and score_changes(original, original)["change"].eq(0).all()
    moved = original.assign(score=original["score"].where(original.index != 5, 5.01))
    assert not never_moved(original, moved)
    finite = original[np.isfinite(original["score"])]
    changes = score_changes(original, moved).merge(score_changes(finite, moved), on=["qid", "docno"])
    pd.testing.assert_series_equal(changes["change_x"], changes["change_y"], check_names=False)
    lost = original.assign(score=original["score"].where(original.index != 5, worst))
    assert score_changes(original, lost)["change"].max() == np.inf == score_changes(lost, original)["change"].max()
    nothing = original.assign(score=worst)
    assert never_moved(nothing, nothing) and not never_moved(nothing, original)


def test_arms_of_variants_alone_need_no_original():
    rows = np.arange(len(CANDIDATES))
    arm = Arm("one", 0, rows, CANDIDATES["text"].tolist(), "one")
    scored = score_arms(CANDIDATES, [arm], EARLY, text_field="text", name="s")
    assert scored["arm"].unique().tolist() == ["one"] and len(scored) == len(CANDIDATES)


def test_systems_share_rotated_texts_and_names(monkeypatch):
    turned = []
    original = RotatePassages.rotator

    def counting(self, draw=None):
        turn = original(self, draw)
        return lambda *key: turned.append(key) or turn(*key)

    monkeypatch.setattr(RotatePassages, "rotator", counting)
    probes = [PositionSensitivity(Overlap(early=early, noise=0.3), **{**FAST, "draws": 2}) for early in (1.0, 0.5)]
    alone = [probe.figures(CANDIDATES, QRELS) for probe in probes]
    assert len(turned) == 4 * CANDIDATES["docno"].nunique()
    turned.clear()
    variants = Variants()
    shared = [probe.figures(CANDIDATES, QRELS, variants=variants) for probe in probes]
    assert len(turned) == 2 * CANDIDATES["docno"].nunique()
    for one, other in zip(alone, shared):
        pd.testing.assert_frame_equal(one.arms, other.arms)
    # Another rotation has other texts, whatever it shares; and what finds no room is made again.
    other = PositionSensitivity(EARLY, rotation=RotatePassages(seed=5), **FAST)
    expected = other.figures(CANDIDATES, QRELS).arms
    for some in (variants, Variants(limit=3)):
        pd.testing.assert_frame_equal(other.figures(CANDIDATES, QRELS, variants=some).arms, expected)
