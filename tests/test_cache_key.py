"""What a stage is known by: equal for what gives equal results, different for what may not."""

import copy
import json
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
import torch

from pyterrier_debias import CETReranker, CrossEncoder, InputError, NeutralReranker, Training
from pyterrier_debias.core.cache_key import cache_key
from pyterrier_debias.core.frames import frame_digest
from pyterrier_debias.core.stage import same_value
from pyterrier_debias.pooling.data.relabel import RelabelReranker
from pyterrier_debias.pooling.data.scores import AddScores
from pyterrier_debias.pooling.measures.hidden import seeded
from pyterrier_debias.pooling.training.negatives import ExcludeNegatives, RankWindow
from tests.pooling.cet_toy import pooled, qrels
from tests.training.toy import candidates, training

exactly = partial(cache_key, exact=True)


@pytest.mark.parametrize("exact", [False, True])
def test_what_a_training_is_known_by(exact):
    known_as = partial(cache_key, exact=exact)
    ranker = CrossEncoder("a/model", training=Training(negatives=RankWindow("pool_rank", last=9)))
    known = known_as(ranker)
    assert known == known_as(copy.deepcopy(ranker)) == known_as(seeded(ranker, 0))
    assert known["training"]["negatives"] == {"object": "RankWindow", "column": "pool_rank", "first": 0, "last": 9}
    # A correction trains with its ranker's options, whoever says so.
    assert known_as(CETReranker(ranker)) == known_as(CETReranker(ranker, training=ranker.training))
    assert known_as(CETReranker(ranker)) != known_as(CETReranker(ranker, training=Training()))
    assert known_as(CETReranker("a/model")) == known_as(CETReranker(CrossEncoder("a/model")))
    for other in (
        CrossEncoder("a/model", training=Training(negatives=RankWindow("pool_rank", last=8))),
        CrossEncoder("a/model", max_length=20, training=ranker.training),
        CrossEncoder("a/model", training=replace(ranker.training, learning_rate=1e-3)),
        RelabelReranker(ranker, len),
        AddScores(ranker) >> ranker,
    ):
        assert known_as(other) != known
    # Neither the seed, which is the comparison's, nor what changes no result.
    assert known_as(CrossEncoder("a/model", device="cpu", training=replace(ranker.training, seed=7, workers=2))) == known
    pairs = [pd.DataFrame({"qid": ["q"], "docno": [d]}) for d in "ab"]
    samplers = [known_as(Training(negatives=ExcludeNegatives(frame))) for frame in pairs]
    assert samplers[0] != samplers[1]
    frame = candidates()
    assert frame_digest(frame) == frame_digest(frame.sample(frac=1, random_state=0)[frame.columns[::-1]])
    assert frame_digest(frame) != frame_digest(frame.assign(rank=1))


def test_the_order_of_a_mapping_counts():
    """Of groups, which decides what a contrast subtracts from what."""
    one, other = {"male": ["he"], "female": ["she"]}, {"female": ["she"], "male": ["he"]}
    assert same_value(one, dict(one)) and not same_value(one, other)
    for known_as in (cache_key, exactly):
        keys = [json.dumps(known_as(NeutralReranker(wordlist=words)), sort_keys=True) for words in (one, dict(one), other)]
        assert keys[0] == keys[1] != keys[2]
    assert NeutralReranker(wordlist=one) == NeutralReranker(wordlist=dict(one)) != NeutralReranker(wordlist=other)


def test_digests_see_all_of_an_array_in_a_cell():
    long = np.arange(1100.0)
    middle, close = long.copy(), np.array([0.1 + 1e-10])
    middle[500] = -7

    def digests(one):
        cells = pd.Series([one, None], dtype=object, name="vector")
        listed = pd.Series([[one], None], name="in a list")
        return [frame_digest(form) for form in (cells, cells.to_frame(), cells.to_numpy(), listed)]

    for one, other in ((long, middle), (np.array([0.1]), close)):
        assert not set(digests(one)) & set(digests(other))
        assert digests(one) == digests(one.copy())


# Functions

HALF = 0.5


def above(row):
    return float(row["x"] > HALF)


def through(row):
    return above(row)


def made_with(value, *, default=0):
    def inner(row, other=default):
        return [one + value for one in row]

    return inner


