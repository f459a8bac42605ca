"""MATSProbe: frames in, curves out; the encoder may be anything; pictures."""

import os
import re

import matplotlib.image
import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import CrossEncoder, MATSProbe, RotatePassages
from pyterrier_debias.core import plots
from pyterrier_debias.core.errors import InputError
from pyterrier_debias.position.formulas.mats import MATSAccumulator
from pyterrier_debias.position.formulas.mats_result import CURVE
from pyterrier_debias.position.measures.mats_probe import plot_ats
from tests import tiny_models
from tests.contract import CHECKS, Case, assert_contract


def spelled(texts):
    """Vectors that know the word and, through two numbers that turn, its position."""
    for words in (text.split() for text in texts):
        angle = np.arange(len(words)) / 4
        letters = [[word.count(letter) + 0.1 for letter in "abcde"] for word in words]
        turning = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        yield words, np.hstack([np.array(letters).reshape(-1, 5), turning])


def blind(texts):
    """Vectors that know the word only."""
    return [(words, vectors[:, :5]) for words, vectors in spelled(texts)]


def contextual(texts):
    """Vectors that know nothing but their own text."""
    for text in texts:
        words = text.split()
        yield words, 1 + np.random.default_rng(list(text.encode())).normal(size=(len(words), 5))


class Encoder:
    """An object that implements the protocol."""

    def word_vectors(self, texts):
        return list(spelled(texts))


@pytest.fixture
def docs():
    rng = np.random.default_rng(0)
    words = ["abba", "bed", "cab", "dad", "ace"]
    texts = [" ".join(rng.choice(words, rng.integers(3, 12))) for _ in range(30)]
    return pd.DataFrame({"docno": [f"d{i}" for i in range(30)], "text": texts})


DOCUMENTS = pd.DataFrame({"docno": ["d0", "d1", "d2"], "text": ["abba bed cab", "bed abba abba", "cab bed abba"]})
CASE = Case("MATSProbe", lambda: MATSProbe(blind), lambda: DOCUMENTS, lambda: MATSProbe(spelled), rowwise=False)


def test_a_result_prints_its_value_and_not_its_sums(docs):
    result = MATSProbe(spelled, pair_scope="all").result(docs)
    told = repr(result)
    assert told.startswith(f"<MATSResult: {result.mats()['mats'].iloc[0]:.4f} over 30 passages, 5 words; pair_scope='all', ")
    assert "max_delta=None" in told and len(told) < 250


def test_contract():
    assert_contract(CASE)


def test_pyterriers_own_tests_with_a_ranker_inside():
    ranker = CrossEncoder("a/model-that-is-not-there")
    CHECKS["pyterriers_own_tests"](Case("of a ranker", lambda: MATSProbe(ranker), lambda: DOCUMENTS, lambda: MATSProbe(blind)))


def test_columns_and_conventions(docs):
    out = MATSProbe(spelled, std="terms")(docs)
    assert list(out.columns) == list(CURVE)
    assert out.dtypes.astype(str).to_dict() == CURVE
    assert out["delta"].is_monotonic_increasing
    assert out["std"].equals(out["std_terms"].rename("std"))
    assert out["ats"].is_monotonic_decreasing
    assert MATSProbe(blind)(docs)["ats"].iloc[0] == pytest.approx(1.0)


def test_options_reach_the_result(docs):
    options = {"pair_scope": "all", "normaliser": "count", "term_average": "all", "std": "pairs", "max_delta": 3, "min_pairs": 2}
    options["ddof"] = 1
    result = MATSProbe(spelled, **options, sample=4).result(docs)
    assert {name: getattr(result, name) for name in options} == options
    assert result.kept == 4
    curve = MATSProbe(spelled, **options)(docs)
    assert curve["delta"].max() == 3
    assert curve["pairs"].min() >= 2
    assert set(curve["pair_scope"]) == set(curve["term_average"]) == {"all"}
    summary = MATSProbe(spelled, **options).mats(docs)
    assert summary["mats"][0] == summary["mats_mean"][0] > 0


