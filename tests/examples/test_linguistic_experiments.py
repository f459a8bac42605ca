"""The programs on wording: their parts against closed forms and brute force, and each from end to end in miniature."""

import argparse
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import InputError
from pyterrier_debias.rankers.vectors import Vectors
from tests import tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "linguistic_bias"

#: Settings in miniature.
SMALL = {
    "layers": 2, "dropout": None, "precision": "float32", "batch_size": 4, "triples": 8, "depth": 8, "queries": 12, "seeds": 2,
    "resamples": 60, "max_length": 32, "train_queries": 8, "validation_queries": 4, "weak_layers": 1, "num_results": 20,
    "index_set": "words", "encode_dtype": "float32", "measure_learners": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def programs():
    """The shared modules of the programs."""
    with importable(FOLDER):
        import alpha
        import equalize
        import reporting
        import study

        yield argparse.Namespace(alpha=alpha, equalize=equalize, reporting=reporting, study=study)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A collection with training, validation and test queries of one to six words, a run of BM25, and titles."""
    where = tmp_path_factory.mktemp("parted")
    write_collection(where, {"train": 18, "dev": 4, "test": 8}, seed=1, titles=True)
    return where


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another one to test on alone."""
    where = tmp_path_factory.mktemp("other")
    write_collection(where, {"test": 6}, seed=2, titles=False)
    return where


def write_collection(where, parts, *, seed, titles):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(tiny_models.WORDS, size=10)) for _ in range(30)]
    title = {"title": "red bridge"} if titles else {}
    lines = [json.dumps({"_id": f"d{i:02d}", "text": text, **title}) for i, text in enumerate(texts)]
    (where / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (where / "qrels").mkdir()
    (where / "runs").mkdir()
    queries, run = [], []
    for part, n in parts.items():
        qrels = ["query-id\tcorpus-id\tscore\n"]
        for number in range(n):
            qid = f"{part}{number}"
            words = generator.choice(tiny_models.WORDS, size=1 + number % 6)
            queries.append(json.dumps({"_id": qid, "text": " ".join(words)}))
            order = generator.permutation(30)
            run += [f"{qid} Q0 d{d:02d} {rank} {30 - rank} bm25\n" for rank, d in enumerate(order[:12], start=1)]
            qrels += [f"{qid}\td{d:02d}\t{grade}\n" for d, grade in ((order[0], 2), (order[5], 1), (order[20], 1))]
        (where / "qrels" / f"{part}.tsv").write_text("".join(qrels))
    (where / "queries.jsonl").write_text("\n".join(queries) + "\n")
    (where / "runs" / "bm25.trec").write_text("".join(run))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.build(tmp_path_factory.mktemp("model") / "tiny", labels=None, layers=3)


@pytest.fixture(scope="module")
def config(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("config") / "small.json"
    path.write_text(json.dumps({**SMALL, "model": str(model)}))
    return path


# Collections


def opened(programs, folder, tmp_path, model, **options):
    settings = programs.study.Settings(**{**SMALL, "model": str(model), **options})
    return settings, *programs.study.open_sources(argparse.Namespace(dataset=[str(folder)], train=None, out=tmp_path), settings)


def test_training_queries_are_set_aside_and_trained_on_by_none(programs, folder, tmp_path, model):
    _, lessons, (source,) = opened(programs, folder, tmp_path, model)
    tested, trained, validation = (set(frame["qid"]) for frame in (source.topics, lessons.topics, lessons.validation))
    assert len(tested) == 12 and {qid for qid in tested if qid.startswith("test")} == {f"test{i}" for i in range(8)}
    assert {qid[:5] for qid in trained} == {"train"} and {qid[:3] for qid in validation} == {"dev"}
    assert tested.isdisjoint(trained) and len(tested | trained) == 26
    assert source.recipe == "8 test queries, 4 training queries that were set aside"
    assert source.dataset.corpus["text"].str.startswith("red bridge ").all()
    # Complexity is that of the tested queries alone: its mean over them is that of z scores.
    assert source.topics["complexity"].abs().max() > 0 and set(source.live) <= {"NDW", "TTR", "CTTR", "RTTR", "LogTTR"}
    assert np.allclose(source.topics["relevant"], np.log(3))
    assert source.topics["length"].tolist() == [len(query.split()) for query in source.topics["query"]]


def test_training_candidates_hold_what_is_judged_and_depend_on_the_seed(programs, folder, tmp_path, model):
    _, lessons, (source,) = opened(programs, folder, tmp_path, model)
    frames = [lessons.candidates(seed) for seed in (0, 1, 0)]
    assert frames[0].equals(frames[2]) and set(frames[0]["qid"]) != set(frames[1]["qid"])
    for frame in frames:
        assert frame["qid"].nunique() == 8 and frame["complexity"].notna().all() and frame["text"].str.len().min() > 0
        judged = source.qrels[source.qrels["qid"].isin(frame["qid"])]
        assert set(zip(judged["qid"], judged["docno"])) <= set(zip(frame["qid"], frame["docno"]))
        # Eight of the run, and of three judged ones the one that the run lacks.
        assert (frame.groupby("qid").size() == 9).all()


def test_real_collections_open(programs, shared_data, tmp_path):
    settings = programs.study.Settings(index_set="words")
    specs = [str(shared_data / name) for name in ("fiqa_subset", "msmarco_trec_dl")]
    lessons, sources = programs.study.open_sources(argparse.Namespace(dataset=specs, train=None, out=tmp_path), settings)
    # FiQA's training queries have no answer in the closed collection.
    assert lessons is None
    assert [(source.name, len(source.topics), source.complete) for source in sources] == [
        ("fiqa_subset", 333, True), ("msmarco_trec_dl", 43, False)
    ]
    assert 50 < len(sources[1].documents) <= 43 * 50 < len(sources[1].dataset.corpus)


# Vectors


def test_scores_less_a_share_of_others_are_inner_products(programs):
    generator = np.random.default_rng(0)
    q, d, qb, db = (generator.normal(size=shape).astype(np.float32) for shape in ((4, 3), (6, 3), (4, 2), (6, 2)))
    docnos = [f"d{i}" for i in range(6)]
    make = programs.study.Encoded
    both = make(q, Vectors.gather([(docnos, d)])).less(make(qb, Vectors.gather([(docnos, db)])), 0.3)
    assert np.allclose(both.queries @ both.vectors.matrix.T, q @ d.T - 0.3 * qb @ db.T, atol=1e-6)
    with pytest.raises(InputError, match="same documents"):
        both.less(make(qb, Vectors.gather([(docnos[:5], db[:5])])), 0.3)


def test_both_uses_are_those_of_the_ranker_itself(programs, folder, tmp_path, model):
    settings, lessons, (source,) = opened(programs, folder, tmp_path, model, layers=None)
    ranker = programs.study.new_ranker(settings, tmp_path)
    rows = programs.study.encoded_rows(ranker, "robust", lessons, [source], settings, tmp_path)
    runs = {
        "retrieved": ranker.retriever(source.documents, num_results=20)(source.topics[["qid", "query"]]),
        "reranked": ranker(source.dataset.text_loader()(source.candidates)),
    }
    for use, found in runs.items():
        own = programs.study.of_run(found, source, use).set_index("qid")["nDCG@10"]
        assert rows[rows["use"] == use].set_index("qid")["nDCG@10"].to_dict() == pytest.approx(own.to_dict())
    validated = rows[rows["use"] == "validated"]
    assert set(validated["qid"]) == set(lessons.validation["qid"])
    again = programs.study.Encoded.open(tmp_path / "robust" / source.name).measured(source, 20)
    assert again["nDCG@10"].tolist() == rows.loc[rows["use"] != "validated", "nDCG@10"].tolist()


# Ways to train


def test_ways_have_the_options_of_the_settings(programs, tmp_path, model):
    settings = programs.study.Settings(**{**SMALL, "model": str(model), "alpha": 0.3, "temperature": 0.1, "triples": 40})
    stage = programs.study.equalized(settings, 5, tmp_path, "less_data", settings.alpha)
    training = stage.training_options()
    assert (stage.alpha, training.seed, training.max_steps, stage.negatives) == (0.3, 5, 10, "in_batch")
    # A fifth of the data, a fifth of the steps, and what the loss needs.
    learner = stage.biased.training
    assert (learner.max_steps, learner.in_batch_negatives, learner.loss, dict(learner.loss_options)) == (
        2, True, "infonce", {"temperature": 0.1}
    )
    assert programs.study.learner_of("weaker_model", settings, tmp_path, stage.training).layers == 1
    assert programs.study.learner_of("fewer_steps", settings, tmp_path, stage.training).share == 0.2
    full = json.loads((FOLDER / "full.json").read_text())
    paper = programs.study.Settings(**{**full, "layers": None})
    complexity = programs.study.complexity_of(paper)
    assert (complexity.preset, complexity.parser) == ("paper", "stanford")
    assert programs.study.complexity_of(programs.study.Settings()).parser is None
    assert (paper.model, paper.learning_rate, paper.alpha, paper.similarity) == ("bert-base-uncased", 1e-5, 0.1, "dot")
    assert programs.study.training_of(paper, 0).in_batch_negatives is False


def test_a_weight_on_the_probability_trains_like_none(programs, folder, tmp_path, model):
    settings, lessons, _ = opened(programs, folder, tmp_path, model)
    candidates, qrels = lessons.candidates(0), lessons.source.qrels
    ways = programs.study.WAYS
    made = {n: ways[n].fit(settings, 0, tmp_path, candidates, qrels, other=None) for n in ways if "weight" in n or n == "plain"}
    queries = {name: ranker.encode_queries(["red bridge works"]) for name, ranker in made.items()}
    assert np.allclose(queries["reverse weight, of the probability"], queries["plain"], atol=1e-6)
    assert not np.allclose(queries["reverse weight"], queries["plain"], atol=1e-6)


# Tables


def rows_of(values, dataset="c", use="retrieved"):
    """Values of shape [rankers, seeds, queries] as rows."""
    return pd.DataFrame(
        [
            {"ranker": ranker, "seed": s, "qid": f"{i:02d}", "dataset": dataset, "use": use, "nDCG@10": value}
            for ranker, seeds in values.items() for s, queries in enumerate(seeds) for i, value in enumerate(queries)
        ]
    )


def source_of(programs, n, name="c"):
    generator = np.random.default_rng(n)
    topics = pd.DataFrame(
        {
            "qid": [f"{i:02d}" for i in range(n)], "complexity": np.linspace(-1, 1, n),
            "length": generator.integers(1, 9, n).astype(float), "relevant": generator.normal(size=n),
        }
    )
    return argparse.Namespace(name=name, topics=topics)


def test_spread_is_that_of_all_seeds_and_queries(programs):
    values = {"plain": [[0.0, 0.5, 1.0] * 4, [0.5, 0.5, 0.5] * 4], "x": [[0.5] * 12, [0.5] * 12]}
    results = programs.reporting.Results(rows_of(values), [source_of(programs, 12)], 200)
    table = results.spread().set_index("ranker")
    # Six values, four times: mean .5, mean square (0 + .25 + 1 + 3 * .25) / 6 = 1 / 3, sd = sqrt(1/3 - 1/4) = sqrt(1/12).
    assert table.loc["plain", ["mean", "sd", "cv"]].tolist() == pytest.approx([0.5, 12**-0.5, 2 * 12**-0.5])
    assert table.loc["x", ["mean", "sd", "cv", "cv_low", "cv_high"]].tolist() == pytest.approx([0.5, 0, 0, 0, 0], abs=1e-7)
    changes = results.changes("plain").set_index("ranker")
    assert changes.at["x", "mean"] == 0 and changes.at["x", "sd"] == pytest.approx(-(12**-0.5))
    assert changes.at["x", "sd_low"] <= changes.at["x", "sd"] <= changes.at["x", "sd_high"]


def test_slopes_find_what_was_planted_and_no_more(programs):
    n, generator = 80, np.random.default_rng(3)
    source = source_of(programs, n)
    x = source.topics["complexity"].to_numpy()
    noise = [0.02 * generator.normal(size=n) for _ in range(4)]
    values = {"plain": [0.5 - 0.1 * x + noise[0], 0.5 - 0.1 * x + noise[1]], "level": [0.5 + noise[2], 0.5 + noise[3]]}
    results = programs.reporting.Results(rows_of(values), [source], 200)
    table = results.slopes().set_index("ranker")
    assert table.at["plain", "slope"] == pytest.approx(-0.1 * x.std(), abs=0.01) and table.at["plain", "p"] < 0.02
    assert table.at["plain", "slope given controls_high"] < 0 < table.at["plain", "share"]
    assert abs(table.at["level", "slope"]) < 0.01
    changes = results.changes("plain").set_index("ranker")
    expected = table.at["level", "slope given controls"] - table.at["plain", "slope given controls"]
    assert changes.at["level", "slope given controls"] == pytest.approx(expected) and changes.at["level", "p"] < 1e-6


def test_tests_are_corrected_by_bonferroni(programs):
    generator = np.random.default_rng(0)
    base = generator.random((2, 40))
    worse, noise = base - 0.05 - 0.01 * generator.random((2, 40)), generator.random((2, 40))
    values = {"paper": base, "worse": worse, "same": base, "noise": noise}
    table = programs.reporting.Results(rows_of(values), [source_of(programs, 40)], 100).against("paper").set_index("against")
    assert list(table.index) == ["worse", "same", "noise"]
    assert table.at["worse", "p_corrected"] < 1e-9 and table.at["same", "p"] == 1
    assert np.allclose(table["p_corrected"], np.minimum(1, 3 * table["p"]))
    assert 0.05 < table.at["worse", "low"] <= table.at["worse", "difference"] <= table.at["worse", "high"] < 0.06


def test_collections_are_averaged_as_macro_means(programs):
    parts = [programs.reporting.moments(np.array([[0.0, 1.0]])), programs.reporting.moments(np.array([[0.5, 1.0, 1.0, 0.5]]))]
    # c_v: .5 / .5 = 1 and .25 / .75 = 1 / 3.
    found = programs.reporting.macro(parts, programs.reporting.cv_of, 50)
    assert found["estimate"] == pytest.approx(2 / 3)
    one = replace(programs.study.Settings(), resamples=500)
    drawn = programs.reporting.macro([np.arange(100.0).reshape(1, 100, 1)], programs.reporting.mean_of, one.resamples)
    assert drawn["low"] < 49.5 < drawn["high"] and drawn["high"] - drawn["low"] == pytest.approx(4 * 28.87 / 10, rel=0.15)


# From end to end


def test_equalize_and_alpha(folder, other, config, tmp_path, run):
    out = tmp_path / "out"
    arms = ["plain", "Equalize, weaker model", "Equalize, biased data", "group DRO"]
    command = ["--dataset", folder, "--dataset", other, "--config", config, "--seeds", 1, "--out", out]
    code, printed = run("equalize.py", *command, "--arms", *arms)
    assert code == 0 and "4 of 4 arms" in printed.out, printed.err
    spread, reranked = (pd.read_csv(out / f"spread{end}.csv") for end in ("", "_reranked"))
    rankers = ["BM25", "untrained", *arms, "plain minus weaker model"]
    assert spread["ranker"].tolist() == reranked["ranker"].tolist() == rankers * 2
    assert set(spread["use"]) == {"retrieved"} and set(reranked["use"]) == {"reranked"}
    assert (spread.loc[spread["dataset"] == folder.name, "queries"] == 12).all()
    assert (pd.read_csv(out / "over_datasets.csv")["collections"] == 2).all()
    learners = pd.read_csv(out / "learners.csv")
    assert learners["learner"].tolist() == ["weaker_model", "biased_data"] * 2
    assert learners[["accuracy", "biased_accuracy", "biased mean", "mean", "change of mean"]].notna().all(axis=None)
    assert (out / f"curve_{other.name}_retrieved.png").is_file() and (out / "tests.inc").is_file()
    drawn = sorted(path.stem for path in out.glob("figure_*.png"))
    assert drawn == ["figure_4", "figure_4_reranked", "figure_5", "figure_5_reranked"]
    assert pd.read_csv(out / "validation.csv")["ranker"].tolist() == ["untrained", *arms]
    plain = spread[spread["dataset"] == folder.name].set_index("ranker")["mean"]
    before = {path: path.stat().st_mtime_ns for path in (out / "arms").glob("*/rows.csv")}
    assert len(before) == len(arms)

    # The other program takes what is there, and makes the other alpha only.
    code, printed = run("alpha.py", *command, "--alphas", 1)
    assert code == 0 and "1 of 3 arms" in printed.out, printed.err
    assert {path: path.stat().st_mtime_ns for path in before} == before
    curve = pd.read_csv(out / "alpha" / "alpha.csv")
    assert curve["alpha"].tolist() == [0.0, 0.1, 1.0] * 4
    own = curve[curve["dataset"] == folder.name].set_index(["kind", "alpha"])["mean"]
    assert own["trained", 0] == own["untrained", 0] == pytest.approx(plain["plain"])
    assert own["trained", 0.1] == pytest.approx(plain["Equalize, weaker model"])
    assert own["untrained", 0.1] == pytest.approx(plain["plain minus weaker model"])
    assert "0 of 3 arms" in run("alpha.py", *command, "--alphas", 1, "--estimate")[1].out
    code, printed = run("alpha.py", *command, "--alphas", 2)
    assert code == 2 and "each must be above 0 and at most 1" in printed.err


def test_linear_layers_learn_against_vectors_of_fewer_layers(programs, folder, model, tmp_path, run):
    from sentence_transformers import SentenceTransformer

    out, config = tmp_path / "out", tmp_path / "config.json"
    config.write_text(json.dumps({**SMALL, "model": str(model), "triples": 40, "learning_rate": 0.3, "alpha": 1.0}))
    command = ["--dataset", folder, "--config", config, "--ranker", "adapter", "--seeds", 1, "--out", out]
    code, printed = run("equalize.py", *command, "--arms", "focal")
    assert code == 0 and "3 of 3 arms" in printed.out, printed.err
    spread = pd.read_csv(out / "spread.csv").set_index("ranker")
    assert (spread["mean"].drop("BM25").between(0, 1)).all() and spread["mean"].nunique() > 3
    # The ranker stands on two of three layers, its learner on the first.
    settings = programs.study.Settings(ranker="adapter")
    kept = programs.study.kept_learner(settings, out / "arms" / "Equalize_weaker_model-0")
    own = programs.study.fixed_encoder(replace(settings, model=str(model), layers=2), out)
    texts, upper, lower = ["red bridge"], *(SentenceTransformer(one, device="cpu") for one in (own, kept.module[0].encoder))
    assert [len(one[0].auto_model.encoder.layer) for one in (upper, lower)] == [2, 1]
    assert not np.allclose(lower.encode(texts), upper.encode(texts))
    code, printed = run("equalize.py", *command[:-4], "--ranker", "adapter", "--out", out, "--estimate")
    assert code == 0 and "about" in printed.out


def test_a_ranker_that_there_is_not_is_refused(folder, tmp_path, run):
    path = tmp_path / "config.json"
    path.write_text('{"ranker": "tree"}')
    code, printed = run("equalize.py", "--dataset", folder, "--config", path, "--out", tmp_path / "out")
    assert code == 2 and "ranker='tree' must be one of bi, adapter" in printed.err


def test_complexity_tables(folder, config, tmp_path, run):
    out = tmp_path / "out"
    code, printed = run("complexity_tables.py", "--dataset", folder, "--config", config, "--out", out)
    assert code == 0, printed.err
    spread = pd.read_csv(out / "spread.csv")
    assert spread["name"].tolist()[0] == "BM25" and len(spread) == 6 and (spread["n"] == 12).all()
    tests = pd.read_csv(out / "tests.csv")
    assert {"slope", "slope, uncontrolled"} <= set(tests["test"]) and (out / f"figure_1_{folder.name}.png").is_file()


def test_runs_alone_need_no_model(programs, folder, tmp_path, model):
    import complexity_tables

    settings, _, sources = opened(programs, folder, tmp_path, model)
    found = complexity_tables.measured(sources, replace(settings, model="no/such-model"), argparse.Namespace(runs_only=True))
    assert set(found["name"]) == {"BM25"} and len(found) == 12


def test_what_cannot_be_trained_on_is_said(other, config, tmp_path, run):
    code, printed = run("equalize.py", "--dataset", other, "--config", config, "--out", tmp_path / "out")
    assert code == 2 and "--train" in printed.err
