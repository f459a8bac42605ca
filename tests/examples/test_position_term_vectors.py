"""The program that draws the paper's second figure, with a tiny model on a small file of the real format."""

import json

import pandas as pd
import pytest

from tests import tiny_models
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "position_bias"


@pytest.fixture
def squad(tmp_path):
    words = "the river the queen of the bridge and the doctor built a long harbour in the old market".split()
    contexts = [" ".join(words[i:] + words[:i]) for i in range(12)]
    qas = [{"question": "?", "answers": [{"text": "queen", "answer_start": c.find("queen")}]} for c in contexts]
    paragraphs = [{"context": c, "qas": [{"id": f"s{i}", **qas[i]}]} for i, c in enumerate(contexts)]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_program_writes_picture_and_tables(squad, tmp_path, run):
    model = tiny_models.build(tmp_path / "tiny", labels=None)
    out = tmp_path / "out"
    code, printed = run("figure2.py", "--dataset", squad, "--model", model, "--passages", 8, "--positions-off", "--out", out)
    assert code == 0
    assert (out / "ats.png").read_bytes().startswith(b"\x89PNG")
    summary = pd.read_csv(out / "mats.csv").groupby("encoder").first()
    assert set(summary.index) == {"tiny", "tiny, rotated passages", "tiny, positions off"}
    # Two of the toy's passages are one text when rotated, and count once.
    assert (summary["passages"] + summary["duplicates"] == 8).all() and summary["passages"].min() >= 7
    # All passages hold the same words, so that without positions a word's vector is the same in all of them.
    assert summary.loc["tiny, positions off", "mats_paper"] == pytest.approx(0.0, abs=1e-6)
    assert summary.loc["tiny", "mats_paper"] > 0.01
    curve = pd.read_csv(out / "ats.csv")
    assert curve.groupby("encoder")["delta"].max().max() < 19
    assert "mats_paper" in printed.out


def test_bad_calls(squad, tmp_path, run):
    code, printed = run("figure2.py", "--dataset", squad, "--model", tmp_path / "nowhere")
    assert code == 2 and "no model folder" in printed.err
    relative = tiny_models.build_t5(tmp_path / "t5")
    code, printed = run("figure2.py", "--dataset", squad, "--model", relative, "--positions-off")
    assert code == 2 and "no table of position vectors" in printed.err
