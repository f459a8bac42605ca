"""What the page on extending promises of collections, systems, rankers and stages, by nothing but the methods that it names."""

import json
import pickle

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import (
    AdversarialReranker,
    BiasAwareReranker,
    CETReranker,
    Collection,
    EqualizeReranker,
    FewerSteps,
    FocalReranker,
    GroupDROReranker,
    InputError,
    LessData,
    PlantedCollection,
    RelabelReranker,
    System,
    WeakerModel,
    audit,
    open_dataset,
)
from pyterrier_debias.core.stage import Stage
from pyterrier_debias.rankers.base import InMemory, Ranker
from tests.pooling.cet_toy import pooled
from tests.training.toy import candidates, qrels, training

LONGEST = 20


class Table(torch.nn.Module):
    """A weight for each word; no ``config``, no stack of layers."""

    def __init__(self):
        super().__init__()
        self.weights = torch.nn.Embedding(64, 1)


class Words(Ranker):
    """The five methods of the page, with files and a tokenizer as they like."""

    def read(self, model):
        module = Table()
        module.load_state_dict(torch.load(f"{model}/words.pt"))
        with open(f"{model}/cut.json") as file:
            return module, json.load(file)

    def write(self, folder):
        torch.save(self.module.state_dict(), folder / "words.pt")
        (folder / "cut.json").write_text(json.dumps(self.tokenizer))

    def score_pairs(self, queries, docs):
        with torch.inference_mode():
            return self.forward(**self.tokenise(queries, docs)).numpy()

    def tokenise(self, queries, docs):
        ids = torch.zeros(len(docs), LONGEST, dtype=torch.int64)
        for row, doc in enumerate(docs):
            words = [1 + sum(map(ord, word)) % 63 for word in doc.split()[:LONGEST]]
            ids[row, : len(words)] = torch.tensor(words, dtype=torch.int64)
        return {"ids": ids}

    def forward(self, ids):
        return (self.module.weights(ids).squeeze(-1) * (ids > 0)).sum(dim=1)


def ranker(seed=1, tokenizer=None, **options):
    torch.manual_seed(seed)
    return Words(InMemory(Table(), tokenizer), **{"training": training(max_steps=20, learning_rate=0.1), **options})


def material(prefix="q"):
    """Candidates with all that the debiasing rerankers read: a pool's ranks, a group, a complexity, a bias."""
    frame = pooled(prefix)
    number = frame["qid"].str[1:].astype(int)
    return frame.assign(complexity=number.astype(float), bias=frame["rank"] / 5, gendered=frame["rank"] % 2)


# ----------------------------------------------------------------------------------------------------- a ranker


def test_five_methods_are_written():
    written = {name for name in dir(Ranker) if getattr(getattr(Ranker, name), "__isabstractmethod__", False)}
    assert written == {"read", "write", "score_pairs", "tokenise", "forward"} <= set(vars(Words))
    given = {"__module__", "__doc__", "__abstractmethods__", "_abc_impl", "__init__", "ARTIFACT_FORMAT", "ARTIFACT_PACKAGE_HINT"}
    given |= {"__static_attributes__", "__firstlineno__"}  # from Python 3.13 on
    assert set(vars(Words)) - written <= given


@pytest.mark.parametrize("tokenizer", [None, {"split": "blanks"}])
def test_what_comes_with_the_class(tokenizer, tmp_path):
    run = training(max_steps=60, learning_rate=0.2)
    mine = ranker(tokenizer=tokenizer, training=run).fit(candidates(), qrels(), candidates("v"), qrels("v"))
    assert mine.training_report.best > 0.9 and mine != ranker(tokenizer=tokenizer)
    mine.save(tmp_path / "saved")
    assert {"words.pt", "cut.json"} <= {file.name for file in (tmp_path / "saved").iterdir()}
    expected = mine(candidates())["score"]
    for other in (Words.load(tmp_path / "saved"), Words(str(tmp_path / "saved")), Words(mine), pickle.loads(pickle.dumps(mine))):
        np.testing.assert_allclose(other(candidates())["score"], expected, atol=1e-6)
        assert other.window == mine.window == 512
    texts = candidates().head(2).assign(text=["blue " * 10 + "red " * 10, "red " * 10 + "blue " * 10])
    first, best = (ranker(long=how, passage_length=10, passage_stride=10)(texts)["score"] for how in ("firstp", "maxp"))
    assert first[0] != first[1] and best[0] == best[1] == first.max()
    assert len(ranker()(candidates().iloc[:0])) == 0


