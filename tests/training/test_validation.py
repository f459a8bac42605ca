"""Validation candidates: depths count places, however ranks are written."""

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import InputError
from pyterrier_debias.training.validation import Validation
from tests.training.toy import candidates, qrels


def measured(frame, depths, scores=None):
    found = Validation(frame, qrels(), frame["text"].tolist(), metric="RR@10", depths=depths, stage="fit")
    return found.measure(frame["score"].to_numpy() if scores is None else scores)


def test_values_at_each_depth_by_hand():
    """Places 4 and 5 are relevant. Re-ranked by place, the last first: the first 5 bring place 4 up, the first 4 nothing."""
    frame = candidates()
    places = frame["rank"].to_numpy(dtype=float)
    for depth, expected in ((6, 1.0), (5, 1.0), (4, 1 / 5), (1, 1 / 5)):
        values, chosen = measured(frame, [depth], places)
        assert chosen == depth
        assert values.tolist() == [expected] * 8
    assert measured(frame, [2, 5, 6], places)[1] == 5


def test_judgements_that_give_every_order_0_are_refused():
    frame, found = candidates(), qrels()
    message = r"fit: RR@10 of the validation candidates is 0 in any order, so validation cannot choose .* check that some"
    for judged, metric in (
        (found.assign(label=0), "RR@10"),
        (found.assign(docno=found["docno"] + "x"), "RR@10"),
        (found, "RR(rel=3)@10"),
    ):
        with pytest.raises(InputError, match=message.replace("RR@10", metric.replace("(", r"\(").replace(")", r"\)"))):
            Validation(frame, judged, frame["text"].tolist(), metric=metric, depths=None, stage="fit")
    one = found.assign(label=[1] + [0] * (len(found) - 1))
    assert len(Validation(frame, one, frame["text"].tolist(), metric="RR@10", depths=None, stage="fit")) == 8


@pytest.mark.parametrize("ranks", [lambda rank: rank + 1, lambda rank: 3 * rank + 7, lambda rank: rank / 10])
def test_ranks_may_begin_anywhere(ranks):
    frame = candidates()
    scores = np.random.default_rng(3).random(len(frame))
    for depth in (1, 3, 5):
        expected = measured(frame, [depth], scores)[0]
        pd.testing.assert_series_equal(measured(frame.assign(rank=ranks(frame["rank"])), [depth], scores)[0], expected)


def test_the_order_of_rows_is_no_matter():
    frame = candidates().assign(score=np.random.default_rng(3).random(48))
    mixed = frame.sample(frac=1, random_state=2)
    pd.testing.assert_series_equal(measured(mixed, [3])[0].sort_index(), measured(frame, [3])[0].sort_index())


def test_ranks_that_are_missing_are_named():
    with pytest.raises(InputError, match=r"fit: column 'rank' is NaN"):
        measured(candidates().assign(rank=[np.nan] + [0.0] * 47), [3])


def passages(frame, scores):
    """Each document in two passages; the second has the given score, the first a lower one, and both the document's rank."""
    first = frame.assign(docno=frame["docno"] + "%p0", score=np.asarray(scores) - 0.5)
    return pd.concat([first, frame.assign(docno=frame["docno"] + "%p1", score=scores)], ignore_index=True)


@pytest.mark.parametrize("depth", [1, 3, 5, 6, None])
def test_passages_count_as_their_documents_with_the_best_of_their_scores(depth):
    """As behind pt.text.max_passage; a depth counts documents, not passages."""
    scores = np.random.default_rng(3).random(48)
    whole = measured(candidates(), None if depth is None else [depth], scores)
    cut = passages(candidates(), scores)
    found = measured(cut, None if depth is None else [depth], cut["score"].to_numpy())
    pd.testing.assert_series_equal(found[0], whole[0])
    assert found[1] == whole[1]


def test_the_fingerprint_knows_ranks_where_a_depth_is_chosen():
    def print_of(frame, depths):
        return Validation(frame, qrels(), frame["text"].tolist(), metric="RR@10", depths=depths, stage="fit").fingerprint()

    frame = candidates()
    mixed, reversed_ = frame.sample(frac=1, random_state=2), frame.assign(rank=5 - frame["rank"])
    assert print_of(frame, [2]) == print_of(mixed, [2]) == print_of(frame.assign(rank=frame["rank"] + 1), [2])
    assert print_of(frame, [2]) != print_of(reversed_, [2])
    assert print_of(frame, None) == print_of(reversed_, None)
