"""Samplers, weights, and the order and content of examples."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import ColumnWeights, InputError, RotatePassages, Training
from pyterrier_debias.training.examples import Examples
from pyterrier_debias.training.groups import make_groups
from pyterrier_debias.training.samplers import Sampler, UniformNegatives
from pyterrier_debias.training.weights import ExampleWeights
from tests.training.toy import candidates, qrels


def examples(frame=None, length=32, **options):
    groups = make_groups(candidates() if frame is None else frame, qrels(), stage="fit")
    return Examples(groups, Training(**options), length)


def shown(made):
    return [(e.epoch, e.qid, tuple(e.docnos), tuple(e.texts)) for e in made]


def test_each_positive_is_shown_once_an_epoch_with_negatives_from_its_pool():
    made = [examples(negatives_per_positive=3)[i] for i in range(32)]
    assert [e.epoch for e in made] == [0] * 16 + [1] * 16
    for epoch in (made[:16], made[16:]):
        assert Counter(e.docnos[0] for e in epoch) == Counter(qrels()["docno"])
    for example in made:
        number = example.qid[1:]
        assert example.docnos[0] in (f"d{number}-4", f"d{number}-5")
        assert len(set(example.docnos)) == 4
        assert set(example.docnos[1:]) < {f"d{number}-{place}" for place in range(4)}
        assert example.labels.tolist() == [int(example.docnos[0][-1]) - 3, 0, 0, 0]
        assert example.relevant == {f"d{number}-4", f"d{number}-5"}
        assert example.weights.tolist() == 1


def test_nothing_depends_on_the_order_of_rows_or_of_access():
    made = examples(augment=RotatePassages())
    forward = [made[i] for i in range(32)]
    shuffled = examples(candidates().sample(frac=1, random_state=3), augment=RotatePassages())
    backward = [shuffled[i] for i in reversed(range(32))][::-1]
    assert shown(forward) == shown(backward)


def test_epochs_and_seeds_differ():
    first, second = ([examples(length=64)[i] for i in range(start, start + 16)] for start in (0, 16))
    assert [e.docnos[0] for e in first] != [e.docnos[0] for e in second]
    negatives = [{e.docnos[0]: e.docnos[1] for e in part} for part in (first, second)]
    assert negatives[0] != negatives[1]
    other = [examples(length=64, seed=1)[i] for i in range(16)]
    assert [e.docnos[0] for e in other] != [e.docnos[0] for e in first]


def test_uniform_negatives_are_uniform():
    made = examples(length=16 * 250)
    drawn = Counter(made[i].docnos[1][-1] for i in range(len(made)))
    expected = len(made) / 4
    chi = sum((drawn[place] - expected) ** 2 / expected for place in "0123")
    assert chi < 16.3  # the .001 quantile of chi square with 3 degrees of freedom


def test_a_small_pool_gives_what_it_has():
    frame = candidates()[lambda f: ~f["docno"].str.endswith(("-1", "-2", "-3"))]
    assert {len(examples(frame, negatives_per_positive=5)[i].docnos) for i in range(16)} == {2}


def test_augmentation_draws_anew_in_each_epoch_and_leaves_queries_alone():
    rotate = RotatePassages(seed=4)
    made = examples(augment=rotate, length=48)
    texts = candidates().set_index("docno")["text"]
    for example in (made[i] for i in range(48)):
        expected = [rotate.rotator(draw=example.epoch)(texts[d], d)[0] for d in example.docnos]
        assert example.texts == expected
        assert example.query.startswith("where is the")
    assert len({made[i].texts[0] for i in range(48) if made[i].docnos[0] == "d0-4"}) > 1


def test_fields_are_joined_and_only_the_named_one_is_augmented():
    frame = candidates().assign(title="a b c")
    groups = make_groups(frame, qrels(), text_columns=("title", "text"), stage="fit")
    made = Examples(groups, Training(augment=RotatePassages()), 16)
    assert all(text.startswith("a b c ") for i in range(16) for text in made[i].texts)
    with pytest.raises(InputError, match="changes column 'body', but the ranker reads title, text"):
        Examples(groups, Training(augment=RotatePassages(text_field="body")), 16)


def test_all_positives_of_a_query_in_one_example():
    made = examples(positives="all", loss="lambda", negatives_per_positive=2, length=8)
    assert sorted(made[i].qid for i in range(8)) == [f"q{n}" for n in range(8)]
    for example in (made[i] for i in range(8)):
        assert [docno[-1] for docno in example.docnos[:2]] == ["4", "5"]
        assert example.labels[:2].tolist() == [1, 2]
        assert not example.labels[2:].any()
        assert len(set(example.docnos)) == len(example.docnos)
        assert 2 <= len(example.docnos) - 2 <= 4


class Deepest:
    """Negatives in the order of a column."""

    def sample(self, groups, group, positive, n, *, seed, epoch):
        ranks = groups.column("rank")
        return sorted(group.pool, key=lambda row: -ranks[row])[:n]


class Wrong:
    def __init__(self, rows):
        self.rows = rows

    def sample(self, groups, group, positive, n, *, seed, epoch):
        return self.rows(group)


def test_other_samplers_join_by_one_method():
    assert isinstance(Deepest(), Sampler)
    assert isinstance(UniformNegatives(), Sampler)
    assert examples(negatives=Deepest(), negatives_per_positive=2)[0].docnos[1][-2:] == "-3"
    with pytest.raises(InputError, match=r"draws documents outside of the pool for query 'q\d'"):
        examples(negatives=Wrong(lambda group: group.positives))[0]
    with pytest.raises(InputError, match=r"draws no negatives for query 'q\d'"):
        examples(negatives=Wrong(lambda group: []))[0]


def test_weights_from_columns():
    frame = candidates().assign(ease=lambda f: f["qid"].str[1:].astype(float), trust=lambda f: f["rank"] / 10)
    assert isinstance(ColumnWeights("ease"), ExampleWeights)
    example = examples(frame, weights=ColumnWeights("ease"))[0]
    assert example.weights.tolist() == float(example.qid[1:])
    example = examples(frame, weights=ColumnWeights("trust", per="document"))[0]
    assert np.allclose(example.weights, [int(docno[-1]) / 10 for docno in example.docnos])
    # Of a query it is the positive's, whatever the others have; 0 is a weight.
    example = examples(frame, weights=ColumnWeights("trust"))[0]
    assert example.weights.tolist() == pytest.approx(int(example.docnos[0][-1]) / 10)
    assert examples(frame.assign(trust=0.0), weights=ColumnWeights("trust", per="document"))[0].weights.tolist() == [0.0] * 2
    # What is told is the first that is none, not one of 0 or .5 before it.
    odd = frame.assign(trust=[0.0 if docno[-1] == "4" else -2.0 for docno in frame["docno"]])
    with pytest.raises(InputError, match=r"the weight -2\.0"):
        examples(odd, weights=ColumnWeights("trust", per="document"))[0]
    with pytest.raises(InputError, match=r"^training: the candidates have no column 'trsut', which an option"):
        examples(frame, weights=ColumnWeights("trsut"))[0]


@pytest.mark.parametrize(
    ("value", "message"), [(-1.0, "weight -1.0; weights must"), (np.inf, "inf"), (np.nan, "nan"), ("a", "not numbers")]
)
def test_weights_that_are_none(value, message):
    with pytest.raises(InputError, match=message):
        examples(candidates().assign(w=value), weights=ColumnWeights("w"))[0]
    with pytest.raises(InputError, match="no column 'other'"):
        examples(weights=ColumnWeights("other"))[0]
    with pytest.raises(InputError, match="per='pair'"):
        ColumnWeights("w", per="pair")


def test_the_relevant_documents_of_a_query_are_read_once_for_all_its_examples():
    read = []

    def first_words(text):
        read.append(text)
        return " ".join(text.split()[:3])

    groups = make_groups(candidates(), qrels(), stage="fit")
    made = Examples(groups, Training(in_batch_negatives=True), 32, read=first_words)
    whole = dict(zip(candidates()["docno"], candidates()["text"]))
    for example in (made[i] for i in range(32)):
        assert example.answers == {" ".join(whole[docno].split()[:3]) for docno in example.relevant}
    # Each example's own positive and negative, and for each of the eight queries its two positives.
    assert len(read) == 32 * 2 + 8 * 2


def test_epochs_run_into_each_other_without_a_short_batch():
    made = examples(pd.concat([candidates()]), length=40)
    assert [made[i].epoch for i in range(40)] == [0] * 16 + [1] * 16 + [2] * 8
