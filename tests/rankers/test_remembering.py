"""Rankers that remember: no pair is scored twice, and no score changes by it."""

from __future__ import annotations

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import BiEncoder, CrossEncoder, InputError, Training, audit, open_dataset
from pyterrier_debias.pooling.training.cet import CETReranker

QUERIES = {"q0": "who built the bridge", "q1": "where is the old harbour"}
TEXTS = ["the old bridge", "a harbour", "who was the builder of it", "north of the river", ""]


class Words(CrossEncoder):
    """Scores a pair by the words that it shares, without a model, and notes what it is given."""

    def score_pairs(self, queries, docs):
        self.__dict__.setdefault("given", []).extend(zip(queries, docs))
        places = [[d.split().index(word) for word in {*q.split()} & {*d.split()}] for q, d in zip(queries, docs)]
        return np.array([sum(1 / (1 + place) for place in found) for found in places])


class Forgetful(Words):
    """The same, as it was before rankers remembered."""

    def remembering(self, limit=0):
        return nullcontext(self)


def frame(texts=TEXTS, queries=QUERIES) -> pd.DataFrame:
    rows = [(qid, query, f"d{i}", text) for qid, query in queries.items() for i, text in enumerate(texts)]
    return pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])


def scored(ranker, inp: pd.DataFrame) -> pd.Series:
    return ranker(inp).set_index(["qid", "docno"])["score"].sort_index()


def test_each_pair_of_texts_is_scored_once_while_it_remembers(tiny, monkeypatch):
    ranker, given = CrossEncoder(tiny()), []
    score_pairs = CrossEncoder.score_pairs

    def noting(self, queries, docs):
        given.extend(zip(queries, docs))
        return score_pairs(self, queries, docs)

    monkeypatch.setattr(CrossEncoder, "score_pairs", noting)
    frames = [frame(), frame().assign(docno=lambda inp: inp["docno"] + "%r1"), frame([*TEXTS[:2], "a bridge", "two bridges"])]
    expected = [scored(ranker, one) for one in frames]
    given.clear()
    with ranker.remembering():
        found = [scored(ranker, one) for one in frames]
        for one, two in zip(found, expected):
            pd.testing.assert_series_equal(one, two, rtol=0, atol=1e-6)
        distinct = {pair for one in frames for pair in zip(one["query"], one["text"])}
        assert len(given) == len(distinct) and set(given) == distinct
        # What decides a score is an option: its scores are others.
        ranker.max_length = 6
        shorter = scored(ranker, frames[0])
        assert not np.allclose(shorter, expected[0], atol=1e-3)
    pd.testing.assert_series_equal(shorter, scored(CrossEncoder(tiny(), max_length=6), frames[0]), rtol=0, atol=1e-6)


def test_weights_that_change_are_noticed(tiny):
    ranker = CrossEncoder(tiny(), training=Training(epochs=1, learning_rate=1e-2, batch_size=2))
    qrels = pd.DataFrame({"qid": list(QUERIES), "docno": ["d0", "d1"], "label": 1})
    with ranker.remembering():
        before = scored(ranker, frame())
        ranker.fit(frame(), qrels)
        after = scored(ranker, frame())
    assert not np.allclose(before, after, atol=1e-4)
    pd.testing.assert_series_equal(after, scored(ranker, frame()), rtol=0, atol=1e-6)


def test_encoders_of_documents_notice_it_too(tiny):
    ranker = BiEncoder(tiny("build_sentence_transformer", pooling="mean"))
    with ranker.remembering():
        before = scored(ranker, frame())
        with torch.no_grad():
            for weight in ranker.module.parameters():
                weight.mul_(1.5)
        after = scored(ranker, frame())
        with ranker.remembering(limit=0):
            scored(ranker, frame())
        assert len(pickle.loads(pickle.dumps(ranker))._memory or ()) == 0 < len(ranker._memory[0])
    assert not np.allclose(before, after, atol=1e-3) and ranker._memory is None
    pd.testing.assert_series_equal(after, scored(ranker, frame()), rtol=0, atol=1e-5)


