import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import Collection, InputError, System, WordList, audit
from pyterrier_debias.core.bias import Bias, Finding, Parts, parts_of, per_query_frame
from pyterrier_debias.core.kept_scores import KeptScores
from pyterrier_debias.core.plots import new_axes, rendered
from pyterrier_debias.core.systems import Context
from pyterrier_debias.report import checkpoint
from pyterrier_debias.report.checkpoint import Checkpoint, DrawnFigure, Kept, _describe, _same_scores, fingerprint
from pyterrier_debias.report.first_stage import PisaIndexer
from tests.biases import Made
from tests.report import toy
from tests.report.toy import ORDER, PICKY


@pytest.fixture
def dataset():
    return toy.collection()


class Counted(Bias):
    """A bias that counts how often it is examined, and fails for as long as it is told to."""

    def __init__(self, bias, broken=False):
        self.bias, self.name, self.broken, self.runs = bias, bias.name, broken, 0

    def cache_key(self):
        return {}

    def needs(self, system, dataset):
        return self.bias.needs(system, dataset)

    def examine(self, context):
        self.runs += 1
        if self.broken:
            raise RuntimeError("out of memory")
        yield from self.bias.examine(context)

    def figures(self, context):
        return self.bias.figures(context)


def test_a_finished_audit_is_read_again_and_is_the_same(dataset, tmp_path):
    whole = audit(toy.systems(dataset), dataset, biases=[ORDER, PICKY], baseline="BM25")
    biases = [Counted(ORDER), Counted(PICKY)]
    options = {"biases": biases, "baseline": "BM25", "checkpoint": tmp_path / "kept"}
    first = audit(toy.systems(dataset), dataset, **options)
    again = audit(toy.systems(dataset), dataset, **options)
    assert [r.runs for r in biases] == [1, 1]
    for name in ("findings", "per_query", "skipped", "failed"):
        for result in (first, again):
            pd.testing.assert_frame_equal(getattr(result, name), getattr(whole, name))
    # Figures are drawn once; pages differ in nothing but the time.
    again.settings = first.settings = whole.settings
    assert first.to_html() == again.to_html() == whole.to_html()
    assert again.save(tmp_path / "saved").joinpath("order-change.png").read_bytes().startswith(b"\x89PNG")


def test_queries_that_a_ranker_left_out_are_told_when_it_does_not_run_again(dataset, tmp_path):
    first = toy.systems(dataset)["BM25"] >> dataset.text_loader()
    picky = pt.apply.generic(lambda frame: toy.CountingRanker()(frame).query(f"qid != {toy.QIDS[0]!r}"))
    options = {"biases": [Counted(ORDER)], "checkpoint": tmp_path / "kept"}
    told = [audit(System("picky", first, picky), dataset, **options).settings["notes"] for _ in range(3)]
    assert options["biases"][0].runs == 1 and told[0] == told[1] == told[2]
    assert any(note.startswith("picky: its ranker returned no document for 1 of") for note in told[0])


