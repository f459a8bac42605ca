"""The program that audits public rankers: from end to end in miniature, and what its page says of it."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from pyterrier_debias import BiEncoder, LinguisticComplexity
from pyterrier_debias.position.data.averaging import AverageRotations
from pyterrier_debias.position.data.rotation import RotatePassages
from pyterrier_debias.report.first_stage import pisa_installed
from tests import pages, tiny_models
from tests.conftest import ROOT, importable

FOLDER = ROOT / "examples" / "public_rankers"
#: The picture's size is looked at.
DRAWN = True
PAGE = pages.FOLDER / "public_rankers.rst"
RECORD = pages.FOLDER / "public_rankers.json"
PASSAGES, QUERIES = 14, ["who was the king", "what is tea made of in the rain near a river", "city of the singer", "boat"]


@pytest.fixture(scope="module")
def program():
    with importable(FOLDER):
        import audits
        import workshop

        yield audits, workshop
    import sys

    for name in ("audits", "workshop"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Both folders in the layout of the real ones: two years of four queries, and four rankers' orders of the same pairs."""
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice([*tiny_models.WORDS, "he", "she"], size=6 + n)) for n in range(PASSAGES)]

    def lines(path, rows):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{row}\n" for row in rows))

    def run(path, qids):
        orders = [(qid, n, rank) for qid in qids for rank, n in enumerate(generator.permutation(PASSAGES))]
        lines(path, [f"{qid} Q0 d{n} {rank + 1} {PASSAGES - rank} r" for qid, n, rank in orders])

    root = tmp_path_factory.mktemp("data")
    folder = root / "msmarco_trec_dl"
    lines(folder / "passages.tsv", [f"d{n}\t{text}" for n, text in enumerate(texts)])
    for year, first in (("dl19", 0), ("dl20", 10)):
        qids = [first + n for n in range(len(QUERIES))]
        lines(folder / f"topics.{year}-passage.tsv", [f"{qid}\t{query}" for qid, query in zip(qids, QUERIES)])
        judged = [f"{qid} 0 d{n} {int(generator.integers(3))}" for qid in qids for n in range(10)]
        lines(folder / f"qrels.{year}-passage.txt", judged)
        for name in ("bm25", "tasb"):
            run(folder / "runs" / f"{year}.{name}.trec", qids)
    folder = root / "survivorship_msmarco_v2"
    lines(folder / "passages.tsv", [f"d{n}\t{text}" for n, text in enumerate(texts)])
    (folder / "passages.tsv").rename(folder / "passages.tsv.gz")  # its reader goes by the content
    lines(folder / "queries.tsv", [f"{n}\t{query}" for n, query in enumerate(QUERIES)])
    for name in ("bm25", "ance", "colbert", "monot5"):
        run(folder / f"run.{name}.trec.gz", range(len(QUERIES)))
    return root


@pytest.mark.skipif(not pisa_installed(), reason="PISA is published for Linux on x86-64 only")
def test_all_arms(run, data, tmp_path):
    model = tiny_models.build_sentence_transformer(tmp_path / "model")
    out, options = tmp_path / "out", ["--depth", 14, "--moved-depth", 4, "--draws", 1, "--queries", 3]
    rankers = ["--model", model, "--ranker", f"again={model}", "--retrained", f"again={model}"]
    options = ["--data", data, *rankers, *options, "--out", out]
    code, printed = run("audits.py", *options)
    assert not code, printed.err
    tables = {path.stem: pd.read_csv(path) for path in out.glob("*.csv")}
    assert set(tables["gender"]["system"]) == {"BM25", "TAS-B", "model", "again"} and (tables["gender"]["queries"] == 6).all()
    # The same weights under two names have the same figures.
    twice = tables["length"].set_index("system").loc[["model", "again"], ["nDCG@10", "value", "against_BM25"]].to_numpy()
    assert (twice[0] == twice[1]).all()
    position = tables["position"].set_index("system")
    assert position.loc["BM25 (PISA)", "value"] == 0 and position["share closed"].notna().sum() == 5
    retrained = position.loc["again, trained on rotated passages"]
    assert retrained["value"] == position.loc["again", "value"] and retrained["share closed"] == retrained["change"] == 0
    pairs = tables["pairs"]
    assert set(pairs["system"]) == {"BM25", "ANCE", "ColBERT", "monoT5"} and len(tables["agreement"]) == 6
    assert (out / "picture.png").stat().st_size < 100_000
    # Texts stay where they are.
    written = "".join(path.read_text() for path in [*out.glob("*.csv"), *out.glob("*.inc"), out / "results.json"])
    assert [query for query in QUERIES if query in written and " " in query] == []
    # Called again it makes nothing anew, and refuses what it cannot compare.
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/audit.json")}
    code, printed = run("audits.py", *options)
    assert not code and before == {path: path.stat().st_mtime_ns for path in out.glob("*/audit.json")}
    code, printed = run("audits.py", "--data", data, "--ranker", "again", "--out", out)
    assert code == 2 and "--ranker again: write NAME=FOLDER" in printed.err
    code, printed = run("audits.py", "--data", data, "--retrained", "other=folder", "--out", out)
    assert code == 2 and "no --ranker of this name" in printed.err


