"""The programs for Tables 2 to 5: their parts against closed forms and brute force, and each from end to end in miniature."""

import dataclasses
import gzip
import itertools
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import TK, Collection, InputError, SparseEncoder
from pyterrier_debias.report.first_stage import pisa_installed
from tests import tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "position_bias"
needs_pisa = pytest.mark.skipif(not pisa_installed(), reason="PISA is not installed")


@pytest.fixture(scope="module")
def experiment():
    with importable(FOLDER):
        import experiment

        yield experiment


@pytest.fixture(scope="module")
def workshop(experiment):
    import workshop

    return workshop


@pytest.fixture(scope="module")
def squad(tmp_path_factory):
    """Ten articles of two paragraphs; of each, a question on its beginning, its middle and its end."""
    generator = np.random.default_rng(1)
    articles = []
    for a in range(10):
        paragraphs = []
        for p in range(2):
            words = generator.choice(tiny_models.WORDS, size=30).tolist()
            words[1], words[15], words[28] = (f"{place}{a}{p}" for place in ("first", "middle", "last"))
            context = " ".join(words)
            qas = [
                {
                    "id": f"{a}-{p}-{word}",
                    "question": f"what is {word} {words[3]}",
                    "answers": [{"text": word, "answer_start": context.index(word)}],
                }
                for word in (words[1], words[15], words[28])
            ]
            paragraphs.append({"context": context, "qas": qas})
        articles.append({"title": f"article {a}", "paragraphs": paragraphs})
    path = tmp_path_factory.mktemp("squad") / "toy.json"
    path.write_text(json.dumps({"version": "1.1", "data": articles}))
    return path


# Collections


def test_split_keeps_groups_whole_and_aims_at_the_shares(experiment):
    groups = [f"g{i % 50}" for i in range(1000)]
    parts = experiment.split_whole(groups, seed=3)
    of_group = pd.Series(parts).groupby(groups).nunique()
    assert (of_group == 1).all()
    shares = pd.Series(parts).value_counts(normalize=True)
    assert shares["test"] == pytest.approx(0.3, abs=0.021) and shares["validation"] == pytest.approx(0.1, abs=0.021)
    shuffled = np.random.default_rng(0).permutation(1000)
    again = experiment.split_whole([groups[i] for i in shuffled], seed=3)
    assert again == [parts[i] for i in shuffled]
    assert experiment.split_whole(groups, seed=4) != parts


def test_squad_is_split_by_article(experiment, squad):
    material = experiment.open_material([str(squad)], seed=1)
    articles = [set(material.topics[part]["article"]) for part in experiment.PARTS]
    assert all(articles) and sum(map(len, articles)) == 10 == len(set.union(*articles))
    docs = [set(material.qrels[part]["docno"]) for part in experiment.PARTS]
    assert all(a.isdisjoint(b) for a, b in itertools.combinations(docs, 2))
    assert sum(len(frame) for frame in material.topics.values()) == 60
    assert "by article" in material.recipe
    sizes = experiment.table_1(material, experiment.Settings(queries=4, triples=8, batch_size=4, validation_queries=2))
    assert sizes["queries"].sum() == 60 and sizes["articles"].sum() == 10 and (sizes["passages"] == 20).all()
    assert sizes.set_index("part")["drawn at most"].to_dict() == {"train": 8, "validation": 2, "test": 4}