class Judge:
    def __init__(self, level):
        self.level = level

    def ask(self, row):
        return row["x"] > self.level

    __call__ = ask


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda row: 1, lambda row: 2),
        (lambda row: 1, lambda row: 1.0),
        (lambda row: len(row), lambda row: sum(row)),
        (lambda row: [x for x in row if x > 1], lambda row: [x for x in row if x > 2]),
        (lambda row: row in {"a", "b"}, lambda row: row in {"a", "c"}),
        (made_with(1), made_with(2)),
        (made_with(np.zeros(2)), made_with(np.ones(2))),
        (made_with(1), made_with(1, default=1)),
        (partial(above, 1), partial(above, 2)),
        (partial(above, x=1), partial(above, y=1)),
        (Judge(1).ask, Judge(2).ask),
        (Judge(1), Judge(2)),
        (len, sum),
    ],
)
def test_functions_are_known_by_what_they_compute(one, other):
    assert exactly(one) != exactly(other)
    for function in (one, other):
        assert exactly(function) == exactly(copy.deepcopy(function))
        json.dumps(exactly(function))
    assert exactly(pt.apply.doc_score(one)) != exactly(pt.apply.doc_score(other))
    assert exactly(AddScores(pt.apply.generic(one))) != exactly(AddScores(pt.apply.generic(other)))


class Prompted:
    """Prints less than what it does, as a user's judge may."""

    threshold = 0.5

    def __init__(self, prompt):
        self.prompt = prompt

    def __repr__(self):
        return "Prompted(a model)"

    def __call__(self, row, least=1):
        return row["x"] > HALF


def other_class(**attributes):
    return type("Prompted", (Prompted,), {"__module__": __name__, "__qualname__": "Prompted", **attributes})


def test_objects_are_known_by_all_that_they_compute_with(monkeypatch):
    known = exactly(Prompted("is it relevant?"))
    assert known == exactly(Prompted("is it relevant?")) == exactly(copy.deepcopy(Prompted("is it relevant?")))
    assert known != exactly(Prompted("is it an answer?"))
    json.dumps(known)
    kinds = [other_class(threshold=0.5), other_class(threshold=0.9), other_class(__call__=lambda self, row, least=1: 0)]
    kinds += [other_class(__call__=lambda self, row, least=2: 0)]
    keys = [json.dumps(exactly(kind("is it relevant?"))) for kind in kinds]
    assert len(set(keys)) == 4 and keys[0] == json.dumps(exactly(other_class(threshold=0.5)("is it relevant?")))
    monkeypatch.setitem(globals(), "HALF", 0.6)
    assert exactly(Prompted("is it relevant?")) != known


def test_objects_of_libraries_are_known_by_what_they_hold(tmp_path):
    from scipy import sparse
    from sklearn.linear_model import LogisticRegression

    x = np.array([[0.0], [1.0], [2.0], [3.0]])
    for one, other in (
        *[[LogisticRegression().fit(x, y) for y in ([0, 0, 1, 1], [1, 0, 0, 1])]],
        [sparse.csr_matrix(x), sparse.csr_matrix(2 * x)],
        [pd.Index(["a"]), pd.Index(["b"])],
        [pd.array([1, None]), pd.array([2, None])],
        [tmp_path / "a", tmp_path / "b"],
        [torch.device("cpu"), torch.device("meta")],
        [range(2), range(3)],
    ):
        str(one), hash(type(one))
        assert exactly(Judge(one)) == exactly(Judge(copy.deepcopy(one))) != exactly(Judge(other))
        json.dumps(exactly(Judge(one)))


def test_functions_are_the_same_wherever_they_are_written():
    one, other = [(lambda row: 1 + HALF) for _ in range(2)]
    assert one is not other and exactly(one) == exactly(other)
    assert exactly(made_with(1)) == exactly(made_with(1))


def test_functions_are_known_by_what_they_read_of_their_module(monkeypatch):
    before = [exactly(function) for function in (above, through, Judge(1).ask)]
    monkeypatch.setitem(globals(), "HALF", 0.6)
    after = [exactly(function) for function in (above, through, Judge(1).ask)]
    assert [a != b for a, b in zip(before, after)] == [True, True, False]


def test_what_holds_itself_comes_to_an_end():
    def recursive(n):
        return 1 if n == 0 else n * recursive(n - 1)

    loop = Judge(1)
    loop.level = [loop]
    for value in (recursive, loop, through):
        json.dumps(exactly(value))


def test_functions_of_this_package_are_known_by_their_names():
    assert exactly(frame_digest) == cache_key(frame_digest) == "pyterrier_debias.core.frames.frame_digest"


# Objects that are not of this package


class Teacher(pt.Transformer):
    """Like many: nothing of it is printed."""

    def __init__(self, level, model=None, *, batch_size=4):
        self.level, self.model, self.batch_size = level, model, batch_size
        self.device, self.verbose = torch.device("cpu"), True

    def transform(self, inp):
        return inp.assign(score=self.level)


