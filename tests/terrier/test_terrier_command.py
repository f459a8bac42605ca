"""The command line over a Terrier index."""

import json

import pytest
from typer.testing import CliRunner

from pyterrier_debias.report.cli import app

pytestmark = [pytest.mark.java, pytest.mark.usefixtures("pictures_small")]


@pytest.fixture
def files(planted, tmp_path):
    """Topics and judgements as files."""
    planted.get_topics()[["qid", "query"]].head(6).to_csv(tmp_path / "topics.tsv", sep="\t", header=False, index=False)
    qrels = planted.get_qrels()
    lines = [f"{q} 0 {d} {n}\n" for q, d, n in zip(qrels["qid"], qrels["docno"], qrels["label"])]
    (tmp_path / "qrels.txt").write_text("".join(lines))
    return ["--queries", tmp_path / "topics.tsv", "--qrels", tmp_path / "qrels.txt", "--model", "none", "--biases", "pooling"]


def call(*arguments):
    result = CliRunner().invoke(app, ["audit", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def test_an_index_is_audited(planted_index, files, tmp_path):
    out = tmp_path / "out"
    code, _, err = call("--terrier", planted_index.path, "--wmodel", "BM25", "--wmodel", "DPH", *files, "--out", out)
    assert code == 0, err
    settings = json.loads((out / "audit.json").read_text())["settings"]
    assert settings["systems"] == ["BM25", "DPH"]
    assert settings["notes"][0].startswith("BM25 is Terrier's, over the collection's index; queries are tokenised")
    assert settings["versions"]["terrier"].startswith("5.")
    assert "Terrier index" in settings["dataset"]


def test_what_is_wrong_is_told_in_one_line(planted_index, files, tmp_path):
    code, out, err = call("--terrier", planted_index.path, "--wmodel", "BM52", *files)
    assert (code, out) == (2, "")
    assert err.startswith("pyterrier-debias: Terrier has no weighting model 'BM52'; use BM25, DPH") and len(err.splitlines()) == 1
    (tmp_path / "qrels.txt").write_text("x 0 elsewhere 1\n")
    (tmp_path / "topics.tsv").write_text("x\ta query\n")
    code, _, err = call("--terrier", planted_index.path, *files)
    assert code == 2 and "no judged docno (e.g. 'elsewhere') is in the index" in err and len(err.splitlines()) == 1
