"""All five biases in one audit: what one system or a form of input costs the others."""

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import InputError, PlantedCollection, audit
from pyterrier_debias.core import plots
from pyterrier_debias.data.planted_rankers import wording_complexity
from pyterrier_debias.linguistic import audit as linguistic
from pyterrier_debias.report.verdict import margins, verdicts
from pyterrier_debias.survivorship import audit as survivorship

PLANTED = PlantedCollection(1, topics=12, passages=160)
TOPICS = PLANTED.get_topics().assign(complexity=lambda topics: topics["query"].map(wording_complexity))
QRELS = PLANTED.get_qrels()
FIRST = pt.Transformer.from_df(PLANTED.get_runs()["bm25"]) % 10 >> PLANTED.text_loader()
BIASES = ["position", "survivorship", "gender", "linguistic", "pooling"]


def overlap(row):
    return float(len(set(row["query"].lower().split()) & set(row["text"].lower().split())))


GOOD = FIRST >> pt.apply.doc_score(overlap)


@pytest.fixture(scope="module", autouse=True)
def few_draws():
    whole = linguistic._RESAMPLES, survivorship._RESAMPLES
    linguistic._RESAMPLES, survivorship._RESAMPLES = 199, 199
    yield
    linguistic._RESAMPLES, survivorship._RESAMPLES = whole


def audited(systems=None, **options):
    return audit({"good": GOOD} if systems is None else systems, PLANTED, **{"topics": TOPICS, "draws": 1, **options})


@pytest.fixture(scope="module")
def alone(few_draws):
    result = audited()
    assert result.failed.empty and list(dict.fromkeys(result.findings["bias"])) == BIASES
    return result


def own(result, name):
    found = result.findings[result.findings["system"] == name]
    # What pooling infers from all rankings, and how many tests there are, depends on who else is there.
    return found[found["contrast"] != "inferred"].drop(columns=["p_corrected", "detectable", "text"]).reset_index(drop=True)


def test_the_verdict_has_words_for_the_primary_figure_of_every_bias():
    def early(row):
        return overlap({**row, "text": row["text"][: len(row["text"]) // 2]})

    result = audited({"bm25": PLANTED.get_runs()["bm25"], "early": FIRST >> pt.apply.doc_score(early)})
    for verdict in verdicts(result):
        for one in verdict.answers:
            if (verdict.bias, one.system) == ("position", "bm25"):  # results alone cannot be had of changed texts
                assert one.outcome == "not examined"
            else:
                assert one.unit in margins()[verdict.bias], (verdict.bias, one)
        assert verdict.question in result.to_text(most=38)


def test_every_legend_names_a_system_whose_name_begins_with_an_underscore():
    def beginnings(share):
        return lambda row: overlap({**row, "text": row["text"][: len(row["text"]) // share]})

    result = audited({"_half": FIRST >> pt.apply.doc_score(beginnings(2)), "third": FIRST >> pt.apply.doc_score(beginnings(3))})
    named = []
    for bias, figure in result.figures:
        axes = plots.new_axes()
        figure.draw(axes)
        if axes.get_legend() is not None:
            named.append(bias)
            texts = [text.get_text() for text in axes.get_legend().get_texts()]
            assert {plots.legend_label("_half"), "third"} <= set(texts), (bias, figure.name)
        plots.close(axes.figure)
    assert set(named) == set(BIASES)


@pytest.mark.parametrize(
    ("breaks", "biases"),
    [(lambda row: True, BIASES), (lambda row: "%" in row["docno"], ["position"])],
    ids=["always", "on changed passages"],
)
def test_a_system_that_raises_costs_no_other_system_a_bias(alone, breaks, biases):
    def maybe(row):
        if breaks(row):
            raise ValueError("boom")
        return overlap(row)

    result = audited({"good": GOOD, "bad": FIRST >> pt.apply.doc_score(maybe)})
    assert set(zip(result.failed["bias"], result.failed["system"])) == {(bias, "bad") for bias in biases}
    assert set(result.failed["error"]) <= {"system 'bad' raised ValueError: boom"}
    left = {bias for bias, system in zip(result.findings["bias"], result.findings["system"]) if system == "bad"}
    assert left == set(BIASES) - set(biases)
    pd.testing.assert_frame_equal(own(result, "good"), own(alone, "good"))


def test_the_order_of_topics_and_judgements_changes_nothing(alone):
    turned = audited(topics=TOPICS.sample(frac=1, random_state=3), qrels=QRELS.sample(frac=1, random_state=4))
    pd.testing.assert_frame_equal(turned.findings, alone.findings, rtol=1e-9)


def test_labels_may_be_the_floats_of_a_merge(alone):
    result = audited(qrels=QRELS.assign(label=QRELS["label"].astype(float)))
    assert result.failed.empty
    pd.testing.assert_frame_equal(result.findings, alone.findings)


def test_fractions_are_no_labels():
    with pytest.raises(InputError, match="audit: column 'label' is NaN or not a whole number up to"):
        audited(qrels=QRELS.assign(label=QRELS["label"] / 2))


@pytest.mark.parametrize("kind", [int, float, bool])
def test_types_that_are_no_text(kind):
    types = np.arange(len(TOPICS)) % 2
    found, words = (
        audited(topics=TOPICS.assign(type=column), biases="survivorship") for column in (types.astype(kind), types.astype(str))
    )
    assert found.failed.empty and len(found.findings) == len(words.findings)
    np.testing.assert_allclose(sorted(found.findings["value"]), sorted(words.findings["value"]))


def test_complexity_that_is_none_is_a_reason():
    for column, told in ((np.nan, "is empty"), ("high", "must hold numbers, but holds 'high'")):
        result = audited(topics=TOPICS.assign(complexity=column), biases=["pooling", "linguistic"])
        assert result.skipped["bias"].tolist() == ["linguistic"] and told in result.skipped["reason"][0]
        assert set(result.findings["bias"]) == {"pooling"}


def test_what_was_shown_may_have_ranks_only(alone, monkeypatch):
    shown = PLANTED.get_candidates()
    shown = shown.assign(rank=shown.groupby("qid")["score"].rank(ascending=False, method="first").astype(int) - 1)
    monkeypatch.setattr(PLANTED, "get_runs", lambda *_: {})
    monkeypatch.setattr(PLANTED, "get_candidates", lambda *_: shown)
    with_scores = audited(biases=["survivorship", "pooling"])
    monkeypatch.setattr(PLANTED, "get_candidates", lambda *_: shown.drop(columns="score"))
    result = audited(biases=["survivorship", "pooling"])
    assert result.failed.empty
    pd.testing.assert_frame_equal(result.findings, with_scores.findings)


def test_one_query_has_no_interval_and_its_sentences_name_none():
    result = audited(topics=TOPICS[:1])
    assert result.failed.empty and not result.findings["text"].str.contains("nan").any()
    still = result.findings.query("bias == 'position' and primary and p != p")
    assert len(still) and still["text"].str.contains("no score changed").all()
