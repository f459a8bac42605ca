"""No cache hides a changed text."""

import importlib.util
import sys

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    AddScores,
    InputError,
    PlantedRanker,
    PositionSensitivity,
    RepeatNounPhrases,
    RewriteQueries,
    RotatePassages,
    SwapGender,
    System,
    WordingSensitivity,
    audit,
)
from pyterrier_debias.core.caches import VARIANT, check_caches, key_of, marked
from pyterrier_debias.core.frames import ranked
from tests import stand_in_caches
from tests.contract_cases import CORPUS, JUDGED, RESULTS, texts, topics

# What pyterrier_caching itself warns of, with the newest pandas, is not ours.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "ResourceWarning")]

REAL = importlib.util.find_spec("pyterrier_caching") is not None

#: The first word decides, so that every rotation changes scores.
FIRST = pt.apply.doc_score(lambda row: float(len((row["text"].split() or [""])[0])) + len(row["text"]) / 1000)


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.skipif(not REAL, reason="no pyterrier_caching"))])
def caching(request, monkeypatch):
    """The package, or what stands for it."""
    if request.param == "real":
        import pyterrier_caching

        return pyterrier_caching
    made = stand_in_caches.package()
    monkeypatch.setitem(sys.modules, "pyterrier_caching", made)
    return made


@pytest.fixture
def scored(caching, tmp_path):
    """A cache around a ranker, with the options that are asked for."""

    def make(ranker=FIRST, **options):
        scored.number += 1
        return caching.ScorerCache(str(tmp_path / f"cache{scored.number}"), ranker, **options)

    scored.number = 0
    return make


@pytest.fixture(scope="module")
def candidates():
    """README's: a retriever, then the texts; no stage of this library is the first."""
    first = pt.Transformer.from_df(RESULTS)
    loader = pt.apply.text(lambda row: dict(zip(CORPUS["docno"], CORPUS["text"]))[row["docno"]])
    return first % 100 >> loader


def asked(pipeline):
    return pipeline(topics()).sort_values(["qid", "docno"])["score"].tolist()


def test_readmes_pipeline_is_refused(candidates, scored):
    plain, turned = candidates >> FIRST, candidates >> RotatePassages(seed=1) >> FIRST
    assert asked(plain) != asked(turned)
    ranker = scored()
    assert asked(candidates >> ranker) == asked(plain)
    cached = candidates >> RotatePassages(seed=1) >> ranker
    with pytest.raises(InputError, match=r"unchanged text.*key='text_variant'"):
        cached(topics())
    for plan, systems in (("linear", [cached]), ("tree", [candidates >> ranker, cached])):
        with pytest.raises(InputError, match="unchanged text"):
            pt.Experiment(systems, topics(), JUDGED, [pt.measures.nDCG @ 10], plan=plan, validate="ignore")


def test_a_key_with_the_text_gives_the_changed_scores(candidates, scored):
    ranker = scored(key=VARIANT)
    for seed in (1, 2, 1):
        turned = candidates >> RotatePassages(seed=seed)
        assert asked(turned >> ranker) == pytest.approx(asked(turned >> FIRST))
    assert asked(candidates >> RotatePassages(seed=1) >> FIRST) != asked(candidates >> RotatePassages(seed=2) >> FIRST)


@pytest.mark.parametrize("change", [RotatePassages(), SwapGender(), SwapGender(queries=True), RotatePassages(text_field="title")])
def test_built_pipelines_are_refused(change, caching, scored, tmp_path):
    column = change.text_field
    for cache in (
        scored(),
        caching.DenseScorerCache("no folder", FIRST),
        caching.KeyValueCache(str(tmp_path / "values"), FIRST, key="docno", value="score"),
    ):
        for behind in (
            cache, cache % 10, FIRST >> cache, FIRST + cache, FIRST ** (FIRST >> cache), AddScores(cache),
            FIRST >> AddScores(FIRST >> cache),
        ):
            told = f"behind {type(change).__name__} would return the scores of the unchanged {column}: its key"
            with pytest.raises(InputError, match=told):
                change >> behind
    for key in (column, VARIANT):
        assert isinstance(change >> scored(key=key), pt.Transformer)
    assert isinstance(scored() >> change, pt.Transformer)


@pytest.mark.parametrize(
    "change",
    [RewriteQueries(), RepeatNounPhrases(), SwapGender(text_field=None, queries=True)],
    ids=lambda change: type(change).__name__,
)
def test_queries(change, caching, scored):
    assert isinstance(change >> scored(), pt.Transformer)  # its key holds the query
    assert isinstance(change >> caching.RetrieverCache(None, FIRST), pt.Transformer)  # all columns are its key
    for cache in (scored(group="qid"), caching.RetrieverCache(None, FIRST, on="qid")):
        with pytest.raises(InputError, match=r"unchanged query.*group='query'"):
            change >> cache
        back = pt.Transformer.identity()
        back.__class__ = type("ResetQuery", (type(back),), {})
        assert isinstance(change >> back >> cache, pt.Transformer)


def test_operators_give_on_what_their_sides_changed(scored):
    turned = pt.Transformer.identity() >> RotatePassages()
    for both in (turned + FIRST, FIRST ** turned, turned % 3, turned | turned):
        with pytest.raises(InputError, match="behind RotatePassages"):
            check_caches(both >> scored())


