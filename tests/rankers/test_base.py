"""A ranker of one's own: the five methods that the documentation names are all that training, saving and loading ask for."""

import json
import pickle

import numpy as np
import torch

from pyterrier_debias.rankers.base import InMemory, Ranker
from tests.training.toy import candidates, qrels, training

LONGEST = 20


class Words(Ranker):
    """Scores a document by the weights of its words; knows 64 of them by their hash."""

    def read(self, model):
        module = torch.nn.Embedding(64, 1)
        module.load_state_dict(torch.load(f"{model}/weights.pt"))
        return module, None

    def write(self, folder):
        torch.save(self.module.state_dict(), folder / "weights.pt")
        (folder / "config.json").write_text(json.dumps({"words": 64}))

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
        return (self.module(ids).squeeze(-1) * (ids > 0)).sum(dim=1)


def fresh():
    torch.manual_seed(1)
    return Words(InMemory(torch.nn.Embedding(64, 1), None), training=training(max_steps=30, learning_rate=0.1))


def test_it_is_trained_saved_and_loaded(tmp_path):
    ranker = fresh().fit(candidates(), qrels(), candidates("v"), qrels("v"))
    assert ranker.training_report.best > 0.9
    assert ranker != fresh()
    ranker.save(tmp_path / "saved")
    expected = ranker(candidates())["score"]
    assert expected.std() > 0.1
    opened = Words.load(tmp_path / "saved"), Words(str(tmp_path / "saved"))
    for other in (*opened, Words(ranker), pickle.loads(pickle.dumps(ranker))):
        np.testing.assert_allclose(other(candidates())["score"], expected, atol=1e-6)


def test_a_subclass_writes_five_methods():
    written = {name for name in dir(Ranker) if getattr(getattr(Ranker, name), "__isabstractmethod__", False)}
    assert written == {"read", "write", "score_pairs", "tokenise", "forward"}
