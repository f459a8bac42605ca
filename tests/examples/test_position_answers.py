"""The program that draws the paper's first figure, on small files of the real formats."""

import json

import pandas as pd
import pytest

from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "position_bias"


@pytest.fixture
def files(tmp_path):
    contexts = [f"The capital of land {i} is city{i}. It has a river. Nobody knows why." for i in range(12)]
    answers = [{"text": f"city{i}", "answer_start": c.find("city")} for i, c in enumerate(contexts)]
    paragraphs = [
        {"context": c, "qas": [{"id": f"s{i}", "question": "?", "answers": [answers[i]]}]} for i, c in enumerate(contexts)
    ]
    squad, spans = tmp_path / "squad.json", tmp_path / "spans.jsonl"
    squad.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    marked = [
        {"qid": i, "query": "?", "psgid": i, "passage": c, "selected_spans": ["It has a river", "absent"]}
        for i, c in enumerate(contexts)
    ]
    spans.write_text("\n".join(map(json.dumps, marked)))
    return squad, spans


def test_program_writes_pictures_tables_and_captions(files, tmp_path, run):
    squad, spans = files
    out = tmp_path / "out"
    code, printed = run("figure1.py", "--squad", squad, "--squad", squad, "--spans", spans, "--out", out, "--bins", 5)
    assert code == 0
    for name in ("answer_positions.png", "sentence_rotation.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    summary = pd.read_csv(out / "summary.csv").set_index(["collection", "unit"])
    spans_row = summary.loc[("MS MARCO, human-marked spans", "word")]
    assert (spans_row["matches"], spans_row["omitted"]) == (12, 0.5)
    assert summary.loc[("SQuAD", "word"), "matches"] == 12  # named twice, counted once
    bins = pd.read_csv(out / "answer_positions.csv")
    assert bins.groupby(["collection", "rotated"])["count"].sum().tolist() == [12] * 6
    captions = (out / "captions.txt").read_text()
    assert "analogue" in captions and "SQuAD: answers begin at 0.429" in captions
    assert str(out) in printed.out


def test_program_names_what_is_wrong(tmp_path, run):
    code, printed = run("figure1.py", "--squad", tmp_path / "nothing.json", "--out", tmp_path / "out")
    assert code == 2 and "nothing.json" in printed.err
    assert not (tmp_path / "out").exists()
    code, printed = run("figure1.py")
    assert code == 2