def test_judged_queries_without_results_are_a_finding_if_they_are_many(dataset, tmp_path):
    first = toy.systems(dataset)["BM25"] >> dataset.text_loader()

    def unanswered(name, without, **options):
        picky = pt.apply.generic(lambda frame: toy.CountingRanker()(frame)[lambda found: ~found["qid"].isin(without)])
        result = audit(System(name, first, picky), dataset, biases=[ORDER], **options)
        return result.findings[result.findings["bias"] == "unanswered"]

    options = {"checkpoint": tmp_path / "kept"}
    told = [unanswered("picky", toy.QIDS[: len(toy.QIDS) // 2], **options) for _ in range(2)]  # the second reads it
    for rows in told:
        (row,) = rows.to_dict("records")
        assert (row["system"], row["value"], row["n"]) == ("picky", 0.5, len(toy.QIDS))
        assert row["text"].startswith("picky: 3 of 6 judged queries have no results; they count as 0 whatever the bias")
    assert unanswered("whole", []).empty


def test_a_system_that_can_be_examined_now_is(dataset, tmp_path):
    def needs(system, dataset):
        return None if system.ranker or system.indexer else "it has no indexer"

    options = {"biases": [Made("order", ORDER.examine, needs)], "checkpoint": tmp_path / "kept"}
    before = audit(toy.systems(dataset), dataset, **options)
    assert set(before.findings["system"]) == {"longest"} and before.skipped["system"].tolist() == ["BM25"]
    systems = toy.systems(dataset)
    after = audit({**systems, "BM25": System("BM25", systems["BM25"], indexer=lambda documents: None)}, dataset, **options)
    assert set(after.findings["system"]) == {"BM25", "longest"} and after.skipped.empty


def test_biases_that_broke_off_run_again_and_finished_ones_do_not(dataset, tmp_path):
    good, bad = Counted(ORDER), Counted(PICKY, broken=True)
    options = {"biases": [good, bad], "checkpoint": tmp_path / "kept"}
    result = audit(toy.systems(dataset), dataset, **options)
    assert result.failed["bias"].tolist() == ["picky"] and set(result.findings["bias"]) == {"order"}
    bad.broken = False
    result = audit(toy.systems(dataset), dataset, **options)
    assert result.failed.empty and set(result.findings["bias"]) == {"order", "picky"}
    assert (good.runs, bad.runs) == (1, 2)


def test_an_interruption_keeps_what_had_finished(dataset, tmp_path):
    class Impatient(Counted):
        def examine(self, context):
            raise KeyboardInterrupt

    good = Counted(ORDER)
    with pytest.raises(KeyboardInterrupt):
        biases = [good, Impatient(PICKY)]
        audit(toy.systems(dataset), dataset, biases=biases, checkpoint=tmp_path / "kept")
    audit(toy.systems(dataset), dataset, biases=[good, PICKY], checkpoint=tmp_path / "kept")
    assert good.runs == 1


def test_results_that_cannot_be_written_do_not_end_the_audit(dataset, tmp_path, monkeypatch, caplog):
    def full(path, content, **options):
        raise InputError(f"{path} cannot be written: No space left on device")

    whole = audit(toy.systems(dataset), dataset, biases=[ORDER, PICKY])
    biases = [Counted(ORDER), Counted(PICKY)]
    options = {"biases": biases, "checkpoint": tmp_path / "kept"}
    write = checkpoint.write_whole
    monkeypatch.setattr(checkpoint, "write_whole", lambda p, c, **o: (full if p.name.startswith("bias-") else write)(p, c, **o))
    result = audit(toy.systems(dataset), dataset, **options)
    pd.testing.assert_frame_equal(result.findings, whole.findings)
    assert [bias.runs for bias in biases] == [1, 1]
    [told] = [record.message for record in caplog.records if "cannot be written" in record.message]
    assert "No space left on device; the audit goes on" in told
    monkeypatch.undo()  # the next call stores them
    for _ in range(2):
        pd.testing.assert_frame_equal(audit(toy.systems(dataset), dataset, **options).findings, whole.findings)
    assert [bias.runs for bias in biases] == [2, 2]


def test_biases_may_be_added_and_correction_changed(dataset, tmp_path):
    audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    options = {"biases": [ORDER, PICKY], "checkpoint": tmp_path / "kept", "correction": "bonferroni", "baseline": "BM25"}
    assert set(audit(toy.systems(dataset), dataset, **options).findings["bias"]) == {"order", "picky"}


def test_topics_in_another_order_go_on(dataset, tmp_path):
    turned, qrels, runs = dataset.get_topics().iloc[::-1], dataset.get_qrels(), dataset.get_runs()
    again = Collection(dataset.name, corpus=dataset.corpus, topics={"test": turned}, qrels={"test": qrels}, runs=runs)
    counted, ranker = Counted(ORDER), pt.apply.doc_score(lambda row: float(row["qid"][1:]) + len(row["text"]))
    for given in (dataset, again):
        systems = {"mine": pt.Transformer.from_df(given.get_runs()["bm25"]) >> given.text_loader() >> ranker}
        audit(systems, given, biases=[counted], checkpoint=tmp_path / "kept")
    assert counted.runs == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": 1}, "seed is 0 in the folder and 1 now"),
        ({"depth": 7}, "depth is 100 in the folder and 7 now"),
        ({"draws": 2}, "draws is None in the folder and 2 now"),
        ({"topics": 3}, "the topics differ"),
        ({"qrels": toy.collection().get_qrels().assign(label=2)}, "the judgements differ"),
    ],
)
def test_other_settings_are_refused(dataset, tmp_path, options, message):
    audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "kept")
    before = {f.name: f.read_bytes() for f in (tmp_path / "kept").iterdir()}
    with pytest.raises(InputError, match=message):
        audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "kept", **options)
    assert {f.name: f.read_bytes() for f in (tmp_path / "kept").iterdir()} == before


