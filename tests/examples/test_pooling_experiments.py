"""The programs on hidden judgements of real collections: their parts by hand, and each from end to end in miniature."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from pyterrier_debias import InputError
from pyterrier_debias.core.stage import flatten
from tests import tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "pooling_bias"

#: Settings in miniature.
SMALL = {
    "layers": 1, "batch_size": 4, "triples": 4, "queries": 6, "depth": 8, "seeds": 2, "resamples": 50, "max_length": 32,
    "kept": 1, "train_queries": 6, "pool_depth": 3, "list_depth": 10,
}  # fmt: skip


@pytest.fixture(scope="module")
def protocol():
    """The shared module of the programs."""
    with importable(FOLDER):
        import protocol

        yield protocol


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two years of topics with a run of BM25 each, in the layout of TREC DL; grades reach 3, and a judged document is lacking."""
    where = tmp_path_factory.mktemp("dl")
    write_collection(where, years=True)
    return where


@pytest.fixture(scope="module")
def parted(tmp_path_factory):
    """The same with one set of topics to train on, one to test on, and one run for both."""
    where = tmp_path_factory.mktemp("parted")
    write_collection(where, years=False)
    return where


def write_collection(where, *, years):
    generator = np.random.default_rng(3)
    texts = [" ".join(generator.choice(tiny_models.WORDS, size=12)) for _ in range(40)]
    (where / "passages.tsv").write_text("".join(f"d{i:02d}\t{text}\n" for i, text in enumerate(texts)))
    (where / "runs").mkdir()
    both = []
    for year in ("y1", "y2"):
        qids = [f"{year}q{n}" for n in range(8)]
        queries = {qid: " ".join(generator.choice(tiny_models.WORDS, size=3)) for qid in qids}
        split = year if years else {"y1": "train", "y2": "test"}[year]
        (where / f"topics.{split}.tsv").write_text("".join(f"{qid}\t{text}\n" for qid, text in queries.items()))
        run, qrels = [], []
        for qid in qids:
            order = generator.permutation(40)
            run += [f"{qid} Q0 d{d:02d} {rank} {40 - rank} bm25\n" for rank, d in enumerate(order[:20], start=1)]
            grades = {order[0]: 3, order[1]: 2, order[2]: 0, **dict.fromkeys(order[4:8], 2), order[9]: 1}
            qrels += [f"{qid} 0 d{d:02d} {grade}\n" for d, grade in grades.items()] + [f"{qid} 0 gone 3\n"]
        both += run
        (where / f"qrels.{split}.txt").write_text("".join(qrels))
        if years:
            (where / "runs" / f"{year}.bm25.trec").write_text("".join(run))
    if not years:
        (where / "runs" / "bm25.trec").write_text("".join(both))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build_sentence_transformer(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def config(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("config") / "small.json"
    path.write_text(json.dumps({**SMALL, "model": str(model), "retriever": str(model)}))
    return path


# Folds


def test_years_are_tested_in_turn(protocol, folder):
    source = protocol.open_source([str(folder)], protocol.Settings(train_queries=5, queries=4, dense_queries=1))
    assert source.min_label == 2 and source.measures == ("nDCG@10", "RR(rel=2)@10", "AP(rel=2)")
    assert "gone" not in set(source.qrels["docno"])
    for fold, trained in zip(source.folds, ("y2", "y1")):
        assert fold.name != trained and len(fold.train) == 5 and len(fold.dense) == 1 and len(fold.test) == 4
        assert {qid[:2] for qid in pd.concat([fold.train, fold.dense])["qid"]} == {trained}
        assert set(fold.train["qid"]).isdisjoint(fold.dense["qid"]) and {qid[:2] for qid in fold.test["qid"]} == {fold.name}
    assert set(source.runs["bm25"]["qid"].str[:2]) == {"y1", "y2"}


def test_halves_and_own_parts(protocol, tmp_path):
    (tmp_path / "collection.tsv").write_text("".join(f"d{i}\ta text\n" for i in range(30)))
    (tmp_path / "queries.tsv").write_text("".join(f"{i}\ta query\n" for i in range(30)))
    (tmp_path / "qrels").mkdir()
    lines = [f"{i} 0 d{i} 1\n" for i in range(30)]
    (tmp_path / "qrels" / "test.txt").write_text("".join(lines))
    first, second = protocol.open_source([str(tmp_path)], protocol.Settings()).folds
    assert set(first.test["qid"]) | set(second.test["qid"]) == {str(i) for i in range(30)}
    for one, other in ((first, second), (second, first)):
        assert set(one.train["qid"]) | set(one.dense["qid"]) == set(other.test["qid"])
        assert set(one.test["qid"]).isdisjoint(other.test["qid"])
    for part, some in {"train": lines[:20], "dev": lines[20:24], "test": lines[24:]}.items():
        (tmp_path / "qrels" / f"{part}.txt").write_text("".join(some))
    (fold,) = protocol.open_source([str(tmp_path)], protocol.Settings(dense_queries=3)).folds
    assert len(fold.train) == 17 and len(fold.dense) == 3 and set(fold.test["qid"]) == {str(i) for i in range(24, 30)}
    with pytest.raises(InputError, match="not 3"):
        protocol.open_source(["a", "b", "c"], protocol.Settings())


def test_real_collections_open(protocol, shared_data):
    settings = protocol.Settings()
    opened = {name: protocol.open_source([str(shared_data / name)], settings) for name in ("nfcorpus", "vaswani")}
    assert [(len(fold.train), len(fold.dense), len(fold.test)) for fold in opened["nfcorpus"].folds] == [(400, 100, 120)]
    assert sum(len(fold.test) for fold in opened["vaswani"].folds) == 93
    assert opened["nfcorpus"].min_label == opened["vaswani"].min_label == 1
    trec = protocol.open_source([str(shared_data / "msmarco_trec_dl")], settings)
    assert [fold.name for fold in trec.folds] == ["dl19", "dl20"] and trec.min_label == 2 and len(trec.runs) == 6
    assert all(set(run["qid"]) >= set(trec.topics["qid"]) for run in trec.runs.values())


# Lists and judgements


def test_fusion_by_hand(protocol):
    one = pd.DataFrame({"qid": "1", "docno": ["a", "b", "c"], "rank": [0, 1, 2]})
    other = pd.DataFrame({"qid": "1", "docno": ["c", "a"], "rank": [0, 1]})
    found = protocol.fused([one, other])
    assert found["docno"].tolist() == ["a", "c", "b"] and found["rank"].tolist() == [0, 1, 2]
    assert found["score"].tolist() == pytest.approx([1 / 61 + 1 / 62, 1 / 61 + 1 / 63, 1 / 62])


@pytest.fixture(scope="module")
def setup(protocol, folder, model, tmp_path_factory):
    """The first fold, under settings in miniature."""
    out = tmp_path_factory.mktemp("setup")
    settings = protocol.Settings(**{**SMALL, "model": str(model), "retriever": str(model)})
    source = protocol.open_source([str(folder)], settings)
    return protocol.Setup(source, source.folds[0], protocol.Lists(source, settings, out), settings, out)


def test_the_pool_keeps_the_best_and_hides_the_rest(setup):
    run = setup.lists("bm25").set_index(["qid", "docno"])["rank"]
    relevant = setup.judgements.full[setup.judgements.full["label"] >= 2]
    for qid, rows in relevant.groupby("qid"):
        kept = setup.judgements.pooled.query("qid == @qid and label >= 2")["docno"].tolist()
        assert kept == [min(rows["docno"], key=lambda docno, qid=qid: run.get((qid, docno), np.inf))]
    train = setup.candidates("train")
    added = train[train["score"].isna()]
    pairs = set(zip(setup.judgements.pooled["qid"], setup.judgements.pooled["docno"]))
    assert all(pair in pairs for pair in zip(added["qid"], added["docno"]))
    assert set(train["qid"]) == set(setup.fold.train["qid"]) and (train.groupby("qid").size() <= 9).all()
    expected = [run.get(pair, np.nan) for pair in zip(train["qid"], train["docno"])]
    assert train["pool_rank"].tolist() == pytest.approx(expected, nan_ok=True)
    assert "pool_rank" not in setup.candidates("test") and set(setup.candidates("test")["qid"]) == set(setup.fold.test["qid"])


def test_a_teacher_never_saw_the_queries_that_it_scores(setup, monkeypatch, tmp_path):
    from pyterrier_debias import CrossEncoder

    monkeypatch.setattr(setup, "out", tmp_path)  # teachers that another test has trained are kept
    seen = []
    fit = CrossEncoder.fit
    monkeypatch.setattr(CrossEncoder, "fit", lambda self, res, qrels: seen.append(set(res["qid"])) or fit(self, res, qrels))
    train = setup.candidates("train")
    scored = setup.teachers()(train)
    assert len(seen) == 2 and seen[0].isdisjoint(seen[1]) and seen[0] | seen[1] == set(train["qid"])
    assert scored[list(train.columns)].equals(train) and scored["teacher_score"].between(0, 1).all()
    assert scored["cosine"].between(-1.001, 1.001).all()
    assert setup.teachers()(train).equals(scored) and len(seen) == 2


def test_every_correction_has_its_options(protocol, setup):
    made = {name: make(setup) for name, make in protocol.CORRECTIONS.items()}
    assert set(protocol.COSTS) < set(made)
    made = {name: flatten(stage)[-1] for name, stage in made.items()}
    for stage in made.values():
        ranker = getattr(stage, "ranker", stage)
        assert ranker.training.min_label == 2 and ranker.training.max_steps == 1 and ranker.max_length == 32
    negatives = {name: made[name].training.negatives for name in ("BM25's negatives", "denoised", "positive-aware")}
    assert [type(one).__name__ for one in negatives.values()] == ["RankWindow", "DenoisedNegatives", "PositiveAwareNegatives"]
    assert made["CET, paper"].max_weight is None and made["CET"].max_weight == 1.0
    assert len(made["rank distribution"].training.negatives.chances_by_rank) == 8


def test_the_control_has_the_weights_of_cet_in_another_order(protocol, setup):
    torch.manual_seed(0)
    positive, negative = torch.randn(16, 1), torch.randn(16, 3)
    valid = torch.arange(48).reshape(16, 3) % 5 > 0
    control = protocol.CORRECTIONS["CET, shuffled"](setup)._coupling()
    known = protocol.CORRECTIONS["CET"](setup)._coupling().weights(positive, negative, valid)
    found = control.weights(positive, negative, valid)
    assert not torch.equal(found[valid], known[valid]) and torch.equal(found[~valid], known[~valid])
    assert torch.equal(found[valid].sort().values, known[valid].sort().values)
    assert control.record() == protocol.CORRECTIONS["CET"](setup)._coupling().record()


@pytest.mark.parametrize(("kind", "rate"), [("cross", 3e-4), ("adapter", 1e-3)])
def test_all_corrections_learn_at_one_rate(kind, rate, protocol, setup, monkeypatch):
    monkeypatch.setattr(setup, "settings", replace(setup.settings, ranker=kind))
    for name, make in protocol.CORRECTIONS.items():
        stage = flatten(make(setup))[-1]
        training = stage.training_options() if hasattr(stage, "training_options") else stage.training
        assert training.learning_rate == rate, name


def test_folds_are_one_result(protocol):
    def result(qids, value):
        rows = [(name, seed, qid, "full", "m", value * (1 + seed) + (name == "x"))
                for name in ("plain", "x") for seed in (0, 1) for qid in qids]  # fmt: skip
        per_query = pd.DataFrame(rows, columns=["correction", "seed", "qid", "judgements", "measure", "value"])
        costs = pd.DataFrame({"correction": ["plain", "x"] * 2, "seed": [0, 0, 1, 1], "seconds": [1.0, 2.0, 3.0, 4.0]})
        negatives = pd.DataFrame({"qid": list(qids)})
        arms = ("plain", "x")
        return protocol.HiddenResult(per_query, negatives, costs, arms, "plain", None, {"n": 1}, ("same",), resamples=20)

    one = protocol.crossed([result("abc", 0.0), result("d", 4.0)])
    table = one.table.set_index("correction")
    # Three queries of 0 and one of 4 and 8: each query counts alike, not each fold.
    assert table["mean"].tolist() == [1.5, 2.5] and (table["queries"] == 4).all() and (table["seeds"] == 2).all()
    assert one.costs["seconds"].tolist() == [2.0, 4.0, 6.0, 8.0] and one.counts == {"n": 2} and one.notes == ("same",)
    assert one.negatives["qid"].tolist() == list("abcd")


def test_full_configuration_is_the_papers(protocol):
    content = json.loads((FOLDER / "full.json").read_text())
    settings = protocol.Settings(**{**content, "layers": None})
    assert (settings.learning_rate, settings.warmup, settings.max_length, settings.batch_size) == (3e-6, 0.1, 256, 64)
    assert (settings.depth, settings.negatives_per_positive, settings.model) == (1000, 1, "bert-base-uncased")


def test_differences_are_from_the_baseline(protocol):
    rows = pd.DataFrame(
        [(seed, qid, name, base + int(qid) + seed) for seed in (0, 1) for qid in "123"
         for name, base in (("plain", 0.0), ("x", 0.5))],
        columns=["seed", "qid", "correction", "m"],
    )
    table = protocol.compared(rows, ["m"], "correction", "plain", 50).set_index("correction")
    assert table.loc["x", ["difference", "low", "high"]].tolist() == pytest.approx([0.5, 0.5, 0.5])
    assert table.at["plain", "difference"] == 0
    assert table["mean"].tolist() == [2.5, 3.0]


# From end to end


def test_corrections(folder, config, tmp_path, run):
    out, command = tmp_path / "out", ["--dataset", folder, "--config", config, "--seeds", 1]
    code, printed = run("corrections.py", *command, "--out", out, "--arms", "BM25's negatives")
    assert code == 0, printed.err
    before = {path: path.stat().st_mtime_ns for path in (out / "arms").glob("*/*/arm.json")}
    assert len(before) == 2 * 3
    assert run("corrections.py", *command, "--out", out, "--arms", "BM25's negatives", "all judgements")[0] == 0
    after = {path: path.stat().st_mtime_ns for path in (out / "arms").glob("*/*/arm.json")}
    # Each of the two folds makes the new one only.
    assert len(after) == 2 * 4 and {path: after[path] for path in before} == before
    summary = pd.read_csv(out / "summary.csv").set_index("correction")
    assert list(summary.index) == ["plain", "oracle", "all judgements", "BM25's negatives"]
    assert summary.at["oracle", "auc"] == 1 and summary.at["plain", "auc"] == 0.5
    table = pd.read_csv(out / "effectiveness.csv")
    assert (table.loc[table["judgements"] == "full", "queries"] == 12).all()
    assert (out / "emphasis_bm25_s_negatives.png").is_file() and (out / "summary.inc").is_file()
    code, printed = run("corrections.py", *command, "--out", out, "--depth", 5)
    assert code == 2 and "holds arms made with depth=8, not 5" in printed.err
    code, printed = run("corrections.py", *command, "--out", tmp_path / "other", "--negatives", "tasb")
    assert code == 2 and "use one of bm25, weak, dense, fusion" in printed.err


def test_corrections_of_adapters(folder, config, tmp_path, run, monkeypatch):
    from pyterrier_debias import BiEncoder

    seen, fit = [], BiEncoder.fit

    def noted(self, *frames):
        seen.append((self.training.learning_rate, self.long))
        return fit(self, *frames)

    monkeypatch.setattr(BiEncoder, "fit", noted)
    out = tmp_path / "out"
    code, printed = run(
        "corrections.py", "--dataset", folder, "--config", config, "--seeds", 1, "--ranker", "adapter", "--arms", "denoised",
        "--long", "firstp", "--out", out,
    )
    assert code == 0, printed.err
    assert set(seen) == {(1e-3, "firstp")} and json.loads((out / "arms.json").read_text())["ranker"] == "adapter"
    assert pd.read_csv(out / "summary.csv")["correction"].tolist() == ["plain", "oracle", "denoised"]


def test_retrievers(parted, config, tmp_path, run, protocol):
    out = tmp_path / "out"
    command = ["--dataset", parted, "--config", config, "--out", out, "--seeds", 1]
    code, printed = run("retrievers.py", *command, "--retrievers", "bm25", "fusion")
    assert code == 0, printed.err
    table = pd.read_csv(out / "retrievers.csv")
    assert set(table["retriever"]) == {"bm25", "fusion"} and table["nDCG@10"].is_monotonic_increasing
    assert (out / "quality.png").is_file() and np.allclose(table["difference"], table["CET"] - table["plain"])
    # Recall and hidden candidates against a count by hand.
    source = protocol.open_source([str(parted)], protocol.Settings(**SMALL))
    tested = pd.concat([fold.test for fold in source.folds])["qid"]
    run_of = source.runs["bm25"].sort_values(["qid", "rank"])
    relevant = source.qrels[source.qrels["label"] >= 2].groupby("qid")["docno"].agg(set)
    shares = [len(relevant[q] & set(run_of.loc[run_of["qid"] == q, "docno"].head(10))) / len(relevant[q]) for q in tested]
    assert table.set_index("retriever").at["bm25", "Recall@10"] == pytest.approx(np.mean(shares))
    assert table["hidden_share"].between(0, 1).all()


def test_sensitivity(parted, config, tmp_path, run):
    out = tmp_path / "out"
    command = ["--dataset", parted, "--config", config, "--out", out, "--seeds", 1, "--taus", 0.5, 10, "--thresholds", 0.5]
    code, printed = run("sensitivity.py", *command, "--estimate")
    assert code == 0 and "for all of it" in printed.out and not (out / "arms").exists(), printed.err
    assert run("sensitivity.py", *command)[0] == 0
    summary = pd.read_csv(out / "summary.csv")
    assert summary["correction"].tolist() == ["plain", "oracle", "CET, tau 0.5", "CET, tau 10", "denoised, below 0.5"]
    assert (out / "sensitivity.png").is_file()


def test_retrieval(parted, config, tmp_path, run):
    out = tmp_path / "out"
    command = ["--dataset", parted, "--config", config, "--out", out, "--arms", "CET", "oracle"]
    code, printed = run("retrieval.py", *command)
    assert code == 0 and "6 of 6 arms" in printed.out, printed.err
    table = pd.read_csv(out / "retrieval.csv").set_index(["use", "measure", "correction"]).sort_index()
    assert len(table) == 2 * 3 * 4 and (table["queries"] == 6).all() and (table["seeds"] == 2).all()
    assert table.at[("reranked", "nDCG@10", "plain"), "difference"] == 0
    # Of the whole collection of 40 documents nothing is missed among the first 100.
    assert (table.xs(("retrieved", "Recall@100"))["mean"] == 1).all()
    assert "0 of 6 arms" in run("retrieval.py", *command, "--estimate")[1].out
