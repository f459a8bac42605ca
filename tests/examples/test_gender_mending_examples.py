"""The programs on swapped documents and on Tables 1 to 4: from end to end in miniature, their measures against brute force."""

import json
import runpy
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias.gender.audit import GenderBias
from pyterrier_debias.gender.formulas.counting import count_words
from pyterrier_debias.report.first_stage import pisa_installed
from pyterrier_debias.report.perform import with_classifier
from tests import tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "gender_bias"
needs_pisa = pytest.mark.skipif(not pisa_installed(), reason="PISA is not installed")


# Swapped documents


def test_swapped_documents_in_miniature(tmp_path, run):
    rows = [
        ("who is her son", "he is a son of the river", "she is a daughter of the river", "Male → Female"),
        ("river", "his blue river", "a blue river", "Male → Neutral"),
        ("the old king", "the old king works", "the old queen works", "Male → Female"),
        ("river", None, "a river", "Male → Neutral"),
    ]
    columns = ["Query", "original_Doc", "transformed_Doc", "transformation"]
    pd.DataFrame(rows, columns=columns).to_csv(tmp_path / "pairs.tsv", sep="\t", index=False)
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    code, printed = run("swapped.py", "--documents", tmp_path / "pairs.tsv", "--models", model, "--out", tmp_path / "out")
    assert code == 0, printed.err
    written = pd.read_csv(tmp_path / "out" / "written.csv").set_index(["ranker", "direction"])
    assert written["pairs"].tolist() == [2, 1, 2, 1]
    swapped = pd.read_csv(tmp_path / "out" / "swapped.csv")
    assert swapped["direction"].tolist() == ["Male to Female"] * 2
    # "king" is in the query and leaves the document, "he" and "son": one of the two documents loses a word that was asked for.
    bm25 = written.loc[("BM25", "Male to Female")]
    assert bm25["difference"] < 0 and bm25["higher"] == 0
    code, printed = run("swapped.py", "--documents", tmp_path / "nothing.tsv", "--out", tmp_path / "out")
    assert code == 2 and "cannot be read" in printed.err


# Gender of queries


def test_labellers_of_queries_in_miniature(tmp_path, run):
    kinds = {"f": "who is the mother of {}", "m": "who is the father of {}", "n": "how old is {}", "o": "his sister in {}"}
    rows = [f"{label}{i},{text.format(i)},{label}" for i in range(4) for label, text in kinds.items()]
    # A name says what the list of words cannot.
    rows[0] = "f0,who is ada lovelace,f"
    (tmp_path / "queries.csv").write_text("\n".join(rows) + "\n")
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    options = ["--queries", tmp_path / "queries.csv", "--model", model, "--epochs", 1, "--folds", 2, "--out", tmp_path / "out"]
    code, printed = run("query_gender.py", *options)
    assert code == 0, printed.err
    tables = [pd.read_csv(tmp_path / "out" / f"{name}_labels.csv") for name in ("four", "three")]
    four, three = (table.set_index(["labeller", "label"]) for table in tables)
    assert four["n"].unstack().loc["fine-tuned"].to_dict() == {"all": 16, "female": 4, "male": 4, "neutral": 4, "other": 4}
    assert three["n"].unstack().loc["words"].to_dict() == {"all": 12, "female": 4, "male": 4, "neutral": 4}
    # All are right but one, which is called neutral.
    words = four.loc["words"]
    assert words.loc["all", "accuracy"] == 15 / 16 and words.loc["female", "accuracy"] == 3 / 4
    assert words["precision"].to_dict() == {"all": 15 / 16, "female": 1, "male": 1, "neutral": 4 / 5, "other": 1}
    assert set(four.index.get_level_values(0)) == {"words", "linear head", "fine-tuned"}


