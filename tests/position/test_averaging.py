"""AverageRotations against closed forms: toy rankers whose scores over rotations are known."""

import itertools

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import AverageRotations, CrossEncoder, InputError, PositionSensitivity, RotatePassages, System
from pyterrier_debias.core.caches import VARIANT
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.position.data.averaging import even_offsets
from pyterrier_debias.report.run import _remembering
from tests.position.toy import Overlap, collection, world

CANDIDATES, QRELS, _ = world(queries=4, depth=4)
CANDIDATES = CANDIDATES.assign(text=CANDIDATES["text"].str.split().str[:9].str.join(" "))

#: Reads the first word alone.
FIRST = pt.apply.doc_score(lambda row: float(row["text"].split()[0] in row["query"].split()))


def scores(ranker, candidates=CANDIDATES):
    """Scores in the order of the candidates."""
    found = ranker(candidates)[["qid", "docno", "score"]]
    return candidates[["qid", "docno"]].merge(found, on=["qid", "docno"])["score"].to_numpy()


def passages(*texts):
    return pd.DataFrame({"qid": "1", "query": "tea", "docno": [f"d{i}" for i in range(len(texts))], "text": texts})


def recorded(**options):
    """The texts that a ranker is given for one passage."""
    seen: list[str] = []
    ranker = pt.apply.doc_score(lambda row: float(bool(seen.append(row["text"]))))
    text = options.pop("text", "a b c d e f")
    AverageRotations(ranker, **options)(passages(text))
    return seen


def test_over_all_rotations_nothing_depends_on_the_position():
    """A ranker of the first word becomes a count of words, and a passage that alone is rotated never moves."""
    options = {"measures": ["nDCG@10"], "resamples": 99, "draws": 1}
    plain = PositionSensitivity(FIRST, **options).evaluate(CANDIDATES, QRELS)
    assert plain.displacement["displacement"].abs().sum() > 0 and not plain.untested
    mean = AverageRotations(FIRST, "all")
    expected = [
        sum(word in query.split() for word in text.split()) / len(text.split())
        for query, text in zip(CANDIDATES["query"], CANDIDATES["text"])
    ]
    assert scores(mean).tolist() == expected
    result = PositionSensitivity(mean, **options).evaluate(CANDIDATES, QRELS)
    assert (result.displacement["displacement"] == 0).all() and "no score changed" in result.untested
    turned = RotatePassages()(CANDIDATES)
    assert scores(mean, turned).tolist() == expected != scores(FIRST, turned).tolist()
    highest = AverageRotations(FIRST, "all", combine="max")
    assert scores(highest, turned).tolist() == scores(highest).tolist()


