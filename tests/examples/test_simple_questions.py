"""The positive control on simple and complex questions: its statistics against closed forms, and it in miniature."""

import itertools
import json
import re
import shutil

import numpy as np
import pandas as pd
import pytest

from tests import tiny_models
from tests.conftest import ROOT, importable
from tests.examples.squad import squad_file

FOLDER = ROOT / "examples" / "linguistic_bias"


@pytest.fixture(scope="module")
def workshop():
    with importable(FOLDER.parent):
        import workshop

        yield workshop


def values(seed=0, seeds=2, questions=60):
    generator = np.random.default_rng(seed)
    before, after = generator.random((2, seeds, questions))
    return before, after, generator.permutation(questions) % 7, generator.permutation(questions) % 3


def test_a_difference_of_differences_is_that_of_the_means(workshop):
    before, after, articles, third = values()
    found = workshop.over_articles(before, after, articles, 50, less=(third == 2, third == 0))
    gain = (after - before).mean(axis=0)
    assert found["difference"] == pytest.approx(gain[third == 2].mean() - gain[third == 0].mean(), abs=1e-12)
    assert found["low"] < found["difference"] < found["high"]
    assert (found["seeds"], found["articles"], found["queries"]) == (2, 7, 40)


def test_nothing_is_taken_off_where_the_second_part_does_not_change(workshop):
    before, after, articles, third = values()
    before[:, third == 0] = after[:, third == 0]
    less = workshop.over_articles(before, after, articles, 200, less=(third == 2, third == 0))
    own = third == 2
    alone = workshop.over_articles(before[:, own], after[:, own], articles[own], 200)
    for name in ("difference", "low", "high", "p", "detectable"):
        assert less[name] == pytest.approx(alone[name], abs=1e-12), name


def test_p_is_that_of_all_exchanges_of_articles(workshop):
    before, after, articles, third = values(1)
    found = workshop.over_articles(before, after, articles, 20, less=(third == 2, third == 0))
    gain = (after - before).mean(axis=0) * ((third == 2) / (third == 2).sum() - (third == 0) / (third == 0).sum())
    sums = np.bincount(articles, gain)
    signs = 1 - 2 * ((np.arange(128)[:, None] >> np.arange(7)) & 1)
    assert found["p"] == pytest.approx(np.mean(np.abs(signs @ sums) >= abs(sums.sum()) - 1e-12))