def test_the_recipe_saves_a_classifier_that_an_audit_takes(tmp_path, run):
    kinds = {"f": "who is the mother of {}", "m": "who is the father of {}", "n": "how old is {}", "o": "his sister in {}"}
    rows = [f"{label}{i},{text.format(i)},{label}" for i in range(4) for label, text in kinds.items()]
    (tmp_path / "queries.csv").write_text("\n".join(rows) + "\n")
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    said = ["--queries", tmp_path / "queries.csv", "--model", model, "--folds", 2, "--out", tmp_path / "out"]
    code, printed = run("query_gender.py", *said, "--epochs", 0, "--save", tmp_path / "head")
    assert code == 0, printed.err
    assert "linear head, fitted on all 16 queries" in printed.out
    table = pd.read_csv(tmp_path / "out" / "four_labels.csv")
    assert set(table["labeller"]) == {"words", "linear head"}
    (bias,) = with_classifier([GenderBias()], tmp_path / "head")
    queries = pd.DataFrame({"qid": ["1"], "query": ["how old is 1"]})
    assert bias.classifier.labels == ("female", "male", "neutral", "other") and bias.neutral_qids(queries) in (["1"], [])
    code, printed = run("query_gender.py", *said, "--save", tmp_path / "head")
    assert code == 2 and "exists already" in printed.err


# Tables


def folders_of(folder, things_own="its"):
    """A collection on disk: queries about persons and things, with passages of either gender.

    Passages about things hold ``things_own``.
    """
    generator = np.random.default_rng(0)
    things = ["bridge", "river", "engine", "market", "signal", "harbour", "doctor", "nurse"]
    who = {"female": ("she", "her", "woman"), "male": ("he", "his", "man"), "neutral": ("it", things_own, "ship")}
    corpus, queries, qrels = [], [], []
    for i in range(90):
        gender, thing = list(who)[i % 3], things[i % 8]
        words = [*who[gender], *generator.choice(["city", "works", "built", "lives", "old", "red"], 3)]
        corpus.append({"_id": f"d{i}", "title": "", "text": f"the {thing} {' '.join(words)} number{i}"})
        queries.append({"_id": f"q{i}", "text": f"what is the {thing} {who[gender][0]} number{i}"})
        qrels.append(f"q{i}\td{i}\t1")
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(qrels) + "\n")
    lexicon = {"place": ["city", "harbour", "market", "bridge"], "doing": ["works", "built", "lives"], "look": ["old", "red"]}
    lines = ["%", *(f"{i + 1}\t{name}" for i, name in enumerate(lexicon)), "%"]
    lines += [f"{word}\t{i + 1}" for i, words in enumerate(lexicon.values()) for word in words]
    (folder / "words.dic").write_text("\n".join(lines) + "\n")
    return folder


def further(data):
    """The options for further queries: some of the collection's own, labelled, and the gendered ones among them."""
    queries = {row["_id"]: row["text"] for row in map(json.loads, (data / "queries.jsonl").read_text().splitlines())}
    some = {qid: (text, "fmn"[int(qid[1:]) % 3]) for qid, text in queries.items() if int(qid[1:]) < 15}
    (data / "set.csv").write_text("".join(f"{qid},{text},{label}\n" for qid, (text, label) in some.items()))
    for label, name in (("f", "female"), ("m", "male")):
        lines = [f"{qid},{text}" for qid, (text, own) in some.items() if own == label]
        (data / f"{name}_queries.csv").write_text("\n".join(["qid,query", *lines]) + "\n")
    return "--query-sets", f"QS1={data / 'set.csv'}", "--gendered", data


SMALL = {
    "layers": None, "dropout": 0.0, "triples": 4, "batch_size": 4, "depth": 5, "test_depth": 6, "queries": 12,
    "train_queries": 20, "max_length": 32, "ratios": [0.2], "seeds": 1, "resamples": 50, "labeller": "words",
}  # fmt: skip


