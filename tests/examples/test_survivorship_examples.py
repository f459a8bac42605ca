"""The survivorship programs, in miniature; the four pipelines with tiny random models."""

import json
import runpy

import numpy as np
import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import CrossEncoder, InputError, PlantedCollection
from tests import tiny_models
from tests.conftest import ROOT
from tests.examples.squad import squad_file

FOLDER = ROOT / "examples" / "survivorship_bias"


@pytest.fixture(scope="module")
def programs():
    return runpy.run_path(str(FOLDER / "pipelines.py"))


@pytest.fixture(scope="module")
def small():
    planted = PlantedCollection(1, topics=8, passages=100)
    return planted, planted.get_topics().head(2)


@pytest.mark.parametrize("name, builder", [
    ("monot5", "build_t5"), ("t5", "build_t5"), ("ance", "build_sentence_transformer"), ("colbert", "build_multi_vector"),
])  # fmt: skip
def test_pipelines(programs, small, tmp_path, name, builder):
    planted, topics = small
    folder = str(getattr(tiny_models, builder)(tmp_path / "model"))
    if name == "monot5":  # pyterrier_t5 reads a key that transformers 5 no longer writes
        config = json.loads((tmp_path / "model" / "config.json").read_text())
        (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "n_positions": 512}))
    options = {"tokenizer": folder} if name == "monot5" else {}
    first = programs["bm25"](planted.get_runs()["bm25"])
    pipeline = programs["RERANKERS"][name](first, planted.text_loader(), folder, depth=5, **options)
    found = pipeline(topics)
    shown = first(topics).query("rank < 5")
    assert set(zip(found["qid"], found["docno"])) == set(zip(shown["qid"], shown["docno"]))
    assert np.isfinite(found["score"]).all() and found["score"].nunique() > 2


def test_bm25_is_a_run_an_index_or_a_retriever(programs, small):
    planted, _ = small
    retriever = pt.Transformer.from_df(planted.get_runs()["bm25"])

    class Index:
        def bm25(self):
            return retriever

    assert programs["bm25"](Index()) is programs["bm25"](retriever) is retriever
    with pytest.raises(InputError, match="--pipelines x is not known"):
        programs["pipelines"](retriever, planted.text_loader(), ["x"])


def test_runs_of_pipelines_are_written(small, tmp_path, run):
    planted, topics = small
    (tmp_path / "toy").mkdir()
    planted.get_corpus()[["docno", "text"]].to_csv(tmp_path / "toy" / "passages.tsv", sep="\t", header=False, index=False)
    topics[["qid", "query"]].to_csv(tmp_path / "toy" / "topics.tsv", sep="\t", header=False, index=False)
    qrels = planted.get_qrels().merge(topics[["qid"]])
    lines = [f"{q} 0 {d} {label}\n" for q, d, label in qrels[["qid", "docno", "label"]].itertuples(index=False)]
    (tmp_path / "toy" / "qrels.txt").write_text("".join(lines))
    own = planted.get_runs()["bm25"].merge(topics[["qid"]])
    pt.io.write_results(own, str(tmp_path / "bm25.trec"))
    command = ["--dataset", tmp_path / "toy", "--out", tmp_path / "out", "--pipelines"]
    code, printed = run("pipelines.py", *command)
    assert code == 2 and "has no run; name one with --run" in printed.err
    code, printed = run("pipelines.py", "--run", tmp_path / "bm25.trec", *command)
    assert (code, printed.out) == (0, f"bm25: 2 queries, {len(own)} documents\n"), printed.err
    written = pt.io.read_results(str(tmp_path / "out" / "run.bm25.trec.gz"))
    assert set(zip(written["qid"], written["docno"])) == set(zip(own["qid"], own["docno"]))