DEBIASED = {
    "CET, first stage": lambda: CETReranker(ranker()),
    "CET, lexical": lambda: CETReranker(ranker(), selection="lexical"),
    "CET, the same": lambda: CETReranker(ranker(), selection="same"),
    "CET, a ranker": lambda: CETReranker(ranker(), selection=ranker(2)),
    "CET, a ranker with a tokenizer": lambda: CETReranker(ranker(tokenizer={}), selection=ranker(2, {}), weight_pass="eval"),
    "Equalize, less data": lambda: EqualizeReranker(ranker(), biased=LessData(share=0.5)),
    "Equalize, fewer steps": lambda: EqualizeReranker(ranker(), biased=FewerSteps(share=0.5)),
    "Equalize, biased data": lambda: EqualizeReranker(ranker(), biased="biased_data"),
    "Equalize, a ranker": lambda: EqualizeReranker(ranker(), biased=ranker(2)),
    "Equalize, in batch": lambda: EqualizeReranker(ranker(), biased=ranker(2), negatives="in_batch"),
    "Focal": lambda: FocalReranker(ranker(), biased=WeakerModel(model=ranker(2))),
    "Group DRO": lambda: GroupDROReranker(ranker(), bins=2),
    "Bias-aware": lambda: BiasAwareReranker(ranker(), column="bias"),
    "Relabel": lambda: RelabelReranker(ranker(), ranker(2), threshold=0.5),
}


@pytest.mark.parametrize("name", DEBIASED)
def test_the_debiasing_rerankers_train_it(name, tmp_path):
    stage = DEBIASED[name]()
    stage.fit(material(), qrels())
    found = stage(material())
    assert found["score"].notna().all() and found["score"].std() > 0
    stage.save(tmp_path / "saved")
    np.testing.assert_allclose(type(stage).load(tmp_path / "saved")(material())["score"], found["score"], atol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EqualizeReranker(ranker()), r"at least two layers from which to keep some; use WeakerModel\(model=...\)"),
        (lambda: AdversarialReranker(ranker(), attribute="gendered"), "ranker is a Words; give a CrossEncoder"),
    ],
)
def test_what_needs_a_certain_kind_of_model_says_so(make, message):
    with pytest.raises(InputError, match=message):
        make().fit(material(), qrels())


# ----------------------------------------------------------------------------------------------------- a stage


class Shout(Stage):
    """Adds a mark to queries."""

    calls = 0

    def __init__(self, mark="!", *, times=1):
        self.mark = mark
        self.times = times

    def transform(self, inp):
        type(self).calls += 1
        pt.validate.columns(inp, includes=["qid", "query"])
        return inp.assign(query=inp["query"] + self.mark * self.times)


def test_a_stage_is_its_options():
    assert Shout() == Shout("!") != Shout("?") and hash(Shout()) == hash(Shout("!"))
    assert repr(Shout(times=2)) == "Shout(times=2)"
    assert pt.inspect.transformer_inputs(Shout()) == [["qid", "query"]]
    stage = Shout()
    stage.set_parameter("times", 3)  # as GridScan does
    assert stage == Shout(times=3) and stage(pd.DataFrame({"qid": ["q"], "query": ["a"]}))["query"].tolist() == ["a!!!"]