def test_planted_selection_takes_early_and_late_answers(experiment, squad):
    material = experiment.open_material([str(squad)], seed=1)
    for part in experiment.PARTS:
        assert set(material.early(part)["qid"].str.split("-").str[2].str.rstrip("0123456789")) == {"first"}
        assert set(material.late(part)["qid"].str.split("-").str[2].str.rstrip("0123456789")) == {"last"}
        assert 3 * len(material.early(part)) == 3 * len(material.late(part)) == len(material.topics[part])


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Samples of MS MARCO in miniature: twenty questions to train on, two of each year and two more to test on."""
    folder, generator = tmp_path_factory.mktemp("samples"), np.random.default_rng(2)

    def write(name, *lines):
        path, content = folder / name, "".join(f"{line}\n" for line in lines).encode()
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)

    def passage(answer):
        sentences = [" ".join(generator.choice(tiny_models.WORDS, size=6)) + "." for _ in range(3)]
        return " ".join([*sentences, f"the {answer} bridge is here."])

    asked = [{"qid": str(i), "query": f"bridge place{i}", "positive": f"- {passage(f'place{i}')}"} for i in range(20)]
    titled = {"qid": "20", "query": "bridge place20", "positive": f"Places {passage('place20')}"}
    write("msmarco_dev_small/positives_text.jsonl.gz", *map(json.dumps, [*asked, titled, {**asked[0], "qid": "90"}]))
    write("msmarco_dev_small/qrels.dev.small.txt.gz", *(f"{i} 0 p{i} 1" for i in [*range(21), 90]), "19 0 other 1")
    for part, first in (("dl19", 50), ("dl20", 60)):
        write(f"msmarco_trec_dl/topics.{part}-passage.tsv", *(f"{i}\tbridge place{i}" for i in (first, first + 1)))
        judged = [*(f"{i} 0 p{i} {2 + i % 2}" for i in (first, first + 1)), f"{first} 0 p61 1"]
        write(f"msmarco_trec_dl/qrels.{part}-passage.txt", *judged)
    write("msmarco_trec_dl/passages.tsv.gz", *(f"p{i}\t{passage(f'place{i}')}" for i in (50, 51, 60, 61)))
    write("msmarco_dev600/queries.tsv", *(f"{i}\tbridge place{i}" for i in (90, 91)))
    write("msmarco_dev600/qrels.msmarco_sparse.txt", *(f"{i} 0 p{i} 1" for i in (90, 91)))
    write("msmarco_dev600/passages.tsv.gz", *(f"p{i}\t{passage(f'place{i}')}" for i in (90, 91)))
    return folder


def test_samples_of_msmarco_are_put_together(experiment, samples):
    """Neither titled passages nor questions of the test are trained on, and grades of both tests mean the same."""
    material = experiment.open_material([str(samples)], seed=1)
    trained = {part: set(material.topics[part]["qid"]) for part in ("train", "validation")}
    assert set.union(*trained.values()) == {str(i) for i in range(19)} and trained["train"].isdisjoint(trained["validation"])
    groups = material.topics["test"].groupby("group")["qid"].agg(sorted).to_dict()
    assert groups == {"TREC DL 2019 and 2020": ["50", "51", "60", "61"], "dev600": ["90", "91"]}
    label = material.qrels["test"].set_index(["qid", "docno"])["label"].to_dict()
    assert label["50", "p61"] == 1 and label["51", "p51"] == 3 and label["90", "p90"] == label["91", "p91"] == 2
    assert set(material.dataset.corpus["docno"]) == {f"p{i}" for i in [*range(19), 50, 51, 60, 61, 90, 91]}
    assert not material.dataset.corpus["text"].str.startswith("- ").any() and "RR(rel=2)@10" in material.measures


@pytest.mark.parametrize("query, text, expected", [
    ("height of the tower", "It is old. The tower has a height. It leans.", "The tower has a height. It leans. It is old."),
    ("Tower", "A tower! Is the tower old?", "A tower! Is the tower old?"),
    ("bridge", "It is old. It leans.", "It is old. It leans."),
    ("bridge", "", ""),
])  # fmt: skip
def test_a_passage_begins_with_its_answer(experiment, query, text, expected):
    assert experiment.begin_with_answer(query, text) == expected


def test_only_relevant_passages_are_planted(experiment, samples, tmp_path):
    material = experiment.open_material([str(samples)], seed=1)
    trainer = experiment.Trainer(material, None, experiment.Settings())
    corpus = material.dataset.corpus.set_index("docno")["text"]
    qid = material.topics["train"]["qid"].iloc[0]
    pair = [f"p{qid}", "p91"]
    frame = pd.DataFrame({"qid": qid, "query": f"bridge place{qid}", "docno": pair, "text": corpus[pair].tolist()})
    relevant, other = trainer._planted(frame, "train", True)["text"]
    assert relevant.startswith(f"the place{qid} bridge is here.") and other == corpus["p91"]
    assert sorted(relevant.split()) == sorted(corpus[f"p{qid}"].split())
    assert trainer._planted(frame, "train", False) is frame


def test_places_of_answers_by_hand(experiment):
    answers = pd.DataFrame(
        [("1", "d", 0, 2), ("1", "d", 5, 10), ("2", "e", 15, 20), ("2", "e", -1, -1)], columns=["qid", "docno", "start", "end"]
    )
    places = experiment.answer_places(answers, pd.Series({"d": "x" * 10, "e": "y" * 20}))
    assert places.values.tolist() == [["1", 0.0, 1.0], ["2", 0.75, 1.0]]


def toy_collection(qids, name="c"):
    frame = pd.DataFrame({"qid": qids, "query": [f"query {q}" for q in qids]})
    qrels = pd.DataFrame({"qid": qids, "docno": [f"d{q}" for q in qids], "label": 1})
    corpus = pd.DataFrame({"docno": [f"d{q}" for q in qids], "text": "a text"})
    return Collection(name, corpus=corpus, topics={"all": frame}, qrels={"all": qrels})


def test_msmarco_test_is_dev_without_dev_small(experiment):
    material = experiment.msmarco(*(toy_collection(qids) for qids in (["1", "2"], ["3", "4"], ["3", "4", "5", "6"])))
    assert {part: frame["qid"].tolist() for part, frame in material.topics.items()} == {
        "train": ["1", "2"], "validation": ["3", "4"], "test": ["5", "6"]
    }
    assert material.qrels["test"]["qid"].tolist() == ["5", "6"]


def test_collections_keep_their_own_parts_and_pool(experiment, tmp_path):
    for part, qids in {"train": "12", "dev": "34", "test": "56"}.items():
        (tmp_path / "qrels").mkdir(exist_ok=True)
        (tmp_path / "qrels" / f"{part}.txt").write_text("".join(f"{q} 0 d{q} 1\n" for q in qids))
    (tmp_path / "collection.tsv").write_text("".join(f"d{q}\ta text\n" for q in "123456"))
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\ta query\n" for q in "1234567"))
    material = experiment.open_material([str(tmp_path)], seed=1)
    assert material.topics["validation"]["qid"].tolist() == ["3", "4"] and "own" in material.recipe
    with pytest.raises(InputError, match="the positions of answers are not known"):
        material.early("train")
    both = experiment.pooled([toy_collection(["1", "2"], "a"), toy_collection(["2", "3"], "b")])
    assert len(both.corpus) == len(both.get_topics()) == len(both.get_qrels()) == 3 and both.name == "a + b"
    with pytest.raises(InputError, match="too few"):
        experiment.open_material([str(squad_of_one(tmp_path))], seed=1)


def squad_of_one(folder):
    qas = [{"id": "1", "question": "what", "answers": [{"text": "red", "answer_start": 0}]}]
    path = folder / "one.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": [{"context": "red apples", "qas": qas}]}]}))
    return path


def test_judged_passages_that_are_not_there_do_not_count(workshop):
    whole = toy_collection(["1", "2"])
    part = Collection("part", corpus=whole.corpus.iloc[:1], topics=whole.topics, qrels=whole.qrels)
    assert workshop.held(part.get_qrels(), part)["qid"].tolist() == ["1"]


def test_draws_depend_on_qids_only(workshop):
    topics = pd.DataFrame({"qid": [str(i) for i in range(50)], "query": "q"})
    drawn = set(workshop.draw(topics, 10, 1, "test")["qid"])
    assert len(drawn) == 10
    assert set(workshop.draw(topics.sample(frac=1, random_state=0), 10, 1, "test")["qid"]) == drawn
    assert set(workshop.draw(topics, 10, 2, "test")["qid"]) != drawn
    assert len(workshop.draw(topics, 99, 1, "test")) == 50


# Statistics


@pytest.mark.parametrize(
    ("original", "rotated", "paper", "plain"),
    [(0.432, 0.395, -9.4, -8.6), (0.373, 0.329, -13.4, -11.8), (0.372, 0.336, -10.7, -9.7), (0.4, 0.4, 0.0, 0.0)],
)
def test_deltas_are_the_papers(experiment, original, rotated, paper, plain):
    assert experiment.paper_delta(original, rotated) == pytest.approx(paper, abs=0.05)
    assert experiment.plain_delta(original, rotated) == pytest.approx(plain, abs=0.05)


def test_deltas_of_nothing_are_not_defined(experiment):
    assert np.isnan(experiment.paper_delta(0.5, 0.0)) and np.isnan(experiment.plain_delta(0.0, 0.5))


def test_processes_share_the_arms_of_a_folder(workshop, tmp_path):
    made, begun, go_on = [], threading.Event(), threading.Event()

    def arm_of(who, name):
        def make(folder, checkpoints):
            made.append((who, name))
            if (who, name) == ("other", "a"):
                begun.set()
                assert go_on.wait(60)
            if (who, name) == ("own", "c"):
                go_on.set()  # until here the other has a, which is left to it
            if (who, name) == ("other", "b"):
                raise RuntimeError("this process dies")
            return pd.DataFrame({"qid": ["1"], "by": [who]})

        return workshop.Arm({"name": name}, make, "cat", 1, 1)

    def carry_out(who, names):
        shared = workshop.Workshop(tmp_path, "test", workshop.Shared(), [])
        return shared.carry_out([arm_of(who, name) for name in names], dict.fromkeys(names, 1.0))

    with ThreadPoolExecutor(1) as other:
        theirs = other.submit(carry_out, "other", "ab")
        assert begun.wait(60)
        rows = carry_out("own", "ac")
        with pytest.raises(RuntimeError, match="dies"):
            theirs.result()
    assert rows.set_index("name")["by"].to_dict() == {"a": "other", "c": "own"}
    assert carry_out("own", "abc").set_index("name")["by"].to_dict() == {"a": "other", "b": "own", "c": "own"}
    assert made == [("other", "a"), ("own", "c"), ("other", "b"), ("own", "b")]


def test_matrix_and_compare(workshop):
    rows = pd.DataFrame(
        [(seed, qid, view, 100 * seed + 10 * int(qid) + (view == "rotated")) for seed in (1, 0) for qid in "21"
         for view in ("rotated", "original")],
        columns=["seed", "qid", "evaluated", "m"],
    )
    names, values = workshop.matrix(rows, "m", ["evaluated"])
    assert names == [("original",), ("rotated",)]
    assert values.tolist() == [[[10, 11], [20, 21]], [[110, 111], [120, 121]]]
    compared = workshop.compare(values[..., 0], values[..., 1], resamples=50)
    assert compared["difference"] == compared["low"] == compared["high"] == 1.0
    assert (compared["seeds"], compared["queries"]) == (2, 2)
    with pytest.raises(InputError, match="same queries"):
        workshop.matrix(rows.iloc[1:], "m", ["evaluated"])


# Settings


def test_settings_come_from_defaults_configuration_and_command(experiment, workshop, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"depth": 7, "triples": 33, "layers": 0}))
    parsed = experiment.parser(None, "").parse_args(
        ["--dataset", "a", "--out", "o", "--config", str(config), "--depth", "9"]
    )
    settings = workshop.read_settings(parsed, experiment.Settings())
    assert (settings.depth, settings.triples, settings.layers, settings.queries) == (9, 33, None, 200)
    assert settings.optimiser_steps() == 5
    assert (settings.questions(), replace(settings, train_queries=5).questions()) == (40, 5)
    config.write_text('{"depht": 7}')
    with pytest.raises(InputError, match="unknown setting 'depht'"):
        workshop.read_settings(parsed, experiment.Settings())


def test_reads_are_pairs_or_passages(experiment):
    frame = pd.DataFrame({"qid": ["1", "1", "2"], "docno": ["a", "b", "a"]})
    assert [experiment.reads(kind, frame) for kind in ("cat", "dot", "tk")] == [3, 2, 2]


def test_full_configuration_is_usable(experiment):
    content = json.loads((FOLDER / "full.json").read_text())
    settings = experiment.Settings(**content)
    for kind in experiment.RANKERS:
        training = experiment.training_of(settings, kind, 1, view="rotated")
        assert (training.batch_size, training.loss, training.max_steps) == (32, "hinge", 100_000)
    assert set(asdict(settings)) >= set(content)
    # The paper chooses the re-ranking depth, up to 1,000.
    assert settings.depth == max(training.rerank_depth) == 1000


def test_layers_are_cut(workshop, tmp_path):
    from transformers import AutoModel

    for architecture in ("bert", "distilbert"):
        whole = tiny_models.build(tmp_path / architecture, architecture=architecture, labels=None, layers=3)
        workshop.keep_layers(str(whole), 1, tmp_path / f"{architecture}-1")
        cut, full = AutoModel.from_pretrained(tmp_path / f"{architecture}-1"), AutoModel.from_pretrained(whole)
        assert cut.config.num_hidden_layers == 1
        kept = cut.state_dict()
        assert all((full.state_dict()[name] == value).all() for name, value in kept.items())
        assert len(kept) < len(full.state_dict())
        with pytest.raises(InputError, match="has 3 layers"):
            workshop.keep_layers(str(whole), 4, tmp_path / "more")


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_dropout_is_set(architecture, workshop, tmp_path):
    import torch
    from transformers import AutoModel

    whole = tiny_models.build(tmp_path / "whole", architecture=architecture, labels=None, layers=2)
    workshop.keep_layers(str(whole), None, tmp_path / "calm", dropout=0.0)
    calm, model = AutoModel.from_pretrained(tmp_path / "calm").train(), AutoModel.from_pretrained(whole).eval()
    tokens = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "attention_mask": torch.ones(1, 4, dtype=torch.long)}
    assert torch.allclose(calm(**tokens).last_hidden_state, model(**tokens).last_hidden_state, atol=1e-5)


def test_a_fresh_head_is_as_wide_as_asked(experiment, workshop, tmp_path):
    model = str(tiny_models.build(tmp_path / "tiny", labels=None))
    settings = experiment.Settings(model=model, layers=None, dropout=None, max_length=64)
    wide, own = experiment.replace(settings, head_std=0.4), experiment.replace(settings, head_std=None)
    assert workshop.encoder_of(own, tmp_path) == model
    modules = [experiment.new_ranker("cat", workshop.encoder_of(some, tmp_path), some, 1).module for some in (own, wide)]
    narrow, broad = (module.classifier.weight.numpy(force=True) for module in modules)
    assert broad == pytest.approx(narrow * 0.4 / modules[0].config.initializer_range)


def test_masked_words_are_learned(tmp_path):
    """Where each word tells the next, a masked word is predicted; without training it is not."""
    import torch
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    with importable(FOLDER):
        from masked import masked_encoder
    encoder = str(tiny_models.build(tmp_path / "tiny", labels=None))
    words = tiny_models.WORDS[4:24]
    texts = [f"{words[i % 10]} {words[10 + i % 10]}" for i in range(4000)]
    options = {"learning_rate": 5e-3, "batch_size": 20, "max_length": 16, "seed": 1}
    few = texts[:20]
    folders = [
        masked_encoder(encoder, lambda: texts, tmp_path / "a", **options),
        masked_encoder(encoder, lambda: few, tmp_path / "b", **options),
    ]

    def right(folder):
        model, tokenizer = AutoModelForMaskedLM.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            masked = tokenizer([f"{word} [MASK]" for word in words[:10]], return_tensors="pt")
            found = model(**masked).logits[masked["input_ids"] == tokenizer.mask_token_id].argmax(dim=1)
        return (found == torch.tensor(tokenizer.convert_tokens_to_ids(words[10:]))).sum().item()

    assert right(folders[0]) >= 8 > 3 >= right(folders[1])
    # It is made once; from the same seed it comes out the same.
    before = (tmp_path / "b" / "model.safetensors").read_bytes()
    assert masked_encoder("no-such-model", pytest.fail, tmp_path / "b", **options) == str(tmp_path / "b")
    masked_encoder(encoder, lambda: few, tmp_path / "c", **options)
    assert (tmp_path / "c" / "model.safetensors").read_bytes() == before
    other = tiny_models.build(tmp_path / "distil", architecture="distilbert", labels=None)
    with pytest.raises(InputError, match="BERT-shaped"):
        masked_encoder(str(other), lambda: texts, tmp_path / "d", **options)
    # A model that brings its head needs none.
    for folder in (tmp_path / "a", tiny_models.build(tmp_path / "masked", architecture="distilbert", labels=None, masked=True)):
        assert masked_encoder(str(folder), pytest.fail, tmp_path / "e", **options) == str(folder)
    assert not (tmp_path / "e").exists()


# From end to end


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A configuration in miniature."""
    folder = tmp_path_factory.mktemp("small")
    model = tiny_models.build(folder / "tiny", labels=None)
    settings = {
        "model": str(model), "layers": 1, "batch_size": 4, "triples": 4, "queries": 4, "depth": 4, "seeds": 2, "resamples": 50,
        "passages": 10, "max_length": 64,
        "tk": {"num_hidden_layers": 1, "num_attention_heads": 2, "head_dim": 4, "intermediate_size": 8},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(settings))
    return path