def test_texts_reach_the_encoder_a_part_at_a_time(docs, monkeypatch):
    asked = []
    monkeypatch.setattr("pyterrier_debias.position.measures.mats_probe._CHUNK", 7)
    found = MATSProbe(lambda texts: asked.append(len(texts)) or list(spelled(texts))).result(docs)
    assert asked == [7, 7, 7, 7, 2] and found.passages == 30
    monkeypatch.undo()
    pd.testing.assert_frame_equal(found.curve(), MATSProbe(spelled)(docs))


def test_functions_and_objects_give_the_same(docs):
    pd.testing.assert_frame_equal(MATSProbe(spelled)(docs), MATSProbe(Encoder())(docs))


@pytest.mark.parametrize("encoder", [spelled, Encoder()])
def test_options_that_would_do_nothing_are_refused(docs, encoder):
    with pytest.raises(InputError, match="piece, layer cannot be set for an encoder that returns its own words"):
        MATSProbe(encoder, layer=0, piece="mean", batch_tokens=5)(docs)


def test_a_document_of_several_queries_counts_once(docs):
    twice = pd.concat([docs.assign(qid="q1"), docs.assign(qid="q2")], ignore_index=True)
    pd.testing.assert_frame_equal(MATSProbe(spelled)(docs), MATSProbe(spelled)(twice))
    with pytest.raises(InputError, match="docno 'd3' has two different texts"):
        MATSProbe(spelled)(pd.concat([docs, docs.iloc[[3]].assign(text="other")]))


def test_a_text_under_two_docnos_counts_once(docs):
    again = docs.head(7).assign(docno=[f"e{i}" for i in range(7)])
    both = pd.concat([docs, again], ignore_index=True)
    pd.testing.assert_frame_equal(MATSProbe(spelled)(both), MATSProbe(spelled)(docs))
    summary = MATSProbe(spelled).mats(both)
    assert (summary["passages"][0], summary["duplicates"][0]) == (30, 7)
    # Counted twice, words meet themselves in the same context, at distance 0 only: that looks like position.
    without, counted = (MATSProbe(contextual, duplicates=how).mats(both) for how in ("once", "all"))
    assert (counted["passages"][0], counted["duplicates"][0]) == (37, 0)
    assert counted["mats"][0] > without["mats"][0] + 0.01
    with pytest.raises(InputError, match="duplicates='none' is not known"):
        MATSProbe(spelled, duplicates="none")(docs)


def test_duplicates_across_frames_files_and_shards(docs, tmp_path, caplog):
    probe = MATSProbe(spelled)
    sums = probe.accumulate(docs.head(20))
    sums.save(tmp_path / "sums")
    again = docs.tail(15).assign(docno=[f"e{i}" for i in range(15)])
    sums = probe.accumulate(again, into=MATSAccumulator.load(tmp_path / "sums"))
    assert sums.duplicates == probe.result(sums).duplicates == 5
    pd.testing.assert_frame_equal(probe.result(sums).curve(), probe(docs))
    sums.save(tmp_path / "more")
    assert MATSAccumulator.load(tmp_path / "more").duplicates == 5
    merged = probe.accumulate(docs.head(3)).merge(probe.accumulate(docs.head(2)))
    assert "2 texts are in both accumulators" in caplog.text and merged.passages == 5


def test_an_encoder_that_raised_can_be_asked_again(docs, monkeypatch):
    monkeypatch.setattr("pyterrier_debias.position.measures.mats_probe._CHUNK", 7)
    asked = []

    def failing(texts):
        asked.append(texts)
        if len(asked) == 3:
            raise RuntimeError("out of memory")
        return spelled(texts)

    again = pd.concat([docs, docs.tail(4).assign(docno=["e1", "e2", "e3", "e4"])], ignore_index=True)
    probe, sums = MATSProbe(failing), MATSAccumulator()
    with pytest.raises(RuntimeError, match="out of memory"):
        probe.accumulate(again, into=sums)
    assert sums.passages == 14 and sums.duplicates == 0
    probe.accumulate(again, into=sums)
    assert sums.passages == 30 and sums.duplicates == 4 + 14  # 14 were added before
    pd.testing.assert_frame_equal(probe.result(sums).curve(), MATSProbe(spelled)(docs))