def test_an_interval_over_articles_is_the_bootstrap_of_their_sums(workshop):
    scores, _, articles, _ = values(2)
    found = workshop.article_interval(np.stack([scores, scores**2], axis=-1), articles, lambda m: m[..., 1] - m[..., 0] ** 2, 30)
    generator = np.random.default_rng(0)
    of_seeds = generator.multinomial(2, [0.5, 0.5], size=30)
    of_articles = generator.multinomial(7, np.full(7, 1 / 7), size=30)
    drawn = []
    for s, a in zip(of_seeds, of_articles):
        pool = np.concatenate([np.tile(scores[i, articles == j], s[i] * a[j]) for i in range(2) for j in range(7)])
        drawn.append(pool.var())
    assert found.estimate == pytest.approx(scores.var()) and found.n == 7
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_simple_questions(tmp_path, run):
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    files = ["--train", squad_file(tmp_path / "train.json", 8), "--test", squad_file(tmp_path / "dev.json", 6, first=20)]
    settings = {
        "layers": 1, "dropout": None, "triples": 8, "batch_size": 4, "size": 6, "held_out": 2, "resamples": 20, "seeds": 2,
        "max_length": 48, "queries": 30, "index_set": "words", "rates": [1e-3, 1e-2], "learning_rate": 1e-2,
    }  # fmt: skip
    (tmp_path / "small.json").write_text(json.dumps(settings))
    out = tmp_path / "out"
    command = ["simple_questions.py", *files, "--model", model, "--config", tmp_path / "small.json", "--out", out]
    code, printed = run(*command, "--pilot")
    assert code == 0, printed.err
    # The pilot tests nothing but held-out articles of the training file.
    tried = pd.read_csv(out / "pilot" / "means.csv")
    assert list(zip(tried["rate"], tried["trained_on"])) == [(1e-3, "all"), (1e-2, "simple"), (1e-2, "all")]
    assert len(pd.read_csv(out / "pilot" / "gap.csv")) == 2
    known = pd.read_csv(out / "complexity.csv")
    assert known["part"].value_counts().to_dict() == {"train": 36, "held out": 12, "test": 36}
    seen = pd.concat(pd.read_csv(path) for path in (out / "arms").glob("*/rows.csv"))
    assert set(seen["qid"]) == set(known.loc[known["part"] == "held out", "qid"]) and len(seen) == 3 * 12

    code, printed = run(*command)
    assert code == 0, printed.err
    assert "7 of 7 arms to make" in printed.out
    report = pd.read_csv(out / "questions.csv").set_index("questions")
    assert report.loc["training", ["all", "simple", "middle", "complex"]].tolist()[0] == 36 and report.loc["test", "all"] == 30
    assert (report[["simple", "middle", "complex"]].sum(axis=1) == report["all"]).all()
    own = known[known["part"] == "train"]
    expected = own["complexity"].rank().corr(own["words"].rank())
    assert report.loc["training", "complexity by words"] == pytest.approx(expected, abs=1e-12)

    means, gaps = (pd.read_csv(out / f"{name}.csv") for name in ("means", "gap"))
    assert means["trained_on"].tolist() == ["nothing: untrained", "simple", "all", "complex"]
    rows = pd.concat(pd.read_csv(path) for path in (out / "arms").glob("test-*/rows.csv"))
    known = known.sort_values("complexity")
    edges = np.quantile(known.loc[known["part"] == "train", "complexity"], [1 / 3, 2 / 3])
    rows = rows.merge(known[["qid", "complexity"]], on="qid")
    third = np.where(rows["complexity"] < edges[0], "simple", np.where(rows["complexity"] < edges[1], "middle", "complex"))
    by = rows.groupby(["trained_on", third])["nDCG@10"].mean()
    wide = means.set_index("trained_on")
    for name in ("simple", "middle", "complex"):
        np.testing.assert_allclose(wide[name], by[:, name].reindex(wide.index), atol=1e-9)
    row = gaps[(gaps["measure"] == "nDCG@10") & (gaps["trained_on"] == "all")].squeeze()
    gain = by["all"] - by["simple"]
    assert row["gap"] == pytest.approx(gain["complex"] - gain["simple"], abs=1e-9)
    assert (row["seeds"], row["articles"]) == (2, 6) and row["gain, complex"] == pytest.approx(gain["complex"], abs=1e-9)
    assert (out / "gains.png").read_bytes().startswith(b"\x89PNG")

    assert ("nothing to mend" if row["low"] <= 0 else "worth trying") in printed.out

    again, printed = run(*command)
    assert again == 0 and "0 of 7 arms to make" in printed.out
    pd.testing.assert_frame_equal(pd.read_csv(out / "gap.csv"), gaps)
    code, printed = run(*command[:3], "--test", files[1], *command[5:-1], tmp_path / "other")
    assert code == 2 and "articles in common" in printed.err
    code, printed = run("simple_questions.py", "--out", tmp_path / "third")
    assert code == 2 and "--train and --test" in printed.err