@needs_pisa
def test_tables_3_4(squad, small, tmp_path, run):
    out = tmp_path / "out"
    command = ["--dataset", squad, "--config", small, "--out", out]
    code, printed = run("tables_3_4.py", *command, "--rankers", "tk", "--estimate")
    assert code == 0 and "8 of 8 arms" in printed.out and not (out / "arms").exists()
    code, printed = run("tables_3_4.py", *command, "--rankers", "cat", "tk", "--seeds", 1)
    assert code == 0 and "8 of 8 arms" in printed.out

    table = pd.read_csv(out / "by_evaluation.csv")
    assert len(table) == (2 + 3) * 2 * 2 * 3  # groups, rankers, trainings, measures
    assert np.allclose(table["difference"], table["rotated"] - table["original"])
    several = table["low"].notna()  # a group of one question has no interval
    assert several.any() and (table["low"] <= table["difference"] + 1e-9)[several].all()
    assert (table["p_corrected"] >= table["p"] - 1e-9).all()
    layout = pd.read_csv(out / "effectiveness.csv")
    assert len(layout) * 3 == len(table) and list(layout.columns[4:7]) == ["nDCG@10 original", "nDCG@10 rotated", "nDCG@10 delta"]
    assert layout["MRR@10 rotated"].tolist() == table.loc[table["measure"] == "MRR@10", "rotated"].tolist()
    training = pd.read_csv(out / "by_training.csv").set_index(["arm", "group", "ranker", "measure", "evaluated"])
    gaps = pd.read_csv(out / "gap_closed.csv").set_index(["arm", "group", "ranker", "measure"])
    change = training["difference"].unstack("evaluated")
    assert np.allclose(gaps["smaller_by"], (change["rotated"] - change["original"]).reindex(gaps.index))
    content = json.loads((out / "results.json").read_text())
    assert content["settings"]["seeds"] == 1 and content["versions"]["torch"] and content["tables"]["bm25"]
    assert "| planted | early |" in (out / "results.md").read_text()

    # A third view to train on; only its arms are made.
    code, printed = run("tables_3_4.py", *command, "--rankers", "tk", "--seeds", 1, "--trained", "both", "original", "rotated")
    assert code == 0 and "2 of 6 arms" in printed.out
    both = pd.read_csv(out / "gap_closed_both.csv").set_index(["arm", "group", "ranker", "measure"])
    alone = pd.read_csv(out / "gap_closed.csv").set_index(["arm", "group", "ranker", "measure"])
    assert both["gap_trained_original"].equals(alone["gap_trained_original"])
    evaluated = pd.read_csv(out / "by_evaluation.csv").set_index(["arm", "group", "ranker", "measure", "trained"])["difference"]
    assert np.allclose(both["gap_trained_both"], -evaluated.xs("both", level="trained").reindex(both.index))
    assert "trained_both" in pd.read_csv(out / "by_training_both.csv") and (out / "gap_by_seed_both.inc").is_file()
    code, printed = run("tables_3_4.py", *command, "--trained", "rotated", "both")
    assert code == 2 and "--trained: name original" in printed.err

    # A second seed joins; what lacks is made again, what is there is read back.
    kept = out / "arms" / "planted-tk-rotated-0" / "rows.csv"
    (out / "arms" / "planted-tk-original-0" / "rows.csv").unlink()
    before = kept.stat().st_mtime_ns
    code, printed = run("tables_3_4.py", *command, "--rankers", "tk")
    assert code == 0 and "5 of 8 arms" in printed.out and kept.stat().st_mtime_ns == before
    assert (pd.read_csv(out / "by_evaluation.csv")["seeds"] == 2).all()
    code, printed = run("tables_3_4.py", *command, "--depth", 3)
    assert code == 2 and "holds arms made with depth=4, not 3" in printed.err


