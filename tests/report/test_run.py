import copy
import importlib.util
import json
import pickle
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from scipy import stats

from pyterrier_debias import AuditResult, Collection, InputError, System, WordListBias, audit, open_dataset
from pyterrier_debias.core.bias import Finding
from pyterrier_debias.core.files import MANIFEST, entries
from pyterrier_debias.data.base import TextLoader
from pyterrier_debias.report import run
from tests.biases import Made
from tests.report import toy
from tests.report.toy import BROKEN, CONTRAST, ORDER, PICKY, QIDS

# What the pictures show is looked at by test_report.py and test_plots.py.
pytestmark = pytest.mark.usefixtures("pictures_small")


@pytest.fixture
def dataset():
    return toy.collection()


@pytest.fixture(scope="module")
def audited():
    dataset = toy.collection()
    return audit(toy.systems(dataset), dataset, biases=[ORDER, PICKY, BROKEN], baseline="BM25")


@pytest.fixture
def result(audited):
    """A copy, which a test may change."""
    return copy.deepcopy(audited)


def row(result, system, contrast=CONTRAST, bias="order"):
    f = result.findings
    (found,) = f[(f["system"] == system) & (f["contrast"] == contrast) & (f["bias"] == bias)].to_dict("records")
    return found


def test_findings_are_the_biases_figures(result):
    # The relevant document is first; upside down it is second: RR falls from 1 to 1/2 for every query.
    assert row(result, "BM25", "original")["value"] == 1
    assert row(result, "BM25")["value"] == -0.5
    assert row(result, "longest")["n"] == len(QIDS)
    values = result.per_query.query("system == 'BM25' and contrast == @CONTRAST")
    assert values["value"].tolist() == [-0.5] * 6 and values["qid"].tolist() == QIDS


def test_p_values_are_corrected_over_the_whole_table(dataset):
    ps = {"a": [0.01, 0.03], "b": [0.04]}

    def bias(name):
        found = [Finding("BM25", name, "m", f"g{i}", 0.1, p=p, n=6) for i, p in enumerate(ps[name])]
        return Made(name, lambda context: found)

    biases = [bias("a"), bias("b")]
    systems = {"BM25": toy.bm25_system(dataset)}
    first = audit(systems, dataset, biases=biases).findings["p_corrected"]  # none of them has a primary test
    np.testing.assert_allclose(first, [0.03, 0.06, 0.06])
    holm = audit(systems, dataset, biases=biases, correction="holm").findings["p_corrected"]
    np.testing.assert_allclose(holm, [0.03, 0.06, 0.06])
    bonferroni = audit(systems, dataset, biases=biases, correction="bonferroni").findings["p_corrected"]
    np.testing.assert_allclose(bonferroni, [0.03, 0.09, 0.12])
    fdr = audit(systems, dataset, biases=biases, correction="fdr_bh").findings["p_corrected"]
    np.testing.assert_allclose(fdr, stats.false_discovery_control([0.01, 0.03, 0.04]))


def test_what_a_bias_cannot_examine_is_listed_with_the_reason(result):
    assert result.skipped.to_dict("records") == [{"bias": "picky", "system": "BM25", "reason": "it has no ranker to probe"}]
    assert result.findings.query("bias == 'picky'")["system"].unique().tolist() == ["longest"]


def test_a_bias_that_breaks_is_reported_and_the_others_finish(dataset):
    result = audit(toy.systems(dataset), dataset, biases=[BROKEN, ORDER])
    assert result.failed["bias"].tolist() == ["broken"]
    assert result.failed["error"].tolist() == ["RuntimeError: the bias fell down"]
    assert "toy.py" in result.failed["traceback"][0]
    assert set(result.findings["bias"]) == {"order"}


def test_a_ranker_that_raises_runs_once_and_is_named_in_every_room(dataset):
    calls = []

    def broken(row):
        calls.append(row["docno"])
        raise ValueError("the index\nis gone")

    first = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    result = audit({"mine": first >> pt.apply.doc_score(broken)}, dataset, biases=[ORDER, PICKY])
    assert len(calls) == 1
    assert result.failed["error"].tolist() == ["system 'mine' raised ValueError: the index is gone"] * 2
    (trace,) = set(result.failed["traceback"])
    assert trace.rstrip().endswith("ValueError: the index\nis gone") and "in broken" in trace and "systems.py" in trace


