"""The program that audits real rankers for source, length and order bias, from end to end in miniature."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias.report.first_stage import pisa_installed
from tests import tiny_models
from tests.conftest import ROOT

FOLDER = ROOT / "examples" / "further_biases"


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{row}\n" for row in rows))


@pytest.fixture
def data(tmp_path):
    """Both collections in the layout of the real ones: fourteen documents, each with a rewritten text, and two queries a set."""
    texts = [" ".join(["tea", "rain", "boat"][: 1 + number % 3] * (1 + number)) for number in range(14)]
    beir = [{"_id": f"d{number}", "title": "", "text": text} for number, text in enumerate(texts)]
    folder = tmp_path / "data" / "nfcorpus"
    lines(folder / "corpus.jsonl", map(json.dumps, beir))
    with gzip.open(folder / "corpus.llama2_rewritten.jsonl.gz", "wt") as file:
        file.writelines(json.dumps({**one, "text": f"moreover {one['text']}"}) + "\n" for one in beir)
    queries = {"q0": "tea rain", "q1": "boat tea"}
    lines(folder / "queries.jsonl", [json.dumps({"_id": qid, "text": words}) for qid, words in queries.items()])
    lines(folder / "qrels" / "test.tsv", ["query-id\tcorpus-id\tscore", "q0\td1\t1", "q0\td4\t2", "q1\td2\t2"])
    folder = tmp_path / "data" / "msmarco_trec_dl"
    lines(folder / "passages.tsv", [f"d{number}\t{text}" for number, text in enumerate(texts)])
    for year, qid in (("dl19", 1), ("dl20", 2)):
        lines(folder / f"topics.{year}-passage.tsv", [f"{qid}\ttea rain"])
        lines(folder / f"qrels.{year}-passage.txt", [f"{qid} 0 d1 1", f"{qid} 0 d0 0"])
        for run in ("bm25", "other"):
            lines(folder / "runs" / f"{year}.{run}.trec", [f"{qid} Q0 d{n} {n} {20 - n} {run}" for n in range(12)])
    return tmp_path / "data"


@pytest.mark.skipif(not pisa_installed(), reason="PISA is published for Linux on x86-64 only")
def test_the_three_audits(run, data, tmp_path):
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    code, printed = run("audits.py", "--data", data, "--model", model, "--out", tmp_path / "out")
    assert not code, printed.err
    order = pd.read_csv(tmp_path / "out" / "order.csv").query("system == 'one by one'")
    assert order.loc[order["measure"].isin(["places", "Kendall's tau"]), "value"].tolist() == [0, 1]
    length = pd.read_csv(tmp_path / "out" / "length.csv")
    assert set(length["system"]) == {"BM25", "BM25 >> model", "bm25", "other", "one by one"}
    assert np.isfinite(length["value"]).all()
    source = pd.read_csv(tmp_path / "out" / "source.csv")
    assert set(source["system"]) == {"BM25", "BM25 >> model"} and (source["measure"] == "displacement").sum() == 2
