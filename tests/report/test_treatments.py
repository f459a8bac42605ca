"""The code that reports print is run as it is printed: of every treatment, for every kind of ranker that it is printed for."""

import ast

import pandas as pd
import pyterrier as pt
import pytest

from pyterrier_debias import (
    AuditResult,
    AverageRotations,
    BiEncoder,
    CETReranker,
    CrossEncoder,
    MultiVector,
    NeutralReranker,
    PlantedCollection,
    SparseEncoder,
    T5Reranker,
    Training,
    audit,
    open_dataset,
)
from pyterrier_debias.core.systems import System
from pyterrier_debias.rankers.duo_t5 import DuoT5Reranker
from pyterrier_debias.report.run import rankers_as_code, treated_by
from pyterrier_debias.report.treatments import TREATMENTS, treatments
from tests import tiny_models

#: The class of a ranker to how its tiny model is built. The models lie in the working folder, so that their names are printed.
BUILT = {
    CrossEncoder: lambda folder: tiny_models.build(folder),
    BiEncoder: lambda folder: tiny_models.build_sentence_transformer(folder),
    MultiVector: lambda folder: tiny_models.build_multi_vector(folder),
    SparseEncoder: lambda folder: tiny_models.build(folder, masked=True),
    T5Reranker: lambda folder: tiny_models.build_t5(folder, extra=True),
}
BM25 = pt.Transformer.from_df(pd.DataFrame({"qid": ["1"], "docno": ["d"], "score": [1.0], "rank": [0]}))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a tiny model for each class, under the name of the class."""
    folder = tmp_path_factory.mktemp("models")
    for kind, build in BUILT.items():
        build(folder / kind.__name__)
    return folder


@pytest.fixture(scope="module")
def dataset():
    return PlantedCollection(seed=1, topics=6, passages=60, train_topics=2, depth=6)


@pytest.fixture
def names(place, dataset, monkeypatch):
    """What the reader of a report has: the systems, the collection, and other queries to train on; nothing imported."""
    monkeypatch.chdir(place)
    train = open_dataset(dataset, split="train")
    bm25 = pt.Transformer.from_df(dataset.get_runs()["bm25"])  # of all queries
    return {
        "systems": {"BM25": bm25}, "dataset": dataset, "topics": dataset.get_topics(), "qrels": dataset.get_qrels(),
        "train_topics": train.get_topics(), "train_qrels": train.get_qrels(),
    }  # fmt: skip


def audited(names, name, ranker):
    """The settings of an audit of BM25 and of a ranker over it, which is among the systems then."""
    candidates = names["systems"]["BM25"] % 4 >> names["dataset"].text_loader()
    names["systems"][name] = candidates >> ranker
    system = System(name, candidates, ranker)
    known = {"rankers": rankers_as_code([system]), "treated": treated_by([system])}
    return {"systems": list(names["systems"]), "depth": 4, **known}


def run(treatment, names):
    """Run imports and code as they are printed; gives the names that are there then, and the value of the last line."""
    names = dict(names)
    tree = ast.parse(f"{treatment.imports}\n{treatment.code}")
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, treatment.name, "exec"), names)
    return names, None if last is None else eval(compile(ast.Expression(last.value), treatment.name, "eval"), names)


@pytest.mark.parametrize("kind", BUILT, ids=lambda kind: kind.__name__)
def test_code_of_every_treatment_runs_as_it_is_printed(kind, names):
    ranker, name = kind(kind.__name__, training=Training(max_steps=1)), f"BM25 >> {kind.__name__}"
    known = audited(names, name, ranker)
    ranked = len(names["systems"][name](names["topics"]))
    for one in [one for bias in TREATMENTS for one in treatments(bias, name, known)]:
        made, value = run(one, names)
        assert max(map(len, one.code.splitlines())) <= 110
        if one.name == "Average over rotations":
            assert made["ranker"] == AverageRotations(kind(kind.__name__), 4)
            assert len(made["averaged"](names["topics"])) == ranked
        elif one.name == "Re-rank by neutrality":
            assert len(made["neutral"](names["topics"])) == ranked
        elif one.name == "Infer the missing labels":
            assert value["name"].tolist() == ["BM25", name] and value.shape == (2, 3)
        else:  # what was audited, trained
            assert "training=" in one.code and type(made["ranker"]) is kind and made["ranker"].model == kind.__name__
            assert made["ranker"] != ranker


def test_every_treatment_of_a_ranker_was_run():
    told = {one.name for several in TREATMENTS.values() for one in several}
    assert told == {
        "Average over rotations", "Train on rotated passages", "Re-rank by neutrality", "Train with biased negatives",
        "Infer the missing labels", "Swap gendered words in training",
    }  # fmt: skip


@pytest.mark.parametrize("given", ["foreign", "trained", "absolute", "around"])
def test_a_ranker_that_no_name_makes_is_called_ranker(given, names, place):
    """It, a first stage and a model are the reader's then; the code runs with them all the same."""
    ranker = CrossEncoder("CrossEncoder", device="cpu")
    if given == "foreign":
        ranker = pt.apply.doc_score(lambda row: float(len(row["text"])))
    if given == "trained":
        ranker.warm_up()
        ranker.mark_trained()
    if given == "absolute":
        ranker = CrossEncoder(place / "CrossEncoder", device="cpu")
    if given == "around":
        ranker = CETReranker(ranker)
    known = audited(names, "mine", ranker)
    averaged, trained = treatments("position", "mine", known)
    assert str(place) not in averaged.code + trained.code
    assert averaged.code.startswith("ranker = AverageRotations(") and "ranker, " in averaged.code.replace(")", "")
    stand_ins = {"ranker": CrossEncoder("CrossEncoder"), "model": "CrossEncoder", "candidates": names["systems"]["BM25"]}
    for one in (averaged, trained):
        made, _ = run(one, {**names, **stand_ins})
        assert made["ranker"] != stand_ins["ranker"]