@needs_pisa
def test_table_3_on_samples_of_msmarco(samples, small, tmp_path, run):
    out = tmp_path / "out"
    command = "--dataset", samples, "--config", small, "--out", out, "--rankers", "tk", "--queries", 6, "--keep"
    code, printed = run("tables_3_4.py", *command)
    assert code == 0 and "8 of 8 arms" in printed.out, printed.err
    table = pd.read_csv(out / "by_evaluation.csv")
    assert set(table["group"]) == {"TREC DL 2019 and 2020", "dev600"} and set(table["arm"]) == {"natural", "planted"}
    assert pd.read_csv(out / "bm25.csv").set_index(["arm", "group"])["MRR@10"].between(0, 1).all()
    weights = pd.read_csv(out / "weights.csv").set_index("arm")["sha256"]
    kept = TK.load(out / "arms" / "natural-tk-original-0" / "ranker")
    assert len(weights) == weights.nunique() == 8 and kept.score(["a"], ["a river"]).shape == (1,)
    # SPLADE, beyond the paper, joins; its encoder has learned masked words, once for all arms.
    code, printed = run("tables_3_4.py", *command, "--seeds", 1, "--rankers", "splade", "--arms", "natural")
    assert code == 0 and printed.out.count("masked language model:") == 1, printed.err
    kept = SparseEncoder.load(out / "arms" / "natural-splade-rotated-0" / "ranker")
    assert kept.score(["a river"], ["a river"])[0] > 0 and (out / "masked").is_dir()
    assert set(pd.read_csv(out / "by_evaluation.csv")["ranker"]) == {"SPLADE"}


