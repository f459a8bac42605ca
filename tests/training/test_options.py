"""The options object."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from ir_measures import nDCG

from pyterrier_debias import ARaB, CrossEncoder, InputError, RotatePassages, Training
from pyterrier_debias.training.losses import ranknet


def of_its_own(scores, *, labels=None, mask=None, weights=None, tau):
    return scores.mean() * tau


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hingee"}, "loss='hingee' is not known"),
        ({"epochs": 0}, "epochs=0 must be a number above 0"),
        ({"max_steps": 0}, "max_steps=0 must be a whole number of at least 1"),
        ({"batch_size": 1.5}, "batch_size=1.5 must be a whole number"),
        ({"accumulation": True}, "accumulation=True"),
        ({"workers": -1}, "workers=-1 must be a whole number of at least 0"),
        ({"min_label": 0}, "min_label=0"),
        ({"learning_rate": 3}, "learning_rate=3 must be a number above 0 and at most"),
        ({"learning_rate": {"ranker": -1e-5}}, "learning_rate=-1e-05"),
        ({"warmup": -1}, "warmup=-1 must be a number of at least 0"),
        ({"clip": 0}, "clip=0 must be a number above 0"),
        ({"precision": "int8"}, "precision='int8' is not known; use one of None, 'float32', 'tf32', 'bfloat16', 'float16'"),
        ({"schedule": "step"}, "schedule='step'"),
        ({"positives": "two"}, "positives='two'"),
        ({"positives": "all"}, r"positives='all' needs .* \(ranknet, softmax, bce, lambda\), not 'pairwise'"),
        ({"positives": "all", "loss": "bce", "in_batch_negatives": True}, "in_batch_negatives needs positives='one'"),
        ({"negatives_per_positive": 0}, "negatives_per_positive=0 needs in_batch_negatives=True"),
        ({"rerank_depth": [10, 0]}, "rerank_depth"),
        ({"seed": -1}, "seed=-1 must be a whole number of at least 0"),
        ({"seed": 2**32}, "seed=4294967296 must be a whole number"),
        ({"seed": 1.5}, "seed=1.5 must be a whole number"),
        ({"seed": None}, "seed=None must be a whole number"),
        ({"negatives": "uniform"}, "negatives='uniform' has no method sample"),
        ({"weights": "column"}, "weights='column' has no method weigh"),
        ({"augment": 3}, "augment=3 has no method rotator"),
        ({"resume": True}, "resume=True needs checkpoints"),
        ({"log_to": "tensorboard"}, "needs checkpoints"),
        ({"log_to": "wandb", "checkpoints": "c"}, "log_to='wandb' is not known"),
        ({"metric": "nDCGG@10"}, "nDCGG@10"),
        ({"metric": ["nDCG@10"]}, r"metric=\['nDCG@10'\] is not a measure; name one, such as 'nDCG@10'"),
        ({"metric": ARaB @ 10}, "metric=ARaB@10 does not read relevance, so its largest value is not the best; use"),
        ({"metric": None}, "metric=None is not a measure; name one"),
        ({"loss": "hinge", "loss_options": {"margn": 1}}, "loss 'hinge' has no option 'margn'; it has margin, reduction: corr"),
        ({"loss_options": {"margin": 1}}, "loss 'pairwise' has no option 'margin'; it has reduction: correct loss_options"),
        ({"loss": "hinge", "loss_options": {"weights": 1}}, "'hinge' has no option 'weights'"),
        ({"loss": of_its_own, "loss_options": {"tua": 1}}, "loss 'of_its_own' has no option 'tua'; it has tau"),
        ({"loss_options": 5}, "loss_options=5 is not a mapping; write e.g. loss_options={'reduction': 'weights'}"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(options, message):
    with pytest.raises(InputError, match=message):
        Training(**options)


def test_losses_and_measures_of_ones_own_are_taken():
    def anything(scores, **options):
        return scores.mean()

    half = partial(of_its_own, tau=0.5)
    for loss, options in ((of_its_own, {"tau": 2}), (half, {"tau": 3}), (anything, {"a": 1}), (max, {"key": 1})):
        assert dict(Training(loss=loss, loss_options=options).loss_options) == options
    assert Training(metric=nDCG @ 5).metric == nDCG @ 5


def test_it_is_a_value():
    assert Training(loss="hinge") == Training(loss="hinge") != Training()
    options = {"loss": "hinge", "loss_options": {"margin": 1}}
    assert hash(Training(**options)) == hash(Training(**options))
    with pytest.raises(AttributeError):
        Training().seed = 2
    assert repr(Training(seed=3, augment=RotatePassages(seed=1))) == "Training(augment=RotatePassages(seed=1), seed=3)"
    assert replace(Training(), epochs=3).epochs == 3


def test_its_description_is_json():
    about = Training(loss=ranknet, loss_options={"sigma": 2.0}, augment=RotatePassages(), rerank_depth=[10, 20]).describe()
    assert json.loads(json.dumps(about)) == about
    assert about["loss"] == "pyterrier_debias.training.losses.ranknet"
    assert about["negatives"] == "UniformNegatives()"
    assert about["augment"] == "RotatePassages()"
    assert about["rerank_depth"] == [10, 20]


def test_numbers_of_numpy_are_pythons_own():
    numbers = {"seed": np.int64(3), "epochs": np.float32(1.5), "rerank_depth": (np.int64(2), 4), "resume": np.False_}
    training = Training(learning_rate={"ranker": np.float32(0.25)}, loss=np.str_("hinge"), **numbers)
    same = Training(learning_rate={"ranker": 0.25}, loss="hinge", seed=3, epochs=1.5, rerank_depth=(2, 4))
    assert training == same and repr(training) == repr(same) and training.record() == same.record()
    assert {type(value) for value in (training.seed, training.epochs, *training.depths(), training.resume)} == {int, float, bool}
    json.dumps(training.describe())
    with pytest.raises(InputError, match="rerank_depth=array"):
        Training(rerank_depth=np.array([2, 4]))


class Mine:
    """A sampler, a loss and a weight without a repr."""

    def __init__(self, n):
        self.n = n

    def sample(self, groups, group, positive, n, *, seed, epoch):
        return group.pool[: self.n]

    def weigh(self, groups, group, rows):
        return 1.0

    def __call__(self, scores, *, labels=None, mask=None, weights=None):
        return scores.mean()


@pytest.mark.parametrize(
    ("option", "make"),
    [
        ("negatives", Mine),
        ("weights", Mine),
        ("loss", Mine),
        ("loss", lambda n: partial(ranknet, sigma=n)),
        ("loss", lambda n: Mine(n).__call__),
        ("loss_options", lambda n: {"reduction": Mine(n)}),
    ],
)
def test_objects_of_the_users_are_recorded_by_what_they_are(option, make):
    """A resumed run has other objects at other places in memory, and they are the same options."""
    here, again, other = (Training(**{option: make(n)}) for n in (1.0, 1.0, 2.0))
    assert here.record() == again.record() != other.record()
    assert json.loads(json.dumps(here.record())) == here.record()
    assert "0x" not in json.dumps(here.describe()) + repr(here)
    assert repr(here) == repr(again) != repr(other)


def test_it_plays_no_part_in_a_rankers_identity():
    plain, trained = CrossEncoder("a-model"), CrossEncoder("a-model", training=Training(epochs=3))
    assert plain == trained
    assert repr(trained) == "CrossEncoder('a-model', training=Training(epochs=3))"