@needs_pisa
def test_tables_in_miniature(tmp_path, run):
    data, out, config = folders_of(tmp_path / "data"), tmp_path / "out", tmp_path / "small.json"
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    config.write_text(json.dumps(SMALL))
    files = further(data)
    small = "--dataset", data, "--lexicon", data / "words.dic", "--config", config, "--model", model, "--out", out
    code, printed = run("tables.py", *small)
    assert code == 2 and "no category 'posemo'" in printed.err  # the paper's columns unless others are named
    small = *small, "--columns", "all", *files
    code, printed = run("tables.py", "--estimate", *small)
    assert code == 0 and "arms on this machine" in printed.out, printed.err
    code, printed = run("tables.py", *small)
    assert code == 0, printed.err
    means = pd.read_csv(out / "means.csv").set_index("arm")
    rivals = [
        "bias-aware negatives", "bias-aware loss", "adversarial", "adversarial, trained first", "swapped", "neutral re-ranking"
    ]  # fmt: skip
    arms = ["original", "balanced 0.2", *rivals]
    assert means.index.tolist() == arms
    assert means[["RR@10", "NFaiRR@10"]].stack().between(0, 1).all()
    table = pd.read_csv(out / "table_1.csv")
    assert table["ratio"].tolist() == [0, 0.2] and table["effectiveness"].iloc[0] == pytest.approx(means["RR@10"].iloc[0])
    differences = pd.read_csv(out / "differences.csv").set_index(["arm", "measure"])
    own = means.loc["swapped"] - means.loc["original"]
    for measure in ("RR@10", "ARaB_tf@10", "gap@10"):
        assert differences.loc[("swapped", measure), "difference"] == pytest.approx(own[measure], abs=1e-9)
    assert {"table_1.png", "balance.png", "results.md"} <= {path.name for path in out.iterdir()}
    matching = pd.read_csv(out / "matching.csv").iloc[0]
    assert matching["female"] > 0 and matching["matches"] == min(matching["female"], matching["male"])

    # ARaB of the original arm by the nested means of its definition.
    rows = pd.read_csv(out / "arms" / "original-1" / "rows.csv").set_index("qid")
    ranking = pd.read_csv(out / "arms" / "original-1" / "run.csv.gz").sort_values("rank")
    texts = {row["_id"]: row["text"] for row in map(json.loads, (data / "corpus.jsonl").read_text().splitlines())}
    neutral = rows[rows["ARaB_tf@10"].notna()]
    assert 0 < len(neutral) < len(rows)
    for qid, values in neutral.iterrows():
        counts = count_words([texts[docno] for docno in ranking[ranking["qid"] == qid]["docno"]])[:10]
        lean = np.log1p(counts[:, 0]) - np.log1p(counts[:, 1])
        nested = np.mean([lean[:t].mean() for t in range(1, len(lean) + 1)])
        assert values["ARaB_tf@10"] == pytest.approx(nested, abs=1e-9)
        assert values["abs_ARaB_tf@10"] == pytest.approx(abs(nested), abs=1e-9)

    # The same of a set of further queries: the neutral ones of a labelled file.
    sets = pd.read_csv(out / "QS1_means.csv").set_index("arm")
    assert sets.index.tolist() == arms
    ranking = pd.read_csv(out / "arms" / "swapped-1" / "run-QS1.csv.gz").sort_values("rank")
    assert set(ranking["qid"]) == {f"q{i}" for i in range(2, 15, 3)}
    lists = [count_words([texts[docno] for docno in own["docno"]])[:10] for _, own in ranking.groupby("qid")]
    lean = [np.log1p(counts[:, 0]) - np.log1p(counts[:, 1]) for counts in lists]
    nested = [np.mean([own[:t].mean() for t in range(1, len(own) + 1)]) for own in lean]
    assert sets.loc["swapped", "ARaB_tf@10"] == pytest.approx(np.mean(nested), abs=1e-9)

    # Table 2 by its definition: shares in the first ten of each list, means over the queries of each gender.
    table = pd.read_csv(out / "table_2.csv").set_index(["arm", "category"])
    assert set(table.index.get_level_values("arm")) == set(arms)
    ranking = pd.read_csv(out / "arms" / "swapped-1" / "run-gendered.csv.gz")
    words = {"city", "harbour", "market", "bridge"}
    share = {docno: np.mean([word in words for word in text.split()]) for docno, text in texts.items()}
    first = ranking[ranking["rank"] < 10]
    by = first.assign(share=first["docno"].map(share)).groupby("qid")["share"].mean()
    female = by.index.isin([f"q{i}" for i in range(0, 15, 3)])
    gap = abs(by[female].mean() - by[~female].mean())
    assert table.loc[("swapped", "place"), "gap"] == pytest.approx(gap, abs=1e-9) and len(by) == 10
    own = table.loc[("swapped", "place"), "gap"] - table.loc[("original", "place"), "gap"]
    assert table.loc[("swapped", "place"), "difference"] == pytest.approx(own, abs=1e-9)

    code, printed = run("tables.py", "--triples", 16, *small)
    assert code == 2 and "holds arms made with triples=4, not 16" in printed.err