def test_a_system_that_raises_does_not_cost_the_others_theirs(dataset, tmp_path):
    def broken(row):
        raise ValueError("not yet")

    first = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    systems = {**toy.systems(dataset), "mine": first >> pt.apply.doc_score(broken)}
    result = audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    assert result.failed["error"].tolist() == ["system 'mine' raised ValueError: not yet"]
    assert set(result.findings["system"]) == set(toy.systems(dataset))
    alone = audit(toy.systems(dataset), dataset, biases=[ORDER])
    pd.testing.assert_frame_equal(result.findings, alone.findings)
    # What lacks a system is not kept: the system is asked again.
    again = audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    assert again.failed["error"].tolist() == result.failed["error"].tolist()


def test_biases_are_asked_about_the_topics_and_judgements_of_the_audit(dataset):
    seen = []

    def needs(system, given):
        seen.append((given.get_topics(), given.get_qrels(), given.get_runs()))
        return "it only looks"

    qrels = dataset.get_qrels().assign(label=1)
    with pytest.raises(InputError, match="it only looks"):
        audit(toy.systems(dataset), dataset, biases=[Made("curious", None, needs)], topics=3, qrels=qrels)
    topics, judged, runs = seen[0]
    assert len(topics) == 3 and set(judged["label"]) == {1} and list(runs) == list(dataset.get_runs())


def test_labels_are_numbers(dataset):
    qrels = dataset.get_qrels()
    as_text = audit(toy.systems(dataset), dataset, biases=[ORDER], qrels=qrels.assign(label=qrels["label"].astype(str)))
    pd.testing.assert_frame_equal(as_text.findings, audit(toy.systems(dataset), dataset, biases=[ORDER]).findings)
    for label in (np.nan, "relevant"):
        with pytest.raises(InputError, match="audit: column 'label' is NaN or not a whole number up to 1000000 in 1 of"):
            audit(toy.systems(dataset), dataset, biases=[ORDER], qrels=pd.concat([qrels, qrels[:1].assign(label=label)]))


def test_a_scoring_function_alone_reranks_the_collections_run(dataset):
    result = audit({"length": pt.apply.doc_score(lambda row: len(row["text"]))}, dataset, biases=[ORDER, PICKY])
    assert result.failed.empty and set(result.findings["bias"]) == {"order", "picky"}


def test_input_errors_reach_the_user(dataset):
    def run(context):
        raise InputError("ranker: column 'text' has no value at row 3")

    strict = Made("strict", run)
    with pytest.raises(InputError, match=r"^ranker: column 'text' has no value at row 3$"):
        audit(toy.systems(dataset), dataset, biases=[strict])
    # What other biases found is not lost.
    result = audit(toy.systems(dataset), dataset, biases=[ORDER, strict])
    alone = audit(toy.systems(dataset), dataset, biases=[ORDER])
    pd.testing.assert_frame_equal(result.findings, alone.findings)
    refused = result.skipped[result.skipped["bias"] == "strict"]
    assert refused["system"].tolist() == list(toy.systems(dataset))
    assert set(refused["reason"]) == {"ranker: column 'text' has no value at row 3"}


def test_one_unknown_document_of_the_only_run_does_not_end_the_audit(dataset):
    run = dataset.get_runs()["bm25"]
    run = run.assign(docno=run["docno"].where(run.index > 0, "unknown"))
    words = WordListBias({"good": ["good"], "bad": ["bad"]}, "praise")
    result = audit({"mine": run}, dataset, biases=[ORDER, words])
    assert set(result.findings["bias"]) == {"order"} and result.failed.empty
    refused = result.skipped.iloc[0]
    assert refused["bias"] == "praise" and "a docno that is not in the collection, first 'unknown'" in refused["reason"]


def test_a_pipeline_in_the_wrong_order_is_an_input_error(dataset):
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    with pytest.raises(InputError, match=r"CountingRanker.* dataset\.text_loader\(\)"):
        audit({"no text": first >> toy.CountingRanker()}, dataset, biases=[ORDER])


def test_a_bias_that_calls_a_stage_without_what_it_needs_is_told_as_a_system_is(dataset):
    def run(context):
        yield from toy.CountingRanker()(context.topics)

    with pytest.raises(InputError, match=r"^strict: its stage CountingRanker needs 'docno', 'text'; put a retriever before it"):
        audit(toy.systems(dataset), dataset, biases=[Made("strict", run)])


