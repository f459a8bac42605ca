"""How a batch becomes a loss."""

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias import BiEncoder, CrossEncoder, MultiVector, RotatePassages, SparseEncoder, Training
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.losses import get_loss, info_nce, pairwise_hinge
from pyterrier_debias.training.method import Candidates, Method, Ranking, pair_accuracy
from pyterrier_debias.training.seeds import drawn_from
from tests.training.toy import candidates, qrels

BUILDERS = {
    CrossEncoder: "build",
    BiEncoder: "build_sentence_transformer",
    MultiVector: "build_multi_vector",
    SparseEncoder: "build_sparse",
}


def batch(n=4, **options):
    made = Examples(make_groups(candidates(), qrels(), stage="fit"), Training(**options), n)
    return [made[i] for i in range(n)]


def ragged():
    """Examples with one, two, three and four negatives."""
    return [batch(4, negatives_per_positive=n)[n - 1] for n in (1, 2, 3, 4)]


@pytest.mark.parametrize("make", BUILDERS)
def test_scores_stand_where_their_documents_do(make, tiny):
    ranker = make(tiny(BUILDERS[make]))
    method = Ranking(ranker, pairwise_hinge).eval()
    tensors = method.collate(ragged())
    out = method(**tensors)
    assert tensors["mask"].sum(dim=1).tolist() == [2, 3, 4, 5]
    for row, example in enumerate(ragged()):
        expected = ranker.score([example.query] * len(example.texts), example.texts)
        np.testing.assert_allclose(out["scores"][row, : len(expected)].detach(), expected, atol=1e-5)
    assert out["loss"].item() == pytest.approx(pairwise_hinge(out["scores"].detach(), mask=tensors["mask"]).item(), abs=1e-6)
    right = [out["scores"][row, 0] > out["scores"][row, j] for row in range(4) for j in range(1, row + 2)]
    assert out["accuracy"].item() == pytest.approx(sum(map(int, right)) / 10)


@pytest.mark.parametrize("make", BUILDERS)
def test_in_batch_negatives_by_brute_force(make, tiny):
    examples = batch(5, negatives_per_positive=2)
    # Two examples of one query share documents and judgements.
    assert len({example.qid for example in examples}) < 5
    ranker = make(tiny(BUILDERS[make]))
    method = Ranking(ranker, info_nce, in_batch=True).eval()
    tensors = method.collate(examples)
    terms = []
    for example in examples:
        texts = dict(zip(example.docnos, example.texts))
        for other in examples:
            for docno, text in zip(other.docnos, other.texts):
                if docno not in example.relevant:
                    texts.setdefault(docno, text)
        scores = torch.from_numpy(ranker.score([example.query] * len(texts), list(texts.values())))
        terms.append(-scores.log_softmax(0)[0])
    assert method(**tensors)["loss"].item() == pytest.approx(float(torch.stack(terms).mean()), abs=1e-5)
    assert tensors["mask"].shape[1] == len({docno for example in examples for docno in example.docnos})


def test_in_batch_infonce_equals_sentence_transformers(tiny):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    folder = tiny("build_sentence_transformer")
    picked = {example.qid: example for example in batch(16)}
    examples = list(picked.values())[:4]
    method = Ranking(BiEncoder(folder), get_loss("infonce", {"temperature": 0.05}), in_batch=True).eval()
    peer = SentenceTransformer(folder, device="cpu").eval()
    theirs = MultipleNegativesRankingLoss(peer, scale=20.0, similarity_fct=lambda a, b: a @ b.T)
    texts = [[e.query for e in examples], [e.texts[0] for e in examples], [e.texts[1] for e in examples]]
    expected = theirs([peer.preprocess(part) for part in texts], None)
    assert method(**method.collate(examples))["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_pairs_without_negatives_of_their_own_meet_the_batch(tiny):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    folder = tiny("build_sentence_transformer")
    pairs = batch(16, negatives_per_positive=0, in_batch_negatives=True)
    examples = list({example.qid: example for example in pairs}.values())
    assert {len(example.docnos) for example in pairs} == {1}
    method = Ranking(BiEncoder(folder), info_nce, in_batch=True).eval()
    peer = SentenceTransformer(folder, device="cpu").eval()
    theirs = MultipleNegativesRankingLoss(peer, scale=1.0, similarity_fct=lambda a, b: a @ b.T)
    texts = [[e.query for e in examples], [e.texts[0] for e in examples]]
    expected = theirs([peer.preprocess(part) for part in texts], None)
    assert method(**method.collate(examples))["loss"].item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_matrix_path_and_the_pair_path_agree(tiny):
    examples = batch(4, negatives_per_positive=2)

    class Pairs:
        """A bi-encoder that only scores pairs."""

        def __init__(self, ranker):
            self.module, self.tokenise, self.forward = ranker.module, ranker.tokenise, ranker.forward

    ranker = BiEncoder(tiny("build_sentence_transformer"))
    matrix, pairs = Ranking(ranker, info_nce, in_batch=True).eval(), Ranking(Pairs(ranker), info_nce, in_batch=True).eval()
    left, right = matrix(**matrix.collate(examples)), pairs(**pairs.collate(examples))
    assert left["loss"].item() == pytest.approx(right["loss"].item(), abs=1e-5)
    left["loss"].backward()
    gradients = [p.grad.clone() for p in ranker.module.parameters() if p.grad is not None]
    ranker.module.zero_grad()
    right["loss"].backward()
    others = [p.grad for p in ranker.module.parameters() if p.grad is not None]
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(gradients, others))


