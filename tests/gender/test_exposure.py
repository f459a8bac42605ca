"""AWRF and expected exposure against literal loops, all ideal rankings, and scipy."""

import itertools
import math

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.distance import jensenshannon

from pyterrier_debias.core.errors import InputError
from pyterrier_debias.gender.formulas import exposure
from pyterrier_debias.gender.measures.exposure import AWRF, ExpectedExposure
from tests.gender.rankings import CORPUS, ONE, QRELS, TEXTS, TOPICS, frame

# Words of the five texts: male, female.
COUNTS = {"d1": (3, 0), "d2": (0, 2), "d3": (0, 0), "d4": (2, 3), "d5": (0, 1)}


def per_query(measure, run=None, qrels=QRELS, **options):
    run = frame(ONE) if run is None else run
    found = pt.Experiment([pt.Transformer.from_df(run)], TOPICS, qrels, [measure], perquery=True, verbose=False, **options)
    return found.set_index("qid").loc[["1", "2", "3"], "value"].tolist()


def awrf_by_loops(docnos, target, cutoff, discount):
    got = [0.0, 0.0]
    for rank, docno in enumerate(docnos[:cutoff], start=1):
        weight = 1 / math.log2(max(rank, 2)) if discount == "trec" else 1 / math.log2(rank + 1)
        words = sum(COUNTS[docno])
        for group in (0, 1):
            got[group] += weight * COUNTS[docno][group] / words if words else 0.0
    return 1 - jensenshannon(got, target, base=2) ** 2 if sum(got) else math.nan


@pytest.mark.parametrize("discount", ["trec", "dcg"])
@pytest.mark.parametrize(
    ("cutoff", "portions"), [(1, None), (2, None), (3, {"male": 0.25, "female": 0.75}), (9, {"male": 1, "female": 0})]
)
def test_awrf_is_its_definition(cutoff, portions, discount):
    target = [0.5, 0.5] if portions is None else [portions["male"], portions["female"]]
    expected = [awrf_by_loops(docnos, target, cutoff, discount) for docnos in ONE.values()]
    found = per_query(AWRF(portions=portions, discount=discount) @ cutoff)
    assert found == pytest.approx(expected, abs=1e-7, nan_ok=True)
    assert per_query(AWRF(portions=portions, discount=discount, texts=TEXTS) @ cutoff) == found


def test_awrf_of_nobody_and_of_all():
    assert np.isnan(per_query(AWRF() @ 1, frame({"1": ["d3"], "2": ["d3"], "3": ["d3"]}))).all()
    # One document of each group at ranks 1 and 2, which get the same attention; none of one group.
    assert per_query(AWRF() @ 2, frame({"1": ["d1", "d2"], "2": ["d1"], "3": ["d3", "d5"]}))[:1] == [1.0]
    one_side = AWRF(portions={"male": 1, "female": 0}) @ 1
    assert per_query(one_side, frame({"1": ["d1"], "2": ["d2"], "3": ["d1"]})) == [1.0, 0.0, 1.0]


@given(st.lists(st.integers(0, 5), min_size=2, max_size=4), st.lists(st.integers(0, 5), min_size=2, max_size=4))
def test_divergence_is_scipys(one, other):
    size = min(len(one), len(other))
    p, q = np.array(one[:size], dtype=float), np.array(other[:size], dtype=float)
    if p.sum() and q.sum():
        p, q = p / p.sum(), q / q.sum()
        assert exposure.divergence(p, q) == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-12)


@pytest.mark.parametrize("labels", [[1, 0, 0], [1, 1, 0, 0], [2, 1, 1, 0], [3, 2, 1], [0, 0], [2, 2, 1, 1]])
@pytest.mark.parametrize("patience", [0.5, 0.9])
def test_target_is_the_mean_over_all_ideal_rankings(labels, patience):
    relevant = [i for i, label in enumerate(labels) if label > 0]
    ideal = [
        order for order in itertools.permutations(relevant) if all(labels[a] >= labels[b] for a, b in itertools.pairwise(order))
    ]
    expected = np.zeros(len(labels))
    for order in ideal:
        for place, document in enumerate(order):
            expected[document] += patience**place / len(ideal)
    assert exposure.target_exposure(np.array(labels), patience) == pytest.approx(expected)


JUDGED = pd.DataFrame(
    [("1", "d3", 2), ("1", "d1", 1), ("1", "d5", 1), ("1", "d2", 0), ("2", "d2", 1), ("3", "d1", 0)],
    columns=["qid", "docno", "label"],
)


def loss_by_loops(docnos, labels, cutoff, patience, by_group, part):
    relevant = {d: label for d, label in labels.items() if label > 0}
    if not relevant:
        return math.nan
    documents = sorted({*docnos[:cutoff], *relevant})
    got = {d: patience ** docnos.index(d) if d in docnos[:cutoff] else 0.0 for d in documents}
    order = sorted(relevant, key=lambda d: -relevant[d])
    due = dict.fromkeys(documents, 0.0)
    for d in relevant:
        places = [place for place, other in enumerate(order) if relevant[other] == relevant[d]]
        due[d] = sum(patience**place for place in places) / len(places)
    if by_group:
        shares = {d: [c / sum(COUNTS[d]) if sum(COUNTS[d]) else 0.0 for c in COUNTS[d]] for d in documents}
        got, due = ({g: sum(e[d] * shares[d][g] for d in documents) for g in (0, 1)} for e in (got, due))
    parts = {
        "loss": sum((got[x] - due[x]) ** 2 for x in got),
        "disparity": sum(got[x] ** 2 for x in got),
        "relevance": sum(got[x] * due[x] for x in got),
    }
    return parts[part]


