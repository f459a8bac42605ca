"""The programs that measure gender: their figures against plain ones, and from end to end in miniature."""

import json
import runpy
import sys

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias.report.first_stage import pisa_installed
from tests import tiny_models
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "gender_bias"


@pytest.fixture
def module(monkeypatch):
    """A program as a module, without running it."""

    def load(name):
        monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
        return runpy.run_path(str(FOLDER / name))

    return load


def test_psychometrics_of_the_released_scores(run, shared_data, tmp_path):
    scores = shared_data / "gender" / "bigdeli_2021_identified_queries"
    code, _ = run("psychometrics.py", "--scores", scores, "--resamples", 60, "--out", tmp_path)
    assert code == 0
    table = pd.read_csv(tmp_path / "four.csv").set_index(["category", "groups"])
    male = pd.read_csv(scores / "psychological_characteristic_male_queries.csv.gz")
    assert table.loc[("drives", "female - male"), "second"] == pytest.approx(male["drives"].mean() / 100)
    six = male[["work", "leisure", "home", "money", "relig", "death"]].sum(axis=1).mean() / 100
    assert table.loc[("persconc", "male - neutral"), "first"] == pytest.approx(six)
    row = table.loc[("cogproc", "female - male")]
    assert row["low"] < row["gap"] < row["high"] and row["p"] == pytest.approx(1 / 61)
    assert len(pd.read_csv(tmp_path / "columns.csv")) == 66
    assert json.loads((tmp_path / "results.json").read_text())["settings"]["resamples"] == 60


def test_the_gap_is_as_likely_under_shuffled_groups(module):
    gap = module("psychometrics.py")["gap"]
    generator = np.random.default_rng(0)
    same = gap(generator.normal(size=(40, 2)), generator.normal(size=(50, 2)) + [0, 3], 400, 0)
    assert same["p"][0] > 0.05 and same["p"][1] == pytest.approx(1 / 401)
    assert same["gap"][1] == pytest.approx(-3, abs=0.5) and same["d"][1] == pytest.approx(-3, abs=0.5)


def test_versions_of_documents(module, shared_data):
    program = module("grepbias.py")
    frame = program["triples"](shared_data / "gender" / "grepbiasir")
    assert len(frame) == 696 and frame.groupby(["qid", "relevant"]).size().eq(3).all()
    assert set(frame["version"]) == {"male", "female", "neutral"} and frame["qid"].nunique() == 117
    # The male version one standard deviation above the female one, in each document.
    spread = frame["docno"].str[1:].astype(int) // 3
    scores = (spread + frame["version"].map({"male": 1.0, "female": 0.0, "neutral": 0.0})).to_numpy()
    table = program["wide"](frame, scores)
    unit = table["male"] - table["female"]
    assert unit.to_numpy() == pytest.approx(np.full(len(table), unit.iloc[0]))
    found = program["compared"](table, "male", "female", 0)
    assert found["difference"] == pytest.approx(unit.iloc[0]) and found["above"] == 1 and found["queries"] == 117
    assert program["compared"](table, "female", "neutral", 0)["above"] == 0.5


@pytest.mark.skipif(not pisa_installed(), reason="PISA is not installed")
def test_versions_of_documents_in_miniature(run, tmp_path):
    persons = {"M": "father", "F": "mother", "N": "parent"}
    rows = [
        {
            "q_id": q, "d_id": 6 * q + 3 * relevant + v, "relevant": relevant, "query": f"where did father cross the {place}",
            "doc_title": f"The {place}", "document": f"{person} crossed a {place} {'twice' if relevant else 'on a boat'}",
            "content_gender": gender, "exp_stereotype": ("Male", "Female")[q % 2],
        }
        for q, place in enumerate(["river", "bridge", "market", "harbour"])
        for relevant in (0, 1)
        for v, (gender, person) in enumerate(persons.items())
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "queries-documents_Career.csv", index=False)
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    code, printed = run("grepbias.py", "--data", tmp_path, "--model", model, "--out", tmp_path / "out")
    assert code == 0, printed.err
    versions = pd.read_csv(tmp_path / "out" / "versions.csv").set_index(["ranker", "documents", "versions"])
    assert len(versions) == 18 and (versions["queries"] == 4).all()
    # "father" is in each query, "mother" and "parent" in none.
    for documents in ("all", "relevant", "not relevant"):
        row = versions.loc[("BM25", documents, "male - female")]
        assert row["difference"] > 0 and row["above"] == 1
    lengths = pd.read_csv(tmp_path / "out" / "lengths.csv").set_index("relevant")
    assert lengths.loc[1].tolist() == [7, 7, 7] and lengths.loc[0].tolist() == [9, 9, 9]
    code, printed = run("grepbias.py", "--data", tmp_path / "out", "--model", model, "--out", tmp_path / "out")
    assert code == 2 and "there is no queries-documents_*.csv" in printed.err


def test_runs_on_a_few_queries(run, shared_data, tmp_path):
    data = shared_data / "gender_runs_trecdl19"
    queries = tmp_path / "queries.tsv"
    some = (shared_data / "gender/rekabsaz_2021_fair/trecdeep19_passage.fair.tsv").read_text().splitlines()[:4]
    queries.write_text("\n".join(some) + "\n")
    options = ["--dataset", shared_data / "msmarco_trec_dl", "--queries", queries, "--depth", 20, "--out", tmp_path / "out"]
    code, said = run("runs.py", *options, "--run", f"BM25={data / 'rekabsaz2021.BM25.trec.gz'}")
    assert code == 0
    table = pd.read_csv(tmp_path / "out" / "cutoffs.csv")
    assert set(table["cutoff"]) == {5, 10, 20} and (table["n"] == 4).all() and (table["no_text"] == 0).all()
    values = pd.read_csv(tmp_path / "out" / "per_query.csv")
    own = table[(table["magnitude_by"] == "tf") & (table["cutoff"] == 10)].iloc[0]
    assert own["ARaB"] == pytest.approx(values.loc[values["cutoff"] == 10, "ARaB"].mean())
    assert (tmp_path / "out" / "arab.png").is_file() and "written to" in said.out
    code, said = run("runs.py", *options, "--run", "BM25")
    assert code == 2 and "write NAME=FILE" in said.err


def test_excerpts(module):
    excerpt = module("runs.py")["excerpt"]
    assert excerpt("[[He]] knew.") == "[[He]] knew."
    assert excerpt("a" * 100 + " [[he]] " + "b" * 100) == "..." + "a" * 59 + " [[he]] " + "b" * 53 + "..."