def test_other_systems_are_refused(dataset, tmp_path):
    first, texts = pt.Transformer.from_df(dataset.get_runs()["bm25"]), dataset.text_loader()
    ranker = toy.CountingRanker

    def go(systems):
        audit(systems, dataset, biases=[ORDER], checkpoint=tmp_path / "kept")

    go({"a": first >> texts >> ranker()})
    go({"a": first >> texts >> ranker()})
    with pytest.raises(InputError, match="the systems are a in the folder and b now"):
        go({"b": first >> texts >> ranker()})
    with pytest.raises(InputError, match="has different stages"):
        go({"a": first >> texts})
    # The same class and the same name: only its scores give it away.
    with pytest.raises(InputError, match="gives different scores, as with different weights"):
        go({"a": first >> texts >> ranker(sign=-1)})
    fewer = pt.Transformer.from_df(dataset.get_runs()["bm25"].query("rank == 0"))
    with pytest.raises(InputError, match="retrieves different documents"):
        go({"a": fewer >> texts >> ranker()})


def changed(dataset, **parts):
    """The same collection under the same name, with some parts replaced."""
    own = {
        "corpus": dataset.corpus, "topics": dataset.topics, "qrels": dataset.qrels, "runs": dataset.runs,
        "candidates": CANDIDATES, "answers": ANSWERS,
    }  # fmt: skip
    return Collection(dataset.name, **{**own, **parts})


CANDIDATES = pd.DataFrame({"qid": ["q0"], "docno": ["q0-good"], "score": [1.0], "rank": [0]})
ANSWERS = pd.DataFrame({"qid": ["q0"], "docno": ["q0-good"], "answer": ["text"], "start": [5], "end": [9]})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda d: {"corpus": d.corpus.assign(text=[*d.corpus["text"][:-1], "new"])}, "the collections differ in corpus"),
        (lambda d: {"answers": ANSWERS.assign(start=6)}, "the collections differ in answers"),
        (lambda d: {"answers": None}, "the collections differ in answers"),
        (lambda d: {"candidates": CANDIDATES.assign(docno="q0-bad")}, "the collections differ in candidates"),
        (lambda d: {"qrels": {**d.qrels, "full": d.qrels["test"].assign(label=2)}}, "the collections differ in full judgements"),
        (lambda d: {"runs": {**d.runs, "other": CANDIDATES}}, "the collections differ in runs"),
        (lambda d: {"topics": {**d.topics, "full": d.topics["test"].assign(type="x")}}, "the collections differ in full topics"),
    ],
)
def test_another_collection_of_the_same_name_is_refused(dataset, tmp_path, part, message):
    whole = changed(dataset)
    other = changed(dataset, **part(dataset))
    for number, systems in enumerate((toy.systems, lambda d: {"BM25": toy.systems(d)["BM25"]})):
        claim(tmp_path / f"{number}", systems(whole), whole)
        claim(tmp_path / f"{number}", systems(changed(toy.collection())), changed(toy.collection()))
        with pytest.raises(InputError, match=message):
            claim(tmp_path / f"{number}", systems(other), other)


def test_other_rewritten_texts_of_a_collection_are_refused(tmp_path):
    """Where the bias gets them from the collection, its options do not tell them."""

    class Rewritten(Collection):
        def get_counterparts(self):
            return self.corpus[["docno"]].assign(text=self.corpus["text"] + self.end)

    def audited(end):
        plain = toy.collection()
        there = Rewritten(plain.name, corpus=plain.corpus, topics=plain.topics, qrels=plain.qrels, runs=plain.runs)
        there.end = end
        claim(tmp_path / "kept", toy.systems(there), there)

    audited(" too.")
    audited(" too.")
    with pytest.raises(InputError, match="the collections differ in counterparts"):
        audited(" also.")


def test_a_dataset_of_another_kind_is_known_by_the_texts_of_what_is_retrieved(dataset, tmp_path):
    class Duck:
        def __init__(self, inner):
            self.name = "duck"
            for method in ("get_corpus_iter", "get_topics", "get_qrels", "text_loader"):
                setattr(self, method, getattr(inner, method))

    for number, systems in enumerate((toy.systems, lambda d: {"BM25": toy.systems(d)["BM25"]})):
        claim(tmp_path / f"{number}", systems(dataset), Duck(dataset))
        claim(tmp_path / f"{number}", systems(dataset), Duck(toy.collection()))
        other = changed(dataset, corpus=dataset.corpus.assign(text=[*dataset.corpus["text"][:-1], "new"]))
        with pytest.raises(InputError, match=r"has different texts for its candidates|different stages: .*TextLoader"):
            claim(tmp_path / f"{number}", systems(other), Duck(other))