def test_a_bias_is_planted_where_it_can_be():
    with importable(FOLDER, FOLDER.parent):
        import planting
    frame = pd.DataFrame(
        [
            ("q1", "d1", "her bridge", 3), ("q1", "d2", "his road and she", 2), ("q1", "d3", "a road", 1),
            ("q2", "d1", "her bridge", 3), ("q2", "d3", "a road", 2),  # no other candidate has a gender
            ("q3", "d4", "a lake", 3), ("q3", "d2", "his road and she", 2),  # the relevant passage has none
            ("q4", "d1", "her bridge", 3), ("q4", "d2", "his road and she", 2),  # not neutral
        ],
        columns=["qid", "docno", "text", "score"],
    )  # fmt: skip
    relevant = {("q1", "d1"), ("q2", "d1"), ("q3", "d4"), ("q4", "d1")}
    found = planting.plantable(frame, relevant, {"q1", "q2", "q3"})
    assert found == {"q1"}
    planted = planting.plant(frame, relevant, found, 1.0, 0)
    changed = planted.loc[planted["qid"] == "q1", ["docno", "text"]]
    assert changed.to_numpy().tolist() == [["d1", "his bridge"], ["d2", "her road and she"]]
    untouched = frame[frame["qid"] != "q1"].reset_index(drop=True)
    pd.testing.assert_frame_equal(planted[planted["qid"] != "q1"].reset_index(drop=True), untouched)
    many = {f"q{i}" for i in range(1000)}
    assert len(planting.changed(many, 0.8, 0)) == pytest.approx(800, abs=40)
    pd.testing.assert_frame_equal(planting.plant(frame, relevant, found, 0.0, 0), frame)


def test_the_share_of_a_planted_bias_that_is_gone():
    """Arms whose biases and effectiveness are known: half of the planted bias is gone at a cost of .1."""
    with importable(FOLDER, FOLDER.parent):
        import planting
    draws = np.random.default_rng(0).normal(size=(2, 40))
    bias, cost = {"without": 0.1, "before": 0.5, "half": 0.3}, {"without": 0.6, "before": 0.6, "half": 0.5}
    rows = [
        {"arm": arm, "seed": seed, "qid": f"q{i}", "bias": bias[arm] + 0.1 * draws[seed, i], "nDCG@10": cost[arm]}
        for arm in bias for seed in (0, 1) for i in range(40)
    ]  # fmt: skip
    frame = pd.DataFrame(rows)
    (row,) = planting.gap_table(frame, ["bias"], frame, ["half"], "before", "without", 50).to_dict("records")
    assert row["planted"] == pytest.approx(0.4) and row["smaller_by"] == pytest.approx(0.2)
    assert [row[name] for name in ("share_closed", "share_low", "share_high")] == pytest.approx([0.5] * 3)
    assert [row[name] for name in ("nDCG@10", "nDCG@10_low", "nDCG@10_high")] == pytest.approx([-0.1] * 3)


@needs_pisa
def test_a_planted_bias_in_miniature(tmp_path, run):
    data, out, config = folders_of(tmp_path / "data", "his"), tmp_path / "out", tmp_path / "small.json"
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    config.write_text(json.dumps({**SMALL, "planted": 1.0, "per_set": 3, "queries": 30}))
    options = "--dataset", data, "--lexicon", data / "words.dic", "--columns", "all", "--config", config, "--model", model
    sets = further(data)[:2]
    code, printed = run("tables.py", *options, *sets, "--out", out, "--arms", "unplanted", "swapped")
    assert code == 0, printed.err
    assert pd.read_csv(out / "means.csv")["arm"].tolist() == ["planted", "unplanted", "swapped"]
    sizes = pd.read_csv(out / "planted.csv").iloc[0]
    assert 0 < sizes["planted"] <= min(sizes["that allow it"], sizes["training queries"]) and sizes["that allow it"] <= 20
    means = {name: pd.read_csv(out / f"{name}means.csv").set_index("arm")["ARaB_tf@10"] for name in ("", "QS1_")}
    for name, mean in means.items():
        gaps = pd.read_csv(out / f"{name}gap_closed.csv").set_index(["arm", "measure"]).loc[("swapped", "ARaB_tf@10")]
        assert gaps["planted"] == pytest.approx(mean["planted"] - mean["unplanted"], abs=1e-9)
        assert gaps["smaller_by"] == pytest.approx(mean["planted"] - mean["swapped"], abs=1e-9)
    assert pd.read_csv(out / "QS1_differences.csv")["queries"].eq(3).all()