@pytest.mark.parametrize("option", ["sample", "memory"])
def test_sums_of_other_options_do_not_grow(docs, option):
    with pytest.raises(InputError, match=f"MATSProbe: into has {option}=8, but this probe has {option}=.*; give both the same"):
        MATSProbe(spelled).accumulate(docs, into=MATSAccumulator(**{option: 8}))


def test_any_shape_for_an_empty_text():
    docs = pd.DataFrame({"docno": ["d1", "d2", "d3"], "text": ["abba bed", "", "abba"]})
    for empty in ([], np.empty((0, 7)), np.empty(0)):
        encode = lambda texts, empty=empty: [(words, matrix if words else empty) for words, matrix in spelled(texts)]  # noqa: E731
        pd.testing.assert_frame_equal(MATSProbe(encode)(docs), MATSProbe(spelled)(docs))


def test_frames_in_pieces(docs, tmp_path):
    probe = MATSProbe(spelled)
    first = probe.accumulate(docs[:10])
    first.save(tmp_path / "first")
    sums = probe.accumulate(docs[20:], into=MATSAccumulator.load(tmp_path / "first")).merge(probe.accumulate(docs[10:20]))
    pd.testing.assert_frame_equal(probe.result(sums).curve(), probe(docs))


def test_rotation_before_the_probe(docs):
    pipeline = RotatePassages(seed=2) >> MATSProbe(spelled)
    pd.testing.assert_frame_equal(pipeline(docs), MATSProbe(spelled)(RotatePassages(seed=2)(docs)))


BAD = [
    ({"pair_scope": "some"}, "pair_scope='some' is not known; use one of 'cross_passage', 'all'"),
    ({"normaliser": "none"}, "normaliser='none'"),
    ({"term_average": "mean"}, "term_average='mean'"),
    ({"std": "words"}, "std='words'"),
    ({"max_delta": 0}, "max_delta=0 must be a whole number of at least 1"),
    ({"min_pairs": 0}, "min_pairs=0 must be a whole number of at least 1"),
    ({"sample": 1}, "sample=1"),
    ({"ddof": -1}, "ddof=-1 must be a whole number of at least 0"),
    ({"duplicates": "no"}, "duplicates='no' is not known; use one of 'once', 'all'"),
    ({"tokeniser": "none"}, "tokeniser='none' is not known"),
]