def claim(folder, systems, dataset):
    """What an audit does before its biases run."""
    made = [System.of(name, pipeline) for name, pipeline in systems.items()]
    context = Context(made, dataset, dataset.get_topics(), dataset.get_qrels())
    Checkpoint(folder).claim(fingerprint(context, dataset=dataset.name, split=None))


def test_systems_that_differ_only_in_later_queries_or_a_cut_off_are_refused(dataset, tmp_path):
    run = dataset.get_runs()["bm25"]
    last = run["qid"] == "q5"
    texts, ranker = dataset.text_loader(), toy.CountingRanker()

    def go(candidates, *more):
        system = pt.Transformer.from_df(candidates) >> texts >> ranker
        for stage in more:
            system = system >> stage
        claim(tmp_path / "kept", {"a": system}, dataset)

    go(run, pt.RankCutoff(10))
    go(run, pt.RankCutoff(10))
    with pytest.raises(InputError, match=r"has different stages: .*RankCutoff\(10\).* in the folder, .*RankCutoff\(50\).* now"):
        go(run, pt.RankCutoff(50))
    with pytest.raises(InputError, match="retrieves different documents"):
        go(run.assign(score=run["score"].mask(last, -run["score"])), pt.RankCutoff(10))
    with pytest.raises(InputError, match=r"has different stages: .*RankCutoff\(10\).* in the folder, nothing now"):
        go(run)


class Long(pt.Transformer):
    """A stage whose description is as long as that of a retriever of Terrier."""

    def __init__(self, b=0.75, index="/home/me/an-index", more=(), end=""):
        self.b, self.index, self.more, self.end = b, index, more, end

    def __repr__(self):
        controls = {"terrierql": "on", "wmodel": "BM25", "bm25.k_1": 1.2, "bm25.b": self.b, "end": "999", **dict(self.more)}
        properties = {f"querying.{name}": "some long value of no interest here" for name in "abcdefghij"}
        return f"TerrierRetr({self.index},{controls},{properties}){self.end}"

    def transform(self, inp):
        return inp


@pytest.mark.parametrize(
    ("was", "now", "told"),
    [
        (Long(b=0.75), Long(b=0.4), "tests.report.test_checkpoint.Long has 'bm25.b': 0.75 in the folder, 'bm25.b': 0.4 now"),
        (Long(), Long(index="/home/me/another"), "has /home/me/an-index in the folder, /home/me/another now"),
        (Long(), Long(more=[("qe", "on")]), "has 'end': '999' in the folder, 'end': '999', 'qe': 'on' now"),
        (Long(b="a" * 500), Long(b="b" * 500), "..."),
        (Long(end=" 0123abcd"), Long(end=" 4567abcd"), "has different options or weights, which its description does not show"),
    ],
)
def test_a_long_stage_is_told_by_what_differs(dataset, tmp_path, was, now, told):
    run = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    claim(tmp_path / "kept", {"a": run >> was}, dataset)
    with pytest.raises(InputError, match="has different stages") as caught:
        claim(tmp_path / "kept", {"a": run >> now}, dataset)
    message = str(caught.value).partition("has different stages: ")[2]
    assert told in message
    assert len(message) < 450


def test_what_changes_from_run_to_run_is_no_part_of_a_stage(tmp_path, monkeypatch):
    pytest.importorskip("pyterrier_pisa")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    documents = [{"docno": "d1", "text": "one text"}, {"docno": "d2", "text": "another text"}]
    make = PisaIndexer(tmp_path, 5)
    one, two = _describe(make(documents)), _describe(make(documents))
    assert one == two != _describe(PisaIndexer(tmp_path, 6)(documents))
    assert _describe(pt.apply.doc_score(lambda row: 1)) == _describe(pt.apply.doc_score(lambda row: 1))
    assert _describe(Lexical("a")) == _describe(Lexical("a")) != _describe(Lexical("b"))
    assert _describe(Lexical({0, 8})) == _describe(Lexical({8, 0})) != _describe(Lexical({0, 9}))  # printed in another order


