"""Known propensities: unbiased by simulation, against the loss over all pairs; and what training makes of them."""

import numpy as np
import pytest
import torch

from pyterrier_debias import BiEncoder, InputError, Training
from pyterrier_debias.pooling.formulas.cet_weights import pair_losses
from pyterrier_debias.pooling.formulas.propensities import inverse_propensity_weights
from pyterrier_debias.pooling.training.propensities import KnownPropensities
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.losses import ranknet
from tests import tiny_models
from tests.training.networks import difference, weights
from tests.training.toy import candidates, qrels, training

RELEVANT = np.array([1, 1, 1, 0, 0, 0, 0], dtype=bool)
#: The relevant documents that score low are seldom seen: what a pool does.
CHANCES = np.array([0.9, 0.3, 0.2, 0.8, 0.7, 0.3, 0.2])
SCORES = np.array([2.0, -1.0, -0.5, 1.0, 0.5, -1.0, -2.0])


def losses():
    """The loss of each pair, shape [i, j], by the library's own function."""
    rows = [pair_losses(torch.tensor(np.concatenate([[score], SCORES])[None]))[0].numpy() for score in SCORES]
    return np.array(rows)


def of_draw(drawn, negatives, weighted):
    """The sum of the losses over the pairs that a draw shows."""
    i = np.flatnonzero(drawn & RELEVANT)
    if negatives == "selected":
        j = np.flatnonzero(drawn & ~RELEVANT)
    else:
        j = np.arange(len(SCORES))
    found = losses_[np.ix_(i, j)]
    if not weighted:
        return found.sum()
    own = inverse_propensity_weights(CHANCES[i][:, None], CHANCES[j][None], negatives=negatives)
    return (own * found).sum()


losses_ = losses()


@pytest.mark.parametrize("negatives", ["selected", "given"])
def test_the_weighted_sum_is_unbiased(negatives):
    """The mean over many draws is the loss of full information within its standard error; the plain sum is far from it."""
    others = ~RELEVANT if negatives == "selected" else np.ones(len(SCORES), dtype=bool)
    full = losses_[np.ix_(RELEVANT, others)].sum()
    draws = np.random.default_rng(7).random((4000, len(SCORES))) < CHANCES
    sums = np.array([[of_draw(drawn, negatives, weighted) for weighted in (True, False)] for drawn in draws])
    error = sums.std(axis=0, ddof=1) / np.sqrt(len(draws))
    assert abs(sums[:, 0].mean() - full) < 3 * error[0] < 0.1 * full
    assert abs(sums[:, 1].mean() - full) > 20 * error[1]


def test_a_bound_on_propensities_bounds_the_weights_and_is_a_bias():
    found = inverse_propensity_weights(np.array([0.01, 0.5]), np.array([1.0, 0.01]), least=0.1)
    np.testing.assert_allclose(found, [10, 20])


def test_what_is_no_propensity_is_refused():
    ok = np.array([0.5])
    for chances in ([0.0], [1.5], [np.nan]):
        with pytest.raises(InputError, match="a negative has the propensity"):
            inverse_propensity_weights(ok, np.array(chances))
        with pytest.raises(InputError, match="a positive has the propensity"):
            inverse_propensity_weights(np.array(chances), ok)
        # What was not selected, or does not count, may have any.
        assert inverse_propensity_weights(ok, np.array(chances), np.array([False])).tolist() == [0]
        assert inverse_propensity_weights(ok, np.array(chances), negatives="given").tolist() == [2]
    with pytest.raises(InputError, match="negatives"):
        KnownPropensities(negatives="all")
    with pytest.raises(InputError, match="least"):
        KnownPropensities(least=2)


@pytest.mark.parametrize("more", [{"loss": "ranknet", "positives": "all"}, {"loss": "infonce", "in_batch_negatives": True}])
def test_pairs_that_have_other_weights_are_refused(more):
    with pytest.raises(InputError, match="KnownPropensities weights pairs of one positive and its own negatives; use it with"):
        Training(weights=KnownPropensities(), **more)


@pytest.mark.parametrize("mark", [np.nan, None, "False", 0.5, 2])
def test_what_is_neither_true_nor_false_is_refused(mark):
    """Each of them would count as selected."""
    with pytest.raises(InputError, match=r"selected holds .*; it must be True or False \(or 1 or 0\)"):
        inverse_propensity_weights(np.array([0.5]), np.array([0.5, 0.5]), np.array([True, mark], dtype=object))
    given = frame().astype({"selected": object})
    groups = make_groups(given.assign(selected=[*given["selected"][:-1], mark]), qrels(), stage="test")
    group = groups.groups[-1]
    with pytest.raises(InputError, match=r"KnownPropensities: column 'selected' is .* at row \d+ \(qid='.*', docno='.*'\)"):
        KnownPropensities().weigh(groups, group, np.array([group.positives[0], len(given) - 1]))


def test_marks_may_be_numbers():
    marks = frame()["selected"]
    numbered = make_groups(frame().assign(selected=marks.astype(float)), qrels(), stage="test")
    plain = make_groups(frame(), qrels(), stage="test")
    rows = np.array([plain.groups[0].positives[0], *plain.groups[0].pool])
    found = [KnownPropensities().weigh(groups, groups.groups[0], rows).tolist() for groups in (plain, numbered)]
    assert found[0] == found[1]


def frame():
    """Candidates of which every other was selected, with the same propensity each."""
    found = candidates()
    number = found.groupby("qid").cumcount()
    return found.assign(propensity=np.where(number % 2, 0.25, 0.5), selected=number % 2 == 0)


def test_weights_of_training_pairs():
    groups = make_groups(frame(), qrels(), stage="test")
    group = groups.groups[0]
    rows = np.array([group.positives[0], *group.pool[:3]])
    found = KnownPropensities().weigh(groups, group, rows)
    chances, seen = (np.array(groups.column(name))[rows] for name in ("propensity", "selected"))
    by_hand = [1 / (chances[0] * chance) if mark else 0 for chance, mark in zip(chances[1:], seen[1:])]
    assert found.tolist() == [1, *by_hand] and 0 in by_hand
    # A loss of pairs takes them as they are.
    scores = torch.tensor([[1.0, 0.5, 2.0, -1.0]])
    each = torch.nn.functional.softplus(scores[0, 1:] - scores[0, 0])
    weighted = ranknet(scores, weights=torch.tensor(found[None], dtype=torch.float32))
    assert weighted.item() == pytest.approx((each.numpy() * by_hand).sum() / 3, rel=1e-6)
    for column, message in (("nothing", "no column 'nothing'"), ("text", "column 'text' holds no numbers")):
        with pytest.raises(InputError, match=message):
            KnownPropensities(column).weigh(groups, group, rows)
    never = make_groups(frame().assign(propensity=0.0), qrels(), stage="test")
    with pytest.raises(InputError, match=r"query 'q\w+': .* it must be above 0"):
        KnownPropensities().weigh(never, never.groups[0], rows)


def test_a_ranker_trains_by_them(tmp_path):
    model = str(tiny_models.build_sentence_transformer(tmp_path / "model"))

    def run(data, **options):
        options = {"max_steps": 2, "negatives_per_positive": 2, **options}
        return weights(BiEncoder(model, training=training(**options)).fit(data, qrels()))

    certain = frame().assign(propensity=1.0, selected=True)
    plain = run(certain)
    assert difference(plain, run(certain, weights=KnownPropensities())) == 0
    assert difference(plain, run(frame(), weights=KnownPropensities())) > 0
