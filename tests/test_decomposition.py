"""Pipelines are cut behind the stage that adds texts, where that stage does not score them."""

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import AuditResult, Collection, InputError, PositionSensitivity, audit
from pyterrier_debias.core.decomposition import out_of_reach, take_apart
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.stage import Stage, flatten
from pyterrier_debias.core.systems import System
from pyterrier_debias.position.audit import PositionBias
from pyterrier_debias.report.gate import Budget, check_budgets
from tests.position.toy import Overlap, collection

BIAS = PositionBias()

DATASET = collection(3, queries=8, depth=12)
RUN = pt.Transformer.from_df(DATASET.get_candidates())
LOADER = DATASET.text_loader()
EARLY, BAG = Overlap(early=1.0, noise=0.3), Overlap()
SUM = pt.apply.doc_score(lambda row: float(sum(row["features"])))
EARLY_ALONE = pt.apply.doc_score(lambda row: float(len(row["text"])))
TOPICS, QRELS = DATASET.get_topics(), DATASET.get_qrels()


class Stored(Stage):
    """A retriever that gives stored texts and a docid, also to documents that it is given, as Terrier's does."""

    def __init__(self, fields=("text",)):
        self.fields = fields

    def transform(self, inp):
        pt.validate.columns(inp, includes=["qid", "query"], context=self)
        found = RUN(inp[[c for c in inp.columns if c.startswith("q")]].drop_duplicates("qid"))
        if "docno" in inp:
            found = inp.drop(columns=["score", "rank"], errors="ignore").merge(found[["qid", "docno", "score", "rank"]])
        return LOADER(found.assign(docid=range(len(found)))) if "text" in self.fields else found


class ByDocid(Stage):
    """A text loader that goes by docid where there is one, as Terrier's does."""

    def __init__(self, texts):
        self.texts = texts

    def transform(self, inp):
        pt.validate.columns(inp, includes=["docno"], context=self)
        if "docid" in inp:
            return inp.assign(text=[self.texts[docid] for docid in inp["docid"]])
        return LOADER(inp)


def parts(pipeline):
    found = take_apart(flatten(pipeline))
    assert [*found.candidates, *found.ranker] == flatten(pipeline)
    return len(found.candidates), found.reason


@pytest.mark.parametrize(
    ("pipeline", "candidates"),
    [
        (RUN >> LOADER >> EARLY, 2),
        (RUN % 5 >> LOADER >> EARLY, 3),
        (RUN >> LOADER % 5 >> EARLY, 3),
        (Stored() % 5 >> EARLY, 2),
        (Stored() >> LOADER >> pt.RankCutoff(9) >> LOADER % 5 >> EARLY % 3, 5),
        (RUN >> LOADER >> pt.rewrite.reset() >> EARLY, 3),
        (RUN >> LOADER >> EARLY >> BAG, 2),
        (RUN >> LOADER >> (EARLY ** BAG) >> SUM, 2),
        (RUN >> pt.apply.by_query(LOADER) >> EARLY, 2),
        ((Stored() | (RUN >> LOADER)) >> EARLY, 1),
        (Stored() + (RUN >> LOADER) * 0.5 >> EARLY, 1),
        (RUN >> (Stored(()) ** RUN) >> LOADER >> EARLY, 3),
        ((RUN | RUN) >> Stored() >> EARLY, 2),
        (RUN >> LOADER >> pt.apply.text(lambda row: row["text"].lower()) >> EARLY, 2),
        (RUN >> LOADER, 2),
        (RUN >> LOADER % 5, 3),
        (RUN, 1),
    ],
    ids=range(17),  # pipelines print with addresses in memory
)
def test_where_a_pipeline_is_cut(pipeline, candidates):
    assert parts(pipeline) == (candidates, "")


class Inside(Stage):
    """One stage that loads texts and scores them; ``text`` says whether it returns them."""

    def __init__(self, text=True):
        self.text = text

    def transform(self, inp):
        found = EARLY(LOADER(inp))
        return found if self.text else found.drop(columns="text")


def test_without_a_ranker_the_reason_is_true():
    for pipeline in (RUN >> LOADER, RUN >> LOADER % 5):
        told = BIAS.needs(System.of("mine", pipeline), DATASET)
        assert told.startswith("no ranker that could be given changed passages follows its text loader (TextLoader); put one")
    for pipeline in (RUN, RUN % 5):
        told = BIAS.needs(System.of("mine", pipeline), DATASET)
        assert told.startswith("it is a run, whose texts cannot be changed; audit the ranker itself (on the command line: --")
    for pipeline in (RUN >> EARLY_ALONE, RUN >> Inside(), RUN >> Inside(text=False), RUN >> pt.apply.generic(Inside())):
        told = BIAS.needs(System.of("mine", pipeline), DATASET)
        assert told.startswith("its stages do not show where texts are added before a ranker")
        assert "or one of its stages both loads and scores texts" in told and "none of its stages" not in told