class Lexical(pt.Transformer):
    """A stage whose text holds an address."""

    def __init__(self, kind):
        self.kind, self.index = kind, object()

    def transform(self, inp):
        return inp

    def __repr__(self):
        return f"Lexical({self.kind}, {self.index})"


RAN = []


def count_words(words, context):
    RAN.append(words)
    return [Finding("BM25", "words", "count", "all", float(len(words.groups["a"])))]


def test_biases_of_one_name_that_look_for_something_else_keep_their_own_results(dataset, tmp_path):
    class Words(Bias):
        name = "words"

        def __init__(self, *words):
            self.words = WordList({"a": words, "b": ["old"]}, "age")

        def examine(self, context):
            return iter(count_words(self.words, context))

    def of(number):
        return Words(*map(str, range(number)))

    def go(one):
        result = audit(toy.bm25_system(dataset), dataset, biases=[one], checkpoint=tmp_path / "kept")
        return result.findings["value"].item()

    RAN.clear()
    assert [go(Words("teen")), go(Words("teen", "young")), go(of(7)), go(of(8))] == [1, 2, 7, 8]
    assert [go(Words("teen")), go(Words("teen", "young")), go(of(8)), go(of(7))] == [1, 2, 8, 7]
    assert len(RAN) == 4


def test_another_process_goes_on(capsysbinary):
    code = """
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from pyterrier_debias.report.checkpoint import Kept, Checkpoint, fingerprint, made_from
from pyterrier_debias.report.first_stage import PisaIndexer
from pyterrier_debias.gender.audit import WordListBias
from pyterrier_debias.core.systems import Context, System
from tests.biases import Made
from tests.report import toy
dataset = toy.collection()
made = [System.of(name, pipeline) for name, pipeline in toy.systems(dataset).items()]
bias = WordListBias({"good": ["good", "fine", "great"], "bad": ["bad", "evil", "poor"]}, "praise")
context = Context(made, dataset, dataset.get_topics(), dataset.get_qrels())
with tempfile.TemporaryDirectory(prefix="pyterrier-debias-") as folder:
    made[0] = replace(made[0], indexer=PisaIndexer(Path(folder)))
    print(json.dumps([fingerprint(context, dataset="toy", split=None), made_from(bias, made)]))
"""
    environment = {**os.environ, "PYTHONHASHSEED": "1"}  # this process has a seed of its own
    there = subprocess.run([sys.executable, "-c", code], check=True, env=environment, capture_output=True).stdout
    exec(code, {})
    assert capsysbinary.readouterr().out == there and b"gender.audit.WordListBias" in there and b"PisaIndexer" in there


def test_a_folder_of_an_earlier_form_is_refused(dataset, tmp_path):
    claim(tmp_path / "kept", toy.systems(dataset), dataset)
    file = tmp_path / "kept" / "checkpoint.json"
    content = json.loads(file.read_text())
    del content["form"], content["blake2b"]
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match="form is None in the folder and 7 now"):
        claim(tmp_path / "kept", toy.systems(dataset), dataset)


def test_folders_that_are_no_checkpoint(dataset, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty and holds no checkpoint"):
        audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "mine")
    with pytest.raises(InputError, match="is a file"):
        Checkpoint(tmp_path / "mine" / "thesis.tex")
    (tmp_path / "mine" / "checkpoint.json").write_text("{")
    with pytest.raises(InputError, match=r"damaged or not a checkpoint .*name another folder"):
        audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "mine")
    (tmp_path / "mine" / "checkpoint.json").write_text('{"step": 500}')
    with pytest.raises(InputError, match="is not empty and holds no checkpoint"):
        audit(toy.systems(dataset), dataset, biases=[ORDER], checkpoint=tmp_path / "mine")


def test_a_file_that_cannot_be_read_makes_its_bias_run_again(dataset, tmp_path):
    bias = Counted(ORDER)
    audit(toy.systems(dataset), dataset, biases=[bias], checkpoint=tmp_path / "kept")
    (file,) = (tmp_path / "kept").glob("bias-order-*.json")
    file.write_text(file.read_text()[:-20])
    audit(toy.systems(dataset), dataset, biases=[bias], checkpoint=tmp_path / "kept")
    assert bias.runs == 2
    json.loads(file.read_text())