@pytest.mark.parametrize("part", exposure.PARTS)
@pytest.mark.parametrize("by_group", [True, False])
@pytest.mark.parametrize(("cutoff", "patience"), [(1, 0.5), (2, 0.8), (10, 0.5)])
def test_expected_exposure_is_its_definition(cutoff, patience, by_group, part):
    measure = ExpectedExposure(by_group=by_group, part=part, patience=patience, texts=TEXTS) @ cutoff
    labels = {qid: dict(zip(rows["docno"], rows["label"])) for qid, rows in JUDGED.groupby("qid")}
    expected = [loss_by_loops(docnos, labels[qid], cutoff, patience, by_group, part) for qid, docnos in ONE.items()]
    assert per_query(measure, qrels=JUDGED) == pytest.approx(expected, nan_ok=True)
    # Rows in another order change nothing.
    shuffled = frame(ONE).sample(frac=1, random_state=1)
    assert per_query(measure, shuffled, JUDGED.iloc[::-1]) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("by_group", [True, False])
def test_a_repeated_judgement_counts_once(by_group):
    """The highest of several for one document counts, as everywhere."""
    measure = ExpectedExposure(by_group=by_group, texts=TEXTS) @ 3
    again = pd.concat([JUDGED, JUDGED.assign(label=0), JUDGED])
    assert per_query(measure, qrels=again) == pytest.approx(per_query(measure, qrels=JUDGED), nan_ok=True)


def test_the_loss_is_made_of_its_parts():
    rng = np.random.default_rng(0)
    got, due = rng.random(5), rng.random(5)
    loss, disparity, relevance = (exposure.expected_exposure(got, due, part) for part in exposure.PARTS)
    assert loss == pytest.approx(disparity - 2 * relevance + due @ due)


def test_relevant_documents_that_are_not_ranked_need_texts():
    judged = pd.DataFrame({"qid": ["1", "2", "3"], "docno": ["d4", "d4", "d4"], "label": 1})
    run = frame({"1": ["d1"], "2": ["d2"], "3": ["d3"]})
    told = r"1 relevant document is not in the run .*docno='d4' \(qid='1'\); .* texts=dataset\.text_loader\(\), or unknown='zero'"
    with pytest.raises(InputError, match=told):
        per_query(ExpectedExposure() @ 5, run, judged)
    assert per_query(ExpectedExposure(texts=CORPUS) @ 5, run, judged) == pytest.approx(
        [loss_by_loops([d], {"d4": 1}, 5, 0.5, True, "loss") for d in ("d1", "d2", "d3")]
    )
    # The column of another query's list has it: query 2 ranks d4, which query 1 should.
    own = frame({"1": ["d1"], "2": ["d4", "d2"], "3": ["d3"]})
    expected = [loss_by_loops(docnos, {"d4": 1}, 5, 0.5, True, "loss") for docnos in (["d1"], ["d4", "d2"], ["d3"])]
    assert per_query(ExpectedExposure() @ 5, own, judged) == pytest.approx(expected)
    # Without groups nothing is read.
    run = run.drop(columns="text")
    assert per_query(ExpectedExposure(by_group=False) @ 5, run, judged) == [2.0] * 3


def test_texts_come_from_the_whole_run():
    """Also from below the cut-off, and from the lists of queries that do not count."""
    judged = pd.DataFrame({"qid": ["1", "1", "2", "3"], "docno": ["d1", "d2", "d2", "d5"], "label": [1, 1, 1, 0]})
    run = frame({"1": ["d1", "d2"], "2": ["d3"], "3": ["d5"]})
    lists, labels = (["d1"], ["d3"]), ({"d1": 1, "d2": 1}, {"d2": 1})
    expected = [loss_by_loops(docnos, own, 1, 0.5, True, "loss") for docnos, own in zip(lists, labels)]
    assert per_query(ExpectedExposure() @ 1, run, judged)[:2] == pytest.approx(expected)
    only = pd.DataFrame({"qid": ["2"], "docno": ["d2"], "label": 1})
    found = pt.Evaluate(run, only, [ExpectedExposure(query_filter=["2"]) @ 1])
    assert list(found.values()) == pytest.approx(expected[1:])
    # A ranked document without a text is another fault; its row in an internal frame is not named.
    run.loc[run["docno"] == "d2", "text"] = None
    with pytest.raises(InputError, match=r"column 'text' of the run has no text for docno='d2' \(qid='1'\); use a text loader"):
        per_query(ExpectedExposure() @ 1, run, judged)
    assert not np.isnan(per_query(ExpectedExposure(unknown="zero") @ 1, run, judged)[:2]).any()


REFUSED = [
    (lambda: AWRF(discount="log"), "discount='log'"),
    (lambda: AWRF(portions={"male": 1}), "must name each"),
    (lambda: AWRF(wordlist={"a": ["x"]}), "compares groups"),
    (lambda: AWRF(method="tf"), "has no option method"),
    (lambda: ExpectedExposure(part="gain"), "part='gain'"),
    (lambda: ExpectedExposure(patience=1.0), "patience=1.0"),
    (lambda: ExpectedExposure(patience="x"), "patience='x'"),
    (lambda: ExpectedExposure(by_group=2), "by_group=2"),
]


@pytest.mark.parametrize(("make", "message"), REFUSED)
def test_what_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