def test_nothing_to_examine_is_an_input_error_with_the_reason(dataset):
    with pytest.raises(InputError, match="picky: it has no ranker to probe"):
        audit(toy.bm25_system(dataset), dataset, biases=[PICKY])


def test_biases_share_retrieval_and_scoring(dataset):
    ranker = toy.CountingRanker()
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    audit({"a": first >> dataset.text_loader() >> ranker}, dataset, biases=[ORDER, PICKY])
    assert ranker.calls == 1


def test_the_baseline_is_compared_query_by_query(dataset):
    rng = np.random.default_rng(0)
    values = {"BM25": rng.normal(size=6), "longest": rng.normal(size=6)}

    def run(context):
        for number, system in enumerate(context.systems):
            own = pd.Series(values[system.name], index=QIDS).sample(frac=1, random_state=number)
            yield Finding(system.name, "made", "m", "g", own.mean(), n=6, primary=True, values=own)

    result = audit(toy.systems(dataset), dataset, biases=[Made("made", run)], baseline="BM25")
    found = row(result, "longest", "g, vs BM25", "made")
    peer = stats.ttest_rel(values["longest"], values["BM25"])
    assert found["value"] == pytest.approx((values["longest"] - values["BM25"]).mean(), abs=1e-12)
    assert found["p"] == pytest.approx(peer.pvalue, abs=1e-12)
    assert (found["low"], found["high"]) == pytest.approx(peer.confidence_interval(), abs=1e-12)
    assert not found["primary"]


def test_systems_come_in_every_shape(dataset):
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    pipeline = first >> dataset.text_loader() >> toy.CountingRanker()
    listed = [dataset.get_runs()["bm25"], pipeline, pipeline, toy.bm25_system(dataset), toy.CountingRanker()]
    named = [system.name for system in run.named_systems(listed, dataset)]
    assert len(set(named)) == 5
    assert named[0] == "run 1" and named[1] == "SourceTransformer >> CountingRanker (1)" and named[3] == "BM25"
    assert run.named_systems({7: first}, dataset)[0].name == "7"
    assert run.named_systems({"mine": toy.bm25_system(dataset)}, dataset)[0].name == "mine"
    assert [s.ranker is None for s in run.named_systems(listed, dataset)] == [True, False, False, True, False]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"biases": "astrology"}, "bias 'astrology' is not known"),
        ({"biases": []}, "audit: no bias is given"),
        ({"correction": "hope"}, "correction='hope' is not known"),
        ({"depth": 0}, "depth is 0"),
        ({"draws": 0}, "draws is 0"),
        ({"topics": 0}, "topics is 0"),
        ({"topics": np.int64(0)}, "topics is 0; it must be 1 or more"),
        ({"topics": ["q1"]}, r"topics is \['q1'\]; it must be a whole number, or a frame with qid and query"),
        ({"topics": True}, "topics is True; it must be a whole number"),
        ({"topics": 2.0}, "topics is 2.0; it must be a whole number"),
        ({"depth": 10.5}, "depth is 10.5; it must be a whole number"),
        ({"depth": None}, "depth is None; it must be a whole number"),
        ({"draws": "2"}, "draws is '2'; it must be a whole number"),
        ({"seed": None}, "seed is None; it must be a whole number"),
        ({"seed": -1}, "seed is -1; it must be 0 or more"),
        ({"qrels": {"q1": {"d": 1}}}, "judgements: a dict is not a DataFrame"),
        ({"qrels": pd.DataFrame({"qid": ["q1"] * 3, "docno": ["a", "b", "b"], "label": [1, 0, 1]})}, "judgements.*docno='b'"),
        ({"baseline": "DPH"}, "baseline 'DPH' is not one of the systems; use one of BM25"),
        ({"split": "dl99"}, "dl99"),
        ({"qrels": pd.DataFrame({"qid": ["x"], "docno": ["d"], "label": [1]})}, "no qid is in both"),
        ({"qrels": pd.DataFrame({"qid": ["q1"], "docno": ["d"]})}, "judgements: column 'label' is missing"),
        ({"topics": pd.DataFrame({"qid": ["q1"]})}, "topics: column 'query' is missing"),
        ({"topics": pd.DataFrame({"qid": ["q1"], "title": ["a"]})}, r"the columns are qid, title; rename .*\{'title': 'query'\}"),
        ({"topics": pd.DataFrame({"qid": ["q1", "q1"], "query": ["a", "b"]})}, "qid 'q1' occurs twice"),
        ({"topics": pd.DataFrame({"qid": ["q1"], "query": [None]})}, "column 'query' has no value at row 0"),
    ],
)
def test_bad_settings_are_refused_before_anything_runs(dataset, options, message):
    ranker = toy.CountingRanker()
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    with pytest.raises(InputError, match=message):
        audit({"BM25": first >> dataset.text_loader() >> ranker}, dataset, **{"biases": [ORDER], **options})
    assert ranker.calls == 0