class OtherTeacher(Teacher):
    def transform(self, inp):
        return inp.assign(score=2 * self.level)


def test_foreign_stages_are_known_by_what_they_hold_and_do():
    known = exactly(Teacher(1))
    assert known == exactly(copy.deepcopy(Teacher(1)))
    again = Teacher(1)
    again.device, again.verbose = "cuda", False
    assert exactly(again) == known
    for other in (Teacher(2), Teacher(1, batch_size=8), OtherTeacher(1), Teacher(1, "model")):
        assert exactly(other) != known
    assert exactly(Teacher(1) >> Teacher(2)) == [exactly(Teacher(1)), exactly(Teacher(2))]
    frames = [pd.DataFrame({"qid": ["1"], "docno": ["d"], "score": [score]}) for score in (1.0, 2.0)]
    one, other = (exactly(pt.Transformer.from_df(frame)) for frame in frames)
    assert one != other
    # What it prints is all that is asked of others.
    assert cache_key(Teacher(1)) == cache_key(Teacher(2))


def test_networks_are_known_by_their_weights():
    one = torch.nn.Linear(2, 1)
    other = copy.deepcopy(one)
    assert exactly(Teacher(1, one)) == exactly(Teacher(1, other))
    with torch.no_grad():
        other.weight[0, 0] += 1e-6
    assert exactly(Teacher(1, one)) != exactly(Teacher(1, other))
    assert exactly(torch.zeros(2)) != exactly(torch.zeros(3)) != exactly(torch.ones(3))


@dataclass
class Named:
    name: str


class Fingerprinted:
    def __init__(self, name):
        self.name, self.secret = name, object()

    def fingerprint(self):
        return self.name


class Java:
    """Prints as pyjnius' objects do."""

    def __init__(self, text):
        self.text, self.handle = text, object()

    def toString(self):  # noqa: N802
        return self.text


@pytest.mark.parametrize("kind", [Named, Fingerprinted, Java])
def test_objects_that_say_what_they_are(kind):
    one, same, other = (exactly(Teacher(1, kind(name))) for name in ("a", "a", "b"))
    assert one == same != other
    assert exactly(Java("org.terrier.Index@1f2e")) == exactly(Java("org.terrier.Index@77"))


class OfAnIndexInMemory(pt.Transformer):
    """Prints its index, and holds nothing that Python sees, as Terrier's retrievers do."""

    def __repr__(self):
        return "TerrierRetr(MemoryIndex,{'wmodel': 'BM25'})"

    def __getstate__(self):
        return {}

    def transform(self, inp):
        return inp


@pytest.mark.parametrize("stage", [Teacher(1, Java("MemoryIndex")), OfAnIndexInMemory()], ids=["loader", "retriever"])
def test_an_index_in_memory_is_not_told_from_another(stage):
    with pytest.raises(InputError, match="index into a folder, or leave checkpoint out"):
        exactly(AddScores(stage))


# numpy 1 pickles a generator with its state.
says_state = pytest.mark.skipif(np.random.default_rng(0).__reduce__()[2] is not None, reason="a generator says what it is")


@pytest.mark.parametrize("model", [object(), pytest.param(np.random.default_rng(0), marks=says_state), iter([1])])
def test_an_address_is_not_enough(model):
    with pytest.raises(InputError, match=r"only its address.*fingerprint\(\)"):
        exactly(Teacher(1, model))
    cache_key(Teacher(1, model))


def test_a_fitted_correction_is_known_by_its_weights(tiny):
    rankers = [
        CETReranker(CrossEncoder(tiny()), selection="lexical", training=training(max_steps=steps)) for steps in (1, 2)
    ]
    known = [cache_key(replace_training(ranker)) for ranker in rankers]
    assert known[0] == known[1]
    for ranker in rankers:
        ranker.fit(pooled(), qrels())
    known = [cache_key(replace_training(ranker)) for ranker in rankers]
    assert known[0] != known[1] and known[0] == cache_key(copy.deepcopy(replace_training(rankers[0])))


def replace_training(stage):
    stage = copy.copy(stage)
    stage.training = Training()
    return stage


class Shown:
    """Prints a set, whose members come in another order in each process."""

    def __init__(self, words):
        self.words = words

    def __repr__(self):
        return f"Shown({self.words!r})"


def test_sets_in_a_printed_form_count_in_one_order():
    one, other, third = (AddScores(Shown(frozenset(words))) for words in ([0, 8], [8, 0], [0, 9]))
    for known in (cache_key, exactly):
        assert known(one) == known(other) != known(third)