@needs_pisa
def test_sets_named_later_are_ranked_by_the_rankers_that_were_kept(tmp_path, run):
    """The tables are those of a run that names all sets at once."""
    data, config = folders_of(tmp_path / "data"), tmp_path / "small.json"
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    config.write_text(json.dumps({**SMALL, "per_set": 8}))
    options = "--dataset", data, "--lexicon", data / "words.dic", "--columns", "all", "--config", config, "--model", model
    options = *options, "--arms", "bias-aware loss", "neutral re-ranking"
    sets, outs = (*further(data), data / "set.csv"), {name: tmp_path / name for name in ("together", "later", "lost")}
    for out, given in ((outs["together"], sets), (outs["later"], ["--keep"]), (outs["lost"], [])):
        code, printed = run("tables.py", *options, *given, "--out", out)
        assert code == 0, printed.err
    code, printed = run("tables.py", *options, *sets, "--out", outs["later"])
    assert code == 0 and "bias_aware_loss-1: ranking QS1" in printed.out, printed.out
    for name in ("QS1_means", "QS1_differences", "table_2"):
        one, other = (pd.read_csv(outs[folder] / f"{name}.csv") for folder in ("together", "later"))
        pd.testing.assert_frame_equal(one, other, atol=1e-6)
    named = {name: own.drop(columns=["set", "p_corrected"]).reset_index(drop=True) for name, own in one.groupby("set")}
    assert set(named) == {"data", "set"}
    pd.testing.assert_frame_equal(named["data"], named["set"])  # the same queries, from a folder and from a file with labels
    code, printed = run("tables.py", *options, *sets, "--out", outs["lost"])
    assert code == 2 and "has not ranked QS1, and its ranker was not kept" in printed.err
    (data / "set.csv").write_text("".join(f"q{i},what is the bridge number{i},n\n" for i in range(40, 43)))
    code, printed = run("tables.py", *options, *sets, "--out", outs["later"])
    assert code == 2 and "ranks other queries than the set QS1 has now" in printed.err