def test_equal_stages_behind_one_prefix_run_once():
    topics = pd.DataFrame({"qid": ["q0", "q1"], "query": ["a", "b"]})
    rank = pt.apply.generic(lambda asked: asked.merge(candidates()[["qid", "docno", "score", "rank"]], on="qid"))
    systems = [Shout() >> rank, Shout() >> (rank % 3)]
    Shout.calls = 0
    pt.Experiment(systems, topics, qrels(), ["P_2"], plan="tree", verbose=False)
    shared = Shout.calls
    Shout.calls = 0
    pt.Experiment([Shout("a") >> rank, Shout("b") >> (rank % 3)], topics, qrels(), ["P_2"], plan="tree", verbose=False)
    assert shared < Shout.calls


# ----------------------------------------------------------------------------------------------------- a collection, a system


class Mine:
    """The four methods of the page, over the texts of a planted collection."""

    def __init__(self, **more):
        self.known = PlantedCollection(3, topics=16, passages=300)
        for name, give in more.items():
            setattr(self, name, give)

    def get_corpus_iter(self, verbose=False):
        return iter(self.known.corpus.to_dict("records"))

    def get_topics(self, variant=None):
        return self.known.get_topics()[["qid", "query"]]

    def get_qrels(self, variant=None):
        return self.known.get_qrels()

    def text_loader(self, fields="text", *, verbose=False):
        return self.known.text_loader(fields)


def by_words(frame):
    """A black box: words that a query and a text share."""
    return [len(set(query.split()) & set(text.lower().split())) for query, text in zip(frame["query"], frame["text"])]


def examined(dataset, **more):
    bm25 = pt.Transformer.from_df(PlantedCollection(3, topics=16, passages=300).get_runs()["bm25"])
    remote = pt.apply.doc_score(by_words, batch_size=100)
    systems = {"BM25": bm25, "remote": bm25 >> dataset.text_loader() >> remote}
    return audit({**systems, **more}, dataset, biases=["position", "survivorship", "pooling"], depth=20, draws=1)


def test_four_methods_are_a_collection_and_the_rest_is_optional():
    bare = Mine()
    assert open_dataset(bare) is bare
    found = examined(bare)
    assert not len(found.failed) and set(found.findings["system"]) >= {"BM25", "remote"}
    assert "survivorship" not in set(found.findings["bias"])
    planted = bare.known
    full = examined(Mine(get_candidates=planted.get_candidates, get_answers=planted.get_answers, get_runs=planted.get_runs))
    assert {"position", "survivorship", "pooling"} == set(full.findings["bias"]) and not len(full.failed)


def test_a_system_is_made_by_hand():
    dataset = Mine()
    bm25 = pt.Transformer.from_df(dataset.known.get_runs()["bm25"])
    by_hand = System("by hand", candidates=bm25 >> dataset.text_loader(), ranker=pt.apply.doc_score(by_words, batch_size=100))
    found = examined(dataset, **{"by hand": by_hand}).findings
    values = {name: part.set_index(["bias", "measure", "contrast"])["value"] for name, part in found.groupby("system")}
    # The same parts as the pipeline of the same stages.
    shared = values["remote"].index.intersection(values["by hand"].index)
    assert len(shared) > 3
    pd.testing.assert_series_equal(values["remote"][shared], values["by hand"][shared], check_names=False)


def test_a_collection_is_filled_with_frames():
    mine = Collection(
        "helpdesk",
        corpus=pd.DataFrame({"docno": ["d1", "d2"], "text": ["Press the red button to stop.", "Press green to start."]}),
        topics={"test": pd.DataFrame({"qid": ["q1"], "query": ["how do I stop the machine"]})},
        qrels={"test": pd.DataFrame({"qid": ["q1"], "docno": ["d1"], "label": [1]})},
    )
    assert [document["docno"] for document in mine.get_corpus_iter()] == ["d1", "d2"]
    assert mine.text_loader()(pd.DataFrame({"docno": ["d2"]}))["text"].tolist() == ["Press green to start."]
    assert len(mine.get_topics("test")) == len(mine.get_qrels("test")) == 1