@pytest.mark.parametrize(("options", "message"), BAD)
def test_bad_options_before_anything_is_loaded(docs, options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        MATSProbe("a/model-that-is-not-there", **options)(docs)


def test_bad_input(docs):
    with pytest.raises(InputError, match=r"MATSProbe: column 'text' has no value at row 1 \(docno='d1'\)"):
        MATSProbe(spelled)(docs.assign(text=[None if i == 1 else "a" for i in range(30)]))
    with pytest.raises(InputError, match="returned 1 results for 30 texts"):
        MATSProbe(lambda texts: list(spelled(texts))[:1])(docs)
    for nothing, told in ((None, "None"), ([None] * 30, "None for a text")):
        with pytest.raises(InputError, match=rf"MATSProbe: the encoder returned {told}; it must return one pair \(words, matrix"):
            MATSProbe(lambda texts: nothing)(docs)  # noqa: B023
    with pytest.raises(InputError, match="'d0' has 1 words and vectors of shape"):
        MATSProbe(lambda texts: [(["a"], np.ones((2, 2)))] * len(texts))(docs)


def test_empty_and_blank_texts(docs):
    blank = docs.assign(text=["", "  \n"] * 15)
    assert len(MATSProbe(spelled)(blank)) == 0
    summary = MATSProbe(spelled).mats(blank)
    assert summary["mats"].isna().all()
    assert summary["reason"][0] == "no word occurs in enough pairs"


def test_a_real_model_and_its_tokenisers(tmp_path):
    folder = str(tiny_models.build(tmp_path / "bert", labels=None))
    texts = ["The river, the harbour.", "the harbour the river", "A queen; the harbour"]
    docs = pd.DataFrame({"docno": ["a", "b", "c"], "body": texts})
    probe = MATSProbe(folder, text_field="body", device="cpu")
    curve = probe(docs)
    by_loop = {}
    words = [["the", "river", "the", "harbour"], ["the", "harbour", "the", "river"], ["a", "queen", "the", "harbour"]]
    for p, one in enumerate(words):
        for other in words[p + 1 :]:
            for i, left in enumerate(one):
                for j, right in enumerate(other):
                    if left == right:
                        by_loop[abs(i - j)] = by_loop.get(abs(i - j), 0) + 1
    assert dict(zip(curve["delta"], curve["pairs"])) == by_loop
    cased = MATSProbe(folder, text_field="body", device="cpu", tokeniser="whitespace")(docs)
    # "The" and "the", "river," and "river" are different words there.
    assert cased["pairs"].sum() < curve["pairs"].sum()
    assert probe.result(docs).vocabulary == 5


def test_the_model_is_loaded_once_and_anew_for_other_options(tmp_path, monkeypatch):
    from transformers import AutoModel

    folder = str(tiny_models.build(tmp_path / "bert", labels=None))
    loaded, load = [], AutoModel.from_pretrained
    monkeypatch.setattr(AutoModel, "from_pretrained", lambda *a, **k: loaded.append(a) or load(*a, **k))
    docs = pd.DataFrame({"docno": ["a", "b"], "text": ["the river", "river the"]})
    probe = MATSProbe(folder, device="cpu")
    probe(docs.iloc[:0])
    assert len(loaded) == 0
    last = probe(docs)
    probe(docs)
    assert len(loaded) == 1
    probe.layer = 0
    assert probe(docs)["ats"].tolist() != last["ats"].tolist()
    assert len(loaded) == 2


def test_equality_follows_the_weights(tmp_path):
    folder = tiny_models.build(tmp_path / "bert", labels=None)
    before = MATSProbe(str(folder))
    assert before == MATSProbe(str(folder), batch_tokens=7)
    assert before != MATSProbe(str(folder), layer=1)
    fingerprint = before.identity()
    weights = folder / "model.safetensors"
    os.utime(weights, ns=(1, 1))
    assert before.identity() != fingerprint


def test_plot(docs, tmp_path):
    probe = MATSProbe(spelled)
    results = {"turning": probe.result(docs), "blind": MATSProbe(blind).result(docs)}
    axes = plot_ats(results)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels[0].startswith(f"turning: MATS {probe.mats(docs)['mats'][0]:.3f} (sd ")
    assert labels[1].startswith("blind: MATS 0.000")
    line = axes.get_lines()[0]
    curve = probe(docs)
    assert line.get_ydata().tolist() == curve["ats"].tolist()
    for edge, side in zip(axes.get_lines()[1:3], (-1, 1)):
        assert edge.get_ydata().tolist() == (curve["ats"] + side * curve["std_pairs"]).tolist()
    assert "30 passages" in axes.get_xlabel()
    plots.close(axes.figure)
    for std in ("terms", "none"):
        plot_ats(results, std=std, path=tmp_path / f"{std}.png")
    assert matplotlib.image.imread(tmp_path / "terms.png").shape[2] in (3, 4)
    assert (tmp_path / "none.png").read_bytes() != (tmp_path / "terms.png").read_bytes()
    # The figure stays whole in the picture if the name of the encoder is long.
    named = {f"an encoder trained on rotated passages, with weights of seed {seed}": results["turning"] for seed in (7, 8)}
    long = plot_ats(named)
    plots.rendered(long.figure)
    assert [text.get_text().partition(": ")[2] for text in long.get_legend().get_texts()] == [labels[0].partition(": ")[2]] * 2
    short = plot_ats({"turning": results["turning"].under(max_delta=2)})
    assert short.get_lines()[0].get_xdata().max() == 2
    plots.close(short.figure)


def test_plot_of_nothing(docs):
    with pytest.raises(InputError, match="nothing to draw"):
        plot_ats({})
    probe = MATSProbe(spelled)
    curve = probe(docs)
    for wrong, told in ((probe.result(docs), "is a MATSResult"), (curve, "is a DataFrame"), ({"a": curve}, "holds a DataFrame")):
        with pytest.raises(InputError, match=rf"plot_ats: results must map names .* but {told}; give {{name: probe\.result"):
            plot_ats(wrong)
    with pytest.raises(InputError, match="std='deltas' is not known"):
        plot_ats({"a": MATSProbe(spelled).result(docs)}, std="deltas")