INSIDE = "loaded and scored inside one stage"


@pytest.mark.parametrize(
    "pipeline",
    [
        RUN >> ((LOADER >> EARLY) ** Stored(())) >> SUM,
        RUN >> ((LOADER >> EARLY) ** Stored(())) >> SUM >> LOADER >> EARLY,
        RUN >> (LOADER ** Stored(())) >> SUM,
        RUN >> ((LOADER >> EARLY) + Stored(())),
        RUN >> (0.7 * (LOADER >> EARLY) + 0.3 * Stored(())),
        (RUN >> LOADER >> EARLY) + RUN,
        (Stored() >> EARLY) | RUN,
        ((RUN >> LOADER >> EARLY) % 5) ^ RUN,
        (((RUN >> LOADER >> EARLY) + RUN) ^ RUN) % 4,
    ],
    ids=range(9),
)
def test_a_stage_that_loads_and_scores_is_no_text_stage(pipeline):
    candidates, reason = parts(pipeline)
    assert candidates == len(flatten(pipeline)) and INSIDE in reason
    system = System.of("mine", pipeline)
    assert system.ranker is None
    assert "put the text loader before that stage" in BIAS.needs(system, DATASET)
    assert system.note.startswith("mine: the depth does not affect its ranker")
    pd.testing.assert_frame_equal(system.candidates(TOPICS), pipeline(TOPICS))
    with pytest.raises(InputError, match=INSIDE):
        PositionSensitivity(pipeline, dataset=DATASET).transform(TOPICS)
    # With an indexer it is probed as a retriever is.
    assert BIAS.needs(System.of("mine", pipeline, indexer=lambda documents: pipeline), DATASET) is None


def test_a_retriever_that_gives_texts_and_features_is_told_to_give_no_texts():
    """A text loader cannot be put before it."""

    class Features(Stage):
        def transform(self, inp):
            return Stored()(inp).assign(features=None)

    assert "leave 'text' out of its metadata, and put a text loader after it" in parts(Features() >> SUM)[1]


def test_a_text_loader_that_adds_no_text_is_named():
    class TitleTextLoader(Stage):
        fields = ("docno", "title")

        def transform(self, inp):
            pt.validate.columns(inp, includes=["docno"], context=self)
            return inp.assign(title="any")

    system = System.of("mine", RUN >> TitleTextLoader() >> EARLY)
    assert "its text loader (TitleTextLoader) adds no column 'text' (it has docno, title)" in BIAS.needs(system, DATASET)
    renamed = RUN >> TitleTextLoader() >> pt.apply.rename({"title": "text"}) >> EARLY
    unknown = pt.apply.generic(lambda topics: RUN(topics)) >> LOADER >> EARLY  # nothing tells what this loader adds
    assert parts(renamed) == (3, "") and parts(unknown)[1] == "" == parts(RUN >> TitleTextLoader())[1]


def test_a_sum_is_told_how_to_keep_the_scores_of_its_retriever():
    """By a pipeline that ranks alike, and is probed."""
    summed = (RUN >> LOADER >> EARLY) * 0.6 + RUN * 0.4
    assert "(ranker * 0.6 + pt.Transformer.identity() * 0.4)" in parts(summed)[1] and "learner" not in parts(summed)[1]
    remedy = RUN >> LOADER >> (EARLY * 0.6 + pt.Transformer.identity() * 0.4)
    assert parts(remedy) == (2, "") and BIAS.needs(System.of("mine", remedy), DATASET) is None
    columns = ["qid", "docno", "score", "rank"]
    pd.testing.assert_frame_equal(ranked(remedy(TOPICS))[columns], ranked(summed(TOPICS))[columns])


@pytest.mark.parametrize(
    ("ranker", "reason"),
    [
        (BAG >> LOADER >> EARLY, "TextLoader, which replaces changed passages"),
        (BAG >> (EARLY ** (LOADER >> BAG)) >> SUM, "TextLoader, which replaces changed passages"),
        (EARLY + Stored(()), "Stored, which scores documents of an index"),
        ((EARLY ** Stored(())) >> SUM, "Stored, which scores documents of an index"),
        (EARLY >> RUN >> LOADER >> EARLY, "SourceTransformer, which scores documents of an index"),
    ],
    ids=["loader between", "loader in a union", "sum", "features", "retrieves again"],
)
def test_rankers_that_changed_texts_cannot_reach(ranker, reason):
    system = System.of("mine", Stored() >> ranker)
    assert system.ranker is not None and reason in system.out_of_reach
    assert BIAS.needs(system, DATASET) == system.out_of_reach
    for pipeline, inp in ((system, TOPICS), (ranker, system.candidates(TOPICS))):
        with pytest.raises(InputError, match=reason):
            PositionSensitivity(pipeline).transform(inp)