@needs_pisa
def test_validation_chooses_the_depth(squad, small, tmp_path, run):
    config = tmp_path / "config.json"
    further = {"triples": 8, "validation_queries": 3, "evaluate_every": 1, "patience": 2, "rerank_depth": [1, 4], "seeds": 1}
    config.write_text(json.dumps({**json.loads(small.read_text()), **further}))
    out = tmp_path / "out"
    command = ["--dataset", squad, "--config", config, "--arms", "natural", "--rankers", "tk", "--out", out]
    code, _ = run("tables_3_4.py", *command)
    assert code == 0
    assert len(pd.read_csv(out / "by_evaluation.csv")) == 3 * 2 * 3
    assert not any((out / "checkpoints").glob("*"))


@needs_pisa
def test_table_5(squad, small, tmp_path, run):
    out = tmp_path / "out"
    command = ["--dataset", squad, "--config", small, "--out", out, "--seeds", 1, "--rankers", "dot", "tk"]
    code, printed = run("table5.py", *command)
    assert code == 2 and "twice" in printed.err
    code, printed = run("table5.py", *command, "--dataset", squad)
    assert code == 0
    values = pd.read_csv(out / "by_start.csv").set_index(["ranker", "measure", "trained"])["value"]
    pairs = pd.read_csv(out / "pairwise.csv")
    assert len(values) == len(pairs) == 2 * 3 * 6
    for pair in pairs.itertuples():
        at = pair.ranker, pair.measure
        assert pair.difference == pytest.approx(values[(*at, pair.after)] - values[(*at, pair.before)])
    # What starts from the two sources are two rankers, and neither is the one that starts from the encoder.
    rows = [out / "arms" / f"{start}-dot-0" for start in ("target_only", "original_then_target", "rotated_then_target")]
    assert all((folder / "rows.csv").is_file() for folder in rows)