def test_candidates_of_a_row_come_first_and_relevant_ones_of_others_do_not_count():
    examples = batch(6)
    found = Candidates(examples, in_batch=True)
    for row, example in enumerate(examples):
        documents = [found.docs[at] for at in found.columns[row]]
        assert documents[:2] == example.texts
        assert sorted(found.columns[row]) == list(range(len(found.docs)))
    same = [(a, b) for a in range(6) for b in range(6) if a != b and examples[a].qid == examples[b].qid]
    assert same
    for a, b in same:
        place = list(found.columns[a]).index(found.docs.index(examples[b].texts[0]))
        assert not found.mask[a, place]


def test_copies_of_an_answer_are_no_negatives():
    """The positive's text under another docno; what is relevant for the same query under another qid, and a copy of that."""
    rows = [
        ("q1", "d1", "red bridge", "the red bridge over the river", 1), ("q1", "x1", "red bridge", "stone tower", 0),
        ("q2", "d2", "bridge colour", "the red bridge over the river", 1), ("q2", "x2", "bridge colour", "tall tree", 0),
        ("q3", "d3", "red bridge", "a crimson viaduct", 1), ("q3", "x3", "red bridge", "green field", 0),
        ("q4", "d4", "tall trees", "an old oak", 1), ("q4", "x4", "tall trees", "a crimson viaduct", 0),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["qid", "docno", "query", "text", "label"])
    frame = frame.assign(score=1.0, rank=frame.index % 2)
    groups = make_groups(frame.drop(columns="label"), frame.query("label > 0")[["qid", "docno", "label"]], stage="fit")
    made = Examples(groups, Training(in_batch_negatives=True), 4)
    found = Candidates(sorted((made[i] for i in range(4)), key=lambda example: example.qid), in_batch=True)
    texts = [{found.docs[at] for at in columns[1:][mask[1:]]} for columns, mask in zip(found.columns, found.mask)]
    others = {"stone tower", "tall tree", "green field", "an old oak"}
    assert texts[0] == others and texts[2] == others
    assert texts[1] == others | {"a crimson viaduct"}
    assert texts[3] == others - {"an old oak"} | {"a crimson viaduct", "the red bridge over the river"}


def in_batch_negatives(rows, judged, *docnos, **options):
    """Texts of the negatives that the first of some positives gets in a batch of all of them."""
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text"])
    groups = make_groups(frame, pd.DataFrame(judged, columns=["qid", "docno", "label"]), stage="fit")
    made = Examples(groups, Training(in_batch_negatives=True, **options), 4)
    by_positive = {made[i].docnos[0]: made[i] for i in range(4)}
    found = Candidates([by_positive[docno] for docno in docnos], in_batch=True)
    return [found.docs[at] for at in found.columns[0, 1:][found.mask[0, 1:]]]


def test_what_is_relevant_does_not_depend_on_the_batch():
    """Judged for another qid with the text, or a copy of such a document, whether these are in the batch or not."""
    rows = [
        ("q1", "cats", "d1", "a"), ("q1", "cats", "x1", "b"), ("q2", "cats", "d2", "answer two"), ("q2", "cats", "x2", "c"),
        ("q3", "dogs", "d3", "d"), ("q3", "dogs", "d2", "answer two"), ("q4", "mice", "d4", "e"),
        ("q4", "mice", "x4", "answer two"),
    ]  # fmt: skip
    judged = [("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d3", 1), ("q4", "d4", 1)]
    assert in_batch_negatives(rows, judged, "d1", "d3") == ["b", "d"]
    assert in_batch_negatives(rows, judged, "d1", "d4") == ["b", "e"]
    assert in_batch_negatives(rows, judged, "d1", "d3", "d2", "d4") == ["b", "d", "c", "e"]
    unjudged = [*judged[:1], *judged[2:], ("q2", "x2", 1)]
    assert in_batch_negatives(rows, unjudged, "d1", "d3") == ["b", "d", "answer two"]