@pytest.mark.parametrize(
    ("systems", "message"),
    [
        ({}, "there are no systems"),
        ({"a": 3}, "system 'a' is an int"),
        ([toy.bm25_system(), toy.bm25_system()], "two systems are named 'BM25'"),
        ({" ": toy.bm25_system()}, "a system has an empty name"),
        ({"a": pd.DataFrame({"qid": [], "docno": [], "score": []})}, "run 'a' is empty"),
        ({"a": pd.DataFrame({"qid": ["q1"], "docno": ["d"]})}, "column 'score' is missing"),
        ({"a": pd.DataFrame({"qid": ["q1"], "docno": ["d"], "score": [float("nan")]})}, "NaN"),
        ({"a": pd.DataFrame({"qid": ["q1"] * 2, "docno": ["d"] * 2, "score": [1.0, 2.0]})}, "more than once"),
    ],
)
def test_bad_systems_are_refused(dataset, systems, message):
    with pytest.raises(InputError, match=message):
        audit(systems, dataset, biases=[ORDER])


def test_where_nothing_can_be_examined_the_collection_is_named_and_each_reason_told_once(dataset):
    run = dataset.get_runs()["bm25"]
    others = dict.fromkeys(("a", "b"), run.assign(qid="other"))
    with pytest.raises(InputError) as caught:
        audit(others, dataset, biases=[ORDER, PICKY, Made("again", ORDER.examine)])
    told = str(caught.value)
    assert "for any of the systems on the collection toy (order, again: run 'a': none of its qids" in told
    assert "; picky: it has no ranker to probe)" in told and told.count("run 'a'") == told.count("run 'b'") == 1
    with pytest.raises(InputError, match=r"the planted collection \(dataset='planted', the default; order: run 'mine'"):
        audit({"mine": run}, biases=[ORDER])


def test_judgements_of_other_documents_are_noted(dataset):
    other = dataset.get_qrels().assign(docno="other")
    result = audit(toy.systems(dataset), dataset, biases=[ORDER], qrels=other)
    (note,) = result.settings["notes"]
    assert note.startswith("No judged docno (e.g. 'other') is among the results of any system (e.g. 'q0-good')")
    assert audit(toy.systems(dataset), dataset, biases=[ORDER]).settings["notes"] == []


def test_the_split_is_named_where_there_are_several(dataset):
    topics, qrels = dataset.get_topics(), dataset.get_qrels()
    later = {"dl20": topics, "full": topics}
    several = Collection(
        "toy", corpus=dataset.get_corpus(), topics={"dl19": topics, **later}, qrels={"dl19": qrels, "dl20": qrels},
        runs=dataset.get_runs(),
    )  # fmt: skip

    def split_of(**options):
        return audit(toy.bm25_system(dataset), biases=[PICKY_FREE], **options).settings["split"]

    assert split_of(dataset=several) == "dl19" and split_of(dataset=several, split="dl20") == "dl20"
    assert split_of(dataset=dataset) is None and split_of(dataset=several, topics=2) == "dl19"
    assert split_of(dataset=several, topics=topics) is None and split_of(dataset=several, qrels=qrels) is None


def test_topics_can_be_limited_to_the_first_that_are_judged(dataset):
    seen = []

    def run(context):
        seen.append((context.topics["qid"].tolist(), context.depth, context.seed, context.draws))
        return [Finding("BM25", "made", "m", "g", 0.0)]

    bias = Made("made", run)
    qrels = dataset.get_qrels().query("qid != 'q0'")
    audit(toy.bm25_system(dataset), dataset, biases=[bias], topics=2, qrels=qrels, depth=7, seed=3, draws=2)
    assert seen == [(["q1", "q2"], 7, 3, 2)]