def test_over_r_even_rotations_the_position_within_a_part_is_left():
    """A word at p of n counts 1 - p / n; over r rotations 1 - (p mod n/r) / n - (r - 1) / 2r."""
    n = 12
    texts = passages(*(" ".join("tea" if i == p else f"w{i}" for i in range(n)) for p in range(n)))
    for r in (1, 2, 3, 4, 12):
        left = [1 - (p % (n // r)) / n - (r - 1) / (2 * r) for p in range(n)]
        np.testing.assert_allclose(scores(AverageRotations(Overlap(early=1.0), r), texts), left, rtol=0, atol=1e-12)


def test_a_ranker_that_loads_texts_is_refused():
    """It would score the stored text in every rotation."""
    dataset = collection(queries=4, depth=4)
    for inside in (dataset.text_loader() >> FIRST, FIRST >> dataset.text_loader() >> FIRST):
        with pytest.raises(InputError, match=r"AverageRotations: rotations cannot reach .* its ranker holds TextLoader"):
            AverageRotations(inside)(CANDIDATES)


def test_a_ranker_that_reads_another_column_is_refused():
    """It would give each rotation the same score."""
    for options, reads in (({}, "text"), ({"fields": ["title", "url"]}, "title, url")):
        with pytest.raises(InputError, match=f"AverageRotations: text_field='body' .* the ranker reads {reads}; set text_field"):
            AverageRotations(CrossEncoder("hub/model", **options), text_field="body")(CANDIDATES.assign(body="a b"))


def test_a_bag_of_words_is_what_it_was():
    plain, bag = scores(Overlap()), Overlap()
    for combine, original in itertools.product(("mean", "max"), (True, False)):
        for rotations, spacing in ((2, "even"), (2, "random"), ("all", "even")):
            stage = AverageRotations(bag, rotations, combine=combine, spacing=spacing, original=original)
            assert scores(stage).tolist() == plain.tolist()


@pytest.mark.parametrize("unit", ["word", "sentence"])
def test_mean_and_highest_are_those_over_single_rotations(unit):
    ranker = Overlap(early=1.0)
    split = RotatePassages(unit=unit).splitter()
    single = {offset: scores(RotatePassages(unit=unit, offset=offset) >> ranker) for offset in range(9)}
    for combine, by_hand in (("mean", np.mean), ("max", np.max)):
        expected = []
        for row, text in enumerate(CANDIDATES["text"]):
            expected.append(by_hand([single[offset][row] for offset in even_offsets(len(split(text)), 3)]))
        stage = AverageRotations(ranker, 3, combine=combine, unit=unit)
        np.testing.assert_allclose(scores(stage), expected, rtol=0, atol=1e-12)


def test_which_rotations():
    assert recorded(rotations=2) == ["a b c d e f", "d e f a b c"]
    assert recorded(rotations=1, original=False) == ["d e f a b c"]
    assert recorded(rotations=2, original=False) == ["c d e f a b", "e f a b c d"]
    assert len(set(recorded(rotations="all"))) == 6 and "a b c d e f" not in recorded(rotations="all", original=False)
    assert recorded(rotations=8, text="a b") == ["a b", "b a"] and recorded(rotations=3, text="a") == ["a"]
    for n, r in itertools.product(range(2, 9), range(1, 9)):
        with_original, without = even_offsets(n, r), even_offsets(n, r, original=False)
        assert len(with_original) == min(n, r) and with_original[0] == 0
        assert 1 <= len(without) <= r and 0 not in without
    drawn = recorded(rotations=4, spacing="random")
    assert drawn[0] == "a b c d e f" and len(set(drawn)) == 4 == len(drawn)
    others = recorded(rotations=4, spacing="random", original=False)
    assert others[:3] == drawn[1:] and others != recorded(rotations=4, spacing="random", original=False, seed=1)


def test_one_text_has_one_score():
    """Random rotations are drawn by the text: a probe gives docnos of its own, and a copy has another."""
    stage = AverageRotations(Overlap(early=1.0), 2, spacing="random")
    renamed = CANDIDATES.assign(docno="x" + CANDIDATES["docno"])
    assert scores(stage).tolist() == scores(stage, renamed).tolist()
    assert len(PositionSensitivity(stage, draws=1)(CANDIDATES))  # which refuses scores that go by docno


def test_scores_without_bounds():
    """A ranker may refuse a passage for good."""
    never = pt.apply.doc_score(lambda row: -np.inf if row["text"].startswith("tea") else 1.0)
    assert scores(AverageRotations(never, 2), passages("tea or", "or tea", "so or")).tolist() == [-np.inf, -np.inf, 1.0]


def test_the_lowest_scores_have_a_mean_and_opposite_infinities_none():
    frame = pd.DataFrame({"qid": "1", "query": "tea", "docno": ["d1", "d2"], "text": ["tea and rain", "rain"]})
    lowest = float(np.finfo(np.float64).min)
    for low in (lowest, -np.inf):
        ranker = pt.apply.doc_score(lambda row, low=low: 0.0 if row["text"].startswith("tea") else low)
        found = AverageRotations(ranker, "all")(frame).set_index("docno")["score"]
        assert found["d2"] == low and found["d1"] == pytest.approx(2 / 3 * low)
    ranker = pt.apply.doc_score(lambda row: np.inf if row["text"].startswith("tea") else -np.inf)
    with pytest.raises(InputError, match="rotations of one passage have the scores inf and -inf, which have no mean"):
        AverageRotations(ranker, "all")(frame)
    assert AverageRotations(ranker, "all", combine="max")(frame)["score"].tolist() == [np.inf, -np.inf]


def test_texts_and_other_columns_stay():
    frame = CANDIDATES.assign(kept=range(len(CANDIDATES)))
    out = AverageRotations(Overlap(early=1.0))(frame)
    assert list(out.columns) == list(ranked(frame).columns)
    both = out.merge(frame, on=["qid", "docno"])
    assert (both["text_x"] == both["text_y"]).all() and (both["kept_x"] == both["kept_y"]).all()


class DocnoCache(pt.Transformer):
    """Knows documents by their docnos."""

    def __init__(self, ranker, key="docno"):
        self.ranker, self.key = ranker, key

    def transform(self, inp):
        return self.ranker(inp)


def test_a_cache_by_docnos_is_refused_inside_and_fine_around(tmp_path):
    inside = AverageRotations(DocnoCache(FIRST))
    candidates = pt.Transformer.from_df(CANDIDATES)
    for make in (
        lambda: RotatePassages() >> inside,
        lambda: inside >> Overlap(),
        lambda: inside(CANDIDATES),
        lambda: System.of("mine", candidates >> inside),
    ):
        with pytest.raises(InputError, match=r"DocnoCache behind AverageRotations would return .* key='text_variant'"):
            make()
    assert len(AverageRotations(DocnoCache(FIRST, key=VARIANT))(CANDIDATES)) == len(CANDIDATES)
    # What the message recommends works, and every rotation has a score of its own.
    caching = pytest.importorskip("pyterrier_caching")
    with caching.ScorerCache(tmp_path / "cache", FIRST, key=VARIANT) as cache:
        found = [AverageRotations(cache, rotations=2)(CANDIDATES) for _ in range(2)]
    for one in found:
        pd.testing.assert_frame_equal(one, AverageRotations(FIRST, rotations=2)(CANDIDATES), check_dtype=False)
    around = DocnoCache(AverageRotations(FIRST))
    assert len(around(CANDIDATES)) == len(CANDIDATES) and System.of("mine", candidates >> around)


@pytest.mark.parametrize(
    ("stage", "told"),
    [
        (lambda: AverageRotations("minilm"), "ranker is a str"),
        (lambda: AverageRotations(FIRST % 2), "leaves out"),
        (lambda: AverageRotations(pt.apply.generic(lambda found: found.assign(score=np.nan))), "'score' is NaN"),
        *((lambda bad=bad: AverageRotations(FIRST, bad), "rotations=.*'all'") for bad in (0, -1, 1.5, None, [2], "each")),
    ],
)
def test_what_cannot_be_is_refused(stage, told):
    with pytest.raises(InputError, match=told):
        stage()(CANDIDATES)


def test_a_query_is_text_where_there_is_one():
    with pytest.raises(InputError, match="'query' is a tuple, not text"):
        AverageRotations(FIRST)(CANDIDATES.assign(query=[("tea",)] * len(CANDIDATES)))
    of_passages = pt.apply.generic(lambda found: found.assign(score=found["text"].str.len()))
    assert len(AverageRotations(of_passages)(CANDIDATES.drop(columns="query"))) == len(CANDIDATES)


def test_an_audit_lets_the_ranker_inside_remember():
    """Two systems over one ranker encode each text once."""

    class Remembering(Overlap):
        depth = 0

        def remembering(self):
            from contextlib import contextmanager

            @contextmanager
            def one():
                Remembering.depth += 1
                yield

            return one()

    ranker = Remembering(early=1.0)
    identity = pt.Transformer.identity()
    with _remembering([System("a", identity, ranker), System("b", identity, AverageRotations(ranker, 2))]):
        assert Remembering.depth == 1


def test_an_audit_sees_it_as_the_ranker():
    """So that changed passages reach it."""
    texts = pt.Transformer.from_df(CANDIDATES)
    stage = AverageRotations(Overlap(), 2)
    system = System.of("mine", texts >> stage)
    assert system.ranker is stage and not system.out_of_reach