def given_as(kind, bm25, dataset, ranker):
    """What a user gives to an audit, the name of the ranker in its report, and whether it is a dictionary of pipelines."""
    whole = bm25 % 4 >> dataset.text_loader() >> ranker
    run, system = dataset.get_runs()["bm25"], System("mine", bm25 % 4 >> dataset.text_loader(), ranker)
    return {
        "dictionary": ({"BM25": bm25, "mine": whole}, "mine", True),
        "frame": ({"BM25": run, "mine": whole}, "mine", False),
        "ranker": ({"BM25": bm25, "mine": ranker}, "mine", False),
        "system": ({"mine": system}, "mine", False),
        "list of systems": ([System("BM25", bm25), system], "mine", False),
        "list": ([bm25, whole], None, False),
        "one": (whole, None, False),
        "number": ({1: whole}, "1", False),
    }[kind]


@pytest.mark.parametrize("kind", ["dictionary", "frame", "ranker", "system", "list of systems", "list", "one", "number"])
def test_code_runs_for_systems_in_whatever_form_they_were_given(kind, names):
    bm25, dataset = names["systems"]["BM25"], names["dataset"]
    ranker = pt.apply.doc_score(lambda row: float(len(row["text"])))
    systems, name, plain = given_as(kind, bm25, dataset, ranker)
    result = audit(systems, dataset, biases=["pooling"], depth=4)
    name = name or result.settings["systems"][-1]
    assert result.settings["pipelines"] == plain
    (inferred,) = treatments("pooling", name, result.settings)
    neutral = treatments("gender", name, result.settings)[0]
    assert ("pipelines" in neutral.code) != plain and ("pipelines" in inferred.code) != plain
    _, value = run(inferred, {**names, "systems": systems})
    assert value["name"].tolist() == result.settings["systems"]
    made, _ = run(neutral, {**names, "systems": systems})
    assert set(made["neutral"](names["topics"])["qid"]) == set(names["topics"]["qid"])
    assert AuditResult.from_json(result.to_json()).settings == result.settings


def test_code_names_the_retriever_that_was_audited_whatever_its_name(names):
    bm25, dataset = names["systems"]["BM25"], names["dataset"]
    ranker = pt.apply.doc_score(lambda row: float(len(row["text"])))
    systems = {"first": bm25, "mine": bm25 % 4 >> dataset.text_loader() >> ranker, "alone": ranker}
    result = audit(systems, dataset, biases=["pooling"], depth=4)
    assert result.settings["retrievers"] == {"mine": "first"}
    averaged, alone = (treatments("position", name, result.settings)[0] for name in ("mine", "alone"))
    assert "systems['first'] % 4 >> dataset.text_loader()" in averaged.code and "candidates % 4" in alone.code
    made, _ = run(averaged, {**names, "systems": systems, "ranker": ranker})
    assert len(made["averaged"](names["topics"].head(1))) == 4


def test_stages_that_treat_a_bias_are_left_out_and_options_kept(place, monkeypatch):
    monkeypatch.chdir(place)
    ranker = T5Reranker("T5Reranker", head="rankt5", device="cpu", batch_tokens=512)
    plain = rankers_as_code([System("mine", BM25, ranker)])
    assert plain == {"mine": "T5Reranker('T5Reranker', head='rankt5')"}
    for treated in (AverageRotations(ranker, 2), ranker >> NeutralReranker()):
        assert rankers_as_code([System("mine", BM25, treated)]) == plain
    assert rankers_as_code([System("BM25", BM25)]) == {}


def test_a_ranker_that_compares_documents_is_neither_averaged_nor_trained(names):
    known = audited(names, "duo", DuoT5Reranker("T5Reranker"))
    assert treatments("position", "duo", known) == ()
    assert [one.name for one in treatments("gender", "duo", known)] == ["Re-rank by neutrality"]