def test_results_under_the_name_of_another_bias_are_not_read(dataset, tmp_path, caplog):
    """As after a copy under the wrong name: its findings would stand twice, and those of the other bias nowhere."""
    biases = [ORDER, PICKY]
    first = audit(toy.systems(dataset), dataset, biases=biases, checkpoint=tmp_path / "kept")
    (one,), (other,) = ((tmp_path / "kept").glob(f"bias-{bias.name}-*.json") for bias in biases)
    other.write_text(one.read_text())
    again = audit(toy.systems(dataset), dataset, biases=biases, checkpoint=tmp_path / "kept")
    pd.testing.assert_frame_equal(again.findings, first.findings)
    assert "results of another bias or of other systems" in caplog.text and "picky is examined again" in caplog.text


def test_numbers_survive_exactly(tmp_path):
    values, beside = (pd.Series(own, index=["1", "2"]) for own in ([0.1 + 0.2, np.nan], [1.0, 1 / 3]))
    items = pd.DataFrame({"item": ["x"], "note": "", "qid": "1", "queries": 1, "contribution": [1 / 3]})
    parts = parts_of(1 / 3, Parts("word", items, exact=False))
    more = {"values": values, "beside": {("m", "other"): beside}, "parts": parts}
    finding = Finding("s", "b", "m", "g", 1 / 3, low=-np.inf, n=np.int64(2), primary=np.bool_(True), **more)
    kept = Checkpoint(tmp_path / "kept")
    kept.keep("r", Kept([finding]))
    back = kept.kept("r")
    assert back.findings[0].value == 1 / 3 and back.findings[0].low == -np.inf and np.isnan(back.findings[0].p)
    pd.testing.assert_frame_equal(per_query_frame(back.findings), per_query_frame([finding]))
    pd.testing.assert_frame_equal(back.findings[0].parts, parts)
    assert kept.kept("other") is None


def test_a_drawn_figure_can_be_drawn_onto_axes():
    figure = DrawnFigure.of(ORDER.figures(_context())[0])
    axes = new_axes()
    figure.draw(axes)
    assert len(axes.images) == 1
    assert rendered(axes.figure).startswith(b"\x89PNG")


def _context():
    dataset = toy.collection()
    return Context([toy.bm25_system(dataset)], dataset, dataset.get_topics(), dataset.get_qrels())


