"""Foreign rankers in an audit: scored once by row or by list where they prove deterministic, else asked as ever."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyterrier_debias import InputError, audit, open_dataset
from pyterrier_debias.core import kept_scores
from pyterrier_debias.core.bias import Bias, Finding
from pyterrier_debias.core.foreign_memory import ForeignMemory, scores_of
from pyterrier_debias.core.frames import ranked
from pyterrier_debias.core.kept_scores import KeptScores
from pyterrier_debias.core.memory import ScoreMemory, ScoreTable
from pyterrier_debias.data.planted_rankers import PlantedRanker

PLANTED = PlantedRanker("position", noise=0.3)
DRAW = np.random.default_rng(0)


def rows(n=300):
    texts = [f"{'word ' * (i % 7)}text {i}" for i in range(n)]
    named = {"qid": [f"q{i % 3}" for i in range(n)], "docno": [f"d{i}" for i in range(n)]}
    return pd.DataFrame({**named, "query": "text word", "text": texts, "score": np.arange(n, 0.0, -1)})


class Foreign(pt.Transformer):
    """Scores rows by a function of the frame, and counts them."""

    def __init__(self, scores):
        self.scores, self.given, self.calls = scores, 0, 0

    def transform(self, inp):
        self.given, self.calls = self.given + len(inp), self.calls + 1
        return pt.model.add_ranks(inp.assign(score=self.scores(inp)))


def by_text(inp):
    return PLANTED.scores(inp["query"].tolist(), inp["text"].tolist())


def test_a_pointwise_ranker_is_asked_once_for_each_row():
    ranker, memory, inp = Foreign(by_text), ForeignMemory(), rows()
    first = memory.ask(ranker, inp)
    assert ranker.given == 300 + 10 + 200
    texts = [text[::-1] if i < 30 else text for i, text in enumerate(inp["text"])]
    other = inp.assign(docno=inp["docno"] + "%r1", qid=inp["qid"] + "%r1", text=texts)
    found = memory.ask(ranker, other)
    assert ranker.given == 510 + 30 and memory.varying == 0
    expected = dict(zip(zip(other["qid"], other["docno"]), by_text(other)))
    assert {(r.qid, r.docno): r.score for r in found.itertuples()} == expected
    assert first["score"].tolist() == ranker.transform(inp)["score"].tolist()


@pytest.mark.parametrize(
    ("scores", "varying"),
    [
        (lambda inp: by_text(inp) - by_text(inp).mean(), False),
        (lambda inp: by_text(inp) * (1 + len(inp) * 1e-12), False),
        (lambda inp: DRAW.normal(size=len(inp)), True),
    ],
)  # fmt: skip
def test_others_are_asked_as_if_there_were_no_memory(scores, varying):
    ranker, memory, inp = Foreign(scores), ForeignMemory(), rows()
    with np.errstate(divide="ignore", invalid="ignore"):
        memory.ask(ranker, inp)
        before = ranker.given
        memory.ask(ranker, inp)
    assert ranker.given == before + 300
    assert bool(memory.varying) == varying


def by_list(inp):
    return by_text(inp) - pd.Series(by_text(inp)).groupby(inp["qid"].to_numpy()).transform("mean").to_numpy()


@pytest.mark.parametrize(
    "scores",
    [
        by_list,
        lambda inp: [float(docno.strip("d").split("%")[0]) + len(docno) for docno in inp["docno"]],
        lambda inp: by_text(inp) / (len(inp) > 1),
        lambda inp: 1.0 / (1.0 + inp.groupby("qid").cumcount().to_numpy()),
    ],
)
def test_a_ranker_of_lists_is_asked_once_for_each_list(scores):
    ranker, memory, inp = Foreign(scores), ForeignMemory(), rows()
    with np.errstate(divide="ignore", invalid="ignore"):
        memory.ask(ranker, inp)
        assert ranker.given == 420 and memory.varying == 0  # ten rows alone, twice, and a list
        ranker.given = 0
        lists = inp.sort_values("qid", kind="stable", ignore_index=True)
        assert ranked(memory.ask(ranker, inp), "it").equals(ranked(ranker.transform(lists), "it")) and ranker.given == 300
        # One list in another order and a new one are asked for, together.
        ranker.given = 0
        other = pd.concat([lists[:100], lists[100:200][::-1], lists[200:].assign(qid="new")], ignore_index=True)
        found = memory.ask(ranker, other)
        assert ranker.given == 200
        expected = ranker.transform(other).set_index(["qid", "docno"])["score"]
        assert found.set_index(["qid", "docno"])["score"].to_dict() == expected.to_dict()


@pytest.mark.parametrize(("scores", "remembered"), [(by_list, True), (lambda inp: by_text(inp) - by_text(inp).mean(), False)])
def test_one_list_is_no_proof_of_what_others_in_its_frame_would_change(scores, remembered):
    ranker, memory = Foreign(scores), ForeignMemory()
    one, two = rows().assign(qid="q0"), rows().assign(query="other", qid="q1")
    memory.ask(ranker, one)
    ranker.given = 0
    both = pd.concat([one, two], ignore_index=True)
    found = memory.ask(ranker, both).set_index(["qid", "docno"])["score"]
    assert ranker.given == (300 if remembered else 600)
    assert found.to_dict() == ranker.transform(both).set_index(["qid", "docno"])["score"].to_dict()


@pytest.mark.parametrize("name", ["qid", "docno"])
def test_names_that_a_probe_made_prove_nothing(name):
    """Under them a ranker finds none of what it looks up, whichever names it is given again."""
    known = {"qid": {f"q{i}" for i in range(3)}, "docno": {f"d{i}" for i in range(300)}}[name]
    ranker, memory = Foreign(lambda inp: by_text(inp) * np.where(inp[name].isin(known), 1.0, -1.0)), ForeignMemory()
    made = rows().assign(**{name: rows()[name] + "%ro1"})
    assert len(memory.ask(ranker, made)) == ranker.given == 300
    found = memory.ask(ranker, rows()).set_index(["qid", "docno"])["score"]
    assert found.to_dict() == ranker.transform(rows()).set_index(["qid", "docno"])["score"].to_dict()


def test_what_is_looked_up_for_few_documents_is_found_out():
    few = {f"d{i}": 9.0 for i in range(7, 3000, 20)}
    ranker, memory = Foreign(lambda inp: by_text(inp) + inp["docno"].map(few).fillna(0.0)), ForeignMemory()
    memory.ask(ranker, rows(3000))
    other = rows(3000).assign(docno=rows(3000)["docno"] + "%r1")
    found = memory.ask(ranker, other).set_index(["qid", "docno"])["score"]
    assert found.to_dict() == ranker.transform(other).set_index(["qid", "docno"])["score"].to_dict()


@pytest.mark.parametrize("first", [["order", "length"], ["length", "order"]])
def test_figures_do_not_depend_on_the_order_of_biases(first):
    """A ranker that knows something of each query."""
    world = open_dataset("planted")
    known = set(world.get_topics()["qid"])
    ranker = pt.apply.doc_score(lambda row: len(row["text"]) * (1.0 if row["qid"] in known else -1.0))
    found = [audit({"a": ranker}, world, biases=biases, topics=20, depth=15, draws=1).findings for biases in (first, ["length"])]
    own = [frame[frame["bias"] == "length"]["value"].tolist() for frame in found]
    assert own[0] == own[1] and own[0][0] > 0


def test_a_slow_ranker_that_is_given_one_list_at_a_time_is_proved_and_told():
    inp = rows(600)
    lists = [inp[inp["qid"] == qid].reset_index(drop=True)[:120] for qid in ("q0", "q1", "q2")]
    ranker, memory = Foreign(by_text), ForeignMemory()
    for one in (*lists, *lists, lists[0][:1]):
        memory.ask(ranker, one)
    assert ranker.given == 3 * 120 + 10 + 120 + 120 and not memory.varying  # the first list was not kept
    random, memory = Foreign(lambda frame: by_text(frame) + DRAW.normal(size=len(frame))), ForeignMemory()
    for one in (lists[0], lists[1][:5], lists[1]):
        memory.ask(random, one)
    assert memory.varying == 10


def test_a_ranker_of_lists_that_drops_rows_later_is_not_remembered_any_more():
    ranker, memory = Foreign(by_list), ForeignMemory()
    memory.ask(ranker, rows())
    first = pt.apply.generic(lambda inp: ranker.transform(inp).query("rank < 5"))
    assert len(memory.ask(first, rows().assign(query="other"))) == 15
    assert len(memory.ask(first, rows())) == 15


def test_a_ranker_of_lists_that_is_not_deterministic_is_told():
    ranker = Foreign(lambda inp: DRAW.permutation(len(inp)) / len(inp) if len(inp) > 1 else np.zeros(1))
    memory = ForeignMemory()
    memory.ask(ranker, rows())
    assert memory.varying > 50 and memory.repeated == 100
    before = ranker.given
    memory.ask(ranker, rows())
    assert ranker.given == before + 300


def test_features_short_lists_and_cells_that_are_no_text_are_left_alone():
    features = pt.apply.generic(lambda inp: pt.model.add_ranks(inp.assign(score=by_text(inp), features=1.0)))
    vectors = Foreign(by_text)
    for ranker, inp in ((features, rows()), (vectors, rows().assign(vec=[np.ones(2)] * 300)), (vectors, rows(50))):
        memory = ForeignMemory()
        for _ in range(2):
            pd.testing.assert_frame_equal(memory.ask(ranker, inp), ranker(inp))
        assert not len(memory._scores)
    assert vectors.given == 4 * 300 + 4 * 50


@pytest.mark.parametrize("change", [lambda text: text[:8], lambda text: text.upper()])
@pytest.mark.parametrize("ask", [lambda folder: ForeignMemory().ask, lambda folder: KeptScores(folder, "mine").ask])
def test_a_ranker_that_changes_its_texts_gives_them_back_each_time(change, ask, tmp_path):
    """Only its scores could be remembered."""
    shortened = pt.apply.generic(lambda inp: inp.assign(text=inp["text"].map(change))) >> Foreign(by_text)
    asked, inp = ask(tmp_path), rows().sort_values("qid", kind="stable", ignore_index=True)
    for _ in range(2):
        found = asked(shortened, inp).set_index(["qid", "docno"])["text"]
        assert found.to_dict() == inp.assign(text=inp["text"].map(change)).set_index(["qid", "docno"])["text"].to_dict()


def test_columns_that_are_the_same_in_another_order_or_type_are_no_change():
    inp = rows().assign(page=[float("nan"), *range(299)], label=pd.Series(["a", None] * 150, dtype=object))
    scored = inp.assign(score=by_text(inp))
    for found in (scored, scored[::-1], scored.astype({"text": object}), scored.drop(columns="page"), scored[:1]):
        given = inp[: len(found)].astype({"query": object})
        np.testing.assert_array_equal(scores_of(given, found), by_text(given))
    for changed in (scored.assign(page=7.0), scored.assign(label="a"), scored.assign(query=scored["text"])):
        assert scores_of(inp, changed) is None


def test_a_resumed_audit_still_tells_of_a_ranker_that_is_not_deterministic(tmp_path):
    dataset = open_dataset("planted/topics=30,passages=400")
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    ranker = Foreign(lambda inp: by_text(inp) + 1e-4 * DRAW.normal(size=len(inp)))

    def audited():
        return audit({"it": candidates >> ranker}, dataset, biases=["gender"], depth=30, checkpoint=tmp_path / "kept")

    first = audited()
    before = ranker.given
    again = audited()
    assert ranker.given < before + 100  # the rows by which a system is known again
    pd.testing.assert_frame_equal(first.findings, again.findings)
    assert "repeatability" in set(again.findings["bias"]) and first.settings["notes"] == again.settings["notes"]


def test_an_audit_that_was_interrupted_goes_on_with_a_ranker_that_is_not_deterministic(tmp_path):
    dataset = open_dataset("planted/topics=30,passages=400")
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()
    stops = [True]

    class Late(Bias):
        name = "late"

        def needs(self, system, dataset):
            return None

        def examine(self, context):
            if stops.pop():
                raise KeyboardInterrupt
            yield Finding("it", "late", "scores", "none", 0.0)

    def audited(noise, weight=1.0):
        ranker = Foreign(lambda inp: weight * by_text(inp) + noise * DRAW.normal(size=len(inp)))
        systems = {"it": candidates >> ranker}
        return audit(systems, dataset, biases=["gender", Late()], depth=30, checkpoint=tmp_path / "kept").settings["notes"]

    with pytest.raises(KeyboardInterrupt):
        audited(0.1)
    stops.append(False)
    with pytest.raises(InputError, match="gives different scores, as with different weights"):
        audited(0.1, weight=-9.0)
    assert any(note.startswith("it: the ranker is not deterministic") for note in audited(0.1))


def test_an_audit_asks_a_foreign_ranker_once_and_tells_of_one_that_is_not_deterministic(monkeypatch):
    dataset = open_dataset("planted/topics=30,passages=400")
    candidates = pt.Transformer.from_df(dataset.get_runs()["bm25"]) >> dataset.text_loader()

    def audited(scores):
        ranker = Foreign(scores)
        return audit({"it": candidates >> ranker}, dataset, biases=["position"], depth=10, draws=2), ranker.given

    found, given = audited(by_text)
    assert not any("deterministic" in note for note in found.settings["notes"])
    random, _ = audited(lambda inp: by_text(inp) + DRAW.normal(size=len(inp)))
    assert any(note.startswith("it: the ranker is not deterministic (10 of 10 rows") for note in random.settings["notes"])
    row = random.findings[random.findings["bias"] == "repeatability"].iloc[0]
    assert row[["system", "measure", "contrast", "value", "n"]].tolist() == ["it", "scores", "scored twice", 1.0, 10]
    assert "repeatability" not in set(found.findings["bias"])
    assert "Repeatability" in random.to_html() and "not deterministic" in random.to_text()
    monkeypatch.setattr(ForeignMemory, "ask", lambda self, ranker, inp: ranker(inp))
    again, asked = audited(by_text)
    assert given < asked
    pd.testing.assert_frame_equal(found.findings, again.findings)


def test_scores_that_cannot_be_written_are_no_fault_of_the_ranker(tmp_path, monkeypatch, caplog):
    """A disk that is full for a while: what was not written then is written with the next scores."""
    write, full = kept_scores.write_whole, [True, True, False]

    def writes(target, content):
        if full.pop(0):
            raise InputError(f"{target} cannot be written: No space left on device")
        write(target, content)

    for name, value in (("_ROWS", 100), ("_SECONDS", -1.0), ("write_whole", writes)):  # a file for each query
        monkeypatch.setattr(kept_scores, name, value)
    ranker, inp = Foreign(by_text), rows().sort_values("qid", kind="stable", ignore_index=True)
    found = KeptScores(tmp_path, "mine").ask(ranker, inp)
    pd.testing.assert_frame_equal(found[["qid", "docno", "text"]], inp[["qid", "docno", "text"]])
    assert len(caplog.messages) == 2 and full == []
    for told in caplog.messages:
        assert told.startswith(f"checkpoint: {tmp_path}") and "No space left on device; the audit goes on" in told
    again = KeptScores(tmp_path, "mine").ask(ranker, inp)
    assert ranker.given == 300
    pd.testing.assert_frame_equal(again, ranked(found))


@given(st.lists(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 3)), unique=True, max_size=30), max_size=12))
def test_a_table_of_scores_holds_what_a_dictionary_does(asked):
    table, known = ScoreTable(), {}
    for pairs in asked:
        keys = np.array([(1 + (first << 40), second) for first, second in pairs], dtype=np.uint64).reshape(-1, 2)
        there, scores = table.find(keys)
        told = [known.get(pair) for pair in pairs]
        # Keys that share a first half may be forgotten, and are never taken for each other.
        alone = [pair in known and sum(pair[0] == other for other, _ in known) == 1 for pair in pairs]
        assert all(here or not wanted for here, wanted in zip(there, alone))
        assert [score for score, here in zip(scores, there) if here] == [one for one, here in zip(told, there) if here]
        assert np.isnan(scores[~there]).all()
        new = [i for i, pair in enumerate(pairs) if pair not in known]
        table.add(keys[new], np.arange(len(new)) + len(known) + 0.5)
        known |= {pairs[i]: place + len(known) + 0.5 for place, i in enumerate(new)}
        assert len(table) == len(known)


def test_pairs_in_either_order_and_scores_of_nan_are_kept_apart():
    memory, asked = ScoreMemory(limit=3), []

    def scores(pairs):
        asked.append(pairs)
        return [float("nan") if pair[0] == "a" else float(len(asked)) for pair in pairs]

    assert memory.scores("v1", [("a", "b"), ("b", "a")], scores).tolist()[1] == 1.0
    assert np.isnan(memory.scores("v1", [("a", "b")], scores)).all() and len(asked) == 1
    assert memory.scores("v1", [("b", "a"), ("c", "b"), ("d", "b")], scores).tolist() == [1.0, 2.0, 2.0]
    assert memory.scores("v1", [("c", "b"), ("d", "b")], scores).tolist() == [2.0, 3.0]  # more than three are not kept
    assert memory.scores("v2", [("b", "a")], scores).tolist() == [4.0]
    assert memory.scores("v2", [], scores).shape == (0,)