@needs_pisa
def test_table_5_from_kept_rankers(squad, small, tmp_path, run):
    kept, out = tmp_path / "kept", tmp_path / "out"
    same = ["--config", small, "--seeds", 1, "--rankers", "tk"]
    code, _ = run("tables_3_4.py", "--dataset", squad, *same, "--arms", "natural", "--keep", "--out", kept)
    assert code == 0
    command = ["table5.py", *same, "--kept", kept, "--out", out]
    code, printed = run(*command, "--dataset", squad, "--dataset", squad)
    assert code == 2 and "--dataset once with --kept" in printed.err
    code, printed = run(*command, "--dataset", squad)
    assert code == 0 and "6 of 6 arms" in printed.out, printed.err
    # The starts are the rankers that were kept: their own figures are those of the other program.
    before = pd.read_csv(kept / "by_evaluation.csv").set_index(["group", "trained", "measure"])["original"]
    values = pd.read_csv(out / "by_start.csv").set_index(["trained", "measure"])["value"]
    for view in ("original", "rotated"):
        assert values[f"{view} only", "nDCG@10"] == pytest.approx(before["all", view, "nDCG@10"])
    assert values.nunique() > 3
    # A seed that was not kept, other networks and other folders are refused before anything is trained.
    code, printed = run(*command, "--dataset", squad, "--seeds", 2)
    assert code == 2 and "natural-tk-original-1" in printed.err
    code, printed = run(*command[:-1], tmp_path / "other", "--dataset", squad, "--layers", 2)
    assert code == 2 and "have layers=" in printed.err
    code, printed = run("table5.py", *same, "--kept", tmp_path, "--out", tmp_path / "other", "--dataset", squad)
    assert code == 2 and "was not written by tables_3_4.py" in printed.err