@pytest.mark.parametrize(("of_row", "most"), [(1.0, 60), (30.0, 20), (0.01, 780)])
def test_a_call_takes_about_a_minute_however_slow_the_ranker_is(tmp_path, monkeypatch, of_row, most):
    clock, asked = [0.0], []
    monkeypatch.setattr("pyterrier_debias.core.kept_scores.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def ranker(inp):
        asked.append(len(inp))
        clock[0] += of_row * len(inp)
        return inp.assign(score=inp["text"].str.len().astype(float))

    rows = [(f"q{q}", f"d{d}", f"{q} and {d}") for q in range(40) for d in range(20)]
    lists = pd.DataFrame(rows, columns=["qid", "docno", "text"])
    kept = KeptScores(tmp_path, "slow")
    found = kept.ask(ranker, lists)
    kept.write()
    assert asked[0] == 20 and max(asked) == most and sum(asked) == 800  # a list, then as many as fit
    pd.testing.assert_frame_equal(found[["qid", "docno", "text"]], lists)
    again = KeptScores(tmp_path, "slow").ask(ranker, lists)
    pair = ["qid", "docno"]
    assert sum(asked) == 800 and again.set_index(pair)["score"].sort_index().equals(found.set_index(pair)["score"].sort_index())


def test_what_was_scored_before_an_audit_died_is_not_scored_again(dataset, tmp_path, monkeypatch, caplog):
    for name, value in (("_ROWS", 2), ("_SECONDS", -1.0)):  # a file for each query
        monkeypatch.setattr(f"pyterrier_debias.core.kept_scores.{name}", value)
    scored, last = [], [None]

    class Dying(pt.Transformer):
        def transform(self, inp):
            if len(inp) and inp["qid"].iloc[0] == last[0]:
                raise KeyboardInterrupt
            scored.extend(zip(inp["qid"], inp["text"]))
            return inp.assign(score=inp["text"].str.len().astype(float))

    def examined(**options):
        scored.clear()
        first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
        return audit({"mine": first >> dataset.text_loader() >> Dying()}, dataset, biases=[ORDER], **options).findings

    folder = tmp_path / "kept"
    whole = examined()
    last[0] = "q5"
    with pytest.raises(KeyboardInterrupt):
        examined(checkpoint=folder)
    files = sorted(folder.glob("scores-*"))
    assert len(files) == 5
    files[0].write_bytes(b"half of it")
    last[0] = None
    pd.testing.assert_frame_equal(examined(checkpoint=folder), whole)
    # The fingerprint asks for three queries; then the last query, and the one whose file is broken.
    assert len(scored) == 3 * 2 + 2 * 2 and "its scores are computed again" in caplog.text
    assert not list(folder.glob("scores-*")) and list(folder.glob("bias-*"))


@pytest.mark.parametrize(
    ("before", "now", "same"),
    [
        ([1.0, 2.0, -np.inf], [99.0, -5.0, -np.inf], False),
        ([1.0, 2.0, -np.inf], [1.0, 2.0005, -np.inf], True),
        ([1.0, 2.0, -np.inf], [1.0, 2.0, np.inf], False),
        ([1.0, 2.0, -np.inf], [1.0, 2.0, np.nan], False),
        ([1.0, 2.0, -np.inf], [1.0, -np.inf, 2.0], False),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([np.nan, np.nan], [np.nan, np.nan], True),
        ([1.0, 2.0], [1.0], False),
        ([], [], True),
        ([1.0], None, False),
    ],
)
def test_scores_are_the_same_up_to_rounding_of_finite_ones(before, now, same):
    assert _same_scores(before, now) is same


def test_a_system_that_scores_nan_does_not_keep_an_audit_from_going_on(dataset, tmp_path):
    class NotANumber(pt.Transformer):
        def transform(self, inp):
            return inp.assign(score=float("nan"))

    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    systems = {"good": first, "nan": first >> dataset.text_loader() >> NotANumber()}
    bias = Counted(ORDER)
    results = [audit(systems, dataset, biases=[bias], checkpoint=tmp_path / "kept") for _ in range(2)]
    assert bias.runs == 3  # with both systems, with the good one, and with both again
    for result in results:
        assert set(result.findings["system"]) == {"good"} and result.skipped["system"].tolist() == ["nan"]


class Failing(pt.Transformer):
    """A ranker that raises for as long as it is told to."""

    def __init__(self, weight=1.0):
        self.broken, self.weight, self.scored = True, weight, 0

    def __repr__(self):
        return "Failing()"

    def transform(self, inp):
        if self.broken:
            raise RuntimeError("out of memory")
        self.scored += len(inp)
        return pt.model.add_ranks(inp.assign(score=self.weight * inp["text"].str.len()))


def test_a_system_that_failed_and_was_mended_is_examined_with_the_others(dataset, tmp_path):
    first, ranker = pt.Transformer.from_df(dataset.get_runs()["bm25"]), Failing()
    systems = {"good": first, "mended": first >> dataset.text_loader() >> ranker}
    options = {"biases": [ORDER], "checkpoint": tmp_path / "kept"}
    before = audit(systems, dataset, **options)
    assert before.failed["system"].tolist() == ["mended"]
    ranker.broken = False
    after = audit(systems, dataset, **options)
    assert after.failed.empty and set(after.findings["system"]) == {"good", "mended"}
    # Now that it is known how the system scores, another one is found out.
    ranker.weight = -1.0
    with pytest.raises(InputError, match="'mended' gives different scores"):
        audit(systems, dataset, **options)
    ranker.broken = True
    with pytest.raises(InputError, match="system 'mended' worked before and fails now; run it on a few topics"):
        audit(systems, dataset, **options)


def test_what_was_kept_while_nobody_knew_how_a_system_scores_is_not_read_once_it_is_known(dataset, tmp_path):
    """The system raises while the audit says what it audits, and not afterwards: its weights may be others the next time."""

    class FailsOnce(Failing):
        def transform(self, inp):
            try:
                return super().transform(inp)
            finally:
                self.broken = self.broken and not len(inp)  # empty frames tell what columns it makes

    first, folder = pt.Transformer.from_df(dataset.get_runs()["bm25"]), tmp_path / "kept"

    def go(ranker):
        systems = {"mine": first >> dataset.text_loader() >> ranker}
        findings = audit(systems, dataset, biases=[ORDER], checkpoint=folder).findings
        return findings.set_index("contrast")["value"]["original"]

    long_first = go(FailsOnce())
    assert list(folder.glob("bias-order-*.json"))
    other = FailsOnce(weight=-1.0)
    other.broken = False
    assert go(other) != long_first