def test_cross_encoders_rerank_what_bm25_finds(tmp_path, run):
    pytest.importorskip("pyterrier_pisa")
    files = ["--train", squad_file(tmp_path / "train.json", 8), "--test", squad_file(tmp_path / "dev.json", 6, first=20)]
    for path in files[1::2]:  # every question has a word of every paragraph
        path.write_text(path.read_text().replace(" end.", " kindly end.").replace("what is", "kindly what is"))
    settings = json.loads((FOLDER / "simple_questions_cross.json").read_text()) | {
        "layers": 1, "triples": 8, "batch_size": 4, "size": 6, "held_out": 2, "resamples": 20, "seeds": 1, "depth": 3,
        "max_length": 48, "queries": 30, "index_set": "words", "parser": "", "treatments": [],
    }  # fmt: skip
    (tmp_path / "small.json").write_text(json.dumps(settings))
    out = tmp_path / "out"
    model = tiny_models.build(tmp_path / "model")
    code, printed = run("simple_questions.py", *files, "--model", model, "--config", tmp_path / "small.json", "--out", out)
    assert code == 0, printed.err
    assert "4 of 4 arms to make" in printed.out
    with importable(FOLDER):
        import simple_questions as program

        given = program.Settings(train=str(files[1]), test=str(files[3]), **{k: settings[k] for k in settings})
        setup = program.Setup.of(given, out)
        part = setup.part("simple", given, 0)
        lists = setup.lists(part)
    # Each question learns from its own paragraph and from what BM25 finds; the test has no more than BM25 finds.
    own = lists.merge(setup.qrels, on=["qid", "docno"])
    assert set(own["qid"]) == set(part["qid"]) == set(lists["qid"]) and (lists.groupby("qid").size() > 1).all()
    assert setup.found["test"].groupby("qid").size().max() <= 3
    rows = pd.read_csv(out / "arms" / "test-0.0001-simple-0" / "rows.csv")
    answered = setup.found["test"].merge(setup.tests["test"].qrels, on=["qid", "docno"])["qid"]
    assert set(rows.loc[rows["nDCG@10"] > 0, "qid"]) == set(answered) and len(rows) == 30


def test_arms_have_equally_many_questions_of_their_third(tmp_path):
    with importable(FOLDER):
        import simple_questions as program

        settings = program.Settings(
            train=str(squad_file(tmp_path / "a.json", 8)), test=str(squad_file(tmp_path / "b.json", 4, first=20)), size=6,
            held_out=2, index_set="words", queries=10, complex_share=1 / 3,
        )  # fmt: skip
        setup = program.Setup.of(settings, tmp_path)
        parts = {name: setup.part(name, settings, 0) for name in program.TRAINED_ON}
        assert {len(part) for part in parts.values()} == {6}
        assert all(set(parts[name]["third"]) == {name} for name in ("simple", "complex"))
        assert parts["simple"]["complexity"].max() < parts["complex"]["complexity"].min()
        assert len(set(parts["all"]["third"])) > 1
        assert parts["mostly simple"]["third"].value_counts().to_dict() == {"simple": 4, "complex": 2}
        for share in (-0.1, 1.0):
            with pytest.raises(program.InputError, match=r"complex_share=.* at least 0 and less than 1"):
                program.replace(settings, complex_share=share).check()
        assert not set(parts["all"]["qid"]) & set(setup.tests["held out"].topics["qid"])
        assert not setup.part("all", settings, 1)["qid"].equals(parts["all"]["qid"])
        with pytest.raises(program.InputError, match="a third has only 6 training questions"):
            program.Setup.of(program.replace(settings, size=30), tmp_path)


def test_the_stop_rule_reads_the_low_end_of_the_gap():
    with importable(FOLDER):
        from simple_questions import decision
    line = {"measure": "nDCG@10", "trained_on": "all", "gap": 0.03, "low": 0.01, "high": 0.05, "detectable": 0.028}
    others = [{**line, "measure": "RR@10", "low": 0.5}, {**line, "trained_on": "complex", "low": 0.5}]
    said = {least: decision(pd.DataFrame([*others, line]), least) for least in (0.0, 0.01)}
    text, mend = said[0.0]
    assert mend and text.endswith("all questions closes is 0.030 [0.010, 0.050], above 0: treatments are worth trying.")
    text, mend = said[0.01]
    assert not mend and text.endswith("not above 0.01: there is nothing to mend; a gap of 0.028 would have been found.")