def test_numbers_may_be_numpys_and_the_result_is_still_json(dataset):
    numbers = {"topics": np.int64(2), "depth": np.int32(7), "seed": np.uint8(3), "draws": np.int64(2)}
    options = {"dataset": dataset, "biases": [ORDER]}
    result = audit(toy.bm25_system(dataset), **options, **numbers)
    assert result.settings["topics"] == 2 and set(result.queries) == {"q0", "q1"}
    plain = audit(toy.bm25_system(dataset), **options, **{name: int(number) for name, number in numbers.items()})
    told = [json.loads(one.to_json())["settings"] for one in (result, plain)]
    assert [{name: one[name] for name in numbers} for one in told] == [{"topics": 2, "depth": 7, "seed": 3, "draws": 2}] * 2


def test_the_judgements_are_known_by_their_content(dataset):
    qrels = dataset.get_qrels()

    def known(judgements):
        return audit(toy.bm25_system(dataset), dataset, biases=[PICKY_FREE], qrels=judgements).settings["judgements"]

    assert known(qrels) == known(qrels.iloc[::-1].astype({"label": float})) != known(qrels.assign(label=2))
    older = audit(toy.bm25_system(dataset), dataset, biases=[PICKY_FREE])
    del older.settings["judgements"], older.settings["judged_qids"]
    text = older.to_json()
    schema = (run.Path(run.__file__).parent / "result.schema.json").read_text()
    jsonschema.validate(json.loads(text), json.loads(schema))
    assert AuditResult.from_json(text).to_json() == text


def test_the_judged_topics_are_known_by_their_qids(dataset):
    topics = dataset.get_topics()

    def known(asked, qrels=None):
        return audit(toy.bm25_system(dataset), dataset, biases=[PICKY_FREE], topics=asked, qrels=qrels).settings["judged_qids"]

    assert known(topics[:3]) == known(topics[2::-1]) == known(topics, dataset.get_qrels()[:3]) != known(topics[1:4])


def test_judgements_that_say_the_same_twice_count_once(dataset):
    qrels = dataset.get_qrels()
    twice = audit(toy.bm25_system(dataset), dataset, biases=[ORDER], qrels=pd.concat([qrels, qrels]))
    pd.testing.assert_frame_equal(twice.findings, audit(toy.bm25_system(dataset), dataset, biases=[ORDER]).findings)
    seen = []
    bias = Made("made", lambda context: seen.append(context.qrels) or _count(context))
    audit(toy.bm25_system(dataset), dataset, biases=[bias], qrels=pd.concat([qrels, qrels]))
    assert len(seen[0]) == len(qrels)


def test_identifiers_that_are_numbers_join(dataset):
    number = {qid: i for i, qid in enumerate(QIDS)}
    topics = dataset.get_topics().assign(qid=[number[q] for q in QIDS])
    qrels = dataset.get_qrels().assign(qid=[number[q] for q in QIDS])
    frame = dataset.get_runs()["bm25"]
    frame = frame.assign(qid=frame["qid"].map(number))
    result = audit({"BM25": frame}, dataset, biases=[PICKY_FREE], topics=topics, qrels=qrels)
    assert result.findings["value"].tolist() == [6.0]


def _count(context):
    return [Finding(s.name, "count", "queries", "all", float(context.results(s)["qid"].nunique())) for s in context.systems]


PICKY_FREE = Made("count", _count)


def test_json_round_trips_and_fits_its_schema(result):
    text = result.to_json()
    schema = (run.Path(run.__file__).parent / "result.schema.json").read_text()
    jsonschema.validate(json.loads(text), json.loads(schema))
    back = AuditResult.from_json(text)
    for name in ("findings", "per_query", "skipped", "failed"):
        pd.testing.assert_frame_equal(getattr(back, name), getattr(result, name), check_dtype=False)
    assert back.findings["value"].dtype == "float64" and back.findings["primary"].dtype == bool
    assert back.settings == result.settings
    assert back.to_json() == text
    assert str(back) == str(result)