def test_systems_and_audits(candidates, scored):
    behind = candidates >> RotatePassages() >> scored()
    with pytest.raises(InputError, match="behind RotatePassages"):
        System("mine", candidates >> RotatePassages(), scored())
    with pytest.raises(InputError, match="behind RotatePassages"):
        System.of("mine", behind)
    from pyterrier_debias import Collection

    collection = Collection("toy", corpus=CORPUS, topics={"t": topics()}, qrels={"t": JUDGED})
    with pytest.raises(InputError, match="behind RotatePassages"):
        audit({"mine": behind}, collection, biases="position")


def test_probes_of_cached_rankers(candidates, scored):
    """They name changed passages themselves; what they do to queries, only the key can tell."""
    plain = PositionSensitivity(FIRST, draws=1)(texts())
    pd.testing.assert_frame_equal(PositionSensitivity(scored(), draws=1)(texts()), plain)
    turned = RotatePassages()(texts())
    cached = PositionSensitivity(scored(key=VARIANT), draws=1)(turned)
    pd.testing.assert_frame_equal(cached, PositionSensitivity(FIRST, draws=1)(turned))
    assert len(WordingSensitivity(scored(PlantedRanker()), rewrites=["keywords"])(texts()))
    with pytest.raises(InputError, match="behind WordingSensitivity"):
        WordingSensitivity(scored(PlantedRanker(), group="qid"), rewrites=["keywords"])(texts())


def test_probes_of_dense_caches_are_refused(candidates, caching, tmp_path):
    """They have no room for the names of changed passages."""
    from pyterrier_debias import Collection

    cache = caching.DenseScorerCache(str(tmp_path / "dense"), FIRST)
    cache.build(CORPUS.to_dict("records"))
    told = "DenseScorerCache stores scores only for the docnos of its collection.*audit the ranker inside it.*ScorerCache"
    for ranker in (cache, cache + FIRST, AddScores(cache), FIRST >> cache):
        with pytest.raises(InputError, match=told):
            PositionSensitivity(ranker, draws=1)(texts())
    collection = Collection("toy", corpus=CORPUS, topics={"t": topics()}, qrels={"t": JUDGED})
    with pytest.raises(InputError, match=f"ranker of 'mine' cannot be probed: a {told}"):
        audit({"mine": candidates >> cache}, collection, biases="position", draws=1)


# PyTerrier's own ranks, over pandas before 3
@pytest.mark.filterwarnings(r"ignore:\s*A value is trying to be set on a copy")
def test_what_survives():
    """A column does, where PyTerrier's frames go; attributes do not."""
    frame = RotatePassages()(texts())
    frame.attrs["changed"] = True
    other = pt.apply.generic(lambda found: found.merge(RESULTS[["qid", "docno"]].assign(more=1), on=["qid", "docno"]))
    through = (
        pt.apply.doc_score(lambda row: 1.0), pt.apply.text(lambda row: row["text"]), other, pt.Transformer.identity() % 3,
        FIRST + FIRST, FIRST ** FIRST, pt.apply.generic(ranked), pt.apply.by_query(lambda found: found.head(2)),
    )
    columns, attributes = [], []
    for stage in through:
        out = stage(frame)
        assert out[VARIANT].tolist() == out.merge(frame[["qid", "docno", VARIANT]], on=["qid", "docno"])[f"{VARIANT}_y"].tolist()
        columns.append(VARIANT in out.columns)
        attributes.append("changed" in out.attrs)
    assert all(columns) and not all(attributes)
    seen = []
    spy = pt.apply.generic(lambda found: seen.append(VARIANT in found.columns) or found)
    pt.Experiment([pt.Transformer.from_df(frame) >> spy], topics(), JUDGED, [pt.measures.nDCG @ 10], validate="ignore")
    assert seen and all(seen)


def test_marks_are_names_of_documents_and_texts():
    first, second = RotatePassages(seed=1)(texts()), RotatePassages(seed=2)(texts())
    same = (first["text"] == second["text"]).to_numpy()
    assert ((first[VARIANT] == second[VARIANT]).to_numpy() == same).all() and not same.all()
    assert all(mark.startswith(f"{docno}%t") for mark, docno in zip(first[VARIANT], first["docno"]))
    again = marked(first, "text")
    assert not set(again[VARIANT]) & set(first[VARIANT])  # two changes, of which the first may be of another column
    for missing in (None, float("nan")):  # of candidates with and without it that were joined
        some = marked(first.assign(**{VARIANT: first[VARIANT].astype(object).where(first.index > 0, missing)}), "text")
        assert some[VARIANT][0] == marked(first.drop(columns=VARIANT), "text")[VARIANT][0]
        assert some[VARIANT][1:].tolist() == again[VARIANT][1:].tolist()
    assert VARIANT not in RotatePassages()(CORPUS).columns  # documents on their way into an index


def test_what_is_no_cache():
    assert key_of(FIRST) is None and key_of("cache") is None
    assert key_of(type("Cached", (pt.Transformer,), {"transform": lambda self, inp: inp})()) is None  # around nothing
    assert isinstance(RotatePassages() >> FIRST, pt.Transformer)


def test_vectors_of_queries_and_documents(caching, tmp_path):
    """Those of what was not changed stay valid."""
    documents = caching.KeyValueCache(str(tmp_path / "documents"), FIRST, key="docno", value="doc_vec")
    queries = caching.KeyValueCache(str(tmp_path / "queries"), FIRST, key=["query"], value=["query_vec"])
    assert isinstance(RewriteQueries() >> documents, pt.Transformer) and isinstance(RotatePassages() >> queries, pt.Transformer)
    with pytest.raises(InputError, match="unchanged text"):
        RotatePassages() >> documents


def test_a_stage_that_holds_itself():
    own = AddScores(FIRST)
    own.scorer = own
    assert isinstance(RotatePassages() >> own, pt.Transformer)
