"""Annotations of unanswered queries, and the dataset report."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score
from statsmodels.stats.inter_rater import cohens_kappa as peer_kappa

from pyterrier_debias import Collection, InputError, PlantedCollection, open_dataset
from pyterrier_debias.core import plots
from pyterrier_debias.data.readers import read_run
from pyterrier_debias.survivorship.data.annotations import (
    agreement,
    answered_table,
    cohens_kappa,
    plot_codes,
    plot_ranks,
    rank_annotations,
    read_annotations,
    summary,
)
from pyterrier_debias.survivorship.data.dataset_report import TABLES, dataset_report
from pyterrier_debias.survivorship.data.ranks import first_relevant_ranks
from tests.survivorship import published

CODES = pd.DataFrame(
    {"qid": ["1", "2", "3", "4"] * 2, "annotator": ["a"] * 4 + ["b"] * 4, "code": [0, 1, 3, 3, 0, 1, 3, 2]}
)


def test_kappa_against_other_libraries():
    rng = np.random.default_rng(0)
    one = rng.integers(0, 4, 120)
    other = np.where(rng.random(120) < 0.6, one, rng.integers(0, 4, 120))
    table = np.zeros((4, 4))
    np.add.at(table, (one, other), 1)
    peer = peer_kappa(table)
    found = cohens_kappa(one, other)
    assert found.estimate == pytest.approx(cohen_kappa_score(one, other)) == pytest.approx(peer.kappa)
    assert (found.low, found.high) == pytest.approx((peer.kappa_low, peer.kappa_upp))
    assert np.isnan(cohens_kappa([1, 1], [1, 1]).estimate) and np.isnan(cohens_kappa([], []).estimate)
    with pytest.raises(InputError, match=r"cohens_kappa: there are 1 and 2 codes; .* for the same queries"):
        cohens_kappa([1], [1, 2])


def test_agreement_of_annotators():
    row = agreement(CODES).iloc[0]
    # Agreed 3 of 4; by chance (1*1 + 1*1 + 2*1 + 0) / 16 = 4/16; kappa = (3/4 - 1/4) / (3/4) = 2/3.
    assert (row["one"], row["other"], row["n"]) == ("a", "b", 4)
    assert row["agreed"] == 0.75 and row["kappa"] == pytest.approx(2 / 3)


def test_annotators_may_be_numbers_and_words():
    found = agreement(CODES.assign(annotator=[10] * 4 + ["b"] * 4))
    assert found[["one", "other"]].values.tolist() == [[10, "b"]]
    three = pd.concat([CODES.assign(annotator=CODES["annotator"].map({"a": 10, "b": 9})), CODES[:4]])
    assert agreement(three)[["one", "other"]].values.tolist() == [[9, 10], [9, "a"], [10, "a"]]


def test_agreement_is_about_one_systems_answer():
    rows = [(system, qid, name, code) for system, codes in {"a": (0, 3), "b": (3, 0)}.items() for name in "xy"
            for qid, code in zip("12", codes)]  # fmt: skip
    both = pd.DataFrame(rows, columns=["system", "qid", "annotator", "code"])
    assert agreement(both)[["kappa", "agreed", "n"]].values.tolist() == [[1.0, 1.0, 4.0]]
    with pytest.raises(InputError, match="'annotator' has no value at row 0"):
        agreement(both.assign(annotator=None))
    with pytest.raises(InputError, match="'system' has no value at row 3"):
        agreement(both.assign(system=both["system"].where(both.index != 3)))


def test_summary_and_its_figure():
    words = {0: "none", 1: "some", 2: "more", 3: "all"}
    table = summary(CODES, codes=words)
    assert table.query("annotator == 'a'")["count"].tolist() == [1, 1, 0, 2] and table["meaning"].iloc[0] == "none"
    assert (table["low"] <= table["share"]).all() and (table["share"] <= table["high"]).all()
    axes = plot_codes(CODES, codes=words)
    assert plot_codes(CODES, axes, codes=words) is axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(words.values())
    plots.close(axes.figure)


def test_tables_of_ranks_take_codes_of_ones_own():
    ranks = pd.DataFrame({"qid": ["1", "2"], "code": [5, 4], "first_relevant_rank": [2, -1]})
    assert answered_table(ranks)["answered"].tolist() == [1]
    axes = plot_ranks(ranks)
    assert plot_ranks(ranks, axes) is axes
    plots.close(axes.figure)


def test_reading(tmp_path):
    path = tmp_path / "labels.tsv"
    path.write_text("qid\tcode\tfirst_relevant_rank\n17793\t3\t2\n31688\t0\t-1\n")
    found = read_annotations(path)
    assert found[["qid", "code", "first_relevant_rank"]].values.tolist() == [["17793", 3, 2], ["31688", 0, -1]]
    path.write_text("qid\tcode\n17793\t4\n")
    with pytest.raises(InputError, match=r"'code' is '4' at row 0.*one of 0, 1, 2, 3"):
        read_annotations(path)
    path.write_text("qid\tfirst_relevant_rank\n17793\t0\n")
    with pytest.raises(InputError, match="a rank from 1, or -1"):
        read_annotations(path)
    path.write_text("qid\tcode\n1\t1\n1\t2\n")
    with pytest.raises(InputError, match="several rows"):
        read_annotations(path)
    path.write_text("qid\tlabel\n1\t1\n")
    with pytest.raises(InputError, match="'code' or 'first_relevant_rank'"):
        read_annotations(path)


def test_reading_commas(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text('qid,annotator,code\n1,"Doe, J.",0\n2,x,3\n')
    assert read_annotations(path).values.tolist() == [["1", "Doe, J.", 0], ["2", "x", 3]]
    path.write_text("qid,code\n1\n")
    with pytest.raises(InputError, match=r"labels.csv:2: 2 comma-separated fields were expected, found 1; write 'qid,code'"):
        read_annotations(path)


def test_a_query_that_nothing_answers_is_answered_nowhere():
    shown = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "c"], "score": [2.0, 1.0, 1.0]})
    ranks = first_relevant_ranks(shown, pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]}))
    row = answered_table(ranks.assign(system="labellers")).iloc[0]
    assert row[["n", "answered", "mean_rank", "mrr"]].tolist() == [2, 1, 2.0, 0.25]


def runs():
    frame = pd.DataFrame({"qid": ["1", "1", "2", "2"], "docno": ["a", "b", "c", "d"], "score": [2.0, 1.0, 2.0, 1.0]})
    frame = frame.assign(query="what", text=["no", "yes it is", "no", "no"])
    return {"one": frame, "other": frame.assign(score=-frame["score"])}


def test_ranks_from_labels():
    labels = pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]})
    found = rank_annotations(runs(), labels, labelled_by="me")
    assert found[["system", "qid", "first_relevant_rank", "labelled"]].values.tolist() == [
        ["one", "1", 2, 1], ["one", "2", -1, 0], ["other", "1", 1, 1], ["other", "2", -1, 0],
    ]  # fmt: skip
    table = answered_table(found).set_index("system")
    assert table.loc["one", ["answered", "n", "mean_rank", "mrr"]].tolist() == [1, 2, 2, 0.25]
    assert (table["labelled_by"] == "me").all()
    axes = plots.new_axes()
    plot_ranks(found, axes)
    plots.close(axes.figure)


def test_repeats_are_removed_before_the_first_documents_are_taken():
    run = pd.DataFrame({"qid": "1", "docno": list("abcd"), "score": [4.0, 3.0, 2.0, 1.0], "text": ["tea", "Tea ", "rain", "sun"]})
    labels = pd.DataFrame({"qid": ["1"], "docno": ["c"], "label": [1]})

    def rank(**options):
        return rank_annotations({"one": run}, labels, labelled_by="me", **options)["first_relevant_rank"].item()

    assert (rank(), rank(repeats="drop"), rank(depth=3), rank(depth=2, repeats="drop")) == (3, 2, 3, 2)
    with pytest.raises(InputError, match="run 'one': repeats='drop' compares texts"):
        rank_annotations({"one": run.drop(columns="text")}, labels, labelled_by="me", repeats="drop")


def test_a_text_has_the_highest_label_of_its_repeats():
    """As in first_relevant_ranks: the label of a copy that is removed is that of the text that stays."""
    one = pd.DataFrame({"qid": "1", "docno": list("abc"), "score": [3.0, 2, 1], "text": ["The Seine.", "the seine.", "tea"]})
    run = pd.concat([one, one.assign(qid="2", docno=list("xyz"))], ignore_index=True)
    labels = pd.DataFrame({"qid": ["1", "2"], "docno": ["b", "x"], "label": 1})
    for repeats, expected in (("keep", [2, 1]), ("drop", [1, 1])):
        found = rank_annotations({"s": run}, labels, labelled_by="me", repeats=repeats)
        peer = first_relevant_ranks(run, labels, repeats=repeats)
        assert found["first_relevant_rank"].tolist() == peer["first_relevant_rank"].tolist() == expected


def test_ranks_of_two_annotators_are_drawn_apart():
    ranks = rank_annotations(runs(), pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]}), labelled_by="me")
    axes = plots.new_axes()
    plot_ranks(pd.concat([ranks, ranks.assign(annotator="you")], ignore_index=True), axes)
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        f"{system}, annotator {name}" for name in ("me", "you") for system in ("one", "other")
    ]
    assert sum(bar.get_height() for bar in axes.containers[0]) == 2  # the two queries, not those of both annotators
    plots.close(axes.figure)
    with pytest.raises(InputError, match="no annotations of ranks"):
        plot_ranks(ranks.iloc[:0])


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"docno": "x"}, {}, "none of the first 10 documents of any system has a label"),
        ({"label": "yes"}, {}, "'label' is NaN or not a whole number"),
        ({}, {"depth": 0}, "depth=0"),
        ({}, {"depth": None}, "depth=None"),
    ],
)
def test_labels_that_say_nothing(change, options, message):
    labels = pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]}).assign(**change)
    with pytest.raises(InputError, match=message):
        rank_annotations(runs(), labels, labelled_by="me", **options)


def test_runs_and_labels_that_lack_a_column():
    labels = pd.DataFrame({"qid": ["1"], "docno": ["b"], "label": [1]})
    with pytest.raises(InputError, match="the judgements have no column 'label'"):
        rank_annotations(runs(), labels.drop(columns="label"), labelled_by="me")
    with pytest.raises(InputError, match="run 'one' has no column 'score'"):
        rank_annotations({"one": runs()["one"].drop(columns="score")}, labels, labelled_by="me")
    with pytest.raises(InputError, match="there are no labels"):
        rank_annotations(runs(), labels.iloc[:0], labelled_by="me")


def test_ranks_from_a_labeller_that_is_asked_once_a_pair():
    asked = []

    def labeller(pairs):
        asked.append(pairs)
        return ["yes" in text for text in pairs["text"]]

    found = rank_annotations(runs(), labeller, labelled_by="a rule", depth=2)
    assert found["first_relevant_rank"].tolist() == [2, -1, 1, -1] and len(asked) == 1 and len(asked[0]) == 4
    with pytest.raises(InputError, match="must name who labelled"):
        rank_annotations(runs(), labeller, labelled_by=" ")
    with pytest.raises(InputError, match="returned 1 labels for 4 pairs"):
        rank_annotations(runs(), lambda pairs: [1], labelled_by="a rule")
    with pytest.raises(InputError, match="needs the column 'text', which the runs lack"):
        rank_annotations({"one": runs()["one"].drop(columns="text")}, labeller, labelled_by="a rule")
    more = rank_annotations(runs(), labeller, labelled_by="a rule", queries=pd.DataFrame({"qid": ["1", "9"]}))
    assert more[more["qid"] == "9"]["first_relevant_rank"].tolist() == [-1, -1]


@pytest.mark.parametrize("order", [("one", "other"), ("other", "one")])
@pytest.mark.parametrize("queries", [None, pd.DataFrame({"qid": ["1", "2"], "query": "what"})])
def test_what_one_run_lacks_another_tells(order, queries):
    given = runs()
    given["other"] = given["other"].drop(columns=["query", "text"])
    asked = []

    def labeller(pairs):
        asked.append(pairs)
        return ["yes" in text for text in pairs["text"]]

    found = rank_annotations({name: given[name] for name in order}, labeller, labelled_by="a rule", queries=queries)
    assert asked[0].equals(asked[0].sort_values(["qid", "docno"])) and list(asked[0]) == ["qid", "query", "docno", "text"]
    assert (asked[0]["query"] == "what").all() and asked[0]["text"].notna().all() and len(found) == 4


def test_the_fifty_queries(shared_data):
    """The four runs as they are; the labels are a rule here, since the thesis' were not published."""
    folder = shared_data / "survivorship_msmarco_v2"
    names = ["bm25", "monot5", "ance", "colbert"]
    found = {name: read_run(folder / f"run.{name}.trec.gz") for name in names}
    assert all(run["qid"].nunique() == 50 and len(run) == 5000 for run in found.values())
    pairs = {name: set(zip(run["qid"], run["docno"])) for name, run in found.items()}
    assert len(set(map(frozenset, pairs.values()))) == 1
    first = found["bm25"].query("rank == 0")[["qid", "docno"]].assign(label=1)
    table = answered_table(rank_annotations(found, first, labelled_by="what BM25 ranks first")).set_index("system")
    assert table.loc["bm25", ["n", "answered", "mrr"]].tolist() == [50, 50, 1.0]
    assert (table.loc[["monot5", "ance", "colbert"], "mrr"] < 1).all()