@pytest.mark.parametrize("complex_share", [0.0, 0.5])
def test_treatments_of_a_gap_in_miniature(tmp_path, run, complex_share):
    pytest.importorskip("pyterrier_pisa")
    files = ["--train", squad_file(tmp_path / "train.json", 8), "--test", squad_file(tmp_path / "dev.json", 6, first=20)]
    for path in files[1::2]:  # every question has a word of every paragraph
        # They have from 1 to 11 such words, so that simple ones differ, too.
        words = itertools.cycle(range(1, 12))
        text = re.sub("what is", lambda _, words=words: "kindly " * next(words) + "what is", path.read_text())
        path.write_text(text.replace(" end.", " kindly end."))
    with importable(FOLDER):
        import simple_questions as program

        names = ["Equalize, weaker model", "group DRO", "focal", "kernel whitening", "Equalize, alpha 1"]
        assert {"Equalize, biased data", "weight by complexity", *names} < set(program.TREATMENTS)
    settings = json.loads((FOLDER / "simple_questions_cross.json").read_text()) | {
        "layers": 2, "triples": 8, "batch_size": 4, "size": 6, "held_out": 2, "resamples": 20, "seeds": 1, "depth": 3,
        "max_length": 48, "queries": 30, "index_set": "words", "parser": "", "least_gap": -1.0, "treatments": names,
        "complex_share": complex_share,
    }  # fmt: skip
    config, out = tmp_path / "small.json", tmp_path / "out"
    model = tiny_models.build(tmp_path / "model")
    command = ["simple_questions.py", *files, "--model", model, "--config", config, "--out", out]
    # What a treatment learns against must be made before it.
    for wrong, said in ((["focal"], "must come before it"), (["magic"], "there is no 'magic'")):
        config.write_text(json.dumps({**settings, "treatments": wrong}))
        code, printed = run(*command)
        assert code == 2 and said in printed.err and not out.exists()
    config.write_text(json.dumps(settings))
    code, printed = run(*command)
    assert code == 0, printed.err
    # With a share of complex questions, the arm that learns from complex questions only is left out.
    arms, base = (3, "mostly simple") if complex_share else (4, "simple")
    assert f"{arms + len(names)} of {arms + len(names)} arms to make" in printed.out
    assert pd.read_csv(out / "gap.csv")["trained_on"].unique().tolist() == ["all", "complex"][: arms - 2]
    table = pd.read_csv(out / "treatments.csv").set_index("treatment")
    assert table.index.tolist() == names
    rows = pd.concat(pd.read_csv(path) for path in (out / "arms").glob("*/rows.csv"))
    given = program.Settings(train=str(files[1]), test=str(files[3]), **settings)
    third = program.Setup.of(given, out).tests["test"].topics.set_index("qid")["third"]
    by = rows.groupby(["trained_on", rows["qid"].map(third)])["nDCG@10"].agg(["mean"])["mean"].unstack()
    spread = rows.groupby("trained_on")["nDCG@10"].agg(lambda own: own.std(ddof=0) / own.mean())
    for name in names:
        gain = by.loc[f"{base}: {name}"] - by.loc[base]
        assert table.loc[name, "closed"] == pytest.approx(gain["complex"] - gain["simple"], abs=1e-9)
        whole = by.loc["all"] - by.loc[base]
        whole = whole["complex"] - whole["simple"]
        share = table.loc[name, "closed"] / whole if whole else np.nan
        assert table.loc[name, "share closed"] == pytest.approx(share, abs=1e-9, nan_ok=True)
        assert table.loc[name, "cv change"] == pytest.approx(spread[f"{base}: {name}"] - spread[base], abs=1e-9)
    # Every treatment has trained something else than plain training has.
    trained = f"test-0.0001-{base.replace(' ', '_')}_"
    logs = {name: pd.read_json(out / "arms" / f"{trained}{name.replace(' ', '_')}-0" / "history.json")
            for name in ("group DRO", "focal", "kernel whitening")}  # fmt: skip
    assert logs["group DRO"].filter(like="share of").shape[1] == 3 and "biased_accuracy" in logs["focal"]
    assert (out / "treatments.inc").is_file() and "worth trying" in printed.out
    # Nothing is trained again, and without a gap no treatment is.
    code, printed = run(*command)
    assert code == 0 and f"0 of {arms + len(names)} arms to make" in printed.out
    config.write_text(json.dumps({**settings, "least_gap": 1.0}))
    other = tmp_path / "other"
    shutil.copytree(out / "arms", other / "arms", ignore=shutil.ignore_patterns("*simple_*"))
    code, printed = run(*command[:-1], other)
    assert code == 0 and "nothing to mend" in printed.out
    assert len(list((other / "arms").iterdir())) == arms and not (other / "treatments.csv").exists()