def test_the_front_shows_what_a_treatment_closes_and_costs(tmp_path):
    with importable(FOLDER, FOLDER.parent):
        import planting
    row = {"arm": "half", "measure": "bias", "share_closed": 0.5, "share_low": 0.4, "share_high": 0.7, "nDCG@10": -0.1}
    table = pd.DataFrame([{**row, "nDCG@10_low": -0.2, "nDCG@10_high": 0.0}])
    planting.draw_front(table, "bias", "nDCG@10", tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 1000


def test_what_a_user_may_get_wrong(tmp_path, run):
    (tmp_path / "planted.json").write_text('{"planted": 80}')
    for options, words in (
        (("--data", tmp_path, "--config", tmp_path / "planted.json"), "planted=80 is a share"),
        ((), "give --data FOLDER"),
        (("--data", tmp_path), "lacks msmarco_dev_small"),
        (("--data", tmp_path, "--arms", "magic"), "'magic' is not known"),
        (("--data", tmp_path, "--query-sets", "QS1.tsv"), "write NAME=FILE"),
        (("--data", tmp_path, "--query-sets", f"QS1={tmp_path / 'none.tsv'}"), "cannot be read as lines qid, tab, query"),
        (("--data", tmp_path, "--gendered", tmp_path), "lacks a readable female_queries.csv"),
    ):
        code, printed = run("tables.py", "--out", tmp_path / "out", *options)
        assert code == 2 and words in printed.err


def test_configurations_name_settings_that_there_are():
    names = {name for file in FOLDER.glob("*.json") for name in json.loads(file.read_text())}
    with importable(FOLDER):
        settings = runpy.run_path(str(FOLDER / "tables.py"))["Settings"]
    assert {"planted", "replacement", "per_set"} <= names <= set(settings.__dataclass_fields__)


# Queries for documents


def test_a_t5_learns_to_ask(tmp_path, run):
    """It learns one question for each of two kinds of passage, so that new passages get the right one."""
    model = tiny_models.build_t5(tmp_path / "t5")
    pairs = [("the river", "long blue river works"), ("the king", "short old king lives")] * 4
    pd.DataFrame(pairs, columns=["query", "text"]).to_csv(tmp_path / "train.tsv", sep="\t", index=False)
    documents = [("d1", "long blue river works"), ("d2", "short old king lives")]
    pd.DataFrame(documents, columns=["docno", "text"]).to_csv(tmp_path / "documents.tsv", sep="\t", index=False)
    files = "--train", tmp_path / "train.tsv", "--documents", tmp_path / "documents.tsv", "--out", tmp_path / "out"
    small = "--model", model, "--steps", 60, "--batch-size", 8, "--learning-rate", 1e-2, "--query-length", 6
    code, printed = run("generate_queries.py", *files, *small)
    assert code == 0, printed.err
    found = pd.read_csv(tmp_path / "out" / "pairs.tsv", sep="\t", dtype=str)
    assert found["qid"].tolist() == ["g-d1", "g-d2"]
    assert found["query"].tolist() == ["the river", "the king"]
    code, printed = run("generate_queries.py", *files, "--model", tmp_path / "none")
    assert code == 2 and "no model folder" in printed.err


def test_ms_marco_in_small(shared_data):
    """Training and test share no query, and nothing in a training passage's form tells that it is relevant."""
    with importable(FOLDER):
        names = runpy.run_path(str(FOLDER / "tables.py"))
    material = names["in_small"](shared_data, names["Settings"](labeller="words"))
    assert len(material.test_topics) == 300 and len(material.train_topics) > 5000
    for column in ("qid", "query"):
        assert not set(material.train_topics[column]) & set(material.test_topics[column])
    corpus = material.train.corpus
    assert set(corpus["docno"]) == set(material.train_qrels["docno"])  # every passage is somebody's answer
    assert corpus["text"].str.startswith("- ").mean() < 0.01  # lists
    assert material.train_qrels["qid"].is_unique
    # The paper's query sets have its sizes.
    gender = shared_data / "gender"
    sizes = {"rekabsaz_schedl_2020/queries_gender_annotated.csv": 1765, "rekabsaz_2021_fair/msmarco_passage.dev.fair.tsv": 215}
    assert {path: len(names["read_query_set"]("QS", str(gender / path)).topics) for path in sizes} == sizes
    gendered = names["read_gendered"](gender / "bigdeli_2021_identified_queries").topics
    assert gendered["gender"].value_counts().to_dict() == {"female": 1405, "male": 1405}
    annotated = names["read_gendered"](gender / "rekabsaz_schedl_2020" / "queries_gender_annotated.csv").topics
    assert set(annotated["gender"]) == {"female", "male"} and len(annotated) == 1944
    judged = material.test_qrels[material.test_qrels["qid"].isin(set(material.test_topics["qid"]))]
    assert judged["qid"].nunique() == 300


def test_effectiveness_on_trec_dl(shared_data):
    """BM25's first 20 have its published nDCG@10: .506 on the 43 queries of 2019, .480 on the 54 of 2020."""
    with importable(FOLDER):
        names = runpy.run_path(str(FOLDER / "tables.py"))
    sets = f"QS2={shared_data / 'gender' / 'rekabsaz_2021_fair' / 'msmarco_passage.dev.fair.tsv'}"
    options = SimpleNamespace(data=shared_data, dataset=None, query_sets=[sets], gendered=[])
    settings = names["Settings"](labeller="words")
    material = names["material_of"](options, settings)
    (dl,) = (one for one in material.sets if one.name == "DL")
    run = names["Setup"](material, settings, None).lists("DL")
    assert len(dl.topics) == 97 and run.groupby("qid").size().eq(20).all() and run["text"].str.len().gt(0).all()
    found = names["Setup"](material, settings, None).of_set(dl, run)["nDCG@10"]
    assert len(found) == 97 and found.mean() == pytest.approx((43 * 0.506 + 54 * 0.480) / 97, abs=5e-3)