def test_curve(tmp_path, run):
    code, printed = run(
        "curve.py", "--dataset", "planted", "--split", "full", "--topics", 20, "--measure", "RR(rel=2)@10",
        "--min-label", 2, "--resamples", 99, "--out", tmp_path,
    )  # fmt: skip
    assert code == 0
    table = pd.read_csv(tmp_path / "appendix_a.csv")
    assert table["k"].tolist() == ["All", *map(str, range(10, 0, -1))] and table["n"].tolist()[:2] == [20, 15]
    assert table["bm25"].iloc[0] == pytest.approx(0.75 * table["bm25"].iloc[1])
    for name in ("figure_5_1.png", "strata.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert "unbiased reranker" in printed.out


def test_what_was_published(tmp_path, run):
    code, _ = run("curve.py", "--published", "--out", tmp_path)
    assert code == 0
    table = pd.read_csv(tmp_path / "published_identity.csv")
    np.testing.assert_allclose(table["answered_x_share"], table["all_as_printed"], atol=5e-5)
    assert pd.read_csv(tmp_path / "published_strata.csv")["MonoT5"].iloc[0] == pytest.approx(0.34806)


def test_the_thesis_reranks_a_thousand(programs):
    assert programs["DEPTH"] == 1000
    assert {make.__kwdefaults__["depth"] for make in programs["RERANKERS"].values()} == {1000}


def test_curve_without_runs(shared_data, tmp_path, run):
    folder = shared_data / "msmarco_qna" / "qna_v2.1_validation_sample100.jsonl.gz"
    code, printed = run("curve.py", "--dataset", folder, "--out", tmp_path)
    assert code == 2 and "has no run; name some with --run" in printed.err


def test_dataset_report(shared_data, tmp_path, run):
    folder = shared_data / "msmarco_qna"
    code, _ = run("dataset_report.py", "--dataset", folder, "--split", "qna", "--out", tmp_path)
    assert code == 0
    assert pd.read_csv(tmp_path / "types.csv")["answered"].iloc[0] == 51
    available = pd.read_csv(tmp_path / "available.csv").set_index("table")
    assert not available.loc["answers", "there"] and available.loc["types", "there"]
    assert (tmp_path / "first_ranks.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("ranker", ["cross", "adapter"])
def test_filtered_training(ranker, tmp_path, run):
    if ranker == "cross":
        model, fixed = tiny_models.build(tmp_path / "model", labels=None), ["nothing: BM25's order"]
    else:
        model = tiny_models.build_sentence_transformer(tmp_path / "model")
        fixed = ["nothing: BM25's order", "nothing: untrained"]
    settings = {"layers": None, "dropout": None, "head_std": None, "thresholds": [3], "triples": 8, "batch_size": 4,
                "depth": 10, "queries": 8, "resamples": 20, "max_length": 48}  # fmt: skip
    (tmp_path / "small.json").write_text(json.dumps(settings))
    code, printed = run(
        "filtered_training.py", "--model", model, "--config", tmp_path / "small.json", "--seeds", 1,
        "--ranker", ranker, "--out", tmp_path / "out",
    )  # fmt: skip
    assert code == 0, printed.err
    table = pd.read_csv(tmp_path / "out" / "effectiveness.csv")
    assert table["trained_on"].tolist()[: len(fixed)] == fixed and (table["training_queries"][: len(fixed)] == 0).all()
    table = table.iloc[len(fixed) :]
    assert table["trained_on"].tolist() == ["first k", "as many, drawn", "first k"]
    assert table["training_queries"].iloc[0] == table["training_queries"].iloc[1] < table["training_queries"].iloc[2]
    compared = pd.read_csv(tmp_path / "out" / "filtered_less_drawn.csv")
    assert len(compared) == 2 and compared["queries"].tolist() == [8, 8]
    of_all = pd.read_csv(tmp_path / "out" / "filtered_less_all.csv").set_index("measure")["difference"]
    expected = table["nDCG@10"].iloc[0] - table["nDCG@10"].iloc[2]
    assert of_all["nDCG@10"] == pytest.approx(expected)


def test_real_questions(tmp_path, run):
    pytest.importorskip("pyterrier_pisa")
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    questions = squad_file(tmp_path / "dev.json", 8)
    unanswerable = squad_file(tmp_path / "two.json", 8, impossible=True)
    command = ["--questions", questions, "--unanswerable", unanswerable, "--model", model, "--resamples", 19]
    command += ["--out", tmp_path / "out"]
    code, printed = run("real_questions.py", *command)
    assert code == 0, printed.err
    found = {name: pd.read_csv(tmp_path / "out" / f"{name}.csv") for name in ("shares", "distortion", "lead", "order")}
    shares = found["shares"].set_index(["shown", "k"])["share"]
    # What is worded like another paragraph does not survive where BM25's first one is all that is seen.
    assert shares["BM25", 1] == pytest.approx(28 / 48) and shares.groupby("shown").is_monotonic_increasing.all()
    found = {name: table[table["measure"] == "RR@10"] if "measure" in table else table for name, table in found.items()}
    table = found["distortion"].set_index(["shown", "system", "k"])
    wide = pd.read_csv(tmp_path / "out" / "distortion_by_k.csv").set_index(["shown", "system"])
    assert wide.loc[("BM25", "BM25"), "k = 1_low"] == table.loc[("BM25", "BM25", 1), "low"]
    own = table.loc[("BM25", "BM25", 1)]
    assert (own["n"], own["survivors"]) == (28, 1) and own["distortion"] == pytest.approx(1 - own["all"])
    assert own["low"] < own["distortion"] < own["high"]
    leads = found["lead"].set_index(["shown", "system", "k"])["distortion"]
    minilm = table.loc[("BM25", "all-MiniLM-L6-v2", 1), "distortion"]
    assert leads["BM25", "all-MiniLM-L6-v2", 1] == pytest.approx(minilm - own["distortion"])
    assert set(found["order"]["shown"]) == {"BM25", "one layer", "both"} and found["order"]["tau"].between(-1, 1).all()
    answerability = pd.read_csv(tmp_path / "out" / "answerability.csv")
    assert answerability["questions"].tolist() == [48] * 4 and answerability["AUC"].between(0, 1).all()
    assert (tmp_path / "out" / "curves.png").read_bytes().startswith(b"\x89PNG")
    # A second call reads the runs that the first one left, and says the same.
    (tmp_path / "out" / "distortion.csv").unlink()
    before = (tmp_path / "out" / "runs" / "minilm.trec.gz").stat().st_mtime_ns
    extra = tmp_path / "out" / "runs" / "bm25.trec.gz"
    assert run("real_questions.py", *command, "--run", f"again={extra}")[0] == 0
    assert (tmp_path / "out" / "runs" / "minilm.trec.gz").stat().st_mtime_ns == before
    again = pd.read_csv(tmp_path / "out" / "distortion.csv").query("measure == 'RR@10'").set_index(["shown", "system", "k"])
    pd.testing.assert_series_equal(again.loc[("BM25", "again", 1)], own, check_names=False)
    code, printed = run("real_questions.py", *command, "--run", extra)
    assert code == 2 and f"--run {extra}: write NAME=FILE" in printed.err


def test_rankers_of_ones_own_on_real_questions(tmp_path, run):
    """They rerank what the fusion finds; a second call reads what the first one kept."""
    pytest.importorskip("pyterrier_pisa")
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    CrossEncoder(str(tiny_models.build(tmp_path / "source"))).save(tmp_path / "mine")
    questions = squad_file(tmp_path / "dev.json", 8)
    unanswerable = squad_file(tmp_path / "two.json", 8, impossible=True)
    command = ["--questions", questions, "--unanswerable", unanswerable, "--model", model, "--resamples", 19]
    command += ["--out", tmp_path / "out", "--ranker", f"again={model}", "--ranker", f"mine={tmp_path / 'mine'}"]
    (tmp_path / "small.json").write_text('{"rerank": 3}')
    code, printed = run("real_questions.py", *command, "--config", tmp_path / "small.json")
    assert code == 0, printed.err
    systems = ["BM25", "all-MiniLM-L6-v2", "BM25 + MiniLM", "again", "mine"]
    assert pd.read_csv(tmp_path / "out" / "distortion.csv")["system"].unique().tolist() == [*systems, "one layer"]
    [folder] = (tmp_path / "out" / "runs").glob("mine*")
    parts = sorted(folder.glob("*.trec.gz"))
    found = pd.concat([pt.io.read_results(str(path)) for path in parts])
    assert len(parts) == 8 and (found.groupby("qid").size() == 3).all() and found["qid"].nunique() == 48
    # A part that is lost is made again, the others are not.
    before = found.sort_values(["qid", "rank"]).reset_index(drop=True)
    kept = parts[1].stat().st_mtime_ns
    parts[0].unlink()
    assert run("real_questions.py", *command, "--config", tmp_path / "small.json")[0] == 0
    found = pd.concat([pt.io.read_results(str(path)) for path in parts]).sort_values(["qid", "rank"]).reset_index(drop=True)
    pd.testing.assert_frame_equal(found, before)
    assert parts[1].stat().st_mtime_ns == kept
    twice = ["--ranker", f"mine={model}"]
    code, printed = run("real_questions.py", *command, *twice, "--config", tmp_path / "small.json")
    assert code == 2 and "'mine' is used twice" in printed.err


@pytest.mark.parametrize("ranker", ["adapter", "dense"])
def test_filtered_training_on_real_questions(ranker, tmp_path, run):
    pytest.importorskip("pyterrier_pisa")
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    files = ["--train", squad_file(tmp_path / "train.json", 6), "--test", squad_file(tmp_path / "dev.json", 4, first=20)]
    settings = {"layers": 1, "thresholds": [1], "steps": 2, "batch_size": 4, "size": 8, "shown": 3, "resamples": 20, "seeds": 1,
                "max_length": 48, "dropout": None, "queries": 24}  # fmt: skip
    (tmp_path / "small.json").write_text(json.dumps(settings))
    options = ["--model", model, "--config", tmp_path / "small.json", "--ranker", ranker, "--out", tmp_path / "out"]
    code, printed = run("filtered_training.py", *files, *options)
    assert code == 0, printed.err
    means = pd.read_csv(tmp_path / "out" / "effectiveness.csv").fillna("").astype({"k": str})
    arms = set(map(tuple, means[["shown", "k", "trained_on"]].to_numpy()))
    assert {("any", "all", "first k"), ("BM25", "1", "first k"), ("BM25", "1", "later than k")} < arms
    assert set(means["training_queries"][1:]) == {8} and means["trained_on"].iloc[0] == "nothing: untrained"
    compared = pd.read_csv(tmp_path / "out" / "filtered_less_drawn.csv")
    row = compared.set_index(["measure", "shown", "trained_on"]).loc[("RR@10", "BM25", "first k")].squeeze()
    by_arm = means.set_index(["shown", "k", "trained_on"])["RR@10"]
    assert row["difference"] == pytest.approx(by_arm["BM25", "1", "first k"] - by_arm["any", "all", "first k"])
    assert (row["articles"], row["queries"], row["seeds"]) == (4, 24, 1) and row["low"] <= row["difference"] <= row["high"]
    run_file = tmp_path / "out" / "arms" / "any-all-first_k-0" / "run.trec.gz"
    assert pt.io.read_results(str(run_file))["qid"].nunique() == 24
    same = [files[0], files[1], "--test", files[1]]
    code, printed = run("filtered_training.py", *same, "--ranker", ranker, "--out", tmp_path / "other")
    assert code == 2 and "articles in common" in printed.err
    code, printed = run("filtered_training.py", *files, "--out", tmp_path / "third")
    assert code == 2 and "--ranker adapter or dense" in printed.err