def test_json_has_a_line_for_each_row_and_what_was_indented_is_read(result):
    result.per_query.loc[0, "value"] = np.inf
    text = result.to_json()
    content = json.loads(text)
    tables = [name for name, value in content.items() if isinstance(value, list)]
    lines = {line.strip().rstrip(",") for line in text.splitlines()}
    assert {"verdict", "findings", "per_query", "skipped", "failed", "attributions"} == set(tables)
    for name in tables:
        assert lines.issuperset(json.dumps(row, ensure_ascii=False) for row in content[name])
    assert content["per_query"][0]["value"] is None and content["per_query"][1]["value"] == 1.0
    # As files were written before.
    assert AuditResult.from_json(json.dumps(content, indent=1)).to_json() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not an audit in JSON"),
        ("[]", "is not an audit"),
        ('{"schema": "other"}', "is not an audit"),
        ('{"schema": "pyterrier_debias.audit", "schema_version": 99}', "schema version 99"),
        ('{"schema": "pyterrier_debias.audit", "schema_version": 2}', "lacks 'settings'"),
    ],
)
def test_other_json_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        AuditResult.from_json(text)


def test_a_path_is_no_json_and_load_reads_it(result, tmp_path):
    folder = result.save(tmp_path / "audit")
    for path in (folder, str(folder), folder / "audit.json"):
        assert AuditResult.load(path).to_json() == result.to_json()
        with pytest.raises(InputError, match=r"not an audit in JSON.*AuditResult\.load reads a file or folder"):
            AuditResult.from_json(path)
    with pytest.raises(InputError, match="nowhere cannot be read"):
        AuditResult.load(tmp_path / "nowhere")
    # The tables are for people: a changed one is not read.
    (folder / "per_query.csv").write_text("mine")
    assert AuditResult.load(folder).to_json() == result.to_json()


@pytest.mark.parametrize("name", ["report.html", "audit.JSON", "findings.csv"])
def test_a_folder_is_not_named_as_a_file(result, tmp_path, name):
    with pytest.raises(InputError, match=rf"{name} looks like a file name, but an audit is saved as a folder; name a folder"):
        result.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("part", "content"),
    [
        ("findings", 5), ("findings", [{"system": "a"}]), ("skipped", 3), ("per_query", [{"value": "high"}]), ("settings", {}),
        ("settings", None), ("queries", 7),
    ],
)  # fmt: skip
def test_damaged_json_is_refused(result, part, content):
    damaged = {**json.loads(result.to_json()), part: content}
    with pytest.raises(InputError, match="this audit is damaged: its content does not match its checksum"):
        AuditResult.from_json(json.dumps(damaged))
    del damaged["blake2b"]  # as of an older version
    with pytest.raises(InputError, match="the file is damaged: run the audit again"):
        AuditResult.from_json(json.dumps(damaged))


def test_saved_files_hold_the_audit(result, tmp_path):
    folder = result.save(tmp_path / "new" / "folder")
    assert sorted(f.name for f in folder.iterdir()) == [
        MANIFEST, "audit.json", "findings.csv", "index.html", "order-change.png", "per_query.csv", "picky-change.png",
    ]  # fmt: skip
    pd.testing.assert_frame_equal(
        pd.read_csv(folder / "findings.csv", keep_default_na=True)[["system", "value", "p_corrected"]],
        result.findings[["system", "value", "p_corrected"]],
        check_dtype=False,
    )
    assert len(pd.read_csv(folder / "per_query.csv")) == len(result.per_query)
    assert AuditResult.from_json((folder / "audit.json").read_text()).to_json() == result.to_json()
    assert (folder / "order-change.png").read_bytes().startswith(b"\x89PNG")


def test_save_replaces_an_audit_only_when_asked_and_nothing_else_ever(result, tmp_path):
    result.save(tmp_path / "a")
    with pytest.raises(InputError, match="exists already and holds an audit"):
        result.save(tmp_path / "a")
    result.save(tmp_path / "a", overwrite=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="holds files that pyterrier_debias did not write"):
        result.save(tmp_path / "b", overwrite=True)
    assert [f.name for f in (tmp_path / "b").iterdir()] == ["thesis.tex"]
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a", "b"]


def test_a_result_that_was_read_does_not_replace_figures(result, tmp_path):
    folder = result.save(tmp_path / "a")
    loaded = AuditResult.load(folder)
    for read in (loaded, *(pickle.loads(pickle.dumps(one)) for one in (result, loaded))):
        with pytest.raises(InputError, match=r"holds an audit with figures \(order-change.png\), but this result has none"):
            read.save(folder, overwrite=True)
        assert len(list(folder.glob("*.png"))) == 2
    read.save(tmp_path / "b")
    read.save(tmp_path / "b", overwrite=True)  # an audit without figures
    result.save(folder, overwrite=True)
    replace(result, figures=()).save(folder, overwrite=True)  # a new audit that has none
    assert not list(folder.glob("*.png"))