@pytest.mark.java
def test_terriers_bm25_is_examined_over_the_passages_at_hand(program, data, tmp_path):
    """Its lists are those of an index that the test makes; words are counted wherever they stand; noun phrases are repeated."""
    import pyterrier as pt

    audits, _ = program
    trec = audits.trec_dl(data / "msmarco_trec_dl", None)
    system = audits.terrier_system(trec, tmp_path, 14)
    result = audits.kept(tmp_path, "terrier", {audits.TERRIER: system}, trec, biases=["position", "linguistic"], depth=14)
    index = pt.IterDictIndexer(str(tmp_path / "peer")).index(trec.get_corpus_iter(verbose=False))
    bm25 = pt.terrier.Retriever(index, wmodel="BM25")
    peer = pt.Experiment([bm25], trec.get_topics(), trec.get_qrels(), [pt.measures.nDCG @ 10], perquery=True).set_index("qid")
    expected = peer["value"].reindex(trec.get_topics()["qid"]).fillna(0.0)
    assert audits.effectiveness(result, audits.TERRIER).to_dict() == pytest.approx(expected.to_dict())
    settings = audits.Settings("minilm", {}, {}, 14, 14, None, 1, (2,), 0, terrier=True)
    (moved,) = audits.position_table(result, {}, settings).to_dict("records")
    assert moved["system"] == "BM25 (Terrier)" and moved["value"] == 0
    reworded = audits.reworded_table([result])
    assert {"noun_phrases - original", "keywords - original"} <= set(reworded["contrast"])


def test_wording_with_trees_is_of_all_indices(program, data, tmp_path, capsys):
    """An audit takes the complexity that the arm has put into the topics, and the table is of the same form."""
    audits, _ = program

    clause, phrase = "(ROOT (S (NP (PRP it)) (VP (VBZ is) (NP (DT a) (NN king)))))", "(ROOT (NP (NN boat)))"

    def parser(texts):
        return [[clause] if "king" in text or "tea" in text else [phrase] for text in texts]

    trec = audits.trec_dl(data / "msmarco_trec_dl", None)
    found = audits.parsed(trec, parser)
    expected = LinguisticComplexity("lu", parser=parser)(trec.get_topics())
    assert found.get_topics()["complexity"].tolist() == expected["complexity"].tolist()
    plain = LinguisticComplexity("lu")(trec.get_topics())
    assert found.get_topics()["complexity"].tolist() != plain["complexity"].tolist()
    assert "live indices, 50% of the queries without a T-unit" in capsys.readouterr().out
    result = audits.kept(tmp_path, "parsed", found.get_runs(), found, biases="linguistic", baseline=audits.FIRST, depth=14)
    table = audits.bias_table(result, "linguistic").set_index("system")
    assert np.isfinite(table.loc["TAS-B", "against_BM25"]) and list(table.index) == ["BM25", "TAS-B"]


def test_a_figure_of_the_pairs_is_that_of_its_definition(program):
    """Length: percentiles by counting; agreement: pairs of documents by counting."""
    audits, _ = program
    texts = {f"d{n}": "tea " * (1 + n // 2) for n in range(12)}

    def order(seed):
        frames = []
        for qid in map(str, range(8)):
            docnos = np.random.default_rng([seed, int(qid)]).permutation(list(texts))
            frames.append(pd.DataFrame({"qid": qid, "query": "tea", "docno": docnos, "rank": range(12)}))
        found = pd.concat(frames).assign(score=lambda rows: -rows["rank"].astype(float))
        return found.assign(text=found["docno"].map(texts)).sample(frac=1, random_state=seed, ignore_index=True)

    runs = {"one": order(0), "other": order(1)}
    settings = audits.Settings("minilm", {}, {}, 12, 12, None, 1, (2,), 0)
    topics = pd.DataFrame({"qid": [str(n) for n in range(8)], "query": "tea"})
    table = audits.pair_table(topics, runs, settings).set_index(["bias", "system"])
    words = {docno: len(text.split()) for docno, text in texts.items()}
    share = {d: np.mean([(words[o] < words[d]) + (words[o] == words[d]) / 2 for o in words]) - 0.5 for d in words}
    first = runs["one"][runs["one"]["rank"] < 10]
    assert table.loc[("length", "one"), "value"] == pytest.approx(first["docno"].map(share).groupby(first["qid"]).mean().mean())
    (found,) = audits.agreement_table(runs, settings).to_dict("records")
    taus, shared = [], []
    for qid in topics["qid"]:
        a, b = (run[run["qid"] == qid].set_index("docno")["rank"] for run in runs.values())
        signs = [np.sign((a[x] - a[y]) * (b[x] - b[y])) for x in texts for y in texts if x < y]
        taus.append(np.mean(signs))
        shared.append(sum(a[d] < 10 and b[d] < 10 for d in texts))
    assert found["tau"] == pytest.approx(np.mean(taus)) and found["common in the first ten"] == pytest.approx(np.mean(shared))


def test_the_mean_over_rotations_can_be_made_when_passages_are_indexed(tmp_path):
    """A score that is a product of vectors has the mean over rotations as the product with their mean vector."""
    model = BiEncoder(str(tiny_models.build_sentence_transformer(tmp_path / "model")))
    text = " ".join(tiny_models.WORDS[:12])
    frame = pd.DataFrame({"qid": "1", "query": "tea", "docno": ["d1"], "text": [text]})
    turned = [RotatePassages(offset=offset).rotator()(text, "")[0] for offset in (0, 3, 6, 9)]
    stored = model.encode_docs(turned).mean(axis=0)
    expected = float(model.encode_queries(["tea"])[0] @ stored)
    assert AverageRotations(model, 4)(frame)["score"].item() == pytest.approx(expected, abs=1e-5)


def test_the_page_shows_what_the_program_wrote(program):
    audits, workshop = program
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    included = dict(re.findall(r"\.\. include:: (public_rankers_(\w+)\.inc)", PAGE.read_text(encoding="utf-8")))
    assert {name for name in record["tables"]} == set(included.values())
    for file, name in included.items():
        told = workshop.restructured(pd.DataFrame(record["tables"][name]), audits.CAPTIONS[name])
        assert (pages.FOLDER / file).read_text(encoding="utf-8") == told, name
    assert record["command"] in PAGE.read_text(encoding="utf-8")