# ----------------------------------------------------------------------------------------------------- report


def test_the_report_of_a_planted_collection():
    planted = PlantedCollection(1, topics=20, passages=200, survivorship=1.0)
    report = dataset_report(planted, "full")
    truth = planted.truth["topics"]
    sizes = report.tables["sizes"].set_index("what")["count"]
    assert (sizes["queries"], sizes["documents shown"], sizes["answered queries"]) == (20, 200, 15)
    first = report.tables["first_ranks"].set_index("first_relevant_rank")["queries"]
    for rank in range(1, 11):
        assert first[rank] == (truth["first_shown"] == rank).sum()
    types = report.tables["types"].set_index("type")
    assert types.loc["all types", "answered"] == 15
    assert types["queries"].drop("all types").to_dict() == truth["type"].value_counts().to_dict()
    by_type = report.tables["first_ranks_by_type"].set_index("type")
    for kind, ranks in truth.groupby("type")["first_shown"]:
        # Over the type's answered queries, as the thesis' table has it.
        own = [(ranks == rank).sum() / ranks.between(1, 10).sum() for rank in range(1, 11)]
        np.testing.assert_allclose(by_type.loc[kind, [str(rank) for rank in range(1, 11)]].astype(float), own)
    assert by_type["answered"].sum() == 15 and by_type["queries"].sum() == 20
    assert report.available()["there"].all() and list(report.tables) == list(TABLES)
    for draw, options in ((report.plot_types, {}), (report.plot_first_ranks, {}), (report.plot_first_ranks, {"by_type": True})):
        axes = draw(**options)
        assert draw(axes, **options) is axes
        plots.close(axes.figure)