def test_overwriting_replaces_the_audits_own_files_and_no_others(result, tmp_path):
    folder = result.save(tmp_path / "a")
    for name in ("notes.txt", "order-stale.png", "cat.png"):
        (folder / name).write_text("mine")
    result.save(folder, overwrite=True)
    assert sorted(f.name for f in folder.iterdir()) == [
        MANIFEST, "audit.json", "cat.png", "findings.csv", "index.html", "notes.txt", "order-change.png", "order-stale.png",
        "per_query.csv", "picky-change.png",
    ]  # fmt: skip
    assert {(folder / name).read_text() for name in ("notes.txt", "order-stale.png", "cat.png")} == {"mine"}


def test_a_file_that_is_called_like_an_audits_is_not_taken_for_one(result, tmp_path):
    """Neither another program's audit.json, nor one of ours that was edited."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "audit.json").write_text(result.to_json())
    (tmp_path / "a" / "order-change.png").write_text("mine")
    with pytest.raises(InputError, match="holds files that pyterrier_debias did not write"):
        result.save(tmp_path / "a", overwrite=True)
    assert (tmp_path / "a" / "order-change.png").read_text() == "mine"
    folder = result.save(tmp_path / "b")
    (folder / "findings.csv").write_text("my notes")
    with pytest.raises(InputError, match=r"holds findings.csv, which has changed since"):
        result.save(folder, overwrite=True)
    assert (folder / "findings.csv").read_text() == "my notes"
    with pytest.raises(InputError, match=r"findings.csv exists already"):
        result.write_files(folder)


def test_figures_of_an_earlier_audit_go(result, tmp_path):
    folder = result.save(tmp_path / "a")
    result.figures = result.figures[:1]
    result.save(folder, overwrite=True)
    assert [f.name for f in folder.glob("*.png")] == ["order-change.png"]


def test_the_current_folder_may_be_filled(result, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for overwrite in (False, True):
        assert result.save(".", overwrite=overwrite).joinpath("index.html").is_file()
    assert len(entries(tmp_path)) == len(list(tmp_path.iterdir())) == 7


def test_a_save_that_breaks_leaves_nothing(result, tmp_path, monkeypatch):
    def broken(axes):
        raise RuntimeError("no ink")

    figure = type(result.figures[0][1])("broken", "a figure", broken)
    result.figures = (("order", figure),)
    with pytest.raises(RuntimeError, match="no ink"):
        result.save(tmp_path / "a")
    assert list(tmp_path.iterdir()) == []


def test_representations(result):
    assert repr(result) == "<AuditResult of toy: 2 systems, 7 findings, 1 skipped, 1 failed>"
    assert "srcdoc=" in result._repr_html_() and "<script>" not in result._repr_html_()


def test_the_audit_is_a_function_whatever_is_imported_first():
    code = (
        "from pyterrier_debias.report.models import find_model\n"
        "from pyterrier_debias import audit\n"
        "assert callable(audit)\n"
        "try: audit(biases='astrology')\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "bias 'astrology' is not known" in done.stdout


def test_notes_of_systems_are_kept_once(dataset):
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    systems = [System("a", first, note="BM25 is a run."), System("b", first, note="BM25 is a run."), System("c", first)]
    assert audit(systems, dataset, biases=[ORDER]).settings["notes"] == ["BM25 is a run."]


def test_fewer_candidates_than_figures_look_at_are_noted(dataset):
    systems = toy.systems(dataset)
    (note,) = audit(systems, dataset, biases=[ORDER], depth=8).settings["notes"]
    assert note == "Rankers are given only 8 candidates per query, so their figures @10 cover only 8 documents."
    assert not audit(systems, dataset, biases=[ORDER], depth=10).settings["notes"]


def test_topics_whose_queries_are_called_text_are_asked(dataset):
    """As PyTerrier's topics of beir/nfcorpus are."""
    topics = dataset.get_topics()[["qid", "query"]]
    named = topics.rename(columns={"query": "text"}).assign(url="https://example.org")
    found, _ = run.topics_and_qrels(dataset, named)
    assert found[["qid", "query", "url"]].equals(topics.assign(url="https://example.org"))