def test_a_relevant_document_that_only_another_query_retrieved_has_copies_too():
    rows = [
        ("q1", "cats", "d1", "a"), ("q1", "cats", "x1", "b"), ("q2", "dogs", "d2", "c"), ("q2", "dogs", "copy", "answer"),
        ("q3", "mice", "d3", "d"), ("q3", "mice", "d0", "answer"), ("q4", "owls", "d4", "e"), ("q4", "owls", "x4", "f"),
    ]  # fmt: skip
    judged = [("q1", "d1", 1), ("q2", "d2", 1), ("q3", "d3", 1), ("q4", "d4", 1), ("q1", "d0", 1)]
    assert in_batch_negatives(rows, judged, "d1", "d2") == ["b", "c"]
    assert in_batch_negatives(rows, judged[:-1], "d1", "d2") == ["b", "c", "answer"]


def test_a_copy_is_known_by_its_text_before_augmentation():
    """Rotation cuts each document elsewhere."""
    rows = [
        ("q1", "cats", "d1", "a"), ("q1", "cats", "d1b", "one two three four five six"), ("q1", "cats", "x1", "b"),
        ("q2", "dogs", "d2", "c"), ("q2", "dogs", "copy", "one two three four five six"), ("q3", "owls", "d3", "d"),
        ("q3", "owls", "x3", "e"),
    ]  # fmt: skip
    judged = [("q1", "d1", 1), ("q1", "d1b", 1), ("q2", "d2", 1), ("q3", "d3", 1)]
    assert in_batch_negatives(rows, judged, "d1", "d2", augment=RotatePassages()) == ["b", "c"]
    assert in_batch_negatives(rows, judged, "d1b", "d2", augment=RotatePassages()) == ["b", "c"]


def test_no_accuracy_where_there_is_no_pair():
    scores = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    grades = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    mask = torch.tensor([[True, True], [True, False]])
    assert pair_accuracy(scores, {"mask": mask, "grades": grades}).item() == 1.0
    assert pair_accuracy(scores, {"mask": mask & torch.tensor([[True, False]]), "grades": grades}).isnan()


class Pair(Method):
    """A trained network beside a frozen one, as later methods have it."""

    def __init__(self, trained, frozen):
        super().__init__()
        self.trained, self.frozen = trained.module, frozen.module
        self.frozen.requires_grad_(False)

    def collate(self, examples):
        return {}

    def forward(self, **batch):
        return {}

    def networks(self):
        return {"trained": self.trained}


def test_frozen_networks_keep_their_dropout_off(tiny):
    method = Pair(CrossEncoder(tiny()), CrossEncoder(tiny(seed=1)))
    method.train()
    assert all(part.training for part in method.trained.modules())
    assert not any(part.training for part in method.frozen.modules())
    method.eval()
    assert not any(part.training for part in method.modules())


class Counting(Method):
    """A method that only counts; its buffer tells how often it was asked for its value."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def collate(self, examples):
        return {}

    def forward(self, **batch):
        return {}

    def networks(self):
        return {}


def test_a_count_is_read_from_the_device_once(monkeypatch):
    method, read = Counting(), []
    plain = torch.Tensor.__int__
    monkeypatch.setattr(torch.Tensor, "__int__", lambda tensor: read.append(1) or plain(tensor))
    assert [method.counted("seen", more=1) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert method.counted("seen") == 5 and len(read) == 1
    assert method.state_dict()["seen"].item() == 5
    other = Counting()
    assert other.counted("seen", more=1) == 0
    other.load_state_dict(method.state_dict())
    assert other.counted("seen", more=1) == 5 and other.state_dict()["seen"].item() == 6


def test_fresh_weights_come_from_their_seed_and_no_generator_notices(monkeypatch):
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: pytest.fail("nothing puts a GPU's generator back"))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(3)
        expected = torch.nn.Linear(4, 2).weight
    before = torch.random.get_rng_state()
    with drawn_from(3):
        found = torch.nn.Linear(4, 2).weight
    assert torch.equal(found, expected) and torch.equal(torch.random.get_rng_state(), before)
    with pytest.raises(ZeroDivisionError), drawn_from(3):
        _ = torch.rand(1) / (1 // 0)
    assert torch.equal(torch.random.get_rng_state(), before)