def test_duplicates_are_counted():
    corpus = pd.DataFrame({"docno": ["7-0", "8-0", "7-1"], "text": ["Water  boils.", "No.", "water boils."]})
    shown = pd.DataFrame({"qid": "q", "docno": corpus["docno"], "score": [0.0, -1.0, -2.0], "rank": [0, 1, 2]})
    collection = Collection(
        "twice", corpus=corpus, topics={"dev": pd.DataFrame({"qid": ["q", "r"], "query": ["when", "When "]})},
        qrels={"dev": shown[["qid", "docno"]].assign(label=[0, 0, 1])}, candidates=shown,
    )  # fmt: skip
    report = dataset_report(collection)
    counts = report.tables["duplicates"].set_index("what")["count"]
    assert counts["queries with a text that another query has"] == 2
    assert counts["documents with a text that another document has"] == 2
    assert counts["documents shown to one labeller with a text shown before"] == 1
    assert counts["texts shown twice for one query, with different labels"] == 1
    assert report.ranks["first_relevant_rank"].tolist() == [3.0, np.inf]
    assert dataset_report(collection, docno="passage").ranks["first_relevant_rank"].tolist() == [1.0, np.inf]


def test_what_a_collection_does_not_know_is_said():
    planted = PlantedCollection(1, topics=20, passages=200)
    parts = {"corpus": planted.corpus, "qrels": {"test": planted.get_qrels()}, "runs": planted.get_runs()}
    bare = Collection("bare", topics={"test": planted.get_topics()[["qid", "query"]]}, **parts)
    report = dataset_report(bare)
    assert set(report.missing) == {"types", "first_ranks", "first_ranks_by_type", "shown", "answers"}
    assert "get_candidates" in report.missing["first_ranks"] and report.source == "judgements only"
    assert report.ranks["first_relevant_rank"].isna().all(), "nobody knows at which rank an answer was met"
    assert report.ranks["answered"].any()
    assert f"{report.ranks['answered'].sum()} of {len(report.ranks)} queries answered" in repr(report)
    with pytest.raises(InputError, match="no table 'types': the topics have no column 'type'"):
        report.plot_types()
    assert dataset_report(bare, proxy=True).source == "proxy: bm25"
    with pytest.raises(InputError, match="has no topics"):
        dataset_report(bare, "dev")


def test_the_report_of_a_real_sample(shared_data):
    report = dataset_report(open_dataset(shared_data / "msmarco_qna", split="qna"))
    types = report.tables["types"].set_index("type")
    assert types.loc["all types", ["queries", "answered", "unanswered"]].tolist() == [100, 51, 49]
    # The whole of dev has 45.02 % unanswered queries: the sample agrees with it.
    published_share = published.ANSWERED / published.TOTAL
    assert types.loc["all types", "low"] < published_share < types.loc["all types", "high"]
    assert report.tables["shown"]["queries"].sum() == 100 and set(report.missing) == {"answers"}