def test_a_ranker_that_answers_every_empty_frame_alike_is_no_loader_and_no_index():
    class Alike(Stage):
        def transform(self, inp):
            if len(inp) == 0:
                return pd.DataFrame(columns=["qid", "query", "docno", "text", "score", "rank"])
            return EARLY(inp)

    system = System.of("mine", RUN >> LOADER >> Alike())
    assert (system.ranker, system.out_of_reach) == (Alike(), "")
    found = PositionSensitivity(system, draws=1).transform(TOPICS)
    pd.testing.assert_frame_equal(found, PositionSensitivity(RUN >> LOADER >> EARLY, draws=1).transform(TOPICS))


def test_functions_are_given_the_benefit_of_the_doubt():
    """What ``pt.apply`` makes of rows is not known from empty frames; rows show it."""
    titled = pt.apply.text(lambda row: f"title {row['text']}")
    ranker = titled >> pt.apply.generic(lambda inp: inp.assign(docno=inp.get("docno"))) >> EARLY
    assert out_of_reach(flatten(ranker), ["qid", "query", "docno", "score", "rank", "text"]) == ""


def test_a_loader_by_docid_cannot_undo_a_rotation():
    """A second loader behind the first belongs to the candidates; and no variant carries a docid."""
    loader = ByDocid(LOADER(DATASET.get_candidates())["text"].tolist())
    plain = PositionSensitivity(Stored() >> EARLY, dataset=DATASET, draws=1, resamples=99).evaluate(TOPICS)
    again = PositionSensitivity(Stored() >> loader >> EARLY, dataset=DATASET, draws=1, resamples=99).evaluate(TOPICS)
    assert plain.table["difference"].iloc[0] != 0
    pd.testing.assert_frame_equal(again.table, plain.table)
    hidden = pt.apply.generic(lambda inp: loader(inp)) >> EARLY  # a loader that cannot be recognised finds no docid and no docno
    with pytest.raises(InputError, match=r"given changed texts under new docnos: TextLoader.*'%r"):
        PositionSensitivity(System("s", Stored(), hidden), draws=1).transform(TOPICS)


def test_a_cutoff_means_the_same_before_and_behind_the_loader():
    options = {"dataset": DATASET, "draws": 2, "resamples": 99}
    found = [
        PositionSensitivity(pipeline >> EARLY, **options).evaluate(TOPICS)
        for pipeline in (Stored() % 6, RUN % 6 >> LOADER, RUN >> LOADER % 6, RUN >> LOADER >> LOADER % 6)
    ]
    assert len(found[0].displacement) == (QRELS.merge((RUN % 6)(TOPICS), on=["qid", "docno"])["label"] >= 1).sum() * 2
    for other in found[1:]:
        pd.testing.assert_frame_equal(other.table, found[0].table)
        pd.testing.assert_frame_equal(other.displacement, found[0].displacement)


# ---------------------------------------------------------------------------------------------- audits


class Store(Stage):
    """Knows documents by name."""

    def __init__(self, known):
        self.known = known

    def transform(self, inp):
        pt.validate.result_frame(inp, extra_columns=["text"], context=self)
        return ranked(inp.assign(score=[self.known.get(docno, 0.5) for docno in inp["docno"]]))


SYSTEMS = {
    "early": RUN >> LOADER >> EARLY,
    "inside": RUN >> ((LOADER >> EARLY) ** Stored(())) >> SUM,
    "store": RUN >> LOADER >> Store({docno: float(i % 7) for i, docno in enumerate(DATASET.get_candidates()["docno"])}),
    "blind": RUN >> LOADER >> BAG,
    "between": RUN >> LOADER >> BAG >> LOADER >> EARLY,
}


@pytest.fixture(scope="module")
def result():
    return audit(SYSTEMS, DATASET, biases=["position"], draws=1, depth=8)


def test_one_system_that_cannot_be_probed_does_not_end_the_audit_of_all(result):
    assert result.failed.empty
    reasons = result.skipped.set_index("system")["reason"].to_dict()
    assert list(reasons) == ["inside", "between", "store"]
    assert INSIDE in reasons["inside"] and "looks up documents by docno" in reasons["store"]
    alone = audit({"early": SYSTEMS["early"]}, DATASET, biases=["position"], draws=1, depth=8)
    own = result.findings[result.findings["system"] == "early"]
    columns = [c for c in own.columns if c != "p_corrected"]
    pd.testing.assert_frame_equal(own[columns].reset_index(drop=True), alone.findings[columns])