@needs_pisa
def test_table_2(squad, small, tmp_path, run):
    out = tmp_path / "out"
    code, _ = run("table2.py", "--dataset", squad, "--config", small, "--arms", "planted", "--keep", "--out", out)
    assert code == 0
    # Without training, positions change no weight: two of each seed's six are one.
    weights = pd.read_csv(out / "weights.csv")["sha256"]
    assert len(weights) == 2 * 6 and weights.nunique() == 2 * 5
    table = pd.read_csv(out / "mats.csv")
    own = table[(table["pair_scope"] == "cross_passage") & (table["term_average"] == "present")]
    assert len(own) == 2 * 3 and (own["seeds"] == 2).all()
    values = own.set_index(["positional", "trained"])["mats_paper"]
    assert values.nunique() == 6
    change = pd.read_csv(out / "mats_change.csv")
    own_change = change[(change["pair_scope"] == "cross_passage") & (change["term_average"] == "present")]
    for row in own_change.itertuples():
        expected = values[row.positional, "rotated"] - values[row.positional, "original"]
        assert row.difference == pytest.approx(expected)
    assert len(own_change) == 2
    assert len(pd.read_csv(out / "effectiveness.csv")) == 2 * 3 * 3
    effects = pd.read_csv(out / "effectiveness.csv").set_index(["positional", "measure", "trained"])["difference"].unstack()
    gaps = pd.read_csv(out / "gap_closed.csv").set_index(["positional", "measure"])
    assert np.allclose(gaps["smaller_by"], (effects["rotated"] - effects["original"]).reindex(gaps.index))
    assert len(pd.read_csv(out / "by_training.csv")) == 2 * 3 * 2
    # The mean over seeds is the figure of all.
    by_seed = pd.read_csv(out / "gap_by_seed.csv")
    means = by_seed.groupby("positional")[["gap_trained_original", "gap_trained_rotated", "smaller_by"]].mean()
    for positional, row in means.iterrows():
        np.testing.assert_allclose(row, gaps.loc[(positional, "nDCG@10"), means.columns].astype(float), atol=1e-9)
    assert len(pd.read_csv(out / "mats_across_passages.csv")) == 2 * 3 * 2
    # Some of the conditions, read back.
    one = "--positional", "none", "--seeds", 1, "--keep"
    code, printed = run("table2.py", "--dataset", squad, "--config", small, "--arms", "planted", *one, "--out", out)
    assert code == 0 and "0 of 3 arms" in printed.out
    assert set(pd.read_csv(out / "mats.csv")["positional"]) == {"none"}


