"""The program on planted collections: from end to end in miniature, its judge and its setting against brute force."""

import json
import runpy

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias.rankers.cross_encoder import CrossEncoder
from tests import tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "pooling_bias"

#: Settings in miniature, which teach nothing.
SMALL = {
    "layers": None, "train_topics": 10, "queries": 6, "dense_topics": 6, "triples": 4, "batch_size": 4, "max_length": 64,
    "passages": 10, "resamples": 50, "add_judged": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def planted():
    """The program as a module, without running it."""
    with importable(FOLDER):
        yield runpy.run_path(str(FOLDER / "planted.py"))


def test_the_judge_errs_in_its_share(planted):
    pairs = [(f"q{q}", f"d{d}") for q in range(40) for d in range(50)]
    frame = pd.DataFrame(pairs, columns=["qid", "docno"])
    truth = frozenset(pair for pair in pairs if pair[1].endswith("7"))
    said = np.array(planted["SimulatedJudge"](truth, 0.1, 3)(frame))
    right = said == [pair in truth for pair in pairs]
    assert 1 - right.mean() == pytest.approx(0.1, abs=0.02)
    assert planted["SimulatedJudge"](truth, 0.0, 3)(frame) == [float(pair in truth) for pair in pairs]
    shuffled = frame.sample(frac=1, random_state=0)
    again = pd.Series(planted["SimulatedJudge"](truth, 0.1, 3)(shuffled), index=shuffled.index).sort_index()
    assert (again.to_numpy() == said).all()


def test_all_corrections_in_miniature(tmp_path, run, planted, monkeypatch):
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    out, config = tmp_path / "out", tmp_path / "small.json"
    config.write_text(json.dumps(SMALL))
    small = "--config", config, "--model", model, "--out", out
    code, printed = run("planted.py", "--seeds", 1, *small)
    assert code == 0, printed.err
    summary = pd.read_csv(out / "summary.csv").set_index("correction")
    assert set(summary.index) == {*planted["ARMS"], "oracle", "all judgements"}
    assert summary.loc[["oracle", "all judgements"], "auc"].tolist() == [1.0, 1.0]
    assert summary.loc["plain", "difference"] == 0 and summary["full"].between(0, 1).all()
    pictures = {path.name for path in out.glob("*.png")}
    assert pictures == {f"figure5_{name}.png" for name in ("cet", "cet_lexical", "cet_paper", "cet_released")}
    assert "## Summary" in (out / "results.md").read_text()

    # The setting that is told is that of the frames.
    setting = pd.read_csv(out / "setting.csv").iloc[0]
    collection = planted["PlantedCollection"](
        1, topics=22, passages=220, paraphrased=0.5, pooling=0.0, survivorship=0.0, linguistic=0.0, depth=220
    )
    qrels = collection.get_qrels("full")
    relevant = set(map(tuple, qrels.loc[qrels["label"] > 0, ["qid", "docno"]].values))
    assert setting["relevant a topic"] == pytest.approx(len(relevant) / 22)
    train = pd.read_csv(out / "candidates-1" / "train.csv.gz", dtype=str)
    shown = {
        (qid, docno)
        for qid, docno, rank in collection.get_runs()["bm25"][["qid", "docno", "rank"]].itertuples(index=False)
        if rank < 20
    }
    kept = [pair for pair in zip(train["qid"], train["docno"]) if pair in relevant & shown]
    assert setting["positives"] == len(kept) and setting["training topics"] == len({qid for qid, _ in kept})
    pool = [p for p in zip(train["qid"], train["docno"]) if p[0] in dict(kept) and p not in set(kept)]
    assert setting["hidden share of candidates"] == pytest.approx(np.mean([pair in relevant for pair in pool]))

    # Another seed joins; what is finished is read back.
    fits = []
    fit = CrossEncoder.fit
    monkeypatch.setattr(CrossEncoder, "fit", lambda self, *frames: fits.append(1) or fit(self, *frames))
    code, printed = run("planted.py", "--seeds", 2, "--arms", "positive-aware", *small)
    assert code == 0 and len(fits) == 2 + 4  # the teacher's halves, plain, both oracles and one correction
    table = pd.read_csv(out / "effectiveness.csv")
    assert (table["seeds"] == 2).all() and set(table["correction"]) == {"plain", "oracle", "all judgements", "positive-aware"}
    code, printed = run("planted.py", "--seeds", 1, "--triples", 16, *small)
    assert code == 2 and "holds arms made with triples=4, not 16" in printed.err


def test_a_simulated_stronger_system_in_miniature(tmp_path, run, planted):
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    out, config = tmp_path / "out", tmp_path / "small.json"
    config.write_text(json.dumps({**json.loads((FOLDER / "strong.json").read_text()), **SMALL, "system": 8.0}))
    arms = "--arms", "CET", "CET, shuffled"
    code, printed = run("planted.py", "--seeds", 1, *arms, "--config", config, "--model", model, "--out", out)
    assert code == 0, printed.err
    summary = pd.read_csv(out / "summary.csv").set_index("correction")
    assert set(summary.index) == {"plain", "CET", "CET, shuffled", "oracle", "all judgements"}
    against = pd.read_csv(out / "against_shuffled.csv").query("judgements == 'full' and measure == 'nDCG@10'")
    expected = summary["full"] - summary["full"]["CET, shuffled"]
    np.testing.assert_allclose(against.set_index("correction")["difference"][expected.index], expected, atol=1e-12)
    # So strong a system ranks what is relevant before everything else.
    qrels = planted["PlantedCollection"](
        1, topics=22, passages=220, paraphrased=0.5, pooling=0.0, survivorship=0.0, linguistic=0.0, depth=220
    ).get_qrels("full")
    relevant = qrels[qrels["label"] > 0].groupby("qid")["docno"].agg(set)
    test = pd.read_csv(out / "candidates-1" / "test.csv.gz", dtype={"qid": str, "docno": str})
    for qid, own in test.groupby("qid"):
        flags = own.sort_values("rank")["docno"].isin(relevant[qid]).tolist()
        assert flags == sorted(flags, reverse=True) and sum(flags) == min(len(relevant[qid]), len(flags))


def test_what_a_user_may_get_wrong_and_how_long_it_takes(tmp_path, run):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"pool": 3}))
    code, printed = run("planted.py", "--config", config, "--out", tmp_path / "out")
    assert code == 2 and "unknown setting 'pool'" in printed.err
    config.write_text(json.dumps({**SMALL, "pool_depth": 5, "triples": 8}))
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    code, printed = run("planted.py", "--estimate", "--config", config, "--model", model, "--out", tmp_path / "out")
    assert code == 0 and "for all seeds on this machine" in printed.out and "AUC of BM25's score" in printed.out
    assert not (tmp_path / "out" / "summary.csv").exists()