def test_a_foreign_dataset_whose_queries_are_called_text_is_opened(dataset):
    class Foreign:
        """The methods of a dataset, with PyTerrier's names."""

        def __getattr__(self, name):
            return getattr(dataset, name)

        def get_topics(self, variant=None):
            return dataset.get_topics()[["qid", "query"]].rename(columns={"query": "text"})

        get_corpus_iter, text_loader, get_qrels = dataset.get_corpus_iter, dataset.text_loader, dataset.get_qrels

    opened = open_dataset(Foreign())
    assert opened.get_topics()["query"].tolist() == dataset.get_topics()["query"].tolist()
    assert opened.get_qrels().equals(dataset.get_qrels())


def test_what_must_be_said_of_queries_is_in_the_notes(dataset):
    ranking = dataset.get_runs()["bm25"]
    failing = dataset.get_topics()["qid"].iloc[1]

    def search(topics):
        if topics["qid"].eq(failing).any():
            raise ValueError("Index must have 1 or more fields.")
        return topics.merge(ranking, on="qid")

    mine = pt.apply.generic(search) >> dataset.text_loader() >> toy.CountingRanker()
    result = audit({"mine": mine}, dataset, biases=[ORDER])
    (note,) = result.settings["notes"]
    assert note.startswith("mine: it raised (ValueError: Index must have 1 or more fields) for 1 of ") and failing in note
    assert result.failed.empty and len(result.findings)


def test_texts_that_an_index_cut_are_noted(dataset):
    first, ranker = pt.Transformer.from_df(dataset.get_runs()["bm25"]), toy.CountingRanker()
    stored = TextLoader(dataset.corpus.assign(text=dataset.corpus["text"].str[:12]))
    systems = {"whole": first >> dataset.text_loader() >> ranker, "cut": first >> stored >> ranker}
    [note] = audit(systems, dataset, biases=[ORDER]).settings["notes"]
    assert note.startswith("cut: 12 of 12 texts that it reads seem to be truncated; ")
    assert note.endswith("meta={'docno': 40, 'text': 20000} or more stores whole texts.")


def test_an_index_is_no_system(dataset):
    class ToyIndex(pt.Indexer):
        def index(self, iter):
            return self

    with pytest.raises(InputError, match=r"system 'mine' is an index \(ToyIndex\), not a retriever; give e.g. index.bm25\(\)"):
        audit({"mine": ToyIndex()}, dataset, biases=[ORDER])


def test_indexes_of_an_audit_go_to_its_own_folder(dataset, tmp_path, monkeypatch):
    """Whatever is made there is gone when the audit has ended, also when it was broken off."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = []

    class Indexer:
        folder = None

        def within(self, folder):
            changed = Indexer()
            changed.folder = folder
            return changed

        def __call__(self, documents):
            made.append(Path(tempfile.mkdtemp(dir=self.folder)))
            raise KeyboardInterrupt

    system = replace(toy.bm25_system(dataset), indexer=Indexer())
    bias = Made("again", lambda context: context.systems[0].indexer([]))
    with pytest.raises(KeyboardInterrupt):
        audit(system, dataset, biases=[bias])
    assert made and made[0].parent.parent.parent == tmp_path
    assert not list(tmp_path.iterdir())


def test_versions_of_the_packages_that_tag_and_count_words_are_told(dataset):
    versions = audit({"BM25": toy.bm25_system(dataset)}, dataset, biases=[ORDER]).settings["versions"]
    for package in ("textblob", "nltk", "spacy", "lemminflect", "wordfreq"):
        if importlib.util.find_spec(package) is not None:
            assert versions[package] == metadata.version(package)


def test_versions_of_terrier_are_told_where_it_was_started(dataset, monkeypatch):
    systems = {"BM25": toy.bm25_system(dataset)}
    if not pt.java.started():
        assert "terrier" not in audit(systems, dataset, biases=[ORDER]).settings["versions"]
        assert not pt.java.started()
    java = SimpleNamespace(getProperty={"java.version": "17.0.1"}.get)
    monkeypatch.setattr(pt.java, "started", lambda: True)
    monkeypatch.setattr(pt.java, "autoclass", {"java.lang.System": java}.get)
    monkeypatch.setattr(pt.terrier, "version", lambda: "5.11")
    versions = audit(systems, dataset, biases=[ORDER]).settings["versions"]
    assert (versions["terrier"], versions["java"]) == ("5.11", "17.0.1")