def test_markdown_table(workshop):
    table = pd.DataFrame({"a": ["x", "y"], "value": [0.12345, float("nan")], "p": [0.00001, 1.0], "n": [3, 4]})
    assert workshop.markdown(table) == (
        "| a | value | p | n |\n| --- | --- | --- | --- |\n| x | 0.123 | 1e-05 | 3 |\n| y |  | 1 | 4 |\n"
    )


def test_table_for_the_documentation(workshop):
    gaps = {"gap": [0.12345, 0.5], "low": [0.1, np.nan], "high": [0.2, np.nan]}
    table = pd.DataFrame({"a": ["nDCG@10", "y"], **gaps, "p": [0.00001, 1.0], "seeds": [3, 3], "why": ["", ""]})
    assert workshop.restructured(table, "Title").splitlines() == [
        ".. list-table:: Title; seeds: 3",
        "   :header-rows: 1",
        "",
        "   * - a",
        "     - gap",
        "     - p",
        r"   * - nDCG\@10",
        "     - 0.123 [0.100, 0.200]",
        "     - 1e-05",
        "   * - y",
        "     - 0.500",
        "     - 1",
    ]


def test_a_table_stands_under_the_caption_that_is_given_for_it(workshop, tmp_path, capsys):
    one = pd.DataFrame({"a": ["x", "y"], "n": [3, 3]})
    settings = dataclasses.make_dataclass("Settings", [])()
    workshop.write_results(tmp_path, "Page", settings, {"by_k": one, "other_one": one}, [], {"by_k": "RR@10 over k"})
    first = {path.stem: path.read_text().splitlines()[0] for path in tmp_path.glob("*.inc")}
    assert first == {"by_k": r".. list-table:: RR\@10 over k; n: 3", "other_one": ".. list-table:: Page: other one; n: 3"}


@needs_pisa
def test_averaging(squad, tmp_path, run):
    out = tmp_path / "out"
    model = tiny_models.build_sentence_transformer(tmp_path / "tiny")
    command = ["--dataset", squad, "--model", model, "--queries", 12, "--depth", 6, "--draws", 1, "--resamples", 99, "--out", out]
    code, _ = run("averaging.py", *command, "--rotations", 2, "--seed", 3)
    assert code == 0
    table = pd.read_csv(out / "averaging.csv").set_index("scores")
    assert table["passages read"].to_dict() == {"as they are": 1, "mean of 2": 2, "highest of 2": 2}
    assert (table["queries"] == 12).all() and table["p"].isna().tolist() == [True, False, False]
    plain, others = table.loc["as they are"], table.drop(index="as they are")
    assert np.allclose(others["change"], others["nDCG@10"] - plain["nDCG@10"])
    assert np.allclose(others["share closed"], 1 - others["displacement"] / plain["displacement"], atol=1e-6)