@pytest.mark.parametrize("make", [lambda tiny: CrossEncoder(tiny()), lambda tiny: BiEncoder(tiny("build_sentence_transformer"))])
def test_hooks_and_settings_that_change_are_noticed(tiny, make):
    ranker = make(tiny)
    layer = next(part for part in ranker.module.modules() if type(part).__name__ == "BertLayer")
    attention, hooks = layer.attention.self, []
    changes = [
        lambda: hooks.append(layer.register_forward_hook(lambda module, args, output: output * 0.2)),
        lambda: hooks.append(layer.register_forward_pre_hook(lambda module, args: (args[0] * 3, *args[1:]))),
        lambda: hooks.pop().remove(),
        lambda: hooks.append(layer.register_forward_pre_hook(lambda module, args: (args[0] * 2, *args[1:]))),
        lambda: setattr(attention, "scaling", 0.01),
        lambda: setattr(attention, "scaling", 5.0),
        lambda: setattr(attention, "attention_head_size", 16),
    ]
    with ranker.remembering():
        before = scored(ranker, frame())
        for change in changes:
            change()
            after = scored(ranker, frame())
            assert not np.allclose(before, after, atol=1e-4)
            pd.testing.assert_series_equal(after, scored(copy.deepcopy(ranker), frame()), rtol=0, atol=1e-5)
            before = after


def test_an_encoder_of_documents_beside_that_of_queries_is_noticed_too(tiny):
    docs = BiEncoder(tiny(labels=None))
    ranker = BiEncoder(tiny(labels=None), documents_by=docs)

    def shorter():
        docs.max_length = 4

    def heavier():
        with torch.no_grad():
            for weight in docs.module.parameters():
                weight.mul_(1.1)

    for change in (shorter, heavier):
        with ranker.remembering():
            before = scored(ranker, frame())
            change()
            after = scored(ranker, frame())
        assert not np.allclose(before, after, atol=1e-3)
        pd.testing.assert_series_equal(after, scored(ranker, frame()), rtol=0, atol=1e-5)


def test_the_limit_and_contexts_within_others():
    ranker, pairs = Words("a/model"), len(frame())
    with ranker.remembering(limit=3):
        expected = scored(ranker, frame())
        ranker.given.clear()
        pd.testing.assert_series_equal(scored(ranker, frame()), expected)
        assert len(ranker.given) == pairs - 3
    ranker.given.clear()
    with ranker.remembering():
        scored(ranker, frame())
        with ranker.remembering(limit=0):
            scored(ranker, frame())
        scored(ranker, frame())
        assert len(ranker.given) == pairs
    scored(ranker, frame())
    assert len(ranker.given) == 2 * pairs
    with pytest.raises(InputError, match=r"Words\.remembering: limit=-1"), ranker.remembering(limit=-1):
        pass
    with pytest.raises(ZeroDivisionError), ranker.remembering():
        scored(ranker, frame())
        raise ZeroDivisionError
    assert ranker._memory is None


def test_threads_share_what_is_remembered():
    ranker = Words("a/model")
    expected = scored(ranker, frame())
    with ranker.remembering(), ThreadPoolExecutor(4) as pool:
        scored(ranker, frame())
        ranker.given.clear()
        for found in pool.map(lambda _: scored(ranker, frame()), range(16)):
            pd.testing.assert_series_equal(found, expected)
        assert ranker.given == []


def test_what_is_remembered_is_no_part_of_the_ranker():
    ranker, other = Words("a/model"), Words("a/model")
    before = ranker.fingerprint()
    with ranker.remembering():
        scored(ranker, frame())
        copies = [pickle.loads(pickle.dumps(ranker)), copy.copy(ranker), copy.deepcopy(ranker)]
        assert ranker == other and ranker.fingerprint() == before
        for one in copies:
            one.given = []
            scored(one, frame())
            assert len(one.given) == len(frame()) and one == ranker


def test_a_stage_around_a_ranker_lets_it_remember():
    ranker, stage = Words("a/model"), CETReranker(Words("a/model"))
    with stage.remembering():  # nothing is fitted yet
        stage.keep(ranker)
    with stage.remembering(limit=4):
        scored(stage, frame())
        scored(stage, frame())
    assert len(ranker.given) == 2 * len(frame()) - 4
    assert ranker._memory is None


def test_an_audit_scores_no_pair_twice():
    dataset = open_dataset("planted/topics=30,passages=400")
    first = pt.Transformer.from_df(dataset.get_runs()["bm25"])
    found, given = [], []
    for kind in (Words, Forgetful):
        ranker = kind("a/model")
        pipeline = first >> dataset.text_loader() >> ranker
        found.append(audit({"words": pipeline}, dataset, biases=["position", "linguistic"], depth=5, draws=2))
        given.append(ranker.given)
    assert len(given[0]) == len(set(given[0])) == len(set(given[1])) < len(given[1])
    assert len(found[0].findings) > 5
    pd.testing.assert_frame_equal(found[0].findings, found[1].findings)