def test_a_refusal_found_while_probing_costs_no_second_probe_of_the_others():
    calls = []

    class Counting(Overlap):
        def transform(self, inp):
            if "%r" in "".join(inp["qid"]):
                calls.append(len(inp))
            return super().transform(inp)

    systems = {"counting": RUN >> LOADER >> Counting(early=1.0), "store": SYSTEMS["store"]}
    found = audit(systems, DATASET, biases=["position"], draws=1, depth=8)
    # Single rows are asked again to see whether their scores can be remembered.
    assert found.skipped["system"].tolist() == ["store"] and [rows > 1 for rows in calls].count(True) == 1


def test_an_audit_of_nothing_that_can_be_probed_says_why():
    with pytest.raises(InputError, match=r"no bias can be examined for any of the systems.*looks up documents by docno"):
        audit({"store": SYSTEMS["store"]}, DATASET, biases=["position"], draws=1)


def test_where_no_score_changed_nothing_is_tested(result, tmp_path):
    primary = result.findings[result.findings["primary"]].set_index("system")
    assert primary.loc["blind", ["value", "low", "high", "p", "p_corrected"]].isna().all()
    assert "never saw the rotated passages" in primary.loc["blind", "text"]
    tested = result.findings["p"].notna()
    assert set(result.findings.loc[tested, "system"]) == {"early"}
    assert result.findings.loc[tested, "p_corrected"].notna().all() and result.findings.loc[~tested, "p_corrected"].isna().all()
    groups = result.per_query[result.per_query["system"] == "blind"]["contrast"].unique().tolist()
    assert groups == ["original"]  # no values that would be compared with another system's
    verdicts = check_budgets(result, [Budget("position", system="blind", at_least=-0.05)])
    assert [verdict.crossed for verdict in verdicts] == [True] and "is not defined" in verdicts[0].text
    told = str(result)
    assert "no score changed when passages were rotated" in told.replace("\n    ", " ")
    result.save(tmp_path / "saved")
    again = AuditResult.from_json((tmp_path / "saved" / "audit.json").read_text())
    pd.testing.assert_frame_equal(again.findings, result.findings)
    for file in (tmp_path / "saved").iterdir():
        if file.suffix in (".html", ".txt", ".md"):
            told += file.read_text()
    assert "nan" not in {word.strip("[](),.;:<>/|*").lower() for word in told.split()}


def test_a_bag_of_words_that_is_indexed_anew_is_zero_by_construction():
    def index(documents):
        texts = pd.DataFrame([(d["docno"], d["text"]) for d in documents], columns=["docno", "text"])
        return pt.apply.generic(lambda topics: ranked(BAG(topics.merge(texts, how="cross"))).query("rank < 20"))

    systems = {"words": System("words", RUN, None, index), "early": SYSTEMS["early"]}
    found = audit(systems, DATASET, biases=["position"], draws=1, depth=8, baseline="early")
    row = found.findings[found.findings["primary"] & (found.findings["system"] == "words")].iloc[0]
    assert row["value"] == 0 and pd.isna(row["p"]) and pd.isna(row["p_corrected"])
    assert row["text"].endswith("0 by construction, not tested.")
    family = found.findings[found.findings["p"].notna()]
    assert not ((family["system"] == "words") & (family["contrast"] == "rotated - original")).any()


def test_a_ranker_alone_may_begin_with_a_loader_or_a_cut():
    """The collection's run gets texts anyhow; what is loaded and cut before the ranker belongs to the candidates."""
    plain = System.of("s", EARLY, dataset=DATASET)
    system = System.of("s", LOADER >> pt.RankCutoff(5) >> EARLY, dataset=DATASET)
    assert (plain.ranker, system.ranker, system.out_of_reach) == (EARLY, EARLY, "")
    assert len(system.candidates(TOPICS)) == 5 * len(TOPICS) < len(plain.candidates(TOPICS))
    union = (LOADER >> EARLY) + BAG
    assert "TextLoader, which replaces" in System.of("s", union, dataset=DATASET).out_of_reach


def test_a_collection_without_runs_still_tells_a_lone_ranker_what_it_needs():
    bare = Collection("bare", corpus=DATASET.get_corpus(), topics={"test": TOPICS}, qrels={"test": QRELS})
    with pytest.raises(InputError, match="put a retriever and a text loader before it"):
        System.of("s", LOADER >> EARLY, dataset=bare)
